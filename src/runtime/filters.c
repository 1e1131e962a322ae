/* filters.c: see filters.h.
 *
 * A vocabulary has 50,000 to 260,000 ids, and sorting it would cost as much
 * as a layer of the model.  So top_p counts probability in buckets of log
 * probability and sorts only the bucket in which the limit falls, and top_k
 * selects.  Sums are in double, which makes their order irrelevant. */
#include "filters.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static float maximum(const float *lp, int32_t n)
{
    float top = -INFINITY;
    for (int32_t i = 0; i < n; i++)
        top = lp[i] > top ? lp[i] : top;
    return top;
}

/* qsort has no argument for the array; these are set around it, per thread. */
static _Thread_local const float *sort_key;

/* Ascending, lower ids first among equals. */
static int ascending(const void *a, const void *b)
{
    int32_t i = *(const int32_t *)a, j = *(const int32_t *)b;
    if (sort_key[i] != sort_key[j])
        return sort_key[i] < sort_key[j] ? -1 : 1;
    return (i > j) - (i < j);
}

static void sort_ascending(int32_t *ids, int32_t count, const float *key)
{
    sort_key = key;
    qsort(ids, (size_t)count, sizeof *ids, ascending);
    sort_key = NULL;
}

/* Buckets of 1/16 in log probability below the likeliest id; the last one
 * takes everything from 64 down, whose probability is nothing. */
enum { BUCKETS = 1024, PER_UNIT = 16 };

static int bucket_of(float lp, float top)
{
    float distance = (top - lp) * PER_UNIT;
    return distance >= BUCKETS - 1 ? BUCKETS - 1 : (int)distance;
}

void qn_filter_top_p(float *lp, int32_t n, double p, int32_t *scratch)
{
    float top = maximum(lp, n);
    if (p >= 1 || isinf(top))
        return;
    double mass[BUCKETS] = {0};
    for (int32_t i = 0; i < n; i++)
        if (!isinf(lp[i]))
            mass[bucket_of(lp[i], top)] += exp(lp[i]);

    /* From the unlikely end, the bucket in which the sum passes 1 - p. */
    double limit = 1 - p, below = 0;
    int edge = BUCKETS - 1;
    while (edge > 0 && below + mass[edge] <= limit)
        below += mass[edge--];

    int32_t count = 0;
    for (int32_t i = 0; i < n; i++) {
        if (isinf(lp[i]))
            continue;
        int bucket = bucket_of(lp[i], top);
        if (bucket == edge)
            scratch[count++] = i;
        else if (bucket > edge)
            lp[i] = -INFINITY;
    }
    sort_ascending(scratch, count, lp);
    /* The last one stays whatever rounding says: something must. */
    for (int32_t i = 0; i + 1 < count; i++) {
        below += exp(lp[scratch[i]]);
        if (below <= limit)
            lp[scratch[i]] = -INFINITY;
    }
}

void qn_filter_min_p(float *lp, int32_t n, double p)
{
    if (p <= 0)
        return;
    double limit = maximum(lp, n) + log(p);
    for (int32_t i = 0; i < n; i++)
        if (lp[i] < limit)
            lp[i] = -INFINITY;
}

/* log of the sum of probabilities that are left. */
static double log_mass(const float *lp, int32_t n)
{
    double sum = 0;
    for (int32_t i = 0; i < n; i++)
        sum += isinf(lp[i]) ? 0 : exp(lp[i]);
    return log(sum);
}

static _Thread_local double sort_centre;

/* By distance from the centre, lower ids first among equals. */
static int nearest(const void *a, const void *b)
{
    int32_t i = *(const int32_t *)a, j = *(const int32_t *)b;
    double x = fabs(sort_key[i] - sort_centre);
    double y = fabs(sort_key[j] - sort_centre);
    if (x != y)
        return x < y ? -1 : 1;
    return (i > j) - (i < j);
}

void qn_filter_typical(float *lp, int32_t n, double p, int32_t *scratch)
{
    if (p >= 1)
        return;
    double norm = log_mass(lp, n), entropy = 0;
    int32_t count = 0;
    for (int32_t i = 0; i < n; i++) {
        if (isinf(lp[i]))
            continue;
        scratch[count++] = i;
        entropy -= exp(lp[i] - norm) * (lp[i] - norm);
    }
    /* -(lp - norm) near the entropy is lp near norm - entropy. */
    sort_key = lp;
    sort_centre = norm - entropy;
    qsort(scratch, (size_t)count, sizeof *scratch, nearest);
    sort_key = NULL;
    double mass = 0;
    for (int32_t i = 0; i < count; i++) {
        bool reached = i > 0 && mass >= p;
        mass += exp(lp[scratch[i]] - norm);
        if (reached)
            lp[scratch[i]] = -INFINITY;
    }
}

static bool is_in(int32_t id, const int32_t *list, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (list[i] == id)
            return true;
    return false;
}

void qn_filter_xtc(float *lp, int32_t n, double threshold,
                   const int32_t *exempt, size_t exempt_count)
{
    double norm = log_mass(lp, n);
    double limit = threshold > 0 ? log(threshold) + norm : -INFINITY;
    float least = INFINITY;
    for (int32_t i = 0; i < n; i++)
        if (!isinf(lp[i]) && lp[i] > limit && lp[i] < least)
            least = lp[i];
    for (int32_t i = 0; i < n; i++)
        if (!isinf(lp[i]) && lp[i] > least && !is_in(i, exempt, exempt_count))
            lp[i] = -INFINITY;
}

/* Reorders `ids` so that the k largest come first, in any order. */
static void select_largest(int32_t *ids, int32_t count, int32_t k,
                           const float *key)
{
    int32_t low = 0, high = count - 1;
    while (low < high) {
        /* Median of three against sorted input. */
        int32_t middle = low + (high - low) / 2;
        float a = key[ids[low]], b = key[ids[middle]], c = key[ids[high]];
        float pivot = a > b ? (b > c   ? b
                               : a > c ? c
                                       : a)
                            : (a > c   ? a
                               : b > c ? c
                                       : b);
        int32_t i = low, j = high;
        while (i <= j) {
            while (key[ids[i]] > pivot)
                i++;
            while (key[ids[j]] < pivot)
                j--;
            if (i <= j) {
                int32_t swap = ids[i];
                ids[i++] = ids[j];
                ids[j--] = swap;
            }
        }
        if (k - 1 <= j)
            high = j;
        else if (k - 1 >= i)
            low = i;
        else
            return;
    }
}

/* ---- top_k ----
 *
 * The k largest of 128,000 are found without looking at most of them twice: the
 * largest elements of short spans come first, and the k-th of those is a bound
 * that at least k elements reach.  The few that do are selected from.  With k
 * of 40 that takes 20 us of one core, a selection from all ids 700 us and a
 * sort 12 ms; the pass that finds the spans' largest and the one that drops the
 * rest run at the speed of the second-level cache. */

enum { SPAN = 64, LANES = 16 };

/* Integers in the order of the floats, which are no NaNs. */
static int32_t order_of(float x)
{
    int32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits ^ (bits >> 31 & INT32_MAX);
}

/* The largest of a span, in lanes, so that vectors may do it. */
static float span_maximum(const float *x, int32_t n)
{
    float lane[LANES], top = -INFINITY;
    if (n < SPAN)
        return maximum(x, n);
    memcpy(lane, x, sizeof lane);
    for (int32_t i = LANES; i < SPAN; i += LANES)
        for (int32_t j = 0; j < LANES; j++)
            lane[j] = x[i + j] > lane[j] ? x[i + j] : lane[j];
    for (int32_t j = 0; j < LANES; j++)
        top = lane[j] > top ? lane[j] : top;
    return top;
}

/* The k-th largest of `values`, which are reordered; 1 <= k <= count. */
static int32_t kth_largest(int32_t *values, int32_t count, int32_t k)
{
    int32_t low = 0, high = count - 1;
    while (low < high) {
        int32_t pivot = values[low + (high - low) / 2], i = low, j = high;
        while (i <= j) {
            while (values[i] > pivot)
                i++;
            while (values[j] < pivot)
                j--;
            if (i <= j) {
                int32_t swap = values[i];
                values[i++] = values[j];
                values[j--] = swap;
            }
        }
        if (k - 1 <= j)
            high = j;
        else if (k - 1 >= i)
            low = i;
        else
            break;
    }
    return values[k - 1];
}

/* Lists ids, the k largest among them, at `ids`, and says how many; 0 when
 * there would be too many, or k is too large for spans to tell them apart.
 * `scratch` has room for n numbers, and `ids` lies in it. */
static int32_t list_candidates(const float *lp, int32_t n, int32_t k,
                               int32_t *scratch, int32_t **ids)
{
    int32_t spans = (n + SPAN - 1) / SPAN, count = 0;
    if (k > spans / 2 || spans > n / 3)
        return 0;
    /* The maxima twice: one list is selected from. */
    int32_t *tops = scratch, *copy = scratch + spans;
    for (int32_t s = 0; s < spans; s++) {
        int32_t left = n - s * SPAN;
        tops[s] =
            order_of(span_maximum(lp + s * SPAN, left < SPAN ? left : SPAN));
    }
    memcpy(copy, tops, (size_t)spans * sizeof *tops);
    int32_t bound = kth_largest(copy, spans, k);
    if (bound == order_of(-INFINITY))
        return 0;
    *ids = copy; /* which has served */
    for (int32_t s = 0; s < spans; s++) {
        if (tops[s] < bound)
            continue;
        int32_t end = s * SPAN + SPAN < n ? s * SPAN + SPAN : n;
        if (count > n - spans - SPAN)
            return 0;
        for (int32_t i = s * SPAN; i < end; i++)
            if (order_of(lp[i]) >= bound)
                copy[count++] = i;
    }
    return count;
}

/* Lists all ids that are left. */
static int32_t list_all(const float *lp, int32_t n, int32_t *ids)
{
    int32_t count = 0;
    for (int32_t i = 0; i < n; i++)
        if (!isinf(lp[i]))
            ids[count++] = i;
    return count;
}

/* Drops ids below `least` and, of those equal to it, all but the first
 * `equal`. */
static void drop_below(float *lp, int32_t n, float least, int32_t equal)
{
    int32_t found = 0;
    for (int32_t i = 0; i < n; i++) {
        found += lp[i] == least;
        lp[i] = lp[i] < least ? -INFINITY : lp[i];
    }
    for (int32_t i = 0; found > equal && i < n; i++)
        if (lp[i] == least && equal-- <= 0)
            lp[i] = -INFINITY;
}

void qn_filter_top_k(float *lp, int32_t n, int32_t k, int32_t *scratch)
{
    if (k <= 0 || k >= n)
        return;
    int32_t *ids = scratch;
    int32_t count = list_candidates(lp, n, k, scratch, &ids);
    if (!count) {
        ids = scratch;
        count = list_all(lp, n, ids);
        if (k >= count)
            return;
    }
    select_largest(ids, count, k, lp);
    float least = INFINITY;
    for (int32_t i = 0; i < k; i++)
        least = lp[ids[i]] < least ? lp[ids[i]] : least;
    int32_t above = 0;
    for (int32_t i = 0; i < k; i++)
        above += lp[ids[i]] > least;
    drop_below(lp, n, least, k - above);
}
