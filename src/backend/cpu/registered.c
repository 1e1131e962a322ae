/* registered.c: the custom kernels that quern has itself, so that programs
 * written for Metal's run: the source that they pass is not looked at.
 *
 *   mlx_bun_token_bitmask       logits + (0 where a token's bit is 1, -inf
 *                               where it is 0), an addition in the logits' type
 *   normalized_argmax_partial   for each tile of 1024 tokens, the largest
 *                               logit - lse rounded to the logits' type, and
 *                               the first place where it is; NaN counts as -inf
 *   normalized_argmax_finish    the place of the largest of these, the first
 *                               of equal ones
 *   turboquant_kv_decode, turboquant_kv_inverse256   (turbo.c)
 *   quern_gated_delta                                (delta.c)
 *
 * Each checks every shape and dtype before it reads. */
#include "registered.h"

#include "cpu.h"

#include "core/buffer.h"
#include "tokens.h"

#include <math.h>
#include <string.h>

enum { TILE = 1024 };

/* ---- checks ---- */

static bool same_shape(const qn_kernel_view *a, const qn_kernel_view *b)
{
    bool same = a->ndim == b->ndim;
    for (int i = 0; same && i < a->ndim; i++)
        same = a->shape[i] == b->shape[i];
    return same;
}

/* 0, or 1 after a message: logits with at least one element, of type T and
 * with V of them along the last axis. */
static int open_logits(qn_token_rows *rows, const qn_kernel_args *args)
{
    const qn_kernel_view *v = &args->in[0];
    qn_dtype type;
    int n;
    if (!qn_cpu_narrow_float(v->dtype) ||
        !qn_template_dtype(args->templates, "T", &type) || type != v->dtype)
        return qn_kernel_refuse(
            args,
            "logits of float32, float16 or bfloat16 and T of "
            "the same type are expected, found %s",
            qn_dtype_name(v->dtype));
    if (!v->ndim || !qn_view_size(v) ||
        !qn_template_int(args->templates, "V", &n) ||
        n != v->shape[v->ndim - 1])
        return qn_kernel_refuse(
            args, "V must be the length of the last axis of logits "
                  "that are not empty");
    *rows = qn_token_rows_of(v->data, v->dtype, v->ndim, v->shape, v->strides);
    return 0;
}

/* ---- token bitmask ---- */

typedef struct bitmask {
    qn_token_rows logits;
    const uint32_t *words;
    void *out;
} bitmask;

static void mask_block(void *arg, size_t i, void *scratch)
{
    (void)scratch;
    const bitmask *b = arg;
    qn_token_mask(&b->logits, i, b->words, b->out);
}

/* The words that a row needs, neighbours; those that are missing are 0. */
static qn_status need_words(qn_buffer **out, const qn_kernel_view *bits,
                            size_t n)
{
    size_t width = (n + 31) / 32, given = (size_t)bits->shape[0];
    qn_status status = qn_buffer_new(out, width * sizeof(uint32_t));
    if (status)
        return status;
    uint32_t *words = (*out)->data;
    memset(words, 0, width * sizeof *words);
    for (size_t i = 0; i < width && i < given; i++)
        memcpy(&words[i], qn_view_place(bits, (int64_t)i * bits->strides[0]),
               sizeof *words);
    return QN_OK;
}

static int token_bitmask(const qn_kernel_args *args, const void *user)
{
    (void)user;
    const qn_kernel_view *bits = &args->in[1], *out = &args->out[0];
    bitmask b = {.out = out->data};
    qn_buffer *held;
    int size;
    if (open_logits(&b.logits, args))
        return 1;
    if (bits->dtype != QN_INT32 || bits->ndim != 1)
        return qn_kernel_refuse(args,
                                "bits of one axis and type int32 are expected");
    if (out->dtype != args->in[0].dtype || !same_shape(out, &args->in[0]))
        return qn_kernel_refuse(args,
                                "out must have the logits' shape and type");
    if (!qn_template_int(args->templates, "SIZE", &size) || size < 0 ||
        (size_t)size != qn_view_size(&args->in[0]))
        return qn_kernel_refuse(args, "SIZE must be the number of logits");
    if (need_words(&held, bits, b.logits.n))
        return qn_kernel_refuse(args, "out of memory");
    b.words = held->data;
    args->parallel(args->ctx, b.logits.count * qn_token_blocks(&b.logits),
                   mask_block, &b);
    qn_buffer_unref(held);
    return 0;
}

/* ---- normalized argmax ---- */

typedef struct partial {
    qn_token_rows logits;
    const qn_kernel_view *lse;
    qn_dtype type;
    float *values;
    uint32_t *indices;
} partial;

static size_t tiles_of(const qn_token_rows *rows)
{
    return (rows->n + TILE - 1) / TILE;
}

/* The first place of the largest; NaN counts as -inf. */
static size_t largest(const float *scores, size_t n, float *value)
{
    size_t best = 0;
    *value = isnan(scores[0]) ? -INFINITY : scores[0];
    for (size_t i = 1; i < n; i++)
        if (scores[i] > *value) {
            *value = scores[i];
            best = i;
        }
    return best;
}

static void score_tile(void *arg, size_t i, void *scratch)
{
    (void)scratch;
    const partial *p = arg;
    size_t tiles = tiles_of(&p->logits), line = i / tiles;
    size_t first = i % tiles * TILE, left = p->logits.n - first;
    size_t n = left < TILE ? left : TILE;
    float scores[TILE], lse;
    char stored[TILE * sizeof(float)];
    qn_cpu_widen(scores, qn_token_load(&p->logits, line, first, n, stored), n,
                 p->type);
    qn_cpu_widen(
        &lse, qn_view_place(p->lse, qn_view_offset(p->lse, p->lse->ndim, line)),
        1, p->type);
    for (size_t j = 0; j < n; j++)
        scores[j] -= lse;
    if (p->type != QN_FLOAT32) {
        qn_cpu_narrow(stored, scores, n, p->type);
        qn_cpu_widen(scores, stored, n, p->type);
    }
    p->indices[i] = (uint32_t)(first + largest(scores, n, &p->values[i]));
}

/* [rows, P]: P numbers for each line. */
static bool is_table(const qn_kernel_view *v, qn_dtype type, size_t rows,
                     size_t columns)
{
    return v->dtype == type && v->ndim == 2 && (size_t)v->shape[0] == rows &&
           (size_t)v->shape[1] == columns;
}

static int argmax_partial(const qn_kernel_args *args, const void *user)
{
    (void)user;
    partial p = {.lse = &args->in[1], .type = args->in[0].dtype};
    int columns;
    if (open_logits(&p.logits, args))
        return 1;
    size_t rows = p.logits.count, tiles = tiles_of(&p.logits);
    if (!qn_template_int(args->templates, "P", &columns) ||
        (size_t)columns != tiles)
        return qn_kernel_refuse(
            args, "P must be the number of tiles of %d tokens, %zu", TILE,
            tiles);
    if (p.lse->dtype != p.type || qn_view_size(p.lse) != rows)
        return qn_kernel_refuse(
            args,
            "lse must have the logits' type and one element "
            "for each of %zu rows",
            rows);
    if (!is_table(&args->out[0], QN_FLOAT32, rows, tiles) ||
        !is_table(&args->out[1], QN_UINT32, rows, tiles))
        return qn_kernel_refuse(
            args,
            "values of float32 and indices of uint32, %zu x "
            "%zu, are expected",
            rows, tiles);
    p.values = args->out[0].data;
    p.indices = args->out[1].data;
    args->parallel(args->ctx, rows * tiles, score_tile, &p);
    return 0;
}

static int argmax_finish(const qn_kernel_args *args, const void *user)
{
    (void)user;
    const qn_kernel_view *values = &args->in[0], *indices = &args->in[1];
    const qn_kernel_view *out = &args->out[0];
    int columns;
    if (!qn_template_int(args->templates, "P", &columns) || columns < 1 ||
        values->ndim != 2 ||
        !is_table(values, QN_FLOAT32, (size_t)values->shape[0],
                  (size_t)columns) ||
        !is_table(indices, QN_UINT32, (size_t)values->shape[0],
                  (size_t)columns))
        return qn_kernel_refuse(
            args, "values of float32 and indices of uint32 with P "
                  "columns are expected");
    if (out->dtype != QN_UINT32 ||
        qn_view_size(out) != (size_t)values->shape[0])
        return qn_kernel_refuse(args, "out must be uint32, one for each row");
    uint32_t *to = out->data;
    for (int r = 0; r < values->shape[0]; r++) {
        float best = -INFINITY;
        uint32_t at = UINT32_MAX;
        for (int c = 0; c < columns; c++) {
            const float *value = (const void *)qn_view_place(
                values, r * values->strides[0] + c * values->strides[1]);
            const uint32_t *index = (const void *)qn_view_place(
                indices, r * indices->strides[0] + c * indices->strides[1]);
            float score = isnan(*value) ? -INFINITY : *value;
            if (score > best || (score == best && *index < at)) {
                best = score;
                at = *index;
            }
        }
        to[r] = at;
    }
    return 0;
}

/* ---- the table ---- */

void qn_cpu_register_kernels(void)
{
    static const char *const logits_bits[] = {"logits", "bits", NULL};
    static const char *const logits_lse[] = {"logits", "lse", NULL};
    static const char *const pairs[] = {"values", "indices", NULL};
    static const char *const out[] = {"out", NULL};
    static const char *const mask_args[] = {"T", "V", "SIZE", NULL};
    static const char *const partial_args[] = {"T", "V", "P", NULL};
    static const char *const finish_args[] = {"P", NULL};
    static const struct {
        const char *name;
        qn_kernel_entry entry;
    } table[] = {
        {"mlx_bun_token_bitmask",
         {token_bitmask, NULL, logits_bits, out, mask_args}},
        {"normalized_argmax_partial",
         {argmax_partial, NULL, logits_lse, pairs, partial_args}},
        {"normalized_argmax_finish",
         {argmax_finish, NULL, pairs, out, finish_args}},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        qn_kernel_register(table[i].name, &table[i].entry);
    qn_cpu_register_turbo();
    qn_cpu_register_experts();
    qn_cpu_register_delta();
}
