/* mhd.h: libmicrohttpd, loaded when a server starts.
 *
 * It brings a TLS library along that nothing else here has a use for, so the
 * program does not link it: `quern run` would pay for it at each start. */
#ifndef QN_SERVER_MHD_H
#define QN_SERVER_MHD_H

#include "base/status.h"

#include <sys/types.h>

#include <microhttpd.h>

#define QN_MHD_CALLS(X)                                                        \
    X(MHD_start_daemon)                                                        \
    X(MHD_stop_daemon)                                                         \
    X(MHD_add_connection)                                                      \
    X(MHD_run)                                                                 \
    X(MHD_get_timeout)                                                         \
    X(MHD_get_daemon_info)                                                     \
    X(MHD_get_connection_info)                                                 \
    X(MHD_set_connection_option)                                               \
    X(MHD_get_connection_values_n)                                             \
    X(MHD_suspend_connection)                                                  \
    X(MHD_resume_connection)                                                   \
    X(MHD_create_response_from_buffer_with_free_callback)                      \
    X(MHD_create_response_from_callback)                                       \
    X(MHD_add_response_header)                                                 \
    X(MHD_queue_response)                                                      \
    X(MHD_destroy_response)

typedef struct qn_mhd {
#define X(name) __typeof__(name) *name;
    QN_MHD_CALLS(X)
#undef X
} qn_mhd;

/* QN_E_UNSUPPORTED, with what to install, when there is none. */
qn_status qn_mhd_load(qn_mhd *out);

#endif
