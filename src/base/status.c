/* status.c: the calling thread's last error.
 *
 * One fixed slot for each thread: recording an error never allocates, so it
 * works when memory is what ran out.  Text is formatted beside the slot
 * first, because callers pass qn_error_text() as an argument to wrap it. */
#include "status.h"

#include "utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static _Thread_local qn_error last;

/* Formats into `slot`; a text that is too long is cut between characters. */
static void store(char *slot, const char *fmt, va_list args)
{
    char text[QN_ERROR_SIZE];
    int length = vsnprintf(text, sizeof text, fmt, args);
    size_t size = 0;
    if (length >= 0) {
        size = strlen(text);
        if ((size_t)length > size)
            size -= qn_utf8_incomplete_tail((qn_str){text, size});
    }
    memcpy(slot, text, size);
    slot[size] = '\0';
}

qn_status(qn_fail)(qn_status code, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    store(last.text, fmt, args);
    va_end(args);
    last.where[0] = '\0';
    return code;
}

qn_status qn_fail_where(qn_status code, const char *fmt, ...)
{
    if (last.where[0])
        return code;
    va_list args;
    va_start(args, fmt);
    store(last.where, fmt, args);
    va_end(args);
    return code;
}

const char *qn_error_text(void)
{
    return last.text;
}

const char *qn_error_where(void)
{
    return last.where;
}

void qn_error_clear(void)
{
    last.text[0] = '\0';
    last.where[0] = '\0';
}

void qn_error_save(qn_error *out)
{
    *out = last;
}

void qn_error_restore(const qn_error *error)
{
    last = *error;
}

const char *qn_status_name(qn_status status)
{
    switch (status) {
#define QN_X(name, text)                                                       \
    case QN_##name:                                                            \
        return text;
        QN_STATUS_LIST(QN_X)
#undef QN_X
    }
    return "unknown";
}
