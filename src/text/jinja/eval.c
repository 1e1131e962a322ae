/* eval.c: expressions, one function for each kind of node that has more than
 * a line to it. */
#include "call.h"
#include "iter.h"
#include "number.h"
#include "print.h"
#include "run.h"

static qn_jval eval_name(qn_jrun *run, const qn_jnode *node)
{
    uint32_t symbol = node->as.symbol;
    for (const qn_jscope *s = run->scope; s; s = s->parent)
        for (const qn_jbinding *b = s->first; b; b = b->next)
            if (b->symbol == symbol)
                return b->value;
    if (run->variables[symbol].kind != QN_J_MISSING)
        return run->variables[symbol];
    return qn_jundefined_name(run, run->tmpl->symbols[symbol].name);
}

static qn_jval eval_sequence(qn_jrun *run, const qn_jnode *node)
{
    uint32_t count = node->as.list.count;
    qn_jval *items = qn_jrun_array(run, count, sizeof *items);
    for (uint32_t i = 0; items && i < count; i++)
        items[i] = qn_jeval(run, node->as.list.items[i]);
    if (!qn_jrun_ok(run))
        return qn_jundefined();
    return qn_jseq(run, node->kind == QN_JN_LIST ? QN_J_LIST : QN_J_TUPLE,
                   items, count);
}

static qn_jval eval_dict(qn_jrun *run, const qn_jnode *node)
{
    qn_jdict *dict = qn_jdict_new(run);
    const qn_jnodes *list = &node->as.list;
    for (uint32_t i = 0; i + 1 < list->count && qn_jrun_ok(run); i += 2) {
        qn_jval key = qn_jeval(run, list->items[i]);
        qn_jdict_set(run, dict, key, qn_jeval(run, list->items[i + 1]));
    }
    return qn_jdict_val(QN_J_DICT, dict, false);
}

static qn_jval eval_optional(qn_jrun *run, const qn_jnode *node)
{
    return node ? qn_jeval(run, node) : qn_jnone();
}

static qn_jval eval_item(qn_jrun *run, const qn_jnode *node)
{
    qn_jval object = qn_jeval(run, node->as.item.object);
    const qn_jnode *index = node->as.item.index;
    if (index->kind != QN_JN_SLICE)
        return qn_jitem(run, object, qn_jeval(run, index));
    qn_jval start = eval_optional(run, index->as.slice.start);
    qn_jval stop = eval_optional(run, index->as.slice.stop);
    qn_jval step = eval_optional(run, index->as.slice.step);
    return qn_jslice(run, object, start, stop, step);
}

/* ---- calls ---- */

typedef struct arguments {
    qn_jvec positional, keywords;
    qn_jvec names; /* strings */
} arguments;

static void add_keyword(qn_jrun *run, arguments *args, const qn_jstr *name,
                        qn_jval value)
{
    qn_jvec_push(run, &args->names, qn_jstring(name));
    qn_jvec_push(run, &args->keywords, value);
}

/* *star and **star2 of a call. */
static void eval_stars(qn_jrun *run, arguments *args, const qn_jargs *from)
{
    if (from->star) {
        qn_jlist more = qn_jlist_of(run, qn_jeval(run, from->star));
        for (uint32_t i = 0; i < more.count; i++)
            qn_jvec_push(run, &args->positional, more.items[i]);
    }
    if (!from->star2)
        return;
    qn_jval named = qn_jeval(run, from->star2);
    if (named.kind != QN_J_DICT) {
        qn_jrun_fail(run, "argument after ** must be a mapping, not %s",
                     qn_jtype(named));
        return;
    }
    for (uint32_t i = 0; i < qn_jdict_count(named.as.dict); i++) {
        qn_jval key = qn_jdict_key(named.as.dict, i);
        if (key.kind == QN_J_STR)
            add_keyword(run, args, key.as.str,
                        qn_jdict_value(named.as.dict, i));
        else
            qn_jrun_fail(run, "keywords must be strings");
    }
}

/* Evaluates the arguments into *call; `caller` is a keyword argument more
 * unless MISSING. */
static void eval_arguments(qn_jrun *run, qn_jcall *call, const qn_jargs *from,
                           qn_jval caller)
{
    arguments args = {{0}, {0}, {0}};
    *call = (qn_jcall){.run = run};
    for (uint32_t i = 0; i < from->positional.count && qn_jrun_ok(run); i++)
        qn_jvec_push(run, &args.positional,
                     qn_jeval(run, from->positional.items[i]));
    for (uint32_t i = 0; i < from->keywords.count && qn_jrun_ok(run); i++)
        add_keyword(run, &args, from->names[i],
                    qn_jeval(run, from->keywords.items[i]));
    eval_stars(run, &args, from);
    if (caller.kind != QN_J_MISSING)
        add_keyword(run, &args, qn_jstr_text(run, "caller"), caller);
    uint32_t count = args.names.count;
    const qn_jstr **names = NULL;
    if (count && !(names = qn_jrun_array(run, count, sizeof *names)))
        count = 0;
    for (uint32_t i = 0; i < count; i++)
        names[i] = args.names.items[i].as.str;
    if (!qn_jrun_ok(run))
        return;
    call->positional = args.positional.items;
    call->positional_count = args.positional.count;
    call->keywords = args.keywords.items;
    call->names = names;
    call->keyword_count = count;
}

qn_jval qn_jeval_call(qn_jrun *run, const qn_jnode *node, qn_jval caller)
{
    qn_jcall call;
    qn_jval callee = qn_jeval(run, node->as.call.callee);
    eval_arguments(run, &call, &node->as.call.args, caller);
    run->line = node->line;
    return qn_jcall_value(callee, &call);
}

static qn_jval apply(qn_jrun *run, const qn_jnode *node, qn_jval input)
{
    qn_jcall call;
    eval_arguments(run, &call, &node->as.apply.args, qn_jmissing());
    call.self = input;
    run->line = node->line;
    return qn_jcall_row(node->as.apply.row,
                        node->kind == QN_JN_TEST ? "test" : "filter", &call);
}

qn_jval qn_jeval_filters(qn_jrun *run, const qn_jnode *filters, qn_jval value)
{
    if (!filters || !qn_jrun_enter(run))
        return value;
    value = qn_jeval_filters(run, filters->as.apply.input, value);
    value = apply(run, filters, value);
    qn_jrun_leave(run);
    return value;
}

/* ---- operators ---- */

static qn_jval eval_chain(qn_jrun *run, const qn_jnode *node)
{
    qn_jval left = qn_jeval(run, node->as.chain.first);
    for (uint32_t i = 0; i < node->as.chain.count && qn_jrun_ok(run); i++) {
        const qn_joperand *operand = &node->as.chain.rest[i];
        qn_jval right = qn_jeval(run, operand->node);
        left = qn_jbinary(run, operand->op, left, right);
    }
    return left;
}

static qn_jval eval_concat(qn_jrun *run, const qn_jnode *node)
{
    qn_jbuild b = qn_jbuild_new(run);
    for (uint32_t i = 0; i < node->as.list.count && qn_jrun_ok(run); i++)
        qn_jprint(&b, qn_jeval(run, node->as.list.items[i]));
    return qn_jstring(qn_jbuild_done(&b));
}

static bool holds(qn_jrun *run, qn_jop op, qn_jval a, qn_jval b)
{
    switch (op) {
    case QN_JOP_EQ:
        return qn_jequal(run, a, b);
    case QN_JOP_NE:
        return !qn_jequal(run, a, b);
    case QN_JOP_LT:
        return qn_jorder(run, "<", a, b) == -1;
    case QN_JOP_LE:
        return qn_jorder(run, "<=", a, b) <= 0;
    case QN_JOP_GT:
        return qn_jorder(run, ">", a, b) == 1;
    case QN_JOP_GE: {
        int order = qn_jorder(run, ">=", a, b);
        return order == 0 || order == 1;
    }
    case QN_JOP_IN:
        return qn_jcontains(run, b, a);
    default:
        return !qn_jcontains(run, b, a);
    }
}

/* a < b < c means a < b and b < c, each evaluated once. */
static qn_jval eval_compare(qn_jrun *run, const qn_jnode *node)
{
    qn_jval left = qn_jeval(run, node->as.chain.first);
    bool result = true;
    for (uint32_t i = 0; i < node->as.chain.count && result; i++) {
        const qn_joperand *operand = &node->as.chain.rest[i];
        qn_jval right = qn_jeval(run, operand->node);
        if (!qn_jrun_ok(run))
            break;
        result = holds(run, operand->op, left, right);
        left = right;
    }
    return qn_jbool(result);
}

/* The first operand that decides, as it is. */
static qn_jval eval_logic(qn_jrun *run, const qn_jnode *node)
{
    qn_jval value = qn_jundefined();
    for (uint32_t i = 0; i < node->as.list.count && qn_jrun_ok(run); i++) {
        value = qn_jeval(run, node->as.list.items[i]);
        if (qn_jtruth(value) == (node->kind == QN_JN_OR))
            break;
    }
    return value;
}

static qn_jval eval_cond(qn_jrun *run, const qn_jnode *node)
{
    bool yes = qn_jtruth(qn_jeval(run, node->as.cond.test));
    if (yes)
        return qn_jeval(run, node->as.cond.yes);
    if (node->as.cond.no)
        return qn_jeval(run, node->as.cond.no);
    return qn_jundefined_hint(run, "the inline if-expression evaluated to "
                                   "false and no else section was defined.");
}

static qn_jval eval(qn_jrun *run, const qn_jnode *node)
{
    switch ((qn_jnode_kind)node->kind) {
    case QN_JN_CONST:
        return node->as.value;
    case QN_JN_NAME:
        return eval_name(run, node);
    case QN_JN_LIST:
    case QN_JN_TUPLE:
        return eval_sequence(run, node);
    case QN_JN_DICT:
        return eval_dict(run, node);
    case QN_JN_ATTR:
        return qn_jattribute(run, qn_jeval(run, node->as.attr.object),
                             node->as.attr.name);
    case QN_JN_ITEM:
        return eval_item(run, node);
    case QN_JN_CALL:
        return qn_jeval_call(run, node, qn_jmissing());
    case QN_JN_FILTER:
    case QN_JN_TEST:
        return apply(run, node, qn_jeval(run, node->as.apply.input));
    case QN_JN_NOT:
        return qn_jbool(!qn_jtruth(qn_jeval(run, node->as.only)));
    case QN_JN_NEG:
    case QN_JN_POS:
        return qn_jnegate(run, qn_jeval(run, node->as.only),
                          node->kind == QN_JN_NEG);
    case QN_JN_CHAIN:
        return eval_chain(run, node);
    case QN_JN_CONCAT:
        return eval_concat(run, node);
    case QN_JN_COMPARE:
        return eval_compare(run, node);
    case QN_JN_AND:
    case QN_JN_OR:
        return eval_logic(run, node);
    case QN_JN_COND:
        return eval_cond(run, node);
    case QN_JN_SLICE: /* among several subscripts: no value has these */
        return qn_jnone();
    default:
        return qn_jrun_fail(run, "a statement where a value is expected");
    }
}

qn_jval qn_jeval(qn_jrun *run, const qn_jnode *node)
{
    if (!qn_jrun_step(run, 1) || !qn_jrun_enter(run))
        return qn_jundefined();
    run->line = node->line;
    qn_jval value = eval(run, node);
    qn_jrun_leave(run);
    return qn_jrun_ok(run) ? value : qn_jundefined();
}
