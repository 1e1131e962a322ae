/* Bodies and answers of /v1/embeddings. */
#include "support/qn_api.h"

#include "server/embeddings.h"

#define BAD(rows) rows, sizeof(rows) / sizeof *(rows)
#define FIELD(json) "{\"input\":\"a\"," json "}"

static const qn_api_protocol *const embeddings = &qn_api_embeddings;

static void test_bodies_are_refused_with_their_field(void **state)
{
    (void)state;
    static const bad_body rows[] = {
        {"{}", QN_API_MISSING_FIELD, "input"},
        {"{\"input\":5}", QN_API_INVALID_TYPE, "input"},
        {"{\"input\":{}}", QN_API_INVALID_TYPE, "input"},
        {"{\"input\":[]}", QN_API_OUT_OF_RANGE, "input"},
        {"{\"input\":[true]}", QN_API_INVALID_TYPE, "input[0]"},
        {"{\"input\":[\"a\",1]}", QN_API_INVALID_TYPE, "input[1]"},
        {"{\"input\":[1,1.5]}", QN_API_INVALID_TYPE, "input[1]"},
        {"{\"input\":[[1],[\"a\"]]}", QN_API_INVALID_TYPE, "input[1][0]"},
        {"{\"input\":[[1],[]]}", QN_API_EMPTY_PROMPT, "input[1]"},
        {FIELD("\"encoding_format\":\"hex\""), QN_API_UNSUPPORTED_VALUE,
         "encoding_format"},
        {FIELD("\"dimensions\":0"), QN_API_OUT_OF_RANGE, "dimensions"},
        {FIELD("\"dimensions\":\"4\""), QN_API_INVALID_TYPE, "dimensions"},
        {FIELD("\"truncate\":1"), QN_API_INVALID_TYPE, "truncate"},
        {FIELD("\"stream\":true"), QN_API_UNKNOWN_FIELD, "stream"},
        {"{\"input\":[1],\"instruction\":\"find\"}", QN_API_UNSUPPORTED_VALUE,
         "instruction"},
    };
    check_bad_bodies(embeddings, &strict_server, BAD(rows));
    qn_buf body = QN_BUF_INIT;
    qn_buf_add_text(&body, "{\"input\":[\"\"");
    for (int i = 0; i < 2048; i++)
        qn_buf_add_text(&body, ",\"\"");
    qn_buf_add_text(&body, "]}");
    const bad_body many = {body.data, QN_API_OUT_OF_RANGE, "input"};
    check_bad_bodies(embeddings, &strict_server, &many, 1);
    qn_buf_free(&body);
}

static void test_what_the_model_can_not_do_is_refused(void **state)
{
    (void)state;
    static const bad_body rows[] = {
        {"{\"input\":[332]}", QN_API_OUT_OF_RANGE, "input[0]"},
        {"{\"input\":[[1],[1,-1]]}", QN_API_OUT_OF_RANGE, "input[1][1]"},
        {FIELD("\"dimensions\":33"), QN_API_OUT_OF_RANGE, "dimensions"},
    };
    static const bad_body none[] = {
        {FIELD("\"model\":\"m\""), QN_API_UNSUPPORTED_VALUE, "model"},
    };
    qn_api_model m = tiny_model(NULL);
    check_bad_calls(embeddings, &m, BAD(none));
    m.pooling = QUERN_POOLING_MEAN;
    check_bad_calls(embeddings, &m, BAD(rows));
    tiny_free(&m);
}

static void test_failures_name_their_input(void **state)
{
    (void)state;
    static const struct {
        quern_error cause;
        qn_api_code code;
        const char *param;
    } rows[] = {
        {{QUERN_E_UNSUPPORTED, "text 3", "600 tokens"},
         QN_API_CONTEXT_LENGTH_EXCEEDED,
         "input[3]"},
        {{QUERN_E_ARG, "text 0", "no tokens"}, QN_API_EMPTY_PROMPT, "input[0]"},
        {{QUERN_E_UNSUPPORTED, "", "no form"},
         QN_API_UNSUPPORTED_VALUE,
         "instruction"},
        {{QUERN_E_NOMEM, "text 0", "memory"}, QN_API_INSUFFICIENT_MEMORY, ""},
    };
    qn_api_call one, several;
    qn_api_error error;
    parse_good(&one, embeddings, &plain_server, "{\"input\":\"a\"}");
    parse_good(&several, embeddings, &plain_server, "{\"input\":[\"a\"]}");
    assert_false(qn_embeddings_fail(&error, &one, &rows[0].cause));
    assert_string_equal(error.param, "input");
    qn_api_call_free(&one);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_false(qn_embeddings_fail(&error, &several, &rows[i].cause));
        assert_int_equal(error.code, rows[i].code);
        assert_string_equal(error.param, rows[i].param);
    }
    qn_api_call_free(&several);
}

/* The vectors of a body's inputs, from the model, as JSON. */
static void embed(qn_buf *out, qn_api_model *m, const char *body)
{
    qn_api_call call;
    quern_embeddings made;
    quern_error error;
    parse_good(&call, embeddings, &strict_server, body);
    prepare_good(&call, embeddings, m);
    assert_int_equal(call.kind, QN_API_EMBED);
    if (quern_embed((quern_model *)m->model, call.inputs, call.input_count,
                    &call.embed, &made, &error))
        fail_msg("%s: %s", error.where, error.message);
    embeddings->embeddings(out, &call, &test_head, &made);
    assert_false(out->failed);
    quern_embeddings_free(&made);
    qn_api_call_free(&call);
}

static qn_str vector_text(const qn_buf *text, size_t index)
{
    static qn_json_doc *doc;
    qn_json_doc_free(doc);
    doc = NULL;
    assert_int_equal(qn_json_parse(&doc, qn_buf_str(text), 0), QN_OK);
    const qn_json *data = qn_json_get(qn_json_root(doc), "data");
    return qn_json_get(qn_json_at(data, index), "embedding")->text;
}

static void test_inputs_of_all_forms_have_the_same_vectors(void **state)
{
    (void)state;
    qn_api_model m = tiny_model(NULL);
    qn_buf texts = QN_BUF_INIT, ids = QN_BUF_INIT, one = QN_BUF_INIT;
    m.pooling = QUERN_POOLING_LAST;
#define BASE64 ",\"encoding_format\":\"base64\"}"
    embed(&one, &m, "{\"input\":\"b\"" BASE64);
    embed(&texts, &m, "{\"input\":[\"a\",\"b\"]" BASE64);
    /* An end token stands behind a text for the last one to count. */
    embed(&ids, &m, "{\"input\":[[97,324],[98,324]]" BASE64);
    assert_string_equal(texts.data, ids.data);
    qn_str first = vector_text(&one, 0);
    char *alone = strndup(first.data, first.size);
    assert_true(qn_str_is(vector_text(&texts, 1), alone));
    /* 32 floats, in base64. */
    assert_int_equal(strlen(alone), (32 * 4 + 2) / 3 * 4);
    free(alone);
    qn_buf_free(&texts);
    qn_buf_free(&ids);
    qn_buf_free(&one);
    tiny_free(&m);
}

static void test_answers_byte_for_byte(void **state)
{
    (void)state;
    float numbers[] = {0.5F, -0.25F, 0.1F, 1};
    const quern_embeddings made = {numbers, 2, 2, 7};
    qn_api_call call;
    qn_buf out = QN_BUF_INIT;
    parse_good(&call, embeddings, &plain_server, "{\"input\":[\"a\",\"b\"]}");
    embeddings->embeddings(&out, &call, &test_head, &made);
    assert_string_equal(out.data,
                        "{\"object\":\"list\",\"data\":[{\"object\":"
                        "\"embedding\",\"index\":0,\"embedding\":[0.5,-0.25]},"
                        "{\"object\":\"embedding\",\"index\":1,\"embedding\":["
                        "0.100000001,1]}],\"model\":\"tiny\",\"usage\":{"
                        "\"prompt_tokens\":7,\"total_tokens\":7}}");
    qn_buf_free(&out);
    qn_api_call_free(&call);
    parse_good(&call, embeddings, &plain_server,
               FIELD("\"encoding_format\":"
                     "\"base64\""));
    embeddings->embeddings(&out, &call, &test_head, &made);
    /* Little-endian 0x3f000000, 0xbe800000. */
    assert_non_null(strstr(out.data, "\"embedding\":\"AAAAPwAAgL4=\"}"));
    qn_buf_free(&out);
    qn_api_call_free(&call);
}

static void test_options_are_the_bodys(void **state)
{
    (void)state;
    qn_api_model m = tiny_model(NULL);
    qn_api_call call;
    m.pooling = QUERN_POOLING_MEAN;
    parse_good(&call, embeddings, &strict_server,
               FIELD("\"dimensions\":4,\"normalize\":false,\"truncate\":true,"
                     "\"instruction\":\"find\",\"user\":\"u\""));
    prepare_good(&call, embeddings, &m);
    assert_int_equal(call.embed.dim, 4);
    assert_int_equal(call.embed.normalize, 0);
    assert_true(call.embed.truncate);
    assert_string_equal(call.embed.instruction, "find");
    assert_int_equal(call.embed.pooling, QUERN_POOLING_MEAN);
    qn_api_call_free(&call);
    parse_good(&call, embeddings, &strict_server, FIELD("\"model\":\"m\""));
    prepare_good(&call, embeddings, &m);
    assert_int_equal(call.embed.normalize, 1);
    assert_null(call.embed.instruction);
    qn_api_call_free(&call);
    tiny_free(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bodies_are_refused_with_their_field),
        cmocka_unit_test(test_what_the_model_can_not_do_is_refused),
        cmocka_unit_test(test_failures_name_their_input),
        cmocka_unit_test(test_inputs_of_all_forms_have_the_same_vectors),
        cmocka_unit_test(test_answers_byte_for_byte),
        cmocka_unit_test(test_options_are_the_bodys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
