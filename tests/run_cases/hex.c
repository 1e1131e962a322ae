/* hex.c: arrays of goldens of a format: {"dtype", "shape", "hex"}.
 *
 * NaNs of float32 and float16 equal each other, everything else is compared
 * byte for byte. */
#include "case.h"

#include "base/f16.h"
#include "support/qn_sha256.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_DIMS = 8 };

static int digit(char c)
{
    return c <= '9' ? c - '0' : (c | 32) - 'a' + 10;
}

static int shape_of(const qn_json *a, int shape[MOST_DIMS])
{
    const qn_json *list = qn_json_get(a, "shape");
    int n = 0;
    for (; list && n < (int)list->count && n < MOST_DIMS; n++) {
        int64_t length = 0;
        qn_json_as_int(&list->items[n], &length);
        shape[n] = (int)length;
    }
    return n;
}

/* The bytes of an array of a file, to be freed; NULL after case_fail. */
static uint8_t *bytes_of(const qn_json *a, size_t *size)
{
    qn_str hex = case_text(a, "hex");
    uint8_t *bytes = malloc(hex.size / 2 + 1);
    *size = hex.size / 2;
    for (size_t i = 0; bytes && i < *size; i++)
        bytes[i] =
            (uint8_t)(digit(hex.data[2 * i]) << 4 | digit(hex.data[2 * i + 1]));
    return bytes;
}

mlx_array golden_array(const qn_json *object, const char *key)
{
    const qn_json *a = qn_json_get(object, key);
    mlx_array made = mlx_array_new();
    mlx_dtype dtype;
    int shape[MOST_DIMS], ndim = shape_of(a, shape);
    size_t size = 0, expected = 1;
    uint8_t *bytes = a ? bytes_of(a, &size) : NULL;
    for (int i = 0; i < ndim; i++)
        expected *= (size_t)shape[i];
    if (!bytes || !dtype_of_name(case_text(a, "dtype"), &dtype) ||
        size != expected * mlx_dtype_size(dtype))
        case_fail("%s: no array of such a dtype, shape and hex", key);
    else
        made = mlx_array_new_data(bytes, shape, ndim, dtype);
    free(bytes);
    return made;
}

/* Row-major bytes of an array, valid while *held is; NULL after case_fail. */
const uint8_t *golden_bytes(const char *name, mlx_array *held, mlx_array x)
{
    *held = mlx_array_new();
    if (mlx_contiguous(held, x, false, calls_stream()) ||
        mlx_array_eval(*held)) {
        case_fail("%s: %s", name, calls_error() ? calls_error() : "failed");
        return NULL;
    }
    return mlx_array_data_uint8(*held);
}

static bool both_nan(const uint8_t *a, const uint8_t *b, mlx_dtype dtype)
{
    float x, y;
    uint16_t p, q;
    if (dtype == MLX_FLOAT32) {
        memcpy(&x, a, 4);
        memcpy(&y, b, 4);
    } else if (dtype == MLX_FLOAT16) {
        memcpy(&p, a, 2);
        memcpy(&q, b, 2);
        x = qn_f16_to_f32(p);
        y = qn_f16_to_f32(q);
    } else {
        return false;
    }
    return x != x && y != y;
}

static void hex_of(char out[16], const uint8_t *p, size_t item)
{
    for (size_t i = 0; i < item; i++)
        snprintf(out + 2 * i, 3, "%02x", p[item - 1 - i]);
}

static void compare(const char *name, const uint8_t *found,
                    const uint8_t *wanted, size_t count, mlx_dtype dtype)
{
    size_t item = mlx_dtype_size(dtype);
    for (size_t i = 0; i < count; i++, found += item, wanted += item) {
        char a[20], b[20];
        if (!memcmp(found, wanted, item) || both_nan(found, wanted, dtype))
            continue;
        hex_of(a, wanted, item);
        hex_of(b, found, item);
        case_fail("%s, element %zu: expected 0x%s, found 0x%s", name, i, a, b);
        return;
    }
}

/* Frees `x`. */
void golden_check(const char *name, mlx_array x, const qn_json *expected)
{
    mlx_array held;
    mlx_dtype dtype;
    int shape[MOST_DIMS], ndim = expected ? shape_of(expected, shape) : 0;
    size_t size = 0;
    uint8_t *wanted = expected ? bytes_of(expected, &size) : NULL;
    const uint8_t *found = golden_bytes(name, &held, x);
    if (!wanted || !dtype_of_name(case_text(expected, "dtype"), &dtype))
        case_fail("%s: nothing to compare with", name);
    else if (found && mlx_array_dtype(x) != dtype)
        case_fail("%s: expected %s, found %s", name, name_of_dtype(dtype),
                  name_of_dtype(mlx_array_dtype(x)));
    else if (found &&
             (mlx_array_ndim(x) != (size_t)ndim ||
              memcmp(mlx_array_shape(x), shape, (size_t)ndim * sizeof *shape)))
        case_fail("%s: another shape than expected", name);
    else if (found)
        compare(name, found, wanted, size / mlx_dtype_size(dtype), dtype);
    free(wanted);
    mlx_array_free(held);
    mlx_array_free(x);
}

/* SHA-256 of the row-major bytes; frees `x`. */
void golden_digest(const char *name, mlx_array x, qn_str expected)
{
    mlx_array held;
    char digest[65];
    const uint8_t *found = golden_bytes(name, &held, x);
    if (found) {
        qn_sha256(digest, found, mlx_array_nbytes(held));
        if (!qn_str_is(expected, digest))
            case_fail("%s: expected the digest %.*s, found %s", name,
                      (int)expected.size, expected.data, digest);
    }
    mlx_array_free(held);
    mlx_array_free(x);
}
