/* quern_kv_attention: against double arithmetic on the keys and values as
 * stored; rows that know nothing of each other, of threads and of how their
 * sequences were cut into steps; the reference loop (which strided rows go to)
 * and the fallback made of mlx_* calls give the same within rounding. */
#include "capi.h"

#include "quern/ext.h"

#include <math.h>

int fallback_kv_room(mlx_vector_array *res, int *capacity,
                     const quern_kv_form *form, const mlx_vector_array old,
                     int need, const mlx_stream s);
int fallback_kv_attention(mlx_array *res, const mlx_array q, const mlx_array k,
                          const mlx_array v, const quern_kv_form *form,
                          const quern_kv_step *steps, size_t count,
                          const quern_kv_options *options, const mlx_stream s);

enum { HEADS = 6, KV = 2, DIM = 64, MOST = 300 };

static mlx_stream stream;

/* ---- sequences of numbers ---- */

/* Sequence `id` has the same numbers whoever asks: what is 0 for q, 1 for k, 2
 * for v. */
static float number(int id, int what, int position, int i)
{
    uint32_t x = (uint32_t)(id * 7919 + what * 104729 + position * 1299709 + i);
    x ^= x >> 16;
    x *= 0x7feb352du;
    x ^= x >> 15;
    x *= 0x846ca68bu;
    x ^= x >> 16;
    return (float)(x >> 8) / 8388608.0F - 1;
}

typedef struct share {
    int id, offset, count;
} share;

/* [1, R, heads * DIM] of several sequences. */
static mlx_array rows_of(const share *shares, size_t n, int what,
                         mlx_dtype dtype)
{
    int heads = what ? KV : HEADS, width = heads * DIM, total = 0;
    for (size_t i = 0; i < n; i++)
        total += shares[i].count;
    float *data = malloc((size_t)(total * width) * sizeof *data), *to = data;
    assert_non_null(data);
    for (size_t i = 0; i < n; i++)
        for (int t = 0; t < shares[i].count; t++)
            for (int j = 0; j < width; j++)
                *to++ = number(shares[i].id, what, shares[i].offset + t, j);
    mlx_array x =
        mlx_array_new_data(data, (int[]){1, total, width}, 3, MLX_FLOAT32);
    free(data);
    check_ok(mlx_astype(&x, x, dtype, stream));
    return x;
}

/* ---- one engine or the other ---- */

typedef struct engine {
    int (*room)(mlx_vector_array *, int *, const quern_kv_form *,
                mlx_vector_array, int, mlx_stream);
    int (*attend)(mlx_array *, mlx_array, mlx_array, mlx_array,
                  const quern_kv_form *, const quern_kv_step *, size_t,
                  const quern_kv_options *, mlx_stream);
    bool strided; /* rows that are no neighbours */
} engine;

static const engine own = {quern_kv_room, quern_kv_attention, false};
static const engine reference = {quern_kv_room, quern_kv_attention, true};
static const engine fallback = {fallback_kv_room, fallback_kv_attention, false};

typedef struct sequence {
    mlx_vector_array cache;
    int length, capacity;
} sequence;

static void make_room(const engine *e, sequence *s, const quern_kv_form *form,
                      int need)
{
    if (need <= s->capacity)
        return;
    mlx_vector_array grown = mlx_vector_array_new(), none = {NULL};
    check_ok(e->room(&grown, &s->capacity, form, s->cache.ctx ? s->cache : none,
                     need, stream));
    assert_true(s->capacity >= need);
    if (s->cache.ctx)
        check_ok(mlx_vector_array_free(s->cache));
    s->cache = grown;
}

static void drop_sequence(sequence *s)
{
    if (s->cache.ctx)
        check_ok(mlx_vector_array_free(s->cache));
    *s = (sequence){{NULL}, 0, 0};
}

static mlx_array spread(mlx_array x)
{
    mlx_array y = mlx_array_new();
    check_ok(mlx_repeat_axis(&y, x, 2, 1, stream));
    const int *shape = mlx_array_shape(y);
    int stop[3] = {1, shape[1], shape[2]};
    check_ok(mlx_slice(&y, y, (int[]){0, 0, 0}, 3, stop, 3, (int[]){1, 2, 1}, 3,
                       stream));
    check_ok(mlx_array_free(x));
    return y;
}

/* A step of several sequences; the rows' results as floats at `out`. */
static void run_step(const engine *e, sequence *const *list,
                     const share *shares, size_t n, const quern_kv_form *form,
                     const quern_kv_options *options, mlx_dtype dtype,
                     float *out)
{
    quern_kv_step steps[16];
    for (size_t i = 0; i < n; i++) {
        make_room(e, list[i], form, list[i]->length + shares[i].count);
        assert_int_equal(list[i]->length, shares[i].offset);
        steps[i] =
            (quern_kv_step){list[i]->cache, list[i]->length, shares[i].count};
        list[i]->length += shares[i].count;
    }
    mlx_array x[3], y = mlx_array_new();
    for (int i = 0; i < 3; i++) {
        x[i] = rows_of(shares, n, i, dtype);
        if (e->strided)
            x[i] = spread(x[i]);
    }
    check_ok(e->attend(&y, x[0], x[1], x[2], form, steps, n, options, stream));
    assert_int_equal(mlx_array_dtype(y), dtype);
    check_ok(mlx_astype(&y, y, MLX_FLOAT32, stream));
    for (int i = 0; i < 3; i++)
        check_ok(mlx_array_free(x[i]));
    check_ok(mlx_array_eval(y));
    memcpy(out, mlx_array_data_float32(y), mlx_array_size(y) * sizeof(float));
    check_ok(mlx_array_free(y));
}

/* A sequence alone, in steps of `piece` rows: [length, HEADS * DIM]. */
static void run_alone(const engine *e, int id, int length, int piece,
                      const quern_kv_form *form,
                      const quern_kv_options *options, mlx_dtype dtype,
                      float *out)
{
    sequence s = {{NULL}, 0, 0}, *list = &s;
    for (int at = 0; at < length; at += piece) {
        int count = length - at < piece ? length - at : piece;
        share one = {id, at, count};
        run_step(e, &list, &one, 1, form, options, dtype,
                 out + at * HEADS * DIM);
    }
    drop_sequence(&s);
}

/* ---- double arithmetic ---- */

/* Heads of a sequence, turned: [heads, length, DIM] floats of type `dtype`. */
static mlx_array turned(int id, int length, int what, const quern_kv_options *o,
                        mlx_dtype dtype)
{
    share one = {id, 0, length};
    mlx_array x = rows_of(&one, 1, what, dtype);
    int heads = what ? KV : HEADS;
    check_ok(mlx_reshape(&x, x, (int[]){1, length, heads, DIM}, 4, stream));
    check_ok(mlx_transpose_axes(&x, x, (int[]){0, 2, 1, 3}, 4, stream));
    if (o->rope_dims && what < 2)
        check_ok(mlx_fast_rope(
            &x, x, o->rope_dims, o->rope_traditional,
            (mlx_optional_float){o->rope_base, !o->rope_freqs.ctx},
            o->rope_scale, 0, o->rope_freqs, stream));
    return x;
}

/* The same as the form stores it, as floats. */
static mlx_array as_stored(mlx_array x, const quern_kv_form *f)
{
    mlx_array y = mlx_array_new();
    if (!f->bits) {
        check_ok(mlx_astype(&y, x, f->dtype, stream));
    } else {
        mlx_vector_array codes = mlx_vector_array_new();
        mlx_array part[3], none = {NULL};
        mlx_optional_int group = {f->group_size, true}, bits = {f->bits, true};
        check_ok(mlx_astype(&y, x, MLX_FLOAT32, stream));
        check_ok(mlx_quantize(&codes, y, group, bits, "affine", none, stream));
        for (size_t i = 0; i < 3; i++) {
            part[i] = mlx_array_new();
            check_ok(mlx_vector_array_get(&part[i], codes, i));
            if (i)
                check_ok(mlx_astype(&part[i], part[i], f->dtype, stream));
            if (i)
                check_ok(mlx_astype(&part[i], part[i], MLX_FLOAT32, stream));
        }
        check_ok(mlx_dequantize(
            &y, part[0], part[1], part[2], group, bits, "affine", none,
            (mlx_optional_dtype){MLX_FLOAT32, true}, stream));
        for (size_t i = 0; i < 3; i++)
            check_ok(mlx_array_free(part[i]));
        check_ok(mlx_vector_array_free(codes));
    }
    check_ok(mlx_astype(&y, y, MLX_FLOAT32, stream));
    check_ok(mlx_contiguous(&y, y, false, stream));
    check_ok(mlx_array_eval(y));
    check_ok(mlx_array_free(x));
    return y;
}

static double half_unit(mlx_dtype dtype)
{
    return dtype == MLX_FLOAT32 ? 0 : dtype == MLX_FLOAT16 ? 0x1p-11 : 0x1p-8;
}

/* Checks `found` [length, HEADS * DIM] by the contract of helpers.md 8. */
static void check_truth(const float *found, int id, int length,
                        const quern_kv_form *form, const quern_kv_options *o,
                        mlx_dtype dtype)
{
    quern_kv_form plain = {.dtype = dtype};
    mlx_array arrays[3];
    const float *x[3];
    for (int i = 0; i < 3; i++) {
        arrays[i] =
            as_stored(turned(id, length, i, o, dtype), i ? form : &plain);
        x[i] = mlx_array_data_float32(arrays[i]);
    }
    const float *sinks = o->sinks.ctx ? mlx_array_data_float32(o->sinks) : NULL;
    for (int h = 0; h < HEADS; h++)
        for (int t = 0; t < length; t++) {
            static double p[MOST];
            int g = h / (HEADS / KV);
            int from = o->window && t >= o->window ? t - o->window + 1 : 0;
            double sum = sinks ? exp((double)sinks[h]) : 0, most = 0, top = 0;
            for (int j = from; j <= t; j++) {
                double score = 0;
                for (int i = 0; i < DIM; i++)
                    score += (double)x[0][(h * length + t) * DIM + i] *
                             (double)x[1][(g * length + j) * DIM + i];
                score *= (double)o->scale;
                top = fabs(score) > top ? fabs(score) : top;
                sum += p[j] = exp(score);
            }
            for (int i = 0; i < DIM; i++) {
                double y = 0;
                for (int j = from; j <= t; j++) {
                    double v = (double)x[2][(g * length + j) * DIM + i];
                    most = fabs(v) > most ? fabs(v) : most;
                    y += p[j] / sum * v;
                }
                double limit = 0x1p-20 * most * (4 + top) +
                               half_unit(dtype) * (fabs(y) + 1e-3);
                double off = fabs((double)found[(t * HEADS + h) * DIM + i] - y);
                assert_true(off <= limit);
            }
        }
    for (int i = 0; i < 3; i++)
        check_ok(mlx_array_free(arrays[i]));
}

/* ---- what is tried ---- */

static const quern_kv_form forms[] = {
    {KV, DIM, MLX_FLOAT32, 0, 0},   {KV, DIM, MLX_FLOAT16, 0, 0},
    {KV, DIM, MLX_BFLOAT16, 0, 0},  {KV, DIM, MLX_FLOAT32, 8, 64},
    {KV, DIM, MLX_FLOAT16, 8, 32},  {KV, DIM, MLX_FLOAT16, 4, 64},
    {KV, DIM, MLX_BFLOAT16, 4, 32},
};
enum { FORMS = sizeof forms / sizeof *forms };

static const mlx_dtype types[] = {MLX_FLOAT32, MLX_FLOAT16, MLX_BFLOAT16};

static mlx_array vector(int n, float first, float step)
{
    float values[64];
    for (int i = 0; i < n; i++)
        values[i] = first + step * (float)i;
    return mlx_array_new_data(values, &n, 1, MLX_FLOAT32);
}

/* Variant 0 .. 4 of what else an attention can have. */
static quern_kv_options variant(int n)
{
    quern_kv_options o = {.heads = HEADS, .scale = 0.4F, .rope_scale = 1};
    if (n) {
        o.rope_dims = n == 2 ? 32 : DIM;
        o.rope_base = 10000;
        o.rope_traditional = n == 3;
    }
    if (n == 2)
        o.window = 150;
    if (n == 3)
        o.window = 7;
    if (n == 4) {
        o.rope_freqs = vector(DIM / 2, 1, 3);
        o.sinks = vector(HEADS, -1, 0.7F);
    }
    return o;
}
enum { VARIANTS = 5 };

static void drop_variant(quern_kv_options *o)
{
    if (o->rope_freqs.ctx)
        check_ok(mlx_array_free(o->rope_freqs));
    if (o->sinks.ctx)
        check_ok(mlx_array_free(o->sinks));
}

static float *results(int length)
{
    float *out = malloc((size_t)length * HEADS * DIM * sizeof *out);
    assert_non_null(out);
    return out;
}

static void test_numbers(void **state)
{
    (void)state;
    float *found = results(MOST);
    for (int f = 0; f < FORMS; f++)
        for (int v = 0; v < VARIANTS; v++) {
            quern_kv_options o = variant(v);
            mlx_dtype type = types[(f + v) % 3];
            run_alone(&own, 3, 270, 90, &forms[f], &o, type, found);
            check_truth(found, 3, 270, &forms[f], &o, type);
            drop_variant(&o);
        }
    free(found);
}

/* Mixed lengths; sequences join and leave; every row is that of its sequence
 * alone, in one piece. */
static void test_rows_are_independent(void **state)
{
    (void)state;
    static const int lengths[] = {200, 17, 131};
    float *alone[3], *found = results(3 * MOST);
    for (int v = 1; v < VARIANTS; v += 2)
        for (int f = 0; f < FORMS; f++) {
            quern_kv_options o = variant(v);
            sequence s[3] = {{{NULL}, 0, 0}};
            check_ok(quern_set_threads(1));
            for (int i = 0; i < 3; i++) {
                alone[i] = results(lengths[i] + 12);
                run_alone(&own, i, lengths[i] + 12, MOST, &forms[f], &o,
                          types[f % 3], alone[i]);
            }
            for (int step = 0; step < 12; step++) {
                share shares[3];
                sequence *list[3];
                size_t n = 0;
                for (int i = 0; i < 3; i++) {
                    /* The second one leaves, the third one joins later. */
                    if ((i == 1 && step > 7) || (i == 2 && step < 3))
                        continue;
                    int at = s[i].length;
                    list[n] = &s[i];
                    shares[n++] =
                        (share){i, at, at ? 1 + (step == 5) : lengths[i]};
                }
                check_ok(quern_set_threads(1 + step % 8));
                run_step(&own, list, shares, n, &forms[f], &o, types[f % 3],
                         found);
                const float *row = found;
                for (size_t i = 0; i < n; i++) {
                    size_t size = (size_t)shares[i].count * HEADS * DIM;
                    size_t first = (size_t)shares[i].offset * HEADS * DIM;
                    if (shares[i].offset + shares[i].count <=
                        lengths[shares[i].id] + 12)
                        assert_memory_equal(row, alone[shares[i].id] + first,
                                            size * sizeof *row);
                    row += size;
                }
            }
            for (int i = 0; i < 3; i++) {
                drop_sequence(&s[i]);
                free(alone[i]);
            }
            drop_variant(&o);
        }
    check_ok(quern_set_threads(0));
    free(found);
}

/* Largest difference of two runs. */
static double difference(const float *a, const float *b, int length)
{
    double most = 0;
    for (int i = 0; i < length * HEADS * DIM; i++) {
        double d = fabs((double)a[i] - (double)b[i]);
        most = d > most || isnan(d) ? d : most;
    }
    return most;
}

static void test_others_agree(void **state)
{
    (void)state;
    const engine *const others[] = {&reference, &fallback};
    enum { LENGTH = 150 };
    float *a = results(LENGTH), *b = results(LENGTH);
    for (int e = 0; e < 2; e++)
        for (int f = 0; f < FORMS; f++)
            for (int v = 0; v < VARIANTS; v++) {
                quern_kv_options o = variant(v);
                mlx_dtype type = types[v % 3];
                run_alone(&own, 5, LENGTH, 70, &forms[f], &o, type, a);
                run_alone(others[e], 5, LENGTH, 70, &forms[f], &o, type, b);
                /* A code may fall to the other side where angles differ in
                 * their last place. */
                double limit =
                    4e-6 + 2 * half_unit(type) + (forms[f].bits ? 2e-2 : 0);
                limit += forms[f].bits ? 0 : half_unit(forms[f].dtype) / 4;
                assert_true(difference(a, b, LENGTH) <= limit);
                drop_variant(&o);
            }
    free(a);
    free(b);
}

/* Somebody who holds the arrays of a cache keeps what they held. */
static void test_held_arrays_keep_their_content(void **state)
{
    (void)state;
    sequence s = {{NULL}, 0, 0}, *list = &s;
    quern_kv_options o = variant(1);
    float out[2 * HEADS * DIM];
    share one = {1, 0, 2};
    run_step(&own, &list, &one, 1, &forms[1], &o, MLX_FLOAT32, out);
    mlx_array held = mlx_array_new(), copy = mlx_array_new(),
              same = mlx_array_new();
    check_ok(mlx_vector_array_get(&held, s.cache, 1));
    check_ok(mlx_negative(&copy, held, stream));
    check_ok(mlx_negative(&copy, copy, stream));
    check_ok(mlx_array_eval(copy));
    one = (share){1, 2, 1};
    run_step(&own, &list, &one, 1, &forms[1], &o, MLX_FLOAT32, out);
    bool equal = false;
    check_ok(mlx_array_equal(&same, held, copy, false, stream));
    check_ok(mlx_array_item_bool(&equal, same));
    assert_true(equal);
    check_ok(mlx_array_free(held));
    check_ok(mlx_array_free(copy));
    check_ok(mlx_array_free(same));
    drop_sequence(&s);
}

static void test_wrong_calls_are_refused(void **state)
{
    (void)state;
    mlx_vector_array cache = mlx_vector_array_new(), none = {NULL};
    int capacity = 0;
    quern_kv_form form = forms[1];
    check_ok(quern_kv_room(&cache, &capacity, &form, none, 100, stream));
    assert_int_equal(capacity, 128);
    form.bits = 3;
    check_fails(quern_kv_room(&cache, &capacity, &form, none, 100, stream),
                "3 bits");
    form = forms[1];
    form.dtype = MLX_INT32;
    check_fails(quern_kv_room(&cache, &capacity, &form, none, 100, stream),
                "int32");
    form = forms[1];
    share one = {0, 0, 4};
    mlx_array y = mlx_array_new(), x[3];
    for (int i = 0; i < 3; i++)
        x[i] = rows_of(&one, 1, i, MLX_FLOAT32);
    quern_kv_options o = variant(1);
    quern_kv_step step = {cache, 125, 4};
    check_fails(
        quern_kv_attention(&y, x[0], x[1], x[2], &form, &step, 1, &o, stream),
        "4 tokens behind 125");
    step = (quern_kv_step){cache, 0, 3};
    check_fails(
        quern_kv_attention(&y, x[0], x[1], x[2], &form, &step, 1, &o, stream),
        "3 tokens, found 4");
    step = (quern_kv_step){cache, 0, 4};
    check_fails(
        quern_kv_attention(&y, x[1], x[1], x[2], &form, &step, 1, &o, stream),
        "q of type");
    o.heads = 5;
    check_fails(
        quern_kv_attention(&y, x[0], x[1], x[2], &form, &step, 1, &o, stream),
        "found 5");
    o = variant(1);
    form = forms[5];
    check_fails(
        quern_kv_attention(&y, x[0], x[1], x[2], &form, &step, 1, &o, stream),
        "6 arrays, found 2");
    check_fails(
        quern_kv_attention(&y, x[0], x[1], x[2], &form, &step, 0, &o, stream),
        "sequences, found 0");
    for (int i = 0; i < 3; i++)
        check_ok(mlx_array_free(x[i]));
    check_ok(mlx_array_free(y));
    check_ok(mlx_vector_array_free(cache));
}

static int set_up(void **state)
{
    capi_setup(state);
    stream = mlx_default_cpu_stream_new();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    return mlx_stream_free(stream);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_rows_are_independent),
        cmocka_unit_test(test_others_agree),
        cmocka_unit_test(test_held_arrays_keep_their_content),
        cmocka_unit_test(test_wrong_calls_are_refused),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
