/* reply.c: see reply.h. */
#include "reply.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

static bool read_number(const char *text, size_t size, uint64_t *out)
{
    uint64_t value = 0;
    if (!size || size > 19)
        return false;
    for (size_t i = 0; i < size; i++) {
        if (!isdigit((unsigned char)text[i]))
            return false;
        value = value * 10 + (uint64_t)(text[i] - '0');
    }
    *out = value;
    return true;
}

/* "bytes 100-199/200", with * for a total that is not known. */
static void read_range(qn_reply *r, const char *text, size_t size)
{
    char value[96];
    uint64_t last;
    if (size >= sizeof value || size < 6 || memcmp(text, "bytes ", 6) != 0)
        return;
    memcpy(value, text + 6, size - 6);
    value[size - 6] = '\0';
    char *dash = strchr(value, '-'), *slash = strchr(value, '/');
    if (!dash || !slash || slash < dash)
        return;
    r->has_range = read_number(value, (size_t)(dash - value), &r->from) &&
                   read_number(dash + 1, (size_t)(slash - dash - 1), &last);
    r->has_total = read_number(slash + 1, strlen(slash + 1), &r->total);
}

static void read_etag(char *out, size_t room, const char *text, size_t size)
{
    if (size > 2 && text[0] == 'W' && text[1] == '/') {
        text += 2;
        size -= 2;
    }
    if (size > 1 && text[0] == '"' && text[size - 1] == '"') {
        text++;
        size -= 2;
    }
    if (size >= room)
        return;
    memcpy(out, text, size);
    out[size] = '\0';
}

/* Of a list of links, the one called next. */
static void read_next(qn_reply *r, const char *text, size_t size)
{
    char value[2048];
    if (size >= sizeof value)
        return;
    memcpy(value, text, size);
    value[size] = '\0';
    char *rel = strstr(value, "rel=\"next\"");
    if (!rel)
        return;
    *rel = '\0';
    char *begin = strrchr(value, '<'), *end = begin ? strchr(begin, '>') : NULL;
    if (!end || (size_t)(end - begin) >= sizeof r->next)
        return;
    *end = '\0';
    strcpy(r->next, begin + 1);
}

static void copy(char *out, size_t room, const char *text, size_t size)
{
    size = size < room - 1 ? size : room - 1;
    memcpy(out, text, size);
    out[size] = '\0';
}

static void read_header(qn_reply *r, const char *name, size_t name_size,
                        const char *text, size_t size)
{
#define IS(word)                                                               \
    (name_size == sizeof word - 1 && !strncasecmp(name, word, name_size))
    if (IS("Content-Length"))
        r->has_length = read_number(text, size, &r->length);
    else if (IS("Content-Range"))
        read_range(r, text, size);
    else if (IS("ETag"))
        read_etag(r->etag, sizeof r->etag, text, size);
    else if (IS("X-Linked-Etag") && !r->linked_etag[0])
        read_etag(r->linked_etag, sizeof r->linked_etag, text, size);
    else if (IS("X-Linked-Size") && !r->has_linked_size)
        r->has_linked_size = read_number(text, size, &r->linked_size);
    else if (IS("X-Error-Code"))
        copy(r->error_code, sizeof r->error_code, text, size);
    else if (IS("Link"))
        read_next(r, text, size);
    else if (IS("Location"))
        copy(r->location, sizeof r->location, text, size);
#undef IS
}

/* "HTTP/1.1 200 OK"; 0 for what is no code of three digits. */
static int read_code(const char *line)
{
    const char *p = strchr(line, ' ');
    int code = 0;
    if (!p)
        return 0;
    for (int i = 1; i <= 3; i++) {
        if (!isdigit((unsigned char)p[i]))
            return 0;
        code = 10 * code + (p[i] - '0');
    }
    return isdigit((unsigned char)p[4]) ? 0 : code;
}

static void begin_answer(qn_reply *r, const char *line)
{
    r->code = read_code(line);
    r->has_length = r->has_range = r->has_total = false;
    r->etag[0] = r->next[0] = r->error_code[0] = r->location[0] = '\0';
}

void qn_reply_line(qn_reply *r, const char *line, size_t size)
{
    while (size && isspace((unsigned char)line[size - 1]))
        size--;
    if (size > 5 && !memcmp(line, "HTTP/", 5)) {
        char first[64];
        copy(first, sizeof first, line, size);
        begin_answer(r, first);
        return;
    }
    const char *end = line + size, *colon = memchr(line, ':', size);
    if (!colon)
        return;
    const char *text = colon + 1;
    while (text < end && isspace((unsigned char)*text))
        text++;
    read_header(r, line, (size_t)(colon - line), text, (size_t)(end - text));
}
