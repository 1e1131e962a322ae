/* Reports: their text, the handler and its data, the slot of each thread. */
#include "capi.h"

#include "quern/ext.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>

static int fail_once(void)
{
    return mlx_array_eval(mlx_array_empty);
}

static void test_a_message_ends_with_its_place(void **state)
{
    (void)state;
    check_fails(fail_once(), "expected a non-empty mlx_array at ");
    const char *place = strstr(heard.text, " at ");
    assert_non_null(strstr(place, "capi/array.c:"));
}

static void test_mlx_error_formats_and_names_the_caller(void **state)
{
    (void)state;
    heard.count = 0;
    mlx_error("%d %s", 3, "rooms");
    check_heard("3 rooms at ");
    assert_non_null(strstr(heard.text, "test_error.c:"));
    /* Percent signs of an argument are not a format. */
    heard.count = 0;
    mlx_error("%s", "%s%n100%");
    check_heard("%s%n100% at ");
}

static char *long_message;

static void keep_whole(const char *message, void *data)
{
    (void)data;
    free(long_message);
    long_message = strdup(message);
}

static void test_a_long_message_arrives_whole(void **state)
{
    (void)state;
    char text[20001];
    memset(text, 'x', 20000);
    text[20000] = '\0';
    mlx_set_error_handler(keep_whole, NULL, NULL);
    _mlx_error("file.c", 7, "%s!", text);
    assert_int_equal(strlen(long_message), 20000 + strlen("! at file.c:7"));
    /* Without memory, its start and its place do. */
    qn_test_fail_alloc(0);
    _mlx_error("file.c", 7, "%s!", text);
    qn_test_fail_alloc(-1);
    assert_int_equal(strncmp(long_message, text, 1000), 0);
    assert_string_equal(long_message + strlen(long_message) - 12,
                        " at file.c:7");
    free(long_message);
    long_message = NULL;
    mlx_set_error_handler(hear, NULL, NULL);
}

/* ---- the handler ---- */

typedef struct owner {
    int heard, destroyed;
} owner;

static void hear_owner(const char *message, void *data)
{
    (void)message;
    ((owner *)data)->heard++;
}

static void destroy_owner(void *data)
{
    ((owner *)data)->destroyed++;
}

static void test_the_handler_gets_its_data_until_it_is_replaced(void **state)
{
    (void)state;
    owner first = {0}, second = {0};
    mlx_set_error_handler(hear_owner, &first, destroy_owner);
    fail_once();
    mlx_set_error_handler(hear_owner, &second, NULL);
    assert_int_equal(first.destroyed, 1);
    fail_once();
    mlx_set_error_handler(hear, NULL, NULL);
    assert_int_equal(first.heard, 1);
    assert_int_equal(first.destroyed, 1);
    assert_int_equal(second.heard, 1);
    assert_int_equal(second.destroyed, 0);
}

static void replace_itself(const char *message, void *data)
{
    (void)message;
    owner *o = data;
    mlx_set_error_handler(hear, NULL, NULL);
    /* Still in use here. */
    assert_int_equal(o->destroyed, 0);
    o->heard++;
}

static void test_a_handler_may_replace_itself(void **state)
{
    (void)state;
    owner o = {0};
    mlx_set_error_handler(replace_itself, &o, destroy_owner);
    fail_once();
    assert_int_equal(o.heard, 1);
    assert_int_equal(o.destroyed, 1);
    check_fails(fail_once(), "mlx_array");
}

static void test_without_memory_the_old_handler_stays(void **state)
{
    (void)state;
    owner o = {0};
    heard.count = 0;
    qn_test_fail_alloc(0);
    mlx_set_error_handler(hear_owner, &o, destroy_owner);
    qn_test_fail_alloc(-1);
    check_heard("out of memory");
    assert_int_equal(o.destroyed, 1);
    check_fails(fail_once(), "mlx_array");
}

/* What a child writes to its standard output, and how it ends. */
static int run_child(void (*body)(void), char *out, size_t size)
{
    int pipes[2];
    assert_int_equal(pipe(pipes), 0);
    fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (!pid) {
        dup2(pipes[1], STDOUT_FILENO);
        close(pipes[0]);
        close(pipes[1]);
        body();
        _exit(0);
    }
    close(pipes[1]);
    size_t have = 0;
    ssize_t got;
    while ((got = read(pipes[0], out + have, size - 1 - have)) > 0)
        have += (size_t)got;
    out[have] = '\0';
    close(pipes[0]);
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void fail_by_default(void)
{
    mlx_set_error_handler(NULL, NULL, NULL);
    _mlx_error("there.c", 12, "nothing fits");
}

static void test_the_default_prints_and_ends_the_process(void **state)
{
    (void)state;
    char out[256];
    assert_int_equal(run_child(fail_by_default, out, sizeof out), 255);
    assert_string_equal(out, "MLX error: nothing fits at there.c:12\n");
}

/* ---- each thread's last message ---- */

static void test_a_taken_message_is_gone(void **state)
{
    (void)state;
    free(quern_error_take());
    assert_null(quern_error_take());
    mlx_error("first");
    mlx_error("second");
    mlx_array_free(mlx_array_new_int(1)); /* success leaves it alone */
    char *message = quern_error_take();
    assert_non_null(strstr(message, "second at "));
    free(message);
    assert_null(quern_error_take());
}

static void *take_elsewhere(void *data)
{
    *(char **)data = quern_error_take();
    return NULL;
}

static void test_a_message_belongs_to_its_thread(void **state)
{
    (void)state;
    mlx_error("mine");
    pthread_t thread;
    char *theirs = "unset", *mine;
    assert_int_equal(pthread_create(&thread, NULL, take_elsewhere, &theirs), 0);
    pthread_join(thread, NULL);
    assert_null(theirs);
    mine = quern_error_take();
    assert_non_null(mine);
    free(mine);
}

static void test_the_library_says_what_it_is(void **state)
{
    (void)state;
    assert_string_equal(quern_version(), QUERN_VERSION);
    assert_string_equal(quern_library_path(), "(built in)");
}

/* ---- many threads, and a handler that fails itself ---- */

enum { THREADS = 8, CALLS = 200 };

static atomic_int outer_calls, inner_calls, wrong_messages, destructions;
static _Thread_local bool inside;
static char
    alone[2][sizeof heard.text]; /* the messages of the same calls made alone */

static int matmul_badly(mlx_stream s)
{
    const float zero[6] = {0};
    mlx_array a = mlx_array_new_data(zero, (int[]){2, 3}, 2, MLX_FLOAT32);
    mlx_array res = mlx_array_new();
    int rc = mlx_matmul(&res, a, a, s);
    mlx_array_free(a);
    mlx_array_free(res);
    return rc;
}

static int add_badly(mlx_stream s)
{
    const float zero[3] = {0};
    mlx_array a = mlx_array_new_data(zero, (int[]){2}, 1, MLX_FLOAT32);
    mlx_array b = mlx_array_new_data(zero, (int[]){3}, 1, MLX_FLOAT32);
    mlx_array res = mlx_array_new();
    int rc = mlx_add(&res, a, b, s);
    mlx_array_free(a);
    mlx_array_free(b);
    mlx_array_free(res);
    return rc;
}

static mlx_stream shared_stream;

static void fail_inside(const char *message, void *data)
{
    (void)data;
    if (inside) {
        atomic_fetch_add(&inner_calls, 1);
        if (strcmp(message, alone[1]) != 0)
            atomic_fetch_add(&wrong_messages, 1);
        return;
    }
    inside = true;
    mlx_array_free(mlx_array_new_int(3));
    if (!add_badly(shared_stream))
        atomic_fetch_add(&wrong_messages, 1);
    inside = false;
    /* The message is still whole after the calls in between. */
    if (strcmp(message, alone[0]) != 0)
        atomic_fetch_add(&wrong_messages, 1);
    atomic_fetch_add(&outer_calls, 1);
}

static void count_destruction(void *data)
{
    assert_ptr_equal(data, &destructions);
    atomic_fetch_add(&destructions, 1);
}

static void *fail_often(void *data)
{
    (void)data;
    for (int i = 0; i < CALLS; i++)
        if (!matmul_badly(shared_stream))
            atomic_fetch_add(&wrong_messages, 1);
    return NULL;
}

static void test_threads_report_at_once(void **state)
{
    (void)state;
    shared_stream = mlx_default_cpu_stream_new();
    matmul_badly(shared_stream);
    snprintf(alone[0], sizeof alone[0], "%s", heard.text);
    add_badly(shared_stream);
    snprintf(alone[1], sizeof alone[1], "%s", heard.text);
    mlx_set_error_handler(fail_inside, &destructions, count_destruction);
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, fail_often, NULL),
                         0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(atomic_load(&destructions), 0);
    mlx_set_error_handler(hear, NULL, NULL);
    assert_int_equal(atomic_load(&destructions), 1);
    assert_int_equal(atomic_load(&outer_calls), THREADS * CALLS);
    assert_int_equal(atomic_load(&inner_calls), THREADS * CALLS);
    assert_int_equal(atomic_load(&wrong_messages), 0);
    mlx_stream_free(shared_stream);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_message_ends_with_its_place),
        cmocka_unit_test(test_mlx_error_formats_and_names_the_caller),
        cmocka_unit_test(test_a_long_message_arrives_whole),
        cmocka_unit_test(test_the_handler_gets_its_data_until_it_is_replaced),
        cmocka_unit_test(test_a_handler_may_replace_itself),
        cmocka_unit_test(test_without_memory_the_old_handler_stays),
        cmocka_unit_test(test_the_default_prints_and_ends_the_process),
        cmocka_unit_test(test_a_taken_message_is_gone),
        cmocka_unit_test(test_a_message_belongs_to_its_thread),
        cmocka_unit_test(test_the_library_says_what_it_is),
        cmocka_unit_test(test_threads_report_at_once),
    };
    return cmocka_run_group_tests(tests, capi_setup, NULL);
}
