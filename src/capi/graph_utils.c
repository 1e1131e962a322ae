/* graph_utils.c: names of arrays, and graphs as text. */
#include "handles.h"

#include "transform/draw.h"

#include <errno.h>

/* The ctx of a namer is the qn_namer itself. */

mlx_node_namer mlx_node_namer_new(void)
{
    qn_namer *namer;
    QN_CALL_OR(qn_namer_new(&namer), (mlx_node_namer){NULL});
    return (mlx_node_namer){namer};
}

int mlx_node_namer_free(mlx_node_namer namer)
{
    qn_namer_free(namer.ctx);
    return 0;
}

int mlx_node_namer_set_name(mlx_node_namer namer, const mlx_array arr,
                            const char *name)
{
    QN_GET_OR(qn_namer, n, namer.ctx, mlx_node_namer, 1);
    QN_GET_ARRAY(array, arr);
    QN_CALL(qn_namer_set(n, array, name));
    return 0;
}

int mlx_node_namer_get_name(const char **name, mlx_node_namer namer,
                            const mlx_array arr)
{
    QN_GET_OR(qn_namer, n, namer.ctx, mlx_node_namer, 1);
    QN_GET_ARRAY(array, arr);
    QN_CALL(qn_namer_get(name, n, array));
    return 0;
}

static qn_status write_text(FILE *os, const qn_buf *text, const char *op)
{
    if (fwrite(text->data, 1, text->size, os) == text->size)
        return QN_OK;
    return qn_fail(QN_E_IO, "[%s] Failed to write %zu bytes: %s.", op,
                   text->size, strerror(errno));
}

static int
draw(FILE *os, mlx_node_namer namer, mlx_vector_array outputs, const char *op,
     qn_status (*how)(qn_buf *, const qn_namer *, qn_array *const *, size_t))
{
    QN_GET_OR(qn_namer, n, namer.ctx, mlx_node_namer, 1);
    QN_GET_ARRAYS(list, outputs);
    qn_buf text = QN_BUF_INIT;
    qn_status status = how(&text, n, list->data, list->size);
    if (!status)
        status = write_text(os, &text, op);
    qn_buf_free(&text);
    QN_CALL(status);
    return 0;
}

int mlx_export_to_dot(FILE *os, const mlx_node_namer namer,
                      const mlx_vector_array outputs)
{
    return draw(os, namer, outputs, "export_to_dot", qn_draw_dot);
}

int mlx_print_graph(FILE *os, const mlx_node_namer namer,
                    const mlx_vector_array outputs)
{
    return draw(os, namer, outputs, "print_graph", qn_draw_lines);
}
