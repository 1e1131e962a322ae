/* embeddings.c: vectors of texts (server specification, section 8). */
#include "embeddings.h"

#include "base/base64.h"
#include "common.h"

#include <stdio.h>
#include <stdlib.h>

enum { MAX_INPUTS = 2048 };

/* call->extra. */
typedef struct embedding {
    const qn_json *input;
    const char *instruction;
    int32_t dimensions; /* 0: all */
    bool base64, normalize, truncate;
} embedding;

/* ---- input ---- */

/* A text, texts, ids, or lists of ids. */
static unsigned kind_of(const qn_json *input)
{
    if (input->type == QN_JSON_T_STRING || !input->count)
        return QN_STRING;
    switch (input->items[0].type) {
    case QN_JSON_T_NUMBER:
        return QN_INT;
    case QN_JSON_T_ARRAY:
        return QN_ARRAY;
    default:
        return QN_STRING;
    }
}

static bool ids_shape(qn_reading *r, const qn_json *list)
{
    for (uint32_t i = 0; i < list->count; i++) {
        size_t before = qn_enter_index(r, i);
        if (!qn_check_type(r, &list->items[i], QN_INT))
            return false;
        qn_leave(r, before);
    }
    return true;
}

static bool input_shape(qn_reading *r, const qn_field *f, const qn_json *value,
                        void *base)
{
    (void)f;
    (void)base;
    unsigned kind = kind_of(value);
    for (uint32_t i = 0; value->type == QN_JSON_T_ARRAY && i < value->count;
         i++) {
        size_t before = qn_enter_index(r, i);
        if (!qn_check_type(r, &value->items[i], kind) ||
            (kind == QN_ARRAY && !ids_shape(r, &value->items[i])))
            return false;
        qn_leave(r, before);
    }
    return true;
}

/* Not a list of several, of whatever length. */
static bool is_one(const qn_json *input)
{
    return input->type == QN_JSON_T_STRING || kind_of(input) == QN_INT;
}

static size_t input_count(const qn_json *input)
{
    return is_one(input) ? 1 : input->count;
}

static bool read_input(qn_reading *r, const qn_field *f, const qn_json *value,
                       void *base)
{
    size_t count = input_count(value);
    if (!count || count > MAX_INPUTS)
        return qn_bad_field(r, QN_API_OUT_OF_RANGE,
                            "expected 1..%d inputs, found %zu", MAX_INPUTS,
                            count);
    for (uint32_t i = 0; kind_of(value) == QN_ARRAY && i < value->count; i++)
        if (!value->items[i].count) {
            qn_enter_index(r, i);
            return qn_bad_field(r, QN_API_EMPTY_PROMPT,
                                "the list has no tokens");
        }
    return qn_take_json(r, f, value, base);
}

/* ---- fields ---- */

static bool read_format(qn_reading *r, const qn_field *f, const qn_json *value,
                        void *base)
{
    (void)f;
    embedding *e = base;
    e->base64 = qn_str_is(value->text, "base64");
    return e->base64 || qn_str_is(value->text, "float") ||
           qn_bad_field(r, QN_API_UNSUPPORTED_VALUE,
                        "expected \"float\" or \"base64\"");
}

#define ROW(name, types, read, member, low, high, range)                       \
    QN_FIELD(embedding, name, types, read, member, low, high, range)
#define CALL_ROW(name, types) QN_FIELD_BY(name, types, NULL, qn_take_call_field)

static const qn_field rows[] = {
    CALL_ROW("model", QN_STRING),
    CALL_ROW("user", QN_STRING),
    CALL_ROW("keep_alive", QN_INT | QN_STRING),
    {"input", QN_STRING | QN_ARRAY, read_input, offsetof(embedding, input),
     sizeof(qn_json *), 0, 0, NULL, input_shape},
    QN_FIELD_BY("encoding_format", QN_STRING, NULL, read_format),
    ROW("dimensions", QN_INT, qn_take_int, dimensions, 1, INT32_MAX,
        "1 or more"),
    ROW("normalize", QN_BOOL, qn_take_bool, normalize, 0, 0, NULL),
    ROW("truncate", QN_BOOL, qn_take_bool, truncate, 0, 0, NULL),
    ROW("instruction", QN_STRING, qn_take_text, instruction, 0, 0, NULL),
};

static bool parse(qn_api_call *call, qn_str body, const qn_api_server *server,
                  qn_api_error *error)
{
    qn_reading r = {.call = call, .error = error};
    qn_call_begin(call, server);
    call->kind = QN_API_EMBED;
    embedding *e = qn_arena_alloc(&call->arena, sizeof *e);
    if (!e)
        return qn_api_fail_memory(error);
    *e = (embedding){.normalize = true};
    call->extra = e;
    const qn_table table = {rows, sizeof rows / sizeof *rows, e, NULL};
    if (!qn_take_body(&r, body))
        return false;
    const qn_json *root = qn_json_root(call->doc);
    if (!qn_field_required(&r, root, "input") ||
        !qn_fields_known(&r, root, &table, 1) ||
        !qn_fields_shape(&r, root, &table, 1) ||
        !qn_fields_values(&r, root, &table, 1))
        return false;
    if (e->instruction && e->input->type == QN_JSON_T_ARRAY &&
        kind_of(e->input) != QN_STRING) {
        qn_enter(&r, "instruction");
        return qn_bad_field(&r, QN_API_UNSUPPORTED_VALUE,
                            "this field is only allowed with texts");
    }
    return qn_call_check(&r);
}

/* ---- beside a model ---- */

static bool take_ids(qn_api_call *call, quern_embed_input *out,
                     const qn_json *list, int32_t vocab, const char *path,
                     qn_api_error *error)
{
    int32_t *ids = qn_arena_alloc(&call->arena, list->count * sizeof *ids);
    if (!ids)
        return qn_api_fail_memory(error);
    for (uint32_t i = 0; i < list->count; i++) {
        int64_t id;
        if (!qn_take_id(&id, list, i, vocab, path, error))
            return false;
        ids[i] = (int32_t)id;
    }
    *out = (quern_embed_input){.ids = ids, .id_count = list->count};
    return true;
}

static bool take_inputs(qn_api_call *call, const quern_info *info,
                        qn_api_error *error)
{
    const qn_json *input = ((embedding *)call->extra)->input;
    size_t count = input_count(input);
    call->inputs = qn_arena_alloc(&call->arena, count * sizeof *call->inputs);
    if (!call->inputs)
        return qn_api_fail_memory(error);
    for (size_t i = 0; i < count; i++) {
        const qn_json *item = is_one(input) ? input : &input->items[i];
        char path[32] = "input";
        if (item != input)
            snprintf(path, sizeof path, "input[%zu]", i);
        if (item->type == QN_JSON_T_STRING)
            call->inputs[i] = (quern_embed_input){.text = item->text.data,
                                                  .size = item->text.size};
        else if (!take_ids(call, &call->inputs[i], item, info->vocab_size, path,
                           error))
            return false;
    }
    call->input_count = count;
    return true;
}

static bool prepare(qn_api_call *call, const qn_api_model *model,
                    const qn_api_head *head, qn_api_error *error)
{
    const embedding *e = call->extra;
    quern_info info;
    (void)head;
    quern_model_info(model->model, &info);
    if (e->dimensions > info.hidden)
        return qn_api_fail(error, QN_API_OUT_OF_RANGE, "dimensions",
                           "expected 1..%d, found %d", (int)info.hidden,
                           (int)e->dimensions);
    if (!info.pooling && model->pooling == QUERN_POOLING_MODEL)
        return qn_api_fail(error, QN_API_UNSUPPORTED_VALUE, "model",
                           "this model says nothing of embeddings; the server "
                           "can be started with a --pooling");
    quern_embed_options_init(&call->embed);
    call->embed.pooling = model->pooling;
    call->embed.normalize = e->normalize;
    call->embed.dim = e->dimensions;
    call->embed.truncate = e->truncate;
    call->embed.instruction = e->instruction;
    return take_inputs(call, &info, error);
}

bool qn_embeddings_fail(qn_api_error *error, const qn_api_call *call,
                        const quern_error *cause)
{
    const qn_json *input = ((const embedding *)call->extra)->input;
    char path[32] = "input";
    size_t index;
    bool text = sscanf(cause->where, "text %zu", &index) == 1;
    if (text && !is_one(input))
        snprintf(path, sizeof path, "input[%zu]", index);
    if (text && cause->status == QUERN_E_UNSUPPORTED)
        return qn_api_fail(error, QN_API_CONTEXT_LENGTH_EXCEEDED, path, "%s",
                           cause->message);
    if (text && cause->status == QUERN_E_ARG)
        return qn_api_fail(error, QN_API_EMPTY_PROMPT, path, "%s",
                           cause->message);
    if (cause->status == QUERN_E_UNSUPPORTED)
        return qn_api_fail(error, QN_API_UNSUPPORTED_VALUE, "instruction", "%s",
                           cause->message);
    return qn_api_fail_runtime(error, cause);
}

/* ---- answers ---- */

/* The shortest number that is read back as the same float, or nearly so. */
static void write_float(qn_json_writer *w, float value)
{
    char text[32];
    snprintf(text, sizeof text, "%.9g", (double)value);
    qn_json_write_double(w, strtod(text, NULL));
}

static void write_vector(qn_json_writer *w, const float *x, size_t dim,
                         bool base64)
{
    if (!base64) {
        qn_json_write_array(w);
        for (size_t i = 0; i < dim; i++)
            write_float(w, x[i]);
        qn_json_write_array_end(w);
        return;
    }
    /* Little-endian, whatever this machine is. */
    qn_buf bytes = QN_BUF_INIT, text = QN_BUF_INIT;
    for (size_t i = 0; i < dim; i++) {
        uint32_t bits;
        uint8_t four[4];
        memcpy(&bits, &x[i], sizeof bits);
        qn_put_le32(four, bits);
        qn_buf_add(&bytes, four, sizeof four);
    }
    qn_base64_encode(&text, bytes.data, bytes.size);
    w->out->failed = w->out->failed || bytes.failed || text.failed;
    qn_json_write_str(w, qn_buf_str(&text));
    qn_buf_free(&bytes);
    qn_buf_free(&text);
}

static void write_usage(qn_json_writer *w, int64_t tokens)
{
    qn_json_write_key(w, "usage");
    qn_json_write_object(w);
    qn_json_write_key(w, "prompt_tokens");
    qn_json_write_int(w, tokens);
    qn_json_write_key(w, "total_tokens");
    qn_json_write_int(w, tokens);
    qn_json_write_object_end(w);
}

static void embeddings(qn_buf *out, const qn_api_call *call,
                       const qn_api_head *head, const quern_embeddings *made)
{
    const embedding *e = call->extra;
    qn_json_writer w;
    qn_json_write_begin(&w, out);
    qn_json_write_object(&w);
    qn_json_write_key(&w, "object");
    qn_json_write_text(&w, "list");
    qn_json_write_key(&w, "data");
    qn_json_write_array(&w);
    for (size_t i = 0; i < made->count; i++) {
        qn_json_write_object(&w);
        qn_json_write_key(&w, "object");
        qn_json_write_text(&w, "embedding");
        qn_json_write_key(&w, "index");
        qn_json_write_uint(&w, i);
        qn_json_write_key(&w, "embedding");
        write_vector(&w, made->data + i * made->dim, made->dim, e->base64);
        qn_json_write_object_end(&w);
    }
    qn_json_write_array_end(&w);
    qn_json_write_key(&w, "model");
    qn_json_write_text(&w, head->model);
    write_usage(&w, made->tokens);
    qn_json_write_object_end(&w);
}

const qn_api_protocol qn_api_embeddings = {
    .name = "embeddings",
    .style = QN_API_OPENAI,
    .parse = parse,
    .prepare = prepare,
    .embeddings = embeddings,
};
