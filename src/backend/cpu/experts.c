/* experts.c: products of rows with panels chosen by ids, a custom kernel: the
 * experts of a mixture (quern_panel_experts).
 *
 * The pairs of a row and an expert are sorted by expert, so that the panels of
 * an expert are read once for all rows that meet it; threads share them panel
 * by panel.  A row has the bits of its own product, whatever rows go with it.
 */
#include "registered.h"

#include "backend/cpu/kernels/panel/panel.h"
#include "base/alloc.h"
#include "cpu.h"
#include "ops/params.h"

#include <string.h>

enum { CHUNK_BYTES = 24 * 1024 }; /* of panels that are not shared */

/* Rows of x that meet an expert together. */
typedef struct tile {
    int expert;
    size_t begin, rows; /* places in the order of pairs */
    size_t at;          /* bytes */
} tile;

/* All tiles of one expert. */
typedef struct share {
    int expert;
    size_t begin, end;
} share;

typedef struct job {
    const qn_panel_kernel *kernel;
    qn_panel_form form;
    const qn_kernel_args *args;
    int experts, gate;
    size_t used, pairs, k;
    bool x_each; /* a row of x for each pair, else for each token */
    const int32_t *ids;
    uint32_t *order; /* pairs by expert */
    tile *tiles;
    share *shares;
    size_t ntiles, nshares;
    char *memory;
    const uint8_t *panels;
    size_t panel_bytes, parts;
    size_t first[QN_PANEL_PARTS]; /* panel of each matrix */
    size_t units[QN_PANEL_PARTS]; /* of one expert */
    size_t all_units, chunk, chunks;
} job;

/* ---- what was asked for ---- */

static bool read_number(const job *j, const char *name, int *v)
{
    return qn_template_int(j->args->templates, name, v);
}

static bool read_form(job *j)
{
    int biased, scaling, table;
    qn_panel_form *f = &j->form;
    bool good = read_number(j, "BITS", &f->bits) &&
                read_number(j, "GROUP", &f->group) &&
                read_number(j, "BIASED", &biased) &&
                read_number(j, "ZERO", &f->zero) &&
                read_number(j, "SCALING", &scaling) &&
                read_number(j, "TABLE", &table) &&
                read_number(j, "EXPERTS", &j->experts) &&
                read_number(j, "GATE", &j->gate) &&
                qn_template_dtype(j->args->templates, "SCALE", &f->scale_type);
    if (!good)
        return false;
    f->biased = biased != 0;
    f->scaling = (qn_panel_scaling)scaling;
    f->table = (qn_panel_table)table;
    return true;
}

/* Panels of all experts of a matrix, and of one. */
static void place(job *j)
{
    size_t at = 0;
    j->parts = j->gate ? 2 : j->args->nout;
    for (size_t i = 0; i < j->parts; i++) {
        const qn_kernel_view *out = &j->args->out[j->gate ? 0 : i];
        j->first[i] = at;
        j->units[i] = qn_panel_count(out->shape[2]);
        at += j->units[i] * (size_t)j->experts;
        if (!j->gate || !i)
            j->all_units += j->units[i];
    }
    j->panel_bytes = qn_panel_bytes(&j->form, j->k);
    j->chunk = CHUNK_BYTES / j->panel_bytes + 1;
    j->chunks = (j->all_units + j->chunk - 1) / j->chunk;
}

/* The launch was made by capi/ext_panel.c, which checks shapes; ids are known
 * only here. */
static int open_job(job *j, const qn_kernel_args *args)
{
    const qn_kernel_view *x = &args->in[0], *ids = &args->in[2];
    j->args = args;
    if (!read_form(j))
        return qn_kernel_refuse(args, "template arguments are missing");
    j->kernel = qn_panel_pick();
    j->k = (size_t)x->shape[2];
    j->used = (size_t)ids->shape[1];
    j->pairs = qn_view_size(ids);
    j->x_each = x->shape[1] == ids->shape[1];
    j->ids = ids->data;
    j->panels = args->in[1].data;
    place(j);
    for (size_t i = 0; i < j->pairs; i++)
        if (j->ids[i] < 0 || j->ids[i] >= j->experts)
            return qn_kernel_refuse(args, "id %d of %d experts", j->ids[i],
                                    j->experts);
    return 0;
}

/* ---- pairs by expert ---- */

static void sort_pairs(job *j, size_t *starts)
{
    for (size_t i = 0; i < j->pairs; i++)
        starts[j->ids[i] + 1]++;
    for (int e = 0; e < j->experts; e++)
        starts[e + 1] += starts[e];
    for (size_t i = 0; i < j->pairs; i++)
        j->order[starts[j->ids[i]]++] = (uint32_t)i;
}

static size_t cut_tiles(job *j)
{
    size_t bytes = 0;
    for (size_t at = 0; at < j->pairs;) {
        int expert = j->ids[j->order[at]];
        size_t end = at;
        while (end < j->pairs && j->ids[j->order[end]] == expert)
            end++;
        share *s = &j->shares[j->nshares++];
        *s = (share){expert, j->ntiles, 0};
        while (at < end) {
            size_t rows = qn_panel_tile(j->kernel, end - at);
            j->tiles[j->ntiles++] = (tile){expert, at, rows, bytes};
            bytes += qn_panel_x_bytes(&j->form, j->k, rows);
            at += rows;
        }
        s->end = j->ntiles;
    }
    return bytes;
}

static bool plan(job *j)
{
    size_t *starts = qn_calloc((size_t)j->experts + 1, sizeof *starts);
    j->order = qn_calloc(j->pairs, sizeof *j->order);
    j->tiles = qn_calloc(j->pairs, sizeof *j->tiles);
    j->shares = qn_calloc(j->pairs, sizeof *j->shares);
    bool good = starts && j->order && j->tiles && j->shares;
    if (good) {
        sort_pairs(j, starts);
        j->memory = qn_alloc_aligned(64, cut_tiles(j));
    }
    qn_free(starts);
    return good && j->memory;
}

static void close_job(job *j)
{
    qn_free(j->order);
    qn_free(j->tiles);
    qn_free(j->shares);
    qn_free(j->memory);
}

/* ---- products ---- */

static const float *x_row(const job *j, size_t pair, float *room)
{
    const qn_kernel_view *x = &j->args->in[0];
    size_t row = j->x_each ? pair : pair / j->used;
    const char *at =
        (const char *)x->data + row * j->k * qn_dtype_size(x->dtype);
    if (x->dtype == QN_FLOAT32)
        return (const float *)(const void *)at;
    qn_cpu_widen(room, at, j->k, x->dtype);
    return room;
}

static void make_tile(void *arg, size_t i, void *scratch)
{
    const job *j = arg;
    const tile *t = &j->tiles[i];
    for (size_t r = 0; r < t->rows; r++)
        j->kernel->quantize(j->memory + t->at, &j->form,
                            x_row(j, j->order[t->begin + r], scratch), j->k, 0,
                            j->k, r, t->rows);
}

static void store(const job *j, size_t part, const tile *t, size_t column,
                  const float *values)
{
    const qn_kernel_view *out = &j->args->out[part];
    size_t n = (size_t)out->shape[2], item = qn_dtype_size(out->dtype);
    size_t count = n - column < QN_PANEL_ROWS ? n - column : QN_PANEL_ROWS;
    for (size_t r = 0; r < t->rows; r++, values += QN_PANEL_ROWS) {
        size_t at = j->order[t->begin + r] * n + column;
        qn_cpu_narrow((char *)out->data + at * item, values, count, out->dtype);
    }
}

static void run_tile(const job *j, const tile *t, size_t part, size_t unit)
{
    float values[QN_PANEL_FULL * QN_PANEL_ROWS];
    qn_panel_x x = qn_panel_x_at(j->memory + t->at, j->k, t->rows);
    size_t expert = (size_t)t->expert;
    const uint8_t *panel =
        j->panels +
        (j->first[part] + expert * j->units[part] + unit) * j->panel_bytes;
    j->kernel->run(values, &j->form, panel, &x, j->k);
    if (j->gate) {
        float up[QN_PANEL_FULL * QN_PANEL_ROWS];
        panel = j->panels +
                (j->first[1] + expert * j->units[1] + unit) * j->panel_bytes;
        j->kernel->run(up, &j->form, panel, &x, j->k);
        if (j->gate == QN_GATE_GELU)
            j->kernel->gelu(values, values, up, t->rows * QN_PANEL_ROWS);
        else
            j->kernel->silu(values, values, up, t->rows * QN_PANEL_ROWS);
    }
    store(j, part, t, unit * QN_PANEL_ROWS, values);
}

static void run_chunk(void *arg, size_t i, void *scratch)
{
    (void)scratch;
    const job *j = arg;
    const share *s = &j->shares[i / j->chunks];
    size_t unit = i % j->chunks * j->chunk;
    size_t end = unit + j->chunk;
    for (; unit < end && unit < j->all_units; unit++) {
        size_t part = 0, in_part = unit;
        while (in_part >= j->units[part])
            in_part -= j->units[part++];
        for (size_t t = s->begin; t < s->end; t++)
            run_tile(j, &j->tiles[t], part, in_part);
    }
}

static int panel_experts(const qn_kernel_args *args, const void *user)
{
    (void)user;
    job j = {.experts = 0};
    if (open_job(&j, args))
        return 1;
    if (!j.pairs)
        return 0;
    bool good = plan(&j);
    if (good) {
        args->parallel(args->ctx, j.ntiles, make_tile, &j);
        args->parallel(args->ctx, j.nshares * j.chunks, run_chunk, &j);
    }
    close_job(&j);
    return good ? 0 : qn_kernel_refuse(args, "out of memory");
}

void qn_cpu_register_experts(void)
{
    static const char *const inputs[] = {"x", "panels", "ids", NULL};
    static const qn_kernel_entry entry = {panel_experts, NULL, inputs, NULL,
                                          NULL};
    qn_kernel_register("quern_panel_experts", &entry);
}
