/* backends.h: which backend serves which device.
 *
 * The CPU's is always there.  Programs written on a Mac ask for the GPU; on a
 * machine without one it is an alias of the CPU, unless QUERN_STRICT_DEVICES=1
 * in the environment asks for MLX's errors. */
#ifndef QN_CAPI_BACKENDS_H
#define QN_CAPI_BACKENDS_H

#include "core/stream.h"

/* Registers the backends, once.  Entries that make a stream or look at a device
 * call it first. */
void qn_backends_need(void);

/* How many devices of a type there really are. */
int qn_backends_count(qn_device_type type);

#endif
