/* Answers of models whose layers forget (windows) or can't go back (recurrent
 * states): the same alone, with guesses, beside others and from a cache. */
#include "support/recipe.h"

#include <quern/quern.h>

enum { PROMPT = 40, MOST = 60, WAYS = 4 };

static quern_error error;

#define check_quern(call)                                                      \
    do {                                                                       \
        quern_status status_ = call;                                           \
        if (status_)                                                           \
            print_error("%s: %s\n", error.where, error.message);               \
        assert_int_equal(status_, QUERN_OK);                                   \
    } while (0)

static void copy_tokenizer(const char *dir)
{
    size_t size;
    char *text =
        vector_read("cases/fixtures/models/tiny/tokenizer.json", &size);
    temp_write(dir, "tokenizer.json", text, size);
    qn_free(text);
}

static void make_request(quern_request *r, const quern_model *m,
                         const int32_t *ids, int kind)
{
    quern_request_init(r, m);
    r->ids = ids;
    r->id_count = (size_t)(PROMPT - 3 * kind);
    r->max_tokens = MOST - 7 * kind;
    r->ignore_eos = true;
    r->sampling.temperature = kind % 2 ? 0.7 : 0;
    r->sampling.has_seed = true;
    r->sampling.seed = (uint64_t)kind;
}

static void check_same(const quern_result *a, const quern_result *b)
{
    assert_int_equal(a->token_count, b->token_count);
    for (size_t i = 0; i < a->token_count; i++)
        assert_int_equal(a->tokens[i].id, b->tokens[i].id);
}

/* On a model that was loaded with `options`: one after the other on a session,
 * each twice, then all at once. */
static int64_t check_ways(const char *path, const quern_options *options,
                          const int32_t *ids, const quern_result *wanted)
{
    quern_model *m;
    quern_session *s;
    quern_job *jobs[WAYS];
    quern_request r;
    quern_result result;
    int64_t accepted = 0;
    check_quern(quern_model_load(&m, path, options, &error));
    check_quern(quern_session_new(&s, m, &error));
    for (int i = 0; i < 2 * WAYS; i++) {
        make_request(&r, m, ids, i / 2);
        check_quern(quern_generate(s, &r, NULL, NULL, &result, &error));
        check_same(&wanted[i / 2], &result);
        assert_false(result.draft_stopped);
        accepted += result.accepted;
        quern_result_free(&result);
    }
    for (int i = 0; i < WAYS; i++) {
        make_request(&r, m, ids, i);
        check_quern(quern_submit(&jobs[i], m, NULL, &r, &error));
    }
    for (int i = 0; i < WAYS; i++) {
        check_quern(quern_job_result(jobs[i], &result, &error));
        check_same(&wanted[i], &result);
        quern_result_free(&result);
        quern_job_free(jobs[i]);
    }
    quern_session_free(s);
    quern_model_free(m);
    return accepted;
}

static void check_family(void **state)
{
    char *dir = temp_dir_new(), *path = recipe_write(*state, dir);
    quern_options options;
    quern_result wanted[WAYS];
    quern_model *m;
    quern_info info;
    int32_t ids[PROMPT];
    copy_tokenizer(dir);
    quern_options_init(&options);
    check_quern(quern_model_load(&m, path, &options, &error));
    quern_model_info(m, &info);
    /* Words that come again, for the n-grams. */
    for (int i = 0; i < PROMPT; i++)
        ids[i] = (i % 7 * 13 + 5) % info.token_count % info.vocab_size;
    for (int i = 0; i < WAYS; i++) {
        quern_session *s;
        quern_request r;
        make_request(&r, m, ids, i);
        check_quern(quern_session_new(&s, m, &error));
        check_quern(quern_generate(s, &r, NULL, NULL, &wanted[i], &error));
        quern_session_free(s);
    }
    quern_model_free(m);

    check_ways(path, &options, ids, wanted);
    options.ngram = true;
    options.prefill_chunk = 16;
    int64_t accepted = check_ways(path, &options, ids, wanted);
    options.ngram = false;
    options.draft = path;
    options.num_draft = 3;
    accepted += check_ways(path, &options, ids, wanted);
    assert_true(accepted > 0);
    for (int i = 0; i < WAYS; i++)
        quern_result_free(&wanted[i]);
    qn_free(path);
    temp_dir_remove(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        {"windows", check_family, NULL, NULL, (void *)"mistral-window"},
        {"windows in turns", check_family, NULL, NULL, (void *)"gemma2"},
        {"experts", check_family, NULL, NULL, (void *)"qwen3-moe"},
        {"recurrent", check_family, NULL, NULL, (void *)"qwen3-next"},
        {"recurrent, too", check_family, NULL, NULL, (void *)"qwen3-5"},
        {"shared keys", check_family, NULL, NULL, (void *)"gemma4"},
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
