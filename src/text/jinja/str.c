/* str.c: strings with origin, and the builder that makes them. */
#include "str.h"

#include "base/utf8.h"
#include "run.h"

const qn_jstr qn_jstr_empty = {.data = ""};

size_t qn_jstr_count(qn_str text)
{
    size_t count = 0;
    for (size_t i = 0; i < text.size; i++)
        count += ((unsigned char)text.data[i] & 0xc0) != 0x80;
    return count;
}

const qn_jstr *qn_jstr_make(qn_jrun *run, qn_str text, bool tainted)
{
    if (!text.size || !qn_jrun_bytes(run, text.size))
        return &qn_jstr_empty;
    if (text.size > UINT32_MAX / 2) {
        qn_jrun_unsupported(run, "a text of %zu bytes", text.size);
        return &qn_jstr_empty;
    }
    qn_jstr *str =
        qn_jrun_alloc(run, sizeof *str + (tainted ? sizeof(qn_jspan) : 0));
    if (!str)
        return &qn_jstr_empty;
    *str = (qn_jstr){.data = text.data,
                     .size = (uint32_t)text.size,
                     .chars = (uint32_t)qn_jstr_count(text)};
    if (tainted) {
        qn_jspan *span = (qn_jspan *)(str + 1);
        *span = (qn_jspan){0, str->size};
        str->spans = span;
        str->span_count = 1;
    }
    return str;
}

const qn_jstr *qn_jstr_text(qn_jrun *run, const char *text)
{
    return qn_jstr_make(run, qn_str_of(text), false);
}

const qn_jstr *qn_jstr_plain(qn_jrun *run, const qn_jstr *str)
{
    qn_jstr *plain = str->markup ? qn_jrun_alloc(run, sizeof *plain) : NULL;
    if (!plain)
        return str;
    *plain = *str;
    plain->markup = false;
    return plain;
}

/* The first span that ends behind `offset`; span_count when there is none. */
static uint32_t span_at(const qn_jstr *str, size_t offset)
{
    uint32_t low = 0, high = str->span_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (str->spans[middle].to <= offset)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

bool qn_jstr_tainted_at(const qn_jstr *str, size_t offset)
{
    if (!str->span_count)
        return false;
    uint32_t i = span_at(str, offset);
    return i < str->span_count && str->spans[i].from <= offset;
}

const qn_jstr *qn_jstr_sub(qn_jrun *run, const qn_jstr *str, size_t from,
                           size_t to)
{
    if (from == 0 && to == str->size)
        return str;
    uint32_t first = span_at(str, from), count = 0;
    while (first + count < str->span_count &&
           str->spans[first + count].from < to)
        count++;
    qn_jstr *sub = qn_jrun_alloc(run, sizeof *sub);
    qn_jspan *spans = count ? qn_jrun_array(run, count, sizeof *spans) : NULL;
    if (!sub || (count && !spans) || !qn_jrun_bytes(run, to - from))
        return &qn_jstr_empty;
    for (uint32_t i = 0; i < count; i++) {
        qn_jspan s = str->spans[first + i];
        spans[i].from = (uint32_t)(s.from > from ? s.from - from : 0);
        spans[i].to = (uint32_t)((s.to < to ? s.to : to) - from);
    }
    *sub = (qn_jstr){.data = str->data + from,
                     .size = (uint32_t)(to - from),
                     .spans = spans,
                     .span_count = count,
                     .markup = str->markup};
    sub->chars = str->chars == str->size
                     ? sub->size
                     : (uint32_t)qn_jstr_count(qn_jstr_str(sub));
    return sub;
}

static bool starts_character(char c)
{
    return ((unsigned char)c & 0xc0) != 0x80;
}

size_t qn_jstr_offset(const qn_jstr *str, size_t index)
{
    if (str->chars == str->size)
        return index;
    size_t at = 0;
    for (; at < str->size; at++)
        if (starts_character(str->data[at]) && index-- == 0)
            break;
    return at;
}

size_t qn_jstr_index(const qn_jstr *str, size_t offset)
{
    if (str->chars == str->size)
        return offset;
    return qn_jstr_count((qn_str){str->data, offset});
}

size_t qn_jstr_find(qn_str text, qn_str needle, size_t from)
{
    if (from > text.size || needle.size > text.size - from)
        return SIZE_MAX;
    if (!needle.size)
        return from;
    /* In windows that grow, so that the cost is that of the distance even
     * where memmem looks at all of its input first. */
    for (size_t window = needle.size + 64; text.size - from >= needle.size;
         window *= 2) {
        size_t size = text.size - from < window ? text.size - from : window;
        const char *at =
            memmem(text.data + from, size, needle.data, needle.size);
        if (at)
            return (size_t)(at - text.data);
        from += size - needle.size + 1;
    }
    return SIZE_MAX;
}

uint32_t qn_jstr_next(qn_str text, size_t *offset)
{
    uint32_t code;
    int n = qn_utf8_decode(text.data + *offset, text.data + text.size, &code);
    if (n <= 0) { /* only in trees built by hand */
        n = 1;
        code = 0xfffd;
    }
    *offset += (size_t)n;
    return code;
}

uint32_t qn_jstr_before(qn_str text, size_t *offset)
{
    do {
        --*offset;
    } while (*offset > 0 && !starts_character(text.data[*offset]));
    size_t at = *offset;
    return qn_jstr_next(text, &at);
}

/* ---- the builder ---- */

void qn_jbuild_reserve(qn_jbuild *b, size_t more)
{
    if (more <= b->capacity - b->size)
        return;
    if (more > QN_JSTR_LIMIT - b->size) {
        qn_jrun_fail(b->run, "a text longer than %d MiB", QN_JSTR_LIMIT >> 20);
        return;
    }
    size_t capacity =
        b->capacity < QN_JSTR_LIMIT / 2 ? b->capacity * 2 : QN_JSTR_LIMIT;
    if (capacity < b->size + more)
        capacity = b->size + more;
    char *data = qn_jrun_alloc(b->run, capacity);
    if (!data)
        return;
    if (b->size)
        memcpy(data, b->data, b->size);
    b->data = data;
    b->capacity = capacity;
}

/* Marks the last `size` bytes as tainted. */
static void taint_tail(qn_jbuild *b, size_t from, size_t to)
{
    if (b->span_count && b->spans[b->span_count - 1].to == from) {
        b->spans[b->span_count - 1].to = (uint32_t)to;
        return;
    }
    if (b->span_count == b->span_capacity) {
        uint32_t capacity = b->span_capacity ? b->span_capacity * 2 : 4;
        qn_jspan *spans = qn_jrun_array(b->run, capacity, sizeof *spans);
        if (!spans)
            return;
        if (b->span_count)
            memcpy(spans, b->spans, b->span_count * sizeof *spans);
        b->spans = spans;
        b->span_capacity = capacity;
    }
    b->spans[b->span_count++] = (qn_jspan){(uint32_t)from, (uint32_t)to};
}

void qn_jbuild_add(qn_jbuild *b, qn_str text, bool tainted)
{
    if (!text.size || !qn_jrun_ok(b->run))
        return;
    if (text.size > b->capacity - b->size) {
        qn_jbuild_reserve(b, text.size < 48 ? 48 : text.size);
        if (text.size > b->capacity - b->size)
            return;
    }
    memcpy(b->data + b->size, text.data, text.size);
    b->size += text.size;
    if (tainted)
        taint_tail(b, b->size - text.size, b->size);
}

void qn_jbuild_text(qn_jbuild *b, const char *text, bool tainted)
{
    qn_jbuild_add(b, qn_str_of(text), tainted);
}

void qn_jbuild_code(qn_jbuild *b, uint32_t code, bool tainted)
{
    char utf8[4];
    int n = qn_utf8_encode(code, utf8);
    qn_jbuild_add(b, (qn_str){utf8, (size_t)n}, tainted);
}

void qn_jbuild_slice(qn_jbuild *b, const qn_jstr *str, size_t from, size_t to)
{
    size_t base = b->size;
    qn_jbuild_add(b, (qn_str){str->data + from, to - from}, false);
    if (!str->span_count || b->size != base + (to - from))
        return;
    for (uint32_t i = span_at(str, from);
         i < str->span_count && str->spans[i].from < to; i++) {
        qn_jspan s = str->spans[i];
        size_t start = s.from > from ? s.from : from;
        size_t end = s.to < to ? s.to : to;
        if (start < end)
            taint_tail(b, base + start - from, base + end - from);
    }
}

void qn_jbuild_str(qn_jbuild *b, const qn_jstr *str)
{
    qn_jbuild_slice(b, str, 0, str->size);
}

void qn_jbuild_escaped(qn_jbuild *b, const qn_jstr *str)
{
    if (str->markup) {
        qn_jbuild_str(b, str);
        return;
    }
    static const char special[] = "&<>'\"";
    static const char *const entities[] = {"&amp;", "&lt;", "&gt;", "&#39;",
                                           "&#34;"};
    size_t done = 0;
    for (size_t i = 0; i < str->size; i++) {
        char c = str->data[i];
        const char *found = c ? strchr(special, c) : NULL;
        if (!found)
            continue;
        qn_jbuild_slice(b, str, done, i);
        qn_jbuild_text(b, entities[found - special],
                       qn_jstr_tainted_at(str, i));
        done = i + 1;
    }
    qn_jbuild_slice(b, str, done, str->size);
}

const qn_jstr *qn_jbuild_done(qn_jbuild *b)
{
    if (!b->size && !b->markup)
        return &qn_jstr_empty;
    qn_jstr *str = qn_jrun_alloc(b->run, sizeof *str);
    if (!str || !qn_jrun_bytes(b->run, b->size))
        return &qn_jstr_empty;
    *str = (qn_jstr){.data = b->size ? b->data : "",
                     .size = (uint32_t)b->size,
                     .spans = b->spans,
                     .span_count = b->span_count,
                     .markup = b->markup};
    str->chars = (uint32_t)qn_jstr_count(qn_jstr_str(str));
    return str;
}
