/* fuzz_charsmap.c: the normalization rules of SentencePiece models.
 *
 * The first byte says how many of the next ones are text to look up; the rest
 * are the rules. */
#include "fuzz.h"

#include "text/charsmap.h"

#include "base/utf8.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    qn_charsmap *map = NULL;
    if (!size || (size_t)data[0] + 1 > size)
        return 0;
    qn_str text = {(const char *)data + 1, data[0]};
    qn_bytes rules = {data + 1 + text.size, size - 1 - text.size};
    if (qn_charsmap_new(&map, rules))
        return 0;
    for (size_t at = 0; at <= text.size; at++) {
        qn_str rest = {text.data + at, text.size - at}, first, longest;
        size_t used = 0;
        /* Either may name a text that there is not. */
        if (qn_charsmap_find(map, rest, &first))
            FUZZ_CHECK(qn_utf8_valid(first, NULL));
        if (qn_charsmap_longest(map, rest, &longest, &used))
            FUZZ_CHECK(used >= 1 && qn_utf8_valid(longest, NULL));
        FUZZ_CHECK(used <= rest.size);
    }
    qn_charsmap_free(map);
    return 0;
}
