/* draft.h: guesses at the next tokens of an answer (runtime specification 8).
 *
 * A row that decodes has one token to compute.  Guesses are put behind it, so
 * that one step gives the logits of them all; the answer then takes them as
 * long as they are what it picks, and forgets the rest.  What is picked never
 * depends on what was guessed.
 *
 * Guesses come from a small model, whose sequence follows the answer's, or from
 * what stood behind the last tokens earlier on. */
#ifndef QN_RUNTIME_DRAFT_H
#define QN_RUNTIME_DRAFT_H

#include "runtime.h"

enum {
    QN_MAX_DRAFT = 16,
    QN_NGRAM = 3,           /* tokens that are looked for at most */
    QN_DRAFT_ROWS = 4,      /* with more there is no speculation, unless the
                               model was loaded so */
    QN_DRAFT_MAX_ROWS = 64, /* that can be asked for */
    QN_DRAFT_SAMPLES = 64   /* tokens whose spelling two vocabularies share */
};

typedef struct qn_draft {
    bool on, stopped;
    quern_session *session; /* of the small model; NULL: n-grams */
    const qn_ids *all;      /* prompt and answer; borrowed */
    int most;               /* guesses at a time */
    int64_t left;           /* tokens that the answer may still have */
    int32_t tokens[1 + QN_MAX_DRAFT]; /* the last token, and guesses */
    int count;                        /* guesses */
    int64_t drafted, accepted;
    /* The cache without the guesses, where it can't forget them (recurrent
     * layers), and its tokens. */
    qn_kv_cache *snapshot;
    size_t snapshot_length;
} qn_draft;

/* QN_E_MISMATCH unless the two models share a vocabulary. */
qn_status qn_draft_check(const quern_model *model, const quern_model *draft);
/* For an answer over `all`; off when the model has no speculation or `most` is
 * 0 (-1: the model's). */
qn_status qn_draft_init(qn_draft *draft, const quern_model *model,
                        const qn_ids *all, int most);
void qn_draft_clear(qn_draft *draft);

/* Gives the session its sequence back as it was before the guesses; false when
 * there is no snapshot. */
bool qn_draft_restore(qn_draft *draft, quern_session *session);

/* Guesses for those of `count` linked rows that decode, on the thread of their
 * model, and puts the guesses into them.  A failure ends speculation for the
 * rows that it meets, and nothing else. */
void qn_drafts_propose(qn_row *rows, size_t count);

#endif
