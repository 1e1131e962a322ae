/* kv.c: runs of a tiny model whose caches are cut, packed, batched or guessed
 * ahead of (cases/README.md, kv.jsonl). */
#include "case.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "base/file.h"

#include <quern/quern.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MOST_ROWS = 16, END_ID = 324 };

typedef struct ids {
    int32_t *data;
    size_t count;
} ids;

static void free_ids(ids *list)
{
    qn_free(list->data);
    *list = (ids){NULL, 0};
}

static ids new_ids(size_t count)
{
    ids list = {qn_calloc(count + 1, sizeof *list.data), count};
    if (!list.data)
        list.count = 0;
    return list;
}

static ids read_list(const qn_json *list)
{
    ids out = new_ids(list ? list->count : 0);
    for (size_t i = 0; i < out.count; i++) {
        int64_t id = -1;
        if (!qn_json_as_int(&list->items[i], &id))
            case_fail("case: an id is no integer");
        out.data[i] = (int32_t)id;
    }
    return out;
}

/* `prompt_ids`, or `prompt_repeat`: [id, n]. */
static ids read_prompt(const qn_json *input)
{
    const qn_json *repeat = qn_json_get(input, "prompt_repeat");
    int64_t id = 0, n = 0;
    if (!repeat)
        return read_list(qn_json_get(input, "prompt_ids"));
    qn_json_as_int(qn_json_at(repeat, 0), &id);
    qn_json_as_int(qn_json_at(repeat, 1), &n);
    ids out = new_ids((size_t)n);
    for (size_t i = 0; i < out.count; i++)
        out.data[i] = (int32_t)id;
    return out;
}

/* ---- what is run ---- */

/* One way of running a case. */
typedef struct way {
    const char *model, *draft; /* folders; NULL: no draft */
    const char *kv;
    int64_t start; /* of packing */
    int chunk, num_draft;
} way;

static bool knows(const qn_json *input)
{
    static const char *const keys[] = {
        "fixture",       "prompt_ids",      "prompt_repeat",
        "max_tokens",    "requests",        "batch",
        "schedule",      "window",          "prefill_chunks",
        "kv_bits",       "kv_group_size",   "quantized_kv_start",
        "draft_fixture", "num_draft_tokens"};
    for (uint32_t i = 0; i < input->count; i++) {
        bool known = false;
        for (size_t j = 0; j < sizeof keys / sizeof *keys; j++)
            known = known || qn_str_is(input->keys[i], keys[j]);
        if (!known) {
            case_fail("case: key %.*s is not implemented",
                      (int)input->keys[i].size, input->keys[i].data);
            return false;
        }
    }
    return true;
}

/* A copy of a fixture that never ends by itself, with the window and the
 * per-layer settings that the case asks for. */
static char *prepare(const case_context *context, qn_str fixture,
                     const char *name, const qn_json *input)
{
    enum { LAYERS = 2 }; /* of every fixture */
    int64_t window = case_int(input, "window", 0);
    int64_t bits = case_int(input, "kv_bits", 0);
    qn_buf source = QN_BUF_INIT, patch = QN_BUF_INIT, kv = QN_BUF_INIT;
    qn_json_doc *doc = NULL;
    qn_buf_printf(&source, "%s/fixtures/%.*s", context->folder,
                  (int)fixture.size, fixture.data);
    qn_buf_printf(&patch, "{\"eos_token_id\": %d", END_ID);
    if (window)
        qn_buf_printf(&patch,
                      ", \"sliding_window\": %lld, \"layer_types\": "
                      "[\"sliding_attention\", \"sliding_attention\"]",
                      (long long)window);
    qn_buf_add_text(&patch, "}");
    for (int i = 0; i < LAYERS; i++)
        qn_buf_printf(&kv,
                      "%s{\"layer_idx\": %d, \"bits\": %lld, \"group_size\": "
                      "%lld}",
                      i ? ", " : "[", i, (long long)bits,
                      (long long)case_int(input, "kv_group_size", 64));
    qn_buf_add_text(&kv, "]");
    char *folder = qn_path_join(context->scratch, name);
    char *path = folder ? qn_path_join(folder, "kv_config.json") : NULL;
    bool good = path && !qn_buf_status(&patch) && !qn_buf_status(&kv) &&
                !qn_buf_status(&source) &&
                !qn_json_parse(&doc, qn_buf_str(&patch), 0) &&
                case_copy_folder(source.data, folder) &&
                case_patch_config(folder, qn_json_root(doc)) &&
                (!bits || !qn_file_write_atomic(path, kv.data, kv.size));
    if (!good)
        case_fail("case: the model can't be prepared");
    qn_json_doc_free(doc);
    qn_buf_free(&source);
    qn_buf_free(&patch);
    qn_buf_free(&kv);
    qn_free(path);
    return folder;
}

static quern_model *load(const way *w, quern_error *error)
{
    quern_options options;
    quern_model *model = NULL;
    quern_options_init(&options);
    options.dtype = QUERN_DTYPE_F32;
    options.kv = w->kv;
    options.kv_quant_start = w->start;
    options.prefill_chunk = w->chunk;
    options.draft = w->draft;
    options.num_draft = w->num_draft;
    return quern_model_load(&model, w->model, &options, error) ? NULL : model;
}

static quern_request request_of(const quern_model *model, const ids *prompt,
                                int64_t max_tokens)
{
    quern_request r;
    quern_request_init(&r, model);
    r.ids = prompt->data;
    r.id_count = prompt->count;
    r.max_tokens = max_tokens;
    r.sampling.temperature = 0;
    return r;
}

static void fail_with(const quern_error *error)
{
    case_fail("%s: %s", error->where, error->message);
}

/* ---- what has to come out ---- */

static bool check_result(const quern_result *found, const ids *expected,
                         bool quietly, const char *what)
{
    bool same = found->token_count == expected->count;
    for (size_t i = 0; same && i < expected->count; i++) {
        same = found->tokens[i].id == expected->data[i];
        if (!same && !quietly)
            case_fail("%s: token %zu: expected %d, found %d", what, i,
                      expected->data[i], found->tokens[i].id);
    }
    if (found->token_count != expected->count && !quietly)
        case_fail("%s: expected %zu tokens, found %zu", what, expected->count,
                  found->token_count);
    return same;
}

/* The logits of each step when the expected ids are fed one by one. */
static float *logits_of(const way *w, const ids *prompt, const ids *answer,
                        size_t *row)
{
    quern_error error;
    quern_session *session = NULL;
    quern_info info;
    quern_model *model = load(w, &error);
    float *out = NULL;
    bool good = model && !quern_session_new(&session, model, &error);
    if (good) {
        quern_model_info(model, &info);
        *row = (size_t)info.vocab_size;
        out = qn_calloc(answer->count * *row, sizeof *out);
        good = out && !quern_session_feed(session, prompt->data, prompt->count,
                                          &error);
    }
    for (size_t i = 0; good && i < answer->count; i++) {
        good = !quern_session_logits(session, out + i * *row, &error);
        if (good && i + 1 < answer->count)
            good = !quern_session_feed(session, &answer->data[i], 1, &error);
    }
    if (!good)
        fail_with(&error);
    quern_session_free(session);
    quern_model_free(model);
    return out;
}

/* Beside those of the same run with a cache in floats. */
static void check_logits(const way *w, const ids *prompt, const ids *answer,
                         double limit)
{
    size_t row = 0;
    way plain = *w;
    plain.kv = "f32";
    plain.start = 0;
    float *a = logits_of(w, prompt, answer, &row);
    float *b = logits_of(&plain, prompt, answer, &row);
    double worst = 0;
    for (size_t i = 0; a && b && i < row * answer->count; i++)
        worst = fmax(worst, fabs((double)a[i] - (double)b[i]));
    if (!(worst <= limit))
        case_fail("logits: off by at most %g allowed, found %g", limit, worst);
    qn_free(a);
    qn_free(b);
}

/* ---- the forms of a case ---- */

static void check_error(quern_status status, const quern_error *error,
                        const qn_json *expect)
{
    char text[2 * QUERN_ERROR_SIZE + 4];
    snprintf(text, sizeof text, "%s: %s", error->where, error->message);
    if (!status)
        case_fail("expected an error, found none");
    else
        case_check_message(qn_json_get(expect, "message_contains"), text);
}

/* Runs one after the other in one session, the last of which counts. */
static void run_requests(const way *w, const qn_json *const *inputs,
                         size_t count, const qn_json *expect,
                         const char *expected_key)
{
    quern_error error;
    quern_session *session = NULL;
    quern_model *model = load(w, &error);
    ids expected = read_list(qn_json_get(expect, expected_key)), prompt = {0};
    double within = 0;
    bool loose =
        qn_json_as_double(qn_json_get(expect, "or_logits_within"), &within);
    bool failing = case_bool(expect, "error", false);
    if (!model || quern_session_new(&session, model, &error)) {
        fail_with(&error);
        count = 0;
    }
    for (size_t i = 0; i < count; i++) {
        free_ids(&prompt);
        prompt = read_prompt(inputs[i]);
        quern_request r =
            request_of(model, &prompt, case_int(inputs[i], "max_tokens", 1));
        quern_result result;
        quern_status status =
            quern_generate(session, &r, NULL, NULL, &result, &error);
        bool last = i + 1 == count;
        if (failing && last)
            check_error(status, &error, expect);
        else if (status)
            fail_with(&error);
        else if (last && !check_result(&result, &expected, loose, "answer") &&
                 loose)
            check_logits(w, &prompt, &expected, within);
        quern_result_free(&result);
    }
    quern_session_free(session);
    quern_model_free(model);
    free_ids(&prompt);
    free_ids(&expected);
}

/* Takes events of the first job until it has given `steps` tokens. */
static void wait_for(quern_job *job, int64_t *given, int64_t steps)
{
    quern_event event;
    while (*given < steps && quern_job_next(job, -1, &event)) {
        *given += (int64_t)event.token_count;
        if (event.type == QUERN_EVENT_DONE)
            break;
    }
}

/* Rows side by side: all at once, or when the first has come so far. */
static void run_rows(const way *w, const qn_json *rows, const qn_json *expect)
{
    quern_error error;
    quern_model *model = load(w, &error);
    quern_job *jobs[MOST_ROWS] = {NULL};
    ids prompts[MOST_ROWS] = {{NULL, 0}};
    const qn_json *each = qn_json_get(expect, "greedy_ids_each");
    int64_t given = 0;
    if (!model)
        fail_with(&error);
    if (rows->count > MOST_ROWS || !each || each->count != rows->count)
        case_fail("case: more rows than %d, or other answers", MOST_ROWS);
    for (uint32_t i = 0; i < rows->count && !case_failed(); i++) {
        const qn_json *row = &rows->items[i];
        prompts[i] = read_prompt(row);
        quern_request r =
            request_of(model, &prompts[i], case_int(row, "max_tokens", 1));
        if (i)
            wait_for(jobs[0], &given, case_int(row, "at_step", 0));
        if (quern_submit(&jobs[i], model, NULL, &r, &error))
            fail_with(&error);
    }
    for (uint32_t i = 0; i < rows->count && jobs[i]; i++) {
        char what[32];
        quern_result result;
        ids expected = read_list(&each->items[i]);
        snprintf(what, sizeof what, "row %u", (unsigned)i);
        if (quern_job_result(jobs[i], &result, &error))
            fail_with(&error);
        else
            check_result(&result, &expected, false, what);
        quern_result_free(&result);
        free_ids(&expected);
    }
    for (uint32_t i = 0; i < MOST_ROWS; i++) {
        quern_job_free(jobs[i]);
        free_ids(&prompts[i]);
    }
    quern_model_free(model);
}

static void run_way(const way *w, const qn_json *input, const qn_json *expect)
{
    const qn_json *requests = qn_json_get(input, "requests");
    const qn_json *batch = qn_json_get(input, "batch");
    const qn_json *list[MOST_ROWS];
    if (!batch)
        batch = qn_json_get(input, "schedule");
    if (batch) {
        run_rows(w, batch, expect);
    } else if (requests && requests->count <= MOST_ROWS) {
        for (uint32_t i = 0; i < requests->count; i++)
            list[i] = &requests->items[i];
        run_requests(w, list, requests->count, expect, "greedy_ids_of_second");
    } else {
        run_requests(w, &input, 1, expect, "greedy_ids");
    }
}

/* Number `i` of a list, or a single number; false behind the last. */
static bool number_at(const qn_json *value, uint32_t i, int64_t *out)
{
    if (!value)
        return i == 0;
    if (value->type == QN_JSON_T_ARRAY)
        return i < value->count && qn_json_as_int(&value->items[i], out);
    return i == 0 && qn_json_as_int(value, out);
}

void run_kv_case(const qn_json *c, const case_context *context)
{
    const qn_json *input = qn_json_get(c, "input");
    const qn_json *expect = qn_json_get(c, "expect");
    const qn_json *chunks = qn_json_get(input, "prefill_chunks");
    const qn_json *starts = qn_json_get(input, "quantized_kv_start");
    const qn_json *drafts = qn_json_get(input, "num_draft_tokens");
    qn_str draft;
    bool guesses = qn_json_as_str(qn_json_get(input, "draft_fixture"), &draft);
    if (!knows(input))
        return;
    char *model = prepare(context, case_text(input, "fixture"), "model", input);
    char *small = guesses ? prepare(context, draft, "draft", input) : NULL;
    int64_t chunk = 0, start = 0, ahead = 0;
    for (uint32_t i = 0; number_at(chunks, i, &chunk) && !case_failed(); i++)
        for (uint32_t j = 0; number_at(starts, j, &start); j++)
            for (uint32_t k = 0; number_at(drafts, k, &ahead); k++) {
                way w = {.model = model,
                         .draft = small,
                         .kv = case_int(input, "kv_bits", 0) ? "config" : "f32",
                         .start = start,
                         .chunk = (int)chunk,
                         .num_draft = (int)ahead};
                run_way(&w, input, expect);
            }
    qn_free(model);
    qn_free(small);
}
