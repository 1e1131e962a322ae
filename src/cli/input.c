/* input.c: text that a command reads from files and standard input. */
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
    qn_status status = qn_file_read(&text, &size, path, INPUT_LIMIT);
    if (!status)
        qn_buf_add(out, text, size);
    qn_free(text);
    return status;
}
