/* normalize_map.c: normalizers that look at one character, or one cluster, at
 * a time: the parts of BertNormalizer, Nmt, Precompiled, ByteLevel. */
#include "normalize_impl.h"

#include "base/base64.h"
#include "bpe.h"
#include "unicode.h"

/* ---- BertNormalizer ---- */

/* Control characters go, white space becomes a space.  Here as below, what
 * stays the same is copied in one piece, from `kept` on. */
static qn_status run_clean(const qn_norm_step *s, qn_norm_input in,
                           qn_norm_text *out)
{
    (void)s;
    size_t kept = 0;
    for (size_t i = 0; i < in.text.size;) {
        uint32_t code;
        size_t end = i + (size_t)qn_uc_next(in.text.data + i, &code);
        unsigned class = qn_uc_class(code);
        if (code == ' ' ||
            (!(class & (QN_UC_SPACE | QN_UC_CONTROL)) && code != 0xfffd)) {
            i = end;
            continue;
        }
        qn_norm_copy(out, in, kept, i);
        bool line = code == '\t' || code == '\n' || code == '\r';
        bool control = code == 0xfffd || class & QN_UC_CONTROL;
        if (line || !control)
            qn_norm_emit(out, " ", 1, in, i, end);
        kept = i = end;
    }
    qn_norm_copy(out, in, kept, in.text.size);
    return QN_OK;
}

/* The blocks that the format takes for words of one character.  The fifth
 * begins 256 later than the block does: so the format's library has it. */
static bool is_chinese(uint32_t code)
{
    return (code >= 0x4e00 && code <= 0x9fff) ||
           (code >= 0x3400 && code <= 0x4dbf) ||
           (code >= 0x20000 && code <= 0x2a6df) ||
           (code >= 0x2a700 && code <= 0x2b73f) ||
           (code >= 0x2b740 && code <= 0x2b81f) ||
           (code >= 0x2b920 && code <= 0x2ceaf) ||
           (code >= 0xf900 && code <= 0xfaff) ||
           (code >= 0x2f800 && code <= 0x2fa1f);
}

static qn_status run_chinese(const qn_norm_step *s, qn_norm_input in,
                             qn_norm_text *out)
{
    (void)s;
    size_t kept = 0;
    for (size_t i = 0; i < in.text.size;) {
        uint32_t code;
        size_t end = i + (size_t)qn_uc_next(in.text.data + i, &code);
        if (is_chinese(code)) {
            qn_norm_copy(out, in, kept, i);
            qn_norm_emit(out, " ", 1, in, i, end);
            qn_norm_copy(out, in, i, end);
            qn_norm_emit(out, " ", 1, in, i, end);
            kept = end;
        }
        i = end;
    }
    qn_norm_copy(out, in, kept, in.text.size);
    return QN_OK;
}

/* Drops the characters of these classes. */
static void drop_classes(qn_norm_input in, qn_norm_text *out, unsigned classes)
{
    size_t kept = 0;
    for (size_t i = 0; i < in.text.size;) {
        uint32_t code;
        size_t end = i + (size_t)qn_uc_next(in.text.data + i, &code);
        if (qn_uc_class(code) & classes) {
            qn_norm_copy(out, in, kept, i);
            kept = end;
        }
        i = end;
    }
    qn_norm_copy(out, in, kept, in.text.size);
}

static qn_status run_nonspacing(const qn_norm_step *s, qn_norm_input in,
                                qn_norm_text *out)
{
    (void)s;
    drop_classes(in, out, QN_UC_NONSPACING);
    return QN_OK;
}

static qn_status run_strip_accents(const qn_norm_step *s, qn_norm_input in,
                                   qn_norm_text *out)
{
    (void)s;
    drop_classes(in, out, QN_UC_MARK);
    return QN_OK;
}

const qn_norm_kind qn_norm_clean_kind = {"", NULL, run_clean, 0};
const qn_norm_kind qn_norm_chinese_kind = {"", NULL, run_chinese, 0};
const qn_norm_kind qn_norm_nonspacing_kind = {"", NULL, run_nonspacing, 0};

/* ---- Nmt ---- */

static bool nmt_drops(uint32_t code)
{
    return (code >= 0x01 && code <= 0x08) || code == 0x0b ||
           (code >= 0x0e && code <= 0x1f) || code == 0x7f || code == 0x8f ||
           code == 0x9f;
}

static bool nmt_space(uint32_t code)
{
    return code == 0x09 || code == 0x0a || code == 0x0c || code == 0x0d ||
           code == 0x1680 || (code >= 0x200b && code <= 0x200f) ||
           code == 0x2028 || code == 0x2029 || code == 0x2581 ||
           code == 0xfeff || code == 0xfffd;
}

static qn_status run_nmt(const qn_norm_step *s, qn_norm_input in,
                         qn_norm_text *out)
{
    (void)s;
    for (size_t i = 0; i < in.text.size;) {
        uint32_t code;
        size_t end = i + (size_t)qn_uc_next(in.text.data + i, &code);
        if (nmt_space(code))
            qn_norm_emit(out, " ", 1, in, i, end);
        else if (!nmt_drops(code))
            qn_norm_copy(out, in, i, end);
        i = end;
    }
    return QN_OK;
}

/* ---- Precompiled ---- */

static qn_status parse_precompiled(qn_norm_step *s, const qn_json *value,
                                   const qn_jpath *at)
{
    qn_str text = QN_STR("");
    qn_status status = qn_jpath_str(at, value, "precompiled_charsmap", &text);
    if (status || !text.size) /* no rules: nothing changes */
        return status;
    qn_buf blob = QN_BUF_INIT;
    status = qn_base64_decode(&blob, text);
    if (!status)
        status = qn_charsmap_new(
            &s->charsmap,
            (qn_bytes){(const uint8_t *)qn_buf_str(&blob).data, blob.size});
    qn_buf_free(&blob);
    return status ? qn_jpath_where(QN_JPATH_KEY(at, "precompiled_charsmap"),
                                   status)
                  : QN_OK;
}

/* End of the grapheme cluster that starts at `at`. */
static size_t cluster_end(qn_str text, size_t at)
{
    uint32_t code;
    utf8proc_int32_t state = 0;
    at += (size_t)qn_uc_next(text.data + at, &code);
    while (at < text.size) {
        uint32_t next;
        size_t length = (size_t)qn_uc_next(text.data + at, &next);
        if (code < 0x80 && next < 0x80) {
            /* Of ASCII, only a line's end has two characters. */
            if (code != '\r' || next != '\n')
                break;
        } else if (utf8proc_grapheme_break_stateful((utf8proc_int32_t)code,
                                                    (utf8proc_int32_t)next,
                                                    &state)) {
            break;
        }
        code = next;
        at += length;
    }
    return at;
}

/* A small cluster is looked up as a whole, and what its beginning is replaced
 * by stands for all of it; other characters are looked up one by one. */
static qn_status run_precompiled(const qn_norm_step *s, qn_norm_input in,
                                 qn_norm_text *out)
{
    enum { SMALL = 5 };
    if (!s->charsmap) {
        qn_norm_copy(out, in, 0, in.text.size);
        return QN_OK;
    }
    qn_str to;
    for (size_t i = 0; i < in.text.size;) {
        size_t end = cluster_end(in.text, i);
        qn_str cluster = {in.text.data + i, end - i};
        if (cluster.size <= SMALL &&
            qn_charsmap_find(s->charsmap, cluster, &to)) {
            qn_norm_emit(out, to.data, to.size, in, i, end);
            i = end;
            continue;
        }
        while (i < end) {
            uint32_t code;
            size_t length = (size_t)qn_uc_next(in.text.data + i, &code);
            qn_str one = {in.text.data + i, length};
            if (qn_charsmap_find(s->charsmap, one, &to))
                qn_norm_emit(out, to.data, to.size, in, i, i + length);
            else
                qn_norm_copy(out, in, i, i + length);
            i += length;
        }
    }
    return QN_OK;
}

/* SentencePiece's own way: at each place the longest key. */
static qn_status run_longest(const qn_norm_step *s, qn_norm_input in,
                             qn_norm_text *out)
{
    for (size_t i = 0; i < in.text.size;) {
        qn_str to, rest = {in.text.data + i, in.text.size - i};
        size_t used;
        if (qn_charsmap_longest(s->charsmap, rest, &to, &used)) {
            qn_norm_emit(out, to.data, to.size, in, i, i + used);
            i += used;
            continue;
        }
        uint32_t code;
        size_t length = (size_t)qn_uc_next(rest.data, &code);
        qn_norm_copy(out, in, i, i + length);
        i += length;
    }
    return QN_OK;
}

const qn_norm_kind qn_norm_longest_kind = {"", NULL, run_longest, 0};

/* ---- ByteLevel ---- */

static qn_status run_byte_level(const qn_norm_step *s, qn_norm_input in,
                                qn_norm_text *out)
{
    (void)s;
    for (size_t i = 0; i < in.text.size; i++) {
        char text[2];
        int size = qn_bytelevel_spell((uint8_t)in.text.data[i], text);
        qn_norm_emit(out, text, (size_t)size, in, i, i + 1);
    }
    return QN_OK;
}

const qn_norm_kind *qn_norm_mapping_kind(qn_str type)
{
    static const qn_norm_kind kinds[] = {
        {"StripAccents", NULL, run_strip_accents, 0},
        {"Nmt", NULL, run_nmt, 0},
        {"Precompiled", parse_precompiled, run_precompiled, 0},
        {"ByteLevel", NULL, run_byte_level, 0},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (qn_str_is(type, kinds[i].type))
            return &kinds[i];
    }
    return NULL;
}
