/* Any allocation of a builder may fail: an error comes back, nothing leaks
 * (the sanitizer build sees that), and the next try works. */
#include "support/qn_build.h"

static qn_array *f32, *i32, *key;

static qn_status build(qn_status (*call)(qn_array **out))
{
    qn_array *out = NULL;
    qn_status status = call(&out);
    if (status && out)
        return QN_E_INTERNAL;
    qn_array_unref(out);
    return status;
}

/* One function per program; `f32` is 2 x 3, `i32` a line of 3. */
#define PROGRAM(name, call)                                                    \
    static qn_status call_##name(qn_array **out)                               \
    {                                                                          \
        return call;                                                           \
    }                                                                          \
    static qn_status run_##name(void)                                          \
    {                                                                          \
        return build(call_##name);                                             \
    }                                                                          \
    static void test_##name(void **state)                                      \
    {                                                                          \
        (void)state;                                                           \
        each_alloc_may_fail(run_##name);                                       \
    }

PROGRAM(mixed_add, qn_op_binary(out, QN_OP_ADD, f32, i32, S))
PROGRAM(variance, qn_op_var(out, f32, NULL, QN_ALL_AXES, false, 1, S))
PROGRAM(median, qn_op_median(out, f32, (int[]){0}, 1, true, S))
PROGRAM(softmax, qn_op_softmax(out, f32, (int[]){0}, 1, true, S))
PROGRAM(where, qn_op_where(out, i32, f32, i32, S))
PROGRAM(isclose, qn_op_isclose(out, f32, f32, 0.1, 0.1, true, S))
PROGRAM(take, qn_op_take(out, f32, i32, 1, S))
PROGRAM(tensordot, qn_op_tensordot(out, f32, f32, SHAPE(1), SHAPE(1), S))
PROGRAM(pad, qn_op_pad(out, f32, SHAPE(0, 1), SHAPE(1, 2), SHAPE(0, 1), f32,
                       "reflect", S))
PROGRAM(diag, qn_op_diag(out, i32, 1, S))
PROGRAM(stack, qn_op_stack(out, (qn_array *[]){f32, f32, f32}, 3, 1, S))
PROGRAM(window, qn_op_window(out, QN_WINDOW_BLACKMAN, 9, S))
PROGRAM(fp8, qn_op_to_fp8(out, f32, S))
PROGRAM(truncated_normal,
        qn_op_random_truncated_normal(out, f32, f32, SHAPE(2, 3), QN_FLOAT16,
                                      key, S))
PROGRAM(categorical, qn_op_random_categorical_num(out, f32, -1, 4, key, S))
PROGRAM(lookup, qn_op_random_categorical(out, key, -1, key, S))

/* More held arrays than a scope has room for. */
static qn_status run_wide_scope(void)
{
    enum { MANY = 40 };
    qn_array *in[MANY], *out[MANY];
    for (int i = 0; i < MANY; i++)
        in[i] = f32;
    qn_status status = qn_op_broadcast_arrays(out, in, MANY, S);
    if (status)
        return status;
    for (int i = 0; i < MANY; i++)
        qn_array_unref(out[i]);
    status = qn_op_meshgrid(out, in, 20, false, "ij", S);
    for (int i = 0; i < 20 && !status; i++)
        qn_array_unref(out[i]);
    return status;
}

static void test_wide_scope(void **state)
{
    (void)state;
    each_alloc_may_fail(run_wide_scope);
}

static qn_status run_split(void)
{
    qn_array **parts;
    size_t count;
    qn_status status = qn_op_unstack(&parts, &count, f32, 1, S);
    for (size_t i = 0; i < count && !status; i++)
        qn_array_unref(parts[i]);
    if (!status)
        qn_free(parts);
    return status;
}

static void test_unstack(void **state)
{
    (void)state;
    each_alloc_may_fail(run_split);
}

static qn_status run_quantize(void)
{
    qn_array *out[3];
    size_t count;
    qn_array *wide = NULL;
    qn_status status = qn_op_full_value(&wide, SHAPE(2, 64), 1, QN_FLOAT32, S);
    if (!status)
        status =
            qn_op_quantize(out, &count, wide, NULL, NULL, "affine", NULL, S);
    for (size_t i = 0; i < 3 && !status; i++)
        qn_array_unref(out[i]);
    qn_array_unref(wide);
    return status;
}

static void test_quantize(void **state)
{
    (void)state;
    each_alloc_may_fail(run_quantize);
}

static int set_up(void **state)
{
    use_reference(state);
    test_stream(); /* made on first use: not part of any program */
    f32 = array_of(QN_FLOAT32, VALUES(1, 2, 3, 4, 5, 6), SHAPE(2, 3));
    i32 = array_of(QN_INT32, VALUES(0, 1, 0), SHAPE(3));
    check_status(qn_op_random_key(&key, 5), QN_OK);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    qn_array_unref(f32);
    qn_array_unref(i32);
    qn_array_unref(key);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mixed_add),
        cmocka_unit_test(test_variance),
        cmocka_unit_test(test_median),
        cmocka_unit_test(test_softmax),
        cmocka_unit_test(test_where),
        cmocka_unit_test(test_isclose),
        cmocka_unit_test(test_take),
        cmocka_unit_test(test_tensordot),
        cmocka_unit_test(test_pad),
        cmocka_unit_test(test_diag),
        cmocka_unit_test(test_stack),
        cmocka_unit_test(test_window),
        cmocka_unit_test(test_fp8),
        cmocka_unit_test(test_truncated_normal),
        cmocka_unit_test(test_categorical),
        cmocka_unit_test(test_lookup),
        cmocka_unit_test(test_wide_scope),
        cmocka_unit_test(test_unstack),
        cmocka_unit_test(test_quantize),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
