/* fields.c: "{0.name!r:>8}".format(...): replacement fields and the format
 * specifications of strings and numbers. */
#include "format.h"

#include "chars.h"
#include "number.h"
#include "print.h"
#include "run.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

typedef struct fields {
    qn_jrun *run;
    const qn_jcall *call;
    const qn_jstr *format;
    qn_jbuild out;
    uint32_t next; /* automatic index */
} fields;

/* [[fill]align][sign][#][0][width][,][.precision][type] */
typedef struct spec {
    uint32_t fill;
    char align, sign, group, type; /* 0: not given */
    bool other, zero;
    int64_t width, precision; /* < 0: none */
} spec;

enum { WIDEST = 4096, MOST_PRECISE = 100 };

/* ---- the specification ---- */

static bool is_align(char c)
{
    return c == '<' || c == '>' || c == '=' || c == '^';
}

static int64_t spec_number(fields *f, const char *text, size_t *at, size_t size,
                           int64_t most)
{
    int64_t value = -1;
    for (; *at < size && text[*at] >= '0' && text[*at] <= '9'; ++*at)
        if (value <= most)
            value = (value < 0 ? 0 : value * 10) + (text[*at] - '0');
    if (value > most)
        qn_jrun_unsupported(f->run, "a format wider than %d", (int)most);
    return value > most ? most : value;
}

static spec read_spec(fields *f, qn_str text)
{
    spec s = {.fill = ' ', .width = -1, .precision = -1};
    size_t at = 0, behind = 0;
    if (text.size) {
        uint32_t first = qn_jstr_next(text, &behind);
        if (behind < text.size && is_align(text.data[behind])) {
            s.fill = first;
            s.align = text.data[behind];
            at = behind + 1;
        } else if (is_align(text.data[0])) {
            s.align = text.data[at++];
        }
    }
    if (at < text.size && strchr("+- ", text.data[at]) && text.data[at])
        s.sign = text.data[at++];
    if (at < text.size && text.data[at] == '#') {
        s.other = true;
        at++;
    }
    if (at < text.size && text.data[at] == '0') {
        s.zero = true;
        at++;
    }
    s.width = spec_number(f, text.data, &at, text.size, WIDEST);
    if (at < text.size && (text.data[at] == ',' || text.data[at] == '_'))
        s.group = text.data[at++];
    if (at < text.size && text.data[at] == '.') {
        at++;
        s.precision = spec_number(f, text.data, &at, text.size, MOST_PRECISE);
        if (s.precision < 0)
            qn_jrun_fail(f->run, "Format specifier missing precision");
    }
    if (at < text.size)
        s.type = text.data[at++];
    if (at < text.size)
        qn_jrun_fail(f->run, "Invalid format specifier");
    if (s.zero && !s.align) {
        s.fill = '0';
        s.align = '=';
    }
    return s;
}

/* ---- padding ---- */

static void put_fill(fields *f, const spec *s, int64_t count)
{
    for (int64_t i = 0; i < count && qn_jrun_ok(f->run); i++)
        qn_jbuild_code(&f->out, s->fill, false);
}

/* `front` (a sign and a prefix, may be empty), filling, `text`, aligned. */
static void put_padded(fields *f, const spec *s, const char *front,
                       const qn_jstr *text, char align, bool tainted)
{
    int64_t more = s->width - text->chars - (int64_t)strlen(front);
    int64_t left = more < 0 ? 0 : more;
    if (s->align)
        align = s->align;
    int64_t before = align == '>' ? left : align == '^' ? left / 2 : 0;
    put_fill(f, s, before);
    qn_jbuild_text(&f->out, front, tainted);
    if (align == '=')
        put_fill(f, s, left);
    qn_jbuild_str(&f->out, text);
    if (align == '<' || align == '^')
        put_fill(f, s, left - before);
}

/* ---- values ---- */

static void put_text(fields *f, const spec *s, const qn_jstr *text)
{
    if (s->type && s->type != 's') {
        qn_jrun_fail(f->run,
                     "Unknown format code '%c' for object of type 'str'",
                     s->type);
        return;
    }
    if (s->sign || s->align == '=' || s->group || s->other) {
        qn_jrun_fail(f->run, "such a format is not allowed for strings");
        return;
    }
    if (s->precision >= 0 && s->precision < text->chars)
        text = qn_jstr_sub(f->run, text, 0,
                           qn_jstr_offset(text, (size_t)s->precision));
    put_padded(f, s, "", text, '<', false);
}

/* `digits` with separators between groups of the whole part. */
static void put_number(fields *f, const spec *s, bool minus, const char *prefix,
                       const char *digits, int group, bool tainted)
{
    char front[8];
    const char *sign = minus            ? "-"
                       : s->sign == '+' ? "+"
                       : s->sign == ' ' ? " "
                                        : "";
    snprintf(front, sizeof front, "%s%s", sign, prefix);
    size_t whole = strspn(digits, "0123456789abcdefABCDEF");
    if (group == 3)
        whole = strspn(digits, "0123456789");
    qn_jbuild b = qn_jbuild_new(f->run);
    for (size_t i = 0; digits[i]; i++) {
        if (s->group && i && i < whole && (whole - i) % (size_t)group == 0)
            qn_jbuild_add(&b, (qn_str){&s->group, 1}, tainted);
        qn_jbuild_add(&b, (qn_str){&digits[i], 1}, tainted);
    }
    put_padded(f, s, front, qn_jbuild_done(&b), '>', tainted);
}

static void to_binary(char out[72], uint64_t value)
{
    int n = 0;
    for (int bit = 63; bit >= 0; bit--)
        if (value >> bit || bit == 0)
            out[n++] = (char)('0' + (value >> bit & 1));
    out[n] = '\0';
}

static void put_int(fields *f, const spec *s, int64_t value, bool tainted)
{
    char digits[80];
    const char *prefix = "";
    uint64_t magnitude = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    int group = 4;
    if (s->precision >= 0) {
        qn_jrun_fail(f->run,
                     "Precision not allowed in integer format specifier");
        return;
    }
    switch (s->type) {
    case 'b':
        to_binary(digits, magnitude);
        prefix = "0b";
        break;
    case 'o':
        snprintf(digits, sizeof digits, "%" PRIo64, magnitude);
        prefix = "0o";
        break;
    case 'x':
        snprintf(digits, sizeof digits, "%" PRIx64, magnitude);
        prefix = "0x";
        break;
    case 'X':
        snprintf(digits, sizeof digits, "%" PRIX64, magnitude);
        prefix = "0X";
        break;
    case 'c':
        qn_jrun_unsupported(f->run, "the format type 'c'");
        return;
    default:
        snprintf(digits, sizeof digits, "%" PRIu64, magnitude);
        group = 3;
        break;
    }
    put_number(f, s, value < 0, s->other ? prefix : "", digits, group, tainted);
}

static void put_real(fields *f, const spec *s, double value, bool tainted)
{
    char digits[512];
    qn_jrun_step(f->run, 64);
    double magnitude = fabs(value);
    int precision = s->precision < 0 ? 6 : (int)s->precision;
    char type = s->type ? s->type : s->precision < 0 ? 'r' : 'g';
    if (type == 'r') {
        qn_jnumber_print(digits, magnitude);
    } else if (type == '%') {
        snprintf(digits, sizeof digits, "%.*f%%", precision, magnitude * 100);
    } else {
        char pattern[] = {'%', '.', '*', type == 'n' ? 'g' : type, '\0'};
        char alternate[] = {'%', '#', '.', '*', type == 'n' ? 'g' : type, '\0'};
        snprintf(digits, sizeof digits, s->other ? alternate : pattern,
                 precision, magnitude);
    }
    for (char *p = digits; *p; p++) /* the decimal point of the locale */
        if (*p == ',')
            *p = '.';
    if (!s->type && s->precision >= 0 && !strpbrk(digits, ".einf"))
        strcat(digits, ".0"); /* without a type a real stays one */
    put_number(f, s, signbit(value) && !isnan(value), "", digits, 3, tainted);
}

static void put_value(fields *f, const spec *s, qn_jval value)
{
    int64_t integer;
    double real;
    bool as_real = s->type && strchr("eEfFgG%", s->type);
    if (value.kind == QN_J_STR)
        put_text(f, s, value.as.str);
    else if (value.kind == QN_J_FLOAT && (!s->type || as_real))
        put_real(f, s, value.as.real, value.tainted);
    else if (as_real && qn_jas_real(value, &real))
        put_real(f, s, real, value.tainted);
    else if (qn_jas_int(value, &integer) &&
             (!s->type || strchr("bcdnoxX", s->type)))
        put_int(f, s, integer, value.tainted);
    else if (value.kind == QN_J_FLOAT || qn_jas_int(value, &integer))
        qn_jrun_fail(f->run, "Unknown format code '%c' for object of type '%s'",
                     s->type, qn_jtype(value));
    else
        qn_jrun_fail(f->run,
                     "unsupported format string passed to %s.__format__",
                     qn_jtype(value));
}

/* ---- fields ---- */

static bool all_digits(qn_str text)
{
    for (size_t i = 0; i < text.size; i++)
        if (text.data[i] < '0' || text.data[i] > '9')
            return false;
    return text.size > 0 && text.size < 9;
}

static int64_t digits_value(qn_str text)
{
    int64_t value = 0;
    for (size_t i = 0; i < text.size; i++)
        value = value * 10 + (text.data[i] - '0');
    return value;
}

/* The argument that the first part of a field names. */
static qn_jval argument(fields *f, qn_str name)
{
    const qn_jcall *call = f->call;
    if (!name.size || all_digits(name)) {
        uint64_t i = name.size ? (uint64_t)digits_value(name) : f->next++;
        if (i < call->positional_count)
            return call->positional[i];
        return qn_jrun_fail(f->run,
                            "Replacement index %" PRIu64
                            " out of range for positional args tuple",
                            i);
    }
    for (uint32_t k = 0; k < call->keyword_count; k++)
        if (qn_str_eq(qn_jstr_str(call->names[k]), name))
            return call->keywords[k];
    return qn_jrun_fail(f->run, "'%.*s'",
                        name.size > 200 ? 200 : (int)name.size, name.data);
}

/* The value of "name.attribute[index]" at [from, to) of the format. */
static qn_jval lookup(fields *f, size_t from, size_t to)
{
    const char *text = f->format->data;
    size_t at = from;
    while (at < to && text[at] != '.' && text[at] != '[')
        at++;
    qn_jval value = argument(f, (qn_str){text + from, at - from});
    while (at < to && qn_jrun_step(f->run, 1)) {
        bool index = text[at] == '[';
        size_t start = ++at;
        while (at < to &&
               (index ? text[at] != ']' : text[at] != '.' && text[at] != '['))
            at++;
        if (at == start || (index && at == to))
            return qn_jrun_fail(f->run, "Empty attribute in format string");
        const qn_jstr *part = qn_jstr_sub(f->run, f->format, start, at);
        if (!index)
            value = qn_jattribute(f->run, value, part);
        else
            value = qn_jitem(f->run, value,
                             all_digits(qn_jstr_str(part))
                                 ? qn_jint(digits_value(qn_jstr_str(part)))
                                 : qn_jstring(part));
        at += index;
        if (index && at < to && text[at] != '.' && text[at] != '[')
            return qn_jrun_fail(f->run, "Only '.' or '[' may follow ']' in "
                                        "format field specifier");
    }
    return value;
}

/* The field between the braces, [from, to) of the format. */
static void put_field(fields *f, size_t from, size_t to)
{
    const char *text = f->format->data;
    size_t name = from;
    for (bool inside = false; name < to; name++) { /* [an index] */
        if (!inside && (text[name] == '!' || text[name] == ':'))
            break;
        inside = text[name] == '[' || (inside && text[name] != ']');
    }
    size_t at = name;
    char conversion = '\0';
    if (at < to && text[at] == '!') {
        conversion = at + 1 < to ? text[at + 1] : '?';
        at = at + 2 < to ? at + 2 : to;
        if ((conversion != 'r' && conversion != 's') ||
            (at < to && text[at] != ':')) {
            qn_jrun_fail(f->run, "Unknown conversion specifier '%c'",
                         conversion);
            return;
        }
    }
    qn_jval value = lookup(f, from, name);
    if (conversion) {
        qn_jbuild b = qn_jbuild_new(f->run);
        if (conversion == 'r')
            qn_jrepr(&b, value);
        else
            qn_jprint(&b, value);
        value = qn_jstring(qn_jbuild_done(&b));
    }
    if (!qn_jrun_ok(f->run))
        return;
    if (at + 1 >= to) { /* no specification: str(value) */
        qn_jprint(&f->out, value);
        return;
    }
    spec s = read_spec(f, (qn_str){text + at + 1, to - at - 1});
    if (qn_jrun_ok(f->run))
        put_value(f, &s, value);
}

const qn_jstr *qn_jformat_fields(const qn_jstr *format, const qn_jcall *call)
{
    fields f = {.run = call->run,
                .call = call,
                .format = format,
                .out = qn_jbuild_new(call->run)};
    if (format->markup)
        qn_jrun_unsupported(f.run, "format() of a text marked as safe");
    for (size_t at = 0; at < format->size && qn_jrun_step(f.run, 1);) {
        size_t end = at;
        while (end < format->size && format->data[end] != '{' &&
               format->data[end] != '}')
            end++;
        qn_jbuild_slice(&f.out, format, at, end);
        if (end == format->size)
            break;
        at = end + 1;
        char brace = format->data[end];
        if (at < format->size && format->data[at] == brace) {
            qn_jbuild_slice(&f.out, format, at, at + 1);
            at++;
            continue;
        }
        size_t close = at;
        while (brace == '{' && close < format->size &&
               format->data[close] != '}' && format->data[close] != '{')
            close++;
        if (brace == '}' || close == format->size)
            qn_jrun_fail(f.run, "Single '%c' encountered in format string",
                         brace);
        else if (format->data[close] == '{')
            qn_jrun_unsupported(f.run, "fields inside of format fields");
        else
            put_field(&f, at, close);
        at = close + 1;
    }
    return qn_jbuild_done(&f.out);
}
