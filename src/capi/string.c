/* string.c: texts that the library returns. */
#include "handles.h"

#include "base/alloc.h"

#include <string.h>

typedef struct string_box {
    char *text;
} string_box;

qn_status qn_handle_set_string(mlx_string *res, const char *text, size_t size)
{
    char *copy = qn_strndup(text, size);
    if (!copy)
        return QN_E_NOMEM;
    string_box *box = res->ctx;
    if (!box) {
        box = qn_calloc(1, sizeof *box);
        if (!box) {
            qn_free(copy);
            return QN_E_NOMEM;
        }
        res->ctx = box;
    }
    qn_free(box->text);
    box->text = copy;
    return QN_OK;
}

mlx_string mlx_string_new(void)
{
    return (mlx_string){NULL};
}

mlx_string mlx_string_new_data(const char *str)
{
    mlx_string res = {NULL};
    QN_CALL_OR(qn_handle_set_string(&res, str, strlen(str)), res);
    return res;
}

int mlx_string_set(mlx_string *str, const mlx_string src)
{
    QN_GET_OR(const string_box, box, src.ctx, mlx_string, 1);
    return QN_STORE_STRING(str, box->text, strlen(box->text));
}

const char *mlx_string_data(mlx_string str)
{
    QN_GET_OR(const string_box, box, str.ctx, mlx_string, NULL);
    return box->text;
}

int mlx_string_free(mlx_string str)
{
    string_box *box = str.ctx;
    if (box)
        qn_free(box->text);
    qn_free(box);
    return 0;
}
