/* loader.c: see loader.h. */
#include "loader.h"

#include "base/alloc.h"
#include "base/f16.h"
#include "base/gguf_blocks.h"
#include "kv/engine.h"
#include "pack.h"

#include <stdarg.h>
#include <stdio.h>

/* Module paths, and tensor names, which are a little longer; names in one
 * message; matrices that are laid out together. */
enum { MODULE_SIZE = 240, NAME_SIZE = 256, LISTED = 8, LAID_OUT = 3 };

static void drop(mlx_array *array)
{
    if (array->ctx)
        mlx_array_free(*array);
    *array = (mlx_array){NULL};
}

void qn_matrix_clear(qn_matrix *m)
{
    drop(&m->weight);
    drop(&m->turned);
    drop(&m->scales);
    drop(&m->biases);
    drop(&m->bias);
    qn_free(m->source_row);
    m->source_row = NULL;
    m->blocks = NULL;
    qn_panels_clear(&m->panels);
}

/* Rows of a tensor as a tensor of its own; its name is the tensor's. */
struct qn_weight_part {
    qn_weight weight;
    struct qn_weight_part *next;
};

void qn_loader_clear(qn_loader *loader)
{
    while (loader->parts) {
        struct qn_weight_part *next = loader->parts->next;
        qn_free(loader->parts);
        loader->parts = next;
    }
    qn_buf_free(&loader->missing);
}

static void warn(qn_loader *loader, const char *fmt, ...) QN_PRINTF(2, 3);

static void warn(qn_loader *loader, const char *fmt, ...)
{
    if (!loader->warn)
        return;
    char text[QN_ERROR_SIZE];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    loader->warn(loader->warn_data, QN_LOG_WARN, text);
}

/* ---- sums ---- */

static void count_form(qn_loader *loader, const char *name, uint64_t parameters,
                       uint64_t bytes)
{
    loader->parameters += parameters;
    loader->bytes += bytes;
    size_t capacity = sizeof loader->forms / sizeof *loader->forms;
    for (size_t i = 0; i < loader->form_count; i++)
        if (!strcmp(loader->forms[i].name, name)) {
            loader->forms[i].parameters += parameters;
            return;
        }
    if (loader->form_count == capacity)
        return;
    snprintf(loader->forms[loader->form_count].name, sizeof loader->forms->name,
             "%s", name);
    loader->forms[loader->form_count++].parameters = parameters;
}

const char *qn_loader_form(const qn_loader *loader)
{
    size_t best = 0;
    for (size_t i = 1; i < loader->form_count; i++)
        if (loader->forms[i].parameters > loader->forms[best].parameters)
            best = i;
    return loader->form_count ? loader->forms[best].name : "";
}

/* ---- one tensor ---- */

static qn_status fail_at(const qn_loader *loader, qn_status status,
                         const char *name)
{
    if (!status)
        return QN_OK;
    return qn_fail_where(status, "%s: %s", qn_weights_path(loader->weights),
                         name);
}

/* Finds and takes; NULL notes that it is missing. */
static qn_weight *take(qn_loader *loader, const char *name)
{
    qn_weight *w = qn_weights_find(loader->weights, name);
    if (w) {
        w->used = true;
        return w;
    }
    if (loader->missing_count++ < LISTED)
        qn_buf_printf(&loader->missing, "%s%s",
                      loader->missing.size ? ", " : "", name);
    return NULL;
}

bool qn_loader_has(const qn_loader *loader, const char *name)
{
    return qn_weights_find(loader->weights, name) != NULL;
}

void qn_loader_ignore(qn_loader *loader, const char *name)
{
    qn_weight *w = qn_weights_find(loader->weights, name);
    if (w)
        w->used = true;
}

static bool is_gguf(const qn_loader *loader)
{
    return qn_weights_gguf(loader->weights) != NULL;
}

static void shape_text(char *out, size_t size, const int64_t *shape, int ndim)
{
    size_t at = 0;
    out[0] = '\0';
    for (int i = 0; i < ndim && at < size; i++)
        at += (size_t)snprintf(out + at, size - at, "%s%lld", i ? ", " : "",
                               (long long)shape[i]);
}

static qn_status check_shape(const qn_loader *loader, const qn_weight *w,
                             const int64_t *shape, int ndim)
{
    bool same = w->ndim == ndim;
    for (int i = 0; i < ndim && same; i++)
        same = w->shape[i] == shape[i];
    if (same)
        return QN_OK;
    char expected[128], found[128];
    shape_text(expected, sizeof expected, shape, ndim);
    shape_text(found, sizeof found, w->shape, w->ndim);
    return fail_at(loader,
                   qn_fail(QN_E_MISMATCH,
                           "tensor %s: expected shape [%s], found [%s]",
                           w->name, expected, found),
                   w->name);
}

static qn_status bad_type(const qn_loader *loader, const qn_weight *w,
                          const char *expected)
{
    return fail_at(loader,
                   qn_fail(QN_E_UNSUPPORTED,
                           "tensor %s: expected %s, found type %s", w->name,
                           expected, qn_weight_type_name(loader->weights, w)),
                   w->name);
}

/* A copy of `whole` that lives as long as the loader; NULL: no memory. */
static qn_weight *new_part(qn_loader *loader, const qn_weight *whole)
{
    struct qn_weight_part *part = qn_calloc(1, sizeof *part);
    if (!part)
        return NULL;
    part->weight = *whole;
    part->next = loader->parts;
    loader->parts = part;
    return &part->weight;
}

/* A vector as a matrix of one row. */
static qn_status as_row(qn_loader *loader, const qn_weight **w)
{
    qn_weight *row = new_part(loader, *w);
    if (!row)
        return QN_E_NOMEM;
    row->ndim = 2;
    row->shape[1] = row->shape[0];
    row->shape[0] = 1;
    *w = row;
    return QN_OK;
}

/* Makes *w, of any shape with `m->of_rows` rows of all axes but the last, the
 * rows that are `m`, if m is a part; `vector`: entries instead of rows. */
static qn_status take_part(qn_loader *loader, const qn_weight **w,
                           const qn_matrix *m, bool vector)
{
    const qn_weight *whole = *w;
    if (!whole || (!m->of_rows && !(m->vector && !vector && whole->ndim == 1)))
        return QN_OK;
    if (!m->of_rows)
        return as_row(loader, w);
    int ndim = vector ? whole->ndim : whole->ndim - 1;
    int64_t rows = 1, cols = vector ? 1 : whole->shape[ndim < 0 ? 0 : ndim];
    /* Sizes of a parsed header do not overflow. */
    for (int i = 0; i < ndim; i++)
        rows *= whole->shape[i];
    if (ndim < 1 || rows != m->of_rows)
        return check_shape(loader, whole, (int64_t[]){m->of_rows, cols},
                           vector ? 1 : 2);
    qn_weight *part = new_part(loader, whole);
    if (!part)
        return QN_E_NOMEM;
    size_t row = whole->data.size / (size_t)rows;
    part->ndim = vector ? 1 : 2;
    part->shape[0] = m->rows;
    part->shape[1] = cols;
    part->data = (qn_bytes){whole->data.data + (size_t)m->first_row * row,
                            (size_t)m->rows * row};
    *w = part;
    return QN_OK;
}

/* The array type of a tensor that is loaded as it is; false for others. */
static bool plain_dtype(const qn_loader *loader, int type, mlx_dtype *out)
{
    static const struct {
        int gguf, st;
        mlx_dtype dtype;
    } types[] = {
        {QN_GGUF_F32_T, QN_ST_F32, MLX_FLOAT32},
        {QN_GGUF_F16_T, QN_ST_F16, MLX_FLOAT16},
        {QN_GGUF_BF16_T, QN_ST_BF16, MLX_BFLOAT16},
        {QN_GGUF_I8_T, QN_ST_I8, MLX_INT8},
        {QN_GGUF_I16_T, QN_ST_I16, MLX_INT16},
        {QN_GGUF_I32_T, QN_ST_I32, MLX_INT32},
        {-1, QN_ST_U8, MLX_UINT8},
        {-1, QN_ST_U32, MLX_UINT32},
        {-1, QN_ST_F8_E4M3, MLX_UINT8},
        {-1, QN_ST_F8_E8M0, MLX_UINT8},
    };
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (type == (is_gguf(loader) ? types[i].gguf : types[i].st)) {
            *out = types[i].dtype;
            return true;
        }
    return false;
}

static bool is_float(mlx_dtype dtype)
{
    return dtype == MLX_FLOAT32 || dtype == MLX_FLOAT16 ||
           dtype == MLX_BFLOAT16;
}

static void unmap(void *file)
{
    qn_file_unref(file);
}

static void make_shape(int *out, const qn_weight *w)
{
    for (int i = 0; i < w->ndim; i++)
        out[i] = (int)w->shape[i];
}

/* Offset of a tensor's bytes in its file. */
static size_t offset_of(const qn_weight *w)
{
    return (size_t)(w->data.data - qn_file_bytes(w->file).data);
}

static void give_back(const qn_weight *w)
{
    if (!w->owned)
        qn_file_dont_need(w->file, offset_of(w), w->data.size);
}

/* One zero, seen as an array of this shape. */
static qn_status hollow_array(const qn_loader *loader, mlx_array *out,
                              const int *shape, int ndim, mlx_dtype dtype)
{
    mlx_array zero = mlx_array_new_float32(0);
    qn_status status = qn_engine_made(zero.ctx);
    if (!status)
        status = qn_engine(mlx_astype(&zero, zero, dtype, loader->stream));
    if (!status)
        status = qn_engine(
            mlx_broadcast_to(out, zero, shape, (size_t)ndim, loader->stream));
    if (!status)
        status = qn_engine(mlx_array_eval(*out));
    if (zero.ctx)
        mlx_array_free(zero);
    return status;
}

/* The tensor as it lies in the file, or copied where it lies unaligned. */
static qn_status plain_array(const qn_loader *loader, mlx_array *out,
                             const qn_weight *w, mlx_dtype dtype)
{
    int shape[QN_WEIGHT_DIMS];
    make_shape(shape, w);
    if (loader->hollow)
        return hollow_array(loader, out, shape, w->ndim, dtype);
    if ((uintptr_t)w->data.data % mlx_dtype_size(dtype) || !w->data.size ||
        w->owned) {
        *out = mlx_array_new_data(w->data.data, shape, w->ndim, dtype);
    } else {
        /* The array only reads; the cast is for the signature. */
        void *data = (void *)(uintptr_t)w->data.data;
        *out = mlx_array_new_data_managed_payload(data, shape, w->ndim, dtype,
                                                  qn_file_ref(w->file), unmap);
    }
    return qn_engine_made(out->ctx);
}

/* Rows in another order, copied. */
static qn_status reordered_array(mlx_array *out, const qn_weight *w,
                                 mlx_dtype dtype, const uint32_t *source_row)
{
    int shape[QN_WEIGHT_DIMS];
    make_shape(shape, w);
    size_t rows = (size_t)w->shape[0], row = rows ? w->data.size / rows : 0;
    uint8_t *data = qn_alloc(w->data.size);
    if (!data)
        return QN_E_NOMEM;
    for (size_t r = 0; r < rows; r++)
        memcpy(data + r * row, w->data.data + source_row[r] * row, row);
    *out = mlx_array_new_data_managed(data, shape, w->ndim, dtype, qn_free);
    return qn_engine_made(out->ctx);
}

/* Converts *array and computes it. */
static qn_status convert(const qn_loader *loader, mlx_array *array,
                         mlx_dtype dtype)
{
    if (mlx_array_dtype(*array) == dtype)
        return QN_OK;
    qn_status status =
        qn_engine(mlx_astype(array, *array, dtype, loader->stream));
    return status ? status : qn_engine(mlx_array_eval(*array));
}

/* float64, which the array library would not compute with, becomes float32. */
static qn_status narrow_array(qn_loader *loader, mlx_array *out,
                              const qn_weight *w)
{
    int shape[QN_WEIGHT_DIMS];
    make_shape(shape, w);
    size_t count = w->data.size / sizeof(double);
    float *data = qn_calloc(count, sizeof *data);
    if (!data)
        return QN_E_NOMEM;
    for (size_t i = 0; i < count; i++) {
        uint64_t bits = qn_le64(w->data.data + i * sizeof bits);
        double value;
        memcpy(&value, &bits, sizeof value);
        data[i] = (float)value;
    }
    warn(loader, "tensor %s: float64 is loaded as float32", w->name);
    *out =
        mlx_array_new_data_managed(data, shape, w->ndim, MLX_FLOAT32, qn_free);
    return qn_engine_made(out->ctx);
}

/* A floating tensor in the dtype `as`; `source_row` may be NULL. */
static qn_status float_array(qn_loader *loader, mlx_array *out,
                             const qn_weight *w, const uint32_t *source_row,
                             mlx_dtype as)
{
    mlx_dtype dtype;
    qn_status status;
    bool wide = !is_gguf(loader) && w->type == QN_ST_F64 && !source_row;
    if (!wide && (!plain_dtype(loader, w->type, &dtype) || !is_float(dtype)))
        return bad_type(loader, w, "floating-point numbers");
    if (loader->hollow)
        return plain_array(loader, out, w, as);
    if (wide)
        status = narrow_array(loader, out, w);
    else if (source_row)
        status = reordered_array(out, w, dtype, source_row);
    else
        status = plain_array(loader, out, w, dtype);
    bool copied = source_row != NULL;
    if (!status && mlx_array_dtype(*out) != as) {
        status = convert(loader, out, as);
        copied = true;
    }
    if (copied)
        give_back(w);
    return status;
}

static qn_status format_name(char *out, const char *fmt, va_list args)
{
    int size = vsnprintf(out, MODULE_SIZE, fmt, args);
    if (size < 0 || size >= MODULE_SIZE)
        return qn_fail(QN_E_INTERNAL, "weight name is too long");
    return QN_OK;
}

static const char *dtype_name(mlx_dtype dtype)
{
    return dtype == MLX_FLOAT32    ? "f32"
           : dtype == MLX_FLOAT16  ? "f16"
           : dtype == MLX_BFLOAT16 ? "bf16"
                                   : "integer";
}

/* `of`: the matrix that it is the bias of, or NULL. */
static qn_status load_vector(qn_loader *loader, mlx_array *out, int size,
                             const char *name, const uint32_t *source_row,
                             mlx_dtype dtype, const qn_matrix *of)
{
    const qn_weight *w = take(loader, name);
    if (!w)
        return QN_OK;
    qn_status status = of ? take_part(loader, &w, of, true) : QN_OK;
    if (!status)
        status = check_shape(loader, w, (int64_t[]){size}, 1);
    if (!status)
        status = fail_at(loader, float_array(loader, out, w, source_row, dtype),
                         name);
    if (!status)
        count_form(loader, dtype_name(mlx_array_dtype(*out)), (uint64_t)size,
                   mlx_array_nbytes(*out));
    return status;
}

qn_status qn_load_vector(qn_loader *loader, mlx_array *out, int size,
                         const char *fmt, ...)
{
    char name[NAME_SIZE];
    va_list args;
    va_start(args, fmt);
    qn_status status = format_name(name, fmt, args);
    va_end(args);
    return status
               ? status
               : load_vector(loader, out, size, name, NULL, MLX_FLOAT32, NULL);
}

static qn_status add_shift(const qn_loader *loader, mlx_array *array,
                           float shift)
{
    mlx_array more = mlx_array_new_float32(shift);
    qn_status status = qn_engine_made(more.ctx);
    if (!status)
        status = qn_engine(mlx_add(array, *array, more, loader->stream));
    if (!status)
        status = qn_engine(mlx_array_eval(*array));
    if (more.ctx)
        mlx_array_free(more);
    return status;
}

qn_status qn_load_shifted(qn_loader *loader, mlx_array *out, int size,
                          float shift, const char *fmt, ...)
{
    char name[NAME_SIZE];
    va_list args;
    va_start(args, fmt);
    qn_status status = format_name(name, fmt, args);
    va_end(args);
    if (!status)
        status = load_vector(loader, out, size, name, NULL, MLX_FLOAT32, NULL);
    return status || !shift || !out->ctx ? status
                                         : add_shift(loader, out, shift);
}

qn_status qn_load_floats(qn_loader *loader, float **out, int size,
                         const char *name)
{
    qn_weight *w = qn_weights_find(loader->weights, name);
    *out = NULL;
    if (!w)
        return QN_OK;
    w->used = true;
    qn_status status = check_shape(loader, w, (int64_t[]){size}, 1);
    mlx_dtype dtype;
    if (!status &&
        (!plain_dtype(loader, w->type, &dtype) || dtype != MLX_FLOAT32))
        status = bad_type(loader, w, "F32");
    if (status)
        return status;
    float *data = qn_calloc((size_t)size, sizeof *data);
    if (!data)
        return QN_E_NOMEM;
    for (int i = 0; i < size; i++)
        data[i] = qn_bits_float(qn_le32(w->data.data + 4 * (size_t)i));
    *out = data;
    return QN_OK;
}

/* ---- matrices ---- */

/* Undoes the row order for adjacent pairs: row p * d/2 + j of a head stands
 * in the file as row 2 j + p.  NULL when memory is out. */
static uint32_t *paired_rows(int rows, int heads)
{
    uint32_t *map = qn_calloc((size_t)rows, sizeof *map);
    int d = rows / heads;
    for (int r = 0; map && r < rows; r++) {
        int head = r / d, i = r % d;
        map[r] = (uint32_t)(head * d + 2 * (i % (d / 2)) + i / (d / 2));
    }
    return map;
}

static uint32_t *copied_rows(int rows, const uint32_t *order)
{
    uint32_t *map = qn_calloc((size_t)rows, sizeof *map);
    if (map)
        memcpy(map, order, (size_t)rows * sizeof *map);
    return map;
}

/* The view of a dense matrix that products take; counts it. */
static qn_status see_turned(qn_loader *loader, qn_matrix *m)
{
    qn_status status =
        qn_engine(mlx_transpose(&m->turned, m->weight, loader->stream));
    if (!status)
        status = qn_engine(mlx_array_eval(m->turned));
    if (!status)
        count_form(loader, dtype_name(mlx_array_dtype(m->weight)),
                   (uint64_t)m->rows * (uint64_t)m->cols,
                   mlx_array_nbytes(m->weight));
    return status;
}

static qn_status dense_matrix(qn_loader *loader, qn_matrix *m,
                              const qn_weight *w, const uint32_t *source_row)
{
    qn_status status = check_shape(loader, w, (int64_t[]){m->rows, m->cols}, 2);
    if (!status)
        status = float_array(loader, &m->weight, w, source_row,
                             m->exact ? MLX_FLOAT32 : loader->dtype);
    if (!status)
        status = see_turned(loader, m);
    return fail_at(loader, status, w->name);
}

static void count_packed(qn_loader *loader, const qn_matrix *m)
{
    char name[32];
    const char *mode = qn_quant_mode_name(m->quant.mode);
    int bits = m->quant.bits;
    uint64_t bytes;
    if (m->blocks) {
        bool table = m->blocks->type == QN_GGUF_IQ4_NL_T ||
                     m->blocks->type == QN_GGUF_IQ4_XS_T;
        mode = table ? "iq4" : mode;
        bits = table ? 4 : bits;
        bytes = m->blocks->data.size;
    } else {
        bytes = mlx_array_nbytes(m->weight) + mlx_array_nbytes(m->scales);
        bytes += m->biases.ctx ? mlx_array_nbytes(m->biases) : 0;
    }
    snprintf(name, sizeof name, "%s %d-bit g%d", mode, bits, m->quant.group);
    count_form(loader, name, (uint64_t)m->rows * (uint64_t)m->cols, bytes);
}

/* Storage of a converted matrix until arrays own it. */
typedef struct packed_storage {
    uint32_t *words;
    void *scales, *biases;
} packed_storage;

static void free_storage(packed_storage *s)
{
    qn_free(s->words);
    qn_free(s->scales);
    qn_free(s->biases);
}

/* An array that owns *data from now on, also when this fails. */
static qn_status adopt(mlx_array *out, void **data, int rows, size_t cols,
                       mlx_dtype dtype)
{
    *out = mlx_array_new_data_managed(*data, (int[]){rows, (int)cols}, 2, dtype,
                                      qn_free);
    *data = NULL;
    return qn_engine_made(out->ctx);
}

static qn_status new_storage(packed_storage *s, const qn_matrix *m,
                             const qn_pack_form *form)
{
    size_t count = (size_t)m->rows * (size_t)m->cols;
    size_t factors = count / (size_t)form->group * (form->wide ? 4 : 2);
    s->words = qn_alloc_aligned(64, count * (size_t)form->bits / 8);
    s->scales = qn_alloc_aligned(64, factors);
    s->biases = qn_alloc_aligned(64, factors);
    return s->words && s->scales && s->biases ? QN_OK : QN_E_NOMEM;
}

static qn_status pack_blocks(const qn_matrix *m, const qn_weight *w,
                             qn_pack_form *form, const uint32_t *source_row,
                             packed_storage *s)
{
    size_t rows = (size_t)m->rows, cols = (size_t)m->cols;
    qn_status status = new_storage(s, m, form);
    if (status)
        return status;
    if (form->mxfp4) {
        qn_pack_mxfp4(s->words, s->scales, w->data.data, rows, cols,
                      source_row);
        return QN_OK;
    }
    if (form->wide) {
        qn_pack_super(s->words, s->scales, s->biases, w->type, w->data.data,
                      rows, cols, source_row);
        return QN_OK;
    }
    qn_packed_rows out = {s->words, s->scales, s->biases};
    if (qn_pack_rows(&out, w->type, w->data.data, rows, cols, source_row))
        return QN_OK;
    form->wide = true;
    size_t factors = rows * cols / QN_GGUF_GROUP * sizeof(float);
    qn_free(s->scales);
    qn_free(s->biases);
    s->scales = qn_alloc_aligned(64, factors);
    s->biases = qn_alloc_aligned(64, factors);
    if (!s->scales || !s->biases)
        return QN_E_NOMEM;
    qn_pack_wide(s->scales, s->biases, w->type, w->data.data, rows, cols,
                 source_row);
    return QN_OK;
}

static qn_status hollow_arrays(const qn_loader *loader, qn_matrix *m,
                               const qn_pack_form *form)
{
    int words[] = {m->rows, (int)((int64_t)m->cols * form->bits / 32)};
    int factors[] = {m->rows, m->cols / form->group};
    mlx_dtype dtype = form->mxfp4 ? MLX_UINT8 : MLX_FLOAT16;
    qn_status status = hollow_array(loader, &m->weight, words, 2, MLX_UINT32);
    if (!status)
        status = hollow_array(loader, &m->scales, factors, 2, dtype);
    if (!status && !form->mxfp4)
        status = hollow_array(loader, &m->biases, factors, 2, dtype);
    return status;
}

/* The arrays of a matrix that is not laid out. */
static qn_status pack_arrays(qn_matrix *m, const qn_weight *w,
                             qn_pack_form *form, const uint32_t *source_row)
{
    packed_storage s = {0};
    qn_status status = pack_blocks(m, w, form, source_row, &s);
    mlx_dtype dtype = form->mxfp4  ? MLX_UINT8
                      : form->wide ? MLX_FLOAT32
                                   : MLX_FLOAT16;
    size_t groups = (size_t)(m->cols / form->group);
    void *words = s.words;
    s.words = NULL;
    if (!status)
        status = adopt(&m->weight, &words, m->rows,
                       (size_t)m->cols * (size_t)form->bits / 32, MLX_UINT32);
    if (!status)
        status = adopt(&m->scales, &s.scales, m->rows, groups, dtype);
    if (!status && !form->mxfp4)
        status = adopt(&m->biases, &s.biases, m->rows, groups, dtype);
    qn_free(words);
    free_storage(&s);
    give_back(w);
    return status;
}

/* Whether packed matrices become panels, if they can. */
static bool lays_out(const qn_loader *loader)
{
    return loader->int8 && quern_panel_available();
}

static mlx_dtype type_named(const char *name)
{
    return !strcmp(name, "f16")    ? MLX_FLOAT16
           : !strcmp(name, "bf16") ? MLX_BFLOAT16
                                   : MLX_FLOAT32;
}

/* The floats that a packed matrix stands for, rounded as the configuration
 * wants them, in its place. */
static qn_status unpack(qn_loader *loader, qn_matrix *m)
{
    mlx_array values = {NULL};
    qn_status status = qn_engine(mlx_dequantize(
        &values, m->weight, m->scales, m->biases,
        (mlx_optional_int){m->quant.group, true},
        (mlx_optional_int){m->quant.bits, true},
        qn_quant_mode_name(m->quant.mode), (mlx_array){NULL},
        (mlx_optional_dtype){MLX_FLOAT32, true}, loader->stream));
    if (!status)
        status = qn_engine(mlx_array_eval(values));
    if (!status)
        status = convert(loader, &values, type_named(loader->config->dense_as));
    if (!status)
        status =
            convert(loader, &values, m->exact ? MLX_FLOAT32 : loader->dtype);
    drop(&m->weight);
    drop(&m->scales);
    drop(&m->biases);
    m->packed = false;
    m->weight = values;
    return status;
}

static qn_status block_matrix(qn_loader *loader, qn_matrix *m,
                              const qn_weight *w, const uint32_t *source_row)
{
    bool dense = loader->config->dense_as != NULL;
    qn_pack_form form;
    if (!qn_pack_form_of(&form, w->type))
        return bad_type(loader, w,
                        "F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K "
                        "to Q6_K, IQ4_NL, IQ4_XS or MXFP4");
    qn_status status = check_shape(loader, w, (int64_t[]){m->rows, m->cols}, 2);
    if (!status && m->cols % form.block)
        status = qn_fail(QN_E_FORMAT,
                         "rows of %d are not whole blocks of %d elements",
                         m->cols, form.block);
    /* Groups of 16 are an extension of ours. */
    if (!status && form.group < 32 && !quern_panel_available())
        status =
            qn_fail(QN_E_UNSUPPORTED, "type %s needs quern's own array library",
                    qn_weight_type_name(loader->weights, w));
    if (status)
        return fail_at(loader, status, w->name);
    m->packed = true;
    m->quant = (qn_quant){form.mxfp4 ? QN_MODE_MXFP4 : QN_MODE_AFFINE,
                          form.group, form.bits};
    m->zero = form.zero;
    if (lays_out(loader) && !m->arrays && !dense)
        m->blocks = w;
    else if (loader->hollow)
        status = hollow_arrays(loader, m, &form);
    else
        status = pack_arrays(m, w, &form, source_row);
    if (!status && dense && !loader->hollow)
        status = unpack(loader, m);
    if (!status && !m->packed)
        status = see_turned(loader, m);
    else if (!status)
        count_packed(loader, m);
    return fail_at(loader, status, w->name);
}

/* One of the three arrays of a packed matrix in a model directory. */
static qn_status packed_part(qn_loader *loader, mlx_array *out, qn_matrix *m,
                             const char *name, int64_t cols)
{
    const qn_weight *w = take(loader, name);
    if (!w)
        return QN_OK;
    qn_status status = take_part(loader, &w, m, false);
    if (!status)
        status = check_shape(loader, w, (int64_t[]){m->rows, cols}, 2);
    mlx_dtype dtype = MLX_BOOL;
    if (status)
        return status;
    bool plain = plain_dtype(loader, w->type, &dtype);
    if (out == &m->weight) {
        if (!plain || dtype != MLX_UINT32)
            return bad_type(loader, w, "U32");
    } else if (m->quant.mode == QN_MODE_AFFINE) {
        if (!plain || !is_float(dtype))
            return bad_type(loader, w, "floating-point numbers");
    } else if (!plain || dtype != MLX_UINT8) {
        return bad_type(loader, w, "U8");
    }
    m->from[out == &m->weight ? 0 : out == &m->scales ? 1 : 2] = w;
    return fail_at(loader, plain_array(loader, out, w, dtype), name);
}

/* A matrix with biases and floating scales is affine whatever the
 * configuration calls it: no other mode has either. */
static void correct_mode(qn_loader *loader, qn_matrix *m, const char *module)
{
    char name[NAME_SIZE];
    mlx_dtype dtype;
    snprintf(name, sizeof name, "%s.scales", module);
    const qn_weight *scales = qn_weights_find(loader->weights, name);
    snprintf(name, sizeof name, "%s.biases", module);
    if (m->quant.mode == QN_MODE_AFFINE || !qn_loader_has(loader, name) ||
        !plain_dtype(loader, scales->type, &dtype) || !is_float(dtype))
        return;
    if (!loader->corrected)
        warn(loader, "%s is affine, not %s as config.json has it", module,
             qn_quant_mode_name(m->quant.mode));
    loader->corrected = true;
    m->quant.mode = QN_MODE_AFFINE;
}

static qn_status packed_matrix(qn_loader *loader, qn_matrix *m,
                               const char *module)
{
    qn_status status = qn_quant_find(&loader->config->quant, module, &m->quant);
    if (status)
        return fail_at(loader, status, module);
    m->packed = true;
    m->zero = -1;
    correct_mode(loader, m, module);
    if ((status = qn_quant_check(&m->quant, module)))
        return fail_at(loader, status, module);
    int64_t bits = (int64_t)m->cols * m->quant.bits;
    if (m->cols % m->quant.group || bits % 32)
        return fail_at(loader,
                       qn_fail(QN_E_MISMATCH,
                               "%s: rows of %d can't be packed in %d bits and "
                               "groups of %d",
                               module, m->cols, m->quant.bits, m->quant.group),
                       module);
    char name[NAME_SIZE];
    snprintf(name, sizeof name, "%s.weight", module);
    status = packed_part(loader, &m->weight, m, name, bits / 32);
    snprintf(name, sizeof name, "%s.scales", module);
    if (!status)
        status =
            packed_part(loader, &m->scales, m, name, m->cols / m->quant.group);
    snprintf(name, sizeof name, "%s.biases", module);
    if (!status && m->quant.mode == QN_MODE_AFFINE)
        status =
            packed_part(loader, &m->biases, m, name, m->cols / m->quant.group);
    if (!status && m->weight.ctx && m->scales.ctx)
        count_packed(loader, m);
    return status;
}

qn_status qn_load_raw(qn_loader *loader, mlx_array *out, const char *fmt, ...)
{
    char name[NAME_SIZE];
    mlx_dtype dtype;
    va_list args;
    va_start(args, fmt);
    qn_status status = format_name(name, fmt, args);
    va_end(args);
    const qn_weight *w = status ? NULL : take(loader, name);
    if (!w)
        return status;
    if (!plain_dtype(loader, w->type, &dtype))
        return bad_type(loader, w, "numbers as they lie");
    return fail_at(loader, plain_array(loader, out, w, dtype), name);
}

void qn_loader_count(qn_loader *loader, const qn_matrix *m)
{
    if (m->packed)
        count_packed(loader, m);
    else
        count_form(loader, dtype_name(mlx_array_dtype(m->weight)),
                   (uint64_t)m->rows * (uint64_t)m->cols,
                   mlx_array_nbytes(m->weight));
}

/* ---- panels ---- */

void qn_panels_clear(qn_panels *panels)
{
    drop(&panels->data);
    *panels = (qn_panels){.form = {0}};
}

static bool has_panels(const qn_matrix *m)
{
    if (m->blocks)
        return true;
    /* A missing tensor is reported at the end. */
    return m->packed && m->quant.mode != QN_MODE_MXFP8 && m->cols % 32 == 0 &&
           m->weight.ctx && m->scales.ctx &&
           (m->quant.mode != QN_MODE_AFFINE ||
            (m->biases.ctx &&
             mlx_array_dtype(m->biases) == mlx_array_dtype(m->scales)));
}

static bool panels_alike(const qn_matrix *a, const qn_matrix *b)
{
    if (a->cols != b->cols || !a->blocks != !b->blocks)
        return false;
    if (a->blocks)
        return a->blocks->type == b->blocks->type;
    return a->quant.mode == b->quant.mode && a->quant.bits == b->quant.bits &&
           a->quant.group == b->quant.group && a->zero == b->zero &&
           mlx_array_dtype(a->scales) == mlx_array_dtype(b->scales);
}

static bool can_lay_out(const qn_loader *loader, qn_matrix *const *w, int count)
{
    if (!lays_out(loader))
        return false;
    for (int i = 0; i < count; i++)
        if (!has_panels(w[i]) || !panels_alike(w[i], w[0]))
            return false;
    return true;
}

/* The matrices whose blocks are read. */
typedef struct readers {
    const qn_weight *w[LAID_OUT];
    int count;
} readers;

static void done_reading(void *ctx, const void *data, size_t size)
{
    const readers *r = ctx;
    for (int i = 0; i < r->count; i++) {
        const qn_weight *w = r->w[i];
        size_t at = (uintptr_t)data - (uintptr_t)w->data.data;
        if (at < w->data.size)
            qn_file_dont_need(w->file, offset_of(w) + at, size);
    }
}

static qn_status lay_out_blocks(qn_loader *loader, qn_panels *out,
                                qn_matrix *const *w, int count)
{
    readers from = {.count = count};
    quern_panel_blocks blocks[LAID_OUT];
    for (int i = 0; i < count; i++) {
        from.w[i] = w[i]->blocks;
        blocks[i] = (quern_panel_blocks){w[i]->blocks->data.data, w[i]->rows,
                                         w[i]->source_row};
    }
    qn_status status = qn_engine(quern_panel_pack_blocks(
        &out->data, &out->form, from.w[0]->type, w[0]->cols, blocks, count,
        done_reading, &from, loader->stream));
    for (int i = 0; i < count && !status; i++) {
        give_back(w[i]->blocks);
        w[i]->blocks = NULL;
        qn_free(w[i]->source_row);
        w[i]->source_row = NULL;
    }
    return status;
}

static quern_panel_form form_of(const qn_matrix *m)
{
    quern_panel_form form = {.group_size = m->quant.group,
                             .bits = m->quant.bits,
                             .zero = m->zero,
                             .scale_dtype = mlx_array_dtype(m->scales)};
    if (m->quant.mode == QN_MODE_AFFINE)
        return form;
    form.zero = 12;
    form.scale_dtype = MLX_FLOAT16;
    form.table = QUERN_PANEL_E2M1;
    form.scaling =
        m->quant.mode == QN_MODE_MXFP4 ? QUERN_PANEL_E8M0 : QUERN_PANEL_E4M3;
    return form;
}

/* Lists of the arrays of all matrices, one list for each kind. */
static qn_status list_arrays(mlx_vector_array lists[3], qn_matrix *const *w,
                             int count)
{
    qn_status status = QN_OK;
    for (int k = 0; k < 3; k++) {
        lists[k] = mlx_vector_array_new();
        if (!status)
            status = qn_engine_made(lists[k].ctx);
    }
    for (int i = 0; i < count && !status; i++) {
        mlx_array parts[] = {w[i]->weight, w[i]->scales, w[i]->biases};
        for (int k = 0; k < 3 && !status; k++)
            if (parts[k].ctx)
                status = qn_engine(
                    mlx_vector_array_append_value(lists[k], parts[k]));
    }
    return status;
}

static qn_status lay_out_arrays(qn_loader *loader, qn_panels *out,
                                qn_matrix *const *w, int count)
{
    mlx_vector_array lists[3];
    qn_status status = list_arrays(lists, w, count);
    out->form = form_of(w[0]);
    if (!status)
        status =
            qn_engine(quern_panel_pack(&out->data, &out->form, lists[0],
                                       lists[1], lists[2], loader->stream));
    for (int k = 0; k < 3; k++)
        if (lists[k].ctx)
            mlx_vector_array_free(lists[k]);
    /* Now, one after the other: both forms of all would be twice the file. */
    if (!status)
        status = qn_engine(mlx_array_eval(out->data));
    for (int i = 0; i < count && !status; i++) {
        drop(&w[i]->weight);
        drop(&w[i]->scales);
        drop(&w[i]->biases);
        for (int k = 0; k < 3; k++)
            if (w[i]->from[k])
                give_back(w[i]->from[k]);
    }
    return status;
}

qn_status qn_lay_out(qn_loader *loader, qn_panels *out, qn_matrix *const *w,
                     int count)
{
    if (!can_lay_out(loader, w, count))
        return QN_OK;
    qn_panels made = {.form = {0}};
    qn_status status = w[0]->blocks ? lay_out_blocks(loader, &made, w, count)
                                    : lay_out_arrays(loader, &made, w, count);
    if (status)
        qn_panels_clear(&made);
    else
        *out = made;
    return status;
}

static qn_status load_weight(qn_loader *loader, qn_matrix *m,
                             const char *module, const uint32_t *source_row)
{
    char name[NAME_SIZE];
    if (!is_gguf(loader)) {
        snprintf(name, sizeof name, "%s.scales", module);
        if (qn_loader_has(loader, name))
            return packed_matrix(loader, m, module);
    }
    snprintf(name, sizeof name, "%s.weight", module);
    const qn_weight *w = take(loader, name);
    mlx_dtype dtype;
    qn_status status = take_part(loader, &w, m, false);
    if (!w || status)
        return status;
    if (is_gguf(loader) && !plain_dtype(loader, w->type, &dtype))
        return block_matrix(loader, m, w, source_row);
    return dense_matrix(loader, m, w, source_row);
}

static qn_status load_matrix(qn_loader *loader, qn_matrix *m,
                             const qn_matrix_spec *spec, const char *module)
{
    m->rows = spec->rows;
    m->cols = spec->cols;
    m->first_row = spec->first_row;
    m->of_rows = spec->of_rows;
    m->exact = spec->exact;
    m->vector = spec->vector;
    m->arrays = spec->arrays;
    uint32_t *source_row = NULL;
    if (is_gguf(loader) && (spec->paired_heads || spec->source_row)) {
        source_row = spec->source_row
                         ? copied_rows(spec->rows, spec->source_row)
                         : paired_rows(spec->rows, spec->paired_heads);
        if (!source_row)
            return QN_E_NOMEM;
    }
    qn_status status = load_weight(loader, m, module, source_row);
    if (!status && spec->bias) {
        char name[NAME_SIZE];
        snprintf(name, sizeof name, "%s.bias", module);
        status = load_vector(loader, &m->bias, spec->rows, name, source_row,
                             loader->dtype, m);
    }
    if (m->blocks)
        m->source_row = source_row;
    else
        qn_free(source_row);
    if (!status && !spec->grouped)
        status = qn_lay_out(loader, &m->panels, &m, 1);
    return status;
}

qn_status qn_load_matrix(qn_loader *loader, qn_matrix *out,
                         const qn_matrix_spec *spec, const char *fmt, ...)
{
    char module[MODULE_SIZE];
    va_list args;
    va_start(args, fmt);
    qn_status status = format_name(module, fmt, args);
    va_end(args);
    if (!status)
        status = load_matrix(loader, out, spec, module);
    if (status)
        qn_matrix_clear(out);
    else if (loader->watch)
        out->watch = loader->watch(loader->watch_data, module);
    return status;
}

/* ---- the audit ---- */

static bool is_ignored(const char *name, const char *const *ignored)
{
    for (; *ignored; ignored++)
        if (strstr(name, *ignored))
            return true;
    return false;
}

static qn_status report_missing(const qn_loader *loader)
{
    qn_status status = qn_buf_status(&loader->missing);
    if (status)
        return status;
    const char *more = loader->missing_count > LISTED ? ", ..." : "";
    status = qn_fail(QN_E_MISMATCH, "%zu tensors are missing: %s%s",
                     loader->missing_count, loader->missing.data, more);
    return qn_fail_where(status, "%s", qn_weights_path(loader->weights));
}

static qn_status report_unused(qn_loader *loader, const char *const *ignored,
                               bool lenient)
{
    qn_buf names = QN_BUF_INIT;
    size_t count = 0;
    for (size_t i = 0; i < qn_weights_count(loader->weights); i++) {
        const qn_weight *w = qn_weights_at(loader->weights, i);
        if (w->used || is_ignored(w->name, ignored))
            continue;
        if (count++ < LISTED)
            qn_buf_printf(&names, "%s%s", names.size ? ", " : "", w->name);
    }
    qn_status status = qn_buf_status(&names);
    if (!status && count) {
        const char *more = count > LISTED ? ", ..." : "";
        if (lenient)
            warn(loader, "%zu tensors are not used: %s%s", count, names.data,
                 more);
        else
            status = qn_fail(QN_E_MISMATCH,
                             "%zu tensors are not used by this architecture: "
                             "%s%s",
                             count, names.data, more);
    }
    qn_buf_free(&names);
    if (!status)
        return QN_OK;
    return qn_fail_where(status, "%s", qn_weights_path(loader->weights));
}

qn_status qn_loader_finish(qn_loader *loader, const char *const *ignored,
                           bool lenient)
{
    if (loader->missing_count)
        return report_missing(loader);
    size_t skipped = qn_weights_skipped(loader->weights);
    if (skipped)
        warn(loader, "%zu tensors of image and sound towers are skipped",
             skipped);
    size_t position = 0;
    for (const char *path;
         (path = qn_quant_unused(&loader->config->quant, &position));)
        warn(loader, "quantization names %s, which is no packed module", path);
    return report_unused(loader, ignored, lenient);
}
