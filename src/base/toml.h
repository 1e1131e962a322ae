/* toml.h: the part of TOML that configuration files need, read strictly.
 *
 * Comments; [tables] and [dotted.tables]; bare, quoted and dotted keys; strings
 * in one line ("..." with escapes, '...' without), whole numbers, decimal
 * numbers, booleans, and arrays of strings over any number of lines.  What else
 * TOML 1.0 has (dates, inline tables, arrays of tables, multi-line strings,
 * other bases) is an error that says so.  A key or a table that stands twice is
 * an error, too. */
#ifndef QN_BASE_TOML_H
#define QN_BASE_TOML_H

#include "bytes.h"
#include "status.h"

typedef enum qn_toml_type {
    QN_TOML_BOOL,
    QN_TOML_INT,
    QN_TOML_FLOAT,
    QN_TOML_STRING,
    QN_TOML_STRINGS
} qn_toml_type;

enum { QN_TOML_DEPTH = 4 };

/* A value and where it stands.  Texts are NUL-terminated and without NULs
 * inside. */
typedef struct qn_toml_entry {
    const char *path[QN_TOML_DEPTH]; /* names of the tables around it */
    int depth;                       /* how many */
    const char *key;
    int line;
    qn_toml_type type;
    bool on;           /* BOOL */
    const char *text;  /* STRING; INT, FLOAT: the number's spelling, plain */
    const char **list; /* STRINGS */
    size_t list_count;
} qn_toml_entry;

typedef struct qn_toml qn_toml;

/* Parses a file's text; `name` is the file's, for the place of an error
 * ("name:7").  Errors are QN_E_FORMAT.  The caller owns *out (qn_toml_free);
 * entries and texts live as long. */
qn_status qn_toml_parse(qn_toml **out, qn_str text, const char *name);
void qn_toml_free(qn_toml *toml);
/* Entries in the order of the file; NULL beyond the last. */
const qn_toml_entry *qn_toml_at(const qn_toml *toml, size_t i);
/* "a boolean", "a whole number", ... */
const char *qn_toml_type_name(qn_toml_type type);

#endif
