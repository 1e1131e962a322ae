/* Loading tokenizers and encoding: the cases of public bug reports, small
 * vocabularies that show one rule each, hostile files, shared use. */
#include "support/qn_test.h"

#include "base/gguf.h"
#include "base/json.h"
#include "text/split.h"
#include "text/tokenizer.h"

#include <pthread.h>

#define CASES QN_TEST_VECTORS "/cases/"

/* ---- helpers ---- */

static qn_status load_text(qn_tokenizer **out, const char *json)
{
    size_t size = strlen(json);
    uint8_t *copy = exact_copy(json, size);
    qn_status status =
        qn_tokenizer_from_json(out, (qn_bytes){copy, size}, (qn_bytes){0});
    free(copy);
    return status;
}

static qn_tokenizer *must_load(const char *json)
{
    qn_tokenizer *t = NULL;
    check_status(load_text(&t, json), QN_OK);
    assert_non_null(t);
    return t;
}

static char *read_file(const char *path, size_t *size)
{
    char *text = NULL;
    check_status(qn_file_read(&text, size, path, 64 << 20), QN_OK);
    return text;
}

static qn_tokenizer *load_file(const char *path)
{
    size_t size;
    char *text = read_file(path, &size);
    qn_tokenizer *t = NULL;
    check_status(qn_tokenizer_from_json(&t,
                                        (qn_bytes){(const uint8_t *)text, size},
                                        (qn_bytes){0}),
                 QN_OK);
    qn_free(text);
    return t;
}

static qn_tokenizer *load_fixture(qn_str name)
{
    qn_buf path = QN_BUF_INIT;
    qn_buf_printf(&path, CASES "fixtures/%.*s", (int)name.size, name.data);
    if (!strstr(path.data, ".json"))
        qn_buf_add_text(&path, "/tokenizer.json");
    qn_tokenizer *t = load_file(path.data);
    qn_buf_free(&path);
    return t;
}

static void show_ids(const char *what, const int32_t *ids, size_t count)
{
    print_error("%s:", what);
    for (size_t i = 0; i < count; i++)
        print_error(" %d", (int)ids[i]);
    print_error("\n");
}

#define check_encoding(t, text, flags, ...)                                    \
    check_encoding_at(t, QN_STR(text), flags, NULL, (int32_t[]){__VA_ARGS__},  \
                      sizeof((int32_t[]){__VA_ARGS__}) / sizeof(int32_t),      \
                      __FILE__, __LINE__)

static void check_encoding_at(const qn_tokenizer *t, qn_str text,
                              unsigned flags, const uint8_t *taint,
                              const int32_t *expected, size_t count,
                              const char *file, int line)
{
    qn_ids ids = {0};
    uint8_t *copy = exact_copy(text.data, text.size);
    check_status_at(qn_tokenizer_encode(t, &ids,
                                        (qn_str){(char *)copy, text.size},
                                        flags, taint),
                    QN_OK, file, line);
    if (ids.size != count ||
        (count && memcmp(ids.data, expected, count * sizeof *expected) != 0)) {
        print_error("'%.*s'\n", (int)text.size, text.data);
        show_ids("expected", expected, count);
        show_ids("found", ids.data, ids.size);
        _fail(file, line);
    }
    qn_ids_free(&ids);
    free(copy);
}

/* ---- the cases of cases/tokenizer.jsonl ---- */

/* The ids of a JSON list; free with qn_ids_free. */
static qn_ids ids_of(const qn_json *list)
{
    qn_ids ids = {0};
    for (size_t i = 0; i < list->count; i++) {
        int64_t id;
        assert_true(qn_json_as_int(&list->items[i], &id));
        check_status(qn_ids_add(&ids, (int32_t)id), QN_OK);
    }
    return ids;
}

static qn_buf case_text(const qn_json *input)
{
    qn_buf text = QN_BUF_INIT;
    qn_str unit;
    int64_t times = 1;
    const qn_json *repeat = qn_json_get(input, "text_repeat");
    if (repeat) {
        assert_true(qn_json_as_str(qn_json_at(repeat, 0), &unit));
        assert_true(qn_json_as_int(qn_json_at(repeat, 1), &times));
    } else {
        assert_true(qn_json_as_str(qn_json_get(input, "text"), &unit));
    }
    for (; times > 0; times--)
        qn_buf_add_str(&text, unit);
    return text;
}

static void check_part(const qn_ids *ids, const qn_json *list, bool at_end)
{
    qn_ids part = ids_of(list);
    assert_true(part.size <= ids->size);
    const int32_t *found = ids->data + (at_end ? ids->size - part.size : 0);
    assert_memory_equal(found, part.data, part.size * sizeof *found);
    qn_ids_free(&part);
}

static void run_encode(const qn_tokenizer *t, const qn_json *input,
                       const qn_json *expect)
{
    bool special = false;
    assert_true(
        qn_json_as_bool(qn_json_get(input, "add_special_tokens"), &special));
    qn_buf text = case_text(input), decoded = QN_BUF_INIT;
    qn_ids ids = {0};
    check_status(qn_tokenizer_encode(t, &ids, qn_buf_str(&text),
                                     QN_ENCODE_PARSE_SPECIAL |
                                         (special ? QN_ENCODE_ADD_SPECIAL : 0),
                                     NULL),
                 QN_OK);
    const qn_json *all = qn_json_get(expect, "ids");
    int64_t count = all ? (int64_t)all->count : -1;
    if (!all)
        assert_true(qn_json_as_int(qn_json_get(expect, "count"), &count));
    assert_int_equal(ids.size, count);
    check_part(&ids, all ? all : qn_json_get(expect, "first"), false);
    check_part(&ids, all ? all : qn_json_get(expect, "last"), true);
    qn_str back;
    if (qn_json_as_str(qn_json_get(expect, "decoded"), &back)) {
        check_status(
            qn_tokenizer_decode(t, &decoded, ids.data, ids.size, false), QN_OK);
        assert_true(qn_str_eq(qn_buf_str(&decoded), back));
    }
    qn_buf_free(&text);
    qn_buf_free(&decoded);
    qn_ids_free(&ids);
}

static void run_decode(const qn_tokenizer *t, const qn_json *input,
                       const qn_json *expect)
{
    bool skip = false;
    assert_true(
        qn_json_as_bool(qn_json_get(input, "skip_special_tokens"), &skip));
    qn_ids ids = ids_of(qn_json_get(input, "ids"));
    qn_buf text = QN_BUF_INIT;
    qn_status status = qn_tokenizer_decode(t, &text, ids.data, ids.size, skip);
    qn_str wanted;
    if (qn_json_as_str(qn_json_get(expect, "text"), &wanted)) {
        check_status(status, QN_OK);
        assert_true(qn_str_eq(qn_buf_str(&text), wanted));
    } else {
        /* The one case that leaves a choice: an unknown id is an error. */
        assert_non_null(qn_json_get(expect, "any_of"));
        check_error(status, QN_E_ARG, "1000000");
        assert_int_equal(text.size, 0);
    }
    qn_buf_free(&text);
    qn_ids_free(&ids);
}

static void test_cases_of_bug_reports(void **state)
{
    (void)state;
    size_t size, encoded = 0, decoded = 0;
    char *lines = read_file(CASES "tokenizer.jsonl", &size);
    for (char *line = lines, *end; *line; line = end + 1) {
        end = strchr(line, '\n');
        qn_json_doc *doc = NULL;
        check_status(
            qn_json_parse(&doc, (qn_str){line, (size_t)(end - line)}, 0),
            QN_OK);
        const qn_json *root = qn_json_root(doc);
        qn_str kind, fixture, id;
        assert_true(qn_json_as_str(qn_json_get(root, "kind"), &kind));
        assert_true(qn_json_as_str(qn_json_get(root, "fixture"), &fixture));
        assert_true(qn_json_as_str(qn_json_get(root, "id"), &id));
        print_message("%.*s\n", (int)id.size, id.data);
        const qn_json *input = qn_json_get(root, "input");
        const qn_json *expect = qn_json_get(root, "expect");
        /* tok-inject needs a template: tests/run_cases. */
        if (!qn_str_is(kind, "tok-inject")) {
            qn_tokenizer *t = load_fixture(fixture);
            bool encode = qn_str_is(kind, "tok-encode");
            if (encode)
                run_encode(t, input, expect);
            else
                run_decode(t, input, expect);
            encoded += encode;
            decoded += !encode;
            qn_tokenizer_free(t);
        }
        qn_json_doc_free(doc);
    }
    assert_int_equal(encoded, 17);
    assert_int_equal(decoded, 6);
    qn_free(lines);
}

/* ---- byte-pair encoding ---- */

#define BPE(rest) "{\"model\":{\"type\":\"BPE\"," rest "}}"

static void test_merges_apply_by_rank_then_from_the_left(void **state)
{
    (void)state;
    qn_tokenizer *t = must_load(
        BPE("\"vocab\":{\"a\":0,\"b\":1,\"c\":2,\"ab\":3,\"bc\":4,\"aa\":5,"
            "\"abc\":6},\"merges\":[\"b c\",\"a a\",\"a b\",\"a bc\"]"));
    assert_string_equal(qn_tokenizer_kind(t), "bpe");
    assert_int_equal(qn_tokenizer_count(t), 7);
    check_encoding(t, "abc", 0, 6);
    check_encoding(t, "ab", 0, 3);
    check_encoding(t, "aaa", 0, 5, 0);
    check_encoding(t, "aaab", 0, 5, 3);
    check_encoding(t, "abcb", 0, 6, 1);
    /* Without an unknown token, what is unknown is dropped. */
    check_encoding(t, "axb", 0, 3);
    qn_tokenizer_free(t);
}

/* Words of up to 32 symbols are merged by scanning, longer ones by a heap.
 * Twenty copies of a short word, kept apart by a symbol that merges with
 * nothing, are one long word with the same pieces twenty times. */
static void test_short_and_long_words_merge_alike(void **state)
{
    (void)state;
    enum { SIZE = 20, COPIES = 20 };
    qn_tokenizer *t = must_load(
        BPE("\"vocab\":{\"a\":0,\"b\":1,\"aa\":2,\"ab\":3,\"aaaa\":4,"
            "\"aba\":5,\"bb\":6,\"abab\":7,\"x\":8},\"merges\":[\"a a\","
            "\"a b\",\"aa aa\",\"b b\",\"ab a\",\"ab ab\"]"));
    uint32_t seed = 7;
    for (int round = 0; round < 200; round++) {
        char word[SIZE], text[COPIES * (SIZE + 1)];
        qn_ids one = {0}, many = {0};
        for (int i = 0; i < SIZE; i++) {
            seed = seed * 1664525 + 1013904223;
            word[i] = seed >> 28 < 10 ? 'a' : 'b';
        }
        for (int i = 0; i < COPIES; i++) {
            memcpy(text + i * (SIZE + 1), word, SIZE);
            text[i * (SIZE + 1) + SIZE] = 'x';
        }
        check_status(
            qn_tokenizer_encode(t, &one, (qn_str){word, SIZE}, 0, NULL), QN_OK);
        check_status(
            qn_tokenizer_encode(t, &many, (qn_str){text, sizeof text}, 0, NULL),
            QN_OK);
        assert_int_equal(many.size, COPIES * (one.size + 1));
        for (size_t i = 0; i < COPIES; i++)
            assert_memory_equal(many.data + i * (one.size + 1), one.data,
                                one.size * sizeof(int32_t));
        qn_ids_free(&one);
        qn_ids_free(&many);
    }
    qn_tokenizer_free(t);
}

static void test_a_word_of_a_mebibyte(void **state)
{
    (void)state;
    enum { SIZE = 1 << 20 };
    qn_tokenizer *t =
        must_load(BPE("\"vocab\":{\"a\":0,\"aa\":1,\"aaaa\":2,\"aaaaaaaa\":3},"
                      "\"merges\":[\"a a\",\"aa aa\",\"aaaa aaaa\"]"));
    char *text = malloc(SIZE);
    assert_non_null(text);
    memset(text, 'a', SIZE);
    qn_ids ids = {0};
    check_status(
        qn_tokenizer_encode(t, &ids, (qn_str){text, SIZE - 1}, 0, NULL), QN_OK);
    assert_int_equal(ids.size, SIZE / 8 - 1 + 3);
    for (size_t i = 0; i + 3 < ids.size; i++)
        assert_int_equal(ids.data[i], 3);
    assert_int_equal(ids.data[ids.size - 1], 0);
    free(text);
    qn_ids_free(&ids);
    qn_tokenizer_free(t);
}

static void test_unknown_characters(void **state)
{
    (void)state;
    qn_tokenizer *t =
        must_load(BPE("\"unk_token\":\"?\",\"fuse_unk\":true,\"vocab\":{\"?\":"
                      "0,\"a\":1},\"merges\":[]"));
    check_encoding(t, "axya", 0, 1, 0, 1);
    check_encoding(t, "xaxx", 0, 0, 1, 0);
    assert_int_equal(qn_tokenizer_unk(t), 0);
    qn_tokenizer_free(t);
    t = must_load(BPE("\"unk_token\":\"?\",\"vocab\":{\"?\":0,\"a\":1},"
                      "\"merges\":[]"));
    check_encoding(t, "axya", 0, 1, 0, 0, 1);
    qn_tokenizer_free(t);
    /* Bytes only if all of the character's are there. */
    t = must_load(BPE("\"unk_token\":\"?\",\"byte_fallback\":true,\"vocab\":{"
                      "\"?\":0,\"<0xC3>\":1,\"<0xA9>\":2},\"merges\":[]"));
    check_encoding(t, "\xc3\xa9", 0, 1, 2);
    check_encoding(t, "\xc3\xa8", 0, 0);
    qn_tokenizer_free(t);
    check_error(load_text(&t, BPE("\"unk_token\":\"!\",\"vocab\":{\"a\":1},"
                                  "\"merges\":[]")),
                QN_E_MISMATCH, "not in the vocabulary");
    assert_string_equal(qn_error_where(), "tokenizer.json: model.unk_token");
}

static void test_affixes_of_subwords(void **state)
{
    (void)state;
    qn_tokenizer *t = must_load(
        BPE("\"continuing_subword_prefix\":\"##\",\"end_of_word_suffix\":"
            "\"</w>\",\"vocab\":{\"a\":0,\"##a\":1,\"##b\":2,\"##b</w>\":3,"
            "\"ab</w>\":4,\"a</w>\":5,\"aa\":6},\"merges\":[[\"a\",\"##b</w>"
            "\"],[\"a\",\"##a\"]]"));
    check_encoding(t, "ab", 0, 4);
    check_encoding(t, "a", 0, 5);
    check_encoding(t, "aab", 0, 6, 3);
    qn_tokenizer_free(t);
}

static void test_a_word_in_the_vocabulary_may_skip_merges(void **state)
{
    (void)state;
#define WORDS                                                                  \
    "\"vocab\":{\"a\":0,\"b\":1,\"ab\":2,\"aba\":3},\"merges\":[\"a b\"]"
    qn_tokenizer *t = must_load(BPE(WORDS));
    check_encoding(t, "aba", 0, 2, 0);
    qn_tokenizer_free(t);
    t = must_load(BPE("\"ignore_merges\":true," WORDS));
    check_encoding(t, "aba", 0, 3);
    check_encoding(t, "abab", 0, 2, 2);
    qn_tokenizer_free(t);
#undef WORDS
}

/* ---- added tokens ---- */

#define WITH_ADDED(tokens)                                                     \
    "{\"added_tokens\":[" tokens "],\"model\":{\"vocab\":{\"a\":0,\"b\":1,"    \
    "\" \":2,\"<\":3,\">\":4,\"x\":5,\"\\n\":6},\"merges\":[]}}"

static void test_the_longest_added_token_matches(void **state)
{
    (void)state;
    qn_tokenizer *t = must_load(WITH_ADDED(
        "{\"id\":10,\"content\":\"<a\"},{\"id\":11,\"content\":\"<a>\","
        "\"special\":true},{\"id\":12,\"content\":\"a>b\"}"));
    check_encoding(t, "x<a>b", QN_ENCODE_PARSE_SPECIAL, 5, 11, 1);
    /* Special ones as plain text: what else is there matches. */
    check_encoding(t, "x<a>b", 0, 5, 10, 4, 1);
    check_encoding(t, "<<a", 0, 3, 10);
    check_encoding(t, "xa>b", 0, 5, 12);
    check_encoding(t, "<", 0, 3);
    check_encoding_at(t, QN_STR(""),
                      QN_ENCODE_PARSE_SPECIAL | QN_ENCODE_ADD_SPECIAL, NULL,
                      NULL, 0, __FILE__, __LINE__);
    assert_int_equal(qn_tokenizer_count(t), 13);
    assert_true(qn_tokenizer_is_special(t, 11));
    assert_false(qn_tokenizer_is_special(t, 10));
    assert_false(qn_tokenizer_is_special(t, -1));
    assert_false(qn_tokenizer_is_special(t, 1000));
    check_str(qn_tokenizer_token_text(t, 11), "<a>");
    check_str(qn_tokenizer_token_text(t, 9), "");
    check_str(qn_tokenizer_token_text(t, -5), "");
    assert_int_equal(qn_tokenizer_find(t, QN_STR("<a>")), 11);
    assert_int_equal(qn_tokenizer_find(t, QN_STR("nope")), -1);
    qn_tokenizer_free(t);
}

static void test_added_tokens_swallow_white_space(void **state)
{
    (void)state;
    qn_tokenizer *t = must_load(
        WITH_ADDED("{\"id\":10,\"content\":\"<l>\",\"lstrip\":true},"
                   "{\"id\":11,\"content\":\"<r>\",\"rstrip\":true},"
                   "{\"id\":12,\"content\":\"w\",\"single_word\":true}"));
    check_encoding(t, "a  <l>  b", 0, 0, 10, 2, 2, 1);
    check_encoding(t, "a  <r> \n b", 0, 0, 2, 2, 11, 1);
    /* What one has swallowed, the next one cannot. */
    check_encoding(t, "<r>  <l>", 0, 11, 10);
    check_encoding(t, " <l>", 0, 10);
    check_encoding(t, "w aw w\xcc\x81 w", 0, 12, 2, 0, 2, 2, 12);
    qn_tokenizer_free(t);
}

static void test_normalized_added_tokens_match_normalized_text(void **state)
{
    (void)state;
    qn_tokenizer *t =
        must_load("{\"normalizer\":{\"type\":\"Lowercase\"},\"added_tokens\":["
                  "{\"id\":10,\"content\":\"AB\",\"normalized\":true},"
                  "{\"id\":11,\"content\":\"BA\",\"normalized\":false}],"
                  "\"model\":{\"vocab\":{\"a\":0,\"b\":1},\"merges\":[]}}");
    check_encoding(t, "aBb", 0, 10, 1);
    check_encoding(t, "ABA", 0, 0, 11);
    check_encoding(t, "aba", 0, 10, 0);
    qn_tokenizer_free(t);
}

static void test_tainted_bytes_are_no_special_token(void **state)
{
    (void)state;
    qn_tokenizer *t = must_load(
        WITH_ADDED("{\"id\":10,\"content\":\"<a>\",\"special\":true},"
                   "{\"id\":11,\"content\":\"xx\",\"special\":false}"));
    const char *text = "<a><a>xx";
    const int32_t first[] = {10, 3, 0, 4, 11}, second[] = {3, 0, 4, 10, 11};
    /* One byte of the token is enough. */
    for (unsigned i = 3; i < 6; i++) {
        uint8_t taint = (uint8_t)(1u << i);
        check_encoding_at(t, qn_str_of(text), QN_ENCODE_PARSE_SPECIAL, &taint,
                          first, 5, __FILE__, __LINE__);
    }
    check_encoding_at(t, qn_str_of(text), QN_ENCODE_PARSE_SPECIAL,
                      (uint8_t[]){0xc4}, second, 5, __FILE__, __LINE__);
    qn_tokenizer_free(t);
}

static void test_taint_follows_text_through_normalizers(void **state)
{
    (void)state;
    qn_tokenizer *t = must_load(
        "{\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":["
        "{\"type\":\"Prepend\",\"prepend\":\"_\"},{\"type\":\"NFC\"},"
        "{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":"
        "\"__\"}]},\"added_tokens\":[{\"id\":10,\"content\":\"<s>\","
        "\"special\":true,\"normalized\":true}],\"model\":{\"vocab\":{"
        "\"_\":0,\"<\":1,\"s\":2,\">\":3,\"\xc3\xa9\":4},\"merges\":[]}}");
    /* The normalizer works on contents, too: "<s>" is "_<s>" there. */
    const char *text = "<s>e\xcc\x81 <s>";
    const int32_t free_ids[] = {10, 4, 0, 10};
    const int32_t taint_second[] = {10, 4, 0, 0, 1, 2, 3};
    const int32_t taint_first[] = {0, 1, 2, 3, 4, 0, 10};
    check_encoding_at(t, qn_str_of(text), QN_ENCODE_PARSE_SPECIAL,
                      (uint8_t[]){0x38, 0x00}, free_ids, 4, __FILE__, __LINE__);
    check_encoding_at(t, qn_str_of(text), QN_ENCODE_PARSE_SPECIAL,
                      (uint8_t[]){0x00, 0x02}, taint_second, 7, __FILE__,
                      __LINE__);
    check_encoding_at(t, qn_str_of(text), QN_ENCODE_PARSE_SPECIAL,
                      (uint8_t[]){0x02, 0x00}, taint_first, 7, __FILE__,
                      __LINE__);
    qn_tokenizer_free(t);
}

static void test_added_tokens_must_agree_with_the_vocabulary(void **state)
{
    (void)state;
    qn_tokenizer *t = NULL;
    check_error(load_text(&t, WITH_ADDED("{\"id\":9,\"content\":\"a\"}")),
                QN_E_MISMATCH, "expected id 0");
    check_error(load_text(&t, WITH_ADDED("{\"id\":0,\"content\":\"q\"}")),
                QN_E_FORMAT, "two tokens");
    assert_string_equal(qn_error_where(), "tokenizer.json: added_tokens[0]");
    check_error(
        load_text(&t, WITH_ADDED("{\"id\":99999999,\"content\":\"q\"}")),
        QN_E_FORMAT, "token id");
    check_error(load_text(&t, WITH_ADDED("{\"id\":10}")), QN_E_FORMAT,
                "expected a string");
    assert_string_equal(qn_error_where(),
                        "tokenizer.json: added_tokens[0].content");
    assert_null(t);
}

/* ---- normalizers ---- */

static void check_normalized(const char *normalizer, qn_str text,
                             const char *expected)
{
    /* A byte-level vocabulary of single bytes shows the text itself. */
    qn_buf json = QN_BUF_INIT, out = QN_BUF_INIT;
    qn_buf_printf(&json,
                  "{\"normalizer\":%s,\"decoder\":{\"type\":\"Sequence\","
                  "\"decoders\":[{\"type\":\"ByteFallback\"}]},\"model\":{"
                  "\"byte_fallback\":true,\"vocab\":{",
                  normalizer);
    for (int i = 0; i < 256; i++)
        qn_buf_printf(&json, "%s\"<0x%02X>\":%d", i ? "," : "", i, i);
    qn_buf_add_text(&json, "},\"merges\":[]}}");
    qn_tokenizer *t = must_load(qn_buf_str(&json).data);
    qn_ids ids = {0};
    check_status(qn_tokenizer_encode(t, &ids, text, 0, NULL), QN_OK);
    check_status(qn_tokenizer_decode(t, &out, ids.data, ids.size, false),
                 QN_OK);
    check_str(qn_buf_str(&out), expected);
    qn_ids_free(&ids);
    qn_tokenizer_free(t);
    qn_buf_free(&json);
    qn_buf_free(&out);
}

static void test_normalizers(void **state)
{
    (void)state;
#define N(rest) "{\"type\":" rest "}"
    check_normalized("null", QN_STR("aB "), "aB ");
    check_normalized(N("\"NFC\""),
                     QN_STR("xe\xcc\x81y\xcc"
                            "\xa7\xcc\x81"),
                     "x\xc3\xa9\xc3\xbd\xcc\xa7");
    check_normalized(N("\"NFD\""),
                     QN_STR("\xc3\xa9"
                            "a"),
                     "e\xcc\x81"
                     "a");
    /* Marks are put in order. */
    check_normalized(N("\"NFD\""), QN_STR("a\xcc\x81\xcc\xa3"),
                     "a\xcc\xa3\xcc\x81");
    check_normalized(N("\"NFC\""),
                     QN_STR("\xe1\x84\x92\xe1\x85\xa1\xe1\x86"
                            "\xab"),
                     "\xed\x95\x9c");
    check_normalized(N("\"NFKC\""), QN_STR("\xef\xac\x81\xe2\x91\xa0"), "fi1");
    check_normalized(N("\"NFKD\""), QN_STR("\xc2\xbd\xef\xbc\xa1"),
                     "1\xe2\x81\x84"
                     "2A");
    check_normalized(N("\"Lowercase\""), QN_STR("A\xc3\x89\xc4\xb0"),
                     "a\xc3\xa9i\xcc\x87");
    check_normalized(N("\"StripAccents\""), QN_STR("e\xcc\x81x"), "ex");
    check_normalized(N("\"Strip\""), QN_STR(" \t a b\xc2\xa0"), "a b");
    check_normalized(N("\"Strip\",\"strip_left\":false"), QN_STR(" a "), " a");
    check_normalized(N("\"Prepend\",\"prepend\":\"_\""), QN_STR("a"), "_a");
    check_normalized(N("\"Prepend\",\"prepend\":\"_\""), QN_STR(""), "");
    check_normalized(
        N("\"Replace\",\"pattern\":{\"String\":\"aa\"},\"content\":\"b\""),
        QN_STR("aaaxa"), "baxa");
    check_normalized(
        N("\"Replace\",\"pattern\":{\"Regex\":\"\\\\s+\"},\"content\":\" \""),
        QN_STR("a \n b  "), "a b ");
    check_normalized(
        N("\"Replace\",\"pattern\":{\"Regex\":\"x*\"},\"content\":\"-\""),
        QN_STR("axb"), "-a-b-");
    check_normalized(
        N("\"Sequence\",\"normalizers\":[{\"type\":\"Sequence\","
          "\"normalizers\":[{\"type\":\"Lowercase\"}]},{\"type\":\"Prepend\","
          "\"prepend\":\"A\"}]"),
        QN_STR("B"), "Ab");
#undef N
}

static void test_long_runs_of_marks_take_linear_time(void **state)
{
    (void)state;
    enum { MARKS = 50000 };
    qn_tokenizer *t = must_load("{\"normalizer\":{\"type\":\"NFC\"},\"model\":"
                                "{\"vocab\":{\"x\":0},\"merges\":[]}}");
    qn_buf text = QN_BUF_INIT;
    qn_buf_add_char(&text, 'x');
    for (int i = 0; i < MARKS; i++)
        qn_buf_add_code(&text, i % 2 ? 0x323 : 0x301);
    qn_ids ids = {0};
    check_status(qn_tokenizer_encode(t, &ids, qn_buf_str(&text), 0, NULL),
                 QN_OK);
    assert_int_equal(ids.size, 1);
    qn_ids_free(&ids);
    qn_buf_free(&text);
    qn_tokenizer_free(t);
}

static void test_growing_normalizers_are_bounded(void **state)
{
    (void)state;
    qn_buf json = QN_BUF_INIT;
    qn_buf_add_text(&json,
                    "{\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[");
    for (int i = 0; i < 60; i++) {
        qn_buf_add_text(&json, "{\"type\":\"Replace\",\"pattern\":{\"String\":"
                               "\"a\"},\"content\":\"");
        for (int k = 0; k < 4096; k++)
            qn_buf_add_char(&json, 'a');
        qn_buf_add_text(&json, "\"},");
    }
    qn_buf_add_text(&json, "{\"type\":\"Lowercase\"}]},\"model\":{\"vocab\":"
                           "{\"a\":0},\"merges\":[]}}");
    qn_tokenizer *t = must_load(qn_buf_str(&json).data);
    qn_ids ids = {0};
    check_status(qn_tokenizer_encode(t, &ids, QN_STR("a"), 0, NULL),
                 QN_E_NOMEM);
    assert_int_equal(ids.size, 0);
    qn_ids_free(&ids);
    qn_tokenizer_free(t);
    qn_buf_free(&json);
}

/* ---- pre-tokenizers ---- */

/* The words of `text`, shown by a vocabulary in which a space begins each
 * token's place: every character is its own token, and every word of `words`
 * is one (ignore_merges). */
static void check_words(const char *pretok, const char *text,
                        const char *expected)
{
    qn_buf json = QN_BUF_INIT, out = QN_BUF_INIT;
    qn_buf_printf(&json,
                  "{\"pre_tokenizer\":%s,\"model\":{\"ignore_merges\":"
                  "true,\"vocab\":{",
                  pretok);
    /* Each expected word is a token; nothing else is. */
    int32_t id = 0;
    for (const char *p = expected; *p;) {
        size_t size = strcspn(p, "|");
        bool seen = false;
        for (const char *q = expected; q < p; q += strcspn(q, "|") + 1)
            seen |= strcspn(q, "|") == size && !memcmp(p, q, size);
        if (!seen) {
            qn_buf_add_text(&json, id ? "," : "");
            qn_json_quote(&json, (qn_str){p, size});
            qn_buf_printf(&json, ":%d", (int)id++);
        }
        p += size + (p[size] == '|');
    }
    qn_buf_add_text(&json, "},\"merges\":[]}}");
    qn_tokenizer *t = must_load(qn_buf_str(&json).data);
    qn_ids ids = {0};
    check_status(qn_tokenizer_encode(t, &ids, qn_str_of(text), 0, NULL), QN_OK);
    for (size_t i = 0; i < ids.size; i++) {
        qn_buf_add_text(&out, i ? "|" : "");
        qn_buf_add_str(&out, qn_tokenizer_token_text(t, ids.data[i]));
    }
    check_str(qn_buf_str(&out), expected);
    qn_ids_free(&ids);
    qn_tokenizer_free(t);
    qn_buf_free(&json);
    qn_buf_free(&out);
}

#define SPLIT(pattern, behavior)                                               \
    "{\"type\":\"Split\",\"pattern\":{" pattern "},\"behavior\":\"" behavior   \
    "\"}"
#define SPLIT_INVERTED(pattern, behavior)                                      \
    "{\"type\":\"Split\",\"pattern\":{" pattern "},\"behavior\":\"" behavior   \
    "\",\"invert\":true}"
#define DASH "\"String\":\"-\""

static void test_split_behaviors(void **state)
{
    (void)state;
    const char *text = "-aa--b-c";
    check_words(SPLIT(DASH, "Removed"), text, "aa|b|c");
    check_words(SPLIT(DASH, "Isolated"), text, "-|aa|-|-|b|-|c");
    check_words(SPLIT(DASH, "MergedWithPrevious"), text, "-|aa-|-|b-|c");
    check_words(SPLIT(DASH, "MergedWithNext"), text, "-aa|-|-b|-c");
    check_words(SPLIT(DASH, "Contiguous"), text, "-|aa|--|b|-|c");
    check_words(SPLIT_INVERTED("\"Regex\":\"[a-z]+\"", "Removed"), text,
                "aa|b|c");
    check_words(SPLIT("\"Regex\":\"(?=b)|-$\"", "Isolated"), "aabb-",
                "aa|b|b|-");
    check_words(SPLIT("\"String\":\"\"", "Isolated"), text, "-aa--b-c");
}

static void test_other_pretokenizers(void **state)
{
    (void)state;
    check_words("{\"type\":\"Digits\"}",
                "a12\xd9\xa3"
                "b",
                "a|12\xd9\xa3|b");
    check_words("{\"type\":\"Digits\",\"individual_digits\":true}", "a12b",
                "a|1|2|b");
    check_words("{\"type\":\"Punctuation\"}", "a,.b$\xe3\x80\x82",
                "a|,|.|b|$|\xe3\x80\x82");
    check_words("{\"type\":\"WhitespaceSplit\"}", " a \n b,c ", "a|b,c");
    check_words("{\"type\":\"Whitespace\"}", " a_1 b,,c\xc2\xb2 ",
                "a_1|b|,,|c|\xc2\xb2");
#define MARK "\xe2\x96\x81"
    check_words("{\"type\":\"Metaspace\"}", "a b", MARK "a|" MARK "b");
    check_words("{\"type\":\"Metaspace\",\"prepend_scheme\":\"never\"}", "a  b",
                "a|" MARK "|" MARK "b");
    check_words("{\"type\":\"Metaspace\",\"split\":false}", " a b",
                MARK "a" MARK "b");
    check_words("{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":"
                "\"WhitespaceSplit\"},{\"type\":\"Metaspace\","
                "\"prepend_scheme\":\"first\"}]}",
                "a b", MARK "a|b");
#undef MARK
}

static void test_byte_level_words(void **state)
{
    (void)state;
    qn_tokenizer *t = must_load(
        "{\"pre_tokenizer\":{\"type\":\"ByteLevel\"},\"decoder\":{\"type\":"
        "\"ByteLevel\"},\"model\":{\"vocab\":{\"a\":0,\"\xc4\xa0\":1,"
        "\"\xc4\xa0"
        "a\":2,\"\xc3\x83\":3,\"\xc2\xa9\":4,\"\xc4\xac\":5},\"merges\":["
        "\"\xc4\xa0 a\"]}}");
    check_encoding(t, "a", 0, 2);
    check_encoding(t, "  a", 0, 1, 2);
    check_encoding(t, "\xc3\xa9", 0, 1, 3, 4);
    qn_buf bytes = QN_BUF_INIT;
    check_status(qn_tokenizer_token_bytes(t, &bytes, 3), QN_OK);
    check_status(qn_tokenizer_token_bytes(t, &bytes, 2), QN_OK);
    check_str(qn_buf_str(&bytes), "\xc3 a");
    check_error(qn_tokenizer_token_bytes(t, &bytes, 6), QN_E_ARG, "6");
    qn_buf_free(&bytes);
    qn_tokenizer_free(t);
}

/* ---- post-processors and tokenizer_config.json ---- */

#define FRAMED(post)                                                           \
    "{\"post_processor\":" post ",\"model\":{\"vocab\":{\"a\":0,\"<s>\":1,"    \
    "\"</s>\":2},\"merges\":[]}}"
#define TEMPLATE                                                               \
    "{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":"  \
    "\"<s>\",\"type_id\":0}},{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}],"    \
    "\"special_tokens\":{\"<s>\":{\"id\":\"<s>\",\"ids\":[1]}}}"

static void test_post_processors(void **state)
{
    (void)state;
    qn_tokenizer *t = must_load(FRAMED(TEMPLATE));
    check_encoding(t, "a", QN_ENCODE_ADD_SPECIAL, 1, 0);
    check_encoding(t, "", QN_ENCODE_ADD_SPECIAL, 1);
    check_encoding(t, "a", 0, 0);
    qn_tokenizer_free(t);
    t = must_load(FRAMED("{\"type\":\"RobertaProcessing\",\"cls\":[\"<s>\",1],"
                         "\"sep\":[\"</s>\",2]}"));
    check_encoding(t, "a", QN_ENCODE_ADD_SPECIAL, 1, 0, 2);
    qn_tokenizer_free(t);
    t = must_load(FRAMED("{\"type\":\"Sequence\",\"processors\":[" TEMPLATE
                         ",{\"type\":\"ByteLevel\"},{\"type\":"
                         "\"BertProcessing\",\"cls\":[\"</s>\",2],\"sep\":["
                         "\"</s>\",2]}]}"));
    check_encoding(t, "a", QN_ENCODE_ADD_SPECIAL, 2, 1, 0, 2);
    qn_tokenizer_free(t);
    check_error(load_text(&t, FRAMED("{\"type\":\"RobertaProcessing\",\"cls\":"
                                     "[\"<s>\",7],\"sep\":[\"</s>\",2]}")),
                QN_E_MISMATCH, "7");
}

static void check_config(const char *config, size_t before, size_t after,
                         int32_t bos, int32_t eos, int32_t pad)
{
    const char *json = FRAMED(TEMPLATE);
    qn_tokenizer *t = NULL;
    check_status(qn_tokenizer_from_json(
                     &t, (qn_bytes){(const uint8_t *)json, strlen(json)},
                     (qn_bytes){(const uint8_t *)config, strlen(config)}),
                 QN_OK);
    assert_int_equal(qn_tokenizer_bos(t), bos);
    assert_int_equal(qn_tokenizer_eos(t), eos);
    assert_int_equal(qn_tokenizer_pad(t), pad);
    qn_ids ids = {0}, ends = {0};
    check_status(
        qn_tokenizer_encode(t, &ids, QN_STR("a"), QN_ENCODE_ADD_SPECIAL, NULL),
        QN_OK);
    assert_int_equal(ids.size, before + 1 + after);
    assert_int_equal(ids.data[before], 0);
    check_status(qn_tokenizer_end_ids(t, &ends), QN_OK);
    assert_int_equal(ends.size, eos >= 0);
    qn_ids_free(&ids);
    qn_ids_free(&ends);
    qn_tokenizer_free(t);
}

static void test_the_config_names_tokens_and_frames_text(void **state)
{
    (void)state;
    check_config("{}", 1, 0, -1, -1, -1);
    check_config("{\"bos_token\":\"<s>\",\"eos_token\":{\"content\":\"</s>\"},"
                 "\"pad_token\":\"nope\"}",
                 1, 0, 1, 2, -1);
    /* The template has a BOS already: no second one. */
    check_config("{\"bos_token\":\"<s>\",\"add_bos_token\":true,\"pad_token\":"
                 "\"a\"}",
                 1, 0, 1, -1, 0);
    check_config("{\"bos_token\":\"<s>\",\"add_bos_token\":false}", 0, 0, 1, -1,
                 -1);
    check_config("{\"eos_token\":\"</s>\",\"add_eos_token\":true}", 1, 1, -1, 2,
                 -1);
    const char *json = FRAMED(TEMPLATE);
    qn_tokenizer *t = NULL;
    check_error(qn_tokenizer_from_json(
                    &t, (qn_bytes){(const uint8_t *)json, strlen(json)},
                    (qn_bytes){(const uint8_t *)"[]", 2}),
                QN_E_FORMAT, "expected an object");
    assert_string_equal(qn_error_where(), "tokenizer_config.json");
}

/* ---- refusals ---- */

static void test_unknown_components_are_refused_with_their_path(void **state)
{
    (void)state;
#define MODEL "\"model\":{\"vocab\":{\"a\":0},\"merges\":[]}}"
    const struct {
        const char *json, *where;
    } files[] = {
        {"{\"model\":{\"type\":\"Quantum\",\"vocab\":{}}}", "model.type"},
        {"{\"normalizer\":{\"type\":\"Foo\"}," MODEL, "normalizer.type"},
        {"{\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":"
         "\"NFC\"},{\"type\":\"Foo\"}]}," MODEL,
         "normalizer.normalizers[1].type"},
        {"{\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{"
         "\"type\":\"Foo\"}]}," MODEL,
         "pre_tokenizer.pretokenizers[0].type"},
        {"{\"pre_tokenizer\":{\"type\":\"Split\",\"behavior\":\"Isolated\","
         "\"pattern\":{\"Regex\":\"(\"}}," MODEL,
         "pre_tokenizer.pattern.Regex"},
        {"{\"pre_tokenizer\":{\"type\":\"Split\",\"behavior\":\"Foo\","
         "\"pattern\":{\"String\":\"(\"}}," MODEL,
         "pre_tokenizer.behavior"},
        {"{\"post_processor\":{\"type\":\"Foo\"}," MODEL,
         "post_processor.type"},
        {"{\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":"
         "\"Fuse\"},{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Foo\"}]}]"
         "}," MODEL,
         "decoder.decoders[1].decoders[0].type"},
        {"{\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":"
         "\"Fuse\"},{\"type\":\"ByteFallback\"}]}," MODEL,
         "decoder.decoders[1]"},
    };
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        qn_tokenizer *t = NULL;
        qn_error_clear();
        check_status(load_text(&t, files[i].json), QN_E_UNSUPPORTED);
        assert_null(t);
        qn_buf where = QN_BUF_INIT;
        qn_buf_printf(&where, "tokenizer.json: %s", files[i].where);
        assert_string_equal(qn_error_where(), where.data);
        qn_buf_free(&where);
    }
}

static void test_contradictions_are_refused_with_their_path(void **state)
{
    (void)state;
    const struct {
        const char *json, *where;
    } files[] = {
        {"[]", ""},
        {"", ""},
        {"{}", ": model"},
        {"{\"model\":3}", ": model"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0}}}",
         ": model.merges"},
        {"{\"model\":{\"merges\":[]}}", ": model.vocab"},
        {"{\"model\":{\"vocab\":[],\"merges\":[]}}", ": model.vocab"},
        {"{\"model\":{\"vocab\":{\"a\":0,\"a\":1},\"merges\":[]}}",
         ": model.vocab.a"},
        {"{\"model\":{\"vocab\":{\"a\":0,\"b\":0},\"merges\":[]}}",
         ": model.vocab.b"},
        {"{\"model\":{\"vocab\":{\"a\":-1},\"merges\":[]}}", ": model.vocab.a"},
        {"{\"model\":{\"vocab\":{\"a\":1.5},\"merges\":[]}}",
         ": model.vocab.a"},
        {"{\"model\":{\"vocab\":{\"a\":99999999999},\"merges\":[]}}",
         ": model.vocab.a"},
        {"{\"model\":{\"vocab\":{\"a\":0},\"merges\":{}}}", ": model.merges"},
        {"{\"model\":{\"vocab\":{\"a\":0},\"merges\":[\"a\"]}}",
         ": model.merges[0]"},
        {"{\"model\":{\"vocab\":{\"a\":0},\"merges\":[\"a a\"]}}",
         ": model.merges[0]"},
        {"{\"model\":{\"vocab\":{\"a\":0},\"merges\":[\"a b\"]}}",
         ": model.merges[0]"},
        {"{\"model\":{\"vocab\":{\"a\":0,\"aa\":1},\"merges\":[\"a a\",[\"a\""
         "]]}}",
         ": model.merges[1]"},
        {"{\"model\":{\"vocab\":{\"a\":0,\"aa\":1},\"merges\":[[\"a\",\"a\","
         "\"a\"]]}}",
         ": model.merges[0]"},
        {"{\"model\":{\"vocab\":{},\"vocab\":{},\"merges\":[]}}",
         ": model.vocab"},
        {"{\"model\":{\"vocab\":{},\"merges\":[]},\"model\":{}}", ""},
        {"{\"decoder\":null,\"decoder\":null,\"model\":{\"vocab\":{},"
         "\"merges\":[]}}",
         ""},
        {"{\"model\":{\"vocab\":{},\"merges\":[]}} x", ""},
        {"{\"model\":{\"byte_fallback\":1,\"vocab\":{},\"merges\":[]}}",
         ": model.byte_fallback"},
    };
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        qn_tokenizer *t = NULL;
        qn_error_clear();
        check_status(load_text(&t, files[i].json), QN_E_FORMAT);
        assert_null(t);
        qn_buf where = QN_BUF_INIT;
        qn_buf_printf(&where, "tokenizer.json%s", files[i].where);
        assert_string_equal(qn_error_where(), where.data);
        qn_buf_free(&where);
    }
}

static void test_cut_and_flipped_files_are_refused_or_read(void **state)
{
    (void)state;
    size_t size;
    char *text = read_file(CASES "fixtures/tokenizers/spm_legacy.json", &size);
    qn_tokenizer *t = NULL;
    for (size_t cut = 0; cut + 2 < size; cut += 1 + cut / 40) {
        uint8_t *copy = exact_copy(text, cut);
        check_status(
            qn_tokenizer_from_json(&t, (qn_bytes){copy, cut}, (qn_bytes){0}),
            QN_E_FORMAT);
        free(copy);
    }
    uint32_t seed = 1;
    for (int i = 0; i < 400; i++) {
        uint8_t *copy = exact_copy(text, size);
        seed = seed * 1664525 + 1013904223;
        copy[seed % size] ^= (uint8_t)(1u << (seed >> 29));
        qn_ids ids = {0};
        if (!qn_tokenizer_from_json(&t, (qn_bytes){copy, size},
                                    (qn_bytes){0})) {
            qn_tokenizer_encode(t, &ids, QN_STR("Hello \xc3\xa9 <s>"), 3, NULL);
            qn_tokenizer_free(t);
            t = NULL;
        }
        qn_ids_free(&ids);
        free(copy);
    }
    qn_free(text);
}

static void test_invalid_text_is_refused_with_its_offset(void **state)
{
    (void)state;
    qn_tokenizer *t = load_fixture(QN_STR("tokenizers/bytelevel.json"));
    qn_ids ids = {0};
    check_status(qn_ids_add(&ids, 42), QN_OK);
    check_error(qn_tokenizer_encode(t, &ids, QN_STR("ab\xff"), 0, NULL),
                QN_E_ARG, "byte 2");
    check_error(qn_tokenizer_encode(t, &ids, QN_STR("\xe4\xb8"), 0, NULL),
                QN_E_ARG, "byte 0");
    assert_int_equal(ids.size, 1);
    qn_ids_free(&ids);
    qn_tokenizer_free(t);
}

/* ---- GGUF ---- */

static void put(qn_buf *out, const void *data, size_t size)
{
    qn_buf_add(out, data, size);
}

static void put_u32(qn_buf *out, uint32_t value)
{
    uint8_t bytes[4];
    qn_put_le32(bytes, value);
    put(out, bytes, sizeof bytes);
}

static void put_u64(qn_buf *out, uint64_t value)
{
    uint8_t bytes[8];
    qn_put_le64(bytes, value);
    put(out, bytes, sizeof bytes);
}

static void put_str(qn_buf *out, const char *text)
{
    put_u64(out, strlen(text));
    put(out, text, strlen(text));
}

static void put_key_str(qn_buf *out, const char *key, const char *value)
{
    put_str(out, key);
    put_u32(out, QN_GGUF_STRING);
    put_str(out, value);
}

static void put_key_strs(qn_buf *out, const char *key, const char *const *list,
                         size_t count)
{
    put_str(out, key);
    put_u32(out, QN_GGUF_ARRAY);
    put_u32(out, QN_GGUF_STRING);
    put_u64(out, count);
    for (size_t i = 0; i < count; i++)
        put_str(out, list[i]);
}

static void put_key_u32(qn_buf *out, const char *key, uint32_t value)
{
    put_str(out, key);
    put_u32(out, QN_GGUF_U32);
    put_u32(out, value);
}

/* What a file holds; a NULL or zero member is left out. */
typedef struct gguf_file {
    const char *model, *pre;
    const char *tokens[8];
    uint32_t types[8];
    size_t types_count; /* if not the number of tokens */
    const char *merges[4];
    uint32_t bos, eos, eot; /* id + 1 */
    int add_bos;            /* 1: false, 2: true */
} gguf_file;

static size_t count_strs(const char *const *list, size_t max)
{
    size_t count = 0;
    while (count < max && list[count])
        count++;
    return count;
}

static void write_gguf(qn_buf *out, const gguf_file *f)
{
    qn_buf keys = QN_BUF_INIT;
    uint64_t count = 0;
    size_t tokens = count_strs(f->tokens, 8);
    if (f->model)
        put_key_str(&keys, "tokenizer.ggml.model", f->model), count++;
    if (f->pre)
        put_key_str(&keys, "tokenizer.ggml.pre", f->pre), count++;
    if (tokens) {
        put_key_strs(&keys, "tokenizer.ggml.tokens", f->tokens, tokens);
        count++;
    }
    if (f->types[0]) {
        size_t types = f->types_count ? f->types_count : tokens;
        put_str(&keys, "tokenizer.ggml.token_type");
        put_u32(&keys, QN_GGUF_ARRAY);
        put_u32(&keys, QN_GGUF_I32);
        put_u64(&keys, types);
        for (size_t i = 0; i < types; i++)
            put_u32(&keys, f->types[i]);
        count++;
    }
    if (f->merges[0]) {
        put_key_strs(&keys, "tokenizer.ggml.merges", f->merges,
                     count_strs(f->merges, 4));
        count++;
    }
    if (f->bos)
        put_key_u32(&keys, "tokenizer.ggml.bos_token_id", f->bos - 1), count++;
    if (f->eos)
        put_key_u32(&keys, "tokenizer.ggml.eos_token_id", f->eos - 1), count++;
    if (f->eot)
        put_key_u32(&keys, "tokenizer.ggml.eot_token_id", f->eot - 1), count++;
    if (f->add_bos) {
        put_str(&keys, "tokenizer.ggml.add_bos_token");
        put_u32(&keys, QN_GGUF_BOOL);
        qn_buf_add_char(&keys, f->add_bos == 2);
        count++;
    }
    put(out, "GGUF", 4);
    put_u32(out, 3);
    put_u64(out, 0);
    put_u64(out, count);
    qn_buf_add_str(out, qn_buf_str(&keys));
    assert_false(out->failed || keys.failed);
    qn_buf_free(&keys);
}

static qn_status load_gguf(qn_tokenizer **out, const gguf_file *f)
{
    qn_buf bytes = QN_BUF_INIT;
    write_gguf(&bytes, f);
    qn_gguf *gguf = NULL;
    check_status(qn_gguf_parse(&gguf, (qn_bytes){(const uint8_t *)bytes.data,
                                                 bytes.size}),
                 QN_OK);
    qn_status status = qn_tokenizer_from_gguf(out, gguf);
    /* The tokenizer keeps nothing of the file. */
    qn_gguf_free(gguf);
    qn_buf_free(&bytes);
    return status;
}

static const gguf_file small_gguf = {
    .model = "gpt2",
    .pre = "llama-bpe",
    .tokens = {"a", "\xc4\xa0",
               "\xc4\xa0"
               "a",
               "<|eot_id|>", "<b>", "aa", "<|im_end|>", "u"},
    .types = {1, 1, 1, 3, 4, 1, 1, 2},
    .merges = {"\xc4\xa0 a"},
    .bos = 5,
    .eos = 8,
    .eot = 8,
};

static void test_gguf_keys_make_a_tokenizer(void **state)
{
    (void)state;
    qn_tokenizer *t = NULL;
    check_status(load_gguf(&t, &small_gguf), QN_OK);
    assert_string_equal(qn_tokenizer_kind(t), "bpe");
    check_encoding(t, "a a", 0, 0, 2);
    /* Llama 3's files: words in the vocabulary skip merges, BOS by default. */
    check_encoding(t, "aa", QN_ENCODE_ADD_SPECIAL, 4, 5);
    check_encoding(t, "a<b><|eot_id|>", QN_ENCODE_PARSE_SPECIAL, 0, 4, 3);
    check_encoding(t, "<b>u", 0, 4, 7);
    assert_true(qn_tokenizer_is_special(t, 3));
    assert_true(qn_tokenizer_is_special(t, 7));
    assert_false(qn_tokenizer_is_special(t, 4));
    assert_false(qn_tokenizer_is_special(t, 6));
    /* eos and eot are one; the control token ends; <|im_end|>, a normal
     * token here, does not. */
    qn_ids ends = {0};
    check_status(qn_tokenizer_end_ids(t, &ends), QN_OK);
    assert_int_equal(ends.size, 2);
    assert_int_equal(ends.data[0], 7);
    assert_int_equal(ends.data[1], 3);
    qn_ids_free(&ends);
    qn_buf text = QN_BUF_INIT;
    check_status(
        qn_tokenizer_decode(t, &text, (int32_t[]){0, 2, 3, 4}, 4, true), QN_OK);
    check_str(qn_buf_str(&text), "a a<b>");
    qn_buf_free(&text);
    qn_tokenizer_free(t);
    gguf_file f = small_gguf;
    f.add_bos = 1;
    check_status(load_gguf(&t, &f), QN_OK);
    check_encoding(t, "aa", QN_ENCODE_ADD_SPECIAL, 5);
    qn_tokenizer_free(t);
    f.pre = "gpt-2";
    f.add_bos = 0;
    check_status(load_gguf(&t, &f), QN_OK);
    check_encoding(t, "aa", QN_ENCODE_ADD_SPECIAL, 0, 0);
    qn_tokenizer_free(t);
}

static void test_every_gguf_splitter_loads(void **state)
{
    (void)state;
    size_t count;
    const qn_splitter *splitters = qn_splitters(&count);
    for (size_t i = 0; i < count; i++) {
        gguf_file f = small_gguf;
        f.pre = splitters[i].name;
        qn_tokenizer *t = NULL;
        check_status(load_gguf(&t, &f), QN_OK);
        check_encoding(t, "a a a", 0, 0, 2, 2);
        qn_tokenizer_free(t);
    }
}

static void test_bad_gguf_keys_are_refused(void **state)
{
    (void)state;
    qn_tokenizer *t = NULL;
    gguf_file f = small_gguf;
#define REFUSED(member, value, status, key)                                    \
    f = small_gguf;                                                            \
    f.member = value;                                                          \
    qn_error_clear();                                                          \
    check_status(load_gguf(&t, &f), status);                                   \
    assert_string_equal(qn_error_where(), "tokenizer.ggml." key)
    REFUSED(pre, "whitespace", QN_E_UNSUPPORTED, "pre");
    REFUSED(model, "rwkv", QN_E_UNSUPPORTED, "model");
    REFUSED(model, NULL, QN_E_FORMAT, "model");
    REFUSED(tokens[0], NULL, QN_E_FORMAT, "tokens");
    REFUSED(tokens[0], "\xff", QN_E_FORMAT, "tokens");
    REFUSED(merges[0], NULL, QN_E_FORMAT, "merges");
    REFUSED(merges[0], "a q", QN_E_FORMAT, "merges");
    REFUSED(merges[0], "a", QN_E_FORMAT, "merges");
    REFUSED(types[1], 9, QN_E_FORMAT, "token_type");
    REFUSED(types_count, 7, QN_E_FORMAT, "token_type");
    REFUSED(bos, 100, QN_E_FORMAT, "bos_token_id");
    REFUSED(eos, UINT32_MAX, QN_E_FORMAT, "eos_token_id");
#undef REFUSED
    assert_null(t);
}

/* ---- memory and threads ---- */

static char *alloc_json;
static size_t alloc_json_size;

static qn_status load_and_encode(void)
{
    qn_tokenizer *t = NULL;
    qn_ids ids = {0};
    qn_buf text = QN_BUF_INIT;
    const char *config = "{\"bos_token\":\"<s>\",\"add_bos_token\":true}";
    qn_status status = qn_tokenizer_from_json(
        &t, (qn_bytes){(const uint8_t *)alloc_json, alloc_json_size},
        (qn_bytes){(const uint8_t *)config, strlen(config)});
    if (status)
        return status;
    uint8_t taint[16] = {0};
    status = qn_tokenizer_encode(
        t, &ids,
        QN_STR("Hello w\xc3\xb6rld<|im_end|>"
               "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrst e\xcc\x81"),
        QN_ENCODE_ADD_SPECIAL | QN_ENCODE_PARSE_SPECIAL, taint);
    if (!status)
        status = qn_tokenizer_decode(t, &text, ids.data, ids.size, false);
    if (!status)
        status = qn_tokenizer_token_bytes(t, &text, 5);
    qn_ids_free(&ids);
    qn_buf_free(&text);
    qn_tokenizer_free(t);
    return status;
}

static void test_each_allocation_may_fail(void **state)
{
    (void)state;
    const char *files[] = {
        CASES "fixtures/tokenizers/spm_legacy.json",
        CASES "fixtures/tokenizers/spm_metaspace.json",
        CASES "fixtures/tokenizers/ignore_merges.json",
    };
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        alloc_json = read_file(files[i], &alloc_json_size);
        each_alloc_may_fail(load_and_encode);
        qn_free(alloc_json);
    }
    /* Expressions and normalizers. */
    const char *json =
        "{\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":"
        "\"NFC\"},{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"x+\"},"
        "\"content\":\"y\"},{\"type\":\"Lowercase\"}]},\"pre_tokenizer\":{"
        "\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\","
        "\"pattern\":{\"Regex\":\"[^\\\\s]+\"},\"behavior\":\"Contiguous\"},{"
        "\"type\":\"ByteLevel\"}]},\"added_tokens\":[{\"id\":9,\"content\":"
        "\"<S>\",\"normalized\":true,\"special\":true}],\"model\":{\"vocab\":{"
        "\"a\":0,\"e\":5},\"merges\":[]}}";
    alloc_json = qn_strdup(json);
    alloc_json_size = strlen(json);
    each_alloc_may_fail(load_and_encode);
    qn_free(alloc_json);
}

static qn_buf alloc_gguf;

static qn_status load_from_gguf(void)
{
    qn_gguf *gguf = NULL;
    qn_tokenizer *t = NULL;
    qn_status status = qn_gguf_parse(
        &gguf, (qn_bytes){(const uint8_t *)alloc_gguf.data, alloc_gguf.size});
    if (!status)
        status = qn_tokenizer_from_gguf(&t, gguf);
    qn_tokenizer_free(t);
    qn_gguf_free(gguf);
    return status;
}

static void test_each_allocation_of_a_gguf_load_may_fail(void **state)
{
    (void)state;
    gguf_file f = small_gguf;
    f.pre = "default"; /* expressions, not a written-out rule */
    write_gguf(&alloc_gguf, &f);
    each_alloc_may_fail(load_from_gguf);
    qn_buf_free(&alloc_gguf);
}

static void *encode_many(void *data)
{
    const qn_tokenizer *t = data;
    for (int i = 0; i < 50; i++) {
        qn_ids ids = {0};
        qn_buf text = QN_BUF_INIT;
        const char *hello = "Hello 1234 world, don't <|im_end|> \xc3\xa9";
        qn_status status = qn_tokenizer_encode(t, &ids, qn_str_of(hello),
                                               QN_ENCODE_PARSE_SPECIAL, NULL);
        if (!status)
            status = qn_tokenizer_decode(t, &text, ids.data, ids.size, false);
        bool same = !status && qn_str_is(qn_buf_str(&text), hello);
        qn_ids_free(&ids);
        qn_buf_free(&text);
        if (!same)
            return "differs";
    }
    return NULL;
}

static void test_threads_share_a_tokenizer(void **state)
{
    (void)state;
    enum { THREADS = 4 };
    pthread_t threads[THREADS];
    qn_tokenizer *t = load_fixture(QN_STR("tokenizers/bytelevel.json"));
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, encode_many, t), 0);
    for (int i = 0; i < THREADS; i++) {
        void *result = "not joined";
        assert_int_equal(pthread_join(threads[i], &result), 0);
        assert_null(result);
    }
    qn_tokenizer_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases_of_bug_reports),
        cmocka_unit_test(test_merges_apply_by_rank_then_from_the_left),
        cmocka_unit_test(test_short_and_long_words_merge_alike),
        cmocka_unit_test(test_a_word_of_a_mebibyte),
        cmocka_unit_test(test_unknown_characters),
        cmocka_unit_test(test_affixes_of_subwords),
        cmocka_unit_test(test_a_word_in_the_vocabulary_may_skip_merges),
        cmocka_unit_test(test_the_longest_added_token_matches),
        cmocka_unit_test(test_added_tokens_swallow_white_space),
        cmocka_unit_test(test_normalized_added_tokens_match_normalized_text),
        cmocka_unit_test(test_tainted_bytes_are_no_special_token),
        cmocka_unit_test(test_taint_follows_text_through_normalizers),
        cmocka_unit_test(test_added_tokens_must_agree_with_the_vocabulary),
        cmocka_unit_test(test_normalizers),
        cmocka_unit_test(test_long_runs_of_marks_take_linear_time),
        cmocka_unit_test(test_growing_normalizers_are_bounded),
        cmocka_unit_test(test_split_behaviors),
        cmocka_unit_test(test_other_pretokenizers),
        cmocka_unit_test(test_byte_level_words),
        cmocka_unit_test(test_post_processors),
        cmocka_unit_test(test_the_config_names_tokens_and_frames_text),
        cmocka_unit_test(test_unknown_components_are_refused_with_their_path),
        cmocka_unit_test(test_contradictions_are_refused_with_their_path),
        cmocka_unit_test(test_cut_and_flipped_files_are_refused_or_read),
        cmocka_unit_test(test_invalid_text_is_refused_with_its_offset),
        cmocka_unit_test(test_gguf_keys_make_a_tokenizer),
        cmocka_unit_test(test_every_gguf_splitter_loads),
        cmocka_unit_test(test_bad_gguf_keys_are_refused),
        cmocka_unit_test(test_each_allocation_may_fail),
        cmocka_unit_test(test_each_allocation_of_a_gguf_load_may_fail),
        cmocka_unit_test(test_threads_share_a_tokenizer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
