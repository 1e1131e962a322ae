/* Random bits equal the reference implementation's for the same key. */
#include "support/qn_ref_test.h"

static qn_array *bits(qn_array *key, int width, const int *shape, int ndim)
{
    qn_random_bits_params p = {width};
    qn_dtype dtype = width == 1 ? QN_UINT8 : width == 2 ? QN_UINT16 : QN_UINT32;
    return apply(QN_OP_RANDOM_BITS, &p, sizeof p, dtype, shape, ndim,
                 INPUTS(key));
}

static void test_words_of_a_key(void **state)
{
    (void)state;
    qn_array *key = array_of(QN_UINT32, VALUES(0, 42), SHAPE(2));
    check_items(bits(key, 4, SHAPE(4)), 2465931498, 3679230171, 255383827,
                267815257);
    check_items(bits(key, 4, SHAPE(7)), 2954079971, 2575172198, 1139032965,
                1681094280, 3276725750, 1223413151, 173471767);
    qn_array_unref(key);
}

static void test_narrow_elements_are_bytes_of_words(void **state)
{
    (void)state;
    qn_array *key = array_of(QN_UINT32, VALUES(0, 42), SHAPE(2));
    check_items(bits(key, 1, SHAPE(7)), 45, 179, 215, 3, 244, 131, 208);
    qn_array *words = bits(key, 4, SHAPE(3)), *halves = bits(key, 2, SHAPE(5));
    for (size_t i = 0; i < 5; i++) {
        uint32_t word = (uint32_t)item(words, i / 2);
        assert_true(item(halves, i) == (i % 2 ? word >> 16 : word & 0xffff));
    }
    qn_array_unref(words);
    qn_array_unref(halves);
    qn_array_unref(key);
}

static void test_each_key_has_its_own_stream(void **state)
{
    (void)state;
    qn_array *keys =
        strided(array_of(QN_UINT32, VALUES(0, 42, 7, 9), SHAPE(2, 2)));
    qn_array *both = bits(keys, 4, SHAPE(2, 3));
    for (size_t i = 0; i < 2; i++) {
        qn_array *key = array_of(
            QN_UINT32, VALUES(item(keys, 2 * i), item(keys, 2 * i + 1)),
            SHAPE(2));
        qn_array *one = bits(key, 4, SHAPE(3));
        for (size_t k = 0; k < 3; k++)
            assert_true(item(one, k) == item(both, 3 * i + k));
        qn_array_unref(one);
        qn_array_unref(key);
    }
    qn_array_unref(both);
    qn_array_unref(keys);
}

static void test_no_bits(void **state)
{
    (void)state;
    qn_array *key = array_of(QN_UINT32, VALUES(1, 2), SHAPE(2));
    qn_array *none = bits(key, 4, SHAPE(0));
    assert_int_equal(none->size, 0);
    qn_array_unref(none);
    qn_array_unref(key);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_words_of_a_key),
        cmocka_unit_test(test_narrow_elements_are_bytes_of_words),
        cmocka_unit_test(test_each_key_has_its_own_stream),
        cmocka_unit_test(test_no_bits),
    };
    return run_ref_tests(tests);
}
