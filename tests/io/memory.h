/* memory.h: a stream in memory that can be told to fail, and arrays with every
 * bit set somewhere, for tests of io. */
#ifndef QN_TEST_IO_MEMORY_H
#define QN_TEST_IO_MEMORY_H

#include "support/qn_nodes.h"

#include "capi/backends.h"
#include "io/stream.h"

typedef struct memory {
    qn_buf bytes;
    size_t position;
    bool closed, bad, stuck; /* `stuck`: seeks fail */
    /* Reads and writes go through in full until this many bytes have passed;
     * then they stop short. */
    size_t limit;
    int reads, frees;
} memory;

#define MEMORY_INIT ((memory){.limit = SIZE_MAX})

static inline bool memory_is_open(void *desc)
{
    return !((memory *)desc)->closed;
}
static inline bool memory_good(void *desc)
{
    return !((memory *)desc)->bad;
}
static inline size_t memory_tell(void *desc)
{
    return ((memory *)desc)->position;
}
static inline int memory_seek(void *desc, int64_t off, int whence)
{
    memory *m = desc;
    if (m->stuck)
        return -1;
    int64_t from = whence == SEEK_SET   ? 0
                   : whence == SEEK_CUR ? (int64_t)m->position
                                        : (int64_t)m->bytes.size;
    m->position = (size_t)(from + off);
    return 0;
}
static inline size_t memory_pass(memory *m, size_t n)
{
    if (n > m->limit)
        n = m->limit;
    if (m->limit != SIZE_MAX)
        m->limit -= n;
    return n;
}
static inline size_t memory_read_at(void *desc, char *data, size_t n,
                                    size_t off)
{
    memory *m = desc;
    m->reads++;
    size_t left = off < m->bytes.size ? m->bytes.size - off : 0;
    n = memory_pass(m, n < left ? n : left);
    if (n)
        memcpy(data, m->bytes.data + off, n);
    return n;
}
static inline size_t memory_read(void *desc, char *data, size_t n)
{
    memory *m = desc;
    n = memory_read_at(m, data, n, m->position);
    m->position += n;
    return n;
}
static inline size_t memory_write(void *desc, const char *data, size_t n)
{
    memory *m = desc;
    n = memory_pass(m, n);
    qn_buf_add(&m->bytes, data, n);
    m->position = m->bytes.size;
    return m->bytes.failed ? 0 : n;
}
static inline const char *memory_label(void *desc)
{
    (void)desc;
    return "memory";
}
static inline void memory_free(void *desc)
{
    ((memory *)desc)->frees++;
}

static const qn_io_calls memory_calls = {
    .is_open = memory_is_open,
    .good = memory_good,
    .tell = memory_tell,
    .seek = memory_seek,
    .read = memory_read,
    .read_at_offset = memory_read_at,
    .write = memory_write,
    .label = memory_label,
    .free = memory_free,
};

/* A stream over the bytes; NULL when memory is out. */
static inline qn_io *memory_io(memory *m)
{
    qn_io *io = NULL;
    qn_io_new(&io, "mlx_io_reader", m, &memory_calls, SIZE_MAX);
    return io;
}

static inline void memory_set(memory *m, const void *data, size_t size)
{
    qn_buf_clear(&m->bytes);
    qn_buf_add(&m->bytes, data, size);
    assert_false(m->bytes.failed);
    m->position = 0;
}

/* ---- arrays ---- */

static inline int io_setup(void **state)
{
    (void)state;
    qn_backends_need();
    return 0;
}

/* Elements whose bytes all differ from their neighbours'; bool: 0 and 1. */
static inline qn_array *patterned(qn_dtype dtype, const int *shape, int ndim)
{
    qn_array *a = array_of(dtype, NULL, shape, ndim);
    uint8_t *bytes = qn_array_data(a);
    for (size_t i = 0; i < qn_array_nbytes(a); i++)
        bytes[i] = dtype == QN_BOOL ? i % 3 == 1 : (uint8_t)(7 * i + i / 40);
    return a;
}

/* Evaluates `found` and compares it, bit for bit. */
static inline void check_same(qn_array *found, const qn_array *wanted)
{
    check_status(qn_eval(&found, 1), QN_OK);
    assert_int_equal(found->dtype, wanted->dtype);
    assert_int_equal(found->ndim, wanted->ndim);
    for (int i = 0; i < wanted->ndim; i++)
        assert_int_equal(found->shape[i], wanted->shape[i]);
    size_t each = qn_array_itemsize(wanted);
    for (size_t i = 0; i < wanted->size; i++)
        assert_memory_equal(place_of(found, i), place_of(wanted, i), each);
}

#endif
