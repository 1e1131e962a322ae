/* buf.c: the growing byte buffer.
 *
 * Storage doubles, and one byte beyond the contents always holds the NUL.
 * The first failed allocation sets `failed`; from then on nothing is added,
 * and what was there stays. */
#include "buf.h"

#include "alloc.h"
#include "utf8.h"

#include <assert.h>
#include <stdio.h>

enum { FIRST_CAPACITY = 64 };

void qn_buf_free(qn_buf *buf)
{
    qn_free(buf->data);
    *buf = QN_BUF_INIT;
}

void qn_buf_clear(qn_buf *buf)
{
    buf->size = 0;
    buf->failed = false;
    if (buf->data)
        buf->data[0] = '\0';
}

bool qn_buf_reserve(qn_buf *buf, size_t more)
{
    if (buf->failed)
        return false;
    size_t need;
    if (!qn_add_size(&need, buf->size, more) || !qn_add_size(&need, need, 1)) {
        qn_fail(QN_E_NOMEM, "out of memory: a buffer of %zu and %zu bytes",
                buf->size, more);
        buf->failed = true;
        return false;
    }
    if (need <= buf->capacity)
        return true;
    size_t capacity = buf->capacity ? buf->capacity : FIRST_CAPACITY;
    while (capacity < need)
        capacity = capacity > SIZE_MAX / 2 ? need : capacity * 2;
    char *data = qn_realloc(buf->data, capacity);
    if (!data) {
        buf->failed = true;
        return false;
    }
    data[buf->size] = '\0';
    buf->data = data;
    buf->capacity = capacity;
    return true;
}

void qn_buf_add(qn_buf *buf, const void *data, size_t size)
{
    if (!size || !qn_buf_reserve(buf, size))
        return;
    memcpy(buf->data + buf->size, data, size);
    buf->size += size;
    buf->data[buf->size] = '\0';
}

void qn_buf_add_str(qn_buf *buf, qn_str text)
{
    qn_buf_add(buf, text.data, text.size);
}

void qn_buf_add_text(qn_buf *buf, const char *text)
{
    qn_buf_add(buf, text, strlen(text));
}

void qn_buf_add_char(qn_buf *buf, char c)
{
    qn_buf_add(buf, &c, 1);
}

void qn_buf_add_code(qn_buf *buf, uint32_t code)
{
    char bytes[4];
    qn_buf_add(buf, bytes, (size_t)qn_utf8_encode(code, bytes));
}

void qn_buf_printf(qn_buf *buf, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    qn_buf_vprintf(buf, fmt, args);
    va_end(args);
}

void qn_buf_vprintf(qn_buf *buf, const char *fmt, va_list args)
{
    char small[128];
    va_list again;
    va_copy(again, args);
    int length = vsnprintf(small, sizeof small, fmt, args);
    if (length < 0) {
        /* Only a conversion error inside libc gets here. */
        buf->failed = true;
    } else if ((size_t)length < sizeof small) {
        qn_buf_add(buf, small, (size_t)length);
    } else if (qn_buf_reserve(buf, (size_t)length)) {
        vsnprintf(buf->data + buf->size, (size_t)length + 1, fmt, again);
        buf->size += (size_t)length;
    }
    va_end(again);
}

void qn_buf_truncate(qn_buf *buf, size_t size)
{
    assert(size <= buf->size);
    buf->size = size;
    if (buf->data)
        buf->data[size] = '\0';
}

qn_status qn_buf_status(const qn_buf *buf)
{
    return buf->failed ? QN_E_NOMEM : QN_OK;
}

char *qn_buf_take(qn_buf *buf)
{
    char *data = NULL;
    if (qn_buf_reserve(buf, 0)) {
        data = buf->data;
        buf->data = NULL;
    }
    qn_buf_free(buf);
    return data;
}
