/* file.c: mapping, reading and atomically replacing files.
 *
 * A mapping is private and read-only; its descriptor is closed at once.  New
 * contents go to a sibling with a random name, so a crash leaves the old file
 * or the new one, never half of either. */
#include "file.h"

#include "alloc.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

struct qn_file {
    atomic_size_t refs;
    qn_bytes bytes;
    char path[];
};

/* Records what errno says about `path`; errno stays. */
static qn_status fail_errno(const char *verb, const char *path)
{
    int error = errno;
    qn_status code = error == ENOENT || error == ENOTDIR ? QN_E_NOTFOUND
                     : error == ENOMEM                   ? QN_E_NOMEM
                                                         : QN_E_IO;
    qn_fail(code, "cannot %s: %s", verb, strerror(error));
    qn_fail_where(code, "%s", path);
    errno = error;
    return code;
}

static int open_read(const char *path, int more_flags)
{
    int fd;
    do
        fd = open(path, O_RDONLY | O_CLOEXEC | more_flags);
    while (fd < 0 && errno == EINTR);
    return fd;
}

static qn_status check_regular(const struct stat *info, const char *path)
{
    if (S_ISREG(info->st_mode))
        return QN_OK;
    qn_fail(QN_E_IO, "expected a regular file, found %s",
            S_ISDIR(info->st_mode)    ? "a directory"
            : S_ISFIFO(info->st_mode) ? "a pipe"
            : S_ISSOCK(info->st_mode) ? "a socket"
                                      : "a device");
    return qn_fail_where(QN_E_IO, "%s", path);
}

qn_status qn_file_check(const char *path)
{
    struct stat info;
    if (!stat(path, &info))
        return check_regular(&info, path);
    if (errno != ENOENT && errno != ENOTDIR)
        return fail_errno("open", path);
    qn_fail(QN_E_NOTFOUND, "no such file");
    return qn_fail_where(QN_E_NOTFOUND, "%s", path);
}

/* ---- mapping ---- */

static qn_status map_fd(qn_file *file, int fd)
{
    struct stat info;
    if (fstat(fd, &info))
        return fail_errno("examine", file->path);
    qn_status status = check_regular(&info, file->path);
    if (status)
        return status;
    if ((uintmax_t)info.st_size > SIZE_MAX) {
        qn_fail(QN_E_IO, "cannot map: its %jd bytes exceed the address space",
                (intmax_t)info.st_size);
        return qn_fail_where(QN_E_IO, "%s", file->path);
    }
    size_t size = (size_t)info.st_size;
    if (!size) {
        /* mmap takes no empty range; the bytes of an empty file are a
         * pointer that nobody may read from. */
        file->bytes = (qn_bytes){(const uint8_t *)"", 0};
        return QN_OK;
    }
    void *data = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (data == MAP_FAILED)
        return fail_errno("map", file->path);
    file->bytes = (qn_bytes){data, size};
    return QN_OK;
}

qn_status qn_file_map(qn_file **out, const char *path)
{
    size_t length = strlen(path);
    qn_file *file = qn_alloc(sizeof *file + length + 1);
    if (!file)
        return QN_E_NOMEM;
    atomic_init(&file->refs, 1);
    file->bytes = (qn_bytes){0};
    memcpy(file->path, path, length + 1);

    /* Non-blocking: opening a pipe without a writer must not hang. */
    int fd = open_read(path, O_NONBLOCK);
    qn_status status = fd < 0 ? fail_errno("open", path) : map_fd(file, fd);
    if (fd >= 0)
        close(fd);
    if (status)
        qn_free(file);
    else
        *out = file;
    return status;
}

qn_file *qn_file_ref(qn_file *file)
{
    atomic_fetch_add_explicit(&file->refs, 1, memory_order_relaxed);
    return file;
}

void qn_file_unref(qn_file *file)
{
    if (!file ||
        atomic_fetch_sub_explicit(&file->refs, 1, memory_order_acq_rel) != 1)
        return;
    if (file->bytes.size)
        munmap((void *)(uintptr_t)file->bytes.data, file->bytes.size);
    qn_free(file);
}

qn_bytes qn_file_bytes(const qn_file *file)
{
    return file->bytes;
}

const char *qn_file_path(const qn_file *file)
{
    return file->path;
}

/* madvise on [offset, offset + size) cut to the file.  `inner`: only pages
 * that lie in the range whole. */
static void advise(const qn_file *file, size_t offset, size_t size, int advice,
                   bool inner)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if (offset >= file->bytes.size)
        return;
    if (size > file->bytes.size - offset)
        size = file->bytes.size - offset;
    size_t begin = offset, end = offset + size;
    if (inner) {
        begin = begin % page ? begin - begin % page + page : begin;
        if (end < file->bytes.size)
            end -= end % page;
    } else {
        begin -= begin % page;
    }
    /* Advice only: a kernel that refuses changes nothing. */
    if (begin < end)
        madvise((void *)((uintptr_t)file->bytes.data + begin), end - begin,
                advice);
}

void qn_file_will_need(const qn_file *file, size_t offset, size_t size)
{
    advise(file, offset, size, MADV_WILLNEED, false);
}

void qn_file_dont_need(const qn_file *file, size_t offset, size_t size)
{
    advise(file, offset, size, MADV_DONTNEED, true);
}

/* ---- reading ---- */

/* Reads to the end rather than asking for the size: files below /proc and
 * pipes have none. */
static qn_status read_all(char **out, size_t *out_size, int fd,
                          const char *path, size_t limit)
{
    struct stat info;
    size_t capacity = 4096, size = 0;
    if (!fstat(fd, &info) && S_ISREG(info.st_mode) && info.st_size > 0 &&
        (uintmax_t)info.st_size <= limit)
        capacity = (size_t)info.st_size + 2; /* the NUL, and to see the end */
    char *data = qn_alloc(capacity);
    qn_status status = data ? QN_OK : QN_E_NOMEM;
    while (!status) {
        if (size + 1 >= capacity) {
            char *larger = qn_reallocarray(data, capacity, 2);
            if (!larger) {
                status = QN_E_NOMEM;
                break;
            }
            data = larger;
            capacity *= 2;
        }
        ssize_t got = read(fd, data + size, capacity - size - 1);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            status = fail_errno("read", path);
        else
            size += (size_t)got;
        if (got == 0)
            break;
        if (!status && size > limit) {
            qn_fail(QN_E_FORMAT,
                    "too large: expected at most %zu bytes, found more", limit);
            status = qn_fail_where(QN_E_FORMAT, "%s", path);
        }
    }
    if (status) {
        qn_free(data);
        return status;
    }
    data[size] = '\0';
    *out = data;
    if (out_size)
        *out_size = size;
    return QN_OK;
}

static qn_status read_file(char **out, size_t *size, const char *path,
                           size_t limit, bool regular)
{
    struct stat info;
    int fd = open_read(path, regular ? O_NONBLOCK : 0);
    if (fd < 0)
        return fail_errno("open", path);
    qn_status status = QN_OK;
    if (regular && fstat(fd, &info))
        status = fail_errno("examine", path);
    else if (regular)
        status = check_regular(&info, path);
    if (!status)
        status = read_all(out, size, fd, path, limit);
    close(fd);
    return status;
}

qn_status qn_file_read(char **out, size_t *size, const char *path, size_t limit)
{
    return read_file(out, size, path, limit, true);
}

qn_status qn_file_read_any(char **out, size_t *size, const char *path,
                           size_t limit)
{
    return read_file(out, size, path, limit, false);
}

/* ---- writing ---- */

static bool write_all(int fd, const char *data, size_t size)
{
    while (size) {
        ssize_t put = write(fd, data, size);
        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0)
            return false;
        data += put;
        size -= (size_t)put;
    }
    return true;
}

struct qn_file_writer {
    int fd;
    char *path; /* these two follow in the same block */
    char *sibling;
};

/* Opens a new file beside the path.  Its mode follows the umask (mkstemp's 0600
 * would stay after the rename). */
static int open_sibling(char *name, size_t name_size, const char *path)
{
    for (int tries = 0; tries < 100; tries++) {
        uint64_t random;
        if (getentropy(&random, sizeof random))
            random = ((uint64_t)getpid() << 8) + (uint64_t)tries;
        snprintf(name, name_size, "%s.%016" PRIx64 ".tmp", path, random);
        int fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd >= 0 || (errno != EEXIST && errno != EINTR))
            return fd;
    }
    return -1;
}

/* Makes the rename itself survive a power cut.  `name` is a file in the
 * directory and is cut to it.  Some file systems cannot sync a directory; the
 * contents are safe there all the same. */
static void sync_directory_of(char *name)
{
    char *slash = strrchr(name, '/');
    if (slash)
        slash[slash == name] = '\0'; /* the root keeps its slash */
    int fd = open(slash ? name : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) {
        fsync(fd);
        close(fd);
    }
}

/* A rename would put a file in the place of /dev/null, or of a link to it. */
static qn_status check_target(const char *path)
{
    struct stat info;
    if (stat(path, &info) || S_ISREG(info.st_mode))
        return QN_OK;
    if (S_ISDIR(info.st_mode)) {
        errno = EISDIR;
        return fail_errno("replace", path);
    }
    return check_regular(&info, path);
}

qn_status qn_file_begin(qn_file_writer **out, const char *path)
{
    qn_status status = check_target(path);
    if (status)
        return status;
    size_t length = strlen(path) + 1, sibling_size = length + 32;
    qn_file_writer *w = qn_alloc(sizeof *w + length + sibling_size);
    if (!w)
        return QN_E_NOMEM;
    w->path = (char *)(w + 1);
    w->sibling = w->path + length;
    memcpy(w->path, path, length);
    w->fd = open_sibling(w->sibling, sibling_size, path);
    if (w->fd < 0) {
        status = fail_errno("create", path);
        qn_free(w);
        return status;
    }
    struct stat info;
    /* A refusal (a file system without modes) changes no contents. */
    if (!lstat(path, &info) && S_ISREG(info.st_mode))
        (void)!fchmod(w->fd, info.st_mode & 0777);
    *out = w;
    return QN_OK;
}

qn_status qn_file_try(const char *path)
{
    qn_file_writer *w;
    qn_status status = qn_file_begin(&w, path);
    if (!status)
        qn_file_abort(w);
    return status;
}

qn_status qn_file_append(qn_file_writer *w, const void *data, size_t size)
{
    return write_all(w->fd, data, size) ? QN_OK : fail_errno("write", w->path);
}

qn_status qn_file_commit(qn_file_writer *w)
{
    qn_status status = fsync(w->fd) ? fail_errno("write", w->path) : QN_OK;
    /* close may report a delayed write error (network file systems). */
    if (close(w->fd) && !status)
        status = fail_errno("write", w->path);
    if (!status && rename(w->sibling, w->path))
        status = fail_errno("replace", w->path);
    if (status)
        unlink(w->sibling);
    else
        sync_directory_of(w->sibling);
    qn_free(w);
    return status;
}

void qn_file_abort(qn_file_writer *w)
{
    if (!w)
        return;
    close(w->fd);
    unlink(w->sibling);
    qn_free(w);
}

qn_status qn_file_write_atomic(const char *path, const void *data, size_t size)
{
    qn_file_writer *w;
    qn_status status = qn_file_begin(&w, path);
    if (status)
        return status;
    status = qn_file_append(w, data, size);
    if (status) {
        qn_file_abort(w);
        return status;
    }
    return qn_file_commit(w);
}

/* ---- paths ---- */

bool qn_path_exists(const char *path)
{
    struct stat info;
    return !stat(path, &info);
}

bool qn_path_is_dir(const char *path)
{
    struct stat info;
    return !stat(path, &info) && S_ISDIR(info.st_mode);
}

char *qn_path_join(const char *dir, const char *name)
{
    size_t dir_size = strlen(dir), name_size = strlen(name);
    bool slash = dir_size && dir[dir_size - 1] != '/';
    char *path = qn_alloc(dir_size + slash + name_size + 1);
    if (!path)
        return NULL;
    memcpy(path, dir, dir_size);
    if (slash)
        path[dir_size] = '/';
    memcpy(path + dir_size + slash, name, name_size + 1);
    return path;
}
