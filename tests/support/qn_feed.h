/* qn_feed.h: sequences side by side beside the same sequences alone. */
#ifndef QN_TEST_FEED_H
#define QN_TEST_FEED_H

#include "qn_test.h"

#include <quern/ext.h>
#include <quern/quern.h>

enum { FEED_SEQUENCES = 8, FEED_STEPS = 10, FEED_LONGEST = 64 };

/* Shows the quern_error `error_` of a call that failed. */
#define check_feed(call)                                                       \
    do {                                                                       \
        quern_status status_ = call;                                           \
        if (status_)                                                           \
            print_error("%s: %s\n", error_.where, error_.message);             \
        assert_int_equal(status_, QUERN_OK);                                   \
    } while (0)

static inline int32_t feed_id(int sequence, size_t place, int32_t vocab)
{
    uint32_t x = (uint32_t)sequence * 7919u + (uint32_t)place * 104729u + 17u;
    x ^= x >> 7;
    return (int32_t)(x * 2654435761u % (uint32_t)vocab);
}

/* Tokens that sequence i takes in a step: none before it joins and after it
 * leaves, first a prompt, then one, now and then three. */
static inline size_t feed_count(int i, int step, size_t length)
{
    if (step < i % 3 || (i == 2 && step > 6))
        return 0;
    if (!length)
        return (size_t)(3 + 5 * i);
    return step == 5 && i % 2 ? 3 : 1;
}

/* The logits of sequence i alone after each of its steps, at `out`. */
static inline void feed_alone(quern_model *model, int i, int32_t vocab,
                              float *out)
{
    quern_session *s;
    int32_t ids[FEED_LONGEST];
    quern_error error_;
    assert_int_equal(quern_session_new(&s, model, &error_), QUERN_OK);
    for (int step = 0; step < FEED_STEPS; step++) {
        size_t at = quern_session_length(s), n = feed_count(i, step, at);
        for (size_t j = 0; j < n; j++)
            ids[j] = feed_id(i, at + j, vocab);
        if (n) {
            check_feed(quern_session_feed(s, ids, n, &error_));
            check_feed(quern_session_logits(s, out + step * vocab, &error_));
        }
    }
    quern_session_free(s);
}

/* Eight sequences of mixed lengths that join and leave, with another number of
 * threads in each step, have the logits that each has alone. */
static inline void check_feeds(quern_model *model)
{
    quern_info info;
    quern_model_info(model, &info);
    int32_t vocab = info.vocab_size, ids[FEED_SEQUENCES][FEED_LONGEST];
    size_t each = (size_t)FEED_STEPS * (size_t)vocab;
    float *alone = calloc(FEED_SEQUENCES * each, sizeof *alone);
    float *found = calloc((size_t)vocab, sizeof *found);
    quern_session *s[FEED_SEQUENCES];
    quern_error error_;
    assert_true(alone && found);
    for (int i = 0; i < FEED_SEQUENCES; i++) {
        feed_alone(model, i, vocab, alone + (size_t)i * each);
        check_feed(quern_session_new(&s[i], model, &error_));
    }
    for (int step = 0; step < FEED_STEPS; step++) {
        quern_feed items[FEED_SEQUENCES];
        int who[FEED_SEQUENCES];
        size_t count = 0;
        for (int i = 0; i < FEED_SEQUENCES; i++) {
            size_t at = quern_session_length(s[i]);
            size_t n = feed_count(i, step, at);
            for (size_t j = 0; j < n; j++)
                ids[i][j] = feed_id(i, at + j, vocab);
            who[count] = i;
            if (n)
                items[count++] =
                    (quern_feed){.session = s[i], .ids = ids[i], .count = n};
        }
        assert_int_equal(quern_set_threads(1 + step % 8), 0);
        check_feed(quern_sessions_feed(items, count, &error_));
        for (size_t n = 0; n < count; n++) {
            int i = who[n];
            assert_int_equal(items[n].status, QUERN_OK);
            check_feed(quern_session_logits(s[i], found, &error_));
            assert_memory_equal(
                found, alone + (size_t)i * each + (size_t)(step * vocab),
                (size_t)vocab * sizeof *found);
        }
    }
    assert_int_equal(quern_set_threads(0), 0);
    for (int i = 0; i < FEED_SEQUENCES; i++)
        quern_session_free(s[i]);
    free(alone);
    free(found);
}

#endif
