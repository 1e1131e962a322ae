/* get.c: `quern get`, and --pull of the commands that load a model. */
#include "cli.h"

#include "base/buf.h"
#include "base/units.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct work {
    qn_cli *cli;
    quern_get_result result;
    qn_progress progress;
    bool begun;   /* the plan was shown */
    bool waiting; /* so was that another process is at it */
} work;

uint64_t qn_usable_memory(void)
{
    quern_machine machine;
    quern_machine_get(&machine, false);
    return machine.usable;
}

/* ---- progress ---- */

static const char *short_name(const char *repo)
{
    const char *slash = strrchr(repo, '/');
    return slash ? slash + 1 : repo;
}

/* "Qwen3-4B-4bit @ 3f1c2ab  5 files, 2.28 GiB (0 B cached), disk free ...". */
static void add_plan(qn_buf *out, const quern_get_result *r)
{
    char all[QN_SIZE_TEXT], cached[QN_SIZE_TEXT], left[QN_SIZE_TEXT];
    qn_buf_printf(out, "%s @ %.7s  %zu file%s, %s (%s cached), disk free %s",
                  short_name(r->repo), r->revision, r->file_count,
                  r->file_count == 1 ? "" : "s", qn_size_text(all, r->bytes),
                  qn_size_text(cached, r->bytes_cached),
                  qn_size_text(left, r->disk_free));
}

static void show_plan(work *w)
{
    qn_buf line = QN_BUF_INIT;
    add_plan(&line, &w->result);
    if (!w->cli->quiet && !qn_buf_status(&line))
        qn_err_line((const char *const[]){line.data, NULL});
    qn_buf_free(&line);
    w->begun = true;
}

static void show_file(const work *w, const quern_get_progress *p)
{
    char size[QN_SIZE_TEXT] = "";
    for (size_t i = 0; i < w->result.file_count; i++)
        if (!strcmp(w->result.files[i].name, p->file))
            qn_size_text(size, w->result.files[i].size);
    if (w->cli->log_level >= QUERN_LOG_INFO)
        qn_err_line((const char *const[]){p->file, "  ", size, NULL});
}

static bool on_progress(void *data, const quern_get_progress *p)
{
    work *w = data;
    if (qn_cli_signalled())
        return false;
    if (p->waiting && !w->waiting)
        qn_cli_log(w->cli, QUERN_LOG_WARN,
                   "another process fetches this model; waiting for it");
    w->waiting = p->waiting;
    /* Only a file that comes makes it work in progress. */
    if (!*p->file)
        return true;
    if (!w->begun)
        show_plan(w);
    qn_progress_phase(&w->progress, p->file);
    if (p->file_done) {
        qn_progress_end(&w->progress);
        show_file(w, p);
    }
    qn_progress_set(&w->progress, (int64_t)p->done, (int64_t)p->total);
    return true;
}

static void on_log(void *data, quern_log_level level, const char *text)
{
    work *w = data;
    qn_progress_end(&w->progress);
    qn_cli_log(w->cli, level, text);
}

/* ---- a choice of files ---- */

static void show_candidates(const work *w)
{
    uint64_t usable = qn_usable_memory();
    for (size_t i = 0; i < w->result.candidate_count; i++) {
        const quern_get_file *file = &w->result.candidates[i];
        char size[QN_SIZE_TEXT];
        qn_size_text(size, file->size);
        qn_buf line = QN_BUF_INIT;
        qn_buf_printf(&line, "  %-48s %10s  %s", file->name, size,
                      file->size <= usable ? "fits" : "does not fit");
        if (!qn_buf_status(&line))
            qn_err_line((const char *const[]){line.data, NULL});
        qn_buf_free(&line);
    }
}

/* ---- the fetch ---- */

static void set_options(quern_get_options *o, work *w)
{
    const qn_arg *flag = w->cli->args.flag;
    quern_get_options_init(o);
    o->progress = on_progress;
    o->log = on_log;
    o->data = w;
#define TEXT_OF(id) (flag[QN_FLAG_##id].given ? flag[QN_FLAG_##id].text : NULL)
    o->revision = TEXT_OF(REVISION);
    o->quant = TEXT_OF(QUANT);
    o->dir = TEXT_OF(DIR);
#undef TEXT_OF
    o->include = flag[QN_FLAG_INCLUDE].list;
    o->include_count = flag[QN_FLAG_INCLUDE].list_count;
    o->exclude = flag[QN_FLAG_EXCLUDE].list;
    o->exclude_count = flag[QN_FLAG_EXCLUDE].list_count;
    if (flag[QN_FLAG_JOBS].given)
        o->jobs = (int)flag[QN_FLAG_JOBS].whole;
    if (flag[QN_FLAG_RETRIES].given)
        o->retries = (int)flag[QN_FLAG_RETRIES].whole;
    if (flag[QN_FLAG_MAX_SIZE].given)
        o->max_size = (uint64_t)flag[QN_FLAG_MAX_SIZE].whole;
    o->offline = flag[QN_FLAG_OFFLINE].on;
    o->dry_run = flag[QN_FLAG_DRY_RUN].on;
    o->no_verify = flag[QN_FLAG_VERIFY].given && !flag[QN_FLAG_VERIFY].on;
    o->no_wait = flag[QN_FLAG_WAIT].given && !flag[QN_FLAG_WAIT].on;
}

static const char *hint_of(quern_status status)
{
    switch (status) {
    case QUERN_E_SPACE:
        return "quern gc shows what can go; QUERN_CACHE names another disk";
    case QUERN_E_NETWORK:
        return "what has come is kept: the same command goes on from there";
    case QUERN_E_INTEGRITY:
        return "the file was deleted; the same command fetches it again";
    default:
        return NULL;
    }
}

/* The result is freed by the caller in any case. */
static int fetch(work *w, const char *ref, const quern_get_options *options)
{
    quern_error error;
    qn_progress_begin(&w->progress, w->cli, "", "B");
    qn_cli_watch_calls(true);
    quern_status status = quern_get(&w->result, ref, options, &error);
    qn_cli_watch_calls(false);
    qn_progress_end(&w->progress);
    if (!status)
        return QN_EXIT_OK;
    if (status == QUERN_E_CANCELLED && qn_cli_signalled() && !w->cli->json) {
        qn_cli_log(w->cli, QUERN_LOG_ERROR, error.message);
        return qn_cli_signalled();
    }
    /* Of what did not come there is nothing to go on from. */
    bool came = status != QUERN_E_NETWORK || w->result.bytes_downloaded;
    int code = qn_cli_fail(w->cli, status, error.where, error.message,
                           came ? hint_of(status) : NULL);
    if (w->result.candidate_count)
        show_candidates(w);
    return code;
}

int qn_cli_pull(qn_cli *cli, const char *ref)
{
    work w = {.cli = cli};
    quern_get_options options;
    quern_get_options_init(&options);
    options.progress = on_progress;
    options.log = on_log;
    options.data = &w;
    int code = fetch(&w, ref, &options);
    quern_get_result_free(&w.result);
    return code;
}

/* ---- what came ---- */

/* Whether the model fits, and with how long a context. */
static void add_verdict(qn_buf *out, const quern_model *model,
                        const quern_info *info)
{
    quern_fit fit;
    quern_fit_options options = {.ctx = info->max_ctx};
    char need[QN_SIZE_TEXT], there[QN_SIZE_TEXT];
    if (quern_model_fit(&fit, model, &options, NULL))
        qn_buf_add_text(out, "what it takes is not known");
    else if (!fit.max_context)
        qn_buf_printf(out, "does not fit (%s of weights, %s usable)",
                      qn_size_text(need, fit.weights),
                      qn_size_text(there, fit.usable));
    else
        qn_buf_printf(out, "fits up to ctx %lld on cpu",
                      (long long)fit.max_context);
}

static void print_text(const work *w, const quern_model *model,
                       const quern_info *info, qn_buf *out)
{
    const quern_get_result *r = &w->result;
    qn_buf_printf(out, "ready: %s\n", r->path);
    if (!model)
        return;
    qn_buf_printf(out, "%s, %s (%.2f bpw), context %lld; ", info->family,
                  info->quantization, info->bits_per_weight,
                  (long long)info->max_ctx);
    add_verdict(out, model, info);
    qn_buf_add_char(out, '\n');
}

static void print_dry(const work *w, qn_buf *out)
{
    const quern_get_result *r = &w->result;
    add_plan(out, r);
    qn_buf_add_char(out, '\n');
    for (size_t i = 0; i < r->file_count; i++) {
        char size[QN_SIZE_TEXT];
        qn_buf_printf(out, "  %-48s %10s  %s\n", r->files[i].name,
                      qn_size_text(size, r->files[i].size),
                      r->files[i].cached ? "cached" : "");
    }
}

static void write_json(const work *w, const quern_model *model,
                       const quern_info *info, qn_buf *out)
{
    const quern_get_result *r = &w->result;
    qn_json_writer j;
    qn_json_write_begin(&j, out);
    qn_json_write_object(&j);
    qn_json_pair_text(&j, "schema", "quern.get/1");
    qn_json_pair_text(&j, "repo", r->repo);
    qn_json_pair_text(&j, "revision", r->revision);
    qn_json_pair_text(&j, "path", r->path);
    qn_json_write_key(&j, "files");
    qn_json_write_array(&j);
    for (size_t i = 0; i < r->file_count; i++) {
        qn_json_write_object(&j);
        qn_json_pair_text(&j, "name", r->files[i].name);
        qn_json_write_key(&j, "size");
        qn_json_write_uint(&j, r->files[i].size);
        qn_json_write_key(&j, "cached");
        qn_json_write_bool(&j, r->files[i].cached);
        qn_json_write_object_end(&j);
    }
    qn_json_write_array_end(&j);
    qn_json_write_key(&j, "bytes");
    qn_json_write_uint(&j, r->bytes);
    qn_json_write_key(&j, "bytes_downloaded");
    qn_json_write_uint(&j, r->bytes_downloaded);
    qn_json_write_key(&j, "seconds");
    qn_json_write_double(&j, r->seconds);
    if (model) {
        qn_buf verdict = QN_BUF_INIT;
        add_verdict(&verdict, model, info);
        qn_json_pair_text(&j, "architecture", info->family);
        qn_json_pair_text(&j, "quantization", info->quantization);
        qn_json_write_key(&j, "bits_per_weight");
        qn_json_write_double(&j, info->bits_per_weight);
        qn_json_write_key(&j, "context");
        qn_json_write_int(&j, info->max_ctx);
        qn_json_pair_text(&j, "verdict", verdict.data);
        qn_buf_free(&verdict);
    }
    qn_json_write_object_end(&j);
}

/* `model` is NULL when it was not opened. */
static int print_result(const work *w, const quern_model *model, bool dry)
{
    qn_buf out = QN_BUF_INIT;
    quern_info info = {0};
    if (model)
        quern_model_info(model, &info);
    if (w->cli->json) {
        write_json(w, model, &info, &out);
        return qn_out_json(w->cli, &out);
    }
    if (dry)
        print_dry(w, &out);
    else
        print_text(w, model, &info, &out);
    return qn_out_buffer(w->cli, &out);
}

/* Whether the files are those that quern chose: then they must load. */
static bool is_whole(const quern_get_options *options)
{
    return !options->include_count && !options->exclude_count;
}

int qn_cli_get(qn_cli *cli)
{
    work w = {.cli = cli};
    quern_get_options options;
    set_options(&options, &w);
    const char *ref = qn_config_find_model(cli, cli->args.words[0]).ref;
    int code = fetch(&w, ref, &options);
    quern_model *model = NULL;
    if (!code && !options.dry_run && is_whole(&options)) {
        cli->headers_only = true;
        code = qn_cli_load(cli, w.result.path, &model);
    }
    if (!code)
        code = print_result(&w, model, options.dry_run);
    quern_model_free(model);
    quern_get_result_free(&w.result);
    return code;
}
