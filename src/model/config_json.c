/* config_json.c: config.json into a qn_config (runtime specification 1.1). */
#include "base/alloc.h"
#include "config_read.h"

#include <stdio.h>

/* The document, with the part that wins for the fields of the text model. */
typedef struct reader {
    const char *path;
    const qn_json *root, *text;
} reader;

static const qn_json *find(const reader *r, const char *key)
{
    const qn_json *value = qn_json_get(r->text, key);
    if (!value)
        value = qn_json_get(r->root, key);
    /* null means the same as absent. */
    return value && value->type != QN_JSON_T_NULL ? value : NULL;
}

static qn_status at(const reader *r, qn_status status, const char *key)
{
    return qn_fail_where(status, "%s: $.%s", r->path, key);
}

static qn_status missing(const reader *r, const char *key)
{
    return at(r, qn_fail(QN_E_FORMAT, "%s is missing", key), key);
}

static qn_status wrong_type(const reader *r, const char *key,
                            const char *expected, const qn_json *value)
{
    return at(
        r,
        qn_fail(QN_E_FORMAT, "%s: expected %s, found %s%s%.*s", key, expected,
                qn_json_type_name(value->type),
                value->type == QN_JSON_T_NUMBER ? " " : "",
                value->type == QN_JSON_T_NUMBER ? (int)value->text.size : 0,
                value->type == QN_JSON_T_NUMBER ? value->text.data : ""),
        key);
}

static qn_status get_int(const reader *r, const char *key, const qn_json *value,
                         int low, int high, int *out)
{
    int64_t n;
    if (!qn_json_as_int(value, &n))
        return wrong_type(r, key, "an integer", value);
    if (n < low || n > high)
        return at(r,
                  qn_fail(QN_E_FORMAT, "%s: expected %d..%d, found %lld", key,
                          low, high, (long long)n),
                  key);
    *out = (int)n;
    return QN_OK;
}

static qn_status need_dim(const reader *r, const char *key, int high, int *out)
{
    const qn_json *value = find(r, key);
    return value ? get_int(r, key, value, 1, high, out) : missing(r, key);
}

static qn_status maybe_dim(const reader *r, const char *key, int high, int *out)
{
    const qn_json *value = find(r, key);
    return value ? get_int(r, key, value, 1, high, out) : QN_OK;
}

static qn_status get_double(const reader *r, const char *key,
                            const qn_json *value, double *out)
{
    return qn_json_as_double(value, out)
               ? QN_OK
               : wrong_type(r, key, "a number", value);
}

static qn_status maybe_bool(const reader *r, const char *key, bool *out)
{
    const qn_json *value = find(r, key);
    if (!value || qn_json_as_bool(value, out))
        return QN_OK;
    return wrong_type(r, key, "true or false", value);
}

/* A copy of the string; *out stays as it is when the key is absent. */
static qn_status maybe_str(const reader *r, const char *key, char **out)
{
    const qn_json *value = find(r, key);
    qn_str text;
    if (!value)
        return QN_OK;
    if (!qn_json_as_str(value, &text))
        return wrong_type(r, key, "a string", value);
    char *copy = qn_strndup(text.data, text.size);
    if (!copy)
        return QN_E_NOMEM;
    qn_free(*out);
    *out = copy;
    return QN_OK;
}

/* A number inside an object of rope settings. */
static qn_status rope_number(const reader *r, const qn_json *object,
                             const char *key, bool needed, double *out)
{
    const qn_json *value = qn_json_get(object, key);
    if (value && value->type != QN_JSON_T_NULL)
        return get_double(r, key, value, out);
    return needed ? missing(r, key) : QN_OK;
}

static qn_status read_rope_type(const reader *r, const qn_json *scaling,
                                qn_rope_type *out)
{
    static const struct {
        const char *name;
        qn_rope_type type;
    } types[] = {
        {"default", QN_ROPE_DEFAULT}, {"mrope", QN_ROPE_DEFAULT},
        {"linear", QN_ROPE_LINEAR},   {"llama3", QN_ROPE_LLAMA3},
        {"yarn", QN_ROPE_YARN},
    };
    const char *key = "rope_type";
    const qn_json *value = qn_json_get(scaling, key);
    if (!value)
        value = qn_json_get(scaling, key = "type");
    qn_str text;
    if (!value)
        return missing(r, "rope_type");
    if (!qn_json_as_str(value, &text))
        return wrong_type(r, key, "a string", value);
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (qn_str_is(text, types[i].name)) {
            *out = types[i].type;
            return QN_OK;
        }
    return at(r,
              qn_fail(QN_E_UNSUPPORTED,
                      "rope scaling '%.*s' is not supported (default, linear, "
                      "llama3, yarn are)",
                      (int)text.size, text.data),
              key);
}

static qn_status read_scaling(const reader *r, const qn_json *scaling,
                              qn_rope_config *rope)
{
    qn_status status = read_rope_type(r, scaling, &rope->type);
    if (!status)
        status = rope_number(r, scaling, "factor",
                             rope->type != QN_ROPE_DEFAULT, &rope->factor);
    const struct {
        const char *key;
        double *out;
    } numbers[] = {
        {"original_max_position_embeddings", &rope->original_positions},
        {"low_freq_factor", &rope->low_freq_factor},
        {"high_freq_factor", &rope->high_freq_factor},
        {"beta_fast", &rope->beta_fast},
        {"beta_slow", &rope->beta_slow},
        {"mscale", &rope->mscale},
        {"mscale_all_dim", &rope->mscale_all_dim},
        {"attention_factor", &rope->attention_factor},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers && !status; i++)
        status = rope_number(r, scaling, numbers[i].key, false, numbers[i].out);
    return status;
}

static qn_status read_rope(const reader *r, qn_config *c)
{
    qn_rope_config *rope = &c->rope;
    *rope = (qn_rope_config){
        .base = 10000,
        .low_freq_factor = 1,
        .high_freq_factor = 4,
        .beta_fast = 32,
        .beta_slow = 1,
        .mscale = 1,
    };
    qn_status status = maybe_bool(r, "rope_traditional", &rope->traditional);
    const qn_json *theta = find(r, "rope_theta");
    const qn_json *parameters = find(r, "rope_parameters");
    const qn_json *scaling = find(r, "rope_scaling");
    const qn_json *original = find(r, "original_max_position_embeddings");
    if (!status && parameters && parameters->type != QN_JSON_T_OBJECT)
        status = wrong_type(r, "rope_parameters", "an object", parameters);
    if (!status && scaling && scaling->type != QN_JSON_T_OBJECT)
        status = wrong_type(r, "rope_scaling", "an object", scaling);
    if (status)
        return status;

    double partial = 1;
    if (theta)
        status = get_double(r, "rope_theta", theta, &rope->base);
    else
        status = rope_number(r, parameters, "rope_theta", false, &rope->base);
    const qn_json *value = find(r, "partial_rotary_factor");
    if (!value)
        value = qn_json_get(parameters, "partial_rotary_factor");
    if (!status && value)
        status = get_double(r, "partial_rotary_factor", value, &partial);
    if (!status && !(partial > 0 && partial <= 1))
        status = at(r, qn_fail(QN_E_FORMAT, "expected 0..1, found %g", partial),
                    "partial_rotary_factor");
    if (!status && original)
        status = get_double(r, "original_max_position_embeddings", original,
                            &rope->original_positions);
    rope->dims = (int)(c->head_dim * partial);
    /* The newer layout has the scaling in rope_parameters. */
    if (!scaling && (qn_json_get(parameters, "rope_type") ||
                     qn_json_get(parameters, "type")))
        scaling = parameters;
    if (!status && scaling)
        status = read_scaling(r, scaling, rope);
    if (!status && rope->type == QN_ROPE_LLAMA3 && !rope->original_positions)
        rope->original_positions = 8192;
    if (!status && rope->type == QN_ROPE_YARN && !rope->original_positions)
        rope->original_positions = (double)c->max_positions;
    return status;
}

static qn_status read_windows(const reader *r, qn_config *c)
{
    qn_status status =
        maybe_dim(r, "sliding_window", QN_MAX_DIM, &c->sliding_window);
    const qn_json *types = find(r, "layer_types");
    if (status || !types)
        return status;
    if (types->type != QN_JSON_T_ARRAY || types->count != (uint32_t)c->layers)
        return at(r,
                  qn_fail(QN_E_FORMAT, "expected a list of %d, found %s of %u",
                          c->layers, qn_json_type_name(types->type),
                          types->count),
                  "layer_types");
    for (int i = 0; i < c->layers; i++) {
        qn_str text = {"", 0};
        qn_json_as_str(&types->items[i], &text);
        if (qn_str_is(text, "sliding_attention")) {
            if (!c->sliding_window)
                return missing(r, "sliding_window");
            c->layer[i].window = c->sliding_window;
        } else if (!qn_str_is(text, "full_attention")) {
            return at(r,
                      qn_fail(QN_E_UNSUPPORTED,
                              "layer %d: expected full_attention or "
                              "sliding_attention, found '%.*s'",
                              i, (int)text.size, text.data),
                      "layer_types");
        }
    }
    return QN_OK;
}

/* The window of a family that has one without saying so layer by layer. */
static void spread_window(const reader *r, qn_config *c)
{
    if (find(r, "layer_types") || strcmp(c->family, "mistral") != 0)
        return;
    for (int i = 0; i < c->layers; i++)
        c->layer[i].window = c->sliding_window;
}

static qn_status read_intermediate(const reader *r, qn_config *c)
{
    const char *key = "intermediate_size";
    const qn_json *value = find(r, key);
    if (!value)
        return missing(r, key);
    if (value->type != QN_JSON_T_ARRAY) {
        qn_status status =
            get_int(r, key, value, 1, QN_MAX_DIM, &c->intermediate);
        return status ? status : qn_config_make_layers(c);
    }
    if (value->count != (uint32_t)c->layers)
        return at(r,
                  qn_fail(QN_E_FORMAT, "expected %d entries, found %u",
                          c->layers, value->count),
                  key);
    qn_status status = qn_config_make_layers(c);
    for (int i = 0; i < c->layers && !status; i++) {
        status = get_int(r, key, &value->items[i], 1, QN_MAX_DIM,
                         &c->layer[i].intermediate);
        if (!status && c->layer[i].intermediate > c->intermediate)
            c->intermediate = c->layer[i].intermediate;
    }
    return status;
}

/* An id that may be absent, null, or the first of a list. */
static qn_status read_id(const reader *r, const char *key, int64_t *out)
{
    const qn_json *value = find(r, key);
    *out = -1;
    if (value && value->type == QN_JSON_T_ARRAY)
        value = qn_json_at(value, 0);
    int id = -1;
    qn_status status =
        value ? get_int(r, key, value, -1, INT32_MAX, &id) : QN_OK;
    *out = id;
    return status;
}

static qn_status read_sizes(const reader *r, qn_config *c)
{
    qn_status status = need_dim(r, "hidden_size", QN_MAX_DIM, &c->hidden);
    if (!status)
        status = need_dim(r, "num_hidden_layers", QN_MAX_LAYERS, &c->layers);
    if (!status)
        status = need_dim(r, "num_attention_heads", QN_MAX_DIM, &c->heads);
    if (!status)
        status = need_dim(r, "vocab_size", QN_MAX_DIM, &c->vocab_size);
    c->kv_heads = c->heads;
    if (!status)
        status = maybe_dim(r, "num_key_value_heads", QN_MAX_DIM, &c->kv_heads);
    if (!status)
        status = maybe_dim(r, "head_dim", QN_MAX_DIM, &c->head_dim);
    if (!status && !c->head_dim) {
        if (c->hidden % c->heads)
            status = at(r,
                        qn_fail(QN_E_FORMAT,
                                "head_dim is missing, and hidden_size %d does "
                                "not divide by %d heads",
                                c->hidden, c->heads),
                        "head_dim");
        else
            c->head_dim = c->hidden / c->heads;
    }
    return status ? status : read_intermediate(r, c);
}

static qn_status read_flags(const reader *r, qn_config *c)
{
    qn_status status = maybe_bool(r, "attention_bias", &c->attention_bias);
    if (!status)
        status = maybe_bool(r, "mlp_bias", &c->mlp_bias);
    const qn_json *value = find(r, "tie_word_embeddings");
    bool tied = false;
    c->tied = -1;
    if (!status && value) {
        status = maybe_bool(r, "tie_word_embeddings", &tied);
        c->tied = tied;
    }
    if (!status)
        status = maybe_str(r, "hidden_activation", &c->activation);
    if (!status)
        status = maybe_str(r, "hidden_act", &c->activation);
    if (!status && !c->activation && !(c->activation = qn_strdup("silu")))
        status = QN_E_NOMEM;
    return status;
}

qn_status qn_config_set_end_ids(qn_config *c, const qn_json *value,
                                const char *where)
{
    c->end_count = 0;
    if (!value || value->type == QN_JSON_T_NULL)
        return QN_OK;
    bool list = value->type == QN_JSON_T_ARRAY;
    uint32_t count = list ? value->count : 1;
    for (uint32_t i = 0; i < count; i++) {
        const qn_json *item = list ? &value->items[i] : value;
        int64_t id;
        if (!qn_json_as_int(item, &id) || id < 0 || id > INT32_MAX ||
            c->end_count == QN_MAX_END_IDS) {
            c->end_count = 0;
            qn_status status = qn_fail(
                QN_E_FORMAT,
                "expected a token id or a list of up to %d, found %s in %s",
                QN_MAX_END_IDS, qn_json_type_name(item->type),
                qn_json_type_name(value->type));
            return qn_fail_where(status, "%s", where);
        }
        c->end_ids[c->end_count++] = (int32_t)id;
    }
    return QN_OK;
}

static qn_status read_quantization(const reader *r, qn_config *c)
{
    const char *key = "quantization";
    const qn_json *value = find(r, key);
    if (!value)
        value = find(r, key = "quantization_config");
    char where[QN_ERROR_SIZE];
    snprintf(where, sizeof where, "%s: $.%s", r->path, key);
    return qn_quant_parse(&c->quant, value, where);
}

static qn_status read_all(const reader *r, qn_config *c)
{
    if (r->root->type != QN_JSON_T_OBJECT) {
        qn_status status = qn_fail(QN_E_FORMAT, "expected an object, found %s",
                                   qn_json_type_name(r->root->type));
        return qn_fail_where(status, "%s", r->path);
    }
    /* A configuration may name code; code is never run. */
    if (find(r, "model_file"))
        return at(r,
                  qn_fail(QN_E_UNSUPPORTED,
                          "models that bring their own code are refused"),
                  "model_file");
    const qn_json *type = qn_json_get(r->root, "model_type");
    qn_str family;
    if (!type)
        return missing(r, "model_type");
    if (!qn_json_as_str(type, &family))
        return wrong_type(r, "model_type", "a string", type);
    c->family = qn_strndup(family.data, family.size);
    c->name = qn_strdup("");
    if (!c->family || !c->name)
        return QN_E_NOMEM;

    int positions = 0;
    qn_status status = read_sizes(r, c);
    if (!status)
        status = need_dim(r, "max_position_embeddings", QN_MAX_DIM, &positions);
    c->max_positions = positions;
    const qn_json *eps = find(r, "rms_norm_eps");
    if (!status)
        status = eps ? get_double(r, "rms_norm_eps", eps, &c->rms_norm_eps)
                     : missing(r, "rms_norm_eps");
    if (!status)
        status = read_rope(r, c);
    if (!status)
        status = read_windows(r, c);
    if (!status)
        spread_window(r, c);
    if (!status)
        status = read_flags(r, c);
    if (!status)
        status = read_id(r, "bos_token_id", &c->bos_id);
    if (!status)
        status = read_id(r, "pad_token_id", &c->pad_id);
    char where[QN_ERROR_SIZE];
    snprintf(where, sizeof where, "%s: $.eos_token_id", r->path);
    if (!status)
        status = qn_config_set_end_ids(c, find(r, "eos_token_id"), where);
    if (!status)
        status = read_quantization(r, c);
    return status ? status : qn_config_check(c, r->path);
}

qn_status qn_config_from_json(qn_config *out, qn_str text, const char *path)
{
    qn_json_doc *doc;
    qn_status status = qn_json_parse(&doc, text, QN_JSON_ALLOW_BOM);
    if (status)
        return qn_fail_where(status, "%s", path);
    reader r = {.path = path, .root = qn_json_root(doc)};
    r.text = qn_json_get(r.root, "text_config");
    qn_config config = {0};
    status = read_all(&r, &config);
    if (status)
        qn_config_clear(&config);
    else
        *out = config;
    qn_json_doc_free(doc);
    return status;
}
