/* chat.c: conversations into prompts.
 *
 * The template gets the request's values as JSON.  What came from messages is
 * tainted: its bytes can't be read as special tokens, so that a user can't
 * write the model's own control tokens. */
#include "runtime.h"

#include "base/alloc.h"
#include "base/json.h"

#include <string.h>

qn_status qn_chat_set(qn_chat_template *out, qn_str source)
{
    qn_chat_clear(out);
    out->source = qn_strndup(source.data, source.size);
    if (!out->source)
        return QN_E_NOMEM;
    out->status = qn_template_parse(&out->parsed, source);
    if (out->status)
        qn_error_save(&out->error);
    return out->status == QN_E_NOMEM ? QN_E_NOMEM : QN_OK;
}

void qn_chat_set_none(qn_chat_template *out)
{
    qn_chat_clear(out);
    out->status = qn_fail(QN_E_UNSUPPORTED, "the model has no chat template");
    qn_error_save(&out->error);
}

void qn_chat_clear(qn_chat_template *chat)
{
    qn_template_free(chat->parsed);
    qn_free(chat->source);
    chat->parsed = NULL;
    chat->source = NULL;
    chat->status = QN_OK;
}

static qn_status parse_value(qn_json_doc **doc, const char *text,
                             qn_json_type type, const char *name)
{
    qn_status status = qn_json_parse(doc, qn_str_of(text), 0);
    if (status == QN_E_FORMAT)
        status = QN_E_ARG; /* the caller's text, not a file */
    if (!status && qn_json_root(*doc)->type != type)
        status = qn_fail(QN_E_ARG, "%s: expected an %s, found %s", name,
                         qn_json_type_name(type),
                         qn_json_type_name(qn_json_root(*doc)->type));
    return status ? qn_fail_where(status, "%s", name) : QN_OK;
}

/* The documents whose values the variables share. */
typedef struct parts {
    qn_json_doc *vars, *messages, *tools, *more;
} parts;

static void free_parts(parts *p)
{
    qn_json_doc_free(p->vars);
    qn_json_doc_free(p->messages);
    qn_json_doc_free(p->tools);
    qn_json_doc_free(p->more);
}

static qn_status set(parts *p, qn_json *vars, const char *key,
                     const qn_json *value)
{
    return qn_json_set(p->vars, vars, qn_str_of(key), value);
}

/* bos_token and its like, where the tokenizer has them. */
static qn_status set_tokens(parts *p, qn_json *vars,
                            const qn_tokenizer *tokenizer)
{
    const struct {
        const char *key;
        int32_t id;
    } tokens[] = {
        {"bos_token", qn_tokenizer_bos(tokenizer)},
        {"eos_token", qn_tokenizer_eos(tokenizer)},
        {"unk_token", qn_tokenizer_unk(tokenizer)},
        {"pad_token", qn_tokenizer_pad(tokenizer)},
    };
    qn_status status = QN_OK;
    for (size_t i = 0; i < sizeof tokens / sizeof *tokens && !status; i++)
        if (tokens[i].id >= 0)
            status =
                set(p, vars, tokens[i].key,
                    qn_json_new_str(p->vars, qn_tokenizer_token_text(
                                                 tokenizer, tokens[i].id)));
    return status;
}

/* Stands behind the content of a message that is to be continued: where the
 * template writes it, the text is cut.  It also keeps white space before it
 * from being trimmed.  Two characters for private use, which no template
 * has. */
static const char end_mark[] = "\xee\x80\x80\xee\x80\x81";

/* The last text of a content with the mark behind it. */
static qn_status mark_content(parts *p, qn_json *message)
{
    const qn_json *content = qn_json_get(message, "content");
    qn_buf text = QN_BUF_INIT;
    qn_str own;
    if (!content || content->type != QN_JSON_T_STRING)
        return qn_fail(QN_E_ARG,
                       "messages: expected a content that is a text in the "
                       "message to be continued");
    qn_buf_add_str(&text, content->text);
    qn_buf_add_text(&text, end_mark);
    own = qn_buf_str(&text);
    qn_status status = qn_buf_status(&text);
    if (!status)
        status = set(p, message, "content", qn_json_new_str(p->vars, own));
    qn_buf_free(&text);
    return status;
}

/* ---- ids of calls ---- */

/* Some templates refuse ids that are not as long as their models' own: then
 * another one stands for it, the same wherever it is named. */
static const qn_json *short_id(parts *p, const qn_json *id, size_t size)
{
    static const char digits[] = "0123456789abcdefghijklmnopqrstuvwxyz"
                                 "ABCDEFGHIJKLMNOPQRSTUVWXYZ";
    char text[16];
    bool good = id->type == QN_JSON_T_STRING && id->text.size == size;
    for (size_t i = 0; good && i < size; i++)
        good = id->text.data[i] && strchr(digits, id->text.data[i]);
    if (good || id->type != QN_JSON_T_STRING)
        return id;
    uint64_t hash = UINT64_C(14695981039346656037); /* FNV-1a */
    for (size_t i = 0; i < id->text.size; i++)
        hash = (hash ^ (uint8_t)id->text.data[i]) * UINT64_C(1099511628211);
    for (size_t i = 0; i < size && i < sizeof text; i++, hash /= 62)
        text[i] = digits[hash % 62];
    return qn_json_new_str(p->vars, (qn_str){text, size});
}

static const qn_json *with_short_ids(parts *p, const qn_json *value,
                                     size_t size);

/* The elements of a list, messages or calls. */
static qn_json *list_with_short_ids(parts *p, const qn_json *calls, size_t size)
{
    qn_json *list = qn_json_new_array(p->vars);
    qn_status status = QN_OK;
    for (uint32_t i = 0; i < calls->count && !status; i++)
        status = qn_json_push(p->vars, list,
                              with_short_ids(p, &calls->items[i], size));
    return status ? NULL : list;
}

/* A message, or a call; NULL: no memory. */
static const qn_json *with_short_ids(parts *p, const qn_json *value,
                                     size_t size)
{
    if (value->type != QN_JSON_T_OBJECT)
        return value;
    qn_json *copy = qn_json_new_object(p->vars);
    qn_status status = QN_OK;
    for (uint32_t i = 0; i < value->count && !status; i++) {
        const qn_json *item = &value->items[i];
        qn_str key = value->keys[i];
        if (qn_str_is(key, "tool_call_id") || qn_str_is(key, "id"))
            item = short_id(p, item, size);
        else if (qn_str_is(key, "tool_calls") && item->type == QN_JSON_T_ARRAY)
            item = list_with_short_ids(p, item, size);
        status = qn_json_set(p->vars, copy, key, item);
    }
    return status ? NULL : copy;
}

static qn_status set_messages(parts *p, qn_json *vars, bool marked,
                              size_t id_size)
{
    const qn_json *messages = qn_json_root(p->messages);
    if (id_size)
        messages = list_with_short_ids(p, messages, id_size);
    if (!messages)
        return QN_E_NOMEM;
    if (!marked)
        return set(p, vars, "messages", messages);
    if (!messages->count)
        return qn_fail(QN_E_ARG, "messages: expected one to be continued, "
                                 "found none");
    qn_json *list = qn_json_new_array(p->vars);
    qn_status status = list ? QN_OK : QN_E_NOMEM;
    for (uint32_t i = 0; i + 1 < messages->count && !status; i++)
        status = qn_json_push(p->vars, list, &messages->items[i]);
    const qn_json *last = &messages->items[messages->count - 1];
    qn_json *copy = qn_json_new_object(p->vars);
    for (uint32_t i = 0; i < last->count && last->keys && !status; i++)
        status = qn_json_set(p->vars, copy, last->keys[i], &last->items[i]);
    if (!status)
        status = copy ? mark_content(p, copy) : QN_E_NOMEM;
    if (!status)
        status = qn_json_push(p->vars, list, copy);
    return status ? status : set(p, vars, "messages", list);
}

/* Cuts the text where the last mark is. */
static qn_status cut_at_mark(qn_buf *text)
{
    size_t size = sizeof end_mark - 1;
    for (size_t at = text->size; at-- > 0;)
        if (text->size - at >= size &&
            !memcmp(text->data + at, end_mark, size)) {
            qn_buf_truncate(text, at);
            return QN_OK;
        }
    return qn_fail(QN_E_ARG, "the template does not show the content of the "
                             "message to be continued");
}

static qn_status make_vars(parts *p, const quern_model *model,
                           const qn_template *tmpl, const quern_chat *chat)
{
    p->vars = qn_json_doc_new();
    qn_json *vars = p->vars ? qn_json_new_object(p->vars) : NULL;
    if (!vars)
        return QN_E_NOMEM;
    qn_status status =
        parse_value(&p->messages, chat->messages, QN_JSON_T_ARRAY, "messages");
    if (!status)
        status = set_messages(p, vars, chat->continue_final_message,
                              model->tool_format
                                  ? qn_tool_format_id_size(model->tool_format)
                                  : 0);
    if (!status && chat->tools)
        status = parse_value(&p->tools, chat->tools, QN_JSON_T_ARRAY, "tools");
    if (!status && chat->tools)
        status = set(p, vars, "tools", qn_json_root(p->tools));
    if (!status)
        status =
            set(p, vars, "add_generation_prompt",
                qn_json_new_bool(p->vars, chat->add_generation_prompt &&
                                              !chat->continue_final_message));
    if (!status)
        status = set_tokens(p, vars, model->tokenizer);
    /* Models that can think do, unless the request says otherwise. */
    if (!status && qn_template_mentions(tmpl, "enable_thinking"))
        status =
            set(p, vars, "enable_thinking", qn_json_new_bool(p->vars, true));
    if (!status && chat->variables)
        status = parse_value(&p->more, chat->variables, QN_JSON_T_OBJECT,
                             "variables");
    const qn_json *more =
        !status && chat->variables ? qn_json_root(p->more) : NULL;
    for (uint32_t i = 0; more && i < more->count && !status; i++)
        status = qn_json_set(p->vars, vars, more->keys[i], &more->items[i]);
    if (!status)
        qn_json_doc_set_root(p->vars, vars);
    return status;
}

qn_status qn_chat_render(const quern_model *model, const quern_chat *chat,
                         qn_buf *text, qn_buf *taint)
{
    static const char *const tainted[] = {"messages", "tools", "documents"};
    const qn_chat_template *used = chat->tools && model->tool_chat.parsed
                                       ? &model->tool_chat
                                       : &model->chat;
    if (!chat->messages)
        return qn_fail(QN_E_ARG, "messages: expected an array, found nothing");
    if (!used->parsed) {
        qn_error_restore(&used->error);
        return used->status;
    }
    parts p = {0};
    qn_status status = make_vars(&p, model, used->parsed, chat);
    if (!status)
        status =
            qn_template_render(used->parsed, text, taint, qn_json_root(p.vars),
                               tainted, sizeof tainted / sizeof *tainted);
    if (!status && chat->continue_final_message)
        status = cut_at_mark(text);
    free_parts(&p);
    return status ? qn_fail_where(status, "chat template") : QN_OK;
}

/* An id that the model does not compute. */
static qn_status beyond_model(const quern_model *m, int32_t id)
{
    qn_str text = qn_tokenizer_token_text(m->tokenizer, id);
    return qn_fail(QN_E_MISMATCH,
                   "the tokenizer has token %d, '%.*s', but the model only "
                   "0..%d: they are of different models",
                   (int)id, (int)(text.size < 64 ? text.size : 64), text.data,
                   (int)m->vocab - 1);
}

qn_status qn_model_encode(const quern_model *m, qn_ids *out, qn_str text,
                          unsigned flags, const uint8_t *taint)
{
    size_t first = out->size;
    qn_status status =
        qn_tokenizer_encode(m->tokenizer, out, text, flags, taint);
    for (size_t i = first; i < out->size && !status; i++)
        if (out->data[i] >= m->vocab)
            status = beyond_model(m, out->data[i]);
    return status;
}

qn_status qn_chat_ids(const quern_model *model, const quern_chat *chat,
                      qn_ids *out)
{
    qn_buf text = QN_BUF_INIT, taint = QN_BUF_INIT;
    bool trusted = model->trust_content;
    qn_status status =
        qn_chat_render(model, chat, &text, trusted ? NULL : &taint);
    if (!status)
        status = qn_model_encode(model, out, qn_buf_str(&text),
                                 QN_ENCODE_PARSE_SPECIAL,
                                 trusted ? NULL : (const uint8_t *)taint.data);
    qn_buf_free(&text);
    qn_buf_free(&taint);
    return status;
}

static bool is_tainted(const qn_buf *taint, size_t i)
{
    return i / 8 < taint->size && (taint->data[i / 8] >> (i % 8) & 1);
}

/* Where the last text that came from messages begins. */
static size_t last_content(const qn_buf *taint, size_t size)
{
    size_t at = size;
    while (at && !is_tainted(taint, at - 1))
        at--;
    while (at && is_tainted(taint, at - 1))
        at--;
    return at;
}

qn_status qn_chat_tail_ids(const quern_model *model, const quern_chat *chat,
                           qn_ids *out)
{
    qn_buf text = QN_BUF_INIT, taint = QN_BUF_INIT, rest = QN_BUF_INIT;
    qn_status status = qn_chat_render(model, chat, &text, &taint);
    size_t from = status ? 0 : last_content(&taint, text.size);
    for (size_t i = from; i < text.size; i++) {
        if ((i - from) % 8 == 0)
            qn_buf_add_char(&rest, 0);
        if (is_tainted(&taint, i) && rest.data)
            rest.data[(i - from) / 8] =
                (char)(rest.data[(i - from) / 8] | 1 << (i - from) % 8);
    }
    if (!status)
        status = qn_buf_status(&rest);
    if (!status)
        status = qn_model_encode(
            model, out, (qn_str){text.data + from, text.size - from},
            QN_ENCODE_PARSE_SPECIAL,
            model->trust_content ? NULL : (const uint8_t *)rest.data);
    qn_buf_free(&text);
    qn_buf_free(&taint);
    qn_buf_free(&rest);
    return status;
}

qn_status qn_prompt_ids(const quern_model *model, qn_str text, qn_ids *out)
{
    size_t first = out->size;
    qn_status status =
        qn_model_encode(model, out, text,
                        QN_ENCODE_ADD_SPECIAL | QN_ENCODE_PARSE_SPECIAL, NULL);
    if (status)
        return status;
    int32_t bos = qn_tokenizer_bos(model->tokenizer);
    size_t count = out->size - first;
    int32_t *ids = out->data + first;
    /* A text that spells the begin token gets no second one. */
    if (count > 1 && bos >= 0 && ids[0] == bos && ids[1] == bos) {
        memmove(ids, ids + 1, (count - 1) * sizeof *ids);
        out->size--;
    }
    if (count)
        return QN_OK;
    if (bos < 0)
        return qn_fail(QN_E_ARG, "the prompt is empty");
    return bos < model->vocab ? qn_ids_add(out, bos) : beyond_model(model, bos);
}

/* ---- the public side ---- */

void quern_chat_init(quern_chat *chat)
{
    *chat = (quern_chat){.add_generation_prompt = true};
}

quern_status quern_render(const quern_model *model, const quern_chat *chat,
                          char **text, size_t *size, quern_error *error)
{
    qn_buf buf = QN_BUF_INIT;
    qn_status status = qn_chat_render(model, chat, &buf, NULL);
    size_t length = buf.size;
    char *taken = status ? NULL : qn_buf_take(&buf);
    qn_buf_free(&buf);
    if (!status && !taken)
        status = QN_E_NOMEM;
    if (!status) {
        *text = taken;
        if (size)
            *size = length;
    }
    return qn_give(error, status);
}

/* Hands a list over to the caller; an empty one is not NULL. */
static qn_status take_ids(qn_ids *list, int32_t **ids, size_t *count)
{
    if (!list->data) {
        list->data = qn_alloc(sizeof *list->data);
        if (!list->data)
            return QN_E_NOMEM;
    }
    *ids = list->data;
    *count = list->size;
    *list = (qn_ids){0};
    return QN_OK;
}

quern_status quern_render_ids(const quern_model *model, const quern_chat *chat,
                              int32_t **ids, size_t *count, quern_error *error)
{
    qn_ids list = {0};
    qn_status status = qn_chat_ids(model, chat, &list);
    if (!status)
        status = take_ids(&list, ids, count);
    qn_ids_free(&list);
    return qn_give(error, status);
}

quern_status quern_tokenize(const quern_model *model, const char *text,
                            size_t size, unsigned flags, int32_t **ids,
                            size_t *count, quern_error *error)
{
    qn_ids list = {0};
    unsigned known = QUERN_ADD_SPECIAL | QUERN_PARSE_SPECIAL;
    qn_status status = QN_OK;
    if (flags & ~known)
        status =
            qn_fail(QN_E_ARG, "flags: expected 0..%u, found %u", known, flags);
    unsigned how = 0;
    if (flags & QUERN_ADD_SPECIAL)
        how |= QN_ENCODE_ADD_SPECIAL;
    if (flags & QUERN_PARSE_SPECIAL)
        how |= QN_ENCODE_PARSE_SPECIAL;
    if (!status)
        status = qn_model_encode(model, &list, (qn_str){text, size}, how, NULL);
    if (!status)
        status = take_ids(&list, ids, count);
    qn_ids_free(&list);
    return qn_give(error, status);
}

quern_status quern_detokenize(const quern_model *model, const int32_t *ids,
                              size_t count, bool skip_special, char **text,
                              size_t *size, quern_error *error)
{
    qn_buf buf = QN_BUF_INIT;
    qn_status status =
        qn_tokenizer_decode(model->tokenizer, &buf, ids, count, skip_special);
    size_t length = buf.size;
    char *taken = status ? NULL : qn_buf_take(&buf);
    qn_buf_free(&buf);
    if (!status && !taken)
        status = QN_E_NOMEM;
    if (!status) {
        *text = taken;
        if (size)
            *size = length;
    }
    return qn_give(error, status);
}

quern_status quern_token_bytes(const quern_model *model, int32_t id,
                               char **bytes, size_t *size, quern_error *error)
{
    qn_buf buf = QN_BUF_INIT;
    qn_status status = qn_tokenizer_token_bytes(model->tokenizer, &buf, id);
    size_t length = buf.size;
    char *taken = status ? NULL : qn_buf_take(&buf);
    qn_buf_free(&buf);
    if (!status && !taken)
        status = QN_E_NOMEM;
    if (!status) {
        *bytes = taken;
        *size = length;
    }
    return qn_give(error, status);
}

void quern_free(void *ptr)
{
    qn_free(ptr);
}
