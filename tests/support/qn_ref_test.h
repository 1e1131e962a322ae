/* qn_ref_test.h: a test group whose CPU backend is the reference. */
#ifndef QN_TEST_SUPPORT_REF_H
#define QN_TEST_SUPPORT_REF_H

#include "qn_nodes.h"

#include "backend/ref/ref.h"

static inline int use_ref(void **state)
{
    (void)state;
    qn_backend_register(QN_DEVICE_CPU, qn_backend_ref());
    return 0;
}

#define run_ref_tests(tests) cmocka_run_group_tests(tests, use_ref, NULL)

#endif
