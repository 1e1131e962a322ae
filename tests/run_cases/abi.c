/* abi.c: worked cases of the C API (vectors/abi/cases.jsonl).
 *
 * Arguments are keyed by parameter name; the stream and the results are left
 * out there and filled in here from the types of the table. */
#include "case.h"

#include "base/alloc.h"
#include "base/file.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- values ---- */

/* "$x" or "$q[1]"; false for other texts. */
static bool is_reference(const qn_json *v, qn_str *name)
{
    if (!qn_json_as_str(v, name) || !name->size || name->data[0] != '$')
        return false;
    *name = (qn_str){name->data + 1, name->size - 1};
    return true;
}

/* The array that a reference stands for; element i of a vector is bound to
 * its own name "q[i]" when it is first asked for. */
static mlx_array array_of(qn_str name)
{
    mlx_array none = {NULL};
    case_value *v = value_find(name);
    if (v)
        return (mlx_array){v->ctx};
    const char *open = memchr(name.data, '[', name.size);
    if (!open) {
        case_fail("case: no value %.*s", (int)name.size, name.data);
        return none;
    }
    case_value *vector =
        value_find((qn_str){name.data, (size_t)(open - name.data)});
    if (!vector || vector->kind != VALUE_VECTOR) {
        case_fail("case: no vector for %.*s", (int)name.size, name.data);
        return none;
    }
    case_value *element = value_make(name, VALUE_ARRAY);
    mlx_array array = {NULL};
    if (mlx_vector_array_get(&array, (mlx_vector_array){vector->ctx},
                             strtoul(open + 1, NULL, 10)))
        case_fail("%.*s: no such element", (int)name.size, name.data);
    element->ctx = array.ctx;
    return array;
}

static mlx_vector_array vector_of(const qn_json *list)
{
    static int number;
    char hidden[32];
    qn_str name;
    if (is_reference(list, &name)) {
        case_value *v = value_find(name);
        if (v && v->kind == VALUE_VECTOR)
            return (mlx_vector_array){v->ctx};
    }
    /* Bound to a name that no case has, so that it is freed with the rest. */
    mlx_vector_array vector = mlx_vector_array_new();
    snprintf(hidden, sizeof hidden, "(vector %d)", number++);
    case_value *held = value_make(qn_str_of(hidden), VALUE_VECTOR);
    if (held)
        held->ctx = vector.ctx;
    for (uint32_t i = 0; list && i < list->count; i++)
        if (is_reference(&list->items[i], &name))
            mlx_vector_array_append_value(vector, array_of(name));
    return vector;
}

/* ---- arguments ---- */

enum { MOST_LISTS = 8 };

typedef struct lists {
    void *owned[MOST_LISTS];
    int count;
} lists;

static void *keep_list(lists *l, size_t count, size_t size)
{
    void *list = l->count < MOST_LISTS ? qn_calloc(count + 1, size) : NULL;
    if (list)
        l->owned[l->count++] = list;
    return list;
}

static bool numbers(lists *l, const char *type, const qn_json *v, argument *out)
{
    if (!v || v->type != QN_JSON_T_ARRAY) {
        *out = (argument){.kind = ARG_WORD};
        return !v || v->type == QN_JSON_T_NULL;
    }
    bool wide = !strcmp(type, "int64_t*") || !strcmp(type, "size_t*") ||
                !strcmp(type, "uint64_t*");
    char *list = keep_list(l, v->count, wide ? 8 : 4);
    for (uint32_t i = 0; list && i < v->count; i++) {
        int64_t n = 0;
        qn_json_as_int(&v->items[i], &n);
        int32_t narrow = (int32_t)n;
        memcpy(list + i * (wide ? 8 : 4), wide ? (void *)&n : (void *)&narrow,
               wide ? 8 : 4);
    }
    *out = (argument){.kind = ARG_WORD, .word = (uint64_t)(uintptr_t)list};
    return list != NULL;
}

static uint64_t word_of(const qn_json *v)
{
    char text[40] = "0";
    bool flag;
    if (qn_json_as_bool(v, &flag))
        return flag;
    if (v && v->type == QN_JSON_T_NUMBER)
        snprintf(text, sizeof text, "%.*s", (int)v->text.size, v->text.data);
    return text[0] == '-' ? (uint64_t)strtoll(text, NULL, 10)
                          : strtoull(text, NULL, 10);
}

static double real_of(const qn_json *v)
{
    double real = 0;
    qn_str text;
    if (qn_json_as_str(v, &text))
        return qn_str_is(text, "nan")    ? (double)NAN
               : qn_str_is(text, "-inf") ? -(double)INFINITY
                                         : (double)INFINITY;
    qn_json_as_double(v, &real);
    return real;
}

static uint64_t dtype_word(const qn_json *v)
{
    mlx_dtype dtype = MLX_BOOL;
    qn_str name;
    if (!qn_json_as_str(v, &name) || !dtype_of_name(name, &dtype))
        case_fail("case: unknown dtype");
    return dtype;
}

static uint64_t optional_of(const char *type, const qn_json *v)
{
    if (!v || v->type == QN_JSON_T_NULL)
        return 0;
    if (!strcmp(type, "mlx_optional_dtype"))
        return optional_word(true, (uint32_t)dtype_word(v));
    if (!strcmp(type, "mlx_optional_int"))
        return optional_word(true, (uint32_t)word_of(v));
    float single = (float)real_of(v);
    uint32_t bits;
    memcpy(&bits, &single, 4);
    return optional_word(true, bits);
}

static uint64_t norm_word(const qn_json *v)
{
    qn_str name = {"", 0};
    qn_json_as_str(v, &name);
    return qn_str_is(name, "ortho")     ? MLX_FFT_NORM_ORTHO
           : qn_str_is(name, "forward") ? MLX_FFT_NORM_FORWARD
                                        : MLX_FFT_NORM_BACKWARD;
}

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n >= m && !strcmp(text + n - m, end);
}

/* One parameter that is neither a result nor the stream. */
static bool fill(lists *l, const signature *s, int i, const qn_json *args,
                 argument *out)
{
    const parameter *p = &s->params[i];
    const qn_json *v = qn_json_get(args, p->name);
    qn_str text;
    out->kind = ARG_WORD;
    out->word = 0;
    if (!strcmp(p->type, "size_t") && ends_with(p->name, "_num") && !v) {
        /* The companion of the list before it. */
        const qn_json *list = qn_json_get(args, s->params[i - 1].name);
        out->word = list && list->type == QN_JSON_T_ARRAY ? list->count : 0;
    } else if (!strcmp(p->type, "mlx_array")) {
        if (is_reference(v, &text))
            out->word = (uint64_t)(uintptr_t)array_of(text).ctx;
    } else if (!strcmp(p->type, "mlx_vector_array")) {
        if (v && v->type != QN_JSON_T_NULL)
            out->word = (uint64_t)(uintptr_t)vector_of(v).ctx;
    } else if (!strcmp(p->type, "float") || !strcmp(p->type, "double")) {
        out->kind = p->type[0] == 'f' ? ARG_FLOAT : ARG_DOUBLE;
        out->real = real_of(v);
    } else if (!strcmp(p->type, "char*")) {
        if (qn_json_as_str(v, &text))
            out->word = (uint64_t)(uintptr_t)case_keep(text);
    } else if (!strcmp(p->type, "mlx_dtype")) {
        out->word = dtype_word(v);
    } else if (!strcmp(p->type, "mlx_fft_norm")) {
        out->word = norm_word(v);
    } else if (!strncmp(p->type, "mlx_optional_", 13)) {
        out->word = optional_of(p->type, v);
    } else if (ends_with(p->type, "*")) {
        return numbers(l, p->type, v, out);
    } else {
        out->word = word_of(v);
    }
    return true;
}

/* ---- steps ---- */

/* -1: could not be called; else what the call returned. */
static int call_step(const qn_json *step)
{
    const signature *s = signature_of(case_text(step, "call"));
    const qn_json *args = qn_json_get(step, "args");
    const qn_json *outs = qn_json_get(step, "out");
    argument list[24];
    lists owned = {.count = 0};
    uint32_t out = 0;
    if (!s)
        return -1;
    if (!s->address) {
        case_fail("%s is not exported", s->name);
        return -1;
    }
    bool good = true;
    for (int i = 0; good && i < s->count; i++) {
        const parameter *p = &s->params[i];
        bool result = ends_with(p->type, "*") &&
                      (!strncmp(p->type, "mlx_array", 9) ||
                       !strncmp(p->type, "mlx_vector_array", 16)) &&
                      !qn_json_get(args, p->name);
        qn_str name;
        if (result) {
            if (!qn_json_as_str(qn_json_at(outs, out++), &name))
                name = QN_STR("(unnamed)");
            case_value *v = value_make(name, p->type[4] == 'v' ? VALUE_VECTOR
                                                               : VALUE_ARRAY);
            list[i] = (argument){.kind = ARG_WORD,
                                 .word = (uint64_t)(uintptr_t)&v->ctx};
        } else if (!strcmp(p->type, "mlx_stream")) {
            list[i] =
                (argument){.kind = ARG_WORD,
                           .word = (uint64_t)(uintptr_t)calls_stream().ctx};
        } else {
            good = fill(&owned, s, i, args, &list[i]);
        }
    }
    int code = good && !case_failed() ? (int)signature_call(s, list) : -1;
    for (int i = 0; i < owned.count; i++)
        qn_free(owned.owned[i]);
    return code;
}

static int tostring_step(const qn_json *step)
{
    qn_str name;
    mlx_string text = mlx_string_new();
    if (!is_reference(qn_json_get(step, "tostring"), &name) ||
        !qn_json_as_str(qn_json_at(qn_json_get(step, "out"), 0), &name))
        return -1;
    qn_str source;
    is_reference(qn_json_get(step, "tostring"), &source);
    int code = mlx_array_tostring(&text, array_of(source));
    if (!code)
        value_make(name, VALUE_TEXT)->text =
            case_keep(qn_str_of(mlx_string_data(text)));
    mlx_string_free(text);
    return code;
}

static int layout_step(const qn_json *step)
{
    qn_str source, name;
    if (!is_reference(qn_json_get(step, "layout"), &source) ||
        !qn_json_as_str(qn_json_at(qn_json_get(step, "out"), 0), &name))
        return -1;
    mlx_array array = array_of(source);
    int code = mlx_array_eval(array);
    if (code)
        return code;
    case_value *v = value_make(name, VALUE_JSON);
    const size_t *strides = mlx_array_strides(array);
    for (size_t i = 0; i < mlx_array_ndim(array); i++)
        if (mlx_array_dim(array, (int)i) > 1)
            v->strides[v->nstrides++] = (int64_t)strides[i];
    code = _mlx_array_is_contiguous(&v->flags[0], array);
    if (!code)
        code = _mlx_array_is_row_contiguous(&v->flags[1], array);
    if (!code)
        code = _mlx_array_is_col_contiguous(&v->flags[2], array);
    return code;
}

static int run_step(const qn_json *step)
{
    if (qn_json_get(step, "call"))
        return call_step(step);
    if (qn_json_get(step, "tostring"))
        return tostring_step(step);
    if (qn_json_get(step, "layout"))
        return layout_step(step);
    if (qn_json_get(step, "transform"))
        return transform_step(step);
    case_fail("case: unknown step");
    return -1;
}

int abi_step(const qn_json *step)
{
    return run_step(step);
}

mlx_vector_array abi_vector(const qn_json *list)
{
    return vector_of(list);
}

/* ---- expectations ---- */

static tolerance read_tolerance(const qn_json *c)
{
    const qn_json *tol = qn_json_get(c, "tol");
    const qn_json *steps = qn_json_get(c, "steps");
    tolerance out = {0};
    qn_json_as_double(qn_json_get(tol, "ulp"), &out.ulp);
    qn_json_as_double(qn_json_get(tol, "abs"), &out.abs);
    qn_json_as_double(qn_json_get(tol, "rel"), &out.rel);
    if (qn_json_get(tol, "code_steps")) {
        const qn_json *args = qn_json_get(qn_json_at(steps, 0), "args");
        out.code_share = 0.02;
        out.code_bits = (int)case_int(args, "bits", 4);
    }
    return out;
}

static void check_layout(const char *name, const case_value *v,
                         const qn_json *wanted)
{
    const qn_json *strides = qn_json_get(wanted, "strides");
    static const char *const flags[] = {"contiguous", "row_contiguous",
                                        "col_contiguous"};
    bool same = strides && (int)strides->count == v->nstrides;
    for (int i = 0; same && i < v->nstrides; i++) {
        int64_t n;
        same = qn_json_as_int(&strides->items[i], &n) && n == v->strides[i];
    }
    if (!same)
        case_fail("%s: strides differ", name);
    for (int i = 0; i < 3; i++)
        if (case_bool(wanted, flags[i], v->flags[i]) != v->flags[i])
            case_fail("%s: %s: expected %d, found %d", name, flags[i],
                      !v->flags[i], v->flags[i]);
}

static void check_one(const qn_json *wanted, const tolerance *tol)
{
    qn_str name = case_text(wanted, "name");
    const char *text = case_keep(name);
    const qn_json *plain = qn_json_get(wanted, "value");
    case_value *v = value_find(name);
    if (!plain) {
        check_array(text, array_of(name), wanted, tol);
        return;
    }
    qn_str expected = {"", 0};
    double number;
    if (!v)
        case_fail("%s: no value", text);
    else if (v->kind == VALUE_JSON)
        check_layout(text, v, plain);
    else if (v->kind == VALUE_NUMBER && qn_json_as_double(plain, &number)) {
        if (number != v->number)
            case_fail("%s: expected %g, found %g", text, number, v->number);
    } else if (!qn_json_as_str(plain, &expected) ||
               !qn_str_is(expected, v->text ? v->text : ""))
        case_fail("%s: expected \"%.*s\", found \"%s\"", text,
                  (int)expected.size, expected.data, v->text ? v->text : "");
}

static void check_error(const qn_json *wanted, const qn_json *outputs, int code,
                        uint32_t at)
{
    int64_t step = case_int(wanted, "step", 0);
    if (step < 0) {
        for (uint32_t i = 0; !code && outputs && i < outputs->count; i++) {
            qn_str name;
            if (qn_json_as_str(&outputs->items[i], &name))
                code = mlx_array_eval(array_of(name));
        }
        if (code)
            at = (uint32_t)step;
    }
    if (!code)
        case_fail("expected an error, found none");
    else if (at != (uint32_t)step)
        case_fail("expected an error at step %lld, found it at %u",
                  (long long)step, at);
    else if (!calls_error())
        case_fail("the error handler has not run");
}

/* ---- files and queries ---- */

static void check_metadata(const qn_json *wanted, mlx_map_string_to_string map)
{
    for (uint32_t i = 0; i < wanted->count; i++) {
        const char *found = NULL;
        qn_str text = {"", 0};
        mlx_map_string_to_string_get(&found, map, case_keep(wanted->keys[i]));
        if (!qn_json_as_str(&wanted->items[i], &text) || !found ||
            !qn_str_is(text, found))
            case_fail("metadata %.*s: expected \"%.*s\", found \"%s\"",
                      (int)wanted->keys[i].size, wanted->keys[i].data,
                      (int)text.size, text.data, found ? found : "(none)");
    }
}

/* The keys of a GGUF file, in any order. */
static void check_keys(const qn_json *wanted, void *gguf)
{
    const signature *s = signature_of(QN_STR("mlx_io_gguf_get_keys"));
    mlx_vector_string keys = mlx_vector_string_new();
    argument args[2] = {{.kind = ARG_WORD, .word = (uint64_t)(uintptr_t)&keys},
                        {.kind = ARG_WORD, .word = (uint64_t)(uintptr_t)gguf}};
    if (!s || !s->address || signature_call(s, args)) {
        case_fail("mlx_io_gguf_get_keys failed");
        return;
    }
    size_t count = mlx_vector_string_size(keys);
    if (count != wanted->count)
        case_fail("keys: expected %u, found %zu", wanted->count, count);
    for (uint32_t i = 0; i < wanted->count; i++) {
        qn_str text = {"", 0};
        bool found = false;
        qn_json_as_str(&wanted->items[i], &text);
        for (size_t j = 0; !found && j < count; j++) {
            char *key = NULL;
            mlx_vector_string_get(&key, keys, j);
            found = key && qn_str_is(text, key);
        }
        if (!found)
            case_fail("keys: no %.*s", (int)text.size, text.data);
    }
    mlx_vector_string_free(keys);
}

static void run_query(const qn_json *c)
{
    qn_str query = case_text(c, "query");
    const qn_json *args = qn_json_get(c, "args");
    const qn_json *wanted =
        qn_json_get(qn_json_at(qn_json_get(c, "expect"), 0), "value");
    mlx_string text = mlx_string_new();
    qn_str expected = {"", 0};
    int64_t number = -1;
    if (qn_str_is(query, "mlx_version")) {
        mlx_version(&text);
    } else if (qn_str_is(query, "mlx_device_tostring")) {
        bool cpu = qn_str_is(case_text(args, "type"), "cpu");
        mlx_device device = mlx_device_new_type(
            cpu ? MLX_CPU : MLX_GPU, (int)case_int(args, "index", 0));
        mlx_device_tostring(&text, device);
        mlx_device_free(device);
    } else if (qn_str_is(query, "mlx_dtype_size")) {
        number = (int64_t)mlx_dtype_size(
            (mlx_dtype)dtype_word(qn_json_get(args, "dtype")));
    } else {
        case_fail("unknown query %.*s", (int)query.size, query.data);
        return;
    }
    int64_t expected_number;
    if (qn_json_as_str(wanted, &expected)) {
        const char *found = text.ctx ? mlx_string_data(text) : "";
        if (!qn_str_is(expected, found))
            case_fail("expected \"%.*s\", found \"%s\"", (int)expected.size,
                      expected.data, found);
    } else if (qn_json_as_int(wanted, &expected_number) &&
               expected_number != number) {
        case_fail("expected %lld, found %lld", (long long)expected_number,
                  (long long)number);
    }
    mlx_string_free(text);
}

static void run_file(const qn_json *c, const case_context *context)
{
    const qn_json *file = qn_json_get(c, "file");
    qn_str kind = case_text(file, "kind");
    char name[64];
    snprintf(name, sizeof name, "x.%.*s", (int)kind.size, kind.data);
    char *path = qn_path_join(context->scratch, name);
    qn_buf bytes = QN_BUF_INIT;
    if (!path || !case_base64(case_text(file, "base64"), &bytes) ||
        qn_file_write_atomic(path, bytes.data, bytes.size)) {
        case_fail("case: the file can't be written");
        return;
    }
    const bool npy = qn_str_is(kind, "npy"), gguf = qn_str_is(kind, "gguf");
    const signature *s = signature_of(npy    ? QN_STR("mlx_load")
                                      : gguf ? QN_STR("mlx_load_gguf")
                                             : QN_STR("mlx_load_safetensors"));
    if (!s || !s->address) {
        case_fail("%s is not exported", s ? s->name : "?");
        return;
    }
    void *out[2] = {NULL, NULL};
    argument args[4];
    int n = 0;
    args[n++].word = (uint64_t)(uintptr_t)&out[0];
    if (!npy && !gguf)
        args[n++].word = (uint64_t)(uintptr_t)&out[1];
    args[n++].word = (uint64_t)(uintptr_t)path;
    args[n++].word = (uint64_t)(uintptr_t)calls_stream().ctx;
    for (int i = 0; i < n; i++)
        args[i].kind = ARG_WORD;
    if (signature_call(s, args)) {
        case_fail("%s: %s", s->name, calls_error() ? calls_error() : "failed");
        return;
    }
    const qn_json *expect = qn_json_get(c, "expect");
    tolerance tol = read_tolerance(c);
    const signature *get =
        signature_of(gguf ? QN_STR("mlx_io_gguf_get_array")
                          : QN_STR("mlx_map_string_to_array_get"));
    for (uint32_t i = 0; expect && i < expect->count; i++) {
        const qn_json *wanted = &expect->items[i];
        const char *tensor = case_keep(case_text(wanted, "name"));
        void *array = out[0];
        if (qn_json_get(wanted, "value"))
            continue; /* metadata and keys are looked at below */
        if (!npy) {
            array = NULL;
            argument g[3] = {
                {.kind = ARG_WORD, .word = (uint64_t)(uintptr_t)&array},
                {.kind = ARG_WORD, .word = (uint64_t)(uintptr_t)out[0]},
                {.kind = ARG_WORD, .word = (uint64_t)(uintptr_t)tensor}};
            if (!get || !get->address || signature_call(get, g)) {
                case_fail("no array %s", tensor);
                continue;
            }
        }
        check_array(tensor, (mlx_array){array}, wanted, &tol);
        if (!npy)
            mlx_array_free((mlx_array){array});
    }
    for (uint32_t i = 0; expect && i < expect->count; i++) {
        const qn_json *wanted = qn_json_get(&expect->items[i], "value");
        if (wanted && wanted->type == QN_JSON_T_OBJECT)
            check_metadata(wanted, (mlx_map_string_to_string){out[1]});
        else if (wanted)
            check_keys(wanted, out[0]);
    }
    value_make(QN_STR("(file)"), npy    ? VALUE_ARRAY
                                 : gguf ? VALUE_GGUF
                                        : VALUE_ARRAY_MAP)
        ->ctx = out[0];
    if (out[1])
        value_make(QN_STR("(metadata)"), VALUE_STRING_MAP)->ctx = out[1];
    qn_free(path);
    qn_buf_free(&bytes);
}

/* ---- the case ---- */

void run_abi_case(const qn_json *c, const case_context *context)
{
    const qn_json *inputs = qn_json_get(c, "inputs");
    const qn_json *steps = qn_json_get(c, "steps");
    const qn_json *expect = qn_json_get(c, "expect");
    const qn_json *wanted_error = qn_json_get(c, "expect_error");
    calls_begin();
    if (qn_json_get(c, "file")) {
        run_file(c, context);
        return;
    }
    if (qn_json_get(c, "query")) {
        run_query(c);
        return;
    }
    for (uint32_t i = 0; inputs && i < inputs->count; i++) {
        const qn_json *v = &inputs->items[i];
        value_make(inputs->keys[i], VALUE_ARRAY)->ctx =
            array_of_json(qn_json_get(v, "dtype"), qn_json_get(v, "shape"),
                          qn_json_get(v, "data"))
                .ctx;
    }
    int code = 0;
    uint32_t at = 0;
    for (; !code && steps && at < steps->count; at++)
        code = run_step(&steps->items[at]);
    if (case_failed())
        return;
    if (wanted_error) {
        check_error(wanted_error, qn_json_get(c, "outputs"), code,
                    code ? at - 1 : at);
        return;
    }
    if (code) {
        case_fail("step %u failed: %s", at - 1,
                  calls_error() ? calls_error() : "(no message)");
        return;
    }
    tolerance tol = read_tolerance(c);
    for (uint32_t i = 0; expect && i < expect->count; i++)
        check_one(&expect->items[i], &tol);
}
