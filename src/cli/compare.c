/* compare.c: reads JSON lines and finds a result among them. */
#include "compare.h"

#include "base/alloc.h"
#include "base/file.h"

#include <string.h>

struct qn_earlier {
    qn_json_doc **lines;
    size_t count;
};

static qn_status check_line(const qn_json *root)
{
    qn_str text;
    double rate;
    if (!qn_json_as_str(qn_json_get(root, "schema"), &text) ||
        !qn_str_is(text, "quern.bench/1"))
        return qn_fail(QN_E_FORMAT, "expected a quern.bench/1 object");
    if (!qn_json_as_str(qn_json_get(root, "test"), &text) ||
        !qn_json_as_str(qn_json_get(root, "model"), &text) ||
        !qn_json_as_double(qn_json_get(root, "tokens_per_s"), &rate) ||
        !(rate > 0))
        return qn_fail(QN_E_FORMAT,
                       "expected test, model and tokens_per_s in the object");
    return QN_OK;
}

static qn_status add_line(qn_earlier *earlier, qn_str text)
{
    qn_json_doc **grown =
        qn_reallocarray(earlier->lines, earlier->count + 1, sizeof *grown);
    if (!grown)
        return QN_E_NOMEM;
    earlier->lines = grown;
    qn_status status = qn_json_parse(&grown[earlier->count], text, 0);
    if (status)
        return status;
    return check_line(qn_json_root(grown[earlier->count++]));
}

qn_status qn_earlier_read(qn_earlier **out, const char *path)
{
    enum { LIMIT = 64 << 20 };
    char *text = NULL;
    size_t size, number = 0;
    qn_earlier *earlier = qn_calloc(1, sizeof *earlier);
    if (!earlier)
        return QN_E_NOMEM;
    qn_status status = qn_file_read_any(&text, &size, path, LIMIT);
    for (const char *p = text, *end; !status && p < text + size; p = end + 1) {
        end = memchr(p, '\n', (size_t)(text + size - p));
        if (!end)
            end = text + size;
        number++;
        if (strspn(p, " \t\r") < (size_t)(end - p))
            status = add_line(earlier, (qn_str){p, (size_t)(end - p)});
    }
    qn_free(text);
    if (!status && !earlier->count)
        status = qn_fail_where(qn_fail(QN_E_FORMAT, "it has no results"), "%s",
                               path);
    if (status) {
        if (number)
            qn_fail_where(status, "%s: line %zu", path, number);
        qn_earlier_free(earlier);
        return status;
    }
    *out = earlier;
    return QN_OK;
}

void qn_earlier_free(qn_earlier *earlier)
{
    if (!earlier)
        return;
    for (size_t i = 0; i < earlier->count; i++)
        qn_json_doc_free(earlier->lines[i]);
    qn_free(earlier->lines);
    qn_free(earlier);
}

static qn_str base_name(qn_str path)
{
    size_t end = path.size;
    while (end > 1 && path.data[end - 1] == '/')
        end--;
    size_t begin = end;
    while (begin > 0 && path.data[begin - 1] != '/')
        begin--;
    return (qn_str){path.data + begin, end - begin};
}

static bool has_key(const qn_json *line, const qn_bench_key *key)
{
    qn_str test = {"", 0}, model = {"", 0};
    int64_t depth = 0, batch = 1;
    qn_json_as_str(qn_json_get(line, "test"), &test);
    qn_json_as_str(qn_json_get(line, "model"), &model);
    qn_json_as_int(qn_json_get(line, "depth"), &depth);
    qn_json_as_int(qn_json_get(line, "batch"), &batch);
    return qn_str_is(test, key->test) && depth == key->depth &&
           batch == key->batch &&
           qn_str_eq(base_name(model), base_name(qn_str_of(key->model)));
}

double qn_earlier_rate(const qn_earlier *earlier, const qn_bench_key *key)
{
    double rate = 0;
    for (size_t i = earlier->count; i-- > 0 && !(rate > 0);) {
        const qn_json *line = qn_json_root(earlier->lines[i]);
        if (has_key(line, key))
            qn_json_as_double(qn_json_get(line, "tokens_per_s"), &rate);
    }
    return rate;
}
