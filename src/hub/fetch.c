/* fetch.c: see fetch.h. */
#include "fetch.h"

#include "base/alloc.h"
#include "base/file.h"
#include "base/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PIECE = 1 << 20 };

/* ---- writing ---- */

static qn_status fail_write(const char *verb, const char *path)
{
    if (errno == ENOSPC || errno == EDQUOT)
        return qn_fail(QN_E_SPACE, "no space left on the disk for %s", path);
    return qn_fail(QN_E_IO, "cannot %s %s: %s", verb, path, strerror(errno));
}

/* How much of `size` bytes at `at` may be written: a test's disk is full
 * early. */
static size_t room_for(uint64_t at, size_t size)
{
#ifdef QUERN_TEST_BUILD
    const char *text = getenv("QUERN_TEST_DISK_FULL_AT");
    if (text && *text) {
        uint64_t limit = strtoull(text, NULL, 10);
        return at >= limit         ? 0
               : limit - at < size ? (size_t)(limit - at)
                                   : size;
    }
#endif
    (void)at;
    return size;
}

static qn_status write_all(qn_fetch *f, const char *bytes, size_t size)
{
    size_t left = room_for(f->done, size);
    bool full = left < size;
    while (left) {
        ssize_t n = pwrite(f->fd, bytes, left, (off_t)f->done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return fail_write("write", f->partial);
        f->done += (uint64_t)n;
        bytes += n;
        left -= (size_t)n;
    }
    if (!full)
        return QN_OK;
    errno = ENOSPC;
    return fail_write("write", f->partial);
}

/* ---- what the bytes must be ---- */

void qn_fetch_digest(qn_digest *digest, const char *hash, uint64_t size)
{
    bool git = strlen(hash) == QN_SHA1_DIGITS;
    qn_digest_begin(digest, git ? QN_SHA1 : QN_SHA256);
    if (git) {
        char head[48];
        int length =
            snprintf(head, sizeof head, "blob %llu", (unsigned long long)size);
        qn_digest_add(digest, head, (size_t)length + 1);
    }
}

/* The front of a safetensors file says whether it can be loaded long before the
 * weights are there. */
static qn_status check_front(qn_fetch *f, const char *bytes, size_t size)
{
    if (f->front_checked)
        return QN_OK;
    size_t wanted = f->front_size ? f->front_size : QN_ST_PREFIX;
    if (f->front.size < wanted) {
        size_t missing = wanted - f->front.size;
        size_t taken = size < missing ? size : missing;
        qn_buf_add(&f->front, bytes, taken);
        bytes += taken;
        size -= taken;
    }
    qn_status status = qn_buf_status(&f->front);
    if (status || f->front.size < wanted)
        return status;
    const uint8_t *data = (const uint8_t *)f->front.data;
    if (!f->front_size) {
        status = qn_st_front_size(&f->front_size, data, (size_t)f->size);
        return status ? status : check_front(f, bytes, size);
    }
    qn_st *st = NULL;
    status = qn_st_parse_front(&st, (qn_bytes){data, f->front.size},
                               (size_t)f->size);
    qn_st_free(st);
    qn_buf_free(&f->front);
    f->front_checked = true;
    return status;
}

/* Takes note of bytes that are in the file. */
static qn_status absorb(qn_fetch *f, const char *bytes, size_t size)
{
    if (f->verify)
        qn_digest_add(&f->digest, bytes, size);
    return check_front(f, bytes, size);
}

static void forget(qn_fetch *f)
{
    f->done = 0;
    f->front_size = 0;
    f->front_checked = !qn_has_suffix(f->name, ".safetensors");
    qn_buf_clear(&f->front);
    qn_fetch_digest(&f->digest, f->hash, f->size);
}

/* What is wrong is not kept. */
static qn_status discard(qn_fetch *f, qn_status status)
{
    unlink(f->partial);
    qn_fetch_close(f);
    return qn_fail_where(status, "%s", f->name);
}

/* ---- steps ---- */

static qn_status take_over(qn_fetch *f, uint64_t size)
{
    char *piece = qn_alloc(PIECE);
    qn_status status = piece ? QN_OK : QN_E_NOMEM;
    while (!status && f->done < size) {
        ssize_t n = pread(f->fd, piece, PIECE, (off_t)f->done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            status = qn_fail(QN_E_IO, "cannot read %s: %s", f->partial,
                             n ? strerror(errno) : "it became shorter");
            break;
        }
        status = absorb(f, piece, (size_t)n);
        f->done += (uint64_t)n;
        if (status == QN_E_FORMAT || status == QN_E_UNSUPPORTED)
            status = discard(f, status);
        else if (!status && f->tick)
            status = f->tick(f->tick_data);
    }
    qn_free(piece);
    return status;
}

qn_status qn_fetch_open(qn_fetch *f)
{
    struct stat info;
    forget(f);
    f->fd = open(f->partial, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (f->fd < 0)
        return fail_write("open", f->partial);
    if (fstat(f->fd, &info) || !S_ISREG(info.st_mode))
        return qn_fail(QN_E_IO, "%s is no regular file", f->partial);
    uint64_t size = (uint64_t)info.st_size;
    return size > f->size ? qn_fetch_restart(f) : take_over(f, size);
}

qn_status qn_fetch_restart(qn_fetch *f)
{
    forget(f);
    return ftruncate(f->fd, 0) ? fail_write("empty", f->partial) : QN_OK;
}

qn_status qn_fetch_add(qn_fetch *f, const void *bytes, size_t size)
{
    if (size > f->size - f->done)
        return discard(f, qn_fail(QN_E_INTEGRITY,
                                  "expected %llu bytes, but more come",
                                  (unsigned long long)f->size));
    uint64_t before = f->done;
    qn_status written = write_all(f, bytes, size);
    qn_status status = absorb(f, bytes, (size_t)(f->done - before));
    if (status == QN_E_FORMAT || status == QN_E_UNSUPPORTED)
        return discard(f, status);
    return written ? written : status;
}

static qn_status compare(qn_fetch *f)
{
    char found[QN_DIGEST_SIZE];
    if (!f->verify || !*f->hash)
        return QN_OK;
    qn_digest_end(&f->digest, found);
    if (!strcmp(found, f->hash))
        return QN_OK;
    return qn_fail(QN_E_INTEGRITY, "expected the %s %s, found %s",
                   strlen(f->hash) == QN_SHA1_DIGITS ? "git digest" : "SHA-256",
                   f->hash, found);
}

qn_status qn_fetch_finish(qn_fetch *f)
{
    qn_status status = compare(f);
    if (!status && !f->front_checked)
        status = qn_fail(QN_E_FORMAT, "safetensors: expected a header, found "
                                      "the end of the file");
    if (status)
        return discard(f, status);
    if (fsync(f->fd))
        return fail_write("write", f->partial);
    int fd = f->fd;
    f->fd = -1;
    if (close(fd))
        return fail_write("write", f->partial);
    if (rename(f->partial, f->target))
        return fail_write("name", f->target);
    return QN_OK;
}

void qn_fetch_close(qn_fetch *f)
{
    if (f->fd >= 0)
        close(f->fd);
    f->fd = -1;
    qn_buf_free(&f->front);
}

bool qn_fetch_is_there(const qn_fetch *f, const char *path)
{
    struct stat info;
    if (stat(path, &info) || !S_ISREG(info.st_mode) ||
        (uint64_t)info.st_size != f->size)
        return false;
    if (!f->verify || !*f->hash)
        return true;
    qn_error kept;
    qn_error_save(&kept);
    qn_fetch same = *f;
    same.partial = path;
    same.done = 0;
    same.front = QN_BUF_INIT;
    same.front_checked = true;
    same.fd = open(path, O_RDONLY | O_CLOEXEC);
    qn_fetch_digest(&same.digest, f->hash, f->size);
    bool good = same.fd >= 0 && !take_over(&same, f->size) && !compare(&same);
    qn_fetch_close(&same);
    qn_error_restore(&kept);
    return good;
}
