/* turboquant.c: the steps of the packed KV format that are mlx_* calls: over
 * our engine, which this file is built into, as over another library. */
#include "steps.h"

#include "base/turboquant.h"

#include <quern/ext.h>

/* 1, after the error handler has had the recorded sentence. */
static int report(void)
{
    _mlx_error(__FILE__, __LINE__, "%s", qn_error_text());
    return 1;
}

#define CHECK(call)                                                            \
    do {                                                                       \
        if (call)                                                              \
            return report();                                                   \
    } while (0)

static int last_dim(mlx_array x)
{
    return mlx_array_ndim(x) ? mlx_array_dim(x, -1) : 0;
}

/* The same among steps: after a failure there may be no array to ask, which
 * would be an error that hides the first. */
static int last_dim_of(const steps *c, mlx_array x)
{
    return c->failed ? 0 : last_dim(x);
}

/* Stores y, if all went well, and ends the steps. */
static int store(steps *c, mlx_array *res, mlx_array y)
{
    if (!c->failed)
        c->failed = mlx_array_set(res, y) != 0;
    finish(c);
    return c->failed;
}

/* ---- packing ---- */

static qn_status check_pack(const char *op, int bits, int d)
{
    if (!qn_tq_has_value_bits(bits))
        return qn_fail(QN_E_ARG,
                       "[%s] bits must be " QN_TQ_VALUE_BITS ", found %d.", op,
                       bits);
    if (d < 0 || (int64_t)d * bits % 8)
        return qn_fail(QN_E_ARG,
                       "[%s] %d codes of %d bits are not whole bytes.", op, d,
                       bits);
    return QN_OK;
}

/* 0 1 2 ... n - 1 as uint8. */
static mlx_array counts(steps *c, int n)
{
    static const uint8_t numbers[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    mlx_array *slot = fresh(c);
    *slot = mlx_array_new_data(numbers, &n, 1, MLX_UINT8);
    c->failed |= !slot->ctx;
    return *slot;
}

/* Bits from pieces of `from` each to pieces of `to` each along the last axis,
 * which becomes `length` pieces. */
static mlx_array regroup(steps *c, mlx_array x, int from, int to_bits,
                         int length)
{
    mlx_array wide, shifted, one, bits, flat, pieces, placed, sum, y;
    mlx_array numbers = counts(c, from), places = counts(c, to_bits);
    STEP(c, wide, mlx_expand_dims(to, x, -1, c->stream));
    STEP(c, shifted, mlx_right_shift(to, wide, numbers, c->stream));
    STEP(c, one, mlx_ones_like(to, numbers, c->stream));
    STEP(c, bits, mlx_bitwise_and(to, shifted, one, c->stream));
    STEP(c, flat, mlx_flatten(to, bits, -2, -1, c->stream));
    STEP(c, pieces,
         mlx_unflatten(to, flat, -1, (int[]){length, to_bits}, 2, c->stream));
    STEP(c, placed, mlx_left_shift(to, pieces, places, c->stream));
    STEP(c, sum, mlx_sum_axis(to, placed, -1, false, c->stream));
    STEP(c, y, mlx_astype(to, sum, MLX_UINT8, c->stream));
    return y;
}

int quern_tq_pack(mlx_array *res, const mlx_array codes, int bits,
                  const mlx_stream s)
{
    int d = last_dim(codes);
    CHECK(check_pack("tq_pack", bits, d));
    if (bits == 8)
        return mlx_array_set(res, codes);
    steps c = {.stream = s};
    mlx_array narrow = cast(&c, codes, MLX_UINT8);
    return store(&c, res, regroup(&c, narrow, bits, 8, d * bits / 8));
}

int quern_tq_unpack(mlx_array *res, const mlx_array packed, int bits,
                    int head_dim, const mlx_stream s)
{
    int bytes = last_dim(packed);
    CHECK(check_pack("tq_unpack", bits, head_dim));
    if ((int64_t)bytes * 8 != (int64_t)head_dim * bits) {
        qn_fail(QN_E_ARG,
                "[tq_unpack] %d bytes do not hold %d codes of %d bits.", bytes,
                head_dim, bits);
        return report();
    }
    if (bits == 8)
        return mlx_array_set(res, packed);
    steps c = {.stream = s};
    return store(&c, res, regroup(&c, packed, 8, bits, head_dim));
}

/* ---- tables and rotation ---- */

int quern_tq_centroids(mlx_array *res, int value_bits)
{
    CHECK(qn_tq_check_value_bits("tq_centroids", value_bits));
    int n = 1 << value_bits;
    return mlx_array_set_data(res, qn_tq_centroids(value_bits), &n, 1,
                              MLX_FLOAT32);
}

int quern_tq_signs(mlx_array *res, int head_dim)
{
    float signs[QN_TQ_MAX_DIM];
    CHECK(qn_tq_check_dim("tq_signs", head_dim));
    qn_tq_sign_floats(signs, head_dim);
    return mlx_array_set_data(res, signs, &head_dim, 1, MLX_FLOAT32);
}

/* x in the other basis, float32.  Signs come first on the way there and last on
 * the way back. */
static mlx_array turn(steps *c, mlx_array x, bool back)
{
    int d = last_dim_of(c, x);
    mlx_array signs, y = cast(c, x, MLX_FLOAT32);
    mlx_optional_float norm = {qn_tq_norm(d), true};
    STEP(c, signs, quern_tq_signs(to, d));
    if (!back)
        STEP(c, y, mlx_multiply(to, y, signs, c->stream));
    STEP(c, y, mlx_hadamard_transform(to, y, norm, c->stream));
    if (back)
        STEP(c, y, mlx_multiply(to, y, signs, c->stream));
    return y;
}

static qn_status check_float(const char *op, mlx_array x)
{
    mlx_dtype dtype = mlx_array_dtype(x);
    if (dtype == MLX_FLOAT32 || dtype == MLX_FLOAT16 || dtype == MLX_BFLOAT16)
        return QN_OK;
    return qn_fail(QN_E_ARG,
                   "[%s] Expected float32, float16 or bfloat16, found dtype "
                   "number %d.",
                   op, (int)dtype);
}

int quern_tq_rotate(mlx_array *res, const mlx_array x, const mlx_stream s)
{
    CHECK(check_float("tq_rotate", x));
    CHECK(qn_tq_check_dim("tq_rotate", last_dim(x)));
    steps c = {.stream = s};
    return store(&c, res, turn(&c, x, false));
}

int quern_tq_unrotate(mlx_array *res, const mlx_array x, const mlx_stream s)
{
    CHECK(check_float("tq_unrotate", x));
    CHECK(qn_tq_check_dim("tq_unrotate", last_dim(x)));
    steps c = {.stream = s};
    return store(&c, res, cast(&c, turn(&c, x, true), mlx_array_dtype(x)));
}

/* ---- decoding plane by plane ---- */

/* [..., D] as groups [..., n, D / n], and one number for each of them. */
static mlx_array grouped(steps *c, mlx_array x, int n)
{
    mlx_array y;
    int d = last_dim_of(c, x);
    STEP(c, y, mlx_unflatten(to, x, -1, (int[]){n, d / n}, 2, c->stream));
    return y;
}

static mlx_array column(steps *c, mlx_array scale)
{
    mlx_array y, wide = cast(c, scale, MLX_FLOAT32);
    STEP(c, y, mlx_expand_dims(to, wide, -1, c->stream));
    return y;
}

static qn_status check_groups(const char *op, int d, int n)
{
    if (d > 0 && n > 0 && d % n == 0)
        return QN_OK;
    return qn_fail(QN_E_ARG,
                   "[%s] head_dim %d is not a multiple of its %d groups.", op,
                   d, n);
}

int quern_tq_decode_keys(mlx_array *res, const mlx_array codes,
                         const mlx_array scale, const mlx_array zero,
                         const mlx_stream s)
{
    int n = last_dim(scale), d = last_dim(codes);
    CHECK(check_groups("tq_decode_keys", d, n));
    if (last_dim(zero) != n) {
        qn_fail(QN_E_ARG,
                "[tq_decode_keys] %d zero points do not fit %d scales.",
                last_dim(zero), n);
        return report();
    }
    steps c = {.stream = s};
    mlx_array shifted, scaled, flat;
    mlx_array wide = grouped(&c, cast(&c, codes, MLX_FLOAT32), n);
    mlx_array shift = column(&c, zero), step = column(&c, scale);
    STEP(&c, shifted, mlx_add(to, wide, shift, s));
    STEP(&c, scaled, mlx_multiply(to, shifted, step, s));
    STEP(&c, flat, mlx_flatten(to, scaled, -2, -1, s));
    return store(&c, res, cast(&c, flat, MLX_BFLOAT16));
}

int quern_tq_decode_values(mlx_array *res, const mlx_array codes,
                           const mlx_array scale, int bits, bool defer,
                           const mlx_stream s)
{
    int n = last_dim(scale), d = last_dim(codes);
    CHECK(qn_tq_check_value_bits("tq_decode_values", bits));
    CHECK(check_groups("tq_decode_values", d, n));
    if (!defer)
        CHECK(qn_tq_check_dim("tq_decode_values", d));
    steps c = {.stream = s};
    mlx_array table, cells, scaled, y;
    mlx_array step = column(&c, scale);
    STEP(&c, table, quern_tq_centroids(to, bits));
    STEP(&c, cells, mlx_take(to, table, codes, s));
    STEP(&c, scaled, mlx_multiply(to, grouped(&c, cells, n), step, s));
    STEP(&c, y, mlx_flatten(to, scaled, -2, -1, s));
    if (!defer)
        y = turn(&c, y, true);
    return store(&c, res, cast(&c, y, MLX_BFLOAT16));
}
