/* What other servers take and quern does not do: the same in every protocol
 * that makes text. */
#include "support/qn_api.h"

#include <stdio.h>

typedef struct route {
    const qn_api_protocol *protocol;
    const char *body; /* without its last brace */
} route;

#define HI "[{\"role\":\"user\",\"content\":\"a\"}]"

static const route routes[] = {
    {&qn_api_chat, "{\"messages\":" HI},
    {&qn_api_completions, "{\"prompt\":\"a\""},
    {&qn_api_responses, "{\"input\":\"a\""},
    {&qn_api_messages, "{\"max_tokens\":4,\"messages\":" HI},
    {&qn_api_count_tokens, "{\"messages\":" HI},
};

enum { ROUTES = sizeof routes / sizeof *routes };

static bool parses(qn_api_call *call, const route *r, const char *field,
                   qn_api_error *error)
{
    static char body[512]; /* which the call points into */
    snprintf(body, sizeof body, "%s,%s}", r->body, field);
    *call = (qn_api_call){0};
    *error = (qn_api_error){0};
    return r->protocol->parse(call, qn_str_of(body), &plain_server, error);
}

static void test_what_is_not_done_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *field, *param;
    } rows[] = {
        {"\"dry_multiplier\":0.8", "dry_multiplier"},
        {"\"mirostat\":2", "mirostat"},
        {"\"dynatemp_range\":0.5", "dynatemp_range"},
        {"\"adaptive_target\":0.5", "adaptive_target"},
        {"\"grammar\":\"root ::= x\"", "grammar"},
        {"\"json_schema\":{}", "json_schema"},
        {"\"adapters\":\"/etc\"", "adapters"},
        {"\"draft_model\":\"org/other\"", "draft_model"},
        {"\"role_mapping\":{\"user\":\"U\"}", "role_mapping"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (size_t k = 0; k < ROUTES; k++) {
            qn_api_call call;
            qn_api_error error;
            assert_false(parses(&call, &routes[k], rows[i].field, &error));
            assert_int_equal(error.code, QN_API_UNSUPPORTED_VALUE);
            assert_string_equal(error.param, rows[i].param);
            qn_api_call_free(&call);
        }
}

static void test_what_asks_for_nothing_is_taken(void **state)
{
    (void)state;
    static const struct {
        const char *field, *ignored;
    } rows[] = {
        {"\"dry_multiplier\":0,\"mirostat\":0,\"dynatemp_range\":0", ""},
        {"\"adaptive_target\":-1,\"dry_base\":1.75,\"mirostat_tau\":5", ""},
        {"\"dry_sequence_breakers\":[\"\\n\"],\"dynatemp_exponent\":1", ""},
        {"\"draft_model\":\"default_model\",\"adapters\":null", ""},
        {"\"role_mapping\":null,\"grammar\":\"\"", ""},
        {"\"id_slot\":-1", "id_slot"},
        {"\"mirostat_typo\":1", "mirostat_typo"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (size_t k = 0; k < ROUTES; k++) {
            qn_api_call call;
            qn_api_error error;
            if (!parses(&call, &routes[k], rows[i].field, &error))
                fail_msg("%s: %s: %s", routes[k].protocol->name, error.param,
                         error.message);
            assert_string_equal(call.ignored.size ? call.ignored.data : "",
                                rows[i].ignored);
            qn_api_call_free(&call);
        }
}

/* llama-server's names, and mlx-lm's. */
static void test_names_of_others_reach_the_request(void **state)
{
    (void)state;
    qn_api_model m = tiny_model(NULL);
    for (size_t k = 0; k < 3; k++) {
        qn_api_call call;
        qn_api_error error;
        bool response = routes[k].protocol == &qn_api_responses;
        assert_true(parses(&call, &routes[k],
                           response
                               ? "\"repeat_penalty\":1.5,\"repeat_last_n\":9,"
                                 "\"cache_prompt\":false,"
                                 "\"num_draft_tokens\":2"
                               : "\"n_predict\":5,\"repeat_penalty\":1.5,"
                                 "\"repeat_last_n\":9,\"cache_prompt\":false,"
                                 "\"num_draft_tokens\":2",
                           &error));
        prepare_good(&call, routes[k].protocol, &m);
        const quern_request *r = &call.requests[0];
        assert_true(response || r->max_tokens == 5);
        assert_true(r->sampling.repetition_penalty == 1.5);
        assert_int_equal(r->sampling.repetition_context_size, 9);
        assert_int_equal(r->num_draft, 2);
        assert_true(r->no_cache);
        qn_api_call_free(&call);
    }
    tiny_free(&m);
}

/* Requests that say nothing: as mlx-lm's server, whatever the files of the
 * model say, and the flags of the server over both. */
static void test_defaults_of_the_profile(void **state)
{
    (void)state;
    qn_api_model m = tiny_model(NULL);
    for (size_t k = 0; k < 2; k++) {
        qn_api_call call;
        char body[256];
        snprintf(body, sizeof body, "%s}", routes[k].body);
        parse_good(&call, routes[k].protocol, &mlx_server, body);
        prepare_good(&call, routes[k].protocol, &m);
        const quern_sampling *s = &call.requests[0].sampling;
        assert_true(s->temperature == 0 && s->top_p == 1 && !s->top_k);
        assert_true(!s->repetition_penalty && !s->min_p);
        assert_int_equal(s->repetition_context_size, 20);
        assert_int_equal(call.requests[0].max_tokens, m.default_max_tokens);
        qn_api_call_free(&call);
    }
    tiny_free(&m);
}

static void test_completions_of_the_profile_take_what_chat_does(void **state)
{
    (void)state;
    qn_api_call call;
    qn_api_error error = {0};
    const char *on = "{\"prompt\":\"a\",\"logprobs\":true}";
    parse_good(&call, &qn_api_completions, &mlx_server, on);
    assert_true(call.asked.logprobs);
    qn_api_call_free(&call);
    parse_good(&call, &qn_api_completions, &mlx_server,
               "{\"prompt\":\"a\",\"logprobs\":false}");
    assert_false(call.asked.logprobs);
    qn_api_call_free(&call);
    call = (qn_api_call){0};
    assert_false(
        qn_api_completions.parse(&call, qn_str_of(on), &plain_server, &error));
    assert_int_equal(error.code, QN_API_INVALID_TYPE);
    qn_api_call_free(&call);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_not_done_is_refused),
        cmocka_unit_test(test_what_asks_for_nothing_is_taken),
        cmocka_unit_test(test_names_of_others_reach_the_request),
        cmocka_unit_test(test_defaults_of_the_profile),
        cmocka_unit_test(test_completions_of_the_profile_take_what_chat_does),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
