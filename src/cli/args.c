/* args.c: the parser behind args.h. */
#include "args.h"

#include "base/alloc.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum flag_kind { BOOL, TEXT, LIST, INT, COUNT, REAL, CHOICE } flag_kind;

typedef struct flag_row {
    const char *name;
    char letter;
    flag_kind kind;
    const char *values;
    double min, max;
    const char *fallback;
    int commands;
    const char *help;
} flag_row;

static const flag_row rows[QN_FLAG_COUNT] = {
#define QN_FLAG(id, name, letter, kind, values, min, max, fallback, commands,  \
                help)                                                          \
    {name, letter, kind, values, min, max, fallback, QN_CMD_##commands, help},
#include "flags.def"
#undef QN_FLAG
};

/* ---- nearest names ---- */

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Levenshtein distance, or 3 for anything above 2. */
static size_t distance(const char *a, const char *b)
{
    enum { LONGEST = 40 };
    size_t na = strlen(a), nb = strlen(b);
    if (na > LONGEST || nb > LONGEST)
        return 3;
    size_t row[LONGEST + 1];
    for (size_t j = 0; j <= nb; j++)
        row[j] = j;
    for (size_t i = 1; i <= na; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= nb; j++) {
            size_t change = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            row[j] = smaller(change, smaller(row[j], row[j - 1]) + 1);
        }
    }
    return row[nb] > 2 ? 3 : row[nb];
}

const char *qn_nearest(const char *text, const char *const *names)
{
    const char *best = NULL;
    size_t least = 3;
    for (; *names; names++) {
        size_t d = distance(text, *names);
        if (d < least) {
            least = d;
            best = *names;
        }
    }
    return best;
}

static qn_status unknown_flag(int command, const char *name)
{
    const char *names[QN_FLAG_COUNT + 1];
    size_t count = 0;
    for (int i = 0; i < QN_FLAG_COUNT; i++)
        if (rows[i].commands & command)
            names[count++] = rows[i].name;
    names[count] = NULL;
    const char *near = qn_nearest(name, names);
    if (near)
        return qn_fail(QN_E_ARG, "unknown flag --%s; did you mean --%s?", name,
                       near);
    return qn_fail(QN_E_ARG, "unknown flag --%s", name);
}

/* ---- values ---- */

bool qn_args_count(const char *text, int64_t *out)
{
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (end == text || errno || text[0] == ' ')
        return false;
    int shift = *end == 'k' || *end == 'K'   ? 10
                : *end == 'm' || *end == 'M' ? 20
                : *end == 'g' || *end == 'G' ? 30
                                             : 0;
    if (shift)
        end++;
    long long limit = INT64_MAX >> shift;
    if (*end || value > limit || value < -limit)
        return false;
    *out = value * (1LL << shift);
    return true;
}

static qn_status out_of_range(const flag_row *row, const char *text)
{
    return qn_fail(
        QN_E_ARG, "--%s %s: expected %s from %.10g to %.10g", row->name, text,
        row->kind == REAL ? "a number" : "a whole number", row->min, row->max);
}

static qn_status set_whole(const flag_row *row, qn_arg *arg, const char *text)
{
    char *end = NULL;
    bool good;
    if (row->kind == COUNT) {
        good = qn_args_count(text, &arg->whole);
    } else {
        errno = 0;
        arg->whole = strtoll(text, &end, 10);
        good = end != text && !*end && !errno && text[0] != ' ';
    }
    if (!good || (double)arg->whole < row->min || (double)arg->whole > row->max)
        return out_of_range(row, text);
    return QN_OK;
}

static qn_status set_real(const flag_row *row, qn_arg *arg, const char *text)
{
    char *end;
    arg->real = strtod(text, &end);
    if (end == text || *end || text[0] == ' ' || !isfinite(arg->real) ||
        arg->real < row->min || arg->real > row->max)
        return out_of_range(row, text);
    return QN_OK;
}

static qn_status set_choice(const flag_row *row, qn_arg *arg, const char *text)
{
    size_t length = strlen(text);
    for (const char *p = row->values; *p;) {
        size_t n = strcspn(p, "|");
        if (n == length && !memcmp(p, text, n)) {
            arg->text = text;
            return QN_OK;
        }
        p += n;
        p += *p == '|';
    }
    return qn_fail(QN_E_ARG, "--%s %s: expected one of %s", row->name, text,
                   row->values);
}

static qn_status append(const char ***list, size_t *count, const char *text)
{
    const char **grown = qn_reallocarray(*list, *count + 1, sizeof *grown);
    if (!grown)
        return QN_E_NOMEM;
    grown[(*count)++] = text;
    *list = grown;
    return QN_OK;
}

static qn_status set_value(qn_args *args, int flag, const char *text)
{
    const flag_row *row = &rows[flag];
    qn_arg *arg = &args->flag[flag];
    arg->given = true;
    arg->times++;
    switch (row->kind) {
    case INT:
    case COUNT:
        return set_whole(row, arg, text);
    case REAL:
        return set_real(row, arg, text);
    case CHOICE:
        return set_choice(row, arg, text);
    case LIST:
        return append(&arg->list, &arg->list_count, text);
    default:
        arg->text = text;
        return QN_OK;
    }
}

static void set_bool(qn_args *args, int flag, bool on)
{
    qn_arg *arg = &args->flag[flag];
    arg->given = true;
    arg->on = on;
    arg->times = on ? arg->times + 1 : 0;
}

/* ---- words of the command line ---- */

static int find_name(int command, const char *name, size_t length)
{
    for (int i = 0; i < QN_FLAG_COUNT; i++)
        if ((rows[i].commands & command) && strlen(rows[i].name) == length &&
            !memcmp(rows[i].name, name, length))
            return i;
    return -1;
}

static int find_letter(int command, char letter)
{
    for (int i = 0; i < QN_FLAG_COUNT; i++)
        if ((rows[i].commands & command) && rows[i].letter == letter)
            return i;
    return -1;
}

/* `word` is behind the two dashes.  *at is the index of the word and moves
 * over the value. */
static qn_status parse_long(qn_args *args, int command, const char *word,
                            int argc, char *const *argv, int *at)
{
    size_t length = strcspn(word, "=");
    const char *value = word[length] ? word + length + 1 : NULL;
    int flag = find_name(command, word, length);
    if (flag < 0 && !strncmp(word, "no-", 3)) {
        flag = find_name(command, word + 3, length - 3);
        if (flag >= 0 && rows[flag].kind == BOOL) {
            if (value)
                return qn_fail(QN_E_ARG, "--%.*s takes no value", (int)length,
                               word);
            set_bool(args, flag, false);
            return QN_OK;
        }
        flag = -1;
    }
    if (flag < 0) {
        char name[64];
        snprintf(name, sizeof name, "%.*s", (int)length, word);
        return unknown_flag(command, name);
    }
    if (rows[flag].kind == BOOL) {
        if (value)
            return qn_fail(QN_E_ARG, "--%s takes no value", rows[flag].name);
        set_bool(args, flag, true);
        return QN_OK;
    }
    if (!value) {
        if (*at + 1 >= argc)
            return qn_fail(QN_E_ARG, "--%s: expected a value (%s)",
                           rows[flag].name, rows[flag].values);
        value = argv[++*at];
    }
    return set_value(args, flag, value);
}

static qn_status parse_letters(qn_args *args, int command, const char *letters,
                               int argc, char *const *argv, int *at)
{
    for (; *letters; letters++) {
        int flag = find_letter(command, *letters);
        if (flag < 0)
            return qn_fail(QN_E_ARG, "unknown flag -%c", *letters);
        if (rows[flag].kind == BOOL) {
            set_bool(args, flag, true);
            continue;
        }
        const char *value = letters[1] ? letters + 1 : NULL;
        if (!value) {
            if (*at + 1 >= argc)
                return qn_fail(QN_E_ARG, "-%c: expected a value (%s)", *letters,
                               rows[flag].values);
            value = argv[++*at];
        }
        return set_value(args, flag, value);
    }
    return QN_OK;
}

qn_status qn_args_parse(qn_args *args, int command, int argc, char *const *argv,
                        size_t min_words, size_t max_words)
{
    memset(args, 0, sizeof *args);
    bool flags = true;
    for (int i = 0; i < argc; i++) {
        const char *word = argv[i];
        qn_status status;
        if (flags && !strcmp(word, "--")) {
            flags = false;
            continue;
        }
        if (flags && word[0] == '-' && word[1] == '-')
            status = parse_long(args, command, word + 2, argc, argv, &i);
        else if (flags && word[0] == '-' && word[1])
            status = parse_letters(args, command, word + 1, argc, argv, &i);
        else
            status = append(&args->words, &args->word_count, word);
        if (status)
            return status;
    }
    if (args->flag[QN_FLAG_HELP].on)
        return QN_OK;
    if (args->word_count > max_words)
        return qn_fail(QN_E_ARG, "unexpected argument '%s'",
                       args->words[max_words]);
    if (args->word_count < min_words)
        return qn_fail(QN_E_ARG, "expected a model; see --help");
    return QN_OK;
}

void qn_args_free(qn_args *args)
{
    for (int i = 0; i < QN_FLAG_COUNT; i++)
        qn_free(args->flag[i].list);
    qn_free(args->words);
    memset(args, 0, sizeof *args);
}

qn_status qn_args_counts(const char *flag, const char *text, int64_t min,
                         int64_t max, int64_t **out, size_t *count)
{
    int64_t *list = NULL;
    size_t used = 0;
    for (const char *p = text;;) {
        size_t n = strcspn(p, ",");
        char word[32];
        int64_t value;
        snprintf(word, sizeof word, "%.*s", (int)(n < 31 ? n : 31), p);
        if (!n || n > 31 || !qn_args_count(word, &value) || value < min ||
            value > max) {
            qn_free(list);
            return qn_fail(QN_E_ARG,
                           "--%s %s: expected whole numbers from %lld to %lld, "
                           "separated by commas",
                           flag, text, (long long)min, (long long)max);
        }
        int64_t *grown = qn_reallocarray(list, used + 1, sizeof *grown);
        if (!grown) {
            qn_free(list);
            return QN_E_NOMEM;
        }
        list = grown;
        list[used++] = value;
        if (!p[n])
            break;
        p += n + 1;
    }
    *out = list;
    *count = used;
    return QN_OK;
}

void qn_args_help(int command)
{
    for (int i = 0; i < QN_FLAG_COUNT; i++) {
        const flag_row *row = &rows[i];
        if (!(row->commands & command))
            continue;
        char left[96];
        char letter[8] = "    ";
        if (row->letter)
            snprintf(letter, sizeof letter, "-%c, ", row->letter);
        snprintf(left, sizeof left, "%s--%s%s%s", letter, row->name,
                 *row->values ? " " : "", row->values);
        printf("  %-34s ", left);
        if (strlen(left) > 34)
            printf("\n%37s", "");
        printf("%s", row->help);
        if (*row->fallback)
            printf(" [%s]", row->fallback);
        putchar('\n');
    }
}
