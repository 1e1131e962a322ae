/* fuzz_npy.c: an array in numpy's format, from the header to the elements.
 *
 * What is accepted must lie in the file, and must be the same array after it
 * has been saved and loaded again. */
#include "fuzz.h"

#include "base/buf.h"
#include "capi/backends.h"
#include "core/eval.h"
#include "io/npy.h"

#include <string.h>

typedef struct file {
    qn_buf bytes; /* what is written */
    qn_bytes from;
    size_t position;
} file;

static bool fine(void *desc)
{
    (void)desc;
    return true;
}

static size_t tell(void *desc)
{
    return ((file *)desc)->position;
}

static size_t read_at_offset(void *desc, char *data, size_t n, size_t off)
{
    const file *f = desc;
    if (off > f->from.size)
        return 0;
    if (n > f->from.size - off)
        n = f->from.size - off;
    memcpy(data, f->from.data + off, n);
    return n;
}

static size_t read_on(void *desc, char *data, size_t n)
{
    file *f = desc;
    n = read_at_offset(f, data, n, f->position);
    f->position += n;
    return n;
}

static size_t write_on(void *desc, const char *data, size_t n)
{
    qn_buf_add(&((file *)desc)->bytes, data, n);
    return n;
}

static qn_io *stream_of(file *f)
{
    static const qn_io_calls calls = {.is_open = fine,
                                      .good = fine,
                                      .tell = tell,
                                      .read = read_on,
                                      .read_at_offset = read_at_offset,
                                      .write = write_on};
    qn_io *io = NULL;
    FUZZ_CHECK(!qn_io_new(&io, "fuzz", f, &calls, f->from.size));
    return io;
}

/* The array of a file, evaluated; NULL when it is refused. */
static qn_array *load(file *f)
{
    qn_array *array = NULL;
    qn_stream *stream;
    FUZZ_CHECK(!qn_stream_default(&stream, (qn_device){QN_DEVICE_CPU, 0}));
    qn_io *io = stream_of(f);
    qn_status status = qn_npy_load(&array, io, stream);
    qn_io_unref(io);
    FUZZ_CHECK(!status == (array != NULL));
    if (array) {
        FUZZ_CHECK(f->position <= f->from.size);
        FUZZ_CHECK(qn_array_nbytes(array) <= f->from.size - f->position);
        FUZZ_CHECK(!qn_eval(&array, 1));
    }
    return array;
}

static void check_again(qn_array *array)
{
    file copy = {0};
    qn_io *io = stream_of(&copy);
    FUZZ_CHECK(!qn_npy_save(io, array));
    qn_io_unref(io);
    FUZZ_CHECK(!copy.bytes.failed);
    copy.from = (qn_bytes){(const uint8_t *)copy.bytes.data, copy.bytes.size};
    qn_array *again = load(&copy);
    FUZZ_CHECK(again && again->dtype == array->dtype);
    FUZZ_CHECK(again->ndim == array->ndim);
    for (int i = 0; i < array->ndim; i++)
        FUZZ_CHECK(again->shape[i] == array->shape[i]);
    /* Both have their elements in the order of the file that was written. */
    FUZZ_CHECK(!memcmp(qn_array_data(again), qn_array_data(array),
                       qn_array_nbytes(array)));
    qn_array_unref(again);
    qn_buf_free(&copy.bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    qn_backends_need();
    file f = {.from = {data, size}};
    qn_array *array = load(&f);
    if (array)
        check_again(array);
    qn_array_unref(array);
    return 0;
}
