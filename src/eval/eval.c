/* eval.c: how well a model does.
 *
 * Texts are cut into windows that overlap: a window's first tokens were counted
 * by the one before and are only there to be seen.  Every sum is of doubles in
 * the order of the data, so that a result is the same each time. */
#include <quern/quern.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"
#include "base/utf8.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { DEFAULT_STRIDE = 512 };

typedef struct eval {
    quern_model *model;
    const quern_eval_options *options;
    quern_info info;
    quern_session *session, *other;
    qn_status status;
    quern_error error; /* of a call of quern.h, if it has the words */
    int64_t windows;
    size_t text_at; /* in the data, the text whose windows are looked at */
    /* What is counted. */
    double sum, squares;
    int64_t count;
    qn_buf metrics; /* members of the report, "name":value */
    qn_buf counts;
    /* kl */
    double *divergences;
    size_t divergence_count, divergence_room;
    int64_t same_top;
    qn_buf saved; /* probabilities to write */
    char *stored; /* those that were read */
    size_t stored_size, stored_at;
} eval;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Keeps a failure of quern.h. */
static bool failed(eval *e, quern_status status, const quern_error *error)
{
    if (status && !e->status) {
        e->status = qn_fail((qn_status)status, "%s", error->message);
        if (*error->where)
            qn_fail_where(e->status, "%s", error->where);
    }
    return e->status != QN_OK;
}

static void metric(eval *e, const char *name, double value)
{
    qn_json_writer w;
    qn_buf number = QN_BUF_INIT;
    qn_json_write_begin(&w, &number);
    qn_json_write_double(&w, value);
    qn_buf_printf(&e->metrics, "%s\"%s\":%s", e->metrics.size ? "," : "", name,
                  number.data ? number.data : "null");
    e->metrics.failed |= number.failed;
    qn_buf_free(&number);
}

static void counted(eval *e, const char *name, int64_t value)
{
    qn_buf_printf(&e->counts, "%s\"%s\":%lld", e->counts.size ? "," : "", name,
                  (long long)value);
}

static bool go_on(eval *e, size_t done)
{
    const quern_eval_options *o = e->options;
    if (!e->status && o->progress &&
        !o->progress(o->progress_data, o->task, (int64_t)done,
                     (int64_t)o->size))
        e->status = qn_fail(QN_E_CANCELLED, "cancelled");
    return !e->status;
}

/* ---- probabilities ---- */

/* Log of the sum of exponentials. */
static double log_sum(const float *logits, int n)
{
    float most = logits[0];
    for (int i = 1; i < n; i++)
        most = logits[i] > most ? logits[i] : most;
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += exp((double)logits[i] - most);
    return most + log(sum);
}

static int top_of(const float *logits, int n)
{
    int best = 0;
    for (int i = 1; i < n; i++)
        best = logits[i] > logits[best] ? i : best;
    return best;
}

/* ---- texts and windows ---- */

typedef void (*window_fn)(eval *e, const int32_t *ids, size_t count,
                          size_t first);

/* Calls `fn` for each window of the ids, which are `size` bytes of the data:
 * tokens `first` and on are new. */
static void each_window(eval *e, const int32_t *ids, size_t count, size_t size,
                        window_fn fn)
{
    size_t ctx = (size_t)e->info.ctx;
    if (ctx < 2) {
        e->status = qn_fail(QN_E_ARG, "ctx: expected at least 2 tokens, one to "
                                      "predict another");
        return;
    }
    size_t stride =
        e->options->stride > 0 ? (size_t)e->options->stride : DEFAULT_STRIDE;
    stride = stride < ctx ? stride : ctx - 1;
    size_t done = 1; /* the first token is predicted by nothing */
    while (done < count && !e->status) {
        if (e->options->limit && e->windows >= e->options->limit)
            return;
        size_t end = done == 1 ? ctx : done + stride;
        end = end < count ? end : count;
        size_t begin = end > ctx ? end - ctx : 0;
        fn(e, ids + begin, end - begin, done - begin);
        e->windows++;
        done = end;
        go_on(e, e->text_at +
                     (size_t)((double)size * (double)done / (double)count));
    }
}

static void text_windows(eval *e, qn_str text, window_fn fn)
{
    int32_t *ids = NULL;
    size_t count;
    quern_error error;
    if (failed(e,
               quern_tokenize(e->model, text.data, text.size, QUERN_ADD_SPECIAL,
                              &ids, &count, &error),
               &error))
        return;
    if (count > 1)
        each_window(e, ids, count, text.size, fn);
    quern_free(ids);
}

typedef void (*line_fn)(eval *e, const qn_json *line, void *data);

/* Calls `fn` for each line, parsed. */
static void each_line(eval *e, line_fn fn, void *data)
{
    const char *at = e->options->data, *end = at + e->options->size;
    for (int64_t number = 1; at < end && !e->status; number++) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        size_t size = stop ? (size_t)(stop - at) : (size_t)(end - at);
        qn_json_doc *doc;
        bool empty = size == strspn(at, " \t\r") || !size;
        if (!empty && (!e->options->limit || number <= e->options->limit)) {
            e->text_at = (size_t)(at - e->options->data);
            e->status = qn_json_parse(&doc, (qn_str){at, size}, 0);
            if (!e->status) {
                fn(e, qn_json_root(doc), data);
                qn_json_doc_free(doc);
            }
            if (e->status)
                qn_fail_where(e->status, "line %lld", (long long)number);
        }
        at += size + 1;
        go_on(e, (size_t)(at - e->options->data));
    }
}

static void text_line(eval *e, const qn_json *line, void *data)
{
    qn_str text;
    window_fn fn = *(window_fn *)data;
    if (qn_json_as_str(qn_json_get(line, "text"), &text))
        text_windows(e, text, fn);
    else
        e->status = qn_fail(QN_E_FORMAT, "expected {\"text\": ...}");
}

/* A file whose first character begins an object is one of JSON lines. */
static void each_text(eval *e, window_fn fn)
{
    qn_str all = {e->options->data, e->options->size};
    size_t bad;
    if (all.size && all.data[0] == '{')
        each_line(e, text_line, &fn);
    else if (!qn_utf8_valid(all, &bad))
        e->status = qn_fail(QN_E_FORMAT, "not valid UTF-8 at byte %zu", bad);
    else
        text_windows(e, all, fn);
}

/* ---- perplexity ---- */

typedef struct scoring {
    eval *e;
    const int32_t *ids;
    size_t count, first;
} scoring;

static bool score_token(void *data, size_t index, const float *logits)
{
    scoring *s = data;
    size_t next = index + 1;
    if (next < s->first || next >= s->count)
        return true;
    double loss =
        log_sum(logits, s->e->info.vocab_size) - (double)logits[s->ids[next]];
    s->e->sum += loss;
    s->e->squares += loss * loss;
    s->e->count++;
    return true;
}

static void perplexity_window(eval *e, const int32_t *ids, size_t count,
                              size_t first)
{
    quern_error error;
    scoring s = {e, ids, count, first};
    quern_session_reset(e->session);
    /* What is only there to be seen needs no scores. */
    size_t plain = first > 1 ? first - 1 : 0;
    if (plain &&
        failed(e, quern_session_feed(e->session, ids, plain, &error), &error))
        return;
    s.ids += plain;
    s.count -= plain;
    s.first -= plain;
    failed(e,
           quern_session_score(e->session, s.ids, s.count, score_token, &s,
                               &error),
           &error);
}

static void run_perplexity(eval *e)
{
    each_text(e, perplexity_window);
    if (!e->status && !e->count)
        e->status = qn_fail(QN_E_FORMAT, "the data has no two tokens");
    if (e->status)
        return;
    double n = (double)e->count, mean = e->sum / n;
    double spread = e->squares / n - mean * mean;
    double error = n > 1 ? sqrt((spread > 0 ? spread : 0) / (n - 1)) : 0;
    metric(e, "perplexity", exp(mean));
    metric(e, "perplexity_error", exp(mean) * error);
    metric(e, "loss", mean);
    counted(e, "tokens", e->count);
    counted(e, "windows", e->windows);
}

/* ---- divergence ---- */

/* Stored: "QKL1", vocabulary (uint32), then for each position all log
 * probabilities as float32. */
static const char magic[4] = "QKL1";

typedef struct row_store {
    float *rows;
    size_t first, at;
    int vocab;
} row_store;

static bool store_row(void *data, size_t index, const float *logits)
{
    row_store *s = data;
    if (index + 1 < s->first)
        return true;
    double all = log_sum(logits, s->vocab);
    for (int i = 0; i < s->vocab; i++)
        s->rows[s->at++] = (float)((double)logits[i] - all);
    return true;
}

/* Log probabilities of the new positions of a window. */
static bool make_rows(eval *e, quern_session *session, float *rows,
                      const int32_t *ids, size_t count, size_t first)
{
    quern_error error;
    row_store s = {rows, first, 0, e->info.vocab_size};
    quern_session_reset(session);
    return !failed(
        e, quern_session_score(session, ids, count - 1, store_row, &s, &error),
        &error);
}

static void add_divergence(eval *e, const float *p, const float *q)
{
    double sum = 0;
    int n = e->info.vocab_size;
    for (int i = 0; i < n; i++)
        if (p[i] > -80)
            sum += exp((double)p[i]) * ((double)p[i] - (double)q[i]);
    if (e->divergence_count == e->divergence_room) {
        size_t room = e->divergence_room ? 2 * e->divergence_room : 1024;
        double *grown = qn_reallocarray(e->divergences, room, sizeof *grown);
        if (!grown) {
            e->status = QN_E_NOMEM;
            return;
        }
        e->divergences = grown;
        e->divergence_room = room;
    }
    e->divergences[e->divergence_count++] = sum > 0 ? sum : 0;
    e->sum += sum > 0 ? sum : 0;
    e->same_top += top_of(p, n) == top_of(q, n);
}

/* The reference's rows: computed, or from the file. */
static const float *reference_rows(eval *e, float *room, const int32_t *ids,
                                   size_t count, size_t first)
{
    size_t n = (count - first) * (size_t)e->info.vocab_size;
    if (e->other)
        return make_rows(e, e->other, room, ids, count, first) ? room : NULL;
    if (e->stored_size - e->stored_at < n * sizeof(float)) {
        e->status = qn_fail(QN_E_MISMATCH, "%s: it ends before the data does",
                            e->options->logits);
        return NULL;
    }
    memcpy(room, e->stored + e->stored_at, n * sizeof(float));
    e->stored_at += n * sizeof(float);
    return room;
}

static void kl_window(eval *e, const int32_t *ids, size_t count, size_t first)
{
    size_t vocab = (size_t)e->info.vocab_size, n = count - first;
    float *own = qn_calloc(n * vocab, sizeof *own);
    float *room = qn_calloc(n * vocab, sizeof *room);
    if (!own || !room)
        e->status = QN_E_NOMEM;
    else if (make_rows(e, e->session, own, ids, count, first)) {
        const float *p = NULL;
        if (e->options->save_logits)
            qn_buf_add(&e->saved, own, n * vocab * sizeof *own);
        else
            p = reference_rows(e, room, ids, count, first);
        for (size_t i = 0; p && i < n && !e->status; i++)
            add_divergence(e, p + i * vocab, own + i * vocab);
        e->count += (int64_t)n;
    }
    qn_free(own);
    qn_free(room);
}

static void open_reference(eval *e)
{
    const quern_eval_options *o = e->options;
    quern_error error;
    quern_info info;
    uint8_t head[8];
    memcpy(head, magic, sizeof magic);
    qn_put_le32(head + 4, (uint32_t)e->info.vocab_size);
    if (!o->reference + !o->logits + !o->save_logits != 2) {
        e->status = qn_fail(QN_E_ARG, "kl: expected another model, a file of "
                                      "probabilities, or one to write");
    } else if (o->save_logits) {
        qn_buf_add(&e->saved, head, sizeof head);
    } else if (o->logits) {
        enum { LIMIT = 0x7fffffff };
        e->status = qn_file_read(&e->stored, &e->stored_size, o->logits, LIMIT);
        e->stored_at = sizeof head;
        if (!e->status && (e->stored_size < sizeof head ||
                           memcmp(e->stored, magic, sizeof magic)))
            e->status = qn_fail(QN_E_FORMAT, "%s: no probabilities", o->logits);
        else if (!e->status && memcmp(e->stored, head, sizeof head))
            e->status =
                qn_fail(QN_E_MISMATCH, "%s: another vocabulary", o->logits);
    } else {
        quern_model_info(o->reference, &info);
        if (info.vocab_size != e->info.vocab_size)
            e->status = qn_fail(QN_E_MISMATCH,
                                "vocabularies of %d and %d logits differ",
                                e->info.vocab_size, info.vocab_size);
        else if (info.ctx < e->info.ctx)
            e->info.ctx = info.ctx;
        if (!e->status)
            failed(e,
                   quern_session_new(&e->other,
                                     (quern_model *)(uintptr_t)o->reference,
                                     &error),
                   &error);
    }
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void run_kl(eval *e)
{
    open_reference(e);
    if (!e->status)
        each_text(e, kl_window);
    if (!e->status && !e->count)
        e->status = qn_fail(QN_E_FORMAT, "the data has no two tokens");
    if (!e->status && e->stored && !e->options->limit &&
        e->stored_at != e->stored_size)
        e->status = qn_fail(QN_E_MISMATCH, "%s: it goes on where the data ends",
                            e->options->logits);
    if (e->status)
        return;
    counted(e, "tokens", e->count);
    counted(e, "windows", e->windows);
    if (e->options->save_logits) {
        e->status = qn_buf_status(&e->saved);
        if (!e->status)
            e->status = qn_file_write_atomic(e->options->save_logits,
                                             e->saved.data, e->saved.size);
        return;
    }
    size_t n = e->divergence_count;
    qsort(e->divergences, n, sizeof *e->divergences, ascending);
    metric(e, "kl", e->sum / (double)n);
    metric(e, "kl_p99", e->divergences[(size_t)((double)(n - 1) * 0.99)]);
    metric(e, "top1", (double)e->same_top / (double)n);
}

/* ---- choices ---- */

/* Mean log likelihood of what follows `start` tokens. */
static bool likelihood(eval *e, qn_str question, qn_str choice, double *out)
{
    qn_buf text = QN_BUF_INIT;
    int32_t *ids = NULL, *front = NULL;
    size_t count = 0, start = 0;
    quern_error error;
    qn_buf_add_str(&text, question);
    qn_buf_add_char(&text, ' ');
    qn_buf_add_str(&text, choice);
    if (qn_buf_status(&text))
        e->status = QN_E_NOMEM;
    else if (!failed(e,
                     quern_tokenize(e->model, question.data, question.size,
                                    QUERN_ADD_SPECIAL, &front, &start, &error),
                     &error))
        failed(e,
               quern_tokenize(e->model, text.data, text.size, QUERN_ADD_SPECIAL,
                              &ids, &count, &error),
               &error);
    /* Where the two are not cut alike the answer begins earlier. */
    size_t same = 0;
    while (!e->status && same < start && same + 1 < count &&
           front[same] == ids[same])
        same++;
    if (!e->status && count < 2)
        e->status = qn_fail(QN_E_FORMAT, "a question and a choice without "
                                         "tokens");
    double before = e->sum;
    int64_t tokens = e->count;
    if (!e->status)
        perplexity_window(e, ids, count, same ? same : 1);
    *out = e->count > tokens ? -(e->sum - before) / (double)(e->count - tokens)
                             : 0;
    qn_buf_free(&text);
    quern_free(ids);
    quern_free(front);
    return !e->status;
}

static void choice_line(eval *e, const qn_json *line, void *data)
{
    int64_t *right = data, answer;
    qn_str question, text;
    const qn_json *choices = qn_json_get(line, "choices");
    if (!qn_json_as_str(qn_json_get(line, "question"), &question) || !choices ||
        choices->type != QN_JSON_T_ARRAY || !choices->count ||
        !qn_json_as_int(qn_json_get(line, "answer"), &answer) || answer < 0 ||
        answer >= (int64_t)choices->count) {
        e->status =
            qn_fail(QN_E_FORMAT, "expected {\"question\", \"choices\": [...], "
                                 "\"answer\": number of a choice}");
        return;
    }
    double best = 0;
    uint32_t found = 0;
    for (uint32_t i = 0; i < choices->count && !e->status; i++) {
        double value;
        if (!qn_json_as_str(&choices->items[i], &text))
            e->status = qn_fail(QN_E_FORMAT, "a choice is no text");
        else if (likelihood(e, question, text, &value) &&
                 (!i || value > best)) {
            best = value;
            found = i;
        }
    }
    *right += found == (uint32_t)answer;
    e->windows++;
}

static void run_choice(eval *e)
{
    int64_t right = 0;
    each_line(e, choice_line, &right);
    if (!e->status && !e->windows)
        e->status = qn_fail(QN_E_FORMAT, "the data has no questions");
    if (e->status)
        return;
    double n = (double)e->windows, share = (double)right / n;
    metric(e, "accuracy", share);
    metric(e, "accuracy_error", sqrt(share * (1 - share) / n));
    counted(e, "questions", e->windows);
    counted(e, "correct", right);
}

/* ---- tokenizers ---- */

static void tokenizer_line(eval *e, const qn_json *line, void *data)
{
    qn_buf *first = data;
    qn_str text;
    const qn_json *expected = qn_json_get(line, "ids");
    int32_t *ids = NULL;
    size_t count;
    quern_error error;
    bool special = false;
    qn_json_as_bool(qn_json_get(line, "add_special"), &special);
    if (!qn_json_as_str(qn_json_get(line, "text"), &text) || !expected ||
        expected->type != QN_JSON_T_ARRAY) {
        e->status = qn_fail(QN_E_FORMAT, "expected {\"text\", \"ids\": [...]}");
        return;
    }
    if (failed(e,
               quern_tokenize(e->model, text.data, text.size,
                              (special ? QUERN_ADD_SPECIAL : 0) |
                                  QUERN_PARSE_SPECIAL,
                              &ids, &count, &error),
               &error))
        return;
    size_t at = 0;
    int64_t id = -1;
    while (at < count && at < expected->count &&
           qn_json_as_int(&expected->items[at], &id) && id == ids[at])
        at++;
    e->windows++;
    bool same = at == count && at == expected->count;
    e->same_top += same;
    if (!same && !first->size) {
        qn_json_as_int(qn_json_at(expected, at), &id);
        qn_buf_printf(first,
                      "{\"line\":%lld,\"position\":%zu,\"expected\":%lld,"
                      "\"found\":%ld}",
                      (long long)e->windows, at,
                      at < expected->count ? (long long)id : -1LL,
                      at < count ? (long)ids[at] : -1L);
    }
    quern_free(ids);
}

static void run_tokenizer(eval *e)
{
    qn_buf first = QN_BUF_INIT;
    each_line(e, tokenizer_line, &first);
    if (!e->status && !e->windows)
        e->status = qn_fail(QN_E_FORMAT, "the data has no lines");
    if (!e->status) {
        metric(e, "equal", (double)e->same_top / (double)e->windows);
        counted(e, "lines", e->windows);
        if (first.size)
            qn_buf_printf(&e->counts, ",\"first_difference\":%s", first.data);
    }
    qn_buf_free(&first);
}

/* ---- the outside ---- */

static const struct {
    const char *name;
    bool computes;
    void (*run)(eval *e);
    const char *metrics[4];
} tasks[] = {
    {"perplexity",
     true,
     run_perplexity,
     {"perplexity", "perplexity_error", "loss"}},
    {"kl", true, run_kl, {"kl", "kl_p99", "top1"}},
    {"choice", true, run_choice, {"accuracy", "accuracy_error"}},
    {"tokenizer", false, run_tokenizer, {"equal"}},
};

const char *const *quern_eval_metrics(const char *task)
{
    for (size_t i = 0; i < sizeof tasks / sizeof *tasks; i++)
        if (!strcmp(tasks[i].name, task))
            return tasks[i].metrics;
    return NULL;
}

void quern_eval_options_init(quern_eval_options *o)
{
    *o = (quern_eval_options){.task = "perplexity"};
}

static qn_status make_report(char **out, eval *e, double seconds)
{
    qn_buf text = QN_BUF_INIT;
    qn_buf_printf(&text,
                  "{\"task\":\"%s\",\"metrics\":{%s},\"counts\":{%s},"
                  "\"seconds\":%.6f,\"digest\":\"%s\"}",
                  e->options->task, e->metrics.data ? e->metrics.data : "",
                  e->counts.data ? e->counts.data : "", seconds,
                  e->info.digest);
    text.failed |= e->metrics.failed || e->counts.failed;
    char *made = qn_buf_take(&text);
    if (!made)
        return QN_E_NOMEM;
    *out = made;
    return QN_OK;
}

static void run(eval *e)
{
    const char *task = e->options->task;
    quern_error error;
    for (size_t i = 0; task && i < sizeof tasks / sizeof *tasks; i++) {
        if (strcmp(task, tasks[i].name) != 0)
            continue;
        if (tasks[i].computes &&
            failed(e, quern_session_new(&e->session, e->model, &error), &error))
            return;
        tasks[i].run(e);
        return;
    }
    e->status = qn_fail(QN_E_ARG,
                        "task: expected perplexity, kl, choice or tokenizer, "
                        "found %s",
                        task ? task : "nothing");
}

static quern_status give(quern_error *error, qn_status status)
{
    if (status && error) {
        error->status = (quern_status)status;
        snprintf(error->message, sizeof error->message, "%s", qn_error_text());
        snprintf(error->where, sizeof error->where, "%s", qn_error_where());
    }
    return (quern_status)status;
}

quern_status quern_eval(quern_model *model, const quern_eval_options *options,
                        char **report, quern_error *error)
{
    eval e = {.model = model, .options = options};
    double began = now();
    quern_model_info(model, &e.info);
    run(&e);
    if (!e.status && report)
        e.status = make_report(report, &e, now() - began);
    qn_error kept;
    qn_error_save(&kept);
    quern_session_free(e.session);
    quern_session_free(e.other);
    qn_buf_free(&e.metrics);
    qn_buf_free(&e.counts);
    qn_buf_free(&e.saved);
    qn_free(e.divergences);
    qn_free(e.stored);
    qn_error_restore(&kept);
    return give(error, e.status);
}
