/* Each filter against its definition, written out slowly. */
#include "support/qn_test.h"

#include "runtime/filters.h"

#include <math.h>

enum { N = 300 };

static uint32_t random_state = 99;

static double uniform(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 17;
    random_state ^= random_state << 5;
    return random_state / 4294967296.0;
}

/* Log probabilities of all shapes: flat, peaked, with ties, with holes. */
static void make(float *lp, int shape)
{
    double sum = 0;
    for (int i = 0; i < N; i++) {
        double x = shape == 0   ? uniform()
                   : shape == 1 ? 12 * uniform()
                   : shape == 2 ? floor(6 * uniform())
                                : (i == 17 ? 30 : 80 * uniform() - 80);
        lp[i] = (float)x;
        if (shape == 1 && i % 7 == 3)
            lp[i] = -INFINITY;
        sum += exp(lp[i]);
    }
    for (int i = 0; i < N; i++)
        lp[i] = (float)(lp[i] - log(sum));
}

/* Ranks of ids by ascending value, lower ids first among equals. */
static void ascending(int *order, const float *lp)
{
    for (int i = 0; i < N; i++)
        order[i] = i;
    for (int i = 1; i < N; i++)
        for (int j = i; j > 0 && lp[order[j - 1]] > lp[order[j]]; j--) {
            int swap = order[j];
            order[j] = order[j - 1];
            order[j - 1] = swap;
        }
}

static void check_same(const float *found, const bool *keep, const float *lp,
                       const bool *either)
{
    for (int i = 0; i < N; i++) {
        if (isinf(lp[i]) || (either && either[i]))
            continue;
        if (keep[i])
            assert_float_equal(found[i], lp[i], 0);
        else
            assert_true(isinf(found[i]));
    }
}

static void test_top_p_follows_the_cumulative_sum(void **state)
{
    (void)state;
    for (int round = 0; round < 80; round++) {
        float lp[N], found[N];
        int order[N];
        int32_t scratch[N];
        bool keep[N], either[N] = {false};
        double p = round % 5 == 4 ? 1e-6 : uniform();
        make(lp, round % 4);
        ascending(order, lp);
        double sum = 0;
        for (int i = 0; i < N; i++) {
            sum += exp(lp[order[i]]);
            keep[order[i]] = sum > 1 - p;
            either[order[i]] = fabs(sum - (1 - p)) < 1e-9;
        }
        keep[order[N - 1]] = true;
        memcpy(found, lp, sizeof lp);
        qn_filter_top_p(found, N, p, scratch);
        check_same(found, keep, lp, either);
        assert_false(isinf(found[order[N - 1]]));
    }
}

static void test_top_p_of_ties_drops_low_ids_first(void **state)
{
    (void)state;
    /* Four equal ids: in ascending order 0, 1, 2, 3 the sums are .25 .5 .75
     * 1, of which the last two are above .6. */
    float lp[4] = {logf(.25f), logf(.25f), logf(.25f), logf(.25f)};
    int32_t scratch[4];
    qn_filter_top_p(lp, 4, 0.4, scratch);
    assert_true(isinf(lp[0]) && isinf(lp[1]));
    assert_false(isinf(lp[2]) || isinf(lp[3]));
}

static void test_min_p_is_relative_to_the_likeliest(void **state)
{
    (void)state;
    for (int round = 0; round < 40; round++) {
        float lp[N], found[N];
        bool keep[N];
        double p = uniform(), top = -INFINITY;
        make(lp, round % 4);
        for (int i = 0; i < N; i++)
            top = lp[i] > top ? lp[i] : top;
        for (int i = 0; i < N; i++)
            keep[i] = lp[i] >= top + log(p);
        memcpy(found, lp, sizeof lp);
        qn_filter_min_p(found, N, p);
        check_same(found, keep, lp, NULL);
    }
}

static void test_typical_keeps_the_nearest_to_the_entropy(void **state)
{
    (void)state;
    for (int round = 0; round < 40; round++) {
        float lp[N], found[N];
        bool keep[N] = {false}, either[N] = {false};
        int32_t scratch[N];
        double p = 0.05 + 0.9 * uniform(), norm = 0, entropy = 0, mass = 0;
        make(lp, round % 4);
        for (int i = 0; i < N; i++)
            norm += exp(lp[i]);
        for (int i = 0; i < N; i++)
            if (!isinf(lp[i]))
                entropy -= exp(lp[i]) / norm * (lp[i] - log(norm));
        while (mass < p) {
            int best = -1;
            double least = INFINITY;
            for (int i = 0; i < N; i++) {
                double distance = fabs(-(lp[i] - log(norm)) - entropy);
                if (!keep[i] && !isinf(lp[i]) && distance < least - 1e-12) {
                    least = distance;
                    best = i;
                }
            }
            if (best < 0)
                break;
            keep[best] = true;
            either[best] = fabs(mass - p) < 1e-9;
            mass += exp(lp[best]) / norm;
        }
        memcpy(found, lp, sizeof lp);
        qn_filter_typical(found, N, p, scratch);
        /* Float and double distances may order near equals differently: the
         * kept mass is what must agree. */
        double kept = 0;
        for (int i = 0; i < N; i++)
            kept += isinf(found[i]) ? 0 : exp(found[i]) / norm;
        assert_true(fabs(kept - mass) < 0.02 || kept >= p);
        assert_true(kept >= p - 1e-9);
        if (round % 4 == 0)
            check_same(found, keep, lp, either);
    }
}

static void test_xtc_keeps_the_least_of_the_likely(void **state)
{
    (void)state;
    /* .5 .3 .15 .05: with threshold .1 the first two go. */
    const float full[4] = {logf(.5f), logf(.3f), logf(.15f), logf(.05f)};
    float lp[4];
    memcpy(lp, full, sizeof lp);
    qn_filter_xtc(lp, 4, 0.1, NULL, 0);
    assert_true(isinf(lp[0]) && isinf(lp[1]));
    assert_float_equal(lp[2], full[2], 0);
    assert_float_equal(lp[3], full[3], 0);
    /* An exempt id stays. */
    memcpy(lp, full, sizeof lp);
    qn_filter_xtc(lp, 4, 0.1, (int32_t[]){1}, 1);
    assert_true(isinf(lp[0]));
    assert_float_equal(lp[1], full[1], 0);
    /* One id above the threshold: nothing to drop. */
    memcpy(lp, full, sizeof lp);
    qn_filter_xtc(lp, 4, 0.4, NULL, 0);
    assert_memory_equal(lp, full, sizeof lp);
    /* Probabilities are those of what is left: .05 of .2 is .25. */
    memcpy(lp, full, sizeof lp);
    lp[0] = lp[1] = -INFINITY;
    qn_filter_xtc(lp, 4, 0.2, NULL, 0);
    assert_true(isinf(lp[2]));
    assert_float_equal(lp[3], full[3], 0);
}

static void test_top_k_keeps_low_ids_among_equals(void **state)
{
    (void)state;
    for (int round = 0; round < 200; round++) {
        float lp[N], found[N];
        int order[N];
        int32_t scratch[N];
        bool keep[N] = {false};
        int k = 1 + (int)(uniform() * (N + 10));
        make(lp, round % 4);
        ascending(order, lp);
        /* Descending with lower ids first: from the end, by runs. */
        int left = k;
        for (int end = N - 1; end >= 0 && left > 0;) {
            int begin = end;
            while (begin > 0 && lp[order[begin - 1]] == lp[order[end]])
                begin--;
            for (int i = begin; i <= end && left > 0; i++, left--)
                keep[order[i]] = true;
            end = begin - 1;
        }
        memcpy(found, lp, sizeof lp);
        qn_filter_top_k(found, N, k, scratch);
        check_same(found, keep, lp, NULL);
    }
}

/* Long lists go another way: a bound from spans. */
static void test_top_k_of_many(void **state)
{
    (void)state;
    enum { MANY = 5000 };
    static float lp[MANY], found[MANY];
    static int32_t scratch[MANY];
    for (int round = 0; round < 100; round++) {
        int n = MANY - round % 70, k = 1 + (int)(uniform() * 45);
        for (int i = 0; i < n; i++) {
            double x = uniform();
            lp[i] = round % 4 == 0   ? (float)-x
                    : round % 4 == 1 ? (float)floor(-200 * x)
                    : round % 4 == 2 ? (x < 0.99 ? -INFINITY : (float)-x)
                                     : (x < 0.5 ? -0.0F : 0.0F);
        }
        memcpy(found, lp, sizeof lp);
        qn_filter_top_k(found, n, k, scratch);
        for (int i = 0; i < n; i++) {
            int before = 0;
            if (isinf(lp[i]))
                continue;
            for (int j = 0; j < n && before < k; j++)
                before += lp[j] > lp[i] || (lp[j] == lp[i] && j < i);
            assert_true(before < k ? found[i] == lp[i] : isinf(found[i]));
        }
    }
}

static void test_values_that_mean_off_change_nothing(void **state)
{
    (void)state;
    float lp[N], found[N];
    int32_t scratch[N];
    for (int shape = 0; shape < 4; shape++) {
        make(lp, shape);
        memcpy(found, lp, sizeof lp);
        qn_filter_top_p(found, N, 1, scratch);
        qn_filter_min_p(found, N, 0);
        qn_filter_typical(found, N, 1, scratch);
        qn_filter_top_k(found, N, 0, scratch);
        qn_filter_top_k(found, N, -1, scratch);
        qn_filter_top_k(found, N, N, scratch);
        assert_memory_equal(found, lp, sizeof lp);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_top_p_follows_the_cumulative_sum),
        cmocka_unit_test(test_top_p_of_ties_drops_low_ids_first),
        cmocka_unit_test(test_min_p_is_relative_to_the_likeliest),
        cmocka_unit_test(test_typical_keeps_the_nearest_to_the_entropy),
        cmocka_unit_test(test_xtc_keeps_the_least_of_the_likely),
        cmocka_unit_test(test_top_k_keeps_low_ids_among_equals),
        cmocka_unit_test(test_top_k_of_many),
        cmocka_unit_test(test_values_that_mean_off_change_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
