/* stream.h: devices and streams.
 *
 * A stream is an ordered queue of evaluations on a device.  Synchronous
 * evaluation runs on the calling thread; qn_eval_async hands the work to the
 * engine's worker thread (async.h), and an error it meets is kept
 * in the stream for the next call that waits. */
#ifndef QN_CORE_STREAM_H
#define QN_CORE_STREAM_H

#include "base/status.h"

#include <stdint.h>

typedef enum qn_device_type { QN_DEVICE_CPU, QN_DEVICE_GPU } qn_device_type;

typedef struct qn_device {
    qn_device_type type;
    int index;
} qn_device;

typedef struct qn_stream qn_stream;

/* The stream belongs to the process once made; there is no free: handles
 * name it, and it lives until the process ends.  QN_E_ARG when the device has
 * no backend. */
qn_status qn_stream_new(qn_stream **out, qn_device device);
qn_device qn_stream_device(const qn_stream *stream);
/* No other stream has the same. */
int qn_stream_index(const qn_stream *stream);
/* The calling thread's default stream of a device, made on first use. */
qn_status qn_stream_default(qn_stream **out, qn_device device);
void qn_stream_set_default(qn_stream *stream);
/* Whether streams can be made on it. */
bool qn_device_usable(qn_device device);
/* A number that stands for one stream in each thread that asks for it. */
uint64_t qn_stream_new_family(void);
/* The calling thread's stream of a family: the same one each time. */
qn_status qn_stream_of_family(qn_stream **out, qn_device device,
                              uint64_t family);
/* Makes the calling thread forget its default streams and its streams of
 * families, after waiting for their work: it gets new ones when it asks. */
void qn_stream_forget(void);
/* The process's default device. */
qn_device qn_device_default(void);
/* QN_E_ARG when it has no backend. */
qn_status qn_device_set_default(qn_device device);
/* Waits until everything handed to the stream is done; returns (once) the
 * error that its worker met. */
qn_status qn_stream_synchronize(qn_stream *stream);
/* Calls `visit` for each stream made so far, oldest first, until one call does
 * not return QN_OK; returns what the last call did. */
qn_status qn_stream_each(qn_status (*visit)(qn_stream *stream, void *data),
                         void *data);

/* ---- for the evaluation ---- */

/* Keeps the calling thread's recorded error in the stream, unless it has one
 * already: the first is the cause. */
void qn_stream_keep_error(qn_stream *stream, qn_status status);
/* Takes the kept error out and records it for the calling thread; QN_OK when
 * there is none. */
qn_status qn_stream_take_error(qn_stream *stream);

#endif
