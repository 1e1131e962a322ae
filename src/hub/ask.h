/* ask.h: questions to the hub, with patience. */
#ifndef QN_HUB_ASK_H
#define QN_HUB_ASK_H

#include "http.h"
#include "select.h"

/* Who waits, and how long. */
typedef struct qn_patience {
    int retries;
    /* Called at least ten times a second; a failure ends the wait. */
    qn_status (*tick)(void *data);
    /* A note that something is tried again. */
    void (*note)(void *data, const char *text);
    void *data;
} qn_patience;

/* Seconds to wait before try `attempt` (1, 2, ...), as the answer asked, else
 * longer each time. */
double qn_patience_delay(int attempt, const qn_reply *reply);

/* Runs the transfer until it succeeds or patience ends; its own failure is in
 * it, others are returned.  `again` (may be NULL) is called before each try. */
qn_status qn_ask_run(qn_http *http, qn_transfer *transfer,
                     const qn_patience *patience,
                     qn_status (*again)(void *data));

/* The model's files at a revision.  QN_E_NOTFOUND and QN_E_DENIED say what to
 * do. */
qn_status qn_ask_listing(qn_listing *out, qn_arena *arena, qn_http *http,
                         const qn_hub *hub, const char *id,
                         const char *revision, const qn_patience *patience);
/* Size and digest of a file of which the listing does not say both. */
qn_status qn_ask_file(qn_hub_file *file, qn_http *http, const qn_hub *hub,
                      const qn_listing *listing, const qn_patience *patience);
/* The URL of a file at the listing's commit (qn_buf_status tells of memory). */
void qn_ask_url(qn_buf *url, const qn_hub *hub, const qn_listing *listing,
                const char *name);
/* Puts a sentence for people over a transfer's failure about the model. */
qn_status qn_ask_explain(const qn_transfer *t, const qn_hub *hub,
                         const char *id, const char *what);
/* Reads the answer to a search; texts in the arena. */
qn_status qn_remote_read(qn_arena *arena, quern_remote **out, size_t *count,
                         qn_str json);

#endif
