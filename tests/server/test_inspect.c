/* tokenize, detokenize and apply-template, byte for byte. */
#include "support/qn_api.h"

#define BAD(rows) rows, sizeof(rows) / sizeof *(rows)
#define HI "{\"role\":\"user\",\"content\":\"Hi\"}"

static void check_body(const qn_api_protocol *p, const qn_api_model *m,
                       const char *body, const char *expected)
{
    qn_api_call call;
    parse_good(&call, p, &strict_server, body);
    prepare_good(&call, p, m);
    assert_int_equal(call.kind, QN_API_ANSWERED);
    assert_string_equal(call.body.data, expected);
    qn_api_call_free(&call);
}

static void test_bodies_are_refused_with_their_field(void **state)
{
    (void)state;
    static const bad_body tokenize[] = {
        {"{}", QN_API_MISSING_FIELD, "content"},
        {"{\"content\":5}", QN_API_INVALID_TYPE, "content"},
        {"{\"content\":\"a\",\"with_pieces\":1}", QN_API_INVALID_TYPE,
         "with_pieces"},
        {"{\"content\":\"a\",\"x\":1}", QN_API_UNKNOWN_FIELD, "x"},
    };
    static const bad_body detokenize[] = {
        {"{}", QN_API_MISSING_FIELD, "tokens"},
        {"{\"tokens\":\"1\"}", QN_API_INVALID_TYPE, "tokens"},
        {"{\"tokens\":[1,\"2\"]}", QN_API_INVALID_TYPE, "tokens[1]"},
    };
    static const bad_body apply[] = {
        {"{}", QN_API_MISSING_FIELD, "messages"},
        {"{\"messages\":[]}", QN_API_OUT_OF_RANGE, "messages"},
        {"{\"messages\":[" HI "],\"tools\":[1]}", QN_API_INVALID_TYPE,
         "tools[0]"},
        {"{\"messages\":[" HI "],\"chat_template_kwargs\":{\"tools\":1}}",
         QN_API_UNSUPPORTED_VALUE, "chat_template_kwargs.tools"},
        {"{\"messages\":[" HI "],\"continue_final_message\":true}",
         QN_API_UNSUPPORTED_VALUE, "continue_final_message"},
    };
    static const bad_body unknown_ids[] = {
        {"{\"tokens\":[1,-1]}", QN_API_OUT_OF_RANGE, "tokens[1]"},
        {"{\"tokens\":[4294967297]}", QN_API_OUT_OF_RANGE, "tokens[0]"},
    };
    check_bad_bodies(&qn_api_tokenize, &strict_server, BAD(tokenize));
    check_bad_bodies(&qn_api_detokenize, &strict_server, BAD(detokenize));
    check_bad_bodies(&qn_api_apply_template, &strict_server, BAD(apply));
    qn_api_model m = tiny_model(NULL);
    check_bad_calls(&qn_api_detokenize, &m, BAD(unknown_ids));
    tiny_free(&m);
}

static void test_texts_become_tokens_and_texts_again(void **state)
{
    (void)state;
    qn_api_model m = tiny_model(NULL);
    const qn_api_protocol *p = &qn_api_tokenize;
    check_body(p, &m, "{\"content\":\"\"}", "{\"tokens\":[]}");
    check_body(p, &m, "{\"content\":\"a<|im_end|>\"}", "{\"tokens\":[97,324]}");
    check_body(p, &m, "{\"content\":\"<|im_end|>\",\"parse_special\":false}",
               "{\"tokens\":[60,124,105,109,95,101,110,100,124,62]}");
    /* The euro sign is three tokens of a byte. */
    check_body(p, &m, "{\"content\":\"a\xe2\x82\xac\",\"with_pieces\":true}",
               "{\"tokens\":[{\"id\":97,\"piece\":\"a\"},{\"id\":226,"
               "\"piece\":[226]},{\"id\":130,\"piece\":[130]},{\"id\":172,"
               "\"piece\":[172]}]}");
    p = &qn_api_detokenize;
    check_body(p, &m, "{\"tokens\":[]}", "{\"content\":\"\"}");
    check_body(p, &m, "{\"tokens\":[97,324]}", "{\"content\":\"a<|im_end|>\"}");
    check_body(p, &m, "{\"tokens\":[97,324],\"skip_special\":true}",
               "{\"content\":\"a\"}");
    check_body(p, &m, "{\"tokens\":[226,130]}",
               "{\"content\":\"\xef\xbf\xbd\"}");
    tiny_free(&m);
}

static void test_prompts_are_shown_with_their_tokens(void **state)
{
    (void)state;
    qn_api_model m = tiny_model(
        "{% if tools %}{{ tools|length }}{% endif %}{{ x }}{% for m in messages"
        " %}{{ m.role[0] }}{{ m.content }}{% endfor %}"
        "{% if add_generation_prompt %}a{% endif %}");
    const qn_api_protocol *p = &qn_api_apply_template;
    check_body(p, &m, "{\"messages\":[{\"role\":\"user\",\"content\":\"b\"}]}",
               "{\"prompt\":\"uba\",\"tokens\":[117,98,97]}");
    check_body(p, &m,
               "{\"messages\":[{\"role\":\"user\",\"content\":\"b\"}],"
               "\"tools\":[{},{}],\"chat_template_kwargs\":{\"x\":\"y\"},"
               "\"add_generation_prompt\":false}",
               "{\"prompt\":\"2yub\",\"tokens\":[50,121,117,98]}");
    check_body(p, &m,
               "{\"messages\":[{\"role\":\"assistant\",\"content\":\"b\"}],"
               "\"continue_final_message\":true}",
               "{\"prompt\":\"ab\",\"tokens\":[97,98]}");
    tiny_free(&m);
    static const bad_body refused[] = {
        {"{\"messages\":[" HI "]}", QN_API_TEMPLATE_ERROR, "messages"},
    };
    m = tiny_model("{{ raise_exception('never') }}");
    check_bad_calls(p, &m, BAD(refused));
    tiny_free(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bodies_are_refused_with_their_field),
        cmocka_unit_test(test_texts_become_tokens_and_texts_again),
        cmocka_unit_test(test_prompts_are_shown_with_their_tokens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
