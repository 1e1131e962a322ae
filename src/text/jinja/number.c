/* number.c: integers of 64 bits and doubles that behave like Python's.
 *
 * Python's integers have no end; here a result beyond 64 bits fails the run
 * instead of being wrong. */
#include "number.h"

#include "chars.h"
#include "format.h"
#include "run.h"
#include "unicode.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- reading ---- */

static qn_str without_space(qn_str text)
{
    size_t from = 0, to = text.size;
    while (from < to) {
        size_t at = from;
        if (!qn_junicode_space(qn_jstr_next(text, &at)))
            break;
        from = at;
    }
    while (to > from) {
        size_t at = to;
        if (!qn_junicode_space(qn_jstr_before(text, &at)))
            break;
        to = at;
    }
    return (qn_str){text.data + from, to - from};
}

static int digit_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)(c | 32);
    return c >= 'a' && c <= 'z' ? c - 'a' + 10 : 99;
}

/* Takes a sign off the front; true for a minus. */
static bool take_sign(qn_str *text)
{
    bool minus = text->size && text->data[0] == '-';
    if (minus || (text->size && text->data[0] == '+')) {
        text->data++;
        text->size--;
    }
    return minus;
}

/* Takes 0x, 0o or 0b off the front if `base` allows it, and decides base 0. */
static int take_prefix(qn_str *text, int base)
{
    int prefix = 0;
    if (text->size > 2 && text->data[0] == '0') {
        char c = (char)(text->data[1] | 32);
        prefix = c == 'x' ? 16 : c == 'o' ? 8 : c == 'b' ? 2 : 0;
    }
    if (prefix && (base == 0 || base == prefix)) {
        text->data += 2;
        text->size -= 2;
        if (text->data[0] == '_') {
            text->data++;
            text->size--;
        }
        return prefix;
    }
    return base ? base : 10;
}

bool qn_jnumber_int(qn_str text, int base, int64_t *out)
{
    if (base == 1 || base < 0 || base > 36)
        return false;
    text = without_space(text);
    bool minus = take_sign(&text);
    base = take_prefix(&text, base);
    uint64_t limit = (uint64_t)INT64_MAX + (minus ? 1 : 0), value = 0;
    bool digit = false;
    for (size_t i = 0; i < text.size; i++) {
        if (text.data[i] == '_' && digit) {
            digit = false; /* another digit must follow */
            continue;
        }
        int d = digit_value(text.data[i]);
        if (d >= base || value > (limit - (uint64_t)d) / (uint64_t)base)
            return false;
        value = value * (uint64_t)base + (uint64_t)d;
        digit = true;
    }
    *out = minus ? (int64_t)(0 - value) : (int64_t)value;
    return digit;
}

bool qn_jnumber_is_decimal(qn_str text)
{
    take_sign(&text);
    for (size_t i = 0; i < text.size; i++)
        if (text.data[i] < '0' || text.data[i] > '9')
            return false;
    return text.size > 0;
}

static bool is_word(qn_str text, const char *word)
{
    if (text.size != strlen(word))
        return false;
    for (size_t i = 0; i < text.size; i++)
        if ((text.data[i] | 32) != word[i])
            return false;
    return true;
}

/* The significant digits of a number: 0.DIGITS times ten to the `point`.
 * More than KEPT of them can't change the double they mean, short of ties
 * that nobody writes. */
enum { KEPT = 40 };

typedef struct digit_run {
    char digits[KEPT];
    int count;
    int64_t point;
} digit_run;

/* Reads digits with single underscores between them at *at; false when there
 * are none. */
static bool read_digits(digit_run *s, qn_str text, size_t *at, bool whole)
{
    bool any = false;
    for (; *at < text.size; ++*at) {
        char c = text.data[*at];
        if (c == '_' && any && *at + 1 < text.size &&
            digit_value(text.data[*at + 1]) < 10)
            continue;
        if (c < '0' || c > '9')
            break;
        any = true;
        if (c != '0' || s->count) {
            if (s->count < KEPT)
                s->digits[s->count++] = c;
            s->point += whole;
        } else {
            s->point -= !whole;
        }
    }
    return any;
}

static bool read_exponent(qn_str text, size_t *at, int64_t *out)
{
    qn_str rest = {text.data + *at, text.size - *at};
    bool minus = take_sign(&rest), any = false;
    int64_t value = 0;
    size_t i = 0;
    for (; i < rest.size; i++) {
        if (rest.data[i] == '_' && any && i + 1 < rest.size &&
            digit_value(rest.data[i + 1]) < 10)
            continue;
        if (rest.data[i] < '0' || rest.data[i] > '9')
            break;
        any = true;
        if (value < INT32_MAX)
            value = value * 10 + (rest.data[i] - '0');
    }
    *at = text.size - rest.size + i;
    *out = minus ? -value : value;
    return any;
}

bool qn_jnumber_real(qn_str text, double *out)
{
    digit_run s = {.count = 0};
    size_t at = 0;
    int64_t exponent = 0;
    text = without_space(text);
    bool minus = take_sign(&text);
    if (is_word(text, "inf") || is_word(text, "infinity")) {
        *out = minus ? -INFINITY : INFINITY;
        return true;
    }
    if (is_word(text, "nan")) {
        *out = NAN;
        return true;
    }
    bool digits = read_digits(&s, text, &at, true);
    if (at < text.size && text.data[at] == '.') {
        at++;
        digits |= read_digits(&s, text, &at, false);
    }
    if (!digits)
        return false;
    if (at < text.size && (text.data[at] | 32) == 'e') {
        at++;
        if (!read_exponent(text, &at, &exponent))
            return false;
    }
    if (at != text.size)
        return false;
    double value = 0;
    exponent += s.point;
    if (s.count && exponent > 400) {
        value = INFINITY;
    } else if (s.count && exponent > -400) {
        char spelling[64]; /* short enough to be read without allocating */
        int n = snprintf(spelling, sizeof spelling, "0.%.*se%d", s.count,
                         s.digits, (int)exponent);
        if (!qn_json_double((qn_str){spelling, (size_t)n}, &value))
            value = INFINITY;
    }
    *out = minus ? -value : value;
    return true;
}

/* ---- printing ---- */

/* Up to 17 decimal digits d.ddd times a power of ten. */
typedef struct decimal {
    char digits[24];
    int count, exponent;
} decimal;

/* Reads what "%.*e" wrote, whatever the decimal point of the locale. */
static decimal read_decimal(const char *text)
{
    decimal d = {.count = 0};
    for (; *text && *text != 'e'; text++)
        if (*text >= '0' && *text <= '9' && d.count < 20)
            d.digits[d.count++] = *text;
    if (*text)
        text++;
    bool minus = *text == '-';
    for (; *text; text++)
        if (*text >= '0' && *text <= '9')
            d.exponent = d.exponent * 10 + (*text - '0');
    if (minus)
        d.exponent = -d.exponent;
    return d;
}

/* Adds one to the last digit. */
static void bump(decimal *d)
{
    int i = d->count - 1;
    while (i >= 0 && d->digits[i] == '9')
        d->digits[i--] = '0';
    if (i >= 0) {
        d->digits[i]++;
        return;
    }
    d->digits[0] = '1'; /* 9.99 became 10.0 */
    d->exponent++;
}

static bool reads_back(const decimal *d, double value)
{
    char text[48];
    double again;
    int n = snprintf(text, sizeof text, "%c.%.*s0e%d", d->digits[0],
                     d->count - 1, d->digits + 1, d->exponent);
    return qn_json_double((qn_str){text, (size_t)n}, &again) && again == value;
}

/* The fewest digits that read back as `value` (positive, finite).  Up to 15
 * are kept by a normal double, so fewer only show as zeros at the end.
 * Beside the nearest decimal of each length the next larger one is tried:
 * above a power of two there is more room than below. */
static decimal shortest(double value)
{
    decimal d = {.count = 0};
    for (int count = value < DBL_MIN ? 1 : 15; count <= 17; count++) {
        char text[48];
        snprintf(text, sizeof text, "%.*e", count - 1, value);
        d = read_decimal(text);
        if (reads_back(&d, value))
            break;
        decimal next = d;
        bump(&next);
        if (count < 17 && reads_back(&next, value)) {
            d = next;
            break;
        }
    }
    while (d.count > 1 && d.digits[d.count - 1] == '0')
        d.count--;
    return d;
}

int qn_jnumber_print(char out[QN_JNUMBER_TEXT], double value)
{
    int n = 0;
    if (isnan(value))
        return snprintf(out, QN_JNUMBER_TEXT, "nan");
    if (signbit(value))
        out[n++] = '-';
    value = fabs(value);
    if (isinf(value))
        return n + snprintf(out + n, QN_JNUMBER_TEXT - (size_t)n, "inf");
    if (value == 0)
        return n + snprintf(out + n, QN_JNUMBER_TEXT - (size_t)n, "0.0");
    decimal d = shortest(value);
    if (d.exponent < -4 || d.exponent >= 16) {
        out[n++] = d.digits[0];
        if (d.count > 1)
            out[n++] = '.';
        for (int i = 1; i < d.count; i++)
            out[n++] = d.digits[i];
        return n + snprintf(out + n, QN_JNUMBER_TEXT - (size_t)n, "e%c%02d",
                            d.exponent < 0 ? '-' : '+', abs(d.exponent));
    }
    if (d.exponent < 0) {
        out[n++] = '0';
        out[n++] = '.';
        for (int i = -1; i > d.exponent; i--)
            out[n++] = '0';
        for (int i = 0; i < d.count; i++)
            out[n++] = d.digits[i];
    } else {
        for (int i = 0; i < d.count || i <= d.exponent + 1; i++) {
            if (i == d.exponent + 1)
                out[n++] = '.';
            out[n++] = i < d.count ? d.digits[i] : '0';
        }
    }
    out[n] = '\0';
    return n;
}

/* ---- rounding ---- */

double qn_jnumber_round(double value, int digits)
{
    char text[720];
    if (!isfinite(value) || digits > 323)
        return value;
    if (digits < -308)
        return copysign(0.0, value);
    if (digits < 0) {
        double scale = pow(10, -digits);
        return nearbyint(value / scale) * scale;
    }
    int n = snprintf(text, sizeof text, "%.*f", digits, value);
    for (int i = 0; i < n; i++) /* the decimal point of the locale */
        if (text[i] != '-' && (text[i] < '0' || text[i] > '9'))
            text[i] = '.';
    double rounded;
    return qn_jnumber_real((qn_str){text, (size_t)n}, &rounded) ? rounded
                                                                : value;
}

qn_jval qn_jnumber_truncate(qn_jrun *run, double value)
{
    if (isnan(value))
        return qn_jrun_fail(run, "cannot convert float NaN to integer");
    if (isinf(value))
        return qn_jrun_fail(run, "cannot convert float infinity to integer");
    if (!(value > -0x1p63 - 1 && value < 0x1p63))
        return qn_jrun_unsupported(run, "integers beyond 64 bits");
    return qn_jint((int64_t)value);
}

/* ---- arithmetic ---- */

static const char *const op_texts[] = {
    [QN_JOP_ADD] = "+",           [QN_JOP_SUB] = "-",       [QN_JOP_MUL] = "*",
    [QN_JOP_DIV] = "/",           [QN_JOP_FLOORDIV] = "//", [QN_JOP_MOD] = "%",
    [QN_JOP_POW] = "** or pow()",
};

static qn_jval too_large(qn_jrun *run)
{
    return qn_jrun_unsupported(run, "integers beyond 64 bits");
}

static int64_t floor_quotient(int64_t a, int64_t b)
{
    int64_t q = a / b;
    return a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q;
}

static qn_jval int_pow(qn_jrun *run, int64_t base, int64_t exponent)
{
    int64_t result = 1;
    if (exponent < 0) {
        if (base == 0)
            return qn_jrun_fail(run,
                                "0.0 cannot be raised to a negative power");
        return qn_jreal(pow((double)base, (double)exponent));
    }
    if (base == 0 || base == 1)
        return qn_jint(exponent ? base : 1);
    if (base == -1)
        return qn_jint(exponent % 2 ? -1 : 1);
    for (int64_t i = 0; i < exponent; i++) /* ends within 63 rounds */
        if (__builtin_mul_overflow(result, base, &result))
            return too_large(run);
    return qn_jint(result);
}

static qn_jval int_op(qn_jrun *run, qn_jop op, int64_t a, int64_t b)
{
    int64_t result = 0;
    bool overflow = false;
    switch (op) {
    case QN_JOP_ADD:
        overflow = __builtin_add_overflow(a, b, &result);
        break;
    case QN_JOP_SUB:
        overflow = __builtin_sub_overflow(a, b, &result);
        break;
    case QN_JOP_MUL:
        overflow = __builtin_mul_overflow(a, b, &result);
        break;
    case QN_JOP_DIV:
        if (b == 0)
            return qn_jrun_fail(run, "division by zero");
        return qn_jreal((double)a / (double)b);
    case QN_JOP_FLOORDIV:
        if (b == 0)
            return qn_jrun_fail(run, "integer division or modulo by zero");
        overflow = a == INT64_MIN && b == -1;
        result = overflow ? 0 : floor_quotient(a, b);
        break;
    case QN_JOP_MOD:
        if (b == 0)
            return qn_jrun_fail(run, "integer modulo by zero");
        result = b == -1 ? 0 : a % b;
        if (result != 0 && (result < 0) != (b < 0))
            result += b;
        break;
    default:
        return int_pow(run, a, b);
    }
    return overflow ? too_large(run) : qn_jint(result);
}

/* Python's divmod: the remainder has the sign of the divisor. */
static void real_divmod(double a, double b, double *quotient, double *remainder)
{
    double mod = fmod(a, b), div = (a - mod) / b;
    if (mod != 0) {
        if ((b < 0) != (mod < 0)) {
            mod += b;
            div -= 1;
        }
    } else {
        mod = copysign(0, b);
    }
    double whole = floor(div);
    if (div - whole > 0.5)
        whole += 1;
    *quotient = div != 0 ? whole : copysign(0, a / b);
    *remainder = mod;
}

static qn_jval real_op(qn_jrun *run, qn_jop op, double a, double b)
{
    double quotient, remainder, result;
    switch (op) {
    case QN_JOP_ADD:
        return qn_jreal(a + b);
    case QN_JOP_SUB:
        return qn_jreal(a - b);
    case QN_JOP_MUL:
        return qn_jreal(a * b);
    case QN_JOP_DIV:
        if (b == 0)
            return qn_jrun_fail(run, "float division by zero");
        return qn_jreal(a / b);
    case QN_JOP_FLOORDIV:
    case QN_JOP_MOD:
        if (b == 0)
            return qn_jrun_fail(run, op == QN_JOP_MOD
                                         ? "float modulo"
                                         : "float floor division by zero");
        real_divmod(a, b, &quotient, &remainder);
        return qn_jreal(op == QN_JOP_MOD ? remainder : quotient);
    default:
        if (a == 0 && b < 0)
            return qn_jrun_fail(run,
                                "0.0 cannot be raised to a negative power");
        if (a < 0 && isfinite(a) && isfinite(b) && b != floor(b))
            return qn_jrun_unsupported(run, "complex numbers");
        result = pow(a, b);
        if (isinf(result) && isfinite(a) && isfinite(b))
            return qn_jrun_fail(run, "Numerical result out of range");
        return qn_jreal(result);
    }
}

static bool is_list(qn_jval value)
{
    return value.kind == QN_J_LIST || value.kind == QN_J_TUPLE;
}

static qn_jval mismatch(qn_jrun *run, qn_jop op, qn_jval a, qn_jval b)
{
    if (a.kind == QN_J_UNDEFINED || b.kind == QN_J_UNDEFINED)
        return qn_jrun_undefined(run, a.kind == QN_J_UNDEFINED ? a : b);
    if (op == QN_JOP_ADD &&
        (a.kind == QN_J_STR || a.kind == QN_J_LIST || a.kind == QN_J_TUPLE))
        return qn_jrun_fail(run, "can only concatenate %s (not \"%s\") to %s",
                            qn_jtype(a), qn_jtype(b), qn_jtype(a));
    return qn_jrun_fail(run,
                        "unsupported operand type(s) for %s: '%s' and '%s'",
                        op_texts[op], qn_jtype(a), qn_jtype(b));
}

static qn_jval add_lists(qn_jrun *run, qn_jval a, qn_jval b)
{
    const qn_jlist *x = a.as.list, *y = b.as.list;
    uint64_t count = (uint64_t)x->count + y->count;
    qn_jval *items = qn_jrun_array(run, count, sizeof *items);
    if (!items || !qn_jrun_step(run, count))
        return qn_jundefined();
    if (x->count)
        memcpy(items, x->items, x->count * sizeof *items);
    if (y->count)
        memcpy(items + x->count, y->items, y->count * sizeof *items);
    qn_jval sum = qn_jseq(run, a.kind, items, (uint32_t)count);
    sum.tainted = a.tainted || b.tainted;
    return sum;
}

static qn_jval repeat_list(qn_jrun *run, qn_jval list, int64_t times)
{
    const qn_jlist *x = list.as.list;
    if (times < 0)
        times = 0;
    if (x->count && times > QN_JSTEPS / (int64_t)x->count)
        times = QN_JSTEPS; /* fails below */
    uint64_t count = (uint64_t)times * x->count;
    qn_jval *items = NULL;
    if (!qn_jrun_step(run, count) ||
        !(items = qn_jrun_array(run, count, sizeof *items)))
        return qn_jundefined();
    for (uint64_t i = 0; i < count; i++)
        items[i] = x->items[i % x->count];
    qn_jval result = qn_jseq(run, list.kind, items, (uint32_t)count);
    result.tainted = list.tainted;
    return result;
}

/* Strings and lists; sets *known to false where they do not apply. */
static qn_jval sequence_op(qn_jrun *run, qn_jop op, qn_jval a, qn_jval b,
                           bool *known)
{
    int64_t times;
    *known = true;
    if (op == QN_JOP_ADD && a.kind == QN_J_STR && b.kind == QN_J_STR)
        return qn_jstring(qn_jstr_add(run, a.as.str, b.as.str));
    if (op == QN_JOP_ADD && is_list(a) && a.kind == b.kind)
        return add_lists(run, a, b);
    if (op == QN_JOP_MOD && a.kind == QN_J_STR)
        return qn_jstring(qn_jformat(run, a.as.str, b));
    if (op == QN_JOP_MUL) {
        qn_jval sequence = qn_jas_int(b, &times) ? a : b;
        if (qn_jas_int(b, &times) || qn_jas_int(a, &times)) {
            if (sequence.kind == QN_J_STR)
                return qn_jstring(qn_jstr_repeat(run, sequence.as.str, times));
            if (is_list(sequence))
                return repeat_list(run, sequence, times);
        }
    }
    *known = false;
    return qn_jundefined();
}

qn_jval qn_jbinary(qn_jrun *run, qn_jop op, qn_jval a, qn_jval b)
{
    int64_t x, y;
    double u, v;
    bool known;
    qn_jval result;
    if (!qn_jrun_ok(run))
        return qn_jundefined();
    if (qn_jas_int(a, &x) && qn_jas_int(b, &y)) {
        result = int_op(run, op, x, y);
    } else if (qn_jas_real(a, &u) && qn_jas_real(b, &v)) {
        if (a.kind == QN_J_BIGINT || b.kind == QN_J_BIGINT)
            return too_large(run);
        result = real_op(run, op, u, v);
    } else {
        result = sequence_op(run, op, a, b, &known);
        return known ? result : mismatch(run, op, a, b);
    }
    result.tainted = a.tainted || b.tainted;
    return result;
}

qn_jval qn_jnegate(qn_jrun *run, qn_jval value, bool minus)
{
    int64_t x;
    qn_jval result = value;
    if (qn_jas_int(value, &x)) {
        if (minus && x == INT64_MIN)
            return too_large(run);
        result = qn_jint(minus ? -x : x);
    } else if (value.kind == QN_J_FLOAT) {
        result = qn_jreal(minus ? -value.as.real : value.as.real);
    } else if (value.kind == QN_J_BIGINT) {
        if (minus)
            return too_large(run);
    } else if (value.kind == QN_J_UNDEFINED) {
        return qn_jrun_undefined(run, value);
    } else {
        return qn_jrun_fail(run, "bad operand type for unary %s: '%s'",
                            minus ? "-" : "+", qn_jtype(value));
    }
    result.tainted = value.tainted;
    return result;
}
