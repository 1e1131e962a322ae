/* flush.c: POST /v1/cache/flush: drops the prompts that are kept, those on
 * the disk too where that is asked for. */
#include "base/alloc.h"
#include "common.h"

typedef struct flush {
    bool disk;
    /* Of all models so far. */
    size_t entries;
    uint64_t bytes;
} flush;

static const qn_field rows[] = {
    {.name = "disk",
     .types = QN_BOOL,
     .read = qn_take_bool,
     .to = offsetof(flush, disk),
     .size = sizeof(bool)},
};

static bool write_answer(qn_api_call *call, qn_api_error *error)
{
    const flush *done = call->extra;
    qn_buf_clear(&call->body);
    qn_buf_printf(&call->body, "{\"entries\":%zu,\"bytes\":%llu}",
                  done->entries, (unsigned long long)done->bytes);
    return qn_buf_status(&call->body) ? qn_api_fail_memory(error) : true;
}

static bool parse(qn_api_call *call, qn_str body, const qn_api_server *server,
                  qn_api_error *error)
{
    qn_reading r = {.call = call, .error = error};
    flush *asked = qn_arena_alloc(&call->arena, sizeof *asked);
    uint64_t given = 0;
    const qn_table table = {rows, sizeof rows / sizeof *rows, asked, &given};
    qn_call_begin(call, server);
    call->kind = QN_API_ANSWERED;
    call->extra = asked;
    if (!asked)
        return qn_api_fail_memory(error);
    *asked = (flush){.disk = false};
    if (!qn_take_body(&r, body))
        return false;
    const qn_json *root = qn_json_root(call->doc);
    return qn_fields_known(&r, root, &table, 1) &&
           qn_fields_shape(&r, root, &table, 1) &&
           qn_fields_values(&r, root, &table, 1) && write_answer(call, error);
}

static bool prepare(qn_api_call *call, const qn_api_model *model,
                    const qn_api_head *head, qn_api_error *error)
{
    quern_error cause;
    size_t entries = 0;
    uint64_t bytes = 0;
    /* Nothing that others see of the model changes. */
    quern_model *m = (quern_model *)(uintptr_t)model->model;
    (void)head;
    size_t files = 0;
    uint64_t size = 0;
    flush *asked = call->extra;
    if (m ? quern_model_flush(m, &entries, &bytes, &cause) ||
                (asked->disk &&
                 quern_model_flush_disk(m, &files, &size, &cause))
          : asked->disk && model->disk &&
                quern_prefix_flush(model->disk, &files, &size, &cause))
        return qn_api_fail_runtime(error, &cause);
    /* Who asks for this wants the memory for something else. */
    qn_alloc_trim();
    asked->entries += entries + files;
    asked->bytes += bytes + size;
    return write_answer(call, error);
}

const qn_api_protocol qn_api_flush = {
    .name = "flush",
    .style = QN_API_OPENAI,
    .scope = QN_API_EACH_MODEL,
    .parse = parse,
    .prepare = prepare,
};
