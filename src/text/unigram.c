/* unigram.c: the best path through all tokens that a word contains.
 *
 * For each end in the word, the best sum of scores of tokens that lead there
 * and where the last of them starts; filled from left to right, read from the
 * end.  Sums are doubles (floats for SentencePiece's own files) and a later
 * path replaces an earlier one only if it is better, as in the format's own
 * library, so that near ties agree. */
#include "unigram.h"

#include "base/alloc.h"
#include "fallback.h"
#include "trie.h"
#include "unicode.h"

#include <math.h>

/* An unknown character is this much worse than the worst token. */
static const double unk_penalty = 10.0;

struct qn_unigram {
    qn_text_model model;
    qn_trie trie;
    double *scores; /* by id */
    double unk_score;
    int32_t unk;
    bool narrow;
    int32_t bytes[256]; /* ids of <0xNN>, or -1 */
};

struct qn_path_node {
    double score;
    uint32_t start; /* NO_START: no path leads here */
    int32_t id;
};
typedef struct qn_path_node path_node;

#define NO_START UINT32_MAX

static void free_model(qn_text_model *model)
{
    qn_unigram *u = (qn_unigram *)model;
    qn_trie_free(&u->trie);
    qn_free(u->scores);
    qn_free(u);
}

/* ---- the best path ---- */

static void offer(const qn_unigram *u, path_node *node, double score,
                  size_t start, int32_t id)
{
    if (u->narrow)
        score = (float)score;
    if (node->start == NO_START || score > node->score)
        *node = (path_node){score, (uint32_t)start, id};
}

/* Tokens and the unknown character that start at byte `at`, `length` being
 * that of its character. */
static void extend(const qn_unigram *u, path_node *path, qn_str word, size_t at,
                   size_t length)
{
    double score = path[at].score;
    bool covered = false; /* the character is a token */
    uint32_t node = QN_TRIE_ROOT;
    for (size_t end = at; end < word.size;) {
        node = qn_trie_step(&u->trie, node, (uint8_t)word.data[end++]);
        if (node == QN_TRIE_ROOT)
            break;
        int32_t id = qn_trie_value(&u->trie, node);
        if (id < 0)
            continue;
        offer(u, &path[end], score + u->scores[id], at, id);
        covered |= end - at == length;
    }
    if (!covered)
        offer(u, &path[at + length], score + u->unk_score, at, u->unk);
}

static qn_status find_path(const qn_unigram *u, qn_scratch *scratch,
                           qn_str word)
{
    if (scratch->path_capacity < word.size + 1) {
        path_node *path = qn_reallocarray(NULL, word.size + 1, sizeof *path);
        if (!path)
            return QN_E_NOMEM;
        qn_free(scratch->path);
        scratch->path = path;
        scratch->path_capacity = word.size + 1;
    }
    path_node *path = scratch->path;
    path[0] = (path_node){0, 0, -1};
    for (size_t i = 1; i <= word.size; i++)
        path[i].start = NO_START;
    for (size_t at = 0; at < word.size;) {
        uint32_t code;
        size_t length = (size_t)qn_uc_next(word.data + at, &code);
        extend(u, path, word, at, length);
        at += length;
    }
    return QN_OK;
}

/* ---- ids ---- */

/* A run of unknown characters: a token if it happens to be one, else its
 * bytes, else one unknown token. */
static qn_status add_unknown(const qn_unigram *u, const qn_vocab *vocab,
                             qn_ids *out, qn_str run)
{
    int32_t id = qn_vocab_find_model(vocab, run);
    if (id >= 0)
        return qn_ids_add(out, id);
    if (u->unk < 0)
        return qn_fail(QN_E_ARG,
                       "'%.*s' is not in the vocabulary, which has no token "
                       "for unknown characters",
                       (int)(run.size < 100 ? run.size : 100), run.data);
    if (!qn_fallback_covers(u->bytes, run))
        return qn_ids_add(out, u->unk);
    qn_status status = QN_OK;
    for (size_t i = 0; !status && i < run.size; i++)
        status = qn_ids_add(out, u->bytes[(uint8_t)run.data[i]]);
    return status;
}

/* Turns the list of ends around, so that each node names the next one: path
 * nodes that are on the way, from the start on. */
static void reverse_path(path_node *path, size_t size)
{
    uint32_t end = (uint32_t)size, next = NO_START;
    while (end > 0) {
        uint32_t start = path[end].start;
        path[end].start = next;
        next = end;
        end = start;
    }
    path[0].start = next;
}

static qn_status encode_word(const qn_text_model *model, const qn_vocab *vocab,
                             qn_scratch *scratch, qn_ids *out, qn_str word)
{
    const qn_unigram *u = (const qn_unigram *)model;
    if (word.size >= NO_START)
        return qn_fail(QN_E_ARG, "a word of %zu bytes is too long", word.size);
    qn_status status = find_path(u, scratch, word);
    if (status)
        return status;
    path_node *path = scratch->path;
    reverse_path(path, word.size);
    size_t at = 0;
    while (!status && at < word.size) {
        size_t end = path[at].start;
        int32_t id = path[end].id;
        if (id != u->unk) {
            status = qn_ids_add(out, id);
        } else {
            while (end < word.size && path[path[end].start].id == u->unk)
                end = path[end].start;
            status =
                add_unknown(u, vocab, out, (qn_str){word.data + at, end - at});
        }
        at = end;
    }
    return status;
}

/* ---- building ---- */

static qn_status fill(qn_unigram *u, const qn_vocab *vocab,
                      const double *scores)
{
    double lowest = INFINITY;
    u->scores = qn_reallocarray(NULL, vocab->count + 1, sizeof *u->scores);
    if (!u->scores)
        return QN_E_NOMEM;
    qn_status status = qn_trie_init(&u->trie);
    for (size_t id = 0; !status && id < vocab->count; id++) {
        qn_str token = qn_vocab_text(vocab, (int32_t)id);
        u->scores[id] = scores[id];
        if (!qn_vocab_has(vocab, (int64_t)id) || isnan(scores[id]))
            continue;
        if (scores[id] < lowest)
            lowest = scores[id];
        /* Of two tokens that are written alike the later one is found. */
        if (token.size && qn_vocab_find_model(vocab, token) == (int32_t)id)
            status = qn_trie_add(&u->trie, token, (int32_t)id);
    }
    if (lowest == INFINITY) /* no tokens */
        lowest = 0;
    u->unk_score = lowest - unk_penalty;
    return status;
}

qn_status qn_unigram_new(qn_text_model **out, const qn_vocab *vocab,
                         const double *scores,
                         const qn_unigram_options *options)
{
    qn_unigram *u = qn_calloc(1, sizeof *u);
    if (!u)
        return QN_E_NOMEM;
    u->model = (qn_text_model){"unigram", encode_word, free_model};
    u->unk = options->unk;
    u->narrow = options->narrow;
    qn_fallback_find(u->bytes, vocab, options->byte_fallback);
    qn_status status = fill(u, vocab, scores);
    if (status) {
        free_model(&u->model);
        return status;
    }
    *out = &u->model;
    return QN_OK;
}
