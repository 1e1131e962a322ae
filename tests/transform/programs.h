/* programs.h: small functions, at least one around each primitive, that every
 * transformation is tried on.
 *
 * Rows of the regular families in ops.def get their function here from the
 * row; `program_table` has the others.  A function is checked by what it
 * computes elsewhere (tests/ops): here only what transformations make of it
 * counts. */
#ifndef QN_TEST_TRANSFORM_PROGRAMS_H
#define QN_TEST_TRANSFORM_PROGRAMS_H

#include "support/qn_build.h"

#include "ops/params.h"
#include "ops/scope.h"
#include "transform/function.h"

enum { PROGRAM_INPUTS = 5, PROGRAM_OUTPUTS = 3 };

typedef struct program_input {
    int ndim;
    int shape[5];
    double low, high; /* values between them, whole ones for integers */
    qn_dtype dtype;
} program_input;

typedef struct program program;
struct program {
    const char *name;
    int op; /* the primitive that it is there for */
    void (*build)(qn_scope *c, const program *p, qn_array *const *in,
                  qn_array **out);
    int ninputs, noutputs;
    /* Of differences: the step, and how far they may be off; 0: usual. */
    double step, within;
    program_input in[PROGRAM_INPUTS];
};

/* ---- as a function ---- */

typedef struct program_function {
    qn_function base;
    const program *p;
    int calls;
} program_function;

static inline qn_status program_call(const qn_function *self, qn_arrays *out,
                                     qn_array *const *in, size_t nin)
{
    program_function *f = (program_function *)(uintptr_t)self;
    qn_array *results[PROGRAM_OUTPUTS] = {NULL};
    size_t n = (size_t)f->p->noutputs;
    qn_arrays list;
    qn_scope c;
    f->calls++;
    assert_int_equal(nin, f->p->ninputs);
    qn_status status = qn_arrays_new(&list, n);
    if (status)
        return status;
    qn_scope_begin(&c, S);
    f->p->build(&c, f->p, in, results);
    status = qn_scope_end_many(&c, list.data, results, (int)n);
    if (status)
        qn_arrays_free(&list);
    else
        *out = list;
    return status;
}

static inline program_function function_of(const program *p)
{
    return (program_function){{program_call}, p, 0};
}

/* Values for an input; the same for the same seed. */
static inline qn_array *program_values(const program_input *i, uint64_t seed,
                                       const int *shape, int ndim)
{
    qn_array *a = array_of(i->dtype, NULL, shape, ndim);
    for (size_t k = 0; k < a->size; k++) {
        double unit = (test_random(&seed) + 1) / 2;
        double value = i->low + unit * (i->high - i->low);
        if (!qn_dtype_is_float(i->dtype))
            value = floor(value);
        element_put(place_of(a, k), i->dtype, value);
    }
    return keep(a);
}

static inline void program_inputs(const program *p, qn_array **in)
{
    for (int i = 0; i < p->ninputs; i++)
        in[i] = program_values(&p->in[i], 100 + (uint64_t)i, p->in[i].shape,
                               p->in[i].ndim);
}

static inline void keep_list(qn_arrays *list, qn_array **to)
{
    for (size_t i = 0; i < list->count; i++)
        to[i] = keep(qn_array_ref(list->data[i]));
    qn_arrays_free(list);
}

/* ---- the functions ---- */

#define TAKE(call)                                                             \
    do {                                                                       \
        qn_array *made_ = NULL, **made = &made_;                               \
        if (!c->status)                                                        \
            out[0] = qn_scope_hold(c, call, made);                             \
    } while (0)
#define STREAM c->stream
#define FUNCTION(name)                                                         \
    static void name(qn_scope *c, const program *p, qn_array *const *in,       \
                     qn_array **out)

FUNCTION(do_unary)
{
    out[0] = unary(c, (qn_op)p->op, in[0]);
}
FUNCTION(do_binary)
{
    out[0] = binary(c, (qn_op)p->op, in[0], in[1]);
}
FUNCTION(do_reduce)
{
    static const int axes[] = {0, 2};
    out[0] = reduce(c, (qn_op)p->op, in[0], axes, 2, false);
    out[1] = reduce(c, (qn_op)p->op, in[0], axes + 1, 1, true);
}
FUNCTION(do_scan)
{
    for (int i = 0; i < 3; i++) {
        qn_array *made = NULL;
        if (!c->status)
            out[i] = qn_scope_hold(c,
                                   qn_op_scan(&made, (qn_op)p->op, in[0], 1,
                                              i == 1, i < 2, STREAM),
                                   &made);
    }
    /* Exclusive scans begin with an identity, which may be infinite. */
    if (!c->status)
        out[2] = slice_axis(c, out[2], 1, 1, in[0]->shape[1]);
}
FUNCTION(do_prod_zero)
{
    (void)p;
    qn_array *x = mul(c, in[0], in[1]);
    int axis = 1;
    out[0] = reduce(c, QN_OP_PROD, x, &axis, 1, false);
    qn_array *made = NULL;
    if (!c->status)
        out[1] = qn_scope_hold(
            c, qn_op_scan(&made, QN_OP_CUMPROD, x, 1, false, true, STREAM),
            &made);
    if (!c->status)
        out[2] = qn_scope_hold(
            c, qn_op_scan(&made, QN_OP_CUMPROD, x, 1, true, false, STREAM),
            &made);
}
FUNCTION(do_full)
{
    (void)p;
    TAKE(qn_op_full(made, (const int[]){2, 3}, 2, in[0], QN_FLOAT64, STREAM));
}
FUNCTION(do_astype)
{
    (void)p;
    out[0] = cast(c, cast(c, in[0], QN_FLOAT32), QN_FLOAT64);
}
FUNCTION(do_complex)
{
    (void)p;
    qn_array *z = cast(c, in[0], QN_COMPLEX64);
    z = mul(c, z, scalar(c, 2, QN_COMPLEX64));
    out[0] = cast(c, unary(c, QN_OP_REAL, z), QN_FLOAT64);
}
FUNCTION(do_where)
{
    (void)p;
    out[0] = where(c, in[0], in[1], in[2]);
}
FUNCTION(do_as_strided)
{
    (void)p;
    TAKE(qn_op_as_strided(made, in[0], (const int[]){3, 2}, 2,
                          (const int64_t[]){1, 2}, 2, 1, STREAM));
}
FUNCTION(do_broadcast)
{
    (void)p;
    TAKE(qn_op_broadcast_to(made, in[0], (const int[]){2, 4, 3}, 3, STREAM));
}
FUNCTION(do_contiguous)
{
    (void)p;
    TAKE(qn_op_contiguous(made, transpose(c, in[0], (const int[]){1, 0}), false,
                          STREAM));
}
FUNCTION(do_copy)
{
    (void)p;
    TAKE(qn_op_copy(made, in[0], STREAM));
}
FUNCTION(do_materialize)
{
    (void)p;
    TAKE(qn_op_materialize(made, in[0], STREAM));
}
/* All tokens allowed: -inf has no differences. */
FUNCTION(do_token_bitmask)
{
    (void)p;
    const uint32_t ones = UINT32_MAX;
    qn_array *words = NULL;
    if (!c->status)
        qn_scope_hold(c,
                      qn_array_from_data(&words, &ones, (const int[]){1, 1}, 2,
                                         QN_UINT32),
                      &words);
    TAKE(qn_op_token_bitmask(made, in[0], words, NULL, STREAM));
}
FUNCTION(do_reshape)
{
    (void)p;
    TAKE(qn_op_reshape(made, in[0], (const int[]){3, -1}, 2, STREAM));
}
FUNCTION(do_transpose)
{
    (void)p;
    out[0] = transpose(c, in[0], (const int[]){2, 0, 1});
}
FUNCTION(do_depends)
{
    (void)p;
    qn_array *list[2];
    if (c->status)
        return;
    qn_status status = qn_op_depends(list, in, 2, in + 2, 1, STREAM);
    for (int i = 0; i < 2; i++)
        if (!status || !i)
            out[i] = qn_scope_hold(c, status, &list[i]);
}
FUNCTION(do_slice)
{
    (void)p;
    TAKE(qn_op_slice(made, in[0], (const int[]){1, 4}, 2, (const int[]){3, -6},
                     2, (const int[]){1, -2}, 2, STREAM));
}
FUNCTION(do_slice_dynamic)
{
    (void)p;
    TAKE(qn_op_slice_dynamic(made, in[0], in[1], (const int[]){1}, 1,
                             (const int[]){2, 2}, 2, STREAM));
}
#define SLICE_UPDATE(name, combine)                                            \
    FUNCTION(name)                                                             \
    {                                                                          \
        (void)p;                                                               \
        TAKE(qn_op_slice_update(made, in[0], in[1], (const int[]){0, 3}, 2,    \
                                (const int[]){2, -5}, 2, (const int[]){1, -2}, \
                                2, combine, STREAM));                          \
    }
/* clang-format off */
SLICE_UPDATE(do_slice_set, QN_COMBINE_SET)
SLICE_UPDATE(do_slice_sum, QN_COMBINE_SUM)
SLICE_UPDATE(do_slice_prod, QN_COMBINE_PROD)
SLICE_UPDATE(do_slice_max, QN_COMBINE_MAX)
SLICE_UPDATE(do_slice_min, QN_COMBINE_MIN)
/* clang-format on */
FUNCTION(do_slice_update_dynamic)
{
    (void)p;
    TAKE(qn_op_slice_update_dynamic(made, in[0], in[1], in[2], (const int[]){1},
                                    1, STREAM));
}
FUNCTION(do_concatenate)
{
    (void)p;
    out[0] = concat(c, in, 3, 1);
}
FUNCTION(do_pad)
{
    (void)p;
    TAKE(qn_op_pad(made, in[0], (const int[]){0, 1}, 2, (const int[]){1, 0}, 2,
                   (const int[]){0, 2}, 2, in[1], "constant", STREAM));
}
FUNCTION(do_gather)
{
    (void)p;
    TAKE(qn_op_gather(made, in[0], in + 1, 2, (const int[]){0, 2}, 2,
                      (const int[]){1, 3, 2}, 3, STREAM));
}
FUNCTION(do_take)
{
    (void)p;
    TAKE(qn_op_take(made, in[0], in[1], 1, STREAM));
}
FUNCTION(do_take_along)
{
    (void)p;
    TAKE(qn_op_take_along_axis(made, in[0], in[1], 1, STREAM));
}
#define SCATTER(name, combine)                                                 \
    FUNCTION(name)                                                             \
    {                                                                          \
        (void)p;                                                               \
        TAKE(qn_op_scatter(made, in[0], in + 1, 1, in[2], (const int[]){0}, 1, \
                           combine, STREAM));                                  \
    }
/* clang-format off */
SCATTER(do_scatter_set, QN_COMBINE_SET)
SCATTER(do_scatter_sum, QN_COMBINE_SUM)
SCATTER(do_scatter_prod, QN_COMBINE_PROD)
SCATTER(do_scatter_max, QN_COMBINE_MAX)
SCATTER(do_scatter_min, QN_COMBINE_MIN)
/* clang-format on */
FUNCTION(do_put_along)
{
    (void)p;
    TAKE(qn_op_scatter_axis(made, in[0], in[1], in[2], 1, QN_COMBINE_SET,
                            STREAM));
}
FUNCTION(do_add_along)
{
    (void)p;
    TAKE(qn_op_scatter_axis(made, in[0], in[1], in[2], 1, QN_COMBINE_SUM,
                            STREAM));
}
FUNCTION(do_sort)
{
    (void)p;
    TAKE(qn_op_sort(made, QN_OP_SORT, in[0], 1, STREAM));
}
FUNCTION(do_partition)
{
    (void)p;
    TAKE(qn_op_partition(made, QN_OP_PARTITION, in[0], 2, 1, STREAM));
}
FUNCTION(do_topk)
{
    (void)p;
    TAKE(qn_op_topk(made, in[0], 2, 1, STREAM));
}
/* Functions of order have no gradient of their own: what they pick has. */
FUNCTION(do_argmax)
{
    (void)p;
    qn_array *at = NULL;
    if (!c->status)
        at = qn_scope_hold(
            c, qn_op_arg_reduce(&at, in[0], true, 1, true, STREAM), &at);
    TAKE(qn_op_take_along_axis(made, in[0], at, 1, STREAM));
}
FUNCTION(do_searchsorted)
{
    (void)p;
    qn_array *at = NULL;
    if (!c->status)
        at = qn_scope_hold(
            c, qn_op_searchsorted(&at, in[0], in[1], "left", STREAM), &at);
    out[0] = mul(c, cast(c, at, QN_FLOAT64), in[1]);
}
FUNCTION(do_argsort)
{
    (void)p;
    qn_array *at = NULL;
    if (!c->status)
        at = qn_scope_hold(c, qn_op_sort(&at, QN_OP_ARGSORT, in[0], 1, STREAM),
                           &at);
    out[0] = mul(c, cast(c, at, QN_FLOAT64), in[0]);
}
FUNCTION(do_argpartition)
{
    (void)p;
    qn_array *at = NULL;
    if (!c->status)
        at = qn_scope_hold(
            c, qn_op_partition(&at, QN_OP_ARGPARTITION, in[0], 1, 1, STREAM),
            &at);
    TAKE(qn_op_take_along_axis(made, in[0], at, 1, STREAM));
}
FUNCTION(do_matmul)
{
    (void)p;
    out[0] = matmul(c, in[0], in[1]);
}
static const int group32 = 32, bits4 = 4;
FUNCTION(do_quantized)
{
    (void)p;
    TAKE(qn_op_quantized_matmul(made, in[0], in[1], in[2], in[3], true,
                                &group32, &bits4, "affine", STREAM));
}
FUNCTION(do_quantized_plain)
{
    (void)p;
    TAKE(qn_op_quantized_matmul(made, in[0], in[1], in[2], in[3], false,
                                &group32, &bits4, "affine", STREAM));
}
FUNCTION(do_dequantize)
{
    (void)p;
    TAKE(qn_op_dequantize(made, in[0], in[1], in[2], &group32, &bits4, "affine",
                          NULL, NULL, STREAM));
}
FUNCTION(do_softmax)
{
    (void)p;
    TAKE(qn_op_softmax(made, in[0], (const int[]){-1}, 1, true, STREAM));
}
FUNCTION(do_softmax_axes)
{
    (void)p;
    TAKE(qn_op_softmax(made, in[0], (const int[]){0, 2}, 2, true, STREAM));
}
FUNCTION(do_logsumexp)
{
    (void)p;
    TAKE(qn_op_logsumexp(made, in[0], (const int[]){1}, 1, false, STREAM));
}
FUNCTION(do_rms_norm)
{
    (void)p;
    TAKE(qn_op_rms_norm(made, in[0], in[1], 1e-3f, STREAM));
}
FUNCTION(do_layer_norm)
{
    (void)p;
    TAKE(qn_op_layer_norm(made, in[0], in[1], in[2], 1e-3f, STREAM));
}
FUNCTION(do_layer_norm_bare)
{
    (void)p;
    TAKE(qn_op_layer_norm(made, in[0], NULL, NULL, 1e-3f, STREAM));
}
static const float base100 = 100;
FUNCTION(do_rope)
{
    (void)p;
    TAKE(qn_op_rope(made, in[0], 4, false, &base100, 0.5f, 3, NULL, NULL,
                    STREAM));
}
FUNCTION(do_rope_offset)
{
    (void)p;
    TAKE(qn_op_rope(made, in[0], 4, true, NULL, 1, 0, in[1], in[2], STREAM));
}
FUNCTION(do_sdpa)
{
    (void)p;
    TAKE(qn_op_sdpa(made, in[0], in[1], in[2], 0.5f, "", NULL, NULL, STREAM));
}
FUNCTION(do_sdpa_causal)
{
    (void)p;
    TAKE(qn_op_sdpa(made, in[0], in[1], in[2], 0.5f, "causal", NULL, NULL,
                    STREAM));
}
FUNCTION(do_sdpa_mask)
{
    (void)p;
    TAKE(qn_op_sdpa(made, in[0], in[1], in[2], 0.5f, "array", in[3], NULL,
                    STREAM));
}
FUNCTION(do_sdpa_sinks)
{
    (void)p;
    TAKE(qn_op_sdpa(made, in[0], in[1], in[2], 0.5f, "array", in[3], in[4],
                    STREAM));
}
FUNCTION(do_conv)
{
    (void)p;
    qn_conv_settings settings = {
        .stride = {(const int[]){2, 1}, 2},
        .low = {(const int[]){1, 0}, 2},
        .high = {(const int[]){1, 1}, 2},
        .groups = 1,
    };
    TAKE(qn_op_conv(made, in[0], in[1], &settings, STREAM));
}
FUNCTION(do_gather_mm)
{
    (void)p;
    TAKE(qn_op_gather_mm(made, in[0], in[1], in[2], in[3], STREAM));
}
FUNCTION(do_gather_qmm)
{
    (void)p;
    TAKE(qn_op_gather_qmm(made, in[0], in[1], in[2], in[3], NULL, in[4], true,
                          &group32, &bits4, "affine", STREAM));
}
FUNCTION(do_gather_qmm_plain)
{
    (void)p;
    TAKE(qn_op_gather_qmm(made, in[0], in[1], in[2], in[3], in[4], in[4], false,
                          &group32, &bits4, "affine", STREAM));
}
FUNCTION(do_masked_scatter)
{
    (void)p;
    TAKE(qn_op_masked_scatter(made, in[0], in[1], in[2], STREAM));
}
FUNCTION(do_hadamard)
{
    (void)p;
    TAKE(qn_op_hadamard_transform(made, in[0], NULL, STREAM));
}
FUNCTION(do_fft)
{
    (void)p;
    qn_array *made = NULL;
    if (!c->status)
        qn_scope_hold(
            c, qn_op_fft_axis(&made, in[0], 1, QN_FFT_REAL, 1, 6, STREAM),
            &made);
    out[0] = cast(c, unary(c, QN_OP_REAL, made), QN_FLOAT64);
    out[1] = cast(c, unary(c, QN_OP_IMAG, made), QN_FLOAT64);
}
/* Definite: a a^T + identity. */
static qn_array *definite(qn_scope *c, qn_array *a)
{
    qn_array *one = NULL, *flipped = NULL;
    if (c->status)
        return NULL;
    one = qn_scope_hold(c, qn_op_eye(&one, 3, 3, 0, QN_FLOAT64, STREAM), &one);
    if (!c->status)
        flipped = qn_scope_hold(c, qn_op_swapaxes(&flipped, a, -1, -2, STREAM),
                                &flipped);
    return add(c, matmul(c, a, flipped), one);
}
FUNCTION(do_cholesky)
{
    (void)p;
    qn_array *a = definite(c, in[0]);
    TAKE(qn_op_cholesky(made, a, false, STREAM));
}
FUNCTION(do_eigh)
{
    (void)p;
    qn_array *list[2], *a = definite(c, in[0]);
    if (c->status)
        return;
    qn_status status = qn_op_eigh(list, a, "L", true, STREAM);
    out[0] = qn_scope_hold(c, status, &list[0]);
    if (!status)
        qn_scope_hold(c, status, &list[1]);
}
FUNCTION(do_svd)
{
    (void)p;
    TAKE(qn_op_svd(made, in[0], false, STREAM));
}
FUNCTION(do_lu)
{
    (void)p;
    qn_array *list[3];
    if (c->status)
        return;
    qn_status status = qn_op_lu(list, in[0], STREAM);
    for (int i = 0; i < 3 && (!status || !i); i++) {
        qn_array *held = qn_scope_hold(c, status, &list[i]);
        if (i)
            out[i - 1] = held;
    }
}
FUNCTION(do_inv)
{
    (void)p;
    qn_array *a = definite(c, in[0]);
    TAKE(qn_op_inv(made, a, STREAM));
}
FUNCTION(do_solve)
{
    (void)p;
    qn_array *a = definite(c, in[0]);
    TAKE(qn_op_solve(made, a, in[1], STREAM));
}
/* Several operations, and things shared between them. */
FUNCTION(do_chain)
{
    (void)p;
    qn_array *a = add(c, in[0], in[1]);
    qn_array *e = unary(c, QN_OP_EXP, mul(c, a, scalar(c, 0.5, QN_FLOAT64)));
    qn_array *s = reduce(c, QN_OP_SUM, e, (const int[]){1}, 1, true);
    out[0] = divide(c, e, s);
    out[1] = where(c, binary(c, QN_OP_GREATER, a, scalar(c, 0, QN_FLOAT64)),
                   mul(c, e, a), unary(c, QN_OP_TANH, a));
    out[2] = mul(c, in[0], add(c, e, in[1]));
}
FUNCTION(do_var)
{
    (void)p;
    TAKE(qn_op_var(made, in[0], (const int[]){1}, 1, false, 1, STREAM));
}
FUNCTION(do_cross_entropy)
{
    (void)p;
    TAKE(qn_op_cross_entropy(made, in[0], in[1], STREAM));
}
#undef FUNCTION

#define F64(low, high, ...)                                                    \
    {                                                                          \
        (int)(sizeof(int[]){__VA_ARGS__} / sizeof(int)), {__VA_ARGS__}, low,   \
            high, QN_FLOAT64                                                   \
    }
#define NONE_F64(low, high)                                                    \
    {                                                                          \
        0, {0}, low, high, QN_FLOAT64                                          \
    }
#define F32(low, high, ...)                                                    \
    {                                                                          \
        (int)(sizeof(int[]){__VA_ARGS__} / sizeof(int)), {__VA_ARGS__}, low,   \
            high, QN_FLOAT32                                                   \
    }
#define INT(low, high, ...)                                                    \
    {                                                                          \
        (int)(sizeof(int[]){__VA_ARGS__} / sizeof(int)), {__VA_ARGS__}, low,   \
            high, QN_INT32                                                     \
    }
#define BITS(...)                                                              \
    {                                                                          \
        (int)(sizeof(int[]){__VA_ARGS__} / sizeof(int)), {__VA_ARGS__}, 0,     \
            4294967295.0, QN_UINT32                                            \
    }
#define BOOL(...)                                                              \
    {                                                                          \
        (int)(sizeof(int[]){__VA_ARGS__} / sizeof(int)), {__VA_ARGS__}, 0, 2,  \
            QN_BOOL                                                            \
    }

/* Where functions are smooth: most between 0.2 and 0.8. */
static inline double domain_low(int op)
{
    return op == QN_OP_ARCCOSH ? 1.2 : 0.2;
}
static inline double domain_high(int op)
{
    return op == QN_OP_ARCCOSH ? 2.5 : 0.8;
}

/* clang-format off */
static const program program_table[] = {
    {"prod and cumprod with zeros", QN_OP_PROD, do_prod_zero, 2, 3, 1e-5, 0, {F64(.5, 1.5, 3, 5), {2, {3, 5}, 0, 2, QN_INT32}}},
    {"full", QN_OP_FULL, do_full, 1, 1, 0, 0, {F64(-1, 1, 3)}},
    {"astype", QN_OP_ASTYPE, do_astype, 1, 1, 0.0625, 1e-5, {F64(-1, 1, 2, 3)}},
    {"to complex and back", QN_OP_REAL, do_complex, 1, 1, 0.0625, 1e-5, {F64(-1, 1, 2, 3)}},
    {"where", QN_OP_SELECT, do_where, 3, 1, 0, 0, {BOOL(2, 3), F64(-1, 1, 3), F64(-1, 1, 2, 1)}},
    {"as_strided", QN_OP_AS_STRIDED, do_as_strided, 1, 1, 0, 0, {F64(-1, 1, 2, 3)}},
    {"broadcast_to", QN_OP_BROADCAST, do_broadcast, 1, 1, 0, 0, {F64(-1, 1, 4, 1)}},
    {"contiguous", QN_OP_CONTIGUOUS, do_contiguous, 1, 1, 0, 0, {F64(-1, 1, 2, 3)}},
    {"materialize", QN_OP_MATERIALIZE, do_materialize, 1, 1, 0, 0, {F64(-1, 1, 2, 3)}},
    {"token_bitmask", QN_OP_TOKEN_BITMASK, do_token_bitmask, 1, 1, 0.25, 1e-4, {F32(-1, 1, 2, 6)}},
    {"copy", QN_OP_COPY, do_copy, 1, 1, 0, 0, {F64(-1, 1, 2, 3)}},
    {"reshape", QN_OP_RESHAPE, do_reshape, 1, 1, 0, 0, {F64(-1, 1, 2, 3)}},
    {"transpose", QN_OP_TRANSPOSE, do_transpose, 1, 1, 0, 0, {F64(-1, 1, 2, 3, 4)}},
    {"depends", QN_OP_DEPENDS, do_depends, 3, 2, 0, 0, {F64(-1, 1, 2), F64(-1, 1, 3), F64(-1, 1, 2)}},
    {"slice", QN_OP_SLICE, do_slice, 1, 1, 0, 0, {F64(-1, 1, 3, 5)}},
    {"slice_dynamic", QN_OP_SLICE_DYNAMIC, do_slice_dynamic, 2, 1, 0, 0, {F64(-1, 1, 2, 5), INT(0, 4, 1)}},
    {"slice_update", QN_OP_SLICE_UPDATE, do_slice_set, 2, 1, 0, 0, {F64(-1, 1, 3, 4), F64(-1, 1, 2, 2)}},
    {"slice_update sum", QN_OP_SLICE_UPDATE, do_slice_sum, 2, 1, 0, 0, {F64(-1, 1, 3, 4), F64(-1, 1, 2, 2)}},
    {"slice_update product", QN_OP_SLICE_UPDATE, do_slice_prod, 2, 1, 0, 0, {F64(-1, 1, 3, 4), F64(-1, 1, 2, 2)}},
    {"slice_update maximum", QN_OP_SLICE_UPDATE, do_slice_max, 2, 1, 0, 0, {F64(-1, 1, 3, 4), F64(-1, 1, 2, 2)}},
    {"slice_update minimum", QN_OP_SLICE_UPDATE, do_slice_min, 2, 1, 0, 0, {F64(-1, 1, 3, 4), F64(-1, 1, 1, 2)}},
    {"slice_update_dynamic", QN_OP_SLICE_UPDATE_DYNAMIC, do_slice_update_dynamic, 3, 1, 0, 0, {F64(-1, 1, 2, 5), F64(-1, 1, 2, 2), INT(0, 4, 1)}},
    {"concatenate", QN_OP_CONCATENATE, do_concatenate, 3, 1, 0, 0, {F64(-1, 1, 2, 1), F64(-1, 1, 2, 3), F64(-1, 1, 2, 2)}},
    {"pad", QN_OP_PAD, do_pad, 2, 1, 0, 0, {F64(-1, 1, 2, 2), NONE_F64(-1, 1)}},
    {"gather", QN_OP_GATHER, do_gather, 3, 1, 0, 0, {F64(-1, 1, 3, 3, 4), INT(-3, 3, 2, 2), INT(0, 3, 2)}},
    {"take", QN_OP_GATHER, do_take, 2, 1, 0, 0, {F64(-1, 1, 2, 3, 2), INT(-3, 3, 4)}},
    {"take_along_axis", QN_OP_GATHER_AXIS, do_take_along, 2, 1, 0, 0, {F64(-1, 1, 2, 3), INT(-3, 3, 2, 5)}},
    {"scatter", QN_OP_SCATTER, do_scatter_set, 3, 1, 0, 0, {F64(-1, 1, 4, 2), INT(-4, 4, 5), F64(-1, 1, 5, 1, 2)}},
    {"scatter_add", QN_OP_SCATTER, do_scatter_sum, 3, 1, 0, 0, {F64(-1, 1, 4, 2), INT(0, 4, 5), F64(-1, 1, 5, 1, 2)}},
    {"scatter_prod", QN_OP_SCATTER, do_scatter_prod, 3, 1, 0, 0, {F64(.5, 1.5, 4, 2), INT(0, 4, 5), F64(.5, 1.5, 5, 1, 2)}},
    {"scatter_max", QN_OP_SCATTER, do_scatter_max, 3, 1, 0, 0, {F64(-1, 1, 4, 2), INT(0, 4, 5), F64(-1, 1, 5, 1, 2)}},
    {"scatter_min", QN_OP_SCATTER, do_scatter_min, 3, 1, 0, 0, {F64(-1, 1, 4, 2), INT(0, 4, 5), F64(-1, 1, 5, 1, 2)}},
    {"put_along_axis", QN_OP_SCATTER_AXIS, do_put_along, 3, 1, 0, 0, {F64(-1, 1, 2, 4), INT(-4, 4, 2, 5), F64(-1, 1, 2, 5)}},
    {"scatter_add_axis", QN_OP_SCATTER_AXIS, do_add_along, 3, 1, 0, 0, {F64(-1, 1, 2, 4), INT(0, 4, 2, 5), F64(-1, 1, 2, 5)}},
    {"sort", QN_OP_SORT, do_sort, 1, 1, 0, 0, {F64(-1, 1, 2, 5)}},
    {"partition", QN_OP_PARTITION, do_partition, 1, 1, 0, 0, {F64(-1, 1, 2, 5)}},
    {"topk", QN_OP_PARTITION, do_topk, 1, 1, 0, 0, {F64(-1, 1, 2, 5)}},
    {"argmax", QN_OP_ARG_REDUCE, do_argmax, 1, 1, 0, 0, {F64(-1, 1, 2, 5)}},
    {"searchsorted", QN_OP_SEARCHSORTED, do_searchsorted, 2, 1, 0, 0, {F64(0, 0, 4), F64(-1, 1, 5)}},
    {"argsort", QN_OP_ARGSORT, do_argsort, 1, 1, 0, 0, {F64(-1, 1, 2, 5)}},
    {"argpartition", QN_OP_ARGPARTITION, do_argpartition, 1, 1, 0, 0, {F64(-1, 1, 2, 5)}},
    {"matmul", QN_OP_MATMUL, do_matmul, 2, 1, 0, 0, {F64(-1, 1, 2, 3, 4), F64(-1, 1, 4, 2)}},
    {"matmul broadcast", QN_OP_MATMUL, do_matmul, 2, 1, 0, 0, {F64(-1, 1, 2, 1, 3, 4), F64(-1, 1, 3, 4, 2)}},
    {"matmul of lines", QN_OP_MATMUL, do_matmul, 2, 1, 0, 0, {F64(-1, 1, 4), F64(-1, 1, 4)}},
    {"quantized_matmul", QN_OP_QUANTIZED_MATMUL, do_quantized, 4, 1, 0.25, 1e-4, {F32(-1, 1, 2, 32), BITS(3, 4), F32(.5, 1, 3, 1), F32(-1, 1, 3, 1)}},
    {"quantized_matmul plain", QN_OP_QUANTIZED_MATMUL, do_quantized_plain, 4, 1, 0.25, 1e-4, {F32(-1, 1, 2, 3), BITS(3, 4), F32(.5, 1, 3, 1), F32(-1, 1, 3, 1)}},
    {"dequantize", QN_OP_DEQUANTIZE, do_dequantize, 3, 1, 0.25, 1e-4, {BITS(2, 8), F32(.5, 1, 2, 2), F32(-1, 1, 2, 2)}},
    {"softmax", QN_OP_SOFTMAX, do_softmax, 1, 1, 0, 0, {F64(-1, 1, 2, 5)}},
    {"softmax over axes", QN_OP_SOFTMAX, do_softmax_axes, 1, 1, 0, 0, {F64(-1, 1, 2, 3, 2)}},
    {"logsumexp", QN_OP_LOGSUMEXP, do_logsumexp, 1, 1, 0, 0, {F64(-1, 1, 2, 5)}},
    {"rms_norm", QN_OP_RMS_NORM, do_rms_norm, 2, 1, 0, 0, {F64(-1, 1, 2, 2, 4), F64(.5, 1, 4)}},
    {"layer_norm", QN_OP_LAYER_NORM, do_layer_norm, 3, 1, 0, 0, {F64(-1, 1, 2, 2, 4), F64(.5, 1, 4), F64(-1, 1, 4)}},
    {"layer_norm, bare", QN_OP_LAYER_NORM, do_layer_norm_bare, 1, 1, 0, 0, {F64(-1, 1, 2, 4)}},
    {"rope", QN_OP_ROPE, do_rope, 1, 1, 0, 0, {F64(-1, 1, 2, 2, 3, 6)}},
    {"rope at offsets", QN_OP_ROPE, do_rope_offset, 3, 1, 1e-2, 5e-3, {F64(-1, 1, 2, 2, 3, 4), INT(0, 9, 2), F64(1, 5, 2)}},
    {"attention", QN_OP_SDPA, do_sdpa, 3, 1, 0, 0, {F64(-1, 1, 1, 4, 3, 4), F64(-1, 1, 1, 2, 5, 4), F64(-1, 1, 1, 2, 5, 3)}},
    {"causal attention", QN_OP_SDPA, do_sdpa_causal, 3, 1, 0, 0, {F64(-1, 1, 2, 2, 3, 4), F64(-1, 1, 2, 1, 5, 4), F64(-1, 1, 2, 1, 5, 3)}},
    {"masked attention", QN_OP_SDPA, do_sdpa_mask, 4, 1, 0, 0, {F64(-1, 1, 1, 2, 3, 4), F64(-1, 1, 1, 2, 5, 4), F64(-1, 1, 1, 2, 5, 3), BOOL(1, 1, 3, 5)}},
    {"attention with a bias", QN_OP_SDPA, do_sdpa_mask, 4, 1, 0, 0, {F64(-1, 1, 1, 2, 3, 4), F64(-1, 1, 1, 2, 5, 4), F64(-1, 1, 1, 2, 5, 3), F64(-1, 1, 3, 5)}},
    {"attention with sinks", QN_OP_SDPA, do_sdpa_sinks, 5, 1, 0, 0, {F64(-1, 1, 1, 2, 3, 4), F64(-1, 1, 1, 2, 5, 4), F64(-1, 1, 1, 2, 5, 3), BOOL(1, 2, 3, 5), F64(-1, 1, 2)}},
    {"conv", QN_OP_CONV, do_conv, 2, 1, 0, 0, {F64(-1, 1, 2, 5, 4, 2), F64(-1, 1, 3, 3, 2, 2)}},
    {"gather_mm", QN_OP_GATHER_MM, do_gather_mm, 4, 1, 0, 0, {F64(-1, 1, 2, 3, 2), F64(-1, 1, 3, 2, 2), INT(0, 2, 4), INT(0, 3, 4)}},
    {"gather_qmm", QN_OP_GATHER_QMM, do_gather_qmm, 5, 1, 0.25, 1e-4, {F32(-1, 1, 4, 1, 32), BITS(2, 3, 4), F32(.5, 1, 2, 3, 1), F32(-1, 1, 2, 3, 1), INT(0, 2, 4)}},
    {"gather_qmm plain", QN_OP_GATHER_QMM, do_gather_qmm_plain, 5, 1, 0.25, 1e-4, {F32(-1, 1, 3, 2, 3), BITS(2, 3, 4), F32(.5, 1, 2, 3, 1), F32(-1, 1, 2, 3, 1), INT(0, 2, 4)}},
    {"masked_scatter", QN_OP_MASKED_SCATTER, do_masked_scatter, 3, 1, 0, 0, {F64(-1, 1, 2, 3), BOOL(2, 3), F64(-1, 1, 7)}},
    {"masked_scatter rows", QN_OP_MASKED_SCATTER, do_masked_scatter, 3, 1, 0, 0, {F64(-1, 1, 2, 3), BOOL(2), F64(-1, 1, 2, 1)}},
    {"hadamard_transform", QN_OP_HADAMARD, do_hadamard, 1, 1, 0, 0, {F64(-1, 1, 2, 8)}},
    {"cholesky", QN_OP_CHOLESKY, do_cholesky, 1, 1, 0, 0, {F64(-1, 1, 3, 3)}},
    {"eigh", QN_OP_EIGH, do_eigh, 1, 1, 0, 0, {F64(-1, 1, 3, 3)}},
    {"svd", QN_OP_SVD, do_svd, 1, 1, 0, 0, {F64(-1, 1, 3, 3)}},
    {"lu", QN_OP_LU, do_lu, 1, 2, 0, 0, {F64(-1, 1, 3, 3)}},
    {"inv", QN_OP_INV, do_inv, 1, 1, 0, 0, {F64(-1, 1, 3, 3)}},
    {"solve", QN_OP_SOLVE, do_solve, 2, 1, 0, 0, {F64(-1, 1, 3, 3), F64(-1, 1, 3, 2)}},
    {"fft", QN_OP_FFT, do_fft, 1, 2, 0.25, 1e-4, {F32(-1, 1, 2, 6)}},
    {"a chain", QN_OP_ADD, do_chain, 2, 3, 0, 0, {F64(-1, 1, 2, 3), F64(-1, 1, 3)}},
    {"var", QN_OP_SUM, do_var, 1, 1, 0, 0, {F64(-1, 1, 2, 4)}},
    {"cross_entropy", QN_OP_GATHER_AXIS, do_cross_entropy, 2, 1, 1e-2, 1e-3, {F64(-1, 1, 2, 4), INT(0, 4, 2)}},
};
/* clang-format on */

enum { PROGRAMS_LISTED = sizeof program_table / sizeof *program_table };

/* The function of a regular row; false for those without floats. */
static inline bool regular_program(program *p, int op)
{
    const qn_op_info *info = qn_op_info_of(op);
    double low = domain_low(op), high = domain_high(op);
    if (info->types == QN_TYPES_BITS || info->types == QN_TYPES_INT ||
        info->types == QN_TYPES_BOOL || info->result == QN_RESULT_BOOL)
        return false;
    *p = (program){.name = info->name, .op = op, .noutputs = 1};
    p->in[0] = (program_input)F64(low, high, 2, 3);
    p->in[1] = (program_input)F64(low, high, 3);
    switch (info->family) {
    case QN_FAMILY_UNARY:
        p->build = do_unary;
        p->ninputs = 1;
        return true;
    case QN_FAMILY_BINARY:
        p->build = do_binary;
        p->ninputs = 2;
        return true;
    case QN_FAMILY_REDUCE:
        p->build = do_reduce;
        p->ninputs = 1;
        p->noutputs = 2;
        p->in[0] = (program_input)F64(low, high, 2, 3, 2);
        return true;
    case QN_FAMILY_SCAN:
        p->build = do_scan;
        p->ninputs = 1;
        p->noutputs = 3;
        p->in[0] = (program_input)F64(low, high, 2, 5);
        return true;
    default:
        return false;
    }
}

/* Calls visit with every program. */
static inline void each_program(void (*visit)(const program *p))
{
    program p;
    for (int op = 0; op < QN_OP_COUNT; op++)
        if (regular_program(&p, op)) {
            visit(&p);
            drop_all(NULL);
        }
    for (int i = 0; i < PROGRAMS_LISTED; i++) {
        visit(&program_table[i]);
        drop_all(NULL);
    }
}

#endif
