/* openai.h: what chat completions and completions share of their own. */
#ifndef QN_SERVER_OPENAI_H
#define QN_SERVER_OPENAI_H

#include "common.h"

/* The fields of a body that are no part of every call; call->extra. */
typedef struct qn_openai {
    /* -1: not said; -2: to the context's end; 0: only the prompt is echoed. */
    int64_t max_tokens;
    /* chat */
    const qn_json *messages;
    const qn_json *variables; /* chat_template_kwargs */
    const char *effort;       /* reasoning_effort */
    bool continue_final;
    /* completions */
    const qn_json *prompt, *suffix;
    bool echo;
    int32_t best_of; /* 0: not said */
    qn_str *prompts; /* their texts, when they are echoed */
} qn_openai;

/* ---- parsing (openai_chat.c) ---- */

/* Rows of both routes, into a qn_openai. */
extern const qn_field qn_openai_fields[];
extern const size_t qn_openai_field_count;

/* chat_template_kwargs, a const qn_json *: what is the request's own may not be
 * among them. */
qn_field_step qn_take_variables;

/* Parses a body by the tables of both routes and `own`, whose base is the
 * qn_openai that it makes; `required` has to be there. */
bool qn_openai_parse(qn_api_call *call, qn_str body,
                     const qn_api_server *server, const qn_field *own,
                     size_t own_count, const char *required,
                     bool (*check)(qn_reading *r, const qn_openai *asked),
                     qn_api_error *error);

/* How long an answer may be, as qn_lengths has it. */
int64_t qn_openai_length(const qn_openai *asked);
/* The field that says so. */
const char *qn_openai_length_name(const qn_api_call *call);

/* ---- log probabilities (openai_logprobs.c) ---- */

typedef enum qn_logprob_style {
    QN_LOGPROBS_NONE,   /* not asked for: null */
    QN_LOGPROBS_CHAT,   /* {"content": [{token, logprob, bytes, ...}]} */
    QN_LOGPROBS_LEGACY, /* {"tokens", "token_logprobs", ...} of completions */
    /* The same by ids, and chat's list with ids: mlx-lm's server has had both.
     */
    QN_LOGPROBS_MLX
} qn_logprob_style;

/* Tokens on their way into an answer, as JSON. */
typedef struct qn_logprobs {
    qn_logprob_style style;
    size_t count;
    qn_buf parts[4]; /* elements of the lists of the style */
    int64_t offset;  /* characters before the next token */
} qn_logprobs;

/* Of a prompt, the first token of which has none. */
void qn_logprobs_add_prompt(qn_logprobs *l, const quern_token *tokens,
                            size_t count);
void qn_logprobs_add(qn_logprobs *l, const quern_token *tokens, size_t count);
/* Writes the object of the tokens that were added since the last time, or null
 * when there are none. */
void qn_logprobs_write(qn_logprobs *l, qn_buf *out);
void qn_logprobs_free(qn_logprobs *l);

/* ---- answers (openai_answer.c) ---- */

/* Sums over the results of a call. */
typedef struct qn_openai_usage {
    int64_t prompt, cached, completion, reasoning, drafted, accepted;
    int64_t computed, decoded;            /* tokens, of the times below */
    double queue, prefill, first, decode; /* seconds; the longest of all */
} qn_openai_usage;

/* Adds result `index` of a call with n answers to each prompt: a prompt counts
 * once. */
void qn_openai_count(qn_openai_usage *usage, const quern_result *result,
                     size_t index, int32_t n);
/* "usage": {...}, and "timings": {...} */
void qn_openai_write_usage(qn_json_writer *w, const qn_openai_usage *usage);
void qn_openai_write_timings(qn_json_writer *w, const qn_openai_usage *usage);
/* The members "id" to "system_fingerprint". */
void qn_openai_write_head(qn_json_writer *w, const qn_api_head *head,
                          const char *prefix, const char *object);

/* What is shown of a result: nothing of the answer when no tokens were asked
 * for. */
quern_result qn_completions_shown(const qn_api_call *call,
                                  const quern_result *result);
/* The text of the prompt of answer `index`, when it is to be echoed; else
 * empty. */
qn_str qn_completions_echo(const qn_api_call *call, size_t index);
/* Characters (code points) of a text. */
int64_t qn_characters(qn_str text);

void qn_chat_answer(qn_buf *out, const qn_api_call *call,
                    const qn_api_head *head, const quern_result *results);
void qn_completions_answer(qn_buf *out, const qn_api_call *call,
                           const qn_api_head *head,
                           const quern_result *results);

/* "reasoning_content", or what the profile calls it. */
const char *qn_reasoning_name(const qn_api_call *call);
/* How the call's answers show log probabilities. */
qn_logprob_style qn_logprob_style_of(const qn_api_call *call, bool chat);

/* ---- streams (openai_stream.c): members of qn_api_protocol ---- */

void qn_chat_begin(qn_api_stream *s, qn_buf *out);
void qn_completions_begin(qn_api_stream *s, qn_buf *out);
void qn_openai_event(qn_api_stream *s, size_t index, const quern_event *event,
                     double elapsed_ms, qn_buf *out);
void qn_openai_end(qn_api_stream *s, qn_buf *out);
void qn_openai_error(qn_api_stream *s, const qn_api_error *error, qn_buf *out);
void qn_openai_ping(qn_api_stream *s, qn_buf *out);
void qn_openai_clear(qn_api_stream *s);

#endif
