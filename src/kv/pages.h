/* pages.h: sequences that are kept, in pages of 32 tokens that several share.
 *
 * A cache that is in use lies in arrays of its own, which attention reads from
 * end to end.  Between two uses it can be taken apart: pages hold the planes of
 * quern_kv_read of 32 tokens in all layers, and are counted.  Sequences that
 * begin alike hold the same pages as far as they do; one that goes on where
 * another page is only partly filled gets a copy of that page (copy on write).
 *
 * What has no tokens (states), or not all of them (windows), is kept as it was
 * at the end, so such a sequence can only be given back whole. */
#ifndef QN_KV_PAGES_H
#define QN_KV_PAGES_H

#include "cache.h"

enum { QN_KV_PAGE = 32 };

typedef struct qn_kv_pages qn_kv_pages;

/* The sequence in `cache`, which stays as it is.  The first `shared` tokens are
 * those of `base` (which may be NULL, then it is 0): whole pages of them are
 * taken from there.  Evaluates.  The caller owns *out (qn_kv_pages_free). */
qn_status qn_kv_pages_take(qn_kv_pages **out, const qn_kv_cache *cache,
                           const qn_kv_pages *base, int shared, mlx_stream s);
void qn_kv_pages_free(qn_kv_pages *pages);

int qn_kv_pages_length(const qn_kv_pages *pages);
/* Whether its first `length` tokens can be given. */
bool qn_kv_pages_has(const qn_kv_pages *pages, int length);
/* Puts the first `length` tokens into `cache`, which is empty and of the shape
 * of the one that they are from: with the bits that it had there.
 * QN_E_UNSUPPORTED when qn_kv_pages_has is false.  On failure the cache is
 * empty. */
qn_status qn_kv_pages_give(const qn_kv_pages *pages, int length,
                           qn_kv_cache *cache, mlx_stream s);

/* Bytes that would be free without this sequence: what it shares does not
 * count. */
size_t qn_kv_pages_bytes(const qn_kv_pages *pages);

#endif
