/* error.c: status values across the public border, and the clock. */
#include "runtime.h"

#include <assert.h>
#include <stdio.h>
#include <time.h>

/* The two lists are one; a cast joins them. */
#define QN_X(name, text)                                                       \
    static_assert((int)QN_##name == (int)QUERN_##name, #name);
QN_STATUS_LIST(QN_X)
#undef QN_X
static_assert((int)QUERN_ERROR_SIZE == (int)QN_ERROR_SIZE, "error size");

quern_status qn_give(quern_error *error, qn_status status)
{
    if (error) {
        error->status = (quern_status)status;
        error->where[0] = error->message[0] = '\0';
        if (status) {
            snprintf(error->where, sizeof error->where, "%s", qn_error_where());
            snprintf(error->message, sizeof error->message, "%s",
                     qn_error_text());
        }
    }
    return (quern_status)status;
}

const char *quern_status_name(quern_status status)
{
    return qn_status_name((qn_status)status);
}

const char *quern_release(void)
{
    return QUERN_VERSION;
}

double qn_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
