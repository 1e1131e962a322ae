/* serve.h: a server without sockets: bodies through the protocols to a model,
 * and answers back. */
#ifndef RUN_CASES_SERVE_H
#define RUN_CASES_SERVE_H

#include "case.h"

#include "server/protocol.h"

typedef struct case_server {
    quern_model *model;
    qn_api_model facts;
    qn_api_server policy;
} case_server;

/* Opens the model in `folder` as the case's `server` says; false after
 * case_fail. */
bool case_server_open(case_server *out, const char *folder,
                      const qn_json *server, const char *fixtures);
void case_server_close(case_server *server);

enum { REPLY_EVENTS = 4096 };

/* What a client got. */
typedef struct case_reply {
    int status;
    qn_buf body;
    bool stream;
    /* Of a stream: the JSON of each event but [DONE]. */
    qn_json_doc *events[REPLY_EVENTS];
    size_t count;
    bool done, broken; /* [DONE] was last; something was no event */
    qn_json_doc *doc;  /* of a plain answer or error; NULL: no JSON */
} case_reply;

/* Sends a body to a path.  Free *out with case_reply_free. */
void case_send(const case_server *server, const char *path, qn_str body,
               case_reply *out);
void case_reply_free(case_reply *reply);

/* The object of a plain answer, or event `index`; NULL: there is none. */
const qn_json *case_reply_root(const case_reply *reply);
const qn_json *case_reply_event(const case_reply *reply, size_t index);

#endif
