/* qn_sha256.h: SHA-256 (FIPS 180-4), for vectors that are kept as digests. */
#ifndef QN_TEST_SUPPORT_SHA256_H
#define QN_TEST_SUPPORT_SHA256_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static inline uint32_t qn_sha256_turn(uint32_t x, int by)
{
    return x >> by | x << (32 - by);
}

static inline void qn_sha256_block(uint32_t h[8], const uint8_t *p)
{
    /* The first 32 bits of the fractions of cube roots of primes. */
    static const uint32_t k[64] = {
        0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1,
        0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3,
        0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786,
        0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
        0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147,
        0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13,
        0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b,
        0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
        0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a,
        0x5b9cca4f, 0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208,
        0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};
    uint32_t w[64], v[8];
    for (int i = 0; i < 16; i++)
        w[i] = (uint32_t)p[4 * i] << 24 | (uint32_t)p[4 * i + 1] << 16 |
               (uint32_t)p[4 * i + 2] << 8 | p[4 * i + 3];
    for (int i = 16; i < 64; i++) {
        uint32_t a = w[i - 15], b = w[i - 2];
        w[i] = w[i - 16] + w[i - 7] +
               (qn_sha256_turn(a, 7) ^ qn_sha256_turn(a, 18) ^ a >> 3) +
               (qn_sha256_turn(b, 17) ^ qn_sha256_turn(b, 19) ^ b >> 10);
    }
    /* The eight words turn by one each round; eight rounds leave them as they
     * were, so that none is moved. */
    memcpy(v, h, sizeof v);
    for (int i = 0; i < 64; i += 8)
#pragma GCC unroll 8
        for (int r = 0; r < 8; r++) {
            uint32_t *last = &v[(7 - r) & 7], a = v[(8 - r) & 7];
            uint32_t b = v[(9 - r) & 7], c = v[(10 - r) & 7];
            uint32_t e = v[(12 - r) & 7], f = v[(13 - r) & 7];
            uint32_t t = *last + k[i + r] + w[i + r] +
                         ((e & f) ^ (~e & v[(14 - r) & 7])) +
                         (qn_sha256_turn(e, 6) ^ qn_sha256_turn(e, 11) ^
                          qn_sha256_turn(e, 25));
            v[(11 - r) & 7] += t;
            *last = t +
                    (qn_sha256_turn(a, 2) ^ qn_sha256_turn(a, 13) ^
                     qn_sha256_turn(a, 22)) +
                    ((a & b) ^ (a & c) ^ (b & c));
        }
    for (int i = 0; i < 8; i++)
        h[i] += v[i];
}

/* The digest as 64 digits. */
static inline void qn_sha256(char out[65], const void *data, size_t size)
{
    uint32_t h[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                     0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    uint8_t last[128] = {0};
    size_t whole = size / 64 * 64, rest = size - whole;
    size_t end = rest < 56 ? 64 : 128;
    for (size_t i = 0; i < whole; i += 64)
        qn_sha256_block(h, (const uint8_t *)data + i);
    if (rest)
        memcpy(last, (const uint8_t *)data + whole, rest);
    last[rest] = 0x80;
    for (int i = 0; i < 8; i++)
        last[end - 1 - (size_t)i] = (uint8_t)((uint64_t)size * 8 >> (8 * i));
    for (size_t i = 0; i < end; i += 64)
        qn_sha256_block(h, last + i);
    for (int i = 0; i < 8; i++)
        snprintf(out + 8 * i, 9, "%08x", (unsigned)h[i]);
}

#endif
