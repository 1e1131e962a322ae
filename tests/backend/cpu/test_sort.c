/* Order along an axis: nodes against the reference over types, lengths, axes
 * and layouts, bit by bit; equal elements, zeros and NaN; partitions by what
 * they promise; the same bits for any number of threads. */
#include "support/qn_cpu_test.h"

static qn_array *sorted(qn_array *x, int axis, bool indices)
{
    qn_axis_params p = {axis};
    return apply(indices ? QN_OP_ARGSORT : QN_OP_SORT, &p, sizeof p,
                 indices ? QN_UINT32 : x->dtype, x->shape, x->ndim, INPUTS(x));
}

static qn_array *partitioned(qn_array *x, int axis, int kth, bool indices)
{
    qn_partition_params p = {axis, kth};
    return apply(indices ? QN_OP_ARGPARTITION : QN_OP_PARTITION, &p, sizeof p,
                 indices ? QN_UINT32 : x->dtype, x->shape, x->ndim, INPUTS(x));
}

/* How values are spread. */
typedef enum spread {
    BITS,     /* any bits at all: NaN with payloads, denormals */
    FEW,      /* many equal ones, zeros of both signs */
    CLOSE,    /* the high bits agree */
    ONE,      /* all equal */
    BACKWARDS /* from the last to the first */
} spread;
enum { SPREADS = 5 };

static qn_array *values_of(qn_dtype dtype, spread how, const int *shape,
                           int ndim)
{
    qn_array *x = array_of(dtype, NULL, shape, ndim);
    size_t size = qn_dtype_size(dtype);
    uint64_t seed = 3;
    for (size_t i = 0; i < x->size; i++) {
        double r = test_random(&seed);
        void *at = place_of(x, i);
        uint64_t bits = seed ^ seed >> 31;
        if (how == BITS)
            memcpy(at, &bits, size);
        else if (how == FEW)
            element_put(at, dtype, (double)(int)(8 * r) * (r > 0.5 ? 1 : -1));
        else if (how == CLOSE)
            element_put(at, dtype, 100 + 0.01 * r);
        else if (how == ONE)
            element_put(at, dtype, 5);
        else
            element_put(at, dtype, (double)(x->size - i) / 16);
        if (how == FEW && dtype != QN_BOOL && qn_dtype_is_float(dtype) &&
            i % 7 == 0)
            element_put(at, dtype, i % 2 ? -0.0 : 0.0);
        if (dtype == QN_BOOL)
            *(uint8_t *)at = r > 0.2;
    }
    return x;
}

static void check_order(qn_array *x, int axis)
{
    for (int indices = 0; indices < 2; indices++) {
        use_reference();
        qn_array *expected = sorted(x, axis, indices);
        use_fast();
        for (int t = 0; t < 2; t++) {
            qn_pool_set_threads(t ? 3 : 1);
            qn_array *found = sorted(x, axis, indices);
            if (!same_bits(found, expected)) {
                print_error("%s of %s, %d along axis %d\n",
                            indices ? "argsort" : "sort",
                            qn_dtype_name(x->dtype), x->shape[axis], axis);
                fail();
            }
            qn_array_unref(found);
        }
        qn_pool_set_threads(0);
        qn_array_unref(expected);
    }
}

static void test_every_type_and_length(void **state)
{
    (void)state;
    static const int lengths[] = {1, 2, 39, 41, 255, 601, 3000, 33000, 70000};
    for (int d = 0; d < QN_DTYPE_COUNT; d++)
        for (int how = 0; how < SPREADS; how++)
            for (int n = 0; n < 9; n++) {
                qn_array *x =
                    values_of((qn_dtype)d, (spread)how, SHAPE(lengths[n]));
                check_order(x, 0);
                qn_array_unref(x);
            }
}

static void test_axes_and_layouts(void **state)
{
    (void)state;
    static const qn_dtype types[] = {QN_FLOAT32, QN_BFLOAT16, QN_INT64,
                                     QN_COMPLEX64};
    static const int shapes[][3] = {{3, 50, 7}, {45, 2, 60}, {1, 33000, 2}};
    for (int s = 0; s < 3; s++)
        for (int t = 0; t < 4; t++) {
            qn_array *x = values_of(types[t], FEW, shapes[s], 3);
            qn_array *y = strided(values_of(types[t], BITS, shapes[s], 3));
            for (int axis = 0; axis < 3; axis++) {
                check_order(x, axis);
                check_order(y, axis);
            }
            qn_array_unref(x);
            qn_array_unref(y);
        }
}

/* What a partition promises, told by the reference's sort: the kth element is
 * in its place, smaller ones are before it; all elements are there. */
static void check_partition(qn_array *x, int kth)
{
    use_reference();
    qn_array *order = sorted(x, 0, true), *all = sorted(x, 0, false);
    use_fast();
    qn_array *parted = partitioned(x, 0, kth, false);
    qn_array *places = partitioned(x, 0, kth, true);
    qn_array *again = sorted(parted, 0, false);
    assert_true(same_bits(again, all));
    assert_memory_equal(place_of(parted, (size_t)kth),
                        place_of(all, (size_t)kth), qn_array_itemsize(x));
    size_t n = x->size;
    uint32_t *rank = calloc(n, sizeof *rank), *seen = calloc(n, sizeof *seen);
    for (size_t i = 0; i < n; i++)
        rank[((uint32_t *)qn_array_data(order))[i]] = (uint32_t)i;
    for (size_t i = 0; i < n; i++) {
        uint32_t at = ((uint32_t *)qn_array_data(places))[i];
        assert_false(seen[at]++);
        assert_true(i < (size_t)kth   ? rank[at] < (uint32_t)kth
                    : i > (size_t)kth ? rank[at] > (uint32_t)kth
                                      : rank[at] == (uint32_t)kth);
    }
    free(rank);
    free(seen);
    qn_array_unref(order);
    qn_array_unref(all);
    qn_array_unref(parted);
    qn_array_unref(places);
    qn_array_unref(again);
}

static void test_partitions(void **state)
{
    (void)state;
    static const qn_dtype types[] = {QN_FLOAT32, QN_FLOAT16, QN_INT32,
                                     QN_FLOAT64};
    static const int lengths[] = {1, 100, 50000};
    for (int t = 0; t < 4; t++)
        for (int how = 0; how < SPREADS; how++)
            for (int l = 0; l < 3; l++) {
                int n = lengths[l];
                qn_array *x = values_of(types[t], (spread)how, SHAPE(n));
                for (int k = 0; k < 4; k++)
                    check_partition(x, (n - 1) * k / 3);
                qn_array_unref(x);
            }
}

/* Lines without elements, and no lines. */
static void test_nothing(void **state)
{
    (void)state;
    use_fast();
    qn_array *x = array_of(QN_FLOAT32, NULL, SHAPE(3, 0));
    for (int axis = 0; axis < 2; axis++) {
        qn_array *y = sorted(x, axis, axis);
        assert_int_equal(y->size, 0);
        qn_array_unref(y);
    }
    qn_array_unref(x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_type_and_length),
        cmocka_unit_test(test_axes_and_layouts),
        cmocka_unit_test(test_partitions),
        cmocka_unit_test(test_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
