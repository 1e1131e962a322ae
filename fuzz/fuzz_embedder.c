/* fuzz_embedder.c: the JSON files that say how an embedding model pools.
 *
 * The first byte says which of them the rest is. */
#include "fuzz.h"

#include "model/config.h"
#include "runtime/embed.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const names[] = {"modules.json", "1_Pooling/config.json",
                                        "sentence_bert_config.json",
                                        "config_sentence_transformers.json"};
    if (!size)
        return 0;
    qn_embedder e = {.normalize = true, .last_id = -1};
    qn_str text = {(const char *)data + 1, size - 1};
    if (qn_embedder_take(&e, names[data[0] % 4], text, "model"))
        return 0;
    FUZZ_CHECK(
        e.pooling == QUERN_POOLING_MODEL || e.pooling == QUERN_POOLING_MEAN ||
        e.pooling == QUERN_POOLING_CLS || e.pooling == QUERN_POOLING_LAST);
    FUZZ_CHECK((e.pooling != QUERN_POOLING_MODEL) == (data[0] % 4 == 1));
    FUZZ_CHECK(!*e.query_before == !*e.query_after);
    FUZZ_CHECK(e.max_tokens >= 0 && e.max_tokens <= QN_MAX_DIM);
    return 0;
}
