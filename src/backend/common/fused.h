/* fused.h: runs the program of a FUSED node block by block.
 *
 * A block of each input is brought into registers (or used where it lies),
 * every step runs over that block, and the outputs' blocks are stored: what
 * lies between stays in the fastest cache.  Registers hold values: elements of
 * the array's own type, half types as float, bool as uint8_t.
 *
 * The backend brings the loops (qn_fused_words) and the threads. */
#ifndef QN_BACKEND_COMMON_FUSED_H
#define QN_BACKEND_COMMON_FUSED_H

#include "ops/fused.h"
#include "plan.h"

enum { QN_FUSED_BLOCK = 1024 }; /* elements */

typedef struct qn_fused_loop qn_fused_loop;
struct qn_fused_loop {
    /* n values of each operand to n values, rounded to the step's type.
     * steps[i] is 0 where one value stands for all, and 1 in loops that don't
     * take that.  `out` may be the place of an operand of the same size. */
    void (*run)(const qn_fused_loop *loop, size_t n, void *out,
                const void *const *in, const int *steps);
    bool scalars; /* takes step 0 */
    int op;
    qn_dtype from, to;    /* of the (last) operand, of the result */
    void (*kernel)(void); /* what `run` wants to remember */
};

typedef struct qn_fused_words {
    /* False when there is no loop. */
    bool (*bind)(qn_fused_loop *loop);
    /* Stored elements to values and back; steps count elements. */
    void (*load)(void *values, qn_dtype dtype, const void *from, int64_t step,
                 size_t n);
    void (*store)(void *to, qn_dtype dtype, int64_t step, const void *values,
                  size_t n);
} qn_fused_words;

typedef struct qn_fused_job {
    const qn_fused *program;
    const qn_fused_words *words;
    qn_plan plan; /* operands: outputs, then large inputs */
    qn_fused_loop loops[QN_FUSED_STEPS];
    int operand[QN_FUSED_INPUTS]; /* of the plan; -1: one element */
    bool filled[QN_FUSED_INPUTS]; /* some loop wants it as a block */
    const char *base[QN_FUSED_INPUTS];
    char *out[QN_FUSED_OUTPUTS];
} qn_fused_job;

/* Gives the outputs storage and plans the work.  QN_E_UNSUPPORTED when a step
 * has no loop. */
qn_status qn_fused_open(qn_fused_job *job, qn_node *node,
                        const qn_fused_words *words);
/* Bytes that each thread needs. */
size_t qn_fused_scratch(const qn_fused *program);
/* Elements begin .. end in the order of the plan. */
void qn_fused_run(const qn_fused_job *job, size_t begin, size_t end,
                  void *scratch);

#endif
