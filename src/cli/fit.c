/* fit.c: `quern fit`: what models need of memory, and how fast they will be. */
#include "cli.h"

#include "base/alloc.h"
#include "base/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One model with one length of context. */
typedef struct row {
    char *ref, *name; /* name: family and form */
    quern_fit fit;
    bool readable;
    quern_error error; /* unless readable */
} row;

typedef struct view {
    qn_cli *cli;
    quern_machine machine;
    bool elsewhere; /* another machine: speeds are guesses */
    int64_t *ctx;   /* lengths asked for */
    size_t ctx_count;
    row *rows;
    size_t count;
} view;

/* ---- the machine ---- */

static bool member(const qn_json *root, const char *key, double *out)
{
    return qn_json_as_double(qn_json_get(root, key), out) && *out > 0;
}

static qn_status read_spec(quern_machine *m, const char *path)
{
    enum { LIMIT = 1 << 16 };
    char *text = NULL;
    size_t size;
    qn_json_doc *doc = NULL;
    qn_status status = qn_file_read_any(&text, &size, path, LIMIT);
    if (!status)
        status = qn_json_parse(&doc, (qn_str){text, size}, QN_JSON_ALLOW_BOM);
    const qn_json *root = status ? NULL : qn_json_root(doc);
    double value = 0;
    qn_str words;
    int64_t bytes = 0;
    char size_text[32] = "";
    *m = (quern_machine){0};
    if (!status && qn_json_as_str(qn_json_get(root, "memory"), &words))
        snprintf(size_text, sizeof size_text, "%.*s", (int)words.size,
                 words.data);
    if (!status && *size_text && qn_args_size(size_text, &bytes) && bytes > 0)
        m->memory = (uint64_t)bytes;
    else if (!status && member(root, "memory", &value) && value < 0x1p62)
        m->memory = (uint64_t)value;
    else if (!status)
        status = qn_fail(QN_E_ARG, "memory: expected a size such as \"24GiB\"");
    m->usable = m->memory / 10 * 9;
    if (!status && member(root, "bandwidth_gb_per_s", &value))
        m->bandwidth = value * 1e9;
    if (!status && member(root, "gflops", &value))
        m->operations = value * 1e9;
    qn_json_doc_free(doc);
    qn_free(text);
    return status ? qn_fail_where(status, "%s", path) : QN_OK;
}

static qn_status set_machine(view *v)
{
    const qn_arg *flag = v->cli->args.flag;
    v->elsewhere =
        flag[QN_FLAG_MEMORY].given || flag[QN_FLAG_DEVICE_SPEC].given;
    if (flag[QN_FLAG_DEVICE_SPEC].given)
        return read_spec(&v->machine, flag[QN_FLAG_DEVICE_SPEC].text);
    quern_machine_get(&v->machine, !flag[QN_FLAG_FIT_CACHED].on);
    if (flag[QN_FLAG_MEMORY].given) {
        v->machine.memory = (uint64_t)flag[QN_FLAG_MEMORY].whole;
        v->machine.usable = v->machine.memory / 10 * 9;
        v->machine.limited = false;
    }
    return QN_OK;
}

/* ---- asking ---- */

static row *add_row(view *v, const char *ref)
{
    row *grown = qn_reallocarray(v->rows, v->count + 1, sizeof *v->rows);
    if (!grown)
        return NULL;
    v->rows = grown;
    row *r = &v->rows[v->count];
    *r = (row){.ref = qn_strdup(ref)};
    v->count += r->ref != NULL;
    return r->ref ? r : NULL;
}

static void name_model(row *r, const quern_model *model)
{
    quern_info info;
    qn_buf name = QN_BUF_INIT;
    quern_model_info(model, &info);
    qn_buf_printf(&name, "%s  %.2f bpw", info.family, info.bits_per_weight);
    r->name = qn_buf_take(&name);
}

/* Rows for one model, one for each length; the first failure. */
static quern_status ask(view *v, const char *ref, quern_error *error)
{
    const qn_arg *flag = v->cli->args.flag;
    quern_options options;
    quern_model *model;
    quern_options_init(&options);
    options.headers_only = true;
    options.compat = flag[QN_FLAG_COMPAT].text;
    options.gguf_dequant = flag[QN_FLAG_GGUF_DEQUANT].text;
    quern_fit_options o = {.machine = &v->machine};
    o.parallel = (int)flag[QN_FLAG_FIT_PARALLEL].whole;
    o.kv = flag[QN_FLAG_FIT_KV].text;
    ref = qn_config_find_model(v->cli, ref).ref;
    quern_status status =
        qn_cli_open_with(v->cli, ref, &options, &model, error);
    if (status == QUERN_E_NOTFOUND && !*error->where && flag[QN_FLAG_PULL].on &&
        !qn_cli_pull(v->cli, ref))
        status = qn_cli_open_with(v->cli, ref, &options, &model, error);
    if (status == QUERN_E_NOTFOUND && !*error->where &&
        flag[QN_FLAG_FIT_REMOTE].on) {
        options.remote = true;
        status = qn_cli_open_with(v->cli, ref, &options, &model, error);
    }
    if (status)
        return status;
    size_t lengths = v->ctx_count ? v->ctx_count : 1;
    for (size_t i = 0; i < lengths && !status; i++) {
        row *r = add_row(v, ref);
        if (!r) {
            *error = (quern_error){.status = QUERN_E_NOMEM,
                                   .message = "out of memory"};
            status = QUERN_E_NOMEM;
            break;
        }
        name_model(r, model);
        o.ctx = v->ctx_count ? v->ctx[i] : 0;
        status = quern_model_fit(&r->fit, model, &o, error);
        r->readable = !status;
    }
    quern_model_free(model);
    return status;
}

/* The fastest that fits first, what can't be read last. */
static int better(const void *a, const void *b)
{
    const row *x = a, *y = b;
    if (x->readable != y->readable)
        return x->readable ? -1 : 1;
    if (x->fit.fits != y->fit.fits)
        return x->fit.fits ? -1 : 1;
    if (x->fit.weights != y->fit.weights)
        return x->fit.weights > y->fit.weights ? -1 : 1;
    return strcmp(x->ref, y->ref);
}

static int ask_all(view *v)
{
    quern_cached_list list;
    quern_error error;
    if (quern_cache_list(&list, &error))
        return qn_cli_fail_error(v->cli, &error);
    for (size_t i = 0; i < list.count; i++) {
        size_t before = v->count;
        if (!list.items[i].complete || !ask(v, list.items[i].path, &error))
            continue;
        row *r = v->count > before ? &v->rows[v->count - 1]
                                   : add_row(v, list.items[i].path);
        if (r)
            r->error = error;
    }
    for (size_t i = 0; i < v->count; i++)
        for (size_t k = 0; k < list.count; k++)
            if (!strcmp(v->rows[i].ref, list.items[k].path)) {
                qn_free(v->rows[i].ref);
                v->rows[i].ref = qn_strdup(list.items[k].id);
                break;
            }
    quern_cached_list_free(&list);
    for (size_t i = 0; i < v->count; i++)
        if (!v->rows[i].ref)
            return QN_EXIT_FAILURE;
    if (v->count)
        qsort(v->rows, v->count, sizeof *v->rows, better);
    return QN_EXIT_OK;
}

/* ---- showing ---- */

static const char *amount(char out[32], uint64_t bytes)
{
    double value = (double)bytes;
    if (bytes >= (uint64_t)1 << 30)
        snprintf(out, 32, "%.2f GiB", value / (1 << 30));
    else if (bytes >= 1 << 20)
        snprintf(out, 32, "%.2f MiB", value / (1 << 20));
    else
        snprintf(out, 32, "%.1f KiB", value / 1024);
    return out;
}

static void add_part(qn_buf *out, const char *name, uint64_t bytes)
{
    char text[32];
    if (bytes)
        qn_buf_printf(out, "%-14s %s\n", name, amount(text, bytes));
}

static void add_verdict(qn_buf *out, const quern_fit *f)
{
    if (f->fits && f->max_context >= f->model_context)
        qn_buf_printf(out, "fits, up to the model's context of %lld",
                      (long long)f->model_context);
    else if (f->fits || f->max_context >= 256)
        qn_buf_printf(out, "%sfits up to ctx %lld",
                      f->fits ? "" : "does not fit; ",
                      (long long)f->max_context);
    else
        qn_buf_add_text(out, "does not fit");
}

static void add_detail(qn_buf *out, const view *v, const row *r)
{
    const quern_fit *f = &r->fit;
    char a[32], b[32], c[32];
    qn_buf_printf(out, "%-14s %s   %s\n", "model", r->ref, r->name);
    add_part(out, "weights", f->weights);
    qn_buf_printf(out, "%-14s %s   %s/token x %lld x %d\n", "kv",
                  amount(a, f->kv), amount(b, f->kv_per_token),
                  (long long)f->context, f->parallel);
    add_part(out, "state", f->state);
    add_part(out, "workspace", f->workspace);
    add_part(out, "prefix cache", f->prefix);
    add_part(out, "draft", f->draft);
    add_part(out, "program", f->base);
    qn_buf_printf(out, "%-14s %s   usable %s (of %s%s)\n", "required",
                  amount(a, f->required), amount(b, f->usable),
                  amount(c, v->machine.memory),
                  v->elsewhere         ? ""
                  : v->machine.limited ? ", cgroup"
                                       : "");
    qn_buf_printf(out, "%-14s ", "verdict");
    add_verdict(out, f);
    qn_buf_add_char(out, '\n');
    if (f->decode_rate > 0)
        qn_buf_printf(out, "%-14s about %.0f tokens/s decoding%s\n", "speed",
                      f->decode_rate, v->elsewhere ? " (estimated)" : "");
    if (f->prefill_rate > 0)
        qn_buf_printf(out, "%-14s about %.0f tokens/s of a prompt\n", "",
                      f->prefill_rate);
    for (int i = 0; i < f->remedy_count; i++)
        qn_buf_printf(out, "%-14s --%s %s (-%s)\n", i ? "" : "remedies",
                      f->remedies[i].flag, f->remedies[i].value,
                      amount(a, f->remedies[i].saves));
}

static void add_table(qn_buf *out, const view *v)
{
    char a[32], b[32];
    qn_buf_printf(out, "%-44s %12s %12s %8s  verdict\n", "model", "weights",
                  "required", "tok/s");
    for (size_t i = 0; i < v->count; i++) {
        const row *r = &v->rows[i];
        if (!r->readable) {
            qn_buf_printf(out, "%-44s %s\n", r->ref, r->error.message);
            continue;
        }
        qn_buf_printf(out, "%-44s %12s %12s %8.0f  ", r->ref,
                      amount(a, r->fit.weights), amount(b, r->fit.required),
                      r->fit.decode_rate);
        add_verdict(out, &r->fit);
        qn_buf_add_char(out, '\n');
    }
}

static void write_number(qn_json_writer *w, const char *key, double value)
{
    qn_json_write_key(w, key);
    if (value > 0)
        qn_json_write_double(w, value);
    else
        qn_json_write_null(w);
}

static void write_machine(qn_json_writer *w, const view *v)
{
    qn_json_write_key(w, "machine");
    qn_json_write_object(w);
    qn_json_write_key(w, "memory_bytes");
    qn_json_write_uint(w, v->machine.memory);
    qn_json_write_key(w, "usable_bytes");
    qn_json_write_uint(w, v->machine.usable);
    qn_json_write_key(w, "cgroup");
    qn_json_write_bool(w, v->machine.limited);
    write_number(w, "bandwidth_gb_per_s", v->machine.bandwidth * 1e-9);
    write_number(w, "gflops", v->machine.operations * 1e-9);
    qn_json_write_key(w, "estimated");
    qn_json_write_bool(w, v->elsewhere);
    qn_json_write_object_end(w);
}

/* The members of the fit's own object. */
static void write_fit(qn_json_writer *w, const quern_fit *fit)
{
    char *text = NULL;
    qn_json_doc *doc = NULL;
    if (quern_fit_json(fit, &text, NULL) ||
        qn_json_parse(&doc, qn_str_of(text), 0)) {
        w->out->failed = true;
    } else {
        qn_json_write_key(w, "fit");
        qn_json_write_value(w, qn_json_root(doc));
    }
    qn_json_doc_free(doc);
    quern_free(text);
}

static int show_json(const view *v)
{
    qn_buf out = QN_BUF_INIT;
    qn_json_writer w;
    qn_json_write_begin(&w, &out);
    qn_json_write_object(&w);
    qn_json_write_key(&w, "schema");
    qn_json_write_text(&w, "quern.fit/1");
    write_machine(&w, v);
    qn_json_write_key(&w, "models");
    qn_json_write_array(&w);
    for (size_t i = 0; i < v->count; i++) {
        const row *r = &v->rows[i];
        qn_json_write_object(&w);
        qn_json_write_key(&w, "model");
        qn_json_write_text(&w, r->ref);
        qn_json_write_key(&w, "form");
        qn_json_write_text(&w, r->name);
        qn_json_write_key(&w, "error");
        qn_json_write_text(&w, r->readable ? NULL : r->error.message);
        if (r->readable)
            write_fit(&w, &r->fit);
        qn_json_write_object_end(&w);
    }
    qn_json_write_array_end(&w);
    qn_json_write_object_end(&w);
    return qn_out_json(v->cli, &out);
}

static int show(const view *v, bool table)
{
    qn_buf out = QN_BUF_INIT;
    if (v->cli->json)
        return show_json(v);
    if (table)
        add_table(&out, v);
    for (size_t i = 0; !table && i < v->count; i++) {
        if (i)
            qn_buf_add_char(&out, '\n');
        add_detail(&out, v, &v->rows[i]);
    }
    return qn_out_buffer(v->cli, &out);
}

static int run(view *v)
{
    const qn_args *args = &v->cli->args;
    bool all = args->flag[QN_FLAG_FIT_ALL].on;
    quern_error error;
    int code = all ? ask_all(v) : QN_EXIT_OK;
    for (size_t i = 0; i < args->word_count && !code; i++)
        if (ask(v, args->words[i], &error))
            code = qn_cli_fail_load(v->cli, args->words[i], &error);
    if (!code)
        code = show(v, all);
    for (size_t i = 0; i < v->count && !code && !all; i++)
        if (!v->rows[i].fit.fits)
            code = QN_EXIT_NO_MEMORY;
    return code;
}

int qn_cli_fit(qn_cli *cli)
{
    view v = {.cli = cli};
    const qn_arg *ctx = &cli->args.flag[QN_FLAG_FIT_CTX];
    qn_status status = QN_OK;
    if (!cli->args.word_count == !cli->args.flag[QN_FLAG_FIT_ALL].on)
        status = qn_fail(QN_E_ARG, "expected a model, or --all alone");
    if (!status && ctx->given)
        status =
            qn_args_counts("ctx", ctx->text, 1, 1 << 30, &v.ctx, &v.ctx_count);
    if (!status)
        status = qn_cli_check_devices(cli->args.flag);
    if (!status)
        status = set_machine(&v);
    int code = status ? qn_cli_fail_status(cli, status, NULL) : run(&v);
    for (size_t i = 0; i < v.count; i++) {
        qn_free(v.rows[i].ref);
        qn_free(v.rows[i].name);
    }
    qn_free(v.rows);
    qn_free(v.ctx);
    return code;
}
