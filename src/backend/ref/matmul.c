/* matmul.c: matrix products, of chosen matrices and of parts too, and the dot
 * product of other loops.
 *
 * An element of the result is a sum over k in ascending order, in blocks of
 * SPAN whose totals are added up: of float for the half types and float32,
 * of double for float64, of complex float for complex64.  The order depends on
 * nothing else, so a row has the bits that it would have alone.  Columns of b
 * are copied to a panel first, whatever its strides and type, and serve all
 * rows of a. */
#include "loops.h"
#include "stage.h"

#include "base/alloc.h"
#include "ops/scalar.h"

enum { COLUMNS = 32, SPAN = 256, LANES = 16 };

float qn_ref_dot(const float *a, const float *b, size_t n)
{
    float total = 0;
    while (n) {
        float acc[LANES] = {0};
        size_t part = n < LANES * SPAN ? n : LANES * SPAN;
        size_t i = 0;
        for (; i + LANES <= part; i += LANES)
            for (int lane = 0; lane < LANES; lane++)
                acc[lane] += a[i + (size_t)lane] * b[i + (size_t)lane];
        for (int lane = 0; i < part; i++, lane++)
            acc[lane] += a[i] * b[i];
        for (int half = LANES / 2; half; half /= 2)
            for (int lane = 0; lane < half; lane++)
                acc[lane] += acc[lane + half];
        total += acc[0];
        a += part;
        b += part;
        n -= part;
    }
    return total;
}

/* COLUMNS elements of a row of the result: row (k values) times panel. */
typedef void (*panel_fn)(void *result, const void *row, const void *panel,
                         size_t k);

#define PANEL(T)                                                               \
    static void panel_##T(void *result, const void *row, const void *panel,    \
                          size_t k)                                            \
    {                                                                          \
        T *total = result;                                                     \
        const T *a = row, *b = panel;                                          \
        for (int j = 0; j < COLUMNS; j++)                                      \
            total[j] = 0;                                                      \
        while (k) {                                                            \
            T acc[COLUMNS] = {0};                                              \
            size_t part = k < SPAN ? k : SPAN;                                 \
            for (size_t i = 0; i < part; i++, b += COLUMNS)                    \
                for (int j = 0; j < COLUMNS; j++)                              \
                    acc[j] += a[i] * b[j];                                     \
            for (int j = 0; j < COLUMNS; j++)                                  \
                total[j] += acc[j];                                            \
            a += part;                                                         \
            k -= part;                                                         \
        }                                                                      \
    }
/* clang-format off */
PANEL(float)
PANEL(double)
PANEL(qn_complex64)
/* clang-format on */

typedef struct product {
    const qn_array *a, *b;
    qn_array *out;
    size_t m, n, k, value; /* bytes of a value */
    int64_t a_row, a_col, b_row, b_col;
    panel_fn loop;
    char *panel, *row; /* room for k * COLUMNS and k values */
} product;

/* Columns `first` .. first + n of b, below one another's rows; what is beyond
 * b's last column is zero. */
static void load_panel(const product *p, int64_t b_at, size_t first, size_t n)
{
    memset(p->panel, 0, p->k * COLUMNS * p->value);
    for (size_t k = 0; k < p->k; k++)
        qn_values_load(p->panel + k * COLUMNS * p->value, p->b->dtype,
                       qn_element(p->b, b_at + (int64_t)k * p->b_row +
                                            (int64_t)first * p->b_col),
                       p->b_col, n);
}

static void multiply(const product *p, const int64_t *at)
{
    for (size_t first = 0; first < p->n; first += COLUMNS) {
        size_t n = p->n - first < COLUMNS ? p->n - first : COLUMNS;
        load_panel(p, at[2], first, n);
        for (size_t i = 0; i < p->m; i++) {
            qn_block result;
            qn_values_load(p->row, p->a->dtype,
                           qn_element(p->a, at[1] + (int64_t)i * p->a_row),
                           p->a_col, p->k);
            p->loop(&result, p->row, p->panel, p->k);
            qn_values_store(
                qn_element(p->out, at[0] + (int64_t)(i * p->n + first)),
                p->out->dtype, 1, &result, n);
        }
    }
}

static panel_fn panel_of(qn_dtype dtype)
{
    switch (qn_value_dtype(dtype)) {
    case QN_FLOAT32:
        return panel_float;
    case QN_FLOAT64:
        return panel_double;
    case QN_COMPLEX64:
        return panel_qn_complex64;
    default:
        return NULL;
    }
}

/* What products of these arrays share; `k` is the longest sum. */
static qn_status product_begin(product *p, qn_node *node)
{
    const qn_array *a = node->inputs[0], *b = node->inputs[1];
    qn_array *out = node->outputs[0];
    *p = (product){.a = a, .b = b, .out = out, .loop = panel_of(a->dtype)};
    if (!p->loop)
        return qn_ref_unsupported(node, a->dtype);
    qn_status status = qn_array_alloc(out);
    if (status || !out->size)
        return status;
    p->m = (size_t)a->shape[a->ndim - 2];
    p->n = (size_t)b->shape[b->ndim - 1];
    p->k = (size_t)a->shape[a->ndim - 1];
    p->value = qn_dtype_size(qn_value_dtype(a->dtype));
    p->a_row = a->strides[a->ndim - 2];
    p->a_col = a->strides[a->ndim - 1];
    p->b_row = b->strides[b->ndim - 2];
    p->b_col = b->strides[b->ndim - 1];
    p->panel = qn_calloc(p->k, COLUMNS * p->value);
    p->row = qn_calloc(p->k, p->value);
    return p->panel && p->row ? QN_OK : QN_E_NOMEM;
}

static qn_status product_end(product *p, qn_status status)
{
    qn_free(p->panel);
    qn_free(p->row);
    return status;
}

qn_status qn_ref_matmul(qn_node *node)
{
    product p;
    qn_status status = product_begin(&p, node);
    if (!status && p.out->size) {
        qn_matmul_plan plan;
        qn_walk walk;
        qn_matmul_plan_make(&plan, (const qn_array *[]){p.out, p.a, p.b}, 3);
        p.m = plan.m;
        p.a_row = plan.a_row;
        for (qn_walk_start(&walk, &plan.outer, 0, plan.outer.nruns); walk.left;
             qn_walk_next(&walk))
            multiply(&p, walk.offsets);
    }
    return product_end(&p, status);
}

/* ---- matrices chosen by indices ---- */

qn_status qn_ref_matrix_at(int64_t *out, const char *op, const qn_array *x,
                           const qn_array *indices, int64_t place)
{
    int64_t count = 1;
    for (int i = 0; i < x->ndim - 2; i++)
        count *= x->shape[i];
    int64_t index = qn_integer_at(indices->dtype, qn_element(indices, place)),
            found = index;
    if (index < 0)
        index += count;
    if (index < 0 || index >= count)
        return qn_fail(QN_E_ARG,
                       "[%s] Index %lld is outside of the %lld matrices of an "
                       "operand.",
                       op, (long long)found, (long long)count);
    *out = 0;
    for (int i = x->ndim - 3; i >= 0; i--) {
        *out += index % x->shape[i] * x->strides[i];
        index /= x->shape[i];
    }
    return QN_OK;
}

qn_status qn_ref_gather_mm(qn_node *node)
{
    const qn_array *ia = node->inputs[2], *ib = node->inputs[3];
    product p;
    qn_status status = product_begin(&p, node);
    if (status || !p.out->size)
        return product_end(&p, status);
    qn_plan plan;
    qn_walk walk;
    int64_t at[3] = {0};
    qn_plan_make(&plan, ia->shape, ia->ndim,
                 (const int64_t *[]){ia->strides, ib->strides}, 2);
    qn_plan_points(&plan);
    for (qn_walk_start(&walk, &plan, 0, plan.nruns); walk.left && !status;
         qn_walk_next(&walk)) {
        status =
            qn_ref_matrix_at(&at[1], "gather_mm", p.a, ia, walk.offsets[0]);
        if (!status)
            status =
                qn_ref_matrix_at(&at[2], "gather_mm", p.b, ib, walk.offsets[1]);
        if (!status)
            multiply(&p, at);
        at[0] += (int64_t)(p.m * p.n);
    }
    return product_end(&p, status);
}

/* ---- parts of a sum ---- */

qn_status qn_ref_segment(int64_t *first, int64_t *end, const qn_array *segments,
                         int64_t place, int64_t step, int64_t most)
{
    *first = qn_integer_at(segments->dtype, qn_element(segments, place));
    *end = qn_integer_at(segments->dtype, qn_element(segments, place + step));
    if (*first < 0 || *end < 0 || *first > most || *end > most)
        return qn_fail(QN_E_ARG,
                       "[segmented_mm] The segment from %lld to %lld is "
                       "outside of 0 to %lld.",
                       (long long)*first, (long long)*end, (long long)most);
    if (*end < *first)
        *end = *first;
    return QN_OK;
}

qn_status qn_ref_segmented_mm(qn_node *node)
{
    const qn_array *segments = node->inputs[2];
    product p;
    qn_status status = product_begin(&p, node);
    if (status || !p.out->size)
        return product_end(&p, status);
    qn_lines lines;
    qn_walk walk;
    int64_t at[3] = {0}, most = (int64_t)p.k, first, end;
    qn_lines_make(&lines, segments->shape, segments->ndim, segments->ndim - 1,
                  (const int64_t *[]){segments->strides}, 1);
    for (qn_walk_start(&walk, &lines.outer, 0, lines.outer.nruns); walk.left;
         qn_walk_next(&walk)) {
        status = qn_ref_segment(&first, &end, segments, walk.offsets[0],
                                lines.step[0], most);
        if (status)
            break;
        p.k = (size_t)(end - first);
        at[1] = first * p.a_col;
        at[2] = first * p.b_row;
        multiply(&p, at);
        at[0] += (int64_t)(p.m * p.n);
    }
    return product_end(&p, status);
}
