/* ast.h: the syntax tree of a template, immutable once parsed.
 *
 * Nodes live in the template's arena.  Chains of equal precedence
 * (`a + b - c`, `a and b and c`, `elif`) are one flat node, so that their
 * length is no recursion. */
#ifndef QN_TEXT_JINJA_AST_H
#define QN_TEXT_JINJA_AST_H

#include "str.h"

typedef enum qn_jnode_kind {
    /* expressions */
    QN_JN_CONST,
    QN_JN_NAME,
    QN_JN_LIST,
    QN_JN_TUPLE,
    QN_JN_DICT,
    QN_JN_ATTR,
    QN_JN_ITEM,
    QN_JN_SLICE,
    QN_JN_CALL,
    QN_JN_FILTER,
    QN_JN_TEST,
    QN_JN_NOT,
    QN_JN_NEG,
    QN_JN_POS,
    QN_JN_CHAIN,
    QN_JN_CONCAT,
    QN_JN_COMPARE,
    QN_JN_AND,
    QN_JN_OR,
    QN_JN_COND,
    QN_JN_NSREF, /* only as the target of an assignment */
    /* statements */
    QN_JN_TEXT,
    QN_JN_OUTPUT,
    QN_JN_FOR,
    QN_JN_IF,
    QN_JN_SET,
    QN_JN_SET_BLOCK,
    QN_JN_MACRO,
    QN_JN_CALL_BLOCK,
    QN_JN_FILTER_BLOCK,
    QN_JN_WITH,
    QN_JN_BREAK,
    QN_JN_CONTINUE
} qn_jnode_kind;

typedef enum qn_jop {
    QN_JOP_ADD,
    QN_JOP_SUB,
    QN_JOP_MUL,
    QN_JOP_DIV,
    QN_JOP_FLOORDIV,
    QN_JOP_MOD,
    QN_JOP_POW,
    QN_JOP_EQ,
    QN_JOP_NE,
    QN_JOP_LT,
    QN_JOP_LE,
    QN_JOP_GT,
    QN_JOP_GE,
    QN_JOP_IN,
    QN_JOP_NOT_IN
} qn_jop;

typedef struct qn_jnode qn_jnode;

typedef struct qn_jnodes {
    qn_jnode **items;
    uint32_t count, capacity;
} qn_jnodes;

/* The arguments of a call, filter or test. */
typedef struct qn_jargs {
    qn_jnodes positional;
    qn_jnodes keywords;     /* values, in order ... */
    const qn_jstr **names;  /* ... and their names */
    qn_jnode *star, *star2; /* *args and **kwargs, or NULL */
} qn_jargs;

/* A macro, or the body of a call block (without a name). */
typedef struct qn_jmacro_def {
    const qn_jstr *name;  /* NULL: a call block's */
    uint32_t *parameters; /* symbols */
    qn_jnode **defaults;  /* one for each parameter, NULL: none */
    uint32_t count;
    bool uses_caller, uses_varargs, uses_kwargs;
    qn_jnodes body;
} qn_jmacro_def;

struct qn_jnode {
    uint8_t kind; /* qn_jnode_kind */
    uint32_t line;
    union {
        qn_jval value;   /* CONST */
        uint32_t symbol; /* NAME */
        qn_jnodes list;  /* LIST TUPLE CONCAT AND OR; DICT: key, value ... */
        const qn_jstr *text; /* TEXT */
        qn_jnode *only;      /* NOT NEG POS OUTPUT */
        struct {
            qn_jnode *first;
            struct qn_joperand *rest;
            uint32_t count, capacity;
        } chain; /* CHAIN, COMPARE */
        struct {
            qn_jnode *object;
            const qn_jstr *name;
        } attr;
        struct {
            qn_jnode *object, *index;
        } item;
        struct {
            qn_jnode *start, *stop, *step; /* each may be NULL */
        } slice;
        struct {
            qn_jnode *callee;
            qn_jargs args;
        } call;
        struct {
            qn_jnode *input; /* NULL: the text of a filter or set block */
            const struct qn_jrow *row;
            qn_jargs args;
        } apply; /* FILTER, TEST */
        struct {
            qn_jnode *test, *yes, *no; /* no may be NULL */
        } cond;
        struct {
            uint32_t symbol;
            const qn_jstr *name;
        } nsref;
        struct {
            qn_jnode *target, *iter, *filter; /* filter may be NULL */
            qn_jnodes body, otherwise;
            bool recursive;
        } loop;
        struct {
            struct qn_jbranch *branches;
            uint32_t count, capacity;
            qn_jnodes otherwise;
        } cases; /* IF */
        struct {
            qn_jnode *target, *value;
        } set;
        struct {
            qn_jnode *target, *filters; /* filters may be NULL */
            qn_jnodes body;
        } block; /* SET_BLOCK; FILTER_BLOCK without target */
        struct {
            uint32_t symbol;
            qn_jmacro_def def;
        } macro;
        struct {
            qn_jnode *call;
            qn_jmacro_def def;
        } call_block;
        struct {
            qn_jnodes targets, values, body;
        } with; /* WITH; generation: without targets */
    } as;
};

typedef struct qn_joperand {
    qn_jop op;
    qn_jnode *node;
} qn_joperand;

typedef struct qn_jbranch {
    qn_jnode *test;
    qn_jnodes body;
} qn_jbranch;

#endif
