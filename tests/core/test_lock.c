/* What a forked child finds: whole data, free locks, no worker. */
#include "fake.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>

#if defined(__SANITIZE_THREAD__)
#define TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define TSAN 1
#endif
#endif

/* Runs `child` in a forked process and expects it to end well. */
static void check_child(int (*child)(void))
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (!pid) {
        alarm(30); /* a deadlock ends the child, and the test */
        _exit(child());
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* Without cmocka's assertions, which would run the parent's tests on. */
static int eval_new(void)
{
    qn_array *x = fake_then(fake_leaf(1), FAKE_INC);
    int rc = qn_eval(&x, 1) || fake_data(x)[3] != 2;
    qn_array_unref(x);
    return rc;
}

static atomic_bool stop;

static void *busy(void *unused)
{
    while (!atomic_load(&stop)) {
        qn_array *x = fake_then(fake_leaf(1), FAKE_INC);
        check_status(qn_eval_async(&x, 1), QN_OK);
        check_value(x, 2);
        qn_array_unref(x);
    }
    return unused;
}

static void test_a_child_can_evaluate(void **state)
{
    (void)state;
    assert_int_equal(eval_new(), 0);
    check_child(eval_new);
    assert_int_equal(eval_new(), 0);
}

static void test_a_child_of_a_busy_process_can_evaluate(void **state)
{
    (void)state;
    pthread_t threads[2];
    atomic_store(&stop, false);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, busy, NULL), 0);
    for (int i = 0; i < 10; i++)
        check_child(eval_new);
    atomic_store(&stop, true);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
}

static atomic_bool may_go;

static qn_status hold_up(void *data)
{
    (void)data;
    while (!atomic_load(&may_go))
        usleep(1000);
    return QN_OK;
}

static void *release_soon(void *unused)
{
    usleep(50000);
    atomic_store(&may_go, true);
    return unused;
}

static qn_array *handed_over;

static int finish_what_was_handed_over(void)
{
    /* Nobody else would, if the first task had not even begun. */
    atomic_store(&may_go, true);
    int rc = eval_new();
    rc = rc || qn_stream_synchronize(fake_stream);
    rc = rc || !qn_array_ready(handed_over);
    return rc || fake_data(handed_over)[0] != 2;
}

static void test_a_child_can_wait_for_what_its_parent_handed_over(void **state)
{
    (void)state;
    /* The worker is inside the first task, so the second may still be queued
     * when the fork, which waits for the evaluation to end, happens. */
    qn_array *x = fake_leaf(1);
    qn_array *first = fake_calling(x, (fake_call){hold_up, NULL});
    handed_over = fake_op(FAKE_INC, x, NULL);
    atomic_store(&may_go, false);
    check_status(qn_eval_async(&first, 1), QN_OK);
    check_status(qn_eval_async(&handed_over, 1), QN_OK);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, release_soon, NULL), 0);
    check_child(finish_what_was_handed_over);
    pthread_join(thread, NULL);
    check_value(handed_over, 2);
    qn_array_unref(first);
    qn_array_unref(handed_over);
    qn_array_unref(x);
}

static qn_status fork_inside(void *data)
{
    (void)data;
    check_child(eval_new);
    return QN_OK;
}

static void test_a_callback_may_fork(void **state)
{
    (void)state;
    qn_array *x = fake_leaf(1);
    qn_array *y = fake_calling(x, (fake_call){fork_inside, NULL});
    check_value(y, 2);
    qn_array_unref(x);
    qn_array_unref(y);
}

int main(void)
{
#ifdef TSAN
    /* It refuses threads in the child of a process that had some. */
    return 0;
#endif
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_child_can_evaluate),
        cmocka_unit_test(test_a_child_of_a_busy_process_can_evaluate),
        cmocka_unit_test(test_a_child_can_wait_for_what_its_parent_handed_over),
        cmocka_unit_test(test_a_callback_may_fork),
    };
    return cmocka_run_group_tests(tests, fake_setup, NULL);
}
