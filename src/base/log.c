/* log.c: formats a message and hands it to the program's sink. */
#include "log.h"

#include "utf8.h"

#include <stdarg.h>
#include <stdio.h>

static struct {
    qn_log_sink call;
    void *data;
    qn_log_level max_level;
} sink;

void qn_log_set_sink(qn_log_sink call, void *data, qn_log_level max_level)
{
    sink.call = call;
    sink.data = data;
    sink.max_level = max_level;
}

void qn_log(qn_log_level level, const char *fmt, ...)
{
    if (!sink.call || level > sink.max_level)
        return;
    char text[1024];
    va_list args;
    va_start(args, fmt);
    int length = vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (length < 0)
        return;
    /* A message that is too long is cut between characters. */
    if ((size_t)length >= sizeof text) {
        size_t size = sizeof text - 1;
        text[size - qn_utf8_incomplete_tail((qn_str){text, size})] = '\0';
    }
    sink.call(sink.data, level, text);
}
