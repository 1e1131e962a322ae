/* embeddings.h: what the server's glue asks of /v1/embeddings besides. */
#ifndef QN_SERVER_EMBEDDINGS_H
#define QN_SERVER_EMBEDDINGS_H

#include "protocol.h"

/* What a failed quern_embed of the call's inputs is to a client.  Returns
 * false. */
bool qn_embeddings_fail(qn_api_error *error, const qn_api_call *call,
                        const quern_error *cause);

#endif
