/* json.c: the JSON reader, the document tree and the writer.
 *
 * The reader is a state machine over text in memory: `state` says what may
 * come next, one bit for each open container says whether it is an object.
 * A string without escapes is a piece of the source; only others are copied.
 * The tree builder collects the children of open containers on one stack and
 * moves them into the document's arena when their container ends, so every
 * container is one block and nothing recurses. */
#include "json.h"

#include "alloc.h"
#include "arena.h"
#include "map.h"
#include "utf8.h"

#include <assert.h>
#include <float.h>
#include <inttypes.h>
#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#ifdef __APPLE__
#include <xlocale.h>
#endif

/* ---- pull reader ---- */

typedef enum state {
    VALUE,        /* a value must follow */
    VALUE_OR_END, /* after '[' */
    KEY_OR_END,   /* after '{' */
    KEY_COLON,    /* after a key */
    AFTER_VALUE   /* ',' or the end of the container or text */
} state;

struct qn_json_reader {
    const uint8_t *data;
    size_t size, pos;
    unsigned flags;
    int depth, max_depth;
    uint8_t *in_object; /* for each open container */
    state state;
    qn_json_event event;
    qn_status status;
    qn_str text;
    size_t offset, end;
    qn_buf scratch; /* the last string that had escapes */
};

static qn_status reader_init(qn_json_reader *r, qn_str text, unsigned flags,
                             int max_depth)
{
    if (max_depth <= 0)
        max_depth = QN_JSON_MAX_DEPTH;
    *r = (qn_json_reader){.data = (const uint8_t *)text.data,
                          .size = text.size,
                          .flags = flags,
                          .max_depth = max_depth,
                          .state = VALUE,
                          .event = QN_JSON_NULL};
    r->in_object = qn_alloc((size_t)max_depth);
    if (!r->in_object)
        return QN_E_NOMEM;
    if (flags & QN_JSON_ALLOW_BOM && text.size >= 3 &&
        !memcmp(text.data, "\xef\xbb\xbf", 3))
        r->pos = 3;
    return QN_OK;
}

static void reader_done(qn_json_reader *r)
{
    qn_free(r->in_object);
    qn_buf_free(&r->scratch);
}

qn_json_reader *qn_json_reader_new(qn_str text, unsigned flags, int max_depth)
{
    qn_json_reader *reader = qn_alloc(sizeof *reader);
    if (!reader)
        return NULL;
    if (reader_init(reader, text, flags, max_depth)) {
        qn_free(reader);
        return NULL;
    }
    return reader;
}

void qn_json_reader_free(qn_json_reader *reader)
{
    if (!reader)
        return;
    reader_done(reader);
    qn_free(reader);
}

/* Records "JSON byte N: expected X, found Y"; the event is an error. */
static qn_json_event expected(qn_json_reader *r, size_t at, const char *what)
{
    char found[32] = "the end of the text";
    if (at < r->size) {
        uint8_t c = r->data[at];
        if (c > ' ' && c < 0x7f)
            snprintf(found, sizeof found, "'%c'", c);
        else
            snprintf(found, sizeof found, "byte 0x%02X", c);
    }
    r->offset = r->end = at;
    r->status = qn_fail(QN_E_FORMAT, "JSON byte %zu: expected %s, found %s", at,
                        what, found);
    return QN_JSON_ERROR;
}

static void skip_space(qn_json_reader *r)
{
    size_t i = r->pos;
    while (i < r->size && (r->data[i] == ' ' || r->data[i] == '\n' ||
                           r->data[i] == '\r' || r->data[i] == '\t'))
        i++;
    r->pos = i;
}

/* The first byte at or after i that is no plain string character: a quote, a
 * backslash, a control character or the start of a non-ASCII one. */
static size_t plain_end(const uint8_t *p, size_t i, size_t size)
{
    const uint64_t ones = UINT64_C(0x0101010101010101), high = ones * 0x80;
    /* Eight at once: x - 1 borrows into the high bit exactly where a byte of
     * x is 0 (or above 0x80, which stops here as well). */
    while (size - i >= 8) {
        uint64_t w;
        memcpy(&w, p + i, sizeof w);
        uint64_t quote = w ^ ones * '"', slash = w ^ ones * '\\';
        uint64_t stop = w | (w - ones * 0x20) | (quote - ones) | (slash - ones);
        if (stop & high)
            break;
        i += 8;
    }
    while (i < size && p[i] >= 0x20 && p[i] < 0x80 && p[i] != '"' &&
           p[i] != '\\')
        i++;
    return i;
}

/* Four hex digits at `at`. */
static bool hex4(const qn_json_reader *r, size_t at, uint32_t *out)
{
    if (r->size - at < 4)
        return false;
    uint32_t code = 0;
    for (size_t i = 0; i < 4; i++) {
        uint8_t c = r->data[at + i];
        uint32_t digit;
        if (c >= '0' && c <= '9')
            digit = c - (uint32_t)'0';
        else if (c >= 'a' && c <= 'f')
            digit = c - (uint32_t)'a' + 10;
        else if (c >= 'A' && c <= 'F')
            digit = c - (uint32_t)'A' + 10;
        else
            return false;
        code = code << 4 | digit;
    }
    *out = code;
    return true;
}

/* Reads \uXXXX whose 'u' is at *i - 1, with its second half if it is a
 * surrogate, into the scratch buffer. */
static bool read_unicode(qn_json_reader *r, size_t *i)
{
    size_t start = *i - 2;
    uint32_t code, low;
    if (!hex4(r, *i, &code)) {
        expected(r, *i, "four hex digits after \\u");
        return false;
    }
    *i += 4;
    if (code >= 0xd800 && code <= 0xdfff) {
        bool paired = code < 0xdc00 && r->size - *i >= 6 &&
                      r->data[*i] == '\\' && r->data[*i + 1] == 'u' &&
                      hex4(r, *i + 2, &low) && low >= 0xdc00 && low <= 0xdfff;
        if (paired) {
            *i += 6;
            code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
        } else if (r->flags & QN_JSON_ALLOW_LONE_SURROGATES) {
            code = 0xfffd;
        } else {
            r->offset = r->end = start;
            r->status = qn_fail(QN_E_FORMAT,
                                "JSON byte %zu: expected a surrogate pair, "
                                "found \\u%04X alone",
                                start, (unsigned)code);
            return false;
        }
    }
    qn_buf_add_code(&r->scratch, code);
    return true;
}

/* Reads the escape whose backslash is at *i into the scratch buffer. */
static bool read_escape(qn_json_reader *r, size_t *i)
{
    static const char names[] = "\"\\/bfnrt", chars[] = "\"\\/\b\f\n\r\t";
    size_t at = *i + 1;
    uint8_t c = at < r->size ? r->data[at] : 0;
    const char *name = c ? strchr(names, c) : NULL;
    *i = at + 1;
    if (name) {
        qn_buf_add_char(&r->scratch, chars[name - names]);
        return true;
    }
    if (c == 'u')
        return read_unicode(r, i);
    expected(r, at, "one of \"\\/bfnrtu after a backslash");
    return false;
}

/* Reads the string whose quote is at r->pos into r->text. */
static bool read_string(qn_json_reader *r)
{
    const uint8_t *p = r->data;
    size_t from = r->pos + 1, i = from; /* [from, i): not yet copied */
    bool escaped = false;
    for (;;) {
        i = plain_end(p, i, r->size);
        if (i == r->size) {
            expected(r, i, "'\"' at the end of the string");
            return false;
        }
        if (p[i] == '"')
            break;
        if (p[i] == '\\') {
            if (!escaped)
                qn_buf_clear(&r->scratch);
            escaped = true;
            qn_buf_add(&r->scratch, p + from, i - from);
            if (!read_escape(r, &i))
                return false;
            from = i;
        } else if (p[i] < 0x20) {
            expected(r, i, "control characters to be escaped");
            return false;
        } else {
            uint32_t code;
            int length = qn_utf8_decode((const char *)p + i,
                                        (const char *)p + r->size, &code);
            if (!length) {
                expected(r, i, "valid UTF-8");
                return false;
            }
            i += (size_t)length;
        }
    }
    r->pos = i + 1;
    r->text = (qn_str){(const char *)p + from, i - from};
    if (escaped) {
        qn_buf_add_str(&r->scratch, r->text);
        r->status = qn_buf_status(&r->scratch);
        r->text = qn_buf_str(&r->scratch);
    }
    return !r->status;
}

/* The first byte at or after i that is no digit; false when there is not even
 * one digit. */
static bool skip_digits(const qn_json_reader *r, size_t *i)
{
    size_t start = *i;
    while (*i < r->size && r->data[*i] >= '0' && r->data[*i] <= '9')
        ++*i;
    return *i > start;
}

static qn_json_event read_number(qn_json_reader *r)
{
    size_t i = r->pos;
    if (r->data[i] == '-')
        i++;
    if (i < r->size && r->data[i] == '0')
        i++; /* nothing may follow a leading zero but '.', 'e' or the end */
    else if (!skip_digits(r, &i))
        return expected(r, i, "a digit");
    if (i < r->size && r->data[i] == '.') {
        i++;
        if (!skip_digits(r, &i))
            return expected(r, i, "a digit after the decimal point");
    }
    if (i < r->size && (r->data[i] | 0x20) == 'e') {
        i++;
        if (i < r->size && (r->data[i] == '+' || r->data[i] == '-'))
            i++;
        if (!skip_digits(r, &i))
            return expected(r, i, "a digit in the exponent");
    }
    r->text = (qn_str){(const char *)r->data + r->pos, i - r->pos};
    r->pos = i;
    return QN_JSON_NUMBER;
}

static qn_json_event read_word(qn_json_reader *r, const char *word,
                               qn_json_event event)
{
    size_t size = strlen(word);
    if (r->size - r->pos < size || memcmp(r->data + r->pos, word, size))
        return expected(r, r->pos, "a JSON value");
    r->pos += size;
    return event;
}

static qn_json_event open_container(qn_json_reader *r, bool object)
{
    if (r->depth == r->max_depth) {
        r->end = r->offset;
        r->status = qn_fail(QN_E_FORMAT,
                            "JSON byte %zu: expected at most %d levels of "
                            "nesting, found more",
                            r->offset, r->max_depth);
        return QN_JSON_ERROR;
    }
    r->in_object[r->depth++] = object;
    r->pos++;
    r->state = object ? KEY_OR_END : VALUE_OR_END;
    return object ? QN_JSON_OBJECT_BEGIN : QN_JSON_ARRAY_BEGIN;
}

static qn_json_event close_container(qn_json_reader *r)
{
    r->pos++;
    r->state = AFTER_VALUE;
    return r->in_object[--r->depth] ? QN_JSON_OBJECT_END : QN_JSON_ARRAY_END;
}

static qn_json_event read_value(qn_json_reader *r)
{
    r->offset = r->pos;
    r->state = AFTER_VALUE;
    switch (r->pos < r->size ? r->data[r->pos] : 0) {
    case '{':
        return open_container(r, true);
    case '[':
        return open_container(r, false);
    case '"':
        return read_string(r) ? QN_JSON_STRING : QN_JSON_ERROR;
    case 't':
        return read_word(r, "true", QN_JSON_TRUE);
    case 'f':
        return read_word(r, "false", QN_JSON_FALSE);
    case 'n':
        return read_word(r, "null", QN_JSON_NULL);
    case '-':
    case '0':
    case '1':
    case '2':
    case '3':
    case '4':
    case '5':
    case '6':
    case '7':
    case '8':
    case '9':
        return read_number(r);
    default:
        return expected(r, r->pos, "a JSON value");
    }
}

static qn_json_event read_key(qn_json_reader *r)
{
    r->offset = r->pos;
    if (r->pos == r->size || r->data[r->pos] != '"')
        return expected(r, r->pos, "a key in quotes");
    r->state = KEY_COLON;
    return read_string(r) ? QN_JSON_KEY : QN_JSON_ERROR;
}

/* One event from where the reader stands. */
static qn_json_event step(qn_json_reader *r)
{
    skip_space(r);
    r->offset = r->pos;
    uint8_t c = r->pos < r->size ? r->data[r->pos] : 0;
    switch (r->state) {
    case VALUE:
        break;
    case VALUE_OR_END:
        if (c == ']')
            return close_container(r);
        break;
    case KEY_OR_END:
        return c == '}' ? close_container(r) : read_key(r);
    case KEY_COLON:
        if (c != ':')
            return expected(r, r->pos, "':' after the key");
        r->pos++;
        skip_space(r);
        break;
    case AFTER_VALUE:
        if (!r->depth)
            return r->pos == r->size
                       ? QN_JSON_END
                       : expected(r, r->pos, "the end of the text");
        bool object = r->in_object[r->depth - 1];
        if (c == (object ? '}' : ']'))
            return close_container(r);
        if (c != ',')
            return expected(r, r->pos, object ? "',' or '}'" : "',' or ']'");
        r->pos++;
        skip_space(r);
        if (object)
            return read_key(r);
        break;
    }
    return read_value(r);
}

qn_json_event qn_json_next(qn_json_reader *reader)
{
    if (reader->event != QN_JSON_END && reader->event != QN_JSON_ERROR) {
        reader->event = step(reader);
        if (reader->event != QN_JSON_ERROR)
            reader->end = reader->pos;
    }
    return reader->event;
}

qn_str qn_json_text(const qn_json_reader *reader)
{
    return reader->text;
}

size_t qn_json_offset(const qn_json_reader *reader)
{
    return reader->offset;
}

size_t qn_json_end_offset(const qn_json_reader *reader)
{
    return reader->end;
}

qn_status qn_json_status(const qn_json_reader *reader)
{
    return reader->status;
}

qn_status qn_json_skip(qn_json_reader *reader)
{
    int outside = reader->depth - 1;
    while (reader->depth > outside && reader->event != QN_JSON_END) {
        if (qn_json_next(reader) == QN_JSON_ERROR)
            break;
    }
    return reader->status;
}

/* ---- numbers ---- */

/* printf and strtod follow the program's locale; JSON does not. */
static pthread_once_t c_locale_once = PTHREAD_ONCE_INIT;
static locale_t c_locale;

static void make_c_locale(void)
{
    c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

/* Puts the calling thread into the C locale; the result goes to uselocale
 * afterwards.  Should newlocale fail, both change nothing. */
static locale_t enter_c_locale(void)
{
    pthread_once(&c_locale_once, make_c_locale);
    return uselocale(c_locale);
}

bool qn_json_int64(qn_str spelling, int64_t *out)
{
    size_t i = 0;
    bool negative = spelling.size && spelling.data[0] == '-';
    if (negative)
        i++;
    if (i == spelling.size)
        return false;
    /* Counted downwards: the negative range is the larger one. */
    int64_t value = 0;
    for (; i < spelling.size; i++) {
        int digit = spelling.data[i] - '0';
        if (digit < 0 || digit > 9 || value < (INT64_MIN + digit) / 10)
            return false;
        value = value * 10 - digit;
    }
    if (!negative && value == INT64_MIN)
        return false;
    *out = negative ? value : -value;
    return true;
}

/* Numbers of at most 15 digits and a small power of ten: both are exact
 * doubles, so one division or multiplication rounds correctly. */
static bool simple_double(qn_str text, double *out)
{
    static const double powers[] = {
        1e0, 1e1, 1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
        1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
    };
    int64_t digits = 0;
    size_t count = 0, decimals = 0, i = text.size && text.data[0] == '-';
    bool point = false;
    for (; i < text.size; i++) {
        char c = text.data[i];
        if (c == '.' && !point) {
            point = true;
        } else if (c >= '0' && c <= '9' && count < 15) {
            digits = digits * 10 + (c - '0');
            count++;
            decimals += point;
        } else {
            return false;
        }
    }
    if (!count)
        return false;
    double value = (double)digits / powers[decimals];
    *out = text.data[0] == '-' ? -value : value;
    return true;
}

bool qn_json_double(qn_str spelling, double *out)
{
    if (simple_double(spelling, out))
        return true;
    /* strtod reads more than JSON: hexadecimal, "inf", leading space. */
    for (size_t i = 0; i < spelling.size; i++) {
        char c = spelling.data[i];
        if ((c < '0' || c > '9') && c != '.' && c != '-' && c != '+' &&
            (c | 0x20) != 'e')
            return false;
    }
    if (!spelling.size)
        return false;
    char small[64], *text = small, *end;
    if (spelling.size >= sizeof small) {
        text = qn_strndup(spelling.data, spelling.size);
        if (!text)
            return false;
    } else {
        memcpy(small, spelling.data, spelling.size);
        small[spelling.size] = '\0';
    }
    locale_t before = enter_c_locale();
    double value = strtod(text, &end);
    uselocale(before);
    bool ok = end == text + spelling.size && isfinite(value);
    if (text != small)
        qn_free(text);
    if (ok)
        *out = value;
    return ok;
}

/* ---- tree ---- */

/* Stands before the items of every container that has any. */
typedef struct head {
    uint32_t capacity; /* room for items (and keys) */
    uint32_t used;     /* by any value that shares the storage */
    uint64_t *index;   /* objects above INDEX_ABOVE: as the slots of map.c */
    qn_json items[];
} head;

enum { INDEX_ABOVE = 16 };

struct qn_json_doc {
    qn_arena arena;
    const qn_json *root;
    qn_json null;
};

static head *head_of(const qn_json *container)
{
    return container->items
               ? (head *)((char *)container->items - offsetof(head, items))
               : NULL;
}

/* Slots of an index: a power of two, at most half of it used. */
static size_t index_size(uint32_t capacity)
{
    size_t size = INDEX_ABOVE * 2;
    while (size / 2 < capacity)
        size *= 2;
    return size;
}

/* The slot that holds `key` among the first `count` keys, or the free one
 * where it belongs. */
static uint64_t *index_slot(const head *h, const qn_str *keys, uint32_t count,
                            qn_str key, uint64_t hash)
{
    size_t mask = index_size(h->capacity) - 1;
    for (size_t i = (size_t)hash & mask;; i = (i + 1) & mask) {
        uint64_t slot = h->index[i];
        if (!slot || (slot >> 32 == hash >> 32 && (uint32_t)slot <= count &&
                      qn_str_eq(keys[(uint32_t)slot - 1], key)))
            return &h->index[i];
    }
}

/* Number of the child with this key; UINT32_MAX when there is none. */
static uint32_t find_key(const qn_json *object, qn_str key)
{
    const head *h = head_of(object);
    if (h && h->index) {
        uint64_t slot = *index_slot(h, object->keys, object->count, key,
                                    qn_hash(key.data, key.size));
        return slot ? (uint32_t)slot - 1 : UINT32_MAX;
    }
    for (uint32_t i = 0; i < object->count; i++) {
        if (qn_str_eq(object->keys[i], key))
            return i;
    }
    return UINT32_MAX;
}

/* Gives an empty container room for `capacity` children. */
static bool make_room(qn_arena *arena, qn_json *container, uint32_t capacity)
{
    size_t bytes;
    if (!qn_mul_size(&bytes, capacity, sizeof(qn_json)) ||
        !qn_add_size(&bytes, bytes, sizeof(head)))
        bytes = SIZE_MAX;
    head *h = qn_arena_alloc(arena, bytes);
    if (!h)
        return false;
    *h = (head){.capacity = capacity};
    if (container->type == QN_JSON_T_OBJECT) {
        qn_str *keys = qn_arena_alloc(arena, capacity * sizeof *keys);
        if (!keys)
            return false;
        container->keys = keys;
        if (capacity > INDEX_ABOVE) {
            size_t size = index_size(capacity) * sizeof *h->index;
            h->index = qn_arena_alloc(arena, size);
            if (!h->index)
                return false;
            memset(h->index, 0, size);
        }
    }
    container->items = h->items;
    return true;
}

/* Appends to a container that has room; the key is new. */
static void append(qn_json *container, qn_str key, const qn_json *value)
{
    head *h = head_of(container);
    uint32_t i = container->count++;
    h->used = container->count;
    container->items[i] = *value;
    if (container->type != QN_JSON_T_OBJECT)
        return;
    container->keys[i] = key;
    if (h->index) {
        uint64_t hash = qn_hash(key.data, key.size);
        *index_slot(h, container->keys, i, key, hash) =
            (hash & ~(uint64_t)UINT32_MAX) | (i + 1);
    }
}

/* What the builder keeps of each value whose container is still open. */
typedef struct pending {
    qn_json value;
    qn_str key;
    size_t key_offset;
} pending;

typedef struct builder {
    qn_json_reader reader;
    qn_json_doc *doc;
    pending *stack;
    size_t count, capacity;
    size_t open[QN_JSON_MAX_DEPTH]; /* stack positions of open containers */
    int depth;
    qn_str key; /* of the value that comes next */
    size_t key_offset;
    size_t values, max_values;
} builder;

static qn_status push(builder *b, qn_json_type type)
{
    if (b->values++ == b->max_values)
        return qn_fail(QN_E_FORMAT,
                       "JSON byte %zu: expected at most %zu values, found more",
                       b->reader.offset, b->max_values);
    if (b->count == b->capacity) {
        size_t capacity = b->capacity ? b->capacity * 2 : 32;
        pending *stack = qn_reallocarray(b->stack, capacity, sizeof *stack);
        if (!stack)
            return QN_E_NOMEM;
        b->stack = stack;
        b->capacity = capacity;
    }
    size_t offset = b->reader.offset;
    pending *p = &b->stack[b->count++];
    p->key = b->key;
    p->key_offset = b->key_offset;
    p->value = (qn_json){
        .type = type,
        .offset = offset > UINT32_MAX ? UINT32_MAX : (uint32_t)offset,
    };
    return QN_OK;
}

static qn_status push_text(builder *b, qn_json_type type)
{
    qn_status status = push(b, type);
    if (status)
        return status;
    qn_str *out = &b->stack[b->count - 1].value.text;
    return qn_arena_copy(&b->doc->arena, out, b->reader.text) ? QN_OK
                                                              : QN_E_NOMEM;
}

static bool fits(qn_str spelling)
{
    int64_t integer;
    double number;
    for (size_t i = 0; i < spelling.size; i++)
        if (spelling.data[i] == '.' || (spelling.data[i] | 0x20) == 'e')
            return qn_json_double(spelling, &number);
    return qn_json_int64(spelling, &integer);
}

static qn_status push_number(builder *b)
{
    if (b->reader.flags & QN_JSON_NUMBERS_FIT && !fits(b->reader.text))
        return qn_fail(QN_E_FORMAT,
                       "JSON byte %zu: expected a number within the range of "
                       "64-bit integers or doubles, found one beyond it",
                       b->reader.offset);
    return push_text(b, QN_JSON_T_NUMBER);
}

/* Appends a child, or deals with its key being there already. */
static qn_status append_pending(builder *b, qn_json *object, const pending *p)
{
    uint32_t i = find_key(object, p->key);
    if (i == UINT32_MAX) {
        append(object, p->key, &p->value);
        return QN_OK;
    }
    if (b->reader.flags & QN_JSON_ALLOW_DUPLICATE_KEYS) {
        object->items[i] = p->value;
        return QN_OK;
    }
    qn_str shown = p->key;
    if (shown.size > 64) {
        shown.size = 64;
        shown.size -= qn_utf8_incomplete_tail(shown);
    }
    return qn_fail(QN_E_FORMAT,
                   "JSON byte %zu: expected distinct keys, found \"%.*s\" "
                   "again",
                   p->key_offset, (int)shown.size, shown.data);
}

/* Moves the children of the innermost open container into the arena. */
static qn_status close(builder *b)
{
    size_t at = b->open[--b->depth];
    const pending *children = b->stack + at + 1;
    size_t count = b->count - (at + 1);
    qn_json *container = &b->stack[at].value;
    b->count = at + 1;
    if (!count)
        return QN_OK;
    if (count > UINT32_MAX / 2)
        return qn_fail(QN_E_FORMAT,
                       "JSON byte %u: expected at most %u values in a "
                       "container, found %zu",
                       (unsigned)container->offset, (unsigned)UINT32_MAX / 2,
                       count);
    if (!make_room(&b->doc->arena, container, (uint32_t)count))
        return QN_E_NOMEM;
    qn_status status = QN_OK;
    for (size_t i = 0; i < count && !status; i++) {
        if (container->type == QN_JSON_T_OBJECT)
            status = append_pending(b, container, &children[i]);
        else
            append(container, (qn_str){0}, &children[i].value);
    }
    return status;
}

static qn_status take_event(builder *b, qn_json_event event)
{
    qn_status status;
    switch (event) {
    case QN_JSON_OBJECT_BEGIN:
    case QN_JSON_ARRAY_BEGIN:
        b->open[b->depth++] = b->count;
        return push(b, event == QN_JSON_ARRAY_BEGIN ? QN_JSON_T_ARRAY
                                                    : QN_JSON_T_OBJECT);
    case QN_JSON_OBJECT_END:
    case QN_JSON_ARRAY_END:
        return close(b);
    case QN_JSON_KEY:
        b->key_offset = b->reader.offset;
        return qn_arena_copy(&b->doc->arena, &b->key, b->reader.text)
                   ? QN_OK
                   : QN_E_NOMEM;
    case QN_JSON_STRING:
        return push_text(b, QN_JSON_T_STRING);
    case QN_JSON_NUMBER:
        return push_number(b);
    case QN_JSON_TRUE:
    case QN_JSON_FALSE:
        status = push(b, QN_JSON_T_BOOL);
        if (!status)
            b->stack[b->count - 1].value.boolean = event == QN_JSON_TRUE;
        return status;
    case QN_JSON_NULL:
        return push(b, QN_JSON_T_NULL);
    case QN_JSON_ERROR:
        return b->reader.status;
    case QN_JSON_END:
        break;
    }
    return QN_OK;
}

static qn_status build(builder *b)
{
    qn_json_event event;
    qn_status status;
    do {
        event = qn_json_next(&b->reader);
        status = take_event(b, event);
    } while (!status && event != QN_JSON_END);
    if (status)
        return status;
    qn_json *root = qn_arena_alloc(&b->doc->arena, sizeof *root);
    if (!root)
        return QN_E_NOMEM;
    *root = b->stack[0].value;
    b->doc->root = root;
    return QN_OK;
}

qn_status qn_json_parse(qn_json_doc **out, qn_str text, unsigned flags)
{
    return qn_json_parse_limited(out, text, flags, SIZE_MAX);
}

qn_status qn_json_parse_limited(qn_json_doc **out, qn_str text, unsigned flags,
                                size_t max_values)
{
    builder b = {.max_values = max_values};
    qn_status status = reader_init(&b.reader, text, flags, QN_JSON_MAX_DEPTH);
    if (!status) {
        b.doc = qn_json_doc_new();
        status = b.doc ? build(&b) : QN_E_NOMEM;
    }
    if (status)
        qn_json_doc_free(b.doc);
    else
        *out = b.doc;
    qn_free(b.stack);
    reader_done(&b.reader);
    return status;
}

void qn_json_doc_free(qn_json_doc *doc)
{
    if (!doc)
        return;
    qn_arena_free(&doc->arena);
    qn_free(doc);
}

const qn_json *qn_json_root(const qn_json_doc *doc)
{
    return doc->root;
}

const qn_json *qn_json_get(const qn_json *object, const char *key)
{
    return qn_json_get_str(object, qn_str_of(key));
}

const qn_json *qn_json_get_str(const qn_json *object, qn_str key)
{
    if (!object || object->type != QN_JSON_T_OBJECT)
        return NULL;
    uint32_t i = find_key(object, key);
    return i == UINT32_MAX ? NULL : &object->items[i];
}

const qn_json *qn_json_at(const qn_json *array, size_t index)
{
    if (!array || array->type != QN_JSON_T_ARRAY || index >= array->count)
        return NULL;
    return &array->items[index];
}

bool qn_json_as_int(const qn_json *value, int64_t *out)
{
    return value && value->type == QN_JSON_T_NUMBER &&
           qn_json_int64(value->text, out);
}

bool qn_json_as_double(const qn_json *value, double *out)
{
    return value && value->type == QN_JSON_T_NUMBER &&
           qn_json_double(value->text, out);
}

bool qn_json_as_bool(const qn_json *value, bool *out)
{
    if (!value || value->type != QN_JSON_T_BOOL)
        return false;
    *out = value->boolean;
    return true;
}

bool qn_json_as_str(const qn_json *value, qn_str *out)
{
    if (!value || value->type != QN_JSON_T_STRING)
        return false;
    *out = value->text;
    return true;
}

const char *qn_json_type_name(qn_json_type type)
{
    switch (type) {
    case QN_JSON_T_NULL:
        return "null";
    case QN_JSON_T_BOOL:
        return "boolean";
    case QN_JSON_T_NUMBER:
        return "number";
    case QN_JSON_T_STRING:
        return "string";
    case QN_JSON_T_ARRAY:
        return "array";
    case QN_JSON_T_OBJECT:
        return "object";
    }
    return "unknown";
}

/* ---- building trees by hand ---- */

qn_json_doc *qn_json_doc_new(void)
{
    qn_json_doc *doc = qn_calloc(1, sizeof *doc);
    if (doc)
        doc->root = &doc->null;
    return doc;
}

void qn_json_doc_set_root(qn_json_doc *doc, const qn_json *root)
{
    doc->root = root;
}

static qn_json *new_value(qn_json_doc *doc, qn_json_type type)
{
    qn_json *value = qn_arena_alloc(&doc->arena, sizeof *value);
    if (value)
        *value = (qn_json){.type = type};
    return value;
}

static qn_json *new_text(qn_json_doc *doc, qn_json_type type, qn_str text)
{
    qn_json *value = new_value(doc, type);
    return value && qn_arena_copy(&doc->arena, &value->text, text) ? value
                                                                   : NULL;
}

qn_json *qn_json_new_null(qn_json_doc *doc)
{
    return new_value(doc, QN_JSON_T_NULL);
}

qn_json *qn_json_new_bool(qn_json_doc *doc, bool boolean)
{
    qn_json *value = new_value(doc, QN_JSON_T_BOOL);
    if (value)
        value->boolean = boolean;
    return value;
}

qn_json *qn_json_new_int(qn_json_doc *doc, int64_t number)
{
    char text[24];
    int size = snprintf(text, sizeof text, "%" PRId64, number);
    return new_text(doc, QN_JSON_T_NUMBER, (qn_str){text, (size_t)size});
}

/* Writes the shortest of the usual spellings of a finite number that reads
 * back equal; returns its size. */
static size_t spell_double(char text[32], double value)
{
    /* 17 digits always do.  Subnormal numbers have few significant digits,
     * others nearly always need at least 15. */
    int digits = fabs(value) < DBL_MIN ? 1 : 15, size = 0;
    locale_t before = enter_c_locale();
    for (; digits <= 17; digits++) {
        size = snprintf(text, 32, "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            break;
    }
    uselocale(before);
    return (size_t)size;
}

qn_json *qn_json_new_double(qn_json_doc *doc, double number)
{
    char text[32];
    if (!isfinite(number))
        return new_value(doc, QN_JSON_T_NULL);
    size_t size = spell_double(text, number);
    return new_text(doc, QN_JSON_T_NUMBER, (qn_str){text, size});
}

qn_json *qn_json_new_str(qn_json_doc *doc, qn_str text)
{
    return new_text(doc, QN_JSON_T_STRING, text);
}

qn_json *qn_json_new_array(qn_json_doc *doc)
{
    return new_value(doc, QN_JSON_T_ARRAY);
}

qn_json *qn_json_new_object(qn_json_doc *doc)
{
    return new_value(doc, QN_JSON_T_OBJECT);
}

/* Makes room for one more child that no other value sees: storage that a copy
 * has appended to is left to the copy. */
static qn_status reserve(qn_json_doc *doc, qn_json *container)
{
    const head *h = head_of(container);
    if (h && h->used == container->count && h->used < h->capacity)
        return QN_OK;
    if (container->count >= UINT32_MAX / 4)
        return qn_fail(QN_E_NOMEM, "out of memory: %u values in a container",
                       (unsigned)container->count);
    qn_json larger = *container;
    larger.count = 0;
    uint32_t capacity = container->count < 4 ? 4 : container->count * 2;
    if (!make_room(&doc->arena, &larger, capacity))
        return QN_E_NOMEM;
    for (uint32_t i = 0; i < container->count; i++)
        append(&larger, container->keys ? container->keys[i] : (qn_str){0},
               &container->items[i]);
    *container = larger;
    return QN_OK;
}

qn_status qn_json_push(qn_json_doc *doc, qn_json *array, const qn_json *value)
{
    if (!array || !value)
        return QN_E_NOMEM;
    assert(array->type == QN_JSON_T_ARRAY);
    qn_json copy = *value; /* may lie in the array itself */
    qn_status status = reserve(doc, array);
    if (!status)
        append(array, (qn_str){0}, &copy);
    return status;
}

qn_status qn_json_set(qn_json_doc *doc, qn_json *object, qn_str key,
                      const qn_json *value)
{
    if (!object || !value)
        return QN_E_NOMEM;
    assert(object->type == QN_JSON_T_OBJECT);
    uint32_t i = find_key(object, key);
    if (i != UINT32_MAX) {
        object->items[i] = *value;
        return QN_OK;
    }
    qn_json copy = *value;
    qn_str own;
    qn_status status = reserve(doc, object);
    if (!status && !qn_arena_copy(&doc->arena, &own, key))
        status = QN_E_NOMEM;
    if (!status)
        append(object, own, &copy);
    return status;
}

/* ---- writer ---- */

void qn_json_quote(qn_buf *out, qn_str text)
{
    const uint8_t *p = (const uint8_t *)text.data;
    const char *end = text.data + text.size;
    size_t from = 0, i = 0; /* [from, i): not yet written */
    qn_buf_add_char(out, '"');
    while (i < text.size) {
        i = plain_end(p, i, text.size);
        if (i == text.size)
            break;
        uint8_t c = p[i];
        uint32_t code;
        int length = qn_utf8_decode(text.data + i, end, &code);
        if (length > 1) {
            i += (size_t)length;
            continue;
        }
        qn_buf_add(out, p + from, i - from);
        if (!length) {
            qn_buf_add_code(out, 0xfffd);
            length = qn_utf8_bad_length(text.data + i, end);
        } else if (c == '"' || c == '\\') {
            qn_buf_add_char(out, '\\');
            qn_buf_add_char(out, (char)c);
        } else if (c >= '\b' && c <= '\r' && c != '\v') {
            qn_buf_add_char(out, '\\');
            qn_buf_add_char(out, "btn.fr"[c - '\b']);
        } else {
            qn_buf_printf(out, "\\u%04x", (unsigned)c);
        }
        i += (size_t)length;
        from = i;
    }
    qn_buf_add(out, p + from, i - from);
    qn_buf_add_char(out, '"');
}

void qn_json_write_begin(qn_json_writer *w, qn_buf *out)
{
    *w = (qn_json_writer){.out = out};
}

/* The comma before a value or key, where one is due. */
static void separate(qn_json_writer *w)
{
    if (w->comma && !w->after_key)
        qn_buf_add_char(w->out, ',');
    w->comma = true;
    w->after_key = false;
}

static void begin(qn_json_writer *w, char bracket)
{
    separate(w);
    qn_buf_add_char(w->out, bracket);
    w->depth++;
    w->comma = false;
}

static void end(qn_json_writer *w, char bracket)
{
    assert(w->depth > 0 && !w->after_key);
    qn_buf_add_char(w->out, bracket);
    w->depth--;
    w->comma = true;
}

void qn_json_write_object(qn_json_writer *w)
{
    begin(w, '{');
}

void qn_json_write_object_end(qn_json_writer *w)
{
    end(w, '}');
}

void qn_json_write_array(qn_json_writer *w)
{
    begin(w, '[');
}

void qn_json_write_array_end(qn_json_writer *w)
{
    end(w, ']');
}

void qn_json_write_key_str(qn_json_writer *w, qn_str key)
{
    assert(w->depth > 0 && !w->after_key);
    separate(w);
    qn_json_quote(w->out, key);
    qn_buf_add_char(w->out, ':');
    w->after_key = true;
}

void qn_json_write_key(qn_json_writer *w, const char *key)
{
    qn_json_write_key_str(w, qn_str_of(key));
}

void qn_json_write_str(qn_json_writer *w, qn_str text)
{
    separate(w);
    qn_json_quote(w->out, text);
}

void qn_json_write_text(qn_json_writer *w, const char *text)
{
    if (text)
        qn_json_write_str(w, qn_str_of(text));
    else
        qn_json_write_null(w);
}

void qn_json_write_raw(qn_json_writer *w, qn_str text)
{
    separate(w);
    qn_buf_add_str(w->out, text);
}

void qn_json_write_int(qn_json_writer *w, int64_t value)
{
    separate(w);
    qn_buf_printf(w->out, "%" PRId64, value);
}

void qn_json_write_uint(qn_json_writer *w, uint64_t value)
{
    separate(w);
    qn_buf_printf(w->out, "%" PRIu64, value);
}

void qn_json_write_double(qn_json_writer *w, double value)
{
    char text[32];
    if (isfinite(value))
        qn_json_write_raw(w, (qn_str){text, spell_double(text, value)});
    else
        qn_json_write_null(w);
}

void qn_json_write_bool(qn_json_writer *w, bool value)
{
    qn_json_write_raw(w, value ? QN_STR("true") : QN_STR("false"));
}

void qn_json_write_null(qn_json_writer *w)
{
    qn_json_write_raw(w, QN_STR("null"));
}

void qn_json_pair_text(qn_json_writer *w, const char *key, const char *text)
{
    qn_json_write_key(w, key);
    qn_json_write_text(w, text);
}

void qn_json_pair_int(qn_json_writer *w, const char *key, int64_t value)
{
    qn_json_write_key(w, key);
    qn_json_write_int(w, value);
}

void qn_json_pair_uint(qn_json_writer *w, const char *key, uint64_t value)
{
    qn_json_write_key(w, key);
    qn_json_write_uint(w, value);
}

void qn_json_pair_double(qn_json_writer *w, const char *key, double value)
{
    qn_json_write_key(w, key);
    qn_json_write_double(w, value);
}

void qn_json_pair_bool(qn_json_writer *w, const char *key, bool value)
{
    qn_json_write_key(w, key);
    qn_json_write_bool(w, value);
}

/* Writes a scalar, or opens a container. */
static void write_front(qn_json_writer *w, const qn_json *value)
{
    switch (value->type) {
    case QN_JSON_T_NULL:
        qn_json_write_null(w);
        break;
    case QN_JSON_T_BOOL:
        qn_json_write_bool(w, value->boolean);
        break;
    case QN_JSON_T_NUMBER:
        qn_json_write_raw(w, value->text);
        break;
    case QN_JSON_T_STRING:
        qn_json_write_str(w, value->text);
        break;
    case QN_JSON_T_ARRAY:
        qn_json_write_array(w);
        break;
    case QN_JSON_T_OBJECT:
        qn_json_write_object(w);
        break;
    }
}

/* Trees made by hand may be deeper than any parsed one: the open containers
 * stand in a buffer, not on the call stack. */
void qn_json_write_value(qn_json_writer *w, const qn_json *value)
{
    typedef struct frame {
        const qn_json *container;
        uint32_t next;
    } frame;
    qn_buf frames = QN_BUF_INIT;
    for (;;) {
        write_front(w, value);
        if (value->type >= QN_JSON_T_ARRAY) {
            frame f = {.container = value};
            qn_buf_add(&frames, &f, sizeof f);
        }
        for (;;) {
            if (frames.failed)
                w->out->failed = true;
            if (frames.failed || !frames.size) {
                qn_buf_free(&frames);
                return;
            }
            frame f;
            char *top = frames.data + frames.size - sizeof f;
            memcpy(&f, top, sizeof f);
            if (f.next < f.container->count) {
                if (f.container->type == QN_JSON_T_OBJECT)
                    qn_json_write_key_str(w, f.container->keys[f.next]);
                value = &f.container->items[f.next++];
                memcpy(top, &f, sizeof f);
                break;
            }
            qn_buf_truncate(&frames, frames.size - sizeof f);
            if (f.container->type == QN_JSON_T_OBJECT)
                qn_json_write_object_end(w);
            else
                qn_json_write_array_end(w);
        }
    }
}
