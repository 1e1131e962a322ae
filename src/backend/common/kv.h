/* kv.h: rows into the caches of KV_ATTENTION, and where things lie in them
 * (qn_kv_form in ops/params.h has the layout). */
#ifndef QN_BACKEND_COMMON_KV_H
#define QN_BACKEND_COMMON_KV_H

#include "core/array.h"
#include "ops/params.h"

/* Storage for `out`: that of `in` with what it holds when that dies with the
 * node, else none yet, and false. */
bool qn_kv_take_over(qn_array *out, const qn_array *in);

/* Elements of an array of a cache before what the token at `position` of a
 * head is in: its row, or, where the array is in blocks, its block. */
size_t qn_kv_at(const qn_array *array, int head, int position);

/* Stores the key and the value of one head of the token at `position`.  The
 * arrays are row-major.  Rows are `head_dim` elements of the form's dtype;
 * with codes they are floats. */
void qn_kv_put(const qn_kv_form *form, qn_array *const *arrays, int head,
               int position, const void *k, const void *v);

/* A head of the first `count` tokens between a cache and planes (KV_READ), both
 * row-major. */
void qn_kv_read_head(const qn_kv_form *form, qn_array *const *planes,
                     qn_array *const *arrays, int head, int count);
void qn_kv_write_head(const qn_kv_form *form, qn_array *const *arrays,
                      qn_array *const *planes, int head, int count);

#endif
