/* http.h: requests and replies over libmicrohttpd.
 *
 * An exchange is one request and its reply.  Everything here happens on the
 * loop's thread.  The library splits what comes from sockets, frames what goes
 * there, and keeps connections; deadlines, clients that leave and the limits of
 * the specification are ours. */
#ifndef QN_SERVER_HTTP_H
#define QN_SERVER_HTTP_H

#include "head.h"
#include "listen.h"
#include "loop.h"

typedef struct qn_httpd qn_httpd;
struct MHD_Connection;

enum { QN_REQUEST_ID_SIZE = 132 };

typedef struct qn_exchange {
    qn_head head;
    qn_framing framing;
    qn_buf body;
    char request_id[QN_REQUEST_ID_SIZE];
    char peer[QN_PEER_SIZE]; /* "127.0.0.1", "unix" */
    bool local;              /* from a loopback address or a Unix socket */
    double began;            /* seconds of the steady clock */
    int status;              /* of the reply; 0: none yet */
    void *owner;             /* of whoever answers */
} qn_exchange;

typedef enum qn_exchange_end {
    QN_EXCHANGE_DONE, /* the reply has left */
    QN_EXCHANGE_LEFT  /* the client has, or it took too long, or an error */
} qn_exchange_end;

typedef struct qn_httpd_calls {
    void *data;
    /* The head is there.  May reply; the body is not read then, and the
     * connection closes if there would be one. */
    void (*head)(void *data, qn_exchange *x);
    /* All of the request is there.  Replies now or later. */
    void (*request)(void *data, qn_exchange *x);
    /* A stream has less waiting than it may have, after it had more. */
    void (*drained)(void *data, qn_exchange *x);
    /* The last use of the exchange. */
    void (*end)(void *data, qn_exchange *x, qn_exchange_end how);
    /* Every 250 ms while there are connections, or none are taken any more. */
    void (*tick)(void *data, double now);
    /* A connection more than there may be. */
    void (*refused)(void *data);
} qn_httpd_calls;

typedef struct qn_httpd_limits {
    size_t max_body;
    int max_connections;
    double header_timeout, body_timeout, idle_timeout, write_timeout; /* s */
    double request_timeout; /* from first line to answer; 0: any */
} qn_httpd_limits;

/* `calls` is copied; the loop must outlive *out. */
qn_status qn_httpd_new(qn_httpd **out, qn_loop *loop,
                       const qn_httpd_calls *calls,
                       const qn_httpd_limits *limits);
/* Closes all connections; exchanges end. */
void qn_httpd_free(qn_httpd *h);

/* Accepts connections of a listening socket, which does not block and stays the
 * caller's. */
qn_status qn_httpd_listen(qn_httpd *h, int fd);
/* Takes no new connections any more but those that wait to be accepted; the
 * listening sockets may be closed then. */
void qn_httpd_quiesce(qn_httpd *h);
/* How many connections there are, how many of them have an exchange, and of how
 * many of these the request has not come in whole. */
size_t qn_httpd_connections(const qn_httpd *h);
size_t qn_httpd_busy(const qn_httpd *h);
size_t qn_httpd_coming(const qn_httpd *h);
/* The idle function of the loop; `data` is the qn_httpd. */
int qn_httpd_idle(void *data);

/* Adds a header to the reply that comes; both texts are copied, and line ends
 * in the value are dropped. */
void qn_exchange_header(qn_exchange *x, const char *name, const char *value);
/* Replies; takes what `body` holds.  `type` NULL: no Content-Type. */
void qn_exchange_reply(qn_exchange *x, int status, const char *type,
                       qn_buf *body);
/* Closes the connection behind the reply. */
void qn_exchange_close(qn_exchange *x);

/* A reply of unknown length: begins with status 200, is written piece by piece
 * and ends. */
void qn_exchange_stream(qn_exchange *x, const char *type);
void qn_exchange_write(qn_exchange *x, qn_str data);
/* Bytes that were written and have not left yet. */
size_t qn_exchange_pending(const qn_exchange *x);
void qn_exchange_finish(qn_exchange *x);

/* Ends an exchange without (more of) a reply; the connection is cut. */
void qn_exchange_abort(qn_exchange *x);

#endif
