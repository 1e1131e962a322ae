/* Which files of a repository are fetched, and what a listing may say. */
#include "support/qn_test.h"

#include "hub/select.h"

static const char commit[] = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

/* The names that a selection chooses, joined with spaces. */
static char found[2048];

static qn_status select_names(const char *const *names, size_t count,
                              const qn_selection *s, bool wants_candidates)
{
    qn_hub_file files[32] = {0};
    bool chosen[32], candidates[32];
    for (size_t i = 0; i < count; i++)
        files[i].name = names[i];
    qn_listing listing = {.files = files, .count = count};
    qn_status status = qn_select(chosen, candidates, &listing, s);
    *found = '\0';
    for (size_t i = 0; i < count; i++)
        if (wants_candidates ? candidates[i] : chosen[i])
            snprintf(found + strlen(found), sizeof found - strlen(found),
                     "%s%s", *found ? " " : "", names[i]);
    return status;
}

#define check_selected(names, selection, expected)                             \
    do {                                                                       \
        check_status(select_names(names, sizeof names / sizeof *names,         \
                                  selection, false),                           \
                     QN_OK);                                                   \
        assert_string_equal(found, expected);                                  \
    } while (0)

static void test_a_load_gets_what_it_needs_and_no_more(void **state)
{
    (void)state;
    static const char *const names[] = {".gitattributes",
                                        "LICENSE",
                                        "README.md",
                                        "config.json",
                                        "consolidated.safetensors",
                                        "merges.txt",
                                        "model-00001-of-00002.safetensors",
                                        "model-00002-of-00002.safetensors",
                                        "model.safetensors.index.json",
                                        "modeling_x.py",
                                        "onnx/model.onnx",
                                        "original/model.safetensors",
                                        "pytorch_model.bin",
                                        "tokenizer.json",
                                        "tokenizer_config.json",
                                        "training_args.bin",
                                        "vocab.json"};
    qn_selection all = {0};
    check_selected(names, &all,
                   "LICENSE config.json model-00001-of-00002.safetensors "
                   "model-00002-of-00002.safetensors "
                   "model.safetensors.index.json tokenizer.json "
                   "tokenizer_config.json");
    const char *no_shards[] = {"*.safetensors"};
    qn_selection less = {.exclude = no_shards, .exclude_count = 1};
    check_selected(names, &less,
                   "LICENSE config.json model.safetensors.index.json "
                   "tokenizer.json tokenizer_config.json");
    const char *read[] = {"README.md", "original/*"};
    qn_selection other = {.include = read, .include_count = 2};
    check_selected(names, &other, "README.md original/model.safetensors");
}

static void test_code_and_pickles_are_never_fetched(void **state)
{
    (void)state;
    static const char *const names[] = {"config.json", "model.bin", "x.py",
                                        "model.safetensors"};
    const char *everything[] = {"*"};
    qn_selection all = {.include = everything, .include_count = 1};
    check_selected(names, &all, "config.json model.safetensors");
    const char *pickle[] = {"*.bin"};
    qn_selection one = {.include = pickle, .include_count = 1};
    check_error(select_names(names, 4, &one, false), QN_E_NOTFOUND,
                "--include *.bin");
    qn_selection none = {0};
    check_error(select_names(names, 3, &none, false), QN_E_UNSUPPORTED,
                "model.bin");
}

static void test_embedders_bring_their_modules(void **state)
{
    (void)state;
    static const char *const names[] = {
        "1_Pooling/config.json", "config.json",    "model.safetensors",
        "modules.json",          "tokenizer.json", "x/config.json"};
    qn_selection all = {0};
    check_selected(names, &all,
                   "1_Pooling/config.json config.json model.safetensors "
                   "modules.json tokenizer.json");
}

static const char *const ggufs[] = {"m-IQ3_XS.gguf",
                                    "m-Q4_K_M.gguf",
                                    "m-Q4_K_S.gguf",
                                    "Q8_0/m-Q8_0-00001-of-00002.gguf",
                                    "Q8_0/m-Q8_0-00002-of-00002.gguf",
                                    "mmproj-m-F16.gguf",
                                    "imatrix.gguf",
                                    "config.json",
                                    "LICENSE"};
enum { GGUFS = sizeof ggufs / sizeof *ggufs };

static void test_one_of_several_ggufs_is_chosen(void **state)
{
    (void)state;
    qn_selection none = {0};
    check_status(select_names(ggufs, GGUFS, &none, true), QN_E_ARG);
    assert_string_equal(found, "m-IQ3_XS.gguf m-Q4_K_M.gguf m-Q4_K_S.gguf "
                               "Q8_0/m-Q8_0-00001-of-00002.gguf");
    qn_selection quant = {.selector = "q4_k_m"};
    check_selected(ggufs, &quant, "m-Q4_K_M.gguf LICENSE");
    qn_selection split = {.selector = "Q8_0"};
    check_selected(ggufs, &split,
                   "Q8_0/m-Q8_0-00001-of-00002.gguf "
                   "Q8_0/m-Q8_0-00002-of-00002.gguf LICENSE");
    qn_selection name = {.selector = "m-IQ3_XS.gguf"};
    check_selected(ggufs, &name, "m-IQ3_XS.gguf LICENSE");
    qn_selection part = {.selector = "Q4_K"};
    check_status(select_names(ggufs, GGUFS, &part, true), QN_E_ARG);
    assert_string_equal(found, "m-Q4_K_M.gguf m-Q4_K_S.gguf");
    qn_selection absent = {.selector = "Q2_K"};
    check_error(select_names(ggufs, GGUFS, &absent, false), QN_E_NOTFOUND,
                "Q2_K");
}

static void test_quantizations_are_read_from_names(void **state)
{
    (void)state;
    static const struct {
        const char *name, *quant;
    } rows[] = {
        {"Qwen3-4B-Q4_K_M.gguf", "Q4_K_M"},
        {"model-UD-Q4_K_XL.gguf", "Q4_K_XL"},
        {"llama.iq3_xs.gguf", "IQ3_XS"},
        {"x-Q8_0-00001-of-00002.gguf", "Q8_0"},
        {"Q6_K/x-00001-of-00002.gguf", "Q6_K"},
        {"m-bf16.gguf", "BF16"},
        {"gpt-oss-20b-MXFP4.gguf", "MXFP4"},
        {"m-TQ1_0.gguf", "TQ1_0"},
        {"Qwen3.gguf", ""},
        {"q.gguf", ""},
        {".gguf", ""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char quant[QN_QUANT_SIZE];
        assert_string_equal(qn_gguf_quant(quant, rows[i].name), rows[i].quant);
    }
}

static void test_globs(void **state)
{
    (void)state;
    static const struct {
        const char *pattern, *name;
        bool matches;
    } rows[] = {
        {"*.json", "config.json", true},
        {"*.json", "a/config.json", true},
        {"a/*.json", "a/config.json", true},
        {"b/*.json", "a/config.json", false},
        {"conf??.json", "config.json", true},
        {"conf?.json", "config.json", false},
        {"[a-d]onfig.*", "config.json", true},
        {"[!c]onfig.*", "config.json", false},
        {"[", "[", true},
        {"*a*a*a*a*a*b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaa", false},
        {"", "", true},
        {"", "x", false},
        {"**", "x", true},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_int_equal(qn_hub_glob(rows[i].pattern, rows[i].name),
                         rows[i].matches);
}

static void test_names_stay_inside(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",  "/etc/passwd", "../x",     "a/../x", "a//b", "a/",
        ".", "a/./b",       "a\\..\\b", "a\nb",   ".."};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(qn_hub_name_is_safe(qn_str_of(bad[i])));
    assert_true(qn_hub_name_is_safe(QN_STR("1_Pooling/config.json")));
    assert_true(qn_hub_name_is_safe(QN_STR("a..b")));

    qn_arena arena = {0};
    qn_listing listing = {0};
    char text[512];
    snprintf(text, sizeof text,
             "{\"sha\":\"%s\",\"siblings\":[{\"rfilename\":\"../../x\"}]}",
             commit);
    check_error(qn_listing_read(&listing, &arena, qn_str_of(text)), QN_E_FORMAT,
                "inside the repository");
    check_error(qn_listing_read_tree(
                    &listing, &arena,
                    QN_STR("[{\"type\":\"file\",\"path\":\"/etc/x\"}]")),
                QN_E_FORMAT, "inside the repository");
    qn_arena_free(&arena);
}

static const char info[] =
    "{\"id\":\"t/m\",\"sha\":\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\","
    "\"siblings\":[{\"rfilename\":\"config.json\",\"size\":7,"
    "\"blobId\":\"1111111111111111111111111111111111111111\"},"
    "{\"rfilename\":\"w.safetensors\",\"size\":4000,"
    "\"blobId\":\"2222222222222222222222222222222222222222\","
    "\"lfs\":{\"size\":4000,\"sha256\":\"333333333333333333333333333333333333"
    "3333333333333333333333333333\"}},{\"rfilename\":\"x\"}]}";

static qn_status read_listing(void)
{
    qn_arena arena = {0};
    qn_listing l = {0};
    qn_status status = qn_listing_read(&l, &arena, qn_str_of(info));
    if (!status)
        status = qn_listing_read_tree(
            &l, &arena,
            QN_STR("[{\"type\":\"directory\",\"path\":\"d\"},{\"type\":"
                   "\"file\",\"path\":\"x\",\"size\":5,\"oid\":"
                   "\"4444444444444444444444444444444444444444\"},{\"type\":"
                   "\"file\",\"path\":\"d/y\",\"size\":-1,\"oid\":\"zz\"}]"));
    if (!status) {
        assert_int_equal(l.count, 4);
        assert_string_equal(l.id, "t/m");
        assert_string_equal(l.commit, commit);
        assert_int_equal(l.files[0].size, 7);
        assert_int_equal(l.files[0].hash[0], '1');
        assert_int_equal(l.files[1].hash[0], '3');
        assert_int_equal(l.files[2].size, 5);
        assert_int_equal(l.files[2].hash[0], '4');
        assert_false(l.files[3].sized);
        assert_int_equal(l.files[3].hash[0], '\0');
    }
    qn_arena_free(&arena);
    return status;
}

static void test_listings_are_read(void **state)
{
    (void)state;
    check_status(read_listing(), QN_OK);
    each_alloc_may_fail(read_listing);
}

static void test_answers_that_are_no_listing(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",
        "[]",
        "{}",
        "{\"sha\":\"main\",\"siblings\":[]}",
        "{\"sha\":\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"}",
        "{\"sha\":\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\",\"siblings\":"
        "[{}]}"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        qn_arena arena = {0};
        qn_listing l = {0};
        check_status(qn_listing_read(&l, &arena, qn_str_of(bad[i])),
                     QN_E_FORMAT);
        qn_arena_free(&arena);
    }
}

static void test_references(void **state)
{
    (void)state;
    qn_ref ref;
    check_status(qn_ref_parse(&ref, "hf:org/name@refs/pr/1:Q4_K_M"), QN_OK);
    assert_string_equal(ref.id, "org/name");
    assert_string_equal(ref.revision, "refs/pr/1");
    assert_string_equal(ref.selector, "Q4_K_M");
    qn_ref_clear(&ref);
    static const char *const bad[] = {
        "",   "http://x/y", "a/../b", "a\tb",  "org/", "/org",
        "a@", "a:",         ":Q4",    "@main", "hf:",  "a@/x"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        check_status(qn_ref_parse(&ref, bad[i]), QN_E_ARG);
        qn_ref_clear(&ref);
    }
    assert_true(qn_ref_is_id("gpt2"));
    assert_true(qn_ref_is_id("mlx-community/Qwen3-4B-4bit"));
    assert_false(qn_ref_is_id("a/b/c"));
    assert_false(qn_ref_is_id("a//b"));
    assert_false(qn_ref_is_id("a--b/c"));
    assert_false(qn_ref_is_id("-a/b"));
    assert_false(qn_ref_is_id("a b"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_load_gets_what_it_needs_and_no_more),
        cmocka_unit_test(test_code_and_pickles_are_never_fetched),
        cmocka_unit_test(test_embedders_bring_their_modules),
        cmocka_unit_test(test_one_of_several_ggufs_is_chosen),
        cmocka_unit_test(test_quantizations_are_read_from_names),
        cmocka_unit_test(test_globs),
        cmocka_unit_test(test_names_stay_inside),
        cmocka_unit_test(test_listings_are_read),
        cmocka_unit_test(test_answers_that_are_no_listing),
        cmocka_unit_test(test_references),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
