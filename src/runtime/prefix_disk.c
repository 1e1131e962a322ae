/* prefix_disk.c: see prefix_disk.h. */
#include "prefix_disk.h"

#include "base/alloc.h"
#include "base/file.h"
#include "kv/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    MODEL_DIGITS = 16,
    SPACE_DIGITS = 16,
    IDS_DIGITS = 32,
    NAME_SIZE = MODEL_DIGITS + SPACE_DIGITS + IDS_DIGITS + sizeof "--.kv",
    /* A file is worth reading for so much of its tokens. */
    WORTH = 8
};

typedef struct entry {
    struct entry *next;
    char name[NAME_SIZE];
    qn_ids ids; /* none where the file is another model's */
    uint64_t bytes;
    struct timespec used;
} entry;

/* A file on its way: layer by layer by the model's thread, then to the disk by
 * a thread of its own. */
typedef struct writing {
    const qn_prefix_disk *disk;
    entry *entry;
    char space[QN_DIGEST_SIZE];
    qn_kv_cache *cache;
    qn_kv_saving *saving;
    char *path;
    bool collected, started;
    pthread_t thread;
    atomic_bool written;
    /* The thread's, until then. */
    qn_status status;
    qn_error error;
} writing;

struct qn_prefix_disk {
    quern_model *model;
    char *folder;
    int fd; /* of the folder, locked */
    uint64_t limit;
    bool trims; /* caches of this model can be cut anywhere */
    bool warned;
    entry *first;     /* most recently used */
    writing *writing; /* or NULL */
    uint64_t evictions, refused;
};

/* ---- entries ---- */

static void free_entry(entry *e)
{
    qn_ids_free(&e->ids);
    qn_free(e);
}

static entry *unlink_at(entry **at)
{
    entry *e = *at;
    *at = e->next;
    e->next = NULL;
    return e;
}

static void to_front(qn_prefix_disk *d, entry *e)
{
    entry **at = &d->first;
    while (*at && *at != e)
        at = &(*at)->next;
    if (*at)
        unlink_at(at);
    e->next = d->first;
    d->first = e;
}

/* The entry at *at, and its file. */
static void remove_at(qn_prefix_disk *d, entry **at)
{
    entry *e = unlink_at(at);
    unlinkat(d->fd, e->name, 0);
    free_entry(e);
}

static void forget(qn_prefix_disk *d, const entry *e, bool file)
{
    entry **at = &d->first;
    while (*at != e)
        at = &(*at)->next;
    if (file)
        remove_at(d, at);
    else
        free_entry(unlink_at(at));
}

/* ---- names ---- */

/* What tells spaces, and what positions are rotated by, from one another. */
static void digest_space(char hex[QN_DIGEST_SIZE], const char *space,
                         int choice)
{
    qn_digest digest;
    char text[16];
    snprintf(text, sizeof text, "%d", choice);
    qn_digest_begin(&digest, QN_SHA256);
    qn_digest_add(&digest, text, strlen(text) + 1);
    qn_digest_add(&digest, space, strlen(space));
    qn_digest_end(&digest, hex);
}

static void make_name(char out[NAME_SIZE], const qn_prefix_disk *d,
                      const char *space, const qn_ids *ids)
{
    qn_digest digest;
    char hex[QN_DIGEST_SIZE];
    qn_digest_begin(&digest, QN_SHA256);
    qn_digest_add(&digest, ids->data, ids->size * sizeof *ids->data);
    qn_digest_end(&digest, hex);
    snprintf(out, NAME_SIZE, "%.*s-%.*s-%.*s.kv", MODEL_DIGITS,
             d->model->digest, SPACE_DIGITS, space, IDS_DIGITS, hex);
}

/* Whether it looks like a name of ours. */
static bool is_name(const char *name)
{
    static const char digits[] = "0123456789abcdef";
    size_t a = strspn(name, digits);
    size_t b = name[a] == '-' ? strspn(name + a + 1, digits) : 0;
    const char *rest = name + a + 1 + b;
    return a == MODEL_DIGITS && b == SPACE_DIGITS && *rest == '-' &&
           strspn(rest + 1, digits) == IDS_DIGITS &&
           !strcmp(rest + 1 + IDS_DIGITS, ".kv");
}

static bool is_of_model(const qn_prefix_disk *d, const entry *e)
{
    return !strncmp(e->name, d->model->digest, MODEL_DIGITS);
}

static bool is_in_space(const qn_prefix_disk *d, const entry *e,
                        const char *space)
{
    return is_of_model(d, e) &&
           !strncmp(e->name + MODEL_DIGITS + 1, space, SPACE_DIGITS);
}

static size_t common(const qn_ids *a, const int32_t *ids, size_t count)
{
    size_t i = 0, most = a->size < count ? a->size : count;
    while (i < most && a->data[i] == ids[i])
        i++;
    return i;
}

/* The facts of a file beside those of the model. */
enum { FACTS = QN_MODEL_FACTS + 1 };

static void list_facts(const qn_prefix_disk *d, const char *space,
                       qn_kv_fact facts[FACTS])
{
    qn_model_facts(d->model, facts);
    facts[QN_MODEL_FACTS] = (qn_kv_fact){"space", space, false};
}

/* ---- the folder ---- */

static void sort_in(qn_prefix_disk *d, entry *e)
{
    entry **at = &d->first;
    while (*at && ((*at)->used.tv_sec > e->used.tv_sec ||
                   ((*at)->used.tv_sec == e->used.tv_sec &&
                    (*at)->used.tv_nsec > e->used.tv_nsec)))
        at = &(*at)->next;
    e->next = *at;
    *at = e;
}

/* A file of ours that can't be read is in the way of a good one. */
static void note_file(qn_prefix_disk *d, const char *name)
{
    struct stat info;
    entry *e = qn_calloc(1, sizeof *e);
    char *path = qn_path_join(d->folder, name);
    bool good = e && path &&
                !fstatat(d->fd, name, &info, AT_SYMLINK_NOFOLLOW) &&
                S_ISREG(info.st_mode);
    if (good) {
        memcpy(e->name, name, NAME_SIZE);
        e->bytes = (uint64_t)info.st_size;
        e->used = info.st_mtim;
        if (is_of_model(d, e)) {
            qn_status status = qn_kv_file_tokens(
                path, &e->ids.data, &e->ids.size, d->model->stream);
            e->ids.capacity = e->ids.size;
            good = !status;
            if (status == QN_E_FORMAT)
                unlinkat(d->fd, name, 0);
        }
    }
    qn_free(path);
    if (good)
        sort_in(d, e);
    else if (e)
        free_entry(e);
}

/* What a process that was killed has left of a file; nobody else writes. */
static bool is_rest(const char *name)
{
    char part[NAME_SIZE] = "";
    size_t size = strlen(name), end = sizeof ".tmp" - 1;
    if (size < NAME_SIZE || strcmp(name + size - end, ".tmp"))
        return false;
    memcpy(part, name, NAME_SIZE - 1);
    return is_name(part);
}

static qn_status scan(qn_prefix_disk *d)
{
    DIR *dir = opendir(d->folder);
    if (!dir)
        return qn_fail(QN_E_ARG, "can't be read: %s", strerror(errno));
    for (const struct dirent *item; (item = readdir(dir));)
        if (is_rest(item->d_name))
            unlinkat(d->fd, item->d_name, 0);
        else if (is_name(item->d_name))
            note_file(d, item->d_name);
    closedir(dir);
    return QN_OK;
}

static qn_status take_folder(qn_prefix_disk *d)
{
    struct stat info;
    if (mkdir(d->folder, S_IRWXU) && errno != EEXIST)
        return qn_fail(QN_E_ARG, "can't be made: %s", strerror(errno));
    d->fd = open(d->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (d->fd < 0 || fstat(d->fd, &info))
        return qn_fail(QN_E_ARG, "can't be used: %s", strerror(errno));
    if (info.st_uid != geteuid())
        return qn_fail(QN_E_ARG, "belongs to another user");
    if ((info.st_mode & 0777) != S_IRWXU)
        return qn_fail(QN_E_ARG,
                       "what prompts say is for its owner alone: expected the "
                       "mode 0700, found %04o",
                       (unsigned)info.st_mode & 0777);
    if (flock(d->fd, LOCK_EX | LOCK_NB))
        return qn_fail(QN_E_ARG, "another process uses it");
    return QN_OK;
}

/* Whether every length can be gone back to. */
static bool trims_anywhere(const qn_kv_shape *shape)
{
    for (int i = 0; i < shape->layers; i++) {
        const qn_kv_layer *l = qn_kv_layer_of(shape, i);
        if (l->window || l->recurrence.channels)
            return false;
    }
    return !shape->start;
}

qn_status qn_prefix_disk_open(qn_prefix_disk **out, quern_model *model,
                              const char *folder, uint64_t limit)
{
    qn_prefix_disk *d = qn_calloc(1, sizeof *d);
    if (!d)
        return QN_E_NOMEM;
    d->fd = -1;
    d->model = model;
    d->limit = limit;
    d->trims = trims_anywhere(&model->kv);
    d->folder = qn_strdup(folder);
    qn_status status = d->folder ? take_folder(d) : QN_E_NOMEM;
    if (!status)
        status = scan(d);
    if (status) {
        qn_prefix_disk_close(d);
        return qn_fail_where(status, "%s", folder);
    }
    *out = d;
    return QN_OK;
}

void qn_prefix_disk_close(qn_prefix_disk *d)
{
    if (!d)
        return;
    qn_prefix_disk_finish(d);
    while (d->first)
        free_entry(unlink_at(&d->first));
    if (d->fd >= 0)
        close(d->fd);
    qn_free(d->folder);
    qn_free(d);
}

/* ---- reading ---- */

static entry *best_of(const qn_prefix_disk *d, const char *space,
                      const int32_t *ids, size_t count, size_t have)
{
    entry *best = NULL;
    size_t most = have + QN_PREFIX_LEAST - 1;
    for (entry *e = d->first; e; e = e->next) {
        size_t same =
            is_in_space(d, e, space) ? common(&e->ids, ids, count) : 0;
        if (same <= most || same < e->ids.size / WORTH ||
            (same < e->ids.size && !d->trims))
            continue;
        most = same;
        best = e;
    }
    return best;
}

static qn_status restore(const qn_prefix_disk *d, const entry *e,
                         const char *space, qn_kv_cache **cache, qn_ids *ids)
{
    qn_kv_fact facts[FACTS];
    list_facts(d, space, facts);
    char *path = qn_path_join(d->folder, e->name);
    qn_status status =
        path ? qn_kv_cache_new(cache, &d->model->kv) : QN_E_NOMEM;
    if (!status) {
        status = qn_kv_cache_load(*cache, path, &ids->data, facts, FACTS,
                                  d->model->stream);
        ids->size = ids->capacity = status ? 0 : e->ids.size;
        /* Its name is no promise. */
        if (!status && ((size_t)qn_kv_cache_length(*cache) != e->ids.size ||
                        common(&e->ids, ids->data, ids->size) != ids->size))
            status = QN_E_FORMAT;
        if (status) {
            qn_ids_free(ids);
            qn_kv_cache_free(*cache);
        }
    }
    qn_free(path);
    return status;
}

bool qn_prefix_disk_take(qn_prefix_disk *d, const char *space, int choice,
                         const int32_t *ids, size_t count, size_t have,
                         qn_kv_cache **cache, qn_ids *tokens)
{
    char hex[QN_DIGEST_SIZE];
    *tokens = (qn_ids){0};
    digest_space(hex, space, choice);
    entry *e = best_of(d, hex, ids, count, have);
    if (!e)
        return false;
    qn_status status = restore(d, e, hex, cache, tokens);
    if (status == QN_E_NOMEM)
        return false;
    if (status) {
        /* What another engine can use stays. */
        d->refused++;
        forget(d, e, status == QN_E_FORMAT);
        return false;
    }
    to_front(d, e);
    utimensat(d->fd, e->name, NULL, 0);
    return true;
}

/* ---- writing ---- */

static uint64_t bytes_of_all(const qn_prefix_disk *d)
{
    uint64_t bytes = 0;
    for (const entry *e = d->first; e; e = e->next)
        bytes += e->bytes;
    return bytes;
}

static void evict(qn_prefix_disk *d)
{
    while (d->first && bytes_of_all(d) > d->limit) {
        entry **last = &d->first;
        while ((*last)->next)
            last = &(*last)->next;
        remove_at(d, last);
        d->evictions++;
    }
}

/* Files of the space that begin the tokens, which a cache can go back to. */
static void drop_covered(qn_prefix_disk *d, const char *space,
                         const qn_kv_cache *cache, const qn_ids *tokens)
{
    for (entry **at = &d->first; *at;) {
        const entry *e = *at;
        if (is_in_space(d, e, space) && e->ids.size < tokens->size &&
            common(&e->ids, tokens->data, tokens->size) == e->ids.size &&
            qn_kv_cache_can_trim(cache, (int)e->ids.size))
            remove_at(d, at);
        else
            at = &(*at)->next;
    }
}

static qn_status copy_ids(qn_ids *out, const qn_ids *from)
{
    qn_status status = QN_OK;
    for (size_t i = 0; i < from->size && !status; i++)
        status = qn_ids_add(out, from->data[i]);
    return status;
}

/* Says why nothing is written, once. */
static void warn(qn_prefix_disk *d)
{
    const quern_model *m = d->model;
    char text[512];
    if (d->warned || !m->log)
        return;
    d->warned = true;
    snprintf(text, sizeof text, "prompts are not kept on the disk: %s",
             qn_error_text());
    m->log(m->log_data, QUERN_LOG_WARN, text);
}

static void free_writing(writing *w)
{
    qn_kv_saving_free(w->saving);
    qn_kv_cache_free(w->cache);
    qn_free(w->path);
    if (w->entry)
        free_entry(w->entry);
    qn_free(w);
}

/* Of another cache, that shares arrays: what it is made of may go meanwhile. */
static qn_status begin(writing *w, const qn_kv_cache *cache)
{
    const qn_prefix_disk *d = w->disk;
    qn_kv_fact facts[FACTS];
    list_facts(d, w->space, facts);
    w->path = qn_path_join(d->folder, w->entry->name);
    qn_status status =
        w->path ? qn_kv_cache_clone(&w->cache, cache) : QN_E_NOMEM;
    return status ? status
                  : qn_kv_saving_new(&w->saving, w->cache, w->entry->ids.data,
                                     facts, FACTS, d->model->stream);
}

void qn_prefix_disk_put(qn_prefix_disk *d, const char *space, int choice,
                        const qn_kv_cache *cache, const qn_ids *tokens)
{
    writing *w = qn_calloc(1, sizeof *w);
    entry *e = qn_calloc(1, sizeof *e);
    if (!w || !e) {
        qn_free(w);
        qn_free(e);
        return;
    }
    w->disk = d;
    w->entry = e;
    digest_space(w->space, space, choice);
    make_name(e->name, d, w->space, tokens);
    for (entry *has = d->first; has; has = has->next)
        if (!strcmp(has->name, e->name)) {
            free_writing(w);
            return;
        }
    qn_status status = copy_ids(&e->ids, tokens);
    if (!status)
        status = begin(w, cache);
    if (!status) {
        d->writing = w;
        return;
    }
    warn(d);
    free_writing(w);
}

/* What happens beside the model's thread. */
static void *write_file(void *data)
{
    writing *w = data;
    struct stat info;
    w->status = qn_kv_saving_write(w->saving, w->path);
    if (!w->status &&
        fstatat(w->disk->fd, w->entry->name, &info, AT_SYMLINK_NOFOLLOW))
        w->status = qn_fail(QN_E_IO, "%s: %s", w->path, strerror(errno));
    if (w->status)
        qn_error_save(&w->error);
    else
        w->entry->bytes = (uint64_t)info.st_size;
    atomic_store(&w->written, true);
    return NULL;
}

static void start(writing *w)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    w->started = !pthread_create(&w->thread, NULL, write_file, w);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!w->started)
        write_file(w);
}

/* The next layer. */
static void collect(writing *w)
{
    bool more = false;
    w->status = qn_kv_saving_step(w->saving, &more);
    if (w->status)
        qn_error_save(&w->error);
    w->collected = !more;
    if (w->status)
        atomic_store(&w->written, true);
    else if (!more)
        start(w);
}

/* The file is there, or will not be. */
static void end(qn_prefix_disk *d)
{
    writing *w = d->writing;
    if (w->started)
        pthread_join(w->thread, NULL);
    d->writing = NULL;
    if (w->status) {
        qn_error_restore(&w->error);
        warn(d);
    } else {
        drop_covered(d, w->space, w->cache, &w->entry->ids);
        to_front(d, w->entry);
        w->entry = NULL;
        evict(d);
    }
    free_writing(w);
}

qn_prefix_progress qn_prefix_disk_go_on(qn_prefix_disk *d)
{
    writing *w = d->writing;
    if (!w)
        return QN_PREFIX_DONE;
    if (!w->collected)
        collect(w);
    else if (atomic_load(&w->written))
        end(d);
    else
        return QN_PREFIX_WAITS;
    return QN_PREFIX_MORE;
}

void qn_prefix_disk_finish(qn_prefix_disk *d)
{
    while (d->writing)
        if (d->writing->collected)
            end(d); /* waits */
        else
            collect(d->writing);
}

void qn_prefix_disk_flush(qn_prefix_disk *d, size_t *entries, uint64_t *bytes)
{
    for (entry **at = &d->first; *at;)
        if (is_of_model(d, *at)) {
            *bytes += (*at)->bytes;
            ++*entries;
            remove_at(d, at);
        } else {
            at = &(*at)->next;
        }
}

/* Also what a process that was killed has left of files. */
static qn_status remove_files(int fd, size_t *entries, uint64_t *bytes)
{
    struct stat info;
    int other = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = other < 0 ? NULL : fdopendir(other);
    if (!dir) {
        int code = errno;
        if (other >= 0)
            close(other);
        return qn_fail(QN_E_ARG, "can't be read: %s", strerror(code));
    }
    for (const struct dirent *item; (item = readdir(dir));) {
        bool whole = is_name(item->d_name);
        if (!whole && !is_rest(item->d_name))
            continue;
        if (whole && !fstatat(fd, item->d_name, &info, AT_SYMLINK_NOFOLLOW)) {
            ++*entries;
            *bytes += (uint64_t)info.st_size;
        }
        unlinkat(fd, item->d_name, 0);
    }
    closedir(dir);
    return QN_OK;
}

quern_status quern_prefix_flush(const char *folder, size_t *entries,
                                uint64_t *bytes, quern_error *error)
{
    struct stat info;
    size_t count = 0;
    uint64_t size = 0;
    qn_prefix_disk d = {.fd = -1, .folder = (char *)(uintptr_t)folder};
    qn_status status = QN_OK;
    if (!stat(folder, &info))
        status = take_folder(&d);
    if (!status && d.fd >= 0)
        status = remove_files(d.fd, &count, &size);
    if (d.fd >= 0)
        close(d.fd);
    if (!status && entries)
        *entries = count;
    if (!status && bytes)
        *bytes = size;
    return qn_give(error,
                   status ? qn_fail_where(status, "%s", folder) : status);
}

void qn_prefix_disk_stats(const qn_prefix_disk *d, quern_prefix_stats *stats)
{
    for (const entry *e = d->first; e; e = e->next)
        stats->disk_entries += is_of_model(d, e);
    stats->disk_bytes = bytes_of_all(d);
    stats->disk_evictions = d->evictions;
    stats->disk_refused = d->refused;
}
