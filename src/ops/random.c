/* random.c: random numbers from keys.
 *
 * Every distribution starts from RANDOM_BITS of a key, so equal keys give
 * equal numbers, bit for bit those of MLX; the order and the types of the
 * steps below are part of that.
 *
 * Without a key the calling thread's sequence supplies one.  It is a key kept
 * as two words: each use splits it, keeps the first half and hands out the
 * second. */
#include "params.h"
#include "scope.h"
#include "threefry.h"

#include <limits.h>
#include <math.h>
#include <string.h>
#include <time.h>

/* ---- keys ---- */

typedef struct sequence {
    bool seeded;
    qn_threefry_pair key;
} sequence;

static _Thread_local sequence own;

static qn_threefry_pair pair_of(uint64_t seed)
{
    return (qn_threefry_pair){(uint32_t)(seed >> 32), (uint32_t)seed};
}

void qn_random_seed(uint64_t seed)
{
    own.key = pair_of(seed);
    own.seeded = true;
}

static qn_status key_array(qn_array **out, qn_threefry_pair key)
{
    const uint32_t words[2] = {key.a, key.b};
    int length = 2;
    return qn_array_from_data(out, words, &length, 1, QN_UINT32);
}

qn_status qn_op_random_key(qn_array **out, uint64_t seed)
{
    return key_array(out, pair_of(seed));
}

/* The next key of the thread's sequence: the two rows of a split are words 0,
 * 1 and 2, 3, and words i and 2 + i come from the counter (i, 2 + i). */
static qn_status next_key(qn_array **out)
{
    if (!own.seeded) {
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        qn_random_seed((uint64_t)now.tv_sec * 1000000000u +
                       (uint64_t)now.tv_nsec);
    }
    qn_threefry_pair first = qn_threefry(own.key, (qn_threefry_pair){0, 2});
    qn_threefry_pair second = qn_threefry(own.key, (qn_threefry_pair){1, 3});
    own.key = (qn_threefry_pair){first.a, second.a};
    return key_array(out, (qn_threefry_pair){first.b, second.b});
}

/* ---- bits ---- */

static qn_status bits_of(qn_array **out, const qn_dims *dims, int width,
                         qn_array *key, qn_stream *s)
{
    qn_dtype type = width == 4 ? QN_UINT32 : width == 2 ? QN_UINT16 : QN_UINT8;
    qn_random_bits_params params = {.width = width};
    if (key) {
        if (key->dtype != QN_UINT32 || key->ndim != 1 || key->shape[0] != 2)
            return qn_fail(QN_E_ARG,
                           "[random_bits] Expected a key of type uint32 and "
                           "shape (2), found %s and %s.",
                           qn_dtype_name(key->dtype),
                           qn_array_shape_text(key).text);
        return qn_make(out, QN_OP_RANDOM_BITS, s, &key, 1, &params,
                       sizeof params, type, dims->dim, dims->ndim);
    }
    qn_status status = next_key(&key);
    if (status)
        return status;
    status = qn_make(out, QN_OP_RANDOM_BITS, s, &key, 1, &params, sizeof params,
                     type, dims->dim, dims->ndim);
    qn_array_unref(key);
    return status;
}

static qn_array *bits(qn_scope *c, const qn_dims *dims, qn_array *key)
{
    qn_array *made = NULL;
    return c->status ? NULL
                     : qn_scope_hold(c, bits_of(&made, dims, 4, key, c->stream),
                                     &made);
}

qn_status qn_op_random_bits(qn_array **out, const int *shape, size_t ndim,
                            int width, qn_array *key, qn_stream *s)
{
    qn_dims dims;
    if (width != 1 && width != 2 && width != 4)
        return qn_fail(QN_E_ARG,
                       "[random_bits] The width must be 1, 2 or 4 bytes, found "
                       "%d.",
                       width);
    qn_status status = qn_dims_given(&dims, "random_bits", shape, ndim);
    return status ? status : bits_of(out, &dims, width, key, s);
}

qn_status qn_op_random_split(qn_array **out, qn_array *key, int num,
                             qn_stream *s)
{
    int shape[2] = {num, 2};
    return qn_op_random_bits(out, shape, 2, 4, key, s);
}

/* ---- uniform ---- */

/* The largest number below 1. */
static double below_one(qn_dtype type)
{
    switch (type) {
    case QN_FLOAT16:
        return 0x1.ffcp-1;
    case QN_BFLOAT16:
        return 0x1.fep-1;
    default:
        return 0x1.fffffep-1;
    }
}

/* Uniform in [0, 1) of a type of at most 32 bits. */
static qn_array *unit(qn_scope *c, const qn_dims *dims, qn_dtype type,
                      qn_array *key)
{
    qn_array *u = cast(c, bits(c, dims, key), QN_FLOAT32);
    u = mul(c, u, scalar(c, 0x1p-32, QN_FLOAT32));
    u = binary(c, QN_OP_MINIMUM, u, scalar(c, below_one(type), QN_FLOAT32));
    return cast(c, u, type);
}

static qn_array *uniform(qn_scope *c, qn_array *low, qn_array *high,
                         const qn_dims *dims, qn_dtype type, qn_array *key)
{
    low = cast(c, low, type);
    high = cast(c, high, type);
    qn_array *range = sub(c, high, low);
    return add(c, mul(c, range, unit(c, dims, type, key)), low);
}

/* Uniform in (-1, 1), in float32.  The range 1 - nextafter(-1, 0) is 2 there.
 */
static qn_array *symmetric(qn_scope *c, const qn_dims *dims, qn_array *key)
{
    qn_array *u = unit(c, dims, QN_FLOAT32, key);
    u = mul(c, scalar(c, 2, QN_FLOAT32), u);
    return add(c, u, scalar(c, -0x1.fffffep-1, QN_FLOAT32));
}

/* The given shape, which must be one that `operand` broadcasts to. */
static qn_status shape_for(qn_dims *dims, const char *op, const int *shape,
                           size_t ndim, const qn_array *operand)
{
    qn_status status = qn_dims_given(dims, op, shape, ndim);
    if (status || !operand)
        return status;
    qn_dims have = qn_dims_of(operand), common;
    status = qn_dims_broadcast(&common, op, dims, &have);
    if (status)
        return status;
    bool same = common.ndim == dims->ndim;
    for (int i = 0; same && i < dims->ndim; i++)
        same = common.dim[i] == dims->dim[i];
    if (!same)
        return qn_fail(QN_E_ARG,
                       "[%s] An operand of shape %s cannot be broadcast to the "
                       "output shape %s.",
                       op, qn_array_shape_text(operand).text,
                       qn_shape_text(dims->dim, (size_t)dims->ndim).text);
    return QN_OK;
}

static qn_status check_float(const char *op, qn_dtype type)
{
    if (!qn_dtype_is_float(type))
        return qn_fail(QN_E_ARG,
                       "[%s] Only real floating point types are supported, "
                       "found %s.",
                       op, qn_dtype_name(type));
    return QN_OK;
}

/* Types that one uniform number of 32 bits fills. */
static qn_status check_small_float(const char *op, qn_dtype type)
{
    if (type == QN_FLOAT64)
        return qn_fail(QN_E_ARG, "[%s] float64 is not supported.", op);
    return check_float(op, type);
}

qn_status qn_op_random_uniform(qn_array **out, qn_array *low, qn_array *high,
                               const int *shape, size_t ndim, qn_dtype dtype,
                               qn_array *key, qn_stream *s)
{
    qn_dims dims;
    qn_status status = check_small_float("uniform", dtype);
    if (!status)
        status = shape_for(&dims, "uniform", shape, ndim, low);
    if (!status)
        status = shape_for(&dims, "uniform", shape, ndim, high);
    if (status)
        return status;
    qn_scope c;
    qn_scope_begin(&c, s);
    return qn_scope_end(&c, out, uniform(&c, low, high, &dims, dtype, key));
}

/* ---- by inverting a distribution ---- */

/* Standard normal numbers of `type`, times `scale`, plus `loc` (both may be
 * NULL). */
static qn_array *normal(qn_scope *c, const qn_dims *dims, qn_dtype type,
                        qn_array *loc, qn_array *scale, qn_array *key)
{
    qn_array *y = unary(c, QN_OP_ERFINV, symmetric(c, dims, key));
    qn_array *factor = scalar(c, 1.4142135623730950488, type);
    if (scale)
        factor = mul(c, factor, cast(c, scale, type));
    y = mul(c, factor, cast(c, y, type));
    return loc ? add(c, cast(c, loc, type), y) : y;
}

/* Real and imaginary parts are normal with half the variance each. */
static qn_array *complex_normal(qn_scope *c, const qn_dims *dims, qn_array *loc,
                                qn_array *scale, qn_array *key)
{
    qn_dims pairs = *dims;
    qn_status status =
        c->status ? c->status : qn_dims_insert(&pairs, "normal", dims->ndim, 2);
    if (status) {
        qn_scope_fail(c, status);
        return NULL;
    }
    qn_array *y = normal(c, &pairs, QN_FLOAT32, NULL, NULL, key), *made = NULL;
    y = mul(c, y, scalar(c, 0.70710678118654752440, QN_FLOAT32));
    if (!c->status)
        qn_scope_hold(c, qn_op_view(&made, y, QN_COMPLEX64, c->stream), &made);
    y = reshape(c, made, dims);
    if (scale)
        y = mul(c, cast(c, scale, QN_COMPLEX64), y);
    return loc ? add(c, cast(c, loc, QN_COMPLEX64), y) : y;
}

qn_status qn_op_random_normal(qn_array **out, const int *shape, size_t ndim,
                              qn_dtype dtype, qn_array *loc, qn_array *scale,
                              qn_array *key, qn_stream *s)
{
    qn_dims dims;
    qn_status status =
        dtype == QN_COMPLEX64 ? QN_OK : check_float("normal", dtype);
    if (!status)
        status = shape_for(&dims, "normal", shape, ndim, loc);
    if (!status)
        status = shape_for(&dims, "normal", shape, ndim, scale);
    if (status)
        return status;
    qn_scope c;
    qn_scope_begin(&c, s);
    qn_array *y = dtype == QN_COMPLEX64
                      ? complex_normal(&c, &dims, loc, scale, key)
                      : normal(&c, &dims, dtype, loc, scale, key);
    return qn_scope_end(&c, out, y);
}

/* Operands of a normal vector: n numbers, n x n; the common shape of their
 * other axes and the one that is asked for. */
static qn_status vector_dims(qn_dims *dims, const int *shape, size_t ndim,
                             const qn_array *mean, const qn_array *cov)
{
    static const char op[] = "multivariate_normal";
    if (!mean->ndim || cov->ndim < 2)
        return qn_fail(QN_E_ARG,
                       "[%s] A mean of at least one and a covariance of at "
                       "least two dimensions are expected, found %d and %d.",
                       op, mean->ndim, cov->ndim);
    int n = mean->shape[mean->ndim - 1];
    if (cov->shape[cov->ndim - 1] != n || cov->shape[cov->ndim - 2] != n)
        return qn_fail(QN_E_ARG,
                       "[%s] A mean (..., n) and a covariance (..., n, n) are "
                       "expected, found shapes %s and %s.",
                       op, qn_array_shape_text(mean).text,
                       qn_array_shape_text(cov).text);
    qn_dims of_mean = qn_dims_of(mean), of_cov = qn_dims_of(cov);
    of_mean.ndim -= 1;
    of_cov.ndim -= 2;
    qn_status status = qn_dims_given(dims, op, shape, ndim);
    if (!status)
        status = qn_dims_broadcast(dims, op, dims, &of_mean);
    if (!status)
        status = qn_dims_broadcast(dims, op, dims, &of_cov);
    if (!status)
        status = qn_dims_insert(dims, op, dims->ndim, n);
    return status;
}

/* The symmetric root of the covariance turns independent numbers into those of
 * the distribution. */
qn_status qn_op_random_multivariate_normal(qn_array **out, qn_array *mean,
                                           qn_array *cov, const int *shape,
                                           size_t ndim, qn_dtype dtype,
                                           qn_array *key, qn_stream *s)
{
    qn_dims dims;
    if (dtype != QN_FLOAT32)
        return qn_fail(QN_E_ARG,
                       "[multivariate_normal] float32 is expected, found %s.",
                       qn_dtype_name(dtype));
    qn_status status = vector_dims(&dims, shape, ndim, mean, cov);
    if (status)
        return status;
    qn_scope c;
    qn_scope_begin(&c, s);
    qn_array *parts[3], *matrix = cast(&c, cov, dtype);
    if (!c.status)
        qn_scope_fail(&c, qn_op_svd(parts, matrix, true, s));
    if (c.status)
        return qn_scope_end(&c, out, NULL);
    for (int i = 0; i < 3; i++)
        if (c.status)
            qn_array_unref(parts[i]);
        else
            qn_scope_hold(&c, QN_OK, &parts[i]);
    qn_array *y = normal(&c, &dims, dtype, NULL, NULL, key);
    if (c.status)
        return qn_scope_end(&c, out, NULL);
    qn_array *root = expand(&c, unary(&c, QN_OP_SQRT, parts[1]), -2);
    root = mul(&c, parts[0], root);
    root = c.status ? NULL : matmul(&c, root, parts[2]);
    y = expand(&c, y, -2);
    y = squeeze(&c, c.status ? NULL : matmul(&c, y, root), -2);
    return qn_scope_end(&c, out, add(&c, cast(&c, mean, dtype), y));
}

qn_status qn_op_random_truncated_normal(qn_array **out, qn_array *lower,
                                        qn_array *upper, const int *shape,
                                        size_t ndim, qn_dtype dtype,
                                        qn_array *key, qn_stream *s)
{
    qn_dims dims;
    qn_status status = check_small_float("truncated_normal", dtype);
    if (!status)
        status = shape_for(&dims, "truncated_normal", shape, ndim, lower);
    if (!status)
        status = shape_for(&dims, "truncated_normal", shape, ndim, upper);
    if (status)
        return status;
    qn_scope c;
    qn_scope_begin(&c, s);
    qn_array *low = cast(&c, lower, dtype), *high = cast(&c, upper, dtype);
    qn_array *root = scalar(&c, 1.4142135623730950488, dtype);
    qn_array *a = unary(&c, QN_OP_ERF, divide(&c, low, root));
    qn_array *b = unary(&c, QN_OP_ERF, divide(&c, high, root));
    qn_array *u = uniform(&c, a, b, &dims, dtype, key);
    qn_array *y = mul(&c, root, unary(&c, QN_OP_ERFINV, u));
    y = binary(&c, QN_OP_MAXIMUM, binary(&c, QN_OP_MINIMUM, high, y), low);
    return qn_scope_end(&c, out, y);
}

static qn_array *gumbel(qn_scope *c, const qn_dims *dims, qn_dtype type,
                        qn_array *key)
{
    qn_array *y = unary(c, QN_OP_LOG, unit(c, dims, type, key));
    y = unary(c, QN_OP_LOG, unary(c, QN_OP_NEGATIVE, y));
    return unary(c, QN_OP_NEGATIVE, y);
}

qn_status qn_op_random_gumbel(qn_array **out, const int *shape, size_t ndim,
                              qn_dtype dtype, qn_array *key, qn_stream *s)
{
    qn_dims dims;
    qn_status status = check_small_float("gumbel", dtype);
    if (!status)
        status = qn_dims_given(&dims, "gumbel", shape, ndim);
    if (status)
        return status;
    qn_scope c;
    qn_scope_begin(&c, s);
    return qn_scope_end(&c, out, gumbel(&c, &dims, dtype, key));
}

qn_status qn_op_random_laplace(qn_array **out, const int *shape, size_t ndim,
                               qn_dtype dtype, float loc, float scale,
                               qn_array *key, qn_stream *s)
{
    qn_dims dims;
    qn_status status = check_float("laplace", dtype);
    if (!status)
        status = qn_dims_given(&dims, "laplace", shape, ndim);
    if (status)
        return status;
    qn_scope c;
    qn_scope_begin(&c, s);
    qn_array *u = symmetric(&c, &dims, key);
    qn_array *size = unary(&c, QN_OP_NEGATIVE, unary(&c, QN_OP_ABS, u));
    qn_array *y =
        mul(&c, unary(&c, QN_OP_SIGN, u), unary(&c, QN_OP_LOG1P, size));
    y = cast(&c, y, dtype);
    if (scale != 1)
        y = mul(&c, scalar(&c, scale, dtype), y);
    if (loc != 0)
        y = add(&c, scalar(&c, loc, dtype), y);
    return qn_scope_end(&c, out, y);
}

/* ---- whole numbers ---- */

qn_status qn_op_random_bernoulli(qn_array **out, qn_array *p, const int *shape,
                                 size_t ndim, qn_array *key, qn_stream *s)
{
    qn_dims dims;
    qn_status status = check_float("bernoulli", p->dtype);
    if (!status)
        status = shape_for(&dims, "bernoulli", shape, ndim, p);
    if (status)
        return status;
    qn_scope c;
    qn_scope_begin(&c, s);
    /* One step above 2^32, so that p = 1 is above every number of 32 bits. */
    qn_array *bound = mul(&c, p, scalar(&c, 4294967808.0, QN_FLOAT32));
    return qn_scope_end(&c, out,
                        binary(&c, QN_OP_LESS, bits(&c, &dims, key), bound));
}

qn_status qn_op_random_randint(qn_array **out, qn_array *low, qn_array *high,
                               const int *shape, size_t ndim, qn_dtype dtype,
                               qn_array *key, qn_stream *s)
{
    qn_dims dims;
    if (dtype != QN_BOOL && !qn_dtype_is_integer(dtype))
        return qn_fail(QN_E_ARG,
                       "[randint] Only integers and bool are supported, found "
                       "%s.",
                       qn_dtype_name(dtype));
    qn_status status = shape_for(&dims, "randint", shape, ndim, low);
    if (!status)
        status = shape_for(&dims, "randint", shape, ndim, high);
    if (status)
        return status;
    /* float32 may round up to `high`, even beyond what the type holds. */
    qn_dtype wide = dtype == QN_UINT64 ? QN_UINT64 : QN_INT64;
    qn_scope c;
    qn_scope_begin(&c, s);
    qn_array *y = uniform(&c, low, high, &dims, QN_FLOAT32, key);
    y = cast(&c, unary(&c, QN_OP_FLOOR, y), wide);
    qn_array *last = sub(&c, cast(&c, high, wide), scalar(&c, 1, wide));
    y = binary(&c, QN_OP_MINIMUM, y, last);
    y = binary(&c, QN_OP_MAXIMUM, y, cast(&c, low, wide));
    return qn_scope_end(&c, out, cast(&c, y, dtype));
}

static qn_array *shuffled(qn_scope *c, int n, qn_array *key)
{
    qn_dims dims = {.ndim = 1, .dim = {n}};
    qn_array *order = bits(c, &dims, key), *made = NULL;
    if (c->status)
        return NULL;
    return qn_scope_hold(
        c, qn_op_sort(&made, QN_OP_ARGSORT, order, 0, c->stream), &made);
}

qn_status qn_op_random_permutation_arange(qn_array **out, int n, qn_array *key,
                                          qn_stream *s)
{
    if (n < 0)
        return qn_fail(QN_E_ARG,
                       "[permutation] The length must not be negative, found "
                       "%d.",
                       n);
    qn_scope c;
    qn_scope_begin(&c, s);
    return qn_scope_end(&c, out, shuffled(&c, n, key));
}

qn_status qn_op_random_permutation(qn_array **out, qn_array *x, int axis,
                                   qn_array *key, qn_stream *s)
{
    int at;
    qn_status status = qn_axis_of(&at, "permutation", axis, x->ndim);
    if (status)
        return status;
    qn_scope c;
    qn_scope_begin(&c, s);
    qn_array *order = shuffled(&c, x->shape[at], key), *made = NULL;
    if (!c.status)
        qn_scope_hold(&c, qn_op_take(&made, x, order, at, s), &made);
    return qn_scope_end(&c, out, made);
}

/* ---- categorical ---- */

/* The largest of logits plus Gumbel noise falls on each index with its
 * probability.  `dims` is the shape of the samples; logits line up with it
 * from the end, their axis left out. */
static qn_array *by_noise(qn_scope *c, qn_array *logits, int axis,
                          const qn_dims *dims, qn_array *key)
{
    qn_dims noisy = *dims;
    int at = axis + dims->ndim - logits->ndim + 1;
    qn_status status =
        qn_dims_insert(&noisy, "categorical", at, logits->shape[axis]);
    if (status) {
        qn_scope_fail(c, status);
        return NULL;
    }
    qn_array *y = add(c, logits, gumbel(c, &noisy, QN_FLOAT32, key));
    qn_array *made = NULL;
    if (!c->status)
        qn_scope_hold(c, qn_op_arg_reduce(&made, y, true, at, false, c->stream),
                      &made);
    return made;
}

/* One distribution for all samples: sums of the weights before each index are
 * made once, and each sample looks one number up in them. */
static qn_array *by_lookup(qn_scope *c, qn_array *logits, const qn_dims *dims,
                           qn_array *key)
{
    int first = 0;
    qn_array *x = cast(c, flatten(c, logits), QN_FLOAT32);
    qn_array *weights = unary(
        c, QN_OP_EXP, sub(c, x, reduce(c, QN_OP_MAX, x, &first, 1, true)));
    qn_array *sums = NULL, *found = NULL;
    if (!c->status)
        qn_scope_hold(c,
                      qn_op_scan(&sums, QN_OP_CUMSUM, weights, 0, false, false,
                                 c->stream),
                      &sums);
    if (c->status)
        return NULL;
    int n = sums->shape[0];
    qn_array *total = add(c, slice_axis(c, sums, 0, n - 1, n),
                          slice_axis(c, weights, 0, n - 1, n));
    qn_array *u = mul(c, unit(c, dims, QN_FLOAT32, key), total);
    if (!c->status)
        qn_scope_hold(
            c, qn_op_searchsorted(&found, sums, u, "right", c->stream), &found);
    return sub(c, found, scalar(c, 1, QN_UINT32));
}

static qn_status sampled(qn_array **out, qn_array *logits, int axis,
                         const qn_dims *dims, bool single, qn_array *key,
                         qn_stream *s)
{
    if (!logits->shape[axis])
        return qn_fail(QN_E_ARG,
                       "[categorical] There is nothing to choose from in "
                       "logits of shape %s along axis %d.",
                       qn_array_shape_text(logits).text, axis);
    if (logits->dtype == QN_COMPLEX64)
        return qn_fail(QN_E_ARG, "[categorical] Not supported for complex64.");
    qn_scope c;
    qn_scope_begin(&c, s);
    qn_array *y = single && dims->ndim ? by_lookup(&c, logits, dims, key)
                                       : by_noise(&c, logits, axis, dims, key);
    return qn_scope_end(&c, out, y);
}

static bool is_single(const qn_array *logits, int axis)
{
    return logits->size == (size_t)logits->shape[axis];
}

qn_status qn_op_random_categorical(qn_array **out, qn_array *logits, int axis,
                                   qn_array *key, qn_stream *s)
{
    int at;
    qn_status status = qn_axis_of(&at, "categorical", axis, logits->ndim);
    if (status)
        return status;
    qn_dims dims = qn_dims_of(logits);
    qn_dims_remove(&dims, at);
    return sampled(out, logits, at, &dims, is_single(logits, at), key, s);
}

qn_status qn_op_random_categorical_shape(qn_array **out, qn_array *logits,
                                         int axis, const int *shape,
                                         size_t ndim, qn_array *key,
                                         qn_stream *s)
{
    int at;
    qn_dims dims, common;
    qn_status status = qn_axis_of(&at, "categorical", axis, logits->ndim);
    if (!status)
        status = qn_dims_given(&dims, "categorical", shape, ndim);
    if (status)
        return status;
    qn_dims others = qn_dims_of(logits);
    qn_dims_remove(&others, at);
    status = qn_dims_broadcast(&common, "categorical", &dims, &others);
    if (status)
        return status;
    if (common.ndim != dims.ndim ||
        (dims.ndim &&
         memcmp(common.dim, dims.dim, (size_t)dims.ndim * sizeof *dims.dim)))
        return qn_fail(QN_E_ARG,
                       "[categorical] Logits of shape %s without axis %d "
                       "cannot be broadcast to the requested shape %s.",
                       qn_array_shape_text(logits).text, axis,
                       qn_shape_text(shape, ndim).text);
    return sampled(out, logits, at, &dims, is_single(logits, at), key, s);
}

qn_status qn_op_random_categorical_num(qn_array **out, qn_array *logits,
                                       int axis, int num_samples, qn_array *key,
                                       qn_stream *s)
{
    int at;
    qn_status status = qn_axis_of(&at, "categorical", axis, logits->ndim);
    if (status)
        return status;
    qn_dims dims = qn_dims_of(logits);
    qn_dims_remove(&dims, at);
    if (num_samples < 0)
        return qn_fail(QN_E_ARG,
                       "[categorical] The number of samples must not be "
                       "negative, found %d.",
                       num_samples);
    status = qn_dims_insert(&dims, "categorical", dims.ndim, num_samples);
    if (status)
        return status;
    qn_scope c;
    qn_scope_begin(&c, s);
    qn_array *spread = expand(&c, logits, -1), *made = NULL;
    if (!c.status)
        qn_scope_hold(
            &c,
            sampled(&made, spread, at, &dims, is_single(logits, at), key, s),
            &made);
    return qn_scope_end(&c, out, made);
}
