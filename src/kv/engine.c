/* engine.c: see engine.h. */
#include "engine.h"

#include <quern/ext.h>

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* The engine keeps each message for quern_error_take; the handler is only
 * there because the default one ends the process. */
static void stay_alive(const char *message, void *data)
{
    (void)message;
    (void)data;
}

static bool speaks_of_memory(const char *text)
{
    return strstr(text, "memory") || strstr(text, "alloc");
}

/* MLX's C interface ends its messages with the line of its source where they
 * were made: nothing for whoever reads them here. */
static void drop_place(char *text)
{
    char *at = NULL;
    for (char *next = text; (next = strstr(next, " at ")); next++)
        at = next;
    if (!at)
        return;
    const char *place = at + strlen(" at ");
    const char *colon = strrchr(place, ':');
    if (colon && colon > place && !strchr(place, ' ') && colon[1] &&
        !colon[1 + strspn(colon + 1, "0123456789")])
        *at = '\0';
}

qn_status qn_engine(int rc)
{
    if (!rc)
        return QN_OK;
    char *text = quern_error_take();
    /* Without even room for the message, memory is what is missing. */
    if (!text)
        return qn_fail(QN_E_NOMEM, "out of memory");
    drop_place(text);
    qn_status status = qn_fail(
        speaks_of_memory(text) ? QN_E_NOMEM : QN_E_INTERNAL, "%s", text);
    free(text);
    return status;
}

qn_status qn_engine_made(const void *ctx)
{
    return qn_engine(ctx ? 0 : 1);
}

qn_status qn_engine_eval(const mlx_array *arrays, size_t count)
{
    mlx_vector_array list = mlx_vector_array_new_data(arrays, count);
    qn_status status = qn_engine_made(list.ctx);
    if (!status)
        status = qn_engine(mlx_eval(list));
    if (list.ctx)
        mlx_vector_array_free(list);
    return status;
}

qn_status qn_engine_start(void)
{
    if (quern_engine_open()) {
        char *text = quern_error_take();
        qn_status status =
            qn_fail(QN_E_UNSUPPORTED, "%s", text ? text : "no array library");
        free(text);
        return status;
    }
    static atomic_flag installed = ATOMIC_FLAG_INIT;
    if (!atomic_flag_test_and_set(&installed))
        mlx_set_error_handler(stay_alive, NULL, NULL);
    return QN_OK;
}
