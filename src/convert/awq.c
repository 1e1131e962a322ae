/* awq.c: columns that matter more are made larger before they are rounded
 * (activation-aware weight quantization, Lin et al. 2023).
 *
 * What a norm gives goes into a few products only, so its weight can be divided
 * by a number for each column and their columns be multiplied with it: the
 * model stays the same, and the columns with larger numbers are rounded more
 * finely than the others of their group.  The numbers are powers of the mean
 * size of each input, with the exponent (0: none) whose error is least. */
#include "convert.h"

#include "base/alloc.h"

#include <math.h>
#include <stdio.h>

/* Families whose norms of these names stand before these products alone. */
static const char *const families[] = {
    "llama",   "mistral",   "mixtral",  "smollm3",   "qwen2",    "qwen3",
    "granite", "qwen2_moe", "qwen2moe", "qwen3_moe", "qwen3moe", "phi3",
};

enum { MOST = 3, STEPS = 10 };

static const struct {
    const char *norm;
    const char *modules[MOST];
} places[] = {
    {"input_layernorm",
     {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"}},
    {"input_layernorm", {"self_attn.qkv_proj"}},
    {"post_attention_layernorm", {"mlp.gate_proj", "mlp.up_proj"}},
    {"post_attention_layernorm", {"mlp.gate_up_proj"}},
};

typedef struct group {
    qn_item *norm, *modules[MOST];
    int count;
    uint64_t cols;
    float *values, *factors, *best; /* of the norm; of the columns */
} group;

qn_status qn_awq_check(const qn_origin *s)
{
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (!strcmp(s->arch, families[i]))
            return QN_OK;
    return qn_fail(QN_E_UNSUPPORTED, "method awq does not know the norms of %s",
                   s->arch);
}

static qn_item *find(qn_origin *s, const char *front, size_t size,
                     const char *tail)
{
    for (size_t i = 0; i < s->count; i++) {
        const char *module = s->items[i].module;
        if (module && !strncmp(module, front, size) &&
            !strcmp(module + size, tail))
            return &s->items[i];
    }
    return NULL;
}

/* Whether a factor of its columns can be put into what is written. */
static bool can_scale(const qn_item *item)
{
    return item->action == QN_QUANT ||
           (item->form == QN_FORM_PLAIN && qn_item_is_float(item));
}

/* The modules behind a norm; false where some are missing or stay packed. */
static bool find_group(group *g, qn_origin *s, size_t place, qn_item *norm)
{
    size_t size = strlen(norm->module), tail = strlen(places[place].norm);
    if (size < tail || strcmp(norm->module + size - tail, places[place].norm) ||
        norm->form != QN_FORM_PLAIN || norm->rows != 1)
        return false;
    *g = (group){.norm = norm, .cols = norm->cols};
    bool packed = false;
    for (; g->count < MOST && places[place].modules[g->count]; g->count++) {
        qn_item *item =
            find(s, norm->module, size - tail, places[place].modules[g->count]);
        if (!item || item->cols != g->cols || !item->power || !can_scale(item))
            return false;
        g->modules[g->count] = item;
        packed |= item->action == QN_QUANT;
    }
    return packed;
}

static float rounded_to(float value, qn_st_dtype dtype)
{
    uint8_t bytes[4];
    qn_weight one = {.type = dtype, .data = {bytes, sizeof bytes}};
    qn_floats_to(bytes, &value, 1, dtype);
    qn_read_plain(&value, &one, 0, 1);
    return value;
}

/* Factors for an exponent: what the norm's weight is divided by once it was
 * rounded, so that the products of the two are what they were. */
static void set_factors(group *g, double exponent)
{
    const float *power = g->modules[0]->power;
    double least = INFINITY, most = 0;
    for (uint64_t i = 0; i < g->cols; i++)
        if (power[i] > 0) {
            double size = pow(sqrt(power[i]), exponent);
            least = size < least ? size : least;
            most = size > most ? size : most;
        }
    double middle = most > 0 ? sqrt(least * most) : 1;
    for (uint64_t i = 0; i < g->cols; i++) {
        double size = power[i] > 0 ? pow(sqrt(power[i]), exponent) / middle : 1;
        float less = rounded_to((float)(g->values[i] / size), g->norm->dtype);
        float factor = g->values[i] / less;
        bool usable = isnormal(less) && isnormal(factor);
        g->factors[i] = usable ? factor : 1;
    }
}

static qn_status error_of(double *error, const group *g, mlx_stream s)
{
    qn_status status = QN_OK;
    *error = 0;
    for (int i = 0; i < g->count && !status; i++) {
        qn_item *item = g->modules[i];
        double one = 0;
        if (item->action != QN_QUANT)
            continue;
        item->factor = g->factors;
        status = qn_measure_errors(&one, item, &item->quant, 1, s);
        item->factor = NULL;
        *error += one;
    }
    return status;
}

static qn_status take_factors(qn_item *item, const float *factors,
                              uint64_t cols, bool inverse)
{
    item->factor = qn_calloc(cols, sizeof *item->factor);
    if (!item->factor)
        return QN_E_NOMEM;
    for (uint64_t i = 0; i < cols; i++)
        item->factor[i] = inverse ? 1 / factors[i] : factors[i];
    /* Bytes that are kept as they are have no factors. */
    if (item->action == QN_KEEP)
        item->action = QN_CAST;
    return QN_OK;
}

static qn_status search(group *g, bool *found, mlx_stream s)
{
    double least = INFINITY;
    *found = false;
    for (int step = 0; step <= STEPS; step++) {
        double error;
        set_factors(g, (double)step / STEPS);
        if (!step)
            for (uint64_t i = 0; i < g->cols; i++)
                g->factors[i] = 1;
        qn_status status = error_of(&error, g, s);
        if (status)
            return status;
        if (error >= least)
            continue;
        least = error;
        *found = step > 0;
        memcpy(g->best, g->factors, g->cols * sizeof *g->best);
    }
    return QN_OK;
}

static qn_status scale(group *g, mlx_stream s)
{
    bool found = false;
    g->values = qn_calloc(g->cols, sizeof *g->values);
    g->factors = qn_calloc(g->cols, sizeof *g->factors);
    g->best = qn_calloc(g->cols, sizeof *g->best);
    qn_status status = g->values && g->factors && g->best ? QN_OK : QN_E_NOMEM;
    if (!status)
        status = qn_read_rows(g->values, g->norm, 0, 1, g->norm->dtype, s);
    if (!status)
        status = search(g, &found, s);
    if (!status && found)
        status = take_factors(g->norm, g->best, g->cols, true);
    for (int i = 0; i < g->count && !status && found; i++)
        status = take_factors(g->modules[i], g->best, g->cols, false);
    qn_free(g->values);
    qn_free(g->factors);
    qn_free(g->best);
    return status;
}

qn_status qn_awq_scale(qn_origin *source, qn_step_fn step, void *data)
{
    mlx_stream stream = {NULL};
    qn_status status = qn_convert_stream(&stream);
    for (size_t i = 0; i < source->count && !status; i++) {
        qn_item *norm = &source->items[i];
        for (size_t k = 0; k < sizeof places / sizeof *places && !status; k++) {
            group g;
            if (norm->module && find_group(&g, source, k, norm))
                status = scale(&g, stream);
        }
        if (!status && step &&
            !step(data, (int64_t)i + 1, (int64_t)source->count))
            status = qn_fail(QN_E_CANCELLED, "stopped");
    }
    if (stream.ctx)
        mlx_stream_free(stream);
    return status;
}
