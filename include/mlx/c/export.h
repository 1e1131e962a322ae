/* The MLX C API, export.h. */
#ifndef MLX_C_EXPORT_H
#define MLX_C_EXPORT_H

#include "mlx/c/types.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

int mlx_export_function(const char *file, const mlx_closure fun,
                        const mlx_vector_array args, bool shapeless);
int mlx_export_function_kwargs(const char *file, const mlx_closure_kwargs fun,
                               const mlx_vector_array args,
                               const mlx_map_string_to_array kwargs,
                               bool shapeless);
mlx_function_exporter mlx_function_exporter_new(const char *file,
                                                const mlx_closure fun,
                                                bool shapeless);
int mlx_function_exporter_free(mlx_function_exporter xfunc);
int mlx_function_exporter_apply(const mlx_function_exporter xfunc,
                                const mlx_vector_array args);
int mlx_function_exporter_apply_kwargs(const mlx_function_exporter xfunc,
                                       const mlx_vector_array args,
                                       const mlx_map_string_to_array kwargs);
mlx_imported_function mlx_imported_function_new(const char *file);
int mlx_imported_function_free(mlx_imported_function xfunc);
int mlx_imported_function_apply(mlx_vector_array *res,
                                const mlx_imported_function xfunc,
                                const mlx_vector_array args);
int mlx_imported_function_apply_kwargs(mlx_vector_array *res,
                                       const mlx_imported_function xfunc,
                                       const mlx_vector_array args,
                                       const mlx_map_string_to_array kwargs);

#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop

#endif
