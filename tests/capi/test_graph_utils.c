/* Graphs as text: MLX's lines, names given and made up, files that can't be
 * written.  The expected texts are what MLX 0.32.2 prints for these graphs, but
 * for its numbers of operations (addresses) and quotes in names (as they are).
 */
#include "capi.h"

static mlx_stream cpu;

static int setup(void **state)
{
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

static mlx_array pair(float first)
{
    const float values[] = {first, first + 1};
    return mlx_array_new_data(values, (const int[]){2}, 1, MLX_FLOAT32);
}

static void
check_text(int (*draw)(FILE *, const mlx_node_namer, const mlx_vector_array),
           mlx_node_namer namer, mlx_vector_array outputs, const char *wanted)
{
    char *text = NULL;
    size_t size = 0;
    FILE *os = open_memstream(&text, &size);
    check_ok(draw(os, namer, outputs));
    fclose(os);
    assert_string_equal(text, wanted);
    free(text);
}

/* c = a + b, d = exp(c) a, s = sort(d) */
static void test_mlx_forms(void **state)
{
    (void)state;
    mlx_array a = pair(1), b = pair(3), c = mlx_array_new(),
              d = mlx_array_new(), s = mlx_array_new();
    mlx_node_namer namer = mlx_node_namer_new();
    check_ok(mlx_add(&c, a, b, cpu));
    check_ok(mlx_exp(&d, c, cpu));
    check_ok(mlx_multiply(&d, d, a, cpu));
    check_ok(mlx_node_namer_set_name(namer, c, "see"));
    check_ok(mlx_node_namer_set_name(namer, a, "x"));
    check_ok(mlx_sort_axis(&s, d, 0, cpu));
    mlx_array both[] = {s, d};
    mlx_vector_array outputs = mlx_vector_array_new_data(both, 2);
    check_text(mlx_print_graph, namer, outputs,
               "Inputs: x [(2), float32], C [(2), float32]\n"
               "Outputs: D [(2), float32], E [(2), float32]\n"
               "Add x [(2), float32], C [(2), float32] -> see [(2), float32]\n"
               "Exp see [(2), float32] -> F [(2), float32]\n"
               "Multiply F [(2), float32], x [(2), float32] -> "
               "E [(2), float32]\n"
               "Sort E [(2), float32] -> D [(2), float32]\n");
    check_text(mlx_export_to_dot, namer, outputs,
               "digraph {\n"
               "{ rank=source; \"x\"; }\n"
               "{ rank=source; \"C\"; }\n"
               "{ 1 [label =\"Add\", shape=rectangle]; }\n"
               "\"x\" -> 1\n"
               "\"C\" -> 1\n"
               "{ \"see\"; }\n"
               "1 -> \"see\"\n"
               "{ 2 [label =\"Exp\", shape=rectangle]; }\n"
               "\"see\" -> 2\n"
               "{ \"D\"; }\n"
               "2 -> \"D\"\n"
               "{ 3 [label =\"Multiply\", shape=rectangle]; }\n"
               "\"D\" -> 3\n"
               "\"x\" -> 3\n"
               "{ rank=sink; \"E\"; }\n"
               "3 -> \"E\"\n"
               "{ 4 [label =\"Sort\", shape=rectangle]; }\n"
               "\"E\" -> 4\n"
               "{ rank=sink; \"F\"; }\n"
               "4 -> \"F\"\n"
               "}");
    /* Drawing named nothing in the namer itself. */
    const char *name = NULL;
    check_ok(mlx_node_namer_get_name(&name, namer, b));
    assert_string_equal(name, "C");
    check_ok(mlx_node_namer_get_name(&name, namer, s));
    assert_string_equal(name, "D");

    /* What is computed is an input. */
    check_ok(mlx_array_eval(d));
    check_text(mlx_print_graph, namer, outputs,
               "Inputs: E [(2), float32]\n"
               "Outputs: D [(2), float32], E [(2), float32]\n"
               "Sort E [(2), float32] -> D [(2), float32]\n");
    mlx_vector_array_free(outputs);
    check_ok(mlx_node_namer_free(namer));
    mlx_array_free(a);
    mlx_array_free(b);
    mlx_array_free(c);
    mlx_array_free(d);
    mlx_array_free(s);
}

/* Operations with several outputs, one of which nobody wants; names of
 * operations that say how they combine or into what they convert. */
static void test_operations(void **state)
{
    (void)state;
    const float values[] = {2, 1, 0, 3};
    mlx_array a =
        mlx_array_new_data(values, (const int[]){2, 2}, 2, MLX_FLOAT32);
    mlx_array q = mlx_array_new(), r = mlx_array_new(), v = mlx_array_new();
    mlx_node_namer namer = mlx_node_namer_new();
    check_ok(mlx_linalg_qr(&q, &r, a, cpu));
    check_ok(mlx_view(&v, q, MLX_INT32, cpu));
    check_ok(mlx_sum_axis(&v, v, 0, true, cpu));
    check_ok(mlx_array_free(r));
    mlx_vector_array outputs = mlx_vector_array_new_value(v);
    check_text(mlx_print_graph, namer, outputs,
               "Inputs: A [(2,2), float32]\n"
               "Outputs: B [(1,2), int32]\n"
               "QRF A [(2,2), float32] -> C [(2,2), float32], "
               "D [(2,2), float32]\n"
               "View int32 C [(2,2), float32] -> E [(2,2), int32]\n"
               "Sum E [(2,2), int32] -> B [(1,2), int32]\n");
    mlx_vector_array_free(outputs);
    mlx_node_namer_free(namer);
    mlx_array_free(a);
    mlx_array_free(q);
    mlx_array_free(v);
}

static void test_names(void **state)
{
    (void)state;
    mlx_node_namer namer = mlx_node_namer_new();
    mlx_array many[30];
    const char *name = NULL;
    for (int i = 0; i < 30; i++) {
        many[i] = mlx_array_new_int(i);
        check_ok(mlx_node_namer_get_name(&name, namer, many[i]));
        if (i == 0 || i == 25)
            assert_string_equal(name, i ? "Z" : "A");
        if (i == 26 || i == 29)
            assert_string_equal(name, i == 26 ? "AA" : "AD");
    }
    check_ok(mlx_node_namer_set_name(namer, many[0], "a \"quoted\\ name"));
    check_ok(mlx_node_namer_get_name(&name, namer, many[0]));
    assert_string_equal(name, "a \"quoted\\ name");
    mlx_vector_array outputs = mlx_vector_array_new_value(many[0]);
    check_text(mlx_export_to_dot, namer, outputs,
               "digraph {\n{ rank=source; \"a \\\"quoted\\\\ name\"; }\n}");
    check_fails(mlx_node_namer_get_name(&name, (mlx_node_namer){NULL}, many[0]),
                "expected a non-empty mlx_node_namer");
    check_fails(mlx_node_namer_set_name(namer, (mlx_array){NULL}, "x"),
                "expected a non-empty mlx_array");
    check_fails(mlx_print_graph(stdout, (mlx_node_namer){NULL}, outputs),
                "expected a non-empty mlx_node_namer");
    FILE *full = fopen("/dev/full", "w");
    if (full) {
        setvbuf(full, NULL, _IONBF, 0);
        check_fails(mlx_export_to_dot(full, namer, outputs),
                    "[export_to_dot] Failed to write");
        fclose(full);
    }
    mlx_vector_array_free(outputs);
    for (int i = 0; i < 30; i++)
        mlx_array_free(many[i]);
    check_ok(mlx_node_namer_free(namer));
    check_ok(mlx_node_namer_free((mlx_node_namer){NULL}));
}

/* A chain far deeper than the stack would bear. */
static void test_a_deep_graph(void **state)
{
    (void)state;
    mlx_array x = mlx_array_new_float(1);
    for (int i = 0; i < 200000; i++)
        assert_int_equal(mlx_negative(&x, x, cpu), 0);
    mlx_vector_array outputs = mlx_vector_array_new_value(x);
    mlx_node_namer namer = mlx_node_namer_new();
    FILE *os = fopen("/dev/null", "w");
    check_ok(mlx_export_to_dot(os, namer, outputs));
    check_ok(mlx_print_graph(os, namer, outputs));
    fclose(os);
    mlx_node_namer_free(namer);
    mlx_vector_array_free(outputs);
    mlx_array_free(x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mlx_forms),
        cmocka_unit_test(test_operations),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_a_deep_graph),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
