/* fallback.c: tokens of single bytes. */
#include "fallback.h"

void qn_fallback_find(int32_t bytes[256], const qn_vocab *vocab, bool wanted)
{
    static const char hex[] = "0123456789ABCDEF";
    for (unsigned byte = 0; byte < 256; byte++) {
        const char text[] = {'<', '0', 'x', hex[byte >> 4], hex[byte & 15],
                             '>'};
        bytes[byte] =
            wanted ? qn_vocab_find_model(vocab, (qn_str){text, sizeof text})
                   : -1;
    }
}

bool qn_fallback_covers(const int32_t bytes[256], qn_str text)
{
    for (size_t i = 0; i < text.size; i++) {
        if (bytes[(uint8_t)text.data[i]] < 0)
            return false;
    }
    return true;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

int qn_fallback_byte(qn_str token)
{
    if (token.size != 6 || memcmp(token.data, "<0x", 3) != 0 ||
        token.data[5] != '>')
        return -1;
    int high = hex_digit(token.data[3]), low = hex_digit(token.data[4]);
    return high < 0 || low < 0 ? -1 : high << 4 | low;
}
