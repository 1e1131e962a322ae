/* gemma3n.c: the text part of Gemma 3n.
 *
 * Several streams of hidden states run side by side (AltUp).  A layer predicts
 * all of them by a small map that depends on the active one, computes from the
 * prediction of that one alone, and corrects the others by how far the
 * prediction was off.  Beside attention stands a residual of low rank (Laurel);
 * the gates of some MLPs keep only what is far above their mean; each layer has
 * inputs of its own (ple.h); and the last layers attend to the keys and values
 * of the last layer before them that is of their kind.
 *
 * Coefficients are used as they are: the limit of the configuration
 * (altup_coef_clip) is one of training. */
#include "family.h"
#include "ple.h"

#include "base/alloc.h"

#include <math.h>
#include <stdio.h>

enum { MOST_STREAMS = 8 };

typedef struct gemma3n_config {
    int ple_width, ple_vocab, shared, streams, active, rank;
    bool scaled; /* the corrected stream, where it gates the layer's input */
    double cap;
    float sparsity[QN_MAX_LAYERS]; /* the part of gates that become 0 */
    float cutoff[QN_MAX_LAYERS];   /* what follows from it, where it is 1 */
} gemma3n_config;

typedef struct layer_weights {
    mlx_array before_attention, after_attention, before_mlp, after_mlp;
    mlx_array q_norm, k_norm, laurel_norm, router_norm, scale;
    qn_matrix q, k, v, o, gate, up, down, left, right;
    qn_matrix router, predict, correct;
    nn_group qkv, in;
    ple_layer ple;
    bool sparse;
    double cutoff; /* standard deviations above the mean */
} layer_weights;

typedef struct gemma3n {
    int layers, heads, streams, active;
    double eps, embed_scale, cap;
    bool scaled;
    mlx_dtype dtype;
    qn_rope rope, local_rope;
    qn_matrix embed;
    qn_matrix enter[MOST_STREAMS], leave[MOST_STREAMS]; /* from stream 1 on */
    mlx_array norm;
    ple ple;
    layer_weights *layer;
    qn_layer_config *settings;
} gemma3n;

/* ---- configuration ---- */

static void gemma3n_prepare(qn_config *c)
{
    c->norm_eps = 1e-6;
    snprintf(c->activation, sizeof c->activation, "gelu_pytorch_tanh");
    if (c->gguf)
        return;
    c->hidden = 2048;
    c->intermediate = 16384;
    c->layers = 35;
    c->heads = 8;
    c->kv_heads = 2;
    c->head_dim = 256;
    c->vocab_size = 262400;
    c->max_positions = 32768;
    c->sliding_window = 512;
    c->rope.base = 1e6;
}

/* GGUF files have the cutoffs instead; one that is not finite is none. */
static bool read_cutoffs(qn_config *c, qn_source *s, gemma3n_config *g)
{
    static const char key[] = "activation_sparsity_scale";
    char name[96];
    const qn_gguf_value *list = NULL;
    if (s->gguf && snprintf(name, sizeof name, "%s.%s", s->arch, key) > 0)
        list = qn_gguf_get(s->gguf, name);
    if (!list)
        return false;
    if (list->type != QN_GGUF_ARRAY || list->as.array.item == QN_GGUF_STRING ||
        list->as.array.count != (size_t)c->layers)
        qn_source_fail(s,
                       qn_fail(QN_E_FORMAT,
                               "expected a number for each of %d layers",
                               c->layers),
                       NULL, key);
    for (int i = 0; i < c->layers && !s->status; i++) {
        double value = qn_gguf_array_float(list, (size_t)i);
        g->sparsity[i] = isfinite(value) ? 1 : 0;
        g->cutoff[i] = isfinite(value) ? (float)value : 0;
    }
    return true;
}

static void read_sparsity(qn_config *c, qn_source *s, gemma3n_config *g)
{
    if (read_cutoffs(c, s, g))
        return;
    const qn_json *list = qn_source_json(s, "activation_sparsity_pattern");
    for (int i = 0; i < c->layers; i++)
        g->sparsity[i] = c->layers > 10 && i < 10 ? 0.95F : 0;
    if (!list || s->status)
        return;
    bool fits = list->type == QN_JSON_T_ARRAY
                    ? list->count == (uint32_t)c->layers
                    : list->type == QN_JSON_T_NUMBER;
    for (int i = 0; i < c->layers && fits; i++) {
        double value = 0;
        const qn_json *item =
            list->type == QN_JSON_T_ARRAY ? &list->items[i] : list;
        fits = qn_json_as_double(item, &value) && value >= 0 && value < 1;
        g->sparsity[i] = (float)value;
    }
    if (!fits)
        qn_source_fail(s,
                       qn_fail(QN_E_FORMAT,
                               "expected a number from 0 to below 1 for each "
                               "of %d layers",
                               c->layers),
                       "activation_sparsity_pattern", NULL);
}

/* Windows, positions, and whose keys a layer reads. */
static void set_layers(qn_config *c, qn_source *s, const gemma3n_config *g)
{
    int pattern = 5, first = c->layers - g->shared;
    bool given = qn_source_has(s, "layer_types", NULL);
    int slides[QN_MAX_LAYERS];
    for (int i = 0; i < c->layers; i++)
        slides[i] = (i + 1) % pattern != 0;
    qn_read_ints(s, slides, c->layers, NULL, "attention.sliding_window_pattern",
                 0, 1);
    for (int i = 0; i < c->layers && !s->status; i++) {
        qn_layer_config *l = &c->layer[i];
        if (!given)
            l->window = slides[i] ? c->sliding_window : 0;
        l->rope = l->window ? QN_LAYER_LOCAL_ROPE : QN_LAYER_ROPE;
        int from = i < first ? i : first - 1;
        while (from >= 0 && (c->layer[from].window != 0) != (l->window != 0))
            from--;
        l->kv_from = from;
        if (from < 0)
            qn_source_fail(s,
                           qn_fail(QN_E_FORMAT,
                                   "layer %d has no layer of its kind to "
                                   "share keys with",
                                   i),
                           "num_kv_shared_layers",
                           "attention.shared_kv_layers");
    }
}

static void gemma3n_configure(qn_config *c, qn_source *s)
{
    gemma3n_config *g = c->extra = qn_calloc(1, sizeof *g);
    if (!g) {
        s->status = QN_E_NOMEM;
        return;
    }
    *g = (gemma3n_config){.ple_width = 256,
                          .ple_vocab = 262144,
                          .streams = 4,
                          .rank = 64,
                          .scaled = true,
                          .cap = 30};
    /* Files of both sizes have 20 layers with keys. */
    g->shared = c->gguf ? (c->layers > 20 ? c->layers - 20 : 0)
                        : (c->layers > 15 ? 15 : 0);
    qn_read_int(s, &g->ple_width, "hidden_size_per_layer_input",
                "embedding_length_per_layer_input", 1, QN_MAX_DIM);
    qn_read_int(s, &g->ple_vocab, "vocab_size_per_layer_input", NULL, 1,
                QN_MAX_DIM);
    qn_read_int(s, &g->shared, "num_kv_shared_layers",
                "attention.shared_kv_layers", 0, c->layers - 1);
    qn_read_int(s, &g->streams, "altup_num_inputs", "altup.num_inputs", 1,
                MOST_STREAMS);
    qn_read_int(s, &g->active, "altup_active_idx", "altup.active_idx", 0,
                g->streams - 1);
    qn_read_int(s, &g->rank, "laurel_rank", NULL, 1, QN_MAX_DIM);
    qn_read_bool(s, &g->scaled, "altup_correct_scale", NULL);
    qn_read_real(s, &g->cap, "final_logit_softcapping",
                 "final_logit_softcapping");
    qn_read_real(s, &c->local_rope.base, NULL, "rope.freq_base_swa");
    read_sparsity(c, s, g);
    set_layers(c, s, g);
}

static qn_status gemma3n_check(const qn_config *c)
{
    const gemma3n_config *g = c->extra;
    return ple_check(c, "gemma3n", g->cap, g->ple_width);
}

/* ---- weights ---- */

static void free_layer(layer_weights *w)
{
    mlx_array arrays[] = {
        w->before_attention, w->after_attention, w->before_mlp,
        w->after_mlp,        w->q_norm,          w->k_norm,
        w->laurel_norm,      w->router_norm,     w->scale};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        nn_drop(arrays[i]);
    nn_group_clear(&w->qkv);
    nn_group_clear(&w->in);
    qn_matrix *all[] = {&w->q,     &w->k,      &w->v,       &w->o,
                        &w->gate,  &w->up,     &w->down,    &w->left,
                        &w->right, &w->router, &w->predict, &w->correct};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        qn_matrix_clear(all[i]);
    ple_layer_clear(&w->ple);
}

static void gemma3n_free(void *state)
{
    gemma3n *m = state;
    if (!m)
        return;
    for (int i = 0; m->layer && i < m->layers; i++)
        free_layer(&m->layer[i]);
    for (int i = 0; i < MOST_STREAMS; i++) {
        qn_matrix_clear(&m->enter[i]);
        qn_matrix_clear(&m->leave[i]);
    }
    nn_drop(m->norm);
    ple_clear(&m->ple);
    qn_matrix_clear(&m->embed);
    qn_rope_clear(&m->rope);
    qn_rope_clear(&m->local_rope);
    qn_free(m->layer);
    qn_free(m->settings);
    qn_free(m);
}

/* How many standard deviations above the mean a part p of a normal
 * distribution ends. */
static double quantile(double p)
{
    double low = -40, high = 40;
    for (int i = 0; i < 200; i++) {
        double middle = (low + high) / 2;
        if (erfc(-middle / sqrt(2)) / 2 < p)
            low = middle;
        else
            high = middle;
    }
    return (low + high) / 2;
}

static qn_status load_vectors(qn_loader *l, layer_weights *w, int i)
{
    const qn_config *c = l->config;
    int h = c->hidden, dim = c->head_dim;
    bool own = c->layer[i].kv_from == i;
    const struct {
        mlx_array *to;
        int size;
        const char *name;
    } all[] = {
        {&w->before_attention, h, "input_layernorm.weight"},
        {&w->after_attention, h, "post_attention_layernorm.weight"},
        {&w->before_mlp, h, "pre_feedforward_layernorm.weight"},
        {&w->after_mlp, h, "post_feedforward_layernorm.weight"},
        {&w->q_norm, dim, "self_attn.q_norm.weight"},
        {own ? &w->k_norm : NULL, dim, "self_attn.k_norm.weight"},
        {&w->laurel_norm, h, "laurel.post_laurel_norm.weight"},
        {&w->router_norm, h, "altup.router_norm.weight"},
        {&w->scale, h,
         c->gguf ? "altup.correct_output_scale.weight"
                 : "altup.correct_output_scale"},
    };
    qn_status status = QN_OK;
    for (size_t n = 0; n < sizeof all / sizeof *all && !status; n++)
        if (all[n].to)
            status = qn_load_vector(l, all[n].to, all[n].size,
                                    "model.layers.%d.%s", i, all[n].name);
    return status;
}

static void ignore_keys(qn_loader *l, int i)
{
    static const char *const parts[] = {
        "k_proj.weight", "k_proj.scales", "k_proj.biases", "v_proj.weight",
        "v_proj.scales", "v_proj.biases", "k_norm.weight"};
    for (size_t n = 0; n < sizeof parts / sizeof *parts; n++) {
        char name[96];
        snprintf(name, sizeof name, "model.layers.%d.self_attn.%s", i,
                 parts[n]);
        qn_loader_ignore(l, name);
    }
}

static qn_status load_matrices(qn_loader *l, layer_weights *w, int i)
{
    const qn_config *c = l->config;
    const gemma3n_config *g = c->extra;
    bool own = c->layer[i].kv_from == i;
    int h = c->hidden, width = c->heads * c->head_dim, n = g->streams;
    int kv = c->layer[i].kv_heads * c->head_dim;
    int inner = c->layer[i].intermediate;
    const struct {
        qn_matrix *to;
        qn_matrix_spec spec;
        const char *name;
    } all[] = {
        {&w->q,
         {.rows = width, .cols = h, .grouped = true},
         "self_attn.q_proj"},
        {own ? &w->k : NULL,
         {.rows = kv, .cols = h, .grouped = true},
         "self_attn.k_proj"},
        {own ? &w->v : NULL,
         {.rows = kv, .cols = h, .grouped = true},
         "self_attn.v_proj"},
        {&w->o, {.rows = h, .cols = width}, "self_attn.o_proj"},
        {&w->gate,
         {.rows = inner, .cols = h, .grouped = true},
         "mlp.gate_proj"},
        {&w->up, {.rows = inner, .cols = h, .grouped = true}, "mlp.up_proj"},
        {&w->down, {.rows = h, .cols = inner}, "mlp.down_proj"},
        {&w->left, {.rows = g->rank, .cols = h}, "laurel.linear_left"},
        {&w->right, {.rows = h, .cols = g->rank}, "laurel.linear_right"},
        {&w->router,
         {.rows = n, .cols = h, .exact = true},
         "altup.modality_router"},
        {&w->predict,
         {.rows = n * n, .cols = n, .exact = true},
         "altup.prediction_coefs"},
        {&w->correct,
         {.rows = n, .cols = n, .exact = true},
         "altup.correction_coefs"},
    };
    qn_status status = QN_OK;
    for (size_t k = 0; k < sizeof all / sizeof *all && !status; k++)
        if (all[k].to)
            status = qn_load_matrix(l, all[k].to, &all[k].spec,
                                    "model.layers.%d.%s", i, all[k].name);
    if (status || l->missing_count)
        return status;
    status = nn_group_make(l, &w->qkv, (qn_matrix *[]){&w->q, &w->k, &w->v},
                           own ? 3 : 1);
    if (!status)
        status = nn_group_make(l, &w->in, (qn_matrix *[]){&w->gate, &w->up}, 2);
    return status;
}

static qn_status load_layer(qn_loader *l, layer_weights *w, int i)
{
    const gemma3n_config *g = l->config->extra;
    float part = g->sparsity[i];
    w->sparse = part > 0;
    w->cutoff = part == 1 ? (double)g->cutoff[i]
                : part    ? quantile((double)part)
                          : 0;
    if (l->config->layer[i].kv_from != i)
        ignore_keys(l, i);
    qn_status status = load_vectors(l, w, i);
    if (!status)
        status = load_matrices(l, w, i);
    return status ? status : ple_layer_load(&w->ple, l, g->ple_width, i);
}

/* The matrix of stream i; GGUF files have those of all below one another. */
static qn_status load_stream(qn_loader *l, qn_matrix *out, int i, int streams,
                             const char *ours, const char *gguf)
{
    int h = l->config->hidden;
    qn_matrix_spec spec = {.rows = h, .cols = h};
    if (!l->config->gguf)
        return qn_load_matrix(l, out, &spec, "model.%s.%d", ours, i - 1);
    spec.first_row = (i - 1) * h;
    spec.of_rows = (streams - 1) * h;
    return qn_load_matrix(l, out, &spec, "%s", gguf);
}

static qn_status load_ends(gemma3n *m, qn_loader *l)
{
    const qn_config *c = l->config;
    const gemma3n_config *g = c->extra;
    qn_matrix_spec spec = {.rows = c->vocab_size, .cols = c->hidden};
    qn_status status =
        qn_load_matrix(l, &m->embed, &spec, "model.embed_tokens");
    if (!status)
        status = qn_load_vector(l, &m->norm, c->hidden, "model.norm.weight");
    if (!status)
        status = ple_load(&m->ple, l, g->ple_width,
                          c->gguf ? c->vocab_size : g->ple_vocab);
    for (int i = 1; i < g->streams && !status; i++) {
        status = load_stream(l, &m->enter[i], i, g->streams,
                             "altup_projections", "altup_proj");
        if (!status)
            status =
                load_stream(l, &m->leave[i], i, g->streams,
                            "altup_unembed_projections", "altup_unembd_proj");
    }
    qn_loader_ignore(l, "lm_head.weight");
    qn_loader_ignore(l, "lm_head.scales");
    qn_loader_ignore(l, "lm_head.biases");
    return status;
}

static qn_status gemma3n_load(void **out, qn_loader *l)
{
    const qn_config *c = l->config;
    const gemma3n_config *g = c->extra;
    gemma3n *m = qn_calloc(1, sizeof *m);
    if (!m)
        return QN_E_NOMEM;
    *m = (gemma3n){.layers = c->layers,
                   .heads = c->heads,
                   .streams = g->streams,
                   .active = g->active,
                   .eps = c->norm_eps,
                   .embed_scale = ple_root(c->hidden),
                   .cap = g->cap,
                   .scaled = g->scaled,
                   .dtype = l->dtype};
    m->layer = qn_calloc((size_t)c->layers, sizeof *m->layer);
    m->settings = qn_calloc((size_t)c->layers, sizeof *m->settings);
    qn_status status = m->layer && m->settings ? QN_OK : QN_E_NOMEM;
    if (!status)
        status = qn_rope_load(&m->rope, &m->local_rope, l);
    if (!status)
        status = load_ends(m, l);
    for (int i = 0; i < c->layers && !status; i++) {
        m->settings[i] = c->layer[i];
        status = load_layer(l, &m->layer[i], i);
    }
    if (status)
        gemma3n_free(m);
    else
        *out = m;
    return status;
}

/* ---- steps ---- */

static mlx_array mean(nn *c, mlx_array x)
{
    NN_STEP(c, mlx_mean_axis(&res, x, -1, true, c->stream));
}

static mlx_array deviation(nn *c, mlx_array x)
{
    NN_STEP(c, mlx_std_axis(&res, x, -1, true, 0, c->stream));
}

static mlx_array root(nn *c, mlx_array x)
{
    NN_STEP(c, mlx_sqrt(&res, x, c->stream));
}

static mlx_array less(nn *c, mlx_array a, mlx_array b)
{
    NN_STEP(c, mlx_subtract(&res, a, b, c->stream));
}

static mlx_array over(nn *c, mlx_array a, mlx_array b)
{
    NN_STEP(c, mlx_divide(&res, a, b, c->stream));
}

static mlx_array larger(nn *c, mlx_array a, mlx_array b)
{
    NN_STEP(c, mlx_maximum(&res, a, b, c->stream));
}

static mlx_array magnitude(nn *c, mlx_array x)
{
    return mean(c, nn_mul(c, x, x));
}

/* x with the magnitude whose square root is `target`. */
static mlx_array match(nn *c, mlx_array x, mlx_array target)
{
    mlx_array least = nn_number(c, 1e-5, MLX_FLOAT32);
    mlx_array own = root(c, larger(c, magnitude(c, x), least));
    return over(c, nn_mul(c, x, target), own);
}

static mlx_array norm(const gemma3n *m, nn *c, mlx_array x, mlx_array weight)
{
    return nn_rms_norm(c, nn_astype(c, x, MLX_FLOAT32), weight, m->eps);
}

/* All streams with the one that is computed and what predicts them, and the
 * layers' own inputs. */
static void widths(const qn_config *c, int layer, qn_widths *out)
{
    (void)layer;
    const gemma3n_config *g = c->extra;
    out->kept = (int64_t)(g->streams + 2) * c->hidden +
                (int64_t)g->streams * g->streams +
                (int64_t)c->layers * g->ple_width;
}

/* ---- streams ---- */

/* tanh of one number for each stream: [1, T, streams]. */
static mlx_array route(const gemma3n *m, nn *c, const layer_weights *w,
                       mlx_array x)
{
    if (c->status)
        return x;
    double scale = 1.0 / mlx_array_dim(x, 2);
    x = nn_scale(c, norm(m, c, x, w->router_norm), scale);
    return nn_tanh(c, nn_linear(c, &w->router, x));
}

static void predict(const gemma3n *m, nn *c, const layer_weights *w,
                    const mlx_array *in, mlx_array *out)
{
    int n = m->streams;
    mlx_array map = nn_linear(c, &w->predict, route(m, c, w, in[m->active]));
    for (int to = 0; to < n; to++) {
        out[to] = in[to];
        for (int from = 0; from < n; from++) {
            int at = to * n + from;
            mlx_array part = nn_slice_last(c, map, at, at + 1);
            out[to] = nn_add(c, out[to], nn_mul(c, in[from], part));
        }
    }
}

static void correct(const gemma3n *m, nn *c, const layer_weights *w,
                    mlx_array active, mlx_array *streams)
{
    mlx_array map = nn_linear(c, &w->correct, route(m, c, w, active));
    mlx_array off = less(c, active, streams[m->active]);
    mlx_array one = nn_number(c, 1, MLX_FLOAT32);
    for (int i = 0; i < m->streams; i++) {
        mlx_array part = nn_add(c, nn_slice_last(c, map, i, i + 1), one);
        streams[i] = nn_add(c, streams[i], nn_mul(c, off, part));
    }
}

/* ---- a layer ---- */

static mlx_array attend(const gemma3n *m, nn *c, int i, mlx_array x,
                        nn_rows rows)
{
    const layer_weights *w = &m->layer[i];
    const qn_layer_config *s = &m->settings[i];
    mlx_array qkv[NN_GROUP], k = {NULL}, v = {NULL};
    nn_linears(c, qkv, &w->qkv, x,
               (nn_norm){w->before_attention, m->eps, m->dtype});
    mlx_array q = nn_head_norm(c, qkv[0], w->q_norm, s->head_dim, m->eps);
    if (s->kv_from == i) {
        k = nn_head_norm(c, qkv[1], w->k_norm, s->head_dim, m->eps);
        v = nn_head_norm(c, qkv[2], (mlx_array){NULL}, s->head_dim, m->eps);
    }
    bool local = s->rope == QN_LAYER_LOCAL_ROPE;
    qn_attention how = {.heads = m->heads, .scale = 1, .window = s->window};
    mlx_array y = nn_attend(c, rows, s->kv_from, q, k, v,
                            local ? &m->local_rope : &m->rope, &how);
    return norm(m, c, nn_linear(c, &w->o, y), w->after_attention);
}

/* The residual of low rank, of the normed x. */
static mlx_array laurel(const gemma3n *m, nn *c, const layer_weights *w,
                        mlx_array x)
{
    x = norm(m, c, x, w->before_attention);
    mlx_array y = nn_linear(c, &w->left, nn_astype(c, x, m->dtype));
    y = nn_linear(c, &w->right, y);
    return nn_add(c, x, norm(m, c, y, w->laurel_norm));
}

/* max(0, x - (mean + cutoff * deviation)) */
static mlx_array keep_few(nn *c, mlx_array x, double cutoff)
{
    mlx_array limit =
        nn_add(c, mean(c, x), nn_scale(c, deviation(c, x), cutoff));
    return larger(c, less(c, x, limit), nn_number(c, 0, MLX_FLOAT32));
}

static mlx_array feed_forward(const gemma3n *m, nn *c, const layer_weights *w,
                              mlx_array x)
{
    nn_norm before = {w->before_mlp, m->eps, m->dtype};
    mlx_array both[NN_GROUP], y;
    if (!w->sparse) {
        y = nn_gated(c, &w->in, x, before, NN_GELU);
    } else {
        nn_linears(c, both, &w->in, x, before);
        y = keep_few(c, nn_astype(c, both[0], MLX_FLOAT32), w->cutoff);
        y = nn_mul(c, nn_astype(c, nn_gelu_tanh(c, y), m->dtype), both[1]);
    }
    return norm(m, c, nn_linear(c, &w->down, y), w->after_mlp);
}

static void run_layer(const gemma3n *m, nn *c, int i, mlx_array *streams,
                      mlx_array inputs, nn_rows rows)
{
    const layer_weights *w = &m->layer[i];
    mlx_array next[MOST_STREAMS];
    predict(m, c, w, streams, next);
    mlx_array x = next[m->active];
    mlx_array h = nn_add(c, x, attend(m, c, i, x, rows));
    h = nn_scale(c, nn_add(c, h, laurel(m, c, w, x)), sqrt(0.5));
    h = nn_add(c, h, feed_forward(m, c, w, h));
    correct(m, c, w, h, next);
    mlx_array first = next[m->active];
    if (m->scaled)
        first = nn_mul(c, first, w->scale);
    mlx_array more = ple_apply(c, &m->ple, &w->ple, i, first, inputs, m->dtype);
    for (int k = 0; k < m->streams; k++)
        streams[k] = k ? nn_add(c, next[k], more) : next[k];
}

static mlx_array run_layers(const gemma3n *m, nn *c, mlx_array ids,
                            nn_rows rows)
{
    mlx_array x =
        nn_scale(c, nn_embed(c, &m->embed, ids, MLX_FLOAT32), m->embed_scale);
    mlx_array inputs = ple_inputs(c, &m->ple, ids, x);
    mlx_array streams[MOST_STREAMS] = {x}, target = root(c, magnitude(c, x));
    for (int i = 1; i < m->streams; i++)
        streams[i] = match(c, nn_linear(c, &m->enter[i], x), target);
    for (int i = 0; i < m->layers; i++)
        run_layer(m, c, i, streams, inputs, rows);
    target = root(c, magnitude(c, streams[0]));
    x = streams[0];
    for (int i = 1; i < m->streams; i++)
        x = nn_add(c, x,
                   match(c, nn_linear(c, &m->leave[i], streams[i]), target));
    return nn_scale(c, x, 1.0 / m->streams);
}

static mlx_array gemma3n_hidden(const void *state, nn *c, mlx_array ids,
                                nn_rows rows)
{
    const gemma3n *m = state;
    return norm(m, c, run_layers(m, c, ids, rows), m->norm);
}

static mlx_array gemma3n_forward(const void *state, nn *c, mlx_array ids,
                                 nn_rows rows, bool last_only)
{
    const gemma3n *m = state;
    mlx_array x = run_layers(m, c, ids, rows);
    if (last_only)
        x = nn_last(c, x, rows);
    return nn_cap(c, nn_linear(c, &m->embed, norm(m, c, x, m->norm)), m->cap);
}

static bool gemma3n_tied(const void *state)
{
    (void)state;
    return true;
}

static const char *const ignored[] = {"rotary_emb.", "self_attn.v_norm", NULL};

static const qn_tensor_name names[] = {
    {"post_attention_norm", "post_attention_layernorm"},
    {"ffn_norm", "pre_feedforward_layernorm"},
    {"post_ffw_norm", "post_feedforward_layernorm"},
    {"inp_gate", "per_layer_input_gate"},
    {"proj", "per_layer_projection"},
    {"post_norm", "post_per_layer_input_norm"},
    {"altup_correct_coef", "altup.correction_coefs"},
    {"altup_correct_scale", "altup.correct_output_scale"},
    {"altup_predict_coef", "altup.prediction_coefs"},
    {"altup_router", "altup.modality_router"},
    {"altup_router_norm", "altup.router_norm"},
    {"laurel_l", "laurel.linear_left"},
    {"laurel_r", "laurel.linear_right"},
    {"laurel_post_norm", "laurel.post_laurel_norm"},
    {NULL, NULL},
};

static const char *const modules[] = {
    "input_layernorm",       "self_attn.q_norm",
    "self_attn.q_proj",      "self_attn.o_proj",
    "mlp.gate_proj",         "mlp.up_proj",
    "mlp.down_proj",         "laurel.linear_left",
    "altup.modality_router", NULL,
};

const qn_family qn_family_gemma3n = {
    .prepare = gemma3n_prepare,
    .configure = gemma3n_configure,
    .check = gemma3n_check,
    .varied = true,
    .widths = widths,
    .gguf_names = names,
    .load = gemma3n_load,
    .free = gemma3n_free,
    .forward = gemma3n_forward,
    .hidden = gemma3n_hidden,
    .tied = gemma3n_tied,
    .ignored = ignored,
    .modules = modules,
};
