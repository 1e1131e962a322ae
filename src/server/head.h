/* head.h: what the lines before a request's body say, and whether they may.
 *
 * libmicrohttpd splits them; what it lets pass and should not is refused here,
 * by functions that know no socket. */
#ifndef QN_SERVER_HEAD_H
#define QN_SERVER_HEAD_H

#include "protocol.h"

enum { QN_MAX_HEADERS = 100, QN_MAX_HEAD_BYTES = 64 << 10 };

typedef struct qn_header {
    qn_str name, value;
} qn_header;

/* Borrowed from the connection until the request is over. */
typedef struct qn_head {
    qn_str method, path, query; /* as they were sent; query without '?' */
    bool http10;
    qn_header headers[QN_MAX_HEADERS];
    size_t count;
    /* More headers than that, or more bytes than QN_MAX_HEAD_BYTES. */
    bool too_large;
} qn_head;

/* Splits the request's target into path and query. */
void qn_head_target(qn_head *head, qn_str target);
void qn_head_add(qn_head *head, qn_str name, qn_str value);

/* The first header with the name, in any case; false: there is none. */
bool qn_head_get(const qn_head *head, const char *name, qn_str *value);

/* What the body is said to be. */
typedef struct qn_framing {
    bool chunked, has_length;
    uint64_t length;
} qn_framing;

/* Target, names and values, and how the body is framed.  False: *error, and the
 * connection can't go on. */
bool qn_head_check(const qn_head *head, qn_framing *framing,
                   qn_api_error *error);

/* Whether a Host header names a place that this server is known by: localhost,
 * a loopback address, one of `hosts` (NULL-terminated; in any case, without a
 * port). */
bool qn_host_allowed(qn_str host, const char *const *hosts);
/* Whether an Origin header may: one of `origins` (NULL-terminated; "*" is
 * any), or the same place as the Host header. */
bool qn_origin_allowed(qn_str origin, qn_str host, const char *const *origins);

/* A parameter of a query, percent-decoded into *value (emptied first); false
 * when it is not there.  A bad escape stays as it is. */
bool qn_query_get(qn_str query, const char *name, qn_buf *value);
/* Percent-decoding of one piece of a path. */
void qn_percent_decode(qn_buf *out, qn_str text);

#endif
