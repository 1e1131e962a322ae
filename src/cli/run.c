/* run.c: `quern run`: one prompt, one answer. */
#include "cli.h"

#include "base/alloc.h"
#include "base/file.h"
#include "base/utf8.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- the prompt ---- */

enum { PATIENCE_MS = 2000 };

/* A pipe that an argument is to be joined with, and that nobody writes to or
 * closes, looks like a program that hangs. */
static void explain_wait(const qn_cli *cli)
{
    struct pollfd fd = {.fd = STDIN_FILENO, .events = POLLIN};
    if (!poll(&fd, 1, PATIENCE_MS))
        qn_cli_log(cli, QUERN_LOG_WARN,
                   "waiting for the rest of the prompt on standard input "
                   "(--no-stdin leaves it out)");
}

/* The newline that ends the last line of a text file is no part of a message;
 * a text to be continued is taken as it is. */
static void drop_line_end(const qn_args *args, qn_buf *text)
{
    if (args->flag[QN_FLAG_RAW].on)
        return;
    for (const char *end = "\n\r"; *end; end++)
        if (text->size && text->data[text->size - 1] == *end)
            qn_buf_truncate(text, text->size - 1);
}

/* The prompt comes from the argument, a file or standard input, which is read
 * when it is no terminal.  Only argument and standard input are joined, with a
 * blank line between. */
static qn_status read_prompt(const qn_cli *cli, qn_buf *out)
{
    const qn_args *args = &cli->args;
    const char *word = args->word_count > 1 ? args->words[1] : NULL;
    const qn_arg *file = &args->flag[QN_FLAG_FILE];
    const qn_arg *asked = &args->flag[QN_FLAG_STDIN];
    bool dash = file->given && !strcmp(file->text, "-");
    bool piped = asked->given  ? asked->on
                 : file->given ? dash
                               : !isatty(STDIN_FILENO);
    if (file->given && word)
        return qn_fail(QN_E_ARG,
                       "--file %s and the argument '%s' exclude each "
                       "other",
                       file->text, word);
    if (!word && !file->given && !piped)
        return qn_fail(QN_E_ARG, "no prompt: give it as an argument, with "
                                 "--file or on standard input");
    qn_buf more = QN_BUF_INIT;
    qn_status status = QN_OK;
    if (word)
        qn_buf_add_text(out, word);
    if (file->given && !dash) {
        status = qn_cli_read_file(file->text, out);
        drop_line_end(args, out);
    }
    if (!status && piped && word)
        explain_wait(cli);
    if (!status && piped)
        status = qn_cli_read_stdin(&more);
    bool none = !more.size;
    drop_line_end(args, &more);
    if (!status && word && more.size)
        qn_buf_add_text(out, "\n\n");
    qn_buf_add_str(out, qn_buf_str(&more));
    if (!status && !word && !file->given && !asked->given && none)
        status = qn_fail(QN_E_ARG, "no prompt: standard input is empty");
    qn_buf_free(&more);
    if (!status)
        status = qn_buf_status(out);
    return status ? status : qn_cli_check_text("prompt", qn_buf_str(out));
}

static void add_message(qn_json_writer *w, const char *role, qn_str content)
{
    qn_json_write_object(w);
    qn_json_write_key(w, "role");
    qn_json_write_text(w, role);
    qn_json_write_key(w, "content");
    qn_json_write_str(w, content);
    qn_json_write_object_end(w);
}

/* [system,] user as JSON. */
static qn_status make_messages(const char *system, qn_str prompt, qn_buf *out)
{
    qn_json_writer w;
    qn_json_write_begin(&w, out);
    qn_json_write_array(&w);
    if (system)
        add_message(&w, "system", qn_str_of(system));
    add_message(&w, "user", prompt);
    qn_json_write_array_end(&w);
    return qn_buf_status(out);
}

/* ---- output ---- */

static void write_token_text(qn_json_writer *w, const char *bytes, size_t size)
{
    qn_json_write_key(w, "token");
    qn_json_write_str(w, (qn_str){bytes, size});
    qn_json_write_key(w, "bytes");
    qn_json_write_array(w);
    for (size_t i = 0; i < size; i++)
        qn_json_write_int(w, (unsigned char)bytes[i]);
    qn_json_write_array_end(w);
}

static void write_logprobs(qn_json_writer *w, const quern_token *tokens,
                           size_t count)
{
    qn_json_write_key(w, "logprobs");
    qn_json_write_array(w);
    for (size_t i = 0; i < count; i++) {
        const quern_token *token = &tokens[i];
        qn_json_write_object(w);
        qn_json_write_key(w, "id");
        qn_json_write_int(w, token->id);
        write_token_text(w, token->bytes, token->byte_count);
        qn_json_write_key(w, "logprob");
        qn_json_write_double(w, (double)token->logprob);
        qn_json_write_key(w, "top");
        qn_json_write_array(w);
        for (int j = 0; j < token->top_count; j++) {
            qn_json_write_object(w);
            qn_json_write_key(w, "id");
            qn_json_write_int(w, token->top[j].id);
            write_token_text(w, token->top[j].bytes, token->top[j].byte_count);
            qn_json_write_key(w, "logprob");
            qn_json_write_double(w, (double)token->top[j].logprob);
            qn_json_write_object_end(w);
        }
        qn_json_write_array_end(w);
        qn_json_write_object_end(w);
    }
    qn_json_write_array_end(w);
}

typedef struct output {
    const qn_cli *cli;
    bool stream, closed;
    bool newline; /* the text so far ends with one */
    bool begun;
    bool thinking;       /* the last text was a thought, whose line is open */
    int64_t prompt_done; /* tokens of the prompt that are computed */
    qn_progress progress;
} output;

/* Thoughts are for the eyes of who asked for them: on stderr, dimmed on a
 * terminal, in a line of their own. */
static void show_thought(output *out, const quern_event *event)
{
    if (out->cli->args.flag[QN_FLAG_SHOW_THINKING].on)
        out->thinking = qn_err_thought(event->text, event->size) ||
                        (out->thinking && !event->size);
}

static void end_thought(output *out)
{
    if (out->thinking)
        fputs("\n", stderr);
    out->thinking = false;
}

static bool on_text(output *out, const quern_event *event)
{
    bool logprobs = out->cli->args.flag[QN_FLAG_LOGPROBS].given;
    bool thought = event->type == QUERN_EVENT_REASONING;
    if (!event->size && !(logprobs && event->token_count))
        return true;
    if (thought)
        show_thought(out, event);
    if (thought && !out->cli->json)
        return true;
    if (!thought)
        end_thought(out);
    if (event->size)
        out->newline = event->text[event->size - 1] == '\n';
    out->begun = true;
    if (!out->cli->json)
        return qn_out_text(event->text, event->size);
    qn_buf line = QN_BUF_INIT;
    qn_json_writer w;
    qn_json_write_begin(&w, &line);
    qn_json_write_object(&w);
    qn_json_write_key(&w, "schema");
    qn_json_write_text(&w, "quern.run/1");
    qn_json_write_key(&w, "event");
    qn_json_write_text(&w, "piece");
    qn_json_write_key(&w, thought ? "reasoning" : "text");
    qn_json_write_str(&w, (qn_str){event->text, event->size});
    if (logprobs)
        write_logprobs(&w, event->tokens, event->token_count);
    qn_json_write_object_end(&w);
    return !qn_out_json(out->cli, &line);
}

static bool on_event(void *data, const quern_event *event)
{
    output *out = data;
    if (event->type == QUERN_EVENT_PROMPT) {
        out->prompt_done = event->done;
        qn_progress_set(&out->progress, event->done, event->total);
        if (event->done == event->total)
            qn_progress_end(&out->progress);
        return true;
    }
    if (event->type == QUERN_EVENT_START || !out->stream)
        return true;
    out->closed = !on_text(out, event);
    return !out->closed;
}

/* Tokens per second.  `done` tokens of the prompt were computed: fewer than it
 * has when the work was stopped. */
static double prompt_rate(const quern_result *r, int64_t done)
{
    int64_t computed = done - r->cached_tokens;
    return r->prompt_seconds > 0 && computed > 0
               ? (double)computed / r->prompt_seconds
               : 0;
}

/* The first token comes out of the prompt's computation, so decoding has made
 * one token less. */
static double decode_rate(const quern_result *r)
{
    int64_t steps = r->completion_tokens - 1;
    return r->decode_seconds > 0 && steps > 0
               ? (double)steps / r->decode_seconds
               : 0;
}

static bool speculates(const qn_cli *cli)
{
    const qn_arg *flag = cli->args.flag;
    return flag[QN_FLAG_DRAFT].given || flag[QN_FLAG_NGRAM].on;
}

static void write_speculation(qn_json_writer *w, const quern_result *r)
{
    qn_json_write_key(w, "speculation");
    qn_json_write_object(w);
    qn_json_write_key(w, "drafted");
    qn_json_write_int(w, r->drafted);
    qn_json_write_key(w, "accepted");
    qn_json_write_int(w, r->accepted);
    qn_json_write_key(w, "stopped");
    qn_json_write_bool(w, r->draft_stopped);
    qn_json_write_object_end(w);
}

static int print_summary(const qn_cli *cli, const quern_model *model,
                         const quern_result *r, int64_t done)
{
    quern_info info;
    quern_model_info(model, &info);
    qn_buf line = QN_BUF_INIT;
    qn_json_writer w;
    qn_json_write_begin(&w, &line);
    qn_json_write_object(&w);
    qn_json_write_key(&w, "schema");
    qn_json_write_text(&w, "quern.run/1");
    qn_json_write_key(&w, "event");
    qn_json_write_text(&w, "summary");
    qn_json_write_key(&w, "text");
    qn_json_write_str(&w, (qn_str){r->text ? r->text : "", r->size});
    qn_json_write_key(&w, "reasoning");
    if (r->reasoning_size)
        qn_json_write_str(&w, (qn_str){r->reasoning, r->reasoning_size});
    else
        qn_json_write_null(&w);
    qn_json_write_key(&w, "finish_reason");
    qn_json_write_text(&w, quern_finish_name(r->finish));
    qn_json_write_key(&w, "usage");
    qn_json_write_object(&w);
    qn_json_write_key(&w, "prompt_tokens");
    qn_json_write_int(&w, r->prompt_tokens);
    qn_json_write_key(&w, "completion_tokens");
    qn_json_write_int(&w, r->completion_tokens);
    qn_json_write_key(&w, "total_tokens");
    qn_json_write_int(&w, r->prompt_tokens + r->completion_tokens);
    qn_json_write_key(&w, "cached_tokens");
    qn_json_write_int(&w, r->cached_tokens);
    qn_json_write_key(&w, "reasoning_tokens");
    qn_json_write_int(&w, r->reasoning_tokens);
    qn_json_write_object_end(&w);
    if (speculates(cli))
        write_speculation(&w, r);
    qn_json_write_key(&w, "timings");
    qn_json_write_object(&w);
    const struct {
        const char *key;
        double value;
    } timings[] = {
        {"load_s", info.load_seconds},
        {"prompt_s", r->prompt_seconds},
        {"prompt_tokens_per_s", prompt_rate(r, done)},
        {"ttft_s", r->first_token_seconds},
        {"decode_s", r->decode_seconds},
        {"decode_tokens_per_s", decode_rate(r)},
    };
    for (size_t i = 0; i < sizeof timings / sizeof *timings; i++) {
        qn_json_write_key(&w, timings[i].key);
        qn_json_write_double(&w, timings[i].value);
    }
    qn_json_write_key(&w, "peak_bytes");
    qn_json_write_uint(&w, qn_peak_resident());
    qn_json_write_object_end(&w);
    qn_json_write_key(&w, "seed");
    qn_json_write_uint(&w, r->seed);
    qn_json_write_key(&w, "model");
    qn_json_write_text(&w, info.path);
    if (cli->args.flag[QN_FLAG_LOGPROBS].given)
        write_logprobs(&w, r->tokens, r->token_count);
    qn_json_write_object_end(&w);
    return qn_out_json(cli, &line);
}

static void print_stats(const qn_cli *cli, const quern_model *model,
                        const quern_result *r, int64_t done)
{
    quern_info info;
    char part[48] = "", text[448], guesses[96] = "";
    if (speculates(cli))
        snprintf(guesses, sizeof guesses, "; %lld of %lld guesses right%s",
                 (long long)r->accepted, (long long)r->drafted,
                 r->draft_stopped ? " until they ended" : "");
    quern_model_info(model, &info);
    if (done < r->prompt_tokens)
        snprintf(part, sizeof part, "%lld of ", (long long)done);
    int n = snprintf(text, sizeof text,
                     "prompt %s%lld tokens (%lld cached), %.1f tokens/s; ",
                     part, (long long)r->prompt_tokens,
                     (long long)r->cached_tokens, prompt_rate(r, done));
    if (r->first_token_seconds > 0)
        n += snprintf(text + n, sizeof text - (size_t)n, "first token %.3f s; ",
                      r->first_token_seconds);
    snprintf(text + n, sizeof text - (size_t)n,
             "answer %lld tokens, %.1f tokens/s%s; load %.3f s; peak %.0f MiB; "
             "seed %llu",
             (long long)r->completion_tokens, decode_rate(r), guesses,
             info.load_seconds, (double)qn_peak_resident() / (1 << 20),
             (unsigned long long)r->seed);
    qn_err_line((const char *const[]){text, NULL});
}

/* ---- the command ---- */

/* Ends the line of the answer: on a terminal, and before a line on stderr where
 * that is the same file. */
static void end_line(output *out, bool message)
{
    struct stat answer, messages;
    if (out->cli->json || out->newline)
        return;
    if (qn_out_is_terminal())
        qn_out("\n", 1);
    else if (message && out->begun && !fstat(STDOUT_FILENO, &answer) &&
             !fstat(STDERR_FILENO, &messages) &&
             answer.st_dev == messages.st_dev &&
             answer.st_ino == messages.st_ino)
        fputs("\n", stderr);
    out->newline = true;
}

/* Everything behind the answer; the exit code. */
static int finish(output *out, const quern_model *model,
                  const quern_result *result)
{
    const qn_cli *cli = out->cli;
    int code = QN_EXIT_OK;
    if (!out->stream && cli->args.flag[QN_FLAG_SHOW_THINKING].on) {
        out->thinking =
            qn_err_thought(result->reasoning, result->reasoning_size);
        end_thought(out);
    }
    if (!out->stream && !cli->json) {
        out->newline = result->size && result->text[result->size - 1] == '\n';
        out->begun = result->size > 0;
        qn_out_text(result->text ? result->text : "", result->size);
    }
    bool stats =
        cli->args.flag[QN_FLAG_STATS].on || (qn_cli_signalled() && !cli->quiet);
    if (cli->json)
        code = print_summary(cli, model, result, out->prompt_done);
    end_line(out, stats);
    if (stats)
        print_stats(cli, model, result, out->prompt_done);
    return code;
}

static int generate(const qn_cli *cli, quern_model *model,
                    const quern_request *request)
{
    const qn_arg *stream = &cli->args.flag[QN_FLAG_STREAM];
    output out = {.cli = cli,
                  .stream = stream->given ? stream->on : !cli->json};
    quern_session *session = NULL;
    quern_result result = {0};
    quern_error error;
    if (quern_session_new(&session, model, &error))
        return qn_cli_fail_error(cli, &error);
    const qn_arg *flag = cli->args.flag;
    if (flag[QN_FLAG_PROMPT_CACHE].given &&
        quern_session_load(session, flag[QN_FLAG_PROMPT_CACHE].text, &error)) {
        quern_session_free(session);
        return qn_cli_fail_error(cli, &error);
    }
    qn_cli_watch(session);
    qn_progress_begin(&out.progress, cli, "prompt", "tokens");
    quern_status status =
        quern_generate(session, request, on_event, &out, &result, &error);
    qn_progress_end(&out.progress);
    qn_cli_watch(NULL);
    end_thought(&out);
    int code;
    if (!status || (status == QUERN_E_CANCELLED && qn_cli_signalled())) {
        code = finish(&out, model, &result);
        if (!code && flag[QN_FLAG_SAVE_CACHE].given &&
            quern_session_save(session, flag[QN_FLAG_SAVE_CACHE].text, &error))
            code = qn_cli_fail_error(cli, &error);
    } else if (out.closed) {
        code = QN_EXIT_FAILURE;
    } else {
        if (out.begun)
            end_line(&out, true);
        code = qn_cli_fail_error(cli, &error);
    }
    quern_result_free(&result);
    quern_session_free(session);
    return code;
}

int qn_cli_run(qn_cli *cli)
{
    const qn_arg *flag = cli->args.flag;
    qn_buf prompt = QN_BUF_INIT, messages = QN_BUF_INIT;
    quern_model *model = NULL;
    int code;
    qn_status status = qn_cli_check_request(flag);
    if (!status)
        status = qn_cli_check_input(cli, QN_FLAG_PROMPT_CACHE);
    if (!status)
        status = qn_cli_check_output(cli, QN_FLAG_SAVE_CACHE);
    if (!status)
        status = read_prompt(cli, &prompt);
    if (!status && !flag[QN_FLAG_RAW].on)
        status = make_messages(flag[QN_FLAG_SYSTEM].text, qn_buf_str(&prompt),
                               &messages);
    if (status) {
        code = qn_cli_fail_status(cli, status, NULL);
        goto done;
    }
    code = qn_cli_load(cli, cli->args.words[0], &model);
    if (code)
        goto done;
    quern_info info;
    quern_model_info(model, &info);
    if (!flag[QN_FLAG_RAW].on && !info.chat_template) {
        code = qn_cli_fail(cli, QUERN_E_UNSUPPORTED, info.path,
                           "the model has no chat template",
                           "--raw continues a text; --chat-template gives one");
        goto done;
    }
    quern_request request;
    quern_request_init(&request, model);
    qn_cli_set_request(&request, &cli->args);
    if (flag[QN_FLAG_RAW].on)
        request.prompt = prompt.data ? prompt.data : "";
    else
        request.chat.messages = messages.data;
    code = generate(cli, model, &request);
done:
    quern_model_free(model);
    qn_buf_free(&prompt);
    qn_buf_free(&messages);
    return code;
}
