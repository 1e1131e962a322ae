/* abi_draw.c: where everything is drawn from; numbers, texts and lists. */
#include "abi.h"

#include <limits.h>
#include <math.h>

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
    else if (fz_has(name, "axis") || fz_has(name, "source") ||
             fz_has(name, "dest"))
        value = f->ndim > 0 && !fz_one_in(f, 6)
                    ? fz_from(f, -f->ndim, f->ndim - 1)
                    : fz_from(f, -4, 4);
    else if (fz_has(name, "stride") || fz_has(name, "dilation") ||
             fz_has(name, "groups"))
        value = fz_one_in(f, 8) ? fz_from(f, -1, 3) : 1;
    else if (fz_has(name, "padding"))
        value = fz_one_in(f, 8) ? fz_from(f, -3, 5) : fz_from(f, 0, 2);
    else if (!strcmp(name, "width") || !strcmp(name, "block_size"))
        value = 1 << fz_from(f, 0, 6);
    else if (fz_one_in(f, 4))
        value = f->base[fz_below(f, 5)];
    else
        value = fz_from(f, -2, 8);
    FZ_TRACE(" %s=%d", name, value);
    return value;
}

bool fz_bool(fz *f, const char *name)
{
    bool value = fz_below(f, 2);
    FZ_TRACE(" %s=%d", name, value);
    return value;
}

size_t fz_size(fz *f, const char *name)
{
    static const size_t values[] = {SIZE_MAX, SIZE_MAX / 2, (size_t)INT_MAX + 1,
                                    INT_MAX,  1u << 20,     100};
    size_t value = fz_one_in(f, 20) ? values[fz_below(f, 6)] : fz_below(f, 5);
    FZ_TRACE(" %s=%zu", name, value);
    return value;
}

double fz_number_of(fz *f)
{
    static const double values[] = {
        0,      -0.0,    1,     -1,           0.5,
        2,      3,       1e-5,  1e-40,        1e30,
        -1e30,  1e300,   NAN,   127,          -128,
        256,    65504,   65536, 2147483647.0, -2147483648.0,
        9.3e18, -9.3e18, 0.1,   INFINITY,     -INFINITY};
    if (fz_one_in(f, 3))
        return values[fz_below(f, sizeof values / sizeof *values)];
    return (double)fz_from(f, -64, 64) / 8;
}

float fz_float(fz *f, const char *name)
{
    double wide = fz_number_of(f);
    float value = fabs(wide) > 1e38 && isfinite(wide) ? 1e38f : (float)wide;
    FZ_TRACE(" %s=%g", name, value);
    return value;
}

double fz_double(fz *f, const char *name)
{
    double value = fz_number_of(f);
    FZ_TRACE(" %s=%g", name, value);
    return value;
}

uint64_t fz_word(fz *f, const char *name)
{
    uint64_t value = fz_one_in(f, 4) ? UINT64_MAX - fz_below(f, 3) : fz_u32(f);
    FZ_TRACE(" %s=%llu", name, (unsigned long long)value);
    return value;
}

uintptr_t fz_id(fz *f, const char *name)
{
    (void)name;
    return fz_below(f, 4);
}

mlx_dtype fz_dtype(fz *f, const char *name)
{
    int value = fz_one_in(f, 60)  ? fz_from(f, -1, 20)
                : fz_one_in(f, 3) ? MLX_FLOAT32
                                  : fz_from(f, 0, 13);
    FZ_TRACE(" %s=%d", name, value);
    return (mlx_dtype)value;
}

mlx_fft_norm fz_norm(fz *f, const char *name)
{
    (void)name;
    return (mlx_fft_norm)(fz_one_in(f, 40) ? 7 : fz_from(f, 0, 2));
}

mlx_device_type fz_device_type(fz *f, const char *name)
{
    (void)name;
    return (mlx_device_type)(fz_one_in(f, 40) ? 9 : fz_from(f, 0, 1));
}

mlx_compile_mode fz_compile_mode(fz *f, const char *name)
{
    (void)name;
    return (mlx_compile_mode)(fz_one_in(f, 40) ? 9 : fz_from(f, 0, 3));
}

mlx_optional_int fz_optional_int(fz *f, const char *name)
{
    static const int groups[] = {16, 32, 64, 128}, bits[] = {2, 3, 4, 5, 6, 8};
    mlx_optional_int value = {0, fz_below(f, 2)};
    if (fz_one_in(f, 8))
        value.value = fz_int(f, name);
    else
        value.value = fz_has(name, "group") ? groups[fz_below(f, 4)]
                                            : bits[fz_below(f, 6)];
    FZ_TRACE(" %s=%d/%d", name, value.value, value.has_value);
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
        return f->calling && fz_has(f->calling, "pad") ? PICK(pads)
                                                       : PICK(modes);
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
    FZ_TRACE(" %s=\"%s\"", name, text ? text : "NULL");
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
    if (f->empty_lists)
        return 0;
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

int *fz_ints(fz *f, const char *name, size_t *n)
{
    bool is_shape = fz_has(name, "shape") || fz_has(name, "slice_size");
    int shape[6];
    int rank = is_shape ? fz_shape(f, shape, FZ_LARGEST) : 0;
    if (fz_has(name, "slice_size") && f->ndim >= 0 && f->ndim < 6) {
        rank = fz_copy_shape(shape, f);
        if (rank && !fz_one_in(f, 3))
            shape[0] = 1;
    }
    *n = is_shape && !f->empty_lists && !fz_one_in(f, 4) ? (size_t)rank
                                                         : list_size(f, 40);
    int *list = list_new(f, *n, sizeof *list);
    FZ_TRACE(" %s=[", name);
    for (size_t i = 0; i < *n; i++) {
        if (fz_one_in(f, 60))
            list[i] = extreme(f);
        else if (is_shape && i < (size_t)rank)
            list[i] = shape[i];
        else if (fz_has(name, "axes") || fz_has(name, "axis"))
            list[i] = fz_one_in(f, 3) ? fz_from(f, -4, 3) : (int)i;
        else if (fz_has(name, "stride") || fz_has(name, "dilation"))
            list[i] = fz_one_in(f, 4) ? fz_from(f, -3, 3) : 1;
        else if (fz_has(name, "stop") || !strcmp(name, "n"))
            list[i] = fz_one_in(f, 3) ? fz_from(f, -3, 8) : f->base[i % 5];
        else if (fz_has(name, "start") || fz_has(name, "pad"))
            list[i] = fz_one_in(f, 3) ? fz_from(f, -3, 5) : fz_from(f, 0, 1);
        else
            list[i] = fz_from(f, -2, 6);
        FZ_TRACE("%d,", list[i]);
    }
    FZ_TRACE("]");
    return list;
}

int64_t *fz_longs(fz *f, const char *name, size_t *n)
{
    *n = list_size(f, 20);
    int64_t *list = list_new(f, *n, sizeof *list);
    FZ_TRACE(" %s=[", name);
    for (size_t i = 0; i < *n; i++) {
        list[i] = fz_one_in(f, 20)   ? (int64_t)1 << fz_from(f, 0, 62)
                  : fz_one_in(f, 40) ? INT64_MIN
                                     : fz_from(f, -2, 6);
        FZ_TRACE("%lld,", (long long)list[i]);
    }
    FZ_TRACE("]");
    return list;
}

uint64_t *fz_words(fz *f, const char *name, size_t *n)
{
    (void)name;
    *n = f->empty_lists ? 0 : fz_below(f, 4);
    uint64_t *list = list_new(f, *n, sizeof *list);
    for (size_t i = 0; i < *n; i++)
        list[i] = fz_below(f, 3);
    return list;
}

const char **fz_texts(fz *f, const char *name, size_t *n)
{
    *n = f->empty_lists ? 0 : fz_below(f, 5);
    const char **list = list_new(f, *n, sizeof *list);
    for (size_t i = 0; i < *n; i++)
        list[i] = fz_text(f, name, false);
    return list;
}

#define HANDLES(plural, kind)                                                  \
    mlx_##kind *fz_##plural(fz *f, const char *name, size_t *n)                \
    {                                                                          \
        *n = f->empty_lists ? 0 : fz_below(f, 4);                              \
        mlx_##kind *list = list_new(f, *n, sizeof *list);                      \
        for (size_t i = 0; i < *n; i++)                                        \
            list[i] = fz_##kind##_in(f, name, false);                          \
        return list;                                                           \
    }
HANDLES(arrays, array)
HANDLES(vectors, vector_array)
HANDLES(streams, stream)
