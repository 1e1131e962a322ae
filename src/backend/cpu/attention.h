/* attention.h: attention over several sequences at once. */
#ifndef QN_CPU_ATTENTION_RUN_H
#define QN_CPU_ATTENTION_RUN_H

#include "backend/cpu/kernels/attention/attention.h"
#include "core/array.h"

/* Queries, keys and values that belong together.  `job` is that of batch row 0
 * and of the first head of keys; the rest says where others are, in elements
 * (of packed keys and values: in blocks). */
typedef struct qn_attention_part {
    qn_attention job;
    size_t batch, kv_heads;
    int64_t q_batch, q_group, k_batch, k_head, v_batch, v_head;
    size_t packed_head;
    int64_t mask_batch, mask_group, out_batch, out_group;
    /* Set by qn_cpu_attend. */
    size_t heads;               /* of keys, in all batch rows */
    size_t rows, block, blocks; /* rows of one head of keys */
    size_t chunks, state;
    size_t spans;  /* tasks that the chunks of a block of rows make */
    size_t first;  /* task */
    float *states; /* [head, chunk, row], when chunks are tasks */
} qn_attention_part;

/* Computes all parts, whose widths (d, dv) are equal. */
qn_status qn_cpu_attend(qn_attention_part *parts, size_t count);

/* Bytes that qn_cpu_attend takes at most for a part of which sizes alone are
 * known: fewer keys take no more. */
size_t qn_cpu_attention_room(qn_attention_part *part);

/* One float for each head of a vector of any type; *held is to be dropped. */
qn_status qn_cpu_sinks(const float **out, qn_buffer **held,
                       const qn_array *sinks);

#endif
