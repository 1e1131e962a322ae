/* bpe.c: byte-pair encoding.
 *
 * A word starts as one symbol for each byte or character; then the adjacent
 * pair with the lowest rank (the leftmost of equals) becomes one symbol, until
 * no pair is in the merge table.  Short words, nearly all there are, look for
 * the lowest rank by scanning an array; longer ones keep the pairs in a heap
 * over a linked list, so a word of n symbols takes O(n log n) steps.
 *
 * The merge table is open-addressed: (left id, right id) -> (rank, new id).
 * Ids come from the file, so the hash is seeded. */
#include "bpe.h"

#include "base/alloc.h"
#include "base/map.h"
#include "fallback.h"
#include "heap.h"
#include "marks.h"
#include "symbol.h"
#include "unicode.h"

enum {
    SHORT_WORD = 32, /* symbols up to which scanning is faster */
    NO_SYMBOL = -1
};
#define NO_RANK UINT32_MAX
#define NO_NODE UINT32_MAX

typedef struct merge {
    int32_t left, right; /* left < 0: the slot is free */
    uint32_t rank;
    int32_t id;
} merge;

struct qn_bpe {
    qn_text_model model;
    bool byte_level, fuse_unk, ignore_merges;
    int32_t unk;
    /* Ids of bytes: their spelling (byte_level), or <0xNN> (byte_fallback);
     * -1 where there is none. */
    int32_t bytes[256];
    bool has_bytes;
    bool by_words;      /* marked words merge one by one (marks.h) */
    int32_t ascii[128]; /* ids of ASCII characters without affixes */
    qn_buf prefix, suffix;
    merge *list; /* in order of rank, until qn_bpe_finish */
    size_t list_count, list_capacity;
    merge *table;
    size_t mask; /* slots - 1, a power of two less one */
    uint64_t seed;
};

/* ---- byte-level spelling ---- */

/* Bytes that are printable in Latin-1 spell themselves; the others take the
 * code points from U+0100 on, in order. */
static bool spells_itself(unsigned byte)
{
    return (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) ||
           byte >= 0xae;
}

int qn_bytelevel_spell(uint8_t byte, char out[2])
{
    unsigned code = byte;
    if (!spells_itself(byte)) {
        /* 0..32 come first, then 127..160, then 173. */
        code = 0x100u + (byte <= 0x20   ? byte
                         : byte <= 0xa0 ? byte - 0x7fu + 33
                                        : 67u);
    }
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    out[0] = (char)(0xc0 | code >> 6);
    out[1] = (char)(0x80 | (code & 0x3f));
    return 2;
}

/* The byte that `code` spells, or -1. */
static int spelled_byte(uint32_t code)
{
    if (code < 0x100)
        return spells_itself(code) ? (int)code : -1;
    code -= 0x100;
    if (code <= 0x20)
        return (int)code;
    if (code <= 66)
        return (int)(code - 33 + 0x7f);
    return code == 67 ? 0xad : -1;
}

bool qn_bytelevel_unspell(qn_buf *out, qn_str spelling)
{
    size_t before = out->size;
    const char *p = spelling.data, *end = p + spelling.size;
    while (p < end) {
        uint32_t code;
        p += qn_uc_next(p, &code);
        int byte = spelled_byte(code);
        if (byte < 0) {
            qn_buf_truncate(out, before);
            return false;
        }
        qn_buf_add_char(out, (char)byte);
    }
    return true;
}

/* ---- the merge table ---- */

static size_t merge_slot(const qn_bpe *bpe, int32_t left, int32_t right)
{
    uint64_t x = ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) ^ bpe->seed;
    x *= UINT64_C(0x9e3779b97f4a7c15);
    x ^= x >> 32;
    x *= UINT64_C(0xd6e8feb86659fd93);
    return (size_t)(x >> 32) & bpe->mask;
}

/* The slot of the pair, or the free one where it belongs. */
static merge *find_merge(const qn_bpe *bpe, int32_t left, int32_t right)
{
    size_t i = merge_slot(bpe, left, right);
    while (bpe->table[i].left >= 0 &&
           (bpe->table[i].left != left || bpe->table[i].right != right))
        i = (i + 1) & bpe->mask;
    return &bpe->table[i];
}

/* Rank of the pair and, in *id, what it becomes. */
static uint32_t pair_rank(const qn_bpe *bpe, int32_t left, int32_t right,
                          int32_t *id)
{
    const merge *m = find_merge(bpe, left, right);
    if (m->left < 0)
        return NO_RANK;
    *id = m->id;
    return m->rank;
}

/* ---- building ---- */

qn_text_model *qn_bpe_model(qn_bpe *bpe)
{
    return &bpe->model;
}

void qn_bpe_free(qn_bpe *bpe)
{
    if (!bpe)
        return;
    qn_free(bpe->list);
    qn_free(bpe->table);
    qn_buf_free(&bpe->prefix);
    qn_buf_free(&bpe->suffix);
    qn_free(bpe);
}

static void free_model(qn_text_model *model)
{
    qn_bpe_free((qn_bpe *)model);
}

static qn_status encode_word(const qn_text_model *model, const qn_vocab *vocab,
                             qn_scratch *scratch, qn_ids *out, qn_str word);

static void find_bytes(qn_bpe *bpe, const qn_vocab *vocab,
                       const qn_bpe_options *options)
{
    bpe->has_bytes = options->byte_fallback && !options->byte_level;
    qn_fallback_find(bpe->bytes, vocab, bpe->has_bytes);
    for (unsigned byte = 0; options->byte_level && byte < 256; byte++) {
        char text[2];
        int size = qn_bytelevel_spell((uint8_t)byte, text);
        bpe->bytes[byte] =
            qn_vocab_find_model(vocab, (qn_str){text, (size_t)size});
    }
}

qn_status qn_bpe_new(qn_bpe **out, const qn_vocab *vocab,
                     const qn_bpe_options *options)
{
    /* The symbols of a word would not be bounded by its bytes. */
    if (options->byte_fallback &&
        (options->prefix.size || options->suffix.size))
        return qn_fail(QN_E_UNSUPPORTED,
                       "byte_fallback with a subword prefix or a word suffix "
                       "is not supported");
    qn_bpe *bpe = qn_calloc(1, sizeof *bpe);
    if (!bpe)
        return QN_E_NOMEM;
    bpe->model = (qn_text_model){"bpe", encode_word, free_model};
    bpe->byte_level = options->byte_level;
    bpe->fuse_unk = options->fuse_unk;
    bpe->ignore_merges = options->ignore_merges;
    bpe->unk = options->unk;
    bpe->seed = qn_hash("merges", 6);
    find_bytes(bpe, vocab, options);
    for (int c = 0; c < 128; c++) {
        char text = (char)c;
        bpe->ascii[c] = qn_vocab_find_model(vocab, (qn_str){&text, 1});
    }
    qn_buf_add_str(&bpe->prefix, options->prefix);
    qn_buf_add_str(&bpe->suffix, options->suffix);
    /* Until a merge shows otherwise.  An unknown mark may be part of a run. */
    bpe->by_words = !options->byte_level && !options->ignore_merges &&
                    !options->prefix.size && !options->suffix.size &&
                    qn_vocab_find_model(vocab, QN_STR(QN_MARK)) >= 0;
    qn_status status = qn_buf_status(&bpe->prefix);
    if (!status)
        status = qn_buf_status(&bpe->suffix);
    if (status) {
        qn_bpe_free(bpe);
        return status;
    }
    *out = bpe;
    return QN_OK;
}

static qn_status append_merge(qn_bpe *bpe, merge m)
{
    if (bpe->list_count == bpe->list_capacity) {
        size_t capacity = bpe->list_capacity ? 2 * bpe->list_capacity : 1024;
        merge *list = qn_reallocarray(bpe->list, capacity, sizeof *list);
        if (!list)
            return QN_E_NOMEM;
        bpe->list = list;
        bpe->list_capacity = capacity;
    }
    m.rank = (uint32_t)bpe->list_count;
    bpe->list[bpe->list_count++] = m;
    return QN_OK;
}

static qn_status unknown_token(qn_str token)
{
    return qn_fail(QN_E_FORMAT,
                   "merge of '%.*s', which is not in the "
                   "vocabulary",
                   (int)(token.size < 200 ? token.size : 200), token.data);
}

qn_status qn_bpe_add_merge(qn_bpe *bpe, const qn_vocab *vocab, qn_str left,
                           qn_str right)
{
    if (bpe->list_count == NO_RANK - 1)
        return qn_fail(QN_E_FORMAT, "too many merges");
    merge m = {.left = qn_vocab_find_model(vocab, left),
               .right = qn_vocab_find_model(vocab, right)};
    if (m.left < 0)
        return unknown_token(left);
    if (m.right < 0)
        return unknown_token(right);
    /* The right one loses the prefix that says "inside a word". */
    qn_str prefix = qn_buf_str(&bpe->prefix);
    qn_str tail = right;
    if (prefix.size && tail.size >= prefix.size) {
        tail.data += prefix.size;
        tail.size -= prefix.size;
    }
    char small[256];
    qn_buf large = QN_BUF_INIT;
    qn_str joined = {small, left.size + tail.size};
    if (joined.size <= sizeof small) {
        memcpy(small, left.data, left.size);
        memcpy(small + left.size, tail.data, tail.size);
    } else {
        qn_buf_add_str(&large, left);
        qn_buf_add_str(&large, tail);
        joined = qn_buf_str(&large);
    }
    qn_status status = qn_buf_status(&large);
    if (!status) {
        /* Most vocabularies have tokens in the order of their merges. */
        int32_t hint =
            bpe->list_count ? bpe->list[bpe->list_count - 1].id + 1 : -1;
        m.id = qn_vocab_find_near(vocab, joined, hint);
        bpe->by_words = bpe->by_words && !qn_crosses_words(joined);
        status = m.id < 0 ? unknown_token(joined) : append_merge(bpe, m);
    }
    qn_buf_free(&large);
    return status;
}

qn_status qn_bpe_add_merge_line(qn_bpe *bpe, const qn_vocab *vocab, qn_str line)
{
    const char *space = line.size ? memchr(line.data, ' ', line.size) : NULL;
    size_t left = space ? (size_t)(space - line.data) : 0;
    if (!space || memchr(space + 1, ' ', line.size - left - 1))
        return qn_fail(QN_E_FORMAT,
                       "expected two tokens and one space, found '%.*s'",
                       (int)(line.size < 200 ? line.size : 200), line.data);
    return qn_bpe_add_merge(bpe, vocab, (qn_str){line.data, left},
                            (qn_str){space + 1, line.size - left - 1});
}

qn_status qn_bpe_finish(qn_bpe *bpe)
{
    size_t slots = 16;
    while (slots < 2 * bpe->list_count)
        slots *= 2;
    bpe->table = qn_reallocarray(NULL, slots, sizeof *bpe->table);
    if (!bpe->table)
        return QN_E_NOMEM;
    bpe->mask = slots - 1;
    for (size_t i = 0; i < slots; i++)
        bpe->table[i].left = -1;
    /* A pair that is listed twice has its later rank. */
    for (size_t i = 0; i < bpe->list_count; i++)
        *find_merge(bpe, bpe->list[i].left, bpe->list[i].right) = bpe->list[i];
    qn_free(bpe->list);
    bpe->list = NULL;
    bpe->list_count = bpe->list_capacity = 0;
    return QN_OK;
}

/* ---- symbols ---- */

typedef qn_symbol symbol;

/* The symbols of the word before any merge. */
typedef struct symbols {
    symbol *data;
    size_t count;
    bool unk_open; /* the last symbol is an unknown one that may grow */
} symbols;

static void add_symbol(symbols *s, int32_t id)
{
    s->data[s->count++].id = id;
    s->unk_open = false;
}

static void add_unknown(const qn_bpe *bpe, symbols *s)
{
    if (bpe->unk < 0 || (s->unk_open && bpe->fuse_unk))
        return;
    add_symbol(s, bpe->unk);
    s->unk_open = true;
}

/* The bytes of a character that is not in the vocabulary. */
static void add_fallback(const qn_bpe *bpe, symbols *s, qn_str text)
{
    if (!bpe->has_bytes || !qn_fallback_covers(bpe->bytes, text)) {
        add_unknown(bpe, s);
        return;
    }
    for (size_t i = 0; i < text.size; i++)
        add_symbol(s, bpe->bytes[(uint8_t)text.data[i]]);
}

/* One character with the affixes that its place asks for. */
static qn_str with_affixes(const qn_bpe *bpe, qn_buf *buf, qn_str c, bool first,
                           bool last)
{
    bool prefix = !first && bpe->prefix.size, suffix = last && bpe->suffix.size;
    if (!prefix && !suffix)
        return c;
    qn_buf_clear(buf);
    if (prefix)
        qn_buf_add_str(buf, qn_buf_str(&bpe->prefix));
    qn_buf_add_str(buf, c);
    if (suffix)
        qn_buf_add_str(buf, qn_buf_str(&bpe->suffix));
    return qn_buf_str(buf);
}

/* Each byte is a symbol, whose spelling takes affixes. */
static qn_status split_bytes(const qn_bpe *bpe, const qn_vocab *vocab,
                             qn_buf *buf, symbols *s, qn_str word)
{
    bool plain = !bpe->prefix.size && !bpe->suffix.size;
    for (size_t i = 0; i < word.size; i++) {
        uint8_t byte = (uint8_t)word.data[i];
        int32_t id = bpe->bytes[byte];
        if (!plain) {
            char text[2];
            int size = qn_bytelevel_spell(byte, text);
            qn_str spelled = {text, (size_t)size};
            id = qn_vocab_find_model(
                vocab, with_affixes(bpe, buf, spelled, !i, i + 1 == word.size));
        }
        if (id >= 0)
            add_symbol(s, id);
        else
            add_unknown(bpe, s);
    }
    return qn_buf_status(buf);
}

static qn_status split_chars(const qn_bpe *bpe, const qn_vocab *vocab,
                             qn_buf *buf, symbols *s, qn_str word)
{
    bool plain = !bpe->prefix.size && !bpe->suffix.size;
    const char *p = word.data, *end = p + word.size;
    while (p < end) {
        uint32_t code;
        int length = qn_uc_next(p, &code);
        qn_str text = {p, (size_t)length};
        int32_t id;
        if (plain && code < 128) {
            id = bpe->ascii[code];
        } else {
            text =
                with_affixes(bpe, buf, text, p == word.data, p + length == end);
            id = qn_vocab_find_model(vocab, text);
        }
        if (id >= 0)
            add_symbol(s, id);
        else
            add_fallback(bpe, s, text);
        p += length;
    }
    return qn_buf_status(buf);
}

/* ---- merging ---- */

static qn_status emit(qn_ids *out, const symbol *s, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (s[i].id == NO_SYMBOL)
            continue;
        qn_status status = qn_ids_add(out, s[i].id);
        if (status)
            return status;
    }
    return QN_OK;
}

/* Few symbols, packed: scan for the lowest rank. */
static qn_status merge_short(const qn_bpe *bpe, qn_ids *out, const symbol *s,
                             size_t count)
{
    int32_t ids[SHORT_WORD], joined[SHORT_WORD];
    uint32_t ranks[SHORT_WORD];
    for (size_t i = 0; i < count; i++)
        ids[i] = s[i].id;
    for (size_t i = 0; i < count; i++) {
        ranks[i] = NO_RANK;
        joined[i] = NO_SYMBOL;
        if (i + 1 < count)
            ranks[i] = pair_rank(bpe, ids[i], ids[i + 1], &joined[i]);
    }
    while (count > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < count; i++) {
            if (ranks[i] < ranks[best])
                best = i;
        }
        if (ranks[best] == NO_RANK)
            break;
        ids[best] = joined[best];
        count--;
        for (size_t i = best + 1; i < count; i++) {
            ids[i] = ids[i + 1];
            ranks[i] = ranks[i + 1];
            joined[i] = joined[i + 1];
        }
        if (best > 0)
            ranks[best - 1] =
                pair_rank(bpe, ids[best - 1], ids[best], &joined[best - 1]);
        if (best + 1 < count)
            ranks[best] =
                pair_rank(bpe, ids[best], ids[best + 1], &joined[best]);
    }
    for (size_t i = 0; i < count; i++) {
        qn_status status = qn_ids_add(out, ids[i]);
        if (status)
            return status;
    }
    return QN_OK;
}

static void push_pair(const qn_bpe *bpe, symbol *s, uint32_t at, uint64_t *heap,
                      size_t *size)
{
    int32_t id;
    s[at].rank = s[at].next == NO_NODE
                     ? NO_RANK
                     : pair_rank(bpe, s[at].id, s[s[at].next].id, &id);
    if (s[at].rank != NO_RANK)
        qn_heap_push(heap, size, (uint64_t)s[at].rank << 32 | at);
}

static qn_status merge_long(const qn_bpe *bpe, qn_scratch *scratch, qn_ids *out,
                            size_t count)
{
    /* Each merge takes an entry out and puts at most two in, and there are
     * fewer merges than symbols: 2 * count entries are enough. */
    qn_status status = qn_scratch_reserve(scratch, 0, 2 * count);
    if (status)
        return status;
    symbol *s = scratch->symbols;
    uint64_t *heap = scratch->heap;
    size_t size = 0;
    for (size_t i = 0; i < count; i++) {
        s[i].prev = i ? (uint32_t)i - 1 : NO_NODE;
        s[i].next = i + 1 < count ? (uint32_t)i + 1 : NO_NODE;
    }
    for (size_t i = 0; i < count; i++)
        push_pair(bpe, s, (uint32_t)i, heap, &size);
    while (size) {
        uint64_t entry = qn_heap_pop(heap, &size);
        uint32_t at = (uint32_t)entry;
        if (s[at].id == NO_SYMBOL || s[at].rank != entry >> 32)
            continue;
        uint32_t right = s[at].next;
        pair_rank(bpe, s[at].id, s[right].id, &s[at].id);
        s[at].next = s[right].next;
        s[right].id = NO_SYMBOL;
        if (s[at].next != NO_NODE)
            s[s[at].next].prev = at;
        push_pair(bpe, s, at, heap, &size);
        if (s[at].prev != NO_NODE)
            push_pair(bpe, s, s[at].prev, heap, &size);
    }
    return emit(out, s, count);
}

/* ---- a word ---- */

/* The token that is the whole word, or -1. */
static int32_t whole_word(const qn_bpe *bpe, const qn_vocab *vocab, qn_buf *buf,
                          qn_str word)
{
    if (!bpe->byte_level)
        return qn_vocab_find_model(vocab, word);
    qn_buf_clear(buf);
    for (size_t i = 0; i < word.size; i++) {
        char text[2];
        int size = qn_bytelevel_spell((uint8_t)word.data[i], text);
        qn_buf_add(buf, text, (size_t)size);
    }
    return buf->failed ? -1 : qn_vocab_find_model(vocab, qn_buf_str(buf));
}

static qn_status merge_word(const qn_bpe *bpe, const qn_vocab *vocab,
                            qn_scratch *scratch, qn_ids *out, qn_str word)
{
    if (bpe->ignore_merges) {
        int32_t id = whole_word(bpe, vocab, &scratch->text, word);
        if (scratch->text.failed)
            return QN_E_NOMEM;
        if (id >= 0)
            return qn_ids_add(out, id);
    }
    qn_status status = qn_scratch_reserve(scratch, word.size, 0);
    if (status)
        return status;
    symbols s = {.data = scratch->symbols};
    status = bpe->byte_level
                 ? split_bytes(bpe, vocab, &scratch->text, &s, word)
                 : split_chars(bpe, vocab, &scratch->text, &s, word);
    if (status)
        return status;
    if (s.count <= SHORT_WORD)
        return merge_short(bpe, out, s.data, s.count);
    return merge_long(bpe, scratch, out, s.count);
}

static qn_status encode_word(const qn_text_model *model, const qn_vocab *vocab,
                             qn_scratch *scratch, qn_ids *out, qn_str word)
{
    const qn_bpe *bpe = (const qn_bpe *)model;
    if (word.size >= NO_NODE / 2)
        return qn_fail(QN_E_ARG, "a word of %zu bytes is too long", word.size);
    if (!bpe->by_words)
        return merge_word(bpe, vocab, scratch, out, word);
    const char *p = word.data, *end = p + word.size;
    qn_status status = QN_OK;
    while (!status && p < end) {
        size_t size = qn_marked_word(p, end);
        status = merge_word(bpe, vocab, scratch, out, (qn_str){p, size});
        p += size;
    }
    return status;
}
