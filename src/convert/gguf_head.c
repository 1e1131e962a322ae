/* gguf_head.c: see gguf_head.h. */
#include "gguf_head.h"

#include "base/alloc.h"
#include "model/config.h"
#include "text/split.h"

#include <stdio.h>

enum {
    MAX_TOKENIZER = 512 << 20,
    MAX_CONFIG = 64 << 20,
    NORMAL = 1,
    UNKNOWN,
    CONTROL,
    USER,
    UNUSED,
    BYTE
};

typedef struct head {
    qn_buf *out;
    uint64_t keys;
    const qn_origin *source;
    const char *arch;
    size_t vocab;
    int64_t bos; /* as config.json has it; -1: not at all */
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

static void put_float(head *h, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    qn_gguf_put_u32(h->out, bits);
}

static void put_real(head *h, const char *name, double value)
{
    put_key(h, name, QN_GGUF_F32);
    put_float(h, (float)value);
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

static qn_status refuse(const char *what)
{
    return qn_fail(QN_E_UNSUPPORTED, "to gguf: %s is not written", what);
}

static void put_arch_int(head *h, const char *tail, int64_t value)
{
    char name[96];
    snprintf(name, sizeof name, "%s.%s", h->arch, tail);
    put_int(h, name, value);
}

static void put_arch_real(head *h, const char *tail, double value)
{
    char name[96];
    snprintf(name, sizeof name, "%s.%s", h->arch, tail);
    put_real(h, name, value);
}

static qn_status read_config(qn_config *out, const qn_origin *s)
{
    char *path = qn_path_join(qn_weights_dir(s->weights), "config.json");
    char *text = NULL;
    size_t size = 0;
    qn_status status =
        path ? qn_file_read(&text, &size, path, MAX_CONFIG) : QN_E_NOMEM;
    if (!status)
        status = qn_config_from_json(out, (qn_str){text, size}, path);
    qn_free(text);
    qn_free(path);
    return status;
}

static qn_status find_arch(head *h)
{
    static const struct {
        const char *type, *arch;
    } types[] = {{"llama", "llama"},        {"mistral", "llama"},
                 {"qwen2", "qwen2"},        {"qwen3", "qwen3"},
                 {"gemma", "gemma"},        {"gemma2", "gemma2"},
                 {"gemma3_text", "gemma3"}, {"gemma3", "gemma3"}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (!strcmp(types[i].type, h->source->arch))
            h->arch = types[i].arch;
    return h->arch ? QN_OK
                   : qn_fail(QN_E_UNSUPPORTED,
                             "to gguf: model type '%s' is not written (llama, "
                             "mistral, qwen2, qwen3, gemma, gemma2 and gemma3 "
                             "are)",
                             h->source->arch);
}

/* Which layers have a window is the architecture's rule. */
static qn_status put_window(head *h, const qn_config *c)
{
    int pattern = !strcmp(h->arch, "gemma2")   ? 2
                  : !strcmp(h->arch, "gemma3") ? 6
                                               : 0;
    bool any = false, all = true;
    for (int i = 0; i < c->layers; i++) {
        bool slides = c->layer[i].window > 0;
        any |= slides;
        all &= pattern ? slides == ((i + 1) % pattern != 0) : slides;
    }
    if (any && (!all || (!pattern && strcmp(h->arch, "llama") != 0)))
        return refuse("this order of layers with a window");
    if (any)
        put_arch_int(h, "attention.sliding_window", c->sliding_window);
    return !any && pattern ? refuse("a model without windows") : QN_OK;
}

static qn_status put_rope(head *h, const qn_config *c)
{
    char name[96];
    put_arch_int(h, "rope.dimension_count", c->rope.dims);
    put_arch_real(h, "rope.freq_base", c->rope.base);
    if (!strcmp(h->arch, "gemma3") &&
        (c->local_rope.base != 10000 || c->local_rope.type != QN_ROPE_DEFAULT))
        return refuse("rotation of layers with a window other than by 10000");
    if (c->rope.type == QN_ROPE_DEFAULT)
        return QN_OK;
    if (c->rope.type != QN_ROPE_LINEAR)
        return refuse("this scaling of positions");
    snprintf(name, sizeof name, "%s.rope.scaling.type", h->arch);
    put_str(h, name, QN_STR("linear"));
    put_arch_real(h, "rope.scaling.factor", c->rope.factor);
    return QN_OK;
}

/* Number `key`, `absent` where it is not there, 0 where it is null. */
static double number(const head *h, const char *key, double absent)
{
    const qn_json *value = qn_origin_config(h->source, key);
    double found = 0;
    return !value || qn_json_as_double(value, &found) ? (value ? found : absent)
                                                      : 0;
}

/* Caps, and that scores are divided by what readers take: the width of a head,
 * or that of hidden states by heads in the largest model of each version. */
static qn_status put_gemma(head *h, const qn_config *c)
{
    bool second = !strcmp(h->arch, "gemma2");
    if (!strcmp(h->arch, "gemma"))
        return QN_OK;
    double attention = number(h, "attn_logit_softcapping", second ? 50 : 0);
    double final = number(h, "final_logit_softcapping", second ? 30 : 0);
    if (second ? !(attention > 0 && final > 0) : attention > 0)
        return refuse("this choice of caps");
    if (attention > 0)
        put_arch_real(h, "attn_logit_softcapping", attention);
    if (final > 0)
        put_arch_real(h, "final_logit_softcapping", final);
    bool largest = c->layers == (second ? 46 : 62);
    int usual = largest ? c->hidden / c->heads : c->head_dim;
    return number(h, "query_pre_attn_scalar", 256) == usual
               ? QN_OK
               : refuse("query_pre_attn_scalar other than the width of a head");
}

static qn_status put_config(head *h, const qn_config *c)
{
    put_str(h, "general.architecture", qn_str_of(h->arch));
    put_str(h, "general.type", QN_STR("model"));
    put_arch_int(h, "embedding_length", c->hidden);
    put_arch_int(h, "block_count", c->layers);
    put_arch_int(h, "feed_forward_length", c->intermediate);
    put_arch_int(h, "attention.head_count", c->heads);
    put_arch_int(h, "attention.head_count_kv", c->kv_heads);
    put_arch_int(h, "attention.key_length", c->head_dim);
    put_arch_int(h, "attention.value_length", c->head_dim);
    put_arch_int(h, "context_length", c->max_positions);
    put_arch_real(h, "attention.layer_norm_rms_epsilon", c->norm_eps);
    qn_status status = put_rope(h, c);
    if (!status)
        status = put_window(h, c);
    if (!status && !strncmp(h->arch, "gemma", 5))
        status = put_gemma(h, c);
    h->vocab = (size_t)c->vocab_size;
    h->bos = c->bos_id;
    return status;
}

static qn_status put_settings(head *h)
{
    qn_config c = {0};
    qn_status status = find_arch(h);
    if (!status)
        status = read_config(&c, h->source);
    if (!status)
        status = put_config(h, &c);
    qn_config_clear(&c);
    return status;
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

static bool is_byte(qn_str text)
{
    return text.size == 6 && !memcmp(text.data, "<0x", 3) &&
           text.data[5] == '>';
}

/* The tokens of all ids; those that nobody uses have no text. */
static void list_tokens(token *tokens, size_t count, const qn_json *root,
                        bool spm)
{
    const qn_json *model = qn_json_get(root, "model");
    const qn_json *vocab = qn_json_get(model, "vocab");
    const qn_json *added = qn_json_get(root, "added_tokens");
    qn_str unknown = {"", 0};
    int64_t id;
    qn_json_as_str(qn_json_get(model, "unk_token"), &unknown);
    for (uint32_t i = 0; vocab && i < vocab->count; i++)
        if (qn_json_as_int(&vocab->items[i], &id))
            add_token(tokens, count, id, vocab->keys[i],
                      spm && is_byte(vocab->keys[i]) ? BYTE : NORMAL);
    for (uint32_t i = 0; added && i < added->count; i++) {
        qn_str text;
        bool special = true;
        qn_json_as_bool(qn_json_get(&added->items[i], "special"), &special);
        if (qn_json_as_int(qn_json_get(&added->items[i], "id"), &id) &&
            qn_json_as_str(qn_json_get(&added->items[i], "content"), &text))
            add_token(tokens, count, id, text,
                      spm && qn_str_eq(text, unknown) ? UNKNOWN
                      : special                       ? CONTROL
                                                      : USER);
    }
}

/* Every id has a text; those that nobody uses get one. */
static void put_tokens(head *h, const token *tokens)
{
    put_list(h, "tokenizer.ggml.tokens", QN_GGUF_STRING, h->vocab);
    for (size_t i = 0; i < h->vocab; i++) {
        char name[32];
        snprintf(name, sizeof name, "[PAD%zu]", i);
        qn_gguf_put_text(h->out, tokens[i].text.data ? tokens[i].text
                                                     : qn_str_of(name));
    }
    put_list(h, "tokenizer.ggml.token_type", QN_GGUF_I32, h->vocab);
    for (size_t i = 0; i < h->vocab; i++)
        qn_gguf_put_u32(
            h->out, (uint32_t)(tokens[i].text.data ? tokens[i].type : UNUSED));
}

static qn_status put_spm(head *h, const qn_json *root, const token *tokens)
{
    bool prefix = false;
    float *scores = qn_calloc(h->vocab, sizeof *scores);
    uint8_t *apart = qn_calloc(h->vocab, 1);
    qn_status status = scores && apart ? QN_OK : QN_E_NOMEM;
    for (size_t i = 0; i < h->vocab && !status; i++)
        apart[i] = tokens[i].type != NORMAL;
    if (!status)
        status = qn_gguf_spm(scores, &prefix, root, apart, h->vocab);
    if (!status) {
        put_str(h, "tokenizer.ggml.model", QN_STR("llama"));
        put_str(h, "tokenizer.ggml.pre", QN_STR("default"));
        put_bool(h, "tokenizer.ggml.add_space_prefix", prefix);
        put_tokens(h, tokens);
        put_list(h, "tokenizer.ggml.scores", QN_GGUF_F32, h->vocab);
    }
    for (size_t i = 0; i < h->vocab && !status; i++)
        put_float(h, scores[i]);
    qn_free(scores);
    qn_free(apart);
    return status;
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
    int64_t bos = info.bos_id >= 0 ? info.bos_id : h->bos;
    const int32_t *ends = quern_end_ids(model, &count);
    if (bos >= 0)
        put_int(h, "tokenizer.ggml.bos_token_id", bos);
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
        n > 1 && bos >= 0 && ids[0] == bos;
    put_bool(h, "tokenizer.ggml.add_bos_token", first);
    quern_free(ids);
    if (info.chat_template)
        put_str(h, "tokenizer.chat_template", qn_str_of(info.chat_template));
    return QN_OK;
}

static qn_status put_gpt2(head *h, const qn_json *root, const token *tokens)
{
    const qn_json *model = qn_json_get(root, "model");
    const qn_json *merges = qn_json_get(model, "merges");
    qn_str type = {"", 0}, pre = splitter_of(root);
    qn_json_as_str(qn_json_get(model, "type"), &type);
    if (!qn_str_is(type, "BPE") || !merges || !pre.size)
        return qn_fail(QN_E_UNSUPPORTED,
                       "to gguf: only byte-level BPE with a splitter that GGUF "
                       "files have a name for, and BPE by scores, are written");
    put_str(h, "tokenizer.ggml.model", QN_STR("gpt2"));
    put_str(h, "tokenizer.ggml.pre", pre);
    put_tokens(h, tokens);
    put_merges(h, merges);
    return QN_OK;
}

static qn_status put_tokenizer(head *h, const qn_json *root)
{
    bool spm = qn_gguf_is_spm(root);
    token *tokens = qn_calloc(h->vocab, sizeof *tokens);
    if (!tokens)
        return QN_E_NOMEM;
    list_tokens(tokens, h->vocab, root, spm);
    qn_status status =
        spm ? put_spm(h, root, tokens) : put_gpt2(h, root, tokens);
    qn_free(tokens);
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
