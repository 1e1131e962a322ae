/* route.h: which function answers a request. */
#ifndef QN_SERVER_ROUTE_H
#define QN_SERVER_ROUTE_H

#include "protocol.h"

struct qn_server;
struct qn_exchange;

typedef enum qn_access {
    QN_ACCESS_OPEN,
    QN_ACCESS_KEY,
    QN_ACCESS_ADMIN,
    QN_ACCESS_METRICS
} qn_access;

typedef struct qn_route {
    const char *method, *path;
    qn_access access;
    const char *name;
    /* One of them.  `id`: what stands for {id}, as it was sent. */
    void (*page)(struct qn_server *s, struct qn_exchange *x, qn_str id);
    const qn_api_protocol *protocol;
} qn_route;

/* HEAD is looked up as GET.  NULL with the methods of the path, "GET, HEAD", in
 * *allow, which is empty when nothing has that path. */
const qn_route *qn_route_find(qn_str method, qn_str path, qn_str *id,
                              qn_buf *allow);

/* How errors of a path are spelled, whether there is such a route or not. */
qn_api_style qn_route_style(qn_str path);

#endif
