/* common.h: what OpenAI's protocols share: rows of fields, and the way from
 * prompts to requests. */
#ifndef QN_SERVER_COMMON_H
#define QN_SERVER_COMMON_H

#include "fields.h"

/* ---- rows ---- */

/* Into a qn_api_call: model, stream, cache. */
extern const qn_field qn_call_fields[];
extern const size_t qn_call_field_count;
/* Into its `asked`, from the call on, too: sampling, stops, limits. */
extern const qn_field qn_request_fields[];
extern const size_t qn_request_field_count;

/* What other servers take and this one does not do: refused where it asks for
 * something, or without effect.  Without a base. */
extern const qn_field qn_foreign_fields[];
extern const size_t qn_foreign_field_count;

/* The shape of a text, or of a list of texts. */
qn_field_step qn_shape_texts;
/* `stop`, for protocols with another name for it; into the call. */
qn_field_step qn_take_stops;
/* What the row of this name above does, for protocols that have some of them;
 * into the call that is read, whatever the base.  A range of the row's own
 * counts instead. */
qn_field_step qn_take_call_field;
qn_field_step qn_take_request_field;

/* ---- parsing ---- */

/* Makes a zeroed call ready for its body. */
void qn_call_begin(qn_api_call *call, const qn_api_server *server);
/* Two names of one thing that are both given say the same. */
bool qn_check_aliases(qn_reading *r, const qn_json *object,
                      const qn_table *tables, size_t count);
/* What only holds together: stream_options without stream, and so on.  Ends
 * parsing: also reports memory that was missing. */
bool qn_call_check(qn_reading *r);

/* ---- preparing (prepare.c) ---- */

/* Element `i` of a list of integers as a token's id below `limit`; `path` is
 * the list's. */
bool qn_take_id(int64_t *id, const qn_json *list, uint32_t i, int32_t limit,
                const char *path, qn_api_error *error);

/* A prompt as its tokens, in the call's arena. */
typedef struct qn_prompt {
    int32_t *ids;
    size_t count;
    /* Lengths to keep for other requests. */
    const quern_checkpoint *checkpoints;
    size_t checkpoint_count;
} qn_prompt;

/* Moves a list that the runtime gave into the arena and frees it. */
bool qn_keep_ids(qn_api_call *call, qn_prompt *out, int32_t *ids, size_t count,
                 qn_api_error *error);
/* The tokens of a raw text, in which special tokens count. */
bool qn_prompt_of_text(qn_api_call *call, qn_prompt *out,
                       const quern_model *model, qn_str text,
                       qn_api_error *error);
/* The tokens of a conversation.  Where caches can't go back they are kept at
 * the ends of instructions and of messages, QN_TURN_MARKS lengths at most: what
 * follows there is another thing in the next turn. */
enum { QN_TURN_MARKS = 3 };
bool qn_prompt_of_chat(qn_api_call *call, qn_prompt *out,
                       const quern_model *model, const quern_chat *chat,
                       qn_api_error *error);

/* How long answers may be. */
typedef struct qn_lengths {
    const char *prompt; /* the fields' names, for errors */
    bool list;          /* a prompt is an element of its field */
    const char *max_tokens;
    int64_t asked;    /* 0: not said; -1: up to the context's end */
    int64_t fallback; /* when not said, or what the context has left */
} qn_lengths;

/* The sampling of requests that say nothing of it, as mlx-lm's server has it:
 * the likeliest token, whatever the model's files say. */
void qn_sampling_as_mlx_lm(quern_sampling *sampling);

/* Makes call->requests, call->n of each prompt, of what the call asks and of
 * the model's defaults. */
bool qn_prepare_requests(qn_api_call *call, const qn_api_model *model,
                         const qn_api_head *head, const qn_prompt *prompts,
                         size_t count, const qn_lengths *lengths,
                         qn_api_error *error);

#endif
