/* run.h: the state of one rendering.
 *
 * The run keeps the first error.  After it every function here and in the
 * files beside it may still be called and gives an empty value without doing
 * anything, so most code asks once, where it would loop or decide.  Work is
 * paid for in steps: one for each node and each item, and more where a text
 * is worked on, by its length; a run that has spent its steps has failed. */
#ifndef QN_TEXT_JINJA_RUN_H
#define QN_TEXT_JINJA_RUN_H

#include "base/arena.h"
#include "parse.h"
#include "str.h"

enum {
    QN_JSTEPS = 10 * 1000 * 1000,
    QN_JMEMORY = 256 << 20,
    QN_JLEVELS = 1024, /* nodes being evaluated inside each other */
    QN_JCALLS = 128    /* macros being called inside each other */
};

typedef struct qn_jbinding {
    uint32_t symbol;
    qn_jval value;
    struct qn_jbinding *next;
} qn_jbinding;

typedef struct qn_jscope {
    struct qn_jscope *parent; /* NULL: the variables of the run */
    qn_jbinding *first;
} qn_jscope;

struct qn_jrun {
    qn_status status; /* the first error */
    const qn_jtemplate *tmpl;
    qn_arena arena;
    uint64_t steps;
    size_t memory;
    int levels, calls;
    uint32_t line;      /* of the node being evaluated */
    qn_jval *variables; /* by symbol: given variables and globals */
    qn_jscope *scope;
    qn_jbuild *out; /* where output goes */
};

/* Pays n steps; false when the run has failed. */
bool qn_jrun_step(qn_jrun *run, uint64_t n);
/* Pays for copying or searching that many bytes, and for looking at each
 * character of a text of that size. */
bool qn_jrun_bytes(qn_jrun *run, size_t bytes);
bool qn_jrun_chars(qn_jrun *run, size_t bytes);
static inline bool qn_jrun_ok(const qn_jrun *run)
{
    return run->status == QN_OK;
}
/* Uninitialised memory that lives as long as the run; NULL has failed it. */
void *qn_jrun_alloc(qn_jrun *run, size_t size);
void *qn_jrun_array(qn_jrun *run, size_t count, size_t size);
/* Enters one more level of recursion; false has failed the run, and then
 * there is nothing to leave. */
bool qn_jrun_enter(qn_jrun *run);
static inline void qn_jrun_leave(qn_jrun *run)
{
    run->levels--;
}
/* Record the first error, with the line of the template as its place: a
 * fault of the template or its variables (QN_E_ARG), a thing that Python
 * can and this engine can't (QN_E_UNSUPPORTED), memory.  All give the
 * undefined value. */
qn_jval qn_jrun_fail(qn_jrun *run, const char *fmt, ...) QN_PRINTF(2, 3);
qn_jval qn_jrun_unsupported(qn_jrun *run, const char *fmt, ...) QN_PRINTF(2, 3);
void qn_jrun_nomem(qn_jrun *run);
/* Fails because `value` is undefined, with the message that says why. */
qn_jval qn_jrun_undefined(qn_jrun *run, qn_jval value);

/* Renders the whole template into run->out (exec.c). */
void qn_jrun_template(qn_jrun *run);
/* Calls a macro with arguments that are evaluated already (exec.c). */
struct qn_jcall;
qn_jval qn_jrun_macro(qn_jrun *run, const qn_jmacro *macro,
                      const struct qn_jcall *call);
/* The loop called as a function: renders its body over `iterable`. */
qn_jval qn_jrun_recurse(qn_jrun *run, qn_jloop *loop, qn_jval iterable);
/* loop.NAME; MISSING when there is no such thing. */
qn_jval qn_jloop_attribute(qn_jrun *run, qn_jloop *loop, qn_str name);
/* Binds in the innermost scope. */
void qn_jrun_bind(qn_jrun *run, uint32_t symbol, qn_jval value);

/* Expressions (eval.c). */
qn_jval qn_jeval(qn_jrun *run, const qn_jnode *node);
/* Evaluates a CALL node; `caller` is one more keyword argument unless
 * MISSING. */
qn_jval qn_jeval_call(qn_jrun *run, const qn_jnode *node, qn_jval caller);
/* Applies the filters of a filter or set block to its text. */
qn_jval qn_jeval_filters(qn_jrun *run, const qn_jnode *filters, qn_jval value);

#endif
