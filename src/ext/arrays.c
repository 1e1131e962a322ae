/* arrays.c: copies, ranges and products by rows, made of mlx_* calls, for
 * another library. */
#include "steps.h"

#include "base/f16.h"

#include <quern/ext.h>

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static int store(steps *c, mlx_array *res, mlx_array y)
{
    if (!c->failed)
        c->failed = mlx_array_set(res, y) != 0;
    finish(c);
    return c->failed;
}

/* ---- materialize ---- */

/* A slice whose start is an array is a copy in every library. */
int quern_materialize(mlx_array *res, const mlx_array x, const mlx_stream s)
{
    static const int zero, one = 1;
    steps c = {.stream = s};
    mlx_array y = x, start = mlx_array_new_data(&zero, &one, 1, MLX_INT32);
    bool point = mlx_array_ndim(x) == 0;
    *fresh(&c) = start;
    c.failed = !start.ctx;
    if (point)
        STEP(&c, y, mlx_reshape(to, x, &one, 1, s));
    STEP(&c, y,
         mlx_slice_dynamic(to, y, start, &zero, 1,
                           point ? &one : mlx_array_shape(x),
                           point ? 1 : mlx_array_ndim(x), s));
    if (point)
        STEP(&c, y, mlx_reshape(to, y, NULL, 0, s));
    return store(&c, res, y);
}

int quern_materialize_copy(mlx_array *res, const mlx_array x,
                           const mlx_stream s)
{
    return quern_materialize(res, x, s);
}

/* ---- ranges ----
 *
 * The numbers are computed here: libraries add up steps in the array's own
 * type, and stick where that has no more whole numbers.  What is kept is kept
 * by the thread: another library may not use an array of one thread's stream
 * in another. */

enum {
    MIN_COUNT = 65536,
    MOST_BYTES = 8 << 20,
    MOST_ENTRIES = MOST_BYTES / MIN_COUNT
};

typedef struct range {
    double start, step;
    int count;
    mlx_dtype dtype;
} range;

typedef struct entry {
    range key;
    mlx_array array;
} entry;

static _Thread_local struct {
    entry entries[MOST_ENTRIES]; /* the oldest first */
    int count;
    size_t bytes;
} kept;

static size_t bytes_of(const range *r)
{
    return (size_t)r->count * mlx_dtype_size(r->dtype);
}

static entry take_out(int i)
{
    entry e = kept.entries[i];
    kept.count--;
    memmove(&kept.entries[i], &kept.entries[i + 1],
            (size_t)(kept.count - i) * sizeof e);
    kept.bytes -= bytes_of(&e.key);
    return e;
}

static void put_last(entry e)
{
    kept.entries[kept.count++] = e;
    kept.bytes += bytes_of(&e.key);
}

static bool find(const range *r)
{
    for (int i = kept.count - 1; i >= 0; i--) {
        const range *k = &kept.entries[i].key;
        if (k->start == r->start && k->step == r->step &&
            k->count == r->count && k->dtype == r->dtype) {
            put_last(take_out(i));
            return true;
        }
    }
    return false;
}

int quern_arange_cache_clear(void)
{
    while (kept.count)
        mlx_array_free(take_out(0).array);
    return 0;
}

/* The float that rounds to a half type as x itself does: rounded to odd. */
static float odd(double x)
{
    float near = (float)x;
    if ((double)near == x)
        return near;
    uint32_t bits = qn_float_bits(near);
    bits -= fabs((double)near) > fabs(x); /* toward zero */
    return qn_bits_float(bits | 1);
}

/* Element i of a range in its own type; false for one of another kind. */
static bool put_number(void *out, const range *r, size_t i)
{
    double exact = r->start + (double)i * r->step;
    uint64_t whole =
        (uint64_t)(int64_t)r->start + (uint64_t)i * (uint64_t)(int64_t)r->step;
    switch (r->dtype) {
    case MLX_FLOAT64:
        ((double *)out)[i] = exact;
        return true;
    case MLX_FLOAT32:
        ((float *)out)[i] = (float)exact;
        return true;
    case MLX_FLOAT16:
        ((uint16_t *)out)[i] = qn_f32_to_f16(odd(exact));
        return true;
    case MLX_BFLOAT16:
        ((uint16_t *)out)[i] = qn_f32_to_bf16(odd(exact));
        return true;
    case MLX_UINT8:
    case MLX_INT8:
        ((uint8_t *)out)[i] = (uint8_t)whole;
        return true;
    case MLX_UINT16:
    case MLX_INT16:
        ((uint16_t *)out)[i] = (uint16_t)whole;
        return true;
    case MLX_UINT32:
    case MLX_INT32:
        ((uint32_t *)out)[i] = (uint32_t)whole;
        return true;
    case MLX_UINT64:
    case MLX_INT64:
        ((uint64_t *)out)[i] = whole;
        return true;
    default:
        return false;
    }
}

static int refuse(const char *why, double start, double stop, double step)
{
    _mlx_error(__FILE__, __LINE__, "[arange] %s, found (%.17g, %.17g, %.17g)",
               why, start, stop, step);
    return 1;
}

static int make(mlx_array *out, const range *r)
{
    void *data = malloc(bytes_of(r) + 1);
    bool made = data;
    for (size_t i = 0; made && i < (size_t)r->count; i++)
        made = put_number(data, r, i);
    int failed = !made || mlx_array_set_data(out, data, &r->count, 1, r->dtype);
    free(data);
    return failed;
}

int quern_arange(mlx_array *res, double start, double stop, double step,
                 mlx_dtype dtype, const mlx_stream s)
{
    (void)s;
    if (!isfinite(start) || !isfinite(stop) || !isfinite(step))
        return refuse("finite numbers are expected", start, stop, step);
    if (start != trunc(start) || step != trunc(step) || step == 0)
        return refuse("a whole start and a whole step that is not 0 are "
                      "expected",
                      start, stop, step);
    if (dtype == MLX_BOOL || dtype == MLX_COMPLEX64)
        return refuse("a type of real numbers is expected, not bool", start,
                      stop, step);
    double count = ceil((stop - start) / step);
    if (count > INT_MAX) {
        _mlx_error(__FILE__, __LINE__,
                   "[arange] at most %d elements, found %.0f", INT_MAX, count);
        return 1;
    }
    range r = {start, step, count > 0 ? (int)count : 0, dtype};
    bool cached = r.count >= MIN_COUNT && bytes_of(&r) <= MOST_BYTES;
    if (cached && find(&r))
        return mlx_array_set(res, kept.entries[kept.count - 1].array);
    mlx_array array = mlx_array_new();
    int failed = make(&array, &r) || mlx_array_set(res, array);
    if (failed || !cached) {
        mlx_array_free(array);
        return failed;
    }
    while (kept.bytes + bytes_of(&r) > MOST_BYTES)
        mlx_array_free(take_out(0).array);
    put_last((entry){r, array});
    return 0;
}

/* ---- rows of packed products ---- */

/* [1, ...x] */
static mlx_array lifted(steps *c, mlx_array x)
{
    mlx_array y;
    STEP(c, y, mlx_expand_dims(to, x, 0, c->stream));
    return y;
}

static int refuse_rows(const char *why, const char *found)
{
    _mlx_error(__FILE__, __LINE__, "[quantized_matmul_rows] %s, found %s", why,
               found);
    return 1;
}

static int check_rows(mlx_array w, mlx_array scales, mlx_array biases,
                      const char *mode)
{
    if (!mode || strcmp(mode, "affine"))
        return refuse_rows("several rows need mode affine", mode ? mode : "");
    if (mlx_array_ndim(w) != 2)
        return refuse_rows("w of rank 2 is expected", "another");
    if (mlx_array_ndim(scales) != 2)
        return refuse_rows("scales of rank 2 are expected", "another");
    if (!biases.ctx || mlx_array_ndim(biases) != 2)
        return refuse_rows("biases of rank 2 are expected", "another");
    return 0;
}

/* Several rows are a batch of one-row products that share the weights. */
int quern_quantized_matmul_rows(mlx_array *res, const mlx_array x,
                                const mlx_array w, const mlx_array scales,
                                const mlx_array biases, int group_size,
                                int bits, const char *mode, const mlx_stream s)
{
    mlx_optional_int group = {group_size, true}, width = {bits, true};
    size_t ndim = mlx_array_ndim(x), size = mlx_array_size(x);
    if (!ndim || ndim > 32)
        return refuse_rows("x with an axis is expected", "rank 0");
    int k = mlx_array_dim(x, -1), shape[32];
    if (size == (size_t)k)
        return mlx_quantized_matmul(res, x, w, scales, biases, true, group,
                                    width, mode, s);
    if (check_rows(w, scales, biases, mode))
        return 1;
    int n = mlx_array_dim(w, 0), rows = k ? (int)(size / (size_t)k) : 0;
    memcpy(shape, mlx_array_shape(x), ndim * sizeof *shape);
    shape[ndim - 1] = n;
    steps c = {.stream = s};
    mlx_array flat, y;
    if (rows) {
        STEP(&c, flat, mlx_reshape(to, x, (int[]){rows, 1, k}, 3, s));
        mlx_array matrix = lifted(&c, w), scale = lifted(&c, scales);
        mlx_array shift = lifted(&c, biases);
        STEP(&c, y,
             mlx_quantized_matmul(to, flat, matrix, scale, shift, true, group,
                                  width, mode, s));
        STEP(&c, y, mlx_reshape(to, y, shape, ndim, s));
    } else {
        STEP(&c, y, mlx_zeros(to, shape, ndim, mlx_array_dtype(x), s));
    }
    return store(&c, res, y);
}
