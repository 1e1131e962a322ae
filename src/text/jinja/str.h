/* str.h: strings that know where their bytes came from.
 *
 * A string is immutable UTF-8 with a list of tainted spans: the bytes that
 * came from a tainted variable.  Untainted strings carry no list.  New
 * strings are put together in a builder out of slices of others, so that
 * taint follows every byte without each operation thinking of it. */
#ifndef QN_TEXT_JINJA_STR_H
#define QN_TEXT_JINJA_STR_H

#include "value.h"

typedef struct qn_jspan {
    uint32_t from, to; /* byte offsets, from < to */
} qn_jspan;

struct qn_jstr {
    const char *data;
    uint32_t size;         /* bytes */
    uint32_t chars;        /* code points; equal to size: plain ASCII */
    const qn_jspan *spans; /* sorted, apart from each other */
    uint32_t span_count;
    bool markup; /* made by `safe` or `escape`: + escapes the other side */
};

/* Longer strings can't be made; longer inputs can be read. */
enum { QN_JSTR_LIMIT = 16 << 20 };

extern const qn_jstr qn_jstr_empty;

/* A string over borrowed bytes.  Never NULL: the empty string on failure. */
const qn_jstr *qn_jstr_make(qn_jrun *run, qn_str text, bool tainted);
/* Without the mark of `safe`. */
const qn_jstr *qn_jstr_plain(qn_jrun *run, const qn_jstr *str);
/* From a NUL-terminated literal. */
const qn_jstr *qn_jstr_text(qn_jrun *run, const char *text);
/* The bytes [from, to) of `str`, shared with it. */
const qn_jstr *qn_jstr_sub(qn_jrun *run, const qn_jstr *str, size_t from,
                           size_t to);
static inline qn_str qn_jstr_str(const qn_jstr *str)
{
    return (qn_str){str->data, str->size};
}
bool qn_jstr_tainted_at(const qn_jstr *str, size_t offset);
/* Code points in `text`. */
size_t qn_jstr_count(qn_str text);
/* The byte offset of code point `index` (0 .. chars), and the reverse. */
size_t qn_jstr_offset(const qn_jstr *str, size_t index);
size_t qn_jstr_index(const qn_jstr *str, size_t offset);
/* The first occurrence of `needle` at or after `from`; SIZE_MAX: none. */
size_t qn_jstr_find(qn_str text, qn_str needle, size_t from);
/* Decodes the code point at `offset`, which is moved behind it. */
uint32_t qn_jstr_next(qn_str text, size_t *offset);
/* The last code point before `offset`, which is moved to its start. */
uint32_t qn_jstr_before(qn_str text, size_t *offset);

typedef struct qn_jbuild {
    qn_jrun *run;
    char *data;
    size_t size, capacity;
    qn_jspan *spans;
    uint32_t span_count, span_capacity;
    bool markup;
} qn_jbuild;

static inline qn_jbuild qn_jbuild_new(qn_jrun *run)
{
    return (qn_jbuild){.run = run};
}

void qn_jbuild_reserve(qn_jbuild *b, size_t more);
void qn_jbuild_add(qn_jbuild *b, qn_str text, bool tainted);
void qn_jbuild_text(qn_jbuild *b, const char *text, bool tainted);
void qn_jbuild_code(qn_jbuild *b, uint32_t code, bool tainted);
/* The bytes [from, to) of `str` with their taint. */
void qn_jbuild_slice(qn_jbuild *b, const qn_jstr *str, size_t from, size_t to);
void qn_jbuild_str(qn_jbuild *b, const qn_jstr *str);
/* `str` with &<>'" escaped for HTML; markup is taken as it is. */
void qn_jbuild_escaped(qn_jbuild *b, const qn_jstr *str);
/* The string; the builder must not be used any more. */
const qn_jstr *qn_jbuild_done(qn_jbuild *b);

#endif
