/* kernel.h: custom kernels: functions that a program registers by name and
 * launches on arrays.
 *
 * A kernel says what it is called, how its inputs and outputs are named and how
 * inputs are to lie; a launch says the shapes of the outputs, how large the
 * grid is, and the template arguments.  qn_op_kernel looks the name up in the
 * registry and makes one node (KERNEL) that keeps all it needs. */
#ifndef QN_OPS_KERNEL_H
#define QN_OPS_KERNEL_H

#include "core/array.h"
#include "core/stream.h"

/* ---- what a function of the registry is called with ---- */

typedef struct qn_kernel_view {
    void *data; /* the first element */
    qn_dtype dtype;
    int ndim;
    const int *shape;
    const int64_t *strides; /* elements */
} qn_kernel_view;

typedef enum qn_template_kind {
    QN_TEMPLATE_INT,
    QN_TEMPLATE_BOOL,
    QN_TEMPLATE_DTYPE
} qn_template_kind;

typedef struct qn_template {
    char *name;
    qn_template_kind kind;
    int value; /* a number, 0 or 1, a qn_dtype */
} qn_template;

typedef struct qn_templates {
    qn_template *data;
    size_t size;
} qn_templates;

/* fn(arg, i, scratch) for each i below n, in any order and on any threads;
 * `scratch` is the calling worker's. */
typedef void qn_kernel_parallel(void *ctx, size_t n,
                                void (*fn)(void *arg, size_t i, void *scratch),
                                void *arg);

typedef struct qn_kernel_args {
    size_t nin, nout;
    const qn_kernel_view *in;
    qn_kernel_view *out;     /* row-major */
    const int *grid, *group; /* [3]; the group is not larger than the grid */
    const qn_templates *templates;
    void *scratch; /* aligned to 64 bytes */
    qn_kernel_parallel *parallel;
    void *ctx;
    char *error; /* what to write into before returning another value than 0 */
    size_t error_cap;
} qn_kernel_args;

/* The value of a template argument; false if there is none of that name and
 * kind.  A bool is also a number. */
bool qn_template_int(const qn_templates *templates, const char *name, int *v);
bool qn_template_dtype(const qn_templates *templates, const char *name,
                       qn_dtype *v);

/* ---- the registry ---- */

/* 0 for success. */
typedef int qn_kernel_fn(const qn_kernel_args *args, const void *user);

typedef struct qn_kernel_entry {
    qn_kernel_fn *fn;
    const void *user;
    /* Lists of names, each ended by NULL, that a launch must have; templates
     * in any order.  NULL: any. */
    const char *const *inputs, *const *outputs, *const *templates;
} qn_kernel_entry;

/* Entries live as long as the process.  A name that is taken is QN_E_ARG,
 * unless the entry is the same. */
qn_status qn_kernel_register(const char *name, const qn_kernel_entry *entry);

/* ---- kernels and launches ---- */

typedef struct qn_names {
    char **data;
    size_t size;
} qn_names;

typedef struct qn_kernel {
    const char *form;   /* "metal_kernel", "cuda_kernel": for messages */
    const char *absent; /* "No Metal back-end" */
    char *name;
    qn_names inputs, outputs;
    bool row_contiguous; /* inputs are copied where they are not */
    bool atomic_outputs; /* refused */
    size_t scratch;      /* bytes for each worker */
} qn_kernel;

typedef struct qn_kernel_output {
    qn_dtype dtype;
    int ndim;
    int shape[QN_MAX_NDIM];
} qn_kernel_output;

typedef struct qn_launch {
    qn_kernel_output *outputs;
    size_t noutputs;
    int grid[3], group[3];
    bool has_init, verbose;
    float init; /* every element of the outputs before the function runs */
    qn_templates templates;
} qn_launch;

/* Copies of names and texts; qn_kernel_free takes NULL.  `form` and `absent`
 * are texts that stay. */
qn_status qn_kernel_new(qn_kernel **out, const qn_kernel *like);
void qn_kernel_free(qn_kernel *kernel);

qn_status qn_launch_new(qn_launch **out);
void qn_launch_free(qn_launch *launch);
qn_status qn_launch_add_output(qn_launch *launch, const int *shape, size_t ndim,
                               qn_dtype dtype);
/* An argument of a name that is there already replaces it. */
qn_status qn_launch_add_template(qn_launch *launch, const char *name,
                                 qn_template_kind kind, int value);

/* How many groups a grid takes, and how large they are: a group is clipped to
 * the grid, the number rounded up. */
void qn_kernel_blocks(int blocks[3], int block[3], const int grid[3],
                      const int group[3]);

/* out: kernel->outputs.size arrays.  QN_E_ARG names the kernel and what does
 * not fit; kernel and launch may be freed afterwards. */
qn_status qn_op_kernel(qn_array **out, const qn_kernel *kernel,
                       const qn_launch *launch, qn_array *const *inputs,
                       size_t ninputs, qn_stream *s);

/* ---- for backends ---- */

/* What a KERNEL node keeps. */
typedef struct qn_kernel_call {
    atomic_uint refs;
    qn_kernel_entry entry;
    char *name;
    size_t scratch;
    int grid[3], group[3];
    bool has_init;
    float init;
    qn_templates templates;
} qn_kernel_call;
typedef struct qn_kernel_params {
    qn_kernel_call *call;
} qn_kernel_params;

#endif
