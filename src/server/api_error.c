/* api_error.c: what went wrong, as the two families of protocols tell it. */
#include "protocol.h"

#include "base/json.h"
#include "base/utf8.h"

#include <stdio.h>

static const struct {
    const char *name;
    int status[2]; /* by qn_api_style */
    const char *type[2];
} codes[] = {
#define QN_ERROR(id, name, status, type, anthropic_status, anthropic_type)     \
    {name, {status, anthropic_status}, {type, anthropic_type}},
#include "errors.def"
#undef QN_ERROR
};

const char *qn_api_code_name(qn_api_code code)
{
    return codes[code].name;
}

int qn_api_code_status(qn_api_code code, qn_api_style style)
{
    return codes[code].status[style];
}

/* Text that filled its array may have lost a part of its last character. */
static void cut_between_characters(char *text, size_t size)
{
    size_t length = strlen(text);
    if (length + 1 == size)
        text[length - qn_utf8_incomplete_tail((qn_str){text, length})] = 0;
}

bool qn_api_fail(qn_api_error *error, qn_api_code code, const char *param,
                 const char *fmt, ...)
{
    error->code = code;
    snprintf(error->param, sizeof error->param, "%s", param ? param : "");
    va_list args;
    va_start(args, fmt);
    vsnprintf(error->message, sizeof error->message, fmt, args);
    va_end(args);
    cut_between_characters(error->param, sizeof error->param);
    cut_between_characters(error->message, sizeof error->message);
    return false;
}

bool qn_api_fail_memory(qn_api_error *error)
{
    return qn_api_fail(error, QN_API_INSUFFICIENT_MEMORY, NULL,
                       "the server is out of memory");
}

bool qn_api_fail_runtime(qn_api_error *error, const quern_error *cause)
{
    switch (cause->status) {
    case QUERN_E_NOMEM:
        return qn_api_fail(error, QN_API_INSUFFICIENT_MEMORY, NULL, "%s",
                           cause->message);
    case QUERN_E_CANCELLED:
        return qn_api_fail(error, QN_API_SHUTTING_DOWN, NULL,
                           "the server is shutting down");
    case QUERN_E_ARG:
        return qn_api_fail(error, QN_API_OUT_OF_RANGE, cause->where, "%s",
                           cause->message);
    case QUERN_E_UNSUPPORTED:
        return qn_api_fail(error, QN_API_UNSUPPORTED_VALUE, cause->where, "%s",
                           cause->message);
    default:
        return qn_api_fail(error, QN_API_INTERNAL, NULL, "%s", cause->message);
    }
}

/* {"message", "type", "param", "code"} */
static void write_openai(qn_json_writer *w, const qn_api_error *error)
{
    qn_json_write_object(w);
    qn_json_write_key(w, "error");
    qn_json_write_object(w);
    qn_json_write_key(w, "message");
    qn_json_write_text(w, error->message);
    qn_json_write_key(w, "type");
    qn_json_write_text(w, codes[error->code].type[QN_API_OPENAI]);
    qn_json_write_key(w, "param");
    qn_json_write_text(w, *error->param ? error->param : NULL);
    qn_json_write_key(w, "code");
    qn_json_write_text(w, codes[error->code].name);
    qn_json_write_object_end(w);
    qn_json_write_object_end(w);
}

/* There is no place for a field's name but the message. */
static void write_anthropic(qn_json_writer *w, const qn_api_error *error,
                            const char *request_id)
{
    char message[QN_API_PARAM_SIZE + QN_API_MESSAGE_SIZE + 2];
    snprintf(message, sizeof message, "%s%s%s", error->param,
             *error->param ? ": " : "", error->message);
    qn_json_write_object(w);
    qn_json_write_key(w, "type");
    qn_json_write_text(w, "error");
    qn_json_write_key(w, "error");
    qn_json_write_object(w);
    qn_json_write_key(w, "type");
    qn_json_write_text(w, codes[error->code].type[QN_API_ANTHROPIC]);
    qn_json_write_key(w, "message");
    qn_json_write_text(w, message);
    qn_json_write_object_end(w);
    qn_json_write_key(w, "request_id");
    qn_json_write_text(w, request_id);
    qn_json_write_object_end(w);
}

void qn_api_error_write(qn_buf *out, const qn_api_error *error,
                        qn_api_style style, const char *request_id)
{
    qn_json_writer w;
    qn_json_write_begin(&w, out);
    if (style == QN_API_ANTHROPIC)
        write_anthropic(&w, error, request_id);
    else
        write_openai(&w, error);
}
