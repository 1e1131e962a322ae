/* Evaluation: order, donation, failures, callbacks, threads. */
#include "fake.h"

#include <pthread.h>

static int clear_log(void **state)
{
    (void)state;
    fake_log.count = fake_log.donated = 0;
    return 0;
}

static void check_log(const int *ops, int count)
{
    assert_int_equal(fake_log.count, count);
    for (int i = 0; i < count; i++)
        assert_int_equal(fake_log.ops[i], ops[i]);
}

static void test_runs_each_node_once_in_program_order(void **state)
{
    (void)state;
    qn_array *x = fake_leaf(1);
    qn_array *a = fake_op(FAKE_INC, x, NULL);
    qn_array *b = fake_op(FAKE_VIEW, a, NULL);
    qn_array *c = fake_op(FAKE_ADD, b, a);
    qn_array *roots[] = {c, a, c, x};
    check_status(qn_eval(roots, 4), QN_OK);
    check_log((int[]){FAKE_INC, FAKE_VIEW, FAKE_ADD}, 3);
    check_value(c, 4);
    assert_int_equal(fake_log.count, 3);
    qn_array_unref(x);
    qn_array_unref(a);
    qn_array_unref(b);
    qn_array_unref(c);
}

static void test_a_chain_reuses_one_buffer(void **state)
{
    (void)state;
    qn_array *x = fake_leaf(0);
    size_t one = qn_memory_active();
    for (int i = 0; i < 50; i++)
        x = fake_then(x, FAKE_INC);
    qn_memory_reset_peak();
    check_value(x, 50);
    assert_int_equal(fake_log.donated, 50);
    assert_int_equal(qn_memory_active(), one);
    qn_array_unref(x);
}

static void test_what_others_hold_is_not_overwritten(void **state)
{
    (void)state;
    /* Held by a handle, by another node, through a view, by the same node. */
    qn_array *x = fake_leaf(1);
    qn_array *y = fake_op(FAKE_INC, x, NULL);
    check_value(y, 2);
    check_value(x, 1);

    qn_array *a = fake_op(FAKE_INC, y, NULL);
    qn_array *b = fake_op(FAKE_INC, y, NULL);
    qn_array_unref(y);
    qn_array *sum = fake_op(FAKE_ADD, a, b);
    qn_array_unref(a);
    qn_array_unref(b);
    check_value(sum, 6);
    qn_array_unref(sum);

    qn_array *view = fake_op(FAKE_VIEW, x, NULL);
    qn_array *z = fake_op(FAKE_INC, view, NULL);
    qn_array_unref(view);
    check_value(z, 2);
    check_value(x, 1);
    qn_array_unref(x);
    qn_array_unref(z);
}

static void test_a_requested_array_keeps_its_value_when_consumed(void **state)
{
    (void)state;
    qn_array *x = fake_leaf(1);
    qn_array *y = fake_then(x, FAKE_INC);
    qn_array *z = fake_op(FAKE_INC, y, NULL);
    qn_array *roots[] = {y, z};
    check_status(qn_eval(roots, 2), QN_OK);
    check_value(y, 2);
    check_value(z, 3);
    qn_array_unref(y);
    qn_array_unref(z);
}

static void test_both_outputs_of_a_node_come_from_one_run(void **state)
{
    (void)state;
    qn_array *x = fake_leaf(5), *out[2];
    fake_split(out, x);
    check_value(out[1], 6);
    assert_true(qn_array_ready(out[0]));
    check_value(out[0], 5);
    assert_int_equal(fake_log.count, 1);
    qn_array_unref(out[0]);
    qn_array_unref(out[1]);
    qn_array_unref(x);
}

static void test_a_failure_stops_there_and_can_be_met_again(void **state)
{
    (void)state;
    qn_array *x = fake_leaf(1);
    qn_array *good = fake_op(FAKE_INC, x, NULL);
    qn_array *bad = fake_op(FAKE_FAIL, good, NULL);
    qn_array *after = fake_op(FAKE_INC, bad, NULL);
    size_t before = qn_memory_active();
    for (int i = 0; i < 2; i++) {
        check_error(qn_eval(&after, 1), QN_E_IO, "the fake operation failed");
        assert_true(qn_array_ready(good));
        assert_false(qn_array_ready(bad));
        assert_false(qn_array_ready(after));
        assert_null(bad->buffer);
    }
    assert_true(qn_memory_active() <= before + 64);
    check_value(good, 2);
    check_value(x, 1);
    qn_array_unref(after);
    qn_array_unref(bad);
    qn_array_unref(good);
    qn_array_unref(x);
}

static void test_a_placeholder_is_refused(void **state)
{
    (void)state;
    qn_array *x;
    check_status(qn_array_new(&x, QN_INT64, fake_shape, 1), QN_OK);
    qn_array *y = fake_op(FAKE_INC, x, NULL);
    check_error(qn_eval(&y, 1), QN_E_ARG, "placeholder");
    check_error(qn_eval(&x, 1), QN_E_ARG, "placeholder");
    qn_array_unref(x);
    qn_array_unref(y);
}

static void test_depth_is_no_limit(void **state)
{
    (void)state;
    enum { DEEP = 300000 };
    qn_array *x = fake_leaf(0);
    for (int i = 0; i < DEEP; i++)
        x = fake_then(x, FAKE_INC);
    check_value(x, DEEP);
    qn_array_unref(x);
}

/* ---- callbacks ---- */

static qn_status eval_another(void *data)
{
    qn_array *other = data;
    return qn_eval(&other, 1);
}

static void test_a_callback_may_evaluate(void **state)
{
    (void)state;
    qn_array *x = fake_leaf(1);
    qn_array *other = fake_op(FAKE_INC, x, NULL);
    qn_array *first = fake_calling(x, (fake_call){eval_another, other});
    /* `other` is on the tape of the outer evaluation as well. */
    qn_array *y = fake_op(FAKE_ADD, first, other);
    check_value(y, 4);
    check_log((int[]){FAKE_CALL, FAKE_INC, FAKE_ADD}, 3);
    qn_array_unref(x);
    qn_array_unref(other);
    qn_array_unref(first);
    qn_array_unref(y);
}

static qn_array *own;

static qn_status eval_own(void *data)
{
    (void)data;
    return qn_eval(&own, 1);
}

static void test_a_callback_can_not_ask_for_its_own_array(void **state)
{
    (void)state;
    qn_array *x = fake_leaf(1);
    own = fake_calling(x, (fake_call){eval_own, NULL});
    check_error(qn_eval(&own, 1), QN_E_ARG, "callback");
    qn_array_unref(own);
    qn_array_unref(x);
}

static qn_status wait_for_stream(void *data)
{
    (void)data;
    return qn_stream_synchronize(fake_stream);
}

static void test_a_callback_may_wait_for_its_stream(void **state)
{
    (void)state;
    qn_array *x = fake_leaf(1);
    qn_array *y = fake_calling(x, (fake_call){wait_for_stream, NULL});
    check_value(y, 2);
    qn_array_unref(y);
    /* The same on the worker's thread. */
    y = fake_calling(x, (fake_call){wait_for_stream, NULL});
    check_status(qn_eval_async(&y, 1), QN_OK);
    check_status(qn_stream_synchronize(fake_stream), QN_OK);
    assert_true(qn_array_ready(y));
    qn_array_unref(y);
    qn_array_unref(x);
}

/* A destructor that needs another thread's evaluation to get on. */

static int destroyed;

static void *eval_elsewhere(void *data)
{
    qn_array *a = data;
    check_status(qn_eval(&a, 1), QN_OK);
    return NULL;
}

static void destroy_with_a_thread(void *payload)
{
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, eval_elsewhere, payload), 0);
    pthread_join(thread, NULL);
    destroyed++;
}

static void test_a_destructor_may_wait_for_another_evaluation(void **state)
{
    (void)state;
    static int64_t data[4] = {1, 1, 1, 1};
    qn_array *leaf = fake_leaf(1), *x;
    qn_array *needed = fake_op(FAKE_INC, leaf, NULL);
    destroyed = 0;
    check_status(qn_array_from_managed(&x, data, fake_shape, 1, QN_INT64,
                                       needed, destroy_with_a_thread),
                 QN_OK);
    qn_array *y = fake_then(x, FAKE_INC); /* the node alone holds x */
    check_value(y, 2);
    assert_int_equal(destroyed, 1);
    assert_true(qn_array_ready(needed));
    qn_array_unref(y);
    qn_array_unref(needed);
    qn_array_unref(leaf);
}

/* ---- threads ---- */

enum { THREADS = 8, ROUNDS = 300 };

static void *eval_shared(void *data)
{
    qn_array *y = data;
    check_value(y, 3);
    return NULL;
}

static void test_threads_may_evaluate_one_array(void **state)
{
    (void)state;
    for (int round = 0; round < ROUNDS; round++) {
        qn_array *x = fake_leaf(1);
        qn_array *y = fake_then(fake_then(x, FAKE_INC), FAKE_INC);
        pthread_t threads[2];
        for (int i = 0; i < 2; i++)
            assert_int_equal(pthread_create(&threads[i], NULL, eval_shared, y),
                             0);
        for (int i = 0; i < 2; i++)
            pthread_join(threads[i], NULL);
        qn_array_unref(y);
    }
}

static pthread_barrier_t barrier;
static qn_array *shared[2];

static void *drop_one(void *unused)
{
    (void)unused;
    for (int round = 0; round < ROUNDS; round++) {
        pthread_barrier_wait(&barrier);
        qn_array_unref(shared[0]);
        pthread_barrier_wait(&barrier);
    }
    return NULL;
}

/* One thread lets an output go while another computes it. */
static void test_an_output_may_be_dropped_while_it_is_computed(void **state)
{
    (void)state;
    pthread_t thread;
    pthread_barrier_init(&barrier, NULL, 2);
    assert_int_equal(pthread_create(&thread, NULL, drop_one, NULL), 0);
    qn_array *x = fake_leaf(1);
    for (int round = 0; round < ROUNDS; round++) {
        fake_split(shared, x);
        pthread_barrier_wait(&barrier);
        check_value(shared[1], 2);
        qn_array_unref(shared[1]);
        pthread_barrier_wait(&barrier);
    }
    pthread_join(thread, NULL);
    pthread_barrier_destroy(&barrier);
    assert_int_equal(atomic_load(&x->refs), 1);
    qn_array_unref(x);
}

static void *work_alone(void *data)
{
    qn_array *leaf = data;
    for (int round = 0; round < ROUNDS; round++) {
        qn_array *a = fake_op(FAKE_INC, leaf, NULL);
        qn_array *b = fake_op(FAKE_ADD, a, leaf);
        qn_array_unref(a);
        if (round % 3 == 0)
            check_status(qn_eval_async(&b, 1), QN_OK);
        check_value(b, 3);
        qn_array_unref(b);
    }
    return NULL;
}

static void test_threads_build_and_evaluate_at_once(void **state)
{
    (void)state;
    qn_array *leaf = fake_leaf(1);
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, work_alone, leaf),
                         0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    check_status(qn_stream_synchronize(fake_stream), QN_OK);
    assert_int_equal(atomic_load(&leaf->refs), 1);
    qn_array_unref(leaf);
}

/* ---- memory ---- */

static qn_array *leaf;

static qn_status build_and_eval(void)
{
    qn_node_spec spec = fake_spec(FAKE_INC, &leaf, 1);
    qn_array *a, *b;
    qn_memory_clear_cache();
    qn_status status = qn_node_new(&a, &spec, QN_INT64, fake_shape, 1);
    if (status)
        return status;
    spec = fake_spec(FAKE_INC, &a, 1);
    status = qn_node_new(&b, &spec, QN_INT64, fake_shape, 1);
    qn_array_unref(a);
    if (status)
        return status;
    status = qn_eval(&b, 1);
    qn_array_unref(b);
    return status;
}

static void test_survives_failing_allocations(void **state)
{
    (void)state;
    leaf = fake_leaf(1);
    size_t active = qn_memory_active();
    each_alloc_may_fail(build_and_eval);
    assert_int_equal(qn_memory_active(), active);
    assert_int_equal(atomic_load(&leaf->refs), 1);
    qn_array_unref(leaf);
}

/* ---- what is waited for at the end ---- */

static struct {
    int runs, seen, nodes; /* nodes: that had run before the last */
    qn_status answer;
} ended;

static qn_status at_end(void)
{
    ended.runs++;
    ended.nodes = fake_log.count;
    return ended.answer ? qn_fail(ended.answer, "never arrived") : QN_OK;
}

static qn_eval_end_hook hook = {.run = at_end};

static qn_status ask_for_the_end(void *data)
{
    qn_array *inner = data;
    qn_eval_at_end(&hook);
    qn_eval_at_end(&hook);
    qn_status status = inner ? qn_eval(&inner, 1) : QN_OK;
    ended.seen = ended.runs;
    return status;
}

static void test_hooks_run_once_when_the_outermost_ends(void **state)
{
    (void)state;
    memset(&ended, 0, sizeof ended);
    qn_array *a = fake_leaf(1), *inner = fake_op(FAKE_INC, a, NULL);
    qn_array *b = fake_calling(a, (fake_call){ask_for_the_end, inner});
    b = fake_then(b, FAKE_INC);
    check_value(b, 3);
    assert_int_equal(ended.seen, 0); /* not by the evaluation inside */
    assert_int_equal(ended.runs, 1);
    assert_int_equal(ended.nodes, 3);
    qn_array *c = fake_op(FAKE_INC, a, NULL);
    check_value(c, 2);
    assert_int_equal(ended.runs, 1); /* nobody has asked again */
    qn_array_unref(a);
    qn_array_unref(b);
    qn_array_unref(c);
    qn_array_unref(inner);
}

static void test_hooks_wait_for_the_next_success(void **state)
{
    (void)state;
    memset(&ended, 0, sizeof ended);
    qn_array *a = fake_leaf(1);
    qn_array *b = fake_calling(a, (fake_call){ask_for_the_end, NULL});
    b = fake_then(b, FAKE_FAIL);
    check_status(qn_eval(&b, 1), QN_E_IO);
    assert_int_equal(ended.runs, 0);
    qn_array *c = fake_op(FAKE_INC, a, NULL);
    ended.answer = QN_E_MISMATCH;
    check_error(qn_eval(&c, 1), QN_E_MISMATCH, "never arrived");
    assert_int_equal(ended.runs, 1);
    check_value(c, 2);
    qn_array_unref(a);
    qn_array_unref(b);
    qn_array_unref(c);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup(name, clear_log)
    const struct CMUnitTest tests[] = {
        TEST(test_survives_failing_allocations),
        TEST(test_runs_each_node_once_in_program_order),
        TEST(test_a_chain_reuses_one_buffer),
        TEST(test_what_others_hold_is_not_overwritten),
        TEST(test_a_requested_array_keeps_its_value_when_consumed),
        TEST(test_both_outputs_of_a_node_come_from_one_run),
        TEST(test_a_failure_stops_there_and_can_be_met_again),
        TEST(test_a_placeholder_is_refused),
        TEST(test_depth_is_no_limit),
        TEST(test_a_callback_may_evaluate),
        TEST(test_a_callback_can_not_ask_for_its_own_array),
        TEST(test_a_callback_may_wait_for_its_stream),
        TEST(test_a_destructor_may_wait_for_another_evaluation),
        TEST(test_threads_may_evaluate_one_array),
        TEST(test_an_output_may_be_dropped_while_it_is_computed),
        TEST(test_threads_build_and_evaluate_at_once),
        TEST(test_hooks_run_once_when_the_outermost_ends),
        TEST(test_hooks_wait_for_the_next_success),
    };
    return cmocka_run_group_tests(tests, fake_setup, NULL);
}
