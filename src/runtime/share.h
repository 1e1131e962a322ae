/* share.h: prompts that begin alike and are computed at the same time.
 *
 * A job whose prompt begins like one that is being computed follows that job:
 * it waits until the leader has come as far as they are alike, and takes a
 * clone of its cache.  With the very same prompt it takes the logits, too, and
 * computes nothing.  Jobs that were asked for together (quern_submit_n) follow
 * the first of them from the beginning; others do where a prefix store is on
 * and more than QN_SHARE_LEAST tokens are common.
 *
 * All of it happens on the model's thread, but for qn_share_join before the
 * jobs are handed over. */
#ifndef QN_RUNTIME_SHARE_H
#define QN_RUNTIME_SHARE_H

#include "job.h"

enum { QN_SHARE_LEAST = 256 };

/* `job` waits until `leader` has computed `want` tokens of its prompt; all of
 * it, the same as that of `job`, where `same`. */
void qn_share_join(quern_job *job, quern_job *leader, size_t want, bool same);
/* Joins a running job if there is one that pays. */
bool qn_share_follow(quern_job *job);
/* The leader has computed more: those whose turn it is get their part. */
void qn_share_give(quern_job *leader);
/* The nearest length at which a step of the leader's has to end; SIZE_MAX:
 * none. */
size_t qn_share_next(const quern_job *leader);
/* The job ends: it follows nobody, and who followed it goes on without it. */
void qn_share_leave(quern_job *job);

#endif
