/* kv.c: see kv.h. */
#include "kv.h"

#include "backend/common/output.h"
#include "backend/common/quant.h"
#include "base/f16.h"

#include <string.h>

enum { MOST_GROUP = 64 };

bool qn_kv_take_over(qn_array *out, const qn_array *in)
{
    return in->row_contiguous && qn_output_donate(out, in);
}

/* Elements of a token in array `part`. */
static size_t width(const qn_kv_form *f, int part)
{
    size_t d = (size_t)f->head_dim;
    if (!f->bits)
        return d;
    return part % 3 ? d / (size_t)f->group : d * (size_t)f->bits / 32;
}

size_t qn_kv_at(const qn_kv_form *f, qn_array *const *arrays, int part,
                int head, int position)
{
    size_t capacity = (size_t)arrays[qn_kv_parts(f) - 1]->shape[1];
    return ((size_t)head * capacity + (size_t)position) * width(f, part);
}

static char *place(const qn_kv_form *f, qn_array *const *arrays, int part,
                   int head, int position)
{
    return (char *)qn_array_data(arrays[part]) +
           qn_kv_at(f, arrays, part, head, position) *
               qn_array_itemsize(arrays[part]);
}

/* A key as a column of its block. */
static void put_column(const qn_kv_form *f, qn_array *const *arrays, int head,
                       int position, const void *k)
{
    int column = position % QN_KV_BLOCK;
    char *block = place(f, arrays, 0, head, position - column);
    size_t d = (size_t)f->head_dim;
    if (qn_dtype_size(f->dtype) == 4) {
        uint32_t *to = (uint32_t *)(void *)block + column;
        const uint32_t *from = k;
        for (size_t i = 0; i < d; i++)
            to[i * QN_KV_BLOCK] = from[i];
    } else {
        uint16_t *to = (uint16_t *)(void *)block + column;
        const uint16_t *from = k;
        for (size_t i = 0; i < d; i++)
            to[i * QN_KV_BLOCK] = from[i];
    }
}

static void put_factor(char *to, size_t i, float value, qn_dtype type)
{
    uint16_t half =
        type == QN_FLOAT16 ? qn_f32_to_f16(value) : qn_f32_to_bf16(value);
    if (type == QN_FLOAT32)
        memcpy(to + i * sizeof value, &value, sizeof value);
    else
        memcpy(to + i * sizeof half, &half, sizeof half);
}

/* A row as codes, into the three arrays from number `first` on. */
static void put_codes(const qn_kv_form *f, qn_array *const *arrays, int first,
                      int head, int position, const float *x)
{
    char *words = place(f, arrays, first, head, position);
    char *scales = place(f, arrays, first + 1, head, position);
    char *biases = place(f, arrays, first + 2, head, position);
    size_t group = (size_t)f->group, groups = (size_t)f->head_dim / group;
    for (size_t g = 0; g < groups; g++) {
        uint8_t codes[MOST_GROUP];
        float scale, bias;
        qn_quant_affine_group(codes, &scale, &bias, x + g * group, group,
                              f->bits);
        qn_quant_pack((uint32_t *)(void *)words +
                          g * group * (size_t)f->bits / 32,
                      codes, group, f->bits);
        put_factor(scales, g, scale, f->dtype);
        put_factor(biases, g, bias, f->dtype);
    }
}

void qn_kv_put(const qn_kv_form *f, qn_array *const *arrays, int head,
               int position, const void *k, const void *v)
{
    if (f->bits) {
        put_codes(f, arrays, 0, head, position, k);
        put_codes(f, arrays, 3, head, position, v);
        return;
    }
    put_column(f, arrays, head, position, k);
    memcpy(place(f, arrays, 1, head, position), v,
           (size_t)f->head_dim * qn_dtype_size(f->dtype));
}
