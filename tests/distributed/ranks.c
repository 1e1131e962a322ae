/* ranks.c: four processes, started by an MPI launcher (ranks.sh).
 *
 *   ranks [--fail | --strangers]
 *
 * Every process runs the same tests in the same order.  What a collective
 * should give is computed by each from the arrays that it knows the others
 * have.  Rank 0 reports; the others are only heard when something fails.
 *
 *   --fail       rank 1 ends with a failure while the others wait for it
 *   --strangers  the processes do not find each other: a strict group fails */
#include "capi/capi.h"

#include "distributed/mpi.h"

#include "mlx/c/mlx.h"

#include <math.h>
#include <pthread.h>
#include <sys/wait.h>

enum { RANKS = 4 };

static mlx_stream cpu;
static mlx_distributed_group all;
static int rank;

/* ---- arrays ---- */

static mlx_array typed(mlx_array x, mlx_dtype dtype)
{
    check_ok(mlx_astype(&x, x, dtype, cpu));
    return x;
}

/* What process `r` has: small whole numbers, which every type and every order
 * of adding gets right. */
static mlx_array of_rank(int r, int n, mlx_dtype dtype)
{
    float *values = calloc((size_t)n + 1, sizeof *values);
    for (int i = 0; i < n; i++)
        values[i] = (float)((i * 7 + r * 5) % 11);
    mlx_array x = mlx_array_new_data(values, &n, 1, MLX_FLOAT32);
    free(values);
    if (dtype == MLX_BOOL) {
        mlx_array limit = mlx_array_new_float(7);
        check_ok(mlx_greater(&x, x, limit, cpu));
        mlx_array_free(limit);
    }
    return typed(x, dtype);
}

static void reshape_to(mlx_array *x, const int *shape, size_t ndim)
{
    check_ok(mlx_reshape(x, *x, shape, ndim, cpu));
}

static void check_same(mlx_array found, mlx_array expected)
{
    bool same;
    mlx_array equal = mlx_array_new();
    assert_int_equal(mlx_array_dtype(found), mlx_array_dtype(expected));
    check_ok(mlx_array_equal(&equal, found, expected, true, cpu));
    check_ok(mlx_array_item_bool(&same, equal));
    if (!same) {
        mlx_string a = mlx_string_new(), b = mlx_string_new();
        mlx_array_tostring(&a, found);
        mlx_array_tostring(&b, expected);
        print_error("rank %d: expected %s, found %s\n", rank,
                    mlx_string_data(b), mlx_string_data(a));
        mlx_string_free(a);
        mlx_string_free(b);
    }
    assert_true(same);
    mlx_array_free(equal);
}

static void check_number(mlx_array x, float expected)
{
    float found;
    check_ok(mlx_array_item_float32(&found, x));
    assert_float_equal(found, expected, 0);
}

typedef int collective(mlx_array *, mlx_array, mlx_distributed_group,
                       mlx_stream);
typedef int binary(mlx_array *, mlx_array, mlx_array, mlx_stream);

static const struct {
    collective *over_ranks;
    binary *of_two;
} reductions[] = {{mlx_distributed_all_sum, mlx_add},
                  {mlx_distributed_all_max, mlx_maximum},
                  {mlx_distributed_all_min, mlx_minimum}};
enum { REDUCTIONS = 3 };

/* The ranks first, first + step, ... reduced by this process. */
static mlx_array reduced(binary *of_two, int first, int step, int n,
                         mlx_dtype dtype)
{
    mlx_array x = of_rank(first, n, dtype);
    for (int r = first + step; r < RANKS; r += step) {
        mlx_array y = of_rank(r, n, dtype);
        check_ok(of_two(&x, x, y, cpu));
        mlx_array_free(y);
    }
    return x;
}

static mlx_array gathered(int n, mlx_dtype dtype)
{
    mlx_vector_array parts = mlx_vector_array_new();
    for (int r = 0; r < RANKS; r++) {
        mlx_array y = of_rank(r, n, dtype);
        check_ok(mlx_vector_array_append_value(parts, y));
        mlx_array_free(y);
    }
    mlx_array x = mlx_array_new();
    check_ok(mlx_concatenate(&x, parts, cpu));
    mlx_vector_array_free(parts);
    return x;
}

/* ---- groups ---- */

static void test_group_of_all(void **state)
{
    (void)state;
    assert_true(mlx_distributed_is_available("mpi"));
    assert_true(mlx_distributed_is_available(NULL));
    assert_int_equal(mlx_distributed_group_size(all), RANKS);
    assert_in_range(rank, 0, RANKS - 1);
    static const char *const names[] = {NULL, "any", "mpi"};
    for (int i = 0; i < 3; i++) {
        mlx_distributed_group again = mlx_distributed_group_new();
        check_ok(mlx_distributed_init(&again, i == 2, names[i]));
        assert_int_equal(mlx_distributed_group_rank(again), rank);
        assert_int_equal(mlx_distributed_group_size(again), RANKS);
        mlx_distributed_group_free(again);
    }
    mlx_distributed_group other = mlx_distributed_group_new();
    check_ok(mlx_distributed_init(&other, false, "ring"));
    assert_int_equal(mlx_distributed_group_size(other), 1);
    mlx_distributed_group_free(other);
}

static void test_every_rank_is_there_once(void **state)
{
    (void)state;
    mlx_array mine = mlx_array_new_int(rank), x = mlx_array_new();
    check_ok(mlx_distributed_all_gather(&x, mine, all, cpu));
    check_ints(x, RANKS, (const int[]){0, 1, 2, 3});
    mlx_array_free(x);
    mlx_array_free(mine);
}

static void test_split(void **state)
{
    (void)state;
    static const int keys[] = {-1, 0};
    for (int k = 0; k < 2; k++) {
        mlx_distributed_group half = mlx_distributed_group_new();
        check_ok(mlx_distributed_group_split(&half, all, rank % 2, keys[k]));
        assert_int_equal(mlx_distributed_group_size(half), 2);
        assert_int_equal(mlx_distributed_group_rank(half), rank / 2);
        for (int i = 0; i < REDUCTIONS; i++) {
            mlx_array x = of_rank(rank, 9, MLX_FLOAT32);
            mlx_array wanted =
                reduced(reductions[i].of_two, rank % 2, 2, 9, MLX_FLOAT32);
            check_ok(reductions[i].over_ranks(&x, x, half, cpu));
            check_same(x, wanted);
            mlx_array_free(x);
            mlx_array_free(wanted);
        }
        mlx_distributed_group_free(half);
    }
    /* Keys turn the order around; a group of one passes arrays through. */
    mlx_distributed_group part = mlx_distributed_group_new();
    check_ok(mlx_distributed_group_split(&part, all, 0, RANKS - rank));
    assert_int_equal(mlx_distributed_group_rank(part), RANKS - 1 - rank);
    check_ok(mlx_distributed_group_split(&part, part, rank, 0));
    assert_int_equal(mlx_distributed_group_size(part), 1);
    mlx_array x = of_rank(rank, 3, MLX_INT8), y = mlx_array_new();
    check_ok(mlx_distributed_all_sum(&y, x, part, cpu));
    check_same(y, x);
    check_fails(mlx_distributed_send(&y, x, 0, part, cpu),
                "Cannot send to a singleton group");
    mlx_array_free(x);
    mlx_array_free(y);
    mlx_distributed_group_free(part);
}

static void test_errors_of_this_process(void **state)
{
    (void)state;
    mlx_array x = of_rank(rank, 3, MLX_FLOAT32), y = mlx_array_new();
    mlx_array point = mlx_array_new_float(1);
    mlx_distributed_group part = mlx_distributed_group_new();
    check_fails(mlx_distributed_send(&y, x, RANKS, all, cpu),
                "Invalid destination=4 for a group of size 4");
    check_fails(mlx_distributed_send(&y, x, -1, all, cpu),
                "Invalid destination=-1 for a group of size 4");
    check_fails(mlx_distributed_recv_like(&y, x, 9, all, cpu),
                "Invalid source=9 for a group of size 4");
    check_fails(mlx_distributed_recv(&y, (int[]){-2}, 1, MLX_INT8, 0, all, cpu),
                "recv");
    check_fails(mlx_distributed_sum_scatter(&y, x, all, cpu),
                "[sum_scatter] Invalid shape=(3) for a group of size 4.");
    check_fails(mlx_distributed_sum_scatter(&y, point, all, cpu),
                "[sum_scatter] Invalid shape=() for a group of size 4.");
    check_fails(mlx_distributed_group_split(&part, all, -1, 0),
                "The color must not be negative");
    assert_null(y.ctx);
    assert_null(part.ctx);
    mlx_array_free(x);
    mlx_array_free(point);
}

/* ---- collectives ---- */

static void check_collectives(int n)
{
    for (int d = 0; d <= MLX_COMPLEX64; d++) {
        mlx_dtype dtype = (mlx_dtype)d;
        mlx_array x = of_rank(rank, n, dtype), y = mlx_array_new(), wanted;
        for (int i = 0; i < REDUCTIONS; i++) {
            wanted = reduced(reductions[i].of_two, 0, 1, n, dtype);
            check_ok(reductions[i].over_ranks(&y, x, all, cpu));
            check_same(y, wanted);
            mlx_array_free(wanted);
        }
        wanted = gathered(n, dtype);
        check_ok(mlx_distributed_all_gather(&y, x, all, cpu));
        check_same(y, wanted);
        mlx_array_free(wanted);

        wanted = reduced(mlx_add, 0, 1, n, dtype);
        int part = n / RANKS, from = rank * part, to = from + part, one = 1;
        check_ok(mlx_slice(&wanted, wanted, &from, 1, &to, 1, &one, 1, cpu));
        check_ok(mlx_distributed_sum_scatter(&y, x, all, cpu));
        check_same(y, wanted);
        mlx_array_free(wanted);
        mlx_array_free(x);
        mlx_array_free(y);
    }
}

static void test_collectives_of_every_dtype(void **state)
{
    (void)state;
    check_collectives(12);
    check_collectives(4000);
}

static void test_nothing_is_sent_for_nothing(void **state)
{
    (void)state;
    mlx_array x = of_rank(rank, 0, MLX_FLOAT32), y = mlx_array_new();
    for (int i = 0; i < REDUCTIONS; i++) {
        check_ok(reductions[i].over_ranks(&y, x, all, cpu));
        check_same(y, x);
    }
    check_ok(mlx_distributed_all_gather(&y, x, all, cpu));
    check_same(y, x);
    check_ok(mlx_distributed_sum_scatter(&y, x, all, cpu));
    check_same(y, x);
    check_ok(mlx_distributed_send(&y, x, (rank + 1) % RANKS, all, cpu));
    check_same(y, x);
    check_ok(mlx_distributed_recv_like(&y, x, (rank + 3) % RANKS, all, cpu));
    check_same(y, x);
    mlx_array_free(x);
    mlx_array_free(y);
}

/* Halves are added in pairs and rounded; NaN stays; complex numbers are ordered
 * by their real parts first. */
static void test_what_elements_mean(void **state)
{
    (void)state;
    const float some[] = {rank == 2 ? NAN : 1, rank == 1 ? INFINITY : -1};
    mlx_array x = mlx_array_new_data(some, (int[]){2}, 1, MLX_FLOAT32);
    mlx_array y = mlx_array_new();
    static const mlx_dtype floats[] = {MLX_FLOAT16, MLX_BFLOAT16, MLX_FLOAT32,
                                       MLX_FLOAT64};
    for (int i = 0; i < 4; i++) {
        const float largest[] = {NAN, INFINITY}, least[] = {NAN, -1};
        mlx_array in = mlx_array_new();
        check_ok(mlx_astype(&in, x, floats[i], cpu));
        mlx_array high = typed(
            mlx_array_new_data(largest, (int[]){2}, 1, MLX_FLOAT32), floats[i]);
        mlx_array low = typed(
            mlx_array_new_data(least, (int[]){2}, 1, MLX_FLOAT32), floats[i]);
        check_ok(mlx_distributed_all_max(&y, in, all, cpu));
        check_same(y, high);
        check_ok(mlx_distributed_all_min(&y, in, all, cpu));
        check_same(y, low);
        check_ok(mlx_distributed_all_sum(&y, in, all, cpu));
        check_same(y, high);
        mlx_array_free(in);
        mlx_array_free(high);
        mlx_array_free(low);
    }
    /* Beyond what float16 holds, below what bfloat16 does. */
    mlx_array large = typed(mlx_array_new_float(60000), MLX_FLOAT16);
    mlx_array wanted = typed(mlx_array_new_float(INFINITY), MLX_FLOAT16);
    check_ok(mlx_distributed_all_sum(&y, large, all, cpu));
    check_same(y, wanted);
    check_ok(mlx_astype(&large, large, MLX_BFLOAT16, cpu));
    wanted = typed(wanted, MLX_BFLOAT16);
    check_ok(mlx_distributed_all_sum(&y, large, all, cpu));
    check_ok(mlx_less(&y, y, wanted, cpu));
    bool finite = false;
    check_ok(mlx_array_item_bool(&finite, y));
    assert_true(finite);

    mlx_array c = mlx_array_new_complex((float)(rank / 2), (float)-rank);
    mlx_array best = mlx_array_new_complex(1, -2);
    check_ok(mlx_distributed_all_max(&y, c, all, cpu));
    check_same(y, best);
    /* int8 wraps. */
    mlx_array byte = typed(mlx_array_new_int(100), MLX_INT8);
    mlx_array sum = typed(mlx_array_new_int(400 - 512), MLX_INT8);
    check_ok(mlx_distributed_all_sum(&y, byte, all, cpu));
    check_same(y, sum);
    mlx_array_free(x);
    mlx_array_free(y);
    mlx_array_free(large);
    mlx_array_free(wanted);
    mlx_array_free(c);
    mlx_array_free(best);
    mlx_array_free(byte);
    mlx_array_free(sum);
}

static void test_layouts(void **state)
{
    (void)state;
    const int shape[] = {4, 6};
    mlx_array x = of_rank(rank, 24, MLX_FLOAT32), y = mlx_array_new();
    reshape_to(&x, shape, 2);
    mlx_array turned = mlx_array_new();
    check_ok(mlx_transpose(&turned, x, cpu));

    mlx_array wanted = reduced(mlx_add, 0, 1, 24, MLX_FLOAT32);
    reshape_to(&wanted, shape, 2);
    check_ok(mlx_transpose(&wanted, wanted, cpu));
    check_ok(mlx_distributed_all_sum(&y, turned, all, cpu));
    check_same(y, wanted);

    /* Ranks lie along the first axis: four times (6, 4). */
    mlx_array parts = gathered(24, MLX_FLOAT32);
    reshape_to(&parts, (int[]){RANKS, 4, 6}, 3);
    check_ok(mlx_swapaxes(&parts, parts, 1, 2, cpu));
    reshape_to(&parts, (int[]){RANKS * 6, 4}, 2);
    check_ok(mlx_distributed_all_gather(&y, turned, all, cpu));
    check_same(y, parts);

    check_ok(mlx_distributed_send(&y, turned, (rank + 1) % RANKS, all, cpu));
    mlx_array from = mlx_array_new();
    check_ok(
        mlx_distributed_recv_like(&from, turned, (rank + 3) % RANKS, all, cpu));
    mlx_vector_array both = mlx_vector_array_new();
    check_ok(mlx_vector_array_append_value(both, y));
    check_ok(mlx_vector_array_append_value(both, from));
    check_ok(mlx_eval(both));
    check_same(y, turned);
    mlx_array theirs = of_rank((rank + 3) % RANKS, 24, MLX_FLOAT32);
    reshape_to(&theirs, shape, 2);
    check_ok(mlx_transpose(&theirs, theirs, cpu));
    check_same(from, theirs);
    mlx_vector_array_free(both);
    mlx_array_free(x);
    mlx_array_free(y);
    mlx_array_free(turned);
    mlx_array_free(wanted);
    mlx_array_free(parts);
    mlx_array_free(from);
    mlx_array_free(theirs);
}

/* ---- messages ---- */

/* Everyone sends to the next and then receives from the one before, in one
 * evaluation: too much for the library to keep by itself. */
static void pass_on(int n, mlx_dtype dtype)
{
    int before = (rank + RANKS - 1) % RANKS;
    mlx_array x = of_rank(rank, n, dtype), gone = mlx_array_new(),
              come = mlx_array_new(), wanted = of_rank(before, n, dtype);
    check_ok(mlx_distributed_send(&gone, x, (rank + 1) % RANKS, all, cpu));
    check_ok(mlx_distributed_recv(&come, &n, 1, dtype, before, all, cpu));
    mlx_vector_array both = mlx_vector_array_new();
    check_ok(mlx_vector_array_append_value(both, gone));
    check_ok(mlx_vector_array_append_value(both, come));
    check_ok(mlx_eval(both));
    check_same(gone, x);
    check_same(come, wanted);
    mlx_vector_array_free(both);
    mlx_array_free(x);
    mlx_array_free(gone);
    mlx_array_free(come);
    mlx_array_free(wanted);
}

static void test_messages_around_a_ring(void **state)
{
    (void)state;
    for (int d = 0; d <= MLX_COMPLEX64; d++)
        pass_on(10, (mlx_dtype)d);
    pass_on(1 << 20, MLX_FLOAT32);
}

/* The receiver expects another number of elements. */
static void test_messages_of_another_length(void **state)
{
    (void)state;
    mlx_array x = of_rank(0, 8, MLX_FLOAT32), y = mlx_array_new();
    static const int expected[] = {9, 5};
    static const char *const says[] = {"[recv] expected 9 elements of 4 bytes",
                                       "[mpi] MPI_Recv failed"};
    for (int i = 0; i < 2; i++) {
        if (rank == 0) {
            check_ok(mlx_distributed_send(&y, x, 1, all, cpu));
            check_ok(mlx_array_eval(y));
        } else if (rank == 1) {
            check_ok(mlx_distributed_recv(&y, &expected[i], 1, MLX_FLOAT32, 0,
                                          all, cpu));
            check_fails(mlx_array_eval(y), says[i]);
        }
    }
    /* Messages after that arrive. */
    pass_on(5, MLX_INT16);
    mlx_array_free(x);
    mlx_array_free(y);
}

/* What is longer than a message may be goes in pieces. */
static void test_pieces(void **state)
{
    (void)state;
    qn_test_mpi_chunk(7);
    check_collectives(52);
    pass_on(52, MLX_FLOAT16);
    pass_on(49, MLX_FLOAT64);
    qn_test_mpi_chunk(0);
}

/* ---- graphs ---- */

static void test_lazy_chain(void **state)
{
    (void)state;
    /* x becomes the mean of all: from the second step on nothing changes. */
    mlx_array x = mlx_array_new_float((float)rank), n = mlx_array_new_float(4);
    for (int i = 0; i < 100; i++) {
        check_ok(mlx_distributed_all_sum(&x, x, all, cpu));
        check_ok(mlx_divide(&x, x, n, cpu));
    }
    check_number(x, 1.5f);
    mlx_array_free(x);
    mlx_array_free(n);
}

/* Several at once, none of which needs another: the order is the graph's. */
static void test_many_in_one_evaluation(void **state)
{
    (void)state;
    mlx_vector_array results = mlx_vector_array_new();
    for (int i = 0; i < 40; i++) {
        mlx_array x = mlx_array_new_float((float)(rank + i)), y = {NULL};
        if (i % 4 == 3)
            check_ok(mlx_distributed_all_gather(&y, x, all, cpu));
        else
            check_ok(reductions[i % 4].over_ranks(&y, x, all, cpu));
        check_ok(mlx_vector_array_append_value(results, y));
        mlx_array_free(x);
        mlx_array_free(y);
    }
    check_ok(mlx_eval(results));
    for (int i = 0; i < 40; i++) {
        mlx_array y = mlx_array_new();
        check_ok(mlx_vector_array_get(&y, results, (size_t)i));
        const float wanted[] = {(float)(6 + 4 * i), (float)(3 + i), (float)i};
        if (i % 4 == 3)
            assert_float_equal(mlx_array_data_float32(y)[2], (float)(2 + i), 0);
        else
            check_number(y, wanted[i % 4]);
        mlx_array_free(y);
    }
    mlx_vector_array_free(results);
}

static void test_async(void **state)
{
    (void)state;
    mlx_array one = mlx_array_new_float((float)rank), last = mlx_array_new();
    for (int i = 0; i < 20; i++) {
        mlx_array x = mlx_array_new();
        check_ok(mlx_distributed_all_sum(&x, one, all, cpu));
        mlx_vector_array v = mlx_vector_array_new_value(x);
        check_ok(mlx_async_eval(v));
        check_ok(mlx_array_set(&last, x));
        mlx_vector_array_free(v);
        mlx_array_free(x);
    }
    /* Between what was handed over before and what comes after. */
    mlx_distributed_group half = mlx_distributed_group_new();
    check_ok(mlx_distributed_group_split(&half, all, rank / 2, -1));
    assert_int_equal(mlx_distributed_group_size(half), 2);
    check_number(last, 6);
    check_ok(mlx_synchronize(cpu));
    mlx_distributed_group_free(half);
    mlx_array_free(one);
    mlx_array_free(last);
}

static void *sum_elsewhere(void *data)
{
    mlx_array x = mlx_array_new_float((float)rank);
    mlx_stream s = mlx_default_cpu_stream_new();
    int failed = mlx_distributed_all_sum(&x, x, all, s);
    failed |= mlx_array_item_float32(data, x);
    mlx_array_free(x);
    mlx_stream_free(s);
    return failed ? data : NULL;
}

static void test_on_another_thread(void **state)
{
    (void)state;
    pthread_t thread;
    float sum = 0;
    void *failed;
    assert_int_equal(pthread_create(&thread, NULL, sum_elsewhere, &sum), 0);
    pthread_join(thread, &failed);
    assert_null(failed);
    assert_float_equal(sum, 6, 0);
}

static void test_child_is_no_member(void **state)
{
    (void)state;
    pid_t child = fork();
    assert_true(child >= 0);
    if (!child) {
        mlx_array x = mlx_array_new_float(1);
        int rc = mlx_distributed_all_sum(&x, x, all, cpu);
        rc = rc == 0 && mlx_array_eval(x) == 1 &&
             strstr(heard.text, "no member of it");
        _exit(!rc);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* ---- transformations ---- */

/* The weights that this process gives to the elements of a result. */
static mlx_array weights(int n)
{
    mlx_array w = mlx_array_new();
    check_ok(mlx_arange(&w, 1 + rank, n + 1 + rank, 1, MLX_FLOAT32, cpu));
    return w;
}

static collective *applied; /* by `apply` */

static int apply(mlx_vector_array *res, mlx_vector_array in)
{
    mlx_array x = mlx_array_new();
    int rc = mlx_vector_array_get(&x, in, 0);
    rc = rc || applied(&x, x, all, cpu);
    rc = rc || mlx_vector_array_set_value(res, x);
    mlx_array_free(x);
    return rc;
}

static mlx_array first_of(mlx_vector_array list)
{
    mlx_array x = mlx_array_new();
    check_ok(mlx_vector_array_get(&x, list, 0));
    mlx_vector_array_free(list);
    return x;
}

/* Of `applied` at this rank's array: the gradient of the weighted sum (`back`),
 * or the tangent for the weights. */
static mlx_array transformed(bool back, int n, mlx_array w)
{
    mlx_closure fun = mlx_closure_new_func(apply);
    mlx_array x = of_rank(rank, n, MLX_FLOAT32);
    mlx_vector_array in = mlx_vector_array_new_value(x),
                     by = mlx_vector_array_new_value(w),
                     values = mlx_vector_array_new(),
                     results = mlx_vector_array_new();
    if (back)
        check_ok(mlx_vjp(&values, &results, fun, in, by));
    else
        check_ok(mlx_jvp(&values, &results, fun, in, by));
    mlx_closure_free(fun);
    mlx_array_free(x);
    mlx_vector_array_free(in);
    mlx_vector_array_free(by);
    mlx_vector_array_free(values);
    return first_of(results);
}

static void test_gradients(void **state)
{
    (void)state;
    enum { N = 6 };
    for (int i = 0; i < REDUCTIONS; i++) {
        /* As in MLX: each process has a copy of the loss. */
        applied = reductions[i].over_ranks;
        mlx_array w = weights(N), g = transformed(true, N, w);
        check_same(g, w);
        mlx_array_free(g);
        /* Tangents are reduced as their arrays were. */
        g = transformed(false, N, w);
        mlx_array wanted = mlx_array_new();
        check_ok(applied(&wanted, w, all, cpu));
        check_same(g, wanted);
        mlx_array_free(g);
        mlx_array_free(w);
        mlx_array_free(wanted);
    }
    applied = mlx_distributed_all_gather;
    mlx_array w = weights(N * RANKS), g = transformed(true, N, w);
    int from = rank * N, to = from + N, one = 1;
    check_ok(mlx_slice(&w, w, &from, 1, &to, 1, &one, 1, cpu));
    check_same(g, w);
    mlx_array_free(g);
    g = transformed(false, N, w);
    mlx_array wanted = mlx_array_new();
    check_ok(mlx_distributed_all_gather(&wanted, w, all, cpu));
    check_same(g, wanted);
    mlx_array_free(g);
    mlx_array_free(w);
    mlx_array_free(wanted);
}

static int send_on(mlx_array *res, mlx_array x, mlx_distributed_group group,
                   mlx_stream s)
{
    return mlx_distributed_send(res, x, (rank + 1) % RANKS, group, s);
}

static void test_messages_have_no_gradient(void **state)
{
    (void)state;
    applied = send_on;
    mlx_closure fun = mlx_closure_new_func(apply);
    mlx_array x = of_rank(rank, 3, MLX_FLOAT32);
    mlx_vector_array in = mlx_vector_array_new_value(x),
                     values = mlx_vector_array_new(),
                     results = mlx_vector_array_new();
    check_fails(mlx_vjp(&values, &results, fun, in, in), "send");
    check_fails(mlx_jvp(&values, &results, fun, in, in), "send");
    mlx_closure_free(fun);
    mlx_array_free(x);
    mlx_vector_array_free(in);
    mlx_vector_array_free(values);
    mlx_vector_array_free(results);
}

/* `applied` to each row of this rank's (2, n), as one operation. */
static mlx_array batched(int n)
{
    mlx_closure fun = mlx_closure_new_func(apply);
    mlx_array x = of_rank(rank, 2 * n, MLX_FLOAT32);
    reshape_to(&x, (int[]){2, n}, 2);
    mlx_vector_array in = mlx_vector_array_new_value(x),
                     traced_in = mlx_vector_array_new(),
                     traced_out = mlx_vector_array_new(),
                     results = mlx_vector_array_new();
    const int axis = 0;
    check_ok(mlx_detail_vmap_trace(&traced_in, &traced_out, fun, in, &axis, 1));
    check_ok(mlx_detail_vmap_replace(&results, in, traced_in, traced_out, &axis,
                                     1, &axis, 1));
    mlx_closure_free(fun);
    mlx_array_free(x);
    mlx_vector_array_free(in);
    mlx_vector_array_free(traced_in);
    mlx_vector_array_free(traced_out);
    return first_of(results);
}

/* Row by row, of what `batched` does at once. */
static mlx_array by_rows(int n)
{
    mlx_vector_array rows = mlx_vector_array_new();
    for (int i = 0; i < 2; i++) {
        mlx_array x = of_rank(rank, 2 * n, MLX_FLOAT32);
        int from = i * n, to = from + n, one = 1;
        check_ok(mlx_slice(&x, x, &from, 1, &to, 1, &one, 1, cpu));
        check_ok(applied(&x, x, all, cpu));
        check_ok(mlx_vector_array_append_value(rows, x));
        mlx_array_free(x);
    }
    mlx_array y = mlx_array_new();
    check_ok(mlx_stack(&y, rows, cpu));
    mlx_vector_array_free(rows);
    return y;
}

static void test_batches(void **state)
{
    (void)state;
    collective *const each[] = {
        mlx_distributed_all_sum, mlx_distributed_all_max,
        mlx_distributed_all_min, mlx_distributed_all_gather,
        mlx_distributed_sum_scatter};
    for (int i = 0; i < 5; i++) {
        applied = each[i];
        mlx_array y = batched(8), wanted = by_rows(8);
        check_same(y, wanted);
        mlx_array_free(y);
        mlx_array_free(wanted);
    }
    /* A batch is one message. */
    applied = send_on;
    mlx_array y = batched(3), come = mlx_array_new();
    mlx_array x = of_rank((rank + 3) % RANKS, 6, MLX_FLOAT32);
    reshape_to(&x, (int[]){2, 3}, 2);
    check_ok(mlx_distributed_recv_like(&come, x, (rank + 3) % RANKS, all, cpu));
    mlx_vector_array both = mlx_vector_array_new_value(y);
    check_ok(mlx_vector_array_append_value(both, come));
    check_ok(mlx_eval(both));
    check_same(come, x);
    mlx_vector_array_free(both);
    mlx_array_free(x);
    mlx_array_free(y);
    mlx_array_free(come);
}

/* Sends its input twice, receives two arrays, and sums over all: nothing of it
 * may be done once for twice, or be kept from one call to the next. */
static int conversation(mlx_vector_array *res, mlx_vector_array in)
{
    mlx_array x = mlx_array_new(), out[4] = {{NULL}, {NULL}, {NULL}, {NULL}};
    int next = (rank + 1) % RANKS, before = (rank + 3) % RANKS, two = 2;
    int rc = mlx_vector_array_get(&x, in, 0);
    for (int i = 0; i < 2; i++)
        rc = rc || mlx_distributed_send(&out[i], x, next, all, cpu);
    for (int i = 0; i < 2; i++)
        rc = rc || mlx_distributed_recv(&out[2 + i], &two, 1, MLX_FLOAT32,
                                        before, all, cpu);
    for (int i = 0; i < 2; i++)
        rc = rc || mlx_distributed_all_sum(&out[2 + i], out[2 + i], all, cpu);
    rc = rc || mlx_vector_array_set_data(res, out, 4);
    for (int i = 0; i < 4; i++)
        mlx_array_free(out[i]);
    mlx_array_free(x);
    return rc;
}

static void test_compiled(void **state)
{
    (void)state;
    mlx_closure fun = mlx_closure_new_func(conversation);
    for (int shapeless = 0; shapeless < 2; shapeless++) {
        mlx_closure compiled = mlx_closure_new();
        check_ok(mlx_compile(&compiled, fun, shapeless));
        for (int call = 0; call < 3; call++) {
            const float values[] = {(float)(rank + call), (float)(10 * call)};
            mlx_array x =
                mlx_array_new_data(values, (int[]){2}, 1, MLX_FLOAT32);
            mlx_vector_array in = mlx_vector_array_new_value(x),
                             out = mlx_vector_array_new();
            check_ok(mlx_closure_apply(&out, compiled, in));
            check_ok(mlx_eval(out));
            for (size_t i = 2; i < 4; i++) {
                mlx_array y = mlx_array_new();
                check_ok(mlx_vector_array_get(&y, out, i));
                const float *found = mlx_array_data_float32(y);
                assert_float_equal(found[0], (float)(6 + 4 * call), 0);
                assert_float_equal(found[1], (float)(40 * call), 0);
                mlx_array_free(y);
            }
            mlx_array_free(x);
            mlx_vector_array_free(in);
            mlx_vector_array_free(out);
        }
        mlx_closure_free(compiled);
    }
    mlx_closure_free(fun);
}

/* ---- other ways to start ---- */

static int fail_alone(void)
{
    mlx_array x = mlx_array_new_float(1);
    if (rank == 1)
        exit(3);
    mlx_distributed_all_sum(&x, x, all, cpu);
    mlx_array_eval(x); /* never comes */
    return 0;
}

static int find_nobody(void)
{
    if (mlx_distributed_init(&all, true, "any") != 1 ||
        !strstr(heard.text, "it is not the launcher's library")) {
        print_error("found: %s\n", heard.text);
        return 1;
    }
    return mlx_distributed_init(&all, false, "any") ||
           mlx_distributed_group_size(all) != 1;
}

static int begin(void **state)
{
    capi_setup(state);
    return 0;
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "";
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_group_of_all),
        cmocka_unit_test(test_every_rank_is_there_once),
        cmocka_unit_test(test_split),
        cmocka_unit_test(test_errors_of_this_process),
        cmocka_unit_test(test_collectives_of_every_dtype),
        cmocka_unit_test(test_nothing_is_sent_for_nothing),
        cmocka_unit_test(test_what_elements_mean),
        cmocka_unit_test(test_layouts),
        cmocka_unit_test(test_messages_around_a_ring),
        cmocka_unit_test(test_messages_of_another_length),
        cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_lazy_chain),
        cmocka_unit_test(test_many_in_one_evaluation),
        cmocka_unit_test(test_async),
        cmocka_unit_test(test_on_another_thread),
        cmocka_unit_test(test_child_is_no_member),
        cmocka_unit_test(test_gradients),
        cmocka_unit_test(test_messages_have_no_gradient),
        cmocka_unit_test(test_batches),
        cmocka_unit_test(test_compiled),
    };
    begin(NULL);
    cpu = mlx_default_cpu_stream_new();
    if (!strcmp(mode, "--strangers"))
        return find_nobody();
    if (mlx_distributed_init(&all, true, "mpi")) {
        print_error("%s\n", heard.text);
        return 1;
    }
    rank = mlx_distributed_group_rank(all);
    if (!strcmp(mode, "--fail"))
        return fail_alone();
    /* The tests are reported once; errors go to standard error. */
    if (rank && !freopen("/dev/null", "w", stdout))
        return 1;
    int failed = cmocka_run_group_tests(tests, begin, NULL);
    mlx_distributed_group_free(all);
    mlx_stream_free(cpu);
    return failed;
}
