/* The hash map: finding, order, growth, ownership. */
#include "support/qn_test.h"

#include "base/map.h"

static qn_str key_of(char text[32], size_t i)
{
    int size = snprintf(text, 32, "key %zu", i * 7919);
    return (qn_str){text, (size_t)size};
}

static void test_values_are_found_and_order_is_kept(void **state)
{
    (void)state;
    enum { N = 20000 };
    char text[32];
    qn_map *map = qn_map_new(0);
    for (size_t i = 0; i < N; i++) {
        bool added = false;
        qn_map_value *value = qn_map_put(map, key_of(text, i), &added);
        assert_true(added);
        assert_true(value->u64 == 0);
        value->u64 = i;
    }
    assert_int_equal(qn_map_size(map), N);
    for (size_t i = 0; i < N; i++) {
        qn_map_value *value = qn_map_get(map, key_of(text, i));
        assert_non_null(value);
        assert_true(value->u64 == i);
        assert_true(qn_str_eq(qn_map_key_at(map, i), key_of(text, i)));
        assert_ptr_equal(qn_map_value_at(map, i), value);
        assert_null(qn_map_get(map, key_of(text, N + i)));
    }
    qn_map_free(map, NULL);
}

static void test_a_second_put_finds_the_first(void **state)
{
    (void)state;
    qn_map *map = qn_map_new(4);
    bool added;
    qn_map_put(map, QN_STR("a"), NULL)->u64 = 5;
    qn_map_value *value = qn_map_put(map, QN_STR("a"), &added);
    assert_false(added);
    assert_true(value->u64 == 5);
    assert_int_equal(qn_map_size(map), 1);
    qn_map_free(map, NULL);
}

static void test_keys_are_bytes(void **state)
{
    (void)state;
    qn_map *map = qn_map_new(0);
    const qn_str keys[] = {
        {NULL, 0},      QN_STR("\0"), QN_STR("\0\0"),     QN_STR("a\0b"),
        QN_STR("a\0c"), QN_STR("a"),  QN_STR("abcdefgh"), QN_STR("abcdefghi"),
    };
    size_t n = sizeof keys / sizeof *keys;
    for (size_t i = 0; i < n; i++)
        qn_map_put(map, keys[i], NULL)->u64 = i + 1;
    assert_int_equal(qn_map_size(map), n);
    for (size_t i = 0; i < n; i++)
        assert_true(qn_map_get(map, keys[i])->u64 == i + 1);
    assert_true(qn_map_get(map, QN_STR(""))->u64 == 1);
    qn_map_free(map, NULL);
}

static void test_keys_are_copied_and_stay_where_they_are(void **state)
{
    (void)state;
    qn_map *map = qn_map_new(0);
    char text[32] = "first";
    qn_map_put(map, (qn_str){text, 5}, NULL);
    memset(text, 'x', sizeof text);
    qn_str first = qn_map_key_at(map, 0);
    for (size_t i = 0; i < 1000; i++)
        qn_map_put(map, key_of(text, i), NULL);
    check_str(first, "first");
    assert_ptr_equal(first.data, qn_map_key_at(map, 0).data);
    qn_map_free(map, NULL);
}

static void test_free_reaches_each_value(void **state)
{
    (void)state;
    char text[32];
    qn_map *map = qn_map_new(1000000000); /* a hint is only a hint */
    for (size_t i = 0; i < 100; i++)
        qn_map_put(map, key_of(text, i), NULL)->ptr = qn_alloc(8);
    qn_map_free(map, qn_free); /* the leak check sees one that is missed */
    qn_map_free(NULL, qn_free);
}

static qn_status fill(void)
{
    char text[32];
    qn_map *map = qn_map_new(0);
    qn_status status = map ? QN_OK : QN_E_NOMEM;
    for (size_t i = 0; i < 300 && !status; i++) {
        qn_map_value *value = qn_map_put(map, key_of(text, i), NULL);
        if (!value)
            status = QN_E_NOMEM;
        else
            value->u64 = i;
    }
    /* What went in before memory was out is still there. */
    for (size_t i = 0; map && i < qn_map_size(map); i++)
        assert_true(qn_map_get(map, key_of(text, i))->u64 == i);
    qn_map_free(map, NULL);
    return status;
}

static void test_each_allocation_may_fail(void **state)
{
    (void)state;
    each_alloc_may_fail(fill);
}

static void test_hash_depends_on_every_byte(void **state)
{
    (void)state;
    uint8_t bytes[40] = {0};
    uint64_t plain = qn_hash(bytes, sizeof bytes);
    assert_true(plain == qn_hash(bytes, sizeof bytes));
    for (size_t i = 0; i < sizeof bytes; i++) {
        assert_true(qn_hash(bytes, i) != plain);
        bytes[i] = 1;
        assert_true(qn_hash(bytes, sizeof bytes) != plain);
        bytes[i] = 0;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values_are_found_and_order_is_kept),
        cmocka_unit_test(test_a_second_put_finds_the_first),
        cmocka_unit_test(test_keys_are_bytes),
        cmocka_unit_test(test_keys_are_copied_and_stay_where_they_are),
        cmocka_unit_test(test_free_reaches_each_value),
        cmocka_unit_test(test_each_allocation_may_fail),
        cmocka_unit_test(test_hash_depends_on_every_byte),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
