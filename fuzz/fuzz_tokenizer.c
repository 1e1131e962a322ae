/* fuzz_tokenizer.c: tokenizer.json, and text through what it describes.
 *
 * An input is the file, then a zero byte, then text. */
#include "tokens.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *zero = size ? memchr(data, 0, size) : NULL;
    size_t json = zero ? (size_t)(zero - data) : size;
    qn_str text = QN_STR("<s> He\xcc\x81llo  1234<|im_end|>\n\xe4\xb8\xad");
    if (zero)
        text = (qn_str){(const char *)zero + 1, size - json - 1};
    qn_tokenizer *t = NULL;
    if (qn_tokenizer_from_json(&t, (qn_bytes){data, json}, (qn_bytes){0})) {
        FUZZ_CHECK(!t);
        return 0;
    }
    check_tokenizer(t, text);
    qn_tokenizer_free(t);
    return 0;
}
