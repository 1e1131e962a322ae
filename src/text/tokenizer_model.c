/* tokenizer_model.c: the models of tokenizer.json.  A new kind is a row in
 * `models`. */
#include "tokenizer_model.h"

#include "base/alloc.h"
#include "bpe.h"
#include "unigram.h"
#include "wordpiece.h"

static const qn_jpath model_path = {NULL, "model", 0};

/* ---- what several kinds have ---- */

/* The id of `unk_token`, which the vocabulary must have. */
static qn_status find_unknown(qn_tokenizer *t, qn_str name, int32_t *out)
{
    *out = t->unk = qn_vocab_find(&t->vocab, name);
    if (*out >= 0)
        return QN_OK;
    return qn_jpath_fail(QN_JPATH_KEY(&model_path, "unk_token"), QN_E_MISMATCH,
                         "'%.*s' is not in the vocabulary",
                         (int)(name.size < 200 ? name.size : 200), name.data);
}

static qn_status need_vocab(const qn_tokenizer_model *parts)
{
    if (parts->has_vocab)
        return QN_OK;
    return qn_jpath_fail(QN_JPATH_KEY(&model_path, "vocab"), QN_E_FORMAT,
                         "expected an object, found %s",
                         parts->vocab_list.size ? "another type" : "nothing");
}

/* Kinds whose vocabulary spells characters, not bytes. */
static qn_status refuse_byte_level(const qn_tokenizer *t, const char *kind)
{
    if (!qn_pretok_is_byte_level(t->pretok))
        return QN_OK;
    return qn_jpath_fail(QN_JPATH_KEY(&model_path, "type"), QN_E_UNSUPPORTED,
                         "%s with the pre-tokenizer ByteLevel is not "
                         "supported",
                         kind);
}

/* ---- BPE ---- */

/* One merge, "a b" or ["a", "b"], that begins with `event`. */
static qn_status read_merge(qn_bpe *bpe, const qn_vocab *vocab,
                            qn_json_reader *reader, qn_json_event event,
                            qn_buf *left)
{
    if (event == QN_JSON_STRING)
        return qn_bpe_add_merge_line(bpe, vocab, qn_json_text(reader));
    if (event != QN_JSON_ARRAY_BEGIN)
        return qn_fail(QN_E_FORMAT, "expected a string or two strings");
    if (qn_json_next(reader) != QN_JSON_STRING)
        return qn_fail(QN_E_FORMAT, "expected two strings");
    qn_buf_clear(left);
    qn_buf_add_str(left, qn_json_text(reader));
    if (left->failed)
        return QN_E_NOMEM;
    if (qn_json_next(reader) != QN_JSON_STRING)
        return qn_fail(QN_E_FORMAT, "expected two strings");
    qn_status status =
        qn_bpe_add_merge(bpe, vocab, qn_buf_str(left), qn_json_text(reader));
    if (!status && qn_json_next(reader) != QN_JSON_ARRAY_END)
        status = qn_fail(QN_E_FORMAT, "expected two strings");
    return status;
}

static qn_status read_merges(qn_bpe *bpe, const qn_vocab *vocab, qn_str text)
{
    qn_json_reader *reader = qn_json_reader_new(text, 0, 0);
    if (!reader)
        return QN_E_NOMEM;
    const qn_jpath *place = QN_JPATH_KEY(&model_path, "merges");
    qn_buf left = QN_BUF_INIT;
    qn_status status = QN_OK;
    qn_json_event event = qn_json_next(reader);
    if (event != QN_JSON_ARRAY_BEGIN)
        status = qn_jpath_fail(place, QN_E_FORMAT, "expected an array");
    for (size_t i = 0; !status; i++) {
        event = qn_json_next(reader);
        if (event == QN_JSON_ARRAY_END || event == QN_JSON_ERROR)
            break;
        status = read_merge(bpe, vocab, reader, event, &left);
        /* A syntax error inside a merge says more than its shape. */
        if (status && qn_json_status(reader))
            break;
        if (status && status != QN_E_NOMEM)
            qn_jpath_where(QN_JPATH_ITEM(place, i), status);
    }
    if (qn_json_status(reader))
        status = qn_jpath_reader_failed(reader);
    qn_buf_free(&left);
    qn_json_reader_free(reader);
    return status;
}

static qn_status load_bpe(qn_tokenizer *t, const qn_tokenizer_model *parts)
{
    const qn_json *options = parts->options;
    qn_bpe_options o = {.byte_level = qn_pretok_is_byte_level(t->pretok),
                        .unk = -1,
                        .prefix = QN_STR(""),
                        .suffix = QN_STR("")};
    qn_str unk = QN_STR("");
    qn_status status =
        qn_jpath_bool(&model_path, options, "byte_fallback", &o.byte_fallback);
    if (!status)
        status = qn_jpath_bool(&model_path, options, "fuse_unk", &o.fuse_unk);
    if (!status)
        status = qn_jpath_bool(&model_path, options, "ignore_merges",
                               &o.ignore_merges);
    if (!status)
        status = qn_jpath_str(&model_path, options, "continuing_subword_prefix",
                              &o.prefix);
    if (!status)
        status =
            qn_jpath_str(&model_path, options, "end_of_word_suffix", &o.suffix);
    if (!status)
        status = qn_jpath_str(&model_path, options, "unk_token", &unk);
    if (status)
        return status;
    if (unk.size)
        status = find_unknown(t, unk, &o.unk);
    if (status)
        return status;
    status = need_vocab(parts);
    if (status)
        return status;
    qn_bpe *bpe = NULL;
    status = qn_bpe_new(&bpe, &t->vocab, &o);
    if (status)
        return qn_jpath_where(&model_path, status);
    t->model = qn_bpe_model(bpe);
    if (!parts->merges.size)
        return qn_jpath_fail(QN_JPATH_KEY(&model_path, "merges"), QN_E_FORMAT,
                             "expected an array, found nothing");
    status = read_merges(bpe, &t->vocab, parts->merges);
    return status ? status : qn_bpe_finish(bpe);
}

/* ---- WordPiece, WordLevel ---- */

static qn_status load_words(qn_tokenizer *t, const qn_tokenizer_model *parts,
                            bool words_only)
{
    const qn_json *options = parts->options;
    qn_str unk = words_only ? QN_STR("<unk>") : QN_STR("[UNK]");
    qn_wordpiece_options o = {
        .unk = -1, .prefix = QN_STR("##"), .words_only = words_only};
    int64_t limit = 100;
    qn_status status =
        refuse_byte_level(t, words_only ? "WordLevel" : "WordPiece");
    if (!status)
        status = need_vocab(parts);
    if (!status)
        status = qn_jpath_str(&model_path, options, "unk_token", &unk);
    if (!status)
        status = qn_jpath_str(&model_path, options, "continuing_subword_prefix",
                              &o.prefix);
    if (!status)
        status = qn_jpath_int(&model_path, options, "max_input_chars_per_word",
                              &limit);
    if (!status && limit < 0)
        status = qn_jpath_fail(
            QN_JPATH_KEY(&model_path, "max_input_chars_per_word"), QN_E_FORMAT,
            "expected at least 0, found %lld", (long long)limit);
    if (!status)
        status = find_unknown(t, unk, &o.unk);
    if (status)
        return status;
    o.max_chars = (size_t)limit;
    status = qn_wordpiece_new(&t->model, &t->vocab, &o);
    return status ? qn_jpath_where(QN_JPATH_KEY(&model_path, "vocab"), status)
                  : QN_OK;
}

static qn_status load_wordpiece(qn_tokenizer *t,
                                const qn_tokenizer_model *parts)
{
    return load_words(t, parts, false);
}

static qn_status load_wordlevel(qn_tokenizer *t,
                                const qn_tokenizer_model *parts)
{
    return load_words(t, parts, true);
}

/* ---- Unigram ---- */

typedef struct scores {
    double *data;
    size_t size, capacity;
} scores;

static qn_status add_score(scores *s, double score)
{
    if (s->size == s->capacity) {
        size_t capacity = s->capacity ? 2 * s->capacity : 1024;
        double *data = qn_reallocarray(s->data, capacity, sizeof *data);
        if (!data)
            return QN_E_NOMEM;
        s->data = data;
        s->capacity = capacity;
    }
    s->data[s->size++] = score;
    return QN_OK;
}

/* Powers of ten that doubles have exactly enough. */
static double power_of_ten(int n)
{
    static const double exact[] = {
        1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
        1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    enum { COUNT = sizeof exact / sizeof exact[0] };
    return n < COUNT ? exact[n] : 0;
}

/* A score as the format's own library reads it: its digits as an integer,
 * divided by a power of ten.  That is not always the nearest double, and
 * where two paths have scores that differ by nothing but rounding, the last
 * bit decides which is taken.  Other spellings are read exactly. */
static bool read_score(qn_str spelling, double *out)
{
    uint64_t digits = 0;
    int behind = 0; /* digits after the point */
    bool point = false;
    size_t i = spelling.size && spelling.data[0] == '-';
    for (; i < spelling.size; i++) {
        char c = spelling.data[i];
        if (c == '.') {
            point = true;
            continue;
        }
        if (c < '0' || c > '9')
            return qn_json_double(spelling, out);
        uint64_t digit = (uint64_t)(c - '0');
        if (digits > (UINT64_MAX - digit) / 10) {
            if (!point)
                return qn_json_double(spelling, out);
            break; /* the rest is ignored */
        }
        digits = 10 * digits + digit;
        behind += point;
    }
    double power = power_of_ten(behind);
    if (power == 0)
        return qn_json_double(spelling, out);
    double value = (double)digits / power;
    *out = spelling.data[0] == '-' ? -value : value;
    return true;
}

/* ["token", score], after its opening bracket. */
static qn_status read_scored(qn_tokenizer *t, qn_json_reader *reader, scores *s,
                             qn_buf *token)
{
    if (qn_json_next(reader) != QN_JSON_STRING)
        return qn_fail(QN_E_FORMAT, "expected a string and a number");
    qn_buf_clear(token);
    qn_buf_add_str(token, qn_json_text(reader));
    double score;
    if (qn_json_next(reader) != QN_JSON_NUMBER ||
        !read_score(qn_json_text(reader), &score))
        return qn_fail(QN_E_FORMAT, "expected a string and a number");
    qn_status status = qn_buf_status(token);
    if (!status)
        status = qn_vocab_add(&t->vocab, (int64_t)s->size, qn_buf_str(token),
                              QN_TOKEN_MODEL, NULL);
    if (!status)
        status = add_score(s, score);
    if (!status && qn_json_next(reader) != QN_JSON_ARRAY_END)
        status = qn_fail(QN_E_FORMAT, "expected a string and a number");
    return status;
}

static qn_status read_scores(qn_tokenizer *t, qn_str text, scores *s)
{
    const qn_jpath *place = QN_JPATH_KEY(&model_path, "vocab");
    if (!text.size)
        return qn_jpath_fail(place, QN_E_FORMAT,
                             "expected an array, found nothing");
    qn_json_reader *reader = qn_json_reader_new(text, 0, 0);
    if (!reader)
        return QN_E_NOMEM;
    qn_buf token = QN_BUF_INIT;
    qn_status status = QN_OK;
    qn_json_event event = qn_json_next(reader);
    if (event != QN_JSON_ARRAY_BEGIN)
        status = qn_jpath_fail(place, QN_E_FORMAT, "expected an array");
    for (size_t i = 0; !status; i++) {
        event = qn_json_next(reader);
        if (event == QN_JSON_ARRAY_END || event == QN_JSON_ERROR)
            break;
        status = event == QN_JSON_ARRAY_BEGIN
                     ? read_scored(t, reader, s, &token)
                     : qn_fail(QN_E_FORMAT, "expected a string and a number");
        /* A syntax error inside says more than its shape. */
        if (status && qn_json_status(reader))
            break;
        if (status && status != QN_E_NOMEM)
            qn_jpath_where(QN_JPATH_ITEM(place, i), status);
    }
    if (qn_json_status(reader))
        status = qn_jpath_reader_failed(reader);
    qn_buf_free(&token);
    qn_json_reader_free(reader);
    return status;
}

static qn_status load_unigram(qn_tokenizer *t, const qn_tokenizer_model *parts)
{
    const qn_json *options = parts->options;
    qn_unigram_options o = {.unk = -1};
    int64_t unk = -1;
    scores s = {0};
    qn_status status = refuse_byte_level(t, "Unigram");
    if (!status && parts->has_vocab)
        status = qn_jpath_fail(QN_JPATH_KEY(&model_path, "vocab"), QN_E_FORMAT,
                               "expected an array, found an object");
    if (!status)
        status = qn_jpath_int(&model_path, options, "unk_id", &unk);
    if (!status)
        status = qn_jpath_bool(&model_path, options, "byte_fallback",
                               &o.byte_fallback);
    if (!status)
        status = read_scores(t, parts->vocab_list, &s);
    if (!status && qn_json_get(options, "unk_id") &&
        !qn_vocab_has(&t->vocab, unk))
        status =
            qn_jpath_fail(QN_JPATH_KEY(&model_path, "unk_id"), QN_E_MISMATCH,
                          "expected an id below %zu, found %lld",
                          t->vocab.count, (long long)unk);
    o.unk = t->unk = (int32_t)unk;
    if (!status) {
        status = qn_unigram_new(&t->model, &t->vocab, s.data, &o);
        if (status)
            qn_jpath_where(QN_JPATH_KEY(&model_path, "vocab"), status);
    }
    qn_free(s.data);
    return status;
}

/* ---- the table ---- */

static const struct {
    const char *type;
    qn_status (*load)(qn_tokenizer *t, const qn_tokenizer_model *parts);
} models[] = {
    {"BPE", load_bpe},
    {"Unigram", load_unigram},
    {"WordPiece", load_wordpiece},
    {"WordLevel", load_wordlevel},
};

/* The oldest files do not say their type; what they have, does. */
static qn_str guess_type(const qn_tokenizer_model *parts)
{
    if (parts->merges.size)
        return QN_STR("BPE");
    if (parts->vocab_list.size)
        return QN_STR("Unigram");
    return qn_json_get(parts->options, "max_input_chars_per_word")
               ? QN_STR("WordPiece")
               : QN_STR("");
}

qn_status qn_tokenizer_load_model(qn_tokenizer *t,
                                  const qn_tokenizer_model *parts)
{
    qn_str type = QN_STR("");
    qn_status status = qn_jpath_str(&model_path, parts->options, "type", &type);
    if (status)
        return status;
    if (!type.size)
        type = guess_type(parts);
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        if (qn_str_is(type, models[i].type))
            return models[i].load(t, parts);
    }
    return qn_jpath_fail(QN_JPATH_KEY(&model_path, "type"), QN_E_UNSUPPORTED,
                         "model '%.*s' is not supported",
                         (int)(type.size < 64 ? type.size : 64), type.data);
}
