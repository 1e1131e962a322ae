/* Evaluations handed over: results, kept errors, waiting, destructors. */
#include "fake.h"

#include "core/async.h"

#include <pthread.h>
#include <stdatomic.h>

static int synchronize(void **state)
{
    (void)state;
    check_status(qn_stream_synchronize(fake_stream), QN_OK);
    return 0;
}

static void test_work_is_done_by_the_next_wait(void **state)
{
    (void)state;
    qn_array *x = fake_then(fake_leaf(1), FAKE_INC);
    check_status(qn_eval_async(&x, 1), QN_OK);
    check_status(qn_stream_synchronize(fake_stream), QN_OK);
    assert_true(qn_array_ready(x));
    check_value(x, 2);
    qn_array_unref(x);
}

static void test_the_array_may_be_freed_at_once(void **state)
{
    (void)state;
    size_t active = qn_memory_active();
    qn_array *x = fake_then(fake_leaf(1), FAKE_INC);
    check_status(qn_eval_async(&x, 1), QN_OK);
    qn_array_unref(x);
    check_status(qn_stream_synchronize(fake_stream), QN_OK);
    assert_int_equal(qn_memory_active(), active);
}

static void test_results_feed_what_is_built_meanwhile(void **state)
{
    (void)state;
    qn_array *x = fake_leaf(0);
    for (int i = 0; i < 200; i++) {
        x = fake_then(x, FAKE_INC);
        check_status(qn_eval_async(&x, 1), QN_OK);
        if (i % 10 == 9)
            check_value(x, i + 1);
    }
    check_value(x, 200);
    qn_array_unref(x);
}

/* ---- errors ---- */

static qn_array *failing(void)
{
    return fake_then(fake_leaf(1), FAKE_FAIL);
}

static void test_an_error_is_delivered_once_by_synchronize(void **state)
{
    (void)state;
    qn_array *x = failing();
    qn_error_clear();
    check_status(qn_eval_async(&x, 1), QN_OK);
    check_error(qn_stream_synchronize(fake_stream), QN_E_IO,
                "the fake operation failed");
    check_status(qn_stream_synchronize(fake_stream), QN_OK);
    qn_array_unref(x);
}

static void
test_an_error_is_delivered_by_an_evaluation_on_its_stream(void **state)
{
    (void)state;
    qn_array *x = failing(), *y = fake_then(fake_leaf(1), FAKE_INC);
    check_status(qn_eval_async(&x, 1), QN_OK);
    qn_async_wait();
    check_error(qn_eval(&y, 1), QN_E_IO, "the fake operation failed");
    check_value(y, 2);
    qn_array_unref(x);
    qn_array_unref(y);
}

static void test_an_error_stays_with_its_stream(void **state)
{
    (void)state;
    qn_stream *other;
    check_status(qn_stream_new(&other, (qn_device){QN_DEVICE_CPU, 0}), QN_OK);
    qn_array *x = failing();
    check_status(qn_eval_async(&x, 1), QN_OK);
    check_status(qn_stream_synchronize(other), QN_OK);
    qn_array *leaf = fake_leaf(1), *y;
    qn_node_spec spec = fake_spec(FAKE_INC, &leaf, 1);
    spec.stream = other;
    check_status(qn_node_new(&y, &spec, QN_INT64, fake_shape, 1), QN_OK);
    check_value(y, 2);
    check_status(qn_stream_synchronize(fake_stream), QN_E_IO);
    qn_array_unref(x);
    qn_array_unref(y);
    qn_array_unref(leaf);
}

static void test_the_first_error_is_the_one_that_is_kept(void **state)
{
    (void)state;
    qn_array *x = failing();
    qn_array *placeholder;
    check_status(qn_array_new(&placeholder, QN_INT64, fake_shape, 1), QN_OK);
    qn_array *y = fake_then(placeholder, FAKE_INC);
    check_status(qn_eval_async(&x, 1), QN_OK);
    check_status(qn_eval_async(&y, 1), QN_OK);
    check_error(qn_stream_synchronize(fake_stream), QN_E_IO,
                "the fake operation failed");
    qn_array_unref(x);
    qn_array_unref(y);
}

/* ---- who waits for whom ---- */

static atomic_bool may_go;

static qn_status hold_up(void *data)
{
    (void)data;
    while (!atomic_load(&may_go))
        usleep(1000);
    return QN_OK;
}

/* Not held up by what was handed over after it. */
static void test_a_ready_array_is_not_waited_for(void **state)
{
    (void)state;
    qn_array *first = fake_then(fake_leaf(1), FAKE_INC);
    qn_array *second = fake_calling(first, (fake_call){hold_up, NULL});
    atomic_store(&may_go, false);
    check_status(qn_eval_async(&first, 1), QN_OK);
    check_status(qn_eval_async(&second, 1), QN_OK);
    check_value(first, 2);
    assert_false(qn_array_ready(second));
    atomic_store(&may_go, true);
    check_value(second, 3);
    qn_array_unref(first);
    qn_array_unref(second);
}

static atomic_int destroyed;

static void *wait_elsewhere(void *unused)
{
    check_status(qn_stream_synchronize(fake_stream), QN_OK);
    return unused;
}

/* On the worker's thread: hands over more work and lets another thread wait
 * for it. */
static void destroy_and_wait(void *payload)
{
    (void)payload;
    qn_array *x = fake_then(fake_leaf(1), FAKE_INC);
    pthread_t thread;
    check_status(qn_eval_async(&x, 1), QN_OK);
    assert_int_equal(pthread_create(&thread, NULL, wait_elsewhere, NULL), 0);
    pthread_join(thread, NULL);
    assert_true(qn_array_ready(x));
    qn_array_unref(x);
    atomic_fetch_add(&destroyed, 1);
}

static void test_a_destructor_on_the_worker_may_wait_for_more_work(void **state)
{
    (void)state;
    static int64_t data[4];
    qn_array *x;
    atomic_store(&destroyed, 0);
    check_status(qn_array_from_managed(&x, data, fake_shape, 1, QN_INT64, NULL,
                                       destroy_and_wait),
                 QN_OK);
    qn_array *y = fake_then(x, FAKE_INC);
    check_status(qn_eval_async(&y, 1), QN_OK);
    qn_array_unref(y);
    check_status(qn_stream_synchronize(fake_stream), QN_OK);
    for (int i = 0; i < 60000 && !atomic_load(&destroyed); i++)
        usleep(1000);
    assert_int_equal(atomic_load(&destroyed), 1);
}

/* ---- memory ---- */

static qn_array *leaf;

static qn_status hand_over(void)
{
    qn_node_spec spec = fake_spec(FAKE_INC, &leaf, 1);
    qn_array *x;
    qn_status status = qn_node_new(&x, &spec, QN_INT64, fake_shape, 1);
    if (status)
        return status;
    status = qn_eval_async(&x, 1);
    qn_array_unref(x);
    qn_status waited = qn_stream_synchronize(fake_stream);
    return status ? status : waited;
}

static void test_survives_failing_allocations(void **state)
{
    (void)state;
    leaf = fake_leaf(1);
    each_alloc_may_fail(hand_over);
    assert_int_equal(atomic_load(&leaf->refs), 1);
    qn_array_unref(leaf);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_teardown(name, synchronize)
    const struct CMUnitTest tests[] = {
        TEST(test_work_is_done_by_the_next_wait),
        TEST(test_the_array_may_be_freed_at_once),
        TEST(test_results_feed_what_is_built_meanwhile),
        TEST(test_an_error_is_delivered_once_by_synchronize),
        TEST(test_an_error_is_delivered_by_an_evaluation_on_its_stream),
        TEST(test_an_error_stays_with_its_stream),
        TEST(test_the_first_error_is_the_one_that_is_kept),
        TEST(test_a_ready_array_is_not_waited_for),
        TEST(test_a_destructor_on_the_worker_may_wait_for_more_work),
        TEST(test_survives_failing_allocations),
    };
    return cmocka_run_group_tests(tests, fake_setup, NULL);
}
