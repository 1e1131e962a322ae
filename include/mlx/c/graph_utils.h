/* The MLX C API, graph_utils.h. */
#ifndef MLX_C_GRAPH_UTILS_H
#define MLX_C_GRAPH_UTILS_H

#include "mlx/c/types.h"

#include <stdio.h>

#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

mlx_node_namer mlx_node_namer_new(void);
int mlx_node_namer_free(mlx_node_namer namer);
int mlx_node_namer_set_name(mlx_node_namer namer, const mlx_array arr,
                            const char *name);
int mlx_node_namer_get_name(const char **name, mlx_node_namer namer,
                            const mlx_array arr);
int mlx_export_to_dot(FILE *os, const mlx_node_namer namer,
                      const mlx_vector_array outputs);
int mlx_print_graph(FILE *os, const mlx_node_namer namer,
                    const mlx_vector_array outputs);

#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop

#endif
