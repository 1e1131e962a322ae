/* registered.h: what the custom kernels of quern itself share: refusals, and
 * where elements of a view lie. */
#ifndef QN_CPU_REGISTERED_H
#define QN_CPU_REGISTERED_H

#include "ops/kernel.h"

#include <stdarg.h>
#include <stdio.h>

/* Those of the packed KV format (turbo.c). */
void qn_cpu_register_turbo(void);
/* Products with the panels of experts (experts.c). */
void qn_cpu_register_experts(void);
/* Gated delta nets (delta.c). */
void qn_cpu_register_delta(void);

/* 1, after a message. */
__attribute__((format(printf, 2, 3))) static inline int
qn_kernel_refuse(const qn_kernel_args *args, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vsnprintf(args->error, args->error_cap, format, list);
    va_end(list);
    return 1;
}

static inline size_t qn_view_size(const qn_kernel_view *v)
{
    size_t size = 1;
    for (int i = 0; i < v->ndim; i++)
        size *= (size_t)v->shape[i];
    return size;
}

/* Offset of number `index`, in row-major order over the first `naxes` axes. */
static inline int64_t qn_view_offset(const qn_kernel_view *v, int naxes,
                                     size_t index)
{
    int64_t at = 0;
    for (int i = naxes - 1; i >= 0; i--) {
        size_t length = (size_t)v->shape[i];
        at += (int64_t)(index % length) * v->strides[i];
        index /= length;
    }
    return at;
}

static inline const char *qn_view_place(const qn_kernel_view *v, int64_t offset)
{
    return (const char *)v->data + offset * (int64_t)qn_dtype_size(v->dtype);
}

#endif
