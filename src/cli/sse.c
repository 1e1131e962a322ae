/* sse.c: see sse.h. */
#include "sse.h"

#include <string.h>

static bool take_line(qn_str line, qn_sse_fn each, void *data)
{
    while (line.size && line.data[line.size - 1] == '\r')
        line.size--;
    if (line.size <= 5 || memcmp(line.data, "data:", 5) != 0)
        return true;
    line.data += 5;
    line.size -= 5;
    while (line.size && *line.data == ' ') {
        line.data++;
        line.size--;
    }
    return each(data, line);
}

bool qn_sse_add(qn_buf *line, const char *bytes, size_t size, qn_sse_fn each,
                void *data)
{
    while (size) {
        const char *end = memchr(bytes, '\n', size);
        size_t part = end ? (size_t)(end - bytes) : size;
        qn_buf_add(line, bytes, part);
        if (!end)
            return true;
        bytes += part + 1;
        size -= part + 1;
        if (!qn_sse_finish(line, each, data))
            return false;
    }
    return true;
}

bool qn_sse_finish(qn_buf *line, qn_sse_fn each, void *data)
{
    bool more = line->failed || take_line(qn_buf_str(line), each, data);
    if (!line->failed)
        qn_buf_clear(line);
    return more;
}

qn_status qn_delta_read(qn_delta *d, qn_str event)
{
    *d = (qn_delta){.counted = -1};
    d->text = d->thought = d->error = d->finish = QN_STR("");
    d->last = qn_str_is(event, "[DONE]");
    if (d->last)
        return QN_OK;
    qn_status status = qn_json_parse(&d->doc, event, 0);
    if (status)
        return status;
    const qn_json *root = qn_json_root(d->doc);
    const qn_json *choice = qn_json_at(qn_json_get(root, "choices"), 0);
    const qn_json *delta = qn_json_get(choice, "delta");
    const qn_json *error = qn_json_get(root, "error");
    d->refused = error != NULL;
    qn_json_as_str(qn_json_get(error, "message"), &d->error);
    qn_json_as_str(qn_json_get(delta, "content"), &d->text);
    qn_json_as_str(qn_json_get(delta, "reasoning_content"), &d->thought);
    d->finished =
        qn_json_as_str(qn_json_get(choice, "finish_reason"), &d->finish);
    qn_json_as_int(qn_json_get(qn_json_get(root, "usage"), "completion_tokens"),
                   &d->counted);
    return QN_OK;
}
