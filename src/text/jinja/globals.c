/* globals.c: the functions behind globals.def. */
#include "call.h"
#include "clock.h"
#include "iter.h"
#include "print.h"
#include "run.h"

#include <time.h>

/* ---- dict and namespace ---- */

/* The entries of a dict, or of an iterable of pairs. */
static void add_entries(qn_jrun *run, qn_jdict *dict, qn_jval from)
{
    if (from.kind == QN_J_DICT) {
        for (uint32_t i = 0; i < qn_jdict_count(from.as.dict); i++)
            qn_jdict_set(run, dict, qn_jdict_key(from.as.dict, i),
                         qn_jdict_value(from.as.dict, i));
        return;
    }
    qn_jiter *it = qn_jiter_new(run, from);
    for (qn_jval pair; qn_jiter_next(it, &pair);) {
        qn_jlist parts = qn_jlist_of(run, pair);
        if (qn_jrun_ok(run) && parts.count != 2)
            qn_jrun_fail(run,
                         "dictionary update sequence element has length %u; "
                         "2 is required",
                         parts.count);
        if (qn_jrun_ok(run))
            qn_jdict_set(run, dict, parts.items[0], parts.items[1]);
    }
}

static qn_jval new_dict(const qn_jcall *call, qn_jkind kind)
{
    qn_jrun *run = call->run;
    qn_jdict *dict = qn_jdict_new(run);
    bool tainted = false;
    if (call->positional_count > 1)
        return qn_jrun_fail(run, "dict expected at most 1 argument, got %u",
                            call->positional_count);
    if (call->positional_count) {
        add_entries(run, dict, call->positional[0]);
        tainted = call->positional[0].tainted;
    }
    for (uint32_t i = 0; i < call->keyword_count; i++)
        qn_jdict_set(run, dict, qn_jstring(call->names[i]), call->keywords[i]);
    return qn_jdict_val(kind, dict, tainted);
}

static qn_jval global_dict(const qn_jcall *call)
{
    return new_dict(call, QN_J_DICT);
}

static qn_jval global_namespace(const qn_jcall *call)
{
    return new_dict(call, QN_J_NAMESPACE);
}

/* ---- range ---- */

/* How many steps lie in [start, stop), without overflow. */
static uint64_t range_count(int64_t start, int64_t stop, int64_t step)
{
    if (step > 0 ? start >= stop : start <= stop)
        return 0;
    uint64_t distance = step > 0 ? (uint64_t)stop - (uint64_t)start
                                 : (uint64_t)start - (uint64_t)stop;
    uint64_t stride = step > 0 ? (uint64_t)step : 0 - (uint64_t)step;
    return (distance - 1) / stride + 1;
}

static qn_jval global_range(const qn_jcall *call)
{
    enum { LONGEST = 100000 }; /* the sandbox of Jinja has this limit */
    qn_jrun *run = call->run;
    int64_t part[3] = {0, 0, 1};
    uint32_t given = call->positional_count;
    if (!given || given > 3 || call->keyword_count)
        return qn_jrun_fail(run, "range expects 1 to 3 arguments");
    for (uint32_t i = 0; i < given; i++) {
        qn_jval value = call->positional[i];
        if (value.kind == QN_J_UNDEFINED)
            return qn_jrun_undefined(run, value);
        if (!qn_jas_int(value, &part[given == 1 ? 1 : i]))
            return qn_jrun_fail(
                run, "'%s' object cannot be interpreted as an integer",
                qn_jtype(value));
    }
    if (part[2] == 0)
        return qn_jrun_fail(run, "range() arg 3 must not be zero");
    uint64_t count = range_count(part[0], part[1], part[2]);
    if (count > LONGEST)
        return qn_jrun_fail(run,
                            "Range too big. The sandbox blocks ranges larger "
                            "than MAX_RANGE (%d).",
                            LONGEST);
    qn_jrange *range = qn_jrun_alloc(run, sizeof *range);
    if (!range)
        return qn_jundefined();
    *range = (qn_jrange){part[0], part[1], part[2], (uint32_t)count};
    return (qn_jval){.kind = QN_J_RANGE, .as.range = range};
}

/* ---- others ---- */

/* The template refuses its input; the message is its own. */
static qn_jval global_raise_exception(const qn_jcall *call)
{
    const qn_jstr *message = qn_jto_str(call->run, call->arg[0]);
    return qn_jrun_fail(call->run, "%.*s",
                        message->size > 1000 ? 1000 : (int)message->size,
                        message->data);
}

static qn_jval global_strftime_now(const qn_jcall *call)
{
    const qn_jstr *format = qn_jarg_str(call, 0, NULL);
    struct timespec now;
    struct tm local;
    if (timespec_get(&now, TIME_UTC) != TIME_UTC ||
        !localtime_r(&now.tv_sec, &local))
        return qn_jrun_fail(call->run, "the time can't be read");
    qn_jbuild b = qn_jbuild_new(call->run);
    qn_jclock_format(&b, format, &local, now.tv_nsec);
    return qn_jstring(qn_jbuild_done(&b));
}

static const qn_jrow rows[] = {
#define QN_GLOBAL(name, fn, required, parameters)                              \
    {name, fn, required, parameters},
#include "globals.def"
#undef QN_GLOBAL
};

const qn_jrow *qn_jglobal_find(qn_str name)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (qn_str_is(name, rows[i].name))
            return &rows[i];
    return NULL;
}
