/* log.h: diagnostics of a library that never prints.
 *
 * Messages go to the sink that the program installs; without one they are
 * dropped. */
#ifndef QN_BASE_LOG_H
#define QN_BASE_LOG_H

#include "status.h"

typedef enum qn_log_level {
    QN_LOG_ERROR,
    QN_LOG_WARN,
    QN_LOG_INFO,
    QN_LOG_DEBUG
} qn_log_level;

typedef void (*qn_log_sink)(void *data, qn_log_level level, const char *text);

/* Process-wide; call before threads start. */
void qn_log_set_sink(qn_log_sink sink, void *data, qn_log_level max_level);
void qn_log(qn_log_level level, const char *fmt, ...) QN_PRINTF(2, 3);

#endif
