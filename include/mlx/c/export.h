/* Functions in files: a function's graph, recorded for given inputs, written to
 * a file and read back.
 *
 * Arrays that the function captures are written too. A shapeless function can
 * be read back for inputs of other sizes. */
#ifndef MLX_C_EXPORT_H
#define MLX_C_EXPORT_H

#include "mlx/c/types.h"

#include <stdbool.h>

#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

/* --- Writing -------------------------------------------------------------- */

/* Record fun for inputs like args (and kwargs, by name) and write it to
 * file. */
int mlx_export_function(const char *file, const mlx_closure fun,
                        const mlx_vector_array args, bool shapeless);
int mlx_export_function_kwargs(const char *file, const mlx_closure_kwargs fun,
                               const mlx_vector_array args,
                               const mlx_map_string_to_array kwargs,
                               bool shapeless);

/* Opens file for several recordings of fun, one for each kind of input. */
mlx_function_exporter mlx_function_exporter_new(const char *file,
                                                const mlx_closure fun,
                                                bool shapeless);

/* Add the recording of fun for inputs like args (and kwargs) to the file. */
int mlx_function_exporter_apply(const mlx_function_exporter xfunc,
                                const mlx_vector_array args);
int mlx_function_exporter_apply_kwargs(const mlx_function_exporter xfunc,
                                       const mlx_vector_array args,
                                       const mlx_map_string_to_array kwargs);

/* Closes the file; it is complete from here on. */
int mlx_function_exporter_free(mlx_function_exporter xfunc);

/* --- Reading -------------------------------------------------------------- */

/* Reads the functions in file. */
mlx_imported_function mlx_imported_function_new(const char *file);

/* Call the recording that fits args (and kwargs) and store its results in *res.
 * It is an error if none fits. */
int mlx_imported_function_apply(mlx_vector_array *res,
                                const mlx_imported_function xfunc,
                                const mlx_vector_array args);
int mlx_imported_function_apply_kwargs(mlx_vector_array *res,
                                       const mlx_imported_function xfunc,
                                       const mlx_vector_array args,
                                       const mlx_map_string_to_array kwargs);

/* Frees the handle; arrays made with it stay. */
int mlx_imported_function_free(mlx_imported_function xfunc);

#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop

#endif
