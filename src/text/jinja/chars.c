/* chars.c: string operations as walks that copy slices into a builder. */
#include "chars.h"

#include "print.h"
#include "run.h"
#include "unicode.h"

/* ---- case ---- */

/* A capital sigma at the end of a word becomes the final one: the nearest
 * characters that are not ignorable are cased before it and not behind. */
static bool final_sigma(qn_str text, size_t from, size_t behind)
{
    bool before = false;
    while (from > 0) {
        uint32_t code = qn_jstr_before(text, &from);
        if (qn_junicode_ignorable(code))
            continue;
        before = qn_junicode_cased(code);
        break;
    }
    while (before && behind < text.size) {
        uint32_t code = qn_jstr_next(text, &behind);
        if (!qn_junicode_ignorable(code))
            return !qn_junicode_cased(code);
    }
    return before;
}

/* The character of `str` at [from, to) in another case. */
static void add_cased(qn_jbuild *b, const qn_jstr *str, size_t from, size_t to,
                      qn_jcasing casing)
{
    uint32_t mapped[3];
    size_t at = from;
    uint32_t code = qn_jstr_next(qn_jstr_str(str), &at);
    if (casing == QN_JLOWER && code == 0x3a3) {
        mapped[0] = final_sigma(qn_jstr_str(str), from, to) ? 0x3c2 : 0x3c3;
        qn_jbuild_code(b, mapped[0], qn_jstr_tainted_at(str, from));
        return;
    }
    int n = qn_junicode_map(mapped, casing, code);
    if (n == 1 && mapped[0] == code) {
        qn_jbuild_slice(b, str, from, to);
        return;
    }
    for (int i = 0; i < n; i++)
        qn_jbuild_code(b, mapped[i], qn_jstr_tainted_at(str, from));
}

static qn_jcasing casing_of(qn_jcase how, bool first, bool in_word,
                            uint32_t code)
{
    switch (how) {
    case QN_JCASE_UPPER:
        return QN_JUPPER;
    case QN_JCASE_LOWER:
        return QN_JLOWER;
    case QN_JCASE_TITLE:
        return in_word ? QN_JLOWER : QN_JTITLE;
    case QN_JCASE_CAPITAL:
        return first ? QN_JTITLE : QN_JLOWER;
    default:
        return qn_junicode_upper(code) ? QN_JLOWER : QN_JUPPER;
    }
}

/* Upper and lower case of ASCII, where nothing changes its length. */
static const qn_jstr *cased_ascii(qn_jrun *run, const qn_jstr *str,
                                  qn_jcase how)
{
    qn_jbuild b = qn_jbuild_new(run);
    b.markup = str->markup;
    qn_jbuild_str(&b, str);
    char low = how == QN_JCASE_UPPER ? 'a' : 'A', high = (char)(low + 25);
    for (size_t i = 0; i < b.size; i++)
        if (b.data[i] >= low && b.data[i] <= high)
            b.data[i] ^= 32;
    return qn_jbuild_done(&b);
}

const qn_jstr *qn_jstr_cased(qn_jrun *run, const qn_jstr *str, qn_jcase how)
{
    if (str->chars == str->size &&
        (how == QN_JCASE_UPPER || how == QN_JCASE_LOWER))
        return cased_ascii(run, str, how);
    qn_jbuild b = qn_jbuild_new(run);
    b.markup = str->markup;
    qn_jbuild_reserve(&b, str->size);
    qn_jrun_chars(run, str->size);
    bool in_word = false;
    for (size_t at = 0; at < str->size && qn_jrun_ok(run);) {
        size_t from = at;
        uint32_t code = qn_jstr_next(qn_jstr_str(str), &at);
        add_cased(&b, str, from, at, casing_of(how, from == 0, in_word, code));
        in_word = how == QN_JCASE_TITLE && qn_junicode_cased(code);
    }
    return qn_jbuild_done(&b);
}

static bool separates_words(uint32_t code)
{
    return qn_junicode_space(code) || code == '-' || code == '(' ||
           code == '{' || code == '[' || code == '<';
}

const qn_jstr *qn_jstr_titled_words(qn_jrun *run, const qn_jstr *str)
{
    qn_jbuild b = qn_jbuild_new(run);
    qn_jbuild_reserve(&b, str->size);
    qn_jrun_chars(run, str->size);
    size_t word = 0; /* where the current word starts */
    for (size_t at = 0; at < str->size && qn_jrun_ok(run);) {
        size_t from = at;
        uint32_t code = qn_jstr_next(qn_jstr_str(str), &at);
        if (separates_words(code)) {
            qn_jbuild_slice(&b, str, from, at);
            word = at;
        } else {
            add_cased(&b, str, from, at, from == word ? QN_JUPPER : QN_JLOWER);
        }
    }
    return qn_jbuild_done(&b);
}

/* islower, isupper, istitle: some character has case, and all that have
 * keep the rule. */
static bool has_case(const qn_jstr *str, qn_jis what)
{
    bool any = false, in_word = false;
    for (size_t at = 0; at < str->size;) {
        uint32_t code = qn_jstr_next(qn_jstr_str(str), &at);
        bool upper = qn_junicode_upper(code) || qn_junicode_title(code);
        bool lower = qn_junicode_lower(code);
        if (what == QN_JIS_LOWER   ? upper
            : what == QN_JIS_UPPER ? lower || qn_junicode_title(code)
                                   : (upper && in_word) || (lower && !in_word))
            return false;
        in_word = upper || lower;
        any |= in_word;
    }
    return any;
}

static bool code_is(uint32_t code, qn_jis what)
{
    switch (what) {
    case QN_JIS_ALPHA:
        return qn_junicode_alpha(code);
    case QN_JIS_ALNUM:
        return qn_junicode_alpha(code) || qn_junicode_numeric(code);
    case QN_JIS_DECIMAL:
        return qn_junicode_decimal(code);
    case QN_JIS_DIGIT:
        return qn_junicode_digit(code);
    case QN_JIS_NUMERIC:
        return qn_junicode_numeric(code);
    case QN_JIS_SPACE:
        return qn_junicode_space(code);
    default:
        return code < 0x80;
    }
}

bool qn_jstr_is(qn_jrun *run, const qn_jstr *str, qn_jis what)
{
    if (!qn_jrun_chars(run, str->size))
        return false;
    if (what == QN_JIS_LOWER || what == QN_JIS_UPPER || what == QN_JIS_TITLE)
        return has_case(str, what);
    for (size_t at = 0; at < str->size;)
        if (!code_is(qn_jstr_next(qn_jstr_str(str), &at), what))
            return false;
    return str->size > 0 || what == QN_JIS_ASCII;
}

/* ---- strip, replace, split ---- */

static bool in_set(uint32_t code, const qn_jstr *set)
{
    if (!set)
        return qn_junicode_space(code);
    for (size_t at = 0; at < set->size;)
        if (qn_jstr_next(qn_jstr_str(set), &at) == code)
            return true;
    return false;
}

const qn_jstr *qn_jstr_strip(qn_jrun *run, const qn_jstr *str,
                             const qn_jstr *set, unsigned sides)
{
    size_t from = 0, to = str->size;
    uint64_t cost = 1 + (set ? set->size / 16 : 0);
    while ((sides & QN_JSTRIP_LEFT) && from < to && qn_jrun_step(run, cost)) {
        size_t at = from;
        if (!in_set(qn_jstr_next(qn_jstr_str(str), &at), set))
            break;
        from = at;
    }
    while ((sides & QN_JSTRIP_RIGHT) && from < to && qn_jrun_step(run, cost)) {
        size_t at = to;
        if (!in_set(qn_jstr_before(qn_jstr_str(str), &at), set))
            break;
        to = at < from ? from : at;
    }
    return qn_jstr_sub(run, str, from, to);
}

const qn_jstr *qn_jstr_replace(qn_jrun *run, const qn_jstr *str,
                               const qn_jstr *from, const qn_jstr *to,
                               int64_t count)
{
    qn_jbuild b = qn_jbuild_new(run);
    b.markup = str->markup;
    size_t done = 0, at = 0;
    qn_jrun_bytes(run, str->size);
    while (count != 0 && qn_jrun_step(run, 1)) {
        size_t found = qn_jstr_find(qn_jstr_str(str), qn_jstr_str(from), at);
        if (found == SIZE_MAX)
            break;
        qn_jbuild_slice(&b, str, done, found);
        if (b.markup)
            qn_jbuild_escaped(&b, to);
        else
            qn_jbuild_str(&b, to);
        done = at = found + from->size;
        if (count > 0)
            count--;
        if (from->size)
            continue;
        /* The empty text is found before every character and at the end. */
        if (at >= str->size)
            break;
        qn_jstr_next(qn_jstr_str(str), &at);
    }
    if (!done && !b.size)
        return str;
    qn_jbuild_slice(&b, str, done, str->size);
    return qn_jbuild_done(&b);
}

static void push_part(qn_jrun *run, qn_jvec *parts, const qn_jstr *str,
                      size_t from, size_t to)
{
    qn_jvec_push(run, parts, qn_jstring(qn_jstr_sub(run, str, from, to)));
}

static void reverse_parts(qn_jvec *parts)
{
    for (uint32_t i = 0; i < parts->count / 2; i++) {
        qn_jval *a = &parts->items[i];
        qn_jval *b = &parts->items[parts->count - 1 - i];
        qn_jval swap = *a;
        *a = *b;
        *b = swap;
    }
}

static void split_at(qn_jrun *run, qn_jvec *parts, const qn_jstr *str,
                     qn_str separator, int64_t count)
{
    size_t from = 0;
    while (count != 0 && qn_jrun_step(run, 1)) {
        size_t found = qn_jstr_find(qn_jstr_str(str), separator, from);
        if (found == SIZE_MAX)
            break;
        push_part(run, parts, str, from, found);
        from = found + separator.size;
        count--;
    }
    push_part(run, parts, str, from, str->size);
}

static void split_at_from_right(qn_jrun *run, qn_jvec *parts,
                                const qn_jstr *str, qn_str separator,
                                int64_t count)
{
    size_t to = str->size;
    while (count != 0 && to >= separator.size && qn_jrun_ok(run)) {
        size_t at = to - separator.size;
        while (at > 0 && memcmp(str->data + at, separator.data, separator.size))
            at--;
        qn_jrun_chars(run, to - at + separator.size);
        if (memcmp(str->data + at, separator.data, separator.size))
            break;
        push_part(run, parts, str, at + separator.size, to);
        to = at;
        count--;
    }
    push_part(run, parts, str, 0, to);
    reverse_parts(parts);
}

/* Words between white space; what follows `count` of them is kept as it
 * is, up to the end of the text. */
static void split_words(qn_jrun *run, qn_jvec *parts, const qn_jstr *str,
                        int64_t count)
{
    qn_str text = qn_jstr_str(str);
    size_t at = 0;
    while (qn_jrun_step(run, 1)) {
        size_t from = at;
        while (at < text.size && qn_junicode_space(qn_jstr_next(text, &at)))
            from = at;
        if (from >= text.size)
            return;
        if (count-- == 0) {
            push_part(run, parts, str, from, str->size);
            return;
        }
        size_t to = from;
        for (at = from; at < text.size; to = at)
            if (qn_junicode_space(qn_jstr_next(text, &at)))
                break;
        push_part(run, parts, str, from, to);
    }
}

static void split_words_from_right(qn_jrun *run, qn_jvec *parts,
                                   const qn_jstr *str, int64_t count)
{
    qn_str text = qn_jstr_str(str);
    size_t at = text.size;
    while (qn_jrun_step(run, 1)) {
        size_t to = at;
        while (at > 0 && qn_junicode_space(qn_jstr_before(text, &at)))
            to = at;
        if (to == 0)
            break;
        if (count-- == 0) {
            push_part(run, parts, str, 0, to);
            break;
        }
        size_t from = to;
        for (at = to; at > 0; from = at)
            if (qn_junicode_space(qn_jstr_before(text, &at)))
                break;
        push_part(run, parts, str, from, to);
    }
    reverse_parts(parts);
}

qn_jval qn_jstr_split(qn_jrun *run, const qn_jstr *str,
                      const qn_jstr *separator, int64_t count, bool from_right)
{
    qn_jvec parts = {0};
    if (separator)
        qn_jrun_bytes(run, str->size);
    else
        qn_jrun_chars(run, str->size);
    if (separator && !separator->size)
        return qn_jrun_fail(run, "empty separator");
    if (!separator && from_right)
        split_words_from_right(run, &parts, str, count);
    else if (!separator)
        split_words(run, &parts, str, count);
    else if (from_right)
        split_at_from_right(run, &parts, str, qn_jstr_str(separator), count);
    else
        split_at(run, &parts, str, qn_jstr_str(separator), count);
    return qn_jseq(run, QN_J_LIST, parts.items, parts.count);
}

qn_jlist qn_jstr_lines(qn_jrun *run, const qn_jstr *str, bool keep)
{
    qn_jvec lines = {0};
    qn_str text = qn_jstr_str(str);
    qn_jrun_chars(run, text.size);
    for (size_t from = 0; from < text.size && qn_jrun_step(run, 1);) {
        size_t at = from, end = text.size;
        while (at < text.size) {
            size_t start = at;
            uint32_t code = qn_jstr_next(text, &at);
            if (!qn_junicode_newline(code))
                continue;
            if (code == '\r' && at < text.size && text.data[at] == '\n')
                at++;
            end = start;
            break;
        }
        push_part(run, &lines, str, from, keep ? at : end);
        from = at;
    }
    return (qn_jlist){lines.items, lines.count};
}

/* ---- putting together ---- */

const qn_jstr *qn_jstr_repeat(qn_jrun *run, const qn_jstr *str, int64_t n)
{
    if (n <= 0 || !str->size)
        return &qn_jstr_empty;
    if (n == 1)
        return str;
    qn_jbuild b = qn_jbuild_new(run);
    b.markup = str->markup;
    if (n > QN_JSTR_LIMIT / (int64_t)str->size)
        n = QN_JSTR_LIMIT / (int64_t)str->size + 1; /* fails below */
    size_t total = (size_t)n * str->size;
    qn_jbuild_reserve(&b, total);
    if (str->span_count || !qn_jrun_ok(run)) {
        for (int64_t i = 0; i < n && qn_jrun_ok(run); i++)
            qn_jbuild_str(&b, str);
        return qn_jbuild_done(&b);
    }
    /* What is there already, again and again: the pieces double. */
    qn_jbuild_str(&b, str);
    while (b.size && b.size < total && qn_jrun_ok(run)) {
        size_t more = total - b.size < b.size ? total - b.size : b.size;
        qn_jbuild_add(&b, (qn_str){b.data, more}, false);
    }
    return qn_jbuild_done(&b);
}

const qn_jstr *qn_jstr_add(qn_jrun *run, const qn_jstr *a, const qn_jstr *b)
{
    bool markup = a->markup || b->markup;
    if (!markup && !b->size)
        return a;
    if (!markup && !a->size)
        return b;
    qn_jbuild sum = qn_jbuild_new(run);
    sum.markup = markup;
    qn_jbuild_reserve(&sum, (size_t)a->size + b->size);
    if (markup) {
        qn_jbuild_escaped(&sum, a);
        qn_jbuild_escaped(&sum, b);
    } else {
        qn_jbuild_str(&sum, a);
        qn_jbuild_str(&sum, b);
    }
    return qn_jbuild_done(&sum);
}

const qn_jstr *qn_jstr_join(qn_jrun *run, const qn_jstr *separator,
                            qn_jlist items)
{
    qn_jbuild b = qn_jbuild_new(run);
    for (uint32_t i = 0; i < items.count && qn_jrun_step(run, 1); i++) {
        if (i)
            qn_jbuild_str(&b, separator);
        qn_jprint(&b, items.items[i]);
    }
    return qn_jbuild_done(&b);
}

static const qn_jstr *pad(qn_jrun *run, const qn_jstr *str, int64_t left,
                          int64_t right, const qn_jstr *fill)
{
    if (fill && fill->chars != 1) {
        qn_jrun_fail(run,
                     "The fill character must be exactly one character long");
        return &qn_jstr_empty;
    }
    if (!fill)
        fill = qn_jstr_text(run, " ");
    const qn_jstr *front = qn_jstr_repeat(run, fill, left);
    const qn_jstr *back = qn_jstr_repeat(run, fill, right);
    return qn_jstr_add(run, qn_jstr_add(run, front, str), back);
}

const qn_jstr *qn_jstr_ljust(qn_jrun *run, const qn_jstr *str, int64_t width,
                             const qn_jstr *fill)
{
    int64_t more = width > str->chars ? width - str->chars : 0;
    return pad(run, str, 0, more, fill);
}

const qn_jstr *qn_jstr_rjust(qn_jrun *run, const qn_jstr *str, int64_t width,
                             const qn_jstr *fill)
{
    int64_t more = width > str->chars ? width - str->chars : 0;
    return pad(run, str, more, 0, fill);
}

const qn_jstr *qn_jstr_center(qn_jrun *run, const qn_jstr *str, int64_t width,
                              const qn_jstr *fill)
{
    int64_t more = width > str->chars ? width - str->chars : 0;
    /* The odd one goes left when the width is odd too, as in CPython. */
    int64_t left = more / 2 + (more & width & 1);
    return pad(run, str, left, more - left, fill);
}
