/* The MLX C API, stream.h. */
#ifndef MLX_C_STREAM_H
#define MLX_C_STREAM_H

#include "mlx/c/types.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

mlx_stream mlx_stream_new(void);
mlx_stream mlx_stream_new_device(mlx_device dev);
mlx_stream mlx_stream_new_thread_unsafe(mlx_device dev);
mlx_stream_thread_local mlx_stream_thread_local_new(mlx_device dev);
int mlx_stream_thread_local_set(mlx_stream_thread_local *tls,
                                const mlx_stream_thread_local src);
int mlx_stream_thread_local_free(mlx_stream_thread_local tls);
int mlx_stream_from_thread_local(mlx_stream *res,
                                 const mlx_stream_thread_local tls);
int mlx_get_streams(mlx_vector_stream *res);
int mlx_stream_set(mlx_stream *stream, const mlx_stream src);
int mlx_stream_free(mlx_stream stream);
int mlx_stream_tostring(mlx_string *str, mlx_stream stream);
bool mlx_stream_equal(mlx_stream lhs, mlx_stream rhs);
int mlx_stream_get_device(mlx_device *dev, mlx_stream stream);
int mlx_stream_get_index(int *index, mlx_stream stream);
int mlx_synchronize(mlx_stream stream);
int mlx_synchronize_default(void);
int mlx_synchronize_thread_local(mlx_stream_thread_local tls);
int mlx_clear_streams(void);
int mlx_get_default_stream(mlx_stream *stream, mlx_device dev);
int mlx_set_default_stream(mlx_stream stream);
mlx_stream mlx_default_cpu_stream_new(void);
mlx_stream mlx_default_gpu_stream_new(void);

#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop

#endif
