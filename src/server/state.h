/* state.h: what the parts of a running server share.  It belongs to the loop's
 * thread, but for what is said to be fixed. */
#ifndef QN_SERVER_STATE_H
#define QN_SERVER_STATE_H

#include "access.h"
#include "listen.h"
#include "metrics.h"
#include "models.h"
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

    qn_api_server facts; /* fixed; workers read them */
    qn_models models;

    /* Turns (turn.c). */
    struct qn_turn *turns;
    double service; /* recent seconds of a turn */
};

/* The models are known, and the one that is alone is loaded; else a code to
 * exit with. */
void qn_server_started(qn_server *s, int code);

/* A line on standard error, if its level is wanted. */
void qn_server_say(const qn_server *s, quern_log_level level, const char *text);

/* The key that a request came with: its lane is one more, without a key 0. */
int qn_server_key(const qn_server *s, const qn_exchange *x);

/* Replies with an error, in the shape of the route. */
void qn_server_fail(qn_server *s, qn_exchange *x, const qn_api_error *error);
/* Replies with JSON; takes the buffer. */
void qn_server_json(qn_server *s, qn_exchange *x, qn_buf *body);

#endif
