/* arrays.c: arrays from JSON, and their comparison with JSON. */
#include "case.h"

#include "base/alloc.h"
#include "base/f16.h"

#include <complex.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* name, number, bytes, kind: b u i f c; epsilon */
static const struct dtype_row {
    const char *name;
    mlx_dtype dtype;
    size_t size;
    char kind;
    double eps;
} dtypes[] = {
    {"bool", MLX_BOOL, 1, 'b', 0},
    {"uint8", MLX_UINT8, 1, 'u', 0},
    {"uint16", MLX_UINT16, 2, 'u', 0},
    {"uint32", MLX_UINT32, 4, 'u', 0},
    {"uint64", MLX_UINT64, 8, 'u', 0},
    {"int8", MLX_INT8, 1, 'i', 0},
    {"int16", MLX_INT16, 2, 'i', 0},
    {"int32", MLX_INT32, 4, 'i', 0},
    {"int64", MLX_INT64, 8, 'i', 0},
    {"float16", MLX_FLOAT16, 2, 'f', 0x1p-10},
    {"float32", MLX_FLOAT32, 4, 'f', 0x1p-23},
    {"float64", MLX_FLOAT64, 8, 'f', 0x1p-52},
    {"bfloat16", MLX_BFLOAT16, 2, 'f', 0x1p-7},
    {"complex64", MLX_COMPLEX64, 8, 'c', 0x1p-23},
};
enum { DTYPES = sizeof dtypes / sizeof *dtypes };

bool dtype_of_name(qn_str name, mlx_dtype *out)
{
    for (int i = 0; i < DTYPES; i++)
        if (qn_str_is(name, dtypes[i].name)) {
            *out = dtypes[i].dtype;
            return true;
        }
    return false;
}

static const struct dtype_row *row_of(mlx_dtype dtype)
{
    for (int i = 0; i < DTYPES; i++)
        if (dtypes[i].dtype == dtype)
            return &dtypes[i];
    return &dtypes[0];
}

const char *name_of_dtype(mlx_dtype dtype)
{
    return row_of(dtype)->name;
}

/* ---- from JSON ---- */

bool case_real(const qn_json *v, double *out)
{
    qn_str text;
    if (qn_json_as_double(v, out))
        return true;
    bool flag;
    if (qn_json_as_bool(v, &flag)) {
        *out = flag;
        return true;
    }
    if (!qn_json_as_str(v, &text))
        return false;
    *out = qn_str_is(text, "nan")    ? (double)NAN
           : qn_str_is(text, "inf")  ? (double)INFINITY
           : qn_str_is(text, "-inf") ? -(double)INFINITY
                                     : 1e-300;
    return *out != 1e-300;
}

/* The integer as its two's complement bits. */
static bool read_whole(const qn_json *v, uint64_t *out)
{
    bool flag;
    if (qn_json_as_bool(v, &flag)) {
        *out = flag;
        return true;
    }
    if (!v || v->type != QN_JSON_T_NUMBER)
        return false;
    char text[64];
    snprintf(text, sizeof text, "%.*s", (int)v->text.size, v->text.data);
    char *end;
    *out = text[0] == '-' ? (uint64_t)strtoll(text, &end, 10)
                          : strtoull(text, &end, 10);
    double real;
    if (*end && qn_json_as_double(v, &real) && real == floor(real)) {
        *out = (uint64_t)(int64_t)real; /* 1e3, 2.0 */
        return true;
    }
    return !*end;
}

static bool store(char *to, const struct dtype_row *row, const qn_json *v)
{
    double real = 0, imag = 0;
    uint64_t whole;
    if (row->kind == 'c') {
        if (v && v->type == QN_JSON_T_ARRAY) {
            if (!case_real(qn_json_at(v, 0), &real) ||
                !case_real(qn_json_at(v, 1), &imag))
                return false;
        } else if (!case_real(v, &real)) {
            return false;
        }
        float parts[2] = {(float)real, (float)imag};
        memcpy(to, parts, 8);
        return true;
    }
    if (row->kind != 'f') {
        if (!read_whole(v, &whole))
            return false;
        if (row->kind == 'b')
            whole = whole != 0;
        memcpy(to, &whole, row->size); /* little-endian hosts */
        return true;
    }
    if (!case_real(v, &real))
        return false;
    float single = (float)real;
    uint16_t half = row->dtype == MLX_FLOAT16 ? qn_f32_to_f16(single)
                                              : qn_f32_to_bf16(single);
    if (row->dtype == MLX_FLOAT64)
        memcpy(to, &real, 8);
    else if (row->dtype == MLX_FLOAT32)
        memcpy(to, &single, 4);
    else
        memcpy(to, &half, 2);
    return true;
}

/* Stores the leaves in order; complex leaves are lists themselves. */
static bool store_all(char **to, const struct dtype_row *row, int depth,
                      const qn_json *v)
{
    if (!depth) {
        bool good = store(*to, row, v);
        *to += row->size;
        return good;
    }
    if (!v || v->type != QN_JSON_T_ARRAY)
        return false;
    for (uint32_t i = 0; i < v->count; i++)
        if (!store_all(to, row, depth - 1, &v->items[i]))
            return false;
    return true;
}

static bool read_shape(const qn_json *shape, int *out, int *ndim, size_t *size)
{
    if (!shape || shape->type != QN_JSON_T_ARRAY || shape->count > 32)
        return false;
    *size = 1;
    *ndim = (int)shape->count;
    for (uint32_t i = 0; i < shape->count; i++) {
        int64_t dim;
        if (!qn_json_as_int(&shape->items[i], &dim))
            return false;
        out[i] = (int)dim;
        *size *= (size_t)dim;
    }
    return true;
}

static bool leaf_count_is(const qn_json *v, int depth, size_t *left)
{
    if (!depth)
        return (*left)-- > 0;
    if (!v || v->type != QN_JSON_T_ARRAY)
        return false;
    for (uint32_t i = 0; i < v->count; i++)
        if (!leaf_count_is(&v->items[i], depth - 1, left))
            return false;
    return true;
}

/* Data is nested as the shape says, or one flat list in row-major order. */
static char *read_data(const struct dtype_row *row, int ndim, size_t size,
                       const qn_json *data)
{
    size_t left = size;
    char *bytes = qn_calloc(size + 1, row->size), *to = bytes;
    bool pair = row->kind == 'c' && !ndim && data &&
                data->type == QN_JSON_T_ARRAY && data->count == 2 &&
                data->items[0].type != QN_JSON_T_ARRAY;
    if (data && data->type == QN_JSON_T_ARRAY && data->count == size && !pair &&
        (!size || row->kind == 'c' || ndim == 0 ||
         data->items[0].type != QN_JSON_T_ARRAY))
        ndim = 1;
    if (!leaf_count_is(data, ndim, &left) || left || !bytes ||
        !store_all(&to, row, ndim, data)) {
        qn_free(bytes);
        return NULL;
    }
    return bytes;
}

mlx_array array_of_json(const qn_json *dtype, const qn_json *shape,
                        const qn_json *data)
{
    mlx_array none = {NULL};
    qn_str name;
    mlx_dtype type;
    int dims[32], ndim;
    size_t size;
    if (!qn_json_as_str(dtype, &name) || !dtype_of_name(name, &type) ||
        !read_shape(shape, dims, &ndim, &size)) {
        case_fail("case: bad dtype or shape");
        return none;
    }
    char *bytes = read_data(row_of(type), ndim, size, data);
    if (!bytes) {
        case_fail("case: data do not fit the shape");
        return none;
    }
    mlx_array array = mlx_array_new_data(bytes, dims, ndim, type);
    qn_free(bytes);
    return array;
}

/* ---- comparison ---- */

/* Element as doubles (real, imaginary); integers also as bits. */
static void load(const struct dtype_row *row, const char *from, double out[2],
                 uint64_t *bits)
{
    *bits = 0;
    memcpy(bits, from, row->size);
    out[1] = 0;
    if (row->kind == 'c') {
        float parts[2];
        memcpy(parts, from, 8);
        out[0] = (double)parts[0];
        out[1] = (double)parts[1];
    } else if (row->kind == 'f') {
        float single;
        uint16_t half;
        memcpy(&half, from, 2);
        switch (row->dtype) {
        case MLX_FLOAT64:
            memcpy(out, from, 8);
            break;
        case MLX_FLOAT32:
            memcpy(&single, from, 4);
            out[0] = (double)single;
            break;
        case MLX_FLOAT16:
            out[0] = (double)qn_f16_to_f32(half);
            break;
        default:
            out[0] = (double)qn_bf16_to_f32(half);
            break;
        }
    } else {
        int shift = 64 - (int)row->size * 8;
        out[0] = row->kind == 'i' ? (double)((int64_t)(*bits << shift) >> shift)
                                  : (double)*bits;
    }
}

/* Distance in units in the last place, for one real part. */
static double ulps(const struct dtype_row *row, double a, double b)
{
    if (a == b)
        return 0;
    if (!isfinite(a) || !isfinite(b))
        return (double)INFINITY;
    int exponent;
    double big = fmax(fabs(a), fabs(b));
    frexp(big, &exponent);
    double least = row->dtype == MLX_FLOAT16    ? 0x1p-24
                   : row->dtype == MLX_FLOAT64  ? 0x1p-1074
                   : row->dtype == MLX_BFLOAT16 ? 0x1p-133
                                                : 0x1p-149;
    double ulp = fmax(ldexp(row->eps, exponent - 1), least);
    return fabs(a - b) / ulp;
}

static bool close(const struct dtype_row *row, double found, double expected,
                  double largest, const tolerance *tol)
{
    if (found == expected || (isnan(found) && isnan(expected)))
        return true;
    if (isnan(found) || isnan(expected))
        return false;
    if (tol->ulp > 0 && row->eps > 0 && ulps(row, found, expected) <= tol->ulp)
        return true;
    double gap = fabs(found - expected);
    if (!isfinite(gap))
        return false;
    if (gap <= tol->abs + tol->rel * row->eps * largest)
        return true;
    return gap <= tol->scaled * fmax(1, fabs(expected));
}

/* Row-major bytes of an evaluated array, whatever its strides. */
static char *row_major(mlx_array array, const struct dtype_row *row)
{
    size_t ndim = mlx_array_ndim(array), size = mlx_array_size(array);
    const int *shape = mlx_array_shape(array);
    const int64_t *strides =
        (const int64_t *)(const void *)mlx_array_strides(array);
    char *out = qn_calloc(size + 1, row->size);
    const char *data = (const char *)mlx_array_data_uint8(array);
    if (!data && size) {
        qn_free(out);
        return NULL;
    }
    int index[32] = {0};
    for (size_t i = 0; i < size && out; i++) {
        int64_t at = 0;
        for (size_t d = 0; d < ndim; d++)
            at += strides[d] * index[d];
        memcpy(out + i * row->size, data + at * (int64_t)row->size, row->size);
        for (size_t d = ndim; d-- > 0;) {
            if (++index[d] < shape[d])
                break;
            index[d] = 0;
        }
    }
    return out;
}

static bool check_shape(const char *name, mlx_array array, const qn_json *shape)
{
    qn_buf found = QN_BUF_INIT, wanted = QN_BUF_INIT;
    qn_json_writer w;
    qn_json_write_begin(&w, &found);
    qn_json_write_array(&w);
    for (size_t i = 0; i < mlx_array_ndim(array); i++)
        qn_json_write_int(&w, mlx_array_dim(array, (int)i));
    qn_json_write_array_end(&w);
    qn_json_write_begin(&w, &wanted);
    qn_json_write_value(&w, shape);
    bool same = qn_str_eq(qn_buf_str(&found), qn_buf_str(&wanted));
    if (!same)
        case_fail("%s: expected shape %s, found %s", name, wanted.data,
                  found.data);
    qn_buf_free(&found);
    qn_buf_free(&wanted);
    return same;
}

/* Prints one element. */
static void show(char *out, size_t size, const struct dtype_row *row,
                 const char *from)
{
    double parts[2];
    uint64_t bits;
    load(row, from, parts, &bits);
    if (row->kind == 'c')
        snprintf(out, size, "[%.9g, %.9g]", parts[0], parts[1]);
    else if (row->kind == 'u' && row->size == 8)
        snprintf(out, size, "%llu", (unsigned long long)bits);
    else if (row->kind == 'i' && row->size == 8)
        snprintf(out, size, "%lld", (long long)bits);
    else
        snprintf(out, size, "%.17g", parts[0]);
}

static void compare(const char *name, const struct dtype_row *row,
                    const char *found, const char *expected, size_t size,
                    const tolerance *tol)
{
    double largest = 0, parts[2], wanted[2];
    uint64_t a, b;
    size_t wrong = 0, first = 0;
    for (size_t i = 0; i < size; i++) {
        load(row, expected + i * row->size, wanted, &b);
        for (int k = 0; k < 2; k++)
            if (isfinite(wanted[k]))
                largest = fmax(largest, fabs(wanted[k]));
    }
    for (size_t i = 0; i < size; i++) {
        load(row, found + i * row->size, parts, &a);
        load(row, expected + i * row->size, wanted, &b);
        bool good = row->kind == 'f' || row->kind == 'c'
                        ? close(row, parts[0], wanted[0], largest, tol) &&
                              close(row, parts[1], wanted[1], largest, tol)
                        : a == b;
        if (!good && !wrong++)
            first = i;
    }
    if (!wrong)
        return;
    char text[2][64];
    show(text[0], sizeof text[0], row, expected + first * row->size);
    show(text[1], sizeof text[1], row, found + first * row->size);
    case_fail("%s: element %zu: expected %s, found %s (%zu of %zu wrong)", name,
              first, text[0], text[1], wrong, size);
}

/* Code `k` of a row of packed words. */
static unsigned code_at(const char *row, size_t k, int bits)
{
    size_t bit = k * (size_t)bits;
    unsigned two = (unsigned char)row[bit >> 3];
    if ((bit & 7) + (size_t)bits > 8)
        two |= (unsigned)(unsigned char)row[(bit >> 3) + 1] << 8;
    return two >> (bit & 7) & ((1u << bits) - 1);
}

/* Packed codes of which a share may be a step off. */
static void compare_codes(const char *name, const char *found,
                          const char *expected, size_t words, size_t row_words,
                          const tolerance *tol)
{
    size_t codes = row_words * 32 / (size_t)tol->code_bits;
    size_t off = 0, wrong = 0, all = 0;
    for (size_t w = 0; row_words && w < words; w += row_words)
        for (size_t k = 0; k < codes; k++, all++) {
            unsigned a = code_at(found + w * 4, k, tol->code_bits);
            unsigned b = code_at(expected + w * 4, k, tol->code_bits);
            unsigned gap = a > b ? a - b : b - a;
            off += gap == 1;
            wrong += gap > 1;
        }
    if (wrong || (double)off > tol->code_share * (double)all)
        case_fail("%s: of %zu codes %zu are a step off, %zu more", name, all,
                  off, wrong);
}

void check_array_parts(const char *name, mlx_array array, const qn_json *dtype,
                       const qn_json *shape, const qn_json *data,
                       const tolerance *tol)
{
    if (!array.ctx) {
        case_fail("%s: no array", name);
        return;
    }
    if (mlx_array_eval(array)) {
        case_fail("%s: evaluation failed: %s", name,
                  calls_error() ? calls_error() : "(no message)");
        return;
    }
    const struct dtype_row *row = row_of(mlx_array_dtype(array));
    qn_str wanted;
    if (dtype && qn_json_as_str(dtype, &wanted) &&
        !qn_str_is(wanted, row->name)) {
        case_fail("%s: expected dtype %.*s, found %s", name, (int)wanted.size,
                  wanted.data, row->name);
        return;
    }
    if (shape && !check_shape(name, array, shape))
        return;
    if (!data)
        return;
    size_t size = mlx_array_size(array);
    char *expected = read_data(row, (int)mlx_array_ndim(array), size, data);
    char *found = row_major(array, row);
    if (!expected || !found)
        case_fail("%s: data can't be compared", name);
    else if (tol->code_bits && row->dtype == MLX_UINT32)
        compare_codes(
            name, found, expected, size,
            mlx_array_ndim(array) ? (size_t)mlx_array_dim(array, -1) : 1, tol);
    else
        compare(name, row, found, expected, size, tol);
    qn_free(expected);
    qn_free(found);
}

void check_array(const char *name, mlx_array array, const qn_json *expected,
                 const tolerance *tol)
{
    check_array_parts(name, array, qn_json_get(expected, "dtype"),
                      qn_json_get(expected, "shape"),
                      qn_json_get(expected, "data"), tol);
}
