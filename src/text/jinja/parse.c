/* parse.c: recursive descent over the tokens, one function for each level of
 * precedence and each statement.
 *
 * The first error stops everything: fail() moves the parser to the end of
 * the tokens, where every loop ends, and nodes that can't be allocated are
 * replaced by a spare one, so no caller has to look for NULL. */
#include "parse.h"

#include "base/alloc.h"
#include "base/map.h"
#include "base/utf8.h"
#include "call.h"
#include "lex.h"
#include "number.h"

#include <stdarg.h>
#include <stdio.h>

/* What the macro whose body is being parsed reads of its special names. */
typedef struct macro_context {
    struct macro_context *outer;
    bool caller, varargs, kwargs;
} macro_context;

typedef struct parser {
    qn_jtemplate *tmpl;
    const qn_jtoken *tokens;
    const qn_jtoken *at;
    const qn_jtoken *last; /* the EOF token */
    qn_map *symbols;       /* name -> index of tmpl->symbols */
    uint32_t symbol_capacity;
    macro_context *macro;
    int depth;
    int loops;      /* open for statements that break could leave */
    int conditions; /* open if statements and conditional expressions */
    const qn_jtoken *unknown; /* an unknown filter or test not inside these */
    const char *unknown_what;
    qn_status status;
    qn_jnode spare;
} parser;

static qn_jnode *parse_expression(parser *p);
static qn_jnode *parse_tuple(parser *p, bool with_cond);
static qn_jnode *parse_unary(parser *p, bool with_filters);

/* ---- errors and memory ---- */

QN_PRINTF(3, 4)
static void fail(parser *p, qn_status code, const char *fmt, ...)
{
    if (p->status)
        return;
    char text[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    p->status = qn_fail(code, "chat template: %s", text);
    qn_fail_where(code, "template line %u", p->at->line);
    p->at = p->last;
}

static void out_of_memory(parser *p)
{
    if (!p->status)
        p->status = QN_E_NOMEM;
    p->at = p->last;
}

static void *allocate(parser *p, size_t size)
{
    void *piece = p->status ? NULL : qn_arena_alloc(&p->tmpl->arena, size);
    if (!piece)
        out_of_memory(p);
    return piece;
}

static qn_jnode *new_node(parser *p, qn_jnode_kind kind, uint32_t line)
{
    qn_jnode *node = allocate(p, sizeof *node);
    if (!node)
        node = &p->spare;
    *node = (qn_jnode){.kind = (uint8_t)kind, .line = line};
    return node;
}

/* Makes room for one more item of an array in the arena; the array, or NULL
 * when memory is out. */
static void *grow(parser *p, void *items, uint32_t count, uint32_t *capacity,
                  size_t size)
{
    if (count < *capacity)
        return items;
    uint32_t wider = *capacity ? *capacity * 2 : 4;
    void *grown = allocate(p, wider * size);
    if (!grown)
        return NULL;
    if (count)
        memcpy(grown, items, count * size);
    *capacity = wider;
    return grown;
}

static void add_node(parser *p, qn_jnodes *list, qn_jnode *node)
{
    qn_jnode **items =
        grow(p, list->items, list->count, &list->capacity, sizeof *items);
    if (!items)
        return;
    list->items = items;
    list->items[list->count++] = node;
}

static const qn_jstr *new_str(parser *p, qn_str text)
{
    qn_jstr *str = allocate(p, sizeof *str);
    if (!str)
        return &qn_jstr_empty;
    *str = (qn_jstr){.data = text.data,
                     .size = (uint32_t)text.size,
                     .chars = (uint32_t)qn_jstr_count(text)};
    return str;
}

/* The index of a name, new or known. */
static uint32_t symbol(parser *p, qn_str name)
{
    if (p->status)
        return 0;
    bool added;
    qn_map_value *slot = qn_map_put(p->symbols, name, &added);
    if (!slot) {
        out_of_memory(p);
        return 0;
    }
    if (!added)
        return (uint32_t)slot->u64;
    qn_jtemplate *t = p->tmpl;
    qn_jsymbol *symbols = grow(p, t->symbols, t->symbol_count,
                               &p->symbol_capacity, sizeof *symbols);
    const qn_jstr *str = new_str(p, name);
    if (!symbols)
        return 0;
    t->symbols = symbols;
    t->symbols[t->symbol_count] = (qn_jsymbol){.name = str};
    slot->u64 = t->symbol_count;
    return t->symbol_count++;
}

/* ---- tokens ---- */

static bool at_kind(const parser *p, qn_jtoken_kind kind)
{
    return p->at->kind == kind;
}

static bool at_name(const parser *p, const char *name)
{
    return p->at->kind == QN_JT_NAME && qn_str_is(p->at->text, name);
}

static const qn_jtoken *ahead(const parser *p)
{
    return p->at == p->last ? p->at : p->at + 1;
}

static void next(parser *p)
{
    p->at = ahead(p);
}

static bool skip(parser *p, qn_jtoken_kind kind)
{
    if (!at_kind(p, kind))
        return false;
    next(p);
    return true;
}

static bool skip_name(parser *p, const char *name)
{
    if (!at_name(p, name))
        return false;
    next(p);
    return true;
}

/* Fails with what stands here instead of what was expected. */
static void unexpected(parser *p, const char *expected)
{
    const qn_jtoken *t = p->at;
    switch (t->kind) {
    case QN_JT_EOF:
        fail(p, QN_E_FORMAT, "expected %s, found the end of the template",
             expected);
        break;
    case QN_JT_BLOCK_BEGIN:
    case QN_JT_BLOCK_END:
    case QN_JT_PRINT_BEGIN:
    case QN_JT_PRINT_END:
        fail(p, QN_E_FORMAT, "expected %s, found the end of the tag", expected);
        break;
    default:
        fail(p, QN_E_FORMAT, "expected %s, found '%.*s'", expected,
             t->text.size > 60 ? 60 : (int)t->text.size, t->text.data);
        break;
    }
}

static void expect(parser *p, qn_jtoken_kind kind, const char *expected)
{
    if (!skip(p, kind))
        unexpected(p, expected);
}

static qn_str expect_name(parser *p, const char *expected)
{
    qn_str name = p->at->text;
    if (at_kind(p, QN_JT_NAME)) {
        next(p);
        return name;
    }
    unexpected(p, expected);
    return QN_STR("");
}

/* One level deeper; false has failed.  Each success needs a leave(). */
static bool enter(parser *p)
{
    if (p->depth >= QN_JNESTING) {
        fail(p, QN_E_FORMAT, "nested deeper than %d levels", QN_JNESTING);
        return false;
    }
    p->depth++;
    return true;
}

static void leave(parser *p)
{
    p->depth--;
}

/* ---- primary expressions ---- */

static qn_jnode *parse_name(parser *p)
{
    const qn_jtoken *t = p->at;
    static const struct {
        const char *name;
        qn_jkind kind;
        bool value;
    } constants[] = {
        {"true", QN_J_BOOL, true},   {"True", QN_J_BOOL, true},
        {"false", QN_J_BOOL, false}, {"False", QN_J_BOOL, false},
        {"none", QN_J_NONE, false},  {"None", QN_J_NONE, false},
    };
    next(p);
    for (size_t i = 0; i < sizeof constants / sizeof *constants; i++) {
        if (!qn_str_is(t->text, constants[i].name))
            continue;
        qn_jnode *node = new_node(p, QN_JN_CONST, t->line);
        node->as.value = constants[i].kind == QN_J_BOOL
                             ? qn_jbool(constants[i].value)
                             : qn_jnone();
        return node;
    }
    qn_jnode *node = new_node(p, QN_JN_NAME, t->line);
    node->as.symbol = symbol(p, t->text);
    if (p->status)
        return node;
    p->tmpl->symbols[node->as.symbol].read = true;
    if (p->macro) {
        p->macro->caller |= node->as.symbol == p->tmpl->caller;
        p->macro->varargs |= node->as.symbol == p->tmpl->varargs;
        p->macro->kwargs |= node->as.symbol == p->tmpl->kwargs;
    }
    return node;
}

/* A string; neighbours join. */
static qn_jnode *parse_string(parser *p)
{
    qn_jnode *node = new_node(p, QN_JN_CONST, p->at->line);
    const qn_jtoken *first = p->at;
    size_t size = 0;
    for (; at_kind(p, QN_JT_STRING); next(p))
        size += p->at->text.size;
    qn_str text = first->text;
    if (p->at > first + 1) {
        char *joined = allocate(p, size);
        if (!joined)
            return node;
        text = (qn_str){joined, size};
        for (const qn_jtoken *t = first; t < p->at; t++) {
            memcpy(joined, t->text.data, t->text.size);
            joined += t->text.size;
        }
    }
    node->as.value = qn_jstring(new_str(p, text));
    return node;
}

static qn_jnode *parse_number(parser *p)
{
    const qn_jtoken *t = p->at;
    qn_jnode *node = new_node(p, QN_JN_CONST, t->line);
    double real;
    int64_t integer;
    if (at_kind(p, QN_JT_FLOAT)) {
        qn_jnumber_real(t->text, &real);
        node->as.value = qn_jreal(real);
    } else if (qn_jnumber_int(t->text, 0, &integer)) {
        node->as.value = qn_jint(integer);
    } else if (t->text.size > 1 && t->text.data[1] > '9') {
        fail(p, QN_E_UNSUPPORTED,
             "integers beyond 64 bits are only supported in decimal");
    } else {
        node->as.value =
            (qn_jval){.kind = QN_J_BIGINT, .as.str = new_str(p, t->text)};
    }
    next(p);
    return node;
}

static qn_jnode *parse_list(parser *p)
{
    qn_jnode *node = new_node(p, QN_JN_LIST, p->at->line);
    next(p);
    while (!at_kind(p, QN_JT_RBRACKET) && !p->status) {
        add_node(p, &node->as.list, parse_expression(p));
        if (!skip(p, QN_JT_COMMA))
            break;
    }
    expect(p, QN_JT_RBRACKET, "',' or ']'");
    return node;
}

static qn_jnode *parse_dict(parser *p)
{
    qn_jnode *node = new_node(p, QN_JN_DICT, p->at->line);
    next(p);
    while (!at_kind(p, QN_JT_RBRACE) && !p->status) {
        add_node(p, &node->as.list, parse_expression(p));
        expect(p, QN_JT_COLON, "':'");
        add_node(p, &node->as.list, parse_expression(p));
        if (!skip(p, QN_JT_COMMA))
            break;
    }
    expect(p, QN_JT_RBRACE, "',' or '}'");
    return node;
}

static qn_jnode *parse_primary(parser *p)
{
    qn_jnode *node;
    switch (p->at->kind) {
    case QN_JT_NAME:
        return parse_name(p);
    case QN_JT_STRING:
        return parse_string(p);
    case QN_JT_INTEGER:
    case QN_JT_FLOAT:
        return parse_number(p);
    case QN_JT_LBRACKET:
        return parse_list(p);
    case QN_JT_LBRACE:
        return parse_dict(p);
    case QN_JT_LPAREN:
        next(p);
        if (at_kind(p, QN_JT_RPAREN)) {
            node = new_node(p, QN_JN_TUPLE, p->at->line);
        } else {
            node = parse_tuple(p, true);
        }
        expect(p, QN_JT_RPAREN, "')'");
        return node;
    default:
        unexpected(p, "an expression");
        return new_node(p, QN_JN_CONST, p->at->line);
    }
}

/* ---- postfixes: subscripts, calls, filters, tests ---- */

static void parse_arguments(parser *p, qn_jargs *args)
{
    uint32_t name_capacity = 0;
    expect(p, QN_JT_LPAREN, "'('");
    while (!at_kind(p, QN_JT_RPAREN) && !p->status) {
        bool late = args->star2 != NULL;
        if (skip(p, QN_JT_MUL)) {
            late |= args->star != NULL;
            args->star = parse_expression(p);
        } else if (skip(p, QN_JT_POW)) {
            args->star2 = parse_expression(p);
        } else if (at_kind(p, QN_JT_NAME) && ahead(p)->kind == QN_JT_ASSIGN) {
            const qn_jstr **names = grow(p, args->names, args->keywords.count,
                                         &name_capacity, sizeof *names);
            if (!names)
                return;
            args->names = names;
            args->names[args->keywords.count] = new_str(p, p->at->text);
            next(p);
            next(p);
            add_node(p, &args->keywords, parse_expression(p));
        } else {
            late |= args->star || args->keywords.count;
            add_node(p, &args->positional, parse_expression(p));
        }
        if (late)
            fail(p, QN_E_FORMAT, "the arguments of a call are out of order");
        if (!skip(p, QN_JT_COMMA))
            break;
    }
    expect(p, QN_JT_RPAREN, "',' or ')'");
}

static bool at_subscript_end(const parser *p)
{
    return at_kind(p, QN_JT_RBRACKET) || at_kind(p, QN_JT_COMMA);
}

/* What stands between [ and ]: an expression or start:stop:step. */
static qn_jnode *parse_subscribed(parser *p)
{
    uint32_t line = p->at->line;
    qn_jnode *start = NULL;
    if (!at_kind(p, QN_JT_COLON))
        start = parse_expression(p);
    if (!skip(p, QN_JT_COLON))
        return start;
    qn_jnode *node = new_node(p, QN_JN_SLICE, line);
    node->as.slice.start = start;
    if (!at_kind(p, QN_JT_COLON) && !at_subscript_end(p))
        node->as.slice.stop = parse_expression(p);
    if (skip(p, QN_JT_COLON) && !at_subscript_end(p))
        node->as.slice.step = parse_expression(p);
    return node;
}

static qn_jnode *parse_subscript(parser *p, qn_jnode *object)
{
    qn_jnode *node = new_node(p, QN_JN_ITEM, p->at->line);
    if (skip(p, QN_JT_DOT)) {
        if (at_kind(p, QN_JT_INTEGER)) {
            node->as.item.object = object;
            node->as.item.index = parse_number(p);
            return node;
        }
        node->kind = QN_JN_ATTR;
        node->as.attr.object = object;
        node->as.attr.name = new_str(p, expect_name(p, "an attribute"));
        return node;
    }
    next(p); /* [ */
    node->as.item.object = object;
    qn_jnode *index = parse_subscribed(p);
    if (at_kind(p, QN_JT_COMMA)) {
        qn_jnode *tuple = new_node(p, QN_JN_TUPLE, node->line);
        add_node(p, &tuple->as.list, index);
        while (skip(p, QN_JT_COMMA) && !at_kind(p, QN_JT_RBRACKET))
            add_node(p, &tuple->as.list, parse_subscribed(p));
        index = tuple;
    }
    node->as.item.index = index;
    expect(p, QN_JT_RBRACKET, "']'");
    return node;
}

static qn_jnode *parse_call(parser *p, qn_jnode *callee)
{
    qn_jnode *node = new_node(p, QN_JN_CALL, p->at->line);
    node->as.call.callee = callee;
    parse_arguments(p, &node->as.call.args);
    return node;
}

/* Filters, tests and attributes may be followed by more of their kind
 * without end; the tree gets as deep as the chain is long. */
static bool too_long(parser *p, int length)
{
    if (length < QN_JNESTING)
        return false;
    fail(p, QN_E_FORMAT, "a chain longer than %d parts", QN_JNESTING);
    return true;
}

static qn_jnode *parse_postfix(parser *p, qn_jnode *node)
{
    for (int length = 0; !too_long(p, length); length++) {
        if (at_kind(p, QN_JT_DOT) || at_kind(p, QN_JT_LBRACKET))
            node = parse_subscript(p, node);
        else if (at_kind(p, QN_JT_LPAREN))
            node = parse_call(p, node);
        else
            break;
    }
    return node;
}

/* A row without function: calling it is the error. */
static const qn_jrow *lacking_row(parser *p, qn_str name)
{
    qn_jrow *row = allocate(p, sizeof *row);
    char *text = allocate(p, name.size + 1);
    if (!row || !text)
        return NULL;
    memcpy(text, name.data, name.size);
    text[name.size] = '\0';
    *row = (qn_jrow){text, NULL, 0, "*"};
    return row;
}

/* The name behind "|" or "is" and its row.  As in Jinja an unknown one is an
 * error of the template, but where a condition decides whether it is reached
 * only when it is. */
static const qn_jrow *parse_row(parser *p, const char *what,
                                const qn_jrow *(*find)(qn_str name))
{
    qn_str name = expect_name(p, what);
    const qn_jrow *row = p->status ? NULL : find(name);
    if (at_kind(p, QN_JT_DOT))
        fail(p, QN_E_UNSUPPORTED, "the %s '%.*s.' with a dot is not supported",
             what, name.size > 60 ? 60 : (int)name.size, name.data);
    else if (!row)
        row = lacking_row(p, name);
    if (row && !row->fn && !p->conditions && !p->unknown) {
        p->unknown = p->at - 1;
        p->unknown_what = what;
    }
    return row;
}

/* At the end of a statement: an unknown filter or test that will be reached
 * is refused. */
static void check_rows(parser *p)
{
    if (!p->unknown || p->status)
        return;
    qn_str name = p->unknown->text;
    p->at = p->unknown;
    fail(p, QN_E_UNSUPPORTED, "the %s '%.*s' is not supported", p->unknown_what,
         name.size > 60 ? 60 : (int)name.size, name.data);
}

/* One filter; the "|" is behind us. */
static qn_jnode *parse_filter(parser *p, qn_jnode *input)
{
    qn_jnode *node = new_node(p, QN_JN_FILTER, p->at->line);
    node->as.apply.input = input;
    node->as.apply.row = parse_row(p, "filter", qn_jfilter_find);
    if (at_kind(p, QN_JT_LPAREN))
        parse_arguments(p, &node->as.apply.args);
    return node;
}

/* True at a token that starts the argument of a test without parentheses. */
static bool at_bare_argument(const parser *p)
{
    switch (p->at->kind) {
    case QN_JT_NAME:
        return !at_name(p, "else") && !at_name(p, "or") && !at_name(p, "and");
    case QN_JT_STRING:
    case QN_JT_INTEGER:
    case QN_JT_FLOAT:
    case QN_JT_LPAREN:
    case QN_JT_LBRACKET:
    case QN_JT_LBRACE:
        return true;
    default:
        return false;
    }
}

/* One test; the "is" is behind us. */
static qn_jnode *parse_test(parser *p, qn_jnode *input)
{
    uint32_t line = p->at->line;
    bool negated = skip_name(p, "not");
    qn_jnode *node = new_node(p, QN_JN_TEST, line);
    node->as.apply.input = input;
    node->as.apply.row = parse_row(p, "test", qn_jtest_find);
    if (at_kind(p, QN_JT_LPAREN)) {
        parse_arguments(p, &node->as.apply.args);
    } else if (at_bare_argument(p)) {
        if (at_name(p, "is"))
            fail(p, QN_E_FORMAT, "tests can't be chained with 'is'");
        add_node(p, &node->as.apply.args.positional,
                 parse_postfix(p, parse_primary(p)));
    }
    if (!negated)
        return node;
    qn_jnode *opposite = new_node(p, QN_JN_NOT, line);
    opposite->as.only = node;
    return opposite;
}

static qn_jnode *parse_filters(parser *p, qn_jnode *node)
{
    for (int length = 0; !too_long(p, length); length++) {
        if (skip(p, QN_JT_PIPE))
            node = parse_filter(p, node);
        else if (skip_name(p, "is"))
            node = parse_test(p, node);
        else if (at_kind(p, QN_JT_LPAREN))
            node = parse_call(p, node);
        else
            break;
    }
    return node;
}

/* ---- operators, tightest first ---- */

static qn_jnode *parse_unary(parser *p, bool with_filters)
{
    qn_jnode *node;
    if (at_kind(p, QN_JT_SUB) || at_kind(p, QN_JT_ADD)) {
        node = new_node(p, at_kind(p, QN_JT_SUB) ? QN_JN_NEG : QN_JN_POS,
                        p->at->line);
        next(p);
        if (!enter(p))
            return node;
        node->as.only = parse_unary(p, false);
        leave(p);
    } else {
        node = parse_primary(p);
    }
    node = parse_postfix(p, node);
    return with_filters ? parse_filters(p, node) : node;
}

/* first, then any number of (operator, operand), all of one precedence. */
static qn_jnode *add_operand(parser *p, qn_jnode *chain, qn_jnode_kind kind,
                             qn_jnode *first, qn_jop op, qn_jnode *operand)
{
    if (!chain) {
        chain = new_node(p, kind, first->line);
        chain->as.chain.first = first;
    }
    qn_joperand *rest = grow(p, chain->as.chain.rest, chain->as.chain.count,
                             &chain->as.chain.capacity, sizeof *rest);
    if (!rest)
        return chain;
    chain->as.chain.rest = rest;
    chain->as.chain.rest[chain->as.chain.count++] = (qn_joperand){op, operand};
    return chain;
}

typedef struct level {
    qn_jtoken_kind token;
    qn_jop op;
} level;

/* Operands from `operand` joined by the operators of `ops`. */
static qn_jnode *parse_level(parser *p, qn_jnode *(*operand)(parser *p),
                             const level *ops, size_t count)
{
    qn_jnode *first = operand(p), *chain = NULL;
    for (size_t i = 0; i < count;) {
        if (!skip(p, ops[i].token)) {
            i++;
            continue;
        }
        chain =
            add_operand(p, chain, QN_JN_CHAIN, first, ops[i].op, operand(p));
        i = 0;
    }
    return chain ? chain : first;
}

static qn_jnode *parse_filtered(parser *p)
{
    return parse_unary(p, true);
}

static qn_jnode *parse_pow(parser *p)
{
    static const level ops[] = {{QN_JT_POW, QN_JOP_POW}};
    return parse_level(p, parse_filtered, ops, 1);
}

static qn_jnode *parse_mul(parser *p)
{
    static const level ops[] = {{QN_JT_MUL, QN_JOP_MUL},
                                {QN_JT_DIV, QN_JOP_DIV},
                                {QN_JT_FLOORDIV, QN_JOP_FLOORDIV},
                                {QN_JT_MOD, QN_JOP_MOD}};
    return parse_level(p, parse_pow, ops, 4);
}

static qn_jnode *parse_concat(parser *p)
{
    qn_jnode *first = parse_mul(p);
    if (!at_kind(p, QN_JT_TILDE))
        return first;
    qn_jnode *node = new_node(p, QN_JN_CONCAT, first->line);
    add_node(p, &node->as.list, first);
    while (skip(p, QN_JT_TILDE))
        add_node(p, &node->as.list, parse_mul(p));
    return node;
}

static qn_jnode *parse_add(parser *p)
{
    static const level ops[] = {{QN_JT_ADD, QN_JOP_ADD},
                                {QN_JT_SUB, QN_JOP_SUB}};
    return parse_level(p, parse_concat, ops, 2);
}

/* True when a comparison follows, which is then behind us. */
static bool skip_comparison(parser *p, qn_jop *op)
{
    static const level ops[] = {{QN_JT_EQ, QN_JOP_EQ}, {QN_JT_NE, QN_JOP_NE},
                                {QN_JT_LT, QN_JOP_LT}, {QN_JT_LE, QN_JOP_LE},
                                {QN_JT_GT, QN_JOP_GT}, {QN_JT_GE, QN_JOP_GE}};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        if (skip(p, ops[i].token)) {
            *op = ops[i].op;
            return true;
        }
    }
    *op = QN_JOP_IN;
    if (skip_name(p, "in"))
        return true;
    if (!at_name(p, "not") || ahead(p)->kind != QN_JT_NAME ||
        !qn_str_is(ahead(p)->text, "in"))
        return false;
    next(p);
    next(p);
    *op = QN_JOP_NOT_IN;
    return true;
}

static qn_jnode *parse_compare(parser *p)
{
    qn_jnode *first = parse_add(p), *chain = NULL;
    qn_jop op;
    while (skip_comparison(p, &op))
        chain = add_operand(p, chain, QN_JN_COMPARE, first, op, parse_add(p));
    return chain ? chain : first;
}

static qn_jnode *parse_not(parser *p)
{
    if (!at_name(p, "not"))
        return parse_compare(p);
    qn_jnode *node = new_node(p, QN_JN_NOT, p->at->line);
    next(p);
    if (!enter(p))
        return node;
    node->as.only = parse_not(p);
    leave(p);
    return node;
}

static qn_jnode *parse_and(parser *p)
{
    qn_jnode *first = parse_not(p);
    if (!at_name(p, "and"))
        return first;
    qn_jnode *node = new_node(p, QN_JN_AND, first->line);
    add_node(p, &node->as.list, first);
    while (skip_name(p, "and"))
        add_node(p, &node->as.list, parse_not(p));
    return node;
}

static qn_jnode *parse_or(parser *p)
{
    qn_jnode *first = parse_and(p);
    if (!at_name(p, "or"))
        return first;
    qn_jnode *node = new_node(p, QN_JN_OR, first->line);
    add_node(p, &node->as.list, first);
    while (skip_name(p, "or"))
        add_node(p, &node->as.list, parse_and(p));
    return node;
}

/* yes if test else no; `else` may be absent, and `a if b if c` nests to the
 * left. */
static qn_jnode *parse_cond(parser *p)
{
    const qn_jtoken *unknown = p->unknown;
    qn_jnode *node = parse_or(p);
    for (int length = 0; at_name(p, "if") && !too_long(p, length); length++) {
        qn_jnode *cond = new_node(p, QN_JN_COND, p->at->line);
        next(p);
        p->unknown = unknown; /* what stands before the "if" is inside too */
        p->conditions++;
        cond->as.cond.yes = node;
        cond->as.cond.test = parse_or(p);
        if (skip_name(p, "else"))
            cond->as.cond.no = parse_expression(p);
        p->conditions--;
        node = cond;
    }
    return node;
}

static qn_jnode *parse_expression(parser *p)
{
    if (!enter(p))
        return new_node(p, QN_JN_CONST, p->at->line);
    qn_jnode *node = parse_cond(p);
    leave(p);
    return node;
}

/* An expression without `if` on its outside, which means something else in
 * for and if statements. */
static qn_jnode *parse_plain_expression(parser *p)
{
    if (!enter(p))
        return new_node(p, QN_JN_CONST, p->at->line);
    qn_jnode *node = parse_or(p);
    leave(p);
    return node;
}

/* One expression, or several with commas: a tuple.  Not empty. */
static qn_jnode *parse_tuple(parser *p, bool with_cond)
{
    qn_jnode *(*item)(parser * p) =
        with_cond ? parse_expression : parse_plain_expression;
    uint32_t line = p->at->line;
    qn_jnode *first = item(p);
    if (!at_kind(p, QN_JT_COMMA))
        return first;
    qn_jnode *node = new_node(p, QN_JN_TUPLE, line);
    add_node(p, &node->as.list, first);
    while (skip(p, QN_JT_COMMA)) {
        if (at_kind(p, QN_JT_PRINT_END) || at_kind(p, QN_JT_BLOCK_END) ||
            at_kind(p, QN_JT_RPAREN) || at_name(p, "recursive"))
            break;
        add_node(p, &node->as.list, item(p));
    }
    return node;
}

/* ---- targets of assignments ---- */

static qn_jnode *parse_target_list(parser *p, bool with_namespace);

static qn_jnode *parse_target_item(parser *p, bool with_namespace)
{
    uint32_t line = p->at->line;
    if (skip(p, QN_JT_LPAREN)) {
        qn_jnode *node = new_node(p, QN_JN_TUPLE, line);
        if (enter(p)) {
            node = parse_target_list(p, with_namespace);
            leave(p);
        }
        expect(p, QN_JT_RPAREN, "')'");
        return node;
    }
    static const char *const reserved[] = {"true",  "True", "false",
                                           "False", "none", "None"};
    for (size_t i = 0; i < sizeof reserved / sizeof *reserved; i++)
        if (at_name(p, reserved[i]))
            fail(p, QN_E_FORMAT, "can't assign to '%s'", reserved[i]);
    qn_str name = expect_name(p, "a name to assign to");
    qn_jnode *node = new_node(p, QN_JN_NAME, line);
    if (with_namespace && skip(p, QN_JT_DOT)) {
        node->kind = QN_JN_NSREF;
        node->as.nsref.symbol = symbol(p, name);
        node->as.nsref.name = new_str(p, expect_name(p, "an attribute"));
        return node;
    }
    node->as.symbol = symbol(p, name);
    return node;
}

/* Names with commas, up to "in", "=", ")" or the end of the tag. */
static qn_jnode *parse_target_list(parser *p, bool with_namespace)
{
    uint32_t line = p->at->line;
    qn_jnode *first = parse_target_item(p, with_namespace);
    if (!at_kind(p, QN_JT_COMMA))
        return first;
    qn_jnode *node = new_node(p, QN_JN_TUPLE, line);
    add_node(p, &node->as.list, first);
    while (skip(p, QN_JT_COMMA)) {
        if (!at_kind(p, QN_JT_NAME) && !at_kind(p, QN_JT_LPAREN))
            break;
        if (at_name(p, "in"))
            break;
        add_node(p, &node->as.list, parse_target_item(p, with_namespace));
    }
    return node;
}

/* ---- statements ---- */

static qn_jnodes parse_nodes(parser *p, const char *const *ends);

/* From the end of this tag to "{% END", whose name is behind us then.  `ends`
 * are the names that may end it, NULL behind the last; the index of the one
 * found is stored. */
static qn_jnodes parse_body(parser *p, const char *const *ends, int *found)
{
    skip(p, QN_JT_COLON); /* as Python writes it */
    expect(p, QN_JT_BLOCK_END, "the end of the tag");
    qn_jnodes body = parse_nodes(p, ends);
    *found = 0;
    for (int i = 0; ends[i]; i++)
        if (at_name(p, ends[i]))
            *found = i;
    if (at_kind(p, QN_JT_EOF))
        fail(p, QN_E_FORMAT, "the template ends before '{%% %s %%}'", ends[0]);
    next(p);
    return body;
}

static qn_jnodes parse_until(parser *p, const char *end)
{
    const char *ends[] = {end, NULL};
    int found;
    return parse_body(p, ends, &found);
}

static bool reads_loop(const qn_jnode *target, uint32_t loop)
{
    if (target->kind == QN_JN_NAME)
        return target->as.symbol == loop;
    if (target->kind != QN_JN_TUPLE)
        return false;
    for (uint32_t i = 0; i < target->as.list.count; i++)
        if (reads_loop(target->as.list.items[i], loop))
            return true;
    return false;
}

static qn_jnode *parse_for(parser *p)
{
    static const char *const ends[] = {"endfor", "else", NULL};
    qn_jnode *node = new_node(p, QN_JN_FOR, p->at->line);
    next(p);
    node->as.loop.target = parse_target_list(p, false);
    if (reads_loop(node->as.loop.target, p->tmpl->loop))
        fail(p, QN_E_FORMAT, "a for statement can't assign to 'loop'");
    if (!skip_name(p, "in"))
        unexpected(p, "'in'");
    node->as.loop.iter = parse_tuple(p, false);
    if (skip_name(p, "if"))
        node->as.loop.filter = parse_expression(p);
    node->as.loop.recursive = skip_name(p, "recursive");
    int found;
    p->loops++;
    node->as.loop.body = parse_body(p, ends, &found);
    p->loops--;
    if (found == 1)
        node->as.loop.otherwise = parse_until(p, "endfor");
    return node;
}

static qn_jnode *parse_if(parser *p)
{
    static const char *const ends[] = {"endif", "elif", "else", NULL};
    qn_jnode *node = new_node(p, QN_JN_IF, p->at->line);
    int found = 0;
    p->conditions++;
    next(p); /* "if"; parse_body takes each "elif" */
    do {
        qn_jbranch *branches =
            grow(p, node->as.cases.branches, node->as.cases.count,
                 &node->as.cases.capacity, sizeof *branches);
        if (!branches)
            break;
        node->as.cases.branches = branches;
        qn_jbranch branch;
        branch.test = parse_tuple(p, false);
        branch.body = parse_body(p, ends, &found);
        branches[node->as.cases.count++] = branch;
    } while (found == 1 && !p->status);
    if (found == 2 && !p->status)
        node->as.cases.otherwise = parse_until(p, "endif");
    p->conditions--;
    return node;
}

/* The filters of a set or filter block, from "|" on: applied to NULL. */
static qn_jnode *parse_block_filters(parser *p)
{
    qn_jnode *filters = NULL;
    for (int length = 0; at_kind(p, QN_JT_PIPE) && !too_long(p, length);
         length++) {
        next(p);
        filters = parse_filter(p, filters);
    }
    return filters;
}

static qn_jnode *parse_set(parser *p)
{
    uint32_t line = p->at->line;
    next(p);
    qn_jnode *target = parse_target_list(p, true);
    if (skip(p, QN_JT_ASSIGN)) {
        qn_jnode *node = new_node(p, QN_JN_SET, line);
        node->as.set.target = target;
        node->as.set.value = parse_tuple(p, true);
        return node;
    }
    qn_jnode *node = new_node(p, QN_JN_SET_BLOCK, line);
    node->as.block.target = target;
    node->as.block.filters = parse_block_filters(p);
    node->as.block.body = parse_until(p, "endset");
    return node;
}

static qn_jnode *parse_filter_block(parser *p)
{
    qn_jnode *node = new_node(p, QN_JN_FILTER_BLOCK, p->at->line);
    next(p);
    qn_jnode *filters = parse_filter(p, NULL);
    for (int length = 0; at_kind(p, QN_JT_PIPE) && !too_long(p, length);
         length++) {
        next(p);
        filters = parse_filter(p, filters);
    }
    node->as.block.filters = filters;
    node->as.block.body = parse_until(p, "endfilter");
    return node;
}

/* (a, b=1) */
static void parse_signature(parser *p, qn_jmacro_def *def)
{
    uint32_t symbol_room = 0, default_room = 0;
    expect(p, QN_JT_LPAREN, "'('");
    bool defaulted = false;
    while (!at_kind(p, QN_JT_RPAREN) && !p->status) {
        uint32_t *symbols =
            grow(p, def->parameters, def->count, &symbol_room, sizeof *symbols);
        qn_jnode **defaults =
            grow(p, def->defaults, def->count, &default_room, sizeof *defaults);
        if (!symbols || !defaults)
            return;
        def->parameters = symbols;
        def->defaults = defaults;
        symbols[def->count] = symbol(p, expect_name(p, "a parameter"));
        defaults[def->count] = NULL;
        if (skip(p, QN_JT_ASSIGN)) {
            defaults[def->count] = parse_expression(p);
            defaulted = true;
        } else if (defaulted) {
            fail(p, QN_E_FORMAT,
                 "a parameter without default follows one that has one");
        }
        def->count++;
        if (!skip(p, QN_JT_COMMA))
            break;
    }
    expect(p, QN_JT_RPAREN, "',' or ')'");
}

/* Parses the body of a macro or call block and notes which of its special
 * names it reads; what it reads of the macro around is read there too. */
static void parse_macro_body(parser *p, qn_jmacro_def *def, const char *end)
{
    macro_context context = {.outer = p->macro};
    int loops = p->loops;
    p->macro = &context;
    p->loops = 0;
    def->body = parse_until(p, end);
    p->loops = loops;
    p->macro = context.outer;
    def->uses_caller = context.caller;
    def->uses_varargs = context.varargs;
    def->uses_kwargs = context.kwargs;
    for (uint32_t i = 0; i < def->count; i++) {
        uint32_t name = def->parameters[i];
        if (name == p->tmpl->caller) {
            if (context.caller && !def->defaults[i])
                fail(p, QN_E_FORMAT,
                     "a parameter named 'caller' needs a default");
            def->uses_caller = false;
        }
        def->uses_varargs &= name != p->tmpl->varargs;
        def->uses_kwargs &= name != p->tmpl->kwargs;
    }
    if (context.outer) {
        context.outer->caller |= context.caller;
        context.outer->varargs |= context.varargs;
        context.outer->kwargs |= context.kwargs;
    }
}

static qn_jnode *parse_macro(parser *p)
{
    qn_jnode *node = new_node(p, QN_JN_MACRO, p->at->line);
    next(p);
    qn_str name = expect_name(p, "the name of the macro");
    node->as.macro.symbol = symbol(p, name);
    node->as.macro.def.name = new_str(p, name);
    parse_signature(p, &node->as.macro.def);
    parse_macro_body(p, &node->as.macro.def, "endmacro");
    return node;
}

static qn_jnode *parse_call_block(parser *p)
{
    qn_jnode *node = new_node(p, QN_JN_CALL_BLOCK, p->at->line);
    next(p);
    if (at_kind(p, QN_JT_LPAREN))
        parse_signature(p, &node->as.call_block.def);
    qn_jnode *call = parse_expression(p);
    if (call->kind != QN_JN_CALL)
        fail(p, QN_E_FORMAT, "a call block needs a call");
    node->as.call_block.call = call;
    parse_macro_body(p, &node->as.call_block.def, "endcall");
    return node;
}

static qn_jnode *parse_with(parser *p)
{
    qn_jnode *node = new_node(p, QN_JN_WITH, p->at->line);
    next(p);
    while (!at_kind(p, QN_JT_BLOCK_END) && !p->status) {
        add_node(p, &node->as.with.targets, parse_target_item(p, false));
        expect(p, QN_JT_ASSIGN, "'='");
        add_node(p, &node->as.with.values, parse_expression(p));
        if (!skip(p, QN_JT_COMMA))
            break;
    }
    node->as.with.body = parse_until(p, "endwith");
    return node;
}

/* Marks what the assistant said; to the renderer only a scope. */
static qn_jnode *parse_generation(parser *p)
{
    qn_jnode *node = new_node(p, QN_JN_WITH, p->at->line);
    int loops = p->loops;
    next(p);
    p->loops = 0;
    node->as.with.body = parse_until(p, "endgeneration");
    p->loops = loops;
    return node;
}

static qn_jnode *parse_loop_control(parser *p)
{
    bool breaks = at_name(p, "break");
    qn_jnode *node =
        new_node(p, breaks ? QN_JN_BREAK : QN_JN_CONTINUE, p->at->line);
    if (!p->loops)
        fail(p, QN_E_FORMAT, "'%s' outside of a loop",
             breaks ? "break" : "continue");
    next(p);
    return node;
}

/* A statement; its name is the current token. */
static qn_jnode *parse_statement(parser *p)
{
    static const struct {
        const char *name;
        qn_jnode *(*parse)(parser *p);
    } statements[] = {
        {"for", parse_for},
        {"if", parse_if},
        {"set", parse_set},
        {"macro", parse_macro},
        {"call", parse_call_block},
        {"filter", parse_filter_block},
        {"with", parse_with},
        {"generation", parse_generation},
        {"break", parse_loop_control},
        {"continue", parse_loop_control},
    };
    qn_str name = p->at->text;
    if (!at_kind(p, QN_JT_NAME)) {
        unexpected(p, "the name of a tag");
        return &p->spare;
    }
    for (size_t i = 0; i < sizeof statements / sizeof *statements; i++)
        if (qn_str_is(name, statements[i].name))
            return statements[i].parse(p);
    int shown = name.size > 60 ? 60 : (int)name.size;
    if ((name.size > 3 && !memcmp(name.data, "end", 3)) ||
        qn_str_is(name, "else") || qn_str_is(name, "elif"))
        fail(p, QN_E_FORMAT, "'{%% %.*s %%}' ends nothing", shown, name.data);
    else
        fail(p, QN_E_UNSUPPORTED, "the tag '%.*s' is not supported", shown,
             name.data);
    return &p->spare;
}

/* Text, output and statements up to a tag named in `ends` (NULL: up to the
 * end of the template). */
static qn_jnodes parse_nodes(parser *p, const char *const *ends)
{
    qn_jnodes nodes = {0};
    if (!enter(p))
        return nodes;
    while (!at_kind(p, QN_JT_EOF)) {
        const qn_jtoken *t = p->at;
        qn_jnode *node;
        next(p);
        if (t->kind == QN_JT_TEXT) {
            node = new_node(p, QN_JN_TEXT, t->line);
            node->as.text = new_str(p, t->text);
        } else if (t->kind == QN_JT_PRINT_BEGIN) {
            node = new_node(p, QN_JN_OUTPUT, t->line);
            node->as.only = parse_tuple(p, true);
            expect(p, QN_JT_PRINT_END, "'}}'");
        } else {
            bool ended = false;
            for (int i = 0; ends && ends[i]; i++)
                ended |= at_name(p, ends[i]);
            if (ended)
                break;
            node = parse_statement(p);
            expect(p, QN_JT_BLOCK_END, "'%}'");
        }
        check_rows(p);
        add_node(p, &nodes, node);
    }
    leave(p);
    return nodes;
}

qn_status qn_jparse(qn_jtemplate *tmpl, qn_str source)
{
    size_t bad;
    if (source.size > QN_JSOURCE_LIMIT)
        return qn_fail(QN_E_UNSUPPORTED,
                       "chat template: expected at most %d bytes, found %zu",
                       QN_JSOURCE_LIMIT, source.size);
    if (!qn_utf8_valid(source, &bad))
        return qn_fail(QN_E_FORMAT,
                       "chat template: expected UTF-8, found another byte at "
                       "offset %zu",
                       bad);
    qn_jtoken *tokens = NULL;
    qn_status status = qn_jlex(&tokens, &tmpl->arena, source);
    if (status)
        return status;
    parser p = {.tmpl = tmpl, .tokens = tokens, .at = tokens};
    for (p.last = tokens; p.last->kind != QN_JT_EOF;)
        p.last++;
    p.symbols = qn_map_new(64);
    if (!p.symbols) {
        status = QN_E_NOMEM;
        goto done;
    }
    tmpl->loop = symbol(&p, QN_STR("loop"));
    tmpl->caller = symbol(&p, QN_STR("caller"));
    tmpl->varargs = symbol(&p, QN_STR("varargs"));
    tmpl->kwargs = symbol(&p, QN_STR("kwargs"));
    tmpl->body = parse_nodes(&p, NULL);
    status = p.status;
done:
    qn_map_free(p.symbols, NULL);
    qn_free(tokens);
    return status;
}
