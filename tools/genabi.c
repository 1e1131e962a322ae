/* genabi.c: genabi OUT.c FUNCTIONS.tsv... HAND.c HEADER.h...
 *
 * Writes for fuzz/abi.h one caller for each function of the table: it draws
 * every argument by its type and name, makes the call and files the result.
 * Functions whose arguments depend on one another are written by hand: HAND.c
 * has FZ_HAND(name) for each, and they only get their row in the table.
 *
 * An argument type that nothing is known of, a caller by hand of an unknown
 * function, and a function of the headers that is not in FUNCTIONS.tsv are
 * errors: no function can be left out. */
#include <ctype.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 1024, PARAMETERS = 24, WORD = 256 };

typedef struct parameter {
    char type[WORD], name[WORD];
    bool optional;
} parameter;

typedef struct function {
    char header[64], name[WORD], result[WORD];
    parameter parameters[PARAMETERS];
    int count;
    bool by_hand;
} function;

static function functions[MOST];
static int function_count;

static void die(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fputs("genabi: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    exit(1);
}

static char *read_all(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (!file)
        die("%s: can't be read", path);
    fseek(file, 0, SEEK_END);
    long size = ftell(file);
    rewind(file);
    char *text = size >= 0 ? malloc((size_t)size + 1) : NULL;
    if (!text || fread(text, 1, (size_t)size, file) != (size_t)size)
        die("%s: can't be read", path);
    text[size] = '\0';
    fclose(file);
    return text;
}

static function *find(const char *name, size_t size)
{
    for (int i = 0; i < function_count; i++)
        if (strlen(functions[i].name) == size &&
            !memcmp(functions[i].name, name, size))
            return &functions[i];
    return NULL;
}

/* ---- the table ---- */

static void copy(char *out, const char *text, size_t size)
{
    if (size >= WORD)
        die("a word of %zu characters", size);
    memcpy(out, text, size);
    out[size] = '\0';
}

/* "const int* shape?" */
static void read_parameter(function *f, const char *text, size_t size)
{
    if (f->count == PARAMETERS)
        die("%s: more than %d parameters", f->name, PARAMETERS);
    parameter *p = &f->parameters[f->count++];
    while (size && *text == ' ')
        text++, size--;
    p->optional = size && text[size - 1] == '?';
    size -= p->optional;
    size_t end = size;
    while (end &&
           (isalnum((unsigned char)text[end - 1]) || text[end - 1] == '_'))
        end--;
    copy(p->name, text + end, size - end);
    while (end && text[end - 1] == ' ')
        end--;
    if (end >= 6 && !memcmp(text, "const ", 6) && text[end - 1] != '*')
        text += 6, end -= 6;
    copy(p->type, text, end);
}

static void read_parameters(function *f, const char *text)
{
    int depth = 0;
    const char *start = text;
    for (const char *p = text; *text; p++) {
        depth += (*p == '(') - (*p == ')');
        if (!*p || (*p == ',' && !depth)) {
            read_parameter(f, start, (size_t)(p - start));
            start = p + 1;
        }
        if (!*p)
            break;
    }
}

static void read_table(const char *path)
{
    char *text = read_all(path);
    for (char *line = text, *next; *line; line = next) {
        char *end = strchr(line, '\n');
        next = end ? end + 1 : line + strlen(line);
        if (end)
            *end = '\0';
        if (*line == '#' || !*line)
            continue;
        if (function_count == MOST)
            die("%s: more than %d functions", path, MOST);
        function *f = &functions[function_count++];
        char *field[4] = {line};
        for (int i = 1; i < 4; i++) {
            char *tab = strchr(field[i - 1], '\t');
            if (!tab)
                die("%s: a row without four fields: %s", path, line);
            *tab = '\0';
            field[i] = tab + 1;
        }
        copy(f->header, field[0],
             strlen(field[0]) < 64 ? strlen(field[0]) : 63);
        copy(f->name, field[1], strlen(field[1]));
        copy(f->result, field[2], strlen(field[2]));
        read_parameters(f, field[3]);
    }
    free(text);
}

static void read_hand(const char *path)
{
    char *text = read_all(path);
    const char *mark = "\nFZ_HAND(";
    for (const char *p = text; (p = strstr(p, mark));) {
        p += strlen(mark);
        size_t size = strcspn(p, ")");
        function *f = find(p, size);
        if (!f)
            die("%s: %.*s is no function of the table", path, (int)size, p);
        f->by_hand = true;
    }
    free(text);
}

/* Blanks comments and directives, so that what they name is not taken for a
 * declaration. */
static void blank(char *text)
{
    for (char *p = text; p && *p; p = strchr(p, '\n')) {
        p += *p == '\n';
        if (*p == '#')
            memset(p, ' ', strcspn(p, "\n"));
    }
    for (char *p = text; (p = strstr(p, "/*"));) {
        char *end = strstr(p, "*/");
        if (!end)
            end = p + strlen(p) - 2;
        memset(p, ' ', (size_t)(end + 2 - p));
    }
}

/* Every "mlx_name(" is in the table. */
static void check_header(const char *path)
{
    char *text = read_all(path);
    blank(text);
    for (char *p = text; (p = strstr(p, "mlx_"));) {
        if (p > text && p[-1] == '_')
            p--;
        size_t n = 0;
        while (isalnum((unsigned char)p[n]) || p[n] == '_')
            n++;
        if (p[n] == '(' && !find(p, n))
            die("%s: %.*s is missing in the table", path, (int)n, p);
        p += n;
    }
    free(text);
}

/* ---- callers ---- */

/* Handles, by the name without mlx_. */
static bool is_handle(const char *type)
{
    static const char *const others[] = {
        "mlx_dtype",          "mlx_fft_norm",     "mlx_device_type",
        "mlx_compile_mode",   "mlx_optional_int", "mlx_optional_float",
        "mlx_optional_dtype", "mlx_io_vtable",    "mlx_error_handler_func"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (!strcmp(type, others[i]))
            return false;
    return !strncmp(type, "mlx_", 4) && !strchr(type, '*');
}

/* Types of one value, and who draws it. */
static const char *const values[][2] = {
    {"int", "int"},
    {"bool", "bool"},
    {"size_t", "size"},
    {"float", "float"},
    {"double", "double"},
    {"uint64_t", "word"},
    {"uintptr_t", "id"},
    {"const char*", "text"},
    {"mlx_dtype", "dtype"},
    {"mlx_fft_norm", "norm"},
    {"mlx_device_type", "device_type"},
    {"mlx_compile_mode", "compile_mode"},
    {"mlx_optional_int", "optional_int"},
    {"mlx_optional_float", "optional_float"},
    {"mlx_optional_dtype", "optional_dtype"},
};

/* Pointers with a count after them. */
static const char *const lists[][2] = {
    {"const int*", "ints"},
    {"int*", "ints"},
    {"const int64_t*", "longs"},
    {"const uint64_t*", "words"},
    {"const char**", "texts"},
    {"const mlx_array*", "arrays"},
    {"const mlx_vector_array*", "vectors"},
    {"const mlx_stream*", "streams"},
};

static const char *look_up(const char *const (*table)[2], size_t count,
                           const char *type)
{
    for (size_t i = 0; i < count; i++)
        if (!strcmp(table[i][0], type))
            return table[i][1];
    return NULL;
}
#define LOOK_UP(table, type) look_up(table, sizeof table / sizeof *table, type)

/* Results of one word: "int*", "bool*", "uint8_t*", "const char**". */
static bool is_place(const char *type)
{
    static const char *const types[] = {"bool*",           "int*",
                                        "size_t*",         "uint8_t*",
                                        "uint16_t*",       "uint32_t*",
                                        "uint64_t*",       "int8_t*",
                                        "int16_t*",        "int32_t*",
                                        "int64_t*",        "float*",
                                        "double*",         "mlx_complex64_t*",
                                        "void**",          "float16_t*",
                                        "bfloat16_t*",     "const char**",
                                        "mlx_device_type*"};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (!strcmp(type, types[i]))
            return true;
    return false;
}

/* The half types as the headers name them on every platform. */
static const char *plain(const char *type)
{
    if (!strcmp(type, "float16_t*"))
        return "mlx_float16_t*";
    if (!strcmp(type, "bfloat16_t*"))
        return "mlx_bfloat16_t*";
    return type;
}

static void write_argument(FILE *out, function *f, int *at)
{
    parameter *p = &f->parameters[*at];
    bool counted = *at + 1 < f->count &&
                   !strcmp(f->parameters[*at + 1].type, "size_t") &&
                   (strstr(f->parameters[*at + 1].name, "num") ||
                    !strcmp(f->parameters[*at + 1].name, "size"));
    const char *by = LOOK_UP(lists, p->type);
    size_t size = strlen(p->type);
    if (counted && by) {
        fprintf(out, "    size_t n%d;\n    %s a%d = fz_%s(f, \"%s\", &n%d);\n",
                *at + 1, p->type, *at, by, p->name, *at + 1);
        ++*at;
    } else if ((by = LOOK_UP(values, p->type))) {
        fprintf(out, "    %s a%d = fz_%s(f, \"%s\"%s);\n", p->type, *at, by,
                p->name,
                !strcmp(by, "text") ? p->optional ? ", true" : ", false" : "");
    } else if (!strcmp(p->type, "FILE*")) {
        fprintf(out, "    FILE *a%d = fz_file(f);\n", *at);
    } else if (is_handle(p->type)) {
        fprintf(out, "    %s a%d = fz_%s_in(f, \"%s\", %s);\n", p->type, *at,
                p->type + 4, p->name, p->optional ? "true" : "false");
    } else if (is_place(p->type)) {
        const char *type = plain(p->type);
        fprintf(out, "    %.*s v%d = {0};\n    %s a%d = &v%d;\n",
                (int)strlen(type) - 1, type, *at, type, *at, *at);
    } else if (size > 1 && p->type[size - 1] == '*') {
        char type[WORD];
        copy(type, p->type, size - 1);
        if (!is_handle(type))
            die("%s: nothing is known of \"%s\"", f->name, p->type);
        fprintf(out, "    %s *a%d = fz_%s_out(f);\n", type, *at, type + 4);
    } else {
        die("%s: nothing is known of \"%s\"; write it by hand", f->name,
            p->type);
    }
}

/* What the caller does with what comes back. */
static const char *taker(const function *f, char *room)
{
    static const char *const numbers[] = {"mlx_array_dim",
                                          "mlx_distributed_group_rank",
                                          "mlx_distributed_group_size"};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (!strcmp(f->name, numbers[i]))
            return "fz_number(f, (long long)";
    if (is_handle(f->result)) {
        snprintf(room, 2 * WORD, "fz_%s_put(f, ", f->result + 4);
        return room;
    }
    if (!strcmp(f->result, "void"))
        return "fz_nothing(f, ";
    if (!strcmp(f->result, "int"))
        return "fz_status(f, ";
    if (!strcmp(f->result, "const char*"))
        return "fz_read_text(f, ";
    if (strchr(f->result, '*')) {
        if (strncmp(f->name, "mlx_array_data_", 15))
            die("%s: nothing is known of its result", f->name);
        return "fz_read_data(f, a0, sizeof *";
    }
    return "fz_number(f, (long long)";
}

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n >= m && !strcmp(text + n - m, end);
}

static void write_call(FILE *out, const function *f)
{
    fprintf(out, "%s(", f->name);
    for (int i = 0; i < f->count; i++) {
        bool count = i && !strcmp(f->parameters[i].type, "size_t") &&
                     LOOK_UP(lists, f->parameters[i - 1].type) &&
                     (strstr(f->parameters[i].name, "num") ||
                      !strcmp(f->parameters[i].name, "size"));
        fprintf(out, "%s%c%d", i ? ", " : "", count ? 'n' : 'a', i);
    }
    fprintf(out, ")");
}

static void write_caller(FILE *out, function *f)
{
    char room[2 * WORD];
    fprintf(out, "static void call_%s(fz *f)\n{\n", f->name);
    if (ends_with(f->name, "_free") && f->count == 1) {
        const char *type = f->parameters[0].type;
        fprintf(out, "    %s a0 = fz_%s_take(f);\n    fz_begin(f);\n    %s",
                type, type + 4, taker(f, room));
        write_call(out, f);
        fprintf(out, ");\n}\n\n");
        return;
    }
    for (int i = 0; i < f->count; i++)
        write_argument(out, f, &i);
    fprintf(out, "    fz_begin(f);\n    ");
    const char *by = taker(f, room);
    if (ends_with(by, "sizeof *")) {
        fprintf(out, "%s", by);
        write_call(out, f);
        fprintf(out, ", ");
        write_call(out, f);
        fprintf(out, ");\n");
    } else {
        fprintf(out, "%s", by);
        write_call(out, f);
        fprintf(out, ");\n");
    }
    for (int i = 0; i < f->count; i++)
        if (!strcmp(f->parameters[i].type, "const char**") &&
            (i + 1 == f->count || strcmp(f->parameters[i + 1].type, "size_t")))
            fprintf(out, "    fz_read_text(f, v%d);\n", i);
        else if (!strcmp(f->parameters[i].type, "FILE*"))
            fprintf(out, "    fz_file_close(a%d);\n", i);
    fprintf(out, "    fz_end(f);\n}\n\n");
}

/* What a function of arrays may call too. */
static bool is_operation(const function *f)
{
    return !f->by_hand &&
           (!strcmp(f->header, "ops.h") || !strcmp(f->header, "fft.h") ||
            !strcmp(f->header, "linalg.h") || !strcmp(f->header, "random.h") ||
            (!strcmp(f->header, "fast.h") && !strstr(f->name, "kernel")));
}

int main(int argc, char **argv)
{
    if (argc < 5)
        die("usage: genabi OUT.c FUNCTIONS.tsv... HAND.c HEADER...");
    for (int i = 2; i < argc; i++)
        if (ends_with(argv[i], ".tsv"))
            read_table(argv[i]);
        else if (ends_with(argv[i], ".c"))
            read_hand(argv[i]);
        else
            check_header(argv[i]);

    FILE *out = fopen(argv[1], "w");
    if (!out)
        die("%s: can't be written", argv[1]);
    fprintf(out, "/* Written by tools/genabi.c. */\n#include \"abi.h\"\n\n");
    for (int i = 0; i < function_count; i++) {
        if (functions[i].by_hand)
            fprintf(out, "FZ_HAND(%s);\n", functions[i].name);
        else
            write_caller(out, &functions[i]);
    }
    fprintf(out, "void fz_free(fz_kind kind, void *ctx)\n{\n"
                 "    switch (kind) {\n");
    for (int i = 0; i < function_count; i++) {
        const function *f = &functions[i];
        if (ends_with(f->name, "_free") && !f->by_hand)
            fprintf(out,
                    "    case FZ_%s:\n        (void)%s((%s){ctx});\n"
                    "        return;\n",
                    f->parameters[0].type + 4, f->name, f->parameters[0].type);
    }
    fprintf(out, "    default:\n        return;\n    }\n}\n\n");
    fprintf(out, "const fz_row fz_rows[] = {\n");
    for (int i = 0; i < function_count; i++)
        fprintf(out, "    {\"%s\", %s%s, %s, (void (*)(void))%s},\n",
                functions[i].name, functions[i].by_hand ? "fz_hand_" : "call_",
                functions[i].name,
                is_operation(&functions[i]) ? "true" : "false",
                functions[i].name);
    fprintf(out, "};\nconst size_t fz_row_count = %d;\n", function_count);
    if (fclose(out))
        die("%s: can't be written", argv[1]);
    return 0;
}
