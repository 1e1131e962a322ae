/* regex.c: PCRE2 behind regex.h.
 *
 * Tokenizer files are written for Oniguruma with Ruby's syntax.  Most of an
 * expression means the same in PCRE2; `translate` rewrites the classes that
 * do not: \s is exactly White_Space (PCRE2 adds U+180E); \w is alphabetic
 * characters, marks, decimal digits, connectors and the six numbers of
 * Latin-1, and \b goes by it; \d is decimal digits of any script; \h is a
 * hexadecimal digit.  ^ and $ match at every line.  A class inside a class
 * and && are refused: PCRE2 would take them for plain characters. */
#include "regex.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "unicode.h"

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

/* The escape at *at (its backslash) outside or inside a class. */
static qn_status translate_escape(qn_buf *out, qn_str in, size_t *at,
                                  bool in_class)
{
    char c = *at + 1 < in.size ? in.data[*at + 1] : '\0';
    const char *items = escape_items(c);
    size_t length = *at + 1 < in.size ? 2 : 1;
    if (!in_class && (c == 'b' || c == 'B')) {
        qn_buf_add_text(out, c == 'b' ? BOUNDARY : NO_BOUNDARY);
    } else if (!items) {
        qn_buf_add(out, in.data + *at, length);
    } else if (!in_class) {
        bool negated = c >= 'A' && c <= 'Z';
        qn_buf_printf(out, "[%s%s]", negated ? "^" : "", items);
    } else if (c >= 'a') {
        qn_buf_add_text(out, items);
    } else if (c == 'S') {
        /* The one character on which PCRE2's \S differs. */
        qn_buf_add_text(out, "\\S\\x{180e}");
    } else if (c == 'D') {
        qn_buf_add_text(out, "\\P{Nd}");
    } else {
        return refuse("\\W or \\H in a class");
    }
    *at += length;
    return QN_OK;
}

static qn_status translate(qn_buf *out, qn_str in)
{
    bool in_class = false;
    size_t class_start = 0; /* where the first item may be a literal ] */
    for (size_t i = 0; i < in.size;) {
        char c = in.data[i];
        if (c == '\\') {
            qn_status status = translate_escape(out, in, &i, in_class);
            if (status)
                return status;
            continue;
        }
        if (!in_class && c == '[') {
            in_class = true;
            class_start = i + 1;
            if (class_start < in.size && in.data[class_start] == '^')
                class_start++;
            qn_buf_add(out, in.data + i, class_start - i);
            i = class_start;
            continue;
        }
        if (in_class && c == '[')
            return refuse("a class inside a class");
        if (in_class && c == '&' && i + 1 < in.size && in.data[i + 1] == '&')
            return refuse("&& in a class");
        if (in_class && c == ']' && i > class_start)
            in_class = false;
        qn_buf_add_char(out, c);
        i++;
    }
    return qn_buf_status(out);
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
