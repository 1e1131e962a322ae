/* config_gguf.c: the metadata of a GGUF file into a qn_config (runtime
 * specification 3.1).  Keys stand below the name of the architecture. */
#include "base/alloc.h"
#include "config_read.h"

#include <stdio.h>

/* ---- rotary positions ---- */

static void read_yarn(qn_source *s, qn_config *c)
{
    qn_rope_config *rope = &c->rope;
    double attention = 1;
    qn_read_real(s, &rope->beta_fast, NULL, "rope.scaling.yarn_beta_fast");
    qn_read_real(s, &rope->beta_slow, NULL, "rope.scaling.yarn_beta_slow");
    qn_read_real(s, &attention, NULL, "rope.scaling.attn_factor");
    /* The file's factor stands on top of the usual one. */
    rope->mscale = 1;
    if (attention != 1)
        rope->attention_factor =
            attention * qn_rope_yarn_mscale(rope->factor, 1);
    if (!rope->original_positions)
        rope->original_positions = (double)c->max_positions;
}

static void read_rope(qn_source *s, qn_config *c)
{
    qn_rope_config *rope = &c->rope;
    char type[32] = "none";
    const char *key = "rope.scaling.type";
    rope->dims = (int)(c->head_dim * rope->partial);
    qn_read_real(s, &rope->base, NULL, "rope.freq_base");
    qn_read_int(s, &rope->dims, NULL, "rope.dimension_count", 1, QN_MAX_DIM);
    rope->turned = rope->dims / 2;
    c->local_rope.dims = rope->dims;
    c->local_rope.turned = rope->turned;
    qn_read_text(s, type, sizeof type, NULL, key);
    qn_read_real(s, &rope->factor, NULL, "rope.scaling.factor");
    qn_read_real(s, &rope->original_positions, NULL,
                 "rope.scaling.original_context_length");
    if (!strcmp(type, "linear")) {
        rope->type = QN_ROPE_LINEAR;
    } else if (!strcmp(type, "yarn")) {
        rope->type = QN_ROPE_YARN;
        read_yarn(s, c);
    } else if (!strcmp(type, "longrope") || !strcmp(type, "none")) {
        /* Whether positions are scaled so shows in tensors (rope.c). */
        qn_read_real(s, &rope->attention_factor, NULL,
                     "rope.scaling.attn_factor");
    } else {
        qn_source_fail(s,
                       qn_fail(QN_E_UNSUPPORTED,
                               "rope scaling '%s' is not supported (none, "
                               "linear, yarn, longrope are)",
                               type),
                       NULL, key);
    }
}

/* ---- keys that stand elsewhere ---- */

static qn_status at(const qn_source *s, qn_status status, const char *key)
{
    return status ? qn_fail_where(status, "%s: %s", s->path, key) : QN_OK;
}

static qn_status read_vocabulary(const qn_source *s, qn_config *c)
{
    const char *key = "tokenizer.ggml.tokens";
    const qn_gguf_value *tokens = qn_gguf_get(s->gguf, key);
    if (!tokens || tokens->type != QN_GGUF_ARRAY ||
        tokens->as.array.item != QN_GGUF_STRING)
        return at(s,
                  qn_fail(QN_E_FORMAT, "%s: expected an array of strings%s",
                          key, tokens ? "" : ", found nothing"),
                  key);
    if (tokens->as.array.count < 1 || tokens->as.array.count > QN_MAX_DIM)
        return at(s,
                  qn_fail(QN_E_FORMAT, "%s: expected 1..%d, found %zu", key,
                          QN_MAX_DIM, tokens->as.array.count),
                  key);
    c->vocab_size = (int)tokens->as.array.count;
    return QN_OK;
}

static qn_status read_id(const qn_source *s, const char *key, int64_t *out)
{
    *out = -1;
    qn_status status = qn_gguf_get_int(s->gguf, key, out);
    return status == QN_E_NOTFOUND ? QN_OK : at(s, status, key);
}

static qn_status read_texts(qn_source *s, qn_config *c)
{
    const char *key = "general.architecture";
    qn_str text = {NULL, 0};
    qn_status status = qn_gguf_get_str(s->gguf, key, &text);
    if (status == QN_E_NOTFOUND)
        return at(s, qn_fail(QN_E_FORMAT, "key %s is missing", key), key);
    if (status)
        return at(s, status, key);
    if (text.size >= sizeof s->arch)
        return at(s,
                  qn_fail(QN_E_UNSUPPORTED, "architecture name of %zu bytes",
                          text.size),
                  key);
    memcpy(s->arch, text.data, text.size);
    s->arch[text.size] = '\0';
    c->family = qn_strndup(text.data, text.size);

    text = QN_STR("");
    status = qn_gguf_get_str(s->gguf, "general.name", &text);
    if (status && status != QN_E_NOTFOUND)
        return at(s, status, "general.name");
    c->name = qn_strndup(text.data, text.size);
    return c->family && c->name ? QN_OK : QN_E_NOMEM;
}

static qn_status read_all(qn_source *s, qn_config *c)
{
    c->gguf = true;
    s->status = read_texts(s, c);
    if (s->status)
        return s->status;
    qn_config_read_sizes(c, s);
    if (s->status)
        return s->status;
    qn_config_set_windows(c, NULL);
    read_rope(s, c);
    if (!s->status)
        s->status = read_vocabulary(s, c);
    if (!s->status)
        s->status = read_id(s, "tokenizer.ggml.bos_token_id", &c->bos_id);
    if (!s->status)
        s->status = read_id(s, "tokenizer.ggml.padding_token_id", &c->pad_id);
    return qn_config_finish(c, s);
}

qn_status qn_config_from_gguf(qn_config *out, const qn_gguf *gguf,
                              const char *path)
{
    qn_source s = {.path = path, .gguf = gguf};
    qn_config config = {0};
    qn_status status = read_all(&s, &config);
    if (status)
        qn_config_clear(&config);
    else
        *out = config;
    return status;
}
