/* One small tokenizer of each kind: ids, text and streams are those that the
 * Python package `tokenizers` gives, and for GGUF files SentencePiece where it
 * is their original (tests/tools/compare_tokenizers.py --update and
 * compare_gguf_tokenizers.py --update write the files). */
#include "support/qn_test.h"

#include "base/json.h"
#include "text/detok.h"

#include <dirent.h>

#define FOLDER QN_TEST_VECTORS "/text"

enum { KINDS_MAX = 64, JSON_KINDS = 26, GGUF_KINDS = 12 };

/* "tokenizers/bert_uncased.json", "gguf/t5.gguf" */
static char *kinds[KINDS_MAX];
static size_t kind_count;

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Files of FOLDER/`folder` that end in `ending`. */
static void find_in(const char *folder, const char *ending)
{
    qn_buf path = QN_BUF_INIT;
    qn_buf_printf(&path, FOLDER "/%s", folder);
    DIR *dir = opendir(path.data);
    qn_buf_free(&path);
    if (!dir)
        return;
    size_t tail = strlen(ending);
    for (struct dirent *entry; (entry = readdir(dir));) {
        size_t size = strlen(entry->d_name);
        if (size <= tail || strcmp(entry->d_name + size - tail, ending) != 0 ||
            kind_count == KINDS_MAX)
            continue;
        qn_buf name = QN_BUF_INIT;
        qn_buf_printf(&name, "%s/%s", folder, entry->d_name);
        kinds[kind_count++] = qn_buf_take(&name);
    }
    closedir(dir);
}

static int find_kinds(void **state)
{
    (void)state;
    find_in("tokenizers", ".json");
    find_in("gguf", ".gguf");
    qsort(kinds, kind_count, sizeof *kinds, by_name);
    return kind_count == JSON_KINDS + GGUF_KINDS ? 0 : -1;
}

static int free_kinds(void **state)
{
    (void)state;
    for (size_t i = 0; i < kind_count; i++)
        qn_free(kinds[i]);
    return 0;
}

static char *read_kind(const char *name, size_t *size)
{
    char *path = qn_path_join(FOLDER, name), *text = NULL;
    check_status(qn_file_read(&text, size, path, 64 << 20), QN_OK);
    qn_free(path);
    return text;
}

static bool is_gguf(const char *name)
{
    return strstr(name, ".gguf") != NULL;
}

static qn_status parse_kind(qn_tokenizer **out, const char *name, qn_bytes file)
{
    if (!is_gguf(name))
        return qn_tokenizer_from_json(out, file, (qn_bytes){0});
    qn_gguf *gguf = NULL;
    qn_status status = qn_gguf_parse(&gguf, file);
    if (!status)
        status = qn_tokenizer_from_gguf(out, gguf);
    qn_gguf_free(gguf);
    return status;
}

static qn_tokenizer *load_kind(const char *name)
{
    size_t size;
    char *text = read_kind(name, &size);
    qn_tokenizer *t = NULL;
    check_status(parse_kind(&t, name, (qn_bytes){(const uint8_t *)text, size}),
                 QN_OK);
    qn_free(text);
    return t;
}

/* The texts beside the file: its name with another ending. */
static char *read_texts(const char *name)
{
    size_t size;
    qn_buf texts = QN_BUF_INIT;
    qn_buf_printf(&texts, "%.*s.jsonl", (int)(strrchr(name, '.') - name), name);
    char *lines = read_kind(texts.data, &size);
    qn_buf_free(&texts);
    return lines;
}

typedef struct row {
    qn_str text, decoded, plain;
    bool has_decoded, has_plain;
    qn_ids ids;
} row;

static row read_row(const qn_json *root, bool gguf)
{
    row r = {0};
    const qn_json *list = qn_json_get(root, "ids");
    assert_true(qn_json_as_str(qn_json_get(root, "text"), &r.text));
    r.decoded = r.text;
    qn_json_as_str(qn_json_get(root, "decoded"), &r.decoded);
    r.plain = r.decoded;
    qn_json_as_str(qn_json_get(root, "plain"), &r.plain);
    /* Of GGUF files only the plain text is known, and not always. */
    r.has_decoded = !gguf;
    r.has_plain = !qn_json_get(root, "no_plain");
    assert_non_null(list);
    for (size_t i = 0; i < list->count; i++) {
        int64_t id;
        assert_true(qn_json_as_int(&list->items[i], &id));
        check_status(qn_ids_add(&r.ids, (int32_t)id), QN_OK);
    }
    return r;
}

static bool encodes(const qn_tokenizer *t, const row *r)
{
    qn_ids ids = {0};
    check_status(qn_tokenizer_encode(
                     t, &ids, r->text,
                     QN_ENCODE_ADD_SPECIAL | QN_ENCODE_PARSE_SPECIAL, NULL),
                 QN_OK);
    bool same = ids.size == r->ids.size &&
                (!ids.size ||
                 !memcmp(ids.data, r->ids.data, ids.size * sizeof *ids.data));
    qn_ids_free(&ids);
    return same;
}

static bool decodes(const qn_tokenizer *t, const row *r, bool skip)
{
    if (!(skip ? r->has_plain : r->has_decoded))
        return true;
    qn_buf whole = QN_BUF_INIT, joined = QN_BUF_INIT;
    qn_detok *detok = NULL;
    check_status(qn_tokenizer_decode(t, &whole, r->ids.data, r->ids.size, skip),
                 QN_OK);
    check_status(qn_detok_new(&detok, t, skip), QN_OK);
    for (size_t i = 0; i < r->ids.size; i++)
        check_status(qn_detok_add(detok, &joined, r->ids.data[i]), QN_OK);
    check_status(qn_detok_finish(detok, &joined), QN_OK);
    qn_str wanted = skip ? r->plain : r->decoded;
    bool same = qn_str_eq(qn_buf_str(&whole), wanted) &&
                qn_str_eq(qn_buf_str(&joined), wanted);
    qn_detok_free(detok);
    qn_buf_free(&whole);
    qn_buf_free(&joined);
    return same;
}

/* Calls check(t, row) for each line of the kind's file; returns how many were
 * not as they should be, and shows the first. */
static size_t check_rows(const char *name, const qn_tokenizer *t)
{
    size_t wrong = 0, count = 0;
    char *lines = read_texts(name);
    for (char *line = lines, *end; *line; line = end + 1) {
        end = strchr(line, '\n');
        assert_non_null(end);
        qn_json_doc *doc = NULL;
        check_status(
            qn_json_parse(&doc, (qn_str){line, (size_t)(end - line)}, 0),
            QN_OK);
        row r = read_row(qn_json_root(doc), is_gguf(name));
        bool same =
            encodes(t, &r) && decodes(t, &r, false) && decodes(t, &r, true);
        if (!same && !wrong++)
            print_error("%s: %.*s\n", name, (int)(end - line), line);
        qn_ids_free(&r.ids);
        qn_json_doc_free(doc);
        count++;
    }
    assert_true(count >= 150);
    qn_free(lines);
    return wrong;
}

static void test_every_kind_gives_what_the_package_gives(void **state)
{
    (void)state;
    size_t wrong = 0;
    for (size_t i = 0; i < kind_count; i++) {
        qn_tokenizer *t = load_kind(kinds[i]);
        size_t found = check_rows(kinds[i], t);
        if (found)
            print_error("%s: %zu texts differ\n", kinds[i], found);
        wrong += found;
        qn_tokenizer_free(t);
    }
    assert_int_equal(wrong, 0);
}

static void test_kinds_have_their_names(void **state)
{
    (void)state;
    const char *names[][2] = {{"tokenizers/gpt2.json", "bpe"},
                              {"tokenizers/bert_uncased.json", "wordpiece"},
                              {"tokenizers/xlmr.json", "unigram"},
                              {"tokenizers/word_level.json", "wordlevel"},
                              {"gguf/llama.gguf", "spm"},
                              {"gguf/t5.gguf", "unigram"},
                              {"gguf/bert.gguf", "wordpiece"},
                              {"gguf/gemma4.gguf", "bpe"}};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        qn_tokenizer *t = load_kind(names[i][0]);
        assert_string_equal(qn_tokenizer_kind(t), names[i][1]);
        qn_tokenizer_free(t);
    }
}

/* ---- memory ---- */

static char *file_text;
static size_t file_size;

static const char *file_name;

static qn_status load_and_use(void)
{
    qn_tokenizer *t = NULL;
    qn_ids ids = {0};
    qn_buf text = QN_BUF_INIT;
    qn_status status = parse_kind(
        &t, file_name, (qn_bytes){(const uint8_t *)file_text, file_size});
    if (status)
        return status;
    status = qn_tokenizer_encode(
        t, &ids,
        QN_STR("Hello w\xc3\xb6rld, don't \xef\xbc\xa1 e\xcc\x81 "
               "\xe4\xb8\xad"),
        QN_ENCODE_ADD_SPECIAL, NULL);
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
    const char *names[] = {"tokenizers/bert_uncased.json",
                           "tokenizers/word_level.json",
                           "tokenizers/gpt1.json",
                           "tokenizers/prefixed.json",
                           "tokenizers/xlmr.json",
                           "tokenizers/albert.json",
                           "tokenizers/unigram_bytes.json",
                           "gguf/llama.gguf",
                           "gguf/t5.gguf",
                           "gguf/bert.gguf",
                           "gguf/gemma4.gguf"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        file_name = names[i];
        file_text = read_kind(names[i], &file_size);
        each_alloc_may_fail(load_and_use);
        qn_free(file_text);
    }
}

/* ---- refusals ---- */

/* The file with `part` overwritten by `other` wherever it stands. */
static void check_refused(const char *name, const char *part, const char *other,
                          qn_status expected, const char *where)
{
    size_t size, part_size = strlen(part), changed = 0;
    char *file = read_kind(name, &size);
    assert_int_equal(part_size, strlen(other));
    for (size_t i = 0; i + part_size <= size; i++) {
        if (!memcmp(file + i, part, part_size)) {
            memcpy(file + i, other, part_size);
            changed++;
        }
    }
    assert_true(changed > 0);
    qn_tokenizer *t = NULL;
    qn_error_clear();
    check_status(parse_kind(&t, name, (qn_bytes){(const uint8_t *)file, size}),
                 expected);
    assert_null(t);
    assert_string_equal(qn_error_where(), where);
    qn_free(file);
}

static void test_bad_gguf_keys_are_refused(void **state)
{
    (void)state;
#define GGML "tokenizer.ggml."
    check_refused("gguf/llama.gguf", GGML "scores", GGML "scorez", QN_E_FORMAT,
                  GGML "scores");
    check_refused("gguf/t5.gguf", GGML "scores", GGML "scorez", QN_E_FORMAT,
                  GGML "scores");
    check_refused("gguf/gemma4.gguf", GGML "merges", GGML "merged", QN_E_FORMAT,
                  GGML "merges");
    check_refused("gguf/bert.gguf", "bert", "tree", QN_E_UNSUPPORTED,
                  GGML "model");
#undef GGML
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_kind_gives_what_the_package_gives),
        cmocka_unit_test(test_kinds_have_their_names),
        cmocka_unit_test(test_each_allocation_may_fail),
        cmocka_unit_test(test_bad_gguf_keys_are_refused),
    };
    return cmocka_run_group_tests(tests, find_kinds, free_kinds);
}
