/* input.c: text that a command reads from files and standard input, and a first
 * look at files. */
#include "cli.h"

#include "base/alloc.h"
#include "base/file.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

enum { INPUT_LIMIT = 256 << 20 };

qn_status qn_cli_read_stdin(qn_buf *out)
{
    char block[65536];
    for (;;) {
        ssize_t n = read(STDIN_FILENO, block, sizeof block);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return qn_fail(QN_E_IO, "standard input: %s", strerror(errno));
        if (!n)
            return qn_buf_status(out);
        if (out->size + (size_t)n > INPUT_LIMIT)
            return qn_fail(QN_E_ARG, "standard input: more than %d MiB",
                           INPUT_LIMIT >> 20);
        qn_buf_add(out, block, (size_t)n);
    }
}

qn_status qn_cli_read_file(const char *path, qn_buf *out)
{
    char *text = NULL;
    size_t size;
    qn_status status = qn_file_read_any(&text, &size, path, INPUT_LIMIT);
    if (!status)
        qn_buf_add(out, text, size);
    qn_free(text);
    return status;
}

static qn_status check_name(qn_flag flag, const char *path)
{
    return *path ? QN_OK
                 : qn_fail(QN_E_ARG, "--%s: expected the name of a file",
                           qn_args_info(flag).name);
}

qn_status qn_cli_check_output(const qn_cli *cli, qn_flag flag)
{
    const qn_arg *arg = &cli->args.flag[flag];
    if (!arg->given)
        return QN_OK;
    qn_status status = check_name(flag, arg->text);
    return status ? status : qn_file_try(arg->text);
}

qn_status qn_cli_check_input(const qn_cli *cli, qn_flag flag)
{
    const qn_arg *arg = &cli->args.flag[flag];
    if (!arg->given)
        return QN_OK;
    qn_status status = check_name(flag, arg->text);
    return status ? status : qn_file_check(arg->text);
}
