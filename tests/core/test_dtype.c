/* The table of element types: numbers, sizes and names of the MLX C API. */
#include "support/qn_test.h"

#include "core/dtype.h"

static void test_numbers_sizes_and_names_are_those_of_the_api(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        size_t size;
    } types[] = {{"bool", 1},     {"uint8", 1},    {"uint16", 2},
                 {"uint32", 4},   {"uint64", 8},   {"int8", 1},
                 {"int16", 2},    {"int32", 4},    {"int64", 8},
                 {"float16", 2},  {"float32", 4},  {"float64", 8},
                 {"bfloat16", 2}, {"complex64", 8}};
    assert_int_equal(QN_DTYPE_COUNT, sizeof types / sizeof types[0]);
    for (int i = 0; i < QN_DTYPE_COUNT; i++) {
        assert_string_equal(qn_dtype_name((qn_dtype)i), types[i].name);
        assert_int_equal(qn_dtype_size((qn_dtype)i), types[i].size);
    }
}

static void test_kinds_separate_integers_from_the_rest(void **state)
{
    (void)state;
    assert_true(qn_dtype_is_integer(QN_UINT8));
    assert_true(qn_dtype_is_integer(QN_INT64));
    assert_false(qn_dtype_is_integer(QN_BOOL));
    assert_false(qn_dtype_is_integer(QN_BFLOAT16));
    assert_true(qn_dtype_is_float(QN_BFLOAT16));
    assert_true(qn_dtype_is_float(QN_FLOAT64));
    assert_false(qn_dtype_is_float(QN_COMPLEX64));
    assert_int_equal(qn_dtype_kind(QN_COMPLEX64), QN_KIND_COMPLEX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers_sizes_and_names_are_those_of_the_api),
        cmocka_unit_test(test_kinds_separate_integers_from_the_rest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
