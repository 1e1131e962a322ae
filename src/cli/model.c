/* model.c: from the common model flags to a loaded model. */
#include "cli.h"

#include "base/alloc.h"
#include "base/cpu.h"
#include "base/file.h"

#include <stdio.h>
#include <stdlib.h>
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
    const qn_cli *cli = data;
    if (level == QUERN_LOG_WARN)
        qn_cli_warn(cli, text);
    else if (level == QUERN_LOG_ERROR || cli->verbose)
        fprintf(stderr, "quern: %s: %s\n", cli->command, text);
}

/* QUERN_THREADS and QUERN_BACKEND say the same as the flags, which win. */
static qn_status read_environment(const qn_args *args, int *threads,
                                  const char **backend)
{
    const char *text = getenv("QUERN_THREADS");
    int64_t value;
    if (args->flag[QN_FLAG_THREADS].given) {
        *threads = (int)args->flag[QN_FLAG_THREADS].whole;
    } else if (text && *text) {
        if (!qn_args_count(text, &value) || value < 1 || value > 512)
            return qn_fail(QN_E_ARG, "QUERN_THREADS=%s: expected 1 to 512",
                           text);
        *threads = (int)value;
    }
    text = getenv("QUERN_BACKEND");
    if (args->flag[QN_FLAG_BACKEND].given)
        *backend = args->flag[QN_FLAG_BACKEND].text;
    else if (text && *text)
        *backend = text;
    return QN_OK;
}

static qn_status check_backend(const char *name)
{
    if (!strcmp(name, "auto") || !strcmp(name, "cpu"))
        return QN_OK;
    if (!strcmp(name, "cuda"))
        return qn_fail(QN_E_UNSUPPORTED,
                       "backend cuda: this build has no CUDA kernels");
    if (!strcmp(name, "mlx"))
        return qn_fail(QN_E_UNSUPPORTED,
                       "backend mlx: this build carries its own engine");
    return qn_fail(QN_E_ARG, "backend %s: expected auto, cpu, cuda or mlx",
                   name);
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
    size_t size;
    qn_status status = qn_file_read(owned, &size, arg->text, LIMIT);
    *text = *owned;
    return status;
}

int qn_cli_load(qn_cli *cli, quern_model **out)
{
    const qn_arg *flag = cli->args.flag;
    const char *backend = "auto";
    char *path = NULL, *template = NULL;
    quern_options options;
    quern_options_init(&options);
    qn_status status = read_environment(&cli->args, &options.threads, &backend);
    if (!status)
        status = check_backend(backend);
    if (!status)
        status = read_template(&flag[QN_FLAG_CHAT_TEMPLATE],
                               &options.chat_template, &template);
    if (!status)
        status = qn_ref_resolve(&path, cli->args.words[0]);
    int code;
    if (status) {
        code = qn_cli_fail_status(
            cli, status,
            status == QN_E_NOTFOUND
                ? "a model is a .gguf file or a directory with config.json"
                : NULL);
        goto done;
    }
    options.dtype = dtype_of(&flag[QN_FLAG_DTYPE]);
    options.kv = dtype_of(&flag[QN_FLAG_KV]);
    options.ctx = flag[QN_FLAG_CTX].given ? flag[QN_FLAG_CTX].whole : 0;
    options.lenient_weights = flag[QN_FLAG_LENIENT].on;
    options.trust_content = flag[QN_FLAG_TRUST].on;
    options.headers_only = cli->headers_only;
    options.log = on_log;
    options.log_data = cli;
    cli->threads = options.threads ? options.threads : qn_cpu_allowed_cores();
    quern_error error;
    code = QN_EXIT_OK;
    if (quern_model_load(out, path, &options, &error))
        code = qn_cli_fail_error(cli, &error);
done:
    qn_free(path);
    qn_free(template);
    return code;
}
