/* fft.c: Fourier transforms over axes, one node for each axis.
 *
 * Lines are first brought to the length that is asked for.  Over several axes
 * a real transform is the one along the last of the list, where it halves the
 * spectrum; the others are complex. */
#include "params.h"
#include "scope.h"

#include <math.h>

/* How each axis of a transform is done. */
typedef struct transform {
    qn_fft_kind kind;
    int naxes;
    int axes[QN_MAX_NDIM], n[QN_MAX_NDIM];
    qn_fft_norm norm;
} transform;

static const char *const names[] = {"fftn", "ifftn", "rfftn", "irfftn"};

static bool is_inverse(qn_fft_kind kind)
{
    return kind == QN_FFT_KIND_IFFT || kind == QN_FFT_KIND_IRFFT;
}

static double scale_of(const transform *t, int n)
{
    bool all = t->norm == (is_inverse(t->kind) ? QN_FFT_NORM_BACKWARD
                                               : QN_FFT_NORM_FORWARD);
    return t->norm == QN_FFT_NORM_ORTHO ? 1 / sqrt((double)n)
           : all                        ? 1 / (double)n
                                        : 1;
}

static qn_array *padded(qn_scope *c, qn_array *x, int axis, int more)
{
    qn_array *zero = scalar_of(c, 0, x), *made = NULL;
    int low = 0;
    return c->status
               ? NULL
               : qn_scope_hold(c,
                               qn_op_pad(&made, x, &axis, 1, &low, 1, &more, 1,
                                         zero, "constant", c->stream),
                               &made);
}

/* The axis cut, or filled up with zeros. */
static qn_array *resized(qn_scope *c, qn_array *x, int axis, int length)
{
    if (c->status || x->shape[axis] == length)
        return x;
    if (x->shape[axis] > length)
        return slice_axis(c, x, axis, 0, length);
    return padded(c, x, axis, length - x->shape[axis]);
}

qn_status qn_op_fft_axis(qn_array **out, qn_array *x, int axis, int form,
                         double scale, int length, qn_stream *s)
{
    bool to_real = form == QN_FFT_TO_REAL, real = form == QN_FFT_REAL;
    qn_fft_params p = {.axis = axis, .form = (qn_fft_form)form, .scale = scale};
    qn_dims dims = qn_dims_of(x);
    if (axis < 0 || axis >= x->ndim || length < 1 ||
        x->dtype != (real ? QN_FLOAT32 : QN_COMPLEX64) ||
        x->shape[axis] != (to_real ? length / 2 + 1 : length))
        return qn_fail(QN_E_ARG,
                       "[fft] A transform of length %d along axis %d does not "
                       "fit %s of shape %s.",
                       length, axis, qn_dtype_name(x->dtype),
                       qn_array_shape_text(x).text);
    dims.dim[axis] = real ? length / 2 + 1 : length;
    return qn_make(out, QN_OP_FFT, s, &x, 1, &p, sizeof p,
                   to_real ? QN_FLOAT32 : QN_COMPLEX64, dims.dim, dims.ndim);
}

static qn_array *along(qn_scope *c, qn_array *x, const transform *t, int i,
                       qn_fft_form form)
{
    qn_array *made = NULL;
    return c->status ? NULL
                     : qn_scope_hold(c,
                                     qn_op_fft_axis(&made, x, t->axes[i], form,
                                                    scale_of(t, t->n[i]),
                                                    t->n[i], c->stream),
                                     &made);
}

qn_status qn_op_fft(qn_array **out, qn_fft_kind kind, qn_array *x, const int *n,
                    size_t nn, const int *axes, size_t naxes, qn_fft_norm norm,
                    qn_stream *s)
{
    transform t = {.kind = kind, .norm = norm};
    const char *op = names[kind];
    if ((unsigned)norm > QN_FFT_NORM_FORWARD)
        return qn_fail(QN_E_ARG, "[%s] %d names no normalisation.", op,
                       (int)norm);
    if (nn != naxes)
        return qn_fail(
            QN_E_ARG,
            "[%s] One length per axis is expected, found %zu lengths "
            "for %zu axes.",
            op, nn, naxes);
    qn_status status = qn_axes_of(t.axes, op, axes, naxes, x->ndim);
    if (status)
        return status;
    for (size_t i = 0; i < naxes; i++) {
        t.n[i] = n[i];
        if (n[i] < 1)
            return qn_fail(QN_E_ARG,
                           "[%s] Lengths of at least 1 are expected, found %d.",
                           op, n[i]);
    }
    t.naxes = (int)naxes;
    if (!naxes)
        return qn_same(out, x);

    int last = t.naxes - 1;
    bool to_real = kind == QN_FFT_KIND_IRFFT, real = kind == QN_FFT_KIND_RFFT;
    qn_fft_form form = is_inverse(kind) ? QN_FFT_INVERSE : QN_FFT_FORWARD;
    qn_scope c;
    qn_scope_begin(&c, s);
    for (int i = 0; i < t.naxes; i++)
        x = resized(&c, x, t.axes[i],
                    to_real && i == last ? t.n[i] / 2 + 1 : t.n[i]);
    x = cast(&c, x, real ? QN_FLOAT32 : QN_COMPLEX64);
    if (real)
        x = along(&c, x, &t, last, QN_FFT_REAL);
    for (int i = real || to_real ? last - 1 : last; i >= 0; i--)
        x = along(&c, x, &t, i, form);
    if (to_real)
        x = along(&c, x, &t, last, QN_FFT_TO_REAL);
    return qn_scope_end(&c, out, x);
}

/* ---- frequencies ---- */

static qn_status check_samples(const char *op, int n, double d)
{
    if (n < 1)
        return qn_fail(QN_E_ARG,
                       "[%s] A length of at least 1 is expected, found %d.", op,
                       n);
    if (d == 0)
        return qn_fail(QN_E_ARG, "[%s] The distance of samples is 0.", op);
    return QN_OK;
}

/* k / (n d) of whole numbers, rounded once. */
static qn_array *frequencies(qn_scope *c, qn_array *k, int n, double d)
{
    qn_array *whole = cast(c, k, QN_FLOAT64);
    qn_array *y = divide(c, whole, scalar(c, n * d, QN_FLOAT64));
    return cast(c, y, QN_FLOAT32);
}

qn_status qn_op_fftfreq(qn_array **out, int n, double d, qn_stream *s)
{
    qn_status status = check_samples("fftfreq", n, d);
    if (status)
        return status;
    qn_scope c;
    qn_scope_begin(&c, s);
    qn_array *k[2] = {arange(&c, 0, n - n / 2, 1, QN_INT32),
                      arange(&c, -(n / 2), 0, 1, QN_INT32)};
    qn_array *all = c.status ? NULL : concat(&c, k, 2, 0);
    return qn_scope_end(&c, out, frequencies(&c, all, n, d));
}

qn_status qn_op_rfftfreq(qn_array **out, int n, double d, qn_stream *s)
{
    qn_status status = check_samples("rfftfreq", n, d);
    if (status)
        return status;
    qn_scope c;
    qn_scope_begin(&c, s);
    qn_array *k = arange(&c, 0, n / 2 + 1, 1, QN_INT32);
    return qn_scope_end(&c, out, frequencies(&c, k, n, d));
}

qn_status qn_op_fftshift(qn_array **out, qn_array *x, const int *axes,
                         size_t naxes, bool inverse, qn_stream *s)
{
    int list[QN_MAX_NDIM], shifts[QN_MAX_NDIM];
    const char *op = inverse ? "ifftshift" : "fftshift";
    qn_status status = qn_axes_of(list, op, axes, naxes, x->ndim);
    if (status)
        return status;
    for (size_t i = 0; i < naxes; i++) {
        int half = x->shape[list[i]] / 2;
        shifts[i] = inverse ? -half : half;
    }
    return qn_op_roll(out, x, shifts, naxes, list, naxes, s);
}
