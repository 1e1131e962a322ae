/* text.c: tokenizer and template cases. */
#include "case.h"

#include "base/alloc.h"
#include "base/file.h"
#include "base/utf8.h"
#include "text/detok.h"
#include "text/template.h"
#include "text/tokenizer.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

/* ---- fixtures ---- */

static char *fixture_path(const qn_json *c, const case_context *context,
                          const char *file)
{
    qn_buf path = QN_BUF_INIT;
    qn_str name = case_text(c, "fixture");
    qn_buf_printf(&path, "%s/fixtures/%.*s%s%s", context->folder,
                  (int)name.size, name.data, *file ? "/" : "", file);
    return qn_buf_take(&path);
}

/* A folder with tokenizer.json and tokenizer_config.json, or the former. */
static qn_status open_tokenizer(qn_tokenizer **out, const qn_json *c,
                                const case_context *context, char **config_text)
{
    char *path = fixture_path(c, context, ""), *json = NULL, *config = NULL;
    size_t size = 0, config_size = 0;
    bool folder = path && qn_path_is_dir(path);
    if (folder) {
        char *inner = fixture_path(c, context, "tokenizer_config.json");
        qn_free(path);
        path = fixture_path(c, context, "tokenizer.json");
        if (inner && qn_path_exists(inner))
            qn_file_read(&config, &config_size, inner, 64 << 20);
        qn_free(inner);
    }
    qn_status status =
        path ? qn_file_read(&json, &size, path, 256 << 20) : QN_E_NOMEM;
    if (!status)
        status = qn_tokenizer_from_json(
            out, (qn_bytes){(const uint8_t *)json, size},
            (qn_bytes){(const uint8_t *)config, config_size});
    qn_free(path);
    qn_free(json);
    if (config_text)
        *config_text = config;
    else
        qn_free(config);
    return status;
}

/* ---- ids ---- */

static bool same_ids(const qn_json *list, const int32_t *ids, size_t count,
                     const char *what)
{
    bool same = list && list->count == count;
    for (size_t i = 0; same && i < count; i++) {
        int64_t id;
        same = qn_json_as_int(&list->items[i], &id) && id == ids[i];
    }
    if (same)
        return true;
    qn_buf found = QN_BUF_INIT, wanted = QN_BUF_INIT;
    for (size_t i = 0; i < count && i < 40; i++)
        qn_buf_printf(&found, "%d ", ids[i]);
    for (size_t i = 0; list && i < list->count && i < 40; i++)
        qn_buf_printf(&wanted, "%.*s ", (int)list->items[i].text.size,
                      list->items[i].text.data);
    case_fail("%s: expected %s, found %s", what,
              wanted.data ? wanted.data : "(nothing)",
              found.data ? found.data : "(nothing)");
    qn_buf_free(&found);
    qn_buf_free(&wanted);
    return false;
}

static void same_text(qn_str wanted, qn_str found, const char *what)
{
    if (!qn_str_eq(wanted, found))
        case_fail("%s: expected \"%.*s\", found \"%.*s\"", what,
                  (int)wanted.size, wanted.data, (int)found.size, found.data);
}

static void check_encoding(const qn_tokenizer *t, const qn_json *expect,
                           const qn_ids *ids)
{
    const qn_json *list = qn_json_get(expect, "ids");
    qn_str decoded;
    if (list)
        same_ids(list, ids->data, ids->size, "ids");
    if (qn_json_as_str(qn_json_get(expect, "decoded"), &decoded)) {
        qn_buf text = QN_BUF_INIT;
        if (qn_tokenizer_decode(t, &text, ids->data, ids->size, false))
            case_fail("decoding: %s", qn_error_text());
        same_text(decoded, qn_buf_str(&text), "decoded");
        qn_buf_free(&text);
    }
    int64_t count = case_int(expect, "count", -1);
    if (count < 0)
        return;
    const qn_json *first = qn_json_get(expect, "first");
    const qn_json *last = qn_json_get(expect, "last");
    if ((size_t)count != ids->size)
        case_fail("count: expected %lld, found %zu", (long long)count,
                  ids->size);
    else if (first && first->count <= ids->size)
        same_ids(first, ids->data, first->count, "first");
    if (last && last->count <= ids->size)
        same_ids(last, ids->data + ids->size - last->count, last->count,
                 "last");
}

static void run_encode(const qn_tokenizer *t, const qn_json *c)
{
    const qn_json *input = qn_json_get(c, "input");
    const qn_json *expect = qn_json_get(c, "expect");
    const qn_json *repeated = qn_json_get(input, "text_repeat");
    qn_buf text = QN_BUF_INIT;
    qn_ids ids = {0};
    unsigned flags = QN_ENCODE_PARSE_SPECIAL;
    if (case_bool(input, "add_special_tokens", false))
        flags |= QN_ENCODE_ADD_SPECIAL;
    case_long_text(repeated ? repeated : qn_json_get(input, "text"), &text);
    qn_status status =
        qn_tokenizer_encode(t, &ids, qn_buf_str(&text), flags, NULL);
    if (status && !case_bool(expect, "error", false))
        case_fail("encoding: %s", qn_error_text());
    else if (!status && case_bool(expect, "error", false))
        case_fail("expected an error, found %zu ids", ids.size);
    else if (!status)
        check_encoding(t, expect, &ids);
    qn_buf_free(&text);
    qn_ids_free(&ids);
}

/* One id at a time: pieces are whole UTF-8 and join to the text. */
static void check_stream(const qn_tokenizer *t, const qn_ids *ids, bool skip,
                         qn_str wanted)
{
    qn_detok *detok;
    qn_buf all = QN_BUF_INIT;
    if (qn_detok_new(&detok, t, skip)) {
        case_fail("detokenizer: %s", qn_error_text());
        return;
    }
    for (size_t i = 0; i <= ids->size; i++) {
        qn_buf piece = QN_BUF_INIT;
        qn_status status = i < ids->size
                               ? qn_detok_add(detok, &piece, ids->data[i])
                               : qn_detok_finish(detok, &piece);
        if (status)
            case_fail("streaming id %zu: %s", i, qn_error_text());
        if (!qn_utf8_valid(qn_buf_str(&piece), NULL))
            case_fail("piece %zu is not whole UTF-8", i);
        qn_buf_add(&all, piece.data, piece.size);
        qn_buf_free(&piece);
    }
    same_text(wanted, qn_buf_str(&all), "streamed text");
    qn_buf_free(&all);
    qn_detok_free(detok);
}

static void run_decode(const qn_tokenizer *t, const qn_json *c)
{
    const qn_json *input = qn_json_get(c, "input");
    const qn_json *expect = qn_json_get(c, "expect");
    const qn_json *list = qn_json_get(input, "ids");
    bool skip = case_bool(input, "skip_special_tokens", false);
    qn_ids ids = {0};
    qn_buf text = QN_BUF_INIT;
    for (uint32_t i = 0; list && i < list->count; i++) {
        int64_t id = -1;
        qn_json_as_int(&list->items[i], &id);
        qn_ids_add(&ids, id > INT32_MAX ? INT32_MAX : (int32_t)id);
    }
    qn_status status = qn_tokenizer_decode(t, &text, ids.data, ids.size, skip);
    if (case_bool(expect, "error", false)) {
        if (!status)
            case_fail("expected an error, found \"%.*s\"", (int)text.size,
                      text.data ? text.data : "");
    } else if (status) {
        case_fail("decoding: %s", qn_error_text());
    } else {
        qn_str wanted = case_text(expect, "text");
        same_text(wanted, qn_buf_str(&text), "text");
        check_stream(t, &ids, skip, wanted);
    }
    qn_ids_free(&ids);
    qn_buf_free(&text);
}

/* ---- templates ---- */

static const char *const tainted[] = {"messages", "tools", "documents"};

static qn_status render(const qn_template *t, const qn_json *vars, qn_buf *out,
                        qn_buf *taint)
{
    return qn_template_render(t, out, taint, vars, tainted, 3);
}

static void set_token(qn_json_doc *doc, qn_json *vars, const char *name,
                      const qn_json *config)
{
    const qn_json *token = qn_json_get(config, name);
    if (token && token->type == QN_JSON_T_OBJECT)
        token = qn_json_get(token, "content");
    if (token && token->type == QN_JSON_T_STRING)
        qn_json_set(doc, vars, qn_str_of(name), token);
}

static void run_inject(const qn_tokenizer *t, const qn_json *c,
                       const char *config_text)
{
    const qn_json *input = qn_json_get(c, "input");
    qn_json_doc *config = NULL, *doc = qn_json_doc_new();
    qn_template *tmpl = NULL;
    qn_buf text = QN_BUF_INIT, taint = QN_BUF_INIT;
    qn_ids ids = {0};
    if (!doc || !config_text ||
        qn_json_parse(&config, qn_str_of(config_text), 0)) {
        case_fail("the fixture has no tokenizer_config.json");
        goto done;
    }
    const qn_json *root = qn_json_root(config);
    qn_json *vars = qn_json_new_object(doc);
    qn_json_set(doc, vars, QN_STR("messages"), qn_json_get(input, "messages"));
    qn_json_set(
        doc, vars, QN_STR("add_generation_prompt"),
        qn_json_new_bool(doc, case_bool(input, "add_generation_prompt", true)));
    set_token(doc, vars, "bos_token", root);
    set_token(doc, vars, "eos_token", root);
    if (qn_template_parse(&tmpl, case_text(root, "chat_template")) ||
        render(tmpl, vars, &text, &taint)) {
        case_fail("template: %s", qn_error_text());
        goto done;
    }
    if (qn_tokenizer_encode(t, &ids, qn_buf_str(&text), QN_ENCODE_PARSE_SPECIAL,
                            (const uint8_t *)taint.data))
        case_fail("encoding: %s", qn_error_text());
    else
        same_ids(qn_json_get(qn_json_get(c, "expect"), "prompt_ids"), ids.data,
                 ids.size, "prompt_ids");
done:
    qn_template_free(tmpl);
    qn_json_doc_free(config);
    qn_json_doc_free(doc);
    qn_buf_free(&text);
    qn_buf_free(&taint);
    qn_ids_free(&ids);
}

void run_tokenizer_case(const qn_json *c, const case_context *context)
{
    qn_str kind = case_text(c, "kind");
    qn_tokenizer *t = NULL;
    char *config = NULL;
    if (open_tokenizer(&t, c, context, &config))
        case_fail("loading: %s: %s", qn_error_where(), qn_error_text());
    else if (qn_str_is(kind, "tok-encode"))
        run_encode(t, c);
    else if (qn_str_is(kind, "tok-decode"))
        run_decode(t, c);
    else if (qn_str_is(kind, "tok-inject"))
        run_inject(t, c, config);
    else
        case_fail("unknown kind");
    qn_tokenizer_free(t);
    qn_free(config);
}

static void check_rendered(const qn_json *expect, const qn_buf *out)
{
    qn_str format;
    if (qn_json_as_str(qn_json_get(expect, "text"), &format)) {
        same_text(format, qn_buf_str(out), "text");
        return;
    }
    if (!qn_json_as_str(qn_json_get(expect, "text_is_today"), &format))
        return;
    char today[128];
    time_t now = time(NULL);
    struct tm local;
    localtime_r(&now, &local);
    strftime(today, sizeof today, case_keep(format), &local);
    same_text(qn_str_of(today), qn_buf_str(out), "text");
}

void run_template_case(const qn_json *c, const case_context *context)
{
    (void)context;
    const qn_json *input = qn_json_get(c, "input");
    const qn_json *expect = qn_json_get(c, "expect");
    const qn_json *extra = qn_json_get(input, "extra");
    qn_template *tmpl = NULL;
    qn_buf out = QN_BUF_INIT;
    qn_json_doc *doc = qn_json_doc_new();
    if (!doc)
        return;
    qn_json *vars = qn_json_new_object(doc);
    static const char *const names[] = {"messages", "tools",
                                        "add_generation_prompt"};
    for (int i = 0; i < 3; i++)
        if (qn_json_get(input, names[i]))
            qn_json_set(doc, vars, qn_str_of(names[i]),
                        qn_json_get(input, names[i]));
    for (uint32_t i = 0; extra && i < extra->count; i++)
        qn_json_set(doc, vars, extra->keys[i], &extra->items[i]);
    qn_status status = qn_template_parse(&tmpl, case_text(input, "template"));
    if (!status)
        status = render(tmpl, vars, &out, NULL);
    if (case_bool(expect, "error", false)) {
        if (!status)
            case_fail("expected an error, found \"%.*s\"", (int)out.size,
                      out.data ? out.data : "");
        else
            case_check_message(qn_json_get(expect, "message_contains"),
                               qn_error_text());
    } else if (status) {
        case_fail("%s: %s", qn_error_where(), qn_error_text());
    } else {
        check_rendered(expect, &out);
    }
    qn_template_free(tmpl);
    qn_buf_free(&out);
    qn_json_doc_free(doc);
}
