/* ext.h: what the engine offers beyond the MLX C API.
 *
 * Handles, results, errors and evaluation follow the rules at the top of
 * mlx/c/types.h.  Over another library that exports the MLX C API, each
 * function has a fallback made of mlx_* calls. */
#ifndef QUERN_EXT_H
#define QUERN_EXT_H

#include "mlx/c/mlx.h"

#include <stdbool.h>
#include <stddef.h>

#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

/* --- Errors --------------------------------------------------------------- */

/* The message of the calling thread's last failing call since the last take, to
 * be freed with free(); NULL if there is none.  A succeeding call leaves it
 * alone.  The engine keeps it before it calls the error handler, so a handler
 * that does nothing is enough to work with it. */
char *quern_error_take(void);

/* --- Identity ------------------------------------------------------------- */

/* The release of quern, such as "0.1.0"; mlx_version tells the version of MLX
 * whose interface and numerics the engine follows. */
const char *quern_version(void);

/* "(built in)"; over another library, the path that it was loaded from. */
const char *quern_library_path(void);

/* What mlx_device_info has for the default device under "architecture", such as
 * "x86_64": the same pointer each time, valid as long as the process.  NULL
 * after an error report. */
const char *quern_device_architecture(void);

/* --- The engine itself ---------------------------------------------------- */

/* Opens the array library and checks its version; call it before any other
 * function of the MLX C API.  Where the engine is built in there is nothing to
 * do.  Returns 0, or 1 with a message for quern_error_take.  Failure is not
 * kept: a later call tries again. */
int quern_engine_open(void);

/* Threads that compute inside one operation, the calling one included: 1 to
 * 512, or 0 for one on each core that the process may use.  Takes effect with
 * the next evaluation; not while one runs.  Never changes a result.  Returns 0,
 * or 1 for another number.  Over another library: does nothing. */
int quern_set_threads(int threads);

/* --- Compiled functions --------------------------------------------------- */

/* Whether the calling thread is recording a shapeless function (mlx_compile),
 * if only around another recording.  What takes sizes from shapes asks this
 * first. Over another library: false. */
bool quern_in_shapeless_trace(void);

/* How often the function of a compiled closure has been recorded, by all
 * threads; 0 for other closures.  Over another library: 0. */
size_t quern_closure_trace_count(const mlx_closure cls);

/* --- Packed matrices ------------------------------------------------------ */

/* Products of x with 1 to 3 packed matrices, x w^T, as mlx_quantized_matmul
 * with `transpose` makes them, with these differences:
 *
 *   - several matrices share x (query, key and value; gate and up): result i is
 *     that of w[i], scales[i], biases[i];
 *   - results have the dtype of x, whatever floating types scales and biases
 *     have: float32 scales don't turn half activations into float32;
 *   - mode "affine" takes group_size 16, too.
 *
 * For modes without biases, `biases` is an empty list or an empty handle.  All
 * matrices are packed alike.  *res becomes a list of the results. */
int quern_quantized_matmul(mlx_vector_array *res, const mlx_array x,
                           const mlx_vector_array w,
                           const mlx_vector_array scales,
                           const mlx_vector_array biases, int group_size,
                           int bits, const char *mode, const mlx_stream s);

#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop

#endif
