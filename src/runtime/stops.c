/* stops.c: see stops.h.  Stops are few and short, so each position is compared
 * with all of them. */
#include "stops.h"

qn_status qn_stops_init(qn_stops *stops, const char *const *texts, size_t count)
{
    *stops = (qn_stops){.texts = texts, .count = count, .matched = -1};
    if (count > QN_MAX_STOPS)
        return qn_fail(QN_E_ARG, "stop: expected at most %d texts, found %zu",
                       QN_MAX_STOPS, count);
    for (size_t i = 0; i < count; i++) {
        size_t size = strlen(texts[i]);
        if (!size || size > QN_MAX_STOP_BYTES)
            return qn_fail(QN_E_ARG,
                           "stop %zu: expected 1..%d bytes, found %zu", i,
                           QN_MAX_STOP_BYTES, size);
    }
    return QN_OK;
}

void qn_stops_clear(qn_stops *stops)
{
    qn_buf_free(&stops->held);
    qn_buf_free(&stops->hidden);
}

/* Moves the first `size` held bytes out, without the hidden ones. */
static void release(qn_stops *stops, qn_buf *out, size_t size)
{
    qn_buf *held = &stops->held, *hidden = &stops->hidden;
    for (size_t i = 0; i < size; i++)
        if (!hidden->data[i])
            qn_buf_add_char(out, held->data[i]);
    if (!size)
        return;
    memmove(held->data, held->data + size, held->size - size);
    memmove(hidden->data, hidden->data + size, hidden->size - size);
    qn_buf_truncate(held, held->size - size);
    qn_buf_truncate(hidden, hidden->size - size);
}

/* The stop that ends at byte `end` of the held text, the longest one; -1 when
 * there is none. */
static int stop_ending_at(const qn_stops *stops, size_t end)
{
    int best = -1;
    size_t longest = 0;
    for (size_t i = 0; i < stops->count; i++) {
        size_t size = strlen(stops->texts[i]);
        if (size <= longest || size > end)
            continue;
        if (memcmp(stops->held.data + end - size, stops->texts[i], size) != 0)
            continue;
        best = (int)i;
        longest = size;
    }
    return best;
}

/* Whether a stop might begin at byte `at` and go on behind the held text. */
static bool may_begin_at(const qn_stops *stops, size_t at)
{
    size_t left = stops->held.size - at;
    for (size_t i = 0; i < stops->count; i++)
        if (strlen(stops->texts[i]) > left &&
            !memcmp(stops->held.data + at, stops->texts[i], left))
            return true;
    return false;
}

qn_status qn_stops_add(qn_stops *stops, qn_buf *out, qn_str text, bool hidden)
{
    if (stops->matched >= 0)
        return QN_OK;
    size_t before = stops->held.size;
    qn_buf_add_str(&stops->held, text);
    for (size_t i = 0; i < text.size; i++)
        qn_buf_add_char(&stops->hidden, hidden);
    qn_status status = qn_buf_status(&stops->held);
    if (!status)
        status = qn_buf_status(&stops->hidden);
    if (status)
        return status;

    /* Byte by byte, so that the stop that is complete first wins, however the
     * text was cut into tokens. */
    for (size_t end = before + 1; end <= stops->held.size; end++) {
        int which = stop_ending_at(stops, end);
        if (which < 0)
            continue;
        stops->matched = which;
        release(stops, out, end - strlen(stops->texts[which]));
        return qn_buf_status(out);
    }
    size_t safe = 0;
    while (safe < stops->held.size && !may_begin_at(stops, safe))
        safe++;
    release(stops, out, safe);
    return qn_buf_status(out);
}

qn_status qn_stops_finish(qn_stops *stops, qn_buf *out)
{
    if (stops->matched < 0)
        release(stops, out, stops->held.size);
    return qn_buf_status(out);
}
