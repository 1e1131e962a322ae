/* Products with packed keys and values: each instruction set against double
 * arithmetic on what the cache decodes to, rows that know nothing of each
 * other, and the same bits on all instruction sets where that is promised. */
#include "support/qn_cpu_test.h"

#include "backend/common/kv.h"
#include "backend/common/kv_codes.h"
#include "backend/cpu/kernels/kvcodes/kvcodes.h"
#include "base/turboquant.h"

enum { BLOCK = QN_KVCODES_BLOCK, ROWS = 9, MOST = 512 };

/* ---- a cache of one head ---- */

typedef struct cache {
    qn_kv_form form;
    qn_array *arrays[QN_KV_PARTS];
    qn_kvcodes keys, values; /* of block 1 */
} cache;

static qn_kvcodes codes_of(const cache *c, bool key)
{
    qn_kv_side side = qn_kv_side_of(&c->form, c->arrays, key, 0, 0);
    qn_kvcodes all = {.bits = side.bits,
                      .affine = c->form.bits != 0,
                      .d = side.d,
                      .group = (size_t)c->form.group,
                      .type = c->form.dtype,
                      .words = side.words,
                      .factors = {side.factor[0], side.factor[1]}};
    return qn_kvcodes_after(all, 1);
}

/* Two blocks of random keys and values. */
static cache new_cache(qn_kv_form f, uint64_t seed)
{
    cache c = {.form = f};
    int d = f.head_dim, blocks = 2;
    int key_bits = f.bits ? f.bits : f.key_bits;
    int value_bits = f.bits ? f.bits : f.value_bits;
    for (int i = 0; i < qn_kv_parts(&f); i++)
        c.arrays[i] =
            i % 3
                ? array_of(f.dtype, NULL, SHAPE(1, blocks, d / f.group, BLOCK))
            : i ? array_of(QN_UINT32, NULL, SHAPE(1, blocks, 4 * value_bits, d))
                : array_of(QN_UINT32, NULL,
                           SHAPE(1, blocks, d / 32 * key_bits, BLOCK));
    qn_array *x =
        random_array(QN_FLOAT32, 3, seed, (int[]){2, blocks * BLOCK, d}, 3);
    const float *at = qn_array_data(x);
    for (int t = 0; t < blocks * BLOCK; t++, at += d)
        qn_kv_put(&f, c.arrays, 0, t, at, at + blocks * BLOCK * d);
    qn_array_unref(x);
    c.keys = codes_of(&c, true);
    c.values = codes_of(&c, false);
    return c;
}

static void free_cache(cache *c)
{
    for (int i = 0; i < qn_kv_parts(&c->form); i++)
        qn_array_unref(c->arrays[i]);
}

/* A token of block 1 as floats. */
static void decode(const cache *c, bool key, int token, float *x)
{
    qn_kv_side side = qn_kv_side_of(&c->form, c->arrays, key, 0, BLOCK);
    qn_kv_side_decode(&side, token, x);
}

/* ---- what is tried ---- */

static qn_kv_form affine(int d, qn_dtype type, int bits, int group)
{
    return (qn_kv_form){.kv_heads = 1,
                        .head_dim = d,
                        .dtype = type,
                        .bits = bits,
                        .group = group};
}

static qn_kv_form turbo(int d, int key_bits, int value_bits)
{
    return (qn_kv_form){.kv_heads = 1,
                        .head_dim = d,
                        .dtype = QN_FLOAT16,
                        .group = QN_TQ_GROUP,
                        .key_bits = key_bits,
                        .value_bits = value_bits};
}

/* Form number n; false behind the last. */
static bool form_number(qn_kv_form *f, int n)
{
    static const int key_bits[] = {2, 4, 5, 8}, value_bits[] = {2, 3, 4, 5, 8};
    static const int dims[] = {64, 128, 256, 512};
    const qn_kv_form forms[] = {
        affine(32, QN_FLOAT32, 8, 32),  affine(96, QN_FLOAT16, 4, 32),
        affine(64, QN_BFLOAT16, 8, 64), affine(64, QN_FLOAT16, 4, 64),
        affine(192, QN_FLOAT32, 4, 64), affine(160, QN_BFLOAT16, 8, 32),
        affine(512, QN_FLOAT16, 8, 64),
    };
    enum { AFFINE = sizeof forms / sizeof *forms, TURBO = 4 * 5 };
    if (n < AFFINE)
        *f = forms[n];
    else
        *f = turbo(dims[n % 4], key_bits[(n - AFFINE) / 5 % 4],
                   value_bits[(n - AFFINE) % 5]);
    return n < AFFINE + TURBO;
}

/* The results of one kernel. */
typedef struct results {
    float scores[ROWS * BLOCK], sums[ROWS * MOST], values[BLOCK * MOST];
} results;

static float queries[ROWS * MOST], weights[ROWS * BLOCK];
static int32_t rounded[ROWS * MOST];
static float room[BLOCK * MOST];

static void run(results *out, const qn_kvcodes_kernel *kernel, const cache *c,
                size_t rows, size_t count)
{
    size_t d = c->keys.d, stride = qn_kvcodes_query(&c->keys);
    for (size_t r = 0; r < rows; r++)
        kernel->query(rounded + r * stride, &c->keys, queries + r * d);
    kernel->scores(out->scores, rows, rounded, &c->keys, count, room);
    kernel->sums(out->sums, d, rows, weights, &c->values, count, room);
    kernel->expand(out->values, d, &c->values, count, room);
}

static void fill(float *x, size_t n, uint64_t seed)
{
    int size = (int)n;
    qn_array *a = random_array(QN_FLOAT32, 1, seed, &size, 1);
    memcpy(x, qn_array_data(a), n * sizeof *x);
    qn_array_unref(a);
}

static const qn_isa levels[] = {QN_ISA_NONE, QN_ISA_AVX2, QN_ISA_AVX512_VNNI,
                                QN_ISA_NEON};
enum { LEVELS = sizeof levels / sizeof *levels };

/* ---- tests ---- */

/* What kvcodes.h says that rounding a query may cost, and a little for the
 * additions in float. */
static double score_limit(const cache *c, const float *q, const float *k)
{
    size_t group = c->keys.group;
    double all = 0;
    for (size_t i = 0; i < c->keys.d; i += group) {
        double most = 0, sum = 0;
        for (size_t j = i; j < i + group; j++) {
            most = fmax(most, fabs((double)q[j]));
            sum += fabs((double)k[j]);
        }
        all += most * sum;
    }
    return (0x1p-16 + 0x1p-20) * all;
}

static void check(const results *found, const cache *c, size_t count)
{
    size_t d = c->keys.d;
    float x[MOST];
    static double sums[ROWS * MOST], sizes[ROWS * MOST];
    memset(sums, 0, sizeof sums);
    memset(sizes, 0, sizeof sizes);
    for (size_t t = 0; t < count; t++) {
        decode(c, true, (int)t, x);
        for (size_t r = 0; r < ROWS; r++) {
            double score = 0;
            for (size_t i = 0; i < d; i++)
                score += (double)queries[r * d + i] * (double)x[i];
            double off = fabs((double)found->scores[r * BLOCK + t] - score);
            assert_true(off <= score_limit(c, queries + r * d, x));
        }
        decode(c, false, (int)t, x);
        for (size_t i = 0; i < d; i++) {
            float value = found->values[t * d + i];
            /* Plain decoding rounds an affine product before the sum. */
            assert_true(fabsf(value - x[i]) <=
                        (c->values.affine ? 0x1p-20F : 0));
            for (size_t r = 0; r < ROWS; r++) {
                double term = (double)weights[r * BLOCK + t] * (double)value;
                sums[r * d + i] += term;
                sizes[r * d + i] += fabs(term);
            }
        }
    }
    for (size_t i = 0; i < ROWS * d; i++)
        assert_true(fabs((double)found->sums[i] - sums[i]) <=
                    0x1p-18 * sizes[i]);
}

static void test_numbers(void **state)
{
    (void)state;
    static results found;
    qn_kv_form f;
    for (int n = 0; form_number(&f, n); n++) {
        cache c = new_cache(f, (uint64_t)n);
        fill(queries, ROWS * c.keys.d, 77);
        fill(weights, ROWS * BLOCK, 78);
        for (int l = 0; l < LEVELS; l++) {
            const qn_kvcodes_kernel *kernel = qn_kvcodes_at(levels[l]);
            if (!kernel)
                continue;
            run(&found, kernel, &c, ROWS, BLOCK);
            check(&found, &c, BLOCK);
        }
        free_cache(&c);
    }
}

/* For any number of rows and tokens a row has the bits that it has alone, and
 * sums those of a chain of multiply-adds over the expanded values: prompts,
 * which take that way, equal steps of decoding. */
static void test_rows_are_independent(void **state)
{
    (void)state;
    static results all, found;
    qn_kv_form f;
    for (int n = 0; form_number(&f, n); n++) {
        cache c = new_cache(f, (uint64_t)n);
        size_t d = c.keys.d;
        fill(queries, ROWS * d, 79);
        fill(weights, ROWS * BLOCK, 80);
        const qn_kvcodes_kernel *kernel = qn_kvcodes_pick();
        size_t count = 1 + (size_t)n * 37 % BLOCK;
        run(&all, kernel, &c, ROWS, count);
        for (size_t rows = 1; rows < ROWS; rows++) {
            run(&found, kernel, &c, rows, count);
            for (size_t r = 0; r < rows; r++)
                assert_memory_equal(found.scores + r * BLOCK,
                                    all.scores + r * BLOCK,
                                    count * sizeof(float));
            assert_memory_equal(found.sums, all.sums, rows * d * sizeof(float));
        }
        for (size_t i = 0; i < ROWS * d && qn_cpu_isa() != QN_ISA_NONE; i++) {
            float sum = 0;
            for (size_t t = 0; t < count; t++)
                sum = fmaf(weights[i / d * BLOCK + t],
                           all.values[t * d + i % d], sum);
            assert_true(sum == all.sums[i]);
        }
        free_cache(&c);
    }
}

/* Scores and values are the same on every processor. */
static void test_levels_agree(void **state)
{
    (void)state;
    static results plain, found;
    qn_kv_form f;
    for (int n = 0; form_number(&f, n); n++) {
        cache c = new_cache(f, (uint64_t)n);
        fill(queries, ROWS * c.keys.d, 81);
        run(&plain, &qn_kvcodes_none, &c, ROWS, BLOCK);
        for (int l = 1; l < LEVELS; l++) {
            const qn_kvcodes_kernel *kernel = qn_kvcodes_at(levels[l]);
            if (!kernel)
                continue;
            run(&found, kernel, &c, ROWS, BLOCK);
            assert_memory_equal(found.scores, plain.scores,
                                sizeof plain.scores);
            assert_memory_equal(found.values, plain.values,
                                BLOCK * c.keys.d * sizeof(float));
        }
        free_cache(&c);
    }
}

/* Queries that are zero, tiny, infinite or no number. */
static void test_odd_queries(void **state)
{
    (void)state;
    static results found;
    for (int l = 0; l < LEVELS; l++) {
        const qn_kvcodes_kernel *kernel = qn_kvcodes_at(levels[l]);
        if (!kernel)
            continue;
        for (int n = 0; n < 2; n++) {
            cache c = new_cache(
                n ? turbo(64, 8, 3) : affine(64, QN_FLOAT16, 8, 32), 5);
            memset(queries, 0, sizeof queries);
            queries[64 + 40] = 0x1p-120F;
            queries[128 + 3] = INFINITY;
            queries[192 + 63] = NAN;
            run(&found, kernel, &c, 4, BLOCK);
            for (size_t t = 0; t < BLOCK; t++) {
                assert_true(found.scores[t] == 0);
                assert_true(found.scores[BLOCK + t] == 0);
                assert_true(isnan(found.scores[2 * BLOCK + t]));
                assert_true(isnan(found.scores[3 * BLOCK + t]));
            }
            free_cache(&c);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_rows_are_independent),
        cmocka_unit_test(test_levels_agree),
        cmocka_unit_test(test_odd_queries),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
