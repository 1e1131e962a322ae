/* http.h: HTTP by libcurl, several transfers at a time on one thread.
 *
 * libcurl is loaded by the first qn_http_open.  Redirects are followed here and
 * not by libcurl, because of the token: it goes to the endpoint and where the
 * endpoint sends us on its own host by a path, and to nobody else.  TLS errors
 * are final, and https never turns into http. */
#ifndef QN_HUB_HTTP_H
#define QN_HUB_HTTP_H

#include "hub.h"
#include "reply.h"

typedef struct qn_transfer {
    /* The request.  The token goes along when the URL is the endpoint's. */
    const char *url;
    bool head_only;
    uint64_t from;  /* ask for the bytes from here on, when not 0 */
    uint64_t until; /* and before this one, when not 0 */
    /* Called once, before the first byte of a good answer (200 or 206), and for
     * each piece of it; a failure ends the transfer with that status. */
    qn_status (*begin)(void *data, const qn_reply *reply);
    qn_status (*add)(void *data, const void *bytes, size_t size);
    void *data;

    /* The result. */
    qn_reply reply;
    qn_status status;
    qn_error error;
    bool may_pass; /* the failure may be gone the next time */

    /* http.c's own. */
    void *easy, *headers;
    char *at; /* the URL at hand */
    bool with_token, begun, failed;
    int hops;
    size_t waste; /* bytes of an error's body */
    char detail[256];
} qn_transfer;

typedef struct qn_http qn_http;

/* `hub` (borrowed) is open for the network.  QN_E_UNSUPPORTED when there is no
 * libcurl. */
qn_status qn_http_open(qn_http **out, const qn_hub *hub);
/* Ends what still runs. */
void qn_http_close(qn_http *http);

/* Begins a transfer, which must live until it is done or stopped. */
qn_status qn_http_start(qn_http *http, qn_transfer *transfer);
/* Works for up to `ms` milliseconds; *done is a transfer that has ended, or
 * NULL. */
qn_status qn_http_wait(qn_http *http, int ms, qn_transfer **done);
void qn_http_stop(qn_http *http, qn_transfer *transfer);

/* Puts text into a URL: what is not a letter, a digit or one of "-._~" or of
 * `keep` is spelled %XX. */
void qn_url_add(qn_buf *url, const char *text, const char *keep);
/* The host of a URL, for messages; *size is its length. */
const char *qn_url_host(const char *url, size_t *size);

#endif
