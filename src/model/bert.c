/* bert.c: encoders: BERT (MiniLM, BGE, E5) and XLM-RoBERTa.
 *
 * Each token sees the whole sequence.  x = norm(word + position + type); per
 * layer x = norm(x + attention(x)), x = norm(x + down(gelu(up(x)))).  Positions
 * are learned; XLM-RoBERTa counts them from the one behind its padding token.
 * The types of tokens tell pairs of texts apart: ours are all the first. */
#include "family.h"

#include "base/alloc.h"
#include "kv/engine.h"

#include <math.h>
#include <stdio.h>

typedef struct bert_config {
    int types;
    int first_position;
} bert_config;

typedef struct norm_weights {
    mlx_array weight, bias;
} norm_weights;

typedef struct layer_weights {
    qn_matrix q, k, v, o, up, down;
    nn_group qkv;
    norm_weights attention, mlp;
} layer_weights;

typedef struct bert {
    int layers, heads, head_dim, first_position;
    double eps;
    mlx_dtype dtype;
    qn_matrix words, positions, types;
    norm_weights norm;
    layer_weights *layer;
} bert;

/* ---- configuration ---- */

static void bert_prepare(qn_config *c)
{
    c->norm_eps = 1e-12;
    snprintf(c->activation, sizeof c->activation, "gelu");
}

static void bert_configure(qn_config *c, qn_source *s)
{
    bert_config *b = c->extra = qn_calloc(1, sizeof *b);
    if (!b) {
        s->status = QN_E_NOMEM;
        return;
    }
    char kind[32] = "absolute";
    bool causal = false;
    b->types = c->gguf ? 0 : 2;
    qn_read_int(s, &b->types, "type_vocab_size",
                "tokenizer.ggml.token_type_count", 1, QN_MAX_DIM);
    qn_read_text(s, kind, sizeof kind, "position_embedding_type", NULL);
    qn_read_bool(s, &causal, "is_decoder", "attention.causal");
    if (!s->status && strcmp(kind, "absolute") != 0)
        qn_source_fail(s,
                       qn_fail(QN_E_UNSUPPORTED,
                               "expected absolute positions, found %s", kind),
                       "position_embedding_type", NULL);
    if (!s->status && causal)
        qn_source_fail(s,
                       qn_fail(QN_E_UNSUPPORTED,
                               "a decoder of this family is not supported"),
                       "is_decoder", "attention.causal");
    for (int i = 0; i < c->layers; i++)
        c->layer[i].rope = QN_LAYER_NO_ROPE;
    if (strcmp(c->family, "xlm-roberta") != 0)
        return;
    b->first_position = (int)(c->pad_id >= 0 ? c->pad_id : 1) + 1;
    c->max_positions -= b->first_position;
    if (!s->status && c->max_positions < 1)
        qn_source_fail(s,
                       qn_fail(QN_E_FORMAT,
                               "no positions are left behind the %d of the "
                               "padding token",
                               b->first_position),
                       "max_position_embeddings", NULL);
}

static qn_status bert_check(const qn_config *c)
{
    if (strcmp(c->activation, "gelu") != 0)
        return qn_fail(QN_E_UNSUPPORTED, "hidden_act: expected gelu, found %s",
                       c->activation);
    return QN_OK;
}

/* ---- weights ---- */

static void drop_norm(norm_weights *n)
{
    if (n->weight.ctx)
        mlx_array_free(n->weight);
    if (n->bias.ctx)
        mlx_array_free(n->bias);
}

static void bert_free(void *state)
{
    bert *m = state;
    if (!m)
        return;
    for (int i = 0; m->layer && i < m->layers; i++) {
        layer_weights *w = &m->layer[i];
        nn_group_clear(&w->qkv);
        qn_matrix *all[] = {&w->q, &w->k, &w->v, &w->o, &w->up, &w->down};
        for (size_t n = 0; n < sizeof all / sizeof *all; n++)
            qn_matrix_clear(all[n]);
        drop_norm(&w->attention);
        drop_norm(&w->mlp);
    }
    qn_matrix_clear(&m->words);
    qn_matrix_clear(&m->positions);
    qn_matrix_clear(&m->types);
    drop_norm(&m->norm);
    qn_free(m->layer);
    qn_free(m);
}

/* Names: in the authors' files, perhaps below the name of the body of a larger
 * model, and in GGUF files (some of them renamed by weights.c). */
typedef struct names {
    char body[16]; /* "", "bert.", "roberta." */
    bool gguf;
} names;

static names find_names(const qn_loader *l)
{
    static const char *const bodies[] = {"bert.", "roberta."};
    names n = {.gguf = l->config->gguf};
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
        char name[80];
        snprintf(name, sizeof name, "%sembeddings.word_embeddings.weight",
                 bodies[i]);
        if (!n.gguf && qn_loader_has(l, name))
            snprintf(n.body, sizeof n.body, "%s", bodies[i]);
    }
    return n;
}

/* The name of a part of the embedding. */
static void name_end(char out[80], const names *n, const char *ours,
                     const char *gguf)
{
    snprintf(out, 80, "%s%s%s", n->body, n->gguf ? "" : "embeddings.",
             n->gguf ? gguf : ours);
}

static void name_layer(char out[80], const names *n, int i, const char *ours,
                       const char *gguf)
{
    if (n->gguf)
        snprintf(out, 80, gguf, i);
    else
        snprintf(out, 80, "%sencoder.layer.%d.%s", n->body, i, ours);
}

static qn_status load_norm(qn_loader *l, norm_weights *out, const char *name)
{
    int size = l->config->hidden;
    qn_status status = qn_load_vector(l, &out->weight, size, "%s.weight", name);
    return status ? status
                  : qn_load_vector(l, &out->bias, size, "%s.bias", name);
}

static qn_status load_ends(bert *m, qn_loader *l, const names *n)
{
    const qn_config *c = l->config;
    const bert_config *b = c->extra;
    int positions = (int)c->max_positions + b->first_position;
    const struct {
        qn_matrix *to;
        int rows;
        const char *ours, *gguf;
    } all[] = {
        {&m->words, c->vocab_size, "word_embeddings", "model.embed_tokens"},
        {&m->positions, positions, "position_embeddings", "position_embd"},
        {&m->types, b->types, "token_type_embeddings", "token_types"},
    };
    char name[80];
    qn_status status = QN_OK;
    for (size_t i = 0; i < sizeof all / sizeof *all && !status; i++) {
        qn_matrix_spec spec = {.rows = all[i].rows, .cols = c->hidden};
        name_end(name, n, all[i].ours, all[i].gguf);
        if (all[i].rows)
            status = qn_load_matrix(l, all[i].to, &spec, "%s", name);
    }
    name_end(name, n, "LayerNorm", "token_embd_norm");
    return status ? status : load_norm(l, &m->norm, name);
}

static qn_status load_layer(qn_loader *l, layer_weights *w, const names *n,
                            int i)
{
    const qn_config *c = l->config;
    int h = c->hidden, inner = c->layer[i].intermediate;
    const struct {
        qn_matrix *to;
        int rows, cols;
        const char *ours, *gguf;
    } all[] = {
        {&w->q, h, h, "attention.self.query",
         "model.layers.%d.self_attn.q_proj"},
        {&w->k, h, h, "attention.self.key", "model.layers.%d.self_attn.k_proj"},
        {&w->v, h, h, "attention.self.value",
         "model.layers.%d.self_attn.v_proj"},
        {&w->o, h, h, "attention.output.dense",
         "model.layers.%d.self_attn.o_proj"},
        {&w->up, inner, h, "intermediate.dense", "model.layers.%d.mlp.up_proj"},
        {&w->down, h, inner, "output.dense", "model.layers.%d.mlp.down_proj"},
    };
    char name[80];
    qn_status status = QN_OK;
    for (size_t k = 0; k < sizeof all / sizeof *all && !status; k++) {
        qn_matrix_spec spec = {.rows = all[k].rows,
                               .cols = all[k].cols,
                               .bias = true,
                               .grouped = k < 3};
        name_layer(name, n, i, all[k].ours, all[k].gguf);
        status = qn_load_matrix(l, all[k].to, &spec, "%s", name);
    }
    name_layer(name, n, i, "attention.output.LayerNorm",
               "blk.%d.attn_output_norm");
    if (!status)
        status = load_norm(l, &w->attention, name);
    name_layer(name, n, i, "output.LayerNorm", "blk.%d.layer_output_norm");
    if (!status)
        status = load_norm(l, &w->mlp, name);
    if (status || l->missing_count)
        return status;
    return nn_group_make(l, &w->qkv, (qn_matrix *[]){&w->q, &w->k, &w->v}, 3);
}

/* GGUF files say by the tensor how many types there are. */
static void count_types(const qn_loader *l)
{
    bert_config *b = l->config->extra;
    const qn_weight *w = qn_weights_find(l->weights, "token_types.weight");
    if (l->config->gguf && w && w->ndim == 2 && w->shape[0] <= QN_MAX_DIM)
        b->types = (int)w->shape[0];
}

static qn_status bert_load(void **out, qn_loader *l)
{
    const qn_config *c = l->config;
    bert *m = qn_calloc(1, sizeof *m);
    if (!m)
        return QN_E_NOMEM;
    count_types(l);
    m->layers = c->layers;
    m->heads = c->heads;
    m->head_dim = c->head_dim;
    m->eps = c->norm_eps;
    m->dtype = l->dtype;
    m->first_position = ((const bert_config *)c->extra)->first_position;
    m->layer = qn_calloc((size_t)c->layers, sizeof *m->layer);
    names n = find_names(l);
    qn_status status = m->layer ? load_ends(m, l, &n) : QN_E_NOMEM;
    for (int i = 0; i < c->layers && !status; i++)
        status = load_layer(l, &m->layer[i], &n, i);
    if (status)
        bert_free(m);
    else
        *out = m;
    return status;
}

/* ---- forward ---- */

static mlx_array norm(const bert *m, nn *c, mlx_array x, const norm_weights *w)
{
    return nn_layer_norm(c, x, w->weight, w->bias, m->eps);
}

static mlx_array embed(const bert *m, nn *c, mlx_array ids, nn_rows rows)
{
    mlx_array x = nn_embed(c, &m->words, ids, MLX_FLOAT32);
    mlx_array places = nn_positions(c, rows, m->first_position);
    x = nn_add(c, x, nn_embed(c, &m->positions, places, MLX_FLOAT32));
    if (m->types.rows)
        x = nn_add(
            c, x,
            nn_embed(c, &m->types, nn_number(c, 0, MLX_INT32), MLX_FLOAT32));
    return norm(m, c, x, &m->norm);
}

static mlx_array layer(const bert *m, nn *c, int i, mlx_array x, nn_rows rows)
{
    const layer_weights *w = &m->layer[i];
    mlx_array qkv[3];
    nn_linears(c, qkv, &w->qkv, x, (nn_norm){.dtype = m->dtype});
    mlx_array y = nn_attend_all(c, rows, qkv[0], qkv[1], qkv[2], m->head_dim,
                                1 / sqrt(m->head_dim));
    x = norm(m, c, nn_linear_add(c, &w->o, y, x), &w->attention);
    y = nn_gelu(c, nn_linear(c, &w->up, nn_astype(c, x, m->dtype)));
    return norm(m, c, nn_linear_add(c, &w->down, y, x), &w->mlp);
}

static mlx_array bert_hidden(const void *state, nn *c, mlx_array ids,
                             nn_rows rows)
{
    const bert *m = state;
    mlx_array x = embed(m, c, ids, rows);
    for (int i = 0; i < m->layers; i++)
        x = layer(m, c, i, x, rows);
    return x;
}

static bool bert_tied(const void *state)
{
    (void)state;
    return true;
}

/* Heads of larger models, and numbers that are no weights. */
static const char *const ignored[] = {"pooler.",  "position_ids", "cls.",
                                      "lm_head.", "classifier.",  NULL};

static const char *const modules[] = {
    "self_attn.q_proj",
    "self_attn.k_proj",
    "self_attn.v_proj",
    "self_attn.o_proj",
    "mlp.up_proj",
    "mlp.down_proj",
    NULL,
};

const qn_family qn_family_bert = {
    .prepare = bert_prepare,
    .configure = bert_configure,
    .check = bert_check,
    .encoder = true,
    .load = bert_load,
    .free = bert_free,
    .hidden = bert_hidden,
    .tied = bert_tied,
    .ignored = ignored,
    .modules = modules,
};
