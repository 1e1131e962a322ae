/* When other people's destructors run. */
#include "support/qn_test.h"

#include "core/defer.h"

typedef struct item {
    qn_deferred deferred;
    struct item *holds; /* let go of by its destructor */
    int order;          /* 0: not yet */
} item;

static int order;
static int depth, deepest;

static void destroy(qn_deferred *self)
{
    item *i = (item *)self;
    if (++depth > deepest)
        deepest = depth;
    i->order = ++order;
    if (i->holds)
        qn_defer(&i->holds->deferred);
    qn_fail(QN_E_IO, "a destructor failed");
    depth--;
}

static item new_item(item *holds)
{
    return (item){.deferred.run = destroy, .holds = holds};
}

static int reset(void **state)
{
    (void)state;
    order = depth = deepest = 0;
    return 0;
}

static void test_runs_at_once_where_nothing_is_held(void **state)
{
    (void)state;
    item a = new_item(NULL);
    qn_defer(&a.deferred);
    assert_int_equal(a.order, 1);
}

static void test_waits_for_the_outermost_end(void **state)
{
    (void)state;
    item a = new_item(NULL), b = new_item(NULL);
    qn_defer_begin();
    qn_defer(&a.deferred);
    qn_defer_begin();
    qn_defer(&b.deferred);
    qn_defer_end();
    assert_int_equal(a.order + b.order, 0);
    assert_true(qn_defer_pending());
    qn_defer_end();
    assert_int_equal(a.order, 1);
    assert_int_equal(b.order, 2);
    assert_false(qn_defer_pending());
}

static void test_a_chain_does_not_recurse(void **state)
{
    (void)state;
    item items[100];
    for (int i = 0; i < 100; i++)
        items[i] = new_item(i < 99 ? &items[i + 1] : NULL);
    qn_defer(&items[0].deferred);
    assert_int_equal(items[99].order, 100);
    assert_int_equal(deepest, 1);
}

static void test_keeps_the_recorded_error(void **state)
{
    (void)state;
    item a = new_item(NULL), b = new_item(NULL);
    qn_fail(QN_E_ARG, "the cause");
    qn_defer(&a.deferred);
    assert_string_equal(qn_error_text(), "the cause");
    qn_defer_begin();
    qn_defer(&b.deferred);
    qn_defer_end();
    assert_int_equal(b.order, 2);
    assert_string_equal(qn_error_text(), "the cause");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_runs_at_once_where_nothing_is_held, reset),
        cmocka_unit_test_setup(test_waits_for_the_outermost_end, reset),
        cmocka_unit_test_setup(test_a_chain_does_not_recurse, reset),
        cmocka_unit_test_setup(test_keeps_the_recorded_error, reset),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
