/* panel.c: packed matrices as panels, and products with them in 8-bit
 * integers (kernels/panel/panel.h).
 *
 * A product has two regions: rows of x are normed and made into tiles, then
 * threads share the panels, and the blocks of rows where there are many.  What
 * follows the product (gate, residual) is done while a panel's 16 columns are
 * at hand.  A few rows of x, as in decoding, are shared column by column, and
 * one is made into a tile by the calling thread: a region would take longer. */
#include "cpu.h"

#include "backend/common/output.h"
#include "backend/common/panel.h"
#include "backend/common/plan.h"
#include "backend/cpu/kernels/panel/panel.h"
#include "backend/cpu/kernels/rows/rows.h"
#include "base/gguf.h"
#include "ops/ops.h"
#include "ops/params.h"
#include "pool.h"

#include <string.h>

enum {
    TILES = 8, /* of rows of x, a block, that pass by a panel together */
    MOST_ROWS = TILES * QN_PANEL_FULL,
    MOST_BYTES = 1024 * 1024, /* of more than the least: they stay in L2 */
    FEW = QN_PANEL_TILE,      /* rows that are shared by their columns */
    GRAIN_STEPS = 64,         /* of 32 columns of such a row */
    GRAIN_BYTES = 24 * 1024,  /* of panels that are not shared */
    GRAIN_MACS = 256 * 1024,  /* the same where there are many rows */
    PACK_BYTES = 64 * 1024,
    /* Of blocks, after which their pages may go: a call for each. */
    BLOCK_BYTES = 1024 * 1024,
    ROWS_GRAIN = 16, /* rows of w made floats that are not shared */
    KEPT_FOLLOWERS = 1024
};

/* ---- packing ---- */

typedef struct pack_job {
    const qn_panel_params *p;
    qn_array *const *in; /* words, scales, biases */
    size_t rows, bytes;  /* of the matrix; of a panel */
    uint8_t *out;
} pack_job;

static void pack_panels(void *ctx, size_t begin, size_t end, int worker)
{
    (void)worker;
    const pack_job *job = ctx;
    const qn_panel_form *form = &job->p->form;
    int64_t item = (int64_t)qn_panel_item(form);
    const qn_array *w = job->in[0], *scales = job->in[1];
    const qn_array *biases = form->biased ? job->in[2] : scales;
    qn_panel_source source = {.k = (size_t)job->p->cols,
                              .word_step = w->strides[0] * 4,
                              .scale_step = scales->strides[0] * item,
                              .bias_step = biases->strides[0] * item};
    for (size_t i = begin; i < end; i++) {
        int64_t row = (int64_t)(i * QN_PANEL_ROWS);
        size_t left = job->rows - (size_t)row;
        source.rows = left < QN_PANEL_ROWS ? left : QN_PANEL_ROWS;
        source.words = (const char *)qn_array_data(w) + row * source.word_step;
        source.scales =
            (const char *)qn_array_data(scales) + row * source.scale_step;
        source.biases =
            (const char *)qn_array_data(biases) + row * source.bias_step;
        qn_panel_pack(job->out + i * job->bytes, form, &source);
    }
}

qn_status qn_cpu_panel_pack(qn_node *node, bool *done)
{
    const qn_panel_params *p = node->params;
    for (int i = 0; i < node->ninputs; i++)
        if (!qn_cpu_rows_contiguous(node->inputs[i]))
            return QN_OK;
    qn_status status = qn_array_alloc_lasting(node->outputs[0]);
    if (status)
        return status;
    *done = true;
    size_t bytes = qn_panel_bytes(&p->form, (size_t)p->cols);
    uint8_t *out = qn_array_data(node->outputs[0]);
    for (int i = 0; i < p->count; i++) {
        size_t panels = qn_panel_count(p->rows[i]);
        pack_job job = {p, node->inputs + i * (p->form.biased ? 3 : 2),
                        (size_t)p->rows[i], bytes, out};
        qn_pool_split(pack_panels, &job, panels, PACK_BYTES / bytes + 1, 1);
        out += panels * bytes;
    }
    return QN_OK;
}

typedef struct blocks_job {
    const qn_panel_blocks_params *p;
    int matrix;
    size_t row_bytes, bytes; /* of a row of blocks; of a panel */
    uint8_t *out;
} blocks_job;

/* Panels begin .. end of one matrix. */
static void pack_some_blocks(const blocks_job *job, size_t begin, size_t end)
{
    const qn_panel_params *w = &job->p->w;
    const uint8_t *data = job->p->from[job->matrix].data;
    const uint32_t *from = job->p->from[job->matrix].source_row;
    size_t all = (size_t)w->rows[job->matrix], first = begin * QN_PANEL_ROWS;
    size_t row = first;
    for (size_t i = begin; i < end; i++) {
        const uint8_t *rows[QN_PANEL_ROWS];
        size_t n = 0;
        for (; n < QN_PANEL_ROWS && row < all; n++, row++)
            rows[n] = data + (from ? from[row] : row) * job->row_bytes;
        qn_panel_pack_blocks(job->out + i * job->bytes, &w->form, job->p->type,
                             rows, n, (size_t)w->cols);
    }
    if (job->p->done && !from)
        job->p->done(job->p->ctx, data + first * job->row_bytes,
                     (row - first) * job->row_bytes);
}

static void pack_blocks(void *ctx, size_t begin, size_t end, int worker)
{
    (void)worker;
    const blocks_job *job = ctx;
    size_t some = BLOCK_BYTES / (job->row_bytes * QN_PANEL_ROWS) + 1;
    for (; begin < end; begin += some)
        pack_some_blocks(job, begin, end - begin < some ? end : begin + some);
}

qn_status qn_cpu_panel_blocks(qn_node *node, bool *done)
{
    const qn_panel_blocks_params *p = node->params;
    size_t bytes, elements, k = (size_t)p->w.cols;
    qn_status status = qn_array_alloc_lasting(node->outputs[0]);
    if (status || !qn_gguf_type_block(p->type, &bytes, &elements))
        return status;
    *done = true;
    blocks_job job = {.p = p,
                      .row_bytes = k / elements * bytes,
                      .bytes = qn_panel_bytes(&p->w.form, k),
                      .out = qn_array_data(node->outputs[0])};
    for (; job.matrix < p->w.count; job.matrix++) {
        size_t rows = (size_t)p->w.rows[job.matrix];
        size_t panels = qn_panel_count(p->w.rows[job.matrix]);
        size_t grain = PACK_BYTES / job.bytes + 1;
        qn_pool_split(pack_blocks, &job, panels, grain, 1);
        /* Rows in another order are all needed until the last. */
        if (p->done && p->from[job.matrix].source_row)
            p->done(p->ctx, p->from[job.matrix].data, rows * job.row_bytes);
        job.out += panels * job.bytes;
    }
    return QN_OK;
}

/* ---- rows of w ---- */

typedef struct rows_job {
    const qn_panel_kernel *kernel;
    const qn_panel_params *p;
    const qn_array *ids;
    const uint8_t *panels;
    size_t k, bytes; /* of a panel */
    qn_array *out;
    char *scratch; /* a row and its factors for each worker */
    size_t stride;
} rows_job;

static int64_t id_at(const qn_array *ids, size_t i)
{
    const void *at = (const char *)qn_array_data(ids) + i * sizeof(int32_t);
    if (ids->dtype == QN_UINT32)
        return *(const uint32_t *)at;
    return *(const int32_t *)at;
}

static void expand_rows(void *ctx, size_t begin, size_t end, int worker)
{
    const rows_job *job = ctx;
    size_t k = job->k, groups = k / (size_t)job->p->form.group;
    float *values =
        (float *)(void *)(job->scratch + (size_t)worker * job->stride);
    float *scales = values + k, *biases = scales + groups;
    size_t item = qn_array_itemsize(job->out);
    for (size_t i = begin; i < end; i++) {
        int64_t id = id_at(job->ids, i);
        size_t r = (size_t)(id < 0 ? id + job->p->rows[0] : id);
        const uint8_t *panel = job->panels + r / QN_PANEL_ROWS * job->bytes;
        r %= QN_PANEL_ROWS;
        qn_panel_factors(scales, biases, panel, &job->p->form, k, r);
        job->kernel->row(values, &job->p->form, panel, k, r, scales, biases);
        qn_cpu_narrow((char *)qn_array_data(job->out) + i * k * item, values, k,
                      job->out->dtype);
    }
}

qn_status qn_cpu_panel_rows(qn_node *node, bool *done)
{
    const qn_panel_params *p = node->params;
    const qn_array *panels = node->inputs[0], *ids = node->inputs[1];
    if (!panels->row_contiguous || !ids->row_contiguous)
        return QN_OK;
    for (size_t i = 0; i < ids->size; i++) {
        int64_t id = id_at(ids, i);
        if (id >= p->rows[0] || id < -(int64_t)p->rows[0])
            return QN_OK; /* the reference says so */
    }
    rows_job job = {.kernel = qn_panel_pick(),
                    .p = p,
                    .ids = ids,
                    .panels = qn_array_data(panels),
                    .k = (size_t)p->cols,
                    .out = node->outputs[0]};
    job.bytes = qn_panel_bytes(&p->form, job.k);
    size_t floats = job.k + 2 * (job.k / (size_t)p->form.group);
    qn_buffer *scratch = NULL;
    qn_status status = qn_array_alloc(job.out);
    if (!status)
        status = qn_cpu_scratch(&scratch, (size_t)qn_pool_threads(),
                                floats * sizeof(float), &job.stride);
    if (status)
        return status;
    *done = true;
    job.scratch = scratch->data;
    qn_pool_split(expand_rows, &job, ids->size, ROWS_GRAIN, 1);
    qn_buffer_unref(scratch);
    return QN_OK;
}

/* ---- products ---- */

typedef struct panel_job {
    const qn_panel_kernel *kernel;
    const qn_rows_kernel *rows;
    const qn_panel_matmul_params *p;
    size_t m, k;
    /* x: a point per row. */
    const qn_array *x;
    qn_plan lines;
    const float *norm;
    char *scratch; /* a row of floats per worker */
    size_t scratch_stride;
    /* Tiles, one after the other. */
    char *tiles;
    size_t tile_bytes; /* of a full one */
    /* Panels. */
    const uint8_t *panels;
    size_t panel_bytes;
    size_t units;                     /* panels, or pairs of them */
    size_t block, blocks;             /* rows of one; how many */
    size_t first[QN_PANEL_PARTS + 1]; /* panel of each matrix */
    qn_array *const *out;
    const char *residual; /* NULL: none; laid out as out[0] */
} panel_job;

/* Row `i` of x as floats, normed: where it lies or in `room`. */
static const float *x_row(const panel_job *job, size_t i, float *room)
{
    int64_t at[QN_PLAN_OPERANDS];
    qn_plan_offsets(&job->lines, i, at);
    const void *row = (const char *)qn_array_data(job->x) +
                      at[0] * (int64_t)qn_array_itemsize(job->x);
    if (job->x->dtype != QN_FLOAT32) {
        qn_cpu_widen(room, row, job->k, job->x->dtype);
        row = room;
    }
    if (!job->norm)
        return row;
    job->rows->rms_norm(room, row, job->k, job->p->eps, job->norm);
    return room;
}

/* Where the tile that begins with row `row` lies.  Tiles of a rest follow one
 * another in the space of a full one. */
static char *tile_at(const panel_job *job, size_t row)
{
    size_t full = job->kernel->tile, before = row % full;
    char *tile = job->tiles + row / full * job->tile_bytes;
    for (size_t rows = full / 2; before; rows /= 2) {
        if (before < rows)
            continue;
        tile += qn_panel_x_bytes(&job->p->w.form, job->k, rows);
        before -= rows;
    }
    return tile;
}

static void make_tiles(void *ctx, size_t begin, size_t end, int worker)
{
    const panel_job *job = ctx;
    const qn_panel_form *form = &job->p->w.form;
    float *room =
        (float *)(void *)(job->scratch + (size_t)worker * job->scratch_stride);
    for (size_t row = begin; row < end;) {
        size_t rows = qn_panel_tile(job->kernel, end - row);
        char *tile = tile_at(job, row);
        for (size_t r = 0; r < rows; r++)
            job->kernel->quantize(tile, form, x_row(job, row + r, room), job->k,
                                  0, job->k, r, rows);
        row += rows;
    }
}

/* float32, without calls: there is a handful of columns at a time. */
static __attribute__((noinline)) void
store_floats(float *to, const float *more, const float *values, size_t count)
{
    if (!more)
        memcpy(to, values, count * sizeof *to);
    for (size_t i = 0; more && i < count; i++)
        to[i] = more[i] + values[i];
}

static void store_narrow(const panel_job *job, const qn_array *out, size_t at,
                         float *values, size_t count)
{
    if (job->residual) {
        float more[QN_PANEL_ROWS];
        qn_cpu_widen(more, job->residual + at, count, out->dtype);
        store_floats(values, more, values, count);
    }
    qn_cpu_narrow((char *)qn_array_data(out) + at, values, count, out->dtype);
}

/* Steps begin .. end of a few rows.  A norm needs whole rows, and each thread
 * makes them for itself. */
static void make_few(void *ctx, size_t begin, size_t end, int worker)
{
    const panel_job *job = ctx;
    float *room =
        (float *)(void *)(job->scratch + (size_t)worker * job->scratch_stride);
    begin *= QN_PANEL_STEP;
    end *= QN_PANEL_STEP;
    for (size_t row = 0, rows; row < job->m; row += rows) {
        rows = qn_panel_tile(job->kernel, job->m - row);
        for (size_t r = 0; r < rows; r++)
            job->kernel->quantize(tile_at(job, row), &job->p->w.form,
                                  x_row(job, row + r, room), job->k, begin, end,
                                  r, rows);
    }
}

/* rows x 16 numbers of a result, from column `column` on. */
static void store(const panel_job *job, int part, size_t row, size_t rows,
                  size_t column, float *values)
{
    const qn_array *out = job->out[part];
    size_t n = (size_t)job->p->w.rows[part], item = qn_array_itemsize(out);
    size_t count = n - column < QN_PANEL_ROWS ? n - column : QN_PANEL_ROWS;
    for (size_t r = 0; r < rows; r++, values += QN_PANEL_ROWS) {
        size_t at = ((row + r) * n + column) * item;
        if (out->dtype != QN_FLOAT32) {
            store_narrow(job, out, at, values, count);
            continue;
        }
        const char *more = job->residual ? job->residual + at : NULL;
        store_floats((float *)(void *)((char *)qn_array_data(out) + at),
                     (const float *)(const void *)more, values, count);
    }
}

/* A panel with `count` tiles of `rows` rows. */
static void run_panel(const panel_job *job, float *out, const uint8_t *panel,
                      const qn_panel_x *x, size_t rows, size_t count)
{
    const qn_panel_kernel *kernel = job->kernel;
    const qn_panel_form *form = &job->p->w.form;
    if (kernel->run_tiles && rows == kernel->tile) {
        kernel->run_tiles(out, form, panel, x, count, job->k);
        return;
    }
    for (size_t t = 0; t < count; t++)
        kernel->run(out + t * rows * QN_PANEL_ROWS, form, panel, &x[t], job->k);
}

/* Unit `unit` with `count` tiles of `rows` rows, from row `row` on. */
static void run_tiles(const panel_job *job, size_t unit, size_t row,
                      size_t rows, size_t count)
{
    float values[MOST_ROWS * QN_PANEL_ROWS], up[MOST_ROWS * QN_PANEL_ROWS];
    qn_panel_x x[TILES];
    for (size_t t = 0; t < count; t++)
        x[t] = qn_panel_x_at(tile_at(job, row + t * rows), job->k, rows);
    const uint8_t *panel = job->panels + unit * job->panel_bytes;
    run_panel(job, values, panel, x, rows, count);
    int part = 0;
    if (job->p->gate)
        run_panel(job, up, panel + job->units * job->panel_bytes, x, rows,
                  count);
    while (!job->p->gate && unit >= job->first[part + 1])
        part++;
    for (size_t t = 0; t < count; t++) {
        size_t floats = rows * QN_PANEL_ROWS;
        float *of = values + t * floats;
        if (job->p->gate == QN_GATE_GELU)
            job->kernel->gelu(of, of, up + t * floats, floats);
        else if (job->p->gate)
            job->kernel->silu(of, of, up + t * floats, floats);
        store(job, part, row + t * rows, rows,
              (unit - job->first[part]) * QN_PANEL_ROWS, of);
    }
}

static void run_units(void *ctx, size_t begin, size_t end, int worker)
{
    (void)worker;
    const panel_job *job = ctx;
    for (size_t i = begin; i < end; i++) {
        size_t unit = i % job->units, row = i / job->units * job->block;
        size_t last = job->m - row < job->block ? job->m : row + job->block;
        while (row < last) {
            size_t rows = qn_panel_tile(job->kernel, last - row), count = 1;
            if (rows == job->kernel->tile)
                count = (last - row) / rows;
            run_tiles(job, unit, row, rows, count);
            row += rows * count;
        }
    }
}

/* ---- what is read next ---- */

/* The panels that were read after those at `after`, the last time: a decode
 * step does what the one before it did.  Evaluations come one at a time. */
typedef struct follower {
    const uint8_t *after, *panels;
    size_t bytes; /* of a stretch */
    bool two;     /* gate and up */
} follower;

static follower followers[KEPT_FOLLOWERS];
static const uint8_t *last_panels;

static follower *follower_of(const uint8_t *panels)
{
    /* Matrices lie side by side, so that neighbours have other places. */
    uint64_t hash = (uintptr_t)panels / 64 * 0x9e3779b97f4a7c15u;
    return &followers[hash >> 32 & (KEPT_FOLLOWERS - 1)];
}

/* After the region that read the panels of `job`: remembers that they came
 * after others, and has the threads fetch what came after them. */
static void announce_next(const panel_job *job)
{
    follower *before = follower_of(last_panels);
    size_t bytes = job->units * job->panel_bytes;
    *before = (follower){last_panels, job->panels, bytes, job->p->gate};
    last_panels = job->panels;
    const follower *f = follower_of(job->panels);
    if (f->after != job->panels)
        return;
    qn_pool_next((const void *const[]){f->panels, f->panels + f->bytes},
                 (const size_t[]){f->bytes, f->two ? f->bytes : 0});
}

static void multiply(panel_job *job)
{
    if (job->m <= FEW)
        qn_pool_split(make_few, job, job->k / QN_PANEL_STEP,
                      GRAIN_STEPS / job->m, 1);
    else
        qn_pool_split(make_tiles, job, job->m, job->kernel->tile,
                      job->kernel->tile);
    size_t rows = job->m < job->block ? job->m : job->block;
    size_t macs = rows * job->k * QN_PANEL_ROWS;
    size_t grain =
        rows < FEW ? GRAIN_BYTES / job->panel_bytes : GRAIN_MACS / macs;
    qn_pool_split(run_units, job, job->units * job->blocks, grain + 1, 1);
    if (job->m <= FEW)
        announce_next(job);
}

static void place_panels(panel_job *job, const qn_array *panels)
{
    const qn_panel_params *w = &job->p->w;
    job->panels = qn_array_data(panels);
    job->panel_bytes = qn_panel_bytes(&w->form, job->k);
    for (int i = 0; i < w->count; i++)
        job->first[i + 1] = job->first[i] + qn_panel_count(w->rows[i]);
    job->units = job->p->gate ? job->first[1] : job->first[w->count];
    job->block = TILES * job->kernel->tile;
    if (job->block > MOST_BYTES / (2 * job->k))
        job->block = TILES * QN_PANEL_TILE;
    job->blocks = (job->m + job->block - 1) / job->block;
}

static qn_status alloc_outputs(qn_node *node, panel_job *job,
                               const qn_array *residual)
{
    /* An element of the residual is read just before it is written. */
    if (residual && qn_output_donate(node->outputs[0], residual)) {
        job->residual = qn_array_data(node->outputs[0]);
        return QN_OK;
    }
    for (int i = 0; i < node->noutputs; i++) {
        qn_status status = qn_array_alloc(node->outputs[i]);
        if (status)
            return status;
    }
    if (residual)
        job->residual = qn_array_data(residual);
    return QN_OK;
}

/* Of a full tile of `tile` rows, or of all those of a rest. */
static size_t tile_bytes(const qn_panel_form *form, size_t tile, size_t k)
{
    size_t full = qn_panel_x_bytes(form, k, tile);
    size_t rest = qn_panel_x_bytes(form, k, 3);
    for (size_t rows = 4; rows < tile; rows *= 2)
        rest += qn_panel_x_bytes(form, k, rows);
    return full > rest ? full : rest;
}

size_t qn_cpu_panel_room(const qn_panel_form *form, size_t m, size_t k)
{
    const size_t tile = qn_panel_pick()->tile, tiles = (m + tile - 1) / tile;
    return tiles * tile_bytes(form, tile, k) +
           (size_t)qn_pool_threads() * k * sizeof(float);
}

qn_status qn_cpu_panel_matmul(qn_node *node, bool *done)
{
    const qn_panel_matmul_params *p = node->params;
    const qn_array *x = node->inputs[0], *panels = node->inputs[1];
    const qn_array *weight = p->has_norm ? node->inputs[2] : NULL;
    const qn_array *residual =
        p->has_residual ? node->inputs[2 + p->has_norm] : NULL;
    if (!x->size || !qn_cpu_narrow_float(x->dtype) ||
        !qn_cpu_rows_contiguous(x) || !panels->row_contiguous ||
        (weight && !qn_cpu_rows_contiguous(weight)) ||
        (residual && !residual->row_contiguous))
        return QN_OK;
    panel_job job = {.kernel = qn_panel_pick(),
                     .rows = qn_rows_pick(),
                     .p = p,
                     .k = (size_t)p->w.cols,
                     .x = x,
                     .out = node->outputs};
    job.m = x->size / job.k;

    qn_lines lines;
    qn_lines_make(&lines, x->shape, x->ndim, x->ndim - 1,
                  (const int64_t *[]){x->strides}, 1);
    job.lines = lines.outer;
    job.tile_bytes = tile_bytes(&p->w.form, job.kernel->tile, job.k);
    place_panels(&job, panels);
    *done = true;

    qn_buffer *held = NULL, *scratch = NULL, *tiles = NULL;
    size_t stride,
        tile_count = (job.m + job.kernel->tile - 1) / job.kernel->tile;
    qn_status status =
        qn_cpu_scratch(&scratch, (size_t)qn_pool_threads(),
                       job.k * sizeof(float), &job.scratch_stride);
    if (!status)
        status = qn_cpu_scratch(&tiles, tile_count, job.tile_bytes, &stride);
    if (!status && weight)
        status = qn_cpu_floats(&job.norm, &held, weight, job.k);
    if (!status)
        status = alloc_outputs(node, &job, residual);
    if (!status) {
        job.tile_bytes = stride;
        job.scratch = scratch->data;
        job.tiles = tiles->data;
        multiply(&job);
    }
    qn_buffer_unref(held);
    qn_buffer_unref(scratch);
    qn_buffer_unref(tiles);
    return status;
}
