/* cache.c: how the caches of a model store, from options and kv_config.json. */
#include "runtime.h"

#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"
#include "model/family.h"

#include <stdio.h>
#include <string.h>

enum {
    KV_STEP = 256,
    KEPT = 4, /* first tokens that stay with max_kv_size */
    MAX_FILE = 16 << 20
};

static const char by_file[] = "config"; /* options.kv */

qn_status qn_cache_check_options(const quern_options *o)
{
    qn_kv_scheme scheme;
    qn_status status = QN_OK;
    if (o->kv && strcmp(o->kv, by_file) != 0)
        status = qn_kv_scheme_parse(&scheme, o->kv, MLX_FLOAT16);
    if (status)
        return qn_fail_where(status, "kv");
    if (o->kv_quant_start < 0)
        return qn_fail_where(
            qn_fail(QN_E_ARG, "kv_quant_start: expected 0 or more, found %lld",
                    (long long)o->kv_quant_start),
            "kv_quant_start");
    if (o->max_kv_size && o->max_kv_size <= KEPT)
        return qn_fail_where(
            qn_fail(QN_E_ARG,
                    "max_kv_size: expected more than the %d first tokens that "
                    "stay, or 0, found %lld",
                    KEPT, (long long)o->max_kv_size),
            "max_kv_size");
    return QN_OK;
}

/* ---- layers ---- */

/* What the model stores, in floats. */
static qn_status make_layers(quern_model *m, const qn_config *c,
                             const quern_options *o)
{
    m->kv_layers = qn_calloc((size_t)c->layers, sizeof *m->kv_layers);
    if (!m->kv_layers)
        return QN_E_NOMEM;
    for (int i = 0; i < c->layers; i++) {
        qn_kv_layer *l = &m->kv_layers[i];
        qn_family_cache(c, i, l);
        l->scheme.dtype = m->kv.floats;
        if (l->kv_heads && !l->window && o->max_kv_size &&
            o->max_kv_size < m->ctx) {
            l->keep = KEPT;
            l->window = (int)o->max_kv_size - KEPT;
        }
    }
    m->kv.layers = c->layers;
    m->kv.layer = m->kv_layers;
    return QN_OK;
}

static qn_status set_layer(qn_kv_layer *l, int layer,
                           const qn_kv_scheme *scheme)
{
    l->scheme = *scheme;
    qn_status status = qn_kv_scheme_fit(&l->scheme, l->head_dim);
    return status ? qn_fail_where(status, "kv: layer %d", layer) : QN_OK;
}

static void warn_spared(const quern_model *m, int spared)
{
    char text[160];
    snprintf(text, sizeof text,
             "kv %s: %d of %d layers have a sliding window and store %s",
             m->kv_name, spared, m->kv.layers,
             m->kv.floats == MLX_BFLOAT16 ? "bf16" : "f16");
    if (spared && m->log)
        m->log(m->log_data, QUERN_LOG_WARN, text);
}

/* One scheme for all; the turbo format has no window that moves, so such layers
 * stay in floats. */
static qn_status set_all(quern_model *m, const char *name)
{
    qn_kv_scheme scheme;
    qn_status status = qn_kv_scheme_parse(&scheme, name, m->kv.floats);
    if (status)
        return status;
    int spared = 0;
    qn_kv_scheme_name(m->kv_name, &scheme);
    if (!scheme.bits && !scheme.key_bits)
        m->kv.floats = scheme.dtype;
    for (int i = 0; i < m->kv.layers && !status; i++) {
        qn_kv_layer *l = &m->kv_layers[i];
        if (!l->kv_heads)
            continue;
        if (scheme.key_bits && l->window)
            spared++;
        else
            status = set_layer(l, i, &scheme);
    }
    warn_spared(m, spared);
    return status;
}

/* ---- kv_config.json ---- */

static qn_status bad_entry(uint32_t i, const char *key, const char *expected)
{
    return qn_fail(QN_E_FORMAT, "entry %u: %s: expected %s", (unsigned)i, key,
                   expected);
}

/* One {layer_idx, bits, group_size}. */
static qn_status take_entry(quern_model *m, const qn_json *entry, uint32_t i)
{
    int64_t layer = -1, bits = 0, group = 64;
    char range[48];
    snprintf(range, sizeof range, "a layer, 0..%d", m->kv.layers - 1);
    if (!qn_json_as_int(qn_json_get(entry, "layer_idx"), &layer) || layer < 0 ||
        layer >= m->kv.layers)
        return bad_entry(i, "layer_idx", range);
    if (!qn_json_as_int(qn_json_get(entry, "bits"), &bits) ||
        (bits != 4 && bits != 8))
        return bad_entry(i, "bits", "4 or 8");
    const qn_json *given = qn_json_get(entry, "group_size");
    if (given &&
        (!qn_json_as_int(given, &group) || (group != 32 && group != 64)))
        return bad_entry(i, "group_size", "32 or 64");
    qn_kv_layer *l = &m->kv_layers[layer];
    if (!l->kv_heads)
        return qn_fail(QN_E_MISMATCH,
                       "entry %u: layer %d stores no keys and values",
                       (unsigned)i, (int)layer);
    if (l->scheme.bits)
        return qn_fail(QN_E_FORMAT, "entry %u: layer %d is there twice",
                       (unsigned)i, (int)layer);
    qn_kv_scheme scheme = {.dtype = m->kv.floats, .bits = (int)bits};
    qn_status status = set_layer(l, (int)layer, &scheme);
    if (!status && group < l->scheme.group)
        l->scheme.group = (int)group;
    return status;
}

qn_status qn_cache_take_config(quern_model *m, qn_str text)
{
    qn_json_doc *doc = NULL;
    qn_status status = qn_json_parse(&doc, text, QN_JSON_ALLOW_BOM);
    const qn_json *root = status ? NULL : qn_json_root(doc);
    if (root && root->type != QN_JSON_T_ARRAY)
        status = qn_fail(QN_E_FORMAT, "expected a list, found %s",
                         qn_json_type_name(root->type));
    for (uint32_t i = 0; root && i < root->count && !status; i++)
        status = take_entry(m, &root->items[i], i);
    qn_json_doc_free(doc);
    return status;
}

static qn_status take_file(quern_model *m, const char *path)
{
    char *text = NULL;
    size_t size;
    qn_status status = qn_file_read(&text, &size, path, MAX_FILE);
    if (!status)
        status = qn_cache_take_config(m, (qn_str){text, size});
    qn_free(text);
    return status;
}

static qn_status set_by_file(quern_model *m, const char *dir)
{
    snprintf(m->kv_name, sizeof m->kv_name, "%s", by_file);
    if (!dir)
        return qn_fail(QN_E_UNSUPPORTED,
                       "kv config: a GGUF file has no kv_config.json");
    char *path = qn_path_join(dir, "kv_config.json");
    if (!path)
        return QN_E_NOMEM;
    qn_status status =
        qn_path_exists(path)
            ? take_file(m, path)
            : qn_fail(QN_E_NOTFOUND, "kv config: kv_config.json is missing");
    if (status)
        qn_fail_where(status, "%s", path);
    qn_free(path);
    return status;
}

/* ---- all of it ---- */

static bool any_packed(const quern_model *m)
{
    for (int i = 0; i < m->kv.layers; i++)
        if (m->kv_layers[i].scheme.bits || m->kv_layers[i].scheme.key_bits)
            return true;
    return false;
}

qn_status qn_cache_set(quern_model *m, const qn_config *c,
                       const quern_options *o, const char *dir)
{
    mlx_dtype floats = m->dtype == MLX_BFLOAT16 ? MLX_BFLOAT16 : MLX_FLOAT16;
    m->kv =
        (qn_kv_shape){.floats = floats, .step = KV_STEP, .limit = (int)m->ctx};
    qn_status status = make_layers(m, c, o);
    if (status)
        return status;
    qn_kv_scheme plain = {.dtype = floats};
    qn_kv_scheme_name(m->kv_name, &plain);
    if (o->kv && !strcmp(o->kv, by_file))
        status = set_by_file(m, dir);
    else if (o->kv)
        status = set_all(m, o->kv);
    if (any_packed(m))
        m->kv.start =
            (int)(o->kv_quant_start < m->ctx ? o->kv_quant_start : m->ctx);
    return status ? status : qn_kv_shape_check(&m->kv);
}

bool qn_cache_forgets(const quern_model *m)
{
    if (m->kv.start)
        return true;
    for (int i = 0; i < m->kv.layers; i++) {
        const qn_kv_layer *l = qn_kv_layer_of(&m->kv, i);
        if (l->window || l->recurrence.channels)
            return true;
    }
    return false;
}
