/* quern_kv_attention: against double arithmetic on the keys and values as
 * stored; rows that know nothing of each other, of threads and of how their
 * sequences were cut into steps; the reference loop (which strided rows go to)
 * and the fallback made of mlx_* calls give the same within rounding. */
#include "capi.h"

#include "base/turboquant.h"
#include "quern/ext.h"

#include <limits.h>
#include <math.h>

int fallback_kv_room(mlx_vector_array *res, int *capacity,
                     const quern_kv_form *form, const mlx_vector_array old,
                     int need, const mlx_stream s);
int fallback_kv_read(mlx_vector_array *res, const quern_kv_form *form,
                     const mlx_vector_array cache, int count,
                     const mlx_stream s);
int fallback_kv_write(mlx_vector_array *res, int *capacity,
                      const quern_kv_form *form, const mlx_vector_array planes,
                      const mlx_stream s);
int fallback_kv_drop(mlx_vector_array *res, int *capacity,
                     const quern_kv_form *form, const mlx_vector_array old,
                     int first, int count, int need, const mlx_stream s);
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
    int (*drop)(mlx_vector_array *, int *, const quern_kv_form *,
                mlx_vector_array, int, int, int, mlx_stream);
    bool strided; /* rows that are no neighbours */
} engine;

static const engine own = {quern_kv_room, quern_kv_attention, quern_kv_drop,
                           false};
static const engine reference = {quern_kv_room, quern_kv_attention,
                                 quern_kv_drop, true};
static const engine fallback = {fallback_kv_room, fallback_kv_attention,
                                fallback_kv_drop, false};

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
        steps[i] = (quern_kv_step){list[i]->cache, list[i]->length,
                                   shares[i].count, 0};
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

/* A sequence alone, in steps of `piece` rows: [length, HEADS * DIM].  Its cache
 * is left at *kept, or dropped. */
static void run_alone(const engine *e, int id, int length, int piece,
                      const quern_kv_form *form,
                      const quern_kv_options *options, mlx_dtype dtype,
                      float *out, sequence *kept)
{
    sequence s = {{NULL}, 0, 0}, *list = &s;
    for (int at = 0; at < length; at += piece) {
        int count = length - at < piece ? length - at : piece;
        share one = {id, at, count};
        run_step(e, &list, &one, 1, form, options, dtype,
                 out + at * HEADS * DIM);
    }
    if (kept)
        *kept = s;
    else
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

static mlx_array plane(mlx_vector_array planes, size_t i)
{
    mlx_array x = mlx_array_new();
    check_ok(mlx_vector_array_get(&x, planes, i));
    check_ok(mlx_contiguous(&x, x, false, stream));
    check_ok(mlx_array_eval(x));
    return x;
}

/* The tokens of a cache as planes. */
static mlx_vector_array planes_of(const sequence *s, const quern_kv_form *form)
{
    mlx_vector_array planes = mlx_vector_array_new();
    check_ok(quern_kv_read(&planes, form, s->cache, s->length, stream));
    return planes;
}

static const void *bytes_of(mlx_array x)
{
    mlx_dtype type = mlx_array_dtype(x);
    return type == MLX_INT8     ? (const void *)mlx_array_data_int8(x)
           : type == MLX_UINT8  ? (const void *)mlx_array_data_uint8(x)
           : type == MLX_UINT32 ? (const void *)mlx_array_data_uint32(x)
           : type == MLX_FLOAT32
               ? (const void *)mlx_array_data_float32(x)
               : (const void *)mlx_array_data_float16(x); /* 2 bytes each */
}

static mlx_array floats_of(mlx_array x)
{
    mlx_array y = mlx_array_new();
    check_ok(mlx_astype(&y, x, MLX_FLOAT32, stream));
    check_ok(mlx_array_eval(y));
    check_ok(mlx_array_free(x));
    return y;
}

/* The inverse of the rotation of values, by its definition. */
static void unrotate(double *x)
{
    double y[DIM];
    const uint32_t *signs = qn_tq_signs(DIM);
    for (int i = 0; i < DIM; i++) {
        y[i] = 0;
        for (int j = 0; j < DIM; j++)
            y[i] += __builtin_popcount((unsigned)(i & j)) % 2 ? -x[j] : x[j];
        y[i] *= (signs[i / 32] >> i % 32 & 1 ? -1 : 1) / sqrt(DIM);
    }
    memcpy(x, y, sizeof y);
}

/* What a row of codes stands for. */
static void decode_row(double *to, const quern_kv_form *f, bool key,
                       const uint8_t *packed, const float *scale,
                       const float *other)
{
    int bits = f->bits ? f->bits : key ? f->key_bits : f->value_bits;
    int group = f->bits ? f->group_size : QN_TQ_GROUP;
    uint8_t codes[DIM];
    qn_tq_unpack(codes, packed, DIM, bits);
    for (int i = 0; i < DIM; i++) {
        double s = (double)scale[i / group];
        if (f->bits)
            to[i] = codes[i] * s + (double)other[i / group];
        else if (key)
            to[i] = ((bits == 8 ? (double)(int8_t)codes[i] : codes[i]) +
                     (double)other[i / group]) *
                    s;
        else
            to[i] = (double)qn_tq_centroids(bits)[codes[i]] * s;
    }
    if (!f->bits && !key)
        unrotate(to);
}

/* Keys or values as the cache has them: [KV, length, DIM]. */
static double *as_stored(const sequence *s, const quern_kv_form *f, bool key)
{
    bool packed = f->bits || f->key_bits;
    size_t first = key ? 0 : packed ? 3 : 1, rows = (size_t)(KV * s->length);
    double *out = malloc(rows * DIM * sizeof *out);
    assert_non_null(out);
    mlx_vector_array planes = planes_of(s, f);
    mlx_array x = plane(planes, first);
    if (!packed) {
        x = floats_of(x);
        for (size_t i = 0; i < rows * DIM; i++)
            out[i] = (double)mlx_array_data_float32(x)[i];
    } else {
        bool biased = f->bits || key;
        mlx_array scales = floats_of(plane(planes, first + 1));
        mlx_array others =
            biased ? floats_of(plane(planes, first + 2)) : mlx_array_new();
        size_t groups = mlx_array_size(scales) / rows;
        size_t width = mlx_array_nbytes(x) / rows;
        const uint8_t *codes = bytes_of(x);
        for (size_t i = 0; i < rows; i++)
            decode_row(out + i * DIM, f, key, codes + i * width,
                       mlx_array_data_float32(scales) + i * groups,
                       biased ? mlx_array_data_float32(others) + i * groups
                              : NULL);
        check_ok(mlx_array_free(scales));
        check_ok(mlx_array_free(others));
    }
    check_ok(mlx_array_free(x));
    check_ok(mlx_vector_array_free(planes));
    return out;
}

static double half_unit(mlx_dtype dtype)
{
    return dtype == MLX_FLOAT32 ? 0 : dtype == MLX_FLOAT16 ? 0x1p-11 : 0x1p-8;
}

static double most_of(double a, double b)
{
    return a > b ? a : b;
}

/* By how much rounding a query may move a score (quern/ext.h). */
static double query_error(const float *q, const double *k, int group)
{
    double all = 0;
    for (int i = 0; i < DIM; i += group) {
        double most = 0, sum = 0;
        for (int j = i; j < i + group; j++) {
            most = most_of(most, fabs((double)q[j]));
            sum += fabs(k[j]);
        }
        all += most * sum;
    }
    return 0x1p-16 * all;
}

/* Checks `found` [length, HEADS * DIM] by the contract of quern/ext.h: against
 * double arithmetic on the cache's own content. */
static void check_truth(const float *found, int id, const sequence *s,
                        const quern_kv_form *f, const quern_kv_options *o,
                        mlx_dtype dtype)
{
    int length = s->length;
    bool packed = f->bits || f->key_bits;
    int group = f->bits ? f->group_size : QN_TQ_GROUP;
    mlx_array queries = turned(id, length, 0, o, dtype);
    check_ok(mlx_contiguous(&queries, queries, false, stream));
    queries = floats_of(queries);
    double *keys = as_stored(s, f, true), *values = as_stored(s, f, false);
    const float *sinks = o->sinks.ctx ? mlx_array_data_float32(o->sinks) : NULL;
    for (int h = 0; h < HEADS; h++)
        for (int t = 0; t < length; t++) {
            static double p[MOST];
            int g = h / (HEADS / KV);
            const float *q =
                mlx_array_data_float32(queries) + (h * length + t) * DIM;
            int from = o->window && t >= o->window ? t - o->window + 1 : 0;
            double sum = sinks ? exp((double)sinks[h]) : 0, most = 0, top = 0;
            double off = 0, longest = 0;
            for (int j = 0; j <= t; j++) {
                p[j] = 0;
                if (j < from && j >= o->keep)
                    continue;
                const double *k = keys + (g * length + j) * DIM;
                const double *v = values + (g * length + j) * DIM;
                double score = 0, square = 0;
                for (int i = 0; i < DIM; i++) {
                    score += (double)q[i] * k[i];
                    square += v[i] * v[i];
                    most = most_of(most, fabs(v[i]));
                }
                score *= (double)o->scale;
                top = most_of(top, fabs(score));
                if (o->cap > 0)
                    score = (double)o->cap * tanh(score / (double)o->cap);
                longest = most_of(longest, sqrt(square));
                off = most_of(off, (double)o->scale * query_error(q, k, group));
                sum += p[j] = exp(score);
            }
            for (int i = 0; i < DIM; i++) {
                double y = 0;
                for (int j = 0; j <= t; j++)
                    y += p[j] / sum * values[(g * length + j) * DIM + i];
                double limit = 0x1p-20 * most * (4 + top) +
                               half_unit(dtype) * (fabs(y) + 1e-3);
                if (packed)
                    limit += (exp(2 * off) - 1) * (f->bits ? most : longest);
                double wrong =
                    fabs((double)found[(t * HEADS + h) * DIM + i] - y);
                assert_true(wrong <= limit);
            }
        }
    check_ok(mlx_array_free(queries));
    free(keys);
    free(values);
}

/* ---- what is tried ---- */

#define FLOATS(type)                                                           \
    {                                                                          \
        .kv_heads = KV, .head_dim = DIM, .dtype = type                         \
    }
#define AFFINE(type, n, group)                                                 \
    {                                                                          \
        .kv_heads = KV, .head_dim = DIM, .dtype = type, .bits = n,             \
        .group_size = group                                                    \
    }
#define TURBO(k, v)                                                            \
    {                                                                          \
        .kv_heads = KV, .head_dim = DIM, .key_bits = k, .value_bits = v        \
    }

static const quern_kv_form forms[] = {
    FLOATS(MLX_FLOAT32),
    FLOATS(MLX_FLOAT16),
    FLOATS(MLX_BFLOAT16),
    AFFINE(MLX_FLOAT32, 8, 64),
    AFFINE(MLX_FLOAT16, 8, 32),
    AFFINE(MLX_FLOAT16, 4, 64),
    AFFINE(MLX_BFLOAT16, 4, 32),
    TURBO(8, 3),
    TURBO(8, 8),
    TURBO(5, 5),
    TURBO(4, 4),
    TURBO(2, 2),
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

/* Variant 0 .. 5 of what else an attention can have. */
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
    if (n == 3) {
        o.window = 7;
        o.keep = 5;
    }
    if (n == 5) {
        o.cap = 2;
        o.window = 101;
    }
    if (n >= 4) {
        o.rope_freqs = vector(DIM / 2, 1, 3);
        o.sinks = vector(HEADS, -1, 0.7F);
    }
    return o;
}
enum { VARIANTS = 6 };

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
            sequence s;
            run_alone(&own, 3, 270, 90, &forms[f], &o, type, found, &s);
            check_truth(found, 3, &s, &forms[f], &o, type);
            drop_sequence(&s);
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
                          types[f % 3], alone[i], NULL);
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

/* The attention of queries over a cache that has their rows already. */
static void run_stored(const engine *e, const sequence *s, const share *one,
                       const quern_kv_form *form, const quern_kv_options *o,
                       mlx_dtype dtype, float *out)
{
    quern_kv_step step = {s->cache, one->offset, one->count, 0};
    mlx_array q = rows_of(one, 1, 0, dtype), y = mlx_array_new();
    if (e->strided)
        q = spread(q);
    check_ok(e->attend(&y, q, mlx_array_empty, mlx_array_empty, form, &step, 1,
                       o, stream));
    check_ok(mlx_astype(&y, y, MLX_FLOAT32, stream));
    check_ok(mlx_array_eval(y));
    memcpy(out, mlx_array_data_float32(y), mlx_array_size(y) * sizeof(float));
    check_ok(mlx_array_free(q));
    check_ok(mlx_array_free(y));
}

/* As layers do that use the keys and values of another one. */
static void test_rows_that_are_stored_are_attended_to(void **state)
{
    (void)state;
    static const engine *const all[] = {&own, &reference, &fallback};
    enum { LENGTH = 150, PIECE = 70 };
    float *first = results(LENGTH), *again = results(LENGTH);
    for (int n = 0; n < 3 * FORMS; n++) {
        const engine *e = all[n % 3];
        const quern_kv_form *form = &forms[n / 3];
        quern_kv_options o = variant(n % VARIANTS);
        sequence s = {{NULL}, 0, 0};
        run_alone(e, 5, LENGTH, LENGTH, form, &o, types[n % 2], first, &s);
        for (int at = 0; at < LENGTH; at += PIECE) {
            share one = {5, at, LENGTH - at < PIECE ? LENGTH - at : PIECE};
            run_stored(e, &s, &one, form, &o, types[n % 2],
                       again + at * HEADS * DIM);
        }
        if (e == &fallback)
            assert_true(difference(first, again, LENGTH) <= 2e-3);
        else
            assert_memory_equal(first, again,
                                LENGTH * HEADS * DIM * sizeof *first);
        drop_sequence(&s);
        drop_variant(&o);
    }
    free(first);
    free(again);
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
                run_alone(&own, 5, LENGTH, 70, &forms[f], &o, type, a, NULL);
                run_alone(others[e], 5, LENGTH, 70, &forms[f], &o, type, b,
                          NULL);
                /* A code may fall to the other side where angles differ in
                 * their last place. */
                double limit =
                    4e-6 + 2 * half_unit(type) + (forms[f].bits ? 2e-2 : 0);
                limit += forms[f].bits ? 0 : half_unit(forms[f].dtype) / 4;
                /* The fallback's keys and values are bfloat16 on the way. */
                if (forms[f].key_bits && others[e] == &fallback)
                    limit += 1e-2;
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

/* ---- planes ---- */

static void check_same_arrays(mlx_vector_array a, mlx_vector_array b)
{
    size_t n = mlx_vector_array_size(a);
    assert_int_equal(n, mlx_vector_array_size(b));
    for (size_t i = 0; i < n; i++) {
        mlx_array x = plane(a, i), y = plane(b, i);
        assert_int_equal(mlx_array_dtype(x), mlx_array_dtype(y));
        assert_int_equal(mlx_array_ndim(x), mlx_array_ndim(y));
        for (int axis = 0; axis < (int)mlx_array_ndim(x); axis++)
            assert_int_equal(mlx_array_dim(x, axis), mlx_array_dim(y, axis));
        assert_memory_equal(bytes_of(x), bytes_of(y), mlx_array_nbytes(x));
        check_ok(mlx_array_free(x));
        check_ok(mlx_array_free(y));
    }
}

/* Every width of keys and of values. */
static quern_kv_form turbo_form(int n)
{
    static const int widths[][2] = {{8, 3}, {8, 8}, {5, 5}, {4, 4}, {2, 2}};
    return (quern_kv_form)TURBO(widths[n][0], widths[n][1]);
}
enum { TURBO_FORMS = 5 };

static mlx_array contiguous(mlx_array x)
{
    check_ok(mlx_contiguous(&x, x, false, stream));
    return x;
}

/* What lies in a turbo cache is what quern_tq_encode makes of turned keys and
 * of values, however they came. */
static void test_turbo_bytes(void **state)
{
    (void)state;
    enum { LENGTH = 165 };
    float *out = results(LENGTH);
    for (int f = 0; f < TURBO_FORMS; f++) {
        quern_kv_form form = turbo_form(f);
        quern_kv_options o = variant(1);
        mlx_dtype type = types[f % 3];
        mlx_array k = contiguous(turned(9, LENGTH, 1, &o, type));
        mlx_array v = contiguous(turned(9, LENGTH, 2, &o, type));
        mlx_vector_array expected = mlx_vector_array_new();
        check_ok(quern_tq_encode(&expected, k, v, form.key_bits,
                                 form.value_bits, true, stream));
        for (int piece = 1; piece < MOST; piece = 7 * piece + 4) {
            sequence s;
            check_ok(quern_set_threads(1 + piece % 8));
            run_alone(&own, 9, LENGTH, piece, &form, &o, type, out, &s);
            mlx_vector_array found = planes_of(&s, &form);
            check_same_arrays(found, expected);
            check_ok(mlx_vector_array_free(found));
            drop_sequence(&s);
        }
        check_ok(mlx_vector_array_free(expected));
        check_ok(mlx_array_free(k));
        check_ok(mlx_array_free(v));
    }
    check_ok(quern_set_threads(0));
    free(out);
}

/* Planes make a cache that attention can't tell from the first one, and tokens
 * that were forgotten leave nothing behind. */
static void test_planes_there_and_back(void **state)
{
    (void)state;
    float *a = results(MOST), *b = results(MOST);
    for (int f = 0; f < FORMS; f++) {
        quern_kv_options o = variant(1);
        sequence s, copy = {{NULL}, 0, 0}, *list = &s;
        run_alone(&own, 2, 200, 110, &forms[f], &o, MLX_FLOAT32, a, &s);
        /* Back to 140 tokens, others after them. */
        s.length = 140;
        mlx_vector_array planes = planes_of(&s, &forms[f]);
        copy.cache = mlx_vector_array_new();
        check_ok(quern_kv_write(&copy.cache, &copy.capacity, &forms[f], planes,
                                stream));
        assert_int_equal(copy.capacity, 256);
        copy.length = 140;
        share next = {3, 140, 90};
        run_step(&own, &list, &next, 1, &forms[f], &o, MLX_FLOAT32, a);
        list = &copy;
        run_step(&own, &list, &next, 1, &forms[f], &o, MLX_FLOAT32, b);
        assert_memory_equal(a, b, 90 * HEADS * DIM * sizeof *a);
        mlx_vector_array first = planes_of(&s, &forms[f]);
        mlx_vector_array second = planes_of(&copy, &forms[f]);
        check_same_arrays(first, second);
        check_ok(mlx_vector_array_free(first));
        check_ok(mlx_vector_array_free(second));
        check_ok(mlx_vector_array_free(planes));
        drop_sequence(&s);
        drop_sequence(&copy);
    }
    free(a);
    free(b);
}

/* The planes of an engine's cache are those of the fallback's. */
static void test_fallback_planes(void **state)
{
    (void)state;
    enum { LENGTH = 140 };
    float *out = results(LENGTH);
    for (int f = 0; f < FORMS; f++) {
        quern_kv_options o = variant(0);
        sequence s, copy = {{NULL}, 0, 0};
        run_alone(&own, 4, LENGTH, 60, &forms[f], &o, MLX_FLOAT32, out, &s);
        mlx_vector_array planes = planes_of(&s, &forms[f]);
        mlx_vector_array again = mlx_vector_array_new();
        copy.cache = mlx_vector_array_new();
        check_ok(fallback_kv_write(&copy.cache, &copy.capacity, &forms[f],
                                   planes, stream));
        assert_int_equal(copy.capacity, 256);
        check_ok(
            fallback_kv_read(&again, &forms[f], copy.cache, LENGTH, stream));
        check_same_arrays(planes, again);
        check_fails(
            fallback_kv_read(&again, &forms[f], copy.cache, 257, stream),
            "257");
        check_ok(mlx_vector_array_free(planes));
        check_ok(mlx_vector_array_free(again));
        drop_sequence(&s);
        drop_sequence(&copy);
    }
    free(out);
}

/* ---- dropped tokens ---- */

/* Rows behind `offset` tokens, of which `skipped` are not in the cache. */
static void run_behind(const engine *e, const sequence *s, int offset,
                       int count, int skipped, const quern_kv_form *form,
                       const quern_kv_options *o, float *out)
{
    share one = {.id = 1, .offset = offset, .count = count};
    quern_kv_step step = {s->cache, offset - skipped, count, skipped};
    mlx_array x[3], y = mlx_array_new();
    for (int what = 0; what < 3; what++) {
        x[what] = rows_of(&one, 1, what, MLX_FLOAT32);
        if (e->strided)
            x[what] = spread(x[what]);
    }
    check_ok(e->attend(&y, x[0], x[1], x[2], form, &step, 1, o, stream));
    check_ok(mlx_array_eval(y));
    memcpy(out, mlx_array_data_float32(y), mlx_array_nbytes(y));
    for (int what = 0; what < 3; what++)
        check_ok(mlx_array_free(x[what]));
    check_ok(mlx_array_free(y));
}

/* What no row sees can go, and no bit changes. */
static void check_drop(const engine *e, const quern_kv_form *form, int keep)
{
    enum { LENGTH = 400, MORE = 5 };
    quern_kv_options o = variant(2);
    o.window = 60;
    o.keep = keep;
    float *all = results(LENGTH), *out = results(MORE), *after = results(MORE);
    sequence s = {{NULL}, 0, 0};
    make_room(e, &s, form, LENGTH + MORE);
    run_behind(e, &s, 0, LENGTH, 0, form, &o, all);
    mlx_vector_array less = mlx_vector_array_new();
    int capacity = 0, first = keep ? 128 : 0, gone = 256 - first;
    check_ok(e->drop(&less, &capacity, form, s.cache, first, gone,
                     LENGTH - gone + MORE, stream));
    assert_int_equal(capacity, (LENGTH - gone + MORE + 127) / 128 * 128);
    check_ok(mlx_eval(less));
    run_behind(e, &s, LENGTH, MORE, 0, form, &o, out);
    drop_sequence(&s);
    s.cache = less;
    run_behind(e, &s, LENGTH, MORE, gone, form, &o, after);
    assert_memory_equal(out, after, MORE * HEADS * DIM * sizeof *out);
    drop_sequence(&s);
    drop_variant(&o);
    free(all);
    free(out);
    free(after);
}

static void test_tokens_that_nobody_sees_can_be_dropped(void **state)
{
    (void)state;
    static const int some[] = {0, 1, 3, 5, 7};
    for (int i = 0; i < 5; i++) {
        check_drop(&own, &forms[some[i]], 0);
        check_drop(&own, &forms[some[i]], 9);
        check_drop(&reference, &forms[some[i]], 9);
        check_drop(&fallback, &forms[some[i]], 0);
        check_drop(&fallback, &forms[some[i]], 9);
    }
}

static void test_wrong_drops_are_refused(void **state)
{
    (void)state;
    const quern_kv_form *form = &forms[1];
    quern_kv_options o = variant(2);
    mlx_vector_array cache = mlx_vector_array_new(), none = {NULL};
    mlx_vector_array out = mlx_vector_array_new();
    mlx_array x[3], y = mlx_array_new();
    share one = {.id = 1, .offset = 0, .count = 2};
    int capacity = 0;
    check_ok(quern_kv_room(&cache, &capacity, form, none, 300, stream));
    static const int odd[][3] = {{1, 128, 300},  {0, 127, 300}, {-128, 128, 9},
                                 {0, 512, 300},  {384, 128, 9}, {256, 0, 128},
                                 {0, -128, 300}, {0, 0, -1}};
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++)
        check_fails(quern_kv_drop(&out, &capacity, form, cache, odd[i][0],
                                  odd[i][1], odd[i][2], stream),
                    "[kv_drop]");
    for (int what = 0; what < 3; what++)
        x[what] = rows_of(&one, 1, what, MLX_FLOAT32);
    static const quern_kv_step steps[] = {{{NULL}, 100, 2, 128}, /* seen */
                                          {{NULL}, 200, 2, 100},
                                          {{NULL}, 200, 2, -128}};
    for (size_t i = 0; i < 3; i++) {
        quern_kv_step step = steps[i];
        step.cache = cache;
        check_fails(quern_kv_attention(&y, x[0], x[1], x[2], form, &step, 1, &o,
                                       stream),
                    "tokens dropped");
    }
    quern_kv_step step = {cache, 200, 2, 0};
    o.keep = 129;
    check_fails(
        quern_kv_attention(&y, x[0], x[1], x[2], form, &step, 1, &o, stream),
        "found 129");
    for (int what = 0; what < 3; what++)
        check_ok(mlx_array_free(x[what]));
    check_ok(mlx_array_free(y));
    check_ok(mlx_vector_array_free(cache));
    check_ok(mlx_vector_array_free(out));
    drop_variant(&o);
}

/* ---- memory ---- */

static size_t active_memory(void)
{
    size_t bytes = 0;
    check_ok(mlx_get_active_memory(&bytes));
    return bytes;
}

/* Bytes of a token and head, as the allocator counts them. */
static double token_bytes(const quern_kv_form *form)
{
    enum { TOKENS = 8192 };
    int capacity = 0;
    mlx_vector_array cache = mlx_vector_array_new(), none = {NULL};
    /* Blocks that the allocator keeps may be larger than what is asked for. */
    check_ok(mlx_clear_cache());
    size_t before = active_memory();
    check_ok(quern_kv_room(&cache, &capacity, form, none, TOKENS, stream));
    check_ok(mlx_eval(cache));
    size_t bytes = active_memory() - before;
    check_ok(mlx_vector_array_free(cache));
    assert_int_equal(capacity, TOKENS);
    return (double)bytes / TOKENS / form->kv_heads;
}

/* turboquant.md, 12, and what an affine cache with groups of 64 takes.  Blocks
 * of memory are whole pages: up to one more for an array. */
static void test_memory(void **state)
{
    (void)state;
    static const struct {
        int d, key_bits, value_bits, bytes;
    } turbo[] = {
        {64, 8, 8, 140}, {64, 8, 3, 100},  {64, 5, 4, 84},   {64, 4, 3, 68},
        {64, 2, 2, 44},  {128, 8, 3, 200}, {256, 4, 4, 304}, {512, 8, 5, 928},
    };
    double page = 16384.0 / 8192 / KV;
    for (size_t i = 0; i < sizeof turbo / sizeof *turbo; i++) {
        quern_kv_form f = TURBO(turbo[i].key_bits, turbo[i].value_bits);
        f.head_dim = turbo[i].d;
        double found = token_bytes(&f);
        assert_true(found >= turbo[i].bytes);
        assert_true(found <= turbo[i].bytes + 5 * page);
    }
    quern_kv_form f = AFFINE(MLX_FLOAT16, 8, 64);
    double found = token_bytes(&f);
    assert_true(found >= 136 && found <= 136 + 6 * page);
    f = (quern_kv_form)FLOATS(MLX_FLOAT16);
    found = token_bytes(&f);
    assert_true(found >= 256 && found <= 256 + 2 * page);
}

/* ---- other shapes ---- */

typedef struct shape {
    int heads, kv_heads, d;
} shape;

/* Rows begin .. end of a sequence over a cache, at `out`. */
static void run_rows(sequence *s, const shape *h, const quern_kv_form *f,
                     const quern_kv_options *o, int begin, int end, float *out)
{
    mlx_array x[3], y = mlx_array_new();
    make_room(&own, s, f, end);
    for (int what = 0; what < 3; what++) {
        int width = (what ? h->kv_heads : h->heads) * h->d;
        float *rows = malloc((size_t)((end - begin) * width) * sizeof *rows);
        assert_non_null(rows);
        for (int t = begin; t < end; t++)
            for (int i = 0; i < width; i++)
                rows[(t - begin) * width + i] = number(h->d, what, t, i);
        x[what] = mlx_array_new_data(rows, (int[]){1, end - begin, width}, 3,
                                     MLX_FLOAT32);
        free(rows);
    }
    quern_kv_step step = {s->cache, begin, end - begin, 0};
    check_ok(quern_kv_attention(&y, x[0], x[1], x[2], f, &step, 1, o, stream));
    check_ok(mlx_array_eval(y));
    memcpy(out, mlx_array_data_float32(y), mlx_array_nbytes(y));
    s->length = end;
    check_ok(mlx_array_free(y));
    for (int what = 0; what < 3; what++)
        check_ok(mlx_array_free(x[what]));
}

/* Heads of other sizes and groups of other numbers of heads: token by token as
 * in one piece. */
static void test_other_shapes(void **state)
{
    (void)state;
    enum { LENGTH = 139 };
    static const shape shapes[] = {
        {1, 1, 512}, {4, 4, 64},  {8, 1, 64},   {5, 1, 128},
        {7, 1, 64},  {8, 2, 128}, {12, 2, 256}, {9, 3, 64},
    };
    static const quern_kv_form kinds[] = {
        FLOATS(MLX_FLOAT16),
        AFFINE(MLX_BFLOAT16, 8, 32),
        AFFINE(MLX_FLOAT32, 4, 64),
        TURBO(8, 3),
        TURBO(5, 8),
        TURBO(4, 5),
        TURBO(2, 2),
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
            const shape *h = &shapes[i];
            quern_kv_form f = kinds[k];
            f.kv_heads = h->kv_heads;
            f.head_dim = h->d;
            quern_kv_options o = variant((int)(i + k) % 2);
            o.heads = h->heads;
            o.rope_dims = o.rope_dims ? h->d : 0;
            o.window = (int)k % 3 * 50;
            size_t row = (size_t)(h->heads * h->d);
            float *whole = malloc(LENGTH * row * sizeof *whole);
            float *pieces = malloc(LENGTH * row * sizeof *pieces);
            assert_non_null(whole);
            assert_non_null(pieces);
            sequence one = {{NULL}, 0, 0}, other = {{NULL}, 0, 0};
            check_ok(quern_set_threads(1));
            run_rows(&one, h, &f, &o, 0, LENGTH, whole);
            for (int at = 0, n = 1; at < LENGTH; at += n, n = 1 + n * 5 % 17) {
                int end = at + n < LENGTH ? at + n : LENGTH;
                check_ok(quern_set_threads(1 + at % 8));
                run_rows(&other, h, &f, &o, at, end, pieces + (size_t)at * row);
            }
            assert_memory_equal(whole, pieces, LENGTH * row * sizeof *whole);
            drop_sequence(&one);
            drop_sequence(&other);
            free(whole);
            free(pieces);
        }
    check_ok(quern_set_threads(0));
}

/* ---- tokens that are not finite ---- */

/* Which row of k and v is not finite; -1: none. */
static int bad_from = -1;

/* Rows of a sequence in steps of `piece`, as many as `length`, of which the one
 * at bad_from is NaN or infinite in k and v. */
static void run_with_bad(int length, int piece, const quern_kv_form *form,
                         const quern_kv_options *o, float *out)
{
    static const float odd[] = {NAN, INFINITY, -INFINITY};
    sequence s = {{NULL}, 0, 0};
    make_room(&own, &s, form, length);
    for (int at = 0, count; at < length; at += count) {
        count = length - at < piece ? length - at : piece;
        share one = {4, at, count};
        mlx_array x[3], y = mlx_array_new();
        for (int what = 0; what < 3; what++) {
            x[what] = rows_of(&one, 1, what, MLX_FLOAT32);
            int width = (what ? KV : HEADS) * DIM, bad = bad_from - at;
            if (!what || bad < 0 || bad >= count)
                continue;
            mlx_array value = mlx_array_new_float32(odd[bad_from % 3]);
            int step[3] = {1, 1, 1};
            check_ok(mlx_slice_update(
                &x[what], x[what], value, (int[]){0, bad, 0}, 3,
                (int[]){1, bad + 1, width}, 3, step, 3, stream));
            check_ok(mlx_array_free(value));
        }
        quern_kv_step step = {s.cache, at, count, 0};
        check_ok(quern_kv_attention(&y, x[0], x[1], x[2], form, &step, 1, o,
                                    stream));
        check_ok(mlx_array_eval(y));
        memcpy(out + at * HEADS * DIM, mlx_array_data_float32(y),
               mlx_array_nbytes(y));
        check_ok(mlx_array_free(y));
        for (int what = 0; what < 3; what++)
            check_ok(mlx_array_free(x[what]));
    }
    drop_sequence(&s);
}

/* A token that is NaN or infinite is seen by those behind it, up to the window,
 * and changes no bit of others: also where all are computed at once. */
static void test_nan_is_for_those_who_see_it(void **state)
{
    (void)state;
    enum { LENGTH = 200, WIDTH = HEADS * DIM };
    float *clean = results(LENGTH), *found = results(LENGTH);
    for (int f = 0; f < FORMS; f++)
        for (int n = 0; n < 6; n++) {
            quern_kv_options o = variant(n % 2);
            o.window = n % 3 == 2 ? 20 : 0;
            bad_from = -1;
            run_with_bad(LENGTH, LENGTH, &forms[f], &o, clean);
            bad_from = 90 + 7 * n + f;
            run_with_bad(LENGTH, n < 3 ? LENGTH : 3 + f, &forms[f], &o, found);
            int end = o.window ? bad_from + o.window : LENGTH;
            assert_memory_equal(found, clean,
                                (size_t)(bad_from * WIDTH) * sizeof *found);
            assert_memory_equal(found + end * WIDTH, clean + end * WIDTH,
                                (size_t)((LENGTH - end) * WIDTH) *
                                    sizeof *found);
            assert_false(isfinite(found[bad_from * WIDTH]));
        }
    free(clean);
    free(found);
}

static void test_wrong_planes_are_refused(void **state)
{
    (void)state;
    quern_kv_form form = turbo_form(0), other = turbo_form(2);
    quern_kv_options o = variant(0);
    float out[2 * HEADS * DIM];
    sequence s;
    int capacity = 0;
    run_alone(&own, 1, 2, 2, &form, &o, MLX_FLOAT32, out, &s);
    mlx_vector_array planes = planes_of(&s, &form);
    mlx_vector_array made = mlx_vector_array_new();
    check_fails(quern_kv_write(&made, &capacity, &other, planes, stream),
                "Plane 0");
    check_fails(fallback_kv_write(&made, &capacity, &other, planes, stream),
                "Plane 0");
    other = form;
    other.value_bits = 4;
    check_fails(quern_kv_write(&made, &capacity, &other, planes, stream),
                "Plane 3");
    check_fails(quern_kv_write(&made, &capacity, &forms[0], planes, stream),
                "2 arrays, found 5");
    check_fails(quern_kv_read(&made, &form, s.cache, 129, stream),
                "at most the 128 tokens");
    check_fails(quern_kv_read(&made, &form, s.cache, -1, stream), "found -1");
    check_ok(mlx_vector_array_free(planes));
    check_ok(mlx_vector_array_free(made));
    drop_sequence(&s);
}

/* What the engine refuses the fallback refuses, too, before it divides by a
 * group or slices by an offset. */
static void test_fallback_refuses(void **state)
{
    (void)state;
    quern_kv_form odd[] = {
        {2, 64, MLX_FLOAT16, 8, 0, 0, 0},   {2, 64, MLX_FLOAT16, 8, -32, 0, 0},
        {2, 64, MLX_FLOAT16, 3, 32, 0, 0},  {2, 48, MLX_FLOAT16, 4, 32, 0, 0},
        {0, 64, MLX_FLOAT16, 0, 0, 0, 0},   {2, -64, MLX_FLOAT16, 0, 0, 0, 0},
        {2, 64, MLX_INT32, 0, 0, 0, 0},     {2, 64, MLX_FLOAT16, 0, 0, 3, 3},
        {2, 64, MLX_FLOAT16, 0, 0, 0, 3},   {2, 96, MLX_FLOAT16, 0, 0, 8, 3},
        {2, 64, MLX_FLOAT16, 0, 0, 8, 127},
    };
    mlx_vector_array cache = mlx_vector_array_new(), none = {NULL};
    int capacity = 0;
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        check_fails(
            fallback_kv_room(&cache, &capacity, &odd[i], none, 9, stream), "");
        check_fails(fallback_kv_read(&cache, &odd[i], cache, 1, stream), "");
        check_fails(
            fallback_kv_write(&cache, &capacity, &odd[i], cache, stream), "");
        check_fails(quern_kv_room(&cache, &capacity, &odd[i], none, 9, stream),
                    "");
    }
    const quern_kv_form *form = &forms[7];
    quern_kv_options o = variant(0);
    share one = {0, 0, 4};
    mlx_array y = mlx_array_new(), x[3];
    for (int i = 0; i < 3; i++)
        x[i] = rows_of(&one, 1, i, MLX_FLOAT32);
    check_ok(fallback_kv_room(&cache, &capacity, form, none, 9, stream));
    const int places[][2] = {{-1, 4}, {125, 4}, {INT_MAX, 4}, {0, INT_MAX}};
    for (int i = 0; i < 4; i++) {
        quern_kv_step step = {cache, places[i][0], places[i][1], 0};
        check_fails(fallback_kv_attention(&y, x[0], x[1], x[2], form, &step, 1,
                                          &o, stream),
                    "do not fit a cache of 128");
    }
    quern_kv_step step = {cache, 0, 4, 0};
    for (int heads = -2; heads < 6; heads += 5) {
        o.heads = heads;
        check_fails(fallback_kv_attention(&y, x[0], x[1], x[2], form, &step, 1,
                                          &o, stream),
                    "heads of queries");
    }
    for (int i = 0; i < 3; i++)
        check_ok(mlx_array_free(x[i]));
    check_ok(mlx_array_free(y));
    check_ok(mlx_vector_array_free(cache));
}

/* Asking for less than there is gives what there is. */
static void test_room_does_not_shrink(void **state)
{
    (void)state;
    const engine *const engines[] = {&own, &fallback};
    mlx_vector_array none = {NULL};
    for (int e = 0; e < 2; e++)
        for (int f = 0; f < FORMS; f++) {
            int capacity = 0;
            mlx_vector_array a = mlx_vector_array_new();
            mlx_vector_array b = mlx_vector_array_new();
            check_ok(
                engines[e]->room(&a, &capacity, &forms[f], none, 300, stream));
            check_ok(engines[e]->room(&b, &capacity, &forms[f], a, 0, stream));
            assert_int_equal(capacity, 384);
            check_same_arrays(a, b);
            check_ok(mlx_vector_array_free(a));
            check_ok(mlx_vector_array_free(b));
        }
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
    form.key_bits = 3;
    form.value_bits = 3;
    check_fails(quern_kv_room(&cache, &capacity, &form, none, 100, stream),
                "found 3 and 3");
    form = turbo_form(0);
    form.head_dim = 96;
    check_fails(quern_kv_room(&cache, &capacity, &form, none, 100, stream),
                "found 96");
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
    quern_kv_step step = {cache, 125, 4, 0};
    check_fails(
        quern_kv_attention(&y, x[0], x[1], x[2], &form, &step, 1, &o, stream),
        "4 tokens behind 125");
    step = (quern_kv_step){cache, 0, 3, 0};
    check_fails(
        quern_kv_attention(&y, x[0], x[1], x[2], &form, &step, 1, &o, stream),
        "3 tokens, found 4");
    step = (quern_kv_step){cache, 0, 4, 0};
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

size_t fallback_kv_workspace(const quern_kv_form *form, mlx_dtype dtype,
                             int heads, int rope_dims, int rows, int keys);

/* More keys take no less, and nonsense nothing. */
static void test_workspace_grows_with_keys(void **state)
{
    (void)state;
    quern_kv_form form = {.kv_heads = 2, .head_dim = 64, .dtype = MLX_FLOAT16};
    size_t (*const all[])(const quern_kv_form *, mlx_dtype, int, int, int,
                          int) = {quern_kv_workspace, fallback_kv_workspace};
    for (int i = 0; i < 2; i++) {
        for (int rows = 1; rows <= 512; rows *= 2) {
            size_t few = all[i](&form, MLX_FLOAT32, 8, 64, rows, rows);
            size_t many = all[i](&form, MLX_FLOAT32, 8, 64, rows, 8192);
            assert_true(few && many >= few);
            assert_true(all[i](&form, MLX_FLOAT32, 8, 0, rows, rows) < few);
        }
        assert_int_equal(all[i](&form, MLX_FLOAT32, 1, 64, 1, 1), 0);
        assert_int_equal(all[i](&form, MLX_FLOAT32, 8, 64, 0, 1), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_rows_are_independent),
        cmocka_unit_test(test_others_agree),
        cmocka_unit_test(test_rows_that_are_stored_are_attended_to),
        cmocka_unit_test(test_held_arrays_keep_their_content),
        cmocka_unit_test(test_turbo_bytes),
        cmocka_unit_test(test_planes_there_and_back),
        cmocka_unit_test(test_fallback_planes),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_other_shapes),
        cmocka_unit_test(test_nan_is_for_those_who_see_it),
        cmocka_unit_test(test_wrong_planes_are_refused),
        cmocka_unit_test(test_room_does_not_shrink),
        cmocka_unit_test(test_fallback_refuses),
        cmocka_unit_test(test_tokens_that_nobody_sees_can_be_dropped),
        cmocka_unit_test(test_wrong_drops_are_refused),
        cmocka_unit_test(test_wrong_calls_are_refused),
        cmocka_unit_test(test_workspace_grows_with_keys),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
