/* fuzz_mlxfn.c: a file of exported functions, from its bytes to graphs.
 *
 * A file that is accepted can be called with inputs of the kinds that it names:
 * that builds the graph, or refuses. Nothing is computed: how long that takes
 * is the function's business. */
#include "fuzz.h"

#include "capi/backends.h"
#include "transform/import.h"

enum { MOST_ELEMENTS = 1 << 12 };

/* Zeros in the shape of a placeholder; NULL where that is large. */
static qn_array *zeros_like(const qn_array *x)
{
    static const double zeros[MOST_ELEMENTS];
    qn_array *made = NULL;
    if (x->size <= MOST_ELEMENTS)
        FUZZ_CHECK(
            !qn_array_from_data(&made, zeros, x->shape, x->ndim, x->dtype));
    return made;
}

static void call(const qn_imported *f, size_t i)
{
    const qn_str *keys;
    size_t nkeys;
    const qn_arrays *like = qn_imported_inputs(f, i, &keys, &nkeys);
    qn_arrays in, out;
    FUZZ_CHECK(!qn_arrays_new(&in, like->count));
    bool small = true;
    for (size_t k = 0; k < like->count && small; k++) {
        in.data[k] = zeros_like(like->data[k]);
        small = in.data[k] != NULL;
    }
    qn_named named[8];
    if (small && nkeys <= 8) {
        size_t nargs = like->count - nkeys;
        for (size_t k = 0; k < nkeys; k++)
            named[k] = (qn_named){keys[k], in.data[nargs + k]};
        qn_status status =
            qn_imported_call(&out, f, in.data, nargs, named, nkeys);
        for (size_t k = 0; !status && k < out.count; k++)
            FUZZ_CHECK(out.data[k] != NULL);
        if (!status)
            qn_arrays_free(&out);
    }
    qn_arrays_free(&in);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    qn_imported *f;
    qn_backends_need();
    if (qn_imported_parse(&f, (qn_bytes){data, size}))
        return 0;
    for (size_t i = 0; i < qn_imported_count(f) && i < 4; i++)
        call(f, i);
    qn_imported_free(f);
    return 0;
}
