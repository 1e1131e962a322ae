/* fuzz_gguf.c: the header of a GGUF file.
 *
 * What is accepted must lie in the file and be all of the front, keys and
 * tensors must be found by their names, and tensors stand on the alignment. */
#include "fuzz.h"

#include "base/gguf.h"

static volatile double sum;

/* Reads the bytes and checks that they are in the file. */
static void touch(const void *start, size_t size, const uint8_t *file,
                  size_t file_size)
{
    const uint8_t *p = start;
    if (!size)
        return;
    FUZZ_CHECK(p >= file && size <= file_size && p <= file + file_size - size);
    sum += p[0] + p[size - 1];
}

static void walk_keys(const qn_gguf *g, const uint8_t *file, size_t size)
{
    for (size_t i = 0; i < qn_gguf_key_count(g); i++) {
        qn_str key = qn_gguf_key_at(g, i);
        const qn_gguf_value *v = qn_gguf_value_at(g, i);
        touch(key.data, key.size, file, size);
        if (v->type == QN_GGUF_STRING)
            touch(v->as.str.data, v->as.str.size, file, size);
        if (v->type != QN_GGUF_ARRAY)
            continue;
        for (size_t k = 0; k < v->as.array.count; k++) {
            if (v->as.array.item == QN_GGUF_STRING) {
                qn_str text = qn_gguf_array_str(v, k);
                touch(text.data, text.size, file, size);
            } else {
                sum += qn_gguf_array_float(v, k);
            }
        }
    }
}

static void walk_tensors(const qn_gguf *g, const uint8_t *file, size_t size)
{
    int64_t alignment = 32;
    qn_gguf_get_int(g, "general.alignment", &alignment);
    FUZZ_CHECK(alignment >= 8 && !(alignment & (alignment - 1)));
    for (size_t i = 0; i < qn_gguf_tensor_count(g); i++) {
        const qn_gguf_tensor *t = qn_gguf_tensor_at(g, i);
        FUZZ_CHECK(qn_gguf_find(g, t->name) == t);
        FUZZ_CHECK(t->ndim >= 0 && t->ndim <= 4);
        touch(t->data.data, t->data.size, file, size);
        FUZZ_CHECK(!t->data.size ||
                   (size_t)(t->data.data - file) % (size_t)alignment == 0);
        size_t bytes, elements;
        uint64_t count = t->dims[0] * t->dims[1] * t->dims[2] * t->dims[3];
        FUZZ_CHECK(qn_gguf_type_block(t->type, &bytes, &elements));
        FUZZ_CHECK(count == t->elements && count % elements == 0);
        FUZZ_CHECK(count / elements * bytes == t->data.size);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    qn_gguf *gguf = NULL;
    qn_status status = qn_gguf_parse(&gguf, (qn_bytes){data, size});
    FUZZ_CHECK(!status == (gguf != NULL));
    uint64_t need = qn_gguf_front_need((qn_bytes){data, size});
    if (gguf) {
        walk_keys(gguf, data, size);
        walk_tensors(gguf, data, size);
        /* As much of the front is enough, and less is not. */
        FUZZ_CHECK(need <= size);
        FUZZ_CHECK(qn_gguf_front_need((qn_bytes){data, need}) == need);
        for (uint64_t less = need / 2; less < need; less += need / 8 + 1)
            FUZZ_CHECK(qn_gguf_front_need((qn_bytes){data, less}) > less);
    }
    qn_gguf_free(gguf);
    return 0;
}
