/* Jobs: many answers at once, events by pull, speculation.  An answer has the
 * same bytes alone, beside others, guessed ahead, and from a cache. */
#include "support/qn_test.h"

#include "base/file.h"

#include <quern/quern.h>

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>

static const char *const tiny = "cases/fixtures/models/tiny";
static quern_error error;

#define check_quern(call)                                                      \
    do {                                                                       \
        quern_status status_ = call;                                           \
        if (status_)                                                           \
            print_error("%s: %s\n", error.where, error.message);               \
        assert_int_equal(status_, QUERN_OK);                                   \
    } while (0)

static quern_model *load(const char *fixture, const quern_options *options)
{
    quern_model *m = NULL;
    char *path = qn_path_join(QN_TEST_VECTORS, fixture);
    check_quern(quern_model_load(&m, path, options, &error));
    qn_free(path);
    return m;
}

/* ---- requests of many kinds ---- */

enum { KINDS = 12, LONGEST = 48 };

static const int32_t prompts[3][12] = {
    {259, 269, 44, 282, 32, 272, 287, 32, 292, 46, 10, 60},
    {65, 66, 67, 65, 66, 67, 65, 66, 67, 65, 66, 67},
    {300, 301, 302, 303, 40, 41, 42, 43, 44, 45, 46, 47}};
static const quern_logit_bias liked = {70, 3};
static const char *const stops[] = {"zq", "\xc3\xa9"};

static void make_request(quern_request *r, const quern_model *m, int kind)
{
    quern_request_init(r, m);
    r->ids = prompts[kind % 3];
    r->id_count = (size_t)(12 - kind % 4);
    r->max_tokens = 20 + kind * 2;
    r->ignore_eos = kind % 2;
    r->sampling.temperature = kind % 4 == 0 ? 0 : 0.4 + 0.2 * kind;
    r->sampling.has_seed = true;
    r->sampling.seed = (uint64_t)kind * 77u;
    if (kind % 5 == 1)
        r->sampling.top_p = 0.9;
    if (kind % 5 == 2)
        r->sampling.top_k = 20;
    if (kind % 5 == 3)
        r->sampling.xtc_probability = 0.5;
    if (kind % 3 == 2)
        r->sampling.repetition_penalty = 1.3;
    if (kind % 6 == 4) {
        r->sampling.logit_bias = &liked;
        r->sampling.logit_bias_count = 1;
    }
    if (kind % 4 == 2) {
        r->stops = stops;
        r->stop_count = 2;
    }
    r->logprobs = kind % 4 == 3;
    r->top_logprobs = r->logprobs ? 3 : 0;
}

static void check_equal(const quern_result *a, const quern_result *b)
{
    assert_int_equal(a->token_count, b->token_count);
    assert_int_equal(a->finish, b->finish);
    assert_int_equal(a->end_id, b->end_id);
    assert_int_equal(a->size, b->size);
    assert_memory_equal(a->text, b->text, a->size);
    for (size_t i = 0; i < a->token_count; i++) {
        assert_int_equal(a->tokens[i].id, b->tokens[i].id);
        assert_memory_equal(&a->tokens[i].logprob, &b->tokens[i].logprob,
                            sizeof(float));
    }
}

static void answer_alone(quern_model *m, int kind, quern_result *out)
{
    quern_session *s;
    quern_request r;
    make_request(&r, m, kind);
    check_quern(quern_session_new(&s, m, &error));
    check_quern(quern_generate(s, &r, NULL, NULL, out, &error));
    quern_session_free(s);
}

/* Every kind at once, on a model that was loaded with `options`. */
static void check_together(const quern_result *alone,
                           const quern_options *options)
{
    quern_model *m = load(tiny, options);
    quern_job *jobs[KINDS];
    for (int i = 0; i < KINDS; i++) {
        quern_request r;
        make_request(&r, m, i);
        check_quern(quern_submit(&jobs[i], m, NULL, &r, &error));
    }
    for (int i = 0; i < KINDS; i++) {
        quern_result result;
        check_quern(quern_job_result(jobs[i], &result, &error));
        check_equal(&alone[i], &result);
        quern_result_free(&result);
        quern_job_free(jobs[i]);
    }
    size_t running = 1, waiting = 1;
    quern_model_jobs(m, &running, &waiting);
    assert_int_equal(running + waiting, 0);
    quern_model_free(m);
}

/* The same requests one after the other on one session, twice, so that the
 * second ones find their prompts in the cache; returns guesses that were right
 * and sets *drafted to all guesses. */
static int64_t check_alone(const quern_result *alone,
                           const quern_options *options, int64_t *drafted)
{
    quern_model *m = load(tiny, options);
    quern_session *s;
    int64_t accepted = 0;
    check_quern(quern_session_new(&s, m, &error));
    for (int i = 0; i < 2 * KINDS; i++) {
        quern_request r;
        quern_result result;
        make_request(&r, m, i / 2);
        check_quern(quern_generate(s, &r, NULL, NULL, &result, &error));
        check_equal(&alone[i / 2], &result);
        assert_true(i % 2 == 0 || result.cached_tokens > 0);
        /* The sequence is what it is without guesses, too. */
        size_t cut = result.end_id < 0 && result.stop < 0;
        assert_int_equal(quern_session_length(s),
                         r.id_count + result.token_count - (result.end_id < 0));
        assert_true(!cut || result.finish == QUERN_FINISH_LENGTH);
        accepted += result.accepted;
        *drafted += result.drafted;
        assert_true(result.accepted <= result.drafted);
        quern_result_free(&result);
    }
    quern_session_free(s);
    quern_model_free(m);
    return accepted;
}

static void test_answers_do_not_depend_on_how_they_are_made(void **state)
{
    (void)state;
    quern_result alone[KINDS];
    quern_options options;
    quern_options_init(&options);
    quern_model *m = load(tiny, &options);
    for (int i = 0; i < KINDS; i++)
        answer_alone(m, i, &alone[i]);
    quern_model_free(m);

    int64_t drafted = 0;
    check_together(alone, &options);
    assert_int_equal(check_alone(alone, &options, &drafted), 0);
    assert_int_equal(drafted, 0);
    /* Prompts in pieces, and a queue. */
    options.prefill_chunk = 3;
    options.parallel = 3;
    check_together(alone, &options);
    quern_options_init(&options);
    options.ngram = true;
    check_together(alone, &options);
    assert_true(check_alone(alone, &options, &drafted) > 0);
    assert_true(drafted > 0);
    /* A model that guesses what it would say itself, and another one. */
    static const char *const drafts[] = {tiny, "cases/fixtures/models/tiny_q4"};
    for (int i = 0; i < 2; i++) {
        char *path = qn_path_join(QN_TEST_VECTORS, drafts[i]);
        quern_options_init(&options);
        options.draft = path;
        drafted = 0;
        int64_t accepted = check_alone(alone, &options, &drafted);
        assert_true(drafted > 0 && accepted > 0);
        options.num_draft = 7;
        options.parallel = 3;
        options.prefill_chunk = 4;
        check_together(alone, &options);
        check_alone(alone, &options, &drafted);
        qn_free(path);
    }
    for (int i = 0; i < KINDS; i++)
        quern_result_free(&alone[i]);
}

static void test_greedy_guesses_of_the_same_model_are_right(void **state)
{
    (void)state;
    char *path = qn_path_join(QN_TEST_VECTORS, tiny);
    quern_options options;
    quern_options_init(&options);
    options.draft = path;
    quern_model *m = load(tiny, &options);
    quern_session *s;
    quern_request r;
    quern_result result;
    make_request(&r, m, 0);
    r.max_tokens = 41;
    r.ignore_eos = true;
    check_quern(quern_session_new(&s, m, &error));
    check_quern(quern_generate(s, &r, NULL, NULL, &result, &error));
    /* The first token comes from the prompt; then five at a time. */
    assert_int_equal(result.token_count, 41);
    assert_int_equal(result.drafted, 32);
    assert_int_equal(result.accepted, 32);
    assert_false(result.draft_stopped);
    quern_result_free(&result);
    r.num_draft = 0;
    check_quern(quern_generate(s, &r, NULL, NULL, &result, &error));
    assert_int_equal(result.drafted, 0);
    quern_result_free(&result);
    r.num_draft = 17;
    assert_int_equal(quern_generate(s, &r, NULL, NULL, NULL, &error),
                     QUERN_E_ARG);
    assert_string_equal(error.where, "num_draft");
    quern_session_free(s);
    quern_model_free(m);
    qn_free(path);
}

/* Two answers that run from the first step to the last beside each other. */
static int64_t guesses_of_two(int most_rows)
{
    quern_options options;
    quern_options_init(&options);
    options.ngram = true;
    options.spec_max_rows = most_rows;
    quern_model *m = load(tiny, &options);
    quern_request r;
    quern_job *jobs[2];
    int64_t drafted = 0;
    make_request(&r, m, 1);
    r.sampling.temperature = 0;
    r.max_tokens = 60;
    check_quern(quern_submit_n(jobs, 2, m, &r, &error));
    for (int i = 0; i < 2; i++) {
        quern_result result;
        check_quern(quern_job_result(jobs[i], &result, &error));
        assert_int_equal(result.finish, QUERN_FINISH_LENGTH);
        drafted += result.drafted;
        quern_result_free(&result);
        quern_job_free(jobs[i]);
    }
    quern_model_free(m);
    return drafted;
}

static void test_nothing_is_guessed_above_so_many_rows(void **state)
{
    (void)state;
    assert_true(guesses_of_two(0) > 0);
    assert_true(guesses_of_two(2) > 0);
    assert_int_equal(guesses_of_two(1), 0);
    quern_options options;
    quern_options_init(&options);
    options.spec_max_rows = 65;
    char *path = qn_path_join(QN_TEST_VECTORS, tiny);
    quern_model *m;
    assert_int_equal(quern_model_load(&m, path, &options, &error), QUERN_E_ARG);
    assert_string_equal(error.where, "spec_max_rows");
    options.spec_max_rows = 0;
    options.max_step_ms = -1;
    assert_int_equal(quern_model_load(&m, path, &options, &error), QUERN_E_ARG);
    assert_string_equal(error.where, "max_step_ms");
    qn_free(path);
}

/* Pieces that a prompt of 180 tokens comes in, and its answer. */
static int pieces_of(int max_step_ms, quern_result *result)
{
    quern_options options;
    quern_options_init(&options);
    options.max_step_ms = max_step_ms;
    quern_model *m = load(tiny, &options);
    quern_request r;
    quern_job *job;
    quern_event event;
    int32_t ids[180];
    for (int i = 0; i < 180; i++)
        ids[i] = (i * 7 + i / 9) % 320;
    make_request(&r, m, 3);
    r.ids = ids;
    r.id_count = 180;
    check_quern(quern_submit(&job, m, NULL, &r, &error));
    int pieces = 0;
    while (quern_job_next(job, -1, &event) && event.type != QUERN_EVENT_DONE)
        pieces += event.type == QUERN_EVENT_PROMPT;
    check_quern(quern_job_result(job, result, &error));
    quern_job_free(job);
    quern_model_free(m);
    return pieces;
}

static void test_prompts_are_cut_so_that_steps_are_short(void **state)
{
    (void)state;
    quern_result whole, cut;
    assert_int_equal(pieces_of(0, &whole), 1);
    /* The first piece is small, as long as nothing is known of the time. */
    assert_true(pieces_of(1, &cut) >= 2);
    check_equal(&whole, &cut);
    quern_result_free(&whole);
    quern_result_free(&cut);
}

static void test_a_draft_needs_the_same_vocabulary(void **state)
{
    (void)state;
    char *model = qn_path_join(QN_TEST_VECTORS, tiny);
    char *dir = temp_dir_new();
    static const char *const files[] = {"config.json", "model.safetensors",
                                        "tokenizer.json",
                                        "tokenizer_config.json"};
    for (size_t i = 0; i < 4; i++) {
        char *from = qn_path_join(model, files[i]), *text;
        size_t size;
        check_status(qn_file_read(&text, &size, from, 1 << 24), QN_OK);
        /* Another word in place of a token. */
        char *at = i == 2 ? strstr(text, "<tool_call>") : NULL;
        assert_true(i != 2 || at);
        if (at)
            memcpy(at, "<tool_CALL>", 11);
        temp_write(dir, files[i], text, size);
        qn_free(text);
        qn_free(from);
    }
    quern_options options;
    quern_options_init(&options);
    quern_model *m;
    options.draft = dir;
    assert_int_equal(quern_model_load(&m, model, &options, &error),
                     QUERN_E_MISMATCH);
    assert_non_null(strstr(error.message, "<tool_call>"));
    options.draft = "/nonexistent";
    assert_int_equal(quern_model_load(&m, model, &options, &error),
                     QUERN_E_NOTFOUND);
    options.draft = model;
    options.ngram = true;
    assert_int_equal(quern_model_load(&m, model, &options, &error),
                     QUERN_E_ARG);
    temp_dir_remove(dir);
    qn_free(model);
}

/* ---- pulling ---- */

static void test_steps_are_counted(void **state)
{
    (void)state;
    quern_options options;
    quern_options_init(&options);
    options.prefill_chunk = 5;
    quern_model *m = load(tiny, &options);
    quern_request r;
    quern_job *job;
    quern_steps steps;
    quern_result result;
    quern_model_steps(m, &steps);
    assert_int_equal(steps.count[0] + steps.count[1], 0);
    make_request(&r, m, 1);
    r.ignore_eos = true;
    r.max_tokens = 4;
    check_quern(quern_submit(&job, m, NULL, &r, &error));
    check_quern(quern_job_result(job, &result, &error));
    quern_model_steps(m, &steps);
    /* Pieces of five, the last of which may be one token; three more tokens
     * come from a step each. */
    assert_in_range(steps.count[0], r.id_count / 5, (r.id_count + 4) / 5);
    assert_int_equal(steps.count[0] + steps.count[1], (r.id_count + 4) / 5 + 3);
    assert_int_equal(steps.rows, steps.count[0] + steps.count[1]);
    assert_int_equal(steps.row_buckets[0], steps.rows);
    uint64_t sum = 0;
    for (int i = 0; i < QUERN_STEP_BUCKETS; i++)
        sum += steps.buckets[0][i] + steps.buckets[1][i];
    assert_int_equal(sum, steps.rows);
    assert_true(steps.seconds[0] > 0);
    assert_true(quern_step_bounds()[0] > 0);
    quern_result_free(&result);
    quern_job_free(job);
    quern_model_free(m);
}

static void test_events_are_pulled(void **state)
{
    (void)state;
    quern_options options;
    quern_options_init(&options);
    options.prefill_chunk = 5;
    quern_model *m = load(tiny, &options);
    quern_request r;
    quern_job *job;
    quern_event event;
    make_request(&r, m, 1);
    check_quern(quern_submit(&job, m, NULL, &r, &error));
    int fd = quern_job_fd(job);
    assert_true(fd >= 0);
    assert_int_equal(quern_job_fd(job), fd);
    qn_buf text = QN_BUF_INIT;
    int64_t done = 0;
    size_t tokens = 0;
    bool started = false;
    for (;;) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        assert_int_equal(poll(&p, 1, 20000), 1);
        if (!quern_job_next(job, 0, &event))
            continue; /* others were quicker: there are none here */
        if (event.type == QUERN_EVENT_DONE)
            break;
        if (event.type == QUERN_EVENT_START) {
            assert_int_equal(event.total, (int64_t)r.id_count);
            started = true;
        } else if (event.type == QUERN_EVENT_PROMPT) {
            assert_true(started && event.done > done);
            done = event.done;
        } else {
            qn_buf_add(&text, event.text, event.size);
            tokens += event.token_count;
        }
    }
    assert_int_equal(done, (int64_t)r.id_count);
    assert_int_equal(event.error->status, QUERN_OK);
    assert_int_equal(event.result->token_count, tokens);
    assert_int_equal(event.result->size, text.size);
    assert_memory_equal(event.result->text, text.data, text.size);
    /* It stays done. */
    assert_true(quern_job_next(job, -1, &event));
    assert_int_equal(event.type, QUERN_EVENT_DONE);
    qn_buf_free(&text);
    quern_job_free(job);
    quern_job_free(NULL);
    quern_model_free(m);
}

static void count_wakes(void *data)
{
    atomic_fetch_add((atomic_int *)data, 1);
}

static void test_a_job_that_nobody_reads_pauses(void **state)
{
    (void)state;
    quern_model *m = load(tiny, NULL);
    quern_request r;
    quern_job *slow, *other;
    quern_event event;
    atomic_int wakes = 0;
    make_request(&r, m, 0);
    r.max_tokens = 100;
    r.ignore_eos = true;
    r.unread_limit = 8;
    r.wake = count_wakes;
    r.wake_data = &wakes;
    check_quern(quern_submit(&slow, m, NULL, &r, &error));
    /* Another one ends meanwhile. */
    r.unread_limit = 0;
    r.wake = NULL;
    check_quern(quern_submit(&other, m, NULL, &r, &error));
    quern_result whole, result;
    check_quern(quern_job_result(other, &whole, &error));
    size_t running, waiting;
    quern_model_jobs(m, &running, &waiting);
    assert_int_equal(running, 1);
    assert_int_equal(atomic_load(&wakes), 1);
    while (quern_job_next(slow, -1, &event) && event.type != QUERN_EVENT_DONE)
        ;
    assert_true(atomic_load(&wakes) > 1);
    check_quern(quern_job_result(slow, &result, &error));
    check_equal(&whole, &result);
    quern_result_free(&whole);
    quern_result_free(&result);
    quern_job_free(slow);
    quern_job_free(other);
    quern_model_free(m);
}

static void test_jobs_are_cancelled(void **state)
{
    (void)state;
    quern_options options;
    quern_options_init(&options);
    options.parallel = 1;
    quern_model *m = load(tiny, &options);
    quern_session *s;
    quern_request r;
    quern_job *running, *waiting, *left;
    quern_event event;
    quern_result result;
    check_quern(quern_session_new(&s, m, &error));
    make_request(&r, m, 0);
    r.max_tokens = 200;
    r.ignore_eos = true;
    r.unread_limit = 4; /* so that it does not end by itself */
    check_quern(quern_submit(&running, m, s, &r, &error));
    /* The session is taken. */
    assert_int_equal(quern_submit(&left, m, s, &r, &error), QUERN_E_ARG);
    assert_int_equal(quern_session_feed(s, prompts[0], 3, &error), QUERN_E_ARG);
    check_quern(quern_submit(&waiting, m, NULL, &r, &error));
    check_quern(quern_submit(&left, m, NULL, &r, &error));
    assert_false(quern_job_next(waiting, 20, &event));
    quern_job_cancel(waiting);
    assert_int_equal(quern_job_result(waiting, &result, &error),
                     QUERN_E_CANCELLED);
    assert_int_equal(result.finish, QUERN_FINISH_CANCELLED);
    assert_int_equal(result.token_count, 0);
    quern_result_free(&result);
    quern_job_free(waiting);
    quern_job_cancel(running);
    assert_int_equal(quern_job_result(running, &result, &error),
                     QUERN_E_CANCELLED);
    assert_int_equal(error.status, QUERN_E_CANCELLED);
    quern_result_free(&result);
    quern_job_free(running);
    quern_job_free(left); /* running now; nobody has looked at it */
    check_quern(quern_session_feed(s, prompts[0], 3, &error));
    quern_session_free(s);
    quern_model_free(m);
}

/* ---- threads ---- */

enum { THREADS = 16, REQUESTS = 50 };

typedef struct client {
    pthread_t thread;
    quern_model *model;
    const quern_result *alone;
    int first;
    const char *failed;
} client;

static void *ask(void *data)
{
    client *c = data;
    quern_session *s;
    quern_error e;
    if (quern_session_new(&s, c->model, &e))
        return (void *)(c->failed = "session");
    for (int i = 0; i < REQUESTS && !c->failed; i++) {
        int kind = (c->first + i * 5) % KINDS;
        quern_request r;
        quern_result result;
        make_request(&r, c->model, kind);
        /* Now and then one that is given up. */
        quern_job *job;
        if (i % 7 == 6) {
            if (quern_submit(&job, c->model, NULL, &r, &e))
                c->failed = "submit";
            else
                quern_job_free(job);
        }
        if (quern_generate(s, &r, NULL, NULL, &result, &e))
            c->failed = "generate";
        else if (result.size != c->alone[kind].size ||
                 memcmp(result.text, c->alone[kind].text, result.size) != 0)
            c->failed = "another text";
        quern_result_free(&result);
    }
    quern_session_free(s);
    return NULL;
}

static void test_threads_share_a_scheduler(void **state)
{
    (void)state;
    quern_options options;
    quern_options_init(&options);
    quern_result alone[KINDS];
    client clients[THREADS];
    quern_model *m = load(tiny, &options);
    for (int i = 0; i < KINDS; i++)
        answer_alone(m, i, &alone[i]);
    for (int i = 0; i < THREADS; i++) {
        clients[i] = (client){.model = m, .alone = alone, .first = i};
        assert_int_equal(
            pthread_create(&clients[i].thread, NULL, ask, &clients[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(clients[i].thread, NULL);
        if (clients[i].failed)
            fail_msg("thread %d: %s", i, clients[i].failed);
    }
    for (int i = 0; i < KINDS; i++)
        quern_result_free(&alone[i]);
    quern_model_free(m);
}

/* ---- memory ---- */

static quern_model *short_of_memory;

static qn_status job_scenario(void)
{
    quern_request r;
    quern_job *job;
    quern_event event;
    make_request(&r, short_of_memory, 3);
    r.max_tokens = 4;
    quern_status status = quern_submit(&job, short_of_memory, NULL, &r, &error);
    if (status)
        return (qn_status)status;
    while (quern_job_next(job, -1, &event) && event.type != QUERN_EVENT_DONE)
        ;
    status = quern_job_result(job, NULL, &error);
    quern_job_free(job);
    return (qn_status)status;
}

static void test_memory_may_run_out(void **state)
{
    (void)state;
    quern_options options;
    quern_options_init(&options);
    options.ngram = true;
    short_of_memory = load(tiny, &options);
    /* On the model's thread, too. */
    qn_status status = QN_E_NOMEM;
    for (long n = 0; status == QN_E_NOMEM; n++) {
        qn_test_fail_alloc_anywhere(n);
        status = job_scenario();
        qn_test_fail_alloc_anywhere(-1);
    }
    check_status(status, QN_OK);
    quern_model_free(short_of_memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answers_do_not_depend_on_how_they_are_made),
        cmocka_unit_test(test_greedy_guesses_of_the_same_model_are_right),
        cmocka_unit_test(test_nothing_is_guessed_above_so_many_rows),
        cmocka_unit_test(test_prompts_are_cut_so_that_steps_are_short),
        cmocka_unit_test(test_a_draft_needs_the_same_vocabulary),
        cmocka_unit_test(test_steps_are_counted),
        cmocka_unit_test(test_events_are_pulled),
        cmocka_unit_test(test_a_job_that_nobody_reads_pauses),
        cmocka_unit_test(test_jobs_are_cancelled),
        cmocka_unit_test(test_threads_share_a_scheduler),
        cmocka_unit_test(test_memory_may_run_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
