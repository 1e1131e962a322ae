/* fallback.h: the tokens <0x00> to <0xFF>, by which vocabularies of
 * characters spell what they lack. */
#ifndef QN_TEXT_FALLBACK_H
#define QN_TEXT_FALLBACK_H

#include "vocab.h"

/* Fills in the ids of the 256 tokens, -1 where one is missing (all of them
 * unless `wanted`). */
void qn_fallback_find(int32_t bytes[256], const qn_vocab *vocab, bool wanted);
/* True when each byte of `text` has its token. */
bool qn_fallback_covers(const int32_t bytes[256], qn_str text);
/* The byte of a token <0xNN>, or -1. */
int qn_fallback_byte(qn_str token);

#endif
