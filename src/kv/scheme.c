/* scheme.c: see scheme.h. */
#include "scheme.h"

#include "base/turboquant.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    mlx_dtype dtype;
} floats_by_name[] = {
    {"f32", MLX_FLOAT32},
    {"f16", MLX_FLOAT16},
    {"bf16", MLX_BFLOAT16},
};
enum { FLOATS = sizeof floats_by_name / sizeof *floats_by_name };

static qn_status parse_turbo(qn_kv_scheme *out, const char *name)
{
    /* One digit each, and nothing else. */
    const char *widths = name[5] ? name + 5 : ":k8v3";
    if (strlen(widths) != 5 || strncmp(widths, ":k", 2) || widths[3] != 'v' ||
        !isdigit((unsigned char)widths[2]) ||
        !isdigit((unsigned char)widths[4]))
        return qn_fail(QN_E_ARG, "kv: expected turbo:kXvY, found %s", name);
    int k = widths[2] - '0', v = widths[4] - '0';
    if (!qn_tq_has_key_bits(k))
        return qn_fail(QN_E_UNSUPPORTED,
                       "kv: %s: keys have " QN_TQ_KEY_BITS " bits, found %d",
                       name, k);
    if (!qn_tq_has_value_bits(v))
        return qn_fail(
            QN_E_UNSUPPORTED,
            "kv: %s: values have " QN_TQ_VALUE_BITS " bits, found %d", name, v);
    *out = (qn_kv_scheme){.dtype = MLX_FLOAT16, .key_bits = k, .value_bits = v};
    return QN_OK;
}

qn_status qn_kv_scheme_parse(qn_kv_scheme *out, const char *name,
                             mlx_dtype floats)
{
    for (int i = 0; i < FLOATS; i++)
        if (!strcmp(name, floats_by_name[i].name)) {
            *out = (qn_kv_scheme){.dtype = floats_by_name[i].dtype};
            return QN_OK;
        }
    if (!strcmp(name, "affine4") || !strcmp(name, "affine8")) {
        *out =
            (qn_kv_scheme){.dtype = floats, .bits = name[6] - '0', .group = 64};
        return QN_OK;
    }
    if (!strncmp(name, "turbo", 5) && (!name[5] || name[5] == ':'))
        return parse_turbo(out, name);
    return qn_fail(QN_E_ARG,
                   "kv: expected f32, f16, bf16, affine4, affine8, turbo or "
                   "turbo:kXvY, found %s",
                   name);
}

qn_status qn_kv_scheme_fit(qn_kv_scheme *scheme, int head_dim)
{
    char name[QN_KV_NAME_SIZE];
    qn_kv_scheme_name(name, scheme);
    if (scheme->key_bits && !qn_tq_has_dim(head_dim))
        return qn_fail(QN_E_UNSUPPORTED,
                       "kv: %s: head_dim is " QN_TQ_DIMS ", found %d", name,
                       head_dim);
    if (!scheme->bits)
        return QN_OK;
    scheme->group = head_dim % 64 ? 32 : 64;
    if (head_dim % scheme->group)
        return qn_fail(QN_E_UNSUPPORTED,
                       "kv: %s: head_dim is a multiple of 32, found %d", name,
                       head_dim);
    return QN_OK;
}

bool qn_kv_scheme_same(const qn_kv_scheme *a, const qn_kv_scheme *b)
{
    return a->dtype == b->dtype && a->bits == b->bits && a->group == b->group &&
           a->key_bits == b->key_bits && a->value_bits == b->value_bits;
}

void qn_kv_scheme_name(char name[QN_KV_NAME_SIZE], const qn_kv_scheme *scheme)
{
    if (scheme->key_bits) {
        snprintf(name, QN_KV_NAME_SIZE, "turbo:k%dv%d", scheme->key_bits & 15,
                 scheme->value_bits & 15);
        return;
    }
    if (scheme->bits) {
        snprintf(name, QN_KV_NAME_SIZE, "affine%d", scheme->bits & 15);
        return;
    }
    for (int i = 0; i < FLOATS; i++)
        if (floats_by_name[i].dtype == scheme->dtype)
            snprintf(name, QN_KV_NAME_SIZE, "%s", floats_by_name[i].name);
}

size_t qn_kv_scheme_bytes(const qn_kv_scheme *scheme, int head_dim)
{
    size_t d = (size_t)head_dim, item = mlx_dtype_size(scheme->dtype);
    if (scheme->key_bits)
        /* Codes; scale and zero of keys and scale of values for 32 elements. */
        return d * (size_t)(scheme->key_bits + scheme->value_bits) / 8 +
               d / 32 * 3 * item;
    if (scheme->bits)
        return 2 * (d * (size_t)scheme->bits / 8 +
                    2 * d / (size_t)scheme->group * item);
    return 2 * d * item;
}
