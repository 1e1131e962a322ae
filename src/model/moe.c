/* moe.c: see moe.h. */
#include "moe.h"

#include "base/alloc.h"
#include "kv/engine.h"

#include <stdio.h>

/* An MLP that all tokens have. */
typedef struct shared_expert {
    qn_matrix gate, up, down;
    nn_group in;
    qn_matrix weight; /* [1, hidden]; without rows: none */
} shared_expert;

struct nn_moe {
    int count, used;
    bool normalize, clamped;
    mlx_dtype dtype; /* of activations */
    qn_matrix router, gate, up, down;
    qn_panels in; /* of gate and up, or none */
    bool has_shared;
    shared_expert shared;
};

void nn_moe_free(nn_moe *m)
{
    if (!m)
        return;
    nn_group_clear(&m->shared.in);
    qn_panels_clear(&m->in);
    qn_matrix *all[] = {&m->router,      &m->gate,         &m->up,
                        &m->down,        &m->shared.gate,  &m->shared.up,
                        &m->shared.down, &m->shared.weight};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        qn_matrix_clear(all[i]);
    qn_free(m);
}

/* ---- loading ---- */

/* The arrays of all experts, one below the other. */
static qn_status pile(qn_loader *l, mlx_array *out, const qn_matrix *parts,
                      int count, size_t offset)
{
    const mlx_array *first =
        (const mlx_array *)((const char *)&parts[0] + offset);
    if (!first->ctx)
        return QN_OK;
    mlx_vector_array list = mlx_vector_array_new();
    qn_status status = qn_engine_made(list.ctx);
    for (int i = 0; i < count && !status; i++) {
        const mlx_array *x =
            (const mlx_array *)((const char *)&parts[i] + offset);
        status = x->ctx ? qn_engine(mlx_vector_array_append_value(list, *x))
                        : qn_fail(QN_E_MISMATCH,
                                  "experts that are packed in several ways");
    }
    if (!status)
        status = qn_engine(mlx_concatenate_axis(out, list, 0, l->stream));
    if (list.ctx)
        mlx_vector_array_free(list);
    return status ? status : qn_engine(mlx_array_eval(*out));
}

static qn_status pile_up(qn_loader *l, qn_matrix *out, const qn_matrix *parts,
                         int count)
{
    static const size_t arrays[] = {
        offsetof(qn_matrix, weight), offsetof(qn_matrix, scales),
        offsetof(qn_matrix, biases), offsetof(qn_matrix, bias)};
    qn_status status = QN_OK;
    for (int i = 1; i < count && !status; i++)
        if (parts[i].packed != parts[0].packed ||
            memcmp(&parts[i].quant, &parts[0].quant, sizeof parts->quant) != 0)
            status = qn_fail(QN_E_MISMATCH,
                             "experts that are packed in several ways");
    out->packed = parts[0].packed;
    out->quant = parts[0].quant;
    out->zero = parts[0].zero;
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays && !status; i++)
        status = pile(l, (mlx_array *)((char *)out + arrays[i]), parts, count,
                      arrays[i]);
    return status;
}

static qn_status load_singles(qn_loader *l, qn_matrix *out,
                              const qn_matrix_spec *spec, int count,
                              const char *single)
{
    qn_matrix *parts = qn_calloc((size_t)count, sizeof *parts);
    if (!parts)
        return QN_E_NOMEM;
    qn_matrix_spec one = {.rows = spec->rows / count,
                          .cols = spec->cols,
                          .bias = spec->bias,
                          .grouped = true};
    qn_status status = QN_OK;
    for (int i = 0; i < count && !status; i++) {
        char name[200];
        snprintf(name, sizeof name, single, i);
        status = qn_load_matrix(l, &parts[i], &one, "%s", name);
    }
    out->rows = spec->rows;
    out->cols = spec->cols;
    if (!status && !l->missing_count)
        status = pile_up(l, out, parts, count);
    for (int i = 0; i < count; i++)
        qn_matrix_clear(&parts[i]);
    qn_free(parts);
    return status;
}

/* Whether panels of a matrix of all experts are those of each. */
static bool can_have_panels(int rows, int count)
{
    return rows / count % 16 == 0;
}

qn_status nn_load_experts(qn_loader *l, qn_matrix *out,
                          const qn_matrix_spec *spec, int count,
                          const char *stacked, const char *single)
{
    char name[256];
    snprintf(name, sizeof name, "%s.weight", stacked);
    qn_matrix_spec all = *spec;
    bool panels = can_have_panels(spec->rows, count);
    all.of_rows = spec->rows;
    all.grouped = true;
    all.arrays = !panels;
    qn_status status = single && !l->config->gguf && !qn_loader_has(l, name)
                           ? load_singles(l, out, spec, count, single)
                           : qn_load_matrix(l, out, &all, "%s", stacked);
    if (status || l->missing_count || spec->grouped || !panels)
        return status;
    return qn_lay_out(l, &out->panels, &out, 1);
}

static qn_status load_experts(qn_loader *l, qn_matrix *out, const moe_form *f,
                              const char *name, const char *single, int layer,
                              int rows, int cols)
{
    char stacked[128], each[128];
    int count = l->config->moe.count;
    bool own = f->stacked && !l->config->gguf;
    snprintf(stacked, sizeof stacked, "model.layers.%d.%s.%s.%s", layer,
             f->block, own ? f->stacked : "switch_mlp", name);
    snprintf(each, sizeof each, "model.layers.%d.%s.experts.%%d.%s", layer,
             f->block, single ? single : "");
    qn_matrix_spec spec = {
        .rows = count * rows, .cols = cols, .bias = f->biases, .grouped = true};
    return nn_load_experts(l, out, &spec, count, stacked, single ? each : NULL);
}

static qn_status load_all_experts(nn_moe *m, qn_loader *l, const moe_form *f,
                                  int layer)
{
    int wide = l->config->moe.intermediate, hidden = l->config->hidden;
    qn_status status =
        load_experts(l, &m->gate, f, "gate_proj", f->gate, layer, wide, hidden);
    if (!status)
        status =
            load_experts(l, &m->up, f, "up_proj", f->up, layer, wide, hidden);
    if (!status)
        status = load_experts(l, &m->down, f, "down_proj", f->down, layer,
                              hidden, wide);
    return status;
}

/* Panels of gate and up together, or of each, and of down. */
static qn_status lay_out_experts(nn_moe *m, qn_loader *l)
{
    qn_matrix *all[] = {&m->gate, &m->up, &m->down};
    if (l->missing_count)
        return QN_OK;
    for (int i = 0; i < 3; i++)
        if (!can_have_panels(all[i]->rows, m->count))
            return QN_OK;
    qn_status status = qn_lay_out(l, &m->in, all, 2);
    for (int i = m->in.data.ctx ? 2 : 0; i < 3 && !status; i++)
        status = qn_lay_out(l, &all[i]->panels, &all[i], 1);
    return status;
}

static qn_status load_shared(qn_loader *l, shared_expert *s, const moe_form *f,
                             int layer)
{
    const qn_config *c = l->config;
    int width = c->moe.shared_intermediate;
    const char *name = "model.layers.%d.%s.shared_expert.%s";
    qn_matrix_spec in = {.rows = width, .cols = c->hidden, .grouped = true};
    qn_matrix_spec out = {.rows = c->hidden, .cols = width};
    qn_matrix_spec one = {.rows = 1, .cols = c->hidden, .vector = true};
    qn_status status =
        qn_load_matrix(l, &s->gate, &in, name, layer, f->block, "gate_proj");
    if (!status)
        status =
            qn_load_matrix(l, &s->up, &in, name, layer, f->block, "up_proj");
    if (!status)
        status = qn_load_matrix(l, &s->down, &out, name, layer, f->block,
                                "down_proj");
    if (!status && f->shared_gate)
        status = qn_load_matrix(l, &s->weight, &one,
                                "model.layers.%d.%s.shared_expert_gate", layer,
                                f->block);
    if (status || l->missing_count)
        return status;
    return nn_group_make(l, &s->in, (qn_matrix *[]){&s->gate, &s->up}, 2);
}

qn_status nn_moe_load(nn_moe **out, qn_loader *l, const moe_form *f, int layer)
{
    const qn_config *c = l->config;
    nn_moe *m = qn_calloc(1, sizeof *m);
    if (!m)
        return QN_E_NOMEM;
    m->count = c->moe.count;
    m->used = c->moe.used;
    m->normalize = c->moe.normalize;
    m->dtype = l->dtype;
    m->has_shared = c->moe.shared_intermediate > 0;
    int hidden = c->hidden;
    bool own = f->router && !c->gguf, done = false;
    m->clamped = f->clamped;
    qn_matrix_spec router = {
        .rows = m->count, .cols = hidden, .bias = f->biases, .exact = true};
    qn_status status =
        qn_load_matrix(l, &m->router, &router, "model.layers.%d.%s.%s", layer,
                       f->block, own ? f->router : "gate");
    if (!status && f->load)
        status = f->load(l, layer, &done, &m->gate, &m->up, &m->down);
    if (!status && !done)
        status = load_all_experts(m, l, f, layer);
    if (!status)
        status = lay_out_experts(m, l);
    if (!status && m->has_shared)
        status = load_shared(l, &m->shared, f, layer);
    if (status)
        nn_moe_free(m);
    else
        *out = m;
    return status;
}
/* ---- computing ---- */

static mlx_array argsort(nn *c, mlx_array x)
{
    NN_STEP(c, mlx_argsort_axis(&res, x, -1, c->stream));
}

static mlx_array take_along(nn *c, mlx_array x, mlx_array ids)
{
    NN_STEP(c, mlx_take_along_axis(&res, x, ids, -1, c->stream));
}

static mlx_array take_first(nn *c, mlx_array x, mlx_array ids)
{
    NN_STEP(c, mlx_take_axis(&res, x, ids, 0, c->stream));
}

static mlx_array negative(nn *c, mlx_array x)
{
    NN_STEP(c, mlx_negative(&res, x, c->stream));
}

static mlx_array sum(nn *c, mlx_array x, int axis, bool keep)
{
    NN_STEP(c, mlx_sum_axis(&res, x, axis, keep, c->stream));
}

static mlx_array divide(nn *c, mlx_array a, mlx_array b)
{
    NN_STEP(c, mlx_divide(&res, a, b, c->stream));
}

static mlx_array turn(nn *c, mlx_array x)
{
    NN_STEP(c, mlx_swapaxes(&res, x, -1, -2, c->stream));
}

void nn_choose(nn *c, mlx_array scores, int used, mlx_array *ids,
               mlx_array *chosen)
{
    *ids = *chosen = (mlx_array){NULL};
    if (c->status)
        return;
    int rows = mlx_array_dim(scores, 1), count = mlx_array_dim(scores, 2);
    scores = nn_reshape(c, scores, (int[]){rows, count}, 2);
    /* Sorting keeps the order of equal ones. */
    mlx_array order = argsort(c, negative(c, scores));
    order = nn_slice_last(c, order, 0, used);
    *ids = nn_astype(c, order, MLX_INT32);
    *chosen = take_along(c, scores, *ids);
}

static mlx_array dense_experts(nn *c, const qn_matrix *w, int count,
                               mlx_array x, mlx_array ids)
{
    mlx_array none = {NULL};
    mlx_array all =
        nn_reshape(c, w->weight, (int[]){count, w->rows / count, w->cols}, 3);
    if (!c->status)
        x = nn_astype(c, x, mlx_array_dtype(w->weight));
    all = turn(c, all);
    NN_STEP(c, mlx_gather_mm(&res, x, all, none, ids, false, c->stream));
}

static mlx_array by_expert(nn *c, mlx_array x, int count)
{
    if (c->status || !x.ctx)
        return (mlx_array){NULL};
    int rows = mlx_array_dim(x, 0) / count;
    return nn_reshape(c, x, (int[]){count, rows, mlx_array_dim(x, 1)}, 3);
}

static mlx_array packed_experts(nn *c, const qn_matrix *w, int count,
                                mlx_array x, mlx_array ids)
{
    mlx_array words = by_expert(c, w->weight, count);
    mlx_array scales = by_expert(c, w->scales, count);
    mlx_array biases = by_expert(c, w->biases, count);
    NN_STEP(c, quern_gather_qmm(&res, x, words, scales, biases, ids,
                                w->quant.group, w->quant.bits,
                                qn_quant_mode_name(w->quant.mode), c->stream));
}

static mlx_array element(nn *c, mlx_vector_array list, size_t i)
{
    NN_STEP(c, mlx_vector_array_get(&res, list, i));
}

/* out[i] [T, used, 1, rows]: products with the matrices of `panels`, or with
 * both of two and a gate. */
static void panel_experts(nn *c, mlx_array *out, const qn_panels *panels,
                          int count, mlx_array x, mlx_array ids,
                          quern_panel_gate gate)
{
    mlx_vector_array list = {NULL};
    int results = gate ? 1 : panels->form.count;
    if (!c->status)
        x = nn_reshape(c, x,
                       (int[]){mlx_array_dim(x, 0), mlx_array_dim(x, 1),
                               mlx_array_dim(x, 3)},
                       3);
    if (!c->status)
        c->status =
            qn_engine(quern_panel_experts(&list, x, panels->data, &panels->form,
                                          count, ids, gate, c->stream));
    for (int i = 0; i < results; i++) {
        out[i] = element(c, list, (size_t)i);
        if (!c->status)
            out[i] =
                nn_reshape(c, out[i],
                           (int[]){mlx_array_dim(ids, 0), mlx_array_dim(ids, 1),
                                   1, panels->form.rows[i] / count},
                           4);
    }
    if (list.ctx)
        mlx_vector_array_free(list);
}

static mlx_array add_bias(nn *c, const qn_matrix *w, int count, mlx_array y,
                          mlx_array ids)
{
    if (!w->bias.ctx || c->status)
        return y;
    int rows = mlx_array_dim(ids, 0), used = mlx_array_dim(ids, 1);
    int wide = w->rows / count;
    mlx_array bias = nn_reshape(c, w->bias, (int[]){count, wide}, 2);
    bias = nn_reshape(c, take_first(c, bias, ids), (int[]){rows, used, 1, wide},
                      4);
    return nn_add(c, y, bias);
}

mlx_array nn_experts(nn *c, const qn_matrix *w, int count, mlx_array x,
                     mlx_array ids)
{
    mlx_array y = {NULL};
    if (w->panels.data.ctx)
        panel_experts(c, &y, &w->panels, count, x, ids, QUERN_GATE_NONE);
    else if (w->packed)
        y = packed_experts(c, w, count, x, ids);
    else
        y = dense_experts(c, w, count, x, ids);
    if (c->status)
        return y;
    return add_bias(c, w, count, nn_astype(c, y, mlx_array_dtype(x)), ids);
}

static mlx_array clip(nn *c, mlx_array x, mlx_array low, mlx_array high)
{
    NN_STEP(c, mlx_clip(&res, x, low, high, c->stream));
}

static mlx_array clamped(nn *c, mlx_array gate, mlx_array up)
{
    if (c->status)
        return gate;
    mlx_dtype dtype = mlx_array_dtype(gate);
    mlx_array none = {NULL}, most = nn_number(c, 7, dtype);
    mlx_array g = clip(c, gate, none, most);
    mlx_array u = clip(c, up, nn_number(c, -7, dtype), most);
    u = nn_add(c, u, nn_number(c, 1, dtype));
    return nn_mul(c, u, nn_mul(c, g, nn_sigmoid(c, nn_scale(c, g, 1.702))));
}

static mlx_array apply_shared(nn *c, const nn_moe *m, mlx_array x)
{
    const shared_expert *s = &m->shared;
    nn_norm plain = {.dtype = m->dtype};
    mlx_array h = nn_gated(c, &s->in, x, plain, NN_SILU);
    mlx_array y = nn_astype(c, nn_linear(c, &s->down, h), MLX_FLOAT32);
    if (!s->weight.rows)
        return y;
    return nn_mul(c, y, nn_sigmoid(c, nn_linear(c, &s->weight, x)));
}

/* What the last matrix of each expert takes. */
static mlx_array widen(nn *c, const nn_moe *m, mlx_array x, mlx_array ids)
{
    mlx_array out[2];
    if (m->in.data.ctx && !m->clamped && !m->gate.bias.ctx) {
        panel_experts(c, out, &m->in, m->count, x, ids, QUERN_GATE_SILU);
        return out[0];
    }
    if (m->in.data.ctx) {
        panel_experts(c, out, &m->in, m->count, x, ids, QUERN_GATE_NONE);
        out[0] = add_bias(c, &m->gate, m->count, out[0], ids);
        out[1] = add_bias(c, &m->up, m->count, out[1], ids);
    } else {
        out[0] = nn_experts(c, &m->gate, m->count, x, ids);
        out[1] = nn_experts(c, &m->up, m->count, x, ids);
    }
    return m->clamped ? clamped(c, out[0], out[1])
                      : nn_mul(c, nn_silu(c, out[0]), out[1]);
}

mlx_array nn_moe_apply(nn *c, const nn_moe *m, mlx_array x)
{
    if (c->status)
        return x;
    int rows = mlx_array_dim(x, 1), hidden = mlx_array_dim(x, 2);
    mlx_array ids, weights;
    mlx_array scores = nn_softmax(c, nn_linear(c, &m->router, x));
    nn_choose(c, scores, m->used, &ids, &weights);
    if (m->normalize)
        weights = divide(c, weights, sum(c, weights, -1, true));
    weights = nn_reshape(c, weights, (int[]){rows, m->used, 1, 1}, 4);

    mlx_array in = nn_astype(c, x, m->dtype);
    in = nn_reshape(c, in, (int[]){rows, 1, 1, hidden}, 4);
    mlx_array h = widen(c, m, in, ids);
    mlx_array y = nn_experts(c, &m->down, m->count, h, ids);
    y = nn_mul(c, nn_astype(c, y, MLX_FLOAT32), weights);
    y = nn_reshape(c, sum(c, y, 1, false), (int[]){1, rows, hidden}, 3);
    return m->has_shared ? nn_add(c, y, apply_shared(c, m, x)) : y;
}
