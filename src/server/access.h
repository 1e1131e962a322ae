/* access.h: a line for each request, without what was asked and answered. */
#ifndef QN_SERVER_ACCESS_H
#define QN_SERVER_ACCESS_H

#include "base/buf.h"

#include <quern/quern.h>

typedef struct qn_access_log {
    bool json;
    quern_log_level level;
    const char *path; /* NULL: stderr */
    bool secret;      /* the file is for its owner alone */
    int fd;           /* -1: none */
    bool owned;       /* the descriptor is of the file, not stderr */
    unsigned lost;    /* lines since the last one that could be written */
} qn_access_log;

/* What a line tells.  Numbers below 0 and NULL are left out. */
typedef struct qn_access_line {
    double time; /* seconds since 1970 */
    const char *request_id, *key, *route, *peer, *model, *finish, *error;
    int status;
    int64_t prompt_tokens, cached_tokens, completion_tokens;
    double queue_ms, ttft_ms, total_ms;
    double accept_rate;
    bool left; /* the client did not get all of it */
} qn_access_line;

/* Opens the file, if one is named; QN_E_IO, and lines go to stderr, secret ones
 * nowhere. */
qn_status qn_access_open(qn_access_log *log);
void qn_access_close(qn_access_log *log);
/* Nobody waits for a log: a line for which there is no room at once (a pipe
 * that is not read, a terminal that is stopped) is lost, and the next one says
 * how many were. */
void qn_access_write(qn_access_log *log, const qn_access_line *line);
/* A line with what was asked and answered, as JSON; texts may be NULL. */
void qn_access_content(qn_access_log *log, double time, const char *request_id,
                       qn_str request, const quern_result *results,
                       size_t count);
/* The line as text, for both forms; what clients say is spelled out. */
void qn_access_format(qn_buf *out, const qn_access_line *line, bool json);

#endif
