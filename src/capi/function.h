/* function.h: closures as the functions that transformations take, and the
 * other way round. */
#ifndef QN_CAPI_FUNCTION_H
#define QN_CAPI_FUNCTION_H

#include "closure.h"

#include "transform/checkpoint.h"

/* A closure (borrowed, or for shared functions held) as a function. */
typedef struct qn_closure_function {
    qn_shared_function shared;
    qn_closure *closure;
} qn_closure_function;

qn_closure_function qn_function_of(qn_closure *closure);

/* The arrays of a list that a closure made, which is freed. */
qn_status qn_take_arrays(qn_arrays *out, mlx_vector_array made);

/* Stores lists as results of a call: all or none.  They are freed. */
qn_status qn_store_lists(mlx_vector_array *const *res, qn_arrays *lists,
                         int count);

/* A list of arrays as closures take it; borrowed. */
static inline qn_list qn_list_of(qn_array *const *arrays, size_t count)
{
    return (qn_list){.data = (qn_array **)(uintptr_t)arrays,
                     .size = count,
                     .capacity = count};
}

#endif
