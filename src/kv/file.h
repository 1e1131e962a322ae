/* file.h: the saved form of a cache.
 *
 * A safetensors file with a tensor "tokens" (uint32) and, for each layer, the
 * canonical planes of quern_kv_read ("layers.0.keys" and ".values"; with affine
 * codes each with .scales and .biases; with turbo k_packed, k_scale, k_zero,
 * v_packed, v_scale), or "conv" and "state" of a recurrent one.  Of a layer
 * with a window those tokens are there that the next one sees, in whole blocks
 * of 128.  Its metadata has "format" (quern-kv-1), what the caller knows of the
 * model, "layers", "kind" (what each layer stores and how), "tokens",
 * "budget" (qn_kv_cache_set_budget), what computed it (release, MLX version,
 * backend, device and instruction set, the type of keys and values, and what
 * the caller knows of it: other last bits, so another continuation), and a
 * checksum (CRC-64) over all of it. */
#ifndef QN_KV_FILE_H
#define QN_KV_FILE_H

#include "cache.h"

/* Something that must be equal when the file is loaded: what was computed, such
 * as the digest of the model, or (`engine`) how. */
typedef struct qn_kv_fact {
    const char *name, *value;
    bool engine;
} qn_kv_fact;

/* Writes the tokens `ids`, as many as the cache has, and what is stored of
 * them; a file of that name is replaced once all is written.  QN_E_ARG for an
 * empty cache. */
qn_status qn_kv_cache_save(const qn_kv_cache *cache, const char *path,
                           const int32_t *ids, const qn_kv_fact *facts,
                           size_t count, mlx_stream s);

/* The same in pieces, for who has other things to do between them.  The cache
 * and the texts of the facts are borrowed until it is freed.  A step takes what
 * one layer has, which is held until the end; when *more is false all is there,
 * and the file can be written: from any thread, as nothing is computed then. */
typedef struct qn_kv_saving qn_kv_saving;
qn_status qn_kv_saving_new(qn_kv_saving **out, const qn_kv_cache *cache,
                           const int32_t *ids, const qn_kv_fact *facts,
                           size_t count, mlx_stream s);
qn_status qn_kv_saving_step(qn_kv_saving *saving, bool *more);
qn_status qn_kv_saving_write(qn_kv_saving *saving, const char *path);
void qn_kv_saving_free(qn_kv_saving *saving);

/* Restores what was saved into `cache`, which must be empty; *ids becomes the
 * tokens, as many as its length, which the caller frees (qn_free).  On failure
 * the cache is empty.  QN_E_NOTFOUND; QN_E_FORMAT: cut short, or changed;
 * QN_E_MISMATCH: of another model or kind, by the name of what differs;
 * QN_E_UNSUPPORTED: computed in another way (release, library, kind of
 * processor, types), in which it may still be good, or longer than the cache
 * may be. The ids are not negative; whether the model has them is the caller's
 * to check. */
qn_status qn_kv_cache_load(qn_kv_cache *cache, const char *path, int32_t **ids,
                           const qn_kv_fact *facts, size_t count, mlx_stream s);

/* The tokens alone, of which nothing but their type is checked; *ids is the
 * caller's (qn_free).  Statuses as above. */
qn_status qn_kv_file_tokens(const char *path, int32_t **ids, size_t *count,
                            mlx_stream s);

#endif
