/* utf8.c: UTF-8 by the table of well-formed byte sequences in the Unicode
 * standard (3.9, table 3-7).
 *
 * Everything rests on `match`, which says how much of a character is there:
 * decoding wants all of it, repair replaces what matched by one U+FFFD, and a
 * stream holds back a match that only lacks its end. */
#include "utf8.h"

/* How many bytes at p (n >= 1 of them) begin a well-formed character, at
 * least 1; *length is that character's whole length, 0 for a byte that begins
 * none. */
static int match(const uint8_t *p, size_t n, int *length)
{
    /* The second byte's range is narrower after some first bytes: it rules
     * out overlong forms, surrogates and codes above 0x10FFFF. */
    uint8_t low = 0x80, high = 0xbf;
    if (p[0] < 0x80) {
        *length = 1;
    } else if (p[0] >= 0xc2 && p[0] <= 0xdf) {
        *length = 2;
    } else if (p[0] >= 0xe0 && p[0] <= 0xef) {
        *length = 3;
        if (p[0] == 0xe0)
            low = 0xa0;
        else if (p[0] == 0xed)
            high = 0x9f;
    } else if (p[0] >= 0xf0 && p[0] <= 0xf4) {
        *length = 4;
        if (p[0] == 0xf0)
            low = 0x90;
        else if (p[0] == 0xf4)
            high = 0x8f;
    } else {
        *length = 0;
        return 1;
    }
    int found = 1;
    while (found < *length && (size_t)found < n && p[found] >= low &&
           p[found] <= high) {
        low = 0x80;
        high = 0xbf;
        found++;
    }
    return found;
}

int qn_utf8_decode(const char *p, const char *end, uint32_t *code)
{
    const uint8_t *u = (const uint8_t *)p;
    if (p >= end)
        return 0;
    int length;
    if (match(u, (size_t)(end - p), &length) < length)
        return 0;
    switch (length) {
    case 1:
        *code = u[0];
        break;
    case 2:
        *code = (u[0] & 0x1fu) << 6 | (u[1] & 0x3fu);
        break;
    case 3:
        *code = (u[0] & 0x0fu) << 12 | (u[1] & 0x3fu) << 6 | (u[2] & 0x3fu);
        break;
    case 4:
        *code = (u[0] & 0x07u) << 18 | (u[1] & 0x3fu) << 12 |
                (u[2] & 0x3fu) << 6 | (u[3] & 0x3fu);
        break;
    }
    return length;
}

int qn_utf8_encode(uint32_t code, char out[4])
{
    if (code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff))
        code = 0xfffd;
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    if (code < 0x800) {
        out[0] = (char)(0xc0 | code >> 6);
        out[1] = (char)(0x80 | (code & 0x3f));
        return 2;
    }
    if (code < 0x10000) {
        out[0] = (char)(0xe0 | code >> 12);
        out[1] = (char)(0x80 | (code >> 6 & 0x3f));
        out[2] = (char)(0x80 | (code & 0x3f));
        return 3;
    }
    out[0] = (char)(0xf0 | code >> 18);
    out[1] = (char)(0x80 | (code >> 12 & 0x3f));
    out[2] = (char)(0x80 | (code >> 6 & 0x3f));
    out[3] = (char)(0x80 | (code & 0x3f));
    return 4;
}

bool qn_utf8_valid(qn_str text, size_t *bad)
{
    const uint8_t *p = (const uint8_t *)text.data;
    size_t i = 0;
    while (i < text.size) {
        /* Most text is ASCII: eight bytes without a high bit at once. */
        while (text.size - i >= 8) {
            uint64_t word;
            memcpy(&word, p + i, sizeof word);
            if (word & UINT64_C(0x8080808080808080))
                break;
            i += 8;
        }
        if (i == text.size)
            break;
        int length;
        if (match(p + i, text.size - i, &length) != length) {
            if (bad)
                *bad = i;
            return false;
        }
        i += (size_t)length;
    }
    return true;
}

int qn_utf8_bad_length(const char *p, const char *end)
{
    int length;
    return match((const uint8_t *)p, (size_t)(end - p), &length);
}

size_t qn_utf8_incomplete_tail(qn_str text)
{
    for (size_t tail = 1; tail <= 3 && tail <= text.size; tail++) {
        const uint8_t *p = (const uint8_t *)text.data + (text.size - tail);
        if ((*p & 0xc0) == 0x80)
            continue; /* not the first byte of a character */
        int length;
        int found = match(p, tail, &length);
        return (size_t)found == tail && found < length ? tail : 0;
    }
    return 0;
}
