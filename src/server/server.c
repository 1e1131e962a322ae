/* server.c: see server.h: who may ask what, and the server's life. */
#include "server.h"

#include "base/alloc.h"
#include "pages.h"
#include "responses_store.h"
#include "turn.h"

#include <math.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { WORKERS = 4, EXIT_FAILURE_CODE = 1 };

/* ---- replies ---- */

static const char allowed_methods[] = "GET, POST, DELETE, OPTIONS";
static const char allowed_headers[] =
    "Authorization, Content-Type, x-api-key, anthropic-version, anthropic-beta";

/* Lets pages of an allowed origin read the reply. */
static void add_origin(const qn_server *s, qn_exchange *x)
{
    qn_str origin;
    if (!qn_head_get(&x->head, "origin", &origin))
        return;
    bool any = false;
    for (const char *const *o = s->config.origins; *o; o++)
        any = any || !strcmp(*o, "*");
    qn_buf text = QN_BUF_INIT;
    if (any && !s->keys.count)
        qn_buf_add_char(&text, '*');
    else
        qn_buf_add_str(&text, origin);
    if (!qn_buf_status(&text))
        qn_exchange_header(x, "Access-Control-Allow-Origin", text.data);
    qn_exchange_header(x, "Vary", "Origin");
    qn_exchange_header(x, "Access-Control-Expose-Headers",
                       "X-Request-Id, Request-Id, X-Quern-Model, "
                       "X-Quern-Seed, X-Quern-Ignored");
    qn_buf_free(&text);
}

static void add_retry(const qn_server *s, qn_exchange *x)
{
    char text[16];
    double seconds = ceil(s->service);
    seconds = seconds < 1 ? 1 : seconds > 60 ? 60 : seconds;
    snprintf(text, sizeof text, "%.0f", seconds);
    qn_exchange_header(x, "Retry-After", text);
}

void qn_server_fail(qn_server *s, qn_exchange *x, const qn_api_error *error)
{
    qn_api_style style = qn_route_style(x->head.path);
    int status = qn_api_code_status(error->code, style);
    qn_buf body = QN_BUF_INIT;
    qn_api_error_write(&body, error, style, x->request_id);
    if (status == 503 || status == 529 || status == 429) {
        add_retry(s, x);
        qn_metrics_rejected(&s->metrics, qn_api_code_name(error->code));
    }
    qn_exchange_reply(x, status, "application/json", &body);
}

void qn_server_json(qn_server *s, qn_exchange *x, qn_buf *body)
{
    qn_api_error error;
    if (!qn_buf_status(body)) {
        qn_exchange_reply(x, 200, "application/json", body);
        return;
    }
    qn_api_fail_memory(&error);
    qn_server_fail(s, x, &error);
}

/* ---- who may ---- */

static qn_str presented_key(const qn_exchange *x)
{
    static const char bearer[] = "bearer ";
    qn_str value;
    if (qn_head_get(&x->head, "authorization", &value) &&
        value.size > sizeof bearer - 1) {
        size_t i = 0;
        while (i < sizeof bearer - 1 && (value.data[i] | 0x20) == bearer[i])
            i++;
        if (i == sizeof bearer - 1) {
            while (i < value.size && value.data[i] == ' ')
                i++;
            return (qn_str){value.data + i, value.size - i};
        }
    }
    return qn_head_get(&x->head, "x-api-key", &value) ? value : (qn_str){"", 0};
}

int qn_server_key(const qn_server *s, const qn_exchange *x)
{
    return s->keys.count ? qn_keys_find(&s->keys, presented_key(x)) : -1;
}

static bool check_admin(const qn_server *s, const qn_exchange *x, int key,
                        qn_api_error *error)
{
    if (s->keys.count ? s->keys.items[key].admin : x->local)
        return true;
    return qn_api_fail(error, QN_API_ADMIN_REQUIRED, NULL,
                       s->keys.count
                           ? "this route needs an administrator's key, a line "
                             "NAME:KEY:admin of --api-key-file"
                           : "without keys this route is for this machine "
                             "alone");
}

static bool check_key(const qn_server *s, const qn_exchange *x,
                      const qn_route *route, qn_api_error *error)
{
    if (route->access == QN_ACCESS_OPEN ||
        (route->access == QN_ACCESS_METRICS && s->config.metrics_open))
        return true;
    int key = qn_server_key(s, x);
    if (s->keys.count && key < 0)
        return qn_api_fail(error, QN_API_INVALID_API_KEY, NULL,
                           "the API key is missing or wrong");
    return route->access != QN_ACCESS_ADMIN || check_admin(s, x, key, error);
}

/* The names that the server is known by: where it listens, and what was
 * allowed besides. */
static bool check_host(const qn_server *s, const qn_exchange *x,
                       qn_api_error *error)
{
    qn_str host, origin;
    bool named = qn_head_get(&x->head, "host", &host);
    const char *bound[QN_LISTENERS + 1] = {NULL};
    for (size_t i = 0; i < s->config.host_count && i < QN_LISTENERS; i++)
        bound[i] = s->config.hosts[i];
    if (named && !qn_host_allowed(host, bound) &&
        !qn_host_allowed(host, s->config.allowed_hosts))
        return qn_api_fail(error, QN_API_HOST_NOT_ALLOWED, NULL,
                           "this server is not known by that Host; see "
                           "--allowed-host");
    if (qn_head_get(&x->head, "origin", &origin) &&
        !qn_origin_allowed(origin, named ? host : (qn_str){"", 0},
                           s->config.origins))
        return qn_api_fail(error, QN_API_ORIGIN_NOT_ALLOWED, NULL,
                           "pages of that Origin may not ask; see "
                           "--cors-origin");
    return true;
}

/* ---- what may be asked ---- */

static bool is_json(qn_str type)
{
    static const char json[] = "application/json";
    size_t n = sizeof json - 1, i = 0;
    while (i < n && i < type.size && (type.data[i] | 0x20) == (json[i] | 0x20))
        i++;
    return i == n && (type.size == n || type.data[n] == ';' ||
                      type.data[n] == ' ' || type.data[n] == '\t');
}

/* Clients' bytes are shown when they are plain. */
static bool refuse_type(qn_str type, qn_api_error *error)
{
    size_t plain = 0;
    while (plain < type.size && type.data[plain] >= ' ' &&
           type.data[plain] < 0x7f)
        plain++;
    bool shown = plain && plain == type.size && plain < 80;
    return qn_api_fail(error, QN_API_UNSUPPORTED_MEDIA_TYPE, NULL,
                       "expected Content-Type: application/json, found %.*s",
                       shown ? (int)plain : 7, shown ? type.data : "another");
}

static bool check_body(const qn_server *s, qn_exchange *x, qn_api_error *error)
{
    qn_str value;
    const qn_framing *f = &x->framing;
    bool post = qn_str_is(x->head.method, "POST");
    if (post && !f->chunked && !f->has_length) {
        qn_exchange_close(x); /* where the next request begins is a guess */
        return qn_api_fail(error, QN_API_LENGTH_REQUIRED, NULL,
                           "a body needs Content-Length or chunks");
    }
    if (f->has_length && f->length > s->config.limits.max_body)
        return qn_api_fail(error, QN_API_REQUEST_TOO_LARGE, NULL,
                           "expected a body of at most %zu bytes",
                           s->config.limits.max_body);
    if (qn_head_get(&x->head, "content-encoding", &value))
        return qn_api_fail(error, QN_API_UNSUPPORTED_MEDIA_TYPE, NULL,
                           "bodies are taken without Content-Encoding");
    if (!post)
        return true;
    bool typed = qn_head_get(&x->head, "content-type", &value);
    if (typed ? is_json(value) : !qn_head_get(&x->head, "origin", &value))
        return true;
    return refuse_type(typed ? value : qn_str_of("none"), error);
}

static const qn_route *find_route(const qn_server *s, qn_exchange *x,
                                  qn_str *id, qn_api_error *error)
{
    qn_buf allow = QN_BUF_INIT;
    bool off = !s->config.page.data && qn_str_is(x->head.path, "/");
    const qn_route *route =
        off ? NULL : qn_route_find(x->head.method, x->head.path, id, &allow);
    if (!route && allow.size) {
        qn_buf_add_text(&allow, ", OPTIONS");
        qn_exchange_header(x, "Allow", allow.data);
        qn_api_fail(error, QN_API_METHOD_NOT_ALLOWED, NULL,
                    "this path takes %s", allow.data);
    } else if (!route) {
        qn_api_fail(error, QN_API_NOT_FOUND, NULL, "there is no such path");
    }
    qn_buf_free(&allow);
    return route;
}

static const char shutting_down[] = "the server is shutting down";

static bool check_state(const qn_server *s, const qn_route *route,
                        qn_api_error *error)
{
    if (s->state == QN_SERVER_SERVING || route->access == QN_ACCESS_OPEN)
        return true;
    bool loading = s->state == QN_SERVER_LOADING;
    return qn_api_fail(error, loading ? QN_API_LOADING : QN_API_SHUTTING_DOWN,
                       NULL,
                       loading ? "the model is being loaded" : shutting_down);
}

/* Preflights, and others that want to know what may be asked. */
static void answer_options(qn_server *s, qn_exchange *x)
{
    qn_buf body = QN_BUF_INIT;
    add_origin(s, x);
    qn_exchange_header(x, "Access-Control-Allow-Methods", allowed_methods);
    qn_exchange_header(x, "Access-Control-Allow-Headers", allowed_headers);
    qn_exchange_header(x, "Access-Control-Max-Age", "600");
    qn_exchange_header(x, "Allow", allowed_methods);
    qn_exchange_reply(x, 204, NULL, &body);
}

static bool check_head(qn_server *s, qn_exchange *x, qn_api_error *error)
{
    qn_str id;
    if (!qn_head_check(&x->head, &x->framing, error)) {
        qn_exchange_close(x);
        return false;
    }
    if (!check_host(s, x, error))
        return false;
    if (qn_str_is(x->head.method, "OPTIONS"))
        return true;
    add_origin(s, x);
    const qn_route *route = find_route(s, x, &id, error);
    return route && check_key(s, x, route, error) &&
           check_state(s, route, error) && check_body(s, x, error);
}

/* ---- calls of http.h ---- */

static void on_head(void *data, qn_exchange *x)
{
    qn_server *s = data;
    qn_api_error error;
    bool good = check_head(s, x, &error);
    qn_exchange_header(x, "X-Request-Id", x->request_id);
    /* Where Anthropic's packages look for it. */
    if (qn_route_style(x->head.path) == QN_API_ANTHROPIC)
        qn_exchange_header(x, "Request-Id", x->request_id);
    if (!good)
        qn_server_fail(s, x, &error);
    else if (qn_str_is(x->head.method, "OPTIONS"))
        answer_options(s, x);
}

static void on_request(void *data, qn_exchange *x)
{
    qn_server *s = data;
    qn_api_error error;
    qn_str id;
    const qn_route *route = find_route(s, x, &id, &error);
    /* It may have begun to drain since the head came, or to read other keys. */
    if (!route || !check_key(s, x, route, &error) ||
        !check_state(s, route, &error))
        qn_server_fail(s, x, &error);
    else if (route->protocol)
        qn_turn_begin(s, x, route);
    else
        route->page(s, x, id);
}

static void on_drained(void *data, qn_exchange *x)
{
    (void)data;
    qn_turn_drained(x);
}

static const char *route_name(const qn_exchange *x)
{
    qn_str id;
    qn_buf allow = QN_BUF_INIT;
    const qn_route *route =
        qn_route_find(x->head.method, x->head.path, &id, &allow);
    qn_buf_free(&allow);
    return route ? route->name : "other";
}

static const char *outcome_of(const qn_access_line *line)
{
    if (line->left)
        return "cancelled";
    if (line->status == 503 || line->status == 529 || line->status == 429)
        return "rejected";
    return line->status >= 400 || line->error ? "error" : "ok";
}

/* Who asked: behind a proxy that is trusted, whom that names. */
static const char *peer_of(const qn_server *s, const qn_exchange *x,
                           char text[QN_PEER_SIZE])
{
    qn_str from;
    if (!s->config.trust_proxy ||
        !qn_head_get(&x->head, "x-forwarded-for", &from))
        return x->peer;
    const char *comma = from.size ? memchr(from.data, ',', from.size) : NULL;
    size_t size = comma ? (size_t)(comma - from.data) : from.size;
    snprintf(text, QN_PEER_SIZE, "%.*s",
             (int)(size < QN_PEER_SIZE ? size : QN_PEER_SIZE - 1), from.data);
    return text;
}

static void on_end(void *data, qn_exchange *x, qn_exchange_end how)
{
    qn_server *s = data;
    char peer[QN_PEER_SIZE];
    double seconds = qn_server_now() - x->began;
    int key = qn_server_key(s, x);
    qn_access_line line = {
        .time = qn_server_time(),
        .request_id = x->request_id,
        .peer = peer_of(s, x, peer),
        .key = key >= 0 ? s->keys.items[key].name : NULL,
        .route = route_name(x),
        .status = x->status,
        .prompt_tokens = -1,
        .cached_tokens = -1,
        .completion_tokens = -1,
        .queue_ms = -1,
        .ttft_ms = -1,
        .total_ms = 1e3 * seconds,
        .accept_rate = -1,
        .left = how == QN_EXCHANGE_LEFT,
    };
    if (x->owner)
        qn_turn_exchange_end(x, how, &line);
    qn_metrics_request(&s->metrics, line.route, line.status, outcome_of(&line),
                       s->config.many ? line.model : NULL);
    qn_histogram_add(&s->metrics.request, seconds);
    qn_access_write(&s->log, &line);
}

static void on_refused(void *data)
{
    qn_server *s = data;
    qn_metrics_rejected(&s->metrics, "connections");
}

/* ---- life ---- */

void qn_server_say(const qn_server *s, quern_log_level level, const char *text)
{
    if (s->config.log_level >= level)
        fprintf(stderr, "quern: serve: %s\n", text);
}

static void say(const qn_server *s, const char *text)
{
    qn_server_say(s, QUERN_LOG_INFO, text);
}

/* When the server ends, replies that are made must have left within so many
 * seconds, and requests come in whole, to be refused. */
#define LAST_WORDS 2

static void say_error(const qn_server *s)
{
    char text[2 * QN_ERROR_SIZE];
    snprintf(text, sizeof text, "%s%s%s", qn_error_where(),
             *qn_error_where() ? ": " : "", qn_error_text());
    say(s, text);
}

static void begin_drain(qn_server *s)
{
    s->state = QN_SERVER_DRAINING;
    double now = qn_server_now();
    s->drain_until = now + s->config.drain;
    s->coming_until = now + LAST_WORDS;
    qn_notify_manager("STOPPING=1");
    /* Others are refused at once, or reach whoever listens next. */
    qn_httpd_quiesce(s->httpd);
    qn_listeners_close(&s->listeners);
    say(s, "shutting down: running requests may end");
    qn_turns_end_loading(s, QN_API_SHUTTING_DOWN, shutting_down);
}

static void on_tick(void *data, double now)
{
    qn_server *s = data;
    qn_turns_tick(s, now);
    if (s->state != QN_SERVER_DRAINING)
        return;
    if (now >= s->drain_until)
        qn_turns_end(s, QN_API_SHUTTING_DOWN, shutting_down);
    if (now >= s->drain_until + LAST_WORDS)
        qn_loop_stop(s->loop);
}

/* The file of keys as it is now; a bad one leaves those that were there. */
static void reload(qn_server *s)
{
    qn_keys keys = {0};
    qn_status status = QN_OK;
    for (size_t i = 0; i < s->config.keys.count && !status; i++) {
        qn_key *items =
            qn_reallocarray(keys.items, keys.count + 1, sizeof *items);
        if (!items) {
            status = QN_E_NOMEM;
            break;
        }
        keys.items = items;
        keys.items[keys.count++] = s->config.keys.items[i];
    }
    if (!status && s->config.key_file)
        status = qn_keys_read(&keys, s->config.key_file);
    if (!status)
        status = qn_models_lanes(s, keys.count + 1);
    if (status) {
        say_error(s);
        qn_keys_free(&keys);
    } else {
        qn_keys_free(&s->keys);
        s->keys = keys;
    }
    qn_access_close(&s->log);
    if (qn_access_open(&s->log))
        say_error(s);
    qn_access_close(&s->content);
    if (s->content.path && qn_access_open(&s->content))
        say_error(s);
}

/* Whether all that is waited for has come to its end. */
static bool is_drained(const qn_server *s)
{
    size_t busy = qn_httpd_busy(s->httpd);
    if (busy && qn_server_now() >= s->coming_until)
        busy -= qn_httpd_coming(s->httpd);
    return !s->turns && !busy;
}

static int on_idle(void *data)
{
    qn_server *s = data;
    if (atomic_exchange(&s->reload_asked, false))
        reload(s);
    if (atomic_load(&s->stop_asked) && s->state != QN_SERVER_DRAINING) {
        /* Nothing can be running yet. */
        if (s->state == QN_SERVER_LOADING)
            s->code = 0;
        begin_drain(s);
    }
    int wait = qn_httpd_idle(s->httpd);
    int until = qn_models_idle(s, qn_server_now());
    if (until >= 0 && (wait < 0 || until < wait))
        wait = until;
    if (s->state == QN_SERVER_DRAINING && is_drained(s))
        qn_loop_stop(s->loop);
    return wait;
}

void qn_server_started(qn_server *s, int code)
{
    const qn_slot *first = &s->models.slots[0];
    if (code || s->state == QN_SERVER_DRAINING) {
        s->code = s->state == QN_SERVER_DRAINING ? 0 : code;
        qn_loop_stop(s->loop);
        return;
    }
    const qn_server_ready ready = {.url = s->listeners.url,
                                   .ctx = first->info.ctx,
                                   .parallel = first->plan.parallel,
                                   .port = s->listeners.port};
    s->code = s->config.ready(s->config.data, &ready);
    if (s->code) {
        qn_loop_stop(s->loop);
        return;
    }
    s->state = QN_SERVER_SERVING;
    qn_notify_manager("READY=1");
}

/* ---- the whole ---- */

static qn_status bind_all(qn_server *s)
{
    bool inherited;
    qn_status status =
        qn_listen_inherited(&s->listeners, s->config.open, &inherited);
    if (!status && !inherited)
        status = qn_listen(&s->listeners, s->config.hosts, s->config.host_count,
                           s->config.port);
    for (size_t i = 0; i < s->listeners.count && !status; i++)
        status = qn_httpd_listen(s->httpd, s->listeners.fds[i]);
    return status;
}

static qn_status read_keys(qn_server *s)
{
    qn_status status = QN_OK;
    const qn_keys *given = &s->config.keys;
    s->keys.items =
        qn_calloc(given->count ? given->count : 1, sizeof *s->keys.items);
    if (!s->keys.items)
        return QN_E_NOMEM;
    for (size_t i = 0; i < given->count; i++)
        s->keys.items[s->keys.count++] = given->items[i];
    if (s->config.key_file)
        status = qn_keys_read(&s->keys, s->config.key_file);
    if (status)
        return qn_fail_where(status, "%s", s->config.key_file);
    return qn_models_lanes(s, s->keys.count + 1);
}

static qn_status set_up(qn_server *s)
{
    const qn_httpd_calls calls = {.data = s,
                                  .head = on_head,
                                  .request = on_request,
                                  .drained = on_drained,
                                  .end = on_end,
                                  .tick = on_tick,
                                  .refused = on_refused};
    qn_status status = qn_models_init(s);
    if (!status)
        status = read_keys(s);
    if (!status)
        status = qn_metrics_init(&s->metrics);
    if (!status)
        status = qn_access_open(&s->log);
    if (!status && s->content.path)
        status = qn_access_open(&s->content);
    if (!status)
        status = qn_workers_new(&s->workers, WORKERS);
    if (!status)
        status = qn_workers_new(&s->embedders, s->config.parallel);
    if (!status)
        status = qn_loop_new(&s->loop);
    if (!status)
        status = qn_httpd_new(&s->httpd, s->loop, &calls, &s->config.limits);
    return status ? status : bind_all(s);
}

qn_status qn_server_open(qn_server **out, const qn_server_config *config)
{
    qn_server *s = qn_calloc(1, sizeof *s);
    if (!s)
        return QN_E_NOMEM;
    s->config = *config;
    s->log = (qn_access_log){.json = config->log_json,
                             .level = config->log_level,
                             .path = config->log_file,
                             .fd = -1};
    s->content =
        (qn_access_log){.path = config->log_content, .secret = true, .fd = -1};
    s->created = (int64_t)qn_server_time();
    s->facts = (qn_api_server){.strict_fields = config->strict_fields,
                               .many_models = config->many,
                               .compat_mlx_lm = config->compat_mlx_lm};
    qn_status status = qn_responses_new(&s->facts.responses, QN_RESPONSES_BYTES,
                                        QN_RESPONSES_SECONDS);
    if (!status)
        status = set_up(s);
    if (status) {
        qn_error kept;
        qn_error_save(&kept);
        qn_server_free(s);
        qn_error_restore(&kept);
    } else {
        *out = s;
    }
    return status;
}

int qn_server_run(qn_server *s)
{
    if (qn_models_start(s))
        return EXIT_FAILURE_CODE;
    qn_loop_run(s->loop, on_idle, s);
    return s->code;
}

void qn_server_free(qn_server *s)
{
    if (!s)
        return;
    /* Clients first; then those who work for them. */
    qn_httpd_free(s->httpd);
    qn_workers_free(s->workers);
    qn_workers_free(s->embedders);
    if (s->loop)
        qn_turns_drop(s);
    qn_listeners_close(&s->listeners);
    qn_models_clear(s);
    qn_loop_free(s->loop);
    qn_responses_free(s->facts.responses);
    qn_keys_free(&s->keys);
    qn_metrics_clear(&s->metrics);
    qn_access_close(&s->log);
    qn_access_close(&s->content);
    qn_free(s);
}

void qn_server_ask_stop(qn_server *s)
{
    atomic_store(&s->stop_asked, true);
    ssize_t n = write(qn_loop_fd(s->loop), &(uint64_t){1}, sizeof(uint64_t));
    (void)n; /* full: it looks up anyway */
}

void qn_server_ask_reload(qn_server *s)
{
    atomic_store(&s->reload_asked, true);
    ssize_t n = write(qn_loop_fd(s->loop), &(uint64_t){1}, sizeof(uint64_t));
    (void)n;
}
