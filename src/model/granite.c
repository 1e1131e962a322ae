/* granite.c: Granite and MiniCPM (the 2B family), which scale embeddings, what
 * each branch adds, and what logits are made of. */
#include "decoder.h"

#include "base/alloc.h"

#include <math.h>

typedef struct scales {
    double embed, branch, logit, score;
    bool tied_undivided; /* no `logit` where the embedding makes logits */
} scales;

static scales *new_scales(qn_config *c, qn_source *s)
{
    scales *x = qn_calloc(1, sizeof *x);
    if (!x)
        s->status = s->status ? s->status : QN_E_NOMEM;
    c->extra = x;
    return x;
}

/* Of a sum that runs through all layers only numbers make sense that leave
 * something of it. */
static void check_scales(const scales *x, qn_source *s)
{
    if (s->status || (x->logit && x->branch && x->embed))
        return;
    qn_source_fail(s,
                   qn_fail(QN_E_FORMAT,
                           "scales of embeddings, branches and logits: "
                           "expected other numbers than 0, found %g, %g, %g",
                           x->embed, x->branch, x->logit),
                   NULL, NULL);
}

static qn_status granite_check(const qn_config *c)
{
    return decoder_check_activation(c, "silu");
}

static qn_status load(void **out, qn_loader *l)
{
    const scales *x = l->config->extra;
    decoder_form form = decoder_usual(l->config);
    form.paired = true;
    form.embed_scale = x->embed;
    form.branch_scale = x->branch;
    form.logit_divisor = x->logit;
    form.tied_undivided = x->tied_undivided;
    form.score_scale = x->score;
    return decoder_load(out, l, &form);
}

/* ---- granite ---- */

static void granite_configure(qn_config *c, qn_source *s)
{
    scales *x = new_scales(c, s);
    if (!x)
        return;
    x->embed = x->branch = x->logit = 1;
    /* Where a configuration says nothing, transformers has 1; llama.cpp, whose
     * files always say it, the usual scale. */
    x->score = s->gguf ? 0 : 1;
    qn_read_real(s, &x->embed, "embedding_multiplier", "embedding_scale");
    qn_read_real(s, &x->branch, "residual_multiplier", "residual_scale");
    qn_read_real(s, &x->logit, "logits_scaling", "logit_scale");
    qn_read_real(s, &x->score, "attention_multiplier", "attention.scale");
    check_scales(x, s);
}

const qn_family qn_family_granite = {
    .configure = granite_configure,
    .check = granite_check,
    .load = load,
    .free = decoder_free,
    .forward = decoder_forward,
    .hidden = decoder_hidden,
    .tied = decoder_tied,
    .ignored = decoder_ignored,
    .modules = decoder_modules,
};

/* ---- minicpm ---- */

static void minicpm_prepare(qn_config *c)
{
    /* Its configurations may leave it out; then it is this. */
    c->max_positions = 2048;
}

static void minicpm_configure(qn_config *c, qn_source *s)
{
    scales *x = new_scales(c, s);
    if (!x)
        return;
    double depth = 1, base = c->hidden;
    x->embed = 1;
    if (s->gguf) {
        /* Older files leave these out and mean the model of 2B. */
        x->embed = 12;
        depth = 1.4;
        base = 256;
    }
    qn_read_real(s, &depth, "scale_depth", NULL);
    qn_read_real(s, &base, "dim_model_base", NULL);
    x->branch = depth / sqrt(c->layers);
    x->logit = base > 0 ? c->hidden / base : 0;
    qn_read_real(s, &x->embed, "scale_emb", "embedding_scale");
    qn_read_real(s, &x->branch, NULL, "residual_scale");
    qn_read_real(s, &x->logit, NULL, "logit_scale");
    check_scales(x, s);
}

static void minicpm_as_mlx_lm(qn_config *c)
{
    scales *x = c->extra;
    x->tied_undivided = true;
}

const qn_family qn_family_minicpm = {
    .as_mlx_lm = minicpm_as_mlx_lm,
    .prepare = minicpm_prepare,
    .configure = minicpm_configure,
    .check = granite_check,
    .load = load,
    .free = decoder_free,
    .forward = decoder_forward,
    .hidden = decoder_hidden,
    .tied = decoder_tied,
    .ignored = decoder_ignored,
    .modules = decoder_modules,
};
