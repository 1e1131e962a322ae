/* full.c: the plain kind: K and V of every token, in one array each.
 *
 * The arrays are [1, kv_heads, capacity, head_dim] and grow by whole steps,
 * so that most tokens are written in place.  What lies behind the sequence's
 * end is rubbish that later tokens overwrite. */
#include "base/alloc.h"
#include "engine.h"
#include "kinds.h"

/* The attention kernel sums over groups of so many keys, counted from the first
 * that it is given.  Slices begin at multiples, so that the groups, and with
 * them a row's bits, don't depend on where a step began. */
enum { GROUP = 128 };

typedef struct full_part {
    qn_kv_part part;
    qn_kv_shape shape;
    int capacity;
    mlx_array keys, values; /* no arrays while capacity is 0 */
} full_part;

static void full_reset(qn_kv_part *part)
{
    full_part *full = (full_part *)part;
    if (full->keys.ctx)
        mlx_array_free(full->keys);
    if (full->values.ctx)
        mlx_array_free(full->values);
    full->keys = full->values = (mlx_array){NULL};
    full->capacity = 0;
}

static void full_free(qn_kv_part *part)
{
    full_reset(part);
    qn_free(part);
}

static bool full_trim(qn_kv_part *part, int offset, int length)
{
    /* The cache's length alone says what counts. */
    (void)part;
    (void)offset;
    (void)length;
    return true;
}

static qn_status full_arrays(const qn_kv_part *part, mlx_vector_array out)
{
    const full_part *full = (const full_part *)part;
    if (!full->capacity)
        return QN_OK;
    qn_status status =
        qn_engine(mlx_vector_array_append_value(out, full->keys));
    if (!status)
        status = qn_engine(mlx_vector_array_append_value(out, full->values));
    return status;
}

/* res = x[:, :, begin:end]. */
static int take_range(mlx_array *res, mlx_array x, int begin, int end,
                      const qn_kv_shape *shape, mlx_stream s)
{
    return mlx_slice(res, x, (int[]){0, 0, begin, 0}, 4,
                     (int[]){1, shape->kv_heads, end, shape->head_dim}, 4,
                     (int[]){1, 1, 1, 1}, 4, s);
}

/* x[:, :, begin:end] = update, where the handle `x` is the only one. */
static int put_range(mlx_array *x, mlx_array update, int begin, int end,
                     const qn_kv_shape *shape, mlx_stream s)
{
    return mlx_slice_update(x, *x, update, (int[]){0, 0, begin, 0}, 4,
                            (int[]){1, shape->kv_heads, end, shape->head_dim},
                            4, (int[]){1, 1, 1, 1}, 4, s);
}

/* Replaces `x` by a longer array that begins with the `length` entries. */
static qn_status grow_one(mlx_array *x, int length, int capacity,
                          const qn_kv_shape *shape, mlx_stream s)
{
    mlx_array wide = mlx_array_new(), old = mlx_array_new();
    qn_status status = qn_engine(
        mlx_zeros(&wide, (int[]){1, shape->kv_heads, capacity, shape->head_dim},
                  4, shape->dtype, s));
    if (!status && length) {
        status = qn_engine(take_range(&old, *x, 0, length, shape, s));
        if (!status)
            status = qn_engine(put_range(&wide, old, 0, length, shape, s));
    }
    mlx_array_free(old);
    if (status) {
        mlx_array_free(wide);
        return status;
    }
    mlx_array_free(*x);
    *x = wide;
    return QN_OK;
}

static qn_status grow(full_part *full, int offset, int need, mlx_stream s)
{
    const qn_kv_shape *shape = &full->shape;
    int capacity = need > shape->limit - shape->step
                       ? shape->limit
                       : (need + shape->step - 1) / shape->step * shape->step;
    qn_status status = grow_one(&full->keys, offset, capacity, shape, s);
    if (!status)
        status = grow_one(&full->values, offset, capacity, shape, s);
    if (!status)
        full->capacity = capacity;
    return status;
}

static qn_status full_attend(qn_kv_part *part, mlx_array *out, int offset,
                             mlx_array q, mlx_array k, mlx_array v,
                             const qn_attention *how, qn_kv_mask *mask,
                             mlx_stream s)
{
    full_part *full = (full_part *)part;
    const qn_kv_shape *shape = &full->shape;
    int count = mlx_array_dim(k, 2), end = offset + count;
    if (count > shape->limit - offset)
        return qn_fail(QN_E_INTERNAL, "KV cache: %d tokens, room for %d", end,
                       shape->limit);
    qn_status status = QN_OK;
    if (end > full->capacity)
        status = grow(full, offset, end, s);
    if (!status)
        status = qn_engine(put_range(&full->keys, k, offset, end, shape, s));
    if (!status)
        status = qn_engine(put_range(&full->values, v, offset, end, shape, s));

    /* Groups of keys that no query of this step sees are left out. */
    int first = 0;
    const char *mode = count > 1 ? "causal" : "";
    mlx_array mask_array = {NULL};
    if (how->window && end > how->window) {
        first = offset - how->window + 1;
        first = first < 0 ? 0 : first / GROUP * GROUP;
        if (!status)
            status = qn_kv_window_mask(mask, offset, count, first, how->window);
        mode = "array";
        mask_array = mask->array;
    }
    mlx_array keys = mlx_array_new(), values = mlx_array_new();
    if (!status)
        status = qn_engine(take_range(&keys, full->keys, first, end, shape, s));
    if (!status)
        status =
            qn_engine(take_range(&values, full->values, first, end, shape, s));
    if (!status)
        status = qn_engine(mlx_fast_scaled_dot_product_attention(
            out, q, keys, values, how->scale, mode, mask_array,
            (mlx_array){NULL}, false, s));
    mlx_array_free(keys);
    mlx_array_free(values);
    return status;
}

static const qn_kv_kind full_kind = {
    .name = "full",
    .attend = full_attend,
    .trim = full_trim,
    .reset = full_reset,
    .arrays = full_arrays,
    .free = full_free,
};

qn_kv_part *qn_kv_full_new(const qn_kv_shape *shape)
{
    full_part *full = qn_calloc(1, sizeof *full);
    if (!full)
        return NULL;
    full->part.kind = &full_kind;
    full->shape = *shape;
    return &full->part;
}
