/* The splitters: each written-out rule cuts any text as its expressions do,
 * and the class table agrees with an independent reading of Unicode. */
#include "support/qn_test.h"

#include "base/utf8.h"
#include "text/pretok.h"
#include "text/regex.h"
#include "text/split.h"
#include "text/unicode.h"

enum { CODES = 0x110000, CHAR_MAX_BYTES = 4 };

/* ---- random text ---- */

static uint64_t random_state = 88172645463325252u;

static uint32_t random_below(uint32_t n)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (uint32_t)((random_state >> 32) * n >> 32);
}

/* Characters on which the expressions turn. */
static const uint32_t turning[] = {
    ' ',    ' ',    ' ',    '\n',   '\r',   '\t',    '\'',  '\'',   's',
    'S',    't',    'L',    'l',    'R',    'e',     'v',   'd',    'm',
    '0',    '7',    '!',    '/',    '$',    '_',     0x17f, 0x212a, 0xa0,
    0x85,   0x2028, 0x3000, 0x180e, 0x200b, 0xfeff,  0x301, 0x93f,  0xb2,
    0x2167, 0x663,  0x4e2d, 0xc0,   0x1c5,  0x1f44d, 0x130, 0x2019, 'a'};

/* 1 where PCRE2 and the table read the character alike (they may be made
 * for different versions of Unicode). */
static uint8_t alike[CODES];

static uint32_t random_code(void)
{
    if (random_below(4))
        return turning[random_below(sizeof turning / sizeof turning[0])];
    static const uint32_t ends[] = {0x80, 0x250, 0x3000, 0x10000, CODES};
    uint32_t code;
    do
        code = random_below(ends[random_below(5)]);
    while ((code >= 0xd800 && code < 0xe000) || !alike[code]);
    return code;
}

static void random_text(qn_buf *out)
{
    qn_buf_clear(out);
    uint32_t length = 1 + random_below(random_below(4) ? 12 : 60);
    for (uint32_t i = 0; i < length; i++) {
        uint32_t code = random_code();
        uint32_t times = random_below(5) ? 1 : 1 + random_below(5);
        for (; times > 0; times--)
            qn_buf_add_code(out, code);
    }
    assert_false(out->failed);
}

/* ---- cutting by expressions ---- */

/* bounds[i] = 1: a piece begins at byte i. */
static void cut_by_pattern(const char *pattern, qn_str text, uint8_t *bounds)
{
    qn_regex *regex = NULL;
    qn_regex_run *run = NULL;
    check_status(qn_regex_new(&regex, qn_str_of(pattern)), QN_OK);
    check_status(qn_regex_run_new(&run, regex, text.size), QN_OK);
    for (size_t begin = 0; begin < text.size;) {
        size_t end = begin + 1;
        while (end < text.size && !bounds[end])
            end++;
        qn_str piece = {text.data + begin, end - begin};
        for (size_t at = 0; at < piece.size;) {
            bool found;
            size_t from, to;
            check_status(qn_regex_find(run, piece, at, &found, &from, &to),
                         QN_OK);
            if (!found)
                break;
            assert_true(to > from);
            bounds[begin + from] = 1;
            if (begin + to < text.size)
                bounds[begin + to] = 1;
            at = to;
        }
        begin = end;
    }
    qn_regex_run_free(run);
    qn_regex_free(regex);
}

static void cut_by_next(const qn_split_rule *rule, qn_str text, uint8_t *bounds)
{
    for (size_t at = 0; at < text.size;) {
        bounds[at] = 1;
        size_t size = rule->next(text.data + at, text.data + text.size);
        assert_true(size > 0 && size <= text.size - at);
        at += size;
    }
}

static void show_cut(const char *name, qn_str text, const uint8_t *bounds)
{
    print_error("%s:", name);
    for (size_t i = 0; i < text.size; i++)
        print_error("%s%02x", bounds[i] ? " | " : " ", (uint8_t)text.data[i]);
    print_error("\n");
}

static void check_rule(const qn_split_rule *rule, qn_str text)
{
    uint8_t *by_hand = calloc(text.size + 1, 1);
    uint8_t *by_pattern = calloc(text.size + 1, 1);
    assert_non_null(by_hand);
    assert_non_null(by_pattern);
    cut_by_next(rule, text, by_hand);
    by_pattern[0] = 1;
    for (int i = 0; i < QN_SPLIT_PATTERNS && rule->patterns[i]; i++)
        cut_by_pattern(rule->patterns[i], text, by_pattern);
    if (memcmp(by_hand, by_pattern, text.size) != 0) {
        show_cut(rule->name, text, by_hand);
        show_cut("expressions", text, by_pattern);
        fail();
    }
    free(by_hand);
    free(by_pattern);
}

/* ---- tests ---- */

/* Fills *text with every code point there is, and returns how long it is. */
static void every_code(qn_buf *text)
{
    for (uint32_t code = 0; code < CODES; code++) {
        if (code < 0xd800 || code > 0xdfff)
            qn_buf_add_code(text, code);
    }
    assert_false(text->failed);
}

/* Sets `bit` of each code point that the pattern, a class, matches. */
static void mark_class(const char *pattern, qn_str text, uint16_t bit,
                       uint16_t *marks)
{
    qn_regex *regex = NULL;
    qn_regex_run *run = NULL;
    check_status(qn_regex_new(&regex, qn_str_of(pattern)), QN_OK);
    check_status(qn_regex_run_new(&run, regex, text.size), QN_OK);
    bool found = true;
    size_t at = 0, begin = 0, end = 0;
    for (;;) {
        check_status(qn_regex_find(run, text, at, &found, &begin, &end), QN_OK);
        if (!found)
            break;
        for (at = begin; at < end;) {
            uint32_t code;
            at += (size_t)qn_uc_next(text.data + at, &code);
            marks[code] |= bit;
        }
    }
    qn_regex_run_free(run);
    qn_regex_free(regex);
}

static void test_classes_agree_with_another_reading_of_unicode(void **state)
{
    (void)state;
    enum { UNASSIGNED = 1 << 15 };
    const struct {
        const char *pattern;
        uint16_t bit;
    } classes[] = {{"\\p{L}+", QN_UC_LETTER},
                   {"\\p{M}+", QN_UC_MARK},
                   {"\\p{N}+", QN_UC_NUMBER},
                   {"\\s+", QN_UC_SPACE},
                   {"[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+", QN_UC_TITLE},
                   {"[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+", QN_UC_LOWER},
                   {"\\p{Mn}+", QN_UC_NONSPACING},
                   {"\\p{Cn}+", UNASSIGNED}};
    static uint16_t marks[CODES];
    memset(marks, 0, sizeof marks);
    qn_buf text = QN_BUF_INIT;
    every_code(&text);
    for (size_t i = 0; i < sizeof classes / sizeof classes[0]; i++)
        mark_class(classes[i].pattern, qn_buf_str(&text), classes[i].bit,
                   marks);
    const unsigned compared = QN_UC_LETTER | QN_UC_MARK | QN_UC_NUMBER |
                              QN_UC_SPACE | QN_UC_TITLE | QN_UC_LOWER |
                              QN_UC_NONSPACING;
    size_t differ = 0;
    for (uint32_t code = 0; code < CODES; code++) {
        unsigned found = qn_uc_class(code) & compared;
        alike[code] = found == (marks[code] & compared);
        if (alike[code] || (code >= 0xd800 && code < 0xe000))
            continue;
        /* PCRE2 is older and may not know it yet. */
        differ += !(marks[code] & UNASSIGNED);
    }
    /* A handful change their category between versions. */
    assert_true(differ <= 16);
    qn_buf_free(&text);
}

static void test_classes_of_some_characters(void **state)
{
    (void)state;
    enum {
        CASELESS = QN_UC_LETTER | QN_UC_WORD | QN_UC_TITLE | QN_UC_LOWER,
        MARK = QN_UC_MARK | QN_UC_WORD | QN_UC_TITLE | QN_UC_LOWER
    };
    const struct {
        uint32_t code;
        unsigned class;
    } rows[] = {
        {'a', QN_UC_LETTER | QN_UC_WORD | QN_UC_LOWER},
        {'A', QN_UC_LETTER | QN_UC_WORD | QN_UC_TITLE},
        {'7', QN_UC_NUMBER | QN_UC_WORD},
        {'_', QN_UC_PUNCT | QN_UC_WORD},
        {'$', QN_UC_PUNCT},
        {' ', QN_UC_SPACE},
        {0x0, QN_UC_CONTROL},
        {0x180e, QN_UC_CONTROL},
        {0x85, QN_UC_SPACE | QN_UC_CONTROL},
        {0x301, MARK | QN_UC_NONSPACING},
        {0x903, MARK},
        {0xb2, QN_UC_NUMBER},
        {0x1c5, QN_UC_LETTER | QN_UC_WORD | QN_UC_TITLE},
        {0x2167, QN_UC_NUMBER | QN_UC_WORD},
        {0x4e2d, CASELESS},
        {0x24b6, QN_UC_WORD},
        {0x200d, QN_UC_WORD | QN_UC_CONTROL},
        /* New in Unicode 16: letters, a pair of cases, a digit, a mark. */
        {0x105c0, CASELESS},
        {0x10d50, QN_UC_LETTER | QN_UC_WORD | QN_UC_TITLE},
        {0x10d70, QN_UC_LETTER | QN_UC_WORD | QN_UC_LOWER},
        {0x10d40, QN_UC_NUMBER | QN_UC_WORD},
        {0x897, MARK | QN_UC_NONSPACING},
        {0xe0100, MARK | QN_UC_NONSPACING},
        {0xe0fff, 0},
        {0x10fffd, QN_UC_CONTROL},
        {0x10ffff, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (qn_uc_class(rows[i].code) != rows[i].class)
            fail_msg("U+%04X: expected %x, found %x", (unsigned)rows[i].code,
                     rows[i].class, qn_uc_class(rows[i].code));
    }
    assert_string_equal(qn_uc_version(), "16.0.0");
}

static void test_rules_cut_as_their_expressions(void **state)
{
    (void)state;
    size_t count;
    const qn_split_rule *rules = qn_split_rules(&count);
    qn_buf text = QN_BUF_INIT;
    size_t written = 0;
    for (size_t i = 0; i < count; i++) {
        if (!rules[i].next)
            continue;
        written++;
        for (int n = 0; n < 4000; n++) {
            random_text(&text);
            check_rule(&rules[i], qn_buf_str(&text));
        }
    }
    assert_true(written >= 7);
    qn_buf_free(&text);
}

/* The pieces of `text`, joined by |. */
static void check_pieces(const char *rule, const char *text,
                         const char *expected)
{
    const qn_split_rule *r = qn_split_rule_named(qn_str_of(rule));
    assert_non_null(r);
    qn_buf out = QN_BUF_INIT;
    const char *end = text + strlen(text);
    for (const char *p = text; p < end;) {
        size_t size = r->next(p, end);
        if (out.size)
            qn_buf_add_char(&out, '|');
        qn_buf_add(&out, p, size);
        p += size;
    }
    check_str(qn_buf_str(&out), expected);
    qn_buf_free(&out);
}

static void test_pieces_of_some_texts(void **state)
{
    (void)state;
    const char *text = "I'm 12345  years\n\n  old, DON'T ask!!\r\n ";
    check_pieces("gpt-2", text,
                 "I|'m| 12345| | years|\n\n | old|,| DON|'|T| ask|!!|\r\n ");
    check_pieces("smollm", text,
                 "I|'m| |1|2|3|4|5| | years|\n\n | old|,| DON|'|T| "
                 "ask|!!|\r\n ");
    check_pieces("llama-bpe", text,
                 "I|'m| |123|45| | years|\n\n| | old|,| DON|'T| "
                 "ask|!!\r\n| ");
    check_pieces("qwen2", "12 \tx\n\n\n 'LLama", "1|2| |\tx|\n\n\n| '|LLama");
    check_pieces("tekken", "HelloWorld XMLParser's 12 !!//\n/a \n b",
                 "Hello|World| XMLParser|'s| |1|2| !!//\n/|a| \n| b");
    check_pieces("gpt-4o",
                 "HelloWORLD'S don't 1234 \xe4\xb8\xad"
                 "AB",
                 "Hello|WORLD'S| don't| |123|4| \xe4\xb8\xad|AB");
    check_pieces("qwen35", "e\xcc\x81t\xcc\x81!", "e\xcc\x81t\xcc\x81|!");
}

static void test_rules_are_found_by_name_and_by_expression(void **state)
{
    (void)state;
    const qn_split_rule *gpt2 = qn_split_rule_named(QN_STR("gpt-2"));
    assert_non_null(gpt2);
    assert_ptr_equal(qn_split_rule_for(qn_str_of(gpt2->patterns[0])), gpt2);
    assert_null(qn_split_rule_named(QN_STR("gpt")));
    assert_null(qn_split_rule_for(QN_STR("\\p{L}+")));
    /* One of two expressions is not the rule. */
    assert_null(qn_split_rule_for(QN_STR("\\p{N}")));
}

/* ---- the general matcher ---- */

static void check_matches(const char *pattern, const char *text,
                          const char *expected)
{
    qn_regex *regex = NULL;
    qn_regex_run *run = NULL;
    qn_buf out = QN_BUF_INIT;
    qn_str all = qn_str_of(text);
    check_status(qn_regex_new(&regex, qn_str_of(pattern)), QN_OK);
    check_status(qn_regex_run_new(&run, regex, all.size), QN_OK);
    for (size_t at = 0; at < all.size;) {
        bool found;
        size_t begin, end;
        check_status(qn_regex_find(run, all, at, &found, &begin, &end), QN_OK);
        if (!found)
            break;
        if (out.size)
            qn_buf_add_char(&out, '|');
        qn_buf_add(&out, all.data + begin, end - begin);
        at = end > at ? end : end + 1;
    }
    check_str(qn_buf_str(&out), expected);
    qn_buf_free(&out);
    qn_regex_run_free(run);
    qn_regex_free(regex);
}

static void test_classes_mean_what_tokenizer_files_mean(void **state)
{
    (void)state;
    /* U+180E is no white space. */
    check_matches("\\s+", "a \xe1\xa0\x8e b", " | ");
    check_matches("[\\s]+", "a\xc2\xa0\xe1\xa0\x8e b", "\xc2\xa0| ");
    check_matches("\\S+", " \xe1\xa0\x8e ", "\xe1\xa0\x8e");
    check_matches("[^\\s]+", " \xe1\xa0\x8e ", "\xe1\xa0\x8e");
    check_matches("[\\S]+", " \xe1\xa0\x8e ", "\xe1\xa0\x8e");
    /* Marks and connectors belong to words. */
    check_matches("\\w+", "e\xcc\x81_1 -", "e\xcc\x81_1");
    check_matches("\\w\\b", "e\xcc\x81 ", "\xcc\x81");
    check_matches("\\d+", "7\xd9\xa3\xc2\xb2", "7\xd9\xa3");
    check_matches("\\h+", "xAf09g \t", "Af09");
    check_matches("^b$", "a\nb\nc", "b");
    check_matches("(?i:'S)", "'\xc5\xbf", "'\xc5\xbf");
    check_matches("[]a]+", "b]a]", "]a]");
    check_matches("a++b|a", "aab aa", "aab|a|a");
}

/* Unions, intersections and their complements are one character each. */
static void test_classes_are_built_of_classes(void **state)
{
    (void)state;
    check_matches("[a[bc]]+", "xabcx", "abc");
    check_matches("[^a[bc]]+", "xabcy\n", "x|y\n");
    check_matches("[[a]]", "ba", "a");
    check_matches("[a-e&&[^cd]]+", "abcde", "ab|e");
    check_matches("[^a-e&&[^cd]]+", "abcdef", "cd|f");
    check_matches("[a-e&&b-f&&[cd]]{2}", "abcdef", "cd");
    check_matches("[\\W]+", "ab, c", ", ");
    check_matches("[^\\W_]+", "ab_c d", "ab|c|d");
    check_matches("[\\H]+", "abxyz", "xyz");
    check_matches("[a&&^a]*b", "^ab", "ab");
    check_matches("[:a]+", "a:b", "a:");
    /* A script is its own characters, not those that it shares. */
    check_matches("\\p{Han}+", "\xe4\xb8\xad\xe3\x80\x81\xe6\x96\x87",
                  "\xe4\xb8\xad|\xe6\x96\x87");
    check_matches("[\\p{Han}a]+|\\P{Han}", "a\xe4\xb8\xad\xe3\x80\x81",
                  "a\xe4\xb8\xad|\xe3\x80\x81");
    check_matches("\\p{^Han}+", "a\xe4\xb8\xad", "a");
    check_matches("\\p{Letter}+\\p{Number}", "ab1", "ab1");
}

/* tests/vectors/text/splitters.jsonl: what the package `tokenizers` makes. */
static void check_pretok(qn_str rule, const qn_json *pieces)
{
    qn_pretok *pretok = NULL;
    qn_buf text = QN_BUF_INIT;
    qn_words words = {0};
    qn_str piece;
    const qn_split_rule *r = qn_split_rule_named(rule);
    assert_non_null(r);
    for (uint32_t i = 0; i < pieces->count; i++) {
        assert_true(qn_json_as_str(&pieces->items[i], &piece));
        qn_buf_add_str(&text, piece);
    }
    check_status(qn_pretok_from_rule(&pretok, r), QN_OK);
    check_status(qn_pretok_run(pretok, &words, qn_buf_str(&text), true), QN_OK);
    bool same = words.list.size == pieces->count;
    for (uint32_t i = 0; i < pieces->count && same; i++) {
        qn_word w = words.list.data[i];
        same = qn_json_as_str(&pieces->items[i], &piece) &&
               piece.size == w.end - w.begin;
    }
    if (!same)
        fail_msg("%s cuts '%s' otherwise", r->name, text.data);
    qn_words_free(&words);
    qn_pretok_free(pretok);
    qn_buf_free(&text);
}

static void test_every_rule_cuts_as_the_package_does(void **state)
{
    (void)state;
    size_t size, rules, rows = 0;
    char *all = vector_read("text/splitters.jsonl", &size);
    for (char *line = all, *end; (end = strchr(line, '\n')); line = end + 1) {
        qn_json_doc *doc;
        qn_str rule;
        check_status(
            qn_json_parse(&doc, (qn_str){line, (size_t)(end - line)}, 0),
            QN_OK);
        const qn_json *root = qn_json_root(doc);
        assert_true(qn_json_as_str(qn_json_get(root, "rule"), &rule));
        check_pretok(rule, qn_json_get(root, "pieces"));
        qn_json_doc_free(doc);
        rows++;
    }
    qn_split_rules(&rules);
    assert_true(rows >= 10 * rules);
    qn_free(all);
}

static void test_every_splitter_names_a_rule(void **state)
{
    (void)state;
    size_t splitters, rules;
    const qn_splitter *s = qn_splitters(&splitters);
    const qn_split_rule *r = qn_split_rules(&rules);
    for (size_t i = 0; i < splitters; i++) {
        assert_non_null(qn_split_rule_named(qn_str_of(s[i].rule_name)));
        assert_ptr_equal(qn_splitter_named(qn_str_of(s[i].name)), &s[i]);
    }
    /* convert writes the name of a rule. */
    for (size_t i = 0; i < rules; i++)
        assert_non_null(qn_splitter_named(qn_str_of(r[i].name)));
    assert_null(qn_splitter_named(QN_STR("whitespace")));
}

static void test_unknown_expressions_are_refused(void **state)
{
    (void)state;
    const char *patterns[] = {
        "[a[:alpha:]]", "[[[[[[[[[[a]]]]]]]]]]",
        "[a&&]",        "[&&a]",
        "[a[b]",        "[a[b",
        "[a&&",         "(a",
        "\\p{Nope}",    "[b-a]",
        "\\",           "[^",
        "[\\p{Nope}]",  "\\p{Han",
    };
    for (size_t i = 0; i < sizeof patterns / sizeof patterns[0]; i++) {
        qn_regex *regex = NULL;
        check_error(qn_regex_new(&regex, qn_str_of(patterns[i])),
                    QN_E_UNSUPPORTED, "regular expression");
        assert_null(regex);
    }
}

static void test_backtracking_is_bounded(void **state)
{
    (void)state;
    qn_regex *regex = NULL;
    qn_regex_run *run = NULL;
    bool found;
    size_t begin, end;
    qn_str text = QN_STR("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!");
    check_status(qn_regex_new(&regex, QN_STR("(a|aa)+$")), QN_OK);
    check_status(qn_regex_run_new(&run, regex, text.size), QN_OK);
    check_error(qn_regex_find(run, text, 0, &found, &begin, &end),
                QN_E_UNSUPPORTED, "too many steps");
    qn_regex_run_free(run);
    qn_regex_free(regex);
    /* Steps that are many but enough: the careful search finds the same. */
    qn_buf long_text = QN_BUF_INIT;
    for (int i = 0; i < 20000; i++)
        qn_buf_add_char(&long_text, 'A');
    qn_buf_add_char(&long_text, '1');
    check_status(qn_regex_new(&regex, QN_STR("[A-Z]+x|[A-Z]+1")), QN_OK);
    check_status(qn_regex_run_new(&run, regex, long_text.size), QN_OK);
    check_status(
        qn_regex_find(run, qn_buf_str(&long_text), 0, &found, &begin, &end),
        QN_OK);
    assert_true(found);
    assert_int_equal(begin, 0);
    assert_int_equal(end, long_text.size);
    qn_buf_free(&long_text);
    qn_regex_run_free(run);
    qn_regex_free(regex);
}

static int set_up(void **state)
{
    (void)state;
    qn_uc_init();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        /* Fills `alike`, which random texts draw from. */
        cmocka_unit_test(test_classes_agree_with_another_reading_of_unicode),
        cmocka_unit_test(test_classes_of_some_characters),
        cmocka_unit_test(test_rules_cut_as_their_expressions),
        cmocka_unit_test(test_pieces_of_some_texts),
        cmocka_unit_test(test_rules_are_found_by_name_and_by_expression),
        cmocka_unit_test(test_classes_mean_what_tokenizer_files_mean),
        cmocka_unit_test(test_classes_are_built_of_classes),
        cmocka_unit_test(test_every_rule_cuts_as_the_package_does),
        cmocka_unit_test(test_every_splitter_names_a_rule),
        cmocka_unit_test(test_unknown_expressions_are_refused),
        cmocka_unit_test(test_backtracking_is_bounded),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
