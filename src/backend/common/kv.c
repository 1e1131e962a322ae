/* kv.c: see kv.h. */
#include "kv.h"

#include "backend/common/output.h"
#include "kv_codes.h"

#include <string.h>

bool qn_kv_take_over(qn_array *out, const qn_array *in)
{
    return in->row_contiguous && qn_output_donate(out, in);
}

size_t qn_kv_at(const qn_array *array, int head, int position)
{
    size_t n = (size_t)array->shape[1], row = (size_t)array->shape[2];
    size_t at = (size_t)position;
    if (array->ndim == 4) {
        row *= (size_t)array->shape[3];
        at /= QN_KV_BLOCK;
    }
    return ((size_t)head * n + at) * row;
}

static char *place(qn_array *array, int head, int position)
{
    return (char *)qn_array_data(array) +
           qn_kv_at(array, head, position) * qn_array_itemsize(array);
}

/* ---- floats ---- */

/* d elements of 4 or 2 bytes that lie `step` apart. */
static void copy_column(void *to, size_t to_step, const void *from,
                        size_t from_step, size_t d, size_t item)
{
    if (item == 4) {
        uint32_t *out = to;
        const uint32_t *in = from;
        for (size_t i = 0; i < d; i++)
            out[i * to_step] = in[i * from_step];
    } else {
        uint16_t *out = to;
        const uint16_t *in = from;
        for (size_t i = 0; i < d; i++)
            out[i * to_step] = in[i * from_step];
    }
}

/* Where a key's first element is. */
static char *column_of(qn_array *keys, int head, int position)
{
    return place(keys, head, position) +
           (size_t)(position % QN_KV_BLOCK) * qn_array_itemsize(keys);
}

static void put_floats(qn_array *const *arrays, int head, int position,
                       const void *k, const void *v)
{
    size_t d = (size_t)arrays[1]->shape[2], item = qn_array_itemsize(arrays[1]);
    copy_column(column_of(arrays[0], head, position), QN_KV_BLOCK, k, 1, d,
                item);
    memcpy(place(arrays[1], head, position), v, d * item);
}

void qn_kv_put(const qn_kv_form *f, qn_array *const *arrays, int head,
               int position, const void *k, const void *v)
{
    if (!qn_kv_packed(f)) {
        put_floats(arrays, head, position, k, v);
        return;
    }
    for (int i = 0; i < 2; i++) {
        qn_kv_side side = qn_kv_side_of(f, arrays, i == 0, head, position);
        qn_kv_side_encode(&side, position % QN_KV_BLOCK, i ? v : k);
    }
}

/* ---- planes ---- */

/* The row of a token in a plane [1, heads, count, n]. */
static char *plane_row(qn_array *plane, int head, int position)
{
    size_t row = (size_t)head * (size_t)plane->shape[2] + (size_t)position;
    return (char *)qn_array_data(plane) +
           row * (size_t)plane->shape[3] * qn_array_itemsize(plane);
}

void qn_kv_read_head(const qn_kv_form *f, qn_array *const *planes,
                     qn_array *const *arrays, int head, int count)
{
    size_t d = (size_t)f->head_dim, item = qn_dtype_size(f->dtype);
    for (int t = 0; t < count; t++) {
        char *row[QN_KV_PARTS];
        for (int i = 0; i < qn_kv_parts(f); i++)
            row[i] = plane_row(planes[i], head, t);
        if (!qn_kv_packed(f)) {
            copy_column(row[0], 1, column_of(arrays[0], head, t), QN_KV_BLOCK,
                        d, item);
            memcpy(row[1], place(arrays[1], head, t), d * item);
            continue;
        }
        qn_kv_side keys = qn_kv_side_of(f, arrays, true, head, t);
        qn_kv_side values = qn_kv_side_of(f, arrays, false, head, t);
        qn_kv_side_read(&keys, t % QN_KV_BLOCK, row);
        qn_kv_side_read(&values, t % QN_KV_BLOCK, row + qn_kv_value_part(f));
    }
}

void qn_kv_write_head(const qn_kv_form *f, qn_array *const *arrays,
                      qn_array *const *planes, int head, int count)
{
    for (int t = 0; t < count; t++) {
        const char *row[QN_KV_PARTS];
        for (int i = 0; i < qn_kv_parts(f); i++)
            row[i] = plane_row(planes[i], head, t);
        if (!qn_kv_packed(f)) {
            put_floats(arrays, head, t, row[0], row[1]);
            continue;
        }
        qn_kv_side keys = qn_kv_side_of(f, arrays, true, head, t);
        qn_kv_side values = qn_kv_side_of(f, arrays, false, head, t);
        qn_kv_side_write(&keys, t % QN_KV_BLOCK, row);
        qn_kv_side_write(&values, t % QN_KV_BLOCK, row + qn_kv_value_part(f));
    }
}
