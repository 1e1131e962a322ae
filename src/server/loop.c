/* loop.c: see loop.h. */
#include "loop.h"

#include "base/alloc.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

struct qn_loop {
    int epoll, wake;
    bool stopping;
    pthread_mutex_t lock;
    qn_task *tasks, **last; /* with the lock */
};

double qn_server_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

double qn_server_time(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

qn_status qn_loop_new(qn_loop **out)
{
    qn_loop *loop = qn_calloc(1, sizeof *loop);
    if (!loop)
        return QN_E_NOMEM;
    pthread_mutex_init(&loop->lock, NULL);
    loop->last = &loop->tasks;
    loop->epoll = epoll_create1(EPOLL_CLOEXEC);
    loop->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    qn_status status = QN_OK;
    if (loop->epoll < 0 || loop->wake < 0)
        status = qn_fail(QN_E_IO, "no descriptors: %s", strerror(errno));
    if (!status)
        status = qn_loop_watch(loop, loop->wake, EPOLLIN, NULL);
    if (status)
        qn_loop_free(loop);
    else
        *out = loop;
    return status;
}

void qn_loop_free(qn_loop *loop)
{
    if (!loop)
        return;
    if (loop->epoll >= 0)
        close(loop->epoll);
    if (loop->wake >= 0)
        close(loop->wake);
    pthread_mutex_destroy(&loop->lock);
    qn_free(loop);
}

int qn_loop_fd(const qn_loop *loop)
{
    return loop->wake;
}

qn_status qn_loop_watch(qn_loop *loop, int fd, uint32_t events, qn_watch *watch)
{
    struct epoll_event event = {.events = events, .data.ptr = watch};
    if (epoll_ctl(loop->epoll, EPOLL_CTL_ADD, fd, &event))
        return qn_fail(QN_E_IO, "a descriptor can't be watched: %s",
                       strerror(errno));
    return QN_OK;
}

void qn_loop_forget(qn_loop *loop, int fd)
{
    epoll_ctl(loop->epoll, EPOLL_CTL_DEL, fd, NULL);
}

static void look_up(qn_loop *loop)
{
    ssize_t n = write(loop->wake, &(uint64_t){1}, sizeof(uint64_t));
    (void)n; /* full: it looks up anyway */
}

void qn_loop_post(qn_loop *loop, qn_task *task)
{
    pthread_mutex_lock(&loop->lock);
    bool first = !loop->tasks, fresh = !task->posted;
    if (fresh) {
        task->posted = true;
        task->next = NULL;
        *loop->last = task;
        loop->last = &task->next;
    }
    pthread_mutex_unlock(&loop->lock);
    if (first && fresh)
        look_up(loop);
}

void qn_loop_withdraw(qn_loop *loop, qn_task *task)
{
    pthread_mutex_lock(&loop->lock);
    qn_task **at = &loop->tasks;
    while (*at && *at != task)
        at = &(*at)->next;
    if (*at) {
        *at = task->next;
        if (!*at)
            loop->last = at;
        task->posted = false;
    }
    pthread_mutex_unlock(&loop->lock);
}

static qn_task *take(qn_loop *loop)
{
    pthread_mutex_lock(&loop->lock);
    qn_task *task = loop->tasks;
    if (task) {
        loop->tasks = task->next;
        if (!loop->tasks)
            loop->last = &loop->tasks;
        task->posted = false;
    }
    pthread_mutex_unlock(&loop->lock);
    return task;
}

void qn_loop_stop(qn_loop *loop)
{
    loop->stopping = true;
}

void qn_loop_run(qn_loop *loop, qn_idle_fn idle, void *data)
{
    enum { EVENTS = 64 };
    struct epoll_event events[EVENTS];
    uint64_t ignored;
    for (qn_task *task; !loop->stopping;) {
        while ((task = take(loop)))
            task->run(task);
        int timeout = idle(data);
        if (loop->stopping)
            break;
        int n = epoll_wait(loop->epoll, events, EVENTS, timeout);
        for (int i = 0; i < n; i++) {
            qn_watch *watch = events[i].data.ptr;
            if (watch)
                watch->ready(watch, events[i].events);
            else if (read(loop->wake, &ignored, sizeof ignored) < 0)
                continue; /* somebody was quicker */
        }
    }
    loop->stopping = false;
}
