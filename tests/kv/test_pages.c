/* Sequences in pages: given back with the bits that they had, sharing what they
 * have in common. */
#include "support/qn_test.h"

#include "kv/engine.h"
#include "kv/pages.h"

#include <math.h>

enum { HEADS = 4, KV_HEADS = 1, DIM = 64, LAYERS = 2, LIMIT = 400 };

static mlx_stream stream;

static int open_engine(void **state)
{
    (void)state;
    if (qn_engine_start())
        return 1;
    stream = mlx_default_cpu_stream_new();
    return !stream.ctx;
}

static int close_engine(void **state)
{
    (void)state;
    return mlx_stream_free(stream);
}

static qn_kv_shape shape_of(const char *kind, int start)
{
    qn_kv_shape shape = {.layers = LAYERS,
                         .every = {.kv_heads = KV_HEADS, .head_dim = DIM},
                         .start = start,
                         .floats = MLX_FLOAT16,
                         .step = 128,
                         .limit = LIMIT};
    check_status(qn_kv_scheme_parse(&shape.every.scheme, kind, MLX_FLOAT16),
                 QN_OK);
    check_status(qn_kv_scheme_fit(&shape.every.scheme, DIM), QN_OK);
    return shape;
}

static qn_kv_cache *make(const qn_kv_shape *shape)
{
    qn_kv_cache *cache;
    check_status(qn_kv_cache_new(&cache, shape), QN_OK);
    return cache;
}

/* Rows of a sequence whose tokens from `fork` on are those of kind `id`. */
static mlx_array rows_of(int what, int heads, int first, int count, int fork,
                         int id)
{
    size_t row = (size_t)(heads * DIM), size = row * (size_t)count;
    float *data = malloc(size * sizeof *data);
    assert_non_null(data);
    for (size_t i = 0; i < size; i++) {
        int t = first + (int)(i / row);
        data[i] = sinf((float)(what * 31 + (t < fork ? 0 : id * 7)) +
                       0.37f * (float)(i % row) + 1.7f * (float)t);
    }
    mlx_array x = mlx_array_new_data(data, (int[]){1, count, heads * DIM}, 3,
                                     MLX_FLOAT32);
    assert_non_null(x.ctx);
    free(data);
    return x;
}

/* `count` further tokens in layers 0 and 1; results at `out`, if it is one. */
static void step(qn_kv_cache *cache, int count, int fork, int id, float *out)
{
    int first = qn_kv_cache_length(cache);
    qn_attention how = {.heads = HEADS, .scale = 0.125f};
    check_status(qn_kv_cache_settle(cache, stream), QN_OK);
    for (int layer = 0; layer < LAYERS; layer++) {
        qn_kv_rows rows = {.cache = cache, .count = count};
        mlx_array x[3], y = {NULL};
        for (int i = 0; i < 3; i++)
            x[i] = rows_of(i + layer, i ? KV_HEADS : HEADS, first, count, fork,
                           id);
        check_status(
            qn_kv_attend(&rows, 1, &y, layer, x[0], x[1], x[2], &how, stream),
            QN_OK);
        for (int i = 0; i < 3; i++)
            mlx_array_free(x[i]);
        check_status(qn_engine(mlx_array_eval(y)), QN_OK);
        size_t size = (size_t)(count * HEADS * DIM);
        if (out)
            memcpy(out + (size_t)layer * size, mlx_array_data_float32(y),
                   size * sizeof *out);
        mlx_array_free(y);
    }
    qn_kv_cache_advance(cache, count);
}

static qn_kv_pages *take(const qn_kv_cache *cache, const qn_kv_pages *base,
                         int shared)
{
    qn_kv_pages *pages = NULL;
    check_status(qn_kv_pages_take(&pages, cache, base, shared, stream), QN_OK);
    return pages;
}

/* A fresh cache of the first `length` tokens goes on as one that never left. */
static void check_given(const qn_kv_shape *shape, const qn_kv_pages *pages,
                        int length, int fork, int id)
{
    enum { MORE = 3 };
    static float expected[LAYERS * MORE * HEADS * DIM],
        found[LAYERS * MORE * HEADS * DIM];
    qn_kv_cache *one = make(shape), *other = make(shape);
    for (int done = 0; done < length;) {
        int room = qn_kv_cache_room(one), count = length - done;
        count = room > 0 && room < count ? room : count;
        step(one, count, fork, id, NULL);
        done += count;
    }
    check_status(qn_kv_pages_give(pages, length, other, stream), QN_OK);
    assert_int_equal(qn_kv_cache_length(other), length);
    step(one, MORE, fork, id, expected);
    step(other, MORE, fork, id, found);
    assert_memory_equal(expected, found, sizeof expected);
    qn_kv_cache_free(one);
    qn_kv_cache_free(other);
}

static void test_what_was_kept_comes_back(void **state)
{
    (void)state;
    static const char *const kinds[] = {"f16", "affine8", "affine4",
                                        "turbo:k8v3"};
    static const int lengths[] = {1, 31, 32, 33, 100};
    for (size_t k = 0; k < 4; k++) {
        qn_kv_shape shape = shape_of(kinds[k], 0);
        qn_kv_cache *cache = make(&shape);
        step(cache, 100, LIMIT, 0, NULL);
        qn_kv_pages *pages = take(cache, NULL, 0);
        assert_int_equal(qn_kv_pages_length(pages), 100);
        qn_kv_cache_free(cache);
        for (size_t i = 0; i < 5; i++)
            check_given(&shape, pages, lengths[i], LIMIT, 0);
        assert_true(qn_kv_pages_has(pages, 0));
        assert_false(qn_kv_pages_has(pages, 101));
        qn_kv_pages_free(pages);
    }
}

/* Conversations that begin alike hold the beginning once; who goes on inside a
 * page has a copy of it. */
static void test_pages_are_shared_and_copied_on_write(void **state)
{
    (void)state;
    enum { FORK = 72, TOKEN = LAYERS * 2 * KV_HEADS * DIM * 2 };
    qn_kv_shape shape = shape_of("f16", 0);
    qn_kv_cache *cache = make(&shape);
    step(cache, FORK, LIMIT, 0, NULL);
    qn_kv_pages *first = take(cache, NULL, 0);
    assert_int_equal(qn_kv_pages_bytes(first), FORK * TOKEN);
    step(cache, 30, FORK, 1, NULL);
    qn_kv_pages *second = take(cache, first, FORK);
    /* 64 tokens are shared, 8 copied. */
    assert_int_equal(qn_kv_pages_bytes(second), (30 + 8) * TOKEN);
    assert_int_equal(qn_kv_pages_bytes(first), 8 * TOKEN);
    assert_true(qn_kv_cache_trim(cache, FORK));
    step(cache, 50, FORK, 2, NULL);
    qn_kv_pages *third = take(cache, second, FORK);
    qn_kv_cache_free(cache);
    check_given(&shape, first, FORK, LIMIT, 0);
    check_given(&shape, second, FORK + 30, FORK, 1);
    check_given(&shape, third, FORK + 50, FORK, 2);
    qn_kv_pages_free(first);
    qn_kv_pages_free(second);
    assert_int_equal(qn_kv_pages_bytes(third), (FORK + 50) * TOKEN);
    check_given(&shape, third, FORK + 11, FORK, 2);
    qn_kv_pages_free(third);
}

static void test_packing_that_started_late(void **state)
{
    (void)state;
    qn_kv_shape shape = shape_of("affine8", 40);
    qn_kv_cache *cache = make(&shape);
    step(cache, 40, LIMIT, 0, NULL);
    qn_kv_pages *floats = take(cache, NULL, 0);
    step(cache, 30, LIMIT, 0, NULL);
    /* The same tokens, stored in another way. */
    qn_kv_pages *codes = take(cache, floats, 40);
    check_given(&shape, floats, 40, LIMIT, 0);
    check_given(&shape, floats, 20, LIMIT, 0);
    check_given(&shape, codes, 70, LIMIT, 0);
    qn_kv_cache_reset(cache);
    check_error(qn_kv_pages_give(codes, 39, cache, stream), QN_E_UNSUPPORTED,
                "39 of 70");
    assert_int_equal(qn_kv_cache_length(cache), 0);
    qn_kv_cache_free(cache);
    qn_kv_pages_free(floats);
    qn_kv_pages_free(codes);
}

/* A layer with a window, and one with a state beside them. */
static void test_what_has_no_way_back_is_given_whole(void **state)
{
    (void)state;
    qn_kv_layer layers[] = {
        {.kv_heads = KV_HEADS,
         .head_dim = DIM,
         .scheme = {.dtype = MLX_FLOAT16},
         .window = 20},
        {.kv_heads = KV_HEADS,
         .head_dim = DIM,
         .scheme = {.dtype = MLX_FLOAT16}},
        {.recurrence = {1, 2, 1, 2, 2}},
    };
    qn_kv_shape shape = {.layers = 3,
                         .layer = layers,
                         .floats = MLX_FLOAT16,
                         .step = 128,
                         .limit = LIMIT};
    qn_kv_cache *cache = make(&shape);
    step(cache, 50, LIMIT, 0, NULL);
    qn_kv_pages *first = take(cache, NULL, 0);
    step(cache, 250, LIMIT, 0, NULL);
    qn_kv_pages *pages = take(cache, first, 50);
    assert_false(qn_kv_pages_has(pages, 299));
    assert_true(qn_kv_pages_has(pages, 300));
    check_given(&shape, pages, 300, LIMIT, 0);
    check_given(&shape, first, 50, LIMIT, 0);
    qn_kv_cache_free(cache);
    qn_kv_pages_free(first);
    qn_kv_pages_free(pages);
}

static const qn_kv_cache *scarce;
static const qn_kv_pages *scarce_base;

static qn_status take_and_give(void)
{
    qn_kv_pages *pages = NULL;
    qn_kv_cache *cache = NULL;
    qn_kv_shape shape = shape_of("f16", 0);
    qn_status status =
        qn_kv_pages_take(&pages, scarce, scarce_base, 40, stream);
    if (!status)
        status = qn_kv_cache_new(&cache, &shape);
    if (!status)
        status = qn_kv_pages_give(pages, 50, cache, stream);
    qn_kv_pages_free(pages);
    qn_kv_cache_free(cache);
    return status;
}

static void test_memory_may_run_out(void **state)
{
    (void)state;
    qn_kv_shape shape = shape_of("f16", 0);
    qn_kv_cache *cache = make(&shape);
    step(cache, 40, LIMIT, 0, NULL);
    qn_kv_pages *base = take(cache, NULL, 0);
    step(cache, 20, LIMIT, 0, NULL);
    scarce = cache;
    scarce_base = base;
    each_alloc_may_fail(take_and_give);
    qn_kv_pages_free(base);
    qn_kv_cache_free(cache);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_was_kept_comes_back),
        cmocka_unit_test(test_pages_are_shared_and_copied_on_write),
        cmocka_unit_test(test_packing_that_started_late),
        cmocka_unit_test(test_what_has_no_way_back_is_given_whole),
        cmocka_unit_test(test_memory_may_run_out),
    };
    return cmocka_run_group_tests(tests, open_engine, close_engine);
}
