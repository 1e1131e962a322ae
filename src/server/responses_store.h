/* responses_store.h: responses that clients come back to.
 *
 * A response belongs to the space of the key that asked for it; nobody else
 * finds it.  It is kept for a time, and those that were not used for longest go
 * when there are too many bytes.  Any thread may call. */
#ifndef QN_SERVER_RESPONSES_STORE_H
#define QN_SERVER_RESPONSES_STORE_H

#include "base/buf.h"

typedef struct qn_responses qn_responses;

enum { QN_RESPONSES_SECONDS = 3600, QN_RESPONSES_BYTES = 64 << 20 };

qn_status qn_responses_new(qn_responses **out, size_t limit, int64_t seconds);
void qn_responses_free(qn_responses *store);

/* Keeps copies: what the response looks like, and the messages of the
 * conversation up to its end (elements of a JSON array).  Times are seconds
 * since 1970.  QN_E_NOMEM; what is larger than the limit is not kept. */
qn_status qn_responses_put(qn_responses *store, const char *space,
                           const char *id, qn_str body, qn_str messages,
                           int64_t now);
/* Appends copies of both, as far as they are wanted (NULL: not).  False: there
 * is no such response, or its time is over.  Buffers may fail. */
bool qn_responses_get(qn_responses *store, const char *space, const char *id,
                      int64_t now, qn_buf *body, qn_buf *messages);
/* False: there was none. */
bool qn_responses_drop(qn_responses *store, const char *space, const char *id,
                       int64_t now);

#endif
