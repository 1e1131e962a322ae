/* stream.h: bytes that somebody else keeps, to read from or to write to.
 *
 * A stream is a descriptor of its owner's and the functions to work with it:
 * those that a program hands over through the C API, or those of a file
 * (file.h).  It is reference counted, because arrays that are yet to be read
 * hold the stream they come from; when the last reference goes, the owner's
 * `free` is called, once and with no lock of ours held (core/defer.h).
 *
 * Errors are sentences that begin with the kind of stream in brackets. */
#ifndef QN_IO_STREAM_H
#define QN_IO_STREAM_H

#include "base/bytes.h"
#include "base/status.h"

/* The members of the C API's mlx_io_vtable; include/mlx/c/io_types.h says what
 * each does.  One that is NULL counts as failing; `free` may be missing. */
typedef struct qn_io_calls {
    bool (*is_open)(void *desc);
    bool (*good)(void *desc);
    size_t (*tell)(void *desc);
    int (*seek)(void *desc, int64_t off, int whence);
    size_t (*read)(void *desc, char *data, size_t n);
    size_t (*read_at_offset)(void *desc, char *data, size_t n, size_t off);
    size_t (*write)(void *desc, const char *data, size_t n);
    const char *(*label)(void *desc);
    void (*free)(void *desc);
} qn_io_calls;

typedef struct qn_io qn_io;

/* `kind` (a literal) begins the messages: "mlx_io_reader".  The stream owns
 * `desc`, which is freed also when this call fails.  `size` is that of what
 * can be read, SIZE_MAX where nobody knows. */
qn_status qn_io_new(qn_io **out, const char *kind, void *desc,
                    const qn_io_calls *calls, size_t size);
qn_io *qn_io_ref(qn_io *io);
/* NULL is fine. */
void qn_io_unref(qn_io *io);

void *qn_io_descriptor(const qn_io *io);
/* What the owner calls it; never NULL. */
const char *qn_io_label(const qn_io *io);
/* As given to qn_io_new. */
size_t qn_io_known_size(const qn_io *io);

/* QN_E_IO, in the name of `operation`, unless the stream is open and good. */
qn_status qn_io_check(qn_io *io, const char *operation);
/* The position, and the position of the end; the position stays. */
qn_status qn_io_tell(size_t *out, qn_io *io);
qn_status qn_io_end(size_t *out, qn_io *io);
/* n bytes at the position, which moves, or at an offset; QN_E_IO for fewer. */
qn_status qn_io_read(qn_io *io, void *data, size_t n);
qn_status qn_io_read_at(qn_io *io, void *data, size_t n, size_t offset);
qn_status qn_io_write(qn_io *io, const void *data, size_t n);

#endif
