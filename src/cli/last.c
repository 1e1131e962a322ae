/* last.c: the model of a command that was given none.
 *
 * $XDG_STATE_HOME/quern/last-model has the reference of the model that was
 * loaded last. */
#include "cli.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "base/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { LONGEST = 4096 };

/* ---- the note ---- */

/* $XDG_STATE_HOME/quern, else ~/.local/state/quern; with `make` it is there. */
static char *state_dir(bool make)
{
    const char *base = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    qn_buf path = QN_BUF_INIT;
    if (base && *base == '/')
        qn_buf_printf(&path, "%s/quern", base);
    else
        qn_buf_printf(&path, "%s/.local/state/quern", home ? home : "");
    char *dir = qn_buf_take(&path);
    for (char *p = dir; make && p && (p = strchr(p + 1, '/'));) {
        *p = '\0';
        mkdir(dir, 0777);
        *p = '/';
    }
    if (make && dir)
        mkdir(dir, 0777);
    return dir;
}

/* The reference that was noted, or NULL. */
static char *read_note(void)
{
    char *dir = state_dir(false), *text = NULL;
    char *path = dir ? qn_path_join(dir, "last-model") : NULL;
    if (path && qn_path_exists(path) &&
        !qn_file_read(&text, NULL, path, LONGEST))
        text[strcspn(text, "\n")] = '\0';
    qn_free(path);
    qn_free(dir);
    return text;
}

void qn_cli_note_model(const char *ref)
{
    qn_error kept;
    char *real = qn_path_exists(ref) ? realpath(ref, NULL) : NULL;
    char *before = read_note();
    const char *text = real ? real : ref;
    qn_error_save(&kept);
    /* A state that can't be written is no failure of the command. */
    if ((!before || strcmp(before, text) != 0) && !strchr(text, '\n') &&
        strlen(text) < LONGEST) {
        char *dir = state_dir(true);
        char *path = dir ? qn_path_join(dir, "last-model") : NULL;
        if (path)
            (void)qn_file_write_atomic(path, text, strlen(text));
        qn_free(path);
        qn_free(dir);
    }
    qn_error_restore(&kept);
    qn_free(before);
    free(real);
}

/* ---- what the cache has ---- */

static bool runs(const char *ref)
{
    quern_model *model = NULL;
    quern_options options;
    quern_options_init(&options);
    options.headers_only = true;
    bool good = !quern_model_load(&model, ref, &options, NULL);
    quern_model_free(model);
    return good;
}

/* The only model of the cache that runs, or NULL. */
static char *only_model(void)
{
    quern_cached_list list;
    char ref[256], *found = NULL;
    size_t count = 0;
    if (!quern_cache_list(&list, NULL))
        for (size_t i = 0; i < list.count && count < 2; i++) {
            if (!list.items[i].complete)
                continue;
            snprintf(ref, sizeof ref, "hf:%.120s@%.100s", list.items[i].id,
                     list.items[i].revision);
            if (!runs(ref))
                continue;
            if (!count++)
                found = qn_strdup(ref);
        }
    quern_cached_list_free(&list);
    if (count != 1) {
        qn_free(found);
        found = NULL;
    }
    return found;
}

/* ---- what to fetch ---- */

static const struct {
    const char *ref;
    unsigned mib;
} offers[] = {
#define QN_OFFER(ref, mib) {ref, mib},
#include "offers.def"
};

enum { OFFERS = sizeof offers / sizeof *offers, SHOWN = 3 };

/* The largest that fits and the two after it, or the smallest ones. */
static int offer(const qn_cli *cli)
{
    uint64_t usable = qn_usable_memory() >> 20;
    size_t first = 0;
    char lines[SHOWN][96];
    while (first + SHOWN < OFFERS && offers[first].mib > usable)
        first++;
    for (size_t i = 0; i < SHOWN; i++)
        snprintf(lines[i], sizeof lines[i], "quern get %s",
                 offers[first + i].ref);
    int code = qn_cli_fail(
        cli, QUERN_E_ARG, "",
        offers[first].mib <= usable
            ? "no model was given, and there is none to choose; these fit here"
            : "no model was given, and there is none to choose; these are "
              "small",
        lines[0]);
    for (size_t i = 1; i < SHOWN; i++)
        qn_err_line((const char *const[]){"hint: ", lines[i], NULL});
    return code;
}

/* A configuration may name the model; *ref is owned by the caller. */
static int choose(qn_cli *cli, char **ref)
{
    const qn_arg *named = &cli->args.flag[QN_FLAG_MODEL_WORD];
    *ref = named->given ? qn_strdup(named->text) : only_model();
    if (!*ref)
        *ref = read_note();
    if (!*ref || (!named->given && !runs(*ref)))
        return offer(cli);
    qn_cli_log(cli, QUERN_LOG_INFO, *ref);
    return QN_EXIT_OK;
}

int qn_cli_find_model(qn_cli *cli)
{
    int code = choose(cli, &cli->found_model);
    if (code)
        return code;
    qn_status status = qn_args_add_word(&cli->args, cli->found_model);
    return status ? qn_cli_fail_status(cli, status, NULL) : QN_EXIT_OK;
}
