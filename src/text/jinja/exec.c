/* exec.c: statements, scopes, loops and macros.
 *
 * Every iteration of a loop, every macro call and every block has a scope of
 * its own, linked to the one around it; assignments go to the innermost.  A
 * macro keeps the scope it was defined in. */
#include "call.h"
#include "iter.h"
#include "print.h"
#include "run.h"

typedef enum flow { FLOW_ON, FLOW_BREAK, FLOW_CONTINUE } flow;

struct qn_jloop {
    const qn_jnode *node;
    qn_jscope *outer;
    qn_jiter *source;
    const qn_jnode *filter; /* NULL once the rest is a plain list */
    int64_t length;         /* < 0: not known yet */
    int64_t index0, depth0;
    qn_jval previous, current;
    qn_jval after; /* pulled early by loop.last and loop.nextitem */
    bool has_after, ended;
    qn_jval changed; /* what loop.changed saw last */
};

static flow exec_nodes(qn_jrun *run, const qn_jnodes *nodes);

/* ---- scopes ---- */

static qn_jscope *new_scope(qn_jrun *run, qn_jscope *parent)
{
    qn_jscope *scope = qn_jrun_alloc(run, sizeof *scope);
    if (!scope)
        return parent;
    *scope = (qn_jscope){.parent = parent};
    return scope;
}

void qn_jrun_bind(qn_jrun *run, uint32_t symbol, qn_jval value)
{
    for (qn_jbinding *b = run->scope->first; b; b = b->next) {
        if (b->symbol == symbol) {
            b->value = value;
            return;
        }
    }
    qn_jbinding *b = qn_jrun_alloc(run, sizeof *b);
    if (!b)
        return;
    *b = (qn_jbinding){symbol, value, run->scope->first};
    run->scope->first = b;
}

/* ns.name = value */
static void assign_attribute(qn_jrun *run, const qn_jnode *target,
                             qn_jval value)
{
    qn_jnode name = {.kind = QN_JN_NAME,
                     .line = target->line,
                     .as.symbol = target->as.nsref.symbol};
    qn_jval ns = qn_jeval(run, &name);
    if (ns.kind == QN_J_NAMESPACE)
        qn_jdict_set(run, ns.as.dict, qn_jstring(target->as.nsref.name), value);
    else
        qn_jrun_fail(run, "cannot assign attribute on non-namespace object");
}

static void assign(qn_jrun *run, const qn_jnode *target, qn_jval value)
{
    if (!qn_jrun_ok(run))
        return;
    if (target->kind == QN_JN_NAME) {
        qn_jrun_bind(run, target->as.symbol, value);
        return;
    }
    if (target->kind == QN_JN_NSREF) {
        assign_attribute(run, target, value);
        return;
    }
    if (!qn_jiterable(value)) {
        qn_jrun_fail(run, "cannot unpack non-iterable %s object",
                     qn_jtype(value));
        return;
    }
    qn_jlist parts = qn_jlist_of(run, value);
    uint32_t count = target->as.list.count;
    if (parts.count < count)
        qn_jrun_fail(run, "not enough values to unpack (expected %u, got %u)",
                     count, parts.count);
    else if (parts.count > count)
        qn_jrun_fail(run, "too many values to unpack (expected %u)", count);
    for (uint32_t i = 0; i < count && qn_jrun_ok(run); i++)
        assign(run, target->as.list.items[i], parts.items[i]);
}

/* ---- captured output ---- */

/* Runs `nodes` in `scope`, their output a string. */
static qn_jval capture(qn_jrun *run, const qn_jnodes *nodes, qn_jscope *scope,
                       flow *result)
{
    qn_jbuild text = qn_jbuild_new(run);
    qn_jbuild *out = run->out;
    qn_jscope *outer = run->scope;
    run->out = &text;
    run->scope = scope;
    flow ended = exec_nodes(run, nodes);
    run->out = out;
    run->scope = outer;
    if (result)
        *result = ended;
    return qn_jstring(qn_jbuild_done(&text));
}

/* ---- loops ---- */

/* The next item that passes the filter. */
static bool pull(qn_jrun *run, qn_jloop *loop, qn_jval *out)
{
    while (!loop->ended && qn_jiter_next(loop->source, out)) {
        if (!loop->filter)
            return true;
        qn_jscope *scope = run->scope;
        run->scope = new_scope(run, loop->outer);
        assign(run, loop->node->as.loop.target, *out);
        bool passes = qn_jtruth(qn_jeval(run, loop->filter));
        run->scope = scope;
        if (!qn_jrun_ok(run))
            break;
        if (passes)
            return true;
    }
    loop->ended = true;
    return false;
}

static bool advance(qn_jrun *run, qn_jloop *loop)
{
    qn_jval next = qn_jundefined();
    if (loop->has_after)
        next = loop->after;
    else if (!pull(run, loop, &next))
        return false;
    loop->has_after = false;
    loop->index0++;
    loop->previous = loop->current;
    loop->current = next;
    return true;
}

static bool peek(qn_jrun *run, qn_jloop *loop)
{
    if (!loop->has_after)
        loop->has_after = pull(run, loop, &loop->after);
    return loop->has_after;
}

/* Without a length of their own the remaining items are pulled now. */
static int64_t loop_length(qn_jrun *run, qn_jloop *loop)
{
    if (loop->length >= 0)
        return loop->length;
    qn_jvec rest = {0};
    for (qn_jval item; pull(run, loop, &item);)
        qn_jvec_push(run, &rest, item);
    loop->length = rest.count + loop->index0 + 1 + loop->has_after;
    loop->source =
        qn_jiter_new(run, qn_jseq(run, QN_J_LIST, rest.items, rest.count));
    loop->filter = NULL;
    loop->ended = false;
    return loop->length;
}

static qn_jval loop_cycle(const qn_jcall *call)
{
    uint32_t count = call->positional_count;
    if (!count)
        return qn_jrun_fail(call->run, "no items for cycling given");
    int64_t index = call->self.as.loop->index0;
    return call->positional[index < 0 ? 0 : index % count];
}

static qn_jval loop_changed(const qn_jcall *call)
{
    qn_jloop *loop = call->self.as.loop;
    qn_jval now = qn_jseq(call->run, QN_J_TUPLE, call->positional,
                          call->positional_count);
    if (loop->changed.kind == QN_J_TUPLE &&
        qn_jequal(call->run, loop->changed, now))
        return qn_jbool(false);
    loop->changed = now;
    return qn_jbool(true);
}

static qn_jval loop_method(qn_jrun *run, qn_jloop *loop, const qn_jrow *row)
{
    qn_jmethod *method = qn_jrun_alloc(run, sizeof *method);
    if (!method)
        return qn_jundefined();
    *method = (qn_jmethod){{.kind = QN_J_LOOP, .as.loop = loop}, row};
    return (qn_jval){.kind = QN_J_METHOD, .as.method = method};
}

qn_jval qn_jloop_attribute(qn_jrun *run, qn_jloop *loop, qn_str name)
{
    static const qn_jrow cycle = {"cycle", loop_cycle, 0, "*"};
    static const qn_jrow changed = {"changed", loop_changed, 0, "*"};
    if (qn_str_is(name, "index"))
        return qn_jint(loop->index0 + 1);
    if (qn_str_is(name, "index0"))
        return qn_jint(loop->index0);
    if (qn_str_is(name, "first"))
        return qn_jbool(loop->index0 == 0);
    if (qn_str_is(name, "last"))
        return qn_jbool(!peek(run, loop));
    if (qn_str_is(name, "length"))
        return qn_jint(loop_length(run, loop));
    if (qn_str_is(name, "revindex"))
        return qn_jint(loop_length(run, loop) - loop->index0);
    if (qn_str_is(name, "revindex0"))
        return qn_jint(loop_length(run, loop) - loop->index0 - 1);
    if (qn_str_is(name, "depth"))
        return qn_jint(loop->depth0 + 1);
    if (qn_str_is(name, "depth0"))
        return qn_jint(loop->depth0);
    if (qn_str_is(name, "previtem"))
        return loop->index0 > 0
                   ? loop->previous
                   : qn_jundefined_hint(run, "there is no previous item");
    if (qn_str_is(name, "nextitem"))
        return peek(run, loop)
                   ? loop->after
                   : qn_jundefined_hint(run, "there is no next item");
    if (qn_str_is(name, "cycle"))
        return loop_method(run, loop, &cycle);
    if (qn_str_is(name, "changed"))
        return loop_method(run, loop, &changed);
    return qn_jmissing();
}

/* Runs a for statement over `iterable`. */
static flow run_loop(qn_jrun *run, const qn_jnode *node, qn_jval iterable,
                     qn_jscope *outer, int64_t depth0)
{
    flow result = FLOW_ON;
    qn_jscope *scope = run->scope;
    qn_jloop *loop = qn_jrun_alloc(run, sizeof *loop);
    if (!loop)
        return FLOW_ON;
    *loop = (qn_jloop){.node = node,
                       .outer = outer,
                       .source = qn_jiter_new(run, iterable),
                       .filter = node->as.loop.filter,
                       .length = -1,
                       .index0 = -1,
                       .depth0 = depth0};
    if (loop->filter || !qn_jlength(run, iterable, &loop->length))
        loop->length = -1;
    bool any = false;
    while (result != FLOW_BREAK && advance(run, loop)) {
        any = true;
        run->scope = new_scope(run, outer);
        assign(run, node->as.loop.target, loop->current);
        if (run->tmpl->symbols[run->tmpl->loop].read)
            qn_jrun_bind(run, run->tmpl->loop,
                         (qn_jval){.kind = QN_J_LOOP, .as.loop = loop});
        result = exec_nodes(run, &node->as.loop.body);
    }
    result = FLOW_ON;
    if (!any && node->as.loop.otherwise.count) {
        run->scope = new_scope(run, outer);
        result = exec_nodes(run, &node->as.loop.otherwise);
    }
    run->scope = scope;
    return result;
}

static bool enter_call(qn_jrun *run)
{
    if (run->calls >= QN_JCALLS) {
        qn_jrun_fail(run, "more than %d calls inside each other", QN_JCALLS);
        return false;
    }
    if (!qn_jrun_enter(run))
        return false;
    run->calls++;
    return true;
}

static void leave_call(qn_jrun *run)
{
    run->calls--;
    qn_jrun_leave(run);
}

qn_jval qn_jrun_recurse(qn_jrun *run, qn_jloop *loop, qn_jval iterable)
{
    if (!loop->node->as.loop.recursive)
        return qn_jrun_fail(run, "The loop must have the 'recursive' marker "
                                 "to be called recursively.");
    if (!enter_call(run))
        return qn_jundefined();
    qn_jbuild text = qn_jbuild_new(run);
    qn_jbuild *out = run->out;
    run->out = &text;
    run_loop(run, loop->node, iterable, loop->outer, loop->depth0 + 1);
    run->out = out;
    leave_call(run);
    return qn_jstring(qn_jbuild_done(&text));
}

/* ---- macros ---- */

static const qn_jstr *symbol_name(const qn_jrun *run, uint32_t symbol)
{
    return run->tmpl->symbols[symbol].name;
}

static const char *macro_name(const qn_jmacro_def *def, int *size)
{
    *size = !def->name ? 4 : def->name->size > 60 ? 60 : (int)def->name->size;
    return def->name ? def->name->data : "None";
}

/* What the keyword arguments that are no parameters mean: the caller, the
 * rest for `kwargs`, or an error. */
static void bind_keywords(qn_jrun *run, const qn_jmacro_def *def,
                          const qn_jcall *call, const bool *used)
{
    qn_jval caller = qn_jundefined_hint(run, "No caller defined");
    qn_jdict *rest = qn_jdict_new(run);
    for (uint32_t k = 0; k < call->keyword_count && qn_jrun_ok(run); k++) {
        const qn_jstr *name = call->names[k];
        int shown, size = name->size > 60 ? 60 : (int)name->size;
        const char *macro = macro_name(def, &shown);
        if (used[k])
            continue;
        if (def->uses_caller && qn_str_is(qn_jstr_str(name), "caller"))
            caller = call->keywords[k];
        else if (def->uses_kwargs)
            qn_jdict_set(run, rest, qn_jstring(name), call->keywords[k]);
        else
            qn_jrun_fail(run, "macro '%.*s' takes no keyword argument '%.*s'",
                         shown, macro, size, name->data);
    }
    if (def->uses_caller)
        qn_jrun_bind(run, run->tmpl->caller, caller);
    if (def->uses_kwargs)
        qn_jrun_bind(run, run->tmpl->kwargs,
                     qn_jdict_val(QN_J_DICT, rest, false));
}

/* Binds parameter i to what was given for it; false: nothing was. */
static bool bind_given(qn_jrun *run, const qn_jmacro_def *def,
                       const qn_jcall *call, bool *used, uint32_t i)
{
    qn_str name = qn_jstr_str(symbol_name(run, def->parameters[i]));
    if (i < call->positional_count) {
        qn_jrun_bind(run, def->parameters[i], call->positional[i]);
        return true;
    }
    for (uint32_t k = 0; k < call->keyword_count; k++) {
        if (used[k] || !qn_str_eq(name, qn_jstr_str(call->names[k])))
            continue;
        used[k] = true;
        qn_jrun_bind(run, def->parameters[i], call->keywords[k]);
        return true;
    }
    qn_jrun_bind(run, def->parameters[i],
                 qn_jundefined_name(run, symbol_name(run, def->parameters[i])));
    return false;
}

/* Fills the macro's scope, which is the current one.  Defaults may use the
 * parameters before them. */
static void bind_parameters(qn_jrun *run, const qn_jmacro_def *def,
                            const qn_jcall *call)
{
    bool *used = qn_jrun_array(run, call->keyword_count + 1, sizeof *used);
    bool *given = qn_jrun_array(run, def->count + 1, sizeof *given);
    if (!used || !given)
        return;
    memset(used, 0, call->keyword_count + 1);
    for (uint32_t i = 0; i < def->count; i++)
        given[i] = bind_given(run, def, call, used, i);
    bind_keywords(run, def, call, used);
    uint32_t taken = call->positional_count < def->count
                         ? call->positional_count
                         : def->count;
    if (def->uses_varargs) {
        qn_jrun_bind(run, run->tmpl->varargs,
                     qn_jseq(run, QN_J_TUPLE, call->positional + taken,
                             call->positional_count - taken));
    } else if (call->positional_count > def->count) {
        int shown;
        const char *macro = macro_name(def, &shown);
        qn_jrun_fail(run, "macro '%.*s' takes not more than %u argument(s)",
                     shown, macro, def->count);
    }
    for (uint32_t i = 0; i < def->count && qn_jrun_ok(run); i++)
        if (!given[i] && def->defaults[i])
            qn_jrun_bind(run, def->parameters[i],
                         qn_jeval(run, def->defaults[i]));
}

qn_jval qn_jrun_macro(qn_jrun *run, const qn_jmacro *macro,
                      const qn_jcall *call)
{
    if (!enter_call(run))
        return qn_jundefined();
    qn_jscope *outer = run->scope;
    qn_jscope *scope = new_scope(run, macro->scope);
    run->scope = scope;
    bind_parameters(run, macro->def, call);
    run->scope = outer;
    qn_jval text = capture(run, &macro->def->body, scope, NULL);
    leave_call(run);
    return text;
}

static qn_jval new_macro(qn_jrun *run, const qn_jmacro_def *def)
{
    qn_jmacro *macro = qn_jrun_alloc(run, sizeof *macro);
    if (!macro)
        return qn_jundefined();
    *macro = (qn_jmacro){def, run->scope};
    return (qn_jval){.kind = QN_J_MACRO, .as.macro = macro};
}

/* ---- statements ---- */

static flow exec_if(qn_jrun *run, const qn_jnode *node)
{
    for (uint32_t i = 0; i < node->as.cases.count && qn_jrun_ok(run); i++) {
        const qn_jbranch *branch = &node->as.cases.branches[i];
        if (qn_jtruth(qn_jeval(run, branch->test)))
            return exec_nodes(run, &branch->body);
    }
    return exec_nodes(run, &node->as.cases.otherwise);
}

static flow exec_block(qn_jrun *run, const qn_jnode *node)
{
    flow result;
    qn_jval text =
        capture(run, &node->as.block.body, new_scope(run, run->scope), &result);
    if (result != FLOW_ON)
        return result;
    text = qn_jeval_filters(run, node->as.block.filters, text);
    if (node->kind == QN_JN_SET_BLOCK)
        assign(run, node->as.block.target, text);
    else
        qn_jprint(run->out, text);
    return FLOW_ON;
}

static flow exec_with(qn_jrun *run, const qn_jnode *node)
{
    qn_jscope *outer = run->scope, *inner = new_scope(run, outer);
    for (uint32_t i = 0; i < node->as.with.targets.count && qn_jrun_ok(run);
         i++) {
        qn_jval value = qn_jeval(run, node->as.with.values.items[i]);
        run->scope = inner;
        assign(run, node->as.with.targets.items[i], value);
        run->scope = outer;
    }
    run->scope = inner;
    flow result = exec_nodes(run, &node->as.with.body);
    run->scope = outer;
    return result;
}

static flow exec(qn_jrun *run, const qn_jnode *node)
{
    switch ((qn_jnode_kind)node->kind) {
    case QN_JN_TEXT:
        qn_jbuild_str(run->out, node->as.text);
        qn_jrun_bytes(run, node->as.text->size);
        return FLOW_ON;
    case QN_JN_OUTPUT:
        qn_jprint(run->out, qn_jeval(run, node->as.only));
        return FLOW_ON;
    case QN_JN_FOR:
        return run_loop(run, node, qn_jeval(run, node->as.loop.iter),
                        run->scope, 0);
    case QN_JN_IF:
        return exec_if(run, node);
    case QN_JN_SET:
        assign(run, node->as.set.target, qn_jeval(run, node->as.set.value));
        return FLOW_ON;
    case QN_JN_SET_BLOCK:
    case QN_JN_FILTER_BLOCK:
        return exec_block(run, node);
    case QN_JN_MACRO:
        qn_jrun_bind(run, node->as.macro.symbol,
                     new_macro(run, &node->as.macro.def));
        return FLOW_ON;
    case QN_JN_CALL_BLOCK:
        qn_jprint(run->out,
                  qn_jeval_call(run, node->as.call_block.call,
                                new_macro(run, &node->as.call_block.def)));
        return FLOW_ON;
    case QN_JN_WITH:
        return exec_with(run, node);
    case QN_JN_BREAK:
        return FLOW_BREAK;
    case QN_JN_CONTINUE:
        return FLOW_CONTINUE;
    default:
        qn_jrun_fail(run, "a value where a statement is expected");
        return FLOW_ON;
    }
}

/* Stops at the first error and at a break or continue. */
static flow exec_nodes(qn_jrun *run, const qn_jnodes *nodes)
{
    flow result = FLOW_ON;
    if (!qn_jrun_enter(run))
        return FLOW_ON;
    for (uint32_t i = 0; i < nodes->count && result == FLOW_ON; i++) {
        if (!qn_jrun_step(run, 1))
            break;
        run->line = nodes->items[i]->line;
        result = exec(run, nodes->items[i]);
    }
    qn_jrun_leave(run);
    return result;
}

void qn_jrun_template(qn_jrun *run)
{
    run->scope = new_scope(run, NULL);
    if (run->scope)
        exec_nodes(run, &run->tmpl->body);
}
