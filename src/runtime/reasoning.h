/* reasoning.h: which tokens of an answer are thoughts (runtime specification
 * 4.1).
 *
 * Models mark what they think by tokens of their own:
 *
 *   <think> ... </think>
 *   <|channel>thought NEWLINE ... <channel|>                    (Gemma 4)
 *   <|channel|>analysis<|message|> ... <|end|>                  (harmony)
 *
 * Marks and the names of channels are no text. */
#ifndef QN_RUNTIME_REASONING_H
#define QN_RUNTIME_REASONING_H

#include "text/tokenizer.h"

typedef enum qn_marker_kind {
    QN_MARKERS_NONE,
    QN_MARKERS_THINK,
    QN_MARKERS_CHANNEL,
    QN_MARKERS_HARMONY
} qn_marker_kind;

typedef struct qn_markers {
    qn_marker_kind kind;
    int32_t open, close;
    int32_t message, start; /* harmony */
} qn_markers;

/* The markers that the vocabulary has. */
void qn_markers_find(qn_markers *out, const qn_tokenizer *tokenizer);

typedef enum qn_span {
    QN_SPAN_ANSWER,
    QN_SPAN_REASONING,
    QN_SPAN_HEADER /* the name of a channel */
} qn_span;

/* Where in an answer its tokens are. */
typedef struct qn_router {
    const qn_markers *markers; /* borrowed */
    const qn_tokenizer *tokenizer;
    qn_span span;
    qn_buf header;
    size_t channel; /* of the header: where the channel's name begins */
    /* Messages to functions are no thoughts, whatever their channel. */
    bool calls;
    bool addressed; /* the message is one of these */
} qn_router;

/* The state behind `prompt`, which may end inside an open marker. */
void qn_router_init(qn_router *router, const qn_markers *markers,
                    const qn_tokenizer *tokenizer, const int32_t *prompt,
                    size_t count);
void qn_router_clear(qn_router *router);
/* Takes the next token; router->span is then where it belongs.  *silent: it is
 * a mark or part of a header, without text. */
qn_status qn_router_take(qn_router *router, int32_t id, bool *silent);

#endif
