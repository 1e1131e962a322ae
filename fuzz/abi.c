/* abi.c: drawing arguments, the pools of handles, what surrounds a call. */
#include "abi.h"

#include "base/alloc.h"

#include <limits.h>
#include <math.h>
#include <string.h>

atomic_long fz_reports, fz_entered, fz_held;
unsigned long fz_worked[FZ_ROWS];
unsigned long long fz_calls;

/* ---- the source ---- */

uint32_t fz_u32(fz *f)
{
    if (f->data) {
        uint32_t value = 0;
        for (int i = 0; i < 4; i++) {
            if (!f->left) {
                f->ended = true;
                return value;
            }
            value = value << 8 | *f->data++;
            f->left--;
        }
        return value;
    }
    /* splitmix64 */
    uint64_t z = f->state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (uint32_t)(z >> 32);
}

uint32_t fz_below(fz *f, uint32_t n)
{
    /* One byte goes further in a fuzzer's input. */
    if (f->data && n <= 256) {
        if (!f->left) {
            f->ended = true;
            return 0;
        }
        f->left--;
        return *f->data++ % n;
    }
    return fz_u32(f) % n;
}

#define TRACE(...)                                                             \
    do {                                                                       \
        if (f->trace)                                                          \
            fprintf(stderr, __VA_ARGS__);                                      \
    } while (0)

static int from(fz *f, int low, int high)
{
    return low + (int)fz_below(f, (uint32_t)(high - low + 1));
}

static bool has(const char *text, const char *part)
{
    return strstr(text, part) != NULL;
}

/* ---- numbers ---- */

static int extreme(fz *f)
{
    static const int values[] = {INT_MIN, INT_MIN + 1, INT_MAX, INT_MAX - 1,
                                 1 << 30, -(1 << 30),  1 << 16, 65535,
                                 -65536,  1000,        -1000,   1 << 24,
                                 46341,   1 << 29,     255,     -129};
    return values[fz_below(f, sizeof values / sizeof *values)];
}

int fz_int(fz *f, const char *name)
{
    int value;
    if (fz_one_in(f, 40))
        value = extreme(f);
    else if (!strcmp(name, "dims") && f->ndim > 0 && f->ndim < 6)
        value = f->first_shape[f->ndim - 1];
    else if (has(name, "axis") || has(name, "source") || has(name, "dest"))
        value = f->ndim > 0 && !fz_one_in(f, 6) ? from(f, -f->ndim, f->ndim - 1)
                                                : from(f, -4, 4);
    else if (has(name, "stride") || has(name, "dilation") ||
             has(name, "groups"))
        value = fz_one_in(f, 8) ? from(f, -1, 3) : 1;
    else if (has(name, "padding"))
        value = fz_one_in(f, 8) ? from(f, -3, 5) : from(f, 0, 2);
    else if (!strcmp(name, "width") || !strcmp(name, "block_size"))
        value = 1 << from(f, 0, 6);
    else if (fz_one_in(f, 4))
        value = f->base[fz_below(f, 5)];
    else
        value = from(f, -2, 8);
    TRACE(" %s=%d", name, value);
    return value;
}

bool fz_bool(fz *f, const char *name)
{
    bool value = fz_below(f, 2);
    TRACE(" %s=%d", name, value);
    return value;
}

size_t fz_size(fz *f, const char *name)
{
    static const size_t values[] = {SIZE_MAX, SIZE_MAX / 2, (size_t)INT_MAX + 1,
                                    INT_MAX,  1u << 20,     100};
    size_t value = fz_one_in(f, 20) ? values[fz_below(f, 6)] : fz_below(f, 5);
    TRACE(" %s=%zu", name, value);
    return value;
}

static double number(fz *f)
{
    static const double values[] = {
        0,      -0.0,    1,     -1,           0.5,
        2,      3,       1e-5,  1e-40,        1e30,
        -1e30,  1e300,   NAN,   127,          -128,
        256,    65504,   65536, 2147483647.0, -2147483648.0,
        9.3e18, -9.3e18, 0.1,   INFINITY,     -INFINITY};
    if (fz_one_in(f, 3))
        return values[fz_below(f, sizeof values / sizeof *values)];
    return (double)from(f, -64, 64) / 8;
}

float fz_float(fz *f, const char *name)
{
    double wide = number(f);
    float value = fabs(wide) > 1e38 && isfinite(wide) ? 1e38f : (float)wide;
    TRACE(" %s=%g", name, value);
    return value;
}

double fz_double(fz *f, const char *name)
{
    double value = number(f);
    TRACE(" %s=%g", name, value);
    return value;
}

uint64_t fz_word(fz *f, const char *name)
{
    uint64_t value = fz_one_in(f, 4) ? UINT64_MAX - fz_below(f, 3) : fz_u32(f);
    TRACE(" %s=%llu", name, (unsigned long long)value);
    return value;
}

uintptr_t fz_id(fz *f, const char *name)
{
    (void)name;
    return fz_below(f, 4);
}

mlx_dtype fz_dtype(fz *f, const char *name)
{
    int value = fz_one_in(f, 60)  ? from(f, -1, 20)
                : fz_one_in(f, 3) ? MLX_FLOAT32
                                  : from(f, 0, 13);
    TRACE(" %s=%d", name, value);
    return (mlx_dtype)value;
}

mlx_fft_norm fz_norm(fz *f, const char *name)
{
    (void)name;
    return (mlx_fft_norm)(fz_one_in(f, 40) ? 7 : from(f, 0, 2));
}

mlx_device_type fz_device_type(fz *f, const char *name)
{
    (void)name;
    return (mlx_device_type)(fz_one_in(f, 40) ? 9 : from(f, 0, 1));
}

mlx_compile_mode fz_compile_mode(fz *f, const char *name)
{
    (void)name;
    return (mlx_compile_mode)(fz_one_in(f, 40) ? 9 : from(f, 0, 3));
}

mlx_optional_int fz_optional_int(fz *f, const char *name)
{
    static const int groups[] = {16, 32, 64, 128}, bits[] = {2, 3, 4, 5, 6, 8};
    mlx_optional_int value = {0, fz_below(f, 2)};
    if (fz_one_in(f, 8))
        value.value = fz_int(f, name);
    else
        value.value =
            has(name, "group") ? groups[fz_below(f, 4)] : bits[fz_below(f, 6)];
    TRACE(" %s=%d/%d", name, value.value, value.has_value);
    return value;
}

mlx_optional_float fz_optional_float(fz *f, const char *name)
{
    float value = fz_float(f, name);
    return (mlx_optional_float){value, fz_below(f, 2)};
}

mlx_optional_dtype fz_optional_dtype(fz *f, const char *name)
{
    mlx_dtype value = fz_dtype(f, name);
    return (mlx_optional_dtype){value, fz_below(f, 2)};
}

/* ---- texts ---- */

#define PICK(table) table[fz_below(f, sizeof table / sizeof *table)]

static const char *text_of(fz *f, const char *name)
{
    static const char *const pads[] = {"constant",  "edge", "reflect",
                                       "symmetric", "",     "\xff%n%s"};
    static const char *const modes[] = {"affine", "mxfp4",  "mxfp8",
                                        "nvfp4",  "affine", "%s"};
    static const char *const masks[] = {"", "", "causal", "array", "none"};
    static const char *const sums[] = {"ij,jk->ik",
                                       "ij,jk",
                                       "ii->i",
                                       "ii",
                                       "i,j->ij",
                                       "ij->ji",
                                       "...ij,...jk->...ik",
                                       "ij,ij->",
                                       "abc,cd->abd",
                                       "a,a,a->a",
                                       "ij->",
                                       "i->ii",
                                       "ijk,ikl->ijl",
                                       "i,->i",
                                       "->",
                                       "",
                                       ",",
                                       "ij,j",
                                       "...->...",
                                       "ij...->j...",
                                       "a b,b c->a c",
                                       "ab,bc,cd->ad",
                                       "i?j",
                                       "->->",
                                       "ij,jk->il",
                                       "AaB,Ba->A"};
    static const char *const sides[] = {"left", "right", "both"};
    static const char *const indexings[] = {"xy", "ij", ""};
    static const char *const uplos[] = {"L", "U", "l", ""};
    static const char *const orders[] = {"fro", "f", "nuc", "two"};
    static const char *const backends[] = {"any", "none", "", "ring"};
    static const char *const others[] = {
        "a",
        "b",
        "a",
        "b",
        "a",
        "",
        "long long long long long long long long long long long text",
        "%s%n",
        "\xc3\xa9\xff",
        "line\nline",
        "size",
        "device_name",
        "architecture"};
    if (!strcmp(name, "mode"))
        return f->calling && has(f->calling, "pad") ? PICK(pads) : PICK(modes);
    if (!strcmp(name, "mask_mode"))
        return PICK(masks);
    if (!strcmp(name, "subscripts"))
        return PICK(sums);
    if (!strcmp(name, "side"))
        return PICK(sides);
    if (!strcmp(name, "indexing"))
        return PICK(indexings);
    if (!strcmp(name, "UPLO"))
        return PICK(uplos);
    if (!strcmp(name, "ord"))
        return PICK(orders);
    if (!strcmp(name, "bk"))
        return PICK(backends);
    if (!strcmp(name, "file") || !strcmp(name, "path"))
        return fz_path_for(f);
    return PICK(others);
}

const char *fz_text(fz *f, const char *name, bool optional)
{
    const char *text = optional && fz_one_in(f, 2) ? NULL : text_of(f, name);
    TRACE(" %s=\"%s\"", name, text ? text : "NULL");
    return text;
}

/* ---- lists ---- */

void *fz_scratch(fz *f, size_t size)
{
    FUZZ_CHECK(f->scratch_count < FZ_SCRATCH);
    void *data = malloc(size ? size : 1);
    FUZZ_CHECK(data);
    f->scratch[f->scratch_count++] = data;
    return data;
}

/* How long a list is: often as long as the one before, or as an array has
 * dimensions. */
static size_t list_size(fz *f, size_t most)
{
    size_t n;
    if (f->count != SIZE_MAX && !fz_one_in(f, 5))
        n = f->count;
    else if (f->list >= 0 && !fz_one_in(f, 4))
        n = (size_t)f->list;
    else if (f->ndim >= 0 && fz_one_in(f, 2))
        n = (size_t)f->ndim;
    else
        n = fz_one_in(f, 60) ? most : fz_below(f, 5);
    if (f->count == SIZE_MAX)
        f->count = n;
    return n;
}

/* A list of nothing is not read, so it may point anywhere. */
static void *list_new(fz *f, size_t n, size_t size)
{
    if (!n)
        return fz_one_in(f, 2) ? NULL : (void *)(uintptr_t)24;
    return fz_scratch(f, n * size);
}

static int copy_shape(int *out, const fz *f)
{
    memcpy(out, f->first_shape, sizeof f->first_shape);
    return f->ndim;
}

int *fz_ints(fz *f, const char *name, size_t *n)
{
    bool is_shape = has(name, "shape") || has(name, "slice_size");
    int shape[6];
    int rank = is_shape ? fz_shape(f, shape, FZ_LARGEST) : 0;
    if (has(name, "slice_size") && f->ndim >= 0 && f->ndim < 6) {
        rank = copy_shape(shape, f);
        if (rank && !fz_one_in(f, 3))
            shape[0] = 1;
    }
    *n = is_shape && !fz_one_in(f, 4) ? (size_t)rank : list_size(f, 40);
    int *list = list_new(f, *n, sizeof *list);
    TRACE(" %s=[", name);
    for (size_t i = 0; i < *n; i++) {
        if (fz_one_in(f, 60))
            list[i] = extreme(f);
        else if (is_shape && i < (size_t)rank)
            list[i] = shape[i];
        else if (has(name, "axes") || has(name, "axis"))
            list[i] = fz_one_in(f, 3) ? from(f, -4, 3) : (int)i;
        else if (has(name, "stride") || has(name, "dilation"))
            list[i] = fz_one_in(f, 4) ? from(f, -3, 3) : 1;
        else if (has(name, "stop") || !strcmp(name, "n"))
            list[i] = fz_one_in(f, 3) ? from(f, -3, 8) : f->base[i % 5];
        else if (has(name, "start") || has(name, "pad"))
            list[i] = fz_one_in(f, 3) ? from(f, -3, 5) : from(f, 0, 1);
        else
            list[i] = from(f, -2, 6);
        TRACE("%d,", list[i]);
    }
    TRACE("]");
    return list;
}

int64_t *fz_longs(fz *f, const char *name, size_t *n)
{
    *n = list_size(f, 20);
    int64_t *list = list_new(f, *n, sizeof *list);
    TRACE(" %s=[", name);
    for (size_t i = 0; i < *n; i++) {
        list[i] = fz_one_in(f, 20)   ? (int64_t)1 << from(f, 0, 62)
                  : fz_one_in(f, 40) ? INT64_MIN
                                     : from(f, -2, 6);
        TRACE("%lld,", (long long)list[i]);
    }
    TRACE("]");
    return list;
}

uint64_t *fz_words(fz *f, const char *name, size_t *n)
{
    (void)name;
    *n = fz_below(f, 4);
    uint64_t *list = list_new(f, *n, sizeof *list);
    for (size_t i = 0; i < *n; i++)
        list[i] = fz_below(f, 3);
    return list;
}

const char **fz_texts(fz *f, const char *name, size_t *n)
{
    *n = fz_below(f, 5);
    const char **list = list_new(f, *n, sizeof *list);
    for (size_t i = 0; i < *n; i++)
        list[i] = fz_text(f, name, false);
    return list;
}

#define HANDLES(plural, kind)                                                  \
    mlx_##kind *fz_##plural(fz *f, const char *name, size_t *n)                \
    {                                                                          \
        *n = fz_below(f, 4);                                                   \
        mlx_##kind *list = list_new(f, *n, sizeof *list);                      \
        for (size_t i = 0; i < *n; i++)                                        \
            list[i] = fz_##kind##_in(f, name, false);                          \
        return list;                                                           \
    }
HANDLES(arrays, array)
HANDLES(vectors, vector_array)
HANDLES(streams, stream)

/* ---- arrays ---- */

int fz_shape(fz *f, int *shape, size_t limit)
{
    int rank = fz_one_in(f, 2) ? f->rank : from(f, 0, 4);
    size_t size = 1;
    for (int i = 0; i < rank; i++) {
        int dim = f->base[5 - rank + i];
        if (fz_one_in(f, 10))
            dim = 1;
        else if (fz_one_in(f, 30))
            dim = from(f, 0, 6);
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
        double value = small     ? from(f, -2, 5)
                       : special ? number(f)
                                 : (double)from(f, -64, 64) / 8;
        uint64_t bits = fz_u32(f) | (uint64_t)fz_u32(f) << 32;
        if (dtype == MLX_BOOL) {
            *at = (char)(bits & 1);
        } else if (dtype == MLX_FLOAT32 || dtype == MLX_COMPLEX64) {
            float part[2] = {
                fabs(value) > 1e38 && isfinite(value) ? 1e38f : (float)value,
                (float)from(f, -2, 2)};
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
            int64_t whole = from(f, small ? -2 : -9, small ? 5 : 40);
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

static mlx_array new_array(fz *f, const char *name, int *shape, int rank)
{
    bool index = has(name, "indices") || has(name, "start") ||
                 has(name, "offset") || has(name, "segments") ||
                 has(name, "targets");
    bool key = !strcmp(name, "key");
    mlx_dtype dtype = fz_one_in(f, 2) ? MLX_FLOAT32 : (mlx_dtype)from(f, 0, 13);
    if (f->ndim >= 0 && fz_one_in(f, 2))
        dtype = (mlx_dtype)f->first_dtype;
    else if (f->floats && fz_one_in(f, 3))
        dtype = fz_one_in(f, 2) ? MLX_FLOAT16 : MLX_BFLOAT16;
    else if (f->floats)
        dtype = MLX_FLOAT32;
    if (index && !fz_one_in(f, 8))
        dtype = fz_one_in(f, 2) ? MLX_INT32 : MLX_UINT32;
    if ((has(name, "mask") || has(name, "condition")) && fz_one_in(f, 2))
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
    return new_array(f, name, shape, rank);
}

/* ---- shapes that go together ---- */

/* The shape of the call's first array, by what the function does; -1: any. */
static int first_shape(fz *f, int *shape)
{
    static const int wide[] = {32, 64, 128};
    const char *name = f->calling ? f->calling : "";
    bool packs = has(name, "quantize") || has(name, "qmm") || has(name, "qqmm");
    int rank = -1;
    if (has(name, "conv"))
        rank = has(name, "1d")   ? 3
               : has(name, "2d") ? 4
               : has(name, "3d") ? 5
                                 : from(f, 3, 5);
    else if (has(name, "attention"))
        rank = 4;
    else if (has(name, "rope"))
        rank = from(f, 3, 4);
    else if (packs || has(name, "cross_entropy"))
        rank = 2;
    else if (has(name, "linalg") || has(name, "mm"))
        rank = from(f, 2, 3);
    else if (has(name, "scatter") || has(name, "gather") ||
             has(name, "dynamic") || has(name, "along"))
        rank = from(f, 1, 3);
    f->floats = rank >= 0 && !has(name, "scatter") && !has(name, "gather_s") &&
                !fz_one_in(f, 8);
    for (int i = 0; i < rank; i++)
        shape[i] = from(f, 1, 4);
    if (packs)
        shape[1] = wide[fz_below(f, 3)];
    else if (has(name, "rope"))
        shape[rank - 1] = 2 * shape[rank - 1];
    else if (has(name, "linalg"))
        shape[rank - 1] = shape[rank - 2];
    return rank;
}

/* The shape of a further one. */
static int next_shape(fz *f, const char *name, int *shape)
{
    const char *calling = f->calling ? f->calling : "";
    int rank = copy_shape(shape, f), last = rank ? shape[rank - 1] : 1;
    if (!strcmp(name, "weight") && has(calling, "conv")) {
        for (int i = 0; i + 1 < rank; i++)
            shape[i] = from(f, 1, 2);
    } else if (!strcmp(name, "weight") || !strcmp(name, "bias")) {
        shape[0] = last;
        rank = 1;
    } else if (!strcmp(name, "targets")) {
        rank -= rank > 0;
    } else if (has(name, "mask_arr") && rank == 4) {
        shape[0] = shape[1] = shape[2];
        rank = 2;
    } else if (has(name, "start") || has(name, "offset")) {
        shape[0] = from(f, 1, 2);
        rank = from(f, 0, 1);
    } else if (!strcmp(name, "indices") && !has(calling, "along") &&
               !has(calling, "add_axis")) {
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
    } else if (has(calling, "mm") && !strcmp(name, "b") && rank > 1) {
        shape[rank - 1] = shape[rank - 2];
        shape[rank - 2] = last;
    }
    return rank;
}

/* Draws a shape that suits the call, or -1. */
static int suited_shape(fz *f, const char *name, int *shape)
{
    if (fz_one_in(f, 6) || f->ndim > 5)
        return -1;
    return f->ndim < 0 ? first_shape(f, shape) : next_shape(f, name, shape);
}

/* ---- handles ---- */

static int slots(fz_kind kind)
{
    return kind == FZ_array ? FZ_ARRAYS : FZ_OTHERS;
}

/* Whether it is to get a result of this call. */
static bool reserved(fz *f, fz_kind kind, int slot)
{
    for (int i = 0; i < f->out_count; i++)
        if (f->out[i].kind == kind && f->out[i].slot == slot)
            return true;
    return false;
}

/* An empty place, or -1. */
static int empty_slot(fz *f, fz_kind kind)
{
    int n = slots(kind), first = (int)fz_below(f, (uint32_t)n);
    for (int i = 0; i < n; i++) {
        int slot = (first + i) % n;
        if (!f->pool[kind][slot] && !reserved(f, kind, slot))
            return slot;
    }
    return -1;
}

static const char *const kind_names[] = {
#define X(kind) #kind,
    FZ_KINDS(X)
#undef X
};

static void trace_array(fz *f, const char *name, int slot, void *ctx)
{
    if (!f->trace)
        return;
    mlx_array a = {ctx};
    fprintf(stderr, " %s=#%d:%d[", name, slot, (int)mlx_array_dtype(a));
    size_t n = mlx_array_ndim(a);
    for (size_t i = 0; i < n; i++)
        fprintf(stderr, "%d,", mlx_array_shape(a)[i]);
    fprintf(stderr, "]");
}

void *fz_in(fz *f, fz_kind kind, const char *name, bool optional)
{
    if (optional ? fz_one_in(f, 2) : fz_one_in(f, 40)) {
        TRACE(" %s=empty", name);
        return NULL;
    }
    int slot = (int)fz_below(f, (uint32_t)slots(kind));
    int shape[6], rank = -1;
    bool fresh = kind == FZ_array && !fz_one_in(f, f->inner ? 2 : 5);
    if (fresh) {
        int other = empty_slot(f, kind);
        rank = strcmp(name, "key") ? suited_shape(f, name, shape) : 0;
        fresh = rank >= 0 && other >= 0;
        slot = fresh ? other : slot;
    }
    if (f->inner && kind == FZ_array && !f->pool[kind][slot] && !fresh)
        /* What it is given, rather than constants. */
        for (int i = 0; i < FZ_ARRAYS && !f->pool[kind][slot]; i++)
            slot = (slot + 1) % FZ_ARRAYS;
    while (!f->pool[kind][slot] && reserved(f, kind, slot))
        slot = (slot + 1) % slots(kind);
    if (!f->pool[kind][slot])
        f->pool[kind][slot] = kind != FZ_array ? fz_make(f, kind)
                              : fresh ? new_array(f, name, shape, rank).ctx
                                      : fz_new_array(f, name).ctx;
    void *ctx = f->pool[kind][slot];
    if (kind == FZ_vector_array && ctx && f->list < 0)
        f->list = (int)mlx_vector_array_size((mlx_vector_array){ctx});
    if (kind == FZ_array && ctx) {
        mlx_array a = {ctx};
        if (f->ndim < 0) {
            f->ndim = (int)mlx_array_ndim(a);
            f->first_dtype = mlx_array_dtype(a);
            for (int i = 0; i < f->ndim && i < 6; i++)
                f->first_shape[i] = mlx_array_shape(a)[i];
        }
        trace_array(f, name, slot, ctx);
    } else {
        TRACE(" %s=%s#%d%s", name, kind_names[kind], slot, ctx ? "" : "-");
    }
    return ctx;
}

void **fz_out(fz *f, fz_kind kind)
{
    int slot = (int)fz_below(f, (uint32_t)slots(kind));
    if (f->pool[kind][slot] && !fz_one_in(f, 3)) {
        int other = empty_slot(f, kind);
        slot = other >= 0 ? other : slot;
    }
    /* Two results of a call have two places. */
    while (reserved(f, kind, slot))
        slot = (slot + 1) % slots(kind);
    FUZZ_CHECK(f->out_count < 8);
    f->out[f->out_count].kind = kind;
    f->out[f->out_count].slot = slot;
    f->out[f->out_count++].empty = !f->pool[kind][slot];
    TRACE(" ->%s#%d%s", kind_names[kind], slot, f->pool[kind][slot] ? "!" : "");
    return &f->pool[kind][slot];
}

void fz_put(fz *f, fz_kind kind, void *ctx)
{
    int slot = empty_slot(f, kind);
    if (slot < 0 || f->out_count == 8) {
        fz_free(kind, ctx);
        return;
    }
    f->pool[kind][slot] = ctx;
    f->out[f->out_count].kind = kind;
    f->out[f->out_count].slot = slot;
    f->out[f->out_count++].empty = true;
    TRACE(" ->%s#%d", kind_names[kind], slot);
}

void *fz_take(fz *f, fz_kind kind)
{
    int slot = (int)fz_below(f, (uint32_t)slots(kind));
    void *ctx = f->pool[kind][slot];
    f->pool[kind][slot] = NULL;
    TRACE(" %s#%d", kind_names[kind], slot);
    return ctx;
}

/* ---- around a call ---- */

void fz_begin(fz *f)
{
    f->heard = fz_reports;
    f->functions = fz_entered;
    if (f->no_memory && fz_one_in(f, 6))
        qn_test_fail_alloc((long)fz_below(f, fz_one_in(f, 4) ? 200 : 12));
}

void fz_status(fz *f, int status)
{
    if (!f->inner)
        qn_test_fail_alloc(-1);
    FUZZ_CHECK(status >= 0 && status <= 3);
    TRACE(" = %d\n", status);
    if (!status && f->row < FZ_ROWS)
        fz_worked[f->row]++;
    if (status == 1)
        FUZZ_CHECK(fz_reports > f->heard);
    else if (fz_entered == f->functions)
        FUZZ_CHECK(fz_reports == f->heard);
    /* A call that fails leaves its results as they were. */
    for (int i = 0; status && i < f->out_count; i++)
        FUZZ_CHECK(!f->out[i].empty ||
                   !f->pool[f->out[i].kind][f->out[i].slot]);
}

static volatile size_t sink;

void fz_read_text(fz *f, const char *text)
{
    (void)f;
    if (text)
        sink = strlen(text);
}

void fz_read_data(fz *f, mlx_array a, size_t size, const void *data)
{
    bool flat = false;
    (void)f;
    if (!a.ctx || !data || !mlx_array_size(a))
        return;
    FUZZ_CHECK(!_mlx_array_is_row_contiguous(&flat, a));
    /* The program may have asked for another type. */
    size_t n = size > mlx_array_itemsize(a) ? 0
               : flat                       ? mlx_array_size(a) * size
                                            : size;
    unsigned sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += ((const unsigned char *)data)[i];
    sink = sum;
}

/* Also an array without elements can be cut into millions. */
static bool array_fits(mlx_array a)
{
    size_t size = 1, n = mlx_array_ndim(a);
    for (size_t i = 0; i < n && size <= FZ_LARGEST; i++)
        size *= mlx_array_shape(a)[i] ? (size_t)mlx_array_shape(a)[i] : 1;
    return size <= FZ_LARGEST && n <= 12;
}

/* Whether the program can afford to go on with it. */
static bool fits(fz_kind kind, void *ctx)
{
    if (kind == FZ_array)
        return array_fits((mlx_array){ctx});
    if (kind == FZ_vector_vector_array)
        return mlx_vector_vector_array_size((mlx_vector_vector_array){ctx}) <=
               FZ_LIST;
    if (kind == FZ_vector_string)
        return mlx_vector_string_size((mlx_vector_string){ctx}) <= FZ_LIST;
    if (kind == FZ_vector_int)
        return mlx_vector_int_size((mlx_vector_int){ctx}) <= FZ_LIST;
    if (kind != FZ_vector_array)
        return true;
    mlx_vector_array list = {ctx};
    size_t n = mlx_vector_array_size(list);
    bool fine = n <= FZ_LIST;
    for (size_t i = 0; fine && i < n; i++) {
        mlx_array a = {NULL};
        /* Memory may be out inside a function of arrays. */
        fine = !mlx_vector_array_get(&a, list, i) && array_fits(a);
        mlx_array_free(a);
    }
    return fine;
}

static void drop(fz *f, fz_kind kind, int slot)
{
    fz_free(kind, f->pool[kind][slot]);
    f->pool[kind][slot] = NULL;
}

void fz_end(fz *f)
{
    if (!f->inner)
        qn_test_fail_alloc(-1);
    for (int i = 0; i < f->out_count; i++) {
        fz_kind kind = f->out[i].kind;
        void *ctx = f->pool[kind][f->out[i].slot];
        if (!ctx)
            continue;
        if (!fits(kind, ctx)) {
            drop(f, kind, f->out[i].slot);
        } else if (fz_one_in(f, f->inner ? 40 : 3)) {
            if (kind == FZ_array)
                (void)mlx_array_eval((mlx_array){ctx});
            else if (kind == FZ_vector_array)
                (void)mlx_eval((mlx_vector_array){ctx});
        }
    }
    /* What has been appended to is no result. */
    for (int i = 0; i < FZ_OTHERS; i++)
        for (fz_kind kind = FZ_vector_array; kind <= FZ_vector_string; kind++)
            if (f->pool[kind][i] && fz_one_in(f, 8) &&
                !fits(kind, f->pool[kind][i]))
                drop(f, kind, i);
    while (f->scratch_count)
        free(f->scratch[--f->scratch_count]);
}

/* ---- a program ---- */

void fz_start(fz *f)
{
    static const int wide[] = {16, 32, 64, 128};
    uint32_t family = fz_below(f, 6);
    int same = from(f, 1, 5);
    f->rank = from(f, 0, 5);
    for (int i = 0; i < 5; i++)
        f->base[i] = family < 2   ? same
                     : family < 4 ? from(f, 1, 6)
                     : family < 5 ? from(f, 1, 3)
                                  : from(f, 0, 4);
    if (family == 4) {
        f->base[4] = wide[fz_below(f, 4)];
        if (fz_one_in(f, 2))
            f->base[3] = f->base[4] > 64 ? 32 : f->base[4];
    }
    f->ndim = -1;
    f->floats = false;
    f->list = -1;
    f->count = SIZE_MAX;
    if (!f->inner)
        for (int i = 0; i < 6; i++)
            f->pool[FZ_array][i] = fz_new_array(f, "a").ctx;
}

/* Operations that take almost anything, for the functions of arrays. */
static const fz_row *easy_row(fz *f)
{
    static const char *const names[] = {
        "mlx_add",    "mlx_multiply", "mlx_subtract",  "mlx_sum",
        "mlx_exp",    "mlx_sin",      "mlx_tanh",      "mlx_maximum",
        "mlx_matmul", "mlx_square",   "mlx_transpose", "mlx_softmax_axis",
        "mlx_divide", "mlx_mean",     "mlx_where",     "mlx_take_axis",
        "mlx_sort",   "mlx_cumsum",   "mlx_sigmoid",   "mlx_flatten"};
    static const fz_row *rows[sizeof names / sizeof *names];
    size_t pick = fz_below(f, sizeof names / sizeof *names);
    for (size_t i = 0; !rows[pick] && i < fz_row_count; i++)
        if (!strcmp(fz_rows[i].name, names[pick]))
            rows[pick] = &fz_rows[i];
    return rows[pick];
}

bool fz_callable(const fz_row *row)
{
    return row->function != NULL;
}

void fz_step(fz *f)
{
    const fz_row *row;
    if (f->inner && fz_one_in(f, 2))
        row = easy_row(f);
    else
        row = &fz_rows[fz_below(f, (uint32_t)fz_row_count)];
    if (!fz_callable(row) || (f->inner && !row->operation))
        return;
    if (!f->inner && fz_one_in(f, 4)) {
        fz_kind kind =
            fz_one_in(f, 2) ? FZ_array : (fz_kind)fz_below(f, FZ_KINDS_COUNT);
        int slot = (int)fz_below(f, (uint32_t)slots(kind));
        if (f->pool[kind][slot])
            drop(f, kind, slot);
    }
    f->ndim = -1;
    f->floats = false;
    f->list = -1;
    f->count = SIZE_MAX;
    f->out_count = 0;
    f->calling = row->name;
    f->row = (size_t)(row - fz_rows);
    TRACE("%s%s:", f->inner ? "    " : "", row->name);
    row->call(f);
    if (!f->inner)
        qn_test_fail_alloc(-1);
    TRACE("\n");
    fz_calls++;
    while (f->scratch_count)
        free(f->scratch[--f->scratch_count]);
}

void fz_finish(fz *f)
{
    uint32_t step = fz_below(f, FZ_KINDS_COUNT);
    for (int i = 0; i < FZ_KINDS_COUNT; i++) {
        fz_kind kind = (fz_kind)((i * 7u + step) % FZ_KINDS_COUNT);
        for (int slot = 0; slot < slots(kind); slot++)
            if (f->pool[kind][slot])
                drop(f, kind, slot);
    }
}
