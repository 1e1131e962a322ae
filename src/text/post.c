/* post.c: the post-processors of tokenizer.json.
 *
 * The members of a Sequence wrap what those before them made, so each adds
 * its ids outside.  `before` is kept in reverse, outermost last, until all are
 * read. */
#include "post.h"

typedef struct wrap {
    qn_ids *before, *after;
    const qn_vocab *vocab;
} wrap;

typedef struct kind {
    const char *type;
    qn_status (*parse)(wrap *w, const qn_json *value, const qn_jpath *at);
} kind;

static qn_status parse_into(wrap *w, const qn_json *value, const qn_jpath *at);

static qn_status add_id(const wrap *w, qn_ids *ids, const qn_json *value,
                        const qn_jpath *at)
{
    int64_t id;
    if (!qn_json_as_int(value, &id))
        return qn_jpath_fail(at, QN_E_FORMAT, "expected a token id");
    if (!qn_vocab_has(w->vocab, id))
        return qn_jpath_fail(at, QN_E_MISMATCH,
                             "token id %lld is not in the vocabulary",
                             (long long)id);
    return qn_ids_add(ids, (int32_t)id);
}

/* ["</s>", 2]: the second item. */
static qn_status add_pair(const wrap *w, qn_ids *ids, const qn_json *value,
                          const char *key, const qn_jpath *at)
{
    const qn_json *pair;
    qn_status status = qn_jpath_need_array(at, value, key, &pair);
    return status ? status
                  : add_id(w, ids, qn_json_at(pair, 1), QN_JPATH_KEY(at, key));
}

static qn_status parse_bert(wrap *w, const qn_json *value, const qn_jpath *at)
{
    qn_status status = add_pair(w, w->before, value, "cls", at);
    return status ? status : add_pair(w, w->after, value, "sep", at);
}

/* It only moves offsets, which nobody asks for here. */
static qn_status parse_byte_level(wrap *w, const qn_json *value,
                                  const qn_jpath *at)
{
    (void)w;
    (void)value;
    (void)at;
    return QN_OK;
}

static qn_status parse_sequence(wrap *w, const qn_json *value,
                                const qn_jpath *at)
{
    const qn_json *list;
    qn_status status = qn_jpath_need_array(at, value, "processors", &list);
    const qn_jpath *place = QN_JPATH_KEY(at, "processors");
    for (size_t i = 0; !status && i < list->count; i++)
        status = parse_into(w, &list->items[i], QN_JPATH_ITEM(place, i));
    return status;
}

/* The ids of one special token of a template, in the file's order. */
static qn_status add_special(const wrap *w, qn_ids *ids, const qn_json *value,
                             const qn_json *item, const qn_jpath *at)
{
    qn_str name;
    qn_status status = qn_jpath_need_str(at, item, "id", &name);
    if (status)
        return status;
    const qn_json *list = qn_json_get(
        qn_json_get_str(qn_json_get(value, "special_tokens"), name), "ids");
    if (!list || list->type != QN_JSON_T_ARRAY)
        return qn_jpath_fail(
            at, QN_E_FORMAT, "'%.*s' has no ids in special_tokens",
            (int)(name.size < 200 ? name.size : 200), name.data);
    for (size_t i = 0; !status && i < list->count; i++)
        status = add_id(w, ids, &list->items[i], at);
    return status;
}

static void reverse(qn_ids *ids, size_t from)
{
    for (size_t i = from, j = ids->size; i + 1 < j; i++) {
        int32_t id = ids->data[i];
        ids->data[i] = ids->data[--j];
        ids->data[j] = id;
    }
}

static qn_status parse_template(wrap *w, const qn_json *value,
                                const qn_jpath *at)
{
    const qn_json *single;
    qn_status status = qn_jpath_need_array(at, value, "single", &single);
    if (status)
        return status;
    const qn_jpath *place = QN_JPATH_KEY(at, "single");
    size_t texts = 0, first = w->before->size;
    for (size_t i = 0; !status && i < single->count; i++) {
        const qn_json *item = &single->items[i];
        const qn_jpath *here = QN_JPATH_ITEM(place, i);
        const qn_json *special = qn_json_get(item, "SpecialToken");
        if (special)
            status = add_special(w, texts ? w->after : w->before, value,
                                 special, here);
        else if (qn_json_get(item, "Sequence"))
            texts++;
        else
            status = qn_jpath_fail(here, QN_E_FORMAT,
                                   "expected SpecialToken or Sequence");
    }
    if (status)
        return status;
    if (texts != 1)
        return qn_jpath_fail(place, QN_E_UNSUPPORTED,
                             "expected the text once, found it %zu times",
                             texts);
    reverse(w->before, first);
    return QN_OK;
}

static const kind kinds[] = {
    {"TemplateProcessing", parse_template}, {"ByteLevel", parse_byte_level},
    {"BertProcessing", parse_bert},         {"RobertaProcessing", parse_bert},
    {"Sequence", parse_sequence},
};

static qn_status parse_into(wrap *w, const qn_json *value, const qn_jpath *at)
{
    qn_str type;
    qn_status status = qn_jpath_type(at, value, &type);
    if (status)
        return status;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (qn_str_is(type, kinds[i].type))
            return kinds[i].parse(w, value, at);
    }
    return qn_jpath_fail(QN_JPATH_KEY(at, "type"), QN_E_UNSUPPORTED,
                         "post-processor '%.*s' is not supported",
                         (int)(type.size < 64 ? type.size : 64), type.data);
}

qn_status qn_post_parse(qn_ids *before, qn_ids *after, const qn_json *value,
                        const qn_vocab *vocab, const qn_jpath *at)
{
    if (!value || value->type == QN_JSON_T_NULL)
        return QN_OK;
    wrap w = {before, after, vocab};
    qn_status status = parse_into(&w, value, at);
    if (!status)
        reverse(before, 0);
    return status;
}
