/* device.h: the boxes of devices, for the files that name one. */
#ifndef QN_CAPI_DEVICE_H
#define QN_CAPI_DEVICE_H

#include "handles.h"

typedef struct qn_device_box {
    qn_device device;
} qn_device_box;

#define QN_GET_DEVICE_OR(name, handle, failed)                                 \
    QN_GET_OR(const qn_device_box, name, (handle).ctx, mlx_device, failed)
#define QN_GET_DEVICE(name, handle) QN_GET_DEVICE_OR(name, handle, 1)

/* By the rule for results. */
qn_status qn_handle_set_device(mlx_device *res, qn_device device);

/* Writes "Device(cpu, 0)" as snprintf would; returns its length. */
int qn_device_text(char *text, size_t size, qn_device device);

#endif
