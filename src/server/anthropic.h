/* anthropic.h: what the parts of Anthropic's Messages share. */
#ifndef QN_SERVER_ANTHROPIC_H
#define QN_SERVER_ANTHROPIC_H

#include "common.h"

/* A conversation is a list of blocks, in order; the messages that a template
 * wants are made of any beginning of it. */
typedef enum qn_block_kind {
    QN_BLOCK_TEXT,
    QN_BLOCK_THINKING,
    QN_BLOCK_TOOL_USE,
    QN_BLOCK_TOOL_RESULT,
    QN_BLOCK_DROPPED /* redacted_thinking; it keeps its turn in place */
} qn_block_kind;

typedef enum qn_block_role {
    QN_FROM_SYSTEM,
    QN_FROM_USER,
    QN_FROM_ASSISTANT
} qn_block_role;

typedef struct qn_block {
    qn_block_kind kind;
    qn_block_role role;
    bool first;           /* of its message */
    qn_str text;          /* of TEXT and THINKING */
    const qn_json *value; /* of tools' blocks */
    const qn_json *use;   /* of TOOL_RESULT: the block that it answers */
    int64_t pin_seconds;  /* cache_control; 0: none */
} qn_block;

/* How a request wants its model to think. */
typedef enum qn_thinking {
    QN_THINKING_UNSAID,
    QN_THINKING_ON,
    QN_THINKING_OFF
} qn_thinking;

/* cache_control of a tool. */
typedef struct qn_tool_pin {
    uint32_t tool;
    int64_t seconds;
} qn_tool_pin;

enum { QN_MOST_PINS = 4 };

/* call->extra. */
typedef struct qn_anthropic {
    int64_t max_tokens; /* 0: not said */
    const qn_json *system, *messages;
    const char *effort; /* output_config.effort; NULL: not said */
    qn_thinking thinking;
    int64_t pin_seconds; /* cache_control of the whole */
    /* Tools with one of their own; more than there may be are not kept. */
    qn_tool_pin tool_pins[QN_MOST_PINS];
    size_t tool_pin_count;

    qn_block *blocks;
    size_t block_count;
    size_t pins; /* blocks and tools that have one */

    /* Tokens up to the last block with a pin, where prompts are kept: what is
     * not found of them is newly stored. */
    int64_t pinned_tokens;
} qn_anthropic;

/* ---- blocks (anthropic_blocks.c) ---- */

/* Types of `system` and `messages`, rows of a table. */
qn_field_step qn_system_shape;
qn_field_step qn_blocks_shape;
/* cache_control: its types, and its value into an int64_t of seconds. */
qn_field_step qn_cache_control_shape;
qn_field_step qn_take_cache_control;

/* Checks the values of both and fills a->blocks. */
bool qn_blocks_read(qn_reading *r, qn_anthropic *a);

/* Writes the first `count` blocks as messages for a template: equal neighbours
 * are one, tools' results have the role `tool`, and texts are one text unless
 * the template reads `lists`. */
void qn_blocks_write(qn_buf *out, const qn_block *blocks, size_t count,
                     bool lists);

/* ---- answers (anthropic_answer.c): members of qn_api_protocol ---- */

void qn_messages_answer(qn_buf *out, const qn_api_call *call,
                        const qn_api_head *head, const quern_result *results);
void qn_messages_begin(qn_api_stream *s, qn_buf *out);
void qn_messages_event(qn_api_stream *s, size_t index, const quern_event *event,
                       double elapsed_ms, qn_buf *out);
void qn_messages_end(qn_api_stream *s, qn_buf *out);
void qn_messages_error(qn_api_stream *s, const qn_api_error *error,
                       qn_buf *out);
void qn_messages_ping(qn_api_stream *s, qn_buf *out);
void qn_messages_clear(qn_api_stream *s);

#endif
