/* JSON: what is accepted, where errors are, the tree, and the writer. */
#include "support/qn_test.h"

#include "base/json.h"
#include "base/utf8.h"

#include <float.h>
#include <locale.h>
#include <math.h>

/* Parses a copy that ends where the text ends. */
static qn_status parse(qn_json_doc **out, qn_str text, unsigned flags)
{
    uint8_t *copy = exact_copy(text.data, text.size);
    qn_status status =
        qn_json_parse(out, (qn_str){(char *)copy, text.size}, flags);
    free(copy); /* the document does not need it */
    return status;
}

static qn_json_doc *parse_ok(const char *text)
{
    qn_json_doc *doc = NULL;
    check_status(parse(&doc, qn_str_of(text), 0), QN_OK);
    return doc;
}

/* ---- what is JSON ---- */

static void test_documents_of_the_grammar_are_accepted(void **state)
{
    (void)state;
    const char *texts[] = {
        "0",
        "-0",
        "10",
        "-1.5",
        "0.25e+10",
        "1E-2",
        "1e5",
        "123456789012345678",
        "true",
        "false",
        "null",
        "\"\"",
        "[]",
        "{}",
        " [ ] ",
        "\t{\r\n}\n",
        "[1,2]",
        "[[],[[]]]",
        "{\"\":{}}",
        "{\"a\":1,\"b\":[true,null]}",
        "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u0000\"",
        "\"\x7f\"",
        "\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\"",
        "\"\\ud83d\\uDE00\"",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        qn_json_doc *doc = parse_ok(texts[i]);
        assert_non_null(qn_json_root(doc));
        qn_json_doc_free(doc);
    }
}

static void test_anything_else_is_refused_at_its_byte(void **state)
{
    (void)state;
    const struct {
        const char *text;
        size_t at;
    } cases[] = {
        {"", 0},
        {"  ", 2},
        {"01", 1},
        {"-", 1},
        {"-a", 1},
        {"+1", 0},
        {".5", 0},
        {"1.", 2},
        {"1.e3", 2},
        {"1e", 2},
        {"1e+", 3},
        {"0x10", 1},
        {"NaN", 0},
        {"Infinity", 0},
        {"-Infinity", 1},
        {"True", 0},
        {"tru", 0},
        {"nul", 0},
        {"truex", 4},
        {"[1,]", 3},
        {"[,1]", 1},
        {"[1 2]", 3},
        {"[1", 2},
        {"[", 1},
        {"]", 0},
        {"[}", 1},
        {"{", 1},
        {"{]", 1},
        {"{\"a\"}", 4},
        {"{\"a\":}", 5},
        {"{\"a\":1,}", 7},
        {"{a:1}", 1},
        {"{1:1}", 1},
        {"{\"a\" 1}", 5},
        {"{\"a\":1 \"b\"", 7},
        {"{'a':1}", 1},
        {"1 2", 2},
        {"[] []", 3},
        {"{}}", 2},
        {"\"", 1},
        {"\"a", 2},
        {"\"\\", 2},
        {"\"\\x\"", 2},
        {"\"\\u12\"", 3},
        {"\"\\u123g\"", 3},
        {"\"a\nb\"", 2},
        {"\"\t\"", 1},
        {"\"\x1f\"", 1},
        {"// c\n1", 0},
        {"[1]/**/", 3},
        {"\xef\xbb\xbf"
         "1",
         0},
        {"\"\xff\"", 1},
        {"\"\xc0\xaf\"", 1},
        {"\"\xed\xa0\x80\"", 1},
        {"\"\xe2\x82\"", 1},
        {"\xc2\xa0"
         "1",
         0},
        {"\"\\ud800\"", 1},
        {"\"\\udc00\"", 1},
        {"\"\\udc00\\udc00\"", 1},
        {"\"\\ud800\\ud800\"", 1},
        {"\"\\ud800\\", 1},
        {"\"x\\ud800\\u0041\"", 2},
        {"\"\\ud800\\n\"", 1},
        {"[1\x0b]", 2},
        {"\f1", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        qn_json_doc *doc = NULL;
        char place[40];
        snprintf(place, sizeof place, "JSON byte %zu: expected", cases[i].at);
        qn_error_clear();
        check_error(parse(&doc, qn_str_of(cases[i].text), 0), QN_E_FORMAT,
                    place);
        assert_null(doc);
    }
    qn_json_doc *doc = NULL;
    check_error(parse(&doc, QN_STR("[1]\0"), 0), QN_E_FORMAT, "byte 3");
    check_error(parse(&doc, QN_STR("\"a\0b\""), 0), QN_E_FORMAT, "byte 2");
    check_error(qn_json_parse(&doc, (qn_str){NULL, 0}, 0), QN_E_FORMAT,
                "byte 0");
}

static void test_the_message_says_expected_and_found(void **state)
{
    (void)state;
    qn_json_doc *doc = NULL;
    check_error(parse(&doc, QN_STR("{\"a\" 1}"), 0), QN_E_FORMAT,
                "JSON byte 5: expected ':' after the key, found '1'");
    check_error(parse(&doc, QN_STR("[1"), 0), QN_E_FORMAT,
                "expected ',' or ']', found the end of the text");
    check_error(parse(&doc, QN_STR("\"\x01\""), 0), QN_E_FORMAT,
                "found byte 0x01");
}

static void test_a_bom_is_an_option(void **state)
{
    (void)state;
    qn_json_doc *doc = NULL;
    qn_str text = QN_STR("\xef\xbb\xbf{\"a\":1}");
    check_status(parse(&doc, text, 0), QN_E_FORMAT);
    check_status(parse(&doc, text, QN_JSON_ALLOW_BOM), QN_OK);
    /* Offsets count from the first byte of the text. */
    assert_int_equal(qn_json_root(doc)->offset, 3);
    qn_json_doc_free(doc);
    check_status(parse(&doc, QN_STR("\xef\xbb"), QN_JSON_ALLOW_BOM),
                 QN_E_FORMAT);
}

static void test_lone_surrogates_are_an_option(void **state)
{
    (void)state;
    const char *texts[][2] = {
        {"\"\\ud800\"", "\xef\xbf\xbd"},
        {"\"\\udc00x\"", "\xef\xbf\xbdx"},
        {"\"\\ud800\\u0041\"", "\xef\xbf\xbd"
                               "A"},
        {"\"\\ud800\\ud83d\\ude00\"", "\xef\xbf\xbd\xf0\x9f\x98\x80"},
    };
    for (size_t i = 0; i < 4; i++) {
        qn_json_doc *doc = NULL;
        check_status(parse(&doc, qn_str_of(texts[i][0]), 0), QN_E_FORMAT);
        check_status(
            parse(&doc, qn_str_of(texts[i][0]), QN_JSON_ALLOW_LONE_SURROGATES),
            QN_OK);
        check_str(qn_json_root(doc)->text, texts[i][1]);
        qn_json_doc_free(doc);
    }
}

static void test_nesting_is_bounded(void **state)
{
    (void)state;
    for (int kind = 0; kind < 2; kind++) {
        for (int extra = 0; extra < 2; extra++) {
            qn_buf text = QN_BUF_INIT;
            int depth = QN_JSON_MAX_DEPTH + extra;
            for (int i = 0; i < depth; i++)
                qn_buf_add_text(&text, kind ? "{\"k\":" : "[");
            qn_buf_add_text(&text, "1");
            for (int i = 0; i < depth; i++)
                qn_buf_add_text(&text, kind ? "}" : "]");
            qn_json_doc *doc = NULL;
            qn_status status = parse(&doc, qn_buf_str(&text), 0);
            if (extra)
                check_error(status, QN_E_FORMAT, "at most 128 levels");
            else
                check_status(status, QN_OK);
            qn_json_doc_free(doc);
            qn_buf_free(&text);
        }
    }
}

static void test_strings_of_every_length_are_read_whole(void **state)
{
    (void)state;
    /* Words of eight bytes are scanned at once: put each kind of end at each
     * place in them. */
    for (size_t size = 0; size < 40; size++) {
        for (size_t at = 0; at <= size; at++) {
            const char *marks[] = {"", "\\n", "\xe2\x82\xac", "\\u20ac",
                                   "\\\""};
            const char *means[] = {"", "\n", "\xe2\x82\xac", "\xe2\x82\xac",
                                   "\""};
            for (size_t m = 0; m < 5; m++) {
                char text[128], wanted[128];
                snprintf(text, sizeof text, "\"%.*s%s%.*s\"", (int)at,
                         "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", marks[m],
                         (int)(size - at),
                         "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb");
                snprintf(wanted, sizeof wanted, "%.*s%s%.*s", (int)at,
                         "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", means[m],
                         (int)(size - at),
                         "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb");
                qn_json_doc *doc = parse_ok(text);
                check_str(qn_json_root(doc)->text, wanted);
                qn_json_doc_free(doc);
            }
        }
    }
}

/* ---- pull reader ---- */

static void test_events_come_in_order_with_text_and_offsets(void **state)
{
    (void)state;
    qn_str text = QN_STR(" {\"a\" : [1.50, \"x\\ty\"], \"b\":true}  ");
    const struct {
        qn_json_event event;
        const char *text;
        size_t begin, end;
    } wanted[] = {
        {QN_JSON_OBJECT_BEGIN, NULL, 1, 2}, {QN_JSON_KEY, "a", 2, 5},
        {QN_JSON_ARRAY_BEGIN, NULL, 8, 9},  {QN_JSON_NUMBER, "1.50", 9, 13},
        {QN_JSON_STRING, "x\ty", 15, 21},   {QN_JSON_ARRAY_END, NULL, 21, 22},
        {QN_JSON_KEY, "b", 24, 27},         {QN_JSON_TRUE, NULL, 28, 32},
        {QN_JSON_OBJECT_END, NULL, 32, 33}, {QN_JSON_END, NULL, 35, 35},
        {QN_JSON_END, NULL, 35, 35},
    };
    qn_json_reader *r = qn_json_reader_new(text, 0, 0);
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        assert_int_equal(qn_json_next(r), wanted[i].event);
        assert_int_equal(qn_json_offset(r), wanted[i].begin);
        assert_int_equal(qn_json_end_offset(r), wanted[i].end);
        if (wanted[i].text)
            check_str(qn_json_text(r), wanted[i].text);
    }
    check_status(qn_json_status(r), QN_OK);
    qn_json_reader_free(r);
}

static void test_a_reader_keeps_its_error(void **state)
{
    (void)state;
    qn_json_reader *r = qn_json_reader_new(QN_STR("[1 x"), 0, 0);
    assert_int_equal(qn_json_next(r), QN_JSON_ARRAY_BEGIN);
    assert_int_equal(qn_json_next(r), QN_JSON_NUMBER);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(qn_json_next(r), QN_JSON_ERROR);
        assert_int_equal(qn_json_offset(r), 3);
        check_status(qn_json_status(r), QN_E_FORMAT);
    }
    qn_json_reader_free(r);
    qn_json_reader_free(NULL);
}

static void test_skip_ends_after_the_container(void **state)
{
    (void)state;
    qn_json_reader *r =
        qn_json_reader_new(QN_STR("[[1,[2,{\"a\":[]}]],{\"b\":{}},3]"), 0, 0);
    assert_int_equal(qn_json_next(r), QN_JSON_ARRAY_BEGIN);
    assert_int_equal(qn_json_next(r), QN_JSON_ARRAY_BEGIN);
    check_status(qn_json_skip(r), QN_OK);
    assert_int_equal(qn_json_next(r), QN_JSON_OBJECT_BEGIN);
    check_status(qn_json_skip(r), QN_OK);
    assert_int_equal(qn_json_next(r), QN_JSON_NUMBER);
    check_str(qn_json_text(r), "3");
    qn_json_reader_free(r);

    r = qn_json_reader_new(QN_STR("[[1,"), 0, 0);
    qn_json_next(r);
    check_status(qn_json_skip(r), QN_E_FORMAT);
    qn_json_reader_free(r);
}

static void test_a_depth_limit_of_the_caller_holds(void **state)
{
    (void)state;
    qn_json_reader *r = qn_json_reader_new(QN_STR("[[[]]]"), 0, 2);
    assert_int_equal(qn_json_next(r), QN_JSON_ARRAY_BEGIN);
    assert_int_equal(qn_json_next(r), QN_JSON_ARRAY_BEGIN);
    assert_int_equal(qn_json_next(r), QN_JSON_ERROR);
    assert_int_equal(qn_json_offset(r), 2);
    qn_json_reader_free(r);
}

/* ---- numbers ---- */

static void test_integers_that_fit_are_integers(void **state)
{
    (void)state;
    const struct {
        const char *text;
        int64_t value;
    } good[] = {
        {"0", 0},
        {"-0", 0},
        {"42", 42},
        {"-7", -7},
        {"9223372036854775807", INT64_MAX},
        {"-9223372036854775808", INT64_MIN},
    };
    const char *bad[] = {
        "9223372036854775808",
        "-9223372036854775809",
        "92233720368547758070",
        "1.0",
        "1e2",
        "",
        "-",
        "1a",
        " 1",
        "99999999999999999999999999",
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        int64_t value = 99;
        assert_true(qn_json_int64(qn_str_of(good[i].text), &value));
        assert_true(value == good[i].value);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        int64_t value = 99;
        assert_false(qn_json_int64(qn_str_of(bad[i]), &value));
        assert_true(value == 99);
    }
}

static void test_doubles_are_the_nearest(void **state)
{
    (void)state;
    const char *texts[] = {
        "0",
        "-0",
        "0.1",
        "-0.1",
        "123.456",
        "1e22",
        "1e23",
        "1.5e300",
        "1e-5",
        "123456789012345",
        "123456789012345678",
        "0.000001",
        "2.2250738585072014e-308",
        "4.9e-324",
        "1e-400",
        "1.7976931348623157e308",
        "3.14159265358979323846",
        "999999999999999.9",
        "0.30000000000000004",
        "9007199254740993",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        double value = NAN, wanted = strtod(texts[i], NULL);
        assert_true(qn_json_double(qn_str_of(texts[i]), &value));
        assert_memory_equal(&value, &wanted, sizeof value);
    }
    const char *bad[] = {"1e400", "-1e400", "",   "inf", "nan",
                         "0x10",  "1 ",     " 1", "1e",  "-"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        double value = 7;
        assert_false(qn_json_double(qn_str_of(bad[i]), &value));
        assert_true(value == 7);
    }
    assert_false(qn_json_double((qn_str){NULL, 0}, &(double){0}));
}

static void test_long_spellings_are_read_whole(void **state)
{
    (void)state;
    qn_buf text = QN_BUF_INIT;
    double value = 0;
    for (int i = 0; i < 1000; i++)
        qn_buf_add_char(&text, '1');
    assert_false(qn_json_double(qn_buf_str(&text), &value));
    qn_buf_add_text(&text, "e-999");
    assert_true(qn_json_double(qn_buf_str(&text), &value));
    assert_true(value == 1.1111111111111111);
    qn_buf_free(&text);
}

/* Switches to a locale that writes 1,5: one that the system has, or one made
 * in `dir`. */
static bool enter_comma_locale(const char *dir)
{
    if (setlocale(LC_NUMERIC, "de_DE.UTF-8"))
        return true;
    char command[512];
    snprintf(command, sizeof command,
             "localedef -i de_DE -f UTF-8 '%s/de_DE.UTF-8' >'%s/log' 2>&1", dir,
             dir);
    return !system(command) && !setenv("LOCPATH", dir, 1) &&
           setlocale(LC_NUMERIC, "de_DE.UTF-8");
}

static void test_numbers_do_not_follow_the_locale(void **state)
{
    (void)state;
    char *dir = temp_dir_new();
    bool found = enter_comma_locale(dir);
    char comma[8];
    double value = 0;
    snprintf(comma, sizeof comma, "%.1f", 1.5);
    qn_buf text = QN_BUF_INIT;
    qn_json_writer w;
    qn_json_write_begin(&w, &text);
    qn_json_write_double(&w, 1234567.125e-30);
    bool read = qn_json_double(QN_STR("1234567890123456.75"), &value);
    setlocale(LC_NUMERIC, "C");
    unsetenv("LOCPATH");
    temp_dir_remove(dir);
    assert_true(read);
    assert_true(value == 1234567890123456.75);
    check_str(qn_buf_str(&text), "1.234567125e-24");
    qn_buf_free(&text);
    if (!found)
        skip(); /* no such locale here: the lines above prove less */
    assert_string_equal(comma, "1,5");
}

/* ---- tree ---- */

static void test_a_tree_has_types_texts_and_offsets(void **state)
{
    (void)state;
    const char *source =
        "{\"s\": \"a\\u00e9\", \"n\": -1.50e1, \"t\": true, "
        "\"f\": false, \"z\": null, \"a\": [1, [2]], \"o\": {}}";
    qn_json_doc *doc = parse_ok(source);
    const qn_json *root = qn_json_root(doc);
    assert_int_equal(root->type, QN_JSON_T_OBJECT);
    assert_int_equal(root->count, 7);
    check_str(root->keys[0], "s");
    check_str(root->keys[6], "o");
    qn_str text;
    int64_t number;
    double real;
    bool flag;
    assert_true(qn_json_as_str(qn_json_get(root, "s"), &text));
    check_str(text, "a\xc3\xa9");
    check_str(qn_json_get(root, "n")->text, "-1.50e1");
    assert_true(qn_json_as_double(qn_json_get(root, "n"), &real));
    assert_true(real == -15);
    assert_false(qn_json_as_int(qn_json_get(root, "n"), &number));
    assert_true(qn_json_as_bool(qn_json_get(root, "t"), &flag) && flag);
    assert_true(qn_json_as_bool(qn_json_get(root, "f"), &flag) && !flag);
    assert_int_equal(qn_json_get(root, "z")->type, QN_JSON_T_NULL);
    const qn_json *array = qn_json_get(root, "a");
    assert_true(qn_json_as_int(qn_json_at(array, 0), &number) && number == 1);
    assert_true(qn_json_as_int(qn_json_at(qn_json_at(array, 1), 0), &number) &&
                number == 2);
    assert_int_equal(qn_json_get(root, "s")->offset, 6);
    assert_int_equal(array->offset, strstr(source, "[1,") - source);
    /* Questions about what is not there, or is something else, are no
     * crashes. */
    assert_null(qn_json_get(root, "missing"));
    assert_null(qn_json_get(NULL, "a"));
    assert_null(qn_json_get(array, "a"));
    assert_null(qn_json_get(qn_json_get(root, "o"), "a"));
    assert_null(qn_json_at(array, 2));
    assert_null(qn_json_at(root, 0));
    assert_null(qn_json_at(NULL, 0));
    assert_false(qn_json_as_str(array, &text));
    assert_false(qn_json_as_str(NULL, &text));
    assert_false(qn_json_as_int(NULL, &number));
    assert_false(qn_json_as_double(root, &real));
    assert_false(qn_json_as_bool(NULL, &flag));
    assert_string_equal(qn_json_type_name(QN_JSON_T_OBJECT), "object");
    qn_json_doc_free(doc);
    qn_json_doc_free(NULL);
}

/* An object of n keys; `again` >= 0 repeats that one at the end. */
static void object_text(qn_buf *out, int n, int again)
{
    qn_buf_add_char(out, '{');
    for (int i = 0; i < n; i++)
        qn_buf_printf(out, "%s\"key%d\":%d", i ? "," : "", i, i);
    if (again >= 0)
        qn_buf_printf(out, ",\"key%d\":-1", again);
    qn_buf_add_char(out, '}');
}

static void test_every_key_of_an_object_of_any_size_is_found(void **state)
{
    (void)state;
    const int sizes[] = {1, 2, 15, 16, 17, 18, 31, 32, 33, 1000};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        qn_buf text = QN_BUF_INIT;
        object_text(&text, sizes[s], -1);
        qn_json_doc *doc = parse_ok(text.data);
        const qn_json *root = qn_json_root(doc);
        assert_int_equal(root->count, sizes[s]);
        for (int i = 0; i < sizes[s]; i++) {
            char key[32];
            int64_t value;
            snprintf(key, sizeof key, "key%d", i);
            assert_true(qn_json_as_int(qn_json_get(root, key), &value));
            assert_int_equal(value, i);
        }
        assert_null(qn_json_get(root, "key"));
        assert_null(qn_json_get(root, ""));
        qn_json_doc_free(doc);
        qn_buf_free(&text);
    }
}

static void test_a_repeated_key_is_refused_or_replaced(void **state)
{
    (void)state;
    const int sizes[] = {1, 2, 16, 17, 40, 5000};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        int n = sizes[s], again = n / 2;
        qn_buf text = QN_BUF_INIT;
        char key[32], message[64];
        object_text(&text, n, again);
        snprintf(key, sizeof key, "key%d", again);
        qn_json_doc *doc = NULL;
        qn_status status = parse(&doc, qn_buf_str(&text), 0);
        snprintf(message, sizeof message, "JSON byte %zu: expected distinct",
                 text.size - strlen(key) - 6);
        check_error(status, QN_E_FORMAT, message);
        check_error(status, QN_E_FORMAT, key);
        status = parse(&doc, qn_buf_str(&text), QN_JSON_ALLOW_DUPLICATE_KEYS);
        check_status(status, QN_OK);
        const qn_json *root = qn_json_root(doc);
        int64_t value = 0;
        assert_int_equal(root->count, n);
        check_str(root->keys[again], key);
        assert_true(qn_json_as_int(qn_json_get(root, key), &value));
        assert_int_equal(value, -1);
        qn_json_doc_free(doc);
        qn_buf_free(&text);
    }
    /* Keys that differ only before their escapes are read are the same. */
    qn_json_doc *doc = NULL;
    check_status(parse(&doc, QN_STR("{\"a\":1,\"\\u0061\":2}"), 0),
                 QN_E_FORMAT);
    /* The same key in another object is not. */
    check_status(parse(&doc, QN_STR("{\"a\":{\"a\":1}}"), 0), QN_OK);
    qn_json_doc_free(doc);
}

static const char sample[] =
    "{\"model\": {\"vocab\": {\"a\": 0, \"\\u0120b\": 1}, \"merges\": "
    "[[\"a\", \"b\"], \"c d\"]},\n \"x\": [1.5e3, -2, true, false, null, "
    "\"\xe2\x82\xac \\ud83d\\ude00\"],\t\"empty\": [{}, []]}";

static void test_values_of_a_document_can_be_counted(void **state)
{
    (void)state;
    const char *text = "{\"a\": [1, null], \"b\": \"\"}"; /* 5 of them */
    for (size_t most = 0; most < 8; most++) {
        qn_json_doc *doc = NULL;
        qn_status status =
            qn_json_parse_limited(&doc, qn_str_of(text), 0, most);
        check_status(status, most < 5 ? QN_E_FORMAT : QN_OK);
        if (most == 4)
            assert_non_null(
                strstr(qn_error_text(), "byte 22: expected at most 4 values"));
        qn_json_doc_free(doc);
    }
}

static void test_numbers_can_be_held_to_their_range(void **state)
{
    (void)state;
    const struct {
        const char *text;
        bool fits;
    } rows[] = {
        {"9223372036854775807", true},
        {"-9223372036854775808", true},
        {"9223372036854775808", false},
        {"-9223372036854775809", false},
        {"9223372036854775808.0", true},
        {"1e308", true},
        {"1E309", false},
        {"-1e999999999999", false},
        {"1e-999999999999", true},
        {"[0, -0, 1e400]", false},
        {"{\"a\": 123456789012345678901234567890}", false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        qn_json_doc *doc = NULL;
        qn_str text = qn_str_of(rows[i].text);
        check_status(qn_json_parse(&doc, text, QN_JSON_NUMBERS_FIT),
                     rows[i].fits ? QN_OK : QN_E_FORMAT);
        qn_json_doc_free(doc);
        doc = NULL;
        check_status(qn_json_parse(&doc, text, 0), QN_OK);
        qn_json_doc_free(doc);
    }
}

static void test_every_prefix_of_a_document_is_refused(void **state)
{
    (void)state;
    qn_json_doc *doc = NULL;
    for (size_t size = 0; size < sizeof sample - 1; size++) {
        check_status(parse(&doc, (qn_str){sample, size}, 0), QN_E_FORMAT);
        assert_null(doc);
    }
    check_status(parse(&doc, ((qn_str){sample, sizeof sample - 1}), 0), QN_OK);
    qn_json_doc_free(doc);
}

static void test_flipped_bytes_are_read_or_refused(void **state)
{
    (void)state;
    char text[sizeof sample];
    memcpy(text, sample, sizeof text);
    for (size_t i = 0; i + 1 < sizeof text; i++) {
        for (int byte = 0; byte < 256; byte++) {
            qn_json_doc *doc = NULL;
            text[i] = (char)byte;
            qn_str whole = {text, sizeof text - 1};
            qn_status status = parse(&doc, whole, 0);
            if (status) {
                check_status(status, QN_E_FORMAT);
                assert_null(doc);
            } else {
                assert_true(qn_utf8_valid(whole, NULL));
            }
            qn_json_doc_free(doc);
        }
        text[i] = sample[i];
    }
}

static qn_status parse_and_write(void)
{
    qn_json_doc *doc = NULL;
    qn_buf text = QN_BUF_INIT, out = QN_BUF_INIT;
    object_text(&text, 40, -1);
    qn_buf_printf(&text, "%1000s", ""); /* longer than the first storage */
    qn_status status = qn_buf_status(&text);
    if (!status)
        status = qn_json_parse(&doc, qn_buf_str(&text), 0);
    qn_json_doc_free(doc);
    doc = NULL;
    if (!status)
        status = qn_json_parse(&doc, ((qn_str){sample, sizeof sample - 1}), 0);
    if (!status) {
        qn_json_writer w;
        qn_json_write_begin(&w, &out);
        qn_json_write_value(&w, qn_json_root(doc));
        status = qn_buf_status(&out);
    }
    qn_json_doc_free(doc);
    qn_buf_free(&text);
    qn_buf_free(&out);
    return status;
}

static void test_each_allocation_may_fail(void **state)
{
    (void)state;
    each_alloc_may_fail(parse_and_write);
}

/* ---- trees by hand ---- */

static void check_written(const qn_json *value, const char *expected)
{
    qn_buf out = QN_BUF_INIT;
    qn_json_writer w;
    qn_json_write_begin(&w, &out);
    qn_json_write_value(&w, value);
    check_status(qn_buf_status(&out), QN_OK);
    check_str(qn_buf_str(&out), expected);
    qn_buf_free(&out);
}

static void test_trees_are_built_by_hand(void **state)
{
    (void)state;
    qn_json_doc *doc = qn_json_doc_new();
    assert_int_equal(qn_json_root(doc)->type, QN_JSON_T_NULL);
    qn_json *root = qn_json_new_object(doc), *list = qn_json_new_array(doc);
    for (int i = 0; i < 6; i++)
        check_status(qn_json_push(doc, list, qn_json_new_int(doc, i)), QN_OK);
    qn_json_push(doc, list, qn_json_new_double(doc, 0.5));
    qn_json_push(doc, list, qn_json_new_double(doc, INFINITY));
    qn_json_push(doc, list, qn_json_new_bool(doc, true));
    qn_json_push(doc, list, qn_json_new_null(doc));
    qn_json_push(doc, list, qn_json_new_str(doc, QN_STR("x\"y")));
    check_status(qn_json_set(doc, root, QN_STR("list"), list), QN_OK);
    qn_json_set(doc, root, QN_STR("n"), qn_json_new_int(doc, 1));
    qn_json_set(doc, root, QN_STR("n"), qn_json_new_int(doc, INT64_MIN));
    qn_json_doc_set_root(doc, root);
    check_written(qn_json_root(doc),
                  "{\"list\":[0,1,2,3,4,5,0.5,null,true,null,\"x\\\"y\"],"
                  "\"n\":-9223372036854775808}");
    qn_json_doc_free(doc);
}

static void test_large_objects_by_hand_find_their_keys(void **state)
{
    (void)state;
    qn_json_doc *doc = qn_json_doc_new();
    qn_json *root = qn_json_new_object(doc);
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 300; i++) {
            char key[16];
            int size = snprintf(key, sizeof key, "k%d", i);
            check_status(qn_json_set(doc, root, (qn_str){key, (size_t)size},
                                     qn_json_new_int(doc, i + round)),
                         QN_OK);
        }
    }
    assert_int_equal(root->count, 300);
    for (int i = 0; i < 300; i++) {
        char key[16];
        int64_t value = 0;
        snprintf(key, sizeof key, "k%d", i);
        assert_true(qn_json_as_int(qn_json_get(root, key), &value));
        assert_int_equal(value, i + 1);
    }
    qn_json_doc_free(doc);
}

/* A copy and its original share storage; appending to one must not show in,
 * or overwrite, the other. */
static void test_copies_do_not_write_into_each_other(void **state)
{
    (void)state;
    qn_json_doc *doc = qn_json_doc_new();
    qn_json *outer = qn_json_new_array(doc), *array = qn_json_new_array(doc);
    qn_json *object = qn_json_new_object(doc);
    qn_json_push(doc, array, qn_json_new_int(doc, 1));
    qn_json_set(doc, object, QN_STR("a"), qn_json_new_int(doc, 1));
    qn_json_push(doc, outer, array);
    qn_json_push(doc, outer, object);
    qn_json_push(doc, array, qn_json_new_int(doc, 2));
    qn_json_push(doc, &outer->items[0], qn_json_new_int(doc, 3));
    for (int i = 0; i < 30; i++) {
        char key[16];
        int size = snprintf(key, sizeof key, "k%d", i);
        qn_json_set(doc, object, (qn_str){key, (size_t)size},
                    qn_json_new_int(doc, i));
    }
    assert_null(qn_json_get(&outer->items[1], "k0"));
    qn_json copy = *object;
    qn_json_set(doc, object, QN_STR("late"), qn_json_new_int(doc, 7));
    assert_null(qn_json_get(&copy, "late"));
    qn_json_set(doc, &copy, QN_STR("late"), qn_json_new_int(doc, 8));
    int64_t value;
    assert_true(qn_json_as_int(qn_json_get(object, "late"), &value));
    assert_int_equal(value, 7);
    assert_true(qn_json_as_int(qn_json_get(&copy, "late"), &value));
    assert_int_equal(value, 8);
    check_written(array, "[1,2]");
    check_written(outer, "[[1,3],{\"a\":1}]");
    /* Even into itself. */
    qn_json_push(doc, array, array);
    check_written(array, "[1,2,[1,2]]");
    qn_json_doc_free(doc);
}

static void test_a_missing_value_is_out_of_memory(void **state)
{
    (void)state;
    qn_json_doc *doc = qn_json_doc_new();
    qn_json *array = qn_json_new_array(doc);
    check_status(qn_json_push(doc, array, NULL), QN_E_NOMEM);
    check_status(qn_json_push(doc, NULL, array), QN_E_NOMEM);
    check_status(qn_json_set(doc, NULL, QN_STR("a"), array), QN_E_NOMEM);
    qn_json_doc_free(doc);
}

static void test_trees_deeper_than_any_parsed_one_are_written(void **state)
{
    (void)state;
    enum { DEPTH = 200000 };
    qn_json_doc *doc = qn_json_doc_new();
    qn_json *inner = qn_json_new_array(doc);
    for (int i = 1; i < DEPTH; i++) {
        qn_json *outer = qn_json_new_array(doc);
        check_status(qn_json_push(doc, outer, inner), QN_OK);
        inner = outer;
    }
    qn_buf out = QN_BUF_INIT;
    qn_json_writer w;
    qn_json_write_begin(&w, &out);
    qn_json_write_value(&w, inner);
    assert_int_equal(out.size, 2 * DEPTH);
    qn_buf_free(&out);
    qn_json_doc_free(doc);
}

static qn_status build_by_hand(void)
{
    qn_json_doc *doc = qn_json_doc_new();
    if (!doc)
        return QN_E_NOMEM;
    qn_json *root = qn_json_new_object(doc);
    qn_status status = root ? QN_OK : QN_E_NOMEM;
    for (int i = 0; i < 50 && !status; i++) {
        char key[16];
        int size = snprintf(key, sizeof key, "k%d", i);
        qn_json *array = qn_json_new_array(doc);
        status = qn_json_push(doc, array, qn_json_new_int(doc, i));
        if (!status)
            status = qn_json_set(doc, root, (qn_str){key, (size_t)size}, array);
    }
    qn_json_doc_free(doc);
    return status;
}

static void test_each_allocation_of_building_may_fail(void **state)
{
    (void)state;
    each_alloc_may_fail(build_by_hand);
}

/* ---- writer ---- */

static void test_the_writer_places_commas(void **state)
{
    (void)state;
    qn_buf out = QN_BUF_INIT;
    qn_json_writer w;
    qn_json_write_begin(&w, &out);
    qn_json_write_object(&w);
    qn_json_write_key(&w, "a");
    qn_json_write_array(&w);
    qn_json_write_array(&w);
    qn_json_write_array_end(&w);
    qn_json_write_int(&w, -1);
    qn_json_write_uint(&w, UINT64_MAX);
    qn_json_write_array_end(&w);
    qn_json_write_key(&w, "b\n");
    qn_json_write_text(&w, "t");
    qn_json_write_key(&w, "c");
    qn_json_write_text(&w, NULL);
    qn_json_write_key(&w, "d");
    qn_json_write_object(&w);
    qn_json_write_object_end(&w);
    qn_json_write_key(&w, "e");
    qn_json_write_bool(&w, false);
    qn_json_write_object_end(&w);
    check_str(qn_buf_str(&out),
              "{\"a\":[[],-1,18446744073709551615],\"b\\n\":\"t\",\"c\":null,"
              "\"d\":{},\"e\":false}");
    qn_buf_free(&out);
}

static void test_strings_are_quoted_and_read_back(void **state)
{
    (void)state;
    qn_buf out = QN_BUF_INIT;
    qn_json_quote(&out, QN_STR("\"\\/\b\f\n\r\t\x01\x0b\x1f\x7f\0z"));
    check_str(qn_buf_str(&out),
              "\"\\\"\\\\/\\b\\f\\n\\r\\t\\u0001\\u000b\\u001f\x7f\\u0000z\"");
    qn_buf_clear(&out);
    /* One replacement for each maximal ill-formed piece. */
    qn_json_quote(&out, QN_STR("a\xff\xe2\x82z\xe2\x82\xac\xed\xa0\x80"));
    check_str(qn_buf_str(&out), "\"a\xef\xbf\xbd\xef\xbf\xbdz\xe2\x82\xac"
                                "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"");
    /* Every valid string comes back as it was. */
    for (uint32_t code = 0; code < 0x11000; code += code < 0x100 ? 1 : 37) {
        char bytes[16] = "xxxxxxx";
        size_t size = 7 + (size_t)qn_utf8_encode(code, bytes + 7);
        qn_buf_clear(&out);
        qn_json_quote(&out, (qn_str){bytes, size});
        qn_json_doc *doc = NULL;
        check_status(parse(&doc, qn_buf_str(&out), 0), QN_OK);
        qn_str back = qn_json_root(doc)->text;
        assert_int_equal(back.size, size);
        assert_memory_equal(back.data, bytes, size);
        qn_json_doc_free(doc);
    }
    qn_buf_free(&out);
}

static void check_double(double value, const char *expected)
{
    qn_buf out = QN_BUF_INIT;
    qn_json_writer w;
    qn_json_write_begin(&w, &out);
    qn_json_write_double(&w, value);
    if (expected)
        check_str(qn_buf_str(&out), expected);
    if (isfinite(value)) {
        double back = 0;
        qn_json_doc *doc = parse_ok(out.data);
        assert_true(qn_json_as_double(qn_json_root(doc), &back));
        assert_memory_equal(&back, &value, sizeof back);
        qn_json_doc_free(doc);
    }
    qn_buf_free(&out);
}

static void test_doubles_are_written_short_and_read_back_equal(void **state)
{
    (void)state;
    check_double(0.1, "0.1");
    check_double(1, "1");
    check_double(-0.0, "-0");
    check_double(1e21, "1e+21");
    check_double(0.1 + 0.2, "0.30000000000000004");
    check_double(1.0 / 3, "0.3333333333333333");
    check_double(5e-324, "5e-324");
    check_double(DBL_MAX, "1.7976931348623157e+308");
    check_double(NAN, "null");
    check_double(-INFINITY, "null");
    uint64_t bits = 88172645463325252u;
    for (int i = 0; i < 20000; i++) {
        /* Xorshift: any bit pattern that is a number. */
        bits ^= bits << 13;
        bits ^= bits >> 7;
        bits ^= bits << 17;
        double value;
        memcpy(&value, &bits, sizeof value);
        if (isfinite(value))
            check_double(value, NULL);
    }
}

static void test_a_written_tree_keeps_number_spellings(void **state)
{
    (void)state;
    const char *text = "[1.0,1e2,-0,100000000000000000000,{\"a\":0.10}]";
    qn_json_doc *doc = parse_ok(text);
    check_written(qn_json_root(doc), text);
    qn_json_doc_free(doc);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_documents_of_the_grammar_are_accepted),
        cmocka_unit_test(test_anything_else_is_refused_at_its_byte),
        cmocka_unit_test(test_the_message_says_expected_and_found),
        cmocka_unit_test(test_a_bom_is_an_option),
        cmocka_unit_test(test_lone_surrogates_are_an_option),
        cmocka_unit_test(test_nesting_is_bounded),
        cmocka_unit_test(test_strings_of_every_length_are_read_whole),
        cmocka_unit_test(test_events_come_in_order_with_text_and_offsets),
        cmocka_unit_test(test_a_reader_keeps_its_error),
        cmocka_unit_test(test_skip_ends_after_the_container),
        cmocka_unit_test(test_a_depth_limit_of_the_caller_holds),
        cmocka_unit_test(test_integers_that_fit_are_integers),
        cmocka_unit_test(test_doubles_are_the_nearest),
        cmocka_unit_test(test_long_spellings_are_read_whole),
        cmocka_unit_test(test_numbers_do_not_follow_the_locale),
        cmocka_unit_test(test_a_tree_has_types_texts_and_offsets),
        cmocka_unit_test(test_every_key_of_an_object_of_any_size_is_found),
        cmocka_unit_test(test_a_repeated_key_is_refused_or_replaced),
        cmocka_unit_test(test_values_of_a_document_can_be_counted),
        cmocka_unit_test(test_numbers_can_be_held_to_their_range),
        cmocka_unit_test(test_every_prefix_of_a_document_is_refused),
        cmocka_unit_test(test_flipped_bytes_are_read_or_refused),
        cmocka_unit_test(test_each_allocation_may_fail),
        cmocka_unit_test(test_trees_are_built_by_hand),
        cmocka_unit_test(test_large_objects_by_hand_find_their_keys),
        cmocka_unit_test(test_copies_do_not_write_into_each_other),
        cmocka_unit_test(test_a_missing_value_is_out_of_memory),
        cmocka_unit_test(test_trees_deeper_than_any_parsed_one_are_written),
        cmocka_unit_test(test_each_allocation_of_building_may_fail),
        cmocka_unit_test(test_the_writer_places_commas),
        cmocka_unit_test(test_strings_are_quoted_and_read_back),
        cmocka_unit_test(test_doubles_are_written_short_and_read_back_equal),
        cmocka_unit_test(test_a_written_tree_keeps_number_spellings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
