/* Arenas: alignment, separate pieces, failures. */
#include "support/qn_test.h"

#include "base/arena.h"

static void test_pieces_are_aligned_and_apart(void **state)
{
    (void)state;
    enum { N = 3000 };
    qn_arena arena = {0};
    static unsigned char *pieces[N];
    static qn_str texts[N];
    for (size_t i = 0; i < N; i++) {
        /* Mostly small, now and then larger than a block. */
        size_t size = i % 500 == 499 ? 3000000 : i % 97;
        pieces[i] = qn_arena_alloc(&arena, size);
        assert_non_null(pieces[i]);
        assert_int_equal((uintptr_t)pieces[i] % 16, 0);
        memset(pieces[i], (int)(i & 0xff), size);
        char text[32];
        int length = snprintf(text, sizeof text, "text %zu", i);
        assert_true(
            qn_arena_copy(&arena, &texts[i], (qn_str){text, (size_t)length}));
    }
    for (size_t i = 0; i < N; i++) {
        size_t size = i % 500 == 499 ? 3000000 : i % 97;
        for (size_t k = 0; k < size; k++)
            assert_int_equal(pieces[i][k], i & 0xff);
        char text[32];
        snprintf(text, sizeof text, "text %zu", i);
        check_str(texts[i], text);
    }
    qn_arena_free(&arena);
}

static void test_sizes_beyond_memory_fail(void **state)
{
    (void)state;
    qn_arena arena = {0};
    assert_null(qn_arena_alloc(&arena, SIZE_MAX));
    assert_null(qn_arena_alloc(&arena, SIZE_MAX - 20));
    assert_non_null(qn_arena_alloc(&arena, 8));
    qn_arena_free(&arena);
}

static qn_status use_arena(void)
{
    qn_arena arena = {0};
    qn_status status = QN_OK;
    for (size_t i = 0; i < 200 && !status; i++) {
        qn_str copy;
        if (!qn_arena_alloc(&arena, 100) ||
            !qn_arena_copy(&arena, &copy, QN_STR("some text")))
            status = QN_E_NOMEM;
    }
    qn_arena_free(&arena);
    return status;
}

static void test_each_allocation_may_fail(void **state)
{
    (void)state;
    each_alloc_may_fail(use_arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pieces_are_aligned_and_apart),
        cmocka_unit_test(test_sizes_beyond_memory_fail),
        cmocka_unit_test(test_each_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
