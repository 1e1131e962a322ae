/* edit.c: see edit.h.
 *
 * libedit gets its characters from here, which makes three things possible: a
 * signal ends a line, a paste (which the terminal marks, ESC [ 200 ~ ... ESC [
 * 201 ~) does not send a line at each of its line ends, and nothing depends on
 * the locale for UTF-8.  While a paste is edited its line ends are shown as
 * U+240A and its tabs as U+2409. */
#include "edit.h"

#include "base/alloc.h"
#include "base/utf8.h"
#include "cli.h"

#include <dlfcn.h>
#include <errno.h>
#include <histedit.h>
#include <locale.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <wchar.h>

enum { LINE_LIMIT = 16 << 20, HISTORY = 1000, NEWLINE = 0x240a, TAB = 0x2409 };

#define FUNCTIONS(X)                                                           \
    X(el_init)                                                                 \
    X(el_end)                                                                  \
    X(el_set)                                                                  \
    X(el_wgets)                                                                \
    X(history_init)                                                            \
    X(history_end)                                                             \
    X(history)

/* The functions of libedit that are used. */
typedef struct library {
    void *handle;
#define X(name) __typeof__(name) *name;
    FUNCTIONS(X)
#undef X
} library;

struct qn_edit {
    bool terminal;
    library lib;
    EditLine *line; /* NULL: no editing */
    History *history;
    HistEvent event;
    const char *prompt;
    /* Bytes that were read and not yet used. */
    char bytes[4096];
    size_t at, size;
    bool ended, pasting;
};

/* ---- characters ---- */

/* Reads further bytes; false at the end, at an error, or when a signal came. */
static bool fill(qn_edit *e)
{
    if (e->at) {
        memmove(e->bytes, e->bytes + e->at, e->size - e->at);
        e->size -= e->at;
        e->at = 0;
    }
    for (;;) {
        if (qn_cli_interrupted())
            return false;
        ssize_t n =
            read(STDIN_FILENO, e->bytes + e->size, sizeof e->bytes - e->size);
        if (n > 0) {
            e->size += (size_t)n;
            return true;
        }
        if (n < 0 && errno == EINTR)
            continue;
        e->ended = true;
        return false;
    }
}

static size_t left(const qn_edit *e)
{
    return e->size - e->at;
}

/* Whether more comes at once, as the rest of a key's sequence does. */
static bool comes_soon(void)
{
    struct pollfd p = {.fd = STDIN_FILENO, .events = POLLIN};
    return poll(&p, 1, 30) > 0;
}

/* Takes a mark of a paste, if it stands here. */
static bool take_mark(qn_edit *e, const char *mark)
{
    size_t size = strlen(mark);
    while (left(e) < size && !memcmp(e->bytes + e->at, mark, left(e)) &&
           comes_soon() && fill(e))
        ;
    if (left(e) < size || memcmp(e->bytes + e->at, mark, size) != 0)
        return false;
    e->at += size;
    return true;
}

/* What stands for a character of a paste; 0: it is left out. */
static uint32_t pasted(uint32_t c)
{
    if (c == '\r' || c == '\n')
        return NEWLINE;
    if (c == '\t')
        return TAB;
    return c < 0x20 || c == 0x7f ? 0 : c;
}

/* One character; false: none comes. */
static bool read_character(qn_edit *e, uint32_t *c)
{
    if (!left(e) && !fill(e))
        return false;
    int size;
    /* The rest of a character follows it. */
    while (!(size = qn_utf8_decode(e->bytes + e->at, e->bytes + e->size, c)) &&
           left(e) < 4 && (unsigned char)e->bytes[e->at] >= 0xc0 &&
           comes_soon())
        if (!fill(e))
            break;
    if (!size) {
        *c = 0xfffd;
        size = 1;
    }
    e->at += (size_t)size;
    return true;
}

static bool read_key(qn_edit *e, uint32_t *c)
{
    for (;;) {
        if (!left(e) && !fill(e))
            return false;
        bool mark = e->bytes[e->at] == '\033' &&
                    take_mark(e, e->pasting ? "\033[201~" : "\033[200~");
        if (mark) {
            e->pasting = !e->pasting;
            continue;
        }
        if (!read_character(e, c))
            return false;
        if (!e->pasting)
            return true;
        /* CR LF is one line end. */
        if (*c == '\r' && left(e) && e->bytes[e->at] == '\n')
            e->at++;
        *c = pasted(*c);
        if (*c)
            return true;
    }
}

/* ---- libedit ---- */

static bool load(library *lib)
{
    static const char *const names[] = {"libedit.so.2", "libedit.so.0",
                                        "libedit.3.dylib", "libedit.dylib"};
    for (size_t i = 0; i < sizeof names / sizeof *names && !lib->handle; i++)
        lib->handle = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    if (!lib->handle)
        return false;
    bool good = true;
#define X(name)                                                                \
    *(void **)&lib->name = dlsym(lib->handle, #name);                          \
    good = good && lib->name;
    FUNCTIONS(X)
#undef X
    return good;
}

/* Whose line it is: there is one terminal, so there is one. */
static qn_edit *the_edit;

static int next_character(EditLine *line, wchar_t *out)
{
    uint32_t c;
    (void)line;
    if (!read_key(the_edit, &c))
        return the_edit->ended ? 0 : -1;
    *out = (wchar_t)c;
    return 1;
}

static char *show_prompt(EditLine *line)
{
    (void)line;
    return (char *)(uintptr_t)the_edit->prompt;
}

static void start_editing(qn_edit *e)
{
    if (!load(&e->lib))
        return;
    /* Wide characters are converted by the locale; any with UTF-8 will do. */
    const char *locale = setlocale(LC_CTYPE, "");
    if (!locale || !strstr(locale, "UTF-8"))
        setlocale(LC_CTYPE, "C.UTF-8");
    e->line = e->lib.el_init("quern", stdin, stdout, stderr);
    e->history = e->lib.history_init();
    if (!e->line || !e->history)
        return;
    the_edit = e;
    e->lib.history(e->history, &e->event, H_SETSIZE, HISTORY);
    e->lib.el_set(e->line, EL_EDITOR, "emacs");
    e->lib.el_set(e->line, EL_SIGNAL, 0);
    e->lib.el_set(e->line, EL_HIST, e->lib.history, e->history);
    e->lib.el_set(e->line, EL_PROMPT, show_prompt);
    e->lib.el_set(e->line, EL_GETCFN, next_character);
    e->lib.el_set(e->line, EL_BIND, "^R", "em-inc-search-prev", NULL);
}

qn_status qn_edit_new(qn_edit **out)
{
    qn_edit *e = qn_calloc(1, sizeof *e);
    if (!e)
        return QN_E_NOMEM;
    e->terminal = isatty(STDIN_FILENO);
    if (e->terminal && isatty(STDOUT_FILENO))
        start_editing(e);
    *out = e;
    return QN_OK;
}

void qn_edit_free(qn_edit *e)
{
    if (!e)
        return;
    if (e->history)
        e->lib.history_end(e->history);
    if (e->line)
        e->lib.el_end(e->line);
    /* The library stays loaded: it keeps things of its own. */
    if (the_edit == e)
        the_edit = NULL;
    qn_free(e);
}

bool qn_edit_is_terminal(const qn_edit *e)
{
    return e->terminal;
}

void qn_edit_remember(qn_edit *e, const char *line)
{
    if (e->history && *line)
        e->lib.history(e->history, &e->event, H_ENTER, line);
}

/* ---- lines ---- */

static void mark_pastes(const qn_edit *e, bool on)
{
    (void)e;
    fputs(on ? "\033[?2004h" : "\033[?2004l", stdout);
    fflush(stdout);
}

/* A line that cannot be read: why. */
static qn_line why_none(const qn_edit *e)
{
    return e->ended ? QN_LINE_END : QN_LINE_INTERRUPTED;
}

static qn_line read_edited(qn_edit *e, qn_buf *out)
{
    int count = 0;
    mark_pastes(e, true);
    const wchar_t *line = e->lib.el_wgets(e->line, &count);
    mark_pastes(e, false);
    if (!line || count <= 0) {
        if (!e->ended && !qn_cli_interrupted())
            e->ended = true; /* Ctrl-D on an empty line */
        fputs("\n", stdout);
        fflush(stdout);
        return why_none(e);
    }
    for (int i = 0; i < count; i++) {
        uint32_t c = (uint32_t)line[i];
        if (i == count - 1 && c == '\n')
            break;
        qn_buf_add_code(out, c == NEWLINE ? '\n' : c == TAB ? '\t' : c);
    }
    return qn_buf_status(out) ? QN_LINE_FAILED : QN_LINE_TEXT;
}

static qn_line read_plain(qn_edit *e, qn_buf *out)
{
    for (;;) {
        if (!left(e) && !fill(e))
            return out->size && e->ended ? QN_LINE_TEXT : why_none(e);
        const char *from = e->bytes + e->at;
        const char *end = memchr(from, '\n', left(e));
        size_t size = end ? (size_t)(end - from) : left(e);
        if (out->size + size > LINE_LIMIT) {
            qn_fail(QN_E_ARG, "standard input: a line of more than %d MiB",
                    LINE_LIMIT >> 20);
            return QN_LINE_FAILED;
        }
        qn_buf_add(out, from, size);
        e->at += size + (end != NULL);
        if (qn_buf_status(out))
            return QN_LINE_FAILED;
        if (end)
            return QN_LINE_TEXT;
    }
}

qn_line qn_edit_read(qn_edit *e, const char *prompt, qn_buf *out)
{
    qn_buf_clear(out);
    e->prompt = prompt;
    if (e->line)
        return read_edited(e, out);
    if (e->terminal) {
        fputs(prompt, stderr);
        fflush(stderr);
    }
    qn_line kind = read_plain(e, out);
    if (out->size && out->data[out->size - 1] == '\r')
        qn_buf_truncate(out, out->size - 1);
    return kind;
}
