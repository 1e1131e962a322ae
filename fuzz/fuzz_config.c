/* fuzz_config.c: configurations of models, from both forms.
 *
 * What begins with "GGUF" is read as such a file, everything else as a
 * config.json.  What is accepted keeps the rules that models rely on. */
#include "fuzz.h"

#include "model/family.h"

static void check(qn_config *c)
{
    FUZZ_CHECK(c->layers >= 1 && c->layers <= QN_MAX_LAYERS);
    FUZZ_CHECK(c->hidden >= 1 && c->vocab_size >= 1 && c->heads >= 1);
    for (int i = 0; i < c->layers; i++) {
        const qn_layer_config *l = &c->layer[i];
        FUZZ_CHECK(l->head_dim >= 1 && l->kv_heads >= 1);
        FUZZ_CHECK(c->heads % l->kv_heads == 0);
        FUZZ_CHECK(l->kv_from >= 0 && l->kv_from <= i);
        FUZZ_CHECK(!l->sparse ||
                   (c->moe.count >= 1 && c->moe.used >= 1 &&
                    c->moe.used <= c->moe.count && c->moe.intermediate >= 1));
    }
    const qn_family *family = qn_family_find(qn_str_of(c->family));
    if (family && family->check)
        (void)family->check(c);
    qn_config_clear(c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    qn_config config;
    if (size >= 4 && !memcmp(data, "GGUF", 4)) {
        qn_gguf *gguf = NULL;
        if (!qn_gguf_parse(&gguf, (qn_bytes){data, size}) &&
            !qn_config_from_gguf(&config, gguf, "m.gguf"))
            check(&config);
        qn_gguf_free(gguf);
        return 0;
    }
    if (!qn_config_from_json(&config, (qn_str){(const char *)data, size},
                             "config.json"))
        check(&config);
    return 0;
}
