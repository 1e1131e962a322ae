/* ext.h: what the engine offers beyond the MLX C API.
 *
 * Handles, results, errors and evaluation follow the rules at the top of
 * mlx/c/types.h.  Over another library that exports the MLX C API, each
 * function has a fallback made of mlx_* calls. */
#ifndef QUERN_EXT_H
#define QUERN_EXT_H

#include "mlx/c/mlx.h"

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

#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop

#endif
