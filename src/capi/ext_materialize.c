/* ext_materialize.c: storage of a value's own. */
#include "handles.h"
#include "ops_entry.h"

#include "quern/ext.h"

int quern_materialize(mlx_array *res, const mlx_array x, const mlx_stream s)
{
    QN_GET_ARRAY(from, x);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, qn_op_materialize(&out, from, stream));
}

int quern_materialize_copy(mlx_array *res, const mlx_array x,
                           const mlx_stream s)
{
    return quern_materialize(res, x, s);
}
