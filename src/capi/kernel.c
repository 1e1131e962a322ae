/* kernel.c: C entries of custom kernels, in the forms of Metal and of CUDA.
 *
 * Both serve the functions of the registry (ops/kernel.h) by name: there is no
 * compiler for either language here. */
#include "handles.h"
#include "ops_entry.h"

#include "ops/kernel.h"

#include <string.h>

#define QN_GET_LAUNCH(name, handle, type)                                      \
    QN_GET_OR(qn_launch, name, (handle).ctx, type, 1)

static qn_launch *new_launch(void)
{
    qn_launch *launch = NULL;
    QN_CALL_OR(qn_launch_new(&launch), NULL);
    return launch;
}

static int add_output(qn_launch *launch, const int *shape, size_t size,
                      mlx_dtype dtype)
{
    QN_GET_DTYPE(type, dtype);
    QN_CALL(qn_launch_add_output(launch, shape, size, type));
    return 0;
}

static int add_template(qn_launch *launch, const char *name,
                        qn_template_kind kind, int value)
{
    if (kind == QN_TEMPLATE_DTYPE) {
        QN_GET_DTYPE(type, (mlx_dtype)value);
        value = (int)type;
    }
    QN_CALL(qn_launch_add_template(launch, qn_capi_text(name), kind, value));
    return 0;
}

/* The lists of names are borrowed. */
static qn_kernel *new_kernel(qn_kernel like, const char *name,
                             mlx_vector_string input_names,
                             mlx_vector_string output_names)
{
    qn_kernel *kernel = NULL;
    QN_GET_OR(const qn_list, inputs, input_names.ctx, mlx_vector_string, NULL);
    QN_GET_OR(const qn_list, outputs, output_names.ctx, mlx_vector_string,
              NULL);
    char empty[] = "";
    like.name = name ? (char *)(uintptr_t)name : empty;
    like.inputs = (qn_names){inputs->texts, inputs->size};
    like.outputs = (qn_names){outputs->texts, outputs->size};
    QN_CALL_OR(qn_kernel_new(&kernel, &like), NULL);
    return kernel;
}

static int apply(mlx_vector_array *res, const qn_kernel *kernel,
                 const mlx_vector_array inputs, const qn_launch *launch,
                 const mlx_stream s)
{
    QN_GET_ARRAYS(list, inputs);
    QN_GET_STREAM(stream, s);
    qn_array **made = qn_calloc(launch->noutputs, sizeof *made);
    if (!made)
        return QN_REPORT();
    qn_status status =
        qn_op_kernel(made, kernel, launch, list->data, list->size, stream);
    if (!status)
        status = qn_handle_set_arrays(res, made, launch->noutputs);
    qn_free(made);
    return status ? QN_REPORT() : 0;
}

/* Everything about settings is the same in both forms. */
#define QN_KERNEL_CONFIG(form)                                                 \
    mlx_fast_##form##_kernel_config mlx_fast_##form##_kernel_config_new(void)  \
    {                                                                          \
        return (mlx_fast_##form##_kernel_config){new_launch()};                \
    }                                                                          \
    void mlx_fast_##form##_kernel_config_free(                                 \
        mlx_fast_##form##_kernel_config cls)                                   \
    {                                                                          \
        qn_launch_free(cls.ctx);                                               \
    }                                                                          \
    int mlx_fast_##form##_kernel_config_add_output_arg(                        \
        mlx_fast_##form##_kernel_config cls, const int *shape, size_t size,    \
        mlx_dtype dtype)                                                       \
    {                                                                          \
        QN_GET_LAUNCH(launch, cls, mlx_fast_##form##_kernel_config);           \
        return add_output(launch, shape, size, dtype);                         \
    }                                                                          \
    int mlx_fast_##form##_kernel_config_set_grid(                              \
        mlx_fast_##form##_kernel_config cls, int grid1, int grid2, int grid3)  \
    {                                                                          \
        QN_GET_LAUNCH(launch, cls, mlx_fast_##form##_kernel_config);           \
        memcpy(launch->grid, (int[]){grid1, grid2, grid3},                     \
               sizeof launch->grid);                                           \
        return 0;                                                              \
    }                                                                          \
    int mlx_fast_##form##_kernel_config_set_thread_group(                      \
        mlx_fast_##form##_kernel_config cls, int thread1, int thread2,         \
        int thread3)                                                           \
    {                                                                          \
        QN_GET_LAUNCH(launch, cls, mlx_fast_##form##_kernel_config);           \
        memcpy(launch->group, (int[]){thread1, thread2, thread3},              \
               sizeof launch->group);                                          \
        return 0;                                                              \
    }                                                                          \
    int mlx_fast_##form##_kernel_config_set_init_value(                        \
        mlx_fast_##form##_kernel_config cls, float value)                      \
    {                                                                          \
        QN_GET_LAUNCH(launch, cls, mlx_fast_##form##_kernel_config);           \
        launch->has_init = true;                                               \
        launch->init = value;                                                  \
        return 0;                                                              \
    }                                                                          \
    int mlx_fast_##form##_kernel_config_set_verbose(                           \
        mlx_fast_##form##_kernel_config cls, bool verbose)                     \
    {                                                                          \
        QN_GET_LAUNCH(launch, cls, mlx_fast_##form##_kernel_config);           \
        launch->verbose = verbose;                                             \
        return 0;                                                              \
    }                                                                          \
    int mlx_fast_##form##_kernel_config_add_template_arg_dtype(                \
        mlx_fast_##form##_kernel_config cls, const char *name,                 \
        mlx_dtype dtype)                                                       \
    {                                                                          \
        QN_GET_LAUNCH(launch, cls, mlx_fast_##form##_kernel_config);           \
        return add_template(launch, name, QN_TEMPLATE_DTYPE, (int)dtype);      \
    }                                                                          \
    int mlx_fast_##form##_kernel_config_add_template_arg_int(                  \
        mlx_fast_##form##_kernel_config cls, const char *name, int value)      \
    {                                                                          \
        QN_GET_LAUNCH(launch, cls, mlx_fast_##form##_kernel_config);           \
        return add_template(launch, name, QN_TEMPLATE_INT, value);             \
    }                                                                          \
    int mlx_fast_##form##_kernel_config_add_template_arg_bool(                 \
        mlx_fast_##form##_kernel_config cls, const char *name, bool value)     \
    {                                                                          \
        QN_GET_LAUNCH(launch, cls, mlx_fast_##form##_kernel_config);           \
        return add_template(launch, name, QN_TEMPLATE_BOOL, value);            \
    }                                                                          \
    void mlx_fast_##form##_kernel_free(mlx_fast_##form##_kernel cls)           \
    {                                                                          \
        qn_kernel_free(cls.ctx);                                               \
    }                                                                          \
    int mlx_fast_##form##_kernel_apply(                                        \
        mlx_vector_array *outputs, mlx_fast_##form##_kernel cls,               \
        const mlx_vector_array inputs,                                         \
        const mlx_fast_##form##_kernel_config config, const mlx_stream stream) \
    {                                                                          \
        QN_GET_OR(const qn_kernel, kernel, cls.ctx, mlx_fast_##form##_kernel,  \
                  1);                                                          \
        QN_GET_LAUNCH(launch, config, mlx_fast_##form##_kernel_config);        \
        return apply(outputs, kernel, inputs, launch, stream);                 \
    }                                                                          \
    _Static_assert(1, "")

QN_KERNEL_CONFIG(metal);
QN_KERNEL_CONFIG(cuda);

mlx_fast_metal_kernel
mlx_fast_metal_kernel_new(const char *name, const mlx_vector_string input_names,
                          const mlx_vector_string output_names,
                          const char *source, const char *header,
                          bool ensure_row_contiguous, bool atomic_outputs)
{
    (void)source;
    (void)header;
    qn_kernel like = {.form = "metal_kernel",
                      .absent = "No Metal back-end",
                      .row_contiguous = ensure_row_contiguous,
                      .atomic_outputs = atomic_outputs};
    return (mlx_fast_metal_kernel){
        new_kernel(like, name, input_names, output_names)};
}

mlx_fast_cuda_kernel
mlx_fast_cuda_kernel_new(const char *name, const mlx_vector_string input_names,
                         const mlx_vector_string output_names,
                         const char *source, const char *header,
                         bool ensure_row_contiguous, int shared_memory)
{
    (void)source;
    (void)header;
    qn_kernel like = {.form = "cuda_kernel",
                      .absent = "No CUDA back-end",
                      .row_contiguous = ensure_row_contiguous,
                      .scratch = shared_memory > 0 ? (size_t)shared_memory : 0};
    return (mlx_fast_cuda_kernel){
        new_kernel(like, name, input_names, output_names)};
}
