/* main.c: finds the command, reads its flags, and owns the signals. */
#include "cli.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* ---- commands ---- */

typedef struct command_row {
    const char *name;
    int bit;
    size_t min_words, max_words;
    int (*run)(qn_cli *cli);
    const char *usage, *summary, *examples;
} command_row;

static const command_row commands[] = {
#define QN_COMMAND(id, name, least, most, run, usage, summary, examples)       \
    {name, QN_CMD_##id, least, most, run, usage, summary, examples},
#include "commands.def"
};

enum { COMMANDS = sizeof commands / sizeof *commands };

/* ---- help ---- */

static void add_summary(qn_buf *out)
{
    qn_buf_add_text(out, "usage: quern COMMAND [arguments]\n\n");
    for (int i = 0; i < COMMANDS; i++)
        qn_buf_printf(out, "  %-9s %s\n", commands[i].name,
                      commands[i].summary);
    qn_buf_add_text(
        out,
        "\nquern COMMAND --help shows the flags of a command.\n"
        "MODEL is a .gguf file, a directory with config.json and safetensors, "
        "or\nthe name (org/name) of one in the model cache.\n");
}

static void add_help(qn_buf *out, const command_row *command)
{
    qn_buf_printf(out,
                  "usage: quern %s %s\n\n%c%s.\n\nflags (with their "
                  "defaults):\n",
                  command->name, command->usage,
                  command->summary[0] - 'a' + 'A', command->summary + 1);
    qn_args_help(out, command->bit);
    qn_buf_printf(out, "\nexamples:\n%s", command->examples);
}

static void add_help_json(qn_json_writer *w, const command_row *command)
{
    qn_json_write_object(w);
    qn_json_write_key(w, "name");
    qn_json_write_text(w, command->name);
    qn_json_write_key(w, "usage");
    qn_json_write_text(w, command->usage);
    qn_json_write_key(w, "summary");
    qn_json_write_text(w, command->summary);
    qn_json_write_key(w, "flags");
    qn_args_help_json(w, command->bit);
    qn_json_write_object_end(w);
}

/* Help on one command, or on all. */
static int print_help(const qn_cli *cli, const command_row *command)
{
    qn_buf out = QN_BUF_INIT;
    if (!cli->json) {
        if (command)
            add_help(&out, command);
        else
            add_summary(&out);
        return qn_out_buffer(cli, &out);
    }
    qn_json_writer w;
    qn_json_write_begin(&w, &out);
    qn_json_write_object(&w);
    qn_json_write_key(&w, "schema");
    qn_json_write_text(&w, "quern.help/1");
    qn_json_write_key(&w, "commands");
    qn_json_write_array(&w);
    for (int i = 0; i < COMMANDS; i++)
        if (!command || command == &commands[i])
            add_help_json(&w, &commands[i]);
    qn_json_write_array_end(&w);
    qn_json_write_object_end(&w);
    return qn_out_json(cli, &out);
}

static const command_row *find(const char *name)
{
    for (int i = 0; i < COMMANDS; i++)
        if (!strcmp(commands[i].name, name))
            return &commands[i];
    return NULL;
}

static int unknown_command(qn_cli *cli, const char *name)
{
    const char *near = qn_cli_nearest_command(name);
    qn_status status =
        near ? qn_fail(QN_E_ARG, "unknown command '%s'; did you mean '%s'?",
                       name, near)
             : qn_fail(QN_E_ARG, "unknown command '%s'; see quern help", name);
    return qn_cli_fail_status(cli, status, NULL);
}

int qn_cli_help(qn_cli *cli)
{
    if (!cli->args.word_count)
        return print_help(cli, NULL);
    const command_row *found = find(cli->args.words[0]);
    return found ? print_help(cli, found)
                 : unknown_command(cli, cli->args.words[0]);
}

/* What `quern` alone prints, on stderr. */
static int print_usage(void)
{
    qn_buf out = QN_BUF_INIT;
    add_summary(&out);
    fwrite(qn_buf_str(&out).data, 1, out.size, stderr);
    qn_buf_free(&out);
    return QN_EXIT_USAGE;
}

/* ---- dispatch ---- */

static quern_log_level log_level(const qn_cli *cli)
{
    const char *text = getenv("QUERN_LOG");
    int verbose = cli->args.flag[QN_FLAG_VERBOSE].on
                      ? cli->args.flag[QN_FLAG_VERBOSE].times
                      : 0;
    quern_log_level level = QUERN_LOG_WARN;
    if (cli->quiet)
        level = QUERN_LOG_ERROR;
    else if (verbose)
        level = verbose > 1 ? QUERN_LOG_DEBUG : QUERN_LOG_INFO;
    else if (text)
        qn_log_level_of(text, &level);
    return level;
}

static void set_manners(qn_cli *cli)
{
    cli->json = cli->args.flag[QN_FLAG_JSON].on;
    cli->quiet = cli->args.flag[QN_FLAG_QUIET].on;
    cli->log_level = log_level(cli);
}

int qn_cli_command_bit(const char *name)
{
    const command_row *row = find(name);
    return row ? row->bit : 0;
}

const char *qn_cli_nearest_command(const char *name)
{
    const char *names[COMMANDS + 1] = {NULL};
    for (int i = 0; i < COMMANDS; i++)
        names[i] = commands[i].name;
    return qn_nearest(name, names);
}

/* No model was given where one is needed. */
static bool wants_model(const command_row *command, const qn_args *args)
{
    return (command->bit & QN_CMD_FINDS) && !args->word_count &&
           !args->flag[QN_FLAG_SERVER].given &&
           !args->flag[QN_FLAG_SERVED].given &&
           !args->flag[QN_FLAG_MODELS_DIR].given &&
           !args->flag[QN_FLAG_RUNS_HISTORY].on &&
           !args->flag[QN_FLAG_FIT_ALL].on;
}

/* `argv` has the words without the command's name. */
static int dispatch(const command_row *command, int argc, char **argv)
{
    qn_cli cli = {.command = command->name};
    qn_status status =
        qn_args_parse(&cli.args, command->bit, argc, argv, command->min_words,
                      command->max_words, command->usage);
    set_manners(&cli);
    int code;
    if (!status && cli.args.flag[QN_FLAG_HELP].on) {
        code = print_help(&cli, command);
    } else {
        if (!status)
            status = qn_env_read(&cli, command->bit);
        if (!status)
            status = qn_config_load(&cli, command->bit);
        set_manners(&cli);
        qn_cli_interruptible(&cli);
        code = status ? qn_cli_fail_status(&cli, status, NULL) : QN_EXIT_OK;
        if (!code && wants_model(command, &cli.args))
            code = qn_cli_find_model(&cli);
        if (!code)
            code = command->run(&cli);
    }
    qn_args_free(&cli.args);
    qn_config_free(&cli);
    return code;
}

/* A first word that is no command: nothing but flags, or a mistake. */
static int no_command(int argc, char **argv, const char *name)
{
    qn_cli cli = {.command = "", .log_level = QUERN_LOG_WARN};
    qn_status status =
        qn_args_parse(&cli.args, QN_CMD_HELP, argc, argv, 0, SIZE_MAX, "");
    int code;
    cli.json = cli.args.flag[QN_FLAG_JSON].on;
    if (name)
        code = unknown_command(&cli, name);
    else if (status)
        code = qn_cli_fail_status(&cli, status, NULL);
    else if (cli.args.flag[QN_FLAG_HELP].on)
        code = print_help(&cli, NULL);
    else
        code = print_usage();
    qn_args_free(&cli.args);
    return code;
}

/* ---- signals ---- */

static _Atomic(quern_session *) watched;
static volatile sig_atomic_t caught, writes_json, asks;
static void (*_Atomic stop_server)(void);

static void on_signal(int signal)
{
    static const char interrupted[] =
        "{\"schema\":\"quern.error/1\",\"error\":{\"code\":\"cancelled\","
        "\"message\":\"interrupted\",\"where\":\"\",\"hint\":null}}\n";
    quern_session *session = atomic_load(&watched);
    /* A second signal, or one while nothing can be cancelled, ends at once. */
    if (caught || (!session && !asks)) {
        if (writes_json && !qn_out_begun() &&
            write(STDOUT_FILENO, interrupted, sizeof interrupted - 1) < 0)
            _exit(128 + signal);
        _exit(128 + signal);
    }
    caught = signal;
    if (session)
        quern_session_cancel(session);
    void (*stop)(void) = atomic_load(&stop_server);
    if (stop)
        stop();
}

static void catch_signals(void)
{
    struct sigaction action = {.sa_handler = on_signal};
    sigemptyset(&action.sa_mask);
    sigaddset(&action.sa_mask, SIGINT);
    sigaddset(&action.sa_mask, SIGTERM);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    /* A closed stdout shows as a failed write. */
    signal(SIGPIPE, SIG_IGN);
}

void qn_cli_interruptible(const qn_cli *cli)
{
    writes_json = cli->json;
}

void qn_cli_watch(quern_session *session)
{
    atomic_store(&watched, session);
}

void qn_cli_watch_calls(bool on)
{
    asks = on;
}

void qn_cli_watch_server(void (*stop)(void))
{
    atomic_store(&stop_server, stop);
    asks = stop != NULL;
    caught = 0;
}

bool qn_cli_interrupted(void)
{
    return caught != 0;
}

bool qn_cli_forgive(void)
{
    if (caught == SIGINT)
        caught = 0;
    return !caught;
}

int qn_cli_signalled(void)
{
    return caught ? 128 + (int)caught : 0;
}

double qn_cli_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

int main(int argc, char **argv)
{
    qn_out_open();
    catch_signals();
    if (argc < 2)
        return print_usage();
    if (!strcmp(argv[1], "__complete"))
        return qn_cli_complete(argc - 2, argv + 2);
    /* Flags may stand before the command. */
    int at = 1;
    while (at < argc && argv[at][0] == '-' &&
           strcmp(argv[at], "--version") != 0)
        at++;
    const char *name = at < argc ? argv[at] : NULL;
    if (name && !strcmp(name, "--version"))
        name = "version";
    const command_row *found = name ? find(name) : NULL;
    if (name)
        memmove(argv + 2, argv + 1, (size_t)(at - 1) * sizeof *argv);
    int code = found  ? dispatch(found, argc - 2, argv + 2)
               : name ? no_command(argc - 2, argv + 2, name)
                      : no_command(argc - 1, argv + 1, NULL);
    int written = qn_out_result(found ? found->name : "help");
    if (qn_cli_signalled())
        return qn_cli_signalled();
    return code > QN_EXIT_FAILURE || !written ? code : written;
}
