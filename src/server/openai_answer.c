/* openai_answer.c: whole answers of chat completions and completions (server
 * specification, sections 5 and 8). */
#include "openai.h"
#include "tools.h"

#include <math.h>

/* ---- what both have ---- */

const char *qn_reasoning_name(const qn_api_call *call)
{
    return call->server->compat_mlx_lm ? "reasoning" : "reasoning_content";
}

qn_logprob_style qn_logprob_style_of(const qn_api_call *call, bool chat)
{
    if (!call->asked.logprobs)
        return QN_LOGPROBS_NONE;
    if (call->server->compat_mlx_lm)
        return QN_LOGPROBS_MLX;
    return chat ? QN_LOGPROBS_CHAT : QN_LOGPROBS_LEGACY;
}

static double longer(double a, double b)
{
    return a > b ? a : b;
}

void qn_openai_count(qn_openai_usage *u, const quern_result *result,
                     size_t index, int32_t n)
{
    if (index % (size_t)n == 0) {
        u->prompt += result->prompt_tokens;
        u->cached += result->cached_tokens;
    }
    u->completion += result->completion_tokens;
    u->reasoning += result->reasoning_tokens;
    u->drafted += result->drafted;
    u->accepted += result->accepted;
    u->computed += result->prompt_tokens - result->cached_tokens;
    u->decoded += result->completion_tokens - (result->completion_tokens > 0);
    u->queue = longer(u->queue, result->queue_seconds);
    u->prefill = longer(u->prefill, result->prompt_seconds);
    u->first = longer(u->first, result->first_token_seconds);
    u->decode = longer(u->decode, result->decode_seconds);
}

void qn_openai_write_usage(qn_json_writer *w, const qn_openai_usage *u)
{
    qn_json_write_key(w, "usage");
    qn_json_write_object(w);
    qn_json_pair_int(w, "prompt_tokens", u->prompt);
    qn_json_pair_int(w, "completion_tokens", u->completion);
    qn_json_pair_int(w, "total_tokens", u->prompt + u->completion);
    qn_json_write_key(w, "prompt_tokens_details");
    qn_json_write_object(w);
    qn_json_pair_int(w, "cached_tokens", u->cached);
    qn_json_write_object_end(w);
    qn_json_write_key(w, "completion_tokens_details");
    qn_json_write_object(w);
    qn_json_pair_int(w, "reasoning_tokens", u->reasoning);
    qn_json_pair_int(w, "accepted_prediction_tokens", u->accepted);
    qn_json_pair_int(w, "rejected_prediction_tokens", u->drafted - u->accepted);
    qn_json_write_object_end(w);
    qn_json_write_object_end(w);
}

/* Three digits are more than a clock is good for. */
static void write_rounded(qn_json_writer *w, const char *key, double value)
{
    qn_json_write_key(w, key);
    qn_json_write_double(w, round(value * 1e3) / 1e3);
}

static double rate(int64_t tokens, double seconds)
{
    return seconds > 0 ? (double)tokens / seconds : 0;
}

void qn_openai_write_timings(qn_json_writer *w, const qn_openai_usage *u)
{
    qn_json_write_key(w, "timings");
    qn_json_write_object(w);
    write_rounded(w, "queue_ms", u->queue * 1e3);
    write_rounded(w, "prompt_ms", u->prefill * 1e3);
    write_rounded(w, "ttft_ms", u->first * 1e3);
    write_rounded(w, "decode_ms", u->decode * 1e3);
    write_rounded(w, "prompt_per_second", rate(u->computed, u->prefill));
    write_rounded(w, "decode_per_second", rate(u->decoded, u->decode));
    qn_json_write_object_end(w);
}

void qn_openai_write_head(qn_json_writer *w, const qn_api_head *head,
                          const char *prefix, const char *object)
{
    char id[QN_API_ID_SIZE];
    qn_api_id(id, head, prefix, 0);
    qn_json_write_key(w, "id");
    qn_json_write_text(w, id);
    qn_json_write_key(w, "object");
    qn_json_write_text(w, object);
    qn_json_write_key(w, "created");
    qn_json_write_int(w, head->created);
    qn_json_write_key(w, "model");
    qn_json_write_text(w, head->model);
    qn_json_write_key(w, "system_fingerprint");
    qn_json_write_text(w, head->fingerprint);
}

/* ---- choices ---- */

/* "logprobs": ..., "finish_reason": ...; `prompt` has the log probabilities of
 * the prompt, if there are any. */
static void write_choice_end(qn_json_writer *w, const quern_result *result,
                             const quern_result *prompt, qn_logprob_style style,
                             int64_t offset)
{
    qn_logprobs l = {.style = style, .offset = offset};
    if (prompt && prompt->prompt)
        qn_logprobs_add_prompt(&l, prompt->prompt,
                               (size_t)prompt->prompt_tokens);
    qn_logprobs_add(&l, result->tokens, result->token_count);
    qn_json_write_key(w, "logprobs");
    qn_json_write_raw(w, (qn_str){"", 0});
    qn_logprobs_write(&l, w->out);
    qn_logprobs_free(&l);
    qn_json_write_key(w, "finish_reason");
    qn_json_write_text(w, quern_finish_name(result->finish));
}

static void write_reasoning(qn_json_writer *w, const qn_api_call *call,
                            const quern_result *result)
{
    if (!result->reasoning_size)
        return;
    qn_json_write_key(w, qn_reasoning_name(call));
    qn_json_write_str(w, (qn_str){result->reasoning, result->reasoning_size});
}

static void write_calls(qn_json_writer *w, const qn_api_head *head,
                        const quern_result *result, size_t index)
{
    if (!result->call_count)
        return;
    qn_json_write_key(w, "tool_calls");
    qn_json_write_array(w);
    for (size_t i = 0; i < result->call_count; i++) {
        const quern_call *made = &result->calls[i];
        char id[QN_API_ID_SIZE];
        qn_call_id(id, head, "call_", index, i);
        qn_json_write_object(w);
        qn_json_pair_text(w, "id", id);
        qn_json_pair_text(w, "type", "function");
        qn_json_write_key(w, "function");
        qn_json_write_object(w);
        qn_json_pair_text(w, "name", made->name);
        qn_json_write_key(w, "arguments");
        qn_json_write_str(w, (qn_str){made->arguments, made->size});
        qn_json_write_object_end(w);
        qn_json_write_object_end(w);
    }
    qn_json_write_array_end(w);
}

static void write_message(qn_json_writer *w, const qn_api_call *call,
                          const qn_api_head *head, const quern_result *result,
                          size_t index)
{
    qn_json_write_key(w, "message");
    qn_json_write_object(w);
    qn_json_write_key(w, "role");
    qn_json_write_text(w, "assistant");
    qn_json_write_key(w, "content");
    if (result->call_count && !result->size)
        qn_json_write_null(w);
    else
        qn_json_write_str(w, (qn_str){result->text, result->size});
    qn_json_write_key(w, "refusal");
    qn_json_write_null(w);
    write_reasoning(w, call, result);
    write_calls(w, head, result, index);
    qn_json_write_object_end(w);
}

/* The prompt, where it is echoed, and the answer. */
static int64_t write_text(qn_json_writer *w, const qn_api_call *call,
                          const quern_result *result, size_t index)
{
    qn_str echo = qn_completions_echo(call, index);
    qn_buf text = QN_BUF_INIT;
    qn_buf_add_str(&text, echo);
    qn_buf_add(&text, result->text, result->size);
    w->out->failed = w->out->failed || text.failed;
    qn_json_write_key(w, "text");
    qn_json_write_str(w, qn_buf_str(&text));
    qn_buf_free(&text);
    write_reasoning(w, call, result);
    return qn_characters(echo);
}

static void write_answer(qn_buf *out, const qn_api_call *call,
                         const qn_api_head *head, const quern_result *results,
                         bool chat)
{
    qn_openai_usage usage = {0};
    qn_logprob_style style = qn_logprob_style_of(call, chat);
    qn_json_writer w;
    qn_json_write_begin(&w, out);
    qn_json_write_object(&w);
    qn_openai_write_head(&w, head, chat ? "chatcmpl-" : "cmpl-",
                         chat ? "chat.completion" : "text_completion");
    qn_json_write_key(&w, "choices");
    qn_json_write_array(&w);
    for (size_t i = 0; i < call->count; i++) {
        int64_t offset = 0;
        const quern_result *prompt = NULL;
        quern_result shown = results[i];
        qn_json_write_object(&w);
        qn_json_write_key(&w, "index");
        qn_json_write_int(&w, (int64_t)i);
        if (chat) {
            write_message(&w, call, head, &shown, i);
        } else {
            shown = qn_completions_shown(call, &results[i]);
            prompt = &results[i - i % (size_t)call->n];
            offset = write_text(&w, call, &shown, i);
        }
        write_choice_end(&w, &shown, prompt, style, offset);
        qn_json_write_object_end(&w);
        qn_openai_count(&usage, &shown, i, call->n);
    }
    qn_json_write_array_end(&w);
    qn_openai_write_usage(&w, &usage);
    qn_openai_write_timings(&w, &usage);
    qn_json_write_object_end(&w);
}

void qn_chat_answer(qn_buf *out, const qn_api_call *call,
                    const qn_api_head *head, const quern_result *results)
{
    write_answer(out, call, head, results, true);
}

void qn_completions_answer(qn_buf *out, const qn_api_call *call,
                           const qn_api_head *head, const quern_result *results)
{
    write_answer(out, call, head, results, false);
}
