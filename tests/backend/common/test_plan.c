/* Plans: what is merged, and that walks visit what plain loops would. */
#include "support/qn_nodes.h"

#include "backend/common/plan.h"

static void test_contiguous_operands_are_one_run(void **state)
{
    (void)state;
    int shape[] = {2, 3, 4};
    int64_t rows[] = {12, 4, 1};
    qn_plan plan;
    qn_plan_make(&plan, shape, 3, (const int64_t *[]){rows, rows}, 2);
    assert_int_equal(plan.kind, QN_PLAN_FLAT);
    assert_int_equal(plan.run, 24);
    assert_int_equal(plan.nruns, 1);
}

static void test_scalar_operand_keeps_the_fast_case(void **state)
{
    (void)state;
    int shape[] = {2, 3, 4};
    int64_t rows[] = {12, 4, 1}, stand[] = {0, 0, 0};
    qn_plan plan;
    qn_plan_make(&plan, shape, 3, (const int64_t *[]){rows, rows, stand}, 3);
    assert_int_equal(plan.kind, QN_PLAN_FLAT);
    assert_int_equal(plan.step[1], 1);
    assert_int_equal(plan.step[2], 0);
}

static void test_row_vector_makes_runs(void **state)
{
    (void)state;
    int shape[] = {2, 3, 4};
    int64_t rows[] = {12, 4, 1}, row[] = {0, 0, 1};
    qn_plan plan;
    qn_plan_make(&plan, shape, 3, (const int64_t *[]){rows, rows, row}, 3);
    assert_int_equal(plan.kind, QN_PLAN_RUNS);
    assert_int_equal(plan.run, 4);
    assert_int_equal(plan.nruns, 6);
    assert_int_equal(plan.ndim, 2); /* the outer two are one */
}

static void test_nothing_has_no_runs(void **state)
{
    (void)state;
    int shape[] = {2, 0, 4};
    int64_t rows[] = {0, 4, 1};
    qn_plan plan;
    qn_walk walk;
    qn_plan_make(&plan, shape, 3, (const int64_t *[]){rows}, 1);
    assert_int_equal(plan.kind, QN_PLAN_EMPTY);
    qn_walk_start(&walk, &plan, 0, plan.nruns);
    assert_int_equal(walk.left, 0);
    qn_plan_points(&plan);
    assert_int_equal(plan.nruns, 0);
}

static void test_no_dimensions_are_one_element(void **state)
{
    (void)state;
    qn_plan plan;
    qn_plan_make(&plan, NULL, 0, (const int64_t *[]){NULL, NULL}, 2);
    assert_int_equal(plan.kind, QN_PLAN_FLAT);
    assert_int_equal(plan.size, 1);
}

static void test_permuted_output_is_walked_in_memory_order(void **state)
{
    (void)state;
    qn_array *a = array_of(QN_FLOAT32, NULL, SHAPE(3, 4));
    qn_array *t =
        view_of(a, SHAPE(4, 3), (const int64_t[]){1, 4}, 0); /* transposed */
    qn_plan plan;
    qn_plan_elementwise(&plan, (const qn_array *[]){t, t}, 2);
    assert_int_equal(plan.kind, QN_PLAN_FLAT);
    assert_int_equal(plan.run, 12);
    qn_array_unref(a);
    qn_array_unref(t);
}

/* Every offset of a plain nest of loops, against walk and division. */
static void check_against_loops(const int *shape, int ndim,
                                const int64_t *const *strides)
{
    qn_plan plan;
    qn_walk walk;
    qn_plan_make(&plan, shape, ndim, strides, 2);
    size_t size = 1;
    for (int i = 0; i < ndim; i++)
        size *= (size_t)shape[i];
    assert_int_equal(plan.size, size);
    for (int points = 0; points < 2; points++) {
        if (points)
            qn_plan_points(&plan);
        size_t half = plan.nruns / 2, seen = 0;
        for (int part = 0; part < 2; part++) {
            size_t first = part ? half : 0;
            qn_walk_start(&walk, &plan, first, part ? plan.nruns - half : half);
            for (size_t run = first; walk.left; qn_walk_next(&walk), run++) {
                int64_t at[QN_PLAN_OPERANDS];
                qn_plan_offsets(&plan, run, at);
                for (size_t i = 0; i < plan.run; i++, seen++) {
                    int64_t expected[2] = {0, 0};
                    size_t rest = seen;
                    for (int axis = ndim - 1; axis >= 0; axis--) {
                        int64_t x = (int64_t)(rest % (size_t)shape[axis]);
                        rest /= (size_t)shape[axis];
                        expected[0] += x * strides[0][axis];
                        expected[1] += x * strides[1][axis];
                    }
                    for (int k = 0; k < 2; k++) {
                        int64_t found = walk.offsets[k];
                        if (!points)
                            found += (int64_t)i * plan.step[k];
                        assert_int_equal(walk.offsets[k], at[k]);
                        assert_int_equal(found, expected[k]);
                    }
                }
            }
        }
        assert_int_equal(seen, size);
    }
}

static void test_walks_visit_what_loops_would(void **state)
{
    (void)state;
    uint64_t seed = 1;
    for (int round = 0; round < 300; round++) {
        int shape[5], ndim = 1 + round % 5;
        int64_t a[5], b[5], rows[5];
        for (int i = 0; i < ndim; i++)
            shape[i] = 1 + (int)(2 + 2 * test_random(&seed));
        qn_row_strides(rows, shape, ndim);
        for (int i = 0; i < ndim; i++) {
            /* Row-major, standing still, reversed or anything. */
            int kind = (int)(2 + 2 * test_random(&seed));
            a[i] = rows[i];
            b[i] = kind == 0   ? rows[i]
                   : kind == 1 ? 0
                   : kind == 2 ? -rows[i]
                               : 3 * rows[i] + 1;
        }
        check_against_loops(shape, ndim, (const int64_t *[]){a, b});
    }
}

static void test_lines_leave_out_their_axis(void **state)
{
    (void)state;
    int shape[] = {2, 3, 4};
    int64_t rows[] = {12, 4, 1};
    qn_lines lines;
    qn_lines_make(&lines, shape, 3, 1, (const int64_t *[]){rows}, 1);
    assert_int_equal(lines.step[0], 4);
    assert_int_equal(lines.outer.nruns, 8);
    int64_t at[QN_PLAN_OPERANDS];
    qn_plan_offsets(&lines.outer, 5, at);
    assert_int_equal(at[0], 13);
}

static void check_reduce_kind(const int *axes, int naxes, qn_reduce_kind kind)
{
    qn_array *in = array_of(QN_FLOAT32, NULL, SHAPE(2, 3, 4));
    qn_array *out = array_of(QN_FLOAT32, NULL, SHAPE(1));
    qn_reduce_plan plan;
    qn_reduce_plan_make(&plan, out, in, axes, naxes);
    assert_int_equal(plan.kind, kind);
    assert_int_equal(plan.kept.size * plan.reduced.size, 24);
    qn_array_unref(in);
    qn_array_unref(out);
}

static void test_reductions_find_their_kind(void **state)
{
    (void)state;
    check_reduce_kind((int[]){2}, 1, QN_REDUCE_ROWS);
    check_reduce_kind((int[]){1, 2}, 2, QN_REDUCE_ROWS);
    check_reduce_kind((int[]){0, 1, 2}, 3, QN_REDUCE_ROWS);
    check_reduce_kind((int[]){0}, 1, QN_REDUCE_COLUMNS);
    check_reduce_kind((int[]){1}, 1, QN_REDUCE_COLUMNS);
    check_reduce_kind(NULL, 0, QN_REDUCE_COLUMNS);
}

static void test_batches_over_one_matrix_become_rows(void **state)
{
    (void)state;
    qn_array *a = array_of(QN_FLOAT32, NULL, SHAPE(2, 5, 3, 4));
    qn_array *b = array_of(QN_FLOAT32, NULL, SHAPE(4, 6));
    qn_array *each = array_of(QN_FLOAT32, NULL, SHAPE(2, 5, 4, 6));
    qn_array *out = array_of(QN_FLOAT32, NULL, SHAPE(2, 5, 3, 6));
    qn_matmul_plan plan;
    qn_matmul_plan_make(&plan, (const qn_array *[]){out, a, b}, 3);
    assert_int_equal(plan.m, 30);
    assert_int_equal(plan.a_row, 4);
    assert_int_equal(plan.outer.nruns, 1);
    qn_matmul_plan_make(&plan, (const qn_array *[]){out, a, each}, 3);
    assert_int_equal(plan.m, 3);
    assert_int_equal(plan.outer.nruns, 10);
    int64_t at[QN_PLAN_OPERANDS];
    qn_plan_offsets(&plan.outer, 9, at);
    assert_int_equal(at[0], 9 * 18);
    assert_int_equal(at[1], 9 * 12);
    assert_int_equal(at[2], 9 * 24);
    qn_array_unref(a);
    qn_array_unref(b);
    qn_array_unref(each);
    qn_array_unref(out);
}

static void test_single_rows_of_batches_stay_apart(void **state)
{
    (void)state;
    qn_array *a = array_of(QN_FLOAT32, NULL, SHAPE(3, 1, 4));
    qn_array *b = array_of(QN_FLOAT32, NULL, SHAPE(3, 4, 6));
    qn_array *out = array_of(QN_FLOAT32, NULL, SHAPE(3, 1, 6));
    qn_matmul_plan plan;
    qn_matmul_plan_make(&plan, (const qn_array *[]){out, a, b}, 3);
    assert_int_equal(plan.m, 1);
    assert_int_equal(plan.outer.nruns, 3);
    qn_array_unref(a);
    qn_array_unref(b);
    qn_array_unref(out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_contiguous_operands_are_one_run),
        cmocka_unit_test(test_scalar_operand_keeps_the_fast_case),
        cmocka_unit_test(test_row_vector_makes_runs),
        cmocka_unit_test(test_nothing_has_no_runs),
        cmocka_unit_test(test_no_dimensions_are_one_element),
        cmocka_unit_test(test_permuted_output_is_walked_in_memory_order),
        cmocka_unit_test(test_walks_visit_what_loops_would),
        cmocka_unit_test(test_lines_leave_out_their_axis),
        cmocka_unit_test(test_reductions_find_their_kind),
        cmocka_unit_test(test_batches_over_one_matrix_become_rows),
        cmocka_unit_test(test_single_rows_of_batches_stay_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
