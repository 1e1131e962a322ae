/* licence.h: a model's licence, for `quern show`. */
#ifndef QN_CLI_LICENCE_H
#define QN_CLI_LICENCE_H

#include "base/buf.h"

typedef struct qn_licence {
    qn_buf name; /* as the model spells it: "apache-2.0"; may be empty */
    qn_buf file; /* name of the file beside the weights; may be empty */
} qn_licence;

/* Looks beside `path`, or into it if it is a GGUF file.  Whatever can't be
 * read counts as absent.  Free with qn_licence_free. */
void qn_licence_find(qn_licence *out, const char *path, bool gguf);
void qn_licence_free(qn_licence *licence);

#endif
