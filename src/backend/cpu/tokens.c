/* tokens.c: masks of tokens, on all threads.
 *
 * Rows fall into blocks that threads share.  What bounds it is memory: a block
 * is read and written once, with a word of 32 tokens that is spread over lanes
 * in between. */
#include "tokens.h"

#include "cpu.h"

#include "backend/common/output.h"
#include "backend/cpu/kernels/rows/rows.h"
#include "backend/ref/stage.h"
#include "base/alloc.h"
#include "pool.h"

#include <string.h>

/* ---- rows ---- */

qn_token_rows qn_token_rows_of(const void *data, qn_dtype type, int ndim,
                               const int *shape, const int64_t *strides)
{
    qn_token_rows rows = {
        data, type, ndim, shape, strides, 1, (size_t)shape[ndim - 1]};
    for (int i = 0; i < ndim - 1; i++)
        rows.count *= (size_t)shape[i];
    return rows;
}

size_t qn_token_blocks(const qn_token_rows *rows)
{
    return (rows->n + QN_TOKENS_BLOCK - 1) / QN_TOKENS_BLOCK;
}

size_t qn_token_block_size(const qn_token_rows *rows, size_t block)
{
    size_t left = rows->n - block * QN_TOKENS_BLOCK;
    return left < QN_TOKENS_BLOCK ? left : QN_TOKENS_BLOCK;
}

const void *qn_token_load(const qn_token_rows *rows, size_t row, size_t first,
                          size_t n, void *space)
{
    int last = rows->ndim - 1;
    int64_t step = rows->strides[last], at = (int64_t)first * step;
    int64_t item = (int64_t)qn_dtype_size(rows->type);
    for (int i = last - 1; i >= 0; i--) {
        size_t length = (size_t)rows->shape[i];
        at += (int64_t)(row % length) * rows->strides[i];
        row /= length;
    }
    const char *from = rows->data + at * item;
    if (step == 1 || n == 1)
        return from;
    for (size_t i = 0; i < n; i++)
        memcpy((char *)space + i * (size_t)item,
               from + (int64_t)i * step * item, (size_t)item);
    return space;
}

void qn_token_mask(const qn_token_rows *rows, size_t i, const uint32_t *words,
                   void *out)
{
    float space[QN_TOKENS_BLOCK];
    size_t blocks = qn_token_blocks(rows), row = i / blocks;
    size_t first = i % blocks * QN_TOKENS_BLOCK;
    size_t n = qn_token_block_size(rows, i % blocks);
    size_t at = (row * rows->n + first) * qn_dtype_size(rows->type);
    qn_rows_pick()->mask((char *)out + at,
                         qn_token_load(rows, row, first, n, space), n,
                         words + first / 32, rows->type);
}

/* ---- the operation ---- */

typedef struct mask_job {
    qn_token_rows rows;
    const uint32_t *words; /* [masks, width], width enough for a row */
    size_t masks, width;
    void *out;
} mask_job;

static void mask_range(void *ctx, size_t begin, size_t end, int worker)
{
    (void)worker;
    const mask_job *job = ctx;
    size_t blocks = qn_token_blocks(&job->rows);
    for (size_t i = begin; i < end; i++) {
        size_t mask = i / blocks / (job->rows.count / job->masks);
        qn_token_mask(&job->rows, i, job->words + mask * job->width, job->out);
    }
}

/* The masks with every word that a row needs: those that are missing are 0, and
 * all bits of an open mask are 1. */
static qn_status whole_masks(mask_job *job, qn_buffer **held,
                             const qn_node *node)
{
    const qn_array *words = node->inputs[1];
    const qn_array *open = node->ninputs > 2 ? node->inputs[2] : NULL;
    size_t given = (size_t)words->shape[1], bytes;
    job->masks = (size_t)words->shape[0];
    job->width = (job->rows.n + 31) / 32;
    if (!qn_mul_size(&bytes, job->masks, job->width * sizeof(uint32_t)))
        return qn_fail(QN_E_NOMEM, "cpu: %zu masks", job->masks);
    qn_status status = qn_buffer_new(held, bytes);
    if (status)
        return status;
    uint32_t *to = (*held)->data;
    job->words = to;
    for (size_t m = 0; m < job->masks; m++)
        for (size_t w = 0; w < job->width; w++, to++) {
            *to = 0;
            if (open && *(const uint8_t *)qn_element(
                            open, (int64_t)m * open->strides[0]))
                *to = UINT32_MAX;
            else if (w < given)
                memcpy(to,
                       qn_element(words, (int64_t)m * words->strides[0] +
                                             (int64_t)w * words->strides[1]),
                       sizeof *to);
        }
    return QN_OK;
}

qn_status qn_cpu_token_bitmask(qn_node *node, bool *done)
{
    enum { GRAIN = 8 /* blocks that are not shared among threads */ };
    qn_array *out = node->outputs[0];
    const qn_array *in = node->inputs[0];
    mask_job job;
    qn_buffer *held = NULL;
    *done = true;
    job.rows = qn_token_rows_of(qn_array_data(in), in->dtype, in->ndim,
                                in->shape, in->strides);
    qn_status status = whole_masks(&job, &held, node);
    if (status)
        return status;
    /* Over the input where blocks lie as the output's do. */
    if (!in->row_contiguous || !qn_output_donate(out, in))
        status = qn_array_alloc(out);
    if (!status) {
        job.out = qn_array_data(out);
        qn_pool_split(mask_range, &job,
                      job.rows.count * qn_token_blocks(&job.rows), GRAIN, 1);
    }
    qn_buffer_unref(held);
    return status;
}
