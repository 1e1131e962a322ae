/* bytes.h: borrowed byte ranges and little-endian loads from them. */
#ifndef QN_BASE_BYTES_H
#define QN_BASE_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* A range somebody else owns. */
typedef struct qn_bytes {
    const uint8_t *data;
    size_t size;
} qn_bytes;

/* A piece of text somebody else owns; not NUL-terminated. */
typedef struct qn_str {
    const char *data;
    size_t size;
} qn_str;

#define QN_STR(literal) ((qn_str){"" literal "", sizeof(literal) - 1})

static inline qn_str qn_str_of(const char *text)
{
    return (qn_str){text, text ? strlen(text) : 0};
}

static inline bool qn_str_eq(qn_str a, qn_str b)
{
    return a.size == b.size && (!a.size || !memcmp(a.data, b.data, a.size));
}

static inline bool qn_str_is(qn_str a, const char *text)
{
    return qn_str_eq(a, qn_str_of(text));
}

static inline uint16_t qn_le16(const uint8_t *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}

static inline uint32_t qn_le32(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 |
           (uint32_t)p[3] << 24;
}

static inline uint64_t qn_le64(const uint8_t *p)
{
    return (uint64_t)qn_le32(p) | (uint64_t)qn_le32(p + 4) << 32;
}

static inline void qn_put_le32(uint8_t *p, uint32_t v)
{
    p[0] = (uint8_t)v;
    p[1] = (uint8_t)(v >> 8);
    p[2] = (uint8_t)(v >> 16);
    p[3] = (uint8_t)(v >> 24);
}

static inline void qn_put_le64(uint8_t *p, uint64_t v)
{
    qn_put_le32(p, (uint32_t)v);
    qn_put_le32(p + 4, (uint32_t)(v >> 32));
}

#endif
