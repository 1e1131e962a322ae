/* utf8.h: UTF-8 as Unicode defines it (no surrogates, no overlong forms). */
#ifndef QN_BASE_UTF8_H
#define QN_BASE_UTF8_H

#include "bytes.h"

/* Decodes one code point at p (p < end).  Returns its length (1..4) and
 * stores it; 0 when the bytes there are not valid UTF-8. */
int qn_utf8_decode(const char *p, const char *end, uint32_t *code);
/* Writes 1..4 bytes; surrogates and codes above 0x10FFFF become U+FFFD. */
int qn_utf8_encode(uint32_t code, char out[4]);
/* True when all is valid; else *bad (may be NULL) is the first bad offset. */
bool qn_utf8_valid(qn_str text, size_t *bad);
/* Length of the maximal bad piece at p (1..3): the bytes that one U+FFFD
 * replaces (Unicode 3.9, "maximal subpart"). */
int qn_utf8_bad_length(const char *p, const char *end);
/* How many bytes at the end of `text` could be the start of a character that
 * further bytes complete (0..3). */
size_t qn_utf8_incomplete_tail(qn_str text);

#endif
