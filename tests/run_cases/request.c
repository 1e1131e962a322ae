/* request.c: one request to a server, and what the answer has to be
 * (cases/README.md). */
#include "serve.h"

#include "base/alloc.h"
#include "base/file.h"
#include "base/utf8.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A case on its way. */
typedef struct asking {
    case_server server;
    const char *path;
    const qn_json *json;          /* the body; NULL: raw */
    int64_t length;               /* tokens of the script */
    case_reply *first;            /* the answer to the case's own request */
    case_reply *plain, *streamed; /* made when a rule wants them */
} asking;

/* ---- the body ---- */

/* Members to put in the place of the body's, or behind them. */
typedef struct change {
    const char *key;
    const qn_json *value; /* NULL: `boolean`, or no member at all */
    bool boolean, drop;
} change;

static bool is_object_of(const qn_json *value, const char *key)
{
    return value->type == QN_JSON_T_OBJECT && value->count == 1 &&
           qn_str_is(value->keys[0], key);
}

/* Writes a value with {"$repeat"} and {"$pieces"} as what they stand for. */
static void write_value(const asking *a, qn_json_writer *w,
                        const qn_json *value)
{
    int64_t more = 0;
    if (is_object_of(value, "$repeat")) {
        qn_buf text = QN_BUF_INIT;
        case_long_text(value, &text);
        qn_json_write_str(w, qn_buf_str(&text));
        qn_buf_free(&text);
    } else if (is_object_of(value, "$pieces")) {
        qn_json_as_int(&value->items[0], &more);
        qn_json_write_int(w, a->length + more);
    } else if (value->type == QN_JSON_T_ARRAY) {
        qn_json_write_array(w);
        for (uint32_t i = 0; i < value->count; i++)
            write_value(a, w, &value->items[i]);
        qn_json_write_array_end(w);
    } else if (value->type == QN_JSON_T_OBJECT) {
        qn_json_write_object(w);
        for (uint32_t i = 0; i < value->count; i++) {
            qn_json_write_key_str(w, value->keys[i]);
            write_value(a, w, &value->items[i]);
        }
        qn_json_write_object_end(w);
    } else {
        qn_json_write_value(w, value);
    }
}

static const change *change_of(const change *changes, size_t count, qn_str key)
{
    for (size_t i = 0; i < count; i++)
        if (qn_str_is(key, changes[i].key))
            return &changes[i];
    return NULL;
}

static void write_body(const asking *a, qn_buf *out, const change *changes,
                       size_t count)
{
    qn_json_writer w;
    qn_json_write_begin(&w, out);
    qn_json_write_object(&w);
    for (uint32_t i = 0; i < a->json->count; i++) {
        if (change_of(changes, count, a->json->keys[i]))
            continue;
        qn_json_write_key_str(&w, a->json->keys[i]);
        write_value(a, &w, &a->json->items[i]);
    }
    for (size_t i = 0; i < count; i++) {
        if (changes[i].drop)
            continue;
        qn_json_write_key(&w, changes[i].key);
        if (changes[i].value)
            write_value(a, &w, changes[i].value);
        else
            qn_json_write_bool(&w, changes[i].boolean);
    }
    qn_json_write_object_end(&w);
}

static case_reply *send_changed(const asking *a, const change *changes,
                                size_t count)
{
    case_reply *reply = calloc(1, sizeof *reply);
    qn_buf body = QN_BUF_INIT;
    write_body(a, &body, changes, count);
    case_send(&a->server, a->path, qn_buf_str(&body), reply);
    qn_buf_free(&body);
    return reply;
}

/* The same request, not streamed. */
static const case_reply *plain_of(asking *a)
{
    static const change changes[] = {{.key = "stream", .boolean = false},
                                     {.key = "stream_options", .drop = true}};
    if (!a->plain)
        a->plain = send_changed(a, changes, 2);
    return a->plain;
}

static const case_reply *streamed_of(asking *a)
{
    static const change streamed = {.key = "stream", .boolean = true};
    if (!a->streamed)
        a->streamed = send_changed(a, &streamed, 1);
    return a->streamed;
}

/* ---- parts of answers ---- */

static const qn_json *choice_at(const qn_json *root, size_t index)
{
    return qn_json_at(qn_json_get(root, "choices"), index);
}

static qn_str text_of(const qn_json *value)
{
    qn_str text = {"", 0};
    qn_json_as_str(value, &text);
    return text;
}

/* Content or reasoning of choice `index`, the deltas of a stream joined. */
static void join_text(const case_reply *reply, size_t index, const char *key,
                      qn_buf *out)
{
    const qn_json *choice = choice_at(case_reply_root(reply), index);
    const qn_json *message = qn_json_get(choice, "message");
    bool content = !strcmp(key, "content");
    qn_buf_add_str(out, text_of(message   ? qn_json_get(message, key)
                                : content ? qn_json_get(choice, "text")
                                          : NULL));
    for (size_t i = 0; i < reply->count; i++) {
        choice = choice_at(case_reply_event(reply, i), 0);
        int64_t number = 0;
        qn_json_as_int(qn_json_get(choice, "index"), &number);
        if ((size_t)number == index)
            qn_buf_add_str(
                out, text_of(qn_json_get(qn_json_get(choice, "delta"), key)));
    }
}

static qn_str finish_of(const case_reply *reply)
{
    qn_str found = text_of(
        qn_json_get(choice_at(case_reply_root(reply), 0), "finish_reason"));
    for (size_t i = 0; i < reply->count; i++) {
        qn_str more = text_of(qn_json_get(
            choice_at(case_reply_event(reply, i), 0), "finish_reason"));
        if (more.size)
            found = more;
    }
    return found;
}

/* The entries of logprobs.content, those of all chunks one after the other. */
static size_t entries_of(const case_reply *reply, const qn_json **out,
                         size_t most)
{
    size_t count = 0;
    for (size_t i = 0; i <= reply->count; i++) {
        const qn_json *root = i < reply->count ? case_reply_event(reply, i)
                                               : case_reply_root(reply);
        const qn_json *list =
            qn_json_get(qn_json_get(choice_at(root, 0), "logprobs"), "content");
        for (uint32_t k = 0; list && k < list->count && count < most; k++)
            out[count++] = &list->items[k];
    }
    return count;
}

static int64_t usage_of(const qn_json *root, const char *key)
{
    int64_t number = -1;
    qn_json_as_int(qn_json_get(qn_json_get(root, "usage"), key), &number);
    return number;
}

static const qn_json *stream_usage(const case_reply *reply)
{
    return reply->count ? case_reply_event(reply, reply->count - 1) : NULL;
}

/* ---- rules ---- */

typedef void rule_fn(asking *a, const qn_json *rule, const qn_json *expect);

static void ends_with_done(asking *a, const qn_json *rule,
                           const qn_json *expect)
{
    (void)rule;
    (void)expect;
    if (!a->first->done)
        case_fail("the stream does not end with [DONE]");
}

static void no_done(asking *a, const qn_json *rule, const qn_json *expect)
{
    (void)rule;
    (void)expect;
    if (a->first->done)
        case_fail("the stream ends with [DONE]");
}

static void events_are_json(asking *a, const qn_json *rule,
                            const qn_json *expect)
{
    (void)rule;
    (void)expect;
    if (a->first->broken || !a->first->stream)
        case_fail("an event is no JSON object");
}

static void usage_chunk_last(asking *a, const qn_json *rule,
                             const qn_json *expect)
{
    (void)rule;
    (void)expect;
    const case_reply *r = a->first;
    for (size_t i = 0; i + 1 < r->count; i++) {
        const qn_json *usage = qn_json_get(case_reply_event(r, i), "usage");
        if (usage && usage->type != QN_JSON_T_NULL)
            case_fail("event %zu has usage and is not the last", i);
    }
    const qn_json *last = stream_usage(r);
    const qn_json *choices = qn_json_get(last, "choices");
    if (!choices || choices->count || usage_of(last, "prompt_tokens") < 0 ||
        usage_of(last, "completion_tokens") < 0 ||
        usage_of(last, "total_tokens") < 0)
        case_fail("the last event is no usage");
}

static void usage_total_is_sum(asking *a, const qn_json *rule,
                               const qn_json *expect)
{
    (void)rule;
    (void)expect;
    const qn_json *last = stream_usage(a->first);
    const qn_json *root = last ? last : case_reply_root(a->first);
    if (usage_of(root, "total_tokens") !=
        usage_of(root, "prompt_tokens") + usage_of(root, "completion_tokens"))
        case_fail("total_tokens is not the sum");
}

static void usage_equals_plain(asking *a, const qn_json *rule,
                               const qn_json *expect)
{
    static const char *const keys[] = {"prompt_tokens", "completion_tokens",
                                       "total_tokens"};
    (void)rule;
    (void)expect;
    const qn_json *plain = case_reply_root(plain_of(a));
    for (size_t i = 0; i < 3; i++)
        if (usage_of(plain, keys[i]) !=
            usage_of(stream_usage(a->first), keys[i]))
            case_fail("%s of plain and streamed differ", keys[i]);
}

static void check_same_text(asking *a, const char *key)
{
    qn_buf plain = QN_BUF_INIT, streamed = QN_BUF_INIT;
    join_text(plain_of(a), 0, key, &plain);
    join_text(streamed_of(a), 0, key, &streamed);
    if (!qn_str_eq(qn_buf_str(&plain), qn_buf_str(&streamed)))
        case_fail("%s: plain \"%.*s\", streamed \"%.*s\"", key, (int)plain.size,
                  qn_buf_str(&plain).data, (int)streamed.size,
                  qn_buf_str(&streamed).data);
    qn_buf_free(&plain);
    qn_buf_free(&streamed);
}

static void stream_equals_plain(asking *a, const qn_json *rule,
                                const qn_json *expect)
{
    (void)rule;
    (void)expect;
    check_same_text(a, "content");
    check_same_text(a, "reasoning_content");
    if (!qn_str_eq(finish_of(plain_of(a)), finish_of(streamed_of(a))))
        case_fail("finish_reason of plain and streamed differ");
}

static void error_event_last(asking *a, const qn_json *rule,
                             const qn_json *expect)
{
    (void)rule;
    (void)expect;
    const qn_json *error = qn_json_get(stream_usage(a->first), "error");
    if (!text_of(qn_json_get(error, "message")).size || a->first->done)
        case_fail("the stream does not end with an error");
}

static void no_finish_reason(asking *a, const qn_json *rule,
                             const qn_json *expect)
{
    (void)expect;
    qn_str value = case_text(rule, "value");
    for (size_t i = 0; i < a->first->count; i++)
        if (qn_str_eq(
                text_of(qn_json_get(choice_at(case_reply_event(a->first, i), 0),
                                    "finish_reason")),
                value))
            case_fail("event %zu has this finish_reason", i);
}

static void no_stop_prefix_leak(asking *a, const qn_json *rule,
                                const qn_json *expect)
{
    (void)rule;
    qn_str wanted =
        text_of(qn_json_get(qn_json_get(expect, "answer"), "content"));
    qn_buf content = QN_BUF_INIT;
    const case_reply *r = streamed_of(a);
    for (size_t i = 0; i < r->count; i++) {
        const qn_json *delta =
            qn_json_get(choice_at(case_reply_event(r, i), 0), "delta");
        qn_buf_add_str(&content, text_of(qn_json_get(delta, "content")));
        if (content.size > wanted.size ||
            memcmp(qn_buf_str(&content).data, wanted.data, content.size))
            case_fail("streamed \"%.*s\", which is no beginning of \"%.*s\"",
                      (int)content.size, qn_buf_str(&content).data,
                      (int)wanted.size, wanted.data);
    }
    qn_buf_free(&content);
}

static void choices_differ(asking *a, const qn_json *rule,
                           const qn_json *expect)
{
    (void)rule;
    (void)expect;
    qn_buf one = QN_BUF_INIT, two = QN_BUF_INIT;
    join_text(a->first, 0, "content", &one);
    join_text(a->first, 1, "content", &two);
    if (qn_str_eq(qn_buf_str(&one), qn_buf_str(&two)))
        case_fail("both choices are \"%.*s\"", (int)one.size,
                  qn_buf_str(&one).data);
    qn_buf_free(&one);
    qn_buf_free(&two);
}

static void usage_covers_choices(asking *a, const qn_json *rule,
                                 const qn_json *expect)
{
    (void)rule;
    (void)expect;
    const qn_json *root = case_reply_root(a->first);
    const qn_json *choices = qn_json_get(root, "choices");
    int64_t most = case_int(a->json, "max_tokens", 0), cut = 0;
    int64_t count = choices ? (int64_t)choices->count : 0;
    for (int64_t i = 0; i < count; i++)
        cut += qn_str_is(
            text_of(qn_json_get(choice_at(root, (size_t)i), "finish_reason")),
            "length");
    int64_t found = usage_of(root, "completion_tokens");
    if (found < cut * most + (count - cut) || found > count * most)
        case_fail("completion_tokens: %lld does not cover %lld choices",
                  (long long)found, (long long)count);
}

/* How often the prompt of these messages has a token. */
static size_t token_count(const asking *a, const qn_json *messages,
                          const char *token)
{
    qn_buf text = QN_BUF_INIT;
    qn_json_writer w;
    quern_chat chat;
    int32_t *ids = NULL, *one = NULL;
    size_t count = 0, size = 0, found = 0;
    qn_json_write_begin(&w, &text);
    write_value(a, &w, messages);
    quern_chat_init(&chat);
    chat.messages = text.data;
    if (quern_render_ids(a->server.model, &chat, &ids, &count, NULL) ||
        quern_tokenize(a->server.model, token, strlen(token),
                       QUERN_PARSE_SPECIAL, &one, &size, NULL) ||
        size != 1)
        case_fail("the messages can't be rendered");
    else
        for (size_t i = 0; i < count; i++)
            found += ids[i] == one[0];
    quern_free(ids);
    quern_free(one);
    qn_buf_free(&text);
    return found;
}

static void same_token_count(asking *a, const qn_json *rule,
                             const qn_json *expect)
{
    (void)expect;
    const char *token = case_keep(case_text(rule, "token"));
    size_t found = token_count(a, qn_json_get(a->json, "messages"), token);
    size_t wanted = token_count(a, qn_json_get(rule, "messages"), token);
    if (found != wanted)
        case_fail("%s: expected %zu times, found %zu", token, wanted, found);
}

static bool has_status(const qn_json *list, int status)
{
    for (uint32_t i = 0; list && i < list->count; i++) {
        int64_t value = 0;
        if (qn_json_as_int(&list->items[i], &value) && value == status)
            return true;
    }
    return false;
}

static void variant_status(asking *a, const qn_json *rule,
                           const qn_json *expect)
{
    (void)expect;
    const qn_json *set = qn_json_get(rule, "set");
    change changes[16];
    size_t count = 0;
    for (uint32_t i = 0; set && i < set->count && count < 16; i++)
        changes[count++] =
            (change){.key = case_keep(set->keys[i]), .value = &set->items[i]};
    case_reply *reply = send_changed(a, changes, count);
    if (!has_status(qn_json_get(rule, "status"), reply->status))
        case_fail("variant: status %d is not among those expected",
                  reply->status);
    case_reply_free(reply);
}

/* ---- rules of log probabilities ---- */

enum { MOST_ENTRIES = 4096 };

static void check_entry(const qn_json *entry, const char *what)
{
    double logprob = 1;
    const qn_json *bytes = qn_json_get(entry, "bytes");
    qn_str token;
    if (!qn_json_as_str(qn_json_get(entry, "token"), &token) ||
        !qn_json_as_double(qn_json_get(entry, "logprob"), &logprob) ||
        logprob > 0 || !bytes ||
        (bytes->type != QN_JSON_T_ARRAY && bytes->type != QN_JSON_T_NULL))
        case_fail("%s has not the shape of one", what);
}

static void logprobs_shape(asking *a, const qn_json *rule,
                           const qn_json *expect)
{
    (void)expect;
    const qn_json *entries[MOST_ENTRIES];
    size_t count = entries_of(a->first, entries, MOST_ENTRIES);
    int64_t wanted = case_int(rule, "top", 0);
    if (!count)
        case_fail("there are no entries");
    for (size_t i = 0; i < count; i++) {
        const qn_json *top = qn_json_get(entries[i], "top_logprobs");
        check_entry(entries[i], "an entry");
        if (!top || top->count != wanted)
            case_fail("entry %zu: expected %d top_logprobs", i, (int)wanted);
        for (uint32_t k = 0; top && k < top->count; k++)
            check_entry(&top->items[k], "one of top_logprobs");
    }
}

static void token_text_without(asking *a, const qn_json *rule,
                               const qn_json *expect)
{
    (void)expect;
    const qn_json *entries[MOST_ENTRIES];
    size_t count = entries_of(a->first, entries, MOST_ENTRIES);
    const char *unwanted = case_keep(case_text(rule, "text"));
    for (size_t i = 0; i < count; i++)
        if (strstr(case_keep(text_of(qn_json_get(entries[i], "token"))),
                   unwanted))
            case_fail("entry %zu has \"%s\"", i, unwanted);
}

/* Invalid UTF-8 becomes U+FFFD, one for each maximal bad piece. */
static void add_lossy(qn_buf *out, qn_str bytes)
{
    const char *p = bytes.data, *end = p + bytes.size;
    while (p < end) {
        uint32_t code;
        int length = qn_utf8_decode(p, end, &code);
        qn_buf_add_code(out, length ? code : 0xfffd);
        p += length ? length : qn_utf8_bad_length(p, end);
    }
}

static void logprob_bytes_join(asking *a, const qn_json *rule,
                               const qn_json *expect)
{
    (void)rule;
    (void)expect;
    const qn_json *entries[MOST_ENTRIES];
    size_t count = entries_of(a->first, entries, MOST_ENTRIES);
    qn_buf bytes = QN_BUF_INIT, joined = QN_BUF_INIT, content = QN_BUF_INIT;
    for (size_t i = 0; i < count; i++) {
        const qn_json *list = qn_json_get(entries[i], "bytes");
        for (uint32_t k = 0; list && k < list->count; k++) {
            int64_t byte = 0;
            qn_json_as_int(&list->items[k], &byte);
            qn_buf_add_char(&bytes, (char)byte);
        }
    }
    add_lossy(&joined, qn_buf_str(&bytes));
    join_text(a->first, 0, "content", &content);
    if (!count || !qn_str_eq(qn_buf_str(&joined), qn_buf_str(&content)))
        case_fail("the bytes of %zu entries join to \"%.*s\", not \"%.*s\"",
                  count, (int)joined.size, qn_buf_str(&joined).data,
                  (int)content.size, qn_buf_str(&content).data);
    qn_buf_free(&bytes);
    qn_buf_free(&joined);
    qn_buf_free(&content);
}

static void logprobs_on_content(asking *a, const qn_json *rule,
                                const qn_json *expect)
{
    (void)rule;
    (void)expect;
    const case_reply *r = streamed_of(a);
    for (size_t i = 0; i < r->count; i++) {
        const qn_json *choice = choice_at(case_reply_event(r, i), 0);
        const qn_json *list =
            qn_json_get(qn_json_get(choice, "logprobs"), "content");
        if (text_of(qn_json_get(qn_json_get(choice, "delta"), "content"))
                .size &&
            !(list && list->count))
            case_fail("event %zu has content without entries", i);
    }
}

static void stream_logprobs_equal_plain(asking *a, const qn_json *rule,
                                        const qn_json *expect)
{
    (void)rule;
    (void)expect;
    static const qn_json *plain[MOST_ENTRIES], *streamed[MOST_ENTRIES];
    size_t count = entries_of(plain_of(a), plain, MOST_ENTRIES);
    size_t other = entries_of(streamed_of(a), streamed, MOST_ENTRIES);
    if (!count || count != other)
        case_fail("%zu entries plain, %zu streamed", count, other);
    for (size_t i = 0; i < count && i < other; i++) {
        double x = 0, y = 1;
        qn_json_as_double(qn_json_get(plain[i], "logprob"), &x);
        qn_json_as_double(qn_json_get(streamed[i], "logprob"), &y);
        if (!qn_str_eq(text_of(qn_json_get(plain[i], "token")),
                       text_of(qn_json_get(streamed[i], "token"))) ||
            fabs(x - y) > 1e-4)
            case_fail("entry %zu differs", i);
    }
}

static const struct {
    const char *name;
    rule_fn *check;
} rules[] = {
    {"ends-with-done", ends_with_done},
    {"no-done", no_done},
    {"events-are-json", events_are_json},
    {"usage-chunk-last", usage_chunk_last},
    {"usage-total-is-sum", usage_total_is_sum},
    {"usage-equals-plain", usage_equals_plain},
    {"stream-equals-plain", stream_equals_plain},
    {"error-event-last", error_event_last},
    {"no-finish-reason", no_finish_reason},
    {"no-stop-prefix-leak", no_stop_prefix_leak},
    {"choices-differ", choices_differ},
    {"usage-covers-choices", usage_covers_choices},
    {"same-token-count", same_token_count},
    {"variant-status", variant_status},
    {"logprobs-shape", logprobs_shape},
    {"token-text-without", token_text_without},
    {"logprob-bytes-join", logprob_bytes_join},
    {"logprobs-on-content", logprobs_on_content},
    {"stream-logprobs-equal-plain", stream_logprobs_equal_plain},
    /* Of the connection: there is none here. */
    {"closes-after-answer", NULL},
};

static void check_rule(asking *a, const qn_json *rule, const qn_json *expect)
{
    qn_str name =
        rule->type == QN_JSON_T_OBJECT ? case_text(rule, "rule") : rule->text;
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (qn_str_is(name, rules[i].name)) {
            if (rules[i].check)
                rules[i].check(a, rule, expect);
            return;
        }
    case_fail("case: rule \"%.*s\" is not known here", (int)name.size,
              name.data);
}

/* ---- what is expected ---- */

static void check_member(const char *what, qn_str found, const qn_json *wanted)
{
    if (wanted && !qn_str_eq(text_of(wanted), found))
        case_fail("%s: expected \"%.*s\", found \"%.*s\"", what,
                  (int)text_of(wanted).size, text_of(wanted).data,
                  (int)found.size, found.data);
}

static void check_answer(const case_reply *reply, const qn_json *wanted)
{
    qn_buf content = QN_BUF_INIT, reasoning = QN_BUF_INIT;
    join_text(reply, 0, "content", &content);
    join_text(reply, 0, "reasoning_content", &reasoning);
    check_member("content", qn_buf_str(&content),
                 qn_json_get(wanted, "content"));
    check_member("reasoning", qn_buf_str(&reasoning),
                 qn_json_get(wanted, "reasoning"));
    check_member("finish_reason", finish_of(reply),
                 qn_json_get(wanted, "finish_reason"));
    qn_buf_free(&content);
    qn_buf_free(&reasoning);
}

static void check_error_shape(const case_reply *reply)
{
    const qn_json *error = qn_json_get(case_reply_root(reply), "error");
    if (!text_of(qn_json_get(error, "message")).size ||
        !text_of(qn_json_get(error, "type")).size ||
        !qn_json_get(error, "param") || !qn_json_get(error, "code"))
        case_fail("the error has not the shape of OpenAI's");
}

/* The value at keys and positions joined by dots. */
static const qn_json *value_at(const qn_json *root, qn_str path)
{
    while (root && path.size) {
        const char *dot = memchr(path.data, '.', path.size);
        size_t size = dot ? (size_t)(dot - path.data) : path.size;
        qn_str key = {path.data, size};
        int64_t index = 0;
        root =
            root->type == QN_JSON_T_ARRAY
                ? (qn_json_int64(key, &index) ? qn_json_at(root, (size_t)index)
                                              : NULL)
                : qn_json_get_str(root, key);
        path.data += dot ? size + 1 : size;
        path.size -= dot ? size + 1 : size;
    }
    return root;
}

static bool same_value(const qn_json *a, const qn_json *b)
{
    double x, y;
    if (qn_json_as_double(a, &x) && qn_json_as_double(b, &y))
        return x == y;
    return a && b && a->type == b->type && qn_str_eq(a->text, b->text) &&
           a->boolean == b->boolean;
}

static bool names_field(const qn_json *found, qn_str field)
{
    if (!found || found->type == QN_JSON_T_NULL)
        return true;
    qn_str text = text_of(found);
    return text.size >= field.size &&
           !memcmp(text.data, field.data, field.size) &&
           (text.size == field.size || text.data[field.size] == '.' ||
            text.data[field.size] == '[');
}

static bool value_is(const qn_json *found, const qn_json *wanted)
{
    const qn_json *value;
    int64_t number = 0, most = 0;
    if ((value = qn_json_get(wanted, "eq")))
        return same_value(found, value);
    if ((value = qn_json_get(wanted, "field")))
        return names_field(found, value->text);
    if ((value = qn_json_get(wanted, "len")))
        return found && qn_json_as_int(value, &number) &&
               found->type == QN_JSON_T_ARRAY && found->count == number;
    if ((value = qn_json_get(wanted, "max")))
        return qn_json_as_int(found, &number) && qn_json_as_int(value, &most) &&
               number <= most;
    value = qn_json_get(wanted, "in");
    for (uint32_t i = 0; value && i < value->count; i++)
        if (same_value(found, &value->items[i]))
            return true;
    return false;
}

static void check_expect(asking *a, const qn_json *expect)
{
    const qn_json *status = qn_json_get(expect, "status");
    const qn_json *json = qn_json_get(expect, "json");
    if (status && !has_status(status, a->first->status))
        case_fail("status: %d is not among those expected: %.*s",
                  a->first->status, (int)a->first->body.size,
                  qn_buf_str(&a->first->body).data);
    if (qn_json_get(expect, "error_shape"))
        check_error_shape(a->first);
    if (qn_json_get(expect, "answer"))
        check_answer(a->first, qn_json_get(expect, "answer"));
    for (uint32_t i = 0; json && i < json->count; i++)
        if (!value_is(value_at(case_reply_root(a->first), json->keys[i]),
                      &json->items[i]))
            case_fail("%.*s is not what is expected", (int)json->keys[i].size,
                      json->keys[i].data);
    const qn_json *more = qn_json_get(expect, "rules");
    for (uint32_t i = 0; more && i < more->count && !case_failed(); i++)
        check_rule(a, &more->items[i], expect);
}

/* ---- the case ---- */

/* The body's bytes: JSON, base64, or parts of both. */
static void first_body(const asking *a, const qn_json *request, qn_buf *out)
{
    const qn_json *parts = qn_json_get(request, "body_parts");
    const qn_json *coded = qn_json_get(request, "body_b64");
    if (a->json)
        write_body(a, out, NULL, 0);
    if (coded)
        case_base64(text_of(coded), out);
    for (uint32_t i = 0; parts && i < parts->count; i++) {
        const qn_json *part = &parts->items[i];
        coded = qn_json_get(part, "b64");
        if (coded)
            case_base64(text_of(coded), out);
        else
            case_long_text(qn_json_get(part, "text") ? qn_json_get(part, "text")
                                                     : part,
                           out);
    }
}

static void run_once(const qn_json *c, const case_context *context,
                     uint32_t which)
{
    const qn_json *server = qn_json_get(c, "server");
    const qn_json *script = qn_json_get(server, "script");
    const qn_json *request = qn_json_get(c, "request");
    asking a = {.json = qn_json_get(request, "json"),
                .path = case_keep(case_text(request, "path"))};
    qn_buf fixtures = QN_BUF_INIT, source = QN_BUF_INIT, folder = QN_BUF_INIT;
    qn_buf body = QN_BUF_INIT;
    qn_str model = case_text(server, "model");
    qn_buf_printf(&folder, "%s/model-%u", context->scratch, (unsigned)which);
    qn_buf_printf(&fixtures, "%s/fixtures", context->folder);
    qn_buf_printf(&source, "%s/%.*s", fixtures.data, (int)model.size,
                  model.data);
    bool good =
        case_copy_folder(source.data, folder.data) &&
        case_patch_config(folder.data, qn_json_get(server, "config_patch"));
    if (!good)
        case_fail("case: the model can't be prepared");
    if (good && script)
        case_write_script(folder.data, script, which, &a.length);
    if (good && a.length >= 0 &&
        case_server_open(&a.server, folder.data, server, fixtures.data)) {
        a.first = calloc(1, sizeof *a.first);
        first_body(&a, request, &body);
        case_send(&a.server, a.path, qn_buf_str(&body), a.first);
        check_expect(&a, qn_json_get(c, "expect"));
        case_reply_free(a.first);
        if (a.plain)
            case_reply_free(a.plain);
        if (a.streamed)
            case_reply_free(a.streamed);
        case_server_close(&a.server);
    }
    qn_buf_free(&body);
    qn_buf_free(&folder);
    qn_buf_free(&source);
    qn_buf_free(&fixtures);
}

void run_request_case(const qn_json *c, const case_context *context)
{
    const qn_json *sizes = qn_json_get(
        qn_json_get(qn_json_get(c, "server"), "script"), "piece_size");
    bool list = sizes && sizes->type == QN_JSON_T_ARRAY;
    for (uint32_t i = 0; i < (list ? sizes->count : 1); i++)
        run_once(c, context, i);
}
