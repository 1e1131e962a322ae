/* Arrays in files: npy, safetensors and GGUF.
 *
 * Loading reads the header at once and the elements at evaluation, on stream s;
 * the file must stay as it is until then. Saving evaluates. The _reader and
 * _writer forms work on a stream of the caller's (io_types.h), which may be
 * freed as soon as the call returns. */
#ifndef MLX_C_IO_H
#define MLX_C_IO_H

#include "mlx/c/io_types.h"
#include "mlx/c/types.h"

#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

/* --- One array: npy ------------------------------------------------------- */

/* Store the array in an npy file, in either byte order and either element
 * order, in *res. bfloat16 has the type code V2. */
int mlx_load(mlx_array *res, const char *file, const mlx_stream s);
int mlx_load_reader(mlx_array *res, mlx_io_reader in_stream,
                    const mlx_stream s);

/* Write a as an npy file. */
int mlx_save(const char *file, const mlx_array a);
int mlx_save_writer(mlx_io_writer out_stream, const mlx_array a);

/* --- Named arrays: safetensors -------------------------------------------- */

/* Store the arrays of a safetensors file by name in *res_0 and its metadata in
 * *res_1. A file with float64 is refused. */
int mlx_load_safetensors(mlx_map_string_to_array *res_0,
                         mlx_map_string_to_string *res_1, const char *file,
                         const mlx_stream s);
int mlx_load_safetensors_reader(mlx_map_string_to_array *res_0,
                                mlx_map_string_to_string *res_1,
                                mlx_io_reader in_stream, const mlx_stream s);

/* Write the arrays in param by name, with metadata unless that map is empty.
 * float64 is refused. In the _writer form in_stream is the stream to write
 * to. */
int mlx_save_safetensors(const char *file, const mlx_map_string_to_array param,
                         const mlx_map_string_to_string metadata);
int mlx_save_safetensors_writer(mlx_io_writer in_stream,
                                const mlx_map_string_to_array param,
                                const mlx_map_string_to_string metadata);

/* --- Arrays and metadata: GGUF -------------------------------------------- */

/* Stores the contents of a GGUF file in *gguf. A tensor X.weight of type Q4_0,
 * Q4_1 or Q8_0 comes as packed X.weight with X.scales and X.biases, in the
 * affine form of mlx_quantize with groups of 32; tensors of other quantised
 * types come as float16. */
int mlx_load_gguf(mlx_io_gguf *gguf, const char *file, const mlx_stream s);

/* Writes arrays of float32, float16, int8, int16 and int32, and metadata. */
int mlx_save_gguf(const char *file, mlx_io_gguf gguf);

#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop

#endif
