/* file.c: see file.h.
 *
 * Reading is by offset: two threads that evaluate arrays of one file one after
 * the other find no position that the other has left behind. */
#include "file.h"

#include "base/alloc.h"
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct file {
    int fd; /* -1: none */
    /* Reading: */
    size_t size, position;
    /* Writing to a new file; NULL: directly. */
    qn_file_writer *writer;
    int error; /* errno of a write that failed */
    char path[];
} file;

static bool is_fine(void *desc)
{
    const file *f = desc;
    return f->fd >= 0 || f->writer;
}

static const char *label(void *desc)
{
    return ((const file *)desc)->path;
}

static void destroy(void *desc)
{
    file *f = desc;
    qn_file_abort(f->writer);
    if (f->fd >= 0)
        close(f->fd);
    qn_free(f);
}

static file *new_file(const char *path)
{
    size_t size = strlen(path) + 1;
    file *f = qn_calloc(1, sizeof *f + size);
    if (!f)
        return NULL;
    f->fd = -1;
    memcpy(f->path, path, size);
    return f;
}

static qn_status fail_open(const char *operation, const char *path)
{
    int error = errno;
    return qn_fail(
        error == ENOENT || error == ENOTDIR ? QN_E_NOTFOUND : QN_E_IO,
        "[%s] Failed to open file %s: %s", operation, path, strerror(error));
}

/* ---- reading ---- */

static size_t tell(void *desc)
{
    return ((const file *)desc)->position;
}

static int seek(void *desc, int64_t off, int whence)
{
    file *f = desc;
    int64_t from = whence == SEEK_SET   ? 0
                   : whence == SEEK_CUR ? (int64_t)f->position
                                        : (int64_t)f->size;
    if (off < -from || off > INT64_MAX - from)
        return -1;
    f->position = (size_t)(from + off);
    return 0;
}

static size_t read_at_offset(void *desc, char *data, size_t n, size_t off)
{
    const file *f = desc;
    size_t done = 0;
    while (done < n && off + done <= INT64_MAX) {
        ssize_t got = pread(f->fd, data + done, n - done, (off_t)(off + done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        done += (size_t)got;
    }
    return done;
}

static size_t read_on(void *desc, char *data, size_t n)
{
    file *f = desc;
    size_t got = read_at_offset(f, data, n, f->position);
    f->position += got;
    return got;
}

qn_status qn_io_open(qn_io **out, const char *operation, const char *path)
{
    file *f = new_file(path);
    if (!f)
        return QN_E_NOMEM;
    /* Non-blocking: opening a pipe without a writer must not hang. */
    do
        f->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    while (f->fd < 0 && errno == EINTR);
    struct stat info;
    qn_status status = QN_OK;
    if (f->fd < 0 || fstat(f->fd, &info))
        status = fail_open(operation, path);
    else if (!S_ISREG(info.st_mode))
        status =
            qn_fail(QN_E_IO,
                    "[%s] Failed to open file %s: expected a "
                    "regular file, found %s",
                    operation, path,
                    S_ISDIR(info.st_mode) ? "a directory" : "something else");
    if (status) {
        destroy(f);
        return status;
    }
    f->size = (size_t)info.st_size;
    static const qn_io_calls calls = {
        .is_open = is_fine,
        .good = is_fine,
        .tell = tell,
        .seek = seek,
        .read = read_on,
        .read_at_offset = read_at_offset,
        .label = label,
        .free = destroy,
    };
    return qn_io_new(out, "read", f, &calls, f->size);
}

qn_status qn_io_map(qn_bytes *out, const qn_io *io)
{
    const file *f = qn_io_descriptor(io);
    *out = (qn_bytes){(const uint8_t *)"", 0};
    if (!f->size)
        return QN_OK; /* mmap takes no empty range */
    void *data = mmap(NULL, f->size, PROT_READ, MAP_PRIVATE, f->fd, 0);
    if (data == MAP_FAILED)
        return qn_fail(errno == ENOMEM ? QN_E_NOMEM : QN_E_IO,
                       "[read] cannot map %s: %s", f->path, strerror(errno));
    *out = (qn_bytes){data, f->size};
    return QN_OK;
}

void qn_io_unmap(qn_bytes map)
{
    if (map.size)
        munmap((void *)(uintptr_t)map.data, map.size);
}

/* ---- writing ---- */

static size_t write_on(void *desc, const char *data, size_t n)
{
    file *f = desc;
    if (f->writer) {
        bool ok = !qn_file_append(f->writer, data, n);
        f->error = ok ? f->error : errno;
        return ok ? n : 0;
    }
    size_t done = 0;
    while (done < n) {
        ssize_t put = write(f->fd, data + done, n - done);
        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0) {
            f->error = errno;
            break;
        }
        done += (size_t)put;
    }
    return done;
}

/* Opens what is there and no regular file, or a sibling of the file that the
 * links of `path` end at. */
static qn_status open_target(file *f, const char *operation)
{
    struct stat info;
    bool there = !stat(f->path, &info);
    if (there && !S_ISREG(info.st_mode)) {
        f->fd = open(f->path, O_WRONLY | O_CLOEXEC);
        return f->fd < 0 ? fail_open(operation, f->path) : QN_OK;
    }
    char *target = there ? realpath(f->path, NULL) : NULL;
    qn_status status = qn_file_begin(&f->writer, target ? target : f->path);
    free(target);
    if (status && status != QN_E_NOMEM) {
        qn_error error;
        qn_error_save(&error);
        qn_fail(status, "[%s] Failed to open file %s: %s", operation, f->path,
                error.text);
    }
    return status;
}

qn_status qn_io_create(qn_io **out, const char *operation, const char *path)
{
    file *f = new_file(path);
    if (!f)
        return QN_E_NOMEM;
    qn_status status = open_target(f, operation);
    if (status) {
        destroy(f);
        return status;
    }
    static const qn_io_calls calls = {
        .is_open = is_fine,
        .good = is_fine,
        .write = write_on,
        .label = label,
        .free = destroy,
    };
    return qn_io_new(out, "write", f, &calls, SIZE_MAX);
}

qn_status qn_io_commit(qn_io *io, qn_status status)
{
    file *f = qn_io_descriptor(io);
    if (status && f->error)
        qn_fail(status, "[write] unable to write %s: %s", f->path,
                strerror(f->error));
    if (!status && f->writer) {
        status = qn_file_commit(f->writer);
        f->writer = NULL;
    }
    qn_io_unref(io);
    return status;
}
