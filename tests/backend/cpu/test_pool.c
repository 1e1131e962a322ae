/* The thread pool: every task runs once, on a worker of its own, whatever the
 * number of tasks and threads; also in a child after fork. */
#include "support/qn_test.h"

#include "backend/cpu/pool.h"

#include <stdatomic.h>
#include <sys/wait.h>

#if defined(__SANITIZE_THREAD__)
#define TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define TSAN 1
#endif
#endif

enum { MOST = 3000, MOST_THREADS = 16 };

typedef struct counts {
    atomic_int ran[MOST];
    atomic_int inside[MOST_THREADS];
    atomic_int clashes;
} counts;

static void count_task(void *ctx, size_t index, int worker)
{
    counts *c = ctx;
    if (worker < 0 || worker >= MOST_THREADS ||
        atomic_fetch_add(&c->inside[worker], 1) != 0) {
        atomic_fetch_add(&c->clashes, 1);
        return;
    }
    atomic_fetch_add(&c->ran[index], 1);
    atomic_fetch_sub(&c->inside[worker], 1);
}

static bool each_ran(counts *c, size_t n, int times)
{
    for (size_t i = 0; i < MOST; i++)
        if (atomic_load(&c->ran[i]) != (i < n ? times : 0))
            return false;
    return atomic_load(&c->clashes) == 0;
}

static void test_each_task_runs_once(void **state)
{
    (void)state;
    static const size_t sizes[] = {0, 1, 2, 3, 7, 64, 1000, MOST};
    for (int threads = 1; threads <= 9; threads += 2)
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            static counts c;
            memset(&c, 0, sizeof c);
            qn_pool_set_threads(threads);
            qn_pool_run(count_task, &c, sizes[s]);
            assert_true(each_ran(&c, sizes[s], 1));
        }
    qn_pool_set_threads(0);
}

/* The context dies when the region ends: a worker that looked at it later
 * would be seen by the sanitizers. */
static void tiny_region(void)
{
    counts *c = calloc(1, sizeof *c);
    assert_non_null(c);
    qn_pool_run(count_task, c, 5);
    assert_true(each_ran(c, 5, 1));
    free(c);
}

static void test_many_tiny_regions(void **state)
{
    (void)state;
    qn_pool_set_threads(3);
    for (int round = 0; round < 2000; round++)
        tiny_region();
    qn_pool_set_threads(0);
}

/* Workers fall asleep between regions that are far apart. */
static void test_sleeping_workers_wake(void **state)
{
    (void)state;
    static counts c;
    memset(&c, 0, sizeof c);
    qn_pool_set_threads(4);
    for (int round = 1; round <= 20; round++) {
        usleep(1000);
        qn_pool_run(count_task, &c, 100);
        assert_true(each_ran(&c, 100, round));
    }
    qn_pool_set_threads(0);
}

static void test_thread_count_may_change(void **state)
{
    (void)state;
    static counts c;
    memset(&c, 0, sizeof c);
    for (int round = 1; round <= 60; round++) {
        qn_pool_set_threads(1 + round * 7 % 6);
        assert_int_equal(qn_pool_threads(), 1 + round * 7 % 6);
        qn_pool_run(count_task, &c, 50);
        assert_true(each_ran(&c, 50, round));
    }
    qn_pool_set_threads(100000);
    assert_int_equal(qn_pool_threads(), 512);
    qn_pool_set_threads(0);
    assert_true(qn_pool_threads() >= 1);
}

typedef struct ranges {
    atomic_int covered[MOST];
    atomic_int parts;
    size_t align, total;
    atomic_int misaligned;
} ranges;

static void mark_range(void *ctx, size_t begin, size_t end, int worker)
{
    (void)worker;
    ranges *r = ctx;
    if (begin % r->align || (end % r->align && end != r->total))
        atomic_fetch_add(&r->misaligned, 1);
    for (size_t i = begin; i < end; i++)
        atomic_fetch_add(&r->covered[i], 1);
    atomic_fetch_add(&r->parts, 1);
}

static void test_ranges_cover_everything_once(void **state)
{
    (void)state;
    static const size_t grains[] = {1, 3, 16, 100, 5000};
    static const size_t aligns[] = {1, 8, 64};
    for (int threads = 1; threads <= 5; threads++)
        for (size_t total = 0; total < MOST; total += 1 + total / 3)
            for (int g = 0; g < 5; g++)
                for (int a = 0; a < 3; a++) {
                    static ranges r;
                    memset(&r, 0, sizeof r);
                    r.align = aligns[a];
                    r.total = total;
                    qn_pool_set_threads(threads);
                    qn_pool_split(mark_range, &r, total, grains[g], aligns[a]);
                    for (size_t i = 0; i < MOST; i++)
                        assert_int_equal(atomic_load(&r.covered[i]), i < total);
                    assert_int_equal(atomic_load(&r.misaligned), 0);
                    int parts = atomic_load(&r.parts);
                    assert_true(parts <= 64 * threads);
                    /* Little work stays on one thread. */
                    if (total && total < 2 * grains[g])
                        assert_int_equal(parts, 1);
                }
    qn_pool_set_threads(0);
}

/* Also with addresses that are none, and fewer threads than before. */
static void test_advice_on_what_is_read_next_changes_nothing(void **state)
{
    (void)state;
    static const char some[4096];
    const void *const from[][QN_POOL_STRETCHES] = {
        {some, some + 2048}, {NULL, some}, {(const void *)(uintptr_t)64, NULL}};
    const size_t bytes[][QN_POOL_STRETCHES] = {
        {2048, 2048}, {SIZE_MAX, 0}, {1 << 20, SIZE_MAX}};
    for (int i = 0; i < 300; i++) {
        static counts c;
        memset(&c, 0, sizeof c);
        qn_pool_set_threads(1 + i % 5);
        qn_pool_next(from[i % 3], bytes[i % 3]);
        qn_pool_run(count_task, &c, 50);
        assert_true(each_ran(&c, 50, 1));
    }
    qn_pool_set_threads(0);
}

static void test_a_forked_child_computes(void **state)
{
    (void)state;
    static counts c;
    qn_pool_set_threads(3);
    memset(&c, 0, sizeof c);
    qn_pool_run(count_task, &c, 64);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        memset(&c, 0, sizeof c);
#ifdef TSAN
        /* Its runtime ends a forked child that starts threads. */
        qn_pool_set_threads(1);
#endif
        alarm(30); /* a deadlock ends the child, and the test */
        qn_pool_run(count_task, &c, 64);
        _exit(each_ran(&c, 64, 1) ? 0 : 1);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    qn_pool_run(count_task, &c, 64);
    assert_true(each_ran(&c, 64, 2));
    qn_pool_set_threads(0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_task_runs_once),
        cmocka_unit_test(test_many_tiny_regions),
        cmocka_unit_test(test_sleeping_workers_wake),
        cmocka_unit_test(test_thread_count_may_change),
        cmocka_unit_test(test_ranges_cover_everything_once),
        cmocka_unit_test(test_advice_on_what_is_read_next_changes_nothing),
        cmocka_unit_test(test_a_forked_child_computes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
