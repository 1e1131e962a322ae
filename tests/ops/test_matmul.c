/* Products: shapes, types, which nodes are made, packed matrices. */
#include "support/qn_build.h"

static void test_matmul_shapes(void **state)
{
    (void)state;
    static const struct {
        int a[4], na, b[4], nb, out[4], nout;
    } cases[] = {
        {{2, 3}, 2, {3, 4}, 2, {2, 4}, 2},
        {{3}, 1, {3}, 1, {0}, 0},
        {{3}, 1, {3, 4}, 2, {4}, 1},
        {{2, 3}, 2, {3}, 1, {2}, 1},
        {{5, 2, 3}, 3, {3, 4}, 2, {5, 2, 4}, 3},
        {{2, 3}, 2, {5, 3, 4}, 3, {5, 2, 4}, 3},
        {{5, 1, 2, 3}, 4, {6, 3, 4}, 3, {5, 6, 2, 4}, 4},
        {{2, 0}, 2, {0, 3}, 2, {2, 3}, 2},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        qn_array *a = counted(QN_FLOAT32, cases[i].a, cases[i].na);
        qn_array *b = counted(QN_FLOAT32, cases[i].b, cases[i].nb);
        BUILD(y, qn_op_matmul(&y, a, b, S));
        check_type_at(y, QN_FLOAT32, cases[i].out, cases[i].nout, __FILE__,
                      __LINE__);
        check_status(qn_eval(&y, 1), QN_OK);
        /* One element by the definition: the last row with the last column. */
        int k = cases[i].a[cases[i].na - 1];
        double sum = 0;
        size_t step = cases[i].nb > 1 ? (size_t)cases[i].b[cases[i].nb - 1] : 1;
        for (int j = 0; j < k; j++)
            sum += item(a, a->size - (size_t)k + (size_t)j) *
                   item(b, b->size - 1 - step * (size_t)(k - 1 - j));
        assert_true(fabs(item(y, y->size - 1) - sum) <= 1e-4 * fabs(sum));
    }
}

static void test_a_single_matrix_on_the_right_needs_no_view(void **state)
{
    (void)state;
    qn_array *x = counted(QN_FLOAT32, SHAPE(1, 5, 3));
    qn_array *w = counted(QN_FLOAT32, SHAPE(3, 2));
    BUILD(y, qn_op_matmul(&y, x, w, S));
    assert_ptr_equal(y->node->inputs[0], x);
    assert_ptr_equal(y->node->inputs[1], w);
}

static void test_matmul_refuses(void **state)
{
    (void)state;
    qn_array *a = counted(QN_FLOAT32, SHAPE(2, 3)),
             *b = counted(QN_FLOAT32, SHAPE(4, 5));
    REFUSE("[matmul] Last dimension of first input with shape (2,3) must match "
           "second to last dimension of second input with shape (4,5).",
           qn_op_matmul(&refused, a, b, S));
    REFUSE(
        "[matmul] Only inexact types are supported but uint8 and uint16 were "
        "provided which results in uint16",
        qn_op_matmul(&refused, counted(QN_UINT8, SHAPE(3)),
                     counted(QN_UINT16, SHAPE(3)), S));
    REFUSE("[matmul] Got 0 dimension input",
           qn_op_matmul(&refused, scalar_array(QN_FLOAT32, 1), a, S));
    REFUSE("[matmul] Shapes (2) and (3) cannot be broadcast",
           qn_op_matmul(&refused, counted(QN_FLOAT32, SHAPE(2, 3, 4)),
                        counted(QN_FLOAT32, SHAPE(3, 4, 5)), S));
}

static void test_products_promote(void **state)
{
    (void)state;
    qn_array *h = counted(QN_FLOAT16, SHAPE(1, 2)),
             *i = counted(QN_INT32, SHAPE(2, 1));
    BUILD(y, qn_op_matmul(&y, h, i, S));
    check_type(y, QN_FLOAT16, 1, 1);
    check_values(y, 1);
    BUILD(z, qn_op_addmm(&z, scalar_array(QN_FLOAT32, 10), h, i, 0.5F, 2, S));
    check_type(z, QN_FLOAT32, 1, 1);
    check_values(z, 20.5);
    /* A half product is scaled before it is rounded. */
    qn_array *wide = keep(array_of(QN_FLOAT16, VALUES(256, 1), SHAPE(1, 2))),
             *tall = keep(array_of(QN_FLOAT16, VALUES(256, 2), SHAPE(2, 1)));
    BUILD(scaled, qn_op_addmm(&scaled, scalar_array(QN_FLOAT16, 1), wide, tall,
                              0.5F, 1, S));
    check_type(scaled, QN_FLOAT16, 1, 1);
    check_values(scaled, 32768);
    qn_array *z2 = counted(QN_COMPLEX64, SHAPE(2, 1));
    BUILD(complex_sum, qn_op_addmm(&complex_sum, scalar_array(QN_FLOAT16, 1), h,
                                   z2, 1, 1, S));
    check_type(complex_sum, QN_COMPLEX64, 1, 1);
    REFUSE("[addmm]", qn_op_addmm(&refused, i, i, i, 1, 1, S));
    REFUSE("[broadcast_to]",
           qn_op_addmm(&refused, counted(QN_FLOAT16, SHAPE(3)), h, i, 1, 1, S));
}

static void test_contractions(void **state)
{
    (void)state;
    qn_array *a = counted(QN_FLOAT32, SHAPE(2, 3));
    BUILD(inner, qn_op_inner(&inner, a, a, S));
    check_values(inner, 5, 14, 14, 50);
    BUILD(scaled, qn_op_inner(&scaled, scalar_array(QN_INT8, 2), a, S));
    check_type(scaled, QN_FLOAT32, 2, 3);
    BUILD(outer,
          qn_op_outer(&outer, LINE(QN_INT8, 1, 2), LINE(QN_INT16, 3, 4), S));
    check_type(outer, QN_INT16, 2, 2);
    check_values(outer, 3, 4, 6, 8);
    BUILD(all, qn_op_tensordot_axis(&all, a, a, 0, S));
    check_type(all, QN_FLOAT32, 2, 3, 2, 3);
    BUILD(full, qn_op_tensordot(&full, a, a, SHAPE(0, 1), SHAPE(0, 1), S));
    check_no_shape(full, QN_FLOAT32);
    check_values(full, 55);
    qn_array *empty = counted(QN_FLOAT32, SHAPE(2, 0));
    BUILD(zero,
          qn_op_tensordot(&zero, empty, empty, SHAPE(0, 1), SHAPE(0, 1), S));
    check_values(zero, 0);
    BUILD(kron, qn_op_kron(&kron, LINE(QN_INT8, 1, 2), LINE(QN_INT8, 3, 4), S));
    check_values(kron, 3, 4, 6, 8);
    BUILD(dots, qn_op_vecdot(&dots, a, a, -1, S));
    check_values(dots, 5, 50);
    REFUSE("[inner]", qn_op_inner(&refused, a, LINE(QN_FLOAT32, 1, 2), S));
    REFUSE("[tensordot]",
           qn_op_tensordot(&refused, a, a, SHAPE(0), SHAPE(1), S));
    REFUSE("[tensordot]",
           qn_op_tensordot(&refused, a, a, SHAPE(0), NULL, 0, S));
    REFUSE("[tensordot]", qn_op_tensordot_axis(&refused, a, a, 3, S));
    REFUSE("[vecdot]",
           qn_op_vecdot(&refused, a, LINE(QN_FLOAT32, 1, 2), -1, S));
    REFUSE("[kron]", qn_op_kron(&refused, a, empty, S));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BUILD_TEST(test_matmul_shapes),
        BUILD_TEST(test_a_single_matrix_on_the_right_needs_no_view),
        BUILD_TEST(test_matmul_refuses),
        BUILD_TEST(test_products_promote),
        BUILD_TEST(test_contractions),
    };
    return run_build_tests(tests);
}
