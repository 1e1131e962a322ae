/* attention.c: softmax(scale * q k^T + mask) v, query row by query row.
 *
 * The keys and values of one head are copied to panels of the type that the
 * sums are formed in: float, or double when an input is float64.  A score is
 * one dot product; weights are summed in double, values in spans of SPAN keys
 * that are added up in double.  Nothing in a row's sums depends on other rows:
 * its bits are those it would have alone.
 *
 * Keys that a bool mask or causality drops get the lowest finite score of the
 * output's type, so a row that keeps nothing averages the values; an additive
 * mask of -inf over the whole row gives NaN; no keys give zeros. */
#include "loops.h"
#include "stage.h"

#include "base/alloc.h"
#include "ops/scalar.h"

#include <float.h>

enum { SPAN = 256 };

typedef struct job {
    const qn_sdpa_params *p;
    const qn_array *q, *k, *v, *mask, *sinks; /* the latter two may be NULL */
    qn_array *out;
    int heads, queries, keys, width, value_width;
    int64_t mask_strides[4]; /* over [B, H, Tq, Tk] */
    double lowest;
    /* Panels and rows, of float or double. */
    void *key_panel, *value_panel, *query, *scores, *part;
    double *total;
} job;

static double lowest_of(qn_dtype dtype)
{
    switch (dtype) {
    case QN_FLOAT16:
        return -65504;
    case QN_BFLOAT16:
        return -0x1.fep127;
    case QN_FLOAT64:
        return -DBL_MAX;
    default:
        return -(double)FLT_MAX;
    }
}

/* Strides over [B, H, Tq, Tk], aligned from the right. */
static void mask_open(job *j, const qn_array *mask)
{
    j->mask = mask;
    for (int i = 0; i < mask->ndim && i < 4; i++)
        if (mask->shape[mask->ndim - 1 - i] != 1)
            j->mask_strides[3 - i] = mask->strides[mask->ndim - 1 - i];
}

/* The offset of row t of a head. */
static int64_t place(const int64_t *strides, int batch, int head, int t)
{
    return batch * strides[0] + head * strides[1] + t * strides[2];
}

static double dot_double(const double *a, const double *b, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

static double exp_double(double x)
{
    return exp(x);
}
static float exp_float(float x)
{
    return expf(x);
}
static float dot_float(const float *a, const float *b, size_t n)
{
    return qn_ref_dot(a, b, n);
}
static void load_float(float *to, qn_dtype dtype, const void *from,
                       int64_t step, int n)
{
    qn_floats_load(to, dtype, from, step, (size_t)n);
}
static void load_double(double *to, qn_dtype dtype, const void *from,
                        int64_t step, int n)
{
    qn_wide_load(to, dtype, from, step, (size_t)n);
}

/* One mask element at a time: its type decides what it does to a score. */
static bool mask_keeps(const job *j, int64_t at)
{
    return *(const uint8_t *)qn_element(j->mask, at) != 0;
}

#define T float
#define FN(name) name##_float
#include "attention.inc"
#undef T
#undef FN

#define T double
#define FN(name) name##_double
#include "attention.inc"
#undef T
#undef FN

static qn_status job_room(job *j, size_t size)
{
    size_t keys = (size_t)j->keys;
    j->key_panel = qn_calloc(keys, (size_t)j->width * size);
    j->value_panel = qn_calloc(keys, (size_t)j->value_width * size);
    j->query = qn_calloc((size_t)j->width, size);
    j->scores = qn_calloc(keys, size);
    j->part = qn_calloc((size_t)j->value_width, size);
    j->total = qn_calloc((size_t)j->value_width, sizeof *j->total);
    return j->key_panel && j->value_panel && j->query && j->scores && j->part &&
                   j->total
               ? QN_OK
               : QN_E_NOMEM;
}

static void job_free(job *j)
{
    qn_free(j->key_panel);
    qn_free(j->value_panel);
    qn_free(j->query);
    qn_free(j->scores);
    qn_free(j->part);
    qn_free(j->total);
}

qn_status qn_ref_scaled_dot_product_attention(qn_node *node)
{
    qn_array **in = node->inputs;
    job j = {.p = node->params, .q = in[0], .k = in[1], .v = in[2]};
    int next = 3;
    j.out = node->outputs[0];
    j.heads = j.q->shape[1];
    j.queries = j.q->shape[2];
    j.keys = j.k->shape[2];
    j.width = j.q->shape[3];
    j.value_width = j.v->shape[3];
    j.lowest = lowest_of(j.out->dtype);
    if (j.p->has_mask)
        mask_open(&j, in[next++]);
    if (j.p->has_sinks)
        j.sinks = in[next];
    qn_status status = qn_array_alloc(j.out);
    if (status || !j.out->size)
        return status;
    if (j.k->shape[1] == 0 || j.heads % j.k->shape[1])
        return qn_fail(QN_E_ARG, "[%s] %d query heads for %d key heads",
                       qn_op_info_of(node->op)->name, j.heads, j.k->shape[1]);
    bool wide = j.q->dtype == QN_FLOAT64 || j.k->dtype == QN_FLOAT64 ||
                j.v->dtype == QN_FLOAT64;
    status = job_room(&j, wide ? sizeof(double) : sizeof(float));
    if (!status && wide)
        attend_double(&j);
    else if (!status)
        attend_float(&j);
    job_free(&j);
    return status;
}
