/* The table of packed modules. */
#include "support/qn_test.h"

#include "model/quant.h"

/* Parses `text` as the value of `quantization`. */
static qn_status parse(qn_quant_table *out, const char *text)
{
    qn_json_doc *doc;
    check_status(qn_json_parse(&doc, qn_str_of(text), 0), QN_OK);
    qn_status status = qn_quant_parse(out, qn_json_root(doc), "config.json");
    qn_json_doc_free(doc);
    return status;
}

static void check_found(qn_quant_table *table, const char *path,
                        qn_quant expected)
{
    qn_quant found;
    check_status(qn_quant_find(table, path, &found), QN_OK);
    assert_int_equal(found.mode, expected.mode);
    assert_int_equal(found.group, expected.group);
    assert_int_equal(found.bits, expected.bits);
}

static void test_overrides_replace_the_defaults(void **state)
{
    (void)state;
    qn_quant_table t;
    check_status(parse(&t, "{\"group_size\": 64, \"bits\": 4, \"a.b\": "
                           "{\"bits\": 8, \"group_size\": 32}, \"c\": false, "
                           "\"d\": true, \"e\": {\"mode\": \"mxfp4\"}}"),
                 QN_OK);
    check_found(&t, "x", (qn_quant){QN_MODE_AFFINE, 64, 4});
    check_found(&t, "a.b", (qn_quant){QN_MODE_AFFINE, 32, 8});
    check_found(&t, "d", (qn_quant){QN_MODE_AFFINE, 64, 4});
    check_found(&t, "e", (qn_quant){QN_MODE_MXFP4, 32, 4});
    qn_quant q;
    check_error(qn_quant_find(&t, "c", &q), QN_E_MISMATCH, "c has scales");
    size_t position = 0;
    assert_null(qn_quant_unused(&t, &position));
    qn_quant_clear(&t);
}

static void test_unused_overrides_are_found(void **state)
{
    (void)state;
    qn_quant_table t;
    check_status(parse(&t, "{\"bits\": 4, \"gone\": {\"bits\": 8}, "
                           "\"plain\": false, \"here\": {\"bits\": 2}}"),
                 QN_OK);
    check_found(&t, "here", (qn_quant){QN_MODE_AFFINE, 64, 2});
    size_t position = 0;
    assert_string_equal(qn_quant_unused(&t, &position), "gone");
    assert_null(qn_quant_unused(&t, &position));
    qn_quant_clear(&t);
}

static void test_absent_table_packs_nothing(void **state)
{
    (void)state;
    qn_quant_table t;
    qn_quant q;
    check_status(qn_quant_parse(&t, NULL, "config.json"), QN_OK);
    check_error(qn_quant_find(&t, "x", &q), QN_E_MISMATCH, "no quantization");
    check_status(parse(&t, "null"), QN_OK);
    assert_false(t.present);
}

static void test_bad_values_are_named(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        qn_status status;
        const char *part;
    } rows[] = {
        {"[]", QN_E_FORMAT, "expected an object"},
        {"{\"bits\": \"4\"}", QN_E_FORMAT, "bits"},
        {"{\"bits\": 4.5}", QN_E_FORMAT, "bits"},
        {"{\"bits\": -4}", QN_E_FORMAT, "bits"},
        {"{\"bits\": 7}", QN_E_UNSUPPORTED, "7 bits"},
        {"{\"bits\": 4, \"group_size\": 48}", QN_E_UNSUPPORTED, "48"},
        {"{\"mode\": \"nf4\"}", QN_E_UNSUPPORTED, "nf4"},
        {"{\"mode\": 4}", QN_E_FORMAT, "mode"},
        {"{\"mode\": \"mxfp4\", \"bits\": 8}", QN_E_UNSUPPORTED, "mxfp4"},
        {"{\"mode\": \"nvfp4\", \"group_size\": 32}", QN_E_UNSUPPORTED,
         "nvfp4"},
        {"{\"bits\": 4, \"m.n\": 3}", QN_E_FORMAT, "m.n"},
        {"{\"bits\": 4, \"m.n\": {\"bits\": 1}}", QN_E_UNSUPPORTED, "m.n"},
        {"{\"quant_method\": \"hqq\", \"bits\": 4}", QN_E_UNSUPPORTED, "hqq"},
        {"{\"quant_method\": \"awq\", \"bits\": 3}", QN_E_UNSUPPORTED, "awq"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        qn_quant_table t;
        check_error(parse(&t, rows[i].text), rows[i].status, rows[i].part);
        assert_non_null(strstr(qn_error_where(), "config.json"));
    }
}

static qn_status parse_scenario(void)
{
    qn_json_doc *doc;
    qn_status status = qn_json_parse(
        &doc, QN_STR("{\"bits\": 4, \"a\": {\"bits\": 8}, \"b\": true}"), 0);
    if (status)
        return status;
    qn_quant_table t;
    status = qn_quant_parse(&t, qn_json_root(doc), "config.json");
    if (!status)
        qn_quant_clear(&t);
    qn_json_doc_free(doc);
    return status;
}

static void test_memory_may_run_out(void **state)
{
    (void)state;
    each_alloc_may_fail(parse_scenario);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_overrides_replace_the_defaults),
        cmocka_unit_test(test_unused_overrides_are_found),
        cmocka_unit_test(test_absent_table_packs_nothing),
        cmocka_unit_test(test_bad_values_are_named),
        cmocka_unit_test(test_memory_may_run_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
