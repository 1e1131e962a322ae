/* call.c: calls functions of the C API by name.
 *
 * The table of functions (vectors/abi/functions.tsv) says what each takes;
 * libffi makes the call.  Handles and optionals are structs that travel in
 * one integer register, so an argument is a word, a float or a double. */
#include "case.h"

#include "base/alloc.h"
#include "base/file.h"

#include <dlfcn.h>
#include <ffi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- names ---- */

enum { MOST_VALUES = 256 };

static struct {
    const char *name;
    case_value value;
} values[MOST_VALUES];
static size_t value_count;

case_value *value_find(qn_str name)
{
    for (size_t i = 0; i < value_count; i++)
        if (qn_str_is(name, values[i].name))
            return &values[i].value;
    return NULL;
}

case_value *value_make(qn_str name, value_kind kind)
{
    case_value *v = value_find(name);
    if (!v) {
        if (value_count == MOST_VALUES) {
            case_fail("more than %d names", MOST_VALUES);
            return NULL;
        }
        values[value_count].name = case_keep(name);
        v = &values[value_count++].value;
        v->kind = kind;
    }
    return v;
}

static void free_value(case_value *v)
{
    switch (v->kind) {
    case VALUE_ARRAY:
        mlx_array_free((mlx_array){v->ctx});
        break;
    case VALUE_VECTOR:
        mlx_vector_array_free((mlx_vector_array){v->ctx});
        break;
    case VALUE_ARRAY_MAP:
        mlx_map_string_to_array_free((mlx_map_string_to_array){v->ctx});
        break;
    case VALUE_STRING_MAP:
        mlx_map_string_to_string_free((mlx_map_string_to_string){v->ctx});
        break;
    case VALUE_GGUF:
        mlx_io_gguf_free((mlx_io_gguf){v->ctx});
        break;
    default:
        break;
    }
}

void values_free(void)
{
    for (size_t i = 0; i < value_count; i++)
        free_value(&values[i].value);
    value_count = 0;
}

/* ---- errors and the stream ---- */

static char last_error[4096];
static bool has_error;

static void keep_error(const char *message, void *data)
{
    (void)data;
    has_error = true;
    snprintf(last_error, sizeof last_error, "%s", message ? message : "");
}

void calls_begin(void)
{
    mlx_set_error_handler(keep_error, NULL, NULL);
}

const char *calls_error(void)
{
    return has_error ? last_error : NULL;
}

void calls_clear_error(void)
{
    has_error = false;
}

mlx_stream calls_stream(void)
{
    static mlx_stream stream;
    if (!stream.ctx)
        stream = mlx_default_cpu_stream_new();
    return stream;
}

/* ---- the table ---- */

static void trim(char *text)
{
    size_t n = strlen(text), skip = strspn(text, " ");
    while (n > skip && text[n - 1] == ' ')
        n--;
    memmove(text, text + skip, n - skip);
    text[n - skip] = '\0';
}

/* "const mlx_array a" to type "mlx_array", name "a". */
static void parse_parameter(parameter *p, const char *begin, size_t length)
{
    char text[160];
    snprintf(text, sizeof text, "%.*s", (int)length, begin);
    trim(text);
    size_t n = strlen(text);
    p->optional = n && text[n - 1] == '?';
    if (p->optional)
        text[--n] = '\0';
    size_t name = n;
    while (name && text[name - 1] != ' ' && text[name - 1] != '*')
        name--;
    snprintf(p->name, sizeof p->name, "%s", text + name);
    text[name] = '\0';
    char *type = text;
    p->type[0] = '\0';
    for (char *word; (word = strsep(&type, " "));)
        if (*word && strcmp(word, "const")) {
            size_t used = strlen(p->type);
            snprintf(p->type + used, sizeof p->type - used, "%s", word);
        }
}

static bool parse_signature(signature *s, char *line)
{
    char *cursor = line;
    strsep(&cursor, "\t");
    char *name = strsep(&cursor, "\t"), *result = strsep(&cursor, "\t");
    if (!name || !result)
        return false;
    snprintf(s->name, sizeof s->name, "%s", name);
    snprintf(s->result, sizeof s->result, "%s", result);
    s->count = 0;
    const char *args = cursor ? cursor : "";
    int depth = 0;
    const char *begin = args;
    for (const char *p = args;; p++) {
        depth += (*p == '(') - (*p == ')');
        if ((*p == ',' && !depth) || !*p) {
            if (p > begin && s->count < 24)
                parse_parameter(&s->params[s->count++], begin,
                                (size_t)(p - begin));
            begin = p + 1;
        }
        if (!*p)
            break;
    }
    void *address = dlsym(RTLD_DEFAULT, s->name);
    memcpy(&s->address, &address, sizeof address);
    return true;
}

const signature *signature_of(qn_str name)
{
    static signature found;
    static char *table;
    size_t size;
    if (!table && qn_file_read(&table, &size,
                               QN_TEST_VECTORS "/abi/functions.tsv", 1 << 20)) {
        case_fail("the table of functions can't be read");
        return NULL;
    }
    for (char *line = table; *line;) {
        size_t length = strcspn(line, "\n");
        char *tab = memchr(line, '\t', length);
        if (*line != '#' && tab && !strncmp(tab + 1, name.data, name.size) &&
            tab[1 + name.size] == '\t') {
            char *copy = qn_strndup(line, length);
            bool good = copy && parse_signature(&found, copy);
            qn_free(copy);
            if (good)
                return &found;
        }
        line += length + (line[length] == '\n');
    }
    case_fail("no function %.*s in the table", (int)name.size, name.data);
    return NULL;
}

uint64_t optional_word(bool has, uint32_t word)
{
    return (uint64_t)word | (uint64_t)has << 32;
}

uint64_t signature_call(const signature *s, const argument *args)
{
    ffi_cif cif;
    ffi_type *types[24];
    void *pointers[24];
    float floats[24];
    uint64_t words[24];
    double reals[24];
    for (int i = 0; i < s->count; i++) {
        words[i] = args[i].word;
        reals[i] = args[i].real;
        floats[i] = (float)args[i].real;
        switch (args[i].kind) {
        case ARG_WORD:
            types[i] = &ffi_type_uint64;
            pointers[i] = &words[i];
            break;
        case ARG_FLOAT:
            types[i] = &ffi_type_float;
            pointers[i] = &floats[i];
            break;
        default:
            types[i] = &ffi_type_double;
            pointers[i] = &reals[i];
            break;
        }
    }
    ffi_arg result = 0;
    if (ffi_prep_cif(&cif, FFI_DEFAULT_ABI, (unsigned)s->count,
                     &ffi_type_uint64, types) != FFI_OK) {
        case_fail("%s: can't be called", s->name);
        return 1;
    }
    ffi_call(&cif, s->address, &result, pointers);
    return strcmp(s->result, "int") ? (uint64_t)result
                                    : (uint64_t)(uint32_t)result;
}
