/* threadend.c: a key of the thread library whose value is the thread's list. */
#include "threadend.h"

#include <pthread.h>

static pthread_key_t key;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool made;

static void run_all(void *value)
{
    for (qn_thread_end *item = value; item;) {
        qn_thread_end *next = item->next;
        item->run(item);
        item = next;
    }
}

static void make(void)
{
    made = pthread_key_create(&key, run_all) == 0;
}

qn_status qn_at_thread_end(qn_thread_end *item)
{
    pthread_once(&once, make);
    if (made) {
        item->next = pthread_getspecific(key);
        if (!pthread_setspecific(key, item))
            return QN_OK;
    }
    return qn_fail(QN_E_NOMEM, "out of memory: data of a thread's own");
}
