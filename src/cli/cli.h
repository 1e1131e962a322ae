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
    QN_EXIT_NO_MEMORY = 5, /* or disk */
    QN_EXIT_NETWORK = 6,
    QN_EXIT_INTEGRITY = 7,
    QN_EXIT_DENIED = 8,
    QN_EXIT_THRESHOLD = 9,
    QN_EXIT_INTERRUPTED = 130,
    QN_EXIT_TERMINATED = 143
};

/* One invocation. */
typedef struct qn_cli {
    const char *command; /* "run" */
    qn_args args;
    struct qn_config *config; /* the file, NULL when there is none */
    char *found_model;        /* of qn_cli_find_model */
    bool json, quiet;
    quern_log_level log_level; /* messages above it are dropped */
    bool headers_only;         /* qn_cli_load leaves the weights alone */
    int threads;               /* that compute; known once a model is loaded */
    /* Changes the options of a load; NULL: nothing besides the flags. */
    void (*adapt)(void *data, quern_options *options);
    void *adapt_data;
} qn_cli;

/* ---- errors (out.c): each prints and returns the exit code ---- */

/* The error line, its hint (may be NULL), and with --json the error object. */
int qn_cli_fail(const qn_cli *cli, quern_status status, const char *where,
                const char *message, const char *hint);
int qn_cli_fail_error(const qn_cli *cli, const quern_error *error);
/* The thread's qn_fail sentence. */
int qn_cli_fail_status(const qn_cli *cli, qn_status status, const char *hint);

/* A line on stderr, if the level is one that the user wants. */
void qn_cli_log(const qn_cli *cli, quern_log_level level, const char *text);
/* The parts (up to a NULL) and a newline on stderr, control characters
 * spelled out: one line, whatever the parts hold. */
void qn_err_line(const char *const *parts);
/* Some of what a model thinks on stderr, control characters escaped, dimmed
 * where colours are wanted; true when its line is still open. */
bool qn_err_thought(const char *text, size_t size);

/* ---- standard output (out.c) ---- */

/* Before anything else: opens what of the descriptors 0 to 2 is closed. */
void qn_out_open(void);
/* Writes; false when that fails, now or before.  The program then ends with
 * what qn_out_result says. */
bool qn_out(const char *data, size_t size);
/* The same for text of a model or a file: on a terminal, control characters
 * other than newline and tab are escaped. */
bool qn_out_text(const char *text, size_t size);
/* Text; frees the buffer. */
int qn_out_buffer(const qn_cli *cli, qn_buf *text);
/* A JSON document and a newline; frees the buffer. */
int qn_out_json(const qn_cli *cli, qn_buf *line);
bool qn_out_is_terminal(void);
/* Something was written, or tried. */
bool qn_out_begun(void);
/* QN_EXIT_OK unless a write failed; says why, except of a closed pipe. */
int qn_out_result(const char *command);

/* ---- the environment (env.c) ---- */

/* Checks every QUERN_* variable; those that stand for flags of the command
 * (a bit of args.h) go into cli->args.  QN_E_ARG for a bad value. */
qn_status qn_env_read(qn_cli *cli, int command);
/* The variable that stands for a flag, or NULL. */
const char *qn_env_of(qn_flag flag);
/* "error", "warn", "info", "debug". */
bool qn_log_level_of(const char *text, quern_log_level *out);

/* ---- the configuration file (config.c) ---- */

/* Reads --config, else $XDG_CONFIG_HOME/quern/config.toml where there is one;
 * what it says of the command's flags goes into cli->args.  QN_E_ARG, with file
 * and line, for whatever is not understood.  Free with qn_config_free in any
 * case, after the arguments. */
qn_status qn_config_load(qn_cli *cli, int command);
void qn_config_free(qn_cli *cli);

/* What [models.NAME] says of the model that a command was given. */
typedef struct qn_config_model {
    const char *ref;     /* what the name stands for, or the reference as it
                            is */
    int64_t ctx;         /* 0: not said */
    const char *draft;   /* a reference; NULL: not said */
    const char *adapter; /* a folder; NULL: not said */
} qn_config_model;
qn_config_model qn_config_find_model(const qn_cli *cli, const char *ref);

/* Every setting with its value and where that comes from: flags by name
 * ("threads"; "run.max-tokens" for one command), models ("models.big.ref"), the
 * environment ("QUERN_CACHE").  Secrets are not shown. */
typedef void (*qn_config_fn)(void *data, const char *name, const char *value,
                             const char *origin);
qn_status qn_config_describe(const qn_cli *cli, qn_config_fn each, void *data);

/* The bit of a command's name (args.h), 0 for none; the nearest name (main.c).
 */
int qn_cli_command_bit(const char *name);
const char *qn_cli_nearest_command(const char *name);

/* ---- text that is read (input.c) ---- */

/* All of standard input, or of a file, up to 256 MiB. */
qn_status qn_cli_read_stdin(qn_buf *out);
qn_status qn_cli_read_file(const char *path, qn_buf *out);
/* What can be said, before the work begins, of the file that a flag wants
 * written at its end, and of one that it wants read; a flag that was not given
 * is fine. */
qn_status qn_cli_check_output(const qn_cli *cli, qn_flag flag);
qn_status qn_cli_check_input(const qn_cli *cli, qn_flag flag);

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
    int64_t shown_done, first;
    bool open;     /* a bar is on the line */
    bool counting; /* `first` is where it began */
    char name[48];
} qn_progress;

void qn_progress_begin(qn_progress *progress, const qn_cli *cli,
                       const char *phase, const char *unit);
void qn_progress_set(qn_progress *progress, int64_t done, int64_t total);
/* Another phase: the last part of a file's name, made fit for a line. */
void qn_progress_phase(qn_progress *progress, const char *name);
/* Takes a bar away. */
void qn_progress_end(qn_progress *progress);

/* ---- memory (peak.c) ---- */

/* Bytes of memory that the process had resident at most since it started, or
 * since the last reset where the kernel can reset that. */
size_t qn_peak_resident(void);
void qn_peak_reset(void);

/* ---- models (model.c) ---- */

/* Finds out cli->threads, once. */
void qn_cli_count_threads(qn_cli *cli);

/* Without a reference: the only model of the cache that runs, else the one that
 * was loaded last, becomes the first word; else the error says what to fetch
 * (last.c). */
int qn_cli_find_model(qn_cli *cli);
/* Notes for the next time that the model was loaded (last.c). */
void qn_cli_note_model(const char *ref);
/* The error of a reference that could not be opened: what is not there may be
 * fetched, which the hint says; prints, and returns the exit code. */
int qn_cli_fail_load(const qn_cli *cli, const char *ref,
                     const quern_error *error);
/* Opens a model with the common model flags.  `cli` must outlive it, unless
 * cli->adapt names another one as the log's. */
quern_status qn_cli_open(qn_cli *cli, const char *ref, quern_model **out,
                         quern_error *error);
/* The same with --pull; says why it can't be opened, and the exit code. */
int qn_cli_load(qn_cli *cli, const char *ref, quern_model **out);
/* quern_model_load, but for a --gguf-dequant that is not meant for the model.
 */
quern_status qn_cli_open_with(const qn_cli *cli, const char *ref,
                              quern_options *options, quern_model **out,
                              quern_error *error);
/* Whether there are the devices that --device and --tensor-parallel name. */
qn_status qn_cli_check_devices(const qn_arg *flags);

/* ---- the cache (get.c) ---- */

/* Fetches a model that the cache lacks, for --pull; the exit code. */
int qn_cli_pull(qn_cli *cli, const char *ref);
/* Bytes of memory that a model may have here, as `quern fit` counts them. */
uint64_t qn_usable_memory(void);

/* What --pooling says (embed.c). */
quern_pooling qn_cli_pooling(const qn_arg *arg);

/* ---- requests (request.c) ---- */

/* UTF-8 without NUL bytes, or QN_E_ARG. */
qn_status qn_cli_check_text(const char *what, qn_str text);
/* What can be said of the flags before a model is loaded. */
qn_status qn_cli_check_request(const qn_arg *flag);
void qn_cli_set_request(quern_request *request, const qn_args *args);

/* ---- signals (main.c) ---- */

/* SIGINT and SIGTERM cancel this session's work (NULL: end the process). */
void qn_cli_watch(quern_session *session);
/* The same for work that asks whether to go on (qn_cli_signalled). */
void qn_cli_watch_calls(bool on);
/* The same for a server: the first signal calls `stop`, which must be fit for a
 * signal's handler, and is then forgotten, so that the program may end well.
 * NULL: no longer. */
void qn_cli_watch_server(void (*stop)(void));
/* From now on a signal that ends the process at once leaves an error object on
 * stdout, if the command line asks for JSON and nothing was written yet. */
void qn_cli_interruptible(const qn_cli *cli);
/* Whether a signal has come. */
bool qn_cli_interrupted(void);
/* Forgets one of SIGINT; false: it was another one, which must end the program.
 * Until then a second one ends it at once. */
bool qn_cli_forgive(void);
/* The exit code that the signal asks for, 0 when none came. */
int qn_cli_signalled(void);

/* Seconds of a steady clock. */
double qn_cli_now(void);

/* ---- commands ---- */

int qn_cli_run(qn_cli *cli);
int qn_cli_chat(qn_cli *cli);
int qn_cli_serve(qn_cli *cli);
int qn_cli_bench(qn_cli *cli);
int qn_cli_embed(qn_cli *cli);
int qn_cli_show(qn_cli *cli);
int qn_cli_convert(qn_cli *cli);
int qn_cli_quantize(qn_cli *cli);
int qn_cli_fit(qn_cli *cli);
int qn_cli_eval(qn_cli *cli);
int qn_cli_doctor(qn_cli *cli);
int qn_cli_completion(qn_cli *cli);
/* Candidates for the last of `words`, a line each: what the scripts of
 * completion ask for. */
int qn_cli_complete(int count, char **words);
int qn_cli_help(qn_cli *cli);
int qn_cli_version(qn_cli *cli);
int qn_cli_get(qn_cli *cli);
int qn_cli_list(qn_cli *cli);
int qn_cli_gc(qn_cli *cli);
/* The commit that was built, or NULL. */
const char *qn_cli_commit(void);

#endif
