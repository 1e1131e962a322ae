/* sort.c: orders along an axis.
 *
 * Everything is decided on keys (stage.h): unsigned numbers in the order of
 * the elements, so that one stable sort serves every type and a NaN comes
 * last.  A partition is a full sort: it keeps every promise of a partition.
 * The sort is by bytes of the key, lowest first (LSD radix); bytes that all
 * elements share are skipped. */
#include "loops.h"
#include "stage.h"

#include "base/alloc.h"

#include <string.h>

typedef struct item {
    uint64_t key;
    uint32_t index;
} item;

enum { SHORT = 48 }; /* below this, insertion beats eight histograms */

static void sort_short(item *items, size_t n)
{
    for (size_t i = 1; i < n; i++) {
        item x = items[i];
        size_t at = i;
        for (; at > 0 && items[at - 1].key > x.key; at--)
            items[at] = items[at - 1];
        items[at] = x;
    }
}

/* Returns the sorted half: `items` or `spare`, each of n items. */
static item *sort_items(item *items, item *spare, size_t n)
{
    if (n < SHORT) {
        sort_short(items, n);
        return items;
    }
    size_t counts[8][256];
    memset(counts, 0, sizeof counts);
    for (size_t i = 0; i < n; i++)
        for (int byte = 0; byte < 8; byte++)
            counts[byte][items[i].key >> (8 * byte) & 0xff]++;
    for (int byte = 0; byte < 8; byte++) {
        size_t *count = counts[byte], sum = 0;
        if (count[items[0].key >> (8 * byte) & 0xff] == n)
            continue;
        for (int value = 0; value < 256; value++) {
            size_t have = count[value];
            count[value] = sum;
            sum += have;
        }
        for (size_t i = 0; i < n; i++)
            spare[count[items[i].key >> (8 * byte) & 0xff]++] = items[i];
        item *swap = items;
        items = spare;
        spare = swap;
    }
    return items;
}

/* Room for sorting lines of n elements; the two items in one allocation. */
typedef struct sorter {
    size_t n;
    uint64_t *keys;
    item *items, *spare;
} sorter;

static qn_status sorter_make(sorter *s, size_t n)
{
    s->n = n;
    s->keys = qn_calloc(n, sizeof *s->keys);
    s->items = qn_calloc(n, 2 * sizeof *s->items);
    if (!s->keys || !s->items) {
        qn_free(s->keys);
        qn_free(s->items);
        return QN_E_NOMEM;
    }
    s->spare = s->items + n;
    return QN_OK;
}

static void sorter_free(sorter *s)
{
    qn_free(s->keys);
    qn_free(s->items);
}

/* The line's items in order, valid until the next call. */
static const item *sorter_line(sorter *s, qn_dtype dtype, const void *from,
                               int64_t step)
{
    qn_keys_load(s->keys, dtype, from, step, s->n);
    for (size_t i = 0; i < s->n; i++)
        s->items[i] = (item){s->keys[i], (uint32_t)i};
    return sort_items(s->items, s->spare, s->n);
}

/* Elements, or uint32 indices, in order along `axis`. */
static qn_status sort_along(qn_node *node, int axis, bool indices)
{
    const qn_array *in = node->inputs[0];
    qn_array *out = node->outputs[0];
    qn_status status = qn_array_alloc(out);
    if (status || !out->size)
        return status;
    sorter s;
    status = sorter_make(&s, (size_t)in->shape[axis]);
    if (status)
        return status;
    qn_lines lines;
    qn_walk walk;
    qn_lines_make(&lines, in->shape, in->ndim, axis,
                  (const int64_t *[]){out->strides, in->strides}, 2);
    for (qn_walk_start(&walk, &lines.outer, 0, lines.outer.nruns); walk.left;
         qn_walk_next(&walk)) {
        const char *from = qn_element(in, walk.offsets[1]);
        char *to = qn_element(out, walk.offsets[0]);
        int64_t size = (int64_t)qn_array_itemsize(in);
        int64_t to_step = lines.step[0] * (int64_t)qn_array_itemsize(out);
        const item *order = sorter_line(&s, in->dtype, from, lines.step[1]);
        for (size_t i = 0; i < s.n; i++, to += to_step) {
            if (indices)
                *(uint32_t *)(void *)to = order[i].index;
            else
                memcpy(to, from + order[i].index * lines.step[1] * size,
                       (size_t)size);
        }
    }
    sorter_free(&s);
    return QN_OK;
}

qn_status qn_ref_sort(qn_node *node)
{
    return sort_along(node, ((const qn_axis_params *)node->params)->axis,
                      false);
}

qn_status qn_ref_argsort(qn_node *node)
{
    return sort_along(node, ((const qn_axis_params *)node->params)->axis, true);
}

qn_status qn_ref_partition(qn_node *node)
{
    return sort_along(node, ((const qn_partition_params *)node->params)->axis,
                      false);
}

qn_status qn_ref_argpartition(qn_node *node)
{
    return sort_along(node, ((const qn_partition_params *)node->params)->axis,
                      true);
}

/* The first place of the largest or smallest key; a NaN, whose key is the
 * largest, wins in both directions. */
static uint32_t best_place(const qn_array *in, int64_t at, int64_t step,
                           size_t n, bool max)
{
    uint64_t keys[QN_BLOCK], best = 0;
    bool nan_first = !max && !qn_dtype_is_integer(in->dtype);
    size_t place = 0;
    for (size_t first = 0; first < n; first += QN_BLOCK) {
        size_t part = n - first < QN_BLOCK ? n - first : QN_BLOCK;
        qn_keys_load(keys, in->dtype,
                     qn_element(in, at + (int64_t)first * step), step, part);
        for (size_t i = 0; i < part; i++) {
            /* For the smallest the order is reversed. */
            uint64_t key = max ? keys[i] : ~keys[i];
            if (nan_first && keys[i] == QN_KEY_NAN)
                key = UINT64_MAX;
            if (key > best || first + i == 0) {
                best = key;
                place = first + i;
            }
        }
    }
    return (uint32_t)place;
}

qn_status qn_ref_argmax(qn_node *node)
{
    const qn_arg_reduce_params *p = node->params;
    const qn_array *in = node->inputs[0];
    qn_array *out = node->outputs[0];
    qn_status status = qn_array_alloc(out);
    if (status || !out->size || !in->size)
        return status;
    qn_lines lines;
    qn_walk walk;
    qn_lines_make(&lines, in->shape, in->ndim, p->axis,
                  (const int64_t *[]){in->strides}, 1);
    /* Lines come in row-major order, and so do the output's elements. */
    uint32_t *to = qn_array_data(out);
    for (qn_walk_start(&walk, &lines.outer, 0, lines.outer.nruns); walk.left;
         qn_walk_next(&walk))
        *to++ = best_place(in, walk.offsets[0], lines.step[0],
                           (size_t)in->shape[p->axis], p->max);
    return QN_OK;
}

/* How many of the n ascending keys are below `key`, or not above it. */
static uint32_t places_before(const uint64_t *keys, size_t n, uint64_t key,
                              bool right)
{
    size_t low = 0, high = n;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        bool before = keys[mid] < key || (right && keys[mid] == key);
        if (before)
            low = mid + 1;
        else
            high = mid;
    }
    return (uint32_t)low;
}

qn_status qn_ref_searchsorted(qn_node *node)
{
    const qn_searchsorted_params *p = node->params;
    const qn_array *in = node->inputs[0], *values = node->inputs[1];
    qn_array *out = node->outputs[0];
    qn_status status = qn_array_alloc(out);
    if (status || !out->size)
        return status;
    uint64_t *keys = qn_calloc(in->size, sizeof *keys), key;
    if (!keys)
        return QN_E_NOMEM;
    qn_keys_load(keys, in->dtype, qn_array_data(in), in->strides[0], in->size);
    uint32_t *to = qn_array_data(out);
    qn_plan plan;
    qn_walk walk;
    qn_plan_make(&plan, values->shape, values->ndim,
                 (const int64_t *[]){values->strides}, 1);
    qn_plan_points(&plan);
    for (qn_walk_start(&walk, &plan, 0, plan.nruns); walk.left;
         qn_walk_next(&walk)) {
        qn_keys_load(&key, values->dtype, qn_element(values, walk.offsets[0]),
                     1, 1);
        *to++ = places_before(keys, in->size, key, p->right);
    }
    qn_free(keys);
    return QN_OK;
}
