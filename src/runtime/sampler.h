/* sampler.h: from logits to a token (runtime specification 9).
 *
 * A sampler belongs to one answer.  Its steps, in order: logit_bias,
 * repetition, presence and frequency penalty, masks; log probabilities; then
 * the likeliest token, or the filters top_p, min_p, typical_p, XTC, top_k and
 * a draw.  The random numbers come from the array library's generator, by
 * keys, so that a seed means the same everywhere. */
#ifndef QN_RUNTIME_SAMPLER_H
#define QN_RUNTIME_SAMPLER_H

#include "base/status.h"

#include <quern/quern.h>

#include <mlx/c/mlx.h>

typedef struct qn_sampler qn_sampler;

typedef struct qn_sampler_setup {
    const quern_sampling *sampling;
    int32_t vocab;       /* logits per position */
    int32_t token_count; /* ids from here on are never taken */
    const int32_t *end_ids;
    size_t end_count;
    int32_t newline; /* exempt from XTC like the end ids; -1: none */
    mlx_stream stream;
} qn_sampler_setup;

/* QN_E_ARG naming the parameter when one is out of range. */
qn_status qn_sampling_check(const quern_sampling *sampling, int32_t vocab);

/* Checks and copies everything; *setup may go.  Without a seed one is drawn
 * from the system.  The caller owns *out (qn_sampler_free). */
qn_status qn_sampler_new(qn_sampler **out, const qn_sampler_setup *setup);
void qn_sampler_free(qn_sampler *sampler);
/* The seed in use. */
uint64_t qn_sampler_seed(const qn_sampler *sampler);
/* True when the answer is the likeliest token of the plain logits, so that
 * qn_sampler_take may be left out where that token is allowed. */
bool qn_sampler_is_plain(const qn_sampler *sampler);

/* Picks the next token after the `count` tokens of `history`.  With `no_end`
 * end ids are masked.  NaN among the logits: QN_E_INTERNAL. */
qn_status qn_sampler_take(qn_sampler *sampler, int32_t *out,
                          const float *logits, const int32_t *history,
                          size_t count, bool no_end);

/* Picks nothing: only takes the logits in, as they are. */
qn_status qn_sampler_score(qn_sampler *sampler, const float *logits);

/* Of the last take or score: the log probability of `id`, and the `count`
 * likeliest ids in order, lower id first among equals.  Returns how many there
 * are. */
float qn_sampler_logprob(const qn_sampler *sampler, int32_t id);
int qn_sampler_top(const qn_sampler *sampler, quern_top_logprob *out,
                   int count);

#endif
