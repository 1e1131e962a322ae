/* json.h: one strict JSON reader and writer (RFC 8259).
 *
 * Reader: a pull parser over text that is whole in memory (streams feed
 * complete documents).  It keeps each number's spelling, the byte offset of
 * every value, and enforces limits (depth, size).  On top of it stands a
 * document tree (`qn_json`) for configs and templates.  Strict: no comments, no
 * trailing commas, no duplicate keys (an option), valid UTF-8 only; a BOM is
 * tolerated only where the caller says so.  Lone surrogate escapes are
 * errors (an option turns them into U+FFFD).  Errors are QN_E_FORMAT with
 * the byte offset and what was expected. */
#ifndef QN_BASE_JSON_H
#define QN_BASE_JSON_H

#include "buf.h"

#include <stdint.h>

/* ---- pull reader ---- */

typedef enum qn_json_event {
    QN_JSON_END, /* the document is complete, only white space followed */
    QN_JSON_ERROR,
    QN_JSON_OBJECT_BEGIN,
    QN_JSON_OBJECT_END,
    QN_JSON_ARRAY_BEGIN,
    QN_JSON_ARRAY_END,
    QN_JSON_KEY,    /* text = the unescaped key */
    QN_JSON_STRING, /* text = the unescaped string */
    QN_JSON_NUMBER, /* text = the spelling */
    QN_JSON_TRUE,
    QN_JSON_FALSE,
    QN_JSON_NULL
} qn_json_event;

/* Levels of nesting that a document may have where nothing else is said. */
enum { QN_JSON_MAX_DEPTH = 128 };

enum {
    QN_JSON_ALLOW_BOM = 1,
    QN_JSON_ALLOW_LONE_SURROGATES = 2, /* read as U+FFFD */
    /* Tree only (the pull reader leaves keys to its caller): the first place,
     * the last value. */
    QN_JSON_ALLOW_DUPLICATE_KEYS = 4,
    /* Tree only: integers beyond 64 bits and numbers that overflow a double
     * are errors. */
    QN_JSON_NUMBERS_FIT = 8
};

typedef struct qn_json_reader qn_json_reader;

/* Borrows `text`, which must outlive the reader; NULL when memory is out.
 * max_depth <= 0: QN_JSON_MAX_DEPTH. */
qn_json_reader *qn_json_reader_new(qn_str text, unsigned flags, int max_depth);
void qn_json_reader_free(qn_json_reader *reader);
/* The next event.  After QN_JSON_ERROR or QN_JSON_END every further call
 * returns the same. */
qn_json_event qn_json_next(qn_json_reader *reader);
/* Text of the last KEY, STRING or NUMBER; valid until the next call. */
qn_str qn_json_text(const qn_json_reader *reader);
/* Offset of the first byte of the last event, and of the byte after it. */
size_t qn_json_offset(const qn_json_reader *reader);
size_t qn_json_end_offset(const qn_json_reader *reader);
/* After an event that begins an object or array: skips to its end event. */
qn_status qn_json_skip(qn_json_reader *reader);
/* Status of the reader: QN_OK until QN_JSON_ERROR, whose offset is that of the
 * fault. */
qn_status qn_json_status(const qn_json_reader *reader);

/* ---- numbers ---- */

/* True when the spelling is an integer that fits (1.0 and 1e2 do not count). */
bool qn_json_int64(qn_str spelling, int64_t *out);
/* The nearest double, whatever the program's locale; false when it overflows
 * to infinity. */
bool qn_json_double(qn_str spelling, double *out);

/* ---- tree ---- */

typedef enum qn_json_type {
    QN_JSON_T_NULL,
    QN_JSON_T_BOOL,
    QN_JSON_T_NUMBER,
    QN_JSON_T_STRING,
    QN_JSON_T_ARRAY,
    QN_JSON_T_OBJECT
} qn_json_type;

/* A value of a document.  Read-only; lives as long as the document. */
typedef struct qn_json {
    qn_json_type type;
    bool boolean;
    qn_str text;           /* STRING: unescaped; NUMBER: spelling */
    uint32_t count;        /* ARRAY, OBJECT: number of children */
    uint32_t offset;       /* of its first byte in the source (saturated) */
    struct qn_json *items; /* ARRAY, OBJECT: values in order */
    qn_str *keys;          /* OBJECT: keys in order */
} qn_json;

typedef struct qn_json_doc qn_json_doc;

/* Parses a whole document into one arena.  The source need not outlive it. */
qn_status qn_json_parse(qn_json_doc **out, qn_str text, unsigned flags);
/* The same, of at most `max_values` values in all containers together. */
qn_status qn_json_parse_limited(qn_json_doc **out, qn_str text, unsigned flags,
                                size_t max_values);
void qn_json_doc_free(qn_json_doc *doc);
const qn_json *qn_json_root(const qn_json_doc *doc);

/* NULL when `object` is NULL, not an object, or lacks the key. Linear for
 * small objects, hashed above 16 keys. */
const qn_json *qn_json_get(const qn_json *object, const char *key);
const qn_json *qn_json_get_str(const qn_json *object, qn_str key);
/* NULL when out of range. */
const qn_json *qn_json_at(const qn_json *array, size_t index);
bool qn_json_as_int(const qn_json *value, int64_t *out);
bool qn_json_as_double(const qn_json *value, double *out);
bool qn_json_as_bool(const qn_json *value, bool *out);
bool qn_json_as_str(const qn_json *value, qn_str *out);
const char *qn_json_type_name(qn_json_type type);

/* ---- building trees by hand (template variables, requests) ---- */

/* An empty document whose root is null; values made by the functions below
 * belong to it.  Each returns NULL on allocation failure. */
qn_json_doc *qn_json_doc_new(void);
void qn_json_doc_set_root(qn_json_doc *doc, const qn_json *root);
qn_json *qn_json_new_null(qn_json_doc *doc);
qn_json *qn_json_new_bool(qn_json_doc *doc, bool value);
qn_json *qn_json_new_int(qn_json_doc *doc, int64_t value);
/* NaN and infinities: null. */
qn_json *qn_json_new_double(qn_json_doc *doc, double value);
qn_json *qn_json_new_str(qn_json_doc *doc, qn_str text);
qn_json *qn_json_new_array(qn_json_doc *doc);
qn_json *qn_json_new_object(qn_json_doc *doc);
/* Append a copy of `value` (shallow; children are shared within one doc or
 * with a doc that outlives this one), or put it in the place of the value that
 * has the key.  The copy does not see what is appended to `value` later: fill
 * a container first.  QN_E_NOMEM when a pointer is NULL, so a failed
 * qn_json_new_* needs no check of its own. */
qn_status qn_json_push(qn_json_doc *doc, qn_json *array, const qn_json *value);
qn_status qn_json_set(qn_json_doc *doc, qn_json *object, qn_str key,
                      const qn_json *value);

/* ---- writer ---- */

/* Writes into a buffer; commas and nesting are its business.  Misuse is an
 * assertion; allocation failure stays in the buffer. */
typedef struct qn_json_writer {
    qn_buf *out;
    int depth;
    bool comma;     /* a value was written at this level */
    bool after_key; /* the next value belongs to a key */
} qn_json_writer;

void qn_json_write_begin(qn_json_writer *w, qn_buf *out);
void qn_json_write_object(qn_json_writer *w);
void qn_json_write_object_end(qn_json_writer *w);
void qn_json_write_array(qn_json_writer *w);
void qn_json_write_array_end(qn_json_writer *w);
void qn_json_write_key(qn_json_writer *w, const char *key);
void qn_json_write_key_str(qn_json_writer *w, qn_str key);
void qn_json_write_str(qn_json_writer *w, qn_str text);
void qn_json_write_text(qn_json_writer *w, const char *text); /* NULL: null */
void qn_json_write_int(qn_json_writer *w, int64_t value);
void qn_json_write_uint(qn_json_writer *w, uint64_t value);
/* Shortest spelling that reads back equal; NaN and infinities: null. */
void qn_json_write_double(qn_json_writer *w, double value);
void qn_json_write_bool(qn_json_writer *w, bool value);
void qn_json_write_null(qn_json_writer *w);
/* A member of an object: its key, then its value. */
void qn_json_pair_text(qn_json_writer *w, const char *key, const char *text);
void qn_json_pair_int(qn_json_writer *w, const char *key, int64_t value);
void qn_json_pair_uint(qn_json_writer *w, const char *key, uint64_t value);
void qn_json_pair_double(qn_json_writer *w, const char *key, double value);
void qn_json_pair_bool(qn_json_writer *w, const char *key, bool value);
/* A value that is JSON already; "" when the caller appends it to the buffer
 * itself. */
void qn_json_write_raw(qn_json_writer *w, qn_str text);
/* A value of a tree, as it is (number spellings kept). */
void qn_json_write_value(qn_json_writer *w, const qn_json *value);
/* Only the quoted, escaped string.  Invalid UTF-8 becomes U+FFFD. */
void qn_json_quote(qn_buf *out, qn_str text);

#endif
