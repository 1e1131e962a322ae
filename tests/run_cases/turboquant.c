/* turboquant.c: goldens of the packed KV format, through quern/ext.h.
 *
 * One file is one case. */
#include "case.h"

#include "base/f16.h"
#include "base/turboquant.h"
#include "support/qn_sha256.h"

#include <quern/ext.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The first n of axis 2. */
static mlx_array window(mlx_array x, int n)
{
    mlx_array y = mlx_array_new();
    int start[4] = {0}, stop[4], step[4] = {1, 1, 1, 1};
    for (int i = 0; i < 4; i++)
        stop[i] = i == 2 ? n : mlx_array_dim(x, i);
    mlx_slice(&y, x, start, 4, stop, 4, step, 4, calls_stream());
    mlx_array_free(x);
    return y;
}

/* A name with what case it is of, for messages; valid until the next call but
 * three. */
static const char *label(const char *what, uint32_t index)
{
    static char text[4][96];
    static int next;
    next = (next + 1) % 4;
    snprintf(text[next], sizeof text[next], "case %u, %s", index, what);
    return text[next];
}

/* A call that must work. */
static void must(int failed, const char *what)
{
    if (failed)
        case_fail("%s: %s", what, calls_error() ? calls_error() : "failed");
}

static int number(const qn_json *c, const char *key)
{
    return (int)case_int(c, key, 0);
}

/* ---- the files ---- */

static void check_words(const char *name, const qn_json *list,
                        const uint32_t *words, int count)
{
    if (!list || (int)list->count != count) {
        case_fail("%s: expected %d words", name, count);
        return;
    }
    for (int i = 0; i < count; i++) {
        qn_str text = {"", 0};
        char copy[16];
        qn_json_as_str(&list->items[i], &text);
        snprintf(copy, sizeof copy, "%.*s", (int)text.size, text.data);
        uint32_t wanted = (uint32_t)strtoul(copy, NULL, 16);
        if (wanted != words[i])
            case_fail("%s, word %d: expected 0x%08x, found 0x%08x", name, i,
                      (unsigned)wanted, (unsigned)words[i]);
    }
}

/* As the library hands them out. */
static void run_tables(const qn_json *root)
{
    for (int d = 64; d <= 512; d *= 2) {
        char key[8];
        uint32_t words[16] = {0};
        mlx_array signs = mlx_array_new(), held;
        snprintf(key, sizeof key, "%d", d);
        must(quern_tq_signs(&signs, d), "quern_tq_signs");
        const uint8_t *data = golden_bytes("signs", &held, signs);
        for (int i = 0; data && i < d; i++) {
            float sign;
            memcpy(&sign, data + 4 * i, 4);
            words[i / 32] |= (uint32_t)(sign == -1.0f) << (i % 32);
        }
        const qn_json *of = qn_json_get(qn_json_get(root, "signs"), key);
        check_words("signs", qn_json_get(of, "negative_mask_u32"), words,
                    d / 32);
        mlx_array_free(held);
        mlx_array_free(signs);
    }
    for (int bits = 2; bits <= 8; bits++) {
        char key[8];
        uint32_t words[256];
        snprintf(key, sizeof key, "%d", bits);
        const qn_json *of = qn_json_get(qn_json_get(root, "lloyd_max"), key);
        if (!of)
            continue;
        mlx_array table = mlx_array_new(), held;
        must(quern_tq_centroids(&table, bits), "quern_tq_centroids");
        const uint8_t *data = golden_bytes("centroids", &held, table);
        if (data) {
            memcpy(words, data, sizeof *words << bits);
            check_words("centroids", qn_json_get(of, "centroids_f32"), words,
                        1 << bits);
        }
        memcpy(words, qn_tq_boundaries(bits),
               sizeof *words * ((1u << bits) - 1));
        check_words("boundaries", qn_json_get(of, "boundaries_f32"), words,
                    (1 << bits) - 1);
        mlx_array_free(held);
        mlx_array_free(table);
    }
}

static void pack_case(const qn_json *c, uint32_t i)
{
    mlx_stream s = calls_stream();
    mlx_array codes = golden_array(c, "codes"),
              packed = golden_array(c, "packed");
    mlx_array a = mlx_array_new(), b = mlx_array_new();
    int bits = number(c, "bits"), d = mlx_array_dim(codes, -1);
    must(quern_tq_pack(&a, codes, bits, s), "quern_tq_pack");
    must(quern_tq_unpack(&b, packed, bits, d, s), "quern_tq_unpack");
    golden_check(label("packed", i), a, qn_json_get(c, "packed"));
    golden_check(label("unpacked", i), b, qn_json_get(c, "codes"));
    mlx_array_free(codes);
    mlx_array_free(packed);
}

static void rotation_case(const qn_json *c, uint32_t i)
{
    mlx_stream s = calls_stream();
    mlx_array x = golden_array(c, "input"), half = mlx_array_new();
    mlx_array there = mlx_array_new(), back = mlx_array_new();
    mlx_array out = mlx_array_new(), plain = mlx_array_new();
    mlx_optional_float norm = {qn_tq_norm(number(c, "dim")), true};
    must(mlx_hadamard_transform(&plain, x, norm, s), "mlx_hadamard_transform");
    must(quern_tq_rotate(&there, x, s), "quern_tq_rotate");
    must(quern_tq_unrotate(&back, x, s), "quern_tq_unrotate");
    must(mlx_astype(&half, x, MLX_BFLOAT16, s), "mlx_astype");
    must(quern_tq_unrotate(&out, half, s), "quern_tq_unrotate");
    golden_check(label("hadamard", i), plain, qn_json_get(c, "hadamard"));
    golden_check(label("rotate", i), there, qn_json_get(c, "rotate"));
    golden_check(label("unrotate", i), back, qn_json_get(c, "unrotate"));
    golden_check(label("unrotate_bf16", i), out,
                 qn_json_get(c, "unrotate_bf16"));
    mlx_array_free(x);
    mlx_array_free(half);
}

/* Keys of one group size; `codes` or `packed` is what the file has. */
static void key_case(const qn_json *c, uint32_t i, mlx_array in, int bits,
                     bool guard)
{
    mlx_stream s = calls_stream();
    mlx_array codes = mlx_array_new(), scale = mlx_array_new();
    mlx_array zero = mlx_array_new(), decoded = mlx_array_new();
    must(quern_tq_encode_keys(&codes, &scale, &zero, in, bits,
                              number(c, "group"), guard, s),
         "quern_tq_encode_keys");
    must(quern_tq_decode_keys(&decoded, codes, scale, zero, s),
         "quern_tq_decode_keys");
    const qn_json *packed = qn_json_get(c, "packed");
    if (packed)
        must(quern_tq_pack(&codes, codes, bits, s), "quern_tq_pack");
    golden_check(label("codes", i), codes,
                 packed ? packed : qn_json_get(c, "codes"));
    golden_check(label("scale", i), scale, qn_json_get(c, "scale"));
    golden_check(label("zero", i), zero, qn_json_get(c, "zero"));
    golden_check(label("decoded", i), decoded, qn_json_get(c, "decoded"));
}

static void value_case(const qn_json *c, uint32_t i, mlx_array in, int bits)
{
    mlx_stream s = calls_stream();
    mlx_array codes = mlx_array_new(), scale = mlx_array_new();
    mlx_array deferred = mlx_array_new(), eager = mlx_array_new();
    must(
        quern_tq_encode_values(&codes, &scale, in, bits, number(c, "group"), s),
        "quern_tq_encode_values");
    must(quern_tq_decode_values(&deferred, codes, scale, bits, true, s),
         "quern_tq_decode_values");
    must(quern_tq_decode_values(&eager, codes, scale, bits, false, s),
         "quern_tq_decode_values");
    must(quern_tq_pack(&codes, codes, bits, s), "quern_tq_pack");
    golden_check(label("packed", i), codes, qn_json_get(c, "packed"));
    golden_check(label("scale", i), scale, qn_json_get(c, "scale"));
    golden_check(label("deferred", i), deferred, qn_json_get(c, "deferred"));
    golden_check(label("eager", i), eager, qn_json_get(c, "eager"));
}

/* Five planes and how they were made. */
typedef struct record {
    mlx_vector_array planes;
    mlx_array centroids, signs;
    int key_bits, value_bits, d;
} record;

static record record_of(const qn_json *c, int key_bits, int value_bits, int d)
{
    static const char *const names[] = {"k_packed", "k_scale", "k_zero",
                                        "v_packed", "v_scale"};
    record r = {mlx_vector_array_new(),
                mlx_array_new(),
                mlx_array_new(),
                key_bits,
                value_bits,
                d};
    for (int i = 0; i < 5; i++) {
        mlx_array plane =
            window(golden_array(c, names[i]), number(c, "tokens"));
        mlx_vector_array_append_value(r.planes, plane);
        mlx_array_free(plane);
    }
    must(quern_tq_centroids(&r.centroids, value_bits), "quern_tq_centroids");
    must(quern_tq_signs(&r.signs, d), "quern_tq_signs");
    return r;
}

static void record_free(record *r)
{
    mlx_vector_array_free(r->planes);
    mlx_array_free(r->centroids);
    mlx_array_free(r->signs);
}

static void joint(mlx_array *k, mlx_array *v, const record *r, bool defer)
{
    bool accepted = false;
    *k = mlx_array_new();
    *v = mlx_array_new();
    must(quern_tq_try_joint_decode(&accepted, k, v, r->planes, r->centroids,
                                   r->key_bits, r->value_bits, r->d, defer,
                                   calls_stream()),
         "quern_tq_try_joint_decode");
    if (!accepted)
        case_fail("quern_tq_try_joint_decode declined");
}

static void fused(mlx_array *k, mlx_array *v, const record *r)
{
    bool accepted = false;
    *k = mlx_array_new();
    *v = mlx_array_new();
    must(quern_tq_try_fused_eager(&accepted, k, v, r->planes, r->centroids,
                                  r->signs, r->key_bits, r->value_bits, r->d,
                                  calls_stream()),
         "quern_tq_try_fused_eager");
    if (!accepted)
        case_fail("quern_tq_try_fused_eager declined");
}

/* Plane by plane: the path that takes what the others decline. */
static void separate(mlx_array *k, mlx_array *v, const record *r, bool defer)
{
    mlx_stream s = calls_stream();
    mlx_array p[5];
    *k = mlx_array_new();
    *v = mlx_array_new();
    for (size_t i = 0; i < 5; i++) {
        p[i] = mlx_array_new();
        mlx_vector_array_get(&p[i], r->planes, i);
    }
    must(quern_tq_unpack(&p[0], p[0], r->key_bits, r->d, s), "quern_tq_unpack");
    must(quern_tq_unpack(&p[3], p[3], r->value_bits, r->d, s),
         "quern_tq_unpack");
    must(quern_tq_decode_keys(k, p[0], p[1], p[2], s), "quern_tq_decode_keys");
    must(quern_tq_decode_values(v, p[3], p[4], r->value_bits, defer, s),
         "quern_tq_decode_values");
    for (int i = 0; i < 5; i++)
        mlx_array_free(p[i]);
}

static void joint_case(const qn_json *c, uint32_t i)
{
    record r = record_of(c, number(c, "key_bits"), number(c, "value_bits"),
                         number(c, "dim"));
    const qn_json *keys = qn_json_get(c, "out_k");
    const qn_json *rotated = qn_json_get(c, "out_v_rotated_f32");
    const qn_json *deferred = qn_json_get(c, "out_v_deferred");
    const qn_json *eager = qn_json_get(c, "out_v_eager");
    mlx_array k, v;
    joint(&k, &v, &r, false);
    golden_check(label("joint eager keys", i), k, keys);
    golden_check(label("joint eager values", i), v, rotated);
    joint(&k, &v, &r, true);
    golden_check(label("joint deferred keys", i), k, keys);
    golden_check(label("joint deferred values", i), v, deferred);
    fused(&k, &v, &r);
    golden_check(label("fused keys", i), k, keys);
    golden_check(label("fused values", i), v, eager);
    separate(&k, &v, &r, true);
    golden_check(label("separate keys", i), k, keys);
    golden_check(label("separate deferred values", i), v, deferred);
    separate(&k, &v, &r, false);
    mlx_array_free(k);
    golden_check(label("separate eager values", i), v, eager);
    record_free(&r);
}

static void inverse_case(const qn_json *c, uint32_t i)
{
    record r = record_of(c, 8, 3, 256);
    mlx_array k, v;
    fused(&k, &v, &r);
    golden_check(label("keys", i), k, qn_json_get(c, "out_k"));
    golden_check(label("values", i), v, qn_json_get(c, "out_v"));
    record_free(&r);
}

/* Planes by the rule that the file states: numbers of the flat index. */
static mlx_array by_rule(int capacity, int tokens, int width, int plane)
{
    size_t count = (size_t)4 * (size_t)capacity * (size_t)width;
    uint8_t *codes = malloc(2 * count);
    uint16_t half[29];
    static const size_t shift[] = {0, 0, 3, 0, 5};
    for (size_t i = 0; i < 29; i++)
        half[i] = qn_f32_to_f16((float)(i + 1) / 64);
    for (size_t i = 0; codes && i < count; i++) {
        if (plane == 0)
            codes[i] = (uint8_t)(i * 45 + 49 - 128);
        else if (plane == 3)
            codes[i] = (uint8_t)(i * 23 + 95);
        else
            memcpy(codes + 2 * i, &half[(i + shift[plane]) % 29], 2);
    }
    int shape[] = {1, 4, capacity, width};
    mlx_array whole = mlx_array_new_data(codes, shape, 4,
                                         plane == 0   ? MLX_INT8
                                         : plane == 3 ? MLX_UINT8
                                                      : MLX_FLOAT16);
    free(codes);
    return window(whole, tokens);
}

static void inverse_digest_case(const qn_json *c, uint32_t i)
{
    static const int widths[] = {256, 8, 8, 96, 8};
    record r = {
        mlx_vector_array_new(), mlx_array_new(), mlx_array_new(), 8, 3, 256};
    for (int plane = 0; plane < 5; plane++) {
        mlx_array x = by_rule(number(c, "capacity"), number(c, "tokens"),
                              widths[plane], plane);
        mlx_vector_array_append_value(r.planes, x);
        mlx_array_free(x);
    }
    mlx_array k, v;
    must(quern_tq_centroids(&r.centroids, 3), "quern_tq_centroids");
    must(quern_tq_signs(&r.signs, 256), "quern_tq_signs");
    fused(&k, &v, &r);
    golden_digest(label("keys", i), k, case_text(c, "sha256_k"));
    golden_digest(label("values", i), v, case_text(c, "sha256_v"));
    joint(&k, &v, &r, false);
    mlx_array_free(k);
    must(quern_tq_unrotate(&v, v, calls_stream()), "quern_tq_unrotate");
    must(mlx_astype(&v, v, MLX_BFLOAT16, calls_stream()), "mlx_astype");
    golden_digest(label("joint values, turned", i), v,
                  case_text(c, "sha256_v"));
    record_free(&r);
}

/* Bytes that arrays of one token and head really have. */
static void size_row(const qn_json *row, uint32_t i)
{
    int64_t n[6] = {0};
    mlx_stream s = calls_stream();
    for (uint32_t j = 0; j < 6 && j < row->count; j++)
        qn_json_as_int(&row->items[j], &n[j]);
    int d = (int)n[0], group = (int)n[3];
    mlx_array x = mlx_array_new(), p[5];
    for (int j = 0; j < 5; j++)
        p[j] = mlx_array_new();
    must(mlx_zeros(&x, (int[]){1, 1, 1, d}, 4, MLX_FLOAT32, s), "mlx_zeros");
    must(
        quern_tq_encode_keys(&p[0], &p[1], &p[2], x, (int)n[1], group, true, s),
        "quern_tq_encode_keys");
    must(quern_tq_encode_values(&p[3], &p[4], x, (int)n[2], group, s),
         "quern_tq_encode_values");
    must(quern_tq_pack(&p[0], p[0], (int)n[1], s), "quern_tq_pack");
    must(quern_tq_pack(&p[3], p[3], (int)n[2], s), "quern_tq_pack");
    int64_t bytes = 0;
    for (int j = 0; j < 5; j++) {
        bytes += (int64_t)mlx_array_nbytes(p[j]);
        mlx_array_free(p[j]);
    }
    if (bytes != n[4] || n[5] != 4 * n[0])
        case_fail("row %u: expected %lld bytes and %lld in halves, found %lld "
                  "and %lld",
                  i, (long long)n[4], (long long)n[5], (long long)bytes,
                  (long long)(4 * n[0]));
    mlx_array_free(x);
}

/* ---- life of a cache ---- */

static void check_count(const char *what, uint32_t step, int64_t expected,
                        int64_t found)
{
    if (expected != found)
        case_fail("step %u, %s: expected %lld, found %lld", step, what,
                  (long long)expected, (long long)found);
}

static void check_state(const quern_tq_cache *cache, const qn_json *digests,
                        uint32_t step)
{
    mlx_vector_array planes = mlx_vector_array_new();
    must(quern_tq_cache_state(&planes, cache, calls_stream()), "state");
    check_count("planes", step, digests->count, mlx_vector_array_size(planes));
    for (uint32_t i = 0; !case_failed() && i < digests->count; i++) {
        mlx_array plane = mlx_array_new();
        qn_str digest = {"", 0};
        qn_json_as_str(&digests->items[i], &digest);
        mlx_vector_array_get(&plane, planes, i);
        golden_digest(label("state", step), plane, digest);
    }
    mlx_vector_array_free(planes);
}

static void check_fetch(const quern_tq_cache *cache, const qn_json *digests,
                        bool defer, uint32_t step)
{
    mlx_array k = mlx_array_new(), v = mlx_array_new();
    bool rotated = !defer;
    must(quern_tq_cache_fetch(&k, &v, &rotated, cache, defer, calls_stream()),
         "fetch");
    check_count("rotated", step, defer, rotated);
    golden_digest(label("keys", step), k, case_text(digests, "k"));
    golden_digest(label(defer ? "deferred values" : "eager values", step), v,
                  case_text(digests, defer ? "v_deferred" : "v_eager"));
}

static void life_step(quern_tq_cache *cache, const qn_json *c, uint32_t i)
{
    quern_tq_info info;
    if (qn_str_is(case_text(c, "op"), "append")) {
        mlx_array k = golden_array(c, "k"), v = golden_array(c, "v");
        must(quern_tq_cache_append(cache, k, v, calls_stream()), "append");
        mlx_array_free(k);
        mlx_array_free(v);
    } else {
        int dropped = -1;
        must(quern_tq_cache_trim(&dropped, cache, number(c, "n")), "trim");
        check_count("dropped", i, number(c, "dropped"), dropped);
    }
    quern_tq_cache_info_get(&info, cache);
    check_count("offset", i, number(c, "offset"), info.offset);
    check_count("capacity", i, number(c, "capacity"), info.capacity);
    const qn_json *state = qn_json_get(c, "state_sha256");
    const qn_json *fetch = qn_json_get(c, "fetch_sha256");
    if (state)
        check_state(cache, state, i);
    if (fetch) {
        check_fetch(cache, fetch, false, i);
        check_fetch(cache, fetch, true, i);
    }
}

static quern_tq_cache *cache_of(const quern_tq_options *options)
{
    quern_tq_cache *cache = NULL;
    must(quern_tq_cache_new(&cache, options), "quern_tq_cache_new");
    return cache;
}

/* One script, with decoding in one pass or plane by plane. */
static void run_life(const qn_json *c, bool plane_by_plane)
{
    const qn_json *steps = qn_json_get(c, "steps");
    const qn_json *final_state = qn_json_get(c, "final_state");
    quern_tq_options options = {.key_bits = number(c, "key_bits"),
                                .value_bits = number(c, "value_bits"),
                                .plane_by_plane = plane_by_plane};
    quern_tq_cache *cache = cache_of(&options);
    quern_tq_info info;
    if (!cache)
        return;
    quern_tq_cache_info_get(&info, cache);
    if (!qn_str_is(case_text(c, "signature"), info.signature))
        case_fail("signature: found %s", info.signature);
    for (uint32_t i = 0; steps && i < steps->count; i++)
        life_step(cache, &steps->items[i], i);
    mlx_vector_array planes = mlx_vector_array_new();
    must(quern_tq_cache_state(&planes, cache, calls_stream()), "state");
    for (uint32_t i = 0; final_state && i < final_state->count; i++) {
        mlx_array plane = mlx_array_new();
        mlx_vector_array_get(&plane, planes, i);
        golden_check("final state", plane, &final_state->items[i]);
    }
    mlx_vector_array_free(planes);
    quern_tq_cache_free(cache);
}

/* Rows of appended (negative: trimmed) tokens, offset, capacity. */
static void run_growth(const qn_json *trace)
{
    quern_tq_options options = {.key_bits = 8, .value_bits = 3};
    quern_tq_cache *cache = cache_of(&options);
    quern_tq_info info;
    for (uint32_t i = 0; cache && i < trace->count; i++) {
        int64_t n[3] = {0};
        int dropped = 0;
        for (uint32_t j = 0; j < 3; j++)
            qn_json_as_int(qn_json_at(&trace->items[i], j), &n[j]);
        if (n[0] < 0) {
            must(quern_tq_cache_trim(&dropped, cache, (int)-n[0]), "trim");
        } else {
            mlx_array x = mlx_array_new();
            int shape[] = {1, 1, (int)n[0], 64};
            mlx_zeros(&x, shape, 4, MLX_FLOAT16, calls_stream());
            must(quern_tq_cache_append(cache, x, x, calls_stream()), "append");
            mlx_array_free(x);
        }
        quern_tq_cache_info_get(&info, cache);
        check_count("offset", i, n[1], info.offset);
        check_count("capacity", i, n[2], info.capacity);
    }
    quern_tq_cache_free(cache);
}

static void run_lifecycle(const qn_json *root)
{
    const qn_json *caches = qn_json_get(root, "caches");
    const qn_json *traces = qn_json_get(qn_json_get(root, "growth"), "traces");
    if (!caches || !traces)
        case_fail("no caches and growth");
    for (uint32_t i = 0; caches && i < caches->count; i++) {
        run_life(&caches->items[i], false);
        run_life(&caches->items[i], true);
    }
    for (uint32_t i = 0; traces && i < traces->count; i++)
        run_growth(&traces->items[i]);
}

static void run_inputs(const qn_json *root, qn_str kind)
{
    const qn_json *cases = qn_json_get(root, "cases");
    mlx_array in = golden_array(root, "input");
    for (uint32_t i = 0; cases && i < cases->count; i++) {
        const qn_json *c = &cases->items[i];
        if (qn_str_is(kind, "keys"))
            key_case(c, i, in, number(root, "bits"), false);
        else if (qn_str_is(kind, "values"))
            value_case(c, i, in, number(root, "bits"));
        else
            key_case(c, i, in, number(c, "bits"), case_bool(c, "guard", false));
    }
    mlx_array_free(in);
}

static const struct {
    const char *kind;
    void (*run)(const qn_json *c, uint32_t i);
} kinds[] = {{"pack", pack_case},
             {"rotation", rotation_case},
             {"joint", joint_case},
             {"inverse", inverse_case},
             {"inverse-digest", inverse_digest_case},
             {"sizes", size_row}};

bool is_turboquant_golden(const qn_json *root)
{
    static const char *const others[] = {"keys", "values", "degenerate-keys",
                                         "lifecycle"};
    qn_str kind, format;
    if (qn_json_as_str(qn_json_get(root, "format"), &format))
        return qn_str_is(format, "turboquant-kv tables v1");
    if (!qn_json_get(root, "set") ||
        !qn_json_as_str(qn_json_get(root, "kind"), &kind))
        return false;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (qn_str_is(kind, kinds[i].kind))
            return true;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (qn_str_is(kind, others[i]))
            return true;
    return false;
}

void run_turboquant_golden(const qn_json *root, const case_context *context)
{
    (void)context;
    calls_begin();
    qn_str kind = {"", 0};
    if (qn_json_get(root, "format")) {
        run_tables(root);
        return;
    }
    qn_json_as_str(qn_json_get(root, "kind"), &kind);
    if (qn_json_get(root, "input")) {
        run_inputs(root, kind);
        return;
    }
    if (qn_str_is(kind, "lifecycle")) {
        run_lifecycle(root);
        return;
    }
    const qn_json *list = qn_json_get(root, "cases");
    if (!list)
        list = qn_json_get(root, "rows");
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (uint32_t i = 0;
             list && qn_str_is(kind, kinds[k].kind) && i < list->count; i++)
            kinds[k].run(&list->items[i], i);
}
