/* model.c: what the models share. */
#include "model.h"

#include "base/alloc.h"

void qn_scratch_free(qn_scratch *scratch)
{
    qn_free(scratch->symbols);
    qn_free(scratch->heap);
    qn_free(scratch->path);
    qn_buf_free(&scratch->text);
    *scratch = (qn_scratch){0};
}
