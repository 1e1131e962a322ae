/* convert.c: a model from one form into another, in order: open, decide, make
 * room, write, check, rename. */
#include "convert.h"

#include "base/alloc.h"
#include "kv/engine.h"
#include "report.h"
#include "runtime/runtime.h"
#include "write_gguf.h"

#include <stdio.h>
#include <sys/stat.h>

void quern_convert_options_init(quern_convert_options *o)
{
    *o = (quern_convert_options){.shard_size = (uint64_t)5 << 30};
}

static void say(const quern_convert_options *o, quern_log_level level,
                const char *text)
{
    if (o->log)
        o->log(o->log_data, level, text);
}

/* ---- checks ---- */

static qn_status bad(const char *name, const char *text)
{
    qn_status status = qn_fail(QN_E_ARG, "%s: %s", name, text);
    return qn_fail_where(status, "%s", name);
}

static bool is_awq(const quern_convert_options *o)
{
    return o->method && !strcmp(o->method, "awq");
}

/* What is decided by a text. */
static qn_status check_measured(const quern_convert_options *o)
{
    bool affine = !o->mode || !strcmp(o->mode, "affine");
    if (o->method && strcmp(o->method, "rtn") && !is_awq(o))
        return bad("method", "expected rtn or awq");
    if (!(o->target_bpw >= 0 && o->target_bpw <= 32))
        return bad("target_bpw", "expected 0 to 32");
    if (o->target_bpw > 0 && (o->bits || o->recipe))
        return bad("target_bpw", "not together with bits or a recipe");
    if (o->target_bpw > 0 && !affine)
        return bad("target_bpw", "needs mode affine");
    if (is_awq(o) && !affine)
        return bad("method", "awq needs mode affine");
    if (o->calibration && !is_awq(o) && !(o->target_bpw > 0))
        return bad("calibration", "for a target or method awq");
    return QN_OK;
}

/* A setting that says nothing without quantization, or NULL. */
static const char *idle_setting(const quern_convert_options *o)
{
    const struct {
        const char *name;
        bool given;
    } settings[] = {
        {"bits", o->bits != 0},
        {"group_size", o->group_size != 0},
        {"mode", o->mode != NULL},
        {"recipe", o->recipe != NULL},
        {"override", o->override_count != 0},
        {"target_bpw", o->target_bpw > 0},
        {"method", o->method != NULL},
        {"calibration", o->calibration != NULL},
        {"keep_head", o->keep_head},
        {"requantize", o->requantize},
    };
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        if (settings[i].given)
            return settings[i].name;
    return NULL;
}

static qn_status check_options(const quern_convert_options *o)
{
    if (o->to && strcmp(o->to, "mlx") && strcmp(o->to, "gguf"))
        return bad("to", "expected mlx or gguf");
    if (o->to && !strcmp(o->to, "gguf") && o->quantize)
        return bad("to", "gguf: quantize a directory first");
    if (o->quantize && o->dequantize)
        return bad("dequantize", "not together with quantization");
    if (o->shard_size < 1 << 20)
        return bad("shard_size", "expected at least 1M");
    if (o->bits < 0 || o->group_size < 0)
        return bad("bits", "expected a positive number");
    const char *idle = o->quantize ? NULL : idle_setting(o);
    if (idle)
        return bad(idle, "needs quantize");
    return check_measured(o);
}

/* Whether values change, also where that was asked for. */
static bool changes(const qn_item *item)
{
    bool narrows = item->action == QN_CAST && qn_item_is_float(item) &&
                   item->dtype != QN_ST_F32 &&
                   item->dtype != qn_item_floats(item);
    return item->inexact || narrows || item->action == QN_QUANT;
}

/* The names of what can't be kept exactly. */
static qn_status check_exact(const qn_origin *s)
{
    qn_buf names = QN_BUF_INIT;
    size_t count = 0;
    for (size_t i = 0; i < s->count; i++)
        if (changes(&s->items[i]) && count++ < 8)
            qn_buf_printf(&names, "%s%s", names.size ? ", " : "",
                          s->items[i].name);
    qn_status status = qn_buf_status(&names);
    if (!status && count)
        status =
            qn_fail(QN_E_UNSUPPORTED, "%zu tensors can't be kept exactly: %s%s",
                    count, names.data, count > 8 ? ", ..." : "");
    qn_buf_free(&names);
    return status ? qn_fail_where(status, "%s", s->path) : QN_OK;
}

/* ---- after writing ---- */

/* Loads what was written, without the values. */
static qn_status audit(const char *path)
{
    quern_error error;
    if (!qn_model_audit(path, &error))
        return QN_OK;
    /* The classes are in the same order. */
    qn_status status = qn_fail((qn_status)error.status,
                               "the result can't be loaded: %s", error.message);
    return qn_fail_where(status, "%s", error.where);
}

static qn_status write_config(const qn_origin *s, const char *dir,
                              const char *dtype)
{
    qn_buf text = QN_BUF_INIT;
    char *path = qn_path_join(dir, "config.json");
    qn_status status = path ? qn_settings_config(&text, s, dtype) : QN_E_NOMEM;
    if (!status)
        status = qn_file_write_atomic(path, text.data, text.size);
    qn_free(path);
    qn_buf_free(&text);
    return status;
}

/* ---- the work ---- */

typedef struct job {
    const quern_convert_options *options;
    qn_origin source;
    qn_place place;
    int files;
    uint64_t bytes;
} job;

static bool step(void *data, int64_t done, int64_t total)
{
    const quern_convert_options *o = ((job *)data)->options;
    return !o->progress || o->progress(o->progress_data, "write", done, total);
}

static bool say_phase(const job *j, const char *phase, int64_t done,
                      int64_t total)
{
    const quern_convert_options *o = j->options;
    return !o->progress || o->progress(o->progress_data, phase, done, total);
}

static bool measure_step(void *data, int64_t done, int64_t total)
{
    return say_phase(data, "measure", done, total);
}

static bool choose_step(void *data, int64_t done, int64_t total)
{
    return say_phase(data, "choose", done, total);
}

static bool scale_step(void *data, int64_t done, int64_t total)
{
    return say_phase(data, "scale", done, total);
}

/* What depends on how the model is used, after the recipe. */
static qn_status decide_by_text(job *j)
{
    const quern_convert_options *o = j->options;
    bool budget = o->target_bpw > 0, awq = is_awq(o);
    qn_str text = {(const char *)qn_calibration_text, qn_calibration_size};
    if (o->calibration)
        text = (qn_str){o->calibration, o->calibration_size};
    qn_status status = awq ? qn_awq_check(&j->source) : QN_OK;
    if (!status && (budget || awq))
        status = qn_measure_inputs(&j->source, text, measure_step, j);
    if (!status && budget)
        status = qn_budget_assign(&j->source, o, text, choose_step, j);
    if (!status && awq)
        status = qn_awq_scale(&j->source, scale_step, j);
    return status;
}

static qn_status write_directory(job *j)
{
    qn_status status =
        qn_st_plan(&j->source, j->options->shard_size, &j->files, &j->bytes);
    if (!status)
        status = qn_place_room(&j->place, j->bytes);
    if (!status)
        status = qn_settings_copy(&j->source, j->place.work);
    if (!status)
        status = write_config(&j->source, j->place.work, j->options->dtype);
    if (!status)
        status = qn_st_write(&j->source, j->place.work, j->files, step, j);
    return status;
}

static bool is_gguf(const quern_convert_options *o)
{
    return o->to && !strcmp(o->to, "gguf");
}

static qn_status write_file(job *j, const qn_buf *head)
{
    qn_status status = qn_place_room(&j->place, j->bytes);
    return status ? status
                  : qn_gguf_write(&j->source, head, j->place.work, step, j);
}

/* The audit of a configuration that the runtime does not know comes before
 * gigabytes are written. */
static qn_status check_family(const qn_origin *s)
{
    return qn_model_check_family(s->weights, qn_str_of(s->arch));
}

static qn_status run(job *j, qn_buf *head, const char *source,
                     const char *destination)
{
    const quern_convert_options *o = j->options;
    qn_status status = check_options(o);
    if (!status)
        status = qn_engine_start();
    if (!status)
        status = qn_origin_open(&j->source, source);
    if (!status)
        status = check_family(&j->source);
    if (!status)
        status = qn_recipe_apply(&j->source, o);
    if (!status)
        status = decide_by_text(j);
    if (!status && is_gguf(o))
        status = qn_gguf_plan(head, &j->source, &j->bytes);
    if (!status && o->exact)
        status = check_exact(&j->source);
    if (!status)
        status = qn_place_begin(&j->place, source, destination, !is_gguf(o),
                                o->overwrite);
    if (!status)
        status = is_gguf(o) ? write_file(j, head) : write_directory(j);
    if (!status && !o->unchecked)
        status = audit(j->place.work);
    return status ? status : qn_place_commit(&j->place);
}

static void warn_again(const job *j)
{
    char text[160];
    size_t again = 0;
    for (size_t i = 0; i < j->source.count; i++)
        again += j->source.items[i].action == QN_QUANT &&
                 j->source.items[i].form != QN_FORM_PLAIN &&
                 !j->source.items[i].inexact;
    if (!again)
        return;
    snprintf(text, sizeof text,
             "%zu modules were quantized already: what the first time lost is "
             "lost",
             again);
    say(j->options, QUERN_LOG_WARN, text);
}

quern_status quern_convert(const char *source, const char *destination,
                           const quern_convert_options *options, char **report,
                           quern_error *error)
{
    quern_convert_options defaults;
    quern_convert_options_init(&defaults);
    job j = {.options = options ? options : &defaults};
    double began = qn_now();
    qn_buf head = QN_BUF_INIT; /* of a GGUF file */
    qn_status status = run(&j, &head, source, destination);
    if (!status)
        warn_again(&j);
    if (!status && report)
        status = qn_convert_report(report, &j.source, destination, j.bytes,
                                   j.files, qn_now() - began);
    qn_error kept;
    qn_error_save(&kept);
    qn_buf_free(&head);
    qn_place_end(&j.place);
    qn_origin_clear(&j.source);
    qn_error_restore(&kept);
    return qn_give(error, status);
}
