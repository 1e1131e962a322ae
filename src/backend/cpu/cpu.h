/* cpu.h: the CPU backend: threads and vector kernels.
 *
 * run.c looks an op up in a table of these functions.  Each computes nodes
 * that it has a kernel for and says so; what it does not take goes to the
 * reference backend, which has the same meaning. */
#ifndef QN_BACKEND_CPU_CPU_H
#define QN_BACKEND_CPU_CPU_H

#include "core/eval.h"
#include "ops/params.h"

const qn_backend *qn_backend_cpu(void);

/* Outputs of this many bytes and more are written around the caches, which
 * could not hold them for whoever reads them next. */
#define QN_CPU_STREAM ((size_t)16 << 20)

/* Computes the node if it can: *done tells.  When it is false nothing has
 * been given to the outputs. */
typedef qn_status (*qn_cpu_run)(qn_node *node, bool *done);

/* Runs a node with the function of the table, if there is one. */
qn_status qn_cpu_try(qn_node *node, bool *done);

qn_status qn_cpu_matmul(qn_node *node, bool *done);
qn_status qn_cpu_quantized_matmul(qn_node *node, bool *done);
qn_status qn_cpu_dequantize(qn_node *node, bool *done);
qn_status qn_cpu_panel_pack(qn_node *node, bool *done);
qn_status qn_cpu_panel_blocks(qn_node *node, bool *done);
qn_status qn_cpu_panel_matmul(qn_node *node, bool *done);
qn_status qn_cpu_panel_rows(qn_node *node, bool *done);
qn_status qn_cpu_attention(qn_node *node, bool *done);
qn_status qn_cpu_kv_attention(qn_node *node, bool *done);
qn_status qn_cpu_unary(qn_node *node, bool *done);
qn_status qn_cpu_binary(qn_node *node, bool *done);
qn_status qn_cpu_fused(qn_node *node, bool *done);
qn_status qn_cpu_where(qn_node *node, bool *done);
qn_status qn_cpu_astype(qn_node *node, bool *done);
qn_status qn_cpu_view(qn_node *node, bool *done);
qn_status qn_cpu_full(qn_node *node, bool *done);
qn_status qn_cpu_slice_update(qn_node *node, bool *done);
qn_status qn_cpu_concatenate(qn_node *node, bool *done);
qn_status qn_cpu_gather(qn_node *node, bool *done);
qn_status qn_cpu_take_along_axis(qn_node *node, bool *done);
qn_status qn_cpu_softmax(qn_node *node, bool *done);
qn_status qn_cpu_norm(qn_node *node, bool *done);
qn_status qn_cpu_logsumexp(qn_node *node, bool *done);
qn_status qn_cpu_arg_reduce(qn_node *node, bool *done);
qn_status qn_cpu_reduce(qn_node *node, bool *done);
qn_status qn_cpu_sort(qn_node *node, bool *done);
qn_status qn_cpu_scan(qn_node *node, bool *done);
qn_status qn_cpu_partition(qn_node *node, bool *done);
qn_status qn_cpu_rope(qn_node *node, bool *done);
qn_status qn_cpu_token_bitmask(qn_node *node, bool *done);
qn_status qn_cpu_normalized_argmax(qn_node *node, bool *done);
qn_status qn_cpu_conv(qn_node *node, bool *done);
qn_status qn_cpu_fft(qn_node *node, bool *done);
qn_status qn_cpu_gather_mm(qn_node *node, bool *done);
qn_status qn_cpu_gather_qmm(qn_node *node, bool *done);
qn_status qn_cpu_requantize(qn_node *node, bool *done);
qn_status qn_cpu_kernel(qn_node *node, bool *done);
qn_status qn_cpu_segmented_mm(qn_node *node, bool *done);
qn_status qn_cpu_hadamard(qn_node *node, bool *done);

/* Bytes of working memory, for what ext.h has as quern_kv_workspace,
 * quern_matmul_workspace and quern_panel_workspace; the first without what
 * turned queries take. */
size_t qn_cpu_kv_room(const qn_kv_form *form, int heads, int dims, size_t rows,
                      size_t keys);
size_t qn_cpu_product_room(size_t m, size_t k, size_t n, qn_dtype type);
size_t qn_cpu_panel_room(const qn_panel_form *form, size_t m, size_t k);

/* The part of qn_cpu_arg_reduce that takes rows of narrow floats. */
qn_status qn_cpu_arg_rows(qn_node *node, bool *done);

/* Registers the custom kernels that quern has itself (registered.c), once. */
void qn_cpu_register_kernels(void);

/* Rows of narrow floats (float32 or half types): m rows of k elements, steps in
 * elements. */
typedef struct qn_cpu_rows {
    const void *data;
    qn_dtype type;
    size_t m, k; /* k at least 1 */
    int64_t row, step;
} qn_cpu_rows;
/* out, row-major, = a times a matrix of k rows, which begins at `matrix` and
 * lies as b's last two axes say.  On all threads. */
qn_status qn_cpu_product(const qn_cpu_rows *a, const qn_array *b,
                         const void *matrix, void *out, qn_dtype out_type);

/* Memory for one node's run: `count` pieces of `size` bytes, one per worker,
 * each on cache lines of its own.  Free with qn_buffer_unref. */
qn_status qn_cpu_scratch(qn_buffer **out, size_t count, size_t size,
                         size_t *stride);

/* The types that kernels compute in float. */
static inline bool qn_cpu_narrow_float(qn_dtype type)
{
    return type == QN_FLOAT32 || type == QN_FLOAT16 || type == QN_BFLOAT16;
}

/* There are elements, and along the last axis they are neighbours. */
static inline bool qn_cpu_rows_contiguous(const qn_array *array)
{
    int last = array->ndim - 1;
    return last >= 0 && array->size &&
           (array->strides[last] == 1 || array->shape[last] == 1);
}

/* A contiguous vector of n narrow floats as floats: where it lies, or in
 * memory of its own, *held, which the caller gives up (NULL at first). */
qn_status qn_cpu_floats(const float **out, qn_buffer **held,
                        const qn_array *vector, size_t n);

/* Row-major elements of `source` to the row-major `target`, on all threads. */
qn_status qn_cpu_copy_to(qn_array *target, const qn_array *source);

/* count floating elements of any type, contiguous, to float and back. */
void qn_cpu_widen(float *dst, const void *src, size_t count, qn_dtype type);
void qn_cpu_narrow(void *dst, const float *src, size_t count, qn_dtype type);

#endif
