/* qn_build.h: operations built and looked at, for tests of the builders.
 *
 * BUILD(y, qn_op_exp(&y, ...)) declares y and fails unless the call succeeds;
 * REFUSE(part, call) wants an argument error whose sentence has `part`.  What
 * a test builds is given up at its end by `drop_all`, which runs after each
 * test of run_build_tests. */
#ifndef QN_TEST_SUPPORT_BUILD_H
#define QN_TEST_SUPPORT_BUILD_H

#include "qn_nodes.h"

#include "backend/ref/ref.h"

static qn_array *kept_arrays[4096];
static int kept_count;

static inline qn_array *keep(qn_array *a)
{
    assert_true(kept_count < 4096);
    return kept_arrays[kept_count++] = a;
}

static inline int drop_all(void **state)
{
    (void)state;
    while (kept_count)
        qn_array_unref(kept_arrays[--kept_count]);
    return 0;
}

static inline int use_reference(void **state)
{
    (void)state;
    qn_backend_register(QN_DEVICE_CPU, qn_backend_ref());
    return 0;
}

#define S test_stream()

#define BUILD(name, call)                                                      \
    qn_array *name = NULL;                                                     \
    check_status(call, QN_OK);                                                 \
    keep(name)

#define REFUSE(part, call)                                                     \
    do {                                                                       \
        qn_array *refused = NULL;                                              \
        check_error(call, QN_E_ARG, part);                                     \
        assert_null(refused);                                                  \
    } while (0)

/* READY arrays of a shape, numbered 0, 1, 2 ... */
static inline qn_array *counted(qn_dtype dtype, const int *shape, int ndim)
{
    double values[4096];
    for (int i = 0; i < 4096; i++)
        values[i] = i;
    return keep(array_of(dtype, values, shape, ndim));
}

static inline qn_array *scalar_array(qn_dtype dtype, double value)
{
    return keep(array_of(dtype, &value, NULL, 0));
}

/* A line of given values. */
#define LINE(dtype, ...)                                                       \
    keep(array_of(dtype, VALUES(__VA_ARGS__),                                  \
                  SHAPE(sizeof(VALUES(__VA_ARGS__)) / sizeof(double))))

#define check_type(a, dtype, ...)                                              \
    check_type_at(a, dtype, SHAPE(__VA_ARGS__), __FILE__, __LINE__)

static inline void check_type_at(const qn_array *a, qn_dtype dtype,
                                 const int *shape, int ndim, const char *file,
                                 int line)
{
    bool same = a->dtype == dtype && a->ndim == ndim;
    for (int i = 0; same && i < ndim; i++)
        same = a->shape[i] == shape[i];
    if (same)
        return;
    print_error("found %s of %d dimensions:", qn_dtype_name(a->dtype), a->ndim);
    for (int i = 0; i < a->ndim; i++)
        print_error(" %d", a->shape[i]);
    print_error("\n");
    _fail(file, line);
}

#define check_no_shape(a, type)                                                \
    do {                                                                       \
        assert_int_equal((a)->dtype, type);                                    \
        assert_int_equal((a)->ndim, 0);                                        \
    } while (0)

/* Evaluates and compares every element exactly. */
#define check_values(a, ...)                                                   \
    do {                                                                       \
        qn_array *evaluated = (a);                                             \
        check_status(qn_eval(&evaluated, 1), QN_OK);                           \
        check_items(qn_array_ref(evaluated), __VA_ARGS__);                     \
    } while (0)

/* Evaluates and compares within a distance. */
#define check_near(a, distance, ...)                                           \
    check_near_at(a, distance, VALUES(__VA_ARGS__),                            \
                  sizeof(VALUES(__VA_ARGS__)) / sizeof(double), __FILE__,      \
                  __LINE__)

static inline void check_near_at(qn_array *a, double distance,
                                 const double *expected, size_t n,
                                 const char *file, int line)
{
    check_status_at(qn_eval(&a, 1), QN_OK, file, line);
    if (a->size != n) {
        print_error("expected %zu elements, found %zu\n", n, a->size);
        _fail(file, line);
    }
    for (size_t i = 0; i < n; i++)
        if (!(fabs(item(a, i) - expected[i]) <= distance) &&
            !(isnan(expected[i]) && isnan(item(a, i)))) {
            print_error("element %zu: expected %.9g, found %.9g\n", i,
                        expected[i], item(a, i));
            _fail(file, line);
        }
}

#define check_empty(a) assert_int_equal((a)->size, 0)

/* cmocka_run_group_tests with the reference backend and a clean-up. */
#define BUILD_TEST(name)                                                       \
    {                                                                          \
#name, name, NULL, drop_all, NULL                                      \
    }
#define run_build_tests(tests)                                                 \
    cmocka_run_group_tests(tests, use_reference, NULL)

#endif
