/* Programs that use the library from several threads and processes, and that
 * end without tidying up. */
#include "capi.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>

#if defined(__SANITIZE_THREAD__)
#define TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define TSAN 1
#endif
#endif

enum { COUNT = 1000, THREADS = 8, ROUNDS = 100 };

/* What one program makes, evaluates and frees, perhaps on three threads. */
typedef struct job {
    mlx_stream stream;
    mlx_array x, y;
    bool own_stream;
    bool failed;
} job;

static void build(job *j)
{
    if (j->own_stream) {
        mlx_device cpu = mlx_device_new_type(MLX_CPU, 0);
        j->stream = mlx_stream_new_device(cpu);
        mlx_device_free(cpu);
    } else {
        j->stream = mlx_default_cpu_stream_new();
    }
    j->x = mlx_array_new();
    j->y = mlx_array_new();
    mlx_array one = mlx_array_new_float(1);
    j->failed = mlx_arange(&j->x, 0, COUNT, 1, MLX_FLOAT32, j->stream) ||
                mlx_multiply(&j->y, j->x, j->x, j->stream) ||
                mlx_add(&j->y, j->y, one, j->stream);
    mlx_array_free(one);
}

static void evaluate(job *j)
{
    j->failed = j->failed || mlx_array_eval(j->y);
    const float *data = j->failed ? NULL : mlx_array_data_float32(j->y);
    for (int i = 0; data && i < COUNT; i++)
        if (data[i] != (float)i * (float)i + 1)
            j->failed = true;
}

static void dispose(job *j)
{
    mlx_array_free(j->x);
    mlx_array_free(j->y);
    mlx_stream_free(j->stream);
}

static void *build_there(void *j)
{
    build(j);
    return NULL;
}

static void *evaluate_there(void *j)
{
    evaluate(j);
    return NULL;
}

static void *dispose_there(void *j)
{
    dispose(j);
    return NULL;
}

static void *all_alone(void *data)
{
    job *last = data;
    for (int i = 0; i < ROUNDS && !last->failed; i++) {
        job j = {.own_stream = true};
        build(&j);
        evaluate(&j);
        dispose(&j);
        last->failed = j.failed;
    }
    return NULL;
}

static atomic_int reports;

static void count_report(const char *message, void *data)
{
    (void)message;
    (void)data;
    atomic_fetch_add(&reports, 1);
}

static void run(void *(*body)(void *), void *data)
{
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, body, data), 0);
    pthread_join(thread, NULL);
}

static void test_arrays_move_between_threads(void **state)
{
    (void)state;
    mlx_set_error_handler(count_report, NULL, NULL);
    job j = {0};
    run(build_there, &j);
    run(evaluate_there, &j);
    run(dispose_there, &j);
    assert_false(j.failed);

    job jobs[THREADS] = {{.failed = false}};
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, all_alone, &jobs[i]),
                         0);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_false(jobs[i].failed);
    }
    assert_int_equal(atomic_load(&reports), 0);
    mlx_set_error_handler(hear, NULL, NULL);
}

/* Arrays, a vector and a stream that all threads use at once. */
typedef struct common {
    mlx_stream stream;
    mlx_array base, pending;
    atomic_int wrong;
} common;

static void *share(void *data)
{
    common *c = data;
    for (int i = 0; i < ROUNDS; i++) {
        mlx_array sum = mlx_array_new();
        mlx_vector_array list;
        int rc = mlx_add(&sum, c->base, c->pending, c->stream);
        list = mlx_vector_array_new_value(sum);
        rc = rc || (i % 2 ? mlx_async_eval(list) : mlx_eval(list));
        rc = rc || mlx_array_eval(sum);
        if (rc || mlx_array_data_int32(sum)[1] != 6 ||
            mlx_array_data_int32(c->pending)[0] != 2)
            atomic_fetch_add(&c->wrong, 1);
        mlx_vector_array_free(list);
        mlx_array_free(sum);
    }
    return NULL;
}

static void test_threads_share_arrays_and_a_stream(void **state)
{
    (void)state;
    common c = {.stream = mlx_default_cpu_stream_new(),
                .base = ints(2, (int[]){1, 2}),
                .pending = mlx_array_new()};
    check_ok(mlx_add(&c.pending, c.base, c.base, c.stream));
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, share, &c), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(atomic_load(&c.wrong), 0);
    mlx_array_free(c.base);
    mlx_array_free(c.pending);
    mlx_stream_free(c.stream);
}

/* Waits for a child, at most ten seconds, and returns its exit status. */
static int wait_for_child(pid_t pid)
{
    int status;
    for (int i = 0; i < 6000; i++) {
        if (waitpid(pid, &status, WNOHANG) == pid)
            return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
        usleep(10000);
    }
    kill(pid, SIGKILL);
    waitpid(pid, &status, 0);
    return 129;
}

static void test_a_forked_child_can_evaluate(void **state)
{
    (void)state;
#ifdef TSAN
    skip(); /* it allows no threads in such a child */
#endif
    job j = {0};
    build(&j);
    evaluate(&j);
    assert_false(j.failed);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (!pid) {
        job other = {0};
        build(&other);
        evaluate(&other);
        _exit(other.failed);
    }
    assert_int_equal(wait_for_child(pid), 0);
    evaluate(&j);
    assert_false(j.failed);
    dispose(&j);
}

/* What main would do: evaluated arrays, work under way, and out. */
static int leave_all_behind(int pipe_end)
{
    mlx_stream stream = mlx_default_cpu_stream_new();
    const int shape[] = {4 << 20};
    mlx_vector_array kept = mlx_vector_array_new();
    for (int i = 0; i < 16; i++) {
        mlx_array a = mlx_array_new();
        if (mlx_ones(&a, shape, 1, MLX_UINT8, stream) ||
            mlx_vector_array_append_value(kept, a))
            return 1;
    }
    if (mlx_eval(kept))
        return 2;
    mlx_array more = mlx_array_new();
    if (mlx_ones(&more, shape, 1, MLX_FLOAT32, stream) ||
        mlx_vector_array_append_value(kept, more) || mlx_async_eval(kept))
        return 3;
    return write(pipe_end, "x", 1) == 1 ? 0 : 4;
}

static void test_a_process_may_exit_without_freeing(void **state)
{
    (void)state;
    int pipes[2];
    char byte;
    assert_int_equal(pipe(pipes), 0);
#ifdef TSAN
    skip();
#endif
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (!pid) {
        int rc = leave_all_behind(pipes[1]);
#if defined(__SANITIZE_ADDRESS__)
        _exit(rc); /* leaks are the point here */
#else
        exit(rc);
#endif
    }
    close(pipes[1]);
    assert_int_equal(read(pipes[0], &byte, 1), 1);
    assert_int_equal(wait_for_child(pid), 0);
    close(pipes[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_forked_child_can_evaluate),
        cmocka_unit_test(test_a_process_may_exit_without_freeing),
        cmocka_unit_test(test_arrays_move_between_threads),
        cmocka_unit_test(test_threads_share_arrays_and_a_stream),
    };
    return cmocka_run_group_tests(tests, capi_setup, NULL);
}
