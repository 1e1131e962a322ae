/* predict.c: see predict.h.
 *
 * Weights.  A matrix in floats becomes activations' floats, a vector float32.
 * Packed ones stay as many bytes as they are in the file, whichever way they
 * lie; panels have whole sixteens of rows.
 *
 * Workspace.  A step keeps the sum that runs through the layers and, of one
 * layer, what is widest of its phases: making queries, keys and values,
 * attending, and the products of the MLP, each with what the library works in
 * (quern_kv_workspace and its like).  What a family has beside that it says
 * itself (qn_family.widths). */
#include "predict.h"

#include "family.h"
#include "pack.h"

#include <quern/ext.h>

#include <stdio.h>

enum { PANEL_ROWS = 16 };

static bool ends_with(const char *text, const char *suffix)
{
    size_t size = strlen(text), tail = strlen(suffix);
    return size >= tail && !strcmp(text + size - tail, suffix);
}

static uint64_t elements(const qn_weight *w)
{
    uint64_t n = 1;
    for (int i = 0; i < w->ndim; i++)
        n *= (uint64_t)w->shape[i];
    return n;
}

static bool is_float(const qn_weights *weights, const qn_weight *w)
{
    if (qn_weights_gguf(weights))
        return w->type == QN_GGUF_F32_T || w->type == QN_GGUF_F16_T ||
               w->type == QN_GGUF_BF16_T;
    return w->type == QN_ST_F32 || w->type == QN_ST_F16 ||
           w->type == QN_ST_BF16 || w->type == QN_ST_F64;
}

/* Scales and biases of a packed module keep their type. */
static bool is_beside(const qn_weights *weights, const qn_weight *w)
{
    char name[512];
    size_t n = strlen(w->name);
    if (!ends_with(w->name, ".scales") && !ends_with(w->name, ".biases"))
        return false;
    snprintf(name, sizeof name, "%.*s.scales", (int)(n - 7), w->name);
    return qn_weights_find(weights, name) != NULL;
}

/* Panels have whole sixteens of rows of a matrix, or of each expert's. */
static uint64_t rounded(uint64_t bytes, const qn_weight *w)
{
    uint64_t rows = w->ndim > 2   ? (uint64_t)w->shape[1]
                    : w->ndim > 1 ? (uint64_t)w->shape[0]
                                  : 0;
    if (!rows)
        return bytes;
    return bytes / rows * ((rows + PANEL_ROWS - 1) / PANEL_ROWS * PANEL_ROWS);
}

/* Blocks that become words, scales and biases. */
static uint64_t unpacked_blocks(const qn_weight *w)
{
    qn_pack_form form;
    if (!qn_pack_form_of(&form, w->type))
        return w->data.size;
    uint64_t n = elements(w);
    uint64_t factor = form.mxfp4 ? 1 : form.wide ? 8 : 4;
    return n * (uint64_t)form.bits / 8 + n / (uint64_t)form.group * factor;
}

/* Held as floats. */
static bool is_plain(const qn_weights *weights, const qn_config *c,
                     const qn_weight *w)
{
    return (is_float(weights, w) || c->dense_as) && !is_beside(weights, w);
}

static uint64_t held(const qn_weights *weights, const qn_config *c,
                     const qn_weight *w, mlx_dtype dtype, bool panels)
{
    if (is_plain(weights, c, w))
        return elements(w) * (w->ndim < 2 ? 4 : mlx_dtype_size(dtype));
    if (panels)
        return rounded(w->data.size, w);
    if (qn_weights_gguf(weights))
        return unpacked_blocks(w);
    return w->data.size;
}

static bool begins_with(const char *text, const char *prefix)
{
    return !strncmp(text, prefix, strlen(prefix));
}

/* Whether rows are picked from it, and nothing is multiplied. */
static bool is_table(const char *name)
{
    return begins_with(name, "model.embed_tokens") ||
           strstr(name, "embeddings.") || strstr(name, ".conv1d.") ||
           begins_with(name, "position_embd.") ||
           begins_with(name, "token_types.");
}

/* What products there are with w. */
static void note_form(qn_held *out, const qn_weights *weights,
                      const qn_config *c, const qn_weight *w, bool tied)
{
    bool plain = is_plain(weights, c, w) && w->ndim > 1;
    bool words = begins_with(w->name, "model.embed_tokens.");
    bool embeds = is_table(w->name);
    if (words ? tied : begins_with(w->name, "lm_head."))
        out->dense_head |= plain;
    else if (!is_plain(weights, c, w))
        out->packed = true;
    else if (plain && (strstr(w->name, "per_layer_") ||
                       strstr(w->name, ".in_proj_ba.") ||
                       strstr(w->name, "self_attn.o_proj.") ||
                       strstr(w->name, "shared_expert_gate.")))
        out->dense_beside = true;
    else if (plain && !embeds && !ends_with(w->name, "bias") &&
             !strstr(w->name, "mlp.gate.") && !strstr(w->name, "router"))
        out->dense = true;
}

void qn_predict_weights(qn_held *out, const qn_weights *weights,
                        const qn_config *c, mlx_dtype dtype, bool panels)
{
    bool own_head = qn_weights_find(weights, "lm_head.weight") != NULL;
    bool tied = c->tied == 1 || !own_head;
    *out = (qn_held){.panels = panels};
    for (size_t i = 0; i < qn_weights_count(weights); i++) {
        const qn_weight *w = qn_weights_at(weights, i);
        if (w->used || (tied && begins_with(w->name, "lm_head.")))
            continue;
        uint64_t bytes = held(weights, c, w, dtype, panels), read = bytes;
        /* One row of an embedding that does nothing else. */
        if (!tied && begins_with(w->name, "model.embed_tokens."))
            read = 0;
        if (c->moe.count && (w->ndim == 3 || strstr(w->name, ".experts.")))
            read = bytes * (uint64_t)c->moe.used / (uint64_t)c->moe.count;
        out->weights += bytes;
        out->read += read;
        note_form(out, weights, c, w, tied);
    }
}

/* ---- a step ---- */

/* What stays the same for all phases of a step. */
typedef struct phases {
    const qn_config *config;
    const qn_step_size *step;
    uint64_t most; /* bytes of the widest so far */
    uint64_t kept; /* bytes of the sums that run through all layers */
} phases;

/* A phase with `floats` and `activations` for each token beside the sums, and
 * `room` bytes of working memory. */
static void add_phase(phases *p, uint64_t floats, uint64_t activations,
                      uint64_t room)
{
    uint64_t tokens = (uint64_t)p->step->tokens;
    uint64_t bytes = p->kept + room + tokens * 4 * floats +
                     tokens * mlx_dtype_size(p->step->dtype) * activations;
    p->most = bytes > p->most ? bytes : p->most;
}

static bool has_panels(const phases *p)
{
    return p->step->panels && p->step->packed;
}

/* Working memory of a product of so many rows, of the kind that takes most of
 * those that the model has. */
static uint64_t product_room(const phases *p, int64_t rows, int64_t cols,
                             int64_t outs)
{
    const qn_step_size *step = p->step;
    uint64_t dense = 0, packed = 0;
    if (step->dense)
        dense = quern_matmul_workspace(step->dtype, (int)rows, (int)cols,
                                       (int)outs);
    if (has_panels(p)) {
        quern_panel_form form = {.group_size = 32,
                                 .bits = 4,
                                 .scale_dtype = MLX_FLOAT16,
                                 .cols = (int)cols};
        packed = quern_panel_workspace(&form, (int)rows);
    } else if (step->packed) {
        /* Expanded row by row, to floats. */
        mlx_dtype as = step->dtype == MLX_BFLOAT16 ? MLX_FLOAT16 : step->dtype;
        packed = quern_matmul_workspace(as, (int)rows, (int)cols, (int)outs);
    }
    return dense > packed ? dense : packed;
}

/* Of the product that gives logits. */
static uint64_t head_room(const phases *p)
{
    qn_step_size step = *p->step;
    phases head = {.config = p->config, .step = &step};
    step.dense = p->step->dense_head;
    step.packed = !step.dense;
    return product_room(&head, step.rows, p->config->hidden,
                        p->config->vocab_size);
}

/* Keys that a layer reads at most: whole blocks of those in its window. */
static int64_t keys_of(const phases *p, const qn_layer_config *l)
{
    enum { BLOCK = 128 };
    int64_t seen = p->step->tokens + l->window + BLOCK;
    return l->window && seen < p->step->context ? seen : p->step->context;
}

static uint64_t attention_room(const phases *p, const qn_layer_config *l,
                               bool encoder)
{
    quern_kv_form form = {
        .kv_heads = l->kv_heads, .head_dim = l->head_dim, .dtype = MLX_FLOAT16};
    if (encoder) {
        form.kv_heads = p->config->heads;
        return quern_kv_workspace(&form, p->step->dtype, p->config->heads, 0,
                                  (int)p->step->longest, (int)p->step->longest);
    }
    return quern_kv_workspace(&form, p->step->dtype, p->config->heads,
                              l->head_dim, (int)p->step->tokens,
                              (int)keys_of(p, l));
}

/* Shorter steps, too: where rows are few, keys are shared out between threads,
 * which takes room for what each finds. */
static void add_attending(phases *p, const qn_layer_config *l,
                          const qn_widths *w, bool encoder)
{
    qn_step_size step = *p->step;
    if (l->kind != QN_LAYER_ATTENTION || encoder) {
        add_phase(p, 0, (uint64_t)w->attending,
                  encoder ? attention_room(p, l, true) : 0);
        return;
    }
    for (; step.tokens; step.tokens /= 2) {
        phases one = {.config = p->config, .step = &step};
        one.kept = (uint64_t)step.tokens * 4 * (uint64_t)w->kept;
        add_phase(&one, 0, (uint64_t)w->attending,
                  attention_room(&one, l, false));
        p->most = one.most > p->most ? one.most : p->most;
    }
}

static void add_mlp(phases *p, const qn_layer_config *l, const qn_widths *w)
{
    int64_t tokens = p->step->tokens, hidden = p->config->hidden;
    /* A gate makes one of both results when there are panels. */
    uint64_t inside = (uint64_t)l->intermediate;
    uint64_t before = has_panels(p) ? 0 : (uint64_t)hidden;
    add_phase(p, 0, before + (has_panels(p) ? 1 : 2) * inside,
              product_room(p, tokens, hidden, l->intermediate));
    add_phase(p, w->result, inside,
              product_room(p, tokens, l->intermediate, hidden));
}

/* Working memory of products of `pairs` rows with the matrices of experts that
 * are not laid out: the rows of each are brought together. */
static uint64_t experts_room(const phases *p, int64_t pairs, int64_t cols,
                             int64_t outs)
{
    const qn_step_size *step = p->step;
    if (has_panels(p))
        return product_room(p, pairs, cols, outs);
    /* Packed ones are taken so many floats at a time. */
    enum { HELD = 8 << 20 };
    int64_t most = HELD / (cols + outs) + 1, share;
    if (step->packed && most > pairs)
        most = pairs;
    if (step->packed)
        return (uint64_t)(most * (cols + outs)) * 4 +
               quern_matmul_workspace(MLX_FLOAT32, (int)most, (int)cols,
                                      (int)outs);
    /* Others one expert after the other, one of which may be popular. */
    share = 2 * pairs / p->config->moe.count;
    share = share < pairs ? share : pairs;
    return (uint64_t)(share * (cols + outs)) * mlx_dtype_size(step->dtype) +
           product_room(p, share, cols, outs);
}

static void add_experts(phases *p)
{
    const qn_moe_config *m = &p->config->moe;
    int64_t pairs = p->step->tokens * m->used, hidden = p->config->hidden;
    uint64_t used = (uint64_t)m->used,
             inside = used * (uint64_t)m->intermediate;
    uint64_t wide = (uint64_t)hidden;
    /* Routers take the norm in float32; a shared expert needs it to the end. */
    bool cast = p->step->dtype != MLX_FLOAT32;
    uint64_t normed = m->shared_intermediate ? wide : 0;
    add_phase(p, cast ? normed : wide, (cast ? wide : 0) + 2 * inside,
              experts_room(p, pairs, hidden, m->intermediate));
    /* The results of all experts lie side by side before they are summed. */
    add_phase(p, normed, inside + used * wide,
              experts_room(p, pairs, m->intermediate, hidden));
}

static void add_layer(phases *p, const qn_family *family, int i)
{
    const qn_config *c = p->config;
    const qn_layer_config *l = &c->layer[i];
    int64_t tokens = p->step->tokens, hidden = c->hidden;
    int64_t q = (int64_t)c->heads * l->head_dim;
    int64_t kv = 2 * (int64_t)l->kv_heads * l->head_dim;
    qn_widths w = {.kept = hidden,
                   .normed = hidden,
                   .projected = q + kv,
                   .widest = q,
                   .attending = 2 * q + kv,
                   .result = has_panels(p) ? 0 : hidden};
    if (family && family->widths)
        family->widths(c, i, &w);
    p->kept = (uint64_t)tokens * 4 * (uint64_t)w.kept;
    add_phase(p, 0, (uint64_t)((has_panels(p) ? 0 : w.normed) + w.projected),
              product_room(p, tokens, hidden, w.widest));
    add_attending(p, l, &w, family && family->encoder);
    add_phase(p, (uint64_t)w.result, (uint64_t)q,
              product_room(p, tokens, q, hidden));
    if (l->intermediate)
        add_mlp(p, l, &w);
    if (l->sparse)
        add_experts(p);
}

uint64_t qn_predict_workspace(const qn_config *c, const qn_step_size *step)
{
    const qn_family *family = qn_family_find(qn_str_of(c->family));
    phases p = {.config = c, .step = step};
    for (int i = 0; i < c->layers; i++)
        add_layer(&p, family, i);
    /* Inputs of layers come from products of their own. */
    if (step->dense_beside)
        add_phase(&p, 0, 2 * (uint64_t)c->hidden,
                  quern_matmul_workspace(step->dtype, (int)step->tokens,
                                         c->hidden, c->hidden));
    /* The last rows alone, once the others are gone. */
    p.kept = 4 * (uint64_t)step->rows * (uint64_t)(c->hidden + c->vocab_size);
    if (!family || !family->encoder)
        add_phase(&p, 0, 0, head_room(&p));
    return p.most;
}
