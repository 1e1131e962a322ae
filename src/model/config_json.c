/* config_json.c: config.json into a qn_config (runtime specification 1.1). */
#include "base/alloc.h"
#include "config_read.h"

#include <stdio.h>

/* ---- rotary positions ---- */

static void read_rope_type(qn_source *s, qn_rope_config *rope,
                           const qn_json *scaling)
{
    static const struct {
        const char *name;
        qn_rope_type type;
    } types[] = {
        {"default", QN_ROPE_DEFAULT},
        {"mrope", QN_ROPE_DEFAULT},
        {"linear", QN_ROPE_LINEAR},
        {"llama3", QN_ROPE_LLAMA3},
        {"yarn", QN_ROPE_YARN},
        {"dynamic", QN_ROPE_DYNAMIC},
        {"longrope", QN_ROPE_LONGROPE},
        {"su", QN_ROPE_LONGROPE},
        {"proportional", QN_ROPE_PROPORTIONAL},
    };
    const char *key = "rope_type";
    const qn_json *value = qn_json_get(scaling, key);
    if (!value)
        value = qn_json_get(scaling, key = "type");
    qn_str text;
    if (s->status)
        return;
    if (!value) {
        qn_source_missing(s, "rope_type", NULL);
        return;
    }
    if (!qn_json_as_str(value, &text)) {
        qn_source_wrong(s, key, "a string", value);
        return;
    }
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (qn_str_is(text, types[i].name)) {
            rope->type = types[i].type;
            return;
        }
    qn_source_fail(s,
                   qn_fail(QN_E_UNSUPPORTED,
                           "rope scaling '%.*s' is not supported (default, "
                           "linear, dynamic, llama3, yarn, longrope, "
                           "proportional are)",
                           (int)text.size, text.data),
                   key, NULL);
}

/* One number for each pair of features; the caller owns it. */
static void read_factors(qn_source *s, float **out, const qn_json *scaling,
                         const char *key, int count)
{
    const qn_json *list = qn_json_get(scaling, key);
    if (s->status)
        return;
    if (!list) {
        qn_source_missing(s, key, NULL);
        return;
    }
    if (list->type != QN_JSON_T_ARRAY || list->count != (uint32_t)count) {
        qn_source_fail(
            s,
            qn_fail(QN_E_FORMAT, "%s: expected a list of %d, found %s of %u",
                    key, count, qn_json_type_name(list->type), list->count),
            key, NULL);
        return;
    }
    float *values = qn_calloc((size_t)count, sizeof *values);
    s->status = values ? QN_OK : QN_E_NOMEM;
    for (int i = 0; i < count && !s->status; i++) {
        double value = 0;
        if (!qn_json_as_double(&list->items[i], &value))
            qn_source_wrong(s, key, "numbers", &list->items[i]);
        else if (!(value > 0 && value < 1e9))
            qn_source_fail(s,
                           qn_fail(QN_E_FORMAT,
                                   "%s: expected positive numbers, found %g",
                                   key, value),
                           key, NULL);
        else
            values[i] = (float)value;
    }
    qn_free(*out);
    *out = values;
}

static bool needs_factor(qn_rope_type type)
{
    return type == QN_ROPE_LINEAR || type == QN_ROPE_LLAMA3 ||
           type == QN_ROPE_YARN || type == QN_ROPE_DYNAMIC;
}

static void read_scaling(qn_source *s, qn_rope_config *rope,
                         const qn_json *scaling)
{
    read_rope_type(s, rope, scaling);
    if (!s->status && needs_factor(rope->type) &&
        !qn_json_get(scaling, "factor"))
        qn_source_missing(s, "factor", NULL);
    const struct {
        const char *key;
        double *out;
    } numbers[] = {
        {"factor", &rope->factor},
        {"original_max_position_embeddings", &rope->original_positions},
        {"low_freq_factor", &rope->low_freq_factor},
        {"high_freq_factor", &rope->high_freq_factor},
        {"beta_fast", &rope->beta_fast},
        {"beta_slow", &rope->beta_slow},
        {"mscale", &rope->mscale},
        {"mscale_all_dim", &rope->mscale_all_dim},
        {"attention_factor", &rope->attention_factor},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        qn_read_member(s, numbers[i].out, scaling, numbers[i].key);
    bool whole = true;
    if (qn_json_as_bool(qn_json_get(scaling, "truncate"), &whole))
        rope->between_pairs = !whole;
    if (rope->type == QN_ROPE_LONGROPE && !s->status) {
        read_factors(s, &rope->short_factors, scaling, "short_factor",
                     rope->dims / 2);
        read_factors(s, &rope->long_factors, scaling, "long_factor",
                     rope->dims / 2);
    }
}

/* The rotated part of a head; `partial` has been read. */
static void set_dims(qn_source *s, qn_rope_config *rope, int head_dim)
{
    if (!s->status && !(rope->partial > 0 && rope->partial <= 1))
        qn_source_fail(
            s, qn_fail(QN_E_FORMAT, "expected 0..1, found %g", rope->partial),
            "partial_rotary_factor", NULL);
    if (s->status)
        return;
    rope->dims = (int)(head_dim * rope->partial);
    rope->turned = rope->dims / 2;
}

static bool has_type(const qn_json *object)
{
    return qn_json_get(object, "rope_type") || qn_json_get(object, "type");
}

void qn_read_rope(qn_source *s, qn_rope_config *rope, const qn_json *object,
                  int head_dim)
{
    qn_read_member(s, &rope->base, object, "rope_theta");
    qn_read_member(s, &rope->partial, object, "partial_rotary_factor");
    set_dims(s, rope, head_dim);
    if (has_type(object) && !s->status)
        read_scaling(s, rope, object);
    if (rope->type == QN_ROPE_PROPORTIONAL)
        rope->dims = head_dim;
}

static const qn_json *read_object(qn_source *s, const char *key)
{
    const qn_json *value = qn_source_json(s, key);
    if (!value || value->type == QN_JSON_T_OBJECT)
        return value;
    qn_source_wrong(s, key, "an object", value);
    return NULL;
}

/* The parameters of one kind of layers, where each has its own. */
static const qn_json *read_kind(qn_source *s, const qn_json *parameters,
                                const char *kind)
{
    const qn_json *value = qn_json_get(parameters, kind);
    if (!value || value->type == QN_JSON_T_OBJECT)
        return value;
    if (value->type != QN_JSON_T_NULL)
        qn_source_wrong(s, kind, "an object", value);
    return NULL;
}

/* What older files have: the base beside an object with the scaling. */
static void read_flat_rope(qn_source *s, qn_config *c, const qn_json *scaling)
{
    qn_rope_config *rope = &c->rope;
    qn_read_real(s, &rope->base, "rope_theta", NULL);
    qn_read_real(s, &rope->partial, "partial_rotary_factor", NULL);
    qn_read_real(s, &rope->original_positions,
                 "original_max_position_embeddings", NULL);
    set_dims(s, rope, c->head_dim);
    if (scaling && !s->status)
        read_scaling(s, rope, scaling);
    if (rope->type == QN_ROPE_PROPORTIONAL)
        rope->dims = c->head_dim;
}

static void read_ropes(qn_source *s, qn_config *c)
{
    qn_rope_config *rope = &c->rope;
    qn_read_bool(s, &rope->traditional, "rope_traditional", NULL);
    const qn_json *parameters = read_object(s, "rope_parameters");
    const qn_json *scaling = read_object(s, "rope_scaling");
    const qn_json *full = read_kind(s, parameters, "full_attention");
    const qn_json *sliding = read_kind(s, parameters, "sliding_attention");
    read_flat_rope(s, c, scaling);
    if (parameters && !full && !sliding)
        qn_read_rope(s, rope, parameters, c->head_dim);
    if (full)
        qn_read_rope(s, rope, full, c->head_dim);
    qn_rope_config *local = &c->local_rope;
    local->traditional = rope->traditional;
    qn_read_real(s, &local->base, "rope_local_base_freq", NULL);
    set_dims(s, local, c->head_dim);
    if (sliding)
        qn_read_rope(s, local, sliding, c->head_dim);
    /* A type may be the family's, with no object in the file. */
    if (rope->type == QN_ROPE_PROPORTIONAL && !rope->factor)
        rope->factor = 1;
    if (local->type == QN_ROPE_PROPORTIONAL && !local->factor)
        local->factor = 1;
    if (rope->type == QN_ROPE_LLAMA3 && !rope->original_positions)
        rope->original_positions = 8192;
    if ((rope->type == QN_ROPE_YARN || rope->type == QN_ROPE_LONGROPE) &&
        !rope->original_positions)
        rope->original_positions = (double)c->max_positions;
    if (rope->type == QN_ROPE_DYNAMIC)
        rope->original_positions = (double)c->max_positions;
    if (rope->type == QN_ROPE_LONGROPE && !rope->factor)
        rope->factor = (double)c->max_positions / rope->original_positions;
}

/* ---- layers ---- */

static void read_layer_types(qn_source *s, qn_config *c)
{
    const qn_json *types = qn_source_json(s, "layer_types");
    if (s->status || !types)
        return;
    if (types->type != QN_JSON_T_ARRAY || types->count != (uint32_t)c->layers) {
        qn_source_fail(
            s,
            qn_fail(QN_E_FORMAT, "expected a list of %d, found %s of %u",
                    c->layers, qn_json_type_name(types->type), types->count),
            "layer_types", NULL);
        return;
    }
    for (int i = 0; i < c->layers && !s->status; i++) {
        qn_str text = {"", 0};
        qn_json_as_str(&types->items[i], &text);
        if (qn_str_is(text, "sliding_attention")) {
            if (!c->sliding_window)
                qn_source_missing(s, "sliding_window", NULL);
            c->layer[i].window = c->sliding_window;
        } else if (qn_str_is(text, "linear_attention")) {
            c->layer[i].kind = QN_LAYER_RECURRENT;
        } else if (!qn_str_is(text, "full_attention")) {
            qn_source_fail(s,
                           qn_fail(QN_E_UNSUPPORTED,
                                   "layer %d: expected full_attention, "
                                   "sliding_attention or linear_attention, "
                                   "found '%.*s'",
                                   i, (int)text.size, text.data),
                           "layer_types", NULL);
        }
    }
}

/* ---- the rest ---- */

/* An id that may be absent, null, or the first of a list. */
static void read_id(qn_source *s, const char *key, int64_t *out)
{
    const qn_json *value = qn_source_json(s, key);
    if (s->status || !value)
        return;
    if (value->type == QN_JSON_T_ARRAY)
        value = qn_json_at(value, 0);
    int64_t id = -1;
    if (value && (!qn_json_as_int(value, &id) || id < -1 || id > INT32_MAX))
        qn_source_wrong(s, key, "a token id", value);
    *out = id;
}

static void read_flags(qn_source *s, qn_config *c)
{
    qn_read_bool(s, &c->attention_bias, "attention_bias", NULL);
    qn_read_bool(s, &c->mlp_bias, "mlp_bias", NULL);
    if (qn_source_json(s, "tie_word_embeddings")) {
        bool tied = false;
        qn_read_bool(s, &tied, "tie_word_embeddings", NULL);
        c->tied = tied;
    }
    bool newer = qn_source_json(s, "hidden_activation") != NULL;
    qn_read_text(s, c->activation, sizeof c->activation,
                 newer ? "hidden_activation" : "hidden_act", NULL);
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

static void read_end_ids(qn_source *s, qn_config *c)
{
    char where[QN_ERROR_SIZE];
    snprintf(where, sizeof where, "%s: $.eos_token_id", s->path);
    if (!s->status)
        s->status =
            qn_config_set_end_ids(c, qn_source_json(s, "eos_token_id"), where);
}

static void read_quantization(qn_source *s, qn_config *c)
{
    const char *key = "quantization";
    const qn_json *value = qn_source_json(s, key);
    if (!value)
        value = qn_source_json(s, key = "quantization_config");
    char where[QN_ERROR_SIZE];
    snprintf(where, sizeof where, "%s: $.%s", s->path, key);
    if (!s->status)
        s->status = qn_quant_parse(&c->quant, value, where);
}

/* The outer model_type selects what the rest means, also for a model whose
 * text part has a type of its own. */
static void read_type(qn_source *s, qn_config *c)
{
    const qn_json *type = qn_json_get(s->root, "model_type");
    qn_str family;
    if (s->root->type != QN_JSON_T_OBJECT) {
        s->status =
            qn_fail_where(qn_fail(QN_E_FORMAT, "expected an object, found %s",
                                  qn_json_type_name(s->root->type)),
                          "%s", s->path);
    } else if (qn_source_json(s, "model_file")) {
        /* A configuration may name code; code is never run. */
        qn_source_fail(s,
                       qn_fail(QN_E_UNSUPPORTED,
                               "models that bring their own code are refused"),
                       "model_file", NULL);
    } else if (!type) {
        qn_source_missing(s, "model_type", NULL);
    } else if (!qn_json_as_str(type, &family)) {
        qn_source_wrong(s, "model_type", "a string", type);
    } else {
        c->family = qn_strndup(family.data, family.size);
        c->name = qn_strdup("");
        if (!c->family || !c->name)
            s->status = QN_E_NOMEM;
    }
}

static qn_status read_all(qn_source *s, qn_config *c)
{
    read_type(s, c);
    if (s->status)
        return s->status;
    qn_config_read_sizes(c, s);
    qn_need_int(s, &c->vocab_size, "vocab_size", NULL, 1, QN_MAX_DIM);
    if (s->status)
        return s->status;
    read_ropes(s, c);
    read_layer_types(s, c);
    read_flags(s, c);
    read_id(s, "bos_token_id", &c->bos_id);
    read_id(s, "pad_token_id", &c->pad_id);
    read_end_ids(s, c);
    read_quantization(s, c);
    return qn_config_finish(c, s);
}

qn_status qn_config_from_json(qn_config *out, qn_str text, const char *path)
{
    qn_json_doc *doc;
    qn_status status = qn_json_parse(&doc, text, QN_JSON_ALLOW_BOM);
    if (status)
        return qn_fail_where(status, "%s", path);
    qn_source s = {.path = path, .root = qn_json_root(doc)};
    s.text = qn_json_get(s.root, "text_config");
    qn_config config = {0};
    status = read_all(&s, &config);
    if (status)
        qn_config_clear(&config);
    else
        *out = config;
    qn_json_doc_free(doc);
    return status;
}
