/* run.c: what a rendering pays, remembers and fails with. */
#include "run.h"

#include "print.h"

#include <stdarg.h>
#include <stdio.h>

/* The first error wins.  `text` may be the slot of qn_fail itself. */
static void record(qn_jrun *run, qn_status code)
{
    run->status = code;
    qn_fail_where(code, "template line %u", run->line);
}

qn_jval qn_jrun_fail(qn_jrun *run, const char *fmt, ...)
{
    if (run->status)
        return qn_jundefined();
    char text[1024];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    record(run, qn_fail(QN_E_ARG, "%s", text));
    return qn_jundefined();
}

qn_jval qn_jrun_unsupported(qn_jrun *run, const char *fmt, ...)
{
    if (run->status)
        return qn_jundefined();
    char text[1024];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    record(run, qn_fail(QN_E_UNSUPPORTED, "not supported: %s", text));
    return qn_jundefined();
}

void qn_jrun_nomem(qn_jrun *run)
{
    if (!run->status)
        run->status = QN_E_NOMEM;
}

bool qn_jrun_step(qn_jrun *run, uint64_t n)
{
    if (run->status)
        return false;
    if (n > QN_JSTEPS - run->steps) {
        qn_jrun_fail(run, "the template takes more than %d steps", QN_JSTEPS);
        return false;
    }
    run->steps += n;
    return true;
}

bool qn_jrun_bytes(qn_jrun *run, size_t bytes)
{
    return qn_jrun_step(run, 1 + bytes / 64);
}

bool qn_jrun_chars(qn_jrun *run, size_t bytes)
{
    return qn_jrun_step(run, 1 + bytes / 4);
}

void *qn_jrun_alloc(qn_jrun *run, size_t size)
{
    if (run->status)
        return NULL;
    /* What the arena makes of it. */
    size_t cost = size < QN_JMEMORY ? (size | 15) + 1 : size;
    if (cost > QN_JMEMORY - run->memory) {
        qn_jrun_fail(run, "the template takes more than %d MiB of memory",
                     QN_JMEMORY >> 20);
        return NULL;
    }
    void *piece = qn_arena_alloc(&run->arena, size);
    if (!piece) {
        qn_jrun_nomem(run);
        return NULL;
    }
    run->memory += cost;
    return piece;
}

void *qn_jrun_array(qn_jrun *run, size_t count, size_t size)
{
    if (count > QN_JMEMORY / size)
        count = QN_JMEMORY / size + 1; /* fails below */
    return qn_jrun_alloc(run, count * size);
}

bool qn_jrun_enter(qn_jrun *run)
{
    if (run->status)
        return false;
    if (run->levels >= QN_JLEVELS) {
        qn_jrun_fail(run, "the template is nested deeper than %d levels",
                     QN_JLEVELS);
        return false;
    }
    run->levels++;
    return true;
}

qn_jval qn_jrun_undefined(qn_jrun *run, qn_jval value)
{
    const qn_jundef *u = value.as.undefined;
    if (!qn_jrun_ok(run))
        return qn_jundefined();
    if (!u)
        return qn_jrun_fail(run, "a value is undefined");
    if (u->hint)
        return qn_jrun_fail(run, "%s", u->hint);
    qn_jbuild b = qn_jbuild_new(run);
    if (u->object && u->name->kind != QN_J_STR) {
        qn_jbuild_text(&b, u->object, false);
        qn_jbuild_text(&b, " has no element ", false);
        qn_jrepr(&b, *u->name);
    } else if (u->object) {
        qn_jbuild_text(&b, "'", false);
        qn_jbuild_text(&b, u->object, false);
        qn_jbuild_text(&b, "' has no attribute ", false);
        qn_jrepr(&b, *u->name);
    } else {
        qn_jrepr(&b, *u->name);
        qn_jbuild_text(&b, " is undefined", false);
    }
    const qn_jstr *text = qn_jbuild_done(&b);
    int shown = text->size > 900 ? 900 : (int)text->size;
    return qn_jrun_fail(run, "%.*s", shown, text->data);
}
