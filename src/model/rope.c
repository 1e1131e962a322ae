/* rope.c: the scaling rules of rotary positions (runtime specification 5.1).
 *
 * Pair i of d/2 has the period f_i = base^(2i/d); position p turns it by p *
 * scale / f_i.  Rules that treat pairs differently give a list of periods. */
#include "rope.h"

#include "base/alloc.h"
#include "kv/engine.h"

#include <math.h>

static const double pi = 3.14159265358979323846;

double qn_rope_yarn_mscale(double factor, double m)
{
    return factor > 1 ? 0.1 * m * log(factor) + 1 : 1;
}

/* Long waves are stretched, short ones kept, those between interpolated. */
static double llama3_period(const qn_rope_config *c, double period)
{
    double wavelength = 2 * pi * period;
    double low = c->original_positions / c->low_freq_factor;
    double high = c->original_positions / c->high_freq_factor;
    if (wavelength > low)
        return period * c->factor;
    if (wavelength < high)
        return period;
    double t = (c->original_positions / wavelength - c->low_freq_factor) /
               (c->high_freq_factor - c->low_freq_factor);
    return period / ((1 - t) / c->factor + t);
}

/* The pair that turns `rotations` times over the original length. */
static double yarn_pair(const qn_rope_config *c, double rotations)
{
    return c->dims * log(c->original_positions / (rotations * 2 * pi)) /
           (2 * log(c->base));
}

static double yarn_period(const qn_rope_config *c, int i, double period)
{
    double low = yarn_pair(c, c->beta_fast), high = yarn_pair(c, c->beta_slow);
    low = c->between_pairs ? low : floor(low);
    high = c->between_pairs ? high : ceil(high);
    low = low < 0 ? 0 : low;
    high = high > c->dims - 1 ? c->dims - 1 : high;
    if (low == high)
        high += 0.001; /* a step, not a division by zero */
    double ramp = (i - low) / (high - low);
    ramp = ramp < 0 ? 0 : ramp > 1 ? 1 : ramp;
    double stretched = c->factor * period, m = 1 - ramp;
    return stretched * period / (stretched * m + period * (1 - m));
}

bool qn_rope_periods(double *out, const qn_rope_config *c, bool longer)
{
    const float *factors = longer ? c->long_factors : c->short_factors;
    for (int i = 0; i < c->dims / 2; i++) {
        double period = pow(c->base, 2.0 * i / c->dims);
        if (c->type == QN_ROPE_LLAMA3)
            period = llama3_period(c, period);
        else if (c->type == QN_ROPE_YARN)
            period = yarn_period(c, i, period);
        else if (c->type == QN_ROPE_LONGROPE)
            period *= factors[i];
        else if (c->type == QN_ROPE_PROPORTIONAL)
            period = i < c->turned ? period * c->factor : INFINITY;
        out[i] = period;
    }
    return c->type != QN_ROPE_DEFAULT && c->type != QN_ROPE_LINEAR &&
           c->type != QN_ROPE_DYNAMIC;
}

int qn_rope_choice(const qn_rope_config *c, int budget)
{
    bool depends = (c->type == QN_ROPE_LONGROPE && !c->always_long) ||
                   c->type == QN_ROPE_DYNAMIC;
    if (!depends || budget <= c->original_positions)
        return 0;
    return c->type == QN_ROPE_DYNAMIC ? budget : 1;
}

/* So that the longest waves of a sequence of `length` are `factor` times longer
 * than they were for one of the original length, and the shortest stay. */
static float dynamic_base(const qn_rope *r, double length)
{
    double stretched = r->factor * length / r->original - (r->factor - 1);
    return (float)(r->base * pow(stretched, r->dims / (r->dims - 2.0)));
}

qn_kv_rope qn_rope_for(const qn_rope *r, int budget)
{
    qn_kv_rope kv = {.dims = r->dims,
                     .traditional = r->traditional,
                     .base = r->base,
                     .scale = r->scale,
                     .freqs = r->freqs};
    if (!r->original || budget <= r->original)
        return kv;
    if (r->long_freqs.ctx)
        kv.freqs = r->long_freqs;
    else
        kv.base = dynamic_base(r, budget);
    return kv;
}

/* What a scaled rotary embedding multiplies queries and keys with. */
static double mscale(const qn_rope_config *c)
{
    if (c->type != QN_ROPE_YARN && c->type != QN_ROPE_LONGROPE)
        return 1;
    if (c->attention_factor)
        return c->attention_factor;
    if (c->type == QN_ROPE_LONGROPE)
        return c->factor <= 1 || c->original_positions <= 1
                   ? 1
                   : sqrt(1 + log(c->factor) / log(c->original_positions));
    return qn_rope_yarn_mscale(c->factor, c->mscale) /
           qn_rope_yarn_mscale(c->factor, c->mscale_all_dim);
}

static qn_status make_freqs(mlx_array *out, const qn_rope_config *c,
                            const float *factors, bool longer)
{
    int count = c->dims / 2;
    double *periods = qn_calloc((size_t)count, sizeof *periods);
    float *freqs = qn_calloc((size_t)count, sizeof *freqs);
    qn_status status = periods && freqs ? QN_OK : QN_E_NOMEM;
    if (!status && (qn_rope_periods(periods, c, longer) || factors)) {
        for (int i = 0; i < count; i++)
            freqs[i] = (float)(periods[i] * (factors ? factors[i] : 1));
        *out = mlx_array_new_data(freqs, &count, 1, MLX_FLOAT32);
        status = qn_engine_made(out->ctx);
    }
    qn_free(periods);
    qn_free(freqs);
    return status;
}

static qn_status make_stretch(qn_rope *rope, double by, int head_dim,
                              mlx_dtype dtype, mlx_stream stream)
{
    if (by == 1)
        return QN_OK;
    float *values = qn_calloc((size_t)head_dim, sizeof *values);
    if (!values)
        return QN_E_NOMEM;
    for (int i = 0; i < head_dim; i++)
        values[i] = i < rope->dims ? (float)by : 1;
    rope->stretch = mlx_array_new_data(values, &head_dim, 1, MLX_FLOAT32);
    qn_free(values);
    qn_status status = qn_engine_made(rope->stretch.ctx);
    if (!status)
        status =
            qn_engine(mlx_astype(&rope->stretch, rope->stretch, dtype, stream));
    return status ? status : qn_engine(mlx_array_eval(rope->stretch));
}

qn_status qn_rope_make(qn_rope *out, const qn_rope_config *c,
                       const float *factors, int head_dim, mlx_dtype dtype,
                       mlx_stream stream)
{
    qn_rope rope = {
        .dims = c->dims,
        .traditional = c->traditional,
        .base = (float)c->base,
        .scale = c->type == QN_ROPE_LINEAR ? (float)(1 / c->factor) : 1,
    };
    bool both = c->type == QN_ROPE_LONGROPE && !c->always_long;
    if (both || c->type == QN_ROPE_DYNAMIC)
        rope.original = c->original_positions;
    if (c->type == QN_ROPE_DYNAMIC)
        rope.factor = c->factor;
    qn_status status = make_freqs(&rope.freqs, c, factors, c->always_long);
    if (!status && both)
        status = make_freqs(&rope.long_freqs, c, factors, true);
    if (!status)
        status = make_stretch(&rope, mscale(c), head_dim, dtype, stream);
    if (status)
        qn_rope_clear(&rope);
    else
        *out = rope;
    return status;
}

/* The width of the first layer that turns so; 0: there is none. */
static int width_of(const qn_config *c, qn_layer_rope rope)
{
    for (int i = 0; i < c->layers; i++)
        if (c->layer[i].rope == rope)
            return c->layer[i].head_dim;
    return 0;
}

/* Of GGUF files, which have them as tensors, and nothing else to say so. */
static qn_status load_long_factors(qn_rope_config *c, qn_loader *l)
{
    if (!l->config->gguf || !qn_loader_has(l, "rope_factors_long.weight"))
        return QN_OK;
    c->type = QN_ROPE_LONGROPE;
    qn_status status = qn_load_floats(l, &c->long_factors, c->dims / 2,
                                      "rope_factors_long.weight");
    if (!status)
        status = qn_load_floats(l, &c->short_factors, c->dims / 2,
                                "rope_factors_short.weight");
    if (status || (c->short_factors && c->original_positions >= 1))
        return status;
    return qn_fail(QN_E_MISMATCH,
                   "rope_factors_long: expected rope_factors_short and %s, "
                   "found %s",
                   "rope.scaling.original_context_length",
                   c->short_factors ? "the former" : "no short ones");
}

qn_status qn_rope_load(qn_rope *out, qn_rope *local, qn_loader *l)
{
    const qn_config *c = l->config;
    int dim = width_of(c, QN_LAYER_ROPE);
    int local_dim = width_of(c, QN_LAYER_LOCAL_ROPE);
    float *factors = NULL;
    qn_status status =
        qn_load_floats(l, &factors, c->rope.dims / 2, "rope_freqs.weight");
    if (!status)
        status = load_long_factors(&l->config->rope, l);
    if (!status && dim)
        status = qn_rope_make(out, &c->rope, factors, dim, l->dtype, l->stream);
    if (!status && local_dim)
        status = qn_rope_make(local, &c->local_rope, NULL, local_dim, l->dtype,
                              l->stream);
    qn_free(factors);
    return status;
}

void qn_rope_clear(qn_rope *rope)
{
    if (rope->freqs.ctx)
        mlx_array_free(rope->freqs);
    if (rope->long_freqs.ctx)
        mlx_array_free(rope->long_freqs);
    if (rope->stretch.ctx)
        mlx_array_free(rope->stretch);
    *rope = (qn_rope){0};
}
