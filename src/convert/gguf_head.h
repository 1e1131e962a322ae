/* gguf_head.h: the metadata of a GGUF file, from the files of a model
 * directory. */
#ifndef QN_CONVERT_GGUF_HEAD_H
#define QN_CONVERT_GGUF_HEAD_H

#include "convert.h"

/* Magic, counts and keys.  QN_E_UNSUPPORTED for an architecture or a tokenizer
 * that is not among those that are written. */
qn_status qn_gguf_head(qn_buf *out, const qn_origin *source, size_t tensors);

/* ---- gguf_spm.c ---- */

/* Whether a tokenizer.json merges by scores, with bytes for what is not in the
 * vocabulary. */
bool qn_gguf_is_spm(const qn_json *root);
/* scores[i] of each of `count` tokens; *prefix: a mark comes before a text.
 * `apart` marks tokens that no merging makes.  QN_E_UNSUPPORTED where scores
 * would not say the same as the merges. */
qn_status qn_gguf_spm(float *scores, bool *prefix, const qn_json *root,
                      const uint8_t *apart, size_t count);

void qn_gguf_put_u32(qn_buf *out, uint32_t value);
void qn_gguf_put_u64(qn_buf *out, uint64_t value);
/* Its length and the bytes. */
void qn_gguf_put_text(qn_buf *out, qn_str text);

#endif
