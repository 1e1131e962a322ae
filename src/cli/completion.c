/* completion.c: `quern completion`, and what its scripts ask for.
 *
 * A script hands the words of the line to `quern __complete`, which prints the
 * candidates for the last of them, a line each; none: the shell's own, files.
 */
#include "cli.h"

#include <string.h>

static const char bash[] =
    "_quern() {\n"
    "    local IFS=$'\\n' line\n"
    "    COMPREPLY=()\n"
    "    while read -r line; do\n"
    "        COMPREPLY+=(\"$line\")\n"
    "    done < <(quern __complete \"${COMP_WORDS[@]:1:COMP_CWORD}\" "
    "2>/dev/null)\n"
    "}\n"
    "complete -o default -F _quern quern\n";

static const char zsh[] =
    "#compdef quern\n"
    "_quern() {\n"
    "    local -a found\n"
    "    found=(\"${(@f)$(quern __complete \"${(@)words[2,CURRENT]}\" "
    "2>/dev/null)}\")\n"
    "    if [[ -n \"$found\" ]]; then\n"
    "        compadd -Q -- \"${found[@]}\"\n"
    "    else\n"
    "        _files\n"
    "    fi\n"
    "}\n"
    "compdef _quern quern\n";

static const char fish[] =
    "function __quern_complete\n"
    "    set -l words (commandline -opc) (commandline -ct)\n"
    "    quern __complete $words[2..-1] 2>/dev/null\n"
    "end\n"
    "complete -c quern -a '(__quern_complete)'\n";

int qn_cli_completion(qn_cli *cli)
{
    static const struct {
        const char *shell, *script;
    } scripts[] = {{"bash", bash}, {"zsh", zsh}, {"fish", fish}};
    const char *shell = cli->args.words[0];
    for (size_t i = 0; i < sizeof scripts / sizeof *scripts; i++)
        if (!strcmp(scripts[i].shell, shell))
            return qn_out(scripts[i].script, strlen(scripts[i].script))
                       ? QN_EXIT_OK
                       : QN_EXIT_FAILURE;
    qn_status status =
        qn_fail(QN_E_ARG, "expected bash, zsh or fish, found '%s'", shell);
    return qn_cli_fail_status(cli, status, NULL);
}

/* ---- candidates ---- */

static const struct {
    const char *name;
    int bit;
} commands[] = {
#define QN_COMMAND(id, name, ...) {name, QN_CMD_##id},
#include "commands.def"
};

enum { COMMANDS = sizeof commands / sizeof *commands };

static void add(qn_buf *out, const char *text, const char *word)
{
    if (strncmp(text, word, strlen(word)) != 0)
        return;
    qn_buf_add_text(out, text);
    qn_buf_add_char(out, '\n');
}

static void add_commands(qn_buf *out, const char *word)
{
    for (int i = 0; i < COMMANDS; i++)
        add(out, commands[i].name, word);
}

/* Ids of cached models, for commands that take models. */
static void add_models(qn_buf *out, const char *word)
{
    quern_cached_list list;
    if (quern_cache_list(&list, NULL))
        return;
    for (size_t i = 0; i < list.count; i++)
        if (!i || strcmp(list.items[i].id, list.items[i - 1].id) != 0)
            add(out, list.items[i].id, word);
    quern_cached_list_free(&list);
}

static void add_words(qn_buf *out, int command, const char *before,
                      const char *word)
{
    static const char *const shells[] = {"bash", "zsh", "fish"};
    if (!qn_args_complete(out, command, before, word) || *word == '-')
        return;
    if (command == QN_CMD_HELP)
        add_commands(out, word);
    else if (command == QN_CMD_COMPLETION)
        for (size_t i = 0; i < 3; i++)
            add(out, shells[i], word);
    else if (command & (QN_CMD_MODEL | QN_CMD_WRITE | QN_CMD_FIT | QN_CMD_SHOW))
        add_models(out, word);
}

int qn_cli_complete(int count, char **words)
{
    qn_buf out = QN_BUF_INIT;
    const char *word = count ? words[count - 1] : "";
    int command = 0;
    for (int i = 0; count > 1 && i < COMMANDS; i++)
        if (!strcmp(commands[i].name, words[0]))
            command = commands[i].bit;
    if (count <= 1)
        add_commands(&out, word);
    else if (command)
        add_words(&out, command, words[count - 2], word);
    bool good = !qn_buf_status(&out) &&
                qn_out(qn_buf_str(&out).data, qn_buf_str(&out).size);
    qn_buf_free(&out);
    return good ? QN_EXIT_OK : QN_EXIT_FAILURE;
}
