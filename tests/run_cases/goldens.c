/* goldens.c: tokens and log probabilities of the demo model.
 *
 * The model is the file that QUERN_DEMO_MODEL names, else the one that
 * scripts/fetch-model.sh keeps in the cache. */
#include "case.h"

#include "base/alloc.h"
#include "base/file.h"

#include <quern/quern.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Below this lead of the first token over the second another may win. */
static const double CLEAR_MARGIN = 0.02, LOGPROB_BOUND = 0.01;

static char *model_path(void)
{
    static const char name[] = "quern/models/SmolLM2-135M-Instruct.Q4_1.gguf";
    const char *given = getenv("QUERN_DEMO_MODEL");
    if (given && *given)
        return qn_strdup(given);
    const char *cache = getenv("XDG_CACHE_HOME");
    if (cache && *cache)
        return qn_path_join(cache, name);
    const char *home = getenv("HOME");
    char *folder = qn_path_join(home ? home : "/", ".cache");
    char *path = folder ? qn_path_join(folder, name) : NULL;
    qn_free(folder);
    return path;
}

static bool same_ids(const qn_json *wanted, const int32_t *ids, size_t count,
                     const char *what)
{
    for (size_t i = 0; i < count || i < wanted->count; i++) {
        int64_t id = -1;
        qn_json_as_int(qn_json_at(wanted, i), &id);
        if (i >= count || i >= wanted->count || id != ids[i]) {
            case_fail("%s: at %zu expected %lld, found %d (%u and %zu ids)",
                      what, i, (long long)id, i < count ? ids[i] : -1,
                      wanted->count, count);
            return false;
        }
    }
    return true;
}

static int32_t *read_ids(const qn_json *list, size_t *count)
{
    int32_t *ids = qn_calloc((size_t)list->count + 1, sizeof *ids);
    *count = ids ? list->count : 0;
    for (size_t i = 0; i < *count; i++) {
        int64_t id = 0;
        qn_json_as_int(&list->items[i], &id);
        ids[i] = (int32_t)id;
    }
    return ids;
}

/* [system,] user as JSON. */
static void write_messages(const qn_json *c, qn_buf *out)
{
    qn_json_writer w;
    qn_str system;
    qn_json_write_begin(&w, out);
    qn_json_write_array(&w);
    if (qn_json_as_str(qn_json_get(c, "system"), &system)) {
        qn_json_write_object(&w);
        qn_json_write_key(&w, "role");
        qn_json_write_text(&w, "system");
        qn_json_write_key(&w, "content");
        qn_json_write_str(&w, system);
        qn_json_write_object_end(&w);
    }
    qn_json_write_object(&w);
    qn_json_write_key(&w, "role");
    qn_json_write_text(&w, "user");
    qn_json_write_key(&w, "content");
    qn_json_write_str(&w, case_text(c, "prompt"));
    qn_json_write_object_end(&w);
    qn_json_write_array_end(&w);
}

/* 1. the prompt's text and ids, and the answer's text */
static void check_prompt(const quern_model *model, const qn_json *c)
{
    qn_str rendered = case_text(c, "rendered"), text;
    quern_error error;
    char *found = NULL;
    size_t size, count;
    int32_t *ids = NULL;
    quern_status status;
    if (case_bool(c, "chat", false)) {
        qn_buf messages = QN_BUF_INIT;
        quern_chat chat;
        write_messages(c, &messages);
        quern_chat_init(&chat);
        chat.messages = messages.data;
        status = quern_render(model, &chat, &found, &size, &error);
        if (status)
            case_fail("rendering: %s", error.message);
        else if (!qn_str_eq(rendered, (qn_str){found, size}))
            case_fail("rendered: expected \"%.*s\", found \"%s\"",
                      (int)rendered.size, rendered.data, found);
        status = quern_render_ids(model, &chat, &ids, &count, &error);
        quern_free(found);
        qn_buf_free(&messages);
    } else {
        status = quern_tokenize(model, rendered.data, rendered.size,
                                QUERN_PARSE_SPECIAL, &ids, &count, &error);
    }
    if (status)
        case_fail("prompt ids: %s", error.message);
    else
        same_ids(qn_json_get(c, "prompt_ids"), ids, count, "prompt_ids");
    quern_free(ids);
    ids = read_ids(qn_json_get(c, "greedy_ids"), &count);
    text = case_text(c, "greedy_text");
    if (quern_detokenize(model, ids, count, false, &found, &size, &error))
        case_fail("decoding: %s", error.message);
    else if (!qn_str_eq(text, (qn_str){found, size}))
        case_fail("greedy_text: expected \"%.*s\", found \"%s\"",
                  (int)text.size, text.data, found);
    quern_free(found);
    qn_free(ids);
}

static int32_t likeliest(const float *values, int32_t count)
{
    int32_t best = 0;
    for (int32_t i = 1; i < count; i++)
        if (values[i] > values[best])
            best = i;
    return best;
}

/* 2. log probabilities along the reference's answer */
static void check_steps(quern_session *session, const qn_json *c, int32_t vocab,
                        double *largest)
{
    const qn_json *steps = qn_json_get(c, "steps");
    quern_error error;
    size_t count, answer;
    int32_t *prompt = read_ids(qn_json_get(c, "prompt_ids"), &count);
    int32_t *greedy = read_ids(qn_json_get(c, "greedy_ids"), &answer);
    float *found = qn_calloc((size_t)vocab, sizeof *found);
    quern_status status = quern_session_feed(session, prompt, count, &error);
    for (uint32_t s = 0; !status && s < steps->count; s++) {
        const qn_json *step = &steps->items[s];
        const qn_json *ids = qn_json_get(step, "top_ids");
        const qn_json *values = qn_json_get(step, "top_logprobs");
        double margin = 0;
        int64_t first = -1;
        qn_json_as_double(qn_json_get(step, "margin"), &margin);
        qn_json_as_int(qn_json_at(ids, 0), &first);
        status = quern_session_log_probs(session, found, &error);
        if (status)
            break;
        int32_t top = likeliest(found, vocab);
        if (margin >= CLEAR_MARGIN && top != first)
            case_fail("step %u: expected token %lld, found %d", s,
                      (long long)first, top);
        for (uint32_t i = 0; i < ids->count; i++) {
            int64_t id = 0;
            double wanted = 0;
            qn_json_as_int(&ids->items[i], &id);
            qn_json_as_double(qn_json_at(values, i), &wanted);
            double gap = fabs((double)found[id] - wanted);
            if (gap > *largest)
                *largest = gap;
            if (!(gap <= LOGPROB_BOUND))
                case_fail("step %u: log probability of %lld: expected %.5f, "
                          "found %.5f",
                          s, (long long)id, wanted, (double)found[id]);
        }
        if (s + 1 < steps->count && s < answer)
            status = quern_session_feed(session, &greedy[s], 1, &error);
    }
    if (status)
        case_fail("steps: %s", error.message);
    qn_free(prompt);
    qn_free(greedy);
    qn_free(found);
}

/* 3. running freely */
static void check_free(quern_session *session, const quern_model *model,
                       const qn_json *c)
{
    const qn_json *steps = qn_json_get(c, "steps");
    quern_request request;
    quern_result result;
    quern_error error;
    size_t count, answer;
    int32_t *prompt = read_ids(qn_json_get(c, "prompt_ids"), &count);
    int32_t *greedy = read_ids(qn_json_get(c, "greedy_ids"), &answer);
    size_t clear = 0;
    for (; clear < steps->count && clear < answer; clear++) {
        double margin = 0;
        qn_json_as_double(qn_json_get(&steps->items[clear], "margin"), &margin);
        if (margin < CLEAR_MARGIN)
            break;
    }
    memset(&result, 0, sizeof result);
    quern_request_init(&request, model);
    request.ids = prompt;
    request.id_count = count;
    request.sampling.temperature = 0;
    request.max_tokens = (int64_t)answer;
    if (quern_generate(session, &request, NULL, NULL, &result, &error)) {
        case_fail("generation: %s", error.message);
    } else {
        for (size_t i = 0; i < clear; i++) {
            int32_t id =
                i < result.token_count ? result.tokens[i].id : result.end_id;
            if (id == greedy[i] &&
                (i < result.token_count || i == result.token_count))
                continue;
            case_fail("free run: token %zu: expected %d, found %d", i,
                      greedy[i], id);
            break;
        }
    }
    quern_result_free(&result);
    qn_free(prompt);
    qn_free(greedy);
}

void run_golden_case(const qn_json *c, const case_context *context)
{
    (void)context;
    quern_options options;
    quern_model *model = NULL;
    quern_session *session = NULL;
    quern_error error;
    char *path = model_path();
    quern_options_init(&options);
    options.dtype = QUERN_DTYPE_F32;
    options.kv = "f32";
    double largest = 0;
    if (!path || quern_model_load(&model, path, &options, &error) ||
        quern_session_new(&session, model, &error)) {
        case_fail("%s: %s (scripts/fetch-model.sh fetches it)",
                  path ? path : "", path ? error.message : "out of memory");
    } else {
        quern_info info;
        quern_model_info(model, &info);
        check_prompt(model, c);
        check_steps(session, c, info.vocab_size, &largest);
        quern_session_reset(session);
        check_free(session, model, c);
        printf("    largest difference of a log probability: %.5f\n", largest);
    }
    quern_session_free(session);
    quern_model_free(model);
    qn_free(path);
}
