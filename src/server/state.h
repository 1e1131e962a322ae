/* state.h: what the parts of a running server share.  It belongs to the loop's
 * thread, but for what is said to be fixed once the model is loaded. */
#ifndef QN_SERVER_STATE_H
#define QN_SERVER_STATE_H

#include "access.h"
#include "listen.h"
#include "metrics.h"
#include "queue.h"
#include "route.h"
#include "server.h"
#include "work.h"

#include <stdatomic.h>

typedef enum qn_server_state {
    QN_SERVER_LOADING,
    QN_SERVER_SERVING,
    QN_SERVER_DRAINING
} qn_server_state;

struct qn_turn;

struct qn_server {
    qn_server_config config;
    qn_loop *loop;
    qn_httpd *httpd;
    qn_workers *workers, *embedders;
    qn_listeners listeners;
    qn_keys keys;
    qn_metrics metrics;
    qn_access_log log;
    qn_access_log content; /* what is asked and answered; fd -1: nowhere */
    atomic_bool stop_asked, reload_asked;
    qn_server_state state;
    int code; /* to exit with */
    double drain_until, coming_until;
    int64_t created;

    /* Loading. */
    qn_work load_work;
    qn_task loaded_task;
    _Atomic uint64_t expected;
    int load_code;

    /* Fixed once the model is loaded; workers read them. */
    quern_model *model;
    quern_info info;
    quern_request defaults;
    char fingerprint[64];
    qn_api_server facts;
    qn_api_model api;

    /* Turns (turn.c). */
    qn_queue queue;
    struct qn_turn *turns;
    qn_task pump;     /* looks who may begin */
    size_t rows;      /* that are computed */
    size_t running;   /* turns with such rows */
    uint64_t kv_used; /* reserved by them */
    double service;   /* recent seconds of a turn */
};

/* The key that a request came with: its lane is one more, without a key 0. */
int qn_server_key(const qn_server *s, const qn_exchange *x);

/* Replies with an error, in the shape of the route. */
void qn_server_fail(qn_server *s, qn_exchange *x, const qn_api_error *error);
/* Replies with JSON; takes the buffer. */
void qn_server_json(qn_server *s, qn_exchange *x, qn_buf *body);

#endif
