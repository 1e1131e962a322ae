/* convert.h: what the files of this room know of each other.
 *
 * A conversion is a list of items, one for each tensor or packed module of the
 * source; each says how its rows are read and what becomes of them.
 *   origin.c   opens the source and lists the items
 *   stack.c    experts that are tensors of their own as one item
 *   rows.c     reads rows of an item, whatever their form, as floats
 *   recipe.c   which items are packed, and how: defaults, recipes, overrides
 *   measure.c  what modules are multiplied with on a text, what rounding costs
 *   budget.c   widths of modules for a number of bits per weight
 *   awq.c      columns that matter more made larger before they are rounded
 *   write_st.c items into the safetensors files of a model directory
 *   write_gguf.c  items into a GGUF file, behind what gguf_head.c and
 *              gguf_spm.c make
 *   settings.c config.json and the files beside it
 *   place.c    a temporary sibling of the destination, and its renaming
 *   convert.c  the order of all this
 *
 * Memory.  Items are read and written a piece at a time (QN_PIECE elements), so
 * that what is held does not grow with the model. */
#ifndef QN_CONVERT_CONVERT_H
#define QN_CONVERT_CONVERT_H

#include "base/buf.h"
#include "base/json.h"
#include "model/quant.h"
#include "model/weights.h"

#include <mlx/c/mlx.h>
#include <quern/quern.h>

/* Elements that are converted at a time (rounded up to a row). */
enum { QN_PIECE = 2 << 20, QN_OUT_PARTS = 3, QN_MIN_GROUP = 16 };

/* How the source holds an item. */
typedef enum qn_form {
    QN_FORM_PLAIN,  /* numbers as they are */
    QN_FORM_BLOCKS, /* blocks of a GGUF file */
    QN_FORM_PACKED  /* words, scales and perhaps biases */
} qn_form;

/* What becomes of it. */
typedef enum qn_action {
    QN_KEEP,  /* the bytes as they are (a GGUF file's rows in plain order) */
    QN_CAST,  /* floats of type `dtype` */
    QN_QUANT, /* packed anew, from values of type `dtype` */
    QN_PACK   /* the codes of GGUF blocks as packed groups, no value changed */
} qn_action;

/* A tensor that is written. */
typedef struct qn_out_tensor {
    const char *suffix; /* behind the module; "" where the name is whole */
    qn_st_dtype dtype;
    int64_t cols; /* of the last dimension */
    uint64_t size, at;
    int file;
} qn_out_tensor;

/* The items of which an item is made (stack.c). */
typedef struct qn_stack qn_stack;

typedef struct qn_item {
    const char *name; /* of the main tensor, as the runtime calls it */
    qn_str written;   /* the same, or the module, as it is written */
    char *module; /* the name without .weight; NULL where it ends otherwise */
    const qn_weight *main, *scales, *biases;
    bool gguf;
    qn_form form;
    qn_quant from;        /* if QN_FORM_PACKED */
    uint64_t rows, cols;  /* the last dimension is cols */
    int paired_heads;     /* rows of so many heads stand in pairs; 0: no */
    int shift;            /* is added to the values */
    bool turned;          /* [C, 1, K] is written as [C, K, 1] */
    qn_stack *stack;      /* owned; NULL: main has the data */
    uint32_t *source_row; /* of paired rows, once needed */
    qn_action action;
    qn_st_dtype dtype;
    qn_quant quant;  /* QN_QUANT, QN_PACK */
    bool wide;       /* QN_PACK: scales are float32 */
    bool inexact;    /* values change although nobody asked for that */
    bool undivided;  /* it would be packed if the group divided its rows */
    int gguf_type;   /* in a GGUF file that is written */
    int budget_bits; /* the width that a budget gives it; 0: none */
    bool flexible;   /* a budget may choose its width */
    /* Of each column, owned: the mean square of what it is multiplied with
     * (NULL: not known), and a factor of its values (NULL: 1). */
    float *power, *factor;
    qn_out_tensor out[QN_OUT_PARTS];
    int out_count;
} qn_item;

typedef struct qn_origin {
    char *path;
    qn_weights *weights;
    const qn_gguf *gguf;  /* NULL: a directory */
    qn_json_doc *config;  /* config.json; NULL for GGUF */
    char arch[64];        /* general.architecture or model_type */
    qn_quant_table quant; /* of a directory */
    qn_item *items;
    size_t count, skipped;
    int layers;
    qn_st_dtype floats; /* the type that most floating elements have */
    qn_quant written;   /* the default of the result, from qn_recipe_apply */
} qn_origin;

/* ---- origin.c ---- */

/* The caller clears *out in any case. */
qn_status qn_origin_open(qn_origin *out, const char *path);
void qn_origin_clear(qn_origin *source);
/* The value of `key` in config.json or its text_config; NULL for none. */
const qn_json *qn_origin_config(const qn_origin *source, const char *key);

/* ---- stack.c ---- */

/* Makes one item of the matrices that the experts of a layer have.
 * QN_E_MISMATCH where these are not alike. */
qn_status qn_stack_experts(qn_origin *source);
void qn_stack_free(qn_stack *stack);
/* The part of a stacked item that has row `row`, and which of its rows that
 * is. */
const qn_item *qn_stack_part(const qn_item *item, uint64_t row,
                             uint64_t *inside);
/* The items that have the data, one for most. */
size_t qn_stack_count(const qn_item *item);
const qn_item *qn_stack_at(const qn_item *item, size_t i);

/* ---- rows.c ---- */

/* The type in which the item's values are packed or written where nothing else
 * is asked for. */
qn_st_dtype qn_item_floats(const qn_item *item);
bool qn_item_is_float(const qn_item *item);
/* Values of rows `first` .. `first + count`, in float32, times the factors of
 * their columns.  Packed ones are made in `dtype`, as the array library
 * would. */
qn_status qn_read_rows(float *out, const qn_item *item, uint64_t first,
                       uint64_t count, qn_st_dtype dtype, mlx_stream s);
/* The source's own bytes of these rows, in plain order, for QN_FORM_PLAIN:
 * `out` may be unused where they lie together already.  The caller owns
 * nothing. */
const uint8_t *qn_raw_rows(uint8_t *out, const qn_item *item, uint64_t first,
                           uint64_t count);
/* Bytes of a row of the main tensor. */
size_t qn_row_bytes(const qn_item *item);
/* Which row of the source is row `row`. */
uint64_t qn_row_of(const qn_item *item, uint64_t row);
/* Values of a plain tensor of a model directory, `count` from `first` on. */
void qn_read_plain(float *out, const qn_weight *w, uint64_t first,
                   uint64_t count);
/* Floats into `dtype` (F32, F16, BF16). */
void qn_floats_to(void *out, const float *in, size_t count, qn_st_dtype dtype);
mlx_dtype qn_array_dtype(qn_st_dtype floats);

/* ---- recipe.c ---- */

/* Sets action, quant and dtype of every item, as `options` ask for. */
qn_status qn_recipe_apply(qn_origin *source,
                          const quern_convert_options *options);

/* ---- measure.c ---- */

typedef bool (*qn_step_fn)(void *data, int64_t done, int64_t total);

/* The text on which models are measured where nobody names another. */
extern const unsigned char qn_calibration_text[];
extern const size_t qn_calibration_size;

/* Computes the model on `text` and sets `power` of the items that products of
 * it have for a matrix; what only picks rows, and experts, have none.  `step`
 * counts tokens.  QN_E_FORMAT for a text without tokens. */
qn_status qn_measure_inputs(qn_origin *source, qn_str text, qn_step_fn step,
                            void *data);
/* What packing as each of `count` forms does to the item's products, with the
 * item's factors: error[i] is the sum of the squared changes over that of the
 * squared products, as they are expected for inputs of this power that do not
 * depend on each other.  Inputs of one size where no power is known. */
qn_status qn_measure_errors(double *error, const qn_item *item,
                            const qn_quant *forms, int count, mlx_stream s);
/* What packing modules does to the whole model: harm[k] is the mean divergence
 * of its probabilities on a piece of the text when all items of kind k (of
 * kinds[i] for item i, negative: none) are packed as forms[i]. */
qn_status qn_measure_harm(double *harm, qn_origin *source, const int *kinds,
                          int count, const qn_quant *forms, qn_str text,
                          qn_step_fn step, void *data);
/* A stream of its own; the caller frees it. */
qn_status qn_convert_stream(mlx_stream *out);

/* ---- budget.c ---- */

/* Gives modules (after qn_recipe_apply and qn_measure_inputs) widths so that
 * the whole has options->target_bpw bits per weight, within QN_BUDGET_SLACK,
 * and applies them.  QN_E_UNSUPPORTED with the reachable range where none can.
 */
#define QN_BUDGET_SLACK 0.05
qn_status qn_budget_assign(qn_origin *source,
                           const quern_convert_options *options, qn_str text,
                           qn_step_fn step, void *data);

/* ---- awq.c ---- */

/* QN_E_UNSUPPORTED for a family whose norms are not known to stand before
 * products alone. */
qn_status qn_awq_check(const qn_origin *source);
/* Chooses factors for the columns of modules that share a norm, and its inverse
 * for the norm, so that rounding does least to their products (after
 * qn_measure_inputs and the choice of widths). */
qn_status qn_awq_scale(qn_origin *source, qn_step_fn step, void *data);

/* ---- write_st.c ---- */

/* Fills the `out` of every item, for files of at most `limit` bytes (one tensor
 * may be more).  *files is how many there are, *total all their bytes. */
qn_status qn_st_plan(qn_origin *source, uint64_t limit, int *files,
                     uint64_t *total);
/* Writes the planned files and their index into the directory `dir`. */
qn_status qn_st_write(qn_origin *source, const char *dir, int files,
                      qn_step_fn step, void *data);

/* ---- settings.c ---- */

/* config.json of the result. */
qn_status qn_settings_config(qn_buf *out, const qn_origin *source,
                             const char *dtype);
/* Everything of the directory that is not weights, configuration or code. */
qn_status qn_settings_copy(const qn_origin *source, const char *dir);

/* ---- place.c ---- */

typedef struct qn_place {
    char *path; /* the destination */
    char *work; /* the sibling that is written */
    bool dir, replaces;
    int lock; /* on the sibling; -1: none */
} qn_place;

/* Checks the destination and makes the sibling: a directory if `dir`, else just
 * a name.  QN_E_ARG when the destination exists and may not be replaced, or
 * lies in the source. */
qn_status qn_place_begin(qn_place *place, const char *source, const char *path,
                         bool dir, bool overwrite);
/* QN_E_SPACE when the disk has no room for `bytes`. */
qn_status qn_place_room(const qn_place *place, uint64_t bytes);
/* The sibling takes the name. */
qn_status qn_place_commit(qn_place *place);
/* Removes the sibling, if it is still there, and frees. */
void qn_place_end(qn_place *place);

#endif
