/* The pool: alignment, reuse, counters, limits, and other people's memory. */
#include "support/qn_test.h"

#include "core/buffer.h"

#include <pthread.h>

static qn_buffer *buffer(size_t size)
{
    qn_buffer *b;
    check_status(qn_buffer_new(&b, size), QN_OK);
    /* All of it may be touched. */
    memset(b->data, 1, b->capacity);
    return b;
}

static int empty_cache(void **state)
{
    (void)state;
    qn_memory_clear_cache();
    assert_int_equal(qn_memory_cached(), 0);
    assert_int_equal(qn_memory_active(), 0);
    return 0;
}

static void test_memory_is_aligned_and_large_enough(void **state)
{
    (void)state;
    static const size_t sizes[] = {0,   1,    63,    64,      65,
                                   257, 4095, 70000, 1 << 20, (1 << 20) + 1};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        qn_buffer *b = buffer(sizes[i]);
        assert_true(b->capacity >= sizes[i]);
        assert_int_equal((uintptr_t)b->data % 64, 0);
        if (sizes[i] >= 1 << 20)
            assert_int_equal((uintptr_t)b->data % 4096, 0);
        qn_buffer_unref(b);
    }
}

static void test_sizes_are_not_rounded_by_much(void **state)
{
    (void)state;
    for (size_t size = 1; size < (size_t)1 << 24; size += size / 7 + 1) {
        qn_memory_clear_cache();
        qn_buffer *b = buffer(size);
        assert_true(b->capacity - size < 64 || b->capacity <= size + size / 4);
        qn_buffer_unref(b);
    }
}

static void test_a_returned_block_serves_the_next_request(void **state)
{
    (void)state;
    qn_buffer *b = buffer(1000);
    void *data = b->data;
    qn_buffer_unref(b);
    b = buffer(900);
    assert_ptr_equal(b->data, data);
    qn_buffer_unref(b);
}

static void test_a_block_more_than_twice_too_large_is_left(void **state)
{
    (void)state;
    qn_buffer_unref(buffer(100000));
    size_t cached = qn_memory_cached();
    qn_buffer *small = buffer(40000);
    assert_int_equal(qn_memory_cached(), cached);
    qn_buffer *fitting = buffer(60000);
    assert_int_equal(qn_memory_cached(), 0);
    qn_buffer_unref(small);
    qn_buffer_unref(fitting);
}

static void test_counters_follow_what_lives(void **state)
{
    (void)state;
    qn_memory_reset_peak();
    qn_buffer *a = buffer(1 << 20), *b = buffer(1 << 21);
    assert_int_equal(qn_memory_active(), 3 << 20);
    qn_buffer_ref(a);
    qn_buffer_unref(a);
    assert_int_equal(qn_memory_active(), 3 << 20);
    qn_buffer_unref(a);
    assert_int_equal(qn_memory_active(), 2 << 20);
    assert_int_equal(qn_memory_cached(), 1 << 20);
    assert_int_equal(qn_memory_peak(), 3 << 20);
    qn_memory_reset_peak();
    qn_buffer_unref(b);
    b = buffer(1 << 21);
    assert_int_equal(qn_memory_peak(), 2 << 20);
    qn_buffer_unref(b);
}

static void test_the_cache_gives_back_its_oldest_blocks(void **state)
{
    (void)state;
    size_t before = qn_memory_set_cache_limit(3 << 20);
    qn_buffer *a = buffer(1 << 20), *b = buffer(2 << 20), *c = buffer(3 << 20);
    qn_buffer_unref(a);
    qn_buffer_unref(b);
    assert_int_equal(qn_memory_cached(), 3 << 20);
    qn_buffer_unref(c); /* both older ones go */
    assert_int_equal(qn_memory_cached(), 3 << 20);
    c = buffer(3 << 20);
    assert_int_equal(qn_memory_cached(), 0);
    qn_buffer_unref(c);
    assert_int_equal(qn_memory_set_cache_limit(before), 3 << 20);
}

static void test_a_cache_limit_of_zero_keeps_nothing(void **state)
{
    (void)state;
    qn_buffer_unref(buffer(5000));
    assert_true(qn_memory_cached() > 0);
    size_t before = qn_memory_set_cache_limit(0);
    assert_int_equal(qn_memory_cached(), 0);
    qn_buffer_unref(buffer(5000));
    assert_int_equal(qn_memory_cached(), 0);
    qn_memory_set_cache_limit(before);
}

static void
test_the_memory_limit_empties_the_cache_but_refuses_nothing(void **state)
{
    (void)state;
    size_t before = qn_memory_set_limit(2 << 20);
    assert_int_equal(qn_memory_get_limit(), 2 << 20);
    qn_buffer_unref(buffer(1 << 20));
    qn_buffer *over = buffer(4 << 20);
    assert_int_equal(qn_memory_cached(), 0);
    qn_buffer_unref(over);
    assert_int_equal(qn_memory_set_limit(before), 2 << 20);
}

static void
test_a_refused_allocation_is_tried_again_without_a_cache(void **state)
{
    (void)state;
    qn_buffer_unref(buffer(5000));
    qn_test_fail_alloc(0);
    qn_buffer *b = NULL;
    check_status(qn_buffer_new(&b, 1 << 21), QN_OK);
    qn_test_fail_alloc(-1);
    assert_int_equal(qn_memory_cached(), 0);
    qn_buffer_unref(b);
}

static void test_an_impossible_size_is_refused(void **state)
{
    (void)state;
    qn_buffer *b = NULL;
    check_error(qn_buffer_new(&b, SIZE_MAX), QN_E_NOMEM, "out of memory");
    check_error(qn_buffer_new(&b, SIZE_MAX - 5000), QN_E_NOMEM,
                "out of memory");
    assert_null(b);
    assert_int_equal(qn_memory_active(), 0);
}

static int destroyed;

static void count_destroyed(void *payload)
{
    assert_ptr_equal(payload, &destroyed);
    destroyed++;
}

static void test_external_memory_is_given_back_once(void **state)
{
    (void)state;
    char memory[16];
    qn_buffer *b;
    destroyed = 0;
    check_status(qn_buffer_new_external(&b, memory, sizeof memory, &destroyed,
                                        count_destroyed),
                 QN_OK);
    assert_ptr_equal(b->data, memory);
    assert_int_equal(qn_memory_active(), 0);
    qn_buffer_ref(b);
    assert_false(qn_buffer_unique(b));
    qn_buffer_unref(b);
    assert_true(qn_buffer_unique(b));
    assert_int_equal(destroyed, 0);
    qn_buffer_unref(b);
    assert_int_equal(destroyed, 1);
}

static void test_external_memory_is_given_back_when_the_call_fails(void **state)
{
    (void)state;
    char memory[16];
    qn_buffer *b;
    destroyed = 0;
    qn_test_fail_alloc(0);
    qn_status status = qn_buffer_new_external(&b, memory, sizeof memory,
                                              &destroyed, count_destroyed);
    qn_test_fail_alloc(-1);
    check_error(status, QN_E_NOMEM, "out of memory");
    assert_int_equal(destroyed, 1);
}

static void *churn(void *unused)
{
    for (int i = 0; i < 2000; i++) {
        qn_buffer *a, *b;
        check_status(qn_buffer_new(&a, (size_t)(i % 50) * 100), QN_OK);
        check_status(qn_buffer_new(&b, (size_t)(i % 7) * 100000), QN_OK);
        memset(a->data, i, a->capacity);
        qn_buffer_unref(b);
        qn_buffer_unref(a);
    }
    return unused;
}

static void test_threads_share_the_pool(void **state)
{
    (void)state;
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, churn, NULL), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(qn_memory_active(), 0);
}

/* Buffers that stay lie side by side; the last one takes their memory along. */
static void test_lasting_buffers_are_neighbours(void **state)
{
    (void)state;
    enum { COUNT = 40, SIZE = 1000000 };
    qn_buffer *b[COUNT];
    size_t near = 0, all = 0;
    for (size_t i = 0; i < COUNT; i++) {
        check_status(qn_buffer_new_lasting(&b[i], SIZE + i), QN_OK);
        assert_int_equal((uintptr_t)b[i]->data % 64, 0);
        assert_true(b[i]->capacity >= SIZE + i &&
                    b[i]->capacity < SIZE + i + 64);
        memset(b[i]->data, (int)i, b[i]->capacity);
        all += b[i]->capacity;
        near += i && (char *)b[i]->data ==
                         (char *)b[i - 1]->data + b[i - 1]->capacity;
    }
    /* 40 MB are two slabs. */
    assert_int_equal(near, COUNT - 2);
    assert_int_equal(qn_memory_active(), all);
    for (size_t i = 0; i < COUNT; i++) {
        for (size_t at = 0; at < b[i]->capacity; at += 999)
            assert_int_equal(((uint8_t *)b[i]->data)[at], i);
        qn_buffer_unref(b[i]);
    }
    assert_int_equal(qn_memory_active(), 0);
    assert_int_equal(qn_memory_cached(), 0);
    /* Larger than a slab, and nothing at all. */
    check_status(qn_buffer_new_lasting(&b[0], (size_t)80 << 20), QN_OK);
    check_status(qn_buffer_new_lasting(&b[1], 0), QN_OK);
    memset(b[0]->data, 1, b[0]->capacity);
    qn_buffer_unref(b[0]);
    qn_buffer_unref(b[1]);
    check_status(qn_buffer_new_lasting(&b[0], SIZE_MAX - 3), QN_E_NOMEM);
    assert_int_equal(qn_memory_active(), 0);
}

static void *lasting_thread(void *arg)
{
    for (size_t i = 0; i < 200; i++) {
        qn_buffer *b[8];
        for (size_t k = 0; k < 8; k++) {
            if (qn_buffer_new_lasting(&b[k], 1000000 * (k + 1)))
                return arg;
            *(char *)b[k]->data = 1;
        }
        for (size_t k = 0; k < 8; k++)
            qn_buffer_unref(b[k]);
    }
    return NULL;
}

static void test_threads_share_slabs(void **state)
{
    (void)state;
    pthread_t ids[4];
    void *failed;
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&ids[i], NULL, lasting_thread, ids), 0);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(pthread_join(ids[i], &failed), 0);
        assert_null(failed);
    }
    assert_int_equal(qn_memory_active(), 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup(name, empty_cache)
    const struct CMUnitTest tests[] = {
        TEST(test_lasting_buffers_are_neighbours),
        TEST(test_threads_share_slabs),
        TEST(test_memory_is_aligned_and_large_enough),
        TEST(test_sizes_are_not_rounded_by_much),
        TEST(test_a_returned_block_serves_the_next_request),
        TEST(test_a_block_more_than_twice_too_large_is_left),
        TEST(test_counters_follow_what_lives),
        TEST(test_the_cache_gives_back_its_oldest_blocks),
        TEST(test_a_cache_limit_of_zero_keeps_nothing),
        TEST(test_the_memory_limit_empties_the_cache_but_refuses_nothing),
        TEST(test_a_refused_allocation_is_tried_again_without_a_cache),
        TEST(test_an_impossible_size_is_refused),
        TEST(test_external_memory_is_given_back_once),
        TEST(test_external_memory_is_given_back_when_the_call_fails),
        TEST(test_threads_share_the_pool),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
