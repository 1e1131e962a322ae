/* remote.h: answers from an OpenAI-compatible server, over libcurl (loaded when
 * it is needed). */
#ifndef QN_CLI_REMOTE_H
#define QN_CLI_REMOTE_H

#include "talk.h"

#include <quern/quern.h>

typedef struct qn_remote qn_remote;

/* Where a server, its URL with or without /v1, takes conversations.  The caller
 * owns *out (qn_free).  QN_E_ARG for what is no URL. */
qn_status qn_remote_url(char **out, const char *url);

/* libcurl, or NULL where there is none.  It stays loaded: what it has set up is
 * the process's. */
void *qn_remote_library(void);
/* The error of its absence. */
qn_status qn_remote_no_library(void);

struct curl_slist;
/* Appends to `headers`, by libcurl's `append`, what each request to a server
 * says; QUERN_API_KEY goes to the server that the user has named.  The caller
 * frees the list, also after an error. */
qn_status qn_remote_headers(struct curl_slist **headers,
                            struct curl_slist *(*append)(struct curl_slist *,
                                                         const char *));

/* `url` with or without /v1; `model`, which must outlive *out, is what the
 * server is asked for.  The caller owns *out (qn_remote_free).
 * QN_E_UNSUPPORTED without libcurl, QN_E_ARG for what is no URL. */
qn_status qn_remote_new(qn_remote **out, const char *url, const char *model);
void qn_remote_free(qn_remote *remote);

/* Asks with the conversation's messages and settings (those of `flags` where
 * the conversation has none); on_event is called as by quern_generate, and
 * *result has text, reasoning, finish and counts.  QN_E_NETWORK when the server
 * can't be reached, QN_E_IO with its words when it refuses. */
qn_status qn_remote_ask(qn_remote *remote, const qn_talk *talk,
                        const qn_arg *flags, quern_event_fn on_event,
                        void *data, quern_result *result);

#endif
