/* reply.h: the head of an HTTP answer, line by line, as libcurl hands it on. */
#ifndef QN_HUB_REPLY_H
#define QN_HUB_REPLY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What the head of an answer says. */
typedef struct qn_reply {
    int code;
    bool redirected;
    bool has_length, has_range, has_total, has_linked_size;
    uint64_t length;      /* of this answer's body */
    uint64_t from, total; /* Content-Range: first byte, size of the whole */
    /* The hub's headers on files that lie elsewhere, whichever answer had
     * them; and the last answer's own ETag.  Without quotes; "": none. */
    uint64_t linked_size;
    char linked_etag[80], etag[80];
    char next[1024];     /* Link: <...>; rel="next" */
    char error_code[40]; /* X-Error-Code */
    char location[64];   /* how Location begins */
    long retry_after;    /* seconds; 0: not said (set by http.c) */
} qn_reply;

/* Takes a line of `size` bytes, with or without its end.  A status line begins
 * a new answer: of a proxy, an interim one, or the one behind a redirect.  What
 * cannot be read counts as not said. */
void qn_reply_line(qn_reply *reply, const char *line, size_t size);

#endif
