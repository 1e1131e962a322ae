/* stream.c: see stream.h. */
#include "stream.h"

#include "base/alloc.h"
#include "core/defer.h"

#include <stdatomic.h>
#include <stdio.h>

struct qn_io {
    atomic_uint refs;
    const char *kind;
    void *desc;
    qn_io_calls calls;
    size_t size;
    qn_deferred deferred;
};

static void destroy(qn_deferred *item)
{
    qn_io *io = (qn_io *)((char *)item - offsetof(qn_io, deferred));
    if (io->calls.free)
        io->calls.free(io->desc);
    qn_free(io);
}

qn_status qn_io_new(qn_io **out, const char *kind, void *desc,
                    const qn_io_calls *calls, size_t size)
{
    qn_io *io = qn_alloc(sizeof *io);
    if (!io) {
        qn_error error;
        qn_error_save(&error);
        if (calls->free)
            calls->free(desc);
        qn_error_restore(&error);
        return QN_E_NOMEM;
    }
    atomic_init(&io->refs, 1);
    io->kind = kind;
    io->desc = desc;
    io->calls = *calls;
    io->size = size;
    io->deferred.run = destroy;
    *out = io;
    return QN_OK;
}

qn_io *qn_io_ref(qn_io *io)
{
    atomic_fetch_add_explicit(&io->refs, 1, memory_order_relaxed);
    return io;
}

void qn_io_unref(qn_io *io)
{
    if (io &&
        atomic_fetch_sub_explicit(&io->refs, 1, memory_order_acq_rel) == 1)
        qn_defer(&io->deferred);
}

void *qn_io_descriptor(const qn_io *io)
{
    return io->desc;
}

const char *qn_io_label(const qn_io *io)
{
    const char *label = io->calls.label ? io->calls.label(io->desc) : NULL;
    return label ? label : "a stream without a name";
}

size_t qn_io_known_size(const qn_io *io)
{
    return io->size;
}

qn_status qn_io_check(qn_io *io, const char *operation)
{
    if (io->calls.is_open && io->calls.is_open(io->desc) && io->calls.good &&
        io->calls.good(io->desc))
        return QN_OK;
    return qn_fail(QN_E_IO, "[%s] Failed to open %s: the stream is not open",
                   operation, qn_io_label(io));
}

/* ---- positions ---- */

static qn_status seek(qn_io *io, int64_t off, int whence)
{
    if (io->calls.seek && io->calls.seek(io->desc, off, whence) >= 0)
        return QN_OK;
    return qn_fail(QN_E_IO, "[%s] unable to seek in %s", io->kind,
                   qn_io_label(io));
}

qn_status qn_io_tell(size_t *out, qn_io *io)
{
    /* Seeking back takes a signed offset. */
    size_t at = io->calls.tell ? io->calls.tell(io->desc) : SIZE_MAX;
    if (at > INT64_MAX)
        return qn_fail(QN_E_IO, "[%s] unable to tell the position in %s",
                       io->kind, qn_io_label(io));
    *out = at;
    return QN_OK;
}

qn_status qn_io_end(size_t *out, qn_io *io)
{
    size_t at, end;
    qn_status status = qn_io_tell(&at, io);
    if (!status)
        status = seek(io, 0, SEEK_END);
    if (!status)
        status = qn_io_tell(&end, io);
    if (!status)
        status = seek(io, (int64_t)at, SEEK_SET);
    if (!status)
        *out = end;
    return status;
}

/* ---- bytes ---- */

static qn_status check_read(const qn_io *io, size_t n, size_t got)
{
    if (got == n)
        return QN_OK;
    return qn_fail(QN_E_IO,
                   "[%s] unable to read %zu bytes (read %zu instead) "
                   "in %s",
                   io->kind, n, got, qn_io_label(io));
}

qn_status qn_io_read(qn_io *io, void *data, size_t n)
{
    if (!n)
        return QN_OK;
    return check_read(io, n,
                      io->calls.read ? io->calls.read(io->desc, data, n) : 0);
}

qn_status qn_io_read_at(qn_io *io, void *data, size_t n, size_t offset)
{
    if (!n)
        return QN_OK;
    return check_read(io, n,
                      io->calls.read_at_offset
                          ? io->calls.read_at_offset(io->desc, data, n, offset)
                          : 0);
}

qn_status qn_io_write(qn_io *io, const void *data, size_t n)
{
    if (!n)
        return QN_OK;
    size_t put = io->calls.write ? io->calls.write(io->desc, data, n) : 0;
    if (put == n)
        return QN_OK;
    return qn_fail(QN_E_IO,
                   "[%s] unable to write %zu bytes (wrote %zu "
                   "instead) in %s",
                   io->kind, n, put, qn_io_label(io));
}
