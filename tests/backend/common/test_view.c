/* Views: shared where strides can say it, copied where not, never outside. */
#include "support/qn_ref_test.h"

#include "backend/common/view.h"

static qn_array *six(void)
{
    return array_of(QN_INT32, VALUES(1, 2, 3, 4, 5, 6), SHAPE(2, 3));
}

static bool shares(const qn_array *a, const qn_array *b)
{
    return a->buffer == b->buffer;
}

static qn_array *transposed(qn_array *a)
{
    qn_transpose_params p = {{1, 0}};
    return apply(QN_OP_TRANSPOSE, &p, sizeof p, a->dtype,
                 SHAPE(a->shape[1], a->shape[0]), INPUTS(a));
}

static void test_transpose_and_reshape(void **state)
{
    (void)state;
    qn_array *a = six(), *t = transposed(a);
    assert_true(shares(a, t));
    assert_true(t->col_contiguous);
    qn_array *flat =
        apply(QN_OP_RESHAPE, NULL, 0, QN_INT32, SHAPE(6), INPUTS(t));
    assert_false(shares(flat, a));
    check_items(flat, 1, 4, 2, 5, 3, 6);
    /* Splitting an axis needs no copy. */
    qn_array *split =
        apply(QN_OP_RESHAPE, NULL, 0, QN_INT32, SHAPE(1, 3, 1, 2), INPUTS(t));
    assert_true(shares(split, a));
    check_items(split, 1, 4, 2, 5, 3, 6);
    check_items(t, 1, 4, 2, 5, 3, 6);
    qn_array_unref(a);
}

/* Strides exist exactly when a search over the definition finds them. */
static void test_reshape_strides_read_in_order(void **state)
{
    (void)state;
    uint64_t seed = 9;
    int shared = 0;
    for (int round = 0; round < 400; round++) {
        qn_array *a = array_of(QN_INT32, NULL, SHAPE(2, 3, 4, 2));
        for (size_t i = 0; i < a->size; i++)
            element_put(place_of(a, i), QN_INT32, (double)i);
        int order[4] = {0, 1, 2, 3}, shape[4];
        int64_t strides[4], found[5];
        if (round % 2) { /* any order; else only the row-major one */
            int i = (int)(2 + 2 * test_random(&seed));
            int k = (int)(2 + 2 * test_random(&seed)), swap = order[i];
            order[i] = order[k];
            order[k] = swap;
        }
        for (int i = 0; i < 4; i++) {
            shape[i] = a->shape[order[i]];
            strides[i] = a->strides[order[i]];
        }
        qn_array *view = view_of(a, shape, 4, strides, 0);
        const int targets[][5] = {{48, 1, 1, 1, 1}, {6, 8, 1, 1, 1},
                                  {2, 3, 2, 2, 2},  {4, 1, 12, 1, 1},
                                  {8, 6, 1, 1, 1},  {2, 24, 1, 1, 1}};
        const int *target = targets[round % 6];
        if (qn_view_reshape(found, view, target, 5)) {
            qn_array *same = view_of(a, target, 5, found, 0);
            for (size_t i = 0; i < 48; i++)
                assert_true(item(same, i) == item(view, i));
            qn_array_unref(same);
            shared++;
        } else {
            assert_false(view->row_contiguous);
        }
        qn_array_unref(view);
        qn_array_unref(a);
    }
    assert_true(shared > 200);
}

static void test_broadcast_stands_still(void **state)
{
    (void)state;
    qn_array *a = array_of(QN_FLOAT16, VALUES(1, 2), SHAPE(2, 1));
    qn_array *wide =
        apply(QN_OP_BROADCAST, NULL, 0, QN_FLOAT16, SHAPE(2, 2, 3), INPUTS(a));
    assert_true(shares(a, wide));
    assert_int_equal(wide->strides[0], 0);
    check_items(wide, 1, 1, 1, 2, 2, 2, 1, 1, 1, 2, 2, 2);
    qn_array_unref(a);
}

static void test_slices_with_negative_steps(void **state)
{
    (void)state;
    qn_array *a = array_of(
        QN_INT32, VALUES(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11), SHAPE(3, 4));
    qn_slice_params p = {.start = {2, 3}, .strides = {-2, -3}};
    qn_array *out =
        apply(QN_OP_SLICE, &p, sizeof p, QN_INT32, SHAPE(2, 2), INPUTS(a));
    assert_true(shares(a, out));
    check_items(out, 11, 8, 3, 0);
    qn_slice_params end = {.start = {3, 0}, .strides = {1, 1}};
    out =
        apply(QN_OP_SLICE, &end, sizeof end, QN_INT32, SHAPE(0, 4), INPUTS(a));
    assert_int_equal(out->size, 0);
    qn_array_unref(out);
    qn_array_unref(a);
}

static qn_status as_strided(qn_array **out, qn_array *a, const int *shape,
                            int ndim, int64_t s0, int64_t s1, size_t offset)
{
    qn_as_strided_params p = {.strides = {s0, s1}, .offset = offset};
    return apply_status(out, QN_OP_AS_STRIDED, &p, sizeof p, a->dtype, shape,
                        ndim, INPUTS(a));
}

static void test_as_strided_stays_inside(void **state)
{
    (void)state;
    qn_array *a = six(), *t = transposed(a), *out;
    check_status(as_strided(&out, a, SHAPE(4, 3), 1, 1, 0), QN_OK);
    check_items(out, 1, 2, 3, 2, 3, 4, 3, 4, 5, 4, 5, 6);
    check_status(as_strided(&out, a, SHAPE(2, 2), -1, -2, 5), QN_OK);
    check_items(out, 6, 4, 5, 3);
    /* Over the row-major elements of the input, whatever its layout. */
    check_status(as_strided(&out, t, SHAPE(3, 1), 2, 1, 0), QN_OK);
    check_items(out, 1, 2, 3);
    check_error(as_strided(&out, a, SHAPE(4, 3), 1, 1, 1), QN_E_ARG,
                "as_strided");
    check_error(as_strided(&out, a, SHAPE(2, 2), -1, -2, 2), QN_E_ARG,
                "as_strided");
    check_error(as_strided(&out, a, SHAPE(2, 2), INT64_MAX, INT64_MAX, 0),
                QN_E_ARG, "as_strided");
    check_error(as_strided(&out, a, SHAPE(1, 1), 1, 1, SIZE_MAX), QN_E_ARG,
                "as_strided");
    check_status(as_strided(&out, a, SHAPE(0, 9), 7, 7, 99), QN_OK);
    assert_int_equal(out->size, 0);
    qn_array_unref(out);
    qn_array_unref(t);
    qn_array_unref(a);
}

static void test_contiguous_copies_only_where_needed(void **state)
{
    (void)state;
    qn_array *a = six(), *t = transposed(a);
    for (int allow = 0; allow < 2; allow++) {
        qn_contiguous_params p = {allow};
        qn_array *same = apply(QN_OP_CONTIGUOUS, &p, sizeof p, QN_INT32,
                               SHAPE(2, 3), INPUTS(a));
        assert_true(shares(same, a));
        qn_array_unref(same);
        qn_array *made = apply(QN_OP_CONTIGUOUS, &p, sizeof p, QN_INT32,
                               SHAPE(3, 2), INPUTS(t));
        assert_true(shares(made, a) == allow);
        assert_true(made->row_contiguous || allow);
        check_items(made, 1, 4, 2, 5, 3, 6);
    }
    qn_array *copy =
        apply(QN_OP_COPY, NULL, 0, QN_INT32, SHAPE(2, 3), INPUTS(a));
    assert_false(shares(copy, a));
    check_items(copy, 1, 2, 3, 4, 5, 6);
    qn_array_unref(t);
    qn_array_unref(a);
}

static void test_bytes_seen_as_another_type(void **state)
{
    (void)state;
    qn_array *a = array_of(QN_UINT16, VALUES(1, 2, 3, 4), SHAPE(2, 2));
    qn_array *bytes =
        apply(QN_OP_VIEW, NULL, 0, QN_UINT8, SHAPE(2, 4), INPUTS(a));
    assert_true(shares(bytes, a));
    check_items(bytes, 1, 0, 2, 0, 3, 0, 4, 0);
    qn_array *wide =
        apply(QN_OP_VIEW, NULL, 0, QN_UINT32, SHAPE(2, 1), INPUTS(a));
    assert_true(shares(wide, a));
    check_items(wide, 0x20001, 0x40003);
    /* Elements that are not neighbours have to be copied first. */
    qn_array *t = transposed(a);
    wide = apply(QN_OP_VIEW, NULL, 0, QN_UINT32, SHAPE(2, 1), INPUTS(t));
    assert_false(shares(wide, a));
    check_items(wide, 0x30001, 0x40002);
    /* And so do those off the wider type's alignment. */
    qn_array *odd = view_of(a, SHAPE(1, 2), (const int64_t[]){2, 1}, 1);
    wide = apply(QN_OP_VIEW, NULL, 0, QN_UINT32, SHAPE(1, 1), INPUTS(odd));
    assert_false(shares(wide, a));
    check_items(wide, 0x30002);
    qn_array_unref(odd);
    qn_array_unref(t);
    qn_array_unref(a);
}

static void test_depends_passes_its_inputs_on(void **state)
{
    (void)state;
    qn_array *a = six();
    qn_array *out =
        apply(QN_OP_DEPENDS, NULL, 0, QN_INT32, SHAPE(2, 3), INPUTS(a, a));
    assert_true(shares(out, a));
    qn_array_unref(out);
    qn_array_unref(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_transpose_and_reshape),
        cmocka_unit_test(test_reshape_strides_read_in_order),
        cmocka_unit_test(test_broadcast_stands_still),
        cmocka_unit_test(test_slices_with_negative_steps),
        cmocka_unit_test(test_as_strided_stays_inside),
        cmocka_unit_test(test_contiguous_copies_only_where_needed),
        cmocka_unit_test(test_bytes_seen_as_another_type),
        cmocka_unit_test(test_depends_passes_its_inputs_on),
    };
    return run_ref_tests(tests);
}
