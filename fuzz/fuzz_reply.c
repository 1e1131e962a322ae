/* fuzz_reply.c: heads of HTTP answers, line by line. */
#include "fuzz.h"

#include "hub/reply.h"

#include <string.h>

static void check(const qn_reply *r)
{
    FUZZ_CHECK(r->code >= 0 && r->code <= 999);
    FUZZ_CHECK(memchr(r->etag, 0, sizeof r->etag));
    FUZZ_CHECK(memchr(r->linked_etag, 0, sizeof r->linked_etag));
    FUZZ_CHECK(memchr(r->next, 0, sizeof r->next));
    FUZZ_CHECK(memchr(r->error_code, 0, sizeof r->error_code));
    FUZZ_CHECK(memchr(r->location, 0, sizeof r->location));
    FUZZ_CHECK(!strpbrk(r->next, "<>"));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    qn_reply reply = {0};
    for (size_t at = 0; at < size;) {
        const uint8_t *end = memchr(data + at, '\n', size - at);
        size_t n = end ? (size_t)(end - data) + 1 - at : size - at;
        /* A copy that ends where the line does: nothing behind it is read. */
        char *line = malloc(n);
        FUZZ_CHECK(line);
        memcpy(line, data + at, n);
        qn_reply_line(&reply, line, n);
        free(line);
        check(&reply);
        at += n;
    }
    return 0;
}
