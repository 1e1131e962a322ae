/* Configuration files: what is read, and what is refused with its line. */
#include "support/qn_test.h"

#include "base/toml.h"

static const char text[] = "# a comment\n"
                           "threads = 4 # another\n"
                           "rate = -1.5e-3\n"
                           "big = 1_000_000\n"
                           "on = true\r\n"
                           "\"quoted key\" = 'C:\\path'\n"
                           "\n"
                           "[run]\n"
                           "stop = [ \"a\", # the first\n"
                           "  'b',\n"
                           "]\n"
                           "system = \"tab\\tquote\\\" \\u00e9 \\U0001F600\"\n"
                           "[models.\"my model\"]\n"
                           "ref = \"org/name\"\n"
                           "[models]\n"
                           "other.ref = \"x\"\n"
                           "none = []";

static qn_status read_all(void)
{
    qn_toml *toml = NULL;
    qn_status status = qn_toml_parse(&toml, qn_str_of(text), "x.toml");
    if (status)
        return status;
    const qn_toml_entry *e = qn_toml_at(toml, 0);
    assert_string_equal(e->key, "threads");
    assert_int_equal(e->type, QN_TOML_INT);
    assert_string_equal(e->text, "4");
    assert_int_equal(e->line, 2);
    assert_int_equal(e->depth, 0);
    e = qn_toml_at(toml, 1);
    assert_int_equal(e->type, QN_TOML_FLOAT);
    assert_string_equal(e->text, "-1.5e-3");
    assert_string_equal(qn_toml_at(toml, 2)->text, "1000000");
    assert_true(qn_toml_at(toml, 3)->on);
    e = qn_toml_at(toml, 4);
    assert_string_equal(e->key, "quoted key");
    assert_string_equal(e->text, "C:\\path");
    e = qn_toml_at(toml, 5);
    assert_string_equal(e->path[0], "run");
    assert_int_equal(e->list_count, 2);
    assert_string_equal(e->list[1], "b");
    e = qn_toml_at(toml, 6);
    assert_int_equal(e->line, 12);
    assert_string_equal(e->text, "tab\tquote\" \xc3\xa9 \xf0\x9f\x98\x80");
    e = qn_toml_at(toml, 7);
    assert_int_equal(e->depth, 2);
    assert_string_equal(e->path[1], "my model");
    e = qn_toml_at(toml, 8);
    assert_int_equal(e->depth, 2);
    assert_string_equal(e->path[1], "other");
    assert_string_equal(e->key, "ref");
    assert_int_equal(qn_toml_at(toml, 9)->list_count, 0);
    assert_null(qn_toml_at(toml, 10));
    qn_toml_free(toml);
    return QN_OK;
}

static void test_a_file_is_read(void **state)
{
    (void)state;
    check_status(read_all(), QN_OK);
    each_alloc_may_fail(read_all);
}

static void test_faults_are_told_with_their_line(void **state)
{
    (void)state;
    static const struct {
        const char *text, *where, *says;
    } rows[] = {
        {"a", "f:1", "expected = after the key"},
        {"a =", "f:1", "expected a value"},
        {"\n\na = 1\na = 2", "f:4", "line 3 has it"},
        {"[t]\n[t]", "f:2", "line 1 has it"},
        {"a = 1\n[a]", "f:2", "can't be a table"},
        {"[t.x]\n[t]\nx = 1", "f:3", "can't be a key"},
        {"[t", "f:1", "expected ]"},
        {"[]", "f:1", "expected a key"},
        {"[[t]]", "f:1", "arrays of tables"},
        {"a = {b = 1}", "f:1", "inline tables"},
        {"a = \"\"\"x\"\"\"", "f:1", "several lines"},
        {"a = \"x", "f:1", "expected \" at the end"},
        {"a = \"x\ny\"", "f:1", "expected \" at the end"},
        {"a = \"\\q\"", "f:1", "unknown escape"},
        {"a = \"\\ud800\"", "f:1", "no character"},
        {"a = \"\\u0000\"", "f:1", "no character"},
        {"a = \"\\u12\"", "f:1", "hexadecimal"},
        {"a = 1 2", "f:1", "expected the end of the line"},
        {"a = 0x10", "f:1", "expected a value"},
        {"a = 010", "f:1", "expected a value"},
        {"a = 1__0", "f:1", "expected a value"},
        {"a = 1.", "f:1", "expected a value"},
        {"a = .5", "f:1", "expected a value"},
        {"a = nan", "f:1", "expected a value"},
        {"a = truely", "f:1", "expected a value"},
        {"a = 1979-05-27", "f:1", "expected a value"},
        {"a = [1]", "f:1", "expected a string or ]"},
        {"a = [\"x\"\n\"y\"]", "f:2", "expected , or ]"},
        {"a = [\"x\",", "f:1", "expected a string or ]"},
        {"a.b.c.d.e = 1", "f:1", "at most 4"},
        {"b = 1\na = \"\xff\"", "f:2", "not valid UTF-8"},
        {"a = \"\x01\"", "f:1", "control character"},
        {"= 1", "f:1", "expected a key"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        qn_toml *toml = NULL;
        check_error(qn_toml_parse(&toml, qn_str_of(rows[i].text), "f"),
                    QN_E_FORMAT, rows[i].says);
        assert_string_equal(qn_error_where(), rows[i].where);
        assert_null(toml);
    }
}

static void test_an_empty_file_has_no_entries(void **state)
{
    (void)state;
    static const char *const rows[] = {"", "\n", "# x", "[t]", " \t\r\n"};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        qn_toml *toml = NULL;
        check_status(qn_toml_parse(&toml, qn_str_of(rows[i]), "f"), QN_OK);
        assert_null(qn_toml_at(toml, 0));
        qn_toml_free(toml);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_file_is_read),
        cmocka_unit_test(test_faults_are_told_with_their_line),
        cmocka_unit_test(test_an_empty_file_has_no_entries),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
