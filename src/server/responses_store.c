/* responses_store.c: see responses_store.h. */
#include "responses_store.h"

#include "base/alloc.h"

#include <pthread.h>

typedef struct entry {
    struct entry *next, *before; /* the one used last is first */
    char *space, *id;
    qn_buf body, messages;
    size_t size;
    int64_t until;
} entry;

struct qn_responses {
    pthread_mutex_t lock;
    entry *first, *last;
    size_t used, limit;
    int64_t seconds;
};

qn_status qn_responses_new(qn_responses **out, size_t limit, int64_t seconds)
{
    qn_responses *s = qn_calloc(1, sizeof *s);
    if (!s)
        return QN_E_NOMEM;
    pthread_mutex_init(&s->lock, NULL);
    s->limit = limit;
    s->seconds = seconds;
    *out = s;
    return QN_OK;
}

static void free_entry(entry *e)
{
    if (!e)
        return;
    qn_free(e->space);
    qn_free(e->id);
    qn_buf_free(&e->body);
    qn_buf_free(&e->messages);
    qn_free(e);
}

static void unlink_entry(qn_responses *s, entry *e)
{
    *(e->before ? &e->before->next : &s->first) = e->next;
    *(e->next ? &e->next->before : &s->last) = e->before;
    e->next = e->before = NULL;
    s->used -= e->size;
}

static void link_first(qn_responses *s, entry *e)
{
    e->next = s->first;
    *(s->first ? &s->first->before : &s->last) = e;
    s->first = e;
    s->used += e->size;
}

static void drop(qn_responses *s, entry *e)
{
    unlink_entry(s, e);
    free_entry(e);
}

void qn_responses_free(qn_responses *s)
{
    if (!s)
        return;
    while (s->first)
        drop(s, s->first);
    pthread_mutex_destroy(&s->lock);
    qn_free(s);
}

/* Those whose time is over go on the way. */
static entry *find(qn_responses *s, const char *space, const char *id,
                   int64_t now)
{
    entry *found = NULL;
    for (entry *e = s->first, *next; e; e = next) {
        next = e->next;
        if (e->until <= now)
            drop(s, e);
        else if (!strcmp(e->id, id) && !strcmp(e->space, space))
            found = e;
    }
    return found;
}

static entry *make_entry(const qn_responses *s, const char *space,
                         const char *id, qn_str body, qn_str messages,
                         int64_t now)
{
    entry *e = qn_calloc(1, sizeof *e);
    if (!e)
        return NULL;
    e->space = qn_strdup(space);
    e->id = qn_strdup(id);
    qn_buf_add_str(&e->body, body);
    qn_buf_add_str(&e->messages, messages);
    e->until = now + s->seconds;
    if (e->space && e->id && !e->body.failed && !e->messages.failed) {
        e->size = sizeof *e + strlen(space) + strlen(id) + e->body.capacity +
                  e->messages.capacity;
        return e;
    }
    free_entry(e);
    return NULL;
}

qn_status qn_responses_put(qn_responses *s, const char *space, const char *id,
                           qn_str body, qn_str messages, int64_t now)
{
    entry *e = make_entry(s, space, id, body, messages, now);
    if (!e)
        return QN_E_NOMEM;
    if (e->size > s->limit) {
        free_entry(e);
        return QN_OK;
    }
    pthread_mutex_lock(&s->lock);
    find(s, space, id, now);
    while (s->used + e->size > s->limit)
        drop(s, s->last);
    link_first(s, e);
    pthread_mutex_unlock(&s->lock);
    return QN_OK;
}

bool qn_responses_get(qn_responses *s, const char *space, const char *id,
                      int64_t now, qn_buf *body, qn_buf *messages)
{
    pthread_mutex_lock(&s->lock);
    entry *e = find(s, space, id, now);
    if (e) {
        unlink_entry(s, e);
        link_first(s, e);
    }
    if (e && body)
        qn_buf_add_str(body, qn_buf_str(&e->body));
    if (e && messages)
        qn_buf_add_str(messages, qn_buf_str(&e->messages));
    pthread_mutex_unlock(&s->lock);
    return e != NULL;
}

bool qn_responses_drop(qn_responses *s, const char *space, const char *id,
                       int64_t now)
{
    pthread_mutex_lock(&s->lock);
    entry *e = find(s, space, id, now);
    if (e)
        drop(s, e);
    pthread_mutex_unlock(&s->lock);
    return e != NULL;
}
