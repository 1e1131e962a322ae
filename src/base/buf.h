/* buf.h: a growing byte buffer with a sticky failure.
 *
 * Appending to a buffer whose allocation failed does nothing, so a writer
 * checks once, at the end (qn_buf_status).  Contents are always followed by
 * a NUL that is not counted. */
#ifndef QN_BASE_BUF_H
#define QN_BASE_BUF_H

#include "bytes.h"
#include "status.h"

#include <stdarg.h>

typedef struct qn_buf {
    char *data; /* NULL while empty */
    size_t size, capacity;
    bool failed;
} qn_buf;

#define QN_BUF_INIT ((qn_buf){0})

void qn_buf_free(qn_buf *buf);
/* Keeps the storage. */
void qn_buf_clear(qn_buf *buf);
/* Makes room for `more` further bytes. */
bool qn_buf_reserve(qn_buf *buf, size_t more);
void qn_buf_add(qn_buf *buf, const void *data, size_t size);
void qn_buf_add_str(qn_buf *buf, qn_str text);
void qn_buf_add_text(qn_buf *buf, const char *text);
void qn_buf_add_char(qn_buf *buf, char c);
/* UTF-8 of one code point. */
void qn_buf_add_code(qn_buf *buf, uint32_t code);
void qn_buf_printf(qn_buf *buf, const char *fmt, ...) QN_PRINTF(2, 3);
void qn_buf_vprintf(qn_buf *buf, const char *fmt, va_list args);
/* Cuts the buffer to `size` bytes (no more than it has). */
void qn_buf_truncate(qn_buf *buf, size_t size);
qn_status qn_buf_status(const qn_buf *buf);
/* Hands the NUL-terminated storage over (free with qn_free) and empties the
 * buffer; NULL when it failed.  Never NULL for an empty, sound buffer. */
char *qn_buf_take(qn_buf *buf);
static inline qn_str qn_buf_str(const qn_buf *buf)
{
    return (qn_str){buf->data ? buf->data : "", buf->size};
}

#endif
