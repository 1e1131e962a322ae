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

/* What is known once requests are answered. */
typedef struct qn_server_ready {
    const char *url; /* of the first address */
    int port;
    /* Of the model that is alone. */
    int64_t ctx;
    int parallel;
} qn_server_ready;

/* What GET / shows, and the Content-Security-Policy that goes with it. */
typedef struct qn_server_page {
    const char *data; /* NULL: there is no such path */
    size_t size;
    const char *policy;
} qn_server_page;

typedef struct qn_server_model {
    const char *id;   /* that clients see */
    bool optional;    /* the server starts also when it can't be loaded */
    const char *disk; /* where its prompts are kept; NULL: nowhere */
} qn_server_model;

/* Another name of a model. */
typedef struct qn_server_alias {
    const char *name;
    size_t model; /* its index */
} qn_server_alias;

/* How a model is loaded. */
typedef struct qn_model_plan {
    int64_t ctx; /* tokens of a sequence */
    int parallel;
    bool drafts;        /* with speculation */
    uint64_t kv_budget; /* bytes that sequences may reserve */
    quern_fit fit;
} qn_model_plan;

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
    /* One model that is loaded at the start and stays, or, with `many`, models
     * that are loaded as they are asked for. */
    const qn_server_model *models;
    size_t model_count;
    const qn_server_alias *aliases;
    size_t alias_count;
    bool many;
    double idle_unload;    /* seconds; 0: never */
    quern_machine machine; /* as it is with no model loaded */
    bool force;            /* load also what does not fit */

    bool strict_model, strict_fields, metrics_open, compat_mlx_lm;
    bool shared_cache; /* keys have prompts from each other */
    quern_pooling pooling;
    int64_t default_max_tokens;
    int parallel, key_parallel, max_queue;
    double queue_timeout; /* 0: none */
    double ping, drain;
    uint64_t kv_asked; /* bytes of each model, by the flags; 0: nothing */

    bool log_json;
    quern_log_level log_level;
    const char *log_file, *log_content; /* NULL: stderr; none */
    bool trust_proxy;

    void *data;
    /* These three are called on other threads, the first also on several at a
     * time; QN_E_NOMEM of the runtime's: it does not fit.
     * Reads what is known of a model without its weights. */
    quern_status (*headers)(void *data, size_t model, quern_model **out,
                            quern_error *error);
    /* Decides how it is loaded, with nothing else in memory; ctx 0: as the
     * flags say.  A plan that does not fit says in `fit` why. */
    quern_status (*plan)(void *data, size_t model, const quern_model *headers,
                         int64_t ctx, qn_model_plan *plan, quern_error *error);
    quern_status (*load)(void *data, size_t model, const qn_model_plan *plan,
                         quern_model **out, quern_error *error);
    /* Says why the server can't start with a model; the exit code. */
    int (*fail)(void *data, size_t model, const qn_model_plan *plan,
                const quern_error *error);
    /* Puts what the flags say of sampling over a request's defaults. */
    void (*settle)(void *data, quern_request *defaults);
    /* Requests are answered from now on.  An exit code. */
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
