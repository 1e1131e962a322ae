/* Streams of servers: events however they are cut, and what they say. */
#include "support/qn_test.h"

#include "cli/sse.h"

static bool collect(void *data, qn_str event)
{
    qn_buf *out = data;
    qn_buf_add_str(out, event);
    qn_buf_add_char(out, '|');
    return !qn_str_is(event, "stop");
}

static void check_events(const char *stream, size_t piece, const char *expected)
{
    qn_buf line = QN_BUF_INIT, out = QN_BUF_INIT;
    size_t size = strlen(stream);
    bool more = true;
    for (size_t at = 0; at < size && more; at += piece)
        more = qn_sse_add(&line, stream + at,
                          size - at < piece ? size - at : piece, collect, &out);
    if (more)
        qn_sse_finish(&line, collect, &out);
    check_str(qn_buf_str(&out), expected);
    qn_buf_free(&line);
    qn_buf_free(&out);
}

static void test_events_are_the_same_however_they_are_cut(void **state)
{
    (void)state;
    static const char stream[] = ": ping\r\n\r\ndata: one\r\n\r\nevent: x\n"
                                 "data:two\ndata:\n\ndata:   three";
    for (size_t piece = 1; piece <= sizeof stream; piece++)
        check_events(stream, piece, "one|two|three|");
    check_events("data: a\ndata: stop\ndata: b\n", 3, "a|stop|");
    check_events("data: a\ndata: stop\ndata: b\n", 100, "a|stop|");
}

static void test_events_say_texts_reasons_and_counts(void **state)
{
    (void)state;
    qn_delta d;
    check_status(
        qn_delta_read(&d, QN_STR("{\"choices\":[{\"delta\":{\"content\":\"a\","
                                 "\"reasoning_content\":\"b\"},"
                                 "\"finish_reason\":\"length\"}],"
                                 "\"usage\":{\"completion_tokens\":7}}")),
        QN_OK);
    check_str(d.text, "a");
    check_str(d.thought, "b");
    check_str(d.finish, "length");
    assert_true(d.finished && !d.refused && !d.last);
    assert_int_equal(d.counted, 7);
    qn_json_doc_free(d.doc);
    check_status(qn_delta_read(&d, QN_STR("{\"error\":{\"message\":\"no\"}}")),
                 QN_OK);
    assert_true(d.refused && !d.finished);
    check_str(d.error, "no");
    qn_json_doc_free(d.doc);
    check_status(qn_delta_read(&d, QN_STR("[DONE]")), QN_OK);
    assert_true(d.last && !d.doc);
    check_status(qn_delta_read(&d, QN_STR("[1,null,{}]")), QN_OK);
    assert_true(!d.last && !d.refused && d.counted == -1 && !d.text.size);
    qn_json_doc_free(d.doc);
    check_status(qn_delta_read(&d, QN_STR("{")), QN_E_FORMAT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_events_are_the_same_however_they_are_cut),
        cmocka_unit_test(test_events_say_texts_reasons_and_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
