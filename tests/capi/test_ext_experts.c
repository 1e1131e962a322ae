/* quern_panel_experts and quern_gather_qmm: each row is what the product with
 * its expert alone gives, to the bit, whatever rows go with it. */
#include "capi.h"

#include "quern/ext.h"

#include <string.h>

enum { EXPERTS = 5, ROWS = 32, COLS = 128, TOKENS = 13, USED = 3 };

static mlx_stream stream;

static uint32_t next(uint32_t *seed)
{
    return *seed = *seed * 1664525u + 1013904223u;
}

static mlx_array cast(mlx_array x, mlx_dtype dtype)
{
    mlx_array y = mlx_array_new();
    check_ok(mlx_astype(&y, x, dtype, stream));
    mlx_array_free(x);
    return y;
}

static mlx_array random_floats(const int *shape, int ndim, uint32_t seed,
                               mlx_dtype dtype)
{
    static float values[TOKENS * USED * COLS + EXPERTS * ROWS * COLS];
    size_t n = 1;
    for (int i = 0; i < ndim; i++)
        n *= (size_t)shape[i];
    for (size_t i = 0; i < n; i++)
        values[i] = (float)(next(&seed) >> 8) / 16777216.0F - 0.5F;
    return cast(mlx_array_new_data(values, shape, ndim, MLX_FLOAT32), dtype);
}

static mlx_array random_words(int rows, int columns, uint32_t seed)
{
    static uint32_t words[EXPERTS * ROWS * COLS];
    for (int i = 0; i < rows * columns; i++)
        words[i] = next(&seed);
    return mlx_array_new_data(words, (int[]){rows, columns}, 2, MLX_UINT32);
}

static int32_t id_of(int t, int i)
{
    /* Some experts have many rows, one has none, a token has each once. */
    return (t * t + 3 * i + t / 5) % (EXPERTS - 1);
}

static mlx_array make_ids(void)
{
    int32_t ids[TOKENS * USED];
    for (int t = 0; t < TOKENS; t++)
        for (int i = 0; i < USED; i++)
            ids[t * USED + i] = id_of(t, i);
    return mlx_array_new_data(ids, (int[]){TOKENS, USED}, 2, MLX_INT32);
}

/* Rows from .. to of the first axis. */
static mlx_array rows_of(mlx_array x, int from, int to)
{
    int start[3] = {from}, stop[3] = {to}, step[3] = {1, 1, 1};
    size_t ndim = mlx_array_ndim(x);
    for (size_t i = 1; i < ndim; i++)
        stop[i] = mlx_array_dim(x, (int)i);
    mlx_array y = mlx_array_new();
    check_ok(mlx_slice(&y, x, start, ndim, stop, ndim, step, ndim, stream));
    return y;
}

static mlx_vector_array list_of(const mlx_array *x, int count)
{
    mlx_vector_array list = mlx_vector_array_new();
    for (int i = 0; i < count; i++)
        check_ok(mlx_vector_array_append_value(list, x[i]));
    return list;
}

/* `count` packed matrices of EXPERTS * ROWS rows. */
typedef struct weights {
    mlx_array w[2], scales[2], biases[2];
    int count, bits, group;
} weights;

static weights make_weights(int count, int bits, int group)
{
    weights m = {.count = count, .bits = bits, .group = group};
    for (int i = 0; i < count; i++) {
        uint32_t seed = (uint32_t)(100 * i + bits);
        int all = EXPERTS * ROWS, shape[] = {all, COLS / group};
        m.w[i] = random_words(all, COLS * bits / 32, seed);
        m.scales[i] = random_floats(shape, 2, seed + 1, MLX_FLOAT16);
        m.biases[i] = random_floats(shape, 2, seed + 2, MLX_FLOAT16);
    }
    return m;
}

static void free_weights(weights *m)
{
    for (int i = 0; i < m->count; i++) {
        mlx_array_free(m->w[i]);
        mlx_array_free(m->scales[i]);
        mlx_array_free(m->biases[i]);
    }
}

/* Panels of rows from .. to of all matrices. */
static mlx_array pack(const weights *m, int from, int to,
                      quern_panel_form *form)
{
    mlx_array parts[3][2], panels = mlx_array_new();
    mlx_vector_array lists[3];
    for (int i = 0; i < m->count; i++) {
        parts[0][i] = rows_of(m->w[i], from, to);
        parts[1][i] = rows_of(m->scales[i], from, to);
        parts[2][i] = rows_of(m->biases[i], from, to);
    }
    for (int k = 0; k < 3; k++)
        lists[k] = list_of(parts[k], m->count);
    *form = (quern_panel_form){.group_size = m->group,
                               .bits = m->bits,
                               .zero = -1,
                               .scale_dtype = MLX_FLOAT16};
    check_ok(
        quern_panel_pack(&panels, form, lists[0], lists[1], lists[2], stream));
    for (int k = 0; k < 3; k++) {
        mlx_vector_array_free(lists[k]);
        for (int i = 0; i < m->count; i++)
            mlx_array_free(parts[k][i]);
    }
    return panels;
}

static void check_equal(mlx_array a, mlx_array b)
{
    check_ok(mlx_array_eval(a));
    check_ok(mlx_array_eval(b));
    assert_int_equal(mlx_array_dtype(a), mlx_array_dtype(b));
    assert_int_equal(mlx_array_nbytes(a), mlx_array_nbytes(b));
    mlx_array wide_a = mlx_array_new(), wide_b = mlx_array_new();
    check_ok(mlx_astype(&wide_a, a, MLX_FLOAT32, stream));
    check_ok(mlx_astype(&wide_b, b, MLX_FLOAT32, stream));
    check_ok(mlx_contiguous(&wide_a, wide_a, false, stream));
    check_ok(mlx_contiguous(&wide_b, wide_b, false, stream));
    check_ok(mlx_array_eval(wide_a));
    check_ok(mlx_array_eval(wide_b));
    assert_memory_equal(mlx_array_data_float32(wide_a),
                        mlx_array_data_float32(wide_b),
                        mlx_array_nbytes(wide_a));
    mlx_array_free(wide_a);
    mlx_array_free(wide_b);
}

/* Row [t, i] of an array [TOKENS, n, width] as [1, width]; of n = 1, row t. */
static mlx_array row_of(mlx_array x, int t, int i)
{
    int n = mlx_array_dim(x, 1), width = mlx_array_dim(x, 2);
    int start[] = {t, n == 1 ? 0 : i, 0};
    int stop[] = {t + 1, start[1] + 1, width}, step[] = {1, 1, 1};
    mlx_array y = mlx_array_new();
    check_ok(mlx_slice(&y, x, start, 3, stop, 3, step, 3, stream));
    check_ok(mlx_reshape(&y, y, (int[]){1, width}, 2, stream));
    return y;
}

/* Each row of `found` against the product with its expert's own panels. */
static void check_rows(const weights *m, mlx_vector_array found, mlx_array x,
                       quern_panel_gate gate)
{
    for (int e = 0; e < EXPERTS; e++) {
        quern_panel_form form;
        mlx_array panels = pack(m, e * ROWS, (e + 1) * ROWS, &form);
        for (int t = 0; t < TOKENS; t++)
            for (int i = 0; i < USED; i++) {
                if (id_of(t, i) != e)
                    continue;
                mlx_array row = row_of(x, t, i);
                mlx_vector_array alone = {NULL};
                quern_panel_steps steps = {.gate = gate};
                check_ok(quern_panel_matmul(&alone, row, panels, &form, &steps,
                                            stream));
                for (size_t k = 0; k < mlx_vector_array_size(alone); k++) {
                    mlx_array one = mlx_array_new(), all = mlx_array_new();
                    check_ok(mlx_vector_array_get(&one, alone, k));
                    check_ok(mlx_vector_array_get(&all, found, k));
                    mlx_array part = row_of(all, t, i);
                    check_equal(part, one);
                    mlx_array_free(part);
                    mlx_array_free(one);
                    mlx_array_free(all);
                }
                mlx_vector_array_free(alone);
                mlx_array_free(row);
            }
        mlx_array_free(panels);
    }
}

static void check_form(int bits, int group, int count, quern_panel_gate gate,
                       bool each, mlx_dtype dtype)
{
    weights m = make_weights(count, bits, group);
    quern_panel_form form;
    mlx_array panels = pack(&m, 0, EXPERTS * ROWS, &form), ids = make_ids();
    mlx_array x =
        random_floats((int[]){TOKENS, each ? USED : 1, COLS}, 3, 7, dtype);
    for (int threads = 1; threads <= 3; threads += 2) {
        mlx_vector_array found = {NULL};
        check_ok(quern_set_threads(threads));
        check_ok(quern_panel_experts(&found, x, panels, &form, EXPERTS, ids,
                                     gate, stream));
        assert_int_equal(mlx_vector_array_size(found), gate ? 1 : count);
        check_rows(&m, found, x, gate);
        mlx_vector_array_free(found);
    }
    check_ok(quern_set_threads(0));
    mlx_array_free(x);
    mlx_array_free(ids);
    mlx_array_free(panels);
    free_weights(&m);
}

static void test_rows_are_those_of_their_experts(void **state)
{
    (void)state;
    check_form(4, 32, 1, QUERN_GATE_NONE, false, MLX_FLOAT32);
    check_form(4, 32, 1, QUERN_GATE_NONE, true, MLX_BFLOAT16);
    check_form(6, 16, 2, QUERN_GATE_NONE, false, MLX_FLOAT16);
    check_form(8, 64, 2, QUERN_GATE_SILU, false, MLX_FLOAT32);
    check_form(3, 32, 2, QUERN_GATE_GELU, true, MLX_FLOAT32);
}

static void test_bad_arguments_are_refused(void **state)
{
    (void)state;
    weights m = make_weights(2, 4, 32);
    quern_panel_form form;
    mlx_array panels = pack(&m, 0, EXPERTS * ROWS, &form), ids = make_ids();
    mlx_array x = random_floats((int[]){TOKENS, 1, COLS}, 3, 7, MLX_FLOAT32);
    mlx_array flat = mlx_array_new();
    mlx_vector_array found = {NULL};
    check_ok(mlx_reshape(&flat, x, (int[]){TOKENS, COLS}, 2, stream));
    check_fails(quern_panel_experts(&found, flat, panels, &form, EXPERTS, ids,
                                    QUERN_GATE_NONE, stream),
                "x [T, 1 or n, 128]");
    check_fails(quern_panel_experts(&found, x, panels, &form, 3, ids,
                                    QUERN_GATE_NONE, stream),
                "multiple of 16 rows");
    check_fails(quern_panel_experts(&found, x, panels, &form, 0, ids,
                                    QUERN_GATE_NONE, stream),
                "multiple of 16 rows");
    check_fails(quern_panel_experts(&found, x, ids, &form, EXPERTS, ids,
                                    QUERN_GATE_NONE, stream),
                "panels of the form");
    check_fails(quern_panel_experts(&found, x, panels, &form, EXPERTS, x,
                                    QUERN_GATE_NONE, stream),
                "int32 ids");
    quern_panel_form one = form;
    one.count = 1;
    check_fails(quern_panel_experts(&found, x, panels, &one, EXPERTS, ids,
                                    QUERN_GATE_SILU, stream),
                "2 alike with a gate");
    mlx_array_free(flat);
    mlx_array_free(x);
    mlx_array_free(ids);
    mlx_array_free(panels);
    free_weights(&m);
}

static void test_an_id_that_is_no_expert_is_an_error(void **state)
{
    (void)state;
    weights m = make_weights(1, 4, 32);
    quern_panel_form form;
    mlx_array panels = pack(&m, 0, EXPERTS * ROWS, &form);
    mlx_array x = random_floats((int[]){1, 1, COLS}, 3, 7, MLX_FLOAT32);
    for (int32_t id = -1; id <= EXPERTS; id += EXPERTS + 1) {
        mlx_array ids = mlx_array_new_data(&id, (int[]){1, 1}, 2, MLX_INT32);
        mlx_array out = mlx_array_new();
        mlx_vector_array found = {NULL};
        check_ok(quern_panel_experts(&found, x, panels, &form, EXPERTS, ids,
                                     QUERN_GATE_NONE, stream));
        check_ok(mlx_vector_array_get(&out, found, 0));
        check_fails(mlx_array_eval(out), "of 5 experts");
        mlx_vector_array_free(found);
        mlx_array_free(out);
        mlx_array_free(ids);
    }
    mlx_array_free(x);
    mlx_array_free(panels);
    free_weights(&m);
}

/* Groups of 16, which mlx_gather_qmm does not have, and float16 scales that
 * leave float32 as it is. */
static void test_gathered_products_of_small_groups(void **state)
{
    (void)state;
    weights m = make_weights(1, 6, 16);
    mlx_array ids = make_ids(), y = mlx_array_new();
    mlx_array x = random_floats((int[]){TOKENS, 1, COLS}, 3, 7, MLX_FLOAT32);
    mlx_array stacked[3] = {m.w[0], m.scales[0], m.biases[0]};
    for (int k = 0; k < 3; k++) {
        mlx_array all = mlx_array_new();
        check_ok(mlx_reshape(
            &all, stacked[k],
            (int[]){EXPERTS, ROWS, mlx_array_dim(stacked[k], 1)}, 3, stream));
        stacked[k] = all;
    }
    check_ok(mlx_reshape(&x, x, (int[]){TOKENS, 1, 1, COLS}, 4, stream));
    check_ok(quern_gather_qmm(&y, x, stacked[0], stacked[1], stacked[2], ids,
                              16, 6, "affine", stream));
    check_ok(mlx_reshape(&y, y, (int[]){TOKENS, USED, ROWS}, 3, stream));
    check_ok(mlx_reshape(&x, x, (int[]){TOKENS, 1, COLS}, 3, stream));
    for (int t = 0; t < TOKENS; t++)
        for (int i = 0; i < USED; i++) {
            int from = id_of(t, i) * ROWS;
            mlx_array row = row_of(x, t, 0), part = row_of(y, t, i);
            mlx_array parts[3] = {rows_of(m.w[0], from, from + ROWS),
                                  rows_of(m.scales[0], from, from + ROWS),
                                  rows_of(m.biases[0], from, from + ROWS)};
            mlx_vector_array lists[3], made = {NULL};
            for (int k = 0; k < 3; k++)
                lists[k] = list_of(&parts[k], 1);
            check_ok(quern_quantized_matmul(&made, row, lists[0], lists[1],
                                            lists[2], 16, 6, "affine", stream));
            mlx_array alone = mlx_array_new();
            check_ok(mlx_vector_array_get(&alone, made, 0));
            check_equal(part, alone);
            for (int k = 0; k < 3; k++) {
                mlx_vector_array_free(lists[k]);
                mlx_array_free(parts[k]);
            }
            mlx_vector_array_free(made);
            mlx_array_free(alone);
            mlx_array_free(part);
            mlx_array_free(row);
        }
    for (int k = 0; k < 3; k++)
        mlx_array_free(stacked[k]);
    mlx_array_free(y);
    mlx_array_free(x);
    mlx_array_free(ids);
    free_weights(&m);
}

int main(void)
{
    stream = mlx_default_cpu_stream_new();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_are_those_of_their_experts),
        cmocka_unit_test(test_bad_arguments_are_refused),
        cmocka_unit_test(test_an_id_that_is_no_expert_is_an_error),
        cmocka_unit_test(test_gathered_products_of_small_groups),
    };
    int failed = cmocka_run_group_tests(tests, capi_setup, NULL);
    mlx_stream_free(stream);
    return failed;
}
