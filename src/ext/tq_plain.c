/* tq_plain.c: encoding of the packed KV format as mlx_* calls, for another
 * library, which has no kernels for it: so decoding in one pass is declined.
 *
 * The same operations in the same order as base/turboquant.c, each of them
 * rounded to float32. */
#include "steps.h"

#include "base/turboquant.h"

#include <quern/ext.h>

static int report(void)
{
    _mlx_error(__FILE__, __LINE__, "%s", qn_error_text());
    return 1;
}

static qn_status check_input(const char *op, mlx_array x, int group)
{
    int d = mlx_array_ndim(x) ? mlx_array_dim(x, -1) : 0;
    mlx_dtype dtype = mlx_array_dtype(x);
    if (dtype != MLX_FLOAT32 && dtype != MLX_FLOAT16 && dtype != MLX_BFLOAT16)
        return qn_fail(QN_E_ARG,
                       "[%s] Expected float32, float16 or bfloat16, found "
                       "dtype number %d.",
                       op, (int)dtype);
    qn_status status = qn_tq_check_group(op, d, group);
    return status ? status : qn_tq_check_dim(op, d);
}

/* ---- short forms ---- */

static mlx_array number(steps *c, float value)
{
    mlx_array *slot = fresh(c);
    *slot = mlx_array_new_float(value);
    c->failed |= !slot->ctx;
    return *slot;
}

/* Calls are written out: a library that is opened at run time gives those
 * functions that a source names. */
#define BINARY(name, call)                                                     \
    static mlx_array name(steps *c, mlx_array a, mlx_array b)                  \
    {                                                                          \
        mlx_array y;                                                           \
        STEP(c, y, call);                                                      \
        return y;                                                              \
    }
BINARY(plus, mlx_add(to, a, b, c->stream))
BINARY(minus, mlx_subtract(to, a, b, c->stream))
BINARY(times, mlx_multiply(to, a, b, c->stream))
BINARY(over, mlx_divide(to, a, b, c->stream))
BINARY(smaller, mlx_minimum(to, a, b, c->stream))
BINARY(larger, mlx_maximum(to, a, b, c->stream))
BINARY(is_equal, mlx_equal(to, a, b, c->stream))
BINARY(is_above, mlx_greater(to, a, b, c->stream))
BINARY(is_at_least, mlx_greater_equal(to, a, b, c->stream))
BINARY(both, mlx_logical_and(to, a, b, c->stream))
BINARY(either, mlx_logical_or(to, a, b, c->stream))

#define UNARY(name, call)                                                      \
    static mlx_array name(steps *c, mlx_array a)                               \
    {                                                                          \
        mlx_array y;                                                           \
        STEP(c, y, call);                                                      \
        return y;                                                              \
    }
UNARY(size_of, mlx_abs(to, a, c->stream))
UNARY(root_of, mlx_sqrt(to, a, c->stream))
UNARY(is_nan, mlx_isnan(to, a, c->stream))
UNARY(is_finite, mlx_isfinite(to, a, c->stream))
UNARY(is_not, mlx_logical_not(to, a, c->stream))

static mlx_array choose(steps *c, mlx_array when, mlx_array a, mlx_array b)
{
    mlx_array y;
    STEP(c, y, mlx_where(to, when, a, b, c->stream));
    return y;
}

static mlx_array rounded(steps *c, mlx_array a)
{
    mlx_array y;
    STEP(c, y, mlx_round(to, a, 0, c->stream));
    return y;
}

static mlx_array clipped(steps *c, mlx_array a, float least, float most)
{
    mlx_array low = number(c, least), high = number(c, most);
    return smaller(c, larger(c, a, low), high);
}

static mlx_array grouped(steps *c, mlx_array x, int group)
{
    mlx_array y;
    STEP(c, y, mlx_unflatten(to, x, -1, (int[]){-1, group}, 2, c->stream));
    return y;
}

/* [..., n, 1] as [..., n] and [..., n, group] as [..., D]. */
static mlx_array ungrouped(steps *c, mlx_array x)
{
    mlx_array y;
    STEP(c, y, mlx_flatten(to, x, -2, -1, c->stream));
    return y;
}

/* ---- keys ---- */

typedef struct grid {
    bool is_signed;
    mlx_array low, high, scale, divide, zero; /* one for each group */
    mlx_array codes;
} grid;

static void make_grid(steps *c, grid *g, mlx_array x, int bits)
{
    float most = g->is_signed ? 127.0f : (float)((1 << bits) - 1);
    mlx_array steps_of = number(c, g->is_signed ? 254.0f : most);
    STEP(c, g->low, mlx_min_axis(to, x, -1, true, c->stream));
    STEP(c, g->high, mlx_max_axis(to, x, -1, true, c->stream));
    g->scale = over(c, size_of(c, minus(c, g->high, g->low)), steps_of);
    g->divide = plus(c, g->scale, number(c, QN_TQ_EPSILON));
    mlx_array zero = g->is_signed ? over(c, plus(c, g->high, g->low),
                                         times(c, number(c, 2), g->divide))
                                  : over(c, g->low, g->divide);
    /* + 0 makes -0 a 0. */
    g->zero = plus(c, rounded(c, zero), number(c, 0));
    mlx_array q = rounded(c, minus(c, over(c, x, g->divide), g->zero));
    mlx_array kept = clipped(c, q, g->is_signed ? -127 : 0, most);
    g->codes = choose(c, is_nan(c, q), number(c, 0), kept);
}

/* Groups that the stored pair can't represent become their midpoint. */
static void guard_grid(steps *c, grid *g, mlx_array *scale, mlx_array *zero)
{
    mlx_array none = number(c, 0), one = number(c, 1);
    mlx_array size = larger(c, size_of(c, g->low), size_of(c, g->high));
    mlx_array lost = both(c, is_equal(c, cast(c, *scale, MLX_FLOAT32), none),
                          is_above(c, size, none));
    mlx_array beyond = is_not(c, is_finite(c, *zero));
    mlx_array bad = both(c, is_finite(c, size), either(c, lost, beyond));
    mlx_array half = number(c, 0.5f);
    mlx_array middle = plus(c, times(c, half, g->low), times(c, half, g->high));
    mlx_array up = is_at_least(c, middle, none);
    mlx_array away = smaller(c, size_of(c, middle), number(c, 65504));
    mlx_array shift = g->is_signed ? none : choose(c, up, none, number(c, -1));
    mlx_array code = choose(c, up, one, g->is_signed ? number(c, -1) : none);
    *scale = choose(c, bad, cast(c, away, MLX_FLOAT16), *scale);
    *zero = choose(c, bad, cast(c, shift, MLX_FLOAT16), *zero);
    g->codes = choose(c, bad, code, g->codes);
}

int quern_tq_encode_keys(mlx_array *codes, mlx_array *scale, mlx_array *zero,
                         const mlx_array keys, int bits, int group_size,
                         bool guard, const mlx_stream s)
{
    if (qn_tq_check_key_bits("tq_encode_keys", bits) ||
        check_input("tq_encode_keys", keys, group_size))
        return report();
    steps c = {.stream = s};
    grid g = {.is_signed = bits == 8};
    mlx_array x = grouped(&c, cast(&c, keys, MLX_FLOAT32), group_size);
    make_grid(&c, &g, x, bits);
    mlx_array step = cast(&c, g.scale, MLX_FLOAT16);
    mlx_array shift = cast(&c, g.zero, MLX_FLOAT16);
    if (guard)
        guard_grid(&c, &g, &step, &shift);
    mlx_array flat =
        cast(&c, ungrouped(&c, g.codes), bits == 8 ? MLX_INT8 : MLX_UINT8);
    step = ungrouped(&c, step);
    shift = ungrouped(&c, shift);
    if (!c.failed)
        c.failed = mlx_array_set(codes, flat) || mlx_array_set(scale, step) ||
                   mlx_array_set(zero, shift);
    finish(&c);
    return c.failed;
}

/* ---- values ---- */

/* The upper half of the last axis onto the lower, until one is left. */
static mlx_array halving_sum(steps *c, mlx_array x, int n)
{
    for (n /= 2; n; n /= 2) {
        mlx_array halves;
        STEP(c, halves, mlx_unflatten(to, x, -1, (int[]){2, n}, 2, c->stream));
        STEP(c, x, mlx_sum_axis(to, halves, -2, false, c->stream));
    }
    return x;
}

/* *at + step where n is above the boundary before it. */
static bool search_step(mlx_array *at, mlx_array n, mlx_array boundaries,
                        int step, mlx_stream s)
{
    steps c = {.stream = s};
    mlx_array bound;
    mlx_array place = plus(&c, *at, number(&c, (float)(step - 1)));
    place = cast(&c, place, MLX_INT32);
    STEP(&c, bound, mlx_take(to, boundaries, place, s));
    mlx_array more = choose(&c, is_above(&c, n, bound), number(&c, (float)step),
                            number(&c, 0));
    more = plus(&c, *at, more);
    if (!c.failed)
        c.failed = mlx_array_set(at, more) != 0;
    finish(&c);
    return c.failed;
}

/* How many boundaries are below n. */
static mlx_array cells_of(steps *c, mlx_array n, int bits)
{
    int count = (1 << bits) - 1;
    mlx_array *bounds = fresh(c), *at = fresh(c);
    *bounds =
        mlx_array_new_data(qn_tq_boundaries(bits), &count, 1, MLX_FLOAT32);
    c->failed |= !bounds->ctx;
    if (!c->failed)
        c->failed = mlx_zeros_like(at, n, c->stream) != 0;
    for (int step = 1 << (bits - 1); step && !c->failed; step /= 2)
        c->failed = search_step(at, n, *bounds, step, c->stream);
    return *at;
}

int quern_tq_encode_values(mlx_array *codes, mlx_array *scale,
                           const mlx_array values, int bits, int group_size,
                           const mlx_stream s)
{
    if (qn_tq_check_value_bits("tq_encode_values", bits) ||
        check_input("tq_encode_values", values, group_size))
        return report();
    steps c = {.stream = s};
    mlx_array turned;
    STEP(&c, turned, quern_tq_rotate(to, values, s));
    mlx_array y = grouped(&c, turned, group_size);
    mlx_array sum = halving_sum(&c, times(&c, y, y), group_size);
    mlx_array rms =
        root_of(&c, times(&c, sum, number(&c, 1.0f / (float)group_size)));
    mlx_array divisor = plus(&c, rms, number(&c, QN_TQ_EPSILON));
    mlx_array cells = cells_of(&c, over(&c, y, divisor), bits);
    mlx_array flat = cast(&c, ungrouped(&c, cells), MLX_UINT8);
    mlx_array half = cast(&c, ungrouped(&c, rms), MLX_FLOAT16);
    if (!c.failed)
        c.failed = mlx_array_set(codes, flat) || mlx_array_set(scale, half);
    finish(&c);
    return c.failed;
}

/* ---- both ---- */

int quern_tq_encode(mlx_vector_array *planes, const mlx_array keys,
                    const mlx_array values, int key_bits, int value_bits,
                    bool guard, const mlx_stream s)
{
    if (qn_tq_check_pair("tq_encode", mlx_array_shape(keys),
                         mlx_array_ndim(keys), mlx_array_shape(values),
                         mlx_array_ndim(values)))
        return report();
    mlx_array made[5];
    for (int i = 0; i < 5; i++)
        made[i] = mlx_array_new();
    int failed = quern_tq_encode_keys(&made[0], &made[1], &made[2], keys,
                                      key_bits, QN_TQ_GROUP, guard, s) ||
                 quern_tq_encode_values(&made[3], &made[4], values, value_bits,
                                        QN_TQ_GROUP, s) ||
                 quern_tq_pack(&made[0], made[0], key_bits, s) ||
                 quern_tq_pack(&made[3], made[3], value_bits, s) ||
                 mlx_vector_array_set_data(planes, made, 5);
    for (int i = 0; i < 5; i++)
        mlx_array_free(made[i]);
    return failed;
}

/* ---- one pass ---- */

int quern_tq_try_joint_decode(bool *accepted, mlx_array *keys,
                              mlx_array *values, const mlx_vector_array planes,
                              const mlx_array centroids, int key_bits,
                              int value_bits, int head_dim, bool defer,
                              const mlx_stream s)
{
    (void)keys, (void)values, (void)planes, (void)centroids, (void)key_bits;
    (void)value_bits, (void)head_dim, (void)defer, (void)s;
    *accepted = false;
    return 0;
}

int quern_tq_try_fused_eager(bool *accepted, mlx_array *keys, mlx_array *values,
                             const mlx_vector_array planes,
                             const mlx_array centroids, const mlx_array signs,
                             int key_bits, int value_bits, int head_dim,
                             const mlx_stream s)
{
    (void)keys, (void)values, (void)planes, (void)centroids, (void)signs;
    (void)key_bits, (void)value_bits, (void)head_dim, (void)s;
    *accepted = false;
    return 0;
}
