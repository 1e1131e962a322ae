/* Copies with storage of their own, ranges that are kept, and products by
 * rows, in both forms (ext_forms.h). */
#include "arrays.h"

#include "capi/ext_arange.h"

#include "ext_forms.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>

static const mlx_dtype floats[] = {MLX_FLOAT32, MLX_FLOAT16, MLX_BFLOAT16};

/* ---- materialize ---- */

static mlx_array slice_of(mlx_array x, const int *start, const int *stop,
                          const int *step)
{
    mlx_array y = mlx_array_new();
    size_t n = mlx_array_ndim(x);
    check_ok(mlx_slice(&y, x, start, n, stop, n, step, n, stream));
    return y;
}

static void test_a_copy_lets_the_base_go(void **state)
{
    (void)state;
    enum { MIB = 1 << 20 };
    for (int f = 0; f < EXT_FORMS; f++) {
        check_ok(mlx_clear_cache());
        size_t before = active_bytes();
        mlx_array base =
            random_array((int[]){1, 515, 10240}, 3, MLX_BFLOAT16, 1);
        mlx_array view = slice_of(base, (int[]){0, 512, 0},
                                  (int[]){1, 515, 10240}, (int[]){1, 1, 1});
        mlx_array copy = mlx_array_new();
        check_ok(ext_forms[f].materialize(&copy, view, stream));
        check_ok(mlx_array_eval(copy));
        check_ok(mlx_array_eval(view));
        check_same(copy, view);
        assert_ptr_not_equal(mlx_array_data_uint8(copy),
                             mlx_array_data_uint8(view));
        size_t size = mlx_array_nbytes(copy);
        mlx_array_free(view);
        mlx_array_free(base);
        assert_true(active_bytes() - before <= size + MIB);
        mlx_array_free(copy);
    }
}

/* A row-major whole array is copied, too; one that dies is taken over only in
 * the engine, and only if it needs all of its buffer. */
static void test_who_may_share_storage(void **state)
{
    (void)state;
    for (int f = 0; f < EXT_FORMS; f++) {
        mlx_array x = random_array((int[]){64, 64}, 2, MLX_FLOAT32, 2);
        mlx_array copy = mlx_array_new();
        check_ok(ext_forms[f].materialize(&copy, x, stream));
        check_ok(mlx_array_eval(copy));
        assert_ptr_not_equal(mlx_array_data_float32(copy),
                             mlx_array_data_float32(x));
        check_same(copy, x);
        mlx_array_free(copy);
        mlx_array_free(x);
    }
    /* Dies with the node, but has 4 rows of 512. */
    mlx_array x = random_array((int[]){512, 1024}, 2, MLX_FLOAT32, 3);
    mlx_array part =
        slice_of(x, (int[]){0, 0}, (int[]){4, 1024}, (int[]){1, 1});
    mlx_array copy = mlx_array_new();
    check_ok(quern_materialize(&copy, part, stream));
    mlx_array_free(part);
    mlx_array_free(x);
    size_t before = active_bytes();
    check_ok(mlx_array_eval(copy));
    assert_true(active_bytes() + 500 * 4096 < before + 4 * 4096);
    mlx_array_free(copy);
    /* All of it: no second buffer is needed. */
    mlx_array sum = mlx_array_new();
    x = random_array((int[]){512, 1024}, 2, MLX_FLOAT32, 4);
    check_ok(mlx_exp(&sum, x, stream));
    copy = mlx_array_new();
    check_ok(quern_materialize(&copy, sum, stream));
    mlx_array_free(sum);
    check_ok(mlx_clear_cache());
    check_ok(mlx_reset_peak_memory());
    before = active_bytes();
    check_ok(mlx_array_eval(copy));
    size_t peak = 0;
    check_ok(mlx_get_peak_memory(&peak));
    assert_true(peak - before < 3 * (512 * 1024 * 4) / 2);
    mlx_array_free(copy);
    mlx_array_free(x);
}

static void test_bits_and_shapes_survive(void **state)
{
    (void)state;
    static const uint32_t bits[] = {0x80000000, 0x7fc00123, 0x7f800000,
                                    0xff800000};
    static const mlx_dtype types[] = {MLX_FLOAT32, MLX_FLOAT16,  MLX_BFLOAT16,
                                      MLX_INT32,   MLX_UINT32,   MLX_BOOL,
                                      MLX_INT64,   MLX_COMPLEX64};
    for (int f = 0; f < EXT_FORMS; f++) {
        const ext_form *form = &ext_forms[f];
        mlx_array x = mlx_array_new_data(bits, (int[]){4}, 1, MLX_FLOAT32);
        mlx_array y = mlx_array_new();
        check_ok(form->materialize(&y, x, stream));
        check_ok(mlx_array_eval(y));
        assert_memory_equal(mlx_array_data_float32(y), bits, sizeof bits);
        mlx_array_free(x);
        for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
            mlx_array turned = mlx_array_new();
            x = random_array((int[]){2, 3}, 2, types[t], 5);
            check_ok(mlx_transpose(&turned, x, stream));
            check_ok(form->materialize(&y, turned, stream));
            check_same(y, turned);
            size_t item = mlx_array_itemsize(y);
            assert_int_equal(mlx_array_strides(y)[0], 2);
            assert_int_equal(mlx_array_strides(y)[1], 1);
            assert_int_equal(mlx_array_nbytes(y), 6 * item);
            mlx_array_free(turned);
            mlx_array_free(x);
        }
        static const int shapes[][2] = {{0, 0}, {0, 3}, {1, 0}};
        static const int ndims[] = {0, 2, 1};
        for (int i = 0; i < 3; i++) {
            x = random_array(shapes[i], ndims[i], MLX_FLOAT32, 6);
            check_ok(form->materialize(&y, x, stream));
            check_same(y, x);
            assert_int_equal(mlx_array_ndim(y), ndims[i]);
            mlx_array_free(x);
        }
        mlx_array_free(y);
    }
}

static const ext_form *traced;

static int copy_twice(mlx_vector_array *res, const mlx_vector_array in)
{
    mlx_array x = mlx_array_new(), list[] = {mlx_array_new(), mlx_array_new()};
    int failed = mlx_vector_array_get(&x, in, 0) ||
                 traced->materialize(&list[0], x, stream) ||
                 traced->materialize(&list[1], x, stream) ||
                 mlx_vector_array_set_data(res, list, 2);
    mlx_array_free(x);
    mlx_array_free(list[0]);
    mlx_array_free(list[1]);
    return failed;
}

/* Each copy of a compiled function has storage of its own. */
static void test_compiled_functions_keep_the_copy(void **state)
{
    (void)state;
    for (int f = 0; f < EXT_FORMS; f++)
        for (int shapeless = 0; shapeless < 2; shapeless++) {
            /* The fallback's slice is in specialised functions only. */
            if (shapeless && f)
                continue;
            traced = &ext_forms[f];
            mlx_closure fun = mlx_closure_new_func(copy_twice);
            mlx_closure compiled = mlx_closure_new();
            check_ok(mlx_compile(&compiled, fun, shapeless));
            for (int n = 40; n <= 80; n += 40) {
                mlx_array x = random_array(&n, 1, MLX_FLOAT32, 7);
                mlx_vector_array in = mlx_vector_array_new_value(x);
                mlx_vector_array out = mlx_vector_array_new();
                mlx_array y = mlx_array_new(), z = mlx_array_new();
                check_ok(mlx_closure_apply(&out, compiled, in));
                check_ok(mlx_vector_array_get(&y, out, 0));
                check_ok(mlx_vector_array_get(&z, out, 1));
                check_same(y, x);
                check_same(z, x);
                check_ok(mlx_array_eval(y));
                check_ok(mlx_array_eval(z));
                assert_ptr_not_equal(mlx_array_data_float32(y),
                                     mlx_array_data_float32(x));
                if (!f)
                    assert_ptr_not_equal(mlx_array_data_float32(y),
                                         mlx_array_data_float32(z));
                mlx_array_free(x);
                mlx_array_free(y);
                mlx_array_free(z);
                mlx_vector_array_free(in);
                mlx_vector_array_free(out);
            }
            if (shapeless)
                assert_int_equal(quern_closure_trace_count(compiled), 1);
            mlx_closure_free(compiled);
            mlx_closure_free(fun);
        }
}

static int sum_of_copy(mlx_vector_array *res, const mlx_vector_array in)
{
    mlx_array x = mlx_array_new(), y = mlx_array_new();
    int failed =
        mlx_vector_array_get(&x, in, 0) || traced->materialize(&y, x, stream) ||
        mlx_sum(&y, y, false, stream) || mlx_vector_array_set_value(res, y);
    mlx_array_free(x);
    mlx_array_free(y);
    return failed;
}

static void test_gradients_pass(void **state)
{
    (void)state;
    for (int f = 0; f < EXT_FORMS; f++) {
        static const int first;
        traced = &ext_forms[f];
        mlx_closure fun = mlx_closure_new_func(sum_of_copy);
        mlx_closure_value_and_grad both = mlx_closure_value_and_grad_new();
        check_ok(mlx_value_and_grad(&both, fun, &first, 1));
        mlx_array x = random_array((int[]){3, 2}, 2, MLX_FLOAT32, 8);
        mlx_array ones = mlx_array_new(), grad = mlx_array_new();
        mlx_vector_array in = mlx_vector_array_new_value(x);
        mlx_vector_array values = mlx_vector_array_new();
        mlx_vector_array grads = mlx_vector_array_new();
        check_ok(mlx_closure_value_and_grad_apply(&values, &grads, both, in));
        check_ok(mlx_vector_array_get(&grad, grads, 0));
        check_ok(mlx_ones_like(&ones, x, stream));
        check_same(grad, ones);
        mlx_array_free(x);
        mlx_array_free(ones);
        mlx_array_free(grad);
        mlx_vector_array_free(in);
        mlx_vector_array_free(values);
        mlx_vector_array_free(grads);
        mlx_closure_value_and_grad_free(both);
        mlx_closure_free(fun);
    }
}

/* ---- ranges ---- */

static void test_ranges_are_exact(void **state)
{
    (void)state;
    static const struct {
        double start, stop, step;
        int count;
    } list[] = {{0, 10, 1, 10},
                {-17, 31, 2, 24},
                {19, -31, -3, 17},
                {0, 0, 1, 0},
                {10, 0, 1, 0},
                {0, 4.5, 1, 5},
                {16777214, 16777222, 1, 8},
                {2147483640, 2147483657, 1, 17},
                {0, 70000.25, 1, 70001},
                {3, 200000, 2, 99999}};
    static const mlx_dtype types[] = {MLX_INT32,    MLX_FLOAT32, MLX_FLOAT16,
                                      MLX_BFLOAT16, MLX_INT64,   MLX_UINT8};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
            mlx_array y[EXT_FORMS];
            for (int f = 0; f < EXT_FORMS; f++) {
                y[f] = mlx_array_new();
                check_ok(ext_forms[f].arange(&y[f], list[i].start, list[i].stop,
                                             list[i].step, types[t], stream));
                assert_int_equal(mlx_array_size(y[f]), list[i].count);
            }
            check_same(y[0], y[1]);
            for (int e = 0; types[t] == MLX_FLOAT32 && e < list[i].count; e++)
                assert_true(mlx_array_data_float32(y[0])[e] ==
                            (float)(list[i].start + e * list[i].step));
            mlx_array_free(y[0]);
            mlx_array_free(y[1]);
        }
    quern_arange_cache_clear();
    fallback_arange_cache_clear();
}

static void test_refused_ranges(void **state)
{
    (void)state;
    for (int f = 0; f < EXT_FORMS; f++) {
        const ext_form *form = &ext_forms[f];
        mlx_array y = mlx_array_new();
        check_fails(form->arange(&y, 0.5, 3, 1, MLX_INT32, stream),
                    "(0.5, 3, 1)");
        check_fails(form->arange(&y, 0, 3, 0.25, MLX_INT32, stream),
                    "(0, 3, 0.25)");
        check_fails(form->arange(&y, 0, 3, 0, MLX_INT32, stream), "(0, 3, 0)");
        check_fails(form->arange(&y, 0, 3e9, 1, MLX_INT32, stream),
                    "3000000000");
        check_fails(form->arange(&y, 0, 3, 1, MLX_BOOL, stream), "bool");
        check_fails(form->arange(&y, NAN, 3, 1, MLX_INT32, stream), "nan");
        check_fails(form->arange(&y, 0, INFINITY, 1, MLX_INT32, stream), "inf");
        mlx_array_free(y);
    }
}

/* 256 longer and longer ranges between uses of one: it stays, and all together
 * take less than 16 MiB; a hit takes nothing. */
static void test_what_is_kept_has_a_bound(void **state)
{
    (void)state;
    enum { MIB = 1 << 20 };
    for (int f = 0; f < EXT_FORMS; f++) {
        const ext_form *form = &ext_forms[f];
        mlx_array y = mlx_array_new();
        form->arange_cache_clear();
        check_ok(mlx_clear_cache());
        size_t before = active_bytes();
        for (int i = 0; i < 256; i++) {
            check_ok(form->arange(&y, 0, 77077 + 3 * i, 1, MLX_INT32, stream));
            check_ok(mlx_array_eval(y));
            check_ok(form->arange(&y, 0, 262144, 1, MLX_INT32, stream));
            check_ok(mlx_array_eval(y));
        }
        size_t after = active_bytes();
        assert_true(after - before < 16 * MIB);
        check_ok(form->arange(&y, 0, 262144, 1, MLX_INT32, stream));
        check_ok(mlx_array_eval(y));
        assert_true(active_bytes() <= after);
        /* Beyond 8 MiB nothing is kept, and nothing is pushed out. */
        mlx_array_free(y);
        before = active_bytes();
        for (int i = 0; i < 3; i++) {
            y = mlx_array_new();
            check_ok(form->arange(&y, i, 3 << 20, 1, MLX_INT32, stream));
            check_ok(mlx_array_eval(y));
            mlx_array_free(y);
        }
        assert_true(active_bytes() <= before);
        form->arange_cache_clear();
        assert_true(active_bytes() <= before - MIB);
    }
}

static void test_views_outlive_evictions(void **state)
{
    (void)state;
    enum { KEPT = 8, N = 70000 };
    for (int f = 0; f < EXT_FORMS; f++) {
        const ext_form *form = &ext_forms[f];
        mlx_array views[KEPT], y = mlx_array_new();
        for (int i = 0; i < KEPT; i++) {
            views[i] = mlx_array_new();
            check_ok(form->arange(&views[i], i, N + i, 1, MLX_INT32, stream));
        }
        for (int i = 0; i < 128; i++)
            check_ok(form->arange(&y, -i, 90000, 1, MLX_INT32, stream));
        for (int i = 0; i < KEPT; i++) {
            check_ok(mlx_array_eval(views[i]));
            const int32_t *data = mlx_array_data_int32(views[i]);
            for (int e = 0; e < N; e++)
                assert_int_equal(data[e], i + e);
            mlx_array_free(views[i]);
        }
        mlx_array_free(y);
        form->arange_cache_clear();
    }
}

/* What is kept can't be written to by what takes views apart. */
static void test_what_is_kept_keeps_its_values(void **state)
{
    (void)state;
    enum { N = 100000 };
    for (int f = 0; f < EXT_FORMS; f++) {
        mlx_array y = mlx_array_new();
        for (int i = 0; i < 3; i++) {
            mlx_array z = mlx_array_new();
            check_ok(ext_forms[f].arange(&y, 0, N, 1, MLX_FLOAT32, stream));
            check_ok(mlx_exp(&z, y, stream));
            mlx_array_free(y);
            check_ok(mlx_array_eval(z));
            mlx_array_free(z);
            y = mlx_array_new();
        }
        check_ok(ext_forms[f].arange(&y, 0, N, 1, MLX_FLOAT32, stream));
        check_ok(mlx_array_eval(y));
        assert_true(mlx_array_data_float32(y)[N - 1] == N - 1);
        mlx_array_free(y);
        ext_forms[f].arange_cache_clear();
    }
}

/* ---- ranges between threads ---- */

enum { THREAD_N = 80000 };

static void *make_range(void *out)
{
    mlx_stream own = mlx_default_cpu_stream_new();
    int failed = quern_arange(out, 0, THREAD_N, 1, MLX_INT32, own);
    mlx_stream_free(own);
    return failed ? out : NULL;
}

/* Sums the range that `from` holds, or that the cache has, on a stream of its
 * own. */
static void *use_range(void *from)
{
    const mlx_array *given = from;
    mlx_device cpu = mlx_device_new_type(MLX_CPU, 0);
    mlx_stream own = mlx_stream_new_device(cpu);
    const void *failed = NULL;
    for (int i = 0; i < 20 && !failed; i++) {
        mlx_array x = mlx_array_new(), wide = mlx_array_new();
        mlx_array sum = mlx_array_new();
        int64_t total = 0;
        if ((given ? mlx_array_set(&x, *given)
                   : quern_arange(&x, 0, THREAD_N, 1, MLX_INT32, own)) ||
            mlx_astype(&wide, x, MLX_INT64, own) ||
            mlx_sum(&sum, wide, false, own) || mlx_array_eval(sum) ||
            mlx_array_item_int64(&total, sum) ||
            total != (int64_t)THREAD_N * (THREAD_N - 1) / 2)
            failed = "failed";
        mlx_array_free(x);
        mlx_array_free(wide);
        mlx_array_free(sum);
    }
    mlx_stream_free(own);
    mlx_device_free(cpu);
    return (void *)(uintptr_t)failed;
}

static void *finish_thread(pthread_t thread)
{
    void *failed;
    assert_int_equal(pthread_join(thread, &failed), 0);
    return failed;
}

/* Made on A, A ends, used on B and C at once: by the array itself and through
 * the cache. */
static void test_a_range_of_a_dead_thread(void **state)
{
    (void)state;
    for (int cached = 0; cached < 2; cached++) {
        mlx_array made = mlx_array_new();
        pthread_t a, b, c;
        quern_arange_cache_clear();
        assert_int_equal(pthread_create(&a, NULL, make_range, &made), 0);
        assert_null(finish_thread(a));
        qn_ranges_state before = qn_ranges_kept();
        assert_int_equal(before.entries, 1);
        void *from = cached ? NULL : &made;
        assert_int_equal(pthread_create(&b, NULL, use_range, from), 0);
        assert_int_equal(pthread_create(&c, NULL, use_range, from), 0);
        assert_null(finish_thread(b));
        assert_null(finish_thread(c));
        qn_ranges_state after = qn_ranges_kept();
        assert_int_equal(after.entries, 1);
        assert_int_equal(after.hits - before.hits, cached ? 40 : 0);
        mlx_array_free(made);
    }
    quern_arange_cache_clear();
}

/* Several threads that miss at once leave one entry. */
static void test_misses_at_once_leave_one(void **state)
{
    (void)state;
    enum { THREADS = 6 };
    for (int round = 0; round < 10; round++) {
        pthread_t threads[THREADS];
        quern_arange_cache_clear();
        for (int i = 0; i < THREADS; i++)
            assert_int_equal(pthread_create(&threads[i], NULL, use_range, NULL),
                             0);
        for (int i = 0; i < THREADS; i++)
            assert_null(finish_thread(threads[i]));
        assert_int_equal(qn_ranges_kept().entries, 1);
        assert_int_equal(qn_ranges_kept().bytes, 4 * THREAD_N);
    }
    quern_arange_cache_clear();
}

/* ---- rows of packed products ---- */

typedef struct packed {
    mlx_array w, scales, biases;
} packed;

static packed pack(int n, int k, int group, int bits, mlx_dtype dtype)
{
    packed p = {mlx_array_new(), mlx_array_new(), mlx_array_new()};
    mlx_array dense = random_array((int[]){n, k}, 2, dtype, 11);
    mlx_vector_array parts = mlx_vector_array_new();
    check_ok(mlx_quantize(&parts, dense, (mlx_optional_int){group, true},
                          (mlx_optional_int){bits, true}, "affine",
                          mlx_array_empty, stream));
    check_ok(mlx_vector_array_get(&p.w, parts, 0));
    check_ok(mlx_vector_array_get(&p.scales, parts, 1));
    check_ok(mlx_vector_array_get(&p.biases, parts, 2));
    mlx_array_free(dense);
    mlx_vector_array_free(parts);
    return p;
}

static void unpack(packed p)
{
    mlx_array_free(p.w);
    mlx_array_free(p.scales);
    mlx_array_free(p.biases);
}

/* Row `i` of x [rows, k] by a product of its own, [1, n]. */
static mlx_array alone(mlx_array x, int i, const packed *p, int group, int bits)
{
    int k = mlx_array_dim(x, -1);
    mlx_array row =
        slice_of(x, (int[]){i, 0}, (int[]){i + 1, k}, (int[]){1, 1});
    mlx_array y = mlx_array_new();
    check_ok(mlx_quantized_matmul(&y, row, p->w, p->scales, p->biases, true,
                                  (mlx_optional_int){group, true},
                                  (mlx_optional_int){bits, true}, "affine",
                                  stream));
    mlx_array_free(row);
    return y;
}

/* Rows first .. of a wider array, so that they lie apart. */
static mlx_array rows_of(int rows, int k, mlx_dtype dtype, bool strided)
{
    if (!strided)
        return random_array((int[]){rows, k}, 2, dtype, 12);
    mlx_array wide = random_array((int[]){2 * rows, k + 3}, 2, dtype, 13);
    mlx_array x =
        slice_of(wide, (int[]){1, 2}, (int[]){2 * rows, k + 2}, (int[]){2, 1});
    mlx_array_free(wide);
    return x;
}

static void check_rows(const ext_form *form, int k, int group, int bits,
                       mlx_dtype dtype, int most, bool strided)
{
    enum { N = 9 };
    packed p = pack(N, k, group, bits, dtype);
    for (int rows = 1; rows <= most; rows++) {
        mlx_array x = rows_of(rows, k, dtype, strided), y = mlx_array_new();
        check_ok(form->rows(&y, x, p.w, p.scales, p.biases, group, bits,
                            "affine", stream));
        assert_int_equal(mlx_array_dtype(y), dtype);
        for (int i = 0; i < rows; i++) {
            mlx_array one = alone(x, i, &p, group, bits);
            mlx_array mine =
                slice_of(y, (int[]){i, 0}, (int[]){i + 1, N}, (int[]){1, 1});
            check_same(mine, one);
            mlx_array_free(one);
            mlx_array_free(mine);
        }
        mlx_array_free(x);
        mlx_array_free(y);
    }
    unpack(p);
}

/* Every width, group, type and layout: each row has the bits that it has
 * alone. */
static void test_rows_are_those_alone(void **state)
{
    (void)state;
    static const int widths[] = {2, 3, 4, 5, 6, 8}, groups[] = {32, 64, 128};
    for (int f = 0; f < EXT_FORMS; f++)
        for (int t = 0; t < 3; t++)
            for (int strided = 0; strided < 2; strided++) {
                for (int b = 0; b < 6; b++)
                    for (int g = 0; g < 3; g++)
                        check_rows(&ext_forms[f], 128, groups[g], widths[b],
                                   floats[t], 4, strided);
                check_rows(&ext_forms[f], 5120, 64, 4, floats[t], 4, strided);
            }
    /* More rows than any tile. */
    for (int t = 0; t < 3; t++)
        check_rows(&ext_forms[0], 256, 64, 4, floats[t], 50, false);
}

static void test_rows_of_several_axes(void **state)
{
    (void)state;
    packed p = pack(5, 64, 32, 4, MLX_FLOAT32);
    mlx_array before = mlx_array_new(), x, y[EXT_FORMS], empty;
    check_ok(mlx_array_set(&before, p.w));
    check_ok(mlx_copy(&before, before, stream));
    check_ok(mlx_array_eval(before));
    x = random_array((int[]){2, 3, 64}, 3, MLX_FLOAT32, 14);
    empty = random_array((int[]){2, 0, 64}, 3, MLX_FLOAT32, 15);
    for (int f = 0; f < EXT_FORMS; f++) {
        y[f] = mlx_array_new();
        check_ok(ext_forms[f].rows(&y[f], empty, p.w, p.scales, p.biases, 32, 4,
                                   "affine", stream));
        assert_int_equal(mlx_array_size(y[f]), 0);
        assert_int_equal(mlx_array_dim(y[f], 2), 5);
        check_ok(ext_forms[f].rows(&y[f], x, p.w, p.scales, p.biases, 32, 4,
                                   "affine", stream));
        assert_int_equal(mlx_array_ndim(y[f]), 3);
        assert_int_equal(mlx_array_dim(y[f], 2), 5);
    }
    check_same(y[0], y[1]);
    check_same(before, p.w);
    mlx_array_free(y[0]);
    mlx_array_free(y[1]);
    mlx_array_free(x);
    mlx_array_free(empty);
    mlx_array_free(before);
    unpack(p);
}

/* The product that is not transposed, of 2 and 3 rows, against float64. */
static void test_untransposed_products(void **state)
{
    (void)state;
    enum { N = 6, K = 64 };
    for (int rows = 2; rows <= 3; rows++) {
        packed p = pack(N, K, 32, 4, MLX_FLOAT32);
        mlx_array x = random_array((int[]){rows, N}, 2, MLX_FLOAT32, 16);
        mlx_array y = mlx_array_new(), w = mlx_array_new(), held[2];
        check_ok(mlx_quantized_matmul(
            &y, x, p.w, p.scales, p.biases, false, (mlx_optional_int){32, true},
            (mlx_optional_int){4, true}, "affine", stream));
        check_ok(mlx_dequantize(
            &w, p.w, p.scales, p.biases, (mlx_optional_int){32, true},
            (mlx_optional_int){4, true}, "affine", mlx_array_empty,
            (mlx_optional_dtype){MLX_FLOAT32, false}, stream));
        const float *matrix = elements_of(&held[0], w);
        const float *found = elements_of(&held[1], y);
        const float *left = mlx_array_data_float32(x);
        for (int i = 0; i < rows; i++)
            for (int j = 0; j < K; j++) {
                double sum = 0, size = 0;
                for (int l = 0; l < N; l++) {
                    double term =
                        (double)left[i * N + l] * (double)matrix[l * K + j];
                    sum += term;
                    size += fabs(term);
                }
                assert_true(fabs((double)found[i * K + j] - sum) <=
                            0x1p-17 * size);
            }
        mlx_array_free(held[0]);
        mlx_array_free(held[1]);
        mlx_array_free(x);
        mlx_array_free(y);
        mlx_array_free(w);
        unpack(p);
    }
}

static void test_refused_rows(void **state)
{
    (void)state;
    packed p = pack(5, 64, 32, 4, MLX_FLOAT32);
    mlx_array x = random_array((int[]){2, 64}, 2, MLX_FLOAT32, 17);
    mlx_array y = mlx_array_new(), cube = mlx_array_new();
    mlx_array narrow = random_array((int[]){2, 32}, 2, MLX_FLOAT32, 18);
    check_ok(mlx_expand_dims(&cube, p.scales, 0, stream));
    for (int f = 0; f < EXT_FORMS; f++) {
        const ext_form *form = &ext_forms[f];
        check_fails(
            form->rows(&y, x, p.w, p.scales, p.biases, 32, 4, "mxfp4", stream),
            "mxfp4");
        check_fails(
            form->rows(&y, x, p.w, cube, p.biases, 32, 4, "affine", stream),
            "scales");
        check_fails(form->rows(&y, x, p.w, p.scales, mlx_array_empty, 32, 4,
                               "affine", stream),
                    "biases");
        check_fails(
            form->rows(&y, x, p.w, p.scales, p.biases, 48, 4, "affine", stream),
            "48");
        check_fails(form->rows(&y, narrow, p.w, p.scales, p.biases, 32, 4,
                               "affine", stream),
                    "64");
    }
    check_fails(quern_quantized_matmul_rows(&y, x, p.w, p.scales, p.biases, 32,
                                            7, "affine", stream),
                "7");
    mlx_array_free(x);
    mlx_array_free(y);
    mlx_array_free(cube);
    mlx_array_free(narrow);
    unpack(p);
}

/* 100 calls take nothing after the first ones. */
static void test_nothing_leaks(void **state)
{
    (void)state;
    packed p = pack(5, 64, 32, 4, MLX_FLOAT32);
    mlx_array x = random_array((int[]){2, 64}, 2, MLX_FLOAT32, 19);
    for (int f = 0; f < EXT_FORMS; f++) {
        size_t before = 0;
        for (int i = 0; i < 110; i++) {
            mlx_array y = mlx_array_new();
            if (i == 10)
                before = active_bytes();
            check_ok(ext_forms[f].rows(&y, x, p.w, p.scales, p.biases, 32, 4,
                                       "affine", stream));
            check_ok(mlx_array_eval(y));
            check_ok(ext_forms[f].materialize(&y, x, stream));
            check_ok(mlx_array_eval(y));
            check_ok(ext_forms[f].arange(&y, 0, 70000, 1, MLX_INT32, stream));
            check_ok(mlx_array_eval(y));
            mlx_array_free(y);
        }
        assert_int_equal(active_bytes(), before);
        ext_forms[f].arange_cache_clear();
    }
    mlx_array_free(x);
    unpack(p);
}

static mlx_array kept_array;
static packed kept_weights;

/* A range that is kept, a copy, rows; QN_E_NOMEM where one call failed. */
static qn_status make_once(void)
{
    mlx_array x = mlx_array_new(), y = mlx_array_new(), z = mlx_array_new();
    int failed =
        quern_arange(&x, 0, 70000, 1, MLX_INT32, stream) ||
        quern_materialize(&y, kept_array, stream) || mlx_array_eval(y) ||
        quern_quantized_matmul_rows(&z, y, kept_weights.w, kept_weights.scales,
                                    kept_weights.biases, 32, 4, "affine",
                                    stream) ||
        mlx_array_eval(z);
    mlx_array_free(x);
    mlx_array_free(y);
    mlx_array_free(z);
    quern_arange_cache_clear();
    return failed ? QN_E_NOMEM : QN_OK;
}

static void test_every_allocation_may_fail(void **state)
{
    (void)state;
    kept_weights = pack(5, 64, 32, 4, MLX_FLOAT32);
    kept_array = random_array((int[]){2, 64}, 2, MLX_FLOAT32, 20);
    each_alloc_may_fail(make_once);
    assert_int_equal(qn_ranges_kept().entries, 0);
    mlx_array_free(kept_array);
    unpack(kept_weights);
}

int main(void)
{
    stream = mlx_default_cpu_stream_new();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_a_copy_lets_the_base_go, capi_setup),
        cmocka_unit_test_setup(test_who_may_share_storage, capi_setup),
        cmocka_unit_test_setup(test_bits_and_shapes_survive, capi_setup),
        cmocka_unit_test_setup(test_compiled_functions_keep_the_copy,
                               capi_setup),
        cmocka_unit_test_setup(test_gradients_pass, capi_setup),
        cmocka_unit_test_setup(test_ranges_are_exact, capi_setup),
        cmocka_unit_test_setup(test_refused_ranges, capi_setup),
        cmocka_unit_test_setup(test_what_is_kept_has_a_bound, capi_setup),
        cmocka_unit_test_setup(test_views_outlive_evictions, capi_setup),
        cmocka_unit_test_setup(test_what_is_kept_keeps_its_values, capi_setup),
        cmocka_unit_test_setup(test_a_range_of_a_dead_thread, capi_setup),
        cmocka_unit_test_setup(test_misses_at_once_leave_one, capi_setup),
        cmocka_unit_test_setup(test_rows_are_those_alone, capi_setup),
        cmocka_unit_test_setup(test_rows_of_several_axes, capi_setup),
        cmocka_unit_test_setup(test_untransposed_products, capi_setup),
        cmocka_unit_test_setup(test_refused_rows, capi_setup),
        cmocka_unit_test_setup(test_nothing_leaks, capi_setup),
        cmocka_unit_test_setup(test_every_allocation_may_fail, capi_setup),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    mlx_stream_free(stream);
    return failed;
}
