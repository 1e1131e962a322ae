/* quant.h: which weights are packed, and how (runtime specification 2). */
#ifndef QN_MODEL_QUANT_H
#define QN_MODEL_QUANT_H

#include "base/json.h"

typedef enum qn_quant_mode {
    QN_MODE_AFFINE,
    QN_MODE_MXFP4,
    QN_MODE_MXFP8,
    QN_MODE_NVFP4
} qn_quant_mode;

typedef struct qn_quant {
    qn_quant_mode mode;
    int group, bits;
} qn_quant;

/* "affine", ...: the names of the array library. */
const char *qn_quant_mode_name(qn_quant_mode mode);

/* QN_E_UNSUPPORTED, naming `what`, for bits and groups that the mode does not
 * have. */
qn_status qn_quant_check(const qn_quant *quant, const char *what);

/* Packed by other programs (foreign.h). */
typedef enum qn_foreign {
    QN_FOREIGN_NONE,
    QN_FOREIGN_AWQ,
    QN_FOREIGN_GPTQ,
    QN_FOREIGN_GPTQ2, /* zero points as they are */
    QN_FOREIGN_INT4,  /* compressed-tensors */
    QN_FOREIGN_NVFP4
} qn_foreign;

/* The settings of a whole model: defaults and exceptions by module path. */
typedef struct qn_quant_table {
    bool present; /* the configuration has quantization at all */
    qn_foreign foreign;
    qn_quant defaults;
    struct qn_quant_override *overrides;
    size_t count;
} qn_quant_table;

/* Reads `quantization` (or quantization_config).  NULL: not present.  `where`
 * names it in errors.  The caller clears *out. */
qn_status qn_quant_parse(qn_quant_table *out, const qn_json *value,
                         const char *where);
void qn_quant_clear(qn_quant_table *table);

/* The settings of module `path`: QN_OK and *out, or QN_E_MISMATCH when the
 * table says that the module is not packed (or says nothing at all).  Marks
 * an override as used. */
qn_status qn_quant_find(qn_quant_table *table, const char *path, qn_quant *out);
/* The next override that no module asked for, from *position on; NULL when
 * there is none.  Start with 0. */
const char *qn_quant_unused(const qn_quant_table *table, size_t *position);

#endif
