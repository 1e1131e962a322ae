/* stream.h: devices and streams.
 *
 * A stream is an ordered queue of evaluations on a device.  Synchronous
 * evaluation runs on the calling thread; qn_eval_async hands the work to the
 * stream's worker thread (made on first use), and an error it meets is kept
 * in the stream for the next call that waits. */
#ifndef QN_CORE_STREAM_H
#define QN_CORE_STREAM_H

#include "base/status.h"

typedef enum qn_device_type { QN_DEVICE_CPU, QN_DEVICE_GPU } qn_device_type;

typedef struct qn_device {
    qn_device_type type;
    int index;
} qn_device;

typedef struct qn_stream qn_stream;

/* The stream belongs to the process once made; there is no free: handles
 * name it, and it lives until the process ends. */
qn_status qn_stream_new(qn_stream **out, qn_device device);
qn_device qn_stream_device(const qn_stream *stream);
int qn_stream_index(const qn_stream *stream);
/* The calling thread's default stream of a device, made on first use. */
qn_status qn_stream_default(qn_stream **out, qn_device device);
qn_status qn_stream_set_default(qn_stream *stream);
/* The process's default device. */
qn_device qn_device_default(void);
qn_status qn_device_set_default(qn_device device);
/* Waits until everything handed to the stream is done; returns (once) the
 * error that its worker met. */
qn_status qn_stream_synchronize(qn_stream *stream);
/* Calls `visit` for each stream made so far. */
void qn_stream_each(void (*visit)(qn_stream *stream, void *data), void *data);

#endif
