/* Saved caches: every kind comes back with the same bits out of attention, and
 * a file that is cut, changed or of something else is refused. */
#include "support/qn_test.h"

#include "base/file.h"
#include "kv/cache.h"
#include "kv/engine.h"
#include "kv/file.h"

#include <math.h>
#include <pthread.h>
#include <unistd.h>

enum { HEADS = 4, KV_HEADS = 2, DIM = 64, LAYERS = 2, LIMIT = 600 };

static mlx_stream stream;
static char *folder, *path;

static const qn_kv_fact facts[] = {{"model", "abc", false},
                                   {"dtype", "f32", true}};
enum { FACTS = sizeof facts / sizeof *facts };

static int open_all(void **state)
{
    (void)state;
    if (qn_engine_start())
        return 1;
    stream = mlx_default_cpu_stream_new();
    folder = temp_dir_new();
    path = qn_path_join(folder, "cache.safetensors");
    return !stream.ctx || !path;
}

static int close_all(void **state)
{
    (void)state;
    qn_free(path);
    temp_dir_remove(folder);
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
    if (!start)
        shape.floats = shape.every.scheme.dtype;
    return shape;
}

static qn_kv_cache *make(const qn_kv_shape *shape)
{
    qn_kv_cache *cache;
    check_status(qn_kv_cache_new(&cache, shape), QN_OK);
    return cache;
}

static mlx_array rows_of(int what, int heads, int layer, int first, int count)
{
    size_t size = (size_t)(heads * count * DIM);
    float *data = malloc(size * sizeof *data);
    assert_non_null(data);
    for (size_t i = 0; i < size; i++)
        data[i] = sinf((float)(what * 31 + layer * 17) + 0.37f * (float)i +
                       1.7f * (float)first) *
                  (1 + (float)(i % 7));
    mlx_array x = mlx_array_new_data(data, (int[]){1, count, heads * DIM}, 3,
                                     MLX_FLOAT32);
    assert_non_null(x.ctx);
    free(data);
    return x;
}

/* The attention of `count` further tokens, layer by layer, at `out`. */
static void step(qn_kv_cache *cache, int count, float *out)
{
    int first = qn_kv_cache_length(cache);
    qn_attention how = {.heads = HEADS,
                        .scale = 0.125f,
                        .rope = {.dims = DIM, .base = 10000, .scale = 1}};
    qn_kv_rows rows = {.cache = cache, .count = count};
    check_status(qn_kv_cache_settle(cache, stream), QN_OK);
    for (int layer = 0; layer < LAYERS; layer++) {
        mlx_array q = rows_of(0, HEADS, layer, first, count);
        mlx_array k = rows_of(1, KV_HEADS, layer, first, count);
        mlx_array v = rows_of(2, KV_HEADS, layer, first, count);
        mlx_array y = {NULL};
        check_status(qn_kv_attend(&rows, 1, &y, layer, q, k, v, &how, stream),
                     QN_OK);
        mlx_array_free(q);
        mlx_array_free(k);
        mlx_array_free(v);
        check_status(qn_engine(mlx_array_eval(y)), QN_OK);
        if (out) {
            size_t size = (size_t)(count * HEADS * DIM);
            memcpy(out + (size_t)layer * size, mlx_array_data_float32(y),
                   size * sizeof *out);
        }
        mlx_array_free(y);
    }
    qn_kv_cache_advance(cache, count);
}

static void fill_ids(int32_t *ids, int count)
{
    for (int i = 0; i < count; i++)
        ids[i] = i * 3 + 1;
}

/* Saves `length` tokens, loads them, and goes on with both. */
static void check_kind(const char *kind, int start, int length)
{
    enum { MORE = 3 };
    static float before[LAYERS * MORE * HEADS * DIM],
        after[LAYERS * MORE * HEADS * DIM];
    static int32_t ids[LIMIT];
    qn_kv_shape shape = shape_of(kind, start);
    qn_kv_cache *one = make(&shape), *other = make(&shape);
    int32_t *found = NULL;
    for (int done = 0; done < length;) {
        int left = length - done, room = qn_kv_cache_room(one);
        int count = left < 100 ? left : 100;
        if (room > 0 && room < count)
            count = room;
        step(one, count, NULL);
        done += count;
    }
    fill_ids(ids, length);
    qn_kv_cache_set_budget(one, 777);
    check_status(qn_kv_cache_save(one, path, ids, facts, FACTS, stream), QN_OK);
    check_status(qn_kv_cache_load(other, path, &found, facts, FACTS, stream),
                 QN_OK);
    assert_int_equal(qn_kv_cache_length(other), length);
    assert_int_equal(qn_kv_cache_budget(other), 777);
    assert_memory_equal(found, ids, (size_t)length * sizeof *ids);
    qn_free(found);
    for (int i = 0; i < 2; i++) {
        int count = i ? 1 : MORE;
        if (qn_kv_cache_room(one) > 0 && count > qn_kv_cache_room(one))
            count = qn_kv_cache_room(one);
        step(one, count, before);
        step(other, count, after);
        assert_memory_equal(before, after,
                            (size_t)(LAYERS * count * HEADS * DIM) *
                                sizeof *before);
    }
    qn_kv_cache_free(one);
    qn_kv_cache_free(other);
}

static void *write_on_a_thread(void *data)
{
    static qn_status status;
    status = qn_kv_saving_write(data, path);
    return &status;
}

/* A layer at a time, written by another thread while the cache goes on. */
static void test_pieces_make_the_same_file(void **state)
{
    (void)state;
    enum { LENGTH = 140 };
    int32_t ids[LENGTH];
    qn_kv_shape shape = shape_of("affine8", 0);
    qn_kv_cache *cache = make(&shape), *kept = NULL;
    qn_kv_saving *saving = NULL;
    char *whole = NULL, *pieces = NULL;
    size_t size, other;
    pthread_t thread;
    void *status = NULL;
    fill_ids(ids, LENGTH);
    step(cache, LENGTH, NULL);
    check_status(qn_kv_cache_save(cache, path, ids, facts, FACTS, stream),
                 QN_OK);
    check_status(qn_file_read(&whole, &size, path, 1 << 24), QN_OK);
    check_status(qn_kv_cache_clone(&kept, cache), QN_OK);
    check_status(qn_kv_saving_new(&saving, kept, ids, facts, FACTS, stream),
                 QN_OK);
    bool more = true;
    int count = 0;
    for (; more; count++) {
        check_status(qn_kv_saving_step(saving, &more), QN_OK);
        step(cache, 1, NULL);
    }
    assert_int_equal(count, LAYERS + 1);
    unlink(path);
    assert_int_equal(pthread_create(&thread, NULL, write_on_a_thread, saving),
                     0);
    step(cache, 1, NULL);
    assert_int_equal(pthread_join(thread, &status), 0);
    assert_int_equal(*(qn_status *)status, QN_OK);
    check_status(qn_file_read(&pieces, &other, path, 1 << 24), QN_OK);
    assert_int_equal(size, other);
    assert_memory_equal(whole, pieces, size);
    qn_kv_saving_free(saving);
    qn_kv_cache_free(kept);
    qn_kv_cache_free(cache);
    qn_free(whole);
    qn_free(pieces);
}

static void test_every_kind_comes_back(void **state)
{
    (void)state;
    static const char *const kinds[] = {
        "f32",        "f16",        "bf16",       "affine8",    "affine4",
        "turbo:k8v3", "turbo:k8v8", "turbo:k5v5", "turbo:k4v2", "turbo:k2v4"};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        check_kind(kinds[i], 0, 1);
        check_kind(kinds[i], 0, 257);
    }
}

static void test_one_that_is_packed_late_comes_back(void **state)
{
    (void)state;
    check_kind("turbo:k8v3", 50, 20);
    check_kind("turbo:k8v3", 50, 50);
    check_kind("turbo:k8v3", 50, 51);
    check_kind("affine4", 50, 49);
    check_kind("affine8", 50, 170);
}

/* Layers of every kind together, saved at `length` and gone on with. */
static void check_layers(int length, int cut)
{
    static float before[LAYERS * HEADS * DIM], after[LAYERS * HEADS * DIM];
    static int32_t ids[LIMIT];
    qn_kv_layer layers[LAYERS + 2] = {
        {.kv_heads = KV_HEADS, .head_dim = DIM, .window = 40},
        {.kv_heads = KV_HEADS, .head_dim = DIM, .window = 90, .keep = 4},
        {.recurrence = {2, 3, 2, 4, 5}},
        {.kv_heads = 0}};
    qn_kv_shape shape = {.layers = LAYERS + 2,
                         .layer = layers,
                         .floats = MLX_FLOAT16,
                         .step = 128,
                         .limit = LIMIT};
    check_status(qn_kv_scheme_parse(&layers[0].scheme, "affine8", MLX_FLOAT16),
                 QN_OK);
    check_status(qn_kv_scheme_fit(&layers[0].scheme, DIM), QN_OK);
    layers[1].scheme.dtype = MLX_FLOAT16;
    qn_kv_cache *one = make(&shape), *other = make(&shape);
    int32_t *found = NULL;
    mlx_array conv = {NULL}, state = {NULL}, was = {NULL};
    for (int done = 0; done < length;) {
        int count = cut < length - done ? cut : length - done;
        step(one, count, NULL);
        done += count;
    }
    static const float numbers[2 * 4 * 5] = {1, 2, 3, 5, 8};
    conv = mlx_array_new_data(numbers, (int[]){2, 3}, 2, MLX_FLOAT32);
    state = mlx_array_new_data(numbers, (int[]){2, 4, 5}, 3, MLX_FLOAT32);
    check_status(qn_kv_state_set(one, LAYERS, conv, state), QN_OK);
    fill_ids(ids, length);
    check_status(qn_kv_cache_save(one, path, ids, facts, FACTS, stream), QN_OK);
    check_status(qn_kv_cache_load(other, path, &found, facts, FACTS, stream),
                 QN_OK);
    qn_free(found);
    mlx_array_free(state);
    check_status(qn_kv_state_get(other, LAYERS, &was, &state, stream), QN_OK);
    check_status(qn_engine(mlx_array_eval(state)), QN_OK);
    assert_memory_equal(mlx_array_data_float32(state), numbers, sizeof numbers);
    for (int i = 0; i < 140 && length + i < LIMIT; i++) {
        step(one, 1, before);
        step(other, 1, after);
        assert_memory_equal(before, after, sizeof before);
    }
    mlx_array_free(conv);
    mlx_array_free(state);
    mlx_array_free(was);
    qn_kv_cache_free(one);
    qn_kv_cache_free(other);
}

static void test_windows_and_states_come_back(void **state)
{
    (void)state;
    check_layers(170, 170);
    check_layers(300, 1);
    check_layers(500, 77);
}

/* ---- files that are refused ---- */

static void save_one(const char *kind, int length)
{
    int32_t ids[LIMIT];
    qn_kv_shape shape = shape_of(kind, 0);
    qn_kv_cache *cache = make(&shape);
    step(cache, length, NULL);
    fill_ids(ids, length);
    check_status(qn_kv_cache_save(cache, path, ids, facts, FACTS, stream),
                 QN_OK);
    qn_kv_cache_free(cache);
}

static void check_refused(const qn_kv_shape *shape, const qn_kv_fact *list,
                          qn_status status, const char *part)
{
    qn_kv_cache *cache = make(shape);
    int32_t *ids = NULL;
    check_error(qn_kv_cache_load(cache, path, &ids, list, FACTS, stream),
                status, part);
    assert_string_equal(qn_error_where(), path);
    assert_null(ids);
    assert_int_equal(qn_kv_cache_length(cache), 0);
    /* It can be used as if nothing had been tried. */
    step(cache, 2, NULL);
    qn_kv_cache_free(cache);
}

static void test_other_models_kinds_and_sizes_are_refused(void **state)
{
    (void)state;
    save_one("turbo:k8v3", 40);
    qn_kv_shape shape = shape_of("turbo:k8v4", 0);
    check_refused(&shape, facts, QN_E_MISMATCH,
                  "kind: expected 2 turbo:k8v4 2x64");
    shape = shape_of("f16", 0);
    check_refused(&shape, facts, QN_E_MISMATCH, "found 2 turbo:k8v3 2x64");
    shape = shape_of("turbo", 7);
    check_refused(&shape, facts, QN_E_MISMATCH, "kind_from");
    shape = shape_of("turbo", 0);
    shape.limit = 39;
    check_refused(&shape, facts, QN_E_UNSUPPORTED, "40 saved tokens");
    shape = shape_of("turbo", 0);
    static const qn_kv_fact other[] = {{"model", "abd", false},
                                       {"dtype", "f32", true}};
    check_refused(&shape, other, QN_E_MISMATCH,
                  "model: expected abd, found abc");
    static const qn_kv_fact more[] = {{"model", "abc", false},
                                      {"profile", "x", false}};
    check_refused(&shape, more, QN_E_MISMATCH, "profile");
    qn_kv_shape wide = shape_of("turbo", 0);
    wide.layers = 3;
    qn_kv_cache *cache = make(&wide);
    int32_t *ids = NULL;
    check_error(qn_kv_cache_load(cache, path, &ids, facts, FACTS, stream),
                QN_E_MISMATCH, "layers: expected 3, found 2");
    qn_kv_cache_free(cache);
}

/* In all of these the file may be good for another program. */
static void test_other_ways_to_compute_are_told_apart(void **state)
{
    (void)state;
    save_one("f16", 40);
    qn_kv_shape shape = shape_of("f16", 0);
    static const qn_kv_fact other[] = {{"model", "abc", false},
                                       {"dtype", "f16", true}};
    check_refused(&shape, other, QN_E_UNSUPPORTED,
                  "dtype: expected f16, found f32");
    shape = shape_of("f32", 0);
    check_refused(&shape, facts, QN_E_UNSUPPORTED,
                  "kv_dtype: expected f32, found f16");
    mlx_map_string_to_array arrays = mlx_map_string_to_array_new();
    mlx_map_string_to_string texts = mlx_map_string_to_string_new();
    assert_false(mlx_load_safetensors(&arrays, &texts, path, stream));
    static const char *const names[] = {"quern", "mlx", "backend", "device",
                                        "isa"};
    shape = shape_of("f16", 0);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *value = NULL;
        char part[64];
        assert_false(mlx_map_string_to_string_get(&value, texts, names[i]));
        char *kept = strdup(value);
        assert_false(mlx_map_string_to_string_insert(texts, names[i], "other"));
        assert_false(mlx_save_safetensors(path, arrays, texts));
        snprintf(part, sizeof part, "%s: expected", names[i]);
        check_refused(&shape, facts, QN_E_UNSUPPORTED, part);
        assert_false(mlx_map_string_to_string_insert(texts, names[i], kept));
        free(kept);
    }
    mlx_map_string_to_array_free(arrays);
    mlx_map_string_to_string_free(texts);
}

static void test_nothing_to_save_or_load(void **state)
{
    (void)state;
    qn_kv_shape shape = shape_of("f16", 0);
    qn_kv_cache *cache = make(&shape);
    int32_t *ids = NULL;
    check_error(qn_kv_cache_save(cache, path, NULL, facts, FACTS, stream),
                QN_E_ARG, "without tokens");
    check_status(
        qn_kv_cache_load(cache, "/nonexistent", &ids, facts, FACTS, stream),
        QN_E_NOTFOUND);
    qn_kv_cache_free(cache);
}

/* The saved file, cut or changed by the caller, is written back. */
static void check_bytes(const char *data, size_t size, qn_status other)
{
    qn_kv_shape shape = shape_of("turbo", 0);
    qn_kv_cache *cache = make(&shape);
    int32_t *ids = NULL;
    check_status(qn_file_write_atomic(path, data, size), QN_OK);
    qn_status status =
        qn_kv_cache_load(cache, path, &ids, facts, FACTS, stream);
    /* Fields about who computed it are another release's or machine's. */
    if (status != QN_E_FORMAT && status != other &&
        !(other == QN_E_MISMATCH && status == QN_E_UNSUPPORTED)) {
        print_error("a broken file gave %s\n", qn_status_name(status));
        fail();
    }
    assert_null(ids);
    qn_kv_cache_free(cache);
}

static void test_cut_and_changed_files_are_refused(void **state)
{
    (void)state;
    char *data;
    size_t size;
    save_one("turbo", 5);
    check_status(qn_file_read(&data, &size, path, 1 << 24), QN_OK);
    for (size_t cut = 0; cut < size; cut += cut < 1500 ? 7 : 401)
        check_bytes(data, cut, QN_E_FORMAT);
    /* Any byte: a changed field of the header is a mismatch, or a length that
     * does not fit. */
    for (size_t at = 0; at < size; at += at < 2500 ? 5 : 97) {
        char before = data[at];
        data[at] = (char)(before ^ 1);
        check_bytes(data, size, QN_E_MISMATCH);
        data[at] = before;
    }
    qn_free(data);
}

/* An id that can't be one, in a file that is otherwise as it should be. */
static void test_ids_that_are_none_are_refused(void **state)
{
    (void)state;
    int32_t ids[LIMIT];
    qn_kv_shape shape = shape_of("f16", 0);
    qn_kv_cache *cache = make(&shape);
    step(cache, 9, NULL);
    fill_ids(ids, 9);
    ids[8] = -2;
    check_status(qn_kv_cache_save(cache, path, ids, facts, FACTS, stream),
                 QN_OK);
    qn_kv_cache_free(cache);
    check_refused(&shape, facts, QN_E_FORMAT, "found 4294967294");
}

/* Something that nobody asked for. */
static void test_further_tensors_are_refused(void **state)
{
    (void)state;
    save_one("f16", 5);
    mlx_map_string_to_array arrays = mlx_map_string_to_array_new();
    mlx_map_string_to_string texts = mlx_map_string_to_string_new();
    assert_int_equal(mlx_load_safetensors(&arrays, &texts, path, stream), 0);
    mlx_array x = mlx_array_new_int(1);
    assert_int_equal(mlx_map_string_to_array_insert(arrays, "more", x), 0);
    char *longer = qn_path_join(folder, "longer.safetensors");
    assert_int_equal(mlx_save_safetensors(longer, arrays, texts), 0);
    mlx_array_free(x);
    mlx_map_string_to_array_free(arrays);
    mlx_map_string_to_string_free(texts);
    assert_int_equal(rename(longer, path), 0);
    qn_free(longer);
    qn_kv_shape shape = shape_of("f16", 0);
    check_refused(&shape, facts, QN_E_FORMAT, "expected 5 tensors, found 6");
}

/* ---- memory ---- */

static qn_status save_and_load(void)
{
    static int32_t ids[8];
    qn_kv_shape shape = shape_of("turbo", 0);
    qn_kv_cache *cache = NULL;
    int32_t *found = NULL;
    qn_status status = qn_kv_cache_new(&cache, &shape);
    if (!status)
        status = qn_kv_cache_load(cache, path, &found, facts, FACTS, stream);
    if (!status)
        status = qn_kv_cache_save(cache, path, ids, facts, FACTS, stream);
    qn_free(found);
    qn_kv_cache_free(cache);
    return status;
}

static void test_memory_may_run_out(void **state)
{
    (void)state;
    save_one("turbo", 8);
    each_alloc_may_fail(save_and_load);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pieces_make_the_same_file),
        cmocka_unit_test(test_every_kind_comes_back),
        cmocka_unit_test(test_one_that_is_packed_late_comes_back),
        cmocka_unit_test(test_windows_and_states_come_back),
        cmocka_unit_test(test_other_models_kinds_and_sizes_are_refused),
        cmocka_unit_test(test_other_ways_to_compute_are_told_apart),
        cmocka_unit_test(test_nothing_to_save_or_load),
        cmocka_unit_test(test_cut_and_changed_files_are_refused),
        cmocka_unit_test(test_ids_that_are_none_are_refused),
        cmocka_unit_test(test_further_tensors_are_refused),
        cmocka_unit_test(test_memory_may_run_out),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
