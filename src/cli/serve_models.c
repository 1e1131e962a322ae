/* serve_models.c: see serve_models.h. */
#include "serve_models.h"

#include "base/alloc.h"
#include "base/digest.h"
#include "base/file.h"
#include "base/units.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LEAST_CTX = 2048 };

static const qn_arg *flag_of(const qn_served *s, qn_flag flag)
{
    return &s->cli->args.flag[flag];
}

static int64_t whole(const qn_served *s, qn_flag flag, int64_t fallback)
{
    const qn_arg *arg = flag_of(s, flag);
    return arg->given ? arg->whole : fallback;
}

/* ---- opening ---- */

/* One model that is opened. */
typedef struct opening {
    const qn_served *served;
    const qn_served_model *model;
    const qn_model_plan *plan; /* NULL: headers only */
    bool drafts;
} opening;

static void adapt(void *data, quern_options *options)
{
    opening *o = data;
    const qn_served *s = o->served;
    int64_t rows = whole(s, QN_FLAG_SPEC_MAX_ROWS, 4);
    options->log_data = s->cli;
    options->parallel = o->plan ? o->plan->parallel : s->parallel;
    options->prefix_cache = s->prefix_cache;
    options->prefix_disk = o->model->disk;
    options->prefix_disk_limit =
        (uint64_t)whole(s, QN_FLAG_PREFIX_DISK_LIMIT, (int64_t)20 << 30) /
        s->count;
    options->prefill_chunk = (int)whole(s, QN_FLAG_PREFILL_CHUNK, 512);
    options->kv_budget = s->kv_asked;
    options->max_step_ms = (int)whole(s, QN_FLAG_MAX_STEP_MS, 250);
    options->spec_max_rows = (int)rows;
    if (!rows) {
        options->draft = NULL;
        options->ngram = false;
    }
    o->drafts = options->draft || options->ngram;
    if (o->plan)
        options->ctx = o->plan->ctx;
}

static quern_status open_as(opening *o, quern_model **out, quern_error *error)
{
    /* Several threads may do this at a time. */
    qn_cli own = *o->served->cli;
    own.headers_only = !o->plan;
    own.adapt = adapt;
    own.adapt_data = o;
    return qn_cli_open(&own, o->model->ref, out, error);
}

/* Clients are not told where files lie. */
static void hide_path(quern_error *error, const qn_served_model *m)
{
    char text[QUERN_ERROR_SIZE];
    size_t size = strlen(m->ref);
    char *at = strchr(m->ref, '/') ? strstr(error->message, m->ref) : NULL;
    if (!at)
        return;
    snprintf(text, sizeof text, "%.*s%s%s", (int)(at - error->message),
             error->message, m->id, at + size);
    memcpy(error->message, text, sizeof text);
}

static quern_status open_headers(void *data, size_t model, quern_model **out,
                                 quern_error *error)
{
    qn_served *s = data;
    opening o = {.served = s, .model = &s->items[model]};
    quern_status status = open_as(&o, out, error);
    if (status && s->started)
        hide_path(error, o.model);
    if (status != QUERN_E_NOTFOUND || *error->where || s->started ||
        !flag_of(s, QN_FLAG_PULL)->on)
        return status;
    s->code =
        qn_cli_pull(s->cli, qn_config_find_model(s->cli, o.model->ref).ref);
    return s->code ? status : open_as(&o, out, error);
}

static quern_status load(void *data, size_t model, const qn_model_plan *plan,
                         quern_model **out, quern_error *error)
{
    qn_served *s = data;
    opening o = {.served = s, .model = &s->items[model], .plan = plan};
    quern_status status = open_as(&o, out, error);
    if (status && s->started)
        hide_path(error, o.model);
    if (!status && !s->many)
        qn_cli_note_model(qn_config_find_model(s->cli, o.model->ref).ref);
    return status;
}

/* ---- admission ---- */

/* What decides on one plan. */
typedef struct admission {
    const qn_served *served;
    const quern_model *model;
    quern_fit fit;
    quern_error *error;
} admission;

static bool predict(admission *a, int64_t ctx, int parallel)
{
    const quern_fit_options options = {.ctx = ctx,
                                       .parallel = parallel,
                                       .kv_budget = a->served->kv_asked,
                                       .machine = &a->served->machine};
    return !quern_model_fit(&a->fit, a->model, &options, a->error);
}

/* A shorter context, then fewer rows, until it fits or there is nothing left
 * to lower. */
static bool lower(admission *a)
{
    int parallel = a->served->parallel;
    for (;;) {
        int64_t most = a->fit.max_context;
        if (a->fit.fits)
            return true;
        if (most < a->fit.context) {
            int64_t ctx = most < LEAST_CTX ? LEAST_CTX : most;
            if (ctx < a->fit.context && !predict(a, ctx, parallel))
                return false;
            if (a->fit.fits)
                return true;
        }
        if (parallel == 1)
            return true;
        if (!predict(a, a->fit.context, --parallel))
            return false;
    }
}

static void say_lowered(const qn_served *s, size_t model, const quern_fit *fit)
{
    char text[QN_SERVED_ID + 96];
    snprintf(text, sizeof text, "%s%sto fit: --ctx %lld --parallel %d",
             s->many ? s->items[model].id : "", s->many ? ": " : "",
             (long long)fit->context, fit->parallel);
    qn_cli_log(s->cli, QUERN_LOG_WARN, text);
}

static void add_part(qn_buf *out, const char *name, uint64_t bytes)
{
    char text[QN_SIZE_TEXT];
    if (bytes)
        qn_buf_printf(out, ", %s %s", name, qn_size_text(text, bytes));
}

static quern_status refuse(const quern_fit *f, quern_error *error)
{
    char a[QN_SIZE_TEXT], b[QN_SIZE_TEXT];
    qn_buf message = QN_BUF_INIT;
    qn_buf_printf(&message,
                  "the model needs %s with ctx %lld and parallel %d, and %s "
                  "can be used: weights %s",
                  qn_size_text(a, f->required), (long long)f->context,
                  f->parallel, qn_size_text(b, f->usable),
                  qn_size_text((char[QN_SIZE_TEXT]){0}, f->weights));
    add_part(&message, "kv", f->kv);
    add_part(&message, "state", f->state);
    add_part(&message, "workspace", f->workspace);
    add_part(&message, "prefix cache", f->prefix);
    add_part(&message, "draft", f->draft);
    add_part(&message, "program", f->base);
    *error = (quern_error){.status = QUERN_E_NOMEM};
    snprintf(error->message, sizeof error->message, "%s",
             message.data ? message.data : "out of memory");
    qn_buf_free(&message);
    return error->status;
}

static quern_status refuse_kv(uint64_t asked, uint64_t usable,
                              quern_error *error)
{
    char a[QN_SIZE_TEXT], b[QN_SIZE_TEXT];
    *error = (quern_error){.status = QUERN_E_NOMEM};
    snprintf(error->where, sizeof error->where, "--kv-budget");
    snprintf(error->message, sizeof error->message,
             "expected at most the %s that can be used, found %s",
             qn_size_text(a, usable), qn_size_text(b, asked));
    return error->status;
}

/* The usual length of answers is cut to what a context leaves; one that was
 * asked for is not.  Contexts of several models differ. */
static quern_status check_answers(const qn_served *s, int64_t ctx,
                                  quern_error *error)
{
    const qn_arg *most = flag_of(s, QN_FLAG_DEFAULT_MAX_TOKENS);
    if (s->many || most->origin != QN_FROM_FLAG || most->whole <= ctx)
        return QUERN_OK;
    *error = (quern_error){.status = QUERN_E_ARG};
    snprintf(error->where, sizeof error->where, "--default-max-tokens");
    snprintf(error->message, sizeof error->message,
             "expected at most the context, %lld, found %lld", (long long)ctx,
             (long long)most->whole);
    return error->status;
}

/* A context that is asked for at run time is had or refused. */
static bool settle_context(admission *a, int64_t ctx, bool *lowered)
{
    const qn_served *s = a->served;
    if (!predict(a, ctx, s->parallel))
        return false;
    if (ctx || a->fit.fits || flag_of(s, QN_FLAG_FORCE)->on)
        return true;
    /* A context that nobody asked for is as long as memory lets it be. */
    if (!flag_of(s, QN_FLAG_CTX)->given && a->fit.max_context >= LEAST_CTX)
        return predict(a, a->fit.max_context, s->parallel);
    if (!flag_of(s, QN_FLAG_AUTO_FIT)->on)
        return true;
    if (!lower(a))
        return false;
    *lowered = a->fit.fits;
    return true;
}

static bool has_drafts(const qn_served *s, size_t model)
{
    const char *ref = s->items[model].ref;
    return whole(s, QN_FLAG_SPEC_MAX_ROWS, 4) &&
           (flag_of(s, QN_FLAG_DRAFT)->given || flag_of(s, QN_FLAG_NGRAM)->on ||
            qn_config_find_model(s->cli, ref).draft);
}

/* What the rest of the model leaves, or what all rows of the context take where
 * that was not to fit, or others need room, too. */
static uint64_t choose_kv(const qn_served *s, const quern_fit *f)
{
    uint64_t rows = f->kv + f->state + f->guesses;
    uint64_t rest = f->required - rows;
    if (s->kv_asked)
        return s->kv_asked;
    return !s->many && f->usable > rest + rows ? f->usable - rest : rows;
}

/* Decides on context and rows from the model's headers. */
static quern_status plan(void *data, size_t model, const quern_model *headers,
                         int64_t ctx, qn_model_plan *out, quern_error *error)
{
    const qn_served *s = data;
    admission a = {.served = s, .model = headers, .error = error};
    bool lowered = false, force = flag_of(s, QN_FLAG_FORCE)->on;
    if (!settle_context(&a, ctx, &lowered))
        return error->status;
    *out = (qn_model_plan){.ctx = a.fit.context,
                           .parallel = a.fit.parallel,
                           .drafts = has_drafts(s, model),
                           .kv_budget = choose_kv(s, &a.fit),
                           .fit = a.fit};
    if (!a.fit.fits && !force)
        return refuse(&a.fit, error);
    if (s->kv_asked > a.fit.usable)
        return refuse_kv(s->kv_asked, a.fit.usable, error);
    if (lowered)
        say_lowered(s, model, &a.fit);
    return check_answers(s, a.fit.context, error);
}

/* Why the server does not start. */
static int fail(void *data, size_t model, const qn_model_plan *plan,
                const quern_error *error)
{
    const qn_served *s = data;
    const quern_fit *f = &plan->fit;
    const char *ref = qn_config_find_model(s->cli, s->items[model].ref).ref;
    char saved[QN_SIZE_TEXT];
    qn_buf hint = QN_BUF_INIT;
    if (s->code)
        return s->code;
    if (error->status != QUERN_E_NOMEM || *error->where || f->fits)
        return qn_cli_fail_load(s->cli, ref, error);
    for (int i = 0; i < f->remedy_count; i++)
        qn_buf_printf(&hint, "%s--%s %s (-%s)", i ? " | " : "",
                      f->remedies[i].flag, f->remedies[i].value,
                      qn_size_text(saved, f->remedies[i].saves));
    if (!f->remedy_count)
        qn_buf_add_text(&hint, "a smaller quantization of the model");
    int code = qn_cli_fail(s->cli, error->status, ref, error->message,
                           hint.failed ? NULL : hint.data);
    qn_buf_free(&hint);
    return code;
}

int qn_served_check(qn_served *s)
{
    int code = QN_EXIT_OK;
    for (size_t i = 0; i < s->count && !code; i++) {
        quern_model *model = NULL;
        quern_error error;
        qn_model_plan made = {.ctx = 0};
        quern_status status = open_headers(s, i, &model, &error);
        if (!status)
            status = plan(s, i, model, 0, &made, &error);
        quern_model_free(model);
        model = NULL;
        if (!status)
            status = load(s, i, &made, &model, &error);
        quern_model_free(model);
        if (status)
            code = fail(s, i, &made, &error);
    }
    return code;
}

void qn_served_configure(qn_served *s, qn_server_config *config)
{
    config->models = s->models;
    config->model_count = s->count;
    config->aliases = s->aliases;
    config->alias_count = s->alias_count;
    config->many = s->many;
    config->machine = s->machine;
    config->force = flag_of(s, QN_FLAG_FORCE)->on;
    config->data = s;
    config->headers = open_headers;
    config->plan = plan;
    config->load = load;
    config->fail = fail;
}

/* ---- which there are ---- */

static uint64_t choose_prefix_cache(const qn_served *s)
{
    const qn_arg *given = flag_of(s, QN_FLAG_PREFIX_CACHE);
    const uint64_t most = (uint64_t)8 << 30;
    if (given->given)
        return (uint64_t)given->whole;
    uint64_t share = s->machine.usable / 10;
    return share < most ? share : most;
}

/* A name that clients may give a model. */
static qn_status check_id(const char *flag, const char *id)
{
    bool bad = !*id || strlen(id) >= QN_SERVED_ID || strstr(id, "/..");
    for (const char *c = id; *c && !bad; c++)
        bad = (unsigned char)*c <= ' ' || *c == 0x7f;
    return bad ? qn_fail(QN_E_ARG,
                         "%s '%s': expected a name without spaces, control "
                         "characters and /..",
                         flag, id)
               : QN_OK;
}

static qn_status add_model(qn_served *s, const char *id, const char *ref,
                           bool optional)
{
    qn_served_model *items =
        qn_reallocarray(s->items, s->count + 1, sizeof *items);
    if (!items)
        return QN_E_NOMEM;
    s->items = items;
    for (size_t i = 0; i < s->count; i++)
        if (!strcmp(items[i].id, id))
            return qn_fail(QN_E_ARG, "two models are called '%s': %s and %s",
                           id, items[i].ref, ref);
    qn_server_model *models =
        qn_reallocarray(s->models, s->count + 1, sizeof *models);
    if (!models)
        return QN_E_NOMEM;
    s->models = models;
    models[s->count] = (qn_server_model){.optional = optional};
    items[s->count] = (qn_served_model){.ref = qn_strdup(ref)};
    if (!items[s->count].ref)
        return QN_E_NOMEM;
    snprintf(items[s->count].id, sizeof items->id, "%s", id);
    s->count++;
    return QN_OK;
}

/* The one model: never called by a path, which would tell where files lie. */
static qn_status add_single(qn_served *s, const char *ref)
{
    const qn_arg *alias = flag_of(s, QN_FLAG_ALIAS);
    char id[QN_SERVED_ID];
    if (alias->list_count > 1)
        return qn_fail(QN_E_ARG, "--alias: one model has one name");
    if (alias->given) {
        qn_status status = check_id("--alias", alias->list[0]);
        return status ? status : add_model(s, alias->list[0], ref, false);
    }
    const char *name = ref;
    size_t size = strlen(name);
    if (!access(name, F_OK)) {
        while (size > 1 && name[size - 1] == '/')
            size--;
        for (size_t i = size; i-- > 0;)
            if (name[i] == '/' && i + 1 < size) {
                name += i + 1;
                size -= i + 1;
                break;
            }
    }
    snprintf(id, sizeof id, "%.*s", (int)size, name);
    return add_model(s, id, ref, false);
}

/* NAME=REF. */
static qn_status add_named(qn_served *s, const char *text)
{
    char id[QN_SERVED_ID];
    const char *equals = strchr(text, '=');
    size_t size = equals ? (size_t)(equals - text) : 0;
    if (!equals || !equals[1] || size >= sizeof id)
        return qn_fail(QN_E_ARG, "--model '%s': expected NAME=MODEL", text);
    snprintf(id, sizeof id, "%.*s", (int)size, text);
    qn_status status = check_id("--model", id);
    return status ? status : add_model(s, id, equals + 1, false);
}

/* ---- a folder of models ---- */

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n > m && !strcmp(text + n - m, end);
}

/* A GGUF file that stands for a model: no projector, no later part. */
static bool is_gguf(const char *name)
{
    const char *of = strstr(name, "-of-");
    bool later = of && of - name > 6 && of[-6] == '-' &&
                 strncmp(of - 5, "00001", 5) != 0 &&
                 strspn(of - 5, "0123456789") == 5;
    return ends_with(name, ".gguf") && *name != '.' && !later &&
           strncmp(name, "mmproj", 6) != 0;
}

static int is_listed(const struct dirent *item)
{
    return *item->d_name != '.';
}

/* The path of what a folder's entry has for a model, which the caller owns;
 * NULL: nothing, or no memory. */
static char *model_in(const char *dir, const char *name)
{
    char *path = qn_path_join(dir, name);
    if (!path || !qn_path_is_dir(path)) {
        if (path && is_gguf(name))
            return path;
        qn_free(path);
        return NULL;
    }
    char *config = qn_path_join(path, "config.json");
    bool whole = config && qn_path_exists(config);
    qn_free(config);
    if (whole)
        return path;
    struct dirent **list = NULL;
    char *file = NULL;
    int count = scandir(path, &list, is_listed, alphasort);
    for (int i = 0; i < count; i++) {
        if (!file && is_gguf(list[i]->d_name))
            file = qn_path_join(path, list[i]->d_name);
        free(list[i]);
    }
    free(list);
    qn_free(path);
    return file;
}

static qn_status add_entry(qn_served *s, const char *dir, const char *name)
{
    char id[QN_SERVED_ID];
    size_t size = strlen(name);
    char *ref = model_in(dir, name);
    if (!ref)
        return QN_OK;
    if (ends_with(name, ".gguf") && !ends_with(ref, "/config.json"))
        size -= strlen(".gguf");
    snprintf(id, sizeof id, "%.*s", (int)size, name);
    qn_status status = check_id("--models-dir", id);
    if (!status)
        status = add_model(s, id, ref, true);
    qn_free(ref);
    return status;
}

static qn_status add_folder(qn_served *s, const char *dir)
{
    struct dirent **list = NULL;
    size_t before = s->count;
    int count = scandir(dir, &list, is_listed, alphasort);
    if (count < 0)
        return qn_fail_where(qn_fail(errno == ENOENT ? QN_E_NOTFOUND : QN_E_IO,
                                     "can't be read: %s", strerror(errno)),
                             "%s", dir);
    qn_status status = QN_OK;
    for (int i = 0; i < count; i++) {
        if (!status)
            status = add_entry(s, dir, list[i]->d_name);
        free(list[i]);
    }
    free(list);
    if (!status && s->count == before)
        return qn_fail(QN_E_ARG, "--models-dir %s: there is no model in it",
                       dir);
    return status;
}

/* ---- names and folders besides ---- */

/* NAME=ID. */
static qn_status add_alias(qn_served *s, const char *text)
{
    char name[QN_SERVED_ID];
    const char *equals = strchr(text, '=');
    size_t size = equals ? (size_t)(equals - text) : 0, i = 0;
    if (!equals || size >= sizeof name)
        return qn_fail(QN_E_ARG,
                       "--alias '%s': expected NAME=MODEL where there are "
                       "several models",
                       text);
    while (i < s->count && strcmp(s->items[i].id, equals + 1) != 0)
        i++;
    if (i == s->count)
        return qn_fail(QN_E_ARG, "--alias '%s': there is no model '%s'", text,
                       equals + 1);
    snprintf(name, sizeof name, "%.*s", (int)size, text);
    qn_status status = check_id("--alias", name);
    for (size_t k = 0; k < s->count && !status; k++)
        if (!strcmp(s->items[k].id, name))
            status =
                qn_fail(QN_E_ARG, "--alias '%s': a model has that name", text);
    for (size_t k = 0; k < s->alias_count && !status; k++)
        if (!strcmp(s->aliases[k].name, name))
            status = qn_fail(QN_E_ARG, "--alias '%s': it is given twice", text);
    if (status)
        return status;
    char *kept = qn_strdup(name);
    if (!kept)
        return QN_E_NOMEM;
    s->aliases[s->alias_count++] = (qn_server_alias){kept, i};
    return QN_OK;
}

static qn_status add_aliases(qn_served *s)
{
    const qn_arg *alias = flag_of(s, QN_FLAG_ALIAS);
    s->aliases = qn_calloc(alias->list_count + 1, sizeof *s->aliases);
    qn_status status = s->aliases ? QN_OK : QN_E_NOMEM;
    for (size_t i = 0; i < alias->list_count && !status; i++)
        status = add_alias(s, alias->list[i]);
    return status;
}

/* A folder of its own in the folder for all, since one model has a folder at a
 * time. */
static qn_status choose_disk(qn_served *s, qn_served_model *m)
{
    const qn_arg *dir = flag_of(s, QN_FLAG_PREFIX_DISK);
    char hex[QN_DIGEST_SIZE];
    qn_digest digest;
    if (!dir->given)
        return QN_OK;
    qn_digest_begin(&digest, QN_SHA256);
    qn_digest_add(&digest, m->id, strlen(m->id));
    qn_digest_end(&digest, hex);
    hex[16] = '\0';
    m->disk = s->many ? qn_path_join(dir->text, hex) : qn_strdup(dir->text);
    return m->disk ? QN_OK : QN_E_NOMEM;
}

/* The folder for all is as private as those in it will be. */
static qn_status check_disk(const qn_served *s)
{
    const qn_arg *dir = flag_of(s, QN_FLAG_PREFIX_DISK);
    struct stat info;
    if (!dir->given || !s->many || !s->prefix_cache)
        return QN_OK;
    qn_status status = QN_OK;
    if ((mkdir(dir->text, S_IRWXU) && errno != EEXIST) ||
        stat(dir->text, &info) || !S_ISDIR(info.st_mode))
        status = qn_fail(QN_E_ARG, "can't be used: %s", strerror(errno));
    else if (info.st_uid != geteuid())
        status = qn_fail(QN_E_ARG, "belongs to another user");
    else if ((info.st_mode & 0777) != S_IRWXU)
        status = qn_fail(QN_E_ARG,
                         "what prompts say is for its owner alone: expected "
                         "the mode 0700, found %04o",
                         (unsigned)info.st_mode & 0777);
    return status ? qn_fail_where(status, "%s", dir->text) : QN_OK;
}

/* mlx-lm's way to name the one model, which has no name. */
static bool is_plain(const qn_arg *model)
{
    return model->list_count == 1 &&
           (!strchr(model->list[0], '=') || !access(model->list[0], F_OK));
}

static qn_status add_all(qn_served *s)
{
    const qn_args *args = &s->cli->args;
    const qn_arg *model = flag_of(s, QN_FLAG_SERVED);
    const qn_arg *dir = flag_of(s, QN_FLAG_MODELS_DIR);
    qn_status status = QN_OK;
    if (args->word_count &&
        (model->origin == QN_FROM_FLAG || dir->origin == QN_FROM_FLAG))
        return qn_fail(QN_E_ARG,
                       "%s: one model is given as an argument, "
                       "several by --model NAME=MODEL",
                       args->words[0]);
    if (args->word_count)
        return add_single(s, args->words[0]);
    if (is_plain(model) && !dir->given)
        return add_single(s, model->list[0]);
    s->many = true;
    for (size_t i = 0; i < model->list_count && !status; i++)
        status = add_named(s, model->list[i]);
    if (!status && dir->given)
        status = add_folder(s, dir->text);
    return status ? status : add_aliases(s);
}

qn_status qn_served_read(qn_served *s, qn_cli *cli, int parallel,
                         uint64_t kv_asked)
{
    *s = (qn_served){.cli = cli, .parallel = parallel, .kv_asked = kv_asked};
    quern_machine_get(&s->machine, false);
    s->prefix_cache = choose_prefix_cache(s);
    qn_status status = add_all(s);
    if (!status)
        status = check_disk(s);
    for (size_t i = 0; i < s->count && !status; i++) {
        s->models[i].id = s->items[i].id;
        status = choose_disk(s, &s->items[i]);
        s->models[i].disk = s->items[i].disk;
    }
    if (!status)
        qn_cli_count_threads(cli);
    return status;
}

void qn_served_clear(qn_served *s)
{
    for (size_t i = 0; i < s->count; i++) {
        qn_free(s->items[i].ref);
        qn_free(s->items[i].disk);
    }
    for (size_t i = 0; i < s->alias_count; i++)
        qn_free((void *)(uintptr_t)s->aliases[i].name);
    qn_free(s->aliases);
    qn_free(s->items);
    qn_free(s->models);
}
