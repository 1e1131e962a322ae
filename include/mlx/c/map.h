/* Maps from text to arrays and to text.
 *
 * A map shares the arrays put into it and copies texts. Putting in a key that
 * is there replaces its value. An iterator visits each key once, in an order
 * that means nothing, while the map lives unchanged. */
#ifndef MLX_C_MAP_H
#define MLX_C_MAP_H

#include "mlx/c/types.h"

#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

/* --- Text to array -------------------------------------------------------- */

/* An empty map. */
mlx_map_string_to_array mlx_map_string_to_array_new(void);

/* Makes *map refer to the map of src. */
int mlx_map_string_to_array_set(mlx_map_string_to_array *map,
                                const mlx_map_string_to_array src);

/* Gives up the map. */
int mlx_map_string_to_array_free(mlx_map_string_to_array map);

/* Makes value the value of key. */
int mlx_map_string_to_array_insert(mlx_map_string_to_array map, const char *key,
                                   const mlx_array value);

/* Stores a new reference to the value of key in *value. Returns 2, without an
 * error report, if key is not there. */
int mlx_map_string_to_array_get(mlx_array *value,
                                const mlx_map_string_to_array map,
                                const char *key);

/* A position before the first entry of map, which it borrows. */
mlx_map_string_to_array_iterator
mlx_map_string_to_array_iterator_new(mlx_map_string_to_array map);

/* Frees the position, not the map. */
int mlx_map_string_to_array_iterator_free(mlx_map_string_to_array_iterator it);

/* Stores the next entry: its key, borrowed from the map, and a new reference to
 * its value. Returns 2, without an error report, after the last one. */
int mlx_map_string_to_array_iterator_next(const char **key, mlx_array *value,
                                          mlx_map_string_to_array_iterator it);

/* --- Text to text --------------------------------------------------------- */

/* An empty map. */
mlx_map_string_to_string mlx_map_string_to_string_new(void);

/* Makes *map refer to the map of src. */
int mlx_map_string_to_string_set(mlx_map_string_to_string *map,
                                 const mlx_map_string_to_string src);

/* Gives up the map. */
int mlx_map_string_to_string_free(mlx_map_string_to_string map);

/* Makes a copy of value the value of key. */
int mlx_map_string_to_string_insert(mlx_map_string_to_string map,
                                    const char *key, const char *value);

/* Stores the value of key, borrowed from the map, in *value. Returns 2, without
 * an error report, if key is not there. */
int mlx_map_string_to_string_get(const char **value,
                                 const mlx_map_string_to_string map,
                                 const char *key);

/* A position before the first entry of map, which it borrows. */
mlx_map_string_to_string_iterator
mlx_map_string_to_string_iterator_new(mlx_map_string_to_string map);

/* Frees the position, not the map. */
int mlx_map_string_to_string_iterator_free(
    mlx_map_string_to_string_iterator it);

/* Stores the next entry, both parts borrowed from the map. Returns 2, without
 * an error report, after the last one. */
int mlx_map_string_to_string_iterator_next(
    const char **key, const char **value, mlx_map_string_to_string_iterator it);

#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop

#endif
