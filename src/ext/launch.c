/* launch.c: custom kernels launched by values or callbacks, made of mlx_*
 * calls: the same over our engine, which this file is built into, and over
 * another library. */
#include <mlx/c/mlx.h>
#include <quern/ext.h>

/* Fills the settings; 0, or 1 after a report. */
static int configure(mlx_fast_metal_kernel_config config,
                     const mlx_vector_array inputs,
                     const quern_kernel_launch *launch)
{
    const quern_kernel_output *outputs = launch->outputs;
    size_t n_outputs = launch->n_outputs;
    int grid[3], group[3];
    for (int i = 0; i < 3; i++) {
        grid[i] = launch->grid[i];
        group[i] = launch->group[i];
    }
    if ((launch->find_outputs &&
         launch->find_outputs(launch->data, inputs, &outputs, &n_outputs)) ||
        (launch->find_grid &&
         launch->find_grid(launch->data, inputs, grid, group))) {
        _mlx_error(__FILE__, __LINE__,
                   "[kernel_apply] the callback that finds outputs or grid "
                   "failed");
        return 1;
    }
    int failed = mlx_fast_metal_kernel_config_set_grid(config, grid[0], grid[1],
                                                       grid[2]) ||
                 mlx_fast_metal_kernel_config_set_thread_group(
                     config, group[0], group[1], group[2]);
    if (!failed && launch->has_init)
        failed =
            mlx_fast_metal_kernel_config_set_init_value(config, launch->init);
    if (!failed && launch->verbose)
        failed = mlx_fast_metal_kernel_config_set_verbose(config, true);
    for (size_t i = 0; i < n_outputs && !failed; i++)
        failed = mlx_fast_metal_kernel_config_add_output_arg(
            config, outputs[i].shape, outputs[i].ndim, outputs[i].dtype);
    for (size_t i = 0; i < launch->n_templates && !failed; i++) {
        const quern_kernel_template *t = &launch->templates[i];
        if (t->kind == QUERN_TEMPLATE_DTYPE)
            failed = mlx_fast_metal_kernel_config_add_template_arg_dtype(
                config, t->name, (mlx_dtype)t->value);
        else if (t->kind == QUERN_TEMPLATE_BOOL)
            failed = mlx_fast_metal_kernel_config_add_template_arg_bool(
                config, t->name, t->value != 0);
        else
            failed = mlx_fast_metal_kernel_config_add_template_arg_int(
                config, t->name, t->value);
    }
    return failed != 0;
}

int quern_kernel_apply(mlx_vector_array *outputs,
                       const mlx_fast_metal_kernel kernel,
                       const mlx_vector_array inputs,
                       const quern_kernel_launch *launch,
                       const mlx_stream stream)
{
    mlx_fast_metal_kernel_config config = mlx_fast_metal_kernel_config_new();
    if (!config.ctx)
        return 1;
    int failed =
        configure(config, inputs, launch) ||
        mlx_fast_metal_kernel_apply(outputs, kernel, inputs, config, stream);
    mlx_fast_metal_kernel_config_free(config);
    return failed;
}
