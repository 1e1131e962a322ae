/* import.h: prompt caches that mlx-lm has saved.
 *
 * A safetensors file with keys and values of each layer ("0.0", "0.1", "1.0",
 * ...: [1, heads, T, head_dim]); in its metadata "2.N" is the class of layer N.
 * It does not say which tokens they are. */
#ifndef QN_KV_IMPORT_H
#define QN_KV_IMPORT_H

#include "cache.h"

/* Whether the file is one: *out.  QN_E_NOTFOUND, QN_E_FORMAT. */
qn_status qn_kv_import_check(bool *out, const char *path, mlx_stream s);
/* Reads it into `cache`, which must be empty and store floats; its length is
 * that of the file's.  QN_E_MISMATCH: of another shape; QN_E_UNSUPPORTED: of
 * another class than KVCache, or longer than the cache may be.  On failure the
 * cache is empty. */
qn_status qn_kv_import(qn_kv_cache *cache, const char *path, mlx_stream s);

#endif
