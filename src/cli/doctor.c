/* doctor.c: `quern doctor`: a line for each thing that a run depends on. */
#include "cli.h"

#include "base/alloc.h"
#include "base/cpu.h"
#include "base/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

typedef enum verdict { GOOD, WARN, FAIL } verdict;

static const char *const verdicts[] = {"ok", "warn", "fail"};

enum { MOST = 16, TEXT_SIZE = 256 };

typedef struct finding {
    const char *name;
    verdict verdict;
    char text[TEXT_SIZE];
} finding;

typedef struct report {
    finding list[MOST];
    size_t count;
} report;

static char *add(report *r, const char *name, verdict v)
{
    finding *f = &r->list[r->count < MOST - 1 ? r->count++ : r->count];
    *f = (finding){.name = name, .verdict = v};
    return f->text;
}

static double gib(uint64_t bytes)
{
    return (double)bytes / (1 << 30);
}

/* ---- the machine ---- */

static void look_at_processor(report *r)
{
    uint32_t levels = qn_cpu_levels();
    verdict v = qn_cpu_isa() == QN_ISA_NONE ? WARN : GOOD;
    char *text = add(r, "processor", v);
    size_t at = (size_t)snprintf(text, TEXT_SIZE, "%s:", qn_cpu_name());
    for (int i = 0; i < QN_ISA_COUNT && at < TEXT_SIZE; i++)
        if (levels >> i & 1 && i != QN_ISA_NONE)
            at += (size_t)snprintf(text + at, TEXT_SIZE - at, " %s",
                                   qn_isa_name((qn_isa)i));
    if (v == WARN && at < TEXT_SIZE)
        snprintf(text + at, TEXT_SIZE - at,
                 " no instruction set that has kernels: slow");
    snprintf(add(r, "cores", GOOD), TEXT_SIZE,
             "%d processors allowed on %d cores", qn_cpu_allowed(),
             qn_cpu_allowed_cores());
}

static void look_at_memory(report *r)
{
    quern_machine m;
    quern_machine_get(&m, true);
    verdict v = m.usable < (uint64_t)512 << 20 ? WARN : GOOD;
    snprintf(add(r, "memory", v), TEXT_SIZE, "%.1f GiB, %.1f GiB usable%s",
             gib(m.memory), gib(m.usable),
             m.limited ? " (limited by a control group)" : "");
    struct rlimit space;
    if (!getrlimit(RLIMIT_AS, &space) && space.rlim_cur != RLIM_INFINITY)
        snprintf(add(r, "address space", WARN), TEXT_SIZE,
                 "limited to %.1f GiB: models are mapped whole",
                 gib(space.rlim_cur));
    v = m.bandwidth > 0 ? GOOD : WARN;
    snprintf(add(r, "bandwidth", v), TEXT_SIZE,
             m.bandwidth > 0
                 ? "%.1f GB/s read, %.0f GFLOP/s with packed weights"
                 : "could not be measured",
             m.bandwidth * 1e-9, m.operations * 1e-9);
    snprintf(add(r, "cuda", GOOD), TEXT_SIZE, "this build has no CUDA kernels");
}

static void look_at_files(report *r)
{
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files))
        return;
    snprintf(add(r, "open files", files.rlim_cur < 128 ? WARN : GOOD),
             TEXT_SIZE, "%llu allowed", (unsigned long long)files.rlim_cur);
}

/* ---- the cache ---- */

/* As hub has it (quern.h). */
static char *cache_root(void)
{
    static const char *const names[] = {"QUERN_CACHE", "HF_HUB_CACHE"};
    for (size_t i = 0; i < 2; i++) {
        const char *root = getenv(names[i]);
        if (root && *root)
            return qn_strdup(root);
    }
    const char *home = getenv("HF_HOME");
    if (home && *home)
        return qn_path_join(home, "hub");
    home = getenv("HOME");
    return qn_path_join(home ? home : "/", ".cache/huggingface/hub");
}

/* The nearest folder above `path` that is there. */
static void nearest(char *path)
{
    while (strlen(path) > 1 && !qn_path_exists(path)) {
        char *slash = strrchr(path, '/');
        if (!slash) {
            path[0] = '.';
            path[1] = '\0';
        } else {
            slash[slash == path] = '\0';
        }
    }
}

static void look_at_cache(report *r)
{
    struct statvfs disk;
    char *root = cache_root(), *place = root ? qn_strdup(root) : NULL;
    if (!place || !*place) {
        snprintf(add(r, "cache", FAIL), TEXT_SIZE, "no place for it");
    } else {
        nearest(place);
        bool writable = qn_path_is_dir(place) && !access(place, W_OK | X_OK);
        uint64_t room =
            statvfs(place, &disk) ? 0 : (uint64_t)disk.f_bavail * disk.f_frsize;
        verdict v = !writable ? FAIL : room < (uint64_t)1 << 30 ? WARN : GOOD;
        snprintf(add(r, "cache", v), TEXT_SIZE, "%.160s%s, %.1f GiB free", root,
                 writable ? "" : " can't be written", gib(room));
    }
    qn_free(root);
    qn_free(place);
}

/* Certificates are not valid in the past. */
static void look_at_clock(report *r)
{
    time_t now = time(NULL);
    struct tm parts;
    char text[64] = "?";
    if (gmtime_r(&now, &parts))
        strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S UTC", &parts);
    bool wrong = now < 1735689600; /* 2025 */
    snprintf(add(r, "clock", wrong ? FAIL : GOOD), TEXT_SIZE, "%s%s", text,
             wrong ? ": in the past, so that certificates will be refused"
                   : "");
}

/* ---- settings ---- */

typedef struct listing {
    qn_buf *out;
    qn_json_writer *w; /* NULL: lines */
} listing;

static void add_setting(void *data, const char *name, const char *value,
                        const char *origin)
{
    const listing *l = data;
    if (!l->w) {
        qn_buf_printf(l->out, "%-24s %-26s %s\n", name, value, origin);
        return;
    }
    qn_json_write_object(l->w);
    qn_json_write_key(l->w, "name");
    qn_json_write_text(l->w, name);
    qn_json_write_key(l->w, "value");
    qn_json_write_text(l->w, value);
    qn_json_write_key(l->w, "origin");
    qn_json_write_text(l->w, origin);
    qn_json_write_object_end(l->w);
}

static int show_settings(const qn_cli *cli)
{
    qn_buf out = QN_BUF_INIT;
    qn_json_writer w;
    listing l = {&out, cli->json ? &w : NULL};
    qn_json_write_begin(&w, &out);
    if (l.w) {
        qn_json_write_object(&w);
        qn_json_write_key(&w, "schema");
        qn_json_write_text(&w, "quern.doctor/1");
        qn_json_write_key(&w, "settings");
        qn_json_write_array(&w);
    }
    qn_status status = qn_config_describe(cli, add_setting, &l);
    if (status) {
        qn_buf_free(&out);
        return qn_cli_fail_status(cli, status, NULL);
    }
    if (!l.w)
        return qn_out_buffer(cli, &out);
    qn_json_write_array_end(&w);
    qn_json_write_object_end(&w);
    return qn_out_json(cli, &out);
}

static int show(const qn_cli *cli, const report *r)
{
    qn_buf out = QN_BUF_INIT;
    qn_json_writer w;
    if (!cli->json) {
        for (size_t i = 0; i < r->count; i++)
            qn_buf_printf(&out, "%-5s %-14s %s\n", verdicts[r->list[i].verdict],
                          r->list[i].name, r->list[i].text);
        return qn_out_buffer(cli, &out);
    }
    qn_json_write_begin(&w, &out);
    qn_json_write_object(&w);
    qn_json_write_key(&w, "schema");
    qn_json_write_text(&w, "quern.doctor/1");
    qn_json_write_key(&w, "checks");
    qn_json_write_array(&w);
    for (size_t i = 0; i < r->count; i++) {
        qn_json_write_object(&w);
        qn_json_write_key(&w, "name");
        qn_json_write_text(&w, r->list[i].name);
        qn_json_write_key(&w, "status");
        qn_json_write_text(&w, verdicts[r->list[i].verdict]);
        qn_json_write_key(&w, "text");
        qn_json_write_text(&w, r->list[i].text);
        qn_json_write_object_end(&w);
    }
    qn_json_write_array_end(&w);
    qn_json_write_object_end(&w);
    return qn_out_json(cli, &out);
}

int qn_cli_doctor(qn_cli *cli)
{
    report r = {.count = 0};
    if (cli->args.flag[QN_FLAG_SETTINGS].on)
        return show_settings(cli);
    snprintf(add(&r, "quern", GOOD), TEXT_SIZE, "%s%s%s", quern_release(),
             qn_cli_commit() ? ", commit " : "",
             qn_cli_commit() ? qn_cli_commit() : "");
    look_at_processor(&r);
    look_at_memory(&r);
    look_at_files(&r);
    look_at_cache(&r);
    look_at_clock(&r);
    int code = show(cli, &r);
    for (size_t i = 0; i < r.count && !code; i++)
        if (r.list[i].verdict == FAIL)
            code = QN_EXIT_FAILURE;
    return code;
}
