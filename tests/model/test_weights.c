/* Opening files, naming tensors, and the audit of what a model needs. */
#include "support/tiny.h"

#include "kv/engine.h"
#include "model/model.h"

/* A directory with a good model in it, and what may be wrong with it. */
static char *dir;

static int make_dir(void **state)
{
    (void)state;
    tiny m = tiny_default();
    dir = temp_dir_new();
    tiny_make(&m);
    tiny_write_dir(&m, dir, "F32");
    tiny_free(&m);
    return 0;
}

static int remove_dir(void **state)
{
    (void)state;
    temp_dir_remove(dir);
    return 0;
}

static void remove_file(const char *name)
{
    char *path = qn_path_join(dir, name);
    assert_non_null(path);
    assert_int_equal(unlink(path), 0);
    qn_free(path);
}

/* Opens the directory; on success closes it again. */
static qn_status open_dir(void)
{
    qn_weights *w;
    qn_status status = qn_weights_open(&w, dir);
    if (!status)
        qn_weights_free(w);
    return status;
}

static qn_buf warnings;

static void keep_warning(void *data, qn_log_level level, const char *text)
{
    (void)data;
    assert_int_equal(level, QN_LOG_WARN);
    qn_buf_printf(&warnings, "%s\n", text);
}

static qn_status load_path(const char *path, bool lenient)
{
    qn_weights *weights = NULL;
    qn_config config = {0};
    qn_model *model = NULL;
    mlx_stream stream = {NULL};
    qn_status status = qn_engine_start();
    if (!status)
        status = qn_weights_open(&weights, path);
    if (!status && qn_weights_gguf(weights)) {
        status = qn_config_from_gguf(&config, qn_weights_gguf(weights), path);
    } else if (!status) {
        char *name = qn_path_join(path, "config.json"), *text = NULL;
        size_t size = 0;
        status = name ? qn_file_read(&text, &size, name, 1 << 20) : QN_E_NOMEM;
        if (!status)
            status = qn_config_from_json(&config, (qn_str){text, size}, name);
        qn_free(text);
        qn_free(name);
    }
    if (!status) {
        stream = mlx_default_cpu_stream_new();
        status = qn_engine_made(stream.ctx);
    }
    qn_model_options options = {.dtype = MLX_FLOAT32,
                                .stream = stream,
                                .lenient = lenient,
                                .warn = keep_warning};
    if (!status)
        status = qn_model_load(&model, weights, &config, &options);
    qn_model_free(model);
    qn_config_clear(&config);
    qn_weights_free(weights);
    if (stream.ctx)
        mlx_stream_free(stream);
    return status;
}

/* ---- finding files ---- */

static void test_only_weight_files_are_read(void **state)
{
    (void)state;
    temp_write_text(dir, "adapters.safetensors", "junk");
    temp_write_text(dir, "model.safetensors.incomplete", "junk");
    temp_write_text(dir, "notes.bin", "junk");
    check_status(load_path(dir, false), QN_OK);
}

static void test_paths_of_all_kinds(void **state)
{
    (void)state;
    qn_buf slash = QN_BUF_INIT;
    qn_buf_printf(&slash, "%s/", dir);
    check_status(load_path(slash.data, false), QN_OK);
    qn_buf_free(&slash);
    char *file = qn_path_join(dir, "model.safetensors");
    qn_weights *w;
    check_status(qn_weights_open(&w, file), QN_OK);
    /* The folder of a weights file, for what lies beside it. */
    assert_int_equal(strncmp(qn_weights_dir(w), dir, strlen(dir)), 0);
    qn_weights_free(w);
    qn_free(file);
}

static void test_missing_things_are_told_apart(void **state)
{
    (void)state;
    qn_weights *w;
    check_status(qn_weights_open(&w, "/nonexistent"), QN_E_NOTFOUND);
    check_status(qn_weights_open(&w, "/nonexistent.gguf"), QN_E_NOTFOUND);
    char *config = qn_path_join(dir, "config.json");
    check_error(qn_weights_open(&w, config), QN_E_UNSUPPORTED, "directory");
    qn_free(config);
    remove_file("model.safetensors");
    check_error(open_dir(), QN_E_NOTFOUND, "no model*.safetensors");
    temp_write_text(dir, "pytorch_model.bin", "junk");
    check_error(open_dir(), QN_E_UNSUPPORTED, "quern convert");
}

/* Writes an index that has `tensor` in `shard`. */
static void write_index(const char *tensor, const char *shard)
{
    qn_buf text = QN_BUF_INIT;
    qn_buf_printf(&text, "{\"weight_map\": {\"%s\": \"%s\"}}", tensor, shard);
    temp_write(dir, "model.safetensors.index.json", text.data, text.size);
    qn_buf_free(&text);
}

static void test_index_is_followed(void **state)
{
    (void)state;
    /* A second weights file that the index does not name stays closed. */
    temp_write_text(dir, "model-extra.safetensors", "junk");
    write_index("model.norm.weight", "model.safetensors");
    check_status(load_path(dir, false), QN_OK);

    write_index("model.norm.weight", "model-00002-of-00002.safetensors");
    check_status(open_dir(), QN_E_NOTFOUND);
    assert_non_null(strstr(qn_error_where(), "model-00002-of-00002"));
    write_index("model.gone.weight", "model.safetensors");
    check_error(open_dir(), QN_E_MISMATCH, "model.gone.weight");
    static const char *const names[] = {"../model.safetensors", "a/b", "..",
                                        ".", ""};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        write_index("model.norm.weight", names[i]);
        check_error(open_dir(), QN_E_FORMAT, "weight_map");
    }
    temp_write_text(dir, "model.safetensors.index.json", "{}");
    check_error(open_dir(), QN_E_FORMAT, "weight_map");
    temp_write_text(dir, "model.safetensors.index.json", "{");
    check_status(open_dir(), QN_E_FORMAT);
    assert_non_null(strstr(qn_error_where(), "index.json"));
}

static void test_a_tensor_in_two_shards_is_refused(void **state)
{
    (void)state;
    tiny_file f = {QN_BUF_INIT, QN_BUF_INIT};
    float zeros[64] = {0};
    tiny_put(&f, "model.norm.weight", "F32", 64, 0, zeros, sizeof zeros);
    tiny_finish(&f, dir, "model-2.safetensors");
    check_error(open_dir(), QN_E_FORMAT, "model.norm.weight is there twice");
}

/* ---- the audit ---- */

/* Adds a second file with one tensor. */
static void add_tensor(const char *name, const char *dtype, int rows, int cols)
{
    static const char zeros[4096];
    int size = !strcmp(dtype, "F32") || !strcmp(dtype, "U32") ? 4 : 1;
    tiny_file f = {QN_BUF_INIT, QN_BUF_INIT};
    tiny_put(&f, name, dtype, rows, cols, zeros,
             (size_t)rows * (size_t)(cols ? cols : 1) * (size_t)size);
    tiny_finish(&f, dir, "model-2.safetensors");
}

static void test_leftover_tensors_are_refused_or_reported(void **state)
{
    (void)state;
    add_tensor("model.layers.0.extra.weight", "F32", 4, 4);
    check_error(load_path(dir, false), QN_E_MISMATCH,
                "model.layers.0.extra.weight");
    qn_buf_clear(&warnings);
    check_status(load_path(dir, true), QN_OK);
    assert_non_null(strstr(warnings.data, "model.layers.0.extra.weight"));
}

static void test_tensors_that_nobody_needs_are_ignored(void **state)
{
    (void)state;
    add_tensor("model.layers.0.self_attn.rotary_emb.inv_freq", "F32", 8, 0);
    check_status(load_path(dir, false), QN_OK);
    /* The head of a model that says it is tied. */
    add_tensor("lm_head.weight", "F32", 1, 1);
    check_status(load_path(dir, false), QN_OK);
    add_tensor("vision_tower.layer.weight", "F32", 4, 4);
    qn_buf_clear(&warnings);
    check_status(load_path(dir, false), QN_OK);
    assert_non_null(strstr(warnings.data, "skipped"));
}

/* Writes the model without the tensors whose name contains `part`. */
static void write_without(const char *part, tiny m)
{
    tiny_file f = {QN_BUF_INIT, QN_BUF_INIT};
    tiny_make(&m);
    tiny_write_config(&m, dir);
    for (int i = 0; i < m.count; i++)
        if (!strstr(m.tensors[i].name, part))
            tiny_put_plain(&f, &m.tensors[i], "F32");
    tiny_finish(&f, dir, "model.safetensors");
    tiny_free(&m);
}

static void test_missing_tensors_are_listed(void **state)
{
    (void)state;
    write_without("k_proj", tiny_default());
    check_error(load_path(dir, false), QN_E_MISMATCH,
                "2 tensors are missing: "
                "model.layers.0.self_attn.k_proj.weight, "
                "model.layers.1.self_attn.k_proj.weight");
    write_without("layers", tiny_default());
    check_error(load_path(dir, true), QN_E_MISMATCH, "18 tensors");
    assert_non_null(strstr(qn_error_text(), ", ..."));
    tiny untied = tiny_default();
    untied.tied = false;
    write_without("lm_head", untied);
    check_error(load_path(dir, false), QN_E_MISMATCH, "lm_head.weight");
}

static void test_wrong_shapes_and_types_are_refused(void **state)
{
    (void)state;
    write_without("model.norm", tiny_default());
    add_tensor("model.norm.weight", "F32", 63, 0);
    check_error(load_path(dir, false), QN_E_MISMATCH, "[64], found [63]");
    add_tensor("model.norm.weight", "F32", 8, 8);
    check_error(load_path(dir, false), QN_E_MISMATCH, "found [8, 8]");
    add_tensor("model.norm.weight", "I8", 64, 0);
    check_error(load_path(dir, false), QN_E_UNSUPPORTED, "found type I8");
}

static void test_packed_shapes_are_checked(void **state)
{
    (void)state;
    tiny m = tiny_default();
    /* The files hold groups of 32. */
    m.config = "\"quantization\": {\"bits\": 4, \"group_size\": 64}, ";
    tiny_make(&m);
    tiny_write_packed(&m, dir, 4, 32);
    check_status(load_path(dir, false), QN_E_MISMATCH);
    m.config = "\"quantization\": {\"bits\": 8, \"group_size\": 32}, ";
    tiny_write_config(&m, dir);
    check_error(load_path(dir, false), QN_E_MISMATCH, "weight");
    m.config = "";
    tiny_write_config(&m, dir);
    check_error(load_path(dir, false), QN_E_MISMATCH, "no quantization");
    m.config = "\"quantization\": {\"bits\": 4, \"group_size\": 32, "
               "\"model.embed_tokens\": false}, ";
    tiny_write_config(&m, dir);
    check_error(load_path(dir, false), QN_E_MISMATCH, "model.embed_tokens");
    m.config = "\"quantization\": {\"bits\": 4, \"group_size\": 32, "
               "\"model.nothing\": {\"bits\": 8}}, ";
    tiny_write_config(&m, dir);
    qn_buf_clear(&warnings);
    check_status(load_path(dir, false), QN_OK);
    assert_non_null(strstr(warnings.data, "model.nothing"));
    tiny_free(&m);
}

static void test_unknown_families_are_named(void **state)
{
    (void)state;
    char *path = qn_path_join(dir, "config.json"), *text;
    size_t size;
    check_status(qn_file_read(&text, &size, path, 1 << 20), QN_OK);
    memcpy(strstr(text, "llama"), "gizmo", 5);
    temp_write(dir, "config.json", text, size);
    qn_free(text);
    qn_free(path);
    check_error(load_path(dir, false), QN_E_UNSUPPORTED,
                "'gizmo' is not supported (llama, mistral, ");
    assert_non_null(
        strstr(qn_error_text(), "are); by its tensors it is nearest to llama"));
}

static void test_foreign_activations_are_refused(void **state)
{
    (void)state;
    tiny m = tiny_default();
    m.config = "\"hidden_act\": \"gelu\", ";
    tiny_write_config(&m, dir);
    check_error(load_path(dir, false), QN_E_UNSUPPORTED, "gelu");
}

/* ---- GGUF ---- */

static void test_gguf_types_without_a_form_are_refused(void **state)
{
    (void)state;
    tiny m = tiny_default();
    char *path = qn_path_join(dir, "model.gguf"), *text;
    size_t size;
    tiny_make(&m);
    tiny_write_gguf(&m, dir, QN_GGUF_Q8_0_T, NULL, 0);
    check_status(qn_file_read(&text, &size, path, 1 << 24), QN_OK);
    /* The type of the first tensor becomes one with smaller blocks. */
    char *at = memmem(text, size, "token_embd.weight", 17);
    assert_non_null(at);
    at[17 + 4 + 8 + 8] = QN_GGUF_I8_T;
    temp_write(dir, "model.gguf", text, size);
    check_error(load_path(path, false), QN_E_UNSUPPORTED, "found type I8");
    /* Vocabulary and embedding disagree. */
    at[17 + 4 + 8 + 8] = QN_GGUF_Q8_0_T;
    at[17 + 4 + 8]--;
    temp_write(dir, "model.gguf", text, size);
    check_error(load_path(path, false), QN_E_MISMATCH, "[96, 64], found [95");
    qn_free(text);
    qn_free(path);
    tiny_free(&m);
}

static void test_parts_of_a_split_file(void **state)
{
    (void)state;
    tiny m = tiny_default();
    qn_buf extra = QN_BUF_INIT;
    tiny_make(&m);
    tiny_gguf_u32(&extra, "split.count", 2);
    tiny_write_gguf(&m, dir, QN_GGUF_F32_T, &extra, 1);
    tiny_free(&m);
    qn_buf_free(&extra);
    char *whole = qn_path_join(dir, "model.gguf");
    char *first = qn_path_join(dir, "m-00001-of-00002.gguf");
    char *second = qn_path_join(dir, "m-00002-of-00002.gguf");
    /* The count must be in the name, and all parts there. */
    check_error(load_path(whole, false), QN_E_FORMAT, "split.count is 2");
    assert_int_equal(rename(whole, first), 0);
    check_status(load_path(first, false), QN_E_NOTFOUND);
    assert_non_null(strstr(qn_error_where(), "00002-of-00002"));
    /* A second part with one tensor more, which the audit then finds. */
    qn_buf part = QN_BUF_INIT;
    qn_buf_add_text(&part, "GGUF");
    tiny_le(&part, 3, 4);
    tiny_le(&part, 1, 8);
    tiny_le(&part, 0, 8);
    tiny_gguf_text(&part, "blk.0.more.weight");
    tiny_le(&part, 1, 4);
    tiny_le(&part, 8, 8);
    tiny_le(&part, QN_GGUF_F32_T, 4);
    tiny_le(&part, 0, 8);
    while (part.size % 32)
        qn_buf_add_char(&part, 0);
    for (int i = 0; i < 8; i++)
        tiny_le(&part, 0, 4);
    temp_write(dir, "m-00002-of-00002.gguf", part.data, part.size);
    qn_buf_free(&part);
    check_error(load_path(first, false), QN_E_MISMATCH, "blk.0.more.weight");
    check_error(load_path(second, false), QN_E_ARG, "m-00001-of-00002.gguf");
    qn_free(whole);
    qn_free(first);
    qn_free(second);
}

static qn_status directory_scenario(void)
{
    return load_path(dir, false);
}

static qn_status gguf_scenario(void)
{
    char path[512];
    snprintf(path, sizeof path, "%s/model.gguf", dir);
    return load_path(path, false);
}

static void test_memory_may_run_out(void **state)
{
    (void)state;
    /* One layer is enough; every allocation is failed once. */
    tiny m = tiny_default();
    m.layers = 1;
    tiny_make(&m);
    tiny_write_gguf(&m, dir, QN_GGUF_Q4_1_T, NULL, 0);
    each_alloc_may_fail(gguf_scenario);
    m.config = "\"quantization\": {\"bits\": 4, \"group_size\": 32}, ";
    tiny_write_packed(&m, dir, 4, 32);
    tiny_free(&m);
    each_alloc_may_fail(directory_scenario);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define QN_TEST(name)                                                          \
    cmocka_unit_test_setup_teardown(name, make_dir, remove_dir)
        QN_TEST(test_only_weight_files_are_read),
        QN_TEST(test_paths_of_all_kinds),
        QN_TEST(test_missing_things_are_told_apart),
        QN_TEST(test_index_is_followed),
        QN_TEST(test_a_tensor_in_two_shards_is_refused),
        QN_TEST(test_leftover_tensors_are_refused_or_reported),
        QN_TEST(test_tensors_that_nobody_needs_are_ignored),
        QN_TEST(test_missing_tensors_are_listed),
        QN_TEST(test_wrong_shapes_and_types_are_refused),
        QN_TEST(test_packed_shapes_are_checked),
        QN_TEST(test_unknown_families_are_named),
        QN_TEST(test_foreign_activations_are_refused),
        QN_TEST(test_gguf_types_without_a_form_are_refused),
        QN_TEST(test_parts_of_a_split_file),
        QN_TEST(test_memory_may_run_out),
    };
    /* Before any allocation may fail: the handler is process-wide. */
    if (qn_engine_start())
        return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    qn_buf_free(&warnings);
    return failed;
}
