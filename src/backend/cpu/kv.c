/* kv.c: attention over caches: new rows are turned and stored, then every
 * sequence is a part of one run of the attention kernels.
 *
 * One row, as in decoding, is stored by the calling thread; those of a prompt,
 * or of several sequences, are shared. */
#include "attention.h"
#include "cpu.h"

#include "backend/common/kv.h"
#include "backend/common/kv_codes.h"
#include "backend/cpu/kernels/rows/rows.h"
#include "backend/cpu/kernels/turbo/turbo.h"
#include "backend/ref/loops.h"
#include "base/alloc.h"
#include "ops/params.h"
#include "pool.h"

#include <math.h>
#include <string.h>

_Static_assert((int)QN_KV_BLOCK == (int)QN_ATTENTION_CHUNK,
               "the kernel walks over keys block by block");

enum {
    GRAIN_ROWS = 2, /* rows that take as long as to wake a thread */
    KEPT_TURNS = 128,
    KEPT_ROWS = 16 /* of a step, whose angles are kept for the next layer */
};

typedef struct kv_run {
    const qn_kv_params *p;
    const qn_rows_kernel *rows;
    size_t count; /* of rows */
    qn_dtype type;
    const char *q, *k, *v;
    char *turned; /* q after the rotary embedding; NULL: there is none */
    const float *turn;
    bool kept; /* angles are those in `kept` */
    qn_array *const *caches;
    const qn_turbo_kernel *turbo; /* NULL: no turbo caches */
    float signs[QN_TQ_MAX_DIM];
    char *scratch; /* per worker: angles and two rows */
    size_t scratch_stride;
} kv_run;

/* ---- rotary embedding ---- */

/* How fast each pair turns.  A model asks for the same in every layer of every
 * step; evaluations come one at a time, so what was asked last can be kept. */
static const float *turns(const qn_kv_params *p, const qn_array *freqs,
                          float *room)
{
    static float kept[KEPT_TURNS], kept_base;
    static size_t kept_half;
    size_t half = (size_t)p->dims / 2;
    if (freqs) {
        const float *periods = qn_array_data(freqs);
        for (size_t i = 0; i < half; i++)
            room[i] = 1.0f / periods[(int64_t)i * freqs->strides[0]];
        return room;
    }
    bool fits = half <= KEPT_TURNS;
    float *to = fits ? kept : room;
    if (fits && kept_half == half && kept_base == p->base)
        return kept;
    float slope = logf(p->base) / (float)half;
    for (size_t i = 0; i < half; i++)
        to[i] = expf(-(float)i * slope);
    if (fits) {
        kept_half = half;
        kept_base = p->base;
    }
    return to;
}

/* Angles of the rows of a step.  Its layers ask for the same ones, and with few
 * rows computing them takes longer than turning by them. */
static struct {
    size_t half;
    float scale, turn[KEPT_TURNS];
    size_t count;
    int positions[KEPT_ROWS];
    float cosine[KEPT_ROWS][KEPT_TURNS], sine[KEPT_ROWS][KEPT_TURNS];
} kept;

static void keep_row(const kv_run *run, size_t row, int position)
{
    if (row < kept.count && kept.positions[row] == position)
        return;
    run->rows->angles(kept.cosine[row], kept.sine[row],
                      (float)position * kept.scale, kept.turn, kept.half);
    kept.positions[row] = position;
    if (row >= kept.count)
        kept.count = row + 1;
}

/* Sees to it that the angles of all rows are kept; false: there are too many.
 */
static bool keep_angles(const kv_run *run)
{
    const qn_kv_params *p = run->p;
    size_t half = (size_t)p->dims / 2, row = 0;
    if (!half || half > KEPT_TURNS || run->count > KEPT_ROWS)
        return false;
    if (kept.half != half || kept.scale != p->rope_scale ||
        memcmp(kept.turn, run->turn, half * sizeof *kept.turn)) {
        kept.half = half;
        kept.scale = p->rope_scale;
        memcpy(kept.turn, run->turn, half * sizeof *kept.turn);
        kept.count = 0;
    }
    for (int i = 0; i < p->count; i++)
        for (int j = 0; j < p->steps[i].count; j++)
            keep_row(run, row++, p->steps[i].offset + p->steps[i].skipped + j);
    return true;
}

/* ---- storing ---- */

/* Pieces of a worker's memory. */
typedef struct row_room {
    float *cosine, *sine, *floats, *key, *stored[2];
} row_room;

enum { ROOM_ROWS = 4 };

static row_room room_of(const kv_run *run, int worker)
{
    float *at =
        (float *)(void *)(run->scratch + (size_t)worker * run->scratch_stride);
    size_t half = (size_t)run->p->dims / 2;
    size_t d = (size_t)run->p->form.head_dim;
    float *rows = at + 2 * half;
    return (row_room){
        at, at + half, rows, rows + d, {rows + 2 * d, rows + 3 * d}};
}

/* One head, turned, in the rows' type. */
static void turn_head(const kv_run *run, void *to, const char *from,
                      const row_room *room)
{
    size_t d = (size_t)run->p->form.head_dim, dims = (size_t)run->p->dims;
    size_t item = qn_dtype_size(run->type), rest = dims * item;
    bool neighbours = run->p->traditional;
    if (run->type == QN_FLOAT32) {
        run->rows->rotate(to, (const float *)(const void *)from, room->cosine,
                          room->sine, dims / 2, neighbours);
    } else {
        qn_cpu_widen(room->floats, from, dims, run->type);
        run->rows->rotate(room->floats, room->floats, room->cosine, room->sine,
                          dims / 2, neighbours);
        qn_cpu_narrow(to, room->floats, dims, run->type);
    }
    memcpy((char *)to + rest, from + rest, d * item - rest);
}

/* A row in the type in which the cache takes it: where it lies, or at `to`. */
static const void *as_stored(const kv_run *run, const void *from,
                             const row_room *room, float *to)
{
    const qn_kv_form *f = &run->p->form;
    qn_dtype type = qn_kv_packed(f) ? QN_FLOAT32 : f->dtype;
    size_t d = (size_t)f->head_dim;
    if (run->type == type)
        return from;
    if (type == QN_FLOAT32) {
        qn_cpu_widen(to, from, d, run->type);
        return to;
    }
    if (run->type != QN_FLOAT32) {
        qn_cpu_widen(room->floats, from, d, run->type);
        from = room->floats;
    }
    qn_cpu_narrow(to, from, d, type);
    return to;
}

/* A key or a value (floats) of one head into a turbo cache. */
static void put_turbo(const kv_run *run, qn_array *const *arrays, bool key,
                      int head, int position, const float *x)
{
    uint8_t codes[QN_TQ_MAX_DIM];
    uint16_t factor[2][QN_TQ_MAX_GROUPS];
    const uint16_t *factors[2] = {factor[0], factor[1]};
    const qn_kv_form *f = &run->p->form;
    qn_kv_side side = qn_kv_side_of(f, arrays, key, head, position);
    if (key)
        run->turbo->encode_key(codes, factor[0], factor[1], x, f->head_dim,
                               f->key_bits, QN_TQ_GROUP, true);
    else
        run->turbo->encode_value(codes, factor[0], x, run->signs, f->head_dim,
                                 f->value_bits, QN_TQ_GROUP);
    qn_kv_side_put(&side, position % QN_KV_BLOCK, codes, factors);
}

/* Queries become what attention reads. */
static void turn_queries(const kv_run *run, size_t row, const row_room *room)
{
    const qn_kv_params *p = run->p;
    size_t bytes = (size_t)p->form.head_dim * qn_dtype_size(run->type);
    for (size_t h = 0; h < (size_t)p->heads; h++) {
        size_t at = (row * (size_t)p->heads + h) * bytes;
        turn_head(run, run->turned + at, run->q + at, room);
    }
}

/* `place` is the row's in the cache; its position counts dropped tokens. */
static void store_row(const kv_run *run, size_t row, int sequence, int place,
                      const row_room *room)
{
    const qn_kv_params *p = run->p;
    size_t bytes = (size_t)p->form.head_dim * qn_dtype_size(run->type);
    size_t heads = (size_t)p->form.kv_heads;
    int position = place + p->steps[sequence].skipped;
    qn_array *const *arrays =
        run->caches + (size_t)sequence * (size_t)qn_kv_parts(&p->form);
    row_room turned = *room;
    if (run->kept) {
        turned.cosine = kept.cosine[row];
        turned.sine = kept.sine[row];
        room = &turned;
    } else if (p->dims) {
        run->rows->angles(room->cosine, room->sine,
                          (float)position * p->rope_scale, run->turn,
                          (size_t)p->dims / 2);
    }
    if (run->turned)
        turn_queries(run, row, room);
    for (size_t h = 0; h < heads && !p->stored; h++) {
        size_t at = (row * heads + h) * bytes;
        const void *k = run->k + at, *v = run->v + at;
        if (p->dims) {
            turn_head(run, room->key, run->k + at, room);
            k = room->key;
        }
        k = as_stored(run, k, room, room->stored[0]);
        v = as_stored(run, v, room, room->stored[1]);
        if (run->turbo) {
            put_turbo(run, arrays, true, (int)h, place, k);
            put_turbo(run, arrays, false, (int)h, place, v);
        } else {
            qn_kv_put(&p->form, arrays, (int)h, place, k, v);
        }
    }
}

/* Packed values of QN_KV_RUN tokens share words, so one worker has them all:
 * the first row from `row` on that a share may begin with, of a sequence whose
 * rows begin with `first`. */
static size_t share_begin(size_t row, size_t first, int offset)
{
    if (row <= first)
        return first;
    size_t into = (size_t)offset + (row - first);
    return row + (QN_KV_RUN - into % QN_KV_RUN) % QN_KV_RUN;
}

static void store_rows(void *ctx, size_t begin, size_t end, int worker)
{
    const kv_run *run = ctx;
    row_room room = room_of(run, worker);
    size_t first = 0;
    for (int i = 0; i < run->p->count && first < end; i++) {
        qn_kv_step step = run->p->steps[i];
        size_t after = first + (size_t)step.count;
        size_t stop = share_begin(end, first, step.offset);
        for (size_t row = share_begin(begin, first, step.offset);
             row < after && row < stop; row++)
            store_row(run, row, i, step.offset + (int)(row - first), &room);
        first = after;
    }
}

/* ---- attending ---- */

/* The keys or values of head 0 from the block of token `skip` on. */
static qn_kvcodes packed_of(const qn_kv_form *f, qn_array *const *arrays,
                            bool key, int skip)
{
    qn_kv_side side = qn_kv_side_of(f, arrays, key, 0, skip);
    return (qn_kvcodes){.bits = side.bits,
                        .affine = f->bits != 0,
                        .d = side.d,
                        .group = (size_t)f->group,
                        .type = f->dtype,
                        .words = side.words,
                        .factors = {side.factor[0], side.factor[1]}};
}

/* Where the keys and values of a sequence begin, from token `skip` on. */
static void place_cache(qn_attention_part *part, const qn_kv_params *p,
                        qn_array *const *arrays, int skip)
{
    const qn_kv_form *f = &p->form;
    qn_attention *job = &part->job;
    if (qn_kv_packed(f)) {
        job->codes = qn_kvcodes_pick();
        job->keys_packed = packed_of(f, arrays, true, skip);
        job->values_packed = packed_of(f, arrays, false, skip);
        part->packed_head = (size_t)arrays[0]->shape[1];
        return;
    }
    size_t item = qn_dtype_size(f->dtype);
    const char *k = qn_array_data(arrays[0]), *v = qn_array_data(arrays[1]);
    job->k = k + qn_kv_at(arrays[0], 0, skip) * item;
    job->v = v + qn_kv_at(arrays[1], 0, skip) * item;
    job->k_blocks = true;
    job->k_type = job->v_type = f->dtype;
    job->v_row = f->head_dim;
    part->k_head = part->v_head =
        (int64_t)arrays[1]->shape[1] * (int64_t)f->head_dim;
}

static void set_up_part(const kv_run *run, qn_attention_part *part, int i,
                        size_t row, char *out)
{
    const qn_kv_params *p = run->p;
    size_t d = (size_t)p->form.head_dim, heads = (size_t)p->heads;
    size_t group = heads / (size_t)p->form.kv_heads;
    size_t at = row * heads * d * qn_dtype_size(run->type);
    qn_kv_step step = p->steps[i];
    /* Blocks that no row of this step sees are left out; whole ones, so that
     * sums are grouped as they would be with them. */
    int skip = p->window && !p->keep && step.offset >= p->window
                   ? (step.offset - p->window + 1) / QN_KV_BLOCK * QN_KV_BLOCK
                   : 0;
    *part = (qn_attention_part){
        .batch = 1,
        .kv_heads = (size_t)p->form.kv_heads,
        .q_group = (int64_t)(group * d),
        .out_group = (int64_t)(group * d),
        .job = {.queries = (size_t)step.count,
                .group = group,
                .keys = (size_t)(step.offset + step.count - skip),
                .d = d,
                .dv = d,
                .scale = p->scale,
                .cap = p->cap,
                .causal = true,
                .window = (size_t)p->window,
                .keep = (size_t)p->keep,
                .q_type = run->type,
                .out_type = run->type,
                .q = (run->turned ? run->turned : run->q) + at,
                .q_query = (int64_t)(heads * d),
                .q_head = (int64_t)d,
                .out = out + at,
                .out_query = (int64_t)(heads * d),
                .out_head = (int64_t)d}};
    place_cache(part, p,
                run->caches + (size_t)i * (size_t)qn_kv_parts(&p->form), skip);
}

static qn_status attend(const kv_run *run, qn_array *out, const float *sinks)
{
    const qn_kv_params *p = run->p;
    qn_attention_part *parts = qn_calloc((size_t)p->count, sizeof *parts);
    if (!parts)
        return QN_E_NOMEM;
    size_t row = 0;
    for (int i = 0; i < p->count; i++) {
        set_up_part(run, &parts[i], i, row, qn_array_data(out));
        parts[i].job.sinks = sinks;
        parts[i].job.turbo = run->turbo;
        parts[i].job.signs = run->signs;
        row += (size_t)p->steps[i].count;
    }
    qn_status status = qn_cpu_attend(parts, (size_t)p->count);
    qn_free(parts);
    return status;
}

/* ---- the node ---- */

/* The caches before the step, in place or as copies. */
static qn_status open_caches(qn_node *node, int first)
{
    for (int i = 1; i < node->noutputs; i++) {
        qn_array *out = node->outputs[i];
        const qn_array *in = node->inputs[first + i - 1];
        if (qn_kv_take_over(out, in))
            continue;
        qn_status status = qn_array_alloc(out);
        if (!status)
            status = qn_cpu_copy_to(out, in);
        if (status)
            return status;
    }
    return QN_OK;
}

/* A worker's memory (row_room). */
static size_t row_bytes(size_t d, size_t dims)
{
    return (dims + ROOM_ROWS * d) * sizeof(float);
}

size_t qn_cpu_kv_room(const qn_kv_form *form, int heads, int dims, size_t rows,
                      size_t keys)
{
    size_t d = (size_t)form->head_dim, kv_heads = (size_t)form->kv_heads;
    qn_attention_part part = {.batch = 1,
                              .kv_heads = kv_heads,
                              .job = {.queries = rows,
                                      .group = (size_t)heads / kv_heads,
                                      .keys = keys,
                                      .d = d,
                                      .dv = d,
                                      .causal = true}};
    return (size_t)qn_pool_threads() * row_bytes(d, (size_t)dims) +
           qn_cpu_attention_room(&part);
}

static qn_status run_node(qn_node *node, kv_run *run, const qn_array *freqs,
                          const qn_array *sink_array)
{
    const qn_kv_params *p = run->p;
    qn_array *out = node->outputs[0];
    size_t half = (size_t)p->dims / 2, d = (size_t)p->form.head_dim;
    qn_buffer *scratch = NULL, *turned = NULL, *held = NULL;
    const float *sinks = NULL;
    float *room = qn_calloc(half, sizeof *room);
    qn_status status =
        room ? qn_cpu_scratch(&scratch, (size_t)qn_pool_threads(),
                              row_bytes(d, 2 * half), &run->scratch_stride)
             : QN_E_NOMEM;
    if (!status && sink_array)
        status = qn_cpu_sinks(&sinks, &held, sink_array);
    if (!status && p->dims)
        status = qn_buffer_new(&turned, qn_array_nbytes(out));
    if (!status)
        status = qn_array_alloc(out);
    if (!status) {
        run->scratch = scratch->data;
        run->turned = turned ? turned->data : NULL;
        if (p->dims)
            run->turn = turns(p, freqs, room);
        run->kept = keep_angles(run);
        run->caches =
            p->stored ? node->inputs + qn_kv_first_cache(p) : node->outputs + 1;
        if (p->dims || !p->stored)
            qn_pool_split(store_rows, run, run->count, GRAIN_ROWS, 1);
        status = attend(run, out, sinks);
    }
    qn_buffer_unref(scratch);
    qn_buffer_unref(turned);
    qn_buffer_unref(held);
    qn_free(room);
    return status;
}

qn_status qn_cpu_kv_attention(qn_node *node, bool *done)
{
    const qn_kv_params *p = node->params;
    qn_array *const *in = node->inputs;
    int after = qn_kv_after_rows(p), first = qn_kv_first_cache(p);
    const qn_array *freqs = p->has_freqs ? in[after] : NULL;
    const qn_array *sinks = p->has_sinks ? in[after + p->has_freqs] : NULL;
    for (int i = 0; i < after; i++)
        if (!in[i]->row_contiguous)
            return QN_OK;
    for (int i = first; p->stored && i < node->ninputs; i++)
        if (!in[i]->row_contiguous)
            return QN_OK;
    if (freqs && freqs->dtype != QN_FLOAT32)
        return QN_OK;
    *done = true;
    kv_run run = {.p = p,
                  .rows = qn_rows_pick(),
                  .type = in[0]->dtype,
                  .q = qn_array_data(in[0])};
    if (!p->stored) {
        run.k = qn_array_data(in[1]);
        run.v = qn_array_data(in[2]);
    }
    if (p->form.key_bits) {
        run.turbo = qn_turbo_pick();
        qn_tq_sign_floats(run.signs, p->form.head_dim);
    }
    for (int i = 0; i < p->count; i++)
        run.count += (size_t)p->steps[i].count;
    qn_status status = open_caches(node, first);
    return status ? status : run_node(node, &run, freqs, sinks);
}
