/* work.c: see work.h. */
#include "work.h"

#include "base/alloc.h"

#include <pthread.h>
#include <string.h>

struct qn_workers {
    pthread_mutex_t lock;
    pthread_cond_t more;
    qn_work *first, **last;
    bool ending;
    int most, count, idle;
    pthread_t threads[];
};

static void *work(void *data)
{
    qn_workers *w = data;
    pthread_mutex_lock(&w->lock);
    for (;;) {
        while (!w->first && !w->ending) {
            w->idle++;
            pthread_cond_wait(&w->more, &w->lock);
            w->idle--;
        }
        qn_work *item = w->first;
        if (!item)
            break;
        w->first = item->next;
        if (!w->first)
            w->last = &w->first;
        pthread_mutex_unlock(&w->lock);
        item->run(item);
        pthread_mutex_lock(&w->lock);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

qn_status qn_workers_new(qn_workers **out, int count)
{
    qn_workers *w = qn_calloc(1, sizeof *w + (size_t)count * sizeof(pthread_t));
    if (!w)
        return QN_E_NOMEM;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->more, NULL);
    w->last = &w->first;
    w->most = count;
    *out = w;
    return QN_OK;
}

void qn_workers_free(qn_workers *w)
{
    if (!w)
        return;
    pthread_mutex_lock(&w->lock);
    w->ending = true;
    pthread_cond_broadcast(&w->more);
    pthread_mutex_unlock(&w->lock);
    for (int i = 0; i < w->count; i++)
        pthread_join(w->threads[i], NULL);
    pthread_cond_destroy(&w->more);
    pthread_mutex_destroy(&w->lock);
    qn_free(w);
}

qn_status qn_workers_add(qn_workers *w, qn_work *item)
{
    qn_status status = QN_OK;
    pthread_mutex_lock(&w->lock);
    if (!w->idle && w->count < w->most) {
        int rc = pthread_create(&w->threads[w->count], NULL, work, w);
        if (!rc)
            w->count++;
        else if (!w->count)
            status = qn_fail(QN_E_NOMEM, "no thread: %s", strerror(rc));
    }
    if (!status) {
        item->next = NULL;
        *w->last = item;
        w->last = &item->next;
        pthread_cond_signal(&w->more);
    }
    pthread_mutex_unlock(&w->lock);
    return status;
}
