/* Experts that are tensors of their own become one for each matrix, as MLX's
 * programs have them, and the model says the same. */
#include "support/qn_convert_test.h"

static qn_weights *opened(const char *dir)
{
    qn_weights *weights;
    check_status(qn_weights_open(&weights, dir), QN_OK);
    return weights;
}

/* Directories without a tokenizer are not loaded. */
static quern_convert_options plain_options(void)
{
    quern_convert_options options;
    quern_convert_options_init(&options);
    options.unchecked = true;
    return options;
}

static size_t count_of(const qn_weights *weights, const char *part)
{
    size_t count = 0;
    for (size_t i = 0; i < qn_weights_count(weights); i++)
        count += strstr(qn_weights_at(weights, i)->name, part) != NULL;
    return count;
}

static const struct {
    const char *name, *stacked;
} models[] = {
    {"mixtral", "model.layers.0.block_sparse_moe.switch_mlp.down_proj.weight"},
    {"qwen2-moe", "model.layers.0.mlp.switch_mlp.down_proj.weight"},
    {"qwen3-moe", "model.layers.0.mlp.switch_mlp.down_proj.weight"},
    {"qwen3-moe-plain", "model.layers.1.mlp.switch_mlp.down_proj.weight"},
    {"qwen3-next", "model.layers.0.mlp.switch_mlp.down_proj.weight"},
};

static void test_stacked_experts_compute_the_same_bits(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        char *dir = temp_dir_new(), *to = temp_dir_new();
        char *out = qn_path_join(to, "out");
        char *source = recipe_write(models[i].name, dir);
        quern_convert_options options = plain_options();
        check_converts(source, out, &options);
        qn_weights *weights = opened(out);
        const qn_weight *w = qn_weights_find(weights, models[i].stacked);
        assert_non_null(w);
        assert_int_equal(w->ndim, 3);
        assert_int_equal(count_of(weights, ".experts."), 0);
        qn_weights_free(weights);
        double off = probe_difference(source, out);
        if (off != 0)
            fail_msg("%s: off by %g", models[i].name, off);
        qn_free(source);
        qn_free(out);
        temp_dir_remove(dir);
        temp_dir_remove(to);
    }
}

static void test_rows_are_those_of_each_expert_in_turn(void **state)
{
    (void)state;
    char *dir = temp_dir_new(), *to = temp_dir_new();
    char *out = qn_path_join(to, "out");
    char *source = recipe_write("qwen3-moe", dir);
    quern_convert_options options = plain_options();
    check_converts(source, out, &options);
    qn_weights *before = opened(source), *after = opened(out);
    const qn_weight *all =
        qn_weights_find(after, "model.layers.0.mlp.switch_mlp.up_proj.weight");
    assert_non_null(all);
    assert_true(all->shape[0] > 1);
    size_t part = all->data.size / (size_t)all->shape[0];
    for (int64_t i = 0; i < all->shape[0]; i++) {
        char name[96];
        snprintf(name, sizeof name,
                 "model.layers.0.mlp.experts.%d.up_proj.weight", (int)i);
        const qn_weight *one = qn_weights_find(before, name);
        assert_non_null(one);
        assert_int_equal(one->data.size, part);
        assert_memory_equal(one->data.data, all->data.data + (size_t)i * part,
                            part);
    }
    qn_weights_free(before);
    qn_weights_free(after);
    qn_free(source);
    qn_free(out);
    temp_dir_remove(dir);
    temp_dir_remove(to);
}

/* Packing after stacking is stacking after packing: groups lie in rows. */
static void test_packed_experts_are_stacked_arrays(void **state)
{
    (void)state;
    char *dir = temp_dir_new(), *to = temp_dir_new();
    char *packed = qn_path_join(to, "packed");
    char *plain = qn_path_join(to, "plain");
    char *source = recipe_write("qwen3-moe", dir);
    quern_convert_options options = plain_options();
    options.quantize = true;
    options.group_size = 32;
    check_converts(source, packed, &options);
    qn_weights *weights = opened(packed);
    const char *module = "model.layers.0.mlp.switch_mlp.gate_proj";
    char name[96];
    snprintf(name, sizeof name, "%s.scales", module);
    const qn_weight *scales = qn_weights_find(weights, name);
    assert_non_null(scales);
    assert_int_equal(scales->ndim, 3);
    qn_weights_free(weights);
    options = plain_options();
    options.dequantize = true;
    options.dtype = "f32";
    check_converts(packed, plain, &options);
    double off = probe_difference(packed, plain);
    assert_true(off < 1e-4);
    qn_free(source);
    qn_free(packed);
    qn_free(plain);
    temp_dir_remove(dir);
    temp_dir_remove(to);
}

/* The filter as [C, K, 1] tells readers that norms have their 1. */
static void test_qwen3_next_is_converted_as_a_whole(void **state)
{
    (void)state;
    char *dir = temp_dir_new(), *to = temp_dir_new();
    char *out = qn_path_join(to, "out");
    char *source = recipe_write("qwen3-next", dir);
    quern_convert_options options = plain_options();
    check_converts(source, out, &options);
    qn_weights *before = opened(source), *after = opened(out);
    const qn_weight *filter =
        qn_weights_find(after, "model.layers.0.linear_attn.conv1d.weight");
    assert_non_null(filter);
    assert_int_equal(filter->ndim, 3);
    assert_int_equal(filter->shape[1], 4);
    assert_int_equal(filter->shape[2], 1);
    const qn_weight *norm = qn_weights_find(after, "model.norm.weight");
    const qn_weight *own = qn_weights_find(before, "model.norm.weight");
    assert_int_equal(norm->type, QN_ST_F32);
    float first;
    memcpy(&first, norm->data.data, sizeof first);
    float expected = qn_bf16_to_f32(qn_le16(own->data.data)) + 1;
    if (own->type == QN_ST_F32) {
        memcpy(&expected, own->data.data, sizeof expected);
        expected += 1;
    }
    assert_true(first == expected);
    qn_weights_free(before);
    qn_weights_free(after);
    qn_free(source);
    qn_free(out);
    temp_dir_remove(dir);
    temp_dir_remove(to);
}

static void test_experts_of_several_shapes_are_refused(void **state)
{
    (void)state;
    static const char header[] =
        "{\"model.layers.0.mlp.experts.0.up_proj.weight\":{\"dtype\":\"F32\","
        "\"shape\":[2,2],\"data_offsets\":[0,16]},"
        "\"model.layers.0.mlp.experts.1.up_proj.weight\":{\"dtype\":\"F32\","
        "\"shape\":[1,2],\"data_offsets\":[16,24]}}";
    qn_buf file = QN_BUF_INIT;
    uint64_t size = sizeof header - 1;
    char *dir = temp_dir_new(), *to = temp_dir_new();
    char *out = qn_path_join(to, "out");
    qn_buf_add(&file, &size, sizeof size);
    qn_buf_add_text(&file, header);
    for (int i = 0; i < 24; i++)
        qn_buf_add_char(&file, 0);
    temp_write(dir, "model.safetensors", file.data, file.size);
    temp_write(dir, "config.json", "{\"model_type\": \"qwen3_moe\"}", 27);
    quern_error error;
    quern_convert_options options = plain_options();
    assert_int_equal(quern_convert(dir, out, &options, NULL, &error),
                     QUERN_E_MISMATCH);
    assert_non_null(strstr(error.message, "experts.1.up_proj"));
    assert_int_equal(access(out, F_OK), -1);
    qn_buf_free(&file);
    qn_free(out);
    temp_dir_remove(dir);
    temp_dir_remove(to);
}

static void test_zeros_keep_their_signs(void **state)
{
    (void)state;
    static const char header[] =
        "{\"model.embed_tokens.weight\":{\"dtype\":\"F32\","
        "\"shape\":[1,2],\"data_offsets\":[0,8]}}";
    static const uint8_t values[] = {0, 0, 0, 0x80, 0, 0, 0, 0};
    static const uint8_t halves[] = {0, 0x80, 0, 0};
    qn_buf file = QN_BUF_INIT;
    uint64_t size = sizeof header - 1;
    char *dir = temp_dir_new(), *to = temp_dir_new();
    char *out = qn_path_join(to, "out");
    qn_buf_add(&file, &size, sizeof size);
    qn_buf_add_text(&file, header);
    qn_buf_add(&file, values, sizeof values);
    temp_write(dir, "model.safetensors", file.data, file.size);
    temp_write(dir, "config.json", "{\"model_type\": \"llama\"}", 23);
    quern_convert_options options = plain_options();
    options.dtype = "f16";
    check_converts(dir, out, &options);
    qn_weights *weights = opened(out);
    const qn_weight *w = qn_weights_at(weights, 0);
    assert_int_equal(w->data.size, sizeof halves);
    assert_memory_equal(w->data.data, halves, sizeof halves);
    qn_weights_free(weights);
    qn_buf_free(&file);
    qn_free(out);
    temp_dir_remove(dir);
    temp_dir_remove(to);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stacked_experts_compute_the_same_bits),
        cmocka_unit_test(test_rows_are_those_of_each_expert_in_turn),
        cmocka_unit_test(test_packed_experts_are_stacked_arrays),
        cmocka_unit_test(test_qwen3_next_is_converted_as_a_whole),
        cmocka_unit_test(test_experts_of_several_shapes_are_refused),
        cmocka_unit_test(test_zeros_keep_their_signs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
