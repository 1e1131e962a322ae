/* kv.h: rows into the caches of KV_ATTENTION, and where things lie in them
 * (qn_kv_form in ops/params.h has the layout). */
#ifndef QN_BACKEND_COMMON_KV_H
#define QN_BACKEND_COMMON_KV_H

#include "core/array.h"
#include "ops/params.h"

/* Storage for `out`: that of `in` with what it holds when that dies with the
 * node, else none yet, and false. */
bool qn_kv_take_over(qn_array *out, const qn_array *in);

/* Stores the key and the value of one head of the token at `position`.  The
 * arrays are row-major.  Rows are `head_dim` elements of the form's dtype;
 * with codes they are floats. */
void qn_kv_put(const qn_kv_form *form, qn_array *const *arrays, int head,
               int position, const void *k, const void *v);

/* Elements before token `position` of a head in array `part` of a cache; keys
 * in blocks: before its block, `position` being the first of one. */
size_t qn_kv_at(const qn_kv_form *form, qn_array *const *arrays, int part,
                int head, int position);

#endif
