/* How caches store: options and kv_config.json. */
#include "support/qn_test.h"

#include "runtime/runtime.h"

#include <quern/quern.h>

static char *folder;

/* A copy of the tiny model with heads of 64. */
static int open_folder(void **state)
{
    (void)state;
    static const char *const files[] = {"config.json", "model.safetensors",
                                        "tokenizer.json"};
    folder = temp_dir_new();
    for (int i = 0; i < 3; i++) {
        char name[96];
        size_t size;
        snprintf(name, sizeof name, "cases/fixtures/models/tiny_h64/%s",
                 files[i]);
        char *data = vector_read(name, &size);
        temp_write(folder, files[i], data, size);
        qn_free(data);
    }
    return 0;
}

static int close_folder(void **state)
{
    (void)state;
    temp_dir_remove(folder);
    return 0;
}

static quern_model *load(const char *kv, int64_t most, quern_error *error)
{
    quern_options options;
    quern_model *model = NULL;
    quern_options_init(&options);
    options.headers_only = true;
    options.kv = kv;
    options.max_kv_size = most;
    return quern_model_load(&model, folder, &options, error) ? NULL : model;
}

static void write_config(const char *text)
{
    temp_write(folder, "kv_config.json", text, strlen(text));
}

static void check_refused(const char *text, quern_status status,
                          const char *part)
{
    quern_error error_;
    write_config(text);
    assert_null(load("config", 0, &error_));
    assert_int_equal(error_.status, status);
    if (!strstr(error_.message, part))
        fail_msg("%s: no \"%s\" in it", error_.message, part);
    assert_non_null(strstr(error_.where, "kv_config.json"));
}

static void test_layers_follow_the_file(void **state)
{
    (void)state;
    quern_error error_;
    quern_info info;
    write_config("[{\"layer_idx\": 1, \"bits\": 4, \"group_size\": 32}]");
    quern_model *model = load("config", 0, &error_);
    assert_non_null(model);
    assert_int_equal(model->kv_layers[0].scheme.bits, 0);
    assert_int_equal(model->kv_layers[1].scheme.bits, 4);
    assert_int_equal(model->kv_layers[1].scheme.group, 32);
    quern_model_info(model, &info);
    assert_string_equal(info.kv, "config");
    /* Floats: 2 x 64 x 2 bytes; codes: 2 x (32 + 2 x 2 x 2). */
    assert_int_equal(info.kv_bytes_per_token, 256 + 80);
    quern_model_free(model);
    write_config("[]");
    model = load("config", 0, &error_);
    assert_non_null(model);
    assert_int_equal(model->kv_layers[1].scheme.bits, 0);
    quern_model_free(model);
}

static void test_files_that_make_no_sense_are_refused(void **state)
{
    (void)state;
    check_refused("{}", QUERN_E_FORMAT, "expected a list, found object");
    check_refused("[3]", QUERN_E_FORMAT, "entry 0: layer_idx");
    check_refused("[{\"layer_idx\": 2, \"bits\": 4}]", QUERN_E_FORMAT,
                  "a layer, 0..1");
    check_refused("[{\"layer_idx\": -1, \"bits\": 4}]", QUERN_E_FORMAT,
                  "a layer, 0..1");
    check_refused("[{\"layer_idx\": 0, \"bits\": 3}]", QUERN_E_FORMAT,
                  "bits: expected 4 or 8");
    check_refused("[{\"layer_idx\": 0, \"bits\": 8, \"group_size\": 48}]",
                  QUERN_E_FORMAT, "group_size");
    check_refused("[{\"layer_idx\": 0, \"bits\": 8},"
                  "{\"layer_idx\": 0, \"bits\": 4}]",
                  QUERN_E_FORMAT, "twice");
    check_refused("[{\"layer_idx\": 0,", QUERN_E_FORMAT, "");
}

static void test_a_missing_file_is_told(void **state)
{
    (void)state;
    quern_error error_;
    char *path = qn_path_join(folder, "kv_config.json");
    remove(path);
    qn_free(path);
    assert_null(load("config", 0, &error_));
    assert_int_equal(error_.status, QUERN_E_NOTFOUND);
    assert_non_null(strstr(error_.message, "kv_config.json is missing"));
}

static void test_a_bounded_cache_keeps_first_and_last_tokens(void **state)
{
    (void)state;
    quern_error error_;
    quern_model *model = load(NULL, 20, &error_);
    assert_non_null(model);
    assert_int_equal(model->kv_layers[0].window, 16);
    assert_int_equal(model->kv_layers[0].keep, 4);
    quern_model_free(model);
    /* No sequence gets so long. */
    model = load(NULL, 256, &error_);
    assert_non_null(model);
    assert_int_equal(model->kv_layers[0].window, 0);
    quern_model_free(model);
    assert_null(load(NULL, 4, &error_));
    assert_int_equal(error_.status, QUERN_E_ARG);
    assert_non_null(strstr(error_.message, "max_kv_size"));
    assert_null(load(NULL, -1, &error_));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layers_follow_the_file),
        cmocka_unit_test(test_files_that_make_no_sense_are_refused),
        cmocka_unit_test(test_a_missing_file_is_told),
        cmocka_unit_test(test_a_bounded_cache_keeps_first_and_last_tokens),
    };
    return cmocka_run_group_tests(tests, open_folder, close_folder);
}
