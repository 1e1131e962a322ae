/* error.c: from a recorded error to the program's handler.
 *
 * The handler in force is shared by all threads.  A thread that calls it holds
 * it, so replacing it while others are inside it destroys its data only when
 * the last of them has left; and since no lock is held then, a handler may call
 * the library and fail, and is called again.
 *
 * Before it calls the handler, a thread keeps the message for
 * quern_error_take (quern/ext.h). */
#include "handles.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "core/defer.h"
#include "core/lock.h"
#include "quern/ext.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Sentence, place in a file, place in the source. */
enum { MESSAGE_SIZE = 2 * QN_ERROR_SIZE + 256 };

typedef struct handler {
    unsigned refs; /* under QN_LOCK_HANDLER; the one in force counts itself */
    mlx_error_handler_func call;
    void *data;
    void (*dtor)(void *);
    qn_deferred deferred;
} handler;

/* The documented default, and the one place where the library prints and
 * exits. */
static void print_and_exit(const char *message, void *data)
{
    (void)data;
    printf("MLX error: %s\n", message);
    exit(255);
}

/* Counts one reference more than it gives up: it is never destroyed. */
static handler fallback = {.refs = 2, .call = print_and_exit};
static handler *current = &fallback; /* under QN_LOCK_HANDLER */

static _Thread_local char last[MESSAGE_SIZE];
static _Thread_local bool has_last;

static void destroy(qn_deferred *item)
{
    handler *h = (handler *)((char *)item - offsetof(handler, deferred));
    if (h->dtor)
        h->dtor(h->data);
    qn_free(h);
}

static handler *acquire(void)
{
    qn_lock(QN_LOCK_HANDLER);
    handler *h = current;
    h->refs++;
    qn_unlock(QN_LOCK_HANDLER);
    return h;
}

static void release(handler *h)
{
    qn_lock(QN_LOCK_HANDLER);
    bool gone = !--h->refs;
    qn_unlock(QN_LOCK_HANDLER);
    if (gone)
        qn_defer(&h->deferred);
}

static void report(const char *message)
{
    snprintf(last, sizeof last, "%s", message);
    has_last = true;
    handler *h = acquire();
    h->call(message, h->data);
    release(h);
}

void mlx_set_error_handler(mlx_error_handler_func call, void *data,
                           void (*dtor)(void *))
{
    handler *h = qn_alloc(sizeof *h);
    if (!h) {
        /* Nobody would call the destructor later. */
        if (dtor)
            dtor(data);
        QN_REPORT();
        return;
    }
    h->refs = 1;
    h->call = call ? call : print_and_exit;
    h->data = data;
    h->dtor = dtor;
    h->deferred.run = destroy;
    qn_lock(QN_LOCK_HANDLER);
    handler *before = current;
    current = h;
    qn_unlock(QN_LOCK_HANDLER);
    release(before);
}

int qn_capi_report(const char *file, int line)
{
    char message[MESSAGE_SIZE];
    const char *where = qn_error_where(), *text = qn_error_text();
    snprintf(message, sizeof message, "%s%s%s at %s:%d", where,
             *where ? ": " : "", *text ? text : "unknown error", file, line);
    report(message);
    return 1;
}

int qn_capi_report_empty(const char *type, const char *file, int line)
{
    qn_fail(QN_E_ARG, "expected a non-empty %s", type);
    return qn_capi_report(file, line);
}

void _mlx_error(const char *file, const int line, const char *fmt, ...)
{
    char place[MESSAGE_SIZE];
    snprintf(place, sizeof place, " at %s:%d", file, line);
    qn_buf message = QN_BUF_INIT;
    va_list args;
    va_start(args, fmt);
    qn_buf_vprintf(&message, fmt, args);
    va_end(args);
    /* For a callback that reports and then fails: its caller's report has the
     * same sentence. */
    if (!qn_buf_status(&message))
        qn_fail(QN_E_CANCELLED, "%s", message.data ? message.data : "");
    qn_buf_add_text(&message, place);
    if (!qn_buf_status(&message)) {
        report(message.data);
    } else {
        /* No memory: as much as fits. */
        char text[MESSAGE_SIZE];
        va_start(args, fmt);
        int length = vsnprintf(text, sizeof text, fmt, args);
        va_end(args);
        size_t end = length < 0 ? 0 : strlen(text), room = strlen(place);
        if (end + room >= sizeof text)
            end = room < sizeof text ? sizeof text - room - 1 : 0;
        snprintf(text + end, sizeof text - end, "%s", place);
        report(text);
    }
    qn_buf_free(&message);
}

char *quern_error_take(void)
{
    if (!has_last)
        return NULL;
    char *message = qn_strdup(last);
    if (message)
        has_last = false;
    return message;
}
