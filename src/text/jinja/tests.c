/* tests.c: the functions behind tests.def. */
#include "call.h"
#include "chars.h"
#include "iter.h"
#include "number.h"
#include "print.h"
#include "run.h"

static bool is_kind(const qn_jcall *call, qn_jkind kind)
{
    return call->self.kind == kind;
}

static bool is_integer(const qn_jcall *call)
{
    return is_kind(call, QN_J_INT) || is_kind(call, QN_J_BIGINT);
}

#define QN_KIND_TEST(name, condition)                                          \
    static qn_jval test_##name(const qn_jcall *call)                           \
    {                                                                          \
        return qn_jbool(condition);                                            \
    }

QN_KIND_TEST(defined, !is_kind(call, QN_J_UNDEFINED))
QN_KIND_TEST(undefined, is_kind(call, QN_J_UNDEFINED))
QN_KIND_TEST(none, is_kind(call, QN_J_NONE))
QN_KIND_TEST(boolean, is_kind(call, QN_J_BOOL))
QN_KIND_TEST(true, is_kind(call, QN_J_BOOL) && call->self.as.boolean)
QN_KIND_TEST(false, is_kind(call, QN_J_BOOL) && !call->self.as.boolean)
QN_KIND_TEST(integer, is_integer(call))
QN_KIND_TEST(float, is_kind(call, QN_J_FLOAT))
/* Python's bool is a number too. */
QN_KIND_TEST(number, is_integer(call) || is_kind(call, QN_J_FLOAT) ||
                         is_kind(call, QN_J_BOOL))
QN_KIND_TEST(string, is_kind(call, QN_J_STR))
QN_KIND_TEST(mapping, is_kind(call, QN_J_DICT))
/* What has a length and subscripts, which dicts and undefined values do. */
QN_KIND_TEST(sequence,
             is_kind(call, QN_J_STR) || is_kind(call, QN_J_LIST) ||
                 is_kind(call, QN_J_TUPLE) || is_kind(call, QN_J_DICT) ||
                 is_kind(call, QN_J_RANGE) || is_kind(call, QN_J_UNDEFINED))
QN_KIND_TEST(iterable, qn_jiterable(call->self) || is_kind(call, QN_J_LOOP))
QN_KIND_TEST(callable,
             is_kind(call, QN_J_MACRO) || is_kind(call, QN_J_FUNCTION) ||
                 is_kind(call, QN_J_METHOD) || is_kind(call, QN_J_LOOP) ||
                 is_kind(call, QN_J_UNDEFINED))
QN_KIND_TEST(escaped, is_kind(call, QN_J_STR) && call->self.as.str->markup)

/* ---- comparisons ---- */

QN_KIND_TEST(eq, qn_jequal(call->run, call->self, call->arg[0]))
QN_KIND_TEST(ne, !qn_jequal(call->run, call->self, call->arg[0]))
QN_KIND_TEST(in, qn_jcontains(call->run, call->arg[0], call->self))

static int order(const qn_jcall *call, const char *op)
{
    return qn_jorder(call->run, op, call->self, call->arg[0]);
}

QN_KIND_TEST(lt, order(call, "<") == -1)
QN_KIND_TEST(le, order(call, "<=") <= 0)
QN_KIND_TEST(gt, order(call, ">") == 1)

static qn_jval test_ge(const qn_jcall *call)
{
    int result = order(call, ">=");
    return qn_jbool(result == 0 || result == 1);
}

static qn_jval test_sameas(const qn_jcall *call)
{
    qn_jval a = call->self, b = call->arg[0];
    if (a.kind != b.kind)
        return qn_jbool(false);
    switch ((qn_jkind)a.kind) {
    case QN_J_NONE:
        return qn_jbool(true);
    case QN_J_BOOL:
        return qn_jbool(a.as.boolean == b.as.boolean);
    case QN_J_INT:
        return qn_jbool(a.as.integer == b.as.integer);
    case QN_J_FLOAT:
        return qn_jbool(a.as.real == b.as.real);
    default:
        return qn_jbool(a.as.str == b.as.str); /* the same pointer */
    }
}

/* ---- arithmetic ---- */

static bool remainder_is(const qn_jcall *call, qn_jval divisor, int64_t rest)
{
    qn_jval found = qn_jbinary(call->run, QN_JOP_MOD, call->self, divisor);
    return qn_jequal(call->run, found, qn_jint(rest));
}

QN_KIND_TEST(odd, remainder_is(call, qn_jint(2), 1))
QN_KIND_TEST(even, remainder_is(call, qn_jint(2), 0))
QN_KIND_TEST(divisibleby, remainder_is(call, call->arg[0], 0))

/* ---- text ---- */

QN_KIND_TEST(lower, qn_jstr_is(call->run, qn_jto_str(call->run, call->self),
                               QN_JIS_LOWER))
QN_KIND_TEST(upper, qn_jstr_is(call->run, qn_jto_str(call->run, call->self),
                               QN_JIS_UPPER))

/* ---- what the engine has ---- */

QN_KIND_TEST(filter, is_kind(call, QN_J_STR) &&
                         qn_jfilter_find(qn_jstr_str(call->self.as.str)))
QN_KIND_TEST(test, is_kind(call, QN_J_STR) &&
                       qn_jtest_find(qn_jstr_str(call->self.as.str)))

static const qn_jrow rows[] = {
#define QN_TEST(name, fn, required, parameters)                                \
    {name, fn, required, parameters},
#include "tests.def"
#undef QN_TEST
};

const qn_jrow *qn_jtest_find(qn_str name)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (qn_str_is(name, rows[i].name))
            return &rows[i];
    return NULL;
}
