/* Which models are loaded, and who gets them when: the registry with its loop
 * and workers, without HTTP. */
#include "server/models.h"
#include "server/state.h"

#include "base/alloc.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define TINY QN_TEST_VECTORS "/cases/fixtures/models/tiny"

enum { MODELS = 3, SIZE = 1000 };

static qn_server server;
static bool started;
static int loads[MODELS];
static bool broken[MODELS];

/* ---- a configuration ---- */

static quern_status open_tiny(bool headers, quern_model **out,
                              quern_error *error)
{
    quern_options options;
    quern_options_init(&options);
    options.headers_only = headers;
    return quern_model_load(out, TINY, &options, error);
}

static quern_status headers(void *data, size_t model, quern_model **out,
                            quern_error *error)
{
    (void)data;
    (void)model;
    return open_tiny(true, out, error);
}

static quern_status plan(void *data, size_t model, const quern_model *m,
                         int64_t ctx, qn_model_plan *out, quern_error *error)
{
    (void)data;
    (void)model;
    (void)m;
    (void)error;
    *out = (qn_model_plan){.ctx = ctx ? ctx : 256,
                           .parallel = 1,
                           .fit = {.required = SIZE, .fits = true}};
    return QUERN_OK;
}

static quern_status load(void *data, size_t model, const qn_model_plan *p,
                         quern_model **out, quern_error *error)
{
    (void)data;
    (void)p;
    loads[model]++;
    if (broken[model]) {
        *error = (quern_error){.status = QUERN_E_FORMAT, .message = "broken"};
        return error->status;
    }
    return open_tiny(false, out, error);
}

static void settle(void *data, quern_request *defaults)
{
    (void)data;
    (void)defaults;
}

static int ready(void *data, const qn_server_ready *r)
{
    (void)data;
    (void)r;
    started = true;
    return 0;
}

static int set_up(void **state)
{
    static const qn_server_model models[MODELS] = {
        {.id = "a"}, {.id = "b"}, {.id = "c"}};
    static const qn_server_alias aliases[] = {{"alias", 1}};
    (void)state;
    server = (qn_server){.config = {.models = models,
                                    .model_count = MODELS,
                                    .aliases = aliases,
                                    .alias_count = 1,
                                    .many = true,
                                    /* room for two */
                                    .machine = {.usable = 2 * SIZE + 1},
                                    .log_level = QUERN_LOG_ERROR,
                                    .headers = headers,
                                    .plan = plan,
                                    .load = load,
                                    .settle = settle,
                                    .ready = ready}};
    started = false;
    memset(loads, 0, sizeof loads);
    memset(broken, 0, sizeof broken);
    assert_int_equal(qn_loop_new(&server.loop), QN_OK);
    assert_int_equal(qn_workers_new(&server.workers, 2), QN_OK);
    assert_int_equal(qn_models_init(&server), QN_OK);
    assert_int_equal(qn_models_start(&server), QN_OK);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    qn_workers_free(server.workers);
    qn_models_clear(&server);
    qn_loop_free(server.loop);
    return 0;
}

/* ---- the loop ---- */

typedef bool (*done_fn)(void);

static int look(void *data)
{
    done_fn *done = data;
    if ((*done)())
        qn_loop_stop(server.loop);
    return 5;
}

/* Runs the loop until something is true. */
static void until(done_fn done)
{
    qn_loop_run(server.loop, look, &done);
}

static bool has_started(void)
{
    return started;
}

static bool is_quiet(void)
{
    return started && !server.models.busy;
}

/* ---- callers ---- */

typedef struct caller {
    qn_waiter waiter; /* first */
    qn_slot *slot;
    bool has, failed;
    qn_api_error error;
    int number;
} caller;

static int order;

static void on_ready(qn_waiter *w, const qn_api_error *error)
{
    caller *c = (caller *)w;
    c->number = ++order;
    c->failed = error != NULL;
    c->has = !error;
    if (error)
        c->error = *error;
}

static void ask(caller *c, int model)
{
    *c =
        (caller){.slot = &server.models.slots[model], .waiter.ready = on_ready};
    c->has = qn_models_take(&server, c->slot, &c->waiter);
}

static void give(caller *c)
{
    assert_true(c->has);
    qn_models_give_back(&server, c->slot, INT64_MIN);
    c->has = false;
}

static caller callers[8];

static bool all_are_served(void)
{
    for (size_t i = 0; i < sizeof callers / sizeof *callers; i++)
        if (callers[i].waiter.slot)
            return false;
    return is_quiet();
}

static qn_slot_state state_of(int model)
{
    return server.models.slots[model].state;
}

/* ---- tests ---- */

static void test_names_and_aliases(void **state)
{
    (void)state;
    qn_api_error error;
    qn_slot *slots = server.models.slots;
    until(has_started);
    assert_ptr_equal(qn_models_find(&server, "a", true, &error), &slots[0]);
    assert_ptr_equal(qn_models_find(&server, "alias", true, &error), &slots[1]);
    assert_null(qn_models_find(&server, "x", true, &error));
    assert_int_equal(error.code, QN_API_MODEL_NOT_FOUND);
    assert_non_null(strstr(error.message, "'a', 'b', 'c'"));
    assert_null(qn_models_find(&server, NULL, true, &error));
    assert_int_equal(error.code, QN_API_MISSING_FIELD);
    assert_int_equal(slots[2].facts.max_ctx, 256);
    assert_int_equal(state_of(2), QN_SLOT_UNLOADED);
}

static void test_one_load_serves_all_who_wait(void **state)
{
    (void)state;
    memset(callers, 0, sizeof callers);
    order = 0;
    until(has_started);
    for (int i = 0; i < 4; i++)
        ask(&callers[i], 0);
    assert_int_equal(qn_models_waiting(&server), 4);
    /* One who leaves is not served. */
    qn_models_leave(&server, &callers[1].waiter);
    until(all_are_served);
    assert_int_equal(loads[0], 1);
    for (int i = 0; i < 4; i++)
        assert_int_equal(callers[i].has, i != 1);
    assert_true(callers[0].number < callers[2].number &&
                callers[2].number < callers[3].number);
    assert_int_equal(qn_models_waiting(&server), 0);
    /* It is there now. */
    ask(&callers[1], 0);
    assert_true(callers[1].has);
    for (int i = 0; i < 4; i++)
        give(&callers[i]);
}

static void take_and_give(int model)
{
    memset(callers, 0, sizeof callers);
    ask(&callers[0], model);
    until(all_are_served);
    give(&callers[0]);
}

static void test_the_least_recently_used_one_goes(void **state)
{
    (void)state;
    until(has_started);
    take_and_give(0);
    take_and_give(1);
    take_and_give(0);
    take_and_give(2);
    assert_int_equal(state_of(0), QN_SLOT_LOADED);
    assert_int_equal(state_of(1), QN_SLOT_UNLOADED);
    assert_int_equal(state_of(2), QN_SLOT_LOADED);
    assert_int_equal(loads[0], 1);
}

static void test_a_used_one_stays_and_takes_no_more(void **state)
{
    (void)state;
    until(has_started);
    memset(callers, 0, sizeof callers);
    order = 0;
    ask(&callers[0], 0);
    ask(&callers[1], 1);
    until(all_are_served);
    ask(&callers[2], 2);
    until(is_quiet);
    until(is_quiet);
    assert_true(callers[2].waiter.slot != NULL);
    /* The first one is to go; who comes for it now waits behind. */
    ask(&callers[3], 0);
    assert_false(callers[3].has);
    ask(&callers[4], 1);
    assert_true(callers[4].has);
    give(&callers[0]);
    /* Then one of the others must go in turn, as soon as it can. */
    give(&callers[1]);
    give(&callers[4]);
    until(all_are_served);
    assert_true(callers[2].has && callers[3].has);
    assert_true(callers[2].number < callers[3].number);
    assert_int_equal(state_of(1), QN_SLOT_UNLOADED);
    give(&callers[2]);
    give(&callers[3]);
}

static void test_the_one_that_is_to_go_stays_that_one(void **state)
{
    (void)state;
    until(has_started);
    memset(callers, 0, sizeof callers);
    ask(&callers[0], 0);
    until(all_are_served);
    ask(&callers[1], 0);
    ask(&callers[2], 1);
    until(all_are_served);
    ask(&callers[3], 2);
    until(is_quiet);
    until(is_quiet);
    /* It was used last now, but it goes on leaving. */
    give(&callers[0]);
    ask(&callers[4], 0);
    until(is_quiet);
    until(is_quiet);
    assert_false(callers[4].has);
    ask(&callers[5], 1);
    assert_true(callers[5].has);
    give(&callers[1]);
    until(is_quiet);
    while (!callers[3].has)
        until(is_quiet);
    assert_false(callers[4].has);
    give(&callers[3]);
    until(all_are_served);
    assert_true(callers[4].has);
    assert_int_equal(state_of(1), QN_SLOT_LOADED);
    give(&callers[2]);
    give(&callers[4]);
    give(&callers[5]);
}

static void test_a_failure_is_told_and_tried_again(void **state)
{
    (void)state;
    until(has_started);
    memset(callers, 0, sizeof callers);
    broken[0] = true;
    ask(&callers[0], 0);
    ask(&callers[1], 0);
    until(all_are_served);
    for (int i = 0; i < 2; i++) {
        assert_true(callers[i].failed);
        assert_int_equal(callers[i].error.code, QN_API_MODEL_LOAD_FAILED);
        assert_non_null(strstr(callers[i].error.message, "broken"));
    }
    assert_int_equal(state_of(0), QN_SLOT_FAILED);
    broken[0] = false;
    take_and_give(0);
    assert_int_equal(state_of(0), QN_SLOT_LOADED);
    assert_int_equal(loads[0], 2);
}

static void test_unloading_waits_for_users(void **state)
{
    (void)state;
    until(has_started);
    memset(callers, 0, sizeof callers);
    ask(&callers[0], 0);
    until(all_are_served);
    caller *c = &callers[1];
    *c = (caller){.slot = callers[0].slot, .waiter.ready = on_ready};
    assert_true(qn_models_in_use(c->slot));
    assert_false(qn_models_unload(&server, c->slot, &c->waiter));
    until(is_quiet);
    assert_int_equal(state_of(0), QN_SLOT_LOADED);
    give(&callers[0]);
    until(all_are_served);
    assert_int_equal(state_of(0), QN_SLOT_UNLOADED);
    assert_true(qn_models_unload(&server, c->slot, &c->waiter));
}

/* ---- at random ---- */

static uint32_t seed;
static int served, wanted;

static uint32_t draw(uint32_t below)
{
    seed = seed * 1664525 + 1013904223;
    return (seed >> 8) % below;
}

static void check_memory(void)
{
    uint64_t taken = 0;
    for (int i = 0; i < MODELS; i++) {
        const qn_slot *slot = &server.models.slots[i];
        bool there = slot->state == QN_SLOT_LOADED;
        taken += slot->state != QN_SLOT_UNLOADED ? slot->plan.fit.required : 0;
        assert_true(!slot->users || there);
        assert_int_equal(there, slot->model != NULL);
    }
    assert_true(taken <= server.config.machine.usable);
}

static bool go_on(void)
{
    check_memory();
    for (size_t i = 0; i < sizeof callers / sizeof *callers; i++) {
        caller *c = &callers[i];
        if (c->has && !draw(3)) {
            assert_non_null(c->slot->api.model);
            give(c);
            served++;
        } else if (c->waiter.slot && !draw(40)) {
            qn_models_leave(&server, &c->waiter);
            wanted++;
        } else if (!c->has && !c->waiter.slot && wanted > 0) {
            wanted--;
            ask(c, (int)draw(MODELS));
        }
    }
    if (!draw(50)) {
        static caller one;
        if (!one.waiter.slot) {
            one = (caller){.slot = &server.models.slots[draw(MODELS)],
                           .waiter.ready = on_ready};
            (void)qn_models_unload(&server, one.slot, &one.waiter);
        }
    }
    for (size_t i = 0; i < sizeof callers / sizeof *callers; i++)
        if (callers[i].has || callers[i].waiter.slot)
            return false;
    return wanted <= 0 && is_quiet();
}

static void test_everybody_is_served_and_memory_suffices(void **state)
{
    (void)state;
    until(has_started);
    memset(callers, 0, sizeof callers);
    seed = 7;
    served = 0;
    wanted = 120;
    until(go_on);
    assert_int_equal(served, 120);
}

#define test_of(function)                                                      \
    cmocka_unit_test_setup_teardown(function, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        test_of(test_names_and_aliases),
        test_of(test_one_load_serves_all_who_wait),
        test_of(test_the_least_recently_used_one_goes),
        test_of(test_a_used_one_stays_and_takes_no_more),
        test_of(test_the_one_that_is_to_go_stays_that_one),
        test_of(test_a_failure_is_told_and_tried_again),
        test_of(test_unloading_waits_for_users),
        test_of(test_everybody_is_served_and_memory_suffices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
