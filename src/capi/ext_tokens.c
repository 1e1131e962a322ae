/* ext_tokens.c: masks of tokens and the choice of one. */
#include "handles.h"
#include "ops_entry.h"

#include "quern/ext.h"

#include <limits.h>
#include <string.h>

/* A new row-major array to be filled. */
static qn_status fresh(qn_array **out, const int *shape, int ndim,
                       qn_dtype dtype)
{
    qn_array *array;
    qn_status status = qn_array_new(&array, dtype, shape, ndim);
    if (status)
        return status;
    status = qn_array_alloc(array);
    if (status) {
        qn_array_delete(array);
        return status;
    }
    qn_array_set_ready(array);
    *out = array;
    return QN_OK;
}

/* The masks as arrays: their words, and which of them are missing (NULL where
 * none is). */
static qn_status read_masks(qn_array **words, qn_array **open,
                            const int32_t *const *rows, size_t count,
                            size_t width)
{
    size_t row = width * sizeof **rows, missing = 0;
    if (count > INT_MAX || width > INT_MAX)
        return qn_fail(
            QN_E_ARG,
            "[apply_token_bitmask] Expected masks, found %zu of %zu words.",
            count, width);
    int shape[] = {(int)count, (int)width};
    for (size_t i = 0; i < count; i++)
        missing += !rows[i];
    qn_status status = fresh(words, shape, 2, QN_UINT32);
    if (status)
        return status;
    char *to = qn_array_data(*words);
    for (size_t i = 0; i < count && row; i++) {
        if (rows[i])
            memcpy(to + i * row, rows[i], row);
        else
            memset(to + i * row, 0xff, row);
    }
    if (!missing)
        return QN_OK;
    status = fresh(open, shape, 1, QN_BOOL);
    if (status) {
        qn_array_unref(*words);
        return status;
    }
    uint8_t *flags = qn_array_data(*open);
    for (size_t i = 0; i < count; i++)
        flags[i] = !rows[i];
    return QN_OK;
}

int quern_apply_token_bitmask_rows(mlx_array *res, const mlx_array logits,
                                   const int32_t *const *words, size_t n_rows,
                                   size_t words_per_row, const mlx_stream s)
{
    QN_GET_ARRAY(x, logits);
    QN_GET_STREAM(stream, s);
    qn_array *masks, *open = NULL, *out = NULL;
    QN_CALL(read_masks(&masks, &open, words, n_rows, words_per_row));
    qn_status status = qn_op_token_bitmask(&out, x, masks, open, stream);
    qn_array_unref(masks);
    qn_array_unref(open);
    QN_CALL(status);
    return QN_STORE_ARRAY(res, out);
}

int quern_apply_token_bitmask(mlx_array *res, const mlx_array logits,
                              const int32_t *words, size_t n_words,
                              const mlx_stream s)
{
    static const int32_t none;
    const int32_t *row = n_words ? words : &none;
    if (!row) {
        qn_fail(QN_E_ARG,
                "[apply_token_bitmask] Expected %zu words, found NULL.",
                n_words);
        return QN_REPORT();
    }
    return quern_apply_token_bitmask_rows(res, logits, &row, 1, n_words, s);
}

int quern_normalized_argmax(mlx_array *res, const mlx_array logits,
                            const mlx_stream s)
{
    QN_GET_ARRAY(x, logits);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, qn_op_normalized_argmax(&out, x, stream));
}
