/* responses.h: what the parts of OpenAI's Responses share. */
#ifndef QN_SERVER_RESPONSES_H
#define QN_SERVER_RESPONSES_H

#include "openai.h"

/* call->extra. */
typedef struct qn_asked_response {
    const qn_json *input, *metadata, *effort;
    const char *instructions, *previous;
    int64_t max_tokens; /* 0: not said */
    bool store;
    const qn_json *tools, *tool_choice; /* as they came, to be shown */
    /* After prepare: the conversation without the instructions, as elements of
     * a JSON array, in the call's arena. */
    qn_str messages;
} qn_asked_response;

/* ---- input (responses_items.c) ---- */

/* Types of `input`, a row of a table. */
qn_field_step qn_items_shape;

/* Checks the items and appends them as messages, elements of a JSON array, to
 * those that `messages` may have from earlier responses. */
bool qn_items_read(qn_reading *r, const qn_json *input, qn_buf *messages);

/* ---- answers (responses_answer.c): members of qn_api_protocol ---- */

void qn_response_answer(qn_buf *out, const qn_api_call *call,
                        const qn_api_head *head, const quern_result *results);
void qn_response_begin(qn_api_stream *s, qn_buf *out);
void qn_response_event(qn_api_stream *s, size_t index, const quern_event *event,
                       double elapsed_ms, qn_buf *out);
void qn_response_end(qn_api_stream *s, qn_buf *out);
void qn_response_error(qn_api_stream *s, const qn_api_error *error,
                       qn_buf *out);
void qn_response_clear(qn_api_stream *s);

#endif
