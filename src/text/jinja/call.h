/* call.h: the tables of filters, tests, methods and globals, and how their
 * functions are called.
 *
 * Each is one row of a .def file: a name, a C function, how many parameters
 * must be given, and the names of all parameters as Python has them.
 * Arguments are matched with the parameters before the function runs, so a
 * function only looks at its arg[], where MISSING means: use your default. */
#ifndef QN_TEXT_JINJA_CALL_H
#define QN_TEXT_JINJA_CALL_H

#include "value.h"

enum { QN_JPARAMETERS = 8 };

typedef struct qn_jcall {
    qn_jrun *run;
    qn_jval self; /* a filter's or test's input, a method's object */
    const qn_jval *positional;
    uint32_t positional_count;
    const qn_jstr *const *names; /* of the keyword arguments */
    const qn_jval *keywords;
    uint32_t keyword_count;
    qn_jval arg[QN_JPARAMETERS]; /* matched with the row's parameters */
} qn_jcall;

typedef qn_jval (*qn_jfn)(const qn_jcall *call);

typedef struct qn_jrow {
    const char *name;
    qn_jfn fn; /* a method without one: see qn_jmethod_row */
    uint32_t required;
    const char *parameters; /* separated by spaces; "*": takes anything and
                               reads positional and keywords itself */
} qn_jrow;

/* Rows of Python methods that templates can name but not call. */
typedef enum qn_jmethod_use {
    QN_JMETHOD_OK,
    QN_JMETHOD_CHANGES, /* would change a list or dict: forbidden */
    QN_JMETHOD_LACKING  /* not implemented */
} qn_jmethod_use;

typedef struct qn_jmethod_row {
    uint8_t kind; /* qn_jkind of the object */
    qn_jmethod_use use;
    qn_jrow row;
} qn_jmethod_row;

/* A method with its object, as `x.split` without a call. */
typedef struct qn_jmethod {
    qn_jval object;
    const qn_jrow *row;
} qn_jmethod;

/* NULL when there is no such row. */
const qn_jrow *qn_jfilter_find(qn_str name);
const qn_jrow *qn_jtest_find(qn_str name);
const qn_jrow *qn_jglobal_find(qn_str name);
const qn_jmethod_row *qn_jmethod_find(qn_jkind kind, qn_str name);

/* Calls a row; `what` ("filter", "test", ...) is for messages.  call->arg is
 * filled here. */
qn_jval qn_jcall_row(const qn_jrow *row, const char *what, qn_jcall *call);
/* Calls any callable value with the arguments of `call` (self is ignored). */
qn_jval qn_jcall_value(qn_jval callee, qn_jcall *call);

/* obj.name and obj[key], as Jinja looks them up: the one falls back on the
 * other. */
qn_jval qn_jattribute(qn_jrun *run, qn_jval object, const qn_jstr *name);
qn_jval qn_jitem(qn_jrun *run, qn_jval object, qn_jval key);
/* obj[start:stop:step]; parts that are not given are NONE. */
qn_jval qn_jslice(qn_jrun *run, qn_jval object, qn_jval start, qn_jval stop,
                  qn_jval step);

/* An argument with a default. */
bool qn_jarg_bool(const qn_jcall *call, int i, bool fallback);
int64_t qn_jarg_int(const qn_jcall *call, int i, int64_t fallback);
/* The argument's text; must be a string. */
const qn_jstr *qn_jarg_str(const qn_jcall *call, int i, const char *fallback);

#endif
