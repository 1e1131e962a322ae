/* engine.h: the array library's errors and handles as the runtime sees them.
 *
 * A failing mlx_* call keeps its message for the calling thread; qn_engine
 * turns a return code into a status with that message. */
#ifndef QN_KV_ENGINE_H
#define QN_KV_ENGINE_H

#include "base/status.h"

#include <mlx/c/mlx.h>

/* Opens the library and keeps its errors from ending the process; any number
 * of calls. */
qn_status qn_engine_start(void);

/* QN_OK for 0; else QN_E_NOMEM when the message speaks of memory, QN_E_INTERNAL
 * otherwise, with the library's message. */
qn_status qn_engine(int rc);

/* The same for functions that return a handle: failed when ctx is NULL. */
qn_status qn_engine_made(const void *ctx);

/* Computes `count` arrays and waits. */
qn_status qn_engine_eval(const mlx_array *arrays, size_t count);

#endif
