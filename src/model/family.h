/* family.h: what a model family has to offer; families.def lists them. */
#ifndef QN_MODEL_FAMILY_H
#define QN_MODEL_FAMILY_H

#include "nn.h"

typedef struct qn_family {
    /* What the family requires of a configuration beyond config.c. */
    qn_status (*check)(const qn_config *config);
    /* Loads all weights.  On success the caller owns *out. */
    qn_status (*load)(void **out, qn_loader *loader);
    void (*free)(void *state);
    /* Logits for int32 `ids` [1, T], the next tokens of the sequences of
     * `rows`: [1, T, vocab], or [1, sequences, vocab] for the last one of
     * each only. */
    mlx_array (*forward)(const void *state, nn *c, mlx_array ids, nn_rows rows,
                         bool last_only);
    /* Whether logits come from the embedding matrix. */
    bool (*tied)(const void *state);
    /* Parts of tensor names that a file may have and nobody needs; NULL
     * ends the list. */
    const char *const *ignored;
    /* Modules of a layer, to recognize a foreign file by; NULL ends it. */
    const char *const *modules;
} qn_family;

#define QN_FAMILY(type, name) extern const qn_family qn_family_##name;
#include "families.def"
#undef QN_FAMILY

#endif
