/* Prompts that are kept on the disk: the next process finds them, an answer
 * has the bits that it has without, and nothing that is damaged, or that was
 * computed in another way, is used. */
#include "support/qn_test.h"

#include "base/file.h"

#include <quern/quern.h>

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

static quern_error error;
static char *folder;

#define check_quern(call)                                                      \
    do {                                                                       \
        quern_status status_ = call;                                           \
        if (status_)                                                           \
            print_error("%s: %s\n", error.where, error.message);               \
        assert_int_equal(status_, QUERN_OK);                                   \
    } while (0)

enum { PROMPT = 100, MUCH = 64 << 20 };

static quern_options with_disk(void)
{
    quern_options options;
    quern_options_init(&options);
    options.prefix_cache = MUCH;
    options.prefix_disk = folder;
    return options;
}

#define MODEL QN_TEST_VECTORS "/cases/fixtures/models/tiny"

static quern_model *load(const quern_options *options)
{
    quern_model *m = NULL;
    check_quern(quern_model_load(&m, MODEL, options, &error));
    return m;
}

/* The answer to prompt `which`; how many tokens were not computed. */
static int64_t ask(quern_model *m, int which, const char *space,
                   quern_result *out)
{
    int32_t ids[PROMPT];
    quern_request r;
    quern_request_init(&r, m);
    for (int i = 0; i < PROMPT; i++)
        ids[i] = (i * 37 + i / 7 + which * 101) % 320;
    r.ids = ids;
    r.id_count = PROMPT;
    r.max_tokens = 8;
    r.ignore_eos = true;
    r.sampling.temperature = 0;
    r.cache_space = space;
    quern_job *job;
    check_quern(quern_submit(&job, m, NULL, &r, &error));
    check_quern(quern_job_result(job, out, &error));
    quern_job_free(job);
    return out->cached_tokens;
}

static int64_t cached(quern_model *m, int which, const char *space)
{
    quern_result result;
    int64_t count = ask(m, which, space, &result);
    quern_result_free(&result);
    return count;
}

static quern_prefix_stats stats_of(quern_model *m)
{
    quern_prefix_stats stats;
    quern_model_prefixes(m, &stats);
    return stats;
}

/* A model lives, answers prompts 0 .. count, and goes. */
static void live(const quern_options *options, int count)
{
    quern_model *m = load(options);
    for (int i = 0; i < count; i++)
        assert_int_equal(cached(m, i, NULL), 0);
    quern_model_free(m);
}

/* How many files there are; the path of one of them to *path, if that is not
 * NULL. */
static int files(char **path)
{
    int count = 0;
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    for (const struct dirent *item; (item = readdir(dir));) {
        if (item->d_name[0] == '.')
            continue;
        if (path && !count)
            *path = qn_path_join(folder, item->d_name);
        count++;
    }
    closedir(dir);
    return count;
}

static int set_up(void **state)
{
    (void)state;
    folder = temp_dir_new();
    return chmod(folder, 0700);
}

static int tear_down(void **state)
{
    (void)state;
    temp_dir_remove(folder);
    return 0;
}

static void test_the_next_process_finds_it(void **state)
{
    (void)state;
    quern_options options = with_disk(), none;
    quern_options_init(&none);
    live(&options, 2);
    assert_int_equal(files(NULL), 2);
    quern_model *m = load(&options), *plain = load(&none);
    assert_int_equal(stats_of(m).disk_entries, 2);
    for (int i = 0; i < 2; i++) {
        quern_result a, b;
        assert_int_equal(ask(m, i, NULL, &a), PROMPT - 1);
        assert_int_equal(ask(plain, i, NULL, &b), 0);
        assert_int_equal(a.size, b.size);
        assert_memory_equal(a.text, b.text, a.size);
        quern_result_free(&a);
        quern_result_free(&b);
    }
    assert_int_equal(stats_of(m).hits, 2);
    /* Nothing new was said. */
    quern_model_free(m);
    assert_int_equal(files(NULL), 2);
    quern_model_free(plain);
}

static void test_it_is_written_while_nothing_is_computed(void **state)
{
    (void)state;
    quern_options options = with_disk();
    quern_model *m = load(&options);
    cached(m, 0, NULL);
    for (int i = 0; i < 6000 && !stats_of(m).disk_entries; i++)
        usleep(10000);
    assert_int_equal(stats_of(m).disk_entries, 1);
    assert_int_equal(files(NULL), 1);
    /* Memory may forget it then. */
    check_quern(quern_model_flush(m, NULL, NULL, &error));
    assert_int_equal(cached(m, 0, NULL), PROMPT - 1);
    quern_model_free(m);
}

static void test_spaces_see_nothing_of_each_other(void **state)
{
    (void)state;
    quern_options options = with_disk();
    live(&options, 1);
    quern_model *m = load(&options);
    assert_int_equal(cached(m, 0, "another"), 0);
    assert_int_equal(cached(m, 0, NULL), PROMPT - 1);
    quern_model_free(m);
    assert_int_equal(files(NULL), 2);
}

static void test_a_damaged_file_is_removed(void **state)
{
    (void)state;
    quern_options options = with_disk();
    char *path = NULL, *text;
    size_t size;
    live(&options, 1);
    assert_int_equal(files(&path), 1);
    assert_int_equal(qn_file_read(&text, &size, path, MUCH), QN_OK);
    text[size - 9] ^= 1;
    assert_int_equal(qn_file_write_atomic(path, text, size), QN_OK);
    qn_free(text);
    quern_model *m = load(&options);
    assert_int_equal(cached(m, 0, NULL), 0);
    assert_int_equal(stats_of(m).disk_refused, 1);
    assert_int_equal(stats_of(m).misses, 1);
    quern_model_free(m);
    /* Cut short, it is not even noted. */
    assert_int_equal(truncate(path, 100), 0);
    m = load(&options);
    assert_int_equal(stats_of(m).disk_entries, 0);
    assert_int_equal(cached(m, 0, NULL), 0);
    quern_model_free(m);
    qn_free(path);
}

static void test_what_was_computed_in_another_way_is_a_miss(void **state)
{
    (void)state;
    quern_options options = with_disk();
    options.dtype = QUERN_DTYPE_F32;
    live(&options, 1);
    options.dtype = QUERN_DTYPE_F16;
    quern_model *m = load(&options);
    assert_int_equal(cached(m, 0, NULL), 0);
    assert_int_equal(stats_of(m).disk_refused, 1);
    assert_int_equal(stats_of(m).misses, 1);
    quern_model_free(m);
}

/* Also where the profile changes nothing of this model. */
static void test_what_another_profile_computed_is_a_miss(void **state)
{
    (void)state;
    quern_options options = with_disk(), other = options;
    other.compat = "mlx-lm";
    live(&options, 1);
    quern_model *m = load(&other);
    assert_int_equal(cached(m, 0, NULL), 0);
    assert_int_equal(stats_of(m).disk_refused, 1);
    assert_int_equal(stats_of(m).misses, 1);
    assert_int_equal(cached(m, 0, NULL), PROMPT - 1); /* in memory */
    quern_model_free(m);
    m = load(&other);
    assert_int_equal(cached(m, 0, NULL), PROMPT - 1);
    assert_int_equal(stats_of(m).disk_refused, 0);
    quern_model_free(m);
    m = load(&options);
    assert_int_equal(cached(m, 0, NULL), 0);
    assert_int_equal(stats_of(m).disk_refused, 1);
    quern_model_free(m);
    other.compat = "llama.cpp";
    assert_int_equal(quern_model_load(&m, MODEL, &other, &error), QUERN_E_ARG);
    assert_string_equal(error.where, "compat");
}

static void test_the_least_recently_used_go(void **state)
{
    (void)state;
    quern_options options = with_disk();
    live(&options, 1);
    quern_model *m = load(&options);
    uint64_t one = stats_of(m).disk_bytes;
    quern_model_free(m);
    assert_true(one > 0);
    options.prefix_disk_limit = 2 * one + one / 2;
    m = load(&options);
    for (int i = 1; i < 4; i++)
        cached(m, i, NULL);
    quern_model_free(m);
    assert_int_equal(files(NULL), 2);
    m = load(&options);
    assert_int_equal(stats_of(m).disk_bytes, 2 * one);
    assert_int_equal(cached(m, 0, NULL), 0);
    quern_model_free(m);
}

static void test_a_flush_removes_the_files(void **state)
{
    (void)state;
    quern_options options = with_disk();
    size_t entries;
    uint64_t bytes;
    live(&options, 2);
    quern_model *m = load(&options);
    check_quern(quern_model_flush_disk(m, &entries, &bytes, &error));
    assert_int_equal(entries, 2);
    assert_true(bytes > 0);
    assert_int_equal(files(NULL), 0);
    assert_int_equal(cached(m, 0, NULL), 0);
    quern_model_free(m);
}

/* Also without a model. */
static void test_a_folder_that_nobody_uses_is_flushed(void **state)
{
    (void)state;
    quern_options options = with_disk();
    size_t entries = 7, kept;
    uint64_t bytes = 7, size;
    char other[512];
    check_quern(
        quern_prefix_flush("/nowhere/at/all", &entries, &bytes, &error));
    assert_int_equal(entries, 0);
    assert_int_equal(bytes, 0);
    live(&options, 2);
    /* What is no file of these stays. */
    snprintf(other, sizeof other, "%s/mine", folder);
    FILE *file = fopen(other, "w");
    assert_non_null(file);
    fclose(file);
    quern_model *m = load(&options);
    assert_int_equal(quern_prefix_flush(folder, &kept, &size, &error),
                     QUERN_E_ARG);
    assert_non_null(strstr(error.message, "another process"));
    assert_int_equal(stats_of(m).disk_entries, 2);
    size = stats_of(m).disk_bytes;
    quern_model_free(m);
    check_quern(quern_prefix_flush(folder, &entries, &bytes, &error));
    assert_int_equal(entries, 2);
    assert_int_equal(bytes, size);
    assert_int_equal(files(NULL), 1);
    assert_int_equal(unlink(other), 0);
    assert_int_equal(chmod(folder, 0750), 0);
    assert_int_equal(quern_prefix_flush(folder, NULL, NULL, &error),
                     QUERN_E_ARG);
    assert_int_equal(chmod(folder, 0700), 0);
    check_quern(quern_prefix_flush(folder, NULL, NULL, &error));
}

static void test_the_folder_is_for_one_process_of_its_owner(void **state)
{
    (void)state;
    quern_options options = with_disk();
    quern_model *m = load(&options), *second = NULL;
    char *path = qn_path_join(QN_TEST_VECTORS, "cases/fixtures/models/tiny");
    assert_int_equal(quern_model_load(&second, path, &options, &error),
                     QUERN_E_ARG);
    assert_non_null(strstr(error.message, "another process"));
    quern_model_free(m);
    assert_int_equal(chmod(folder, 0750), 0);
    assert_int_equal(quern_model_load(&second, path, &options, &error),
                     QUERN_E_ARG);
    assert_non_null(strstr(error.message, "0750"));
    assert_int_equal(chmod(folder, 0700), 0);
    qn_free(path);
}

static void test_rests_of_a_killed_process_go(void **state)
{
    (void)state;
    quern_options options = with_disk();
    char *path = NULL;
    char name[512];
    live(&options, 1);
    files(&path);
    const char *base = strrchr(path, '/') + 1;
    snprintf(name, sizeof name, "%s.0123456789abcdef.tmp", base);
    temp_write(folder, name, "half", 4);
    temp_write(folder, "mine.tmp", "a user's", 8);
    assert_int_equal(files(NULL), 3);
    quern_model_free(load(&options));
    assert_int_equal(files(NULL), 2);
    qn_free(path);
}

static quern_options short_options;
static const char tiny[] = QN_TEST_VECTORS "/cases/fixtures/models/tiny";

static qn_status scenario(void)
{
    quern_model *m = NULL;
    quern_request r;
    int32_t ids[40];
    quern_job *job;
    qn_status status =
        (qn_status)quern_model_load(&m, tiny, &short_options, &error);
    if (status)
        return status;
    quern_request_init(&r, m);
    for (int i = 0; i < 40; i++)
        ids[i] = i;
    r.ids = ids;
    r.id_count = 40;
    r.max_tokens = 1;
    status = (qn_status)quern_submit(&job, m, NULL, &r, &error);
    if (!status) {
        status = (qn_status)quern_job_result(job, NULL, &error);
        quern_job_free(job);
    }
    quern_model_free(m);
    return status;
}

/* Every so often, for there are many; what can't be kept is not, and no answer
 * suffers. */
static void test_memory_may_run_out(void **state)
{
    (void)state;
    short_options = with_disk();
    qn_status status = QN_E_NOMEM;
    for (long n = 0; status == QN_E_NOMEM && n < 100000; n += 97) {
        qn_test_fail_alloc_anywhere(n);
        status = scenario();
        qn_test_fail_alloc_anywhere(-1);
    }
    assert_int_equal(status, QN_OK);
    assert_int_equal(scenario(), QN_OK);
}

int main(void)
{
#define test_of(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        test_of(test_the_next_process_finds_it),
        test_of(test_it_is_written_while_nothing_is_computed),
        test_of(test_spaces_see_nothing_of_each_other),
        test_of(test_a_damaged_file_is_removed),
        test_of(test_what_was_computed_in_another_way_is_a_miss),
        test_of(test_what_another_profile_computed_is_a_miss),
        test_of(test_the_least_recently_used_go),
        test_of(test_a_flush_removes_the_files),
        test_of(test_a_folder_that_nobody_uses_is_flushed),
        test_of(test_the_folder_is_for_one_process_of_its_owner),
        test_of(test_rests_of_a_killed_process_go),
        test_of(test_memory_may_run_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
