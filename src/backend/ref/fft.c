/* fft.c: Fourier transforms: lines in, passes, lines out.
 *
 * A complex line is transformed as it is; for the inverse its parts change
 * places.  A real line of even length n is taken for a complex one of length
 * n / 2, evens and odds being its parts, and the spectra of the two are told
 * apart afterwards (before, in the other direction).  A real line of odd
 * length is a complex one whose imaginary part is 0. */
#include "fft.h"

#include "loops.h"
#include "stage.h"

#include "base/alloc.h"

#define FFT_PASS run_pass
#include "fft.inc"

void qn_ref_fft_pass(const qn_fft_pass *pass)
{
    run_pass(pass);
}

/* ---- jobs ---- */

enum {
    LANES = 8,
    /* Doubles in the buffers of one room that still fit a cache. */
    CACHED = 1 << 16
};

qn_status qn_fft_job_begin(qn_fft_job *job, qn_node *node, qn_fft_pass_fn run)
{
    const qn_fft_params *p = node->params;
    qn_array *in = node->inputs[0], *out = node->outputs[0];
    bool real = p->form == QN_FFT_REAL || p->form == QN_FFT_TO_REAL;
    const qn_array *full = p->form == QN_FFT_REAL ? in : out;
    *job = (qn_fft_job){.run = run,
                        .in = in,
                        .out = out,
                        .form = p->form,
                        .scale = p->scale,
                        .n = (size_t)full->shape[p->axis]};
    job->halved = real && job->n % 2 == 0;
    qn_status status = qn_array_alloc(out);
    if (status || !out->size)
        return status;
    size_t half = job->n / 2;
    status = qn_fft_plan_make(&job->plan, job->halved ? half : job->n, run);
    if (!status && job->halved) {
        job->roots = qn_calloc(half + 1, 2 * sizeof *job->roots);
        if (!job->roots)
            return QN_E_NOMEM;
        qn_fft_roots(job->roots, job->roots + half + 1, job->n, half + 1);
    }
    qn_lines_make(&job->lines, in->shape, in->ndim, p->axis,
                  (const int64_t *[]){in->strides, out->strides}, 2);
    job->lanes = LANES;
    while (job->lanes > 1 && (4 * job->plan.length * job->lanes > CACHED ||
                              job->lanes / 2 >= job->lines.outer.nruns))
        job->lanes /= 2;
    return status;
}

void qn_fft_job_end(qn_fft_job *job)
{
    qn_fft_plan_free(&job->plan);
    qn_free(job->roots);
    job->roots = NULL;
}

size_t qn_fft_job_room(const qn_fft_job *job)
{
    return 4 * job->plan.length * job->lanes;
}

/* ---- lines in and out ---- */

/* Some lines at once: where they begin, and the buffers. */
typedef struct group {
    const qn_fft_job *job;
    size_t lanes;
    const float *from[LANES];
    float *to[LANES];
    int64_t in, out; /* floats from element to element */
    double *x[2], *y[2];
} group;

static void load_complex(const group *g)
{
    size_t n = g->job->n, lanes = g->lanes;
    double *re = g->x[0], *im = g->x[1];
    for (size_t j = 0; j < n; j++)
        for (size_t l = 0; l < lanes; l++) {
            const float *at = g->from[l] + (int64_t)j * g->in;
            re[j * lanes + l] = (double)at[0];
            im[j * lanes + l] = (double)at[1];
        }
}

static void store_complex(const group *g, double *const *z)
{
    size_t n = g->job->n, lanes = g->lanes;
    double scale = g->job->scale;
    for (size_t j = 0; j < n; j++)
        for (size_t l = 0; l < lanes; l++) {
            float *at = g->to[l] + (int64_t)j * g->out;
            at[0] = (float)(z[0][j * lanes + l] * scale);
            at[1] = (float)(z[1][j * lanes + l] * scale);
        }
}

static void load_real(const group *g)
{
    size_t n = g->job->n, lanes = g->lanes;
    size_t half = n / 2;
    double *re = g->x[0], *im = g->x[1];
    for (size_t l = 0; l < lanes; l++) {
        const float *at = g->from[l];
        if (g->job->halved)
            for (size_t j = 0; j < half; j++, at += 2 * g->in) {
                re[j * lanes + l] = (double)at[0];
                im[j * lanes + l] = (double)at[g->in];
            }
        else
            for (size_t j = 0; j < n; j++, at += g->in) {
                re[j * lanes + l] = (double)at[0];
                im[j * lanes + l] = 0;
            }
    }
}

/* The spectrum up to half of its length. */
static void store_half(const group *g, double *const *z)
{
    const qn_fft_job *job = g->job;
    size_t half = job->n / 2, lanes = g->lanes;
    double scale = job->scale;
    if (!job->halved) {
        for (size_t k = 0; k <= half; k++)
            for (size_t l = 0; l < lanes; l++) {
                float *at = g->to[l] + (int64_t)k * g->out;
                at[0] = (float)(z[0][k * lanes + l] * scale);
                at[1] = (float)(z[1][k * lanes + l] * scale);
            }
        return;
    }
    /* Z = E + i O with the spectra E of the evens and O of the odds, both
     * those of real lines; the line's is E + w^k O. */
    const double *c = job->roots, *s = job->roots + half + 1;
    for (size_t k = 0; k <= half; k++) {
        size_t a = k == half ? 0 : k, b = k ? half - k : 0;
        for (size_t l = 0; l < lanes; l++) {
            double ar = z[0][a * lanes + l], ai = z[1][a * lanes + l];
            double br = z[0][b * lanes + l], bi = z[1][b * lanes + l];
            double er = ar + br, ei = ai - bi, ur = ai + bi, ui = br - ar;
            float *at = g->to[l] + (int64_t)k * g->out;
            at[0] = (float)((er + ur * c[k] - ui * s[k]) * 0.5 * scale);
            at[1] = (float)((ei + ur * s[k] + ui * c[k]) * 0.5 * scale);
        }
    }
}

/* The imaginary parts of the first element and, for even lengths, of the
 * last one stand for nothing: their frequencies have no phase. */
static void load_half(const group *g)
{
    const qn_fft_job *job = g->job;
    size_t n = job->n, half = n / 2, lanes = g->lanes;
    double *re = g->x[0], *im = g->x[1];
    const double *c = job->roots, *s = job->halved ? c + half + 1 : NULL;
    for (size_t l = 0; l < lanes; l++) {
        const float *from = g->from[l];
        if (!job->halved) {
            re[l] = (double)from[0];
            im[l] = 0;
            for (size_t k = 1; k <= half; k++) {
                const float *at = from + (int64_t)k * g->in;
                size_t mirror = (n - k) * lanes + l;
                re[k * lanes + l] = re[mirror] = (double)at[0];
                im[k * lanes + l] = (double)at[1];
                im[mirror] = -(double)at[1];
            }
            continue;
        }
        /* E = A + conj(B), O = w^-k (A - conj(B)) with B the mirror image of
         * A; the complex line of evens and odds is that of E + i O. */
        for (size_t k = 0; k < half; k++) {
            const float *a = from + (int64_t)k * g->in;
            const float *b = from + (int64_t)(half - k) * g->in;
            double ar = (double)a[0], ai = k ? (double)a[1] : 0;
            double br = (double)b[0], bi = k ? (double)b[1] : 0;
            double dr = ar - br, di = ai + bi;
            double ur = dr * c[k] + di * s[k], ui = di * c[k] - dr * s[k];
            re[k * lanes + l] = ar + br - ui;
            im[k * lanes + l] = ai - bi + ur;
        }
    }
}

static void store_real(const group *g, double *const *z)
{
    size_t n = g->job->n, half = n / 2, lanes = g->lanes;
    double scale = g->job->scale;
    for (size_t l = 0; l < lanes; l++) {
        float *at = g->to[l];
        if (g->job->halved)
            for (size_t j = 0; j < half; j++, at += 2 * g->out) {
                at[0] = (float)(z[0][j * lanes + l] * scale);
                at[g->out] = (float)(z[1][j * lanes + l] * scale);
            }
        else
            for (size_t j = 0; j < n; j++, at += g->out)
                at[0] = (float)(z[0][j * lanes + l] * scale);
    }
}

static void transform(group *g)
{
    const qn_fft_job *job = g->job;
    bool inverse = job->form == QN_FFT_INVERSE || job->form == QN_FFT_TO_REAL;
    if (job->form == QN_FFT_REAL)
        load_real(g);
    else if (job->form == QN_FFT_TO_REAL)
        load_half(g);
    else
        load_complex(g);
    double *x[2] = {g->x[inverse], g->x[!inverse]};
    double *y[2] = {g->y[inverse], g->y[!inverse]};
    double *const *z = qn_fft_run(&job->plan, job->run, x, y, g->lanes);
    double *result[2] = {z[inverse], z[!inverse]};
    if (job->form == QN_FFT_REAL)
        store_half(g, result);
    else if (job->form == QN_FFT_TO_REAL)
        store_real(g, result);
    else
        store_complex(g, result);
}

void qn_fft_job_lines(const qn_fft_job *job, size_t first, size_t count,
                      double *room)
{
    size_t size = job->plan.length * job->lanes;
    /* Steps of complex elements count two floats. */
    int in = job->form == QN_FFT_REAL ? 1 : 2;
    int out = job->form == QN_FFT_TO_REAL ? 1 : 2;
    group g = {.job = job,
               .in = job->lines.step[0] * in,
               .out = job->lines.step[1] * out,
               .x = {room, room + size},
               .y = {room + 2 * size, room + 3 * size}};
    qn_walk walk;
    for (qn_walk_start(&walk, &job->lines.outer, first, count); walk.left;
         qn_walk_next(&walk)) {
        g.from[g.lanes] = qn_element(job->in, walk.offsets[0]);
        g.to[g.lanes++] = qn_element(job->out, walk.offsets[1]);
        if (g.lanes == job->lanes || walk.left == 1) {
            transform(&g);
            g.lanes = 0;
        }
    }
}

qn_status qn_ref_fft(qn_node *node)
{
    qn_fft_job job;
    qn_status status = qn_fft_job_begin(&job, node, qn_ref_fft_pass);
    double *room = NULL;
    if (!status && job.out->size) {
        size_t size;
        if (qn_mul_size(&size, qn_fft_job_room(&job), sizeof *room))
            room = qn_alloc(size);
        if (room)
            qn_fft_job_lines(&job, 0, job.lines.outer.nruns, room);
        else
            status = QN_E_NOMEM;
    }
    qn_free(room);
    qn_fft_job_end(&job);
    return status;
}
