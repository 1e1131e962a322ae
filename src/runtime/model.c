/* model.c: everything that is read when a model is opened. */
#include "runtime.h"

#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "draft.h"
#include "kv/engine.h"
#include "model/describe.h"
#include "model/foreign.h"
#include "prefix_disk.h"
#include "sampler.h"

#include <quern/ext.h>

#include <stdio.h>
#include <string.h>

enum {
    DEFAULT_CTX = 8192,
    DEFAULT_CHUNK = 256,
    MAX_CHUNK = 65536,
    MAX_THREADS = 512,
    MAX_PARALLEL = 1024,
    DEFAULT_PARALLEL = 32,
    DEFAULT_DRAFT = 4,
    DEFAULT_NGRAM = 10,
    MAX_SMALL_FILE = 64 << 20, /* configurations and templates */
    MAX_TOKENIZER_FILE = 512 << 20
};

/* ---- options ---- */

void quern_options_init(quern_options *options)
{
    *options = (quern_options){0};
}

static qn_status bad_option(const char *name, const char *expected,
                            long long found)
{
    qn_status status =
        qn_fail(QN_E_ARG, "%s: expected %s, found %lld", name, expected, found);
    return qn_fail_where(status, "%s", name);
}

static qn_status check_options(const quern_options *o)
{
    if ((int)o->dtype < 0 || o->dtype > QUERN_DTYPE_BF16)
        return bad_option("dtype", "auto, f32, f16 or bf16", o->dtype);
    if (o->ctx < 0)
        return bad_option("ctx", "0 or more", o->ctx);
    if (o->threads < 0 || o->threads > MAX_THREADS)
        return bad_option("threads", "0..512", o->threads);
    if (o->prefill_chunk < 0 || o->prefill_chunk > MAX_CHUNK)
        return bad_option("prefill_chunk", "0..65536", o->prefill_chunk);
    if (o->parallel < 0 || o->parallel > MAX_PARALLEL)
        return bad_option("parallel", "0..1024", o->parallel);
    if (o->num_draft < 0 || o->num_draft > QN_MAX_DRAFT)
        return bad_option("num_draft", "0..16", o->num_draft);
    if (o->spec_max_rows < 0 || o->spec_max_rows > QN_DRAFT_MAX_ROWS)
        return bad_option("spec_max_rows", "0..64", o->spec_max_rows);
    if (o->max_step_ms < 0)
        return bad_option("max_step_ms", "0 or more", o->max_step_ms);
    if (o->draft && o->ngram)
        return qn_fail_where(qn_fail(QN_E_ARG, "draft: a model and n-grams "
                                               "exclude each other"),
                             "draft");
    if (o->compat && strcmp(o->compat, "mlx-lm") != 0)
        return qn_fail_where(
            qn_fail(QN_E_ARG, "compat: expected mlx-lm, found %s", o->compat),
            "compat");
    const char *dense = o->gguf_dequant;
    if (dense && strcmp(dense, "f32") != 0 && strcmp(dense, "f16") != 0 &&
        strcmp(dense, "bf16") != 0)
        return qn_fail_where(qn_fail(QN_E_ARG,
                                     "gguf_dequant: expected f32, f16 or "
                                     "bf16, found %s",
                                     dense),
                             "gguf_dequant");
    if (o->remote && !o->headers_only)
        return qn_fail_where(
            qn_fail(QN_E_ARG, "remote: expected headers_only beside it"),
            "remote");
    return qn_cache_check_options(o);
}

static mlx_dtype dtype_of(quern_dtype dtype, mlx_dtype automatic)
{
    switch (dtype) {
    case QUERN_DTYPE_AUTO:
        return automatic;
    case QUERN_DTYPE_F32:
        return MLX_FLOAT32;
    case QUERN_DTYPE_F16:
        return MLX_FLOAT16;
    case QUERN_DTYPE_BF16:
        return MLX_BFLOAT16;
    }
    return automatic;
}

static const char *dtype_name(mlx_dtype dtype)
{
    return dtype == MLX_FLOAT32 ? "f32" : dtype == MLX_FLOAT16 ? "f16" : "bf16";
}

/* Puts `file` and `mark` in front of the place that the error already has,
 * unless that begins with the model's path. */
static qn_status below(const quern_model *m, qn_status status, const char *file,
                       const char *mark)
{
    qn_error error;
    if (!status)
        return QN_OK;
    qn_error_save(&error);
    if (!strncmp(error.where, m->path, strlen(m->path)))
        return status;
    qn_status again = qn_fail(status, "%s", error.text);
    return qn_fail_where(again, "%s%s%s", file, *error.where ? mark : "",
                         error.where);
}

/* ---- files beside the weights ---- */

/* A whole file of the directory; *text is NULL when it is not there. */
static qn_status read_beside(const char *dir, const char *name, size_t limit,
                             bool needed, char **text, size_t *size)
{
    *text = NULL;
    *size = 0;
    char *path = qn_path_join(dir, name);
    if (!path)
        return QN_E_NOMEM;
    qn_status status = QN_OK;
    if (qn_path_exists(path))
        status = qn_file_read(text, size, path, limit);
    else if (needed)
        status = qn_fail(QN_E_NOTFOUND, "%s is missing", name);
    if (status)
        qn_fail_where(status, "%s", path);
    qn_free(path);
    return status;
}

static bool has_beside(const char *dir, const char *name)
{
    char *path = qn_path_join(dir, name);
    bool found = path && qn_path_exists(path);
    qn_free(path);
    return found;
}

/* The same, parsed; *doc is NULL when it is not there. */
static qn_status parse_beside(const char *dir, const char *name,
                              qn_json_doc **doc)
{
    char *text;
    size_t size;
    *doc = NULL;
    qn_status status =
        read_beside(dir, name, MAX_SMALL_FILE, false, &text, &size);
    if (status || !text)
        return status;
    status = qn_json_parse(doc, (qn_str){text, size}, QN_JSON_ALLOW_BOM);
    qn_free(text);
    return status ? qn_fail_where(status, "%s/%s", dir, name) : QN_OK;
}

static qn_status read_config(qn_config *out, const char *dir)
{
    char *text;
    size_t size;
    qn_status status =
        read_beside(dir, "config.json", MAX_SMALL_FILE, true, &text, &size);
    if (status)
        return status;
    char *path = qn_path_join(dir, "config.json");
    status = path ? qn_config_from_json(out, (qn_str){text, size}, path)
                  : QN_E_NOMEM;
    qn_free(path);
    qn_free(text);
    return status;
}

/* ---- tokenizer ---- */

static qn_status load_directory_tokenizer(quern_model *m, const char *dir)
{
    char *json = NULL, *config = NULL;
    size_t json_size = 0, config_size = 0;
    qn_status status = read_beside(dir, "tokenizer.json", MAX_TOKENIZER_FILE,
                                   true, &json, &json_size);
    if (status == QN_E_NOTFOUND && has_beside(dir, "tokenizer.model")) {
        status = qn_fail(QN_E_UNSUPPORTED,
                         "a tokenizer in this form is not read; expected "
                         "tokenizer.json");
        qn_fail_where(status, "%s/tokenizer.model", dir);
    }
    if (!status)
        status = read_beside(dir, "tokenizer_config.json", MAX_SMALL_FILE,
                             false, &config, &config_size);
    if (!status)
        status = qn_tokenizer_from_json(
            &m->tokenizer, (qn_bytes){(const uint8_t *)json, json_size},
            (qn_bytes){(const uint8_t *)config, config_size});
    qn_free(json);
    qn_free(config);
    return below(m, status, dir, "/");
}

static qn_status load_tokenizer(quern_model *m, const qn_weights *weights)
{
    const qn_gguf *gguf = qn_weights_gguf(weights);
    if (!gguf)
        return load_directory_tokenizer(m, qn_weights_dir(weights));
    return below(m, qn_tokenizer_from_gguf(&m->tokenizer, gguf), m->path, ": ");
}

/* ---- templates ---- */

/* `value` is a template, or a list of {name, template}. */
static qn_status set_from_json(quern_model *m, const qn_json *value,
                               bool *found)
{
    qn_str text;
    if (!value)
        return QN_OK;
    if (qn_json_as_str(value, &text)) {
        *found = true;
        return qn_chat_set(&m->chat, text);
    }
    for (uint32_t i = 0; value->type == QN_JSON_T_ARRAY && i < value->count;
         i++) {
        const qn_json *item = &value->items[i];
        qn_str name;
        if (!qn_json_as_str(qn_json_get(item, "name"), &name) ||
            !qn_json_as_str(qn_json_get(item, "template"), &text))
            continue;
        qn_chat_template *into = qn_str_is(name, "default")    ? &m->chat
                                 : qn_str_is(name, "tool_use") ? &m->tool_chat
                                                               : NULL;
        qn_status status = into ? qn_chat_set(into, text) : QN_OK;
        if (status)
            return status;
        *found |= into != NULL;
    }
    return QN_OK;
}

static qn_status set_from_json_file(quern_model *m, const char *dir,
                                    const char *name, bool *found)
{
    qn_json_doc *doc;
    qn_status status = parse_beside(dir, name, &doc);
    if (!status && doc)
        status = set_from_json(
            m, qn_json_get(qn_json_root(doc), "chat_template"), found);
    qn_json_doc_free(doc);
    return status;
}

/* The file of its own wins over the JSON file of its own, which wins over the
 * tokenizer's configuration. */
static qn_status load_directory_template(quern_model *m, const char *dir,
                                         bool *found)
{
    char *text;
    size_t size;
    qn_status status = read_beside(dir, "chat_template.jinja", MAX_SMALL_FILE,
                                   false, &text, &size);
    if (!status && text) {
        *found = true;
        status = qn_chat_set(&m->chat, (qn_str){text, size});
    }
    qn_free(text);
    if (!status && !*found)
        status = set_from_json_file(m, dir, "chat_template.json", found);
    if (!status && !*found)
        status = set_from_json_file(m, dir, "tokenizer_config.json", found);
    return status;
}

static qn_status load_template(quern_model *m, const qn_weights *weights,
                               const char *given)
{
    const qn_gguf *gguf = qn_weights_gguf(weights);
    qn_status status = QN_OK;
    bool found = false;
    qn_str text;
    qn_chat_set_none(&m->chat);
    qn_chat_set_none(&m->tool_chat);
    if (given)
        return qn_chat_set(&m->chat, qn_str_of(given));
    if (!gguf)
        return load_directory_template(m, qn_weights_dir(weights), &found);
    status = qn_gguf_get_str(gguf, "tokenizer.chat_template", &text);
    if (status)
        return status == QN_E_NOTFOUND ? QN_OK
                                       : qn_fail_where(status, "%s", m->path);
    return qn_chat_set(&m->chat, text);
}

/* ---- generation_config.json ---- */

static void set_default_sampling(quern_sampling *s)
{
    *s = (quern_sampling){
        .temperature = 1,
        .top_p = 1,
        .typical_p = 1,
        .repetition_context_size = 20,
        .presence_context_size = 20,
        .frequency_context_size = 20,
    };
}

static qn_status read_number(const qn_json *root, const char *key, double *out)
{
    const qn_json *value = qn_json_get(root, key);
    if (!value || value->type == QN_JSON_T_NULL)
        return QN_OK;
    if (qn_json_as_double(value, out))
        return QN_OK;
    return qn_fail(QN_E_FORMAT, "%s: expected a number, found %s", key,
                   qn_json_type_name(value->type));
}

static qn_status read_sampling(const qn_json *root, quern_sampling *s)
{
    double top_k = s->top_k;
    const struct {
        const char *key;
        double *out;
    } rows[] = {
        {"temperature", &s->temperature},
        {"top_p", &s->top_p},
        {"min_p", &s->min_p},
        {"typical_p", &s->typical_p},
        {"repetition_penalty", &s->repetition_penalty},
        {"top_k", &top_k},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        qn_status status = read_number(root, rows[i].key, rows[i].out);
        if (status)
            return status;
    }
    if (!(top_k >= -1 && top_k <= INT32_MAX))
        return qn_fail(QN_E_FORMAT, "top_k: expected -1 or more, found %g",
                       top_k);
    s->top_k = (int32_t)top_k;
    bool draws = true;
    const qn_json *value = qn_json_get(root, "do_sample");
    if (value && value->type != QN_JSON_T_NULL &&
        !qn_json_as_bool(value, &draws))
        return qn_fail(QN_E_FORMAT,
                       "do_sample: expected true or false, "
                       "found %s",
                       qn_json_type_name(value->type));
    if (!draws)
        s->temperature = 0;
    qn_status status = qn_sampling_check(s, INT32_MAX);
    return status == QN_E_ARG ? QN_E_FORMAT : status;
}

static qn_status read_generation_config(quern_model *m, const char *dir,
                                        qn_config *config)
{
    qn_json_doc *doc;
    char where[QN_ERROR_SIZE];
    snprintf(where, sizeof where, "%s/generation_config.json", dir);
    qn_status status = parse_beside(dir, "generation_config.json", &doc);
    if (status || !doc)
        return status;
    const qn_json *root = qn_json_root(doc);
    const qn_json *ends = qn_json_get(root, "eos_token_id");
    status = read_sampling(root, &m->defaults);
    if (!status && ends && ends->type != QN_JSON_T_NULL)
        status = qn_config_set_end_ids(config, ends, where);
    qn_json_doc_free(doc);
    return below(m, status, where, ": ");
}

/* ---- putting it together ---- */

/* The configuration's end ids, else the tokenizer's; for GGUF files both.
 * Ids that the model has no logits for are of no use. */
static qn_status set_end_ids(quern_model *m, const qn_config *config)
{
    qn_ids all = {0};
    qn_status status = QN_OK;
    for (int i = 0; i < config->end_count && !status; i++)
        status = qn_ids_add(&all, config->end_ids[i]);
    if (!status && (config->gguf || !config->end_count))
        status = qn_tokenizer_end_ids(m->tokenizer, &all);
    /* <|end|> ends a channel, not an answer, where there are channels. */
    int32_t spared =
        m->markers.kind == QN_MARKERS_HARMONY ? m->markers.close : -1;
    for (size_t i = 0; i < all.size && !status; i++)
        if (all.data[i] >= 0 && all.data[i] < config->vocab_size &&
            all.data[i] != spared)
            status = qn_ids_add(&m->end_ids, all.data[i]);
    qn_ids_free(&all);
    return status;
}

static qn_status set_sizes(quern_model *m, const qn_config *c,
                           const quern_options *o, const char *dir)
{
    m->ctx = o->ctx                           ? o->ctx
             : c->max_positions < DEFAULT_CTX ? c->max_positions
                                              : DEFAULT_CTX;
    if (m->ctx > c->max_positions || m->ctx > INT32_MAX) {
        qn_status status =
            qn_fail(QN_E_ARG, "ctx: the model allows at most %lld, found %lld",
                    (long long)c->max_positions, (long long)m->ctx);
        return qn_fail_where(status, "ctx");
    }
    m->prefill_chunk = o->prefill_chunk ? o->prefill_chunk : DEFAULT_CHUNK;
    m->dtype = dtype_of(o->dtype, MLX_FLOAT32);
    m->vocab = c->vocab_size;
    int32_t known = m->tokenizer ? qn_tokenizer_count(m->tokenizer) : m->vocab;
    m->token_count = known < m->vocab ? known : m->vocab;
    return qn_cache_set(m, c, o, dir);
}

static void warn(void *data, qn_log_level level, const char *text)
{
    const quern_model *m = data;
    if (m->log)
        m->log(m->log_data, (quern_log_level)level, text);
}

static qn_status open_stream(quern_model *m)
{
    mlx_device device = {NULL};
    qn_status status = qn_engine(mlx_get_default_device(&device));
    if (!status) {
        m->stream = mlx_stream_new_thread_unsafe(device);
        status = qn_engine_made(m->stream.ctx);
    }
    mlx_device_free(device);
    return status;
}

/* Keeps the headers instead of loading the weights. */
static qn_status keep_headers(quern_model *m, qn_weights **weights,
                              qn_config *config)
{
    qn_status status = qn_model_describe(&m->headers.sums, *weights, config);
    if (status)
        return status;
    m->tensors = qn_weights_count(*weights);
    m->headers.weights = *weights;
    m->headers.config = *config;
    *weights = NULL;
    *config = (qn_config){0};
    return QN_OK;
}

static qn_status load_model(quern_model *m, qn_weights *weights,
                            qn_config *config, const quern_options *options)
{
    qn_model_options model_options = {
        .dtype = m->dtype,
        .int8 = options->dtype == QUERN_DTYPE_AUTO,
        .stream = m->stream,
        .lenient = options->lenient_weights,
        .hollow = m->hollow,
        .warn = warn,
        .warn_data = m,
        .watch = m->watch,
        .watch_data = m->watch_data,
    };
    static const char *const names[] = {"auto", "f32", "f16", "bf16"};
    m->tensors = qn_weights_count(weights);
    snprintf(m->compute, sizeof m->compute, "%s%s%s", names[options->dtype],
             options->gguf_dequant ? " dense " : "",
             options->gguf_dequant ? options->gguf_dequant : "");
    if (!m->hollow)
        qn_model_digest(m->digest, weights, config);
    return qn_model_load(&m->model, weights, config, &model_options);
}

/* As the option says, else as the template that gets tools shows, if it has a
 * use for them. */
static qn_status set_tool_format(quern_model *m, const char *name)
{
    const qn_chat_template *chat =
        m->tool_chat.parsed ? &m->tool_chat : &m->chat;
    if (!name) {
        if (chat->parsed && qn_template_mentions(chat->parsed, "tools"))
            m->tool_format = qn_tool_format_of(qn_str_of(chat->source));
        return QN_OK;
    }
    m->tool_format = qn_tool_format_named(name);
    if (m->tool_format || !strcmp(name, "none"))
        return QN_OK;
    qn_buf names = QN_BUF_INIT;
    qn_tool_format_list(&names);
    qn_status status =
        qn_fail(QN_E_ARG, "tool_format: expected none or one of %s, found %s",
                names.failed ? "some" : names.data, name);
    qn_buf_free(&names);
    return qn_fail_where(status, "tool_format");
}

static qn_status load_parts(quern_model *m, qn_weights *weights,
                            qn_config *config, const quern_options *options)
{
    const char *dir = qn_weights_dir(weights);
    qn_status status = QN_OK;
    set_default_sampling(&m->defaults);
    if (options->remote)
        return set_sizes(m, config, options, dir);
    if (dir)
        status = read_generation_config(m, dir, config);
    if (!status)
        status = load_tokenizer(m, weights);
    if (!status)
        status = load_template(m, weights, options->chat_template);
    if (!status)
        status = set_tool_format(m, options->tool_format);
    if (!status)
        qn_markers_find(&m->markers, m->tokenizer);
    if (!status)
        status = set_end_ids(m, config);
    if (!status)
        status = set_sizes(m, config, options, dir);
    if (!status)
        status = qn_embedder_read(&m->embedder, weights, config);
    return status;
}

/* What the model takes, for the admission that follows and for questions. */
static qn_status measure(quern_model *m, const qn_weights *weights,
                         qn_config *config, const quern_options *options)
{
    qn_model_sums sums;
    qn_status status = qn_model_describe(&sums, weights, config);
    if (status)
        return status;
    m->parameters = sums.parameters;
    qn_fit_measure(m, weights, config, options->dtype == QUERN_DTYPE_AUTO);
    return QN_OK;
}

/* A directory's config.json is read before its weights are looked for, so
 * that the message for a folder that is no model names it. */
static qn_status check_directory(const char *path)
{
    if (!qn_path_is_dir(path))
        return QN_OK;
    char *name = qn_path_join(path, "config.json");
    if (!name)
        return QN_E_NOMEM;
    qn_status status = QN_OK;
    if (!qn_path_exists(name)) {
        status = qn_fail(QN_E_NOTFOUND, "config.json is missing");
        qn_fail_where(status, "%s", name);
    }
    qn_free(name);
    return status;
}

/* A model of a family that is not supported is told so before its other keys
 * are looked for, which need not be the ones we know. */
static qn_status check_family(const qn_weights *weights)
{
    const qn_gguf *gguf = qn_weights_gguf(weights);
    qn_json_doc *doc = NULL;
    qn_str name = {"", 0};
    if (gguf)
        qn_gguf_get_str(gguf, "general.architecture", &name);
    else if (!parse_beside(qn_weights_dir(weights), "config.json", &doc) && doc)
        qn_json_as_str(qn_json_get(qn_json_root(doc), "model_type"), &name);
    qn_status status = name.size ? qn_model_check_family(weights, name) : QN_OK;
    qn_json_doc_free(doc);
    return status;
}

static qn_status load(quern_model *m, const quern_options *options)
{
    qn_weights *weights = NULL;
    qn_config config = {0};
    qn_status status = check_options(options);
    if (!status)
        status = qn_engine_start();
    if (!status && options->threads && quern_set_threads(options->threads))
        status = bad_option("threads", "0..512", options->threads);
    if (!status)
        status = check_directory(m->path);
    if (!status)
        status = qn_weights_open(&weights, m->path);
    if (!status)
        status = check_family(weights);
    if (!status && qn_weights_gguf(weights))
        status =
            qn_config_from_gguf(&config, qn_weights_gguf(weights), m->path);
    else if (!status)
        status = read_config(&config, qn_weights_dir(weights));
    if (!status && options->compat)
        qn_model_as_mlx_lm(&config);
    if (!status && options->gguf_dequant && !config.gguf)
        status = qn_fail_where(
            qn_fail(QN_E_UNSUPPORTED, "the model is no GGUF file"),
            "gguf_dequant");
    config.dense_as = options->gguf_dequant;
    m->compat = options->compat ? "mlx-lm" : "";
    if (!status && !options->headers_only)
        status = qn_foreign_adopt(weights, &config.quant);
    if (!status)
        status = load_parts(m, weights, &config, options);
    if (!status)
        status = measure(m, weights, &config, options);
    if (!status && !options->headers_only && !m->hollow)
        status = qn_fit_admit(m, &config, options);
    if (!status && options->headers_only)
        status = keep_headers(m, &weights, &config);
    else if (!status)
        status = open_stream(m);
    if (!status && !options->headers_only)
        status = load_model(m, weights, &config, options);
    qn_config_clear(&config);
    qn_weights_free(weights);
    return status;
}

/* The model that guesses is loaded like this one, with its own limits, and
 * computed by this one's thread. */
static qn_status load_draft(quern_model *m, const quern_options *options)
{
    m->num_draft = options->num_draft ? options->num_draft
                   : options->draft   ? DEFAULT_DRAFT
                   : options->ngram   ? DEFAULT_NGRAM
                                      : 0;
    if (!options->draft && !options->ngram)
        m->num_draft = 0;
    if (!options->draft || options->remote)
        return QN_OK;
    quern_options own = {.dtype = options->dtype,
                         .prefill_chunk = options->prefill_chunk,
                         .headers_only = options->headers_only,
                         .lenient_weights = options->lenient_weights,
                         .compat = options->compat,
                         .log = options->log,
                         .log_data = options->log_data};
    quern_error error;
    qn_status status =
        (qn_status)quern_model_load(&m->draft, options->draft, &own, &error);
    return status ? status : qn_draft_check(m, m->draft);
}

static void set_up(quern_model *m, const quern_options *options)
{
    qn_scheduler_init(&m->scheduler, options->parallel > 0
                                         ? (size_t)options->parallel
                                         : DEFAULT_PARALLEL);
    if (options->spec_max_rows > 0)
        m->scheduler.draft_rows = (size_t)options->spec_max_rows;
    m->scheduler.step_seconds = options->max_step_ms / 1000.0;
    qn_prefixes_init(&m->prefixes, options->prefix_cache);
    m->log = options->log;
    m->log_data = options->log_data;
    m->trust_content = options->trust_content;
    m->in_use = -1;
}

#define PREFIX_DISK ((uint64_t)20 << 30)

/* The disk is looked at again after so many milliseconds. */
static int write_prefix(void *data)
{
    enum { LATER_MS = 20 };
    qn_prefix_progress progress = qn_prefixes_write(data);
    return progress == QN_PREFIX_MORE ? 0 : progress ? LATER_MS : -1;
}

/* Where prompts outlive the model. */
static qn_status open_disk(quern_model *m, const quern_options *options)
{
    qn_prefix_disk *disk;
    if (!options->prefix_disk || !options->prefix_cache)
        return QN_OK;
    qn_status status = qn_prefix_disk_open(
        &disk, m, options->prefix_disk,
        options->prefix_disk_limit ? options->prefix_disk_limit : PREFIX_DISK);
    if (status)
        return qn_fail_where(status, "prefix_disk");
    qn_prefixes_use_disk(&m->prefixes, disk);
    m->scheduler.idle = write_prefix;
    m->scheduler.idle_data = &m->prefixes;
    return QN_OK;
}

/* `m`: new, or NULL where there was no memory for it. */
static quern_status open_model(quern_model **out, quern_model *m,
                               const char *path, const quern_options *options,
                               quern_error *error)
{
    quern_options defaults;
    quern_options_init(&defaults);
    double start = qn_now();
    if (!options)
        options = &defaults;
    if (!m)
        return qn_give(error, QN_E_NOMEM);
    set_up(m, options);
    qn_status status = options->remote && options->headers_only
                           ? qn_model_heads(&m->path, &m->heads, path)
                           : qn_model_path(&m->path, path);
    /* Before the first file is opened: nobody removes them from now on. */
    if (!status && !options->headers_only)
        m->in_use = qn_use_begin(m->path);
    if (!status)
        status = load(m, options);
    if (!status)
        status = load_draft(m, options);
    if (m->heads)
        status = qn_model_drop_heads(&m->heads, path, status);
    if (!status && !options->headers_only)
        status = open_disk(m, options);
    m->load_seconds = qn_now() - start;
    if (status) {
        qn_error kept;
        qn_error_save(&kept);
        quern_model_free(m);
        qn_error_restore(&kept);
    } else {
        *out = m;
    }
    return qn_give(error, status);
}

quern_status qn_model_open_watched(quern_model **out, const char *path,
                                   const quern_options *options,
                                   qn_watch_fn watch, void *data,
                                   quern_error *error)
{
    quern_model *m = qn_calloc(1, sizeof *m);
    if (m) {
        m->watch = watch;
        m->watch_data = data;
    }
    return open_model(out, m, path, options, error);
}

quern_status qn_model_audit(const char *path, quern_error *error)
{
    quern_model *m = qn_calloc(1, sizeof *m), *loaded = NULL;
    quern_options options;
    quern_options_init(&options);
    options.dtype = QUERN_DTYPE_F32;
    if (m)
        m->hollow = true;
    quern_status status = open_model(&loaded, m, path, &options, error);
    quern_model_free(loaded);
    return status;
}

quern_status quern_model_load(quern_model **out, const char *path,
                              const quern_options *options, quern_error *error)
{
    return open_model(out, qn_calloc(1, sizeof(quern_model)), path, options,
                      error);
}

void quern_model_free(quern_model *m)
{
    if (!m)
        return;
    qn_scheduler_clear(&m->scheduler);
    qn_prefixes_write_all(&m->prefixes);
    qn_prefixes_clear(&m->prefixes);
    quern_model_free(m->draft);
    qn_model_free(m->model);
    qn_weights_free(m->headers.weights);
    qn_config_clear(&m->headers.config);
    qn_tokenizer_free(m->tokenizer);
    qn_chat_clear(&m->chat);
    qn_chat_clear(&m->tool_chat);
    qn_ids_free(&m->end_ids);
    if (m->stream.ctx)
        mlx_stream_free(m->stream);
    qn_use_end(m->in_use);
    qn_free(m->kv_layers);
    qn_free(m->path);
    qn_free(m);
    mlx_clear_cache();
}

bool quern_model_tensor(const quern_model *m, size_t index, quern_tensor *out)
{
    qn_weights *weights = m->headers.weights;
    if (!weights || index >= qn_weights_count(weights))
        return false;
    const qn_weight *weight = qn_weights_at(weights, index);
    *out = (quern_tensor){
        .name = weight->name,
        .type = qn_weight_type_name(weights, weight),
        .ndim = weight->ndim,
        .shape = weight->shape,
        .bytes = weight->data.size,
    };
    return true;
}

void quern_model_info(const quern_model *m, quern_info *info)
{
    const qn_headers *headers = &m->headers;
    const qn_config *c =
        m->model ? qn_model_config(m->model) : &headers->config;
    const qn_model_sums *sums =
        m->model ? qn_model_totals(m->model) : &headers->sums;
    *info = (quern_info){
        .path = m->path,
        .format = c->gguf ? "gguf" : "mlx",
        .family = c->family,
        .name = c->name,
        .quantization = sums->form,
        .dtype = dtype_name(m->dtype),
        .kv = m->kv_name,
        .tokenizer = m->tokenizer ? qn_tokenizer_kind(m->tokenizer) : NULL,
        .pooling = m->embedder.pooling ? quern_pooling_name(m->embedder.pooling)
                                       : NULL,
        .encoder = qn_family_is_encoder(c->family),
        .has_chat_template = m->chat.parsed != NULL,
        .chat_template = m->chat.source,
        .tool_format =
            m->tool_format ? qn_tool_format_name(m->tool_format) : NULL,
        .token_count =
            m->tokenizer ? qn_tokenizer_count(m->tokenizer) : m->token_count,
        .bos_id = m->tokenizer ? qn_tokenizer_bos(m->tokenizer) : -1,
        .unk_id = m->tokenizer ? qn_tokenizer_unk(m->tokenizer) : -1,
        .pad_id = m->tokenizer ? qn_tokenizer_pad(m->tokenizer) : -1,
        .tied_embeddings = sums->tied,
        .vocab_size = m->vocab,
        .layers = c->layers,
        .hidden = c->hidden,
        .intermediate = c->intermediate,
        .heads = c->heads,
        .kv_heads = c->kv_heads,
        .head_dim = c->head_dim,
        .sliding_window = c->sliding_window,
        .forgets = qn_cache_forgets(m),
        .max_ctx = c->max_positions,
        .ctx = m->ctx,
        .parameters = sums->parameters,
        .weight_bytes = sums->bytes,
        .bits_per_weight = sums->parameters ? 8.0 * (double)sums->bytes /
                                                  (double)sums->parameters
                                            : 0,
        .prefill_chunk = m->prefill_chunk,
        .kv_bytes_per_token = qn_kv_token_bytes(&m->kv),
        .tensors = m->tensors,
        .load_seconds = m->load_seconds,
        .digest = m->digest,
    };
}

const int32_t *quern_end_ids(const quern_model *m, size_t *count)
{
    *count = m->end_ids.size;
    return m->end_ids.data;
}

void quern_request_init(quern_request *request, const quern_model *m)
{
    *request = (quern_request){
        .sampling = m->defaults,
        .max_tokens = 512,
        .num_draft = -1,
        .reasoning_budget = -1,
    };
    quern_chat_init(&request->chat);
}
