/* stream.c: the list of streams, defaults of threads, kept errors.
 *
 * The list only grows, so it is walked without a lock. */
#include "stream.h"

#include "async.h"
#include "base/alloc.h"
#include "eval.h"
#include "lock.h"

#include <stdatomic.h>
#include <string.h>

struct qn_stream {
    qn_device device;
    int index;
    uint64_t family, thread; /* family 0: none */
    _Atomic(qn_stream *) next;
    /* Set under QN_LOCK_STREAM: */
    _Atomic(qn_status) kept;
    qn_error *error; /* NULL with `kept` set: no memory for the text */
};

enum { DEVICE_TYPES = QN_DEVICE_GPU + 1 };

static _Atomic(qn_stream *) first;
static qn_stream *last; /* under QN_LOCK_STREAM */
static atomic_int default_device;

/* Threads are told apart by numbers, never used twice. */
static _Thread_local uint64_t thread_number;
static _Thread_local qn_stream *defaults[DEVICE_TYPES];

static uint64_t next_number(void)
{
    static atomic_uint_fast64_t numbers;
    return atomic_fetch_add(&numbers, 1) + 1;
}

static uint64_t this_thread(void)
{
    if (!thread_number)
        thread_number = next_number();
    return thread_number;
}

/* ---- making and finding ---- */

bool qn_device_usable(qn_device device)
{
    return (unsigned)device.type < DEVICE_TYPES && device.index == 0 &&
           qn_backend_of(device.type);
}

/* Says that `what` can't be had: with "default stream", "[default_stream]
 * Cannot get gpu default stream without gpu backend." */
static qn_status no_device(const char *function, const char *verb,
                           const char *what, qn_device device)
{
    const char *type = device.type == QN_DEVICE_GPU ? "gpu" : "cpu";
    if (device.index)
        return qn_fail(QN_E_ARG, "[%s] There is no device (%s, %d).", function,
                       type, device.index);
    return qn_fail(QN_E_ARG, "[%s] Cannot %s %s %s without %s backend.",
                   function, verb, type, what, type);
}

static qn_status make(qn_stream **out, qn_device device, uint64_t family)
{
    if (!qn_device_usable(device))
        return no_device("new_stream", "make", "stream", device);
    qn_stream *s = qn_calloc(1, sizeof *s);
    if (!s)
        return QN_E_NOMEM;
    s->device = device;
    s->family = family;
    s->thread = this_thread();
    atomic_init(&s->next, NULL);
    qn_lock(QN_LOCK_STREAM);
    s->index = last ? last->index + 1 : 0;
    if (last)
        atomic_store_explicit(&last->next, s, memory_order_release);
    else
        atomic_store_explicit(&first, s, memory_order_release);
    last = s;
    qn_unlock(QN_LOCK_STREAM);
    *out = s;
    return QN_OK;
}

qn_status qn_stream_new(qn_stream **out, qn_device device)
{
    return make(out, device, 0);
}

qn_device qn_stream_device(const qn_stream *stream)
{
    return stream->device;
}

int qn_stream_index(const qn_stream *stream)
{
    return stream->index;
}

static qn_stream *successor(qn_stream *stream)
{
    return atomic_load_explicit(&stream->next, memory_order_acquire);
}

qn_status qn_stream_each(qn_status (*visit)(qn_stream *stream, void *data),
                         void *data)
{
    qn_status status = QN_OK;
    for (qn_stream *s = atomic_load_explicit(&first, memory_order_acquire);
         s && !status; s = successor(s))
        status = visit(s, data);
    return status;
}

/* ---- defaults ---- */

qn_status qn_stream_default(qn_stream **out, qn_device device)
{
    if (!qn_device_usable(device))
        return no_device("default_stream", "get", "default stream", device);
    qn_stream **slot = &defaults[device.type];
    if (!*slot) {
        qn_status status = make(slot, device, 0);
        if (status)
            return status;
    }
    *out = *slot;
    return QN_OK;
}

void qn_stream_set_default(qn_stream *stream)
{
    defaults[stream->device.type] = stream;
}

uint64_t qn_stream_new_family(void)
{
    return next_number();
}

typedef struct member {
    uint64_t family, thread;
    qn_stream *found;
} member;

static qn_status find_member(qn_stream *stream, void *data)
{
    member *m = data;
    if (stream->family == m->family && stream->thread == m->thread)
        m->found = stream;
    return QN_OK;
}

qn_status qn_stream_of_family(qn_stream **out, qn_device device,
                              uint64_t family)
{
    member m = {.family = family, .thread = this_thread()};
    qn_stream_each(find_member, &m);
    if (!m.found)
        return make(out, device, family);
    *out = m.found;
    return QN_OK;
}

void qn_stream_forget(void)
{
    qn_async_wait();
    memset(defaults, 0, sizeof defaults);
    /* Streams of families carry the old number. */
    thread_number = 0;
}

qn_device qn_device_default(void)
{
    return (qn_device){.type = (qn_device_type)atomic_load(&default_device)};
}

qn_status qn_device_set_default(qn_device device)
{
    if (!qn_device_usable(device))
        return no_device("set_default_device", "set", "device", device);
    atomic_store(&default_device, (int)device.type);
    return QN_OK;
}

/* ---- waiting and errors ---- */

qn_status qn_stream_synchronize(qn_stream *stream)
{
    qn_async_wait();
    qn_status status = qn_stream_take_error(stream);
    const qn_backend *backend = qn_backend_of(stream->device.type);
    if (!status && backend->synchronize)
        status = backend->synchronize(stream);
    return status;
}

void qn_stream_keep_error(qn_stream *stream, qn_status status)
{
    qn_error *error = qn_alloc(sizeof *error);
    if (error)
        qn_error_save(error);
    qn_lock(QN_LOCK_STREAM);
    bool keep = !atomic_load(&stream->kept);
    if (keep) {
        stream->error = error;
        atomic_store(&stream->kept, status);
    }
    qn_unlock(QN_LOCK_STREAM);
    if (!keep)
        qn_free(error);
}

qn_status qn_stream_take_error(qn_stream *stream)
{
    if (!atomic_load(&stream->kept))
        return QN_OK;
    qn_lock(QN_LOCK_STREAM);
    qn_status status = atomic_exchange(&stream->kept, QN_OK);
    qn_error *error = stream->error;
    stream->error = NULL;
    qn_unlock(QN_LOCK_STREAM);
    if (error)
        qn_error_restore(error);
    else if (status)
        qn_fail(status, "[async_eval] failed; no memory was left to say why");
    qn_free(error);
    return status;
}
