/* out.c: errors and results as every command prints them.
 *
 * Standard output is written without stdio, so that nothing is left to be
 * written at exit and a signal ends a write that nobody takes. */
#include "cli.h"

#include "base/utf8.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- text that others chose ---- */

/* How control characters, which a terminal would obey, are spelled. */
typedef enum style {
    ONE_LINE, /* as \xNN */
    LINES,    /* the same; newlines and tabs pass */
    JSON      /* as \u00NN; newlines pass */
} style;

/* Appends `text`; bytes that are no UTF-8 are spelled as \xNN. */
static void add_escaped(qn_buf *out, const char *text, size_t size, style how)
{
    const char *end = text + size;
    for (const char *p = text; p < end;) {
        uint32_t code;
        int length = qn_utf8_decode(p, end, &code);
        bool plain = length && code >= 0x20 && !(code >= 0x7f && code < 0xa0);
        bool space = *p == '\n' || (*p == '\t' && how == LINES);
        if (plain || (space && how != ONE_LINE)) {
            qn_buf_add(out, p, (size_t)length);
            p += length;
        } else if (length && how == JSON) {
            qn_buf_printf(out, "\\u%04x", (unsigned)code);
            p += length;
        } else {
            for (const char *next = p + (length ? length : 1); p < next; p++)
                qn_buf_printf(out, "\\x%02x", (unsigned char)*p);
        }
    }
}

/* ---- standard output ---- */

static int failure; /* errno of the write that failed */
static bool begun;

void qn_out_open(void)
{
    /* A file that is opened later must not become standard output.  Here,
     * nothing can be written to it either. */
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF)
            open("/dev/null", O_RDONLY);
}

bool qn_out(const char *data, size_t size)
{
    begun = begun || size;
    while (size && !failure) {
        ssize_t n = write(STDOUT_FILENO, data, size);
        if (n >= 0) {
            data += n;
            size -= (size_t)n;
        } else if (errno != EINTR || qn_cli_signalled()) {
            failure = errno;
        }
    }
    return !failure;
}

bool qn_out_begun(void)
{
    return begun;
}

int qn_out_result(const char *command)
{
    if (!failure)
        return QN_EXIT_OK;
    if (failure != EPIPE && failure != EBADF && failure != EINTR)
        qn_err_line((const char *const[]){
            "quern: ", command, ": standard output: ", strerror(failure),
            NULL});
    return QN_EXIT_FAILURE;
}

bool qn_out_is_terminal(void)
{
    static int known = -1;
    if (known < 0)
        known = isatty(STDOUT_FILENO);
    return known;
}

static bool put(const char *text, size_t size, style how)
{
    if (!qn_out_is_terminal())
        return qn_out(text, size);
    qn_buf shown = QN_BUF_INIT;
    add_escaped(&shown, text, size, how);
    bool good = !qn_buf_status(&shown) && qn_out(shown.data, shown.size);
    qn_buf_free(&shown);
    return good;
}

bool qn_out_text(const char *text, size_t size)
{
    return put(text, size, LINES);
}

/* Writes a finished buffer and frees it. */
static int put_buffer(const qn_cli *cli, qn_buf *text, style how)
{
    qn_status status = qn_buf_status(text);
    int code = QN_EXIT_OK;
    if (status)
        code = qn_cli_fail_status(cli, status, NULL);
    else if (!put(qn_buf_str(text).data, text->size, how))
        code = QN_EXIT_FAILURE;
    qn_buf_free(text);
    return code;
}

int qn_out_buffer(const qn_cli *cli, qn_buf *text)
{
    return put_buffer(cli, text, LINES);
}

int qn_out_json(const qn_cli *cli, qn_buf *line)
{
    qn_buf_add_char(line, '\n');
    return put_buffer(cli, line, JSON);
}

/* ---- standard error ---- */

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
    case QUERN_E_SPACE:
        return QN_EXIT_NO_MEMORY;
    case QUERN_E_NETWORK:
        return QN_EXIT_NETWORK;
    case QUERN_E_INTEGRITY:
        return QN_EXIT_INTEGRITY;
    case QUERN_E_DENIED:
        return QN_EXIT_DENIED;
    case QUERN_E_ARG:
        return QN_EXIT_USAGE;
    case QUERN_E_CANCELLED:
        return qn_cli_signalled() ? qn_cli_signalled() : QN_EXIT_FAILURE;
    default:
        return QN_EXIT_FAILURE;
    }
}

void qn_err_line(const char *const *parts)
{
    qn_buf line = QN_BUF_INIT;
    for (const char *const *p = parts; *p; p++)
        add_escaped(&line, *p, strlen(*p), ONE_LINE);
    qn_buf_add_char(&line, '\n');
    if (!qn_buf_status(&line))
        fwrite(line.data, 1, line.size, stderr);
    else
        fputs("quern: out of memory\n", stderr);
    qn_buf_free(&line);
}

static bool wants_colour(void)
{
    const char *term = getenv("TERM"), *none = getenv("NO_COLOR");
    return isatty(STDERR_FILENO) && !(none && *none) && term &&
           strcmp(term, "dumb") != 0;
}

bool qn_err_thought(const char *text, size_t size)
{
    qn_buf shown = QN_BUF_INIT;
    bool dim = size && wants_colour();
    if (dim)
        qn_buf_add_text(&shown, "\033[2m");
    add_escaped(&shown, text, size, LINES);
    if (dim)
        qn_buf_add_text(&shown, "\033[22m");
    if (!qn_buf_status(&shown))
        fwrite(qn_buf_str(&shown).data, 1, shown.size, stderr);
    qn_buf_free(&shown);
    return size && text[size - 1] != '\n';
}

/* `where` is a place, or the name that a request gives to a flag's value. */
static const char *flag_name(const char *where, char out[64])
{
    snprintf(out, 64, "--%s", where);
    for (char *p = out + 2; *p; p++)
        if (*p == '_')
            *p = '-';
    return qn_args_has(out + 2) ? out : where;
}

/* "ctx: ..." about the place "ctx", "file: ctx" or "file: $.ctx" says the name
 * once. */
static const char *without_name(const char *message, const char *where)
{
    size_t length = strcspn(message, ":"), size = strlen(where);
    if (!length || !message[length] || size < length ||
        memcmp(where + size - length, message, length) != 0)
        return message;
    const char *before = where + size - length;
    bool whole = before == where || before[-1] == ' ' ||
                 (before[-1] == '.' && strstr(where, "$."));
    if (!whole)
        return message;
    return message + length + 1 + (message[length + 1] == ' ');
}

static void print_error_json(quern_status status, const char *where,
                             const char *message, const char *hint)
{
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
        put(line.data, line.size, JSON);
    qn_buf_free(&line);
}

int qn_cli_fail(const qn_cli *cli, quern_status status, const char *where,
                const char *message, const char *hint)
{
    char name[64];
    message = without_name(message, where);
    if (status == QUERN_E_ARG)
        where = flag_name(where, name);
    if (!*message)
        message = quern_status_name(status);
    qn_err_line((const char *const[]){"quern: ", cli->command,
                                      *cli->command ? ": " : "", where,
                                      *where ? ": " : "", message, NULL});
    if (hint)
        qn_err_line((const char *const[]){"hint: ", hint, NULL});
    if (cli->json)
        print_error_json(status, where, message, hint);
    return exit_code(status);
}

int qn_cli_fail_error(const qn_cli *cli, const quern_error *error)
{
    return qn_cli_fail(cli, error->status, error->where, error->message, NULL);
}

int qn_cli_fail_status(const qn_cli *cli, qn_status status, const char *hint)
{
    qn_error error;
    qn_error_save(&error);
    /* The two lists of classes are in the same order. */
    return qn_cli_fail(cli, (quern_status)status, error.where, error.text,
                       hint);
}

void qn_cli_log(const qn_cli *cli, quern_log_level level, const char *text)
{
    if (level <= cli->log_level)
        qn_err_line((const char *const[]){
            "quern: ", cli->command, ": ",
            level == QUERN_LOG_WARN ? "warning: " : "", text, NULL});
}
