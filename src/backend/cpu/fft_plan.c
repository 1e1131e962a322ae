/* fft_plan.c: makes plans and keeps the last few.
 *
 * Making a plan costs about as much as using it once, and programs use the
 * same lengths again and again, so a few small plans are kept for the life of
 * the process.  A lock guards the list; a plan that is in use is not in it. */
#include "fft_plan.h"

#include "backend/ref/fft.h"
#include "base/alloc.h"

#include <pthread.h>
#include <string.h>

enum {
    FINE = 512,
    KEPT = 8,
    /* A plan for longer lines is not kept. */
    LARGE = 1 << 18,
    /* Sides of a matrix below which lines are better done side by side: strips
     * of shorter ones are rarely full (512 x 1000 took three times as long as
     * matrices of 25 x 40). */
    LEAST_SIDE = 27,
    /* Floats of a strip's four planes: what a first-level cache and a part of
     * the second hold. */
    STRIP_FLOATS = 48 * 1024
};

/* ---- memory ---- */

static void *hold(qn_fft_line_plan *plan, size_t count, size_t each)
{
    void *block = qn_calloc(count, each);
    if (block)
        plan->blocks[plan->nblocks++] = block;
    return block;
}

/* Two planes of n floats (doubles) in one block. */
static bool hold_floats(qn_fft_line_plan *plan, float **planes, size_t n)
{
    planes[0] = hold(plan, n, 2 * sizeof(float));
    planes[1] = planes[0] ? planes[0] + n : NULL;
    return planes[0];
}

static bool hold_doubles(qn_fft_line_plan *plan, double **planes, size_t n)
{
    planes[0] = hold(plan, n, 2 * sizeof(double));
    planes[1] = planes[0] ? planes[0] + n : NULL;
    return planes[0];
}

static void plan_free(qn_fft_line_plan *plan)
{
    while (plan) {
        qn_fft_line_plan *inner = plan->inner;
        for (int i = 0; i < plan->nblocks; i++)
            qn_free(plan->blocks[i]);
        qn_free(plan);
        plan = inner;
    }
}

/* ---- chains ---- */

/* Radixes for n, or -1 where a prime factor is too large.  Powers of two are
 * eights and, for what is left, fours rather than twos. */
static int factor(int *radix, size_t n)
{
    static const int odd[] = {3, 5, 7, 11, QN_FFT_RADIX};
    int count = 0, twos = 0;
    for (; n % 2 == 0; n /= 2)
        twos++;
    for (; twos == 3 || twos > 4; twos -= 3)
        radix[count++] = 8;
    for (; twos >= 2; twos -= 2)
        radix[count++] = 4;
    if (twos)
        radix[count++] = 2;
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++)
        for (; n % (size_t)odd[i] == 0; n /= (size_t)odd[i])
            radix[count++] = odd[i];
    return n == 1 ? count : -1;
}

static bool is_smooth(size_t n)
{
    int radix[QN_FFT_PASSES + 32];
    return factor(radix, n) >= 0;
}

/* n is smooth. */
static bool make_chain(qn_fft_line_plan *plan, qn_fft_chain *chain, size_t n)
{
    int radix[QN_FFT_PASSES + 32];
    double *roots = qn_calloc(n, 2 * sizeof *roots);
    float *w = hold(plan, n, 2 * sizeof *w);
    if (!roots || !w) {
        qn_free(roots);
        return false;
    }
    qn_fft_roots(roots, roots + n, n, n);
    chain->n = n;
    chain->npasses = factor(radix, n);
    size_t left = n, done = 1;
    for (int i = 0; i < chain->npasses; i++) {
        size_t r = (size_t)radix[i], m = left / r, each = (r - 1) * m;
        for (size_t j = 1; j < r; j++)
            for (size_t q = 0, at = 0; q < m; q++, at += j * done) {
                w[(j - 1) * m + q] = (float)roots[at];
                w[each + (j - 1) * m + q] = (float)roots[n + at];
            }
        chain->passes[i] = (qn_fft_lanes_pass){
            .radix = radix[i], .m = m, .s = done, .w = {w, w + each}};
        w += 2 * each;
        left = m;
        done *= r;
    }
    qn_free(roots);
    return true;
}

/* ---- matrices ---- */

/* The largest divisor up to the square root. */
static size_t shorter_side(size_t n)
{
    size_t best = 1;
    for (size_t d = 2; d * d <= n; d++)
        if (n % d == 0)
            best = d;
    return best;
}

static void root_of(const qn_fft_line_plan *plan, double *re, double *im,
                    size_t k)
{
    size_t f = k % FINE, c = k / FINE;
    double fr = plan->fine[0][f], fi = plan->fine[1][f];
    double cr = plan->coarse[0][c], ci = plan->coarse[1][c];
    *re = fr * cr - fi * ci;
    *im = fr * ci + fi * cr;
}

void qn_cpu_fft_row_factors(const qn_fft_line_plan *plan, float *re, float *im,
                            size_t column)
{
    for (size_t k = 0; k < plan->rows; k++) {
        double r, i;
        root_of(plan, &r, &i, k * column);
        re[k] = (float)r;
        im[k] = (float)i;
    }
}

static bool make_matrix(qn_fft_line_plan *plan, size_t side)
{
    size_t n = plan->n, coarse = n / FINE + 1;
    plan->rows = side;
    plan->columns = n / side;
    plan->strip = 2 * QN_FFT_LANES;
    if (4 * plan->strip * plan->columns > STRIP_FLOATS)
        plan->strip = QN_FFT_LANES;
    if (!hold_doubles(plan, plan->fine, FINE) ||
        !hold_doubles(plan, plan->coarse, coarse) ||
        !hold_floats(plan, plan->turn, plan->rows * plan->strip) ||
        !make_chain(plan, &plan->down, plan->rows) ||
        !make_chain(plan, &plan->along, plan->columns))
        return false;
    qn_fft_roots(plan->fine[0], plan->fine[1], n, FINE);
    for (size_t k = 0; k < coarse; k++) {
        double *re = &plan->coarse[0][k], *im = &plan->coarse[1][k];
        qn_fft_root(re, im, k * FINE, n);
    }
    for (size_t k = 0; k < plan->rows; k++)
        for (size_t i = 0; i < plan->strip && i < plan->columns; i++) {
            double re, im;
            root_of(plan, &re, &im, k * i);
            plan->turn[0][k * plan->strip + i] = (float)re;
            plan->turn[1][k * plan->strip + i] = (float)im;
        }
    return true;
}

/* ---- chirps ---- */

static qn_status make_plan(qn_fft_line_plan **out, size_t n, size_t least_side);

/* The reference's plan has the numbers, in double. */
static bool make_chirp(qn_fft_line_plan *plan)
{
    qn_fft_plan exact;
    bool made = !qn_fft_plan_make(&exact, plan->n, qn_ref_fft_pass) &&
                !make_plan(&plan->inner, exact.length, 2) &&
                hold_floats(plan, plan->chirp, plan->n) &&
                hold_floats(plan, plan->filter, exact.length);
    for (int part = 0; part < 2 && made; part++) {
        for (size_t j = 0; j < plan->n; j++)
            plan->chirp[part][j] = (float)exact.chirp[part][j];
        for (size_t j = 0; j < exact.length; j++)
            plan->filter[part][j] = (float)exact.filter[part][j];
    }
    qn_fft_plan_free(&exact);
    return made;
}

/* ---- plans ---- */

/* A matrix if both of its sides are long enough; 0: never. */
static qn_status make_plan(qn_fft_line_plan **out, size_t n, size_t least_side)
{
    qn_fft_line_plan *plan = qn_calloc(1, sizeof *plan);
    if (!plan)
        return QN_E_NOMEM;
    plan->n = n;
    bool smooth = is_smooth(n);
    size_t side = smooth && least_side ? shorter_side(n) : 0;
    plan->way = !smooth                      ? QN_FFT_WAY_CHIRP
                : side && side >= least_side ? QN_FFT_WAY_MATRIX
                                             : QN_FFT_WAY_LANES;
    bool made = plan->way == QN_FFT_WAY_CHIRP ? make_chirp(plan)
                : plan->way == QN_FFT_WAY_MATRIX
                    ? make_matrix(plan, side)
                    : make_chain(plan, &plan->whole, n);
    if (!made) {
        plan_free(plan);
        return qn_fail(QN_E_NOMEM, "[fft] a transform of length %zu", n);
    }
    *out = plan;
    return QN_OK;
}

static bool make_halves(qn_fft_line_plan *plan)
{
    size_t n = plan->n;
    double *roots = qn_calloc(n + 1, 2 * sizeof *roots);
    bool made = roots && hold_floats(plan, plan->halves, n + 1);
    if (made) {
        qn_fft_roots(roots, roots + n + 1, 2 * n, n + 1);
        for (size_t k = 0; k <= n; k++) {
            plan->halves[0][k] = (float)roots[k];
            plan->halves[1][k] = (float)roots[n + 1 + k];
        }
    }
    qn_free(roots);
    return made;
}

/* ---- the last plans ---- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static qn_fft_line_plan *kept[KEPT]; /* the last one used first */

/* Takes plan number i out of the list. */
static qn_fft_line_plan *take(int i)
{
    qn_fft_line_plan *plan = kept[i];
    memmove(kept + i, kept + i + 1, (size_t)(KEPT - 1 - i) * sizeof *kept);
    kept[KEPT - 1] = NULL;
    return plan;
}

qn_status qn_cpu_fft_plan(qn_fft_line_plan **out, size_t n, bool alone,
                          bool halves)
{
    qn_fft_line_plan *plan = NULL;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < KEPT && kept[i] && !plan; i++)
        if (kept[i]->n == n && kept[i]->alone == alone)
            plan = take(i);
    pthread_mutex_unlock(&lock);
    qn_status status =
        plan ? QN_OK : make_plan(&plan, n, alone ? LEAST_SIDE : 0);
    if (!status && halves && !plan->halves[0] && !make_halves(plan)) {
        plan_free(plan);
        status = QN_E_NOMEM;
    }
    if (!status) {
        plan->alone = alone;
        *out = plan;
    }
    return status;
}

void qn_cpu_fft_plan_done(qn_fft_line_plan *plan)
{
    if (!plan)
        return;
    if (plan->n <= LARGE) {
        pthread_mutex_lock(&lock);
        qn_fft_line_plan *last = kept[KEPT - 1];
        memmove(kept + 1, kept, (KEPT - 1) * sizeof *kept);
        kept[0] = plan;
        pthread_mutex_unlock(&lock);
        plan = last;
    }
    plan_free(plan);
}
