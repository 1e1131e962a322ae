/* scope.c: arrays held while a composite is put together.
 *
 * The first few live in the scope itself; composites over lists outgrow that
 * and move full pages of them to the heap. */
#include "scope.h"

#include "base/alloc.h"

#include <string.h>

struct qn_scope_more {
    struct qn_scope_more *next;
    qn_array *held[QN_SCOPE_HELD];
};

void qn_scope_begin(qn_scope *c, qn_stream *stream)
{
    c->stream = stream;
    c->status = QN_OK;
    c->count = 0;
    c->more = NULL;
}

qn_array *qn_scope_hold(qn_scope *c, qn_status status, qn_array *const *made)
{
    if (status) {
        c->status = status;
        return NULL;
    }
    if (c->count == QN_SCOPE_HELD) {
        struct qn_scope_more *page = qn_alloc(sizeof *page);
        if (!page) {
            qn_array_unref(*made);
            c->status = QN_E_NOMEM;
            return NULL;
        }
        memcpy(page->held, c->held, sizeof page->held);
        page->next = c->more;
        c->more = page;
        c->count = 0;
    }
    return c->held[c->count++] = *made;
}

void qn_scope_fail(qn_scope *c, qn_status status)
{
    if (!c->status)
        c->status = status;
}

static void drop(qn_scope *c)
{
    for (int i = 0; i < c->count; i++)
        qn_array_unref(c->held[i]);
    while (c->more) {
        struct qn_scope_more *page = c->more;
        for (int i = 0; i < QN_SCOPE_HELD; i++)
            qn_array_unref(page->held[i]);
        c->more = page->next;
        qn_free(page);
    }
}

qn_status qn_scope_end(qn_scope *c, qn_array **out, qn_array *result)
{
    return qn_scope_end_many(c, out, &result, 1);
}

qn_status qn_scope_end_many(qn_scope *c, qn_array **out,
                            qn_array *const *results, int count)
{
    if (!c->status)
        for (int i = 0; i < count; i++)
            out[i] = qn_array_ref(results[i]);
    drop(c);
    return c->status;
}
