/* fuzz_requests.c: bodies of requests, from bytes to answers.
 *
 * The first byte chooses the protocol and the server's flags.  What is refused
 * has an error that can be told; what is good is prepared beside a tiny model,
 * and its answers are JSON.  "Bodies" of fit are queries. */
#include "fuzz.h"

#include "base/utf8.h"
#include "server/protocol.h"

static const qn_api_protocol *const protocols[] = {
    &qn_api_chat,           &qn_api_completions, &qn_api_messages,
    &qn_api_count_tokens,   &qn_api_tokenize,    &qn_api_detokenize,
    &qn_api_apply_template, &qn_api_embeddings,  &qn_api_responses,
    &qn_api_load,           &qn_api_unload,      &qn_api_fit};
enum { PROTOCOLS = sizeof protocols / sizeof *protocols };

static const qn_api_head head = {.created = 1,
                                 .random = {1, 2},
                                 .request_id = "req_1",
                                 .model = "tiny",
                                 .fingerprint = "quern-0-0"};

static const qn_api_model *tiny(void)
{
    static qn_api_model m = {
        .id = "tiny", .fingerprint = "quern-0-0", .default_max_tokens = 8};
    static quern_model *model;
    quern_options options;
    quern_error error;
    quern_options_init(&options);
    options.headers_only = true;
    options.tool_format = "hermes_json";
    const char *path = QN_TEST_VECTORS "/cases/fixtures/models/tiny";
    if (!model)
        FUZZ_CHECK(!quern_model_load(&model, path, &options, &error));
    static const quern_machine machine = {.memory = 2000, .usable = 1000};
    m.model = model;
    m.machine = &machine;
    m.parallel = 2;
    m.ctx = 256;
    m.pooling = QUERN_POOLING_MEAN;
    return &m;
}

static void check_json(qn_str text)
{
    qn_json_doc *doc = NULL;
    FUZZ_CHECK(!qn_json_parse(&doc, text, 0));
    qn_json_doc_free(doc);
}

static void check_error(const qn_api_error *error, qn_api_style style)
{
    qn_buf out = QN_BUF_INIT;
    FUZZ_CHECK(error->code < QN_API_CODES && *error->message);
    FUZZ_CHECK(qn_api_code_status(error->code, style) < 500 ||
               error->code == QN_API_TEMPLATE_UNSUPPORTED ||
               error->code == QN_API_NOT_SUPPORTED);
    qn_api_error_write(&out, error, style, head.request_id);
    check_json(qn_buf_str(&out));
    qn_buf_free(&out);
}

/* Skips "event: NAME\n", which some protocols write in front of the data. */
static qn_str skip_name(qn_str text)
{
    if (text.size < 7 || memcmp(text.data, "event: ", 7) != 0)
        return text;
    const char *end = memchr(text.data, '\n', text.size);
    FUZZ_CHECK(end);
    size_t size = (size_t)(end + 1 - text.data);
    return (qn_str){end + 1, text.size - size};
}

/* Events of a short answer: each is one JSON object behind "data: ". */
static void check_stream(const qn_api_protocol *p, const qn_api_call *call,
                         const quern_result *result)
{
    const quern_event events[] = {
        {.type = QUERN_EVENT_START, .total = 3, .text = ""},
        {.type = QUERN_EVENT_TEXT,
         .text = result->text,
         .size = result->size,
         .tokens = result->tokens,
         .token_count = result->token_count},
        {.type = QUERN_EVENT_CALL, .text = "f", .size = 1},
        {.type = QUERN_EVENT_ARGUMENTS, .text = "{\"a", .size = 3},
        {.type = QUERN_EVENT_CALL_END, .text = ""},
        {.type = QUERN_EVENT_DONE, .text = "", .result = result},
    };
    qn_buf out = QN_BUF_INIT;
    qn_api_stream s = {.call = call, .head = &head};
    p->begin(&s, &out);
    for (size_t i = 0; i < call->count; i++)
        for (size_t e = 0; e < sizeof events / sizeof *events; e++)
            p->event(&s, i, &events[e], 1, &out);
    qn_str rest = qn_buf_str(&out);
    while (rest.size) {
        rest = skip_name(rest);
        FUZZ_CHECK(rest.size > 6 && !memcmp(rest.data, "data: ", 6));
        const char *end = memchr(rest.data, '\n', rest.size);
        FUZZ_CHECK(end && end + 1 < rest.data + rest.size && end[1] == '\n');
        check_json((qn_str){rest.data + 6, (size_t)(end - rest.data) - 6});
        rest.size -= (size_t)(end + 2 - rest.data);
        rest.data = end + 2;
    }
    p->clear(&s);
    qn_buf_free(&out);
}

static void check_call(const qn_api_protocol *p, qn_api_call *call)
{
    qn_api_error error = {0};
    if (!p->prepare) { /* load and unload: the server does what they say */
        FUZZ_CHECK(call->model && call->context >= 0);
        return;
    }
    if (!p->prepare(call, tiny(), &head, &error)) {
        check_error(&error, p->style);
        return;
    }
    if (call->kind == QN_API_EMBED) {
        float zeros[2] = {0};
        const quern_embeddings made = {zeros, 1, 2, 3};
        qn_buf text = QN_BUF_INIT;
        FUZZ_CHECK(call->input_count);
        p->embeddings(&text, call, &head, &made);
        check_json(qn_buf_str(&text));
        qn_buf_free(&text);
        return;
    }
    if (call->kind == QN_API_ANSWERED) {
        check_json(qn_buf_str(&call->body));
        return;
    }
    quern_call made = {
        .name = "f", .arguments = "{\"a", .size = 3, .text_before = 1};
    const quern_token token = {.bytes = "\xe2\x82", .byte_count = 2};
    quern_result *results = calloc(call->count, sizeof *results);
    FUZZ_CHECK(results && call->kind == QN_API_GENERATE && call->count);
    for (size_t i = 0; i < call->count; i++) {
        const quern_request *r = &call->requests[i];
        FUZZ_CHECK(r->ids && r->id_count && r->max_tokens > 0);
        FUZZ_CHECK((int64_t)r->id_count + r->max_tokens <= 256);
        results[i] = (quern_result){.text = (char *)"a\"",
                                    .size = 2,
                                    .tokens = (quern_token *)&token,
                                    .token_count = 1,
                                    .calls = &made,
                                    .call_count = 1,
                                    .finish = QUERN_FINISH_STOP};
    }
    for (size_t i = 0; i < call->ignored.size; i++)
        FUZZ_CHECK(call->ignored.data[i] > ' ' && call->ignored.data[i] < 127);
    qn_buf out = QN_BUF_INIT;
    p->answer(&out, call, &head, results);
    check_json(qn_buf_str(&out));
    qn_buf_free(&out);
    check_stream(p, call, &results[0]);
    free(results);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!size)
        return 0;
    const qn_api_server server = {.strict_fields = data[0] & 64,
                                  .many_models = !(data[0] & 32),
                                  .compat_mlx_lm = data[0] & 128};
    const qn_api_protocol *p = protocols[data[0] % 16 % PROTOCOLS];
    qn_api_call call = {0};
    qn_api_error error = {0};
    if (p->parse(&call, (qn_str){(const char *)data + 1, size - 1}, &server,
                 &error))
        check_call(p, &call);
    else
        check_error(&error, p->style);
    qn_api_call_free(&call);
    return 0;
}
