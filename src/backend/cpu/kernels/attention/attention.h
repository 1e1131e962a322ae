/* attention.h: softmax(scale q k^T + mask) v for the query heads that share
 * one head of keys and values.
 *
 * Rows: query i and head g of the group are row i * group + g.  All rows of a
 * block walk over the keys together, so K and V are read once for the group.
 *
 * Order of arithmetic, the same for a row alone or among others, for any
 * block and any thread count.  Keys fall into chunks of QN_ATTENTION_CHUNK by
 * their number.  Within a chunk: a score is one chain of multiply-adds over
 * ascending d of (scale q[d]) * k[d], in float, then capped; m is the largest
 * score; a
 * weight is exp(score - m); l adds weights in VF_LANES partial sums, lane by
 * key number, then vf_sum; o is one chain over ascending keys per element.
 * Chunks are merged in ascending order (qn_attention_kernel.merge).  A key
 * that the row does not see has the weight 0, which changes no sum of finite
 * values, and others are left out; so a row has the same bits when later keys
 * exist.
 *
 * Keys lie in rows; or, as the caches of quern_kv_attention store them, in
 * blocks of a chunk, transposed, so that lanes are loaded where they lie. Those
 * of packed caches stay codes: kernels/kvcodes has the two products, with an
 * order of the same kind.
 *
 * What bounds it (Zen 4 class, one core, one query, group of 3, D 64, in cache;
 * multiply-adds reach 118 GFLOP/s, memory gives a core 10 to 13 GB/s):
 *   rows of f16     48 GFLOP/s, 16 GB/s: turning chunks around takes a third
 *   blocks of f16   82 GFLOP/s, 27 GB/s: multiply-adds and conversions, so it
 *                   is memory that bounds decoding at depth; f32 73, 49 GB/s
 *   codes           kernels/kvcodes/kvcodes.h
 *   prompts         70 % of the multiply-adds while keys fit the second-level
 *                   cache
 *
 * A row that sees no key (bool mask, causal) is the mean of all values; one
 * whose additive mask is -inf everywhere is NaN. */
#ifndef QN_CPU_ATTENTION_H
#define QN_CPU_ATTENTION_H

#include "backend/cpu/kernels/kvcodes/kvcodes.h"
#include "backend/cpu/kernels/turbo/turbo.h"
#include "base/cpu.h"
#include "core/dtype.h"

#include <stddef.h>
#include <stdint.h>

enum {
    QN_ATTENTION_CHUNK = 128,
    /* Floats before the values in a row's state: m, l, and room that keeps
     * the values aligned. */
    QN_ATTENTION_HEAD = 16
};

/* Strides count elements; along d and dv elements are neighbours. */
typedef struct qn_attention {
    size_t queries, group, keys, d, dv;
    float scale;
    float cap;     /* a score s becomes cap tanh(s / cap); 0: it stays */
    bool causal;   /* query i sees keys up to i + keys - queries */
    size_t window; /* 0, or of these only the last so many */
    size_t keep;   /* and the first so many, at most a chunk */
    qn_dtype q_type, k_type, v_type, out_type, mask_type;
    const void *q;
    int64_t q_query, q_head;
    const void *k;
    int64_t k_row;
    const void *v;
    int64_t v_row;
    /* Element (key, i) of chunk c is at c * chunk * d + i * chunk + key. */
    bool k_blocks;
    /* Not NULL: keys and values are packed, and this computes their products;
     * k and v are not read. */
    const qn_kvcodes_kernel *codes;
    qn_kvcodes keys_packed, values_packed;
    /* Not NULL: values are rotated, and so are sums of them until a row is
     * finished; with the signs that its functions take. */
    const qn_turbo_kernel *turbo;
    const float *signs;
    const void *mask; /* NULL: none; bool or floating */
    int64_t mask_query, mask_head, mask_key;
    const float *sinks; /* NULL: none; one per head of the group */
    void *out;
    int64_t out_query, out_head;
} qn_attention;

typedef struct qn_attention_kernel {
    /* Rows that one call should take: as many as keep the block in cache. */
    size_t (*block)(const qn_attention *job);
    /* Floats of scratch memory for `rows` rows. */
    size_t (*scratch)(const qn_attention *job, size_t rows);
    /* Rows row0 .. row1 over all keys, into job->out. */
    void (*run)(const qn_attention *job, size_t row0, size_t row1,
                float *scratch);
    /* Chunks begin .. end of keys: the states of each, qn_attention_state
     * floats per row, those of a chunk `stride` after those of the one before.
     */
    void (*part)(const qn_attention *job, size_t row0, size_t row1,
                 size_t begin, size_t end, float *states, size_t stride,
                 float *scratch);
    /* Merges the states of all chunks of rows row0 .. row1, those of chunk c
     * being at states + c * stride, and writes job->out.  Uses up the
     * states of chunk 0. */
    void (*merge)(const qn_attention *job, size_t row0, size_t row1,
                  float *states, size_t stride);
} qn_attention_kernel;

static inline size_t qn_attention_chunks(const qn_attention *job)
{
    return (job->keys + QN_ATTENTION_CHUNK - 1) / QN_ATTENTION_CHUNK;
}
/* Floats of a row's state after a chunk: m, l, then the values. */
static inline size_t qn_attention_state(const qn_attention *job)
{
    return QN_ATTENTION_HEAD + (job->dv + 15) / 16 * 16;
}

/* The best kernel that this processor has. */
const qn_attention_kernel *qn_attention_pick(void);
/* The kernel of one level, NULL when it is not built in or not supported. */
const qn_attention_kernel *qn_attention_at(qn_isa isa);

#define QN_ATTENTION(isa, name) extern const qn_attention_kernel name;
#include "kernels.def"
#undef QN_ATTENTION

#endif
