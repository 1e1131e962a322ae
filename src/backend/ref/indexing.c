/* indexing.c: elements and slices at places that other arrays name.
 *
 * Indices are hostile input: each is brought into range, or its update is
 * dropped, before anything is read or written (ops/params.h says which). */
#include "loops.h"
#include "stage.h"

#include "base/alloc.h"

#include <string.h>

/* ---- one index ---- */

/* Where along an axis slices of `size` may begin: 0 .. length - size. */
typedef struct range {
    int64_t length, size;
} range;

static int64_t clamped(range r, int64_t index)
{
    int64_t at = index < 0 ? index + r.length : index;
    int64_t last = r.length - r.size;
    return at < 0 ? 0 : at > last ? last : at;
}

static bool inside(range r, int64_t *index)
{
    if (*index < 0)
        *index += r.length;
    return *index >= 0 && *index <= r.length - r.size;
}

static qn_status taken_from_nothing(const qn_node *node)
{
    return qn_fail(QN_E_ARG, "[%s] cannot take elements from an empty array",
                   qn_op_info_of(node->op)->name);
}

/* ---- slices at several index arrays ---- */

/* Where each slice begins, in elements from the array's first. */
typedef struct places {
    size_t count;
    int64_t *offsets; /* owned */
    bool *dropped;    /* owned; NULL: indices are clamped */
} places;

static void places_free(places *p)
{
    qn_free(p->offsets);
    qn_free(p->dropped);
}

static void places_add(places *p, const qn_array *indices, range r,
                       int64_t stride)
{
    qn_plan plan;
    qn_walk walk;
    qn_plan_make(&plan, indices->shape, indices->ndim,
                 (const int64_t *[]){indices->strides}, 1);
    qn_plan_points(&plan);
    qn_walk_start(&walk, &plan, 0, plan.nruns);
    for (size_t i = 0; i < p->count; i++, qn_walk_next(&walk)) {
        const void *from = qn_element(indices, walk.offsets[0]);
        int64_t index = qn_integer_at(indices->dtype, from);
        if (!p->dropped)
            p->offsets[i] += clamped(r, index) * stride;
        else if (inside(r, &index))
            p->offsets[i] += index * stride;
        else
            p->dropped[i] = true;
    }
}

/* One slice of `sizes` in `array` for each of `count` index tuples: inputs 1
 * .. naxes of the node.  The caller frees *out on success. */
static qn_status places_make(places *out, const qn_node *node,
                             const qn_array *array, const int *axes, int naxes,
                             const int *sizes, size_t count, bool drop)
{
    places p = {.count = count};
    p.offsets = qn_calloc(count, sizeof *p.offsets);
    if (drop)
        p.dropped = qn_calloc(count, sizeof *p.dropped);
    if (!p.offsets || (drop && !p.dropped)) {
        places_free(&p);
        return QN_E_NOMEM;
    }
    for (int i = 0; i < naxes; i++) {
        int axis = axes[i];
        places_add(&p, node->inputs[1 + i],
                   (range){array->shape[axis], sizes[axis]},
                   array->strides[axis]);
    }
    *out = p;
    return QN_OK;
}

qn_status qn_ref_gather(qn_node *node)
{
    const qn_gather_params *p = node->params;
    const qn_array *in = node->inputs[0];
    qn_array *out = node->outputs[0];
    qn_status status = qn_array_alloc(out);
    if (status || !out->size)
        return status;
    if (!in->size)
        return taken_from_nothing(node);
    size_t each = 1;
    for (int axis = 0; axis < in->ndim; axis++)
        each *= (size_t)p->slice_sizes[axis];
    places at;
    status = places_make(&at, node, in, p->axes, p->naxes, p->slice_sizes,
                         out->size / each, false);
    if (status)
        return status;
    int64_t rows[QN_MAX_NDIM];
    qn_row_strides(rows, p->slice_sizes, in->ndim);
    for (size_t i = 0; i < at.count; i++)
        qn_ref_combine_window(
            QN_COMBINE_SET, out->dtype,
            (qn_ref_window){qn_element(out, (int64_t)(i * each)), rows},
            (qn_ref_window){qn_element(in, at.offsets[i]), in->strides},
            p->slice_sizes, in->ndim);
    places_free(&at);
    return QN_OK;
}

qn_status qn_ref_scatter(qn_node *node)
{
    const qn_scatter_params *p = node->params;
    const qn_array *updates = node->inputs[1 + p->naxes];
    qn_array *out = node->outputs[0];
    qn_status status = qn_ref_start_from(out, node->inputs[0]);
    if (status || !updates->size)
        return status;
    /* The updates' axes: those of the indices, then those of a slice. */
    int lead = updates->ndim - out->ndim;
    const int *sizes = updates->shape + lead;
    qn_plan plan;
    qn_walk walk;
    qn_plan_make(&plan, updates->shape, lead,
                 (const int64_t *[]){updates->strides}, 1);
    qn_plan_points(&plan);
    places at;
    status =
        places_make(&at, node, out, p->axes, p->naxes, sizes, plan.size, true);
    if (status)
        return status;
    qn_walk_start(&walk, &plan, 0, plan.nruns);
    for (size_t i = 0; i < at.count; i++, qn_walk_next(&walk)) {
        if (at.dropped[i])
            continue;
        qn_ref_combine_window(
            p->combine, out->dtype,
            (qn_ref_window){qn_element(out, at.offsets[i]), out->strides},
            (qn_ref_window){qn_element(updates, walk.offsets[0]),
                            updates->strides + lead},
            sizes, out->ndim);
    }
    places_free(&at);
    return QN_OK;
}

/* ---- one element per index along an axis ---- */

/* Strides of `array` over the axes of the indices: axes that it has only once
 * stand still, except the indexed one. */
static const int64_t *spread(int64_t *strides, const qn_array *array,
                             const qn_array *indices, int axis)
{
    for (int i = 0; i < indices->ndim; i++) {
        bool once = array->shape[i] == 1 && i != axis;
        strides[i] = once ? 0 : array->strides[i];
    }
    return strides;
}

qn_status qn_ref_take_along_axis(qn_node *node)
{
    const qn_axis_params *p = node->params;
    const qn_array *in = node->inputs[0], *indices = node->inputs[1];
    qn_array *out = node->outputs[0];
    qn_status status = qn_array_alloc(out);
    if (status || !out->size)
        return status;
    if (!in->size)
        return taken_from_nothing(node);
    range r = {in->shape[p->axis], 1};
    size_t n = (size_t)indices->shape[p->axis], size = qn_array_itemsize(out);
    int64_t strides[QN_MAX_NDIM];
    qn_lines lines;
    qn_walk walk;
    qn_lines_make(&lines, indices->shape, indices->ndim, p->axis,
                  (const int64_t *[]){out->strides,
                                      spread(strides, in, indices, p->axis),
                                      indices->strides},
                  3);
    for (qn_walk_start(&walk, &lines.outer, 0, lines.outer.nruns); walk.left;
         qn_walk_next(&walk))
        for (size_t i = 0; i < n; i++) {
            int64_t k = (int64_t)i;
            const void *from =
                qn_element(indices, walk.offsets[2] + k * lines.step[2]);
            int64_t at = clamped(r, qn_integer_at(indices->dtype, from));
            qn_ref_copy_run(
                qn_element(out, walk.offsets[0] + k * lines.step[0]), 1,
                qn_element(in, walk.offsets[1] + at * lines.step[1]), 1, 1,
                size);
        }
    return QN_OK;
}

qn_status qn_ref_put_along_axis(qn_node *node)
{
    const qn_scatter_axis_params *p = node->params;
    const qn_array *indices = node->inputs[1], *values = node->inputs[2];
    qn_array *out = node->outputs[0];
    qn_status status = qn_ref_start_from(out, node->inputs[0]);
    if (status || !indices->size)
        return status;
    range r = {out->shape[p->axis], 1};
    size_t n = (size_t)indices->shape[p->axis];
    int64_t strides[QN_MAX_NDIM];
    qn_lines lines;
    qn_walk walk;
    qn_lines_make(&lines, indices->shape, indices->ndim, p->axis,
                  (const int64_t *[]){spread(strides, out, indices, p->axis),
                                      indices->strides, values->strides},
                  3);
    for (qn_walk_start(&walk, &lines.outer, 0, lines.outer.nruns); walk.left;
         qn_walk_next(&walk))
        for (size_t i = 0; i < n; i++) {
            int64_t k = (int64_t)i;
            const void *from =
                qn_element(indices, walk.offsets[1] + k * lines.step[1]);
            int64_t at = qn_integer_at(indices->dtype, from);
            if (!inside(r, &at))
                continue;
            qn_ref_run_operand to = {
                qn_element(out, walk.offsets[0] + at * lines.step[0]), 1};
            qn_ref_run_operand by = {
                qn_element(values, walk.offsets[2] + k * lines.step[2]), 1};
            qn_ref_combine_run(p->combine, out->dtype, 1, to, by);
        }
    return QN_OK;
}

/* ---- where a mask is true ---- */

qn_status qn_ref_masked_scatter(qn_node *node)
{
    const qn_array *mask = node->inputs[1], *src = node->inputs[2];
    qn_array *out = node->outputs[0];
    size_t count = 0, item = qn_array_itemsize(out);
    qn_plan plan;
    qn_walk walk;
    /* Counted first: on failure nothing has been written. */
    qn_plan_make(&plan, mask->shape, mask->ndim,
                 (const int64_t *[]){mask->strides}, 1);
    qn_plan_points(&plan);
    for (qn_walk_start(&walk, &plan, 0, plan.nruns); walk.left;
         qn_walk_next(&walk))
        count += *(const bool *)qn_element(mask, walk.offsets[0]);
    if (count > src->size)
        return qn_fail(QN_E_ARG,
                       "[masked_scatter] Source does not have enough elements "
                       "for mask: %zu, which is true %zu times.",
                       src->size, count);
    qn_status status = qn_ref_start_from(out, node->inputs[0]);
    if (status || !count)
        return status;
    int64_t from = 0;
    qn_plan_make(&plan, mask->shape, mask->ndim,
                 (const int64_t *[]){mask->strides, out->strides}, 2);
    qn_plan_points(&plan);
    for (qn_walk_start(&walk, &plan, 0, plan.nruns); walk.left;
         qn_walk_next(&walk)) {
        if (!*(const bool *)qn_element(mask, walk.offsets[0]))
            continue;
        memcpy(qn_element(out, walk.offsets[1]), qn_element(src, from), item);
        from += src->strides[0];
    }
    return QN_OK;
}
