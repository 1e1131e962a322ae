/* abi.h: random programs over the C ABI (fuzz_abi.c, and
 * build/libfuzzer/fuzz/abi).
 *
 * A program is a series of calls of functions of the table, which
 * tools/genabi.c makes of the list of all functions.  What the calls give
 * goes into pools, from which later calls draw.  Everything is drawn from one
 * source: bytes of a fuzzer, or a generator with a seed.
 *
 * A program keeps the rules that the headers give a caller (buffers are as
 * long as they say, a handle is freed once) and breaks all others. */
#ifndef QN_FUZZ_ABI_H
#define QN_FUZZ_ABI_H

#include "fuzz.h"

#include "mlx/c/mlx.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

enum {
    FZ_LIST = 16,         /* elements of a list of handles that is kept */
    FZ_ARRAYS = 16,       /* places for arrays */
    FZ_OTHERS = 5,        /* places for each other kind of handle */
    FZ_SCRATCH = 64,      /* allocations of one call */
    FZ_LARGEST = 1 << 12, /* elements of an array that is kept */
    FZ_FILES = 6
};

/* The kinds of handles, by their names without mlx_. */
#define FZ_KINDS(X)                                                            \
    X(array)                                                                   \
    X(string)                                                                  \
    X(device)                                                                  \
    X(device_info)                                                             \
    X(stream)                                                                  \
    X(stream_thread_local)                                                     \
    X(vector_array)                                                            \
    X(vector_vector_array)                                                     \
    X(vector_int)                                                              \
    X(vector_string)                                                           \
    X(vector_stream)                                                           \
    X(map_string_to_array)                                                     \
    X(map_string_to_string)                                                    \
    X(closure)                                                                 \
    X(closure_kwargs)                                                          \
    X(closure_value_and_grad)                                                  \
    X(closure_custom)                                                          \
    X(closure_custom_jvp)                                                      \
    X(closure_custom_vmap)                                                     \
    X(compile_cache)                                                           \
    X(io_reader)                                                               \
    X(io_writer)                                                               \
    X(io_gguf)                                                                 \
    X(distributed_group)                                                       \
    X(function_exporter)                                                       \
    X(imported_function)                                                       \
    X(node_namer)                                                              \
    X(fast_metal_kernel)                                                       \
    X(fast_metal_kernel_config)                                                \
    X(fast_cuda_kernel)                                                        \
    X(fast_cuda_kernel_config)

typedef enum fz_kind {
#define X(name) FZ_##name,
    FZ_KINDS(X)
#undef X
        FZ_KINDS_COUNT
} fz_kind;

typedef struct fz fz;

typedef struct fz_row {
    const char *name;
    void (*call)(fz *f);
    bool operation;         /* functions of arrays call these, too */
    void (*function)(void); /* NULL when the library has none */
} fz_row;

extern const fz_row fz_rows[];
extern const size_t fz_row_count;

struct fz {
    /* Where everything is drawn from: `data` while there is some, or `state`
     * when data is NULL. */
    const uint8_t *data;
    size_t left;
    uint64_t state;
    bool ended;

    bool inner;          /* the body of a function of arrays */
    const char *calling; /* the function */
    size_t row;          /* of the table */
    bool trace;
    bool no_memory;   /* fails allocations now and then */
    bool empty_lists; /* every list has no elements */

    void *pool[FZ_KINDS_COUNT][FZ_ARRAYS];
    int base[5], rank; /* the sizes that shapes are made of */

    /* Of one call. */
    void *scratch[FZ_SCRATCH];
    int scratch_count;
    int ndim; /* of its first array, or -1 */
    int first_shape[6], first_dtype;
    bool floats;    /* it takes floating arrays only */
    int list;       /* length of its first list of arrays, or -1 */
    size_t count;   /* of its first list, or SIZE_MAX */
    long heard;     /* reports before it */
    long functions; /* closures entered before it */
    struct {
        fz_kind kind;
        int slot;
        bool empty;
    } out[8];
    int out_count;
};

/* ---- the program's own counts ---- */

extern atomic_long fz_reports; /* calls of the error handler */
extern atomic_long fz_entered; /* calls of functions of arrays */
/* Payloads, buffers and byte streams that the library holds: 0 when everything
 * is freed. */
extern atomic_long fz_held;
extern unsigned long long fz_calls;
/* How often each function of the table has given 0. */
enum { FZ_ROWS = 1024 };
extern unsigned long fz_worked[FZ_ROWS];

/* ---- a program ---- */

/* Draws sizes and the first arrays. */
void fz_start(fz *f);
/* One call. */
void fz_step(fz *f);
/* Frees all handles in some order. */
void fz_finish(fz *f);
/* Restores what is the process's: limits, devices, streams, caches, files. */
void fz_reset_process(void);
/* A whole program, and the checks after it (fuzz_abi.c). */
void fz_run(fz *f, size_t calls);
/* The files that programs read and write lie in a directory of their own. */
void fz_files_make(void);
void fz_files_end(void);
/* One for the function that is called; what is to be loaded may be there. */
const char *fz_path_for(fz *f);
void fz_remove_files(void);
mlx_io_reader fz_new_reader(fz *f);
mlx_io_writer fz_new_writer(fz *f);
mlx_io_gguf fz_new_gguf(fz *f);
/* Damages one of the files. */
void fz_damage(fz *f);
/* Whether the function is there and programs may call it. */
bool fz_callable(const fz_row *row);

/* ---- drawing ---- */

uint32_t fz_u32(fz *f);
uint32_t fz_below(fz *f, uint32_t n);
static inline bool fz_one_in(fz *f, uint32_t n)
{
    return fz_below(f, n) == 0;
}

/* low to high, both included. */
static inline int fz_from(fz *f, int low, int high)
{
    return low + (int)fz_below(f, (uint32_t)(high - low + 1));
}
static inline bool fz_has(const char *text, const char *part)
{
    return strstr(text, part) != NULL;
}
#define FZ_TRACE(...)                                                          \
    do {                                                                       \
        if (f->trace)                                                          \
            fprintf(stderr, __VA_ARGS__);                                      \
    } while (0)
double fz_number_of(fz *f);

int fz_int(fz *f, const char *name);
bool fz_bool(fz *f, const char *name);
size_t fz_size(fz *f, const char *name);
float fz_float(fz *f, const char *name);
double fz_double(fz *f, const char *name);
uint64_t fz_word(fz *f, const char *name);
uintptr_t fz_id(fz *f, const char *name);
const char *fz_text(fz *f, const char *name, bool optional);
mlx_dtype fz_dtype(fz *f, const char *name);
mlx_fft_norm fz_norm(fz *f, const char *name);
mlx_device_type fz_device_type(fz *f, const char *name);
mlx_compile_mode fz_compile_mode(fz *f, const char *name);
mlx_optional_int fz_optional_int(fz *f, const char *name);
mlx_optional_float fz_optional_float(fz *f, const char *name);
mlx_optional_dtype fz_optional_dtype(fz *f, const char *name);

/* Lists of exactly *n on the heap; for 0 often a pointer to nowhere. */
int *fz_ints(fz *f, const char *name, size_t *n);
int64_t *fz_longs(fz *f, const char *name, size_t *n);
uint64_t *fz_words(fz *f, const char *name, size_t *n);
const char **fz_texts(fz *f, const char *name, size_t *n);
mlx_array *fz_arrays(fz *f, const char *name, size_t *n);
mlx_vector_array *fz_vectors(fz *f, const char *name, size_t *n);
mlx_stream *fz_streams(fz *f, const char *name, size_t *n);
/* Freed at the end of the call. */
void *fz_scratch(fz *f, size_t size);

/* A shape of this program, of at most `limit` elements; the rank. */
int fz_shape(fz *f, int *shape, size_t limit);
/* A new array of any kind, perhaps a view; `name` hints at what it is for. */
mlx_array fz_new_array(fz *f, const char *name);
mlx_array fz_new_array_of(fz *f, const char *name, int *shape, int rank);
/* Draws a shape that suits the call and its arrays so far; -1: any does. */
int fz_suited_shape(fz *f, const char *name, int *shape);
static inline int fz_copy_shape(int *out, const fz *f)
{
    memcpy(out, f->first_shape, sizeof f->first_shape);
    return f->ndim;
}
/* Elements of a dtype. */
void fz_fill(fz *f, void *data, size_t n, mlx_dtype dtype, bool small);

FILE *fz_file(fz *f);
void fz_file_close(FILE *file);

/* ---- handles ---- */

/* fz_X_in: one of the pool, now and then an empty handle (often, if it is
 * optional).  fz_X_out: a place for a result, empty or full.  fz_X_put: files a
 * handle that was returned.  fz_X_take: one that leaves the pool. */
void *fz_in(fz *f, fz_kind kind, const char *name, bool optional);
void **fz_out(fz *f, fz_kind kind);
void fz_put(fz *f, fz_kind kind, void *ctx);
void *fz_take(fz *f, fz_kind kind);
#define X(kind)                                                                \
    static inline mlx_##kind fz_##kind##_in(fz *f, const char *name,           \
                                            bool optional)                     \
    {                                                                          \
        return (mlx_##kind){fz_in(f, FZ_##kind, name, optional)};              \
    }                                                                          \
    static inline mlx_##kind *fz_##kind##_out(fz *f)                           \
    {                                                                          \
        return (mlx_##kind *)fz_out(f, FZ_##kind);                             \
    }                                                                          \
    static inline void fz_##kind##_put(fz *f, mlx_##kind made)                 \
    {                                                                          \
        fz_put(f, FZ_##kind, made.ctx);                                        \
    }                                                                          \
    static inline mlx_##kind fz_##kind##_take(fz *f)                           \
    {                                                                          \
        return (mlx_##kind){fz_take(f, FZ_##kind)};                            \
    }
FZ_KINDS(X)
#undef X

/* ---- around a call ---- */

void fz_begin(fz *f);
/* A call's int: 0, or 1 after a report and without a result. */
void fz_status(fz *f, int status);
static inline void fz_number(fz *f, long long number)
{
    (void)f;
    (void)number;
}
#define fz_nothing(f, call) (call)
/* Reads what came back. */
void fz_read_text(fz *f, const char *text);
void fz_read_data(fz *f, mlx_array a, size_t size, const void *data);
/* Frees the scratch, and results that are too large to go on with. */
void fz_end(fz *f);

/* Written by genabi. */
void fz_free(fz_kind kind, void *ctx);
/* A handle of the kind, made of what there is; NULL where only calls of the
 * table make one (abi_hand.c). */
void *fz_make(fz *f, fz_kind kind);

/* Callers by hand (abi_hand.c). */
#define FZ_HAND(name)                                                          \
    void fz_hand_##name(fz *f);                                                \
    void fz_hand_##name(fz *f)

/* ---- functions of arrays (abi_closure.c) ---- */

/* What their bodies are drawn from; counted in fz_held until freed. */
void *fz_payload_new(fz *f);
void fz_payload_free(void *payload);
int fz_fun(mlx_vector_array *res, const mlx_vector_array in, void *payload);
int fz_fun_plain(mlx_vector_array *res, const mlx_vector_array in);
int fz_fun_unary(mlx_array *res, const mlx_array in);
int fz_fun_kwargs(mlx_vector_array *res, const mlx_vector_array in,
                  const mlx_map_string_to_array kwargs, void *payload);
int fz_fun_value_and_grad(mlx_vector_array *values, mlx_vector_array *grads,
                          const mlx_vector_array in, void *payload);
int fz_fun_custom(mlx_vector_array *res, const mlx_vector_array primals,
                  const mlx_vector_array cotangents,
                  const mlx_vector_array outputs, void *payload);
int fz_fun_custom_jvp(mlx_vector_array *res, const mlx_vector_array primals,
                      const mlx_vector_array tangents, const int *argnums,
                      size_t n, void *payload);
int fz_fun_custom_vmap(mlx_vector_array *res, mlx_vector_int *out_axes,
                       const mlx_vector_array in, const int *axes, size_t n,
                       void *payload);

#endif
