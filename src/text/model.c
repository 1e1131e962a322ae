/* model.c: what the models share. */
#include "model.h"

#include "base/alloc.h"
#include "symbol.h"

void qn_scratch_free(qn_scratch *scratch)
{
    qn_free(scratch->symbols);
    qn_free(scratch->heap);
    qn_free(scratch->path);
    qn_buf_free(&scratch->text);
    *scratch = (qn_scratch){0};
}

qn_status qn_scratch_reserve(qn_scratch *scratch, size_t symbols, size_t heap)
{
    if (scratch->symbol_capacity < symbols) {
        qn_symbol *data = qn_reallocarray(NULL, symbols, sizeof *data);
        if (!data)
            return QN_E_NOMEM;
        qn_free(scratch->symbols);
        scratch->symbols = data;
        scratch->symbol_capacity = symbols;
    }
    if (scratch->heap_capacity < heap) {
        uint64_t *data = qn_reallocarray(NULL, heap, sizeof *data);
        if (!data)
            return QN_E_NOMEM;
        qn_free(scratch->heap);
        scratch->heap = data;
        scratch->heap_capacity = heap;
    }
    return QN_OK;
}
