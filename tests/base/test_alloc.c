/* The door to malloc: sizes that do not fit, and planned failures. */
#include "support/qn_test.h"

#include <pthread.h>

static void test_sizes_that_wrap_are_refused(void **state)
{
    (void)state;
    size_t out = 7;
    assert_false(qn_mul_size(&out, SIZE_MAX / 2, 3));
    assert_false(qn_add_size(&out, SIZE_MAX, 1));
    assert_int_equal(out, 7);
    assert_true(qn_mul_size(&out, SIZE_MAX, 1));
    assert_true(out == SIZE_MAX);
    assert_true(qn_mul_size(&out, SIZE_MAX, 0));
    assert_int_equal(out, 0);
    assert_null(qn_calloc(SIZE_MAX / 4, 8));
    assert_null(qn_reallocarray(NULL, SIZE_MAX / 4, 8));
    assert_null(qn_strndup("x", SIZE_MAX));
}

static void test_a_null_return_has_recorded_the_error(void **state)
{
    (void)state;
    qn_error_clear();
    assert_null(qn_calloc(SIZE_MAX, 2));
    assert_non_null(strstr(qn_error_text(), "out of memory"));
    qn_error_clear();
    qn_test_fail_alloc(0);
    assert_null(qn_alloc(12345));
    assert_non_null(strstr(qn_error_text(), "12345"));
}

static void test_size_zero_gives_a_pointer(void **state)
{
    (void)state;
    void *a = qn_alloc(0), *b = qn_calloc(0, 8), *c = qn_realloc(NULL, 0);
    void *d = qn_alloc_aligned(64, 0);
    assert_non_null(a);
    assert_non_null(b);
    assert_non_null(c);
    assert_non_null(d);
    assert_ptr_not_equal(a, b);
    c = qn_realloc(c, 0);
    assert_non_null(c);
    qn_free(a);
    qn_free(b);
    qn_free(c);
    qn_free(d);
    qn_free(NULL);
}

static void test_the_planned_allocation_fails_once(void **state)
{
    (void)state;
    qn_test_fail_alloc(2);
    void *kept[4];
    for (int i = 0; i < 4; i++)
        kept[i] = i % 2 ? qn_calloc(1, 8) : qn_alloc(8);
    assert_non_null(kept[0]);
    assert_non_null(kept[1]);
    assert_null(kept[2]);
    assert_non_null(kept[3]);
    for (int i = 0; i < 4; i++)
        qn_free(kept[i]);
}

static void test_a_negative_plan_is_no_plan(void **state)
{
    (void)state;
    qn_test_fail_alloc(0);
    qn_test_fail_alloc(-1);
    void *p = qn_alloc(8);
    assert_non_null(p);
    qn_free(p);
}

static void test_a_failed_realloc_keeps_the_block(void **state)
{
    (void)state;
    char *p = qn_strdup("kept");
    qn_test_fail_alloc(0);
    assert_null(qn_realloc(p, 100));
    assert_string_equal(p, "kept");
    qn_test_fail_alloc(0);
    assert_null(qn_reallocarray(p, 10, 10));
    assert_string_equal(p, "kept");
    qn_free(p);
}

static void *allocate_elsewhere(void *data)
{
    *(void **)data = qn_alloc(8);
    return NULL;
}

static void test_a_plan_is_for_its_own_thread(void **state)
{
    (void)state;
    pthread_t thread;
    void *other = NULL;
    qn_test_fail_alloc(0);
    assert_int_equal(pthread_create(&thread, NULL, allocate_elsewhere, &other),
                     0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_non_null(other);
    qn_free(other);
    assert_null(qn_alloc(8));
}

static void test_a_plan_for_all_threads_counts_together(void **state)
{
    (void)state;
    pthread_t thread;
    void *other = &thread, *mine;
    qn_test_fail_alloc_anywhere(1);
    mine = qn_alloc(8);
    assert_non_null(mine);
    assert_int_equal(pthread_create(&thread, NULL, allocate_elsewhere, &other),
                     0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_null(other);
    assert_true(qn_test_fail_alloc_anywhere(3) < 0);
    assert_int_equal(qn_test_fail_alloc_anywhere(-1), 3);
    qn_free(mine);
}

static void test_aligned_blocks_are_aligned(void **state)
{
    (void)state;
    for (size_t align = 1; align <= 4096; align *= 2) {
        void *p = qn_alloc_aligned(align, 3);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % align, 0);
        qn_free(p);
    }
    qn_test_fail_alloc(0);
    assert_null(qn_alloc_aligned(64, 64));
}

static void test_strndup_ends_with_nul(void **state)
{
    (void)state;
    char *copy = qn_strndup("abcdef", 3);
    assert_string_equal(copy, "abc");
    qn_free(copy);
    copy = qn_strndup(NULL, 0);
    assert_string_equal(copy, "");
    qn_free(copy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes_that_wrap_are_refused),
        cmocka_unit_test(test_a_null_return_has_recorded_the_error),
        cmocka_unit_test(test_size_zero_gives_a_pointer),
        cmocka_unit_test(test_the_planned_allocation_fails_once),
        cmocka_unit_test(test_a_negative_plan_is_no_plan),
        cmocka_unit_test(test_a_failed_realloc_keeps_the_block),
        cmocka_unit_test(test_a_plan_is_for_its_own_thread),
        cmocka_unit_test(test_a_plan_for_all_threads_counts_together),
        cmocka_unit_test(test_aligned_blocks_are_aligned),
        cmocka_unit_test(test_strndup_ends_with_nul),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
