/* scan.c: see scan.h. */
#include "scan.h"

enum {
    VALUE,
    VALUE_OR_END, /* behind '[' */
    KEY_OR_END,   /* behind '{' */
    KEY,          /* behind ',' in an object */
    COLON,
    AFTER, /* a value in a container */
    STRING,
    ESCAPE,
    HEX,
    WORD,
    MINUS, /* these and what follows are parts of a number */
    ZERO,
    DIGITS,
    POINT,
    FRACTION,
    EXPONENT,
    SIGN,
    POWER
};

typedef enum taken { TOOK, ENDED, ENDED_BEFORE, REFUSED } taken;

static bool is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool in_object(const qn_scan *s)
{
    int level = s->depth - 1;
    return s->objects[level / 8] >> (level % 8) & 1;
}

/* A value is over. */
static taken end_value(qn_scan *s)
{
    s->state = AFTER;
    return s->depth ? TOOK : ENDED;
}

static taken begin_container(qn_scan *s, bool object)
{
    if (s->depth == QN_JSON_MAX_DEPTH)
        return REFUSED;
    int level = s->depth++;
    uint8_t bit = (uint8_t)(1U << (level % 8));
    s->objects[level / 8] = object ? s->objects[level / 8] | bit
                                   : s->objects[level / 8] & (uint8_t)~bit;
    s->state = object ? KEY_OR_END : VALUE_OR_END;
    return TOOK;
}

static taken end_container(qn_scan *s)
{
    s->depth--;
    return end_value(s);
}

static taken begin_word(qn_scan *s, const char *word)
{
    s->word = word + 1;
    s->state = WORD;
    return TOOK;
}

static taken begin_string(qn_scan *s, bool key)
{
    s->key = key;
    s->state = STRING;
    return TOOK;
}

static taken begin_value(qn_scan *s, char c)
{
    switch (c) {
    case '{':
        return begin_container(s, true);
    case '[':
        return begin_container(s, false);
    case '"':
        return begin_string(s, false);
    case 't':
        return begin_word(s, "true");
    case 'f':
        return begin_word(s, "false");
    case 'n':
        return begin_word(s, "null");
    case '-':
        s->state = MINUS;
        return TOOK;
    case '0':
        s->state = ZERO;
        return TOOK;
    default:
        s->state = DIGITS;
        return is_digit(c) ? TOOK : REFUSED;
    }
}

static taken after_value(qn_scan *s, char c)
{
    bool object = in_object(s);
    if (c == (object ? '}' : ']'))
        return end_container(s);
    if (c != ',')
        return REFUSED;
    s->state = object ? KEY : VALUE;
    return TOOK;
}

/* What is between the values. */
static taken between(qn_scan *s, char c)
{
    if (is_space(c))
        return TOOK;
    switch (s->state) {
    case VALUE_OR_END:
        return c == ']' ? end_container(s) : begin_value(s, c);
    case KEY_OR_END:
        if (c == '}')
            return end_container(s);
        return c == '"' ? begin_string(s, true) : REFUSED;
    case KEY:
        return c == '"' ? begin_string(s, true) : REFUSED;
    case COLON:
        s->state = VALUE;
        return c == ':' ? TOOK : REFUSED;
    case AFTER:
        return after_value(s, c);
    default:
        return begin_value(s, c);
    }
}

static taken in_string(qn_scan *s, char c)
{
    if (s->state == HEX) {
        bool hex = is_digit(c) || ((c | 0x20) >= 'a' && (c | 0x20) <= 'f');
        if (hex && !--s->left)
            s->state = STRING;
        return hex ? TOOK : REFUSED;
    }
    if (s->state == ESCAPE) {
        s->state = c == 'u' ? HEX : STRING;
        s->left = 4;
        return c && strchr("\"\\/bfnrtu", c) ? TOOK : REFUSED;
    }
    if (c == '\\')
        s->state = ESCAPE;
    if (c != '"')
        return TOOK;
    if (!s->key)
        return end_value(s);
    s->state = COLON;
    return TOOK;
}

static taken in_word(qn_scan *s, char c)
{
    if (c != *s->word)
        return REFUSED;
    return *++s->word ? TOOK : end_value(s);
}

/* Only what follows shows that a number is over. */
static taken in_number(qn_scan *s, char c)
{
    bool digit = is_digit(c);
    switch (s->state) {
    case MINUS:
        s->state = c == '0' ? ZERO : DIGITS;
        return digit ? TOOK : REFUSED;
    case POINT:
        s->state = FRACTION;
        return digit ? TOOK : REFUSED;
    case EXPONENT:
        s->state = digit ? POWER : SIGN;
        return digit || c == '+' || c == '-' ? TOOK : REFUSED;
    case SIGN:
        s->state = POWER;
        return digit ? TOOK : REFUSED;
    default:
        break;
    }
    if (digit && s->state != ZERO)
        return TOOK;
    if (c == '.' && (s->state == ZERO || s->state == DIGITS)) {
        s->state = POINT;
        return TOOK;
    }
    if ((c | 0x20) == 'e' && s->state != POWER) {
        s->state = EXPONENT;
        return TOOK;
    }
    s->state = AFTER;
    return s->depth ? between(s, c) : ENDED_BEFORE;
}

static taken take(qn_scan *s, char c)
{
    if (s->state >= MINUS)
        return in_number(s, c);
    if (s->state == WORD)
        return in_word(s, c);
    if (s->state >= STRING)
        return in_string(s, c);
    return between(s, c);
}

static void put(qn_buf *out, char c, bool quoted)
{
    static const char names[] = "btn\0fr";
    uint8_t code = (uint8_t)c;
    if (code >= 0x20 || !quoted)
        qn_buf_add_char(out, c);
    else if (code >= '\b' && code <= '\r' && code != '\v')
        qn_buf_printf(out, "\\%c", names[code - '\b']);
    else
        qn_buf_printf(out, "\\u%04x", code);
}

qn_scanned qn_scan_feed(qn_scan *s, qn_buf *out, qn_str text, size_t *used)
{
    for (size_t i = 0; i < text.size; i++) {
        bool quoted = s->state == STRING;
        taken what = take(s, text.data[i]);
        *used = i;
        if (what == REFUSED)
            return QN_SCAN_BAD;
        if (what == ENDED_BEFORE)
            return QN_SCAN_DONE;
        put(out, text.data[i], quoted);
        *used = i + 1;
        if (what == ENDED)
            return QN_SCAN_DONE;
    }
    *used = text.size;
    return QN_SCAN_MORE;
}
