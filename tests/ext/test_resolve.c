/* Which library a build without an engine opens, and which version it refuses.
 * resolve.c is compiled into this test with names of its own: the library's
 * version comes from here, and all that is wanted of it is a cosine. */
#include "support/qn_test.h"

#include "base/alloc.h"
#include "ext/resolve.h"

#include <mlx/c/mlx.h>

#include <stdlib.h>
#include <string.h>

/* ---- what resolve.c calls ---- */

int resolved_engine_open(void);
char *resolved_error_take(void);
const char *resolved_library_path(void);
int stub_version(mlx_string *text);
int stub_string_free(mlx_string text);
void stub_set_error_handler(mlx_error_handler_func handler, void *data,
                            void (*dtor)(void *));

const char *const qn_shim_names[] = {"cos", NULL};
void *qn_shim_table[1];
const unsigned qn_shim_count = 1;

void qn_shim_closed(void)
{
}

static mlx_error_handler_func handler;
static const char *version; /* NULL: the call fails */
static int handler_first, versions, frees;

void stub_set_error_handler(mlx_error_handler_func given, void *data,
                            void (*dtor)(void *))
{
    (void)data;
    (void)dtor;
    handler = given;
}

int stub_version(mlx_string *text)
{
    versions++;
    handler_first = handler != NULL;
    if (version) {
        *text = mlx_string_new_data(version);
        return 0;
    }
    handler("the version is out at lunch", NULL);
    return 1;
}

int stub_string_free(mlx_string text)
{
    frees++;
    return mlx_string_free(text);
}

/* ---- which file ---- */

/* The paths that exist. */
static const char *there[4];

static bool exists(const char *path)
{
    for (int i = 0; i < 4 && there[i]; i++)
        if (!strcmp(path, there[i]))
            return true;
    return false;
}

static const char *const folders[] = {"/s/one", "/s/two", NULL};

static void check_path(const char *override, const char *wanted, bool found)
{
    qn_resolve_env env = {.override_path = override,
                          .executable_folder = "/program",
                          .pack_folder = "/pack",
                          .system = folders,
                          .exists = exists};
    char *path = NULL;
    bool is_there = !found;
    check_status(qn_resolve(&path, &is_there, &env), QN_OK);
    assert_string_equal(path, wanted);
    assert_int_equal(is_there, found);
    qn_free(path);
}

/* Each row of the table, the rows above it being absent. */
static void test_the_first_that_matches(void **state)
{
    (void)state;
    there[0] = "/program/libmlxc.so";
    there[1] = "/pack/libmlxc.so";
    there[2] = "/s/one/libmlxc.so";
    there[3] = "/s/two/libmlxc.so";
    check_path("/mine.so", "/mine.so", false);
    check_path("/s/two/libmlxc.so", "/s/two/libmlxc.so", true);
    check_path(NULL, "/program/libmlxc.so", true);
    check_path("", "/program/libmlxc.so", true);
    memmove(there, there + 1, sizeof there - sizeof *there);
    there[3] = NULL;
    check_path(NULL, "/pack/libmlxc.so", true);
    there[0] = "/s/one/libmlxc.so";
    check_path(NULL, "/s/one/libmlxc.so", true);
    there[0] = there[1] = "/s/two/libmlxc.so";
    check_path(NULL, "/s/two/libmlxc.so", true);
    there[0] = NULL;
    check_path(NULL, "/s/one/libmlxc.so", false);
}

/* ---- which version ---- */

static void check_open(const char *given, const char *part)
{
    versions = frees = 0;
    handler = NULL;
    version = given;
    assert_int_equal(resolved_engine_open(), part != NULL);
    assert_int_equal(versions, 1);
    assert_int_equal(frees, 1);
    /* The gate comes after the error handler. */
    assert_true(handler_first);
    char *message = resolved_error_take();
    if (part) {
        assert_non_null(message);
        if (!strstr(message, part))
            print_error("expected \"%s\" in \"%s\"\n", part, message);
        assert_non_null(strstr(message, part));
    }
    free(message);
}

/* A refusal is not kept: the next call tries again. */
static void test_exactly_one_version(void **state)
{
    (void)state;
    char *message;
    setenv("QUERN_LIBMLXC", "/nowhere/libmlxc.so", 1);
    assert_int_equal(resolved_engine_open(), 1);
    message = resolved_error_take();
    assert_non_null(message);
    assert_non_null(strstr(message, "/nowhere/libmlxc.so"));
    free(message);
    /* Without the function: its name and the library's. */
    setenv("QUERN_LIBMLXC", "libdl.so.2", 1);
    versions = 0;
    assert_int_equal(resolved_engine_open(), 1);
    assert_int_equal(versions, 0);
    message = resolved_error_take();
    assert_non_null(message);
    assert_non_null(strstr(message, "libdl.so.2: no symbol cos"));
    free(message);
    setenv("QUERN_LIBMLXC", "libm.so.6", 1);
    check_open("0.32.1", "quern needs MLX 0.32.2; libm.so.6 loaded MLX 0.32.1");
    check_open("0.32.2.dev1",
               "quern needs MLX 0.32.2; libm.so.6 loaded MLX 0.32.2.dev1");
    check_open("", "quern needs MLX 0.32.2");
    check_open(NULL, "the version is out at lunch");
    check_open("0.32.2", NULL);
    assert_string_equal(resolved_library_path(), "libm.so.6");
    /* Open: nothing more to do. */
    versions = 0;
    assert_int_equal(resolved_engine_open(), 0);
    assert_int_equal(versions, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_first_that_matches),
        cmocka_unit_test(test_exactly_one_version),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
