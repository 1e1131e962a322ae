/* Prompts that begin alike: what is kept of finished jobs, answers that share a
 * prompt, prompts that are computed at the same time.  Nothing of it shows in
 * an answer, to the bit. */
#include "support/qn_test.h"

#include "base/file.h"

#include <quern/quern.h>

#include <pthread.h>

static quern_error error;

#define check_quern(call)                                                      \
    do {                                                                       \
        quern_status status_ = call;                                           \
        if (status_)                                                           \
            print_error("%s: %s\n", error.where, error.message);               \
        assert_int_equal(status_, QUERN_OK);                                   \
    } while (0)

/* The tiny model with a longer context. */
static quern_model *load(const quern_options *options)
{
    static const char *const names[] = {"model.safetensors", "tokenizer.json",
                                        "tokenizer_config.json", "config.json"};
    char *dir = temp_dir_new();
    for (size_t i = 0; i < 4; i++) {
        char *name = qn_path_join("cases/fixtures/models/tiny", names[i]);
        size_t size;
        char *text = vector_read(name, &size);
        static const char key[] = "\"max_position_embeddings\": 256";
        char *at = i == 3 ? strstr(text, key) : NULL;
        assert_true(i != 3 || at);
        if (at)
            /* Of the same length. */
            memcpy(at, "\"max_position_embeddings\":2048", sizeof key - 1);
        temp_write(dir, names[i], text, size);
        qn_free(text);
        qn_free(name);
    }
    quern_model *m = NULL;
    check_quern(quern_model_load(&m, dir, options, &error));
    temp_dir_remove(dir);
    return m;
}

static quern_options with_store(uint64_t bytes)
{
    quern_options options;
    quern_options_init(&options);
    options.prefix_cache = bytes;
    return options;
}

enum { LONGEST = 700, MUCH = 64 << 20 };

/* `common` tokens that all prompts begin with, and `own` that depend on
 * `which`. */
typedef struct prompt {
    int32_t ids[LONGEST];
    size_t count;
} prompt;

static prompt make_prompt(size_t common, size_t own, int which)
{
    prompt p = {.count = common + own};
    for (size_t i = 0; i < common; i++)
        p.ids[i] = (int32_t)((i * 37 + i / 7) % 320);
    for (size_t i = 0; i < own; i++)
        p.ids[common + i] = (int32_t)((i * 11 + (size_t)which * 101 + 5) % 320);
    return p;
}

static quern_request ask_for(const quern_model *m, const prompt *p, int kind)
{
    quern_request r;
    quern_request_init(&r, m);
    r.ids = p->ids;
    r.id_count = p->count;
    r.max_tokens = 12;
    r.ignore_eos = true;
    r.logprobs = kind % 2;
    r.sampling.temperature = kind % 3 ? 0.9 : 0;
    r.sampling.has_seed = true;
    r.sampling.seed = (uint64_t)kind * 31 + 7;
    return r;
}

static void check_equal(const quern_result *a, const quern_result *b)
{
    assert_int_equal(a->size, b->size);
    assert_memory_equal(a->text, b->text, a->size);
    assert_int_equal(a->completion_tokens, b->completion_tokens);
    assert_int_equal(a->token_count, b->token_count);
    for (size_t i = 0; i < a->token_count; i++) {
        assert_int_equal(a->tokens[i].id, b->tokens[i].id);
        assert_memory_equal(&a->tokens[i].logprob, &b->tokens[i].logprob,
                            sizeof(float));
    }
}

static quern_result finish(quern_job *job)
{
    quern_result result;
    check_quern(quern_job_result(job, &result, &error));
    quern_job_free(job);
    return result;
}

static quern_result answer(quern_model *m, const quern_request *r)
{
    quern_job *job;
    check_quern(quern_submit(&job, m, NULL, r, &error));
    return finish(job);
}

/* The request's answer is the one of a model that keeps nothing; how many
 * tokens were not computed. */
static int64_t check_answer(quern_model *m, quern_model *plain,
                            const quern_request *r)
{
    quern_result found = answer(m, r), expected = answer(plain, r);
    check_equal(&found, &expected);
    assert_int_equal(expected.cached_tokens, 0);
    int64_t cached = found.cached_tokens;
    quern_result_free(&found);
    quern_result_free(&expected);
    return cached;
}

static quern_prefix_stats stats_of(quern_model *m)
{
    quern_prefix_stats stats;
    quern_model_prefixes(m, &stats);
    return stats;
}

static void check_hits(const char *kv)
{
    quern_options options = with_store(MUCH), none = with_store(0);
    options.kv = none.kv = kv;
    quern_model *m = load(&options), *plain = load(&none);
    prompt a = make_prompt(90, 20, 1), b = make_prompt(90, 35, 2);
    for (int kind = 0; kind < 6; kind++) {
        quern_request r = ask_for(m, &a, kind);
        int64_t cached = check_answer(m, plain, &r);
        assert_int_equal(cached, kind ? a.count - 1 : 0);
        r = ask_for(m, &b, kind);
        cached = check_answer(m, plain, &r);
        assert_int_equal(cached, kind ? b.count - 1 : 90);
    }
    quern_prefix_stats stats = stats_of(m);
    assert_int_equal(stats.misses, 1);
    assert_int_equal(stats.hits, 11);
    assert_int_equal(stats.hit_tokens,
                     90 + 5 * (a.count - 1) + 5 * (b.count - 1));
    assert_true(stats.entries >= 2 && stats.bytes > 0);
    size_t entries;
    uint64_t bytes;
    check_quern(quern_model_flush(m, &entries, &bytes, &error));
    assert_int_equal(entries, stats.entries);
    assert_int_equal(bytes, stats.bytes);
    assert_int_equal(stats_of(m).entries, 0);
    assert_int_equal(stats_of(m).bytes, 0);
    quern_request r = ask_for(m, &a, 0);
    assert_int_equal(check_answer(m, plain, &r), 0);
    quern_model_free(m);
    quern_model_free(plain);
}

static void test_a_prompt_that_is_kept_is_not_computed(void **state)
{
    (void)state;
    check_hits("f32");
    check_hits("f16");
}

static void
test_a_longer_conversation_takes_the_place_of_its_beginning(void **state)
{
    (void)state;
    quern_options options = with_store(MUCH);
    quern_model *m = load(&options);
    prompt p = make_prompt(60, 0, 0);
    for (int turn = 0; turn < 4; turn++) {
        quern_request r = ask_for(m, &p, 1);
        quern_result result = answer(m, &r);
        /* The last token of an answer is picked and never fed. */
        if (turn)
            assert_int_equal(result.cached_tokens, p.count - 7);
        for (size_t i = 0; i < result.token_count; i++)
            p.ids[p.count++] = result.tokens[i].id;
        for (int i = 0; i < 6; i++)
            p.ids[p.count++] = 40 + i;
        quern_result_free(&result);
        assert_int_equal(stats_of(m).entries, 1);
    }
    quern_model_free(m);
}

static void test_a_little_of_a_long_one_takes_little(void **state)
{
    (void)state;
    quern_options options = with_store(MUCH), none = with_store(0);
    quern_model *m = load(&options), *plain = load(&none);
    prompt p = make_prompt(690, 0, 0);
    quern_request r = ask_for(m, &p, 1);
    assert_int_equal(check_answer(m, plain, &r), 0);
    uint64_t whole = stats_of(m).bytes;
    p = make_prompt(40, 30, 1);
    r = ask_for(m, &p, 1);
    assert_int_equal(check_answer(m, plain, &r), 40);
    assert_int_equal(stats_of(m).entries, 2);
    assert_true(stats_of(m).bytes - whole <= whole / 2);
    quern_model_free(m);
    quern_model_free(plain);
}

static void test_spaces_see_nothing_of_each_other(void **state)
{
    (void)state;
    quern_options options = with_store(MUCH);
    quern_model *m = load(&options);
    prompt p = make_prompt(80, 0, 0);
    quern_request r = ask_for(m, &p, 1);
    static const char *const spaces[] = {NULL, "a", "b", "a", ""};
    static const int64_t cached[] = {0, 0, 0, 79, 79};
    for (int i = 0; i < 5; i++) {
        r.cache_space = spaces[i];
        quern_result result = answer(m, &r);
        assert_int_equal(result.cached_tokens, cached[i]);
        quern_result_free(&result);
    }
    quern_prefix_stats before = stats_of(m), after;
    r.no_cache = true;
    quern_result result = answer(m, &r);
    assert_int_equal(result.cached_tokens, 0);
    quern_result_free(&result);
    after = stats_of(m);
    assert_memory_equal(&before, &after, sizeof before);
    quern_model_free(m);
}

/* What one entry of `p` takes. */
static uint64_t bytes_of_one(const prompt *p)
{
    quern_options options = with_store(MUCH);
    quern_model *m = load(&options);
    quern_request r = ask_for(m, p, 1);
    quern_result result = answer(m, &r);
    quern_result_free(&result);
    uint64_t bytes = stats_of(m).bytes;
    assert_int_equal(stats_of(m).entries, 1);
    quern_model_free(m);
    return bytes;
}

static int64_t ask_quietly(quern_model *m, int which, int64_t pin)
{
    prompt p = make_prompt(0, 100, which);
    quern_request r = ask_for(m, &p, 1);
    quern_checkpoint mark = {.tokens = 60, .pin_seconds = pin};
    r.checkpoints = &mark;
    r.checkpoint_count = 1;
    quern_result result = answer(m, &r);
    int64_t cached = result.cached_tokens;
    quern_result_free(&result);
    return cached;
}

static void test_the_least_recently_used_go(void **state)
{
    (void)state;
    prompt p = make_prompt(0, 100, 0);
    uint64_t one = bytes_of_one(&p);
    quern_options options = with_store(3 * one);
    quern_model *m = load(&options);
    for (int i = 0; i < 3; i++)
        assert_int_equal(ask_quietly(m, i, 0), 0);
    assert_int_equal(stats_of(m).evictions, 0);
    assert_int_equal(ask_quietly(m, 0, 0), 99); /* used: 1 is the oldest now */
    assert_int_equal(ask_quietly(m, 3, 0), 0);
    assert_int_equal(stats_of(m).evictions, 1);
    assert_int_equal(ask_quietly(m, 2, 0), 99);
    assert_int_equal(ask_quietly(m, 0, 0), 99);
    assert_int_equal(ask_quietly(m, 1, 0), 0);
    quern_prefix_stats stats = stats_of(m);
    assert_int_equal(stats.limit, 3 * one);
    assert_true(stats.bytes <= stats.limit);
    assert_int_equal(stats.entries, 3);
    quern_model_free(m);
    /* One that is larger than all is not kept. */
    options = with_store(one - 1);
    m = load(&options);
    assert_int_equal(ask_quietly(m, 0, 0), 0);
    assert_int_equal(ask_quietly(m, 0, 0), 0);
    assert_int_equal(stats_of(m).entries, 0);
    quern_model_free(m);
}

static void test_pins_stay_as_far_as_half_of_the_room(void **state)
{
    (void)state;
    prompt p = make_prompt(0, 100, 0);
    uint64_t one = bytes_of_one(&p);
    quern_options options = with_store(4 * one);
    quern_model *m = load(&options);
    ask_quietly(m, 0, 3600);
    assert_true(stats_of(m).pinned_bytes > 0);
    for (int i = 1; i < 9; i++)
        ask_quietly(m, i, 0);
    assert_int_equal(ask_quietly(m, 0, 3600), 60);
    /* A third pin is more than half: the oldest becomes ordinary. */
    for (int i = 1; i < 3; i++)
        ask_quietly(m, i, 3600);
    assert_true(stats_of(m).pinned_bytes <= 2 * one);
    for (int i = 3; i < 9; i++)
        ask_quietly(m, i, 0);
    assert_int_equal(ask_quietly(m, 2, 0), 60);
    assert_int_equal(ask_quietly(m, 0, 0), 0);
    quern_model_free(m);
}

static void test_checkpoints_are_checked(void **state)
{
    (void)state;
    quern_options options = with_store(MUCH);
    quern_model *m = load(&options);
    prompt p = make_prompt(0, 100, 0);
    quern_request r = ask_for(m, &p, 1);
    static const quern_checkpoint bad[][2] = {{{0, 0}, {50, 0}},
                                              {{50, 0}, {50, 0}},
                                              {{50, 0}, {101, 0}},
                                              {{50, -1}, {60, 0}}};
    r.checkpoint_count = 2;
    for (size_t i = 0; i < 4; i++) {
        quern_job *job;
        r.checkpoints = bad[i];
        assert_int_equal(quern_submit(&job, m, NULL, &r, &error), QUERN_E_ARG);
        assert_non_null(strstr(error.message, "checkpoint"));
    }
    quern_model_free(m);
}

/* ---- caches that can't go back ---- */

static void test_a_window_gives_what_was_marked_or_asked_for_twice(void **state)
{
    (void)state;
    quern_options options = with_store(MUCH), none = with_store(0);
    options.max_kv_size = none.max_kv_size = 64;
    quern_model *m = load(&options), *plain = load(&none);
    prompt p = make_prompt(200, 500, 1);
    quern_request r = ask_for(m, &p, 1);
    assert_int_equal(check_answer(m, plain, &r), 0);
    /* The second one notices what is common, the third one has it. */
    p = make_prompt(200, 500, 2);
    r = ask_for(m, &p, 2);
    assert_int_equal(check_answer(m, plain, &r), 0);
    p = make_prompt(200, 500, 3);
    r = ask_for(m, &p, 3);
    assert_int_equal(check_answer(m, plain, &r), 200);
    /* A mark. */
    p = make_prompt(0, 600, 4);
    quern_checkpoint marks[] = {{.tokens = 150}, {.tokens = 600}};
    r = ask_for(m, &p, 4);
    r.checkpoints = marks;
    r.checkpoint_count = 2;
    assert_int_equal(check_answer(m, plain, &r), 0);
    for (int i = 150; i < 600; i++)
        p.ids[i] = 7 + i % 50;
    r.checkpoint_count = 1;
    assert_int_equal(check_answer(m, plain, &r), 150);
    quern_model_free(m);
    quern_model_free(plain);
}

/* A conversation: its next turn has this turn's messages, not its answer. */
static void
test_a_conversation_is_kept_before_the_prompt_for_its_answer(void **state)
{
    (void)state;
    quern_options options = with_store(MUCH), none = with_store(0);
    options.max_kv_size = none.max_kv_size = 64;
    options.chat_template = none.chat_template =
        "{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}"
        "{% if add_generation_prompt %}<assistant>{% endif %}";
    quern_model *m = load(&options), *plain = load(&none);
    prompt nothing = {.count = 0};
    quern_request r = ask_for(m, &nothing, 1);
    r.max_tokens = 700; /* the window leaves the prompt behind */
    r.ids = NULL;
    r.chat.messages = "[{\"role\": \"user\", \"content\": \"ask me why the "
                      "sky over the sea is blue, and what the sea has of "
                      "it\"}]";
    assert_int_equal(check_answer(m, plain, &r), 0);
    int32_t *ids;
    size_t turn;
    r.chat.add_generation_prompt = false;
    check_quern(quern_render_ids(m, &r.chat, &ids, &turn, &error));
    quern_free(ids);
    assert_true(turn > 40);
    r.chat.add_generation_prompt = true;
    r.chat.messages =
        "[{\"role\": \"user\", \"content\": \"ask me why the sky over the "
        "sea is blue, and what the sea has of it\"}, {\"role\": "
        "\"assistant\", \"content\": \"I would\"}, {\"role\": \"user\", "
        "\"content\": \"then do\"}]";
    assert_int_equal(check_answer(m, plain, &r), turn);
    quern_model_free(m);
    quern_model_free(plain);
}

/* ---- several answers ---- */

static void check_answers(const quern_options *options, bool no_cache)
{
    enum { N = 5 };
    quern_options none = *options;
    none.prefix_cache = 0;
    quern_model *m = load(options), *plain = load(&none);
    prompt p = make_prompt(100, 30, 3);
    for (int kind = 0; kind < 3; kind++) {
        quern_request r = ask_for(m, &p, kind);
        quern_job *jobs[N];
        r.no_cache = no_cache;
        p.ids[0] = kind; /* nothing of it is kept */
        check_quern(quern_submit_n(jobs, N, m, &r, &error));
        for (int i = 0; i < N; i++) {
            quern_result found = finish(jobs[i]);
            assert_int_equal(found.cached_tokens, i ? p.count : 0);
            quern_result expected = answer(plain, &r);
            r.sampling.seed++;
            check_equal(&found, &expected);
            quern_result_free(&found);
            quern_result_free(&expected);
        }
    }
    quern_model_free(m);
    quern_model_free(plain);
}

static void test_answers_to_one_prompt_compute_it_once(void **state)
{
    (void)state;
    quern_options options = with_store(0);
    check_answers(&options, false);
    options.parallel = 1; /* one after the other */
    check_answers(&options, false);
    options = with_store(MUCH);
    check_answers(&options, true);
    options.max_kv_size = 64;
    check_answers(&options, false);
    options = with_store(0);
    options.ngram = true;
    check_answers(&options, false);
}

static void test_answers_go_on_without_the_first(void **state)
{
    (void)state;
    quern_options options = with_store(0);
    options.parallel = 1;
    quern_model *m = load(&options);
    prompt p = make_prompt(500, 30, 3), other = make_prompt(0, 40, 9);
    quern_request r = ask_for(m, &p, 1), q = ask_for(m, &other, 1);
    quern_job *before, *jobs[3];
    /* So that the three wait for a place, and the first can be given up. */
    q.max_tokens = 200;
    q.unread_limit = 1;
    check_quern(quern_submit(&before, m, NULL, &q, &error));
    check_quern(quern_submit_n(jobs, 3, m, &r, &error));
    quern_job_free(jobs[0]);
    quern_job_free(before);
    quern_result second = finish(jobs[1]), third = finish(jobs[2]);
    assert_int_equal(second.cached_tokens, 0);
    assert_int_equal(third.cached_tokens, p.count);
    r.sampling.seed++;
    quern_result expected = answer(m, &r);
    check_equal(&second, &expected);
    quern_result_free(&second);
    quern_result_free(&third);
    quern_result_free(&expected);
    assert_int_equal(quern_submit_n(jobs, 0, m, &r, &error), QUERN_E_ARG);
    assert_int_equal(quern_submit_n(jobs, 17, m, &r, &error), QUERN_E_ARG);
    quern_model_free(m);
}

/* ---- at the same time ---- */

typedef struct gate {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool held, open;
} gate;

/* Holds the model's thread until all is handed over. */
static void hold(void *data)
{
    gate *g = data;
    pthread_mutex_lock(&g->lock);
    g->held = true;
    pthread_cond_broadcast(&g->changed);
    while (!g->open)
        pthread_cond_wait(&g->changed, &g->lock);
    pthread_mutex_unlock(&g->lock);
}

/* `n` prompts at once; what each found. */
static void ask_at_once(quern_model *m, quern_model *plain, prompt *prompts,
                        size_t n, int64_t *cached)
{
    gate g = {.lock = PTHREAD_MUTEX_INITIALIZER,
              .changed = PTHREAD_COND_INITIALIZER};
    prompt other = make_prompt(0, 40, 9);
    quern_request q = ask_for(m, &other, 1);
    quern_job *first, *jobs[8];
    q.wake = hold;
    q.wake_data = &g;
    q.no_cache = true;
    check_quern(quern_submit(&first, m, NULL, &q, &error));
    pthread_mutex_lock(&g.lock);
    while (!g.held)
        pthread_cond_wait(&g.changed, &g.lock);
    pthread_mutex_unlock(&g.lock);
    for (size_t i = 0; i < n; i++) {
        quern_request r = ask_for(m, &prompts[i], (int)i);
        check_quern(quern_submit(&jobs[i], m, NULL, &r, &error));
    }
    pthread_mutex_lock(&g.lock);
    g.open = true;
    pthread_cond_broadcast(&g.changed);
    pthread_mutex_unlock(&g.lock);
    for (size_t i = 0; i < n; i++) {
        quern_request r = ask_for(m, &prompts[i], (int)i);
        quern_result found = finish(jobs[i]), expected = answer(plain, &r);
        check_equal(&found, &expected);
        cached[i] = found.cached_tokens;
        quern_result_free(&found);
        quern_result_free(&expected);
    }
    quern_job_free(first);
}

static void check_at_once(const quern_options *options)
{
    quern_options none = *options;
    none.prefix_cache = 0;
    quern_model *m = load(options), *plain = load(&none);
    prompt prompts[] = {make_prompt(600, 30, 1), make_prompt(600, 40, 2),
                        make_prompt(600, 30, 1), make_prompt(400, 0, 0),
                        make_prompt(250, 60, 4), make_prompt(0, 300, 5)};
    static const int64_t expected[] = {0, 600, 630, 399, 0, 0};
    int64_t cached[6];
    ask_at_once(m, plain, prompts, 6, cached);
    for (int i = 0; i < 6; i++)
        assert_int_equal(cached[i], expected[i]);
    quern_model_free(m);
    quern_model_free(plain);
}

static void test_a_prompt_waits_for_one_that_begins_alike(void **state)
{
    (void)state;
    quern_options options = with_store(MUCH);
    options.prefill_chunk = 128;
    check_at_once(&options);
    options.max_kv_size = 64; /* caches that can't go back */
    check_at_once(&options);
}

/* ---- memory ---- */

static quern_model *short_of_memory;

static qn_status scenario(void)
{
    prompt p = make_prompt(50, 20, 1);
    quern_request r = ask_for(short_of_memory, &p, 1);
    quern_checkpoint mark = {.tokens = 40, .pin_seconds = 60};
    quern_job *jobs[2];
    qn_status status = QN_OK;
    r.max_tokens = 3;
    r.checkpoints = &mark;
    r.checkpoint_count = 1;
    if ((status =
             (qn_status)quern_submit_n(jobs, 2, short_of_memory, &r, &error)))
        return status;
    for (int i = 0; i < 2; i++) {
        qn_status found = (qn_status)quern_job_result(jobs[i], NULL, &error);
        status = status ? status : found;
        quern_job_free(jobs[i]);
    }
    return status;
}

static void test_memory_may_run_out(void **state)
{
    (void)state;
    quern_options options = with_store(MUCH);
    short_of_memory = load(&options);
    qn_status status = QN_E_NOMEM;
    for (long n = 0; status == QN_E_NOMEM; n++) {
        qn_test_fail_alloc_anywhere(n);
        status = scenario();
        qn_test_fail_alloc_anywhere(-1);
        check_quern(quern_model_flush(short_of_memory, NULL, NULL, &error));
    }
    check_status(status, QN_OK);
    quern_model_free(short_of_memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_prompt_that_is_kept_is_not_computed),
        cmocka_unit_test(
            test_a_longer_conversation_takes_the_place_of_its_beginning),
        cmocka_unit_test(test_a_little_of_a_long_one_takes_little),
        cmocka_unit_test(test_spaces_see_nothing_of_each_other),
        cmocka_unit_test(test_the_least_recently_used_go),
        cmocka_unit_test(test_pins_stay_as_far_as_half_of_the_room),
        cmocka_unit_test(test_checkpoints_are_checked),
        cmocka_unit_test(
            test_a_window_gives_what_was_marked_or_asked_for_twice),
        cmocka_unit_test(
            test_a_conversation_is_kept_before_the_prompt_for_its_answer),
        cmocka_unit_test(test_answers_to_one_prompt_compute_it_once),
        cmocka_unit_test(test_answers_go_on_without_the_first),
        cmocka_unit_test(test_a_prompt_waits_for_one_that_begins_alike),
        cmocka_unit_test(test_memory_may_run_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
