/* gguf.h: the contents of a GGUF file: named arrays, and metadata.
 *
 * The format and its checks are in base/gguf.h.  A tensor of numbers comes as
 * an array of their type.  A packed one, X.weight, comes in the affine form of
 * quantize with groups of 32 where its blocks are that (Q4_0, Q4_1, Q8_0):
 * X.weight (uint32), X.scales and X.biases (float16); without the suffix X is
 * the whole name.  Packed tensors of other types come as float16.  Types
 * whose blocks base/gguf_blocks.h cannot expand are QN_E_UNSUPPORTED.
 *
 * Metadata is a number or a list of numbers (an array of no or one dimension),
 * a text, or a list of texts. */
#ifndef QN_IO_GGUF_H
#define QN_IO_GGUF_H

#include "base/bytes.h"
#include "base/map.h"
#include "core/array.h"
#include "core/stream.h"

typedef enum qn_meta_kind {
    QN_META_ARRAY,
    QN_META_TEXT, /* one of `texts` */
    QN_META_TEXTS
} qn_meta_kind;

typedef struct qn_meta {
    qn_meta_kind kind;
    qn_array *array;
    size_t count;
    char **texts;
} qn_meta;

/* NULL when memory is out.  A reference to the array is taken over, also then;
 * texts are copied. */
qn_meta *qn_meta_of_array(qn_array *array);
qn_meta *qn_meta_of_text(qn_str text);
qn_meta *qn_meta_of_texts(const qn_str *texts, size_t count);
void qn_meta_free(void *meta);

/* Both maps have keys as elements.h says. */
typedef struct qn_gguf_contents {
    qn_map *arrays;
    qn_map *metadata; /* of qn_meta */
} qn_gguf_contents;

/* Without entries. */
qn_status qn_gguf_contents_new(qn_gguf_contents *out);
void qn_gguf_contents_free(qn_gguf_contents *contents);
/* Puts a value in place of one of that name; takes it over, also on failure.
 * NULL is QN_E_NOMEM. */
qn_status qn_gguf_set_array(qn_gguf_contents *contents, const char *name,
                            qn_array *array);
qn_status qn_gguf_set_meta(qn_gguf_contents *contents, const char *name,
                           qn_meta *meta);

/* The elements are read when an array is evaluated. */
qn_status qn_gguf_load(qn_gguf_contents *out, const char *path, qn_stream *s);

/* Evaluates the arrays and writes a file of version 3.  QN_E_ARG for dtypes
 * that MLX does not write: tensors are float32, float16, int8, int16 or int32;
 * metadata is bool, an integer, float32 or (beyond MLX) float64. */
qn_status qn_gguf_save(const char *path, const qn_gguf_contents *contents);

#endif
