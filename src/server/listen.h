/* listen.h: the addresses of a server, as sockets. */
#ifndef QN_SERVER_LISTEN_H
#define QN_SERVER_LISTEN_H

#include "base/status.h"

#include <stddef.h>

enum { QN_LISTENERS = 16, QN_URL_SIZE = 320, QN_PEER_SIZE = 64 };

struct sockaddr;

typedef struct qn_listeners {
    int fds[QN_LISTENERS];
    char *unlink[QN_LISTENERS]; /* the file of a Unix socket, or NULL */
    size_t count;
    int port;              /* of the first one with a port, else 0 */
    char url[QN_URL_SIZE]; /* of the first one */
} qn_listeners;

/* Whether only this machine reaches an address: a loopback literal, localhost,
 * "unix:PATH". */
bool qn_listen_is_local(const char *host);
/* Whether it can be one at all: "unix:" has a path, and nothing else a
 * character that no host has. */
bool qn_listen_is_address(const char *host);

/* Binds and listens; with port 0 all get the port that the first one got.
 * QN_E_IO when an address is in use or can't be had.  On failure nothing stays
 * open.  A Unix socket is for its owner alone. */
qn_status qn_listen(qn_listeners *out, const char *const *hosts, size_t count,
                    int port);
/* What a service manager has opened (LISTEN_FDS); *found tells whether there is
 * something.  QN_E_ARG when others reach it and the server is not `open` to
 * them. */
qn_status qn_listen_inherited(qn_listeners *out, bool open, bool *found);
void qn_listeners_close(qn_listeners *listeners);

/* Who connects, NULL being a Unix socket: "127.0.0.1", "unix".  Whether that is
 * on this machine. */
bool qn_listen_peer(char name[QN_PEER_SIZE], const struct sockaddr *address);

/* Tells a service manager (NOTIFY_SOCKET), if there is one. */
void qn_notify_manager(const char *text);

#endif
