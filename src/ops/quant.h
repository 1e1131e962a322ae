/* quant.h: what the builders of packed matrices share. */
#ifndef QN_OPS_QUANT_H
#define QN_OPS_QUANT_H

#include "params.h"
#include "scope.h"

/* "affine", "mxfp4", "mxfp8", "nvfp4". */
const char *qn_packed_mode_name(qn_quant_mode mode);

/* The format that a program names: NULL group_size and bits are the mode's own.
 * `small` also accepts groups of 16 of the affine mode, which upstream has no
 * kernels for.  QN_E_ARG for a format that there is not. */
qn_status qn_packed_format(qn_quant_params *p, const char *op,
                           const int *group_size, const int *bits,
                           const char *mode, bool small);

/* Checks the operands of a product with packed matrices: w, scales and biases
 * (NULL for most modes) against the format, and x (of at least one dimension)
 * against them in p->transpose's direction.  `type` is the result's: that of
 * x if `keep`, else promoted as upstream does.  QN_E_ARG for what does not
 * fit. */
typedef struct qn_packed_sizes {
    qn_dtype type;
    int inner, outer; /* lengths that are summed over, and of a result row */
} qn_packed_sizes;
qn_status qn_packed_check(qn_packed_sizes *sizes, const char *op,
                          const qn_quant_params *p, bool keep,
                          const qn_array *x, const qn_array *w,
                          const qn_array *scales, const qn_array *biases);

/* GATHER_QMM whatever indices there are; `keep` as above. */
qn_status qn_op_gather_quantized(qn_array **out, qn_array *x, qn_array *w,
                                 qn_array *scales, qn_array *biases,
                                 qn_array *indices_x, qn_array *indices_w,
                                 const qn_quant_params *p, bool keep,
                                 qn_stream *s);

/* x as its packed form (of another mode than affine) has it, in float32.
 * global_scale may be NULL. */
qn_status qn_op_requantize(qn_array **out, qn_array *x,
                           const qn_quant_params *format,
                           qn_array *global_scale, qn_stream *s);

#endif
