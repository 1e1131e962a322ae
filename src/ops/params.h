/* params.h: the constants of each primitive's node (qn_node.params).
 *
 * Builders fill them, backends read them.  Axes are never negative here.
 * Lists longer than the struct are inline up to QN_MAX_NDIM. */
#ifndef QN_OPS_PARAMS_H
#define QN_OPS_PARAMS_H

#include "panel.h"

#include "core/array.h"

/* UNARY, BINARY, SELECT: none.  Inputs have the operand type already;
 * BINARY and SELECT inputs are broadcast to the output's shape (views). */

/* REDUCE: the output has keepdims or not; the elements are the same.  The
 * input has the type that the element loop is compiled for; the output may
 * be wider (sum and prod of bool, int8, int16 give int32, of uint8, uint16
 * uint32). */
typedef struct qn_reduce_params {
    int naxes;
    int axes[QN_MAX_NDIM]; /* ascending */
} qn_reduce_params;

typedef struct qn_scan_params {
    int axis;
    bool reverse, inclusive;
} qn_scan_params;

/* FULL: input 0 broadcasts to the output's shape and has its dtype. */

/* The i-th element is start + i * step, computed in double for floats (and
 * rounded once), in int64 for integers. */
typedef struct qn_arange_params {
    double start, step;
    int64_t istart, istep;
} qn_arange_params;

/* LOAD: 1 to QN_LOAD_OUTPUTS outputs.  `fill` writes the elements of each, in
 * row-major (or column-major) order; after a failure it may be called again.
 * The node owns `source`, which `free` gives up on whatever thread lets go of
 * the node last. */
enum { QN_LOAD_OUTPUTS = 3 };
typedef struct qn_load_params {
    qn_status (*fill)(void *source, void *const *data);
    void (*free)(void *source);
    void *source;
    bool col_major;
} qn_load_params;

/* ASTYPE, VIEW: none, the output's dtype says it. SELECT: condition bool. */

typedef struct qn_as_strided_params {
    int64_t strides[QN_MAX_NDIM]; /* elements */
    size_t offset;                /* elements */
} qn_as_strided_params;

/* BROADCAST, COPY, RESHAPE: shapes say it.  What BROADCAST and RESHAPE have
 * besides tells how the shape was found; backends don't look at it. */
typedef struct qn_broadcast_params {
    bool derived; /* by a builder from the shapes of its operands */
} qn_broadcast_params;

typedef struct qn_reshape_params {
    bool given; /* by the program */
    int open;   /* the dimension that it left open; -1: none */
} qn_reshape_params;

/* The product of the input's lengths along some axes, or its inverse, in the
 * output's type. */
typedef struct qn_number_of_elements_params {
    int naxes;
    int axes[QN_MAX_NDIM];
    bool inverted;
} qn_number_of_elements_params;

/* FUSED: see ops/fused.h. */
typedef struct qn_fused_params {
    struct qn_fused *program; /* a reference */
} qn_fused_params;

/* CUSTOM: inputs nprimals arrays, then what the outputs are. */
typedef struct qn_custom_params {
    struct qn_custom *custom; /* a reference */
    int nprimals;
} qn_custom_params;

typedef struct qn_contiguous_params {
    bool allow_col_major;
} qn_contiguous_params;

typedef struct qn_transpose_params {
    int axes[QN_MAX_NDIM]; /* output axis i is input axis axes[i] */
} qn_transpose_params;

/* DEPENDS: output i is input i; further inputs are only waited for. */

/* SLICE: output element j along axis i is input start[i] + j * strides[i]. */
typedef struct qn_slice_params {
    int start[QN_MAX_NDIM];
    int strides[QN_MAX_NDIM]; /* never 0 */
} qn_slice_params;

typedef enum qn_combine {
    QN_COMBINE_SET,
    QN_COMBINE_SUM,
    QN_COMBINE_PROD,
    QN_COMBINE_MAX,
    QN_COMBINE_MIN
} qn_combine;

/* SLICE_UPDATE: inputs source, update (of the slice's shape and the source's
 * dtype; the source may be donated). */
typedef struct qn_slice_update_params {
    int start[QN_MAX_NDIM];
    int strides[QN_MAX_NDIM];
    qn_combine combine;
} qn_slice_update_params;

/* SLICE_DYNAMIC: inputs source, start (integers, one per listed axis).
 * SLICE_UPDATE_DYNAMIC: inputs source, update, start.  Sizes are those of the
 * output, or of the update.  A start outside 0 .. dim - size fails the
 * evaluation on the CPU (QN_E_ARG); devices clamp it and fail at the next
 * wait. */
typedef struct qn_slice_dynamic_params {
    int naxes;
    int axes[QN_MAX_NDIM];
} qn_slice_dynamic_params;

typedef struct qn_axis_params {
    int axis;
} qn_axis_params; /* CONCATENATE, GATHER_AXIS, SORT, ARGSORT */

/* PAD: inputs source, value (one element, the source's dtype). */
typedef struct qn_pad_params {
    int low[QN_MAX_NDIM]; /* border before; the output's shape says the rest */
} qn_pad_params;

/* GATHER: inputs source, indices (n arrays of one shape I, any integer
 * type).  Output shape is I followed by slice_sizes.  Index k applies to
 * axes[k].  Negative indices count from the end; an index still outside is
 * clamped to the nearest place where the whole slice fits, so that no memory
 * outside is read.  GATHER_AXIS likewise.  Taking something from an axis of
 * length 0 fails the evaluation (QN_E_ARG). */
typedef struct qn_gather_params {
    int naxes;
    int axes[QN_MAX_NDIM];
    int slice_sizes[QN_MAX_NDIM]; /* one per axis of the source */
} qn_gather_params;

/* SCATTER: inputs source, indices (n arrays of one shape I), updates (shape
 * I followed by slice sizes, one per source axis).  Negative indices count
 * from the end; an update whose slice does not lie wholly inside the source
 * is dropped.  Repeated indices combine in row-major order: the last SET
 * stays. */
typedef struct qn_scatter_params {
    int naxes;
    int axes[QN_MAX_NDIM];
    qn_combine combine;
} qn_scatter_params;

/* SCATTER_AXIS: inputs source, indices, values (broadcast to indices).
 * Indices are treated as by SCATTER. */
typedef struct qn_scatter_axis_params {
    int axis;
    qn_combine combine; /* SET or SUM */
} qn_scatter_axis_params;

/* ARG_REDUCE: the first of equals; a NaN wins over every number, the first NaN
 * over later ones, for the smallest too.  Output uint32; the axis is kept with
 * length 1 or dropped, as the output's shape says. */
typedef struct qn_arg_reduce_params {
    int axis;
    bool max;
} qn_arg_reduce_params;

typedef struct qn_partition_params {
    int axis;
    int kth; /* 0 .. length-1 */
} qn_partition_params;

/* SEARCHSORTED: inputs an ascending sequence of one dimension, NaN last, and
 * values of any shape and the same dtype; output uint32: how many elements
 * are before the value (left), or before or equal to it (right). */
typedef struct qn_searchsorted_params {
    bool right;
} qn_searchsorted_params;

/* MATMUL: inputs a [..., M, K] and b [..., K, N] of one floating or complex
 * dtype; their batch shapes are equal (broadcast views), or b has just two
 * dimensions; output [..., M, N]. Accumulates in float (double for float64,
 * complex float for complex64).  K may be 0: the output is 0. */

/* CONV: inputs x [N, spatial..., C], w [O, kernel..., C / groups] of one
 * floating dtype; output [N, spatial..., O].  Along axis i the input is
 * spread by in_dilation (zeros between its elements) and bordered by zeros;
 * output o meets it, for tap k of the kernel, at place o * stride +
 * k * dilation - low, counted from its first element.  flip: the kernel's taps
 * are taken from the last to the first.  Sums are formed in float (in double
 * for float64, and by the reference loop). */
typedef struct qn_conv_params {
    int groups;
    bool flip;
    int stride[QN_MAX_NDIM], low[QN_MAX_NDIM]; /* one per spatial axis */
    int dilation[QN_MAX_NDIM], in_dilation[QN_MAX_NDIM];
} qn_conv_params;

/* GATHER_MM: inputs a [..., M, K], b [..., K, N] of one floating or complex
 * dtype, and two index arrays of one shape I (any integer types), which count
 * the matrices of a and of b, leading axes flattened; negative ones count from
 * the end.  Output I followed by M, N.  An index outside fails the evaluation
 * (QN_E_ARG).  Sums as of MATMUL.
 *
 * SEGMENTED_MM: inputs a [M, K], b [K, N] of one floating or complex dtype,
 * segments [..., 2] (any integer type): for each pair the product over k from
 * the first up to but without the second; nothing where that is not larger.
 * Places outside 0 .. K fail the evaluation (QN_E_ARG). */

/* HADAMARD: a float, along the last axis, whose length is m 2^k with m of 1,
 * 12, 20, 28: the product with the matrix of size m times (Kronecker) the one
 * of size 2^k, then with scale.  float64 is computed in double, the others in
 * float.  The matrices of size 20 and 28 are not symmetric: `turned` takes
 * their transposes. */
typedef struct qn_hadamard_params {
    float scale;
    bool turned;
} qn_hadamard_params;

typedef enum qn_quant_mode {
    QN_QUANT_AFFINE,
    QN_QUANT_MXFP4,
    QN_QUANT_MXFP8,
    QN_QUANT_NVFP4
} qn_quant_mode;

/* QUANTIZED_MATMUL: inputs x [..., M, K], w uint32, scales, biases (affine
 * only).  transpose: w is [..., N, K * bits / 32] and the output x w^T, else w
 * is [..., K, N * bits / 32] and the output x w.  Batch shapes of x and w
 * are equal, or w has two dimensions.  x, scales and biases may have
 * different floating dtypes: products are formed in float, the output's
 * dtype was decided by the builder.  Group sizes 16 (an extension), 32, 64,
 * 128 along the packed axis.
 *
 * GATHER_QMM: inputs x [..., M, K], w, scales, (biases), and integers for the
 * matrices of x and of w, both lists of one shape; output [indices..., M, N].
 * Indices count matrices in row-major order, negative ones from the end.
 *
 * QUANTIZE: input w, optionally a global scale; outputs packed, scales
 * (and biases).  DEQUANTIZE: inputs w, scales, (biases), optionally a global
 * scale.  REQUANTIZE: x, optionally a global scale; the output is what
 * DEQUANTIZE would make of x packed, in float32; not for the affine mode. */
typedef struct qn_quant_params {
    int group_size, bits;
    qn_quant_mode mode;
    bool transpose;
    bool has_global_scale; /* it is the last input */
} qn_quant_params;

/* MASKED_SCATTER: inputs a, mask (bool, of a's shape), src (one dimension, of
 * a's dtype).  Element i of src replaces the i-th element of a, in row-major
 * order, where the mask is true; QN_E_ARG for a src that is too short. */
/* PANEL_PACK: inputs w, scales, (biases) of each of `count` packed matrices;
 * output uint8 [panels, bytes of a panel], the matrices one after the other,
 * each from a panel's beginning.  PANEL_ROWS: inputs panels of one matrix,
 * int32 or uint32 ids; output [..., cols]. */
typedef struct qn_panel_params {
    qn_panel_form form;
    int count, cols;
    int rows[QN_PANEL_PARTS];
} qn_panel_params;

/* PANEL_BLOCKS: no inputs; the same output from rows of blocks as GGUF files
 * have them.  What is pointed at is borrowed: it must stay until the
 * evaluation, which has to follow at once. */
typedef struct qn_panel_blocks_params {
    qn_panel_params w; /* without a form as it is given: it follows from type */
    int type;          /* base/gguf.h */
    struct {
        const uint8_t *data;
        const uint32_t *source_row; /* row i is row source_row[i]; NULL: i */
    } from[QN_PANEL_PARTS];
    /* Told of bytes that are no longer needed, by any thread; NULL. */
    void (*done)(void *ctx, const void *data, size_t size);
    void *ctx;
} qn_panel_blocks_params;

/* PANEL_MATMUL: inputs x [..., cols], panels, (norm weight [cols]), (residual);
 * outputs one for each matrix, [..., rows], of the type of x.  x is normed
 * first (rms_norm); with a gate there are two matrices of equal rows and one
 * output, silu(first) * second or gelu(first) * second; the residual, of the
 * one output's shape, is added last. */
typedef enum qn_panel_gate {
    QN_GATE_NONE,
    QN_GATE_SILU,
    QN_GATE_GELU /* g * (1 + tanh(sqrt(2 / pi) (g + 0.044715 g^3))) / 2 */
} qn_panel_gate;

typedef struct qn_panel_matmul_params {
    qn_panel_params w;
    float eps;
    bool has_norm, has_residual;
    qn_panel_gate gate;
} qn_panel_matmul_params;

/* SOFTMAX, LOGSUMEXP: floats, along the last axis.  Arithmetic is in float for
 * half types whatever `precise` says. LOGSUMEXP's output has last dimension 1.
 */

/* RMS_NORM: inputs x, optional weight.  LAYER_NORM: x, optional weight,
 * optional bias.  All inputs have the output's floating dtype. */
typedef struct qn_norm_params {
    float eps;
    bool has_weight, has_bias;
} qn_norm_params;

/* ROPE: inputs x [B, H..., T, D] or [B, T, D] (a float), offset
 * (int32: one element, or one per batch row; absent with has_offset_array
 * false), freqs (dims / 2 periods in float32; absent with has_freqs false).
 * Position of row t is offset + t, times scale; pair i turns by position *
 * scale * base^(-2i/dims), or divided by freqs[i]. */
typedef struct qn_rope_params {
    int dims;
    bool traditional; /* pairs (2i, 2i+1), else (i, i + dims/2) */
    float base, scale;
    int offset;
    bool has_offset_array, has_freqs;
} qn_rope_params;

/* SDPA: inputs q [B, H, Tq, D], k [B, Hkv, Tk, D], v [B, Hkv, Tk, Dv], then an
 * optional mask (broadcast to [B, H, Tq, Tk]; bool keeps where true, else
 * added), then optional sinks [H].  q, k, v may have different floating
 * dtypes; the output's was decided by the builder.  causal: query i sees key
 * j iff j <= i + Tk - Tq. Softmax in float. */
typedef struct qn_sdpa_params {
    float scale;
    bool causal, has_mask, has_sinks;
} qn_sdpa_params;

/* How a cache of KV_ATTENTION is stored, for one sequence.  Capacities are
 * multiples of QN_KV_BLOCK tokens.
 *
 * Floats are two arrays of `dtype`: keys [kv_heads, blocks, head_dim,
 * QN_KV_BLOCK], so that products over head_dim read neighbouring keys, and
 * values [kv_heads, capacity, head_dim].
 *
 * Codes, in groups of `group` elements of a head (32 or 64), are
 *
 *   affine  `bits` is 4 or 8; an element is code * scale + bias.  Six arrays:
 *           words, scales and biases of keys, then of values
 *   turbo   key_bits is 2, 4, 5, 8 and value_bits 2, 3, 4, 5, 8, `group` 32,
 *           `dtype` float16.  Five arrays: words, scales and zero points of
 *           keys, which are (code + zero) * scale; words and scales of values,
 *           which are centroid[code] * scale, rotated (base/turboquant.h)
 *
 * Scales, biases and zero points are [kv_heads, blocks, head_dim / group,
 * QN_KV_BLOCK] of `dtype`.  Words are uint32:
 *
 *   keys    [kv_heads, blocks, head_dim / 32 * bits, QN_KV_BLOCK]: of 32
 *           elements of a token, `bits` words.  Each half of a word has as many
 *           codes as fit, the first one lowest: pair m is elements 2 m (lower
 *           half) and 2 m + 1; word 0 has pairs 0 .. 16 / bits - 1, and so on.
 *           With 5 bits the highest bit of each half of word i is bit i of the
 *           last pair
 *   values  [kv_heads, blocks, QN_KV_BLOCK / 32 * bits, head_dim]: of 32 tokens
 *           and an element, `bits` words with as many codes as fit: word 0 has
 *           tokens 0 .. 32 / bits - 1, and so on.  With 3 and 5 bits the two
 *           highest bits of word i are bits 2 i and 2 i + 1 of what is left,
 *           the codes of tokens 30 and 31
 *
 * so that lanes are tokens where scores are computed and elements where values
 * are added.  Signed codes (keys of 8 bits, turbo) have their top bit
 * flipped. */
enum { QN_KV_BLOCK = 128, QN_KV_RUN = 32, QN_KV_PARTS = 6 };
typedef struct qn_kv_form {
    int kv_heads, head_dim;
    qn_dtype dtype;
    int bits, group;          /* affine; 0: not */
    int key_bits, value_bits; /* turbo; 0: not */
} qn_kv_form;

static inline bool qn_kv_packed(const qn_kv_form *form)
{
    return form->bits || form->key_bits;
}

/* Arrays of a cache. */
static inline int qn_kv_parts(const qn_kv_form *form)
{
    return form->key_bits ? 5 : form->bits ? 6 : 2;
}

/* The first array of values. */
static inline int qn_kv_value_part(const qn_kv_form *form)
{
    return qn_kv_packed(form) ? 3 : 1;
}

/* `count` rows of q, k and v follow the `offset` tokens that are in a cache.
 * `skipped` tokens of the sequence, a multiple of QN_KV_BLOCK, were dropped
 * from it: its first ones, or with `keep` those behind the first block. */
typedef struct qn_kv_step {
    int offset, count, skipped;
} qn_kv_step;

/* KV_ATTENTION: inputs q [..., R, heads * head_dim], (k and v [..., R, kv_heads
 * * head_dim]) of one floating type, (freqs), (sinks [heads]), then the caches
 * of `count` sequences.  Rows are numbered over all axes but the last; those of
 * a sequence follow one another, in the order of `steps`.  Outputs: the
 * attention, of q's type and shape, then the caches with the rows in them (the
 * inputs may be donated).  With `stored` there are no k and v, since the caches
 * have the rows already, and the attention is the only output.
 *
 * A row at position p (counted from its sequence's beginning) has k turned as
 * by ROPE (unless dims is 0) and stored with v, rounded as the form says; its
 * q, turned too, sees the sequence's keys j <= p, with a window only those of
 * j > p - window and of j < keep.  With a cap, a score s becomes
 * cap * tanh(s / cap). */
typedef struct qn_kv_params {
    qn_kv_form form;
    int heads, window, keep; /* keep: at most QN_KV_BLOCK */
    float scale, cap;        /* of scores; cap 0: none */
    bool stored;
    int dims; /* of the rotary embedding */
    bool traditional;
    float base, rope_scale;
    bool has_freqs, has_sinks;
    int count;
    qn_kv_step steps[];
} qn_kv_params;

/* The number of the first input after q (and k and v), and of the first cache.
 */
static inline int qn_kv_after_rows(const qn_kv_params *p)
{
    return p->stored ? 1 : 3;
}

static inline int qn_kv_first_cache(const qn_kv_params *p)
{
    return qn_kv_after_rows(p) + p->has_freqs + p->has_sinks;
}

/* KV_READ: inputs the arrays of a cache; outputs the first `count` tokens as
 * planes, row-major [1, kv_heads, count, n]: floats keys and values; affine
 * codes words, scales and biases of both as QUANTIZE makes them; turbo the five
 * planes of base/turboquant.h.  KV_WRITE: the other way, into arrays for
 * `capacity` tokens, zero behind the planes. */
typedef struct qn_kv_copy_params {
    qn_kv_form form;
    int count, capacity;
} qn_kv_copy_params;

/* Linear algebra: matrices of float32 or float64 in the last two axes, the
 * axes before them count matrices.
 *
 * CHOLESKY: output the factor, zero in the other triangle; a matrix that is
 * not positive definite fails the evaluation (QN_E_ARG).  EIGH, of complex64
 * too: input of which one triangle is read; outputs eigenvalues, ascending,
 * and, if there are two, eigenvectors in columns. */
typedef struct qn_triangle_params {
    bool upper;
} qn_triangle_params;

typedef enum qn_matrix_form {
    QN_MATRIX_GENERAL,
    QN_MATRIX_LOWER,
    QN_MATRIX_UPPER
} qn_matrix_form;

/* INV: output the inverse, of a triangular matrix zero in the other triangle,
 * which is not read.  SOLVE: inputs a [..., N, N], b [..., N, K] of one dtype
 * with equal leading axes; output the x with a x = b.  A singular matrix fails
 * the evaluation (QN_E_ARG). */
typedef struct qn_form_params {
    qn_matrix_form form;
} qn_form_params;

/* QR: outputs Q [..., M, K], R [..., K, N], K = min(M, N).
 *
 * LU: outputs the factors in one matrix [..., M, N] (the ones on L's diagonal
 * left out), uint32 [..., K]: the row that row i was exchanged with in step
 * i, uint32 [..., M]: the row of L U that each row of the input is.
 *
 * SVD, of complex64 too: outputs U [..., M, M], S [..., K], descending and
 * real, Vt [..., N, N]; or S alone.  EIG, of complex64 too: outputs
 * eigenvalues and, if there are two, eigenvectors in columns, complex64.
 * SVD, EIG, EIGH of NaN or infinities fail the evaluation (QN_E_ARG). */

/* FFT: along one axis of length n, with w = exp(-2 pi i / n), times scale.
 *   FORWARD   complex64 to complex64: X[k] = sum over j of x[j] w^(j k)
 *   INVERSE   the same with w^(-j k)
 *   REAL      float32 to complex64: X[k] for k up to n / 2
 *   TO_REAL   complex64 to float32, of length n (the input's is n / 2 + 1):
 *             INVERSE with X[n - k] the conjugate of X[k]; the imaginary parts
 *             of X[0] and, for an even n, of X[n / 2] are not looked at
 * Arithmetic is in float, in double by the reference loop; factors are
 * computed in double. */
typedef enum qn_fft_form {
    QN_FFT_FORWARD,
    QN_FFT_INVERSE,
    QN_FFT_REAL,
    QN_FFT_TO_REAL
} qn_fft_form;
typedef struct qn_fft_params {
    int axis;
    qn_fft_form form;
    double scale;
} qn_fft_params;

/* Between processes.  ALL_REDUCE: output of the input's shape; SUM_SCATTER: the
 * first dimension divided by the group's size; ALL_GATHER: multiplied by it.
 * RECV has no input.  Groups have more than one process, peers are in range. */
typedef struct qn_group_params {
    struct qn_group *group; /* lives as long as the process */
    int reduce;             /* ALL_REDUCE: a qn_group_reduce */
    int peer;               /* SEND, RECV */
} qn_group_params;

/* RANDOM_BITS: input key (uint32, [..., 2]); output of `width` bytes per
 * element. */
typedef struct qn_random_bits_params {
    int width; /* 1, 2, 4 */
} qn_random_bits_params;

#endif
