/* Decoding and the streaming detokenizer: what each decoder makes of tokens,
 * what is held back, and that a stream is the whole text in pieces. */
#include "support/qn_test.h"

#include "base/utf8.h"
#include "text/detok.h"

#define FIXTURES QN_TEST_VECTORS "/cases/fixtures/tokenizers/"

static qn_tokenizer *load_text(const char *json)
{
    qn_tokenizer *t = NULL;
    check_status(
        qn_tokenizer_from_json(
            &t, (qn_bytes){(const uint8_t *)json, strlen(json)}, (qn_bytes){0}),
        QN_OK);
    return t;
}

static qn_tokenizer *load_fixture(const char *name)
{
    char path[1024], *text;
    size_t size;
    snprintf(path, sizeof path, FIXTURES "%s", name);
    check_status(qn_file_read(&text, &size, path, 1 << 20), QN_OK);
    qn_tokenizer *t = load_text(text);
    qn_free(text);
    return t;
}

/* The pieces of a stream, each closed by |, then what finish gives. */
#define check_stream(t, expected, ...)                                         \
    check_stream_at(t, expected, (int32_t[]){__VA_ARGS__},                     \
                    sizeof((int32_t[]){__VA_ARGS__}) / sizeof(int32_t),        \
                    __FILE__, __LINE__)

static void check_stream_at(const qn_tokenizer *t, const char *expected,
                            const int32_t *ids, size_t count, const char *file,
                            int line)
{
    qn_buf pieces = QN_BUF_INIT;
    qn_detok *detok = NULL;
    check_status_at(qn_detok_new(&detok, t, false), QN_OK, file, line);
    for (size_t i = 0; i < count; i++) {
        check_status_at(qn_detok_add(detok, &pieces, ids[i]), QN_OK, file,
                        line);
        qn_buf_add_char(&pieces, '|');
    }
    check_status_at(qn_detok_finish(detok, &pieces), QN_OK, file, line);
    check_str_at(qn_buf_str(&pieces), expected, file, line);
    qn_detok_free(detok);
    qn_buf_free(&pieces);
}

/* A decoder over tokens that are listed as JSON strings, ids from 0. */
#define DECODER(decoder, tokens)                                               \
    "{\"decoder\":" decoder ",\"model\":{\"vocab\":{" tokens "},\"merges\":[]" \
    "}}"

#define FFFD "\xef\xbf\xbd"
#define MARK "\xe2\x96\x81"

/* ---- ByteLevel ---- */

/* 0 a; 1, 2, 3 the bytes e4 b8 ad of a character; 4, 5 f0 9f; 6 ff; 7 " a";
 * 8 e4 b8; 9 text that spells no bytes. */
static qn_tokenizer *load_bytes(void)
{
    return load_text(DECODER(
        "{\"type\":\"ByteLevel\"}",
        "\"a\":0,\"\xc3\xa4\":1,\"\xc2\xb8\":2,\"\xc5\x83\":3,\"\xc3\xb0\":4,"
        "\"\xc5\x81\":5,\"\xc3\xbf\":6,\"\xc4\xa0"
        "a\":7,\"\xc3\xa4\xc2\xb8\":8,\"\xe2\x98\x83 \xc3\xbf\":9"));
}

static void test_stream_holds_partial_utf8(void **state)
{
    (void)state;
    qn_tokenizer *t = load_bytes();
    check_stream(t, "a| a|", 0, 7);
    check_stream(t, "||\xe4\xb8\xad|a|", 1, 2, 3, 0);
    check_stream(t, "|\xe4\xb8\xad|", 8, 3);
    /* Nothing can complete it: one U+FFFD for the whole beginning. */
    check_stream(t, "||" FFFD "a|", 1, 2, 0);
    check_stream(t, "||" FFFD " a|", 4, 5, 7);
    check_stream(t, "|" FFFD "|" FFFD, 1, 4);
    /* The end is final. */
    check_stream(t, "a||" FFFD, 0, 8);
    /* A byte that begins nothing is wrong at once. */
    check_stream(t, FFFD "|a|", 6, 0);
    check_stream(t, FFFD "|" FFFD "|", 2, 3);
    check_stream(t, "\xe2\x98\x83 \xc3\xbf|", 9);
    qn_tokenizer_free(t);
}

/* ---- the SentencePiece chain ---- */

#define CHAIN                                                                  \
    "{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{" \
    "\"String\":\"" MARK "\"},\"content\":\" \"},{\"type\":\"ByteFallback\"}," \
    "{\"type\":\"Fuse\"},{\"type\":\"Strip\",\"content\":\" \",\"start\":1,"   \
    "\"stop\":0}]}"

static void test_a_run_of_bytes_is_text_or_nothing(void **state)
{
    (void)state;
    qn_tokenizer *t = load_text(DECODER(
        CHAIN, "\"a\":0,\"" MARK "a\":1,\"<0xE4>\":2,\"<0xB8>\":3,"
               "\"<0xAD>\":4,\"<0xff>\":5,\"<0x4G>\":6,\"" MARK "\":7"));
    check_stream(t, "a| a|a|", 1, 1, 0);
    /* The run goes on until another token ends it. */
    check_stream(t,
                 "a||||\xe4\xb8\xad"
                 "a|",
                 0, 2, 3, 4, 0);
    check_stream(t, "|||\xe4\xb8\xad", 2, 3, 4);
    /* One bad byte spoils all of it. */
    check_stream(t, "||||" FFFD FFFD FFFD FFFD "a|", 2, 3, 4, 5, 0);
    check_stream(t, "||" FFFD FFFD, 2, 3);
    check_stream(t, "<0x4G>|", 6);
    /* The first space is cut, once. */
    check_stream(t, "| |a|", 7, 7, 0);
    check_stream(t, "a| |", 0, 7);
    qn_tokenizer_free(t);
}

static void test_strip(void **state)
{
    (void)state;
    /* Of each token. */
    qn_tokenizer *t = load_text(
        DECODER("{\"type\":\"Strip\",\"content\":\"_\",\"start\":1,\"stop\":2}",
                "\"__a___\":0,\"_\":1,\"b\":2"));
    check_stream(t, "_a_||b|", 0, 1, 2);
    qn_tokenizer_free(t);
    /* Of the whole text: what might be the end is held. */
    t = load_text(DECODER(
        "{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Fuse\"},{\"type\":"
        "\"Strip\",\"content\":\"_\",\"start\":3,\"stop\":2}]}",
        "\"__a___\":0,\"_\":1,\"b\":2"));
    check_stream(t, "||_a_|_|__b|", 1, 1, 0, 1, 2);
    check_stream(t, "b||_b|", 2, 1, 2);
    qn_tokenizer_free(t);
}

/* ---- others ---- */

static void test_metaspace_drops_marks_of_the_first_token(void **state)
{
    (void)state;
    const char *tokens = "\"" MARK "a\":0,\"b" MARK "\":1";
    qn_buf json = QN_BUF_INIT;
    qn_buf_printf(&json, DECODER("{\"type\":\"Metaspace\"}", "%s"), tokens);
    qn_tokenizer *t = load_text(qn_buf_str(&json).data);
    check_stream(t, "a| a|b |", 0, 0, 1);
    qn_tokenizer_free(t);
    qn_buf_clear(&json);
    qn_buf_printf(&json,
                  DECODER("{\"type\":\"Metaspace\",\"prepend_scheme\":"
                          "\"never\"}",
                          "%s"),
                  tokens);
    t = load_text(qn_buf_str(&json).data);
    check_stream(t, " a| a|b |", 0, 0, 1);
    qn_tokenizer_free(t);
    qn_buf_free(&json);
}

static void test_without_a_decoder_spaces_join_tokens(void **state)
{
    (void)state;
    qn_tokenizer *t = load_text(DECODER("null", "\"a\":0,\"b\":1"));
    check_stream(t, "a| b| a|", 0, 1, 0);
    qn_tokenizer_free(t);
    t = load_text(
        DECODER("{\"type\":\"Sequence\",\"decoders\":[]}", "\"a\":0,\"b\":1"));
    check_stream(t, "a|b|a|", 0, 1, 0);
    qn_tokenizer_free(t);
}

static void test_special_tokens_are_hidden_or_shown(void **state)
{
    (void)state;
    qn_tokenizer *t = load_fixture("bytelevel.json");
    qn_detok *detok = NULL;
    qn_buf out = QN_BUF_INIT;
    /* 323 <|im_start|> is special, 326 <tool_call> is not. */
    check_status(qn_detok_new(&detok, t, true), QN_OK);
    check_status(qn_detok_add(detok, &out, 323), QN_OK);
    check_status(qn_detok_add(detok, &out, 326), QN_OK);
    check_status(qn_detok_finish(detok, &out), QN_OK);
    check_str(qn_buf_str(&out), "<tool_call>");
    qn_detok_free(detok);
    qn_buf_free(&out);
    check_stream(t, "<|im_start|>|<tool_call>|", 323, 326);
    qn_tokenizer_free(t);
}

static void test_an_unknown_id_changes_nothing(void **state)
{
    (void)state;
    qn_tokenizer *t = load_bytes();
    qn_detok *detok = NULL;
    qn_buf out = QN_BUF_INIT;
    check_status(qn_detok_new(&detok, t, false), QN_OK);
    check_status(qn_detok_add(detok, &out, 8), QN_OK);
    check_error(qn_detok_add(detok, &out, 10), QN_E_ARG, "10");
    check_error(qn_detok_add(detok, &out, -1), QN_E_ARG, "-1");
    check_error(qn_detok_add(detok, &out, INT32_MAX), QN_E_ARG, "2147483647");
    check_status(qn_detok_add(detok, &out, 3), QN_OK);
    check_str(qn_buf_str(&out), "\xe4\xb8\xad");
    qn_detok_free(detok);
    /* As a whole: an error, and nothing appended. */
    check_error(qn_tokenizer_decode(t, &out, (int32_t[]){0, 99}, 2, false),
                QN_E_ARG, "99");
    check_str(qn_buf_str(&out), "\xe4\xb8\xad");
    qn_buf_free(&out);
    qn_tokenizer_free(t);
}

static void test_after_finish_it_is_as_new(void **state)
{
    (void)state;
    qn_tokenizer *t = load_fixture("spm_legacy.json");
    qn_detok *detok = NULL;
    qn_buf out = QN_BUF_INIT;
    check_status(qn_detok_new(&detok, t, false), QN_OK);
    for (int i = 0; i < 2; i++) {
        qn_buf_clear(&out);
        check_status(qn_detok_add(detok, &out, 315), QN_OK);
        check_status(qn_detok_add(detok, &out, 200), QN_OK);
        check_status(qn_detok_finish(detok, &out), QN_OK);
        check_str(qn_buf_str(&out), "Hello" FFFD);
    }
    qn_detok_free(detok);
    qn_buf_free(&out);
    qn_tokenizer_free(t);
}

/* ---- every decoder, random ids ---- */

static void check_random_stream(const qn_tokenizer *t, uint32_t *seed)
{
    int32_t ids[24];
    size_t count = 0;
    while (count < 24) {
        *seed = *seed * 1664525 + 1013904223;
        /* Single bytes half of the time. */
        uint32_t below = *seed >> 31 ? 260 : (uint32_t)qn_tokenizer_count(t);
        ids[count++] = (int32_t)((*seed >> 4) % below);
    }
    qn_detok *detok = NULL;
    qn_buf whole = QN_BUF_INIT, joined = QN_BUF_INIT;
    check_status(qn_detok_new(&detok, t, *seed >> 30 & 1), QN_OK);
    for (size_t i = 0; i < count; i++) {
        size_t before = joined.size;
        check_status(qn_detok_add(detok, &joined, ids[i]), QN_OK);
        qn_str piece = {qn_buf_str(&joined).data + before,
                        joined.size - before};
        assert_true(qn_utf8_valid(piece, NULL));
    }
    check_status(qn_detok_finish(detok, &joined), QN_OK);
    check_status(qn_tokenizer_decode(t, &whole, ids, count, *seed >> 30 & 1),
                 QN_OK);
    assert_true(qn_str_eq(qn_buf_str(&whole), qn_buf_str(&joined)));
    qn_detok_free(detok);
    qn_buf_free(&whole);
    qn_buf_free(&joined);
}

static void test_pieces_are_utf8_and_join_to_the_whole(void **state)
{
    (void)state;
    const char *names[] = {"bytelevel.json", "ignore_merges.json",
                           "spm_legacy.json", "spm_metaspace.json",
                           "spm_noprefix.json"};
    uint32_t seed = 3;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        qn_tokenizer *t = load_fixture(names[i]);
        for (int n = 0; n < 400; n++)
            check_random_stream(t, &seed);
        qn_tokenizer_free(t);
    }
}

static void test_token_bytes_are_those_of_running_text(void **state)
{
    (void)state;
    const struct {
        const char *fixture;
        int32_t id;
        const char *bytes;
    } tokens[] = {
        {"bytelevel.json", 230, "\xe6"},
        {"bytelevel.json", 264, " Hello"},
        {"bytelevel.json", 331, "\xf0\x9f\x92\xa1"},
        {"spm_legacy.json", 237, "\xea"},
        {"spm_legacy.json", 315, " Hello"},
        {"spm_metaspace.json", 259, " "},
        {"spm_metaspace.json", 1, "<s>"},
    };
    for (size_t i = 0; i < sizeof tokens / sizeof tokens[0]; i++) {
        qn_tokenizer *t = load_fixture(tokens[i].fixture);
        qn_buf out = QN_BUF_INIT;
        check_status(qn_tokenizer_token_bytes(t, &out, tokens[i].id), QN_OK);
        check_str(qn_buf_str(&out), tokens[i].bytes);
        qn_buf_free(&out);
        qn_tokenizer_free(t);
    }
}

static qn_tokenizer *alloc_tokenizer;

static qn_status stream_all(void)
{
    qn_detok *detok = NULL;
    qn_buf out = QN_BUF_INIT;
    qn_status status = qn_detok_new(&detok, alloc_tokenizer, false);
    if (status)
        return status;
    const int32_t ids[] = {315, 237, 188, 179, 259, 237, 188, 260, 200};
    for (size_t i = 0; !status && i < sizeof ids / sizeof ids[0]; i++)
        status = qn_detok_add(detok, &out, ids[i]);
    if (!status)
        status = qn_detok_finish(detok, &out);
    qn_detok_free(detok);
    qn_buf_free(&out);
    return status;
}

static void test_each_allocation_may_fail(void **state)
{
    (void)state;
    alloc_tokenizer = load_fixture("spm_legacy.json");
    each_alloc_may_fail(stream_all);
    qn_tokenizer_free(alloc_tokenizer);
    alloc_tokenizer = load_fixture("bytelevel.json");
    each_alloc_may_fail(stream_all);
    qn_tokenizer_free(alloc_tokenizer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stream_holds_partial_utf8),
        cmocka_unit_test(test_a_run_of_bytes_is_text_or_nothing),
        cmocka_unit_test(test_strip),
        cmocka_unit_test(test_metaspace_drops_marks_of_the_first_token),
        cmocka_unit_test(test_without_a_decoder_spaces_join_tokens),
        cmocka_unit_test(test_special_tokens_are_hidden_or_shown),
        cmocka_unit_test(test_an_unknown_id_changes_nothing),
        cmocka_unit_test(test_after_finish_it_is_as_new),
        cmocka_unit_test(test_pieces_are_utf8_and_join_to_the_whole),
        cmocka_unit_test(test_token_bytes_are_those_of_running_text),
        cmocka_unit_test(test_each_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
