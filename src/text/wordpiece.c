/* wordpiece.c: greedy matching over two trees of tokens: those that may begin
 * a word, and those that may continue one (without their prefix). */
#include "wordpiece.h"

#include "base/alloc.h"
#include "trie.h"
#include "unicode.h"

typedef struct wordpiece {
    qn_text_model model;
    qn_trie first, rest;
    int32_t unk;
    size_t max_chars;
} wordpiece;

static void free_model(qn_text_model *model)
{
    wordpiece *w = (wordpiece *)model;
    qn_trie_free(&w->first);
    qn_trie_free(&w->rest);
    qn_free(w);
}

static qn_status add_unknown(int32_t unk, qn_ids *out, qn_str word)
{
    if (unk >= 0)
        return qn_ids_add(out, unk);
    return qn_fail(QN_E_ARG,
                   "'%.*s' is not in the vocabulary, which has no token for "
                   "unknown words",
                   (int)(word.size < 100 ? word.size : 100), word.data);
}

/* The longest token that p begins with; *size is its length. */
static int32_t longest(const qn_trie *trie, const char *p, const char *end,
                       size_t *size)
{
    int32_t found = -1;
    uint32_t node = QN_TRIE_ROOT;
    for (const char *q = p; q < end;) {
        node = qn_trie_step(trie, node, (uint8_t)*q++);
        if (node == QN_TRIE_ROOT)
            break;
        int32_t id = qn_trie_value(trie, node);
        if (id >= 0) {
            found = id;
            *size = (size_t)(q - p);
        }
    }
    return found;
}

static bool has_more_chars(qn_str word, size_t limit)
{
    if (word.size <= limit)
        return false;
    size_t count = 0;
    for (size_t i = 0; i < word.size && count <= limit; i++)
        count += ((uint8_t)word.data[i] & 0xc0) != 0x80;
    return count > limit;
}

static qn_status encode_pieces(const qn_text_model *model,
                               const qn_vocab *vocab, qn_scratch *scratch,
                               qn_ids *out, qn_str word)
{
    (void)vocab;
    (void)scratch;
    const wordpiece *w = (const wordpiece *)model;
    if (has_more_chars(word, w->max_chars))
        return add_unknown(w->unk, out, word);
    size_t before = out->size;
    const char *p = word.data, *end = p + word.size;
    while (p < end) {
        size_t size = 0;
        int32_t id =
            longest(p == word.data ? &w->first : &w->rest, p, end, &size);
        if (id < 0) {
            out->size = before;
            return add_unknown(w->unk, out, word);
        }
        qn_status status = qn_ids_add(out, id);
        if (status)
            return status;
        p += size;
    }
    return QN_OK;
}

static qn_status encode_whole(const qn_text_model *model, const qn_vocab *vocab,
                              qn_scratch *scratch, qn_ids *out, qn_str word)
{
    (void)scratch;
    int32_t id = qn_vocab_find_model(vocab, word);
    return id >= 0 ? qn_ids_add(out, id)
                   : add_unknown(((const wordpiece *)model)->unk, out, word);
}

static bool starts_with(qn_str text, qn_str prefix)
{
    return text.size >= prefix.size &&
           !memcmp(text.data, prefix.data, prefix.size);
}

/* A token in the tree or trees where it can match. */
static qn_status add_token(wordpiece *w, const qn_wordpiece_options *options,
                           qn_str token, int32_t id)
{
    qn_str tail = token;
    if (starts_with(token, options->prefix)) {
        tail.data += options->prefix.size;
        tail.size -= options->prefix.size;
        /* The empty continuation would never end. */
        if (tail.size) {
            qn_status status = qn_trie_add(
                options->marks_start ? &w->first : &w->rest, tail, id);
            if (status)
                return status;
        }
        if (options->marks_start)
            return QN_OK;
    }
    return qn_trie_add(options->marks_start ? &w->rest : &w->first, token, id);
}

static qn_status fill(wordpiece *w, const qn_vocab *vocab,
                      const qn_wordpiece_options *options)
{
    qn_status status = qn_trie_init(&w->first);
    if (!status)
        status = qn_trie_init(&w->rest);
    for (size_t id = 0; !status && id < vocab->count; id++) {
        qn_str token = qn_vocab_text(vocab, (int32_t)id);
        /* Of two tokens that are written alike the later one is found. */
        if (token.size && qn_vocab_find_model(vocab, token) == (int32_t)id)
            status = add_token(w, options, token, (int32_t)id);
    }
    return status;
}

qn_status qn_wordpiece_new(qn_text_model **out, const qn_vocab *vocab,
                           const qn_wordpiece_options *options)
{
    wordpiece *w = qn_calloc(1, sizeof *w);
    if (!w)
        return QN_E_NOMEM;
    w->model = (qn_text_model){"wordpiece", encode_pieces, free_model};
    w->unk = options->unk;
    w->max_chars = options->max_chars;
    qn_status status = QN_OK;
    if (options->words_only) {
        w->model.kind = "wordlevel";
        w->model.encode = encode_whole;
    } else {
        status = fill(w, vocab, options);
    }
    if (status) {
        free_model(&w->model);
        return status;
    }
    *out = &w->model;
    return QN_OK;
}
