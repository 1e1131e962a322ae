/* tokens.h: what holds for every tokenizer, whatever its file says: ids of an
 * encoding are tokens, a refused text leaves nothing behind, and a stream of
 * ids gives the text of all of them in pieces of whole UTF-8. */
#ifndef QN_FUZZ_TOKENS_H
#define QN_FUZZ_TOKENS_H

#include "fuzz.h"

#include "base/utf8.h"
#include "text/detok.h"

/* Enough for what a rule does, and short enough to be quick. */
enum { TEXT_MAX = 4096, IDS_MAX = 4096 };

static void check_decoding(const qn_tokenizer *t, const int32_t *ids,
                           size_t count, bool skip_special)
{
    qn_buf whole = QN_BUF_INIT, joined = QN_BUF_INIT;
    qn_detok *detok = NULL;
    FUZZ_CHECK(!qn_tokenizer_decode(t, &whole, ids, count, skip_special));
    FUZZ_CHECK(qn_utf8_valid(qn_buf_str(&whole), NULL));
    FUZZ_CHECK(!qn_detok_new(&detok, t, skip_special));
    for (size_t i = 0; i < count; i++) {
        size_t before = joined.size;
        FUZZ_CHECK(!qn_detok_add(detok, &joined, ids[i]));
        qn_str piece = {qn_buf_str(&joined).data + before,
                        joined.size - before};
        FUZZ_CHECK(qn_utf8_valid(piece, NULL));
    }
    FUZZ_CHECK(!qn_detok_finish(detok, &joined));
    FUZZ_CHECK(qn_str_eq(qn_buf_str(&whole), qn_buf_str(&joined)));
    qn_detok_free(detok);
    qn_buf_free(&whole);
    qn_buf_free(&joined);
}

static void check_text(const qn_tokenizer *t, qn_str text, unsigned flags,
                       const uint8_t *taint)
{
    qn_ids ids = {0};
    qn_status status = qn_tokenizer_encode(t, &ids, text, flags, taint);
    if (!qn_utf8_valid(text, NULL))
        FUZZ_CHECK(status == QN_E_ARG);
    if (status)
        FUZZ_CHECK(ids.size == 0);
    for (size_t i = 0; i < ids.size; i++)
        FUZZ_CHECK(ids.data[i] >= 0 && ids.data[i] < qn_tokenizer_count(t));
    size_t count = ids.size < IDS_MAX ? ids.size : IDS_MAX;
    check_decoding(t, ids.data, count, (flags & 1) != 0);
    qn_ids_free(&ids);
}

/* What is said of single tokens, for the first ones and beyond the last. */
static void check_tokens(const qn_tokenizer *t)
{
    int32_t count = qn_tokenizer_count(t);
    for (int32_t id = -1; id < 64; id++) {
        qn_buf bytes = QN_BUF_INIT;
        qn_str text = qn_tokenizer_token_text(t, id);
        FUZZ_CHECK(qn_utf8_valid(text, NULL));
        qn_status status = qn_tokenizer_token_bytes(t, &bytes, id);
        if (id < 0 || id >= count)
            FUZZ_CHECK(status == QN_E_ARG && !text.size);
        /* Two tokens may be written alike. */
        if (text.size) {
            int32_t found = qn_tokenizer_find(t, text);
            FUZZ_CHECK(found >= 0);
            FUZZ_CHECK(qn_str_eq(qn_tokenizer_token_text(t, found), text));
        }
        qn_buf_free(&bytes);
    }
}

static void check_tokenizer(const qn_tokenizer *t, qn_str text)
{
    static const uint8_t taint[TEXT_MAX / 8] = {0x0f, 0xf0, 0x55};
    if (text.size > TEXT_MAX)
        text.size = TEXT_MAX;
    check_tokens(t);
    check_text(t, text, 0, NULL);
    check_text(t, text, QN_ENCODE_ADD_SPECIAL | QN_ENCODE_PARSE_SPECIAL, NULL);
    check_text(t, text, QN_ENCODE_PARSE_SPECIAL, taint);
}

#endif
