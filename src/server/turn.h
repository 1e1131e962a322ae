/* turn.h: a call on its way through the server.
 *
 * A worker reads the body and makes requests of it; they wait until it is their
 * key's turn, become jobs of the runtime, and what these tell becomes the
 * reply. A client that leaves takes its turn along at once if it waits; what
 * runs is cancelled and gone after its step. */
#ifndef QN_SERVER_TURN_H
#define QN_SERVER_TURN_H

#include "state.h"

/* Begins a turn for a request whose route has a protocol; takes its body. */
void qn_turn_begin(qn_server *s, qn_exchange *x, const qn_route *route);
/* The exchange is over: adds to its line of the log, and lets go of the turn.
 */
void qn_turn_exchange_end(qn_exchange *x, qn_exchange_end how,
                          qn_access_line *line);
/* A stream has room again. */
void qn_turn_drained(qn_exchange *x);
/* Timeouts and signs of life. */
void qn_turns_tick(qn_server *s, double now);
/* Ends those with an error that have not been answered. */
void qn_turns_end(qn_server *s, qn_api_code code, const char *why);
/* The same for those whose model is not loaded yet. */
void qn_turns_end_loading(qn_server *s, qn_api_code code, const char *why);
/* Frees all, once no client and no worker is left. */
void qn_turns_drop(qn_server *s);

#endif
