/* origin.c: the model that is converted, as a list of items. */
#include "convert.h"

#include "base/alloc.h"
#include "model/config.h"
#include "model/foreign.h"

#include <stdio.h>

enum { MAX_CONFIG = 64 << 20 };

static bool ends_with(const char *text, const char *suffix)
{
    size_t size = strlen(text), tail = strlen(suffix);
    return size >= tail && !strcmp(text + size - tail, suffix);
}

static qn_weight *part_of(const qn_origin *s, const char *module,
                          const char *suffix)
{
    char name[512];
    int size = snprintf(name, sizeof name, "%s%s", module, suffix);
    return size < (int)sizeof name ? qn_weights_find(s->weights, name) : NULL;
}

const qn_json *qn_origin_config(const qn_origin *s, const char *key)
{
    const qn_json *root = s->config ? qn_json_root(s->config) : NULL;
    const qn_json *text = qn_json_get(root, "text_config");
    const qn_json *value = qn_json_get(text, key);
    return value ? value : qn_json_get(root, key);
}

static qn_status read_config(qn_origin *s)
{
    char *path = qn_path_join(qn_weights_dir(s->weights), "config.json");
    char *text = NULL;
    size_t size;
    if (!path)
        return QN_E_NOMEM;
    qn_status status = qn_file_read(&text, &size, path, MAX_CONFIG);
    if (!status)
        status =
            qn_json_parse(&s->config, (qn_str){text, size}, QN_JSON_ALLOW_BOM);
    qn_str type = {"", 0};
    if (!status) {
        qn_json_as_str(qn_json_get(qn_json_root(s->config), "model_type"),
                       &type);
        snprintf(s->arch, sizeof s->arch, "%.*s", (int)type.size, type.data);
        const qn_json *quant = qn_origin_config(s, "quantization");
        if (!quant)
            quant = qn_origin_config(s, "quantization_config");
        status = qn_quant_parse(&s->quant, quant, path);
        if (!status)
            status = qn_foreign_adopt(s->weights, &s->quant);
    }
    qn_free(text);
    if (status)
        qn_fail_where(status, "%s", path);
    qn_free(path);
    return status;
}

/* ---- items ---- */

/* A tensor that its module's main tensor brings along. */
static bool is_part(const qn_origin *s, const qn_weight *w)
{
    static const char *const suffixes[] = {".scales", ".biases"};
    for (size_t i = 0; i < 2 && !s->gguf; i++) {
        size_t n = strlen(w->name), tail = strlen(suffixes[i]);
        char module[512];
        if (n < tail || n - tail >= sizeof module ||
            !ends_with(w->name, suffixes[i]))
            continue;
        snprintf(module, sizeof module, "%.*s", (int)(n - tail), w->name);
        return part_of(s, module, ".weight") && part_of(s, module, ".scales");
    }
    return false;
}

/* The rows of a head stand in the order of pairs in files of these
 * architectures (runtime specification 3.2). */
static int paired_heads(const qn_origin *s, const qn_item *item)
{
    static const char *const paired[] = {"llama", "minicpm", "granite"};
    bool is_q = strstr(item->name, ".self_attn.q_proj.") != NULL;
    bool is_k = strstr(item->name, ".self_attn.k_proj.") != NULL;
    bool known = false;
    for (size_t i = 0; i < sizeof paired / sizeof *paired; i++)
        known |= !strcmp(s->arch, paired[i]);
    if (!s->gguf || !known || (!is_q && !is_k))
        return 0;
    char key[128];
    int64_t heads = 0;
    snprintf(key, sizeof key, "%s.attention.head_count_kv", s->arch);
    qn_status status =
        is_k ? qn_gguf_get_int(s->gguf, key, &heads) : QN_E_NOTFOUND;
    if (status) {
        snprintf(key, sizeof key, "%s.attention.head_count", s->arch);
        qn_gguf_get_int(s->gguf, key, &heads);
    }
    return heads > 0 && heads <= QN_MAX_DIM ? (int)heads : 0;
}

static qn_status map_rows(qn_item *item)
{
    uint64_t heads = (uint64_t)item->paired_heads, rows = item->rows;
    if (!heads)
        return QN_OK;
    if (rows % heads || rows / heads % 2 || rows > UINT32_MAX)
        return qn_fail(QN_E_FORMAT, "tensor %s: %llu rows are not %d heads",
                       item->name, (unsigned long long)rows,
                       item->paired_heads);
    item->source_row = qn_calloc(rows, sizeof *item->source_row);
    if (!item->source_row)
        return QN_E_NOMEM;
    uint64_t d = rows / heads;
    for (uint64_t r = 0; r < rows; r++) {
        uint64_t head = r / d, i = r % d;
        item->source_row[r] =
            (uint32_t)(head * d + 2 * (i % (d / 2)) + i / (d / 2));
    }
    return QN_OK;
}

static void measure(qn_item *item)
{
    const qn_weight *w = item->main;
    item->cols = w->ndim ? (uint64_t)w->shape[w->ndim - 1] : 1;
    item->rows = 1;
    for (int i = 0; i + 1 < w->ndim; i++)
        item->rows *= (uint64_t)w->shape[i];
    /* A vector beside paired rows has an element for each of them. */
    if (w->ndim == 1 && item->paired_heads) {
        item->rows = item->cols;
        item->cols = 1;
    }
}

static qn_status set_packed(qn_origin *s, qn_item *item)
{
    qn_status status = qn_quant_find(&s->quant, item->module, &item->from);
    if (!status)
        status = qn_quant_check(&item->from, item->module);
    if (status)
        return status;
    const qn_weight *w = item->main;
    if (w->type != QN_ST_U32 || item->scales->ndim != w->ndim)
        return qn_fail(QN_E_MISMATCH, "%s: weight and scales do not fit",
                       item->module);
    uint64_t bits = (uint64_t)item->from.bits;
    item->cols = item->cols * 32 / bits;
    bool affine = item->from.mode == QN_MODE_AFFINE;
    uint64_t groups = item->cols / (uint64_t)item->from.group;
    uint64_t factors = 1;
    for (int i = 0; i < item->scales->ndim; i++)
        factors *= (uint64_t)item->scales->shape[i];
    bool fits = !(item->cols % (uint64_t)item->from.group) &&
                groups * item->rows == factors;
    if (affine)
        fits = fits && item->biases &&
               item->biases->data.size == item->scales->data.size;
    if (fits)
        return QN_OK;
    return qn_fail(QN_E_MISMATCH,
                   "%s: scales do not fit %d bits in groups of %d",
                   item->module, item->from.bits, item->from.group);
}

static bool is_plain_gguf(int type)
{
    return type == QN_GGUF_F32_T || type == QN_GGUF_F16_T ||
           type == QN_GGUF_BF16_T || type == QN_GGUF_I8_T ||
           type == QN_GGUF_I16_T || type == QN_GGUF_I32_T;
}

static qn_status add_item(qn_origin *s, qn_weight *w)
{
    qn_item *item = &s->items[s->count++];
    *item = (qn_item){
        .name = w->name, .main = w, .gguf = s->gguf != NULL, .gguf_type = -1};
    /* A directory's names are kept, so that others know them, too. */
    item->written = s->gguf ? qn_str_of(w->name) : w->original;
    if (ends_with(w->name, ".weight")) {
        item->module = qn_strndup(w->name, strlen(w->name) - 7);
        if (!item->module)
            return QN_E_NOMEM;
        item->written.size -= strlen(".weight");
    }
    item->paired_heads = paired_heads(s, item);
    measure(item);
    if (s->gguf) {
        if (!is_plain_gguf(w->type))
            item->form = QN_FORM_BLOCKS;
        /* Norms of Gemma are stored with the 1 that model directories leave
         * to the program. */
        bool sum = !strncmp(s->arch, "gemma", 5) &&
                   strcmp(s->arch, "gemma3n") && strcmp(s->arch, "gemma4") &&
                   w->ndim == 1 && ends_with(w->name, "norm.weight");
        item->shift = sum ? -1 : 0;
        return map_rows(item);
    }
    item->scales = item->module ? part_of(s, item->module, ".scales") : NULL;
    if (!item->scales)
        return QN_OK;
    item->form = QN_FORM_PACKED;
    item->biases = part_of(s, item->module, ".biases");
    return set_packed(s, item);
}

/* The type that most floating elements have, of those that can be written. */
static qn_st_dtype common_floats(const qn_origin *s)
{
    uint64_t count[QN_ST_C64 + 1] = {0};
    for (size_t i = 0; i < s->count; i++)
        if (qn_item_is_float(&s->items[i]))
            count[qn_item_floats(&s->items[i])] +=
                s->items[i].rows * s->items[i].cols;
    return count[QN_ST_BF16] > count[QN_ST_F16] &&
                   count[QN_ST_BF16] >= count[QN_ST_F32]
               ? QN_ST_BF16
           : count[QN_ST_F16] >= count[QN_ST_F32] ? QN_ST_F16
                                                  : QN_ST_F32;
}

static int count_layers(const qn_origin *s)
{
    int most = -1;
    for (size_t i = 0; i < s->count; i++) {
        const char *at = strstr(s->items[i].name, "layers.");
        int layer;
        if (at && sscanf(at, "layers.%6d.", &layer) == 1 && layer > most)
            most = layer;
    }
    return most + 1;
}

static qn_status list_items(qn_origin *s)
{
    size_t count = qn_weights_count(s->weights);
    s->items = qn_calloc(count, sizeof *s->items);
    if (!s->items)
        return QN_E_NOMEM;
    for (size_t i = 0; i < count; i++) {
        qn_weight *w = qn_weights_at(s->weights, i);
        if (w->used)
            continue;
        qn_status status = is_part(s, w) ? QN_OK : add_item(s, w);
        if (status)
            return qn_fail_where(status, "%s", s->path);
    }
    s->skipped = qn_weights_skipped(s->weights);
    qn_status status = s->gguf ? QN_OK : qn_stack_experts(s);
    if (status)
        return qn_fail_where(status, "%s", s->path);
    s->floats = common_floats(s);
    s->layers = count_layers(s);
    return QN_OK;
}

qn_status qn_origin_open(qn_origin *out, const char *path)
{
    *out = (qn_origin){.path = qn_strdup(path)};
    if (!out->path)
        return QN_E_NOMEM;
    qn_status status = qn_weights_open(&out->weights, path);
    if (status)
        return status;
    out->gguf = qn_weights_gguf(out->weights);
    qn_str arch = {"", 0};
    if (!out->gguf) {
        status = read_config(out);
    } else {
        status = qn_gguf_get_str(out->gguf, "general.architecture", &arch);
        snprintf(out->arch, sizeof out->arch, "%.*s", (int)arch.size,
                 arch.data);
    }
    return status ? qn_fail_where(status, "%s", path) : list_items(out);
}

void qn_origin_clear(qn_origin *s)
{
    for (size_t i = 0; i < s->count; i++) {
        qn_free(s->items[i].module);
        qn_free(s->items[i].source_row);
        qn_free(s->items[i].power);
        qn_free(s->items[i].factor);
        qn_stack_free(s->items[i].stack);
    }
    qn_free(s->items);
    qn_quant_clear(&s->quant);
    qn_json_doc_free(s->config);
    qn_weights_free(s->weights);
    qn_free(s->path);
    *s = (qn_origin){0};
}
