/* serve.c: `quern serve`: flags into a server, and whether its model fits. */
#include "cli.h"

#include "base/alloc.h"
#include "serve_models.h"
#include "server/listen.h"
#include "web/page.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PARALLEL = 8, DEFAULT_PORT = 8080 };

typedef struct serve {
    qn_cli *cli;
    qn_server_config config;
    qn_served models;
} serve;

static const qn_arg *flag_of(const serve *v, qn_flag flag)
{
    return &v->cli->args.flag[flag];
}

static int64_t whole(const serve *v, qn_flag flag, int64_t fallback)
{
    const qn_arg *arg = flag_of(v, flag);
    return arg->given ? arg->whole : fallback;
}

static double real(const serve *v, qn_flag flag, double fallback)
{
    const qn_arg *arg = flag_of(v, flag);
    return arg->given ? arg->real : fallback;
}

/* ---- checks ---- */

/* Whether others may reach the server. */
static bool is_open(const serve *v)
{
    return v->config.keys.count || v->config.key_file ||
           flag_of(v, QN_FLAG_ALLOW_UNAUTHENTICATED)->on;
}

static qn_status check_hosts(const serve *v)
{
    const qn_arg *host = flag_of(v, QN_FLAG_HOST);
    bool open = is_open(v);
    for (size_t i = 0; i < host->list_count; i++) {
        const char *name = host->list[i];
        if (!qn_listen_is_address(name))
            return qn_fail(QN_E_ARG,
                           "--host '%s': expected a host, an address or "
                           "unix:PATH",
                           name);
        if (!open && !qn_listen_is_local(name))
            return qn_fail(QN_E_ARG,
                           "--host %s: others could use this server; give an "
                           "--api-key or --allow-unauthenticated",
                           name);
    }
    const qn_arg *allowed = flag_of(v, QN_FLAG_ALLOWED_HOST);
    for (size_t i = 0; i < allowed->list_count; i++)
        if (!qn_listen_is_address(allowed->list[i]) ||
            strchr(allowed->list[i], '/'))
            return qn_fail(QN_E_ARG, "--allowed-host '%s': expected a host",
                           allowed->list[i]);
    return QN_OK;
}

static bool is_origin(const char *text)
{
    const char *host = strstr(text, "://");
    return host && host != text && host[3] && !strpbrk(host + 3, "/?# ");
}

static qn_status check_origins(const serve *v)
{
    const qn_arg *origin = flag_of(v, QN_FLAG_CORS_ORIGIN);
    bool keys = v->config.keys.count || v->config.key_file;
    for (size_t i = 0; i < origin->list_count; i++) {
        bool any = !strcmp(origin->list[i], "*");
        if (any && keys)
            return qn_fail(QN_E_ARG, "--cors-origin * and keys exclude each "
                                     "other");
        if (!any && !is_origin(origin->list[i]))
            return qn_fail(QN_E_ARG,
                           "--cors-origin '%s': expected an origin such as "
                           "http://localhost:3000",
                           origin->list[i]);
    }
    return QN_OK;
}

static qn_status check_ready_fd(const qn_arg *fd)
{
    if (fd->given && fcntl((int)fd->whole, F_GETFD) < 0)
        return qn_fail(QN_E_ARG, "--ready-fd %d: it is not open",
                       (int)fd->whole);
    return QN_OK;
}

/* ---- the configuration ---- */

static qn_status read_keys(serve *v)
{
    const qn_arg *keys = flag_of(v, QN_FLAG_API_KEY);
    const char *variable = getenv("QUERN_API_KEY");
    qn_status status = QN_OK;
    for (size_t i = 0; i < keys->list_count && !status; i++)
        status = qn_keys_add(&v->config.keys, qn_str_of(keys->list[i]));
    if (status)
        return qn_fail_where(status, "--api-key");
    if (variable && *variable &&
        qn_keys_find(&v->config.keys, qn_str_of(variable)) < 0)
        status = qn_keys_add(&v->config.keys, qn_str_of(variable));
    if (status)
        return qn_fail_where(status, "QUERN_API_KEY");
    const qn_arg *file = flag_of(v, QN_FLAG_API_KEY_FILE);
    if (!file->given)
        return QN_OK;
    /* The server reads it again at each SIGHUP; a bad one is told now. */
    qn_keys tried = {0};
    v->config.key_file = file->text;
    status = qn_keys_read(&tried, file->text);
    qn_keys_free(&tried);
    return status ? qn_fail_where(qn_fail(QN_E_ARG, "%s", qn_error_text()),
                                  "%s", file->text)
                  : QN_OK;
}

/* A list that ends with NULL; the caller frees it. */
static const char **list_of(const qn_arg *arg)
{
    const char **out = qn_calloc(arg->list_count + 1, sizeof *out);
    for (size_t i = 0; out && i < arg->list_count; i++)
        out[i] = arg->list[i];
    return out;
}

static void set_limits(serve *v)
{
    v->config.limits = (qn_httpd_limits){
        .max_body = (size_t)whole(v, QN_FLAG_MAX_BODY, 32 << 20),
        .max_connections = (int)whole(v, QN_FLAG_MAX_CONNECTIONS, 1024),
        .header_timeout = real(v, QN_FLAG_HEADER_TIMEOUT, 10),
        .body_timeout = real(v, QN_FLAG_BODY_TIMEOUT, 30),
        .idle_timeout = 75,
        .write_timeout = real(v, QN_FLAG_WRITE_TIMEOUT, 60),
        .request_timeout = real(v, QN_FLAG_REQUEST_TIMEOUT, 0),
    };
}

static void set_config(serve *v)
{
    static const char *const here[] = {"127.0.0.1"};
    const qn_arg *host = flag_of(v, QN_FLAG_HOST);
    const qn_arg *format = flag_of(v, QN_FLAG_LOG_FORMAT);
    const qn_arg *level = flag_of(v, QN_FLAG_LOG_LEVEL);
    const qn_arg *file = flag_of(v, QN_FLAG_LOG_FILE);
    const qn_arg *content = flag_of(v, QN_FLAG_LOG_CONTENT);
    qn_server_config *c = &v->config;
    c->hosts = host->list_count ? host->list : here;
    c->host_count = host->list_count ? host->list_count : 1;
    c->port = (int)whole(v, QN_FLAG_PORT, DEFAULT_PORT);
    c->strict_model = flag_of(v, QN_FLAG_STRICT_MODEL)->on;
    c->strict_fields = flag_of(v, QN_FLAG_STRICT_FIELDS)->on;
    c->compat_mlx_lm = flag_of(v, QN_FLAG_COMPAT)->given;
    c->trust_proxy = flag_of(v, QN_FLAG_TRUST_PROXY)->on;
    c->metrics_open = flag_of(v, QN_FLAG_METRICS_OPEN)->on;
    if (!flag_of(v, QN_FLAG_UI)->given || flag_of(v, QN_FLAG_UI)->on)
        c->page = qn_web_page;
    c->default_max_tokens =
        whole(v, QN_FLAG_DEFAULT_MAX_TOKENS,
              flag_of(v, QN_FLAG_COMPAT)->given ? 512 : 4096);
    c->parallel = (int)whole(v, QN_FLAG_PARALLEL, PARALLEL);
    c->key_parallel = (int)whole(v, QN_FLAG_KEY_PARALLEL, 0);
    c->max_queue = (int)whole(v, QN_FLAG_MAX_QUEUE, 64);
    c->queue_timeout = real(v, QN_FLAG_QUEUE_TIMEOUT, 300);
    c->ping = real(v, QN_FLAG_SSE_PING, 10);
    c->drain = real(v, QN_FLAG_DRAIN, 30);
    c->kv_asked = (uint64_t)whole(v, QN_FLAG_KV_BUDGET, 0);
    c->log_json = format->given && !strcmp(format->text, "json");
    c->log_level = v->cli->quiet ? QUERN_LOG_ERROR : QUERN_LOG_INFO;
    if (level->given)
        qn_log_level_of(level->text, &c->log_level);
    c->log_file = file->given ? file->text : NULL;
    c->log_content = content->given ? content->text : NULL;
    c->idle_unload = real(v, QN_FLAG_IDLE_UNLOAD, 0);
    c->pooling = qn_cli_pooling(flag_of(v, QN_FLAG_POOLING));
    c->shared_cache = flag_of(v, QN_FLAG_SHARED_CACHE)->on;
    set_limits(v);
    v->config.open = is_open(v);
}

static qn_status check_deterministic(const qn_arg *flag)
{
#ifdef QUERN_ENGINE_DLOPEN
    if (flag->given && flag->on)
        return qn_fail(QN_E_UNSUPPORTED,
                       "--deterministic: libmlxc does not promise that");
#endif
    (void)flag;
    return QN_OK;
}

static qn_status read_flags(serve *v)
{
    qn_status status = read_keys(v);
    if (!status)
        status = check_deterministic(flag_of(v, QN_FLAG_DETERMINISTIC));
    set_config(v);
    if (!status)
        status = check_hosts(v);
    if (!status)
        status = check_origins(v);
    if (!status)
        status = check_ready_fd(flag_of(v, QN_FLAG_READY_FD));
    if (status)
        return status;
    v->config.allowed_hosts = list_of(flag_of(v, QN_FLAG_ALLOWED_HOST));
    v->config.origins = list_of(flag_of(v, QN_FLAG_CORS_ORIGIN));
    return v->config.allowed_hosts && v->config.origins ? QN_OK : QN_E_NOMEM;
}

/* ---- calls of the server ---- */

static void settle(void *data, quern_request *defaults)
{
    const qn_served *s = data;
    qn_cli_set_request(defaults, &s->cli->args);
}

static int tell_port(const qn_cli *cli, int port)
{
    const qn_arg *fd = &cli->args.flag[QN_FLAG_READY_FD];
    char text[16];
    int size = snprintf(text, sizeof text, "%d\n", port);
    if (!fd->given)
        return QN_EXIT_OK;
    if (write((int)fd->whole, text, (size_t)size) != size)
        return qn_cli_fail(cli, QUERN_E_IO, "--ready-fd", strerror(errno),
                           NULL);
    if (fd->whole > STDERR_FILENO)
        close((int)fd->whole);
    return QN_EXIT_OK;
}

static void write_models(qn_json_writer *w, const qn_served *s)
{
    qn_json_write_key(w, "models");
    qn_json_write_array(w);
    for (size_t i = 0; i < s->count; i++)
        qn_json_write_text(w, s->items[i].id);
    qn_json_write_array_end(w);
}

static int print_ready(const qn_served *s, const qn_server_ready *ready)
{
    qn_buf out = QN_BUF_INIT;
    qn_json_writer w;
    qn_json_write_begin(&w, &out);
    qn_json_write_object(&w);
    qn_json_pair_text(&w, "schema", "quern.serve/1");
    qn_json_pair_text(&w, "url", ready->url);
    if (s->many) {
        write_models(&w, s);
        qn_json_pair_int(&w, "parallel", s->parallel);
    } else {
        qn_json_pair_text(&w, "model", s->items[0].id);
        qn_json_pair_int(&w, "ctx", ready->ctx);
        qn_json_pair_int(&w, "parallel", ready->parallel);
    }
    qn_json_pair_text(&w, "backend", "cpu");
    qn_json_pair_int(&w, "pid", getpid());
    qn_json_write_object_end(&w);
    return qn_out_json(s->cli, &out);
}

static int on_ready(void *data, const qn_server_ready *ready)
{
    qn_served *s = data;
    qn_cli *cli = s->cli;
    s->started = true;
    if (!cli->quiet && s->many)
        fprintf(stderr,
                "quern: serving %zu models on %s (parallel %d, backend cpu)\n",
                s->count, ready->url, s->parallel);
    else if (!cli->quiet)
        fprintf(stderr,
                "quern: serving %s on %s (ctx %lld, parallel %d, backend "
                "cpu)\n",
                s->items[0].id, ready->url, (long long)ready->ctx,
                ready->parallel);
    int code = cli->json ? print_ready(s, ready) : QN_EXIT_OK;
    return code ? code : tell_port(cli, ready->port);
}

/* ---- signals ---- */

static qn_server *serving;

static void on_end_signal(void)
{
    qn_server_ask_stop(serving);
}

static void on_hangup(int signal)
{
    (void)signal;
    qn_server_ask_reload(serving);
}

static void catch_hangup(bool on)
{
    struct sigaction action = {.sa_handler = on ? on_hangup : SIG_DFL};
    sigemptyset(&action.sa_mask);
    action.sa_flags = SA_RESTART;
    sigaction(SIGHUP, &action, NULL);
}

/* ---- the command ---- */

static qn_status check_idle(const serve *v)
{
    const qn_arg *idle = flag_of(v, QN_FLAG_IDLE_UNLOAD);
    if (idle->origin == QN_FROM_FLAG && idle->real > 0 && !v->models.many)
        return qn_fail(QN_E_ARG, "--idle-unload: one model stays loaded; "
                                 "several (--model NAME=MODEL, --models-dir) "
                                 "are unloaded");
    return QN_OK;
}

static int run(serve *v)
{
    qn_server *server = NULL;
    qn_status status = qn_server_open(&server, &v->config);
    if (status)
        return qn_cli_fail_status(v->cli, status, NULL);
    serving = server;
    qn_cli_watch_server(on_end_signal);
    catch_hangup(true);
    int code = qn_server_run(server);
    catch_hangup(false);
    qn_cli_watch_server(NULL);
    qn_server_free(server);
    return code;
}

/* Every flag with its value and where that comes from; keys stay secret. */
static int print_config(const serve *v)
{
    static const char *const origins[] = {"default", "flag", "environment",
                                          "file"};
    const qn_args *args = &v->cli->args;
    qn_buf out = QN_BUF_INIT, value = QN_BUF_INIT;
    for (int i = 0; i < QN_FLAG_COUNT; i++) {
        qn_flag_info info = qn_args_info((qn_flag)i);
        if (!(info.commands & QN_CMD_SERVE) || i == QN_FLAG_HELP)
            continue;
        qn_buf_clear(&value);
        bool given = qn_args_value(&value, args, (qn_flag)i);
        const char *text = !given                 ? info.fallback
                           : i == QN_FLAG_API_KEY ? "(set)"
                                                  : qn_buf_str(&value).data;
        qn_buf_printf(&out, "%-24s %-24s %s\n", info.name, text,
                      origins[args->flag[i].origin]);
    }
    qn_buf_free(&value);
    return qn_out_buffer(v->cli, &out);
}

int qn_cli_serve(qn_cli *cli)
{
    serve v = {.cli = cli, .models = {.cli = cli}};
    v.config.settle = settle;
    v.config.ready = on_ready;
    qn_status status = read_flags(&v);
    if (!status)
        status = qn_served_read(&v.models, cli, v.config.parallel,
                                v.config.kv_asked);
    if (!status)
        status = check_idle(&v);
    qn_served_configure(&v.models, &v.config);
    int code = status ? qn_cli_fail_status(cli, status, NULL) : QN_EXIT_OK;
    bool show = flag_of(&v, QN_FLAG_PRINT_CONFIG)->on;
    if (!code && show)
        code = print_config(&v);
    if (!code && flag_of(&v, QN_FLAG_SERVE_CHECK)->on)
        code = qn_served_check(&v.models);
    else if (!code && !show)
        code = run(&v);
    qn_served_clear(&v.models);
    qn_keys_free(&v.config.keys);
    qn_free((void *)v.config.allowed_hosts);
    qn_free((void *)v.config.origins);
    return code;
}
