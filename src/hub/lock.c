/* lock.c: see lock.h. */
#include "lock.h"

#include "base/alloc.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static char *lock_path(const qn_hub *hub, const char *id, qn_lock_kind kind)
{
    qn_buf path = QN_BUF_INIT;
    qn_buf_printf(&path, "%s/.locks/models--", hub->root);
    for (const char *p = id; *p; p++)
        qn_buf_add_text(&path, *p == '/' ? "--" : (char[]){*p, '\0'});
    qn_buf_printf(&path, "/%s.lock", kind == QN_LOCK_USE ? "use" : "quern");
    return qn_buf_take(&path);
}

qn_status qn_make_parents(const char *path)
{
    char *copy = qn_strdup(path);
    if (!copy)
        return QN_E_NOMEM;
    qn_status status = QN_OK;
    for (char *p = copy + 1; !status && (p = strchr(p, '/')); p++) {
        *p = '\0';
        if (mkdir(copy, 0777) && errno != EEXIST)
            status =
                qn_fail(errno == ENOSPC ? QN_E_SPACE : QN_E_IO,
                        "cannot make the folder %s: %s", copy, strerror(errno));
        *p = '/';
    }
    qn_free(copy);
    return status;
}

/* Opens or makes the file; a new one has the time 0, for it says when a model
 * was used. */
static int open_lock(const char *path)
{
    static const struct timespec never[2];
    int fd;
    do {
        fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd >= 0)
            futimens(fd, never);
        else if (errno == EEXIST)
            fd = open(path, O_RDWR | O_CLOEXEC);
    } while (fd < 0 && errno == EINTR);
    return fd;
}

/* False when somebody else has it.  A file system that has no locks grants
 * every one. */
static bool take(int fd, int how)
{
    int rc;
    do
        rc = flock(fd, how | LOCK_NB);
    while (rc && errno == EINTR);
    return !rc || errno != EWOULDBLOCK;
}

qn_status qn_lock_file(int *out, const char *path)
{
    qn_status status = qn_make_parents(path);
    if (status)
        return status;
    int fd = open_lock(path);
    if (fd < 0)
        return qn_fail(QN_E_IO, "cannot open %s: %s", path, strerror(errno));
    if (!take(fd, LOCK_EX)) {
        close(fd);
        fd = -1;
    }
    *out = fd;
    return QN_OK;
}

qn_status qn_lock_try(int *fd, const qn_hub *hub, const char *id,
                      qn_lock_kind kind)
{
    char *path = lock_path(hub, id, kind);
    qn_status status = path ? qn_lock_file(fd, path) : QN_E_NOMEM;
    qn_free(path);
    return status;
}

void qn_lock_drop(int fd)
{
    if (fd >= 0)
        close(fd);
}

/* The id of the model that the resolved `path` belongs to, or NULL. */
static char *id_of_path(const char *root, const char *path)
{
    size_t size = strlen(root);
    if (strncmp(path, root, size) != 0 || path[size] != '/')
        return NULL;
    const char *name = path + size + 1;
    char *id = qn_strndup(name, strcspn(name, "/"));
    if (id && !qn_cache_id(id)) {
        qn_free(id);
        id = NULL;
    }
    return id;
}

int qn_lock_use(const qn_hub *hub, const char *path)
{
    char *root = realpath(hub->root, NULL), *real = realpath(path, NULL);
    char *id = root && real ? id_of_path(root, real) : NULL;
    char *name = id ? lock_path(hub, id, QN_LOCK_USE) : NULL;
    int fd = -1;
    qn_error kept;
    qn_error_save(&kept);
    if (name && !qn_make_parents(name))
        fd = open_lock(name);
    qn_error_restore(&kept);
    /* Whoever has it alone is about to remove the model: too late to object. */
    if (fd >= 0 && take(fd, LOCK_SH))
        futimens(fd, NULL);
    qn_free(name);
    qn_free(id);
    free(real);
    free(root);
    return fd;
}

int64_t qn_lock_last_use(const qn_hub *hub, const char *id)
{
    struct stat info;
    char *path = lock_path(hub, id, QN_LOCK_USE);
    int64_t last = path && !stat(path, &info) ? (int64_t)info.st_mtime : 0;
    qn_free(path);
    return last;
}
