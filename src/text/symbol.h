/* symbol.h: a piece of a word while pairs of them merge (bpe.c, spm.c). */
#ifndef QN_TEXT_SYMBOL_H
#define QN_TEXT_SYMBOL_H

#include <stdint.h>

typedef struct qn_symbol {
    int32_t id; /* -1: merged into its left neighbour */
    uint32_t prev, next;
    uint32_t rank; /* of the pair with the next one */
} qn_symbol;

#endif
