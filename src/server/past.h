/* past.h: replies that the library has no part in, where it takes none: in the
 * middle of a request, and before there is one. */
#ifndef QN_SERVER_PAST_H
#define QN_SERVER_PAST_H

#include "http.h"

/* Writes to a socket on which the library has written nothing yet for this
 * request, of which `x` is what is known, or NULL, and ends what is sent.
 * Returns the status. */
int qn_reply_past_library(int fd, const qn_exchange *x, qn_api_code code,
                          const char *message);

#endif
