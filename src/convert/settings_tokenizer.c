/* settings_tokenizer.c: tokenizer.json of the keys of a GGUF file.
 *
 * Byte-level BPE has the same parts in both forms.  The tokenizer of Llama 2,
 * which merges by scores, is BPE whose merges are all the ways to make a piece
 * of two others, in the order of the scores, as the original's converter makes
 * them. */
#include "settings.h"

#include "base/alloc.h"
#include "base/map.h"
#include "base/utf8.h"
#include "text/split.h"

#include <stdio.h>
#include <stdlib.h>

#define KEY(name) "tokenizer.ggml." name

enum { UNKNOWN = 2, CONTROL = 3, USER = 4, BYTE = 6 };

typedef struct vocabulary {
    const qn_origin *source;
    const qn_gguf_value *tokens, *types, *scores;
} vocabulary;

static int64_t type_of(const vocabulary *v, size_t id)
{
    return v->types && id < v->types->as.array.count
               ? qn_gguf_array_int(v->types, id)
               : 1;
}

static qn_str text_of(const vocabulary *v, size_t id)
{
    return qn_gguf_array_str(v->tokens, id);
}

/* A token that a key names; -1: none. */
static int64_t named(const vocabulary *v, const char *key)
{
    int64_t id = -1;
    if (qn_gguf_get_int(v->source->gguf, key, &id) || id < 0 ||
        (uint64_t)id >= v->tokens->as.array.count)
        return -1;
    return id;
}

static bool flag(const vocabulary *v, const char *key, bool absent)
{
    bool value = absent;
    return qn_gguf_get_bool(v->source->gguf, key, &value) ? absent : value;
}

static void begin(qn_json_writer *w, const char *type)
{
    qn_json_write_object(w);
    qn_json_pair_text(w, "type", type);
}

/* ---- parts that all kinds have ---- */

static void write_added(qn_json_writer *w, const vocabulary *v)
{
    qn_json_write_key(w, "added_tokens");
    qn_json_write_array(w);
    for (size_t i = 0; i < v->tokens->as.array.count; i++) {
        int64_t type = type_of(v, i);
        if (type != UNKNOWN && type != CONTROL && type != USER)
            continue;
        qn_json_write_object(w);
        qn_json_write_key(w, "id");
        qn_json_write_uint(w, i);
        qn_json_write_key(w, "content");
        qn_json_write_str(w, text_of(v, i));
        qn_json_pair_bool(w, "single_word", false);
        qn_json_pair_bool(w, "lstrip", false);
        qn_json_pair_bool(w, "rstrip", false);
        qn_json_pair_bool(w, "normalized", false);
        qn_json_pair_bool(w, "special", type != USER);
        qn_json_write_object_end(w);
    }
    qn_json_write_array_end(w);
}

static qn_status write_vocab(qn_json_writer *w, const vocabulary *v)
{
    qn_map *seen = qn_map_new(v->tokens->as.array.count);
    qn_status status = seen ? QN_OK : QN_E_NOMEM;
    qn_json_write_key(w, "vocab");
    qn_json_write_object(w);
    for (size_t i = 0; i < v->tokens->as.array.count && !status; i++) {
        bool added;
        qn_str text = text_of(v, i);
        if (!qn_map_put(seen, text, &added))
            status = QN_E_NOMEM;
        else if (!added || memchr(text.data, '\0', text.size))
            status = qn_fail(QN_E_UNSUPPORTED,
                             "token %zu: a text that tokenizer.json can't have "
                             "as a key",
                             i);
        if (status)
            break;
        qn_buf key = QN_BUF_INIT;
        qn_buf_add_str(&key, text);
        qn_json_write_key(w, qn_buf_str(&key).data);
        w->out->failed |= key.failed;
        qn_buf_free(&key);
        qn_json_write_uint(w, i);
    }
    qn_json_write_object_end(w);
    qn_map_free(seen, NULL);
    return status;
}

static void write_piece(qn_json_writer *w, const char *kind, qn_str id)
{
    qn_json_write_object(w);
    qn_json_write_key(w, kind);
    qn_json_write_object(w);
    qn_json_write_key(w, "id");
    qn_json_write_str(w, id);
    qn_json_write_key(w, "type_id");
    qn_json_write_int(w, 0);
    qn_json_write_object_end(w);
    qn_json_write_object_end(w);
}

static void write_frame_list(qn_json_writer *w, const char *key, int texts,
                             qn_str bos, qn_str eos)
{
    static const char *const names[] = {"A", "B"};
    qn_json_write_key(w, key);
    qn_json_write_array(w);
    for (int i = 0; i < texts; i++) {
        if (bos.size)
            write_piece(w, "SpecialToken", bos);
        write_piece(w, "Sequence", qn_str_of(names[i]));
        if (eos.size)
            write_piece(w, "SpecialToken", eos);
    }
    qn_json_write_array_end(w);
}

static void write_frame_token(qn_json_writer *w, qn_str text, int64_t id)
{
    qn_buf key = QN_BUF_INIT;
    qn_buf_add_str(&key, text);
    qn_json_write_key(w, qn_buf_str(&key).data);
    w->out->failed |= key.failed;
    qn_buf_free(&key);
    qn_json_write_object(w);
    qn_json_write_key(w, "id");
    qn_json_write_str(w, text);
    qn_json_write_key(w, "ids");
    qn_json_write_array(w);
    qn_json_write_int(w, id);
    qn_json_write_array_end(w);
    qn_json_write_key(w, "tokens");
    qn_json_write_array(w);
    qn_json_write_str(w, text);
    qn_json_write_array_end(w);
    qn_json_write_object_end(w);
}

/* The begin and end tokens around a text; nothing where there are none. */
static void write_frame(qn_json_writer *w, const vocabulary *v,
                        bool bos_default)
{
    int64_t bos = flag(v, KEY("add_bos_token"), bos_default)
                      ? named(v, KEY("bos_token_id"))
                      : -1;
    int64_t eos = flag(v, KEY("add_eos_token"), false)
                      ? named(v, KEY("eos_token_id"))
                      : -1;
    qn_str begin_text = {"", 0}, end_text = {"", 0};
    qn_json_write_key(w, "post_processor");
    if (bos < 0 && eos < 0) {
        qn_json_write_null(w);
        return;
    }
    if (bos >= 0)
        begin_text = text_of(v, (size_t)bos);
    if (eos >= 0)
        end_text = text_of(v, (size_t)eos);
    begin(w, "TemplateProcessing");
    write_frame_list(w, "single", 1, begin_text, end_text);
    write_frame_list(w, "pair", 2, begin_text, end_text);
    qn_json_write_key(w, "special_tokens");
    qn_json_write_object(w);
    if (bos >= 0)
        write_frame_token(w, begin_text, bos);
    if (eos >= 0 && eos != bos)
        write_frame_token(w, end_text, eos);
    qn_json_write_object_end(w);
    qn_json_write_object_end(w);
}

static void begin_bpe(qn_json_writer *w, const char *unk, bool spm,
                      bool ignore_merges)
{
    qn_json_write_key(w, "model");
    begin(w, "BPE");
    qn_json_write_key(w, "dropout");
    qn_json_write_null(w);
    qn_json_pair_text(w, "unk_token", unk);
    qn_json_write_key(w, "continuing_subword_prefix");
    qn_json_write_null(w);
    qn_json_write_key(w, "end_of_word_suffix");
    qn_json_write_null(w);
    qn_json_pair_bool(w, "fuse_unk", spm);
    qn_json_pair_bool(w, "byte_fallback", spm);
    qn_json_pair_bool(w, "ignore_merges", ignore_merges);
}

/* ---- byte-level BPE ---- */

static void write_byte_level(qn_json_writer *w, bool use_regex)
{
    begin(w, "ByteLevel");
    qn_json_pair_bool(w, "add_prefix_space", false);
    qn_json_pair_bool(w, "trim_offsets", true);
    qn_json_pair_bool(w, "use_regex", use_regex);
    qn_json_write_object_end(w);
}

static void write_split(qn_json_writer *w, const char *regex)
{
    begin(w, "Split");
    qn_json_write_key(w, "pattern");
    qn_json_write_object(w);
    qn_json_pair_text(w, "Regex", regex);
    qn_json_write_object_end(w);
    qn_json_pair_text(w, "behavior", "Isolated");
    qn_json_pair_bool(w, "invert", false);
    qn_json_write_object_end(w);
}

static void write_splitter(qn_json_writer *w, const qn_splitter *splitter)
{
    const qn_split_rule *rule =
        qn_split_rule_named(qn_str_of(splitter->rule_name));
    bool gpt2 = !strcmp(rule->name, "gpt-2");
    bool smollm = !strcmp(rule->name, "smollm");
    qn_json_write_key(w, "pre_tokenizer");
    begin(w, "Sequence");
    qn_json_write_key(w, "pretokenizers");
    qn_json_write_array(w);
    if (smollm) {
        begin(w, "Digits");
        qn_json_pair_bool(w, "individual_digits", true);
        qn_json_write_object_end(w);
    }
    for (int i = 0; i < QN_SPLIT_PATTERNS && !gpt2 && !smollm; i++)
        if (rule->patterns[i])
            write_split(w, rule->patterns[i]);
    write_byte_level(w, gpt2 || smollm);
    qn_json_write_array_end(w);
    qn_json_write_object_end(w);
}

static qn_status write_gpt2(qn_json_writer *w, const vocabulary *v)
{
    qn_str pre = QN_STR("default");
    const qn_gguf_value *merges = qn_gguf_get(v->source->gguf, KEY("merges"));
    qn_gguf_get_str(v->source->gguf, KEY("pre"), &pre);
    const qn_splitter *splitter = qn_splitter_named(pre);
    if (!splitter)
        return qn_fail(QN_E_UNSUPPORTED, "splitter '%.*s' is not supported",
                       (int)(pre.size < 64 ? pre.size : 64), pre.data);
    if (!merges || merges->type != QN_GGUF_ARRAY ||
        merges->as.array.item != QN_GGUF_STRING)
        return qn_fail(QN_E_FORMAT, KEY("merges") ": expected strings");
    qn_json_write_key(w, "normalizer");
    qn_json_write_null(w);
    write_splitter(w, splitter);
    write_frame(w, v, splitter->add_bos);
    qn_json_write_key(w, "decoder");
    write_byte_level(w, true);
    begin_bpe(w, NULL, false, splitter->ignore_merges);
    qn_status status = write_vocab(w, v);
    qn_json_write_key(w, "merges");
    qn_json_write_array(w);
    for (size_t i = 0; i < merges->as.array.count; i++)
        qn_json_write_str(w, qn_gguf_array_str(merges, i));
    qn_json_write_array_end(w);
    qn_json_write_object_end(w);
    return status;
}

/* ---- merging by scores ---- */

typedef struct merge {
    double score;
    uint32_t piece, left, right; /* ids */
    uint32_t left_chars, right_chars;
} merge;

static int compare_merges(const void *a, const void *b)
{
    const merge *x = a, *y = b;
    if (x->score != y->score)
        return x->score > y->score ? -1 : 1;
    if (x->left_chars != y->left_chars)
        return x->left_chars > y->left_chars ? -1 : 1;
    if (x->right_chars != y->right_chars)
        return x->right_chars > y->right_chars ? -1 : 1;
    if (x->piece != y->piece)
        return x->piece < y->piece ? -1 : 1;
    return x->left < y->left ? -1 : x->left > y->left;
}

typedef struct merge_list {
    merge *data;
    size_t count, capacity;
} merge_list;

static bool add_merge(merge_list *list, merge m)
{
    if (list->count == list->capacity) {
        size_t capacity = list->capacity ? 2 * list->capacity : 4096;
        merge *grown = qn_reallocarray(list->data, capacity, sizeof *grown);
        if (!grown)
            return false;
        list->data = grown;
        list->capacity = capacity;
    }
    list->data[list->count++] = m;
    return true;
}

/* All ways to make token `id` of two others. */
static bool split_token(merge_list *list, const vocabulary *v,
                        const qn_map *ids, uint32_t id)
{
    qn_str text = text_of(v, id);
    uint32_t chars = 0, at = 0;
    for (size_t i = 0; i < text.size; i++)
        chars += (text.data[i] & 0xc0) != 0x80;
    for (size_t i = 1; i < text.size; i++) {
        if ((text.data[i] & 0xc0) == 0x80)
            continue;
        at++;
        const qn_map_value *left = qn_map_get(ids, (qn_str){text.data, i});
        const qn_map_value *right =
            qn_map_get(ids, (qn_str){text.data + i, text.size - i});
        if (left && right &&
            !add_merge(list, (merge){qn_gguf_array_float(v->scores, id), id,
                                     (uint32_t)left->u64, (uint32_t)right->u64,
                                     at, chars - at}))
            return false;
    }
    return true;
}

static qn_status list_merges(merge_list *list, const vocabulary *v)
{
    size_t count = v->tokens->as.array.count;
    qn_map *ids = qn_map_new(count);
    qn_status status = ids ? QN_OK : QN_E_NOMEM;
    for (size_t i = 0; i < count && !status; i++) {
        bool added;
        qn_map_value *slot = qn_map_put(ids, text_of(v, i), &added);
        if (!slot)
            status = QN_E_NOMEM;
        else if (added)
            slot->u64 = i;
    }
    for (size_t i = 0; i < count && !status; i++) {
        int64_t type = type_of(v, i);
        if (type != UNKNOWN && type != CONTROL && type != BYTE &&
            !split_token(list, v, ids, (uint32_t)i))
            status = QN_E_NOMEM;
    }
    qn_map_free(ids, NULL);
    if (!status && list->count)
        qsort(list->data, list->count, sizeof *list->data, compare_merges);
    return status;
}

static void write_replace(qn_json_writer *w, const char *from, const char *to)
{
    begin(w, "Replace");
    qn_json_write_key(w, "pattern");
    qn_json_write_object(w);
    qn_json_pair_text(w, "String", from);
    qn_json_write_object_end(w);
    qn_json_pair_text(w, "content", to);
    qn_json_write_object_end(w);
}

#define SPACE "\xe2\x96\x81"

static void write_spm_normalizer(qn_json_writer *w, bool prefix)
{
    qn_json_write_key(w, "normalizer");
    begin(w, "Sequence");
    qn_json_write_key(w, "normalizers");
    qn_json_write_array(w);
    if (prefix) {
        begin(w, "Prepend");
        qn_json_pair_text(w, "prepend", SPACE);
        qn_json_write_object_end(w);
    }
    write_replace(w, " ", SPACE);
    qn_json_write_array_end(w);
    qn_json_write_object_end(w);
    qn_json_write_key(w, "pre_tokenizer");
    qn_json_write_null(w);
}

static void write_spm_decoder(qn_json_writer *w, bool prefix)
{
    qn_json_write_key(w, "decoder");
    begin(w, "Sequence");
    qn_json_write_key(w, "decoders");
    qn_json_write_array(w);
    write_replace(w, SPACE, " ");
    begin(w, "ByteFallback");
    qn_json_write_object_end(w);
    begin(w, "Fuse");
    qn_json_write_object_end(w);
    if (prefix) {
        begin(w, "Strip");
        qn_json_pair_text(w, "content", " ");
        qn_json_write_key(w, "start");
        qn_json_write_int(w, 1);
        qn_json_write_key(w, "stop");
        qn_json_write_int(w, 0);
        qn_json_write_object_end(w);
    }
    qn_json_write_array_end(w);
    qn_json_write_object_end(w);
}

static qn_status write_spm(qn_json_writer *w, const vocabulary *v)
{
    bool prefix = flag(v, KEY("add_space_prefix"),
                       strncmp(v->source->arch, "gemma", 5) != 0);
    int64_t unk = named(v, KEY("unknown_token_id"));
    char unknown[256] = "<unk>";
    if (unk >= 0)
        snprintf(unknown, sizeof unknown, "%.*s",
                 (int)text_of(v, (size_t)unk).size,
                 text_of(v, (size_t)unk).data);
    if (!v->scores || v->scores->type != QN_GGUF_ARRAY ||
        v->scores->as.array.item != QN_GGUF_F32 ||
        v->scores->as.array.count != v->tokens->as.array.count)
        return qn_fail(QN_E_FORMAT,
                       KEY("scores") ": expected a score for each token");
    merge_list list = {NULL, 0, 0};
    qn_status status = list_merges(&list, v);
    write_spm_normalizer(w, prefix);
    write_frame(w, v, true);
    write_spm_decoder(w, prefix);
    begin_bpe(w, unknown, true, false);
    if (!status)
        status = write_vocab(w, v);
    qn_json_write_key(w, "merges");
    qn_json_write_array(w);
    for (size_t i = 0; i < list.count && !status; i++) {
        qn_json_write_array(w);
        qn_json_write_str(w, text_of(v, list.data[i].left));
        qn_json_write_str(w, text_of(v, list.data[i].right));
        qn_json_write_array_end(w);
    }
    qn_json_write_array_end(w);
    qn_json_write_object_end(w);
    qn_free(list.data);
    return status;
}

/* ---- files ---- */

static qn_status write_tokenizer(qn_buf *out, const vocabulary *v)
{
    qn_json_writer w;
    qn_str model = {"", 0};
    qn_gguf_get_str(v->source->gguf, KEY("model"), &model);
    qn_json_write_begin(&w, out);
    qn_json_write_object(&w);
    qn_json_pair_text(&w, "version", "1.0");
    qn_json_write_key(&w, "truncation");
    qn_json_write_null(&w);
    qn_json_write_key(&w, "padding");
    qn_json_write_null(&w);
    write_added(&w, v);
    qn_status status =
        qn_str_is(model, "gpt2") ? write_gpt2(&w, v)
        : qn_str_is(model, "llama")
            ? write_spm(&w, v)
            : qn_fail(QN_E_UNSUPPORTED,
                      "a tokenizer.json of kind '%.*s' "
                      "can't be made",
                      (int)(model.size < 64 ? model.size : 64), model.data);
    if (status)
        return status;
    qn_json_write_object_end(&w);
    return qn_buf_status(out);
}

static qn_status write_tokenizer_config(qn_buf *out, const vocabulary *v)
{
    static const struct {
        const char *gguf, *key;
    } names[] = {
        {KEY("bos_token_id"), "bos_token"},
        {KEY("eos_token_id"), "eos_token"},
        {KEY("unknown_token_id"), "unk_token"},
        {KEY("padding_token_id"), "pad_token"},
    };
    qn_json_writer w;
    qn_str text;
    qn_json_write_begin(&w, out);
    qn_json_write_object(&w);
    qn_json_pair_text(&w, "tokenizer_class", "PreTrainedTokenizerFast");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        int64_t id = named(v, names[i].gguf);
        if (id < 0)
            continue;
        qn_json_write_key(&w, names[i].key);
        qn_json_write_str(&w, text_of(v, (size_t)id));
    }
    if (!qn_gguf_get_str(v->source->gguf, "tokenizer.chat_template", &text)) {
        qn_json_write_key(&w, "chat_template");
        qn_json_write_str(&w, text);
    }
    qn_json_write_object_end(&w);
    return qn_buf_status(out);
}

static qn_status write_file(const char *dir, const char *name,
                            const qn_buf *text)
{
    char *path = qn_path_join(dir, name);
    qn_status status =
        path ? qn_file_write_atomic(path, text->data, text->size) : QN_E_NOMEM;
    qn_free(path);
    return status;
}

static const qn_gguf_value *array_of(const qn_origin *s, const char *key,
                                     bool texts)
{
    const qn_gguf_value *value = qn_gguf_get(s->gguf, key);
    bool good = value && value->type == QN_GGUF_ARRAY &&
                (value->as.array.item == QN_GGUF_STRING) == texts;
    return good ? value : NULL;
}

qn_status qn_settings_tokenizer(const qn_origin *s, const char *dir)
{
    vocabulary v = {s, array_of(s, KEY("tokens"), true),
                    array_of(s, KEY("token_type"), false),
                    array_of(s, KEY("scores"), false)};
    if (!v.tokens)
        return qn_fail(QN_E_FORMAT, "%s: " KEY("tokens") ": expected strings",
                       s->path);
    qn_buf json = QN_BUF_INIT, config = QN_BUF_INIT;
    qn_status status = write_tokenizer(&json, &v);
    if (!status)
        status = write_file(dir, "tokenizer.json", &json);
    qn_buf_free(&json);
    if (!status)
        status = write_tokenizer_config(&config, &v);
    if (!status)
        status = write_file(dir, "tokenizer_config.json", &config);
    qn_buf_free(&config);
    return status ? qn_fail_where(status, "%s", s->path) : QN_OK;
}
