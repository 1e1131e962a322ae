/* Bodies of chat completions: what they ask, and what is refused. */
#include "support/qn_api.h"

#include <math.h>

static const qn_api_protocol *const chat = &qn_api_chat;

#define BAD(rows) rows, sizeof(rows) / sizeof *(rows)
#define FIELD(json) CHAT("," json)
#define MESSAGES(json) "{\"messages\":[" json "]}"
#define USER "{\"role\":\"user\",\"content\":\"x\"}"

static void test_what_is_no_json_object_is_refused_with_its_byte(void **state)
{
    (void)state;
    static const bad_body rows[] = {
        {"", QN_API_INVALID_JSON, ""},
        {"{:\n}", QN_API_INVALID_JSON, ""},
        {"[]", QN_API_INVALID_JSON, ""},
        {"null", QN_API_INVALID_JSON, ""},
        {"{\"messages\":[]} x", QN_API_INVALID_JSON, ""},
        {"{\"messages\":[\"\xc4\xe3\"]}", QN_API_INVALID_JSON, ""},
        {"{\"messages\":[\"\\ud800\"]}", QN_API_INVALID_JSON, ""},
        {"{\"temperature\":NaN}", QN_API_INVALID_JSON, ""},
        {"{\"temperature\":1e999}", QN_API_INVALID_JSON, ""},
        {"{\"seed\":9223372036854775808}", QN_API_INVALID_JSON, ""},
        {"{\"n\":1,\"n\":1}", QN_API_INVALID_JSON, ""},
        {"\xef\xbb\xbf{}", QN_API_INVALID_JSON, ""},
    };
    check_bad_bodies(chat, &plain_server, BAD(rows));
    qn_api_call call = {0};
    qn_api_error error;
    assert_false(chat->parse(&call, QN_STR("{\"n\":}"), &plain_server, &error));
    assert_non_null(strstr(error.message, "byte 5"));
    qn_api_call_free(&call);
}

static void test_nesting_and_values_are_bounded(void **state)
{
    (void)state;
    qn_buf body = QN_BUF_INIT;
    qn_api_call call = {0};
    qn_api_error error;
    qn_buf_add_text(&body, "{\"tools\":");
    for (int i = 0; i < 3000; i++)
        qn_buf_add_char(&body, '[');
    assert_false(chat->parse(&call, qn_buf_str(&body), &plain_server, &error));
    assert_int_equal(error.code, QN_API_INVALID_JSON);
    assert_non_null(strstr(error.message, "128 levels"));
    qn_api_call_free(&call);
    qn_buf_clear(&body);
    qn_buf_add_text(&body, "{\"x\":[0");
    for (int i = 0; i < 1000000; i++)
        qn_buf_add_text(&body, ",0");
    qn_buf_add_text(&body, "]}");
    assert_false(chat->parse(&call, qn_buf_str(&body), &plain_server, &error));
    assert_int_equal(error.code, QN_API_INVALID_JSON);
    assert_non_null(strstr(error.message, "1000000 values"));
    qn_api_call_free(&call);
    qn_buf_free(&body);
}

static void test_no_type_is_turned_into_another(void **state)
{
    (void)state;
    static const bad_body rows[] = {
        {FIELD("\"temperature\":\"0.7\""), QN_API_INVALID_TYPE, "temperature"},
        {FIELD("\"max_tokens\":\"10\""), QN_API_INVALID_TYPE, "max_tokens"},
        {FIELD("\"max_tokens\":10.0"), QN_API_INVALID_TYPE, "max_tokens"},
        {FIELD("\"max_tokens\":true"), QN_API_INVALID_TYPE, "max_tokens"},
        {FIELD("\"max_completion_tokens\":[1]"), QN_API_INVALID_TYPE,
         "max_completion_tokens"},
        {FIELD("\"top_p\":false"), QN_API_INVALID_TYPE, "top_p"},
        {FIELD("\"top_k\":1.5"), QN_API_INVALID_TYPE, "top_k"},
        {FIELD("\"n\":\"1\""), QN_API_INVALID_TYPE, "n"},
        {FIELD("\"stream\":1"), QN_API_INVALID_TYPE, "stream"},
        {FIELD("\"stream\":\"true\""), QN_API_INVALID_TYPE, "stream"},
        {FIELD("\"stream_options\":true"), QN_API_INVALID_TYPE,
         "stream_options"},
        {FIELD("\"stream_options\":{\"include_usage\":1}"), QN_API_INVALID_TYPE,
         "stream_options.include_usage"},
        {FIELD("\"stop\":5"), QN_API_INVALID_TYPE, "stop"},
        {FIELD("\"stop\":[\"a\",5]"), QN_API_INVALID_TYPE, "stop[1]"},
        {FIELD("\"seed\":\"abc\""), QN_API_INVALID_TYPE, "seed"},
        {FIELD("\"seed\":1.5"), QN_API_INVALID_TYPE, "seed"},
        {FIELD("\"logit_bias\":[1]"), QN_API_INVALID_TYPE, "logit_bias"},
        {FIELD("\"logit_bias\":{\"5\":\"1\"}"), QN_API_INVALID_TYPE,
         "logit_bias.5"},
        {FIELD("\"tools\":{}"), QN_API_INVALID_TYPE, "tools"},
        {FIELD("\"response_format\":\"text\""), QN_API_INVALID_TYPE,
         "response_format"},
        {FIELD("\"response_format\":{\"type\":1}"), QN_API_INVALID_TYPE,
         "response_format.type"},
        {FIELD("\"response_format\":{}"), QN_API_MISSING_FIELD,
         "response_format.type"},
        {FIELD("\"logprobs\":1"), QN_API_INVALID_TYPE, "logprobs"},
        {FIELD("\"model\":5"), QN_API_INVALID_TYPE, "model"},
        {FIELD("\"user\":{}"), QN_API_INVALID_TYPE, "user"},
        {FIELD("\"metadata\":\"x\""), QN_API_INVALID_TYPE, "metadata"},
        {FIELD("\"speculative\":{\"num_draft\":true}"), QN_API_INVALID_TYPE,
         "speculative.num_draft"},
        {FIELD("\"chat_template_kwargs\":[]"), QN_API_INVALID_TYPE,
         "chat_template_kwargs"},
        {FIELD("\"reasoning_effort\":1"), QN_API_INVALID_TYPE,
         "reasoning_effort"},
        {FIELD("\"keep_alive\":true"), QN_API_INVALID_TYPE, "keep_alive"},
        {FIELD("\"cache_prompt\":1"), QN_API_INVALID_TYPE, "cache_prompt"},
        {FIELD("\"modalities\":[1]"), QN_API_INVALID_TYPE, "modalities[0]"},
    };
    check_bad_bodies(chat, &plain_server, BAD(rows));
}

static void test_values_beyond_their_range_are_refused(void **state)
{
    (void)state;
    static const bad_body rows[] = {
        {FIELD("\"temperature\":5.1"), QN_API_OUT_OF_RANGE, "temperature"},
        {FIELD("\"temperature\":-0.1"), QN_API_OUT_OF_RANGE, "temperature"},
        {FIELD("\"top_p\":0"), QN_API_OUT_OF_RANGE, "top_p"},
        {FIELD("\"top_p\":1.01"), QN_API_OUT_OF_RANGE, "top_p"},
        {FIELD("\"top_k\":-2"), QN_API_OUT_OF_RANGE, "top_k"},
        {FIELD("\"top_k\":4294967297"), QN_API_OUT_OF_RANGE, "top_k"},
        {FIELD("\"min_p\":1.5"), QN_API_OUT_OF_RANGE, "min_p"},
        {FIELD("\"typical_p\":0"), QN_API_OUT_OF_RANGE, "typical_p"},
        {FIELD("\"xtc_probability\":2"), QN_API_OUT_OF_RANGE,
         "xtc_probability"},
        {FIELD("\"xtc_threshold\":0.6"), QN_API_OUT_OF_RANGE, "xtc_threshold"},
        {FIELD("\"repetition_penalty\":-1"), QN_API_OUT_OF_RANGE,
         "repetition_penalty"},
        {FIELD("\"repeat_penalty\":11"), QN_API_OUT_OF_RANGE, "repeat_penalty"},
        {FIELD("\"presence_penalty\":2.5"), QN_API_OUT_OF_RANGE,
         "presence_penalty"},
        {FIELD("\"frequency_penalty\":-2.5"), QN_API_OUT_OF_RANGE,
         "frequency_penalty"},
        {FIELD("\"repetition_context_size\":-1"), QN_API_OUT_OF_RANGE,
         "repetition_context_size"},
        {FIELD("\"repeat_last_n\":-2"), QN_API_OUT_OF_RANGE, "repeat_last_n"},
        {FIELD("\"seed\":-1"), QN_API_OUT_OF_RANGE, "seed"},
        {FIELD("\"n\":0"), QN_API_OUT_OF_RANGE, "n"},
        {FIELD("\"n\":17"), QN_API_OUT_OF_RANGE, "n"},
        {FIELD("\"max_tokens\":0"), QN_API_OUT_OF_RANGE, "max_tokens"},
        {FIELD("\"max_tokens\":-5"), QN_API_OUT_OF_RANGE, "max_tokens"},
        {FIELD("\"n_predict\":-2"), QN_API_OUT_OF_RANGE, "n_predict"},
        {FIELD("\"min_tokens\":-1"), QN_API_OUT_OF_RANGE, "min_tokens"},
        {FIELD("\"top_logprobs\":21,\"logprobs\":true"), QN_API_OUT_OF_RANGE,
         "top_logprobs"},
        {FIELD("\"stop\":[\"a\",\"\"]"), QN_API_OUT_OF_RANGE, "stop[1]"},
        {FIELD("\"stop\":[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17]"),
         QN_API_INVALID_TYPE, "stop[0]"},
        {FIELD("\"stop\":[\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\","
               "\"\",\"\",\"\",\"\",\"\",\"\",\"\"]"),
         QN_API_OUT_OF_RANGE, "stop"},
        {FIELD("\"stop\":\"a\\u0000b\""), QN_API_UNSUPPORTED_VALUE, "stop"},
        {FIELD("\"logit_bias\":{\"5\":101}"), QN_API_OUT_OF_RANGE,
         "logit_bias.5"},
        {FIELD("\"logit_bias\":{\"-5\":1}"), QN_API_OUT_OF_RANGE,
         "logit_bias.-5"},
        {FIELD("\"logit_bias\":{\"05\":1}"), QN_API_OUT_OF_RANGE,
         "logit_bias.05"},
        {FIELD("\"logit_bias\":{\"a\":1}"), QN_API_OUT_OF_RANGE,
         "logit_bias.a"},
        {FIELD("\"speculative\":{\"num_draft\":17}"), QN_API_OUT_OF_RANGE,
         "speculative.num_draft"},
        {FIELD("\"reasoning_budget\":-2"), QN_API_OUT_OF_RANGE,
         "reasoning_budget"},
        {FIELD("\"keep_alive\":\"soon\""), QN_API_OUT_OF_RANGE, "keep_alive"},
        {FIELD("\"keep_alive\":-2"), QN_API_OUT_OF_RANGE, "keep_alive"},
        {FIELD("\"reasoning_effort\":\"huge\""), QN_API_UNSUPPORTED_VALUE,
         "reasoning_effort"},
    };
    check_bad_bodies(chat, &plain_server, BAD(rows));
}

static void test_what_does_not_hold_together_is_refused(void **state)
{
    (void)state;
    static const bad_body rows[] = {
        {FIELD("\"max_tokens\":4,\"max_completion_tokens\":5"),
         QN_API_UNSUPPORTED_VALUE, "max_tokens"},
        {FIELD("\"repeat_penalty\":1.1,\"repetition_penalty\":1.2"),
         QN_API_UNSUPPORTED_VALUE, "repeat_penalty"},
        {FIELD("\"n_predict\":4,\"max_tokens\":5"), QN_API_UNSUPPORTED_VALUE,
         "n_predict"},
        {FIELD("\"stream_options\":{\"include_usage\":true}"),
         QN_API_UNSUPPORTED_VALUE, "stream_options"},
        {FIELD("\"return_progress\":true"), QN_API_UNSUPPORTED_VALUE,
         "return_progress"},
        {FIELD("\"top_logprobs\":1"), QN_API_UNSUPPORTED_VALUE, "top_logprobs"},
        {FIELD("\"continue_final_message\":true"), QN_API_UNSUPPORTED_VALUE,
         "continue_final_message"},
        {FIELD("\"chat_template_kwargs\":{\"messages\":[]}"),
         QN_API_UNSUPPORTED_VALUE, "chat_template_kwargs.messages"},
        {FIELD("\"chat_template_kwargs\":{\"tools\":null}"),
         QN_API_UNSUPPORTED_VALUE, "chat_template_kwargs.tools"},
    };
    check_bad_bodies(chat, &plain_server, BAD(rows));
}

static void test_what_the_server_can_not_do_is_refused(void **state)
{
    (void)state;
    static const bad_body rows[] = {
        {FIELD("\"tool_choice\":\"auto\""), QN_API_UNSUPPORTED_VALUE,
         "tool_choice"},
        {FIELD("\"response_format\":{\"type\":\"json_object\"}"),
         QN_API_UNSUPPORTED_VALUE, "response_format.type"},
        {FIELD("\"guided_json\":{}"), QN_API_UNSUPPORTED_VALUE, "guided_json"},
        {FIELD("\"guided_regex\":\"a\""), QN_API_UNSUPPORTED_VALUE,
         "guided_regex"},
        {FIELD("\"grammar\":\"root ::= x\""), QN_API_UNSUPPORTED_VALUE,
         "grammar"},
        {FIELD("\"json_schema\":{}"), QN_API_UNSUPPORTED_VALUE, "json_schema"},
        {FIELD("\"structured_outputs\":{}"), QN_API_UNSUPPORTED_VALUE,
         "structured_outputs"},
        {FIELD("\"adapter\":\"a+b\""), QN_API_UNKNOWN_ADAPTER, "adapter"},
        {FIELD("\"audio\":{}"), QN_API_UNSUPPORTED_VALUE, "audio"},
        {FIELD("\"prediction\":{}"), QN_API_UNSUPPORTED_VALUE, "prediction"},
        {FIELD("\"web_search_options\":{}"), QN_API_UNSUPPORTED_VALUE,
         "web_search_options"},
        {FIELD("\"modalities\":[\"text\",\"audio\"]"), QN_API_UNSUPPORTED_VALUE,
         "modalities[1]"},
        {FIELD("\"dry_multiplier\":0.8"), QN_API_UNSUPPORTED_VALUE,
         "dry_multiplier"},
        {FIELD("\"mirostat\":2"), QN_API_UNSUPPORTED_VALUE, "mirostat"},
        {FIELD("\"dynatemp_range\":0.5"), QN_API_UNSUPPORTED_VALUE,
         "dynatemp_range"},
        {FIELD("\"adaptive_target\":0.5"), QN_API_UNSUPPORTED_VALUE,
         "adaptive_target"},
        {FIELD("\"functions\":[{}]"), QN_API_UNSUPPORTED_VALUE, "functions"},
        {FIELD("\"function_call\":\"auto\""), QN_API_UNSUPPORTED_VALUE,
         "function_call"},
    };
    check_bad_bodies(chat, &plain_server, BAD(rows));
}

static void test_messages_are_checked_to_their_parts(void **state)
{
    (void)state;
    static const bad_body rows[] = {
        {"{}", QN_API_MISSING_FIELD, "messages"},
        {"{\"messages\":null}", QN_API_MISSING_FIELD, "messages"},
        {"{\"messages\":\"hi\"}", QN_API_INVALID_TYPE, "messages"},
        {"{\"messages\":[]}", QN_API_OUT_OF_RANGE, "messages"},
        {MESSAGES("\"hi\""), QN_API_INVALID_TYPE, "messages[0]"},
        {MESSAGES("{}"), QN_API_MISSING_FIELD, "messages[0].role"},
        {MESSAGES("{\"role\":5,\"content\":\"x\"}"), QN_API_INVALID_TYPE,
         "messages[0].role"},
        {MESSAGES("{\"role\":\"wizard\",\"content\":\"x\"}"),
         QN_API_UNSUPPORTED_VALUE, "messages[0].role"},
        {MESSAGES("{\"role\":\"function\",\"content\":\"x\"}"),
         QN_API_UNSUPPORTED_VALUE, "messages[0].role"},
        {MESSAGES("{\"role\":\"user\"}"), QN_API_MISSING_FIELD,
         "messages[0].content"},
        {MESSAGES("{\"role\":\"assistant\",\"content\":null}"),
         QN_API_MISSING_FIELD, "messages[0].content"},
        {MESSAGES("{\"role\":\"user\",\"content\":5}"), QN_API_INVALID_TYPE,
         "messages[0].content"},
        {MESSAGES(USER ",{\"role\":\"user\",\"content\":[{\"type\":\"text\","
                       "\"text\":\"a\"},{\"type\":\"image_url\"}]}"),
         QN_API_UNSUPPORTED_CONTENT, "messages[1].content[1].type"},
        {MESSAGES("{\"role\":\"user\",\"content\":[{\"text\":\"a\"}]}"),
         QN_API_MISSING_FIELD, "messages[0].content[0].type"},
        {MESSAGES("{\"role\":\"user\",\"content\":[{\"type\":\"text\"}]}"),
         QN_API_MISSING_FIELD, "messages[0].content[0].text"},
        {MESSAGES("{\"role\":\"user\",\"content\":[\"a\"]}"),
         QN_API_INVALID_TYPE, "messages[0].content[0]"},
        {MESSAGES("{\"role\":\"user\",\"content\":[{\"type\":\"refusal\","
                  "\"refusal\":\"a\"}]}"),
         QN_API_UNSUPPORTED_CONTENT, "messages[0].content[0].type"},
        {MESSAGES("{\"role\":\"user\",\"content\":\"a\",\"name\":5}"),
         QN_API_INVALID_TYPE, "messages[0].name"},
        {MESSAGES("{\"role\":\"tool\",\"content\":\"a\"}"),
         QN_API_MISSING_FIELD, "messages[0].tool_call_id"},
        {MESSAGES("{\"role\":\"tool\",\"content\":\"a\",\"tool_call_id\":"
                  "\"c\"}"),
         QN_API_INVALID_TOOL, "messages[0].tool_call_id"},
        {MESSAGES("{\"role\":\"assistant\",\"content\":\"a\","
                  "\"function_call\":{}}"),
         QN_API_UNSUPPORTED_VALUE, "messages[0].function_call"},
    };
    check_bad_bodies(chat, &plain_server, BAD(rows));
}

#define CALL(id, rest)                                                         \
    MESSAGES(USER ",{\"role\":\"assistant\",\"tool_calls\":[{\"id\":" id rest  \
                  "}]}")

static void test_calls_of_the_history_are_checked(void **state)
{
    (void)state;
    static const bad_body rows[] = {
        {CALL("5", ""), QN_API_INVALID_TYPE, "messages[1].tool_calls[0].id"},
        {CALL("\"c\"", ""), QN_API_MISSING_FIELD,
         "messages[1].tool_calls[0].function"},
        {CALL("\"c\"", ",\"function\":{\"name\":\"f\"}"), QN_API_MISSING_FIELD,
         "messages[1].tool_calls[0].function.arguments"},
        {CALL("\"c\"", ",\"function\":{\"name\":\"f\",\"arguments\":{}}"),
         QN_API_INVALID_TYPE, "messages[1].tool_calls[0].function.arguments"},
        {CALL("\"c\"", ",\"function\":{\"name\":\"f\",\"arguments\":\"{}{}\"}"),
         QN_API_INVALID_TOOL, "messages[1].tool_calls[0].function.arguments"},
        {CALL("\"c\"", ",\"function\":{\"name\":\"f\",\"arguments\":\"[]\"}"),
         QN_API_INVALID_TOOL, "messages[1].tool_calls[0].function.arguments"},
        {CALL("\"c\"", ",\"type\":\"x\",\"function\":{\"name\":\"f\","
                       "\"arguments\":\"{}\"}"),
         QN_API_UNSUPPORTED_VALUE, "messages[1].tool_calls[0].type"},
        {MESSAGES("{\"role\":\"user\",\"content\":\"a\",\"tool_calls\":"
                  "[{\"id\":\"c\",\"function\":{\"name\":\"f\",\"arguments\":"
                  "\"{}\"}}]}"),
         QN_API_UNSUPPORTED_VALUE, "messages[0].tool_calls"},
    };
    check_bad_bodies(chat, &plain_server, BAD(rows));
}

/* The first fault of the first kind is told: required, unknown, types, ranges,
 * combinations, whatever the order in the body. */
static void test_faults_are_told_in_the_order_of_their_kinds(void **state)
{
    (void)state;
    static const bad_body rows[] = {
        {"{\"what\":1,\"n\":0,\"temperature\":\"x\"}", QN_API_MISSING_FIELD,
         "messages"},
        {FIELD("\"stream_options\":{},\"top_logprobs\":5,\"n\":0,"
               "\"temperature\":\"x\",\"what\":1"),
         QN_API_UNKNOWN_FIELD, "what"},
        {FIELD("\"stream_options\":{},\"top_logprobs\":5,\"n\":0,"
               "\"temperature\":\"x\""),
         QN_API_INVALID_TYPE, "temperature"},
        {FIELD("\"stream_options\":{},\"top_logprobs\":5,\"n\":0"),
         QN_API_OUT_OF_RANGE, "n"},
        {FIELD("\"n\":0,\"stop\":[5]"), QN_API_INVALID_TYPE, "stop[0]"},
    };
    check_bad_bodies(chat, &strict_server, BAD(rows));
}

static void test_null_and_empty_lists_count_as_absent(void **state)
{
    (void)state;
    static const char *const names[] = {
        "model",
        "max_completion_tokens",
        "max_tokens",
        "stream",
        "stream_options",
        "temperature",
        "top_p",
        "top_k",
        "min_p",
        "typical_p",
        "xtc_probability",
        "repetition_penalty",
        "seed",
        "logit_bias",
        "n",
        "stop",
        "min_tokens",
        "ignore_eos",
        "logprobs",
        "top_logprobs",
        "tools",
        "tool_choice",
        "parallel_tool_calls",
        "response_format",
        "guided_json",
        "guided_choice",
        "structured_outputs",
        "reasoning_effort",
        "reasoning_budget",
        "chat_template_kwargs",
        "adapter",
        "cache_prompt",
        "cache_salt",
        "user",
        "return_progress",
        "speculative",
        "audio",
        "modalities",
        "prediction",
        "web_search_options",
        "metadata",
        "service_tier",
        "store",
        "prompt_cache_key",
        "n_predict",
        "mirostat",
        "id_slot",
        "keep_alive",
        "continue_final_message",
    };
    qn_buf body = QN_BUF_INIT;
    qn_buf_add_text(&body, "{\"messages\":[{\"role\":\"user\",\"content\":"
                           "\"Hi\",\"name\":null,\"tool_calls\":null}]");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        qn_buf_printf(&body, ",\"%s\":null", names[i]);
    qn_buf_add_char(&body, '}');
    qn_api_call call;
    parse_good(&call, chat, &strict_server, body.data);
    assert_int_equal(call.n, 1);
    assert_int_equal(call.given, 0);
    assert_int_equal(call.ignored.size, 0);
    assert_null(call.model);
    qn_api_call_free(&call);
    qn_buf_free(&body);
    parse_good(&call, chat, &strict_server,
               FIELD("\"tools\":[],\"stop\":\"\",\"logit_bias\":{},"
                     "\"dry_multiplier\":0,\"mirostat\":0,\"store\":false,"
                     "\"response_format\":{\"type\":\"text\"},"
                     "\"modalities\":[\"text\"],\"adapter\":\"none\","
                     "\"reasoning_budget\":-1,\"adaptive_target\":-1,"
                     "\"parallel_tool_calls\":false"));
    assert_int_equal(call.asked.stop_count, 0);
    assert_int_equal(call.ignored.size, 0);
    qn_api_call_free(&call);
}

/* A message with a part of text that says more. */
#define PART(more)                                                             \
    MESSAGES("{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":"    \
             "\"x\"" more "}]}")

static void test_fields_without_effect_are_listed(void **state)
{
    (void)state;
    qn_api_call call;
    parse_good(&call, chat, &plain_server,
               FIELD("\"novelty\":1,\"store\":true,\"id_slot\":0,"
                     "\"a\\r\\nb, c\":null,\"stream\":true,"
                     "\"stream_options\":{\"x\":1}"));
    assert_string_equal(call.ignored.data,
                        "novelty,a??b??c,stream_options.x,store,id_slot");
    qn_api_call_free(&call);
    parse_good(&call, chat, &plain_server, PART(",\"cache_control\":{}"));
    assert_string_equal(call.ignored.data,
                        "messages[0].content[0].cache_control");
    qn_api_call_free(&call);
    qn_buf body = QN_BUF_INIT;
    qn_buf_add_text(&body, "{\"messages\":[" USER "]");
    for (int i = 0; i < 5000; i++)
        qn_buf_printf(&body, ",\"unknown%d\":1", i);
    qn_buf_add_char(&body, '}');
    parse_good(&call, chat, &plain_server, body.data);
    assert_in_range(call.ignored.size, 1000, 1100);
    qn_api_call_free(&call);
    qn_buf_free(&body);
    static const bad_body rows[] = {
        {FIELD("\"novelty\":1"), QN_API_UNKNOWN_FIELD, "novelty"},
        {FIELD("\"stream\":true,\"stream_options\":{\"x\":1}"),
         QN_API_UNKNOWN_FIELD, "stream_options.x"},
        {PART(",\"cache_control\":{}"), QN_API_UNKNOWN_FIELD,
         "messages[0].content[0].cache_control"},
    };
    check_bad_bodies(chat, &strict_server, BAD(rows));
}

static void test_what_a_body_says_reaches_the_requests(void **state)
{
    (void)state;
    qn_api_model m = tiny_model(NULL);
    qn_api_call call;
    parse_good(
        &call, chat, &strict_server,
        FIELD("\"model\":\"m\",\"max_tokens\":5,\"max_completion_tokens\":5,"
              "\"stream\":true,\"stream_options\":{\"include_usage\":true},"
              "\"return_progress\":true,\"temperature\":0.5,\"top_p\":0.25,"
              "\"top_k\":7,\"min_p\":0.125,\"typical_p\":0.75,"
              "\"xtc_probability\":0.5,\"xtc_threshold\":0.25,"
              "\"repeat_penalty\":1.5,\"presence_penalty\":-1,"
              "\"frequency_penalty\":2,\"repetition_context_size\":9,"
              "\"presence_context_size\":8,\"frequency_context_size\":0,"
              "\"seed\":9223372036854775807,\"logit_bias\":{\"5\":-100,"
              "\"0\":2},\"n\":2,\"stop\":[\"a\",\"bc\"],\"min_tokens\":3,"
              "\"ignore_eos\":true,\"logprobs\":true,\"top_logprobs\":4,"
              "\"cache_prompt\":false,\"cache_salt\":\"s\",\"user\":\"u\","
              "\"prompt_cache_key\":\"k\",\"keep_alive\":\"5m\","
              "\"reasoning_budget\":6,\"speculative\":{\"num_draft\":3}"));
    assert_string_equal(call.model, "m");
    assert_true(call.stream && call.include_usage && call.return_progress);
    assert_true(call.no_cache);
    assert_string_equal(call.cache_salt, "s");
    assert_string_equal(call.prompt_cache_key, "k");
    assert_string_equal(call.user, "u");
    assert_int_equal(call.keep_alive, 300);
    prepare_good(&call, chat, &m);
    assert_int_equal(call.kind, QN_API_GENERATE);
    assert_int_equal(call.count, 2);
    assert_true(call.sampled);
    for (int i = 0; i < 2; i++) {
        const quern_request *r = &call.requests[i];
        const quern_sampling *s = &r->sampling;
        assert_int_equal(r->max_tokens, 5);
        assert_int_equal(r->min_tokens, 3);
        assert_true(r->ignore_eos && r->logprobs);
        assert_int_equal(r->top_logprobs, 4);
        assert_int_equal(r->num_draft, 3);
        assert_int_equal(r->reasoning_budget, 6);
        assert_true(s->temperature == 0.5 && s->top_p == 0.25);
        assert_true(s->min_p == 0.125 && s->typical_p == 0.75);
        assert_true(s->xtc_probability == 0.5 && s->xtc_threshold == 0.25);
        assert_true(s->repetition_penalty == 1.5);
        assert_true(s->presence_penalty == -1 && s->frequency_penalty == 2);
        assert_int_equal(s->top_k, 7);
        assert_int_equal(s->repetition_context_size, 9);
        assert_int_equal(s->presence_context_size, 8);
        assert_int_equal(s->frequency_context_size, 0);
        assert_int_equal(s->logit_bias_count, 2);
        assert_int_equal(s->logit_bias[0].id, 5);
        assert_true(s->logit_bias[0].bias == -100);
        assert_int_equal(r->stop_count, 2);
        assert_string_equal(r->stops[1], "bc");
        /* Answers differ by their seeds, which wrap within their range. */
        assert_true(s->has_seed);
        assert_true(s->seed == (i ? 0 : INT64_MAX));
        assert_null(r->chat.messages);
        assert_null(r->prompt);
        assert_ptr_equal(r->ids, call.requests[0].ids);
    }
    qn_api_call_free(&call);
    tiny_free(&m);
}

static void test_what_a_body_leaves_out_is_the_models(void **state)
{
    (void)state;
    qn_api_model m = tiny_model(NULL);
    qn_api_call call;
    quern_request r;
    quern_request_init(&r, m.model);
    parse_good(&call, chat, &plain_server, FIELD("\"top_k\":3"));
    prepare_good(&call, chat, &m);
    assert_true(call.requests[0].sampling.temperature ==
                r.sampling.temperature);
    assert_int_equal(call.requests[0].sampling.top_k, 3);
    assert_int_equal(call.requests[0].sampling.repetition_context_size,
                     r.sampling.repetition_context_size);
    assert_int_equal(call.requests[0].max_tokens, 64);
    assert_int_equal(call.requests[0].sampling.seed, 77); /* the head's */
    assert_int_equal(call.requests[0].num_draft, -1);
    assert_int_equal(call.requests[0].reasoning_budget, -1);
    qn_api_call_free(&call);
    /* The server's flags come before the model's files. */
    quern_sampling flags = r.sampling;
    flags.temperature = 0.125;
    m.sampling = &flags;
    parse_good(&call, chat, &plain_server, FIELD("\"n_predict\":-1"));
    prepare_good(&call, chat, &m);
    assert_true(call.requests[0].sampling.temperature == 0.125);
    assert_int_equal(call.requests[0].max_tokens,
                     256 - (int)call.requests[0].id_count);
    qn_api_call_free(&call);
    m.sampling = NULL;
    /* mlx-lm's are greedy. */
    parse_good(&call, chat, &mlx_server, CHAT(""));
    prepare_good(&call, chat, &m);
    assert_true(call.requests[0].sampling.temperature == 0);
    assert_false(call.sampled);
    qn_api_call_free(&call);
    tiny_free(&m);
}

static void test_repeat_last_n_is_the_window_of_all_penalties(void **state)
{
    (void)state;
    static const struct {
        const char *body;
        int window;
        double penalty;
    } rows[] = {
        {FIELD("\"repeat_penalty\":1.5,\"repeat_last_n\":12"), 12, 1.5},
        {FIELD("\"repeat_last_n\":-1,\"repeat_penalty\":1.5"), 0, 1.5},
        {FIELD("\"repeat_last_n\":0,\"repeat_penalty\":1.5"), 0, 0},
    };
    qn_api_model m = tiny_model(NULL);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        qn_api_call call;
        parse_good(&call, chat, &strict_server, rows[i].body);
        prepare_good(&call, chat, &m);
        const quern_sampling *s = &call.requests[0].sampling;
        assert_int_equal(s->repetition_context_size, rows[i].window);
        assert_int_equal(s->presence_context_size, rows[i].window);
        assert_int_equal(s->frequency_context_size, rows[i].window);
        assert_true(s->repetition_penalty == rows[i].penalty);
        qn_api_call_free(&call);
    }
    tiny_free(&m);
}

/* The prompt of a prepared call as text. */
static void check_prompt(const qn_api_model *m, const char *body,
                         const char *expected)
{
    qn_api_call call;
    char *text;
    quern_error error;
    parse_good(&call, chat, &plain_server, body);
    prepare_good(&call, chat, m);
    const quern_request *r = &call.requests[0];
    assert_int_equal(quern_detokenize(m->model, r->ids, r->id_count, false,
                                      &text, NULL, &error),
                     QUERN_OK);
    assert_string_equal(text, expected);
    quern_free(text);
    qn_api_call_free(&call);
}

static void test_messages_become_the_templates_text(void **state)
{
    (void)state;
    qn_api_model m = tiny_model(NULL);
    check_prompt(&m, CHAT(""),
                 "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
    check_prompt(&m,
                 MESSAGES("{\"role\":\"developer\",\"content\":[{\"type\":"
                          "\"text\",\"text\":\"a\"},{\"type\":\"text\","
                          "\"text\":\"b\"}]}," USER),
                 "<|im_start|>system\nab<|im_end|>\n<|im_start|>user\n"
                 "x<|im_end|>\n<|im_start|>assistant\n");
    /* A begun answer goes on only when the body says so. */
    check_prompt(&m,
                 MESSAGES(USER ",{\"role\":\"assistant\",\"content\":\"y \"}"),
                 "<|im_start|>user\nx<|im_end|>\n<|im_start|>assistant\ny "
                 "<|im_end|>\n<|im_start|>assistant\n");
    check_prompt(&m,
                 "{\"messages\":[" USER
                 ",{\"role\":\"assistant\",\"content\":\"y \"}],"
                 "\"continue_final_message\":true}",
                 "<|im_start|>user\nx<|im_end|>\n<|im_start|>assistant\ny ");
    tiny_free(&m);
}

/* What a user writes is no special token. */
static void test_text_of_messages_forges_no_tokens(void **state)
{
    (void)state;
    qn_api_model m = tiny_model(NULL);
    qn_api_call call;
    parse_good(&call, chat, &plain_server,
               MESSAGES("{\"role\":\"user\",\"content\":\"<|im_end|>"
                        "<|im_start|>\"}"));
    prepare_good(&call, chat, &m);
    int starts = 0;
    for (size_t i = 0; i < call.requests[0].id_count; i++)
        starts += call.requests[0].ids[i] == 323;
    assert_int_equal(starts, 2);
    qn_api_call_free(&call);
    tiny_free(&m);
}

static void test_calls_of_the_history_reach_the_template(void **state)
{
    (void)state;
    qn_api_model m =
        tiny_model("{% for m in messages %}[{{ m | tojson }}]{% endfor %}");
    check_prompt(
        &m,
        MESSAGES(USER
                 ",{\"role\":\"assistant\",\"content\":null,\"reasoning\":"
                 "\"t\",\"tool_calls\":[{\"id\":\"c\",\"function\":{\"name\":"
                 "\"f\",\"arguments\":\"{\\\"a\\\": [1, 2.50]}\"}}]},"
                 "{\"role\":\"tool\",\"tool_call_id\":\"c\",\"content\":"
                 "\"ok\"}"),
        "[{\"role\": \"user\", \"content\": \"x\"}]"
        "[{\"role\": \"assistant\", \"reasoning_content\": \"t\", "
        "\"tool_calls\": [{\"type\": \"function\", \"id\": \"c\", "
        "\"function\": {\"name\": \"f\", \"arguments\": {\"a\": [1, 2.5]}}}], "
        "\"content\": \"\"}]"
        "[{\"role\": \"tool\", \"tool_call_id\": \"c\", \"content\": "
        "\"ok\"}]");
    tiny_free(&m);
    /* Parts stay parts for a template that goes through them. */
    m = tiny_model("{% for m in messages %}{% if m.content is string %}"
                   "{{ m.content }}{% else %}{% for part in m['content'] %}"
                   "<{{ part.text }}>{% endfor %}{% endif %}{% endfor %}"
                   "{# for part in message.content #}");
    check_prompt(&m,
                 MESSAGES("{\"role\":\"user\",\"content\":[{\"type\":\"text\","
                          "\"text\":\"a\",\"cache_control\":{}},{\"type\":"
                          "\"text\",\"text\":\"b\"}]}"),
                 "<a><b>");
    tiny_free(&m);
}

static void test_templates_get_their_variables(void **state)
{
    (void)state;
    qn_api_model m = tiny_model("{{ enable_thinking }} {{ reasoning_effort }} "
                                "{{ x | default('-') }}");
    check_prompt(&m, CHAT(""), "True  -");
    check_prompt(&m, FIELD("\"reasoning_effort\":\"low\""), "True low -");
    check_prompt(&m, FIELD("\"reasoning_effort\":\"none\""), "False none -");
    check_prompt(&m,
                 FIELD("\"chat_template_kwargs\":{\"x\":5,"
                       "\"enable_thinking\":false,\"reasoning_effort\":1}"),
                 "False 1 5");
    check_prompt(&m,
                 FIELD("\"reasoning_effort\":\"high\","
                       "\"chat_template_kwargs\":{\"enable_thinking\":false,"
                       "\"reasoning_effort\":1}"),
                 "False high -");
    tiny_free(&m);
    m = tiny_model(NULL);
    qn_api_call call;
    parse_good(&call, chat, &plain_server,
               FIELD("\"reasoning_effort\":\"low\""));
    prepare_good(&call, chat, &m);
    assert_string_equal(call.ignored.data, "reasoning_effort");
    qn_api_call_free(&call);
    tiny_free(&m);
}

static void test_what_the_model_can_not_take_is_refused(void **state)
{
    (void)state;
    static const bad_body rows[] = {
        {FIELD("\"max_tokens\":9223372036854775807"),
         QN_API_CONTEXT_LENGTH_EXCEEDED, "max_tokens"},
        {FIELD("\"max_tokens\":250"), QN_API_CONTEXT_LENGTH_EXCEEDED,
         "max_tokens"},
        {FIELD("\"min_tokens\":65"), QN_API_OUT_OF_RANGE, "min_tokens"},
        {FIELD("\"logit_bias\":{\"332\":1}"), QN_API_OUT_OF_RANGE,
         "logit_bias.332"},
        {FIELD("\"n_predict\":250"), QN_API_CONTEXT_LENGTH_EXCEEDED,
         "n_predict"},
        {FIELD("\"speculative\":{\"enabled\":true}"), QN_API_UNSUPPORTED_VALUE,
         "speculative.enabled"},
    };
    qn_api_model m = tiny_model(NULL);
    check_bad_calls(chat, &m, BAD(rows));
    qn_buf body = QN_BUF_INIT;
    qn_buf_add_text(&body, "{\"messages\":[{\"role\":\"user\",\"content\":\"");
    for (int i = 0; i < 300; i++)
        qn_buf_add_text(&body, "\xe2\x82\xac");
    qn_buf_add_text(&body, "\"}]}");
    const bad_body longer = {body.data, QN_API_CONTEXT_LENGTH_EXCEEDED,
                             "messages"};
    check_bad_calls(chat, &m, &longer, 1);
    qn_buf_free(&body);
    tiny_free(&m);

    static const bad_body refused = {CHAT(""), QN_API_TEMPLATE_ERROR,
                                     "messages"};
    m = tiny_model("{{ raise_exception('no ' ~ messages[0].role) }}");
    check_bad_calls(chat, &m, &refused, 1);
    tiny_free(&m);
    static const bad_body broken = {CHAT(""), QN_API_TEMPLATE_UNSUPPORTED, ""};
    m = tiny_model("{% nonsense %}");
    check_bad_calls(chat, &m, &broken, 1);
    tiny_free(&m);
    static const bad_body empty = {CHAT(""), QN_API_EMPTY_PROMPT, "messages"};
    m = tiny_model("{# #}");
    check_bad_calls(chat, &m, &empty, 1);
    tiny_free(&m);
    static const bad_body hidden = {
        "{\"messages\":[{\"role\":\"assistant\",\"content\":\"x\"}],"
        "\"continue_final_message\":true}",
        QN_API_TEMPLATE_ERROR, "messages"};
    m = tiny_model("fixed");
    check_bad_calls(chat, &m, &hidden, 1);
    tiny_free(&m);
}

/* Where caches can't be cut at any length, the messages are kept without what
 * asks for an answer. */
static void test_turns_are_kept_where_caches_forget(void **state)
{
    (void)state;
    quern_options options;
    quern_error error;
    quern_model *model = NULL;
    quern_options_init(&options);
    options.max_kv_size = 64;
    options.prefix_cache = 1 << 20;
    assert_int_equal(
        quern_model_load(&model, QN_TEST_VECTORS "/cases/fixtures/models/tiny",
                         &options, &error),
        QUERN_OK);
    qn_api_model m = {.model = model, .ctx = 256, .default_max_tokens = 8};
    qn_api_model whole = tiny_model(NULL);
    qn_api_call call;
    parse_good(&call, chat, &plain_server, FIELD("\"n\":2"));
    prepare_good(&call, chat, &m);
    for (int i = 0; i < 2; i++) {
        const quern_request *r = &call.requests[i];
        assert_int_equal(r->checkpoint_count, 1);
        assert_int_equal(r->checkpoints[0].pin_seconds, 0);
        assert_int_equal(r->ids[r->checkpoints[0].tokens], 323);
        assert_true(r->checkpoints[0].tokens > 1);
    }
    qn_api_call_free(&call);
    parse_good(&call, chat, &plain_server, FIELD("\"cache_prompt\":false"));
    prepare_good(&call, chat, &whole);
    assert_int_equal(call.requests[0].checkpoint_count, 0);
    assert_true(call.requests[0].no_cache);
    qn_api_call_free(&call);
    quern_model_free(model);
    tiny_free(&whole);
}

/* ---- memory ---- */

static qn_api_model shared_model;

static qn_status parse_and_prepare(void)
{
    qn_api_call call = {0};
    qn_api_error error = {0};
    bool good =
        chat->parse(&call,
                    QN_STR(MESSAGES(
                        USER ",{\"role\":\"assistant\",\"tool_calls\":[{\"id\":"
                             "\"c\",\"function\":{\"name\":\"f\",\"arguments\":"
                             "\"{}\"}}]},{\"role\":\"tool\",\"tool_call_id\":"
                             "\"c\",\"content\":[{\"type\":\"text\",\"text\":"
                             "\"a\"}]}],\"stop\":[\"x\"],\"logit_bias\":"
                             "{\"1\":1},\"what\":[1")),
                    &plain_server, &error) &&
        chat->prepare(&call, &shared_model, &test_head, &error);
    qn_api_call_free(&call);
    if (good)
        return QN_OK;
    assert_int_equal(error.code, QN_API_INSUFFICIENT_MEMORY);
    return QN_E_NOMEM;
}

static void test_each_allocation_may_fail(void **state)
{
    (void)state;
    shared_model = tiny_model(NULL);
    each_alloc_may_fail(parse_and_prepare);
    tiny_free(&shared_model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_no_json_object_is_refused_with_its_byte),
        cmocka_unit_test(test_nesting_and_values_are_bounded),
        cmocka_unit_test(test_no_type_is_turned_into_another),
        cmocka_unit_test(test_values_beyond_their_range_are_refused),
        cmocka_unit_test(test_what_does_not_hold_together_is_refused),
        cmocka_unit_test(test_what_the_server_can_not_do_is_refused),
        cmocka_unit_test(test_messages_are_checked_to_their_parts),
        cmocka_unit_test(test_calls_of_the_history_are_checked),
        cmocka_unit_test(test_faults_are_told_in_the_order_of_their_kinds),
        cmocka_unit_test(test_null_and_empty_lists_count_as_absent),
        cmocka_unit_test(test_fields_without_effect_are_listed),
        cmocka_unit_test(test_what_a_body_says_reaches_the_requests),
        cmocka_unit_test(test_what_a_body_leaves_out_is_the_models),
        cmocka_unit_test(test_repeat_last_n_is_the_window_of_all_penalties),
        cmocka_unit_test(test_messages_become_the_templates_text),
        cmocka_unit_test(test_text_of_messages_forges_no_tokens),
        cmocka_unit_test(test_calls_of_the_history_reach_the_template),
        cmocka_unit_test(test_templates_get_their_variables),
        cmocka_unit_test(test_what_the_model_can_not_take_is_refused),
        cmocka_unit_test(test_turns_are_kept_where_caches_forget),
        cmocka_unit_test(test_each_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
