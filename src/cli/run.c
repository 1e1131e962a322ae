/* run.c: `quern run`: one prompt, one answer. */
#include "cli.h"

#include "base/alloc.h"
#include "base/file.h"
#include "base/utf8.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- the prompt ---- */

enum { PROMPT_LIMIT = 256 << 20 };

static qn_status read_stdin(qn_buf *out)
{
    char block[65536];
    size_t n;
    while ((n = fread(block, 1, sizeof block, stdin)) > 0) {
        if (out->size + n > PROMPT_LIMIT)
            return qn_fail(QN_E_ARG, "standard input: more than %d MiB",
                           PROMPT_LIMIT >> 20);
        qn_buf_add(out, block, n);
    }
    if (ferror(stdin))
        return qn_fail(QN_E_IO, "standard input: can't be read");
    return qn_buf_status(out);
}

/* The prompt comes from the argument, a file or standard input; argument and
 * standard input may be joined, with a blank line between. */
static qn_status read_prompt(const qn_args *args, qn_buf *out)
{
    const char *word = args->word_count > 1 ? args->words[1] : NULL;
    const qn_arg *file = &args->flag[QN_FLAG_FILE];
    const qn_arg *asked = &args->flag[QN_FLAG_STDIN];
    bool piped = asked->given ? asked->on
                              : !isatty(STDIN_FILENO) && !word && !file->given;
    if (file->given && (word || piped))
        return qn_fail(QN_E_ARG, "--file excludes %s",
                       word ? "a prompt argument" : "--stdin");
    qn_status status = QN_OK;
    if (word)
        qn_buf_add_text(out, word);
    if (file->given) {
        char *text = NULL;
        size_t size;
        status = qn_file_read(&text, &size, file->text, PROMPT_LIMIT);
        if (!status)
            qn_buf_add(out, text, size);
        qn_free(text);
    }
    if (!status && piped) {
        if (word)
            qn_buf_add_text(out, "\n\n");
        status = read_stdin(out);
    }
    if (status)
        return status;
    if (!word && !file->given && !piped)
        return qn_fail(QN_E_ARG, "no prompt: give it as an argument, with "
                                 "--file or on standard input");
    status = qn_buf_status(out);
    size_t bad;
    if (!status && !qn_utf8_valid(qn_buf_str(out), &bad))
        status = qn_fail(QN_E_ARG, "prompt: not valid UTF-8 at byte %zu", bad);
    if (!status && memchr(out->data ? out->data : "", 0, out->size))
        status = qn_fail(QN_E_ARG, "prompt: it has a NUL byte");
    return status;
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

/* ---- flags to request ---- */

static void set_sampling(quern_sampling *s, const qn_arg *flag)
{
    const struct {
        qn_flag id;
        double *to;
    } reals[] = {
        {QN_FLAG_TEMPERATURE, &s->temperature},
        {QN_FLAG_TOP_P, &s->top_p},
        {QN_FLAG_MIN_P, &s->min_p},
        {QN_FLAG_TYPICAL_P, &s->typical_p},
        {QN_FLAG_XTC_PROBABILITY, &s->xtc_probability},
        {QN_FLAG_XTC_THRESHOLD, &s->xtc_threshold},
        {QN_FLAG_REPETITION, &s->repetition_penalty},
        {QN_FLAG_PRESENCE, &s->presence_penalty},
        {QN_FLAG_FREQUENCY, &s->frequency_penalty},
    };
    const struct {
        qn_flag id;
        int32_t *to;
    } counts[] = {
        {QN_FLAG_TOP_K, &s->top_k},
        {QN_FLAG_REPETITION_SIZE, &s->repetition_context_size},
        {QN_FLAG_PRESENCE_SIZE, &s->presence_context_size},
        {QN_FLAG_FREQUENCY_SIZE, &s->frequency_context_size},
    };
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++)
        if (flag[reals[i].id].given)
            *reals[i].to = flag[reals[i].id].real;
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        if (flag[counts[i].id].given)
            *counts[i].to = (int32_t)flag[counts[i].id].whole;
    if (flag[QN_FLAG_SEED].given) {
        s->has_seed = true;
        s->seed = (uint64_t)flag[QN_FLAG_SEED].whole;
    }
}

static void set_request(quern_request *request, const qn_args *args)
{
    const qn_arg *flag = args->flag;
    set_sampling(&request->sampling, flag);
    if (flag[QN_FLAG_MAX_TOKENS].given)
        request->max_tokens = flag[QN_FLAG_MAX_TOKENS].whole;
    if (flag[QN_FLAG_MIN_TOKENS].given)
        request->min_tokens = flag[QN_FLAG_MIN_TOKENS].whole;
    request->ignore_eos = flag[QN_FLAG_IGNORE_EOS].on;
    request->stops = flag[QN_FLAG_STOP].list;
    request->stop_count = flag[QN_FLAG_STOP].list_count;
    if (flag[QN_FLAG_LOGPROBS].given) {
        request->logprobs = true;
        request->top_logprobs = (int)flag[QN_FLAG_LOGPROBS].whole;
    }
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
    qn_progress progress;
} output;

static bool on_text(output *out, const quern_event *event)
{
    if (!event->size)
        return true;
    out->begun = true;
    out->newline = event->text[event->size - 1] == '\n';
    if (!out->cli->json)
        return qn_out_text(event->text, event->size);
    qn_buf line = QN_BUF_INIT;
    qn_json_writer w;
    qn_json_write_begin(&w, &line);
    qn_json_write_object(&w);
    qn_json_write_key(&w, "schema");
    qn_json_write_text(&w, "quern.run.piece/1");
    qn_json_write_key(&w, "text");
    qn_json_write_str(&w, (qn_str){event->text, event->size});
    if (out->cli->args.flag[QN_FLAG_LOGPROBS].given)
        write_logprobs(&w, event->tokens, event->token_count);
    qn_json_write_object_end(&w);
    return !qn_out_line(out->cli, &line);
}

static bool on_event(void *data, const quern_event *event)
{
    output *out = data;
    if (event->type == QUERN_EVENT_PROMPT) {
        qn_progress_set(&out->progress, event->done, event->total);
        if (event->done == event->total)
            qn_progress_end(&out->progress);
        return true;
    }
    if (event->type != QUERN_EVENT_TEXT || !out->stream)
        return true;
    out->closed = !on_text(out, event);
    return !out->closed;
}

/* Tokens per second; the prompt's first token comes out of its computation,
 * so decoding has made one token less. */
static double prompt_rate(const quern_result *r)
{
    int64_t computed = r->prompt_tokens - r->cached_tokens;
    return r->prompt_seconds > 0 ? (double)computed / r->prompt_seconds : 0;
}

static double decode_rate(const quern_result *r)
{
    int64_t steps = r->completion_tokens - 1;
    return r->decode_seconds > 0 && steps > 0
               ? (double)steps / r->decode_seconds
               : 0;
}

static int print_summary(const qn_cli *cli, const quern_model *model,
                         const quern_result *r)
{
    quern_info info;
    size_t peak;
    quern_model_info(model, &info);
    quern_memory(NULL, &peak, NULL);
    qn_buf line = QN_BUF_INIT;
    qn_json_writer w;
    qn_json_write_begin(&w, &line);
    qn_json_write_object(&w);
    qn_json_write_key(&w, "schema");
    qn_json_write_text(&w, "quern.run/1");
    qn_json_write_key(&w, "text");
    qn_json_write_str(&w, (qn_str){r->text ? r->text : "", r->size});
    qn_json_write_key(&w, "reasoning");
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
    qn_json_write_object_end(&w);
    qn_json_write_key(&w, "timings");
    qn_json_write_object(&w);
    const struct {
        const char *key;
        double value;
    } timings[] = {
        {"load_s", info.load_seconds},
        {"prompt_s", r->prompt_seconds},
        {"prompt_tokens_per_s", prompt_rate(r)},
        {"ttft_s", r->first_token_seconds},
        {"decode_s", r->decode_seconds},
        {"decode_tokens_per_s", decode_rate(r)},
    };
    for (size_t i = 0; i < sizeof timings / sizeof *timings; i++) {
        qn_json_write_key(&w, timings[i].key);
        qn_json_write_double(&w, timings[i].value);
    }
    qn_json_write_key(&w, "peak_bytes");
    qn_json_write_uint(&w, peak);
    qn_json_write_object_end(&w);
    qn_json_write_key(&w, "seed");
    qn_json_write_uint(&w, r->seed);
    qn_json_write_key(&w, "model");
    qn_json_write_text(&w, info.path);
    if (cli->args.flag[QN_FLAG_LOGPROBS].given)
        write_logprobs(&w, r->tokens, r->token_count);
    qn_json_write_object_end(&w);
    return qn_out_line(cli, &line);
}

static void print_stats(const quern_model *model, const quern_result *r)
{
    quern_info info;
    size_t peak;
    quern_model_info(model, &info);
    quern_memory(NULL, &peak, NULL);
    fprintf(stderr,
            "prompt %lld tokens (%lld cached), %.1f tokens/s; first token "
            "%.3f s; answer %lld tokens, %.1f tokens/s; load %.3f s; peak "
            "%.0f MiB; seed %llu\n",
            (long long)r->prompt_tokens, (long long)r->cached_tokens,
            prompt_rate(r), r->first_token_seconds,
            (long long)r->completion_tokens, decode_rate(r), info.load_seconds,
            (double)peak / (1 << 20), (unsigned long long)r->seed);
}

/* ---- the command ---- */

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
    qn_cli_watch(session);
    qn_progress_begin(&out.progress, cli, "prompt", "tokens");
    quern_status status =
        quern_generate(session, request, on_event, &out, &result, &error);
    qn_progress_end(&out.progress);
    qn_cli_watch(NULL);
    int code = QN_EXIT_OK;
    bool interrupted = status == QUERN_E_CANCELLED && qn_cli_signalled();
    if (out.closed) {
        code = QN_EXIT_FAILURE;
    } else if (status && !interrupted) {
        if (out.begun && !cli->json && qn_out_is_terminal())
            qn_out("\n", 1);
        code = qn_cli_fail_error(cli, &error);
    } else {
        if (!out.stream && !cli->json) {
            out.newline = result.size && result.text[result.size - 1] == '\n';
            if (!qn_out_text(result.text ? result.text : "", result.size))
                code = QN_EXIT_FAILURE;
        }
        if (!cli->json && !out.newline && qn_out_is_terminal())
            qn_out("\n", 1);
        if (cli->json && !code)
            code = print_summary(cli, model, &result);
        if (cli->args.flag[QN_FLAG_STATS].on || (interrupted && !cli->quiet))
            print_stats(model, &result);
        if (interrupted)
            code = qn_cli_signalled();
    }
    quern_result_free(&result);
    quern_session_free(session);
    return code;
}

int qn_cli_run(qn_cli *cli)
{
    const qn_arg *flag = cli->args.flag;
    if (flag[QN_FLAG_RAW].on && flag[QN_FLAG_SYSTEM].given) {
        qn_status status = qn_fail(QN_E_ARG, "--raw excludes --system");
        return qn_cli_fail_status(cli, status, NULL);
    }
    qn_buf prompt = QN_BUF_INIT, messages = QN_BUF_INIT;
    quern_model *model = NULL;
    int code;
    qn_status status = read_prompt(&cli->args, &prompt);
    if (!status && !flag[QN_FLAG_RAW].on)
        status = make_messages(flag[QN_FLAG_SYSTEM].text, qn_buf_str(&prompt),
                               &messages);
    if (status) {
        code = qn_cli_fail_status(cli, status, NULL);
        goto done;
    }
    code = qn_cli_load(cli, &model);
    if (code)
        goto done;
    quern_info info;
    quern_model_info(model, &info);
    if (!flag[QN_FLAG_RAW].on && !info.has_chat_template) {
        code = qn_cli_fail(cli, QUERN_E_UNSUPPORTED, info.path,
                           "the model has no chat template",
                           "--raw continues a text; --chat-template gives one");
        goto done;
    }
    quern_request request;
    quern_request_init(&request, model);
    set_request(&request, &cli->args);
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
