/* predict.c: see predict.h.
 *
 * Weights.  A matrix in floats becomes activations' floats, a vector float32.
 * Packed ones stay as many bytes as they are in the file, whichever way they
 * lie; panels have whole sixteens of rows.
 *
 * Workspace.  A step keeps the sum that runs through the layers and, of one
 * layer, what is widest: either the queries, keys, values and their result with
 * the room in which each thread attends, or the inside of the MLP. */
#include "predict.h"

#include "pack.h"

#include <stdio.h>

/* What a thread attends in: a block of queries with its scores, and a chunk of
 * keys and values (kernels/attention). */
enum { PANEL_ROWS = 16, ROOM = 248 << 10, ROOM_PER_ELEMENT = 3072 };

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

static uint64_t rounded(uint64_t bytes, const qn_weight *w)
{
    uint64_t rows = w->ndim > 1 ? (uint64_t)w->shape[w->ndim - 2] : 0;
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

static uint64_t held(const qn_weights *weights, const qn_weight *w,
                     mlx_dtype dtype, bool panels)
{
    if (is_beside(weights, w))
        return panels ? rounded(w->data.size, w) : w->data.size;
    if (is_float(weights, w))
        return elements(w) * (w->ndim < 2 ? 4 : mlx_dtype_size(dtype));
    if (qn_weights_gguf(weights))
        return panels ? rounded(w->data.size, w) : unpacked_blocks(w);
    return panels ? rounded(w->data.size, w) : w->data.size;
}

static bool begins_with(const char *text, const char *prefix)
{
    return !strncmp(text, prefix, strlen(prefix));
}

void qn_predict_weights(qn_held *out, const qn_weights *weights,
                        const qn_config *c, mlx_dtype dtype, bool panels)
{
    bool own_head = qn_weights_find(weights, "lm_head.weight") != NULL;
    bool tied = c->tied == 1 || !own_head;
    *out = (qn_held){0, 0};
    for (size_t i = 0; i < qn_weights_count(weights); i++) {
        const qn_weight *w = qn_weights_at(weights, i);
        if (w->used || (tied && begins_with(w->name, "lm_head.")))
            continue;
        uint64_t bytes = held(weights, w, dtype, panels), read = bytes;
        /* One row of an embedding that does nothing else. */
        if (!tied && begins_with(w->name, "model.embed_tokens."))
            read = 0;
        if (c->moe.count && (w->ndim == 3 || strstr(w->name, ".experts.")))
            read = bytes * (uint64_t)c->moe.used / (uint64_t)c->moe.count;
        out->weights += bytes;
        out->read += read;
    }
}

uint64_t qn_predict_workspace(const qn_config *c, int64_t tokens, int rows,
                              int threads)
{
    uint64_t hidden = (uint64_t)c->hidden, attending = 0, widest = 0;
    uint64_t longest = 0;
    for (int i = 0; i < c->layers; i++) {
        const qn_layer_config *l = &c->layer[i];
        uint64_t q = (uint64_t)c->heads * (uint64_t)l->head_dim;
        uint64_t kv = 2 * (uint64_t)l->kv_heads * (uint64_t)l->head_dim;
        /* The queries lie there once more, turned. */
        uint64_t attention = hidden + 3 * q + kv;
        if ((uint64_t)l->head_dim > longest)
            longest = (uint64_t)l->head_dim;
        uint64_t inside = (uint64_t)l->intermediate;
        if (c->moe.count)
            inside += (uint64_t)c->moe.used * (uint64_t)c->moe.intermediate +
                      (uint64_t)c->moe.shared_intermediate;
        uint64_t mlp = 2 * hidden + inside;
        attending = attention > attending ? attention : attending;
        widest = mlp > widest ? mlp : widest;
    }
    uint64_t room = (uint64_t)threads * (ROOM + ROOM_PER_ELEMENT * longest);
    attending = 4 * (uint64_t)tokens * attending + room;
    widest *= 4 * (uint64_t)tokens;
    return (attending > widest ? attending : widest) +
           4 * (uint64_t)rows * (uint64_t)c->vocab_size;
}
