/* split.c: the splitters.
 *
 * Each function follows its expression alternative by alternative.  The
 * classes are disjoint (a space is no letter and so on), so the class of one
 * or two characters decides which alternative matches; only white space has
 * to look further, for a newline or for what follows. */
#include "split.h"

#include "unicode.h"

#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define GPT2_WORDS                                                             \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|"       \
    "\\s+(?!\\S)|\\s+"
#define SPACES "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define TITLE "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"

enum { KINDS = QN_UC_LETTER | QN_UC_NUMBER | QN_UC_SPACE };

/* End of the run of characters with (class & mask) == kind that starts at p. */
static const char *run_end(const char *p, const char *end, unsigned mask,
                           unsigned kind)
{
    while (p < end) {
        uint32_t code;
        int length = qn_uc_next(p, &code);
        if ((qn_uc_class(code) & mask) != kind)
            break;
        p += length;
    }
    return p;
}

/* The white space p..end_of_run without its last character, which goes with
 * the word after it; all of it when it is one character or `last`. */
static size_t space_piece(const char *p, const char *run, bool last)
{
    if (last)
        return (size_t)(run - p);
    uint32_t code;
    const char *before = run - qn_uc_prev(run, &code);
    return before > p ? (size_t)(before - p) : (size_t)(run - p);
}

/* ---- GPT-2 and SmolLM ---- */

/* 's 't 're 've 'm 'll 'd at the apostrophe p; 0 when there is none. */
static size_t contraction(const char *p, const char *end)
{
    size_t left = (size_t)(end - p);
    if (left >= 2 && memchr("stmd", p[1], 4))
        return 2;
    if (left >= 3 && (!memcmp(p + 1, "re", 2) || !memcmp(p + 1, "ve", 2) ||
                      !memcmp(p + 1, "ll", 2)))
        return 3;
    return 0;
}

/* `digits_apart`: each number character is a piece, found before the words;
 * so for the words it is the end of the text. */
static size_t gpt2_piece(const char *p, const char *end, bool digits_apart)
{
    uint32_t code;
    int length = qn_uc_next(p, &code);
    unsigned kind = qn_uc_class(code) & KINDS;
    if (code == '\'') {
        size_t found = contraction(p, end);
        if (found)
            return found;
    }
    if (kind == QN_UC_NUMBER && digits_apart)
        return (size_t)length;
    const char *word = p;
    if (code == ' ' && p + 1 < end) {
        uint32_t next;
        qn_uc_next(p + 1, &next);
        unsigned next_kind = qn_uc_class(next) & KINDS;
        if (next_kind != QN_UC_SPACE &&
            !(next_kind == QN_UC_NUMBER && digits_apart)) {
            word = p + 1;
            kind = next_kind;
        }
    }
    const char *run = run_end(word, end, KINDS, kind);
    if (kind != QN_UC_SPACE)
        return (size_t)(run - p);
    bool last = run == end;
    if (!last && digits_apart) {
        qn_uc_next(run, &code);
        last = (qn_uc_class(code) & QN_UC_NUMBER) != 0;
    }
    return space_piece(p, run, last);
}

static size_t gpt2_next(const char *p, const char *end)
{
    return gpt2_piece(p, end, false);
}

static size_t smollm_next(const char *p, const char *end)
{
    return gpt2_piece(p, end, true);
}

/* ---- Llama 3, Qwen ---- */

static char ascii_lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c + ('a' - 'A')) : c;
}

/* The same contractions in any case.  U+017F, the long s, folds to s. */
static size_t contraction_any_case(const char *p, const char *end)
{
    size_t left = (size_t)(end - p);
    if (left < 2)
        return 0;
    char a = ascii_lower(p[1]);
    if (memchr("stmd", a, 4))
        return 2;
    if (left < 3)
        return 0;
    char b = ascii_lower(p[2]);
    if (((a == 'r' || a == 'v') && b == 'e') || (a == 'l' && b == 'l'))
        return 3;
    return !memcmp(p + 1, "\xc5\xbf", 2) ? 3 : 0;
}

static const char *newlines_end(const char *p, const char *end)
{
    while (p < end && (*p == '\r' || *p == '\n'))
        p++;
    return p;
}

/* White space at p: up to its last newline if it has one. */
static size_t space_or_newline_piece(const char *p, const char *end)
{
    const char *run = run_end(p, end, QN_UC_SPACE, QN_UC_SPACE);
    for (const char *q = run; q > p; q--) {
        if (q[-1] == '\r' || q[-1] == '\n')
            return (size_t)(q - p);
    }
    return space_piece(p, run, run == end);
}

/* `letters`: the classes that make a letter run; `digits`: how many number
 * characters make a piece. */
static size_t llama3_piece(const char *p, const char *end, unsigned letters,
                           int digits)
{
    const unsigned kinds = letters | QN_UC_NUMBER | QN_UC_SPACE;
    uint32_t code, next = 0;
    int length = qn_uc_next(p, &code);
    unsigned kind = qn_uc_class(code) & kinds;
    if (code == '\'') {
        size_t found = contraction_any_case(p, end);
        if (found)
            return found;
    }
    if (kind & letters) {
        while (p + length < end) {
            int more = qn_uc_next(p + length, &next);
            if (!(qn_uc_class(next) & letters))
                break;
            length += more;
        }
        return (size_t)length;
    }
    if (kind == QN_UC_NUMBER) {
        for (int n = 1; n < digits && p + length < end; n++) {
            int more = qn_uc_next(p + length, &next);
            if (!(qn_uc_class(next) & QN_UC_NUMBER))
                break;
            length += more;
        }
        return (size_t)length;
    }
    unsigned next_class = 0;
    bool more = p + length < end;
    if (more) {
        qn_uc_next(p + length, &next);
        next_class = qn_uc_class(next);
    }
    /* Any one character but a newline joins the letters after it. */
    if (next_class & letters && code != '\r' && code != '\n') {
        const char *run = p + length;
        while (run < end) {
            int one = qn_uc_next(run, &next);
            if (!(qn_uc_class(next) & letters))
                break;
            run += one;
        }
        return (size_t)(run - p);
    }
    if (!kind || (code == ' ' && more && !(next_class & kinds))) {
        const char *run = run_end(p + length, end, kinds, 0);
        return (size_t)(newlines_end(run, end) - p);
    }
    return space_or_newline_piece(p, end);
}

static size_t llama3_next(const char *p, const char *end)
{
    return llama3_piece(p, end, QN_UC_LETTER, 3);
}

static size_t qwen2_next(const char *p, const char *end)
{
    return llama3_piece(p, end, QN_UC_LETTER, 1);
}

static size_t qwen35_next(const char *p, const char *end)
{
    return llama3_piece(p, end, QN_UC_LETTER | QN_UC_MARK, 1);
}

/* ---- Tekken, o200k ---- */

enum { CASED = QN_UC_TITLE | QN_UC_LOWER };

/* End of the capitalized or lower-case word that starts at p (TITLE*LOWER+),
 * or NULL.  The upper run takes marks and letters without case as well; where
 * no small letter follows it, it gives back what is behind the last of them. */
static const char *lower_word(const char *p, const char *end)
{
    const char *last = NULL;
    while (p < end) {
        uint32_t code;
        int length = qn_uc_next(p, &code);
        unsigned class = qn_uc_class(code) & CASED;
        if (class == QN_UC_LOWER)
            return run_end(p, end, QN_UC_LOWER, QN_UC_LOWER);
        if (!class)
            break;
        p += length;
        if (class == CASED)
            last = p;
    }
    return last;
}

/* End of the word at p, with one character before it that is no letter,
 * number or newline, or NULL. */
static const char *case_word(const char *p, const char *end)
{
    uint32_t code;
    int length = qn_uc_next(p, &code);
    unsigned class = qn_uc_class(code);
    bool joins = !(class & (QN_UC_LETTER | QN_UC_NUMBER)) && code != '\r' &&
                 code != '\n';
    const char *found = joins ? lower_word(p + length, end) : NULL;
    if (!found && class & CASED)
        found = lower_word(p, end);
    if (found)
        return found;
    /* All that is left is a run of capitals. */
    if (joins) {
        found = run_end(p + length, end, QN_UC_TITLE, QN_UC_TITLE);
        return found > p + length ? found : NULL;
    }
    return class & QN_UC_TITLE ? run_end(p, end, QN_UC_TITLE, QN_UC_TITLE)
                               : NULL;
}

/* `contractions`: one at a word's end belongs to it; `digits`: how many number
 * characters make a piece. */
static size_t case_piece(const char *p, const char *end, bool contractions,
                         int digits)
{
    uint32_t code, next = 0;
    int length = qn_uc_next(p, &code);
    unsigned kind = qn_uc_class(code) & KINDS;
    const char *word = kind == QN_UC_NUMBER ? NULL : case_word(p, end);
    if (word) {
        if (contractions && word < end && *word == '\'')
            word += contraction_any_case(word, end);
        return (size_t)(word - p);
    }
    if (kind == QN_UC_NUMBER) {
        const char *run = p + length;
        for (int n = 1; n < digits && run < end; n++) {
            int more = qn_uc_next(run, &next);
            if (!(qn_uc_class(next) & QN_UC_NUMBER))
                break;
            run += more;
        }
        return (size_t)(run - p);
    }
    const char *symbols = p;
    if (code == ' ' && p + 1 < end) {
        qn_uc_next(p + 1, &next);
        if (!(qn_uc_class(next) & KINDS))
            symbols = p + 1;
    }
    if (kind && symbols == p)
        return space_or_newline_piece(p, end);
    const char *tail = run_end(symbols, end, KINDS, 0);
    while (tail < end && (*tail == '\r' || *tail == '\n' || *tail == '/'))
        tail++;
    return (size_t)(tail - p);
}

static size_t tekken_next(const char *p, const char *end)
{
    return case_piece(p, end, false, 1);
}

static size_t gpt4o_next(const char *p, const char *end)
{
    return case_piece(p, end, true, 3);
}

/* ---- the table ---- */

/* Sources: the tokenizer.json files of the model families, and for `default`
 * the splitter that GGUF files without a name were written for. */
static const qn_split_rule rules[] = {
    {"gpt-2", {GPT2_WORDS}, gpt2_next},
    {"smollm", {"\\p{N}", GPT2_WORDS}, smollm_next},
    {"llama-bpe",
     {CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}|"
                   " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" SPACES},
     llama3_next},
    {"qwen2",
     {CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}|"
                   " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" SPACES},
     qwen2_next},
    {"qwen35",
     {CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}|"
                   " ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" SPACES},
     qwen35_next},
    {"tekken",
     {"[^\\r\\n\\p{L}\\p{N}]?" TITLE "*" LOWER "+|"
      "[^\\r\\n\\p{L}\\p{N}]?" TITLE "+" LOWER "*|"
      "\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" SPACES},
     tekken_next},
    {"gpt-4o",
     {"[^\\r\\n\\p{L}\\p{N}]?" TITLE "*" LOWER "+" CONTRACTIONS "?|"
      "[^\\r\\n\\p{L}\\p{N}]?" TITLE "+" LOWER "*" CONTRACTIONS "?|"
      "\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" SPACES},
     gpt4o_next},
    {"default",
     {"[\\p{P}\\$\\+<=>\\^~\\|]+", GPT2_WORDS, "\\p{N}+", "[0-9][0-9][0-9]"},
     NULL},
};

enum { RULES = sizeof rules / sizeof rules[0] };

const qn_split_rule *qn_split_rules(size_t *count)
{
    *count = RULES;
    return rules;
}

const qn_split_rule *qn_split_rule_named(qn_str name)
{
    for (size_t i = 0; i < RULES; i++) {
        if (qn_str_is(name, rules[i].name))
            return &rules[i];
    }
    return NULL;
}

const qn_split_rule *qn_split_rule_for(qn_str pattern)
{
    for (size_t i = 0; i < RULES; i++) {
        if (rules[i].next && !rules[i].patterns[1] &&
            qn_str_is(pattern, rules[i].patterns[0]))
            return &rules[i];
    }
    return NULL;
}
