/* share.c: see share.h. */
#include "share.h"

#include <string.h>

static size_t common(const qn_ids *a, const qn_ids *b)
{
    size_t n = 0, most = a->size < b->size ? a->size : b->size;
    while (n < most && a->data[n] == b->data[n])
        n++;
    return n;
}

void qn_share_join(quern_job *job, quern_job *leader, size_t want, bool same)
{
    quern_job **end = &leader->followers;
    while (*end)
        end = &(*end)->next_follower;
    *end = job;
    job->next_follower = NULL;
    job->leader = leader;
    job->want = want;
    job->same = same;
}

static void unlink_follower(quern_job *job)
{
    quern_job **at = &job->leader->followers;
    while (*at != job)
        at = &(*at)->next_follower;
    *at = job->next_follower;
    job->next_follower = NULL;
    job->leader = NULL;
}

/* Whether `other` computes a prompt that `job` could have a part of. */
static bool may_lead(const quern_job *other, const quern_job *job)
{
    return other != job && other->begun && !other->prompted && !other->leader &&
           other->store && other->choice == job->choice &&
           !strcmp(other->space, job->space);
}

bool qn_share_follow(quern_job *job)
{
    if (!job->store)
        return false;
    size_t best = QN_SHARE_LEAST +
                  qn_prefixes_longest(job->store, job->space, job->choice,
                                      job->all.data, job->all.size - 1);
    quern_job *leader = NULL;
    for (qn_row *row = job->model->scheduler.rows; row; row = row->next) {
        quern_job *other = (quern_job *)row;
        if (row->calls != &qn_job_calls || !may_lead(other, job))
            continue;
        size_t same = common(&other->all, &job->all);
        if (same <= best)
            continue;
        best = same;
        leader = other;
    }
    if (!leader)
        return false;
    bool same = best == job->all.size && best == leader->all.size;
    if (best == job->all.size && !same)
        best--; /* its last token gives the logits */
    qn_share_join(job, leader, best, same);
    return true;
}

/* ---- what the leader has ---- */

static bool take_logits(quern_session *to, const quern_session *from)
{
    if (!from->logits.ctx || !from->logits_count)
        return false;
    to->logits = mlx_array_new();
    if (mlx_array_set(&to->logits, from->logits))
        return false;
    to->logits_row = from->logits_row + from->logits_count - 1;
    to->logits_count = 1;
    return true;
}

/* Gives `job` what it waited for, if it can be. */
static void give(const quern_job *leader, quern_job *job)
{
    quern_session *s = job->session;
    if (!qn_session_share(s, leader->session->cache, job->all.data, job->want))
        return;
    if (job->same && !take_logits(s, leader->session)) {
        quern_session_reset(s);
        return;
    }
    job->given = job->same;
}

void qn_share_give(quern_job *leader)
{
    for (quern_job *job = leader->followers, *next; job; job = next) {
        next = job->next_follower;
        if (job->want > leader->session->ids.size)
            continue;
        unlink_follower(job);
        give(leader, job);
        if (job->begun)
            qn_job_go(job);
    }
}

size_t qn_share_next(const quern_job *leader)
{
    size_t next = SIZE_MAX;
    for (const quern_job *job = leader->followers; job;
         job = job->next_follower)
        if (job->want > leader->session->ids.size && job->want < next)
            next = job->want;
    return next;
}

void qn_share_leave(quern_job *job)
{
    quern_job *first = NULL;
    if (job->leader)
        unlink_follower(job);
    while (job->followers) {
        quern_job *f = job->followers;
        bool same = f->same;
        size_t want = f->want;
        unlink_follower(f);
        /* Those with one prompt follow the first of them. */
        if (same && first)
            qn_share_join(f, first, want, true);
        else if (same)
            first = f;
        if (f->begun && !f->leader && !qn_share_follow(f))
            qn_job_go(f);
    }
}
