/* loop.h: the one thread that touches sockets.
 *
 * It waits for descriptors, for tasks that other threads hand over, and for the
 * time that `idle` names; whatever they call runs here, so what belongs to the
 * loop needs no locks. */
#ifndef QN_SERVER_LOOP_H
#define QN_SERVER_LOOP_H

#include "base/status.h"

#include <stdint.h>

typedef struct qn_loop qn_loop;

/* Something to do on the loop's thread; embedded in what it is about. */
typedef struct qn_task {
    struct qn_task *next;
    void (*run)(struct qn_task *task);
    bool posted; /* the loop's: not yet taken */
} qn_task;

/* A descriptor that is watched; embedded in what it belongs to. */
typedef struct qn_watch {
    void (*ready)(struct qn_watch *watch, uint32_t events);
} qn_watch;

qn_status qn_loop_new(qn_loop **out);
void qn_loop_free(qn_loop *loop);

/* `events` as of epoll. */
qn_status qn_loop_watch(qn_loop *loop, int fd, uint32_t events,
                        qn_watch *watch);
/* Before the descriptor is closed.  Events of this round may still come to
 * `watch`, which therefore must live until the round is over, unless this is
 * called in its own `ready`. */
void qn_loop_forget(qn_loop *loop, int fd);

/* From any thread: `task` runs soon.  One that was posted and has not run yet
 * is left where it is. */
void qn_loop_post(qn_loop *loop, qn_task *task);
/* Takes a task back: once this returns it does not run. */
void qn_loop_withdraw(qn_loop *loop, qn_task *task);

/* Called before every wait; returns the longest wait in milliseconds, -1 for
 * any. */
typedef int (*qn_idle_fn)(void *data);
void qn_loop_run(qn_loop *loop, qn_idle_fn idle, void *data);
/* Ends qn_loop_run after this round; it can be called again. */
void qn_loop_stop(qn_loop *loop);

/* A descriptor that makes the loop look up when 8 bytes are written to it, also
 * by a signal's handler. */
int qn_loop_fd(const qn_loop *loop);

/* Seconds of a steady clock, and since 1970. */
double qn_server_now(void);
double qn_server_time(void);

#endif
