/* decode.c: the decoders of tokenizer.json.
 *
 * A Sequence is flattened when it is read.  Adding a decoder is a row in
 * `kinds`: how its members are read, what it makes of a token, and what it
 * hands on at the end.
 *
 * Some steps (Fuse, ByteLevel) make one token of all that follow; what comes
 * after them sees pieces of that token, so it must be able to work piece by
 * piece.  Strip can; other steps are refused there. */
#include "decode.h"

#include "base/alloc.h"
#include "base/utf8.h"
#include "bpe.h"
#include "fallback.h"
#include "find.h"
#include "regex.h"
#include "unicode.h"

enum { STEPS_MAX = 16 };

typedef struct step step;
typedef struct state state;

typedef struct kind {
    const char *type;
    qn_status (*parse)(step *s, const qn_json *value, const qn_jpath *at);
    /* Takes the next token and hands results on with `pass`. */
    qn_status (*add)(qn_decode_run *run, size_t at, qn_str token);
    /* Hands on what is held; NULL: nothing ever is. */
    qn_status (*finish)(qn_decode_run *run, size_t at);
    /* Appends what becomes of a token alone; false: it is handed on as it is.
     * NULL: so is every one. */
    bool (*bytes)(const step *s, qn_buf *out, qn_str token);
    bool fuses;        /* hands on pieces of one token */
    bool takes_pieces; /* can take such pieces */
} kind;

struct step {
    const kind *kind;
    bool pieces;             /* takes pieces of one token */
    char *pattern, *content; /* owned */
    size_t pattern_size, content_size;
    qn_regex *regex;    /* Replace: instead of the pattern; owned */
    size_t start, stop; /* Strip */
    bool drop_first;    /* Metaspace */
    bool cleanup;       /* WordPiece */
    bool marks_start;   /* the prefix begins a word, it does not continue one */
};

struct state {
    qn_buf held;   /* what cannot be handed on yet */
    qn_buf result; /* what is handed on, while it is */
    size_t count;  /* tokens seen; Strip: characters stripped */
};

struct qn_decoder {
    step steps[STEPS_MAX];
    size_t count;
    bool fused; /* while it is parsed: what comes is pieces */
};

struct qn_decode_run {
    const qn_decoder *decoder;
    qn_buf *out;
    state states[STEPS_MAX];
};

/* Hands a token on to the step after `at`.  The depth is the number of
 * steps. */
static qn_status pass(qn_decode_run *run, size_t at, qn_str token)
{
    size_t next = at + 1;
    if (next < run->decoder->count)
        return run->decoder->steps[next].kind->add(run, next, token);
    qn_buf_add_str(run->out, token);
    return qn_buf_status(run->out);
}

/* Hands on the step's own result. */
static qn_status pass_result(qn_decode_run *run, size_t at)
{
    qn_status status = qn_buf_status(&run->states[at].result);
    return status ? status : pass(run, at, qn_buf_str(&run->states[at].result));
}

static qn_status keep(char **out, size_t *size, qn_str text)
{
    *out = qn_strndup(text.data, text.size);
    *size = text.size;
    return *out ? QN_OK : QN_E_NOMEM;
}

/* ---- ByteLevel ---- */

static bool byte_level_bytes(const step *s, qn_buf *out, qn_str token)
{
    (void)s;
    return qn_bytelevel_unspell(out, token);
}

/* Appends the text of `bytes`, which may end inside a character; returns how
 * many bytes were used.  With `all` the end is final. */
static size_t add_lossy(qn_buf *out, qn_str bytes, bool all)
{
    size_t keep_tail = all ? 0 : qn_utf8_incomplete_tail(bytes);
    size_t end = bytes.size - keep_tail, at = 0;
    while (at < end) {
        size_t bad;
        qn_str rest = {bytes.data + at, end - at};
        if (qn_utf8_valid(rest, &bad)) {
            qn_buf_add_str(out, rest);
            break;
        }
        qn_buf_add(out, rest.data, bad);
        at += bad;
        qn_buf_add_code(out, 0xfffd);
        at += (size_t)qn_utf8_bad_length(bytes.data + at, bytes.data + end);
    }
    return end;
}

static qn_status byte_level_flush(qn_decode_run *run, size_t at, bool all)
{
    state *st = &run->states[at];
    qn_status status = qn_buf_status(&st->held);
    if (status)
        return status;
    qn_buf_clear(&st->result);
    size_t used = add_lossy(&st->result, qn_buf_str(&st->held), all);
    if (st->held.data) {
        memmove(st->held.data, st->held.data + used, st->held.size - used);
        qn_buf_truncate(&st->held, st->held.size - used);
    }
    return st->result.size || st->result.failed ? pass_result(run, at) : QN_OK;
}

static qn_status byte_level_add(qn_decode_run *run, size_t at, qn_str token)
{
    /* A token with characters that spell no byte is plain text. */
    qn_buf *held = &run->states[at].held;
    if (!qn_bytelevel_unspell(held, token))
        qn_buf_add_str(held, token);
    return byte_level_flush(run, at, false);
}

static qn_status byte_level_finish(qn_decode_run *run, size_t at)
{
    return byte_level_flush(run, at, true);
}

/* ---- ByteFallback ---- */

static bool byte_fallback_bytes(const step *s, qn_buf *out, qn_str token)
{
    (void)s;
    int byte = qn_fallback_byte(token);
    if (byte >= 0)
        qn_buf_add_char(out, (char)byte);
    return byte >= 0;
}

/* A run of byte tokens is text if all of it is; else each byte is U+FFFD.  So
 * nothing of it is certain before its end. */
static qn_status byte_fallback_flush(qn_decode_run *run, size_t at)
{
    state *st = &run->states[at];
    qn_status status = qn_buf_status(&st->held);
    if (status || !st->held.size)
        return status;
    if (qn_utf8_valid(qn_buf_str(&st->held), NULL)) {
        status = pass(run, at, qn_buf_str(&st->held));
    } else {
        for (size_t i = 0; !status && i < st->held.size; i++)
            status = pass(run, at, QN_STR("\xef\xbf\xbd"));
    }
    qn_buf_clear(&st->held);
    return status;
}

static qn_status byte_fallback_add(qn_decode_run *run, size_t at, qn_str token)
{
    if (byte_fallback_bytes(NULL, &run->states[at].held, token))
        return QN_OK;
    qn_status status = byte_fallback_flush(run, at);
    return status ? status : pass(run, at, token);
}

/* ---- Fuse ---- */

static qn_status fuse_add(qn_decode_run *run, size_t at, qn_str token)
{
    return pass(run, at, token);
}

/* ---- Replace ---- */

static qn_status parse_replace(step *s, const qn_json *value,
                               const qn_jpath *at)
{
    qn_str content;
    qn_status status = qn_jpath_need_str(at, value, "content", &content);
    if (!status)
        status = keep(&s->content, &s->content_size, content);
    if (status)
        return status;
    const qn_json *pattern = qn_json_get(value, "pattern");
    const qn_jpath *place = QN_JPATH_KEY(at, "pattern");
    qn_str text = QN_STR("");
    status = qn_jpath_str(place, pattern, "Regex", &text);
    if (!status && text.size) {
        status = qn_regex_new(&s->regex, text);
        return status ? qn_jpath_where(QN_JPATH_KEY(place, "Regex"), status)
                      : QN_OK;
    }
    if (!status)
        status = qn_jpath_need_str(place, pattern, "String", &text);
    return status ? status : keep(&s->pattern, &s->pattern_size, text);
}

/* Appends `text` with `to` in place of each `from`. */
static void add_replaced(qn_buf *out, qn_str text, qn_str from, qn_str to)
{
    const char *p = text.data, *end = p + text.size;
    while (from.size && p < end) {
        const char *hit = qn_find((qn_str){p, (size_t)(end - p)}, from);
        if (!hit)
            break;
        qn_buf_add(out, p, (size_t)(hit - p));
        qn_buf_add_str(out, to);
        p = hit + from.size;
    }
    qn_buf_add(out, p, (size_t)(end - p));
}

/* The same for each match of the step's expression. */
static qn_status add_matched(qn_buf *out, const step *s, qn_str text)
{
    qn_regex_run *run = NULL;
    qn_regex_scan scan = {0};
    qn_status status = qn_regex_run_new(&run, s->regex, text.size);
    size_t at = 0, begin, end;
    /* An empty token has no matches. */
    bool found = !status && text.size;
    while (found) {
        status = qn_regex_next(run, text, &scan, &found, &begin, &end);
        if (status || !found)
            break;
        qn_buf_add(out, text.data + at, begin - at);
        qn_buf_add(out, s->content, s->content_size);
        at = end;
    }
    qn_buf_add(out, text.data + at, text.size - at);
    qn_regex_run_free(run);
    return status;
}

static bool replace_bytes(const step *s, qn_buf *out, qn_str token)
{
    /* A token on which the search fails is text as it stands. */
    if (s->regex && !out->failed) {
        size_t before = out->size;
        bool good = !add_matched(out, s, token);
        if (!good)
            qn_buf_truncate(out, before);
        return good;
    }
    add_replaced(out, token, (qn_str){s->pattern, s->pattern_size},
                 (qn_str){s->content, s->content_size});
    return true;
}

static qn_status replace_add(qn_decode_run *run, size_t at, qn_str token)
{
    const step *s = &run->decoder->steps[at];
    qn_buf *result = &run->states[at].result;
    qn_buf_clear(result);
    qn_status status = s->regex ? add_matched(result, s, token) : QN_OK;
    if (!s->regex)
        replace_bytes(s, result, token);
    return status ? status : pass_result(run, at);
}

/* ---- Strip ---- */

static qn_status parse_strip(step *s, const qn_json *value, const qn_jpath *at)
{
    qn_str content;
    int64_t start = 0, stop = 0;
    uint32_t code;
    qn_status status = qn_jpath_need_str(at, value, "content", &content);
    if (!status)
        status = qn_jpath_int(at, value, "start", &start);
    if (!status)
        status = qn_jpath_int(at, value, "stop", &stop);
    if (status)
        return status;
    if (!content.size ||
        (size_t)qn_uc_next(content.data, &code) != content.size)
        return qn_jpath_fail(QN_JPATH_KEY(at, "content"), QN_E_FORMAT,
                             "expected one character, found %zu bytes",
                             content.size);
    if (start < 0 || stop < 0)
        return qn_jpath_fail(at, QN_E_FORMAT,
                             "expected start and stop of at least 0");
    s->start = (size_t)start;
    s->stop = (size_t)stop;
    return keep(&s->content, &s->content_size, content);
}

static bool starts_with(qn_str text, const step *s)
{
    return text.size >= s->content_size &&
           !memcmp(text.data, s->content, s->content_size);
}

static bool ends_with(qn_str text, const step *s)
{
    return text.size >= s->content_size &&
           !memcmp(text.data + text.size - s->content_size, s->content,
                   s->content_size);
}

/* Of the pieces of one token: the first `start` characters are cut as they
 * come; up to `stop` of them at the end are held, as more may follow. */
static qn_status strip_piece(qn_decode_run *run, size_t at, qn_str piece)
{
    const step *s = &run->decoder->steps[at];
    state *st = &run->states[at];
    while (st->count < s->start && starts_with(piece, s)) {
        st->count++;
        piece.data += s->content_size;
        piece.size -= s->content_size;
    }
    if (!piece.size)
        return QN_OK;
    st->count = s->start; /* something else: no more is cut */
    qn_buf_add_str(&st->held, piece);
    qn_str rest = qn_buf_str(&st->held), sure = rest;
    for (size_t n = 0; n < s->stop && ends_with(sure, s); n++)
        sure.size -= s->content_size;
    qn_buf_clear(&st->result);
    qn_buf_add_str(&st->result, sure);
    if (st->held.failed)
        return QN_E_NOMEM;
    qn_status status = sure.size ? pass_result(run, at) : QN_OK;
    size_t held = rest.size - sure.size;
    memmove(st->held.data, st->held.data + sure.size, held);
    qn_buf_truncate(&st->held, held);
    return status;
}

static qn_status strip_token(qn_decode_run *run, size_t at, qn_str token)
{
    const step *s = &run->decoder->steps[at];
    for (size_t n = 0; n < s->start && starts_with(token, s); n++) {
        token.data += s->content_size;
        token.size -= s->content_size;
    }
    for (size_t n = 0; n < s->stop && ends_with(token, s); n++)
        token.size -= s->content_size;
    return pass(run, at, token);
}

static qn_status strip_add(qn_decode_run *run, size_t at, qn_str token)
{
    return run->decoder->steps[at].pieces ? strip_piece(run, at, token)
                                          : strip_token(run, at, token);
}

/* ---- Metaspace ---- */

static qn_status parse_metaspace(step *s, const qn_json *value,
                                 const qn_jpath *at)
{
    qn_str replacement = QN_STR("\xe2\x96\x81"), scheme = QN_STR("always");
    bool prefix = true;
    qn_status status = qn_jpath_str(at, value, "replacement", &replacement);
    if (!status)
        status = qn_jpath_bool(at, value, "add_prefix_space", &prefix);
    if (!status)
        status = qn_jpath_str(at, value, "prepend_scheme", &scheme);
    if (!status)
        status = keep(&s->pattern, &s->pattern_size, replacement);
    if (!status)
        status = keep(&s->content, &s->content_size, QN_STR(" "));
    s->drop_first = prefix && !qn_str_is(scheme, "never");
    return status;
}

/* In the first token the marks are prefixes, not spaces. */
static qn_status metaspace_add(qn_decode_run *run, size_t at, qn_str token)
{
    step s = run->decoder->steps[at];
    state *st = &run->states[at];
    if (s.drop_first && st->count == 0)
        s.content_size = 0;
    st->count = 1;
    qn_buf_clear(&st->result);
    replace_bytes(&s, &st->result, token);
    return pass_result(run, at);
}

/* ---- WordPiece ---- */

static qn_status parse_wordpiece(step *s, const qn_json *value,
                                 const qn_jpath *at)
{
    qn_str prefix = QN_STR("##");
    s->cleanup = true;
    qn_status status = qn_jpath_str(at, value, "prefix", &prefix);
    if (!status)
        status = qn_jpath_bool(at, value, "cleanup", &s->cleanup);
    return status ? status : keep(&s->pattern, &s->pattern_size, prefix);
}

/* `text` without some spaces that English does not write, one rule after the
 * other.  `spare` holds every other result. */
static void clean_up(qn_buf *text, qn_buf *spare)
{
    static const char *const rules[][2] = {
        {" .", "."},   {" ?", "?"},     {" !", "!"},     {" ,", ","},
        {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},   {" do not", " don't"},
        {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"},
    };
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
        qn_str from = qn_str_of(rules[i][0]);
        if (text->failed || !qn_find(qn_buf_str(text), from))
            continue;
        qn_buf_clear(spare);
        add_replaced(spare, qn_buf_str(text), from, qn_str_of(rules[i][1]));
        qn_buf swap = *text;
        *text = *spare;
        *spare = swap;
    }
}

static void add_subword(qn_buf *out, const step *s, qn_str token, bool first)
{
    bool inside = token.size >= s->pattern_size &&
                  !memcmp(token.data, s->pattern, s->pattern_size);
    if (inside && (s->marks_start || !first)) {
        token.data += s->pattern_size;
        token.size -= s->pattern_size;
    }
    if (!first && inside == s->marks_start)
        qn_buf_add_char(out, ' ');
    qn_buf_add_str(out, token);
}

static qn_status wordpiece_add(qn_decode_run *run, size_t at, qn_str token)
{
    const step *s = &run->decoder->steps[at];
    state *st = &run->states[at];
    qn_buf_clear(&st->result);
    add_subword(&st->result, s, token, st->count == 0);
    st->count = 1;
    if (s->cleanup)
        clean_up(&st->result, &st->held);
    return pass_result(run, at);
}

static bool wordpiece_bytes(const step *s, qn_buf *out, qn_str token)
{
    qn_buf text = QN_BUF_INIT, spare = QN_BUF_INIT;
    add_subword(&text, s, token, false);
    if (s->cleanup)
        clean_up(&text, &spare);
    qn_buf_add_str(out, qn_buf_str(&text));
    out->failed |= text.failed;
    qn_buf_free(&text);
    qn_buf_free(&spare);
    return true;
}

/* ---- BPEDecoder ---- */

static qn_status parse_bpe(step *s, const qn_json *value, const qn_jpath *at)
{
    qn_str suffix = QN_STR("</w>");
    qn_status status = qn_jpath_str(at, value, "suffix", &suffix);
    if (!status && !suffix.size)
        status = qn_jpath_fail(QN_JPATH_KEY(at, "suffix"), QN_E_UNSUPPORTED,
                               "an empty suffix is not supported");
    if (!status)
        status = keep(&s->pattern, &s->pattern_size, suffix);
    return status ? status : keep(&s->content, &s->content_size, QN_STR(" "));
}

/* The suffix ends a word: it is a space, but in the last token nothing.  So a
 * token with a suffix waits for the next one. */
static qn_status bpe_flush(qn_decode_run *run, size_t at, bool last)
{
    const step *s = &run->decoder->steps[at];
    state *st = &run->states[at];
    qn_status status = qn_buf_status(&st->held);
    if (status || !st->count)
        return status;
    st->count = 0;
    qn_buf_clear(&st->result);
    add_replaced(&st->result, qn_buf_str(&st->held),
                 (qn_str){s->pattern, s->pattern_size},
                 last ? QN_STR("") : (qn_str){s->content, s->content_size});
    return pass_result(run, at);
}

static qn_status bpe_add(qn_decode_run *run, size_t at, qn_str token)
{
    const step *s = &run->decoder->steps[at];
    state *st = &run->states[at];
    qn_status status = bpe_flush(run, at, false);
    if (status)
        return status;
    if (!qn_find(token, (qn_str){s->pattern, s->pattern_size}))
        return pass(run, at, token);
    qn_buf_clear(&st->held);
    qn_buf_add_str(&st->held, token);
    st->count = 1;
    return QN_OK;
}

static qn_status bpe_finish(qn_decode_run *run, size_t at)
{
    return bpe_flush(run, at, true);
}

/* ---- no decoder ---- */

static qn_status join_add(qn_decode_run *run, size_t at, qn_str token)
{
    state *st = &run->states[at];
    qn_buf_clear(&st->result);
    if (st->count)
        qn_buf_add_char(&st->result, ' ');
    st->count = 1;
    qn_buf_add_str(&st->result, token);
    return pass_result(run, at);
}

/* ---- the table ---- */

static const kind byte_level_kind = {
    .type = "ByteLevel",
    .add = byte_level_add,
    .finish = byte_level_finish,
    .bytes = byte_level_bytes,
    .fuses = true,
};

static const kind join_kind = {.type = "", .add = join_add};

static const kind byte_fallback_kind = {
    .type = "ByteFallback",
    .add = byte_fallback_add,
    .finish = byte_fallback_flush,
    .bytes = byte_fallback_bytes,
};

static const kind fuse_kind = {
    .type = "Fuse",
    .add = fuse_add,
    .fuses = true,
    .takes_pieces = true,
};

static const kind replace_kind = {
    .type = "Replace",
    .parse = parse_replace,
    .add = replace_add,
    .bytes = replace_bytes,
};

static const kind strip_kind = {
    .type = "Strip",
    .parse = parse_strip,
    .add = strip_add,
    .takes_pieces = true,
};

static const kind metaspace_kind = {
    .type = "Metaspace",
    .parse = parse_metaspace,
    .add = metaspace_add,
    .bytes = replace_bytes,
};

static const kind wordpiece_kind = {
    .type = "WordPiece",
    .parse = parse_wordpiece,
    .add = wordpiece_add,
    .bytes = wordpiece_bytes,
};

static const kind bpe_kind = {
    .type = "BPEDecoder",
    .parse = parse_bpe,
    .add = bpe_add,
    .finish = bpe_finish,
    .bytes = replace_bytes,
};

static const kind *const kinds[] = {
    &byte_level_kind, &byte_fallback_kind, &fuse_kind,      &replace_kind,
    &strip_kind,      &metaspace_kind,     &wordpiece_kind, &bpe_kind};

static const kind *find_kind(qn_str type)
{
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (qn_str_is(type, kinds[i]->type))
            return kinds[i];
    }
    return NULL;
}

static qn_status parse_into(qn_decoder *d, const qn_json *value,
                            const qn_jpath *at)
{
    qn_str type;
    qn_status status = qn_jpath_type(at, value, &type);
    if (status)
        return status;
    if (qn_str_is(type, "Sequence")) {
        const qn_json *list;
        status = qn_jpath_need_array(at, value, "decoders", &list);
        const qn_jpath *place = QN_JPATH_KEY(at, "decoders");
        for (size_t i = 0; !status && i < list->count; i++)
            status = parse_into(d, &list->items[i], QN_JPATH_ITEM(place, i));
        return status;
    }
    const kind *found = find_kind(type);
    if (!found)
        return qn_jpath_fail(QN_JPATH_KEY(at, "type"), QN_E_UNSUPPORTED,
                             "decoder '%.*s' is not supported",
                             (int)(type.size < 64 ? type.size : 64), type.data);
    if (d->fused && !found->takes_pieces)
        return qn_jpath_fail(at, QN_E_UNSUPPORTED,
                             "%s after Fuse or ByteLevel is not supported",
                             found->type);
    if (d->count == STEPS_MAX)
        return qn_jpath_fail(at, QN_E_UNSUPPORTED,
                             "expected at most %d decoders", STEPS_MAX);
    step *s = &d->steps[d->count++];
    s->kind = found;
    s->pieces = d->fused;
    d->fused |= found->fuses;
    return found->parse ? found->parse(s, value, at) : QN_OK;
}

qn_status qn_decoder_parse(qn_decoder **out, const qn_json *value,
                           const qn_jpath *at)
{
    qn_decoder *d = qn_calloc(1, sizeof *d);
    if (!d)
        return QN_E_NOMEM;
    qn_status status = QN_OK;
    if (value && value->type != QN_JSON_T_NULL)
        status = parse_into(d, value, at);
    else
        d->steps[d->count++].kind = &join_kind;
    if (status) {
        qn_decoder_free(d);
        return status;
    }
    *out = d;
    return QN_OK;
}

qn_status qn_decoder_byte_level(qn_decoder **out)
{
    qn_decoder *d = qn_calloc(1, sizeof *d);
    if (!d)
        return QN_E_NOMEM;
    d->steps[d->count++].kind = &byte_level_kind;
    *out = d;
    return QN_OK;
}

qn_status qn_decoder_marked_words(qn_decoder **out)
{
    qn_decoder *d = qn_calloc(1, sizeof *d);
    if (!d)
        return QN_E_NOMEM;
    step *s = &d->steps[d->count++];
    *s = (step){.kind = &wordpiece_kind, .cleanup = true, .marks_start = true};
    qn_status status =
        keep(&s->pattern, &s->pattern_size, QN_STR("\xe2\x96\x81"));
    if (status) {
        qn_decoder_free(d);
        return status;
    }
    *out = d;
    return QN_OK;
}

void qn_decoder_free(qn_decoder *decoder)
{
    if (!decoder)
        return;
    for (size_t i = 0; i < decoder->count; i++) {
        qn_free(decoder->steps[i].pattern);
        qn_free(decoder->steps[i].content);
        qn_regex_free(decoder->steps[i].regex);
    }
    qn_free(decoder);
}

qn_status qn_decoder_token_bytes(const qn_decoder *decoder, qn_buf *out,
                                 qn_str token)
{
    qn_buf from = QN_BUF_INIT, to = QN_BUF_INIT;
    qn_buf_add_str(&from, token);
    for (size_t i = 0; i < decoder->count; i++) {
        const step *s = &decoder->steps[i];
        qn_buf_clear(&to);
        if (from.failed || !s->kind->bytes ||
            !s->kind->bytes(s, &to, qn_buf_str(&from)))
            continue;
        qn_buf swap = from;
        from = to;
        to = swap;
    }
    qn_status status = qn_buf_status(&from);
    if (!status) {
        qn_buf_add_str(out, qn_buf_str(&from));
        status = qn_buf_status(out);
    }
    qn_buf_free(&from);
    qn_buf_free(&to);
    return status;
}

/* ---- running ---- */

qn_status qn_decode_run_new(qn_decode_run **out, const qn_decoder *decoder)
{
    qn_decode_run *run = qn_calloc(1, sizeof *run);
    if (!run)
        return QN_E_NOMEM;
    run->decoder = decoder;
    *out = run;
    return QN_OK;
}

void qn_decode_run_free(qn_decode_run *run)
{
    if (!run)
        return;
    for (size_t i = 0; i < run->decoder->count; i++) {
        qn_buf_free(&run->states[i].held);
        qn_buf_free(&run->states[i].result);
    }
    qn_free(run);
}

qn_status qn_decode_add(qn_decode_run *run, qn_buf *out, qn_str token)
{
    run->out = out;
    /* A Sequence may be empty. */
    if (!run->decoder->count) {
        qn_buf_add_str(out, token);
        return qn_buf_status(out);
    }
    return run->decoder->steps[0].kind->add(run, 0, token);
}

qn_status qn_decode_finish(qn_decode_run *run, qn_buf *out)
{
    qn_status status = QN_OK;
    run->out = out;
    for (size_t i = 0; i < run->decoder->count; i++) {
        const kind *k = run->decoder->steps[i].kind;
        if (!status && k->finish)
            status = k->finish(run, i);
        qn_buf_clear(&run->states[i].held);
        run->states[i].count = 0;
    }
    return status;
}
