/* main.c: run-cases PATH...: runs case files and goldens.
 *
 * A file is told by its content: JSON lines with `kind` (bug-report cases) or
 * with `group` (cases of the C API), or one JSON object with `model`,
 * `reference` and `cases` (goldens of a model), or one with `kind` and `set`
 * (goldens of a format).  Folders are searched for such files.
 * Prints each failure with expected and found, ends with
 * 'N passed, N failed', and exits 0 only if all passed.  The ids in the file of
 * --later are of cases that need what is not built yet: they must fail. */
#include "case.h"

#include "base/alloc.h"
#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <ftw.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* ---- failures of the running case (in the child) ---- */

enum { MOST_FAILURES = 6 };

static int report_to = -1;
static int failures;

void case_fail(const char *fmt, ...)
{
    if (failures++ >= MOST_FAILURES)
        return;
    char text[2048];
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(text, sizeof text - 1, fmt, args);
    va_end(args);
    size_t size = n < (int)sizeof text - 1 ? (size_t)n : sizeof text - 2;
    text[size++] = '\n';
    if (write(report_to, text, size) < 0)
        abort();
}

bool case_failed(void)
{
    return failures > 0;
}

/* ---- JSON ---- */

qn_str case_text(const qn_json *object, const char *key)
{
    qn_str text = {"", 0};
    if (!qn_json_as_str(qn_json_get(object, key), &text))
        case_fail("case: no text '%s'", key);
    return text;
}

int64_t case_int(const qn_json *object, const char *key, int64_t fallback)
{
    int64_t value = fallback;
    qn_json_as_int(qn_json_get(object, key), &value);
    return value;
}

bool case_bool(const qn_json *object, const char *key, bool fallback)
{
    bool value = fallback;
    qn_json_as_bool(qn_json_get(object, key), &value);
    return value;
}

/* Copies live until the process ends; the list keeps them reachable, so that
 * a leak checker speaks only of what is lost. */
const char *case_keep(qn_str text)
{
    typedef struct kept {
        struct kept *next;
        char *text;
    } kept;
    static kept *all;
    kept *entry = qn_calloc(1, sizeof *entry);
    if (!entry ||
        !(entry->text = qn_strndup(text.data ? text.data : "", text.size)))
        abort();
    entry->next = all;
    all = entry;
    return entry->text;
}

static void repeat(qn_buf *out, qn_str unit, int64_t times)
{
    for (int64_t i = 0; i < times; i++)
        qn_buf_add_str(out, unit);
}

bool case_long_text(const qn_json *value, qn_buf *out)
{
    qn_str text;
    if (qn_json_as_str(value, &text)) {
        qn_buf_add_str(out, text);
        return true;
    }
    const qn_json *pair = qn_json_get(value, "$repeat");
    if (!pair && value && value->type == QN_JSON_T_ARRAY)
        pair = value;
    int64_t times;
    if (!qn_json_as_str(qn_json_at(pair, 0), &text) ||
        !qn_json_as_int(qn_json_at(pair, 1), &times))
        return false;
    repeat(out, text, times);
    return true;
}

static void check_part(const qn_json *part, const char *message)
{
    qn_str text;
    if (qn_json_as_str(part, &text) &&
        !memmem(message, strlen(message), text.data, text.size))
        case_fail("expected a message with \"%.*s\", found \"%s\"",
                  (int)text.size, text.data, message);
}

void case_check_message(const qn_json *wanted, const char *message)
{
    if (!wanted)
        return;
    if (wanted->type != QN_JSON_T_ARRAY)
        check_part(wanted, message);
    else
        for (uint32_t i = 0; i < wanted->count; i++)
            check_part(&wanted->items[i], message);
}

bool case_base64(qn_str text, qn_buf *out)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqr"
                                 "stuvwxyz0123456789+/";
    uint32_t bits = 0;
    int count = 0;
    for (size_t i = 0; i < text.size && text.data[i] != '='; i++) {
        const char *at = text.data[i] ? strchr(digits, text.data[i]) : NULL;
        if (!at)
            return false;
        bits = bits << 6 | (uint32_t)(at - digits);
        count += 6;
        if (count >= 8) {
            count -= 8;
            qn_buf_add_char(out, (char)(bits >> count & 255));
        }
    }
    return !qn_buf_status(out);
}

/* ---- kinds ---- */

typedef void (*case_fn)(const qn_json *c, const case_context *context);

static const struct {
    const char *prefix;
    case_fn run;
} kinds[] = {
    {"engine-", run_call_case},   {"io-", run_call_case},
    {"tok-", run_tokenizer_case}, {"template", run_template_case},
    {"model", run_model_case},    {"download", run_download_case},
    {"stop", run_server_case},    {"kv", run_kv_case},
    {"server-", run_server_case}, {"toolcall", run_server_case},
    {"load", run_load_case},
};

static case_fn function_of(const qn_json *c)
{
    qn_str kind;
    if (!qn_json_as_str(qn_json_get(c, "kind"), &kind))
        return qn_json_get(c, "group") ? run_abi_case : NULL;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        size_t n = strlen(kinds[i].prefix);
        if (kind.size >= n && !memcmp(kind.data, kinds[i].prefix, n))
            return kinds[i].run;
    }
    return NULL;
}

/* ---- one case, in a process of its own ---- */

static int remove_entry(const char *path, const struct stat *st, int type,
                        struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

/* `c` with its `expect` replaced by one alternative of any_of, joined with
 * the keys beside it. */
static const qn_json *with_alternative(qn_json_doc *doc, const qn_json *c,
                                       uint32_t which)
{
    const qn_json *expect = qn_json_get(c, "expect");
    const qn_json *chosen = qn_json_at(qn_json_get(expect, "any_of"), which);
    qn_json *merged = qn_json_new_object(doc), *out = qn_json_new_object(doc);
    for (uint32_t i = 0; i < expect->count; i++)
        if (!qn_str_is(expect->keys[i], "any_of"))
            qn_json_set(doc, merged, expect->keys[i], &expect->items[i]);
    for (uint32_t i = 0; chosen && i < chosen->count; i++)
        qn_json_set(doc, merged, chosen->keys[i], &chosen->items[i]);
    for (uint32_t i = 0; i < c->count; i++)
        qn_json_set(doc, out, c->keys[i],
                    qn_str_is(c->keys[i], "expect") ? merged : &c->items[i]);
    return out;
}

static void run_child(case_fn run, const qn_json *c, int alternative,
                      const case_context *context)
{
    qn_json_doc *doc = qn_json_doc_new();
    if (!doc)
        abort();
    if (alternative >= 0)
        c = with_alternative(doc, c, (uint32_t)alternative);
    run(c, context);
    values_free();
    qn_json_doc_free(doc);
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif

/* What the sanitizers ask for: an allocation that can't be had is NULL here
 * too, not the end. */
__attribute__((visibility("default"))) const char *__asan_default_options(void);
__attribute__((visibility("default"))) const char *__tsan_default_options(void);

const char *__asan_default_options(void)
{
    return "allocator_may_return_null=1";
}

const char *__tsan_default_options(void)
{
    return "allocator_may_return_null=1";
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Collects what the child writes until it closes its end; false after
 * `seconds`. */
static bool collect(int from, qn_buf *out, double seconds)
{
    double end = now() + seconds;
    char block[4096];
    for (;;) {
        fd_set set;
        FD_ZERO(&set);
        FD_SET(from, &set);
        double left = end - now();
        if (left <= 0)
            return false;
        struct timeval wait = {
            (time_t)left, (suseconds_t)((left - (double)(time_t)left) * 1e6)};
        int ready = select(from + 1, &set, NULL, NULL, &wait);
        if (ready < 0 && errno != EINTR)
            return false;
        if (ready <= 0)
            continue;
        ssize_t n = read(from, block, sizeof block);
        if (n <= 0)
            return true;
        qn_buf_add(out, block, (size_t)n);
    }
}

/* True when the case passes; else its failures are in `out`. */
static bool run_one(case_fn run, const qn_json *c, int alternative,
                    const char *folder, qn_buf *out)
{
    const qn_json *limits = qn_json_get(c, "limits");
    double seconds = 60;
    qn_json_as_double(qn_json_get(limits, "seconds"), &seconds);
    int64_t rss_mb = case_int(limits, "rss_mb", 0);
    const char *slower = getenv("QUERN_CASES_SLOWER");
    if (slower)
        seconds *= atof(slower);
    char scratch[] = "/tmp/run-cases-XXXXXX";
    int ends[2];
    if (!mkdtemp(scratch) || pipe(ends)) {
        qn_buf_add_text(out, "no scratch directory or pipe\n");
        return false;
    }
    fflush(NULL);
    pid_t child = fork();
    if (!child) {
        close(ends[0]);
        report_to = ends[1];
        case_context context = {.folder = folder, .scratch = scratch};
        run_child(run, c, alternative, &context);
        /* exit, not _exit: leaks are then found where they are looked for. */
        exit(failures ? 1 : 0);
    }
    close(ends[1]);
    bool in_time = child > 0 && collect(ends[0], out, seconds);
    close(ends[0]);
    if (child > 0 && !in_time)
        kill(child, SIGKILL);
    int state = 0;
    struct rusage usage;
    memset(&usage, 0, sizeof usage);
    if (child > 0)
        wait4(child, &state, 0, &usage);
    nftw(scratch, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    bool passed =
        child > 0 && in_time && WIFEXITED(state) && WEXITSTATUS(state) == 0;
    if (!in_time)
        qn_buf_printf(out, "longer than %.0f s\n", seconds);
    else if (WIFSIGNALED(state))
        qn_buf_printf(out, "died of signal %d\n", WTERMSIG(state));
    else if (!passed && !out->size)
        qn_buf_printf(out, "exited with %d\n", WEXITSTATUS(state));
    if (passed && rss_mb && !SANITIZED && usage.ru_maxrss / 1024 > rss_mb) {
        qn_buf_printf(out, "resident memory: at most %lld MB, found %ld\n",
                      (long long)rss_mb, usage.ru_maxrss / 1024);
        passed = false;
    }
    return passed;
}

/* ---- files ---- */

static size_t passed_count, failed_count, later_count;
/* Text of the file named by --later: an id a line. */
static char *later;
static bool verbose;

static void print_failure(const char *path, const char *id, const qn_buf *lines)
{
    printf("FAILED %s %s\n", path, id);
    for (const char *p = lines->data; p && *p;) {
        size_t n = strcspn(p, "\n");
        printf("    %.*s\n", (int)n, p);
        p += n + (p[n] == '\n');
    }
    fflush(stdout);
}

static bool is_later(const char *id)
{
    size_t n = strlen(id);
    for (const char *p = later; p && *p;) {
        size_t length = strcspn(p, "\n");
        if (length == n && !memcmp(p, id, n))
            return true;
        p += length + (p[length] == '\n');
    }
    return false;
}

static void run_case(const char *path, const char *id, case_fn run,
                     const qn_json *c, const char *folder)
{
    qn_buf lines = QN_BUF_INIT;
    bool passed = false;
    const qn_json *any = qn_json_get(qn_json_get(c, "expect"), "any_of");
    /* One request is held to all alternatives (server/run.py). */
    if (run == run_server_case)
        any = NULL;
    if (!run) {
        qn_str kind = {"(none)", 6};
        qn_json_as_str(qn_json_get(c, "kind"), &kind);
        qn_buf_printf(&lines, "kind %.*s is not implemented\n", (int)kind.size,
                      kind.data);
    } else if (any && any->type == QN_JSON_T_ARRAY) {
        for (uint32_t i = 0; !passed && i < any->count; i++)
            passed = run_one(run, c, (int)i, folder, &lines);
    } else {
        passed = run_one(run, c, -1, folder, &lines);
    }
    if (is_later(id)) {
        /* The list must not outlive what it excuses. */
        if (passed) {
            qn_buf_add_text(&lines, "passes, but is on the list of --later\n");
            print_failure(path, id, &lines);
            failed_count++;
        } else {
            later_count++;
        }
    } else if (passed) {
        passed_count++;
        if (verbose)
            printf("passed %s %s\n", path, id);
    } else {
        failed_count++;
        print_failure(path, id, &lines);
    }
    qn_buf_free(&lines);
}

static void fail_file(const char *path, const char *why)
{
    printf("FAILED %s\n    %s\n", path, why);
    failed_count++;
}

static void run_lines(const char *path, const char *folder, qn_str text)
{
    int number = 0;
    for (size_t at = 0; at < text.size;) {
        const char *line = text.data + at;
        const char *end = memchr(line, '\n', text.size - at);
        size_t n = end ? (size_t)(end - line) : text.size - at;
        at += n + 1;
        number++;
        if (!n)
            continue;
        qn_json_doc *doc;
        char id[256];
        snprintf(id, sizeof id, "line %d", number);
        if (qn_json_parse(&doc, (qn_str){line, n},
                          QN_JSON_ALLOW_LONE_SURROGATES)) {
            print_failure(
                path, id,
                &(qn_buf){.data = (char *)(uintptr_t)qn_error_text()});
            failed_count++;
            continue;
        }
        const qn_json *c = qn_json_root(doc);
        qn_str name;
        if (qn_json_as_str(qn_json_get(c, "id"), &name))
            snprintf(id, sizeof id, "%.*s", (int)name.size, name.data);
        run_case(path, id, function_of(c), c, folder);
        qn_json_doc_free(doc);
    }
}

static void run_goldens(const char *path, const char *folder,
                        const qn_json *root)
{
    const qn_json *cases = qn_json_get(root, "cases");
    for (uint32_t i = 0; cases && i < cases->count; i++) {
        char id[64];
        snprintf(id, sizeof id, "case %u", i);
        run_case(path, id, run_golden_case, &cases->items[i], folder);
    }
}

/* Goldens whose file is one case: those of the formats that quern defines. */
static const struct {
    const char *id;
    bool (*is)(const qn_json *root);
    case_fn run;
} files[] = {
    {"turboquant", is_turboquant_golden, run_turboquant_golden},
    {"helpers", is_helpers_golden, run_helpers_golden},
};

static bool run_golden_file(const char *path, const char *folder,
                            const qn_json *root)
{
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        if (files[i].is(root)) {
            run_case(path, files[i].id, files[i].run, root, folder);
            return true;
        }
    return false;
}

static bool is_golden(const qn_json *root)
{
    return qn_json_get(root, "model") && qn_json_get(root, "reference") &&
           qn_json_get(root, "cases");
}

/* `named`: the file was given by name, so it must be of a known form. */
static void run_file(const char *path, bool named)
{
    char *text = NULL;
    size_t size;
    qn_json_doc *doc = NULL;
    if (qn_file_read(&text, &size, path, 1u << 30)) {
        fail_file(path, qn_error_text());
        return;
    }
    char *folder = qn_strdup(path), *slash = folder ? strrchr(folder, '/') : 0;
    if (slash)
        *slash = '\0';
    else if (folder)
        snprintf(folder, strlen(path) + 1, ".");
    qn_str whole = {text, size};
    const char *dot = strrchr(path, '.');
    if (dot && !strcmp(dot, ".jsonl")) {
        run_lines(path, folder, whole);
    } else if (qn_json_parse(&doc, whole, 0)) {
        if (named)
            fail_file(path, qn_error_text());
    } else if (is_golden(qn_json_root(doc))) {
        run_goldens(path, folder, qn_json_root(doc));
    } else if (!run_golden_file(path, folder, qn_json_root(doc)) && named) {
        fail_file(path, "neither case lines nor goldens");
    }
    qn_json_doc_free(doc);
    qn_free(folder);
    qn_free(text);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void run_folder(const char *path)
{
    DIR *dir = opendir(path);
    char *names[1024];
    size_t count = 0;
    if (!dir) {
        fail_file(path, "can't be read");
        return;
    }
    for (struct dirent *e; count < 1024 && (e = readdir(dir));)
        if (e->d_name[0] != '.')
            names[count++] = qn_path_join(path, e->d_name);
    closedir(dir);
    qsort(names, count, sizeof *names, by_name);
    for (size_t i = 0; i < count; i++) {
        const char *dot = strrchr(names[i], '.');
        /* Fixtures are input of cases, not cases. */
        if (qn_path_is_dir(names[i])) {
            const char *base = strrchr(names[i], '/');
            if (!base || strcmp(base, "/fixtures"))
                run_folder(names[i]);
        } else if (dot && (!strcmp(dot, ".jsonl") || !strcmp(dot, ".json"))) {
            run_file(names[i], false);
        }
        qn_free(names[i]);
    }
}

int main(int argc, char **argv)
{
    /* Times of cases are for a machine that does nothing else; also read by the
     * programs that cases start (server/client.py). */
    if (SANITIZED)
        setenv("QUERN_CASES_SLOWER", "10", 1);
    int first = 1;
    if (argc > 1 && !strcmp(argv[1], "-v")) {
        verbose = true;
        first++;
    }
    if (first + 1 < argc && !strcmp(argv[first], "--later")) {
        size_t size;
        if (qn_file_read(&later, &size, argv[first + 1], 1 << 20)) {
            fprintf(stderr, "run-cases: %s: %s\n", argv[first + 1],
                    qn_error_text());
            return 2;
        }
        first += 2;
    }
    if (first >= argc) {
        fprintf(stderr, "usage: run-cases [-v] [--later LIST] PATH...\n"
                        "PATH: case files (.jsonl), goldens (.json) or "
                        "folders of them\n"
                        "LIST: ids, one a line, of cases that can't pass yet; "
                        "they must fail\n");
        return 2;
    }
    for (int i = first; i < argc; i++) {
        if (qn_path_is_dir(argv[i]))
            run_folder(argv[i]);
        else
            run_file(argv[i], true);
    }
    if (later)
        printf("%zu for later\n", later_count);
    printf("%zu passed, %zu failed\n", passed_count, failed_count);
    qn_free(later);
    return failed_count ? 1 : 0;
}
