/* head.c: see head.h. */
#include "head.h"

#include <string.h>
#include <strings.h>

void qn_head_target(qn_head *head, qn_str target)
{
    const char *mark = memchr(target.data, '?', target.size);
    size_t size = mark ? (size_t)(mark - target.data) : target.size;
    head->path = (qn_str){target.data, size};
    head->query =
        mark ? (qn_str){mark + 1, target.size - size - 1} : (qn_str){"", 0};
}

void qn_head_add(qn_head *head, qn_str name, qn_str value)
{
    if (head->count == QN_MAX_HEADERS) {
        head->too_large = true;
        return;
    }
    head->headers[head->count++] = (qn_header){name, value};
}

static bool is_named(qn_str name, const char *expected)
{
    return name.size == strlen(expected) &&
           !strncasecmp(name.data, expected, name.size);
}

bool qn_head_get(const qn_head *head, const char *name, qn_str *value)
{
    for (size_t i = 0; i < head->count; i++)
        if (is_named(head->headers[i].name, name)) {
            *value = head->headers[i].value;
            return true;
        }
    return false;
}

/* ---- framing ---- */

/* RFC 9110: what a header's name is made of. */
static bool is_token(qn_str text)
{
    static const char others[] = "!#$%&'*+-.^_`|~";
    for (size_t i = 0; i < text.size; i++) {
        char c = text.data[i];
        bool word = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                    (c >= '0' && c <= '9');
        if (!word && (!c || !strchr(others, c)))
            return false;
    }
    return text.size > 0;
}

static bool is_value(qn_str text)
{
    for (size_t i = 0; i < text.size; i++) {
        unsigned char c = (unsigned char)text.data[i];
        if ((c < ' ' && c != '\t') || c == 0x7f)
            return false;
    }
    return true;
}

/* A number that is too large for 64 bits is the largest one: also that is more
 * than any server takes. */
static bool read_length(qn_str text, uint64_t *out)
{
    uint64_t length = 0;
    for (size_t i = 0; i < text.size; i++) {
        if (text.data[i] < '0' || text.data[i] > '9')
            return false;
        uint64_t digit = (uint64_t)(text.data[i] - '0');
        length = length > (UINT64_MAX - digit) / 10 ? UINT64_MAX
                                                    : length * 10 + digit;
    }
    *out = length;
    return text.size > 0;
}

static bool take_length(qn_framing *framing, qn_str value, qn_api_error *error)
{
    uint64_t length;
    if (!read_length(value, &length))
        return qn_api_fail(error, QN_API_BAD_REQUEST, NULL,
                           "Content-Length is not a number");
    if (framing->has_length && framing->length != length)
        return qn_api_fail(error, QN_API_BAD_REQUEST, NULL,
                           "two values of Content-Length differ");
    framing->has_length = true;
    framing->length = length;
    return true;
}

static bool take_encoding(qn_framing *framing, qn_str value,
                          qn_api_error *error)
{
    if (framing->chunked || !is_named(value, "chunked"))
        return qn_api_fail(error, QN_API_NOT_SUPPORTED, NULL,
                           "the only transfer encoding is chunked");
    framing->chunked = true;
    return true;
}

static bool take_header(qn_framing *framing, const qn_header *header,
                        qn_api_error *error)
{
    if (!is_token(header->name))
        return qn_api_fail(error, QN_API_BAD_REQUEST, NULL,
                           "a header's name has a character that none may "
                           "have");
    if (!is_value(header->value))
        return qn_api_fail(error, QN_API_BAD_REQUEST, NULL,
                           "a header's value has a control character");
    if (is_named(header->name, "content-length"))
        return take_length(framing, header->value, error);
    if (is_named(header->name, "transfer-encoding"))
        return take_encoding(framing, header->value, error);
    return true;
}

/* A target without spaces and control characters, and one Host, which HTTP/1.0
 * may leave out. */
static bool check_line(const qn_head *head, qn_api_error *error)
{
    const qn_str parts[] = {head->path, head->query};
    size_t hosts = 0;
    for (size_t i = 0; i < 2; i++)
        for (size_t k = 0; k < parts[i].size; k++)
            if ((unsigned char)parts[i].data[k] <= ' ' ||
                parts[i].data[k] == 0x7f)
                return qn_api_fail(error, QN_API_BAD_REQUEST, NULL,
                                   "the request's target has a space or a "
                                   "control character");
    for (size_t i = 0; i < head->count; i++)
        hosts += is_named(head->headers[i].name, "host");
    if (hosts > 1 || (!hosts && !head->http10))
        return qn_api_fail(error, QN_API_BAD_REQUEST, NULL,
                           "expected one Host header, found %zu", hosts);
    return true;
}

bool qn_head_check(const qn_head *head, qn_framing *framing,
                   qn_api_error *error)
{
    *framing = (qn_framing){0};
    size_t size = head->method.size + head->path.size + head->query.size;
    for (size_t i = 0; i < head->count; i++)
        size += head->headers[i].name.size + head->headers[i].value.size + 4;
    if (head->too_large || size > QN_MAX_HEAD_BYTES)
        return qn_api_fail(error, QN_API_HEADERS_TOO_LARGE, NULL,
                           "more than %d headers, or more than %d bytes of "
                           "them",
                           QN_MAX_HEADERS, QN_MAX_HEAD_BYTES);
    for (size_t i = 0; i < head->count; i++)
        if (!take_header(framing, &head->headers[i], error))
            return false;
    if (framing->chunked && framing->has_length)
        return qn_api_fail(error, QN_API_BAD_REQUEST, NULL,
                           "both Content-Length and Transfer-Encoding");
    return check_line(head, error);
}

/* ---- hosts and origins ---- */

/* "[::1]:8080" and "localhost:8080" without their ports. */
static qn_str without_port(qn_str host)
{
    if (host.size && host.data[0] == '[') {
        const char *end = memchr(host.data, ']', host.size);
        return end ? (qn_str){host.data + 1, (size_t)(end - host.data) - 1}
                   : host;
    }
    const char *colon = memchr(host.data, ':', host.size);
    return colon ? (qn_str){host.data, (size_t)(colon - host.data)} : host;
}

static bool is_loopback(qn_str host)
{
    if (is_named(host, "localhost") || qn_str_is(host, "::1"))
        return true;
    /* 127.a.b.c */
    int dots = 0, digits = 0;
    for (size_t i = 0; i < host.size; i++) {
        char c = host.data[i];
        if (c != '.' && (c < '0' || c > '9'))
            return false;
        dots += c == '.';
        digits = c == '.' ? 0 : digits + 1;
        if (digits > 3)
            return false;
    }
    return dots == 3 && digits && host.size > 4 &&
           !memcmp(host.data, "127.", 4);
}

bool qn_host_allowed(qn_str host, const char *const *hosts)
{
    qn_str name = without_port(host);
    if (is_loopback(name))
        return true;
    for (; *hosts; hosts++)
        if (is_named(name, *hosts))
            return true;
    return false;
}

bool qn_origin_allowed(qn_str origin, qn_str host, const char *const *origins)
{
    for (; *origins; origins++)
        if (!strcmp(*origins, "*") || qn_str_is(origin, *origins))
            return true;
    static const char *const schemes[] = {"http://", "https://"};
    for (size_t i = 0; i < 2; i++) {
        size_t skip = strlen(schemes[i]);
        if (origin.size > skip && !memcmp(origin.data, schemes[i], skip) &&
            origin.size - skip == host.size &&
            !strncasecmp(origin.data + skip, host.data, host.size))
            return true;
    }
    return false;
}

/* ---- queries ---- */

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static void decode(qn_buf *out, qn_str text, bool plus)
{
    for (size_t i = 0; i < text.size; i++) {
        char c = text.data[i];
        int high = -1, low = -1;
        if (c == '%' && i + 2 < text.size) {
            high = hex_digit(text.data[i + 1]);
            low = hex_digit(text.data[i + 2]);
        }
        if (high >= 0 && low >= 0) {
            c = (char)(high << 4 | low);
            i += 2;
        } else if (c == '+' && plus) {
            c = ' ';
        }
        qn_buf_add_char(out, c);
    }
}

void qn_percent_decode(qn_buf *out, qn_str text)
{
    decode(out, text, false);
}

bool qn_query_get(qn_str query, const char *name, qn_buf *value)
{
    qn_buf_clear(value);
    for (size_t at = 0; at < query.size;) {
        const char *start = query.data + at;
        size_t left = query.size - at;
        const char *end = memchr(start, '&', left);
        size_t size = end ? (size_t)(end - start) : left;
        const char *equals = memchr(start, '=', size);
        qn_str key = {start, equals ? (size_t)(equals - start) : size};
        if (qn_str_is(key, name)) {
            if (equals)
                decode(value, (qn_str){equals + 1, size - key.size - 1}, true);
            return true;
        }
        at += size + 1;
    }
    return false;
}
