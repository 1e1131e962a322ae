/* elements.c: see elements.h. */
#include "elements.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "core/eval.h"
#include "ops/ops.h"
#include "ops/params.h"

#include <limits.h>

/* ---- loading ---- */

typedef struct source {
    qn_io *io;
    size_t offset, count; /* elements */
    qn_dtype dtype;
    bool swapped;
} source;

static void swap_bytes(uint8_t *data, size_t count, size_t width)
{
    for (; count; count--, data += width)
        for (size_t i = 0; i < width / 2; i++) {
            uint8_t low = data[i];
            data[i] = data[width - 1 - i];
            data[width - 1 - i] = low;
        }
}

static qn_status fill(void *from, void *const *data)
{
    const source *s = from;
    size_t size = qn_dtype_size(s->dtype);
    qn_status status =
        qn_io_read_at(s->io, data[0], s->count * size, s->offset);
    if (status)
        return status;
    uint8_t *bytes = data[0];
    if (s->swapped && s->dtype == QN_COMPLEX64)
        swap_bytes(bytes, 2 * s->count, size / 2);
    else if (s->swapped)
        swap_bytes(bytes, s->count, size);
    /* Loops over bool count on 0 and 1. */
    for (size_t i = 0; s->dtype == QN_BOOL && i < s->count; i++)
        bytes[i] = bytes[i] != 0;
    return QN_OK;
}

static void free_source(void *from)
{
    source *s = from;
    qn_io_unref(s->io);
    qn_free(s);
}

qn_status qn_elements_load(qn_array **out, qn_io *io, const qn_elements *e,
                           qn_stream *stream)
{
    source *s = qn_alloc(sizeof *s);
    if (!s)
        return QN_E_NOMEM;
    *s = (source){.io = qn_io_ref(io),
                  .offset = e->offset,
                  .dtype = e->dtype,
                  .swapped = e->swapped};
    const qn_load_output output = {e->dtype, e->shape, e->ndim};
    const qn_load_params params = {.fill = fill,
                                   .free = free_source,
                                   .source = s,
                                   .col_major = e->col_major};
    qn_array *array;
    qn_status status = qn_op_load(&array, &output, 1, &params, stream);
    if (status) {
        free_source(s);
        return status;
    }
    s->count = array->size;
    *out = array;
    return QN_OK;
}

qn_status qn_elements_dim(int *out, uint64_t dim, qn_str what)
{
    if (dim > INT_MAX)
        return qn_fail(
            QN_E_FORMAT, "%.*s: expected dimensions of at most %d, found %llu",
            (int)what.size, what.data, INT_MAX, (unsigned long long)dim);
    *out = (int)dim;
    return QN_OK;
}

/* ---- saving ---- */

qn_status qn_elements_settle(qn_array **out, qn_array *array, bool col_major)
{
    qn_status status = qn_eval(&array, 1);
    if (status)
        return status;
    if (array->row_contiguous || (col_major && array->col_contiguous)) {
        *out = qn_array_ref(array);
        return QN_OK;
    }
    qn_stream *stream;
    qn_array *copy = NULL;
    status = qn_stream_default(&stream, (qn_device){QN_DEVICE_CPU, 0});
    if (!status)
        status = qn_op_contiguous(&copy, array, false, stream);
    if (!status)
        status = qn_eval(&copy, 1);
    if (status)
        qn_array_unref(copy);
    else
        *out = copy;
    return status;
}

qn_status qn_elements_save(qn_io *io, qn_array *array)
{
    qn_array *settled;
    qn_status status = qn_elements_settle(&settled, array, false);
    if (status)
        return status;
    status = qn_io_write(io, qn_array_data(settled), qn_array_nbytes(settled));
    qn_array_unref(settled);
    return status;
}

/* ---- arrays by name ---- */

static void drop(void *array)
{
    qn_array_unref(array);
}

qn_status qn_named_add(qn_map *map, qn_str name, const char *suffix,
                       qn_array *array)
{
    qn_buf key = QN_BUF_INIT;
    qn_buf_add_str(&key, name);
    qn_buf_add_text(&key, suffix);
    qn_buf_add_char(&key, '\0');
    qn_status status = qn_buf_status(&key);
    bool added = false;
    qn_map_value *slot = NULL;
    if (!status) {
        slot = qn_map_put(map, qn_buf_str(&key), &added);
        if (!slot)
            status = QN_E_NOMEM;
        else if (!added)
            status = qn_fail(QN_E_FORMAT,
                             "expected one array named \"%.500s\", "
                             "found two",
                             key.data);
    }
    qn_buf_free(&key);
    if (status)
        qn_array_unref(array);
    else
        slot->ptr = array;
    return status;
}

void qn_named_free(qn_map *map)
{
    qn_map_free(map, drop);
}

qn_status qn_named_eval(const qn_map *map)
{
    size_t count = qn_map_size(map);
    qn_array **arrays = qn_reallocarray(NULL, count, sizeof *arrays);
    if (!arrays)
        return QN_E_NOMEM;
    for (size_t i = 0; i < count; i++)
        arrays[i] = qn_map_value_at(map, i)->ptr;
    qn_status status = qn_eval(arrays, count);
    qn_free(arrays);
    return status;
}
