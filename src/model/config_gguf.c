/* config_gguf.c: the metadata of a GGUF file into a qn_config (runtime
 * specification 3.1).  Keys stand below the name of the architecture. */
#include "base/alloc.h"
#include "config_read.h"
#include "rope.h"

typedef struct reader {
    const char *path;
    const qn_gguf *gguf;
    char arch[64];
    char key[128]; /* the last one asked for */
} reader;

static const char *key_of(reader *r, const char *tail)
{
    snprintf(r->key, sizeof r->key, "%s.%s", r->arch, tail);
    return r->key;
}

static qn_status at(const reader *r, qn_status status)
{
    if (!status)
        return QN_OK;
    return qn_fail_where(status, "%s: %s", r->path, r->key);
}

static qn_status get_int(reader *r, const char *tail, bool needed, int64_t high,
                         int64_t *out)
{
    int64_t value;
    qn_status status = qn_gguf_get_int(r->gguf, key_of(r, tail), &value);
    if (status == QN_E_NOTFOUND)
        return needed ? at(r, qn_fail(QN_E_FORMAT, "key %s is missing", r->key))
                      : QN_OK;
    if (status)
        return at(r, status);
    if (value < 1 || value > high)
        return at(r, qn_fail(QN_E_FORMAT, "%s: expected 1..%lld, found %lld",
                             r->key, (long long)high, (long long)value));
    *out = value;
    return QN_OK;
}

static qn_status get_dim(reader *r, const char *tail, bool needed, int high,
                         int *out)
{
    int64_t value = *out;
    qn_status status = get_int(r, tail, needed, high, &value);
    *out = (int)value;
    return status;
}

static qn_status get_float(reader *r, const char *tail, double *out)
{
    double value;
    qn_status status = qn_gguf_get_float(r->gguf, key_of(r, tail), &value);
    if (status == QN_E_NOTFOUND)
        return QN_OK;
    if (status)
        return at(r, status);
    *out = value;
    return QN_OK;
}

static bool is_array(reader *r, const char *tail, const qn_gguf_value **out)
{
    *out = qn_gguf_get(r->gguf, key_of(r, tail));
    return *out && (*out)->type == QN_GGUF_ARRAY;
}

/* Item i of an array of counts that has one entry for each layer. */
static qn_status array_dim(reader *r, const qn_gguf_value *array, int i,
                           int layers, int *out)
{
    qn_gguf_value_type item = array->as.array.item;
    if (item == QN_GGUF_STRING || item == QN_GGUF_F32 || item == QN_GGUF_F64 ||
        array->as.array.count != (size_t)layers)
        return at(r, qn_fail(QN_E_FORMAT,
                             "%s: expected %d integers, found %zu items",
                             r->key, layers, array->as.array.count));
    int64_t value = qn_gguf_array_int(array, (size_t)i);
    *out = (int)value;
    return at(r, qn_config_bound(value, 1, QN_MAX_DIM, r->key));
}

static qn_status read_intermediate(reader *r, qn_config *c)
{
    const qn_gguf_value *array;
    if (!is_array(r, "feed_forward_length", &array)) {
        qn_status status = get_dim(r, "feed_forward_length", true, QN_MAX_DIM,
                                   &c->intermediate);
        return status ? status : qn_config_make_layers(c);
    }
    qn_status status = qn_config_make_layers(c);
    for (int i = 0; i < c->layers && !status; i++) {
        int value = 0;
        status = array_dim(r, array, i, c->layers, &value);
        c->layer[i].intermediate = value;
        c->intermediate = value > c->intermediate ? value : c->intermediate;
    }
    return status;
}

/* A number of heads: one, or one for each layer, which must then agree. */
static qn_status read_heads(reader *r, const char *tail, bool needed,
                            const qn_config *c, int *out)
{
    const qn_gguf_value *array;
    if (!is_array(r, tail, &array))
        return get_dim(r, tail, needed, QN_MAX_DIM, out);
    qn_status status = QN_OK;
    for (int i = 0; i < c->layers && !status; i++) {
        int value = 0;
        status = array_dim(r, array, i, c->layers, &value);
        if (!status && i && value != *out)
            status = at(r, qn_fail(QN_E_UNSUPPORTED,
                                   "%s: layers with different numbers of heads "
                                   "(%d and %d) are not supported",
                                   r->key, *out, value));
        *out = value;
    }
    return status;
}

static qn_status read_head_dim(reader *r, qn_config *c)
{
    int key = 0, value = 0;
    qn_status status =
        get_dim(r, "attention.key_length", false, QN_MAX_DIM, &key);
    if (!status)
        status =
            get_dim(r, "attention.value_length", false, QN_MAX_DIM, &value);
    if (status)
        return status;
    if (!key && c->hidden % c->heads)
        return at(r, qn_fail(QN_E_FORMAT,
                             "embedding length %d does not divide by %d heads",
                             c->hidden, c->heads));
    c->head_dim = key ? key : c->hidden / c->heads;
    if (value && value != c->head_dim)
        return at(r, qn_fail(QN_E_UNSUPPORTED,
                             "keys of %d and values of %d are not supported",
                             c->head_dim, value));
    return QN_OK;
}

static qn_status read_yarn(reader *r, qn_config *c)
{
    qn_rope_config *rope = &c->rope;
    double attention = 1;
    rope->beta_fast = 32;
    rope->beta_slow = 1;
    qn_status status =
        get_float(r, "rope.scaling.yarn_beta_fast", &rope->beta_fast);
    if (!status)
        status = get_float(r, "rope.scaling.yarn_beta_slow", &rope->beta_slow);
    if (!status)
        status = get_float(r, "rope.scaling.attn_factor", &attention);
    /* The file's factor stands on top of the usual one. */
    rope->mscale = 1;
    rope->attention_factor = 0;
    if (attention != 1)
        rope->attention_factor =
            attention * qn_rope_yarn_mscale(rope->factor, 1);
    if (!rope->original_positions)
        rope->original_positions = (double)c->max_positions;
    return status;
}

static qn_status read_rope(reader *r, qn_config *c)
{
    qn_rope_config *rope = &c->rope;
    *rope = (qn_rope_config){.base = 10000, .dims = c->head_dim};
    qn_status status = get_float(r, "rope.freq_base", &rope->base);
    if (!status)
        status =
            get_dim(r, "rope.dimension_count", false, QN_MAX_DIM, &rope->dims);
    qn_str type = QN_STR("none");
    if (!status) {
        status =
            qn_gguf_get_str(r->gguf, key_of(r, "rope.scaling.type"), &type);
        status = status == QN_E_NOTFOUND ? QN_OK : at(r, status);
    }
    if (status)
        return status;
    if (qn_str_is(type, "linear"))
        rope->type = QN_ROPE_LINEAR;
    else if (qn_str_is(type, "yarn"))
        rope->type = QN_ROPE_YARN;
    else if (!qn_str_is(type, "none"))
        return at(r, qn_fail(QN_E_UNSUPPORTED,
                             "rope scaling '%.*s' is not supported (none, "
                             "linear, yarn are)",
                             (int)type.size, type.data));
    if (rope->type != QN_ROPE_DEFAULT)
        status = get_float(r, "rope.scaling.factor", &rope->factor);
    if (!status)
        status = get_float(r, "rope.scaling.original_context_length",
                           &rope->original_positions);
    if (!status && rope->type == QN_ROPE_YARN)
        status = read_yarn(r, c);
    return status;
}

static qn_status read_vocabulary(reader *r, qn_config *c)
{
    snprintf(r->key, sizeof r->key, "tokenizer.ggml.tokens");
    const qn_gguf_value *tokens = qn_gguf_get(r->gguf, r->key);
    if (!tokens || tokens->type != QN_GGUF_ARRAY ||
        tokens->as.array.item != QN_GGUF_STRING)
        return at(r, qn_fail(QN_E_FORMAT, "%s: expected an array of strings%s",
                             r->key, tokens ? "" : ", found nothing"));
    if (tokens->as.array.count < 1 || tokens->as.array.count > QN_MAX_DIM)
        return at(r, qn_fail(QN_E_FORMAT, "%s: expected 1..%d, found %zu",
                             r->key, QN_MAX_DIM, tokens->as.array.count));
    c->vocab_size = (int)tokens->as.array.count;
    return QN_OK;
}

static qn_status read_id(reader *r, const char *key, int64_t *out)
{
    snprintf(r->key, sizeof r->key, "%s", key);
    *out = -1;
    qn_status status = qn_gguf_get_int(r->gguf, key, out);
    return status == QN_E_NOTFOUND ? QN_OK : at(r, status);
}

static qn_status read_texts(reader *r, qn_config *c)
{
    qn_str text = {NULL, 0};
    snprintf(r->key, sizeof r->key, "general.architecture");
    qn_status status = qn_gguf_get_str(r->gguf, r->key, &text);
    if (status == QN_E_NOTFOUND)
        return at(r, qn_fail(QN_E_FORMAT, "key %s is missing", r->key));
    if (status)
        return at(r, status);
    if (text.size >= sizeof r->arch)
        return at(r, qn_fail(QN_E_UNSUPPORTED, "architecture name of %zu bytes",
                             text.size));
    memcpy(r->arch, text.data, text.size);
    r->arch[text.size] = '\0';
    c->family = qn_strndup(text.data, text.size);

    text = QN_STR("");
    status = qn_gguf_get_str(r->gguf, "general.name", &text);
    if (status && status != QN_E_NOTFOUND)
        return qn_fail_where(status, "%s: general.name", r->path);
    c->name = qn_strndup(text.data, text.size);
    c->activation = qn_strdup("silu");
    return c->family && c->name && c->activation ? QN_OK : QN_E_NOMEM;
}

static qn_status read_all(reader *r, qn_config *c)
{
    c->gguf = true;
    c->tied = -1;
    qn_status status = read_texts(r, c);
    if (!status)
        status = get_dim(r, "embedding_length", true, QN_MAX_DIM, &c->hidden);
    if (!status)
        status = get_dim(r, "block_count", true, QN_MAX_LAYERS, &c->layers);
    if (!status)
        status =
            get_int(r, "context_length", true, QN_MAX_DIM, &c->max_positions);
    if (!status)
        status = read_intermediate(r, c);
    if (!status)
        status = read_heads(r, "attention.head_count", true, c, &c->heads);
    c->kv_heads = c->heads;
    if (!status)
        status =
            read_heads(r, "attention.head_count_kv", false, c, &c->kv_heads);
    if (!status)
        status = read_head_dim(r, c);
    if (!status)
        status = get_dim(r, "attention.sliding_window", false, QN_MAX_DIM,
                         &c->sliding_window);
    for (int i = 0; i < c->layers && !status; i++)
        c->layer[i].window = c->sliding_window;
    c->rms_norm_eps = -1;
    if (!status)
        status =
            get_float(r, "attention.layer_norm_rms_epsilon", &c->rms_norm_eps);
    if (!status && c->rms_norm_eps < 0)
        status = at(r, qn_fail(QN_E_FORMAT, "key %s is missing", r->key));
    if (!status)
        status = read_rope(r, c);
    if (!status)
        status = read_vocabulary(r, c);
    if (!status)
        status = read_id(r, "tokenizer.ggml.bos_token_id", &c->bos_id);
    if (!status)
        status = read_id(r, "tokenizer.ggml.padding_token_id", &c->pad_id);
    return status ? status : qn_config_check(c, r->path);
}

qn_status qn_config_from_gguf(qn_config *out, const qn_gguf *gguf,
                              const char *path)
{
    reader r = {.path = path, .gguf = gguf};
    qn_config config = {0};
    qn_status status = read_all(&r, &config);
    if (status)
        qn_config_clear(&config);
    else
        *out = config;
    return status;
}
