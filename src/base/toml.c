/* toml.c: see toml.h.  One pass over the text; a line is a table's header, a
 * key with its value, or empty. */
#include "toml.h"

#include "alloc.h"
#include "arena.h"
#include "buf.h"
#include "utf8.h"

#include <stdlib.h>

enum { MOST_ENTRIES = 2000 };

typedef struct table {
    const char *path[QN_TOML_DEPTH];
    int depth, line;
} table;

struct qn_toml {
    qn_arena arena;
    qn_toml_entry *entries;
    size_t count, room;
};

typedef struct parser {
    qn_toml *toml;
    const char *name;
    const char *at, *end;
    int line;
    table *tables; /* headers so far; the last one is open */
    size_t table_count, table_room;
} parser;

static qn_status fail_at(const parser *p, int line, qn_status status)
{
    return qn_fail_where(status, "%s:%d", p->name, line);
}

#define fail(p, ...) fail_at(p, (p)->line, qn_fail(QN_E_FORMAT, __VA_ARGS__))

static char peek(const parser *p)
{
    return p->at < p->end ? *p->at : '\0';
}

static bool take(parser *p, char c)
{
    if (p->at == p->end || *p->at != c)
        return false;
    p->at++;
    return true;
}

static void skip_blanks(parser *p)
{
    while (p->at < p->end && (*p->at == ' ' || *p->at == '\t'))
        p->at++;
}

/* Over a comment, if there is one. */
static void skip_comment(parser *p)
{
    if (peek(p) == '#')
        while (p->at < p->end && *p->at != '\n')
            p->at++;
}

/* A line's end; true at the end of the text, too. */
static bool take_newline(parser *p)
{
    if (p->at == p->end)
        return true;
    if (*p->at == '\r' && p->at + 1 < p->end && p->at[1] == '\n')
        p->at++;
    if (!take(p, '\n'))
        return false;
    p->line++;
    return true;
}

static qn_status end_line(parser *p)
{
    skip_blanks(p);
    skip_comment(p);
    if (take_newline(p))
        return QN_OK;
    return fail(p, "expected the end of the line, found '%c'", *p->at);
}

/* ---- texts ---- */

/* A NUL-terminated copy in the arena, or NULL. */
static char *keep(parser *p, const char *text, size_t size)
{
    char *out = qn_arena_alloc(&p->toml->arena, size + 1);
    if (out) {
        if (size)
            memcpy(out, text, size);
        out[size] = '\0';
    }
    return out;
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* Behind \u or \U: a code point of so many digits. */
static qn_status read_code(parser *p, int digits, qn_buf *out)
{
    uint32_t code = 0;
    for (int i = 0; i < digits; i++) {
        int digit = hex_digit(peek(p));
        if (digit < 0)
            return fail(p, "expected %d hexadecimal digits after the escape",
                        digits);
        code = code << 4 | (uint32_t)digit;
        p->at++;
    }
    if (!code || code > 0x10ffff || (code >= 0xd800 && code < 0xe000))
        return fail(p, "\\u%04x is no character that a text may have",
                    (unsigned)code);
    qn_buf_add_code(out, code);
    return QN_OK;
}

static qn_status read_escape(parser *p, qn_buf *out)
{
    static const char letters[] = "btnfr\"\\", meanings[] = "\b\t\n\f\r\"\\";
    char c = peek(p);
    if (c == 'u' || c == 'U') {
        p->at++;
        return read_code(p, c == 'u' ? 4 : 8, out);
    }
    const char *found = c ? strchr(letters, c) : NULL;
    if (!found)
        return fail(p, "unknown escape in a string");
    p->at++;
    qn_buf_add_char(out, meanings[found - letters]);
    return QN_OK;
}

/* A string in one line; p->at is on its quote. */
static qn_status read_string(parser *p, const char **out)
{
    char quote = *p->at++;
    qn_buf text = QN_BUF_INIT;
    qn_status status = QN_OK;
    if (p->end - p->at >= 2 && p->at[0] == quote && p->at[1] == quote)
        return fail(p, "strings of several lines are not supported");
    while (!status && !take(p, quote)) {
        char c = peek(p);
        if (p->at == p->end || c == '\n' || c == '\r')
            status = fail(p, "expected %c at the end of the string", quote);
        else if ((unsigned char)c < 0x20 && c != '\t')
            status = fail(p, "a string has no control characters");
        else if (take(p, '\\') && quote == '"')
            status = read_escape(p, &text);
        else if (quote == '\'' && c == '\\')
            qn_buf_add_char(&text, c);
        else
            qn_buf_add_char(&text, *p->at++);
    }
    if (!status)
        status = qn_buf_status(&text);
    if (!status) {
        *out = keep(p, text.data, text.size);
        status = *out ? QN_OK : QN_E_NOMEM;
    }
    qn_buf_free(&text);
    return status;
}

static bool is_bare(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           (c >= '0' && c <= '9') || c == '_' || c == '-';
}

static qn_status read_name(parser *p, const char **out)
{
    if (peek(p) == '"' || peek(p) == '\'')
        return read_string(p, out);
    const char *start = p->at;
    while (p->at < p->end && is_bare(*p->at))
        p->at++;
    if (p->at == start)
        return fail(p, "expected a key");
    *out = keep(p, start, (size_t)(p->at - start));
    return *out ? QN_OK : QN_E_NOMEM;
}

/* a.b.c into names[0..*count). */
static qn_status read_names(parser *p, const char **names, int *count)
{
    *count = 0;
    do {
        if (*count == QN_TOML_DEPTH)
            return fail(p, "expected at most %d names with dots between",
                        QN_TOML_DEPTH);
        skip_blanks(p);
        qn_status status = read_name(p, &names[(*count)++]);
        if (status)
            return status;
        skip_blanks(p);
    } while (take(p, '.'));
    return QN_OK;
}

/* ---- values ---- */

/* A number without its underscores: digits, one dot, an exponent. */
static qn_status read_number(parser *p, qn_toml_entry *e)
{
    char plain[64];
    size_t size = 0;
    bool real = false, digit = false, zero = false, good = true;
    const char *start = p->at;
    if (peek(p) == '+' || peek(p) == '-')
        plain[size++] = *p->at++;
    zero = peek(p) == '0' && p->at + 1 < p->end && p->at[1] >= '0' &&
           p->at[1] <= '9';
    for (; p->at < p->end && (is_bare(*p->at) || strchr(".+:", *p->at));
         p->at++) {
        char c = *p->at;
        bool is_digit = c >= '0' && c <= '9';
        if (c == '_') {
            bool between = digit && p->at + 1 < p->end && p->at[1] >= '0' &&
                           p->at[1] <= '9';
            good = good && between;
            continue;
        }
        bool exponent = c == 'e' || c == 'E';
        bool sign = (c == '+' || c == '-') && size &&
                    (plain[size - 1] == 'e' || plain[size - 1] == 'E');
        bool dot = c == '.' && digit && !real;
        good = good && (is_digit || exponent || sign || dot) &&
               size + 1 < sizeof plain;
        if (!good)
            break;
        real = real || exponent || dot;
        plain[size++] = c;
        digit = is_digit;
    }
    plain[size] = '\0';
    char *end;
    if (!good || !digit || zero || (strtod(plain, &end), *end))
        return fail(p,
                    "expected a value, found '%.*s' (decimal numbers, "
                    "booleans, strings and arrays of strings are known)",
                    (int)(p->end - start < 20 ? p->end - start : 20), start);
    e->type = real ? QN_TOML_FLOAT : QN_TOML_INT;
    e->text = keep(p, plain + (plain[0] == '+'), size - (plain[0] == '+'));
    return e->text ? QN_OK : QN_E_NOMEM;
}

/* White space, newlines and comments between the parts of an array. */
static void skip_lines(parser *p)
{
    do {
        skip_blanks(p);
        skip_comment(p);
    } while (p->at < p->end && take_newline(p));
}

static qn_status read_array(parser *p, qn_toml_entry *e)
{
    size_t room = 0;
    p->at++;
    e->type = QN_TOML_STRINGS;
    for (;;) {
        skip_lines(p);
        if (take(p, ']'))
            return QN_OK;
        if (peek(p) != '"' && peek(p) != '\'')
            return fail(p, "expected a string or ] in the array");
        if (e->list_count == room) {
            room = room ? room * 2 : 8;
            const char **more =
                qn_arena_alloc(&p->toml->arena, room * sizeof *more);
            if (!more)
                return QN_E_NOMEM;
            if (e->list_count)
                memcpy(more, e->list, e->list_count * sizeof *more);
            e->list = more;
        }
        qn_status status = read_string(p, &e->list[e->list_count]);
        if (status)
            return status;
        e->list_count++;
        skip_lines(p);
        if (!take(p, ',') && peek(p) != ']')
            return fail(p, "expected , or ] in the array");
    }
}

static bool take_word(parser *p, const char *word)
{
    size_t size = strlen(word);
    if ((size_t)(p->end - p->at) < size || memcmp(p->at, word, size) != 0 ||
        (p->at + size < p->end && is_bare(p->at[size])))
        return false;
    p->at += size;
    return true;
}

static qn_status read_value(parser *p, qn_toml_entry *e)
{
    switch (peek(p)) {
    case '"':
    case '\'':
        e->type = QN_TOML_STRING;
        return read_string(p, &e->text);
    case '[':
        return read_array(p, e);
    case '{':
        return fail(p, "inline tables are not supported; write a [table]");
    case '\0':
    case '\n':
    case '\r':
    case '#':
        return fail(p, "expected a value after the =");
    default:
        break;
    }
    e->type = QN_TOML_BOOL;
    e->on = take_word(p, "true");
    if (e->on || take_word(p, "false"))
        return QN_OK;
    return read_number(p, e);
}

/* ---- lines ---- */

static bool same_path(const char *const *a, int na, const char *const *b,
                      int nb)
{
    if (na != nb)
        return false;
    for (int i = 0; i < na; i++)
        if (strcmp(a[i], b[i]) != 0)
            return false;
    return true;
}

/* Whether an entry has this path and key. */
static const qn_toml_entry *find(const parser *p, const char *const *path,
                                 int depth, const char *key)
{
    for (size_t i = 0; i < p->toml->count; i++) {
        const qn_toml_entry *e = &p->toml->entries[i];
        if (!strcmp(e->key, key) && same_path(e->path, e->depth, path, depth))
            return e;
    }
    return NULL;
}

/* A table can't have the name of a key, nor be opened twice. */
static qn_status check_table(const parser *p, const table *t)
{
    for (size_t i = 0; i < p->table_count; i++)
        if (same_path(p->tables[i].path, p->tables[i].depth, t->path, t->depth))
            return fail(p, "the table stands here again; line %d has it",
                        p->tables[i].line);
    for (int n = 1; n <= t->depth; n++) {
        const qn_toml_entry *e = find(p, t->path, n - 1, t->path[n - 1]);
        if (e)
            return fail(p, "line %d has the key '%s', which can't be a table",
                        e->line, e->key);
    }
    return QN_OK;
}

static qn_status read_table(parser *p)
{
    table t = {.line = p->line};
    p->at++;
    if (peek(p) == '[')
        return fail(p, "arrays of tables are not supported");
    qn_status status = read_names(p, t.path, &t.depth);
    if (!status && !take(p, ']'))
        status = fail(p, "expected ] after the table's name");
    if (!status)
        status = check_table(p, &t);
    if (status)
        return status;
    if (p->table_count == p->table_room) {
        size_t room = p->table_room ? p->table_room * 2 : 16;
        table *more = qn_arena_alloc(&p->toml->arena, room * sizeof *more);
        if (!more)
            return QN_E_NOMEM;
        if (p->table_count)
            memcpy(more, p->tables, p->table_count * sizeof *more);
        p->tables = more;
        p->table_room = room;
    }
    p->tables[p->table_count++] = t;
    return QN_OK;
}

static qn_status add_entry(parser *p, const qn_toml_entry *e)
{
    qn_toml *toml = p->toml;
    if (toml->count == MOST_ENTRIES)
        return fail(p, "expected at most %d keys", MOST_ENTRIES);
    if (toml->count == toml->room) {
        size_t room = toml->room ? toml->room * 2 : 16;
        qn_toml_entry *more =
            qn_reallocarray(toml->entries, room, sizeof *more);
        if (!more)
            return QN_E_NOMEM;
        toml->entries = more;
        toml->room = room;
    }
    toml->entries[toml->count++] = *e;
    return QN_OK;
}

/* Neither the key itself nor a table of its name may be there already. */
static qn_status check_key(const parser *p, const qn_toml_entry *e)
{
    const qn_toml_entry *before = find(p, e->path, e->depth, e->key);
    if (before)
        return fail(p, "the key '%s' stands here again; line %d has it", e->key,
                    before->line);
    for (size_t i = 0; i < p->table_count; i++) {
        const table *t = &p->tables[i];
        if (t->depth > e->depth &&
            same_path(t->path, e->depth, e->path, e->depth) &&
            !strcmp(t->path[e->depth], e->key))
            return fail(p, "line %d has the table '%s', which can't be a key",
                        t->line, e->key);
    }
    return QN_OK;
}

static qn_status read_entry(parser *p)
{
    qn_toml_entry e = {.line = p->line};
    const char *names[QN_TOML_DEPTH];
    int count;
    qn_status status = read_names(p, names, &count);
    if (status)
        return status;
    if (!take(p, '='))
        return fail(p, "expected = after the key");
    if (p->table_count) {
        const table *open = &p->tables[p->table_count - 1];
        memcpy(e.path, open->path, sizeof e.path);
        e.depth = open->depth;
    }
    for (int i = 0; i + 1 < count; i++) {
        if (e.depth == QN_TOML_DEPTH)
            return fail(p, "tables are nested too deep");
        e.path[e.depth++] = names[i];
    }
    e.key = names[count - 1];
    status = check_key(p, &e);
    if (status)
        return status;
    skip_blanks(p);
    status = read_value(p, &e);
    return status ? status : add_entry(p, &e);
}

static qn_status read_line(parser *p)
{
    skip_blanks(p);
    char c = peek(p);
    qn_status status = QN_OK;
    if (c == '[')
        status = read_table(p);
    else if (p->at < p->end && !strchr("#\r\n", c))
        status = read_entry(p);
    return status ? status : end_line(p);
}

/* Bytes that no TOML file has. */
static qn_status check_text(parser *p)
{
    size_t bad;
    qn_str text = {p->at, (size_t)(p->end - p->at)};
    bool valid = qn_utf8_valid(text, &bad);
    size_t size = valid ? text.size : bad;
    int line = 1;
    for (size_t i = 0; i < size; i++) {
        unsigned char c = (unsigned char)text.data[i];
        if (c == 0x7f || (c < 0x20 && !strchr("\t\n\r", c)) || !c)
            return fail_at(p, line,
                           qn_fail(QN_E_FORMAT,
                                   "control character \\x%02x in the file", c));
        line += c == '\n';
    }
    return valid ? QN_OK
                 : fail_at(p, line,
                           qn_fail(QN_E_FORMAT, "not valid UTF-8 at byte %zu",
                                   bad));
}

qn_status qn_toml_parse(qn_toml **out, qn_str text, const char *name)
{
    qn_toml *toml = qn_calloc(1, sizeof *toml);
    if (!toml)
        return QN_E_NOMEM;
    parser p = {
        .toml = toml,
        .name = name,
        .at = text.data,
        .end = text.data + text.size,
        .line = 1,
    };
    qn_status status = check_text(&p);
    while (!status && p.at < p.end)
        status = read_line(&p);
    if (status)
        qn_toml_free(toml);
    else
        *out = toml;
    return status;
}

void qn_toml_free(qn_toml *toml)
{
    if (!toml)
        return;
    qn_arena_free(&toml->arena);
    qn_free(toml->entries);
    qn_free(toml);
}

const qn_toml_entry *qn_toml_at(const qn_toml *toml, size_t i)
{
    return i < toml->count ? &toml->entries[i] : NULL;
}

const char *qn_toml_type_name(qn_toml_type type)
{
    static const char *const names[] = {
        [QN_TOML_BOOL] = "a boolean",
        [QN_TOML_INT] = "a whole number",
        [QN_TOML_FLOAT] = "a number",
        [QN_TOML_STRING] = "a string",
        [QN_TOML_STRINGS] = "an array of strings",
    };
    return names[type];
}
