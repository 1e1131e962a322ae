/* kv.c: attention over caches, made of mlx_* calls, for another library.
 *
 * The arrays of a cache are the planes of quern_kv_read, [kv_heads, capacity,
 * n].  A slice of axis 1 is updated, in place where the library does so, and
 * what is then there is attended to; codes are expanded first. */
#include "steps.h"

#include "base/turboquant.h"

#include <quern/ext.h>

#include <limits.h>
#include <math.h>
#include <stdlib.h>

enum { BLOCK = 128, PARTS = 6, TURBO_PARTS = 5, TURBO_GROUP = 32 };

/* ---- what is taken ---- */

static bool is_packable(const quern_kv_form *f)
{
    if (f->key_bits || f->value_bits)
        return qn_tq_has_key_bits(f->key_bits) &&
               qn_tq_has_value_bits(f->value_bits) &&
               qn_tq_has_dim(f->head_dim);
    return !f->bits || ((f->bits == 4 || f->bits == 8) &&
                        (f->group_size == 32 || f->group_size == 64) &&
                        f->head_dim % f->group_size == 0);
}

/* False after a report. */
static bool is_form(const quern_kv_form *f)
{
    bool floats = f->key_bits || f->dtype == MLX_FLOAT32 ||
                  f->dtype == MLX_FLOAT16 || f->dtype == MLX_BFLOAT16;
    if (f->kv_heads > 0 && f->head_dim > 0 && floats && is_packable(f))
        return true;
    _mlx_error(__FILE__, __LINE__,
               "[kv] No such cache: %d heads of %d, dtype number %d, %d bits "
               "in groups of %d, key_bits %d, value_bits %d",
               f->kv_heads, f->head_dim, (int)f->dtype, f->bits, f->group_size,
               f->key_bits, f->value_bits);
    return false;
}

static size_t part_count(const quern_kv_form *form)
{
    return form->key_bits ? TURBO_PARTS : form->bits ? PARTS : 2;
}

/* The first array of values. */
static size_t value_part(const quern_kv_form *form)
{
    return form->key_bits || form->bits ? 3 : 1;
}

static bool is_cache(const quern_kv_form *form, mlx_vector_array list)
{
    if (!is_form(form))
        return false;
    if (list.ctx && mlx_vector_array_size(list) == part_count(form))
        return true;
    _mlx_error(__FILE__, __LINE__, "[kv] Expected a cache of %d arrays",
               (int)part_count(form));
    return false;
}

static void part_shape(const quern_kv_form *f, size_t i, int capacity,
                       int shape[3], mlx_dtype *dtype)
{
    shape[0] = f->kv_heads;
    shape[1] = capacity;
    shape[2] = f->head_dim;
    *dtype = f->dtype;
    if (f->key_bits) {
        int bits = i ? f->value_bits : f->key_bits;
        shape[2] = f->head_dim / (i % 3 ? TURBO_GROUP : 8) * (i % 3 ? 1 : bits);
        *dtype = i % 3 ? MLX_FLOAT16 : !i && bits == 8 ? MLX_INT8 : MLX_UINT8;
        return;
    }
    if (!f->bits)
        return;
    shape[2] = i % 3 ? f->head_dim / f->group_size : f->head_dim * f->bits / 32;
    *dtype = i % 3 ? f->dtype : MLX_UINT32;
}

/* to[:, begin:end] = from */
static mlx_array put(steps *c, mlx_array to_array, mlx_array from, int begin,
                     int end)
{
    mlx_array y;
    int start[3] = {0, begin, 0}, stop[3] = {0}, step[3] = {1, 1, 1};
    for (int i = 0; !c->failed && i < 3; i++)
        stop[i] = mlx_array_dim(to_array, i);
    stop[1] = end;
    STEP(c, y,
         mlx_slice_update(to, to_array, from, start, 3, stop, 3, step, 3,
                          c->stream));
    return y;
}

/* Whole blocks for `need` tokens; false after a report. */
static bool round_up(int *capacity, const char *what, int need)
{
    if (need < 0 || need > INT_MAX - BLOCK) {
        _mlx_error(__FILE__, __LINE__, "[%s] room for %d tokens", what, need);
        return false;
    }
    *capacity = (need + BLOCK - 1) / BLOCK * BLOCK;
    return true;
}

int quern_kv_room(mlx_vector_array *res, int *capacity,
                  const quern_kv_form *form, const mlx_vector_array old,
                  int need, const mlx_stream s)
{
    if (!is_form(form))
        return 1;
    int rounded;
    if (!round_up(&rounded, "kv_room", need))
        return 1;
    if (old.ctx && !is_cache(form, old))
        return 1;
    steps c = {.stream = s};
    if (old.ctx) {
        int before = mlx_array_dim(element(&c, old, 0), 1);
        rounded = before > rounded ? before : rounded;
    }
    mlx_vector_array made = mlx_vector_array_new();
    for (size_t i = 0; i < part_count(form) && !c.failed; i++) {
        int shape[3];
        mlx_dtype dtype;
        part_shape(form, i, rounded, shape, &dtype);
        mlx_array x;
        STEP(&c, x, mlx_zeros(to, shape, 3, dtype, s));
        if (old.ctx && !c.failed) {
            mlx_array before = element(&c, old, i);
            int end = c.failed ? 0 : mlx_array_dim(before, 1);
            x = put(&c, x, before, 0, end);
        }
        if (!c.failed)
            c.failed = mlx_vector_array_append_value(made, x) != 0;
    }
    if (!c.failed)
        c.failed = mlx_vector_array_set(res, made) != 0;
    if (!c.failed)
        *capacity = rounded;
    mlx_vector_array_free(made);
    finish(&c);
    return c.failed;
}

/* Tokens from .. from + count of x [heads, capacity, n] in `to_array` from
 * `at` on. */
static mlx_array move(steps *c, mlx_array to_array, mlx_array x, int from,
                      int count, int at)
{
    mlx_array part;
    int stop[3] = {0};
    if (count <= 0 || c->failed)
        return to_array;
    for (int i = 0; i < 3; i++)
        stop[i] = mlx_array_dim(x, i);
    stop[1] = from + count;
    STEP(c, part,
         mlx_slice(to, x, (int[]){0, from, 0}, 3, stop, 3, (int[]){1, 1, 1}, 3,
                   c->stream));
    return put(c, to_array, part, at, at + count);
}

int quern_kv_drop(mlx_vector_array *res, int *capacity,
                  const quern_kv_form *form, const mlx_vector_array old,
                  int first, int count, int need, const mlx_stream s)
{
    int rounded;
    if (!is_cache(form, old) || !round_up(&rounded, "kv_drop", need))
        return 1;
    steps c = {.stream = s};
    mlx_array one = element(&c, old, 0);
    int before =
        c.failed || mlx_array_ndim(one) != 3 ? 0 : mlx_array_dim(one, 1);
    if (!c.failed &&
        (first < 0 || count < 0 || first > before || count > before - first ||
         first % BLOCK || count % BLOCK || rounded < first)) {
        _mlx_error(__FILE__, __LINE__,
                   "[kv_drop] %d tokens from %d on of a cache for %d, room for "
                   "%d",
                   count, first, before, rounded);
        c.failed = true;
    }
    int left = before - first - count;
    left = left < rounded - first ? left : rounded - first;
    mlx_vector_array made = mlx_vector_array_new();
    for (size_t i = 0; i < part_count(form) && !c.failed; i++) {
        int shape[3];
        mlx_dtype dtype;
        part_shape(form, i, rounded, shape, &dtype);
        mlx_array x, from = element(&c, old, i);
        STEP(&c, x, mlx_zeros(to, shape, 3, dtype, s));
        x = move(&c, x, from, 0, first, 0);
        x = move(&c, x, from, first + count, left, first);
        if (!c.failed)
            c.failed = mlx_vector_array_append_value(made, x) != 0;
    }
    if (!c.failed)
        c.failed = mlx_vector_array_set(res, made) != 0;
    if (!c.failed)
        *capacity = rounded;
    mlx_vector_array_free(made);
    finish(&c);
    return c.failed;
}

/* ---- reading and writing ---- */

/* The first `count` tokens of x [kv_heads, capacity, n] as a plane. */
static mlx_array read_plane(steps *c, mlx_array x, int count)
{
    mlx_array part, y;
    int heads = c->failed ? 0 : mlx_array_dim(x, 0);
    int n = c->failed ? 0 : mlx_array_dim(x, 2);
    STEP(c, part,
         mlx_slice(to, x, (int[]){0, 0, 0}, 3, (int[]){heads, count, n}, 3,
                   (int[]){1, 1, 1}, 3, c->stream));
    STEP(c, y,
         mlx_reshape(to, part, (int[]){1, heads, count, n}, 4, c->stream));
    return y;
}

int quern_kv_read(mlx_vector_array *res, const quern_kv_form *form,
                  const mlx_vector_array cache, int count, const mlx_stream s)
{
    if (!is_cache(form, cache))
        return 1;
    steps c = {.stream = s};
    mlx_vector_array made = mlx_vector_array_new();
    for (size_t i = 0; i < part_count(form) && !c.failed; i++) {
        mlx_array x = element(&c, cache, i);
        if (!c.failed && (count < 0 || count > mlx_array_dim(x, 1))) {
            _mlx_error(__FILE__, __LINE__,
                       "[kv_read] %d tokens of a cache for %d", count,
                       mlx_array_dim(x, 1));
            c.failed = true;
        }
        x = read_plane(&c, x, count);
        if (!c.failed)
            c.failed = mlx_vector_array_append_value(made, x) != 0;
    }
    if (!c.failed)
        c.failed = mlx_vector_array_set(res, made) != 0;
    mlx_vector_array_free(made);
    finish(&c);
    return c.failed;
}

/* Whether x is plane `i` of `count` tokens. */
static bool is_plane(const quern_kv_form *form, mlx_array x, size_t i,
                     int count)
{
    int shape[3];
    mlx_dtype dtype;
    part_shape(form, i, count, shape, &dtype);
    bool fits = mlx_array_ndim(x) == 4 && mlx_array_dtype(x) == dtype &&
                mlx_array_dim(x, 0) == 1;
    for (int axis = 0; fits && axis < 3; axis++)
        fits = mlx_array_dim(x, axis + 1) == shape[axis];
    if (!fits)
        _mlx_error(__FILE__, __LINE__,
                   "[kv_write] Plane %d does not fit %d heads of %d", (int)i,
                   form->kv_heads, form->head_dim);
    return fits;
}

int quern_kv_write(mlx_vector_array *res, int *capacity,
                   const quern_kv_form *form, const mlx_vector_array planes,
                   const mlx_stream s)
{
    if (!is_cache(form, planes))
        return 1;
    steps c = {.stream = s};
    mlx_array first = element(&c, planes, 0);
    int count =
        c.failed || mlx_array_ndim(first) != 4 ? 0 : mlx_array_dim(first, 2);
    mlx_vector_array none = {NULL}, room = mlx_vector_array_new(),
                     made = mlx_vector_array_new();
    if (!c.failed)
        c.failed = quern_kv_room(&room, capacity, form, none, count, s) != 0;
    for (size_t i = 0; i < part_count(form) && !c.failed; i++) {
        mlx_array x = element(&c, planes, i), rows, to_array;
        c.failed = c.failed || !is_plane(form, x, i, count);
        if (c.failed)
            break;
        STEP(&c, rows, mlx_reshape(to, x, mlx_array_shape(x) + 1, 3, s));
        to_array = element(&c, room, i);
        to_array = put(&c, to_array, rows, 0, count);
        if (!c.failed)
            c.failed = mlx_vector_array_append_value(made, to_array) != 0;
    }
    if (!c.failed)
        c.failed = mlx_vector_array_set(res, made) != 0;
    mlx_vector_array_free(room);
    mlx_vector_array_free(made);
    finish(&c);
    return c.failed;
}

/* ---- attention ---- */

/* Rows first .. first + count of x [..., R, heads * dim] as [1, heads, count,
 * dim]. */
static mlx_array heads_of(steps *c, mlx_array x, int first, int count,
                          int heads, int dim)
{
    mlx_array flat, rows, split, y;
    int stop[2] = {first + count, heads * dim};
    STEP(c, flat, mlx_reshape(to, x, (int[]){-1, heads * dim}, 2, c->stream));
    STEP(c, rows,
         mlx_slice(to, flat, (int[]){first, 0}, 2, stop, 2, (int[]){1, 1}, 2,
                   c->stream));
    STEP(c, split,
         mlx_reshape(to, rows, (int[]){1, count, heads, dim}, 4, c->stream));
    STEP(c, y,
         mlx_transpose_axes(to, split, (int[]){0, 2, 1, 3}, 4, c->stream));
    return y;
}

static mlx_array turn(steps *c, mlx_array x, int offset,
                      const quern_kv_options *o)
{
    if (!o->rope_dims)
        return x;
    mlx_optional_float base = {o->rope_base, !o->rope_freqs.ctx};
    mlx_array y;
    STEP(c, y,
         mlx_fast_rope(to, x, o->rope_dims, o->rope_traditional, base,
                       o->rope_scale, offset, o->rope_freqs, c->stream));
    return y;
}

/* [1, heads, count, dim] -> [heads, count, dim] */
static mlx_array squeeze(steps *c, mlx_array x, const quern_kv_form *f,
                         int count)
{
    mlx_array y;
    STEP(c, y,
         mlx_reshape(to, x, (int[]){f->kv_heads, count, f->head_dim}, 3,
                     c->stream));
    return y;
}

/* Stores x [1, kv_heads, count, dim] in arrays[0 ..] and replaces those. */
static void store(steps *c, mlx_array *arrays, mlx_array x,
                  const quern_kv_form *f, const quern_kv_step *step)
{
    int begin = step->offset, end = begin + step->count;
    x = squeeze(c, x, f, step->count);
    if (!f->bits) {
        arrays[0] = put(c, arrays[0], cast(c, x, f->dtype), begin, end);
        return;
    }
    mlx_vector_array codes = mlx_vector_array_new();
    mlx_optional_int group = {f->group_size, true}, bits = {f->bits, true};
    mlx_array wide = cast(c, x, MLX_FLOAT32);
    if (!c->failed)
        c->failed = mlx_quantize(&codes, wide, group, bits, "affine",
                                 mlx_array_empty, c->stream) != 0;
    for (size_t i = 0; i < 3; i++) {
        mlx_array part = element(c, codes, i);
        if (i)
            part = cast(c, part, f->dtype);
        arrays[i] = put(c, arrays[i], part, begin, end);
    }
    mlx_vector_array_free(codes);
}

/* The same of a turbo cache, from keys and values. */
static void store_turbo(steps *c, mlx_array *arrays, mlx_array k, mlx_array v,
                        const quern_kv_form *f, const quern_kv_step *step)
{
    mlx_vector_array planes = mlx_vector_array_new();
    if (!c->failed)
        c->failed = quern_tq_encode(&planes, k, v, f->key_bits, f->value_bits,
                                    true, c->stream) != 0;
    for (size_t i = 0; i < TURBO_PARTS; i++) {
        mlx_array x = element(c, planes, i), rows;
        const int *shape = c->failed ? NULL : mlx_array_shape(x);
        STEP(c, rows, mlx_reshape(to, x, shape + 1, 3, c->stream));
        arrays[i] =
            put(c, arrays[i], rows, step->offset, step->offset + step->count);
    }
    mlx_vector_array_free(planes);
}

/* The first `end` tokens of the codes in array 0 or 3, as floats: [1,
 * kv_heads, end, dim], values rotated. */
static mlx_array stored_turbo(steps *c, const mlx_array *arrays,
                              const quern_kv_form *f, size_t first, int end)
{
    int bits = first ? f->value_bits : f->key_bits;
    mlx_array part[3] = {{NULL}}, codes, y;
    for (size_t i = 0; i < (first ? 2 : 3); i++)
        part[i] = read_plane(c, arrays[first + i], end);
    STEP(c, codes, quern_tq_unpack(to, part[0], bits, f->head_dim, c->stream));
    if (first)
        STEP(c, y,
             quern_tq_decode_values(to, codes, part[1], bits, true, c->stream));
    else
        STEP(c, y,
             quern_tq_decode_keys(to, codes, part[1], part[2], c->stream));
    return cast(c, y, MLX_FLOAT32);
}

/* The first `end` tokens as [1, kv_heads, end, dim]. */
static mlx_array stored(steps *c, const mlx_array *arrays,
                        const quern_kv_form *f, size_t first, int end)
{
    mlx_array part[3] = {{NULL}}, x, y;
    if (f->key_bits)
        return stored_turbo(c, arrays, f, first, end);
    arrays += first;
    size_t count = f->bits ? 3 : 1;
    for (size_t i = 0; i < count; i++) {
        int stop[3];
        mlx_dtype dtype;
        part_shape(f, i, end, stop, &dtype);
        STEP(c, part[i],
             mlx_slice(to, arrays[i], (int[]){0, 0, 0}, 3, stop, 3,
                       (int[]){1, 1, 1}, 3, c->stream));
        if (i)
            part[i] = cast(c, part[i], MLX_FLOAT32);
    }
    x = part[0];
    if (f->bits) {
        mlx_optional_int group = {f->group_size, true}, bits = {f->bits, true};
        mlx_optional_dtype type = {MLX_FLOAT32, true};
        STEP(c, x,
             mlx_dequantize(to, part[0], part[1], part[2], group, bits,
                            "affine", mlx_array_empty, type, c->stream));
    }
    STEP(c, y,
         mlx_reshape(to, x, (int[]){1, f->kv_heads, end, f->head_dim}, 4,
                     c->stream));
    return y;
}

/* What a window leaves of [count, end]. */
static mlx_array window_mask(steps *c, int offset, int count, int window,
                             int keep)
{
    int end = offset + count;
    bool *seen = malloc((size_t)count * (size_t)end);
    mlx_array *slot = fresh(c);
    if (!seen) {
        _mlx_error(__FILE__, __LINE__, "[kv_attention] out of memory");
        c->failed = true;
        return *slot;
    }
    for (int i = 0; i < count; i++)
        for (int j = 0; j < end; j++)
            seen[(size_t)i * (size_t)end + (size_t)j] =
                j <= offset + i && (j > offset + i - window || j < keep);
    *slot = mlx_array_new_data(seen, (int[]){count, end}, 2, MLX_BOOL);
    c->failed |= !slot->ctx;
    free(seen);
    return *slot;
}

static mlx_array number(steps *c, float value)
{
    mlx_array *slot = fresh(c);
    *slot = mlx_array_new_float(value);
    c->failed |= !slot->ctx;
    return *slot;
}

/* x times a matrix of each head of keys, rows shared by its group. */
static mlx_array by_heads(steps *c, mlx_array x, mlx_array heads, bool turned,
                          const quern_kv_form *f)
{
    mlx_array y;
    STEP(c, y,
         mlx_reshape(to, heads, (int[]){f->kv_heads, 1, -1, f->head_dim}, 4,
                     c->stream));
    if (turned)
        STEP(c, y, mlx_swapaxes(to, y, 2, 3, c->stream));
    STEP(c, y, mlx_matmul(to, x, y, c->stream));
    return y;
}

/* Softmax of scores [kv_heads, group, count, keys], with a logit more for each
 * head where there are sinks. */
static mlx_array weights(steps *c, mlx_array s, mlx_array sinks, int kv,
                         int group, int count)
{
    mlx_array y, pair[2];
    if (!sinks.ctx) {
        STEP(c, y, mlx_softmax_axis(to, s, -1, true, c->stream));
        return y;
    }
    int keys = c->failed ? 0 : mlx_array_dim(s, 3);
    pair[0] = s;
    STEP(c, y, mlx_reshape(to, sinks, (int[]){kv, group, 1, 1}, 4, c->stream));
    STEP(c, pair[1],
         mlx_broadcast_to(to, y, (int[]){kv, group, count, 1}, 4, c->stream));
    mlx_vector_array list = mlx_vector_array_new();
    c->failed = c->failed || mlx_vector_array_append_data(list, pair, 2) != 0;
    STEP(c, y, mlx_concatenate_axis(to, list, 3, c->stream));
    mlx_vector_array_free(list);
    STEP(c, y, mlx_softmax_axis(to, y, -1, true, c->stream));
    STEP(c, y,
         mlx_slice(to, y, (int[]){0, 0, 0, 0}, 4,
                   (int[]){kv, group, count, keys}, 4, (int[]){1, 1, 1, 1}, 4,
                   c->stream));
    return y;
}

/* softmax(cap * tanh(scale q k^T / cap)) v of q [1, heads, count, dim], with
 * scores only where the mask is true. */
static mlx_array capped(steps *c, mlx_array q, mlx_array keys, mlx_array values,
                        mlx_array mask, mlx_array sinks, const quern_kv_form *f,
                        const quern_kv_options *o, int count)
{
    int kv = f->kv_heads, group = o->heads / kv, d = f->head_dim;
    mlx_array s, y, hidden = number(c, -INFINITY), cap = number(c, o->cap);
    mlx_array down = number(c, o->scale / o->cap);
    STEP(c, s, mlx_reshape(to, q, (int[]){kv, group, count, d}, 4, c->stream));
    s = by_heads(c, s, keys, true, f);
    STEP(c, s, mlx_multiply(to, s, down, c->stream));
    STEP(c, s, mlx_tanh(to, s, c->stream));
    STEP(c, s, mlx_multiply(to, s, cap, c->stream));
    STEP(c, s, mlx_where(to, mask, s, hidden, c->stream));
    s = weights(c, s, sinks, kv, group, count);
    s = by_heads(c, s, values, false, f);
    STEP(c, y,
         mlx_reshape(to, s, (int[]){1, o->heads, count, d}, 4, c->stream));
    return y;
}

/* The rows of one sequence, [count, heads * dim]. */
static mlx_array attend(steps *c, mlx_array q, const mlx_array *arrays,
                        const quern_kv_form *f, const quern_kv_step *step,
                        const quern_kv_options *o, mlx_dtype dtype)
{
    int end = step->offset + step->count;
    mlx_array keys = stored(c, arrays, f, 0, end);
    mlx_array values = stored(c, arrays, f, value_part(f), end);
    mlx_array mask = mlx_array_empty, sinks = o->sinks, y, turned, rows;
    mlx_array wide = cast(c, q, MLX_FLOAT32);
    bool narrow = o->cap > 0 || (o->window && end > o->window);
    if (narrow && !c->failed)
        mask = window_mask(c, step->offset, step->count,
                           o->window ? o->window : end, o->keep);
    if (sinks.ctx)
        sinks = cast(c, sinks, MLX_FLOAT32);
    if (o->cap > 0)
        y = capped(c, wide, keys, values, mask, sinks, f, o, step->count);
    else
        STEP(c, y,
             mlx_fast_scaled_dot_product_attention(
                 to, wide, keys, values, o->scale, narrow ? "array" : "causal",
                 mask, sinks, false, c->stream));
    if (f->key_bits)
        STEP(c, y, quern_tq_unrotate(to, y, c->stream));
    STEP(c, turned,
         mlx_transpose_axes(to, y, (int[]){0, 2, 1, 3}, 4, c->stream));
    STEP(c, rows,
         mlx_reshape(to, turned, (int[]){step->count, o->heads * f->head_dim},
                     2, c->stream));
    return cast(c, rows, dtype);
}

/* Whether each array has room for the rows; false after a report. */
static bool fits(const steps *c, const mlx_array *arrays, size_t parts,
                 const quern_kv_step *step)
{
    for (size_t i = 0; !c->failed && i < parts; i++) {
        int room =
            mlx_array_ndim(arrays[i]) == 3 ? mlx_array_dim(arrays[i], 1) : 0;
        if (step->offset >= 0 && step->count > 0 && step->offset <= room &&
            step->count <= room - step->offset)
            continue;
        _mlx_error(__FILE__, __LINE__,
                   "[kv_attention] %d tokens behind %d do not fit a cache of "
                   "%d",
                   step->count, step->offset, room);
        return false;
    }
    return !c->failed;
}

/* One sequence: its rows are appended to `out`, its cache to `caches`. */
static bool run_step(mlx_vector_array out, mlx_vector_array caches,
                     const mlx_array qkv[3], int first, const quern_kv_form *f,
                     const quern_kv_step *step, const quern_kv_options *o,
                     mlx_stream s)
{
    steps c = {.stream = s};
    mlx_array arrays[PARTS], x[3];
    size_t parts = part_count(f);
    if (!is_cache(f, step->cache))
        return false;
    for (size_t i = 0; i < parts; i++)
        arrays[i] = element(&c, step->cache, i);
    if (!fits(&c, arrays, parts, step)) {
        finish(&c);
        return false;
    }
    for (int i = 0; i < (qkv[1].ctx ? 3 : 1); i++)
        x[i] = heads_of(&c, qkv[i], first, step->count,
                        i ? f->kv_heads : o->heads, f->head_dim);
    int position = step->offset + step->skipped;
    mlx_array q = turn(&c, x[0], position, o);
    if (qkv[1].ctx) {
        mlx_array k = turn(&c, x[1], position, o);
        if (f->key_bits) {
            store_turbo(&c, arrays, k, x[2], f, step);
        } else {
            store(&c, arrays, k, f, step);
            store(&c, arrays + value_part(f), x[2], f, step);
        }
    }
    mlx_array y = attend(&c, q, arrays, f, step, o,
                         c.failed ? f->dtype : mlx_array_dtype(qkv[0]));
    if (!c.failed)
        c.failed = mlx_vector_array_append_value(out, y) != 0;
    for (size_t i = 0; i < parts && !c.failed; i++)
        c.failed = mlx_vector_array_append_value(caches, arrays[i]) != 0;
    finish(&c);
    return !c.failed;
}

/* The rows of all sequences in the shape of q. */
static bool join(mlx_array *res, mlx_vector_array rows, mlx_array q,
                 mlx_stream s)
{
    steps c = {.stream = s};
    mlx_array all, y;
    STEP(&c, all, mlx_concatenate_axis(to, rows, 0, s));
    STEP(&c, y, mlx_reshape(to, all, mlx_array_shape(q), mlx_array_ndim(q), s));
    if (!c.failed)
        c.failed = mlx_array_set(res, y) != 0;
    finish(&c);
    return !c.failed;
}

/* Gives the sequences their new caches. */
static bool replace(const quern_kv_step *list, size_t count,
                    mlx_vector_array caches, size_t parts)
{
    for (size_t i = 0; i < count; i++) {
        steps c = {.failed = false};
        mlx_array arrays[PARTS];
        for (size_t j = 0; j < parts; j++)
            arrays[j] = element(&c, caches, i * parts + j);
        mlx_vector_array handle = list[i].cache;
        if (!c.failed)
            c.failed = mlx_vector_array_set_data(&handle, arrays, parts) != 0;
        finish(&c);
        if (c.failed)
            return false;
    }
    return true;
}

int quern_kv_attention(mlx_array *res, const mlx_array q, const mlx_array k,
                       const mlx_array v, const quern_kv_form *form,
                       const quern_kv_step *list, size_t count,
                       const quern_kv_options *options, const mlx_stream s)
{
    const mlx_array qkv[3] = {q, k, v};
    if (!is_form(form))
        return 1;
    if (options->heads < 1 || options->heads % form->kv_heads ||
        options->heads > INT_MAX / form->head_dim) {
        _mlx_error(__FILE__, __LINE__,
                   "[kv_attention] %d heads of queries for %d of keys",
                   options->heads, form->kv_heads);
        return 1;
    }
    mlx_vector_array rows = mlx_vector_array_new();
    mlx_vector_array caches = mlx_vector_array_new();
    bool good = true;
    int first = 0;
    for (size_t i = 0; i < count && good; i++) {
        good = run_step(rows, caches, qkv, first, form, &list[i], options, s);
        first += list[i].count;
    }
    if (good)
        good = join(res, rows, q, s);
    mlx_vector_array_free(rows);
    if (good)
        good = replace(list, count, caches, part_count(form));
    mlx_vector_array_free(caches);
    return !good;
}
