/* Texts that the library returns. */
#ifndef MLX_C_STRING_H
#define MLX_C_STRING_H

#include "mlx/c/types.h"

#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

/* A handle without a text (NULL ctx), ready to be a result. */
mlx_string mlx_string_new(void);

/* A copy of the bytes of str up to its terminating zero. */
mlx_string mlx_string_new_data(const char *str);

/* Makes *str hold the text of src. */
int mlx_string_set(mlx_string *str, const mlx_string src);

/* The text, terminated by a zero byte. Borrowed from str. */
const char *mlx_string_data(mlx_string str);

/* Frees str and the pointers borrowed from it. */
int mlx_string_free(mlx_string str);

#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop

#endif
