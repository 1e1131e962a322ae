/* Export and import through the C API: named inputs, several recordings,
 * captured arrays, shapeless files, what is refused and how. */
#include "capi.h"

static mlx_stream cpu;
static char *dir, *path;

static int setup(void **state)
{
    capi_setup(state);
    cpu = mlx_default_cpu_stream_new();
    dir = temp_dir_new();
    path = qn_path_join(dir, "f.mlxfn");
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    mlx_stream_free(cpu);
    temp_dir_remove(dir);
    qn_free(path);
    return 0;
}

static mlx_array counted(const int *shape, int ndim, float first)
{
    float values[64];
    for (int i = 0; i < 64; i++)
        values[i] = first + (float)i;
    return mlx_array_new_data(values, shape, ndim, MLX_FLOAT32);
}

static mlx_vector_array list_of(int count, const mlx_array *arrays)
{
    return mlx_vector_array_new_data(arrays, (size_t)count);
}

static void check_values(mlx_vector_array list, size_t at, const float *wanted,
                         size_t count)
{
    mlx_array y = mlx_array_new();
    check_ok(mlx_vector_array_get(&y, list, at));
    check_ok(mlx_array_eval(y));
    assert_int_equal(mlx_array_size(y), count);
    for (size_t i = 0; i < count; i++)
        assert_true(mlx_array_data_float32(y)[i] == wanted[i]);
    mlx_array_free(y);
}

/* A function that holds an array and counts. */
typedef struct captured {
    mlx_array constant;
    int calls, destroyed;
    bool fail;
} captured;

/* x * x + the array, x summed */
static int square_plus(mlx_vector_array *res, const mlx_vector_array in,
                       void *payload)
{
    captured *c = payload;
    c->calls++;
    if (c->fail)
        return 1;
    mlx_array x = mlx_array_new(), y = mlx_array_new(), z = mlx_array_new();
    int rc = mlx_vector_array_get(&x, in, 0) || mlx_square(&y, x, cpu) ||
             mlx_add(&y, y, c->constant, cpu) || mlx_sum(&z, x, false, cpu);
    const mlx_array both[] = {y, z};
    if (!rc)
        *res = mlx_vector_array_new_data(both, 2);
    mlx_array_free(x);
    mlx_array_free(y);
    mlx_array_free(z);
    return rc;
}

static void count_destroyed(void *payload)
{
    ((captured *)payload)->destroyed++;
}

static void test_captured_arrays_are_in_the_file(void **state)
{
    (void)state;
    const int three[] = {3};
    captured c = {.constant = counted(three, 1, 10)};
    mlx_closure f =
        mlx_closure_new_func_payload(square_plus, &c, count_destroyed);
    mlx_array x = counted(three, 1, 1);
    mlx_vector_array in = list_of(1, &x), out = mlx_vector_array_new();
    check_ok(mlx_export_function(path, f, in, false));
    assert_int_equal(c.calls, 1);
    mlx_closure_free(f);
    assert_int_equal(c.destroyed, 1);
    mlx_array_free(c.constant);

    mlx_imported_function g = mlx_imported_function_new(path);
    assert_non_null(g.ctx);
    /* The file may go. */
    assert_int_equal(remove(path), 0);
    check_ok(mlx_imported_function_apply(&out, g, in));
    assert_int_equal(mlx_vector_array_size(out), 2);
    check_values(out, 0, (const float[]){11, 15, 21}, 3);
    check_values(out, 1, (const float[]){6}, 1);
    /* The same handle again. */
    mlx_array two = mlx_array_new();
    check_ok(mlx_add(&two, x, x, cpu));
    mlx_vector_array twice = list_of(1, &two);
    check_ok(mlx_imported_function_apply(&out, g, twice));
    check_values(out, 1, (const float[]){12}, 1);
    check_ok(mlx_imported_function_free(g));
    mlx_vector_array_free(in);
    mlx_vector_array_free(twice);
    mlx_vector_array_free(out);
    mlx_array_free(two);
    mlx_array_free(x);
}

static void test_an_exporter_keeps_several_recordings(void **state)
{
    (void)state;
    const int one[] = {2}, two[] = {2, 2};
    captured c = {.constant = counted(one, 1, 100)};
    mlx_closure f = mlx_closure_new_func_payload(square_plus, &c, NULL);
    mlx_array x = counted(one, 1, 1), y = counted(two, 2, 1);
    mlx_vector_array line = list_of(1, &x), square = list_of(1, &y);
    mlx_vector_array out = mlx_vector_array_new();
    mlx_function_exporter e = mlx_function_exporter_new(path, f, false);
    assert_non_null(e.ctx);

    /* There is a file, without a function. */
    mlx_imported_function g = mlx_imported_function_new(path);
    check_fails(mlx_imported_function_apply(&out, g, line),
                "No imported function found");
    mlx_imported_function_free(g);

    check_ok(mlx_function_exporter_apply(e, line));
    check_fails(mlx_function_exporter_apply(e, line),
                "[export_function] Attempting to export a function twice with "
                "the same signature");
    c.fail = true;
    check_fails(mlx_function_exporter_apply(e, square), "non-zero");
    c.fail = false;
    /* What was there before the failures is there. */
    g = mlx_imported_function_new(path);
    check_ok(mlx_imported_function_apply(&out, g, line));
    check_values(out, 0, (const float[]){101, 105}, 2);
    mlx_imported_function_free(g);

    check_ok(mlx_function_exporter_apply(e, square));
    check_ok(mlx_function_exporter_free(e));
    g = mlx_imported_function_new(path);
    check_ok(mlx_imported_function_apply(&out, g, line));
    check_values(out, 0, (const float[]){101, 105}, 2);
    check_ok(mlx_imported_function_apply(&out, g, square));
    check_values(out, 0, (const float[]){101, 105, 109, 117}, 4);
    check_values(out, 1, (const float[]){10}, 1);
    mlx_imported_function_free(g);
    mlx_closure_free(f);
    mlx_array_free(c.constant);
    mlx_array_free(x);
    mlx_array_free(y);
    mlx_vector_array_free(line);
    mlx_vector_array_free(square);
    mlx_vector_array_free(out);
}

/* x * scale + bias, both by name */
static int scaled(mlx_vector_array *res, const mlx_vector_array in,
                  const mlx_map_string_to_array named)
{
    mlx_array x = mlx_array_new(), scale = mlx_array_new(),
              bias = mlx_array_new(), y = mlx_array_new();
    int rc = mlx_vector_array_get(&x, in, 0) ||
             mlx_map_string_to_array_get(&scale, named, "scale") ||
             mlx_map_string_to_array_get(&bias, named, "bias") ||
             mlx_multiply(&y, x, scale, cpu) || mlx_add(&y, y, bias, cpu);
    if (!rc)
        *res = list_of(1, &y);
    mlx_array_free(x);
    mlx_array_free(scale);
    mlx_array_free(bias);
    mlx_array_free(y);
    return rc;
}

static void test_named_inputs(void **state)
{
    (void)state;
    const int two[] = {2};
    mlx_closure_kwargs f = mlx_closure_kwargs_new_func(scaled);
    mlx_array x = counted(two, 1, 1), scale = counted(two, 1, 10),
              bias = counted(NULL, 0, 5);
    mlx_vector_array in = list_of(1, &x), out = mlx_vector_array_new();
    mlx_map_string_to_array named = mlx_map_string_to_array_new(),
                            other = mlx_map_string_to_array_new();
    /* In another order than the names have. */
    check_ok(mlx_map_string_to_array_insert(named, "scale", scale));
    check_ok(mlx_map_string_to_array_insert(named, "bias", bias));
    check_ok(mlx_export_function_kwargs(path, f, in, named, false));
    mlx_imported_function g = mlx_imported_function_new(path);
    check_ok(mlx_imported_function_apply_kwargs(&out, g, in, named));
    check_values(out, 0, (const float[]){15, 27}, 2);

    check_ok(mlx_map_string_to_array_insert(other, "scale", scale));
    check_ok(mlx_map_string_to_array_insert(other, "bia", bias));
    check_fails(mlx_imported_function_apply_kwargs(&out, g, in, other),
                "[import_function::call] No imported function found which "
                "matches the given positional and keyword arguments. Possible "
                "functions include:\n"
                " 1. Function with 1 positional inputs and 2 keyword inputs:\n"
                "   1: (2) float32\n"
                "   \"bias\": () float32\n"
                "   \"scale\": (2) float32\n"
                "\nCalled with 1 positional inputs and 2 keyword inputs:\n"
                "  1: (2) float32\n"
                "  \"bia\": () float32\n"
                "  \"scale\": (2) float32\n");
    check_fails(mlx_imported_function_apply(&out, g, in), "0 keyword inputs");
    mlx_imported_function_free(g);
    mlx_closure_kwargs_free(f);
    mlx_map_string_to_array_free(named);
    mlx_map_string_to_array_free(other);
    mlx_vector_array_free(in);
    mlx_vector_array_free(out);
    mlx_array_free(x);
    mlx_array_free(scale);
    mlx_array_free(bias);
}

/* An exporter of a function without names takes named inputs, as MLX does:
 * they are part of the signature, and the function does not see them. */
static void test_names_for_a_function_without(void **state)
{
    (void)state;
    const int two[] = {2};
    captured c = {.constant = counted(two, 1, 0)};
    mlx_closure f = mlx_closure_new_func_payload(square_plus, &c, NULL);
    mlx_array x = counted(two, 1, 1);
    mlx_vector_array in = list_of(1, &x), out = mlx_vector_array_new();
    mlx_map_string_to_array named = mlx_map_string_to_array_new();
    check_ok(mlx_map_string_to_array_insert(named, "unused", x));
    mlx_function_exporter e = mlx_function_exporter_new(path, f, false);
    check_ok(mlx_function_exporter_apply_kwargs(e, in, named));
    mlx_function_exporter_free(e);
    mlx_imported_function g = mlx_imported_function_new(path);
    check_ok(mlx_imported_function_apply_kwargs(&out, g, in, named));
    check_values(out, 0, (const float[]){1, 5}, 2);
    mlx_imported_function_free(g);
    mlx_closure_free(f);
    mlx_map_string_to_array_free(named);
    mlx_vector_array_free(in);
    mlx_vector_array_free(out);
    mlx_array_free(x);
    mlx_array_free(c.constant);
}

static void test_shapes_and_types_are_compared(void **state)
{
    (void)state;
    const int two[] = {2}, three[] = {3}, one_two[] = {1, 2};
    for (int shapeless = 0; shapeless < 2; shapeless++) {
        captured c = {.constant = counted(NULL, 0, 1)};
        mlx_closure f = mlx_closure_new_func_payload(square_plus, &c, NULL);
        mlx_array x = counted(two, 1, 1), longer = counted(three, 1, 1),
                  square = counted(one_two, 2, 1), whole = mlx_array_new();
        check_ok(mlx_astype(&whole, x, MLX_INT32, cpu));
        mlx_vector_array in = list_of(1, &x), more = list_of(1, &longer),
                         deep = list_of(1, &square), ints = list_of(1, &whole),
                         none = mlx_vector_array_new(),
                         out = mlx_vector_array_new();
        check_ok(mlx_export_function(path, f, in, shapeless));
        mlx_imported_function g = mlx_imported_function_new(path);
        check_ok(mlx_imported_function_apply(&out, g, in));
        check_values(out, 0, (const float[]){2, 5}, 2);
        if (shapeless) {
            check_ok(mlx_imported_function_apply(&out, g, more));
            check_values(out, 0, (const float[]){2, 5, 10}, 3);
            check_values(out, 1, (const float[]){6}, 1);
        } else {
            check_fails(mlx_imported_function_apply(&out, g, more),
                        "1: (3) float32");
        }
        check_fails(mlx_imported_function_apply(&out, g, deep),
                    "1: (1,2) float32");
        check_fails(mlx_imported_function_apply(&out, g, ints), "1: (2) int32");
        check_fails(mlx_imported_function_apply(&out, g, none),
                    "Called with 0 positional");
        mlx_imported_function_free(g);
        mlx_closure_free(f);
        mlx_array_free(c.constant);
        mlx_array_free(x);
        mlx_array_free(longer);
        mlx_array_free(square);
        mlx_array_free(whole);
        mlx_vector_array_free(in);
        mlx_vector_array_free(more);
        mlx_vector_array_free(deep);
        mlx_vector_array_free(ints);
        mlx_vector_array_free(none);
        mlx_vector_array_free(out);
    }
}

static void test_what_is_refused(void **state)
{
    (void)state;
    const int two[] = {2};
    captured c = {.constant = counted(two, 1, 1)};
    mlx_closure f = mlx_closure_new_func_payload(square_plus, &c, NULL);
    mlx_array x = counted(two, 1, 1);
    mlx_vector_array in = list_of(1, &x), none = {NULL}, out = {NULL};
    char *nowhere = qn_path_join(dir, "missing/f.mlxfn");
    heard.count = 0;
    assert_null(mlx_imported_function_new(nowhere).ctx);
    check_heard("[import_function] Failed to open ");
    heard.count = 0;
    assert_null(mlx_function_exporter_new(nowhere, f, false).ctx);
    check_heard("[export_function] Failed to open ");
    check_fails(mlx_export_function(nowhere, f, in, false),
                "[export_function] Failed to open ");
    check_fails(mlx_export_function(path, (mlx_closure){NULL}, in, false),
                "expected a non-empty mlx_closure");
    check_fails(mlx_export_function(path, f, none, false),
                "expected a non-empty mlx_vector_array");
    check_fails(
        mlx_imported_function_apply(&out, (mlx_imported_function){NULL}, in),
        "expected a non-empty mlx_imported_function");
    check_fails(mlx_function_exporter_apply((mlx_function_exporter){NULL}, in),
                "expected a non-empty mlx_function_exporter");
    check_ok(mlx_imported_function_free((mlx_imported_function){NULL}));
    check_ok(mlx_function_exporter_free((mlx_function_exporter){NULL}));
    assert_null(out.ctx);
    temp_write(dir, "f.mlxfn", "no function", 11);
    heard.count = 0;
    assert_null(mlx_imported_function_new(path).ctx);
    check_heard("[import_function] ");
    qn_free(nowhere);
    mlx_closure_free(f);
    mlx_array_free(c.constant);
    mlx_array_free(x);
    mlx_vector_array_free(in);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_captured_arrays_are_in_the_file),
        cmocka_unit_test(test_an_exporter_keeps_several_recordings),
        cmocka_unit_test(test_named_inputs),
        cmocka_unit_test(test_names_for_a_function_without),
        cmocka_unit_test(test_shapes_and_types_are_compared),
        cmocka_unit_test(test_what_is_refused),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
