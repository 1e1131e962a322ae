/* gguf_head.c: see gguf_head.h. */
#include "gguf_head.h"

#include "base/alloc.h"
#include "settings.h"
#include "text/split.h"

#include <stdio.h>

enum { MAX_TOKENIZER = 512 << 20, NORMAL = 1, CONTROL = 3, USER = 4, UNUSED };

typedef struct head {
    qn_buf *out;
    uint64_t keys;
    const qn_origin *source;
    const char *arch;
} head;

void qn_gguf_put_u32(qn_buf *out, uint32_t value)
{
    uint8_t bytes[4];
    qn_put_le32(bytes, value);
    qn_buf_add(out, bytes, sizeof bytes);
}

void qn_gguf_put_u64(qn_buf *out, uint64_t value)
{
    uint8_t bytes[8];
    qn_put_le64(bytes, value);
    qn_buf_add(out, bytes, sizeof bytes);
}

void qn_gguf_put_text(qn_buf *out, qn_str text)
{
    qn_gguf_put_u64(out, text.size);
    qn_buf_add_str(out, text);
}

/* ---- values ---- */

static void put_key(head *h, const char *name, qn_gguf_value_type type)
{
    h->keys++;
    qn_gguf_put_text(h->out, qn_str_of(name));
    qn_gguf_put_u32(h->out, (uint32_t)type);
}

static void put_str(head *h, const char *name, qn_str text)
{
    put_key(h, name, QN_GGUF_STRING);
    qn_gguf_put_text(h->out, text);
}

static void put_int(head *h, const char *name, int64_t value)
{
    put_key(h, name, QN_GGUF_U32);
    qn_gguf_put_u32(h->out, (uint32_t)value);
}

static void put_real(head *h, const char *name, double value)
{
    float narrow = (float)value;
    uint32_t bits;
    memcpy(&bits, &narrow, sizeof bits);
    put_key(h, name, QN_GGUF_F32);
    qn_gguf_put_u32(h->out, bits);
}

static void put_bool(head *h, const char *name, bool value)
{
    put_key(h, name, QN_GGUF_BOOL);
    qn_buf_add_char(h->out, (char)value);
}

static void put_list(head *h, const char *name, qn_gguf_value_type item,
                     uint64_t count)
{
    put_key(h, name, QN_GGUF_ARRAY);
    qn_gguf_put_u32(h->out, (uint32_t)item);
    qn_gguf_put_u64(h->out, count);
}

/* ---- the architecture ---- */

static qn_status put_settings(head *h)
{
    static const struct {
        const char *type, *arch;
    } types[] = {{"llama", "llama"},
                 {"mistral", "llama"},
                 {"qwen2", "qwen2"},
                 {"qwen3", "qwen3"}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (!strcmp(types[i].type, h->source->arch))
            h->arch = types[i].arch;
    if (!h->arch)
        return qn_fail(QN_E_UNSUPPORTED,
                       "to gguf: model type '%s' is not written (llama, "
                       "mistral, qwen2 and qwen3 are)",
                       h->source->arch);
    const qn_json *scaling = qn_origin_config(h->source, "rope_scaling");
    if (scaling && scaling->type != QN_JSON_T_NULL)
        return qn_fail(QN_E_UNSUPPORTED,
                       "to gguf: rope_scaling is not written");
    put_str(h, "general.architecture", qn_str_of(h->arch));
    put_str(h, "general.type", QN_STR("model"));
    size_t count;
    const qn_settings_key *keys = qn_settings_keys(&count);
    for (size_t i = 0; i < count; i++) {
        char name[96];
        const qn_json *value = qn_origin_config(h->source, keys[i].key);
        double number;
        int64_t whole;
        snprintf(name, sizeof name, "%s.%s", h->arch, keys[i].tail);
        if (keys[i].real && qn_json_as_double(value, &number))
            put_real(h, name, number);
        else if (!keys[i].real && qn_json_as_int(value, &whole))
            put_int(h, name, whole);
    }
    return QN_OK;
}

static void put_head_size(head *h, int32_t dim)
{
    static const char *const tails[] = {"attention.key_length",
                                        "attention.value_length",
                                        "rope.dimension_count"};
    for (size_t i = 0; i < 3; i++) {
        char name[96];
        snprintf(name, sizeof name, "%s.%s", h->arch, tails[i]);
        put_int(h, name, dim);
    }
}

/* ---- the tokenizer ---- */

/* The rule whose expressions are those of the steps before the last one. */
static const qn_split_rule *rule_of(const qn_json *list)
{
    size_t count;
    const qn_split_rule *rules = qn_split_rules(&count);
    for (size_t r = 0; r < count; r++) {
        uint32_t n = 0;
        qn_str pattern, behavior;
        while (
            n + 1 < list->count && n < QN_SPLIT_PATTERNS &&
            rules[r].patterns[n] &&
            qn_json_as_str(
                qn_json_get(qn_json_get(&list->items[n], "pattern"), "Regex"),
                &pattern) &&
            qn_json_as_str(qn_json_get(&list->items[n], "behavior"),
                           &behavior) &&
            qn_str_is(behavior, "Isolated") &&
            qn_str_is(pattern, rules[r].patterns[n]))
            n++;
        bool all = n == QN_SPLIT_PATTERNS || !rules[r].patterns[n];
        if (all && n + 1 == list->count)
            return &rules[r];
    }
    return NULL;
}

/* The name of the splitter, or an empty one. */
static qn_str splitter_of(const qn_json *root)
{
    const qn_json *pre = qn_json_get(root, "pre_tokenizer");
    const qn_json *list = qn_json_get(pre, "pretokenizers");
    qn_str type = {"", 0}, pattern = {"", 0};
    const qn_json *first = list ? qn_json_at(list, 0) : pre;
    bool regex = false;
    qn_json_as_str(qn_json_get(first, "type"), &type);
    if (qn_str_is(type, "ByteLevel") && (!list || list->count == 1))
        return qn_json_as_bool(qn_json_get(first, "use_regex"), &regex) &&
                       !regex
                   ? QN_STR("")
                   : QN_STR("gpt-2");
    if (qn_str_is(type, "Digits") && list && list->count == 2)
        return QN_STR("smollm");
    const qn_split_rule *rule = NULL;
    if (qn_json_as_str(qn_json_get(qn_json_get(first, "pattern"), "Regex"),
                       &pattern) &&
        list && list->count == 2)
        rule = qn_split_rule_for(pattern);
    if (!rule && list && qn_str_is(type, "Split"))
        rule = rule_of(list);
    return rule ? qn_str_of(rule->name) : QN_STR("");
}

typedef struct token {
    qn_str text;
    int type;
} token;

static void add_token(token *tokens, size_t count, int64_t id, qn_str text,
                      int type)
{
    if (id >= 0 && (uint64_t)id < count)
        tokens[id] = (token){text, type};
}

/* Every id has a text; those that nobody uses get one. */
static qn_status put_tokens(head *h, const qn_json *root, size_t count)
{
    const qn_json *vocab = qn_json_get(qn_json_get(root, "model"), "vocab");
    const qn_json *added = qn_json_get(root, "added_tokens");
    token *tokens = qn_calloc(count, sizeof *tokens);
    if (!tokens)
        return QN_E_NOMEM;
    int64_t id;
    for (uint32_t i = 0; vocab && i < vocab->count; i++)
        if (qn_json_as_int(&vocab->items[i], &id))
            add_token(tokens, count, id, vocab->keys[i], NORMAL);
    for (uint32_t i = 0; added && i < added->count; i++) {
        qn_str text;
        bool special = true;
        qn_json_as_bool(qn_json_get(&added->items[i], "special"), &special);
        if (qn_json_as_int(qn_json_get(&added->items[i], "id"), &id) &&
            qn_json_as_str(qn_json_get(&added->items[i], "content"), &text))
            add_token(tokens, count, id, text, special ? CONTROL : USER);
    }
    put_list(h, "tokenizer.ggml.tokens", QN_GGUF_STRING, count);
    for (size_t i = 0; i < count; i++) {
        char name[32];
        snprintf(name, sizeof name, "[PAD%zu]", i);
        qn_gguf_put_text(h->out, tokens[i].text.data ? tokens[i].text
                                                     : qn_str_of(name));
    }
    put_list(h, "tokenizer.ggml.token_type", QN_GGUF_I32, count);
    for (size_t i = 0; i < count; i++)
        qn_gguf_put_u32(
            h->out, (uint32_t)(tokens[i].text.data ? tokens[i].type : UNUSED));
    qn_free(tokens);
    return QN_OK;
}

static void put_merges(head *h, const qn_json *merges)
{
    put_list(h, "tokenizer.ggml.merges", QN_GGUF_STRING, merges->count);
    for (uint32_t i = 0; i < merges->count; i++) {
        const qn_json *m = &merges->items[i];
        qn_buf line = QN_BUF_INIT;
        if (m->type == QN_JSON_T_STRING) {
            qn_buf_add_str(&line, m->text);
        } else if (m->count == 2) {
            qn_buf_add_str(&line, m->items[0].text);
            qn_buf_add_char(&line, ' ');
            qn_buf_add_str(&line, m->items[1].text);
        }
        qn_gguf_put_text(h->out, qn_buf_str(&line));
        h->out->failed |= line.failed;
        qn_buf_free(&line);
    }
}

/* What the runtime makes of the directory's other files. */
static qn_status put_named(head *h, quern_model *model)
{
    quern_info info;
    size_t count;
    quern_model_info(model, &info);
    const int32_t *ends = quern_end_ids(model, &count);
    if (info.bos_id >= 0)
        put_int(h, "tokenizer.ggml.bos_token_id", info.bos_id);
    if (count)
        put_int(h, "tokenizer.ggml.eos_token_id", ends[0]);
    if (info.unk_id >= 0)
        put_int(h, "tokenizer.ggml.unknown_token_id", info.unk_id);
    if (info.pad_id >= 0)
        put_int(h, "tokenizer.ggml.padding_token_id", info.pad_id);
    int32_t *ids = NULL;
    size_t n = 0;
    bool first =
        !quern_tokenize(model, "a", 1, QUERN_ADD_SPECIAL, &ids, &n, NULL) &&
        n > 1 && info.bos_id >= 0 && ids[0] == info.bos_id;
    put_bool(h, "tokenizer.ggml.add_bos_token", first);
    quern_free(ids);
    if (info.chat_template)
        put_str(h, "tokenizer.chat_template", qn_str_of(info.chat_template));
    put_head_size(h, info.head_dim);
    return QN_OK;
}

static qn_status put_tokenizer(head *h, const qn_json *root)
{
    const qn_json *model = qn_json_get(root, "model");
    const qn_json *merges = qn_json_get(model, "merges");
    qn_str type = {"", 0}, pre = splitter_of(root);
    qn_json_as_str(qn_json_get(model, "type"), &type);
    int64_t vocab = 0;
    qn_json_as_int(qn_origin_config(h->source, "vocab_size"), &vocab);
    if (!qn_str_is(type, "BPE") || !merges || !pre.size || vocab < 1 ||
        vocab > 1 << 24)
        return qn_fail(QN_E_UNSUPPORTED,
                       "to gguf: only byte-level BPE with a splitter that GGUF "
                       "files have a name for is written");
    put_str(h, "tokenizer.ggml.model", QN_STR("gpt2"));
    put_str(h, "tokenizer.ggml.pre", pre);
    qn_status status = put_tokens(h, root, (size_t)vocab);
    put_merges(h, merges);
    return status;
}

static qn_status read_tokenizer(head *h)
{
    char *path =
        qn_path_join(qn_weights_dir(h->source->weights), "tokenizer.json");
    char *text = NULL;
    size_t size;
    qn_json_doc *doc = NULL;
    qn_status status =
        path ? qn_file_read(&text, &size, path, MAX_TOKENIZER) : QN_E_NOMEM;
    if (!status)
        status = qn_json_parse(&doc, (qn_str){text, size}, QN_JSON_ALLOW_BOM);
    if (!status)
        status = put_tokenizer(h, qn_json_root(doc));
    qn_json_doc_free(doc);
    qn_free(text);
    qn_free(path);
    return status;
}

qn_status qn_gguf_head(qn_buf *out, const qn_origin *s, size_t tensors)
{
    head h = {.out = out, .source = s};
    quern_options options;
    quern_model *model = NULL;
    quern_error error;
    quern_options_init(&options);
    options.headers_only = true;
    if (quern_model_load(&model, s->path, &options, &error))
        return qn_fail((qn_status)error.status, "%s", error.message);
    qn_buf_add(out, "GGUF", 4);
    qn_gguf_put_u32(out, 3);
    qn_gguf_put_u64(out, tensors);
    qn_gguf_put_u64(out, 0);
    qn_status status = put_settings(&h);
    if (!status)
        status = read_tokenizer(&h);
    if (!status)
        status = put_named(&h, model);
    quern_model_free(model);
    if (!status)
        status = qn_buf_status(out);
    if (!status)
        qn_put_le64((uint8_t *)out->data + 16, h.keys);
    return status;
}
