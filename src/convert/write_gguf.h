/* write_gguf.h: a model directory as a GGUF file. */
#ifndef QN_CONVERT_WRITE_GGUF_H
#define QN_CONVERT_WRITE_GGUF_H

#include "convert.h"

/* Decides the type of each tensor and makes everything in front of the data;
 * *total is the size of the file.  Sets `inexact` of items.  QN_E_UNSUPPORTED
 * for architectures, tokenizers and sources that can't be written so. */
qn_status qn_gguf_plan(qn_buf *head, qn_origin *source, uint64_t *total);
/* Writes the planned file into `path`, which exists and is empty. */
qn_status qn_gguf_write(qn_origin *source, const qn_buf *head, const char *path,
                        qn_step_fn step, void *data);

#endif
