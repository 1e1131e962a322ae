/* signature.h: what inputs a recorded function is for. */
#ifndef QN_TRANSFORM_SIGNATURE_H
#define QN_TRANSFORM_SIGNATURE_H

#include "export.h"

#include "base/buf.h"

typedef struct qn_signature {
    qn_arrays inputs; /* placeholders, named ones last */
    qn_str *keys;     /* of the named ones; owned */
    size_t nkeys;
} qn_signature;

/* Copies names; the inputs are placeholders of the types and shapes of `args`
 * and of the named ones. */
qn_status qn_signature_new(qn_signature *out, qn_array *const *args,
                           size_t nargs, const qn_named *named, size_t nnamed);
/* Copies names, for inputs that the caller adds. */
qn_status qn_signature_keys(qn_signature *s, const qn_str *keys, size_t nkeys);
void qn_signature_free(qn_signature *s);

bool qn_signature_fits(const qn_signature *s, bool shapeless,
                       qn_array *const *args, size_t nargs,
                       const qn_named *named, size_t nnamed);
/* "N positional inputs and M keyword inputs:" and a line for each. */
void qn_signature_text(qn_buf *buf, const char *indent, qn_array *const *args,
                       size_t nargs, const qn_named *named, size_t nnamed);
/* The same of a signature. */
void qn_signature_describe(qn_buf *buf, const char *indent,
                           const qn_signature *s);

#endif
