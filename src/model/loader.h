/* loader.h: arrays for a model from the tensors of its files.
 *
 * A family asks for each weight by name and shape and gets arrays; what is
 * missing is noted, so that the error at the end lists it all, and what nobody
 * asked for is found then too (runtime specification 1.3).
 *
 * Storage.  A tensor whose bytes can be used as they lie in the file is not
 * copied: its array keeps the mapping.  Blocks of GGUF files go straight into
 * panels (quern_panel_pack_blocks); where there are none they are converted
 * (pack.h).  The pages that were read are given back. */
#ifndef QN_MODEL_LOADER_H
#define QN_MODEL_LOADER_H

#include "base/log.h"
#include "config.h"
#include "weights.h"

#include <mlx/c/mlx.h>
#include <quern/ext.h>

/* Packed matrices laid out for products in 8-bit integers (ext.h). */
typedef struct qn_panels {
    mlx_array data; /* no array: there are none */
    quern_panel_form form;
} qn_panels;

void qn_panels_clear(qn_panels *panels);

/* What a matrix was multiplied with, for who asks (qn_loader.watch). */
typedef struct qn_watch {
    mlx_array squares; /* float32 [cols]: sums over the rows; or no array */
    uint64_t rows;
    bool notes; /* the above is wanted */
    /* The matrix is used as if it had been packed so; NULL: as it is. */
    const qn_quant *trial;
} qn_watch;

/* A weight matrix [rows, cols], dense or packed, perhaps with a bias. */
typedef struct qn_matrix {
    int rows, cols;
    bool packed;
    qn_quant quant;           /* if packed */
    mlx_array weight;         /* dense: [rows, cols]; packed: uint32 words */
    mlx_array turned;         /* dense: a view [cols, rows] of weight */
    mlx_array scales, biases; /* packed; biases only in affine mode */
    int zero; /* packed, affine: the code whose value is 0, or -1: any bias */
    /* Instead of the arrays, until the matrix is laid out: the blocks of a GGUF
     * tensor, and which of its rows is row i (NULL: row i). */
    const qn_weight *blocks;
    uint32_t *source_row;
    /* See qn_matrix_spec. */
    int first_row, of_rows;
    bool exact, vector, arrays;
    /* Whose bytes in the file weight, scales and biases are, if so. */
    const qn_weight *from[3];
    /* Instead of them, where the loader lays matrices out. */
    qn_panels panels;
    mlx_array bias;  /* [rows], or no array */
    qn_watch *watch; /* borrowed; NULL: nobody asks */
} qn_matrix;

void qn_matrix_clear(qn_matrix *matrix);

typedef void (*qn_warn_fn)(void *data, qn_log_level level, const char *text);

/* Where to note what the module of that name is multiplied with; NULL:
 * nowhere.  It must outlive the model. */
typedef qn_watch *(*qn_watch_fn)(void *data, const char *module);

typedef struct qn_loader {
    qn_weights *weights;
    qn_config *config;
    mlx_dtype dtype; /* of activations: dense matrices are converted to it */
    bool int8;       /* lay packed matrices out for products in 8 bits */
    bool hollow;     /* see qn_model_options */
    mlx_stream stream;
    qn_warn_fn warn; /* may be NULL */
    void *warn_data;
    qn_watch_fn watch; /* may be NULL; not together with int8 */
    void *watch_data;
    bool corrected; /* a mode of quantization; said once */
    /* what was missing */
    size_t missing_count;
    qn_buf missing;
    /* sums for quern_info */
    uint64_t parameters, bytes;
    struct {
        char name[32];
        uint64_t parameters;
    } forms[8];
    size_t form_count;
    /* parts of tensors that matrices refer to */
    struct qn_weight_part *parts;
} qn_loader;

void qn_loader_clear(qn_loader *loader);

typedef struct qn_matrix_spec {
    int rows, cols;
    bool bias;
    /* GGUF files of some families store the rows of each of so many heads
     * for rotation of adjacent pairs; 0: plain order. */
    int paired_heads;
    /* GGUF files have row source_row[i] where row i belongs (borrowed); NULL:
     * plain order. */
    const uint32_t *source_row;
    /* It will be laid out with others (qn_lay_out), not by itself. */
    bool grouped;
    /* It is the rows from first_row on of a tensor that has of_rows of them,
     * all axes but the last taken together; 0: the tensor is this matrix. */
    int first_row, of_rows;
    /* A dense one stays float32 whatever activations are. */
    bool exact;
    /* Of one row: a file may have it as a vector. */
    bool vector;
    /* It stays arrays whatever the file has: rows are picked from it. */
    bool arrays;
} qn_matrix_spec;

/* Loads MODULE.weight (with .scales and .biases, and .bias), where MODULE is
 * the formatted name.  A missing tensor is noted, and QN_OK returned. */
qn_status qn_load_matrix(qn_loader *loader, qn_matrix *out,
                         const qn_matrix_spec *spec, const char *fmt, ...)
    QN_PRINTF(4, 5);
/* Lays `count` packed matrices out together if the loader does that and they
 * are packed alike; they keep their biases and nothing else then.  *out stays
 * without panels if not. */
qn_status qn_lay_out(qn_loader *loader, qn_panels *out, qn_matrix *const *w,
                     int count);
/* A tensor as it lies in the file, of any shape; no array, and noted, when it
 * is missing. */
qn_status qn_load_raw(qn_loader *loader, mlx_array *out, const char *fmt, ...)
    QN_PRINTF(3, 4);
/* Counts a matrix that was made of such tensors. */
void qn_loader_count(qn_loader *loader, const qn_matrix *matrix);
/* Loads a vector of `size` floats, as float32. */
qn_status qn_load_vector(qn_loader *loader, mlx_array *out, int size,
                         const char *fmt, ...) QN_PRINTF(4, 5);
/* The same plus `shift`. */
qn_status qn_load_shifted(qn_loader *loader, mlx_array *out, int size,
                          float shift, const char *fmt, ...) QN_PRINTF(5, 6);
/* A vector of float32 as plain numbers, if there is one of this name: *out is
 * owned by the caller (qn_free), or NULL. */
qn_status qn_load_floats(qn_loader *loader, float **out, int size,
                         const char *name);

/* Whether the files have this tensor; does not take it. */
bool qn_loader_has(const qn_loader *loader, const char *name);
/* Takes a tensor without using it. */
void qn_loader_ignore(qn_loader *loader, const char *name);

/* The audit: QN_E_MISMATCH with up to 8 names when tensors are missing, or
 * when some are left over that contain none of `ignored` (NULL-terminated
 * list).  `lenient` makes the latter a warning.  Warns about overrides of
 * quantization that matched nothing. */
qn_status qn_loader_finish(qn_loader *loader, const char *const *ignored,
                           bool lenient);

/* The most common form of the weights, such as "affine 4-bit g32". */
const char *qn_loader_form(const qn_loader *loader);

#endif
