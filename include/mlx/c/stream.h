/* Streams: queues of work on a device.
 *
 * Every operation takes the stream that it runs on. Arrays may be used across
 * streams, devices and threads: the library orders the work. Each thread has a
 * default stream for each device, made on first use. */
#ifndef MLX_C_STREAM_H
#define MLX_C_STREAM_H

#include "mlx/c/types.h"

#include <stdbool.h>

#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

/* --- Handles -------------------------------------------------------------- */

/* A handle without a stream (NULL ctx), ready to be a result. */
mlx_stream mlx_stream_new(void);

/* A new stream on dev for the calling thread. Operations may be built with it
 * on any thread; other implementations evaluate them only on this one. */
mlx_stream mlx_stream_new_device(mlx_device dev);

/* A new stream on dev that any thread may use. It does not lock: its users take
 * turns. */
mlx_stream mlx_stream_new_thread_unsafe(mlx_device dev);

/* The calling thread's default stream of the CPU or of the GPU. Without a GPU,
 * the latter fails unless the library stands in for one. */
mlx_stream mlx_default_cpu_stream_new(void);
mlx_stream mlx_default_gpu_stream_new(void);

/* Makes *stream the stream of src. */
int mlx_stream_set(mlx_stream *stream, const mlx_stream src);

/* Frees the handle; the stream and its work go on. */
int mlx_stream_free(mlx_stream stream);

/* --- One stream per thread ------------------------------------------------ */

/* A handle that stands for one stream on dev in each thread that uses it. */
mlx_stream_thread_local mlx_stream_thread_local_new(mlx_device dev);

/* Makes *tls stand for the streams of src. */
int mlx_stream_thread_local_set(mlx_stream_thread_local *tls,
                                const mlx_stream_thread_local src);

/* Frees the handle. */
int mlx_stream_thread_local_free(mlx_stream_thread_local tls);

/* Stores the calling thread's stream of tls in *res: the same one each time. */
int mlx_stream_from_thread_local(mlx_stream *res,
                                 const mlx_stream_thread_local tls);

/* --- Properties ----------------------------------------------------------- */

/* Stores a text such as "Stream(Device(cpu, 0), 3)" in *str. */
int mlx_stream_tostring(mlx_string *str, mlx_stream stream);

/* Whether both are the same stream. Both must be streams. */
bool mlx_stream_equal(mlx_stream lhs, mlx_stream rhs);

/* Stores the device that the stream runs on in *dev. */
int mlx_stream_get_device(mlx_device *dev, mlx_stream stream);

/* Stores the number of the stream, which no other stream has. */
int mlx_stream_get_index(int *index, mlx_stream stream);

/* Stores all streams made so far in *res. */
int mlx_get_streams(mlx_vector_stream *res);

/* --- Defaults ------------------------------------------------------------- */

/* Stores the calling thread's default stream of dev in *stream. */
int mlx_get_default_stream(mlx_stream *stream, mlx_device dev);

/* Makes stream the calling thread's default on the stream's device. */
int mlx_set_default_stream(mlx_stream stream);

/* --- Waiting -------------------------------------------------------------- */

/* Wait until the work queued so far is done, and return the error of work that
 * failed: on stream; on the default stream of the default device; on the
 * calling thread's stream of tls. */
int mlx_synchronize(mlx_stream stream);
int mlx_synchronize_default(void);
int mlx_synchronize_thread_local(mlx_stream_thread_local tls);

/* Drops the streams of the calling thread. */
int mlx_clear_streams(void);

#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop

#endif
