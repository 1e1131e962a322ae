/* cgroup.c: limits from /proc/self/cgroup, /proc/self/mountinfo and the
 * mounted hierarchies.
 *
 * Version 2 is one hierarchy ("0::/path"); version 1 has one for each set of
 * controllers ("4:cpu,cpuacct:/path").  A system may mount both.  mountinfo
 * tells where a hierarchy is mounted and which of its groups is the mount's
 * root; inside a container the group's path is often not visible, and then
 * the mounted root is the group.  Sources: cgroups(7), proc(5), the kernel's
 * cgroup-v2 and cgroup-v1 documents. */
#include "cgroup.h"

#include "alloc.h"
#include "buf.h"
#include "file.h"

#include <stdlib.h>

enum { FILE_LIMIT = 1 << 20 };

/* One hierarchy as this process sees it. */
typedef struct hierarchy {
    bool v2;
    qn_buf mount; /* mount point, below `root` */
    qn_buf group; /* the group's directory: mount point + path */
} hierarchy;

static void hierarchy_free(hierarchy *h)
{
    qn_buf_free(&h->mount);
    qn_buf_free(&h->group);
}

/* Takes the text up to `stop` (or all that is left) off the front of *rest. */
static qn_str cut(qn_str *rest, char stop)
{
    const char *end = rest->size ? memchr(rest->data, stop, rest->size) : NULL;
    qn_str piece = {rest->data, end ? (size_t)(end - rest->data) : rest->size};
    size_t used = piece.size + (end ? 1 : 0);
    rest->data += used;
    rest->size -= used;
    return piece;
}

static bool has_item(qn_str list, const char *item)
{
    while (list.size) {
        if (qn_str_is(cut(&list, ','), item))
            return true;
    }
    return false;
}

/* The group's path of version 2, or of a version 1 controller. */
static bool find_group(qn_str *out, qn_str cgroups, bool v2,
                       const char *controller)
{
    while (cgroups.size) {
        qn_str line = cut(&cgroups, '\n');
        qn_str id = cut(&line, ':');
        qn_str controllers = cut(&line, ':');
        bool match = v2 ? qn_str_is(id, "0") && !controllers.size
                        : has_item(controllers, controller);
        if (match) {
            *out = line;
            return true;
        }
    }
    return false;
}

/* mountinfo writes space, tab, newline and backslash as \ooo. */
static void add_unescaped(qn_buf *out, qn_str text)
{
    for (size_t i = 0; i < text.size; i++) {
        const char *p = text.data + i;
        if (*p == '\\' && text.size - i >= 4 && p[1] >= '0' && p[1] <= '3' &&
            p[2] >= '0' && p[2] <= '7' && p[3] >= '0' && p[3] <= '7') {
            qn_buf_add_char(out, (char)((p[1] - '0') << 6 | (p[2] - '0') << 3 |
                                        (p[3] - '0')));
            i += 3;
        } else {
            qn_buf_add_char(out, *p);
        }
    }
}

/* Appends the part of `group` below the mount's root group.  A path outside
 * of it (another namespace's view) adds nothing. */
static void add_below(qn_buf *out, qn_str group, qn_str mount_root)
{
    size_t skip = mount_root.size;
    if (skip == 1)
        skip = 0; /* "/" */
    if (group.size < skip || memcmp(group.data, mount_root.data, skip) ||
        (group.size > skip && group.data[skip] != '/'))
        return;
    group.data += skip;
    group.size -= skip;
    for (qn_str rest = group; rest.size;) {
        if (qn_str_is(cut(&rest, '/'), ".."))
            return;
    }
    if (group.size > 1)
        qn_buf_add_str(out, group);
}

/* Finds the mount of version 2, or of a version 1 controller, and with it the
 * process's group.  The caller frees *h in any case. */
static bool find_hierarchy(hierarchy *h, const char *root, qn_str cgroups,
                           qn_str mounts, bool v2, const char *controller)
{
    qn_str group;
    *h = (hierarchy){.v2 = v2};
    if (!find_group(&group, cgroups, v2, controller))
        return false;
    while (mounts.size) {
        /* id parent major:minor ROOT POINT options [tags] - TYPE source OPTS */
        qn_str line = cut(&mounts, '\n');
        for (int i = 0; i < 3; i++)
            cut(&line, ' ');
        qn_str mount_root = cut(&line, ' '), point = cut(&line, ' ');
        while (line.size && !qn_str_is(cut(&line, ' '), "-"))
            ;
        qn_str type = cut(&line, ' ');
        cut(&line, ' ');
        if (v2 ? !qn_str_is(type, "cgroup2")
               : !qn_str_is(type, "cgroup") || !has_item(line, controller))
            continue;
        qn_buf mounted = QN_BUF_INIT;
        add_unescaped(&mounted, mount_root);
        qn_buf_add_text(&h->mount, root);
        add_unescaped(&h->mount, point);
        qn_buf_add_str(&h->group, qn_buf_str(&h->mount));
        add_below(&h->group, group, qn_buf_str(&mounted));
        bool ok = !mounted.failed && !h->mount.failed && !h->group.failed;
        qn_buf_free(&mounted);
        return ok;
    }
    return false;
}

/* Calls `read` with the group's directory and each one above it, up to the
 * mount point. */
static void each_level(hierarchy *h,
                       void (*read)(const char *dir, bool v2, void *data),
                       void *data)
{
    for (;;) {
        read(h->group.data, h->v2, data);
        size_t size = h->group.size;
        if (size <= h->mount.size)
            return;
        do
            size--;
        while (size > h->mount.size && h->group.data[size] != '/');
        qn_buf_truncate(&h->group, size);
    }
}

static void each_hierarchy(const char *root, const char *controller,
                           void (*read)(const char *dir, bool v2, void *data),
                           void *data)
{
    /* A system without control groups is no error of the caller's. */
    qn_error before;
    qn_error_save(&before);
    char *cgroups = NULL, *mounts = NULL;
    size_t cgroups_size = 0, mounts_size = 0;
    char *path = qn_path_join(root, "/proc/self/cgroup");
    char *mounts_path = qn_path_join(root, "/proc/self/mountinfo");
    if (path && mounts_path &&
        !qn_file_read(&cgroups, &cgroups_size, path, FILE_LIMIT) &&
        !qn_file_read(&mounts, &mounts_size, mounts_path, FILE_LIMIT)) {
        for (int v2 = 0; v2 < 2; v2++) {
            hierarchy h;
            if (find_hierarchy(&h, root, (qn_str){cgroups, cgroups_size},
                               (qn_str){mounts, mounts_size}, v2, controller))
                each_level(&h, read, data);
            hierarchy_free(&h);
        }
    }
    qn_free(cgroups);
    qn_free(mounts);
    qn_free(path);
    qn_free(mounts_path);
    qn_error_restore(&before);
}

/* Reads DIR/NAME; *out is freed with qn_free.  False when it is not there. */
static bool read_file(char **out, const char *dir, const char *name)
{
    char *path = qn_path_join(dir, name);
    bool ok = path && !qn_file_read(out, NULL, path, FILE_LIMIT);
    qn_free(path);
    return ok;
}

/* A non-negative number at the front of *text; false for "max", "-1" ... */
static bool take_number(uint64_t *out, const char **text)
{
    while (**text == ' ')
        (*text)++;
    if (**text < '0' || **text > '9')
        return false;
    char *end;
    *out = strtoull(*text, &end, 10);
    *text = end;
    return true;
}

static bool read_number(uint64_t *out, const char *dir, const char *name)
{
    char *text;
    if (!read_file(&text, dir, name))
        return false;
    const char *rest = text;
    bool ok = take_number(out, &rest);
    qn_free(text);
    return ok;
}

/* ---- CPU time ---- */

static void read_cpus(const char *dir, bool v2, void *data)
{
    int *cpus = data;
    uint64_t quota = 0, period = 0;
    bool ok = false;
    char *text;
    if (!v2) {
        ok = read_number(&quota, dir, "cpu.cfs_quota_us") &&
             read_number(&period, dir, "cpu.cfs_period_us");
    } else if (read_file(&text, dir, "cpu.max")) {
        const char *rest = text;
        ok = take_number(&quota, &rest) && take_number(&period, &rest);
        qn_free(text);
    }
    if (!ok || !period)
        return;
    uint64_t n = quota / period + (quota % period ? 1 : 0);
    if (n < 1)
        n = 1;
    if (n < (uint64_t)*cpus)
        *cpus = (int)n;
}

int qn_cgroup_cpus(const char *root)
{
    int cpus = INT32_MAX;
    each_hierarchy(root, "cpu", read_cpus, &cpus);
    return cpus == INT32_MAX ? 0 : cpus;
}

/* ---- memory ---- */

static void read_memory(const char *dir, bool v2, void *data)
{
    uint64_t *limit = data, found;
    if (read_number(&found, dir, v2 ? "memory.max" : "memory.limit_in_bytes") &&
        found < *limit)
        *limit = found;
}

uint64_t qn_cgroup_memory(const char *root)
{
    uint64_t limit = UINT64_MAX;
    each_hierarchy(root, "memory", read_memory, &limit);
    /* Version 1 writes "no limit" as the largest multiple of a page below
     * 2^63. */
    return limit >= (uint64_t)INT64_MAX - 65536 ? UINT64_MAX : limit;
}
