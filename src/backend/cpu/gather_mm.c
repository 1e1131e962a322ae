/* gather_mm.c: products of matrices chosen by indices, and of parts.
 *
 * Reading a matrix of b costs more than multiplying a few rows with it, so
 * products with the same one are done together: the choices are sorted by it,
 * their rows of a put behind one another, and the rows of the result brought to
 * their places.  Products of many rows are done one by one, in place. */
#include "cpu.h"

#include "backend/common/plan.h"
#include "backend/ref/loops.h"
#include "backend/ref/stage.h"
#include "base/alloc.h"
#include "pool.h"

#include <stdlib.h>
#include <string.h>

enum { MANY_ROWS = 32 };

/* Offsets of both matrices, and which of the results it is. */
typedef struct choice {
    int64_t a, b;
    size_t place;
} choice;

static int by_matrix(const void *x, const void *y)
{
    const choice *p = x, *q = y;
    if (p->b != q->b)
        return p->b < q->b ? -1 : 1;
    return p->place < q->place ? -1 : 1;
}

static qn_status read_choices(choice *choices, const qn_node *node)
{
    const qn_array *ia = node->inputs[2], *ib = node->inputs[3];
    qn_plan plan;
    qn_walk walk;
    qn_status status = QN_OK;
    size_t place = 0;
    qn_plan_make(&plan, ia->shape, ia->ndim,
                 (const int64_t *[]){ia->strides, ib->strides}, 2);
    qn_plan_points(&plan);
    for (qn_walk_start(&walk, &plan, 0, plan.nruns); walk.left && !status;
         qn_walk_next(&walk)) {
        choice *c = &choices[place];
        c->place = place++;
        status = qn_ref_matrix_at(&c->a, "gather_mm", node->inputs[0], ia,
                                  walk.offsets[0]);
        if (!status)
            status = qn_ref_matrix_at(&c->b, "gather_mm", node->inputs[1], ib,
                                      walk.offsets[1]);
    }
    return status;
}

/* Sizes of one product, and memory for those that are done together. */
typedef struct products {
    const qn_array *a, *b;
    qn_array *out;
    size_t m, n, k;
    char *rows, *results;
} products;

static size_t result_bytes(const products *p)
{
    return p->m * p->n * qn_array_itemsize(p->out);
}

static qn_status one_product(const products *p, const choice *c)
{
    const qn_array *a = p->a;
    char *out = (char *)qn_array_data(p->out) + c->place * result_bytes(p);
    qn_cpu_rows rows = {.data = qn_element(a, c->a),
                        .type = a->dtype,
                        .m = p->m,
                        .k = p->k,
                        .row = a->strides[a->ndim - 2],
                        .step = a->strides[a->ndim - 1]};
    return qn_cpu_product(&rows, p->b, qn_element(p->b, c->b), out,
                          p->out->dtype);
}

/* Choices of the same matrix. */
static qn_status together(const products *p, const choice *choices,
                          size_t count)
{
    const qn_array *a = p->a;
    size_t item = qn_array_itemsize(a), row = p->k * item;
    int64_t along = a->strides[a->ndim - 1], down = a->strides[a->ndim - 2];
    char *to = p->rows;
    for (size_t c = 0; c < count; c++)
        for (size_t i = 0; i < p->m; i++, to += row)
            qn_ref_copy_run(to, 1,
                            qn_element(a, choices[c].a + (int64_t)i * down),
                            along, p->k, item);
    qn_cpu_rows rows = {.data = p->rows,
                        .type = a->dtype,
                        .m = count * p->m,
                        .k = p->k,
                        .row = (int64_t)p->k,
                        .step = 1};
    qn_status status = qn_cpu_product(&rows, p->b, qn_element(p->b, choices->b),
                                      p->results, p->out->dtype);
    size_t bytes = result_bytes(p);
    for (size_t c = 0; c < count && !status; c++)
        memcpy((char *)qn_array_data(p->out) + choices[c].place * bytes,
               p->results + c * bytes, bytes);
    return status;
}

/* Memory for the longest run of choices of one matrix. */
static qn_status grouped(products *p, choice *choices, size_t count)
{
    size_t longest = 0, in, out;
    qsort(choices, count, sizeof *choices, by_matrix);
    for (size_t i = 0, first = 0; i < count; i++) {
        if (choices[i].b != choices[first].b)
            first = i;
        if (i - first + 1 > longest)
            longest = i - first + 1;
    }
    qn_buffer *rows = NULL, *results = NULL;
    qn_status status = QN_OK;
    if (!qn_mul_size(&in, longest, p->m * p->k * qn_array_itemsize(p->a)) ||
        !qn_mul_size(&out, longest, result_bytes(p)))
        return qn_fail(QN_E_NOMEM, "[gather_mm] %zu rows", longest * p->m);
    status = qn_buffer_new(&rows, in);
    if (!status)
        status = qn_buffer_new(&results, out);
    if (!status) {
        p->rows = rows->data;
        p->results = results->data;
    }
    for (size_t first = 0, end; first < count && !status; first = end) {
        end = first + 1;
        while (end < count && choices[end].b == choices[first].b)
            end++;
        status = together(p, choices + first, end - first);
    }
    qn_buffer_unref(rows);
    qn_buffer_unref(results);
    return status;
}

qn_status qn_cpu_gather_mm(qn_node *node, bool *done)
{
    const qn_array *a = node->inputs[0], *b = node->inputs[1];
    qn_array *out = node->outputs[0];
    products p = {.a = a,
                  .b = b,
                  .out = out,
                  .m = (size_t)a->shape[a->ndim - 2],
                  .n = (size_t)b->shape[b->ndim - 1],
                  .k = (size_t)a->shape[a->ndim - 1]};
    /* Without elements there may still be an index outside: the reference. */
    if (!qn_cpu_narrow_float(a->dtype) || !out->size || !a->size || !b->size)
        return QN_OK;
    size_t count = out->size / (p.m * p.n);
    choice *choices = qn_calloc(count, sizeof *choices);
    if (!choices)
        return QN_E_NOMEM;
    qn_status status = read_choices(choices, node);
    if (!status)
        status = qn_array_alloc(out);
    *done = true;
    if (!status && p.m < MANY_ROWS)
        status = grouped(&p, choices, count);
    else
        for (size_t i = 0; i < count && !status; i++)
            status = one_product(&p, &choices[i]);
    qn_free(choices);
    return status;
}

/* ---- parts of a sum ---- */

qn_status qn_cpu_segmented_mm(qn_node *node, bool *done)
{
    const qn_array *a = node->inputs[0], *b = node->inputs[1];
    const qn_array *segments = node->inputs[2];
    qn_array *out = node->outputs[0];
    if (!qn_cpu_narrow_float(a->dtype) || !out->size)
        return QN_OK;
    qn_status status = qn_array_alloc(out);
    if (status)
        return status;
    *done = true;
    size_t m = (size_t)a->shape[0];
    size_t bytes = m * (size_t)b->shape[1] * qn_array_itemsize(out);
    char *to = qn_array_data(out);
    qn_lines lines;
    qn_walk walk;
    qn_lines_make(&lines, segments->shape, segments->ndim, segments->ndim - 1,
                  (const int64_t *[]){segments->strides}, 1);
    for (qn_walk_start(&walk, &lines.outer, 0, lines.outer.nruns);
         walk.left && !status; qn_walk_next(&walk), to += bytes) {
        int64_t first, end;
        status = qn_ref_segment(&first, &end, segments, walk.offsets[0],
                                lines.step[0], a->shape[1]);
        if (status)
            break;
        qn_cpu_rows rows = {.data = qn_element(a, first * a->strides[1]),
                            .type = a->dtype,
                            .m = m,
                            .k = (size_t)(end - first),
                            .row = a->strides[0],
                            .step = a->strides[1]};
        if (first == end)
            memset(to, 0, bytes);
        else
            status = qn_cpu_product(
                &rows, b, qn_element(b, first * b->strides[0]), to, out->dtype);
    }
    return status;
}
