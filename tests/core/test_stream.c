/* Streams: numbers, the threads' defaults, families, devices without one. */
#include "fake.h"

#include <pthread.h>

static const qn_device cpu = {QN_DEVICE_CPU, 0};
static const qn_device gpu = {QN_DEVICE_GPU, 0};

static void test_each_stream_has_its_own_number(void **state)
{
    (void)state;
    qn_stream *a, *b;
    check_status(qn_stream_new(&a, cpu), QN_OK);
    check_status(qn_stream_new(&b, cpu), QN_OK);
    assert_int_not_equal(qn_stream_index(a), qn_stream_index(b));
    assert_int_equal(qn_stream_device(a).type, QN_DEVICE_CPU);
}

static void test_a_device_without_a_backend_has_no_streams(void **state)
{
    (void)state;
    qn_stream *s = NULL;
    check_error(qn_stream_new(&s, gpu), QN_E_ARG,
                "[new_stream] Cannot make gpu stream without gpu backend.");
    check_error(qn_stream_default(&s, gpu), QN_E_ARG,
                "[default_stream] Cannot get gpu default stream without gpu "
                "backend.");
    check_error(qn_device_set_default(gpu), QN_E_ARG,
                "[set_default_device] Cannot set gpu device");
    check_error(qn_stream_new(&s, (qn_device){QN_DEVICE_CPU, 1}), QN_E_ARG,
                "(cpu, 1)");
    check_error(qn_stream_new(&s, (qn_device){QN_DEVICE_CPU, -1}), QN_E_ARG,
                "(cpu, -1)");
    assert_null(s);
    assert_int_equal(qn_device_default().type, QN_DEVICE_CPU);
}

static void test_a_device_with_a_backend_can_be_the_default(void **state)
{
    (void)state;
    qn_backend_register(QN_DEVICE_GPU, &fake_backend);
    check_status(qn_device_set_default(gpu), QN_OK);
    assert_int_equal(qn_device_default().type, QN_DEVICE_GPU);
    qn_stream *s;
    check_status(qn_stream_default(&s, gpu), QN_OK);
    assert_int_equal(qn_stream_device(s).type, QN_DEVICE_GPU);
    check_status(qn_device_set_default(cpu), QN_OK);
    qn_backend_register(QN_DEVICE_GPU, NULL);
}

static void *other_default(void *data)
{
    qn_stream **s = data;
    qn_stream *again;
    check_status(qn_stream_default(s, cpu), QN_OK);
    check_status(qn_stream_default(&again, cpu), QN_OK);
    assert_ptr_equal(*s, again);
    return NULL;
}

static void test_each_thread_has_its_default(void **state)
{
    (void)state;
    qn_stream *mine, *again, *other, *chosen;
    check_status(qn_stream_default(&mine, cpu), QN_OK);
    check_status(qn_stream_default(&again, cpu), QN_OK);
    assert_ptr_equal(mine, again);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, other_default, &other), 0);
    pthread_join(thread, NULL);
    assert_ptr_not_equal(mine, other);

    check_status(qn_stream_new(&chosen, cpu), QN_OK);
    qn_stream_set_default(chosen);
    check_status(qn_stream_default(&again, cpu), QN_OK);
    assert_ptr_equal(again, chosen);
    qn_stream_set_default(mine);
}

typedef struct family {
    uint64_t number;
    qn_stream *stream;
} family;

static void *member(void *data)
{
    family *f = data;
    check_status(qn_stream_of_family(&f->stream, cpu, f->number), QN_OK);
    return NULL;
}

static void test_a_family_has_one_stream_per_thread(void **state)
{
    (void)state;
    family a = {.number = qn_stream_new_family()};
    family b = {.number = qn_stream_new_family()};
    member(&a);
    qn_stream *first = a.stream;
    member(&a);
    assert_ptr_equal(a.stream, first);
    member(&b);
    assert_ptr_not_equal(b.stream, first);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, member, &a), 0);
    pthread_join(thread, NULL);
    assert_ptr_not_equal(a.stream, first);
}

static void test_forgetting_brings_new_streams(void **state)
{
    (void)state;
    qn_stream *before, *after;
    family a = {.number = qn_stream_new_family()};
    member(&a);
    qn_stream *first = a.stream;
    check_status(qn_stream_default(&before, cpu), QN_OK);
    qn_stream_forget();
    check_status(qn_stream_default(&after, cpu), QN_OK);
    assert_ptr_not_equal(before, after);
    member(&a);
    assert_ptr_not_equal(a.stream, first);
    /* The old ones still work. */
    qn_array *x = fake_leaf(1);
    qn_node_spec spec = fake_spec(FAKE_INC, &x, 1);
    spec.stream = before;
    qn_array *y;
    check_status(qn_node_new(&y, &spec, QN_INT64, fake_shape, 1), QN_OK);
    check_value(y, 2);
    qn_array_unref(x);
    qn_array_unref(y);
}

typedef struct count {
    int seen, stop_after, last_index;
} count;

static qn_status visit(qn_stream *stream, void *data)
{
    count *c = data;
    assert_true(qn_stream_index(stream) > c->last_index);
    c->last_index = qn_stream_index(stream);
    return ++c->seen == c->stop_after ? QN_E_CANCELLED : QN_OK;
}

static void test_all_streams_are_listed_in_order(void **state)
{
    (void)state;
    count before = {.last_index = -1}, after = before, cut = before;
    check_status(qn_stream_each(visit, &before), QN_OK);
    qn_stream *s;
    check_status(qn_stream_new(&s, cpu), QN_OK);
    check_status(qn_stream_each(visit, &after), QN_OK);
    assert_int_equal(after.seen, before.seen + 1);
    assert_int_equal(after.last_index, qn_stream_index(s));
    cut.stop_after = 1;
    check_status(qn_stream_each(visit, &cut), QN_E_CANCELLED);
    assert_int_equal(cut.seen, 1);
}

/* ---- a backend that launches ---- */

static int launched, waited;
static qn_status wait_status;

static qn_status launch(qn_node *node)
{
    launched++;
    return fake_run(node);
}

static qn_status wait_for_launched(qn_stream *stream)
{
    (void)stream;
    waited++;
    return wait_status ? qn_fail(wait_status, "the device failed") : QN_OK;
}

static const qn_backend launching = {
    .name = "launching", .run = launch, .synchronize = wait_for_launched};

static void test_an_evaluation_waits_for_what_it_launched(void **state)
{
    (void)state;
    qn_backend_register(QN_DEVICE_CPU, &launching);
    qn_array *x = fake_leaf(0);
    /* More streams than the evaluation keeps in mind at a time. */
    for (int i = 0; i < 20; i++) {
        qn_node_spec spec = fake_spec(FAKE_INC, &x, 1);
        qn_array *next;
        check_status(qn_stream_new(&spec.stream, cpu), QN_OK);
        check_status(qn_node_new(&next, &spec, QN_INT64, fake_shape, 1), QN_OK);
        qn_array_unref(x);
        x = next;
    }
    launched = waited = 0;
    check_value(x, 20);
    assert_int_equal(launched, 20);
    assert_int_equal(waited, 20);
    x = fake_then(x, FAKE_INC);
    wait_status = QN_E_IO;
    check_error(qn_eval(&x, 1), QN_E_IO, "the device failed");
    check_error(qn_stream_synchronize(fake_stream), QN_E_IO,
                "the device failed");
    wait_status = QN_OK;
    qn_array_unref(x);
    qn_backend_register(QN_DEVICE_CPU, &fake_backend);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_stream_has_its_own_number),
        cmocka_unit_test(test_a_device_without_a_backend_has_no_streams),
        cmocka_unit_test(test_a_device_with_a_backend_can_be_the_default),
        cmocka_unit_test(test_each_thread_has_its_default),
        cmocka_unit_test(test_a_family_has_one_stream_per_thread),
        cmocka_unit_test(test_forgetting_brings_new_streams),
        cmocka_unit_test(test_all_streams_are_listed_in_order),
        cmocka_unit_test(test_an_evaluation_waits_for_what_it_launched),
    };
    return cmocka_run_group_tests(tests, fake_setup, NULL);
}
