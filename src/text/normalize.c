/* normalize.c: the normalizers of tokenizer.json.
 *
 * A Sequence is flattened when it is read, so a normalizer is a plain list.
 * Adding one is a row in `kinds`, here or in normalize_map.c: its name, how
 * its members are read, what it does.  Each step reads a text and appends to
 * another with qn_norm_emit, which keeps the marks. */
#include "normalize_impl.h"

#include "base/alloc.h"
#include "base/utf8.h"
#include "find.h"
#include "unicode.h"

enum {
    STEPS_MAX = 64,
    /* A file may ask to replace a by aa, 64 times over. */
    TEXT_MAX = 64 << 20
};

typedef qn_norm_step step;
typedef qn_norm_input input;
typedef qn_norm_kind kind;

struct qn_normalizer {
    step *steps;
    size_t count;
};

void qn_norm_text_free(qn_norm_text *text)
{
    qn_buf_free(&text->text);
    qn_buf_free(&text->marks);
}

/* ---- output ---- */

/* False when `more` bytes would make the text absurdly long. */
static bool has_room(qn_norm_text *out, size_t more)
{
    if (more <= TEXT_MAX && out->text.size <= TEXT_MAX - more)
        return true;
    if (!out->text.failed)
        qn_fail(QN_E_NOMEM, "normalized text exceeds %d bytes", TEXT_MAX);
    out->text.failed = true;
    return false;
}

void qn_norm_copy(qn_norm_text *out, input in, size_t begin, size_t end)
{
    if (begin == end || !has_room(out, end - begin))
        return;
    if (!out->text.size)
        out->cut_start |= begin > 0;
    qn_buf_add(&out->text, in.text.data + begin, end - begin);
    if (out->marked)
        qn_buf_add(&out->marks, in.marks + begin, end - begin);
}

void qn_norm_emit(qn_norm_text *out, const char *bytes, size_t size, input in,
                  size_t begin, size_t end)
{
    if (!size || !has_room(out, size))
        return;
    if (!out->text.size)
        out->cut_start |= begin > 0;
    qn_buf_add(&out->text, bytes, size);
    if (!out->marked)
        return;
    char mark = memchr(in.marks + begin, 1, end - begin) != NULL;
    for (size_t i = 0; i < size; i++)
        qn_buf_add_char(&out->marks, mark);
}

/* ---- Unicode normal forms ---- */

/* Code points of one stretch of text while it is normalized. */
typedef struct codes {
    int32_t *data, *sorted;
    size_t size, capacity;
} codes;

static qn_status reserve_codes(codes *c, size_t capacity)
{
    if (capacity <= c->capacity)
        return QN_OK;
    if (capacity < 2 * c->capacity)
        capacity = 2 * c->capacity;
    int32_t *data = qn_reallocarray(c->data, capacity, sizeof *data);
    if (!data)
        return QN_E_NOMEM;
    c->data = data;
    int32_t *sorted = qn_reallocarray(c->sorted, capacity, sizeof *sorted);
    if (!sorted)
        return QN_E_NOMEM;
    c->sorted = sorted;
    c->capacity = capacity;
    return QN_OK;
}

static unsigned combining_class(int32_t code)
{
    return (unsigned)utf8proc_get_property(code)->combining_class & 0xff;
}

/* Canonical order: each run of combining marks sorted by class, equals in
 * their order.  Counting keeps it linear however long the run is. */
static void order_marks(codes *c)
{
    for (size_t i = 0; i < c->size;) {
        if (!combining_class(c->data[i])) {
            i++;
            continue;
        }
        size_t begin = i, at[257] = {0};
        bool sorted = true;
        unsigned last = 0;
        for (; i < c->size; i++) {
            unsigned class = combining_class(c->data[i]);
            if (!class)
                break;
            sorted &= class >= last;
            last = class;
            at[class + 1]++;
        }
        if (sorted)
            continue;
        for (int class = 0; class < 256; class ++)
            at[class + 1] += at[class];
        for (size_t k = begin; k < i; k++)
            c->sorted[at[combining_class(c->data[k])]++] = c->data[k];
        memcpy(c->data + begin, c->sorted, (i - begin) * sizeof *c->data);
    }
}

/* Decomposes `text` into *c. */
static qn_status decompose(codes *c, qn_str text, utf8proc_option_t form)
{
    enum { LONGEST = 32 }; /* U+FDFA: 18 code points */
    c->size = 0;
    const char *p = text.data, *end = p + text.size;
    while (p < end) {
        qn_status status = reserve_codes(c, c->size + LONGEST);
        if (status)
            return status;
        uint32_t code;
        p += qn_uc_next(p, &code);
        int last_class = 0;
        utf8proc_ssize_t size = utf8proc_decompose_char(
            (int32_t)code, c->data + c->size, LONGEST,
            (utf8proc_option_t)(form | UTF8PROC_STABLE), &last_class);
        if (size < 0 || size > LONGEST)
            return qn_fail(QN_E_INTERNAL, "utf8proc: %s",
                           utf8proc_errmsg(size));
        c->size += (size_t)size;
    }
    return QN_OK;
}

static qn_status normal_form(const step *s, codes *c, qn_buf *buf, input in,
                             size_t begin, size_t end, qn_norm_text *out)
{
    qn_str text = {in.text.data + begin, end - begin};
    qn_status status = decompose(c, text, s->kind->form);
    if (status)
        return status;
    order_marks(c);
    if (s->kind->form & UTF8PROC_COMPOSE) {
        utf8proc_ssize_t size =
            utf8proc_normalize_utf32(c->data, (utf8proc_ssize_t)c->size,
                                     UTF8PROC_COMPOSE | UTF8PROC_STABLE);
        if (size < 0)
            return qn_fail(QN_E_INTERNAL, "utf8proc: %s",
                           utf8proc_errmsg(size));
        c->size = (size_t)size;
    }
    qn_buf_clear(buf);
    for (size_t i = 0; i < c->size; i++)
        qn_buf_add_code(buf, (uint32_t)c->data[i]);
    if (buf->failed)
        return QN_E_NOMEM;
    if (qn_str_eq(qn_buf_str(buf), text))
        qn_norm_copy(out, in, begin, end);
    else
        qn_norm_emit(out, buf->data, buf->size, in, begin, end);
    return QN_OK;
}

/* ASCII stays as it is, except that a letter may compose with marks after
 * it.  So a stretch to normalize begins at the last ASCII character before
 * others and ends at the next one: no form reaches across its ends. */
static qn_status run_form(const step *s, input in, qn_norm_text *out)
{
    codes c = {0};
    qn_buf buf = QN_BUF_INIT;
    qn_status status = QN_OK;
    size_t i = 0;
    while (!status && i < in.text.size) {
        size_t begin = i;
        while (i < in.text.size && (uint8_t)in.text.data[i] < 0x80)
            i++;
        if (i == in.text.size) {
            qn_norm_copy(out, in, begin, i);
            break;
        }
        size_t stretch = i > begin ? i - 1 : i;
        qn_norm_copy(out, in, begin, stretch);
        while (i < in.text.size && (uint8_t)in.text.data[i] >= 0x80)
            i++;
        status = normal_form(s, &c, &buf, in, stretch, i, out);
    }
    qn_free(c.data);
    qn_free(c.sorted);
    qn_buf_free(&buf);
    return status;
}

/* ---- single characters ---- */

/* The lower case of one character.  utf8proc may be older than the pairs that
 * came with Unicode 16. */
static uint32_t lower_of(uint32_t code)
{
    switch (code) {
    case 0x1c89:
    case 0xa7cc:
    case 0xa7da:
        return code + 1;
    case 0xa7cb:
        return 0x264;
    case 0xa7dc:
        return 0x19b;
    default:
        break;
    }
    if (code >= 0x10d50 && code <= 0x10d65)
        return code + 0x20;
    return (uint32_t)utf8proc_tolower((utf8proc_int32_t)code);
}

static qn_status run_lowercase(const step *s, input in, qn_norm_text *out)
{
    (void)s;
    size_t kept = 0; /* what is in lower case already, from here on */
    for (size_t i = 0; i < in.text.size;) {
        uint32_t code;
        size_t end = i + (size_t)qn_uc_next(in.text.data + i, &code);
        uint32_t to = code;
        if (code >= 0x80)
            to = lower_of(code);
        else if (code >= 'A' && code <= 'Z')
            to = code + ('a' - 'A');
        if (to != code) {
            /* U+0130 is the one with a two-character lower case. */
            char lower[4] = "i\xcc\x87";
            int size = code == 0x130 ? 3 : qn_utf8_encode(to, lower);
            qn_norm_copy(out, in, kept, i);
            qn_norm_emit(out, lower, (size_t)size, in, i, end);
            kept = end;
        }
        i = end;
    }
    qn_norm_copy(out, in, kept, in.text.size);
    return QN_OK;
}

static qn_status parse_strip(step *s, const qn_json *value, const qn_jpath *at)
{
    s->left = s->right = true;
    qn_status status = qn_jpath_bool(at, value, "strip_left", &s->left);
    return status ? status : qn_jpath_bool(at, value, "strip_right", &s->right);
}

static qn_status run_strip(const step *s, input in, qn_norm_text *out)
{
    size_t begin = 0, end = in.text.size;
    uint32_t code;
    while (s->left && begin < end) {
        int length = qn_uc_next(in.text.data + begin, &code);
        if (!qn_uc_is_space(code))
            break;
        begin += (size_t)length;
    }
    while (s->right && begin < end) {
        int length = qn_uc_prev(in.text.data + end, &code);
        if (!qn_uc_is_space(code))
            break;
        end -= (size_t)length;
    }
    qn_norm_copy(out, in, begin, end);
    return QN_OK;
}

/* ---- Prepend, Replace ---- */

static qn_status keep(char **out, size_t *size, qn_str text)
{
    *out = qn_strndup(text.data, text.size);
    *size = text.size;
    return *out ? QN_OK : QN_E_NOMEM;
}

static qn_status parse_prepend(step *s, const qn_json *value,
                               const qn_jpath *at)
{
    qn_str text;
    qn_status status = qn_jpath_need_str(at, value, "prepend", &text);
    return status ? status : keep(&s->content, &s->content_size, text);
}

static qn_status run_prepend(const step *s, input in, qn_norm_text *out)
{
    if (!in.text.size)
        return QN_OK;
    qn_norm_emit(out, s->content, s->content_size, in, 0, 0);
    qn_norm_copy(out, in, 0, in.text.size);
    return QN_OK;
}

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
    if (status)
        return status;
    if (text.size) {
        status = qn_regex_new(&s->regex, text);
        return status ? qn_jpath_where(QN_JPATH_KEY(place, "Regex"), status)
                      : QN_OK;
    }
    status = qn_jpath_need_str(place, pattern, "String", &text);
    return status ? status : keep(&s->pattern, &s->pattern_size, text);
}

static qn_status replace_regex(const step *s, input in, qn_norm_text *out)
{
    qn_regex_run *run = NULL;
    qn_status status = qn_regex_run_new(&run, s->regex, in.text.size);
    qn_regex_scan scan = {0};
    size_t at = 0, begin, end;
    /* An empty text has no matches. */
    bool found = !status && in.text.size;
    while (found) {
        status = qn_regex_next(run, in.text, &scan, &found, &begin, &end);
        if (status || !found)
            break;
        qn_norm_copy(out, in, at, begin);
        qn_norm_emit(out, s->content, s->content_size, in, begin, end);
        at = end;
    }
    if (!status)
        qn_norm_copy(out, in, at, in.text.size);
    qn_regex_run_free(run);
    return status;
}

static qn_status run_replace(const step *s, input in, qn_norm_text *out)
{
    if (s->regex)
        return replace_regex(s, in, out);
    size_t at = 0;
    while (s->pattern_size) {
        const char *hit =
            qn_find((qn_str){in.text.data + at, in.text.size - at},
                    (qn_str){s->pattern, s->pattern_size});
        if (!hit)
            break;
        size_t begin = (size_t)(hit - in.text.data);
        qn_norm_copy(out, in, at, begin);
        at = begin + s->pattern_size;
        qn_norm_emit(out, s->content, s->content_size, in, begin, at);
    }
    qn_norm_copy(out, in, at, in.text.size);
    return QN_OK;
}

/* ---- the table ---- */

static const kind nfd_kind = {"NFD", NULL, run_form, UTF8PROC_DECOMPOSE};
static const kind lowercase_kind = {"Lowercase", NULL, run_lowercase, 0};

static const kind kinds[] = {
    {"NFC", NULL, run_form, UTF8PROC_COMPOSE},
    {"NFD", NULL, run_form, UTF8PROC_DECOMPOSE},
    {"NFKC", NULL, run_form,
     (utf8proc_option_t)(UTF8PROC_COMPOSE | UTF8PROC_COMPAT)},
    {"NFKD", NULL, run_form,
     (utf8proc_option_t)(UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT)},
    {"Lowercase", NULL, run_lowercase, 0},
    {"Strip", parse_strip, run_strip, 0},
    {"Prepend", parse_prepend, run_prepend, 0},
    {"Replace", parse_replace, run_replace, 0},
};

static const kind *find_kind(qn_str type)
{
    const kind *mapping = qn_norm_mapping_kind(type);
    if (mapping)
        return mapping;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (qn_str_is(type, kinds[i].type))
            return &kinds[i];
    }
    return NULL;
}

static qn_status add_step(qn_normalizer *n, const kind *found,
                          const qn_json *value, const qn_jpath *at)
{
    if (n->count == STEPS_MAX)
        return qn_jpath_fail(at, QN_E_UNSUPPORTED,
                             "expected at most %d normalizers", STEPS_MAX);
    step *s = &n->steps[n->count++];
    s->kind = found;
    return found->parse ? found->parse(s, value, at) : QN_OK;
}

/* BertNormalizer is several steps; which, its members say. */
static qn_status parse_bert(qn_normalizer *n, const qn_json *value,
                            const qn_jpath *at)
{
    bool clean = true, chinese = true, lower = true;
    qn_status status = qn_jpath_bool(at, value, "clean_text", &clean);
    if (!status)
        status = qn_jpath_bool(at, value, "handle_chinese_chars", &chinese);
    if (!status)
        status = qn_jpath_bool(at, value, "lowercase", &lower);
    bool strip = lower; /* what null means */
    if (!status)
        status = qn_jpath_bool(at, value, "strip_accents", &strip);
    const struct {
        bool wanted;
        const kind *kind;
    } steps[] = {{clean, &qn_norm_clean_kind},
                 {chinese, &qn_norm_chinese_kind},
                 {strip, &nfd_kind},
                 {strip, &qn_norm_nonspacing_kind},
                 {lower, &lowercase_kind}};
    for (size_t i = 0; !status && i < sizeof steps / sizeof steps[0]; i++) {
        if (steps[i].wanted)
            status = add_step(n, steps[i].kind, value, at);
    }
    return status;
}

static qn_status parse_into(qn_normalizer *n, const qn_json *value,
                            const qn_jpath *at)
{
    qn_str type;
    qn_status status = qn_jpath_type(at, value, &type);
    if (status)
        return status;
    if (qn_str_is(type, "Sequence")) {
        const qn_json *list;
        status = qn_jpath_need_array(at, value, "normalizers", &list);
        const qn_jpath *place = QN_JPATH_KEY(at, "normalizers");
        for (size_t i = 0; !status && i < list->count; i++)
            status = parse_into(n, &list->items[i], QN_JPATH_ITEM(place, i));
        return status;
    }
    if (qn_str_is(type, "BertNormalizer"))
        return parse_bert(n, value, at);
    const kind *found = find_kind(type);
    if (!found)
        return qn_jpath_fail(QN_JPATH_KEY(at, "type"), QN_E_UNSUPPORTED,
                             "normalizer '%.*s' is not supported",
                             (int)(type.size < 64 ? type.size : 64), type.data);
    return add_step(n, found, value, at);
}

qn_status qn_normalizer_from_charsmap(qn_normalizer **out, qn_bytes charsmap,
                                      const qn_json *value, const qn_jpath *at)
{
    bool has_steps = value && value->type != QN_JSON_T_NULL;
    *out = NULL;
    if (!charsmap.size && !has_steps)
        return QN_OK;
    qn_normalizer *n = qn_calloc(1, sizeof *n);
    qn_status status = QN_E_NOMEM;
    if (!n)
        goto done;
    n->steps = qn_calloc(STEPS_MAX, sizeof *n->steps);
    if (!n->steps)
        goto done;
    status = QN_OK;
    if (charsmap.size) {
        step *s = &n->steps[n->count++];
        s->kind = &qn_norm_longest_kind;
        status = qn_charsmap_new(&s->charsmap, charsmap);
    }
    if (!status && has_steps)
        status = parse_into(n, value, at);
    if (status)
        goto done;
    *out = n;
    n = NULL;
done:
    qn_normalizer_free(n);
    return status;
}

qn_status qn_normalizer_parse(qn_normalizer **out, const qn_json *value,
                              const qn_jpath *at)
{
    return qn_normalizer_from_charsmap(out, (qn_bytes){0}, value, at);
}

void qn_normalizer_free(qn_normalizer *normalizer)
{
    if (!normalizer)
        return;
    for (size_t i = 0; i < normalizer->count; i++) {
        qn_free(normalizer->steps[i].pattern);
        qn_free(normalizer->steps[i].content);
        qn_regex_free(normalizer->steps[i].regex);
        qn_charsmap_free(normalizer->steps[i].charsmap);
    }
    qn_free(normalizer->steps);
    qn_free(normalizer);
}

qn_status qn_normalizer_run(const qn_normalizer *normalizer, qn_norm_text *out,
                            qn_str text, const char *marks)
{
    qn_norm_text spare = {.marked = marks != NULL};
    out->marked = marks != NULL;
    out->cut_start = false;
    input in = {text, marks};
    qn_status status = QN_OK;
    size_t count = normalizer ? normalizer->count : 0;
    qn_buf_clear(&out->text);
    qn_buf_clear(&out->marks);
    for (size_t i = 0; !status && i < count; i++) {
        /* The text so far becomes the input, the other one the output. */
        if (i > 0) {
            bool cut_start = out->cut_start;
            qn_norm_text swap = spare;
            spare = *out;
            *out = swap;
            out->cut_start = cut_start;
            qn_buf_clear(&out->text);
            qn_buf_clear(&out->marks);
            in.text = qn_buf_str(&spare.text);
            in.marks = marks ? qn_buf_str(&spare.marks).data : NULL;
        }
        const step *s = &normalizer->steps[i];
        status = s->kind->run(s, in, out);
        if (!status)
            status = qn_buf_status(&out->text);
        if (!status)
            status = qn_buf_status(&out->marks);
    }
    if (!count)
        qn_norm_copy(out, in, 0, in.text.size);
    if (!status)
        status = qn_buf_status(&out->text);
    if (!status)
        status = qn_buf_status(&out->marks);
    qn_norm_text_free(&spare);
    return status;
}
