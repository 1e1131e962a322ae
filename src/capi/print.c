/* print.c: arrays as text.
 *
 * Numbers look as C++ streams write them by default: six significant digits,
 * no trailing zeros, whatever the program's locale says. */
#include "handles.h"

#include "base/buf.h"
#include "base/f16.h"
#include "core/eval.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Of a longer dimension, so many entries at each end are shown. */
enum { SHOWN = 3 };

static void add_double(qn_buf *out, double value)
{
    if (isnan(value)) {
        qn_buf_add_text(out, "nan");
        return;
    }
    char text[32];
    snprintf(text, sizeof text, "%g", value);
    /* What is neither a digit nor a letter of this alphabet is the locale's
     * decimal point, perhaps of several bytes. */
    for (const char *p = text; *p;) {
        size_t plain = strspn(p, "+-0123456789einf");
        qn_buf_add(out, p, plain);
        p += plain;
        size_t point = strcspn(p, "+-0123456789einf");
        if (point)
            qn_buf_add_char(out, '.');
        p += point;
    }
}

static void add_complex(qn_buf *out, const float *value)
{
    add_double(out, value[0]);
    if (isnan(value[1]) || !signbit(value[1]))
        qn_buf_add_char(out, '+');
    add_double(out, value[1]);
    qn_buf_add_char(out, 'j');
}

static void add_element(qn_buf *out, const void *at, qn_dtype dtype)
{
    switch (dtype) {
    case QN_BOOL:
        /* Views and files bring any bytes: all but 0 are true. */
        qn_buf_add_text(out, *(const uint8_t *)at ? "true" : "false");
        break;
    case QN_UINT8:
        qn_buf_printf(out, "%" PRIu8, *(const uint8_t *)at);
        break;
    case QN_UINT16:
        qn_buf_printf(out, "%" PRIu16, *(const uint16_t *)at);
        break;
    case QN_UINT32:
        qn_buf_printf(out, "%" PRIu32, *(const uint32_t *)at);
        break;
    case QN_UINT64:
        qn_buf_printf(out, "%" PRIu64, *(const uint64_t *)at);
        break;
    case QN_INT8:
        qn_buf_printf(out, "%" PRId8, *(const int8_t *)at);
        break;
    case QN_INT16:
        qn_buf_printf(out, "%" PRId16, *(const int16_t *)at);
        break;
    case QN_INT32:
        qn_buf_printf(out, "%" PRId32, *(const int32_t *)at);
        break;
    case QN_INT64:
        qn_buf_printf(out, "%" PRId64, *(const int64_t *)at);
        break;
    case QN_FLOAT16:
        add_double(out, qn_f16_to_f32(*(const uint16_t *)at));
        break;
    case QN_BFLOAT16:
        add_double(out, qn_bf16_to_f32(*(const uint16_t *)at));
        break;
    case QN_FLOAT32:
        add_double(out, *(const float *)at);
        break;
    case QN_FLOAT64:
        add_double(out, *(const double *)at);
        break;
    case QN_COMPLEX64:
        add_complex(out, at);
        break;
    case QN_DTYPE_COUNT:
        break;
    }
}

/* Recurses once for each dimension, of which there are at most QN_MAX_NDIM.
 * `at` is not followed in an empty array. */
static void add_rows(qn_buf *out, const qn_array *a, const char *at, int dim)
{
    if (dim == a->ndim) {
        add_element(out, at, a->dtype);
        return;
    }
    int length = a->shape[dim];
    int64_t step = a->strides[dim] * (int64_t)qn_array_itemsize(a);
    bool innermost = dim == a->ndim - 1;
    qn_buf_add_char(out, '[');
    for (int i = 0; i < length; i++) {
        if (i && innermost)
            qn_buf_add_text(out, ", ");
        else if (i)
            /* Rows begin under the bracket of the first: "array(" and one
             * bracket for each dimension outside. */
            qn_buf_printf(out, ",\n%*s", (int)strlen("array(") + dim + 1, "");
        if (length > 2 * SHOWN && i == SHOWN) {
            qn_buf_add_text(out, "...");
            i = length - SHOWN - 1;
            continue;
        }
        add_rows(out, a, a->size ? at + i * step : at, dim + 1);
    }
    qn_buf_add_char(out, ']');
}

int mlx_array_tostring(mlx_string *str, const mlx_array arr)
{
    QN_GET_ARRAY(array, arr);
    QN_CALL(qn_eval(&array, 1));
    qn_buf out = QN_BUF_INIT;
    qn_buf_add_text(&out, "array(");
    add_rows(&out, array, qn_array_data(array), 0);
    qn_buf_printf(&out, ", dtype=%s)", qn_dtype_name(array->dtype));
    qn_status status = qn_buf_status(&out);
    if (!status)
        status = qn_handle_set_string(str, out.data, out.size);
    qn_buf_free(&out);
    return QN_STORE(status);
}
