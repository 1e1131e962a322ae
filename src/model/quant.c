/* quant.c: see quant.h. */
#include "quant.h"

#include "base/alloc.h"

struct qn_quant_override {
    char *path;
    bool packed; /* false: the configuration says `false` */
    qn_quant quant;
    bool used;
};

const char *qn_quant_mode_name(qn_quant_mode mode)
{
    static const char *const names[] = {"affine", "mxfp4", "mxfp8", "nvfp4"};
    return names[mode];
}

static bool has_bits(int bits)
{
    return bits == 2 || bits == 3 || bits == 4 || bits == 5 || bits == 6 ||
           bits == 8;
}

qn_status qn_quant_check(const qn_quant *q, const char *what)
{
    bool good = false;
    switch (q->mode) {
    case QN_MODE_AFFINE:
        good = has_bits(q->bits) &&
               (q->group == 32 || q->group == 64 || q->group == 128);
        break;
    case QN_MODE_MXFP4:
        good = q->bits == 4 && q->group == 32;
        break;
    case QN_MODE_MXFP8:
        good = q->bits == 8 && q->group == 32;
        break;
    case QN_MODE_NVFP4:
        good = q->bits == 4 && q->group == 16;
        break;
    }
    if (good)
        return QN_OK;
    return qn_fail(QN_E_UNSUPPORTED,
                   "quantization of %s: mode %s has no %d bits in groups of %d",
                   what, qn_quant_mode_name(q->mode), q->bits, q->group);
}

static qn_status read_int(const qn_json *object, const char *key, int *out,
                          const char *where)
{
    const qn_json *value = qn_json_get(object, key);
    if (!value)
        return QN_OK;
    int64_t n;
    if (!qn_json_as_int(value, &n) || n < 0 || n > 1 << 20) {
        qn_status status =
            qn_fail(QN_E_FORMAT, "%s: expected a small integer, found %s", key,
                    qn_json_type_name(value->type));
        return qn_fail_where(status, "%s", where);
    }
    *out = (int)n;
    return QN_OK;
}

static qn_status read_mode(const qn_json *object, qn_quant_mode *mode,
                           const char *where)
{
    const qn_json *value = qn_json_get(object, "mode");
    qn_str text;
    if (!value)
        return QN_OK;
    if (!qn_json_as_str(value, &text)) {
        qn_status status =
            qn_fail(QN_E_FORMAT, "mode: expected a string, found %s",
                    qn_json_type_name(value->type));
        return qn_fail_where(status, "%s", where);
    }
    for (int m = QN_MODE_AFFINE; m <= QN_MODE_NVFP4; m++)
        if (qn_str_is(text, qn_quant_mode_name((qn_quant_mode)m))) {
            *mode = (qn_quant_mode)m;
            return QN_OK;
        }
    qn_status status =
        qn_fail(QN_E_UNSUPPORTED, "quantization mode '%.*s' is not supported",
                (int)text.size, text.data);
    return qn_fail_where(status, "%s", where);
}

/* What a mode means where the object leaves bits and group out. */
static void set_mode_defaults(qn_quant *q)
{
    static const qn_quant defaults[] = {
        {QN_MODE_AFFINE, 64, 4},
        {QN_MODE_MXFP4, 32, 4},
        {QN_MODE_MXFP8, 32, 8},
        {QN_MODE_NVFP4, 16, 4},
    };
    *q = defaults[q->mode];
}

static qn_status read_quant(const qn_json *object, qn_quant *q,
                            const char *where, const char *what)
{
    q->mode = QN_MODE_AFFINE;
    qn_status status = read_mode(object, &q->mode, where);
    set_mode_defaults(q);
    if (!status)
        status = read_int(object, "bits", &q->bits, where);
    if (!status)
        status = read_int(object, "group_size", &q->group, where);
    if (!status && (status = qn_quant_check(q, what)))
        qn_fail_where(status, "%s", where);
    return status;
}

static bool is_setting(qn_str key)
{
    return qn_str_is(key, "bits") || qn_str_is(key, "group_size") ||
           qn_str_is(key, "mode") || qn_str_is(key, "quant_method");
}

/* One entry of the table that is keyed by a module's path. */
static qn_status read_override(qn_quant_table *table, qn_str key,
                               const qn_json *value, const char *where)
{
    struct qn_quant_override *o = &table->overrides[table->count];
    *o = (struct qn_quant_override){.quant = table->defaults};
    o->path = qn_strndup(key.data, key.size);
    if (!o->path)
        return QN_E_NOMEM;
    table->count++;
    if (value->type == QN_JSON_T_OBJECT) {
        o->packed = true;
        return read_quant(value, &o->quant, where, o->path);
    }
    if (qn_json_as_bool(value, &o->packed))
        return QN_OK;
    qn_status status =
        qn_fail(QN_E_FORMAT, "%s: expected true, false or an object, found %s",
                o->path, qn_json_type_name(value->type));
    return qn_fail_where(status, "%s", where);
}

/* ---- methods of others ---- */

static bool says(const qn_json *object, const char *key, const char *text)
{
    qn_str value;
    return qn_json_as_str(qn_json_get(object, key), &value) &&
           qn_str_is(value, text);
}

/* The weights' settings of compressed-tensors: those of its one group. */
static const qn_json *compressed_weights(const qn_json *value)
{
    const qn_json *groups = qn_json_get(value, "config_groups");
    if (!groups || groups->type != QN_JSON_T_OBJECT || groups->count != 1)
        return NULL;
    return qn_json_get(&groups->items[0], "weights");
}

/* Four bits in groups, as the method calls them. */
static qn_status read_foreign_form(qn_quant_table *out, const qn_json *value,
                                   qn_str method, const char *where)
{
    int bits = 4, group = 128;
    bool compressed = qn_str_is(method, "compressed-tensors");
    const qn_json *from = compressed ? compressed_weights(value) : value;
    if (compressed && says(value, "format", "nvfp4-pack-quantized")) {
        out->foreign = QN_FOREIGN_NVFP4;
        out->defaults = (qn_quant){QN_MODE_NVFP4, 16, 4};
        return QN_OK;
    }
    const char *name = compressed ? "num_bits" : "bits";
    qn_status status = read_int(from, name, &bits, where);
    if (!status)
        status = read_int(from, "group_size", &group, where);
    if (status)
        return status;
    if (compressed && says(value, "format", "pack-quantized") &&
        says(from, "type", "int"))
        out->foreign = QN_FOREIGN_INT4;
    else if (qn_str_is(method, "awq"))
        out->foreign = QN_FOREIGN_AWQ;
    else if (qn_str_is(method, "gptq"))
        out->foreign = says(value, "checkpoint_format", "gptq_v2")
                           ? QN_FOREIGN_GPTQ2
                           : QN_FOREIGN_GPTQ;
    out->defaults = (qn_quant){QN_MODE_AFFINE, group, bits};
    if (out->foreign &&
        (bits != 4 || (group != 32 && group != 64 && group != 128))) {
        out->foreign = QN_FOREIGN_NONE;
        status =
            qn_fail(QN_E_UNSUPPORTED,
                    "quantization method '%.*s': expected 4 bits in groups "
                    "of 32, 64 or 128, found %d in groups of %d",
                    (int)method.size, method.data, bits, group);
        qn_fail_where(status, "%s", where);
    }
    return status;
}

static qn_status read_foreign(qn_quant_table *out, const qn_json *value,
                              qn_str method, const char *where)
{
    qn_status status = read_foreign_form(out, value, method, where);
    out->present = out->foreign != QN_FOREIGN_NONE;
    if (status || out->present)
        return status;
    status =
        qn_fail(QN_E_UNSUPPORTED, "quantization method '%.*s' is not supported",
                (int)method.size, method.data);
    return qn_fail_where(status, "%s.quant_method", where);
}

qn_status qn_quant_parse(qn_quant_table *out, const qn_json *value,
                         const char *where)
{
    *out = (qn_quant_table){0};
    if (!value || value->type == QN_JSON_T_NULL)
        return QN_OK;
    if (value->type != QN_JSON_T_OBJECT) {
        qn_status status = qn_fail(QN_E_FORMAT, "expected an object, found %s",
                                   qn_json_type_name(value->type));
        return qn_fail_where(status, "%s", where);
    }
    const qn_json *method = qn_json_get(value, "quant_method");
    if (method && method->type != QN_JSON_T_NULL) {
        qn_str text = {"?", 1};
        qn_json_as_str(method, &text);
        /* Of the authors' own: tensors with names that its family reads. */
        if (qn_str_is(text, "mxfp4"))
            return QN_OK;
        return read_foreign(out, value, text, where);
    }
    out->present = true;
    qn_status status =
        read_quant(value, &out->defaults, where, "the whole model");
    if (status)
        return status;
    out->overrides = qn_calloc(value->count, sizeof *out->overrides);
    if (!out->overrides)
        return QN_E_NOMEM;
    for (uint32_t i = 0; i < value->count && !status; i++)
        if (!is_setting(value->keys[i]))
            status =
                read_override(out, value->keys[i], &value->items[i], where);
    if (status)
        qn_quant_clear(out);
    return status;
}

void qn_quant_clear(qn_quant_table *table)
{
    for (size_t i = 0; i < table->count; i++)
        qn_free(table->overrides[i].path);
    qn_free(table->overrides);
    *table = (qn_quant_table){0};
}

qn_status qn_quant_find(qn_quant_table *table, const char *path, qn_quant *out)
{
    if (!table->present)
        return qn_fail(QN_E_MISMATCH,
                       "%s has scales, but the configuration has no "
                       "quantization",
                       path);
    for (size_t i = 0; i < table->count; i++) {
        struct qn_quant_override *o = &table->overrides[i];
        if (strcmp(o->path, path))
            continue;
        o->used = true;
        if (!o->packed)
            return qn_fail(QN_E_MISMATCH,
                           "%s has scales, but quantization says false for it",
                           path);
        *out = o->quant;
        return QN_OK;
    }
    *out = table->defaults;
    return QN_OK;
}

const char *qn_quant_unused(const qn_quant_table *table, size_t *position)
{
    while (*position < table->count) {
        const struct qn_quant_override *o = &table->overrides[(*position)++];
        if (!o->used && o->packed)
            return o->path;
    }
    return NULL;
}
