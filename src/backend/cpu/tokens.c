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
    size_t masks;
    const uint32_t *words; /* of mask 0; the next is `step` on */
    int64_t step;
    const uint8_t *open; /* where not 0, `ones` is the mask; NULL: nowhere */
    int64_t open_step;
    const uint32_t *ones;
    void *out;
} mask_job;

static void mask_range(void *ctx, size_t begin, size_t end, int worker)
{
    (void)worker;
    const mask_job *job = ctx;
    size_t blocks = qn_token_blocks(&job->rows);
    size_t together = job->rows.count / job->masks;
    for (size_t i = begin; i < end; i++) {
        int64_t mask = (int64_t)(i / blocks / together);
        bool open = job->open && job->open[mask * job->open_step];
        qn_token_mask(&job->rows, i,
                      open ? job->ones : job->words + mask * job->step,
                      job->out);
    }
}

/* Words as rows of neighbours that reach to the end of the vocabulary: where
 * they lie, or copied (*held), those that are missing being 0; and a mask of
 * ones where one is open. */
static qn_status need_words(mask_job *job, qn_buffer **held,
                            const qn_node *node)
{
    const qn_array *words = node->inputs[1];
    size_t width = (job->rows.n + 31) / 32, given = (size_t)words->shape[1];
    bool there = given >= width && (words->strides[1] == 1 || width == 1);
    size_t masks = (size_t)words->shape[0], copies = there ? 0 : masks, bytes;
    job->masks = masks;
    if (node->ninputs > 2) {
        job->open = qn_array_data(node->inputs[2]);
        job->open_step = node->inputs[2]->strides[0];
    }
    size_t rows = copies + (job->open != NULL);
    job->words = there ? qn_array_data(words) : NULL;
    job->step = words->strides[0];
    if (!rows)
        return QN_OK;
    if (!qn_mul_size(&bytes, rows, width * sizeof(uint32_t)))
        return qn_fail(QN_E_NOMEM, "cpu: %zu masks", rows);
    qn_status status = qn_buffer_new(held, bytes);
    if (status)
        return status;
    uint32_t *to = (*held)->data;
    job->ones = to + copies * width;
    memset(to, 0, bytes);
    if (job->open)
        memset(to + copies * width, 0xff, width * sizeof *to);
    for (size_t m = 0; m < copies; m++)
        for (size_t w = 0; w < width && w < given; w++)
            memcpy(&to[m * width + w],
                   qn_element(words, (int64_t)m * words->strides[0] +
                                         (int64_t)w * words->strides[1]),
                   sizeof *to);
    if (copies) {
        job->words = to;
        job->step = (int64_t)width;
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
    memset(&job, 0, sizeof job);
    job.rows = qn_token_rows_of(qn_array_data(in), in->dtype, in->ndim,
                                in->shape, in->strides);
    qn_status status = need_words(&job, &held, node);
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
