/* digest.c: see digest.h.  Source of the algorithms and constants: FIPS 180-4
 * (the constants are the fractions of the cube and square roots of primes). */
#include "digest.h"

#include "bytes.h"

static const uint32_t rounds256[64] = {
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
    0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static uint32_t left(uint32_t x, int n)
{
    return x << n | x >> (32 - n);
}

static uint32_t right(uint32_t x, int n)
{
    return left(x, 32 - n);
}

static uint32_t be32(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 |
           (uint32_t)p[3];
}

static void put_be32(uint8_t *p, uint32_t v)
{
    for (int i = 0; i < 4; i++)
        p[i] = (uint8_t)(v >> (24 - 8 * i));
}

/* Round j of eight: s[-j mod 8] is the word that the standard calls a. */
static inline void round256(uint32_t *s, int j, uint32_t input)
{
#define S(k) s[(k + 8 - j) & 7]
    uint32_t a = S(0), e = S(4);
    uint32_t t1 = S(7) + (right(e, 6) ^ right(e, 11) ^ right(e, 25)) +
                  ((e & S(5)) ^ (~e & S(6))) + input;
    uint32_t t2 = (right(a, 2) ^ right(a, 13) ^ right(a, 22)) +
                  ((a & S(1)) ^ (a & S(2)) ^ (S(1) & S(2)));
    S(3) += t1;
    S(7) = t1 + t2;
#undef S
}

static void block256(uint32_t *h, const uint8_t *block)
{
    uint32_t w[64], s[8];
    for (int i = 0; i < 16; i++)
        w[i] = be32(block + 4 * i);
    for (int i = 16; i < 64; i++) {
        uint32_t a = w[i - 15], b = w[i - 2];
        w[i] = w[i - 16] + (right(a, 7) ^ right(a, 18) ^ a >> 3) + w[i - 7] +
               (right(b, 17) ^ right(b, 19) ^ b >> 10);
    }
    memcpy(s, h, sizeof s);
    /* Eight rounds at a time: the state turns by one word a round, and so its
     * words stay in registers. */
    for (int i = 0; i < 64; i += 8)
        for (int j = 0; j < 8; j++)
            round256(s, j, rounds256[i + j] + w[i + j]);
    for (int i = 0; i < 8; i++)
        h[i] += s[i];
}

static void block1(uint32_t *h, const uint8_t *block)
{
    uint32_t w[80], a = h[0], b = h[1], c = h[2], d = h[3], e = h[4];
    for (int i = 0; i < 16; i++)
        w[i] = be32(block + 4 * i);
    for (int i = 16; i < 80; i++)
        w[i] = left(w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16], 1);
    for (int i = 0; i < 80; i++) {
        uint32_t f = i < 20   ? ((b & c) | (~b & d)) + 0x5a827999
                     : i < 40 ? (b ^ c ^ d) + 0x6ed9eba1
                     : i < 60 ? ((b & c) | (b & d) | (c & d)) + 0x8f1bbcdc
                              : (b ^ c ^ d) + 0xca62c1d6;
        uint32_t next = left(a, 5) + f + e + w[i];
        e = d;
        d = c;
        c = left(b, 30);
        b = a;
        a = next;
    }
    uint32_t add[5] = {a, b, c, d, e};
    for (int i = 0; i < 5; i++)
        h[i] += add[i];
}

void qn_digest_begin(qn_digest *digest, qn_digest_kind kind)
{
    static const uint32_t begin256[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372,
                                         0xa54ff53a, 0x510e527f, 0x9b05688c,
                                         0x1f83d9ab, 0x5be0cd19};
    static const uint32_t begin1[8] = {0x67452301, 0xefcdab89, 0x98badcfe,
                                       0x10325476, 0xc3d2e1f0};
    *digest = (qn_digest){.kind = kind};
    memcpy(digest->state, kind == QN_SHA256 ? begin256 : begin1,
           sizeof digest->state);
}

void qn_digest_add(qn_digest *digest, const void *data, size_t size)
{
    void (*block)(uint32_t *, const uint8_t *) =
        digest->kind == QN_SHA256 ? block256 : block1;
    const uint8_t *p = data;
    size_t held = digest->size % 64;
    digest->size += size;
    while (size) {
        if (!held && size >= 64) {
            block(digest->state, p);
            p += 64;
            size -= 64;
            continue;
        }
        size_t n = size < 64 - held ? size : 64 - held;
        memcpy(digest->tail + held, p, n);
        held = (held + n) % 64;
        p += n;
        size -= n;
        if (!held)
            block(digest->state, digest->tail);
    }
}

void qn_digest_end(qn_digest *digest, char hex[QN_DIGEST_SIZE])
{
    static const uint8_t pad[64] = {0x80};
    uint64_t bits = digest->size * 8;
    uint8_t length[8], bytes[32];
    put_be32(length, (uint32_t)(bits >> 32));
    put_be32(length + 4, (uint32_t)bits);
    qn_digest_add(digest, pad, 1 + (119 - digest->size % 64) % 64);
    qn_digest_add(digest, length, sizeof length);
    int words = digest->kind == QN_SHA256 ? 8 : 5;
    for (int i = 0; i < words; i++)
        put_be32(bytes + 4 * i, digest->state[i]);
    for (int i = 0; i < 4 * words; i++) {
        hex[2 * i] = "0123456789abcdef"[bytes[i] >> 4];
        hex[2 * i + 1] = "0123456789abcdef"[bytes[i] & 15];
    }
    hex[8 * words] = '\0';
}
