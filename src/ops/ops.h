/* ops.h: op numbers, the info table, and the builders.
 *
 * A builder checks arguments, promotes and broadcasts operands, and adds
 * nodes; it touches no element.  Outputs come first; inputs are borrowed; on
 * success the caller owns *out, on error it is untouched and qn_fail has
 * recorded a sentence that begins with the op's name in brackets.  Counts
 * come from callers unchecked; a list whose count is 0 is not read. */
#ifndef QN_OPS_OPS_H
#define QN_OPS_OPS_H

#include "core/node.h"
#include "panel.h"

typedef enum qn_op {
#define QN_UNARY(id, ...) QN_OP_##id,
#define QN_BINARY(id, ...) QN_OP_##id,
#define QN_REDUCE(id, ...) QN_OP_##id,
#define QN_SCAN(id, ...) QN_OP_##id,
#define QN_PRIM(id, ...) QN_OP_##id,
#include "ops.def"
    QN_OP_COUNT
} qn_op;

/* Numbers inside of a family, from 0: for tables with a row per op of it. */
enum {
#define QN_UNARY(id, ...) QN_UNARY_##id,
#include "ops.def"
    QN_UNARY_COUNT
};
enum {
#define QN_BINARY(id, ...) QN_BINARY_##id,
#include "ops.def"
    QN_BINARY_COUNT
};
enum {
#define QN_REDUCE(id, ...) QN_REDUCE_##id,
#include "ops.def"
    QN_REDUCE_COUNT
};
enum {
#define QN_SCAN(id, ...) QN_SCAN_##id,
#include "ops.def"
    QN_SCAN_COUNT
};

typedef enum qn_op_family {
    QN_FAMILY_UNARY,
    QN_FAMILY_BINARY,
    QN_FAMILY_REDUCE,
    QN_FAMILY_SCAN,
    QN_FAMILY_PRIM
} qn_op_family;

typedef enum qn_op_types {
    QN_TYPES_NUM,
    QN_TYPES_ORD,
    QN_TYPES_REAL,
    QN_TYPES_FLOAT,
    QN_TYPES_RFLOAT,
    QN_TYPES_BITS,
    QN_TYPES_INT,
    QN_TYPES_BOOL,
    QN_TYPES_ANY
} qn_op_types;

typedef enum qn_op_result {
    QN_RESULT_SAME,
    QN_RESULT_BOOL,
    QN_RESULT_REALPART
} qn_op_result;

typedef struct qn_op_info {
    const char *id;   /* "ADD" */
    const char *name; /* "add" */
    qn_op_family family;
    int place;         /* the number inside of a regular family */
    qn_op_types types; /* regular families */
    qn_op_result result;
    int inputs; /* -1: any number */
    const char *doc;
} qn_op_info;

/* Entry `op` of the table, 0 <= op < QN_OP_COUNT. */
const qn_op_info *qn_op_info_of(int op);

/* For lists of axes: all of them. */
#define QN_ALL_AXES SIZE_MAX

/* ---- regular families ---- */

qn_status qn_op_unary(qn_array **out, qn_op op, qn_array *x, qn_stream *s);
qn_status qn_op_binary(qn_array **out, qn_op op, qn_array *a, qn_array *b,
                       qn_stream *s);
/* axes: distinct, negative ones count from the end.  Over no axis at all the
 * result is x itself (all and any: its truth). */
qn_status qn_op_reduce(qn_array **out, qn_op op, qn_array *x, const int *axes,
                       size_t naxes, bool keepdims, qn_stream *s);
qn_status qn_op_scan(qn_array **out, qn_op op, qn_array *x, int axis,
                     bool reverse, bool inclusive, qn_stream *s);

/* ---- composites of regular form, from ops.def ---- */

#define QN_DECLARE_UNARY(name)                                                 \
    qn_status qn_op_##name(qn_array **out, qn_array *x, qn_stream *s);
#define QN_DECLARE_BINARY(name)                                                \
    qn_status qn_op_##name(qn_array **out, qn_array *a, qn_array *b,           \
                           qn_stream *s);
#define QN_DECLARE_AXES(name)                                                  \
    qn_status qn_op_##name(qn_array **out, qn_array *x, const int *axes,       \
                           size_t naxes, bool keepdims, qn_stream *s);
#define QN_DECLARE_HAND(name)
#define QN_COMPOSITE(name, form, file, doc) QN_DECLARE_##form(name)
#include "ops.def"
#undef QN_DECLARE_UNARY
#undef QN_DECLARE_BINARY
#undef QN_DECLARE_AXES
#undef QN_DECLARE_HAND

/* ---- unary.c, binary.c ---- */

qn_status qn_op_round(qn_array **out, qn_array *x, int decimals, qn_stream *s);
/* NULL limits: the largest and smallest finite numbers of the type. */
qn_status qn_op_nan_to_num(qn_array **out, qn_array *x, float nan,
                           const float *posinf, const float *neginf,
                           qn_stream *s);
qn_status qn_op_from_fp8(qn_array **out, qn_array *x, qn_dtype dtype,
                         qn_stream *s);
/* out[0] the quotient, out[1] the remainder. */
qn_status qn_op_divmod(qn_array **out, qn_array *a, qn_array *b, qn_stream *s);
/* min or max may be NULL, not both. */
qn_status qn_op_clip(qn_array **out, qn_array *x, qn_array *min, qn_array *max,
                     qn_stream *s);
qn_status qn_op_isclose(qn_array **out, qn_array *a, qn_array *b, double rtol,
                        double atol, bool equal_nan, qn_stream *s);
qn_status qn_op_allclose(qn_array **out, qn_array *a, qn_array *b, double rtol,
                         double atol, bool equal_nan, qn_stream *s);
qn_status qn_op_array_equal(qn_array **out, qn_array *a, qn_array *b,
                            bool equal_nan, qn_stream *s);

/* ---- reduce.c ---- */

qn_status qn_op_var(qn_array **out, qn_array *x, const int *axes, size_t naxes,
                    bool keepdims, int ddof, qn_stream *s);
qn_status qn_op_std(qn_array **out, qn_array *x, const int *axes, size_t naxes,
                    bool keepdims, int ddof, qn_stream *s);

/* ---- types.c ---- */

qn_status qn_op_astype(qn_array **out, qn_array *x, qn_dtype dtype,
                       qn_stream *s);
qn_status qn_op_view(qn_array **out, qn_array *x, qn_dtype dtype, qn_stream *s);
qn_status qn_op_where(qn_array **out, qn_array *condition, qn_array *x,
                      qn_array *y, qn_stream *s);

/* ---- creation.c ---- */

/* A READY array without dimensions, `value` rounded to `dtype`. */
qn_status qn_op_scalar(qn_array **out, double value, qn_dtype dtype);
qn_status qn_op_full(qn_array **out, const int *shape, size_t ndim,
                     qn_array *value, qn_dtype dtype, qn_stream *s);
/* `value` in the shape of x, whatever x is when the operation is made again. */
qn_status qn_op_broadcast_like(qn_array **out, qn_array *value, qn_array *x,
                               qn_stream *s);
/* zeros, ones and other constants. */
qn_status qn_op_full_value(qn_array **out, const int *shape, size_t ndim,
                           double value, qn_dtype dtype, qn_stream *s);
qn_status qn_op_arange(qn_array **out, double start, double stop, double step,
                       qn_dtype dtype, qn_stream *s);
qn_status qn_op_linspace(qn_array **out, double start, double stop, int num,
                         bool endpoint, qn_dtype dtype, qn_stream *s);
qn_status qn_op_eye(qn_array **out, int n, int m, int k, qn_dtype dtype,
                    qn_stream *s);
qn_status qn_op_tri(qn_array **out, int n, int m, int k, qn_dtype dtype,
                    qn_stream *s);
qn_status qn_op_tril(qn_array **out, qn_array *x, int k, qn_stream *s);
qn_status qn_op_triu(qn_array **out, qn_array *x, int k, qn_stream *s);
typedef enum qn_window {
    QN_WINDOW_BARTLETT,
    QN_WINDOW_BLACKMAN,
    QN_WINDOW_HAMMING,
    QN_WINDOW_HANNING
} qn_window;
qn_status qn_op_window(qn_array **out, qn_window window, int m, qn_stream *s);
/* out has room for count arrays; each arrays[i] has at most one dimension. */
qn_status qn_op_meshgrid(qn_array **out, qn_array *const *arrays, size_t count,
                         bool sparse, const char *indexing, qn_stream *s);

/* ---- load.c ---- */

typedef struct qn_load_output {
    qn_dtype dtype;
    const int *shape;
    int ndim;
} qn_load_output;
struct qn_load_params;
/* One node for 1 to QN_LOAD_OUTPUTS arrays, which takes params->source over;
 * on error that is still the caller's. */
qn_status qn_op_load(qn_array **out, const qn_load_output *outputs, int count,
                     const struct qn_load_params *params, qn_stream *s);

/* ---- shape.c ---- */

qn_status qn_op_as_strided(qn_array **out, qn_array *x, const int *shape,
                           size_t ndim, const int64_t *strides, size_t nstrides,
                           size_t offset, qn_stream *s);
qn_status qn_op_broadcast_to(qn_array **out, qn_array *x, const int *shape,
                             size_t ndim, qn_stream *s);
qn_status qn_op_broadcast_arrays(qn_array **out, qn_array *const *arrays,
                                 size_t count, qn_stream *s);
qn_status qn_op_contiguous(qn_array **out, qn_array *x, bool allow_col_major,
                           qn_stream *s);
qn_status qn_op_copy(qn_array **out, qn_array *x, qn_stream *s);
/* A copy with storage of its own, of no more than its size. */
qn_status qn_op_materialize(qn_array **out, qn_array *x, qn_stream *s);
/* The same with a shape that a builder derived from its inputs', for which
 * another one may come when the operation is made again (rules.h). */
qn_status qn_op_broadcast_derived(qn_array **out, qn_array *x, const int *shape,
                                  size_t ndim, qn_stream *s);
qn_status qn_op_reshape_derived(qn_array **out, qn_array *x, const int *shape,
                                size_t ndim, qn_stream *s);
/* One dimension may be -1: what is left. */
qn_status qn_op_reshape(qn_array **out, qn_array *x, const int *shape,
                        size_t ndim, qn_stream *s);
qn_status qn_op_flatten(qn_array **out, qn_array *x, int start, int end,
                        qn_stream *s);
qn_status qn_op_unflatten(qn_array **out, qn_array *x, int axis,
                          const int *shape, size_t ndim, qn_stream *s);
/* QN_ALL_AXES: every axis of length 1. */
qn_status qn_op_squeeze(qn_array **out, qn_array *x, const int *axes,
                        size_t naxes, qn_stream *s);
/* Axes of the result. */
qn_status qn_op_expand_dims(qn_array **out, qn_array *x, const int *axes,
                            size_t naxes, qn_stream *s);
/* QN_ALL_AXES: the order reversed. */
qn_status qn_op_transpose(qn_array **out, qn_array *x, const int *axes,
                          size_t naxes, qn_stream *s);
qn_status qn_op_swapaxes(qn_array **out, qn_array *x, int axis1, int axis2,
                         qn_stream *s);
qn_status qn_op_moveaxis(qn_array **out, qn_array *x, int source,
                         int destination, qn_stream *s);
qn_status qn_op_number_of_elements(qn_array **out, qn_array *x, const int *axes,
                                   size_t naxes, bool inverted, qn_dtype dtype,
                                   qn_stream *s);
qn_status qn_op_stop_gradient(qn_array **out, qn_array *x, qn_stream *s);
/* out[i] is inputs[i], made to wait for the dependencies. */
qn_status qn_op_depends(qn_array **out, qn_array *const *inputs, size_t ninputs,
                        qn_array *const *dependencies, size_t ndependencies,
                        qn_stream *s);

/* ---- slice.c ---- */

/* start, stop and strides have one entry per axis, as Python's slices. */
qn_status qn_op_slice(qn_array **out, qn_array *x, const int *start,
                      size_t nstart, const int *stop, size_t nstop,
                      const int *strides, size_t nstrides, qn_stream *s);
/* Elements start .. stop-1 along one axis: 0 <= start <= stop <= its length. */
qn_status qn_op_slice_axis(qn_array **out, qn_array *x, int axis, int start,
                           int stop, qn_stream *s);
/* combine: a qn_combine of params.h. */
qn_status qn_op_slice_update(qn_array **out, qn_array *x, qn_array *update,
                             const int *start, size_t nstart, const int *stop,
                             size_t nstop, const int *strides, size_t nstrides,
                             int combine, qn_stream *s);
qn_status qn_op_slice_dynamic(qn_array **out, qn_array *x, qn_array *start,
                              const int *axes, size_t naxes, const int *size,
                              size_t nsize, qn_stream *s);
qn_status qn_op_slice_update_dynamic(qn_array **out, qn_array *x,
                                     qn_array *update, qn_array *start,
                                     const int *axes, size_t naxes,
                                     qn_stream *s);
qn_status qn_op_concatenate(qn_array **out, qn_array *const *arrays,
                            size_t count, int axis, qn_stream *s);
/* mode: "constant", "edge", "reflect", "symmetric". */
qn_status qn_op_pad(qn_array **out, qn_array *x, const int *axes, size_t naxes,
                    const int *low, size_t nlow, const int *high, size_t nhigh,
                    qn_array *value, const char *mode, qn_stream *s);

/* ---- arrange.c ---- */

qn_status qn_op_pad_symmetric(qn_array **out, qn_array *x, int width,
                              qn_array *value, const char *mode, qn_stream *s);
qn_status qn_op_stack(qn_array **out, qn_array *const *arrays, size_t count,
                      int axis, qn_stream *s);
/* Several arrays of a number known only inside: *out is an array of *count
 * arrays; free it with qn_free after giving up each. */
qn_status qn_op_split(qn_array ***out, size_t *count, qn_array *x, int parts,
                      int axis, qn_stream *s);
qn_status qn_op_split_at(qn_array ***out, size_t *count, qn_array *x,
                         const int *places, size_t nplaces, int axis,
                         qn_stream *s);
qn_status qn_op_unstack(qn_array ***out, size_t *count, qn_array *x, int axis,
                        qn_stream *s);
qn_status qn_op_repeat(qn_array **out, qn_array *x, int repeats, int axis,
                       qn_stream *s);
qn_status qn_op_tile(qn_array **out, qn_array *x, const int *reps, size_t nreps,
                     qn_stream *s);
/* Shift i along axis i; QN_ALL_AXES: over the flattened array by the sum of
 * the shifts. */
qn_status qn_op_roll(qn_array **out, qn_array *x, const int *shifts,
                     size_t nshifts, const int *axes, size_t naxes,
                     qn_stream *s);
qn_status qn_op_flip(qn_array **out, qn_array *x, const int *axes, size_t naxes,
                     qn_stream *s);
qn_status qn_op_diff(qn_array **out, qn_array *x, int n, int axis,
                     qn_stream *s);
qn_status qn_op_diagonal(qn_array **out, qn_array *x, int offset, int axis1,
                         int axis2, qn_stream *s);
qn_status qn_op_diag(qn_array **out, qn_array *x, int k, qn_stream *s);
qn_status qn_op_trace(qn_array **out, qn_array *x, int offset, int axis1,
                      int axis2, qn_dtype dtype, qn_stream *s);

/* ---- indexing.c ---- */

qn_status qn_op_gather(qn_array **out, qn_array *x, qn_array *const *indices,
                       size_t nindices, const int *axes, size_t naxes,
                       const int *slice_sizes, size_t nsizes, qn_stream *s);
qn_status qn_op_take(qn_array **out, qn_array *x, qn_array *indices, int axis,
                     qn_stream *s);
qn_status qn_op_take_along_axis(qn_array **out, qn_array *x, qn_array *indices,
                                int axis, qn_stream *s);
/* combine: a qn_combine of params.h. */
qn_status qn_op_scatter(qn_array **out, qn_array *x, qn_array *const *indices,
                        size_t nindices, qn_array *updates, const int *axes,
                        size_t naxes, int combine, qn_stream *s);
/* combine: QN_COMBINE_SET (put_along_axis) or _SUM (scatter_add_axis). */
qn_status qn_op_scatter_axis(qn_array **out, qn_array *x, qn_array *indices,
                             qn_array *values, int axis, int combine,
                             qn_stream *s);
qn_status qn_op_masked_scatter(qn_array **out, qn_array *a, qn_array *mask,
                               qn_array *src, qn_stream *s);

/* ---- sort.c ---- */

/* op: QN_OP_SORT, QN_OP_ARGSORT. */
qn_status qn_op_sort(qn_array **out, qn_op op, qn_array *x, int axis,
                     qn_stream *s);
/* op: QN_OP_PARTITION, QN_OP_ARGPARTITION; kth may count from the end. */
qn_status qn_op_partition(qn_array **out, qn_op op, qn_array *x, int kth,
                          int axis, qn_stream *s);
qn_status qn_op_topk(qn_array **out, qn_array *x, int k, int axis,
                     qn_stream *s);
qn_status qn_op_arg_reduce(qn_array **out, qn_array *x, bool max, int axis,
                           bool keepdims, qn_stream *s);
/* Over the flattened array. */
qn_status qn_op_arg_reduce_all(qn_array **out, qn_array *x, bool max,
                               bool keepdims, qn_stream *s);
/* side: "left", "right". */
qn_status qn_op_searchsorted(qn_array **out, qn_array *sorted, qn_array *values,
                             const char *side, qn_stream *s);

/* ---- matmul.c ---- */

qn_status qn_op_matmul(qn_array **out, qn_array *a, qn_array *b, qn_stream *s);
qn_status qn_op_addmm(qn_array **out, qn_array *c, qn_array *a, qn_array *b,
                      float alpha, float beta, qn_stream *s);
qn_status qn_op_tensordot(qn_array **out, qn_array *a, qn_array *b,
                          const int *axes_a, size_t naxes_a, const int *axes_b,
                          size_t naxes_b, qn_stream *s);
/* The last `naxes` axes of a with the first of b. */
qn_status qn_op_tensordot_axis(qn_array **out, qn_array *a, qn_array *b,
                               int naxes, qn_stream *s);
qn_status qn_op_vecdot(qn_array **out, qn_array *a, qn_array *b, int axis,
                       qn_stream *s);

/* ---- conv.c ---- */

/* One value per spatial axis, or one for all; a list without any is ones
 * (padding: zeros). */
typedef struct qn_conv_list {
    const int *values;
    size_t count;
} qn_conv_list;
typedef struct qn_conv_settings {
    qn_conv_list stride, low, high, dilation, in_dilation;
    int groups;
    bool flip;
} qn_conv_settings;
qn_status qn_op_conv(qn_array **out, qn_array *x, qn_array *w,
                     const qn_conv_settings *settings, qn_stream *s);
/* Settings of the convolution whose gradient by its input this is: stride,
 * low (the padding of both sides), dilation, groups; `more` elements are put
 * on at the end of each axis. */
qn_status qn_op_conv_transpose(qn_array **out, qn_array *x, qn_array *w,
                               const qn_conv_settings *settings,
                               qn_conv_list more, qn_stream *s);

/* ---- products.c ---- */

/* NULL indices: the matrices in order. */
qn_status qn_op_gather_mm(qn_array **out, qn_array *a, qn_array *b,
                          qn_array *indices_a, qn_array *indices_b,
                          qn_stream *s);
/* Masks may be NULL. */
qn_status qn_op_block_masked_mm(qn_array **out, qn_array *a, qn_array *b,
                                int block_size, qn_array *mask_out,
                                qn_array *mask_a, qn_array *mask_b,
                                qn_stream *s);
qn_status qn_op_segmented_mm(qn_array **out, qn_array *a, qn_array *b,
                             qn_array *segments, qn_stream *s);
/* A NULL scale is 1 / sqrt(n). */
qn_status qn_op_hadamard_transform(qn_array **out, qn_array *x,
                                   const float *scale, qn_stream *s);

/* ---- einsum.c ---- */

qn_status qn_op_einsum(qn_array **out, const char *subscripts,
                       qn_array *const *operands, size_t count, qn_stream *s);

/* ---- quant.c: mode is "affine", "mxfp4", "mxfp8" or "nvfp4"; a NULL
 * group_size or bits is the mode's own ---- */

/* Writes two arrays (packed, scales), affine three (biases): *count. */
qn_status qn_op_quantize(qn_array **out, size_t *count, qn_array *w,
                         const int *group_size, const int *bits,
                         const char *mode, qn_array *global_scale,
                         qn_stream *s);
qn_status qn_op_dequantize(qn_array **out, qn_array *w, qn_array *scales,
                           qn_array *biases, const int *group_size,
                           const int *bits, const char *mode,
                           qn_array *global_scale, const qn_dtype *dtype,
                           qn_stream *s);
qn_status qn_op_quantized_matmul(qn_array **out, qn_array *x, qn_array *w,
                                 qn_array *scales, qn_array *biases,
                                 bool transpose, const int *group_size,
                                 const int *bits, const char *mode,
                                 qn_stream *s);
/* Either way round; `keep` as in the extension below. */
qn_status qn_op_quantized_product(qn_array **out, qn_array *x, qn_array *w,
                                  qn_array *scales, qn_array *biases,
                                  bool transpose, int group_size, int bits,
                                  const char *mode, bool keep, qn_stream *s);
/* ---- quant_products.c ---- */

/* Scales, biases, indices and global scales may be NULL. */
qn_status qn_op_gather_qmm(qn_array **out, qn_array *x, qn_array *w,
                           qn_array *scales, qn_array *biases,
                           qn_array *indices_x, qn_array *indices_w,
                           bool transpose, const int *group_size,
                           const int *bits, const char *mode, qn_stream *s);
qn_status qn_op_qqmm(qn_array **out, qn_array *x, qn_array *w, qn_array *scales,
                     const int *group_size, const int *bits, const char *mode,
                     qn_array *global_x, qn_array *global_w, qn_stream *s);
qn_status qn_op_gather_qqmm(qn_array **out, qn_array *x, qn_array *w,
                            qn_array *scales, qn_array *indices_x,
                            qn_array *indices_w, const int *group_size,
                            const int *bits, const char *mode,
                            qn_array *global_x, qn_array *global_w,
                            qn_stream *s);

/* ---- quant.c ---- */

/* The extension: x w^T in the type of x whatever the scales' type; groups of
 * 16 too. */
qn_status qn_op_quantized_matmul_keep(qn_array **out, qn_array *x, qn_array *w,
                                      qn_array *scales, qn_array *biases,
                                      int group_size, int bits,
                                      const char *mode, qn_stream *s);

/* ---- panel.c: packed matrices for products in 8-bit integers ---- */

/* The packed matrices w[i] (with scales[i], biases[i]; biases is NULL for a
 * form with a zero) of one form, [rows, cols * bits / 32] each, as panels.
 * Scales of a byte each are of type uint8. */
qn_status qn_op_panel_pack(qn_array **out, const qn_panel_form *form,
                           size_t count, qn_array *const *w,
                           qn_array *const *scales, qn_array *const *biases,
                           qn_stream *s);
/* The same from rows of blocks; params.h says what p holds. */
typedef struct qn_panel_blocks_params qn_panel_blocks_params;
qn_status qn_op_panel_blocks(qn_array **out, const qn_panel_blocks_params *p,
                             qn_stream *s);
/* Products with them; norm and residual may be NULL.  Stores p->count arrays,
 * one with p->gate. */
typedef struct qn_panel_matmul_params qn_panel_matmul_params;
qn_status qn_op_panel_matmul(qn_array **out, qn_array *x, qn_array *panels,
                             qn_array *norm, qn_array *residual,
                             const qn_panel_matmul_params *p, qn_stream *s);
/* Rows of the one matrix of `panels` in the type `dtype`. */
typedef struct qn_panel_params qn_panel_params;
qn_status qn_op_panel_rows(qn_array **out, qn_array *panels, qn_array *ids,
                           const qn_panel_params *p, qn_dtype dtype,
                           qn_stream *s);

/* ---- kv.c: attention over caches ---- */

typedef struct qn_kv_form qn_kv_form;
typedef struct qn_kv_params qn_kv_params;
/* Arrays of a cache for *capacity tokens (qn_kv_parts of them), which begins
 * with what `old` holds; old may be NULL.  *capacity becomes that of `old`
 * where this is more. */
qn_status qn_op_kv_room(qn_array **out, const qn_kv_form *form,
                        qn_array *const *old, int *capacity, qn_stream *s);
/* freqs and sinks may be NULL; whether they are is not read in `p`.  Stores the
 * attention and the caches after it. */
/* The same without `count` of its tokens from `first` on (both multiples of
 * QN_KV_BLOCK); those behind them move up, as far as there is room. */
qn_status qn_op_kv_drop(qn_array **out, const qn_kv_form *form,
                        qn_array *const *old, int first, int count,
                        int capacity, qn_stream *s);
qn_status qn_op_kv_attention(qn_array **out, qn_array *q, qn_array *k,
                             qn_array *v, qn_array *freqs, qn_array *sinks,
                             qn_array *const *caches, const qn_kv_params *p,
                             qn_stream *s);
/* The first `count` tokens as planes (params.h, KV_READ), qn_kv_parts of them;
 * and arrays of a cache from planes, *capacity becoming what they have room
 * for. */
qn_status qn_op_kv_read(qn_array **out, const qn_kv_form *form,
                        qn_array *const *arrays, int count, qn_stream *s);
qn_status qn_op_kv_write(qn_array **out, const qn_kv_form *form,
                         qn_array *const *planes, int *capacity, qn_stream *s);

/* ---- fast.c ---- */

qn_status qn_op_softmax(qn_array **out, qn_array *x, const int *axes,
                        size_t naxes, bool precise, qn_stream *s);
/* logits [..., V] plus 0 where a token's bit is 1 and -inf where it is 0, added
 * in their type (float32, float16, bfloat16).  Token t is bit t % 32 of word
 * t / 32 of a mask; words that are not there are 0.  words: uint32 [masks, W]:
 * one mask for all rows, one for each, or one for each entry of the first axis.
 * open: bool [masks], where true the mask allows everything; NULL: none. */
qn_status qn_op_token_bitmask(qn_array **out, qn_array *logits, qn_array *words,
                              qn_array *open, qn_stream *s);
/* uint32, without the last axis: the first place of the largest
 * round(logits - logsumexp(logits)), where NaN counts as -inf. */
qn_status qn_op_normalized_argmax(qn_array **out, qn_array *logits,
                                  qn_stream *s);
qn_status qn_op_logsumexp(qn_array **out, qn_array *x, const int *axes,
                          size_t naxes, bool keepdims, qn_stream *s);
/* weight and bias may be NULL. */
qn_status qn_op_rms_norm(qn_array **out, qn_array *x, qn_array *weight,
                         float eps, qn_stream *s);
qn_status qn_op_layer_norm(qn_array **out, qn_array *x, qn_array *weight,
                           qn_array *bias, float eps, qn_stream *s);
/* Exactly one of base and freqs is given; offset_array may be NULL. */
qn_status qn_op_rope(qn_array **out, qn_array *x, int dims, bool traditional,
                     const float *base, float scale, int offset,
                     qn_array *offset_array, qn_array *freqs, qn_stream *s);
/* mask_mode: "", "array", "causal"; mask and sinks may be NULL. */
qn_status qn_op_sdpa(qn_array **out, qn_array *q, qn_array *k, qn_array *v,
                     float scale, const char *mask_mode, qn_array *mask,
                     qn_array *sinks, qn_stream *s);
qn_status qn_op_cross_entropy(qn_array **out, qn_array *logits,
                              qn_array *targets, qn_stream *s);

/* ---- linalg.c ---- */

qn_status qn_op_cholesky(qn_array **out, qn_array *x, bool upper, qn_stream *s);
/* out[0] Q, out[1] R. */
qn_status qn_op_qr(qn_array **out, qn_array *x, qn_stream *s);
/* U, S, Vt; without `vectors` S alone. */
qn_status qn_op_svd(qn_array **out, qn_array *x, bool vectors, qn_stream *s);
/* The row of L U that each row of x is, L, U. */
qn_status qn_op_lu(qn_array **out, qn_array *x, qn_stream *s);
/* L and U in one matrix, pivots. */
qn_status qn_op_lu_factor(qn_array **out, qn_array *x, qn_stream *s);
/* L and U in one matrix, pivots, the row of L U that each row of x is. */
qn_status qn_op_lu_parts(qn_array **out, qn_array *x, qn_stream *s);
/* Eigenvalues and, with `vectors`, eigenvectors. */
qn_status qn_op_eig(qn_array **out, qn_array *x, bool vectors, qn_stream *s);
/* triangle_read: "L", "U". */
qn_status qn_op_eigh(qn_array **out, qn_array *x, const char *triangle_read,
                     bool vectors, qn_stream *s);
qn_status qn_op_inv(qn_array **out, qn_array *x, qn_stream *s);
qn_status qn_op_tri_inv(qn_array **out, qn_array *x, bool upper, qn_stream *s);
qn_status qn_op_cholesky_inv(qn_array **out, qn_array *x, bool upper,
                             qn_stream *s);
qn_status qn_op_pinv(qn_array **out, qn_array *x, qn_stream *s);
/* b with one dimension is a vector. */
qn_status qn_op_solve(qn_array **out, qn_array *a, qn_array *b, qn_stream *s);
qn_status qn_op_solve_triangular(qn_array **out, qn_array *a, qn_array *b,
                                 bool upper, qn_stream *s);
qn_status qn_op_det(qn_array **out, qn_array *x, qn_stream *s);
/* out[0] the sign, out[1] the logarithm. */
qn_status qn_op_slogdet(qn_array **out, qn_array *x, qn_stream *s);
/* Over one axis (of vectors) or two (of matrices); QN_ALL_AXES counts. */
qn_status qn_op_norm(qn_array **out, qn_array *x, double ord, const int *axes,
                     size_t naxes, bool keepdims, qn_stream *s);
/* ord: "fro", "f", "nuc". */
qn_status qn_op_norm_matrix(qn_array **out, qn_array *x, const char *ord,
                            const int *axes, size_t naxes, bool keepdims,
                            qn_stream *s);
qn_status qn_op_norm_l2(qn_array **out, qn_array *x, const int *axes,
                        size_t naxes, bool keepdims, qn_stream *s);
qn_status qn_op_cross(qn_array **out, qn_array *a, qn_array *b, int axis,
                      qn_stream *s);

/* ---- fft.c ---- */

typedef enum qn_fft_kind {
    QN_FFT_KIND_FFT,
    QN_FFT_KIND_IFFT,
    QN_FFT_KIND_RFFT,
    QN_FFT_KIND_IRFFT
} qn_fft_kind;
/* The transform that has the factor 1 / n; mlx_fft_norm has the numbers. */
typedef enum qn_fft_norm {
    QN_FFT_NORM_BACKWARD,
    QN_FFT_NORM_ORTHO,
    QN_FFT_NORM_FORWARD
} qn_fft_norm;
/* One length for each axis of the list, which is without repetition. */
qn_status qn_op_fft(qn_array **out, qn_fft_kind kind, qn_array *x, const int *n,
                    size_t nn, const int *axes, size_t naxes, qn_fft_norm norm,
                    qn_stream *s);
/* One node: form is a qn_fft_form of params.h, length that of the whole line;
 * x has the type and the length that the form wants. */
qn_status qn_op_fft_axis(qn_array **out, qn_array *x, int axis, int form,
                         double scale, int length, qn_stream *s);
qn_status qn_op_fftfreq(qn_array **out, int n, double d, qn_stream *s);
qn_status qn_op_rfftfreq(qn_array **out, int n, double d, qn_stream *s);
qn_status qn_op_fftshift(qn_array **out, qn_array *x, const int *axes,
                         size_t naxes, bool inverse, qn_stream *s);

/* ---- random.c: a NULL key is the next of the calling thread's sequence ----
 */

void qn_random_seed(uint64_t seed);
qn_status qn_op_random_key(qn_array **out, uint64_t seed);
qn_status qn_op_random_split(qn_array **out, qn_array *key, int num,
                             qn_stream *s);
qn_status qn_op_random_bits(qn_array **out, const int *shape, size_t ndim,
                            int width, qn_array *key, qn_stream *s);
qn_status qn_op_random_uniform(qn_array **out, qn_array *low, qn_array *high,
                               const int *shape, size_t ndim, qn_dtype dtype,
                               qn_array *key, qn_stream *s);
/* loc and scale may be NULL: 0 and 1. */
qn_status qn_op_random_normal(qn_array **out, const int *shape, size_t ndim,
                              qn_dtype dtype, qn_array *loc, qn_array *scale,
                              qn_array *key, qn_stream *s);
/* Vectors of mean (..., n) and covariance (..., n, n). */
qn_status qn_op_random_multivariate_normal(qn_array **out, qn_array *mean,
                                           qn_array *cov, const int *shape,
                                           size_t ndim, qn_dtype dtype,
                                           qn_array *key, qn_stream *s);
qn_status qn_op_random_truncated_normal(qn_array **out, qn_array *lower,
                                        qn_array *upper, const int *shape,
                                        size_t ndim, qn_dtype dtype,
                                        qn_array *key, qn_stream *s);
qn_status qn_op_random_gumbel(qn_array **out, const int *shape, size_t ndim,
                              qn_dtype dtype, qn_array *key, qn_stream *s);
qn_status qn_op_random_laplace(qn_array **out, const int *shape, size_t ndim,
                               qn_dtype dtype, float loc, float scale,
                               qn_array *key, qn_stream *s);
qn_status qn_op_random_bernoulli(qn_array **out, qn_array *p, const int *shape,
                                 size_t ndim, qn_array *key, qn_stream *s);
qn_status qn_op_random_randint(qn_array **out, qn_array *low, qn_array *high,
                               const int *shape, size_t ndim, qn_dtype dtype,
                               qn_array *key, qn_stream *s);
qn_status qn_op_random_permutation(qn_array **out, qn_array *x, int axis,
                                   qn_array *key, qn_stream *s);
qn_status qn_op_random_permutation_arange(qn_array **out, int n, qn_array *key,
                                          qn_stream *s);
qn_status qn_op_random_categorical(qn_array **out, qn_array *logits, int axis,
                                   qn_array *key, qn_stream *s);
/* `shape` is that of the result; it broadcasts with the logits' other axes. */
qn_status qn_op_random_categorical_shape(qn_array **out, qn_array *logits,
                                         int axis, const int *shape,
                                         size_t ndim, qn_array *key,
                                         qn_stream *s);
/* num_samples along a new last axis. */
qn_status qn_op_random_categorical_num(qn_array **out, qn_array *logits,
                                       int axis, int num_samples, qn_array *key,
                                       qn_stream *s);

/* ---- distributed.c ---- */

struct qn_group;
/* reduce: a qn_group_reduce (core/group.h).  In a group of one process these
 * three give x itself. */
qn_status qn_op_all_reduce(qn_array **out, qn_array *x, int reduce,
                           struct qn_group *group, qn_stream *s);
qn_status qn_op_all_gather(qn_array **out, qn_array *x, struct qn_group *group,
                           qn_stream *s);
/* The first dimension is a multiple of the group's size. */
qn_status qn_op_sum_scatter(qn_array **out, qn_array *x, struct qn_group *group,
                            qn_stream *s);
/* Errors in a group of one process. */
qn_status qn_op_send(qn_array **out, qn_array *x, int dst,
                     struct qn_group *group, qn_stream *s);
qn_status qn_op_recv(qn_array **out, const int *shape, size_t ndim,
                     qn_dtype dtype, int src, struct qn_group *group,
                     qn_stream *s);

#endif
