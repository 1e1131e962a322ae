/* The packed KV format through quern/ext.h: what is accepted and declined,
 * errors, layouts, threads, accuracy, what calls leave behind; and the encoder
 * made of mlx_* calls, which the build compiles into this test under the names
 * fallback_tq_*.  Golden vectors are run by cases/turboquant. */
#include "support/qn_tq_arrays.h"

#include <pthread.h>

int fallback_tq_encode_keys(mlx_array *codes, mlx_array *scale, mlx_array *zero,
                            const mlx_array keys, int bits, int group_size,
                            bool guard, const mlx_stream s);
int fallback_tq_encode_values(mlx_array *codes, mlx_array *scale,
                              const mlx_array values, int bits, int group_size,
                              const mlx_stream s);
int fallback_tq_encode(mlx_vector_array *planes, const mlx_array keys,
                       const mlx_array values, int key_bits, int value_bits,
                       bool guard, const mlx_stream s);
int fallback_tq_try_joint_decode(bool *accepted, mlx_array *keys,
                                 mlx_array *values,
                                 const mlx_vector_array planes,
                                 const mlx_array centroids, int key_bits,
                                 int value_bits, int head_dim, bool defer,
                                 const mlx_stream s);
int fallback_tq_try_fused_eager(bool *accepted, mlx_array *keys,
                                mlx_array *values,
                                const mlx_vector_array planes,
                                const mlx_array centroids,
                                const mlx_array signs, int key_bits,
                                int value_bits, int head_dim,
                                const mlx_stream s);

static const int key_bits[] = {2, 4, 5, 8};
static const int value_bits[] = {2, 3, 4, 5, 8};
static const mlx_dtype floats[] = {MLX_FLOAT32, MLX_FLOAT16, MLX_BFLOAT16};

#define foreach(i, list) for (size_t i = 0; i < sizeof list / sizeof *list; i++)

/* ---- records ---- */

/* Planes, and all that a decoder wants beside them. */
typedef struct record {
    mlx_array planes[5], centroids, signs;
    int kb, vb, d;
} record;

static record record_of(const int shape[4], int kb, int vb, uint64_t seed)
{
    record r = {.kb = kb, .vb = vb, .d = shape[3]};
    mlx_array k = tq_random(shape, seed, true, MLX_FLOAT32);
    mlx_array v = tq_random(shape, seed + 1, true, MLX_BFLOAT16);
    mlx_vector_array list = mlx_vector_array_new();
    r.centroids = mlx_array_new();
    r.signs = mlx_array_new();
    check_ok(quern_tq_encode(&list, k, v, kb, vb, true, stream));
    check_ok(mlx_eval(list));
    tq_unlist(r.planes, list);
    check_ok(quern_tq_centroids(&r.centroids, vb));
    check_ok(quern_tq_signs(&r.signs, r.d));
    mlx_vector_array_free(list);
    mlx_array_free(k);
    mlx_array_free(v);
    return r;
}

static void record_free(record *r)
{
    tq_free(r->planes, 5);
    mlx_array_free(r->centroids);
    mlx_array_free(r->signs);
}

typedef enum path { EAGER, DEFERRED, FUSED, PATHS } path;

static bool try_path(path p, mlx_array *k, mlx_array *v, const record *r)
{
    bool accepted = true;
    mlx_vector_array list = mlx_vector_array_new_data(r->planes, 5);
    if (p == FUSED)
        check_ok(quern_tq_try_fused_eager(&accepted, k, v, list, r->centroids,
                                          r->signs, r->kb, r->vb, r->d,
                                          stream));
    else
        check_ok(quern_tq_try_joint_decode(&accepted, k, v, list, r->centroids,
                                           r->kb, r->vb, r->d, p == DEFERRED,
                                           stream));
    mlx_vector_array_free(list);
    return accepted;
}

/* Plane by plane; values deferred or eager. */
static int separate(mlx_array *k, mlx_array *v, const mlx_array planes[5],
                    int kb, int vb, int d, bool defer)
{
    mlx_array kc = mlx_array_new(), vc = mlx_array_new();
    int failed = quern_tq_unpack(&kc, planes[0], kb, d, stream) ||
                 quern_tq_unpack(&vc, planes[3], vb, d, stream) ||
                 quern_tq_decode_keys(k, kc, planes[1], planes[2], stream) ||
                 quern_tq_decode_values(v, vc, planes[4], vb, defer, stream);
    mlx_array_free(kc);
    mlx_array_free(vc);
    return failed;
}

/* All paths give what decoding plane by plane does. */
static void check_paths(const record *r)
{
    mlx_array k = mlx_array_new(), v = mlx_array_new();
    mlx_array deferred = mlx_array_new(), eager = mlx_array_new();
    check_ok(separate(&k, &deferred, r->planes, r->kb, r->vb, r->d, true));
    check_ok(separate(&k, &eager, r->planes, r->kb, r->vb, r->d, false));
    for (int p = 0; p < PATHS; p++) {
        mlx_array a = mlx_array_new(), b = mlx_array_new();
        assert_true(try_path((path)p, &a, &b, r));
        check_same(a, k);
        if (p == EAGER) {
            assert_int_equal(mlx_array_dtype(b), MLX_FLOAT32);
            check_ok(mlx_astype(&v, b, MLX_BFLOAT16, stream));
            check_same(v, deferred);
            check_ok(quern_tq_unrotate(&b, b, stream));
            check_ok(mlx_astype(&b, b, MLX_BFLOAT16, stream));
        }
        check_same(b, p == DEFERRED ? deferred : eager);
        mlx_array_free(a);
        mlx_array_free(b);
    }
    mlx_array all[] = {k, v, deferred, eager};
    tq_free(all, 4);
}

/* ---- layouts ---- */

/* The same elements with axes 1 and 2 the other way round in memory, and every
 * second of a longer last axis. */
static mlx_array scattered(mlx_array x)
{
    mlx_array y = mlx_array_new();
    int n = mlx_array_dim(x, 3), stop[4], start[4] = {0};
    int step[4] = {1, 1, 1, 2};
    check_ok(mlx_repeat_axis(&y, x, 2, 3, stream));
    check_ok(mlx_swapaxes(&y, y, 1, 2, stream));
    check_ok(mlx_contiguous(&y, y, false, stream));
    check_ok(mlx_array_eval(y));
    check_ok(mlx_swapaxes(&y, y, 1, 2, stream));
    for (int i = 0; i < 4; i++)
        stop[i] = i == 3 ? 2 * n : mlx_array_dim(y, i);
    check_ok(mlx_slice(&y, y, start, 4, stop, 4, step, 4, stream));
    check_ok(mlx_array_eval(y));
    return y;
}

static void test_every_layout_decodes_alike(void **state)
{
    (void)state;
    for (int d = 64; d <= 512; d *= 2)
        foreach (i, key_bits) {
            int vb = value_bits[(i + (size_t)d / 64) % 5];
            record r = record_of((int[]){2, 3, 5, d}, key_bits[i], vb, i);
            check_paths(&r);
            for (int p = 0; p < 5; p++) {
                mlx_array moved = scattered(r.planes[p]);
                assert_int_not_equal(mlx_array_strides(moved)[3], 1);
                check_same(moved, r.planes[p]);
                mlx_array_free(r.planes[p]);
                r.planes[p] = moved;
            }
            check_paths(&r);
            record_free(&r);
        }
}

/* A strided table, and strided signs. */
static void test_tables_may_be_strided(void **state)
{
    (void)state;
    record r = record_of((int[]){1, 2, 70, 128}, 8, 5, 3);
    int start = 0, step = 3;
    mlx_array *tables[] = {&r.centroids, &r.signs};
    for (int i = 0; i < 2; i++) {
        mlx_array y = mlx_array_new();
        int stop = 3 * (int)mlx_array_size(*tables[i]);
        check_ok(mlx_repeat(&y, *tables[i], 3, stream));
        check_ok(mlx_slice(&y, y, &start, 1, &stop, 1, &step, 1, stream));
        check_ok(mlx_array_eval(y));
        mlx_array_free(*tables[i]);
        *tables[i] = y;
    }
    check_paths(&r);
    record_free(&r);
}

static void test_every_metadata_decodes_alike(void **state)
{
    (void)state;
    static const float special[] = {0,   -0.0f,    INFINITY, -INFINITY,
                                    NAN, 0x1p-24f, 0x1p-14f, 65504};
    foreach (i, floats)
        for (int group = 32; group <= 64; group *= 2) {
            int shape[] = {1, 2, 9, 128}, meta[] = {1, 2, 9, 128 / group};
            record r = record_of(shape, 5, 3, 7);
            float values[2 * 9 * 4];
            for (int p = 1; p < 5; p += 1 + (p == 2)) {
                for (int j = 0; j < 72; j++)
                    values[j] = special[(j * 5 + p) % 8];
                check_ok(mlx_array_set_data(&r.planes[p], values, meta, 4,
                                            MLX_FLOAT32));
                check_ok(
                    mlx_astype(&r.planes[p], r.planes[p], floats[i], stream));
            }
            check_paths(&r);
            record_free(&r);
        }
}

static void test_threads_change_nothing(void **state)
{
    (void)state;
    int shape[] = {2, 3, 201, 128};
    mlx_array k = tq_random(shape, 5, false, MLX_FLOAT32), first[9];
    for (int threads = 1; threads <= 8; threads++) {
        mlx_array now[9];
        mlx_vector_array list = mlx_vector_array_new();
        record r = {.kb = 8, .vb = 3, .d = 128, .centroids = {NULL}};
        assert_int_equal(quern_set_threads(threads), 0);
        check_ok(quern_tq_encode(&list, k, k, 8, 3, true, stream));
        tq_unlist(r.planes, list);
        check_ok(quern_tq_centroids(&r.centroids, 3));
        check_ok(quern_tq_signs(&r.signs, 128));
        for (int i = 0; i < 9; i++)
            now[i] = mlx_array_new();
        for (int i = 0; i < 5; i++)
            check_ok(mlx_array_set(&now[i], r.planes[i]));
        assert_true(try_path(DEFERRED, &now[5], &now[6], &r));
        assert_true(try_path(FUSED, &now[7], &now[8], &r));
        for (int i = 0; threads > 1 && i < 9; i++)
            check_same(now[i], first[i]);
        if (threads == 1)
            memcpy(first, now, sizeof first);
        else
            tq_free(now, 9);
        mlx_vector_array_free(list);
        record_free(&r);
    }
    quern_set_threads(0);
    tq_free(first, 9);
    mlx_array_free(k);
}

/* ---- what is declined ---- */

/* Each case spoils one thing of a record that is accepted. */
static void spoil(record *r, int what)
{
    mlx_array *p = r->planes;
    int n;
    switch (what) {
    case 0:
        r->d = 96;
        break;
    case 1:
        r->kb = 3;
        break;
    case 2:
        r->vb = 6;
        break;
    case 3: /* uint8 codes of 8-bit keys */
        check_ok(mlx_astype(&p[0], p[0], MLX_UINT8, stream));
        break;
    case 4:
        check_ok(mlx_astype(&p[3], p[3], MLX_INT8, stream));
        break;
    case 5:
        check_ok(mlx_astype(&r->centroids, r->centroids, MLX_FLOAT16, stream));
        break;
    case 6:
        check_ok(
            mlx_reshape(&r->centroids, r->centroids, (int[]){1, 8}, 2, stream));
        break;
    case 7: /* too few of them */
        check_ok(quern_tq_centroids(&r->centroids, 2));
        break;
    case 8:
        check_ok(mlx_flatten(&p[1], p[1], 0, 1, stream));
        break;
    case 9: /* other tokens */
        n = mlx_array_dim(p[4], 2) - 1;
        check_ok(mlx_slice(&p[4], p[4], (int[]){0, 0, 0, 0}, 4,
                           (int[]){1, 2, n, 4}, 4, (int[]){1, 1, 1, 1}, 4,
                           stream));
        break;
    case 10: /* no tokens */
        for (int i = 0; i < 5; i++) {
            int shape[4];
            memcpy(shape, mlx_array_shape(p[i]), sizeof shape);
            shape[2] = 0;
            check_ok(mlx_zeros(&p[i], shape, 4, mlx_array_dtype(p[i]), stream));
        }
        break;
    case 11: /* 2^32 elements, none of them in memory */
        for (int i = 0; i < 5; i++) {
            int shape[4] = {1 << 12, 1 << 12, 1 << 1, mlx_array_dim(p[i], 3)};
            mlx_array zero = mlx_array_new();
            check_ok(mlx_zeros(&zero, (int[]){1, 1, 1, shape[3]}, 4,
                               mlx_array_dtype(p[i]), stream));
            check_ok(mlx_broadcast_to(&p[i], zero, shape, 4, stream));
            mlx_array_free(zero);
        }
        break;
    case 12: /* the width of other codes */
        check_ok(mlx_repeat_axis(&p[3], p[3], 2, 3, stream));
        break;
    case 13: /* zero points of other groups than scales */
        check_ok(mlx_slice(&p[2], p[2], (int[]){0, 0, 0, 0}, 4,
                           (int[]){1, 2, 6, 2}, 4, (int[]){1, 1, 1, 1}, 4,
                           stream));
        break;
    case 14: /* groups of 128 */
        check_ok(mlx_slice(&p[4], p[4], (int[]){0, 0, 0, 0}, 4,
                           (int[]){1, 2, 6, 1}, 4, (int[]){1, 1, 1, 1}, 4,
                           stream));
        break;
    case 15: /* groups that don't divide */
        check_ok(mlx_slice(&p[4], p[4], (int[]){0, 0, 0, 0}, 4,
                           (int[]){1, 2, 6, 3}, 4, (int[]){1, 1, 1, 1}, 4,
                           stream));
        break;
    default:
        check_ok(mlx_astype(&p[what - 15], p[what - 15], MLX_INT32, stream));
    }
}

static void test_each_condition_declines_alone(void **state)
{
    (void)state;
    for (int what = 0; what < 18; what++) {
        /* Plane 3 is no metadata. */
        record r = record_of((int[]){1, 2, 6, 128}, 8, 3, 1);
        mlx_array k = mlx_array_new(), v = mlx_array_new();
        for (int p = 0; p < PATHS; p++) {
            assert_true(try_path((path)p, &k, &v, &r));
            tq_free((mlx_array[]){k, v}, 2);
            k = v = mlx_array_empty;
        }
        spoil(&r, what);
        size_t before = tq_active();
        heard.count = 0;
        for (int p = 0; p < PATHS; p++) {
            if (try_path((path)p, &k, &v, &r))
                fail_msg("condition %d is accepted", what);
            assert_null(k.ctx);
            assert_null(v.ctx);
        }
        assert_int_equal(heard.count, 0);
        assert_int_equal(tq_active(), before);
        record_free(&r);
    }
    /* The last metadata plane, and signs, which only one function has. */
    record r = record_of((int[]){1, 2, 6, 128}, 8, 3, 1);
    mlx_array k = mlx_array_new(), v = mlx_array_new();
    check_ok(quern_tq_signs(&r.signs, 64));
    assert_false(try_path(FUSED, &k, &v, &r));
    check_ok(mlx_astype(&r.planes[4], r.planes[4], MLX_INT32, stream));
    assert_false(try_path(EAGER, &k, &v, &r));
    /* Another number of planes. */
    mlx_vector_array four = mlx_vector_array_new_data(r.planes, 4);
    bool accepted = true;
    check_ok(quern_tq_try_joint_decode(&accepted, &k, &v, four, r.centroids, 8,
                                       3, 128, true, stream));
    assert_false(accepted);
    mlx_vector_array_free(four);
    record_free(&r);
}

static void test_another_library_declines_everything(void **state)
{
    (void)state;
    record r = record_of((int[]){1, 2, 6, 128}, 8, 3, 1);
    mlx_array k = mlx_array_new(), v = mlx_array_new();
    mlx_vector_array list = mlx_vector_array_new_data(r.planes, 5);
    bool accepted = true;
    check_ok(fallback_tq_try_joint_decode(&accepted, &k, &v, list, r.centroids,
                                          8, 3, 128, true, stream));
    assert_false(accepted);
    accepted = true;
    check_ok(fallback_tq_try_fused_eager(&accepted, &k, &v, list, r.centroids,
                                         r.signs, 8, 3, 128, stream));
    assert_false(accepted);
    assert_null(k.ctx);
    mlx_vector_array_free(list);
    record_free(&r);
}

/* ---- recordings ---- */

typedef struct trace {
    int calls, accepted;
    bool defer;
} trace;

/* What a cache does: in one pass where that is accepted, else by planes. */
static int decode_either(mlx_vector_array *res, const mlx_vector_array in,
                         void *payload)
{
    trace *t = payload;
    mlx_array planes[5], k = mlx_array_new(), v = mlx_array_new();
    mlx_array table = mlx_array_new();
    bool accepted = false;
    for (size_t i = 0; i < 5; i++) {
        planes[i] = mlx_array_new();
        mlx_vector_array_get(&planes[i], in, i);
    }
    t->calls++;
    int failed = quern_tq_centroids(&table, 3) ||
                 quern_tq_try_joint_decode(&accepted, &k, &v, in, table, 8, 3,
                                           64, true, stream);
    t->accepted += accepted;
    if (!failed && !accepted)
        failed = separate(&k, &v, planes, 8, 3, 64, t->defer);
    if (!failed)
        failed = mlx_vector_array_set_data(res, (mlx_array[]){k, v}, 2);
    tq_free(planes, 5);
    tq_free((mlx_array[]){k, v, table}, 3);
    return failed;
}

static void keep(void *payload)
{
    (void)payload;
}

static void test_declines_in_shapeless_recordings_and_recovers(void **state)
{
    (void)state;
    static const int lengths[] = {5, 17, 5};
    for (int defer = 0; defer < 2; defer++) {
        trace t = {.defer = defer};
        mlx_closure fun = mlx_closure_new_func_payload(decode_either, &t, keep);
        mlx_closure compiled = mlx_closure_new();
        check_ok(mlx_compile(&compiled, fun, true));
        foreach (i, lengths) {
            record r = record_of((int[]){1, 2, lengths[i], 64}, 8, 3, i);
            mlx_vector_array in = mlx_vector_array_new_data(r.planes, 5);
            mlx_vector_array out = mlx_vector_array_new();
            mlx_array k = mlx_array_new(), v = mlx_array_new();
            mlx_array found[2] = {mlx_array_new(), mlx_array_new()};
            check_ok(mlx_closure_apply(&out, compiled, in));
            check_ok(mlx_vector_array_get(&found[0], out, 0));
            check_ok(mlx_vector_array_get(&found[1], out, 1));
            check_ok(separate(&k, &v, r.planes, 8, 3, 64, defer));
            check_same(found[0], k);
            check_same(found[1], v);
            /* Outside of the recording it is accepted as ever. */
            assert_true(try_path(DEFERRED, &k, &v, &r));
            tq_free(found, 2);
            tq_free((mlx_array[]){k, v}, 2);
            mlx_vector_array_free(in);
            mlx_vector_array_free(out);
            record_free(&r);
        }
        assert_int_equal(t.calls, 1);
        assert_int_equal(t.accepted, 0);
        assert_int_equal(quern_closure_trace_count(compiled), 1);
        mlx_closure_free(compiled);
        mlx_closure_free(fun);
    }
    /* A recording with shapes takes it. */
    trace t = {.defer = true};
    mlx_closure fun = mlx_closure_new_func_payload(decode_either, &t, keep);
    mlx_closure compiled = mlx_closure_new();
    check_ok(mlx_compile(&compiled, fun, false));
    record r = record_of((int[]){1, 2, 5, 64}, 8, 3, 9);
    mlx_vector_array in = mlx_vector_array_new_data(r.planes, 5);
    mlx_vector_array out = mlx_vector_array_new();
    check_ok(mlx_closure_apply(&out, compiled, in));
    check_ok(mlx_eval(out));
    assert_int_equal(t.accepted, 1);
    mlx_vector_array_free(in);
    mlx_vector_array_free(out);
    mlx_closure_free(compiled);
    mlx_closure_free(fun);
    record_free(&r);
}

/* ---- errors ---- */

static void test_errors_name_what_is_wrong(void **state)
{
    (void)state;
    mlx_array a = mlx_array_new(), b = mlx_array_new(), c = mlx_array_new();
    mlx_array x = tq_random((int[]){1, 1, 2, 64}, 1, true, MLX_FLOAT32);
    mlx_array odd = tq_random((int[]){1, 1, 2, 96}, 1, true, MLX_FLOAT32);
    mlx_array codes = mlx_array_new(), scale = mlx_array_new();
    mlx_vector_array list = mlx_vector_array_new();
    check_ok(mlx_zeros(&codes, (int[]){2, 9}, 2, MLX_UINT8, stream));
    check_ok(mlx_zeros(&scale, (int[]){2, 2}, 2, MLX_FLOAT16, stream));
    check_fails(quern_tq_rotate(&a, odd, stream), "head_dim must be 64, 128");
    check_heard("96");
    check_fails(quern_tq_unrotate(&a, odd, stream), "[tq_unrotate] head_dim");
    check_fails(quern_tq_rotate(&a, codes, stream), "float32");
    check_fails(quern_tq_signs(&a, 96), "96");
    check_fails(quern_tq_centroids(&a, 7), "value_bits");
    check_fails(quern_tq_pack(&a, codes, 3, stream), "9 codes of 3 bits");
    check_fails(quern_tq_pack(&a, codes, 6, stream), "bits must be 2, 3, 4");
    check_fails(quern_tq_unpack(&a, codes, 3, 64, stream),
                "9 bytes do not hold 64 codes of 3 bits");
    check_fails(quern_tq_unpack(&a, codes, 3, 9, stream), "9 codes of 3");
    check_fails(quern_tq_decode_keys(&a, codes, scale, scale, stream),
                "head_dim 9 is not a multiple of its 2 groups");
    /* The first failure is the one that is told. */
    check_fails(quern_tq_decode_values(&a, x, scale, 3, false, stream),
                "[take]");
    check_fails(quern_tq_decode_values(&a, codes, scale, 6, true, stream),
                "value_bits");
    check_fails(quern_tq_decode_values(&a, codes, scale, 3, true, stream),
                "head_dim 9");
    check_fails(quern_tq_encode_keys(&a, &b, &c, x, 3, 32, true, stream),
                "key_bits must be 2, 4, 5 or 8, found 3");
    check_fails(quern_tq_encode_keys(&a, &b, &c, x, 8, 48, true, stream),
                "head_dim 64 is not a multiple of group_size 48");
    check_fails(quern_tq_encode_keys(&a, &b, &c, x, 8, 16, true, stream),
                "group_size must be 32 or 64, found 16");
    check_fails(quern_tq_encode_keys(&a, &b, &c, odd, 8, 32, true, stream),
                "head_dim must be 64, 128, 256 or 512, found 96");
    check_fails(quern_tq_encode_values(&a, &b, x, 6, 32, stream),
                "[tq_encode_values] value_bits");
    check_fails(quern_tq_encode_values(&a, &b, codes, 3, 32, stream), "uint8");
    check_fails(quern_tq_encode(&list, x, odd, 8, 3, true, stream),
                "[1, 1, 2, 64] and [1, 1, 2, 96]");
    check_fails(quern_tq_encode(&list, codes, codes, 8, 3, true, stream),
                "[2, 9]");
    check_fails(quern_tq_encode(&list, x, x, 7, 3, true, stream), "key_bits");
    check_fails(quern_tq_encode(&list, x, x, 8, 7, true, stream), "value_bits");
    /* The other library's encoder says the same. */
    check_fails(fallback_tq_encode_keys(&a, &b, &c, x, 3, 32, true, stream),
                "key_bits must be 2, 4, 5 or 8, found 3");
    check_fails(fallback_tq_encode_values(&a, &b, odd, 3, 32, stream),
                "head_dim must be 64");
    check_fails(fallback_tq_encode(&list, x, odd, 8, 3, true, stream),
                "[1, 1, 2, 64] and [1, 1, 2, 96]");
    assert_null(a.ctx);
    assert_int_equal(mlx_vector_array_size(list), 0);
    mlx_vector_array_free(list);
    tq_free((mlx_array[]){x, odd, codes, scale}, 4);
}

/* ---- the encoder of another library ---- */

static void check_fallback(mlx_array x, int group, bool guard)
{
    foreach (i, key_bits) {
        mlx_array a[3], b[3];
        for (int j = 0; j < 3; j++)
            a[j] = b[j] = mlx_array_new();
        check_ok(quern_tq_encode_keys(&a[0], &a[1], &a[2], x, key_bits[i],
                                      group, guard, stream));
        check_ok(fallback_tq_encode_keys(&b[0], &b[1], &b[2], x, key_bits[i],
                                         group, guard, stream));
        for (int j = 0; j < 3; j++)
            check_same(a[j], b[j]);
        tq_free(a, 3);
        tq_free(b, 3);
    }
    foreach (i, value_bits) {
        mlx_array a[2], b[2];
        for (int j = 0; j < 2; j++)
            a[j] = b[j] = mlx_array_new();
        check_ok(quern_tq_encode_values(&a[0], &a[1], x, value_bits[i], group,
                                        stream));
        check_ok(fallback_tq_encode_values(&b[0], &b[1], x, value_bits[i],
                                           group, stream));
        for (int j = 0; j < 2; j++)
            check_same(a[j], b[j]);
        tq_free(a, 2);
        tq_free(b, 2);
    }
}

static void test_fallback_encodes_the_same(void **state)
{
    (void)state;
    for (int d = 64; d <= 512; d *= 2)
        for (int turn = 0; turn < 4; turn++) {
            mlx_array x = tq_random((int[]){1, 2, 7, d}, (uint64_t)(d + turn),
                                    false, floats[turn % 3]);
            check_fallback(x, turn & 1 ? 64 : 32, turn & 2);
            mlx_array_free(x);
        }
    mlx_array x = tq_random((int[]){1, 2, 14, 64}, 1, false, MLX_FLOAT32);
    mlx_vector_array a = mlx_vector_array_new(), b = mlx_vector_array_new();
    mlx_array p[5], q[5];
    check_ok(quern_tq_encode(&a, x, x, 5, 3, true, stream));
    check_ok(fallback_tq_encode(&b, x, x, 5, 3, true, stream));
    tq_unlist(p, a);
    tq_unlist(q, b);
    for (int i = 0; i < 5; i++)
        check_same(p[i], q[i]);
    tq_free(p, 5);
    tq_free(q, 5);
    mlx_vector_array_free(a);
    mlx_vector_array_free(b);
    mlx_array_free(x);
}

/* Inputs of any layout. */
static void test_strided_inputs_encode_alike(void **state)
{
    (void)state;
    foreach (i, floats) {
        mlx_array x = tq_random((int[]){2, 3, 7, 64}, i, false, floats[i]);
        mlx_array y = scattered(x), p[5], q[5];
        mlx_vector_array a = mlx_vector_array_new(), b = mlx_vector_array_new();
        check_ok(quern_tq_encode(&a, x, x, 8, 3, true, stream));
        check_ok(quern_tq_encode(&b, y, y, 8, 3, true, stream));
        tq_unlist(p, a);
        tq_unlist(q, b);
        for (int j = 0; j < 5; j++)
            check_same(p[j], q[j]);
        tq_free(p, 5);
        tq_free(q, 5);
        tq_free((mlx_array[]){x, y}, 2);
        mlx_vector_array_free(a);
        mlx_vector_array_free(b);
    }
}

/* Any number of axes, and of rows. */
static void test_inputs_of_any_rank_encode_alike(void **state)
{
    (void)state;
    static const int shapes[][5] = {
        {64}, {6, 64}, {2, 3, 64}, {1, 2, 3, 1, 64}, {0, 64}};
    static const size_t ranks[] = {1, 2, 3, 5, 2};
    mlx_array x = tq_random((int[]){1, 1, 6, 64}, 3, false, MLX_FLOAT32);
    for (int i = 0; i < 5; i++) {
        mlx_array a[5], b[5], y = mlx_array_new();
        for (int j = 0; j < 5; j++)
            a[j] = b[j] = mlx_array_new();
        int start[4] = {0}, step[4] = {1, 1, 1, 1};
        int stop[4] = {1, 1, ranks[i] == 1 ? 1 : shapes[i][0] ? 6 : 0, 64};
        check_ok(mlx_slice(&y, x, start, 4, stop, 4, step, 4, stream));
        check_ok(
            quern_tq_encode_keys(&a[0], &a[1], &a[2], y, 4, 32, true, stream));
        check_ok(quern_tq_encode_values(&a[3], &a[4], y, 3, 32, stream));
        check_ok(mlx_reshape(&y, y, shapes[i], ranks[i], stream));
        check_ok(
            quern_tq_encode_keys(&b[0], &b[1], &b[2], y, 4, 32, true, stream));
        check_ok(quern_tq_encode_values(&b[3], &b[4], y, 3, 32, stream));
        for (int j = 0; j < 5; j++) {
            assert_int_equal(mlx_array_ndim(b[j]), ranks[i]);
            check_ok(
                mlx_reshape(&b[j], b[j], mlx_array_shape(a[j]), 4, stream));
            check_same(a[j], b[j]);
        }
        tq_free(a, 5);
        tq_free(b, 5);
        mlx_array_free(y);
    }
    mlx_array_free(x);
}

/* ---- tables of other threads ---- */

typedef struct tables {
    mlx_array centroids, signs, planes[5], k, v;
    int failed;
} tables;

static void *make_tables(void *arg)
{
    tables *t = arg;
    t->failed =
        quern_tq_centroids(&t->centroids, 3) || quern_tq_signs(&t->signs, 64);
    return NULL;
}

/* On a stream of the thread's own. */
static void *use_tables(void *arg)
{
    tables *t = arg;
    mlx_device cpu = mlx_device_new_type(MLX_CPU, 0);
    mlx_stream own = mlx_stream_new_device(cpu);
    mlx_vector_array list = mlx_vector_array_new_data(t->planes, 5);
    bool accepted = false;
    t->failed =
        quern_tq_try_fused_eager(&accepted, &t->k, &t->v, list, t->centroids,
                                 t->signs, 8, 3, 64, own) ||
        !accepted || mlx_array_eval(t->k) || mlx_array_eval(t->v);
    mlx_vector_array_free(list);
    mlx_stream_free(own);
    mlx_device_free(cpu);
    return NULL;
}

static void test_tables_serve_every_thread(void **state)
{
    (void)state;
    pthread_t maker, users[2];
    record r = record_of((int[]){1, 2, 40, 64}, 8, 3, 4);
    tables made = {.failed = 0}, use[2];
    mlx_array k = mlx_array_new(), v = mlx_array_new();
    assert_true(try_path(FUSED, &k, &v, &r));
    assert_int_equal(pthread_create(&maker, NULL, make_tables, &made), 0);
    assert_int_equal(pthread_join(maker, NULL), 0);
    assert_int_equal(made.failed, 0);
    for (int i = 0; i < 2; i++) {
        use[i] = made;
        memcpy(use[i].planes, r.planes, sizeof r.planes);
        assert_int_equal(pthread_create(&users[i], NULL, use_tables, &use[i]),
                         0);
    }
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pthread_join(users[i], NULL), 0);
        assert_int_equal(use[i].failed, 0);
        check_same(use[i].k, k);
        check_same(use[i].v, v);
        tq_free((mlx_array[]){use[i].k, use[i].v}, 2);
    }
    tq_free((mlx_array[]){k, v, made.centroids, made.signs}, 4);
    record_free(&r);
}

/* ---- what calls leave behind ---- */

static void every_call(mlx_array k, mlx_array v)
{
    mlx_vector_array list = mlx_vector_array_new();
    record r = {.kb = 8, .vb = 3, .d = 64};
    mlx_array a = mlx_array_new(), b = mlx_array_new();
    r.centroids = mlx_array_new();
    r.signs = mlx_array_new();
    check_ok(quern_tq_encode(&list, k, v, 8, 3, true, stream));
    tq_unlist(r.planes, list);
    check_ok(quern_tq_centroids(&r.centroids, 3));
    check_ok(quern_tq_signs(&r.signs, 64));
    for (int p = 0; p < PATHS; p++) {
        assert_true(try_path((path)p, &a, &b, &r));
        check_ok(mlx_array_eval(a));
        check_ok(mlx_array_eval(b));
    }
    check_ok(separate(&a, &b, r.planes, 8, 3, 64, false));
    check_ok(quern_tq_rotate(&b, v, stream));
    check_ok(quern_tq_pack(&a, r.planes[3], 4, stream));
    check_ok(mlx_array_eval(a));
    check_ok(mlx_array_eval(b));
    heard.count = 0;
    assert_int_equal(quern_tq_encode(&list, k, v, 3, 3, true, stream), 1);
    tq_free((mlx_array[]){a, b}, 2);
    mlx_vector_array_free(list);
    record_free(&r);
}

static void test_inputs_stay_and_nothing_is_left(void **state)
{
    (void)state;
    int shape[] = {1, 2, 33, 64};
    mlx_array k = tq_random(shape, 1, false, MLX_BFLOAT16);
    mlx_array v = tq_random(shape, 2, false, MLX_FLOAT32);
    mlx_array k_before = tq_random(shape, 1, false, MLX_BFLOAT16);
    mlx_array v_before = tq_random(shape, 2, false, MLX_FLOAT32);
    every_call(k, v);
    size_t before = tq_active();
    for (int i = 0; i < 100; i++)
        every_call(k, v);
    assert_int_equal(tq_active(), before);
    check_same(k, k_before);
    check_same(v, v_before);
    tq_free((mlx_array[]){k, v, k_before, v_before}, 4);
}

/* ---- accuracy ---- */

static double relative_error(mlx_array x, mlx_array decoded)
{
    mlx_array p, q, wide = mlx_array_new();
    double error = 0, power = 0;
    check_ok(mlx_astype(&wide, decoded, MLX_FLOAT32, stream));
    const uint8_t *a = tq_bytes(&p, x), *b = tq_bytes(&q, wide);
    for (size_t i = 0; i < mlx_array_size(x); i++) {
        float from, to;
        memcpy(&from, a + 4 * i, 4);
        memcpy(&to, b + 4 * i, 4);
        error += ((double)to - (double)from) * ((double)to - (double)from);
        power += (double)from * (double)from;
    }
    tq_free((mlx_array[]){p, q, wide}, 3);
    return error / power;
}

static void check_error_rate(const char *what, int bits, int group,
                             double expected, double found)
{
    /* The table is of float32; the last rounding adds this. */
    found -= 2.8e-6;
    if (fabs(found / expected - 1) > 0.05)
        fail_msg("%s of %d bits, groups of %d: expected %.3g, found %.3g", what,
                 bits, group, expected, found);
}

static void test_errors_are_those_of_the_table(void **state)
{
    (void)state;
    static const double keys[4][2] = {{1.65e-1, 2.09e-1},
                                      {6.52e-3, 8.29e-3},
                                      {1.53e-3, 1.94e-3},
                                      {2.28e-5, 2.90e-5}};
    static const double values[5][2] = {{1.117e-1, 1.146e-1},
                                        {3.25e-2, 3.34e-2},
                                        {8.95e-3, 9.18e-3},
                                        {2.38e-3, 2.43e-3},
                                        {9.95e-5, 9.96e-5}};
    mlx_array x = mlx_array_new(), none = mlx_array_empty;
    check_ok(mlx_random_seed(11));
    check_ok(mlx_random_normal(&x, (int[]){1, 8, 1024, 128}, 4, MLX_FLOAT32, 0,
                               1, none, stream));
    check_ok(mlx_array_eval(x));
    for (int wide = 0; wide < 2; wide++) {
        int group = wide ? 64 : 32;
        mlx_array a[4];
        for (int i = 0; i < 4; i++)
            a[i] = mlx_array_new();
        foreach (i, key_bits) {
            check_ok(quern_tq_encode_keys(&a[0], &a[1], &a[2], x, key_bits[i],
                                          group, true, stream));
            check_ok(quern_tq_decode_keys(&a[3], a[0], a[1], a[2], stream));
            check_error_rate("keys", key_bits[i], group, keys[i][wide],
                             relative_error(x, a[3]));
        }
        foreach (i, value_bits) {
            check_ok(quern_tq_encode_values(&a[0], &a[1], x, value_bits[i],
                                            group, stream));
            check_ok(quern_tq_decode_values(&a[3], a[0], a[1], value_bits[i],
                                            false, stream));
            check_error_rate("values", value_bits[i], group, values[i][wide],
                             relative_error(x, a[3]));
        }
        tq_free(a, 4);
    }
    mlx_array_free(x);
}

/* sum over w_i of rotated values, turned back, against that of values. */
static void test_attention_may_turn_its_output_instead(void **state)
{
    (void)state;
    enum { TOKENS = 300 };
    for (int d = 64; d <= 512; d *= 2) {
        record r = record_of((int[]){1, 2, TOKENS, d}, 8, 3, (uint64_t)d);
        mlx_array q = tq_random((int[]){1, 2, 4, d}, 77, true, MLX_FLOAT32);
        mlx_array k[2], v[2], out[2], mask = mlx_array_empty, p, turned;
        float most = 0;
        for (int defer = 0; defer < 2; defer++) {
            k[defer] = v[defer] = out[defer] = mlx_array_new();
            assert_true(
                try_path(defer ? DEFERRED : FUSED, &k[defer], &v[defer], &r));
            check_ok(mlx_astype(&k[defer], k[defer], MLX_FLOAT32, stream));
            check_ok(mlx_astype(&v[defer], v[defer], MLX_FLOAT32, stream));
            check_ok(mlx_fast_scaled_dot_product_attention(
                &out[defer], q, k[defer], v[defer], 1 / sqrtf((float)d), "",
                mask, mask, false, stream));
        }
        check_ok(quern_tq_unrotate(&out[1], out[1], stream));
        const uint8_t *a = tq_bytes(&p, out[0]), *b = tq_bytes(&turned, out[1]);
        for (size_t i = 0; i < mlx_array_size(p); i++) {
            float x, y;
            memcpy(&x, a + 4 * i, 4);
            memcpy(&y, b + 4 * i, 4);
            most = fmaxf(most, fabsf(x - y));
        }
        assert_true(most > 0 && most < 2e-3f);
        tq_free(k, 2);
        tq_free(v, 2);
        tq_free(out, 2);
        tq_free((mlx_array[]){q, p, turned}, 3);
        record_free(&r);
    }
}

/* ---- programs written for Metal ---- */

typedef struct metal {
    mlx_dtype key_type, value_type;
    int d, kb, vb, kg, vg, out_width;
} metal;

static mlx_vector_string names(const char *const *list, size_t n)
{
    return mlx_vector_string_new_data((const char **)(uintptr_t)list, n);
}

/* The two names with what a program passes; 1 for an error of the evaluation.
 */
static int launch(mlx_array out[2], const record *r, bool inverse,
                  const metal *m)
{
    static const char *const in[] = {"kp", "ks",        "kz",   "vp",
                                     "vs", "centroids", "signs"};
    static const char *const made[] = {"outK", "outV"};
    size_t n = inverse ? 7 : 6;
    mlx_vector_string inputs = names(in, n), outputs = names(made, 2);
    mlx_fast_metal_kernel kernel = mlx_fast_metal_kernel_new(
        inverse ? "turboquant_kv_inverse256" : "turboquant_kv_decode", inputs,
        outputs, "", "", false, false);
    mlx_fast_metal_kernel_config c = mlx_fast_metal_kernel_config_new();
    int shape[4];
    memcpy(shape, mlx_array_shape(r->planes[0]), sizeof shape);
    shape[3] = m->out_width;
    struct {
        const char *name;
        int value;
    } ints_of[] = {{"D", m->d},
                   {"KBITS", m->kb},
                   {"VBITS", m->vb},
                   {"KG", m->kg},
                   {"VG", m->vg}};
    for (int i = 0; !inverse && i < 5; i++)
        check_ok(mlx_fast_metal_kernel_config_add_template_arg_int(
            c, ints_of[i].name, ints_of[i].value));
    check_ok(mlx_fast_metal_kernel_config_add_template_arg_dtype(c, "OutK",
                                                                 m->key_type));
    check_ok(mlx_fast_metal_kernel_config_add_template_arg_dtype(
        c, "OutV", m->value_type));
    check_ok(
        mlx_fast_metal_kernel_config_add_output_arg(c, shape, 4, m->key_type));
    check_ok(mlx_fast_metal_kernel_config_add_output_arg(c, shape, 4,
                                                         m->value_type));
    check_ok(mlx_fast_metal_kernel_config_set_grid(c, 16, 16, 4));
    check_ok(mlx_fast_metal_kernel_config_set_thread_group(c, 16, 16, 1));
    mlx_array all[7];
    memcpy(all, r->planes, sizeof r->planes);
    all[5] = r->centroids;
    all[6] = r->signs;
    mlx_vector_array list = mlx_vector_array_new_data(all, n);
    mlx_vector_array found = mlx_vector_array_new();
    check_ok(mlx_fast_metal_kernel_apply(&found, kernel, list, c, stream));
    int failed = mlx_eval(found);
    for (size_t i = 0; i < 2; i++) {
        out[i] = mlx_array_new();
        mlx_vector_array_get(&out[i], found, i);
    }
    mlx_vector_array_free(found);
    mlx_vector_array_free(list);
    mlx_fast_metal_kernel_free(kernel);
    mlx_fast_metal_kernel_config_free(c);
    mlx_vector_string_free(inputs);
    mlx_vector_string_free(outputs);
    return failed;
}

static void test_metal_names_are_served(void **state)
{
    (void)state;
    static const path paths[] = {EAGER, DEFERRED, FUSED};
    record r = record_of((int[]){1, 4, 19, 256}, 8, 3, 5);
    foreach (i, paths) {
        metal m = {MLX_BFLOAT16, MLX_BFLOAT16, 256, 8, 3, 32, 32, 256};
        if (paths[i] == EAGER)
            m.value_type = MLX_FLOAT32;
        mlx_array found[2], k = mlx_array_new(), v = mlx_array_new();
        check_ok(launch(found, &r, paths[i] == FUSED, &m));
        assert_true(try_path(paths[i], &k, &v, &r));
        check_same(found[0], k);
        check_same(found[1], v);
        tq_free(found, 2);
        tq_free((mlx_array[]){k, v}, 2);
    }
    record_free(&r);
}

/* Each with one thing that does not fit. */
static void test_metal_names_check_before_they_read(void **state)
{
    (void)state;
    const metal good = {MLX_BFLOAT16, MLX_BFLOAT16, 256, 8, 3, 32, 32, 256};
    for (int inverse = 0; inverse < 2; inverse++)
        for (int what = 0; what < 15; what++) {
            record r = record_of((int[]){1, 4, 3, 256}, 8, 3, 5);
            metal m = good;
            mlx_array found[2], *p = r.planes;
            bool forms = what < 6;
            if (forms && inverse) {
                record_free(&r);
                continue;
            }
            switch (what) {
            case 0:
                m.d = 512;
                break;
            case 1:
                m.d = 100;
                break;
            case 2:
                m.kb = 4;
                break;
            case 3:
                m.vb = 8;
                break;
            case 4:
                m.kg = 64;
                break;
            case 5:
                m.vg = 0;
                break;
            case 6:
                m.key_type = MLX_FLOAT32;
                break;
            case 7:
                m.value_type = MLX_FLOAT16;
                break;
            case 8:
                m.out_width = 255;
                break;
            case 9:
                check_ok(mlx_astype(&p[0], p[0], MLX_INT32, stream));
                break;
            case 10:
                check_ok(mlx_astype(&p[4], p[4], MLX_UINT8, stream));
                break;
            case 11: /* fewer tokens of values than of keys */
                check_ok(mlx_slice(&p[3], p[3], (int[]){0, 0, 0, 0}, 4,
                                   (int[]){1, 4, 2, 96}, 4, (int[]){1, 1, 1, 1},
                                   4, stream));
                break;
            case 12:
                check_ok(quern_tq_centroids(&r.centroids, 2));
                break;
            case 13:
                check_ok(mlx_astype(&r.centroids, r.centroids, MLX_BFLOAT16,
                                    stream));
                break;
            default: /* fewer groups of zero points */
                check_ok(mlx_slice(&p[2], p[2], (int[]){0, 0, 0, 0}, 4,
                                   (int[]){1, 4, 3, 7}, 4, (int[]){1, 1, 1, 1},
                                   4, stream));
            }
            heard.count = 0;
            if (!launch(found, &r, inverse, &m))
                fail_msg("launch %d, %d is taken", inverse, what);
            assert_non_null(strstr(heard.text, "turboquant_kv_"));
            tq_free(found, 2);
            record_free(&r);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_layout_decodes_alike),
        cmocka_unit_test(test_tables_may_be_strided),
        cmocka_unit_test(test_every_metadata_decodes_alike),
        cmocka_unit_test(test_threads_change_nothing),
        cmocka_unit_test(test_each_condition_declines_alone),
        cmocka_unit_test(test_another_library_declines_everything),
        cmocka_unit_test(test_declines_in_shapeless_recordings_and_recovers),
        cmocka_unit_test(test_errors_name_what_is_wrong),
        cmocka_unit_test(test_fallback_encodes_the_same),
        cmocka_unit_test(test_strided_inputs_encode_alike),
        cmocka_unit_test(test_inputs_of_any_rank_encode_alike),
        cmocka_unit_test(test_tables_serve_every_thread),
        cmocka_unit_test(test_inputs_stay_and_nothing_is_left),
        cmocka_unit_test(test_errors_are_those_of_the_table),
        cmocka_unit_test(test_attention_may_turn_its_output_instead),
        cmocka_unit_test(test_metal_names_are_served),
        cmocka_unit_test(test_metal_names_check_before_they_read),
    };
    return cmocka_run_group_tests(tests, tq_setup, tq_teardown);
}
