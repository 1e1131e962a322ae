/* chat.c: `quern chat`: a conversation, turn by turn.
 *
 * A session keeps the conversation's cache, so a turn costs its own tokens.
 * Nothing is dropped behind the user's back: when the context is full, chat
 * says so and leaves the choice. */
#include "cli.h"

#include "base/alloc.h"
#include "base/file.h"
#include "base/utf8.h"
#include "edit.h"
#include "remote.h"
#include "talk.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { ATTACH_LIMIT = 16 << 20 };

typedef struct chat {
    qn_cli *cli;
    qn_edit *edit;
    quern_model *model; /* or remote */
    quern_session *session;
    qn_remote *remote;
    qn_talk talk;
    qn_buf attached; /* files for the next message */
    quern_result last;
    bool answered;        /* `last` is one */
    bool open, thinking;  /* the line on stdout, on stderr */
    qn_progress progress; /* of the prompt */
    bool leave;
    int interrupts; /* in a row */
    int code;
} chat;

/* ---- what is said beside answers ---- */

static void say(const char *text)
{
    fprintf(stderr, "%s\n", text);
}

static void say_error(const char *where, const char *message)
{
    qn_err_line((const char *const[]){"quern: chat: ", where,
                                      *where ? ": " : "", message, NULL});
}

static void say_failure(void)
{
    say_error(qn_error_where(), qn_error_text());
}

/* ---- answers ---- */

static bool on_event(void *data, const quern_event *event)
{
    chat *c = data;
    if (event->type == QUERN_EVENT_PROMPT)
        qn_progress_set(&c->progress, event->done, event->total);
    if (event->type != QUERN_EVENT_PROMPT || event->done == event->total)
        qn_progress_end(&c->progress);
    if (event->type == QUERN_EVENT_REASONING) {
        if (event->size && c->cli->args.flag[QN_FLAG_SHOW_THINKING].on)
            c->thinking = qn_err_thought(event->text, event->size);
        return true;
    }
    if (event->type != QUERN_EVENT_TEXT || !event->size)
        return true;
    if (c->thinking)
        fputs("\n", stderr);
    c->thinking = false;
    c->open = event->text[event->size - 1] != '\n';
    return qn_out_text(event->text, event->size);
}

static void end_lines(chat *c)
{
    if (c->thinking)
        fputs("\n", stderr);
    if (c->open)
        qn_out("\n", 1);
    c->thinking = c->open = false;
}

static void use_settings(quern_request *request, const chat *c)
{
    qn_cli_set_request(request, &c->cli->args);
    qn_args own = c->talk.settings;
    /* Stops and thinking are the command line's. */
    own.flag[QN_FLAG_STOP] = c->cli->args.flag[QN_FLAG_STOP];
    own.flag[QN_FLAG_THINK] = c->cli->args.flag[QN_FLAG_THINK];
    own.flag[QN_FLAG_IGNORE_EOS] = c->cli->args.flag[QN_FLAG_IGNORE_EOS];
    qn_cli_set_request(request, &own);
}

static quern_status generate(chat *c, quern_result *result, quern_error *error)
{
    quern_request request;
    qn_buf messages = QN_BUF_INIT;
    if (c->remote) {
        qn_status status = qn_remote_ask(c->remote, &c->talk, c->cli->args.flag,
                                         on_event, c, result);
        error->status = (quern_status)status;
        snprintf(error->where, sizeof error->where, "%s", qn_error_where());
        snprintf(error->message, sizeof error->message, "%s", qn_error_text());
        return (quern_status)status;
    }
    quern_request_init(&request, c->model);
    use_settings(&request, c);
    *result = (quern_result){.stop = -1, .end_id = -1};
    quern_status status = QUERN_E_NOMEM;
    *error = (quern_error){.status = status, .message = "out of memory"};
    if (!qn_talk_json(&c->talk, &messages)) {
        request.chat.messages = messages.data;
        qn_cli_watch(c->session);
        qn_progress_begin(&c->progress, c->cli, "prompt", "tokens");
        status =
            quern_generate(c->session, &request, on_event, c, result, error);
        qn_progress_end(&c->progress);
        qn_cli_watch(NULL);
    }
    qn_buf_free(&messages);
    return status;
}

static void explain(chat *c, quern_status status, const quern_error *error)
{
    say_error(error->where, error->message);
    if (status == QUERN_E_UNSUPPORTED && strstr(error->message, "the context"))
        say("The conversation no longer fits: /clear begins a new one, /undo "
            "takes the last turn back.");
    /* A server that was never reached is the end. */
    if (status == QUERN_E_NETWORK && !c->answered) {
        c->leave = true;
        c->code = QN_EXIT_NETWORK;
    }
}

static void note_history(const chat *c, const qn_message *message)
{
    const qn_arg *file = &c->cli->args.flag[QN_FLAG_HISTORY];
    if (file->given && qn_history_add(file->text, message))
        say_failure();
}

/* Answers the conversation as it stands; false when there is none. */
static bool answer(chat *c)
{
    quern_error error;
    quern_result result;
    quern_status status = generate(c, &result, &error);
    bool stopped = status == QUERN_E_CANCELLED && qn_cli_interrupted();
    end_lines(c);
    if (status && !stopped) {
        explain(c, status, &error);
        quern_result_free(&result);
        return false;
    }
    if (stopped) {
        c->leave = !qn_cli_forgive();
        c->interrupts = 1;
        say("(stopped)");
    }
    if (result.finish == QUERN_FINISH_LENGTH && c->model) {
        quern_info info;
        quern_model_info(c->model, &info);
        if (result.prompt_tokens + result.completion_tokens >= info.ctx)
            say("The context is full: /clear begins a new conversation, /undo "
                "takes the last turn back.");
    }
    bool kept = result.text && !qn_talk_add(&c->talk, "assistant",
                                            (qn_str){result.text, result.size});
    if (kept)
        note_history(c, &c->talk.items[c->talk.count - 1]);
    quern_result_free(&c->last);
    c->last = result;
    c->answered = true;
    return kept;
}

/* A turn: the text, with the files before it, and its answer.  Without an
 * answer the conversation is what it was. */
static void take_turn(chat *c, qn_str text)
{
    size_t before = c->talk.count, bad;
    if (!qn_utf8_valid(text, &bad) || memchr(text.data, 0, text.size)) {
        say("quern: chat: that is no text in UTF-8");
        return;
    }
    qn_buf whole = QN_BUF_INIT;
    qn_buf_add_str(&whole, qn_buf_str(&c->attached));
    qn_buf_add_str(&whole, text);
    qn_status status = qn_buf_status(&whole);
    if (!status)
        status = qn_talk_add(&c->talk, "user", qn_buf_str(&whole));
    qn_buf_free(&whole);
    if (status) {
        say_failure();
        return;
    }
    note_history(c, &c->talk.items[before]);
    if (answer(c))
        qn_buf_clear(&c->attached);
    else
        qn_talk_cut(&c->talk, before);
}

/* ---- commands ---- */

static void do_clear(chat *c, const char *rest)
{
    (void)rest;
    qn_talk_cut(&c->talk, 0);
    qn_buf_clear(&c->attached);
    if (c->session)
        quern_session_reset(c->session);
}

/* The message that the last turn began with; count when there is none. */
static size_t last_turn(const chat *c)
{
    for (size_t i = c->talk.count; i-- > 0;)
        if (!strcmp(c->talk.items[i].role, "user"))
            return i;
    return c->talk.count;
}

static void do_undo(chat *c, const char *rest)
{
    (void)rest;
    size_t at = last_turn(c);
    if (at == c->talk.count)
        say("There is no turn to take back.");
    qn_talk_cut(&c->talk, at);
}

static void do_retry(chat *c, const char *rest)
{
    (void)rest;
    size_t at = last_turn(c);
    if (at == c->talk.count) {
        say("There is nothing to answer again.");
        return;
    }
    /* The old answer stays unless there is a new one. */
    qn_talk old = c->talk;
    qn_talk cut = old;
    cut.items = qn_calloc(old.count, sizeof *cut.items);
    if (!cut.items) {
        say_failure();
        return;
    }
    memcpy(cut.items, old.items, (at + 1) * sizeof *cut.items);
    cut.count = at + 1;
    cut.capacity = old.count;
    c->talk = cut;
    if (answer(c)) {
        for (size_t i = at + 1; i < old.count; i++) {
            qn_free(old.items[i].role);
            qn_free(old.items[i].content);
        }
        qn_free(old.items);
    } else {
        qn_free(c->talk.items);
        c->talk = old;
    }
}

static void do_system(chat *c, const char *rest)
{
    if (qn_talk_set_system(&c->talk, rest))
        say_failure();
}

static void do_set(chat *c, const char *rest)
{
    char name[64];
    size_t n = strcspn(rest, " ");
    if (!n || n >= sizeof name || !rest[n]) {
        say("/set NAME VALUE: one of those that /show lists");
        return;
    }
    memcpy(name, rest, n);
    name[n] = '\0';
    if (qn_talk_set(&c->talk, name, rest + n + 1))
        say_failure();
}

static void do_show(chat *c, const char *rest)
{
    char line[128];
    (void)rest;
    if (c->model) {
        quern_info info;
        quern_model_info(c->model, &info);
        qn_err_line((const char *const[]){"model ", info.path, NULL});
        snprintf(line, sizeof line, "context %lld, %zu tokens in use",
                 (long long)info.ctx, quern_session_length(c->session));
        say(line);
    }
    snprintf(line, sizeof line, "%zu messages", c->talk.count);
    say(line);
    if (c->talk.system)
        qn_err_line((const char *const[]){"system ", c->talk.system, NULL});
    for (const int *f = qn_talk_flags; *f >= 0; f++) {
        const char *text = c->talk.texts[*f];
        qn_err_line((const char *const[]){qn_args_name(*f), " ",
                                          text ? text
                                          : c->cli->args.flag[*f].given
                                              ? "(from the command line)"
                                              : "(the model's)",
                                          NULL});
    }
}

static void do_save(chat *c, const char *rest)
{
    if (!*rest)
        say("/save FILE");
    else if (qn_talk_save(&c->talk, rest))
        say_failure();
}

static void do_load(chat *c, const char *rest)
{
    if (!*rest)
        say("/load FILE");
    else if (qn_talk_load(&c->talk, rest))
        say_failure();
}

static void do_attach(chat *c, const char *rest)
{
    char *text = NULL;
    size_t size = 0, bad;
    if (!*rest) {
        say("/attach FILE");
        return;
    }
    qn_status status = qn_file_read(&text, &size, rest, ATTACH_LIMIT);
    if (!status &&
        (!qn_utf8_valid((qn_str){text, size}, &bad) || memchr(text, 0, size)))
        status = qn_fail_where(qn_fail(QN_E_FORMAT, "it is no text in UTF-8"),
                               "%s", rest);
    if (!status) {
        qn_buf_printf(&c->attached, "%s:\n\n", rest);
        qn_buf_add(&c->attached, text, size);
        qn_buf_add_text(&c->attached, "\n\n");
        status = qn_buf_status(&c->attached);
    }
    qn_free(text);
    if (status)
        say_failure();
    else
        say("(goes with the next message)");
}

static void do_stats(chat *c, const char *rest)
{
    char line[256];
    const quern_result *r = &c->last;
    (void)rest;
    if (!c->answered) {
        say("There was no answer yet.");
        return;
    }
    double steps = (double)(r->completion_tokens - 1);
    snprintf(
        line, sizeof line,
        "prompt %lld tokens (%lld cached), first token %.3f s; answer %lld "
        "tokens, %.1f tokens/s; %s; seed %llu",
        (long long)r->prompt_tokens, (long long)r->cached_tokens,
        r->first_token_seconds, (long long)r->completion_tokens,
        r->decode_seconds > 0 && steps > 0 ? steps / r->decode_seconds : 0,
        quern_finish_name(r->finish), (unsigned long long)r->seed);
    if (c->remote)
        snprintf(line, sizeof line, "%zu bytes in %.3f s; %s", r->size,
                 r->decode_seconds, quern_finish_name(r->finish));
    say(line);
}

static void do_quit(chat *c, const char *rest)
{
    (void)rest;
    c->leave = true;
}

static void do_help(chat *c, const char *rest);

static const struct {
    const char *name;
    void (*run)(chat *c, const char *rest);
    const char *help;
} commands[] = {
    {"help", do_help, "this list"},
    {"clear", do_clear, "begin a new conversation"},
    {"undo", do_undo, "take the last turn back"},
    {"retry", do_retry, "answer the last message again"},
    {"system", do_system, "TEXT: the system message; none: the template's"},
    {"set", do_set, "NAME VALUE: a setting of answers, such as top_p 0.9"},
    {"show", do_show, "the model, the context and the settings"},
    {"save", do_save, "FILE: write messages and settings"},
    {"load", do_load, "FILE: go on with what was saved"},
    {"attach", do_attach, "FILE: put a text file into the next message"},
    {"stats", do_stats, "counts and rates of the last answer"},
    {"quit", do_quit, "leave; Ctrl-D does it, too"},
};

static void do_help(chat *c, const char *rest)
{
    (void)c;
    (void)rest;
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        fprintf(stderr, "  /%-7s %s\n", commands[i].name, commands[i].help);
    say("  \"\"\"      begins a message of several lines, and ends it");
    say("Ctrl-C stops an answer; twice, it leaves.");
}

static void run_command(chat *c, const char *line)
{
    size_t n = strcspn(line, " ");
    const char *rest = line + n;
    rest += strspn(rest, " ");
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        if (strlen(commands[i].name) == n &&
            !memcmp(commands[i].name, line, n)) {
            commands[i].run(c, rest);
            return;
        }
    qn_err_line((const char *const[]){"There is no command /", line,
                                      "; /help lists them.", NULL});
}

/* ---- lines ---- */

/* What ends a line that is no text; true: chat goes on. */
static bool go_on(chat *c, qn_line kind)
{
    if (kind == QN_LINE_FAILED) {
        say_failure();
        c->code = QN_EXIT_FAILURE;
        return false;
    }
    if (kind == QN_LINE_END)
        return false;
    if (!qn_cli_forgive() || ++c->interrupts > 1) {
        c->code = qn_cli_signalled() ? qn_cli_signalled() : QN_EXIT_INTERRUPTED;
        return false;
    }
    say("(Ctrl-C once more, or Ctrl-D, leaves)");
    return true;
}

/* The rest of a block that `line` has begun, into *line. */
static qn_line read_block(chat *c, qn_buf *line)
{
    qn_buf block = QN_BUF_INIT;
    qn_line kind = QN_LINE_TEXT;
    qn_str rest = {line->data + 3, line->size - 3};
    for (bool first = true;; first = false) {
        bool ends =
            rest.size >= 3 && !memcmp(rest.data + rest.size - 3, "\"\"\"", 3);
        if (!first)
            qn_buf_add_char(&block, '\n');
        qn_buf_add(&block, rest.data, rest.size - (ends ? 3 : 0));
        if (ends)
            break;
        kind = qn_edit_read(c->edit, "... ", line);
        if (kind != QN_LINE_TEXT)
            break;
        rest = qn_buf_str(line);
    }
    /* The line ends beside the marks are theirs. */
    qn_str text = qn_buf_str(&block);
    if (text.size && *text.data == '\n') {
        text.data++;
        text.size--;
    }
    if (text.size && text.data[text.size - 1] == '\n')
        text.size--;
    qn_buf_clear(line);
    qn_buf_add_str(line, text);
    qn_buf_free(&block);
    return kind;
}

static void take_line(chat *c, qn_buf *line)
{
    qn_str text = qn_buf_str(line);
    bool block = text.size >= 3 && !memcmp(text.data, "\"\"\"", 3);
    if (!block && text.size && *text.data == '/') {
        qn_edit_remember(c->edit, text.data);
        run_command(c, text.data + 1);
        return;
    }
    if (block) {
        qn_line kind = read_block(c, line);
        if (kind != QN_LINE_TEXT && !go_on(c, kind))
            c->leave = true;
        if (kind != QN_LINE_TEXT)
            return;
        text = qn_buf_str(line);
    }
    bool blank = true;
    for (size_t i = 0; i < text.size; i++)
        blank &= strchr(" \t\n", text.data[i]) != NULL && text.data[i];
    if (blank)
        return;
    qn_edit_remember(c->edit, text.data);
    take_turn(c, text);
}

static void run_lines(chat *c)
{
    qn_buf line = QN_BUF_INIT;
    while (!c->leave) {
        qn_line kind = qn_edit_read(c->edit, "> ", &line);
        if (kind == QN_LINE_TEXT) {
            c->interrupts = 0;
            take_line(c, &line);
        } else if (!go_on(c, kind)) {
            break;
        }
        if (qn_out_result("chat"))
            break;
    }
    qn_buf_free(&line);
}

/* ---- the command ---- */

static void remember(void *data, const char *text)
{
    qn_edit_remember(data, text);
}

static int open_answers(chat *c)
{
    qn_cli *cli = c->cli;
    const qn_arg *server = &cli->args.flag[QN_FLAG_SERVER];
    quern_error error;
    if (server->given) {
        const char *name =
            cli->args.word_count ? cli->args.words[0] : "default";
        qn_status status = qn_remote_new(&c->remote, server->text, name);
        return status ? qn_cli_fail_status(cli, status, NULL) : QN_EXIT_OK;
    }
    int code = qn_cli_load(cli, cli->args.words[0], &c->model);
    if (code)
        return code;
    quern_info info;
    quern_model_info(c->model, &info);
    if (!info.chat_template)
        return qn_cli_fail(cli, QUERN_E_UNSUPPORTED, info.path,
                           "the model has no chat template",
                           "--chat-template gives one");
    return quern_session_new(&c->session, c->model, &error)
               ? qn_cli_fail_error(cli, &error)
               : QN_EXIT_OK;
}

static qn_status prepare(chat *c)
{
    const qn_arg *flag = c->cli->args.flag;
    bool server = flag[QN_FLAG_SERVER].given;
    qn_status status = qn_cli_check_request(flag);
    if (!status && server && flag[QN_FLAG_PROGRESS].origin == QN_FROM_FLAG)
        status = qn_fail(QN_E_ARG, "--server and --progress exclude each "
                                   "other: the server computes");
    if (!status)
        status = qn_edit_new(&c->edit);
    if (!status && flag[QN_FLAG_SYSTEM].given)
        status = qn_talk_set_system(&c->talk, flag[QN_FLAG_SYSTEM].text);
    if (!status && flag[QN_FLAG_HISTORY].given)
        status = qn_history_check(flag[QN_FLAG_HISTORY].text);
    if (!status && flag[QN_FLAG_HISTORY].given)
        status = qn_history_read(flag[QN_FLAG_HISTORY].text, remember, c->edit);
    return status;
}

int qn_cli_chat(qn_cli *cli)
{
    chat c = {.cli = cli, .code = QN_EXIT_OK};
    qn_status status = prepare(&c);
    int code =
        status ? qn_cli_fail_status(cli, status, NULL) : open_answers(&c);
    if (!code) {
        if (qn_edit_is_terminal(c.edit) && !cli->quiet)
            say("/help lists the commands; Ctrl-D leaves.");
        qn_cli_watch_calls(true);
        run_lines(&c);
        qn_cli_watch_calls(false);
        code = c.code;
    }
    quern_result_free(&c.last);
    quern_session_free(c.session);
    quern_model_free(c.model);
    qn_remote_free(c.remote);
    qn_talk_clear(&c.talk);
    qn_buf_free(&c.attached);
    qn_edit_free(c.edit);
    return code;
}
