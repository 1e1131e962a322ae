/* qn_tq.h: the golden vectors of the packed KV format (vectors/turboquant).
 * Arrays there are a dtype, a shape and the bytes in hexadecimal. */
#ifndef QN_TEST_SUPPORT_TQ_H
#define QN_TEST_SUPPORT_TQ_H

#include "qn_test.h"

#include "base/f16.h"
#include "base/json.h"

#include <stdbool.h>

/* One array; it lives as long as its file is open. */
typedef struct golden {
    const char *dtype;
    int shape[4], ndim;
    size_t item, size, count; /* bytes of an element and of all, elements */
    void *data;
} golden;

typedef struct goldens {
    qn_json_doc *doc;
    const qn_json *root;
    char *text;
    void *arrays[4096];
    size_t narrays;
} goldens;

static inline void goldens_open(goldens *g, const char *file)
{
    char path[128];
    size_t size;
    snprintf(path, sizeof path, "turboquant/%s.json", file);
    *g = (goldens){.text = vector_read(path, &size)};
    check_status(qn_json_parse(&g->doc, (qn_str){g->text, size}, 0), QN_OK);
    g->root = qn_json_root(g->doc);
}

static inline void goldens_close(goldens *g)
{
    for (size_t i = 0; i < g->narrays; i++)
        free(g->arrays[i]);
    qn_json_doc_free(g->doc);
    qn_free(g->text);
}

static inline int golden_int(const qn_json *object, const char *key)
{
    int64_t value = 0;
    assert_true(qn_json_as_int(qn_json_get(object, key), &value));
    return (int)value;
}

static inline bool golden_bool(const qn_json *object, const char *key)
{
    bool value = false;
    assert_true(qn_json_as_bool(qn_json_get(object, key), &value));
    return value;
}

static inline const char *golden_dtype(qn_str name, size_t *item)
{
    static const struct {
        const char *name;
        size_t item;
    } types[] = {{"int8", 1},    {"uint8", 1},    {"bool", 1},
                 {"float16", 2}, {"bfloat16", 2}, {"float32", 4}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (qn_str_is(name, types[i].name)) {
            *item = types[i].item;
            return types[i].name;
        }
    fail_msg("dtype %.*s", (int)name.size, name.data);
    return NULL;
}

static inline int golden_digit(char c)
{
    return c <= '9' ? c - '0' : (c | 32) - 'a' + 10;
}

/* The array that `a` is. */
static inline golden golden_of(goldens *g, const qn_json *a)
{
    golden out = {.count = 1};
    qn_str name, hex;
    assert_non_null(a);
    assert_true(qn_json_as_str(qn_json_get(a, "dtype"), &name));
    assert_true(qn_json_as_str(qn_json_get(a, "hex"), &hex));
    out.dtype = golden_dtype(name, &out.item);
    const qn_json *shape = qn_json_get(a, "shape");
    out.ndim = (int)shape->count;
    for (int i = 0; i < out.ndim; i++) {
        int64_t length = 0;
        assert_true(qn_json_as_int(&shape->items[i], &length));
        out.shape[i] = (int)length;
        out.count *= (size_t)length;
    }
    out.size = out.count * out.item;
    assert_int_equal(hex.size, 2 * out.size);
    uint8_t *bytes = malloc(out.size + 1);
    assert_non_null(bytes);
    for (size_t i = 0; i < out.size; i++)
        bytes[i] = (uint8_t)(golden_digit(hex.data[2 * i]) << 4 |
                             golden_digit(hex.data[2 * i + 1]));
    out.data = bytes;
    assert_true(g->narrays < sizeof g->arrays / sizeof *g->arrays);
    g->arrays[g->narrays++] = bytes;
    return out;
}

static inline golden golden_array(goldens *g, const qn_json *c, const char *key)
{
    return golden_of(g, qn_json_get(c, key));
}

static inline int golden_width(const golden *a)
{
    return a->shape[a->ndim - 1];
}

/* Element i of a floating array. */
static inline float golden_float(const golden *a, size_t i)
{
    const uint16_t *half = a->data;
    return a->item == 4                   ? ((const float *)a->data)[i]
           : !strcmp(a->dtype, "float16") ? qn_f16_to_f32(half[i])
                                          : qn_bf16_to_f32(half[i]);
}

/* All of it, to be freed with free. */
static inline float *golden_floats(const golden *a)
{
    float *out = malloc((a->count + 1) * sizeof *out);
    assert_non_null(out);
    for (size_t i = 0; i < a->count; i++)
        out[i] = golden_float(a, i);
    return out;
}

/* The same bytes; but any NaN of float32 and float16 for a NaN. */
#define check_golden(found, expected, what)                                    \
    check_golden_at(found, expected, what, __FILE__, __LINE__)

static inline void check_golden_at(const void *found, const golden *expected,
                                   const char *what, const char *file, int line)
{
    const uint8_t *a = found, *b = expected->data;
    golden mine = *expected;
    mine.data = (void *)(uintptr_t)found;
    bool any_nan = expected->item == 4 || !strcmp(expected->dtype, "float16");
    for (size_t i = 0; i < expected->count; i++) {
        if (!memcmp(a + i * mine.item, b + i * mine.item, mine.item))
            continue;
        if (any_nan) {
            float x = golden_float(&mine, i), y = golden_float(expected, i);
            if (x != x && y != y)
                continue;
        }
        print_error("%s, element %zu of %s: expected ", what, i,
                    expected->dtype);
        for (size_t j = mine.item; j--;)
            print_error("%02x", b[i * mine.item + j]);
        print_error(", found ");
        for (size_t j = mine.item; j--;)
            print_error("%02x", a[i * mine.item + j]);
        print_error("\n");
        _fail(file, line);
    }
}

#endif
