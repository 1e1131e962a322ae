/* Eight threads that share arrays, streams and functions.  The thread
 * sanitizer looks on (make check-sanitizers); the values are checked anyway. */
#include "capi.h"

#include "quern/ext.h"

#include <pthread.h>
#include <stdatomic.h>

enum { THREADS = 8, ROUNDS = 20, LONG = 70000 };

static mlx_stream cpu;

static int setup(void **state)
{
    capi_setup(state);
    cpu = mlx_default_cpu_stream_new();
    /* Kernels split their work among threads, too. */
    return cpu.ctx == NULL || quern_set_threads(3);
}

static int teardown(void **state)
{
    (void)state;
    quern_set_threads(0);
    return mlx_stream_free(cpu);
}

/* ---- threads ---- */

/* cmocka's checks jump, which only its own thread may do. */
static atomic_int wrong;
#define must(condition)                                                        \
    do {                                                                       \
        if (!(condition)) {                                                    \
            print_error("%s:%d: %s\n", __FILE__, __LINE__, #condition);        \
            wrong++;                                                           \
        }                                                                      \
    } while (0)

typedef struct team team;
struct team {
    void (*work)(team *t, int me);
    pthread_barrier_t together;
    mlx_array a, b;
    mlx_closure fun;
    atomic_int next;
};

static void *member(void *data)
{
    team *t = data;
    int me = atomic_fetch_add(&t->next, 1);
    pthread_barrier_wait(&t->together);
    t->work(t, me);
    return NULL;
}

/* Runs `work` on eight threads at once. */
static void all(team *t, void (*work)(team *t, int me))
{
    pthread_t threads[THREADS];
    t->work = work;
    t->next = 0;
    wrong = 0;
    assert_int_equal(pthread_barrier_init(&t->together, NULL, THREADS), 0);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, member, t), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&t->together);
    assert_int_equal(wrong, 0);
}

static mlx_array range(int n)
{
    mlx_array a = {NULL};
    check_ok(mlx_arange(&a, 0, n, 1, MLX_FLOAT32, cpu));
    return a;
}

static float item(mlx_array a)
{
    float value = -1;
    must(!mlx_array_item_float32(&value, a));
    return value;
}

/* ---- arrays ---- */

/* Everybody builds on the same pending arrays and evaluates. */
static void work_on_arrays(team *t, int me)
{
    for (int i = 0; i < ROUNDS; i++) {
        mlx_array x = {NULL}, k = mlx_array_new_float((float)(me + i));
        must(!mlx_add(&x, t->a, k, cpu));
        must(!mlx_add(&x, x, t->b, cpu));
        must(!mlx_max(&x, x, false, cpu));
        must(item(x) == (float)(2 * (LONG - 1) + me + i));
        mlx_array_free(x);
        mlx_array_free(k);
    }
}

static void test_pending_arrays_are_shared(void **state)
{
    (void)state;
    team t = {.a = range(LONG), .b = range(LONG)};
    all(&t, work_on_arrays);
    mlx_array_free(t.a);
    mlx_array_free(t.b);
}

/* Handles are copied and freed while others use what they stand for. */
static void hold_and_free(team *t, int me)
{
    for (int i = 0; i < 10 * ROUNDS; i++) {
        mlx_array mine = {NULL};
        must(!mlx_array_set(&mine, t->a));
        if ((i + me) % 5 == 0)
            must(!mlx_array_eval(mine));
        must(mlx_array_size(mine) == LONG);
        mlx_vector_array list = mlx_vector_array_new_value(mine);
        mlx_array_free(mine);
        mlx_array again = {NULL};
        must(!mlx_vector_array_get(&again, list, 0));
        mlx_vector_array_free(list);
        mlx_array_free(again);
    }
}

static void test_references_are_counted(void **state)
{
    (void)state;
    team t = {.a = range(LONG)};
    check_ok(mlx_square(&t.a, t.a, cpu));
    all(&t, hold_and_free);
    mlx_array_free(t.a);
}

static void evaluate_later(team *t, int me)
{
    for (int i = 0; i < ROUNDS; i++) {
        mlx_array x = {NULL}, y = {NULL}, k = mlx_array_new_float((float)me);
        must(!mlx_multiply(&x, t->a, k, cpu));
        must(!mlx_sum(&y, x, false, cpu));
        mlx_vector_array both = mlx_vector_array_new_value(x);
        must(!mlx_vector_array_append_value(both, y));
        must(!mlx_async_eval(both));
        mlx_vector_array_free(both);
        mlx_array_free(x);
        if (i % 3 == 0)
            must(!mlx_synchronize(cpu));
        bool there = false;
        must(!_mlx_array_is_available(&there, y));
        must(!_mlx_array_wait(y));
        must(item(y) == (float)(me * (1000 * 999 / 2)));
        mlx_array_free(y);
        mlx_array_free(k);
    }
}

static void test_evaluations_are_handed_over(void **state)
{
    (void)state;
    team t = {.a = range(1000)};
    all(&t, evaluate_later);
    mlx_array_free(t.a);
}

/* ---- streams ---- */

static void use_streams(team *t, int me)
{
    mlx_device device = mlx_device_new_type(MLX_CPU, 0);
    mlx_stream mine = {NULL}, again = {NULL};
    must(!mlx_get_default_stream(&mine, device));
    must(!mlx_stream_equal(mine, cpu));
    for (int i = 0; i < ROUNDS; i++) {
        mlx_array x = {NULL};
        must(!mlx_negative(&x, t->a, i % 2 ? mine : cpu));
        must(!mlx_array_eval(x));
        must(!mlx_synchronize(i % 2 ? cpu : mine));
        must(!mlx_synchronize_default());
        mlx_array_free(x);
        mlx_vector_stream list = {NULL};
        must(!mlx_get_streams(&list));
        must(mlx_vector_stream_size(list) >= 2);
        mlx_vector_stream_free(list);
    }
    must(!mlx_set_default_stream(cpu));
    must(!mlx_get_default_stream(&again, device));
    must(mlx_stream_equal(again, cpu));
    if (me % 2)
        must(!mlx_clear_streams());
    mlx_stream_free(mine);
    mlx_stream_free(again);
    mlx_device_free(device);
}

static void test_streams_are_shared(void **state)
{
    (void)state;
    team t = {.a = range(1000)};
    all(&t, use_streams);
    mlx_array_free(t.a);
}

/* ---- functions ---- */

static atomic_int traced, destroyed;

static void count_destroyed(void *payload)
{
    mlx_array_free(*(mlx_array *)payload);
    free(payload);
    destroyed++;
}

/* exp(x) * captured + x */
static int chain(mlx_vector_array *res, const mlx_vector_array in,
                 void *payload)
{
    mlx_array x = {NULL}, y = {NULL};
    traced++;
    int failed = mlx_vector_array_get(&x, in, 0) || mlx_exp(&y, x, cpu) ||
                 mlx_multiply(&y, y, *(mlx_array *)payload, cpu) ||
                 mlx_add(&y, y, x, cpu);
    mlx_vector_array out = mlx_vector_array_new_value(y);
    failed = failed || mlx_vector_array_set(res, out);
    mlx_vector_array_free(out);
    mlx_array_free(x);
    mlx_array_free(y);
    return failed;
}

static mlx_closure new_chain(mlx_array captured)
{
    mlx_array *payload = calloc(1, sizeof *payload);
    assert_non_null(payload);
    check_ok(mlx_array_set(payload, captured));
    return mlx_closure_new_func_payload(chain, payload, count_destroyed);
}

static void call_compiled(team *t, int me)
{
    for (int i = 0; i < ROUNDS; i++) {
        mlx_array x = mlx_array_new_float(0), y = {NULL};
        int n = i % 3 + 1;
        must(!mlx_broadcast_to(&x, x, &n, 1, cpu));
        mlx_vector_array in = mlx_vector_array_new_value(x), out = {NULL};
        must(!mlx_closure_apply(&out, t->fun, in));
        must(!mlx_vector_array_get(&y, out, 0));
        must(!mlx_sum(&y, y, false, cpu));
        must(item(y) == (float)(2 * n));
        mlx_vector_array_free(in);
        mlx_vector_array_free(out);
        mlx_array_free(x);
        mlx_array_free(y);
        if (i == ROUNDS / 2 && me % 2) {
            mlx_compile_cache cache = mlx_compile_cache_new();
            must(!mlx_detail_compile_cache(&cache));
            must(!mlx_detail_compile_clear_cache(cache));
            mlx_compile_cache_free(cache);
        }
    }
}

static void test_a_compiled_function_is_shared(void **state)
{
    (void)state;
    mlx_array two = mlx_array_new_float(2);
    destroyed = traced = 0;
    for (int shapeless = 0; shapeless < 2; shapeless++) {
        team t = {0};
        mlx_closure fun = new_chain(two);
        check_ok(mlx_compile(&t.fun, fun, shapeless));
        mlx_closure_free(fun);
        all(&t, call_compiled);
        mlx_closure_free(t.fun);
    }
    mlx_array_free(two);
    assert_int_equal(destroyed, 2);
    /* Each thread records for itself, not each call. */
    assert_in_range(traced, 2, 2 * THREADS * ROUNDS - 1);
}

static void differentiate(team *t, int me)
{
    for (int i = 0; i < ROUNDS; i++) {
        mlx_array x = mlx_array_new_float(0), g = {NULL};
        mlx_array one = mlx_array_new_float(1);
        mlx_vector_array in = mlx_vector_array_new_value(x);
        mlx_vector_array cot = mlx_vector_array_new_value(one);
        mlx_vector_array values = {NULL}, grads = {NULL};
        if ((i + me) % 2)
            must(!mlx_vjp(&values, &grads, t->fun, in, cot));
        else
            must(!mlx_jvp(&values, &grads, t->fun, in, cot));
        must(!mlx_vector_array_get(&g, grads, 0));
        must(item(g) == 3.0f); /* 2 exp(0) + 1 */
        mlx_vector_array_free(in);
        mlx_vector_array_free(cot);
        mlx_vector_array_free(values);
        mlx_vector_array_free(grads);
        mlx_array_free(x);
        mlx_array_free(one);
        mlx_array_free(g);
    }
}

static void test_functions_are_transformed_by_all(void **state)
{
    (void)state;
    mlx_array one = mlx_array_new_float(1), two = {NULL};
    check_ok(mlx_add(&two, one, one, cpu)); /* pending */
    destroyed = 0;
    team t = {.fun = new_chain(two)};
    mlx_array_free(two);
    mlx_array_free(one);
    all(&t, differentiate);
    mlx_closure_free(t.fun);
    assert_int_equal(destroyed, 1);
}

/* The last of eight handles destroys the payload, on whatever thread. */
static void let_go(team *t, int me)
{
    mlx_closure mine = {NULL}, compiled = {NULL};
    must(!mlx_closure_set(&mine, t->fun));
    if (me % 2)
        must(!mlx_compile(&compiled, mine, false));
    pthread_barrier_wait(&t->together);
    if (!me)
        mlx_closure_free(t->fun);
    mlx_closure_free(mine);
    mlx_closure_free(compiled);
}

static void test_closures_are_freed_on_other_threads(void **state)
{
    (void)state;
    mlx_array two = mlx_array_new_float(2);
    for (int i = 0; i < ROUNDS; i++) {
        destroyed = 0;
        team t = {.fun = new_chain(two)};
        all(&t, let_go);
        assert_int_equal(destroyed, 1);
    }
    mlx_array_free(two);
}

/* ---- what belongs to a thread ---- */

static mlx_array drawn[THREADS];

static void draw(team *t, int me)
{
    (void)t;
    int shape[] = {50};
    mlx_array none = {NULL}, other = {NULL};
    must(!mlx_random_seed(7));
    for (int i = 0; i < 3; i++)
        must(
            !mlx_random_normal(&other, shape, 1, MLX_FLOAT32, 0, 1, none, cpu));
    must(
        !mlx_random_normal(&drawn[me], shape, 1, MLX_FLOAT32, 0, 1, none, cpu));
    mlx_array_free(other);
}

static void test_random_numbers_are_a_threads_own(void **state)
{
    (void)state;
    team t = {0};
    memset(drawn, 0, sizeof drawn);
    all(&t, draw);
    for (int i = 0; i < THREADS; i++)
        check_ok(mlx_array_eval(drawn[i]));
    for (int i = 1; i < THREADS; i++)
        assert_memory_equal(mlx_array_data_float32(drawn[i]),
                            mlx_array_data_float32(drawn[0]), 50 * 4);
    for (int i = 0; i < THREADS; i++)
        mlx_array_free(drawn[i]);
}

static void leave_arrays(team *t, int me)
{
    mlx_device device = mlx_device_new_type(MLX_CPU, 0);
    mlx_stream mine = {NULL};
    mlx_array k = mlx_array_new_float((float)me);
    must(!mlx_get_default_stream(&mine, device));
    must(!mlx_add(&drawn[me], t->a, k, mine));
    if (me % 2) {
        mlx_vector_array list = mlx_vector_array_new_value(drawn[me]);
        must(!mlx_async_eval(list));
        mlx_vector_array_free(list);
    }
    mlx_array_free(k);
    mlx_stream_free(mine);
    mlx_device_free(device);
}

static void test_arrays_outlive_their_thread(void **state)
{
    (void)state;
    team t = {.a = range(LONG)};
    memset(drawn, 0, sizeof drawn);
    all(&t, leave_arrays);
    for (int i = 0; i < THREADS; i++) {
        check_ok(mlx_max(&drawn[i], drawn[i], false, cpu));
        assert_true(item(drawn[i]) == (float)(LONG - 1 + i));
        mlx_array_free(drawn[i]);
    }
    mlx_array_free(t.a);
}

/* ---- errors, counters ---- */

static atomic_int reports;

static void count_report(const char *message, void *data)
{
    (void)data;
    if (strstr(message, "broadcast"))
        reports++;
}

static void fail_together(team *t, int me)
{
    mlx_array x = {NULL};
    for (int i = 0; i < 10 * ROUNDS; i++) {
        if (me == 0 && i % 7 == 0)
            mlx_set_error_handler(count_report, malloc(1), free);
        must(mlx_add(&x, t->a, t->b, cpu) == 1);
        char *message = quern_error_take();
        must(message && strstr(message, "broadcast"));
        free(message);
    }
    must(!x.ctx);
}

static void test_errors_are_each_threads_own(void **state)
{
    (void)state;
    team t = {.a = range(3), .b = range(4)};
    reports = 0;
    mlx_set_error_handler(count_report, NULL, NULL);
    all(&t, fail_together);
    mlx_set_error_handler(hear, NULL, NULL);
    assert_int_equal(reports, THREADS * 10 * ROUNDS);
    mlx_array_free(t.a);
    mlx_array_free(t.b);
}

static void count_memory(team *t, int me)
{
    for (int i = 0; i < ROUNDS; i++) {
        size_t bytes, peak;
        mlx_array x = {NULL};
        must(!mlx_square(&x, t->a, cpu));
        must(!mlx_array_eval(x));
        must(!mlx_get_active_memory(&bytes));
        must(bytes >= LONG * sizeof(float));
        if (me == 0)
            must(!mlx_clear_cache());
        if (me == 1)
            must(!mlx_set_cache_limit(&bytes, (size_t)i << 20));
        if (me == 2)
            must(!mlx_reset_peak_memory());
        must(!mlx_get_peak_memory(&peak));
        must(!mlx_get_cache_memory(&peak));
        mlx_array_free(x);
    }
}

static void test_memory_is_counted_together(void **state)
{
    (void)state;
    size_t before, after, limit;
    team t = {.a = range(LONG)};
    check_ok(mlx_array_eval(t.a));
    check_ok(mlx_get_active_memory(&before));
    check_ok(mlx_set_cache_limit(&limit, 1 << 20));
    all(&t, count_memory);
    check_ok(mlx_set_cache_limit(&after, limit));
    check_ok(mlx_get_active_memory(&after));
    assert_int_equal(before, after);
    mlx_array_free(t.a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pending_arrays_are_shared),
        cmocka_unit_test(test_references_are_counted),
        cmocka_unit_test(test_evaluations_are_handed_over),
        cmocka_unit_test(test_streams_are_shared),
        cmocka_unit_test(test_a_compiled_function_is_shared),
        cmocka_unit_test(test_functions_are_transformed_by_all),
        cmocka_unit_test(test_closures_are_freed_on_other_threads),
        cmocka_unit_test(test_random_numbers_are_a_threads_own),
        cmocka_unit_test(test_arrays_outlive_their_thread),
        cmocka_unit_test(test_errors_are_each_threads_own),
        cmocka_unit_test(test_memory_is_counted_together),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
