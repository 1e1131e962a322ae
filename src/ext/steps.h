/* steps.h: mlx_* calls one after the other, as fallbacks are made of. */
#ifndef QN_EXT_STEPS_H
#define QN_EXT_STEPS_H

#include <mlx/c/mlx.h>

#include <stdbool.h>

/* Handles made on the way, and the first failure.  After one, steps do
 * nothing; the caller's error handler has had the message. */
typedef struct steps {
    bool failed;
    mlx_stream stream;
    int count;
    mlx_array held[96];
} steps;

/* A new handle that `finish` frees. */
static inline mlx_array *fresh(steps *c)
{
    mlx_array *slot = &c->held[c->count++];
    *slot = mlx_array_new();
    return slot;
}

static inline void finish(steps *c)
{
    while (c->count)
        mlx_array_free(c->held[--c->count]);
}

/* Runs one call whose result goes to a fresh handle. */
#define STEP(c, result, call)                                                  \
    do {                                                                       \
        mlx_array *to = fresh(c);                                              \
        if (!(c)->failed && (call))                                            \
            (c)->failed = true;                                                \
        result = *to;                                                          \
    } while (0)

/* Element i of a list. */
static inline mlx_array element(steps *c, mlx_vector_array list, size_t i)
{
    mlx_array found;
    STEP(c, found, mlx_vector_array_get(to, list, i));
    return found;
}

static inline mlx_array cast(steps *c, mlx_array x, mlx_dtype dtype)
{
    mlx_array y;
    STEP(c, y, mlx_astype(to, x, dtype, c->stream));
    return y;
}

#endif
