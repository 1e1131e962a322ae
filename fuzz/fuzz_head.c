/* fuzz_head.c: heads of HTTP requests, as far as quern serve reads them.
 *
 * The first line is a target, each further one a header.  What passes has one
 * way to say where its body ends; a Host that passes has no port left that
 * could hide another name. */
#include "fuzz.h"

#include "server/access.h"
#include "server/head.h"
#include "server/route.h"

static const char *const hosts[] = {"box.lan", NULL};
static const char *const origins[] = {"http://app.example", NULL};

static qn_str next_line(const char **at, const char *end)
{
    const char *start = *at;
    const char *stop = memchr(start, '\n', (size_t)(end - start));
    *at = stop ? stop + 1 : end;
    return (qn_str){start, (size_t)((stop ? stop : end) - start)};
}

static void read_headers(qn_head *head, const char *at, const char *end)
{
    while (at < end) {
        qn_str line = next_line(&at, end);
        const char *colon =
            line.size ? memchr(line.data, ':', line.size) : NULL;
        size_t n = colon ? (size_t)(colon - line.data) : line.size;
        qn_head_add(head, (qn_str){line.data, n},
                    colon ? (qn_str){colon + 1, line.size - n - 1}
                          : (qn_str){"", 0});
    }
}

static void check_framing(const qn_head *head)
{
    qn_api_error error;
    qn_framing framing;
    if (!qn_head_check(head, &framing, &error)) {
        FUZZ_CHECK(qn_api_code_status(error.code, QN_API_OPENAI) >= 400);
        return;
    }
    FUZZ_CHECK(!(framing.chunked && framing.has_length));
    FUZZ_CHECK(head->count <= QN_MAX_HEADERS && !head->too_large);
    for (size_t i = 0; i < head->count; i++) {
        qn_str value = head->headers[i].value;
        FUZZ_CHECK(!value.size || !memchr(value.data, '\r', value.size));
        FUZZ_CHECK(!value.size || !memchr(value.data, '\0', value.size));
    }
}

static void check_places(const qn_head *head)
{
    qn_str host = {"", 0}, origin;
    if (qn_head_get(head, "host", &host) && qn_host_allowed(host, hosts))
        FUZZ_CHECK(host.size);
    if (qn_head_get(head, "origin", &origin) &&
        qn_origin_allowed(origin, host, origins))
        FUZZ_CHECK(origin.size > 7);
}

static void check_target(const qn_head *head)
{
    qn_str id;
    qn_buf allow = QN_BUF_INIT, value = QN_BUF_INIT;
    const qn_route *route =
        qn_route_find(QN_STR("GET"), head->path, &id, &allow);
    if (route)
        FUZZ_CHECK(!id.size || !memchr(id.data, '/', id.size));
    (void)qn_route_style(head->path);
    (void)qn_query_get(head->query, "context", &value);
    qn_buf_clear(&value);
    qn_percent_decode(&value, head->path);
    FUZZ_CHECK(value.size <= head->path.size);
    qn_buf_free(&allow);
    qn_buf_free(&value);
}

/* Whatever a client says, its line in the log is one line. */
static void check_log(const char *text)
{
    qn_buf out = QN_BUF_INIT;
    const qn_access_line line = {.request_id = text, .peer = text};
    qn_access_format(&out, &line, false);
    FUZZ_CHECK(memchr(out.data, '\n', out.size) == out.data + out.size - 1);
    qn_buf_clear(&out);
    qn_access_format(&out, &line, true);
    FUZZ_CHECK(memchr(out.data, '\n', out.size) == out.data + out.size - 1);
    qn_buf_free(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    qn_buf text = QN_BUF_INIT;
    qn_buf_add(&text, data, size);
    qn_str all = qn_buf_str(&text);
    const char *at = all.data, *end = all.data + all.size;
    qn_head head = {.method = QN_STR("POST")};
    qn_head_target(&head, next_line(&at, end));
    read_headers(&head, at, end);
    check_framing(&head);
    check_places(&head);
    check_target(&head);
    check_log(all.data);
    qn_buf_free(&text);
    return 0;
}
