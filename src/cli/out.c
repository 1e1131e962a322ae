/* out.c: errors and results as every command prints them. */
#include "cli.h"

#include "base/utf8.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int exit_code(quern_status status)
{
    switch (status) {
    case QUERN_OK:
        return QN_EXIT_OK;
    case QUERN_E_NOTFOUND:
        return QN_EXIT_NOT_FOUND;
    case QUERN_E_FORMAT:
    case QUERN_E_UNSUPPORTED:
    case QUERN_E_MISMATCH:
        return QN_EXIT_UNSUPPORTED;
    case QUERN_E_NOMEM:
        return QN_EXIT_NO_MEMORY;
    case QUERN_E_ARG:
        return QN_EXIT_USAGE;
    case QUERN_E_CANCELLED:
        return qn_cli_signalled() ? qn_cli_signalled() : QN_EXIT_FAILURE;
    default:
        return QN_EXIT_FAILURE;
    }
}

int qn_cli_fail(const qn_cli *cli, quern_status status, const char *where,
                const char *message, const char *hint)
{
    fprintf(stderr, "quern: %s: %s%s%s\n", cli->command, where,
            *where ? ": " : "", message);
    if (hint)
        fprintf(stderr, "hint: %s\n", hint);
    if (cli->json) {
        qn_buf line = QN_BUF_INIT;
        qn_json_writer w;
        qn_json_write_begin(&w, &line);
        qn_json_write_object(&w);
        qn_json_write_key(&w, "schema");
        qn_json_write_text(&w, "quern.error/1");
        qn_json_write_key(&w, "error");
        qn_json_write_object(&w);
        qn_json_write_key(&w, "code");
        qn_json_write_text(&w, quern_status_name(status));
        qn_json_write_key(&w, "message");
        qn_json_write_text(&w, message);
        qn_json_write_key(&w, "where");
        qn_json_write_text(&w, where);
        qn_json_write_key(&w, "hint");
        qn_json_write_text(&w, hint);
        qn_json_write_object_end(&w);
        qn_json_write_object_end(&w);
        qn_buf_add_char(&line, '\n');
        if (!qn_buf_status(&line))
            qn_out(line.data, line.size);
        qn_buf_free(&line);
    }
    return exit_code(status);
}

int qn_cli_fail_error(const qn_cli *cli, const quern_error *error)
{
    return qn_cli_fail(cli, error->status, error->where, error->message, NULL);
}

int qn_cli_fail_status(const qn_cli *cli, qn_status status, const char *hint)
{
    /* The two lists of classes are in the same order. */
    return qn_cli_fail(cli, (quern_status)status, qn_error_where(),
                       qn_error_text(), hint);
}

void qn_cli_warn(const qn_cli *cli, const char *text)
{
    if (!cli->quiet)
        fprintf(stderr, "quern: %s: warning: %s\n", cli->command, text);
}

bool qn_out_is_terminal(void)
{
    return isatty(STDOUT_FILENO);
}

bool qn_out(const char *data, size_t size)
{
    return fwrite(data, 1, size, stdout) == size && !fflush(stdout);
}

bool qn_out_text(const char *text, size_t size)
{
    if (!qn_out_is_terminal())
        return qn_out(text, size);
    const char *end = text + size, *plain = text;
    for (const char *p = text; p < end;) {
        uint32_t code;
        int length = qn_utf8_decode(p, end, &code);
        if (!length) {
            length = 1;
            code = 0x80; /* a stray byte is shown like a control character */
        }
        bool control = (code < 0x20 && code != '\n' && code != '\t') ||
                       (code >= 0x7f && code < 0xa0);
        if (control) {
            fwrite(plain, 1, (size_t)(p - plain), stdout);
            for (int i = 0; i < length; i++)
                printf("\\x%02x", (unsigned char)p[i]);
            plain = p + length;
        }
        p += length;
    }
    return qn_out(plain, (size_t)(end - plain));
}

int qn_out_line(const qn_cli *cli, qn_buf *line)
{
    qn_buf_add_char(line, '\n');
    qn_status status = qn_buf_status(line);
    int code = QN_EXIT_OK;
    if (status)
        code = qn_cli_fail_status(cli, status, NULL);
    else if (!qn_out(line->data, line->size))
        code = QN_EXIT_FAILURE;
    qn_buf_free(line);
    return code;
}
