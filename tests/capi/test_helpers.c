/* What the layer of helpers promises of functions of the MLX C API: slices
 * whose start is an array, rotary embedding, scans, attention, compiled
 * functions, gradients, messages.  What two forms of a call share is compared
 * to the bit. */
#include "arrays.h"

#include "quern/ext.h"

#include <math.h>
#include <stdlib.h>

static const mlx_dtype floats[] = {MLX_FLOAT32, MLX_FLOAT16, MLX_BFLOAT16};

static mlx_array int_at(int value)
{
    return mlx_array_new_int(value);
}

static mlx_array float_array(const float *values, const int *shape, int ndim)
{
    mlx_array x = mlx_array_new_data(values, shape, ndim, MLX_FLOAT32);
    assert_non_null(x.ctx);
    return x;
}

/* Elements start .. stop - 1 along one axis. */
static mlx_array part_of(mlx_array x, int axis, int start, int stop)
{
    mlx_array y = mlx_array_new();
    int from[8] = {0}, to[8], step[8];
    size_t n = mlx_array_ndim(x);
    for (size_t i = 0; i < n; i++) {
        to[i] = mlx_array_dim(x, (int)i);
        step[i] = 1;
    }
    from[axis] = start;
    to[axis] = stop;
    check_ok(mlx_slice(&y, x, from, n, to, n, step, n, stream));
    return y;
}

static void check_floats(mlx_array x, const float *wanted, size_t n)
{
    mlx_array held;
    const float *found = elements_of(&held, x);
    assert_int_equal(mlx_array_size(held), n);
    for (size_t i = 0; i < n; i++)
        assert_true(found[i] == wanted[i] ||
                    (isnan(found[i]) && isnan(wanted[i])));
    mlx_array_free(held);
}

/* ---- slices whose start is an array ---- */

static void test_every_start_gives_the_static_slice(void **state)
{
    (void)state;
    static const int axis = 2;
    mlx_array x = random_array((int[]){1, 2, 8, 4}, 4, MLX_BFLOAT16, 1);
    for (int width = 0; width <= 8; width++)
        for (int start = 0; start + width <= 8; start++) {
            int size[] = {1, 2, width, 4};
            mlx_array at = ints(1, &start), point = int_at(start);
            mlx_array y = mlx_array_new(), z = mlx_array_new();
            mlx_array wanted = part_of(x, 2, start, start + width);
            check_ok(mlx_slice_dynamic(&y, x, at, &axis, 1, size, 4, stream));
            check_ok(
                mlx_slice_dynamic(&z, x, point, &axis, 1, size, 4, stream));
            check_same(y, wanted);
            check_same(z, wanted);
            mlx_array_free(at);
            mlx_array_free(point);
            mlx_array_free(y);
            mlx_array_free(z);
            mlx_array_free(wanted);
        }
    mlx_array_free(x);
}

/* Whoever else holds the source keeps what it had. */
static void test_a_held_source_is_not_written(void **state)
{
    (void)state;
    static const int axis = 0, start = 1;
    mlx_array x = random_array((int[]){4, 3}, 2, MLX_FLOAT32, 2);
    mlx_array before = mlx_array_new(), y = mlx_array_new();
    mlx_array update = random_array((int[]){2, 3}, 2, MLX_FLOAT32, 3);
    mlx_array at = ints(1, &start);
    check_ok(mlx_copy(&before, x, stream));
    check_ok(mlx_array_eval(before));
    check_ok(mlx_slice_update_dynamic(&y, x, update, at, &axis, 1, stream));
    check_ok(mlx_array_eval(y));
    check_same(x, before);
    mlx_array middle = part_of(y, 0, 1, 3), first = part_of(y, 0, 0, 1);
    mlx_array was = part_of(x, 0, 0, 1);
    check_same(middle, update);
    check_same(first, was);
    mlx_array_free(x);
    mlx_array_free(y);
    mlx_array_free(at);
    mlx_array_free(was);
    mlx_array_free(first);
    mlx_array_free(middle);
    mlx_array_free(before);
    mlx_array_free(update);
}

static void test_starts_outside_fail_the_evaluation(void **state)
{
    (void)state;
    static const int starts[] = {-1, 8, 100, INT32_MIN, INT32_MAX};
    static const int axis = 0, size = 3;
    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++) {
        mlx_array x = random_array((int[]){10}, 1, MLX_FLOAT32, 4);
        mlx_array update = random_array((int[]){3}, 1, MLX_FLOAT32, 5);
        mlx_array at = ints(1, &starts[i]);
        mlx_array y = mlx_array_new(), z = mlx_array_new();
        char text[64];
        snprintf(text, sizeof text, "start %d with size 3", starts[i]);
        check_ok(mlx_slice_dynamic(&y, x, at, &axis, 1, &size, 1, stream));
        check_fails(mlx_array_eval(y), text);
        check_ok(mlx_slice_update_dynamic(&z, x, update, at, &axis, 1, stream));
        check_fails(mlx_array_eval(z), "axis 0 of length 10");
        mlx_array_free(x);
        mlx_array_free(y);
        mlx_array_free(z);
        mlx_array_free(at);
        mlx_array_free(update);
    }
}

static void test_refused_slices(void **state)
{
    (void)state;
    static const int axis = 0, twice[] = {0, -2}, starts[] = {0, 0};
    static const int good[] = {1, 1}, wide[] = {5, 1}, negative[] = {-1, 1};
    mlx_array x = random_array((int[]){4, 3}, 2, MLX_FLOAT32, 6);
    mlx_array at = ints(1, starts), two = ints(2, starts);
    mlx_array real = random_array((int[]){1}, 1, MLX_FLOAT32, 7);
    mlx_array y = mlx_array_new();
    check_fails(mlx_slice_dynamic(&y, x, real, &axis, 1, good, 2, stream),
                "float32");
    check_fails(mlx_slice_dynamic(&y, x, two, &axis, 1, good, 2, stream), "2");
    check_fails(mlx_slice_dynamic(&y, x, two, twice, 2, good, 2, stream),
                "twice");
    check_fails(mlx_slice_dynamic(&y, x, at, &axis, 1, good, 1, stream), "1");
    check_fails(mlx_slice_dynamic(&y, x, at, &axis, 1, wide, 2, stream), "5");
    check_fails(mlx_slice_dynamic(&y, x, at, &axis, 1, negative, 2, stream),
                "-1");
    mlx_array_free(x);
    mlx_array_free(y);
    mlx_array_free(at);
    mlx_array_free(two);
    mlx_array_free(real);
}

/* A cache step: rows of `update` at a place, and the whole doubled. */
static int write_and_join(mlx_vector_array *res, const mlx_vector_array in)
{
    static const int axis = 0;
    mlx_array x[3] = {mlx_array_new(), mlx_array_new(), mlx_array_new()};
    mlx_array y = mlx_array_new();
    mlx_vector_array both = mlx_vector_array_new();
    int failed = 0;
    for (size_t i = 0; i < 3; i++)
        failed = failed || mlx_vector_array_get(&x[i], in, i);
    failed = failed ||
             mlx_slice_update_dynamic(&y, x[0], x[1], x[2], &axis, 1, stream) ||
             mlx_vector_array_append_value(both, y) ||
             mlx_vector_array_append_value(both, x[1]) ||
             mlx_concatenate_axis(&y, both, 0, stream) ||
             mlx_vector_array_set_value(res, y);
    for (int i = 0; i < 3; i++)
        mlx_array_free(x[i]);
    mlx_array_free(y);
    mlx_vector_array_free(both);
    return failed;
}

/* One recording serves every start. */
static void test_replays_at_several_starts(void **state)
{
    (void)state;
    mlx_closure fun = mlx_closure_new_func(write_and_join);
    mlx_closure compiled = mlx_closure_new();
    check_ok(mlx_compile(&compiled, fun, false));
    for (int start = 0; start < 4; start++) {
        mlx_array list[] = {random_array((int[]){5, 2}, 2, MLX_FLOAT32, 8),
                            random_array((int[]){2, 2}, 2, MLX_FLOAT32, 9),
                            ints(1, &start)};
        mlx_vector_array in = mlx_vector_array_new_data(list, 3);
        mlx_vector_array found = mlx_vector_array_new();
        mlx_vector_array wanted = mlx_vector_array_new();
        mlx_array a = mlx_array_new(), b = mlx_array_new();
        check_ok(mlx_closure_apply(&found, compiled, in));
        check_ok(mlx_closure_apply(&wanted, fun, in));
        check_ok(mlx_vector_array_get(&a, found, 0));
        check_ok(mlx_vector_array_get(&b, wanted, 0));
        check_same(a, b);
        for (int i = 0; i < 3; i++)
            mlx_array_free(list[i]);
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

/* ---- rotary embedding ---- */

static const mlx_optional_float base_of = {10000, true};

static mlx_array turned(mlx_array x, int dims, bool traditional, int offset)
{
    mlx_array y = mlx_array_new();
    check_ok(mlx_fast_rope(&y, x, dims, traditional, base_of, 1, offset,
                           mlx_array_empty, stream));
    return y;
}

static mlx_array turned_at(mlx_array x, int dims, bool traditional,
                           mlx_array offset)
{
    mlx_array y = mlx_array_new();
    check_ok(mlx_fast_rope_dynamic(&y, x, dims, traditional, base_of, 1, offset,
                                   mlx_array_empty, stream));
    return y;
}

/* A number, an array of one, and an array of equal ones: the same bits. */
static void test_offsets_in_three_forms(void **state)
{
    (void)state;
    static const int offsets[] = {0, 37, -5, 100000};
    for (int t = 0; t < 3; t++)
        for (int o = 0; o < 4; o++)
            for (int way = 0; way < 2; way++) {
                int both[] = {offsets[o], offsets[o]};
                mlx_array x =
                    random_array((int[]){2, 3, 5, 8}, 4, floats[t], 10);
                mlx_array point = int_at(both[0]);
                mlx_array one = ints(1, both), each = ints(2, both);
                mlx_array wanted = turned(x, 6, way, both[0]);
                const mlx_array list[] = {point, one, each};
                for (int i = 0; i < 3; i++) {
                    mlx_array y = turned_at(x, 6, way, list[i]);
                    check_same(y, wanted);
                    mlx_array_free(y);
                }
                /* What is not turned passes bit for bit. */
                mlx_array tail = part_of(wanted, 3, 6, 8);
                mlx_array was = part_of(x, 3, 6, 8);
                check_same(tail, was);
                mlx_array_free(x);
                mlx_array_free(was);
                mlx_array_free(one);
                mlx_array_free(each);
                mlx_array_free(tail);
                mlx_array_free(point);
                mlx_array_free(wanted);
            }
}

/* A position is turned alike among others and alone, and a batch row as in a
 * batch of its own. */
static void test_positions_and_rows_by_themselves(void **state)
{
    (void)state;
    static const int offsets[] = {3, 90};
    for (int t = 0; t < 3; t++) {
        mlx_array x = random_array((int[]){2, 3, 5, 8}, 4, floats[t], 11);
        mlx_array each = ints(2, offsets), y = turned_at(x, 8, false, each);
        for (int b = 0; b < 2; b++) {
            mlx_array row = part_of(x, 0, b, b + 1);
            mlx_array found = part_of(y, 0, b, b + 1);
            mlx_array wanted = turned(row, 8, false, offsets[b]);
            check_same(found, wanted);
            for (int l = 0; l < 5; l++) {
                mlx_array one = part_of(row, 2, l, l + 1);
                mlx_array alone = turned(one, 8, false, offsets[b] + l);
                mlx_array among = part_of(wanted, 2, l, l + 1);
                check_same(alone, among);
                mlx_array_free(one);
                mlx_array_free(alone);
                mlx_array_free(among);
            }
            mlx_array_free(row);
            mlx_array_free(found);
            mlx_array_free(wanted);
        }
        mlx_array_free(x);
        mlx_array_free(y);
        mlx_array_free(each);
    }
}

/* A base and the frequencies that it stands for. */
static void test_base_and_frequencies(void **state)
{
    (void)state;
    static const int offsets[] = {0, 37, 4096};
    float list[4];
    for (int i = 0; i < 4; i++)
        list[i] = powf(10000, (float)i / 4);
    mlx_array freqs = float_array(list, (int[]){4}, 1);
    mlx_array x = random_array((int[]){1, 2, 3, 8}, 4, MLX_FLOAT32, 12);
    for (int o = 0; o < 3; o++) {
        mlx_array y = mlx_array_new(), held[2];
        mlx_array wanted = turned(x, 8, false, offsets[o]);
        check_ok(mlx_fast_rope(&y, x, 8, false, (mlx_optional_float){0, false},
                               1, offsets[o], freqs, stream));
        const float *a = elements_of(&held[0], wanted);
        const float *b = elements_of(&held[1], y);
        /* Of elements up to 2. */
        double bound = 4 * (1e-6 + 2 * 0x1p-23 * (offsets[o] + 3));
        for (int i = 0; i < 48; i++)
            assert_true(fabs((double)a[i] - (double)b[i]) <= bound);
        mlx_array_free(held[0]);
        mlx_array_free(held[1]);
        mlx_array_free(y);
        mlx_array_free(wanted);
    }
    mlx_array_free(x);
    mlx_array_free(freqs);
}

static void test_refused_rope(void **state)
{
    (void)state;
    const mlx_optional_float none = {0, false};
    const int three[] = {1, 2, 3};
    mlx_array x = random_array((int[]){2, 3, 8}, 3, MLX_FLOAT32, 13);
    mlx_array whole = random_array((int[]){2, 3, 8}, 3, MLX_INT32, 13);
    mlx_array flat = random_array((int[]){3, 8}, 2, MLX_FLOAT32, 13);
    mlx_array freqs = random_array((int[]){3}, 1, MLX_FLOAT32, 13);
    mlx_array offsets = ints(3, three), y = mlx_array_new();
#define ROPE(x, dims, base, freqs)                                             \
    mlx_fast_rope(&y, x, dims, false, base, 1, 0, freqs, stream)
    check_fails(ROPE(x, 8, none, mlx_array_empty), "base");
    check_fails(ROPE(x, 8, base_of, freqs), "base");
    check_fails(ROPE(x, 7, base_of, mlx_array_empty), "7");
    check_fails(ROPE(x, 10, base_of, mlx_array_empty), "10");
    check_fails(ROPE(flat, 8, base_of, mlx_array_empty), "2");
    check_fails(ROPE(whole, 8, base_of, mlx_array_empty), "int32");
    check_fails(ROPE(x, 8, none, freqs), "3");
    check_fails(mlx_fast_rope_dynamic(&y, x, 8, false, base_of, 1, offsets,
                                      mlx_array_empty, stream),
                "3");
    check_fails(mlx_fast_rope_dynamic(&y, x, 8, false, base_of, 1, freqs,
                                      mlx_array_empty, stream),
                "float32");
#undef ROPE
    mlx_array_free(x);
    mlx_array_free(y);
    mlx_array_free(flat);
    mlx_array_free(whole);
    mlx_array_free(freqs);
    mlx_array_free(offsets);
}

/* ---- scans ---- */

static const mlx_optional_dtype as_it_is = {MLX_FLOAT32, false};

static void test_scans_of_an_example(void **state)
{
    (void)state;
    static const float x[] = {1, 2, 3, 4, 5, 6};
    static const float down[] = {1, 2, 3, 5, 7, 9};
    static const float along[] = {1, 3, 6, 4, 9, 15};
    static const mlx_dtype types[] = {MLX_FLOAT32, MLX_INT32};
    for (int t = 0; t < 2; t++)
        for (int axis = 0; axis < 2; axis++) {
            mlx_array a = float_array(x, (int[]){2, 3}, 2);
            mlx_array y = mlx_array_new();
            check_ok(mlx_astype(&a, a, types[t], stream));
            check_ok(
                mlx_cumsum_axis(&y, a, axis, false, true, as_it_is, stream));
            assert_int_equal(mlx_array_dtype(y), types[t]);
            check_ok(mlx_astype(&y, y, MLX_FLOAT32, stream));
            check_floats(y, axis ? along : down, 6);
            mlx_array_free(a);
            mlx_array_free(y);
        }
}

static void test_scans_of_views_bytes_and_nothing(void **state)
{
    (void)state;
    static const int8_t bytes[] = {100, 100, 100};
    static const int8_t wrapped[] = {100, -56, 44};
    static const int empty[][2] = {{0, 0}, {3, 0}, {0, 3}};
    static const int ndims[] = {1, 2, 2};
    mlx_array x = random_array((int[]){3, 4}, 2, MLX_FLOAT32, 14);
    mlx_array view = mlx_array_new(), whole = mlx_array_new();
    check_ok(mlx_transpose(&view, x, stream));
    check_ok(quern_materialize(&whole, view, stream));
    for (int axis = -2; axis < 2; axis++)
        for (int way = 0; way < 4; way++) {
            mlx_array a = mlx_array_new(), b = mlx_array_new();
            check_ok(mlx_cumsum_axis(&a, view, axis, way & 1, way & 2, as_it_is,
                                     stream));
            check_ok(mlx_cumsum_axis(&b, whole, axis, way & 1, way & 2,
                                     as_it_is, stream));
            check_same(a, b);
            check_ok(mlx_cummax_axis(&a, view, axis, way & 1, way & 2, stream));
            check_ok(
                mlx_cummax_axis(&b, whole, axis, way & 1, way & 2, stream));
            check_same(a, b);
            mlx_array_free(a);
            mlx_array_free(b);
        }
    mlx_array_free(whole);
    mlx_array_free(view);
    mlx_array_free(x);
    mlx_array y = mlx_array_new();
    x = mlx_array_new_data(bytes, (int[]){3}, 1, MLX_INT8);
    check_ok(mlx_cumsum_axis(&y, x, 0, false, true, as_it_is, stream));
    check_ok(mlx_array_eval(y));
    assert_memory_equal(mlx_array_data_int8(y), wrapped, 3);
    check_fails(mlx_cumsum_axis(&y, x, 1, false, true, as_it_is, stream), "1");
    mlx_array_free(x);
    for (int i = 0; i < 3; i++) {
        x = random_array(empty[i], ndims[i], MLX_FLOAT32, 15);
        check_ok(mlx_cumsum_axis(&y, x, -1, false, true, as_it_is, stream));
        check_same(y, x);
        check_ok(mlx_cummax_axis(&y, x, 0, false, true, stream));
        check_same(y, x);
        mlx_array_free(x);
    }
    mlx_array_free(y);
}

/* ---- attention ---- */

static mlx_array attend(mlx_array q, mlx_array k, mlx_array v, const char *mode,
                        mlx_array mask, mlx_array sinks, bool fused)
{
    mlx_array y = mlx_array_new();
    check_ok(mlx_fast_scaled_dot_product_attention(&y, q, k, v, 0.5F, mode,
                                                   mask, sinks, fused, stream));
    return y;
}

/* q = 0: every key that is kept weighs the same. */
static void test_equal_scores(void **state)
{
    (void)state;
    static const float rows[] = {1, 3, 5, 7, 9, 11, 13, 15};
    static const float mean[] = {5, 7, 9, 11, 5, 7, 9, 11};
    static const float causal[] = {1, 3, 5, 7, 5, 7, 9, 11};
    static const float last[] = {9, 11, 13, 15, 9, 11, 13, 15};
    static const float additive[] = {-INFINITY, 0},
                       all[] = {-INFINITY, -INFINITY};
    static const bool nothing[] = {false, false};
    const float nan[] = {NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN};
    const int shape[] = {1, 1, 2, 4}, pair[] = {1, 1, 1, 2};
    mlx_array q = mlx_array_new(), v = float_array(rows, shape, 4);
    check_ok(mlx_zeros(&q, shape, 4, MLX_FLOAT32, stream));
    mlx_array none = mlx_array_empty;
    const struct {
        const char *mode;
        mlx_array mask;
        const float *wanted;
    } list[] = {
        {"", none, mean},
        {NULL, none, mean},
        {"causal", none, causal},
        {"array", none, mean},
        {"", float_array(additive, pair, 4), last},
        {"array", float_array(additive, pair, 4), last},
        {"array", float_array(all, pair, 4), nan},
        {"array", mlx_array_new_data(nothing, pair, 4, MLX_BOOL), mean}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        for (int fused = 0; fused < 2; fused++) {
            mlx_array y =
                attend(q, q, v, list[i].mode, list[i].mask, none, fused);
            check_floats(y, list[i].wanted, 8);
            mlx_array_free(y);
        }
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        mlx_array_free(list[i].mask);
    mlx_array_free(q);
    mlx_array_free(v);
}

/* A sink of 0 beside three equal scores of 0 leaves each a quarter; one of 100
 * leaves nothing. */
static void test_sinks(void **state)
{
    (void)state;
    static const float ones[] = {1, 2, 4};
    for (int t = 0; t < 3; t++)
        for (int strong = 0; strong < 2; strong++) {
            const float sink = strong ? 100 : 0;
            const float wanted = strong ? 0 : 1.75F;
            mlx_array q = mlx_array_new(), k = mlx_array_new();
            mlx_array v = float_array(ones, (int[]){1, 1, 3, 1}, 4);
            mlx_array sinks = float_array(&sink, (int[]){1}, 1);
            check_ok(mlx_zeros(&q, (int[]){1, 1, 1, 2}, 4, floats[t], stream));
            check_ok(mlx_zeros(&k, (int[]){1, 1, 3, 2}, 4, floats[t], stream));
            check_ok(mlx_astype(&v, v, floats[t], stream));
            check_ok(mlx_astype(&sinks, sinks, floats[t], stream));
            mlx_array y = attend(q, k, v, "", mlx_array_empty, sinks, false);
            check_ok(mlx_astype(&y, y, MLX_FLOAT32, stream));
            check_ok(mlx_array_eval(y));
            assert_true(fabsf(mlx_array_data_float32(y)[0] - wanted) <= 1e-6F);
            mlx_array_free(q);
            mlx_array_free(k);
            mlx_array_free(v);
            mlx_array_free(y);
            mlx_array_free(sinks);
        }
}

/* Heads that share keys are as if the keys were there for each, values may be
 * wider than keys, and a query alone gives its bits among others. */
static void test_heads_widths_and_rows(void **state)
{
    (void)state;
    enum { HEADS = 4, KEYS = 2, L = 5, D = 8, DV = 12 };
    for (int t = 0; t < 3; t++) {
        mlx_array q = random_array((int[]){1, HEADS, L, D}, 4, floats[t], 20);
        mlx_array k = random_array((int[]){1, KEYS, L, D}, 4, floats[t], 21);
        mlx_array v = random_array((int[]){1, KEYS, L, DV}, 4, floats[t], 22);
        mlx_array keys = mlx_array_new(), values = mlx_array_new();
        mlx_array none = mlx_array_empty;
        check_ok(mlx_repeat_axis(&keys, k, HEADS / KEYS, 1, stream));
        check_ok(mlx_repeat_axis(&values, v, HEADS / KEYS, 1, stream));
        mlx_array y = attend(q, k, v, "causal", none, none, false);
        mlx_array z = attend(q, keys, values, "causal", none, none, true);
        assert_int_equal(mlx_array_dim(y, 3), DV);
        check_same(y, z);
        /* A chunk at a time: the same bits as all at once. */
        for (int i = 0; i < L; i++) {
            mlx_array one = part_of(q, 2, i, i + 1);
            mlx_array seen = part_of(k, 2, 0, i + 1);
            mlx_array held = part_of(v, 2, 0, i + 1);
            mlx_array alone =
                attend(one, seen, held, "causal", none, none, false);
            mlx_array among = part_of(y, 2, i, i + 1);
            check_same(alone, among);
            mlx_array_free(one);
            mlx_array_free(seen);
            mlx_array_free(held);
            mlx_array_free(alone);
            mlx_array_free(among);
        }
        mlx_array_free(q);
        mlx_array_free(k);
        mlx_array_free(v);
        mlx_array_free(y);
        mlx_array_free(z);
        mlx_array_free(keys);
        mlx_array_free(values);
    }
}

static void test_refused_attention(void **state)
{
    (void)state;
    mlx_array q = random_array((int[]){1, 3, 2, 8}, 4, MLX_FLOAT32, 23);
    mlx_array k = random_array((int[]){1, 2, 2, 8}, 4, MLX_FLOAT32, 24);
    mlx_array mask = random_array((int[]){1, 1, 2, 2}, 4, MLX_FLOAT32, 25);
    mlx_array y = mlx_array_new(), none = mlx_array_empty;
#define ATTEND(q, k, mode, mask, sinks)                                        \
    mlx_fast_scaled_dot_product_attention(&y, q, k, k, 1, mode, mask, sinks,   \
                                          false, stream)
    check_fails(ATTEND(q, k, "", none, none), "3");
    check_fails(ATTEND(k, k, "sideways", none, none), "sideways");
    check_fails(ATTEND(k, k, "causal", mask, none), "causal");
    check_fails(ATTEND(k, k, "", none, mask), "sinks");
#undef ATTEND
    mlx_array_free(q);
    mlx_array_free(k);
    mlx_array_free(y);
    mlx_array_free(mask);
}

/* ---- compiled functions ---- */

static mlx_array captured;

static int plus_captured(mlx_vector_array *res, const mlx_vector_array in)
{
    mlx_array x = mlx_array_new(), y = mlx_array_new();
    int failed = mlx_vector_array_get(&x, in, 0) ||
                 mlx_add(&y, x, captured, stream) ||
                 mlx_vector_array_set_value(res, y);
    mlx_array_free(x);
    mlx_array_free(y);
    return failed;
}

/* What a recording caught stays, whatever the handle becomes. */
static void test_a_captured_constant_keeps_its_value(void **state)
{
    (void)state;
    mlx_closure fun = mlx_closure_new_func(plus_captured);
    mlx_closure compiled = mlx_closure_new();
    check_ok(mlx_compile(&compiled, fun, false));
    captured = mlx_array_new_float32(10);
    for (int i = 0; i < 2; i++) {
        const float wanted = 11;
        mlx_array x = float_array((float[]){1}, (int[]){1}, 1);
        mlx_array y = mlx_array_new();
        mlx_vector_array in = mlx_vector_array_new_value(x);
        mlx_vector_array out = mlx_vector_array_new();
        check_ok(mlx_closure_apply(&out, compiled, in));
        check_ok(mlx_vector_array_get(&y, out, 0));
        check_floats(y, &wanted, 1);
        check_ok(mlx_array_set_float32(&captured, 100));
        mlx_array_free(x);
        mlx_array_free(y);
        mlx_vector_array_free(in);
        mlx_vector_array_free(out);
    }
    mlx_array_free(captured);
    mlx_closure_free(compiled);
    mlx_closure_free(fun);
}

static int declined, accepted;

/* A path that looks at sizes: not while a shapeless function is recorded. */
static int fast_or_not(mlx_vector_array *res, const mlx_vector_array in)
{
    mlx_array x = mlx_array_new(), y = mlx_array_new();
    if (quern_in_shapeless_trace())
        declined++;
    else
        accepted++;
    int failed = mlx_vector_array_get(&x, in, 0) || mlx_add(&y, x, x, stream) ||
                 mlx_vector_array_set_value(res, y);
    mlx_array_free(x);
    mlx_array_free(y);
    return failed;
}

static void test_a_decline_in_a_shapeless_function(void **state)
{
    (void)state;
    static const int lengths[] = {5, 17, 5};
    mlx_closure fun = mlx_closure_new_func(fast_or_not);
    mlx_closure compiled = mlx_closure_new();
    check_ok(mlx_compile(&compiled, fun, true));
    for (int i = 0; i < 4; i++) {
        mlx_array x = random_array(&lengths[i % 3], 1, MLX_FLOAT32, 30);
        mlx_array y = mlx_array_new(), twice = mlx_array_new();
        mlx_vector_array in = mlx_vector_array_new_value(x);
        mlx_vector_array out = mlx_vector_array_new();
        check_ok(mlx_closure_apply(&out, i < 3 ? compiled : fun, in));
        check_ok(mlx_vector_array_get(&y, out, 0));
        check_ok(mlx_add(&twice, x, x, stream));
        check_same(y, twice);
        mlx_array_free(x);
        mlx_array_free(y);
        mlx_array_free(twice);
        mlx_vector_array_free(in);
        mlx_vector_array_free(out);
    }
    assert_int_equal(declined, 1);
    assert_int_equal(accepted, 1);
    assert_int_equal(quern_closure_trace_count(compiled), 1);
    assert_false(quern_in_shapeless_trace());
    mlx_closure_free(compiled);
    mlx_closure_free(fun);
}

/* ---- gradients ---- */

/* mean((x w + x a b - t)^2): a and b are what is trained. */
static int low_rank_loss(mlx_vector_array *res, const mlx_vector_array in)
{
    mlx_array x[5], y = mlx_array_new(), z = mlx_array_new();
    int failed = 0;
    for (size_t i = 0; i < 5; i++) {
        x[i] = mlx_array_new();
        failed = failed || mlx_vector_array_get(&x[i], in, i);
    }
    failed = failed || mlx_matmul(&y, x[2], x[3], stream) ||
             mlx_matmul(&z, x[2], x[0], stream) ||
             mlx_matmul(&z, z, x[1], stream) || mlx_add(&y, y, z, stream) ||
             mlx_subtract(&y, y, x[4], stream) || mlx_square(&y, y, stream) ||
             mlx_mean(&y, y, false, stream) ||
             mlx_vector_array_set_value(res, y);
    for (int i = 0; i < 5; i++)
        mlx_array_free(x[i]);
    mlx_array_free(y);
    mlx_array_free(z);
    return failed;
}

static double loss_at(mlx_closure fun, const mlx_array *list, int which, int at,
                      float by)
{
    mlx_array moved[5], y = mlx_array_new();
    float values[64], loss;
    memcpy(moved, list, sizeof moved);
    size_t n = mlx_array_size(list[which]);
    memcpy(values, mlx_array_data_float32(list[which]), n * sizeof *values);
    values[at] += by;
    moved[which] = float_array(values, mlx_array_shape(list[which]), 2);
    mlx_vector_array in = mlx_vector_array_new_data(moved, 5);
    mlx_vector_array out = mlx_vector_array_new();
    check_ok(mlx_closure_apply(&out, fun, in));
    check_ok(mlx_vector_array_get(&y, out, 0));
    check_ok(mlx_array_eval(y));
    check_ok(mlx_array_item_float32(&loss, y));
    mlx_array_free(moved[which]);
    mlx_array_free(y);
    mlx_vector_array_free(in);
    mlx_vector_array_free(out);
    return (double)loss;
}

/* Gradients of two low-rank factors against central differences; those of
 * mlx_vjp with a cotangent of 1 are the same. */
static void test_low_rank_gradients(void **state)
{
    (void)state;
    static const int wanted[] = {0, 1};
    mlx_array list[] = {random_array((int[]){6, 2}, 2, MLX_FLOAT32, 40),
                        random_array((int[]){2, 5}, 2, MLX_FLOAT32, 41),
                        random_array((int[]){4, 6}, 2, MLX_FLOAT32, 42),
                        random_array((int[]){6, 5}, 2, MLX_FLOAT32, 43),
                        random_array((int[]){4, 5}, 2, MLX_FLOAT32, 44)};
    mlx_closure fun = mlx_closure_new_func(low_rank_loss);
    mlx_closure_value_and_grad both = mlx_closure_value_and_grad_new();
    mlx_vector_array in = mlx_vector_array_new_data(list, 5);
    mlx_vector_array values = mlx_vector_array_new();
    mlx_vector_array grads = mlx_vector_array_new();
    mlx_vector_array outputs = mlx_vector_array_new();
    mlx_vector_array vjps = mlx_vector_array_new();
    mlx_array one = mlx_array_new_float32(1);
    mlx_vector_array cotangents = mlx_vector_array_new_value(one);
    check_ok(mlx_value_and_grad(&both, fun, wanted, 2));
    check_ok(mlx_closure_value_and_grad_apply(&values, &grads, both, in));
    check_ok(mlx_vjp(&outputs, &vjps, fun, in, cotangents));
    assert_int_equal(mlx_vector_array_size(grads), 2);
    assert_int_equal(mlx_vector_array_size(vjps), 5);
    for (int i = 0; i < 2; i++) {
        mlx_array grad = mlx_array_new(), vjp = mlx_array_new(), held;
        check_ok(mlx_vector_array_get(&grad, grads, (size_t)i));
        check_ok(mlx_vector_array_get(&vjp, vjps, (size_t)i));
        check_same(grad, vjp);
        const float *found = elements_of(&held, grad);
        double apart = 0, size = 0;
        for (int e = 0; e < (int)mlx_array_size(list[i]); e++) {
            const float step = 1e-3F;
            double difference = (loss_at(fun, list, i, e, step) -
                                 loss_at(fun, list, i, e, -step)) /
                                (2 * (double)step);
            apart += pow(difference - (double)found[e], 2);
            size += pow(difference, 2);
        }
        assert_true(sqrt(apart) < 1e-2 * sqrt(size));
        mlx_array_free(grad);
        mlx_array_free(vjp);
        mlx_array_free(held);
    }
    for (int i = 0; i < 5; i++)
        mlx_array_free(list[i]);
    mlx_array_free(one);
    mlx_vector_array_free(in);
    mlx_vector_array_free(vjps);
    mlx_vector_array_free(grads);
    mlx_vector_array_free(values);
    mlx_vector_array_free(outputs);
    mlx_vector_array_free(cotangents);
    mlx_closure_value_and_grad_free(both);
    mlx_closure_free(fun);
}

/* ---- messages ---- */

/* After a failure the result is free to go and the operands still serve; of a
 * thousand nothing stays. */
static void test_after_failures(void **state)
{
    (void)state;
    mlx_array a = random_array((int[]){2, 3}, 2, MLX_FLOAT32, 50);
    mlx_array b = random_array((int[]){4, 5}, 2, MLX_FLOAT32, 51);
    size_t before = 0;
    for (int i = 0; i < 1010; i++) {
        mlx_array y = mlx_array_new();
        if (i == 10)
            before = active_bytes();
        assert_int_equal(mlx_add(&y, a, b, stream), 1);
        mlx_array_free(y);
        if (i % 2)
            free(quern_error_take());
    }
    assert_int_equal(active_bytes(), before);
    mlx_array y = mlx_array_new();
    check_ok(mlx_add(&y, a, a, stream));
    check_ok(mlx_array_eval(y));
    assert_null(quern_error_take());
    assert_int_equal(mlx_add(&y, a, b, stream), 1);
    assert_int_equal(mlx_reshape(&y, a, (int[]){7}, 1, stream), 1);
    mlx_array z = mlx_array_new();
    check_ok(mlx_add(&z, b, b, stream));
    char *message = quern_error_take();
    assert_non_null(message);
    assert_non_null(strstr(message, "[reshape]"));
    free(message);
    assert_null(quern_error_take());
    mlx_array_free(a);
    mlx_array_free(b);
    mlx_array_free(y);
    mlx_array_free(z);
}

int main(void)
{
    stream = mlx_default_cpu_stream_new();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_start_gives_the_static_slice),
        cmocka_unit_test(test_a_held_source_is_not_written),
        cmocka_unit_test(test_starts_outside_fail_the_evaluation),
        cmocka_unit_test(test_refused_slices),
        cmocka_unit_test(test_replays_at_several_starts),
        cmocka_unit_test(test_offsets_in_three_forms),
        cmocka_unit_test(test_positions_and_rows_by_themselves),
        cmocka_unit_test(test_base_and_frequencies),
        cmocka_unit_test(test_refused_rope),
        cmocka_unit_test(test_scans_of_an_example),
        cmocka_unit_test(test_scans_of_views_bytes_and_nothing),
        cmocka_unit_test(test_equal_scores),
        cmocka_unit_test(test_sinks),
        cmocka_unit_test(test_heads_widths_and_rows),
        cmocka_unit_test(test_refused_attention),
        cmocka_unit_test(test_a_captured_constant_keeps_its_value),
        cmocka_unit_test(test_a_decline_in_a_shapeless_function),
        cmocka_unit_test(test_low_rank_gradients),
        cmocka_unit_test(test_after_failures),
    };
    int failed = cmocka_run_group_tests(tests, capi_setup, NULL);
    mlx_stream_free(stream);
    return failed;
}
