/* mlxfn_write.h: tapes as entries of a file of exported functions. */
#ifndef QN_TRANSFORM_MLXFN_WRITE_H
#define QN_TRANSFORM_MLXFN_WRITE_H

#include "mlxfn.h"
#include "tape.h"

/* An array as a file knows it. */
typedef struct qn_mlxfn_value {
    uint64_t id;
    qn_mlxfn_type type;
} qn_mlxfn_value;

/* Where entries go; its maker has the bytes. */
typedef struct qn_mlxfn_writer {
    qn_buf *bytes;
    bool shapeless;
    uint64_t next_id;
    uint64_t entries; /* written so far */
    qn_status status; /* after a failure nothing is written */
    /* Writes the entry of a constant (which it may evaluate); its id. */
    uint64_t (*constant)(struct qn_mlxfn_writer *w, qn_array *array);
} qn_mlxfn_writer;

/* The steps of a tape whose inputs are `inputs`; `outputs` become its results'.
 * An operation that has no primitive there is QN_E_UNSUPPORTED. */
void qn_mlxfn_write_tape(qn_mlxfn_writer *w, const qn_tape *tape,
                         const qn_mlxfn_value *inputs, qn_mlxfn_value *outputs);

/* MLX's number of a qn_combine. */
int qn_mlxfn_combine(int combine);
/* MLX's name of what a node does, as its graphs show it. */
const char *qn_mlxfn_node_name(const qn_node *node);

#endif
