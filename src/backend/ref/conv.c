/* conv.c: convolutions.
 *
 * For each place of the output, the elements that the kernel meets are put
 * together (zeros where it is on the border or between elements), and each
 * output channel is their product with its weights, summed in double. */
#include "loops.h"
#include "stage.h"

#include "base/alloc.h"

#include <string.h>

typedef struct convolution {
    const qn_conv_params *p;
    const qn_array *x, *w;
    int ndim; /* spatial axes */
    size_t taps, channels, outputs, per_group;
    qn_dtype type; /* of values */
    size_t value;  /* bytes of one */
    char *weights; /* [outputs, taps, per_group] */
    char *met;     /* [taps, channels] */
} convolution;

/* Moves an index over `shape` to the next place; false after the last. */
static bool next_place(int *index, const int *shape, int ndim)
{
    for (int i = ndim - 1; i >= 0; i--) {
        if (++index[i] < shape[i])
            return true;
        index[i] = 0;
    }
    return false;
}

static void load_weights(const convolution *c)
{
    const qn_array *w = c->w;
    const int *kernel = w->shape + 1;
    char *to = c->weights;
    int64_t along = w->strides[w->ndim - 1];
    for (size_t o = 0; o < c->outputs; o++) {
        int tap[QN_MAX_NDIM] = {0};
        do {
            int64_t at = (int64_t)o * w->strides[0];
            for (int i = 0; i < c->ndim; i++)
                at += w->strides[i + 1] *
                      (c->p->flip ? kernel[i] - 1 - tap[i] : tap[i]);
            qn_values_load(to, w->dtype, qn_element(w, at), along,
                           c->per_group);
            to += c->per_group * c->value;
        } while (next_place(tap, kernel, c->ndim));
    }
}

/* The elements that the kernel meets from output place `index` of image
 * `image`. */
static void meet(const convolution *c, int64_t image, const int *index)
{
    const qn_array *x = c->x;
    char *to = c->met;
    int tap[QN_MAX_NDIM] = {0};
    do {
        int64_t at = image * x->strides[0];
        bool inside = true;
        for (int i = 0; i < c->ndim && inside; i++) {
            int64_t place = (int64_t)index[i] * c->p->stride[i] +
                            (int64_t)tap[i] * c->p->dilation[i] - c->p->low[i];
            int64_t spread = c->p->in_dilation[i];
            inside = place >= 0 && place % spread == 0 &&
                     place / spread < x->shape[i + 1];
            at += place / spread * x->strides[i + 1];
        }
        if (inside)
            qn_values_load(to, x->dtype, qn_element(x, at),
                           x->strides[x->ndim - 1], c->channels);
        else
            memset(to, 0, c->channels * c->value);
        to += c->channels * c->value;
    } while (next_place(tap, c->w->shape + 1, c->ndim));
}

/* One output channel of the group whose channels begin at `first`. */
#define SUM(name, T)                                                           \
    static double name(const convolution *c, size_t output, size_t first)      \
    {                                                                          \
        const T *w = (const void *)c->weights;                                 \
        const T *met = (const void *)c->met;                                   \
        double sum = 0;                                                        \
        w += output * c->taps * c->per_group;                                  \
        for (size_t tap = 0; tap < c->taps; tap++)                             \
            for (size_t i = 0; i < c->per_group; i++)                          \
                sum +=                                                         \
                    (double)*w++ * (double)met[tap * c->channels + first + i]; \
        return sum;                                                            \
    }
/* clang-format off */
SUM(sum_floats, float)
SUM(sum_doubles, double)
/* clang-format on */

static void convolve(const convolution *c, qn_array *out)
{
    double block[QN_BLOCK];
    char *to = qn_array_data(out);
    size_t item = qn_array_itemsize(out);
    size_t per_group = c->outputs / (size_t)c->p->groups;
    int index[QN_MAX_NDIM] = {0};
    do {
        meet(c, index[0], index + 1);
        for (size_t o = 0, n; o < c->outputs; o += n) {
            n = c->outputs - o < QN_BLOCK ? c->outputs - o : QN_BLOCK;
            for (size_t i = 0; i < n; i++) {
                size_t first = (o + i) / per_group * c->per_group;
                block[i] = c->type == QN_FLOAT64 ? sum_doubles(c, o + i, first)
                                                 : sum_floats(c, o + i, first);
            }
            qn_wide_store(to, out->dtype, 1, block, QN_WIDE_FLOAT, n);
            to += n * item;
        }
    } while (next_place(index, out->shape, out->ndim - 1));
}

qn_status qn_ref_conv(qn_node *node)
{
    const qn_array *x = node->inputs[0], *w = node->inputs[1];
    qn_array *out = node->outputs[0];
    convolution c = {.p = node->params,
                     .x = x,
                     .w = w,
                     .ndim = x->ndim - 2,
                     .taps = 1,
                     .channels = (size_t)x->shape[x->ndim - 1],
                     .outputs = (size_t)w->shape[0],
                     .per_group = (size_t)w->shape[w->ndim - 1],
                     .type = qn_value_dtype(x->dtype)};
    qn_status status = qn_array_alloc(out);
    if (status || !out->size)
        return status;
    size_t size;
    bool fits = true;
    c.value = qn_dtype_size(c.type);
    for (int i = 0; i < c.ndim; i++)
        fits = fits && qn_mul_size(&c.taps, c.taps, (size_t)w->shape[i + 1]);
    if (fits && qn_mul_size(&size, c.taps, c.channels))
        c.met = qn_calloc(size + 1, c.value);
    c.weights = qn_calloc(w->size + 1, c.value);
    if (c.met && c.weights) {
        load_weights(&c);
        convolve(&c, out);
    } else {
        status = qn_fail(QN_E_NOMEM, "[conv] %zu taps of %zu channels", c.taps,
                         c.channels);
    }
    qn_free(c.met);
    qn_free(c.weights);
    return status;
}
