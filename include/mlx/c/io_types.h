/* Byte streams that the caller supplies to load and save with, and the contents
 * of GGUF files. */
#ifndef MLX_C_IO_TYPES_H
#define MLX_C_IO_TYPES_H

#include "mlx/c/types.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

/* How to work with a stream that the caller describes by a pointer, desc, which
 * each function gets. They may be called on any thread.
 *
 * - is_open, good: whether the stream is open, and fit for use
 * - tell: the position, in bytes from the start
 * - seek: moves the position by off bytes from the place that whence names (0
 *   start, 1 position, 2 end, as for lseek); a negative result is a failure
 * - read, write: n bytes at the position; the result is the count done, and any
 *   other count than n is an error
 * - read_at_offset: n bytes at off; the position stays
 * - label: a name for messages, borrowed
 * - free: called once, when nothing needs desc any more */
typedef struct mlx_io_vtable_ {
    bool (*is_open)(void *desc);
    bool (*good)(void *desc);
    size_t (*tell)(void *desc);
    int (*seek)(void *desc, int64_t off, int whence);
    size_t (*read)(void *desc, char *data, size_t n);
    size_t (*read_at_offset)(void *desc, char *data, size_t n, size_t off);
    size_t (*write)(void *desc, const char *data, size_t n);
    const char *(*label)(void *desc);
    void (*free)(void *desc);
} mlx_io_vtable;

/* --- Readers and writers -------------------------------------------------- */

/* A stream to read from, or to write to. The library owns desc from here on and
 * frees it through vtable. */
mlx_io_reader mlx_io_reader_new(void *desc, mlx_io_vtable vtable);
mlx_io_writer mlx_io_writer_new(void *desc, mlx_io_vtable vtable);

/* Store desc in *desc_, borrowed. */
int mlx_io_reader_descriptor(void **desc_, mlx_io_reader io);
int mlx_io_writer_descriptor(void **desc_, mlx_io_writer io);

/* Store a text that names the stream, with its label, in *str_. */
int mlx_io_reader_tostring(mlx_string *str_, mlx_io_reader io);
int mlx_io_writer_tostring(mlx_string *str_, mlx_io_writer io);

/* Give up the handle. Arrays loaded through a reader and not yet evaluated keep
 * the stream, which is freed after them. */
int mlx_io_reader_free(mlx_io_reader io);
int mlx_io_writer_free(mlx_io_writer io);

/* --- Contents of a GGUF file ---------------------------------------------- */

/* Empty contents, to be filled by the calls below or by mlx_load_gguf. */
mlx_io_gguf mlx_io_gguf_new(void);

/* Gives up the contents; arrays taken from them stay. */
int mlx_io_gguf_free(mlx_io_gguf io);

/* Stores the names of the arrays in *keys. */
int mlx_io_gguf_get_keys(mlx_vector_string *keys, mlx_io_gguf io);

/* Stores a new reference to the array called key. Returns 2, without an error
 * report, if there is none. */
int mlx_io_gguf_get_array(mlx_array *arr, mlx_io_gguf io, const char *key);

/* Store the metadata value called key: numbers come as an array, the rest as a
 * text or a list of texts. Return 2 if there is none and 3 if it is of another
 * kind, without an error report. */
int mlx_io_gguf_get_metadata_array(mlx_array *arr, mlx_io_gguf io,
                                   const char *key);
int mlx_io_gguf_get_metadata_string(mlx_string *str, mlx_io_gguf io,
                                    const char *key);
int mlx_io_gguf_get_metadata_vector_string(mlx_vector_string *vstr,
                                           mlx_io_gguf io, const char *key);

/* Store whether the metadata value called key is of that kind. Return 2,
 * without an error report, if there is none. */
int mlx_io_gguf_has_metadata_array(bool *flag, mlx_io_gguf io, const char *key);
int mlx_io_gguf_has_metadata_string(bool *flag, mlx_io_gguf io,
                                    const char *key);
int mlx_io_gguf_has_metadata_vector_string(bool *flag, mlx_io_gguf io,
                                           const char *key);

/* Adds arr under the name key, in place of an array of that name. */
int mlx_io_gguf_set_array(mlx_io_gguf io, const char *key, const mlx_array arr);

/* Set the metadata value called key, in place of one of that name. */
int mlx_io_gguf_set_metadata_array(mlx_io_gguf io, const char *key,
                                   const mlx_array marr);
int mlx_io_gguf_set_metadata_string(mlx_io_gguf io, const char *key,
                                    const char *mstr);
int mlx_io_gguf_set_metadata_vector_string(mlx_io_gguf io, const char *key,
                                           const mlx_vector_string mvstr);

#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop

#endif
