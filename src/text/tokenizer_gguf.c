/* tokenizer_gguf.c: loads a tokenizer from the tokenizer.ggml.* keys of a
 * GGUF file (runtime specification 3.4).
 *
 * The keys name a kind of model and, for byte-level BPE, a splitter; the parts
 * are then the same as those of a tokenizer.json, and what is fixed for a kind
 * is written as such a file would say it.  A new kind is a row in `models`, a
 * new splitter one in splitters.c. */
#include "tokenizer_impl.h"

#include "base/alloc.h"
#include "base/utf8.h"
#include "bpe.h"
#include "spm.h"
#include "unigram.h"
#include "wordpiece.h"

#include <math.h>

#define KEY(name) "tokenizer.ggml." name

/* Values of tokenizer.ggml.token_type. */
enum {
    TYPE_NORMAL = 1,
    TYPE_UNKNOWN,
    TYPE_CONTROL,
    TYPE_USER,
    TYPE_UNUSED,
    TYPE_BYTE,
    TYPE_LAST = TYPE_BYTE
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

/* What the user defined matches in normalized text, in which `space` stands
 * for spaces; files write it in both ways. */
static qn_status add_user_token(qn_tokenizer *t, int32_t id, qn_str text,
                                qn_str space)
{
    static const char mark[] = "\xe2\x96\x81";
    qn_buf content = QN_BUF_INIT;
    for (size_t i = 0; i < text.size;) {
        bool is_mark = text.size - i >= 3 && !memcmp(text.data + i, mark, 3);
        if (space.size && (is_mark || text.data[i] == ' ')) {
            qn_buf_add_str(&content, space);
            i += is_mark ? 3 : 1;
        } else {
            qn_buf_add_char(&content, text.data[i++]);
        }
    }
    qn_status status = qn_buf_status(&content);
    if (!status)
        status = qn_added_add(&t->normalized, (qn_added_token){.id = id},
                              qn_buf_str(&content));
    qn_buf_free(&content);
    return status;
}

/* Control and unknown tokens are special; they and what the user added match
 * in the text as a whole. */
static qn_status add_token(qn_tokenizer *t, int32_t id, qn_str text,
                           int64_t type, qn_str space)
{
    if (!qn_utf8_valid(text, NULL))
        return qn_fail(QN_E_FORMAT, "token %ld is not valid UTF-8", (long)id);
    bool special = type == TYPE_CONTROL || type == TYPE_UNKNOWN;
    unsigned flags = QN_TOKEN_MODEL | (special ? QN_TOKEN_SPECIAL : 0) |
                     (special || type == TYPE_USER ? QN_TOKEN_ADDED : 0);
    qn_status status = qn_vocab_add(&t->vocab, id, text, (uint8_t)flags, NULL);
    if (!status && special)
        status = qn_added_add(
            &t->raw, (qn_added_token){.id = id, .special = true}, text);
    else if (!status && type == TYPE_USER)
        status = add_user_token(t, id, text, space);
    return status;
}

static qn_status load_tokens(qn_tokenizer *t, const qn_gguf *gguf, qn_str space)
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
            status =
                add_token(t, (int32_t)i, tokens->as.array.strs[i], type, space);
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

/* `bos`, `eos`: what the kind adds where the file does not say. */
static qn_status load_frame(qn_tokenizer *t, const qn_gguf *gguf, bool bos,
                            bool eos)
{
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
    const qn_splitter *splitter = qn_splitter_named(pre);
    if (!splitter)
        return fail_at(KEY("pre"),
                       qn_fail(QN_E_UNSUPPORTED,
                               "splitter '%.*s' is not supported",
                               (int)(pre.size < 64 ? pre.size : 64), pre.data));
    qn_bpe_options o = {.byte_level = true,
                        .ignore_merges = splitter->ignore_merges,
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
        status = qn_pretok_from_rule(
            &t->pretok, qn_split_rule_named(qn_str_of(splitter->rule_name)));
    if (!status)
        status = qn_decoder_byte_level(&t->decoder);
    return status ? status : load_frame(t, gguf, splitter->add_bos, false);
}

/* ---- parts in the words of tokenizer.json ---- */

#define MARK "\\u2581"
#define REPLACE(from, to)                                                      \
    "{\"type\":\"Replace\",\"pattern\":" from ",\"content\":\"" to "\"}"
#define METASPACE(scheme, split)                                               \
    "{\"type\":\"Metaspace\",\"prepend_scheme\":\"" scheme                     \
    "\",\"split\":" split "}"
#define SPACES_TO_MARKS REPLACE("{\"String\":\" \"}", MARK)
#define SEQUENCE(list, parts) "{\"type\":\"Sequence\",\"" list "\":[" parts "]}"
#define MARKS_TO_TEXT                                                          \
    REPLACE("{\"String\":\"" MARK "\"}", " ")                                  \
    ",{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"}"

/* Texts of the kinds' parts; NULL: none. */
typedef struct fixed_parts {
    const char *normalizer, *pretok, *decoder;
} fixed_parts;

static qn_status parse_fixed(qn_json_doc **doc, const qn_json **root,
                             const char *text)
{
    *doc = NULL;
    *root = NULL;
    qn_status status = text ? qn_json_parse(doc, qn_str_of(text), 0) : QN_OK;
    if (!status && text)
        *root = qn_json_root(*doc);
    return status;
}

static qn_status load_fixed(qn_tokenizer *t, qn_bytes charsmap,
                            const fixed_parts *parts)
{
    qn_json_doc *doc;
    const qn_json *root;
    qn_status status = parse_fixed(&doc, &root, parts->normalizer);
    if (!status) {
        status =
            qn_normalizer_from_charsmap(&t->normalizer, charsmap, root, NULL);
        if (status && charsmap.size)
            qn_fail_where(status, KEY("precompiled_charsmap"));
    }
    qn_json_doc_free(doc);
    if (status)
        return status;
    status = parse_fixed(&doc, &root, parts->pretok);
    if (!status)
        status = qn_pretok_parse(&t->pretok, root, NULL);
    qn_json_doc_free(doc);
    if (status || !parts->decoder)
        return status;
    status = parse_fixed(&doc, &root, parts->decoder);
    if (!status)
        status = qn_decoder_parse(&t->decoder, root, NULL);
    qn_json_doc_free(doc);
    return status;
}

/* ---- SentencePiece ---- */

/* Scores of the tokens that text may be cut into, NaN for the others. */
static qn_status read_scores(float **out, const qn_tokenizer *t,
                             const qn_gguf *gguf)
{
    const char *key = KEY("scores");
    const qn_gguf_value *value = qn_gguf_get(gguf, key), *types = NULL;
    size_t count = t->vocab.count;
    if (!value || value->type != QN_GGUF_ARRAY ||
        (value->as.array.item != QN_GGUF_F32 &&
         value->as.array.item != QN_GGUF_F64))
        return fail_at(key, qn_fail(QN_E_FORMAT,
                                    "expected an array of numbers, found %s",
                                    value ? "another type" : "nothing"));
    if (value->as.array.count != count)
        return fail_at(key,
                       qn_fail(QN_E_FORMAT, "expected %zu scores, found %zu",
                               count, value->as.array.count));
    qn_status status = get_types(gguf, count, &types);
    if (status)
        return status;
    float *scores = qn_reallocarray(NULL, count + 1, sizeof *scores);
    if (!scores)
        return QN_E_NOMEM;
    for (size_t i = 0; i < count; i++) {
        int64_t type = types ? qn_gguf_array_int(types, i) : TYPE_NORMAL;
        bool cuts =
            type == TYPE_NORMAL || type == TYPE_USER || type == TYPE_UNUSED;
        scores[i] = cuts ? (float)qn_gguf_array_float(value, i) : NAN;
    }
    *out = scores;
    return QN_OK;
}

static qn_status load_spm(qn_tokenizer *t, const qn_gguf *gguf)
{
    bool prefix = true;
    float *scores = NULL;
    qn_status status =
        optional(qn_gguf_get_bool(gguf, KEY("add_space_prefix"), &prefix));
    if (!status)
        status = read_scores(&scores, t, gguf);
    if (!status)
        status = qn_spm_new(&t->model, &t->vocab, scores, t->unk);
    qn_free(scores);
    const fixed_parts with_prefix = {
        .normalizer =
            SEQUENCE("normalizers", "{\"type\":\"Prepend\",\"prepend\":\"" MARK
                                    "\"}," SPACES_TO_MARKS),
        .decoder = SEQUENCE("decoders", MARKS_TO_TEXT
                            ",{\"type\":\"Strip\",\"content\":\" \","
                            "\"start\":1,\"stop\":0}"),
    };
    const fixed_parts plain = {
        .normalizer = SPACES_TO_MARKS,
        .decoder = SEQUENCE("decoders", MARKS_TO_TEXT),
    };
    if (!status)
        status = load_fixed(t, (qn_bytes){0}, prefix ? &with_prefix : &plain);
    return status ? status : load_frame(t, gguf, true, false);
}

/* BPE with merges over text in which marks stand for spaces. */
static qn_status load_gemma4(qn_tokenizer *t, const qn_gguf *gguf)
{
    const fixed_parts parts = {
        .normalizer = SPACES_TO_MARKS,
        .decoder = SEQUENCE("decoders", MARKS_TO_TEXT),
    };
    qn_bpe_options o = {.byte_fallback = true,
                        .fuse_unk = true,
                        .unk = t->unk,
                        .prefix = QN_STR(""),
                        .suffix = QN_STR("")};
    qn_bpe *bpe = NULL;
    qn_status status = qn_bpe_new(&bpe, &t->vocab, &o);
    if (status)
        return status;
    t->model = qn_bpe_model(bpe);
    status = load_merges(t, gguf, bpe);
    if (!status)
        status = load_fixed(t, (qn_bytes){0}, &parts);
    return status ? status : load_frame(t, gguf, true, false);
}

/* The bytes of an optional key. */
static qn_status get_bytes(const qn_gguf *gguf, const char *key, qn_bytes *out)
{
    const qn_gguf_value *value = qn_gguf_get(gguf, key);
    *out = (qn_bytes){0};
    if (!value)
        return QN_OK;
    if (value->type != QN_GGUF_ARRAY || (value->as.array.item != QN_GGUF_U8 &&
                                         value->as.array.item != QN_GGUF_I8))
        return fail_at(key, qn_fail(QN_E_FORMAT, "expected an array of bytes"));
    *out = (qn_bytes){value->as.array.data, value->as.array.count};
    return QN_OK;
}

static qn_status new_unigram(qn_tokenizer *t, const qn_gguf *gguf)
{
    float *scores = NULL;
    double *wide = NULL;
    qn_status status = read_scores(&scores, t, gguf);
    if (!status) {
        wide = qn_reallocarray(NULL, t->vocab.count + 1, sizeof *wide);
        if (!wide)
            status = QN_E_NOMEM;
    }
    if (!status) {
        for (size_t i = 0; i < t->vocab.count; i++)
            wide[i] = scores[i];
        status = qn_unigram_new(
            &t->model, &t->vocab, wide,
            &(qn_unigram_options){.unk = t->unk, .narrow = true});
        if (status)
            fail_at(KEY("tokens"), status);
    }
    qn_free(scores);
    qn_free(wide);
    return status;
}

static qn_status load_t5(qn_tokenizer *t, const qn_gguf *gguf)
{
    bool prefix = true, trim = true;
    qn_bytes charsmap;
    qn_status status =
        optional(qn_gguf_get_bool(gguf, KEY("add_space_prefix"), &prefix));
    if (!status)
        status = optional(
            qn_gguf_get_bool(gguf, KEY("remove_extra_whitespaces"), &trim));
    if (!status)
        status = get_bytes(gguf, KEY("precompiled_charsmap"), &charsmap);
    if (!status)
        status = new_unigram(t, gguf);
    if (status)
        return status;
    const fixed_parts parts = {
        .normalizer =
            trim ? SEQUENCE("normalizers",
                            REPLACE("{\"Regex\":\" {2,}\"}", " ") "," REPLACE(
                                "{\"Regex\":\"\\\\A |[ " MARK "]\\\\z\"}", ""))
                 : NULL,
        /* Not split: the sums of scores run through the whole text. */
        .pretok =
            prefix ? METASPACE("always", "false") : METASPACE("never", "false"),
        .decoder =
            prefix ? METASPACE("always", "true") : METASPACE("never", "true"),
    };
    status = load_fixed(t, charsmap, &parts);
    return status ? status : load_frame(t, gguf, false, true);
}

/* ---- WordPiece ---- */

/* The id of the first key that is there, else of the token `name`, or -1. */
static qn_status frame_id(const qn_tokenizer *t, const qn_gguf *gguf,
                          const char *key, int32_t other, const char *name,
                          int32_t *out)
{
    qn_status status = named_id(t, gguf, key, out);
    if (!status && *out < 0)
        *out = other;
    if (!status && *out < 0)
        *out = qn_vocab_find(&t->vocab, qn_str_of(name));
    return status;
}

static qn_status load_bert(qn_tokenizer *t, const qn_gguf *gguf)
{
    const fixed_parts parts = {
        .normalizer = "{\"type\":\"BertNormalizer\"}",
        .pretok = "{\"type\":\"BertPreTokenizer\"}",
    };
    if (t->unk < 0)
        t->unk = qn_vocab_find(&t->vocab, QN_STR("[UNK]"));
    const qn_wordpiece_options o = {.unk = t->unk,
                                    .prefix = QN_STR("\xe2\x96\x81"),
                                    .max_chars = 100,
                                    .marks_start = true};
    qn_status status = qn_wordpiece_new(&t->model, &t->vocab, &o);
    if (status)
        return fail_at(KEY("tokens"), status);
    status = load_fixed(t, (qn_bytes){0}, &parts);
    if (!status)
        status = qn_decoder_marked_words(&t->decoder);
    /* The second key is written in two ways; the first is the older one. */
    int32_t sep;
    if (!status)
        status =
            frame_id(t, gguf, KEY("cls_token_id"), t->bos, "[CLS]", &t->bos);
    if (!status)
        status = named_id(t, gguf, KEY("seperator_token_id"), &sep);
    if (!status)
        status = frame_id(t, gguf, KEY("sep_token_id"), sep >= 0 ? sep : t->eos,
                          "[SEP]", &t->eos);
    return status ? status : load_frame(t, gguf, true, true);
}

static const struct {
    const char *name;
    qn_status (*load)(qn_tokenizer *t, const qn_gguf *gguf);
    const char *space; /* what spaces are in normalized text; "": themselves,
                          and marks are no spaces */
} models[] = {
    {"gpt2", load_gpt2, ""},
    {"llama", load_spm, "\xe2\x96\x81"},
    {"gemma4", load_gemma4, "\xe2\x96\x81"},
    {"bert", load_bert, ""},
    {"t5", load_t5, " "},
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
        status = load_tokens(t, gguf, qn_str_of(models[i].space));
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
