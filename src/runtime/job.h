/* job.h: an answer as a row of the scheduler's, and its events. */
#ifndef QN_RUNTIME_JOB_H
#define QN_RUNTIME_JOB_H

#include "answer.h"
#include "draft.h"
#include "prefix.h"

/* An event that waits for its reader, and what it points into. */
typedef struct qn_event_node {
    struct qn_event_node *next;
    quern_event event;
    quern_token *tokens;
    char text[];
} qn_event_node;

struct quern_job {
    qn_row row; /* first: a row is its job */
    quern_model *model;
    quern_session *session;
    bool own_session;
    /* The thread's own while the job runs. */
    qn_answer answer;
    qn_draft draft;
    qn_pick picks[1 + QN_MAX_DRAFT];
    qn_ids all;     /* prompt and answer, but for a token that ended it */
    size_t unknown; /* of these, at the beginning */
    int64_t prompt, cached;
    bool prompted; /* all of the prompt is computed */
    double called, start, prompt_end, first, end;
    /* Where prompts are kept and looked for; NULL: nowhere (the session is the
     * caller's, or the request or the model wants none). */
    qn_prefixes *store;
    char *space;
    int choice; /* of rotary positions, for the whole length */
    quern_checkpoint *checkpoints;
    size_t checkpoint_count, next_checkpoint;
    bool forgets;  /* what is kept at the end can't be cut at any length */
    size_t learnt; /* another one: what other prompts had too; 0: none */
    /* See share.h. */
    quern_job *leader, *followers, *next_follower;
    size_t want;
    bool same;
    bool begun, told_start;
    bool given;     /* the prompt's logits are in the session */
    qn_status late; /* a failure that the next step is to report */
    qn_error late_error;
    /* With the lock. */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    qn_event_node *events, **last;
    size_t unread, unread_limit;
    bool paused, done;
    qn_status status;
    quern_error error;
    quern_result result;
    int fd; /* -1: none yet */
    void (*wake)(void *data);
    void *wake_data;
    qn_event_node *current; /* the reader's */
};

/* Puts a copy of the event behind the others; `data` is the job. */
qn_status qn_job_emit(void *data, const quern_event *event);
/* A job that has waited for another one's prompt goes on. */
void qn_job_go(quern_job *job);
/* The row's part of the job, on the model's thread. */
extern const qn_row_calls qn_job_calls;

#endif
