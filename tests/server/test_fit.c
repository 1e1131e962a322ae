/* What /v1/fit answers to a query. */
#include "support/qn_api.h"

static void test_queries_are_refused_with_their_field(void **state)
{
    (void)state;
    static const bad_body queries[] = {
        {"context=0", QN_API_OUT_OF_RANGE, "context"},
        {"context=", QN_API_OUT_OF_RANGE, "context"},
        {"context=1e3", QN_API_OUT_OF_RANGE, "context"},
        {"context=99999999999999999999", QN_API_OUT_OF_RANGE, "context"},
        {"parallel=1025&context=5", QN_API_OUT_OF_RANGE, "parallel"},
        {"parallel=-1", QN_API_OUT_OF_RANGE, "parallel"},
    };
    static const bad_body too_long[] = {
        {"context=257", QN_API_OUT_OF_RANGE, "context"},
    };
    check_bad_bodies(&qn_api_fit, &strict_server, queries,
                     sizeof queries / sizeof *queries);
    qn_api_model m = tiny_model(NULL);
    check_bad_calls(&qn_api_fit, &m, too_long, 1);
    tiny_free(&m);
}

static void check_part(const char *body, const char *part)
{
    if (!strstr(body, part))
        fail_msg("no %s in %s", part, body);
}

static void test_what_is_left_out_is_as_the_model_is_loaded(void **state)
{
    (void)state;
    qn_api_model m = tiny_model(NULL);
    qn_api_call call;
    m.parallel = 3;
    parse_good(&call, &qn_api_fit, &strict_server, "");
    assert_null(call.model);
    prepare_good(&call, &qn_api_fit, &m);
    check_part(call.body.data, "\"parallel\":3,");
    qn_api_call_free(&call);
    parse_good(&call, &qn_api_fit, &strict_server,
               "model=a%2Fb+c&parallel=5&context=100&more=1");
    assert_string_equal(call.model, "a/b c");
    prepare_good(&call, &qn_api_fit, &m);
    check_part(call.body.data, "\"parallel\":5,");
    check_part(call.body.data, "\"context\":100,");
    qn_api_call_free(&call);
    tiny_free(&m);
}

static void test_the_machine_is_the_one_before_the_load(void **state)
{
    (void)state;
    qn_api_model m = tiny_model(NULL);
    const quern_machine small = {.memory = 2000, .usable = 1000};
    qn_api_call call;
    m.machine = &small;
    parse_good(&call, &qn_api_fit, &strict_server, "");
    prepare_good(&call, &qn_api_fit, &m);
    check_part(call.body.data, "\"fits\":false,\"usable_bytes\":1000,");
    qn_api_call_free(&call);
    tiny_free(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_queries_are_refused_with_their_field),
        cmocka_unit_test(test_what_is_left_out_is_as_the_model_is_loaded),
        cmocka_unit_test(test_the_machine_is_the_one_before_the_load),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
