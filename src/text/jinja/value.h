/* value.h: what an expression of a template can be.
 *
 * Values are small and passed by value; what they point to lives in the
 * arena of the run (or, for literals, of the parsed template) and is not
 * changed once made, except namespaces, iterators and loops.  The rules are
 * Python's, because templates are written against Python: the type names in
 * messages, the printed forms, the equality of 1, 1.0 and true. */
#ifndef QN_TEXT_JINJA_VALUE_H
#define QN_TEXT_JINJA_VALUE_H

#include "base/json.h"

typedef struct qn_jrun qn_jrun;
typedef struct qn_jstr qn_jstr;
typedef struct qn_jiter qn_jiter;
typedef struct qn_jloop qn_jloop;
typedef struct qn_jval qn_jval;

/* kind, Python's name of the type */
#define QN_JKIND_LIST(X)                                                       \
    X(MISSING, "missing") /* an argument that was not given */                 \
    X(UNDEFINED, "Undefined")                                                  \
    X(NONE, "NoneType")                                                        \
    X(BOOL, "bool")                                                            \
    X(INT, "int")                                                              \
    X(BIGINT, "int") /* beyond 64 bits: kept as digits, no arithmetic */       \
    X(FLOAT, "float")                                                          \
    X(STR, "str")                                                              \
    X(LIST, "list")                                                            \
    X(TUPLE, "tuple")                                                          \
    X(DICT, "dict")                                                            \
    X(KEYS, "dict_keys")                                                       \
    X(VALUES, "dict_values")                                                   \
    X(ITEMS, "dict_items")                                                     \
    X(RANGE, "range")                                                          \
    X(ITER, "generator")                                                       \
    X(NAMESPACE, "Namespace")                                                  \
    X(MACRO, "Macro")                                                          \
    X(FUNCTION, "function")                                                    \
    X(METHOD, "builtin_function_or_method")                                    \
    X(LOOP, "LoopContext")

typedef enum qn_jkind {
#define QN_X(name, type) QN_J_##name,
    QN_JKIND_LIST(QN_X)
#undef QN_X
} qn_jkind;

/* Why a value is undefined; printed when something fails because of it. */
typedef struct qn_jundef {
    const char *hint;    /* the whole message, or NULL */
    const char *object;  /* "dict object", or NULL: a variable */
    const qn_jval *name; /* of the variable, attribute or element */
} qn_jundef;

typedef struct qn_jlist {
    const qn_jval *items;
    uint32_t count;
} qn_jlist;

/* A mapping in insertion order; in value.c. */
typedef struct qn_jdict qn_jdict;

typedef struct qn_jrange {
    int64_t start, stop, step;
    uint32_t count;
} qn_jrange;

/* A macro or the body of a call block, with the scope it closes over. */
typedef struct qn_jmacro {
    const struct qn_jmacro_def *def;
    struct qn_jscope *scope;
} qn_jmacro;

struct qn_jval {
    uint8_t kind; /* qn_jkind */
    /* Scalars and containers: made from a tainted variable, so what is
     * printed for them is tainted.  Strings carry spans instead. */
    bool tainted;
    union {
        bool boolean;
        int64_t integer;
        double real;
        const qn_jstr *str;   /* STR; BIGINT: its decimal digits */
        const qn_jlist *list; /* LIST, TUPLE */
        qn_jdict *dict;       /* DICT, KEYS, VALUES, ITEMS, NAMESPACE */
        const qn_jrange *range;
        qn_jiter *iter;
        const qn_jmacro *macro;
        const struct qn_jrow *function;
        const struct qn_jmethod *method;
        qn_jloop *loop;
        const qn_jundef *undefined; /* NULL: nothing is known */
    } as;
};

/* The deepest nesting of values that is compared, printed or hashed. */
enum { QN_JDEPTH = 128 };

/* ---- making values ---- */

static inline qn_jval qn_jmissing(void)
{
    return (qn_jval){.kind = QN_J_MISSING};
}

static inline qn_jval qn_jnone(void)
{
    return (qn_jval){.kind = QN_J_NONE};
}

static inline qn_jval qn_jbool(bool value)
{
    return (qn_jval){.kind = QN_J_BOOL, .as.boolean = value};
}

static inline qn_jval qn_jint(int64_t value)
{
    return (qn_jval){.kind = QN_J_INT, .as.integer = value};
}

static inline qn_jval qn_jreal(double value)
{
    return (qn_jval){.kind = QN_J_FLOAT, .as.real = value};
}

static inline qn_jval qn_jstring(const qn_jstr *str)
{
    return (qn_jval){.kind = QN_J_STR, .as.str = str};
}

/* The value with no more known about it, also returned on errors. */
static inline qn_jval qn_jundefined(void)
{
    return (qn_jval){.kind = QN_J_UNDEFINED};
}

qn_jval qn_jundefined_name(qn_jrun *run, const qn_jstr *name);
/* No attribute or element `name` in `object`. */
qn_jval qn_jundefined_in(qn_jrun *run, qn_jval object, qn_jval name);
/* `hint` is a literal. */
qn_jval qn_jundefined_hint(qn_jrun *run, const char *hint);

/* A LIST or TUPLE of `items`, which live in the arena. */
qn_jval qn_jseq(qn_jrun *run, qn_jkind kind, const qn_jval *items,
                uint32_t count);
/* A TUPLE of two. */
qn_jval qn_jpair(qn_jrun *run, qn_jval first, qn_jval second);
/* The value of a JSON tree, whose texts are borrowed. */
qn_jval qn_jval_from_json(qn_jrun *run, const qn_json *json, bool tainted);

/* A growing array in the arena. */
typedef struct qn_jvec {
    qn_jval *items;
    uint32_t count, capacity;
} qn_jvec;

void qn_jvec_push(qn_jrun *run, qn_jvec *vec, qn_jval value);

/* ---- looking at values ---- */

/* "int", "NoneType", ... */
const char *qn_jtype(qn_jval value);
/* Python's truth. */
bool qn_jtruth(qn_jval value);
/* True for BOOL and INT, as Python's bool is an int. */
bool qn_jas_int(qn_jval value, int64_t *out);
/* True for BOOL, INT, BIGINT and FLOAT. */
bool qn_jas_real(qn_jval value, double *out);
/* len(value); false when it has none. */
bool qn_jlength(qn_jrun *run, qn_jval value, int64_t *out);
/* May be a key of a dict. */
bool qn_jhashable(qn_jval value);
bool qn_jequal(qn_jrun *run, qn_jval a, qn_jval b);
/* -1, 0, 1; 2 when a NaN makes all comparisons false.  `op` is only for the
 * message when the types have no order. */
int qn_jorder(qn_jrun *run, const char *op, qn_jval a, qn_jval b);
/* Fills `order` with the indices of `keys`, sorted; stable, also backwards.
 * False: they have no order, and the run has failed. */
bool qn_jsort(qn_jrun *run, uint32_t *order, const qn_jval *keys,
              uint32_t count, bool backwards);
/* `item in container` */
bool qn_jcontains(qn_jrun *run, qn_jval container, qn_jval item);

/* ---- dicts ---- */

qn_jdict *qn_jdict_new(qn_jrun *run);
uint32_t qn_jdict_count(const qn_jdict *dict);
qn_jval qn_jdict_key(const qn_jdict *dict, uint32_t i);
qn_jval qn_jdict_value(const qn_jdict *dict, uint32_t i);
/* Adds or replaces; an unhashable key fails the run. */
void qn_jdict_set(qn_jrun *run, qn_jdict *dict, qn_jval key, qn_jval value);
/* NULL when absent. */
const qn_jval *qn_jdict_get(qn_jrun *run, const qn_jdict *dict, qn_jval key);
const qn_jval *qn_jdict_get_str(qn_jrun *run, const qn_jdict *dict, qn_str key);
qn_jval qn_jdict_val(qn_jkind kind, qn_jdict *dict, bool tainted);

#endif
