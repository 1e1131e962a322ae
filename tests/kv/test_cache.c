/* Caches: what is stored, in place, up to the limit; what a window leaves;
 * trimming and clones. */
#include "support/qn_test.h"

#include "kv/cache.h"
#include "kv/engine.h"

#include <limits.h>
#include <math.h>

enum { HEADS = 4, KV_HEADS = 2, DIM = 8, WIDE = 64, LIMIT = 300, STEP = 128 };

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

static size_t active(void)
{
    size_t bytes;
    assert_int_equal(mlx_get_active_memory(&bytes), 0);
    return bytes;
}

static qn_kv_cache *make(int layers, mlx_dtype dtype)
{
    qn_kv_shape shape = {.layers = layers,
                         .every = {.kv_heads = KV_HEADS,
                                   .head_dim = DIM,
                                   .scheme = {.dtype = dtype}},
                         .floats = dtype,
                         .step = STEP,
                         .limit = LIMIT};
    qn_kv_cache *cache;
    check_status(qn_kv_cache_new(&cache, &shape), QN_OK);
    return cache;
}

/* Element i of head h at position t, the same for whoever asks. */
static float value_at(int what, int h, int t, int i)
{
    return sinf((float)(what * 1000 + h * 100 + t * 7 + i));
}

/* [1, count, heads * DIM] of the positions from `first` on. */
static mlx_array make_part(int what, int heads, int first, int count)
{
    float *data = malloc((size_t)(heads * count * DIM) * sizeof *data);
    assert_non_null(data);
    for (int t = 0; t < count; t++)
        for (int h = 0; h < heads; h++)
            for (int i = 0; i < DIM; i++)
                data[(t * heads + h) * DIM + i] =
                    value_at(what, h, first + t, i);
    mlx_array x = mlx_array_new_data(data, (int[]){1, count, heads * DIM}, 3,
                                     MLX_FLOAT32);
    assert_non_null(x.ctx);
    free(data);
    return x;
}

/* The same for heads of WIDE, with other numbers. */
static mlx_array make_wide(int what, int heads, int first, int count)
{
    size_t size = (size_t)(heads * count * WIDE);
    float *data = malloc(size * sizeof *data);
    assert_non_null(data);
    for (size_t i = 0; i < size; i++) {
        size_t t = (size_t)first + i / (size_t)(heads * WIDE);
        data[i] =
            sinf((float)what + 1.3f * (float)(i % (size_t)(heads * WIDE)) +
                 2.1f * (float)t);
    }
    mlx_array x = mlx_array_new_data(data, (int[]){1, count, heads * WIDE}, 3,
                                     MLX_FLOAT32);
    assert_non_null(x.ctx);
    free(data);
    return x;
}

static qn_attention attention(float scale, int window)
{
    return (qn_attention){.heads = HEADS, .scale = scale, .window = window};
}

/* Attention of one sequence. */
static qn_status attend(qn_kv_cache *cache, mlx_array *out, int layer,
                        mlx_array q, mlx_array k, mlx_array v,
                        const qn_attention *how)
{
    qn_kv_rows rows = {.cache = cache, .count = mlx_array_dim(q, 1)};
    return qn_kv_attend(&rows, 1, out, layer, q, k, v, how, stream);
}

static void check_kept(const float *found, int first, int count, int window,
                       int keep, double limit)
{
    for (int h = 0; h < HEADS; h++)
        for (int t = 0; t < count; t++) {
            int position = first + t, g = h / (HEADS / KV_HEADS);
            int from =
                window && position - window + 1 > 0 ? position - window + 1 : 0;
            double p[2 * LIMIT], sum = 0;
            for (int j = 0; j <= position; j++) {
                double score = 0;
                p[j] = 0;
                if (j < from && j >= keep)
                    continue;
                for (int i = 0; i < DIM; i++)
                    score += (double)value_at(0, h, position, i) *
                             value_at(1, g, j, i);
                sum += p[j] = exp(score * 0.3);
            }
            for (int i = 0; i < DIM; i++) {
                double y = 0;
                for (int j = 0; j <= position; j++)
                    y += p[j] / sum * value_at(2, g, j, i);
                double off = fabs(found[(t * HEADS + h) * DIM + i] - y);
                assert_true(off <= limit);
            }
        }
}

static void check_attention(const float *found, int first, int count,
                            int window, double limit)
{
    check_kept(found, first, count, window, 0, limit);
}

/* Gives the cache `count` tokens and checks the attention of each layer. */
static void step(qn_kv_cache *cache, int layers, int count, int window,
                 double limit)
{
    int first = qn_kv_cache_length(cache);
    qn_attention how = attention(0.3f, window);
    for (int layer = 0; layer < layers; layer++) {
        mlx_array q = make_part(0, HEADS, first, count);
        mlx_array k = make_part(1, KV_HEADS, first, count);
        mlx_array v = make_part(2, KV_HEADS, first, count);
        mlx_array out = {NULL};
        check_status(attend(cache, &out, layer, q, k, v, &how), QN_OK);
        mlx_array_free(q);
        mlx_array_free(k);
        mlx_array_free(v);
        check_status(qn_engine(mlx_array_eval(out)), QN_OK);
        check_attention(mlx_array_data_float32(out), first, count, window,
                        limit);
        mlx_array_free(out);
    }
    qn_kv_cache_advance(cache, count);
}

static void test_attention_over_what_was_stored(void **state)
{
    (void)state;
    static const int counts[] = {5, 1, 1, 9, 1, 20, 1, 1, 40, 1};
    static const int windows[] = {0, 1, 4, 33};
    for (int w = 0; w < 4; w++) {
        qn_kv_cache *cache = make(2, MLX_FLOAT32);
        for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
            step(cache, 2, counts[i], windows[w], 1e-5);
        assert_int_equal(qn_kv_cache_length(cache), 80);
        qn_kv_cache_free(cache);
    }
}

/* The output of the token at `position`, the prompt before it given in pieces
 * of `piece`; 400 positions at most. */
static void attend_in_pieces(float *out, int position, int piece, int window)
{
    qn_kv_shape shape = {.layers = 1,
                         .every = {.kv_heads = KV_HEADS,
                                   .head_dim = DIM,
                                   .scheme = {.dtype = MLX_FLOAT32}},
                         .floats = MLX_FLOAT32,
                         .step = STEP,
                         .limit = 400};
    qn_kv_cache *cache;
    qn_attention how = attention(0.3f, window);
    check_status(qn_kv_cache_new(&cache, &shape), QN_OK);
    for (int first = 0; first <= position; first += piece) {
        int count = position + 1 - first < piece ? position + 1 - first : piece;
        mlx_array x[3], y = {NULL};
        for (int i = 0; i < 3; i++)
            x[i] = make_part(i, i ? KV_HEADS : HEADS, first, count);
        check_status(attend(cache, &y, 0, x[0], x[1], x[2], &how), QN_OK);
        check_status(qn_engine(mlx_array_eval(y)), QN_OK);
        for (int h = 0; h < HEADS; h++)
            memcpy(out + h * DIM,
                   mlx_array_data_float32(y) + ((count - 1) * HEADS + h) * DIM,
                   DIM * sizeof(float));
        for (int i = 0; i < 3; i++)
            mlx_array_free(x[i]);
        mlx_array_free(y);
        qn_kv_cache_advance(cache, count);
    }
    qn_kv_cache_free(cache);
}

/* A window begins anywhere; the order of the sums must not. */
static void test_bits_do_not_depend_on_how_a_prompt_was_split(void **state)
{
    (void)state;
    static const int pieces[] = {400, 1, 7, 100, 129};
    static const int windows[] = {0, 33, 150, 200};
    for (int w = 0; w < 4; w++) {
        for (int position = 131; position < 390; position += 51) {
            float first[HEADS * DIM], other[HEADS * DIM];
            attend_in_pieces(first, position, pieces[0], windows[w]);
            for (int i = 1; i < 5; i++) {
                attend_in_pieces(other, position, pieces[i], windows[w]);
                assert_memory_equal(first, other, sizeof first);
            }
        }
    }
}

static void test_half_precision_storage(void **state)
{
    (void)state;
    qn_kv_cache *cache = make(1, MLX_FLOAT16);
    for (int i = 0; i < 30; i++)
        step(cache, 1, 1 + i % 3, 0, 2e-3);
    qn_kv_cache_free(cache);
    cache = make(1, MLX_BFLOAT16);
    for (int i = 0; i < 30; i++)
        step(cache, 1, 1 + i % 3, 0, 1.5e-2);
    qn_kv_cache_free(cache);
}

static void test_trimming_forgets_the_end(void **state)
{
    (void)state;
    qn_kv_cache *cache = make(1, MLX_FLOAT32);
    step(cache, 1, 50, 0, 1e-5);
    assert_true(qn_kv_cache_trim(cache, 20));
    assert_int_equal(qn_kv_cache_length(cache), 20);
    step(cache, 1, 1, 0, 1e-5);
    step(cache, 1, 30, 0, 1e-5);
    assert_true(qn_kv_cache_trim(cache, 0));
    step(cache, 1, 10, 0, 1e-5);
    qn_kv_cache_free(cache);
}

static void test_limit_is_kept(void **state)
{
    (void)state;
    qn_kv_cache *cache = make(1, MLX_FLOAT32);
    step(cache, 1, LIMIT - 1, 0, 1e-5);
    step(cache, 1, 1, 0, 1e-5);
    mlx_array x = make_part(0, HEADS, 0, 1), kv = make_part(1, KV_HEADS, 0, 1);
    mlx_array out = {NULL};
    qn_attention how = attention(1, 0);
    check_error(attend(cache, &out, 0, x, kv, kv, &how), QN_E_NOMEM,
                "room for 300");
    mlx_array_free(x);
    mlx_array_free(kv);
    qn_kv_cache_free(cache);
}

static void test_tokens_are_written_in_place(void **state)
{
    (void)state;
    /* So much room that a copy would stand out among the scratch memory. */
    enum { ROOM = 16384, BYTES = ROOM * KV_HEADS * DIM * 4 };
    qn_kv_shape shape = {.layers = 1,
                         .every = {.kv_heads = KV_HEADS,
                                   .head_dim = DIM,
                                   .scheme = {.dtype = MLX_FLOAT32}},
                         .floats = MLX_FLOAT32,
                         .step = ROOM,
                         .limit = ROOM};
    qn_kv_cache *cache;
    size_t before = active(), peak = 0;
    check_status(qn_kv_cache_new(&cache, &shape), QN_OK);
    step(cache, 1, 3, 0, 1e-5);
    size_t full = active();
    assert_int_equal(full - before, 2 * BYTES);
    for (int i = 0; i < 20; i++) {
        assert_int_equal(mlx_reset_peak_memory(), 0);
        step(cache, 1, 1 + i % 3, 0, 1e-5);
        assert_int_equal(active(), full);
        assert_int_equal(mlx_get_peak_memory(&peak), 0);
        assert_true(peak < full + BYTES / 2);
    }
    qn_kv_cache_reset(cache);
    assert_int_equal(active(), before);
    step(cache, 1, 3, 0, 1e-5);
    qn_kv_cache_free(cache);
    assert_int_equal(active(), before);
}

static void test_room_grows_by_steps(void **state)
{
    (void)state;
    /* Buffers of other tests may be larger than what is asked for here. */
    assert_int_equal(mlx_clear_cache(), 0);
    size_t before = active();
    qn_kv_cache *cache = make(1, MLX_FLOAT32);
    const size_t token = 2 * KV_HEADS * DIM * 4;
    step(cache, 1, STEP, 0, 1e-5);
    assert_int_equal(active() - before, STEP * token);
    step(cache, 1, 1, 0, 1e-5);
    assert_int_equal(active() - before, 2 * STEP * token);
    step(cache, 1, LIMIT - STEP - 1, 0, 1e-5);
    /* No whole step beyond the limit; buffers may be rounded up a little. */
    assert_in_range(active() - before, LIMIT * token,
                    (LIMIT + STEP) * token - 1);
    qn_kv_cache_free(cache);
}

/* A cache that is packed from its 20th token on. */
static qn_kv_cache *make_late(const char *kind)
{
    qn_kv_shape shape = {.layers = 2,
                         .every = {.kv_heads = KV_HEADS, .head_dim = WIDE},
                         .start = 20,
                         .floats = MLX_FLOAT16,
                         .step = STEP,
                         .limit = LIMIT};
    qn_kv_cache *cache;
    check_status(qn_kv_scheme_parse(&shape.every.scheme, kind, MLX_FLOAT16),
                 QN_OK);
    check_status(qn_kv_scheme_fit(&shape.every.scheme, WIDE), QN_OK);
    check_status(qn_kv_cache_new(&cache, &shape), QN_OK);
    return cache;
}

/* Attention of `count` tokens of `cache` beside that of `plain`: the largest
 * difference. */
static double gap(qn_kv_cache *cache, qn_kv_cache *plain, int count)
{
    static float data[2][HEADS * LIMIT * WIDE];
    qn_kv_cache *both[2] = {cache, plain};
    int first = qn_kv_cache_length(cache);
    double largest = 0;
    check_status(qn_kv_cache_settle(cache, stream), QN_OK);
    for (int layer = 0; layer < 2; layer++) {
        for (int i = 0; i < 2; i++) {
            mlx_array x[3], out = {NULL};
            for (int j = 0; j < 3; j++)
                x[j] = make_wide(j, j ? KV_HEADS : HEADS, first, count);
            qn_attention how = attention(0.125f, 0);
            check_status(attend(both[i], &out, layer, x[0], x[1], x[2], &how),
                         QN_OK);
            for (int j = 0; j < 3; j++)
                mlx_array_free(x[j]);
            check_status(qn_engine(mlx_array_eval(out)), QN_OK);
            memcpy(data[i], mlx_array_data_float32(out),
                   (size_t)(count * HEADS * WIDE) * sizeof(float));
            mlx_array_free(out);
        }
        for (int i = 0; i < count * HEADS * WIDE; i++)
            largest = fmax(largest, fabs(data[0][i] - data[1][i]));
    }
    qn_kv_cache_advance(cache, count);
    qn_kv_cache_advance(plain, count);
    return largest;
}

static qn_kv_cache *make_plain(void)
{
    qn_kv_shape shape = {.layers = 2,
                         .every = {.kv_heads = KV_HEADS,
                                   .head_dim = WIDE,
                                   .scheme = {.dtype = MLX_FLOAT16}},
                         .floats = MLX_FLOAT16,
                         .step = STEP,
                         .limit = LIMIT};
    qn_kv_cache *cache;
    check_status(qn_kv_cache_new(&cache, &shape), QN_OK);
    return cache;
}

/* Rows below the start see floats, those from it on see codes of all. */
static void check_late(const char *kind, double least, double most)
{
    qn_kv_cache *late = make_late(kind), *plain = make_plain();
    assert_int_equal(qn_kv_cache_room(late), 20);
    assert_true(gap(late, plain, 13) == 0);
    assert_int_equal(qn_kv_cache_room(late), 7);
    assert_true(gap(late, plain, 7) == 0);
    assert_int_equal(qn_kv_cache_room(late), 0);
    for (int i = 0; i < 3; i++) {
        double found = gap(late, plain, 1 + i * 60);
        assert_true(found > least && found < most);
    }
    assert_int_equal(qn_kv_cache_room(late), INT_MAX);
    /* A fresh run would hold floats there. */
    assert_false(qn_kv_cache_trim(late, 19));
    assert_int_equal(qn_kv_cache_length(late), 203);
    assert_true(qn_kv_cache_trim(late, 20));
    assert_true(qn_kv_cache_trim(late, 0));
    assert_int_equal(qn_kv_cache_room(late), 20);
    qn_kv_cache_free(late);
    qn_kv_cache_free(plain);
}

static void test_packing_may_start_late(void **state)
{
    (void)state;
    check_late("affine8", 1e-6, 0.02);
    check_late("affine4", 1e-3, 0.3);
    check_late("turbo:k8v8", 1e-6, 0.05);
    check_late("turbo:k8v3", 1e-3, 0.5);
}

/* Layers that stay in floats do, and count so. */
static void test_some_layers_stay_in_floats(void **state)
{
    (void)state;
    static const qn_kv_layer layers[] = {
        {.kv_heads = KV_HEADS,
         .head_dim = WIDE,
         .scheme = {.dtype = MLX_FLOAT16}},
        {.kv_heads = KV_HEADS,
         .head_dim = WIDE,
         .scheme = {.dtype = MLX_FLOAT16, .key_bits = 8, .value_bits = 3}}};
    qn_kv_shape shape = {.layers = 2,
                         .layer = layers,
                         .floats = MLX_FLOAT16,
                         .step = STEP,
                         .limit = LIMIT};
    assert_int_equal(qn_kv_token_bytes(&shape), KV_HEADS * (256 + 100));
    qn_kv_cache *cache;
    check_status(qn_kv_cache_new(&cache, &shape), QN_OK);
    size_t before = active();
    qn_attention how = attention(0.125f, 0);
    for (int layer = 0; layer < 2; layer++) {
        mlx_array x[3], out = {NULL};
        for (int j = 0; j < 3; j++)
            x[j] = make_wide(j, j ? KV_HEADS : HEADS, 0, 3);
        check_status(attend(cache, &out, layer, x[0], x[1], x[2], &how), QN_OK);
        check_status(qn_engine(mlx_array_eval(out)), QN_OK);
        for (int j = 0; j < 3; j++)
            mlx_array_free(x[j]);
        mlx_array_free(out);
    }
    /* Room for 128 tokens was made, and nothing beside. */
    size_t stored = active() - before, size = (size_t)KV_HEADS * 128 * 356;
    assert_true(stored >= size && stored < size + 8192);
    qn_kv_cache_free(cache);
}

/* Heads of another size in each layer; a layer without keys of its own attends
 * to those of another one. */
static void test_layers_have_their_own_heads(void **state)
{
    (void)state;
    static const qn_kv_layer layer[] = {
        {.kv_heads = KV_HEADS,
         .head_dim = DIM,
         .scheme = {.dtype = MLX_FLOAT32}},
        {.kv_heads = 1, .head_dim = WIDE, .scheme = {.dtype = MLX_FLOAT32}}};
    qn_kv_shape shape = {.layers = 2,
                         .layer = layer,
                         .floats = MLX_FLOAT32,
                         .step = STEP,
                         .limit = LIMIT};
    assert_int_equal(qn_kv_token_bytes(&shape),
                     8 * (KV_HEADS * DIM + 1 * WIDE));
    qn_kv_cache *cache;
    check_status(qn_kv_cache_new(&cache, &shape), QN_OK);
    for (int at = 0; at < 8; at += 4) {
        for (int i = 0; i < 2; i++) {
            mlx_array x[3], out[2] = {{NULL}, {NULL}};
            for (int j = 0; j < 3; j++)
                x[j] = i ? make_wide(j, j ? 1 : HEADS, at, 4)
                         : make_part(j, j ? KV_HEADS : HEADS, at, 4);
            qn_attention how = attention(0.125f, 0);
            how.cap = i ? 5 : 0;
            check_status(attend(cache, &out[0], i, x[0], x[1], x[2], &how),
                         QN_OK);
            check_status(attend(cache, &out[1], i, x[0], (mlx_array){NULL},
                                (mlx_array){NULL}, &how),
                         QN_OK);
            check_status(qn_engine_eval(out, 2), QN_OK);
            assert_int_equal(mlx_array_dim(out[0], 2),
                             HEADS * (i ? WIDE : DIM));
            assert_memory_equal(mlx_array_data_float32(out[0]),
                                mlx_array_data_float32(out[1]),
                                mlx_array_nbytes(out[0]));
            for (int j = 0; j < 3; j++)
                mlx_array_free(x[j]);
            mlx_array_free(out[0]);
            mlx_array_free(out[1]);
        }
        qn_kv_cache_advance(cache, 4);
    }
    qn_kv_cache_free(cache);
}

static void test_size_of_a_token(void **state)
{
    (void)state;
    qn_kv_shape shape = {.layers = 30,
                         .every = {.kv_heads = 3,
                                   .head_dim = 64,
                                   .scheme = {.dtype = MLX_FLOAT16}},
                         .floats = MLX_FLOAT16,
                         .step = 256,
                         .limit = 8192};
    assert_int_equal(qn_kv_token_bytes(&shape), 30 * 2 * 3 * 64 * 2);
}

/* ---- windows ---- */

enum { LONG = 2 * LIMIT };

static qn_kv_shape window_shape(const char *kind, int window, int keep,
                                int head_dim)
{
    qn_kv_shape shape = {.layers = 1,
                         .every = {.kv_heads = KV_HEADS,
                                   .head_dim = head_dim,
                                   .window = window,
                                   .keep = keep},
                         .floats = MLX_FLOAT16,
                         .step = STEP,
                         .limit = LONG};
    check_status(qn_kv_scheme_parse(&shape.every.scheme, kind, MLX_FLOAT16),
                 QN_OK);
    check_status(qn_kv_scheme_fit(&shape.every.scheme, head_dim), QN_OK);
    if (!shape.every.scheme.bits)
        shape.floats = shape.every.scheme.dtype;
    check_status(qn_kv_shape_check(&shape), QN_OK);
    return shape;
}

static qn_kv_cache *make_of(const qn_kv_shape *shape)
{
    qn_kv_cache *cache;
    check_status(qn_kv_cache_new(&cache, shape), QN_OK);
    return cache;
}

/* Attention of `count` further tokens, at `out`: [count, HEADS, dim]. */
static void push(qn_kv_cache *cache, int count, int dim, int window, float *out)
{
    int first = qn_kv_cache_length(cache);
    qn_attention how = attention(0.3f, window);
    how.rope = (qn_kv_rope){dim, false, 1e4F, 1, {NULL}};
    mlx_array x[3], y = {NULL};
    for (int i = 0; i < 3; i++)
        x[i] = dim == DIM ? make_part(i, i ? KV_HEADS : HEADS, first, count)
                          : make_wide(i, i ? KV_HEADS : HEADS, first, count);
    check_status(attend(cache, &y, 0, x[0], x[1], x[2], &how), QN_OK);
    for (int i = 0; i < 3; i++)
        mlx_array_free(x[i]);
    check_status(qn_engine(mlx_array_eval(y)), QN_OK);
    memcpy(out, mlx_array_data_float32(y),
           (size_t)(count * HEADS * dim) * sizeof *out);
    mlx_array_free(y);
    qn_kv_cache_advance(cache, count);
}

/* Pieces of a sequence of LONG tokens. */
static const int cuts[][4] = {{LONG}, {1}, {7, 1, 300}, {129, 5}, {64}};
enum { CUTS = sizeof cuts / sizeof *cuts };

static void push_all(qn_kv_cache *cache, int cut, int length, int dim,
                     int window, float *out)
{
    for (int i = 0, done = qn_kv_cache_length(cache); done < length; i++) {
        int count = cuts[cut][i % 4] ? cuts[cut][i % 4] : cuts[cut][0];
        count = count < length - done ? count : length - done;
        push(cache, count, dim, window, out + done * HEADS * dim);
        done += count;
    }
}

static void check_window(const char *kind, int window, int keep, int dim)
{
    size_t size = (size_t)(LONG * HEADS * dim);
    float *whole = calloc(size, sizeof *whole), *cut = calloc(size, 4);
    assert_true(whole && cut);
    qn_kv_shape shape = window_shape(kind, window, keep, dim);
    qn_kv_shape plain = window_shape(kind, 0, 0, dim);
    for (int i = 0; i < CUTS; i++) {
        qn_kv_cache *cache = make_of(&shape);
        push_all(cache, i, LONG, dim, window, i ? cut : whole);
        if (i)
            assert_memory_equal(cut, whole, size * sizeof *cut);
        qn_kv_cache_free(cache);
    }
    if (!keep) { /* a cache that forgets nothing, and a mask */
        qn_kv_cache *cache = make_of(&plain);
        push_all(cache, 2, LONG, dim, window, cut);
        assert_memory_equal(cut, whole, size * sizeof *cut);
        qn_kv_cache_free(cache);
    }
    free(whole);
    free(cut);
}

static void test_a_window_has_the_bits_of_a_mask(void **state)
{
    (void)state;
    static const int windows[] = {1, 8, 100, 128, 200};
    for (int i = 0; i < 5; i++) {
        check_window("f32", windows[i], 0, DIM);
        check_window("f16", windows[i], 0, DIM);
    }
    check_window("affine8", 100, 0, WIDE);
    check_window("affine4", 30, 0, WIDE);
}

static void test_kept_tokens_are_seen_for_good(void **state)
{
    (void)state;
    check_window("f32", 60, 4, DIM);
    check_window("f16", 130, 128, DIM);
    check_window("affine8", 90, 4, WIDE);
    float out[HEADS * DIM];
    qn_kv_shape shape = window_shape("f32", 40, 4, DIM);
    qn_kv_cache *cache = make_of(&shape);
    for (int i = 0; i < LONG; i++) {
        qn_attention how = attention(0.3f, 0);
        mlx_array x[3], y = {NULL};
        for (int j = 0; j < 3; j++)
            x[j] = make_part(j, j ? KV_HEADS : HEADS, i, 1);
        check_status(attend(cache, &y, 0, x[0], x[1], x[2], &how), QN_OK);
        check_status(qn_engine(mlx_array_eval(y)), QN_OK);
        memcpy(out, mlx_array_data_float32(y), sizeof out);
        for (int j = 0; j < 3; j++)
            mlx_array_free(x[j]);
        mlx_array_free(y);
        qn_kv_cache_advance(cache, 1);
        check_kept(out, i, 1, 40, 4, 1e-5);
    }
    qn_kv_cache_free(cache);
}

static void test_memory_of_a_window_is_bounded(void **state)
{
    (void)state;
    static float out[LONG * HEADS * DIM];
    const size_t token = 2 * KV_HEADS * DIM * 4;
    qn_kv_shape shape = window_shape("f32", 32, 0, DIM);
    assert_int_equal(mlx_clear_cache(), 0);
    size_t before = active();
    qn_kv_cache *cache = make_of(&shape);
    for (int i = 0; i < LONG; i++) {
        push(cache, 1, DIM, 32, out);
        assert_true(active() - before <= 3 * 128 * token);
    }
    qn_kv_cache_reset(cache);
    /* What a long piece took is given back. */
    push(cache, LONG - 4, DIM, 32, out);
    push(cache, 1, DIM, 32, out);
    assert_true(active() - before <= 3 * 128 * token);
    qn_kv_cache_free(cache);
    assert_int_equal(qn_kv_bytes(&shape, 20), 20 * token);
    assert_int_equal(qn_kv_bytes(&shape, 2000), 32 * token);
}

static void check_room(int window, int keep, int chunk)
{
    static float out[LONG * HEADS * DIM];
    qn_kv_shape shape = window_shape("f32", window, keep, DIM);
    size_t before = active(), most = 0;
    qn_kv_cache *cache = make_of(&shape);
    for (int at = 0; at + chunk <= LONG; at += chunk) {
        push(cache, chunk, DIM, window, out);
        most = active() - before > most ? active() - before : most;
    }
    qn_kv_cache_free(cache);
    uint64_t room = qn_kv_room_bytes(&shape, LONG, chunk);
    assert_true(most <= room && most >= room / 10 * 6);
}

/* What is allocated is what was predicted, at most. */
static void test_room_of_a_window_is_known(void **state)
{
    (void)state;
    static const int windows[] = {17, 128, 300}, chunks[] = {1, 50, 256};
    assert_int_equal(mlx_clear_cache(), 0);
    for (int w = 0; w < 3; w++)
        for (int c = 0; c < 3; c++)
            for (int keep = 0; keep <= 4; keep += 4)
                check_room(windows[w], keep, chunks[c]);
}

/* Trimming goes back over what the window has not let go, with the bits of a
 * sequence that was never longer. */
static void test_a_window_can_be_trimmed_a_little(void **state)
{
    (void)state;
    static float whole[LONG * HEADS * DIM], other[LONG * HEADS * DIM];
    const int keeps[] = {0, 4};
    for (int k = 0; k < 2; k++) {
        qn_kv_shape shape = window_shape("f16", 50, keeps[k], DIM);
        qn_kv_cache *cache = make_of(&shape);
        push_all(cache, 0, LONG, DIM, 50, whole);
        qn_kv_cache_reset(cache);
        for (int length = 60; length < LONG; length += 61) {
            push_all(cache, 1, length, DIM, 50, other);
            assert_true(
                qn_kv_cache_can_trim(cache, length - 64 > 0 ? length - 64 : 0));
            int back = length - 1 - length % 60;
            assert_true(qn_kv_cache_trim(cache, back));
            assert_int_equal(qn_kv_cache_length(cache), back);
        }
        push_all(cache, 3, LONG, DIM, 50, other);
        assert_memory_equal(whole, other, sizeof whole);
        assert_false(qn_kv_cache_trim(cache, 300));
        assert_int_equal(qn_kv_cache_length(cache), LONG);
        assert_true(qn_kv_cache_trim(cache, 0));
        qn_kv_cache_free(cache);
    }
}

/* ---- clones ---- */

static void test_a_clone_goes_its_own_way(void **state)
{
    (void)state;
    static float whole[LONG * HEADS * DIM], other[LONG * HEADS * DIM];
    const int windows[] = {0, 40};
    for (int w = 0; w < 2; w++) {
        qn_kv_shape shape = window_shape("f16", windows[w], 0, DIM);
        qn_kv_cache *cache = make_of(&shape), *clone = NULL;
        push_all(cache, 0, 300, DIM, windows[w], whole);
        size_t before = active();
        check_status(qn_kv_cache_clone(&clone, cache), QN_OK);
        assert_int_equal(active(), before);
        push_all(cache, 1, 400, DIM, windows[w], whole);
        assert_int_equal(qn_kv_cache_length(clone), 300);
        push_all(clone, 2, 400, DIM, windows[w], other);
        assert_memory_equal(whole + 300 * HEADS * DIM,
                            other + 300 * HEADS * DIM,
                            100 * HEADS * DIM * sizeof *whole);
        qn_kv_cache_free(cache);
        push(clone, 1, DIM, windows[w], other);
        qn_kv_cache_free(clone);
    }
}

static void test_a_state_has_no_way_back(void **state)
{
    (void)state;
    qn_kv_layer layers[2] = {{.recurrence = {3, 4, 2, 2, 2}}, {.kv_heads = 0}};
    qn_kv_shape shape = {.layers = 2,
                         .layer = layers,
                         .floats = MLX_FLOAT16,
                         .step = STEP,
                         .limit = LIMIT};
    qn_kv_cache *cache = make_of(&shape), *clone = NULL;
    mlx_array conv = {NULL}, matrix = {NULL};
    check_status(qn_kv_state_get(cache, 0, &conv, &matrix, stream), QN_OK);
    check_status(qn_engine(mlx_array_eval(conv)), QN_OK);
    assert_int_equal(mlx_array_size(conv), 12);
    assert_int_equal(mlx_array_size(matrix), 8);
    assert_true(mlx_array_data_float32(conv)[11] == 0);
    mlx_array one = mlx_array_new_float(1), more = {NULL};
    assert_int_equal(mlx_add(&more, conv, one, stream), 0);
    check_status(qn_kv_state_set(cache, 0, more, matrix), QN_OK);
    qn_kv_cache_advance(cache, 5);
    assert_true(qn_kv_cache_can_trim(cache, 5));
    assert_false(qn_kv_cache_trim(cache, 4));
    check_status(qn_kv_cache_clone(&clone, cache), QN_OK);
    qn_kv_cache_reset(cache);
    mlx_array_free(conv);
    mlx_array_free(matrix);
    check_status(qn_kv_state_get(clone, 0, &conv, &matrix, stream), QN_OK);
    check_status(qn_engine(mlx_array_eval(conv)), QN_OK);
    assert_true(mlx_array_data_float32(conv)[11] == 1);
    assert_int_equal(qn_kv_cache_length(clone), 5);
    assert_int_equal(qn_kv_token_bytes(&shape), 0);
    assert_int_equal(qn_kv_bytes(&shape, 7), 20 * sizeof(float));
    mlx_array_free(conv);
    mlx_array_free(matrix);
    mlx_array_free(one);
    mlx_array_free(more);
    qn_kv_cache_free(cache);
    qn_kv_cache_free(clone);
}

static void test_growth_ends_where_it_was_admitted(void **state)
{
    (void)state;
    qn_kv_cache *cache = make(1, MLX_FLOAT32);
    qn_kv_cache_admit(cache, 12);
    step(cache, 1, 10, 0, 1e-5);
    check_status(qn_kv_cache_check(cache, 2), QN_OK);
    check_error(qn_kv_cache_check(cache, 3), QN_E_NOMEM,
                "room for 12 tokens, asked for 13");
    qn_kv_cache_admit(cache, 5000);
    check_error(qn_kv_cache_check(cache, LIMIT), QN_E_NOMEM, "room for 300");
    qn_kv_cache_free(cache);
}

static void test_shapes_that_can_not_be_are_refused(void **state)
{
    (void)state;
    qn_kv_shape shape = {.layers = 2, .every = {.window = 0, .keep = 4}};
    check_error(qn_kv_shape_check(&shape), QN_E_ARG, "layer 0");
    shape.every = (qn_kv_layer){.window = 9, .keep = 129};
    check_error(qn_kv_shape_check(&shape), QN_E_ARG, "at most 128");
    shape.every = (qn_kv_layer){.kv_heads = 1, .recurrence = {1, 1, 1, 1, 1}};
    check_error(qn_kv_shape_check(&shape), QN_E_ARG, "both");
}

static qn_status attend_scenario(void)
{
    qn_kv_shape shape = {.layers = 1,
                         .every = {.kv_heads = KV_HEADS,
                                   .head_dim = DIM,
                                   .scheme = {.dtype = MLX_FLOAT16}},
                         .floats = MLX_FLOAT16,
                         .step = STEP,
                         .limit = LIMIT};
    static const float zeros[HEADS * 140 * DIM];
    qn_kv_rows rows[2] = {{.count = 20}, {.count = 120}};
    qn_status status = qn_kv_cache_new(&rows[0].cache, &shape);
    if (!status)
        status = qn_kv_cache_new(&rows[1].cache, &shape);
    /* Two steps of two sequences; one of them grows in the second. */
    for (int i = 0; i < 2 && !status; i++) {
        mlx_array out = {NULL};
        mlx_array q = mlx_array_new_data(zeros, (int[]){1, 140, HEADS * DIM}, 3,
                                         MLX_FLOAT32);
        mlx_array k = mlx_array_new_data(zeros, (int[]){1, 140, KV_HEADS * DIM},
                                         3, MLX_FLOAT32);
        qn_attention how = attention(1, 7);
        how.rope = (qn_kv_rope){DIM, false, 1e4F, 1, {NULL}};
        status = q.ctx && k.ctx ? QN_OK : qn_engine(1);
        if (!status)
            status = qn_kv_attend(rows, 2, &out, 0, q, k, k, &how, stream);
        if (!status)
            status = qn_engine(mlx_array_eval(out));
        for (int j = 0; j < 2 && !status; j++)
            qn_kv_cache_advance(rows[j].cache, rows[j].count);
        mlx_array_free(q);
        mlx_array_free(k);
        mlx_array_free(out);
    }
    qn_kv_cache_free(rows[0].cache);
    qn_kv_cache_free(rows[1].cache);
    return status;
}

static void test_memory_may_run_out(void **state)
{
    (void)state;
    each_alloc_may_fail(attend_scenario);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_attention_over_what_was_stored),
        cmocka_unit_test(test_bits_do_not_depend_on_how_a_prompt_was_split),
        cmocka_unit_test(test_half_precision_storage),
        cmocka_unit_test(test_trimming_forgets_the_end),
        cmocka_unit_test(test_limit_is_kept),
        cmocka_unit_test(test_tokens_are_written_in_place),
        cmocka_unit_test(test_room_grows_by_steps),
        cmocka_unit_test(test_packing_may_start_late),
        cmocka_unit_test(test_some_layers_stay_in_floats),
        cmocka_unit_test(test_layers_have_their_own_heads),
        cmocka_unit_test(test_size_of_a_token),
        cmocka_unit_test(test_a_window_has_the_bits_of_a_mask),
        cmocka_unit_test(test_kept_tokens_are_seen_for_good),
        cmocka_unit_test(test_memory_of_a_window_is_bounded),
        cmocka_unit_test(test_room_of_a_window_is_known),
        cmocka_unit_test(test_a_window_can_be_trimmed_a_little),
        cmocka_unit_test(test_a_clone_goes_its_own_way),
        cmocka_unit_test(test_a_state_has_no_way_back),
        cmocka_unit_test(test_growth_ends_where_it_was_admitted),
        cmocka_unit_test(test_shapes_that_can_not_be_are_refused),
        cmocka_unit_test(test_memory_may_run_out),
    };
    return cmocka_run_group_tests(tests, open_engine, close_engine);
}
