/* Error reports.
 *
 * There is one handler per process. It gets the message of each failing call,
 * followed by " at FILE:LINE", on the thread that made the call. The default
 * handler prints "MLX error: MESSAGE" and a newline to standard output and ends
 * the process with status 255. */
#ifndef MLX_C_ERROR_H
#define MLX_C_ERROR_H

#if defined(__GNUC__)
#define MLX_C_PRINTF(fmt_arg, first_arg)                                       \
    __attribute__((format(printf, fmt_arg, first_arg)))
#else
#define MLX_C_PRINTF(fmt_arg, first_arg)
#endif

#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

/* msg is borrowed for the call; data is what mlx_set_error_handler got. */
typedef void (*mlx_error_handler_func)(const char *msg, void *data);

/* Replaces the handler for all threads; NULL brings the default back. dtor, if
 * not NULL, is called once with data when this handler is replaced in turn.
 * Other implementations pass data on only if a dtor came with it. */
void mlx_set_error_handler(mlx_error_handler_func handler, void *data,
                           void (*dtor)(void *));

/* Reports an error raised at line of file, its text made as by printf. Meant to
 * be called through mlx_error. */
void _mlx_error(const char *file, const int line, const char *fmt, ...)
    MLX_C_PRINTF(3, 4);

/* mlx_error(fmt, ...) reports an error raised here. */
#define mlx_error(...) _mlx_error(__FILE__, __LINE__, __VA_ARGS__)

#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop

#endif
