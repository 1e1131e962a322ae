/* config.c: what both readers of a configuration share, and the rules between
 * its values.  config_json.c and config_gguf.c read the two forms. */
#include "config.h"

#include "base/alloc.h"
#include "config_read.h"

void qn_config_clear(qn_config *config)
{
    qn_free(config->family);
    qn_free(config->name);
    qn_free(config->activation);
    qn_free(config->layer);
    qn_quant_clear(&config->quant);
    *config = (qn_config){0};
}

qn_status qn_config_make_layers(qn_config *config)
{
    config->layer = qn_calloc((size_t)config->layers, sizeof *config->layer);
    if (!config->layer)
        return QN_E_NOMEM;
    for (int i = 0; i < config->layers; i++)
        config->layer[i].intermediate = config->intermediate;
    return QN_OK;
}

qn_status qn_config_bound(int64_t value, int64_t low, int64_t high,
                          const char *where)
{
    if (value >= low && value <= high)
        return QN_OK;
    qn_status status =
        qn_fail(QN_E_FORMAT, "expected %lld..%lld, found %lld", (long long)low,
                (long long)high, (long long)value);
    return qn_fail_where(status, "%s", where);
}

static qn_status refuse(const char *path, const char *fmt, int a, int b)
{
    qn_status status = QN_E_FORMAT;
    if (b < 0)
        status = qn_fail(status, fmt, a);
    else
        status = qn_fail(status, fmt, a, b);
    return qn_fail_where(status, "%s", path);
}

static qn_status check_rope(const qn_config *c, const char *path)
{
    const qn_rope_config *r = &c->rope;
    if (r->dims < 2 || r->dims > c->head_dim || r->dims % 2)
        return refuse(path,
                      "rotary dimensions: expected an even number up to the "
                      "head dimension %d, found %d",
                      c->head_dim, r->dims);
    /* Written so that NaN is refused too. */
    if (!(r->base > 0 && r->base <= 1e12)) {
        qn_status status =
            qn_fail(QN_E_FORMAT,
                    "rope base: expected a positive number, found %g", r->base);
        return qn_fail_where(status, "%s", path);
    }
    if (r->type != QN_ROPE_DEFAULT && !(r->factor >= 1 && r->factor <= 1e6)) {
        qn_status status = qn_fail(
            QN_E_FORMAT, "rope scaling factor: expected at least 1, found %g",
            r->factor);
        return qn_fail_where(status, "%s", path);
    }
    bool needs_original = r->type == QN_ROPE_LLAMA3 || r->type == QN_ROPE_YARN;
    if (needs_original && !(r->original_positions >= 1)) {
        qn_status status =
            qn_fail(QN_E_FORMAT,
                    "rope scaling: original_max_position_embeddings: expected "
                    "a positive number, found %g",
                    r->original_positions);
        return qn_fail_where(status, "%s", path);
    }
    if (r->type == QN_ROPE_LLAMA3 &&
        !(r->low_freq_factor > 0 && r->high_freq_factor > r->low_freq_factor)) {
        qn_status status = qn_fail(
            QN_E_FORMAT,
            "rope scaling: expected 0 < low_freq_factor < high_freq_factor, "
            "found %g and %g",
            r->low_freq_factor, r->high_freq_factor);
        return qn_fail_where(status, "%s", path);
    }
    return QN_OK;
}

qn_status qn_config_check(qn_config *c, const char *path)
{
    if (c->heads % c->kv_heads)
        return refuse(path,
                      "%d attention heads can't be shared by %d key-value "
                      "heads",
                      c->heads, c->kv_heads);
    if ((int64_t)c->heads * c->head_dim > QN_MAX_DIM)
        return refuse(path, "%d heads of %d are too wide", c->heads,
                      c->head_dim);
    if (!(c->rms_norm_eps >= 0 && c->rms_norm_eps < 1)) {
        qn_status status =
            qn_fail(QN_E_FORMAT, "rms_norm_eps: expected 0..1, found %g",
                    c->rms_norm_eps);
        return qn_fail_where(status, "%s", path);
    }
    qn_status status = check_rope(c, path);
    if (status)
        return status;
    /* Configurations give the length before or after scaling; the original
     * length, where it is given, tells which. */
    const qn_rope_config *r = &c->rope;
    if (r->type != QN_ROPE_DEFAULT && r->type != QN_ROPE_LLAMA3 &&
        r->original_positions >= 1) {
        double scaled = r->original_positions * r->factor;
        if (scaled > (double)c->max_positions && scaled <= QN_MAX_DIM * 16.0)
            c->max_positions = (int64_t)scaled;
    }
    return QN_OK;
}
