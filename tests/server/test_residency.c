/* The bodies of load and unload. */
#include "support/qn_api.h"

#define BAD(rows) rows, sizeof(rows) / sizeof *(rows)

static const qn_api_server many = {.strict_fields = true, .many_models = true};

static void test_bodies_are_refused_with_their_field(void **state)
{
    (void)state;
    static const bad_body load[] = {
        {"{", QN_API_INVALID_JSON, ""},
        {"{}", QN_API_MISSING_FIELD, "model"},
        {"{\"model\":null}", QN_API_MISSING_FIELD, "model"},
        {"{\"model\":5}", QN_API_INVALID_TYPE, "model"},
        {"{\"model\":\"a\",\"context\":1.5}", QN_API_INVALID_TYPE, "context"},
        {"{\"model\":\"a\",\"context\":0}", QN_API_OUT_OF_RANGE, "context"},
        {"{\"model\":\"a\",\"force\":true}", QN_API_UNKNOWN_FIELD, "force"},
    };
    static const bad_body unload[] = {
        {"{}", QN_API_MISSING_FIELD, "model"},
        {"{\"model\":\"a\",\"force\":1}", QN_API_INVALID_TYPE, "force"},
        {"{\"model\":\"a\",\"context\":5}", QN_API_UNKNOWN_FIELD, "context"},
    };
    check_bad_bodies(&qn_api_load, &many, BAD(load));
    check_bad_bodies(&qn_api_unload, &many, BAD(unload));
}

static void test_one_model_stays_loaded(void **state)
{
    (void)state;
    static const bad_body any[] = {
        {"{\"model\":\"a\"}", QN_API_NOT_SUPPORTED, ""},
        {"{", QN_API_NOT_SUPPORTED, ""},
    };
    check_bad_bodies(&qn_api_load, &strict_server, BAD(any));
    check_bad_bodies(&qn_api_unload, &strict_server, BAD(any));
}

static void test_values_are_the_calls(void **state)
{
    (void)state;
    qn_api_call call;
    parse_good(&call, &qn_api_load, &many,
               "{\"model\":\"a\",\"context\":4096}");
    assert_int_equal(call.kind, QN_API_LOAD);
    assert_string_equal(call.model, "a");
    assert_int_equal(call.context, 4096);
    assert_int_equal(call.keep_alive, INT64_MIN);
    qn_api_call_free(&call);
    parse_good(&call, &qn_api_unload, &many,
               "{\"model\":\"b\",\"force\":true}");
    assert_int_equal(call.kind, QN_API_UNLOAD);
    assert_true(call.force);
    qn_api_call_free(&call);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bodies_are_refused_with_their_field),
        cmocka_unit_test(test_one_model_stays_loaded),
        cmocka_unit_test(test_values_are_the_calls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
