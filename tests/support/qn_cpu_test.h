/* qn_cpu_test.h: nodes computed by the CPU backend's kernels and, for
 * comparison, by the reference.
 *
 * `apply` (qn_nodes.h) runs a node with the backend that use_fast or
 * use_reference chose.  The fast one refuses what the kernels do not take,
 * so that no test compares the reference with itself. */
#ifndef QN_TEST_SUPPORT_CPU_H
#define QN_TEST_SUPPORT_CPU_H

#include "qn_nodes.h"

#include "backend/cpu/cpu.h"
#include "backend/cpu/pool.h"
#include "backend/ref/ref.h"

static inline qn_status fast_only(qn_node *node)
{
    bool done = false;
    qn_status status = qn_cpu_try(node, &done);
    if (!status && !done)
        status = qn_fail(QN_E_UNSUPPORTED, "no kernel took [%s]",
                         qn_op_info_of(node->op)->name);
    return status;
}

static inline void use_fast(void)
{
    static const qn_backend fast = {.name = "fast", .run = fast_only};
    qn_backend_register(QN_DEVICE_CPU, &fast);
}

static inline void use_reference(void)
{
    qn_backend_register(QN_DEVICE_CPU, qn_backend_ref());
}

/* The whole CPU backend, with its fallback. */
static inline void use_cpu(void)
{
    qn_backend_register(QN_DEVICE_CPU, qn_backend_cpu());
}

/* The same bytes, element by element. */
static inline bool same_bits(const qn_array *a, const qn_array *b)
{
    if (a->size != b->size || a->dtype != b->dtype)
        return false;
    for (size_t i = 0; i < a->size; i++)
        if (memcmp(place_of(a, i), place_of(b, i), qn_array_itemsize(a)))
            return false;
    return true;
}

/* Largest |a - b|; infinity where one is NaN or infinite and the other is not
 * the same. */
static inline double largest_difference(const qn_array *a, const qn_array *b)
{
    double largest = 0;
    assert_int_equal(a->size, b->size);
    for (size_t i = 0; i < a->size; i++) {
        double x = item(a, i), y = item(b, i);
        if (same_value(x, y))
            continue;
        double difference = fabs(x - y);
        if (!(difference <= largest))
            largest = isfinite(difference) ? difference : INFINITY;
    }
    return largest;
}

/* Half a unit in the last place of `dtype` at 1. */
static inline double half_ulp(qn_dtype dtype)
{
    return dtype == QN_FLOAT16    ? 0x1p-11
           : dtype == QN_BFLOAT16 ? 0x1p-8
                                  : 0x1p-24;
}

static const qn_dtype float_types[] = {QN_FLOAT32, QN_FLOAT16, QN_BFLOAT16};
enum { FLOAT_TYPES = 3 };

/* Thread counts under which a result must keep its bits. */
static const int thread_counts[] = {1, 2, 3, 5};
enum { THREAD_COUNTS = 4 };

#endif
