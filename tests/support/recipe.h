/* recipe.h: the tiny models of tests/vectors/models, whose weights are made by
 * rules (tools/goldens/recipe.py has them in words), as files to open. */
#ifndef QN_TEST_RECIPE_H
#define QN_TEST_RECIPE_H

#include "support/qn_test.h"

#include "base/f16.h"
#include "base/json.h"

#include <math.h>

typedef struct recipe {
    qn_json_doc *doc;
    char *text;
    uint32_t salt;
    const qn_json *tensors; /* each [name, dtype, shape, rule] */
} recipe;

static inline qn_json_doc *recipe_parse(const char *name, const char *file,
                                        char **text)
{
    char path[512];
    size_t size;
    qn_json_doc *doc;
    snprintf(path, sizeof path, "models/%s/%s", name, file);
    *text = vector_read(path, &size);
    check_status(qn_json_parse(&doc, (qn_str){*text, size}, 0), QN_OK);
    return doc;
}

static inline recipe recipe_open(const char *name)
{
    recipe r = {0};
    int64_t salt = -1;
    r.doc = recipe_parse(name, "tensors.json", &r.text);
    const qn_json *root = qn_json_root(r.doc);
    assert_true(qn_json_as_int(qn_json_get(root, "salt"), &salt));
    r.salt = (uint32_t)salt;
    r.tensors = qn_json_get(root, "tensors");
    assert_true(r.tensors && r.tensors->count);
    return r;
}

static inline void recipe_close(recipe *r)
{
    qn_json_doc_free(r->doc);
    qn_free(r->text);
}

/* Number `i` of a tensor. */
static inline uint32_t recipe_seed(qn_str name, uint32_t salt)
{
    uint32_t seed = 2166136261u;
    for (size_t i = 0; i < name.size; i++)
        seed = (seed ^ (uint8_t)name.data[i]) * 16777619u;
    return seed ^ salt * 0x9E3779B1u;
}

static inline uint32_t recipe_hash(uint32_t seed, size_t i)
{
    uint32_t x = seed + (uint32_t)i * 0x9E3779B9u;
    x ^= x >> 16;
    x *= 0x85EBCA6Bu;
    x ^= x >> 13;
    x *= 0xC2B2AE35u;
    return x ^ x >> 16;
}

static inline int64_t recipe_int(const qn_json *list, uint32_t i)
{
    int64_t value = 0;
    assert_true(qn_json_as_int(qn_json_at(list, i), &value));
    return value;
}

static inline qn_str recipe_text(const qn_json *list, uint32_t i)
{
    qn_str text = {"", 0};
    assert_true(qn_json_as_str(qn_json_at(list, i), &text));
    return text;
}

static inline double recipe_scale(uint32_t hash, const qn_json *exponent)
{
    int64_t e = 0;
    assert_true(qn_json_as_int(exponent, &e));
    return ldexp(64 + (hash >> 26), (int)e);
}

static inline const qn_json *recipe_find(const recipe *r, qn_str name)
{
    for (uint32_t i = 0; i < r->tensors->count; i++) {
        qn_str other = recipe_text(qn_json_at(r->tensors, i), 0);
        if (other.size == name.size &&
            !memcmp(other.data, name.data, name.size))
            return qn_json_at(r->tensors, i);
    }
    fail_msg("no tensor %.*s", (int)name.size, name.data);
    return NULL;
}

static inline size_t recipe_count(const qn_json *tensor)
{
    size_t n = 1;
    const qn_json *shape = qn_json_at(tensor, 2);
    for (uint32_t i = 0; i < shape->count; i++)
        n *= (size_t)recipe_int(shape, i);
    return n;
}

/* An element of a rule that gives real numbers. */
static inline double recipe_real(const recipe *r, const qn_json *tensor,
                                 uint32_t seed, size_t i)
{
    const qn_json *rule = qn_json_at(tensor, 3);
    uint32_t h = recipe_hash(seed, i);
    double offset = 0;
    if (qn_str_is(recipe_text(rule, 0), "scales"))
        return recipe_scale(h, qn_json_at(rule, 1));
    if (qn_str_is(recipe_text(rule, 0), "biases")) {
        qn_str name = recipe_text(rule, 1);
        return -(double)recipe_int(rule, 2) *
               recipe_real(r, recipe_find(r, name), recipe_seed(name, r->salt),
                           i);
    }
    assert_true(qn_str_is(recipe_text(rule, 0), "floats"));
    assert_true(qn_json_as_double(qn_json_at(rule, 2), &offset));
    return ldexp((double)(h >> 24) - 128, (int)recipe_int(rule, 1)) + offset;
}

static inline void recipe_put(qn_buf *out, qn_str dtype, double value)
{
    float f = (float)value;
    uint32_t bits;
    uint16_t half;
    memcpy(&bits, &f, sizeof bits);
    if (qn_str_is(dtype, "F32")) {
        qn_buf_add(out, &f, sizeof f);
        return;
    }
    if (qn_str_is(dtype, "BF16")) {
        assert_int_equal(bits & 0xffff, 0); /* the rules say so */
        half = (uint16_t)(bits >> 16);
    } else {
        assert_true(qn_str_is(dtype, "F16"));
        half = qn_f32_to_f16(f);
    }
    qn_buf_add(out, &half, sizeof half);
}

static inline void recipe_blocks(const recipe *r, qn_buf *out,
                                 const qn_json *tensor)
{
    const qn_json *rule = qn_json_at(tensor, 3), *fixed = qn_json_at(rule, 2);
    qn_str name = recipe_text(tensor, 0);
    size_t size = (size_t)recipe_int(rule, 1), start = out->size;
    uint32_t seed = recipe_seed(name, r->salt);
    size_t count = recipe_count(tensor);
    for (size_t i = 0; i < count; i++)
        qn_buf_add_char(out, (char)(recipe_hash(seed, i) >> 24));
    for (uint32_t k = 0; k < fixed->count; k++) {
        const qn_json *fix = qn_json_at(fixed, k);
        size_t at = (size_t)recipe_int(fix, 0);
        char part[128];
        int n = snprintf(part, sizeof part, "%.*s#%u", (int)name.size,
                         name.data, k);
        seed = recipe_seed((qn_str){part, (size_t)n}, r->salt);
        for (size_t b = 0; b < count / size; b++) {
            char *to = out->data + start + b * size + at;
            uint32_t h = recipe_hash(seed, b);
            if (qn_str_is(recipe_text(fix, 1), "f16")) {
                uint16_t half =
                    qn_f32_to_f16((float)recipe_scale(h, qn_json_at(fix, 2)));
                memcpy(to, &half, sizeof half);
            } else {
                *to = (char)(recipe_int(fix, 2) + h % recipe_int(fix, 3));
            }
        }
    }
}

/* The bytes of a tensor. */
static inline void recipe_data(const recipe *r, qn_buf *out,
                               const qn_json *tensor)
{
    const qn_json *rule = qn_json_at(tensor, 3);
    qn_str kind = recipe_text(rule, 0), dtype = recipe_text(tensor, 1);
    uint32_t seed = recipe_seed(recipe_text(tensor, 0), r->salt);
    size_t count = recipe_count(tensor);
    if (qn_str_is(kind, "blocks")) {
        recipe_blocks(r, out, tensor);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        uint32_t h = recipe_hash(seed, i);
        if (qn_str_is(kind, "words")) {
            h &= (uint32_t)recipe_int(rule, 1);
            qn_buf_add(out, &h, sizeof h);
        } else if (qn_str_is(kind, "bytes")) {
            qn_buf_add_char(
                out, (char)(recipe_int(rule, 1) + h % recipe_int(rule, 2)));
        } else if (qn_str_is(kind, "turned")) {
            recipe_put(out, dtype, (int64_t)i < recipe_int(rule, 1) ? 1 : 1e30);
        } else {
            recipe_put(out, dtype, recipe_real(r, tensor, seed, i));
        }
    }
}

static inline void recipe_write_safetensors(const recipe *r, const char *dir)
{
    qn_buf header = QN_BUF_INIT, data = QN_BUF_INIT, file = QN_BUF_INIT;
    qn_buf_add_text(&header, "{");
    for (uint32_t i = 0; i < r->tensors->count; i++) {
        const qn_json *t = qn_json_at(r->tensors, i), *shape = qn_json_at(t, 2);
        qn_str name = recipe_text(t, 0), dtype = recipe_text(t, 1);
        size_t begin = data.size;
        recipe_data(r, &data, t);
        qn_buf_printf(&header, "%s\"%.*s\":{\"dtype\":\"%.*s\",\"shape\":[",
                      i ? "," : "", (int)name.size, name.data, (int)dtype.size,
                      dtype.data);
        for (uint32_t d = 0; d < shape->count; d++)
            qn_buf_printf(&header, "%s%lld", d ? "," : "",
                          (long long)recipe_int(shape, d));
        qn_buf_printf(&header, "],\"data_offsets\":[%zu,%zu]}", begin,
                      data.size);
    }
    qn_buf_add_text(&header, "}");
    uint64_t size = header.size;
    qn_buf_add(&file, &size, sizeof size);
    qn_buf_add(&file, header.data, header.size);
    qn_buf_add(&file, data.data, data.size);
    check_status(qn_buf_status(&file), QN_OK);
    temp_write(dir, "model.safetensors", file.data, file.size);
    qn_buf_free(&header);
    qn_buf_free(&data);
    qn_buf_free(&file);
}

static inline void recipe_write_gguf(const recipe *r, const char *dir,
                                     const char *header, size_t size)
{
    qn_buf file = QN_BUF_INIT;
    qn_buf_add(&file, header, size);
    for (uint32_t i = 0; i < r->tensors->count; i++) {
        while (file.size % 32)
            qn_buf_add_char(&file, 0);
        recipe_data(r, &file, qn_json_at(r->tensors, i));
    }
    while (file.size % 32)
        qn_buf_add_char(&file, 0);
    check_status(qn_buf_status(&file), QN_OK);
    temp_write(dir, "model.gguf", file.data, file.size);
    qn_buf_free(&file);
}

/* Writes the model NAME into `dir` and returns the path to open it by (free
 * with qn_free). */
static inline char *recipe_write(const char *name, const char *dir)
{
    recipe r = recipe_open(name);
    char path[512], *data, *result;
    size_t size;
    snprintf(path, sizeof path, "%s/models/%s/header.gguf", QN_TEST_VECTORS,
             name);
    bool gguf = access(path, R_OK) == 0;
    snprintf(path, sizeof path, "models/%s/%s", name,
             gguf ? "header.gguf" : "config.json");
    data = vector_read(path, &size);
    if (gguf) {
        recipe_write_gguf(&r, dir, data, size);
        result = qn_path_join(dir, "model.gguf");
    } else {
        temp_write(dir, "config.json", data, size);
        recipe_write_safetensors(&r, dir);
        result = qn_strdup(dir);
    }
    assert_non_null(result);
    qn_free(data);
    recipe_close(&r);
    return result;
}

#endif
