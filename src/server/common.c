/* common.c: what a body may say in every protocol of OpenAI's, and what
 * becomes of it beside a model. */
#include "common.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { MAX_BIASES = 1024, MAX_STOPS = 16, MAX_STOP_BYTES = 256 };

#define MAX_SEED ((double)INT64_MAX)

/* ---- streams and caches ---- */

static const qn_field stream_rows[] = {
    QN_FIELD(qn_api_call, "include_usage", QN_BOOL, qn_take_bool, include_usage,
             0, 0, NULL),
    QN_FIELD_BY("include_obfuscation", QN_BOOL, NULL, qn_take_ignored),
};

static qn_table stream_table(void *call)
{
    return (qn_table){stream_rows, sizeof stream_rows / sizeof *stream_rows,
                      call, NULL};
}

static bool stream_shape(qn_reading *r, const qn_field *f, const qn_json *value,
                         void *base)
{
    (void)f;
    qn_table table = stream_table(base);
    return qn_fields_known(r, value, &table, 1) &&
           qn_fields_shape(r, value, &table, 1);
}

static bool read_stream(qn_reading *r, const qn_field *f, const qn_json *value,
                        void *base)
{
    (void)f;
    qn_table table = stream_table(base);
    return qn_fields_values(r, value, &table, 1);
}

static bool read_cache_prompt(qn_reading *r, const qn_field *f,
                              const qn_json *value, void *base)
{
    (void)r;
    (void)f;
    ((qn_api_call *)base)->no_cache = !value->boolean;
    return true;
}

/* "90", "5m", "-1": seconds; false when it is no duration. */
static bool read_duration(qn_str text, int64_t *seconds)
{
    static const struct {
        char unit;
        int64_t seconds;
    } units[] = {{'s', 1}, {'m', 60}, {'h', 3600}, {'d', 86400}};
    int64_t unit = 1;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (text.size && text.data[text.size - 1] == units[i].unit) {
            unit = units[i].seconds;
            text.size--;
            break;
        }
    int64_t number;
    if (!qn_json_int64(text, &number) || number > INT32_MAX)
        return false;
    *seconds = number < 0 ? number : number * unit;
    return true;
}

static bool read_keep_alive(qn_reading *r, const qn_field *f,
                            const qn_json *value, void *base)
{
    int64_t seconds;
    if (!read_duration(value->text, &seconds) || seconds < -1)
        return qn_bad_field(r, QN_API_OUT_OF_RANGE,
                            "expected seconds, a duration such as \"5m\", or "
                            "-1 for ever");
    if (!r->call->server->many_models) /* it stays loaded anyway */
        qn_ignored_add(&r->call->ignored, qn_str_of(f->name));
    ((qn_api_call *)base)->keep_alive = seconds;
    return true;
}

static bool read_slot(qn_reading *r, const qn_field *f, const qn_json *value,
                      void *base)
{
    (void)value;
    (void)base;
    qn_ignored_add(&r->call->ignored, qn_str_of(f->name));
    return true;
}

#define ROW(name, types, read, member, low, high, range)                       \
    QN_FIELD(qn_api_call, name, types, read, member, low, high, range)

const qn_field qn_call_fields[] = {
    ROW("model", QN_STRING, qn_take_text, model, 0, 0, NULL),
    ROW("stream", QN_BOOL, qn_take_bool, stream, 0, 0, NULL),
    QN_FIELD_BY("stream_options", QN_OBJECT, stream_shape, read_stream),
    ROW("return_progress", QN_BOOL, qn_take_bool, return_progress, 0, 0, NULL),
    ROW("n", QN_INT, qn_take_int, n, 1, 16, "1..16"),
    ROW("cache_salt", QN_STRING, qn_take_text, cache_salt, 0, 0, NULL),
    ROW("prompt_cache_key", QN_STRING, qn_take_text, prompt_cache_key, 0, 0,
        NULL),
    QN_FIELD_BY("cache_prompt", QN_BOOL, NULL, read_cache_prompt),
    ROW("user", QN_STRING, qn_take_text, user, 0, 0, NULL),
    QN_FIELD_BY("keep_alive", QN_INT | QN_STRING, NULL, read_keep_alive),
    QN_FIELD_BY("metadata", QN_OBJECT, NULL, qn_take_nothing),
    QN_FIELD_BY("service_tier", QN_STRING, NULL, qn_take_nothing),
    QN_FIELD_BY("safety_identifier", QN_STRING, NULL, qn_take_nothing),
    QN_FIELD_BY("prompt_cache_retention", QN_STRING, NULL, qn_take_nothing),
    QN_FIELD_BY("prompt_cache_options", QN_OBJECT, NULL, qn_take_ignored),
    QN_FIELD_BY("store", QN_BOOL, NULL, qn_take_ignored),
};
const size_t qn_call_field_count =
    sizeof qn_call_fields / sizeof *qn_call_fields;

/* ---- sampling ---- */

static bool bias_shape(qn_reading *r, const qn_field *f, const qn_json *value,
                       void *base)
{
    (void)f;
    (void)base;
    for (uint32_t i = 0; i < value->count; i++) {
        size_t before = qn_enter_str(r, value->keys[i]);
        if (!qn_check_type(r, &value->items[i], QN_NUMBER))
            return false;
        qn_leave(r, before);
    }
    return true;
}

/* A token's id as a key: decimal digits, none of them needless. */
static bool read_id(qn_str key, int32_t *id)
{
    int64_t number;
    if (!qn_json_int64(key, &number) || number < 0 || number > INT32_MAX ||
        (key.size > 1 && key.data[0] == '0') || key.data[0] == '-')
        return false;
    *id = (int32_t)number;
    return true;
}

static bool read_bias(qn_reading *r, const qn_field *f, const qn_json *value,
                      void *base)
{
    (void)f;
    if (value->count > MAX_BIASES)
        return qn_bad_field(r, QN_API_OUT_OF_RANGE,
                            "expected at most %d tokens, found %u", MAX_BIASES,
                            (unsigned)value->count);
    qn_api_call *call = base;
    quern_logit_bias *list =
        qn_arena_alloc(&call->arena, (value->count + 1) * sizeof *list);
    if (!list)
        return qn_reading_no_memory(r);
    for (uint32_t i = 0; i < value->count; i++) {
        size_t before = qn_enter_str(r, value->keys[i]);
        double bias = 0;
        qn_json_as_double(&value->items[i], &bias);
        if (!read_id(value->keys[i], &list[i].id))
            return qn_bad_field(r, QN_API_OUT_OF_RANGE,
                                "expected a token's id in decimal digits");
        if (!(bias >= -100 && bias <= 100))
            return qn_bad_field(
                r, QN_API_OUT_OF_RANGE, "expected -100..100, found %.*s",
                value->items[i].text.size < 40 ? (int)value->items[i].text.size
                                               : 40,
                value->items[i].text.data);
        list[i].bias = (float)bias;
        qn_leave(r, before);
    }
    call->asked.sampling.logit_bias = list;
    call->asked.sampling.logit_bias_count = value->count;
    return true;
}

bool qn_shape_texts(qn_reading *r, const qn_field *f, const qn_json *value,
                    void *base)
{
    (void)f;
    (void)base;
    for (uint32_t i = 0; value->type == QN_JSON_T_ARRAY && i < value->count;
         i++) {
        size_t before = qn_enter_index(r, i);
        if (!qn_check_type(r, &value->items[i], QN_STRING))
            return false;
        qn_leave(r, before);
    }
    return true;
}

static bool keep_stop(qn_reading *r, const char **out, qn_str text)
{
    if (!text.size || text.size > MAX_STOP_BYTES)
        return qn_bad_field(r, QN_API_OUT_OF_RANGE,
                            "expected 1..%d bytes, found %zu", MAX_STOP_BYTES,
                            text.size);
    return qn_keep_text(r, out, text);
}

bool qn_take_stops(qn_reading *r, const qn_field *f, const qn_json *value,
                   void *base)
{
    (void)f;
    qn_api_call *call = base;
    bool list = value->type == QN_JSON_T_ARRAY;
    size_t count = list ? value->count : value->text.size > 0;
    if (count > MAX_STOPS)
        return qn_bad_field(r, QN_API_OUT_OF_RANGE,
                            "expected at most %d texts, found %zu", MAX_STOPS,
                            count);
    const char **stops =
        qn_arena_alloc(&call->arena, (count + 1) * sizeof *stops);
    if (!stops)
        return qn_reading_no_memory(r);
    for (size_t i = 0; i < count; i++) {
        size_t before = list ? qn_enter_index(r, i) : r->depth;
        if (!keep_stop(r, &stops[i], list ? value->items[i].text : value->text))
            return false;
        qn_leave(r, before);
    }
    call->asked.stops = stops;
    call->asked.stop_count = count;
    return true;
}

static bool read_seed(qn_reading *r, const qn_field *f, const qn_json *value,
                      void *base)
{
    ((qn_api_call *)base)->asked.sampling.has_seed = true;
    return qn_take_int(r, f, value, base);
}

/* llama-server's window of all penalties: -1 is everything, which is 0 here,
 * and 0 switches them off, which prepare does for a negative one. */
static bool read_repeat_last_n(qn_reading *r, const qn_field *f,
                               const qn_json *value, void *base)
{
    int32_t window;
    qn_field row = *f;
    row.to = 0;
    row.size = sizeof window;
    if (!qn_take_int(r, &row, value, &window))
        return false;
    window = window > 0 ? window : -1 - window;
    quern_sampling *s = &((qn_api_call *)base)->asked.sampling;
    s->repetition_context_size = window;
    s->presence_context_size = window;
    s->frequency_context_size = window;
    return true;
}

/* ---- speculation ---- */

typedef struct draft {
    bool enabled;
    int32_t num_draft;
} draft;

static const qn_field draft_rows[] = {
    QN_FIELD(draft, "enabled", QN_BOOL, qn_take_bool, enabled, 0, 0, NULL),
    QN_FIELD(draft, "num_draft", QN_INT, qn_take_int, num_draft, 0, 16,
             "0..16"),
};

enum { DRAFT_ENABLED = 1, DRAFT_NUMBER = 2 }; /* bits of what is given */

static qn_table draft_table(draft *into, uint64_t *given)
{
    return (qn_table){draft_rows, sizeof draft_rows / sizeof *draft_rows, into,
                      given};
}

static bool draft_shape(qn_reading *r, const qn_field *f, const qn_json *value,
                        void *base)
{
    (void)f;
    (void)base;
    qn_table table = draft_table(NULL, NULL);
    return qn_fields_known(r, value, &table, 1) &&
           qn_fields_shape(r, value, &table, 1);
}

static bool read_draft(qn_reading *r, const qn_field *f, const qn_json *value,
                       void *base)
{
    (void)f;
    qn_api_call *call = base;
    draft d = {0};
    uint64_t given = 0;
    qn_table table = draft_table(&d, &given);
    if (!qn_fields_values(r, value, &table, 1))
        return false;
    if (given & DRAFT_NUMBER)
        call->asked.num_draft = d.num_draft;
    if (given & DRAFT_ENABLED && !d.enabled)
        call->asked.num_draft = 0;
    call->wants_draft = given & DRAFT_ENABLED && d.enabled;
    return true;
}

/* llama-server's adaptive-p is off where the target is negative. */
static bool read_adaptive(qn_reading *r, const qn_field *f,
                          const qn_json *value, void *base)
{
    double target = 0;
    qn_json_as_double(value, &target);
    return target < 0 || qn_take_refused(r, f, value, base);
}

/* ---- the table ---- */

#define NUMBER(name, member, low, high, range)                                 \
    ROW(name, QN_NUMBER, qn_take_double, asked.sampling.member, low, high,     \
        range)
#define WINDOW(name, member)                                                   \
    ROW(name, QN_INT, qn_take_int, asked.sampling.member, 0, INT32_MAX,        \
        "0 or more")
#define ABOVE_0 0x1p-1074

const qn_field qn_request_fields[] = {
    NUMBER("temperature", temperature, 0, 5, "0..5"),
    NUMBER("top_p", top_p, ABOVE_0, 1, "a number above 0, up to 1"),
    ROW("top_k", QN_INT, qn_take_int, asked.sampling.top_k, -1, INT32_MAX,
        "-1 or more"),
    NUMBER("min_p", min_p, 0, 1, "0..1"),
    NUMBER("typical_p", typical_p, ABOVE_0, 1, "a number above 0, up to 1"),
    NUMBER("xtc_probability", xtc_probability, 0, 1, "0..1"),
    NUMBER("xtc_threshold", xtc_threshold, 0, 0.5, "0..0.5"),
    NUMBER("repetition_penalty", repetition_penalty, 0, 10, "0..10"),
    NUMBER("repeat_penalty", repetition_penalty, 0, 10, "0..10"),
    NUMBER("presence_penalty", presence_penalty, -2, 2, "-2..2"),
    NUMBER("frequency_penalty", frequency_penalty, -2, 2, "-2..2"),
    WINDOW("repetition_context_size", repetition_context_size),
    WINDOW("presence_context_size", presence_context_size),
    WINDOW("frequency_context_size", frequency_context_size),
    {"repeat_last_n", QN_INT, read_repeat_last_n,
     offsetof(qn_api_call, asked.sampling.repetition_context_size),
     3 * sizeof(int32_t), -1, INT32_MAX, "-1 or more", NULL},
    ROW("seed", QN_INT, read_seed, asked.sampling.seed, 0, MAX_SEED,
        "0..2^63-1"),
    QN_FIELD_BY("logit_bias", QN_OBJECT, bias_shape, read_bias),
    QN_FIELD_BY("stop", QN_STRING | QN_ARRAY, qn_shape_texts, qn_take_stops),
    ROW("min_tokens", QN_INT, qn_take_int, asked.min_tokens, 0, MAX_SEED,
        "0 or more"),
    ROW("ignore_eos", QN_BOOL, qn_take_bool, asked.ignore_eos, 0, 0, NULL),
    ROW("reasoning_budget", QN_INT, qn_take_int, asked.reasoning_budget, -1,
        MAX_SEED, "-1 or more"),
    QN_FIELD_BY("speculative", QN_OBJECT, draft_shape, read_draft),
    /* mlx-lm's. */
    ROW("num_draft_tokens", QN_INT, qn_take_int, asked.num_draft, 0, 16,
        "0..16"),
};
const size_t qn_request_field_count =
    sizeof qn_request_fields / sizeof *qn_request_fields;

/* ---- what is other servers' alone ---- */

/* mlx-lm's server loads what a request names; this is its word for none. */
static bool read_draft_model(qn_reading *r, const qn_field *f,
                             const qn_json *value, void *base)
{
    return qn_str_is(value->text, "default_model") ||
           qn_take_refused(r, f, value, base);
}

const qn_field qn_foreign_fields[] = {
    /* llama-server's slots: there are none, so any of them is listed. */
    QN_FIELD_BY("id_slot", QN_INT, NULL, read_slot),
    /* llama-server's ways to sample that are not those of quern. */
    QN_FIELD_BY("dry_multiplier", QN_NUMBER, NULL, qn_take_refused_unless_off),
    QN_FIELD_BY("mirostat", QN_INT, NULL, qn_take_refused_unless_off),
    QN_FIELD_BY("dynatemp_range", QN_NUMBER, NULL, qn_take_refused_unless_off),
    QN_FIELD_BY("adaptive_target", QN_NUMBER, NULL, read_adaptive),
    /* Nothing without the switches above. */
    QN_FIELD_BY("dry_base", QN_NUMBER, NULL, qn_take_nothing),
    QN_FIELD_BY("dry_allowed_length", QN_INT, NULL, qn_take_nothing),
    QN_FIELD_BY("dry_penalty_last_n", QN_INT, NULL, qn_take_nothing),
    QN_FIELD_BY("dry_sequence_breakers", QN_ARRAY, NULL, qn_take_nothing),
    QN_FIELD_BY("mirostat_tau", QN_NUMBER, NULL, qn_take_nothing),
    QN_FIELD_BY("mirostat_eta", QN_NUMBER, NULL, qn_take_nothing),
    QN_FIELD_BY("dynatemp_exponent", QN_NUMBER, NULL, qn_take_nothing),
    QN_FIELD_BY("adaptive_decay", QN_NUMBER, NULL, qn_take_nothing),
    /* mlx-lm's: no request names what is opened. */
    QN_FIELD_BY("adapters", QN_STRING, NULL, qn_take_refused),
    QN_FIELD_BY("draft_model", QN_STRING, NULL, read_draft_model),
    QN_FIELD_BY("role_mapping", QN_OBJECT, NULL, qn_take_refused_unless_off),
};
const size_t qn_foreign_field_count =
    sizeof qn_foreign_fields / sizeof *qn_foreign_fields;

/* ---- some of them ---- */

static const qn_field *row_named(const qn_field *rows, const char *name)
{
    while (strcmp(rows->name, name) != 0)
        rows++;
    return rows;
}

static bool take_as(qn_reading *r, const qn_field *known, const qn_field *f,
                    const qn_json *value)
{
    qn_field row = *known;
    if (f->range) {
        row.low = f->low;
        row.high = f->high;
        row.range = f->range;
    }
    return row.read(r, &row, value, r->call);
}

bool qn_take_call_field(qn_reading *r, const qn_field *f, const qn_json *value,
                        void *base)
{
    (void)base;
    return take_as(r, row_named(qn_call_fields, f->name), f, value);
}

bool qn_take_request_field(qn_reading *r, const qn_field *f,
                           const qn_json *value, void *base)
{
    (void)base;
    const qn_field *known = row_named(qn_request_fields, f->name);
    if (!take_as(r, known, f, value))
        return false;
    r->call->given |= UINT64_C(1) << (known - qn_request_fields);
    return true;
}

/* ---- parsing ---- */

void qn_call_begin(qn_api_call *call, const qn_api_server *server)
{
    call->server = server;
    call->n = 1;
    call->keep_alive = INT64_MIN;
    call->asked.num_draft = -1;
}

static bool same_number(const qn_json *a, const qn_json *b)
{
    double x = 0, y = 0;
    return qn_json_as_double(a, &x) && qn_json_as_double(b, &y) && x == y;
}

/* Finds a field before `end` with the place of `f` that the object has. */
static const qn_field *alias_of(const qn_json *object, const qn_table *tables,
                                const void *base, const qn_field *f)
{
    for (;; tables++)
        for (size_t i = 0; i < tables->count; i++) {
            const qn_field *g = &tables->rows[i];
            if (g == f)
                return NULL;
            if (tables->base == base && g->size && g->to == f->to &&
                qn_field_get(object, g->name))
                return g;
        }
}

bool qn_check_aliases(qn_reading *r, const qn_json *object,
                      const qn_table *tables, size_t count)
{
    for (size_t t = 0; t < count; t++)
        for (size_t i = 0; i < tables[t].count; i++) {
            const qn_field *f = &tables[t].rows[i];
            const qn_json *value =
                f->size ? qn_field_get(object, f->name) : NULL;
            const qn_field *other =
                value ? alias_of(object, tables, tables[t].base, f) : NULL;
            if (!other || same_number(value, qn_field_get(object, other->name)))
                continue;
            qn_enter(r, f->name);
            return qn_bad_field(r, QN_API_UNSUPPORTED_VALUE,
                                "expected what \"%s\" says, which is another "
                                "name of this field",
                                other->name);
        }
    return true;
}

static bool needs_stream(qn_reading *r, const char *name)
{
    qn_enter(r, name);
    return qn_bad_field(r, QN_API_UNSUPPORTED_VALUE,
                        "this field is only allowed when \"stream\" is true");
}

bool qn_call_check(qn_reading *r)
{
    qn_api_call *call = r->call;
    const qn_json *body = qn_json_root(call->doc);
    if (!call->stream && qn_field_get(body, "stream_options"))
        return needs_stream(r, "stream_options");
    if (!call->stream && call->return_progress)
        return needs_stream(r, "return_progress");
    return qn_buf_status(&call->ignored) ? qn_reading_no_memory(r) : true;
}
