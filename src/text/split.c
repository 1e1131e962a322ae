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

/* A mark of ASCII with the letters behind it. */
#define ASCII_MARK "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+"
#define DEEPSEEK_WORDS                                                         \
    ASCII_MARK "|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| "                \
               "?[\\p{P}\\p{S}]+"
#define LLAMA3_WORDS "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+"
#define SYMBOLS " ?[^\\s\\p{L}\\p{N}]+"
#define QWEN2                                                                  \
    CONTRACTIONS "|" LLAMA3_WORDS "|\\p{N}|" SYMBOLS "[\\r\\n]*|" SPACES
#define CASED_WORDS                                                            \
    "[^\\r\\n\\p{L}\\p{N}]?" TITLE "*" LOWER "+" CONTRACTIONS "?|"             \
    "[^\\r\\n\\p{L}\\p{N}]?" TITLE "+" LOWER "*" CONTRACTIONS "?|"
#define IDEOGRAPHS_KANA "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
#define NO_SEPARATORS                                                          \
    " ?[^(\\s|.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)]+"
/* Letters with case, of the alphabets that have it. */
#define CASED_LETTERS                                                          \
    "[A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf"        \
    "\u01c4-\u0293\u0295-\u02af\u0370-\u0373\u0376\u0377\u037b-\u037d"         \
    "\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5"                \
    "\u03f7-\u0481\u048a-\u052f\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5"        \
    "\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77"        \
    "\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d"        \
    "\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4"                \
    "\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3"               \
    "\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107"         \
    "\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d"          \
    "\u212f-\u2134\u2139\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184"          \
    "\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d"         \
    "\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf"        \
    "\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a"                     \
    "\U00010400-\U0001044f\U000104b0-\U000104d3\U000104d8-\U000104fb"          \
    "\U00010c80-\U00010cb2\U00010cc0-\U00010cf2\U000118a0-\U000118df"          \
    "\U0001e900-\U0001e943]"
#define TITLE_NOT_HAN "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]"
#define LOWER_NOT_HAN "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]"

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

/* Sources: the tokenizer.json files of the model families; for rules without a
 * function the expressions that llama.cpp has for the names of GGUF files
 * (src/llama-vocab.cpp), in the form of the original where it quotes that. */
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
    {"falcon",
     {"[\\p{P}\\$\\+<=>\\^~\\|`]+", GPT2_WORDS, "[0-9][0-9][0-9]"},
     NULL},
    {"deepseek-llm",
     {"[\\r\\n]", "\\s?" CASED_LETTERS "+",
      "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+",
      "\\s+$", "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+", "\\p{N}+"},
     NULL},
    {"deepseek-coder",
     {"[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+",
      "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+", "\\p{N}"},
     NULL},
    {"deepseek-v3",
     {"\\p{N}{1,3}", IDEOGRAPHS_KANA, DEEPSEEK_WORDS "[\\r\\n]*|" SPACES},
     NULL},
    {"spark2_5",
     {"\\p{N}{1,3}", IDEOGRAPHS_KANA,
      DEEPSEEK_WORDS "|[\\r\\n]|\\s+(?!\\S)|\\s+", "\\p{N}"},
     NULL},
    {"youtu",
     {"[\uac00-\ud7a3\u3131-\u318e]+|["
      "\uff01\u2026\u201c\u201d\u2018\u2019\u2014\uff1a\uff1b\uff0c\u3001-"
      "\u303f\ufe30-\ufe4f]+|[\u3105-\u312f]+"
      "|" IDEOGRAPHS_KANA,
      CASED_WORDS "\\p{N}|" SYMBOLS "[\\r\\n/]*|" SPACES},
     NULL},
    {"jais-2",
     {CONTRACTIONS "|" LLAMA3_WORDS "|\\p{N}{1,3}|" SYMBOLS
                   "[\\r\\n]*|\\s*[\\r\\n]+|\\s{512}(?!\\S)|"
                   "\\s{256}(?!\\S)|\\s{128}(?!\\S)|\\s{64}(?!\\S)|"
                   "\\s{32}(?!\\S)|\\s{16}(?!\\S)|\\s{8}(?!\\S)|"
                   "\\s{4}(?!\\S)|\\s{1,2}(?!\\S)|\\s{1}"},
     NULL},
    {"bloom", {NO_SEPARATORS}, NULL},
    {"viking", {NO_SEPARATORS, "\\p{N}"}, NULL},
    {"chameleon",
     {"<sentinel:[0-9]+>", "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z",
      "([\\t\\n]|    |  )", "\\p{N}", "[\\p{P}!-/:-@\\[-`{-~]", GPT2_WORDS},
     NULL},
    {"tiny_aya",
     {"\\d{1,3}(?=(?:\\d{3})*\\b)",
      CASED_WORDS "\\p{N}{1,3}|" SYMBOLS "[\\r\\n/]*|" SPACES},
     NULL},
    {"kimi-k2",
     {"\\p{Han}+|[^\\r\\n\\p{L}\\p{N}]?" TITLE_NOT_HAN "*" LOWER_NOT_HAN
      "+" CONTRACTIONS "?|[^\\r\\n\\p{L}\\p{N}]?" TITLE_NOT_HAN
      "+" LOWER_NOT_HAN "*" CONTRACTIONS "?|\\p{N}{1,3}|" SYMBOLS
      "[\\r\\n]*|" SPACES},
     NULL},
    {"superbpe", {"\\p{N}+", "(?=(\\d{3})+(?!\\d))"}, NULL},
    {"bailingmoe",
     {"'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}|" SYMBOLS
      "+[\\r\\n]*|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+"},
     NULL},
    {"seed-coder",
     {CONTRACTIONS "|" LLAMA3_WORDS
                   "|\\p{N}{1}| ?[^\\s\\p{L}\\p{N}\\r\\n]+|" SPACES},
     NULL},
    {"ufakzeka", {LLAMA3_WORDS "|\\p{N}|" SYMBOLS "[\\r\\n]*|" SPACES}, NULL},
    /* Groups of three digits, counted from the end of the number. */
    {"afmoe",
     {"\\p{N}{1,3}(?=(?:\\p{N}{3})*(?!\\p{N}))",
      "[\u4e00-\u9fff\u3400-\u4dbf\uf900-\ufaff\u3040-\u309f\u30a0-"
      "\u30ff\uff65-\uff9f\u2f00-\u2fdf\u0e40-\u0e7f\u0e80-\u0eff\u1780-"
      "\u17ff\u1000-\u109f\uaa60-\uaa7f\ua9e0-"
      "\ua9ff\uac00-\ud7af\u1100-\u11ff]+",
      DEEPSEEK_WORDS "[\\r\\n]*|" SPACES},
     NULL},
    {"laguna", {"[^\\n]+|[\\n]+", QWEN2}, NULL},
    {"exaone-moe",
     {CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?"
                   "(?:\\p{L}\\p{M}*(?: \\p{L}\\p{M}*)*)+|\\p{N}|" SYMBOLS
                   "[\\r\\n/]?|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+"},
     NULL},
    {"minicpm5",
     {"\\p{N}{1,3}",
      CONTRACTIONS "|" LLAMA3_WORDS "|\\p{N}+|" SYMBOLS "[\\r\\n]*|" SPACES},
     NULL},
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
