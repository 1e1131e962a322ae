/* ext_forms.h: functions of quern/ext.h in both forms: the engine's, and the
 * fallback made of mlx_* calls, which the build compiles into these tests under
 * names with fallback_. */
#ifndef QN_TEST_CAPI_EXT_FORMS_H
#define QN_TEST_CAPI_EXT_FORMS_H

#include "quern/ext.h"

int fallback_materialize(mlx_array *res, const mlx_array x, const mlx_stream s);
int fallback_arange(mlx_array *res, double start, double stop, double step,
                    mlx_dtype dtype, const mlx_stream s);
int fallback_arange_cache_clear(void);
int fallback_quantized_matmul_rows(mlx_array *res, const mlx_array x,
                                   const mlx_array w, const mlx_array scales,
                                   const mlx_array biases, int group_size,
                                   int bits, const char *mode,
                                   const mlx_stream s);
int fallback_apply_token_bitmask(mlx_array *res, const mlx_array logits,
                                 const int32_t *words, size_t n_words,
                                 const mlx_stream s);
int fallback_apply_token_bitmask_rows(mlx_array *res, const mlx_array logits,
                                      const int32_t *const *words,
                                      size_t n_rows, size_t words_per_row,
                                      const mlx_stream s);
int fallback_normalized_argmax(mlx_array *res, const mlx_array logits,
                               const mlx_stream s);

typedef struct ext_form {
    const char *name;
    int (*materialize)(mlx_array *, mlx_array, mlx_stream);
    int (*arange)(mlx_array *, double, double, double, mlx_dtype, mlx_stream);
    int (*arange_cache_clear)(void);
    int (*rows)(mlx_array *, mlx_array, mlx_array, mlx_array, mlx_array, int,
                int, const char *, mlx_stream);
    int (*mask)(mlx_array *, mlx_array, const int32_t *, size_t, mlx_stream);
    int (*mask_rows)(mlx_array *, mlx_array, const int32_t *const *, size_t,
                     size_t, mlx_stream);
    int (*argmax)(mlx_array *, mlx_array, mlx_stream);
} ext_form;

enum { EXT_FORMS = 2 };
static const ext_form ext_forms[EXT_FORMS] = {
    {"engine", quern_materialize, quern_arange, quern_arange_cache_clear,
     quern_quantized_matmul_rows, quern_apply_token_bitmask,
     quern_apply_token_bitmask_rows, quern_normalized_argmax},
    {"fallback", fallback_materialize, fallback_arange,
     fallback_arange_cache_clear, fallback_quantized_matmul_rows,
     fallback_apply_token_bitmask, fallback_apply_token_bitmask_rows,
     fallback_normalized_argmax}};

#endif
