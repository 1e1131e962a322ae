/* tokens.c: masks of tokens and the choice of one, made of mlx_* calls, for
 * another library. */
#include "steps.h"

#include <quern/ext.h>

#include <limits.h>
#include <math.h>
#include <stdlib.h>

/* 0 where a token's bit is 1 (or the mask is missing), -inf where it is 0. */
static void fill_shifts(float *out, size_t tokens, const int32_t *words,
                        size_t count)
{
    for (size_t t = 0; t < tokens; t++) {
        uint32_t word = words && t / 32 < count ? (uint32_t)words[t / 32] : 0;
        out[t] = !words || word >> t % 32 & 1 ? 0.0F : -INFINITY;
    }
}

static int refuse(const char *what, size_t found)
{
    _mlx_error(__FILE__, __LINE__, "[apply_token_bitmask] %s, found %zu", what,
               found);
    return 1;
}

static bool is_small_float(mlx_dtype dtype)
{
    return dtype == MLX_FLOAT32 || dtype == MLX_FLOAT16 ||
           dtype == MLX_BFLOAT16;
}

/* The shifts of all masks as an array that broadcasts to logits: the masks'
 * axis is the first one, or stands for all leading axes. */
static mlx_array shifts_of(steps *c, mlx_array logits,
                           const int32_t *const *words, size_t masks,
                           size_t words_per_row)
{
    size_t ndim = mlx_array_ndim(logits);
    const int *like = mlx_array_shape(logits);
    int shape[32], tokens = like[ndim - 1];
    size_t rows = mlx_array_size(logits) / (size_t)tokens;
    mlx_array *slot = fresh(c);
    float *data = malloc(masks * (size_t)tokens * sizeof *data);
    if (!data || ndim > 32) {
        c->failed = refuse("more than fits", masks);
        free(data);
        return *slot;
    }
    for (size_t m = 0; m < masks; m++)
        fill_shifts(data + m * (size_t)tokens, (size_t)tokens, words[m],
                    words_per_row);
    for (size_t i = 0; i < ndim; i++)
        shape[i] = masks == rows || i == ndim - 1 ? like[i] : 1;
    if (masks != rows && ndim > 1)
        shape[0] = (int)masks;
    *slot = mlx_array_new_data(data, shape, (int)ndim, MLX_FLOAT32);
    c->failed |= !slot->ctx;
    free(data);
    return cast(c, *slot, mlx_array_dtype(logits));
}

int quern_apply_token_bitmask_rows(mlx_array *res, const mlx_array logits,
                                   const int32_t *const *words, size_t n_rows,
                                   size_t words_per_row, const mlx_stream s)
{
    size_t ndim = mlx_array_ndim(logits), size = mlx_array_size(logits);
    if (!ndim || !size || size > INT_MAX)
        return refuse("logits of 1 element or more with an axis of tokens",
                      size);
    if (!is_small_float(mlx_array_dtype(logits)))
        return refuse("logits of float32, float16 or bfloat16",
                      (size_t)mlx_array_dtype(logits));
    size_t rows = size / (size_t)mlx_array_dim(logits, -1);
    size_t entries = ndim > 1 ? (size_t)mlx_array_dim(logits, 0) : 1;
    if (n_rows != 1 && n_rows != rows && n_rows != entries)
        return refuse("a mask for each row of logits", n_rows);
    steps c = {.stream = s};
    mlx_array y, shifts = shifts_of(&c, logits, words, n_rows, words_per_row);
    STEP(&c, y, mlx_add(to, logits, shifts, s));
    if (!c.failed)
        c.failed = mlx_array_set(res, y) != 0;
    finish(&c);
    return c.failed;
}

int quern_apply_token_bitmask(mlx_array *res, const mlx_array logits,
                              const int32_t *words, size_t n_words,
                              const mlx_stream s)
{
    static const int32_t none;
    const int32_t *row = n_words ? words : &none;
    if (!row)
        return refuse("words", 0);
    return quern_apply_token_bitmask_rows(res, logits, &row, 1, n_words, s);
}

int quern_normalized_argmax(mlx_array *res, const mlx_array logits,
                            const mlx_stream s)
{
    if (!mlx_array_ndim(logits) || !mlx_array_size(logits)) {
        _mlx_error(__FILE__, __LINE__,
                   "[normalized_argmax] logits with an axis of tokens are "
                   "expected, found %zu elements",
                   mlx_array_size(logits));
        return 1;
    }
    steps c = {.stream = s};
    mlx_array lse, score, nan, low, kept, y, *slot;
    STEP(&c, lse, mlx_logsumexp_axis(to, logits, -1, true, s));
    STEP(&c, score, mlx_subtract(to, logits, lse, s));
    STEP(&c, nan, mlx_isnan(to, score, s));
    slot = fresh(&c);
    *slot = mlx_array_new_float32(-INFINITY);
    low = c.failed ? *slot : cast(&c, *slot, mlx_array_dtype(score));
    STEP(&c, kept, mlx_where(to, nan, low, score, s));
    STEP(&c, y, mlx_argmax_axis(to, kept, -1, false, s));
    if (!c.failed)
        c.failed = mlx_array_set(res, y) != 0;
    finish(&c);
    return c.failed;
}
