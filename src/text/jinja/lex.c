/* lex.c: one pass over the template with its line ends made "\n".
 *
 * Outside of tags everything is text up to the next "{{", "{%" or "{#".
 * White space control happens here, with trim_blocks and lstrip_blocks on:
 * "-" on the inside of a tag strips all white space beyond it, "%}" and "#}"
 * take the newline behind them, "{%" and "{#" the blanks before them if
 * nothing else stands on the line, and "+" prevents both. */
#include "lex.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "base/utf8.h"
#include "unicode.h"

enum { NESTED_BRACES = 128 };

typedef struct lexer {
    qn_arena *arena;
    qn_str text;
    size_t at;
    uint32_t line;
    bool line_start; /* the last tag took the end of its line */
    qn_jtoken *tokens;
    size_t count, capacity;
    /* The brackets open inside a tag: its end is only looked for outside. */
    char braces[NESTED_BRACES];
    size_t brace_count;
    qn_status status;
} lexer;

static void fail(lexer *lx, qn_status code, const char *what)
{
    if (lx->status)
        return;
    lx->status = qn_fail(code, "chat template: %s", what);
    qn_fail_where(code, "template line %u", lx->line);
    lx->at = lx->text.size;
}

static void add_token(lexer *lx, qn_jtoken_kind kind, qn_str text)
{
    if (lx->status)
        return;
    if (lx->count == lx->capacity) {
        size_t capacity = lx->capacity ? lx->capacity * 2 : 64;
        qn_jtoken *grown = qn_reallocarray(lx->tokens, capacity, sizeof *grown);
        if (!grown) {
            lx->status = QN_E_NOMEM;
            return;
        }
        lx->tokens = grown;
        lx->capacity = capacity;
    }
    lx->tokens[lx->count++] = (qn_jtoken){kind, lx->line, text};
}

/* ---- small steps over the text ---- */

static char peek(const lexer *lx, size_t ahead)
{
    size_t left = lx->text.size - lx->at;
    return ahead < left ? lx->text.data[lx->at + ahead] : '\0';
}

static bool looking_at(const lexer *lx, const char *what)
{
    size_t n = strlen(what);
    return n <= lx->text.size - lx->at &&
           !memcmp(lx->text.data + lx->at, what, n);
}

/* Moves to `to`, counting lines. */
static void advance(lexer *lx, size_t to)
{
    for (; lx->at < to; lx->at++)
        if (lx->text.data[lx->at] == '\n')
            lx->line++;
}

/* The length of the white space character at `at`, 0: none there. */
static size_t space_at(const lexer *lx, size_t at)
{
    uint32_t code;
    if (at >= lx->text.size)
        return 0;
    int n = qn_utf8_decode(lx->text.data + at, lx->text.data + lx->text.size,
                           &code);
    return n > 0 && qn_junicode_space(code) ? (size_t)n : 0;
}

static void skip_space(lexer *lx)
{
    size_t n;
    while ((n = space_at(lx, lx->at)) > 0)
        advance(lx, lx->at + n);
}

static void skip_newline(lexer *lx)
{
    if (peek(lx, 0) == '\n')
        advance(lx, lx->at + 1);
}

/* ---- text ---- */

static bool all_space(const lexer *lx, size_t from, size_t to)
{
    while (from < to) {
        size_t n = space_at(lx, from);
        if (!n)
            return false;
        from += n;
    }
    return true;
}

/* The end of [from, to) without white space at its end. */
static size_t without_trailing_space(const lexer *lx, size_t from, size_t to)
{
    size_t end = from; /* behind the last character that is none */
    while (from < to) {
        size_t n = space_at(lx, from);
        if (n) {
            from += n;
            continue;
        }
        from++;
        end = from;
    }
    return end;
}

/* Emits the text from here to `to`, where a tag with `sign` starts. */
static void add_text(lexer *lx, size_t to, char sign, bool strips_line)
{
    size_t from = lx->at, end = to;
    if (sign == '-') {
        end = without_trailing_space(lx, from, to);
    } else if (sign != '+' && strips_line) {
        size_t start = to;
        while (start > from && lx->text.data[start - 1] != '\n')
            start--;
        if ((start > from || lx->line_start) && all_space(lx, start, to))
            end = start;
    }
    if (end > from)
        add_token(lx, QN_JT_TEXT, (qn_str){lx->text.data + from, end - from});
    advance(lx, to);
}

static char sign_at(const lexer *lx, size_t at)
{
    char c = at < lx->text.size ? lx->text.data[at] : '\0';
    return c == '-' || c == '+' ? c : '\0';
}

/* Behind the end of a tag: takes what belongs to it and notes whether a new
 * line starts. */
static void end_tag(lexer *lx, char sign, bool trims)
{
    if (sign == '-')
        skip_space(lx);
    else if (sign != '+' && trims)
        skip_newline(lx);
    lx->line_start = lx->at > 0 && lx->text.data[lx->at - 1] == '\n';
}

/* ---- comments and raw blocks ---- */

static void lex_comment(lexer *lx)
{
    size_t at = lx->at;
    while (at + 1 < lx->text.size &&
           (lx->text.data[at] != '#' || lx->text.data[at + 1] != '}'))
        at++;
    if (at + 1 >= lx->text.size) {
        fail(lx, QN_E_FORMAT, "a comment is not closed by '#}'");
        return;
    }
    char sign = at > lx->at ? sign_at(lx, at - 1) : '\0';
    advance(lx, at + 2);
    end_tag(lx, sign, true);
}

typedef struct raw_tag {
    char open, close; /* the signs */
    size_t end;       /* behind "%}" */
} raw_tag;

/* Recognises "{% word %}" with any signs at `at`. */
static bool match_word_tag(const lexer *lx, raw_tag *tag, size_t at,
                           const char *word)
{
    qn_str t = lx->text;
    if (t.size - at < 2 || memcmp(t.data + at, "{%", 2))
        return false;
    at += 2;
    tag->open = sign_at(lx, at);
    if (tag->open)
        at++;
    size_t n;
    while ((n = space_at(lx, at)) > 0)
        at += n;
    size_t length = strlen(word);
    if (t.size - at < length || memcmp(t.data + at, word, length))
        return false;
    at += length;
    while ((n = space_at(lx, at)) > 0)
        at += n;
    tag->close = sign_at(lx, at);
    if (tag->close)
        at++;
    if (t.size - at < 2 || memcmp(t.data + at, "%}", 2))
        return false;
    tag->end = at + 2;
    return true;
}

/* The text up to "{% endraw %}"; `begin` is the tag that opened it. */
static void lex_raw(lexer *lx, const raw_tag *begin)
{
    advance(lx, begin->end);
    end_tag(lx, begin->close, false);
    raw_tag end;
    for (size_t at = lx->at; at < lx->text.size; at++) {
        if (lx->text.data[at] != '{' || !match_word_tag(lx, &end, at, "endraw"))
            continue;
        add_text(lx, at, end.open, true);
        advance(lx, end.end);
        end_tag(lx, end.close, true);
        return;
    }
    fail(lx, QN_E_FORMAT, "a raw block is not closed by '{% endraw %}'");
}

/* ---- inside of tags ---- */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Whether c is a digit in base 2, 8, 10 or 16. */
static bool is_base_digit(char c, int base)
{
    if (is_digit(c))
        return c - '0' < base;
    char lower = (char)(c | 32);
    return base == 16 && lower >= 'a' && lower <= 'f';
}

/* Digits with single underscores between them, from `at`; the end, or `at`
 * when there are none. */
static size_t digits_end(const lexer *lx, size_t at, int base)
{
    qn_str t = lx->text;
    while (at < t.size && is_base_digit(t.data[at], base)) {
        at++;
        if (at + 1 < t.size && t.data[at] == '_' &&
            is_base_digit(t.data[at + 1], base))
            at++;
    }
    return at;
}

/* The end of a float at lx->at, or lx->at when there is none: it needs a
 * fraction or an exponent, and does not follow a dot. */
static size_t float_end(const lexer *lx)
{
    qn_str t = lx->text;
    if (lx->at > 0 && t.data[lx->at - 1] == '.')
        return lx->at;
    size_t end = digits_end(lx, lx->at, 10);
    bool is_float = false;
    if (end + 1 < t.size && t.data[end] == '.' && is_digit(t.data[end + 1])) {
        end = digits_end(lx, end + 1, 10);
        is_float = true;
    }
    if (end < t.size && (t.data[end] | 32) == 'e') {
        size_t at = end + 1;
        if (at < t.size && (t.data[at] == '+' || t.data[at] == '-'))
            at++;
        size_t exponent = digits_end(lx, at, 10);
        if (exponent > at) {
            end = exponent;
            is_float = true;
        }
    }
    return is_float ? end : lx->at;
}

static size_t integer_end(const lexer *lx)
{
    size_t at = lx->at;
    if (peek(lx, 0) != '0')
        return digits_end(lx, at, 10);
    int base = 10;
    switch (peek(lx, 1) | 32) {
    case 'b':
        base = 2;
        break;
    case 'o':
        base = 8;
        break;
    case 'x':
        base = 16;
        break;
    default:
        break;
    }
    if (base != 10) {
        size_t digits = at + 2;
        if (digits < lx->text.size && lx->text.data[digits] == '_')
            digits++;
        size_t end = digits_end(lx, digits, base);
        return end > digits ? end : at + 1;
    }
    /* A decimal number does not start with 0, except 0 itself: 00, 0_0. */
    at++;
    for (;;) {
        size_t next = at;
        if (next < lx->text.size && lx->text.data[next] == '_')
            next++;
        if (next >= lx->text.size || lx->text.data[next] != '0')
            return at;
        at = next + 1;
    }
}

static void lex_number(lexer *lx)
{
    size_t end = float_end(lx);
    qn_jtoken_kind kind = end > lx->at ? QN_JT_FLOAT : QN_JT_INTEGER;
    if (kind == QN_JT_INTEGER)
        end = integer_end(lx);
    size_t size = end - lx->at, used = 0;
    char *spelling = qn_arena_alloc(lx->arena, size);
    if (!spelling) {
        lx->status = QN_E_NOMEM;
        lx->at = lx->text.size;
        return;
    }
    for (size_t i = 0; i < size; i++)
        if (lx->text.data[lx->at + i] != '_')
            spelling[used++] = lx->text.data[lx->at + i];
    add_token(lx, kind, (qn_str){spelling, used});
    lx->at = end;
}

static void lex_name(lexer *lx)
{
    size_t end = lx->at;
    uint32_t code;
    while (end < lx->text.size) {
        int n = qn_utf8_decode(lx->text.data + end,
                               lx->text.data + lx->text.size, &code);
        if (n <= 0 || !qn_junicode_name(code, end == lx->at))
            break;
        end += (size_t)n;
    }
    if (end == lx->at) {
        fail(lx, QN_E_FORMAT, "a character that means nothing inside a tag");
        return;
    }
    add_token(lx, QN_JT_NAME, (qn_str){lx->text.data + lx->at, end - lx->at});
    lx->at = end;
}

/* `count` hexadecimal digits at *p; false when there are fewer. */
static bool hex_digits(uint32_t *out, const char **p, const char *end,
                       int count)
{
    if (end - *p < count)
        return false;
    uint32_t value = 0;
    for (int i = 0; i < count; i++, ++*p) {
        char c = **p;
        if (!is_base_digit(c, 16))
            return false;
        value = value << 4 |
                (uint32_t)(is_digit(c) ? c - '0' : (c | 32) - 'a' + 10);
    }
    *out = value;
    return true;
}

/* The code point of an escape whose digits start at *p.  A high surrogate
 * takes the escape of a low one with it. */
static bool escaped_code(uint32_t *out, const char **p, const char *end,
                         int count)
{
    uint32_t code, low;
    if (!hex_digits(&code, p, end, count))
        return false;
    if (code >= 0xd800 && code < 0xdc00 && end - *p >= 6 && (*p)[0] == '\\' &&
        (*p)[1] == 'u') {
        const char *next = *p + 2;
        if (hex_digits(&low, &next, end, 4) && low >= 0xdc00 && low < 0xe000) {
            code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
            *p = next;
        }
    }
    *out = code;
    return code <= 0x10ffff && (code < 0xd800 || code > 0xdfff);
}

/* Undoes the escapes of Python's strings; never longer than its input. */
static void unescape(lexer *lx, qn_str raw, qn_str *out)
{
    char *text = qn_arena_alloc(lx->arena, raw.size);
    if (!text) {
        lx->status = QN_E_NOMEM;
        return;
    }
    size_t n = 0;
    const char *p = raw.data, *end = raw.data + raw.size;
    while (p < end) {
        if (*p != '\\' || p + 1 == end) {
            text[n++] = *p++;
            continue;
        }
        char c = p[1];
        static const char letters[] = "abfnrtv\\'\"";
        static const char meanings[] = "\a\b\f\n\r\t\v\\'\"";
        const char *simple = strchr(letters, c);
        if (c && simple) {
            text[n++] = meanings[simple - letters];
            p += 2;
        } else if (c == '\n') {
            p += 2;
        } else if (c >= '0' && c <= '7') {
            uint32_t code = 0;
            p++;
            for (int i = 0; i < 3 && p < end && *p >= '0' && *p <= '7'; i++)
                code = code * 8 + (uint32_t)(*p++ - '0');
            n += (size_t)qn_utf8_encode(code, text + n);
        } else if (c == 'x' || c == 'u' || c == 'U') {
            uint32_t code;
            p += 2;
            if (!escaped_code(&code, &p, end,
                              c == 'x'   ? 2
                              : c == 'u' ? 4
                                         : 8)) {
                fail(lx, QN_E_FORMAT, "a bad escape in a string");
                return;
            }
            n += (size_t)qn_utf8_encode(code, text + n);
        } else if (c == 'N') {
            fail(lx, QN_E_UNSUPPORTED,
                 "character names (\\N{...}) in strings are not supported");
            return;
        } else { /* unknown escapes stay as they are */
            text[n++] = *p++;
        }
    }
    *out = (qn_str){text, n};
}

static void lex_string(lexer *lx)
{
    char quote = peek(lx, 0);
    size_t end = lx->at + 1;
    while (end < lx->text.size && lx->text.data[end] != quote)
        end += lx->text.data[end] == '\\' ? 2 : 1;
    if (end >= lx->text.size) {
        fail(lx, QN_E_FORMAT, "a string is not closed");
        return;
    }
    qn_str raw = {lx->text.data + lx->at + 1, end - lx->at - 1};
    qn_str text = {"", 0};
    unescape(lx, raw, &text);
    add_token(lx, QN_JT_STRING, text);
    if (!lx->status)
        advance(lx, end + 1);
    else
        lx->at = lx->text.size;
}

/* Longer spellings first. */
static const struct {
    char text[3];
    qn_jtoken_kind kind;
} operators[] = {
    {"//", QN_JT_FLOORDIV}, {"**", QN_JT_POW},      {"==", QN_JT_EQ},
    {"!=", QN_JT_NE},       {">=", QN_JT_GE},       {"<=", QN_JT_LE},
    {"+", QN_JT_ADD},       {"-", QN_JT_SUB},       {"/", QN_JT_DIV},
    {"*", QN_JT_MUL},       {"%", QN_JT_MOD},       {"~", QN_JT_TILDE},
    {"[", QN_JT_LBRACKET},  {"]", QN_JT_RBRACKET},  {"(", QN_JT_LPAREN},
    {")", QN_JT_RPAREN},    {"{", QN_JT_LBRACE},    {"}", QN_JT_RBRACE},
    {">", QN_JT_GT},        {"<", QN_JT_LT},        {"=", QN_JT_ASSIGN},
    {".", QN_JT_DOT},       {":", QN_JT_COLON},     {"|", QN_JT_PIPE},
    {",", QN_JT_COMMA},     {";", QN_JT_SEMICOLON},
};

/* Keeps the balance of brackets; false has failed. */
static bool balance(lexer *lx, char c)
{
    static const char open[] = "([{", closed[] = ")]}";
    if (strchr(open, c)) {
        if (lx->brace_count == NESTED_BRACES) {
            fail(lx, QN_E_FORMAT, "brackets are nested too deep");
            return false;
        }
        lx->braces[lx->brace_count++] = closed[strchr(open, c) - open];
    } else if (strchr(closed, c)) {
        if (!lx->brace_count || lx->braces[--lx->brace_count] != c) {
            fail(lx, QN_E_FORMAT, "a closing bracket without its partner");
            return false;
        }
    }
    return true;
}

static bool lex_operator(lexer *lx)
{
    for (size_t i = 0; i < sizeof operators / sizeof *operators; i++) {
        if (!looking_at(lx, operators[i].text))
            continue;
        size_t size = strlen(operators[i].text);
        if (size == 1 && !balance(lx, operators[i].text[0]))
            return true;
        add_token(lx, operators[i].kind,
                  (qn_str){lx->text.data + lx->at, size});
        lx->at += size;
        return true;
    }
    return false;
}

/* True when the tag ends here, which is then behind us. */
static bool end_of_tag(lexer *lx, bool block)
{
    char sign = sign_at(lx, lx->at);
    if (lx->brace_count || (sign == '+' && !block))
        return false;
    size_t at = lx->at + (sign ? 1 : 0);
    if (lx->text.size - at < 2 ||
        memcmp(lx->text.data + at, block ? "%}" : "}}", 2))
        return false;
    add_token(lx, block ? QN_JT_BLOCK_END : QN_JT_PRINT_END, (qn_str){"", 0});
    advance(lx, at + 2);
    end_tag(lx, sign, block);
    return true;
}

/* The tokens between "{{" or "{%" and its end. */
static void lex_tag(lexer *lx, bool block)
{
    lx->brace_count = 0;
    while (!lx->status) {
        skip_space(lx);
        if (lx->at >= lx->text.size || end_of_tag(lx, block))
            return; /* the parser misses the end of an open tag */
        char c = peek(lx, 0);
        if (is_digit(c))
            lex_number(lx);
        else if (c == '\'' || c == '"')
            lex_string(lx);
        else if (!lex_operator(lx))
            lex_name(lx);
    }
}

static void lex_root(lexer *lx)
{
    while (!lx->status && lx->at < lx->text.size) {
        size_t at = lx->at;
        char kind = '\0';
        for (; at + 1 < lx->text.size; at++) {
            kind = lx->text.data[at + 1];
            if (lx->text.data[at] == '{' &&
                (kind == '{' || kind == '%' || kind == '#'))
                break;
        }
        if (at + 1 >= lx->text.size) {
            /* The rest is text, with the white space before the end. */
            add_text(lx, lx->text.size, '+', false);
            return;
        }
        raw_tag raw;
        if (match_word_tag(lx, &raw, at, "raw") && raw.close != '+') {
            add_text(lx, at, raw.open, true);
            lex_raw(lx, &raw);
            continue;
        }
        char sign = sign_at(lx, at + 2);
        add_text(lx, at, sign, kind != '{');
        advance(lx, at + 2 + (sign ? 1 : 0));
        if (kind == '#') {
            lex_comment(lx);
            continue;
        }
        add_token(lx, kind == '%' ? QN_JT_BLOCK_BEGIN : QN_JT_PRINT_BEGIN,
                  (qn_str){"", 0});
        lex_tag(lx, kind == '%');
    }
}

/* A copy with "\r\n" and "\r" made "\n", and without the last newline. */
static bool normalise(lexer *lx, qn_str source)
{
    char *text = qn_arena_alloc(lx->arena, source.size);
    if (!text)
        return false;
    size_t n = 0;
    for (size_t i = 0; i < source.size; i++) {
        char c = source.data[i];
        if (c == '\r') {
            c = '\n';
            if (i + 1 < source.size && source.data[i + 1] == '\n')
                i++;
        }
        text[n++] = c;
    }
    if (n && text[n - 1] == '\n')
        n--;
    lx->text = (qn_str){text, n};
    return true;
}

qn_status qn_jlex(qn_jtoken **out, qn_arena *arena, qn_str source)
{
    lexer lx = {.arena = arena, .line = 1, .line_start = true};
    if (!normalise(&lx, source))
        return QN_E_NOMEM;
    lex_root(&lx);
    add_token(&lx, QN_JT_EOF, (qn_str){"", 0});
    if (lx.status) {
        qn_free(lx.tokens);
        return lx.status;
    }
    *out = lx.tokens;
    return QN_OK;
}
