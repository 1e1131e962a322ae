/* Unevaluated graphs as text, for people to look at. */
#ifndef MLX_C_GRAPH_UTILS_H
#define MLX_C_GRAPH_UTILS_H

#include "mlx/c/types.h"

#include <stdio.h>

#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

/* --- Names of arrays ------------------------------------------------------ */

/* A live object that makes up names as arrays are met. */
mlx_node_namer mlx_node_namer_new(void);

/* Gives up the names. */
int mlx_node_namer_free(mlx_node_namer namer);

/* Names arr, in place of a name that is made up. */
int mlx_node_namer_set_name(mlx_node_namer namer, const mlx_array arr,
                            const char *name);

/* Stores the name of arr, borrowed from namer. */
int mlx_node_namer_get_name(const char **name, mlx_node_namer namer,
                            const mlx_array arr);

/* --- Printing ------------------------------------------------------------- */

/* Writes the graph that leads to outputs to os in the DOT language of
 * Graphviz. */
int mlx_export_to_dot(FILE *os, const mlx_node_namer namer,
                      const mlx_vector_array outputs);

/* Writes the same, one operation a line with its inputs and outputs. */
int mlx_print_graph(FILE *os, const mlx_node_namer namer,
                    const mlx_vector_array outputs);

#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop

#endif
