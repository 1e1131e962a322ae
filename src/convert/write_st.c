/* write_st.c: items into safetensors files.
 *
 * A file's header says where each tensor lies, so all sizes are known before
 * the first is written; the parts of a module are then written side by side, a
 * piece of its rows at a time. */
#include "convert.h"

#include "base/alloc.h"
#include "kv/engine.h"
#include "model/pack.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <unistd.h>

enum { NAME_SIZE = 64 };

/* ---- the plan ---- */

static void add_out(qn_item *item, const char *suffix, qn_st_dtype dtype,
                    uint64_t cols)
{
    item->out[item->out_count++] = (qn_out_tensor){
        .suffix = suffix,
        .dtype = dtype,
        .cols = (int64_t)cols,
        .size = item->rows * cols * qn_st_dtype_size(dtype),
    };
}

static void plan_packed(qn_item *item, const qn_quant *q, qn_st_dtype factors)
{
    uint64_t groups = item->cols / (uint64_t)q->group;
    bool affine = q->mode == QN_MODE_AFFINE;
    add_out(item, ".weight", QN_ST_U32, item->cols * (uint64_t)q->bits / 32);
    add_out(item, ".scales", affine ? factors : QN_ST_U8, groups);
    if (affine)
        add_out(item, ".biases", factors, groups);
}

static qn_st_dtype kept_type(const qn_item *item)
{
    if (!item->gguf)
        return (qn_st_dtype)item->main->type;
    switch (item->main->type) {
    case QN_GGUF_I8_T:
        return QN_ST_I8;
    case QN_GGUF_I16_T:
        return QN_ST_I16;
    case QN_GGUF_I32_T:
        return QN_ST_I32;
    default:
        return qn_item_floats(item);
    }
}

static void plan_item(qn_item *item)
{
    item->out_count = 0;
    if (item->action == QN_QUANT)
        plan_packed(item, &item->quant, item->dtype);
    else if (item->action == QN_PACK)
        plan_packed(item, &item->quant, item->wide ? QN_ST_F32 : QN_ST_F16);
    else if (item->form == QN_FORM_PACKED && item->action == QN_KEEP)
        plan_packed(item, &item->from, item->dtype);
    else
        add_out(item, item->module ? ".weight" : "",
                item->action == QN_CAST ? item->dtype : kept_type(item),
                item->cols);
}

qn_status qn_st_plan(qn_origin *s, uint64_t limit, int *files, uint64_t *total)
{
    uint64_t in_file = 0;
    *files = 1;
    *total = 0;
    for (size_t i = 0; i < s->count; i++) {
        qn_item *item = &s->items[i];
        plan_item(item);
        uint64_t size = 0;
        for (int k = 0; k < item->out_count; k++)
            size += item->out[k].size;
        if (in_file && in_file + size > limit) {
            ++*files;
            in_file = 0;
        }
        for (int k = 0; k < item->out_count; k++) {
            item->out[k].file = *files - 1;
            item->out[k].at = in_file;
            in_file += item->out[k].size;
        }
        *total += size;
    }
    return *files <= 99999 ? QN_OK
                           : qn_fail(QN_E_ARG, "shard_size: %d files", *files);
}

/* ---- headers ---- */

static void file_name(char name[NAME_SIZE], int file, int files)
{
    if (files == 1)
        snprintf(name, NAME_SIZE, "model.safetensors");
    else
        snprintf(name, NAME_SIZE, "model-%05d-of-%05d.safetensors", file + 1,
                 files);
}

static void write_name(qn_json_writer *w, const qn_item *item,
                       const qn_out_tensor *out)
{
    qn_buf name = QN_BUF_INIT;
    qn_buf_add_str(&name, item->written);
    qn_buf_add_text(&name, out->suffix);
    qn_json_write_key(w, qn_buf_str(&name).data);
    w->out->failed |= name.failed;
    qn_buf_free(&name);
}

static void write_shape(qn_json_writer *w, const qn_item *item,
                        const qn_out_tensor *out)
{
    qn_json_write_key(w, "shape");
    qn_json_write_array(w);
    for (int i = 0; i + 1 < item->main->ndim; i++)
        qn_json_write_int(w, item->main->shape[item->turned && i ? i + 1 : i]);
    if (item->main->ndim == 1)
        qn_json_write_int(w, item->main->shape[0]);
    else if (item->main->ndim)
        qn_json_write_int(w, out->cols);
    qn_json_write_array_end(w);
}

static qn_status make_header(qn_buf *out, const qn_origin *s, int file)
{
    qn_json_writer w;
    uint8_t length[8];
    qn_buf_add(out, "\0\0\0\0\0\0\0\0", 8);
    qn_json_write_begin(&w, out);
    qn_json_write_object(&w);
    qn_json_write_key(&w, "__metadata__");
    qn_json_write_object(&w);
    qn_json_write_key(&w, "format");
    qn_json_write_text(&w, "mlx");
    qn_json_write_object_end(&w);
    for (size_t i = 0; i < s->count; i++)
        for (int k = 0; k < s->items[i].out_count; k++) {
            const qn_out_tensor *t = &s->items[i].out[k];
            if (t->file != file)
                continue;
            write_name(&w, &s->items[i], t);
            qn_json_write_object(&w);
            qn_json_write_key(&w, "dtype");
            qn_json_write_text(&w, qn_st_dtype_name(t->dtype));
            write_shape(&w, &s->items[i], t);
            qn_json_write_key(&w, "data_offsets");
            qn_json_write_array(&w);
            qn_json_write_uint(&w, t->at);
            qn_json_write_uint(&w, t->at + t->size);
            qn_json_write_array_end(&w);
            qn_json_write_object_end(&w);
        }
    qn_json_write_object_end(&w);
    while (!out->failed && out->size % 8)
        qn_buf_add_char(out, ' ');
    if (qn_buf_status(out))
        return QN_E_NOMEM;
    qn_put_le64(length, out->size - 8);
    memcpy(out->data, length, sizeof length);
    return QN_OK;
}

static qn_status write_index(const qn_origin *s, const char *dir, int files)
{
    qn_buf out = QN_BUF_INIT;
    qn_json_writer w;
    uint64_t total = 0;
    for (size_t i = 0; i < s->count; i++)
        for (int k = 0; k < s->items[i].out_count; k++)
            total += s->items[i].out[k].size;
    qn_json_write_begin(&w, &out);
    qn_json_write_object(&w);
    qn_json_write_key(&w, "metadata");
    qn_json_write_object(&w);
    qn_json_write_key(&w, "total_size");
    qn_json_write_uint(&w, total);
    qn_json_write_object_end(&w);
    qn_json_write_key(&w, "weight_map");
    qn_json_write_object(&w);
    for (size_t i = 0; i < s->count; i++)
        for (int k = 0; k < s->items[i].out_count; k++) {
            char name[NAME_SIZE];
            file_name(name, s->items[i].out[k].file, files);
            write_name(&w, &s->items[i], &s->items[i].out[k]);
            qn_json_write_text(&w, name);
        }
    qn_json_write_object_end(&w);
    qn_json_write_object_end(&w);
    char *path = qn_path_join(dir, "model.safetensors.index.json");
    qn_status status = path ? qn_buf_status(&out) : QN_E_NOMEM;
    if (!status)
        status = qn_file_write_atomic(path, out.data, out.size);
    qn_free(path);
    qn_buf_free(&out);
    return status;
}

/* ---- one item ---- */

typedef struct sink {
    int fd, file;
    uint64_t base; /* where the data begins */
    char path[4096];
    mlx_stream stream;
    qn_step_fn step;
    void *data;
    int64_t done, total;
} sink;

static qn_status put(sink *k, qn_out_tensor *t, const void *data, uint64_t size)
{
    const char *at = data;
    while (size) {
        ssize_t n = pwrite(k->fd, at, size, (off_t)(k->base + t->at));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            int error = n ? errno : ENOSPC;
            qn_status status = qn_fail(error == ENOSPC ? QN_E_SPACE : QN_E_IO,
                                       "cannot write: %s", strerror(error));
            return qn_fail_where(status, "%s", k->path);
        }
        at += n;
        t->at += (uint64_t)n;
        size -= (uint64_t)n;
    }
    return QN_OK;
}

/* Room for a piece, in the forms that it passes through. */
typedef struct room {
    float *values;
    void *narrow, *scales, *biases;
} room;

static void free_room(room *r)
{
    qn_free(r->values);
    qn_free(r->narrow);
    qn_free(r->scales);
    qn_free(r->biases);
}

static qn_status check_finite(const qn_item *item, const float *values,
                              uint64_t first, uint64_t count)
{
    for (uint64_t i = 0; i < count * item->cols; i++)
        if (!isfinite(values[i]))
            return qn_fail(QN_E_FORMAT,
                           "tensor %s: %s at index %llu can't be quantized",
                           item->name, isnan(values[i]) ? "NaN" : "infinity",
                           (unsigned long long)(first * item->cols + i));
    return QN_OK;
}

/* By its bytes: not every build of the library gives pointers to halves. */
static qn_status put_array(sink *k, qn_out_tensor *t, mlx_array array)
{
    mlx_array bytes = mlx_array_new();
    qn_status status = qn_engine(mlx_view(&bytes, array, MLX_UINT8, k->stream));
    if (!status)
        status = qn_engine(mlx_array_eval(bytes));
    if (!status) {
        const uint8_t *data = mlx_array_data_uint8(bytes);
        status = data ? put(k, t, data, mlx_array_nbytes(bytes))
                      : qn_fail(QN_E_INTERNAL, "no data");
    }
    mlx_array_free(bytes);
    return status;
}

static qn_status quantize_piece(sink *k, qn_item *item, room *r, uint64_t first,
                                uint64_t count)
{
    const qn_quant *q = &item->quant;
    mlx_array array = {NULL};
    mlx_vector_array parts = mlx_vector_array_new();
    qn_status status =
        qn_read_rows(r->values, item, first, count, item->dtype, k->stream);
    if (!status)
        status = check_finite(item, r->values, first, count);
    if (!status) {
        qn_floats_to(r->narrow, r->values, count * item->cols, item->dtype);
        array =
            mlx_array_new_data(r->narrow, (int[]){(int)count, (int)item->cols},
                               2, qn_array_dtype(item->dtype));
        status = qn_engine_made(array.ctx);
    }
    if (!status)
        status = qn_engine(mlx_quantize(
            &parts, array, (mlx_optional_int){q->group, true},
            (mlx_optional_int){q->bits, true}, qn_quant_mode_name(q->mode),
            (mlx_array){NULL}, k->stream));
    if (!status)
        status = qn_engine(mlx_eval(parts));
    for (int i = 0; i < item->out_count && !status; i++) {
        mlx_array part = mlx_array_new();
        status = qn_engine(mlx_vector_array_get(&part, parts, (size_t)i));
        if (!status)
            status = put_array(k, &item->out[i], part);
        mlx_array_free(part);
    }
    mlx_vector_array_free(parts);
    if (array.ctx)
        mlx_array_free(array);
    return status;
}

static qn_status cast_piece(sink *k, qn_item *item, room *r, uint64_t first,
                            uint64_t count)
{
    qn_status status =
        qn_read_rows(r->values, item, first, count, item->dtype, k->stream);
    if (status)
        return status;
    qn_floats_to(r->narrow, r->values, count * item->cols, item->dtype);
    return put(k, &item->out[0], r->narrow,
               count * item->cols * qn_st_dtype_size(item->dtype));
}

static qn_status pack_piece(sink *k, qn_item *item, room *r, uint64_t first,
                            uint64_t count)
{
    const uint8_t *data = item->main->data.data;
    const uint32_t *map = item->source_row ? item->source_row + first : NULL;
    int type = item->main->type;
    size_t cols = (size_t)item->cols;
    uint64_t factors = count * item->cols / (uint64_t)item->quant.group;
    qn_pack_form form;
    if (!map)
        data += first * qn_row_bytes(item);
    qn_pack_form_of(&form, type);
    if (form.mxfp4) {
        qn_pack_mxfp4(r->narrow, r->scales, data, count, cols, map);
    } else if (form.wide) {
        qn_pack_super(r->narrow, r->scales, r->biases, type, data, count, cols,
                      map);
    } else {
        qn_packed_rows out = {r->narrow, r->scales, r->biases};
        qn_pack_rows(&out, type, data, count, cols, map);
        if (item->wide)
            qn_pack_wide(r->scales, r->biases, type, data, count, cols, map);
    }
    qn_status status = put(k, &item->out[0], r->narrow,
                           count * item->cols * (uint64_t)form.bits / 8);
    size_t size = qn_st_dtype_size(item->out[1].dtype);
    if (!status)
        status = put(k, &item->out[1], r->scales, factors * size);
    if (!status && !form.mxfp4)
        status = put(k, &item->out[2], r->biases, factors * size);
    return status;
}

/* One of the arrays of a packed module, perhaps with scales of another type. */
static qn_status keep_part(sink *k, qn_out_tensor *t, const qn_weight *w,
                           room *r)
{
    if (w->type == (int)t->dtype || t->dtype == QN_ST_U8)
        return put(k, t, w->data.data, w->data.size);
    uint64_t count = w->data.size / qn_st_dtype_size((qn_st_dtype)w->type);
    for (uint64_t i = 0; i < count; i += QN_PIECE) {
        uint64_t n = count - i < QN_PIECE ? count - i : QN_PIECE;
        qn_read_plain(r->values, w, i, n);
        qn_floats_to(r->narrow, r->values, n, t->dtype);
        qn_status status = put(k, t, r->narrow, n * qn_st_dtype_size(t->dtype));
        if (status)
            return status;
    }
    return QN_OK;
}

static qn_status keep_packed(sink *k, qn_item *item, room *r)
{
    qn_status status = QN_OK;
    for (size_t p = 0; p < qn_stack_count(item) && !status; p++) {
        const qn_item *part = qn_stack_at(item, p);
        const qn_weight *w[] = {part->main, part->scales, part->biases};
        for (int i = 0; i < item->out_count && !status; i++)
            status = keep_part(k, &item->out[i], w[i], r);
    }
    return status;
}

static qn_status keep_piece(sink *k, qn_item *item, room *r, uint64_t first,
                            uint64_t count)
{
    return put(k, &item->out[0], qn_raw_rows(r->narrow, item, first, count),
               count * qn_row_bytes(item));
}

static qn_status make_room(room *r, const qn_item *item, uint64_t piece)
{
    uint64_t values = piece * item->cols;
    if (values < QN_PIECE)
        values = QN_PIECE;
    *r = (room){.values = NULL};
    bool exact = item->action == QN_PACK;
    if (item->action == QN_CAST || item->action == QN_QUANT ||
        item->form == QN_FORM_PACKED)
        r->values = qn_calloc(values, sizeof *r->values);
    r->narrow = qn_calloc(values, sizeof(double));
    if (exact) {
        r->scales = qn_calloc(values / QN_MIN_GROUP, sizeof(float));
        r->biases = qn_calloc(values / QN_MIN_GROUP, sizeof(float));
    }
    bool good = r->narrow && (!exact || (r->scales && r->biases));
    return good ? QN_OK : QN_E_NOMEM;
}

static void give_back(const qn_item *item, uint64_t first, uint64_t count)
{
    const qn_weight *w = item->main;
    if (item->stack)
        return; /* each part as a whole, in the end */
    size_t row = qn_row_bytes(item), base = qn_file_bytes(w->file).size;
    size_t at = (size_t)(w->data.data - qn_file_bytes(w->file).data);
    if (!item->source_row && !w->owned && at < base)
        qn_file_dont_need(w->file, at + first * row, count * row);
}

static qn_status write_rows(sink *k, qn_item *item, room *r, uint64_t piece)
{
    for (uint64_t first = 0; first < item->rows; first += piece) {
        uint64_t count =
            item->rows - first < piece ? item->rows - first : piece;
        qn_status status =
            item->action == QN_QUANT  ? quantize_piece(k, item, r, first, count)
            : item->action == QN_CAST ? cast_piece(k, item, r, first, count)
            : item->action == QN_PACK ? pack_piece(k, item, r, first, count)
                                      : keep_piece(k, item, r, first, count);
        if (status)
            return status;
        give_back(item, first, count);
        k->done += (int64_t)(count * qn_row_bytes(item));
        if (k->step && !k->step(k->data, k->done, k->total))
            return qn_fail(QN_E_CANCELLED, "stopped");
    }
    return QN_OK;
}

static void drop_pages(const qn_item *item)
{
    const qn_weight *parts[] = {item->main, item->scales, item->biases};
    for (int i = 0; i < 3; i++)
        if (parts[i] && !parts[i]->owned)
            qn_file_dont_need(parts[i]->file,
                              (size_t)(parts[i]->data.data -
                                       qn_file_bytes(parts[i]->file).data),
                              parts[i]->data.size);
}

static qn_status write_item(sink *k, qn_item *item)
{
    room r;
    uint64_t cols = item->cols ? item->cols : 1;
    uint64_t piece = QN_PIECE / cols ? QN_PIECE / cols : 1;
    uint64_t start[QN_OUT_PARTS];
    for (int i = 0; i < item->out_count; i++)
        start[i] = item->out[i].at;
    qn_status status = make_room(&r, item, piece);
    if (!status && item->form == QN_FORM_PACKED && item->action == QN_KEEP)
        status = keep_packed(k, item, &r);
    else if (!status)
        status = write_rows(k, item, &r, piece);
    free_room(&r);
    for (size_t p = 0; p < qn_stack_count(item); p++)
        drop_pages(qn_stack_at(item, p));
    for (int i = 0; i < item->out_count && !status; i++)
        if (item->out[i].at != start[i] + item->out[i].size)
            status = qn_fail(QN_E_INTERNAL, "%s: %llu bytes instead of %llu",
                             item->name,
                             (unsigned long long)(item->out[i].at - start[i]),
                             (unsigned long long)item->out[i].size);
    return status;
}

/* ---- files ---- */

static qn_status begin_file(sink *k, const qn_origin *s, const char *dir,
                            int file, int files)
{
    char name[NAME_SIZE];
    qn_buf header = QN_BUF_INIT;
    file_name(name, file, files);
    if (snprintf(k->path, sizeof k->path, "%s/%s", dir, name) >=
        (int)sizeof k->path)
        return qn_fail(QN_E_ARG, "%s: the path is too long", dir);
    k->fd = open(k->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (k->fd < 0) {
        qn_status status =
            qn_fail(QN_E_IO, "cannot create: %s", strerror(errno));
        return qn_fail_where(status, "%s", k->path);
    }
    qn_status status = make_header(&header, s, file);
    k->file = file;
    k->base = 0;
    qn_out_tensor whole = {.at = 0};
    if (!status)
        status = put(k, &whole, header.data, header.size);
    k->base = header.size;
    qn_buf_free(&header);
    return status;
}

static qn_status end_file(sink *k, qn_status status)
{
    if (k->fd < 0)
        return status;
    bool failed = fsync(k->fd) != 0;
    failed |= close(k->fd) != 0;
    k->fd = -1;
    if (status || !failed)
        return status;
    status = qn_fail(errno == ENOSPC ? QN_E_SPACE : QN_E_IO, "cannot write: %s",
                     strerror(errno));
    return qn_fail_where(status, "%s", k->path);
}

qn_status qn_st_write(qn_origin *s, const char *dir, int files, qn_step_fn step,
                      void *data)
{
    sink k = {.fd = -1, .step = step, .data = data};
    for (size_t i = 0; i < s->count; i++)
        k.total += (int64_t)s->items[i].main->data.size;
    qn_status status = qn_convert_stream(&k.stream);
    int file = -1;
    for (size_t i = 0; i < s->count && !status; i++) {
        qn_item *item = &s->items[i];
        /* Items are in the order of the files. */
        if (item->out[0].file != file) {
            status = end_file(&k, QN_OK);
            file = item->out[0].file;
            if (!status)
                status = begin_file(&k, s, dir, file, files);
        }
        if (!status)
            status = write_item(&k, item);
        if (status)
            qn_fail_where(status, "%s", s->path);
    }
    if (!status && !s->count)
        status = qn_fail(QN_E_FORMAT, "the model has no tensors");
    status = end_file(&k, status);
    if (k.stream.ctx)
        mlx_stream_free(k.stream);
    mlx_clear_cache();
    if (!status && files > 1)
        status = write_index(s, dir, files);
    return status;
}
