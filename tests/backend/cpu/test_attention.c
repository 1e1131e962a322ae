/* Attention: each kernel against double arithmetic, and the properties that
 * the rest of the system builds on: rows do not see each other, nor threads,
 * nor the way the cache is laid out. */
#include "support/qn_cpu_test.h"

#include "backend/cpu/kernels/attention/attention.h"

/* The numerical contract: 2^-20 * max|v| * (4 + max|score|), plus half a unit
 * of the output's type. */
static double bound(double value, double score, qn_dtype type)
{
    return 0x1p-20 * value * (4 + score) + half_ulp(type) * value;
}

typedef struct problem {
    int batch, heads, kv_heads, queries, keys, d, dv;
    qn_dtype q_type, k_type, v_type, out_type;
    bool causal;
    enum { NO_MASK, BOOL_MASK, FLOAT_MASK } mask;
    bool sinks;
    float scale;
    qn_array *q, *k, *v, *mask_array, *sink_array;
} problem;

static qn_array *random_mask(const problem *p, uint64_t seed)
{
    qn_dtype type = p->mask == BOOL_MASK ? QN_BOOL : p->out_type;
    qn_array *mask =
        array_of(type, NULL, SHAPE(p->batch, 1, p->queries, p->keys));
    for (size_t i = 0; i < mask->size; i++) {
        double x = test_random(&seed);
        double hidden = p->mask == BOOL_MASK ? 0 : -INFINITY;
        element_put(place_of(mask, i), type, x < -0.4 ? hidden : x + 0.5);
    }
    int64_t strides[4];
    memcpy(strides, mask->strides, sizeof strides);
    strides[1] = 0;
    qn_array *wide = view_of(
        mask, SHAPE(p->batch, p->heads, p->queries, p->keys), strides, 0);
    qn_array_unref(mask);
    return wide;
}

static void problem_fill(problem *p, uint64_t seed)
{
    p->scale = 1 / sqrtf((float)p->d);
    p->q = random_array(p->q_type, 2, seed + 1,
                        SHAPE(p->batch, p->heads, p->queries, p->d));
    p->k = random_array(p->k_type, 2, seed + 2,
                        SHAPE(p->batch, p->kv_heads, p->keys, p->d));
    p->v = random_array(p->v_type, 1, seed + 3,
                        SHAPE(p->batch, p->kv_heads, p->keys, p->dv));
    p->mask_array = p->mask ? random_mask(p, seed + 4) : NULL;
    p->sink_array =
        p->sinks ? random_array(p->out_type, 1, seed + 5, SHAPE(p->heads))
                 : NULL;
}

static void problem_free(problem *p)
{
    qn_array_unref(p->q);
    qn_array_unref(p->k);
    qn_array_unref(p->v);
    qn_array_unref(p->mask_array);
    qn_array_unref(p->sink_array);
}

static qn_array *attend(const problem *p)
{
    qn_sdpa_params params;
    memset(&params, 0, sizeof params);
    params.scale = p->scale;
    params.causal = p->causal;
    params.has_mask = p->mask_array != NULL;
    params.has_sinks = p->sink_array != NULL;
    qn_array *inputs[5] = {p->q, p->k, p->v};
    int n = 3;
    if (p->mask_array)
        inputs[n++] = p->mask_array;
    if (p->sink_array)
        inputs[n++] = p->sink_array;
    return apply(QN_OP_SDPA, &params, sizeof params, p->out_type,
                 SHAPE(p->q->shape[0], p->heads, p->q->shape[2], p->dv), n,
                 inputs);
}

static double at4(const qn_array *a, int i, int j, int k, int l)
{
    int64_t offset = i * a->strides[0] + j * a->strides[1] + k * a->strides[2] +
                     l * a->strides[3];
    return element_get((char *)qn_array_data(a) +
                           offset * (int64_t)qn_array_itemsize(a),
                       a->dtype);
}

/* Row (b, h, i) in double; the largest |score| seen. */
static double exact_row(const problem *p, int b, int h, int i, double *out)
{
    int g = h / (p->heads / p->kv_heads);
    double *score = calloc((size_t)p->keys, sizeof *score);
    double top = -INFINITY, sum = 0, largest = 0;
    bool any = false;
    assert_non_null(score);
    for (int j = 0; j < p->keys; j++) {
        score[j] = -INFINITY;
        if (p->causal && j > i + p->keys - p->queries)
            continue;
        if (p->mask == BOOL_MASK && !at4(p->mask_array, b, h, i, j))
            continue;
        double dot = 0;
        for (int d = 0; d < p->d; d++)
            dot += at4(p->q, b, h, i, d) * at4(p->k, b, g, j, d);
        score[j] = dot * (double)p->scale;
        if (p->mask == FLOAT_MASK)
            score[j] += at4(p->mask_array, b, h, i, j);
        any = true;
        largest = fmax(largest, isfinite(score[j]) ? fabs(score[j]) : 0);
        top = fmax(top, score[j]);
    }
    if (!any && !p->sinks)
        for (int j = 0; j < p->keys; j++)
            score[j] = top = 0;
    double sink = p->sinks ? item(p->sink_array, (size_t)h) : -INFINITY;
    top = fmax(top, sink);
    if (p->sinks)
        sum = exp(sink - top);
    for (int j = 0; j < p->keys; j++)
        sum += score[j] = exp(score[j] - top);
    for (int e = 0; e < p->dv; e++) {
        out[e] = 0;
        for (int j = 0; j < p->keys; j++)
            out[e] += score[j] * at4(p->v, b, g, j, e);
        out[e] /= sum;
    }
    free(score);
    return largest;
}

static void check_exact(const problem *p, const qn_array *out)
{
    double *row = calloc((size_t)p->dv, sizeof *row);
    assert_non_null(row);
    for (int b = 0; b < p->batch; b++)
        for (int h = 0; h < p->heads; h++)
            for (int i = 0; i < p->queries; i++) {
                double score = exact_row(p, b, h, i, row);
                for (int e = 0; e < p->dv; e++) {
                    double found = at4(out, b, h, i, e);
                    if (isnan(row[e]) && isnan(found))
                        continue;
                    if (!(fabs(found - row[e]) <=
                          bound(1, score, p->out_type))) {
                        print_error("row %d %d %d element %d: expected %.9g, "
                                    "found %.9g\n",
                                    b, h, i, e, row[e], found);
                        fail();
                    }
                }
            }
    free(row);
}

static int pick(uint64_t *seed, int low, int high)
{
    double x = (test_random(seed) + 1) / 2;
    int n = low + (int)(x * (high - low + 1));
    return n > high ? high : n;
}

static problem random_problem(uint64_t *seed)
{
    static const int widths[] = {64, 80, 96, 128, 7, 20, 33, 256};
    problem p = {.batch = pick(seed, 1, 2), .kv_heads = pick(seed, 1, 3)};
    p.heads = p.kv_heads * pick(seed, 1, 9);
    p.queries = pick(seed, 0, 2) ? pick(seed, 1, 30) : 1;
    p.keys = pick(seed, 1, 300);
    p.d = widths[pick(seed, 0, 7)];
    p.dv = pick(seed, 0, 1) ? p.d : widths[pick(seed, 0, 7)];
    p.q_type = float_types[pick(seed, 0, 2)];
    p.k_type = float_types[pick(seed, 0, 2)];
    p.v_type = float_types[pick(seed, 0, 2)];
    p.out_type = float_types[pick(seed, 0, 2)];
    p.causal = pick(seed, 0, 1);
    p.mask = (unsigned)pick(seed, 0, 2);
    if (p.mask)
        p.causal = false;
    p.sinks = pick(seed, 0, 3) == 0;
    return p;
}

static void test_random_problems_are_exact(void **state)
{
    (void)state;
    uint64_t seed = 11;
    for (int round = 0; round < 60; round++) {
        problem p = random_problem(&seed);
        problem_fill(&p, seed);
        use_fast();
        qn_array *out = attend(&p);
        check_exact(&p, out);
        qn_array_unref(out);
        problem_free(&p);
    }
}

static void test_agrees_with_the_reference(void **state)
{
    (void)state;
    uint64_t seed = 5;
    for (int round = 0; round < 20; round++) {
        problem p = random_problem(&seed);
        problem_fill(&p, seed);
        use_reference();
        qn_array *expected = attend(&p);
        use_fast();
        qn_array *out = attend(&p);
        assert_true(largest_difference(out, expected) <=
                    2 * bound(1, 8, p.out_type));
        qn_array_unref(out);
        qn_array_unref(expected);
        problem_free(&p);
    }
}

/* One query after the other, as a token-by-token run would: the rows of the
 * cache that are not there yet do not exist for it. */
static void test_a_row_has_the_bits_it_has_alone(void **state)
{
    (void)state;
    uint64_t seed = 77;
    use_fast();
    for (int round = 0; round < 25; round++) {
        problem p = random_problem(&seed);
        p.queries = pick(&seed, 2, 20);
        p.keys = p.queries + pick(&seed, 0, 280);
        p.causal = !p.mask;
        problem_fill(&p, seed);
        qn_array *all = attend(&p);
        for (int i = 0; i < p.queries; i += 3) {
            problem one = p;
            one.queries = 1;
            one.keys = p.causal ? i + p.keys - p.queries + 1 : p.keys;
            one.q = view_of(p.q, SHAPE(p.batch, p.heads, 1, p.d), p.q->strides,
                            (size_t)i * (size_t)p.d);
            one.k = view_of(p.k, SHAPE(p.batch, p.kv_heads, one.keys, p.d),
                            p.k->strides, 0);
            one.v = view_of(p.v, SHAPE(p.batch, p.kv_heads, one.keys, p.dv),
                            p.v->strides, 0);
            if (p.mask_array)
                one.mask_array =
                    view_of(p.mask_array, SHAPE(p.batch, p.heads, 1, p.keys),
                            p.mask_array->strides, (size_t)i * (size_t)p.keys);
            qn_array *alone = attend(&one);
            qn_array *row = view_of(all, SHAPE(p.batch, p.heads, 1, p.dv),
                                    all->strides, (size_t)i * (size_t)p.dv);
            assert_true(same_bits(alone, row));
            qn_array_unref(row);
            qn_array_unref(alone);
            qn_array_unref(one.q);
            qn_array_unref(one.k);
            qn_array_unref(one.v);
            if (p.mask_array)
                qn_array_unref(one.mask_array);
        }
        qn_array_unref(all);
        problem_free(&p);
    }
}

/* Long enough that chunks become tasks of their own when there are threads. */
static void test_threads_change_no_bit(void **state)
{
    (void)state;
    uint64_t seed = 3;
    use_fast();
    for (int round = 0; round < 8; round++) {
        problem p = random_problem(&seed);
        p.keys = 700 + pick(&seed, 0, 400);
        problem_fill(&p, seed);
        qn_array *first = NULL;
        for (int t = 0; t < THREAD_COUNTS; t++) {
            qn_pool_set_threads(thread_counts[t]);
            qn_array *out = attend(&p);
            if (first)
                assert_true(same_bits(out, first));
            else
                first = qn_array_ref(out);
            qn_array_unref(out);
        }
        qn_pool_set_threads(0);
        qn_array_unref(first);
        problem_free(&p);
    }
}

/* q as the transposed view of a projection, K and V as parts of a longer
 * cache whose heads lie far apart. */
static void test_strides_change_no_bit(void **state)
{
    (void)state;
    uint64_t seed = 21;
    use_fast();
    for (int round = 0; round < 10; round++) {
        problem p = random_problem(&seed);
        problem_fill(&p, seed);
        qn_array *plain = attend(&p);
        problem s = p;
        int64_t q[4] = {(int64_t)p.heads * p.queries * p.d, p.d,
                        (int64_t)p.heads * p.d, 1};
        int length = p.keys + 57;
        qn_array *room = array_of(p.q_type, NULL, SHAPE((int)p.q->size));
        s.q = view_of(room, p.q->shape, 4, q, 0);
        qn_array_unref(room);
        for (size_t i = 0; i < p.q->size; i++)
            memcpy(place_of(s.q, i), place_of(p.q, i), qn_array_itemsize(p.q));
        qn_array **caches[2] = {&s.k, &s.v};
        for (int c = 0; c < 2; c++) {
            qn_array *from = *caches[c];
            int width = from->shape[3];
            room = random_array(from->dtype, 9, seed,
                                SHAPE(p.batch, p.kv_heads, length, width));
            *caches[c] = view_of(room, from->shape, 4, room->strides, 0);
            for (size_t i = 0; i < from->size; i++)
                memcpy(place_of(*caches[c], i), place_of(from, i),
                       qn_array_itemsize(from));
            qn_array_unref(room);
        }
        qn_array *out = attend(&s);
        assert_true(same_bits(out, plain));
        qn_array_unref(out);
        qn_array_unref(plain);
        qn_array_unref(s.q);
        qn_array_unref(s.k);
        qn_array_unref(s.v);
        problem_free(&p);
    }
}

static problem small_problem(int queries, int keys)
{
    return (problem){.batch = 1,
                     .heads = 1,
                     .kv_heads = 1,
                     .queries = queries,
                     .keys = keys,
                     .d = 4,
                     .dv = 4,
                     .q_type = QN_FLOAT32,
                     .k_type = QN_FLOAT32,
                     .v_type = QN_FLOAT32,
                     .out_type = QN_FLOAT32,
                     .scale = 1};
}

/* The examples of the specification: equal scores average the values. */
static void test_equal_scores_average(void **state)
{
    (void)state;
    use_fast();
    problem p = small_problem(2, 2);
    p.q = array_of(QN_FLOAT32, NULL, SHAPE(1, 1, 2, 4));
    p.k = random_array(QN_FLOAT32, 1, 1, SHAPE(1, 1, 2, 4));
    p.v = array_of(QN_FLOAT32, VALUES(1, 3, 5, 7, 9, 11, 13, 15),
                   SHAPE(1, 1, 2, 4));
    check_items(attend(&p), 5, 7, 9, 11, 5, 7, 9, 11);
    p.causal = true;
    check_items(attend(&p), 1, 3, 5, 7, 5, 7, 9, 11);
    p.causal = false;
    p.mask_array = array_of(QN_FLOAT32, VALUES(-INFINITY, 0, -INFINITY, 0),
                            SHAPE(1, 1, 2, 2));
    check_items(attend(&p), 9, 11, 13, 15, 9, 11, 13, 15);
    problem_free(&p);
}

static void test_rows_that_see_nothing(void **state)
{
    (void)state;
    use_fast();
    problem p = small_problem(1, 2);
    p.q = random_array(QN_FLOAT32, 1, 8, SHAPE(1, 1, 1, 4));
    p.k = random_array(QN_FLOAT32, 1, 9, SHAPE(1, 1, 2, 4));
    p.v = array_of(QN_FLOAT32, VALUES(1, 3, 5, 7, 9, 11, 13, 15),
                   SHAPE(1, 1, 2, 4));
    /* A bool mask that hides all averages all values. */
    p.mask_array = array_of(QN_BOOL, NULL, SHAPE(1, 1, 1, 2));
    check_items(attend(&p), 5, 7, 9, 11);
    qn_array_unref(p.mask_array);
    /* An additive one leaves nothing to divide by. */
    p.mask_array =
        array_of(QN_FLOAT32, VALUES(-INFINITY, -INFINITY), SHAPE(1, 1, 1, 2));
    check_items(attend(&p), NAN, NAN, NAN, NAN);
    /* A sink takes the whole weight then. */
    p.sink_array = array_of(QN_FLOAT32, VALUES(0.5), SHAPE(1));
    check_items(attend(&p), 0, 0, 0, 0);
    problem_free(&p);
    /* Causal, more queries than keys: the first see nothing. */
    p = small_problem(3, 1);
    p.causal = true;
    p.q = random_array(QN_FLOAT32, 1, 8, SHAPE(1, 1, 3, 4));
    p.k = random_array(QN_FLOAT32, 1, 9, SHAPE(1, 1, 1, 4));
    p.v = array_of(QN_FLOAT32, VALUES(1, 3, 5, 7), SHAPE(1, 1, 1, 4));
    check_items(attend(&p), 1, 3, 5, 7, 1, 3, 5, 7, 1, 3, 5, 7);
    problem_free(&p);
}

static void test_sinks_take_their_share(void **state)
{
    (void)state;
    use_fast();
    problem p = small_problem(1, 3);
    p.dv = 1;
    p.q = array_of(QN_FLOAT32, NULL, SHAPE(1, 1, 1, 4));
    p.k = array_of(QN_FLOAT32, NULL, SHAPE(1, 1, 3, 4));
    p.v = array_of(QN_FLOAT32, VALUES(4, 8, 12), SHAPE(1, 1, 3, 1));
    p.sink_array = array_of(QN_FLOAT32, VALUES(0), SHAPE(1));
    check_items(attend(&p), 6);
    qn_array_unref(p.sink_array);
    p.sink_array = array_of(QN_FLOAT32, VALUES(100), SHAPE(1));
    qn_array *out = attend(&p);
    assert_true(fabs(item(out, 0)) < 1e-40);
    qn_array_unref(out);
    problem_free(&p);
}

/* A NaN in one row of q stays there. */
static void test_nan_stays_in_its_row(void **state)
{
    (void)state;
    use_fast();
    problem p = small_problem(8, 40);
    problem_fill(&p, 4);
    qn_array *clean = attend(&p);
    element_put(place_of(p.q, 3 * 4 + 1), QN_FLOAT32, NAN);
    qn_array *out = attend(&p);
    for (size_t i = 0; i < out->size; i++)
        if (i / 4 == 3)
            assert_true(isnan(item(out, i)));
        else
            assert_true(item(out, i) == item(clean, i));
    qn_array_unref(out);
    qn_array_unref(clean);
    problem_free(&p);
}

/* What is not finite in v reaches those queries alone that see its key, in
 * every kind of key and value and whether few or many rows go together. */
static void test_nan_is_for_those_who_see_it(void **state)
{
    (void)state;
    static const qn_dtype types[] = {QN_FLOAT32, QN_FLOAT16, QN_BFLOAT16};
    static const float odd[] = {NAN, INFINITY, -INFINITY};
    use_fast();
    for (int n = 0; n < 18; n++) {
        int rows = n % 2 ? 60 : 3, width = n % 3 ? 12 : 32, at = 50 + n % 4;
        problem p = small_problem(rows, 80);
        p.d = p.dv = width;
        p.k_type = p.v_type = types[n / 2 % 3];
        p.causal = true;
        problem_fill(&p, (uint64_t)n);
        qn_array *clean = attend(&p);
        int before = at - (80 - rows); /* the first query that sees key `at` */
        if (rows == 3) {
            at = 79;
            before = 2;
        }
        element_put(place_of(p.v, (size_t)(at * width)), p.v_type, odd[n % 3]);
        qn_array *out = attend(&p);
        for (size_t i = 0; i < out->size; i++)
            if ((int)(i / (size_t)width) < before)
                assert_true(item(out, i) == item(clean, i));
        assert_false(isfinite(item(out, (size_t)(before * width))));
        qn_array_unref(out);
        qn_array_unref(clean);
        problem_free(&p);
    }
}

/* ---- each kernel of kernels.def that this processor can run ---- */

static void kernel_run(const qn_attention_kernel *kernel, const problem *p,
                       int h, float *out)
{
    int group = p->heads / p->kv_heads;
    qn_attention job = {
        .queries = (size_t)p->queries,
        .group = (size_t)group,
        .keys = (size_t)p->keys,
        .d = (size_t)p->d,
        .dv = (size_t)p->dv,
        .scale = p->scale,
        .causal = p->causal,
        .q_type = p->q_type,
        .k_type = p->k_type,
        .v_type = p->v_type,
        .out_type = QN_FLOAT32,
        .q = place_of(p->q, (size_t)(h * group * p->queries * p->d)),
        .q_query = p->d,
        .q_head = (int64_t)p->queries * p->d,
        .k = place_of(p->k, (size_t)(h * p->keys * p->d)),
        .k_row = p->d,
        .v = place_of(p->v, (size_t)(h * p->keys * p->dv)),
        .v_row = p->dv,
        .out = out,
        .out_query = p->dv,
        .out_head = (int64_t)p->queries * p->dv};
    size_t rows = job.queries * job.group, step = kernel->block(&job);
    if (step > 7)
        step = 7; /* odd blocks, so that tiles of every height occur */
    float *scratch = malloc(kernel->scratch(&job, step) * sizeof(float) + 64);
    assert_non_null(scratch);
    for (size_t row = 0; row < rows; row += step)
        kernel->run(&job, row, row + step < rows ? row + step : rows, scratch);
    free(scratch);
}

static void test_every_kernel_is_exact(void **state)
{
    (void)state;
    int tested = 0;
    bool picked = false;
    for (int isa = QN_ISA_NONE; isa < QN_ISA_COUNT; isa++) {
        const qn_attention_kernel *kernel = qn_attention_at((qn_isa)isa);
        uint64_t seed = 100;
        for (int round = 0; kernel && round < 20; round++) {
            problem p = random_problem(&seed);
            p.batch = 1;
            p.mask = NO_MASK;
            p.sinks = false;
            p.out_type = QN_FLOAT32;
            problem_fill(&p, seed);
            qn_array *out =
                array_of(QN_FLOAT32, NULL, SHAPE(1, p.heads, p.queries, p.dv));
            for (int h = 0; h < p.kv_heads; h++)
                kernel_run(kernel, &p, h,
                           place_of(out, (size_t)(h * (p.heads / p.kv_heads) *
                                                  p.queries * p.dv)));
            check_exact(&p, out);
            qn_array_unref(out);
            problem_free(&p);
        }
        tested += kernel != NULL;
        picked |= kernel == qn_attention_pick();
    }
    assert_true(tested >= 1);
    /* The one in use is among them. */
    assert_true(picked);
}

static problem starved;

static qn_status attend_starved(void)
{
    qn_sdpa_params params;
    memset(&params, 0, sizeof params);
    params.scale = 1;
    params.has_sinks = true;
    qn_array *out;
    qn_memory_clear_cache();
    qn_status status = apply_status(
        &out, QN_OP_SDPA, &params, sizeof params, QN_FLOAT32, SHAPE(1, 1, 4, 4),
        INPUTS(starved.q, starved.k, starved.v, starved.sink_array));
    if (!status)
        qn_array_unref(out);
    return status;
}

static void test_allocations_may_fail(void **state)
{
    (void)state;
    use_fast();
    qn_pool_set_threads(3); /* the way that needs most memory */
    starved = small_problem(4, 9000);
    starved.sinks = true;
    problem_fill(&starved, 1);
    each_alloc_may_fail(attend_starved);
    problem_free(&starved);
    qn_pool_set_threads(0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_problems_are_exact),
        cmocka_unit_test(test_agrees_with_the_reference),
        cmocka_unit_test(test_a_row_has_the_bits_it_has_alone),
        cmocka_unit_test(test_threads_change_no_bit),
        cmocka_unit_test(test_strides_change_no_bit),
        cmocka_unit_test(test_equal_scores_average),
        cmocka_unit_test(test_rows_that_see_nothing),
        cmocka_unit_test(test_sinks_take_their_share),
        cmocka_unit_test(test_nan_stays_in_its_row),
        cmocka_unit_test(test_nan_is_for_those_who_see_it),
        cmocka_unit_test(test_every_kernel_is_exact),
        cmocka_unit_test(test_allocations_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
