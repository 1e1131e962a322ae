/* access.c: see access.h. */
#include "access.h"

#include "base/json.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

qn_status qn_access_open(qn_access_log *log)
{
    log->fd = log->secret ? -1 : STDERR_FILENO;
    log->owned = false;
    if (!log->path)
        return QN_OK;
    int fd = open(log->path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC,
                  log->secret ? 0600 : 0640);
    if (fd < 0)
        return qn_fail_where(qn_fail(QN_E_IO, "%s", strerror(errno)), "%s",
                             log->path);
    log->fd = fd;
    log->owned = true;
    return QN_OK;
}

void qn_access_close(qn_access_log *log)
{
    /* A file that could not be had left stderr, which others write to. */
    if (log->owned)
        close(log->fd);
    log->fd = -1;
    log->owned = false;
}

/* ---- lines ---- */

static void add_time(char out[40], double seconds)
{
    time_t whole = (time_t)seconds;
    struct tm parts;
    gmtime_r(&whole, &parts);
    size_t n = strftime(out, 40, "%Y-%m-%dT%H:%M:%S", &parts);
    snprintf(out + n, 40 - n, ".%03dZ", (int)(1e3 * (seconds - (double)whole)));
}

/* Visible ASCII as it is; anything else, and the backslash, as \xNN. */
static void add_escaped(qn_buf *out, const char *text)
{
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c > ' ' && c < 0x7f && c != '\\')
            qn_buf_add_char(out, (char)c);
        else
            qn_buf_printf(out, "\\x%02x", c);
    }
}

typedef struct field {
    const char *name, *text;
    double number;
    int digits; /* behind the point; -1: a text */
} field;

enum { FIELDS = 17 };

static void list_fields(field out[FIELDS], const qn_access_line *l,
                        const char *time)
{
    const field all[FIELDS] = {
        {"time", time, 0, -1},
        {"id", l->request_id, 0, -1},
        {"peer", l->peer, 0, -1},
        {"key", l->key, 0, -1},
        {"route", l->route, 0, -1},
        {"status", NULL, l->status, 0},
        {"model", l->model, 0, -1},
        {"prompt", NULL, (double)l->prompt_tokens, 0},
        {"cached", NULL, (double)l->cached_tokens, 0},
        {"completion", NULL, (double)l->completion_tokens, 0},
        {"queue_ms", NULL, l->queue_ms, 1},
        {"ttft_ms", NULL, l->ttft_ms, 1},
        {"total_ms", NULL, l->total_ms, 1},
        {"finish", l->finish, 0, -1},
        {"error", l->error, 0, -1},
        {"accept_rate", NULL, l->accept_rate, 2},
        {"left", l->left ? "yes" : NULL, 0, -1},
    };
    memcpy(out, all, sizeof all);
}

static void add_field(qn_buf *out, const field *f, bool json)
{
    if (json)
        qn_buf_printf(out, "%s\"%s\":", out->size > 1 ? "," : "", f->name);
    else if (strcmp(f->name, "time") != 0)
        qn_buf_printf(out, " %s=", f->name);
    if (f->digits >= 0)
        qn_buf_printf(out, "%.*f", f->digits, f->number);
    else if (json)
        qn_json_quote(out, qn_str_of(f->text));
    else
        add_escaped(out, f->text);
}

void qn_access_format(qn_buf *out, const qn_access_line *line, bool json)
{
    char time[40];
    field fields[FIELDS];
    add_time(time, line->time);
    list_fields(fields, line, time);
    if (json)
        qn_buf_add_char(out, '{');
    for (int i = 0; i < FIELDS; i++) {
        const field *f = &fields[i];
        if (f->digits >= 0 ? f->number >= 0 : f->text && *f->text)
            add_field(out, f, json);
    }
    qn_buf_add_text(out, json ? "}\n" : "\n");
}

static bool has_room(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    return poll(&p, 1, 0) == 1 && p.revents & POLLOUT;
}

/* Writes a line, and frees it; one that can't be written stops no request. */
static void write_line(qn_access_log *log, qn_buf *line)
{
    qn_buf out = QN_BUF_INIT;
    if (log->lost)
        qn_buf_printf(&out, log->json ? "{\"lost\":%u}\n" : "lost=%u\n",
                      log->lost);
    qn_buf_add_str(&out, qn_buf_str(line));
    if (line->failed || qn_buf_status(&out) || !has_room(log->fd) ||
        write(log->fd, out.data, out.size) < 0)
        log->lost++;
    else
        log->lost = 0;
    qn_buf_free(&out);
    qn_buf_free(line);
}

void qn_access_content(qn_access_log *log, double time, const char *request_id,
                       qn_str request, const quern_result *results,
                       size_t count)
{
    char when[40];
    qn_buf out = QN_BUF_INIT;
    qn_json_writer w;
    add_time(when, time);
    qn_json_write_begin(&w, &out);
    qn_json_write_object(&w);
    qn_json_write_key(&w, "time");
    qn_json_write_text(&w, when);
    qn_json_write_key(&w, "id");
    qn_json_write_text(&w, request_id);
    qn_json_write_key(&w, "request");
    qn_json_write_str(&w, request);
    qn_json_write_key(&w, "answers");
    qn_json_write_array(&w);
    for (size_t i = 0; i < count; i++) {
        qn_json_write_object(&w);
        qn_json_write_key(&w, "reasoning");
        qn_json_write_str(
            &w, (qn_str){results[i].reasoning, results[i].reasoning_size});
        qn_json_write_key(&w, "text");
        qn_json_write_str(&w, (qn_str){results[i].text, results[i].size});
        qn_json_write_object_end(&w);
    }
    qn_json_write_array_end(&w);
    qn_json_write_object_end(&w);
    qn_buf_add_char(&out, '\n');
    write_line(log, &out);
}

void qn_access_write(qn_access_log *log, const qn_access_line *line)
{
    if (log->fd < 0 || log->level < QUERN_LOG_INFO)
        return;
    qn_buf out = QN_BUF_INIT;
    qn_access_format(&out, line, log->json);
    write_line(log, &out);
}
