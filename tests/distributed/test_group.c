/* The process alone: what a group of one does, and what asking for more says.
 * What MPI is found to be is remembered by the process, so each question about
 * that is asked by a child. */
#include "capi/capi.h"

#include "mlx/c/mlx.h"

#include <sys/wait.h>

static mlx_stream cpu;

static int setup(void **state)
{
    /* As if no launcher had started the tests. */
    unsetenv("OMPI_COMM_WORLD_SIZE");
    unsetenv("PMI_SIZE");
    unsetenv("PMIX_RANK");
    capi_setup(state);
    cpu = mlx_default_cpu_stream_new();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    mlx_stream_free(cpu);
    return 0;
}

static mlx_distributed_group alone(void)
{
    mlx_distributed_group group = mlx_distributed_group_new();
    check_ok(mlx_distributed_init(&group, false, "any"));
    return group;
}

static mlx_array line(int n)
{
    mlx_array x = mlx_array_new();
    check_ok(mlx_arange(&x, 0, n, 1, MLX_FLOAT32, cpu));
    return x;
}

/* ---- groups ---- */

static void test_new_group_is_empty(void **state)
{
    (void)state;
    mlx_distributed_group group = mlx_distributed_group_new();
    assert_null(group.ctx);
    check_ok(mlx_distributed_group_free(group));
    check_reports(mlx_distributed_group_rank(group), -1,
                  "expected a non-empty mlx_distributed_group");
    check_reports(mlx_distributed_group_size(group), 0,
                  "expected a non-empty mlx_distributed_group");
    mlx_distributed_group part = mlx_distributed_group_new();
    check_fails(mlx_distributed_group_split(&part, group, 0, 0),
                "expected a non-empty mlx_distributed_group");
    assert_null(part.ctx);
}

static void test_without_a_launcher_the_process_is_alone(void **state)
{
    (void)state;
    static const char *const names[] = {NULL,   "any",  "mpi",
                                        "ring", "nccl", "jaccl"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        mlx_distributed_group group = mlx_distributed_group_new();
        check_ok(mlx_distributed_init(&group, false, names[i]));
        assert_int_equal(mlx_distributed_group_rank(group), 0);
        assert_int_equal(mlx_distributed_group_size(group), 1);
        /* A live handle is used again. */
        void *ctx = group.ctx;
        check_ok(mlx_distributed_init(&group, false, names[i]));
        assert_ptr_equal(group.ctx, ctx);
        check_ok(mlx_distributed_group_free(group));
    }
}

static void test_unknown_names_are_errors(void **state)
{
    (void)state;
    mlx_distributed_group group = mlx_distributed_group_new();
    check_fails(mlx_distributed_init(&group, false, "tcp"),
                "'ring' but 'tcp' was provided.");
    check_fails(mlx_distributed_init(&group, true, ""), "but '' was provided.");
    assert_null(group.ctx);
    assert_false(mlx_distributed_is_available("tcp"));
    assert_false(mlx_distributed_is_available(""));
}

static void test_strict_says_what_is_not_built(void **state)
{
    (void)state;
    mlx_distributed_group group = mlx_distributed_group_new();
    check_fails(mlx_distributed_init(&group, true, "ring"),
                "Cannot initialize ring distributed backend.");
    check_fails(mlx_distributed_init(&group, true, "nccl"),
                "Cannot initialize nccl distributed backend.");
    check_fails(mlx_distributed_init(&group, true, "jaccl"),
                "Cannot initialize jaccl distributed backend.");
    assert_null(group.ctx);
    assert_false(mlx_distributed_is_available("ring"));
    assert_false(mlx_distributed_is_available("nccl"));
    assert_false(mlx_distributed_is_available("jaccl"));
    assert_int_equal(mlx_distributed_is_available("any"),
                     mlx_distributed_is_available("mpi"));
    assert_int_equal(mlx_distributed_is_available(NULL),
                     mlx_distributed_is_available("mpi"));
}

static void test_alone_is_not_split(void **state)
{
    (void)state;
    mlx_distributed_group group = alone(), part = mlx_distributed_group_new();
    check_fails(mlx_distributed_group_split(&part, group, 0, -1),
                "Cannot split the distributed group further.");
    assert_null(part.ctx);
    mlx_distributed_group_free(group);
}

/* ---- operations ---- */

static void check_same(mlx_array x, mlx_array y)
{
    bool same;
    mlx_array equal = mlx_array_new();
    check_ok(mlx_array_equal(&equal, x, y, false, cpu));
    check_ok(mlx_array_item_bool(&same, equal));
    assert_true(same);
    assert_int_equal(mlx_array_dtype(x), mlx_array_dtype(y));
    mlx_array_free(equal);
}

static void test_collectives_give_the_array_itself(void **state)
{
    (void)state;
    typedef int collective(mlx_array *, mlx_array, mlx_distributed_group,
                           mlx_stream);
    static collective *const each[] = {
        mlx_distributed_all_sum, mlx_distributed_all_max,
        mlx_distributed_all_min, mlx_distributed_all_gather,
        mlx_distributed_sum_scatter};
    mlx_distributed_group group = alone(), none = {NULL};
    for (size_t i = 0; i < sizeof each / sizeof *each; i++) {
        mlx_array x = line(3), point = mlx_array_new_float(2), y = {NULL};
        check_ok(each[i](&y, x, group, cpu));
        check_same(y, x);
        check_ok(each[i](&y, x, none, cpu));
        check_same(y, x);
        /* MLX does not look at the shape here. */
        check_ok(each[i](&y, point, group, cpu));
        check_same(y, point);
        check_ok(each[i](&x, x, group, cpu));
        check_fails(each[i](&y, (mlx_array){NULL}, group, cpu),
                    "expected a non-empty mlx_array");
        check_fails(each[i](&y, x, group, (mlx_stream){NULL}),
                    "expected a non-empty mlx_stream");
        mlx_array_free(x);
        mlx_array_free(y);
        mlx_array_free(point);
    }
    mlx_distributed_group_free(group);
}

static void test_messages_need_two(void **state)
{
    (void)state;
    mlx_distributed_group group = alone();
    mlx_array x = line(3), y = mlx_array_new();
    check_fails(mlx_distributed_send(&y, x, 0, group, cpu),
                "Cannot send to a singleton group");
    check_fails(
        mlx_distributed_recv(&y, (int[]){2}, 1, MLX_INT8, 0, group, cpu),
        "Cannot recv from a singleton group");
    check_fails(mlx_distributed_recv_like(&y, x, 5, group, cpu),
                "Cannot recv from a singleton group");
    check_fails(mlx_distributed_recv(&y, NULL, 0, (mlx_dtype)99, 0, group, cpu),
                "there is no dtype");
    assert_null(y.ctx);
    mlx_array_free(x);
    mlx_distributed_group_free(group);
}

/* ---- what is said about MPI ---- */

/* `question` in a child, which answers 0. */
static void in_child(int (*question)(void))
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (!child)
        _exit(question());
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* 0: a strict init fails with `part` in its message, and another does not. */
static int strict_says(const char *name, const char *part)
{
    mlx_distributed_group group = mlx_distributed_group_new();
    for (int again = 0; again < 2; again++) {
        if (!mlx_distributed_init(&group, true, name) || group.ctx)
            return 1;
        if (!strstr(heard.text, part)) {
            print_error("expected \"%s\" in: %s\n", part, heard.text);
            return 2;
        }
    }
    if (mlx_distributed_init(&group, false, name) ||
        mlx_distributed_group_size(group) != 1)
        return 3;
    mlx_distributed_group_free(group);
    return 0;
}

static int no_library(void)
{
    setenv("MLX_MPI_LIBNAME", "libnowhere.so.1", 1);
    if (mlx_distributed_is_available("mpi") ||
        mlx_distributed_is_available(NULL))
        return 9;
    int answer = strict_says("mpi", "[mpi] MLX_MPI_LIBNAME names "
                                    "libnowhere.so.1, which is not there");
    return answer ? answer
                  : strict_says("any", "[distributed] Couldn't initialize any "
                                       "backend: [mpi] MLX_MPI_LIBNAME");
}

static int no_library_but_a_launcher(void)
{
    setenv("MLX_MPI_LIBNAME", "libnowhere.so.1", 1);
    setenv("OMPI_COMM_WORLD_SIZE", "4", 1);
    return strict_says(NULL, "the launcher has started 4 processes");
}

/* libm is a library, but has no MPI in it. */
static int another_library(void)
{
    setenv("MLX_MPI_LIBNAME", "libm.so.6", 1);
    return strict_says("mpi", "[mpi] The library has no MPI_");
}

static void test_strict_says_what_is_missing(void **state)
{
    (void)state;
    in_child(no_library);
    in_child(no_library_but_a_launcher);
    in_child(another_library);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_new_group_is_empty),
        cmocka_unit_test(test_strict_says_what_is_missing),
        cmocka_unit_test(test_without_a_launcher_the_process_is_alone),
        cmocka_unit_test(test_unknown_names_are_errors),
        cmocka_unit_test(test_strict_says_what_is_not_built),
        cmocka_unit_test(test_alone_is_not_split),
        cmocka_unit_test(test_collectives_give_the_array_itself),
        cmocka_unit_test(test_messages_need_two),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
