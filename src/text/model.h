/* model.h: what cuts one word into ids: BPE, Unigram, WordPiece or
 * WordLevel. */
#ifndef QN_TEXT_MODEL_H
#define QN_TEXT_MODEL_H

#include "base/buf.h"
#include "tokenizer.h"
#include "vocab.h"

/* Working memory of one call of qn_tokenizer_encode, kept from word to word.
 * Zero-initialise. */
typedef struct qn_scratch {
    struct qn_symbol *symbols;
    size_t symbol_capacity;
    uint64_t *heap;
    size_t heap_capacity;
    struct qn_path_node *path;
    size_t path_capacity;
    qn_buf text;
} qn_scratch;

void qn_scratch_free(qn_scratch *scratch);
/* Room for so many symbols and entries of the heap; their contents are lost
 * when there was less. */
qn_status qn_scratch_reserve(qn_scratch *scratch, size_t symbols, size_t heap);

typedef struct qn_text_model qn_text_model;

/* Immutable; the first member of each kind's own struct. */
struct qn_text_model {
    const char *kind; /* "bpe", "spm", "unigram", "wordpiece", "wordlevel" */
    /* Appends the ids of `word` (not empty). */
    qn_status (*encode)(const qn_text_model *model, const qn_vocab *vocab,
                        qn_scratch *scratch, qn_ids *out, qn_str word);
    void (*free)(qn_text_model *model);
};

#endif
