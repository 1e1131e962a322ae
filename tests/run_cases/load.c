/* load.c: cases of kind `load` that are small programs on the C API; those that
 * talk to a server go to server/load.py. */
#include "case.h"

#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { VALUES = 1000, REPEATS = 100, MOST_THREADS = 64 };

/* ---- y = x * x + 1 ---- */

/* Without evaluating it; the number of calls that failed. */
static int build(mlx_array *y, mlx_stream s)
{
    mlx_array x = mlx_array_new(), square = mlx_array_new();
    mlx_array one = mlx_array_new_float(1);
    int failed = mlx_arange(&x, 0, VALUES, 1, MLX_FLOAT32, s) != 0;
    failed += mlx_multiply(&square, x, x, s) != 0;
    failed += mlx_add(y, square, one, s) != 0;
    mlx_array_free(x);
    mlx_array_free(square);
    mlx_array_free(one);
    return failed;
}

/* Evaluates and reads it; whether all values are right. */
static bool is_right(mlx_array y)
{
    if (mlx_array_eval(y))
        return false;
    const float *data = mlx_array_data_float32(y);
    for (int i = 0; data && i < VALUES; i++)
        if (data[i] != (float)i * (float)i + 1)
            return false;
    return data && mlx_array_size(y) == VALUES;
}

/* ---- threads-eval ---- */

typedef struct handed {
    mlx_array y;
    int failed;
    bool right;
} handed;

static void *make(void *data)
{
    handed *h = data;
    mlx_stream s = mlx_default_cpu_stream_new();
    h->y = mlx_array_new();
    h->failed = build(&h->y, s);
    mlx_stream_free(s);
    return NULL;
}

static void *evaluate(void *data)
{
    handed *h = data;
    h->right = is_right(h->y);
    return NULL;
}

static void *drop(void *data)
{
    handed *h = data;
    mlx_array_free(h->y);
    return NULL;
}

static void on_thread(void *(*work)(void *), void *data)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, work, data)) {
        case_fail("case: no thread");
        return;
    }
    pthread_join(thread, NULL);
}

static void *alone(void *data)
{
    handed *h = data;
    mlx_device device = mlx_device_new_type(MLX_CPU, 0);
    mlx_stream s = mlx_stream_new_device(device);
    h->right = true;
    for (int i = 0; i < REPEATS; i++) {
        mlx_array y = mlx_array_new();
        h->failed += build(&y, s);
        h->right = h->right && is_right(y);
        mlx_array_free(y);
    }
    mlx_stream_free(s);
    mlx_device_free(device);
    return NULL;
}

static void threads_eval(const qn_json *input)
{
    int64_t count = case_int(input, "threads", 0);
    handed first = {0}, all[MOST_THREADS] = {{{0}, 0, false}};
    pthread_t threads[MOST_THREADS];
    if (count < 1 || count > MOST_THREADS) {
        case_fail("case: threads: %lld", (long long)count);
        return;
    }
    on_thread(make, &first);
    on_thread(evaluate, &first);
    on_thread(drop, &first);
    for (int64_t i = 0; i < count; i++)
        if (pthread_create(&threads[i], NULL, alone, &all[i]))
            case_fail("case: no thread");
    for (int64_t i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    for (int64_t i = -1; i < count; i++) {
        const handed *h = i < 0 ? &first : &all[i];
        if (!h->right)
            case_fail("values-right: they are not, on thread %d", (int)i);
        if (h->failed)
            case_fail("no-error: %d calls failed on thread %d", h->failed,
                      (int)i);
    }
    if (calls_error())
        case_fail("no-error: the handler ran: %s", calls_error());
}

/* ---- threads-errors ---- */

typedef struct heard {
    atomic_long calls, wrong;
    atomic_int dtors;
    char alone[1024], inner[1024]; /* the messages of the calls made alone */
    bool learning;
} heard;

static _Thread_local bool inside;

/* [2,3] times [2,3], or [2] plus [3]; what the call returned. */
static int fail_call(bool add)
{
    mlx_stream s = mlx_default_cpu_stream_new();
    const int a_shape[] = {2, 3}, b_shape[] = {3};
    const float zeros[6] = {0};
    mlx_array out = mlx_array_new();
    mlx_array a = mlx_array_new_data(zeros, a_shape, add ? 1 : 2, MLX_FLOAT32);
    mlx_array b = mlx_array_new_data(zeros, add ? b_shape : a_shape,
                                     add ? 1 : 2, MLX_FLOAT32);
    int rc = add ? mlx_add(&out, a, b, s) : mlx_matmul(&out, a, b, s);
    mlx_array_free(a);
    mlx_array_free(b);
    mlx_array_free(out);
    mlx_stream_free(s);
    return rc;
}

static void on_error(const char *message, void *data)
{
    heard *h = data;
    atomic_fetch_add(&h->calls, 1);
    if (h->learning)
        snprintf(inside ? h->inner : h->alone, sizeof h->alone, "%s", message);
    else if (strcmp(message, inside ? h->inner : h->alone) != 0)
        atomic_fetch_add(&h->wrong, 1);
    if (inside)
        return;
    inside = true;
    mlx_array one = mlx_array_new_int(1);
    if (!fail_call(true))
        atomic_fetch_add(&h->wrong, 1);
    mlx_array_free(one);
    inside = false;
}

static void on_drop(void *data)
{
    atomic_fetch_add(&((heard *)data)->dtors, 1);
}

static void on_other(const char *message, void *data)
{
    (void)message;
    (void)data;
}

typedef struct caller {
    int64_t calls, good;
} caller;

static void *call_often(void *data)
{
    caller *c = data;
    for (int64_t i = 0; i < c->calls; i++)
        c->good += fail_call(false) == 0;
    return NULL;
}

static void threads_errors(const qn_json *input)
{
    int64_t count = case_int(input, "threads", 0);
    int64_t calls = case_int(input, "calls", 0);
    static heard h;
    caller callers[MOST_THREADS] = {{0, 0}};
    pthread_t threads[MOST_THREADS];
    if (count < 1 || count > MOST_THREADS) {
        case_fail("case: threads: %lld", (long long)count);
        return;
    }
    mlx_set_error_handler(on_error, &h, on_drop);
    h.learning = true;
    fail_call(false);
    h.learning = false;
    atomic_store(&h.calls, 0);
    for (int64_t i = 0; i < count; i++) {
        callers[i].calls = calls;
        if (pthread_create(&threads[i], NULL, call_often, &callers[i]))
            case_fail("case: no thread");
    }
    int64_t good = 0;
    for (int64_t i = 0; i < count; i++) {
        pthread_join(threads[i], NULL);
        good += callers[i].good;
    }
    if (atomic_load(&h.dtors))
        case_fail("dtor-once: it ran before another handler was set");
    mlx_set_error_handler(on_other, NULL, NULL);
    if (good || atomic_load(&h.calls) != 2 * count * calls)
        case_fail("every-call-fails: %lld succeeded, %ld handler calls of %lld",
                  (long long)good, atomic_load(&h.calls),
                  (long long)(2 * count * calls));
    if (atomic_load(&h.wrong))
        case_fail("messages-whole: %ld are not those of a call alone ('%s')",
                  atomic_load(&h.wrong), h.alone);
    if (atomic_load(&h.dtors) != 1)
        case_fail("dtor-once: it ran %d times", atomic_load(&h.dtors));
}

/* ---- fork-eval ---- */

/* Waits up to `seconds` for the child; its status, or -1. */
static int wait_for(pid_t child, double seconds)
{
    int status = -1;
    for (int i = 0; i < (int)(seconds * 100); i++) {
        if (waitpid(child, &status, WNOHANG) == child)
            return status;
        usleep(10000);
    }
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    return -1;
}

static double rule_number(const qn_json *expect, const char *key)
{
    const qn_json *rules = qn_json_get(expect, "rules");
    double number = 0;
    for (uint32_t i = 0; rules && i < rules->count; i++)
        qn_json_as_double(qn_json_get(&rules->items[i], key), &number);
    return number;
}

static void fork_eval(const qn_json *expect)
{
    mlx_stream s = mlx_default_cpu_stream_new();
    mlx_array y = mlx_array_new();
    if (build(&y, s) || !is_right(y))
        case_fail("the parent's values are wrong");
    pid_t child = fork();
    if (!child) {
        alarm((unsigned)rule_number(expect, "seconds") + 1);
        mlx_array again = mlx_array_new();
        _exit(build(&again, s) || is_right(again) ? 0 : 1);
    }
    int status = wait_for(child, rule_number(expect, "seconds"));
    if (status)
        case_fail("child-exits-zero: %d", status);
    mlx_array_free(y);
    mlx_stream_free(s);
}

/* ---- exit-without-free ---- */

static void leave_arrays(int64_t count, int64_t megabytes, int done)
{
    mlx_stream s = mlx_default_cpu_stream_new();
    int shape = (int)(megabytes << 20);
    for (int64_t i = 0; i < count; i++) {
        mlx_array one = mlx_array_new();
        if (mlx_ones(&one, &shape, 1, MLX_UINT8, s) || mlx_array_eval(one))
            exit(1);
    }
    if (write(done, "x", 1) != 1)
        exit(1);
    exit(0);
}

static void exit_without_free(const qn_json *input, const qn_json *expect)
{
    int ends[2];
    char byte;
    if (pipe(ends)) {
        case_fail("case: no pipe");
        return;
    }
    pid_t child = fork();
    if (!child)
        leave_arrays(case_int(input, "arrays", 0),
                     case_int(input, "mb_each", 0), ends[1]);
    close(ends[1]);
    if (read(ends[0], &byte, 1) != 1)
        case_fail("the program does not come to its end");
    double ms = rule_number(expect, "ms");
    int status = wait_for(child, ms / 1000);
    if (status)
        case_fail("exits-within %.0f ms: %d", ms, status);
    close(ends[0]);
}

/* ---- the case ---- */

static void check_rules(const qn_json *expect)
{
    static const char *const known[] = {
        "values-right",   "no-error",  "tsan-clean",       "every-call-fails",
        "messages-whole", "dtor-once", "child-exits-zero", "exits-within"};
    const qn_json *rules = qn_json_get(expect, "rules");
    for (uint32_t i = 0; rules && i < rules->count; i++) {
        const qn_json *name = qn_json_get(&rules->items[i], "rule");
        qn_str text = name ? name->text : rules->items[i].text;
        bool found = false;
        for (size_t k = 0; k < sizeof known / sizeof *known; k++)
            found = found || qn_str_is(text, known[k]);
        if (!found)
            case_fail("case: no rule %.*s", (int)text.size, text.data);
    }
}

void run_load_case(const qn_json *c, const case_context *context)
{
    const qn_json *input = qn_json_get(c, "input");
    const qn_json *expect = qn_json_get(c, "expect");
    qn_str program = case_text(input, "program");
    if (qn_json_get(c, "server")) {
        run_server_case(c, context);
        return;
    }
    check_rules(expect);
    calls_begin();
    if (qn_str_is(program, "threads-eval"))
        threads_eval(input);
    else if (qn_str_is(program, "threads-errors"))
        threads_errors(input);
    else if (qn_str_is(program, "fork-eval"))
        fork_eval(expect);
    else if (qn_str_is(program, "exit-without-free"))
        exit_without_free(input, expect);
    else
        case_fail("case: no program %.*s", (int)program.size, program.data);
}
