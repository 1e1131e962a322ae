/* metal.c: the answers of a library without Metal. */
#include "handles.h"

int mlx_metal_is_available(bool *res)
{
    *res = false;
    return 0;
}

int mlx_metal_get_metallib_path(mlx_string *res)
{
    (void)res;
    qn_fail(QN_E_UNSUPPORTED, "[metal::get_metallib_path] there is no Metal in "
                              "this library");
    return QN_REPORT();
}

int mlx_metal_set_metallib_path(const char *path)
{
    (void)path;
    return 0;
}

int mlx_metal_start_capture(const char *path)
{
    (void)path;
    return 0;
}

int mlx_metal_stop_capture(void)
{
    return 0;
}
