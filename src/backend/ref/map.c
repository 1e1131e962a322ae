/* map.c: runs a loop over every element of some arrays.
 *
 * Runs of the plan in which all operands lie as the loop wants them are one
 * call; the others go through blocks on the stack. */
#include "loops.h"

#include "stage.h"

#include "backend/common/output.h"

enum { MAX_INPUTS = 3 };

typedef struct operand {
    qn_dtype dtype;
    int64_t step;
    char *at; /* of the present run */
} operand;

static bool operand_direct(const operand *o)
{
    return qn_value_direct(o->dtype, o->step);
}

/* Loads the values of a block; a scalar's block stays from one to the next. */
static const void *operand_load(const operand *o, qn_block *block, size_t first,
                                size_t n)
{
    int64_t size = (int64_t)qn_dtype_size(o->dtype);
    const char *from = o->at + (int64_t)first * o->step * size;
    if (operand_direct(o))
        return from;
    if (o->step != 0 || first == 0)
        qn_values_load(block, o->dtype, from, o->step, n);
    return block;
}

static void map_run(size_t n, const operand *ops, int ninputs,
                    qn_ref_kernel kernel)
{
    qn_block blocks[MAX_INPUTS + 1];
    const void *in[MAX_INPUTS];
    bool direct = true;
    for (int i = 0; i <= ninputs; i++)
        direct = direct && operand_direct(&ops[i]);
    size_t step = direct ? n : QN_BLOCK;
    for (size_t first = 0; first < n; first += step) {
        size_t part = n - first < step ? n - first : step;
        for (int i = 0; i < ninputs; i++)
            in[i] = operand_load(&ops[i + 1], &blocks[i + 1], first, part);
        int64_t size = (int64_t)qn_dtype_size(ops[0].dtype);
        char *to = ops[0].at + (int64_t)first * ops[0].step * size;
        if (operand_direct(&ops[0])) {
            kernel(part, to, in);
        } else {
            kernel(part, &blocks[0], in);
            qn_values_store(to, ops[0].dtype, ops[0].step, &blocks[0], part);
        }
    }
}

void qn_ref_map_arrays(const qn_array *const *arrays, int n,
                       qn_ref_kernel kernel)
{
    qn_plan plan;
    qn_walk walk;
    operand ops[MAX_INPUTS + 1];
    qn_plan_elementwise(&plan, arrays, n);
    for (int i = 0; i < n; i++)
        ops[i] = (operand){arrays[i]->dtype, plan.step[i], NULL};
    for (qn_walk_start(&walk, &plan, 0, plan.nruns); walk.left;
         qn_walk_next(&walk)) {
        for (int i = 0; i < n; i++)
            ops[i].at = qn_element(arrays[i], walk.offsets[i]);
        map_run(plan.run, ops, n - 1, kernel);
    }
}

qn_status qn_ref_map(qn_node *node, qn_ref_kernel kernel, int ninputs)
{
    const qn_array *arrays[MAX_INPUTS + 1] = {node->outputs[0]};
    for (int i = 0; i < ninputs; i++)
        arrays[i + 1] = node->inputs[i];
    qn_status status = qn_output_reuse(node->outputs[0], node->inputs, ninputs);
    if (!status)
        qn_ref_map_arrays(arrays, ninputs + 1, kernel);
    return status;
}

void qn_ref_map_run(qn_ref_kernel kernel, qn_dtype dtype, size_t n,
                    qn_ref_run_operand out, qn_ref_run_operand a,
                    qn_ref_run_operand b)
{
    operand ops[3] = {{dtype, out.step, out.at},
                      {dtype, a.step, a.at},
                      {dtype, b.step, b.at}};
    map_run(n, ops, 2, kernel);
}
