/* A row has the bits that it has alone: products of dense, packed and panel
 * matrices and attention, over random shapes, layouts and types, for 1 to 8
 * threads.  Whole, in random pieces, and row by row. */
#include "support/qn_cpu_test.h"

#include "backend/cpu/kernels/bfdot/bfdot.h"
#include "backend/cpu/kernels/gemm/gemm.h"
#include "backend/cpu/kernels/rowdot/rowdot.h"

enum { THREADS = 8, WHOLE_ROWS = 6 };

static uint64_t seed;

/* 0 .. below - 1. */
static int pick(int below)
{
    int i = (int)((test_random(&seed) + 1) / 2 * below);
    return i < below ? i : below - 1;
}

/* Mostly small, at times past a block or a panel. */
static int size_upto(int most)
{
    int below = pick(3) ? 1 + most / 8 : most;
    return 1 + pick(below);
}

/* Rows first .. first + count of a result, whose first axis is rows. */
static void check_rows(const char *what, qn_array *part, qn_array *whole,
                       int first, int threads)
{
    size_t row = whole->size / (size_t)whole->shape[0];
    for (size_t i = 0; i < part->size; i++)
        if (memcmp(place_of(part, i), place_of(whole, (size_t)first * row + i),
                   qn_array_itemsize(whole))) {
            print_error("%s, %d x %zu: rows %d to %d with %d threads: element "
                        "%zu of row %d is %.9g, %.9g with the others\n",
                        what, whole->shape[0], row, first,
                        first + part->shape[0], threads, i % row,
                        first + (int)(i / row), item(part, i),
                        item(whole, (size_t)first * row + i));
            fail();
        }
}

/* A product of `x`, [rows, k], with something; the result has as many rows. */
typedef qn_array *(*product_fn)(void *ctx, qn_array *x);

static qn_array *rows_of(qn_array *x, int first, int count)
{
    return view_of(x, SHAPE(count, x->shape[1]), x->strides,
                   (size_t)(first * x->strides[0]));
}

static void check_part(const char *what, product_fn product, void *ctx,
                       qn_array *x, qn_array *whole, int first, int count)
{
    int threads = 1 + pick(THREADS);
    qn_pool_set_threads(threads);
    qn_array *rows = rows_of(x, first, count), *part = product(ctx, rows);
    check_rows(what, part, whole, first, threads);
    qn_array_unref(part);
    qn_array_unref(rows);
}

/* Gives x up. */
static void check_product(const char *what, product_fn product, void *ctx,
                          qn_array *x)
{
    int m = x->shape[0];
    qn_pool_set_threads(1);
    qn_array *whole = product(ctx, x);
    for (int threads = 2; threads <= THREADS; threads += 1 + pick(3)) {
        qn_pool_set_threads(threads);
        qn_array *again = product(ctx, x);
        check_rows(what, again, whole, 0, threads);
        qn_array_unref(again);
    }
    for (int i = 0; i < WHOLE_ROWS; i++)
        check_part(what, product, ctx, x, whole,
                   m > WHOLE_ROWS ? pick(m) : i % m, 1);
    for (int first = 0; first < m;) {
        int count = 1 + pick(m - first);
        check_part(what, product, ctx, x, whole, first, count);
        first += count;
    }
    qn_pool_set_threads(0);
    qn_array_unref(whole);
    qn_array_unref(x);
}

/* Random numbers as rows, as columns, in steps, or with gaps between rows. */
static qn_array *matrix(qn_dtype type, int rows, int columns)
{
    const int64_t layouts[][2] = {{columns, 1},
                                  {1, rows},
                                  {columns + 3, 1},
                                  {1, rows + 2},
                                  {2 * (int64_t)columns + 1, 2}};
    qn_array *room =
        random_array(type, 1, seed, SHAPE((rows + 2) * (columns + 3) * 2));
    test_random(&seed);
    qn_array *view =
        view_of(room, SHAPE(rows, columns), layouts[pick(5)], (size_t)pick(3));
    qn_array_unref(room);
    return view;
}

/* Makes the far half of axis 0 or 1 the near one, mirrored, times `sign`, and
 * what is between them zero.  Then the sums of a product are nothing but what
 * was rounded away on the way, and another order shows in any type. */
static void mirror(qn_array *a, int axis, double sign)
{
    int rows = a->shape[0], columns = a->shape[1], length = a->shape[axis];
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < columns; j++) {
            int at = axis ? j : i, from = length - 1 - at;
            if (at < from)
                continue;
            int near = axis ? i * columns + from : from * columns + j;
            double value = sign * item(a, (size_t)near);
            element_put(place_of(a, (size_t)(i * columns + j)), a->dtype,
                        at == from ? 0 : value);
        }
}

static qn_array *times_dense(void *ctx, qn_array *x)
{
    qn_array *b = ctx;
    return apply(QN_OP_MATMUL, NULL, 0, x->dtype,
                 SHAPE(x->shape[0], b->shape[1]), INPUTS(x, b));
}

static void test_dense_products(void **state)
{
    (void)state;
    seed = 1;
    use_fast();
    for (int round = 0; round < 180; round++) {
        qn_dtype type = float_types[round % FLOAT_TYPES];
        int m = size_upto(100), n = size_upto(400), k = size_upto(1500);
        qn_array *b = matrix(type, k, n), *a = matrix(type, m, k);
        if (round % 2) {
            mirror(a, 1, 1);
            mirror(b, 0, -1);
        }
        check_product(qn_dtype_name(type), times_dense, b, a);
        qn_array_unref(b);
    }
    /* K beyond the blocks of every kernel. */
    for (int t = 0; t < FLOAT_TYPES; t++)
        for (int layout = 0; layout < 2; layout++) {
            int k = 2 * QN_BFDOT_DEPTH + 1 + pick(9), m = 10 + pick(9);
            qn_array *w = random_array(float_types[t], 1, seed, SHAPE(k, 37));
            const int64_t steps[][2] = {{37, 1}, {1, k}};
            qn_array *b = view_of(w, w->shape, 2, steps[layout], 0);
            qn_array *a = random_array(float_types[t], 1, seed, SHAPE(m, k));
            mirror(a, 1, 1);
            mirror(b, 0, -1);
            check_product("long", times_dense, b, a);
            qn_array_unref(b);
            qn_array_unref(w);
        }
}

typedef struct packed {
    qn_quant_params p;
    qn_array *w, *scales, *biases;
    int n;
} packed;

static qn_array *words(int rows, int columns)
{
    qn_array *w = array_of(QN_UINT32, NULL, SHAPE(rows, columns));
    for (size_t i = 0; i < w->size; i++)
        element_put(place_of(w, i), QN_UINT32,
                    floor((test_random(&seed) + 1) * 0x1p31));
    return w;
}

static qn_array *times_packed(void *ctx, qn_array *x)
{
    const packed *q = ctx;
    return apply(QN_OP_QUANTIZED_MATMUL, &q->p, sizeof q->p, x->dtype,
                 SHAPE(x->shape[0], q->n),
                 INPUTS(x, q->w, q->scales, q->biases));
}

static void test_packed_products(void **state)
{
    (void)state;
    static const int bits[] = {2, 3, 4, 5, 6, 8};
    seed = 2;
    use_fast();
    for (int round = 0; round < 90; round++) {
        packed q;
        memset(&q, 0, sizeof q);
        qn_dtype type = float_types[round % FLOAT_TYPES];
        q.p.bits = bits[pick(6)];
        q.p.group_size = 32 << pick(3);
        q.p.transpose = pick(3) > 0;
        /* Rows of the packed matrix are whole groups. */
        int along = q.p.group_size * size_upto(12), other = size_upto(300);
        int k = q.p.transpose ? along : other;
        q.n = q.p.transpose ? other : along;
        int rows = q.p.transpose ? q.n : k;
        int groups = along / q.p.group_size;
        q.w = words(rows, along * q.p.bits / 32);
        q.scales = random_array(type, 0.1, seed, SHAPE(rows, groups));
        q.biases = random_array(type, 1, seed + 1, SHAPE(rows, groups));
        check_product("packed", times_packed, &q,
                      random_array(pick(2) ? QN_FLOAT32 : type, 1, seed,
                                   SHAPE(size_upto(80), k)));
        qn_array_unref(q.w);
        qn_array_unref(q.scales);
        qn_array_unref(q.biases);
    }
}

typedef struct panels {
    qn_panel_matmul_params p;
    qn_array *panels, *norm; /* or NULL */
} panels;

static qn_array *times_panels(void *ctx, qn_array *x)
{
    const panels *w = ctx;
    qn_array *out;
    check_status(qn_op_panel_matmul(&out, x, w->panels, w->norm, NULL, &w->p,
                                    test_stream()),
                 QN_OK);
    check_status(qn_eval(&out, 1), QN_OK);
    return out;
}

static void test_panel_products(void **state)
{
    (void)state;
    static const int bits[] = {4, 8, 6, 5};
    seed = 3;
    use_fast();
    for (int round = 0; round < 60; round++) {
        qn_dtype type = float_types[round % FLOAT_TYPES];
        panels w = {.p = {.eps = 1e-5f}};
        qn_panel_form form = {.bits = bits[round % 4],
                              .group = 32,
                              .biased = true,
                              .scale_type = float_types[pick(3)]};
        /* Long rows: a few of them are shared by their columns. */
        int n = size_upto(300), k = 32 * size_upto(round % 3 ? 40 : 400);
        w.p.w.form = form;
        w.p.w.count = 1;
        w.p.w.cols = k;
        w.p.w.rows[0] = n;
        qn_array *codes = words(n, k * form.bits / 32);
        qn_array *scales =
            random_array(form.scale_type, 0.1, seed, SHAPE(n, k / 32));
        qn_array *biases =
            random_array(form.scale_type, 1, seed + 1, SHAPE(n, k / 32));
        check_status(qn_op_panel_pack(&w.panels, &form, 1, &codes, &scales,
                                      &biases, test_stream()),
                     QN_OK);
        check_status(qn_eval(&w.panels, 1), QN_OK);
        qn_dtype of_x = pick(2) ? QN_FLOAT32 : type;
        w.norm = pick(2) ? random_array(of_x, 1, seed + 2, SHAPE(k)) : NULL;
        check_product("panels", times_panels, &w,
                      random_array(of_x, 1, seed, SHAPE(size_upto(80), k)));
        qn_array_unref(codes);
        qn_array_unref(scales);
        qn_array_unref(biases);
        qn_array_unref(w.panels);
        qn_array_unref(w.norm);
    }
}

/* ---- attention ---- */

typedef struct attention {
    qn_array *q, *k, *v; /* [1, heads, length, d] */
} attention;

/* Of queries first .. first + count, each with the keys up to its own. */
static qn_array *attend(const attention *a, int first, int count)
{
    qn_sdpa_params params;
    memset(&params, 0, sizeof params);
    params.scale = 0.2f;
    params.causal = true;
    int d = a->q->shape[3];
    int keys = a->k->shape[2] - (a->q->shape[2] - first - count);
    qn_array *q = view_of(a->q, SHAPE(1, a->q->shape[1], count, d),
                          a->q->strides, (size_t)(first * a->q->strides[2]));
    qn_array *k =
        view_of(a->k, SHAPE(1, a->k->shape[1], keys, d), a->k->strides, 0);
    qn_array *v =
        view_of(a->v, SHAPE(1, a->v->shape[1], keys, d), a->v->strides, 0);
    qn_array *out = apply(QN_OP_SDPA, &params, sizeof params, QN_FLOAT32,
                          SHAPE(1, a->q->shape[1], count, d), INPUTS(q, k, v));
    qn_array_unref(q);
    qn_array_unref(k);
    qn_array_unref(v);
    return out;
}

static void check_attention(const attention *a, qn_array *whole, int first,
                            int count)
{
    int heads = a->q->shape[1], queries = a->q->shape[2], d = a->q->shape[3];
    int threads = 1 + pick(THREADS);
    qn_pool_set_threads(threads);
    qn_array *part = attend(a, first, count);
    for (int h = 0; h < heads; h++)
        for (int i = 0; i < count * d; i++) {
            void *found = place_of(part, (size_t)(h * count * d + i));
            void *expected =
                place_of(whole, (size_t)((h * queries + first) * d + i));
            if (memcmp(found, expected, sizeof(float))) {
                print_error("%d queries, %d keys, %d heads of %d: head %d, "
                            "query %d of %d to %d, %d threads\n",
                            queries, a->k->shape[2], heads, d, h, first + i / d,
                            first, first + count, threads);
                fail();
            }
        }
    qn_array_unref(part);
}

static void test_attention(void **state)
{
    (void)state;
    static const int widths[] = {32, 64, 80, 128};
    seed = 4;
    use_fast();
    for (int round = 0; round < 40; round++) {
        int queries = size_upto(60), keys = queries + pick(600);
        int kv_heads = 1 + pick(3), heads = kv_heads * (1 + pick(4));
        int d = widths[pick(4)];
        qn_dtype type = float_types[round % FLOAT_TYPES];
        attention a = {
            random_array(QN_FLOAT32, 2, seed, SHAPE(1, heads, queries, d)),
            random_array(type, 2, seed + 1, SHAPE(1, kv_heads, keys, d)),
            random_array(type, 2, seed + 2, SHAPE(1, kv_heads, keys, d))};
        qn_pool_set_threads(1);
        qn_array *whole = attend(&a, 0, queries);
        for (int i = 0; i < 4; i++)
            check_attention(&a, whole, 0, queries);
        for (int i = 0; i < WHOLE_ROWS; i++)
            check_attention(&a, whole, pick(queries), 1);
        for (int first = 0; first < queries;) {
            int count = 1 + pick(queries - first);
            check_attention(&a, whole, first, count);
            first += count;
        }
        qn_pool_set_threads(0);
        qn_array_unref(whole);
        qn_array_unref(a.q);
        qn_array_unref(a.k);
        qn_array_unref(a.v);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dense_products),
        cmocka_unit_test(test_packed_products),
        cmocka_unit_test(test_panel_products),
        cmocka_unit_test(test_attention),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
