/* memory.c: the pool's counters and limits. */
#include "core/buffer.h"

#include "mlx/c/memory.h"

#include <stdatomic.h>

int mlx_get_active_memory(size_t *res)
{
    *res = qn_memory_active();
    return 0;
}

int mlx_get_peak_memory(size_t *res)
{
    *res = qn_memory_peak();
    return 0;
}

int mlx_reset_peak_memory(void)
{
    qn_memory_reset_peak();
    return 0;
}

int mlx_get_cache_memory(size_t *res)
{
    *res = qn_memory_cached();
    return 0;
}

int mlx_clear_cache(void)
{
    qn_memory_clear_cache();
    return 0;
}

int mlx_get_memory_limit(size_t *res)
{
    *res = qn_memory_get_limit();
    return 0;
}

int mlx_set_memory_limit(size_t *res, size_t limit)
{
    *res = qn_memory_set_limit(limit);
    return 0;
}

int mlx_set_cache_limit(size_t *res, size_t limit)
{
    *res = qn_memory_set_cache_limit(limit);
    return 0;
}

/* Nothing is wired here; the number is only remembered. */
int mlx_set_wired_limit(size_t *res, size_t limit)
{
    static atomic_size_t wired;
    *res = atomic_exchange(&wired, limit);
    return 0;
}
