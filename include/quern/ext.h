/* ext.h: what the engine offers beyond the MLX C API.
 *
 * Handles, results, errors and evaluation follow the rules at the top of
 * mlx/c/types.h.  Over another library that exports the MLX C API, each
 * function has a fallback made of mlx_* calls. */
#ifndef QUERN_EXT_H
#define QUERN_EXT_H

#include "mlx/c/mlx.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

/* --- Errors --------------------------------------------------------------- */

/* The message of the calling thread's last failing call since the last take, to
 * be freed with free(); NULL if there is none.  A succeeding call leaves it
 * alone.  The engine keeps it before it calls the error handler, so a handler
 * that does nothing is enough to work with it. */
char *quern_error_take(void);

/* --- Identity ------------------------------------------------------------- */

/* The release of quern, such as "0.1.0"; mlx_version tells the version of MLX
 * whose interface and numerics the engine follows. */
const char *quern_version(void);

/* "(built in)"; over another library, the path that it was loaded from. */
const char *quern_library_path(void);

/* What mlx_device_info has for the default device under "architecture", such as
 * "x86_64": the same pointer each time, valid as long as the process.  NULL
 * after an error report. */
const char *quern_device_architecture(void);

/* --- The engine itself ---------------------------------------------------- */

/* Opens the array library and checks its version; call it before any other
 * function of the MLX C API.  Where the engine is built in there is nothing to
 * do.  Returns 0, or 1 with a message for quern_error_take.  Failure is not
 * kept: a later call tries again. */
int quern_engine_open(void);

/* Threads that compute inside one operation, the calling one included: 1 to
 * 512, or 0 for one on each core that the process may use.  Takes effect with
 * the next evaluation; not while one runs.  Never changes a result.  Returns 0,
 * or 1 for another number.  Over another library: does nothing. */
int quern_set_threads(int threads);

/* --- Compiled functions --------------------------------------------------- */

/* Whether the calling thread is recording a shapeless function (mlx_compile),
 * if only around another recording.  What takes sizes from shapes asks this
 * first. Over another library: false. */
bool quern_in_shapeless_trace(void);

/* How often the function of a compiled closure has been recorded, by all
 * threads; 0 for other closures.  Over another library: 0. */
size_t quern_closure_trace_count(const mlx_closure cls);

/* --- Custom kernels ------------------------------------------------------- */

/* mlx_fast_metal_kernel_apply and mlx_fast_cuda_kernel_apply run, on a CPU, the
 * function that was registered by the kernel's name; the source is not looked
 * at.  docs/custom-kernels.md shows one. */

/* An input or output: where it lies. */
typedef struct quern_view {
    void *data; /* the first element; inputs are not to be changed */
    mlx_dtype dtype;
    int ndim;
    const int *shape;
    const int64_t *strides; /* in elements */
} quern_view;

/* One launch, as its function gets it. */
typedef struct quern_kernel_args {
    size_t n_in, n_out;
    const quern_view *in;
    quern_view *out; /* row-major, with every element to be written */
    /* The grid, and the group (tile) clipped to it: three numbers each. */
    const int *grid, *group;
    /* Template arguments by name, from `templates`: 0 if there is one of that
     * kind.  A bool reads as 0 or 1. */
    int (*template_int)(const void *templates, const char *name, int *v);
    int (*template_dtype)(const void *templates, const char *name,
                          mlx_dtype *v);
    const void *templates;
    /* The calling worker's memory, of the size that the kernel asked for as
     * shared_memory, aligned to 64 bytes, with any content. */
    void *scratch;
    /* Calls fn(arg, i, scratch) for each i below n on the engine's threads, in
     * any order, with each worker's own memory; `ctx` comes from here.  Not
     * from inside fn. */
    void (*parallel)(void *ctx, size_t n,
                     void (*fn)(void *arg, size_t i, void *scratch), void *arg);
    void *ctx;
    /* Room for a message where the function returns another value than 0. */
    char *error;
    size_t error_cap;
} quern_kernel_args;

/* Computes all outputs once per evaluation and returns 0; anything else fails
 * the evaluation with the message.  It must not call the array API. */
typedef int (*quern_kernel_fn)(const quern_kernel_args *args);

/* Registers a function for the rest of the process.  Returns 0; 1 after an
 * error report for a name that another function has.  Over another library
 * always an error. */
int quern_kernel_register(const char *name, quern_kernel_fn fn);

typedef struct quern_kernel_output {
    const int *shape;
    size_t ndim;
    mlx_dtype dtype;
} quern_kernel_output;

/* A template argument: an int, a bool as 0 or 1, or a mlx_dtype. */
typedef enum quern_template_kind {
    QUERN_TEMPLATE_INT,
    QUERN_TEMPLATE_BOOL,
    QUERN_TEMPLATE_DTYPE
} quern_template_kind;
typedef struct quern_kernel_template {
    const char *name;
    quern_template_kind kind;
    int value;
} quern_kernel_template;

/* How to launch a kernel: values, or callbacks that find them from the inputs'
 * shapes.  Where there is a callback the value beside it is not read.  Each
 * callback runs once while quern_kernel_apply builds the node, so once in each
 * eager call and once in each recording of a compiled function; it returns 0,
 * and what it stores must stay until quern_kernel_apply returns.  All zeros but
 * outputs, grid and group is a start. */
typedef struct quern_kernel_launch {
    const quern_kernel_output *outputs;
    size_t n_outputs;
    int (*find_outputs)(void *data, const mlx_vector_array inputs,
                        const quern_kernel_output **outputs, size_t *n_outputs);
    int grid[3], group[3];
    int (*find_grid)(void *data, const mlx_vector_array inputs, int grid[3],
                     int group[3]);
    void *data; /* for callbacks */
    bool has_init;
    float init; /* what outputs are filled with before the function runs */
    bool verbose;
    const quern_kernel_template *templates;
    size_t n_templates;
} quern_kernel_launch;

/* Launches the kernel; *outputs becomes the list of its outputs.  Returns 0; 1
 * after an error report, also for a callback that returned another value than
 * 0. */
int quern_kernel_apply(mlx_vector_array *outputs,
                       const mlx_fast_metal_kernel kernel,
                       const mlx_vector_array inputs,
                       const quern_kernel_launch *launch,
                       const mlx_stream stream);

/* --- Caches of keys and values ---------------------------------------------
 */

/* How keys and values are stored:
 *
 *   floats  of `dtype`: float32, float16, bfloat16
 *   affine  with `bits` 4 or 8: codes in groups of `group_size` (32 or 64)
 *           elements of a head, with scales and biases of `dtype`, as
 *           mlx_quantize makes them
 *   turbo   with key_bits (2, 4, 5, 8) and value_bits (2, 3, 4, 5, 8): the
 *           format of quern_tq_encode with groups of 32, float16 scales and the
 *           guard on, for heads of 64, 128, 256, 512; dtype, bits and
 *           group_size are not read then */
typedef struct quern_kv_form {
    int kv_heads, head_dim;
    mlx_dtype dtype;
    int bits, group_size;     /* 0: not affine */
    int key_bits, value_bits; /* 0: not turbo */
} quern_kv_form;

/* The arrays of a cache with room for `need` tokens or more; *capacity becomes
 * what there is room for.  What `old` (an empty handle: nothing) has stored is
 * kept, and its room is not given back.
 *
 * They are two for floats, six for affine and five for turbo caches; their
 * layout is the library's own.  Their bytes are those of the planes that
 * quern_kv_read gives, for `capacity` tokens, a multiple of 128. */
int quern_kv_room(mlx_vector_array *res, int *capacity,
                  const quern_kv_form *form, const mlx_vector_array old,
                  int need, const mlx_stream s);

/* The arrays of a cache without `count` of its tokens from `first` on, both
 * multiples of 128: those behind them move up, as far as there is room.  There
 * is room for `need` tokens, rounded up, which may be less than before. */
int quern_kv_drop(mlx_vector_array *res, int *capacity,
                  const quern_kv_form *form, const mlx_vector_array old,
                  int first, int count, int need, const mlx_stream s);

/* The first `count` tokens of a cache in an order that everyone knows: planes
 * [1, kv_heads, count, n], row-major.  Floats: keys, values.  Affine: words,
 * scales, biases of keys, then of values, as mlx_quantize packs them.  Turbo:
 * the five planes of quern_tq_encode. */
int quern_kv_read(mlx_vector_array *res, const quern_kv_form *form,
                  const mlx_vector_array cache, int count, const mlx_stream s);

/* The arrays of a cache from such planes; *capacity as in quern_kv_room.  Every
 * shape and dtype is checked. */
int quern_kv_write(mlx_vector_array *res, int *capacity,
                   const quern_kv_form *form, const mlx_vector_array planes,
                   const mlx_stream s);

/* One sequence: `offset` tokens are in its cache and `count` rows follow.
 * `skipped` further ones, that no row sees, were dropped (quern_kv_drop): the
 * first ones of the sequence, with `keep` those behind its first 128. */
typedef struct quern_kv_step {
    mlx_vector_array cache; /* its arrays are replaced by those that follow */
    int offset, count, skipped;
} quern_kv_step;

typedef struct quern_kv_options {
    int heads; /* of queries: a multiple of kv_heads */
    float scale;
    int window; /* a row sees the last so many tokens, itself included; 0: all
                 */
    int keep;   /* beside a window it sees the first so many, at most 128 */
    /* Rotary embedding of q and k, as mlx_fast_rope: 0 dims leave it out; the
     * base counts where there are no frequencies. */
    int rope_dims;
    bool rope_traditional;
    float rope_base, rope_scale;
    mlx_array rope_freqs, sinks; /* empty handles: none */
    float cap; /* a score s becomes cap * tanh(s / cap); 0: it stays */
} quern_kv_options;

/* Stores rows of k and v in the caches of the sequences that they continue, and
 * attends over what is then there: softmax(scale q k^T) v, causal.
 *
 * q is [..., R, heads * head_dim], k and v are [..., R, kv_heads * head_dim],
 * of one type of float32, float16, bfloat16; the R rows belong to the `count`
 * sequences in their order.  Keys are turned before they are stored.  *res
 * becomes an array like q.
 *
 * With empty handles for k and v nothing is stored: the caches have the rows
 * already, from another call with the same steps, and stay as they are.
 *
 * A row has the same bits whatever other rows and sequences there are, however
 * its sequence was cut into steps, for any number of threads.  Against float64
 * arithmetic on the keys and values as stored: at most 2^-20 * max|v| * (4 +
 * max|score|), plus half a unit of the type.
 *
 * Packed caches are read as they are: nothing is expanded to memory (but for
 * prompts, a block of values at a time).  Keys as stored are code * scale +
 * bias, or (code + zero) * scale, in exact arithmetic; values the same, or
 * centroid * scale, rotated back.  A query is rounded to 16-bit integers with a
 * scale for each group of the keys, which moves a score by at most e = 2^-16
 * scale * sum over groups of max|q| sum|k|, and so the result by at most
 * (exp(2 e) - 1) max|v| more, |v| being the length of a value where it is
 * rotated.
 *
 * Caches are written in place when nobody else holds their arrays. */
int quern_kv_attention(mlx_array *res, const mlx_array q, const mlx_array k,
                       const mlx_array v, const quern_kv_form *form,
                       const quern_kv_step *steps, size_t count,
                       const quern_kv_options *options, const mlx_stream s);

/* --- Gated delta nets ------------------------------------------------------
 */

/* A layer with a state of fixed size, over T further rows of a sequence.  All
 * arrays are float32.
 *
 *   x        [T, C]         q, k, v before the convolution: key_heads * Dk,
 *                           key_heads * Dk, H * Dv channels, C in all
 *   a, b     [T, H]         what decay and rate are made of
 *   filter   [K, C]         of a causal convolution, the present row last
 *   a_log, dt_bias [H]
 *   tail     [K - 1, C]     the rows of x before these; zeros at the beginning
 *   state    [H, Dk, Dv]    a matrix for each head of values; zeros at first
 *
 * Channels become silu of their convolution; q and k of each head are divided
 * by sqrt(sum of squares + 1e-6), q also by sqrt(Dk).  Then, for each row and
 * head (heads of q and k serve H / key_heads heads of values each):
 *
 *   S = exp(-exp(a_log) softplus(a + dt_bias)) S
 *   S = S + k^T sigmoid(b) (v - k S);  y = q S
 *
 * *y becomes [T, H * Dv], *tail_out and *state_out what follows the rows.  A
 * row has the same bits however its sequence was cut, for any number of
 * threads. */
int quern_gated_delta(mlx_array *y, mlx_array *tail_out, mlx_array *state_out,
                      const mlx_array x, const mlx_array a, const mlx_array b,
                      const mlx_array filter, const mlx_array a_log,
                      const mlx_array dt_bias, const mlx_array tail,
                      const mlx_array state, int key_heads, const mlx_stream s);

/* --- The packed KV format ------------------------------------------------- */

/* TurboQuant: keys as affine codes in groups along the head, values as numbers
 * of cells of a codebook after a fixed rotation.  docs/turboquant.md defines
 * it.  Heads have D = 64, 128, 256 or 512 elements; keys take 2, 4, 5 or 8
 * bits, values 2, 3, 4, 5 or 8, groups are of 32 or 64.
 *
 * Five planes make a cache, in this order: packed key codes [B, H, N, D * bits
 * / 8] (uint8; int8 with 8 bits), key scales and key zero points [B, H, N, D /
 * group], packed value codes [B, H, N, D * bits / 8] (uint8), value scales [B,
 * H, N, D / group].  All results are lazy, and the same to the bit for any
 * processor and number of threads. */

/* Codes, a byte each [..., D], as a stream of bits [..., D * bits / 8], the
 * lowest first; and back.  D * bits must be whole bytes.  With 8 bits the
 * result is what was given. */
int quern_tq_pack(mlx_array *res, const mlx_array codes, int bits,
                  const mlx_stream s);
int quern_tq_unpack(mlx_array *res, const mlx_array packed, int bits,
                    int head_dim, const mlx_stream s);

/* The centroids of values of so many bits, ascending; the signs of a rotation
 * of so many elements: float32. */
int quern_tq_centroids(mlx_array *res, int value_bits);
int quern_tq_signs(mlx_array *res, int head_dim);

/* x [..., D] into the basis in which values are stored (float32), and back (of
 * the dtype of x). */
int quern_tq_rotate(mlx_array *res, const mlx_array x, const mlx_stream s);
int quern_tq_unrotate(mlx_array *res, const mlx_array x, const mlx_stream s);

/* Codes of keys [..., D] of float32, float16 or bfloat16, a byte each (int8
 * with 8 bits, else uint8), scales and zero points, float16 [..., D / group].
 * With `guard`, groups that their pair can't represent become their midpoint;
 * without, they decode to NaN or zeros. */
int quern_tq_encode_keys(mlx_array *codes, mlx_array *scale, mlx_array *zero,
                         const mlx_array keys, int bits, int group_size,
                         bool guard, const mlx_stream s);
/* Codes of values, uint8, and scales. */
int quern_tq_encode_values(mlx_array *codes, mlx_array *scale,
                           const mlx_array values, int bits, int group_size,
                           const mlx_stream s);
/* The five planes of keys and values [B, H, N, D], in groups of 32. */
int quern_tq_encode(mlx_vector_array *planes, const mlx_array keys,
                    const mlx_array values, int key_bits, int value_bits,
                    bool guard, const mlx_stream s);

/* What codes stand for, as bfloat16.  `defer` leaves values rotated: then what
 * attention makes of them is to be turned back, quern_tq_unrotate. */
int quern_tq_decode_keys(mlx_array *res, const mlx_array codes,
                         const mlx_array scale, const mlx_array zero,
                         const mlx_stream s);
int quern_tq_decode_values(mlx_array *res, const mlx_array codes,
                           const mlx_array scale, int bits, bool defer,
                           const mlx_stream s);

/* All planes in one pass, if *accepted: keys as bfloat16, values rotated, as
 * float32 or, with `defer`, bfloat16.  It is no error if they are not: then
 * nothing has been made, and the functions above give the same.  Declined are
 * shapeless recordings, other widths, dtypes than above, centroids that are not
 * 2^value_bits float32, planes that are empty, do not fit each other or have
 * 2^32 elements, groups other than 32 and 64, scales other than float16,
 * bfloat16 and float32; over another library, everything.  Planes may be
 * strided. */
int quern_tq_try_joint_decode(bool *accepted, mlx_array *keys,
                              mlx_array *values, const mlx_vector_array planes,
                              const mlx_array centroids, int key_bits,
                              int value_bits, int head_dim, bool defer,
                              const mlx_stream s);
/* The same with the rotation undone: keys and values as bfloat16. */
int quern_tq_try_fused_eager(bool *accepted, mlx_array *keys, mlx_array *values,
                             const mlx_vector_array planes,
                             const mlx_array centroids, const mlx_array signs,
                             int key_bits, int value_bits, int head_dim,
                             const mlx_stream s);

/* A layer's cache in this format, with groups of 32.  Not locked: one thread at
 * a time.  Arrays that it hands out keep what they hold, whatever the cache
 * stores or drops later. */
typedef struct quern_tq_cache quern_tq_cache;

typedef struct quern_tq_options {
    int key_bits, value_bits;
    bool guard;          /* of quern_tq_encode_keys: true is what caches want */
    bool plane_by_plane; /* never decode in one pass: no result changes */
} quern_tq_options;

/* One without tokens; free takes NULL, too.  A reset drops everything. */
int quern_tq_cache_new(quern_tq_cache **res, const quern_tq_options *options);
void quern_tq_cache_free(quern_tq_cache *cache);
void quern_tq_cache_reset(quern_tq_cache *cache);
/* Shares what is stored; both go their own ways. */
int quern_tq_cache_clone(quern_tq_cache **res, const quern_tq_cache *cache);

/* Encodes keys and values [B, H, n, D] behind the tokens that are there.  After
 * an error the cache is as before. */
int quern_tq_cache_append(quern_tq_cache *cache, const mlx_array keys,
                          const mlx_array values, const mlx_stream s);
/* All tokens, bfloat16 [B, H, offset, D]; an error while there are none.  With
 * `defer`, values are rotated, and *v_rotated says so: this belongs to what was
 * fetched. */
int quern_tq_cache_fetch(mlx_array *keys, mlx_array *values, bool *v_rotated,
                         const quern_tq_cache *cache, bool defer,
                         const mlx_stream s);
int quern_tq_cache_append_and_fetch(mlx_array *k, mlx_array *v, bool *v_rotated,
                                    quern_tq_cache *cache, const mlx_array keys,
                                    const mlx_array values, bool defer,
                                    const mlx_stream s);
/* Drops the newest n tokens or all; *dropped is how many. */
int quern_tq_cache_trim(int *dropped, quern_tq_cache *cache, int n);

/* The five planes cut to the tokens that are there; an empty list for none. */
int quern_tq_cache_state(mlx_vector_array *res, const quern_tq_cache *cache,
                         const mlx_stream s);
/* A cache of planes [B, H, capacity, ...] whose first `offset` tokens count. It
 * shares the arrays; the handles stay the caller's. */
int quern_tq_cache_restore(quern_tq_cache **res,
                           const quern_tq_options *options,
                           const mlx_vector_array planes, int offset,
                           int head_dim);
/* Encodes the keys and values of another cache, evaluates, and frees those
 * handles (they become empty).  Empty ones make an empty cache.  `late`: the
 * sequence had begun without packing, so that shorter prefixes of it are not to
 * be reused. */
int quern_tq_cache_from_plain(quern_tq_cache **res,
                              const quern_tq_options *options, mlx_array *keys,
                              mlx_array *values, bool late, const mlx_stream s);

typedef struct quern_tq_info {
    quern_tq_options options;
    int head_dim, batch, kv_heads; /* 0: not known yet */
    int offset;                    /* tokens */
    int capacity; /* tokens that there is room for; grows by multiples of 256 */
    int minimum_reusable_offset;
    size_t bytes;
    double bytes_per_token;
    /* "kv:turboquant:8:3" and "turbo-k8v3", as long as the cache: what it is,
     * and what keys of stored caches have in them. */
    const char *signature, *key;
} quern_tq_info;
void quern_tq_cache_info_get(quern_tq_info *info, const quern_tq_cache *cache);

/* The cache as bytes (free), which must have tokens.  Loading refuses what
 * other options or another head_dim (0: any) made, and bytes that are cut off,
 * changed or something else. */
int quern_tq_cache_save(void **data, size_t *size, const quern_tq_cache *cache,
                        const mlx_stream s);
int quern_tq_cache_load(quern_tq_cache **res, const void *data, size_t size,
                        const quern_tq_options *options, int head_dim);

/* Rows of a batch: of one length, shorter ones with zero records on the left,
 * which masks must leave out.  Stored bytes are moved as they are. */
int quern_tq_cache_merge(quern_tq_cache **res,
                         const quern_tq_cache *const *caches, size_t count,
                         const mlx_stream s);
/* The rows of these numbers, in their order. */
int quern_tq_cache_filter(quern_tq_cache **res, const quern_tq_cache *cache,
                          const int *rows, size_t count, const mlx_stream s);
/* One row without its padding: what a cache of this row alone would be. */
int quern_tq_cache_extract(quern_tq_cache **res, const quern_tq_cache *cache,
                           int row, const mlx_stream s);
/* Drops the newest drop[i] tokens of row i. */
int quern_tq_cache_rollback(quern_tq_cache *cache, const int *drop,
                            size_t count, const mlx_stream s);
/* Puts n records of zeros before all rows. */
int quern_tq_cache_left_pad(quern_tq_cache *cache, int n, const mlx_stream s);
/* Tokens of a row, padding left out. */
int quern_tq_cache_row_offset(const quern_tq_cache *cache, int row);

/* --- Arrays -------------------------------------------------------------- */

/* A value in storage of its own: row-major, exactly as large as its elements,
 * shared with nothing, so that a large buffer that x is a view of can go.
 * Element bits are moved as they are, in any dtype.  The buffer of x serves
 * again only where nothing else holds it and all of it is needed.  Gradients
 * pass; compiled functions, shapeless ones too, keep the copy.  The two names
 * are one function. */
int quern_materialize(mlx_array *res, const mlx_array x, const mlx_stream s);
int quern_materialize_copy(mlx_array *res, const mlx_array x,
                           const mlx_stream s);

/* start, start + step, ... up to but without stop: whole numbers (stop may have
 * a fraction), each rounded once from its exact value; integers wrap.
 *
 * Ranges of 65,536 elements or more and of at most 8 MiB are kept, 8 MiB in
 * all, and what was used least recently goes first.  A kept range is data
 * without a stream: it may be used on every stream of every thread.  Over
 * another library each thread keeps its own. */
int quern_arange(mlx_array *res, double start, double stop, double step,
                 mlx_dtype dtype, const mlx_stream s);
/* Lets go of what is kept (over another library: by the calling thread);
 * arrays that were given out stay.  Always 0. */
int quern_arange_cache_clear(void);

/* --- Choice of tokens ----------------------------------------------------- */

/* logits [..., V] of float32, float16 or bfloat16 plus 0 for each token whose
 * bit is 1 and -inf for the others, added in their type: NaN stays, +inf that
 * is forbidden becomes NaN, -0 that is allowed +0.  Token t is bit t % 32 of
 * words[t / 32]; words that are missing are 0, what is past the last token is
 * not looked at.  With 0 words, `words` may be NULL, and no token is allowed.
 * The words are copied by the call. */
int quern_apply_token_bitmask(mlx_array *res, const mlx_array logits,
                              const int32_t *words, size_t n_words,
                              const mlx_stream s);

/* The same with a mask for each row: `n_rows` is the number of rows of logits
 * (the product of all axes but the last), or the length of the first axis,
 * whose entries then have one mask each, or 1.  words[i] has `words_per_row`
 * words; NULL allows every token. */
int quern_apply_token_bitmask_rows(mlx_array *res, const mlx_array logits,
                                   const int32_t *const *words, size_t n_rows,
                                   size_t words_per_row, const mlx_stream s);

/* The first place of the largest log-probability of each row of logits
 * [..., V], as uint32 [...]: logits - logsumexp(logits), rounded to their type
 * (which makes ties that the logits don't have).  NaN counts as -inf: a row
 * with NaN or +inf, or of only -inf, gives 0.  Nothing of the size of logits is
 * written.  Works in shapeless functions. */
int quern_normalized_argmax(mlx_array *res, const mlx_array logits,
                            const mlx_stream s);

/* --- Packed matrices ------------------------------------------------------ */

/* Products of x with 1 to 3 packed matrices, x w^T, as mlx_quantized_matmul
 * with `transpose` makes them, with these differences:
 *
 *   - several matrices share x (query, key and value; gate and up): result i is
 *     that of w[i], scales[i], biases[i];
 *   - results have the dtype of x, whatever floating types scales and biases
 *     have: float32 scales don't turn half activations into float32;
 *   - mode "affine" takes group_size 16, too.
 *
 * For modes without biases, `biases` is an empty list or an empty handle.  All
 * matrices are packed alike.  *res becomes a list of the results. */
int quern_quantized_matmul(mlx_vector_array *res, const mlx_array x,
                           const mlx_vector_array w,
                           const mlx_vector_array scales,
                           const mlx_vector_array biases, int group_size,
                           int bits, const char *mode, const mlx_stream s);

/* mlx_gather_qmm with `transpose` and indices of w alone, with the differences
 * of quern_quantized_matmul. */
int quern_gather_qmm(mlx_array *res, const mlx_array x, const mlx_array w,
                     const mlx_array scales, const mlx_array biases,
                     const mlx_array ids, int group_size, int bits,
                     const char *mode, const mlx_stream s);

/* x [..., K] times the transpose of a packed matrix w [N, K * bits / 32], as
 * mlx_quantized_matmul makes it, where each row has the bits that it has
 * alone: several tokens at once give what one after the other gives.  Several
 * rows need mode "affine" and w, scales and biases of two axes. */
int quern_quantized_matmul_rows(mlx_array *res, const mlx_array x,
                                const mlx_array w, const mlx_array scales,
                                const mlx_array biases, int group_size,
                                int bits, const char *mode, const mlx_stream s);

/* --- Panels: products in 8-bit integers ----------------------------------- */

/* Packed matrices that were laid out for products by 8-bit integers, with
 * activations that are rounded to integers of two bytes (15 bits; 16 less the
 * width of codes of 2 to 4 bits), with a scale for each 32 elements of a row.
 * A row of a product has the same bits alone and among others, for any number
 * of threads, on any processor. */

/* Where the scale (and bias) of a group comes from. */
typedef enum quern_panel_scaling {
    QUERN_PANEL_FLOATS, /* numbers of scale_dtype */
    /* Products of two, of float16 for 256 elements and a small integer for a
     * group: blocks of GGUF files only.  NIBBLES: integers of 4 bits. */
    QUERN_PANEL_NESTED,
    QUERN_PANEL_NIBBLES,
    QUERN_PANEL_E8M0, /* half of the scales of mode mxfp4: one byte each */
    QUERN_PANEL_E4M3  /* half of those of nvfp4 */
} quern_panel_scaling;

/* What a code c stands for, v(c). */
typedef enum quern_panel_table {
    QUERN_PANEL_CODES, /* itself */
    QUERN_PANEL_E2M1,  /* twice the number of mxfp4 and nvfp4, plus 12 */
    QUERN_PANEL_IQ4    /* the entry of IQ4_NL and IQ4_XS, plus 128 */
} quern_panel_table;

/* An element is scale * v(c) + bias, or scale * (v(c) - zero). */
typedef struct quern_panel_form {
    int group_size;        /* 16, 32, 64, 128 */
    int bits;              /* 2, 3, 4, 5, 6, 8; 4 with a table */
    int zero;              /* the v whose value is 0; -1: biases are stored */
    mlx_dtype scale_dtype; /* float32, float16, bfloat16; of biases, too */
    quern_panel_scaling scaling;
    quern_panel_table table;
    int cols;  /* elements of a row: a multiple of 32 */
    int count; /* matrices that lie one after the other, 1 to 3 */
    int rows[3];
} quern_panel_form;

typedef enum quern_panel_gate {
    QUERN_GATE_NONE,
    QUERN_GATE_SILU, /* x * sigmoid(x) */
    QUERN_GATE_GELU  /* x * (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2 */
} quern_panel_gate;

/* What is done before and after a product.  Empty handles leave a step out. */
typedef struct quern_panel_steps {
    mlx_array norm; /* x becomes rms_norm(x, norm, eps) first; [cols] */
    float eps;
    quern_panel_gate gate; /* of two matrices: f(first product) * second */
    mlx_array residual;    /* added to the one result; of its shape and dtype */
} quern_panel_steps;

/* Whether the functions below compute with panels: false over another
 * library, where they return an error. */
bool quern_panel_available(void);

/* Lays matrices out: w[i] uint32 [rows, cols * bits / 32], scales[i] and, where
 * form->zero is -1, biases[i] [rows, cols / group_size] of scale_dtype (E8M0
 * and E4M3: uint8).  cols, count and rows of *form are results; the rest is
 * given.  *res becomes a uint8 array; the matrices are no longer needed when it
 * has been evaluated. */
int quern_panel_pack(mlx_array *res, quern_panel_form *form,
                     const mlx_vector_array w, const mlx_vector_array scales,
                     const mlx_vector_array biases, const mlx_stream s);

/* A matrix as GGUF files store it: rows of blocks, one after the other. */
typedef struct quern_panel_blocks {
    const void *data;
    int rows;
    const uint32_t *source_row; /* row i is row source_row[i]; NULL: i */
} quern_panel_blocks;

/* Lays out `count` matrices of blocks of one type, by its number in GGUF files
 * (Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K to Q6_K, IQ4_NL, IQ4_XS and MXFP4), with
 * rows of `cols` elements, which are whole blocks.  No value changes.  *form is
 * a result.  Unlike other functions it computes at once: data is not needed
 * after it.  `done` (may be NULL) is told on the way of bytes that are no
 * longer needed, from any thread, so that pages of a large file can go. */
int quern_panel_pack_blocks(mlx_array *res, quern_panel_form *form, int type,
                            int cols, const quern_panel_blocks *w, int count,
                            void (*done)(void *ctx, const void *data,
                                         size_t size),
                            void *ctx, const mlx_stream s);

/* x [..., cols] of float32, float16 or bfloat16 times the transposes of the
 * matrices: *res becomes a list of form->count results [..., rows[i]] of the
 * dtype of x; one with steps->gate.  `steps` may be NULL. */
int quern_panel_matmul(mlx_vector_array *res, const mlx_array x,
                       const mlx_array panels, const quern_panel_form *form,
                       const quern_panel_steps *steps, const mlx_stream s);

/* Products with matrices that are chosen by ids, as in a mixture of experts:
 * each matrix of `panels` is that of `experts` experts below one another, with
 * a multiple of 16 rows each (form->rows are those of all).  Row [t, i] of
 * result m, [T, used, rows], is x[t, i], or x[t, 0] where x [T, n, cols] has
 * n = 1, times the transpose of expert ids[t, i] (int32 [T, used]) of matrix m;
 * one result with a gate.  A row has the bits that it has alone. */
int quern_panel_experts(mlx_vector_array *res, const mlx_array x,
                        const mlx_array panels, const quern_panel_form *form,
                        int experts, const mlx_array ids, quern_panel_gate gate,
                        const mlx_stream s);

/* Rows `ids` (int32 or uint32; negative ones count from the end) of the one
 * matrix of `panels` as [..., cols] of float32, float16 or bfloat16.  An id
 * out of range is an error of the evaluation. */
int quern_panel_rows(mlx_array *res, const mlx_array panels,
                     const quern_panel_form *form, const mlx_array ids,
                     mlx_dtype dtype, const mlx_stream s);

/* ---- working memory --------------------------------------------------------
 *
 * Bytes that operations take at most beside their arguments and results, on the
 * threads of this process; 0 for sizes that make no sense. */

/* quern_kv_attention: `rows` rows of `dtype` of one sequence, turned if there
 * are rope_dims, when `keys` tokens are stored. */
size_t quern_kv_workspace(const quern_kv_form *form, mlx_dtype dtype, int heads,
                          int rope_dims, int rows, int keys);
/* A product of `rows` rows of `cols` floats with a dense matrix of `outs` rows,
 * both of `dtype`. */
size_t quern_matmul_workspace(mlx_dtype dtype, int rows, int cols, int outs);
/* quern_panel_matmul with `rows` rows. */
size_t quern_panel_workspace(const quern_panel_form *form, int rows);

#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop

#endif
