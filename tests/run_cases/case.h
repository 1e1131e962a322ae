/* case.h: what the parts of run-cases share.
 *
 * A case is a JSON object.  It runs in a process of its own, which says what
 * is wrong by case_fail and passes when it has said nothing and lived to its
 * end. */
#ifndef RUN_CASES_CASE_H
#define RUN_CASES_CASE_H

#include "base/json.h"

#include <mlx/c/mlx.h>

/* Records a failure of the running case: a sentence with expected and
 * found.  Only the first few of a case are kept. */
void case_fail(const char *fmt, ...) QN_PRINTF(1, 2);
bool case_failed(void);

typedef struct case_context {
    const char *folder;  /* of the case file: fixtures lie below */
    const char *scratch; /* an empty directory of the case's own */
} case_context;

/* ---- the kinds ---- */

void run_abi_case(const qn_json *c, const case_context *context);
void run_call_case(const qn_json *c, const case_context *context);
void run_tokenizer_case(const qn_json *c, const case_context *context);
void run_template_case(const qn_json *c, const case_context *context);
void run_model_case(const qn_json *c, const case_context *context);
void run_download_case(const qn_json *c, const case_context *context);
void run_server_case(const qn_json *c, const case_context *context);
void run_load_case(const qn_json *c, const case_context *context);
void run_kv_case(const qn_json *c, const case_context *context);
/* One of `cases` of a goldens file. */
void run_golden_case(const qn_json *c, const case_context *context);

/* A goldens file of the packed KV format. */
bool is_turboquant_golden(const qn_json *root);
void run_turboquant_golden(const qn_json *root, const case_context *context);

/* A goldens file of the helper layer (quern/ext.h but the packed KV format). */
bool is_helpers_golden(const qn_json *root);
void run_helpers_golden(const qn_json *root, const case_context *context);

/* For transform.c: a step of an ABI case, and a list of its values (held by
 * the case); back from there: a step that applies a transformation.  What the
 * step returned, or -1. */
int abi_step(const qn_json *step);
mlx_vector_array abi_vector(const qn_json *list);
int transform_step(const qn_json *step);

/* ---- JSON ---- */

/* The text of a member, or "" with a failure when it is not there. */
qn_str case_text(const qn_json *object, const char *key);
int64_t case_int(const qn_json *object, const char *key, int64_t fallback);
bool case_bool(const qn_json *object, const char *key, bool fallback);
/* A text, or {"$repeat": [unit, n]}. */
bool case_long_text(const qn_json *value, qn_buf *out);
/* NUL-terminated copy that lives until the process ends. */
const char *case_keep(qn_str text);
/* Checks that `message` has the text, or each text of the list, `wanted`. */
void case_check_message(const qn_json *wanted, const char *message);
/* A number, a boolean, or one of "nan", "inf", "-inf". */
bool case_real(const qn_json *value, double *out);
bool case_base64(qn_str text, qn_buf *out);

/* ---- model directories (model.c, script.c) ---- */

/* Copies the files of a folder into a new one. */
bool case_copy_folder(const char *from, const char *to);
/* Sets or deletes top-level keys of FOLDER/config.json. */
bool case_patch_config(const char *folder, const qn_json *patch);
/* Writes a script into a copy of the scripted model: into its configuration and
 * vocabulary.  Of a list of piece sizes the one at `which` counts.  *length is
 * how many tokens it has; -1 after case_fail. */
void case_write_script(const char *folder, const qn_json *script,
                       uint32_t which, int64_t *length);

/* ---- arrays (arrays.c) ---- */

bool dtype_of_name(qn_str name, mlx_dtype *out);
const char *name_of_dtype(mlx_dtype dtype);
/* An array of nested lists; a NULL handle after case_fail. */
mlx_array array_of_json(const qn_json *dtype, const qn_json *shape,
                        const qn_json *data);

typedef struct tolerance {
    double ulp, abs, rel; /* abs + rel * eps * M, see abi/README */
    double scaled;        /* at most scaled * max(1, |value|) apart */
    double code_share;    /* packed codes: share that may be one step off */
    int code_bits;        /* their width; 0: not packed */
} tolerance;

/* Evaluates `array` and compares dtype, shape and elements. */
void check_array(const char *name, mlx_array array, const qn_json *expected,
                 const tolerance *tol);
void check_array_parts(const char *name, mlx_array array, const qn_json *dtype,
                       const qn_json *shape, const qn_json *data,
                       const tolerance *tol);

/* ---- arrays of goldens of a format (hex.c) ---- */

/* The array under a key of an object; an empty handle after case_fail. */
mlx_array golden_array(const qn_json *object, const char *key);
/* Row-major bytes of an array, valid while *held is; NULL after case_fail. */
const uint8_t *golden_bytes(const char *name, mlx_array *held, mlx_array x);
/* Compares dtype, shape and bytes; frees `x`. */
void golden_check(const char *name, mlx_array x, const qn_json *expected);
/* SHA-256 of the row-major bytes; frees `x`. */
void golden_digest(const char *name, mlx_array x, qn_str expected);

/* ---- calls (call.c) ---- */

/* What a name of a case stands for. */
typedef enum value_kind {
    VALUE_ARRAY,
    VALUE_VECTOR,
    VALUE_ARRAY_MAP,
    VALUE_STRING_MAP,
    VALUE_GGUF,
    VALUE_TEXT,
    VALUE_NUMBER,
    VALUE_JSON /* a layout: strides and flags */
} value_kind;

typedef struct case_value {
    value_kind kind;
    void *ctx; /* of the handle */
    double number;
    const char *text;
    bool flags[3];
    int64_t strides[32];
    int nstrides;
} case_value;

/* Names, in one table per case. */
case_value *value_find(qn_str name);
case_value *value_make(qn_str name, value_kind kind);
/* Frees every handle: what is then left is a leak of the library. */
void values_free(void);

/* Installs the handler that keeps the last message. */
void calls_begin(void);
const char *calls_error(void); /* NULL: the handler has not run */
void calls_clear_error(void);
mlx_stream calls_stream(void);

/* One parameter of a function of the table. */
typedef struct parameter {
    char type[64]; /* without const, "mlx_array*" */
    char name[64];
    bool optional;
} parameter;

typedef struct signature {
    void (*address)(void); /* NULL: the library does not export it */
    char name[96], result[32];
    parameter params[24];
    int count;
} signature;

/* NULL after case_fail when the name is not in the table. */
const signature *signature_of(qn_str name);

/* An argument as it is passed. */
typedef struct argument {
    enum { ARG_WORD, ARG_FLOAT, ARG_DOUBLE } kind;
    uint64_t word;
    double real;
} argument;

/* Calls it and gives back the result's bits. */
uint64_t signature_call(const signature *s, const argument *args);
uint64_t optional_word(bool has, uint32_t value);

#endif
