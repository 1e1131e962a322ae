/* regex.c: PCRE2 behind regex.h.
 *
 * Tokenizer files are written for Oniguruma with Ruby's syntax.  Most of an
 * expression means the same in PCRE2; `translate` rewrites the classes that
 * do not: \s is exactly White_Space (PCRE2 adds U+180E); \w is alphabetic
 * characters, marks, decimal digits, connectors and the six numbers of
 * Latin-1, and \b goes by it; \d is decimal digits of any script; \h is a
 * hexadecimal digit.  ^ and $ match at every line.  A class inside a class
 * and &&, which PCRE2 would take for plain characters, become alternatives and
 * lookaheads. */
#include "regex.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "unicode.h"

#include <stdio.h>
#include <string.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

enum {
    STEPS_PER_UNIT = 1000000,
    STEP_UNIT_BYTES = 64 * 1024,
    FREE_STEPS = 256, /* at each place, not counted against the budget */
    HEAP_LIMIT_KIB = 64 * 1024
};

struct qn_regex {
    pcre2_general_context *general;
    pcre2_code *code;
};

struct qn_regex_run {
    const qn_regex *regex;
    pcre2_match_data *data;
    pcre2_match_context *context;
    uint64_t budget; /* steps left */
};

/* ---- translation ---- */

#define SPACE_ITEMS                                                            \
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}"           \
    "\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"
#define WORD_ITEMS                                                             \
    "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}"    \
    "\\x{24b6}-\\x{24e9}\\x{1f130}-\\x{1f149}\\x{1f150}-\\x{1f169}"            \
    "\\x{1f170}-\\x{1f189}"
#define HEX_ITEMS "0-9A-Fa-f"
/* \b and \B by our words, not PCRE2's. */
#define WORD "[" WORD_ITEMS "]"
#define BOUNDARY "(?:(?<=" WORD ")(?!" WORD ")|(?<!" WORD ")(?=" WORD "))"
#define NO_BOUNDARY "(?:(?<=" WORD ")(?=" WORD ")|(?<!" WORD ")(?!" WORD "))"

/* Items of a class for the escape letter c; NULL for other letters. */
static const char *escape_items(char c)
{
    switch (c) {
    case 's':
    case 'S':
        return SPACE_ITEMS;
    case 'w':
    case 'W':
        return WORD_ITEMS;
    case 'd':
    case 'D':
        return "\\p{Nd}";
    case 'h':
    case 'H':
        return HEX_ITEMS;
    default:
        return NULL;
    }
}

static qn_status refuse(const char *what)
{
    return qn_fail(QN_E_UNSUPPORTED, "regular expression: %s is not supported",
                   what);
}

/* Whether PCRE2 compiles that. */
static bool compiles(const char *expression)
{
    int code;
    PCRE2_SIZE offset;
    pcre2_code *made =
        pcre2_compile((PCRE2_SPTR)expression, PCRE2_ZERO_TERMINATED,
                      PCRE2_UTF | PCRE2_UCP, &code, &offset, NULL);
    pcre2_code_free(made);
    return made != NULL;
}

/* \p{Name} at *at; false: it is no such thing.  A script is the characters of
 * that script alone, where PCRE2 adds those that it shares with others. */
static bool translate_property(qn_buf *out, qn_str in, size_t *at)
{
    static const char *const categories[][2] = {
        {"Letter", "L"},      {"Mark", "M"},   {"Number", "N"},
        {"Punctuation", "P"}, {"Symbol", "S"}, {"Separator", "Z"},
        {"Other", "C"},
    };
    char name[48], tried[64];
    const char *begin = in.data + *at + 3, *end;
    size_t left = in.size - *at;
    if (left < 4 || begin[-1] != '{' || !(end = memchr(begin, '}', left - 3)))
        return false;
    size_t not = *begin == '^', size = (size_t)(end - begin) - not ;
    if (size >= sizeof name)
        return false;
    memcpy(name, begin + not, size);
    name[size] = '\0';
    if (size <= 2 || strspn(name, "abcdefghijklmnopqrstuvwxyz_"
                                  "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != size)
        return false;
    const char *category = NULL;
    for (size_t i = 0; i < sizeof categories / sizeof *categories; i++)
        if (!strcmp(name, categories[i][0]))
            category = categories[i][1];
    snprintf(tried, sizeof tried, "\\p{sc:%s}", name);
    if (!category && !compiles(tried))
        return false;
    qn_buf_printf(out, "\\%c{%s%s%s}", in.data[*at + 1], not ? "^" : "",
                  category ? "" : "sc:", category ? category : name);
    *at += (size_t)(end - (in.data + *at)) + 1;
    return true;
}

/* The escape at *at (its backslash) outside of classes. */
static void translate_escape(qn_buf *out, qn_str in, size_t *at)
{
    char c = *at + 1 < in.size ? in.data[*at + 1] : '\0';
    const char *items = escape_items(c);
    size_t length = *at + 1 < in.size ? 2 : 1;
    if ((c == 'p' || c == 'P') && translate_property(out, in, at))
        return;
    if (c == 'b' || c == 'B')
        qn_buf_add_text(out, c == 'b' ? BOUNDARY : NO_BOUNDARY);
    else if (items)
        qn_buf_printf(out, "[%s%s]", c >= 'A' && c <= 'Z' ? "^" : "", items);
    else
        qn_buf_add(out, in.data + *at, length);
    *at += length;
}

/* One part of a class, between [ or && and && or ]: items of its own, and what
 * PCRE2's classes can't have, as alternatives "|..." */
typedef struct class_part {
    qn_buf items, others;
} class_part;

static void translate_item_escape(class_part *part, qn_str in, size_t *at)
{
    char c = *at + 1 < in.size ? in.data[*at + 1] : '\0';
    const char *items = escape_items(c);
    size_t length = *at + 1 < in.size ? 2 : 1;
    if ((c == 'p' || c == 'P') && translate_property(&part->items, in, at))
        return;
    if (!items)
        qn_buf_add(&part->items, in.data + *at, length);
    else if (c >= 'a')
        qn_buf_add_text(&part->items, items);
    else if (c == 'S') /* U+180E: the one on which PCRE2's \S differs */
        qn_buf_add_text(&part->items, "\\S\\x{180e}");
    else if (c == 'D')
        qn_buf_add_text(&part->items, "\\P{Nd}");
    else
        qn_buf_printf(&part->others, "|[^%s]", items);
    *at += length;
}

static qn_status translate_class(qn_buf *out, qn_str in, size_t *at, int depth);

/* A part from *at on, up to what ends it. */
static qn_status translate_part(class_part *part, qn_str in, size_t *at,
                                bool first, int depth)
{
    qn_status status = QN_OK;
    while (*at < in.size && !status) {
        char c = in.data[*at], next = *at + 1 < in.size ? in.data[*at + 1] : 0;
        if ((c == ']' && !first) || (c == '&' && next == '&'))
            break;
        first = false;
        if (c == '[' && next == ':') {
            status = refuse("a POSIX class");
        } else if (c == '[') {
            qn_buf_add_char(&part->others, '|');
            status = translate_class(&part->others, in, at, depth + 1);
        } else if (c == '\\') {
            translate_item_escape(part, in, at);
        } else {
            qn_buf_add_char(&part->items, c);
            ++*at;
        }
    }
    if (!status)
        status = qn_buf_status(&part->items);
    if (!status)
        status = qn_buf_status(&part->others);
    return status;
}

static void put_items(qn_buf *out, qn_str items, bool negated)
{
    /* What PCRE2 would take for the beginning of something else. */
    bool plain = negated || !strchr("^:.=", items.data[0]);
    qn_buf_add_text(out, negated ? "[^" : plain ? "[" : "[\\");
    qn_buf_add_str(out, items);
    qn_buf_add_char(out, ']');
}

/* An expression for one character of the part, or for one that is not in it. */
static qn_status put_part(qn_buf *out, const class_part *part, bool negated)
{
    qn_str items = qn_buf_str(&part->items), others = qn_buf_str(&part->others);
    if (!items.size && !others.size)
        return refuse("an empty class");
    if (!others.size) {
        put_items(out, items, negated);
        return QN_OK;
    }
    qn_buf_add_text(out, negated ? "(?:(?!" : "(?:");
    if (items.size)
        put_items(out, items, false);
    qn_buf_add(out, others.data + !items.size, others.size - !items.size);
    qn_buf_add_text(out, negated ? ")(?s:.))" : ")");
    return QN_OK;
}

/* The parts of the class at *at (its bracket): of all but the last one
 * lookaheads. */
static qn_status translate_parts(qn_buf *ahead, class_part *last, qn_str in,
                                 size_t *at, int depth)
{
    for (bool first = true;; first = false) {
        qn_status status = translate_part(last, in, at, first, depth);
        if (status)
            return status;
        if (*at == in.size)
            return refuse("a class without an end");
        if (in.data[*at] == ']') {
            ++*at;
            return QN_OK;
        }
        *at += 2;
        qn_buf_add_text(ahead, "(?=");
        status = put_part(ahead, last, false);
        qn_buf_add_char(ahead, ')');
        if (status)
            return status;
        qn_buf_clear(&last->items);
        qn_buf_clear(&last->others);
    }
}

static qn_status translate_class(qn_buf *out, qn_str in, size_t *at, int depth)
{
    enum { DEEPEST = 8 };
    if (depth > DEEPEST)
        return refuse("a class that deep");
    bool negated = *at + 1 < in.size && in.data[*at + 1] == '^';
    *at += negated ? 2 : 1;
    qn_buf ahead = QN_BUF_INIT;
    class_part last = {QN_BUF_INIT, QN_BUF_INIT};
    qn_status status = translate_parts(&ahead, &last, in, at, depth);
    if (!status)
        status = qn_buf_status(&ahead);
    if (!status && !ahead.size) {
        status = put_part(out, &last, negated);
    } else if (!status) {
        qn_buf_add_text(out, negated ? "(?:(?!" : "(?:");
        qn_buf_add_str(out, qn_buf_str(&ahead));
        status = put_part(out, &last, false);
        qn_buf_add_text(out, negated ? ")(?s:.))" : ")");
    }
    qn_buf_free(&ahead);
    qn_buf_free(&last.items);
    qn_buf_free(&last.others);
    return status ? status : qn_buf_status(out);
}

static qn_status translate(qn_buf *out, qn_str in)
{
    qn_status status = QN_OK;
    for (size_t i = 0; i < in.size && !status;) {
        if (in.data[i] == '\\')
            translate_escape(out, in, &i);
        else if (in.data[i] == '[')
            status = translate_class(out, in, &i, 0);
        else
            qn_buf_add_char(out, in.data[i++]);
    }
    return status ? status : qn_buf_status(out);
}

/* ---- compiling ---- */

static void *regex_alloc(size_t size, void *data)
{
    (void)data;
    return qn_alloc(size);
}

static void regex_free(void *ptr, void *data)
{
    (void)data;
    qn_free(ptr);
}

static qn_status compile(qn_regex *regex, qn_str pattern)
{
    regex->general =
        pcre2_general_context_create(regex_alloc, regex_free, NULL);
    if (!regex->general)
        return QN_E_NOMEM;
    pcre2_compile_context *context =
        pcre2_compile_context_create(regex->general);
    if (!context)
        return QN_E_NOMEM;
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    int code = 0;
    PCRE2_SIZE offset = 0;
    regex->code =
        pcre2_compile((PCRE2_SPTR)pattern.data, pattern.size,
                      PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE |
                          PCRE2_NEVER_BACKSLASH_C | PCRE2_NO_UTF_CHECK,
                      &code, &offset, context);
    pcre2_compile_context_free(context);
    if (regex->code)
        return QN_OK;
    if (code == PCRE2_ERROR_HEAP_FAILED)
        return QN_E_NOMEM;
    PCRE2_UCHAR text[128];
    pcre2_get_error_message(code, text, sizeof text);
    return qn_fail(
        QN_E_UNSUPPORTED, "regular expression: %s (at byte %zu of '%.*s')",
        (const char *)text, (size_t)offset,
        (int)(pattern.size < 200 ? pattern.size : 200), pattern.data);
}

qn_status qn_regex_new(qn_regex **out, qn_str pattern)
{
    qn_regex *regex = qn_calloc(1, sizeof *regex);
    if (!regex)
        return QN_E_NOMEM;
    qn_buf translated = QN_BUF_INIT;
    qn_status status = translate(&translated, pattern);
    if (!status)
        status = compile(regex, qn_buf_str(&translated));
    qn_buf_free(&translated);
    if (!status) {
        *out = regex;
        regex = NULL;
    }
    qn_regex_free(regex);
    return status;
}

void qn_regex_free(qn_regex *regex)
{
    if (!regex)
        return;
    if (regex->code)
        pcre2_code_free(regex->code);
    if (regex->general)
        pcre2_general_context_free(regex->general);
    qn_free(regex);
}

/* ---- searching ---- */

qn_status qn_regex_run_new(qn_regex_run **out, const qn_regex *regex,
                           size_t bytes)
{
    qn_regex_run *run = qn_calloc(1, sizeof *run);
    if (!run)
        return QN_E_NOMEM;
    run->regex = regex;
    run->budget = ((uint64_t)bytes / STEP_UNIT_BYTES + 1) * STEPS_PER_UNIT;
    /* Only the whole match is wanted, not the groups. */
    run->data = pcre2_match_data_create(1, regex->general);
    run->context = pcre2_match_context_create(regex->general);
    if (!run->data || !run->context) {
        qn_regex_run_free(run);
        return QN_E_NOMEM;
    }
    pcre2_set_heap_limit(run->context, HEAP_LIMIT_KIB);
    *out = run;
    return QN_OK;
}

void qn_regex_run_free(qn_regex_run *run)
{
    if (!run)
        return;
    if (run->data)
        pcre2_match_data_free(run->data);
    if (run->context)
        pcre2_match_context_free(run->context);
    qn_free(run);
}

/* PCRE2 counts steps for each place where a match might begin, and limits
 * them there.  So a search first runs with few steps for each place; where
 * those do not suffice, it goes place by place with doubled limits, each of
 * which is taken off the budget of the run. */
static int match(qn_regex_run *run, qn_str text, size_t from, uint32_t options,
                 uint32_t steps)
{
    pcre2_set_match_limit(run->context, steps);
    return pcre2_match(run->regex->code, (PCRE2_SPTR)text.data, text.size, from,
                       PCRE2_NO_UTF_CHECK | options, run->data, run->context);
}

static int match_carefully(qn_regex_run *run, qn_str text, size_t from)
{
    while (from <= text.size) {
        uint32_t steps = FREE_STEPS;
        int rc = match(run, text, from, PCRE2_ANCHORED, steps);
        while (rc == PCRE2_ERROR_MATCHLIMIT && steps < UINT32_MAX / 2 &&
               2 * steps <= run->budget) {
            steps *= 2;
            run->budget -= steps;
            rc = match(run, text, from, PCRE2_ANCHORED, steps);
        }
        if (rc != PCRE2_ERROR_NOMATCH)
            return rc;
        uint32_t code;
        from +=
            from < text.size ? (size_t)qn_uc_next(text.data + from, &code) : 1;
    }
    return PCRE2_ERROR_NOMATCH;
}

qn_status qn_regex_find(qn_regex_run *run, qn_str text, size_t from,
                        bool *found, size_t *begin, size_t *end)
{
    *found = false;
    int rc = match(run, text, from, 0, FREE_STEPS);
    if (rc == PCRE2_ERROR_MATCHLIMIT)
        rc = match_carefully(run, text, from);
    switch (rc) {
    case PCRE2_ERROR_NOMATCH:
        return QN_OK;
    case PCRE2_ERROR_NOMEMORY:
        return QN_E_NOMEM;
    case PCRE2_ERROR_MATCHLIMIT:
    case PCRE2_ERROR_DEPTHLIMIT:
    case PCRE2_ERROR_HEAPLIMIT:
        return qn_fail(QN_E_UNSUPPORTED,
                       "regular expression: too many steps on this text");
    default:
        break;
    }
    if (rc < 0)
        return qn_fail(QN_E_INTERNAL, "regular expression: PCRE2 error %d", rc);
    const PCRE2_SIZE *at = pcre2_get_ovector_pointer(run->data);
    /* \K in a lookaround can put the start behind the end. */
    if (at[0] > at[1] || at[0] < from)
        return qn_fail(QN_E_UNSUPPORTED,
                       "regular expression: a match that starts outside");
    *found = true;
    *begin = at[0];
    *end = at[1];
    return QN_OK;
}

qn_status qn_regex_next(qn_regex_run *run, qn_str text, qn_regex_scan *scan,
                        bool *found, size_t *begin, size_t *end)
{
    *found = false;
    while (scan->from <= text.size) {
        qn_status status =
            qn_regex_find(run, text, scan->from, found, begin, end);
        if (status || !*found)
            return status;
        bool empty = *begin == *end,
             counts = !empty || !scan->any || *end != scan->last_end;
        scan->from = *end;
        if (empty && *end < text.size) {
            uint32_t code;
            scan->from += (size_t)qn_uc_next(text.data + *end, &code);
        } else if (empty) {
            scan->from++;
        }
        if (counts) {
            scan->any = true;
            scan->last_end = *end;
            return QN_OK;
        }
        *found = false;
    }
    return QN_OK;
}
