/* pages.h: routes that answer at once, on the loop's thread.  `id` is the piece
 * of the path that stands for {id}, as it was sent. */
#ifndef QN_SERVER_PAGES_H
#define QN_SERVER_PAGES_H

#include "base/bytes.h"
#include "base/json.h"

struct qn_server;
struct qn_exchange;
struct qn_slot;

/* The page for people (src/web), where there is one. */
void qn_page_start(struct qn_server *s, struct qn_exchange *x, qn_str id);
void qn_page_health(struct qn_server *s, struct qn_exchange *x, qn_str id);
void qn_page_models(struct qn_server *s, struct qn_exchange *x, qn_str id);
void qn_page_model(struct qn_server *s, struct qn_exchange *x, qn_str id);
void qn_page_metrics(struct qn_server *s, struct qn_exchange *x, qn_str id);
/* There are none: the list is empty, no folder holds any that could be loaded,
 * and none has a name. */
void qn_page_adapters(struct qn_server *s, struct qn_exchange *x, qn_str id);
void qn_page_no_adapters(struct qn_server *s, struct qn_exchange *x, qn_str id);
void qn_page_no_adapter(struct qn_server *s, struct qn_exchange *x, qn_str id);
/* What /v1/responses has kept for the key. */
void qn_page_response(struct qn_server *s, struct qn_exchange *x, qn_str id);
void qn_page_response_delete(struct qn_server *s, struct qn_exchange *x,
                             qn_str id);

/* A model as /v1/models shows it. */
void qn_page_write_model(qn_json_writer *w, const struct qn_server *s,
                         const struct qn_slot *slot);

#endif
