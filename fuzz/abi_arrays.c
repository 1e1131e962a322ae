/* abi_arrays.c: new arrays, with shapes that go together. */
#include "abi.h"

#include <math.h>

/* ---- arrays ---- */

int fz_shape(fz *f, int *shape, size_t limit)
{
    int rank = fz_one_in(f, 2) ? f->rank : fz_from(f, 0, 4);
    size_t size = 1;
    for (int i = 0; i < rank; i++) {
        int dim = f->base[5 - rank + i];
        if (fz_one_in(f, 10))
            dim = 1;
        else if (fz_one_in(f, 30))
            dim = fz_from(f, 0, 6);
        if (dim && size * (size_t)dim > limit)
            dim = 1;
        size *= dim ? (size_t)dim : 1;
        shape[i] = dim;
    }
    return rank;
}

void fz_fill(fz *f, void *data, size_t n, mlx_dtype dtype, bool small)
{
    char *at = data;
    size_t size = mlx_dtype_size(dtype);
    /* One draw for all, so that an array does not eat a fuzzer's input. */
    fz own = {.state = fz_u32(f)};
    f = &own;
    bool special = fz_one_in(f, 3);
    for (size_t i = 0; i < n; i++, at += size) {
        double value = small     ? fz_from(f, -2, 5)
                       : special ? fz_number_of(f)
                                 : (double)fz_from(f, -64, 64) / 8;
        uint64_t bits = fz_u32(f) | (uint64_t)fz_u32(f) << 32;
        if (dtype == MLX_BOOL) {
            *at = (char)(bits & 1);
        } else if (dtype == MLX_FLOAT32 || dtype == MLX_COMPLEX64) {
            float part[2] = {
                fabs(value) > 1e38 && isfinite(value) ? 1e38f : (float)value,
                (float)fz_from(f, -2, 2)};
            memcpy(at, part, size);
        } else if (dtype == MLX_FLOAT64) {
            memcpy(at, &value, size);
        } else if (dtype == MLX_FLOAT16 || dtype == MLX_BFLOAT16) {
            static const uint16_t half[] = {0x3c00, 0x4000, 0xbc00,
                                            0,      0x3f80, 0x4040,
                                            0xbf80, 0x7c00, 0x7fff};
            uint16_t bits16 = special ? (uint16_t)bits : half[bits % 7];
            memcpy(at, &bits16, size);
        } else if (special && !small) {
            memcpy(at, &bits, size);
        } else {
            int64_t whole = fz_from(f, small ? -2 : -9, small ? 5 : 40);
            memcpy(at, &whole, size); /* little-endian */
        }
    }
}

/* Something that isn't one block in memory. */
static mlx_array view_of(fz *f, mlx_array a)
{
    mlx_array res = {NULL};
    mlx_stream s = mlx_default_cpu_stream_new();
    int n = (int)mlx_array_ndim(a), lows[5] = {0}, highs[5], steps[5];
    const int *shape = mlx_array_shape(a);
    uint32_t kind = fz_below(f, 4);
    for (int i = 0; i < n && i < 5; i++) {
        highs[i] = shape[i];
        steps[i] = kind == 1 ? 1 : 2;
    }
    if (kind == 0) {
        mlx_transpose(&res, a, s);
    } else if (kind < 3 && n <= 5 && n > 0) {
        mlx_slice(&res, a, lows, (size_t)n, highs, (size_t)n, steps, (size_t)n,
                  s);
    } else if (n > 0) {
        for (int i = 0; i < n && i < 5; i++)
            highs[i] = i || shape[0] != 1 ? shape[i] : 3;
        if (n <= 5)
            mlx_broadcast_to(&res, a, highs, (size_t)n, s);
    }
    mlx_stream_free(s);
    if (!res.ctx)
        return a;
    mlx_array_free(a);
    return res;
}

mlx_array fz_new_array_of(fz *f, const char *name, int *shape, int rank)
{
    bool index = fz_has(name, "indices") || fz_has(name, "start") ||
                 fz_has(name, "offset") || fz_has(name, "segments") ||
                 fz_has(name, "targets");
    bool key = !strcmp(name, "key");
    mlx_dtype dtype =
        fz_one_in(f, 2) ? MLX_FLOAT32 : (mlx_dtype)fz_from(f, 0, 13);
    if (f->ndim >= 0 && fz_one_in(f, 2))
        dtype = (mlx_dtype)f->first_dtype;
    else if (f->floats && fz_one_in(f, 3))
        dtype = fz_one_in(f, 2) ? MLX_FLOAT16 : MLX_BFLOAT16;
    else if (f->floats)
        dtype = MLX_FLOAT32;
    if (index && !fz_one_in(f, 8))
        dtype = fz_one_in(f, 2) ? MLX_INT32 : MLX_UINT32;
    if ((fz_has(name, "mask") || fz_has(name, "condition")) && fz_one_in(f, 2))
        dtype = MLX_BOOL;
    if (key && !fz_one_in(f, 8)) {
        dtype = MLX_UINT32;
        rank = 1;
        shape[0] = 2;
    }
    size_t n = 1;
    for (int i = 0; i < rank; i++)
        n *= (size_t)shape[i];
    void *data = malloc(n * mlx_dtype_size(dtype) + 1);
    FUZZ_CHECK(data);
    fz_fill(f, data, n, dtype, index);
    mlx_array a = mlx_array_new_data(data, shape, rank, dtype);
    free(data);
    /* Memory may be out where a function of arrays is called. */
    FUZZ_CHECK(a.ctx || f->inner);
    return fz_one_in(f, 3) && !key && a.ctx ? view_of(f, a) : a;
}

mlx_array fz_new_array(fz *f, const char *name)
{
    int shape[6], rank = fz_shape(f, shape, FZ_LARGEST);
    return fz_new_array_of(f, name, shape, rank);
}

/* ---- shapes that go together ---- */

/* The shape of the call's first array, by what the function does; -1: any. */
static int first_shape(fz *f, int *shape)
{
    static const int wide[] = {32, 64, 128};
    const char *name = f->calling ? f->calling : "";
    bool packs =
        fz_has(name, "quantize") || fz_has(name, "qmm") || fz_has(name, "qqmm");
    int rank = -1;
    if (fz_has(name, "conv"))
        rank = fz_has(name, "1d")   ? 3
               : fz_has(name, "2d") ? 4
               : fz_has(name, "3d") ? 5
                                    : fz_from(f, 3, 5);
    else if (fz_has(name, "attention"))
        rank = 4;
    else if (fz_has(name, "rope"))
        rank = fz_from(f, 3, 4);
    else if (packs || fz_has(name, "cross_entropy"))
        rank = 2;
    else if (fz_has(name, "linalg") || fz_has(name, "mm"))
        rank = fz_from(f, 2, 3);
    else if (fz_has(name, "scatter") || fz_has(name, "gather") ||
             fz_has(name, "dynamic") || fz_has(name, "along"))
        rank = fz_from(f, 1, 3);
    f->floats = rank >= 0 && !fz_has(name, "scatter") &&
                !fz_has(name, "gather_s") && !fz_one_in(f, 8);
    for (int i = 0; i < rank; i++)
        shape[i] = fz_from(f, 1, 4);
    if (packs)
        shape[1] = wide[fz_below(f, 3)];
    else if (fz_has(name, "rope"))
        shape[rank - 1] = 2 * shape[rank - 1];
    else if (fz_has(name, "linalg"))
        shape[rank - 1] = shape[rank - 2];
    return rank;
}

/* The shape of a further one. */
static int next_shape(fz *f, const char *name, int *shape)
{
    const char *calling = f->calling ? f->calling : "";
    int rank = fz_copy_shape(shape, f), last = rank ? shape[rank - 1] : 1;
    if (!strcmp(name, "weight") && fz_has(calling, "conv")) {
        for (int i = 0; i + 1 < rank; i++)
            shape[i] = fz_from(f, 1, 2);
    } else if (!strcmp(name, "weight") || !strcmp(name, "bias")) {
        shape[0] = last;
        rank = 1;
    } else if (!strcmp(name, "targets")) {
        rank -= rank > 0;
    } else if (fz_has(name, "mask_arr") && rank == 4) {
        shape[0] = shape[1] = shape[2];
        rank = 2;
    } else if (fz_has(name, "start") || fz_has(name, "offset")) {
        shape[0] = fz_from(f, 1, 2);
        rank = fz_from(f, 0, 1);
    } else if (!strcmp(name, "indices") && !fz_has(calling, "along") &&
               !fz_has(calling, "add_axis")) {
        shape[0] = 2;
        rank = 1;
    } else if (!strcmp(name, "updates") && rank && rank < 5) {
        /* Two places along the first axis. */
        for (int i = rank; i > 0; i--)
            shape[i] = shape[i - 1];
        shape[0] = 2;
        shape[1] = 1;
        rank++;
    } else if (!strcmp(name, "segments")) {
        shape[0] = shape[1] = 2;
        rank = 2;
    } else if (fz_has(calling, "mm") && !strcmp(name, "b") && rank > 1) {
        shape[rank - 1] = shape[rank - 2];
        shape[rank - 2] = last;
    }
    return rank;
}

int fz_suited_shape(fz *f, const char *name, int *shape)
{
    if (fz_one_in(f, 6) || f->ndim > 5)
        return -1;
    return f->ndim < 0 ? first_shape(f, shape) : next_shape(f, name, shape);
}
