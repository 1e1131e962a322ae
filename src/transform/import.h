/* import.h: functions read from a file (mlxfn.h).
 *
 * A file holds one function for each kind of inputs that it was written for;
 * a call picks the one that fits. */
#ifndef QN_TRANSFORM_IMPORT_H
#define QN_TRANSFORM_IMPORT_H

#include "export.h"

typedef struct qn_imported qn_imported;

/* Reads a file; its constants are copied, so the file may go.  A primitive that
 * is not known is QN_E_UNSUPPORTED, other faults are QN_E_FORMAT. */
qn_status qn_imported_new(qn_imported **out, const char *path);
/* The same of bytes in memory (borrowed for the call). */
qn_status qn_imported_parse(qn_imported **out, qn_bytes file);
/* NULL is fine. */
void qn_imported_free(qn_imported *f);

/* Builds the graph of the function for inputs of these types, shapes and names
 * (shapeless: of these types and numbers of dimensions); QN_E_ARG, with the
 * functions that there are and what was given, if there is none.  Names in
 * ascending order (qn_named_sort).  The caller owns *out.  Any number of
 * threads may call one function. */
qn_status qn_imported_call(qn_arrays *out, const qn_imported *f,
                           qn_array *const *args, size_t nargs,
                           const qn_named *named, size_t nnamed);

/* For tests and fuzzing: the number of functions, and what function i was
 * recorded for: placeholders, and the names of the last of them. */
size_t qn_imported_count(const qn_imported *f);
const qn_arrays *qn_imported_inputs(const qn_imported *f, size_t i,
                                    const qn_str **keys, size_t *nkeys);

#endif
