/* answer.h: one answer in the making: logits in, events out.
 *
 * A token is picked (sampler.h), turned into text (text/detok.h), told from
 * thoughts (reasoning.h), let through the stops (stops.h) and told from calls
 * of functions (calls.h); what is certain then becomes an event.  Nothing here
 * computes with the model. */
#ifndef QN_RUNTIME_ANSWER_H
#define QN_RUNTIME_ANSWER_H

#include "base/arena.h"
#include "calls.h"
#include "reasoning.h"
#include "runtime.h"
#include "sampler.h"
#include "stops.h"
#include "text/detok.h"

/* A token of the answer, until it is handed over. */
typedef struct qn_answer_token {
    quern_token token;
    size_t end; /* of its text in everything decoded */
} qn_answer_token;

typedef struct qn_answer {
    const quern_model *model;
    int64_t max_tokens, min_tokens;
    int64_t ahead; /* tokens of the context before any history */
    bool ignore_eos, logprobs;
    int top_logprobs;
    /* Takes an event; a failure ends the answer. */
    qn_status (*emit)(void *data, const quern_event *event);
    void *data;
    qn_sampler *sampler;
    qn_detok *detok;
    qn_stops stops;
    qn_router router;
    qn_calls calls;
    qn_buf passed;  /* scratch: what the stops let through to them */
    qn_arena arena; /* bytes and top lists of tokens; texts of stops */
    qn_answer_token *tokens;
    size_t count, capacity;
    quern_token *prompt;  /* with log probabilities; NULL: not asked for */
    size_t scored;        /* of these, known */
    size_t told;          /* tokens that events have brought */
    size_t decoded;       /* bytes that the detokenizer has given */
    qn_buf text, thought; /* the answer, and what came before it */
    bool fresh;           /* line ends that come now are a mark's */
    size_t line_ends;     /* of a thought, which may be its last */
    int64_t thought_tokens;
    int64_t budget;    /* tokens of thoughts that are left; -1: no end */
    qn_buf piece;      /* scratch: decoded text of one step */
    quern_token *list; /* scratch: tokens of one event */
    size_t list_capacity;
    quern_finish finish;
    int32_t end_id;
} qn_answer;

/* QN_E_ARG naming the value when one is out of range. */
qn_status qn_answer_check(const quern_request *request);
/* `prompt` is what the model reads; texts of the request are copied.  Clear
 * *answer in any case. */
qn_status qn_answer_init(qn_answer *answer, const quern_model *model,
                         const quern_request *request, const int32_t *prompt,
                         size_t count);
void qn_answer_clear(qn_answer *answer);

/* Whether the likeliest token is all that is asked for, so that the logits need
 * not be looked at as long as it is allowed. */
bool qn_answer_is_plain(const qn_answer *answer);
/* Picks the next token behind the `count` tokens of `history` from the
 * session's logits at the last position but `back` (`pick` belongs to it; may
 * be NULL), and takes it in.  answer->finish tells whether it was the last. */
qn_status qn_answer_take(qn_answer *answer, quern_session *session, size_t back,
                         const qn_pick *pick, const int32_t *history,
                         size_t count, int32_t *id);
/* Takes in what the session's logits, of the last position but `back`, say of
 * the prompt's next token; of the first one they say nothing. */
qn_status qn_answer_score(qn_answer *answer, quern_session *session,
                          size_t back, int32_t id);
/* What is still held, at the end of the answer. */
qn_status qn_answer_finish(qn_answer *answer);

/* Moves text and tokens into *result, whose other members stay. */
qn_status qn_answer_hand_over(qn_answer *answer, quern_result *result);

#endif
