/* stream.c: handles of streams, the threads' defaults, waiting. */
#include "backends.h"
#include "device.h"

#include "base/alloc.h"

#include <stdio.h>

/* ---- handles ---- */

mlx_stream mlx_stream_new(void)
{
    return (mlx_stream){NULL};
}

static qn_status new_stream(mlx_stream *res, qn_device device)
{
    qn_backends_need();
    qn_stream *stream;
    qn_status status = qn_stream_new(&stream, device);
    return status ? status : qn_handle_set_stream(res, stream);
}

static qn_status default_stream(mlx_stream *res, qn_device device)
{
    qn_backends_need();
    qn_stream *stream;
    qn_status status = qn_stream_default(&stream, device);
    return status ? status : qn_handle_set_stream(res, stream);
}

mlx_stream mlx_stream_new_device(mlx_device dev)
{
    mlx_stream res = {NULL};
    QN_GET_DEVICE_OR(box, dev, res);
    QN_CALL_OR(new_stream(&res, box->device), res);
    return res;
}

/* Any stream may be used by any thread here. */
mlx_stream mlx_stream_new_thread_unsafe(mlx_device dev)
{
    return mlx_stream_new_device(dev);
}

mlx_stream mlx_default_cpu_stream_new(void)
{
    mlx_stream res = {NULL};
    QN_CALL_OR(default_stream(&res, (qn_device){.type = QN_DEVICE_CPU}), res);
    return res;
}

mlx_stream mlx_default_gpu_stream_new(void)
{
    mlx_stream res = {NULL};
    QN_CALL_OR(default_stream(&res, (qn_device){.type = QN_DEVICE_GPU}), res);
    return res;
}

int mlx_stream_set(mlx_stream *stream, const mlx_stream src)
{
    QN_GET_STREAM(s, src);
    return QN_STORE_STREAM(stream, s);
}

int mlx_stream_free(mlx_stream stream)
{
    qn_free(stream.ctx);
    return 0;
}

/* ---- one stream per thread ---- */

typedef struct family_box {
    qn_device device;
    uint64_t family;
} family_box;

#define QN_GET_FAMILY(name, handle)                                            \
    QN_GET_OR(const family_box, name, (handle).ctx, mlx_stream_thread_local, 1)

static qn_status set_family(mlx_stream_thread_local *res, family_box value)
{
    family_box *box = res->ctx;
    if (!box) {
        box = qn_alloc(sizeof *box);
        if (!box)
            return QN_E_NOMEM;
        res->ctx = box;
    }
    *box = value;
    return QN_OK;
}

mlx_stream_thread_local mlx_stream_thread_local_new(mlx_device dev)
{
    mlx_stream_thread_local res = {NULL};
    QN_GET_DEVICE_OR(box, dev, res);
    family_box value = {box->device, qn_stream_new_family()};
    QN_CALL_OR(set_family(&res, value), res);
    return res;
}

int mlx_stream_thread_local_set(mlx_stream_thread_local *tls,
                                const mlx_stream_thread_local src)
{
    QN_GET_FAMILY(box, src);
    QN_CALL(set_family(tls, *box));
    return 0;
}

int mlx_stream_thread_local_free(mlx_stream_thread_local tls)
{
    qn_free(tls.ctx);
    return 0;
}

int mlx_stream_from_thread_local(mlx_stream *res,
                                 const mlx_stream_thread_local tls)
{
    QN_GET_FAMILY(box, tls);
    qn_backends_need();
    qn_stream *stream;
    QN_CALL(qn_stream_of_family(&stream, box->device, box->family));
    return QN_STORE_STREAM(res, stream);
}

/* ---- properties ---- */

int mlx_stream_tostring(mlx_string *str, mlx_stream stream)
{
    QN_GET_STREAM(s, stream);
    char device[64], text[128];
    qn_device_text(device, sizeof device, qn_stream_device(s));
    int size = snprintf(text, sizeof text, "Stream(%s, %d)", device,
                        qn_stream_index(s));
    return QN_STORE_STRING(str, text, (size_t)size);
}

bool mlx_stream_equal(mlx_stream lhs, mlx_stream rhs)
{
    return qn_handle_stream(lhs) == qn_handle_stream(rhs);
}

int mlx_stream_get_device(mlx_device *dev, mlx_stream stream)
{
    QN_GET_STREAM(s, stream);
    QN_CALL(qn_handle_set_device(dev, qn_stream_device(s)));
    return 0;
}

int mlx_stream_get_index(int *index, mlx_stream stream)
{
    QN_GET_STREAM(s, stream);
    *index = qn_stream_index(s);
    return 0;
}

typedef struct census {
    qn_stream **streams; /* NULL: only count */
    size_t count, room;
} census;

static qn_status count_stream(qn_stream *stream, void *data)
{
    census *c = data;
    if (c->streams && c->count == c->room)
        return QN_OK; /* made since the counting */
    if (c->streams)
        c->streams[c->count] = stream;
    c->count++;
    return QN_OK;
}

int mlx_get_streams(mlx_vector_stream *res)
{
    census all = {0};
    qn_stream_each(count_stream, &all);
    all.room = all.count;
    all.count = 0;
    all.streams = qn_calloc(all.room, sizeof(qn_stream *));
    if (!all.streams)
        return QN_REPORT();
    qn_stream_each(count_stream, &all);
    qn_status status = qn_handle_set_streams(res, all.streams, all.count);
    qn_free(all.streams);
    return QN_STORE(status);
}

/* ---- defaults ---- */

int mlx_get_default_stream(mlx_stream *stream, mlx_device dev)
{
    QN_GET_DEVICE(box, dev);
    QN_CALL(default_stream(stream, box->device));
    return 0;
}

int mlx_set_default_stream(mlx_stream stream)
{
    QN_GET_STREAM(s, stream);
    qn_stream_set_default(s);
    return 0;
}

/* ---- waiting ---- */

int mlx_synchronize(mlx_stream stream)
{
    QN_GET_STREAM(s, stream);
    QN_CALL(qn_stream_synchronize(s));
    return 0;
}

int mlx_synchronize_default(void)
{
    qn_backends_need();
    qn_stream *s;
    QN_CALL(qn_stream_default(&s, qn_device_default()));
    QN_CALL(qn_stream_synchronize(s));
    return 0;
}

int mlx_synchronize_thread_local(mlx_stream_thread_local tls)
{
    QN_GET_FAMILY(box, tls);
    qn_backends_need();
    qn_stream *s;
    QN_CALL(qn_stream_of_family(&s, box->device, box->family));
    QN_CALL(qn_stream_synchronize(s));
    return 0;
}

int mlx_clear_streams(void)
{
    qn_stream_forget();
    return 0;
}
