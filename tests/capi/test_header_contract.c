/* The sizes, layouts and values that clients of include/mlx/c compile in.
 *
 * A library and a client built apart agree only if these hold, so most of
 * them are asserted when this file compiles.  The layout of the optionals is
 * looked at in memory, where their one-register form shows.  Signatures are
 * check_headers.sh's business. */
#include "mlx/c/mlx.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define SAME_SIZE(type, bytes)                                                 \
    _Static_assert(sizeof(type) == (bytes), #type " has another size")
#define AT(type, member, bytes)                                                \
    _Static_assert(offsetof(type, member) == (bytes),                          \
                   #type "." #member " is elsewhere")
/* The struct tag is the name of the type and an underscore. */
#define HANDLE(type)                                                           \
    SAME_SIZE(type, sizeof(void *));                                           \
    SAME_SIZE(struct type##_, sizeof(void *));                                 \
    _Static_assert(_Generic(((type *)0)->ctx, void * : 1, default : 0),        \
                   #type ".ctx is no void *")

HANDLE(mlx_array);
HANDLE(mlx_string);
HANDLE(mlx_device);
HANDLE(mlx_device_info);
HANDLE(mlx_stream);
HANDLE(mlx_stream_thread_local);
HANDLE(mlx_vector_array);
HANDLE(mlx_vector_vector_array);
HANDLE(mlx_vector_int);
HANDLE(mlx_vector_string);
HANDLE(mlx_vector_stream);
HANDLE(mlx_map_string_to_array);
HANDLE(mlx_map_string_to_string);
HANDLE(mlx_closure);
HANDLE(mlx_closure_kwargs);
HANDLE(mlx_closure_value_and_grad);
HANDLE(mlx_closure_custom);
HANDLE(mlx_closure_custom_jvp);
HANDLE(mlx_closure_custom_vmap);
HANDLE(mlx_compile_cache);
HANDLE(mlx_io_reader);
HANDLE(mlx_io_writer);
HANDLE(mlx_io_gguf);
HANDLE(mlx_distributed_group);
HANDLE(mlx_function_exporter);
HANDLE(mlx_imported_function);
HANDLE(mlx_node_namer);
HANDLE(mlx_fast_metal_kernel);
HANDLE(mlx_fast_metal_kernel_config);
HANDLE(mlx_fast_cuda_kernel);
HANDLE(mlx_fast_cuda_kernel_config);

SAME_SIZE(mlx_map_string_to_array_iterator, 2 * sizeof(void *));
AT(mlx_map_string_to_array_iterator, ctx, 0);
AT(mlx_map_string_to_array_iterator, map_ctx, sizeof(void *));
SAME_SIZE(mlx_map_string_to_string_iterator, 2 * sizeof(void *));
AT(mlx_map_string_to_string_iterator, ctx, 0);
AT(mlx_map_string_to_string_iterator, map_ctx, sizeof(void *));

SAME_SIZE(mlx_dtype, sizeof(int));
SAME_SIZE(mlx_device_type, sizeof(int));
SAME_SIZE(mlx_compile_mode, sizeof(int));
SAME_SIZE(mlx_fft_norm, sizeof(int));

SAME_SIZE(mlx_optional_int, 8);
SAME_SIZE(mlx_optional_float, 8);
SAME_SIZE(mlx_optional_dtype, 8);

SAME_SIZE(mlx_complex64_t, 8);
SAME_SIZE(mlx_float16_t, 2);
SAME_SIZE(mlx_bfloat16_t, 2);

SAME_SIZE(mlx_io_vtable, 9 * sizeof(void (*)(void)));
AT(mlx_io_vtable, is_open, 0 * sizeof(void (*)(void)));
AT(mlx_io_vtable, good, 1 * sizeof(void (*)(void)));
AT(mlx_io_vtable, tell, 2 * sizeof(void (*)(void)));
AT(mlx_io_vtable, seek, 3 * sizeof(void (*)(void)));
AT(mlx_io_vtable, read, 4 * sizeof(void (*)(void)));
AT(mlx_io_vtable, read_at_offset, 5 * sizeof(void (*)(void)));
AT(mlx_io_vtable, write, 6 * sizeof(void (*)(void)));
AT(mlx_io_vtable, label, 7 * sizeof(void (*)(void)));
AT(mlx_io_vtable, free, 8 * sizeof(void (*)(void)));

#define MEMBER_IS(member, type)                                                \
    _Static_assert(                                                            \
        _Generic(((mlx_io_vtable *)0)->member, type : 1, default : 0),         \
        #member " has another type")

MEMBER_IS(is_open, bool (*)(void *));
MEMBER_IS(good, bool (*)(void *));
MEMBER_IS(tell, size_t (*)(void *));
MEMBER_IS(seek, int (*)(void *, int64_t, int));
MEMBER_IS(read, size_t (*)(void *, char *, size_t));
MEMBER_IS(read_at_offset, size_t (*)(void *, char *, size_t, size_t));
MEMBER_IS(write, size_t (*)(void *, const char *, size_t));
MEMBER_IS(label, const char *(*)(void *));
MEMBER_IS(free, void (*)(void *));

_Static_assert(_Generic((mlx_error_handler_func)0,
                        void (*)(const char *, void *) : 1, default : 0),
               "mlx_error_handler_func has another type");

/* Bindings in other languages repeat these numbers. */
static void test_enum_values_are_those_of_the_api(void **state)
{
    (void)state;
    static const struct {
        int value;
        int expected;
    } values[] = {
        {MLX_BOOL, 0},
        {MLX_UINT8, 1},
        {MLX_UINT16, 2},
        {MLX_UINT32, 3},
        {MLX_UINT64, 4},
        {MLX_INT8, 5},
        {MLX_INT16, 6},
        {MLX_INT32, 7},
        {MLX_INT64, 8},
        {MLX_FLOAT16, 9},
        {MLX_FLOAT32, 10},
        {MLX_FLOAT64, 11},
        {MLX_BFLOAT16, 12},
        {MLX_COMPLEX64, 13},
        {MLX_CPU, 0},
        {MLX_GPU, 1},
        {MLX_COMPILE_MODE_DISABLED, 0},
        {MLX_COMPILE_MODE_NO_SIMPLIFY, 1},
        {MLX_COMPILE_MODE_NO_FUSE, 2},
        {MLX_COMPILE_MODE_ENABLED, 3},
        {MLX_FFT_NORM_BACKWARD, 0},
        {MLX_FFT_NORM_ORTHO, 1},
        {MLX_FFT_NORM_FORWARD, 2},
    };
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++)
        assert_int_equal(values[i].value, values[i].expected);
}

static void test_the_empty_array_has_no_object(void **state)
{
    (void)state;
    assert_null(mlx_array_empty.ctx);
}

/* An optional as the register that carries it.  Above the flag's byte there is
 * padding, whose bits say nothing. */
static uint64_t register_of(const void *optional)
{
    uint64_t word;
    memcpy(&word, optional, sizeof word);
    return word & UINT64_C(0xffffffffff);
}

static void test_optionals_keep_value_low_and_flag_in_bit_32(void **state)
{
    (void)state;
    mlx_optional_int i;
    memset(&i, 0, sizeof i);
    i.value = -2;
    i.has_value = true;
    assert_int_equal(register_of(&i), UINT64_C(0x1fffffffe));

    mlx_optional_float f;
    memset(&f, 0, sizeof f);
    f.value = 1.0f;
    f.has_value = true;
    assert_int_equal(register_of(&f), UINT64_C(0x13f800000));

    mlx_optional_dtype d;
    memset(&d, 0, sizeof d);
    d.value = MLX_BFLOAT16;
    d.has_value = true;
    assert_int_equal(register_of(&d), UINT64_C(0x10000000c));
    d.has_value = false;
    assert_int_equal(register_of(&d), UINT64_C(0x00000000c));
}

static void test_complex_has_its_real_part_first(void **state)
{
    (void)state;
    mlx_complex64_t z = 3.0f;
    float parts[2];
    memcpy(parts, &z, sizeof parts);
    assert_true(parts[0] == 3.0f);
    assert_true(parts[1] == 0.0f);
}

#define TEXT_OF(...) #__VA_ARGS__
#define EXPANDED(...) TEXT_OF(__VA_ARGS__)
/* One macro, so that both parts see the same line. */
#define CALL_AND_PLACE                                                         \
    {                                                                          \
        EXPANDED(mlx_error("no %s", "room")),                                  \
            EXPANDED(_mlx_error(__FILE__, __LINE__))                           \
    }

/* The macro supplies the place.  Its expansion is compared, not its effect:
 * this program calls nothing of the library. */
static void test_error_macro_names_its_file_and_line(void **state)
{
    (void)state;
    static const char *const text[2] = CALL_AND_PLACE;
    size_t place = strlen(text[1]) - strlen(")");
    assert_true(strlen(text[0]) > place);
    assert_memory_equal(text[0], text[1], place);
    assert_string_equal(text[0] + place, ", \"no %s\", \"room\")");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_enum_values_are_those_of_the_api),
        cmocka_unit_test(test_the_empty_array_has_no_object),
        cmocka_unit_test(test_optionals_keep_value_low_and_flag_in_bit_32),
        cmocka_unit_test(test_complex_has_its_real_part_first),
        cmocka_unit_test(test_error_macro_names_its_file_and_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
