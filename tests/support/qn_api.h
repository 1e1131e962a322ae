/* qn_api.h: what tests of protocols share: bodies that are parsed, and the tiny
 * model that prepares them. */
#ifndef QN_TEST_API_H
#define QN_TEST_API_H

#include "support/qn_test.h"

#include "server/protocol.h"

static const qn_api_server plain_server = {0};
static const qn_api_server strict_server = {.strict_fields = true};
static const qn_api_server mlx_server = {.compat_mlx_lm = true};

static const qn_api_head test_head = {
    .created = 1700000000,
    .random = {1, 2},
    .seed = 77,
    .request_id = "req_1",
    .model = "tiny",
    .fingerprint = "quern-0-abc",
};

/* Parses a body, which has to be good. */
static inline void parse_good(qn_api_call *call, const qn_api_protocol *p,
                              const qn_api_server *server, const char *body)
{
    qn_api_error error = {0};
    *call = (qn_api_call){0};
    if (p->parse(call, qn_str_of(body), server, &error))
        return;
    print_error("%s\n%s: %s: %s\n", body, qn_api_code_name(error.code),
                error.param, error.message);
    fail();
}

/* A body that is refused. */
typedef struct bad_body {
    const char *body;
    qn_api_code code;
    const char *param;
} bad_body;

static inline void check_refused(const qn_api_error *error, const bad_body *row)
{
    if (error->code == row->code && !strcmp(error->param, row->param) &&
        *error->message)
        return;
    print_error("%s\nexpected %s at \"%s\", found %s at \"%s\": %s\n",
                row->body, qn_api_code_name(row->code), row->param,
                qn_api_code_name(error->code), error->param, error->message);
    fail();
}

/* Each body is refused by parse with its code and place. */
static inline void check_bad_bodies(const qn_api_protocol *p,
                                    const qn_api_server *server,
                                    const bad_body *rows, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        qn_api_call call = {0};
        qn_api_error error = {0};
        if (p->parse(&call, qn_str_of(rows[i].body), server, &error)) {
            print_error("accepted: %s\n", rows[i].body);
            fail();
        }
        check_refused(&error, &rows[i]);
        qn_api_call_free(&call);
    }
}

/* The model of the shared cases, of byte tokens; `tmpl` NULL: its own.
 * `prefix_cache`: bytes of prompts that it keeps. */
static inline qn_api_model tiny_model_with(const char *tmpl,
                                           uint64_t prefix_cache)
{
    quern_options options;
    quern_error error;
    qn_api_model m = {.id = "tiny",
                      .fingerprint = "quern-0-abc",
                      .ctx = 256,
                      .default_max_tokens = 64};
    quern_model *model = NULL;
    quern_options_init(&options);
    options.chat_template = tmpl;
    options.prefix_cache = prefix_cache;
    if (quern_model_load(&model, QN_TEST_VECTORS "/cases/fixtures/models/tiny",
                         &options, &error)) {
        print_error("%s: %s\n", error.where, error.message);
        fail();
    }
    m.model = model;
    return m;
}

static inline qn_api_model tiny_model(const char *tmpl)
{
    return tiny_model_with(tmpl, 0);
}

static inline void tiny_free(qn_api_model *m)
{
    quern_model_free((quern_model *)m->model);
}

static inline void prepare_good(qn_api_call *call, const qn_api_protocol *p,
                                const qn_api_model *model)
{
    qn_api_error error = {0};
    if (p->prepare(call, model, &test_head, &error))
        return;
    print_error("%s: %s: %s\n", qn_api_code_name(error.code), error.param,
                error.message);
    fail();
}

/* Each body is good, and refused beside the model. */
static inline void check_bad_calls(const qn_api_protocol *p,
                                   const qn_api_model *model,
                                   const bad_body *rows, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        qn_api_call call;
        qn_api_error error = {0};
        parse_good(&call, p, &plain_server, rows[i].body);
        if (p->prepare(&call, model, &test_head, &error)) {
            print_error("accepted: %s\n", rows[i].body);
            fail();
        }
        check_refused(&error, &rows[i]);
        qn_api_call_free(&call);
    }
}

/* Appends {"messages": [...], MORE} of one short message. */
#define CHAT(more)                                                             \
    "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]" more "}"

#endif
