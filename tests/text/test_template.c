/* Chat templates: the language against Jinja2's own results, the cases of
 * public bug reports, taint, and templates that mean harm. */
#include "support/qn_test.h"

#include "text/template.h"

#include <pthread.h>
#include <time.h>

/* ---- helpers ---- */

typedef struct rendering {
    qn_status status;
    bool parsed; /* the error, if any, came from rendering */
    qn_buf text, taint;
} rendering;

static void rendering_free(rendering *r)
{
    qn_buf_free(&r->text);
    qn_buf_free(&r->taint);
}

/* Renders with a tree of variables; `tainted` names those variables. */
static rendering render_tree(qn_str source, const qn_json *vars,
                             const char *const *tainted, size_t count)
{
    rendering r = {.parsed = false};
    uint8_t *copy = exact_copy(source.data, source.size);
    qn_template *tmpl = NULL;
    r.status = qn_template_parse(&tmpl, (qn_str){(char *)copy, source.size});
    free(copy); /* the template has its own */
    if (r.status)
        return r;
    r.parsed = true;
    r.status =
        qn_template_render(tmpl, &r.text, &r.taint, vars, tainted, count);
    qn_template_free(tmpl);
    return r;
}

/* The same with the variables as JSON. */
static rendering render(const char *source, const char *vars)
{
    static const char *const tainted[] = {"messages", "t"};
    qn_json_doc *doc = NULL;
    check_status(qn_json_parse(&doc, qn_str_of(vars), 0), QN_OK);
    rendering r = render_tree(qn_str_of(source), qn_json_root(doc), tainted, 2);
    qn_json_doc_free(doc);
    return r;
}

static void check_text(const char *source, const char *vars,
                       const char *expected)
{
    rendering r = render(source, vars);
    check_status(r.status, QN_OK);
    check_str(qn_buf_str(&r.text), expected);
    rendering_free(&r);
}

static void check_fails(const char *source, const char *vars, qn_status status,
                        const char *part)
{
    rendering r = render(source, vars);
    check_error(r.status, status, part);
    assert_int_equal(r.text.size, 0);
    rendering_free(&r);
}

/* `expected` has a '#' under each tainted byte and '.' under the others. */
static void check_taint(const char *source, const char *vars,
                        const char *expected_text, const char *expected)
{
    rendering r = render(source, vars);
    check_status(r.status, QN_OK);
    check_str(qn_buf_str(&r.text), expected_text);
    assert_int_equal(strlen(expected), r.text.size);
    char *found = malloc(r.text.size + 1);
    assert_non_null(found);
    for (size_t i = 0; i < r.text.size; i++)
        found[i] = (uint8_t)r.taint.data[i / 8] >> i % 8 & 1 ? '#' : '.';
    found[r.text.size] = '\0';
    assert_string_equal(found, expected);
    free(found);
    rendering_free(&r);
}

/* Calls `each` with every line of a .jsonl file of tests/vectors. */
static size_t each_line(const char *name, void (*each)(const qn_json *line))
{
    char *path = qn_path_join(QN_TEST_VECTORS, name), *text = NULL;
    size_t size, count = 0;
    assert_non_null(path);
    check_status(qn_file_read(&text, &size, path, 64 << 20), QN_OK);
    for (char *at = text; at < text + size; count++) {
        char *end = memchr(at, '\n', (size_t)(text + size - at));
        if (!end)
            end = text + size;
        qn_json_doc *doc = NULL;
        check_status(qn_json_parse(&doc, (qn_str){at, (size_t)(end - at)}, 0),
                     QN_OK);
        each(qn_json_root(doc));
        qn_json_doc_free(doc);
        at = end + 1;
    }
    qn_free(text);
    qn_free(path);
    return count;
}

static qn_str member(const qn_json *object, const char *key)
{
    qn_str text = {NULL, 0};
    qn_json_as_str(qn_json_get(object, key), &text);
    return text;
}

static bool is_true(const qn_json *object, const char *key)
{
    bool value = false;
    return qn_json_as_bool(qn_json_get(object, key), &value) && value;
}

static bool contains(qn_str text, qn_str part)
{
    return !part.size ||
           (text.size && memmem(text.data, text.size, part.data, part.size));
}

/* ---- against Jinja2 ---- */

/* A fault of the template or its input, not of the engine. */
static bool is_template_error(qn_status status)
{
    return status == QN_E_ARG || status == QN_E_FORMAT ||
           status == QN_E_UNSUPPORTED;
}

static void check_jinja_line(const qn_json *line)
{
    qn_str source = member(line, "template"), text = member(line, "text");
    rendering r = render_tree(source, qn_json_get(line, "vars"), NULL, 0);
    qn_str found = qn_buf_str(&r.text);
    bool as_expected;
    if (qn_json_get(line, "error")) {
        as_expected = is_template_error(r.status) && !r.text.size;
        if (qn_json_get(line, "differs"))
            as_expected &=
                contains(qn_str_of(qn_error_text()), member(line, "error"));
    } else {
        as_expected = r.status == QN_OK && qn_str_eq(found, text);
    }
    if (!as_expected)
        fail_msg("template %.*s\nexpected \"%.*s\"\nfound %s \"%.*s\" %s",
                 (int)source.size, source.data, (int)text.size, text.data,
                 qn_status_name(r.status), (int)found.size, found.data,
                 r.status ? qn_error_text() : "");
    rendering_free(&r);
}

static void test_language_is_that_of_jinja2(void **state)
{
    (void)state;
    assert_true(each_line("text/jinja.jsonl", check_jinja_line) > 600);
}

/* ---- templates in the style of the model families ---- */

static qn_json_doc *chat_sets;
static size_t wrong_renderings;
static size_t attacks; /* injected texts that were found, all tainted */

/* Text that a message smuggles in is marked wherever it comes out whole. */
static void check_attack_is_tainted(const rendering *r)
{
    static const char attack[] = "ATTACK<|im_end|>";
    const size_t size = sizeof attack - 1;
    qn_str text = qn_buf_str(&r->text);
    for (size_t i = 0; i + size <= text.size; i++) {
        if (memcmp(text.data + i, attack, size) != 0)
            continue;
        for (size_t k = i; k < i + size; k++)
            assert_true((uint8_t)r->taint.data[k / 8] >> k % 8 & 1);
        attacks++;
    }
}

static void check_chat_line(const qn_json *line)
{
    qn_str name = member(line, "template"), set = member(line, "set");
    qn_buf path = QN_BUF_INIT, vars = QN_BUF_INIT;
    qn_json_writer w;
    char *source = NULL;
    size_t size;
    qn_buf_printf(&path, QN_TEST_VECTORS "/text/chat/%.*s.jinja",
                  (int)name.size, name.data);
    check_status(qn_file_read(&source, &size, path.data, 1 << 20), QN_OK);
    qn_json_write_begin(&w, &vars);
    qn_json_write_value(&w, qn_json_get_str(qn_json_root(chat_sets), set));
    rendering r = render(source, vars.data);
    qn_str wanted, error;
    bool same = false;
    if (qn_json_as_str(qn_json_get(line, "text"), &wanted)) {
        same = !r.status && qn_str_eq(qn_buf_str(&r.text), wanted);
        check_attack_is_tainted(&r);
    } else {
        error = member(line, "error");
        same = is_template_error(r.status) &&
               (!is_true(line, "own") ||
                contains(qn_str_of(qn_error_text()), error));
    }
    if (!same) {
        print_error("%.*s, %.*s: %s\n%.*s\n", (int)name.size, name.data,
                    (int)set.size, set.data, r.status ? qn_error_text() : "",
                    (int)r.text.size, r.text.size ? r.text.data : "");
        wrong_renderings++;
    }
    rendering_free(&r);
    qn_free(source);
    qn_buf_free(&path);
    qn_buf_free(&vars);
}

static void test_chat_templates_give_what_jinja2_gives(void **state)
{
    (void)state;
    char *text = NULL;
    size_t size;
    check_status(qn_file_read(&text, &size,
                              QN_TEST_VECTORS "/text/chat/sets.json", 1 << 20),
                 QN_OK);
    check_status(qn_json_parse(&chat_sets, (qn_str){text, size}, 0), QN_OK);
    attacks = 0;
    assert_true(each_line("text/chat.jsonl", check_chat_line) >= 40 * 10);
    assert_true(attacks >= 60);
    assert_int_equal(wrong_renderings, 0);
    qn_json_doc_free(chat_sets);
    qn_free(text);
}

/* ---- the cases of bug reports ---- */

static qn_status add_var(qn_json_doc *doc, qn_json *vars, const char *key,
                         const qn_json *value)
{
    return qn_json_set(doc, vars, qn_str_of(key), value);
}

static void check_expectation(const qn_json *expect, const rendering *r)
{
    const qn_json *any = qn_json_get(expect, "any_of");
    qn_str text = qn_buf_str(&r->text), wanted;
    if (any) {
        bool one = false;
        for (uint32_t i = 0; i < any->count; i++) {
            const qn_json *e = qn_json_at(any, i);
            one |= is_true(e, "error")
                       ? is_template_error(r->status)
                       : !r->status && qn_str_eq(text, member(e, "text"));
        }
        assert_true(one);
    } else if (is_true(expect, "error")) {
        assert_true(is_template_error(r->status));
        assert_true(contains(qn_str_of(qn_error_text()),
                             member(expect, "message_contains")));
    } else if (qn_json_get(expect, "text_is_today")) {
        char today[100], format[100];
        time_t now = time(NULL);
        struct tm local;
        wanted = member(expect, "text_is_today");
        snprintf(format, sizeof format, "%.*s", (int)wanted.size, wanted.data);
        strftime(today, sizeof today, format, localtime_r(&now, &local));
        check_status(r->status, QN_OK);
        check_str(text, today);
    } else {
        check_status(r->status, QN_OK);
        wanted = member(expect, "text");
        if (!qn_str_eq(text, wanted))
            fail_msg("expected \"%.*s\", found \"%.*s\"", (int)wanted.size,
                     wanted.data, (int)text.size, text.data);
    }
}

static void check_case(const qn_json *line)
{
    const qn_json *input = qn_json_get(line, "input");
    const qn_json *extra = qn_json_get(input, "extra");
    static const char *const names[] = {"messages", "tools",
                                        "add_generation_prompt"};
    qn_json_doc *doc = qn_json_doc_new();
    qn_json *vars = qn_json_new_object(doc);
    for (size_t i = 0; i < 3; i++)
        if (qn_json_get(input, names[i]))
            check_status(
                add_var(doc, vars, names[i], qn_json_get(input, names[i])),
                QN_OK);
    for (uint32_t i = 0; extra && i < extra->count; i++)
        check_status(qn_json_set(doc, vars, extra->keys[i], &extra->items[i]),
                     QN_OK);
    rendering r = render_tree(member(input, "template"), vars, names, 2);
    print_message("%.*s\n", (int)member(line, "id").size,
                  member(line, "id").data);
    check_expectation(qn_json_get(line, "expect"), &r);
    rendering_free(&r);
    qn_json_doc_free(doc);
}

static void test_reported_cases_are_rendered_as_expected(void **state)
{
    (void)state;
    assert_true(each_line("cases/template.jsonl", check_case) >= 20);
}

/* The demo model's template over the prompts of the goldens file. */
static void test_goldens_are_rendered_exactly(void **state)
{
    (void)state;
    char *source = NULL, *goldens = NULL;
    size_t source_size, goldens_size;
    qn_json_doc *doc = NULL;
    check_status(qn_file_read(&source, &source_size,
                              QN_TEST_VECTORS "/text/smollm2.jinja", 1 << 20),
                 QN_OK);
    check_status(qn_file_read(&goldens, &goldens_size,
                              QN_TEST_VECTORS "/goldens/smollm2_greedy.json",
                              1 << 24),
                 QN_OK);
    check_status(qn_json_parse(&doc, (qn_str){goldens, goldens_size}, 0),
                 QN_OK);
    const qn_json *cases = qn_json_get(qn_json_root(doc), "cases");
    size_t chats = 0;
    for (uint32_t i = 0; i < cases->count; i++) {
        const qn_json *c = qn_json_at(cases, i);
        if (!is_true(c, "chat"))
            continue;
        qn_buf vars = QN_BUF_INIT;
        qn_json_writer w;
        qn_json_write_begin(&w, &vars);
        qn_json_write_object(&w);
        qn_json_write_key(&w, "add_generation_prompt");
        qn_json_write_bool(&w, true);
        qn_json_write_key(&w, "messages");
        qn_json_write_array(&w);
        static const char *const roles[] = {"system", "user"};
        static const char *const keys[] = {"system", "prompt"};
        for (int k = 0; k < 2; k++) {
            if (!member(c, keys[k]).data)
                continue;
            qn_json_write_object(&w);
            qn_json_write_key(&w, "role");
            qn_json_write_text(&w, roles[k]);
            qn_json_write_key(&w, "content");
            qn_json_write_str(&w, member(c, keys[k]));
            qn_json_write_object_end(&w);
        }
        qn_json_write_array_end(&w);
        qn_json_write_object_end(&w);
        qn_json_doc *tree = NULL;
        check_status(qn_json_parse(&tree, qn_buf_str(&vars), 0), QN_OK);
        rendering r = render_tree((qn_str){source, source_size},
                                  qn_json_root(tree), NULL, 0);
        check_status(r.status, QN_OK);
        assert_true(qn_str_eq(qn_buf_str(&r.text), member(c, "rendered")));
        rendering_free(&r);
        qn_json_doc_free(tree);
        qn_buf_free(&vars);
        chats++;
    }
    assert_int_equal(chats, 6);
    qn_json_doc_free(doc);
    qn_free(goldens);
    qn_free(source);
}

/* ---- errors ---- */

static void test_syntax_errors_name_their_line(void **state)
{
    (void)state;
    check_fails("a\nb\n{{ 1 + }}", "{}", QN_E_FORMAT, "an expression");
    assert_string_equal(qn_error_where(), "template line 3");
    check_fails("{% if 1 %}\n\n{{ 2 }}", "{}", QN_E_FORMAT, "endif");
    check_fails("{{ 'abc }}", "{}", QN_E_FORMAT, "string is not closed");
    check_fails("a\n{# b", "{}", QN_E_FORMAT, "comment");
    check_fails("{% for x in y %}{% endif %}", "{}", QN_E_FORMAT, "endif");
    check_fails("\xff", "{}", QN_E_FORMAT, "UTF-8");
}

static void test_what_is_not_implemented_is_refused_by_name(void **state)
{
    (void)state;
    check_fails("\n{% include 'x' %}", "{}", QN_E_UNSUPPORTED, "'include'");
    assert_string_equal(qn_error_where(), "template line 2");
    check_fails("{% do x %}", "{}", QN_E_UNSUPPORTED, "'do'");
    check_fails("{{ x|urlize }}", "{}", QN_E_UNSUPPORTED, "filter 'urlize'");
    check_fails("{{ x is nope }}", "{}", QN_E_UNSUPPORTED, "test 'nope'");
    check_fails("{{ '\\N{DASH}' }}", "{}", QN_E_UNSUPPORTED, "\\N");
    check_fails("{{ 'a'.encode() }}", "{}", QN_E_UNSUPPORTED, "'encode'");
    check_fails("{{ joiner() }}", "{}", QN_E_UNSUPPORTED, "'joiner'");
    check_fails("{{ 9223372036854775807 + 1 }}", "{}", QN_E_UNSUPPORTED,
                "64 bits");
    /* Where a condition decides, only when it is reached. */
    check_text("{% if false %}{{ x|urlize }}{% endif %}ok", "{}", "ok");
    check_fails("{% if true %}{{ x|urlize }}{% endif %}ok", "{}",
                QN_E_UNSUPPORTED, "'urlize'");
}

static void test_errors_of_rendering_have_the_templates_message(void **state)
{
    (void)state;
    check_fails("a\n{{ raise_exception('No \xc3\xa9 here') }}", "{}", QN_E_ARG,
                "No \xc3\xa9 here");
    assert_string_equal(qn_error_text(), "No \xc3\xa9 here");
    assert_string_equal(qn_error_where(), "template line 2");
    check_fails("{{ x.y.z }}", "{\"x\": {}}", QN_E_ARG,
                "'dict object' has no attribute 'y'");
    check_fails("{{ 'a' + 1 }}", "{}", QN_E_ARG,
                "can only concatenate str (not \"int\") to str");
    check_fails("{{ x() }}", "{}", QN_E_ARG, "'x' is undefined");
}

static void test_mentions_tells_what_is_read(void **state)
{
    (void)state;
    qn_template *tmpl = NULL;
    check_status(
        qn_template_parse(&tmpl, QN_STR("{% set a = b %}{% for c in d.e %}"
                                        "{{ f is defined }}{% endfor %}"
                                        "{# g #} h {{ 'i' }}")),
        QN_OK);
    assert_true(qn_template_mentions(tmpl, "b"));
    assert_true(qn_template_mentions(tmpl, "d"));
    assert_true(qn_template_mentions(tmpl, "f"));
    assert_false(qn_template_mentions(tmpl, "a"));
    assert_false(qn_template_mentions(tmpl, "c"));
    assert_false(qn_template_mentions(tmpl, "e"));
    assert_false(qn_template_mentions(tmpl, "g"));
    assert_false(qn_template_mentions(tmpl, "h"));
    assert_false(qn_template_mentions(tmpl, "i"));
    assert_false(qn_template_mentions(tmpl, "loop"));
    qn_template_free(tmpl);
}

static void test_output_is_appended(void **state)
{
    (void)state;
    qn_template *tmpl = NULL;
    qn_buf out = QN_BUF_INIT;
    check_status(qn_template_parse(&tmpl, QN_STR("b{{ c }}")), QN_OK);
    qn_buf_add_text(&out, "a");
    /* Without variables at all, and without a bitmap. */
    check_status(qn_template_render(tmpl, &out, NULL, NULL, NULL, 0), QN_OK);
    check_str(qn_buf_str(&out), "ab");
    check_status(qn_template_render(tmpl, &out, NULL, NULL, NULL, 0), QN_OK);
    check_str(qn_buf_str(&out), "abb");
    qn_buf_free(&out);
    qn_template_free(tmpl);
}

/* ---- one template, several threads ---- */

static void *render_often(void *tmpl)
{
    bool good = true;
    for (int i = 0; i < 50 && good; i++) {
        qn_buf out = QN_BUF_INIT;
        good = qn_template_render(tmpl, &out, NULL, NULL, NULL, 0) == QN_OK &&
               qn_str_is(qn_buf_str(&out), "ABC 3 1,2 {'k': [1.5]}");
        qn_buf_free(&out);
    }
    return good ? tmpl : NULL;
}

static void test_threads_may_share_a_template(void **state)
{
    (void)state;
    enum { THREADS = 4 };
    pthread_t threads[THREADS];
    qn_template *tmpl = NULL;
    check_status(qn_template_parse(&tmpl, QN_STR("{% macro m(x) %}{{ x|upper }}"
                                                 "{% endmacro %}{{ m('abc') }} "
                                                 "{{ 'abc'|length }} "
                                                 "{{ [1, 2]|join(',') }} "
                                                 "{{ {'k': [1.5]} }}")),
                 QN_OK);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, render_often, tmpl),
                         0);
    for (int i = 0; i < THREADS; i++) {
        void *result = NULL;
        assert_int_equal(pthread_join(threads[i], &result), 0);
        assert_ptr_equal(result, tmpl);
    }
    qn_template_free(tmpl);
}

/* strftime_now with every directive, beside the C library's. */
static void test_strftime_now_agrees_with_the_library(void **state)
{
    (void)state;
    /* Not a literal: the compiler knows only the directives of ISO C. */
    static const char *const directives[] = {
        "%a", "%A", "%b", "%B",  "%c",  "%C",  "%d",  "%D",  "%e",
        "%F", "%g", "%G", "%h",  "%H",  "%I",  "%j",  "%k",  "%l",
        "%m", "%M", "%n", "%p",  "%P",  "%r",  "%R",  "%t",  "%u",
        "%U", "%V", "%w", "%W",  "%x",  "%y",  "%Y",  "%%",  "%T",
        "%X", "%S", "%s", "%-d", "%_d", "%^a", "%-m", "%0e", "%^B",
    };
    char format[300] = "";
    for (size_t i = 0; i < sizeof directives / sizeof *directives; i++) {
        strcat(format, directives[i]);
        strcat(format, "|");
    }
    char expected[2][600], source[400];
    rendering r;
    /* The second may change between the two clocks; then once more. */
    for (int attempt = 0; attempt < 3; attempt++) {
        time_t now = time(NULL);
        struct tm local;
        strftime(expected[0], sizeof expected[0], format,
                 localtime_r(&now, &local));
        snprintf(source, sizeof source, "{{ strftime_now('%s') }}", format);
        r = render(source, "{}");
        check_status(r.status, QN_OK);
        now = time(NULL);
        strftime(expected[1], sizeof expected[1], format,
                 localtime_r(&now, &local));
        if (!strcmp(expected[0], expected[1]))
            break;
        rendering_free(&r);
    }
    check_str(qn_buf_str(&r.text), expected[0]);
    rendering_free(&r);
    check_text("{{ strftime_now('%Q %') }}", "{}", "%Q %");
    check_text("{{ strftime_now('%f')|length }}", "{}", "6");
}

/* ---- taint ---- */

static void test_taint_marks_what_came_from_tainted_variables(void **state)
{
    (void)state;
    check_taint("<{{ t }}>", "{\"t\": \"ab\"}", "<ab>", ".##.");
    check_taint("<{{ u }}>", "{\"u\": \"ab\"}", "<ab>", "....");
    check_taint("{% for m in messages %}[{{ m.role }}: {{ m['content'] }}]"
                "{% endfor %}",
                "{\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}]}",
                "[user: hi]", ".####..##.");
}

static void test_taint_follows_operators(void **state)
{
    (void)state;
    check_taint("{{ 'a' + t + 'b' }}", "{\"t\": \"xy\"}", "axyb", ".##.");
    check_taint("{{ 'a' ~ t ~ 1 }}", "{\"t\": \"xy\"}", "axy1", ".##.");
    check_taint("{{ (t ~ '-') * 2 }}", "{\"t\": \"xy\"}", "xy-xy-", "##.##.");
    check_taint("{{ ('<' ~ t ~ '>')[1:4] }}", "{\"t\": \"xy\"}", "xy>", "##.");
    check_taint("{{ ('<' ~ t ~ '>')[::-1] }}", "{\"t\": \"xy\"}", ">yx<",
                ".##.");
    check_taint("{{ ('<' ~ t)[1] }}", "{\"t\": \"xy\"}", "x", "#");
    check_taint("{{ '%s|%3s|%d' % (t, t, 5) }}", "{\"t\": \"xy\"}", "xy| xy|5",
                "##..##..");
    check_taint("{{ '{}-{:>3}'.format(t, t) }}", "{\"t\": \"xy\"}", "xy- xy",
                "##..##");
    check_taint("{{ t if true else 'a' }}{{ t or 'b' }}", "{\"t\": \"x\"}",
                "xx", "##");
    check_taint("{% for c in 'a' ~ t %}{{ c }},{% endfor %}", "{\"t\": \"xy\"}",
                "a,x,y,", "..#.#.");
}

static void test_taint_follows_filters_and_methods(void **state)
{
    (void)state;
    const char *vars = "{\"t\": \" xY \"}";
    check_taint("{{ t|trim }}{{ t|upper }}", vars, "xY XY ", "######");
    check_taint("{{ ('a' ~ t)|upper }}", vars, "A XY ", ".####");
    check_taint("{{ 'aXb'|replace('X', t) }}", vars, "a xY b", ".####.");
    check_taint("{{ t|replace('x', '-') }}", vars, " -Y ", "#.##");
    check_taint("{{ [t, 'b']|join('-') }}", vars, " xY -b", "####..");
    check_taint("{{ ['a', 'b']|join(t) }}", vars, "a xY b", ".####.");
    check_taint("{{ t.split()[0] }}{{ t.strip().lower() }}", vars, "xYxy",
                "####");
    check_taint("{{ (t ~ '\\nb')|indent(2) }}", vars, " xY \n  b", "####....");
    check_taint("{{ t|title }}{{ t|capitalize }}", vars, " Xy  xy ",
                "########");
    check_taint("{{ t|string }}{{ t|safe }}{{ t|default('q') }}", vars,
                " xY  xY  xY ", "############");
    check_taint("{{ t|e }}", "{\"t\": \"<\"}", "&lt;", "####");
    check_taint("{{ t|list|join }}{{ t|reverse }}{{ t|first }}",
                "{\"t\": \"xy\"}", "xyyxx", "#####");
    check_taint("{{ t|center(6) }}", "{\"t\": \"xy\"}", "  xy  ", "..##..");
    check_taint("{{ t|upper }}", "{\"t\": \"\\u00df\"}", "SS", "##");
    check_taint("{{ [t]|map('upper')|first }}", "{\"t\": \"x\"}", "X", "#");
}

static void test_taint_follows_json_numbers_and_keys(void **state)
{
    (void)state;
    check_taint("{{ t|tojson }}", "{\"t\": {\"k\": [1, true, \"v\"]}}",
                "{\"k\": [1, true, \"v\"]}", "#####################");
    check_taint("{{ {'k': t}|tojson }}", "{\"t\": \"v\"}", "{\"k\": \"v\"}",
                "......###.");
    check_taint("{{ t|tojson(indent=1) }}", "{\"t\": [1]}", "[\n 1\n]",
                "#..#.#");
    check_taint("{{ t }}", "{\"t\": {\"k\": null}}", "{'k': None}",
                "#.#.#######");
    check_taint("{{ t }}|{{ t + 1 }}|{{ t|int }}", "{\"t\": 7}", "7|8|7",
                "#.#.#");
    check_taint("{{ t|int }}{{ t|float }}", "{\"t\": \"12\"}", "1212.0",
                "######");
    check_taint("{% for k, v in t.items() %}{{ k }}={{ v }}{% endfor %}",
                "{\"t\": {\"a\": \"b\"}}", "a=b", "#.#");
    check_taint("{{ t|length }}{{ t == 'ab' }}", "{\"t\": \"ab\"}", "2True",
                ".....");
}

static void test_taint_goes_through_statements(void **state)
{
    (void)state;
    const char *vars = "{\"t\": \"xy\"}";
    check_taint("{% set a %}<{{ t }}>{% endset %}{{ a }}{{ a }}", vars,
                "<xy><xy>", ".##..##.");
    check_taint("{% set ns = namespace(s='') %}{% for i in [1, 2] %}"
                "{% set ns.s = ns.s ~ i ~ t %}{% endfor %}{{ ns.s }}",
                vars, "1xy2xy", ".##.##");
    check_taint("{% macro m(x) %}({{ x }}){% endmacro %}{{ m(t) }}", vars,
                "(xy)", ".##.");
    check_taint("{% filter upper %}a{{ t }}{% endfilter %}", vars, "AXY",
                ".##");
    check_taint("{% macro m() %}[{{ caller() }}]{% endmacro %}"
                "{% call m() %}{{ t }}!{% endcall %}",
                vars, "[xy!]", ".##..");
}

/* ---- templates that mean harm ---- */

static char *repeated(const char *before, const char *unit, size_t count,
                      const char *after)
{
    qn_buf text = QN_BUF_INIT;
    qn_buf_add_text(&text, before);
    for (size_t i = 0; i < count; i++)
        qn_buf_add_text(&text, unit);
    qn_buf_add_text(&text, after);
    char *taken = qn_buf_take(&text);
    assert_non_null(taken);
    return taken;
}

/* Repeats `open` n times and then `close` n times. */
static void check_nested(const char *open, const char *middle,
                         const char *close, size_t n, qn_status status)
{
    char *front = repeated("", open, n, middle);
    char *source = repeated(front, close, n, "");
    rendering r = render(source, "{}");
    check_status(r.status, status);
    rendering_free(&r);
    free(front);
    free(source);
}

static void test_deep_nesting_is_refused(void **state)
{
    (void)state;
    static const char *const nested[][3] = {
        {"{% if 1 %}", "x", "{% endif %}"},
        {"{% for i in [1] %}", "x", "{% endfor %}"},
        {"{% set x %}", "x", "{% endset %}"},
        {"{% filter upper %}", "x", "{% endfilter %}"},
        {"{% macro m() %}", "x", "{% endmacro %}"},
    };
    for (size_t i = 0; i < sizeof nested / sizeof *nested; i++) {
        check_nested(nested[i][0], nested[i][1], nested[i][2], 60, QN_OK);
        check_nested(nested[i][0], nested[i][1], nested[i][2], 5000,
                     QN_E_FORMAT);
    }
    static const char *const units[] = {"(",    "[",  "{1:", "-",
                                        "not ", "a(", "a[",  "1 if 0 else "};
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        char *source = repeated("{{ ", units[i], 20000, "");
        check_fails(source, "{}", QN_E_FORMAT, "");
        free(source);
    }
    static const char *const chains[] = {".a", "[0]", "()", "|d", " is none"};
    for (size_t i = 0; i < sizeof chains / sizeof *chains; i++) {
        char *source = repeated("{{ a", chains[i], 20000, " }}");
        check_fails(source, "{}", QN_E_FORMAT, "");
        free(source);
    }
}

/* Flat chains are no recursion, however long. */
static void test_long_chains_are_fine(void **state)
{
    (void)state;
    char *source = repeated("{{ 0", " + 1", 5000, " }}");
    check_text(source, "{}", "5000");
    free(source);
    source = repeated("{% set s = ''", " ~ 'a'", 5000, " %}{{ s|length }}");
    check_text(source, "{}", "5000");
    free(source);
    source = repeated("{% if 0 %}a", "{% elif 0 %}b", 5000,
                      "{% else %}c{% endif %}");
    check_text(source, "{}", "c");
    free(source);
}

static void test_endless_work_ends(void **state)
{
    (void)state;
    check_fails("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "{}",
                QN_E_ARG, "inside each other");
    check_fails("{% for a in range(99999) %}{% for b in range(99999) %}"
                "{% endfor %}{% endfor %}",
                "{}", QN_E_ARG, "the template takes more than");
    check_fails("{{ 'a' * 999999999 }}", "{}", QN_E_ARG, "longer than 16 MiB");
    check_fails("{{ [1] * 999999999 }}", "{}", QN_E_ARG, "steps");
    check_fails("{{ '%99999999d' % 1 }}", "{}", QN_E_UNSUPPORTED, "wider");
    check_fails("{{ range(100000000) }}", "{}", QN_E_ARG, "Range too big");
    check_fails("{% set ns = namespace(s='aaaaaaaa') %}"
                "{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}"
                "{% endfor %}",
                "{}", QN_E_ARG, "longer than 16 MiB");
    check_fails("{% set ns = namespace(s='a' * 8000000, n=0) %}"
                "{% for i in range(99) %}{% set ns.s = ns.s|upper %}"
                "{% endfor %}",
                "{}", QN_E_ARG, "the template takes more than");
    check_fails("{% for i in range(99999) %}{{ 'abcdefgh' * 1000 }}"
                "{% endfor %}",
                "{}", QN_E_ARG, "longer than 16 MiB");
    /* Work on long texts is paid by their length. */
    check_fails("{% set s = 'ab' * 8000000 %}{% for i in range(99999) %}"
                "{% if 'c' in s %}{% endif %}{% endfor %}",
                "{}", QN_E_ARG, "steps");
}

static void test_values_nested_too_deep_are_errors(void **state)
{
    (void)state;
    const char *grow = "{% set ns = namespace(l=[]) %}{% for i in range(999) "
                       "%}{% set ns.l = [ns.l] %}{% endfor %}";
    static const char *const uses[] = {
        "{{ ns.l }}",           "{{ ns.l|tojson }}",
        "{{ ns.l == [ns.l] }}", "{{ ns.l < [ns.l] }}",
        "{{ ns.l|string }}",    "{{ ns.l|pprint if false else '%s' % ns.l }}",
    };
    for (size_t i = 0; i < sizeof uses / sizeof *uses; i++) {
        char *source = repeated(grow, uses[i], 1, "");
        check_fails(source, "{}", QN_E_ARG, "nested deeper");
        free(source);
    }
    check_fails("{% set ns = namespace() %}{% set ns.me = ns %}{{ ns }}", "{}",
                QN_E_ARG, "nested deeper");
    check_fails("{% set ns = namespace(t=(1,)) %}{% for i in range(999) %}"
                "{% set ns.t = (ns.t,) %}{% endfor %}{{ {ns.t: 1} }}",
                "{}", QN_E_ARG, "nested deeper");
    check_fails("{% set ns = namespace(g=[1]) %}{% for i in range(999) %}"
                "{% set ns.g = ns.g|map('string') %}{% endfor %}"
                "{{ ns.g|list }}",
                "{}", QN_E_ARG, "filters over each other");
}

static void test_long_templates_are_refused(void **state)
{
    (void)state;
    char *source = repeated("", "0123456789abcdef", 70000, "");
    check_fails(source, "{}", QN_E_UNSUPPORTED, "at most");
    free(source);
}

/* ---- memory ---- */

static qn_status everything_once(void)
{
    static const char source[] =
        "{% macro m(a, b=2) %}{{ a }}{{ b }}{{ caller() if caller }}"
        "{{ varargs }}{{ kwargs }}{% endmacro %}"
        "{% set ns = namespace(x=1) %}{% set s %}a{{ t }}{% endset %}"
        "{% for k, v in t|dictsort if v %}{% set ns.x = ns.x + loop.index %}"
        "{{ k|upper }}{{ v }}{{ loop.nextitem }}{{ loop.length }}{% endfor %}"
        "{% call m(1, 2, 3, c=4) %}{{ [1, 2]|map('string')|join(',') }}"
        "{% endcall %}{{ s[::-1] }}{{ t|tojson(indent=2) }}"
        "{{ 'a b'.split()|sort|unique|list }}{{ {1: 'a', 'b': (2, 3)} }}"
        "{{ '%s-%05.1f' % ('x', 1.5) }}{{ '{:>4}'.format(ns.x) }}"
        "{{ ('<'|e) ~ 12345678901234567890 ~ 0.1 }}{{ range(3)|list }}"
        "{{ strftime_now('%Y')|length }}";
    static const char vars[] =
        "{\"t\": {\"k1\": \"v\", \"k2\": [1, 2.5, null], \"k3\": \"w\"}}";
    static const char *const tainted[] = {"t"};
    qn_template *tmpl = NULL;
    qn_json_doc *doc = NULL;
    qn_buf out = QN_BUF_INIT, taint = QN_BUF_INIT;
    qn_status status = qn_json_parse(&doc, qn_str_of(vars), 0);
    if (!status)
        status = qn_template_parse(&tmpl, qn_str_of(source));
    if (!status)
        status = qn_template_render(tmpl, &out, &taint, qn_json_root(doc),
                                    tainted, 1);
    qn_buf_free(&out);
    qn_buf_free(&taint);
    qn_template_free(tmpl);
    qn_json_doc_free(doc);
    return status;
}

static void test_each_allocation_may_fail(void **state)
{
    (void)state;
    each_alloc_may_fail(everything_once);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_language_is_that_of_jinja2),
        cmocka_unit_test(test_chat_templates_give_what_jinja2_gives),
        cmocka_unit_test(test_reported_cases_are_rendered_as_expected),
        cmocka_unit_test(test_goldens_are_rendered_exactly),
        cmocka_unit_test(test_syntax_errors_name_their_line),
        cmocka_unit_test(test_what_is_not_implemented_is_refused_by_name),
        cmocka_unit_test(test_errors_of_rendering_have_the_templates_message),
        cmocka_unit_test(test_mentions_tells_what_is_read),
        cmocka_unit_test(test_output_is_appended),
        cmocka_unit_test(test_threads_may_share_a_template),
        cmocka_unit_test(test_strftime_now_agrees_with_the_library),
        cmocka_unit_test(test_taint_marks_what_came_from_tainted_variables),
        cmocka_unit_test(test_taint_follows_operators),
        cmocka_unit_test(test_taint_follows_filters_and_methods),
        cmocka_unit_test(test_taint_follows_json_numbers_and_keys),
        cmocka_unit_test(test_taint_goes_through_statements),
        cmocka_unit_test(test_deep_nesting_is_refused),
        cmocka_unit_test(test_long_chains_are_fine),
        cmocka_unit_test(test_endless_work_ends),
        cmocka_unit_test(test_values_nested_too_deep_are_errors),
        cmocka_unit_test(test_long_templates_are_refused),
        cmocka_unit_test(test_each_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
