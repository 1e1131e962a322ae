/* model.c: from the common model flags to a loaded model. */
#include "cli.h"

#include "base/alloc.h"
#include "base/cpu.h"
#include "base/file.h"
#include "base/utf8.h"

#include <stdio.h>
#include <string.h>

/* ChatML, the format of many fine-tuned models without a template of their
 * own. */
static const char chatml[] =
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' "
    "+ message['content'] + '<|im_end|>' + '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

static quern_dtype dtype_of(const qn_arg *arg)
{
    if (!arg->given || !strcmp(arg->text, "auto"))
        return QUERN_DTYPE_AUTO;
    if (!strcmp(arg->text, "f32"))
        return QUERN_DTYPE_F32;
    return !strcmp(arg->text, "f16") ? QUERN_DTYPE_F16 : QUERN_DTYPE_BF16;
}

static void on_log(void *data, quern_log_level level, const char *text)
{
    qn_cli_log(data, level, text);
}

static qn_status check_backend(const qn_arg *arg)
{
    const char *name = arg->given ? arg->text : "auto";
    if (!strcmp(name, "cuda"))
        return qn_fail(QN_E_UNSUPPORTED,
                       "backend cuda: this build has no CUDA kernels");
#ifdef QUERN_ENGINE_DLOPEN
    if (!strcmp(name, "cpu"))
        return qn_fail(QN_E_UNSUPPORTED,
                       "backend cpu: this build computes with libmlxc");
#else
    if (!strcmp(name, "mlx"))
        return qn_fail(QN_E_UNSUPPORTED,
                       "backend mlx: this build carries its own engine");
#endif
    return QN_OK;
}

qn_status qn_cli_check_devices(const qn_arg *flag)
{
    const qn_arg *device = &flag[QN_FLAG_DEVICE];
    const qn_arg *parallel = &flag[QN_FLAG_TENSOR_PARALLEL];
    if (device->given && device->whole > 0)
        return qn_fail(
            QN_E_UNSUPPORTED,
            "--device %lld: this build has no CUDA kernels, so there "
            "is device 0 alone",
            (long long)device->whole);
    if (parallel->given && parallel->whole > 1)
        return qn_fail(
            QN_E_UNSUPPORTED,
            "--tensor-parallel %lld: this build has no CUDA kernels, "
            "so there is one device",
            (long long)parallel->whole);
    return QN_OK;
}

void qn_cli_count_threads(qn_cli *cli)
{
    const qn_arg *arg = &cli->args.flag[QN_FLAG_THREADS];
    int allowed = qn_cpu_allowed();
    cli->threads = arg->given ? (int)arg->whole : qn_cpu_allowed_cores();
    if (cli->threads > allowed) {
        char text[96];
        snprintf(text, sizeof text,
                 "%d threads, but this process may use %d processor%s",
                 cli->threads, allowed, allowed == 1 ? "" : "s");
        qn_cli_log(cli, QUERN_LOG_WARN, text);
    }
}

/* --chat-template: a file's text (*owned, free with qn_free) or a name. */
static qn_status read_template(const qn_arg *arg, const char **text,
                               char **owned)
{
    enum { LIMIT = 4 << 20 };
    if (!arg->given)
        return QN_OK;
    if (!strcmp(arg->text, "chatml")) {
        *text = chatml;
        return QN_OK;
    }
    size_t size, bad;
    qn_status status = qn_file_read_any(owned, &size, arg->text, LIMIT);
    if (!status && !qn_utf8_valid((qn_str){*owned, size}, &bad))
        status = qn_fail(QN_E_FORMAT, "not valid UTF-8 at byte %zu", bad);
    if (!status && memchr(*owned, 0, size))
        status = qn_fail(QN_E_FORMAT, "it has a NUL byte");
    *text = *owned;
    return status ? qn_fail_where(status, "%s", arg->text) : QN_OK;
}

/* Settings of something that is not there.  A file may hold them for the day
 * when it is. */
static qn_status check_settings(const quern_options *o, const qn_arg *flag)
{
    static const char *const floats[] = {"f32", "f16", "bf16"};
    bool packed = o->kv != NULL;
    for (size_t i = 0; i < sizeof floats / sizeof *floats; i++)
        packed = packed && strcmp(o->kv, floats[i]) != 0;
    if (flag[QN_FLAG_KV_START].origin == QN_FROM_FLAG && !packed)
        return qn_fail(QN_E_ARG, "--kv-quant-start needs a packed --kv");
    if (flag[QN_FLAG_NUM_DRAFT].origin == QN_FROM_FLAG && !o->draft &&
        !o->ngram)
        return qn_fail(QN_E_ARG, "--num-draft needs --draft-model or --ngram");
    return QN_OK;
}

static void set_options(quern_options *options, const qn_cli *cli)
{
    const qn_arg *flag = cli->args.flag;
    options->dtype = dtype_of(&flag[QN_FLAG_DTYPE]);
    options->kv = flag[QN_FLAG_KV].given ? flag[QN_FLAG_KV].text : NULL;
    if (flag[QN_FLAG_KV_BITS].given)
        options->kv =
            *flag[QN_FLAG_KV_BITS].text == '4' ? "affine4" : "affine8";
    options->draft =
        flag[QN_FLAG_DRAFT].given ? flag[QN_FLAG_DRAFT].text : NULL;
    options->ngram = flag[QN_FLAG_NGRAM].on;
    if (flag[QN_FLAG_NUM_DRAFT].given)
        options->num_draft = (int)flag[QN_FLAG_NUM_DRAFT].whole;
    options->kv_quant_start =
        flag[QN_FLAG_KV_START].given ? flag[QN_FLAG_KV_START].whole : 0;
    options->max_kv_size =
        flag[QN_FLAG_MAX_KV].given ? flag[QN_FLAG_MAX_KV].whole : 0;
    options->ctx = flag[QN_FLAG_CTX].given ? flag[QN_FLAG_CTX].whole : 0;
    options->lenient_weights = flag[QN_FLAG_LENIENT].on;
    options->gguf_dequant = flag[QN_FLAG_GGUF_DEQUANT].given
                                ? flag[QN_FLAG_GGUF_DEQUANT].text
                                : NULL;
    options->compat =
        flag[QN_FLAG_COMPAT].given ? flag[QN_FLAG_COMPAT].text : NULL;
    options->force = flag[QN_FLAG_FORCE].on;
    options->trust_content = flag[QN_FLAG_TRUST].on;
    options->tool_format =
        flag[QN_FLAG_TOOL_FORMAT].given ? flag[QN_FLAG_TOOL_FORMAT].text : NULL;
    options->headers_only = cli->headers_only;
    options->log = on_log;
}

/* A model that is not there may be one that can be fetched. */
int qn_cli_fail_load(const qn_cli *cli, const char *ref,
                     const quern_error *error)
{
    qn_buf hint = QN_BUF_INIT;
    bool id = error->status == QUERN_E_NOTFOUND && !*error->where &&
              strchr(ref, '/') && !strchr("./~", *ref) &&
              strstr(error->message, ref);
    if (id)
        qn_buf_printf(&hint, "quern get %s", ref);
    else if (error->status == QUERN_E_NOTFOUND)
        qn_buf_add_text(&hint, "a model is a .gguf file, a directory with "
                               "config.json, or org/name of one in the cache");
    int code = qn_cli_fail(cli, error->status, error->where, error->message,
                           hint.size ? hint.data : NULL);
    qn_buf_free(&hint);
    return code;
}

/* What the configuration says of the model, where no flag or variable says
 * otherwise. */
static qn_status apply_model(quern_options *options, const qn_cli *cli,
                             const qn_config_model *named)
{
    const qn_arg *flag = cli->args.flag;
    if (named->adapter)
        return qn_fail(QN_E_UNSUPPORTED,
                       "adapter %s: this version loads no adapters",
                       named->adapter);
    if (named->ctx && (flag[QN_FLAG_CTX].origin == QN_FROM_DEFAULT ||
                       flag[QN_FLAG_CTX].origin == QN_FROM_FILE))
        options->ctx = named->ctx;
    if (named->draft && !options->draft)
        options->draft = named->draft;
    return QN_OK;
}

/* The thread's qn_fail sentence as an error of the runtime's. */
static quern_status give(quern_error *error, qn_status status)
{
    /* The two lists of classes are in the same order. */
    error->status = (quern_status)status;
    snprintf(error->where, sizeof error->where, "%s", qn_error_where());
    snprintf(error->message, sizeof error->message, "%s", qn_error_text());
    return error->status;
}

/* A flag for one model is for it.  What a file says, or for several models, is
 * for those that are GGUF files. */
quern_status qn_cli_open_with(const qn_cli *cli, const char *ref,
                              quern_options *options, quern_model **out,
                              quern_error *error)
{
    const qn_arg *flag = cli->args.flag;
    bool one = flag[QN_FLAG_GGUF_DEQUANT].origin == QN_FROM_FLAG &&
               !flag[QN_FLAG_SERVED].given && !flag[QN_FLAG_MODELS_DIR].given &&
               !flag[QN_FLAG_FIT_ALL].on;
    quern_status status = quern_model_load(out, ref, options, error);
    if (status != QUERN_E_UNSUPPORTED || one ||
        strcmp(error->where, "gguf_dequant") != 0)
        return status;
    options->gguf_dequant = NULL;
    return quern_model_load(out, ref, options, error);
}

quern_status qn_cli_open(qn_cli *cli, const char *given, quern_model **out,
                         quern_error *error)
{
    const qn_arg *flag = cli->args.flag;
    const qn_config_model named = qn_config_find_model(cli, given);
    char *template = NULL;
    quern_options options;
    quern_options_init(&options);
    qn_status status = check_backend(&flag[QN_FLAG_BACKEND]);
    if (!status)
        status = qn_cli_check_devices(flag);
    if (!status)
        status = read_template(&flag[QN_FLAG_CHAT_TEMPLATE],
                               &options.chat_template, &template);
    set_options(&options, cli);
    if (!status)
        status = apply_model(&options, cli, &named);
    if (!status)
        status = check_settings(&options, flag);
    if (!cli->threads && !status)
        qn_cli_count_threads(cli);
    options.threads = flag[QN_FLAG_THREADS].given ? cli->threads : 0;
    options.log_data = cli;
    if (cli->adapt)
        cli->adapt(cli->adapt_data, &options);
    quern_status loaded =
        status ? give(error, status)
               : qn_cli_open_with(cli, named.ref, &options, out, error);
    qn_free(template);
    return loaded;
}

int qn_cli_load(qn_cli *cli, const char *given, quern_model **out)
{
    const char *ref = qn_config_find_model(cli, given).ref;
    quern_error error;
    quern_status status = qn_cli_open(cli, given, out, &error);
    /* A file that is missing inside a model has a place; the model has none. */
    if (status == QUERN_E_NOTFOUND && !*error.where &&
        cli->args.flag[QN_FLAG_PULL].on) {
        int code = qn_cli_pull(cli, ref);
        if (code)
            return code;
        status = qn_cli_open(cli, given, out, &error);
    }
    if (status)
        return qn_cli_fail_load(cli, ref, &error);
    if (!cli->headers_only)
        qn_cli_note_model(ref);
    return QN_EXIT_OK;
}
