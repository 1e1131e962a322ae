/* draw.h: unevaluated graphs as text, for people to look at; in MLX's form. */
#ifndef QN_TRANSFORM_DRAW_H
#define QN_TRANSFORM_DRAW_H

#include "core/array.h"

#include "base/buf.h"

/* Names of arrays, which it holds: given ones, and A, B, ..., Z, AA, ... in the
 * order in which others are asked for (the given ones count). */
typedef struct qn_namer qn_namer;

qn_status qn_namer_new(qn_namer **out);
/* NULL is fine. */
void qn_namer_free(qn_namer *namer);
/* In place of the name that the array has, if it has one. */
qn_status qn_namer_set(qn_namer *namer, qn_array *array, const char *name);
/* Borrowed, until the array is given another one. */
qn_status qn_namer_get(const char **out, qn_namer *namer, qn_array *array);

/* Append the graph that leads to `outputs`: in Graphviz's language, or as a
 * line for each operation.  The namer is only asked; what is named here has its
 * name for this drawing. */
qn_status qn_draw_dot(qn_buf *buf, const qn_namer *namer,
                      qn_array *const *outputs, size_t count);
qn_status qn_draw_lines(qn_buf *buf, const qn_namer *namer,
                        qn_array *const *outputs, size_t count);

#endif
