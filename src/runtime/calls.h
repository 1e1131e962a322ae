/* calls.h: the calls of functions in an answer, as they are made.
 *
 * text/tools.h finds them; here they are kept until the answer is handed
 * over. */
#ifndef QN_RUNTIME_CALLS_H
#define QN_RUNTIME_CALLS_H

#include "base/arena.h"
#include "text/tools.h"

#include <quern/quern.h>

typedef struct qn_call {
    char name[QN_TOOL_NAME_SIZE + 1];
    qn_buf arguments;
    bool whole;
    size_t text_before;
} qn_call;

/* A zeroed one finds no calls. */
typedef struct qn_calls {
    qn_tools *tools;
    qn_tool_parser *parser; /* NULL: nothing may be called */
    bool single;            /* nothing counts behind the first call */
    bool over;              /* that was made */
    qn_call *items;
    size_t count, capacity;
} qn_calls;

/* `tools` as quern_request has them; pieces go to `take`.  Clear in any
 * case. */
qn_status qn_calls_init(qn_calls *calls, const qn_tool_format *format,
                        const char *tools, bool single, qn_tool_take take,
                        void *data);
void qn_calls_clear(qn_calls *calls);

/* A call begins, with so much of the answer's text before it. */
qn_status qn_calls_begin(qn_calls *calls, qn_str name, size_t text_before);
/* More of the last one's arguments. */
qn_status qn_calls_add(qn_calls *calls, qn_str arguments);
void qn_calls_end(qn_calls *calls, bool whole);
/* Whether one of them is whole. */
bool qn_calls_any_whole(const qn_calls *calls);

/* Fills the members of *result; texts are copied into `arena`. */
qn_status qn_calls_hand_over(const qn_calls *calls, qn_arena *arena,
                             quern_result *result);

#endif
