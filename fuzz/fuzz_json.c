/* fuzz_json.c: the JSON reader, the tree and the writer.
 *
 * Reader and tree must agree on what is JSON, and what the writer makes of a
 * tree must read back and be written the same. */
#include "fuzz.h"

#include "base/json.h"
#include "base/utf8.h"

static char *write_tree(const qn_json_doc *doc, size_t *size)
{
    qn_buf out = QN_BUF_INIT;
    qn_json_writer w;
    qn_json_write_begin(&w, &out);
    qn_json_write_value(&w, qn_json_root(doc));
    FUZZ_CHECK(!qn_buf_status(&out) && w.depth == 0);
    *size = out.size;
    return qn_buf_take(&out);
}

static void check_tree(const qn_json_doc *doc)
{
    size_t size, again_size;
    char *text = write_tree(doc, &size);
    FUZZ_CHECK(qn_utf8_valid((qn_str){text, size}, NULL));
    qn_json_doc *again = NULL;
    FUZZ_CHECK(!qn_json_parse(&again, (qn_str){text, size}, 0));
    char *again_text = write_tree(again, &again_size);
    FUZZ_CHECK(size == again_size && !memcmp(text, again_text, size));
    qn_json_doc_free(again);
    free(text);
    free(again_text);
}

/* Every key finds a value, and numbers are numbers. */
static void walk(const qn_json *value)
{
    double number;
    int64_t integer;
    if (value->type == QN_JSON_T_NUMBER && qn_json_as_int(value, &integer))
        FUZZ_CHECK(qn_json_as_double(value, &number));
    for (uint32_t i = 0; i < value->count; i++) {
        if (value->type == QN_JSON_T_OBJECT)
            FUZZ_CHECK(qn_json_get_str(value, value->keys[i]) ==
                       &value->items[i]);
        walk(&value->items[i]);
    }
}

static bool read_all(qn_str text, unsigned flags)
{
    qn_json_reader *reader = qn_json_reader_new(text, flags, 0);
    FUZZ_CHECK(reader);
    size_t end = 0;
    qn_json_event event;
    do {
        event = qn_json_next(reader);
        if (event != QN_JSON_ERROR) {
            FUZZ_CHECK(qn_json_offset(reader) >= end);
            end = qn_json_end_offset(reader);
        }
        FUZZ_CHECK(qn_json_end_offset(reader) <= text.size);
    } while (event != QN_JSON_END && event != QN_JSON_ERROR);
    qn_json_reader_free(reader);
    return event == QN_JSON_END;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    qn_str text = {(const char *)data, size};
    const unsigned lax = QN_JSON_ALLOW_BOM | QN_JSON_ALLOW_LONE_SURROGATES |
                         QN_JSON_ALLOW_DUPLICATE_KEYS;
    qn_json_doc *strict = NULL, *loose = NULL;
    bool is_strict = !qn_json_parse(&strict, text, 0);
    bool is_loose = !qn_json_parse(&loose, text, lax);
    FUZZ_CHECK(is_loose || !is_strict);
    FUZZ_CHECK(read_all(text, lax) == is_loose);
    FUZZ_CHECK(read_all(text, 0) || !is_strict);
    if (is_strict) {
        FUZZ_CHECK(qn_utf8_valid(text, NULL));
        walk(qn_json_root(strict));
        check_tree(strict);
    }
    if (is_loose) {
        walk(qn_json_root(loose));
        check_tree(loose);
    }
    qn_json_doc_free(strict);
    qn_json_doc_free(loose);
    return 0;
}
