/* panel.h: rows of packed matrices into panels (ops/panel.h) and back. */
#ifndef QN_BACKEND_COMMON_PANEL_H
#define QN_BACKEND_COMMON_PANEL_H

#include "ops/panel.h"

#include <stdint.h>

/* Up to 16 rows of a packed matrix.  Rows of words, scales and biases are so
 * many bytes apart, and their elements neighbours. */
typedef struct qn_panel_source {
    size_t rows, k;
    const char *words;  /* a little-endian stream of codes */
    const char *scales; /* of scale_type, or bytes */
    const char *biases; /* the same, if the form is biased */
    int64_t word_step, scale_step, bias_step;
} qn_panel_source;

/* Writes qn_panel_bytes to `panel`. */
void qn_panel_pack(uint8_t *panel, const qn_panel_form *form,
                   const qn_panel_source *source);

/* The same from up to 16 rows of blocks of a GGUF type; row i begins at
 * data[i]. */
void qn_panel_pack_blocks(uint8_t *panel, const qn_panel_form *form, int type,
                          const uint8_t *const *data, size_t rows, size_t k);

/* One row of a panel of k columns: k / group scales and, if the form is biased,
 * biases. */
void qn_panel_factors(float *scales, float *biases, const uint8_t *panel,
                      const qn_panel_form *form, size_t k, size_t row);
/* The same, and k values: codes, or what a table has for them. */
void qn_panel_unpack(uint8_t *values, float *scales, float *biases,
                     const uint8_t *panel, const qn_panel_form *form, size_t k,
                     size_t row);

#endif
