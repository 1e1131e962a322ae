/* models.h: the models of a server: which are in memory, who uses them, and
 * which has to go when another needs the room.
 *
 * A slot is a model that the server was started with.  A call takes the slot
 * that it means and gives it back; as long as calls have it, it stays loaded.
 * One that is not loaded is loaded for those who wait for it, one after the
 * other, in the order in which the first of them came.  What a model takes was
 * predicted before (plan.fit.required), so what all loaded ones may come to use
 * is known: when the next one does not fit beside them, the idle one goes that
 * was not used for longest.  When all have calls, those that must go take no
 * new ones until then: these wait behind the one who needs the room.
 *
 * Everything belongs to the loop's thread.  Loading and freeing happen on a
 * worker's, one thing at a time; what a slot says of its loaded model is fixed
 * while a call has it, so workers read that. */
#ifndef QN_SERVER_MODELS_H
#define QN_SERVER_MODELS_H

#include "loop.h"
#include "metrics.h"
#include "protocol.h"
#include "queue.h"
#include "server.h"
#include "work.h"

#include <stdatomic.h>

typedef enum qn_slot_state {
    QN_SLOT_UNLOADED,
    QN_SLOT_LOADING,
    QN_SLOT_LOADED,
    QN_SLOT_UNLOADING,
    QN_SLOT_FAILED
} qn_slot_state;

struct qn_slot;

/* What somebody waits for. */
typedef enum qn_wait {
    QN_WAIT_LOADED,
    QN_WAIT_UNLOADED,
    QN_WAIT_SETTLED /* neither loading nor unloading */
} qn_wait;

/* Somebody who waits for a slot; embedded in what it is about. */
typedef struct qn_waiter {
    struct qn_waiter *next;
    struct qn_slot *slot; /* NULL: does not wait */
    uint64_t number;      /* who came first */
    int64_t ctx;          /* tokens of a sequence; 0: any */
    qn_wait what;
    /* The wait is over: the slot is the waiter's if it wanted it loaded, or
     * *error says why not. */
    void (*ready)(struct qn_waiter *waiter, const qn_api_error *error);
} qn_waiter;

/* What clients are told of a model, loaded or not. */
typedef struct qn_model_facts {
    char family[32], quantization[64];
    int64_t max_ctx;
    uint64_t bytes; /* of the weights */
    bool completes, chats, calls, embeds, reasons;
} qn_model_facts;

typedef struct qn_slot {
    size_t index; /* in the configuration */
    const char *id;
    qn_slot_state state;
    bool planned;
    qn_model_plan plan, usual; /* as it is loaded; as it is without `ctx` */
    qn_model_facts facts;      /* empty until its headers could be read */
    quern_error failure;       /* of the last try */

    /* While it is loaded. */
    quern_model *model;
    quern_info info;
    quern_request defaults;
    char fingerprint[64];
    qn_api_model api;

    size_t users; /* calls that have it */
    qn_waiter *line;
    bool leaving;   /* takes no new calls: its room is needed */
    bool unwanted;  /* is unloaded as soon as it is idle */
    double used_at; /* when the last call gave it back */
    double until;   /* idle for longer, it is unloaded */

    /* What is computed (turn.c). */
    qn_queue queue;
    qn_task pump;     /* looks who may begin */
    size_t rows;      /* that are computed */
    size_t running;   /* turns with such rows */
    uint64_t kv_used; /* reserved by them */
    qn_model_metrics metrics;
} qn_slot;

typedef enum qn_models_task {
    QN_MODELS_START, /* all headers are read; one model alone is loaded */
    QN_MODELS_PLAN,
    QN_MODELS_LOAD,
    QN_MODELS_FREE
} qn_models_task;

typedef struct qn_models {
    qn_slot *slots;
    size_t count;
    uint64_t numbers;  /* of waiters */
    uint64_t room_for; /* the one for whom slots are leaving; 0: nobody */
    qn_task advance;

    /* What a worker does; its own until `done` runs. */
    bool busy;
    qn_models_task task;
    qn_slot *slot;
    qn_work work;
    qn_task done;
    qn_model_plan plan;
    qn_model_facts facts;
    int64_t asked_ctx; /* of PLAN; 0: the usual one */
    quern_model *made;
    quern_error error; /* status QUERN_OK: none */
    int code;          /* of START: to exit with */
    double began;
    _Atomic uint64_t expected; /* bytes of the weights that are loaded */
} qn_models;

struct qn_server;

qn_status qn_models_init(struct qn_server *s);
/* After clients, workers and turns. */
void qn_models_clear(struct qn_server *s);
/* Makes sure that keys have their lanes in every queue. */
qn_status qn_models_lanes(struct qn_server *s, size_t count);

/* Reads what is known of all models, and loads the one that is alone; then
 * calls qn_server_started. */
qn_status qn_models_start(struct qn_server *s);

/* The slot of an id or an alias; without a name, or not `exact`, the only one
 * there is.  NULL after an error.  Fit for any thread. */
qn_slot *qn_models_find(struct qn_server *s, const char *name, bool exact,
                        qn_api_error *error);
/* The slot becomes the caller's, at once (true), or once waiter->ready says
 * so. */
bool qn_models_take(struct qn_server *s, qn_slot *slot, qn_waiter *waiter);
/* The slot becomes the caller's as it is, loaded or not, and stays so; false:
 * it is just being loaded or unloaded, and waiter->ready says when that is
 * over. */
bool qn_models_visit(struct qn_server *s, qn_slot *slot, qn_waiter *waiter);
/* keep_alive: as qn_api_call has it. */
void qn_models_give_back(struct qn_server *s, qn_slot *slot,
                         int64_t keep_alive);
/* Unloads an idle slot; true: it is unloaded already, else waiter->ready is
 * called.  A slot with calls is unloaded once they are over. */
bool qn_models_unload(struct qn_server *s, qn_slot *slot, qn_waiter *waiter);
/* Waits no longer. */
void qn_models_leave(struct qn_server *s, qn_waiter *waiter);
/* Whether calls have the slot or wait for it. */
bool qn_models_in_use(const qn_slot *slot);

/* Calls that wait for their model or for their turn: of all, and of one. */
size_t qn_models_waiting(const struct qn_server *s);
size_t qn_slot_waiting(const qn_slot *slot);

/* Unloads what was idle for too long; the milliseconds until there will be
 * more to unload, -1: nothing. */
int qn_models_idle(struct qn_server *s, double now);

#endif
