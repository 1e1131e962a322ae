/* Growing lists of arrays, lists of arrays, ints, texts and streams.
 *
 * The five types have the same functions. A list shares the arrays and streams
 * put into it and copies texts; the caller keeps its own handles. mlx_vector_X
 * below is any of the types, its element mlx_X (int for mlx_vector_int, text
 * for mlx_vector_string).
 *
 *   _new            an empty list
 *   _new_data       a list of the size elements at data
 *   _new_value      a list of one element
 *   _set            makes *vec refer to the list of src
 *   _set_data       makes *vec a list of the size elements at data
 *   _set_value      makes *vec a list of one element
 *   _append_data    adds the size elements at data at the end
 *   _append_value   adds one element at the end
 *   _size           the number of elements
 *   _get            stores element idx, counted from 0, in *res
 *   _free           gives up the list
 *
 * An index past the end is an error. */
#ifndef MLX_C_VECTOR_H
#define MLX_C_VECTOR_H

#include "mlx/c/types.h"

#include <stddef.h>

#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

/* --- Arrays --------------------------------------------------------------- */

/* A list of arrays. _get stores a new reference, to be freed or reused by the
 * rule for results. */
mlx_vector_array mlx_vector_array_new(void);
mlx_vector_array mlx_vector_array_new_data(const mlx_array *data, size_t size);
mlx_vector_array mlx_vector_array_new_value(const mlx_array val);
int mlx_vector_array_set(mlx_vector_array *vec, const mlx_vector_array src);
int mlx_vector_array_set_data(mlx_vector_array *vec, const mlx_array *data,
                              size_t size);
int mlx_vector_array_set_value(mlx_vector_array *vec, const mlx_array val);
int mlx_vector_array_append_data(mlx_vector_array vec, const mlx_array *data,
                                 size_t size);
int mlx_vector_array_append_value(mlx_vector_array vec, const mlx_array val);
size_t mlx_vector_array_size(mlx_vector_array vec);
int mlx_vector_array_get(mlx_array *res, const mlx_vector_array vec,
                         size_t idx);
int mlx_vector_array_free(mlx_vector_array vec);

/* --- Lists of arrays ------------------------------------------------------ */

/* A list of lists of arrays. _get stores a new reference. */
mlx_vector_vector_array mlx_vector_vector_array_new(void);
mlx_vector_vector_array
mlx_vector_vector_array_new_data(const mlx_vector_array *data, size_t size);
mlx_vector_vector_array
mlx_vector_vector_array_new_value(const mlx_vector_array val);
int mlx_vector_vector_array_set(mlx_vector_vector_array *vec,
                                const mlx_vector_vector_array src);
int mlx_vector_vector_array_set_data(mlx_vector_vector_array *vec,
                                     const mlx_vector_array *data, size_t size);
int mlx_vector_vector_array_set_value(mlx_vector_vector_array *vec,
                                      const mlx_vector_array val);
int mlx_vector_vector_array_append_data(mlx_vector_vector_array vec,
                                        const mlx_vector_array *data,
                                        size_t size);
int mlx_vector_vector_array_append_value(mlx_vector_vector_array vec,
                                         const mlx_vector_array val);
size_t mlx_vector_vector_array_size(mlx_vector_vector_array vec);
int mlx_vector_vector_array_get(mlx_vector_array *res,
                                const mlx_vector_vector_array vec, size_t idx);
int mlx_vector_vector_array_free(mlx_vector_vector_array vec);

/* --- Integers ------------------------------------------------------------- */

/* A list of ints, copied from data and into *res. */
mlx_vector_int mlx_vector_int_new(void);
mlx_vector_int mlx_vector_int_new_data(int *data, size_t size);
mlx_vector_int mlx_vector_int_new_value(int val);
int mlx_vector_int_set(mlx_vector_int *vec, const mlx_vector_int src);
int mlx_vector_int_set_data(mlx_vector_int *vec, int *data, size_t size);
int mlx_vector_int_set_value(mlx_vector_int *vec, int val);
int mlx_vector_int_append_data(mlx_vector_int vec, int *data, size_t size);
int mlx_vector_int_append_value(mlx_vector_int vec, int val);
size_t mlx_vector_int_size(mlx_vector_int vec);
int mlx_vector_int_get(int *res, const mlx_vector_int vec, size_t idx);
int mlx_vector_int_free(mlx_vector_int vec);

/* --- Texts ---------------------------------------------------------------- */

/* A list of zero-terminated texts. The text that _get stores in *res is
 * borrowed from the list: read it only, and not after the list has changed. */
mlx_vector_string mlx_vector_string_new(void);
mlx_vector_string mlx_vector_string_new_data(const char **data, size_t size);
mlx_vector_string mlx_vector_string_new_value(const char *val);
int mlx_vector_string_set(mlx_vector_string *vec, const mlx_vector_string src);
int mlx_vector_string_set_data(mlx_vector_string *vec, const char **data,
                               size_t size);
int mlx_vector_string_set_value(mlx_vector_string *vec, const char *val);
int mlx_vector_string_append_data(mlx_vector_string vec, const char **data,
                                  size_t size);
int mlx_vector_string_append_value(mlx_vector_string vec, const char *val);
size_t mlx_vector_string_size(mlx_vector_string vec);
int mlx_vector_string_get(char **res, const mlx_vector_string vec, size_t idx);
int mlx_vector_string_free(mlx_vector_string vec);

/* --- Streams -------------------------------------------------------------- */

/* A list of streams. _get stores a new reference. */
mlx_vector_stream mlx_vector_stream_new(void);
mlx_vector_stream mlx_vector_stream_new_data(const mlx_stream *data,
                                             size_t size);
mlx_vector_stream mlx_vector_stream_new_value(const mlx_stream val);
int mlx_vector_stream_set(mlx_vector_stream *vec, const mlx_vector_stream src);
int mlx_vector_stream_set_data(mlx_vector_stream *vec, const mlx_stream *data,
                               size_t size);
int mlx_vector_stream_set_value(mlx_vector_stream *vec, const mlx_stream val);
int mlx_vector_stream_append_data(mlx_vector_stream vec, const mlx_stream *data,
                                  size_t size);
int mlx_vector_stream_append_value(mlx_vector_stream vec, const mlx_stream val);
size_t mlx_vector_stream_size(mlx_vector_stream vec);
int mlx_vector_stream_get(mlx_stream *res, const mlx_vector_stream vec,
                          size_t idx);
int mlx_vector_stream_free(mlx_vector_stream vec);

#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop

#endif
