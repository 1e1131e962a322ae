/* runs.c: see runs.h.
 *
 * A line is written at once to the end of the file, so that two programs that
 * measure at the same time do not mix theirs. */
#include "runs.h"

#include "base/alloc.h"
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { MOST = 64 << 20 };

/* The file; its folder is made if `make`.  NULL: no home, or no memory. */
static char *runs_path(bool make)
{
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    qn_buf path = QN_BUF_INIT;
    if (state && *state == '/')
        qn_buf_printf(&path, "%s/quern", state);
    else if (home && *home == '/')
        qn_buf_printf(&path, "%s/.local/state/quern", home);
    else
        return NULL;
    for (size_t i = 1; make && !qn_buf_status(&path) && i <= path.size; i++)
        if (path.data[i] == '/' || !path.data[i]) {
            char kept = path.data[i];
            path.data[i] = '\0';
            mkdir(path.data, 0700);
            path.data[i] = kept;
        }
    qn_buf_add_text(&path, "/runs.jsonl");
    return qn_buf_take(&path);
}

/* "{...}" with the time in front. */
static void add_time(qn_buf *out, qn_str line)
{
    time_t now = time(NULL);
    struct tm parts;
    char text[32] = "";
    if (gmtime_r(&now, &parts))
        strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
    qn_buf_printf(out, "{\"time\":\"%s\",", text);
    qn_buf_add(out, line.data + 1, line.size - 1);
    while (out->size && !out->failed && out->data[out->size - 1] == '\n')
        qn_buf_truncate(out, out->size - 1);
    qn_buf_add_char(out, '\n');
}

void qn_runs_add(const qn_cli *cli, qn_str line)
{
    const qn_arg *record = &cli->args.flag[QN_FLAG_RECORD];
    if ((record->given && !record->on) || line.size < 2)
        return;
    qn_buf out = QN_BUF_INIT;
    char *path = runs_path(true);
    add_time(&out, line);
    int fd =
        path && !qn_buf_status(&out)
            ? open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK,
                   0600)
            : -1;
    bool good = fd >= 0 && write(fd, out.data, out.size) == (ssize_t)out.size;
    if (!good && path) {
        char text[256];
        snprintf(text, sizeof text, "%.160s: the run is not kept: %s", path,
                 strerror(errno));
        qn_cli_log(cli, QUERN_LOG_WARN, text);
    }
    if (fd >= 0)
        close(fd);
    qn_buf_free(&out);
    qn_free(path);
}

/* ---- the table ---- */

static qn_str text_of(const qn_json *object, const char *key)
{
    qn_str text = {"", 0};
    qn_json_as_str(qn_json_get(object, key), &text);
    return text;
}

static qn_str last_part(qn_str path)
{
    for (size_t i = path.size; i-- > 0;)
        if (path.data[i] == '/' && i + 1 < path.size)
            return (qn_str){path.data + i + 1, path.size - i - 1};
    return path;
}

static void add_bench(qn_buf *out, const qn_json *d)
{
    double rate = 0, spread = 0;
    int64_t batch = 0, depth = 0;
    qn_str test = text_of(d, "test");
    qn_json_as_double(qn_json_get(d, "tokens_per_s"), &rate);
    qn_json_as_double(qn_json_get(d, "spread_percent"), &spread);
    qn_json_as_int(qn_json_get(d, "batch"), &batch);
    qn_json_as_int(qn_json_get(d, "depth"), &depth);
    qn_buf_printf(out, "%.*s @ d%lld x %lld  %.1f tokens/s +- %.1f%%",
                  (int)test.size, test.data, (long long)depth, (long long)batch,
                  rate, spread);
}

static void add_server(qn_buf *out, const qn_json *d)
{
    double rate = 0, first = 0;
    int64_t clients = 0;
    qn_json_as_double(qn_json_get(d, "tokens_per_s"), &rate);
    qn_json_as_double(qn_json_get(qn_json_get(d, "ttft_s"), "p50"), &first);
    qn_json_as_int(qn_json_get(d, "concurrency"), &clients);
    qn_buf_printf(out, "%lld clients  %.1f tokens/s  ttft p50 %.1f ms",
                  (long long)clients, rate, first * 1e3);
}

static void add_eval(qn_buf *out, const qn_json *d)
{
    qn_str task = text_of(d, "task");
    const qn_json *metrics = qn_json_get(d, "metrics");
    qn_buf_printf(out, "%.*s", (int)task.size, task.data);
    for (uint32_t i = 0; metrics && i < metrics->count; i++) {
        double value = 0;
        qn_json_as_double(&metrics->items[i], &value);
        qn_buf_printf(out, "  %.*s %.6g", (int)metrics->keys[i].size,
                      metrics->keys[i].data, value);
    }
}

static void add_run(qn_buf *out, const qn_json *d)
{
    bool server = qn_json_get(d, "server") != NULL;
    qn_str time = text_of(d, "time"), model = last_part(text_of(d, "model"));
    if (server)
        model = text_of(d, "server");
    qn_buf_printf(out, "%-20.*s  %-32.*s  ", (int)time.size, time.data,
                  (int)model.size, model.data);
    if (qn_json_get(d, "test"))
        add_bench(out, d);
    else if (server)
        add_server(out, d);
    else
        add_eval(out, d);
    qn_buf_add_char(out, '\n');
}

/* Lines that another release wrote, or half of one, are left out. */
static void add_runs(qn_buf *out, const char *text, size_t size, bool json)
{
    const char *at = text, *end = text + size;
    while (at < end) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        size_t length = stop ? (size_t)(stop - at) : (size_t)(end - at);
        qn_json_doc *doc;
        if (length && !qn_json_parse(&doc, (qn_str){at, length}, 0)) {
            if (json) {
                qn_buf_add(out, at, length);
                qn_buf_add_char(out, '\n');
            } else {
                add_run(out, qn_json_root(doc));
            }
            qn_json_doc_free(doc);
        }
        at += length + 1;
    }
}

int qn_runs_show(const qn_cli *cli)
{
    char *path = runs_path(false), *text = NULL;
    size_t size = 0;
    qn_buf out = QN_BUF_INIT;
    qn_status status = QN_OK;
    if (path && qn_path_exists(path))
        status = qn_file_read(&text, &size, path, MOST);
    if (!status)
        add_runs(&out, text ? text : "", size, cli->json);
    qn_free(text);
    qn_free(path);
    if (!status)
        return qn_out_buffer(cli, &out);
    qn_buf_free(&out);
    return qn_cli_fail_status(cli, status, NULL);
}
