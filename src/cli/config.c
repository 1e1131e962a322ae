/* config.c: the configuration file.
 *
 * Top-level keys are names of flags, with '_' for '-'; a table with a
 * command's name has flags of that command and wins over them; [models.NAME]
 * describes a model.  A value is checked where it stands, whether or not the
 * command at hand takes it, and a flag or a variable wins over it. */
#include "cli.h"

#include "base/alloc.h"
#include "base/arena.h"
#include "base/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef struct qn_config {
    char *path;
    qn_toml *toml;
    qn_arena arena; /* paths that were made relative to the file */
} qn_config;

static const char *const model_keys[] = {"ref",   "ctx",   "adapter",
                                         "draft", "alias", NULL};

/* ---- places ---- */

static qn_status fail_at(const qn_config *c, const qn_toml_entry *e,
                         qn_status status)
{
    return qn_fail_where(status, "%s:%d", c->path, e->line);
}

#define fail(c, e, ...) fail_at(c, e, qn_fail(QN_E_ARG, __VA_ARGS__))

/* $XDG_CONFIG_HOME/quern/config.toml, else ~/.config/quern/config.toml. */
static char *usual_path(void)
{
    const char *base = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
    qn_buf path = QN_BUF_INIT;
    if (base && *base == '/')
        qn_buf_printf(&path, "%s/quern/config.toml", base);
    else
        qn_buf_printf(&path, "%s/.config/quern/config.toml", home ? home : "");
    return qn_buf_take(&path);
}

/* ---- paths ---- */

static bool has_suffix(const char *text, const char *suffix)
{
    size_t n = strlen(text), m = strlen(suffix);
    return n >= m && !strcmp(text + n - m, suffix);
}

/* `text` as seen from the file's folder, or NULL. */
static const char *relative(qn_config *c, const char *text)
{
    const char *slash = strrchr(c->path, '/');
    size_t size = slash ? (size_t)(slash - c->path) + 1 : 0;
    char *out = qn_arena_alloc(&c->arena, size + strlen(text) + 1);
    if (out) {
        memcpy(out, c->path, size);
        strcpy(out + size, text);
    }
    return out;
}

/* Whether the word is one of those that `values` lists ("FILE|chatml"). */
static bool is_listed(const char *values, const char *word)
{
    size_t size = strlen(word);
    for (const char *p = values; *p;) {
        size_t n = strcspn(p, "|");
        if (n == size && !memcmp(p, word, n))
            return true;
        p += n;
        p += *p == '|';
    }
    return false;
}

static bool names_file(qn_flag flag, const char *text)
{
    const char *values = qn_args_info(flag).values;
    return (strstr(values, "FILE") || strstr(values, "DIR")) && *text &&
           *text != '/' && strcmp(text, "-") != 0 && !is_listed(values, text);
}

/* A reference that can only be a path, or is one beside the file. */
static qn_status model_path(qn_config *c, const char **ref)
{
    const char *text = *ref;
    if (*text == '/' || !strncmp(text, "hf:", 3))
        return QN_OK;
    const char *path = relative(c, text);
    if (!path)
        return QN_E_NOMEM;
    if (!strncmp(text, "./", 2) || !strncmp(text, "../", 3) ||
        (!strchr(text, ':') &&
         (has_suffix(text, ".gguf") || has_suffix(text, ".safetensors"))) ||
        qn_path_exists(path))
        *ref = path;
    return QN_OK;
}

/* ---- models ---- */

static bool is_model(const qn_toml_entry *e)
{
    return e->depth == 2 && !strcmp(e->path[0], "models");
}

static const qn_toml_entry *model_entry(const qn_config *c, const char *name,
                                        const char *key)
{
    const qn_toml_entry *e;
    for (size_t i = 0; (e = qn_toml_at(c->toml, i)); i++)
        if (is_model(e) && !strcmp(e->path[1], name) && !strcmp(e->key, key))
            return e;
    return NULL;
}

static bool has_alias(const qn_toml_entry *e, const char *name)
{
    if (strcmp(e->key, "alias") != 0)
        return false;
    if (e->type == QN_TOML_STRING)
        return !strcmp(e->text, name);
    for (size_t i = 0; i < e->list_count; i++)
        if (!strcmp(e->list[i], name))
            return true;
    return false;
}

/* The table called `name`, or that has it as an alias; NULL when there is
 * none. */
static const char *find_name(const qn_config *c, const char *name)
{
    const qn_toml_entry *e;
    for (size_t i = 0; (e = qn_toml_at(c->toml, i)); i++)
        if (is_model(e) && (!strcmp(e->path[1], name) || has_alias(e, name)))
            return e->path[1];
    return NULL;
}

static qn_status check_model(const qn_config *c, const qn_toml_entry *e)
{
    int64_t tokens;
    bool text = e->type == QN_TOML_STRING, whole = e->type == QN_TOML_INT;
    bool known = false;
    for (const char *const *key = model_keys; *key; key++)
        known = known || !strcmp(e->key, *key);
    if (!known) {
        const char *near = qn_nearest(e->key, model_keys);
        return fail(c, e, "unknown key '%s' of a model%s%s%s", e->key,
                    near ? "; did you mean '" : "", near ? near : "",
                    near ? "'?" : "");
    }
    if (!strcmp(e->key, "ctx")) {
        if ((!text && !whole) || !qn_args_count(e->text, &tokens) ||
            tokens < 1 || tokens > 1000000000)
            return fail(c, e, "ctx: expected a number of tokens from 1 to 1e9");
    } else if (!text &&
               (strcmp(e->key, "alias") != 0 || e->type != QN_TOML_STRINGS)) {
        return fail(c, e, "%s: expected a string, found %s", e->key,
                    qn_toml_type_name(e->type));
    }
    if (!model_entry(c, e->path[1], "ref"))
        return fail(c, e, "models.%s: expected a key 'ref'", e->path[1]);
    return QN_OK;
}

qn_config_model qn_config_find_model(const qn_cli *cli, const char *ref)
{
    qn_config_model out = {.ref = ref};
    qn_config *c = cli->config;
    const char *name = c && !qn_path_exists(ref) && strncmp(ref, "./", 2) != 0
                           ? find_name(c, ref)
                           : NULL;
    if (!name)
        return out;
    const qn_toml_entry *ctx = model_entry(c, name, "ctx");
    const qn_toml_entry *draft = model_entry(c, name, "draft");
    const qn_toml_entry *adapter = model_entry(c, name, "adapter");
    out.ref = model_entry(c, name, "ref")->text;
    if (ctx)
        qn_args_count(ctx->text, &out.ctx);
    if (draft)
        out.draft = draft->text;
    if (adapter)
        out.adapter =
            *adapter->text == '/' ? adapter->text : relative(c, adapter->text);
    /* Short of memory, they stay as they are written. */
    (void)model_path(c, &out.ref);
    if (out.draft)
        (void)model_path(c, &out.draft);
    return out;
}

/* ---- flags ---- */

/* Keys that are known although no command of this version has the flag. */
static bool is_reserved(const qn_toml_entry *e)
{
    return !strcmp(e->key, "api_key") &&
           (e->type == QN_TOML_STRING || e->type == QN_TOML_STRINGS);
}

/* Those that say how the file itself is found, or nothing. */
static bool is_refused(qn_flag flag)
{
    return flag == QN_FLAG_CONFIG || flag == QN_FLAG_HELP;
}

static qn_status unknown_key(const qn_config *c, const qn_toml_entry *e,
                             int commands)
{
    const char *names[QN_FLAG_COUNT + 1];
    char key[64];
    size_t count = 0;
    for (int i = 0; i < QN_FLAG_COUNT; i++)
        if (qn_args_info((qn_flag)i).commands & commands)
            names[count++] = qn_args_info((qn_flag)i).name;
    names[count] = NULL;
    snprintf(key, sizeof key, "%s", e->key);
    for (char *p = key; *p; p++)
        *p = *p == '_' ? '-' : *p;
    const char *near = qn_nearest(key, names);
    return fail(c, e, "unknown key '%s'%s%s%s", e->key,
                near ? "; did you mean '" : "", near ? near : "",
                near ? "' (with _ for -)?" : "");
}

/* One flag's value for the command at hand. */
static qn_status preset(qn_cli *cli, int command, qn_flag flag,
                        const qn_toml_entry *e)
{
    const char *text = NULL;
    if (e->type == QN_TOML_STRING && names_file(flag, e->text)) {
        text = relative(cli->config, e->text);
        if (!text)
            return QN_E_NOMEM;
    }
    return qn_args_preset_value(&cli->args, command, flag, e, text);
}

/* Flags of different commands may share a name, and a value at the top need
 * only be one for one of them. */
static qn_status preset_any(qn_cli *cli, int command, const qn_toml_entry *e)
{
    qn_status status = QN_E_ARG;
    int own = qn_args_find(command, e->key);
    if (own >= 0)
        status = preset(cli, command, (qn_flag)own, e);
    qn_error first;
    qn_error_save(&first);
    for (int i = 0; status == QN_E_ARG && i < QN_FLAG_COUNT; i++) {
        int bits = qn_args_info((qn_flag)i).commands & ~command;
        if (i != own && bits && qn_args_find(bits, e->key) == i)
            status = preset(cli, 0, (qn_flag)i, e);
    }
    if (status && own >= 0)
        qn_error_restore(&first);
    return status;
}

static qn_status apply_top(qn_cli *cli, int command, const qn_toml_entry *e)
{
    const qn_config *c = cli->config;
    int flag = qn_args_find(QN_CMD_ALL, e->key);
    if (is_reserved(e))
        return QN_OK;
    if (flag < 0 || is_refused((qn_flag)flag))
        return unknown_key(c, e, QN_CMD_ALL);
    qn_status status = preset_any(cli, command, e);
    return status ? fail_at(c, e, status) : QN_OK;
}

static qn_status apply_table(qn_cli *cli, int command, const qn_toml_entry *e)
{
    const qn_config *c = cli->config;
    int table = e->depth == 1 ? qn_cli_command_bit(e->path[0]) : 0;
    if (!table) {
        const char *near = qn_cli_nearest_command(e->path[0]);
        return fail(c, e, "unknown table '%s'%s%s%s", e->path[0],
                    near ? "; did you mean '" : "", near ? near : "",
                    near ? "'?" : "");
    }
    if (is_reserved(e))
        return QN_OK;
    int flag = qn_args_find(table, e->key);
    if (flag < 0 || is_refused((qn_flag)flag))
        return unknown_key(c, e, table);
    qn_status status =
        preset(cli, table == command ? command : 0, (qn_flag)flag, e);
    return status ? fail_at(c, e, status) : QN_OK;
}

/* Tables first: they win over what stands at the top. */
static qn_status apply(qn_cli *cli, int command)
{
    const qn_config *c = cli->config;
    const qn_toml_entry *e;
    qn_status status = QN_OK;
    for (size_t i = 0; !status && (e = qn_toml_at(c->toml, i)); i++)
        if (is_model(e))
            status = check_model(c, e);
        else if (e->depth)
            status = apply_table(cli, command, e);
    for (size_t i = 0; !status && (e = qn_toml_at(c->toml, i)); i++)
        if (!e->depth)
            status = apply_top(cli, command, e);
    qn_args_drop_idle(&cli->args);
    return status;
}

/* A secret that others can read is none. */
static qn_status check_secrets(const qn_config *c)
{
    struct stat info;
    const qn_toml_entry *e;
    if (stat(c->path, &info) || !(info.st_mode & 077))
        return QN_OK;
    for (size_t i = 0; (e = qn_toml_at(c->toml, i)); i++)
        if (!strcmp(e->key, "api_key"))
            return fail(c, e,
                        "the file holds a key and others may read it: expected "
                        "mode 600, found %03o",
                        (unsigned)(info.st_mode & 0777));
    return QN_OK;
}

/* ---- the file ---- */

/* A file that was `asked` for may be a pipe. */
static qn_status read_file(qn_config *c, bool asked)
{
    enum { LIMIT = 1 << 20 };
    char *text = NULL;
    size_t size = 0;
    qn_status status = asked ? qn_file_read_any(&text, &size, c->path, LIMIT)
                             : qn_file_read(&text, &size, c->path, LIMIT);
    if (!status)
        status = qn_toml_parse(&c->toml, (qn_str){text, size}, c->path);
    qn_free(text);
    return status;
}

/* Whatever is wrong with the file is a mistake in the settings. */
static qn_status as_usage(qn_status status)
{
    qn_error error;
    if (!status || status == QN_E_NOMEM || status == QN_E_ARG)
        return status;
    qn_error_save(&error);
    qn_fail(QN_E_ARG, "%s", error.text);
    return qn_fail_where(QN_E_ARG, "%s", error.where);
}

qn_status qn_config_load(qn_cli *cli, int command)
{
    const qn_arg *asked = &cli->args.flag[QN_FLAG_CONFIG];
    char *path = asked->given ? qn_strdup(asked->text) : usual_path();
    if (!path)
        return QN_E_NOMEM;
    if (!asked->given && !qn_path_exists(path)) {
        qn_free(path);
        return QN_OK;
    }
    qn_config *c = qn_calloc(1, sizeof *c);
    if (!c) {
        qn_free(path);
        return QN_E_NOMEM;
    }
    c->path = path;
    qn_status status = read_file(c, asked->given);
    if (!status)
        status = check_secrets(c);
    if (c->toml)
        cli->config = c;
    if (!status)
        status = apply(cli, command);
    if (!c->toml) {
        qn_free(c->path);
        qn_free(c);
    }
    return as_usage(status);
}

void qn_config_free(qn_cli *cli)
{
    qn_config *c = cli->config;
    qn_free(cli->found_model);
    cli->found_model = NULL;
    if (!c)
        return;
    qn_toml_free(c->toml);
    qn_arena_free(&c->arena);
    qn_free(c->path);
    qn_free(c);
    cli->config = NULL;
}

/* ---- what holds ---- */

typedef struct describer {
    const qn_config *config; /* may be NULL */
    qn_config_fn each;
    void *data;
} describer;

static void describe_entry(const describer *d, const qn_toml_entry *e)
{
    char name[256] = "", origin[512];
    qn_buf value = QN_BUF_INIT;
    for (int i = 0; i < e->depth; i++)
        snprintf(name + strlen(name), sizeof name - strlen(name), "%s.",
                 e->path[i]);
    snprintf(name + strlen(name), sizeof name - strlen(name), "%s", e->key);
    for (char *p = name; !is_model(e) && *p; p++)
        *p = *p == '_' ? '-' : *p;
    snprintf(origin, sizeof origin, "%s:%d", d->config->path, e->line);
    if (!strcmp(e->key, "api_key"))
        qn_buf_add_text(&value, "(set)");
    else if (e->type == QN_TOML_BOOL)
        qn_buf_add_text(&value, e->on ? "true" : "false");
    else if (e->type != QN_TOML_STRINGS)
        qn_buf_add_text(&value, e->text);
    for (size_t i = 0; e->type == QN_TOML_STRINGS && i < e->list_count; i++)
        qn_buf_printf(&value, "%s%s", i ? ", " : "", e->list[i]);
    if (!qn_buf_status(&value))
        d->each(d->data, name, qn_buf_str(&value).data, origin);
    qn_buf_free(&value);
}

/* The entry at the top for the flag; NULL when there is none. */
static const qn_toml_entry *top_entry(const qn_config *c, qn_flag flag)
{
    const qn_toml_entry *e;
    for (size_t i = 0; c && (e = qn_toml_at(c->toml, i)); i++)
        if (!e->depth && qn_args_find(QN_CMD_ALL, e->key) == (int)flag)
            return e;
    return NULL;
}

static void describe_flag(const describer *d, const qn_cli *cli, qn_flag flag)
{
    qn_flag_info info = qn_args_info(flag);
    const qn_toml_entry *e = top_entry(d->config, flag);
    char origin[64];
    const char *variable = qn_env_of(flag);
    const char *value = variable ? getenv(variable) : NULL;
    /* Only the first of a name stands at the top. */
    if (qn_args_find(QN_CMD_ALL, info.name) != (int)flag ||
        flag == QN_FLAG_HELP)
        return;
    snprintf(origin, sizeof origin, "environment %s", variable ? variable : "");
    if (flag == QN_FLAG_CONFIG && d->config)
        d->each(d->data, info.name, d->config->path,
                cli->args.flag[flag].origin == QN_FROM_FLAG ? "flag"
                : value && *value                           ? origin
                                                            : "default");
    else if (value && *value)
        d->each(d->data, info.name, value, origin);
    else if (e)
        describe_entry(d, e);
    else
        d->each(d->data, info.name, info.fallback, "default");
}

static void describe_variable(const describer *d, const char *name, bool secret)
{
    char origin[64];
    const char *value = getenv(name);
    snprintf(origin, sizeof origin, "environment %s", name);
    if (value && *value)
        d->each(d->data, name, secret ? "(set)" : value, origin);
}

qn_status qn_config_describe(const qn_cli *cli, qn_config_fn each, void *data)
{
    static const char *const variables[] = {
        "QUERN_CACHE",   "HF_HUB_CACHE",         "HF_HOME",
        "HF_ENDPOINT",   "HF_HUB_OFFLINE",       "HTTPS_PROXY",
        "NO_PROXY",      "SSL_CERT_FILE",        "QUERN_LOG",
        "QUERN_LIBMLXC", "QUERN_STRICT_DEVICES", "QUERN_ISA"};
    describer d = {.config = cli->config, .each = each, .data = data};
    const qn_toml_entry *e;
    for (int i = 0; i < QN_FLAG_COUNT; i++)
        describe_flag(&d, cli, (qn_flag)i);
    for (size_t i = 0; d.config && (e = qn_toml_at(d.config->toml, i)); i++)
        if (e->depth || is_reserved(e))
            describe_entry(&d, e);
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++)
        describe_variable(&d, variables[i], false);
    describe_variable(&d, "HF_TOKEN", true);
    describe_variable(&d, "QUERN_API_KEY", true);
    return QN_OK;
}
