/* format.c: one conversion after the other, text between them copied. */
#include "format.h"

#include "chars.h"
#include "number.h"
#include "print.h"
#include "run.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

typedef struct formatter {
    qn_jrun *run;
    qn_jbuild out;
    const qn_jstr *format;
    size_t at;
    /* The values: one after the other, or by name. */
    qn_jval values;
    uint32_t used;
} formatter;

typedef struct conversion {
    bool left, plus, blank, zero, other;
    int64_t width, precision; /* precision < 0: none */
    char type;
    qn_jval value;
} conversion;

enum { WIDEST = 4096, MOST_PRECISE = 100 };

static char peek(const formatter *f)
{
    return f->at < f->format->size ? f->format->data[f->at] : '\0';
}

static qn_jval next_value(formatter *f)
{
    if (f->values.kind == QN_J_TUPLE && f->used < f->values.as.list->count)
        return f->values.as.list->items[f->used++];
    if (f->values.kind != QN_J_TUPLE && f->used == 0) {
        f->used++;
        return f->values;
    }
    return qn_jrun_fail(f->run, "not enough arguments for format string");
}

/* %(name)...: the value of that key. */
static qn_jval named_value(formatter *f)
{
    size_t from = f->at + 1;
    size_t to = qn_jstr_find(qn_jstr_str(f->format), QN_STR(")"), from);
    if (to == SIZE_MAX)
        return qn_jrun_fail(f->run, "incomplete format key");
    if (f->values.kind != QN_J_DICT)
        return qn_jrun_fail(f->run, "format requires a mapping");
    f->at = to + 1;
    qn_str key = {f->format->data + from, to - from};
    const qn_jval *found = qn_jdict_get_str(f->run, f->values.as.dict, key);
    if (!found)
        return qn_jrun_fail(f->run, "'%.*s'",
                            key.size > 200 ? 200 : (int)key.size, key.data);
    return *found;
}

/* Digits, or * for the next value. */
static int64_t read_count(formatter *f, int64_t most)
{
    int64_t count = 0;
    if (peek(f) == '*') {
        f->at++;
        if (!qn_jas_int(next_value(f), &count))
            qn_jrun_fail(f->run, "* wants int");
    } else {
        for (; peek(f) >= '0' && peek(f) <= '9'; f->at++)
            if (count <= most)
                count = count * 10 + (peek(f) - '0');
    }
    if (count > most || count < -most) {
        qn_jrun_unsupported(f->run, "a format wider than %d", (int)most);
        return 0;
    }
    return count;
}

static conversion read_conversion(formatter *f)
{
    conversion c = {.precision = -1};
    bool named = peek(f) == '(';
    if (named)
        c.value = named_value(f);
    for (bool flag = true; flag;) {
        switch (peek(f)) {
        case '-':
            c.left = true;
            break;
        case '+':
            c.plus = true;
            break;
        case ' ':
            c.blank = true;
            break;
        case '0':
            c.zero = true;
            break;
        case '#':
            c.other = true;
            break;
        default:
            flag = false;
            continue;
        }
        f->at++;
    }
    c.width = read_count(f, WIDEST);
    if (c.width < 0) {
        c.left = true;
        c.width = -c.width;
    }
    if (peek(f) == '.') {
        f->at++;
        c.precision = read_count(f, MOST_PRECISE);
        if (c.precision < 0)
            c.precision = 0;
    }
    while (peek(f) == 'l' || peek(f) == 'h' || peek(f) == 'L')
        f->at++;
    c.type = peek(f);
    if (!c.type) {
        qn_jrun_fail(f->run, "incomplete format");
        return c;
    }
    f->at++;
    if (!named && c.type != '%')
        c.value = next_value(f);
    return c;
}

static void pad(formatter *f, const conversion *c, const qn_jstr *text)
{
    int64_t more = c->width - text->chars;
    for (int64_t i = 0; !c->left && i < more; i++)
        qn_jbuild_text(&f->out, " ", false);
    qn_jbuild_str(&f->out, text);
    for (int64_t i = 0; c->left && i < more; i++)
        qn_jbuild_text(&f->out, " ", false);
}

static void put_text(formatter *f, const conversion *c)
{
    qn_jbuild b = qn_jbuild_new(f->run);
    if (c->type == 's')
        qn_jprint(&b, c->value);
    else
        qn_jrepr(&b, c->value);
    const qn_jstr *text = qn_jbuild_done(&b);
    if (c->precision >= 0 && c->precision < text->chars)
        text = qn_jstr_sub(f->run, text, 0,
                           qn_jstr_offset(text, (size_t)c->precision));
    if (f->format->markup) {
        qn_jbuild escaped = qn_jbuild_new(f->run);
        qn_jbuild_escaped(&escaped,
                          c->value.kind == QN_J_STR && c->value.as.str->markup
                              ? c->value.as.str
                              : text);
        text = qn_jbuild_done(&escaped);
    }
    pad(f, c, text);
}

static void put_char(formatter *f, const conversion *c)
{
    int64_t code;
    qn_jbuild b = qn_jbuild_new(f->run);
    if (c->value.kind == QN_J_STR && c->value.as.str->chars == 1)
        qn_jbuild_str(&b, c->value.as.str);
    else if (qn_jas_int(c->value, &code) && code >= 0 && code <= 0x10ffff)
        qn_jbuild_code(&b, (uint32_t)code, c->value.tainted);
    else
        qn_jrun_fail(f->run, "%%c requires int or char");
    pad(f, c, qn_jbuild_done(&b));
}

/* Sign and prefix, zeros or blanks, digits. */
static void put_digits(formatter *f, const conversion *c, bool minus,
                       const char *prefix, const char *digits)
{
    const char *sign = minus ? "-" : c->plus ? "+" : c->blank ? " " : "";
    int64_t length = (int64_t)(strlen(sign) + strlen(prefix) + strlen(digits));
    bool tainted = c->value.tainted;
    int64_t more = c->width - length;
    bool zeros = c->zero && !c->left;
    for (int64_t i = 0; !c->left && !zeros && i < more; i++)
        qn_jbuild_text(&f->out, " ", false);
    qn_jbuild_text(&f->out, sign, tainted);
    qn_jbuild_text(&f->out, prefix, tainted);
    for (int64_t i = 0; zeros && i < more; i++)
        qn_jbuild_text(&f->out, "0", tainted);
    qn_jbuild_text(&f->out, digits, tainted);
    for (int64_t i = 0; c->left && i < more; i++)
        qn_jbuild_text(&f->out, " ", false);
}

static void put_integer(formatter *f, const conversion *c)
{
    char digits[200];
    int64_t value;
    qn_jval number = c->value;
    bool decimal = c->type == 'd' || c->type == 'i' || c->type == 'u';
    if (decimal && number.kind == QN_J_FLOAT)
        number = qn_jnumber_truncate(f->run, number.as.real);
    if (number.kind == QN_J_BIGINT) {
        qn_jrun_unsupported(f->run, "integers beyond 64 bits");
        return;
    }
    if (!qn_jas_int(number, &value)) {
        qn_jrun_fail(f->run, "%%%c format: a%s is required, not %s", c->type,
                     decimal ? " real number" : "n integer", qn_jtype(number));
        return;
    }
    uint64_t magnitude = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    int precision = c->precision > 1 ? (int)c->precision : 1;
    const char *prefix = "";
    switch (c->type) {
    case 'x':
        snprintf(digits, sizeof digits, "%.*" PRIx64, precision, magnitude);
        prefix = "0x";
        break;
    case 'X':
        snprintf(digits, sizeof digits, "%.*" PRIX64, precision, magnitude);
        prefix = "0X";
        break;
    case 'o':
        snprintf(digits, sizeof digits, "%.*" PRIo64, precision, magnitude);
        prefix = "0o";
        break;
    default:
        snprintf(digits, sizeof digits, "%.*" PRIu64, precision, magnitude);
        break;
    }
    put_digits(f, c, value < 0, c->other ? prefix : "", digits);
}

static void put_real(formatter *f, const conversion *c)
{
    char digits[512], spec[] = {'%', '.', '*', c->type, '\0'};
    char alternate[] = {'%', '#', '.', '*', c->type, '\0'};
    double value;
    if (!qn_jas_real(c->value, &value)) {
        qn_jrun_fail(f->run, "must be real number, not %s", qn_jtype(c->value));
        return;
    }
    qn_jrun_step(f->run, 64);
    bool minus = signbit(value) && !isnan(value);
    int precision = c->precision < 0 ? 6 : (int)c->precision;
    snprintf(digits, sizeof digits, c->other ? alternate : spec, precision,
             fabs(value));
    for (char *p = digits; *p; p++) /* the decimal point of the locale */
        if (*p == ',')
            *p = '.';
    put_digits(f, c, minus, "", digits);
}

static void put(formatter *f, const conversion *c)
{
    switch (c->type) {
    case '%':
        qn_jbuild_text(&f->out, "%", false);
        break;
    case 's':
    case 'r':
    case 'a':
        put_text(f, c);
        break;
    case 'c':
        put_char(f, c);
        break;
    case 'd':
    case 'i':
    case 'u':
    case 'x':
    case 'X':
    case 'o':
        put_integer(f, c);
        break;
    case 'e':
    case 'E':
    case 'f':
    case 'F':
    case 'g':
    case 'G':
        put_real(f, c);
        break;
    default:
        qn_jrun_fail(f->run, "unsupported format character (0x%x)",
                     (unsigned char)c->type);
        break;
    }
}

const qn_jstr *qn_jformat(qn_jrun *run, const qn_jstr *format, qn_jval values)
{
    formatter f = {.run = run,
                   .out = qn_jbuild_new(run),
                   .format = format,
                   .values = values};
    f.out.markup = format->markup;
    while (f.at < format->size && qn_jrun_step(run, 1)) {
        size_t to = qn_jstr_find(qn_jstr_str(format), QN_STR("%"), f.at);
        size_t end = to == SIZE_MAX ? format->size : to;
        qn_jbuild_slice(&f.out, format, f.at, end);
        if (to == SIZE_MAX)
            break;
        f.at = to + 1;
        conversion c = read_conversion(&f);
        if (qn_jrun_ok(run))
            put(&f, &c);
    }
    bool leftover = values.kind == QN_J_TUPLE
                        ? f.used < values.as.list->count
                        : f.used == 0 && values.kind != QN_J_DICT &&
                              values.kind != QN_J_LIST &&
                              values.kind != QN_J_RANGE &&
                              values.kind != QN_J_UNDEFINED;
    if (leftover)
        qn_jrun_fail(run, "not all arguments converted during string "
                          "formatting");
    return qn_jbuild_done(&f.out);
}
