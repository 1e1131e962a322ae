/* What lies in a cache, and what is cleaned out of it. */
#include "support/qn_test.h"

#include "hub/hub.h"
#include "hub/lock.h"

#include <sys/wait.h>
#include <utime.h>

static char root[256];
static qn_hub hub = {.root = root};

static void put(const char *name, const char *text)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", root, name);
    check_status(qn_make_parents(path), QN_OK);
    check_status(qn_file_write_atomic(path, text, strlen(text)), QN_OK);
}

static void put_link(const char *target, const char *name)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", root, name);
    check_status(qn_make_parents(path), QN_OK);
    assert_int_equal(symlink(target, path), 0);
}

static bool there(const char *name)
{
    char path[512];
    struct stat info;
    snprintf(path, sizeof path, "%s/%s", root, name);
    return !lstat(path, &info);
}

/* a/b with the commits 1111 (main) and 2222, each with a file of its own and
 * one in common; c/d whose link leads nowhere. */
static int set_up(void **state)
{
    (void)state;
    strcpy(root, "/tmp/quern-cache-XXXXXX");
    if (!mkdtemp(root))
        return -1;
    put("models--a--b/blobs/new", "12345");
    put("models--a--b/blobs/old", "123");
    put("models--a--b/blobs/both", "{}");
    put("models--a--b/blobs/part.incomplete", "1234567");
    put("models--a--b/refs/main", "1111");
    put_link("../../blobs/new",
             "models--a--b/snapshots/1111/model.safetensors");
    put_link("../../blobs/both", "models--a--b/snapshots/1111/config.json");
    put_link("../../blobs/old",
             "models--a--b/snapshots/2222/model.safetensors");
    put_link("../../blobs/both", "models--a--b/snapshots/2222/config.json");
    put("models--c--d/refs/main", "3333");
    put_link("../../blobs/gone",
             "models--c--d/snapshots/3333/model.safetensors");
    put("models--e--f/blobs/x.incomplete", "1");
    put("datasets--a--b/refs/main", "1111");
    return 0;
}

static int remove_one(const char *path, const struct stat *info, int type,
                      struct FTW *ftw)
{
    (void)info;
    (void)type;
    (void)ftw;
    return remove(path);
}

static int tear_down(void **state)
{
    (void)state;
    return nftw(root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static void test_rows_of_the_cache(void **state)
{
    (void)state;
    qn_arena arena = {0};
    quern_cached *rows = NULL;
    size_t count = 0;
    check_status(qn_cache_list(&arena, &rows, &count, &hub), QN_OK);
    assert_int_equal(count, 4);
    assert_string_equal(rows[0].id, "a/b");
    assert_string_equal(rows[0].revision, "1111");
    assert_string_equal(rows[0].refs, "main");
    assert_int_equal(rows[0].bytes, 7);
    assert_true(rows[0].complete);
    assert_string_equal(rows[1].revision, "2222");
    assert_string_equal(rows[1].refs, "");
    assert_string_equal(rows[2].id, "c/d");
    assert_false(rows[2].complete);
    assert_string_equal(rows[3].id, "e/f");
    assert_string_equal(rows[3].revision, "");
    qn_arena_free(&arena);
}

static void test_a_split_model_is_complete_with_all_parts(void **state)
{
    (void)state;
    qn_arena arena = {0};
    quern_cached *rows = NULL;
    size_t count = 0;
    put("models--g--h/snapshots/4444/m-00001-of-00002.gguf", "x");
    put("models--i--j/snapshots/5555/model.safetensors.index.json",
        "{\"weight_map\":{\"a\":\"x.safetensors\",\"b\":\"y.safetensors\"}}");
    put("models--i--j/snapshots/5555/x.safetensors", "x");
    check_status(qn_cache_list(&arena, &rows, &count, &hub), QN_OK);
    assert_int_equal(count, 6);
    assert_false(rows[4].complete);
    assert_false(rows[5].complete);
    put("models--g--h/snapshots/4444/m-00002-of-00002.gguf", "x");
    put("models--i--j/snapshots/5555/y.safetensors", "x");
    check_status(qn_cache_list(&arena, &rows, &count, &hub), QN_OK);
    assert_true(rows[4].complete);
    assert_true(rows[5].complete);
    qn_arena_free(&arena);
}

static qn_status list_all(void)
{
    qn_arena arena = {0};
    quern_cached *rows = NULL;
    size_t count = 0;
    qn_status status = qn_cache_list(&arena, &rows, &count, &hub);
    qn_arena_free(&arena);
    return status;
}

static void test_memory_may_run_out(void **state)
{
    (void)state;
    each_alloc_may_fail(list_all);
}

static size_t clean(qn_arena *arena, quern_gc_item **items,
                    const quern_gc_options *options)
{
    size_t count = 0;
    check_status(qn_cache_gc(arena, items, &count, &hub, options), QN_OK);
    return count;
}

static void test_what_nothing_names_goes(void **state)
{
    (void)state;
    qn_arena arena = {0};
    quern_gc_item *items;
    quern_gc_options options = {.older_than = -1, .dry_run = true};
    assert_int_equal(clean(&arena, &items, &options), 3);
    assert_string_equal(items[0].what, "snapshot 2222");
    assert_int_equal(items[0].bytes, 3);
    assert_string_equal(items[1].what, "partial file part.incompl");
    assert_int_equal(items[1].bytes, 7);
    assert_string_equal(items[2].id, "e/f");
    assert_true(there("models--a--b/blobs/old"));
    assert_true(there("models--a--b/snapshots/2222"));
    options.dry_run = false;
    assert_int_equal(clean(&arena, &items, &options), 3);
    assert_true(items[0].removed);
    assert_false(there("models--a--b/blobs/old"));
    assert_false(there("models--a--b/blobs/part.incomplete"));
    assert_false(there("models--a--b/snapshots/2222"));
    assert_true(there("models--a--b/blobs/new"));
    assert_true(there("models--a--b/blobs/both"));
    assert_true(there("models--a--b/snapshots/1111/model.safetensors"));
    assert_int_equal(clean(&arena, &items, &options), 0);
    qn_arena_free(&arena);
}

/* Links are never followed, wherever they lead. */
static void test_nothing_outside_the_cache_goes(void **state)
{
    (void)state;
    qn_arena arena = {0};
    quern_gc_item *items;
    char outside[] = "/tmp/quern-outside-XXXXXX", path[300];
    assert_non_null(mkdtemp(outside));
    snprintf(path, sizeof path, "%s/keep", outside);
    check_status(qn_file_write_atomic(path, "x", 1), QN_OK);
    put_link(outside, "models--x--y");
    put_link(outside, "models--e--f/snapshots/9999");
    put_link(outside, "models--a--b/snapshots/2222/folder");
    quern_gc_options options = {.older_than = 0, .unreferenced = true};
    clean(&arena, &items, &options);
    assert_true(qn_path_exists(path));
    assert_true(there("datasets--a--b/refs/main"));
    remove(path);
    rmdir(outside);
    qn_arena_free(&arena);
}

static void test_old_models_go_and_kept_ones_stay(void **state)
{
    (void)state;
    qn_arena arena = {0};
    quern_gc_item *items;
    const struct utimbuf long_ago = {1000000, 1000000};
    char path[512];
    static const char *const blobs[] = {"new", "old", "both"};
    for (size_t i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/models--a--b/blobs/%s", root, blobs[i]);
        assert_int_equal(utime(path, &long_ago), 0);
    }
    quern_gc_options options = {.older_than = 3600};
    const char *keep[] = {"A/B"};
    options.keep = keep;
    options.keep_count = 1;
    assert_int_equal(clean(&arena, &items, &options), 0);
    options.keep_count = 0;
    /* A load counts, whatever the files say. */
    snprintf(path, sizeof path, "%s/models--a--b/snapshots/1111", root);
    qn_lock_drop(qn_lock_use(&hub, path));
    assert_int_equal(clean(&arena, &items, &options), 0);
    snprintf(path, sizeof path, "%s/.locks/models--a--b/use.lock", root);
    assert_int_equal(utime(path, &long_ago), 0);
    assert_int_equal(clean(&arena, &items, &options), 1);
    assert_string_equal(items[0].what, "model");
    assert_false(there("models--a--b"));
    assert_true(there("models--c--d"));
    qn_arena_free(&arena);
}

/* A lock of this process would be its own; another one must hold it. */
static void test_a_model_in_use_stays(void **state)
{
    (void)state;
    qn_arena arena = {0};
    quern_gc_item *items;
    int ready[2], stop[2];
    char byte, path[512];
    assert_int_equal(pipe(ready) + pipe(stop), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (!child) {
        snprintf(path, sizeof path, "%s/models--a--b/snapshots/1111", root);
        bool held = qn_lock_use(&hub, path) >= 0;
        close(stop[1]);
        if (write(ready[1], "x", 1) != 1 || read(stop[0], &byte, 1) < 0)
            held = false;
        _exit(held ? 0 : 1);
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    quern_gc_options options = {.older_than = -1};
    assert_int_equal(clean(&arena, &items, &options), 3);
    assert_true(items[0].in_use);
    assert_false(items[0].removed);
    assert_true(there("models--a--b/snapshots/2222"));
    assert_true(items[2].removed); /* of another model */
    close(stop[0]);
    close(stop[1]);
    int code;
    assert_int_equal(waitpid(child, &code, 0), child);
    assert_int_equal(code, 0);
    assert_int_equal(clean(&arena, &items, &options), 2);
    assert_true(items[0].removed);
    close(ready[0]);
    close(ready[1]);
    qn_arena_free(&arena);
}

static void test_revisions(void **state)
{
    (void)state;
    char commit[QN_COMMIT_SIZE], *repo = qn_cache_repo(&hub, "a/b");
    check_status(qn_cache_commit(commit, repo, NULL, "a/b"), QN_OK);
    assert_string_equal(commit, "1111");
    check_status(qn_cache_commit(commit, repo, "2222", "a/b"), QN_OK);
    assert_string_equal(commit, "2222");
    check_error(qn_cache_commit(commit, repo, "222", "a/b"), QN_E_NOTFOUND,
                "revision 222");
    check_error(qn_cache_commit(commit, repo, "main2", "a/b"), QN_E_NOTFOUND,
                "main2");
    put("models--a--b/refs/evil", "../../../etc");
    check_status(qn_cache_commit(commit, repo, "evil", "a/b"), QN_E_NOTFOUND);
    qn_free(repo);
}

#define row(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        row(test_rows_of_the_cache),
        row(test_a_split_model_is_complete_with_all_parts),
        row(test_memory_may_run_out),
        row(test_what_nothing_names_goes),
        row(test_nothing_outside_the_cache_goes),
        row(test_old_models_go_and_kept_ones_stay),
        row(test_a_model_in_use_stays),
        row(test_revisions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
