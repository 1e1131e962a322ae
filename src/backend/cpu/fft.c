/* fft.c: Fourier transforms in float, on all threads.
 *
 * Complex lines that lie side by side in memory are done as lanes.  Any other
 * line is done by itself: as a matrix, or convolved with a chirp; short ones
 * are turned into lanes first.  A real line of even length is a complex one of
 * half its length, told apart afterwards (before, in the other direction), one
 * of odd length a complex one without imaginary parts.  Threads share the
 * lines, or the strips of a line when there are few.
 *
 * Real lines whose elements are not neighbours are left to the reference's
 * loops, which threads share too. */
#include "cpu.h"

#include "backend/ref/fft.h"
#include "backend/ref/stage.h"
#include "base/alloc.h"
#include "fft_plan.h"
#include "pool.h"

#include <string.h>

enum {
    /* Numbers of a range that is not split, and of a line that is. */
    GRAIN = 4096,
    GRAIN_STRIPS = 1 << 15,
    LANES = QN_FFT_LANES,
    WIDE = 2 * QN_FFT_LANES
};

static size_t padded(size_t n)
{
    return (n + LANES - 1) / LANES * LANES;
}

/* ---- chains ---- */

/* Transforms lanes; the first pass reads rows of `x` that are x->pitch apart,
 * the others work between y and z, whose pitch is `lanes`.  Returns the one
 * with the result. */
static const qn_fft_planes *run_chain(const qn_fft_kernel *kernel,
                                      const qn_fft_chain *chain,
                                      const qn_fft_planes *x,
                                      const qn_fft_planes *y,
                                      const qn_fft_planes *z, size_t lanes)
{
    for (int i = 0; i < chain->npasses; i++) {
        qn_fft_lanes_pass pass = chain->passes[i];
        pass.s *= lanes;
        pass.x_step = i ? pass.s : x->pitch;
        pass.x[0] = x->re;
        pass.x[1] = x->im;
        pass.y[0] = y->re;
        pass.y[1] = y->im;
        kernel->pass(&pass);
        x = y;
        y = z;
        z = x;
    }
    return x;
}

/* ---- a line as a matrix ---- */

typedef struct line {
    const qn_fft_kernel *kernel;
    const qn_fft_line_plan *plan;
    qn_fft_view in, out; /* element i at i * step */
    float scale;
    float *mid;    /* the matrix between both halves */
    char *rooms;   /* one per worker */
    size_t stride; /* bytes from room to room */
} line;

/* Floats of a room: two pairs of planes, and factors of rows. */
static size_t strip_floats(const qn_fft_line_plan *plan)
{
    size_t longer = plan->rows > plan->columns ? plan->rows : plan->columns;
    return 4 * longer * plan->strip + 2 * plan->rows;
}

static void strip_planes(const line *l, int worker, qn_fft_planes *y,
                         qn_fft_planes *z, size_t rows, float **factors)
{
    size_t size = rows * l->plan->strip;
    float *room = (float *)(void *)(l->rooms + (size_t)worker * l->stride);
    *y = (qn_fft_planes){room, room + size, l->plan->strip};
    *z = (qn_fft_planes){room + 2 * size, room + 3 * size, l->plan->strip};
    *factors = room + 4 * size;
}

static qn_fft_planes middle(const line *l)
{
    size_t pitch = padded(l->plan->rows);
    return (qn_fft_planes){l->mid, l->mid + pitch * l->plan->columns, pitch};
}

/* A line from element `first` on, as rows of `row` elements. */
static qn_fft_view view_from(const qn_fft_view *whole, size_t first, size_t row)
{
    size_t at = first * whole->step;
    return (qn_fft_view){whole->re ? whole->re + at : NULL,
                         whole->im ? whole->im + at : NULL, whole->step,
                         (int64_t)(row * whole->step)};
}

/* Down the columns, strip by strip; columns become rows of the middle. */
static void columns_strips(void *ctx, size_t begin, size_t end, int worker)
{
    const line *l = ctx;
    const qn_fft_line_plan *plan = l->plan;
    qn_fft_planes y, z, mid = middle(l);
    float *factors;
    strip_planes(l, worker, &y, &z, plan->rows, &factors);
    for (size_t i = begin; i < end; i++) {
        size_t first = i * plan->strip, left = plan->columns - first;
        size_t width = left < plan->strip ? left : plan->strip;
        qn_fft_view view = view_from(&l->in, first, plan->columns);
        y.pitch = z.pitch = padded(width);
        l->kernel->load(&y, &view, plan->rows, width);
        const qn_fft_planes *done =
            run_chain(l->kernel, &plan->down, &y, &z, &y, y.pitch);
        qn_fft_turn turn = {.turn = {plan->turn[0], plan->turn[1]},
                            .pitch = plan->strip};
        if (first) {
            qn_cpu_fft_row_factors(plan, factors, factors + plan->rows, first);
            turn.row[0] = factors;
            turn.row[1] = factors + plan->rows;
        }
        qn_fft_planes to = {mid.re + first * mid.pitch,
                            mid.im + first * mid.pitch, mid.pitch};
        l->kernel->transpose(&to, done, plan->rows, width, &turn);
    }
}

/* Down the middle's columns: the result stands in its order. */
static void rows_strips(void *ctx, size_t begin, size_t end, int worker)
{
    const line *l = ctx;
    const qn_fft_line_plan *plan = l->plan;
    qn_fft_planes y, z, mid = middle(l);
    float *factors;
    strip_planes(l, worker, &y, &z, plan->columns, &factors);
    for (size_t i = begin; i < end; i++) {
        size_t first = i * plan->strip, left = plan->rows - first;
        size_t width = left < plan->strip ? left : plan->strip;
        y.pitch = z.pitch = padded(width);
        qn_fft_planes from = {mid.re + first, mid.im + first, mid.pitch};
        const qn_fft_planes *done =
            run_chain(l->kernel, &plan->along, &from, &y, &z, y.pitch);
        qn_fft_view view = view_from(&l->out, first, plan->rows);
        l->kernel->store(&view, done, plan->columns, width, l->scale);
    }
}

/* `worker`: the room to use; negative: the pool's threads share the strips. */
static void run_matrix(line *l, int worker)
{
    const qn_fft_line_plan *plan = l->plan;
    size_t columns = (plan->columns + plan->strip - 1) / plan->strip;
    size_t rows = (plan->rows + plan->strip - 1) / plan->strip;
    if (worker >= 0) {
        columns_strips(l, 0, columns, worker);
        rows_strips(l, 0, rows, worker);
    } else {
        qn_pool_split(columns_strips, l, columns, 1, 1);
        qn_pool_split(rows_strips, l, rows, 1, 1);
    }
}

/* ---- jobs ---- */

typedef struct job {
    const qn_fft_kernel *kernel;
    const qn_fft_line_plan *plan;
    const qn_array *in, *out;
    qn_lines lines; /* operands: in, out */
    qn_fft_form form;
    size_t n;      /* length of the line in full */
    bool inverse;  /* parts change places before and after */
    bool halved;   /* a real line of even length */
    bool adjacent; /* neighbouring lines lie side by side */
    size_t inner;  /* how many do */
    float scale;
    /* Rooms of workers: strips, then what belongs to a line. */
    char *rooms;
    size_t stride, strip_bytes;
} job;

/* Floats that belong to a line: the middle of its matrix, or what a chirp
 * needs; and its planes where it is not read and written in place. */
static size_t matrix_floats(const qn_fft_line_plan *plan)
{
    return 2 * padded(plan->rows) * plan->columns;
}

static size_t way_floats(const qn_fft_line_plan *plan)
{
    if (plan->way == QN_FFT_WAY_MATRIX)
        return matrix_floats(plan);
    return 4 * plan->inner->n + matrix_floats(plan->inner);
}

/* Of a line, or of its spectrum of one number more. */
static size_t plane_floats(const job *j)
{
    return padded(j->plan->n + 1);
}

static size_t line_floats(const job *j)
{
    size_t pitch = plane_floats(j);
    if (j->plan->way == QN_FFT_WAY_LANES)
        return 2 * (LANES + 1) * pitch + 4 * j->plan->n * WIDE;
    return 4 * pitch + way_floats(j->plan);
}

/* The parts of a view in the order of the direction. */
static qn_fft_view directed(const job *j, qn_fft_view view)
{
    return j->inverse ? (qn_fft_view){view.im, view.re, view.step, view.row}
                      : view;
}

static float *room_of(const job *j, int worker)
{
    char *room = j->rooms + (size_t)(worker < 0 ? 0 : worker) * j->stride;
    return (float *)(void *)(room + j->strip_bytes);
}

/* A line by itself, from view to view; `space` is of way_floats. */
static void run_line(const job *j, qn_fft_view in, qn_fft_view out, float scale,
                     float *space, int worker)
{
    const qn_fft_line_plan *plan = j->plan;
    line l = {.kernel = j->kernel,
              .plan = plan,
              .in = in,
              .out = out,
              .scale = scale,
              .mid = space,
              .rooms = j->rooms,
              .stride = j->stride};
    if (plan->way == QN_FFT_WAY_MATRIX) {
        run_matrix(&l, worker);
        return;
    }
    size_t n = plan->n, length = plan->inner->n;
    float *x[2] = {space, space + length};
    float *y[2] = {x[1] + length, x[1] + 2 * length};
    const float *chirp[2] = {plan->chirp[0], plan->chirp[1]};
    const float *filter[2] = {plan->filter[0], plan->filter[1]};
    qn_fft_planes first = {x[0], x[1], length};
    /* The load fills up with zeros only to a multiple of the lanes. */
    memset(x[0], 0, 2 * length * sizeof(float));
    l.kernel->load(&first, &in, 1, n);
    l.kernel->multiply(x, x, chirp, n);
    l.plan = plan->inner;
    l.mid = space + 4 * length;
    l.scale = 1;
    l.in = (qn_fft_view){x[0], x[1], 1, 0};
    l.out = (qn_fft_view){y[0], y[1], 1, 0};
    run_matrix(&l, worker);
    l.kernel->multiply(y, y, filter, length);
    /* Back: the parts change places. */
    l.in = (qn_fft_view){y[1], y[0], 1, 0};
    l.out = (qn_fft_view){x[1], x[0], 1, 0};
    run_matrix(&l, worker);
    l.kernel->multiply(x, x, chirp, n);
    l.kernel->store(&out, &first, 1, n, scale);
}

/* ---- real lines ---- */

/* Half a spectrum of odd length n in full. */
static void mirror_line(float *const *to, float *const *from, size_t n)
{
    to[0][0] = from[0][0];
    to[1][0] = 0;
    for (size_t k = 1; 2 * k < n; k++) {
        to[0][k] = to[0][n - k] = from[0][k];
        to[1][k] = from[1][k];
        to[1][n - k] = -from[1][k];
    }
}

/* Both ways between a half spectrum in memory and the planes of a line; `spare`
 * has room for the spectrum in planes. */
static void load_spectrum(const job *j, float *const *to, float *from,
                          float *const *spare)
{
    size_t numbers = j->n / 2 + 1;
    qn_fft_planes planes = {spare[0], spare[1], padded(numbers)};
    qn_fft_view view = {from, from + 1, 2 * (size_t)j->lines.step[0], 0};
    const float *halves[2] = {j->plan->halves[0], j->plan->halves[1]};
    j->kernel->load(&planes, &view, 1, numbers);
    if (j->halved)
        j->kernel->merge(to, spare, halves, j->plan->n);
    else
        mirror_line(to, spare, j->n);
}

static void store_spectrum(const job *j, float *to, float *const *from,
                           float *const *spare)
{
    size_t numbers = j->n / 2 + 1;
    qn_fft_planes planes = {from[0], from[1], padded(numbers)};
    qn_fft_view view = {to, to + 1, 2 * (size_t)j->lines.step[1], 0};
    const float *halves[2] = {j->plan->halves[0], j->plan->halves[1]};
    if (j->halved) {
        j->kernel->split(spare, from, halves, j->plan->n);
        planes.re = spare[0];
        planes.im = spare[1];
    }
    j->kernel->store(&view, &planes, 1, numbers, j->scale);
}

/* ---- lines ---- */

/* Where a line begins, as views in the direction of the transform: `in` of
 * what is transformed, `out` of the result.  A spectrum that has to be merged
 * before, or split afterwards, has no view. */
static bool in_view(const job *j, qn_fft_view *view, float *at)
{
    size_t step = (size_t)j->lines.step[0];
    if (j->form == QN_FFT_TO_REAL)
        return false;
    if (j->form == QN_FFT_REAL)
        *view = j->halved ? (qn_fft_view){at, at + 1, 2, 0}
                          : (qn_fft_view){at, NULL, 1, 0};
    else
        *view = directed(j, (qn_fft_view){at, at + 1, 2 * step, 0});
    return true;
}

static bool out_view(const job *j, qn_fft_view *view, float *at)
{
    size_t step = (size_t)j->lines.step[1];
    if (j->form == QN_FFT_REAL)
        return false;
    if (j->form == QN_FFT_TO_REAL)
        *view = j->halved ? (qn_fft_view){at + 1, at, 2, 0}
                          : (qn_fft_view){NULL, at, 1, 0};
    else
        *view = directed(j, (qn_fft_view){at, at + 1, 2 * step, 0});
    return true;
}

/* One line alone. */
static void do_line(const job *j, float *from, float *to, int worker)
{
    size_t pitch = plane_floats(j);
    float *room = room_of(j, worker);
    float *whole[2] = {room, room + pitch};
    float *spare[2] = {room + 2 * pitch, room + 3 * pitch};
    /* Where the spectrum is told apart: in planes. */
    qn_fft_view planes = {whole[0], whole[1], 1, 0}, in, out;
    if (!in_view(j, &in, from)) {
        load_spectrum(j, whole, from, spare);
        in = (qn_fft_view){whole[1], whole[0], 1, 0};
    }
    bool stored = out_view(j, &out, to);
    run_line(j, in, stored ? out : planes, stored ? j->scale : 1,
             room + 4 * pitch, worker);
    if (!stored)
        store_spectrum(j, to, whole, spare);
}

/* Up to LANES short lines: turned into lanes and back. */
static void do_short_lines(const job *j, float *const *from, float *const *to,
                           size_t count, int worker)
{
    const qn_fft_kernel *kernel = j->kernel;
    size_t n = j->plan->n, pitch = plane_floats(j), size = n * LANES;
    float *room = room_of(j, worker);
    qn_fft_planes rows = {room, room + LANES * pitch, pitch};
    room += 2 * LANES * pitch;
    float *spare[2] = {room, room + pitch};
    room += 2 * pitch;
    qn_fft_planes y = {room, room + size, LANES};
    qn_fft_planes z = {room + 2 * size, room + 3 * size, LANES};
    for (size_t l = 0; l < count; l++) {
        qn_fft_planes one = {rows.re + l * pitch, rows.im + l * pitch, pitch};
        float *turned[2] = {one.im, one.re};
        qn_fft_view view;
        if (in_view(j, &view, from[l])) {
            kernel->load(&one, &view, 1, n);
        } else {
            /* For the inverse the parts change places. */
            load_spectrum(j, turned, from[l], spare);
        }
    }
    kernel->transpose(&y, &rows, count, n, NULL);
    const qn_fft_planes *done =
        run_chain(kernel, &j->plan->whole, &y, &z, &y, LANES);
    kernel->transpose(&rows, done, n, count, NULL);
    for (size_t l = 0; l < count; l++) {
        qn_fft_planes one = {rows.re + l * pitch, rows.im + l * pitch, pitch};
        float *whole[2] = {one.re, one.im};
        qn_fft_view view;
        if (out_view(j, &view, to[l]))
            kernel->store(&view, &one, 1, n, j->scale);
        else
            store_spectrum(j, to[l], whole, spare);
    }
}

static void lines_range(void *ctx, size_t begin, size_t end, int worker)
{
    const job *j = ctx;
    float *from[LANES], *to[LANES];
    size_t count = 0;
    qn_walk walk;
    for (qn_walk_start(&walk, &j->lines.outer, begin, end - begin); walk.left;
         qn_walk_next(&walk)) {
        from[count] = qn_element(j->in, walk.offsets[0]);
        to[count++] = qn_element(j->out, walk.offsets[1]);
        if (j->plan->way != QN_FFT_WAY_LANES) {
            do_line(j, from[0], to[0], worker);
            count = 0;
        } else if (count == LANES || walk.left == 1) {
            do_short_lines(j, from, to, count, worker);
            count = 0;
        }
    }
}

/* Complex lines side by side, WIDE at a time: number `index` of these groups
 * in each run of neighbours. */
static void adjacent_range(void *ctx, size_t begin, size_t end, int worker)
{
    const job *j = ctx;
    size_t groups = (j->inner + WIDE - 1) / WIDE, n = j->plan->n;
    float *space = room_of(j, worker);
    for (size_t i = begin; i < end; i++) {
        int64_t at[QN_PLAN_OPERANDS];
        size_t first = i % groups * WIDE, left = j->inner - first;
        size_t width = left < WIDE ? left : WIDE;
        qn_plan_offsets(&j->lines.outer, i / groups * j->inner + first, at);
        float *from = qn_element(j->in, at[0]), *to = qn_element(j->out, at[1]);
        size_t pitch = padded(width);
        qn_fft_planes y = {space, space + n * pitch, pitch};
        qn_fft_planes z = {space + 2 * n * pitch, space + 3 * n * pitch, pitch};
        qn_fft_view in = {from, from + 1, 2, 2 * j->lines.step[0]};
        qn_fft_view out = {to, to + 1, 2, 2 * j->lines.step[1]};
        in = directed(j, in);
        out = directed(j, out);
        j->kernel->load(&y, &in, n, width);
        const qn_fft_planes *done =
            run_chain(j->kernel, &j->plan->whole, &y, &z, &y, pitch);
        j->kernel->store(&out, done, n, width, j->scale);
    }
}

/* ---- nodes ---- */

/* Few long lines: one after the other, on all threads. */
static void lines_one_by_one(const job *j)
{
    qn_walk walk;
    for (qn_walk_start(&walk, &j->lines.outer, 0, j->lines.outer.nruns);
         walk.left; qn_walk_next(&walk))
        do_line(j, qn_element(j->in, walk.offsets[0]),
                qn_element(j->out, walk.offsets[1]), -1);
}

static qn_status run_job(job *j)
{
    size_t count = j->lines.outer.nruns, threads = (size_t)qn_pool_threads();
    const qn_fft_line_plan *plan = j->plan;
    const qn_fft_line_plan *matrix =
        plan->way == QN_FFT_WAY_CHIRP ? plan->inner : plan;
    bool lanes = plan->way == QN_FFT_WAY_LANES;
    bool spread = !lanes && count < threads && matrix->n >= GRAIN_STRIPS;
    size_t strips = lanes ? 0 : strip_floats(matrix);
    size_t lines = line_floats(j), bytes;
    qn_buffer *rooms;
    j->strip_bytes = strips * sizeof(float);
    if (!qn_add_size(&bytes, strips, lines) ||
        !qn_mul_size(&bytes, bytes, sizeof(float)))
        return qn_fail(QN_E_NOMEM, "[fft] lines of length %zu", j->n);
    qn_status status = qn_cpu_scratch(&rooms, threads, bytes, &j->stride);
    if (status)
        return status;
    j->rooms = rooms->data;
    size_t grain = GRAIN / plan->n + 1;
    if (j->adjacent)
        qn_pool_split(adjacent_range, j,
                      count / j->inner * ((j->inner + WIDE - 1) / WIDE),
                      grain / WIDE + 1, 1);
    else if (spread)
        lines_one_by_one(j);
    else
        qn_pool_split(lines_range, j, count, grain, lanes ? LANES : 1);
    qn_buffer_unref(rooms);
    return QN_OK;
}

/* ---- what the reference's loops do ---- */

typedef struct share {
    const qn_fft_job *job;
    char *rooms;
    size_t stride;
} share;

static void reference_lines(void *ctx, size_t begin, size_t end, int worker)
{
    const share *s = ctx;
    void *room = s->rooms + (size_t)worker * s->stride;
    qn_fft_job_lines(s->job, begin, end - begin, room);
}

static qn_status by_reference(qn_node *node)
{
    qn_fft_job reference;
    share s = {.job = &reference};
    qn_buffer *rooms = NULL;
    qn_status status = qn_fft_job_begin(&reference, node, qn_ref_fft_pass);
    if (!status && reference.out->size) {
        status = qn_cpu_scratch(&rooms, (size_t)qn_pool_threads(),
                                qn_fft_job_room(&reference) * sizeof(double),
                                &s.stride);
        if (!status) {
            s.rooms = rooms->data;
            qn_pool_split(reference_lines, &s, reference.lines.outer.nruns,
                          GRAIN / reference.n + 1, reference.lanes);
        }
    }
    qn_buffer_unref(rooms);
    qn_fft_job_end(&reference);
    return status;
}

/* Finds out whether lines lie side by side, in runs of how many. */
static void find_neighbours(job *j)
{
    const qn_plan *outer = &j->lines.outer;
    int last = outer->ndim - 1;
    if (last < 0 || outer->strides[0][last] != 1 ||
        outer->strides[1][last] != 1 || outer->shape[last] < LANES / 2)
        return;
    j->inner = (size_t)outer->shape[last];
    j->adjacent = true;
}

/* Whether lines go forwards, and real ones through neighbouring elements. */
static bool neighbours(const job *j, int axis)
{
    int64_t behind = 1; /* elements of the output's axes behind this one */
    for (int i = axis + 1; i < j->out->ndim; i++)
        behind *= j->out->shape[i];
    if (j->form == QN_FFT_REAL && j->in->strides[axis] != 1)
        return false;
    if (j->form == QN_FFT_TO_REAL && behind != 1)
        return false;
    return j->in->strides[axis] >= 0;
}

qn_status qn_cpu_fft(qn_node *node, bool *done)
{
    const qn_fft_params *p = node->params;
    const qn_array *in = node->inputs[0];
    qn_array *out = node->outputs[0];
    bool real = p->form == QN_FFT_REAL, to_real = p->form == QN_FFT_TO_REAL;
    job j = {.kernel = qn_fft_pick(),
             .in = in,
             .out = out,
             .form = p->form,
             .n = (size_t)(real ? in : out)->shape[p->axis],
             .inverse = p->form == QN_FFT_INVERSE || to_real,
             .scale = (float)p->scale};
    *done = true;
    if (!neighbours(&j, p->axis))
        return by_reference(node);
    qn_status status = qn_array_alloc(out);
    if (status || !out->size)
        return status;
    qn_lines_make(&j.lines, in->shape, in->ndim, p->axis,
                  (const int64_t *[]){in->strides, out->strides}, 2);
    j.halved = (real || to_real) && j.n % 2 == 0;
    size_t n = j.halved ? j.n / 2 : j.n;
    qn_fft_line_plan *plan = NULL;
    if (!real && !to_real)
        find_neighbours(&j);
    status = qn_cpu_fft_plan(&plan, n, !j.adjacent, j.halved);
    if (!status) {
        j.plan = plan;
        j.adjacent = j.adjacent && plan->way == QN_FFT_WAY_LANES;
        status = run_job(&j);
    }
    qn_cpu_fft_plan_done(plan);
    return status;
}
