/* scheme.h: the ways in which keys and values are stored, and their names.
 *
 *   f32, f16, bf16   as floats
 *   affine4, affine8 codes of 4 or 8 bits, scale and bias for each group of 64
 *                    elements of a head (32 where 64 does not divide it), as
 *                    mlx_quantize makes them
 *   turbo:kXvY       TurboQuant: keys of X bits (2, 4, 5, 8), values of Y bits
 *                    (2, 3, 4, 5, 8); "turbo" is turbo:k8v3.  Heads of 64, 128,
 *                    256 and 512 */
#ifndef QN_KV_SCHEME_H
#define QN_KV_SCHEME_H

#include "base/status.h"

#include <mlx/c/mlx.h>

typedef struct qn_kv_scheme {
    mlx_dtype dtype; /* float32, float16 or bfloat16; with codes, of scales */
    int bits, group; /* affine codes; 0 bits: none */
    int key_bits, value_bits; /* turbo; 0: it is not */
} qn_kv_scheme;

/* The scheme with that name.  Scales of affine codes have the type `floats`.
 * QN_E_ARG for another text, QN_E_UNSUPPORTED for widths that turbo does not
 * have. */
qn_status qn_kv_scheme_parse(qn_kv_scheme *out, const char *name,
                             mlx_dtype floats);
/* Fits the groups to heads of `head_dim` elements; QN_E_UNSUPPORTED when the
 * scheme can't store them. */
qn_status qn_kv_scheme_fit(qn_kv_scheme *scheme, int head_dim);

bool qn_kv_scheme_same(const qn_kv_scheme *a, const qn_kv_scheme *b);

enum { QN_KV_NAME_SIZE = 16 };
/* The name, "turbo:k8v3". */
void qn_kv_scheme_name(char name[QN_KV_NAME_SIZE], const qn_kv_scheme *scheme);

/* Bytes of the key and the value of one token of one head. */
size_t qn_kv_scheme_bytes(const qn_kv_scheme *scheme, int head_dim);

#endif
