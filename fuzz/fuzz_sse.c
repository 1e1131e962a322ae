/* fuzz_sse.c: streams of OpenAI-compatible servers.
 *
 * The first byte says in which pieces the rest arrives.  Events are the same
 * however the stream was cut. */
#include "fuzz.h"

#include "cli/sse.h"

#include "base/checksum.h"

typedef struct seen {
    size_t count;
    uint64_t sum;
} seen;

static bool note(void *data, qn_str event)
{
    seen *s = data;
    qn_delta d;
    s->count++;
    s->sum = qn_crc64(s->sum, event.data, event.size);
    s->sum = qn_crc64(s->sum, "\n", 1);
    if (qn_delta_read(&d, event))
        return true;
    FUZZ_CHECK(d.last == !d.doc);
    FUZZ_CHECK(!d.last ||
               (!d.refused && !d.finished && !d.text.size && !d.thought.size));
    FUZZ_CHECK(d.refused || !d.error.size);
    qn_json_doc_free(d.doc);
    return true;
}

static seen read_in_pieces(const char *data, size_t size, size_t piece)
{
    seen s = {0};
    qn_buf line = QN_BUF_INIT;
    for (size_t at = 0; at < size; at += piece) {
        size_t left = size - at;
        FUZZ_CHECK(qn_sse_add(&line, data + at, left < piece ? left : piece,
                              note, &s));
        FUZZ_CHECK(line.size <= size);
    }
    FUZZ_CHECK(qn_sse_finish(&line, note, &s));
    FUZZ_CHECK(!line.size);
    qn_buf_free(&line);
    return s;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!size)
        return 0;
    const char *text = (const char *)data + 1;
    size_t piece = data[0] ? data[0] : 1;
    seen whole = read_in_pieces(text, size - 1, size);
    seen parts = read_in_pieces(text, size - 1, piece);
    FUZZ_CHECK(whole.count == parts.count && whole.sum == parts.sum);
    return 0;
}
