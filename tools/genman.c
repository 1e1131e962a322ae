/* genman.c: the manual pages, from the tables of commands and flags.
 *
 *   genman FOLDER VERSION
 *
 * Writes quern.1 and a page quern-COMMAND.1 for each command. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* Commands as the bits that the flags name. */
enum {
#define QN_COMMAND(id, ...) ROW_##id,
#include "cli/commands.def"
    ROWS
};

#include "cli/args.h"

static const struct {
    const char *name, *usage, *summary, *examples;
    int bit;
} commands[] = {
#define QN_COMMAND(id, name, least, most, run, usage, summary, examples)       \
    {name, usage, summary, examples, QN_CMD_##id},
#include "cli/commands.def"
};

static const struct {
    const char *name;
    char letter;
    const char *kind, *values, *fallback;
    int commands;
    const char *help;
} flags[] = {
#define QN_FLAG(id, name, letter, kind, values, min, max, fallback, commands,  \
                help)                                                          \
    {name, letter, #kind, values, fallback, QN_CMD_##commands, help},
#include "cli/flags.def"
};

/* Text for troff: no line begins with a control character, and a hyphen or a
 * backslash is itself. */
static void put(FILE *out, const char *text)
{
    for (const char *p = text; *p; p++) {
        bool first = p == text || p[-1] == '\n';
        if (first && (*p == '.' || *p == '\''))
            fputs("\\&", out);
        if (*p == '\\')
            fputs("\\e", out);
        else if (*p == '-')
            fputs("\\-", out);
        else
            fputc(*p, out);
    }
}

static FILE *begin(const char *folder, const char *name, const char *version,
                   const char *summary)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s.1", folder, name);
    FILE *out = fopen(path, "w");
    if (!out)
        return NULL;
    fprintf(out, ".TH %s 1 \"\" \"quern %s\" \"User Commands\"\n.SH NAME\n",
            name, version);
    put(out, name);
    fputs(" \\- ", out);
    put(out, summary);
    return out;
}

static void put_flag(FILE *out, size_t i)
{
    bool boolean = !strcmp(flags[i].kind, "BOOL");
    fputs(".TP\n\\fB", out);
    if (flags[i].letter)
        fprintf(out, "\\-%c\\fR, \\fB", flags[i].letter);
    fputs("\\-\\-", out);
    put(out, flags[i].name);
    fputs("\\fR", out);
    if (!boolean) {
        fputs(" \\fI", out);
        put(out, flags[i].values);
        fputs("\\fR", out);
    }
    fputc('\n', out);
    put(out, flags[i].help);
    if (*flags[i].fallback) {
        fputs(" (default: ", out);
        put(out, flags[i].fallback);
        fputc(')', out);
    }
    fputc('\n', out);
}

static bool finish(FILE *out)
{
    bool good = !ferror(out);
    return fclose(out) == 0 && good;
}

static bool command_page(const char *folder, const char *version, size_t c)
{
    char name[64];
    snprintf(name, sizeof name, "quern-%s", commands[c].name);
    FILE *out = begin(folder, name, version, commands[c].summary);
    if (!out)
        return false;
    fputs("\n.SH SYNOPSIS\n.B quern ", out);
    put(out, commands[c].name);
    fputs("\n", out);
    put(out, commands[c].usage);
    fputs("\n.SH OPTIONS\n", out);
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        if (flags[i].commands & commands[c].bit)
            put_flag(out, i);
    fputs(".SH EXAMPLES\n.nf\n", out);
    put(out, commands[c].examples);
    fputs(".fi\n.SH SEE ALSO\n.BR quern (1)\n", out);
    return finish(out);
}

static bool main_page(const char *folder, const char *version)
{
    static const char *const codes[] = {
        "0",   "done",
        "1",   "failed while it ran",
        "2",   "wrong usage, configuration or environment",
        "3",   "not found",
        "4",   "unsupported or invalid model, template or data",
        "5",   "does not fit in memory or on disk",
        "6",   "network failure, or offline where one is needed",
        "7",   "a file is not the one that was announced",
        "8",   "refused by permission or licence",
        "9",   "a threshold was not met",
        "130", "interrupted",
        "143", "terminated",
    };
    FILE *out = begin(folder, "quern", version, "run language models");
    if (!out)
        return false;
    fputs("\n.SH SYNOPSIS\n.B quern\n.I COMMAND\n[arguments]\n.SH COMMANDS\n",
          out);
    for (size_t c = 0; c < ROWS; c++) {
        fputs(".TP\n.BR quern\\-", out);
        put(out, commands[c].name);
        fputs(" (1)\n", out);
        put(out, commands[c].summary);
        fputc('\n', out);
    }
    fputs(".SH EXIT STATUS\n", out);
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i += 2) {
        fprintf(out, ".TP\n%s\n", codes[i]);
        put(out, codes[i + 1]);
        fputc('\n', out);
    }
    return finish(out);
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fputs("usage: genman FOLDER VERSION\n", stderr);
        return 2;
    }
    bool good = main_page(argv[1], argv[2]);
    for (size_t c = 0; c < ROWS && good; c++)
        good = command_page(argv[1], argv[2], c);
    if (!good)
        perror("genman");
    return good ? 0 : 1;
}
