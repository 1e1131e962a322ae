/* dtype.c: the table of element types. */
#include "dtype.h"

static const struct {
    const char *name;
    size_t size;
    qn_kind kind;
} types[QN_DTYPE_COUNT] = {
#define QN_X(id, name, bytes, kind) {name, bytes, QN_KIND_##kind},
    QN_DTYPES(QN_X)
#undef QN_X
};

size_t qn_dtype_size(qn_dtype dtype)
{
    return types[dtype].size;
}

const char *qn_dtype_name(qn_dtype dtype)
{
    return types[dtype].name;
}

qn_kind qn_dtype_kind(qn_dtype dtype)
{
    return types[dtype].kind;
}
