/* function.h: functions from arrays to arrays, and their recorded calls. */
#ifndef QN_TRANSFORM_FUNCTION_H
#define QN_TRANSFORM_FUNCTION_H

#include "core/record.h"

/* A list that owns its references. */
typedef struct qn_arrays {
    qn_array **data;
    size_t count;
} qn_arrays;

/* New references to `count` arrays. */
qn_status qn_arrays_copy(qn_arrays *out, qn_array *const *arrays, size_t count);
/* Room for `count` arrays, NULLs; on failure an empty list. */
qn_status qn_arrays_new(qn_arrays *out, size_t count);
/* NULLs among the items are fine; leaves an empty list. */
void qn_arrays_free(qn_arrays *arrays);

/* A function of the program's.  Its maker frees it. */
typedef struct qn_function {
    /* Inputs are borrowed; on success the caller owns *out, on error it is
     * untouched and the error recorded. */
    qn_status (*call)(const struct qn_function *self, qn_arrays *out,
                      qn_array *const *inputs, size_t ninputs);
} qn_function;

/* A call whose nodes have been recorded. */
typedef struct qn_trace {
    qn_record record;
    qn_arrays inputs; /* what the function was called with */
    qn_arrays outputs;
} qn_trace;

/* Calls `fun` with stand-ins: arrays of the same values as `inputs`, which no
 * other call knows.  On success the caller ends the trace. */
qn_status qn_trace_values(qn_trace *trace, const qn_function *fun,
                          qn_array *const *inputs, size_t ninputs);
/* Calls `fun` with `inputs` themselves, placeholders for instance. */
qn_status qn_trace_given(qn_trace *trace, const qn_function *fun,
                         qn_array *const *inputs, size_t ninputs,
                         bool shapeless);
/* Calls `fun` with placeholders of the types and shapes of `inputs`. */
qn_status qn_trace_like(qn_trace *trace, const qn_function *fun,
                        qn_array *const *inputs, size_t ninputs,
                        bool shapeless);
void qn_trace_end(qn_trace *trace);

#endif
