/* prepare.c: what a call asks, beside a model: tokens, limits, defaults. */
#include "common.h"

#include <inttypes.h>
#include <stdio.h>

/* ---- prompts ---- */

bool qn_take_id(int64_t *id, const qn_json *list, uint32_t i, int32_t limit,
                const char *path, qn_api_error *error)
{
    char place[QN_API_PARAM_SIZE];
    *id = -1;
    qn_json_as_int(&list->items[i], id);
    if (*id >= 0 && *id < limit)
        return true;
    snprintf(place, sizeof place, "%s[%u]", path, (unsigned)i);
    return qn_api_fail(error, QN_API_OUT_OF_RANGE, place,
                       "expected token ids 0..%d, found %" PRId64,
                       (int)limit - 1, *id);
}

bool qn_keep_ids(qn_api_call *call, qn_prompt *out, int32_t *ids, size_t count,
                 qn_api_error *error)
{
    int32_t *kept = qn_arena_alloc(&call->arena, (count + 1) * sizeof *kept);
    if (kept && count)
        memcpy(kept, ids, count * sizeof *kept);
    quern_free(ids);
    *out = (qn_prompt){.ids = kept, .count = count};
    return kept ? true : qn_api_fail_memory(error);
}

bool qn_prompt_of_text(qn_api_call *call, qn_prompt *out,
                       const quern_model *model, qn_str text,
                       qn_api_error *error)
{
    int32_t *ids;
    size_t count;
    quern_error cause;
    if (quern_tokenize(model, text.data, text.size,
                       QUERN_ADD_SPECIAL | QUERN_PARSE_SPECIAL, &ids, &count,
                       &cause))
        return qn_api_fail_runtime(error, &cause);
    if (!qn_keep_ids(call, out, ids, count, error))
        return false;
    quern_info info;
    quern_model_info(model, &info);
    /* As the runtime does with texts: a begin token that the text spells is
     * not doubled, and stands for an empty text. */
    if (out->count > 1 && info.bos_id >= 0 && out->ids[0] == info.bos_id &&
        out->ids[1] == info.bos_id) {
        out->ids++;
        out->count--;
    }
    if (!out->count && info.bos_id >= 0)
        out->ids[out->count++] = info.bos_id;
    return true;
}

/* ---- checkpoints ---- */

/* Of the prompt's tokens, how many the first `count` messages begin with, by
 * themselves or in front of an empty question; 0: the template refuses that. */
static size_t common_tokens(const quern_model *model, const quern_chat *chat,
                            const qn_json *messages, size_t count, bool asks,
                            const qn_prompt *prompt)
{
    qn_buf text = QN_BUF_INIT;
    qn_json_writer w;
    qn_json_write_begin(&w, &text);
    qn_json_write_array(&w);
    for (size_t i = 0; i < count; i++)
        qn_json_write_value(&w, &messages->items[i]);
    if (asks) {
        qn_json_write_object(&w);
        qn_json_pair_text(&w, "role", "user");
        qn_json_pair_text(&w, "content", "");
        qn_json_write_object_end(&w);
    }
    qn_json_write_array_end(&w);
    quern_chat part = *chat;
    int32_t *ids = NULL;
    size_t size = 0, same = 0;
    part.messages = text.data;
    part.add_generation_prompt = part.continue_final_message = false;
    if (!qn_buf_status(&text) &&
        !quern_render_ids(model, &part, &ids, &size, NULL))
        while (same < size && same < prompt->count &&
               ids[same] == prompt->ids[same])
            same++;
    quern_free(ids);
    qn_buf_free(&text);
    return same;
}

static bool is_system(const qn_json *message)
{
    qn_str role = {"", 0};
    qn_json_as_str(qn_json_get(message, "role"), &role);
    return qn_str_is(role, "system") || qn_str_is(role, "developer");
}

/* Where the next prompt of a conversation goes another way than this one: the
 * instructions end (another conversation), the last message begins (it is asked
 * anew), the messages end (the next turn, which has no prompt for an answer and
 * perhaps not what was thought).  Other boundaries were the last ones in
 * earlier turns. */
static size_t find_marks(const quern_model *model, const quern_chat *chat,
                         const qn_json *messages, const qn_prompt *prompt,
                         quern_checkpoint out[QN_TURN_MARKS])
{
    size_t all = messages->count, system = 0, made = 0, before = 0;
    while (system < all && is_system(&messages->items[system]))
        system++;
    const size_t ends[QN_TURN_MARKS] = {system < all ? system : 0, all - 1,
                                        chat->continue_final_message ? 0 : all};
    for (int i = 0; i < QN_TURN_MARKS; i++) {
        size_t n = 0;
        if (ends[i] && (!i || ends[i] != ends[i - 1]))
            n = common_tokens(model, chat, messages, ends[i], false, prompt);
        if (ends[i] && !n && ends[i] < all)
            n = common_tokens(model, chat, messages, ends[i], true, prompt);
        if (n <= before)
            continue;
        out[made++] = (quern_checkpoint){.tokens = n};
        before = n;
    }
    return made;
}

static bool mark_turn(qn_api_call *call, qn_prompt *prompt,
                      const quern_model *model, const quern_chat *chat,
                      qn_api_error *error)
{
    quern_info info;
    quern_prefix_stats kept;
    qn_json_doc *doc = NULL;
    quern_model_info(model, &info);
    /* It changes nothing of the model. */
    quern_model_prefixes((quern_model *)(uintptr_t)model, &kept);
    if (!info.forgets || !kept.limit || call->no_cache ||
        qn_json_parse(&doc, qn_str_of(chat->messages), 0))
        return true;
    const qn_json *messages = qn_json_root(doc);
    quern_checkpoint *marks =
        qn_arena_alloc(&call->arena, QN_TURN_MARKS * sizeof *marks);
    prompt->checkpoints = marks;
    if (marks && messages->type == QN_JSON_T_ARRAY && messages->count)
        prompt->checkpoint_count =
            find_marks(model, chat, messages, prompt, marks);
    qn_json_doc_free(doc);
    return marks ? true : qn_api_fail_memory(error);
}

bool qn_prompt_of_chat(qn_api_call *call, qn_prompt *out,
                       const quern_model *model, const quern_chat *chat,
                       qn_api_error *error)
{
    int32_t *ids;
    size_t count;
    quern_error cause;
    quern_status status = quern_render_ids(model, chat, &ids, &count, &cause);
    if (status == QUERN_E_ARG)
        return qn_api_fail(error, QN_API_TEMPLATE_ERROR, "messages", "%s",
                           cause.message);
    if (status == QUERN_E_UNSUPPORTED)
        return qn_api_fail(error, QN_API_TEMPLATE_UNSUPPORTED, NULL, "%s",
                           cause.message);
    if (status)
        return qn_api_fail_runtime(error, &cause);
    return qn_keep_ids(call, out, ids, count, error) &&
           mark_turn(call, out, model, chat, error);
}

/* ---- limits ---- */

/* Whether an answer fits behind the prompt; *max_tokens: how long it may be. */
static bool fit_answer(int64_t *max_tokens, const qn_api_model *model,
                       const qn_prompt *prompt, const qn_lengths *lengths,
                       size_t index, qn_api_error *error)
{
    char path[QN_API_PARAM_SIZE];
    snprintf(path, sizeof path, lengths->list ? "%s[%zu]" : "%s",
             lengths->prompt, index);
    int64_t size = (int64_t)prompt->count, left = model->ctx - size;
    if (!size)
        return qn_api_fail(error, QN_API_EMPTY_PROMPT, path,
                           "the prompt has no tokens");
    if (left < 1)
        return qn_api_fail(error, QN_API_CONTEXT_LENGTH_EXCEEDED, path,
                           "the prompt has %" PRId64
                           " tokens, and the context of %" PRId64
                           " holds at most %" PRId64 " before an answer",
                           size, model->ctx, model->ctx - 1);
    if (lengths->asked > left)
        return qn_api_fail(
            error, QN_API_CONTEXT_LENGTH_EXCEEDED, lengths->max_tokens,
            "the prompt's %" PRId64 " tokens and an answer of %" PRId64
            " do not fit the context of %" PRId64,
            size, lengths->asked, model->ctx);
    int64_t wanted = lengths->asked ? lengths->asked : lengths->fallback;
    if (wanted < 0) /* to the end */
        wanted = left;
    *max_tokens = wanted < left ? wanted : left;
    return true;
}

static bool check_biases(const qn_api_call *call, const qn_api_model *model,
                         qn_api_error *error)
{
    const quern_sampling *s = &call->asked.sampling;
    quern_info info;
    char path[32];
    quern_model_info(model->model, &info);
    for (size_t i = 0; i < s->logit_bias_count; i++) {
        int id = (int)s->logit_bias[i].id;
        snprintf(path, sizeof path, "logit_bias.%d", id);
        if (id >= info.vocab_size)
            return qn_api_fail(error, QN_API_OUT_OF_RANGE, path,
                               "expected token ids 0..%d, found %d",
                               (int)info.vocab_size - 1, id);
    }
    return true;
}

/* ---- requests ---- */

void qn_sampling_as_mlx_lm(quern_sampling *sampling)
{
    *sampling = (quern_sampling){
        .top_p = 1,
        .typical_p = 1,
        .repetition_context_size = sampling->repetition_context_size,
        .presence_context_size = sampling->presence_context_size,
        .frequency_context_size = sampling->frequency_context_size,
    };
}

/* The model's defaults, with what the call says in their place. */
static void fill_request(quern_request *out, const qn_api_call *call,
                         const qn_api_model *model)
{
    const size_t base = offsetof(qn_api_call, asked);
    const quern_request *asked = &call->asked;
    quern_request_init(out, model->model);
    if (model->sampling)
        out->sampling = *model->sampling;
    else if (call->server->compat_mlx_lm)
        qn_sampling_as_mlx_lm(&out->sampling);
    for (size_t i = 0; i < qn_request_field_count; i++) {
        const qn_field *f = &qn_request_fields[i];
        if (f->size && call->given >> i & 1)
            memcpy((char *)out + (f->to - base),
                   (const char *)asked + (f->to - base), f->size);
    }
    quern_sampling *s = &out->sampling;
    if (s->repetition_context_size < 0) { /* repeat_last_n 0 */
        s->repetition_penalty = 0;
        s->presence_penalty = 0;
        s->frequency_penalty = 0;
        s->repetition_context_size = 0;
        s->presence_context_size = 0;
        s->frequency_context_size = 0;
    }
    s->logit_bias = asked->sampling.logit_bias;
    s->logit_bias_count = asked->sampling.logit_bias_count;
    s->has_seed = true;
    out->stops = asked->stops;
    out->stop_count = asked->stop_count;
    out->logprobs = asked->logprobs;
    out->top_logprobs = asked->top_logprobs;
    out->prompt_logprobs = asked->prompt_logprobs;
    out->num_draft = asked->num_draft;
    out->no_cache = call->no_cache;
    out->tools = call->tools.json;
    out->single_call = call->tools.single;
    out->chat = (quern_chat){0};
}

bool qn_prepare_requests(qn_api_call *call, const qn_api_model *model,
                         const qn_api_head *head, const qn_prompt *prompts,
                         size_t count, const qn_lengths *lengths,
                         qn_api_error *error)
{
    size_t n = (size_t)call->n;
    quern_request base;
    if (call->wants_draft && !model->drafts)
        return qn_api_fail(error, QN_API_UNSUPPORTED_VALUE,
                           "speculative.enabled",
                           "the server was started without speculation");
    if (!check_biases(call, model, error))
        return false;
    call->requests =
        qn_arena_alloc(&call->arena, (count * n + 1) * sizeof *call->requests);
    if (!call->requests)
        return qn_api_fail_memory(error);
    fill_request(&base, call, model);
    call->seed =
        call->asked.sampling.has_seed ? call->asked.sampling.seed : head->seed;
    call->sampled = base.sampling.temperature > 0;
    for (size_t p = 0; p < count; p++) {
        if (!fit_answer(&base.max_tokens, model, &prompts[p], lengths, p,
                        error))
            return false;
        if (base.min_tokens > base.max_tokens)
            return qn_api_fail(error, QN_API_OUT_OF_RANGE, "min_tokens",
                               "expected at most %" PRId64
                               ", which the answer may have, found %" PRId64,
                               base.max_tokens, base.min_tokens);
        base.ids = prompts[p].ids;
        base.id_count = prompts[p].count;
        base.checkpoints = prompts[p].checkpoints;
        base.checkpoint_count = prompts[p].checkpoint_count;
        for (size_t i = 0; i < n; i++) {
            base.sampling.seed = (call->seed + i) & INT64_MAX;
            call->requests[p * n + i] = base;
        }
    }
    call->count = count * n;
    return true;
}
