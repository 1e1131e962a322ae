/* gc.c: `quern gc`: shows what the cache no longer needs, and removes it when
 * it is told to. */
#include "cli.h"

#include "base/units.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void set_options(quern_gc_options *o, const qn_cli *cli)
{
    const qn_arg *flag = cli->args.flag;
    quern_gc_options_init(o);
    if (flag[QN_FLAG_OLDER_THAN].given)
        o->older_than = flag[QN_FLAG_OLDER_THAN].real;
    o->unreferenced = flag[QN_FLAG_UNREFERENCED].on;
    o->keep = flag[QN_FLAG_KEEP].list;
    o->keep_count = flag[QN_FLAG_KEEP].list_count;
}

static uint64_t sum(const quern_gc_list *list)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < list->count; i++)
        bytes += list->items[i].in_use ? 0 : list->items[i].bytes;
    return bytes;
}

static void print_text(const quern_gc_list *list, bool removed, qn_buf *out)
{
    char size[QN_SIZE_TEXT];
    for (size_t i = 0; i < list->count; i++) {
        const quern_gc_item *item = &list->items[i];
        qn_buf_printf(out, "%10s  %-40s %s%s\n",
                      qn_size_text(size, item->bytes), item->id, item->what,
                      item->in_use                ? "  (in use: stays)"
                      : removed && !item->removed ? "  (could not be removed)"
                                                  : "");
    }
    qn_buf_printf(out, "%s %s\n", qn_size_text(size, sum(list)),
                  removed ? "freed" : "could be freed");
}

static void write_json(const quern_gc_list *list, bool removed, qn_buf *out)
{
    qn_json_writer w;
    qn_json_write_begin(&w, out);
    qn_json_write_object(&w);
    qn_json_write_key(&w, "schema");
    qn_json_write_text(&w, "quern.gc/1");
    qn_json_write_key(&w, "removed");
    qn_json_write_bool(&w, removed);
    qn_json_write_key(&w, "bytes");
    qn_json_write_uint(&w, sum(list));
    qn_json_write_key(&w, "items");
    qn_json_write_array(&w);
    for (size_t i = 0; i < list->count; i++) {
        const quern_gc_item *item = &list->items[i];
        qn_json_write_object(&w);
        qn_json_write_key(&w, "id");
        qn_json_write_text(&w, item->id);
        qn_json_write_key(&w, "what");
        qn_json_write_text(&w, item->what);
        qn_json_write_key(&w, "path");
        qn_json_write_text(&w, item->path);
        qn_json_write_key(&w, "bytes");
        qn_json_write_uint(&w, item->bytes);
        qn_json_write_key(&w, "in_use");
        qn_json_write_bool(&w, item->in_use);
        qn_json_write_key(&w, "removed");
        qn_json_write_bool(&w, item->removed);
        qn_json_write_object_end(&w);
    }
    qn_json_write_array_end(&w);
    qn_json_write_object_end(&w);
}

static int print(const qn_cli *cli, const quern_gc_list *list, bool removed)
{
    qn_buf out = QN_BUF_INIT;
    if (cli->json) {
        write_json(list, removed, &out);
        return qn_out_json(cli, &out);
    }
    print_text(list, removed, &out);
    return qn_out_buffer(cli, &out);
}

/* Asks on the terminal; anything but yes is no. */
static bool is_confirmed(void)
{
    char answer[16] = "";
    fputs("remove these? [y/N] ", stderr);
    if (!fgets(answer, sizeof answer, stdin))
        return false;
    return answer[0] == 'y' || answer[0] == 'Y';
}

/* Only what can go now counts. */
static bool is_empty(const quern_gc_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        if (!list->items[i].in_use)
            return false;
    return true;
}

int qn_cli_gc(qn_cli *cli)
{
    quern_gc_options options;
    quern_gc_list list;
    quern_error error;
    bool yes = cli->args.flag[QN_FLAG_YES].on;
    bool ask = !yes && !cli->args.flag[QN_FLAG_DRY_RUN].on && !cli->json &&
               isatty(STDIN_FILENO) && isatty(STDERR_FILENO);
    set_options(&options, cli);
    options.dry_run = !yes;
    const qn_arg *unreferenced = &cli->args.flag[QN_FLAG_UNREFERENCED];
    if (unreferenced->given && !unreferenced->on && options.older_than < 0)
        return qn_cli_fail(cli, QUERN_E_ARG, "",
                           "--no-unreferenced leaves nothing to look for "
                           "without --older-than",
                           NULL);
    int code = QN_EXIT_OK;
    if (quern_cache_gc(&list, &options, &error))
        code = qn_cli_fail_error(cli, &error);
    if (!code)
        code = print(cli, &list, yes);
    if (!code && ask && !is_empty(&list) && is_confirmed()) {
        quern_gc_list_free(&list);
        options.dry_run = false;
        code = quern_cache_gc(&list, &options, &error)
                   ? qn_cli_fail_error(cli, &error)
                   : print(cli, &list, true);
    } else if (!code && !yes && !ask && !cli->json && !is_empty(&list)) {
        qn_cli_log(cli, QUERN_LOG_WARN,
                   "nothing was removed; --yes removes it");
    }
    quern_gc_list_free(&list);
    return code;
}
