/* capi.h: an error handler that remembers, and checks of calls of the C API. */
#ifndef QN_TEST_CAPI_CAPI_H
#define QN_TEST_CAPI_CAPI_H

#include "support/qn_test.h"

#include "mlx/c/mlx.h"

/* The last message, and how many there were. */
static struct {
    char text[4096];
    int count;
} heard;

static inline void hear(const char *message, void *data)
{
    (void)data;
    snprintf(heard.text, sizeof heard.text, "%s", message);
    heard.count++;
}

static inline int capi_setup(void **state)
{
    (void)state;
    mlx_set_error_handler(hear, NULL, NULL);
    heard.count = 0;
    heard.text[0] = '\0';
    return 0;
}

/* The call succeeds and the handler keeps quiet. */
#define check_ok(call)                                                         \
    do {                                                                       \
        heard.count = 0;                                                       \
        int rc_ = (call);                                                      \
        if (rc_ || heard.count)                                                \
            print_error("%s gave %d: %s\n", #call, rc_, heard.text);           \
        assert_int_equal(rc_, 0);                                              \
        assert_int_equal(heard.count, 0);                                      \
    } while (0)

/* The call gives `value` after one report that contains `part`. */
#define check_reports(call, value, part)                                       \
    do {                                                                       \
        heard.count = 0;                                                       \
        assert_int_equal((call), value);                                       \
        check_heard(part);                                                     \
    } while (0)
#define check_fails(call, part) check_reports(call, 1, part)

#define check_heard(part)                                                      \
    do {                                                                       \
        assert_int_equal(heard.count, 1);                                      \
        if (!strstr(heard.text, part))                                         \
            print_error("expected \"%s\" in \"%s\"\n", part, heard.text);      \
        assert_non_null(strstr(heard.text, part));                             \
    } while (0)

static inline mlx_array ints(int count, const int *values)
{
    mlx_array a = mlx_array_new_data(values, &count, 1, MLX_INT32);
    assert_non_null(a.ctx);
    return a;
}

/* Evaluates and compares. */
static inline void check_ints(mlx_array a, int count, const int *values)
{
    check_ok(mlx_array_eval(a));
    assert_int_equal(mlx_array_size(a), count);
    const int *data = mlx_array_data_int32(a);
    for (int i = 0; i < count; i++)
        assert_int_equal(data[i], values[i]);
}

#endif
