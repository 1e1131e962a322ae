/* tokenizer_gguf.c: loads a tokenizer from the tokenizer.ggml.* keys of a
 * GGUF file (runtime specification 3.4).
 *
 * The keys name a kind of model and, for byte-level BPE, a splitter; the parts
 * are then the same as those of a tokenizer.json.  A new kind is a row in
 * `models`, a new splitter one in `splitters`. */
#include "tokenizer_impl.h"

#include "base/alloc.h"
#include "base/utf8.h"
#include "bpe.h"

#define KEY(name) "tokenizer.ggml." name

/* Values of tokenizer.ggml.token_type. */
enum { TYPE_NORMAL = 1, TYPE_UNKNOWN, TYPE_CONTROL, TYPE_USER, TYPE_LAST = 6 };

/* What files that were made for a splitter expect beside its rule. */
static const struct {
    const char *name;
    bool ignore_merges;
    bool add_bos; /* where the file does not say */
} splitters[] = {
    {"smollm", false, false},  {"gpt-2", false, false},
    {"llama-bpe", true, true}, {"qwen2", false, false},
    {"qwen35", false, false},  {"tekken", true, true},
    {"gpt-4o", false, false},  {"default", false, false},
};

static qn_status fail_at(const char *key, qn_status status)
{
    return qn_fail_where(status, "%s", key);
}

/* An array of strings that must be there. */
static qn_status need_strings(const qn_gguf *gguf, const char *key,
                              const qn_gguf_value **out)
{
    const qn_gguf_value *value = qn_gguf_get(gguf, key);
    if (!value || value->type != QN_GGUF_ARRAY ||
        value->as.array.item != QN_GGUF_STRING)
        return fail_at(key, qn_fail(QN_E_FORMAT,
                                    "expected an array of strings, found %s",
                                    value ? "another type" : "nothing"));
    *out = value;
    return QN_OK;
}

/* An optional key: absent leaves *out. */
static qn_status optional(qn_status status)
{
    return status == QN_E_NOTFOUND ? QN_OK : status;
}

/* ---- tokens ---- */

/* The types of `count` tokens, or NULL where the file has none. */
static qn_status get_types(const qn_gguf *gguf, size_t count,
                           const qn_gguf_value **out)
{
    const char *key = KEY("token_type");
    const qn_gguf_value *value = qn_gguf_get(gguf, key);
    *out = NULL;
    if (!value)
        return QN_OK;
    if (value->type != QN_GGUF_ARRAY || (value->as.array.item != QN_GGUF_I32 &&
                                         value->as.array.item != QN_GGUF_U32))
        return fail_at(key,
                       qn_fail(QN_E_FORMAT, "expected an array of integers"));
    if (value->as.array.count != count)
        return fail_at(key,
                       qn_fail(QN_E_FORMAT, "expected %zu types, found %zu",
                               count, value->as.array.count));
    *out = value;
    return QN_OK;
}

/* Control and unknown tokens are special; they and what the user added match
 * in the text as a whole. */
static qn_status add_token(qn_tokenizer *t, int32_t id, qn_str text,
                           int64_t type)
{
    if (!qn_utf8_valid(text, NULL))
        return qn_fail(QN_E_FORMAT, "token %ld is not valid UTF-8", (long)id);
    bool special = type == TYPE_CONTROL || type == TYPE_UNKNOWN;
    unsigned flags = QN_TOKEN_MODEL | (special ? QN_TOKEN_SPECIAL : 0) |
                     (special || type == TYPE_USER ? QN_TOKEN_ADDED : 0);
    qn_status status = qn_vocab_add(&t->vocab, id, text, (uint8_t)flags, NULL);
    if (!status && flags & QN_TOKEN_ADDED)
        status = qn_added_add(
            &t->raw, (qn_added_token){.id = id, .special = special}, text);
    return status;
}

static qn_status load_tokens(qn_tokenizer *t, const qn_gguf *gguf)
{
    const qn_gguf_value *tokens = NULL, *types = NULL;
    qn_status status = need_strings(gguf, KEY("tokens"), &tokens);
    if (!status)
        status = get_types(gguf, tokens->as.array.count, &types);
    if (status)
        return status;
    for (size_t i = 0; i < tokens->as.array.count; i++) {
        int64_t type = types ? qn_gguf_array_int(types, i) : TYPE_NORMAL;
        if (type < 0 || type > TYPE_LAST)
            return fail_at(KEY("token_type"),
                           qn_fail(QN_E_FORMAT,
                                   "token %zu: expected a type from 0 to %d, "
                                   "found %lld",
                                   i, TYPE_LAST, (long long)type));
        if (i >= QN_VOCAB_MAX)
            status = qn_fail(QN_E_FORMAT, "expected at most %d tokens",
                             QN_VOCAB_MAX);
        else
            status = add_token(t, (int32_t)i, tokens->as.array.strs[i], type);
        if (status)
            return fail_at(KEY("tokens"), status);
    }
    return QN_OK;
}

/* ---- named tokens ---- */

/* An id key: *out stays -1 where it is absent. */
static qn_status named_id(const qn_tokenizer *t, const qn_gguf *gguf,
                          const char *key, int32_t *out)
{
    int64_t id = -1;
    *out = -1;
    qn_status status = qn_gguf_get_int(gguf, key, &id);
    if (status)
        return optional(status);
    if (!qn_vocab_has(&t->vocab, id))
        return fail_at(key, qn_fail(QN_E_FORMAT,
                                    "expected a token id below %zu, found %lld",
                                    t->vocab.count, (long long)id));
    *out = (int32_t)id;
    return QN_OK;
}

static qn_status add_end(qn_tokenizer *t, int32_t id)
{
    for (size_t i = 0; i < t->end_ids.size; i++) {
        if (t->end_ids.data[i] == id)
            return QN_OK;
    }
    return id < 0 ? QN_OK : qn_ids_add(&t->end_ids, id);
}

static qn_status load_named(qn_tokenizer *t, const qn_gguf *gguf)
{
    static const char *const ends[] = {
        "<|im_end|>", "<|eot_id|>",    "<|eom_id|>", "<end_of_turn>", "<turn|>",
        "<|end|>",    "<|endoftext|>", "<|return|>", "<|call|>"};
    int32_t eot;
    qn_status status = named_id(t, gguf, KEY("bos_token_id"), &t->bos);
    if (!status)
        status = named_id(t, gguf, KEY("eos_token_id"), &t->eos);
    if (!status)
        status = named_id(t, gguf, KEY("unknown_token_id"), &t->unk);
    if (!status)
        status = named_id(t, gguf, KEY("padding_token_id"), &t->pad);
    if (!status)
        status = named_id(t, gguf, KEY("eot_token_id"), &eot);
    if (!status)
        status = add_end(t, t->eos);
    if (!status)
        status = add_end(t, eot);
    for (size_t i = 0; !status && i < sizeof ends / sizeof ends[0]; i++) {
        int32_t id = qn_vocab_find(&t->vocab, qn_str_of(ends[i]));
        /* The same text as an ordinary token ends nothing. */
        if (qn_tokenizer_is_special(t, id))
            status = add_end(t, id);
    }
    return status;
}

static qn_status load_frame(qn_tokenizer *t, const qn_gguf *gguf, bool bos)
{
    bool eos = false;
    qn_status status =
        optional(qn_gguf_get_bool(gguf, KEY("add_bos_token"), &bos));
    if (!status)
        status = optional(qn_gguf_get_bool(gguf, KEY("add_eos_token"), &eos));
    if (!status)
        status = qn_tokenizer_set_bos(t, bos);
    return status ? status : qn_tokenizer_set_eos(t, eos);
}

/* ---- byte-level BPE ---- */

static qn_status load_merges(qn_tokenizer *t, const qn_gguf *gguf, qn_bpe *bpe)
{
    const qn_gguf_value *merges = NULL;
    qn_status status = need_strings(gguf, KEY("merges"), &merges);
    if (status)
        return status;
    for (size_t i = 0; !status && i < merges->as.array.count; i++)
        status =
            qn_bpe_add_merge_line(bpe, &t->vocab, merges->as.array.strs[i]);
    return status ? fail_at(KEY("merges"), status) : qn_bpe_finish(bpe);
}

static qn_status load_gpt2(qn_tokenizer *t, const qn_gguf *gguf)
{
    qn_str pre = QN_STR("default"); /* what files without a name mean */
    qn_status status = optional(qn_gguf_get_str(gguf, KEY("pre"), &pre));
    if (status)
        return status;
    const qn_split_rule *rule = qn_split_rule_named(pre);
    size_t n = 0, count = sizeof splitters / sizeof splitters[0];
    while (n < count && !qn_str_is(pre, splitters[n].name))
        n++;
    if (!rule || n == count)
        return fail_at(KEY("pre"),
                       qn_fail(QN_E_UNSUPPORTED,
                               "splitter '%.*s' is not supported",
                               (int)(pre.size < 64 ? pre.size : 64), pre.data));
    qn_bpe_options o = {.byte_level = true,
                        .ignore_merges = splitters[n].ignore_merges,
                        /* A byte without a token is dropped, as the
                         * tokenizer.json of such models says. */
                        .unk = -1,
                        .prefix = QN_STR(""),
                        .suffix = QN_STR("")};
    qn_bpe *bpe = NULL;
    status = qn_bpe_new(&bpe, &t->vocab, &o);
    if (status)
        return status;
    t->model = qn_bpe_model(bpe);
    status = load_merges(t, gguf, bpe);
    if (!status)
        status = qn_pretok_from_rule(&t->pretok, rule);
    if (!status)
        status = qn_decoder_byte_level(&t->decoder);
    return status ? status : load_frame(t, gguf, splitters[n].add_bos);
}

static const struct {
    const char *name;
    qn_status (*load)(qn_tokenizer *t, const qn_gguf *gguf);
} models[] = {
    {"gpt2", load_gpt2},
};

static qn_status load(qn_tokenizer *t, const qn_gguf *gguf)
{
    qn_str model;
    qn_status status = qn_gguf_get_str(gguf, KEY("model"), &model);
    if (status == QN_E_NOTFOUND)
        return fail_at(KEY("model"),
                       qn_fail(QN_E_FORMAT, "expected a string, found "
                                            "nothing"));
    if (status)
        return status;
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        if (!qn_str_is(model, models[i].name))
            continue;
        status = load_tokens(t, gguf);
        if (!status)
            status = load_named(t, gguf);
        return status ? status : models[i].load(t, gguf);
    }
    return fail_at(KEY("model"),
                   qn_fail(QN_E_UNSUPPORTED,
                           "tokenizer '%.*s' is not "
                           "supported",
                           (int)(model.size < 64 ? model.size : 64),
                           model.data));
}

qn_status qn_tokenizer_from_gguf(qn_tokenizer **out, const qn_gguf *gguf)
{
    qn_tokenizer *t = qn_tokenizer_new();
    if (!t)
        return QN_E_NOMEM;
    qn_status status = load(t, gguf);
    if (status) {
        qn_tokenizer_free(t);
        return status;
    }
    *out = t;
    return QN_OK;
}
