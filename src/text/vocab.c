/* vocab.c: the vocabulary's storage. */
#include "vocab.h"

#include "base/alloc.h"
#include "base/map.h"

enum { FIRST_SLOTS = 1024, FIRST_TOKENS = 512, FIRST_TEXT = 4096 };

void qn_vocab_free(qn_vocab *vocab)
{
    qn_free(vocab->tokens);
    qn_free(vocab->text);
    qn_free(vocab->slots);
    *vocab = (qn_vocab){0};
}

static uint64_t hash_of(qn_str text)
{
    return qn_hash(text.data, text.size);
}

static uint64_t slot_value(uint64_t hash, int32_t id)
{
    return (hash & ~(uint64_t)UINT32_MAX) | (uint64_t)((uint32_t)id + 1);
}

static int32_t slot_id(uint64_t slot)
{
    return (int32_t)((uint32_t)slot - 1);
}

/* Where the search for a slot begins: by the half of the hash that slots keep,
 * so that a larger table is filled without looking at the texts again. */
static size_t first_slot(uint64_t hash, size_t slot_count)
{
    return (size_t)(hash >> 32) & (slot_count - 1);
}

/* The slot that finds `text`, or the free one where it belongs. */
static uint64_t *find_slot(const qn_vocab *vocab, qn_str text, uint64_t hash)
{
    size_t mask = vocab->slot_count - 1;
    for (size_t i = first_slot(hash, vocab->slot_count);; i = (i + 1) & mask) {
        uint64_t slot = vocab->slots[i];
        if (!slot || (slot >> 32 == hash >> 32 &&
                      qn_str_eq(qn_vocab_text(vocab, slot_id(slot)), text)))
            return &vocab->slots[i];
    }
}

/* Makes room for one more spelling. */
static qn_status grow_slots(qn_vocab *vocab)
{
    if (vocab->slot_count && vocab->used < vocab->slot_count / 2)
        return QN_OK;
    size_t count = vocab->slot_count ? 2 * vocab->slot_count : FIRST_SLOTS;
    uint64_t *slots = qn_calloc(count, sizeof *slots);
    if (!slots)
        return QN_E_NOMEM;
    for (size_t i = 0; i < vocab->slot_count; i++) {
        if (!vocab->slots[i])
            continue;
        size_t at = first_slot(vocab->slots[i], count);
        while (slots[at])
            at = (at + 1) & (count - 1);
        slots[at] = vocab->slots[i];
    }
    qn_free(vocab->slots);
    vocab->slots = slots;
    vocab->slot_count = count;
    return QN_OK;
}

static qn_status grow_tokens(qn_vocab *vocab, size_t count)
{
    if (count > vocab->capacity) {
        size_t capacity = vocab->capacity ? vocab->capacity : FIRST_TOKENS;
        while (capacity < count)
            capacity *= 2;
        qn_vocab_token *tokens =
            qn_reallocarray(vocab->tokens, capacity, sizeof *tokens);
        if (!tokens)
            return QN_E_NOMEM;
        vocab->tokens = tokens;
        vocab->capacity = capacity;
    }
    if (count > vocab->count) {
        memset(vocab->tokens + vocab->count, 0,
               (count - vocab->count) * sizeof *vocab->tokens);
        vocab->count = count;
    }
    return QN_OK;
}

static qn_status grow_text(qn_vocab *vocab, size_t more)
{
    if (more > UINT32_MAX - vocab->text_size)
        return qn_fail(QN_E_FORMAT, "the vocabulary's text exceeds 4 GiB");
    size_t need = vocab->text_size + more;
    if (need <= vocab->text_capacity)
        return QN_OK;
    size_t capacity = vocab->text_capacity ? vocab->text_capacity : FIRST_TEXT;
    while (capacity < need)
        capacity *= 2;
    char *text = qn_realloc(vocab->text, capacity);
    if (!text)
        return QN_E_NOMEM;
    vocab->text = text;
    vocab->text_capacity = capacity;
    return QN_OK;
}

qn_status qn_vocab_add(qn_vocab *vocab, int64_t id, qn_str text, uint8_t flags,
                       bool *again)
{
    if (id < 0 || id >= QN_VOCAB_MAX)
        return qn_fail(QN_E_FORMAT,
                       "expected a token id from 0 to %d, found %lld",
                       QN_VOCAB_MAX - 1, (long long)id);
    if (qn_vocab_has(vocab, id))
        return qn_fail(QN_E_FORMAT, "id %lld has two tokens, '%.*s' and '%.*s'",
                       (long long)id, (int)vocab->tokens[id].size,
                       vocab->text + vocab->tokens[id].offset, (int)text.size,
                       text.data);
    qn_status status = grow_slots(vocab);
    if (!status)
        status = grow_text(vocab, text.size);
    if (!status)
        status = grow_tokens(vocab, (size_t)id + 1);
    if (status)
        return status;

    uint64_t hash = hash_of(text);
    uint64_t *slot = find_slot(vocab, text, hash);
    if (again)
        *again = *slot != 0;
    vocab->has_twins |= *slot != 0;
    vocab->used += !*slot;
    vocab->tokens[id] = (qn_vocab_token){(uint32_t)vocab->text_size,
                                         (uint32_t)text.size, flags};
    if (text.size)
        memcpy(vocab->text + vocab->text_size, text.data, text.size);
    vocab->text_size += text.size;
    *slot = slot_value(hash, (int32_t)id);
    return QN_OK;
}

int32_t qn_vocab_find(const qn_vocab *vocab, qn_str text)
{
    if (!vocab->slot_count)
        return -1;
    uint64_t slot = *find_slot(vocab, text, hash_of(text));
    return slot ? slot_id(slot) : -1;
}

int32_t qn_vocab_find_model(const qn_vocab *vocab, qn_str text)
{
    int32_t id = qn_vocab_find(vocab, text);
    return id >= 0 && vocab->tokens[id].flags & QN_TOKEN_MODEL ? id : -1;
}

int32_t qn_vocab_find_near(const qn_vocab *vocab, qn_str text, int32_t hint)
{
    if (!vocab->has_twins && qn_vocab_has(vocab, hint) &&
        vocab->tokens[hint].flags & QN_TOKEN_MODEL &&
        qn_str_eq(qn_vocab_text(vocab, hint), text))
        return hint;
    return qn_vocab_find_model(vocab, text);
}
