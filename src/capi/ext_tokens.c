/* ext_tokens.c: masks of tokens and the choice of one. */
#include "handles.h"
#include "ops_entry.h"

#include "quern/ext.h"

#include <limits.h>
#include <string.h>

/* The masks as arrays: their words, and which of them are missing (NULL where
 * none is). */
static qn_status read_masks(qn_array **words, qn_array **open,
                            const int32_t *const *rows, size_t count,
                            size_t width)
{
    int shape[] = {(int)count, (int)width};
    size_t row = width * sizeof **rows, size;
    bool any = false;
    if (count > INT_MAX || width > INT_MAX || !qn_mul_size(&size, count, row))
        return qn_fail(
            QN_E_ARG, "[token_bitmask] Expected masks, found %zu of %zu words.",
            count, width);
    uint8_t *missing = qn_calloc(count + 1, 1);
    char *data = qn_calloc(size + 1, 1);
    qn_status status = missing && data ? QN_OK : QN_E_NOMEM;
    for (size_t i = 0; i < count && !status; i++) {
        missing[i] = !rows[i];
        any |= !rows[i];
        if (rows[i] && row)
            memcpy(data + i * row, rows[i], row);
    }
    if (!status)
        status = qn_array_from_data(words, data, shape, 2, QN_UINT32);
    if (!status && any) {
        status = qn_array_from_data(open, missing, shape, 1, QN_BOOL);
        if (status)
            qn_array_unref(*words);
    }
    qn_free(missing);
    qn_free(data);
    return status;
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
        qn_fail(QN_E_ARG, "[token_bitmask] Expected %zu words, found NULL.",
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
