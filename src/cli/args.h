/* args.h: command lines, read by the rows of flags.def.
 *
 * GNU style: --flag value, --flag=value, -f value, clusters of letters,
 * options anywhere, -- ends them; no abbreviations.  Whatever is not
 * understood is an error that names the flag, the value and the range. */
#ifndef QN_CLI_ARGS_H
#define QN_CLI_ARGS_H

#include "base/json.h"
#include "base/toml.h"

#include <stdint.h>

/* Commands as bits, so that a row can name several. */
enum {
    QN_CMD_RUN = 1,
    QN_CMD_BENCH = 2,
    QN_CMD_SHOW = 4,
    QN_CMD_VERSION = 8,
    QN_CMD_HELP = 16,
    QN_CMD_CONVERT = 32,
    QN_CMD_QUANTIZE = 64,
    QN_CMD_GET = 128,
    QN_CMD_LIST = 256,
    QN_CMD_GC = 512,
    QN_CMD_EMBED = 1024,
    QN_CMD_FIT = 2048,
    QN_CMD_EVAL = 4096,
    QN_CMD_DOCTOR = 8192,
    QN_CMD_COMPLETION = 1 << 15,
    QN_CMD_CHAT = 1 << 14,
    QN_CMD_SERVE = 1 << 16,
    QN_CMD_ANSWER = QN_CMD_RUN | QN_CMD_CHAT,
    QN_CMD_GENERATE = QN_CMD_ANSWER | QN_CMD_SERVE,
    /* those that load a model */
    QN_CMD_MODEL = QN_CMD_GENERATE | QN_CMD_BENCH | QN_CMD_EMBED | QN_CMD_EVAL,
    /* Those that go on behind what they have computed; a vector of a text is
       made in one piece. */
    QN_CMD_SEQUENCE = QN_CMD_MODEL & ~QN_CMD_EMBED,
    /* those in which tokens may be guessed ahead */
    QN_CMD_SPECULATES = QN_CMD_GENERATE | QN_CMD_BENCH,
    QN_CMD_READS = QN_CMD_RUN | QN_CMD_EMBED, /* text from a file */
    QN_CMD_MEASURE = QN_CMD_BENCH | QN_CMD_EVAL,
    QN_CMD_WRITE = QN_CMD_CONVERT | QN_CMD_QUANTIZE, /* those that make one */
    QN_CMD_WORK = QN_CMD_MODEL | QN_CMD_WRITE | QN_CMD_GET,
    /* Those that choose a model themselves when none is given (last.c). */
    QN_CMD_FINDS = QN_CMD_GENERATE | QN_CMD_BENCH | QN_CMD_EVAL | QN_CMD_EMBED |
                   QN_CMD_FIT,
    QN_CMD_ALL = 0x1ffff,
    /* Those that take --config FILE, and those that print JSON. */
    QN_CMD_CONFIGURED = QN_CMD_ALL & ~QN_CMD_DOCTOR,
    QN_CMD_PLAIN = QN_CMD_ALL & ~QN_CMD_CHAT & ~QN_CMD_COMPLETION
};

typedef enum qn_flag {
#define QN_FLAG(id, ...) QN_FLAG_##id,
#include "flags.def"
    QN_FLAG_COUNT
} qn_flag;

/* Where a value comes from. */
typedef enum qn_origin {
    QN_FROM_DEFAULT,
    QN_FROM_FLAG,
    QN_FROM_ENVIRONMENT,
    QN_FROM_FILE
} qn_origin;

/* The value of a flag; `given` false: the default holds.  Only a LIST is given
 * more than once. */
typedef struct qn_arg {
    bool given;
    qn_origin origin;
    bool on;           /* BOOL */
    int times;         /* BOOL: how often it was given */
    int64_t whole;     /* INT, COUNT, SIZE */
    double real;       /* REAL, PART, DURATION (seconds) */
    const char *text;  /* TEXT, CHOICE; of the command line */
    const char **list; /* LIST */
    size_t list_count;
} qn_arg;

typedef struct qn_args {
    qn_arg flag[QN_FLAG_COUNT];
    const char **words; /* positional arguments */
    size_t word_count;
} qn_args;

/* Reads argv[0..argc) (without the command's name) for the command with the
 * bit `command`, taking between min_words and max_words positional arguments;
 * `usage` names them.  Errors are QN_E_ARG; whether the command line asks for
 * JSON is known then too.  Free with qn_args_free in any case. */
qn_status qn_args_parse(qn_args *args, int command, int argc, char *const *argv,
                        size_t min_words, size_t max_words, const char *usage);
void qn_args_free(qn_args *args);

/* What a variable of the environment says in place of a flag that takes one
 * value: checked, and kept if the command takes the flag and it was not given.
 * QN_E_ARG for a bad value. */
qn_status qn_args_preset(qn_args *args, int command, qn_flag flag,
                         const char *text);
/* The same for a value of a configuration file, whose type must be one for the
 * flag; `text`, if not NULL, stands for a string's.  A flag that excludes it
 * and comes from elsewhere wins over it, and one from a file is an error. */
qn_status qn_args_preset_value(qn_args *args, int command, qn_flag flag,
                               const qn_toml_entry *value, const char *text);
/* Takes back values of a file that say nothing without a flag that is not
 * there. */
void qn_args_drop_idle(qn_args *args);
/* One more positional argument; `text` must live as long as `args`. */
qn_status qn_args_add_word(qn_args *args, const char *text);

/* What a row says of a flag. */
typedef struct qn_flag_info {
    const char *name, *values, *fallback;
    int commands;
} qn_flag_info;
qn_flag_info qn_args_info(qn_flag flag);
/* The flag with this name (in a file, '_' stands for '-') that one of the
 * commands takes; -1 when there is none. */
int qn_args_find(int commands, const char *name);

/* What a flag is set to, as text: a list with commas; false where it was not
 * given. */
bool qn_args_value(qn_buf *out, const qn_args *args, qn_flag flag);

/* Whether some command has the flag --name. */
bool qn_args_has(const char *name);
/* The name of a flag as a request spells it ("top_p"); valid until the next
 * call.  Whether `name` is that, or the flag's own. */
const char *qn_args_name(int flag);
bool qn_args_is_named(int flag, const char *name);

/* "512", "4k" (K, M, G: powers of 1024) with nothing behind it. */
bool qn_args_count(const char *text, int64_t *out);
/* "512M", "8GiB", "100" (K, M, G, T: powers of 1024). */
bool qn_args_size(const char *text, int64_t *out);
/* "30s", "5m", "1h", "2d" or seconds. */
bool qn_args_duration(const char *text, double *out);
/* "5%" or "5": 0 to 100. */
bool qn_args_percent(const char *text, double *out);
/* Comma-separated counts, min..max each; QN_E_ARG naming `flag`. The caller
 * frees *out (qn_free). */
qn_status qn_args_counts(const char *flag, const char *text, int64_t min,
                         int64_t max, int64_t **out, size_t *count);

/* The flags that the command takes: lines for --help, or an array of
 * objects. */
void qn_args_help(qn_buf *out, int command);
void qn_args_help_json(qn_json_writer *w, int command);

/* Candidates for `word`, a line each, on a command line of `command` whose word
 * before is `before`: flags, or the values of a flag that has a list of them.
 * False when the word is the value of a flag that has none. */
bool qn_args_complete(qn_buf *out, int command, const char *before,
                      const char *word);

/* The name among `names` (NULL-terminated) at most two edits away from
 * `text`, or NULL. */
const char *qn_nearest(const char *text, const char *const *names);

#endif
