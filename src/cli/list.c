/* list.c: `quern list`: the models of the cache, or those of the hub. */
#include "cli.h"

#include "base/alloc.h"
#include "base/units.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct row {
    const quern_cached *cached;
    char architecture[48], quantization[48];
    bool runnable;
    char *reason; /* why not; may be NULL */
} row;

/* ---- what can run ---- */

static void copy(char *out, size_t size, const char *text)
{
    snprintf(out, size, "%s", text);
}

/* Opens the headers: what can't be opened can't run. */
static void examine(row *r)
{
    quern_model *model = NULL;
    quern_options options;
    quern_error error = {0};
    char ref[256];
    if (!r->cached->complete) {
        r->reason = qn_strdup("incomplete");
        return;
    }
    quern_options_init(&options);
    options.headers_only = true;
    snprintf(ref, sizeof ref, "hf:%.120s@%.100s", r->cached->id,
             r->cached->revision);
    quern_status status = quern_model_load(&model, ref, &options, &error);
    r->runnable = !status || status == QUERN_E_ARG;
    if (!status) {
        quern_info info;
        quern_model_info(model, &info);
        copy(r->architecture, sizeof r->architecture, info.family);
        copy(r->quantization, sizeof r->quantization, info.quantization);
    } else if (status == QUERN_E_ARG) {
        /* Several GGUF files, one of which is named when it is run. */
        copy(r->architecture, sizeof r->architecture, "gguf");
        copy(r->quantization, sizeof r->quantization, "several");
    } else {
        r->reason = qn_strdup(error.message);
    }
    quern_model_free(model);
}

/* ---- order ---- */

static int by_size(const void *a, const void *b)
{
    const row *x = a, *y = b;
    return (x->cached->bytes < y->cached->bytes) -
           (x->cached->bytes > y->cached->bytes);
}

static int by_date(const void *a, const void *b)
{
    const row *x = a, *y = b;
    return (x->cached->last_use < y->cached->last_use) -
           (x->cached->last_use > y->cached->last_use);
}

static void sort_rows(row *rows, size_t count, const qn_arg *order)
{
    if (!order->given || !strcmp(order->text, "name") || !count)
        return; /* they come by name */
    qsort(rows, count, sizeof *rows,
          strcmp(order->text, "size") ? by_date : by_size);
}

/* ---- output ---- */

static void add_day(char out[32], int64_t when)
{
    time_t seconds = (time_t)when;
    struct tm day;
    *out = '\0';
    if (when > 0 && localtime_r(&seconds, &day))
        strftime(out, 32, "%Y-%m-%d", &day);
}

static void print_text(const row *rows, size_t count, qn_buf *out)
{
    int width = 24;
    for (size_t i = 0; i < count; i++)
        if ((int)strlen(rows[i].cached->id) > width)
            width = (int)strlen(rows[i].cached->id);
    width = width > 60 ? 60 : width;
    qn_buf_printf(out, "%-*s  %-8s %-12s %-20s %10s  %-10s  %s\n", width,
                  "model", "revision", "architecture", "quantization", "size",
                  "last use", "runs");
    for (size_t i = 0; i < count; i++) {
        const row *r = &rows[i];
        char size[QN_SIZE_TEXT], day[32];
        add_day(day, r->cached->last_use);
        qn_buf_printf(out, "%-*s  %-8.7s %-12s %-20s %10s  %-10s  %s\n", width,
                      r->cached->id,
                      *r->cached->revision ? r->cached->revision : "-",
                      *r->architecture ? r->architecture : "-",
                      *r->quantization ? r->quantization : "-",
                      qn_size_text(size, r->cached->bytes), *day ? day : "-",
                      r->runnable ? "yes"
                      : r->reason ? r->reason
                                  : "no");
    }
}

static void write_row(qn_json_writer *w, const row *r)
{
    qn_json_write_object(w);
    qn_json_pair_text(w, "id", r->cached->id);
    qn_json_pair_text(w, "revision", r->cached->revision);
    qn_json_pair_text(w, "refs", r->cached->refs);
    qn_json_pair_text(w, "path", r->cached->path);
    qn_json_pair_text(w, "architecture",
                      *r->architecture ? r->architecture : NULL);
    qn_json_pair_text(w, "quantization",
                      *r->quantization ? r->quantization : NULL);
    qn_json_write_key(w, "size");
    qn_json_write_uint(w, r->cached->bytes);
    qn_json_write_key(w, "last_use");
    qn_json_write_int(w, r->cached->last_use);
    qn_json_write_key(w, "complete");
    qn_json_write_bool(w, r->cached->complete);
    qn_json_write_key(w, "runnable");
    qn_json_write_bool(w, r->runnable);
    qn_json_pair_text(w, "reason", r->reason);
    qn_json_write_object_end(w);
}

static int print_rows(const qn_cli *cli, const row *rows, size_t count)
{
    qn_buf out = QN_BUF_INIT;
    if (!cli->json) {
        print_text(rows, count, &out);
        return qn_out_buffer(cli, &out);
    }
    qn_json_writer w;
    qn_json_write_begin(&w, &out);
    qn_json_write_object(&w);
    qn_json_pair_text(&w, "schema", "quern.list/1");
    qn_json_write_key(&w, "models");
    qn_json_write_array(&w);
    for (size_t i = 0; i < count; i++)
        write_row(&w, &rows[i]);
    qn_json_write_array_end(&w);
    qn_json_write_object_end(&w);
    return qn_out_json(cli, &out);
}

/* ---- the hub's ---- */

static void write_remote(qn_buf *out, const quern_remote_list *list)
{
    qn_json_writer w;
    qn_json_write_begin(&w, out);
    qn_json_write_object(&w);
    qn_json_pair_text(&w, "schema", "quern.list/1");
    qn_json_write_key(&w, "remote");
    qn_json_write_array(&w);
    for (size_t i = 0; i < list->count; i++) {
        const quern_remote *r = &list->items[i];
        qn_json_write_object(&w);
        qn_json_pair_text(&w, "id", r->id);
        qn_json_pair_text(&w, "modified", *r->modified ? r->modified : NULL);
        qn_json_write_key(&w, "downloads");
        qn_json_write_uint(&w, r->downloads);
        qn_json_write_key(&w, "likes");
        qn_json_write_uint(&w, r->likes);
        qn_json_write_object_end(&w);
    }
    qn_json_write_array_end(&w);
    qn_json_write_object_end(&w);
}

static int list_remote(const qn_cli *cli, const char *query)
{
    enum { MOST = 30 };
    quern_remote_list list;
    quern_error error;
    qn_buf out = QN_BUF_INIT;
    int code;
    if (quern_hub_search(&list, query, MOST, &error)) {
        code = qn_cli_fail_error(cli, &error);
    } else if (cli->json) {
        write_remote(&out, &list);
        code = qn_out_json(cli, &out);
    } else {
        qn_buf_printf(&out, "%-60s %12s  %s\n", "model", "downloads",
                      "modified");
        for (size_t i = 0; i < list.count; i++)
            qn_buf_printf(&out, "%-60s %12llu  %s\n", list.items[i].id,
                          (unsigned long long)list.items[i].downloads,
                          list.items[i].modified);
        code = qn_out_buffer(cli, &out);
    }
    quern_remote_list_free(&list);
    return code;
}

/* ---- the command ---- */

int qn_cli_list(qn_cli *cli)
{
    const qn_arg *flag = cli->args.flag;
    if (flag[QN_FLAG_REMOTE].given)
        return list_remote(cli, flag[QN_FLAG_REMOTE].text);
    quern_cached_list list;
    quern_error error;
    int code = QN_EXIT_OK;
    if (quern_cache_list(&list, &error))
        code = qn_cli_fail_error(cli, &error);
    row *rows = code ? NULL : qn_calloc(list.count + 1, sizeof *rows);
    if (!code && !rows)
        code = qn_cli_fail_status(cli, QN_E_NOMEM, NULL);
    for (size_t i = 0; !code && i < list.count; i++) {
        rows[i].cached = &list.items[i];
        examine(&rows[i]);
    }
    if (!code) {
        sort_rows(rows, list.count, &flag[QN_FLAG_SORT]);
        code = print_rows(cli, rows, list.count);
    }
    for (size_t i = 0; rows && i < list.count; i++)
        qn_free(rows[i].reason);
    qn_free(rows);
    quern_cached_list_free(&list);
    return code;
}
