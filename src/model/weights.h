/* weights.h: the tensors of a model's files, found by name, not yet loaded.
 *
 * A source is a GGUF file (with its further parts) or the safetensors files
 * of a model directory.  Only headers are read.  Names are normalized to
 * those of model directories ("model.layers.0.self_attn.q_proj.weight"),
 * shapes are slowest dimension first.  loader.h makes arrays of them. */
#ifndef QN_MODEL_WEIGHTS_H
#define QN_MODEL_WEIGHTS_H

#include "base/file.h"
#include "base/gguf.h"
#include "base/safetensors.h"

enum { QN_WEIGHT_DIMS = 8 };

typedef struct qn_weight {
    char *name;
    qn_str original; /* in the file; lives as long as the weights */
    int ndim;
    int64_t shape[QN_WEIGHT_DIMS];
    int type; /* qn_gguf_type or qn_st_dtype, after the source's format */
    qn_bytes data;
    qn_file *file; /* the mapping that holds data */
    void *owned;   /* the data, where they are not the file's */
    bool used;     /* a loader has taken it, or it is not wanted */
} qn_weight;

typedef struct qn_weights qn_weights;

/* Opens a .gguf file, a directory, or a .safetensors file.  The caller owns
 * *out (qn_weights_free); arrays made from it may outlive it. */
qn_status qn_weights_open(qn_weights **out, const char *path);
void qn_weights_free(qn_weights *weights);

/* The GGUF header (of the first part); NULL for safetensors. */
const qn_gguf *qn_weights_gguf(const qn_weights *weights);
/* The directory beside whose config.json the files lie; NULL for GGUF. */
const char *qn_weights_dir(const qn_weights *weights);
/* The path that was opened. */
const char *qn_weights_path(const qn_weights *weights);

size_t qn_weights_count(const qn_weights *weights);
qn_weight *qn_weights_at(const qn_weights *weights, size_t i);
/* NULL when there is none of this name. */
qn_weight *qn_weights_find(const qn_weights *weights, const char *name);
/* Adds a matrix of a model directory whose `data` are owned from then on
 * (qn_free); pointers to other weights are no longer valid then. */
qn_status qn_weights_add(qn_weights *weights, const char *name,
                         const int64_t shape[2], qn_st_dtype type, void *data);
/* Takes the name from a tensor, so that another one can have it. */
void qn_weights_forget(qn_weights *weights, const char *module,
                       const char *suffix);
/* Tensors of parts that this runtime has no use for (image and sound towers);
 * they are marked as used. */
size_t qn_weights_skipped(const qn_weights *weights);
/* "F16", "Q4_1". */
const char *qn_weight_type_name(const qn_weights *weights,
                                const qn_weight *weight);

#endif
