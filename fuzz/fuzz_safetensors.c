/* fuzz_safetensors.c: the index of a safetensors file.
 *
 * What is accepted must lie in the file, and its tensors must cover the data
 * exactly once. */
#include "fuzz.h"

#include "base/safetensors.h"

static volatile unsigned sum;

static void walk(const qn_st *st, const uint8_t *file, size_t size)
{
    size_t total = 0;
    for (size_t i = 0; i < qn_st_count(st); i++) {
        const qn_st_tensor *t = qn_st_at(st, i);
        FUZZ_CHECK(qn_st_find(st, t->name) == t);
        FUZZ_CHECK(qn_st_dtype_name(t->dtype));
        FUZZ_CHECK(t->data.data >= file + 8 && t->data.size <= size &&
                   t->data.data <= file + size - t->data.size);
        size_t bytes = qn_st_dtype_size(t->dtype);
        for (int k = 0; k < t->ndim; k++) {
            FUZZ_CHECK(t->shape[k] >= 0);
            bytes *= (size_t)t->shape[k];
        }
        FUZZ_CHECK(bytes == t->data.size);
        if (t->data.size)
            sum += t->data.data[0] + t->data.data[t->data.size - 1];
        total += t->data.size;
    }
    FUZZ_CHECK(total == size - 8 - qn_le64(file));
    for (size_t i = 0; i < qn_st_metadata_count(st); i++) {
        qn_str key, value;
        qn_st_metadata_at(st, i, &key, &value);
        for (size_t k = 0; k < key.size; k++)
            sum += (unsigned char)key.data[k];
        for (size_t k = 0; k < value.size; k++)
            sum += (unsigned char)value.data[k];
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    qn_st *st = NULL;
    qn_status status = qn_st_parse(&st, (qn_bytes){data, size});
    FUZZ_CHECK(!status == (st != NULL));
    if (st)
        walk(st, data, size);
    qn_st_free(st);
    return 0;
}
