/* group.c: the names of what joins processes, and the process alone. */
#include "group.h"

#include "mpi.h"

#include "core/async.h"
#include "core/eval.h"

#include <string.h>

/* Nothing reaches its functions: builders leave out what it need not do. */
static qn_group alone = {.means = NULL, .rank = 0, .size = 1};

/* Names that MLX knows; builds of it leave some out, and so does this one. */
static const char *const missing[] = {"ring", "nccl", "jaccl"};

static bool is_missing(const char *name)
{
    for (size_t i = 0; i < sizeof missing / sizeof *missing; i++)
        if (!strcmp(name, missing[i]))
            return true;
    return false;
}

bool qn_distributed_available(const char *name)
{
    return (!strcmp(name, "any") || !strcmp(name, "mpi")) && qn_mpi_available();
}

static qn_status find(qn_group **out, bool strict, const char *name)
{
    bool any = !strcmp(name, "any");
    if (!any && strcmp(name, "mpi")) {
        if (!is_missing(name))
            return qn_fail(QN_E_ARG,
                           "[distributed] The only valid values for backend "
                           "are 'any', 'mpi', 'nccl', 'jaccl' and 'ring' but "
                           "'%s' was provided.",
                           name);
        return qn_fail(QN_E_UNSUPPORTED,
                       "Cannot initialize %s distributed backend.", name);
    }
    qn_status status = qn_mpi_world(out, strict);
    if (status && any) {
        qn_error why;
        qn_error_save(&why);
        qn_fail(status, "[distributed] Couldn't initialize any backend: %.900s",
                why.text);
    }
    return status;
}

qn_status qn_distributed_init(qn_group **out, bool strict, const char *name)
{
    /* What was handed over before may talk to the others, too. */
    qn_async_wait();
    qn_eval_begin();
    qn_status status = find(out, strict, name);
    qn_eval_end();
    if (status && !strict && status != QN_E_ARG && status != QN_E_NOMEM) {
        *out = &alone;
        status = QN_OK;
    }
    return status;
}

qn_status qn_distributed_split(qn_group **out, qn_group *group, int color,
                               int key)
{
    if (!group->means)
        return qn_fail(QN_E_ARG, "Cannot split the distributed group further.");
    if (color < 0)
        return qn_fail(QN_E_ARG,
                       "[split] The color must not be negative, but it is %d.",
                       color);
    qn_async_wait();
    qn_eval_begin();
    qn_status status = group->means->split(out, group, color, key);
    qn_eval_end();
    return status;
}
