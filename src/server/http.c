/* http.c: see http.h.
 *
 * A connection is in the library's hands except while its exchange waits for a
 * reply, or for more of a stream: then it is suspended, and the library neither
 * reads nor times it.  Clients that leave meanwhile are noticed by watching the
 * socket for the end of what they send. */
#include "http.h"

#include "base/alloc.h"
#include "mhd.h"
#include "past.h"

#include <errno.h>
#include <math.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    /* A stream with more than this waiting is full. */
    STREAM_LIMIT = 256 << 10,
    /* Of a body that is too large, read on so that the client sees why. */
    DISCARD_LIMIT = 4 << 20,
    POOL = 112 << 10,
    POOL_STEP = 16 << 10,
    MAX_LISTENERS = 16
};

#define TICK 0.25

typedef struct exchange exchange;

typedef enum conn_state {
    CONN_NEW,  /* nothing came yet, or not all of the first request's line */
    CONN_IDLE, /* between requests */
    CONN_HEAD, /* the request's line is there */
    CONN_BODY, /* the head is there */
    CONN_BUSY  /* all of it */
} conn_state;

typedef struct conn {
    qn_watch watch; /* for the client's leaving */
    qn_httpd *h;
    struct conn *next, *before;
    struct MHD_Connection *mhd;
    int fd;
    conn_state state;
    double due; /* when the state must have changed */
    bool watched, local;
    bool cut; /* the client sends no more, and there is no whole request */
    exchange *now;
    char peer[QN_PEER_SIZE];
} conn;

struct exchange {
    qn_exchange x; /* first: an exchange is its x */
    conn *c;
    char *target;
    bool headed, asked, suspended, queued;
    bool streaming, finished, full, aborted, closes;
    bool past;        /* its reply went past the library */
    size_t discarded; /* of a body that is too large; 0: it is not */
    const char *type;
    qn_buf headers; /* of the reply: name, NUL, value, NUL */
    qn_buf out;
    size_t sent; /* of `out`, in a stream */
};

typedef struct listener {
    qn_watch watch;
    qn_httpd *h;
    int fd;
} listener;

struct qn_httpd {
    qn_mhd mhd;
    struct MHD_Daemon *daemon;
    qn_watch watch; /* of the library's descriptor */
    qn_loop *loop;
    qn_httpd_calls calls;
    qn_httpd_limits limits;
    listener listeners[MAX_LISTENERS];
    int listener_count;
    bool quiet, resting; /* for good; until a descriptor is free */
    bool knocks;         /* somebody wants to connect */
    conn *conns;
    size_t count, busy;
    double next_tick;
};

static const qn_mhd *lib(const exchange *e)
{
    return &e->c->h->mhd;
}

/* ---- the socket behind an exchange ---- */

static void unwatch(conn *c)
{
    if (c->watched)
        qn_loop_forget(c->h->loop, c->fd);
    c->watched = false;
}

static void resume(exchange *e)
{
    if (!e->suspended)
        return;
    e->suspended = false;
    lib(e)->MHD_resume_connection(e->c->mhd);
}

static void suspend(exchange *e)
{
    e->suspended = true;
    lib(e)->MHD_suspend_connection(e->c->mhd);
}

void qn_exchange_abort(qn_exchange *x)
{
    exchange *e = (exchange *)x;
    e->aborted = true;
    unwatch(e->c);
    shutdown(e->c->fd, SHUT_RDWR);
    resume(e);
}

static void on_leaving(qn_watch *watch, uint32_t events)
{
    conn *c = (conn *)watch;
    (void)events;
    unwatch(c);
    if (c->state == CONN_BUSY && c->now) {
        qn_exchange_abort(&c->now->x);
    } else if (c->state != CONN_BUSY) {
        /* What is left of the request may still be in the socket. */
        c->cut = true;
        c->due = qn_server_now() + TICK;
    }
}

static void watch_leaving(conn *c)
{
    c->watch.ready = on_leaving;
    unwatch(c);
    c->watched = !qn_loop_watch(c->h->loop, c->fd, EPOLLRDHUP, &c->watch);
}

static void set_timeout(const exchange *e, double seconds)
{
    lib(e)->MHD_set_connection_option(e->c->mhd, MHD_CONNECTION_OPTION_TIMEOUT,
                                      (unsigned)ceil(seconds));
}

/* ---- replies ---- */

void qn_exchange_header(qn_exchange *x, const char *name, const char *value)
{
    exchange *e = (exchange *)x;
    qn_buf_add(&e->headers, name, strlen(name) + 1);
    for (; *value; value++)
        if (*value != '\r' && *value != '\n')
            qn_buf_add_char(&e->headers, *value);
    qn_buf_add_char(&e->headers, '\0');
}

void qn_exchange_close(qn_exchange *x)
{
    ((exchange *)x)->closes = true;
}

void qn_exchange_reply(qn_exchange *x, int status, const char *type,
                       qn_buf *body)
{
    exchange *e = (exchange *)x;
    x->status = status;
    e->type = type;
    qn_buf_free(&e->out);
    e->out = *body;
    *body = QN_BUF_INIT;
    resume(e);
}

void qn_exchange_stream(qn_exchange *x, const char *type)
{
    exchange *e = (exchange *)x;
    x->status = 200;
    e->type = type;
    e->streaming = true;
    resume(e);
}

void qn_exchange_write(qn_exchange *x, qn_str data)
{
    exchange *e = (exchange *)x;
    qn_buf_add_str(&e->out, data);
    if (e->out.failed)
        qn_exchange_abort(x);
    e->full = qn_exchange_pending(x) >= STREAM_LIMIT;
    if (e->queued)
        resume(e);
}

size_t qn_exchange_pending(const qn_exchange *x)
{
    const exchange *e = (const exchange *)x;
    return e->out.size - e->sent;
}

void qn_exchange_finish(qn_exchange *x)
{
    exchange *e = (exchange *)x;
    e->finished = true;
    if (e->queued)
        resume(e);
}

/* The library asks for more of a stream. */
static ssize_t read_stream(void *data, uint64_t pos, char *out, size_t max)
{
    exchange *e = data;
    (void)pos;
    if (e->aborted)
        return MHD_CONTENT_READER_END_WITH_ERROR;
    size_t n = e->out.size - e->sent;
    if (!n && e->finished)
        return MHD_CONTENT_READER_END_OF_STREAM;
    if (!n) {
        suspend(e);
        return 0;
    }
    if (n > max)
        n = max;
    memcpy(out, e->out.data + e->sent, n);
    e->sent += n;
    if (e->sent == e->out.size) {
        qn_buf_clear(&e->out);
        e->sent = 0;
    }
    if (e->full && qn_exchange_pending(&e->x) < STREAM_LIMIT) {
        e->full = false;
        e->c->h->calls.drained(e->c->h->calls.data, &e->x);
    }
    return (ssize_t)n;
}

static struct MHD_Response *make_response(exchange *e)
{
    enum { BLOCK = 16 << 10 };
    if (e->streaming)
        return lib(e)->MHD_create_response_from_callback(
            MHD_SIZE_UNKNOWN, BLOCK, read_stream, e, NULL);
    size_t size = e->out.size;
    char *data = qn_buf_take(&e->out);
    if (!data)
        return NULL;
    struct MHD_Response *response =
        lib(e)->MHD_create_response_from_buffer_with_free_callback(size, data,
                                                                   qn_free);
    if (!response)
        qn_free(data);
    return response;
}

static bool add_headers(exchange *e, struct MHD_Response *response)
{
    bool good = !e->headers.failed;
    if (e->type)
        good = good && lib(e)->MHD_add_response_header(response, "Content-Type",
                                                       e->type) == MHD_YES;
    if (e->closes)
        good = good && lib(e)->MHD_add_response_header(response, "Connection",
                                                       "close") == MHD_YES;
    for (size_t at = 0; good && at < e->headers.size;) {
        const char *name = e->headers.data + at;
        const char *value = name + strlen(name) + 1;
        at = (size_t)(value - e->headers.data) + strlen(value) + 1;
        good =
            lib(e)->MHD_add_response_header(response, name, value) == MHD_YES;
    }
    return good;
}

/* Hands the reply to the library; what fails here cuts the connection. */
static enum MHD_Result queue_reply(exchange *e)
{
    struct MHD_Response *response = make_response(e);
    if (!response)
        return MHD_NO;
    enum MHD_Result result = MHD_NO;
    if (!e->streaming)
        unwatch(e->c);
    set_timeout(e, e->c->h->limits.write_timeout);
    e->queued = true;
    e->c->state = CONN_BUSY;
    /* HTTP/1.0 also where it would keep it; and nobody is to send a further
     * request to a server that ends. */
    if (e->x.head.http10 || e->c->h->quiet)
        e->closes = true;
    if (add_headers(e, response))
        result = lib(e)->MHD_queue_response(e->c->mhd, (unsigned)e->x.status,
                                            response);
    lib(e)->MHD_destroy_response(response);
    return result;
}

/* ---- requests ---- */

/* The client's own id, or one of ours. */
static void choose_request_id(qn_exchange *x)
{
    qn_str given;
    bool good = qn_head_get(&x->head, "x-request-id", &given) && given.size &&
                given.size <= 128;
    for (size_t i = 0; good && i < given.size; i++)
        good = given.data[i] > ' ' && given.data[i] <= '~';
    if (good) {
        memcpy(x->request_id, given.data, given.size);
        x->request_id[given.size] = '\0';
        return;
    }
    uint8_t random[12] = {0};
    ssize_t n = getrandom(random, sizeof random, 0);
    (void)n;
    strcpy(x->request_id, "req_");
    for (size_t i = 0; i < sizeof random; i++)
        snprintf(x->request_id + 4 + 2 * i, 3, "%02x", random[i]);
}

/* The request's line is there. */
static void *on_line(void *data, const char *target, struct MHD_Connection *mhd)
{
    qn_httpd *h = data;
    const union MHD_ConnectionInfo *info =
        h->mhd.MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    conn *c = info ? info->socket_context : NULL;
    exchange *e = c ? qn_calloc(1, sizeof *e) : NULL;
    if (!e || !(e->target = qn_strdup(target))) {
        qn_free(e);
        return NULL;
    }
    /* What stands behind the target's end is the version, unless there is a NUL
     * in it; with a space it is refused. */
    if (strncmp(target + strlen(target) + 1, "HTTP/", 5) != 0)
        e->target[0] = ' ';
    qn_head_target(&e->x.head, qn_str_of(e->target));
    e->c = c;
    e->x.began = qn_server_now();
    e->x.local = c->local;
    memcpy(e->x.peer, c->peer, sizeof c->peer);
    c->now = e;
    c->state = CONN_HEAD;
    double due = e->x.began + h->limits.header_timeout;
    if (!c->cut && due < c->due)
        c->due = due;
    h->busy++;
    return e;
}

/* A value ends with its line.  The library ends lines also at a bare CR or LF,
 * and values at a NUL; it puts a NUL in the place of each byte of a line's end,
 * so what stands behind the first one tells. */
static bool ends_early(const char *value, size_t size)
{
    return value && value[size + 1] && !strchr("\r\n \t", value[size + 1]);
}

static enum MHD_Result add_header(void *data, enum MHD_ValueKind kind,
                                  const char *name, size_t name_size,
                                  const char *value, size_t value_size)
{
    (void)kind;
    /* With the NUL it is refused. */
    qn_head_add(data, (qn_str){name, name_size},
                (qn_str){value ? value : "",
                         value_size + ends_early(value, value_size)});
    return MHD_YES;
}

static void read_head(exchange *e, const char *method, const char *version)
{
    qn_head *head = &e->x.head;
    head->method = qn_str_of(method);
    head->http10 = !strcmp(version, "HTTP/1.0");
    qn_head_target(head, qn_str_of(e->target));
    lib(e)->MHD_get_connection_values_n(e->c->mhd, MHD_HEADER_KIND, add_header,
                                        head);
    choose_request_id(&e->x);
}

static enum MHD_Result first_call(exchange *e, const char *method,
                                  const char *version)
{
    conn *c = e->c;
    e->headed = true;
    c->state = CONN_BODY;
    if (!c->cut)
        c->due = qn_server_now() + c->h->limits.body_timeout;
    read_head(e, method, version);
    c->h->calls.head(c->h->calls.data, &e->x);
    if (e->aborted)
        return MHD_NO;
    bool body = e->x.framing.chunked || e->x.framing.length;
    /* The library closes a connection whose reply comes before the request's
     * end, so one without a body has it in the next call. */
    if (!e->x.status || (!body && !e->closes))
        return MHD_YES;
    e->closes = true;
    return queue_reply(e);
}

static void reply_past(exchange *e, qn_api_code code, const char *message)
{
    e->past = true;
    e->x.status = qn_reply_past_library(e->c->fd, &e->x, code, message);
}

/* The library takes no reply in the middle of a body. */
static enum MHD_Result too_large(exchange *e, size_t size)
{
    if (!e->discarded)
        reply_past(e, QN_API_REQUEST_TOO_LARGE,
                   "the request's body is larger than this server takes");
    qn_buf_free(&e->x.body);
    e->discarded += size;
    return e->discarded < DISCARD_LIMIT ? MHD_YES : MHD_NO;
}

static enum MHD_Result take_body(exchange *e, const char *data, size_t size)
{
    conn *c = e->c;
    if (!c->cut)
        c->due = qn_server_now() + c->h->limits.body_timeout;
    if (e->discarded || size > c->h->limits.max_body - e->x.body.size)
        return too_large(e, size);
    if (!e->x.body.size && e->x.framing.has_length)
        qn_buf_reserve(&e->x.body, (size_t)e->x.framing.length);
    qn_buf_add(&e->x.body, data, size);
    return qn_buf_status(&e->x.body) ? MHD_NO : MHD_YES;
}

static enum MHD_Result on_request(void *data, struct MHD_Connection *mhd,
                                  const char *url, const char *method,
                                  const char *version, const char *upload,
                                  size_t *upload_size, void **context)
{
    exchange *e = *context;
    (void)data;
    (void)mhd;
    (void)url;
    if (!e)
        return MHD_NO;
    if (!e->headed)
        return first_call(e, method, version);
    if (*upload_size) {
        size_t size = *upload_size;
        *upload_size = 0;
        return take_body(e, upload, size);
    }
    if (e->discarded)
        return MHD_NO;
    if (!e->asked && !e->x.status) {
        e->asked = true;
        e->c->state = CONN_BUSY;
        e->c->cut = false;
        watch_leaving(e->c);
        e->c->h->calls.request(e->c->h->calls.data, &e->x);
    }
    if (e->aborted)
        return MHD_NO;
    if (e->x.status)
        return e->queued ? MHD_YES : queue_reply(e);
    suspend(e);
    return MHD_YES;
}

static void on_completed(void *data, struct MHD_Connection *mhd, void **context,
                         enum MHD_RequestTerminationCode code)
{
    qn_httpd *h = data;
    exchange *e = *context;
    (void)mhd;
    if (!e)
        return;
    *context = NULL;
    conn *c = e->c;
    unwatch(c);
    h->busy--;
    c->now = NULL;
    c->state = CONN_IDLE;
    c->due = qn_server_now() + h->limits.idle_timeout;
    watch_leaving(c);
    bool done =
        e->past || (code == MHD_REQUEST_TERMINATED_COMPLETED_OK && !e->aborted);
    set_timeout(e, 0);
    h->calls.end(h->calls.data, &e->x,
                 done ? QN_EXCHANGE_DONE : QN_EXCHANGE_LEFT);
    /* A stream had its headers before it was known to be the last one. */
    if (e->closes && e->streaming)
        shutdown(c->fd, SHUT_RDWR);
    qn_free(e->target);
    qn_buf_free(&e->x.body);
    qn_buf_free(&e->headers);
    qn_buf_free(&e->out);
    qn_free(e);
}

/* ---- connections ---- */

static void begin_conn(qn_httpd *h, struct MHD_Connection *mhd, void **context)
{
    const union MHD_ConnectionInfo *fd =
        h->mhd.MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD);
    const union MHD_ConnectionInfo *address =
        h->mhd.MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    conn *c = fd ? qn_calloc(1, sizeof *c) : NULL;
    *context = c;
    if (!c)
        return; /* on_line finds none, and the connection is closed */
    c->h = h;
    c->mhd = mhd;
    c->fd = fd->connect_fd;
    c->due = qn_server_now() + h->limits.header_timeout;
    c->local = qn_listen_peer(c->peer, address ? address->client_addr : NULL);
    watch_leaving(c);
    c->next = h->conns;
    if (h->conns)
        h->conns->before = c;
    h->conns = c;
    h->count++;
}

static void end_conn(conn *c)
{
    qn_httpd *h = c->h;
    unwatch(c);
    if (c->before)
        c->before->next = c->next;
    else
        h->conns = c->next;
    if (c->next)
        c->next->before = c->before;
    h->count--;
    qn_free(c);
}

static void on_connection(void *data, struct MHD_Connection *mhd,
                          void **context,
                          enum MHD_ConnectionNotificationCode code)
{
    if (code == MHD_CONNECTION_NOTIFY_STARTED)
        begin_conn(data, mhd, context);
    else if (*context)
        end_conn(*context);
}

/* ---- accepting ---- */

static void rest(qn_httpd *h, bool resting)
{
    if (h->resting == resting || h->quiet)
        return;
    h->resting = resting;
    for (int i = 0; i < h->listener_count; i++)
        if (resting)
            qn_loop_forget(h->loop, h->listeners[i].fd);
        else
            qn_loop_watch(h->loop, h->listeners[i].fd, EPOLLIN,
                          &h->listeners[i].watch);
}

static void admit(qn_httpd *h, int fd, const struct sockaddr_storage *address,
                  socklen_t size)
{
    if (h->count >= (size_t)h->limits.max_connections) {
        qn_reply_past_library(fd, NULL, QN_API_SERVER_OVERLOADED,
                              "there are too many connections");
        close(fd);
        h->calls.refused(h->calls.data);
        return;
    }
    /* Each event of a stream is to leave at once. */
    if (address->ss_family != AF_UNIX)
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    /* On failure the library closes it. */
    h->mhd.MHD_add_connection(h->daemon, fd, (const struct sockaddr *)address,
                              size);
}

static void accept_some(listener *l)
{
    enum { AT_ONCE = 64 };
    for (int i = 0; i < AT_ONCE; i++) {
        struct sockaddr_storage address = {0};
        socklen_t size = sizeof address;
        int fd = accept4(l->fd, (struct sockaddr *)&address, &size,
                         SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0)
            admit(l->h, fd, &address, size);
        else if (errno != ECONNABORTED && errno != EINTR) {
            bool short_of = errno == EMFILE || errno == ENFILE ||
                            errno == ENOMEM || errno == ENOBUFS;
            if (short_of)
                rest(l->h, true);
            return;
        }
    }
}

/* Accepting waits for idle, where the library sees first which connections have
 * ended and no longer count. */
static void on_listener(qn_watch *watch, uint32_t events)
{
    (void)events;
    ((listener *)watch)->h->knocks = true;
}

/* Whether there was somebody. */
static bool accept_all(qn_httpd *h)
{
    bool any = h->knocks && !h->quiet;
    for (int i = 0; i < h->listener_count && any; i++)
        accept_some(&h->listeners[i]);
    h->knocks = false;
    return any;
}

qn_status qn_httpd_listen(qn_httpd *h, int fd)
{
    if (h->listener_count == MAX_LISTENERS)
        return qn_fail(QN_E_ARG, "at most %d addresses to listen on",
                       MAX_LISTENERS);
    listener *l = &h->listeners[h->listener_count++];
    *l = (listener){.watch.ready = on_listener, .h = h, .fd = fd};
    return qn_loop_watch(h->loop, fd, EPOLLIN, &l->watch);
}

void qn_httpd_quiesce(qn_httpd *h)
{
    /* Who has connected before this hears of it. */
    h->knocks = true;
    accept_all(h);
    if (!h->resting)
        rest(h, true);
    h->quiet = true;
}

size_t qn_httpd_connections(const qn_httpd *h)
{
    return h->count;
}

size_t qn_httpd_coming(const qn_httpd *h)
{
    size_t n = 0;
    for (const conn *c = h->conns; c; c = c->next)
        n += c->now && c->state != CONN_BUSY;
    return n;
}

size_t qn_httpd_busy(const qn_httpd *h)
{
    return h->busy;
}

/* ---- time ---- */

/* Whether a request has been coming in for longer than one may take. */
static bool takes_too_long(const conn *c, double now)
{
    double most = c->h->limits.request_timeout;
    return c->now && most > 0 && c->state != CONN_BUSY &&
           now - c->now->x.began >= most;
}

static void end_late(conn *c, double now)
{
    exchange *e = c->now;
    if (e && !e->x.status && c->cut)
        reply_past(e, QN_API_BAD_REQUEST, "the request is cut");
    else if (e && !e->x.status && takes_too_long(c, now))
        reply_past(e, QN_API_TIMEOUT, "the request took too long");
    else if (e && !e->x.status)
        reply_past(e, QN_API_REQUEST_TIMEOUT,
                   "the request did not come in time");
    shutdown(c->fd, SHUT_RDWR);
    c->due = INFINITY;
}

static void tick(qn_httpd *h, double now)
{
    for (conn *c = h->conns; c; c = c->next)
        if (c->state != CONN_BUSY && (c->due <= now || takes_too_long(c, now)))
            end_late(c, now);
    rest(h, false);
    h->calls.tick(h->calls.data, now);
    h->next_tick = now + TICK;
}

int qn_httpd_idle(void *data)
{
    qn_httpd *h = data;
    h->mhd.MHD_run(h->daemon);
    if (accept_all(h))
        h->mhd.MHD_run(h->daemon);
    bool ticking = h->count || h->quiet || h->resting;
    double now = qn_server_now();
    if (ticking && now >= h->next_tick)
        tick(h, now);
    MHD_UNSIGNED_LONG_LONG wait = 0;
    bool timed = h->mhd.MHD_get_timeout(h->daemon, &wait) == MHD_YES;
    double until = ticking ? ceil(1e3 * (h->next_tick - now)) : 1e9;
    if (timed && (double)wait < until)
        until = (double)wait;
    return until >= 1e9 ? -1 : until < 0 ? 0 : (int)until;
}

/* ---- the whole ---- */

/* Events of the library's descriptor only make the loop look up: idle runs
 * it. */
static void on_library(qn_watch *watch, uint32_t events)
{
    (void)watch;
    (void)events;
}

/* Reasons of the library's for closing are of no use to anybody. */
static void ignore(void *data, const char *format, va_list args)
{
    (void)data;
    (void)format;
    (void)args;
}

static qn_status start(qn_httpd *h)
{
    unsigned flags = MHD_USE_EPOLL | MHD_USE_NO_LISTEN_SOCKET |
                     MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG;
    h->daemon = h->mhd.MHD_start_daemon(
        flags, 0, NULL, NULL, on_request, h, MHD_OPTION_EXTERNAL_LOGGER, ignore,
        NULL, MHD_OPTION_NOTIFY_COMPLETED, on_completed, h,
        MHD_OPTION_NOTIFY_CONNECTION, on_connection, h,
        MHD_OPTION_URI_LOG_CALLBACK, on_line, h,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)POOL,
        MHD_OPTION_CONNECTION_MEMORY_INCREMENT, (size_t)POOL_STEP,
        MHD_OPTION_CONNECTION_LIMIT, (unsigned)h->limits.max_connections + 1,
        MHD_OPTION_CONNECTION_TIMEOUT, 0u, MHD_OPTION_END);
    if (!h->daemon)
        return qn_fail(QN_E_IO, "libmicrohttpd can't be started: %s",
                       strerror(errno));
    const union MHD_DaemonInfo *info =
        h->mhd.MHD_get_daemon_info(h->daemon, MHD_DAEMON_INFO_EPOLL_FD);
    if (!info)
        return qn_fail(QN_E_INTERNAL, "libmicrohttpd has no descriptor");
    h->watch.ready = on_library;
    return qn_loop_watch(h->loop, info->epoll_fd, EPOLLIN, &h->watch);
}

qn_status qn_httpd_new(qn_httpd **out, qn_loop *loop,
                       const qn_httpd_calls *calls,
                       const qn_httpd_limits *limits)
{
    qn_httpd *h = qn_calloc(1, sizeof *h);
    if (!h)
        return QN_E_NOMEM;
    h->loop = loop;
    h->calls = *calls;
    h->limits = *limits;
    qn_status status = qn_mhd_load(&h->mhd);
    if (!status)
        status = start(h);
    if (status)
        qn_httpd_free(h);
    else
        *out = h;
    return status;
}

void qn_httpd_free(qn_httpd *h)
{
    if (!h)
        return;
    qn_httpd_quiesce(h);
    /* The library must not be stopped while it waits for us. */
    for (int i = 0; h->daemon && h->busy && i < 1000; i++) {
        for (conn *c = h->conns; c; c = c->next)
            if (c->now && !c->now->aborted)
                qn_exchange_abort(&c->now->x);
        h->mhd.MHD_run(h->daemon);
    }
    if (h->daemon)
        h->mhd.MHD_stop_daemon(h->daemon);
    qn_free(h);
}
