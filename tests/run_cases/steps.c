/* steps.c: engine and io cases: calls of the C API, step by step. */
#include "case.h"

#include "base/alloc.h"
#include "base/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- arguments ---- */

typedef struct pieces {
    argument args[24];
    int count;
    void *owned[24]; /* freed after the call */
    int owned_count;
} pieces;

static void push_word(pieces *p, uint64_t word)
{
    if (p->count < 24)
        p->args[p->count++] = (argument){.kind = ARG_WORD, .word = word};
}

static void push_pointer(pieces *p, const void *pointer)
{
    push_word(p, (uint64_t)(uintptr_t)pointer);
}

/* The kind of value that an output parameter of this type makes. */
static value_kind kind_of_type(const char *type)
{
    if (!strncmp(type, "mlx_vector_array", 16))
        return VALUE_VECTOR;
    if (!strncmp(type, "mlx_map_string_to_array", 23))
        return VALUE_ARRAY_MAP;
    if (!strncmp(type, "mlx_map_string_to_string", 24))
        return VALUE_STRING_MAP;
    if (!strncmp(type, "mlx_io_gguf", 11))
        return VALUE_GGUF;
    return VALUE_ARRAY;
}

static bool push_name(pieces *p, const signature *s, qn_str name)
{
    if (qn_str_is(name, "$null")) {
        push_word(p, 0);
        return true;
    }
    if (qn_str_is(name, "$s")) {
        push_pointer(p, calls_stream().ctx);
        return true;
    }
    if (name.size && name.data[0] == '&') {
        const char *type = p->count < s->count ? s->params[p->count].type : "";
        case_value *v = value_make((qn_str){name.data + 1, name.size - 1},
                                   kind_of_type(type));
        push_pointer(p, &v->ctx);
        return v != NULL;
    }
    case_value *v = value_find(name);
    if (!v) {
        case_fail("case: no value %.*s", (int)name.size, name.data);
        return false;
    }
    push_pointer(p, v->ctx);
    return true;
}

static bool push_ints(pieces *p, const qn_json *list)
{
    int *ints = qn_calloc((size_t)list->count + 1, sizeof *ints);
    for (uint32_t i = 0; ints && i < list->count; i++) {
        int64_t n = 0;
        qn_json_as_int(&list->items[i], &n);
        ints[i] = (int)n;
    }
    p->owned[p->owned_count++] = ints;
    push_pointer(p, list->count ? ints : NULL);
    push_word(p, list->count);
    return ints != NULL;
}

static bool push_tagged(pieces *p, const qn_json *arg,
                        const case_context *context)
{
    const char *tag = arg->count == 1 ? case_keep(arg->keys[0]) : "";
    const qn_json *v = arg->count == 1 ? &arg->items[0] : NULL;
    bool null = v && v->type == QN_JSON_T_NULL;
    int64_t whole = 0;
    double real = 0;
    bool flag = false;
    qn_str text = {"", 0};
    mlx_dtype dtype = MLX_BOOL;
    qn_json_as_int(v, &whole);
    case_real(v, &real);
    qn_json_as_bool(v, &flag);
    qn_json_as_str(v, &text);
    if (!strcmp(tag, "int")) {
        push_word(p, (uint64_t)whole);
    } else if (!strcmp(tag, "u64")) {
        char digits[32];
        snprintf(digits, sizeof digits, "%.*s", (int)v->text.size,
                 v->text.data);
        push_word(p, strtoull(digits, NULL, 10));
    } else if (!strcmp(tag, "bool")) {
        push_word(p, flag);
    } else if (!strcmp(tag, "float") || !strcmp(tag, "double")) {
        p->args[p->count++] = (argument){
            .kind = tag[0] == 'f' ? ARG_FLOAT : ARG_DOUBLE, .real = real};
    } else if (!strcmp(tag, "str")) {
        push_pointer(p, case_keep(text));
    } else if (!strcmp(tag, "path")) {
        char *path = qn_path_join(context->scratch, case_keep(text));
        p->owned[p->owned_count++] = path;
        push_pointer(p, path);
    } else if (!strcmp(tag, "ints")) {
        return push_ints(p, v);
    } else if (!strcmp(tag, "dtype")) {
        if (!dtype_of_name(text, &dtype))
            return false;
        push_word(p, dtype);
    } else if (!strcmp(tag, "opt_int")) {
        push_word(p, optional_word(!null, (uint32_t)whole));
    } else if (!strcmp(tag, "opt_float")) {
        float single = (float)real;
        uint32_t bits;
        memcpy(&bits, &single, 4);
        push_word(p, optional_word(!null, bits));
    } else if (!strcmp(tag, "opt_dtype")) {
        if (!null && !dtype_of_name(text, &dtype))
            return false;
        push_word(p, optional_word(!null, dtype));
    } else {
        case_fail("case: unknown argument %s", tag);
        return false;
    }
    return true;
}

/* ---- steps ---- */

static int call_step(const qn_json *step, const case_context *context)
{
    const signature *s = signature_of(case_text(step, "fn"));
    const qn_json *args = qn_json_get(step, "args");
    pieces p = {.count = 0};
    if (!s)
        return -1;
    if (!s->address) {
        case_fail("%s is not exported", s->name);
        return -1;
    }
    bool good = true;
    for (uint32_t i = 0; good && args && i < args->count; i++) {
        qn_str name;
        if (qn_json_as_str(&args->items[i], &name))
            good = push_name(&p, s, name);
        else
            good = push_tagged(&p, &args->items[i], context);
    }
    int code = -1;
    if (good && p.count != s->count)
        case_fail("case: %s takes %d arguments, found %d", s->name, s->count,
                  p.count);
    else if (good)
        code = (int)signature_call(s, p.args);
    for (int i = 0; i < p.owned_count; i++)
        qn_free(p.owned[i]);
    return code;
}

static int new_step(const qn_json *step)
{
    case_value *v = value_make(case_text(step, "new"), VALUE_ARRAY);
    v->ctx =
        array_of_json(qn_json_get(step, "dtype"), qn_json_get(step, "shape"),
                      qn_json_get(step, "data"))
            .ctx;
    return v->ctx ? 0 : 1;
}

static int vector_step(const qn_json *step)
{
    const qn_json *of = qn_json_get(step, "of");
    mlx_vector_array vector = mlx_vector_array_new();
    for (uint32_t i = 0; of && i < of->count; i++) {
        qn_str name;
        case_value *v =
            qn_json_as_str(&of->items[i], &name) ? value_find(name) : NULL;
        if (!v || mlx_vector_array_append_value(vector, (mlx_array){v->ctx}))
            return 1;
    }
    value_make(case_text(step, "vec"), VALUE_VECTOR)->ctx = vector.ctx;
    return 0;
}

static int get_step(const qn_json *step)
{
    case_value *from = value_find(case_text(step, "from"));
    case_value *to = value_make(case_text(step, "get"), VALUE_ARRAY);
    if (!from)
        return -1;
    return mlx_vector_array_get((mlx_array *)(void *)&to->ctx,
                                (mlx_vector_array){from->ctx},
                                (size_t)case_int(step, "index", 0));
}

static int map_put_step(const qn_json *step)
{
    case_value *map = value_find(case_text(step, "map_put"));
    const char *key = case_keep(case_text(step, "key"));
    qn_str text = case_text(step, "value");
    if (!map)
        return -1;
    if (map->kind == VALUE_STRING_MAP)
        return mlx_map_string_to_string_insert(
            (mlx_map_string_to_string){map->ctx}, key, case_keep(text));
    case_value *v = value_find(text);
    return v ? mlx_map_string_to_array_insert(
                   (mlx_map_string_to_array){map->ctx}, key,
                   (mlx_array){v->ctx})
             : -1;
}

static int map_get_step(const qn_json *step)
{
    case_value *map = value_find(case_text(step, "from"));
    case_value *to = value_make(case_text(step, "map_get"), VALUE_ARRAY);
    if (!map)
        return -1;
    return mlx_map_string_to_array_get((mlx_array *)(void *)&to->ctx,
                                       (mlx_map_string_to_array){map->ctx},
                                       case_keep(case_text(step, "key")));
}

static int peek_step(const qn_json *step)
{
    case_value *v = value_find(case_text(step, "peek"));
    char name[64];
    if (!v)
        return -1;
    mlx_array array = {v->ctx};
    snprintf(name, sizeof name, "mlx_array_data_%s",
             name_of_dtype(mlx_array_dtype(array)));
    const signature *s = signature_of(qn_str_of(name));
    if (!s || !s->address)
        return -1;
    argument arg = {.kind = ARG_WORD, .word = (uint64_t)(uintptr_t)v->ctx};
    signature_call(s, &arg);
    return 0;
}

/* 0, or what the step returned; -1 when it could not be done. */
static int run_step(const qn_json *step, const case_context *context)
{
    if (qn_json_get(step, "fn"))
        return call_step(step, context);
    if (qn_json_get(step, "new"))
        return new_step(step);
    if (qn_json_get(step, "vec"))
        return vector_step(step);
    if (qn_json_get(step, "get"))
        return get_step(step);
    if (qn_json_get(step, "map_new")) {
        value_make(case_text(step, "map_new"), VALUE_ARRAY_MAP)->ctx =
            mlx_map_string_to_array_new().ctx;
        return 0;
    }
    if (qn_json_get(step, "smap_new")) {
        value_make(case_text(step, "smap_new"), VALUE_STRING_MAP)->ctx =
            mlx_map_string_to_string_new().ctx;
        return 0;
    }
    if (qn_json_get(step, "map_put"))
        return map_put_step(step);
    if (qn_json_get(step, "map_get"))
        return map_get_step(step);
    if (qn_json_get(step, "peek"))
        return peek_step(step);
    case_fail("case: unknown step");
    return -1;
}

/* ---- the case ---- */

/* Makes the folders between the scratch directory and the file. */
static void make_folders(char *path, const case_context *context)
{
    char *slash = path + strlen(context->scratch);
    while ((slash = strchr(slash + 1, '/'))) {
        *slash = '\0';
        mkdir(path, 0700);
        *slash = '/';
    }
}

static bool write_files(const qn_json *files, const case_context *context)
{
    for (uint32_t i = 0; files && i < files->count; i++) {
        qn_buf bytes = QN_BUF_INIT;
        qn_str text;
        char *path = qn_path_join(context->scratch, case_keep(files->keys[i]));
        if (path)
            make_folders(path, context);
        bool good = qn_json_as_str(&files->items[i], &text) && path &&
                    case_base64(text, &bytes) &&
                    !qn_file_write_atomic(path, bytes.data ? bytes.data : "",
                                          bytes.size);
        qn_free(path);
        qn_buf_free(&bytes);
        if (!good) {
            case_fail("case: files can't be written");
            return false;
        }
    }
    return true;
}

/* Evaluates what `names` (a list, or the keys of an object) names. */
static bool evaluate(const qn_json *names)
{
    bool good = true;
    for (uint32_t i = 0; names && i < names->count; i++) {
        qn_str name;
        if (names->type == QN_JSON_T_OBJECT)
            name = names->keys[i];
        else if (!qn_json_as_str(&names->items[i], &name))
            continue;
        case_value *v = value_find(name);
        if (v && v->kind == VALUE_ARRAY && v->ctx)
            good = !mlx_array_eval((mlx_array){v->ctx}) && good;
    }
    return good;
}

static void check_values(const qn_json *arrays, const tolerance *tol)
{
    for (uint32_t i = 0; arrays && i < arrays->count; i++) {
        const char *name = case_keep(arrays->keys[i]);
        case_value *v = value_find(arrays->keys[i]);
        check_array(name, (mlx_array){v ? v->ctx : NULL}, &arrays->items[i],
                    tol);
    }
}

void run_call_case(const qn_json *c, const case_context *context)
{
    const qn_json *expect = qn_json_get(c, "expect");
    const qn_json *steps = qn_json_get(c, "steps");
    tolerance tol = {0};
    calls_begin();
    if (!write_files(qn_json_get(c, "files"), context))
        return;
    int code = 0;
    uint32_t at = 0;
    for (; !code && steps && at < steps->count; at++)
        code = run_step(&steps->items[at], context);
    if (case_failed())
        return;
    const char *step_error = code ? calls_error() : NULL;
    bool evaluated = evaluate(qn_json_get(expect, "arrays"));
    evaluated = evaluate(qn_json_get(expect, "after")) && evaluated;
    evaluated = evaluate(qn_json_get(c, "observe")) && evaluated;
    evaluated = evaluate(qn_json_get(expect, "observe")) && evaluated;
    bool failed = code || !evaluated;
    const char *message = step_error ? step_error : calls_error();
    if (case_bool(expect, "error_or_ok", false))
        return;
    if (case_bool(expect, "error", false)) {
        if (!failed)
            case_fail("expected an error, found none");
        else if (!message)
            case_fail("step %u returned %d without the error handler", at,
                      code);
        else
            case_check_message(qn_json_get(expect, "message_contains"),
                               message);
        check_values(qn_json_get(expect, "after"), &tol);
        return;
    }
    if (failed) {
        case_fail("step %u failed: %s", at, message ? message : "(no message)");
        return;
    }
    const qn_json *scaled = qn_json_get(expect, "tol");
    qn_json_as_double(scaled ? scaled : qn_json_get(c, "tol"), &tol.scaled);
    check_values(qn_json_get(expect, "arrays"), &tol);
    const qn_json *sizes = qn_json_get(expect, "sizes");
    for (uint32_t i = 0; sizes && i < sizes->count; i++) {
        case_value *v = value_find(sizes->keys[i]);
        int64_t wanted = 0;
        qn_json_as_int(&sizes->items[i], &wanted);
        size_t found = v ? mlx_array_size((mlx_array){v->ctx}) : 0;
        if ((int64_t)found != wanted)
            case_fail("%.*s: expected size %lld, found %zu",
                      (int)sizes->keys[i].size, sizes->keys[i].data,
                      (long long)wanted, found);
    }
}
