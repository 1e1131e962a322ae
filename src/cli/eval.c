/* eval.c: `quern eval`. */
#include "cli.h"
#include "runs.h"

#include "base/alloc.h"
#include "base/file.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct work {
    qn_cli *cli;
    qn_progress progress;
} work;

static bool on_progress(void *data, const char *phase, int64_t done,
                        int64_t total)
{
    (void)phase;
    if (done)
        qn_progress_set(&((work *)data)->progress, done, total);
    return !qn_cli_signalled();
}

/* ---- thresholds ---- */

/* "NAME=VALUE". */
static qn_status read_threshold(const char *text, char name[64], double *value)
{
    const char *equals = strchr(text, '=');
    char *end = NULL;
    if (equals && equals != text && equals - text < 64 && equals[1]) {
        snprintf(name, 64, "%.*s", (int)(equals - text), text);
        *value = strtod(equals + 1, &end);
    }
    return end && !*end && isfinite(*value)
               ? QN_OK
               : qn_fail(QN_E_ARG, "'%s': expected NAME=VALUE", text);
}

/* Whether the metric keeps its bound; one that is not there is an error. */
static qn_status check(const qn_json *metrics, const char *text, bool least,
                       bool *kept, qn_buf *why)
{
    char name[64];
    double bound, value;
    qn_status status = read_threshold(text, name, &bound);
    if (status)
        return status;
    if (!qn_json_as_double(qn_json_get(metrics, name), &value))
        return qn_fail(QN_E_ARG, "'%s': the task has no metric of this name",
                       text);
    bool good = least ? value >= bound : value <= bound;
    if (!good)
        qn_buf_printf(why, "%s%s is %.6g, %s %.6g is allowed",
                      why->size ? "; " : "", name, value,
                      least ? "no less than" : "no more than", bound);
    *kept = *kept && good;
    return QN_OK;
}

static int check_all(const qn_cli *cli, const qn_json *metrics)
{
    bool kept = true;
    qn_buf why = QN_BUF_INIT;
    qn_status status = QN_OK;
    for (int k = 0; k < 2; k++) {
        const qn_arg *list = &cli->args.flag[k ? QN_FLAG_MAX : QN_FLAG_MIN];
        for (size_t i = 0; i < list->list_count && !status; i++)
            status = check(metrics, list->list[i], !k, &kept, &why);
    }
    int code = QN_EXIT_OK;
    if (status)
        code = qn_cli_fail_status(cli, status, NULL);
    else if (!kept)
        code = QN_EXIT_THRESHOLD;
    if (!status && !kept)
        qn_err_line((const char *const[]){"quern: eval: ", why.data, NULL});
    qn_buf_free(&why);
    return code;
}

static qn_status check_name(const qn_cli *cli, const char *text)
{
    char name[64];
    double value;
    qn_buf all = QN_BUF_INIT;
    const qn_arg *flag = cli->args.flag;
    const char *const *known = quern_eval_metrics(flag[QN_FLAG_TASK].text);
    qn_status status = read_threshold(text, name, &value);
    if (status)
        return status;
    if (flag[QN_FLAG_SAVE_LOGITS].given)
        return qn_fail(QN_E_ARG, "'%s': --save-logits makes no metrics", text);
    bool found = !known; /* the task is refused anyway */
    for (size_t i = 0; known && known[i]; i++) {
        found = found || !strcmp(known[i], name);
        qn_buf_printf(&all, "%s%s", i ? ", " : "", known[i]);
    }
    if (!found)
        status = qn_fail(QN_E_ARG, "'%s': the metrics of %s are %s", text,
                         flag[QN_FLAG_TASK].text, qn_buf_str(&all).data);
    qn_buf_free(&all);
    return status;
}

/* Before an hour of work, not behind it. */
static qn_status check_thresholds(const qn_cli *cli)
{
    qn_status status = QN_OK;
    for (int k = 0; k < 2; k++) {
        const qn_arg *list = &cli->args.flag[k ? QN_FLAG_MAX : QN_FLAG_MIN];
        for (size_t i = 0; i < list->list_count && !status; i++)
            status = check_name(cli, list->list[i]);
    }
    return status;
}

/* ---- output ---- */

static void add_text(qn_buf *out, const qn_json *object)
{
    for (uint32_t i = 0; object && i < object->count; i++) {
        const qn_json *value = &object->items[i];
        double number;
        if (qn_json_as_double(value, &number))
            qn_buf_printf(out, "%-18.*s %.6g\n", (int)object->keys[i].size,
                          object->keys[i].data, number);
        else if (value->type == QN_JSON_T_OBJECT) {
            qn_buf_printf(out, "%.*s:\n", (int)object->keys[i].size,
                          object->keys[i].data);
            add_text(out, value);
        }
    }
}

static void add_json(qn_buf *out, const qn_json *d, const char *path)
{
    qn_json_writer w;
    qn_json_write_begin(&w, out);
    qn_json_write_object(&w);
    qn_json_write_key(&w, "schema");
    qn_json_write_text(&w, "quern.eval/1");
    qn_json_write_key(&w, "model");
    qn_json_write_text(&w, path);
    for (uint32_t i = 0; i < d->count; i++) {
        char key[64];
        snprintf(key, sizeof key, "%.*s", (int)d->keys[i].size,
                 d->keys[i].data);
        qn_json_write_key(&w, key);
        qn_json_write_value(&w, &d->items[i]);
    }
    qn_json_write_object_end(&w);
}

static int show(const qn_cli *cli, const qn_json *d, const char *path)
{
    qn_buf out = QN_BUF_INIT;
    add_json(&out, d, path);
    if (!qn_buf_status(&out))
        qn_runs_add(cli, qn_buf_str(&out));
    qn_buf_clear(&out);
    if (cli->json) {
        add_json(&out, d, path);
        return qn_out_json(cli, &out);
    }
    add_text(&out, qn_json_get(d, "metrics"));
    add_text(&out, qn_json_get(d, "counts"));
    return qn_out_buffer(cli, &out);
}

/* ---- the work ---- */

static bool is_logits(const char *path)
{
    char head[4] = "";
    FILE *file = qn_file_check(path) ? NULL : fopen(path, "rbe");
    bool same = file && fread(head, 1, sizeof head, file) == sizeof head &&
                !memcmp(head, "QKL1", sizeof head);
    if (file)
        fclose(file);
    return same;
}

/* What is wrong with a line, or with all of it, is wrong in this file. */
static void name_data(quern_error *error, const char *path)
{
    char where[QUERN_ERROR_SIZE];
    if (*error->where && strncmp(error->where, "line ", 5) != 0)
        return;
    snprintf(where, sizeof where, "%.900s%s%.64s", path,
             *error->where ? ": " : "", error->where);
    memcpy(error->where, where, sizeof where);
}

static int evaluate(qn_cli *cli, quern_model *model, quern_eval_options *o)
{
    work w = {.cli = cli};
    quern_error error;
    quern_info info;
    char *report = NULL;
    qn_json_doc *doc = NULL;
    quern_model_info(model, &info);
    o->progress = on_progress;
    o->progress_data = &w;
    qn_progress_begin(&w.progress, cli, o->task, "bytes");
    qn_cli_watch_calls(true);
    quern_status status = quern_eval(model, o, &report, &error);
    qn_progress_end(&w.progress);
    if (status == QUERN_E_FORMAT)
        name_data(&error, cli->args.flag[QN_FLAG_DATA].text);
    if (status)
        return qn_cli_fail_error(cli, &error);
    int code = QN_EXIT_OK;
    qn_status parsed = qn_json_parse(&doc, qn_str_of(report), 0);
    if (parsed) {
        code = qn_cli_fail_status(cli, parsed, NULL);
    } else {
        code = show(cli, qn_json_root(doc), info.path);
        if (!code)
            code = check_all(cli, qn_json_get(qn_json_root(doc), "metrics"));
    }
    qn_json_doc_free(doc);
    quern_free(report);
    return code;
}

/* With the other model of kl, if one is named. */
static int evaluate_both(qn_cli *cli, quern_model *model, quern_eval_options *o)
{
    const qn_arg *ref = &cli->args.flag[QN_FLAG_EVAL_REF];
    quern_model *other = NULL;
    o->save_logits = cli->args.flag[QN_FLAG_SAVE_LOGITS].text;
    if (ref->given && is_logits(ref->text))
        o->logits = ref->text;
    else if (ref->given) {
        int code = qn_cli_load(cli, ref->text, &other);
        if (code)
            return code;
        o->reference = other;
    }
    int code = evaluate(cli, model, o);
    quern_model_free(other);
    return code;
}

/* Whether the task cuts texts into windows. */
static bool has_windows(const qn_arg *flag)
{
    const char *task = flag[QN_FLAG_TASK].text;
    return !strcmp(task, "perplexity") || !strcmp(task, "kl");
}

int qn_cli_eval(qn_cli *cli)
{
    enum { LIMIT = 1 << 30 };
    const qn_arg *flag = cli->args.flag;
    quern_eval_options o;
    quern_model *model = NULL;
    char *data = NULL;
    bool kl =
        flag[QN_FLAG_TASK].given && !strcmp(flag[QN_FLAG_TASK].text, "kl");
    quern_eval_options_init(&o);
    qn_status status = QN_OK;
    if (!flag[QN_FLAG_TASK].given)
        status = qn_fail(QN_E_ARG, "--task: expected perplexity, kl, choice or "
                                   "tokenizer");
    else if (!flag[QN_FLAG_DATA].given)
        status = qn_fail(QN_E_ARG, "--data: expected a file for this task");
    else if (!kl &&
             (flag[QN_FLAG_EVAL_REF].given || flag[QN_FLAG_SAVE_LOGITS].given))
        status = qn_fail(QN_E_ARG, "--ref and --save-logits are for kl");
    else if (flag[QN_FLAG_STRIDE].origin == QN_FROM_FLAG && !has_windows(flag))
        status = qn_fail(QN_E_ARG, "--stride is for perplexity and kl");
    if (!status)
        status = check_thresholds(cli);
    if (!status)
        status = qn_cli_check_output(cli, QN_FLAG_SAVE_LOGITS);
    if (!status)
        status =
            qn_file_read_any(&data, &o.size, flag[QN_FLAG_DATA].text, LIMIT);
    if (status)
        return qn_cli_fail_status(cli, status, NULL);
    o.task = flag[QN_FLAG_TASK].text;
    o.data = data;
    o.limit = flag[QN_FLAG_LIMIT].whole;
    o.stride = flag[QN_FLAG_STRIDE].whole;
    int code = qn_cli_load(cli, cli->args.words[0], &model);
    if (!code)
        code = evaluate_both(cli, model, &o);
    quern_model_free(model);
    qn_free(data);
    return code;
}
