/* server.h: `quern serve` behind its flags.
 *
 *   qn_server_open(&server, &config)   binds the addresses
 *   qn_server_run(server)              loads the model, serves, drains
 *   qn_server_free(server)
 *
 * Until the model is loaded /health says how far that has come and every other
 * route refuses. */
#ifndef QN_SERVER_SERVER_H
#define QN_SERVER_SERVER_H

#include "auth.h"
#include "http.h"

#include <quern/quern.h>

typedef struct qn_server qn_server;

/* What is known once the model is loaded. */
typedef struct qn_server_ready {
    const char *url; /* of the first address */
    const char *model;
    int64_t ctx;
    int parallel;
    int port;
} qn_server_ready;

/* What GET / shows, and the Content-Security-Policy that goes with it. */
typedef struct qn_server_page {
    const char *data; /* NULL: there is no such path */
    size_t size;
    const char *policy;
} qn_server_page;

/* Texts and lists outlive the server. */
typedef struct qn_server_config {
    /* Addresses: numbers and names of hosts, "unix:PATH". */
    const char *const *hosts;
    size_t host_count;
    int port; /* 0: any */
    int max_connections;
    qn_httpd_limits limits;

    bool open;    /* others may reach it: there are keys, or none are wanted */
    qn_keys keys; /* of flags and the environment; copied */
    const char *key_file;
    /* NULL-terminated. */
    const char *const *allowed_hosts, *const *origins;

    qn_server_page page;
    const char *model; /* the id that clients see */
    bool strict_model, strict_fields, metrics_open, compat_mlx_lm;
    bool drafts;       /* the model is loaded with speculation */
    bool shared_cache; /* keys have prompts from each other */
    quern_pooling pooling;
    int64_t default_max_tokens;
    int parallel, key_parallel, max_queue;
    double queue_timeout; /* 0: none */
    double ping, drain;
    uint64_t kv_asked;  /* by the flags; 0: nothing */
    uint64_t kv_budget; /* bytes; the same, or what `settle` says */

    bool log_json;
    quern_log_level log_level;
    const char *log_file, *log_content; /* NULL: stderr; none */
    bool trust_proxy;

    void *data;
    /* Loads the model, on a thread of its own; an exit code, after saying why.
     * *expected: bytes that the weights will take, as soon as that is known. */
    int (*load)(void *data, quern_model **out, _Atomic uint64_t *expected);
    /* After that: puts what the flags say of sampling over a request's
     * defaults, and what fits into the server's copy of this. */
    void (*settle)(void *data, quern_request *defaults,
                   struct qn_server_config *config);
    /* The model is loaded and requests are answered.  An exit code. */
    int (*ready)(void *data, const qn_server_ready *ready);
} qn_server_config;

/* QN_E_IO: an address can't be had; QN_E_ARG: it is none, or the file of keys
 * is refused. */
qn_status qn_server_open(qn_server **out, const qn_server_config *config);
/* Until qn_server_ask_stop; an exit code, what `load` gave if it failed. */
int qn_server_run(qn_server *server);
void qn_server_free(qn_server *server);

/* For a signal's handler: ends the server in good order, or reads the file of
 * keys again and opens the log anew. */
void qn_server_ask_stop(qn_server *server);
void qn_server_ask_reload(qn_server *server);

#endif
