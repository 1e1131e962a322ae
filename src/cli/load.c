/* load.c: see load.h.
 *
 * For each number of clients, that many transfers run on one thread (libcurl's
 * multi interface), each begun again with the next request as soon as it ends.
 * Prompts differ from their first word on, so that no cache of prefixes helps.
 * The time of a token is that of the piece of the stream that brings it; where
 * the server counts tokens (usage) they are taken from there, else each piece
 * counts as one. */
#include "load.h"

#include "base/alloc.h"
#include "base/cpu.h"
#include "remote.h"
#include "runs.h"
#include "sse.h"

/* The checks are macros, which the members of a structure are not. */
#define CURL_DISABLE_TYPECHECK
#include <curl/curl.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FUNCTIONS(X)                                                           \
    X(curl_global_init)                                                        \
    X(curl_easy_init)                                                          \
    X(curl_easy_cleanup)                                                       \
    X(curl_easy_setopt)                                                        \
    X(curl_easy_getinfo)                                                       \
    X(curl_slist_append)                                                       \
    X(curl_slist_free_all)                                                     \
    X(curl_multi_init)                                                         \
    X(curl_multi_cleanup)                                                      \
    X(curl_multi_add_handle)                                                   \
    X(curl_multi_remove_handle)                                                \
    X(curl_multi_perform)                                                      \
    X(curl_multi_wait)                                                         \
    X(curl_multi_info_read)

enum { KINDS = 16, LINE_LIMIT = 1 << 20 };

typedef struct samples {
    double *at;
    size_t count, room;
} samples;

typedef struct load {
    qn_cli *cli;
#define X(name) __typeof__(name) *name;
    FUNCTIONS(X)
#undef X
    CURLM *multi;
    struct curl_slist *headers;
    char *url;
    const char *model;
    int64_t words, tokens; /* of a prompt; of an answer */
    int64_t number;        /* of requests begun */
    /* Of the present number of clients. */
    samples first, between; /* seconds */
    int64_t answered, produced;
    double seconds;
    qn_progress progress;
    int64_t done, total; /* requests of all numbers of clients */
    struct {
        char name[32];
        int64_t count;
    } errors[KINDS];
    size_t error_count;
    bool failed; /* no memory */
} load;

typedef struct client {
    load *owner;
    CURL *easy;
    qn_buf line, body;
    double began, last;
    int64_t pieces, counted;
    bool first, done, finished;
    char error[32]; /* of an event; "": none */
} client;

static void add_sample(load *l, samples *s, double value)
{
    if (s->count == s->room) {
        size_t room = s->room ? 2 * s->room : 256;
        double *grown = qn_reallocarray(s->at, room, sizeof *grown);
        l->failed |= !grown;
        if (!grown)
            return;
        s->at = grown;
        s->room = room;
    }
    s->at[s->count++] = value;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Of sorted samples, by the nearest rank. */
static double percentile(const samples *s, double share)
{
    if (!s->count)
        return 0;
    size_t at = (size_t)((double)s->count * share);
    return s->at[at < s->count ? at : s->count - 1];
}

static void add_error(load *l, const char *name)
{
    size_t i = 0;
    while (i < l->error_count && strcmp(l->errors[i].name, name) != 0)
        i++;
    if (i == KINDS)
        i = KINDS - 1;
    if (i == l->error_count) {
        snprintf(l->errors[i].name, sizeof l->errors[i].name, "%s", name);
        l->errors[i].count = 0;
        l->error_count++;
    }
    l->errors[i].count++;
}

/* ---- the stream ---- */

static void take_piece(client *c)
{
    double now = qn_cli_now();
    if (!c->first)
        add_sample(c->owner, &c->owner->first, now - c->began);
    else
        add_sample(c->owner, &c->owner->between, now - c->last);
    c->first = true;
    c->last = now;
    c->pieces++;
}

static bool take_event(void *data, qn_str event)
{
    client *c = data;
    qn_delta d;
    if (qn_delta_read(&d, event)) {
        snprintf(c->error, sizeof c->error, "malformed");
        return true;
    }
    c->done |= d.last;
    if (d.refused)
        snprintf(c->error, sizeof c->error, "error event");
    if (d.text.size || d.thought.size)
        take_piece(c);
    c->finished |= d.finished;
    if (d.counted >= 0)
        c->counted = d.counted;
    qn_json_doc_free(d.doc);
    return true;
}

static size_t on_data(char *data, size_t one, size_t size, void *user)
{
    client *c = user;
    (void)one;
    qn_sse_add(&c->line, data, size, take_event, c);
    return c->line.failed || c->line.size > LINE_LIMIT ? 0 : size;
}

/* ---- requests ---- */

static qn_status write_body(client *c)
{
    static const char *const words[] = {"river", "stone",  "seven", "blue",
                                        "house", "letter", "winter"};
    enum { WORDS = sizeof words / sizeof *words };
    load *l = c->owner;
    qn_json_writer w;
    qn_buf text = QN_BUF_INIT;
    l->number++;
    qn_buf_printf(&text, "%lld", (long long)l->number);
    uint64_t state = (uint64_t)l->number;
    for (int64_t i = 1; i < l->words; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        qn_buf_printf(&text, " %s", words[(state >> 33) % WORDS]);
    }
    if (qn_buf_status(&text)) {
        qn_buf_free(&text);
        return QN_E_NOMEM;
    }
    qn_buf_clear(&c->body);
    qn_json_write_begin(&w, &c->body);
    qn_json_write_object(&w);
    qn_json_write_key(&w, "model");
    qn_json_write_text(&w, l->model);
    qn_json_write_key(&w, "stream");
    qn_json_write_bool(&w, true);
    qn_json_write_key(&w, "stream_options");
    qn_json_write_object(&w);
    qn_json_write_key(&w, "include_usage");
    qn_json_write_bool(&w, true);
    qn_json_write_object_end(&w);
    qn_json_write_key(&w, "temperature");
    qn_json_write_int(&w, 0);
    qn_json_write_key(&w, "max_tokens");
    qn_json_write_int(&w, l->tokens);
    qn_json_write_key(&w, "messages");
    qn_json_write_array(&w);
    qn_json_write_object(&w);
    qn_json_write_key(&w, "role");
    qn_json_write_text(&w, "user");
    qn_json_write_key(&w, "content");
    qn_json_write_text(&w, text.data);
    qn_json_write_object_end(&w);
    qn_json_write_array_end(&w);
    qn_json_write_object_end(&w);
    qn_buf_free(&text);
    return qn_buf_status(&c->body);
}

static qn_status start(client *c)
{
    load *l = c->owner;
    __typeof__(l->curl_easy_setopt) set = l->curl_easy_setopt;
    qn_status status = write_body(c);
    if (status)
        return status;
    qn_buf_clear(&c->line);
    c->pieces = c->counted = 0;
    c->first = c->done = c->finished = false;
    *c->error = 0;
    set(c->easy, CURLOPT_URL, l->url);
    set(c->easy, CURLOPT_HTTPHEADER, l->headers);
    set(c->easy, CURLOPT_POSTFIELDS, c->body.data);
    set(c->easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)c->body.size);
    set(c->easy, CURLOPT_WRITEFUNCTION, on_data);
    set(c->easy, CURLOPT_WRITEDATA, c);
    set(c->easy, CURLOPT_PRIVATE, c);
    set(c->easy, CURLOPT_NOSIGNAL, 1L);
    set(c->easy, CURLOPT_CONNECTTIMEOUT, 15L);
    set(c->easy, CURLOPT_LOW_SPEED_LIMIT, 1L);
    set(c->easy, CURLOPT_LOW_SPEED_TIME, 300L);
    c->began = qn_cli_now();
    return l->curl_multi_add_handle(l->multi, c->easy) ? QN_E_NOMEM : QN_OK;
}

/* Counts a transfer that has ended. */
static void conclude(client *c, CURLcode code)
{
    load *l = c->owner;
    long http = 0;
    char name[32] = "";
    l->curl_easy_getinfo(c->easy, CURLINFO_RESPONSE_CODE, &http);
    qn_sse_finish(&c->line, take_event, c);
    if (code == CURLE_COULDNT_CONNECT || code == CURLE_COULDNT_RESOLVE_HOST)
        snprintf(name, sizeof name, "connect");
    else if (code == CURLE_OPERATION_TIMEDOUT)
        snprintf(name, sizeof name, "timeout");
    else if (http && http != 200)
        snprintf(name, sizeof name, "http %ld", http);
    else if (*c->error)
        snprintf(name, sizeof name, "%s", c->error);
    else if (code)
        snprintf(name, sizeof name, "broken off");
    else if (!c->done && !c->finished)
        snprintf(name, sizeof name, "cut short");
    if (*name)
        add_error(l, name);
    else
        l->answered++;
    l->produced += c->counted > c->pieces ? c->counted : c->pieces;
}

static qn_status collect(load *l, int64_t *left, int64_t *running)
{
    CURLMsg *message;
    int queued;
    qn_status status = QN_OK;
    while (!status && (message = l->curl_multi_info_read(l->multi, &queued))) {
        client *c = NULL;
        if (message->msg != CURLMSG_DONE)
            continue;
        CURL *easy = message->easy_handle;
        CURLcode code = message->data.result;
        l->curl_easy_getinfo(easy, CURLINFO_PRIVATE, (char **)&c);
        l->curl_multi_remove_handle(l->multi, easy);
        conclude(c, code);
        qn_progress_set(&l->progress, ++l->done, l->total);
        --*running;
        if (*left) {
            --*left;
            ++*running;
            status = start(c);
        }
    }
    return status;
}

static qn_status work(load *l, client *clients, int64_t count, int64_t total)
{
    int64_t left = total - count, running = count;
    double began = qn_cli_now();
    qn_status status = QN_OK;
    for (int64_t i = 0; i < count && !status; i++)
        status = start(&clients[i]);
    while (!status && running) {
        int active, ready;
        if (l->curl_multi_perform(l->multi, &active) ||
            l->curl_multi_wait(l->multi, NULL, 0, 100, &ready))
            status = qn_fail(QN_E_INTERNAL, "libcurl can't go on");
        if (!status)
            status = collect(l, &left, &running);
        if (!status && qn_cli_signalled())
            status = qn_fail(QN_E_CANCELLED, "cancelled");
        if (!status && l->failed)
            status = QN_E_NOMEM;
    }
    l->seconds = qn_cli_now() - began;
    return status;
}

static void free_clients(load *l, client *clients, int64_t count)
{
    for (int64_t i = 0; clients && i < count; i++) {
        if (clients[i].easy) {
            l->curl_multi_remove_handle(l->multi, clients[i].easy);
            l->curl_easy_cleanup(clients[i].easy);
        }
        qn_buf_free(&clients[i].line);
        qn_buf_free(&clients[i].body);
    }
    qn_free(clients);
}

/* `rounds` requests of each of `count` clients. */
static qn_status measure(load *l, int64_t count, int64_t rounds)
{
    client *clients = qn_calloc((size_t)count, sizeof *clients);
    qn_status status = clients ? QN_OK : QN_E_NOMEM;
    l->first.count = l->between.count = l->error_count = 0;
    l->answered = l->produced = 0;
    for (int64_t i = 0; i < count && !status; i++) {
        clients[i] = (client){.owner = l, .easy = l->curl_easy_init()};
        status = clients[i].easy ? QN_OK : QN_E_NOMEM;
    }
    if (!status)
        status = work(l, clients, count, count * rounds);
    free_clients(l, clients, count);
    if (l->first.count)
        qsort(l->first.at, l->first.count, sizeof(double), ascending);
    if (l->between.count)
        qsort(l->between.at, l->between.count, sizeof(double), ascending);
    return status;
}

/* ---- what is shown ---- */

static double rate(const load *l)
{
    return l->seconds > 0 ? (double)l->produced / l->seconds : 0;
}

static void add_row(qn_buf *out, const load *l, int64_t clients)
{
    qn_buf_printf(
        out, "%-8lld %8lld %12.1f %9.1f %9.1f %9.2f %9.2f %9.2f",
        (long long)clients, (long long)l->answered, rate(l),
        1e3 * percentile(&l->first, 0.5), 1e3 * percentile(&l->first, 0.95),
        1e3 * percentile(&l->between, 0.5), 1e3 * percentile(&l->between, 0.95),
        1e3 * percentile(&l->between, 0.99));
    for (size_t i = 0; i < l->error_count; i++)
        qn_buf_printf(out, "%s%s: %lld", i ? ", " : "   ", l->errors[i].name,
                      (long long)l->errors[i].count);
    qn_buf_add_char(out, '\n');
}

static void write_shares(qn_json_writer *w, const char *key, const samples *s)
{
    static const struct {
        const char *name;
        double share;
    } shares[] = {{"p50", 0.5}, {"p95", 0.95}, {"p99", 0.99}};
    qn_json_write_key(w, key);
    qn_json_write_object(w);
    for (size_t i = 0; i < sizeof shares / sizeof *shares; i++) {
        qn_json_write_key(w, shares[i].name);
        if (s->count)
            qn_json_write_double(w, percentile(s, shares[i].share));
        else
            qn_json_write_null(w);
    }
    qn_json_write_object_end(w);
}

static void add_json(qn_buf *out, const load *l, int64_t clients)
{
    qn_json_writer w;
    qn_json_write_begin(&w, out);
    qn_json_write_object(&w);
    qn_json_pair_text(&w, "schema", "quern.bench/1");
    qn_json_pair_text(&w, "server", l->url);
    qn_json_pair_text(&w, "model", l->model);
    qn_json_pair_int(&w, "concurrency", clients);
    qn_json_pair_int(&w, "prompt_words", l->words);
    qn_json_pair_int(&w, "max_tokens", l->tokens);
    qn_json_pair_int(&w, "answered", l->answered);
    qn_json_pair_int(&w, "tokens", l->produced);
    qn_json_write_key(&w, "seconds");
    qn_json_write_double(&w, l->seconds);
    qn_json_write_key(&w, "tokens_per_s");
    qn_json_write_double(&w, rate(l));
    write_shares(&w, "ttft_s", &l->first);
    write_shares(&w, "inter_token_s", &l->between);
    qn_json_write_key(&w, "errors");
    qn_json_write_object(&w);
    for (size_t i = 0; i < l->error_count; i++)
        qn_json_pair_int(&w, l->errors[i].name, l->errors[i].count);
    qn_json_write_object_end(&w);
    qn_json_pair_text(&w, "cpu", qn_cpu_name());
    qn_json_pair_text(&w, "machine", qn_cpu_machine());
    qn_json_pair_int(&w, "processors", qn_cpu_allowed());
    qn_json_pair_text(&w, "version", quern_release());
    qn_json_pair_text(&w, "commit", qn_cli_commit());
    qn_json_write_object_end(&w);
}

static int show(const load *l, int64_t clients, bool head)
{
    qn_buf out = QN_BUF_INIT;
    add_json(&out, l, clients);
    if (!qn_buf_status(&out))
        qn_runs_add(l->cli, qn_buf_str(&out));
    qn_buf_clear(&out);
    if (l->cli->json) {
        add_json(&out, l, clients);
        return qn_out_json(l->cli, &out);
    }
    if (head)
        qn_buf_printf(&out, "%-8s %8s %12s %9s %9s %9s %9s %9s\n", "clients",
                      "answers", "tokens/s", "ttft p50", "p95 ms", "next p50",
                      "p95 ms", "p99 ms");
    add_row(&out, l, clients);
    return qn_out_buffer(l->cli, &out);
}

/* ---- the command ---- */

static qn_status open_library(load *l)
{
    void *library = qn_remote_library();
    bool good = library != NULL;
#define X(name)                                                                \
    if (good)                                                                  \
        good = (*(void **)&l->name = dlsym(library, #name)) != NULL;
    FUNCTIONS(X)
#undef X
    if (!good)
        return qn_remote_no_library();
    l->curl_global_init(CURL_GLOBAL_DEFAULT);
    l->multi = l->curl_multi_init();
    return l->multi ? QN_OK : QN_E_NOMEM;
}

static qn_status read_one(int64_t *out, const qn_arg *flag, const char *name,
                          int64_t automatic)
{
    int64_t *list = NULL;
    size_t count = 0;
    *out = automatic;
    if (!flag->given)
        return QN_OK;
    qn_status status =
        qn_args_counts(name, flag->text, 1, 1 << 20, &list, &count);
    if (!status && count != 1)
        status =
            qn_fail(QN_E_ARG, "--%s: expected one number with --server", name);
    if (!status)
        *out = *list;
    qn_free(list);
    return status;
}

static qn_status prepare(load *l)
{
    const qn_arg *flag = l->cli->args.flag;
    if (l->cli->args.word_count > 1)
        return qn_fail(QN_E_ARG, "--server: expected one name of a model");
    l->model = l->cli->args.word_count ? l->cli->args.words[0] : "default";
    qn_status status = qn_remote_url(&l->url, flag[QN_FLAG_SERVER].text);
    if (!status)
        status =
            read_one(&l->words, &flag[QN_FLAG_PROMPT_SIZES], "prompt", 512);
    if (!status)
        status =
            read_one(&l->tokens, &flag[QN_FLAG_DECODE_SIZES], "decode", 128);
    if (!status)
        status = open_library(l);
    return status ? status
                  : qn_remote_headers(&l->headers, l->curl_slist_append);
}

static int run(load *l)
{
    const qn_arg *flag = l->cli->args.flag;
    int64_t *clients = NULL, rounds = 5, warm = 1;
    size_t count = 0;
    if (flag[QN_FLAG_REPEAT].given)
        rounds = flag[QN_FLAG_REPEAT].whole;
    if (flag[QN_FLAG_WARMUP].given)
        warm = flag[QN_FLAG_WARMUP].whole;
    const char *list = flag[QN_FLAG_CONCURRENCY].given
                           ? flag[QN_FLAG_CONCURRENCY].text
                           : "1,4,16";
    qn_status status =
        qn_args_counts("concurrency", list, 1, 1024, &clients, &count);
    l->total = warm;
    for (size_t i = 0; i < count && !status; i++)
        l->total += clients[i] * rounds;
    qn_progress_begin(&l->progress, l->cli, "bench", "requests");
    if (!status && warm)
        status = measure(l, 1, warm);
    int code = QN_EXIT_OK;
    int64_t answers = 0;
    for (size_t i = 0; i < count && !status && !code; i++) {
        status = measure(l, clients[i], rounds);
        answers += l->answered;
        qn_progress_end(&l->progress);
        if (!status)
            code = show(l, clients[i], !i);
    }
    if (!status && !code && !answers)
        status =
            qn_fail_where(qn_fail(QN_E_NETWORK, "no request was answered (%s)",
                                  l->error_count ? l->errors[0].name : "none"),
                          "%s", l->url);
    qn_progress_end(&l->progress);
    qn_free(clients);
    return status ? qn_cli_fail_status(l->cli, status, NULL) : code;
}

int qn_load_run(qn_cli *cli)
{
    load l = {.cli = cli};
    qn_status status = prepare(&l);
    qn_cli_watch_calls(true);
    int code = status ? qn_cli_fail_status(cli, status, NULL) : run(&l);
    qn_cli_watch_calls(false);
    if (l.headers)
        l.curl_slist_free_all(l.headers);
    if (l.multi)
        l.curl_multi_cleanup(l.multi);
    qn_free(l.url);
    qn_free(l.first.at);
    qn_free(l.between.at);
    return code;
}
