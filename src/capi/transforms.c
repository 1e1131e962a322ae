/* transforms.c: evaluation. */
#include "handles.h"

#include "core/eval.h"

int mlx_eval(const mlx_vector_array outputs)
{
    QN_GET_ARRAYS(arrays, outputs);
    QN_CALL(qn_eval(arrays->data, arrays->size));
    return 0;
}

int mlx_async_eval(const mlx_vector_array outputs)
{
    QN_GET_ARRAYS(arrays, outputs);
    QN_CALL(qn_eval_async(arrays->data, arrays->size));
    return 0;
}
