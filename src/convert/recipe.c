/* recipe.c: which modules are packed, and how (runtime specification 2).
 *
 * In this order, the later winning: what the mode asks for; the mixed recipe;
 * 8 bits for routers; the widths that a budget gave (budget.c); overrides. */
#include "convert.h"

#include "base/alloc.h"
#include "base/gguf_blocks.h"
#include "model/pack.h"

#include <fnmatch.h>
#include <math.h>
#include <stdio.h>

typedef struct recipe {
    const char *name;
    int low, high;
} recipe;

static const recipe recipes[] = {
    {"mixed_2_6", 2, 6},
    {"mixed_3_4", 3, 4},
    {"mixed_3_6", 3, 6},
    {"mixed_4_6", 4, 6},
};

/* ---- what was asked for ---- */

static const char *const modes[] = {"affine", "mxfp4", "mxfp8", "nvfp4"};

static bool find_mode(qn_str name, qn_quant_mode *out)
{
    for (int m = QN_MODE_AFFINE; m <= QN_MODE_NVFP4; m++)
        if (qn_str_is(name, modes[m])) {
            *out = (qn_quant_mode)m;
            return true;
        }
    return false;
}

/* A triple with what the mode means where a part of it is 0. */
static qn_status complete(qn_quant *q, const char *what)
{
    static const qn_quant defaults[] = {
        {QN_MODE_AFFINE, 64, 4},
        {QN_MODE_MXFP4, 32, 4},
        {QN_MODE_MXFP8, 32, 8},
        {QN_MODE_NVFP4, 16, 4},
    };
    if (!q->bits)
        q->bits = defaults[q->mode].bits;
    if (!q->group)
        q->group = defaults[q->mode].group;
    if (!qn_quant_check(q, what))
        return QN_OK;
    return qn_fail(QN_E_ARG, "%s: mode %s has no %d bits in groups of %d", what,
                   modes[q->mode], q->bits, q->group);
}

static qn_status read_default(qn_quant *out, const quern_convert_options *o)
{
    *out = (qn_quant){QN_MODE_AFFINE, o->group_size, o->bits};
    if (o->mode && !find_mode(qn_str_of(o->mode), &out->mode))
        return qn_fail(QN_E_ARG,
                       "mode: expected affine, mxfp4, mxfp8 or nvfp4, found %s",
                       o->mode);
    return complete(out, "quantize");
}

/* "GLOB=bits[:group[:mode]]" or "GLOB=none". */
typedef struct override {
    char glob[256];
    bool none;
    qn_quant quant;
    size_t matched;
} override;

static qn_status bad_override(const char *text)
{
    return qn_fail(QN_E_ARG,
                   "override '%s': expected GLOB=bits[:group[:mode]] or "
                   "GLOB=none",
                   text);
}

static qn_status read_override(override *out, const char *text,
                               const qn_quant *defaults)
{
    const char *equals = strrchr(text, '=');
    *out = (override){.none = false};
    if (!equals || equals == text ||
        (size_t)(equals - text) >= sizeof out->glob)
        return bad_override(text);
    memcpy(out->glob, text, (size_t)(equals - text));
    const char *value = equals + 1;
    if (!strcmp(value, "none")) {
        out->none = true;
        return QN_OK;
    }
    char mode[16] = "";
    int bits = 0, group = 0, end = 0;
    bool good = sscanf(value, "%2d%n:%4d%n:%15[a-z0-9]%n", &bits, &end, &group,
                       &end, mode, &end) >= 1 &&
                !value[end] && bits > 0 && group >= 0;
    if (!good)
        return bad_override(text);
    out->quant = (qn_quant){defaults->mode, group, bits};
    if (*mode && !find_mode(qn_str_of(mode), &out->quant.mode))
        return bad_override(text);
    /* Another width of the same mode keeps the group. */
    if (!group && out->quant.mode == defaults->mode)
        out->quant.group = defaults->group;
    return complete(&out->quant, text);
}

/* ---- which modules ---- */

static bool has(const char *text, const char *part)
{
    return strstr(text, part) != NULL;
}

static bool ends_with(const char *text, const char *suffix)
{
    size_t size = strlen(text), tail = strlen(suffix);
    return size >= tail && !strcmp(text + size - tail, suffix);
}

/* Linear maps and embeddings, and experts that are stacked. */
static bool is_candidate(const qn_item *item)
{
    int ndim = item->main->ndim;
    if (!item->module || !qn_item_is_float(item) || has(item->module, "conv") ||
        has(item->module, "norm") || has(item->module, "position_embeddings") ||
        has(item->module, "token_type_embeddings"))
        return false;
    return ndim == 2 || (ndim == 3 && has(item->module, "switch_mlp")) ||
           (ndim == 3 && has(item->module, "experts"));
}

static bool is_router(const char *module)
{
    return ends_with(module, "mlp.gate") || ends_with(module, "mlp.router") ||
           ends_with(module, "shared_expert_gate");
}

static bool is_head(const qn_origin *s, const char *module)
{
    bool tied = true;
    for (size_t i = 0; i < s->count; i++)
        tied = tied && !(s->items[i].module &&
                         ends_with(s->items[i].module, "lm_head"));
    return ends_with(module, tied ? "embed_tokens" : "lm_head");
}

/* Whether the recipe gives the module its high width: values and the way down,
 * in the first and last eighth of the layers and in each third between. */
static bool is_high(const qn_origin *s, const char *module)
{
    int layer = 0, n = s->layers;
    const char *at = strstr(module, "layers.");
    if (ends_with(module, "lm_head"))
        return true;
    if (!at || sscanf(at, "layers.%6d.", &layer) != 1 ||
        (!has(module, "v_proj") && !has(module, "down_proj")))
        return false;
    return layer < n / 8 || layer >= 7 * n / 8 || (layer - n / 8) % 3 == 2;
}

typedef struct plan {
    qn_origin *source;
    const quern_convert_options *options;
    qn_quant defaults;
    const recipe *mixed;
    override *overrides;
} plan;

/* False: the module stays as it is. */
static bool choose(const plan *p, qn_item *item, qn_quant *out)
{
    const char *module = item->module;
    *out = p->defaults;
    if (p->mixed)
        out->bits = is_high(p->source, module) ? p->mixed->high : p->mixed->low;
    bool packed = !(p->options->keep_head && is_head(p->source, module));
    item->flexible = !is_router(module);
    if (is_router(module))
        *out = (qn_quant){QN_MODE_AFFINE, 64, 8};
    if (item->budget_bits)
        out->bits = item->budget_bits;
    for (size_t i = 0; i < p->options->override_count; i++) {
        override *o = &p->overrides[i];
        if (fnmatch(o->glob, module, 0))
            continue;
        o->matched++;
        item->flexible = false;
        packed = !o->none;
        *out = o->quant;
    }
    return packed;
}

static qn_st_dtype float_type(const qn_item *item, const char *name)
{
    return !name                  ? qn_item_floats(item)
           : !strcmp(name, "f32") ? QN_ST_F32
           : !strcmp(name, "f16") ? QN_ST_F16
                                  : QN_ST_BF16;
}

static qn_status refuse_packed(const qn_item *item)
{
    return qn_fail(QN_E_ARG,
                   "%s is quantized already: packing it again loses more than "
                   "packing the original (requantize does it anyway)",
                   item->module);
}

static qn_status plan_quantize(const plan *p, qn_item *item)
{
    qn_quant quant;
    if (!is_candidate(item))
        return QN_OK;
    if (!choose(p, item, &quant))
        return QN_OK;
    if (item->cols % (uint64_t)quant.group ||
        item->cols * (uint64_t)quant.bits % 32) {
        item->undivided = true;
        return QN_OK;
    }
    if (item->form != QN_FORM_PLAIN && !p->options->requantize)
        return refuse_packed(item);
    item->action = QN_QUANT;
    item->quant = quant;
    item->dtype = float_type(item, p->options->dtype);
    return QN_OK;
}

/* ---- GGUF blocks ---- */

/* Whether float16 holds every scale and bias. */
static qn_status scan_factors(qn_item *item)
{
    uint64_t piece = QN_PIECE / item->cols ? QN_PIECE / item->cols : 1;
    size_t groups = item->cols / QN_GGUF_GROUP;
    float *scales = qn_calloc(piece * groups, 2 * sizeof *scales);
    if (!scales)
        return QN_E_NOMEM;
    float *biases = scales + piece * groups;
    for (uint64_t r = 0; r < item->rows && !item->wide; r += piece) {
        uint64_t count = item->rows - r < piece ? item->rows - r : piece;
        qn_pack_wide(scales, biases, item->main->type,
                     item->main->data.data + r * qn_row_bytes(item), count,
                     item->cols, NULL);
        for (uint64_t i = 0; i < count * groups; i++)
            item->wide |= fabsf(biases[i]) > 65504;
    }
    qn_free(scales);
    return QN_OK;
}

static qn_status plan_blocks(qn_item *item, const quern_convert_options *o)
{
    qn_pack_form form;
    if (!qn_pack_form_of(&form, item->main->type))
        return qn_fail(QN_E_UNSUPPORTED, "tensor %s: type %s is not supported",
                       item->name, qn_gguf_type_name(item->main->type));
    if (!item->cols || item->cols % (uint64_t)form.block)
        return qn_fail(QN_E_FORMAT,
                       "tensor %s: rows of %llu are not whole blocks of %d",
                       item->name, (unsigned long long)item->cols, form.block);
    if (o->dequantize || !item->module || item->main->ndim < 2) {
        item->action = QN_CAST;
        item->dtype = float_type(item, o->dtype);
        /* No type of 16 bits holds what the blocks say. */
        item->inexact = item->dtype != QN_ST_F32 && !o->dequantize;
        return QN_OK;
    }
    if (form.group < 32) {
        /* The array library has no such groups. */
        item->action = QN_QUANT;
        item->quant = (qn_quant){QN_MODE_AFFINE, 32, 8};
        item->dtype = QN_ST_F16;
        item->inexact = true;
        return QN_OK;
    }
    item->action = QN_PACK;
    item->quant = (qn_quant){form.mxfp4 ? QN_MODE_MXFP4 : QN_MODE_AFFINE,
                             form.group, form.bits};
    item->wide = form.wide && !form.mxfp4;
    return form.wide ? QN_OK : scan_factors(item);
}

/* ---- everything else ---- */

/* 1 + (w - 1) is w again unless w is small. */
static bool loses_shift(const qn_item *item)
{
    float value;
    for (uint64_t i = 0; i < item->rows * item->cols; i++) {
        qn_item one = *item;
        one.rows = item->rows * item->cols;
        one.cols = 1;
        one.shift = 0;
        qn_read_rows(&value, &one, i, 1, QN_ST_F32, (mlx_stream){NULL});
        volatile float less = value - 1;
        if (1 + less != value)
            return true;
    }
    return false;
}

static qn_status plan_plain(qn_item *item, const quern_convert_options *o)
{
    qn_st_dtype own = qn_item_floats(item);
    bool is_float = qn_item_is_float(item);
    item->dtype = is_float ? float_type(item, o->dtype) : own;
    if (item->form == QN_FORM_PACKED && !o->dequantize)
        return QN_OK;
    if (item->form == QN_FORM_PACKED || (is_float && item->dtype != own))
        item->action = QN_CAST;
    if (item->shift) {
        item->action = QN_CAST;
        item->dtype = QN_ST_F32;
        item->inexact = item->shift < 0 && loses_shift(item);
    }
    return QN_OK;
}

static qn_status check_dtype(const char *name)
{
    if (!name || !strcmp(name, "f32") || !strcmp(name, "f16") ||
        !strcmp(name, "bf16"))
        return QN_OK;
    return qn_fail(QN_E_ARG, "dtype: expected f32, f16 or bf16, found %s",
                   name);
}

static qn_status find_recipe(plan *p)
{
    const char *name = p->options->recipe;
    bool down = false;
    if (!name)
        return QN_OK;
    for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++)
        if (!strcmp(recipes[i].name, name))
            p->mixed = &recipes[i];
    if (!p->mixed)
        return qn_fail(QN_E_ARG,
                       "recipe: expected mixed_2_6, mixed_3_4, mixed_3_6 or "
                       "mixed_4_6, found %s",
                       name);
    if (p->defaults.mode != QN_MODE_AFFINE)
        return qn_fail(QN_E_ARG, "recipe: %s needs mode affine", name);
    for (size_t i = 0; i < p->source->count; i++)
        down |= p->source->items[i].module &&
                has(p->source->items[i].module, "down_proj");
    return down ? QN_OK
                : qn_fail(QN_E_UNSUPPORTED,
                          "recipe %s: the model has no down_proj", name);
}

static qn_status read_overrides(plan *p)
{
    const quern_convert_options *o = p->options;
    p->overrides = qn_calloc(o->override_count, sizeof *p->overrides);
    if (!p->overrides)
        return QN_E_NOMEM;
    qn_status status = QN_OK;
    for (size_t i = 0; i < o->override_count && !status; i++)
        status = read_override(&p->overrides[i], o->overrides[i], &p->defaults);
    return status;
}

static qn_status plan_items(plan *p)
{
    qn_status status = QN_OK;
    for (size_t i = 0; i < p->source->count && !status; i++) {
        qn_item *item = &p->source->items[i];
        item->action = QN_KEEP;
        item->inexact = item->undivided = item->flexible = false;
        if (p->options->quantize)
            status = plan_quantize(p, item);
        if (!status && item->action == QN_KEEP)
            status = item->form == QN_FORM_BLOCKS
                         ? plan_blocks(item, p->options)
                         : plan_plain(item, p->options);
    }
    for (size_t i = 0; i < p->options->override_count && !status; i++)
        if (!p->overrides[i].matched)
            status = qn_fail(QN_E_ARG, "override '%s' matches no module",
                             p->options->overrides[i]);
    return status;
}

qn_status qn_recipe_apply(qn_origin *source, const quern_convert_options *o)
{
    plan p = {.source = source, .options = o};
    qn_status status = check_dtype(o->dtype);
    if (!status)
        status = read_default(&p.defaults, o);
    if (!status)
        status = find_recipe(&p);
    if (!status)
        status = read_overrides(&p);
    if (!status)
        status = plan_items(&p);
    if (p.mixed)
        p.defaults.bits = p.mixed->low;
    source->written = p.defaults;
    qn_free(p.overrides);
    return status;
}
