/* tokenizer.c: running a tokenizer: text -> ids through the pipeline of
 * tokenizer.h, ids -> text through the decoder, and what is known of single
 * tokens. */
#include "tokenizer_impl.h"

#include "base/alloc.h"
#include "base/utf8.h"
#include "unicode.h"

/* ---- lists of ids ---- */

void qn_ids_free(qn_ids *ids)
{
    qn_free(ids->data);
    *ids = (qn_ids){0};
}

qn_status qn_ids_add(qn_ids *ids, int32_t id)
{
    if (ids->size == ids->capacity) {
        size_t capacity = ids->capacity ? 2 * ids->capacity : 32;
        int32_t *data = qn_reallocarray(ids->data, capacity, sizeof *data);
        if (!data)
            return QN_E_NOMEM;
        ids->data = data;
        ids->capacity = capacity;
    }
    ids->data[ids->size++] = id;
    return QN_OK;
}

static qn_status add_all(qn_ids *out, const qn_ids *ids)
{
    for (size_t i = 0; i < ids->size; i++) {
        qn_status status = qn_ids_add(out, ids->data[i]);
        if (status)
            return status;
    }
    return QN_OK;
}

/* ---- life ---- */

qn_tokenizer *qn_tokenizer_new(void)
{
    qn_uc_init();
    qn_tokenizer *t = qn_calloc(1, sizeof *t);
    if (t)
        t->bos = t->eos = t->unk = t->pad = -1;
    return t;
}

void qn_tokenizer_free(qn_tokenizer *tokenizer)
{
    if (!tokenizer)
        return;
    qn_vocab_free(&tokenizer->vocab);
    qn_added_free(&tokenizer->raw);
    qn_added_free(&tokenizer->normalized);
    qn_normalizer_free(tokenizer->normalizer);
    qn_pretok_free(tokenizer->pretok);
    if (tokenizer->model)
        tokenizer->model->free(tokenizer->model);
    qn_decoder_free(tokenizer->decoder);
    qn_ids_free(&tokenizer->before);
    qn_ids_free(&tokenizer->after);
    qn_ids_free(&tokenizer->end_ids);
    qn_free(tokenizer);
}

qn_status qn_tokenizer_set_bos(qn_tokenizer *t, bool add)
{
    qn_ids *ids = &t->before;
    bool has = ids->size && ids->data[0] == t->bos;
    if (t->bos < 0 || has == add)
        return QN_OK;
    if (!add) {
        ids->size--;
        memmove(ids->data, ids->data + 1, ids->size * sizeof *ids->data);
        return QN_OK;
    }
    qn_status status = qn_ids_add(ids, t->bos);
    if (status)
        return status;
    memmove(ids->data + 1, ids->data, (ids->size - 1) * sizeof *ids->data);
    ids->data[0] = t->bos;
    return QN_OK;
}

qn_status qn_tokenizer_set_eos(qn_tokenizer *t, bool add)
{
    qn_ids *ids = &t->after;
    bool has = ids->size && ids->data[ids->size - 1] == t->eos;
    if (t->eos < 0 || has == add)
        return QN_OK;
    if (add)
        return qn_ids_add(ids, t->eos);
    ids->size--;
    return QN_OK;
}

/* ---- encoding ---- */

typedef struct encoder {
    const qn_tokenizer *t;
    qn_ids *out;
    bool special; /* special added tokens may match */
    qn_norm_text norm;
    qn_words words;
    qn_scratch scratch;
} encoder;

/* Text in which no added token is left. */
static qn_status encode_plain(encoder *e, qn_str text, bool at_start)
{
    qn_status status = qn_pretok_run(e->t->pretok, &e->words, text, at_start);
    for (size_t i = 0; !status && i < e->words.list.size; i++) {
        qn_word word = e->words.list.data[i];
        status = e->t->model->encode(
            e->t->model, &e->t->vocab, &e->scratch, e->out,
            (qn_str){e->words.text.data + word.begin, word.end - word.begin});
    }
    return status;
}

typedef qn_status (*encode_part)(encoder *e, qn_str text, const char *marks,
                                 bool at_start);

/* Ids of the tokens of `set`, and between them what `part` makes of the
 * text.  `marks` (may be NULL): one byte for each of text, 1 = tainted. */
static qn_status encode_around(encoder *e, const qn_added_set *set,
                               encode_part part, qn_str text, const char *marks,
                               bool at_start)
{
    size_t at = 0;
    qn_added_match match;
    while (qn_added_find(set, text, at, e->special, marks, &match)) {
        qn_status status = QN_OK;
        if (match.begin > at)
            status = part(e, (qn_str){text.data + at, match.begin - at},
                          marks ? marks + at : NULL, at_start && !at);
        if (!status)
            status = qn_ids_add(e->out, match.id);
        if (status)
            return status;
        at = match.end;
    }
    if (at == text.size)
        return QN_OK;
    return part(e, (qn_str){text.data + at, text.size - at},
                marks ? marks + at : NULL, at_start && !at);
}

static qn_status normalized_part(encoder *e, qn_str text, const char *marks,
                                 bool at_start)
{
    (void)marks;
    return encode_plain(e, text, at_start);
}

static qn_status raw_part(encoder *e, qn_str text, const char *marks,
                          bool at_start)
{
    const qn_added_set *set = &e->t->normalized;
    if (!set->any_special)
        marks = NULL;
    if (e->t->normalizer) {
        qn_status status =
            qn_normalizer_run(e->t->normalizer, &e->norm, text, marks);
        if (status)
            return status;
        text = qn_buf_str(&e->norm.text);
        at_start &= !e->norm.cut_start;
        marks = marks ? qn_buf_str(&e->norm.marks).data : NULL;
    }
    return encode_around(e, set, normalized_part, text, marks, at_start);
}

/* One byte for each bit of the bitmap. */
static qn_status spread_bits(char **out, const uint8_t *bits, size_t size)
{
    char *marks = qn_alloc(size);
    if (!marks)
        return QN_E_NOMEM;
    for (size_t i = 0; i < size; i++)
        marks[i] = bits[i / 8] >> i % 8 & 1;
    *out = marks;
    return QN_OK;
}

qn_status qn_tokenizer_encode(const qn_tokenizer *tokenizer, qn_ids *out,
                              qn_str text, unsigned flags, const uint8_t *taint)
{
    size_t bad, before = out->size;
    if (!qn_utf8_valid(text, &bad))
        return qn_fail(QN_E_ARG, "text is not valid UTF-8 at byte %zu", bad);
    encoder e = {.t = tokenizer,
                 .out = out,
                 .special = (flags & QN_ENCODE_PARSE_SPECIAL) != 0};
    bool framed = (flags & QN_ENCODE_ADD_SPECIAL) != 0;
    char *marks = NULL;
    qn_status status = QN_OK;
    if (taint && e.special)
        status = spread_bits(&marks, taint, text.size);
    if (!status && framed)
        status = add_all(out, &tokenizer->before);
    if (!status)
        status =
            encode_around(&e, &tokenizer->raw, raw_part, text, marks, true);
    if (!status && framed)
        status = add_all(out, &tokenizer->after);
    if (status)
        out->size = before;
    qn_free(marks);
    qn_norm_text_free(&e.norm);
    qn_words_free(&e.words);
    qn_scratch_free(&e.scratch);
    return status;
}

/* ---- decoding ---- */

qn_status qn_tokenizer_decode(const qn_tokenizer *tokenizer, qn_buf *out,
                              const int32_t *ids, size_t count,
                              bool skip_special)
{
    qn_decode_run *run;
    qn_status status = qn_decode_run_new(&run, tokenizer->decoder);
    if (status)
        return status;
    size_t before = out->size;
    const qn_vocab *vocab = &tokenizer->vocab;
    for (size_t i = 0; !status && i < count; i++) {
        if (!qn_vocab_has(vocab, ids[i]))
            status = qn_fail(QN_E_ARG,
                             "no token has id %ld (the vocabulary has %zu)",
                             (long)ids[i], vocab->count);
        else if (!skip_special || !qn_tokenizer_is_special(tokenizer, ids[i]))
            status = qn_decode_add(run, out, qn_vocab_text(vocab, ids[i]));
    }
    if (!status)
        status = qn_decode_finish(run, out);
    if (status && !out->failed)
        qn_buf_truncate(out, before);
    qn_decode_run_free(run);
    return status;
}

qn_status qn_tokenizer_token_bytes(const qn_tokenizer *tokenizer, qn_buf *out,
                                   int32_t id)
{
    if (!qn_vocab_has(&tokenizer->vocab, id))
        return qn_fail(QN_E_ARG, "no token has id %ld", (long)id);
    return qn_decoder_token_bytes(tokenizer->decoder, out,
                                  qn_vocab_text(&tokenizer->vocab, id));
}

/* ---- single tokens ---- */

int32_t qn_tokenizer_count(const qn_tokenizer *tokenizer)
{
    return (int32_t)tokenizer->vocab.count;
}

qn_str qn_tokenizer_token_text(const qn_tokenizer *tokenizer, int32_t id)
{
    return qn_vocab_text(&tokenizer->vocab, id);
}

bool qn_tokenizer_is_special(const qn_tokenizer *tokenizer, int32_t id)
{
    return qn_vocab_has(&tokenizer->vocab, id) &&
           tokenizer->vocab.tokens[id].flags & QN_TOKEN_SPECIAL;
}

int32_t qn_tokenizer_find(const qn_tokenizer *tokenizer, qn_str content)
{
    return qn_vocab_find(&tokenizer->vocab, content);
}

int32_t qn_tokenizer_bos(const qn_tokenizer *tokenizer)
{
    return tokenizer->bos;
}

int32_t qn_tokenizer_eos(const qn_tokenizer *tokenizer)
{
    return tokenizer->eos;
}

int32_t qn_tokenizer_unk(const qn_tokenizer *tokenizer)
{
    return tokenizer->unk;
}

int32_t qn_tokenizer_pad(const qn_tokenizer *tokenizer)
{
    return tokenizer->pad;
}

qn_status qn_tokenizer_end_ids(const qn_tokenizer *tokenizer, qn_ids *out)
{
    return add_all(out, &tokenizer->end_ids);
}

const char *qn_tokenizer_kind(const qn_tokenizer *tokenizer)
{
    return tokenizer->model->kind;
}
