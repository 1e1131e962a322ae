/* The llama family against the slow way of support/tiny.h, from every kind of
 * file and for each option. */
#include "support/tiny.h"

#include "kv/engine.h"
#include "model/model.h"
#include "ops/panel.h"

enum { COUNT = 70 };

/* A loaded model with a cache. */
typedef struct loaded {
    qn_model *model;
    qn_kv_cache *cache;
    mlx_stream stream;
    int vocab;
} loaded;

/* Products with packed weights by 8-bit integers; set by check_model. */
static bool int8;

static qn_status load(loaded *out, const char *path, mlx_dtype dtype,
                      mlx_dtype kv)
{
    qn_weights *weights = NULL;
    qn_config config = {0};
    qn_status status = qn_weights_open(&weights, path);
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
    *out = (loaded){.vocab = config.vocab_size};
    qn_kv_shape shape = {.layers = config.layers,
                         .every = {.kv_heads = config.kv_heads,
                                   .head_dim = config.head_dim,
                                   .scheme = {.dtype = kv}},
                         .floats = kv,
                         .step = 16,
                         .limit = 256};
    if (!status)
        status = qn_engine_start();
    out->stream = mlx_default_cpu_stream_new();
    qn_model_options options = {
        .dtype = dtype, .int8 = int8, .stream = out->stream};
    if (!status)
        status = qn_model_load(&out->model, weights, &config, &options);
    if (!status)
        status = qn_kv_cache_new(&out->cache, &shape);
    qn_config_clear(&config);
    qn_weights_free(weights);
    return status;
}

static void unload(loaded *m)
{
    qn_kv_cache_free(m->cache);
    qn_model_free(m->model);
    mlx_stream_free(m->stream);
}

/* Computes the next `count` tokens and copies the logits of each. */
static void compute(loaded *m, const int32_t *ids, int count, float *out)
{
    mlx_array logits = {NULL};
    check_status(
        qn_model_forward(m->model, &logits, ids,
                         &(qn_kv_rows){.cache = m->cache, .count = count}, 1,
                         false),
        QN_OK);
    check_status(qn_engine(mlx_array_eval(logits)), QN_OK);
    size_t size = mlx_array_nbytes(logits);
    assert_int_equal(size, (size_t)count * (size_t)m->vocab * sizeof *out);
    memcpy(out, mlx_array_data_float32(logits), size);
    mlx_array_free(logits);
}

static void make_ids(int32_t *ids, int vocab)
{
    for (int i = 0; i < COUNT; i++)
        ids[i] = (int32_t)((i * i * 31 + i * 7 + 5) % vocab);
}

/* The model at `path` gives the logits of `m` for a prompt of 70 tokens. */
static void check_dtypes(const tiny *m, const char *path, mlx_dtype dtype,
                         mlx_dtype kv, double limit)
{
    loaded l;
    int32_t ids[COUNT];
    check_status(load(&l, path, dtype, kv), QN_OK);
    make_ids(ids, m->vocab);
    double *expected = tiny_logits(m, ids, COUNT), worst = 0;
    float *found = malloc(sizeof *found * COUNT * (size_t)m->vocab);
    assert_non_null(found);
    compute(&l, ids, COUNT, found);
    for (int i = 0; i < COUNT * m->vocab; i++) {
        double off = fabs(found[i] - expected[i]);
        worst = off <= worst ? worst : off;
    }
    if (!(worst <= limit))
        print_error("largest difference %g, allowed %g\n", worst, limit);
    assert_true(worst <= limit);
    free(found);
    free(expected);
    unload(&l);
}

/* Weights meet activations of 12 to 14 bits, not of 15. */
static bool short_x;

static void check_model(const tiny *m, const char *path, mlx_dtype kv,
                        double limit)
{
    check_dtypes(m, path, MLX_FLOAT32, kv, limit);
    /* Activations of 15 bits: steps of 3e-5, in logits of up to 100; of 12,
     * where codes have 4: 2.5e-4. */
    int8 = true;
    check_dtypes(m, path, MLX_FLOAT32, kv, (short_x ? 400 : 50) * limit);
    int8 = false;
}

static void check_dir(tiny *m, const char *dtype, double limit)
{
    char *dir = temp_dir_new();
    tiny_make(m);
    tiny_write_dir(m, dir, dtype);
    check_model(m, dir, MLX_FLOAT32, limit);
    tiny_free(m);
    temp_dir_remove(dir);
}

static const double near = 1e-4;

static void test_plain_weights_in_each_dtype(void **state)
{
    (void)state;
    static const char *const dtypes[] = {"F32", "F16", "BF16"};
    for (int i = 0; i < 3; i++) {
        tiny m = tiny_default();
        check_dir(&m, dtypes[i], near);
    }
}

static void test_options_of_the_architecture(void **state)
{
    (void)state;
    tiny m = tiny_default();
    m.tied = false;
    check_dir(&m, "F32", near);
    m = tiny_default();
    m.attention_bias = true;
    check_dir(&m, "F32", near);
    m = tiny_default();
    m.mlp_bias = true;
    check_dir(&m, "F32", near);
    m = tiny_default();
    m.kv_heads = 4;
    check_dir(&m, "F32", near);
    m = tiny_default();
    m.kv_heads = 1;
    m.head_dim = 24;
    check_dir(&m, "F32", near);
    m = tiny_default();
    m.eps = 0.01;
    check_dir(&m, "F32", near);
}

static void test_windows(void **state)
{
    (void)state;
    tiny m = tiny_default();
    m.window = 9;
    m.config = "\"sliding_window\": 9, \"layer_types\": "
               "[\"sliding_attention\", \"sliding_attention\"], ";
    check_dir(&m, "F32", near);
    m = tiny_default();
    m.window = 9;
    /* mistral: every layer, without layer_types. */
    char *dir = temp_dir_new();
    m.config = "\"sliding_window\": 9, ";
    tiny_make(&m);
    tiny_write_dir(&m, dir, "F32");
    char *path = qn_path_join(dir, "config.json"), *text;
    size_t size;
    check_status(qn_file_read(&text, &size, path, 1 << 20), QN_OK);
    qn_buf changed = QN_BUF_INIT;
    char *at = strstr(text, "\"llama\"");
    qn_buf_add(&changed, text, (size_t)(at - text));
    qn_buf_add_text(&changed, "\"mistral\"");
    qn_buf_add_text(&changed, at + strlen("\"llama\""));
    temp_write(dir, "config.json", changed.data, changed.size);
    check_model(&m, dir, MLX_FLOAT32, near);
    qn_buf_free(&changed);
    qn_free(text);
    qn_free(path);
    tiny_free(&m);
    temp_dir_remove(dir);
}

static void test_rotary_scalings(void **state)
{
    (void)state;
    const double pi = acos(-1);
    tiny m = tiny_default();
    m.base = 500000;
    m.config = "\"rope_theta\": 500000, ";
    check_dir(&m, "F32", near);

    m = tiny_default();
    m.position_scale = 0.25;
    m.config = "\"rope_scaling\": {\"type\": \"linear\", \"factor\": 4}, ";
    check_dir(&m, "F32", near);

    /* llama3: waves longer than 32/1 positions are stretched by 8, those
     * shorter than 32/4 kept, the others in between. */
    m = tiny_default();
    m.config = "\"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8, "
               "\"low_freq_factor\": 1, \"high_freq_factor\": 4, "
               "\"original_max_position_embeddings\": 32}, ";
    for (int i = 0; i < m.head_dim / 2; i++) {
        double f = pow(m.base, 2.0 * i / m.head_dim), wave = 2 * pi * f;
        double t = (32 / wave - 1) / 3;
        m.periods[i] = wave > 32 ? 8 * f : wave < 8 ? f : f / ((1 - t) / 8 + t);
    }
    check_dir(&m, "F32", near);

    /* yarn: pairs up to the one that turns 32 times keep their period, from
     * the one that turns once on they are stretched by 4. */
    m = tiny_default();
    m.config = "\"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 4, "
               "\"original_max_position_embeddings\": 512}, ";
    m.mscale = 0.1 * log(4) + 1;
    double d = m.head_dim, turn = 2 * log(m.base);
    double low = floor(d * log(512 / (32 * 2 * pi)) / turn);
    double high = ceil(d * log(512 / (1 * 2 * pi)) / turn);
    low = low < 0 ? 0 : low;
    for (int i = 0; i < m.head_dim / 2; i++) {
        double f = pow(m.base, 2.0 * i / d), ramp = (i - low) / (high - low);
        ramp = ramp < 0 ? 0 : ramp > 1 ? 1 : ramp;
        m.periods[i] = 1 / (ramp / (4 * f) + (1 - ramp) / f);
    }
    check_dir(&m, "F32", near);
}

static void test_packed_weights(void **state)
{
    (void)state;
    static const int bits[] = {2, 3, 4, 5, 6, 8}, groups[] = {32, 64};
    for (int i = 0; i < 6; i++)
        for (int j = 0; j < 2; j++) {
            char config[96], *dir = temp_dir_new();
            snprintf(config, sizeof config,
                     "\"quantization\": {\"bits\": %d, \"group_size\": %d}, ",
                     bits[i], groups[j]);
            tiny m = tiny_default();
            m.inter = 128;
            short_x = bits[i] <= 4;
            m.tied = i % 2 == 0;
            m.config = config;
            tiny_make(&m);
            tiny_write_packed(&m, dir, bits[i], groups[j]);
            check_model(&m, dir, MLX_FLOAT32, near);
            tiny_free(&m);
            temp_dir_remove(dir);
        }
    short_x = false;
}

static void test_floating_point_codes(void **state)
{
    (void)state;
    for (int bits = 4; bits <= 8; bits += 4) {
        char *dir = temp_dir_new();
        tiny m = tiny_default();
        m.config = bits == 4 ? "\"quantization\": {\"mode\": \"mxfp4\"}, "
                             : "\"quantization\": {\"mode\": \"mxfp8\"}, ";
        tiny_make(&m);
        tiny_write_packed(&m, dir, bits, 0);
        check_model(&m, dir, MLX_FLOAT32, near);
        tiny_free(&m);
        temp_dir_remove(dir);
    }
}

/* Biases and floating scales belong to affine groups alone. */
static void test_a_wrong_mode_does_not_hide_affine_groups(void **state)
{
    (void)state;
    char *dir = temp_dir_new();
    tiny m = tiny_default();
    m.config = "\"quantization\": {\"mode\": \"mxfp4\"}, ";
    short_x = true;
    tiny_make(&m);
    tiny_write_packed(&m, dir, 4, 32);
    check_model(&m, dir, MLX_FLOAT32, near);
    tiny_free(&m);
    temp_dir_remove(dir);
    short_x = false;
}

static void test_gguf_files_of_each_type(void **state)
{
    (void)state;
    static const int types[] = {
        QN_GGUF_F32_T,  QN_GGUF_F16_T,    QN_GGUF_BF16_T,   QN_GGUF_Q4_0_T,
        QN_GGUF_Q4_1_T, QN_GGUF_Q5_0_T,   QN_GGUF_Q5_1_T,   QN_GGUF_Q8_0_T,
        QN_GGUF_Q2_K_T, QN_GGUF_Q3_K_T,   QN_GGUF_Q4_K_T,   QN_GGUF_Q5_K_T,
        QN_GGUF_Q6_K_T, QN_GGUF_IQ4_NL_T, QN_GGUF_IQ4_XS_T, QN_GGUF_MXFP4_T,
    };
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        char *dir = temp_dir_new(), *path = qn_path_join(dir, "model.gguf");
        tiny m = tiny_default();
        size_t bytes, elements;
        assert_true(qn_gguf_type_block(types[i], &bytes, &elements));
        if (elements == 256) {
            m.hidden = m.inter = 256;
            m.heads = 8;
            m.head_dim = 32;
        }
        m.tied = i % 2 == 0;
        m.attention_bias = i == 1;
        qn_panel_form form;
        short_x =
            qn_panel_form_of(&form, types[i]) && qn_panel_shift(&form) < 7;
        tiny_make(&m);
        tiny_write_gguf(&m, dir, types[i], NULL, 0);
        check_model(&m, path, MLX_FLOAT32, near);
        tiny_free(&m);
        qn_free(path);
        temp_dir_remove(dir);
    }
    short_x = false;
}

static void test_gguf_frequency_factors(void **state)
{
    (void)state;
    char *dir = temp_dir_new(), *path = qn_path_join(dir, "model.gguf");
    tiny m = tiny_default();
    tiny_make(&m);
    tiny_add(&m, m.head_dim / 2, 0, "rope_freqs.weight");
    float *factors = m.tensors[m.count - 1].data;
    for (int i = 0; i < m.head_dim / 2; i++) {
        factors[i] = (float)(1 + 0.5 * i);
        m.periods[i] = pow(m.base, 2.0 * i / m.head_dim) * factors[i];
    }
    tiny_write_gguf(&m, dir, QN_GGUF_F32_T, NULL, 0);
    check_model(&m, path, MLX_FLOAT32, near);
    tiny_free(&m);
    qn_free(path);
    temp_dir_remove(dir);
}

/* The bits of a row do not depend on what is computed beside it. */
static void test_chunks_give_the_same_bits(void **state)
{
    (void)state;
    static const int chunks[] = {1, 7, 16, 64};
    static const struct {
        mlx_dtype activations, kv;
    } types[] = {{MLX_FLOAT32, MLX_FLOAT32},
                 {MLX_FLOAT32, MLX_FLOAT16},
                 {MLX_FLOAT32, MLX_BFLOAT16},
                 {MLX_FLOAT16, MLX_FLOAT16},
                 {MLX_BFLOAT16, MLX_FLOAT32}};
    char *dir = temp_dir_new(), *path = qn_path_join(dir, "model.gguf");
    tiny m = tiny_default();
    tiny_make(&m);
    tiny_write_gguf(&m, dir, QN_GGUF_Q4_1_T, NULL, 0);
    int32_t ids[COUNT];
    make_ids(ids, m.vocab);
    size_t size = sizeof(float) * COUNT * (size_t)m.vocab;
    float *whole = malloc(size), *parts = malloc(size);
    assert_true(whole && parts);
    for (int k = 0; k < 5; k++) {
        loaded l;
        check_status(load(&l, path, types[k].activations, types[k].kv), QN_OK);
        compute(&l, ids, COUNT, whole);
        for (int c = 0; c < 4; c++) {
            qn_kv_cache_reset(l.cache);
            for (int at = 0; at < COUNT; at += chunks[c]) {
                int n = COUNT - at < chunks[c] ? COUNT - at : chunks[c];
                compute(&l, ids + at, n, parts + at * m.vocab);
            }
            assert_memory_equal(parts, whole, size);
        }
        /* After a trim the rest comes out again. */
        assert_true(qn_kv_cache_trim(l.cache, 33));
        compute(&l, ids + 33, COUNT - 33, parts + 33 * m.vocab);
        assert_memory_equal(parts, whole, size);
        unload(&l);
    }
    free(whole);
    free(parts);
    tiny_free(&m);
    qn_free(path);
    temp_dir_remove(dir);
}

static void test_half_precision_caches_are_close(void **state)
{
    (void)state;
    char *dir = temp_dir_new();
    tiny m = tiny_default();
    tiny_make(&m);
    tiny_write_dir(&m, dir, "F32");
    check_model(&m, dir, MLX_FLOAT16, 0.02);
    check_model(&m, dir, MLX_BFLOAT16, 0.15);
    tiny_free(&m);
    temp_dir_remove(dir);
}

/* Every kind of weight, with activations of half precision: the result is
 * near, and the arrays on the way have the dtype that was asked for. */
static void test_half_precision_activations(void **state)
{
    (void)state;
    static const struct {
        mlx_dtype dtype;
        double limit;
    } rows[] = {{MLX_FLOAT16, 0.05}, {MLX_BFLOAT16, 0.8}};
    char *dir = temp_dir_new(), *path = qn_path_join(dir, "model.gguf");
    for (int i = 0; i < 2; i++) {
        tiny m = tiny_default();
        tiny_make(&m);
        tiny_write_dir(&m, dir, "F32");
        check_dtypes(&m, dir, rows[i].dtype, rows[i].dtype, rows[i].limit);
        m.config = "\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 1}, ";
        tiny_write_dir(&m, dir, "F16");
        check_dtypes(&m, dir, rows[i].dtype, rows[i].dtype, rows[i].limit);
        tiny_write_gguf(&m, dir, QN_GGUF_Q4_1_T, NULL, 0);
        check_dtypes(&m, path, rows[i].dtype, rows[i].dtype, rows[i].limit);
        tiny_free(&m);
    }
    qn_free(path);
    temp_dir_remove(dir);
}

/* What a layer adds to the sum that runs through all of them is not lost when
 * it is smaller than the steps of the activations' dtype: the sum is float32,
 * and so are norms and logits. */
static void test_sums_of_layers_are_float32(void **state)
{
    (void)state;
    char *dir = temp_dir_new(), *path = qn_path_join(dir, "model.gguf");
    tiny m = tiny_default();
    tiny_make(&m);
    for (int i = 0; i < m.count; i++) {
        tiny_tensor *t = &m.tensors[i];
        bool adds = strstr(t->name, "o_proj") || strstr(t->name, "down_proj");
        for (size_t e = 0; adds && e < tiny_size(t); e++)
            t->data[e] /= 256;
    }
    tiny_write_gguf(&m, dir, QN_GGUF_Q4_1_T, NULL, 0);
    check_dtypes(&m, path, MLX_BFLOAT16, MLX_FLOAT32, 0.006);
    check_dtypes(&m, path, MLX_FLOAT16, MLX_FLOAT32, 0.0008);
    tiny_free(&m);
    qn_free(path);
    temp_dir_remove(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain_weights_in_each_dtype),
        cmocka_unit_test(test_options_of_the_architecture),
        cmocka_unit_test(test_windows),
        cmocka_unit_test(test_rotary_scalings),
        cmocka_unit_test(test_packed_weights),
        cmocka_unit_test(test_floating_point_codes),
        cmocka_unit_test(test_a_wrong_mode_does_not_hide_affine_groups),
        cmocka_unit_test(test_gguf_files_of_each_type),
        cmocka_unit_test(test_gguf_frequency_factors),
        cmocka_unit_test(test_chunks_give_the_same_bits),
        cmocka_unit_test(test_half_precision_caches_are_close),
        cmocka_unit_test(test_half_precision_activations),
        cmocka_unit_test(test_sums_of_layers_are_float32),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
