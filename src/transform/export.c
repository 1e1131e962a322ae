/* export.c: recordings gathered and written.
 *
 * What has been recorded is kept as bytes with gaps, where the elements of
 * constants come from the arrays themselves.  The whole file is written anew
 * for each recording, so there is never half a file. */
#include "export.h"

#include "core/eval.h"
#include "mlxfn_write.h"
#include "signature.h"
#include "slots.h"

#include "base/alloc.h"
#include "base/file.h"

#include <errno.h>

/* A constant of the file. */
typedef struct held {
    qn_array *array; /* as it was captured; held, so no other has its address */
    qn_array *data;  /* the same in row-major order, READY; held */
    uint64_t id;
    size_t at; /* its elements come after this many bytes */
} held;

struct qn_exporter {
    char *path;
    bool shapeless;
    uint64_t last_id;
    qn_buf bytes;
    held *constants; /* in order of their places */
    size_t nconstants, constants_capacity;
    qn_slots slots; /* captured arrays: their index there */
    qn_signature *signatures;
    size_t count;
};

qn_status qn_exporter_new(qn_exporter **out, const char *path, bool shapeless)
{
    qn_exporter *e = qn_calloc(1, sizeof *e);
    char *copy = e && path ? qn_strdup(path) : NULL;
    if (!e || (path && !copy)) {
        qn_free(e);
        return QN_E_NOMEM;
    }
    e->path = copy;
    e->shapeless = shapeless;
    *out = e;
    return QN_OK;
}

static void constants_free(qn_exporter *e, size_t first)
{
    for (size_t i = first; i < e->nconstants; i++) {
        qn_array_unref(e->constants[i].array);
        qn_array_unref(e->constants[i].data);
    }
    e->nconstants = first < e->nconstants ? first : e->nconstants;
}

void qn_exporter_free(qn_exporter *e)
{
    if (!e)
        return;
    constants_free(e, 0);
    for (size_t i = 0; i < e->count; i++)
        qn_signature_free(&e->signatures[i]);
    qn_free(e->signatures);
    qn_free(e->constants);
    qn_slots_free(&e->slots);
    qn_buf_free(&e->bytes);
    qn_free(e->path);
    qn_free(e);
}

/* ---- the file ---- */

typedef struct sink {
    qn_status (*put)(const struct sink *to, const void *data, size_t size);
    qn_file_writer *file;
    const char *path;
    qn_buf *buf;
} sink;

static qn_status put_in_file(const sink *to, const void *data, size_t size)
{
    if (!size || !qn_file_append(to->file, data, size))
        return QN_OK;
    return qn_fail(QN_E_IO, "[export_function] Failed to write %s: %s.",
                   to->path, strerror(errno));
}

static qn_status put_in_buf(const sink *to, const void *data, size_t size)
{
    qn_buf_add(to->buf, data, size);
    return qn_buf_status(to->buf);
}

static qn_status write_parts(const qn_exporter *e, const sink *to)
{
    qn_buf header = QN_BUF_INIT;
    qn_mlxfn_put_text(&header, QN_STR(QN_MLXFN_VERSION));
    qn_mlxfn_put_i32(&header, (int32_t)e->count);
    qn_mlxfn_put_bool(&header, e->shapeless);
    qn_mlxfn_put_text(&header, QN_STR(""));
    qn_status status = qn_buf_status(&header);
    if (!status)
        status = to->put(to, header.data, header.size);
    qn_buf_free(&header);
    size_t done = 0;
    for (size_t i = 0; i < e->nconstants && !status; i++) {
        const held *h = &e->constants[i];
        status = to->put(to, e->bytes.data + done, h->at - done);
        done = h->at;
        if (!status && h->data->size)
            status =
                to->put(to, qn_array_data(h->data), qn_array_nbytes(h->data));
    }
    if (!status && e->bytes.size > done)
        status = to->put(to, e->bytes.data + done, e->bytes.size - done);
    return status;
}

qn_status qn_exporter_bytes(qn_buf *out, const qn_exporter *e)
{
    return write_parts(e, &(sink){.put = put_in_buf, .buf = out});
}

qn_status qn_exporter_write(qn_exporter *e)
{
    qn_file_writer *file;
    if (!e->path)
        return QN_OK;
    qn_status status = qn_file_begin(&file, e->path);
    if (status) {
        qn_error cause;
        qn_error_save(&cause);
        return status == QN_E_NOMEM
                   ? status
                   : qn_fail(status, "[export_function] Failed to open %s: %s",
                             e->path, cause.text);
    }
    status = write_parts(e, &(sink){put_in_file, file, e->path, NULL});
    if (!status)
        return qn_file_commit(file);
    qn_file_abort(file);
    return status;
}

/* ---- recordings ---- */

typedef struct exporting {
    qn_mlxfn_writer w;
    qn_exporter *e;
} exporting;

/* The elements of an array in row-major order. */
static qn_status elements_of(qn_array **out, qn_array *x)
{
    qn_stream *stream;
    qn_status status = qn_eval(&x, 1);
    if (status)
        return status;
    if (x->row_contiguous || !x->size) {
        *out = qn_array_ref(x);
        return QN_OK;
    }
    status = qn_stream_default(&stream, qn_device_default());
    if (!status)
        status = qn_op_contiguous(out, x, false, stream);
    if (status)
        return status;
    status = qn_eval(out, 1);
    if (status)
        qn_array_unref(*out);
    return status;
}

/* The entry names a constant; its elements follow where it is named first. */
static void put_entry(qn_mlxfn_writer *w, uint64_t id)
{
    qn_mlxfn_put_u64(w->bytes, id);
    qn_mlxfn_put_bool(w->bytes, false);
    qn_mlxfn_put_bool(w->bytes, true);
    w->entries++;
}

static qn_status add_constant(exporting *x, uint64_t *id, qn_array *array)
{
    qn_exporter *e = x->e;
    qn_buf *b = x->w.bytes;
    size_t index = qn_slots_find(&e->slots, array);
    if (index != QN_NO_SLOT && index < e->nconstants &&
        e->constants[index].array == array) {
        *id = e->constants[index].id;
        put_entry(&x->w, *id);
        return qn_buf_status(b);
    }
    if (e->nconstants == e->constants_capacity) {
        size_t more = e->constants_capacity ? 2 * e->constants_capacity : 16;
        void *grown = qn_reallocarray(e->constants, more, sizeof(held));
        if (!grown)
            return QN_E_NOMEM;
        e->constants = grown;
        e->constants_capacity = more;
    }
    held *h = &e->constants[e->nconstants];
    qn_status status = qn_slots_put(&e->slots, array, e->nconstants);
    if (!status)
        status = elements_of(&h->data, array);
    if (status)
        return status;
    h->array = qn_array_ref(array);
    h->id = ++x->w.next_id;
    e->nconstants++;
    *id = h->id;
    put_entry(&x->w, *id);
    qn_mlxfn_put_shape(b, array->shape, array->ndim);
    qn_mlxfn_put_dtype(b, array->dtype);
    h->at = b->size;
    return qn_buf_status(b);
}

static uint64_t write_constant(qn_mlxfn_writer *w, qn_array *array)
{
    uint64_t id = 0;
    if (!w->status)
        w->status = add_constant((exporting *)w, &id, array);
    return id;
}

/* Values of inputs, with new ids. */
static qn_mlxfn_value *new_values(qn_mlxfn_writer *w, const qn_arrays *inputs)
{
    qn_mlxfn_value *values = qn_calloc(inputs->count, sizeof *values);
    for (size_t i = 0; i < inputs->count && values; i++) {
        const qn_array *x = inputs->data[i];
        values[i].id = ++w->next_id;
        values[i].type = (qn_mlxfn_type){x->dtype, qn_dims_of(x)};
    }
    return values;
}

static void put_inputs(qn_buf *b, const qn_signature *s,
                       const qn_mlxfn_value *values)
{
    qn_mlxfn_put_u64(b, s->nkeys);
    for (size_t i = 0; i < s->nkeys; i++)
        qn_mlxfn_put_text(b, s->keys[i]);
    qn_mlxfn_put_u64(b, s->inputs.count);
    for (size_t i = 0; i < s->inputs.count; i++)
        qn_mlxfn_put_u64(b, values[i].id);
    qn_mlxfn_put_u64(b, s->inputs.count);
    for (size_t i = 0; i < s->inputs.count; i++) {
        const qn_array *x = s->inputs.data[i];
        qn_mlxfn_put_shape(b, x->shape, x->ndim);
        qn_mlxfn_put_dtype(b, x->dtype);
    }
}

/* Ids of outputs and the number of entries stand before the entries: they are
 * filled in afterwards. */
static qn_status write_function(exporting *x, const qn_signature *s,
                                const qn_tape *tape)
{
    qn_mlxfn_writer *w = &x->w;
    qn_buf *b = w->bytes;
    qn_mlxfn_value *inputs = new_values(w, &s->inputs);
    qn_mlxfn_value *outputs = qn_calloc(tape->noutputs, sizeof *outputs);
    if (!inputs || !outputs)
        w->status = QN_E_NOMEM;
    size_t ids = 0, entries = 0;
    if (!w->status) {
        put_inputs(b, s, inputs);
        qn_mlxfn_put_u64(b, tape->noutputs);
        ids = b->size;
        for (size_t i = 0; i < tape->noutputs; i++)
            qn_mlxfn_put_u64(b, 0);
        entries = b->size;
        qn_mlxfn_put_u64(b, 0);
        for (size_t i = 0; i < s->inputs.count; i++) {
            qn_mlxfn_put_u64(b, inputs[i].id);
            qn_mlxfn_put_bool(b, false);
            qn_mlxfn_put_bool(b, false);
            w->entries++;
        }
        w->status = qn_buf_status(b);
    }
    if (!w->status)
        qn_mlxfn_write_tape(w, tape, inputs, outputs);
    if (!w->status) {
        for (size_t i = 0; i < tape->noutputs; i++)
            qn_put_le64((uint8_t *)b->data + ids + 8 * i, outputs[i].id);
        qn_put_le64((uint8_t *)b->data + entries, w->entries);
    }
    qn_free(inputs);
    qn_free(outputs);
    return w->status;
}

static qn_status add_recording(qn_exporter *e, const qn_function *fun,
                               const qn_signature *s)
{
    qn_tape tape;
    exporting x = {.w = {.bytes = &e->bytes,
                         .shapeless = e->shapeless,
                         .next_id = e->last_id,
                         .constant = write_constant},
                   .e = e};
    qn_status status = qn_tape_record(&tape, fun, &s->inputs, e->shapeless);
    if (status)
        return status;
    status = write_function(&x, s, &tape);
    qn_tape_free(&tape);
    e->last_id = x.w.next_id;
    return status;
}

qn_status qn_exporter_add(qn_exporter *e, const qn_function *fun,
                          qn_array *const *args, size_t nargs,
                          const qn_named *named, size_t nnamed)
{
    for (size_t i = 0; i < e->count; i++)
        if (qn_signature_fits(&e->signatures[i], e->shapeless, args, nargs,
                              named, nnamed))
            return qn_fail(QN_E_ARG,
                           "[export_function] Attempting to export a function "
                           "twice with the same signature is not allowed.");
    size_t size = e->bytes.size, constants = e->nconstants;
    qn_signature *grown =
        qn_reallocarray(e->signatures, e->count + 1, sizeof *grown);
    if (!grown)
        return QN_E_NOMEM;
    e->signatures = grown;
    qn_signature *s = &grown[e->count];
    qn_status status = qn_signature_new(s, args, nargs, named, nnamed);
    if (status)
        return status;
    status = add_recording(e, fun, s);
    if (!status) {
        e->count++;
        status = qn_exporter_write(e);
        e->count -= status != QN_OK;
    }
    if (status) {
        qn_signature_free(s);
        constants_free(e, constants);
        e->bytes.failed = false;
        qn_buf_truncate(&e->bytes, size);
    }
    return status;
}
