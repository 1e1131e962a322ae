/* Lists and maps: sharing, copying, order, what is not there. */
#include "capi.h"

static mlx_stream cpu;

static int setup(void **state)
{
    capi_setup(state);
    cpu = mlx_default_cpu_stream_new();
    return cpu.ctx == NULL;
}

static int teardown(void **state)
{
    (void)state;
    return mlx_stream_free(cpu);
}

static void test_new_lists_are_empty_and_alive(void **state)
{
    (void)state;
    mlx_vector_array a = mlx_vector_array_new();
    mlx_vector_vector_array b = mlx_vector_vector_array_new();
    mlx_vector_int c = mlx_vector_int_new();
    mlx_vector_string d = mlx_vector_string_new();
    mlx_vector_stream e = mlx_vector_stream_new();
    assert_true(a.ctx && b.ctx && c.ctx && d.ctx && e.ctx);
    assert_int_equal(mlx_vector_array_size(a), 0);
    assert_int_equal(mlx_vector_vector_array_size(b), 0);
    assert_int_equal(mlx_vector_int_size(c), 0);
    assert_int_equal(mlx_vector_string_size(d), 0);
    assert_int_equal(mlx_vector_stream_size(e), 0);
    check_ok(mlx_vector_array_free(a));
    check_ok(mlx_vector_vector_array_free(b));
    check_ok(mlx_vector_int_free(c));
    check_ok(mlx_vector_string_free(d));
    check_ok(mlx_vector_stream_free(e));
}

static void test_arrays_are_shared(void **state)
{
    (void)state;
    mlx_array items[2] = {mlx_array_new_int(1), mlx_array_new_int(2)};
    mlx_vector_array list = mlx_vector_array_new_data(items, 2);
    check_ok(mlx_vector_array_append_data(list, items, 2));
    check_ok(mlx_vector_array_append_value(list, items[1]));
    /* The list has its own references: another value in the handle is not one
     * in the list. */
    check_ok(mlx_array_set_int(&items[1], 7));
    mlx_array_free(items[0]);
    mlx_array_free(items[1]);
    assert_int_equal(mlx_vector_array_size(list), 5);
    mlx_array got = mlx_array_new();
    for (size_t i = 0; i < 5; i++) {
        check_ok(mlx_vector_array_get(&got, list, i));
        check_ints(got, 1, (int[]){i % 2 || i == 4 ? 2 : 1});
    }
    check_fails(mlx_vector_array_get(&got, list, 5), "out of range");
    check_ints(got, 1, (int[]){2});
    mlx_array_free(got);
    mlx_vector_array_free(list);
}

static void test_a_list_with_an_empty_handle_is_refused_whole(void **state)
{
    (void)state;
    mlx_array items[2] = {mlx_array_new_int(1), {NULL}};
    heard.count = 0;
    assert_null(mlx_vector_array_new_data(items, 2).ctx);
    check_heard("expected a non-empty mlx_array");
    mlx_vector_array list = mlx_vector_array_new_value(items[0]);
    check_fails(mlx_vector_array_append_data(list, items, 2), "mlx_array");
    assert_int_equal(mlx_vector_array_size(list), 1);
    check_fails(mlx_vector_array_set_data(&list, items, 2), "mlx_array");
    assert_int_equal(mlx_vector_array_size(list), 1);
    check_fails(
        mlx_vector_array_append_value((mlx_vector_array){NULL}, items[0]),
        "expected a non-empty mlx_vector_array");
    mlx_vector_vector_array lists = mlx_vector_vector_array_new();
    check_fails(
        mlx_vector_vector_array_append_value(lists, (mlx_vector_array){NULL}),
        "expected a non-empty mlx_vector_array");
    mlx_vector_vector_array_free(lists);
    mlx_vector_array_free(list);
    mlx_array_free(items[0]);
}

static void test_set_copies_a_list_in_place(void **state)
{
    (void)state;
    mlx_array one = mlx_array_new_int(1), two = mlx_array_new_int(2);
    mlx_vector_array a = mlx_vector_array_new_value(one);
    mlx_vector_array b = {NULL};
    check_ok(mlx_vector_array_set(&b, a));
    check_ok(mlx_vector_array_append_value(a, two));
    assert_int_equal(mlx_vector_array_size(b), 1);
    void *ctx = b.ctx;
    check_ok(mlx_vector_array_set(&b, a));
    check_ok(mlx_vector_array_set(&b, b));
    assert_ptr_equal(b.ctx, ctx);
    assert_int_equal(mlx_vector_array_size(b), 2);
    check_ok(mlx_vector_array_set_value(&b, two));
    assert_int_equal(mlx_vector_array_size(b), 1);
    check_ok(mlx_vector_array_set_data(&b, NULL, 0));
    assert_ptr_equal(b.ctx, ctx);
    assert_int_equal(mlx_vector_array_size(b), 0);
    mlx_array_free(one);
    mlx_array_free(two);
    mlx_vector_array_free(a);
    mlx_vector_array_free(b);
}

static void test_lists_of_lists_are_copies(void **state)
{
    (void)state;
    mlx_array one = mlx_array_new_int(1);
    mlx_vector_array inner = mlx_vector_array_new_value(one);
    mlx_vector_vector_array outer = mlx_vector_vector_array_new_value(inner);
    check_ok(mlx_vector_vector_array_append_data(outer, &inner, 1));
    check_ok(mlx_vector_array_append_value(inner, one));
    mlx_vector_vector_array copy = {NULL};
    check_ok(mlx_vector_vector_array_set(&copy, outer));
    mlx_vector_vector_array_free(outer);
    mlx_vector_array got = {NULL};
    check_ok(mlx_vector_vector_array_get(&got, copy, 1));
    assert_int_equal(mlx_vector_array_size(got), 1);
    check_fails(mlx_vector_vector_array_get(&got, copy, 2), "out of range");
    mlx_vector_vector_array_free(copy);
    check_ok(mlx_vector_array_append_value(got, one));
    assert_int_equal(mlx_vector_array_size(got), 2);
    mlx_vector_array_free(got);
    mlx_vector_array_free(inner);
    mlx_array_free(one);
}

static void test_ints_texts_and_streams(void **state)
{
    (void)state;
    mlx_vector_int numbers = mlx_vector_int_new_data((int[]){3, -4}, 2);
    int number = 0;
    for (int i = 0; i < 100; i++)
        check_ok(mlx_vector_int_append_value(numbers, i));
    check_ok(mlx_vector_int_get(&number, numbers, 1));
    assert_int_equal(number, -4);
    check_ok(mlx_vector_int_get(&number, numbers, 101));
    assert_int_equal(number, 99);
    check_fails(mlx_vector_int_get(&number, numbers, 102), "out of range");
    mlx_vector_int_free(numbers);

    char text[] = "one";
    const char *texts[] = {text, "", "three"};
    mlx_vector_string words = mlx_vector_string_new_data(texts, 3);
    text[0] = 'x';
    char *word;
    check_ok(mlx_vector_string_get(&word, words, 0));
    assert_string_equal(word, "one");
    check_ok(mlx_vector_string_get(&word, words, 1));
    assert_string_equal(word, "");
    check_ok(mlx_vector_string_set_value(&words, "alone"));
    check_ok(mlx_vector_string_get(&word, words, 0));
    assert_string_equal(word, "alone");
    assert_int_equal(mlx_vector_string_size(words), 1);
    mlx_vector_string_free(words);

    mlx_vector_stream streams = mlx_vector_stream_new_value(cpu);
    mlx_stream got = mlx_stream_new();
    check_ok(mlx_vector_stream_get(&got, streams, 0));
    assert_true(mlx_stream_equal(got, cpu));
    check_fails(mlx_vector_stream_append_value(streams, mlx_stream_new()),
                "expected a non-empty mlx_stream");
    mlx_stream_free(got);
    mlx_vector_stream_free(streams);
}

/* ---- maps ---- */

static void test_a_map_shares_arrays_and_replaces_values(void **state)
{
    (void)state;
    mlx_map_string_to_array map = mlx_map_string_to_array_new();
    mlx_array value = mlx_array_new_int(1), got = mlx_array_new();
    check_ok(mlx_map_string_to_array_insert(map, "a", value));
    check_ok(mlx_array_set_int(&value, 2));
    check_ok(mlx_map_string_to_array_insert(map, "", value));
    check_ok(mlx_map_string_to_array_get(&got, map, "a"));
    check_ints(got, 1, (int[]){1});
    check_ok(mlx_map_string_to_array_insert(map, "a", value));
    check_ok(mlx_map_string_to_array_get(&got, map, "a"));
    check_ints(got, 1, (int[]){2});
    /* Not there: 2, and no report. */
    heard.count = 0;
    assert_int_equal(mlx_map_string_to_array_get(&got, map, "b"), 2);
    assert_int_equal(heard.count, 0);
    check_ints(got, 1, (int[]){2});
    check_fails(mlx_map_string_to_array_insert(map, "c", mlx_array_empty),
                "mlx_array");
    check_fails(
        mlx_map_string_to_array_get(&got, (mlx_map_string_to_array){NULL}, "a"),
        "expected a non-empty mlx_map_string_to_array");

    mlx_map_string_to_array copy = {NULL};
    check_ok(mlx_map_string_to_array_set(&copy, map));
    mlx_map_string_to_array_free(map);
    check_ok(mlx_map_string_to_array_get(&got, copy, ""));
    check_ints(got, 1, (int[]){2});
    check_ok(mlx_map_string_to_array_set(&copy, copy));
    check_ok(mlx_map_string_to_array_get(&got, copy, "a"));
    mlx_map_string_to_array_free(copy);
    mlx_array_free(got);
    mlx_array_free(value);
}

static void test_an_iterator_visits_each_key_once(void **state)
{
    (void)state;
    mlx_map_string_to_array map = mlx_map_string_to_array_new();
    mlx_array value = mlx_array_new();
    for (int i = 0; i < 30; i++) {
        char key[16];
        snprintf(key, sizeof key, "k%d", i);
        check_ok(mlx_array_set_int(&value, i));
        check_ok(mlx_map_string_to_array_insert(map, key, value));
    }
    bool seen[30] = {false};
    const char *key;
    mlx_map_string_to_array_iterator it =
        mlx_map_string_to_array_iterator_new(map);
    heard.count = 0;
    int count = 0, rc;
    while (!(rc = mlx_map_string_to_array_iterator_next(&key, &value, it))) {
        int number;
        check_ok(mlx_array_item_int32(&number, value));
        assert_int_equal(atoi(key + 1), number);
        assert_false(seen[number]);
        seen[number] = true;
        count++;
    }
    assert_int_equal(rc, 2);
    assert_int_equal(count, 30);
    assert_int_equal(heard.count, 0);
    check_ok(mlx_map_string_to_array_iterator_free(it));
    mlx_map_string_to_array_free(map);
    mlx_array_free(value);

    heard.count = 0;
    it = mlx_map_string_to_array_iterator_new((mlx_map_string_to_array){NULL});
    assert_null(it.ctx);
    check_heard("mlx_map_string_to_array");
    check_ok(mlx_map_string_to_array_iterator_free(it));
}

static void test_a_map_of_texts_copies_them(void **state)
{
    (void)state;
    mlx_map_string_to_string map = mlx_map_string_to_string_new();
    char key[] = "key", value[] = "value";
    check_ok(mlx_map_string_to_string_insert(map, key, value));
    key[0] = value[0] = 'x';
    const char *got = NULL, *at = NULL;
    check_ok(mlx_map_string_to_string_get(&got, map, "key"));
    assert_string_equal(got, "value");
    check_ok(mlx_map_string_to_string_insert(map, "key", "again"));
    check_ok(mlx_map_string_to_string_get(&got, map, "key"));
    assert_string_equal(got, "again");
    assert_int_equal(mlx_map_string_to_string_get(&got, map, "xey"), 2);
    mlx_map_string_to_string copy = {NULL};
    check_ok(mlx_map_string_to_string_set(&copy, map));
    mlx_map_string_to_string_free(map);
    mlx_map_string_to_string_iterator it =
        mlx_map_string_to_string_iterator_new(copy);
    check_ok(mlx_map_string_to_string_iterator_next(&at, &got, it));
    assert_string_equal(at, "key");
    assert_string_equal(got, "again");
    assert_int_equal(mlx_map_string_to_string_iterator_next(&at, &got, it), 2);
    check_ok(mlx_map_string_to_string_iterator_free(it));
    mlx_map_string_to_string_free(copy);
}

/* ---- failing allocations ---- */

static qn_status program(void)
{
    mlx_array a = mlx_array_new_int(1);
    mlx_vector_array list = {NULL}, copy = {NULL};
    mlx_vector_vector_array lists = mlx_vector_vector_array_new();
    mlx_vector_string words = mlx_vector_string_new();
    mlx_map_string_to_string map = mlx_map_string_to_string_new();
    mlx_map_string_to_string other = {NULL};
    bool failed =
        !a.ctx || !lists.ctx || !words.ctx || !map.ctx ||
        mlx_vector_array_set_value(&list, a) ||
        mlx_vector_array_append_data(list, (mlx_array[]){a, a}, 2) ||
        mlx_vector_array_set(&copy, list) ||
        mlx_vector_vector_array_append_value(lists, list) ||
        mlx_vector_vector_array_get(&copy, lists, 0) ||
        mlx_vector_string_append_data(words, (const char *[]){"a", "b"}, 2) ||
        mlx_map_string_to_string_insert(map, "a", "b") ||
        mlx_map_string_to_string_insert(map, "a", "c") ||
        mlx_map_string_to_string_set(&other, map);
    mlx_array_free(a);
    mlx_vector_array_free(list);
    mlx_vector_array_free(copy);
    mlx_vector_vector_array_free(lists);
    mlx_vector_string_free(words);
    mlx_map_string_to_string_free(map);
    mlx_map_string_to_string_free(other);
    if (!failed)
        return QN_OK;
    return strstr(heard.text, "out of memory") ? QN_E_NOMEM : QN_E_INTERNAL;
}

static void test_lists_and_maps_survive_failing_allocations(void **state)
{
    (void)state;
    each_alloc_may_fail(program);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_new_lists_are_empty_and_alive),
        cmocka_unit_test(test_arrays_are_shared),
        cmocka_unit_test(test_a_list_with_an_empty_handle_is_refused_whole),
        cmocka_unit_test(test_set_copies_a_list_in_place),
        cmocka_unit_test(test_lists_of_lists_are_copies),
        cmocka_unit_test(test_ints_texts_and_streams),
        cmocka_unit_test(test_a_map_shares_arrays_and_replaces_values),
        cmocka_unit_test(test_an_iterator_visits_each_key_once),
        cmocka_unit_test(test_a_map_of_texts_copies_them),
        cmocka_unit_test(test_lists_and_maps_survive_failing_allocations),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
