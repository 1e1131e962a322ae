/* measure.c: what modules are multiplied with, and what rounding costs.
 *
 * The model computes a text, window by window, and its matrices note the sums
 * of squares of what they are multiplied with, column by column.  The error of
 * a product is then estimated from the errors of the weights: roundings of
 * different columns have nothing to do with each other, so their mixed terms
 * are zero in the mean, and a column counts by the power of its input. */
#include "convert.h"

#include "base/alloc.h"
#include "kv/engine.h"
#include "model/nn.h"
#include "runtime/runtime.h"

#include <math.h>

qn_status qn_convert_stream(mlx_stream *out)
{
    mlx_device device = {NULL};
    qn_status status = qn_engine(mlx_get_default_device(&device));
    if (!status) {
        *out = mlx_stream_new_thread_unsafe(device);
        status = qn_engine_made(out->ctx);
    }
    if (device.ctx)
        mlx_device_free(device);
    return status;
}

/* ---- inputs ---- */

enum { WINDOW = 512 };

typedef struct watched {
    qn_origin *source;
    qn_watch *watches; /* one for each item */
    bool notes;
} watched;

static qn_watch *watch_of(void *data, const char *module)
{
    watched *w = data;
    for (size_t i = 0; i < w->source->count; i++)
        if (w->source->items[i].module &&
            !strcmp(w->source->items[i].module, module)) {
            w->watches[i].notes = w->notes;
            return &w->watches[i];
        }
    return NULL;
}

/* The sums grow by a piece of graph with each window. */
static qn_status evaluate(const watched *w)
{
    mlx_vector_array all = mlx_vector_array_new();
    qn_status status = qn_engine_made(all.ctx);
    for (size_t i = 0; i < w->source->count && !status; i++)
        if (w->watches[i].squares.ctx)
            status = qn_engine(
                mlx_vector_array_append_value(all, w->watches[i].squares));
    if (!status)
        status = qn_engine(mlx_eval(all));
    if (all.ctx)
        mlx_vector_array_free(all);
    return status;
}

static qn_status failed(const quern_error *error)
{
    qn_status status = qn_fail((qn_status)error->status, "%s", error->message);
    return *error->where ? qn_fail_where(status, "%s", error->where) : status;
}

static qn_status compute(const watched *w, quern_model *model,
                         const int32_t *ids, size_t count, qn_step_fn step,
                         void *data)
{
    quern_session *session = NULL;
    quern_error error;
    quern_info info;
    quern_model_info(model, &info);
    size_t window = info.ctx < WINDOW ? (size_t)info.ctx : WINDOW;
    qn_status status =
        quern_session_new(&session, model, &error) ? failed(&error) : QN_OK;
    for (size_t at = 0; at < count && !status; at += window) {
        size_t size = count - at < window ? count - at : window;
        quern_session_reset(session);
        if (quern_session_feed(session, ids + at, size, &error))
            status = failed(&error);
        if (!status)
            status = evaluate(w);
        if (!status && step &&
            !step(data, (int64_t)(at + size), (int64_t)count))
            status = qn_fail(QN_E_CANCELLED, "stopped");
    }
    quern_session_free(session);
    return status;
}

static qn_status take_power(qn_item *item, const qn_watch *watch)
{
    if (!watch->squares.ctx || !watch->rows ||
        mlx_array_size(watch->squares) != item->cols)
        return QN_OK;
    const float *sums = mlx_array_data_float32(watch->squares);
    float *power = qn_calloc(item->cols, sizeof *power);
    if (!sums || !power) {
        qn_free(power);
        return QN_E_NOMEM;
    }
    for (uint64_t i = 0; i < item->cols; i++) {
        power[i] = sums[i] / (float)watch->rows;
        if (!isfinite(power[i])) {
            qn_free(power);
            return qn_fail(QN_E_FORMAT,
                           "%s: its input is not finite on the text",
                           item->module);
        }
    }
    qn_free(item->power);
    item->power = power;
    return QN_OK;
}

typedef struct measuring {
    watched w;
    quern_model *model;
    int32_t *ids;
    size_t count;
} measuring;

static qn_status open_model(measuring *m)
{
    quern_options options;
    quern_error error;
    quern_options_init(&options);
    options.parallel = 1;
    /* Files of bfloat16 are computed as they lie there: no copy. */
    options.dtype =
        m->w.source->floats == QN_ST_BF16 ? QUERN_DTYPE_BF16 : QUERN_DTYPE_F32;
    if (qn_model_open_watched(&m->model, m->w.source->path, &options, watch_of,
                              &m->w, &error))
        return failed(&error);
    if (qn_model_is_encoder(m->model->model))
        return qn_fail(QN_E_UNSUPPORTED,
                       "%s: models without logits can't be measured",
                       m->w.source->arch);
    return QN_OK;
}

static qn_status begin(measuring *m, qn_origin *source, qn_str text, bool notes)
{
    quern_error error;
    *m = (measuring){.w = {.source = source, .notes = notes}};
    m->w.watches = qn_calloc(source->count, sizeof *m->w.watches);
    if (!m->w.watches)
        return QN_E_NOMEM;
    qn_status status = open_model(m);
    if (!status &&
        quern_tokenize(m->model, text.data, text.size, QUERN_ADD_SPECIAL,
                       &m->ids, &m->count, &error))
        status = failed(&error);
    if (!status && (!text.size || !m->count))
        status = qn_fail(QN_E_FORMAT, "the text for calibration has no tokens");
    return status;
}

static void end(measuring *m)
{
    qn_error kept;
    qn_error_save(&kept);
    quern_free(m->ids);
    quern_model_free(m->model);
    for (size_t i = 0; m->w.watches && i < m->w.source->count; i++)
        if (m->w.watches[i].squares.ctx)
            mlx_array_free(m->w.watches[i].squares);
    qn_free(m->w.watches);
    qn_error_restore(&kept);
}

qn_status qn_measure_inputs(qn_origin *source, qn_str text, qn_step_fn step,
                            void *data)
{
    measuring m;
    qn_status status = begin(&m, source, text, true);
    if (!status)
        status = compute(&m.w, m.model, m.ids, m.count, step, data);
    for (size_t i = 0; i < source->count && !status; i++)
        status = take_power(&source->items[i], &m.w.watches[i]);
    end(&m);
    return status;
}

/* ---- harm ---- */

/* Logits of the second half of a piece of the text, and what they become. */
typedef struct trial {
    float *logits; /* [rows, vocab], of the model as it is */
    size_t rows, vocab;
    bool compares;
    double sum; /* of divergences */
} trial;

static double log_sum(const float *x, size_t n)
{
    float most = x[0];
    double sum = 0;
    for (size_t i = 1; i < n; i++)
        most = x[i] > most ? x[i] : most;
    for (size_t i = 0; i < n; i++)
        sum += exp((double)x[i] - most);
    return most + log(sum);
}

static double divergence(const float *a, const float *b, size_t n)
{
    double x = log_sum(a, n), y = log_sum(b, n), sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += exp(a[i] - x) * ((a[i] - x) - (b[i] - y));
    return sum;
}

static bool take_row(void *data, size_t token, const float *logits)
{
    trial *t = data;
    float *row = t->logits + token * t->vocab;
    if (t->compares)
        t->sum += divergence(row, logits, t->vocab);
    else
        memcpy(row, logits, t->vocab * sizeof *row);
    return true;
}

static qn_status try_once(trial *t, const measuring *m)
{
    quern_session *session = NULL;
    quern_error error;
    t->sum = 0;
    bool bad = quern_session_new(&session, m->model, &error) ||
               quern_session_feed(session, m->ids, t->rows, &error) ||
               quern_session_score(session, m->ids + t->rows, t->rows, take_row,
                                   t, &error);
    quern_session_free(session);
    return bad ? failed(&error) : QN_OK;
}

qn_status qn_measure_harm(double *harm, qn_origin *source, const int *kinds,
                          int count, const qn_quant *forms, qn_str text,
                          qn_step_fn step, void *data)
{
    enum { ROWS = 128 };
    measuring m;
    quern_info info = {0};
    qn_status status = begin(&m, source, text, false);
    if (!status && m.count < 2)
        status = qn_fail(QN_E_FORMAT, "the text for calibration is too short");
    if (!status)
        quern_model_info(m.model, &info);
    size_t rows =
        m.count < (size_t)info.ctx ? m.count / 2 : (size_t)info.ctx / 2;
    trial t = {.rows = rows < ROWS ? rows : ROWS,
               .vocab = (size_t)info.vocab_size};
    if (!status) {
        t.logits = qn_calloc(t.rows * t.vocab, sizeof *t.logits);
        status = t.logits ? try_once(&t, &m) : QN_E_NOMEM;
    }
    t.compares = true;
    for (int k = 0; k < count && !status; k++) {
        for (size_t i = 0; i < source->count; i++)
            m.w.watches[i].trial = kinds[i] == k ? &forms[i] : NULL;
        status = try_once(&t, &m);
        harm[k] = t.sum / (double)t.rows;
        if (!status && step && !step(data, k + 1, count))
            status = qn_fail(QN_E_CANCELLED, "stopped");
    }
    end(&m);
    qn_free(t.logits);
    return status;
}

/* ---- errors ---- */

static mlx_array subtract(nn *c, mlx_array a, mlx_array b)
{
    NN_STEP(c, mlx_subtract(&res, a, b, c->stream));
}

static mlx_array sum_rows(nn *c, mlx_array x)
{
    NN_STEP(c, mlx_sum_axis(&res, x, 0, false, c->stream));
}

static mlx_array sum_all(nn *c, mlx_array x)
{
    NN_STEP(c, mlx_sum(&res, x, false, c->stream));
}

/* x [rows, cols] -> the sum of x^2 power */
static mlx_array weighted(nn *c, mlx_array x, mlx_array power)
{
    mlx_array sums = sum_rows(c, nn_mul(c, x, x));
    return sum_all(c, power.ctx ? nn_mul(c, sums, power) : sums);
}

/* Adds a piece's parts to sum[0] (of the values) and sum[1 ...] (of what the
 * forms change). */
static qn_status add_piece(double *sum, mlx_array x, mlx_array power,
                           const qn_quant *forms, int count, mlx_stream s)
{
    nn c;
    nn_begin(&c, s);
    mlx_array exact = nn_astype(&c, x, MLX_FLOAT32);
    for (int i = 0; i <= count; i++) {
        mlx_array y = exact;
        if (i)
            y = nn_rounded(&c, x, &forms[i - 1]);
        if (i)
            y = subtract(&c, y, exact);
        y = weighted(&c, y, power);
        float value = 0;
        if (!c.status)
            c.status = qn_engine(mlx_array_eval(y));
        if (!c.status)
            c.status = qn_engine(mlx_array_item_float32(&value, y));
        sum[i] += value;
    }
    return nn_end(&c);
}

/* The power that an input has in front of the item's factors. */
static qn_status power_array(mlx_array *out, const qn_item *item)
{
    if (!item->power)
        return QN_OK;
    float *power = qn_calloc(item->cols, sizeof *power);
    if (!power)
        return QN_E_NOMEM;
    for (uint64_t i = 0; i < item->cols; i++) {
        float f = item->factor ? item->factor[i] : 1;
        power[i] = item->power[i] / (f * f);
    }
    *out = mlx_array_new_data(power, (int[]){(int)item->cols}, 1, MLX_FLOAT32);
    qn_free(power);
    return qn_engine_made(out->ctx);
}

static qn_status read_piece(mlx_array *out, float *values, void *narrow,
                            const qn_item *item, uint64_t first, uint64_t count,
                            mlx_stream s)
{
    qn_status status = qn_read_rows(values, item, first, count, item->dtype, s);
    if (status)
        return status;
    qn_floats_to(narrow, values, count * item->cols, item->dtype);
    *out = mlx_array_new_data(narrow, (int[]){(int)count, (int)item->cols}, 2,
                              qn_array_dtype(item->dtype));
    return qn_engine_made(out->ctx);
}

qn_status qn_measure_errors(double *error, const qn_item *item,
                            const qn_quant *forms, int count, mlx_stream s)
{
    enum { MOST = 8 };
    double sum[MOST + 1] = {0};
    uint64_t cols = item->cols ? item->cols : 1;
    uint64_t piece = QN_PIECE / cols ? QN_PIECE / cols : 1;
    piece = piece < item->rows ? piece : item->rows;
    float *values = qn_calloc(piece * cols, sizeof *values);
    void *narrow = qn_calloc(piece * cols, sizeof(float));
    mlx_array power = {NULL};
    qn_status status = values && narrow ? QN_OK : QN_E_NOMEM;
    if (!status && count > MOST)
        status = qn_fail(QN_E_INTERNAL, "%d forms", count);
    if (!status)
        status = power_array(&power, item);
    for (uint64_t at = 0; at < item->rows && !status; at += piece) {
        uint64_t rows = item->rows - at < piece ? item->rows - at : piece;
        mlx_array x = {NULL};
        status = read_piece(&x, values, narrow, item, at, rows, s);
        if (!status)
            status = add_piece(sum, x, power, forms, count, s);
        if (x.ctx)
            mlx_array_free(x);
    }
    for (int i = 0; i < count && !status; i++)
        error[i] = sum[0] > 0 ? sum[i + 1] / sum[0] : 0;
    if (power.ctx)
        mlx_array_free(power);
    qn_free(values);
    qn_free(narrow);
    return status;
}
