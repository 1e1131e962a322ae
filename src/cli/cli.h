/* cli.h: what the commands share: errors, output, progress, models. */
#ifndef QN_CLI_CLI_H
#define QN_CLI_CLI_H

#include "args.h"
#include "base/buf.h"
#include "base/json.h"

#include <quern/quern.h>

/* Exit codes (command line specification, 1.3). */
enum {
    QN_EXIT_OK = 0,
    QN_EXIT_FAILURE = 1,
    QN_EXIT_USAGE = 2,
    QN_EXIT_NOT_FOUND = 3,
    QN_EXIT_UNSUPPORTED = 4,
    QN_EXIT_NO_MEMORY = 5,
    QN_EXIT_INTERRUPTED = 130,
    QN_EXIT_TERMINATED = 143
};

/* One invocation. */
typedef struct qn_cli {
    const char *command; /* "run" */
    qn_args args;
    bool json, quiet;
    int verbose;
    bool headers_only; /* qn_cli_load leaves the weights alone */
    int threads; /* that compute; known once a model is loaded */
} qn_cli;

/* ---- errors (out.c): each prints and returns the exit code ---- */

/* The error line, its hint (may be NULL), and with --json the error object. */
int qn_cli_fail(const qn_cli *cli, quern_status status, const char *where,
                const char *message, const char *hint);
int qn_cli_fail_error(const qn_cli *cli, const quern_error *error);
/* The thread's qn_fail sentence. */
int qn_cli_fail_status(const qn_cli *cli, qn_status status, const char *hint);
void qn_cli_warn(const qn_cli *cli, const char *text);

/* ---- standard output (out.c) ---- */

/* Writes and flushes; false when stdout is closed.  The program then ends
 * with 1 and says nothing. */
bool qn_out(const char *data, size_t size);
/* The same for text of a model or a file: on a terminal, control characters
 * other than newline and tab are escaped. */
bool qn_out_text(const char *text, size_t size);
/* The buffer and a newline; frees the buffer. */
int qn_out_line(const qn_cli *cli, qn_buf *line);
bool qn_out_is_terminal(void);

/* ---- progress on stderr (progress.c) ---- */

typedef struct qn_progress {
    enum {
        QN_PROGRESS_NONE,
        QN_PROGRESS_BAR,
        QN_PROGRESS_PLAIN,
        QN_PROGRESS_JSON
    } kind;
    const char *phase, *unit;
    double began, shown; /* seconds */
    int64_t shown_done;
    bool open; /* a bar is on the line */
} qn_progress;

void qn_progress_begin(qn_progress *progress, const qn_cli *cli,
                       const char *phase, const char *unit);
void qn_progress_set(qn_progress *progress, int64_t done, int64_t total);
/* Takes a bar away. */
void qn_progress_end(qn_progress *progress);

/* ---- models (model.c, ref.c) ---- */

/* The path that a model reference stands for (free with qn_free). */
qn_status qn_ref_resolve(char **path, const char *ref);
/* Loads words[0] with the common model flags; the exit code. */
int qn_cli_load(qn_cli *cli, quern_model **out);

/* ---- signals (main.c) ---- */

/* SIGINT and SIGTERM cancel this session's work (NULL: end the process). */
void qn_cli_watch(quern_session *session);
/* The exit code that the signal asks for, 0 when none came. */
int qn_cli_signalled(void);

/* Seconds of a steady clock. */
double qn_cli_now(void);

/* ---- commands ---- */

int qn_cli_run(qn_cli *cli);
int qn_cli_bench(qn_cli *cli);
int qn_cli_show(qn_cli *cli);
int qn_cli_version(qn_cli *cli);

#endif
