/* pretok.h: the pre-tokenizer: cuts text into the words that the model
 * encodes one by one. */
#ifndef QN_TEXT_PRETOK_H
#define QN_TEXT_PRETOK_H

#include "base/buf.h"
#include "jpath.h"
#include "split.h"

typedef struct qn_pretok qn_pretok;

/* Null gives one word for a text. */
qn_status qn_pretok_parse(qn_pretok **out, const qn_json *value,
                          const qn_jpath *at);
/* The splitter `rule` over a byte-level vocabulary. */
qn_status qn_pretok_from_rule(qn_pretok **out, const qn_split_rule *rule);
void qn_pretok_free(qn_pretok *pretok);

/* Words go to the model as bytes, which its vocabulary spells (ByteLevel). */
bool qn_pretok_is_byte_level(const qn_pretok *pretok);

typedef struct qn_word {
    size_t begin, end;
} qn_word;

typedef struct qn_word_list {
    qn_word *data;
    size_t size, capacity;
} qn_word_list;

/* The words of a text and what they are made with.  Zero-initialise; kept from
 * text to text. */
typedef struct qn_words {
    qn_str text; /* what the words are ranges of: the input, or `rewritten` */
    qn_word_list list;
    bool at_start; /* the text is the beginning of the whole input */
    /* Working memory of the steps. */
    qn_word_list spare;
    qn_buf rewritten, spare_text;
} qn_words;

void qn_words_free(qn_words *words);

/* Cuts `text` (valid UTF-8, borrowed until the words are used up). */
qn_status qn_pretok_run(const qn_pretok *pretok, qn_words *words, qn_str text,
                        bool at_start);

#endif
