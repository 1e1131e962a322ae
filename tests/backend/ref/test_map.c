/* Element-by-element loops over every layout and type they are staged for. */
#include "support/qn_ref_test.h"

static const qn_dtype number_types[] = {
    QN_UINT8,   QN_UINT16,   QN_UINT32,   QN_UINT64,  QN_INT8,
    QN_INT16,   QN_INT32,    QN_INT64,    QN_FLOAT16, QN_FLOAT32,
    QN_FLOAT64, QN_BFLOAT16, QN_COMPLEX64};
enum { NUMBER_TYPES = sizeof number_types / sizeof *number_types };

static qn_array *binary(qn_op op, qn_array *a, qn_array *b)
{
    return apply(op, NULL, 0, a->dtype, a->shape, a->ndim, INPUTS(a, b));
}

static void test_every_type_adds(void **state)
{
    (void)state;
    for (int t = 0; t < NUMBER_TYPES; t++) {
        qn_array *a =
            array_of(number_types[t], VALUES(1, 2, 3, 4, 5, 6), SHAPE(2, 3));
        qn_array *b =
            array_of(number_types[t], VALUES(9, 8, 7, 6, 5, 4), SHAPE(2, 3));
        check_items(binary(QN_OP_ADD, a, b), 10, 10, 10, 10, 10, 10);
        qn_array_unref(a);
        qn_array_unref(b);
    }
}

/* Long enough for several blocks; every mix of layouts gives the same. */
static void test_layouts_do_not_matter(void **state)
{
    (void)state;
    enum { ROWS = 3, COLUMNS = 700 };
    int shape[] = {ROWS, COLUMNS};
    for (int t = 0; t < NUMBER_TYPES; t++) {
        qn_dtype dtype = number_types[t];
        qn_array *a = array_of(dtype, NULL, shape, 2);
        qn_array *b = array_of(dtype, NULL, shape, 2);
        for (size_t i = 0; i < a->size; i++) {
            element_put(place_of(a, i), dtype, (double)(i % 11));
            element_put(place_of(b, i), dtype, (double)(i % 5));
        }
        /* Copies in other layouts. */
        qn_array *a2 = array_of(dtype, NULL, shape, 2);
        memcpy(qn_array_data(a2), qn_array_data(a), qn_array_nbytes(a));
        a2 = strided(a2);
        for (int kind = 0; kind < 4; kind++) {
            qn_array *right =
                kind == 3 ? view_of(b, shape, 2, (const int64_t[]){0, 0}, 4)
                          : qn_array_ref(b);
            qn_array *left = qn_array_ref(kind % 2 ? a2 : a);
            qn_array *sum = binary(QN_OP_MULTIPLY, left, right);
            for (size_t i = 0; i < sum->size; i++)
                assert_true(item(sum, i) == item(left, i) * item(right, i));
            qn_array_unref(left);
            qn_array_unref(right);
            qn_array_unref(sum);
        }
        qn_array_unref(a);
        qn_array_unref(a2);
        qn_array_unref(b);
    }
}

static void test_nothing_and_one_thing(void **state)
{
    (void)state;
    qn_array *none = array_of(QN_FLOAT16, NULL, SHAPE(3, 0));
    qn_array *out = binary(QN_OP_ADD, none, none);
    assert_int_equal(out->size, 0);
    qn_array_unref(out);
    qn_array_unref(none);
    qn_array *one = array_of(QN_BFLOAT16, VALUES(1.5), SCALAR);
    check_items(binary(QN_OP_ADD, one, one), 3);
    qn_array_unref(one);
}

static void test_comparison_of_halves_gives_bool(void **state)
{
    (void)state;
    qn_array *a = array_of(QN_FLOAT16, VALUES(1, NAN, -0.0, 3), SHAPE(4));
    qn_array *b = array_of(QN_FLOAT16, VALUES(2, NAN, 0.0, 3), SHAPE(4));
    check_items(apply(QN_OP_EQUAL, NULL, 0, QN_BOOL, SHAPE(4), INPUTS(a, b)), 0,
                0, 1, 1);
    check_items(apply(QN_OP_LESS, NULL, 0, QN_BOOL, SHAPE(4), INPUTS(a, b)), 1,
                0, 0, 0);
    qn_array_unref(a);
    qn_array_unref(b);
}

static void test_any_nonzero_byte_is_true(void **state)
{
    (void)state;
    const uint8_t bytes[] = {0, 1, 2, 255};
    qn_array *a;
    check_status(qn_array_from_data(&a, bytes, SHAPE(4), QN_BOOL), QN_OK);
    check_items(apply(QN_OP_LOGICAL_NOT, NULL, 0, QN_BOOL, SHAPE(4), INPUTS(a)),
                1, 0, 0, 0);
    check_items(binary(QN_OP_EQUAL, a, a), 1, 1, 1, 1);
    qn_array *n = apply(QN_OP_ASTYPE, NULL, 0, QN_INT32, SHAPE(4), INPUTS(a));
    check_items(n, 0, 1, 1, 1);
    qn_array_unref(a);
}

static void test_complex_parts(void **state)
{
    (void)state;
    const float parts[] = {3, -4, 0, 2};
    qn_array *a;
    check_status(qn_array_from_data(&a, parts, SHAPE(2), QN_COMPLEX64), QN_OK);
    check_items(apply(QN_OP_ABS, NULL, 0, QN_FLOAT32, SHAPE(2), INPUTS(a)), 5,
                2);
    check_items(apply(QN_OP_IMAG, NULL, 0, QN_FLOAT32, SHAPE(2), INPUTS(a)), -4,
                2);
    qn_array_unref(a);
}

/* The result takes over an input that only the node holds, and no other. */
static void test_dying_input_is_overwritten(void **state)
{
    (void)state;
    qn_array *a = array_of(QN_FLOAT32, VALUES(1, 2, 3, 4), SHAPE(4)), *out;
    qn_array *b = array_of(QN_FLOAT32, VALUES(1, 1, 1, 1), SHAPE(4));
    const void *data = qn_array_data(a);
    qn_node_spec spec = {.op = QN_OP_SUBTRACT,
                         .stream = test_stream(),
                         .inputs = (qn_array *[]){b, a},
                         .ninputs = 2};
    check_status(qn_node_new(&out, &spec, QN_FLOAT32, SHAPE(4)), QN_OK);
    qn_array_unref(a); /* b stays */
    check_status(qn_eval(&out, 1), QN_OK);
    assert_ptr_equal(qn_array_data(out), data);
    check_items(out, 0, -1, -2, -3);
    check_items(b, 1, 1, 1, 1);
}

static void test_viewed_input_is_not_overwritten(void **state)
{
    (void)state;
    qn_array *a = array_of(QN_FLOAT32, VALUES(1, 2, 3, 4), SHAPE(2, 2)), *out;
    qn_array *t = view_of(a, SHAPE(2, 2), (const int64_t[]){1, 2}, 0);
    qn_node_spec spec = {.op = QN_OP_SUBTRACT,
                         .stream = test_stream(),
                         .inputs = (qn_array *[]){a, t},
                         .ninputs = 2};
    check_status(qn_node_new(&out, &spec, QN_FLOAT32, SHAPE(2, 2)), QN_OK);
    qn_array_unref(a);
    qn_array_unref(t);
    check_status(qn_eval(&out, 1), QN_OK);
    check_items(out, 0, -1, 1, 0);
}

static void test_unsupported_type_is_an_error(void **state)
{
    (void)state;
    qn_array *a = array_of(QN_FLOAT32, VALUES(1), SHAPE(1)), *out;
    check_error(apply_status(&out, QN_OP_BITWISE_INVERT, NULL, 0, QN_FLOAT32,
                             SHAPE(1), INPUTS(a)),
                QN_E_UNSUPPORTED, "bitwise_invert");
    qn_array_unref(a);
}

static void test_select_takes_from_both(void **state)
{
    (void)state;
    for (int t = 0; t < NUMBER_TYPES; t++) {
        qn_array *c = array_of(QN_BOOL, VALUES(1, 0, 1), SHAPE(3));
        qn_array *x = array_of(number_types[t], VALUES(1, 2, 3), SHAPE(3));
        qn_array *y = array_of(number_types[t], VALUES(7), SHAPE(1));
        qn_array *wide = view_of(y, SHAPE(3), (const int64_t[]){0}, 0);
        check_items(apply(QN_OP_SELECT, NULL, 0, number_types[t], SHAPE(3),
                          INPUTS(c, x, wide)),
                    1, 7, 3);
        qn_array_unref(c);
        qn_array_unref(x);
        qn_array_unref(y);
        qn_array_unref(wide);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_type_adds),
        cmocka_unit_test(test_layouts_do_not_matter),
        cmocka_unit_test(test_nothing_and_one_thing),
        cmocka_unit_test(test_comparison_of_halves_gives_bool),
        cmocka_unit_test(test_any_nonzero_byte_is_true),
        cmocka_unit_test(test_complex_parts),
        cmocka_unit_test(test_dying_input_is_overwritten),
        cmocka_unit_test(test_viewed_input_is_not_overwritten),
        cmocka_unit_test(test_unsupported_type_is_an_error),
        cmocka_unit_test(test_select_takes_from_both),
    };
    return run_ref_tests(tests);
}
