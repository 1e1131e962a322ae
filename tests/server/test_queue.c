/* Whose turn it is. */
#include "server/queue.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static qn_place places[8];

static void add(qn_queue *q, int which, size_t lane)
{
    places[which].lane = lane;
    qn_queue_add(q, &places[which]);
}

/* Takes the next one and tells which it is; -1: nobody. */
static int take(qn_queue *q)
{
    qn_place *place = qn_queue_next(q, 0);
    if (!place)
        return -1;
    assert_true(qn_queue_remove(q, place));
    qn_queue_begin(q, place->lane);
    return (int)(place - places);
}

static void test_one_lane_is_first_come_first_served(void **state)
{
    (void)state;
    qn_queue q = {0};
    assert_int_equal(qn_queue_lanes(&q, 1), QN_OK);
    for (int i = 0; i < 3; i++)
        add(&q, i, 0);
    assert_int_equal(q.count, 3);
    for (int i = 0; i < 3; i++)
        assert_int_equal(take(&q), i);
    assert_int_equal(take(&q), -1);
    assert_int_equal(q.count, 0);
    qn_queue_free(&q);
}

static void test_lane_that_got_less_is_next(void **state)
{
    (void)state;
    qn_queue q = {0};
    assert_int_equal(qn_queue_lanes(&q, 2), QN_OK);
    add(&q, 0, 0);
    add(&q, 1, 0);
    add(&q, 2, 1);
    add(&q, 3, 1);
    assert_int_equal(take(&q), 0);
    qn_queue_charge(&q, 0, 100);
    assert_int_equal(take(&q), 2);
    qn_queue_charge(&q, 1, 30);
    assert_int_equal(take(&q), 3);
    qn_queue_charge(&q, 1, 200);
    assert_int_equal(take(&q), 1);
    qn_queue_free(&q);
}

static void test_idle_lane_saves_nothing_up(void **state)
{
    (void)state;
    qn_queue q = {0};
    assert_int_equal(qn_queue_lanes(&q, 2), QN_OK);
    add(&q, 0, 0);
    assert_int_equal(take(&q), 0);
    qn_queue_charge(&q, 0, 1000);
    /* It comes late, and is level with the other one. */
    add(&q, 1, 1);
    assert_int_equal(q.lanes[1].served, 1000);
    add(&q, 2, 0);
    assert_int_equal(take(&q), 2);
    qn_queue_free(&q);
}

static void test_call_leaves_from_the_middle(void **state)
{
    (void)state;
    qn_queue q = {0};
    assert_int_equal(qn_queue_lanes(&q, 1), QN_OK);
    for (int i = 0; i < 3; i++)
        add(&q, i, 0);
    assert_true(qn_queue_remove(&q, &places[1]));
    assert_false(qn_queue_remove(&q, &places[1]));
    assert_true(qn_queue_remove(&q, &places[2]));
    add(&q, 3, 0);
    assert_int_equal(take(&q), 0);
    assert_int_equal(take(&q), 3);
    qn_queue_free(&q);
}

static void test_more_lanes_keep_who_waits(void **state)
{
    (void)state;
    qn_queue q = {0};
    assert_int_equal(qn_queue_lanes(&q, 1), QN_OK);
    add(&q, 0, 0);
    assert_int_equal(qn_queue_lanes(&q, 3), QN_OK);
    add(&q, 1, 0);
    add(&q, 2, 2);
    assert_int_equal(take(&q), 0);
    assert_int_equal(take(&q), 1);
    assert_int_equal(take(&q), 2);
    qn_queue_free(&q);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_lane_is_first_come_first_served),
        cmocka_unit_test(test_lane_that_got_less_is_next),
        cmocka_unit_test(test_idle_lane_saves_nothing_up),
        cmocka_unit_test(test_call_leaves_from_the_middle),
        cmocka_unit_test(test_more_lanes_keep_who_waits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
