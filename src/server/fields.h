/* fields.h: the fields of a request's body as tables.
 *
 * A row says what a field is called, which JSON types it may have, what range,
 * and where its value goes.  What no row can say is a function of the row.
 * null counts as absent everywhere; no value is ever turned into one of another
 * type.
 *
 * Objects are read in three steps, each over all fields, so that the first
 * fault that is reported is of the first kind: unknown fields, types, values.
 * What lies inside a field takes part in each step. */
#ifndef QN_SERVER_FIELDS_H
#define QN_SERVER_FIELDS_H

#include "protocol.h"

/* A call that is being parsed, and where in its body. */
typedef struct qn_reading {
    qn_api_call *call;
    qn_api_error *error;
    char path[QN_API_PARAM_SIZE]; /* "messages[2].content" */
    size_t depth;                 /* its length, also where it was cut */
} qn_reading;

/* Steps into a member or an element; returns what qn_leave wants. */
size_t qn_enter(qn_reading *r, const char *key);
size_t qn_enter_str(qn_reading *r, qn_str key);
size_t qn_enter_index(qn_reading *r, size_t index);
void qn_leave(qn_reading *r, size_t depth);

/* Fails with the path as the field's name; returns false. */
bool qn_bad_field(qn_reading *r, qn_api_code code, const char *fmt, ...)
    QN_PRINTF(3, 4);
bool qn_reading_no_memory(qn_reading *r);

/* Sets of JSON types; an integer is a number, too. */
enum {
    QN_BOOL = 1,
    QN_INT = 2, /* spelled as one, within 64 bits */
    QN_NUMBER = 4,
    QN_STRING = 8,
    QN_ARRAY = 16,
    QN_OBJECT = 32,
    QN_ANY = 63
};

/* Whether a value at the path, not null, has one of the types. */
bool qn_check_type(qn_reading *r, const qn_json *value, unsigned types);

typedef struct qn_field qn_field;

/* One step over a value of the right type; `base` is the table's. */
typedef bool qn_field_step(qn_reading *r, const qn_field *field,
                           const qn_json *value, void *base);

struct qn_field {
    const char *name;
    unsigned types;
    qn_field_step *read;  /* its value */
    size_t to, size;      /* where it goes, in the base */
    double low, high;     /* of a number; of a text, its bytes */
    const char *range;    /* in words; NULL: any value */
    qn_field_step *shape; /* types inside; NULL: none */
};

/* `base` is what the rows' offsets are of; bit i of *given (may be NULL) is set
 * when row i is there.  At most 64 rows. */
typedef struct qn_table {
    const qn_field *rows;
    size_t count;
    void *base;
    uint64_t *given;
} qn_table;

/* The steps, for the members of an object of the right type.  Fields of no
 * table are noted as ignored, or refused under --strict-fields. */
bool qn_fields_known(qn_reading *r, const qn_json *object,
                     const qn_table *tables, size_t count);
bool qn_fields_shape(qn_reading *r, const qn_json *object,
                     const qn_table *tables, size_t count);
bool qn_fields_values(qn_reading *r, const qn_json *object,
                      const qn_table *tables, size_t count);

/* The member of an object that has to be there; NULL: reported. */
const qn_json *qn_field_required(qn_reading *r, const qn_json *object,
                                 const char *key);
/* The same for one that has to have one of the types. */
const qn_json *qn_field_typed(qn_reading *r, const qn_json *object,
                              const char *key, unsigned types);
/* A member, NULL when it is absent or null. */
const qn_json *qn_field_get(const qn_json *object, const char *key);

/* Parses the body into r->call->doc: one object, within the limits. */
bool qn_take_body(qn_reading *r, qn_str body);

/* ---- readers of values ---- */

qn_field_step qn_take_bool;   /* bool */
qn_field_step qn_take_int;    /* int32_t or int64_t, by the row's size */
qn_field_step qn_take_double; /* double */
/* const char *, in the document.  NUL characters are refused: what takes these
 * texts ends there. */
qn_field_step qn_take_text;
qn_field_step qn_take_json;    /* const qn_json *, as it is */
qn_field_step qn_take_nothing; /* accepted; it changes nothing */
/* Noted as ignored; a number 0, false and "" ask for nothing. */
qn_field_step qn_take_ignored;
/* unsupported_value, whatever it says; or unless it is 0 or false. */
qn_field_step qn_take_refused;
qn_field_step qn_take_refused_unless_off;

/* Keeps a text as C does, in the arena; fails on a NUL character. */
bool qn_keep_text(qn_reading *r, const char **out, qn_str text);

/* Notes a field without effect for X-Quern-Ignored: what is no visible ASCII
 * becomes '?', and after 1 KiB of names no more are added. */
void qn_ignored_add(qn_buf *ignored, qn_str name);

/* ---- making rows ---- */

#define QN_FIELD(base, name, types, read, member, low, high, range)            \
    {                                                                          \
        name, types, read, offsetof(base, member), sizeof((base *)0)->member,  \
            low, high, range, NULL                                             \
    }
/* A row of functions: `shape` may be NULL. */
#define QN_FIELD_BY(name, types, shape, read)                                  \
    {                                                                          \
        name, types, read, 0, 0, 0, 0, NULL, shape                             \
    }

#endif
