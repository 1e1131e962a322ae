/* Model directories that AutoAWQ, AutoGPTQ and compressed-tensors packed: the
 * same values as the matrices that they stand for. */
#include "support/tiny.h"

#include "kv/engine.h"
#include "model/foreign.h"
#include "model/model.h"

enum { COUNT = 40, GROUP = 32 };

typedef enum form { AWQ, GPTQ, GPTQ_V2, COMPRESSED, FORMS } form;

static const char *const configs[FORMS] = {
    "\"quantization_config\": {\"quant_method\": \"awq\", \"bits\": 4, "
    "\"group_size\": 32, \"zero_point\": true, \"version\": \"gemm\"}, ",
    "\"quantization_config\": {\"quant_method\": \"gptq\", \"bits\": 4, "
    "\"group_size\": 32, \"desc_act\": false}, ",
    "\"quantization_config\": {\"quant_method\": \"gptq\", \"bits\": 4, "
    "\"group_size\": 32, \"checkpoint_format\": \"gptq_v2\"}, ",
    "\"quantization_config\": {\"quant_method\": \"compressed-tensors\", "
    "\"format\": \"pack-quantized\", \"config_groups\": {\"group_0\": "
    "{\"weights\": {\"num_bits\": 4, \"type\": \"int\", \"symmetric\": true, "
    "\"strategy\": \"group\", \"group_size\": 32}}}}, ",
};

/* A matrix as codes, and per group a zero point and a float16 scale; the
 * tensor gets these values. */
typedef struct codes {
    int rows, cols, groups;
    uint8_t *code, *zero;
    uint16_t *scale;
} codes;

static codes pack(tiny_tensor *t, bool centered)
{
    codes c = {t->rows, t->cols, t->cols / GROUP, NULL, NULL, NULL};
    c.code = malloc(tiny_size(t));
    c.zero = malloc((size_t)(t->rows * c.groups));
    c.scale = malloc(2 * (size_t)(t->rows * c.groups));
    assert_true(c.code && c.zero && c.scale && t->cols % GROUP == 0);
    for (int g = 0; g < t->rows * c.groups; g++) {
        float *x = t->data + g * GROUP, top = 1e-3f;
        for (int i = 0; i < GROUP; i++)
            top = fabsf(x[i]) > top ? fabsf(x[i]) : top;
        c.zero[g] = centered ? 8 : (uint8_t)(6 + g % 4);
        c.scale[g] = qn_f32_to_f16(top / 7);
        float scale = qn_f16_to_f32(c.scale[g]);
        for (int i = 0; i < GROUP; i++) {
            long q = lrintf(x[i] / scale) + c.zero[g];
            q = q < 0 ? 0 : q > 15 ? 15 : q;
            c.code[g * GROUP + i] = (uint8_t)q;
            x[i] = scale * (float)(q - c.zero[g]);
        }
    }
    return c;
}

static void free_codes(codes *c)
{
    free(c->code);
    free(c->zero);
    free(c->scale);
}

static void put(tiny_file *f, const char *module, const char *tail,
                const char *dtype, int rows, int cols, const void *data)
{
    char name[96];
    snprintf(name, sizeof name, "%s.%s", module, tail);
    size_t item = !strcmp(dtype, "F16") ? 2 : 4;
    tiny_put(f, name, dtype, rows, cols, data,
             (size_t)rows * (size_t)(cols ? cols : 1) * item);
}

/* Where column n of 8 stands in a word. */
static int awq_place(int n)
{
    static const int order[] = {0, 2, 4, 6, 1, 3, 5, 7};
    for (int i = 0; i < 8; i++)
        if (order[i] == n)
            return i;
    return -1;
}

/* [a, b] nibbles, b times or a times packed by 8 along the last axis. */
static uint32_t *pack_last(int a, int b, bool interleaved,
                           uint8_t (*at)(const codes *, int, int, int),
                           const codes *c, int shift)
{
    uint32_t *out = calloc((size_t)(a * b / 8), sizeof *out);
    assert_non_null(out);
    for (int i = 0; i < a; i++)
        for (int j = 0; j < b; j++)
            out[(i * b + j) / 8] |=
                (uint32_t)at(c, i, j, shift)
                << 4 * (interleaved ? awq_place(j % 8) : j % 8);
    return out;
}

static uint8_t code_at(const codes *c, int row, int col, int shift)
{
    (void)shift;
    return c->code[row * c->cols + col];
}

static uint8_t code_turned(const codes *c, int col, int row, int shift)
{
    return code_at(c, row, col, shift);
}

static uint8_t zero_turned(const codes *c, int group, int row, int shift)
{
    return (uint8_t)(c->zero[row * c->groups + group] - shift);
}

static uint16_t *turned_scales(const codes *c)
{
    uint16_t *out = malloc(2 * (size_t)(c->rows * c->groups));
    assert_non_null(out);
    for (int r = 0; r < c->rows; r++)
        for (int g = 0; g < c->groups; g++)
            out[g * c->rows + r] = c->scale[r * c->groups + g];
    return out;
}

static void put_awq(tiny_file *f, const char *module, const codes *c)
{
    uint32_t *q = pack_last(c->cols, c->rows, true, code_turned, c, 0);
    uint32_t *z = pack_last(c->groups, c->rows, true, zero_turned, c, 0);
    uint16_t *s = turned_scales(c);
    put(f, module, "qweight", "I32", c->cols, c->rows / 8, q);
    put(f, module, "qzeros", "I32", c->groups, c->rows / 8, z);
    put(f, module, "scales", "F16", c->groups, c->rows, s);
    free(q);
    free(z);
    free(s);
}

static void put_gptq(tiny_file *f, const char *module, const codes *c,
                     int shift, int disorder)
{
    uint32_t *rows = pack_last(c->rows, c->cols, false, code_at, c, 0);
    uint32_t *q = malloc(4 * (size_t)(c->rows * c->cols / 8));
    int32_t *order = malloc(4 * (size_t)c->cols);
    assert_true(q && order);
    for (int r = 0; r < c->rows; r++)
        for (int j = 0; j < c->cols / 8; j++)
            q[j * c->rows + r] = rows[r * (c->cols / 8) + j];
    for (int i = 0; i < c->cols; i++)
        order[i] = i / GROUP;
    order[3] += disorder;
    uint32_t *z = pack_last(c->groups, c->rows, false, zero_turned, c, shift);
    uint16_t *s = turned_scales(c);
    put(f, module, "qweight", "I32", c->cols / 8, c->rows, q);
    put(f, module, "qzeros", "I32", c->groups, c->rows / 8, z);
    put(f, module, "scales", "F16", c->groups, c->rows, s);
    put(f, module, "g_idx", "I32", c->cols, 0, order);
    free(rows);
    free(q);
    free(order);
    free(z);
    free(s);
}

static void put_compressed(tiny_file *f, const char *module, const codes *c)
{
    uint32_t *q = pack_last(c->rows, c->cols, false, code_at, c, 0);
    int32_t shape[] = {c->rows, c->cols};
    put(f, module, "weight_packed", "I32", c->rows, c->cols / 8, q);
    put(f, module, "weight_scale", "F16", c->rows, c->groups, c->scale);
    put(f, module, "weight_shape", "I32", 2, 0, shape);
    free(q);
}

/* Matrices of layers packed, the rest as it is. */
static void write_dir(tiny *m, const char *dir, form how, int disorder)
{
    tiny_file f = {QN_BUF_INIT, QN_BUF_INIT};
    m->config = configs[how];
    tiny_write_config(m, dir);
    for (int i = 0; i < m->count; i++) {
        tiny_tensor *t = &m->tensors[i];
        char module[64];
        if (!t->cols || !strstr(t->name, "layers")) {
            tiny_put_plain(&f, t, "F32");
            continue;
        }
        snprintf(module, sizeof module, "%s", t->name);
        *strstr(module, ".weight") = '\0';
        codes c = pack(t, how == COMPRESSED);
        if (how == AWQ)
            put_awq(&f, module, &c);
        else if (how == COMPRESSED)
            put_compressed(&f, module, &c);
        else
            put_gptq(&f, module, &c, how == GPTQ, disorder);
        free_codes(&c);
    }
    tiny_finish(&f, dir, "model.safetensors");
}

static qn_status load(qn_model **out, const char *dir, bool int8,
                      mlx_stream stream)
{
    qn_weights *weights = NULL;
    qn_config config = {0};
    char *name = qn_path_join(dir, "config.json"), *text;
    size_t size;
    check_status(qn_engine_start(), QN_OK);
    check_status(qn_file_read(&text, &size, name, 1 << 20), QN_OK);
    qn_status status = qn_config_from_json(&config, (qn_str){text, size}, name);
    qn_model_options options = {
        .dtype = MLX_FLOAT32, .int8 = int8, .stream = stream};
    if (!status)
        status = qn_weights_open(&weights, dir);
    if (!status)
        status = qn_foreign_adopt(weights, &config.quant);
    if (!status)
        status = qn_model_load(out, weights, &config, &options);
    qn_config_clear(&config);
    qn_weights_free(weights);
    qn_free(text);
    qn_free(name);
    return status;
}

static void check_logits(const tiny *m, const qn_model *model, double bound)
{
    int32_t ids[COUNT];
    qn_kv_cache *cache;
    qn_kv_shape shape = {.layers = m->layers,
                         .every = {.kv_heads = m->kv_heads,
                                   .head_dim = m->head_dim,
                                   .scheme = {.dtype = MLX_FLOAT32}},
                         .floats = MLX_FLOAT32,
                         .step = 16,
                         .limit = 64};
    for (int i = 0; i < COUNT; i++)
        ids[i] = (i * i * 31 + i * 7 + 5) % m->vocab;
    check_status(qn_kv_cache_new(&cache, &shape), QN_OK);
    mlx_array logits = {NULL};
    qn_kv_rows row = {.cache = cache, .count = COUNT};
    check_status(qn_model_forward(model, &logits, ids, &row, 1, false), QN_OK);
    check_status(qn_engine(mlx_array_eval(logits)), QN_OK);
    double *expected = tiny_logits(m, ids, COUNT), worst = 0;
    const float *found = mlx_array_data_float32(logits);
    for (int i = 0; i < COUNT * m->vocab; i++)
        worst = fabs(found[i] - expected[i]) > worst
                    ? fabs(found[i] - expected[i])
                    : worst;
    if (!(worst <= bound))
        fail_msg("logits are off by %g", worst);
    mlx_array_free(logits);
    qn_kv_cache_free(cache);
    free(expected);
}

static void test_values_are_those_that_were_packed(void **state)
{
    (void)state;
    mlx_stream stream = mlx_default_cpu_stream_new();
    for (int how = 0; how < FORMS; how++)
        for (int int8 = 0; int8 < 2; int8++) {
            char *dir = temp_dir_new();
            tiny m = tiny_default();
            tiny_make(&m);
            write_dir(&m, dir, (form)how, 0);
            qn_model *model = NULL;
            check_status(load(&model, dir, int8, stream), QN_OK);
            assert_string_equal(qn_model_totals(model)->form,
                                "affine 4-bit g32");
            /* Some processors have 12 bits of activations beside codes of
             * 4. */
            check_logits(&m, model, int8 ? 2e-2 : 1e-4);
            qn_model_free(model);
            tiny_free(&m);
            temp_dir_remove(dir);
        }
    mlx_stream_free(stream);
}

static void test_inputs_in_another_order_are_refused(void **state)
{
    (void)state;
    mlx_stream stream = mlx_default_cpu_stream_new();
    char *dir = temp_dir_new();
    tiny m = tiny_default();
    tiny_make(&m);
    write_dir(&m, dir, GPTQ, 1);
    qn_model *model = NULL;
    check_error(load(&model, dir, false, stream), QN_E_UNSUPPORTED,
                "act-order");
    tiny_free(&m);
    temp_dir_remove(dir);
    mlx_stream_free(stream);
}

/* The configuration says another group than the tensors have. */
static void test_shapes_are_checked(void **state)
{
    (void)state;
    mlx_stream stream = mlx_default_cpu_stream_new();
    for (int how = 0; how < FORMS; how++) {
        char *dir = temp_dir_new(), *name = qn_path_join(dir, "config.json");
        char *text, *at;
        size_t size;
        tiny m = tiny_default();
        m.inter = 128;
        tiny_make(&m);
        write_dir(&m, dir, (form)how, 0);
        check_status(qn_file_read(&text, &size, name, 1 << 20), QN_OK);
        at = strstr(text, "\"group_size\": 32");
        assert_non_null(at);
        memcpy(at, "\"group_size\": 64", strlen("\"group_size\": 64"));
        temp_write(dir, "config.json", text, size);
        qn_model *model = NULL;
        check_error(load(&model, dir, false, stream), QN_E_MISMATCH,
                    "of another shape");
        qn_free(text);
        qn_free(name);
        tiny_free(&m);
        temp_dir_remove(dir);
    }
    mlx_stream_free(stream);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values_are_those_that_were_packed),
        cmocka_unit_test(test_inputs_in_another_order_are_refused),
        cmocka_unit_test(test_shapes_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
