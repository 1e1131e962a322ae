/* main.c: finds the command, reads its flags, and owns the signals. */
#include "cli.h"

#include "base/alloc.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
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
    {"run", QN_CMD_RUN, 1, 2, qn_cli_run, "MODEL [PROMPT] [flags]",
     "answer one prompt",
     "  quern run model.gguf \"Why is the sky blue?\" --temperature 0\n"
     "  git diff | quern run model.gguf \"Write a commit message:\" --stats\n"},
    {"bench", QN_CMD_BENCH, 1, 1, qn_cli_bench, "MODEL [flags]",
     "measure prompt and decode speed",
     "  quern bench model.gguf -p 512 -n 128\n"
     "  quern bench model.gguf -p 128,512 -n 0 --json\n"},
    {"show", QN_CMD_SHOW, 1, 1, qn_cli_show, "MODEL [flags]",
     "describe a model without loading its weights",
     "  quern show model.gguf\n"
     "  quern show model.gguf --tensors\n"},
    {"version", QN_CMD_VERSION, 0, 0, qn_cli_version, "[flags]",
     "print versions and what is built in",
     "  quern version\n"
     "  quern version --json\n"},
};

enum { COMMANDS = sizeof commands / sizeof *commands };

static void summary(FILE *to)
{
    fputs("usage: quern COMMAND [arguments]\n\n", to);
    for (int i = 0; i < COMMANDS; i++)
        fprintf(to, "  %-9s %s\n", commands[i].name, commands[i].summary);
    fputs(
        "\nquern COMMAND --help shows the flags of a command.\n"
        "MODEL is a .gguf file, a directory with config.json and safetensors, "
        "or\nthe name (org/name) of one in the model cache.\n",
        to);
}

static int help_of(const command_row *command)
{
    printf("usage: quern %s %s\n\n%c%s.\n\nflags (with their defaults):\n",
           command->name, command->usage, command->summary[0] - 'a' + 'A',
           command->summary + 1);
    qn_args_help(command->bit);
    printf("\nexamples:\n%s", command->examples);
    return ferror(stdout) || fflush(stdout) ? QN_EXIT_FAILURE : QN_EXIT_OK;
}

static const command_row *find(const char *name)
{
    for (int i = 0; i < COMMANDS; i++)
        if (!strcmp(commands[i].name, name))
            return &commands[i];
    return NULL;
}

static int unknown_command(const char *name)
{
    const char *names[COMMANDS + 2];
    for (int i = 0; i < COMMANDS; i++)
        names[i] = commands[i].name;
    names[COMMANDS] = "help";
    names[COMMANDS + 1] = NULL;
    const char *near = qn_nearest(name, names);
    fprintf(stderr, "quern: unknown command '%s'%s%s%s\n", name,
            near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
    return QN_EXIT_USAGE;
}

static int help(int argc, char **argv)
{
    if (argc < 1) {
        summary(stdout);
        return QN_EXIT_OK;
    }
    if (argc > 1) {
        fprintf(stderr, "quern: help: unexpected argument '%s'\n", argv[1]);
        return QN_EXIT_USAGE;
    }
    const command_row *found = find(argv[0]);
    return found ? help_of(found) : unknown_command(argv[0]);
}

static int dispatch(const command_row *command, int argc, char **argv)
{
    qn_cli cli = {.command = command->name};
    qn_status status = qn_args_parse(&cli.args, command->bit, argc, argv,
                                     command->min_words, command->max_words);
    cli.json = cli.args.flag[QN_FLAG_JSON].on;
    cli.quiet = cli.args.flag[QN_FLAG_QUIET].on;
    cli.verbose = cli.args.flag[QN_FLAG_VERBOSE].times;
    int code;
    if (status)
        code = qn_cli_fail_status(&cli, status, NULL);
    else if (cli.args.flag[QN_FLAG_HELP].on)
        code = help_of(command);
    else
        code = command->run(&cli);
    qn_args_free(&cli.args);
    return code;
}

/* ---- signals ---- */

static _Atomic(quern_session *) watched;
static volatile sig_atomic_t caught;

static void on_signal(int signal)
{
    quern_session *session = atomic_load(&watched);
    /* A second signal, or one while nothing can be cancelled, ends at once. */
    if (caught || !session)
        _exit(128 + signal);
    caught = signal;
    quern_session_cancel(session);
}

void qn_cli_watch(quern_session *session)
{
    atomic_store(&watched, session);
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
    struct sigaction action = {.sa_handler = on_signal};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    /* A closed stdout shows as a failed write. */
    signal(SIGPIPE, SIG_IGN);

    if (argc < 2) {
        summary(stderr);
        return QN_EXIT_USAGE;
    }
    const char *name = argv[1];
    if (!strcmp(name, "help") || !strcmp(name, "--help") || !strcmp(name, "-h"))
        return help(argc - 2, argv + 2);
    if (!strcmp(name, "--version"))
        name = "version";
    const command_row *found = find(name);
    if (!found)
        return unknown_command(name);
    return dispatch(found, argc - 2, argv + 2);
}
