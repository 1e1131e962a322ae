/* spm.c: merging by scores.
 *
 * A symbol is known by the offset of its first byte, so the list of symbols
 * needs no texts: a symbol reaches to the next one.  Scores become ranks that
 * order the same way, lowest first, so that the queue is that of bpe.c. */
#include "spm.h"

#include "base/alloc.h"
#include "fallback.h"
#include "heap.h"
#include "marks.h"
#include "symbol.h"
#include "unicode.h"

#include <math.h>

typedef struct spm {
    qn_text_model model;
    uint32_t *ranks; /* by id */
    size_t longest;  /* token, in bytes */
    int32_t unk;
    bool by_words; /* marked words merge one by one (marks.h) */
    int32_t bytes[256];
} spm;

typedef qn_symbol symbol;

#define NO_RANK UINT32_MAX
#define NO_NODE UINT32_MAX
enum { ALIVE = 0, MERGED = -1 };

static void free_model(qn_text_model *model)
{
    spm *m = (spm *)model;
    qn_free(m->ranks);
    qn_free(m);
}

/* Numbers that order as the scores do, the highest first.  Floats of one sign
 * order as their bits. */
static uint32_t rank_of(float score)
{
    uint32_t bits;
    if (isnan(score))
        return NO_RANK;
    score += 0.0f; /* -0 is 0 */
    memcpy(&bits, &score, sizeof bits);
    return bits >> 31 ? bits : ~(bits | UINT32_C(1) << 31);
}

/* The token that is this text, or -1. */
static int32_t find_piece(const spm *m, const qn_vocab *vocab, qn_str text)
{
    if (text.size > m->longest)
        return -1;
    int32_t id = qn_vocab_find_model(vocab, text);
    return id >= 0 && m->ranks[id] != NO_RANK ? id : -1;
}

/* What a word is merged with. */
typedef struct merger {
    const spm *m;
    const qn_vocab *vocab;
    qn_str word;
    symbol *s;
    uint64_t *heap;
    size_t size;
} merger;

static size_t end_of(const merger *g, uint32_t at)
{
    return g->s[at].next == NO_NODE ? g->word.size : g->s[at].next;
}

/* Queues the pair of `at` and the symbol after it. */
static void push_pair(merger *g, uint32_t at)
{
    symbol *s = &g->s[at];
    s->rank = NO_RANK;
    if (s->next == NO_NODE)
        return;
    int32_t id = find_piece(
        g->m, g->vocab, (qn_str){g->word.data + at, end_of(g, s->next) - at});
    if (id < 0)
        return;
    s->rank = g->m->ranks[id];
    qn_heap_push(g->heap, &g->size, (uint64_t)s->rank << 32 | at);
}

/* One symbol for each character. */
static void split_chars(merger *g)
{
    uint32_t before = NO_NODE;
    for (size_t at = 0; at < g->word.size;) {
        uint32_t code;
        size_t next = at + (size_t)qn_uc_next(g->word.data + at, &code);
        g->s[at] =
            (symbol){.id = ALIVE,
                     .prev = before,
                     .next = next < g->word.size ? (uint32_t)next : NO_NODE};
        before = (uint32_t)at;
        at = next;
    }
}

static void merge_all(merger *g)
{
    symbol *s = g->s;
    for (uint32_t at = 0; at != NO_NODE; at = s[at].next)
        push_pair(g, at);
    while (g->size) {
        uint64_t entry = qn_heap_pop(g->heap, &g->size);
        uint32_t at = (uint32_t)entry;
        if (s[at].id == MERGED || s[at].rank != entry >> 32)
            continue;
        uint32_t right = s[at].next;
        s[at].next = s[right].next;
        s[right].id = MERGED;
        if (s[at].next != NO_NODE)
            s[s[at].next].prev = at;
        push_pair(g, at);
        if (s[at].prev != NO_NODE)
            push_pair(g, s[at].prev);
    }
}

static qn_status emit(const merger *g, qn_ids *out)
{
    const spm *m = g->m;
    bool unk_open = false;
    qn_status status = QN_OK;
    for (uint32_t at = 0; !status && at != NO_NODE; at = g->s[at].next) {
        qn_str text = {g->word.data + at, end_of(g, at) - at};
        int32_t id = find_piece(m, g->vocab, text);
        if (id < 0 && !qn_fallback_covers(m->bytes, text)) {
            if (m->unk >= 0 && !unk_open)
                status = qn_ids_add(out, m->unk);
            unk_open = true;
            continue;
        }
        unk_open = false;
        if (id >= 0) {
            status = qn_ids_add(out, id);
            continue;
        }
        for (size_t i = 0; !status && i < text.size; i++)
            status = qn_ids_add(out, m->bytes[(uint8_t)text.data[i]]);
    }
    return status;
}

static qn_status merge_word(const spm *m, const qn_vocab *vocab,
                            qn_scratch *scratch, qn_ids *out, qn_str word)
{
    /* Each merge takes an entry out and puts at most two in. */
    qn_status status = qn_scratch_reserve(scratch, word.size, 2 * word.size);
    if (status)
        return status;
    merger g = {.m = m,
                .vocab = vocab,
                .word = word,
                .s = scratch->symbols,
                .heap = scratch->heap};
    split_chars(&g);
    merge_all(&g);
    return emit(&g, out);
}

static qn_status encode_word(const qn_text_model *model, const qn_vocab *vocab,
                             qn_scratch *scratch, qn_ids *out, qn_str word)
{
    const spm *m = (const spm *)model;
    if (word.size >= NO_NODE / 2)
        return qn_fail(QN_E_ARG, "a word of %zu bytes is too long", word.size);
    const char *p = word.data, *end = p + word.size;
    qn_status status = QN_OK;
    while (!status && p < end) {
        size_t size = m->by_words ? qn_marked_word(p, end) : word.size;
        status = merge_word(m, vocab, scratch, out, (qn_str){p, size});
        p += size;
    }
    return status;
}

/* The mark is a token, and no other one has it behind a character. */
static bool find_marks(const qn_vocab *vocab, const float *scores)
{
    int32_t mark = qn_vocab_find_model(vocab, QN_STR(QN_MARK));
    bool found = mark >= 0 && !isnan(scores[mark]);
    for (size_t id = 0; found && id < vocab->count; id++)
        found = isnan(scores[id]) ||
                !qn_crosses_words(qn_vocab_text(vocab, (int32_t)id));
    return found;
}

qn_status qn_spm_new(qn_text_model **out, const qn_vocab *vocab,
                     const float *scores, int32_t unk)
{
    spm *m = qn_calloc(1, sizeof *m);
    if (!m)
        return QN_E_NOMEM;
    m->model = (qn_text_model){"spm", encode_word, free_model};
    m->unk = unk;
    qn_fallback_find(m->bytes, vocab, true);
    m->ranks = qn_reallocarray(NULL, vocab->count + 1, sizeof *m->ranks);
    if (!m->ranks) {
        qn_free(m);
        return QN_E_NOMEM;
    }
    m->by_words = find_marks(vocab, scores);
    for (size_t id = 0; id < vocab->count; id++) {
        m->ranks[id] = rank_of(scores[id]);
        size_t size = qn_vocab_text(vocab, (int32_t)id).size;
        if (m->ranks[id] != NO_RANK && size > m->longest)
            m->longest = size;
    }
    *out = &m->model;
    return QN_OK;
}
