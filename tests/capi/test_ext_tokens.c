/* Masks of tokens and the choice of one, in both forms (ext_forms.h), against
 * the ordinary operations that they stand for. */
#include "arrays.h"

#include "ext_forms.h"

#include <math.h>
#include <stdlib.h>

static const mlx_dtype floats[] = {MLX_FLOAT32, MLX_FLOAT16, MLX_BFLOAT16};

static mlx_array every_second(mlx_array x, bool last)
{
    mlx_array y = mlx_array_new();
    int start[3] = {0}, stop[3], step[3] = {1, 1, 1};
    size_t n = mlx_array_ndim(x);
    for (size_t i = 0; i < n; i++)
        stop[i] = mlx_array_dim(x, (int)i);
    step[last ? n - 1 : 0] = 2;
    check_ok(mlx_slice(&y, x, start, n, stop, n, step, n, stream));
    return y;
}

/* Rows of logits: as they are, with rows apart, with tokens apart. */
enum { LAYOUTS = 3 };
static mlx_array logits_of(int rows, int v, mlx_dtype dtype, int layout)
{
    uint32_t seed = (uint32_t)(v + layout);
    if (!layout)
        return random_array((int[]){rows, v}, 2, dtype, seed);
    mlx_array wide =
        random_array(layout == 1 ? (int[]){2 * rows, v} : (int[]){rows, 2 * v},
                     2, dtype, seed);
    mlx_array x = every_second(wide, layout == 2);
    mlx_array_free(wide);
    return x;
}

static int32_t *random_mask(size_t count, uint32_t seed)
{
    int32_t *words = malloc((count + 1) * sizeof *words);
    assert_non_null(words);
    for (size_t i = 0; i <= count; i++) {
        seed = seed * 1664525U + 1013904223U;
        words[i] = (int32_t)(seed ^ seed << 7);
    }
    return words;
}

/* logits plus an array of 0 and -inf of their type. */
static mlx_array by_addition(mlx_array logits, const int32_t *words,
                             size_t count)
{
    int v = mlx_array_dim(logits, -1);
    float *shifts = malloc((size_t)v * sizeof *shifts);
    assert_non_null(shifts);
    for (int t = 0; t < v; t++) {
        uint32_t word = (size_t)t / 32 < count ? (uint32_t)words[t / 32] : 0;
        shifts[t] = word >> t % 32 & 1 ? 0.0F : -INFINITY;
    }
    mlx_array mask = mlx_array_new_data(shifts, &v, 1, MLX_FLOAT32);
    mlx_array y = mlx_array_new();
    check_ok(mlx_astype(&mask, mask, mlx_array_dtype(logits), stream));
    check_ok(mlx_add(&y, logits, mask, stream));
    mlx_array_free(mask);
    free(shifts);
    return y;
}

static void test_masks_are_additions(void **state)
{
    (void)state;
    static const int sizes[] = {1, 31, 32, 33, 129, 32000, 248320};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int t = 0; t < 3; t++)
            for (int layout = 0; layout < LAYOUTS; layout++) {
                mlx_array x = logits_of(2, sizes[i], floats[t], layout);
                size_t need = ((size_t)sizes[i] + 31) / 32;
                /* Too few words, those that are needed, one more. */
                for (size_t n = need - 1; n <= need + 1; n++) {
                    int32_t *words = random_mask(n, (uint32_t)(i + n));
                    mlx_array wanted = by_addition(x, words, n);
                    for (int f = 0; f < EXT_FORMS; f++) {
                        mlx_array y = mlx_array_new();
                        check_ok(ext_forms[f].mask(&y, x, n ? words : NULL, n,
                                                   stream));
                        check_same(y, wanted);
                        mlx_array_free(y);
                    }
                    mlx_array_free(wanted);
                    free(words);
                }
                mlx_array_free(x);
            }
}

/* The call takes the words along. */
static void test_words_may_change_after_the_call(void **state)
{
    (void)state;
    for (int f = 0; f < EXT_FORMS; f++) {
        mlx_array x = logits_of(1, 100, MLX_FLOAT32, 0), y = mlx_array_new();
        int32_t *words = random_mask(4, 5), *same = random_mask(4, 5);
        check_ok(ext_forms[f].mask(&y, x, words, 4, stream));
        mlx_array wanted = by_addition(x, same, 4);
        memset(words, 0, 4 * sizeof *words);
        check_same(y, wanted);
        free(words);
        free(same);
        mlx_array_free(x);
        mlx_array_free(y);
        mlx_array_free(wanted);
    }
}

/* Tokens that a vocabulary is filled up with are never allowed. */
static void test_the_tail_of_a_vocabulary(void **state)
{
    (void)state;
    enum { V = 128, REAL = 70 };
    int32_t words[V / 32] = {-1, -1, (1 << (REAL - 64)) - 1, 0};
    for (int f = 0; f < EXT_FORMS; f++) {
        mlx_array x = logits_of(1, V, MLX_FLOAT32, 0), y = mlx_array_new();
        check_ok(ext_forms[f].mask(&y, x, words, 3, stream));
        check_ok(mlx_array_eval(y));
        for (int t = 0; t < V; t++)
            assert_true((mlx_array_data_float32(y)[t] == -INFINITY) ==
                        (t >= REAL));
        mlx_array_free(x);
        mlx_array_free(y);
    }
}

static void test_special_logits(void **state)
{
    (void)state;
    const float given[] = {0.0F, -0.0F, INFINITY, -INFINITY, NAN, 3};
    for (int f = 0; f < EXT_FORMS; f++)
        for (int t = 0; t < 3; t++)
            for (int allowed = 0; allowed < 2; allowed++) {
                int32_t word = allowed ? -1 : 0;
                mlx_array y = mlx_array_new();
                mlx_array x =
                    mlx_array_new_data(given, (int[]){6}, 1, MLX_FLOAT32);
                check_ok(mlx_astype(&x, x, floats[t], stream));
                check_ok(ext_forms[f].mask(&y, x, &word, 1, stream));
                check_ok(mlx_array_eval(y));
                if (floats[t] == MLX_BFLOAT16)
                    assert_int_equal(((const uint16_t *)(const void *)
                                          mlx_array_data_uint8(y))[4],
                                     0x7fc0);
                check_ok(mlx_astype(&y, y, MLX_FLOAT32, stream));
                check_ok(mlx_array_eval(y));
                const float *z = mlx_array_data_float32(y);
                assert_true(isnan(z[4]));
                assert_true(z[3] == -INFINITY);
                if (allowed) {
                    assert_true(z[0] == 0 && !signbit(z[0]));
                    assert_true(z[1] == 0 && !signbit(z[1]));
                    assert_true(z[2] == INFINITY && z[5] == 3);
                } else {
                    assert_true(z[0] == -INFINITY && z[1] == -INFINITY);
                    assert_true(isnan(z[2]) && z[5] == -INFINITY);
                }
                mlx_array_free(x);
                mlx_array_free(y);
            }
}

/* Row i of y [rows, v], as [1, v]. */
static mlx_array row_of(mlx_array y, int i)
{
    mlx_array row = mlx_array_new();
    int v = mlx_array_dim(y, -1);
    check_ok(mlx_slice(&row, y, (int[]){i, 0}, 2, (int[]){i + 1, v}, 2,
                       (int[]){1, 1}, 2, stream));
    return row;
}

static void test_a_mask_for_each_row(void **state)
{
    (void)state;
    enum { ROWS = 5 };
    static const int sizes[] = {1, 33, 4096, 4129};
    for (size_t i = 0; i < 4; i++)
        for (int t = 0; t < 3; t++)
            for (int layout = 0; layout < LAYOUTS; layout++) {
                int v = sizes[i];
                size_t n = ((size_t)v + 31) / 32;
                int32_t *list[ROWS], *all = random_mask(n, 0);
                memset(all, -1, n * sizeof *all);
                for (int r = 0; r < ROWS; r++)
                    list[r] = r == 2 ? NULL : random_mask(n, (uint32_t)r);
                mlx_array x = logits_of(ROWS, v, floats[t], layout);
                for (int f = 0; f < EXT_FORMS; f++) {
                    mlx_array y = mlx_array_new();
                    check_ok(ext_forms[f].mask_rows(
                        &y, x, (const int32_t *const *)list, ROWS, n, stream));
                    for (int r = 0; r < ROWS; r++) {
                        mlx_array found = row_of(y, r), from = row_of(x, r);
                        mlx_array wanted =
                            by_addition(from, list[r] ? list[r] : all, n);
                        check_same(found, wanted);
                        mlx_array_free(found);
                        mlx_array_free(from);
                        mlx_array_free(wanted);
                    }
                    mlx_array_free(y);
                }
                mlx_array_free(x);
                free(all);
                for (int r = 0; r < ROWS; r++)
                    free(list[r]);
            }
}

/* [B, T, V] with B masks: one for all rows of an entry; with B * T: one each.
 * NULL allows all, even with no words at all. */
static void test_masks_of_entries(void **state)
{
    (void)state;
    enum { B = 2, T = 3, V = 40 };
    const int32_t some[] = {0x0f0f0f0f, 0x33}, none[] = {0, 0};
    const int32_t *entries[] = {some, NULL};
    const int32_t *rows[B * T] = {some, none, NULL, NULL, some, none};
    mlx_array x = random_array((int[]){B, T, V}, 3, MLX_FLOAT32, 3);
    const float *from = mlx_array_data_float32(x);
    for (int f = 0; f < EXT_FORMS; f++)
        for (int each = 0; each < 2; each++) {
            mlx_array y = mlx_array_new();
            check_ok(ext_forms[f].mask_rows(&y, x, each ? rows : entries,
                                            each ? B * T : B, 2, stream));
            check_ok(mlx_array_eval(y));
            const float *found = mlx_array_data_float32(y);
            for (int r = 0; r < B * T; r++) {
                const int32_t *mask = each ? rows[r] : entries[r / T];
                for (int t = 0; t < V; t++) {
                    bool allowed =
                        !mask || (uint32_t)mask[t / 32] >> t % 32 & 1;
                    float wanted = allowed ? from[r * V + t] : -INFINITY;
                    assert_true(found[r * V + t] == wanted);
                }
            }
            check_ok(ext_forms[f].mask_rows(&y, x, entries, B, 0, stream));
            check_ok(mlx_array_eval(y));
            assert_true(mlx_array_data_float32(y)[0] == -INFINITY);
            assert_true(mlx_array_data_float32(y)[T * V] == from[T * V]);
            mlx_array_free(y);
        }
    mlx_array_free(x);
}

static void test_refused_masks(void **state)
{
    (void)state;
    const int32_t word = -1;
    const int32_t *rows[] = {&word, &word, &word, &word};
    mlx_array point = mlx_array_new_float32(1), y = mlx_array_new();
    mlx_array empty = random_array((int[]){2, 0}, 2, MLX_FLOAT32, 1);
    mlx_array whole = random_array((int[]){2, 3}, 2, MLX_INT32, 1);
    mlx_array good = random_array((int[]){2, 3}, 2, MLX_FLOAT32, 1);
    check_fails(quern_apply_token_bitmask(&y, point, &word, 1, stream), "()");
    check_fails(quern_apply_token_bitmask(&y, empty, &word, 1, stream),
                "(2,0)");
    check_fails(quern_apply_token_bitmask(&y, whole, &word, 1, stream),
                "int32");
    for (int f = 0; f < EXT_FORMS; f++) {
        const ext_form *form = &ext_forms[f];
        check_fails(form->mask(&y, point, &word, 1, stream), "token_bitmask");
        check_fails(form->mask(&y, empty, &word, 1, stream), "token_bitmask");
        check_fails(form->mask(&y, whole, &word, 1, stream), "float16");
        check_fails(form->mask(&y, good, NULL, 1, stream), "words");
        check_fails(form->mask_rows(&y, good, rows, 4, 1, stream), "4");
        check_fails(form->mask_rows(&y, good, rows, 0, 1, stream), "0");
    }
    mlx_array_free(point);
    mlx_array_free(empty);
    mlx_array_free(whole);
    mlx_array_free(good);
    mlx_array_free(y);
}

/* ---- normalized argmax ---- */

static mlx_array by_operations(mlx_array logits)
{
    mlx_array lse = mlx_array_new(), y = mlx_array_new();
    check_ok(mlx_logsumexp_axis(&lse, logits, -1, true, stream));
    check_ok(mlx_subtract(&y, logits, lse, stream));
    check_ok(mlx_argmax_axis(&y, y, -1, false, stream));
    mlx_array_free(lse);
    return y;
}

static void test_the_choice_is_that_of_three_operations(void **state)
{
    (void)state;
    static const int sizes[] = {1,    4,    31,   127,  1023,
                                1024, 1025, 4096, 9000, 248320};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int t = 0; t < 3; t++)
            for (int layout = 0; layout < LAYOUTS; layout++) {
                mlx_array x = logits_of(3, sizes[i], floats[t], layout);
                mlx_array wanted = by_operations(x);
                assert_int_equal(mlx_array_dtype(wanted), MLX_UINT32);
                for (int f = 0; f < EXT_FORMS; f++) {
                    mlx_array y = mlx_array_new();
                    check_ok(ext_forms[f].argmax(&y, x, stream));
                    check_same(y, wanted);
                    mlx_array_free(y);
                }
                mlx_array_free(x);
                mlx_array_free(wanted);
            }
    /* Other types go through the operations themselves. */
    mlx_array x = random_array((int[]){2, 50}, 2, MLX_INT32, 4);
    mlx_array wanted = by_operations(x), y = mlx_array_new();
    check_ok(quern_normalized_argmax(&y, x, stream));
    check_same(y, wanted);
    mlx_array_free(x);
    mlx_array_free(y);
    mlx_array_free(wanted);
}

static void check_choice(mlx_array x, uint32_t wanted)
{
    for (int f = 0; f < EXT_FORMS; f++) {
        mlx_array y = mlx_array_new();
        uint32_t found = 0;
        check_ok(ext_forms[f].argmax(&y, x, stream));
        assert_int_equal(mlx_array_ndim(y), 0);
        check_ok(mlx_array_eval(y));
        check_ok(mlx_array_item_uint32(&found, y));
        assert_int_equal(found, wanted);
        mlx_array_free(y);
    }
}

static void test_rounding_makes_ties(void **state)
{
    (void)state;
    enum { V = 4096 };
    static float values[V];
    for (int i = 0; i < V; i++)
        values[i] = i == 2048 ? 1.0078125F : 1;
    mlx_array x = mlx_array_new_data(values, (int[]){V}, 1, MLX_FLOAT32);
    check_choice(x, 2048);
    check_ok(mlx_astype(&x, x, MLX_BFLOAT16, stream));
    check_choice(x, 0);
    mlx_array_free(x);
}

static void test_rows_without_a_score(void **state)
{
    (void)state;
    enum { V = 5000 };
    static float values[V];
    const float odd[] = {NAN, INFINITY, -INFINITY};
    for (int t = 0; t < 3; t++)
        for (int k = 0; k < 3; k++) {
            for (int i = 0; i < V; i++)
                values[i] = k == 2 ? -INFINITY : (float)(i % 7);
            values[4500] = odd[k];
            mlx_array x =
                mlx_array_new_data(values, (int[]){V}, 1, MLX_FLOAT32);
            check_ok(mlx_astype(&x, x, floats[t], stream));
            check_choice(x, 0);
            mlx_array_free(x);
        }
}

static int choose(mlx_vector_array *res, const mlx_vector_array in)
{
    const int32_t words[] = {-2, -1};
    mlx_array x = mlx_array_new(), y = mlx_array_new();
    int failed = mlx_vector_array_get(&x, in, 0) ||
                 quern_apply_token_bitmask(&x, x, words, 2, stream) ||
                 quern_normalized_argmax(&y, x, stream) ||
                 mlx_vector_array_set_value(res, y);
    mlx_array_free(x);
    mlx_array_free(y);
    return failed;
}

/* Both are part of shapeless functions. */
static void test_a_shapeless_function_serves_all_rows(void **state)
{
    (void)state;
    static const int rows[] = {1, 4, 9, 1};
    mlx_closure fun = mlx_closure_new_func(choose);
    mlx_closure compiled = mlx_closure_new();
    check_ok(mlx_compile(&compiled, fun, true));
    for (int i = 0; i < 4; i++) {
        mlx_array x = random_array((int[]){rows[i], 64}, 2, MLX_FLOAT32, 8);
        mlx_vector_array in = mlx_vector_array_new_value(x);
        mlx_vector_array found = mlx_vector_array_new();
        mlx_vector_array wanted = mlx_vector_array_new();
        mlx_array a = mlx_array_new(), b = mlx_array_new();
        check_ok(mlx_closure_apply(&found, compiled, in));
        check_ok(mlx_closure_apply(&wanted, fun, in));
        check_ok(mlx_vector_array_get(&a, found, 0));
        check_ok(mlx_vector_array_get(&b, wanted, 0));
        assert_int_equal(mlx_array_size(a), rows[i]);
        check_same(a, b);
        mlx_array_free(x);
        mlx_array_free(a);
        mlx_array_free(b);
        mlx_vector_array_free(in);
        mlx_vector_array_free(found);
        mlx_vector_array_free(wanted);
    }
    assert_int_equal(quern_closure_trace_count(compiled), 1);
    mlx_closure_free(compiled);
    mlx_closure_free(fun);
}

static void test_refused_choices(void **state)
{
    (void)state;
    mlx_array point = mlx_array_new_float32(1), y = mlx_array_new();
    mlx_array empty = random_array((int[]){2, 0}, 2, MLX_FLOAT32, 1);
    check_fails(quern_normalized_argmax(&y, empty, stream), "(2,0)");
    for (int f = 0; f < EXT_FORMS; f++) {
        check_fails(ext_forms[f].argmax(&y, point, stream),
                    "normalized_argmax");
        check_fails(ext_forms[f].argmax(&y, empty, stream),
                    "normalized_argmax");
    }
    mlx_array_free(point);
    mlx_array_free(empty);
    mlx_array_free(y);
}

static void test_nothing_leaks(void **state)
{
    (void)state;
    const int32_t words[] = {-2, -1, 7};
    const int32_t *rows[] = {words, NULL};
    mlx_array x = random_array((int[]){2, 90}, 2, MLX_BFLOAT16, 9);
    for (int f = 0; f < EXT_FORMS; f++) {
        size_t before = 0;
        for (int i = 0; i < 110; i++) {
            mlx_array y = mlx_array_new();
            if (i == 10)
                before = active_bytes();
            check_ok(ext_forms[f].mask(&y, x, words, 3, stream));
            check_ok(mlx_array_eval(y));
            check_ok(ext_forms[f].mask_rows(&y, x, rows, 2, 3, stream));
            check_ok(mlx_array_eval(y));
            check_ok(ext_forms[f].argmax(&y, x, stream));
            check_ok(mlx_array_eval(y));
            mlx_array_free(y);
        }
        assert_int_equal(active_bytes(), before);
    }
    mlx_array_free(x);
}

static mlx_array kept_logits;

/* Masks of some rows and the choice; QN_E_NOMEM where one call failed. */
static qn_status choose_once(void)
{
    const int32_t words[] = {-2, -1, 7};
    const int32_t *rows[] = {words, NULL};
    mlx_array x = mlx_array_new(), y = mlx_array_new();
    int failed =
        quern_apply_token_bitmask_rows(&x, kept_logits, rows, 2, 2, stream) ||
        quern_normalized_argmax(&y, x, stream) || mlx_array_eval(y);
    mlx_array_free(x);
    mlx_array_free(y);
    return failed ? QN_E_NOMEM : QN_OK;
}

static void test_every_allocation_may_fail(void **state)
{
    (void)state;
    kept_logits = random_array((int[]){2, 90}, 2, MLX_BFLOAT16, 9);
    each_alloc_may_fail(choose_once);
    mlx_array_free(kept_logits);
}

int main(void)
{
    stream = mlx_default_cpu_stream_new();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_masks_are_additions, capi_setup),
        cmocka_unit_test_setup(test_words_may_change_after_the_call,
                               capi_setup),
        cmocka_unit_test_setup(test_the_tail_of_a_vocabulary, capi_setup),
        cmocka_unit_test_setup(test_special_logits, capi_setup),
        cmocka_unit_test_setup(test_a_mask_for_each_row, capi_setup),
        cmocka_unit_test_setup(test_masks_of_entries, capi_setup),
        cmocka_unit_test_setup(test_refused_masks, capi_setup),
        cmocka_unit_test_setup(test_the_choice_is_that_of_three_operations,
                               capi_setup),
        cmocka_unit_test_setup(test_rounding_makes_ties, capi_setup),
        cmocka_unit_test_setup(test_rows_without_a_score, capi_setup),
        cmocka_unit_test_setup(test_a_shapeless_function_serves_all_rows,
                               capi_setup),
        cmocka_unit_test_setup(test_refused_choices, capi_setup),
        cmocka_unit_test_setup(test_nothing_leaks, capi_setup),
        cmocka_unit_test_setup(test_every_allocation_may_fail, capi_setup),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    mlx_stream_free(stream);
    return failed;
}
