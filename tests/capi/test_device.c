/* Devices and streams: text forms, defaults, the GPU that is an alias, what is
 * known of the machine. */
#include "capi.h"

#include "quern/ext.h"

#include <pthread.h>
#include <sys/utsname.h>
#include <sys/wait.h>

static void check_text(int (*write)(mlx_string *), const char *expected)
{
    mlx_string text = mlx_string_new();
    check_ok(write(&text));
    assert_string_equal(mlx_string_data(text), expected);
    mlx_string_free(text);
}

static mlx_device device;

static int write_device(mlx_string *text)
{
    return mlx_device_tostring(text, device);
}

static void test_devices_have_a_kind_and_an_index(void **state)
{
    (void)state;
    device = mlx_device_new_type(MLX_CPU, 0);
    check_text(write_device, "Device(cpu, 0)");
    mlx_device other = mlx_device_new_type(MLX_GPU, 3);
    assert_false(mlx_device_equal(device, other));
    void *ctx = device.ctx;
    check_ok(mlx_device_set(&device, other));
    assert_ptr_equal(device.ctx, ctx);
    check_text(write_device, "Device(gpu, 3)");
    assert_true(mlx_device_equal(device, other));
    int index = 0;
    mlx_device_type type = MLX_CPU;
    check_ok(mlx_device_get_index(&index, other));
    check_ok(mlx_device_get_type(&type, other));
    assert_int_equal(index, 3);
    assert_int_equal(type, MLX_GPU);
    check_fails(mlx_device_get_index(&index, mlx_device_new()),
                "expected a non-empty mlx_device");
    assert_true(mlx_device_equal(mlx_device_new(), mlx_device_new()));
    assert_false(mlx_device_equal(mlx_device_new(), device));
    mlx_device_free(device);
    mlx_device_free(other);
}

static void test_counts_and_availability_tell_the_truth(void **state)
{
    (void)state;
    int count = -1;
    check_ok(mlx_device_count(&count, MLX_CPU));
    assert_int_equal(count, 1);
    check_ok(mlx_device_count(&count, MLX_GPU));
    assert_int_equal(count, 0);
    static const struct {
        mlx_device_type type;
        int index;
        bool available;
    } cases[] = {{MLX_CPU, 0, true},
                 {MLX_CPU, 1, false},
                 {MLX_CPU, -1, false},
                 {MLX_GPU, 0, false}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        bool available = !cases[i].available;
        mlx_device dev = mlx_device_new_type(cases[i].type, cases[i].index);
        check_ok(mlx_device_is_available(&available, dev));
        assert_int_equal(available, cases[i].available);
        mlx_device_free(dev);
    }
}

static void test_the_cpu_is_the_default(void **state)
{
    (void)state;
    device = mlx_device_new();
    check_ok(mlx_get_default_device(&device));
    check_text(write_device, "Device(cpu, 0)");
    mlx_device gone = mlx_device_new_type(MLX_CPU, 5);
    check_fails(mlx_set_default_device(gone), "(cpu, 5)");
    mlx_device_free(gone);
    mlx_device_free(device);
}

static void test_the_gpu_is_an_alias_of_the_cpu(void **state)
{
    (void)state;
    mlx_stream gpu = mlx_default_gpu_stream_new();
    assert_non_null(gpu.ctx);
    mlx_array a = ints(2, (int[]){1, 2}), sum = mlx_array_new();
    check_ok(mlx_add(&sum, a, a, gpu));
    check_ints(sum, 2, (int[]){2, 4});
    device = mlx_device_new();
    check_ok(mlx_stream_get_device(&device, gpu));
    check_text(write_device, "Device(gpu, 0)");
    check_ok(mlx_set_default_device(device));
    mlx_device now = mlx_device_new();
    check_ok(mlx_get_default_device(&now));
    assert_true(mlx_device_equal(now, device));
    check_ok(mlx_synchronize_default());
    mlx_device cpu = mlx_device_new_type(MLX_CPU, 0);
    check_ok(mlx_set_default_device(cpu));
    mlx_device_free(cpu);
    mlx_device_free(now);
    mlx_device_free(device);
    mlx_array_free(a);
    mlx_array_free(sum);
    mlx_stream_free(gpu);
}

/* ---- information ---- */

static void test_the_machine_is_described_by_name(void **state)
{
    (void)state;
    static const char *const texts[] = {"architecture", "device_name", "isa"};
    static const char *const sizes[] = {"cores", "memory_size",
                                        "max_recommended_working_set_size"};
    struct utsname machine;
    assert_int_equal(uname(&machine), 0);
    mlx_device cpu = mlx_device_new_type(MLX_CPU, 0);
    mlx_device_info info = mlx_device_info_new();
    check_ok(mlx_device_info_get(&info, cpu));
    const char *text;
    size_t size, memory = 0;
    bool flag;
    for (int i = 0; i < 3; i++) {
        check_ok(mlx_device_info_has_key(&flag, info, texts[i]));
        assert_true(flag);
        check_ok(mlx_device_info_is_string(&flag, info, texts[i]));
        assert_true(flag);
        check_ok(mlx_device_info_get_string(&text, info, texts[i]));
        assert_true(strlen(text) > 0);
        assert_int_equal(mlx_device_info_get_size(&size, info, texts[i]), 2);
        check_ok(mlx_device_info_is_string(&flag, info, sizes[i]));
        assert_false(flag);
        check_ok(mlx_device_info_get_size(&size, info, sizes[i]));
        assert_true(size > 0);
        assert_int_equal(mlx_device_info_get_string(&text, info, sizes[i]), 2);
        if (i == 1)
            memory = size;
    }
    assert_true(size <= memory / 4 * 3);
    heard.count = 0;
    assert_int_equal(mlx_device_info_get_string(&text, info, "colour"), 2);
    assert_int_equal(mlx_device_info_get_size(&size, info, "colour"), 2);
    assert_int_equal(mlx_device_info_is_string(&flag, info, "colour"), 2);
    assert_int_equal(heard.count, 0);
    check_ok(mlx_device_info_has_key(&flag, info, "colour"));
    assert_false(flag);

    mlx_vector_string keys = {NULL};
    check_ok(mlx_device_info_get_keys(&keys, info));
    assert_int_equal(mlx_vector_string_size(keys), 6);
    mlx_vector_string_free(keys);

    check_ok(mlx_device_info_get_string(&text, info, "architecture"));
    assert_string_equal(text, machine.machine);
    assert_string_equal(quern_device_architecture(), text);
    mlx_device_info_free(info);
    mlx_device_free(cpu);
    const char *again = quern_device_architecture();
    assert_ptr_equal(again, quern_device_architecture());
    check_fails(mlx_device_info_get_keys(&keys, mlx_device_info_new()),
                "expected a non-empty mlx_device_info");
}

/* ---- streams ---- */

static mlx_stream stream;

static int write_stream(mlx_string *text)
{
    return mlx_stream_tostring(text, stream);
}

static void test_streams_say_where_they_run(void **state)
{
    (void)state;
    device = mlx_device_new_type(MLX_CPU, 0);
    stream = mlx_stream_new_device(device);
    int index = -1;
    check_ok(mlx_stream_get_index(&index, stream));
    char expected[64];
    snprintf(expected, sizeof expected, "Stream(Device(cpu, 0), %d)", index);
    check_text(write_stream, expected);
    mlx_stream other = mlx_stream_new_thread_unsafe(device);
    assert_false(mlx_stream_equal(stream, other));
    check_ok(mlx_stream_set(&other, stream));
    assert_true(mlx_stream_equal(stream, other));

    mlx_vector_stream all = {NULL};
    check_ok(mlx_get_streams(&all));
    bool found = false;
    for (size_t i = 0; i < mlx_vector_stream_size(all); i++) {
        check_ok(mlx_vector_stream_get(&other, all, i));
        found = found || mlx_stream_equal(other, stream);
    }
    assert_true(found);
    mlx_vector_stream_free(all);
    mlx_stream_free(other);
    mlx_stream_free(stream);
    mlx_device_free(device);
}

static void *default_elsewhere(void *data)
{
    *(mlx_stream *)data = mlx_default_cpu_stream_new();
    return NULL;
}

static void test_each_thread_has_a_default_stream(void **state)
{
    (void)state;
    mlx_stream mine = mlx_default_cpu_stream_new();
    mlx_stream again = mlx_default_cpu_stream_new(), theirs;
    assert_true(mlx_stream_equal(mine, again));
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, default_elsewhere, &theirs),
                     0);
    pthread_join(thread, NULL);
    assert_false(mlx_stream_equal(mine, theirs));

    device = mlx_device_new_type(MLX_CPU, 0);
    check_ok(mlx_set_default_stream(theirs));
    check_ok(mlx_get_default_stream(&again, device));
    assert_true(mlx_stream_equal(again, theirs));
    check_ok(mlx_set_default_stream(mine));
    check_ok(mlx_clear_streams());
    check_ok(mlx_get_default_stream(&again, device));
    assert_false(mlx_stream_equal(again, mine));
    check_ok(mlx_synchronize(mine));
    mlx_stream_free(mine);
    mlx_stream_free(again);
    mlx_stream_free(theirs);
    mlx_device_free(device);
}

static mlx_stream_thread_local family;

static void *member_elsewhere(void *data)
{
    mlx_stream *res = data;
    *res = mlx_stream_new();
    check_ok(mlx_stream_from_thread_local(res, family));
    return NULL;
}

static void
test_a_thread_local_handle_stands_for_a_stream_per_thread(void **state)
{
    (void)state;
    device = mlx_device_new_type(MLX_CPU, 0);
    family = mlx_stream_thread_local_new(device);
    mlx_stream_thread_local copy = {NULL};
    check_ok(mlx_stream_thread_local_set(&copy, family));
    mlx_stream mine = mlx_stream_new(), again = mlx_stream_new(), theirs;
    check_ok(mlx_stream_from_thread_local(&mine, family));
    check_ok(mlx_stream_from_thread_local(&again, copy));
    assert_true(mlx_stream_equal(mine, again));
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, member_elsewhere, &theirs),
                     0);
    pthread_join(thread, NULL);
    assert_false(mlx_stream_equal(mine, theirs));
    check_ok(mlx_synchronize_thread_local(family));
    check_ok(mlx_stream_thread_local_free(copy));
    check_ok(mlx_stream_thread_local_free(family));
    mlx_stream_free(mine);
    mlx_stream_free(again);
    mlx_stream_free(theirs);
    mlx_device_free(device);
}

static void test_work_is_awaited_by_synchronize(void **state)
{
    (void)state;
    stream = mlx_default_cpu_stream_new();
    mlx_array a = ints(2, (int[]){1, 2}), sum = mlx_array_new();
    check_ok(mlx_add(&sum, a, a, stream));
    mlx_vector_array list = mlx_vector_array_new_value(sum);
    check_ok(mlx_async_eval(list));
    check_ok(mlx_synchronize(stream));
    assert_int_equal(mlx_array_data_int32(sum)[1], 4);
    mlx_vector_array_free(list);
    mlx_array_free(a);
    mlx_array_free(sum);
    mlx_stream_free(stream);
}

/* ---- MLX's errors, asked for in a process of its own ---- */

#define CHILD_CHECK(condition)                                                 \
    do {                                                                       \
        if (!(condition))                                                      \
            return __LINE__ % 200 + 1;                                         \
    } while (0)

static int without_aliases(void)
{
    heard.count = 0;
    mlx_stream gpu = mlx_default_gpu_stream_new();
    CHILD_CHECK(!gpu.ctx && heard.count == 1);
    CHILD_CHECK(strstr(heard.text, "Cannot get gpu default stream without gpu "
                                   "backend."));
    mlx_device dev = mlx_device_new_type(MLX_GPU, 0);
    CHILD_CHECK(!mlx_stream_new_device(dev).ctx && heard.count == 2);
    CHILD_CHECK(mlx_set_default_device(dev) == 1 && heard.count == 3);
    mlx_device_info info = mlx_device_info_new();
    bool known = true;
    CHILD_CHECK(mlx_device_info_get(&info, dev) == 0);
    CHILD_CHECK(mlx_device_info_has_key(&known, info, "memory_size") == 0);
    CHILD_CHECK(!known && heard.count == 3);
    mlx_stream cpu = mlx_default_cpu_stream_new();
    CHILD_CHECK(cpu.ctx && heard.count == 3);
    return 0;
}

static void test_strict_devices_bring_the_errors_of_mlx(void **state)
{
    (void)state;
    setenv("QUERN_STRICT_DEVICES", "1", 1);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (!pid)
        _exit(without_aliases());
    unsetenv("QUERN_STRICT_DEVICES");
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        /* First: the environment is read once, by the first use. */
        cmocka_unit_test(test_strict_devices_bring_the_errors_of_mlx),
        cmocka_unit_test(test_devices_have_a_kind_and_an_index),
        cmocka_unit_test(test_counts_and_availability_tell_the_truth),
        cmocka_unit_test(test_the_cpu_is_the_default),
        cmocka_unit_test(test_the_gpu_is_an_alias_of_the_cpu),
        cmocka_unit_test(test_the_machine_is_described_by_name),
        cmocka_unit_test(test_streams_say_where_they_run),
        cmocka_unit_test(test_each_thread_has_a_default_stream),
        cmocka_unit_test(
            test_a_thread_local_handle_stands_for_a_stream_per_thread),
        cmocka_unit_test(test_work_is_awaited_by_synchronize),
    };
    return cmocka_run_group_tests(tests, capi_setup, NULL);
}
