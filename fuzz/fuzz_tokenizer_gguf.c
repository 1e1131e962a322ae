/* fuzz_tokenizer_gguf.c: the tokenizer of a GGUF file, and a text with what its
 * kinds turn on. */
#include "tokens.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    qn_gguf *gguf = NULL;
    qn_tokenizer *t = NULL;
    if (qn_gguf_parse(&gguf, (qn_bytes){data, size}))
        return 0;
    qn_status status = qn_tokenizer_from_gguf(&t, gguf);
    /* The tokenizer keeps nothing of the file. */
    qn_gguf_free(gguf);
    if (status) {
        FUZZ_CHECK(!t);
        return 0;
    }
    check_tokenizer(t, QN_STR(" <s>Hello  hello lo H\xc3\xa9 1234, "
                              "\xe2\x96\x81<|eot_id|>\n\xe4\xb8\xad u a "));
    qn_tokenizer_free(t);
    return 0;
}
