/* fft.c: passes and their factors. */
#include "fft.h"

#include "base/alloc.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

static const double two_pi = 6.28318530717958647693;

/* The angle is brought below an eighth of a turn in whole numbers. */
void qn_fft_root(double *re, double *im, uint64_t k, uint64_t n)
{
    /* In units of 1 / (8 n) of a turn, split into octant and rest. */
    k %= n;
    uint64_t octant = 8 * k / n, rest = 8 * k - octant * n;
    if (octant & 1)
        rest = n - rest;
    double angle = two_pi * ((double)rest / (double)n) / 8;
    double c = cos(angle), s = sin(angle);
    /* The octants in which sine and cosine have changed places. */
    if ((octant + 1) & 2) {
        double swap = c;
        c = s;
        s = swap;
    }
    *re = octant >= 2 && octant < 6 ? -c : c;
    *im = octant >= 4 ? s : -s;
}

/* ---- factors ---- */

/* The roots w^(k a) for k below count come from two short tables: one of the
 * powers below BLOCK, one of the multiples of BLOCK. */
enum { BLOCK = 64 };

void qn_fft_roots(double *re, double *im, size_t n, size_t count)
{
    double low[2][BLOCK];
    for (size_t k = 0; k < BLOCK && k < count; k++)
        qn_fft_root(&low[0][k], &low[1][k], k, n);
    for (size_t first = 0; first < count; first += BLOCK) {
        double hr, hi;
        qn_fft_root(&hr, &hi, first, n);
        for (size_t k = 0; k < BLOCK && first + k < count; k++) {
            re[first + k] = hr * low[0][k] - hi * low[1][k];
            im[first + k] = hr * low[1][k] + hi * low[0][k];
        }
    }
}

/* ---- plans ---- */

/* Radixes for n, or -1 where a prime factor is too large. */
static int factor(int *radix, size_t n)
{
    static const int candidates[] = {4, 2, 3, 5, 7, 11, QN_FFT_MAX_RADIX};
    int count = 0;
    for (size_t i = 0; i < sizeof candidates / sizeof *candidates; i++)
        while (n % (size_t)candidates[i] == 0) {
            radix[count++] = candidates[i];
            n /= (size_t)candidates[i];
        }
    return n == 1 ? count : -1;
}

/* The factors of all passes, at most 2 (length - 1) doubles, picked from the
 * roots of 1 of the whole length. */
static void make_passes(qn_fft_plan *plan, double *memory, const int *radix,
                        const double *re, const double *im)
{
    size_t left = plan->length, done = 1;
    for (int i = 0; i < plan->npasses; i++) {
        size_t r = (size_t)radix[i], m = left / r, each = (r - 1) * m;
        for (size_t j = 1; j < r; j++)
            for (size_t q = 0, at = 0; q < m; q++, at += j * done) {
                /* at = j q done stays below the length. */
                memory[(j - 1) * m + q] = re[at];
                memory[each + (j - 1) * m + q] = im[at];
            }
        plan->passes[i] = (qn_fft_pass){
            .radix = radix[i], .m = m, .s = done, .w = {memory, memory + each}};
        memory += 2 * each;
        left = m;
        done *= r;
    }
}

/* Bluestein: jk = (j^2 + k^2 - (k - j)^2) / 2, so X[k] is c[k] times the sum
 * over j of (x[j] c[j]) times the conjugate of c[k - j], where c[j] is
 * exp(-pi i j^2 / n). */
static qn_status make_chirp(qn_fft_plan *plan, qn_fft_pass_fn run)
{
    size_t n = plan->n, length = plan->length, all;
    double *roots = qn_calloc(n, 4 * sizeof *roots);
    double *work = NULL;
    if (qn_mul_size(&all, length, 4 * sizeof *work))
        work = qn_calloc(all, 1);
    if (!roots || !work) {
        qn_free(roots);
        qn_free(work);
        return QN_E_NOMEM;
    }
    qn_fft_roots(roots, roots + 2 * n, 2 * n, 2 * n);
    double *x[2] = {work, work + length};
    double *y[2] = {x[1] + length, x[1] + 2 * length};
    for (uint64_t j = 0; j < n; j++) {
        size_t at = (size_t)(j * j % (2 * n));
        plan->chirp[0][j] = roots[at];
        plan->chirp[1][j] = roots[2 * n + at];
        /* The filter runs from -(n - 1) to n - 1, around the end. */
        size_t mirror = j ? length - (size_t)j : 0;
        x[0][j] = x[0][mirror] = roots[at];
        x[1][j] = x[1][mirror] = -roots[2 * n + at];
    }
    qn_fft_plan bare = *plan;
    bare.n = length;
    double *const *z = qn_fft_run(&bare, run, x, y, 1);
    for (size_t j = 0; j < length; j++) {
        plan->filter[0][j] = z[0][j] / (double)length;
        plan->filter[1][j] = z[1][j] / (double)length;
    }
    qn_free(roots);
    qn_free(work);
    return QN_OK;
}

qn_status qn_fft_plan_make(qn_fft_plan *plan, size_t n, qn_fft_pass_fn run)
{
    int radix[QN_FFT_MAX_PASSES];
    *plan = (qn_fft_plan){.n = n, .length = n};
    plan->npasses = factor(radix, n);
    bool chirped = plan->npasses < 0;
    if (chirped) {
        plan->length = 1;
        while (plan->length < 2 * n - 1)
            plan->length *= 2;
        plan->npasses = factor(radix, plan->length);
    }
    size_t length = plan->length, size;
    double *roots = NULL;
    /* Factors; then the filter and the chirp. */
    if (qn_mul_size(&size, length, 6 * sizeof *roots)) {
        roots = qn_calloc(length, 2 * sizeof *roots);
        plan->memory = qn_alloc(chirped ? size : size / 3);
    }
    if (!roots || !plan->memory) {
        qn_free(roots);
        return qn_fail(QN_E_NOMEM, "[fft] a transform of length %zu", n);
    }
    qn_fft_roots(roots, roots + length, length, length);
    make_passes(plan, plan->memory, radix, roots, roots + length);
    qn_free(roots);
    if (!chirped)
        return QN_OK;
    plan->filter[0] = plan->memory + 2 * length;
    plan->filter[1] = plan->filter[0] + length;
    plan->chirp[0] = plan->filter[1] + length;
    plan->chirp[1] = plan->chirp[0] + n;
    return make_chirp(plan, run);
}

void qn_fft_plan_free(qn_fft_plan *plan)
{
    qn_free(plan->memory);
    plan->memory = NULL;
}

/* ---- transforms ---- */

/* All passes; the buffers take turns. */
static double *const *chain(const qn_fft_plan *plan, qn_fft_pass_fn run,
                            double *const *x, double *const *y, size_t lanes)
{
    for (int i = 0; i < plan->npasses; i++) {
        qn_fft_pass pass = plan->passes[i];
        pass.s *= lanes;
        pass.x[0] = x[0];
        pass.x[1] = x[1];
        pass.y[0] = y[0];
        pass.y[1] = y[1];
        run(&pass);
        double *const *swap = x;
        x = y;
        y = swap;
    }
    return x;
}

/* z = z w for n elements, w one number for all lanes. */
static void scale_by(double *const *z, const double *const *w, size_t n,
                     size_t lanes)
{
    for (size_t j = 0; j < n; j++) {
        double c = w[0][j], s = w[1][j];
        double *re = z[0] + j * lanes, *im = z[1] + j * lanes;
        for (size_t l = 0; l < lanes; l++) {
            double r = re[l] * c - im[l] * s;
            im[l] = re[l] * s + im[l] * c;
            re[l] = r;
        }
    }
}

double *const *qn_fft_run(const qn_fft_plan *plan, qn_fft_pass_fn run,
                          double *const *x, double *const *y, size_t lanes)
{
    if (plan->n == plan->length)
        return chain(plan, run, x, y, lanes);
    const double *chirp[2] = {plan->chirp[0], plan->chirp[1]};
    const double *filter[2] = {plan->filter[0], plan->filter[1]};
    size_t used = plan->n * lanes, rest = (plan->length - plan->n) * lanes;
    scale_by(x, chirp, plan->n, lanes);
    for (int part = 0; part < 2; part++)
        memset(x[part] + used, 0, rest * sizeof(double));
    double *const *z = chain(plan, run, x, y, lanes);
    double *const *other = z == x ? y : x;
    scale_by(z, filter, plan->length, lanes);
    /* The inverse transform: the parts change places before and after. */
    double *turned[2] = {z[1], z[0]}, *spare[2] = {other[1], other[0]};
    z = chain(plan, run, turned, spare, lanes) == turned ? z : other;
    scale_by(z, chirp, plan->n, lanes);
    return z;
}
