/* download.c: cases of kind `download`: `quern get` against a hub on a loopback
 * port (tests/support/hub_server.py), which behaves as each run says. */
#include "case.h"

#include "base/alloc.h"
#include "base/digest.h"
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST_AT_ONCE = 8 };

typedef struct trial {
    const char *files, *scratch;
    char state[600], cache[600], repo[640], output[640], endpoint[64];
    pid_t server;
    bool new_version;            /* of the last run */
    char digest[QN_DIGEST_SIZE]; /* of the weights as served last */
} trial;

static void write_file(const char *path, const void *data, size_t size)
{
    if (qn_file_write_atomic(path, data, size))
        case_fail("case: cannot write %s: %s", path, qn_error_text());
}

/* ---- the server ---- */

static void start_server(trial *t)
{
    char url[640], *text = NULL;
    t->server = fork();
    if (!t->server) {
        execlp("python3", "python3", QN_TEST_HUB_SERVER, t->state,
               (char *)NULL);
        _exit(127);
    }
    snprintf(url, sizeof url, "%s/url", t->state);
    for (int i = 0; i < 2000 && !qn_path_exists(url); i++)
        usleep(10000);
    if (qn_file_read(&text, NULL, url, 64))
        case_fail("case: the server does not start");
    else
        snprintf(t->endpoint, sizeof t->endpoint, "%s", text);
    qn_free(text);
}

/* What a run says of the weights, as the server reads it. */
static void set_manners(trial *t, const qn_json *run)
{
    static const char *const numbers[][2] = {
        {"close_after", "close_after"},
        {"flip_bit_of_byte", "flip"},
        {"pace_ms", "pace_ms"},
    };
    qn_str text;
    char path[640];
    qn_buf out = QN_BUF_INIT;
    t->new_version = qn_json_as_str(qn_json_get(run, "version"), &text) &&
                     qn_str_is(text, "b");
    qn_buf_printf(&out, "{\"root\":\"%s\",\"repo\":\"t/m\",\"version\":\"%s\"",
                  t->files, t->new_version ? "b" : "a");
    if (qn_json_as_str(qn_json_get(run, "range"), &text))
        qn_buf_printf(&out, ",\"range\":\"%.*s\"", (int)text.size, text.data);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (qn_json_get(run, numbers[i][0]))
            qn_buf_printf(&out, ",\"%s\":%lld", numbers[i][1],
                          (long long)case_int(run, numbers[i][0], 0));
    qn_buf_add_char(&out, '}');
    snprintf(path, sizeof path, "%s/control.json", t->state);
    write_file(path, out.data, out.size);
    qn_buf_free(&out);
}

/* ---- files ---- */

static void digest_of(char out[QN_DIGEST_SIZE], const char *data, size_t size)
{
    qn_digest digest;
    qn_digest_begin(&digest, QN_SHA256);
    qn_digest_add(&digest, data, size);
    qn_digest_end(&digest, out);
}

/* The weights as the server has them; its digest to t->digest. */
static char *weights(trial *t, size_t *size)
{
    char path[1024], *data = NULL;
    snprintf(path, sizeof path, "%s/model.safetensors", t->files);
    if (qn_file_read(&data, size, path, 1 << 24) || !*size) {
        case_fail("case: cannot read %s", path);
        return NULL;
    }
    if (t->new_version)
        data[*size - 1] ^= 1;
    digest_of(t->digest, data, *size);
    return data;
}

static void put_partial(trial *t, int64_t bytes)
{
    char path[1024];
    size_t size;
    char *data = weights(t, &size);
    snprintf(path, sizeof path, "%s/blobs", t->repo);
    mkdir(t->cache, 0777);
    mkdir(t->repo, 0777);
    mkdir(path, 0777);
    snprintf(path, sizeof path, "%s/blobs/%s.incomplete", t->repo, t->digest);
    if (data && bytes >= 0 && (size_t)bytes <= size)
        write_file(path, data, (size_t)bytes);
    qn_free(data);
}

/* ---- runs ---- */

static pid_t start_get(const trial *t, const qn_json *run)
{
    pid_t child = fork();
    if (child)
        return child;
    char number[24];
    int fd = open(t->output, O_WRONLY | O_CREAT | O_APPEND, 0666);
    dup2(fd, STDOUT_FILENO);
    dup2(fd, STDERR_FILENO);
    setenv("HF_ENDPOINT", t->endpoint, 1);
    setenv("QUERN_CACHE", t->cache, 1);
    setenv("HOME", t->scratch, 1);
    unsetenv("HF_TOKEN");
    unsetenv("http_proxy");
    unsetenv("all_proxy");
    if (qn_json_get(run, "disk_full_at")) {
        snprintf(number, sizeof number, "%lld",
                 (long long)case_int(run, "disk_full_at", 0));
        setenv("QUERN_TEST_DISK_FULL_AT", number, 1);
    }
    snprintf(number, sizeof number, "%lld",
             (long long)case_int(run, "retries", 5));
    execl(QN_TEST_PROGRAM, "quern", "get", "t/m", "--json", "--retries", number,
          (char *)NULL);
    _exit(127);
}

/* The largest exit code of the run's processes. */
static int do_run(trial *t, const qn_json *run)
{
    pid_t children[MOST_AT_ONCE];
    int64_t count = case_int(run, "parallel", 1);
    int worst = 0;
    set_manners(t, run);
    unlink(t->output);
    if (count < 1 || count > MOST_AT_ONCE) {
        case_fail("case: bad 'parallel'");
        return 0;
    }
    for (int64_t i = 0; i < count; i++)
        children[i] = start_get(t, run);
    for (int64_t i = 0; i < count; i++) {
        int status;
        waitpid(children[i], &status, 0);
        int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128;
        if (code > worst)
            worst = code;
        if (code > 125)
            case_fail("quern get ended with %d", code);
    }
    return worst;
}

/* ---- what came of it ---- */

static void check_file(const trial *t, const qn_json *expect)
{
    char path[1024], found[QN_DIGEST_SIZE], *data = NULL;
    size_t size = 0;
    int64_t bytes;
    bool wanted = true, exists, sha_ok;
    char commit[41] = "";
    memset(commit, t->new_version ? 'b' : 'a', 40);
    snprintf(path, sizeof path, "%s/snapshots/%s/model.safetensors", t->repo,
             commit);
    exists = !qn_file_read(&data, &size, path, 1 << 24);
    if (qn_json_as_bool(qn_json_get(expect, "final_file_exists"), &wanted) &&
        wanted != exists)
        case_fail("%s: expected it %s, found it %s", path,
                  wanted ? "there" : "absent", exists ? "there" : "absent");
    if (qn_json_as_int(qn_json_get(expect, "file_bytes"), &bytes) &&
        (!exists || (int64_t)size != bytes))
        case_fail("expected a file of %lld bytes, found %zu", (long long)bytes,
                  size);
    if (qn_json_as_bool(qn_json_get(expect, "sha_ok"), &sha_ok)) {
        digest_of(found, exists ? data : "", size);
        if (sha_ok != (exists && !strcmp(found, t->digest)))
            case_fail("expected the SHA-256 %s, found %s", t->digest, found);
    }
    qn_free(data);
}

static void check_partial(const trial *t, const qn_json *expect)
{
    char path[1024];
    struct stat info;
    int64_t bytes;
    snprintf(path, sizeof path, "%s/blobs/%s.incomplete", t->repo, t->digest);
    if (!qn_json_as_int(qn_json_get(expect, "partial_bytes"), &bytes))
        return;
    if (stat(path, &info) || info.st_size != bytes)
        case_fail("expected %lld bytes in %s, found %lld", (long long)bytes,
                  path, stat(path, &info) ? -1LL : (long long)info.st_size);
}

static void check_output(const trial *t, const qn_json *expect)
{
    char *text = NULL;
    if (!qn_json_get(expect, "message_contains"))
        return;
    if (qn_file_read(&text, NULL, t->output, 1 << 20))
        case_fail("quern get wrote nothing");
    else
        case_check_message(qn_json_get(expect, "message_contains"), text);
    qn_free(text);
}

static void check_runs(trial *t, const qn_json *c)
{
    const qn_json *expect = qn_json_get(c, "expect");
    const qn_json *runs = qn_json_get(qn_json_get(c, "input"), "runs");
    bool error = case_bool(expect, "error", false);
    for (uint32_t i = 0; runs && i < runs->count; i++) {
        const qn_json *run = &runs->items[i];
        bool last = i + 1 == runs->count;
        int code = do_run(t, run);
        if (error && last && !code)
            case_fail("expected a failure, found success");
        if (!error && code && !qn_json_get(run, "close_after"))
            case_fail("run %u: expected success, found the exit code %d", i,
                      code);
    }
    size_t size;
    qn_free(weights(t, &size));
    check_file(t, expect);
    check_partial(t, expect);
    check_output(t, expect);
}

void run_download_case(const qn_json *c, const case_context *context)
{
    trial t = {.scratch = context->scratch};
    char files[1024];
    const qn_json *input = qn_json_get(c, "input");
    qn_str repo = case_text(input, "repo");
    snprintf(files, sizeof files, "%s/fixtures/%.*s", context->folder,
             (int)repo.size, repo.data);
    t.files = files;
    snprintf(t.state, sizeof t.state, "%s/hub", context->scratch);
    snprintf(t.cache, sizeof t.cache, "%s/cache", context->scratch);
    snprintf(t.repo, sizeof t.repo, "%s/models--t--m", t.cache);
    snprintf(t.output, sizeof t.output, "%s/output", context->scratch);
    mkdir(t.state, 0777);
    start_server(&t);
    if (qn_json_get(input, "partial"))
        put_partial(&t, case_int(input, "partial", 0));
    if (!case_failed())
        check_runs(&t, c);
    if (t.server > 0) {
        kill(t.server, SIGTERM);
        waitpid(t.server, NULL, 0);
    }
}
