/* pretok.c: the pre-tokenizers of tokenizer.json.
 *
 * A Sequence is flattened when it is read, so a pre-tokenizer is a list of
 * steps, each of which cuts every word of the list so far.  Adding one is a
 * row in `kinds`.  Most rows only have to find matches; `cut` makes words of
 * matches and what lies between, by the step's behavior.  Steps that change
 * text write a new one.
 *
 * ByteLevel does not spell bytes as characters here: the words stay bytes and
 * the model reads its vocabulary accordingly.  Hence it must come last. */
#include "pretok.h"

#include "base/alloc.h"
#include "find.h"
#include "regex.h"
#include "unicode.h"

enum { STEPS_MAX = 64 };

typedef enum behavior {
    REMOVED,
    ISOLATED,
    MERGED_WITH_PREVIOUS,
    MERGED_WITH_NEXT,
    CONTIGUOUS
} behavior;

typedef struct step step;

typedef struct kind {
    const char *type;
    qn_status (*parse)(step *s, const qn_json *value, const qn_jpath *at);
    qn_status (*run)(const step *s, qn_words *words);
} kind;

struct step {
    const kind *kind;
    behavior behavior;
    bool invert;
    /* What to split on; the first that is set. */
    qn_split_next next;
    qn_regex *regex;
    char *literal; /* Split by a string; Metaspace's replacement; owned */
    size_t literal_size;
    unsigned classes;  /* a character of these classes */
    bool prefix_space; /* ByteLevel */
    bool split;        /* Metaspace */
    enum { ALWAYS, FIRST, NEVER } prepend;
};

struct qn_pretok {
    step *steps;
    size_t count;
    bool byte_level;
};

/* ---- word lists ---- */

static qn_status add_word(qn_word_list *list, size_t begin, size_t end)
{
    if (begin == end)
        return QN_OK;
    if (list->size == list->capacity) {
        size_t capacity = list->capacity ? 2 * list->capacity : 64;
        qn_word *data = qn_reallocarray(list->data, capacity, sizeof *data);
        if (!data)
            return QN_E_NOMEM;
        list->data = data;
        list->capacity = capacity;
    }
    list->data[list->size++] = (qn_word){begin, end};
    return QN_OK;
}

void qn_words_free(qn_words *words)
{
    qn_free(words->list.data);
    qn_free(words->spare.data);
    qn_buf_free(&words->rewritten);
    qn_buf_free(&words->spare_text);
    *words = (qn_words){0};
}

/* The words in `spare` become the list. */
static void take_spare(qn_words *words)
{
    qn_word_list list = words->list;
    words->list = words->spare;
    words->spare = list;
    words->spare.size = 0;
}

/* ---- from matches to words ---- */

/* Makes words of one word's matches, which come in order by add_match; each
 * is preceded by what lies between it and the one before. */
typedef struct cutter {
    const step *step;
    qn_word_list *out;
    size_t end;   /* of the last match */
    qn_word open; /* a word that may still grow, if `has_open` */
    bool has_open;
    bool last_match; /* the last piece was a match */
} cutter;

static qn_status close_word(cutter *c)
{
    bool has_open = c->has_open;
    c->has_open = false;
    return has_open ? add_word(c->out, c->open.begin, c->open.end) : QN_OK;
}

static qn_status add_piece(cutter *c, size_t begin, size_t end, bool match)
{
    if (begin == end)
        return QN_OK;
    match ^= c->step->invert;
    bool joins = false;
    switch (c->step->behavior) {
    case REMOVED:
        return match ? QN_OK : add_word(c->out, begin, end);
    case ISOLATED:
        return add_word(c->out, begin, end);
    case MERGED_WITH_PREVIOUS:
        joins = match && !c->last_match;
        break;
    case MERGED_WITH_NEXT:
        joins = !match && c->last_match;
        break;
    case CONTIGUOUS:
        joins = match == c->last_match;
        break;
    }
    c->last_match = match;
    if (joins && c->has_open) {
        c->open.end = end;
        return QN_OK;
    }
    qn_status status = close_word(c);
    c->open = (qn_word){begin, end};
    c->has_open = true;
    return status;
}

static qn_status add_match(cutter *c, size_t begin, size_t end)
{
    qn_status status = add_piece(c, c->end, begin, false);
    c->end = end;
    return status ? status : add_piece(c, begin, end, true);
}

/* ---- finding matches in one word ---- */

static qn_status cut_by_rule(cutter *c, const char *text, qn_word word)
{
    for (size_t at = word.begin; at < word.end;) {
        size_t size = c->step->next(text + at, text + word.end);
        qn_status status = add_match(c, at, at + size);
        if (status)
            return status;
        at += size;
    }
    return QN_OK;
}

static qn_status cut_by_regex(cutter *c, qn_regex_run *run, const char *text,
                              qn_word word)
{
    qn_str part = {text + word.begin, word.end - word.begin};
    qn_regex_scan scan = {0};
    while (scan.from < part.size) {
        bool found;
        size_t begin, end;
        qn_status status =
            qn_regex_next(run, part, &scan, &found, &begin, &end);
        if (!status && found)
            status = add_match(c, word.begin + begin, word.begin + end);
        if (status || !found)
            return status;
    }
    return QN_OK;
}

static qn_status cut_by_literal(cutter *c, const char *text, qn_word word)
{
    const step *s = c->step;
    size_t at = word.begin;
    while (s->literal_size) {
        const char *hit = qn_find((qn_str){text + at, word.end - at},
                                  (qn_str){s->literal, s->literal_size});
        if (!hit)
            break;
        size_t begin = (size_t)(hit - text);
        at = begin + s->literal_size;
        qn_status status = add_match(c, begin, at);
        if (status)
            return status;
    }
    return QN_OK;
}

static qn_status cut_by_class(cutter *c, const char *text, qn_word word)
{
    for (size_t at = word.begin; at < word.end;) {
        uint32_t code;
        size_t size = (size_t)qn_uc_next(text + at, &code);
        if (qn_uc_class(code) & c->step->classes) {
            qn_status status = add_match(c, at, at + size);
            if (status)
                return status;
        }
        at += size;
    }
    return QN_OK;
}

/* Cuts every word of the list. */
static qn_status run_split(const step *s, qn_words *words)
{
    qn_regex_run *run = NULL;
    qn_status status = QN_OK;
    if (!s->next && s->regex)
        status = qn_regex_run_new(&run, s->regex, words->text.size);
    words->spare.size = 0;
    const char *text = words->text.data;
    for (size_t i = 0; !status && i < words->list.size; i++) {
        qn_word word = words->list.data[i];
        cutter c = {.step = s, .out = &words->spare, .end = word.begin};
        if (s->next)
            status = cut_by_rule(&c, text, word);
        else if (s->regex)
            status = cut_by_regex(&c, run, text, word);
        else if (s->literal)
            status = cut_by_literal(&c, text, word);
        else
            status = cut_by_class(&c, text, word);
        if (!status)
            status = add_piece(&c, c.end, word.end, false);
        if (!status)
            status = close_word(&c);
    }
    qn_regex_run_free(run);
    take_spare(words);
    return status;
}

/* ---- Split ---- */

static qn_status parse_behavior(step *s, const qn_json *value,
                                const qn_jpath *at)
{
    static const struct {
        const char *name;
        behavior behavior;
    } names[] = {
        {"Removed", REMOVED},
        {"Isolated", ISOLATED},
        {"MergedWithPrevious", MERGED_WITH_PREVIOUS},
        {"MergedWithNext", MERGED_WITH_NEXT},
        {"Contiguous", CONTIGUOUS},
    };
    qn_str name;
    qn_status status = qn_jpath_need_str(at, value, "behavior", &name);
    if (status)
        return status;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (qn_str_is(name, names[i].name)) {
            s->behavior = names[i].behavior;
            return QN_OK;
        }
    }
    return qn_jpath_fail(QN_JPATH_KEY(at, "behavior"), QN_E_UNSUPPORTED,
                         "behavior '%.*s' is not supported",
                         (int)(name.size < 64 ? name.size : 64), name.data);
}

static qn_status keep_literal(step *s, qn_str text)
{
    s->literal = qn_strndup(text.data, text.size);
    s->literal_size = text.size;
    return s->literal ? QN_OK : QN_E_NOMEM;
}

/* The rules match all there is, so what is between matches is empty. */
static bool keeps_matches(const step *s)
{
    return s->behavior == REMOVED ? s->invert : s->behavior == ISOLATED;
}

static qn_status parse_split(step *s, const qn_json *value, const qn_jpath *at)
{
    qn_status status = parse_behavior(s, value, at);
    if (!status)
        status = qn_jpath_bool(at, value, "invert", &s->invert);
    if (status)
        return status;
    const qn_json *pattern = qn_json_get(value, "pattern");
    const qn_jpath *place = QN_JPATH_KEY(at, "pattern");
    qn_str text = QN_STR("");
    status = qn_jpath_str(place, pattern, "Regex", &text);
    if (status)
        return status;
    if (!text.size) {
        status = qn_jpath_need_str(place, pattern, "String", &text);
        return status ? status : keep_literal(s, text);
    }
    const qn_split_rule *rule = qn_split_rule_for(text);
    if (rule && keeps_matches(s)) {
        s->next = rule->next;
        return QN_OK;
    }
    status = qn_regex_new(&s->regex, text);
    return status ? qn_jpath_where(QN_JPATH_KEY(place, "Regex"), status)
                  : QN_OK;
}

/* ---- classes of characters ---- */

static qn_status parse_digits(step *s, const qn_json *value, const qn_jpath *at)
{
    bool individual = false;
    qn_status status =
        qn_jpath_bool(at, value, "individual_digits", &individual);
    s->behavior = individual ? ISOLATED : CONTIGUOUS;
    s->classes = QN_UC_NUMBER;
    return status;
}

static qn_status parse_punctuation(step *s, const qn_json *value,
                                   const qn_jpath *at)
{
    s->behavior = ISOLATED;
    s->classes = QN_UC_PUNCT;
    return qn_json_get(value, "behavior") ? parse_behavior(s, value, at)
                                          : QN_OK;
}

static qn_status parse_whitespace_split(step *s, const qn_json *value,
                                        const qn_jpath *at)
{
    (void)value;
    (void)at;
    s->behavior = REMOVED;
    s->classes = QN_UC_SPACE;
    return QN_OK;
}

/* Whitespace: runs of word characters, and runs of what is neither these nor
 * white space. */
static qn_status run_whitespace(const step *s, qn_words *words)
{
    enum { KINDS = QN_UC_WORD | QN_UC_SPACE };
    (void)s;
    qn_status status = QN_OK;
    words->spare.size = 0;
    for (size_t i = 0; !status && i < words->list.size; i++) {
        qn_word word = words->list.data[i];
        while (!status && word.begin < word.end) {
            size_t at = word.begin;
            unsigned run = 0;
            while (at < word.end) {
                uint32_t code;
                size_t size = (size_t)qn_uc_next(words->text.data + at, &code);
                unsigned next = qn_uc_class(code) & KINDS;
                if (at > word.begin && next != run)
                    break;
                run = next;
                at += size;
            }
            if (!(run & QN_UC_SPACE))
                status = add_word(&words->spare, word.begin, at);
            word.begin = at;
        }
    }
    take_spare(words);
    return status;
}

/* BertPreTokenizer: white space goes, punctuation is words of its own. */
static qn_status run_bert(const step *s, qn_words *words)
{
    (void)s;
    const step spaces = {.behavior = REMOVED, .classes = QN_UC_SPACE};
    const step marks = {.behavior = ISOLATED, .classes = QN_UC_PUNCT};
    qn_status status = run_split(&spaces, words);
    return status ? status : run_split(&marks, words);
}

static qn_status parse_nothing(step *s, const qn_json *value,
                               const qn_jpath *at)
{
    (void)s;
    (void)value;
    (void)at;
    return QN_OK;
}

/* ---- ByteLevel ---- */

static qn_status parse_byte_level(step *s, const qn_json *value,
                                  const qn_jpath *at)
{
    bool use_regex = true;
    s->prefix_space = true;
    s->behavior = ISOLATED;
    qn_status status =
        qn_jpath_bool(at, value, "add_prefix_space", &s->prefix_space);
    if (!status)
        status = qn_jpath_bool(at, value, "use_regex", &use_regex);
    if (!status && use_regex)
        s->next = qn_split_rule_named(QN_STR("gpt-2"))->next;
    return status;
}

/* Starts a new text.  Words are then appended to it, with their ranges in
 * `spare`; finish_rewrite makes both current. */
static void begin_rewrite(qn_words *words)
{
    qn_buf_clear(&words->spare_text);
    words->spare.size = 0;
}

static qn_status finish_rewrite(qn_words *words)
{
    qn_status status = qn_buf_status(&words->spare_text);
    qn_buf text = words->rewritten;
    words->rewritten = words->spare_text;
    words->spare_text = text;
    words->text = qn_buf_str(&words->rewritten);
    take_spare(words);
    return status;
}

static qn_status add_prefix_spaces(qn_words *words)
{
    qn_status status = QN_OK;
    begin_rewrite(words);
    for (size_t i = 0; !status && i < words->list.size; i++) {
        qn_word word = words->list.data[i];
        size_t begin = words->spare_text.size;
        if (words->text.data[word.begin] != ' ')
            qn_buf_add_char(&words->spare_text, ' ');
        qn_buf_add(&words->spare_text, words->text.data + word.begin,
                   word.end - word.begin);
        status = add_word(&words->spare, begin, words->spare_text.size);
    }
    qn_status finished = finish_rewrite(words);
    return status ? status : finished;
}

static qn_status run_byte_level(const step *s, qn_words *words)
{
    qn_status status = s->prefix_space ? add_prefix_spaces(words) : QN_OK;
    return status || !s->next ? status : run_split(s, words);
}

/* ---- Metaspace ---- */

static qn_status parse_metaspace(step *s, const qn_json *value,
                                 const qn_jpath *at)
{
    qn_str replacement = QN_STR("\xe2\x96\x81"), scheme = QN_STR("always");
    bool prefix = true; /* older files say it this way */
    s->split = true;
    s->behavior = MERGED_WITH_NEXT;
    qn_status status = qn_jpath_str(at, value, "replacement", &replacement);
    if (!status)
        status = qn_jpath_bool(at, value, "add_prefix_space", &prefix);
    if (!status)
        status = qn_jpath_str(at, value, "prepend_scheme", &scheme);
    if (!status)
        status = qn_jpath_bool(at, value, "split", &s->split);
    if (status)
        return status;
    uint32_t code;
    if (!replacement.size ||
        (size_t)qn_uc_next(replacement.data, &code) != replacement.size)
        return qn_jpath_fail(QN_JPATH_KEY(at, "replacement"), QN_E_FORMAT,
                             "expected one character, found %zu bytes",
                             replacement.size);
    if (!prefix || qn_str_is(scheme, "never"))
        s->prepend = NEVER;
    else if (qn_str_is(scheme, "first"))
        s->prepend = FIRST;
    else if (qn_str_is(scheme, "always"))
        s->prepend = ALWAYS;
    else
        return qn_jpath_fail(
            QN_JPATH_KEY(at, "prepend_scheme"), QN_E_UNSUPPORTED,
            "expected always, first or never, found '%.*s'",
            (int)(scheme.size < 64 ? scheme.size : 64), scheme.data);
    return keep_literal(s, replacement);
}

static qn_status run_metaspace(const step *s, qn_words *words)
{
    qn_status status = QN_OK;
    qn_str mark = {s->literal, s->literal_size};
    begin_rewrite(words);
    for (size_t i = 0; !status && i < words->list.size; i++) {
        qn_word word = words->list.data[i];
        const char *p = words->text.data + word.begin;
        const char *end = words->text.data + word.end;
        size_t begin = words->spare_text.size;
        bool first = words->at_start && word.begin == 0;
        bool marked = *p == ' ' || ((size_t)(end - p) >= mark.size &&
                                    !memcmp(p, mark.data, mark.size));
        if (!marked && (s->prepend == ALWAYS || (s->prepend == FIRST && first)))
            qn_buf_add_str(&words->spare_text, mark);
        while (p < end) {
            const char *space = memchr(p, ' ', (size_t)(end - p));
            const char *stop = space ? space : end;
            qn_buf_add(&words->spare_text, p, (size_t)(stop - p));
            if (space)
                qn_buf_add_str(&words->spare_text, mark);
            p = space ? space + 1 : end;
        }
        status = add_word(&words->spare, begin, words->spare_text.size);
    }
    qn_status finished = finish_rewrite(words);
    if (!status)
        status = finished;
    return status || !s->split ? status : run_split(s, words);
}

/* ---- the table ---- */

static const kind byte_level_kind = {"ByteLevel", parse_byte_level,
                                     run_byte_level};
static const kind digits_kind = {"Digits", parse_digits, run_split};
static const kind split_kind = {"Split", parse_split, run_split};
static const kind metaspace_kind = {"Metaspace", parse_metaspace,
                                    run_metaspace};
static const kind punctuation_kind = {"Punctuation", parse_punctuation,
                                      run_split};
static const kind whitespace_kind = {"Whitespace", parse_nothing,
                                     run_whitespace};
static const kind whitespace_split_kind = {"WhitespaceSplit",
                                           parse_whitespace_split, run_split};

static const kind bert_kind = {"BertPreTokenizer", parse_nothing, run_bert};

static const kind *const kinds[] = {
    &byte_level_kind,       &digits_kind,      &split_kind,
    &metaspace_kind,        &punctuation_kind, &whitespace_kind,
    &whitespace_split_kind, &bert_kind};

static const kind *find_kind(qn_str type)
{
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (qn_str_is(type, kinds[i]->type))
            return kinds[i];
    }
    return NULL;
}

static qn_status parse_into(qn_pretok *p, const qn_json *value,
                            const qn_jpath *at)
{
    qn_str type;
    qn_status status = qn_jpath_type(at, value, &type);
    if (status)
        return status;
    if (qn_str_is(type, "Sequence")) {
        const qn_json *list;
        status = qn_jpath_need_array(at, value, "pretokenizers", &list);
        const qn_jpath *place = QN_JPATH_KEY(at, "pretokenizers");
        for (size_t i = 0; !status && i < list->count; i++)
            status = parse_into(p, &list->items[i], QN_JPATH_ITEM(place, i));
        return status;
    }
    const kind *found = find_kind(type);
    if (!found)
        return qn_jpath_fail(QN_JPATH_KEY(at, "type"), QN_E_UNSUPPORTED,
                             "pre-tokenizer '%.*s' is not supported",
                             (int)(type.size < 64 ? type.size : 64), type.data);
    if (p->byte_level)
        return qn_jpath_fail(at, QN_E_UNSUPPORTED,
                             "a pre-tokenizer after ByteLevel is not "
                             "supported");
    if (p->count == STEPS_MAX)
        return qn_jpath_fail(at, QN_E_UNSUPPORTED,
                             "expected at most %d pre-tokenizers", STEPS_MAX);
    step *s = &p->steps[p->count++];
    s->kind = found;
    p->byte_level = found == &byte_level_kind;
    return found->parse(s, value, at);
}

/* Single digits, then GPT-2's words: there is one rule for both. */
static void join_smollm(qn_pretok *p)
{
    step *s = p->steps;
    qn_split_next gpt2 = qn_split_rule_named(QN_STR("gpt-2"))->next;
    if (p->count != 2 || s[0].kind != &digits_kind ||
        s[0].behavior != ISOLATED || s[1].kind != &byte_level_kind ||
        s[1].prefix_space || s[1].next != gpt2)
        return;
    s[0] = s[1];
    s[0].next = qn_split_rule_named(QN_STR("smollm"))->next;
    p->count = 1;
}

static qn_pretok *new_pretok(void)
{
    qn_pretok *p = qn_calloc(1, sizeof *p);
    if (!p)
        return NULL;
    p->steps = qn_calloc(STEPS_MAX, sizeof *p->steps);
    if (!p->steps) {
        qn_free(p);
        return NULL;
    }
    return p;
}

qn_status qn_pretok_parse(qn_pretok **out, const qn_json *value,
                          const qn_jpath *at)
{
    *out = NULL;
    if (!value || value->type == QN_JSON_T_NULL)
        return QN_OK;
    qn_pretok *p = new_pretok();
    if (!p)
        return QN_E_NOMEM;
    qn_status status = parse_into(p, value, at);
    if (status) {
        qn_pretok_free(p);
        return status;
    }
    join_smollm(p);
    *out = p;
    return QN_OK;
}

qn_status qn_pretok_from_rule(qn_pretok **out, const qn_split_rule *rule)
{
    qn_pretok *p = new_pretok();
    if (!p)
        return QN_E_NOMEM;
    p->byte_level = true;
    qn_status status = QN_OK;
    if (rule->next) {
        p->steps[p->count++] = (step){
            .kind = &split_kind, .behavior = ISOLATED, .next = rule->next};
    }
    for (int i = 0;
         !rule->next && !status && i < QN_SPLIT_PATTERNS && rule->patterns[i];
         i++) {
        step *s = &p->steps[p->count++];
        *s = (step){.kind = &split_kind, .behavior = ISOLATED};
        status = qn_regex_new(&s->regex, qn_str_of(rule->patterns[i]));
    }
    if (status) {
        qn_pretok_free(p);
        return status;
    }
    *out = p;
    return QN_OK;
}

void qn_pretok_free(qn_pretok *pretok)
{
    if (!pretok)
        return;
    for (size_t i = 0; i < pretok->count; i++) {
        qn_regex_free(pretok->steps[i].regex);
        qn_free(pretok->steps[i].literal);
    }
    qn_free(pretok->steps);
    qn_free(pretok);
}

bool qn_pretok_is_byte_level(const qn_pretok *pretok)
{
    return pretok && pretok->byte_level;
}

qn_status qn_pretok_run(const qn_pretok *pretok, qn_words *words, qn_str text,
                        bool at_start)
{
    words->text = text;
    words->at_start = at_start;
    words->list.size = 0;
    qn_status status = add_word(&words->list, 0, text.size);
    size_t count = pretok ? pretok->count : 0;
    for (size_t i = 0; !status && i < count; i++) {
        const step *s = &pretok->steps[i];
        status = s->kind->run(s, words);
    }
    return status;
}
