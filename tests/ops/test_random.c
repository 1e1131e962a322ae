/* Random numbers: known bits, the thread's sequence, ranges, refusals.  The
 * numbers for key 42 are those that MLX gives. */
#include "support/qn_build.h"

#include "ops/threefry.h"

#include <pthread.h>

static qn_array *key_of(uint64_t seed)
{
    qn_array *key = NULL;
    check_status(qn_op_random_key(&key, seed), QN_OK);
    return keep(key);
}

static void test_threefry_known_answers(void **state)
{
    (void)state;
    /* Published with the algorithm, 20 rounds. */
    static const struct {
        qn_threefry_pair key, counter, out;
    } cases[] = {
        {{0, 0}, {0, 0}, {0x6b200159, 0x99ba4efe}},
        {{0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x1cb996fc, 0xbb002be7}},
        {{0x13198a2e, 0x03707344},
         {0x243f6a88, 0x85a308d3},
         {0xc4923a9c, 0x483df7a0}},
    };
    for (int i = 0; i < 3; i++) {
        qn_threefry_pair y = qn_threefry(cases[i].key, cases[i].counter);
        assert_int_equal(y.a, cases[i].out.a);
        assert_int_equal(y.b, cases[i].out.b);
    }
}

static void test_keys_and_splits(void **state)
{
    (void)state;
    check_values(key_of(((uint64_t)1 << 40) + 5), 256, 5);
    BUILD(two, qn_op_random_split(&two, key_of(42), 2, S));
    check_type(two, QN_UINT32, 2, 2);
    check_values(two, 2465931498, 3679230171, 255383827, 267815257);
    BUILD(none, qn_op_random_split(&none, key_of(42), 0, S));
    check_type(none, QN_UINT32, 0, 2);
    REFUSE("[random_bits]", qn_op_random_split(&refused, key_of(1), -1, S));
}

static void test_sequence_hands_out_second_halves(void **state)
{
    (void)state;
    qn_random_seed(42);
    BUILD(first, qn_op_random_bits(&first, SHAPE(3), 4, NULL, S));
    BUILD(second, qn_op_random_bits(&second, SHAPE(3), 4, NULL, S));
    /* The same by hand: split, use row 1, go on with row 0. */
    BUILD(split, qn_op_random_split(&split, key_of(42), 2, S));
    BUILD(next,
          qn_op_slice(&next, split, SHAPE(0, 0), SHAPE(1, 2), SHAPE(1, 1), S));
    BUILD(next_key, qn_op_flatten(&next_key, next, 0, -1, S));
    BUILD(used,
          qn_op_slice(&used, split, SHAPE(1, 0), SHAPE(2, 2), SHAPE(1, 1), S));
    BUILD(used_key, qn_op_flatten(&used_key, used, 0, -1, S));
    BUILD(wanted, qn_op_random_bits(&wanted, SHAPE(3), 4, used_key, S));
    BUILD(same, qn_op_array_equal(&same, first, wanted, false, S));
    check_values(same, 1);
    BUILD(split2, qn_op_random_split(&split2, next_key, 2, S));
    BUILD(used2, qn_op_slice(&used2, split2, SHAPE(1, 0), SHAPE(2, 2),
                             SHAPE(1, 1), S));
    BUILD(used_key2, qn_op_flatten(&used_key2, used2, 0, -1, S));
    BUILD(wanted2, qn_op_random_bits(&wanted2, SHAPE(3), 4, used_key2, S));
    BUILD(same2, qn_op_array_equal(&same2, second, wanted2, false, S));
    check_values(same2, 1);
}

static void *draw(void *to)
{
    qn_array **out = to;
    qn_random_seed(7);
    if (qn_op_random_bits(out, SHAPE(2), 4, NULL, S))
        *out = NULL;
    return NULL;
}

static void test_sequence_is_the_threads_own(void **state)
{
    (void)state;
    qn_random_seed(7);
    qn_array *theirs = NULL;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, draw, &theirs), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_non_null(theirs);
    keep(theirs);
    BUILD(ours, qn_op_random_bits(&ours, SHAPE(2), 4, NULL, S));
    BUILD(same, qn_op_array_equal(&same, ours, theirs, false, S));
    check_values(same, 1);
}

static void test_distributions_of_a_key(void **state)
{
    (void)state;
    qn_array *key = key_of(42);
    qn_array *zero = scalar_array(QN_FLOAT32, 0),
             *one = scalar_array(QN_FLOAT32, 1);
    BUILD(u, qn_op_random_uniform(&u, zero, one, SHAPE(5), QN_FLOAT32, key, S));
    check_near(u, 1e-7, 0.7298189, 0.86919385, 0.19643804, 0.2081857,
               0.18662426);
    BUILD(n, qn_op_random_normal(&n, SHAPE(5), QN_FLOAT32, NULL, NULL, key, S));
    check_near(n, 2e-6, 0.6122654, 1.1225886, -0.85441303, -0.8127324,
               -0.8904047);
    BUILD(g, qn_op_random_gumbel(&g, SHAPE(4), QN_FLOAT32, key, S));
    check_near(g, 2e-6, 0.5890137, 1.86600649, -1.0375987, -1.0206153);
    BUILD(l, qn_op_random_laplace(&l, SHAPE(4), QN_FLOAT32, 1, 2, key, S));
    check_near(l, 4e-6, 0.67898417, -1.4984643, 5.2585678, 5.1635079);
    BUILD(t, qn_op_random_truncated_normal(&t, scalar_array(QN_FLOAT32, -1),
                                           one, SHAPE(4), QN_FLOAT32, key, S));
    check_near(t, 2e-6, 0.12722188, 0.6540888, -0.8443075, -0.8372543);
    BUILD(b, qn_op_random_bernoulli(&b, scalar_array(QN_FLOAT32, 0.5), SHAPE(4),
                                    key, S));
    check_type(b, QN_BOOL, 4);
    check_values(b, 0, 0, 1, 1);
    BUILD(r, qn_op_random_randint(&r, scalar_array(QN_INT32, 0),
                                  scalar_array(QN_INT32, 100), SHAPE(8),
                                  QN_INT32, key, S));
    check_values(r, 68, 59, 26, 24, 76, 28, 4, 0);
    BUILD(p, qn_op_random_permutation_arange(&p, 11, key, S));
    check_type(p, QN_UINT32, 11);
    check_values(p, 4, 1, 8, 10, 2, 9, 5, 7, 0, 6, 3);
    BUILD(z,
          qn_op_random_normal(&z, SHAPE(3), QN_COMPLEX64, NULL, NULL, key, S));
    check_type(z, QN_COMPLEX64, 3);
    check_near(z, 2e-6, 0.43293703, 0.8042154, -0.6296112);
}

static void test_ranges_hold_at_their_ends(void **state)
{
    (void)state;
    qn_array *key = key_of(1);
    static const qn_dtype types[] = {QN_FLOAT16, QN_BFLOAT16, QN_FLOAT32};
    for (int i = 0; i < 3; i++) {
        BUILD(u, qn_op_random_uniform(&u, scalar_array(types[i], 0),
                                      scalar_array(types[i], 1), SHAPE(4096),
                                      types[i], key, S));
        check_status(qn_eval(&u, 1), QN_OK);
        for (size_t j = 0; j < u->size; j++)
            assert_true(item(u, j) >= 0 && item(u, j) < 1);
    }
    BUILD(certain, qn_op_random_bernoulli(&certain, scalar_array(QN_FLOAT32, 1),
                                          SHAPE(4096), key, S));
    BUILD(all,
          qn_op_reduce(&all, QN_OP_ALL, certain, NULL, QN_ALL_AXES, false, S));
    check_values(all, 1);
    BUILD(top, qn_op_random_randint(&top, scalar_array(QN_INT64, 2147483646),
                                    scalar_array(QN_INT64, 2147483647),
                                    SHAPE(3), QN_INT32, key, S));
    check_values(top, 2147483646, 2147483646, 2147483646);
    BUILD(crossed, qn_op_random_randint(&crossed, scalar_array(QN_INT32, 10),
                                        scalar_array(QN_INT32, 0), SHAPE(2),
                                        QN_INT32, key, S));
    check_values(crossed, 10, 10);
}

static void test_categorical_shapes(void **state)
{
    (void)state;
    qn_array *key = key_of(3);
    qn_array *logits = keep(random_array(QN_FLOAT32, 1, 4, SHAPE(2, 3, 5)));
    BUILD(y, qn_op_random_categorical(&y, logits, -1, key, S));
    check_type(y, QN_UINT32, 2, 3);
    BUILD(m, qn_op_random_categorical(&m, logits, 1, key, S));
    check_type(m, QN_UINT32, 2, 5);
    BUILD(n, qn_op_random_categorical_num(&n, logits, -1, 7, key, S));
    check_type(n, QN_UINT32, 2, 3, 7);
    BUILD(s, qn_op_random_categorical_shape(&s, logits, -1, SHAPE(4, 2, 3), key,
                                            S));
    check_type(s, QN_UINT32, 4, 2, 3);
    check_status(qn_eval((qn_array *[]){y, m, n, s}, 4), QN_OK);
    REFUSE("[categorical] Shapes (3,2) and (2,3) cannot be broadcast",
           qn_op_random_categorical_shape(&refused, logits, -1, SHAPE(3, 2),
                                          key, S));
    REFUSE("[categorical] Axis 3 is out of bounds",
           qn_op_random_categorical(&refused, logits, 3, key, S));
    REFUSE("[categorical] There is nothing to choose from",
           qn_op_random_categorical(&refused, counted(QN_FLOAT32, SHAPE(2, 0)),
                                    -1, key, S));
}

static void test_categorical_never_picks_the_impossible(void **state)
{
    (void)state;
    qn_array *key = key_of(9);
    qn_array *line =
        keep(array_of(QN_FLOAT32, VALUES(-INFINITY, 0, -INFINITY, 1, -INFINITY),
                      SHAPE(1, 5)));
    /* One distribution, by lookup; several, by noise. */
    BUILD(one, qn_op_random_categorical_num(&one, line, -1, 500, key, S));
    BUILD(rows, qn_op_broadcast_to(&rows, line, SHAPE(500, 5), S));
    BUILD(many, qn_op_random_categorical(&many, rows, -1, key, S));
    qn_array *const both[2] = {one, many};
    check_status(qn_eval(both, 2), QN_OK);
    for (int i = 0; i < 2; i++) {
        int threes = 0;
        for (size_t j = 0; j < 500; j++) {
            double x = item(both[i], j);
            assert_true(x == 1 || x == 3);
            threes += x == 3;
        }
        /* e / (1 + e) of 500 is 366; six deviations are 59 */
        assert_in_range(threes, 307, 425);
    }
    qn_array *banned =
        keep(array_of(QN_FLOAT32, VALUES(-INFINITY, -INFINITY), SHAPE(1, 2)));
    BUILD(some, qn_op_random_categorical(&some, banned, -1, key, S));
    check_status(qn_eval(&some, 1), QN_OK);
    assert_true(item(some, 0) < 2);
}

static void test_refusals(void **state)
{
    (void)state;
    qn_array *key = key_of(1), *zero = scalar_array(QN_FLOAT32, 0);
    qn_array *three = LINE(QN_FLOAT32, 1, 2, 3);
    REFUSE("[random_bits] The width must be 1, 2 or 4",
           qn_op_random_bits(&refused, SHAPE(3), 3, key, S));
    REFUSE("[random_bits] Expected a key of type uint32 and shape (2), found "
           "int32 and (2)",
           qn_op_random_bits(&refused, SHAPE(3), 4, LINE(QN_INT32, 1, 2), S));
    REFUSE("[random_bits] Negative dimensions",
           qn_op_random_bits(&refused, SHAPE(-1), 4, key, S));
    REFUSE(
        "[uniform] Only real floating point types are supported, found int32",
        qn_op_random_uniform(&refused, zero, zero, SHAPE(2), QN_INT32, key, S));
    REFUSE("[uniform] float64",
           qn_op_random_uniform(&refused, zero, zero, SHAPE(2), QN_FLOAT64, key,
                                S));
    REFUSE("[uniform] Shapes (2) and (3) cannot be broadcast",
           qn_op_random_uniform(&refused, three, zero, SHAPE(2), QN_FLOAT32,
                                key, S));
    REFUSE("[normal] An operand of shape (3) cannot be broadcast to the output "
           "shape (1)",
           qn_op_random_normal(&refused, SHAPE(1), QN_FLOAT32, three, NULL, key,
                               S));
    REFUSE("[bernoulli]", qn_op_random_bernoulli(&refused, LINE(QN_INT8, 1),
                                                 SHAPE(1), key, S));
    REFUSE("[randint] Only integers",
           qn_op_random_randint(&refused, zero, zero, SHAPE(1), QN_FLOAT32, key,
                                S));
    REFUSE("[permutation]",
           qn_op_random_permutation_arange(&refused, -1, key, S));
    REFUSE("[permutation]",
           qn_op_random_permutation(&refused, zero, 0, key, S));
}

/* Means and covariances of many vectors; values of MLX 0.32.2 for one key. */
static void test_normal_vectors(void **state)
{
    (void)state;
    BUILD(key, qn_op_random_key(&key, 3));
    qn_array *mean = LINE(QN_FLOAT32, 1, 2);
    qn_array *cov =
        keep(array_of(QN_FLOAT32, VALUES(2, 0.5, 0.5, 1), SHAPE(2, 2)));
    BUILD(few, qn_op_random_multivariate_normal(&few, mean, cov, (int[]){3}, 1,
                                                QN_FLOAT32, key, S));
    check_type(few, QN_FLOAT32, 3, 2);
    check_near(few, 1e-6, -0.22249639, 1.5168957, 1.0178550, 2.8086459,
               1.7608838, 2.9863967);
    enum { MANY = 20000 };
    BUILD(many, qn_op_random_multivariate_normal(
                    &many, mean, cov, (int[]){MANY}, 1, QN_FLOAT32, key, S));
    check_status(qn_eval(&many, 1), QN_OK);
    double sum[2] = {0}, product[3] = {0};
    for (size_t i = 0; i < MANY; i++) {
        double x = item(many, 2 * i) - 1, y = item(many, 2 * i + 1) - 2;
        sum[0] += x / MANY;
        sum[1] += y / MANY;
        product[0] += x * x / MANY;
        product[1] += x * y / MANY;
        product[2] += y * y / MANY;
    }
    assert_true(fabs(sum[0]) < 0.05 && fabs(sum[1]) < 0.05);
    assert_true(fabs(product[0] - 2) < 0.1);
    assert_true(fabs(product[1] - 0.5) < 0.05);
    assert_true(fabs(product[2] - 1) < 0.05);
    qn_array *means = counted(QN_INT32, SHAPE(3, 2));
    BUILD(wide, qn_op_random_multivariate_normal(
                    &wide, means, cov, (int[]){4, 1}, 2, QN_FLOAT32, key, S));
    check_type(wide, QN_FLOAT32, 4, 3, 2);
#define TRY(m, c, ndim, type)                                                  \
    REFUSE("[multivariate_normal]",                                            \
           qn_op_random_multivariate_normal(&refused, m, c, (int[]){4}, ndim,  \
                                            type, key, S))
    TRY(means, cov, 1, QN_FLOAT32);
    TRY(mean, cov, 1, QN_FLOAT16);
    TRY(mean, mean, 0, QN_FLOAT32);
    TRY(mean, means, 0, QN_FLOAT32);
    TRY(scalar_array(QN_FLOAT32, 1), cov, 0, QN_FLOAT32);
#undef TRY
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BUILD_TEST(test_threefry_known_answers),
        BUILD_TEST(test_keys_and_splits),
        BUILD_TEST(test_sequence_hands_out_second_halves),
        BUILD_TEST(test_sequence_is_the_threads_own),
        BUILD_TEST(test_distributions_of_a_key),
        BUILD_TEST(test_ranges_hold_at_their_ends),
        BUILD_TEST(test_categorical_shapes),
        BUILD_TEST(test_categorical_never_picks_the_impossible),
        BUILD_TEST(test_refusals),
        BUILD_TEST(test_normal_vectors),
    };
    return run_build_tests(tests);
}
