/* Model directories as GGUF files: these compute what their source does, in the
 * same tokens. */
#include "support/qn_convert_test.h"

#include "runtime/runtime.h"

#define MARK "\xe2\x96\x81"

/* A tokenizer that merges by scores: `prefix` as that of Llama 2, else of
 * Gemma. */
static char *tokenizer_json(bool prefix, const char *merges)
{
    static const char *const pieces[] = {
        MARK, "a",   "b",  "c",    "e",      "l",  "o",      "ll",
        "lo", "llo", "el", "ello", MARK "a", "ab", MARK "ab"};
    qn_buf out = QN_BUF_INIT;
    qn_buf_add_text(
        &out,
        "{\"added_tokens\":[{\"id\":0,\"content\":\"<unk>\",\"special\":true},"
        "{\"id\":1,\"content\":\"<s>\",\"special\":true},"
        "{\"id\":2,\"content\":\"</s>\",\"special\":true}],\"normalizer\":");
    const char *replace = "{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"}"
                          ",\"content\":\"" MARK "\"}";
    qn_buf_printf(&out,
                  prefix ? "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":"
                           "\"Prepend\",\"prepend\":\"" MARK "\"},%s]}"
                         : "%s",
                  replace);
    qn_buf_printf(&out,
                  ",\"pre_tokenizer\":null,\"post_processor\":{\"type\":"
                  "\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{"
                  "\"id\":\"<s>\",\"type_id\":0}},{\"Sequence\":{\"id\":\"A\","
                  "\"type_id\":0}}],\"pair\":[{\"Sequence\":{\"id\":\"A\","
                  "\"type_id\":0}},{\"Sequence\":{\"id\":\"B\",\"type_id\":1}}"
                  "],\"special_tokens\":{\"<s>\":{\"id\":\"<s>\",\"ids\":[1],"
                  "\"tokens\":[\"<s>\"]}}},\"decoder\":{\"type\":\"Sequence\","
                  "\"decoders\":[{\"type\":\"Replace\",\"pattern\":{\"String\":"
                  "\"" MARK "\"},\"content\":\" \"},{\"type\":\"ByteFallback\"}"
                  ",{\"type\":\"Fuse\"}%s]},",
                  prefix ? ",{\"type\":\"Strip\",\"content\":\" \",\"start\":1,"
                           "\"stop\":0}"
                         : "");
    qn_buf_add_text(&out, "\"model\":{\"type\":\"BPE\",\"unk_token\":\"<unk>\","
                          "\"fuse_unk\":true,\"byte_fallback\":true,\"vocab\":"
                          "{\"<unk>\":0,\"<s>\":1,\"</s>\":2");
    for (int i = 0; i < 256; i++)
        qn_buf_printf(&out, ",\"<0x%02X>\":%d", i, i + 3);
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++)
        qn_buf_printf(&out, ",\"%s\":%zu", pieces[i], i + 259);
    qn_buf_printf(&out, "},\"merges\":[%s]}}", merges);
    check_status(qn_buf_status(&out), QN_OK);
    return qn_buf_take(&out);
}

/* In the order of scores, each piece's together: what there is of each. */
static const char all_merges[] =
    "[\"l\",\"l\"],[\"" MARK "\",\"a\"],[\"l\",\"o\"],[\"e\",\"l\"],"
    "[\"ll\",\"o\"],[\"l\",\"lo\"],[\"a\",\"b\"],[\"el\",\"lo\"],"
    "[\"e\",\"llo\"],[\"" MARK "\",\"ab\"],[\"" MARK "a\",\"b\"]";

typedef struct change {
    const char *from, *to;
} change;

/* Replaces the first `from` of the model's config.json. */
static void change_config(const char *dir, change c)
{
    char *path = qn_path_join(dir, "config.json"), *text;
    size_t size;
    check_status(qn_file_read(&text, &size, path, 1 << 20), QN_OK);
    char *at = strstr(text, c.from);
    assert_non_null(at);
    qn_buf out = QN_BUF_INIT;
    qn_buf_add(&out, text, (size_t)(at - text));
    qn_buf_add_text(&out, c.to);
    qn_buf_add_text(&out, at + strlen(c.from));
    temp_write(dir, "config.json", out.data, out.size);
    qn_buf_free(&out);
    qn_free(text);
    qn_free(path);
}

static const change scalar = {"\"query_pre_attn_scalar\": 24",
                              "\"query_pre_attn_scalar\": 32"};

typedef struct made {
    char *dir, *to, *source, *file;
} made;

static made make(const char *name, bool prefix, const char *merges)
{
    made m = {.dir = temp_dir_new(), .to = temp_dir_new()};
    m.source = recipe_write(name, m.dir);
    m.file = qn_path_join(m.to, "model.gguf");
    char *text = tokenizer_json(prefix, merges);
    temp_write(m.dir, "tokenizer.json", text, strlen(text));
    qn_free(text);
    return m;
}

static void drop(made *m)
{
    temp_dir_remove(m->dir);
    temp_dir_remove(m->to);
    qn_free(m->source);
    qn_free(m->file);
}

static quern_convert_options to_gguf(void)
{
    quern_convert_options options;
    quern_convert_options_init(&options);
    options.to = "gguf";
    return options;
}

static const char *const texts[] = {
    "hello", " ab a b", "  a  lloel", "cab\xc3\xa9 ello", "", "l l ll lo </s>",
};

static void check_tokens(const char *one, const char *other)
{
    const char *paths[] = {one, other};
    quern_model *models[2];
    quern_options options;
    quern_error error;
    quern_options_init(&options);
    options.headers_only = true;
    for (int i = 0; i < 2; i++)
        if (quern_model_load(&models[i], paths[i], &options, &error))
            fail_msg("%s", error.message);
    for (size_t t = 0; t < sizeof texts / sizeof *texts; t++) {
        int32_t *ids[2];
        size_t count[2];
        for (int i = 0; i < 2; i++)
            assert_int_equal(quern_tokenize(models[i], texts[t],
                                            strlen(texts[t]), QUERN_ADD_SPECIAL,
                                            &ids[i], &count[i], &error),
                             QUERN_OK);
        if (count[0] != count[1] ||
            memcmp(ids[0], ids[1], count[0] * sizeof **ids) != 0)
            fail_msg("%s: other tokens of '%s'", one, texts[t]);
        quern_free(ids[0]);
        quern_free(ids[1]);
    }
    quern_model_free(models[0]);
    quern_model_free(models[1]);
}

static void test_files_compute_what_directories_do(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        bool prefix;
        change changes[2];
    } rows[] = {
        {"llama", true, {{0}}},
        {"llama-untied-bias", true, {{0}}},
        {"llama-rope-linear", true, {{0}}},
        {"mistral-window", true, {{0}}},
        {"qwen2", false, {{0}}},
        {"qwen3", false, {{0}}},
        {"gemma", false, {{0}}},
        {"gemma2", false, {scalar}},
        {"gemma3",
         false,
         {scalar, {"full_attention\"", "sliding_attention\""}}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        made m = make(rows[i].name, rows[i].prefix, all_merges);
        for (int k = 0; k < 2; k++)
            if (rows[i].changes[k].from)
                change_config(m.dir, rows[i].changes[k]);
        quern_convert_options options = to_gguf();
        check_converts(m.source, m.file, &options);
        double off = probe_difference(m.source, m.file);
        if (!(off <= 1e-4))
            fail_msg("%s: logits are off by %g", rows[i].name, off);
        check_tokens(m.source, m.file);
        drop(&m);
    }
}

static void check_refused(made *m, const char *why)
{
    quern_convert_options options = to_gguf();
    quern_error error;
    assert_int_equal(quern_convert(m->source, m->file, &options, NULL, &error),
                     QUERN_E_UNSUPPORTED);
    if (!strstr(error.message, why))
        fail_msg("expected '%s' in: %s", why, error.message);
    assert_int_equal(access(m->file, F_OK), -1);
    drop(m);
}

static void test_what_files_cannot_say_is_refused(void **state)
{
    (void)state;
    made m = make("gemma3", false, all_merges);
    check_refused(&m, "layers with a window");
    m = make("gemma2", false, all_merges);
    check_refused(&m, "query_pre_attn_scalar");
    m = make("llama-rope-llama3", true, all_merges);
    check_refused(&m, "scaling of positions");
    m = make("qwen2-window", false, all_merges);
    check_refused(&m, "layers with a window");
    m = make("phi3", false, all_merges);
    check_refused(&m, "'phi3' is not written");
}

static void test_merges_that_scores_cannot_say_are_refused(void **state)
{
    (void)state;
    /* A piece's merges apart from each other. */
    made m = make("gemma", false,
                  "[\"l\",\"l\"],[\"l\",\"o\"],[\"ll\",\"o\"],[\"a\",\"b\"],"
                  "[\"l\",\"lo\"]");
    check_refused(&m, "not in the order of scores");
    /* l and l make ll, and no merge says so. */
    m = make("gemma", false, "[\"l\",\"o\"]");
    check_refused(&m, "not those of scores");
}

/* Blocks of 4 and 8 bits: into packed groups, and back into the same bytes. */
static void test_blocks_come_back_as_they_were(void **state)
{
    (void)state;
    static const struct {
        const char *name, *tensor;
        int type;
    } rows[] = {
        {"gguf-qwen2", "model.layers.0.mlp.up_proj.weight", QN_GGUF_Q4_0_T},
        {"gguf-qwen3", "model.layers.0.mlp.down_proj.weight", QN_GGUF_Q8_0_T},
        {"gguf-gemma2", "model.layers.1.self_attn.q_proj.weight",
         QN_GGUF_Q8_0_T},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char *dir = temp_dir_new(), *to = temp_dir_new();
        char *source = recipe_write(rows[i].name, dir);
        char *mlx = qn_path_join(to, "mlx"), *back = qn_path_join(to, "b.gguf");
        quern_convert_options options;
        quern_convert_options_init(&options);
        check_converts(source, mlx, &options);
        char *text = tokenizer_json(false, all_merges);
        temp_write(mlx, "tokenizer.json", text, strlen(text));
        qn_free(text);
        options = to_gguf();
        options.exact = true;
        check_converts(mlx, back, &options);
        qn_weights *a, *b;
        check_status(qn_weights_open(&a, source), QN_OK);
        check_status(qn_weights_open(&b, back), QN_OK);
        assert_int_equal(qn_weights_count(a), qn_weights_count(b));
        for (size_t k = 0; k < qn_weights_count(a); k++) {
            const qn_weight *x = qn_weights_at(a, k);
            const qn_weight *y = qn_weights_find(b, x->name);
            assert_non_null(y);
            assert_int_equal(x->type, y->type);
            assert_int_equal(x->data.size, y->data.size);
            assert_memory_equal(x->data.data, y->data.data, x->data.size);
        }
        assert_int_equal(qn_weights_find(b, rows[i].tensor)->type,
                         rows[i].type);
        qn_weights_free(a);
        qn_weights_free(b);
        qn_free(source);
        qn_free(mlx);
        qn_free(back);
        temp_dir_remove(dir);
        temp_dir_remove(to);
    }
}

/* An audit reads no values, and yet sees what a load would refuse. */
static void test_audit_sees_shapes_and_names(void **state)
{
    (void)state;
    static const char *const names[] = {"gemma2", "qwen3-moe", "qwen3-next",
                                        "gemma4", "mlx-llama-affine4"};
    quern_error error;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        made m = make(names[i], false, all_merges);
        if (qn_model_audit(m.source, &error))
            fail_msg("%s: %s", names[i], error.message);
        change_config(m.dir,
                      (change){"\"vocab_size\": 300", "\"vocab_size\": 296"});
        assert_int_equal(qn_model_audit(m.source, &error), QUERN_E_MISMATCH);
        assert_non_null(strstr(error.message, "[300"));
        drop(&m);
    }
    made m = make("llama", true, all_merges);
    change_config(m.dir, (change){"\"num_hidden_layers\": 2",
                                  "\"num_hidden_layers\": 3"});
    assert_int_equal(qn_model_audit(m.source, &error), QUERN_E_MISMATCH);
    assert_non_null(strstr(error.message, "model.layers.2."));
    drop(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_files_compute_what_directories_do),
        cmocka_unit_test(test_what_files_cannot_say_is_refused),
        cmocka_unit_test(test_merges_that_scores_cannot_say_are_refused),
        cmocka_unit_test(test_blocks_come_back_as_they_were),
        cmocka_unit_test(test_audit_sees_shapes_and_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
