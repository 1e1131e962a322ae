/* fuzz_template.c: chat templates, parsed and rendered.
 *
 * The input is the template, a NUL, and the variables as JSON.  Whatever they
 * are, a rendering ends: with text that is UTF-8 and a bitmap of its length,
 * or with an error that has a sentence and no text. */
#include "fuzz.h"

#include "base/utf8.h"
#include "text/template.h"

#include <string.h>

static size_t tainted_bits(const qn_buf *taint)
{
    size_t count = 0;
    for (size_t i = 0; i < taint->size; i++)
        for (int bit = 0; bit < 8; bit++)
            count += (uint8_t)taint->data[i] >> bit & 1;
    return count;
}

static void check_rendering(const qn_template *tmpl, const qn_json *vars,
                            size_t tainted_count)
{
    static const char *const tainted[] = {"messages", "tools"};
    qn_buf out = QN_BUF_INIT, taint = QN_BUF_INIT;
    qn_status status =
        qn_template_render(tmpl, &out, &taint, vars, tainted, tainted_count);
    if (status) {
        FUZZ_CHECK(status == QN_E_ARG || status == QN_E_UNSUPPORTED);
        FUZZ_CHECK(qn_error_text()[0] && !out.size && !taint.size);
    } else {
        FUZZ_CHECK(qn_utf8_valid(qn_buf_str(&out), NULL));
        FUZZ_CHECK(taint.size == (out.size + 7) / 8);
        FUZZ_CHECK(tainted_bits(&taint) <= out.size);
        FUZZ_CHECK(tainted_count || !tainted_bits(&taint));
    }
    qn_buf_free(&out);
    qn_buf_free(&taint);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *end = size ? memchr(data, '\0', size) : NULL;
    size_t length = end ? (size_t)(end - data) : size;
    qn_str source = {(const char *)data, length};
    qn_str json = {"{}", 2};
    if (end && size - length > 1)
        json = (qn_str){(const char *)end + 1, size - length - 1};
    qn_template *tmpl = NULL;
    qn_status status = qn_template_parse(&tmpl, source);
    if (status) {
        FUZZ_CHECK(status == QN_E_FORMAT || status == QN_E_UNSUPPORTED);
        return 0;
    }
    qn_json_doc *doc = NULL;
    if (qn_json_parse(&doc, json, QN_JSON_ALLOW_DUPLICATE_KEYS) == QN_OK) {
        check_rendering(tmpl, qn_json_root(doc), 2);
        check_rendering(tmpl, qn_json_root(doc), 0);
    }
    qn_template_mentions(tmpl, "enable_thinking");
    qn_json_doc_free(doc);
    qn_template_free(tmpl);
    return 0;
}
