/* pages.c: see pages.h. */
#include "pages.h"

#include "base/alloc.h"
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
    uint64_t expected = atomic_load(&s->models.expected);
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

static void write_capabilities(qn_json_writer *w, const qn_model_facts *facts)
{
    qn_json_write_array(w);
    if (facts->completes)
        qn_json_write_text(w, "completion");
    if (facts->chats)
        qn_json_write_text(w, "chat");
    if (facts->calls)
        qn_json_write_text(w, "tools");
    if (facts->embeds)
        qn_json_write_text(w, "embeddings");
    if (facts->reasons)
        qn_json_write_text(w, "reasoning");
    qn_json_write_array_end(w);
}

void qn_page_write_model(qn_json_writer *w, const qn_server *s,
                         const qn_slot *slot)
{
    static const char *const states[] = {"unloaded", "loading", "loaded",
                                         "unloaded", "failed"};
    const qn_model_facts *facts = &slot->facts;
    bool loaded = slot->state == QN_SLOT_LOADED;
    qn_json_write_object(w);
    qn_json_pair_text(w, "id", slot->id);
    qn_json_pair_text(w, "object", "model");
    qn_json_pair_int(w, "created", s->created);
    qn_json_pair_text(w, "owned_by", "local");
    qn_json_pair_int(w, "context_length",
                     loaded ? slot->info.ctx : slot->usual.ctx);
    qn_json_pair_text(w, "architecture", facts->family);
    qn_json_write_key(w, "quantization");
    write_quantization(w, facts->quantization);
    qn_json_pair_int(w, "size_bytes", (int64_t)facts->bytes);
    qn_json_write_key(w, "capabilities");
    write_capabilities(w, facts);
    qn_json_pair_text(w, "state", states[slot->state]);
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
    for (size_t i = 0; i < s->models.count; i++)
        qn_page_write_model(&w, s, &s->models.slots[i]);
    qn_json_write_array_end(&w);
    qn_json_write_object_end(&w);
    qn_server_json(s, x, &out);
}

void qn_page_model(qn_server *s, qn_exchange *x, qn_str id)
{
    qn_api_error error;
    qn_buf name = QN_BUF_INIT, out = QN_BUF_INIT;
    const qn_slot *slot = NULL;
    qn_percent_decode(&name, id);
    if (qn_buf_status(&name))
        qn_api_fail_memory(&error);
    else
        slot = qn_models_find(s, name.data, true, &error);
    if (slot) {
        qn_json_writer w;
        qn_json_write_begin(&w, &out);
        qn_page_write_model(&w, s, slot);
        qn_server_json(s, x, &out);
    } else {
        qn_server_fail(s, x, &error);
    }
    qn_buf_free(&name);
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

static void read_gauges(qn_model_gauges *out, const qn_server *s,
                        const qn_slot *slot)
{
    *out = (qn_model_gauges){
        .model = s->config.many ? slot->id : NULL,
        .metrics = &slot->metrics,
        .running = slot->running,
        .waiting = qn_slot_waiting(slot),
        .kv_used = slot->kv_used,
        .loaded = slot->state == QN_SLOT_LOADED,
    };
    if (!out->loaded)
        return;
    out->kv_limit = slot->plan.kv_budget;
    out->model_bytes = slot->info.weight_bytes;
    quern_model_prefixes(slot->model, &out->kept);
    quern_model_steps(slot->model, &out->steps);
}

void qn_page_metrics(qn_server *s, qn_exchange *x, qn_str id)
{
    qn_buf out = QN_BUF_INIT;
    size_t count = s->models.count;
    qn_model_gauges *models = qn_calloc(count, sizeof *models);
    const qn_gauges gauges = {
        .connections = qn_httpd_connections(s->httpd),
        .resident = resident_bytes(),
        .release = quern_release(),
        .backend = "cpu",
    };
    (void)id;
    for (size_t i = 0; models && i < count; i++)
        read_gauges(&models[i], s, &s->models.slots[i]);
    if (models)
        qn_metrics_write(&out, &s->metrics, &gauges, models, count);
    qn_free(models);
    if (!models || qn_buf_status(&out)) {
        qn_api_error error;
        qn_api_fail_memory(&error);
        qn_server_fail(s, x, &error);
        qn_buf_free(&out);
        return;
    }
    qn_exchange_reply(x, 200, "text/plain; version=0.0.4; charset=utf-8", &out);
}
