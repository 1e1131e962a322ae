/* ops_entry.h: the last step of an operation's C entry. */
#ifndef QN_CAPI_OPS_ENTRY_H
#define QN_CAPI_OPS_ENTRY_H

#include "base/alloc.h"
#include "ops/ops.h"
#include "ops/params.h"

/* Builds an array with `call`, which stores it in `out`, and returns from the
 * entry with that as its result. */
#define QN_RETURN_OP(res, call)                                                \
    do {                                                                       \
        qn_array *out = NULL;                                                  \
        QN_CALL(call);                                                         \
        return QN_STORE_ARRAY(res, out);                                       \
    } while (0)

/* The same for a list of `count` arrays that `call` makes in `list`. */
#define QN_RETURN_OPS(res, call)                                               \
    do {                                                                       \
        qn_array **list = NULL;                                                \
        size_t count = 0;                                                      \
        QN_CALL(call);                                                         \
        qn_status status = qn_handle_set_arrays(res, list, count);             \
        qn_free(list);                                                         \
        return status ? QN_REPORT() : 0;                                       \
    } while (0)

/* The value of a MLX optional, or NULL. */
#define QN_OPTIONAL(option) ((option).has_value ? &(option).value : NULL)

/* A text argument; a missing one reads as empty. */
static inline const char *qn_capi_text(const char *text)
{
    return text ? text : "";
}

#endif
