/* convert.c: `quern convert` and `quern quantize`. */
#include "cli.h"
#include "sample.h"

#include "base/alloc.h"
#include "base/file.h"

#include <stdio.h>
#include <string.h>

typedef struct work {
    qn_cli *cli;
    qn_progress progress;
    const char *phase; /* of the progress that is shown */
} work;

static bool on_progress(void *data, const char *phase, int64_t done,
                        int64_t total)
{
    work *w = data;
    if (!w->phase || strcmp(w->phase, phase) != 0) {
        if (w->phase)
            qn_progress_end(&w->progress);
        const char *unit = !strcmp(phase, "write")     ? "bytes"
                           : !strcmp(phase, "measure") ? "tokens"
                                                       : "steps";
        qn_progress_begin(&w->progress, w->cli, phase, unit);
        w->phase = phase;
    }
    qn_progress_set(&w->progress, done, total);
    return !qn_cli_signalled();
}

static void on_log(void *data, quern_log_level level, const char *text)
{
    qn_cli_log(((work *)data)->cli, level, text);
}

static void set_options(quern_convert_options *o, work *w)
{
    const qn_arg *flag = w->cli->args.flag;
    quern_convert_options_init(o);
    o->to = flag[QN_FLAG_TO].text;
    o->dtype = flag[QN_FLAG_OUT_DTYPE].text;
    o->dequantize = flag[QN_FLAG_DEQUANTIZE].on;
    o->exact = flag[QN_FLAG_EXACT].on;
    o->bits = (int)flag[QN_FLAG_BITS].whole;
    o->group_size = (int)flag[QN_FLAG_GROUP_SIZE].whole;
    o->mode = flag[QN_FLAG_MODE].text;
    o->recipe = flag[QN_FLAG_RECIPE].text;
    o->overrides = flag[QN_FLAG_OVERRIDE].list;
    o->override_count = flag[QN_FLAG_OVERRIDE].list_count;
    o->keep_head = flag[QN_FLAG_KEEP_HEAD].on;
    o->target_bpw =
        flag[QN_FLAG_TARGET_BPW].given ? flag[QN_FLAG_TARGET_BPW].real : 0;
    o->method = flag[QN_FLAG_METHOD].text;
    o->requantize = flag[QN_FLAG_REQUANTIZE].on;
    o->overwrite = flag[QN_FLAG_OVERWRITE].on;
    o->unchecked = flag[QN_FLAG_CHECK].given && !flag[QN_FLAG_CHECK].on;
    if (flag[QN_FLAG_SHARD_SIZE].given)
        o->shard_size = (uint64_t)flag[QN_FLAG_SHARD_SIZE].whole;
    o->progress = on_progress;
    o->log = on_log;
    o->progress_data = o->log_data = w;
}

/* ---- what was done ---- */

static double number(const qn_json *object, const char *key)
{
    double value = 0;
    qn_json_as_double(qn_json_get(object, key), &value);
    return value;
}

static qn_str text(const qn_json *object, const char *key)
{
    qn_str value = {"", 0};
    qn_json_as_str(qn_json_get(object, key), &value);
    return value;
}

static void add_names(qn_buf *out, const qn_json *list, const char *what)
{
    enum { SHOWN = 8 };
    if (!list || !list->count)
        return;
    qn_buf_printf(out, "%u %s:\n", list->count, what);
    for (uint32_t i = 0; i < list->count && i < SHOWN; i++) {
        qn_buf_add_text(out, "  ");
        qn_buf_add_str(out, list->items[i].text);
        qn_buf_add_char(out, '\n');
    }
    if (list->count > SHOWN)
        qn_buf_printf(out, "  and %u more\n", list->count - SHOWN);
}

static void add_summary(qn_buf *out, const qn_json *d)
{
    qn_str to = text(d, "destination"), arch = text(d, "architecture");
    qn_buf_printf(out, "%-20s %-22s %7s %12s %12s\n", "module", "form", "count",
                  "parameters", "bytes");
    const qn_json *modules = qn_json_get(d, "modules");
    for (uint32_t i = 0; modules && i < modules->count; i++) {
        const qn_json *m = &modules->items[i];
        qn_str kind = text(m, "kind"), form = text(m, "form");
        qn_buf_printf(out, "%-20.*s %-22.*s %7.0f %12.0f %12.0f\n",
                      (int)kind.size, kind.data, (int)form.size, form.data,
                      number(m, "count"), number(m, "parameters"),
                      number(m, "bytes"));
    }
    add_names(out, qn_json_get(d, "not_divided"),
              "modules stay in floats: the group does not divide their rows");
    add_names(out, qn_json_get(d, "inexact"), "tensors are not exact");
    if (number(d, "tensors_skipped") > 0)
        qn_buf_printf(out, "%.0f tensors of image and sound towers left out\n",
                      number(d, "tensors_skipped"));
    qn_buf_printf(out,
                  "%.*s: %.*s, %.2f bits per weight, %.1f MiB (before: %.1f "
                  "MiB) in %.1f s\n",
                  (int)to.size, to.data, (int)arch.size, arch.data,
                  number(d, "bits_per_weight"), number(d, "bytes") / (1 << 20),
                  number(d, "source_bytes") / (1 << 20), number(d, "seconds"));
}

/* ---- what it costs ---- */

/* The divergence of the result from the source on a text: the report of
 * quern_eval, which the caller frees.  NULL: it can't be told, with a
 * warning. */
static char *compare(qn_cli *cli, const char *source, const char *result)
{
    quern_model *one = NULL, *other = NULL;
    quern_options options;
    quern_eval_options o;
    quern_error error;
    char *report = NULL;
    quern_options_init(&options);
    quern_eval_options_init(&o);
    o.task = "kl";
    o.data = qn_sample_text;
    o.size = strlen(qn_sample_text);
    quern_status status = quern_model_load(&one, source, &options, &error);
    if (!status)
        status = quern_model_load(&other, result, &options, &error);
    o.reference = one;
    if (!status)
        status = quern_eval(other, &o, &report, &error);
    if (status) {
        char text[QUERN_ERROR_SIZE + 64];
        snprintf(text, sizeof text, "the two can't be compared: %s",
                 error.message);
        qn_cli_log(cli, QUERN_LOG_WARN, text);
    }
    quern_model_free(other);
    quern_model_free(one);
    return report;
}

/* Adds "quality" to the report: the metrics of the comparison. */
static void add_quality(qn_json_writer *w, const char *quality)
{
    qn_json_doc *doc;
    if (!quality || qn_json_parse(&doc, qn_str_of(quality), 0))
        return;
    const qn_json *metrics = qn_json_get(qn_json_root(doc), "metrics");
    if (metrics) {
        qn_json_write_key(w, "quality");
        qn_json_write_value(w, metrics);
    }
    qn_json_doc_free(doc);
}

/* The report as a document of this command. */
static void add_json(qn_buf *out, const qn_json *d, const char *command,
                     const char *quality)
{
    char schema[32];
    qn_json_writer w;
    snprintf(schema, sizeof schema, "quern.%s/1", command);
    qn_json_write_begin(&w, out);
    qn_json_write_object(&w);
    qn_json_write_key(&w, "schema");
    qn_json_write_text(&w, schema);
    for (uint32_t i = 0; i < d->count; i++) {
        char key[64];
        snprintf(key, sizeof key, "%.*s", (int)d->keys[i].size,
                 d->keys[i].data);
        qn_json_write_key(&w, key);
        qn_json_write_value(&w, &d->items[i]);
    }
    add_quality(&w, quality);
    qn_json_write_object_end(&w);
}

static int show(const qn_cli *cli, const char *report, const char *quality)
{
    const qn_arg *file = &cli->args.flag[QN_FLAG_REPORT];
    qn_json_doc *doc;
    qn_status status = qn_json_parse(&doc, qn_str_of(report), 0);
    if (status)
        return qn_cli_fail_status(cli, status, NULL);
    qn_buf out = QN_BUF_INIT;
    int code = QN_EXIT_OK;
    if (file->given) {
        add_json(&out, qn_json_root(doc), cli->command, quality);
        qn_buf_add_char(&out, '\n');
        status = qn_buf_status(&out);
        if (!status)
            status = qn_file_write_atomic(file->text, out.data, out.size);
        qn_buf_clear(&out);
    }
    if (status) {
        code = qn_cli_fail_status(cli, status, NULL);
        qn_buf_free(&out);
    } else if (cli->json) {
        add_json(&out, qn_json_root(doc), cli->command, quality);
        code = qn_out_json(cli, &out);
    } else {
        add_summary(&out, qn_json_root(doc));
        code = qn_out_buffer(cli, &out);
    }
    qn_json_doc_free(doc);
    return code;
}

/* The text that --calibration names; the caller frees *out. */
static qn_status read_calibration(char **out, const qn_cli *cli,
                                  quern_convert_options *o)
{
    enum { LIMIT = 64 << 20 };
    const qn_arg *file = &cli->args.flag[QN_FLAG_CALIBRATION];
    *out = NULL;
    if (!file->given)
        return QN_OK;
    qn_status status =
        qn_file_read_any(out, &o->calibration_size, file->text, LIMIT);
    o->calibration = *out;
    return status;
}

static bool writes_gguf(const qn_arg *to)
{
    return to->given && !strcmp(to->text, "gguf");
}

static int run(qn_cli *cli, bool quantize)
{
    work w = {.cli = cli};
    quern_convert_options options;
    quern_error error;
    char *source = NULL, *report = NULL, *sample;
    if (cli->args.flag[QN_FLAG_SHARD_SIZE].origin == QN_FROM_FLAG &&
        writes_gguf(&cli->args.flag[QN_FLAG_TO]))
        return qn_cli_fail(cli, QUERN_E_ARG, "",
                           "--to gguf and --shard-size exclude each other: it "
                           "is one file",
                           NULL);
    set_options(&options, &w);
    qn_status read = qn_cli_check_output(cli, QN_FLAG_REPORT);
    if (!read)
        read = read_calibration(&sample, cli, &options);
    if (read)
        return qn_cli_fail_status(cli, read, NULL);
    if (quern_resolve(&source, cli->args.words[0], &error)) {
        qn_free(sample);
        return qn_cli_fail_load(cli, cli->args.words[0], &error);
    }
    options.quantize = quantize || cli->args.flag[QN_FLAG_QUANTIZE].on;
    qn_cli_watch_calls(true);
    quern_status done =
        quern_convert(source, cli->args.words[1], &options, &report, &error);
    if (w.phase)
        qn_progress_end(&w.progress);
    qn_cli_watch_calls(false);
    char *quality = NULL;
    if (!done && cli->args.flag[QN_FLAG_REPORT].given)
        quality = compare(cli, source, cli->args.words[1]);
    int code =
        done ? qn_cli_fail_error(cli, &error) : show(cli, report, quality);
    qn_free(sample);
    quern_free(quality);
    quern_free(report);
    quern_free(source);
    return code;
}

int qn_cli_convert(qn_cli *cli)
{
    return run(cli, false);
}

int qn_cli_quantize(qn_cli *cli)
{
    return run(cli, true);
}
