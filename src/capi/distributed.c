/* distributed.c: C entries of groups and of what goes between processes. */
#include "handles.h"
#include "ops_entry.h"

#include "distributed/group.h"

/* ---- groups ---- */

typedef struct group_box {
    qn_group *group;
} group_box;

#define QN_GET_GROUP_OR(name, handle, failed)                                  \
    QN_GET_OR(const group_box, name, (handle).ctx, mlx_distributed_group,      \
              failed)

mlx_distributed_group mlx_distributed_group_new(void)
{
    return (mlx_distributed_group){NULL};
}

int mlx_distributed_group_free(mlx_distributed_group group)
{
    qn_free(group.ctx);
    return 0;
}

/* Groups are never freed, so a box only names one. */
static qn_status set_group(mlx_distributed_group *res, qn_group *group)
{
    group_box *box = res->ctx;
    if (!box) {
        box = qn_alloc(sizeof *box);
        if (!box)
            return QN_E_NOMEM;
        res->ctx = box;
    }
    box->group = group;
    return QN_OK;
}

static const char *means_name(const char *bk)
{
    return bk ? bk : "any";
}

bool mlx_distributed_is_available(const char *bk)
{
    return qn_distributed_available(means_name(bk));
}

int mlx_distributed_init(mlx_distributed_group *res, bool strict,
                         const char *bk)
{
    qn_group *group;
    QN_CALL(qn_distributed_init(&group, strict, means_name(bk)));
    return QN_STORE(set_group(res, group));
}

int mlx_distributed_group_rank(mlx_distributed_group group)
{
    QN_GET_GROUP_OR(box, group, -1);
    return box->group->rank;
}

int mlx_distributed_group_size(mlx_distributed_group group)
{
    QN_GET_GROUP_OR(box, group, 0);
    return box->group->size;
}

int mlx_distributed_group_split(mlx_distributed_group *res,
                                mlx_distributed_group group, int color, int key)
{
    QN_GET_GROUP_OR(box, group, 1);
    qn_group *part;
    QN_CALL(qn_distributed_split(&part, box->group, color, key));
    return QN_STORE(set_group(res, part));
}

/* ---- operations ---- */

/* The group of a handle; without one, of all processes. */
static qn_status group_of(qn_group **out, mlx_distributed_group handle)
{
    const group_box *box = handle.ctx;
    if (!box)
        return qn_distributed_init(out, false, "any");
    *out = box->group;
    return QN_OK;
}

#define GET_GROUP(name, handle)                                                \
    qn_group *name;                                                            \
    QN_CALL(group_of(&name, handle))

static int reduced(mlx_array *res, mlx_array a, qn_group_reduce op,
                   mlx_distributed_group handle, mlx_stream s)
{
    QN_GET_ARRAY(x, a);
    QN_GET_STREAM(stream, s);
    GET_GROUP(group, handle);
    QN_RETURN_OP(res, qn_op_all_reduce(&out, x, op, group, stream));
}

int mlx_distributed_all_sum(mlx_array *res, const mlx_array x,
                            const mlx_distributed_group group,
                            const mlx_stream s)
{
    return reduced(res, x, QN_GROUP_SUM, group, s);
}

int mlx_distributed_all_max(mlx_array *res, const mlx_array x,
                            const mlx_distributed_group group,
                            const mlx_stream s)
{
    return reduced(res, x, QN_GROUP_MAX, group, s);
}

int mlx_distributed_all_min(mlx_array *res, const mlx_array x,
                            const mlx_distributed_group group,
                            const mlx_stream s)
{
    return reduced(res, x, QN_GROUP_MIN, group, s);
}

int mlx_distributed_all_gather(mlx_array *res, const mlx_array x,
                               const mlx_distributed_group group,
                               const mlx_stream S)
{
    QN_GET_ARRAY(a, x);
    QN_GET_STREAM(stream, S);
    GET_GROUP(g, group);
    QN_RETURN_OP(res, qn_op_all_gather(&out, a, g, stream));
}

int mlx_distributed_sum_scatter(mlx_array *res, const mlx_array x,
                                const mlx_distributed_group group,
                                const mlx_stream s)
{
    QN_GET_ARRAY(a, x);
    QN_GET_STREAM(stream, s);
    GET_GROUP(g, group);
    QN_RETURN_OP(res, qn_op_sum_scatter(&out, a, g, stream));
}

int mlx_distributed_send(mlx_array *res, const mlx_array x, int dst,
                         const mlx_distributed_group group, const mlx_stream s)
{
    QN_GET_ARRAY(a, x);
    QN_GET_STREAM(stream, s);
    GET_GROUP(g, group);
    QN_RETURN_OP(res, qn_op_send(&out, a, dst, g, stream));
}

int mlx_distributed_recv(mlx_array *res, const int *shape, size_t shape_num,
                         mlx_dtype dtype, int src,
                         const mlx_distributed_group group, const mlx_stream s)
{
    QN_GET_DTYPE(type, dtype);
    QN_GET_STREAM(stream, s);
    GET_GROUP(g, group);
    QN_RETURN_OP(res, qn_op_recv(&out, shape, shape_num, type, src, g, stream));
}

int mlx_distributed_recv_like(mlx_array *res, const mlx_array x, int src,
                              const mlx_distributed_group group,
                              const mlx_stream s)
{
    QN_GET_ARRAY(a, x);
    QN_GET_STREAM(stream, s);
    GET_GROUP(g, group);
    QN_RETURN_OP(res, qn_op_recv(&out, a->shape, (size_t)a->ndim, a->dtype, src,
                                 g, stream));
}
