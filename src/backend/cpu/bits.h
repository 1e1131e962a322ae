/* bits.h: short pieces of bit streams. */
#ifndef QN_CPU_BITS_H
#define QN_CPU_BITS_H

#include <stdint.h>
#include <string.h>

/* `count` bytes, 1 to 8, as a little-endian number.  With a constant count
 * this is one to three loads; nothing beyond is read. */
static inline __attribute__((always_inline, unused)) uint64_t
qn_load_bytes(const uint8_t *p, int count)
{
    uint64_t value = 0;
    if (count == 8) {
        memcpy(&value, p, 8);
        return value;
    }
    int at = 0;
    if (count & 4) {
        uint32_t four;
        memcpy(&four, p, 4);
        value = four;
        at = 4;
    }
    if (count & 2) {
        uint16_t two;
        memcpy(&two, p + at, 2);
        value |= (uint64_t)two << (8 * at);
        at += 2;
    }
    if (count & 1)
        value |= (uint64_t)p[at] << (8 * at);
    return value;
}

#endif
