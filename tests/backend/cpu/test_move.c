/* Copies, slice updates, concatenation and gathering: the bytes of the
 * reference, whatever the layout, type and number of threads. */
#include "support/qn_cpu_test.h"

#include "backend/cpu/kernels/transpose/transpose.h"

static const qn_dtype types[] = {QN_BOOL, QN_FLOAT16, QN_FLOAT32, QN_INT64,
                                 QN_COMPLEX64};
enum { TYPES = sizeof types / sizeof *types };

static qn_array *numbered(qn_dtype dtype, const int *shape, int ndim)
{
    qn_array *a = array_of(dtype, NULL, shape, ndim);
    for (size_t i = 0; i < a->size; i++)
        element_put(place_of(a, i), dtype, (double)(i % 97));
    return a;
}

typedef qn_array *(*node_fn)(void *ctx);

/* With the reference, then with any number of threads: the same bytes. */
static void check_same(node_fn node, void *ctx)
{
    use_reference();
    qn_array *expected = node(ctx);
    use_fast();
    for (int t = 0; t < THREAD_COUNTS; t++) {
        qn_pool_set_threads(thread_counts[t]);
        qn_array *found = node(ctx);
        assert_true(same_bits(found, expected));
        qn_array_unref(found);
    }
    qn_pool_set_threads(0);
    qn_array_unref(expected);
}

static qn_array *copy_node(void *ctx)
{
    qn_array *x = ctx;
    return apply(QN_OP_COPY, NULL, 0, x->dtype, x->shape, x->ndim, INPUTS(x));
}

static qn_array *flatten_node(void *ctx)
{
    qn_array *x = ctx;
    return apply(QN_OP_RESHAPE, NULL, 0, x->dtype, SHAPE((int)x->size),
                 INPUTS(x));
}

static qn_array *contiguous_node(void *ctx)
{
    qn_array *x = ctx;
    qn_contiguous_params p = {false};
    return apply(QN_OP_CONTIGUOUS, &p, sizeof p, x->dtype, x->shape, x->ndim,
                 INPUTS(x));
}

/* Turned axes, every second element, backwards, repeated, large. */
static void test_copies(void **state)
{
    (void)state;
    static const int64_t steps[][3] = {
        {35 * 64, 64, 1}, {64, 12 * 64, 1}, {1, 12 * 64, 12}, {4480, 128, 2},
        {-2240, -64, -1}, {0, 64, 1},       {2240, 0, 1},     {2240, 64, 0}};
    for (int t = 0; t < TYPES; t++)
        for (size_t s = 0; s < sizeof steps / sizeof *steps; s++) {
            qn_array *room = numbered(types[t], SHAPE(12 * 35 * 64 * 2));
            size_t first = steps[s][0] < 0 ? 12 * 35 * 64 - 1 : 0;
            qn_array *x = view_of(room, SHAPE(12, 35, 64), steps[s], first);
            check_same(copy_node, x);
            check_same(flatten_node, x);
            check_same(contiguous_node, x);
            qn_array_unref(x);
            qn_array_unref(room);
        }
    qn_array *none = array_of(QN_FLOAT32, NULL, SHAPE(3, 0, 2));
    check_same(copy_node, none);
    qn_array_unref(none);
}

static qn_array *full_node(void *ctx)
{
    qn_array *x = ctx;
    return apply(QN_OP_FULL, NULL, 0, x->dtype, SHAPE(5, 40, 35, 64),
                 INPUTS(x));
}

/* One value, one for each row or column, axes that are missing; backwards. */
static void test_values_are_repeated(void **state)
{
    (void)state;
    static const struct {
        int shape[3], ndim;
    } rows[] = {{{1}, 0},         {{1, 1, 1}, 3},  {{64}, 1},
                {{35, 1}, 2},     {{40, 1, 1}, 3}, {{40, 35, 64}, 3},
                {{1, 35, 64}, 3}, {{40, 1, 64}, 3}};
    for (int t = 0; t < TYPES; t++)
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
            qn_array *x = numbered(types[t], rows[i].shape, rows[i].ndim);
            check_same(full_node, x);
            qn_array_unref(x);
        }
    qn_array *room = numbered(QN_FLOAT32, SHAPE(64));
    qn_array *back = view_of(room, SHAPE(64), (const int64_t[]){-1}, 63);
    check_same(full_node, back);
    qn_array_unref(back);
    qn_array_unref(room);
}

/* Blocks alone, each level: every element at its own place. */
static void test_blocks_are_transposed(void **state)
{
    (void)state;
    static const size_t sizes[] = {1, 2, 4, 8};
    enum { LINE = QN_TRANSPOSE_LINE, ROOM = LINE * 200 };
    static _Alignas(64) unsigned char from[ROOM], to[ROOM];
    uint64_t seed = 6;
    for (size_t i = 0; i < sizeof from; i++)
        from[i] = (unsigned char)(127 * test_random(&seed));
    for (int isa = QN_ISA_NONE; isa < QN_ISA_COUNT; isa++)
        for (int k = 0; k < 4 * 3; k++) {
            const qn_transpose_kernel *kernel = qn_transpose_at((qn_isa)isa);
            size_t size = sizes[k % 4], side = LINE / size;
            /* Rows apart, and the target's on lines or not. */
            size_t from_row = LINE + 3 * size, shift = k / 4 == 2 ? size : 0;
            size_t to_row = 2 * LINE + shift;
            if (!kernel)
                continue;
            memset(to, 0, sizeof to);
            kernel->block[k % 4](to + shift, (int64_t)to_row, from,
                                 (int64_t)from_row, k / 4 == 1);
            kernel->fence();
            for (size_t i = 0; i < side; i++)
                for (size_t j = 0; j < side; j++)
                    assert_memory_equal(to + shift + j * to_row + i * size,
                                        from + i * from_row + j * size, size);
            for (size_t j = 0; j < side; j++)
                assert_int_equal(to[shift + j * to_row + LINE], 0);
        }
}

/* Results that are written around the caches; edges that fill no block. */
static void test_large_copies(void **state)
{
    (void)state;
    enum { ROWS = 2000, COLUMNS = 2112 };
    for (int t = 0; t < TYPES; t++)
        for (int rest = 0; rest < 2; rest++) {
            int rows = ROWS - 5 * rest, columns = COLUMNS - 3 * rest;
            qn_array *room = numbered(types[t], SHAPE(rows, columns + 1));
            int64_t turned[] = {1, columns + 1};
            int64_t straight[] = {columns + 1, 1};
            qn_array *x = view_of(room, SHAPE(columns, rows), turned, 0);
            qn_array *y = view_of(room, SHAPE(rows, columns), straight, 1);
            check_same(copy_node, x);
            check_same(copy_node, y);
            qn_array_unref(x);
            qn_array_unref(y);
            qn_array_unref(room);
        }
}

typedef struct update {
    qn_array *source, *update;
    qn_slice_update_params p;
} update;

static qn_array *update_node(void *ctx)
{
    update *u = ctx;
    return apply(QN_OP_SLICE_UPDATE, &u->p, sizeof u->p, u->source->dtype,
                 u->source->shape, u->source->ndim,
                 INPUTS(u->source, u->update));
}

static void test_slice_updates(void **state)
{
    (void)state;
    for (int t = 0; t < TYPES; t++)
        for (int variant = 0; variant < 4; variant++) {
            update u;
            memset(&u, 0, sizeof u);
            u.source = numbered(types[t], SHAPE(1, 3, 700, 64));
            bool strides = variant & 1, turned = variant & 2;
            int count = 300;
            u.update = numbered(types[t], SHAPE(1, 3, count, 64));
            if (turned) {
                qn_array *plain = u.update;
                u.update = view_of(plain, plain->shape, 4,
                                   (const int64_t[]){1, 64, 3 * 64, 1}, 0);
                qn_array_unref(plain);
            }
            for (int axis = 0; axis < 4; axis++)
                u.p.strides[axis] = 1;
            u.p.start[2] = strides ? 699 : 37;
            u.p.strides[2] = strides ? -2 : 1;
            check_same(update_node, &u);
            qn_array_unref(u.source);
            qn_array_unref(u.update);
        }
    update none;
    memset(&none, 0, sizeof none);
    none.source = numbered(QN_FLOAT32, SHAPE(4, 4));
    none.update = array_of(QN_FLOAT32, NULL, SHAPE(0, 4));
    none.p.strides[0] = none.p.strides[1] = 1;
    none.p.start[0] = 4;
    check_same(update_node, &none);
    qn_array_unref(none.source);
    qn_array_unref(none.update);
}

/* A cache that only the node holds is written in place. */
static void test_a_dying_source_is_updated_in_place(void **state)
{
    (void)state;
    use_fast();
    qn_array *seed = numbered(QN_FLOAT16, SHAPE(3, 5000, 64));
    qn_array *row = numbered(QN_FLOAT16, SHAPE(3, 1, 64)), *cache, *out;
    qn_node_spec spec = {.op = QN_OP_COPY,
                         .stream = test_stream(),
                         .inputs = &seed,
                         .ninputs = 1};
    check_status(qn_node_new(&cache, &spec, QN_FLOAT16, seed->shape, 3), QN_OK);
    check_status(qn_eval(&cache, 1), QN_OK);
    qn_slice_update_params p;
    memset(&p, 0, sizeof p);
    p.start[1] = 4321;
    p.strides[0] = p.strides[1] = p.strides[2] = 1;
    spec = (qn_node_spec){.op = QN_OP_SLICE_UPDATE,
                          .stream = test_stream(),
                          .inputs = (qn_array *[]){cache, row},
                          .ninputs = 2,
                          .params = &p,
                          .params_size = sizeof p};
    check_status(qn_node_new(&out, &spec, QN_FLOAT16, cache->shape, 3), QN_OK);
    const void *before = qn_array_data(cache);
    qn_array_unref(cache);
    check_status(qn_eval(&out, 1), QN_OK);
    assert_ptr_equal(qn_array_data(out), before);
    for (size_t i = 0; i < out->size; i++) {
        size_t h = i / (5000 * 64), t = i / 64 % 5000, d = i % 64;
        double expected = t == 4321 ? item(row, h * 64 + d) : item(seed, i);
        assert_true(item(out, i) == expected);
    }
    qn_array_unref(out);
    qn_array_unref(seed);
    qn_array_unref(row);
}

typedef struct joined {
    qn_array *parts[3];
    int shape[3];
    qn_axis_params p;
} joined;

static qn_array *concatenate_node(void *ctx)
{
    joined *j = ctx;
    return apply(QN_OP_CONCATENATE, &j->p, sizeof j->p, j->parts[0]->dtype,
                 j->shape, 3, 3, j->parts);
}

static void test_concatenation(void **state)
{
    (void)state;
    for (int t = 0; t < TYPES; t++)
        for (int axis = 0; axis < 3; axis++) {
            joined j = {.shape = {30, 40, 50}, .p = {axis}};
            j.shape[axis] = 0;
            for (int i = 0; i < 3; i++) {
                int shape[] = {30, 40, 50};
                shape[axis] = i * 31; /* the first is empty */
                j.parts[i] = numbered(types[t], shape, 3);
                if (i == 2)
                    j.parts[i] = strided(j.parts[i]);
                j.shape[axis] += shape[axis];
            }
            check_same(concatenate_node, &j);
            for (int i = 0; i < 3; i++)
                qn_array_unref(j.parts[i]);
        }
}

typedef struct gathered {
    qn_array *source, *index;
    qn_gather_params p;
} gathered;

static qn_array *gather_node(void *ctx)
{
    gathered *g = ctx;
    int shape[QN_MAX_NDIM], n = 0;
    for (int axis = 0; axis < g->index->ndim; axis++)
        shape[n++] = g->index->shape[axis];
    for (int axis = 0; axis < g->source->ndim; axis++)
        shape[n++] = g->p.slice_sizes[axis];
    return apply(QN_OP_GATHER, &g->p, sizeof g->p, g->source->dtype, shape, n,
                 INPUTS(g->source, g->index));
}

/* Indices of every type, from either end and outside. */
static void test_rows_are_gathered(void **state)
{
    (void)state;
    static const qn_dtype index_types[] = {QN_INT8,   QN_UINT8, QN_INT16,
                                           QN_UINT16, QN_INT32, QN_UINT32,
                                           QN_INT64,  QN_UINT64};
    for (int t = 0; t < TYPES; t++)
        for (int k = 0; k < 8; k++)
            for (int apart = 0; apart < 2; apart++) {
                gathered g;
                memset(&g, 0, sizeof g);
                g.source = numbered(types[t], SHAPE(100, 3, 20));
                if (apart) {
                    qn_array *whole = g.source;
                    g.source = view_of(whole, SHAPE(50, 3, 20),
                                       (const int64_t[]){120, 20, 1}, 0);
                    qn_array_unref(whole);
                }
                bool is_signed = k % 2 == 0;
                g.index = array_of(index_types[k], NULL, SHAPE(4, 300));
                for (size_t i = 0; i < g.index->size; i++) {
                    double at = (double)(i * 7 % 120);
                    if (is_signed)
                        at -= 60;
                    element_put(place_of(g.index, i), index_types[k], at);
                }
                g.p.naxes = 1;
                g.p.slice_sizes[0] = 1;
                g.p.slice_sizes[1] = 3;
                g.p.slice_sizes[2] = 20;
                check_same(gather_node, &g);
                qn_array_unref(g.source);
                qn_array_unref(g.index);
            }
    /* The largest index there is. */
    gathered g;
    memset(&g, 0, sizeof g);
    g.source = numbered(QN_FLOAT32, SHAPE(5, 2));
    g.index = array_of(QN_UINT64, NULL, SHAPE(1));
    *(uint64_t *)place_of(g.index, 0) = UINT64_MAX;
    g.p.naxes = 1;
    g.p.slice_sizes[0] = 1;
    g.p.slice_sizes[1] = 2;
    use_fast();
    check_items(gather_node(&g), 8, 9);
    qn_array_unref(g.source);
    qn_array_unref(g.index);
}

static qn_array *along_node(void *ctx)
{
    gathered *g = ctx;
    qn_axis_params p = {g->p.axes[0]};
    return apply(QN_OP_GATHER_AXIS, &p, sizeof p, g->source->dtype,
                 g->index->shape, g->index->ndim, INPUTS(g->source, g->index));
}

static void test_elements_are_taken_along_an_axis(void **state)
{
    (void)state;
    static const qn_dtype index_types[] = {QN_INT32, QN_INT64, QN_UINT32};
    for (int t = 0; t < TYPES; t++)
        for (int axis = 0; axis < 2; axis++)
            for (int layout = 0; layout < 4; layout++) {
                gathered g;
                memset(&g, 0, sizeof g);
                bool once = layout & 2;
                g.source = numbered(types[t], SHAPE(axis && once ? 1 : 60,
                                                    !axis && once ? 1 : 50));
                g.index = array_of(index_types[t % 3], NULL,
                                   SHAPE(axis ? 60 : 300, axis ? 300 : 50));
                for (size_t i = 0; i < g.index->size; i++)
                    element_put(place_of(g.index, i), g.index->dtype,
                                (double)(i * 11 % 80) - (t % 3 < 2 ? 40 : 0));
                if (layout & 1) {
                    g.source = strided(g.source);
                    g.index = strided(g.index);
                }
                g.p.axes[0] = axis;
                check_same(along_node, &g);
                qn_array_unref(g.source);
                qn_array_unref(g.index);
            }
}

/* What is not rows along the first axis goes to the reference. */
static void test_other_gathers_fall_back(void **state)
{
    (void)state;
    gathered g;
    memset(&g, 0, sizeof g);
    g.source = numbered(QN_FLOAT32, SHAPE(6, 5));
    g.index = array_of(QN_INT32, VALUES(1, 4), SHAPE(2));
    g.p.naxes = 1;
    g.p.axes[0] = 1;
    g.p.slice_sizes[0] = 6;
    g.p.slice_sizes[1] = 1;
    use_reference();
    qn_array *expected = gather_node(&g);
    use_cpu();
    qn_array *found = gather_node(&g);
    assert_true(same_bits(found, expected));
    qn_array_unref(found);
    qn_array_unref(expected);
    qn_array_unref(g.source);
    qn_array_unref(g.index);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_copies),
        cmocka_unit_test(test_values_are_repeated),
        cmocka_unit_test(test_blocks_are_transposed),
        cmocka_unit_test(test_large_copies),
        cmocka_unit_test(test_slice_updates),
        cmocka_unit_test(test_a_dying_source_is_updated_in_place),
        cmocka_unit_test(test_concatenation),
        cmocka_unit_test(test_rows_are_gathered),
        cmocka_unit_test(test_elements_are_taken_along_an_axis),
        cmocka_unit_test(test_other_gathers_fall_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
