/* vocab.h: the vocabulary: ids and their spellings, both ways.
 *
 * Spellings are those of the file ("Ġthe", "<0x0A>", "▁the"), stored in one
 * block of text; a table of slots finds ids by spelling.  Filled while a
 * tokenizer is loaded, immutable afterwards. */
#ifndef QN_TEXT_VOCAB_H
#define QN_TEXT_VOCAB_H

#include "base/bytes.h"
#include "base/status.h"

enum {
    QN_TOKEN_MODEL = 1, /* an entry of the model's own vocabulary */
    QN_TOKEN_ADDED = 2,
    QN_TOKEN_SPECIAL = 4,
    QN_VOCAB_MAX = 1 << 24 /* ids are below this */
};

typedef struct qn_vocab_token {
    uint32_t offset, size;
    uint8_t flags; /* 0: no token has this id */
} qn_vocab_token;

typedef struct qn_vocab {
    qn_vocab_token *tokens; /* by id */
    size_t count, capacity; /* count = largest id + 1 */
    char *text;
    size_t text_size, text_capacity;
    uint64_t *slots;   /* high half: hash, low half: id + 1; 0 = free */
    size_t slot_count; /* 0 or a power of two, at least 2 * used */
    size_t used;
    bool has_twins; /* two tokens are written alike */
} qn_vocab;

void qn_vocab_free(qn_vocab *vocab);

/* Copies `text`.  An id that is taken, negative or too large: QN_E_FORMAT.
 * A spelling that another id has already: from now on it finds the new id,
 * and *again (may be NULL) is true. */
qn_status qn_vocab_add(qn_vocab *vocab, int64_t id, qn_str text, uint8_t flags,
                       bool *again);

/* The id with this spelling, or -1. */
int32_t qn_vocab_find(const qn_vocab *vocab, qn_str text);
/* The same among entries of the model's own vocabulary. */
int32_t qn_vocab_find_model(const qn_vocab *vocab, qn_str text);
/* The same where it is likely that the answer is `hint` (any number). */
int32_t qn_vocab_find_near(const qn_vocab *vocab, qn_str text, int32_t hint);

static inline bool qn_vocab_has(const qn_vocab *vocab, int64_t id)
{
    return id >= 0 && (uint64_t)id < vocab->count && vocab->tokens[id].flags;
}

/* Empty for an id that no token has, and for the token that is empty.  Valid
 * until the next qn_vocab_add. */
static inline qn_str qn_vocab_text(const qn_vocab *vocab, int32_t id)
{
    if (!qn_vocab_has(vocab, id))
        return QN_STR("");
    const qn_vocab_token *token = &vocab->tokens[id];
    if (!token->size) /* there may be no text at all */
        return QN_STR("");
    return (qn_str){vocab->text + token->offset, token->size};
}

#endif
