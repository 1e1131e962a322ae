/* sort_keys.c: keys of every type. */
#include "sort_keys.h"

#include "radix.h"

#include <string.h>

#define INLINE static inline __attribute__((always_inline))

/* ---- keys ---- */

/* Integers: the sign bit turned over.  Floats: negative ones in reverse below
 * the positive ones.  `merge`: -0 has the key of 0. */
#define UNSIGNED_KEY(S, T, K)                                                  \
    INLINE K key_##S(T x, bool merge)                                          \
    {                                                                          \
        (void)merge;                                                           \
        return x;                                                              \
    }                                                                          \
    INLINE T value_##S(K key)                                                  \
    {                                                                          \
        return (T)key;                                                         \
    }
#define SIGNED_KEY(S, T, U, K)                                                 \
    INLINE K key_##S(U x, bool merge)                                          \
    {                                                                          \
        (void)merge;                                                           \
        return (U)(x ^ (U)((U)1 << (8 * sizeof(U) - 1)));                      \
    }                                                                          \
    INLINE U value_##S(K key)                                                  \
    {                                                                          \
        return (U)(key ^ (U)((U)1 << (8 * sizeof(U) - 1)));                    \
    }
#define FLOAT_KEY(S, U, K, infinity)                                           \
    INLINE bool nan_##S(U x)                                                   \
    {                                                                          \
        return (U)(x << 1) > (U)((U)(infinity) << 1);                          \
    }                                                                          \
    INLINE K key_##S(U x, bool merge)                                          \
    {                                                                          \
        const U sign = (U)((U)1 << (8 * sizeof(U) - 1));                       \
        U y = merge && x == sign ? 0 : x;                                      \
        U key = y & sign ? (U)~y : (U)(y | sign);                              \
        return nan_##S(x) ? (U) ~(U)0 : key;                                   \
    }                                                                          \
    INLINE U value_##S(K key)                                                  \
    {                                                                          \
        const U sign = (U)((U)1 << (8 * sizeof(U) - 1));                       \
        return key & sign ? (U)(key ^ sign) : (U)~key;                         \
    }

UNSIGNED_KEY(u8, uint8_t, uint32_t)
UNSIGNED_KEY(u16, uint16_t, uint32_t)
UNSIGNED_KEY(u32, uint32_t, uint32_t)
UNSIGNED_KEY(u64, uint64_t, uint64_t)
SIGNED_KEY(i8, int8_t, uint8_t, uint32_t)
SIGNED_KEY(i16, int16_t, uint16_t, uint32_t)
SIGNED_KEY(i32, int32_t, uint32_t, uint32_t)
SIGNED_KEY(i64, int64_t, uint64_t, uint64_t)
FLOAT_KEY(f16, uint16_t, uint32_t, 0x7c00)
FLOAT_KEY(bf16, uint16_t, uint32_t, 0x7f80)
FLOAT_KEY(f32, uint32_t, uint32_t, 0x7f800000)
FLOAT_KEY(f64, uint64_t, uint64_t, 0x7ff0000000000000)

INLINE uint32_t key_truth(uint8_t x, bool merge)
{
    (void)merge;
    return x != 0;
}
INLINE uint8_t value_truth(uint32_t key)
{
    return (uint8_t)key;
}

/* Complex numbers: by the real part, then by the imaginary one. */
typedef struct parts {
    uint32_t re, im;
} parts;
INLINE uint64_t key_c64(parts x, bool merge)
{
    (void)merge;
    uint64_t key = (uint64_t)key_f32(x.re, true) << 32 | key_f32(x.im, true);
    return nan_f32(x.re) || nan_f32(x.im) ? UINT64_MAX : key;
}

/* X(dtype, S, stored type, key type); those of integers and of floats. */
/* clang-format off */
#define EACH_WHOLE(X)                                                          \
    X(BOOL, truth, uint8_t, uint32_t)                                          \
    X(UINT8, u8, uint8_t, uint32_t)                                            \
    X(UINT16, u16, uint16_t, uint32_t)                                         \
    X(UINT32, u32, uint32_t, uint32_t)                                         \
    X(UINT64, u64, uint64_t, uint64_t)                                         \
    X(INT8, i8, uint8_t, uint32_t)                                             \
    X(INT16, i16, uint16_t, uint32_t)                                          \
    X(INT32, i32, uint32_t, uint32_t)                                          \
    X(INT64, i64, uint64_t, uint64_t)
#define EACH_REAL(X)                                                           \
    X(FLOAT16, f16, uint16_t, uint32_t)                                        \
    X(BFLOAT16, bf16, uint16_t, uint32_t)                                      \
    X(FLOAT32, f32, uint32_t, uint32_t)                                        \
    X(FLOAT64, f64, uint64_t, uint64_t)
/* clang-format on */

/* ---- values ---- */

#define NAN_OF_WHOLE(S, x) false
#define NAN_OF_REAL(S, x) nan_##S(x)
#define MINUS_ZERO_OF_WHOLE(T, x) false
#define MINUS_ZERO_OF_REAL(T, x) ((T)((x) << 1) == 0 && (x) != 0)

/* A loop of its own where elements are neighbours is one that compilers
 * vectorise. */
#define VALUES(dtype, S, T, K, kind)                                           \
    INLINE void keys_##S##_at(K *to, const T *from, int64_t step, size_t n,    \
                              qn_key_facts *facts)                             \
    {                                                                          \
        K any = 0, all = (K) ~(K)0, nans = 0, zeros = 0;                       \
        for (size_t i = 0; i < n; i++) {                                       \
            T x = from[(int64_t)i * step];                                     \
            K key = key_##S(x, false);                                         \
            any |= key;                                                        \
            all &= key;                                                        \
            nans += NAN_OF_##kind(S, x);                                       \
            zeros += MINUS_ZERO_OF_##kind(T, x);                               \
            to[i] = key;                                                       \
        }                                                                      \
        *facts = (qn_key_facts){any, all, nans, zeros};                        \
    }                                                                          \
    static void load_##S(void *items, const void *from, int64_t step,          \
                         size_t first, size_t n, qn_key_facts *facts)          \
    {                                                                          \
        (void)first;                                                           \
        if (step == 1)                                                         \
            keys_##S##_at(items, from, 1, n, facts);                           \
        else                                                                   \
            keys_##S##_at(items, from, step, n, facts);                        \
    }                                                                          \
    static void store_##S(void *to, int64_t to_step, const void *items,        \
                          size_t n, const void *line, int64_t step)            \
    {                                                                          \
        (void)line;                                                            \
        (void)step;                                                            \
        const K *keys = items;                                                 \
        T *at = to;                                                            \
        if (to_step == 1)                                                      \
            for (size_t i = 0; i < n; i++)                                     \
                at[i] = value_##S(keys[i]);                                    \
        else                                                                   \
            for (size_t i = 0; i < n; i++)                                     \
                at[(int64_t)i * to_step] = value_##S(keys[i]);                 \
    }
#define WHOLE_VALUES(dtype, S, T, K) VALUES(dtype, S, T, K, WHOLE)
#define REAL_VALUES(dtype, S, T, K)                                            \
    VALUES(dtype, S, T, K, REAL)                                               \
    static void restore_##S(void *to, int64_t to_step, const void *from,       \
                            int64_t step, size_t n, size_t nans)               \
    {                                                                          \
        const T *x = from;                                                     \
        T *y = to;                                                             \
        size_t zero = 0, nan = n - nans;                                       \
        const T sign = (T)((T)1 << (8 * sizeof(T) - 1));                       \
        for (size_t i = 0; i < n; i++) {                                       \
            T bits = x[(int64_t)i * step];                                     \
            zero += bits > sign && !nan_##S(bits); /* below 0 */               \
        }                                                                      \
        for (size_t i = 0; i < n; i++) {                                       \
            T bits = x[(int64_t)i * step];                                     \
            if (nan_##S(bits))                                                 \
                y[(int64_t)nan++ * to_step] = bits;                            \
            else if ((T)(bits << 1) == 0)                                      \
                y[(int64_t)zero++ * to_step] = bits;                           \
        }                                                                      \
    }
EACH_WHOLE(WHOLE_VALUES)
EACH_REAL(REAL_VALUES)

/* ---- indices ---- */

/* The key above the index in 64 bits, or beside it. */
#define ITEM_OF_uint32_t(key, index) ((uint64_t)(key) << 32 | (index))
#define ITEM_OF_uint64_t(key, index) ((qn_wide_item){key, index})
typedef uint64_t item_of_uint32_t;
typedef qn_wide_item item_of_uint64_t;

#define INDICES(dtype, S, T, K)                                                \
    INLINE void items_##S##_at(item_of_##K *to, const T *from, int64_t step,   \
                               size_t first, size_t n, qn_key_facts *facts)    \
    {                                                                          \
        K any = 0, all = (K) ~(K)0;                                            \
        for (size_t i = 0; i < n; i++) {                                       \
            K key = key_##S(from[(int64_t)i * step], true);                    \
            any |= key;                                                        \
            all &= key;                                                        \
            to[i] = ITEM_OF_##K(key, first + i);                               \
        }                                                                      \
        *facts = (qn_key_facts){any, all, 0, 0};                               \
    }                                                                          \
    static void load_indices_##S(void *items, const void *from, int64_t step,  \
                                 size_t first, size_t n, qn_key_facts *facts)  \
    {                                                                          \
        if (step == 1)                                                         \
            items_##S##_at(items, from, 1, first, n, facts);                   \
        else                                                                   \
            items_##S##_at(items, from, step, first, n, facts);                \
    }
EACH_WHOLE(INDICES)
EACH_REAL(INDICES)
INDICES(COMPLEX64, c64, parts, uint64_t)

static void store_low(void *to, int64_t to_step, const void *items, size_t n,
                      const void *line, int64_t step)
{
    (void)line;
    (void)step;
    const uint64_t *from = items;
    uint32_t *at = to;
    for (size_t i = 0; i < n; i++)
        at[(int64_t)i * to_step] = (uint32_t)from[i];
}

static void store_index(void *to, int64_t to_step, const void *items, size_t n,
                        const void *line, int64_t step)
{
    (void)line;
    (void)step;
    const qn_wide_item *from = items;
    uint32_t *at = to;
    for (size_t i = 0; i < n; i++)
        at[(int64_t)i * to_step] = (uint32_t)from[i].index;
}

/* Complex numbers themselves: their keys don't tell zeros apart. */
static void store_c64(void *to, int64_t to_step, const void *items, size_t n,
                      const void *line, int64_t step)
{
    const qn_wide_item *from = items;
    const parts *elements = line;
    parts *at = to;
    for (size_t i = 0; i < n; i++)
        at[(int64_t)i * to_step] = elements[(int64_t)from[i].index * step];
}

/* ---- the tables ---- */

qn_sort_keys qn_sort_keys_of(qn_dtype dtype, bool indices)
{
#define WHOLE_ENTRY(dtype, S, T, K)                                            \
    [QN_##dtype] = {sizeof(K), 0, load_##S, store_##S, NULL},
#define REAL_ENTRY(dtype, S, T, K)                                             \
    [QN_##dtype] = {sizeof(K), 0, load_##S, store_##S, restore_##S},
#define SHIFT_uint32_t 32
#define SHIFT_uint64_t 0
#define STORE_uint32_t store_low
#define STORE_uint64_t store_index
#define INDEX_ENTRY(dtype, S, T, K)                                            \
    [QN_##dtype] = {2 * sizeof(K), SHIFT_##K, load_indices_##S, STORE_##K,     \
                    NULL},
    static const qn_sort_keys values[QN_DTYPE_COUNT] = {
        EACH_WHOLE(WHOLE_ENTRY) EACH_REAL(REAL_ENTRY)[QN_COMPLEX64] = {
            sizeof(qn_wide_item), 0, load_indices_c64, store_c64, NULL}};
    static const qn_sort_keys places[QN_DTYPE_COUNT] = {
        EACH_WHOLE(INDEX_ENTRY) EACH_REAL(INDEX_ENTRY)
            INDEX_ENTRY(COMPLEX64, c64, parts, uint64_t)};
    return indices ? places[dtype] : values[dtype];
}
