/* The models that are no byte-pair encoding, rule by rule, and what they and
 * the normalizers and decoders around them refuse. */
#include "support/qn_test.h"

#include "text/tokenizer.h"

static qn_status load_text(qn_tokenizer **out, const char *json)
{
    return qn_tokenizer_from_json(
        out, (qn_bytes){(const uint8_t *)json, strlen(json)}, (qn_bytes){0});
}

static qn_tokenizer *must_load(const char *json)
{
    qn_tokenizer *t = NULL;
    check_status(load_text(&t, json), QN_OK);
    return t;
}

#define check_encoding(t, text, ...)                                           \
    check_encoding_at(t, QN_STR(text), (int32_t[]){__VA_ARGS__},               \
                      sizeof((int32_t[]){__VA_ARGS__}) / sizeof(int32_t),      \
                      __FILE__, __LINE__)

static void check_encoding_at(const qn_tokenizer *t, qn_str text,
                              const int32_t *expected, size_t count,
                              const char *file, int line)
{
    qn_ids ids = {0};
    check_status_at(qn_tokenizer_encode(t, &ids, text, 0, NULL), QN_OK, file,
                    line);
    bool same = ids.size == count &&
                !memcmp(ids.data, expected, count * sizeof *expected);
    for (size_t i = 0; !same && i < ids.size; i++)
        print_error("%d ", (int)ids.data[i]);
    qn_ids_free(&ids);
    if (!same)
        _fail(file, line);
}

static void check_decoding(const qn_tokenizer *t, const char *expected,
                           const int32_t *ids, size_t count)
{
    qn_buf text = QN_BUF_INIT;
    check_status(qn_tokenizer_decode(t, &text, ids, count, false), QN_OK);
    check_str(qn_buf_str(&text), expected);
    qn_buf_free(&text);
}

/* ---- WordPiece, WordLevel ---- */

#define WORDPIECE(rest)                                                        \
    "{\"decoder\":{\"type\":\"WordPiece\"},\"model\":{\"type\":\"WordPiece\"," \
    "\"unk_token\":\"?\",\"vocab\":{\"?\":0,\"a\":1,\"ab\":2,\"##b\":3,"       \
    "\"##bc\":4,\"##\":5,\"\xc3\xa9\":6,\"##\xc3\xa9\":7,\"abcd\":8,"          \
    "\".\":9,\"n't\":10}" rest "}}"

static void test_the_longest_pieces_make_a_word(void **state)
{
    (void)state;
    qn_tokenizer *t = must_load(WORDPIECE(""));
    check_encoding(t, "ab", 2);
    check_encoding(t, "abb", 2, 3);
    check_encoding(t, "abbc", 2, 4);
    check_encoding(t, "abcd", 8);
    /* Greedy: "ab" leaves a c that no piece begins with. */
    check_encoding(t, "abc", 0);
    check_encoding(t, "a\xc3\xa9\xc3\xa9", 1, 7, 7);
    check_encoding(t, "\xc3\xa9", 6);
    check_encoding(t, "b", 0);
    /* A prefix in the text is text. */
    check_encoding(t, "##b", 3);
    check_encoding(t, "##", 5);
    qn_tokenizer_free(t);
    t = must_load(WORDPIECE(",\"max_input_chars_per_word\":3"));
    check_encoding(t, "abb", 2, 3);
    check_encoding(t, "a\xc3\xa9\xc3\xa9", 1, 7, 7);
    check_encoding(t, "abbb", 0);
    qn_tokenizer_free(t);
    t = must_load(WORDPIECE(",\"continuing_subword_prefix\":\"\""));
    check_encoding(t, "aba", 2, 1);
    qn_tokenizer_free(t);
}

static void test_pieces_join_to_words(void **state)
{
    (void)state;
    qn_tokenizer *t = must_load(WORDPIECE(""));
    check_decoding(t, "ab abbc a.", (int32_t[]){2, 2, 4, 1, 9}, 5);
    check_decoding(t, "an't", (int32_t[]){1, 10}, 2);
    check_decoding(t, "##b", (int32_t[]){3}, 1);
    qn_tokenizer_free(t);
}

static void test_a_word_may_be_one_token(void **state)
{
    (void)state;
    qn_tokenizer *t = must_load(
        "{\"pre_tokenizer\":{\"type\":\"WhitespaceSplit\"},\"model\":{\"type\":"
        "\"WordLevel\",\"unk_token\":\"?\",\"vocab\":{\"?\":0,\"a\":1,\"ab\":"
        "2}}}");
    check_encoding(t, "a ab abc", 1, 2, 0);
    check_decoding(t, "a ab ?", (int32_t[]){1, 2, 0}, 3);
    qn_tokenizer_free(t);
}

/* ---- Unigram ---- */

#define UNIGRAM(vocab, rest)                                                   \
    "{\"decoder\":null,\"model\":{\"type\":\"Unigram\",\"vocab\":[" vocab      \
    "]" rest "}}"
#define PIECES                                                                 \
    "[\"?\",0],[\"a\",-1],[\"b\",-1],[\"ab\",-1.5],[\"abc\",-9],"              \
    "[\"bc\",-1.25],[\"<0xC3>\",-9],[\"<0xA9>\",-9]"

static void test_the_best_sum_of_scores_wins(void **state)
{
    (void)state;
    qn_tokenizer *t = must_load(UNIGRAM(PIECES, ",\"unk_id\":0"));
    check_encoding(t, "ab", 3);
    check_encoding(t, "abc", 1, 5);
    check_encoding(t, "aab", 1, 3);
    /* Unknown characters in a row are one token. */
    check_encoding(t, "axyb", 1, 0, 2);
    check_encoding(t, "\xc3\xa9", 0);
    check_encoding(t, "c", 0);
    qn_tokenizer_free(t);
    t = must_load(UNIGRAM(PIECES, ",\"unk_id\":0,\"byte_fallback\":true"));
    check_encoding(t, "a\xc3\xa9", 1, 6, 7);
    /* Not all of its bytes are tokens. */
    check_encoding(t, "\xc3\xa8", 0);
    qn_tokenizer_free(t);
}

static void test_ties_go_to_the_first_found(void **state)
{
    (void)state;
    qn_tokenizer *t = must_load(UNIGRAM(
        "[\"?\",0],[\"a\",-1],[\"aa\",-2],[\"aaa\",-3]", ",\"unk_id\":0"));
    /* Equal sums: the path whose last token starts first was there first. */
    check_encoding(t, "aaa", 3);
    check_encoding(t, "aa", 2);
    qn_tokenizer_free(t);
}

static void test_no_token_for_unknown_characters(void **state)
{
    (void)state;
    qn_tokenizer *t = must_load(UNIGRAM(PIECES, ""));
    qn_ids ids = {0};
    check_encoding(t, "ab", 3);
    check_error(qn_tokenizer_encode(t, &ids, QN_STR("axb"), 0, NULL), QN_E_ARG,
                "'x' is not in the vocabulary");
    assert_int_equal(ids.size, 0);
    qn_ids_free(&ids);
    qn_tokenizer_free(t);
}

static void test_long_words_take_linear_time(void **state)
{
    (void)state;
    enum { SIZE = 1 << 20 };
    qn_tokenizer *t = must_load(UNIGRAM(
        "[\"?\",0],[\"a\",-1],[\"aa\",-1.5],[\"aaaa\",-2]", ",\"unk_id\":0"));
    char *text = malloc(SIZE);
    assert_non_null(text);
    memset(text, 'a', SIZE);
    qn_ids ids = {0};
    check_status(qn_tokenizer_encode(t, &ids, (qn_str){text, SIZE}, 0, NULL),
                 QN_OK);
    assert_int_equal(ids.size, SIZE / 4);
    ids.size = 0;
    qn_tokenizer_free(t);
    t = must_load(WORDPIECE(",\"max_input_chars_per_word\":9999999"));
    memset(text + 1, 'b', SIZE - 1);
    check_status(qn_tokenizer_encode(t, &ids, (qn_str){text, SIZE}, 0, NULL),
                 QN_OK);
    assert_int_equal(ids.size, SIZE - 1);
    free(text);
    qn_ids_free(&ids);
    qn_tokenizer_free(t);
}

/* ---- normalizers ---- */

/* Each byte of the normal form is a token of a byte-level vocabulary, so ids
 * are bytes. */
static void check_normal_form(const char *normalizer, qn_str text,
                              qn_str expected)
{
    qn_buf json = QN_BUF_INIT;
    qn_buf_printf(&json,
                  "{\"normalizer\":%s,\"decoder\":{\"type\":\"Fuse\"},"
                  "\"model\":{\"type\":\"Unigram\",\"unk_id\":0,"
                  "\"byte_fallback\":true,\"vocab\":[[\"?\",0]",
                  normalizer);
    for (int i = 0; i < 256; i++)
        qn_buf_printf(&json, ",[\"<0x%02X>\",-1]", i);
    qn_buf_add_text(&json, "]}}");
    qn_tokenizer *t = must_load(json.data);
    qn_ids ids = {0};
    check_status(qn_tokenizer_encode(t, &ids, text, 0, NULL), QN_OK);
    bool same = ids.size == expected.size;
    for (size_t i = 0; same && i < ids.size; i++)
        same = ids.data[i] == (uint8_t)expected.data[i] + 1;
    if (!same) {
        for (size_t i = 0; i < ids.size; i++)
            print_error("%02x ", (unsigned)ids.data[i] - 1);
        fail_msg("expected %.*s", (int)expected.size, expected.data);
    }
    qn_ids_free(&ids);
    qn_tokenizer_free(t);
    qn_buf_free(&json);
}

static void test_bert_normalizer(void **state)
{
    (void)state;
#define BERT(rest) "{\"type\":\"BertNormalizer\"" rest "}"
    check_normal_form(BERT(""),
                      QN_STR("H\xc3\x89 a\tb\x01\xc2\xadz\xe4\xb8\xad."),
                      QN_STR("he a bz \xe4\xb8\xad ."));
    check_normal_form(BERT(",\"lowercase\":false"), QN_STR("H\xc3\x89"),
                      QN_STR("H\xc3\x89"));
    check_normal_form(BERT(",\"lowercase\":false,\"strip_accents\":true"),
                      QN_STR("H\xc3\x89"), QN_STR("HE"));
    check_normal_form(BERT(",\"strip_accents\":false"), QN_STR("H\xc3\x89"),
                      QN_STR("h\xc3\xa9"));
    check_normal_form(
        BERT(",\"clean_text\":false,\"handle_chinese_chars\":false"),
        QN_STR("a\tb\x01\xe4\xb8\xad"), QN_STR("a\tb\x01\xe4\xb8\xad"));
#undef BERT
}

static void test_nmt_and_byte_level(void **state)
{
    (void)state;
    check_normal_form("{\"type\":\"Nmt\"}",
                      QN_STR("a\tb\x0b\x01"
                             "c\xe2\x80\x8b"
                             "d\xef\xbf\xbd\xe2\x96\x81"),
                      QN_STR("a bc d  "));
    check_normal_form("{\"type\":\"ByteLevel\"}", QN_STR("a \xc3\xa9"),
                      QN_STR("a\xc4\xa0\xc3\x83\xc2\xa9"));
    check_normal_form("{\"type\":\"Lowercase\"}",
                      QN_STR("\xc4\xb0\xf0\x90\xb5\x90\xea\x9f\x8b"),
                      QN_STR("i\xcc\x87\xf0\x90\xb5\xb0\xc9\xa4"));
}

/* ---- decoders ---- */

static void test_a_suffix_ends_a_word(void **state)
{
    (void)state;
    qn_tokenizer *t = must_load(
        "{\"decoder\":{\"type\":\"BPEDecoder\"},\"model\":{\"type\":\"BPE\","
        "\"vocab\":{\"a\":0,\"b</w>\":1},\"merges\":[]}}");
    check_decoding(t, "ab ab", (int32_t[]){0, 1, 0, 1}, 4);
    check_decoding(t, "b a", (int32_t[]){1, 0}, 2);
    check_decoding(t, "", NULL, 0);
    qn_tokenizer_free(t);
}

/* ---- refusals ---- */

static void test_bad_files_are_refused_with_their_path(void **state)
{
    (void)state;
#define WP(rest) "{\"model\":{\"type\":\"WordPiece\"," rest "}}"
#define UG(rest) "{\"model\":{\"type\":\"Unigram\"," rest "}}"
#define PRECOMPILED(blob)                                                      \
    "{\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":"      \
    "\"" blob "\"},\"model\":{\"vocab\":{},\"merges\":[]}}"
    const struct {
        const char *json, *where;
        qn_status status;
    } files[] = {
        {WP("\"vocab\":{\"a\":0}"), "model.unk_token", QN_E_MISMATCH},
        {WP("\"unk_token\":3,\"vocab\":{\"a\":0}"), "model.unk_token",
         QN_E_FORMAT},
        {WP("\"unk_token\":\"a\""), "model.vocab", QN_E_FORMAT},
        {WP("\"unk_token\":\"a\",\"vocab\":[]"), "model.vocab", QN_E_FORMAT},
        {WP("\"unk_token\":\"a\",\"vocab\":{\"a\":0},"
            "\"max_input_chars_per_word\":-1"),
         "model.max_input_chars_per_word", QN_E_FORMAT},
        {UG("\"unk_id\":0"), "model.vocab", QN_E_FORMAT},
        {UG("\"vocab\":{}"), "model.vocab", QN_E_FORMAT},
        {UG("\"vocab\":3"), "model.vocab", QN_E_FORMAT},
        {UG("\"vocab\":[[\"a\",0],3]"), "model.vocab[1]", QN_E_FORMAT},
        {UG("\"vocab\":[[\"a\",0],[\"b\"]]"), "model.vocab[1]", QN_E_FORMAT},
        {UG("\"vocab\":[[\"a\",0,0]]"), "model.vocab[0]", QN_E_FORMAT},
        {UG("\"vocab\":[[0,0]]"), "model.vocab[0]", QN_E_FORMAT},
        {UG("\"vocab\":[[\"a\",1e999]]"), "model.vocab[0]", QN_E_FORMAT},
        {UG("\"unk_id\":1,\"vocab\":[[\"a\",0]]"), "model.unk_id",
         QN_E_MISMATCH},
        {UG("\"unk_id\":-1,\"vocab\":[[\"a\",0]]"), "model.unk_id",
         QN_E_MISMATCH},
        {"{\"pre_tokenizer\":{\"type\":\"ByteLevel\"},\"model\":{\"type\":"
         "\"Unigram\",\"vocab\":[]}}",
         "model.type", QN_E_UNSUPPORTED},
        {PRECOMPILED("!"), "normalizer.precompiled_charsmap", QN_E_FORMAT},
        {PRECOMPILED("AA=="), "normalizer.precompiled_charsmap", QN_E_FORMAT},
        {PRECOMPILED("CAAAAAAA"), "normalizer.precompiled_charsmap",
         QN_E_FORMAT},
        {"{\"decoder\":{\"type\":\"BPEDecoder\",\"suffix\":\"\"},\"model\":{"
         "\"vocab\":{},\"merges\":[]}}",
         "decoder.suffix", QN_E_UNSUPPORTED},
    };
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        qn_tokenizer *t = NULL;
        qn_error_clear();
        check_status(load_text(&t, files[i].json), files[i].status);
        assert_null(t);
        qn_buf where = QN_BUF_INIT;
        qn_buf_printf(&where, "tokenizer.json: %s", files[i].where);
        assert_string_equal(qn_error_where(), where.data);
        qn_buf_free(&where);
    }
}

static void test_very_long_tokens_are_refused(void **state)
{
    (void)state;
    qn_buf json = QN_BUF_INIT;
    qn_buf_add_text(&json, "{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"");
    for (int i = 0; i < 1025; i++)
        qn_buf_add_char(&json, 'a');
    qn_buf_add_text(&json, "\",0]]}}");
    qn_tokenizer *t = NULL;
    check_error(load_text(&t, json.data), QN_E_UNSUPPORTED, "1025 bytes");
    qn_buf_free(&json);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_longest_pieces_make_a_word),
        cmocka_unit_test(test_pieces_join_to_words),
        cmocka_unit_test(test_a_word_may_be_one_token),
        cmocka_unit_test(test_the_best_sum_of_scores_wins),
        cmocka_unit_test(test_ties_go_to_the_first_found),
        cmocka_unit_test(test_no_token_for_unknown_characters),
        cmocka_unit_test(test_long_words_take_linear_time),
        cmocka_unit_test(test_bert_normalizer),
        cmocka_unit_test(test_nmt_and_byte_level),
        cmocka_unit_test(test_a_suffix_ends_a_word),
        cmocka_unit_test(test_bad_files_are_refused_with_their_path),
        cmocka_unit_test(test_very_long_tokens_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
