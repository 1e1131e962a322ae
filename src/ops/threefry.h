/* threefry.h: the block function of the random bits.
 *
 * Threefry-2x32 with 20 rounds (Salmon et al., "Parallel random numbers: as
 * easy as 1, 2, 3", 2011).  A counter is hashed under a key; both halves of the
 * result are output words. */
#ifndef QN_OPS_THREEFRY_H
#define QN_OPS_THREEFRY_H

#include <stdint.h>

typedef struct qn_threefry_pair {
    uint32_t a, b;
} qn_threefry_pair;

static inline qn_threefry_pair qn_threefry(qn_threefry_pair key,
                                           qn_threefry_pair counter)
{
    static const unsigned char turns[2][4] = {{13, 15, 26, 6},
                                              {17, 29, 16, 24}};
    const uint32_t schedule[3] = {key.a, key.b,
                                  key.a ^ key.b ^ UINT32_C(0x1bd11bda)};
    uint32_t a = counter.a + schedule[0], b = counter.b + schedule[1];
    for (unsigned block = 0; block < 5; block++) {
        for (unsigned i = 0; i < 4; i++) {
            unsigned turn = turns[block % 2][i];
            a += b;
            b = (b << turn | b >> (32 - turn)) ^ a;
        }
        a += schedule[(block + 1) % 3];
        b += schedule[(block + 2) % 3] + block + 1;
    }
    return (qn_threefry_pair){a, b};
}

#endif
