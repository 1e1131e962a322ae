/* pages.c: see pages.h. */
#include "pages.h"

#include "base/json.h"
#include "responses_store.h"
#include "state.h"
#include "turn.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- the page for people ---- */

void qn_page_start(qn_server *s, qn_exchange *x, qn_str id)
{
    const qn_server_page *page = &s->config.page;
    qn_buf out = QN_BUF_INIT;
    qn_api_error error;
    (void)id;
    qn_buf_add(&out, page->data, page->size);
    if (qn_buf_status(&out)) {
        qn_api_fail_memory(&error);
        qn_server_fail(s, x, &error);
        return;
    }
    qn_exchange_header(x, "Content-Security-Policy", page->policy);
    qn_exchange_header(x, "X-Content-Type-Options", "nosniff");
    qn_exchange_header(x, "Referrer-Policy", "no-referrer");
    /* The next release has another one. */
    qn_exchange_header(x, "Cache-Control", "no-cache");
    qn_exchange_reply(x, 200, "text/html; charset=utf-8", &out);
}

/* ---- health ---- */

static double progress(qn_server *s)
{
    size_t active = 0;
    uint64_t expected = atomic_load(&s->expected);
    quern_memory(&active, NULL, NULL);
    if (!expected)
        return 0;
    return active < expected ? (double)active / (double)expected : 1;
}

void qn_page_health(qn_server *s, qn_exchange *x, qn_str id)
{
    static const char *const names[] = {"loading", "ok", "shutting_down"};
    qn_buf out = QN_BUF_INIT;
    (void)id;
    qn_buf_printf(&out, "{\"status\":\"%s\"", names[s->state]);
    if (s->state == QN_SERVER_LOADING)
        qn_buf_printf(&out, ",\"progress\":%.2f", progress(s));
    qn_buf_add_char(&out, '}');
    qn_exchange_reply(x, s->state == QN_SERVER_SERVING ? 200 : 503,
                      "application/json", &out);
}

/* ---- models ---- */

/* "affine 4-bit g32" in its parts; "f16" and the like have a mode alone. */
static void write_quantization(qn_json_writer *w, const char *text)
{
    char mode[32] = "";
    int bits = 0, group = 0;
    int found = sscanf(text, "%31s %d-bit g%d", mode, &bits, &group);
    qn_json_write_object(w);
    qn_json_pair_text(w, "mode", mode);
    qn_json_write_key(w, "bits");
    if (found > 1)
        qn_json_write_int(w, bits);
    else
        qn_json_write_null(w);
    qn_json_write_key(w, "group_size");
    if (found > 2)
        qn_json_write_int(w, group);
    else
        qn_json_write_null(w);
    qn_json_write_object_end(w);
}

static void write_capabilities(qn_json_writer *w, const qn_server *s)
{
    const quern_info *info = &s->info;
    bool reasons = info->chat_template &&
                   (strstr(info->chat_template, "<think>") ||
                    strstr(info->chat_template, "enable_thinking") ||
                    strstr(info->chat_template, "<|channel|>"));
    qn_json_write_array(w);
    if (!info->encoder)
        qn_json_write_text(w, "completion");
    if (info->has_chat_template)
        qn_json_write_text(w, "chat");
    if (info->pooling || s->config.pooling)
        qn_json_write_text(w, "embeddings");
    if (reasons)
        qn_json_write_text(w, "reasoning");
    qn_json_write_array_end(w);
}

static void write_model(qn_json_writer *w, const qn_server *s)
{
    const quern_info *info = &s->info;
    qn_json_write_object(w);
    qn_json_pair_text(w, "id", s->config.model);
    qn_json_pair_text(w, "object", "model");
    qn_json_pair_int(w, "created", s->created);
    qn_json_pair_text(w, "owned_by", "local");
    qn_json_pair_int(w, "context_length", info->ctx);
    qn_json_pair_text(w, "architecture", info->family);
    qn_json_write_key(w, "quantization");
    write_quantization(w, info->quantization);
    qn_json_pair_int(w, "size_bytes", (int64_t)info->weight_bytes);
    qn_json_write_key(w, "capabilities");
    write_capabilities(w, s);
    qn_json_pair_text(w, "state", "loaded");
    qn_json_write_object_end(w);
}

void qn_page_models(qn_server *s, qn_exchange *x, qn_str id)
{
    qn_buf out = QN_BUF_INIT;
    qn_json_writer w;
    (void)id;
    qn_json_write_begin(&w, &out);
    qn_json_write_object(&w);
    qn_json_pair_text(&w, "object", "list");
    qn_json_write_key(&w, "data");
    qn_json_write_array(&w);
    write_model(&w, s);
    qn_json_write_array_end(&w);
    qn_json_write_object_end(&w);
    qn_server_json(s, x, &out);
}

void qn_page_model(qn_server *s, qn_exchange *x, qn_str id)
{
    qn_api_error error;
    qn_buf name = QN_BUF_INIT, out = QN_BUF_INIT;
    qn_percent_decode(&name, id);
    if (qn_str_is(qn_buf_str(&name), s->config.model)) {
        qn_json_writer w;
        qn_json_write_begin(&w, &out);
        write_model(&w, s);
        qn_server_json(s, x, &out);
    } else {
        qn_api_fail(&error, QN_API_MODEL_NOT_FOUND, "model",
                    "there is no such model here; there is '%s'",
                    s->config.model);
        qn_server_fail(s, x, &error);
    }
    qn_buf_free(&name);
}

void qn_page_single_model(qn_server *s, qn_exchange *x, qn_str id)
{
    qn_api_error error;
    (void)id;
    qn_api_fail(&error, QN_API_NOT_SUPPORTED, NULL,
                "this server has one model, which stays loaded");
    qn_server_fail(s, x, &error);
}

/* ---- adapters ---- */

void qn_page_adapters(qn_server *s, qn_exchange *x, qn_str id)
{
    qn_buf out = QN_BUF_INIT;
    (void)id;
    qn_buf_add_text(&out, "{\"data\":[]}");
    qn_server_json(s, x, &out);
}

void qn_page_no_adapters(qn_server *s, qn_exchange *x, qn_str id)
{
    qn_api_error error;
    (void)id;
    qn_api_fail(&error, QN_API_PERMISSION_DENIED, "path",
                "this server has no folder of adapters");
    qn_server_fail(s, x, &error);
}

void qn_page_no_adapter(qn_server *s, qn_exchange *x, qn_str id)
{
    qn_api_error error;
    (void)id;
    qn_api_fail(&error, QN_API_ADAPTER_NOT_FOUND, "name",
                "there is no such adapter");
    qn_server_fail(s, x, &error);
}

/* ---- responses ---- */

static const char *space_of(const qn_server *s, const qn_exchange *x)
{
    int key = qn_server_key(s, x);
    return key >= 0 ? s->keys.items[key].name : "";
}

static void no_response(qn_server *s, qn_exchange *x)
{
    qn_api_error error;
    qn_api_fail(&error, QN_API_RESPONSE_NOT_FOUND, NULL,
                "there is no such response (any more)");
    qn_server_fail(s, x, &error);
}

void qn_page_response(qn_server *s, qn_exchange *x, qn_str id)
{
    qn_buf name = QN_BUF_INIT, out = QN_BUF_INIT;
    qn_percent_decode(&name, id);
    if (!qn_buf_status(&name) &&
        qn_responses_get(s->facts.responses, space_of(s, x), name.data,
                         (int64_t)qn_server_time(), &out, NULL))
        qn_server_json(s, x, &out);
    else
        no_response(s, x);
    qn_buf_free(&name);
}

void qn_page_response_delete(qn_server *s, qn_exchange *x, qn_str id)
{
    qn_buf name = QN_BUF_INIT, out = QN_BUF_INIT;
    qn_percent_decode(&name, id);
    if (!qn_buf_status(&name) &&
        qn_responses_drop(s->facts.responses, space_of(s, x), name.data,
                          (int64_t)qn_server_time())) {
        qn_buf_add_text(&out, "{\"id\":");
        qn_json_quote(&out, qn_buf_str(&name));
        qn_buf_add_text(&out, ",\"object\":\"response\",\"deleted\":true}");
        qn_server_json(s, x, &out);
    } else {
        no_response(s, x);
    }
    qn_buf_free(&name);
}

/* ---- metrics ---- */

static uint64_t resident_bytes(void)
{
    unsigned long long whole = 0, resident = 0;
    FILE *f = fopen("/proc/self/statm", "re");
    if (!f)
        return 0;
    if (fscanf(f, "%llu %llu", &whole, &resident) != 2)
        resident = 0;
    fclose(f);
    return (uint64_t)resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

void qn_page_metrics(qn_server *s, qn_exchange *x, qn_str id)
{
    qn_buf out = QN_BUF_INIT;
    qn_gauges gauges = {
        .running = s->running,
        .waiting = s->queue.count,
        .connections = qn_httpd_connections(s->httpd),
        .kv_used = s->kv_used,
        .kv_limit = s->config.kv_budget,
        .model_bytes = s->info.weight_bytes,
        .loaded = s->model != NULL,
        .resident = resident_bytes(),
        .release = quern_release(),
        .backend = "cpu",
    };
    (void)id;
    if (s->model)
        quern_model_prefixes(s->model, &gauges.kept);
    if (s->model)
        quern_model_steps(s->model, &gauges.steps);
    qn_metrics_write(&out, &s->metrics, &gauges);
    qn_exchange_reply(x, 200, "text/plain; version=0.0.4; charset=utf-8", &out);
}

/* ---- fit ---- */

/* A whole number of the query; false after an error. */
static bool read_number(qn_exchange *x, const char *name, int64_t least,
                        int64_t most, int64_t *out, qn_api_error *error)
{
    qn_buf text = QN_BUF_INIT;
    bool good = true;
    if (qn_query_get(&x->head, name, &text))
        good = qn_json_int64(qn_buf_str(&text), out) && *out >= least &&
               *out <= most;
    qn_buf_free(&text);
    return good || qn_api_fail(error, QN_API_OUT_OF_RANGE, name,
                               "%s: expected a number from %lld to %lld", name,
                               (long long)least, (long long)most);
}

static bool check_model(qn_server *s, qn_exchange *x, qn_api_error *error)
{
    qn_buf text = QN_BUF_INIT;
    bool good = !qn_query_get(&x->head, "model", &text) ||
                qn_str_is(qn_buf_str(&text), s->config.model);
    qn_buf_free(&text);
    return good || qn_api_fail(error, QN_API_MODEL_NOT_FOUND, "model",
                               "there is no such model here; there is '%s'",
                               s->config.model);
}

static bool write_fit(qn_server *s, qn_exchange *x, char **json,
                      qn_api_error *error)
{
    int64_t context = s->info.ctx, parallel = s->config.parallel;
    quern_error cause;
    quern_fit fit;
    if (!check_model(s, x, error) ||
        !read_number(x, "context", 1, s->info.max_ctx, &context, error) ||
        !read_number(x, "parallel", 1, 1024, &parallel, error))
        return false;
    const quern_fit_options options = {.ctx = context,
                                       .parallel = (int)parallel,
                                       .kv_budget = s->config.kv_asked};
    if (quern_model_fit(&fit, s->model, &options, &cause) ||
        quern_fit_json(&fit, json, &cause))
        return qn_api_fail_runtime(error, &cause);
    return true;
}

void qn_page_fit(qn_server *s, qn_exchange *x, qn_str id)
{
    qn_api_error error;
    char *json = NULL;
    qn_buf out = QN_BUF_INIT;
    (void)id;
    if (!write_fit(s, x, &json, &error)) {
        qn_server_fail(s, x, &error);
        return;
    }
    qn_buf_add_text(&out, json);
    quern_free(json);
    qn_server_json(s, x, &out);
}
