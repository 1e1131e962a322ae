/* normalize_impl.h: one step of a normalizer, for the files that have some
 * (normalize.c, normalize_map.c). */
#ifndef QN_TEXT_NORMALIZE_IMPL_H
#define QN_TEXT_NORMALIZE_IMPL_H

#include "charsmap.h"
#include "normalize.h"
#include "regex.h"

#include <utf8proc.h>

/* A text and its marks, borrowed. */
typedef struct qn_norm_input {
    qn_str text;
    const char *marks; /* NULL: none */
} qn_norm_input;

typedef struct qn_norm_step qn_norm_step;

typedef struct qn_norm_kind {
    const char *type;
    /* Reads the step's members; NULL: it has none. */
    qn_status (*parse)(qn_norm_step *s, const qn_json *value,
                       const qn_jpath *at);
    qn_status (*run)(const qn_norm_step *s, qn_norm_input in,
                     qn_norm_text *out);
    utf8proc_option_t form; /* of the Unicode normal forms */
} qn_norm_kind;

struct qn_norm_step {
    const qn_norm_kind *kind;
    char *pattern, *content; /* Replace, Prepend; owned */
    size_t pattern_size, content_size;
    qn_regex *regex;       /* Replace by an expression; owned */
    qn_charsmap *charsmap; /* Precompiled; owned */
    bool left, right;      /* Strip */
};

/* Bytes begin..end of the input as they are.  A failure stays in *out. */
void qn_norm_copy(qn_norm_text *out, qn_norm_input in, size_t begin,
                  size_t end);
/* `size` new bytes that stand for begin..end of the input. */
void qn_norm_emit(qn_norm_text *out, const char *bytes, size_t size,
                  qn_norm_input in, size_t begin, size_t end);

/* ---- normalize_map.c ---- */

/* The parts of BertNormalizer. */
extern const qn_norm_kind qn_norm_clean_kind;
extern const qn_norm_kind qn_norm_chinese_kind;
extern const qn_norm_kind qn_norm_nonspacing_kind;
/* A charsmap as SentencePiece itself uses it. */
extern const qn_norm_kind qn_norm_longest_kind;
/* StripAccents, Nmt, Precompiled, ByteLevel; NULL for other names. */
const qn_norm_kind *qn_norm_mapping_kind(qn_str type);

#endif
