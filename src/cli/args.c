/* args.c: the parser behind args.h. */
#include "args.h"

#include "base/alloc.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum flag_kind {
    BOOL,
    TEXT,
    LIST,
    INT,
    COUNT,
    SIZE,
    REAL,
    PART,
    DURATION,
    CHOICE
} flag_kind;

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
};

typedef struct flag_pair {
    qn_flag a, b;
} flag_pair;

static const flag_pair exclusions[] = {
#define QN_EXCLUDES(a, b) {QN_FLAG_##a, QN_FLAG_##b},
#include "flags.def"
};

static const flag_pair needs[] = {
#define QN_NEEDS(a, b) {QN_FLAG_##a, QN_FLAG_##b},
#include "flags.def"
};

static const qn_flag alone[] = {
#define QN_ALONE(flag) QN_FLAG_##flag,
#include "flags.def"
};

/* Other spellings, and those that are told what to do instead. */
static const struct {
    const char *name;
    qn_flag flag;
} aliases[] = {
#define QN_ALIAS(name, flag) {name, QN_FLAG_##flag},
#include "flags.def"
};

static const struct {
    const char *name, *why;
} refused[] = {
#define QN_REFUSED(name, why) {name, why},
#include "flags.def"
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
    bool negated = !strncmp(name, "no-", 3);
    for (int i = 0; i < QN_FLAG_COUNT; i++)
        if ((rows[i].commands & command) && (!negated || rows[i].kind == BOOL))
            names[count++] = rows[i].name;
    names[count] = NULL;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (!strcmp(refused[i].name, name))
            return qn_fail(QN_E_ARG, "--%s is a flag of mlx-lm: %s", name,
                           refused[i].why);
    const char *near = qn_nearest(name + (negated ? 3 : 0), names);
    if (near)
        return qn_fail(QN_E_ARG, "unknown flag --%s; did you mean --%s%s?",
                       name, negated ? "no-" : "", near);
    return qn_fail(QN_E_ARG, "unknown flag --%s", name);
}

/* ---- values ---- */

/* Decimal digits with an optional minus; *end is what follows them.  (strtoll
 * alone would take white space and a plus.) */
static bool read_whole(const char *text, int64_t *out, const char **end)
{
    char *after;
    const char *digits = text + (*text == '-');
    if (*digits < '0' || *digits > '9')
        return false;
    errno = 0;
    *out = strtoll(text, &after, 10);
    *end = after;
    return !errno;
}

bool qn_args_count(const char *text, int64_t *out)
{
    const char *end;
    int64_t value;
    if (!read_whole(text, &value, &end))
        return false;
    int shift = *end == 'k' || *end == 'K'   ? 10
                : *end == 'm' || *end == 'M' ? 20
                : *end == 'g' || *end == 'G' ? 30
                                             : 0;
    if (shift)
        end++;
    int64_t limit = INT64_MAX >> shift;
    if (*end || value > limit || value < -limit)
        return false;
    *out = value * (1LL << shift);
    return true;
}

bool qn_args_size(const char *text, int64_t *out)
{
    static const char units[] = "KMGT";
    const char *end;
    int64_t value;
    if (!read_whole(text, &value, &end))
        return false;
    char unit = *end >= 'a' && *end <= 'z' ? (char)(*end - 32) : *end;
    const char *found = unit ? strchr(units, unit) : NULL;
    int shift = found ? 10 * (int)(found - units + 1) : 0;
    end += found != NULL;
    if (found && !strcmp(end, "iB"))
        end += 2;
    else if (*end == 'B')
        end++;
    int64_t limit = INT64_MAX >> shift;
    if (*end || value > limit || value < -limit)
        return false;
    *out = value * (1LL << shift);
    return true;
}

/* A decimal number; not the hexadecimal ones, infinities and white space that
 * strtod also takes. */
static bool read_real(const char *text, double *out)
{
    char *end;
    if (*text == '+' || text[strspn(text, "0123456789.eE+-")])
        return false;
    *out = strtod(text, &end);
    return end != text && !*end && isfinite(*out);
}

bool qn_args_percent(const char *text, double *out)
{
    char number[32];
    size_t length = strlen(text);
    length -= length && text[length - 1] == '%';
    if (length >= sizeof number)
        return false;
    memcpy(number, text, length);
    number[length] = '\0';
    return read_real(number, out) && *out >= 0 && *out <= 100;
}

bool qn_args_duration(const char *text, double *out)
{
    char number[32];
    size_t length = strlen(text);
    char unit = length ? text[length - 1] : 's';
    double scale = unit == 's'   ? 1
                   : unit == 'm' ? 60
                   : unit == 'h' ? 3600
                   : unit == 'd' ? 86400
                                 : 0;
    length -= scale > 0;
    if (length >= sizeof number)
        return false;
    memcpy(number, text, length);
    number[length] = '\0';
    if (!read_real(number, out) || *out < 0)
        return false;
    *out *= scale > 0 ? scale : 1;
    return true;
}

static void print_bound(char out[32], double bound)
{
    if (bound >= 0x1p63)
        snprintf(out, 32, "%lld", (long long)INT64_MAX);
    else if (bound == floor(bound))
        snprintf(out, 32, "%.0f", bound);
    else
        snprintf(out, 32, "%.10g", bound);
}

static qn_status out_of_range(const flag_row *row, const char *text)
{
    char min[32], max[32];
    if (!*text)
        text = "''";
    print_bound(min, row->min);
    print_bound(max, row->max);
    if (row->kind == PART)
        return qn_fail(QN_E_ARG,
                       "--%s %s: expected a number above %s, at most %s",
                       row->name, text, min, max);
    return qn_fail(QN_E_ARG, "--%s %s: expected %s from %s to %s", row->name,
                   text,
                   row->kind == REAL   ? "a number"
                   : row->kind == SIZE ? "a size such as 512M or 8GiB"
                                       : "a whole number",
                   min, max);
}

static qn_status set_whole(const flag_row *row, qn_arg *arg, const char *text)
{
    const char *end = "";
    bool good = row->kind == COUNT ? qn_args_count(text, &arg->whole)
                : row->kind == SIZE
                    ? qn_args_size(text, &arg->whole)
                    : read_whole(text, &arg->whole, &end) && !*end;
    if (!good || (double)arg->whole < row->min || (double)arg->whole > row->max)
        return out_of_range(row, text);
    return QN_OK;
}

static qn_status set_real(const flag_row *row, qn_arg *arg, const char *text)
{
    if (!read_real(text, &arg->real) || arg->real < row->min ||
        arg->real > row->max || (row->kind == PART && arg->real <= row->min))
        return out_of_range(row, text);
    return QN_OK;
}

static qn_status set_duration(const flag_row *row, qn_arg *arg,
                              const char *text)
{
    if (qn_args_duration(text, &arg->real))
        return QN_OK;
    return qn_fail(QN_E_ARG,
                   "--%s %s: expected a duration such as 30s, 5m, 1h, 2d or a "
                   "number of seconds",
                   row->name, *text ? text : "''");
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
    return qn_fail(QN_E_ARG, "--%s %s: expected one of %s", row->name,
                   *text ? text : "''", row->values);
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
    /* One of two values would have to be ignored. */
    if (arg->given && row->kind != LIST)
        return qn_fail(QN_E_ARG, "--%s %s: the flag was given before",
                       row->name, text);
    arg->given = true;
    if (!arg->origin)
        arg->origin = QN_FROM_FLAG;
    switch (row->kind) {
    case INT:
    case COUNT:
    case SIZE:
        return set_whole(row, arg, text);
    case REAL:
    case PART:
        return set_real(row, arg, text);
    case DURATION:
        return set_duration(row, arg, text);
    case CHOICE:
        return set_choice(row, arg, text);
    case LIST:
        return append(&arg->list, &arg->list_count, text);
    default:
        arg->text = text;
        return QN_OK;
    }
}

static qn_status set_bool(qn_args *args, int flag, bool on)
{
    qn_arg *arg = &args->flag[flag];
    if (arg->given && arg->on != on)
        return qn_fail(QN_E_ARG, "--%s and --no-%s exclude each other",
                       rows[flag].name, rows[flag].name);
    arg->given = true;
    if (!arg->origin)
        arg->origin = QN_FROM_FLAG;
    arg->on = on;
    arg->times++;
    return QN_OK;
}

/* A flag that is not the command's, or was given, is only checked. */
static qn_args *wanted(qn_args *args, int command, qn_flag flag,
                       qn_args *ignored)
{
    bool wants = (rows[flag].commands & command) && !args->flag[flag].given;
    return wants ? args : ignored;
}

qn_status qn_args_preset(qn_args *args, int command, qn_flag flag,
                         const char *text)
{
    qn_args ignored = {0}, *to = wanted(args, command, flag, &ignored);
    to->flag[flag].origin = QN_FROM_ENVIRONMENT;
    return set_value(to, (int)flag, text);
}

bool qn_args_has(const char *name)
{
    for (int i = 0; i < QN_FLAG_COUNT; i++)
        if (!strcmp(rows[i].name, name))
            return true;
    return false;
}

const char *qn_args_name(int flag)
{
    static char name[64];
    snprintf(name, sizeof name, "%s", rows[flag].name);
    for (char *p = name; (p = strchr(p, '-'));)
        *p = '_';
    return name;
}

bool qn_args_is_named(int flag, const char *name)
{
    return !strcmp(rows[flag].name, name) || !strcmp(qn_args_name(flag), name);
}

/* ---- words of the command line ---- */

static int find_name(int command, const char *name, size_t length)
{
    for (int i = 0; i < QN_FLAG_COUNT; i++)
        if ((rows[i].commands & command) && strlen(rows[i].name) == length &&
            !memcmp(rows[i].name, name, length))
            return i;
    for (size_t i = 0; i < sizeof aliases / sizeof *aliases; i++)
        if ((rows[aliases[i].flag].commands & command) &&
            strlen(aliases[i].name) == length &&
            !memcmp(aliases[i].name, name, length))
            return (int)aliases[i].flag;
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
            return set_bool(args, flag, false);
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
        return set_bool(args, flag, true);
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
            qn_status status = set_bool(args, flag, true);
            if (status)
                return status;
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

static qn_status parse_words(qn_args *args, int command, int argc,
                             char *const *argv)
{
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
    return QN_OK;
}

/* Whether a BOOL that is `on` says what holds without it.  Of those that are on
 * by themselves the --no- form is the one that says something. */
static bool is_default(qn_flag flag, bool on)
{
    return on == !strcmp(rows[flag].fallback, "on");
}

/* Given, and not as it is without being given. */
static bool in_force(const qn_args *args, qn_flag flag)
{
    const qn_arg *arg = &args->flag[flag];
    return arg->given &&
           (rows[flag].kind != BOOL || !is_default(flag, arg->on));
}

static qn_status exclude(const qn_args *args, qn_flag a, qn_flag b)
{
    const char *no_a =
        args->flag[a].given && rows[a].kind == BOOL && !args->flag[a].on ? "no-"
                                                                         : "";
    const char *no_b =
        args->flag[b].given && rows[b].kind == BOOL && !args->flag[b].on ? "no-"
                                                                         : "";
    return qn_fail(QN_E_ARG, "--%s%s and --%s%s exclude each other", no_a,
                   rows[a].name, no_b, rows[b].name);
}

/* Flags that every command takes say how it speaks, whatever it does. */
static qn_status check_alone(const qn_args *args, qn_flag flag)
{
    if (!in_force(args, flag))
        return QN_OK;
    if (args->word_count)
        return qn_fail(QN_E_ARG,
                       "--%s and the argument '%s' exclude each other",
                       rows[flag].name, args->words[0]);
    for (int i = 0; i < QN_FLAG_COUNT; i++) {
        bool manner = (rows[i].commands & QN_CMD_VERSION) != 0;
        if (i != (int)flag && !manner && in_force(args, (qn_flag)i))
            return exclude(args, flag, (qn_flag)i);
    }
    return QN_OK;
}

static qn_status check_pairs(const qn_args *args)
{
    for (size_t i = 0; i < sizeof exclusions / sizeof *exclusions; i++) {
        flag_pair pair = exclusions[i];
        if (in_force(args, pair.a) && in_force(args, pair.b))
            return exclude(args, pair.a, pair.b);
    }
    for (size_t i = 0; i < sizeof alone / sizeof *alone; i++) {
        qn_status status = check_alone(args, alone[i]);
        if (status)
            return status;
    }
    for (size_t i = 0; i < sizeof needs / sizeof *needs; i++) {
        flag_pair pair = needs[i];
        if (in_force(args, pair.a) && !in_force(args, pair.b))
            return qn_fail(QN_E_ARG, "--%s needs --%s", rows[pair.a].name,
                           rows[pair.b].name);
    }
    return QN_OK;
}

/* Errors are written as JSON wherever --json stands, also behind the word
 * that could not be read. */
static void find_json(qn_args *args, int argc, char *const *argv)
{
    for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (!strcmp(argv[i], "--json"))
            args->flag[QN_FLAG_JSON].on = true;
}

/* mlx-lm gives model and prompt by flags; here they are arguments. */
static qn_status add_words(qn_args *args)
{
    const qn_arg *model = &args->flag[QN_FLAG_MODEL_WORD];
    const qn_arg *prompt = &args->flag[QN_FLAG_PROMPT_WORD];
    qn_status status = QN_OK;
    if (model->given) {
        status = append(&args->words, &args->word_count, model->text);
        if (!status)
            memmove(args->words + 1, args->words,
                    (args->word_count - 1) * sizeof *args->words);
        if (!status)
            args->words[0] = model->text;
    }
    if (!status && prompt->given && args->word_count)
        status = append(&args->words, &args->word_count, prompt->text);
    return status;
}

/* ---- values of files ---- */

/* What a file's value for the flag must be; NULL when this type will do. */
static const char *expected_type(flag_kind kind, qn_toml_type type)
{
    bool whole = type == QN_TOML_INT, text = type == QN_TOML_STRING;
    bool number = whole || type == QN_TOML_FLOAT;
    switch (kind) {
    case BOOL:
        return type == QN_TOML_BOOL ? NULL : "true or false";
    case INT:
        return whole ? NULL : "a whole number";
    case COUNT:
        return whole || text ? NULL : "a whole number or a string such as '4k'";
    case SIZE:
        return whole || text ? NULL : "a string such as '8GiB' or bytes";
    case REAL:
    case PART:
        return number ? NULL : "a number";
    case DURATION:
        return number || text ? NULL : "a string such as '5m' or seconds";
    case LIST:
        return text || type == QN_TOML_STRINGS ? NULL : "an array of strings";
    default:
        return text ? NULL : "a string";
    }
}

/* The flag from elsewhere that excludes this one, or -1. */
static int rival_of(const qn_args *args, int flag)
{
    for (size_t i = 0; i < sizeof exclusions / sizeof *exclusions; i++) {
        flag_pair pair = exclusions[i];
        int other = (int)pair.a == flag   ? (int)pair.b
                    : (int)pair.b == flag ? (int)pair.a
                                          : -1;
        if (other >= 0 && in_force(args, (qn_flag)other))
            return other;
    }
    return -1;
}

static qn_status set_from_file(qn_args *args, int flag,
                               const qn_toml_entry *value, const char *text)
{
    qn_status status = QN_OK;
    if (rows[flag].kind == BOOL)
        return set_bool(args, flag, value->on);
    if (value->type != QN_TOML_STRINGS)
        return set_value(args, flag, text ? text : value->text);
    args->flag[flag].given = true;
    for (size_t i = 0; !status && i < value->list_count; i++)
        status = set_value(args, flag, value->list[i]);
    return status;
}

qn_status qn_args_preset_value(qn_args *args, int command, qn_flag flag,
                               const qn_toml_entry *value, const char *text)
{
    const char *expected = expected_type(rows[flag].kind, value->type);
    if (expected)
        return qn_fail(QN_E_ARG, "%s: expected %s, found %s", value->key,
                       expected, qn_toml_type_name(value->type));
    qn_args ignored = {0}, *to = wanted(args, command, flag, &ignored);
    int rival = rival_of(args, (int)flag);
    if (to == args && rival >= 0 &&
        (rows[flag].kind != BOOL || !is_default(flag, value->on))) {
        if (args->flag[rival].origin == QN_FROM_FILE)
            return qn_fail(QN_E_ARG, "%s and %s exclude each other",
                           rows[flag].name, rows[rival].name);
        to = &ignored;
    }
    to->flag[flag].origin = QN_FROM_FILE;
    qn_status status = set_from_file(to, (int)flag, value, text);
    qn_free(ignored.flag[flag].list);
    return status;
}

void qn_args_drop_idle(qn_args *args)
{
    for (size_t i = 0; i < sizeof needs / sizeof *needs; i++) {
        qn_arg *arg = &args->flag[needs[i].a];
        if (arg->origin != QN_FROM_FILE || in_force(args, needs[i].b))
            continue;
        qn_free(arg->list);
        *arg = (qn_arg){0};
    }
}

qn_status qn_args_add_word(qn_args *args, const char *text)
{
    const qn_arg *prompt = &args->flag[QN_FLAG_PROMPT_WORD];
    bool first = !args->word_count;
    qn_status status = append(&args->words, &args->word_count, text);
    /* It comes behind a model. */
    if (!status && first && prompt->given)
        status = append(&args->words, &args->word_count, prompt->text);
    return status;
}

qn_flag_info qn_args_info(qn_flag flag)
{
    const flag_row *row = &rows[flag];
    return (qn_flag_info){row->name, row->values, row->fallback, row->commands};
}

bool qn_args_value(qn_buf *out, const qn_args *args, qn_flag flag)
{
    const qn_arg *arg = &args->flag[flag];
    switch (arg->given ? rows[flag].kind : BOOL) {
    case BOOL:
        if (arg->given)
            qn_buf_add_text(out, arg->on ? "on" : "off");
        break;
    case TEXT:
    case CHOICE:
        qn_buf_add_text(out, arg->text);
        break;
    case LIST:
        for (size_t i = 0; i < arg->list_count; i++)
            qn_buf_printf(out, "%s%s", i ? ", " : "", arg->list[i]);
        break;
    case INT:
    case COUNT:
    case SIZE:
        qn_buf_printf(out, "%lld", (long long)arg->whole);
        break;
    case REAL:
    case PART:
    case DURATION:
        qn_buf_printf(out, "%g", arg->real);
        break;
    }
    return arg->given;
}

int qn_args_find(int commands, const char *name)
{
    for (int i = 0; i < QN_FLAG_COUNT; i++) {
        const char *a = rows[i].name, *b = name;
        while (*a && (*a == *b || (*a == '-' && *b == '_'))) {
            a++;
            b++;
        }
        if (!*a && !*b && (rows[i].commands & commands))
            return i;
    }
    return -1;
}

qn_status qn_args_parse(qn_args *args, int command, int argc, char *const *argv,
                        size_t min_words, size_t max_words, const char *usage)
{
    memset(args, 0, sizeof *args);
    qn_status status = parse_words(args, command, argc, argv);
    if (status)
        find_json(args, argc, argv);
    if (!status)
        status = add_words(args);
    if (status || args->flag[QN_FLAG_HELP].on)
        return status;
    if (args->word_count > max_words)
        return qn_fail(QN_E_ARG, "unexpected argument '%s'",
                       args->words[max_words]);
    if (args->word_count < min_words)
        return qn_fail(QN_E_ARG, "expected %s; see --help", usage);
    return check_pairs(args);
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
                           flag, *text ? text : "''", (long long)min,
                           (long long)max);
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

/* ---- help ---- */

enum { HELP_COLUMN = 33, HELP_WIDTH = 79 };

/* Words of `text` from HELP_COLUMN on, as many lines as it takes; *column is
 * where the line stands. */
static void add_wrapped(qn_buf *out, const char *text, int *column)
{
    while (*text) {
        int length = (int)strcspn(text, " ");
        if (*column > HELP_COLUMN && *column + 1 + length > HELP_WIDTH) {
            qn_buf_printf(out, "\n%*s", HELP_COLUMN, "");
            *column = HELP_COLUMN;
        } else if (*column > HELP_COLUMN) {
            qn_buf_add_char(out, ' ');
            ++*column;
        }
        qn_buf_printf(out, "%.*s", length, text);
        *column += length;
        text += length + (text[length] == ' ');
    }
}

enum { RANGE_SIZE = 96 };

static void add_range(const flag_row *row, char out[RANGE_SIZE])
{
    char min[32], max[32];
    bool bounded = row->kind == INT || row->kind == REAL || row->kind == PART;
    print_bound(min, row->min);
    print_bound(max, row->max);
    *out = '\0';
    if (bounded && row->kind == PART)
        snprintf(out, RANGE_SIZE, "(above %s, at most %s)", min, max);
    else if (bounded && row->max < 1e6)
        snprintf(out, RANGE_SIZE, "(%s to %s)", min, max);
}

void qn_args_help(qn_buf *out, int command)
{
    for (int i = 0; i < QN_FLAG_COUNT; i++) {
        const flag_row *row = &rows[i];
        if (!(row->commands & command))
            continue;
        char letter[8] = "    ", range[RANGE_SIZE], fallback[64] = "";
        size_t start = out->size;
        if (row->letter)
            snprintf(letter, sizeof letter, "-%c, ", row->letter);
        qn_buf_printf(out, "  %s--%s%s%s", letter, row->name,
                      *row->values ? " " : "", row->values);
        int column = (int)(out->size - start);
        if (column >= HELP_COLUMN)
            qn_buf_printf(out, "\n%*s", HELP_COLUMN, "");
        else
            qn_buf_printf(out, "%*s", HELP_COLUMN - column, "");
        column = HELP_COLUMN;
        add_wrapped(out, row->help, &column);
        add_range(row, range);
        add_wrapped(out, range, &column);
        if (*row->fallback)
            snprintf(fallback, sizeof fallback, "[%s]", row->fallback);
        add_wrapped(out, fallback, &column);
        qn_buf_add_char(out, '\n');
    }
    qn_buf_add_text(out, "A flag without a value can be taken back: "
                         "--no-NAME.\n");
}

void qn_args_help_json(qn_json_writer *w, int command)
{
    static const char *const kinds[] = {
        [BOOL] = "bool",         [TEXT] = "text",     [LIST] = "list",
        [INT] = "integer",       [COUNT] = "count",   [REAL] = "number",
        [PART] = "number",       [CHOICE] = "choice", [SIZE] = "size",
        [DURATION] = "duration",
    };
    qn_json_write_array(w);
    for (int i = 0; i < QN_FLAG_COUNT; i++) {
        const flag_row *row = &rows[i];
        if (!(row->commands & command))
            continue;
        char letter[2] = {row->letter, '\0'};
        const struct {
            const char *key, *text;
        } texts[] = {
            {"name", row->name},
            {"letter", row->letter ? letter : NULL},
            {"kind", kinds[row->kind]},
            {"values", *row->values ? row->values : NULL},
            {"default", *row->fallback ? row->fallback : NULL},
            {"help", row->help},
        };
        qn_json_write_object(w);
        for (size_t k = 0; k < sizeof texts / sizeof *texts; k++) {
            qn_json_write_key(w, texts[k].key);
            qn_json_write_text(w, texts[k].text);
        }
        qn_json_write_object_end(w);
    }
    qn_json_write_array_end(w);
}

/* ---- completion ---- */

static void add_candidate(qn_buf *out, const char *before, const char *text,
                          size_t size, const char *word)
{
    size_t n = strlen(word);
    if (n > size || memcmp(text, word, n) != 0)
        return;
    qn_buf_add_text(out, before);
    qn_buf_add(out, text, size);
    qn_buf_add_char(out, '\n');
}

static void add_values(qn_buf *out, const flag_row *row, const char *before,
                       const char *word)
{
    for (const char *p = row->values; *p;) {
        size_t n = strcspn(p, "|");
        add_candidate(out, before, p, n, word);
        p += n;
        p += *p == '|';
    }
}

static int flag_of(int command, const char *word, size_t length)
{
    if (length > 2 && word[0] == '-' && word[1] == '-')
        return find_name(command, word + 2, length - 2);
    return length == 2 && word[0] == '-' ? find_letter(command, word[1]) : -1;
}

bool qn_args_complete(qn_buf *out, int command, const char *before,
                      const char *word)
{
    int flag = flag_of(command, before, strlen(before));
    if (flag >= 0 && rows[flag].kind != BOOL) {
        if (rows[flag].kind == CHOICE)
            add_values(out, &rows[flag], "", word);
        return false;
    }
    size_t length = strcspn(word, "=");
    if (word[length] && (flag = flag_of(command, word, length)) >= 0) {
        char front[80];
        snprintf(front, sizeof front, "%.*s=", (int)length, word);
        if (rows[flag].kind == CHOICE)
            add_values(out, &rows[flag], front, word + length + 1);
        return false;
    }
    for (int i = 0; *word == '-' && i < QN_FLAG_COUNT; i++) {
        char name[80];
        if (!(rows[i].commands & command))
            continue;
        snprintf(name, sizeof name, "--%s", rows[i].name);
        add_candidate(out, "", name, strlen(name), word);
        snprintf(name, sizeof name, "--no-%s", rows[i].name);
        if (rows[i].kind == BOOL && !strncmp(word, "--no-", 5))
            add_candidate(out, "", name, strlen(name), word);
    }
    return true;
}
