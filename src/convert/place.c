/* place.c: the destination of a conversion.
 *
 * Everything is written into a sibling and renamed at the end, so that a
 * failure leaves nothing and what was there before stays whole until then.  It
 * is locked as long as it is written: what a process that was killed has left
 * is not, and goes when the same destination is written the next time. */
#include "convert.h"

#include "base/alloc.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

static qn_status fail_errno(const char *verb, const char *path)
{
    int error = errno;
    qn_status code = error == ENOSPC || error == EDQUOT ? QN_E_SPACE : QN_E_IO;
    qn_fail(code, "cannot %s: %s", verb, strerror(error));
    return qn_fail_where(code, "%s", path);
}

/* A copy without slashes at the end. */
static char *trimmed(const char *path)
{
    size_t size = strlen(path);
    while (size > 1 && path[size - 1] == '/')
        size--;
    return qn_strndup(path, size);
}

/* The folder that holds `path`, with its links followed. */
static bool parent_of(char out[PATH_MAX], const char *path)
{
    const char *slash = strrchr(path, '/');
    char *dir = !slash          ? qn_strdup(".")
                : slash == path ? qn_strdup("/")
                                : qn_strndup(path, (size_t)(slash - path));
    bool good = dir && realpath(dir, out);
    qn_free(dir);
    return good;
}

/* Whether `path`, which need not exist, is `dir` or below it. */
static bool is_inside(const char *path, const char *dir)
{
    char whole[PATH_MAX], above[PATH_MAX], self[PATH_MAX];
    if (!realpath(dir, whole))
        return false;
    size_t size = strlen(whole);
    if (realpath(path, self) && !strcmp(self, whole))
        return true;
    return parent_of(above, path) && !strncmp(above, whole, size) &&
           (above[size] == '/' || !above[size]);
}

/* Only what looks like a model is ever removed. */
static qn_status check_replaceable(const char *path, bool dir)
{
    if (qn_path_is_dir(path) != dir) {
        qn_status status = qn_fail(QN_E_ARG, "expected %s to replace",
                                   dir ? "a directory" : "a file");
        return qn_fail_where(status, "%s", path);
    }
    char *config = qn_path_join(path, "config.json");
    if (!config)
        return QN_E_NOMEM;
    bool model = !dir || qn_path_exists(config) || !rmdir(path);
    qn_free(config);
    if (model)
        return QN_OK;
    qn_status status = qn_fail(QN_E_ARG, "it is no model directory, and is not "
                                         "replaced");
    return qn_fail_where(status, "%s", path);
}

#define SUFFIX ".gguf"

/* Only by its suffix is a file taken for a model. */
static qn_status check_suffix(const char *path)
{
    size_t n = strlen(path), least = strlen(SUFFIX);
    if (n > least && !strcmp(path + n - least, SUFFIX))
        return QN_OK;
    return qn_fail_where(
        qn_fail(QN_E_ARG, "a GGUF file's name ends in " SUFFIX), "%s", path);
}

static qn_status check_place(const qn_place *p, const char *source,
                             bool overwrite)
{
    struct stat info;
    char above[PATH_MAX];
    if (is_inside(p->path, source)) {
        qn_status status =
            qn_fail(QN_E_ARG, "the destination lies in the source");
        return qn_fail_where(status, "%s", p->path);
    }
    if (!parent_of(above, p->path)) {
        qn_status status = qn_fail(QN_E_NOTFOUND, "no folder for it");
        return qn_fail_where(status, "%s", p->path);
    }
    if (lstat(p->path, &info))
        return QN_OK;
    if (!overwrite) {
        qn_status status = qn_fail(QN_E_ARG, "it exists already (overwrite "
                                             "replaces it)");
        return qn_fail_where(status, "%s", p->path);
    }
    return check_replaceable(p->path, p->dir);
}

static int remove_one(const char *path, const struct stat *info, int type,
                      struct FTW *where)
{
    (void)info;
    (void)type;
    (void)where;
    remove(path);
    return 0;
}

static void remove_tree(const char *path)
{
    nftw(path, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

/* ---- what a process that was killed has left ---- */

/* Whether `name` is "<base>.part-" with six letters, perhaps with the suffix of
 * a file. */
static bool is_sibling(const char *name, const char *base)
{
    size_t size = strlen(base);
    if (strncmp(name, base, size) || strncmp(name + size, ".part-", 6))
        return false;
    const char *end = name + size + 6;
    size_t letters = strspn(end, "abcdefghijklmnopqrstuvwxyz");
    return letters == 6 && (!end[6] || !strcmp(end + 6, SUFFIX));
}

/* Who still writes has it locked. */
static void remove_if_left(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return;
    if (!flock(fd, LOCK_EX | LOCK_NB))
        remove_tree(path);
    close(fd);
}

static void remove_left(const char *path)
{
    char above[PATH_MAX];
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
    DIR *dir = parent_of(above, path) ? opendir(above) : NULL;
    for (struct dirent *e; dir && (e = readdir(dir));) {
        qn_buf name = QN_BUF_INIT;
        if (is_sibling(e->d_name, base))
            qn_buf_printf(&name, "%s/%s", above, e->d_name);
        if (name.size && !qn_buf_status(&name))
            remove_if_left(name.data);
        qn_buf_free(&name);
    }
    if (dir)
        closedir(dir);
}

/* Fills the six letters at the end of `work`, or before its suffix; the mode
 * follows the umask. */
static bool make_sibling(char *work, bool dir)
{
    enum { TRIES = 64, LETTERS = 6 };
    char *end = work + strlen(work) - LETTERS - (dir ? 0 : strlen(SUFFIX));
    for (int i = 0; i < TRIES; i++) {
        uint8_t random[LETTERS];
        if (getrandom(random, sizeof random, 0) != sizeof random)
            return false;
        for (int k = 0; k < LETTERS; k++)
            end[k] = (char)('a' + random[k] % 26);
        int fd = -1;
        if (dir ? !mkdir(work, 0777)
                : (fd = open(work, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC,
                             0666)) >= 0) {
            if (fd >= 0)
                close(fd);
            return true;
        }
        if (errno != EEXIST)
            return false;
    }
    return false;
}

qn_status qn_place_begin(qn_place *p, const char *source, const char *path,
                         bool dir, bool overwrite)
{
    *p = (qn_place){.dir = dir, .lock = -1};
    if (!*path)
        return qn_fail(QN_E_ARG, "the destination is empty");
    p->path = trimmed(path);
    qn_buf name = QN_BUF_INIT;
    /* What it is shows in its name: the audit opens it under that one. */
    qn_buf_printf(&name, "%s.part-XXXXXX%s", p->path ? p->path : "",
                  dir ? "" : SUFFIX);
    p->work = qn_buf_take(&name);
    if (!p->path || !p->work)
        return QN_E_NOMEM;
    qn_status status = dir ? QN_OK : check_suffix(p->path);
    if (!status)
        status = check_place(p, source, overwrite);
    char *work = p->work;
    if (status) {
        p->work = NULL;
        qn_free(work);
        return status;
    }
    struct stat info;
    p->replaces = !lstat(p->path, &info);
    remove_left(p->path);
    if (make_sibling(work, dir)) {
        p->lock = open(work, O_RDONLY | O_CLOEXEC);
        if (p->lock >= 0)
            flock(p->lock, LOCK_EX | LOCK_NB);
        return QN_OK;
    }
    status = fail_errno("create", p->path);
    p->work = NULL;
    qn_free(work);
    return status;
}

qn_status qn_place_room(const qn_place *p, uint64_t bytes)
{
    enum { SPARE = 16 << 20 };
    struct statvfs disk;
    if (statvfs(p->work, &disk))
        return QN_OK;
    uint64_t room = (uint64_t)disk.f_bavail * disk.f_frsize;
    if (room >= bytes + SPARE)
        return QN_OK;
    qn_status status = qn_fail(
        QN_E_SPACE, "the disk has room for %.1f MiB; %.1f MiB are needed",
        (double)room / (1 << 20), (double)(bytes + SPARE) / (1 << 20));
    return qn_fail_where(status, "%s", p->path);
}

qn_status qn_place_commit(qn_place *p)
{
    /* The two swap names where that can be done at once; what was there before
     * is then what is removed. */
    bool swapped =
        p->replaces && p->dir &&
        !renameat2(AT_FDCWD, p->work, AT_FDCWD, p->path, RENAME_EXCHANGE);
    if (!swapped && p->replaces && p->dir)
        remove_tree(p->path);
    if (!swapped && rename(p->work, p->path))
        return fail_errno("rename", p->path);
    if (swapped)
        remove_tree(p->work);
    qn_free(p->work);
    p->work = NULL;
    return QN_OK;
}

void qn_place_end(qn_place *p)
{
    if (p->work)
        remove_tree(p->work);
    /* A place that never began is all zeros. */
    if (p->path && p->lock >= 0)
        close(p->lock);
    qn_free(p->work);
    qn_free(p->path);
    *p = (qn_place){.lock = -1};
}
