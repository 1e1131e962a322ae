/* import.h: prompt caches that mlx-lm has saved.
 *
 * A safetensors file with the state of each layer and, in its metadata, the
 * class that it is of.  "N.0" and "N.1" are keys and values of layer N, [1,
 * heads, T, head_dim], or "N.0.0", .1 and .2 codes, scales and biases of packed
 * keys.  Since mlx-lm 0.32 the class is "1.N", arrays have room for more tokens
 * than there are, and "N.2" and the following are the numbers of the state:
 * tokens, and of a ring how many stay, how many there are at most, and where it
 * goes on.  Before, the class was "2.N" and the numbers were texts, "0.N.I".
 * The file does not say which tokens they are. */
#ifndef QN_KV_IMPORT_H
#define QN_KV_IMPORT_H

#include "cache.h"

/* Whether the file is one: *out.  QN_E_NOTFOUND, QN_E_FORMAT. */
qn_status qn_kv_import_check(bool *out, const char *path, mlx_stream s);
/* Reads it into `cache`, which must be empty and store keys and values as the
 * file does: floats (KVCache; RotatingKVCache that has dropped nothing yet, for
 * a layer with the same window) or affine codes (QuantizedKVCache).  Its length
 * is that of the file's.  QN_E_MISMATCH: of another shape or kind;
 * QN_E_UNSUPPORTED: of another class, or longer than the cache may be.  On
 * failure the cache is empty. */
qn_status qn_kv_import(qn_kv_cache *cache, const char *path, mlx_stream s);

#endif
