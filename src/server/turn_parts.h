/* turn_parts.h: what the files of a turn share: turn.c (replies, time, letting
 * go), turn_read.c (from a body to a place in its model's queue) and turn_run.c
 * (from there to the last token). */
#ifndef QN_SERVER_TURN_PARTS_H
#define QN_SERVER_TURN_PARTS_H

#include "turn.h"

typedef enum qn_turn_state {
    QN_TURN_READING, /* a worker has it */
    QN_TURN_LOADING, /* waits for its model */
    QN_TURN_WAITING, /* in the queue, with none of its rows begun */
    QN_TURN_RUNNING,
    QN_TURN_OVER /* the reply is made, or nobody waits for it */
} qn_turn_state;

/* One request of a call; embeddings are one that has no job. */
typedef struct qn_turn_row {
    quern_job *job; /* NULL: not begun, or done */
    bool done;
    uint64_t kv; /* reserved */
    double last; /* when it gave tokens */
    quern_result result;
} qn_turn_row;

typedef struct qn_turn {
    qn_place place; /* first: a place is its turn */
    qn_task task;
    qn_work work;
    qn_waiter waiter;
    struct qn_turn *next, *before;
    qn_server *s;
    qn_slot *slot; /* its model; NULL: not known yet, or none */
    bool has_slot; /* until it gives that back */
    bool parsed, prepared;
    int64_t head_ctx, head_parallel; /* of a model that is not loaded */
    qn_exchange *x;                  /* NULL: the client is gone */
    const qn_route *route;
    qn_turn_state state;
    char request_id[QN_REQUEST_ID_SIZE];
    char key_name[sizeof(((qn_key *)0)->name)]; /* "": none */
    double came, waited_from, wrote;

    /* The worker's until it hands the turn back. */
    qn_buf body;
    qn_api_head head;
    qn_api_call call;
    qn_api_error error;
    bool good;
    /* What the worker makes of it is of no use any more: its client is gone, or
     * has got another answer. */
    atomic_bool unwanted;
    /* Vectors: the worker's until `embedded`. */
    atomic_bool embedded;
    uint64_t kv; /* reserved */
    qn_api_error cause;
    int64_t tokens;
    qn_buf made;  /* the reply, of calls that need no turn */
    qn_buf space; /* whose prompts are kept together */

    qn_turn_row *rows;
    size_t begun, done;
    qn_api_stream stream;
    bool streaming;
    /* For the log. */
    double first_token; /* seconds after it came; 0: none */
    int64_t prompt, cached, completion, drafted, accepted;
    double queued; /* seconds */
    const char *finish, *failure;
} qn_turn;

static inline qn_turn *qn_turn_of_work(qn_work *work)
{
    return (qn_turn *)((char *)work - offsetof(qn_turn, work));
}

/* Rows that have begun and are not done. */
static inline size_t qn_turn_in_flight(const qn_turn *t)
{
    return t->begun - t->done;
}

static inline bool qn_turn_is_embedding(const qn_turn *t)
{
    return t->call.kind == QN_API_EMBED;
}

/* ---- turn.c ---- */

/* Ends with t->error. */
void qn_turn_fail(qn_turn *t);
/* Ends with an error, also while a worker has the turn; it is freed only when
 * its client is gone. */
void qn_turn_end_with(qn_turn *t, qn_api_code code, const char *why);
/* Ends with a body, whose bytes it takes. */
void qn_turn_reply(qn_turn *t, qn_buf *body);
/* All rows are done. */
void qn_turn_finish(qn_turn *t);
/* The headers that say what answers. */
void qn_turn_headers(qn_turn *t);
/* Writes to a stream, if there is something; frees the buffer. */
void qn_turn_write(qn_turn *t, qn_buf *out);
/* The model is asked for nothing more. */
void qn_turn_give_back(qn_turn *t);
/* Lets go of the model of a turn that is over, and frees one that nothing holds
 * any more. */
void qn_turn_settle(qn_turn *t);

/* ---- turn_run.c ---- */

/* Begins what there is room for among those that wait for a model. */
void qn_slot_pump(qn_slot *slot);
/* Takes what jobs have told since. */
void qn_turn_take_events(qn_turn *t);
/* The thread for embeddings has handed it back. */
void qn_turn_end_embedding(qn_turn *t);
/* KV cache that an answer reserves, and vectors. */
uint64_t qn_turn_answer_bytes(const qn_slot *slot, const quern_request *r);
uint64_t qn_turn_embedding_bytes(const qn_slot *slot, const qn_api_call *call);

#endif
