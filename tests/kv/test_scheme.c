/* Names of KV schemes, what they need of a head, and what a token takes. */
#include "support/qn_test.h"

#include "kv/scheme.h"

static void check_name(const char *text, const char *name)
{
    qn_kv_scheme scheme;
    char found[QN_KV_NAME_SIZE];
    check_status(qn_kv_scheme_parse(&scheme, text, MLX_FLOAT16), QN_OK);
    qn_kv_scheme_name(found, &scheme);
    assert_string_equal(found, name);
}

static void test_names(void **state)
{
    (void)state;
    static const char *const same[] = {
        "f32",        "f16",        "bf16",       "affine4",   "affine8",
        "turbo:k8v3", "turbo:k2v8", "turbo:k5v2", "turbo:k4v4"};
    for (size_t i = 0; i < sizeof same / sizeof *same; i++)
        check_name(same[i], same[i]);
    check_name("turbo", "turbo:k8v3");
}

static void check_refused(const char *text, qn_status status, const char *names)
{
    qn_kv_scheme scheme;
    check_status(qn_kv_scheme_parse(&scheme, text, MLX_FLOAT16), status);
    assert_non_null(strstr(qn_error_text(), text));
    assert_non_null(strstr(qn_error_text(), names));
}

static void test_other_names_are_refused(void **state)
{
    (void)state;
    static const char *const wrong[] = {"",
                                        "f8",
                                        "F16",
                                        "affine2",
                                        "affine16",
                                        "affine",
                                        "turbo:",
                                        "turbo:k8",
                                        "turbo:k8v",
                                        "turbo:k8v33",
                                        "turbo:k 8v3",
                                        "turbo:k8v3 ",
                                        "turbo:k+8v3",
                                        "turbo8",
                                        "turbo:K8V3",
                                        "turbo:k-8v3"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        check_refused(wrong[i], QN_E_ARG, "turbo:kXvY");
    check_refused("turbo:k3v3", QN_E_UNSUPPORTED, "keys");
    check_refused("turbo:k8v6", QN_E_UNSUPPORTED, "values");
    check_refused("turbo:k0v0", QN_E_UNSUPPORTED, "keys");
}

static size_t bytes(const char *name, int head_dim)
{
    qn_kv_scheme scheme;
    check_status(qn_kv_scheme_parse(&scheme, name, MLX_FLOAT16), QN_OK);
    check_status(qn_kv_scheme_fit(&scheme, head_dim), QN_OK);
    return qn_kv_scheme_bytes(&scheme, head_dim);
}

static void test_bytes_of_a_token(void **state)
{
    (void)state;
    assert_int_equal(bytes("f32", 64), 512);
    assert_int_equal(bytes("f16", 80), 320);
    assert_int_equal(bytes("affine8", 128), 2 * (128 + 8));
    assert_int_equal(bytes("affine4", 96), 2 * (48 + 12)); /* groups of 32 */
    /* The table of turboquant.md 12. */
    assert_int_equal(bytes("turbo", 64), 100);
    assert_int_equal(bytes("turbo:k8v3", 128), 200);
    assert_int_equal(bytes("turbo:k8v8", 512), 1120);
    assert_int_equal(bytes("turbo:k5v4", 256), 336);
    assert_int_equal(bytes("turbo:k2v2", 64), 44);
}

static void check_unfit(const char *name, int head_dim, const char *found)
{
    qn_kv_scheme scheme;
    check_status(qn_kv_scheme_parse(&scheme, name, MLX_FLOAT16), QN_OK);
    check_status(qn_kv_scheme_fit(&scheme, head_dim), QN_E_UNSUPPORTED);
    assert_non_null(strstr(qn_error_text(), name));
    assert_non_null(strstr(qn_error_text(), "head_dim"));
    assert_non_null(strstr(qn_error_text(), found));
}

static void test_heads_that_do_not_fit(void **state)
{
    (void)state;
    check_unfit("turbo:k8v3", 80, "80");
    check_unfit("turbo:k8v3", 1024, "1024");
    check_unfit("affine8", 80, "80");
    qn_kv_scheme scheme;
    check_status(qn_kv_scheme_parse(&scheme, "f16", MLX_FLOAT16), QN_OK);
    check_status(qn_kv_scheme_fit(&scheme, 80), QN_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_other_names_are_refused),
        cmocka_unit_test(test_bytes_of_a_token),
        cmocka_unit_test(test_heads_that_do_not_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
