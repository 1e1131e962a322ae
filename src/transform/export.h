/* export.h: functions written to a file that MLX reads (mlxfn.h).
 *
 * A function is called with placeholders, and what it built is written, one
 * primitive after the other, with the arrays that it captured.  A file may hold
 * several recordings of one function, for different inputs. */
#ifndef QN_TRANSFORM_EXPORT_H
#define QN_TRANSFORM_EXPORT_H

#include "function.h"

#include "base/buf.h"

/* A named input. */
typedef struct qn_named {
    qn_str key;
    qn_array *value;
} qn_named;

/* Into ascending order of the bytes of the names. */
void qn_named_sort(qn_named *named, size_t count);

typedef struct qn_exporter qn_exporter;

/* Nothing is written yet.  Without a path nothing ever is: the file is for
 * qn_exporter_bytes to see. */
qn_status qn_exporter_new(qn_exporter **out, const char *path, bool shapeless);
/* NULL is fine. */
void qn_exporter_free(qn_exporter *e);

/* Writes the file with what has been recorded so far: it is a new one that
 * takes the name at the end. */
qn_status qn_exporter_write(qn_exporter *e);
/* Appends what the file has. */
qn_status qn_exporter_bytes(qn_buf *out, const qn_exporter *e);

/* Records `fun` for inputs like `args` and then those of `named` (in ascending
 * order), which it gets in one list, and writes the file.  Inputs of a kind
 * that has been recorded are an error.  On failure the file stays as it was. */
qn_status qn_exporter_add(qn_exporter *e, const qn_function *fun,
                          qn_array *const *args, size_t nargs,
                          const qn_named *named, size_t nnamed);

#endif
