/* embed.h: what a model's files say about vectors of texts. */
#ifndef QN_RUNTIME_EMBED_H
#define QN_RUNTIME_EMBED_H

#include "base/status.h"
#include "model/model.h"

#include <quern/quern.h>

typedef struct qn_embedder {
    quern_pooling pooling; /* QUERN_POOLING_MODEL: not an embedder */
    bool normalize;
    int max_tokens;  /* of a text, special ones included; 0: the context */
    int32_t last_id; /* ends every text where the last token counts, or -1 */
    /* What stands around an instruction in front of a query; "": unknown. */
    char query_before[32], query_after[32];
} qn_embedder;

/* From modules.json, 1_Pooling/config.json, sentence_bert_config.json and
 * config_sentence_transformers.json beside the weights, or from the metadata of
 * a GGUF file.  An encoder without any has
 * the mean. */
qn_status qn_embedder_read(qn_embedder *out, const qn_weights *weights,
                           const qn_config *config);
/* What one of those files says, by its name and its text; `dir` is for errors.
 * Files are read in the order in which they stand above. */
qn_status qn_embedder_take(qn_embedder *out, const char *name, qn_str text,
                           const char *dir);

#endif
