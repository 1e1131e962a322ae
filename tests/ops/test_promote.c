/* Mixed types: the table against its rules, and what each class accepts. */
#include "support/qn_build.h"

#include "ops/promote.h"

static bool is_signed(qn_dtype d)
{
    return qn_dtype_kind(d) == QN_KIND_INT;
}

static qn_dtype signed_of(size_t bytes)
{
    return bytes == 1   ? QN_INT8
           : bytes == 2 ? QN_INT16
           : bytes == 4 ? QN_INT32
                        : QN_INT64;
}

/* The rules in words, from the most general type down. */
static qn_dtype by_rule(qn_dtype a, qn_dtype b)
{
    if (a == b)
        return a;
    if (a == QN_COMPLEX64 || b == QN_COMPLEX64)
        return QN_COMPLEX64;
    if (a == QN_FLOAT64 || b == QN_FLOAT64)
        return QN_FLOAT64;
    bool fa = qn_dtype_is_float(a), fb = qn_dtype_is_float(b);
    if (fa && fb)
        return QN_FLOAT32;
    if (fa || fb)
        return fa ? a : b;
    if (a == QN_BOOL || b == QN_BOOL)
        return a == QN_BOOL ? b : a;
    size_t wa = qn_dtype_size(a), wb = qn_dtype_size(b);
    if (is_signed(a) == is_signed(b))
        return wa > wb ? a : b;
    size_t unsigned_width = is_signed(a) ? wb : wa;
    size_t signed_width = is_signed(a) ? wa : wb;
    if (unsigned_width == 8)
        return QN_FLOAT32;
    return signed_of(signed_width > unsigned_width ? signed_width
                                                   : 2 * unsigned_width);
}

static void test_table_follows_the_rules(void **state)
{
    (void)state;
    for (int a = 0; a < QN_DTYPE_COUNT; a++)
        for (int b = 0; b < QN_DTYPE_COUNT; b++)
            if (qn_promote((qn_dtype)a, (qn_dtype)b) !=
                by_rule((qn_dtype)a, (qn_dtype)b))
                fail_msg("%s with %s gives %s", qn_dtype_name((qn_dtype)a),
                         qn_dtype_name((qn_dtype)b),
                         qn_dtype_name(qn_promote((qn_dtype)a, (qn_dtype)b)));
}

static void test_classes_accept_and_convert(void **state)
{
    (void)state;
    static const struct {
        qn_op op;
        qn_dtype from, to; /* to: QN_DTYPE_COUNT: refused */
    } cases[] = {
        {QN_OP_ADD, QN_BOOL, QN_BOOL},
        {QN_OP_ADD, QN_COMPLEX64, QN_COMPLEX64},
        {QN_OP_MAXIMUM, QN_COMPLEX64, QN_COMPLEX64},
        {QN_OP_FLOOR, QN_INT8, QN_INT8},
        {QN_OP_FLOOR, QN_COMPLEX64, QN_DTYPE_COUNT},
        {QN_OP_EXP, QN_UINT64, QN_FLOAT32},
        {QN_OP_EXP, QN_BFLOAT16, QN_BFLOAT16},
        {QN_OP_EXP, QN_COMPLEX64, QN_COMPLEX64},
        {QN_OP_ERF, QN_BOOL, QN_FLOAT32},
        {QN_OP_ERF, QN_COMPLEX64, QN_DTYPE_COUNT},
        {QN_OP_BITWISE_AND, QN_BOOL, QN_BOOL},
        {QN_OP_BITWISE_AND, QN_FLOAT16, QN_DTYPE_COUNT},
        {QN_OP_LEFT_SHIFT, QN_BOOL, QN_UINT8},
        {QN_OP_LEFT_SHIFT, QN_FLOAT32, QN_DTYPE_COUNT},
        {QN_OP_LOGICAL_AND, QN_COMPLEX64, QN_BOOL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        qn_dtype got = QN_DTYPE_COUNT;
        const qn_op_info *info = qn_op_info_of(cases[i].op);
        qn_status status = qn_operand_type(&got, info, cases[i].from);
        assert_int_equal(status,
                         cases[i].to == QN_DTYPE_COUNT ? QN_E_ARG : QN_OK);
        assert_int_equal(got, cases[i].to);
        if (status)
            assert_non_null(strstr(qn_error_text(), info->name));
    }
}

static void test_operands_are_converted_only_where_types_differ(void **state)
{
    (void)state;
    qn_array *f = counted(QN_FLOAT32, SHAPE(3)),
             *h = counted(QN_FLOAT16, SHAPE(3));
    BUILD(same, qn_op_binary(&same, QN_OP_ADD, f, f, S));
    assert_ptr_equal(same->node->inputs[0], f);
    assert_ptr_equal(same->node->inputs[1], f);
    BUILD(mixed, qn_op_binary(&mixed, QN_OP_ADD, f, h, S));
    assert_ptr_equal(mixed->node->inputs[0], f);
    assert_int_equal(mixed->node->inputs[1]->node->op, QN_OP_ASTYPE);
    check_type(mixed, QN_FLOAT32, 3);
    check_values(mixed, 0, 2, 4);
}

static void test_views_are_added_only_where_shapes_differ(void **state)
{
    (void)state;
    qn_array *row = counted(QN_FLOAT32, SHAPE(3));
    qn_array *block = counted(QN_FLOAT32, SHAPE(2, 3));
    BUILD(sum, qn_op_binary(&sum, QN_OP_ADD, block, row, S));
    assert_ptr_equal(sum->node->inputs[0], block);
    assert_int_equal(sum->node->inputs[1]->node->op, QN_OP_BROADCAST);
    check_values(sum, 0, 2, 4, 3, 5, 7);
    REFUSE("[add] Shapes (2,3) and (4) cannot be broadcast",
           qn_op_binary(&refused, QN_OP_ADD, block, counted(QN_INT8, SHAPE(4)),
                        S));
}

static void test_integers_divide_to_floats(void **state)
{
    (void)state;
    qn_array *a = LINE(QN_INT32, 7, -8), *b = LINE(QN_INT32, 2, 0);
    BUILD(quotient, qn_op_binary(&quotient, QN_OP_DIVIDE, a, b, S));
    check_type(quotient, QN_FLOAT32, 2);
    check_values(quotient, 3.5, -INFINITY);
    BUILD(power, qn_op_binary(&power, QN_OP_POWER, a, b, S));
    check_type(power, QN_INT32, 2);
    check_values(power, 49, 1);
}

static void test_some_types_pass_through_unchanged(void **state)
{
    (void)state;
    qn_array *whole = counted(QN_INT16, SHAPE(2)),
             *half = counted(QN_FLOAT16, SHAPE(2));
    static const qn_op rounding[] = {QN_OP_CEIL, QN_OP_FLOOR, QN_OP_TRUNC,
                                     QN_OP_ROUND};
    for (int i = 0; i < 4; i++) {
        BUILD(y, qn_op_unary(&y, rounding[i], whole, S));
        assert_ptr_equal(y, whole);
        BUILD(z, qn_op_unary(&z, rounding[i], half, S));
        assert_ptr_not_equal(z, half);
    }
    BUILD(conj, qn_op_unary(&conj, QN_OP_CONJUGATE, half, S));
    assert_ptr_equal(conj, half);
    BUILD(cast, qn_op_astype(&cast, half, QN_FLOAT16, S));
    assert_ptr_equal(cast, half);
}

static void test_negative_of_bool_is_refused(void **state)
{
    (void)state;
    REFUSE(
        "[negative] Not supported for bool",
        qn_op_unary(&refused, QN_OP_NEGATIVE, counted(QN_BOOL, SHAPE(2)), S));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BUILD_TEST(test_table_follows_the_rules),
        BUILD_TEST(test_classes_accept_and_convert),
        BUILD_TEST(test_operands_are_converted_only_where_types_differ),
        BUILD_TEST(test_views_are_added_only_where_shapes_differ),
        BUILD_TEST(test_integers_divide_to_floats),
        BUILD_TEST(test_some_types_pass_through_unchanged),
        BUILD_TEST(test_negative_of_bool_is_refused),
    };
    return run_build_tests(tests);
}
