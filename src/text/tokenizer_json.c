/* tokenizer_json.c: loads tokenizer.json and tokenizer_config.json.
 *
 * The vocabulary and the merges are most of the file: they are read by the
 * pull reader, entry by entry, into their final form.  Everything else is
 * small; its place in the text is noted on the way and read as a tree when the
 * vocabulary is complete.  tokenizer_model.c makes the model. */
#include "tokenizer_impl.h"

#include "base/alloc.h"
#include "tokenizer_model.h"

enum { READER_FLAGS = QN_JSON_ALLOW_BOM };

/* Where values stand in the text; empty where they are absent. */
typedef struct parts {
    qn_str added_tokens, normalizer, pre_tokenizer, post_processor, decoder;
} parts;

typedef struct loader {
    qn_tokenizer *t;
    qn_str text;
    parts parts;
    bool has_model;
    qn_json_doc *options_doc;
    qn_json *options;
    qn_tokenizer_model model;
} loader;

static const qn_jpath model_path = {NULL, "model", 0};

/* ---- the reader ---- */

/* Reads over the value that begins with `event`; *out is its text. */
static qn_status pass_value(loader *l, qn_json_reader *reader,
                            qn_json_event event, qn_str *out)
{
    size_t begin = qn_json_offset(reader);
    qn_status status = QN_OK;
    if (event == QN_JSON_OBJECT_BEGIN || event == QN_JSON_ARRAY_BEGIN)
        status = qn_json_skip(reader);
    else if (event == QN_JSON_ERROR)
        status = QN_E_FORMAT;
    if (status)
        return qn_jpath_reader_failed(reader);
    *out = (qn_str){l->text.data + begin, qn_json_end_offset(reader) - begin};
    return QN_OK;
}

/* Parses a noted part, or gives NULL for an absent one. */
static qn_status parse_part(qn_json_doc **doc, const qn_json **root,
                            qn_str part, const char *key)
{
    *doc = NULL;
    *root = NULL;
    if (!part.size)
        return QN_OK;
    qn_status status = qn_json_parse(doc, part, 0);
    if (status)
        return qn_jpath_where(QN_JPATH_KEY(NULL, key), status);
    *root = qn_json_root(*doc);
    return QN_OK;
}

/* ---- vocabulary and merges ---- */

static qn_status vocab_failed(qn_str key, qn_status status)
{
    char name[128];
    size_t size = key.size < sizeof name - 1 ? key.size : sizeof name - 1;
    memcpy(name, key.data, size);
    name[size] = '\0';
    return qn_jpath_where(
        QN_JPATH_KEY(QN_JPATH_KEY(&model_path, "vocab"), name), status);
}

/* {"token": id, ...}, after its opening brace. */
static qn_status read_vocab(loader *l, qn_json_reader *reader)
{
    qn_buf key = QN_BUF_INIT;
    qn_status status = QN_OK;
    qn_json_event event;
    while (!status && (event = qn_json_next(reader)) == QN_JSON_KEY) {
        qn_buf_clear(&key);
        qn_buf_add_str(&key, qn_json_text(reader));
        qn_str token = qn_buf_str(&key);
        status = qn_buf_status(&key);
        if (status)
            break;
        event = qn_json_next(reader);
        if (event == QN_JSON_ERROR)
            break;
        int64_t id;
        if (event != QN_JSON_NUMBER ||
            !qn_json_int64(qn_json_text(reader), &id)) {
            status = vocab_failed(token,
                                  qn_fail(QN_E_FORMAT, "expected a token id"));
            break;
        }
        bool again = false;
        status = qn_vocab_add(&l->t->vocab, id, token, QN_TOKEN_MODEL, &again);
        if (!status && again)
            status = qn_fail(QN_E_FORMAT, "the token is listed twice");
        if (status && status != QN_E_NOMEM)
            vocab_failed(token, status);
    }
    qn_buf_free(&key);
    return !status && qn_json_status(reader) ? qn_jpath_reader_failed(reader)
                                             : status;
}

/* ---- the model ---- */

/* Keeps a small member of the model.  Numbers that are no integers, lists and
 * objects are of no use to any kind here. */
static qn_status keep_option(loader *l, qn_json_reader *reader,
                             qn_json_event event, qn_str key)
{
    qn_json *value = NULL;
    int64_t number;
    qn_str skipped;
    switch (event) {
    case QN_JSON_STRING:
        value = qn_json_new_str(l->options_doc, qn_json_text(reader));
        break;
    case QN_JSON_TRUE:
    case QN_JSON_FALSE:
        value = qn_json_new_bool(l->options_doc, event == QN_JSON_TRUE);
        break;
    case QN_JSON_NUMBER:
        if (!qn_json_int64(qn_json_text(reader), &number))
            return QN_OK;
        value = qn_json_new_int(l->options_doc, number);
        break;
    case QN_JSON_NULL:
        return QN_OK;
    default:
        return pass_value(l, reader, event, &skipped);
    }
    return value ? qn_json_set(l->options_doc, l->options, key, value)
                 : QN_E_NOMEM;
}

/* {"type": ..., "vocab": ..., "merges": ...}, after its opening brace. */
static qn_status read_model(loader *l, qn_json_reader *reader)
{
    qn_buf key = QN_BUF_INIT;
    qn_status status = QN_OK;
    qn_json_event event;
    while (!status && (event = qn_json_next(reader)) == QN_JSON_KEY) {
        qn_buf_clear(&key);
        qn_buf_add_str(&key, qn_json_text(reader));
        status = qn_buf_status(&key);
        if (status)
            break;
        event = qn_json_next(reader);
        qn_str name = qn_buf_str(&key);
        if (qn_str_is(name, "merges")) {
            status = pass_value(l, reader, event, &l->model.merges);
        } else if (!qn_str_is(name, "vocab")) {
            status = keep_option(l, reader, event, name);
        } else if (l->model.has_vocab || l->model.vocab_list.size) {
            status = qn_jpath_fail(QN_JPATH_KEY(&model_path, "vocab"),
                                   QN_E_FORMAT, "the key stands there twice");
        } else if (event == QN_JSON_OBJECT_BEGIN) {
            l->model.has_vocab = true;
            status = read_vocab(l, reader);
        } else {
            status = pass_value(l, reader, event, &l->model.vocab_list);
        }
    }
    qn_buf_free(&key);
    return !status && qn_json_status(reader) ? qn_jpath_reader_failed(reader)
                                             : status;
}

/* ---- the file ---- */

static qn_status read_root(loader *l)
{
    const struct {
        const char *key;
        qn_str *part;
    } keys[] = {
        {"added_tokens", &l->parts.added_tokens},
        {"normalizer", &l->parts.normalizer},
        {"pre_tokenizer", &l->parts.pre_tokenizer},
        {"post_processor", &l->parts.post_processor},
        {"decoder", &l->parts.decoder},
    };
    qn_json_reader *reader = qn_json_reader_new(l->text, READER_FLAGS, 0);
    if (!reader)
        return QN_E_NOMEM;
    qn_status status = QN_OK;
    qn_json_event event = qn_json_next(reader);
    if (event != QN_JSON_OBJECT_BEGIN && event != QN_JSON_ERROR) {
        status = qn_fail(QN_E_FORMAT, "expected an object");
        qn_fail_where(status, "tokenizer.json");
    }
    while (!status && (event = qn_json_next(reader)) == QN_JSON_KEY) {
        qn_str key = qn_json_text(reader), skipped;
        qn_str *part = &skipped;
        for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
            if (qn_str_is(key, keys[i].key))
                part = keys[i].part;
        }
        bool model = qn_str_is(key, "model");
        if ((model && l->has_model) || (part != &skipped && part->size)) {
            status = qn_fail(QN_E_FORMAT, "'%.*s' stands there twice",
                             (int)key.size, key.data);
            qn_fail_where(status, "tokenizer.json");
            break;
        }
        event = qn_json_next(reader);
        if (model && event == QN_JSON_OBJECT_BEGIN) {
            l->has_model = true;
            status = read_model(l, reader);
        } else {
            status = pass_value(l, reader, event, part);
        }
    }
    /* Nothing but white space may follow. */
    if (!status && qn_json_next(reader) == QN_JSON_ERROR)
        status = qn_jpath_reader_failed(reader);
    qn_json_reader_free(reader);
    if (!status && !l->has_model)
        status = qn_jpath_fail(&model_path, QN_E_FORMAT,
                               "expected an object, found nothing");
    return status;
}

/* ---- added tokens ---- */

/* The token joins the vocabulary, if it is not an entry already. */
static qn_status enter_token(qn_tokenizer *t, int64_t id, qn_str content,
                             bool special, const qn_jpath *at)
{
    int32_t found = qn_vocab_find(&t->vocab, content);
    if (found >= 0 && found != id)
        return qn_jpath_fail(at, QN_E_MISMATCH,
                             "expected id %ld, which the vocabulary gives "
                             "'%.*s', found %lld",
                             (long)found,
                             (int)(content.size < 200 ? content.size : 200),
                             content.data, (long long)id);
    if (found < 0) {
        qn_status status = qn_vocab_add(&t->vocab, id, content, 0, NULL);
        if (status)
            return qn_jpath_where(at, status);
    }
    t->vocab.tokens[id].flags |=
        (uint8_t)(QN_TOKEN_ADDED | (special ? QN_TOKEN_SPECIAL : 0));
    return QN_OK;
}

static qn_status load_added_token(qn_tokenizer *t, const qn_json *value,
                                  const qn_jpath *at)
{
    qn_added_token token = {0};
    qn_str content;
    int64_t id = -1;
    bool normalized = false;
    qn_status status = qn_jpath_need_str(at, value, "content", &content);
    if (!status)
        status = qn_jpath_int(at, value, "id", &id);
    const struct {
        const char *key;
        bool *flag;
    } flags[] = {{"single_word", &token.single_word},
                 {"lstrip", &token.lstrip},
                 {"rstrip", &token.rstrip},
                 {"normalized", &normalized},
                 {"special", &token.special}};
    for (size_t i = 0; !status && i < sizeof flags / sizeof flags[0]; i++)
        status = qn_jpath_bool(at, value, flags[i].key, flags[i].flag);
    if (!status)
        status = enter_token(t, id, content, token.special, at);
    if (status)
        return status;
    token.id = (int32_t)id;
    if (!normalized) {
        status = qn_added_add(&t->raw, token, content);
        return status ? qn_jpath_where(at, status) : QN_OK;
    }
    /* It is looked for in normalized text, so as that would write it. */
    qn_norm_text form = {0};
    status = qn_normalizer_run(t->normalizer, &form, content, NULL);
    if (!status)
        status = qn_added_add(&t->normalized, token, qn_buf_str(&form.text));
    qn_norm_text_free(&form);
    return status ? qn_jpath_where(at, status) : QN_OK;
}

static qn_status load_added(loader *l, const qn_json *list)
{
    const qn_jpath *place = QN_JPATH_KEY(NULL, "added_tokens");
    if (!list || list->type == QN_JSON_T_NULL)
        return QN_OK;
    if (list->type != QN_JSON_T_ARRAY)
        return qn_jpath_fail(place, QN_E_FORMAT, "expected an array, found %s",
                             qn_json_type_name(list->type));
    qn_status status = QN_OK;
    for (size_t i = 0; !status && i < list->count; i++)
        status =
            load_added_token(l->t, &list->items[i], QN_JPATH_ITEM(place, i));
    return status;
}

/* ---- the small parts, in the order in which they need each other ---- */

static qn_status load_normalizer(loader *l, const qn_json *value)
{
    return qn_normalizer_parse(&l->t->normalizer, value,
                               QN_JPATH_KEY(NULL, "normalizer"));
}

static qn_status load_pretok(loader *l, const qn_json *value)
{
    return qn_pretok_parse(&l->t->pretok, value,
                           QN_JPATH_KEY(NULL, "pre_tokenizer"));
}

static qn_status load_decoder(loader *l, const qn_json *value)
{
    return qn_decoder_parse(&l->t->decoder, value,
                            QN_JPATH_KEY(NULL, "decoder"));
}

static qn_status load_post(loader *l, const qn_json *value)
{
    return qn_post_parse(&l->t->before, &l->t->after, value, &l->t->vocab,
                         QN_JPATH_KEY(NULL, "post_processor"));
}

static qn_status load_part(loader *l, qn_str part, const char *key,
                           qn_status (*load)(loader *, const qn_json *))
{
    qn_json_doc *doc;
    const qn_json *root;
    qn_status status = parse_part(&doc, &root, part, key);
    if (!status)
        status = load(l, root);
    qn_json_doc_free(doc);
    return status;
}

static qn_status load_parts(loader *l)
{
    const parts *p = &l->parts;
    qn_status status =
        load_part(l, p->normalizer, "normalizer", load_normalizer);
    if (!status)
        status = load_part(l, p->pre_tokenizer, "pre_tokenizer", load_pretok);
    /* Before the added tokens: a model knows only its own entries. */
    if (!status)
        status = qn_tokenizer_load_model(l->t, &l->model);
    if (!status)
        status = load_part(l, p->added_tokens, "added_tokens", load_added);
    if (!status)
        status = load_part(l, p->post_processor, "post_processor", load_post);
    if (!status)
        status = load_part(l, p->decoder, "decoder", load_decoder);
    return status;
}

/* ---- tokenizer_config.json ---- */

/* A special token's id: its name is a string, or a token object. */
static int32_t named_id(const qn_tokenizer *t, const qn_json *config,
                        const char *key)
{
    const qn_json *value = qn_json_get(config, key);
    qn_str name;
    if (!qn_json_as_str(value, &name) &&
        !qn_json_as_str(qn_json_get(value, "content"), &name))
        return -1;
    return qn_vocab_find(&t->vocab, name);
}

static qn_status load_config(qn_tokenizer *t, const qn_json *config)
{
    t->bos = named_id(t, config, "bos_token");
    t->eos = named_id(t, config, "eos_token");
    t->pad = named_id(t, config, "pad_token");
    int32_t unk = named_id(t, config, "unk_token");
    if (unk >= 0)
        t->unk = unk;
    bool add;
    qn_status status = QN_OK;
    if (qn_json_as_bool(qn_json_get(config, "add_bos_token"), &add))
        status = qn_tokenizer_set_bos(t, add);
    if (!status && qn_json_as_bool(qn_json_get(config, "add_eos_token"), &add))
        status = qn_tokenizer_set_eos(t, add);
    if (!status && t->eos >= 0)
        status = qn_ids_add(&t->end_ids, t->eos);
    return status;
}

static qn_status read_config(qn_tokenizer *t, qn_bytes config)
{
    if (!config.size)
        return QN_OK;
    qn_json_doc *doc = NULL;
    qn_status status =
        qn_json_parse(&doc, (qn_str){(const char *)config.data, config.size},
                      QN_JSON_ALLOW_BOM);
    if (!status && qn_json_root(doc)->type != QN_JSON_T_OBJECT)
        status = qn_fail(QN_E_FORMAT, "expected an object, found %s",
                         qn_json_type_name(qn_json_root(doc)->type));
    if (!status)
        status = load_config(t, qn_json_root(doc));
    if (status)
        qn_fail_where(status, "tokenizer_config.json");
    qn_json_doc_free(doc);
    return status;
}

qn_status qn_tokenizer_from_json(qn_tokenizer **out, qn_bytes json,
                                 qn_bytes config)
{
    loader l = {.text = {(const char *)json.data, json.size}};
    qn_status status = QN_E_NOMEM;
    l.t = qn_tokenizer_new();
    l.options_doc = qn_json_doc_new();
    if (!l.t || !l.options_doc)
        goto done;
    l.options = qn_json_new_object(l.options_doc);
    if (!l.options)
        goto done;
    l.model.options = l.options;
    status = read_root(&l);
    if (!status)
        status = load_parts(&l);
    if (!status)
        status = read_config(l.t, config);
    if (status)
        goto done;
    *out = l.t;
    l.t = NULL;
done:
    qn_json_doc_free(l.options_doc);
    qn_tokenizer_free(l.t);
    return status;
}
