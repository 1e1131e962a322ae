/* flush.c: POST /v1/cache/flush: drops the prompts that are kept, those on
 * the disk too where that is asked for. */
#include "fields.h"

#if defined(__GLIBC__)
#include <malloc.h>
#endif

typedef struct flush {
    bool disk;
} flush;

static const qn_field rows[] = {
    {.name = "disk",
     .types = QN_BOOL,
     .read = qn_take_bool,
     .to = offsetof(flush, disk),
     .size = sizeof(bool)},
};

static bool parse(qn_api_call *call, qn_str body, const qn_api_server *server,
                  qn_api_error *error)
{
    qn_reading r = {.call = call, .error = error};
    flush *asked = qn_arena_alloc(&call->arena, sizeof *asked);
    uint64_t given = 0;
    const qn_table table = {rows, sizeof rows / sizeof *rows, asked, &given};
    call->server = server;
    call->kind = QN_API_ANSWERED;
    call->extra = asked;
    if (!asked)
        return qn_api_fail_memory(error);
    *asked = (flush){false};
    if (!qn_take_body(&r, body))
        return false;
    const qn_json *root = qn_json_root(call->doc);
    return qn_fields_known(&r, root, &table, 1) &&
           qn_fields_shape(&r, root, &table, 1) &&
           qn_fields_values(&r, root, &table, 1);
}

static bool prepare(qn_api_call *call, const qn_api_model *model,
                    const qn_api_head *head, qn_api_error *error)
{
    quern_error cause;
    size_t entries;
    uint64_t bytes;
    /* Nothing that others see of the model changes. */
    quern_model *m = (quern_model *)(uintptr_t)model->model;
    (void)head;
    size_t files = 0;
    uint64_t size = 0;
    const flush *asked = call->extra;
    if (quern_model_flush(m, &entries, &bytes, &cause) ||
        (asked->disk && quern_model_flush_disk(m, &files, &size, &cause)))
        return qn_api_fail_runtime(error, &cause);
#if defined(__GLIBC__)
    /* Who asks for this wants the memory for something else. */
    malloc_trim(0);
#endif
    qn_buf_printf(&call->body, "{\"entries\":%zu,\"bytes\":%llu}",
                  entries + files, (unsigned long long)(bytes + size));
    return true;
}

const qn_api_protocol qn_api_flush = {
    .name = "flush",
    .style = QN_API_OPENAI,
    .parse = parse,
    .prepare = prepare,
};
