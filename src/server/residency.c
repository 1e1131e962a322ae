/* residency.c: POST /v1/models/load and /v1/models/unload, of servers with
 * several models. */
#include "openai.h"

#define ROW(name, types, read, member, low, high, range)                       \
    QN_FIELD(qn_api_call, name, types, read, member, low, high, range)

static const qn_field load_rows[] = {
    ROW("model", QN_STRING, qn_take_text, model, 0, 0, NULL),
    ROW("context", QN_INT, qn_take_int, context, 1, 9e15, "1 or more"),
};

static const qn_field unload_rows[] = {
    ROW("model", QN_STRING, qn_take_text, model, 0, 0, NULL),
    ROW("force", QN_BOOL, qn_take_bool, force, 0, 0, NULL),
};

static bool parse(qn_api_call *call, qn_str body, const qn_api_server *server,
                  const qn_field *rows, size_t count, qn_api_error *error)
{
    qn_reading r = {.call = call, .error = error};
    const qn_table table = {rows, count, call, NULL};
    qn_call_begin(call, server);
    if (!server->many_models)
        return qn_api_fail(error, QN_API_NOT_SUPPORTED, NULL,
                           "this server has one model, which stays loaded");
    if (!qn_take_body(&r, body))
        return false;
    const qn_json *root = qn_json_root(call->doc);
    return qn_field_required(&r, root, "model") &&
           qn_fields_known(&r, root, &table, 1) &&
           qn_fields_shape(&r, root, &table, 1) &&
           qn_fields_values(&r, root, &table, 1);
}

static bool parse_load(qn_api_call *call, qn_str body,
                       const qn_api_server *server, qn_api_error *error)
{
    call->kind = QN_API_LOAD;
    return parse(call, body, server, load_rows,
                 sizeof load_rows / sizeof *load_rows, error);
}

static bool parse_unload(qn_api_call *call, qn_str body,
                         const qn_api_server *server, qn_api_error *error)
{
    call->kind = QN_API_UNLOAD;
    return parse(call, body, server, unload_rows,
                 sizeof unload_rows / sizeof *unload_rows, error);
}

const qn_api_protocol qn_api_load = {
    .name = "load",
    .style = QN_API_OPENAI,
    .parse = parse_load,
};

const qn_api_protocol qn_api_unload = {
    .name = "unload",
    .style = QN_API_OPENAI,
    .parse = parse_unload,
};
