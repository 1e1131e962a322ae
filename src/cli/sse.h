/* sse.h: the events of a streamed conversation, as OpenAI-compatible servers
 * send them: lines "data: {...}", and "data: [DONE]" at the end. */
#ifndef QN_CLI_SSE_H
#define QN_CLI_SSE_H

#include "base/buf.h"
#include "base/json.h"

/* Takes the data of one event, which is valid during the call; false ends the
 * stream. */
typedef bool (*qn_sse_fn)(void *data, qn_str event);

/* Takes the next bytes of a stream and hands on each event that is whole.
 * `line` holds what is not: empty at first, its size is the caller's to limit,
 * and its failure is that of an allocation.  Returns false when `each` did. */
bool qn_sse_add(qn_buf *line, const char *bytes, size_t size, qn_sse_fn each,
                void *data);
/* The end of the stream: the last line may lack its own. */
bool qn_sse_finish(qn_buf *line, qn_sse_fn each, void *data);

/* What an event says.  Texts are those of `doc`; an absent one is empty. */
typedef struct qn_delta {
    qn_json_doc *doc;
    bool last; /* "[DONE]": it says nothing else */
    qn_str text, thought;
    bool refused; /* by the words of `error` */
    qn_str error;
    bool finished; /* by the reason `finish` */
    qn_str finish;
    int64_t counted; /* tokens of the answer; -1: not said */
} qn_delta;

/* The caller frees delta->doc (qn_json_doc_free) when this succeeds. */
qn_status qn_delta_read(qn_delta *delta, qn_str event);

#endif
