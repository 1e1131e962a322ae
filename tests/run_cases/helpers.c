/* helpers.c: goldens of the helper layer: slices, scans, ranges, packed
 * products, token bitmasks, normalized argmax, launches.
 *
 * One file is one case; `kind` says what its entries are. */
#include "case.h"

#include "capi/ext_arange.h"
#include "ops/kernel.h"

#include <quern/ext.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- pieces ---- */

/* Which entry is being checked, for messages. */
static char place[96];

static void at_entry(uint32_t index, const char *what)
{
    snprintf(place, sizeof place, "case %u, %s", index, what);
}

static bool must(int failed, const char *call)
{
    if (failed)
        case_fail("%s, %s: %s", place, call,
                  calls_error() ? calls_error() : "failed");
    return !failed;
}

/* Whole numbers of a list, at most `most`; their count. */
static size_t ints_of(const qn_json *list, int *out, size_t most)
{
    size_t n = list && list->count < most ? list->count : list ? most : 0;
    for (size_t i = 0; i < n; i++) {
        int64_t value = 0;
        qn_json_as_int(&list->items[i], &value);
        out[i] = (int)value;
    }
    return n;
}

enum { MOST = 8 };

typedef struct int_list {
    int at[MOST];
    size_t n;
} int_list;

static int_list list_of(const qn_json *c, const char *key)
{
    int_list list;
    list.n = ints_of(qn_json_get(c, key), list.at, MOST);
    return list;
}

static mlx_array start_of(const int_list *list)
{
    int n = (int)list->n;
    return mlx_array_new_data(list->at, &n, 1, MLX_INT32);
}

/* ---- 5: slices ---- */

/* What the message says of a kind of error. */
static void check_refusal(qn_str kind)
{
    static const struct {
        const char *kind, *part;
    } says[] = {{"range", "is outside of axis"},
                {"size", "size"},
                {"repeat", "is given twice"}};
    const char *message = calls_error() ? calls_error() : "";
    for (size_t i = 0; i < sizeof says / sizeof *says; i++)
        if (qn_str_is(kind, says[i].kind)) {
            if (!strstr(message, says[i].part))
                case_fail("%s: expected \"%s\", found \"%s\"", place,
                          says[i].part, message);
            return;
        }
    case_fail("%s: an unknown kind of error, %.*s", place, (int)kind.size,
              kind.data);
}

static void check_slice(const qn_json *c)
{
    int_list start = list_of(c, "start"), axes = list_of(c, "axes");
    int_list size = list_of(c, "size");
    mlx_stream s = calls_stream();
    mlx_array in = golden_array(c, "in"), from = start_of(&start);
    mlx_array res = mlx_array_new(), update = mlx_array_new();
    bool updates = qn_str_is(case_text(c, "op"), "slice_update");
    int failed;
    calls_clear_error();
    if (updates) {
        update = golden_array(c, "update");
        failed = mlx_slice_update_dynamic(&res, in, update, from, axes.at,
                                          axes.n, s);
    } else {
        failed = mlx_slice_dynamic(&res, in, from, axes.at, axes.n, size.at,
                                   size.n, s);
    }
    /* Starts out of range fail where they are read. */
    failed = failed || mlx_array_eval(res);
    if (qn_json_get(c, "error")) {
        if (!failed)
            case_fail("%s: expected an error, found none", place);
        else
            check_refusal(case_text(c, "error"));
        mlx_array_free(res);
    } else if (must(failed, "slice")) {
        golden_check(place, res, qn_json_get(c, "out"));
    }
    mlx_array_free(in);
    mlx_array_free(from);
    mlx_array_free(update);
}

/* ---- 7: scans ---- */

static void check_scan(const qn_json *c)
{
    mlx_array in = golden_array(c, "in"), res = mlx_array_new();
    int axis = (int)case_int(c, "axis", 0), failed;
    bool reverse = case_bool(c, "reverse", false);
    bool inclusive = case_bool(c, "inclusive", true);
    mlx_optional_dtype dtype = {MLX_FLOAT32, false};
    if (qn_json_get(c, "dtype"))
        dtype.has_value = dtype_of_name(case_text(c, "dtype"), &dtype.value);
    if (qn_str_is(case_text(c, "op"), "cumsum"))
        failed = mlx_cumsum_axis(&res, in, axis, reverse, inclusive, dtype,
                                 calls_stream());
    else
        failed =
            mlx_cummax_axis(&res, in, axis, reverse, inclusive, calls_stream());
    if (must(failed, "scan"))
        golden_check(place, res, qn_json_get(c, "out"));
    mlx_array_free(in);
}

/* ---- 9: ranges ---- */

static double number_at(const qn_json *list, uint32_t i)
{
    double value = 0;
    qn_json_as_double(qn_json_at(list, i), &value);
    return value;
}

/* Elements `first` .. of an int32 range against a list. */
static void check_some(const qn_json *wanted, const int32_t *found,
                       const char *what)
{
    for (uint32_t i = 0; wanted && i < wanted->count; i++)
        if (number_at(wanted, i) != (double)found[i])
            case_fail("%s, %s %u: expected %.0f, found %d", place, what, i,
                      number_at(wanted, i), found[i]);
}

static void check_arange(const qn_json *c)
{
    const qn_json *args = qn_json_get(c, "args"), *tail;
    mlx_array res = mlx_array_new();
    mlx_dtype dtype = MLX_INT32;
    dtype_of_name(case_text(c, "dtype"), &dtype);
    if (!must(quern_arange(&res, number_at(args, 0), number_at(args, 1),
                           number_at(args, 2), dtype, calls_stream()) ||
                  mlx_array_eval(res),
              "quern_arange"))
        return;
    int64_t count = case_int(c, "count", -1);
    if ((int64_t)mlx_array_size(res) != count)
        case_fail("%s: expected %lld elements, found %zu", place,
                  (long long)count, mlx_array_size(res));
    tail = qn_json_get(c, "tail");
    if (dtype == MLX_INT32 && count > 0 && tail) {
        const int32_t *data = mlx_array_data_int32(res);
        check_some(qn_json_get(c, "head"), data, "head");
        check_some(tail, data + count - tail->count, "tail");
    }
    golden_digest(place, res, case_text(c, "sha256"));
}

/* One request of a trace: start, stop, step, item size, dtype, what happens,
 * entries and bytes after it. */
static void check_request(const qn_json *row)
{
    mlx_array res = mlx_array_new();
    mlx_dtype dtype = MLX_INT32;
    qn_str name, wanted;
    qn_json_as_str(qn_json_at(row, 4), &name);
    qn_json_as_str(qn_json_at(row, 5), &wanted);
    dtype_of_name(name, &dtype);
    qn_ranges_state before = qn_ranges_kept();
    if (must(quern_arange(&res, number_at(row, 0), number_at(row, 1),
                          number_at(row, 2), dtype, calls_stream()),
             "quern_arange")) {
        qn_ranges_state after = qn_ranges_kept();
        const char *found = after.hits > before.hits       ? "hit"
                            : after.stored > before.stored ? "stored"
                                                           : "bypass";
        if (!qn_str_is(wanted, found) ||
            (double)after.entries != number_at(row, 6) ||
            (double)after.bytes != number_at(row, 7))
            case_fail("%s: expected %.*s, %.0f entries, %.0f bytes; found %s, "
                      "%d, %zu",
                      place, (int)wanted.size, wanted.data, number_at(row, 6),
                      number_at(row, 7), found, after.entries, after.bytes);
    }
    mlx_array_free(res);
}

static void check_trace(const qn_json *root)
{
    const qn_json *trace = qn_json_get(qn_json_get(root, "cache"), "trace");
    quern_arange_cache_clear();
    for (uint32_t i = 0; trace && i < trace->count; i++) {
        at_entry(i, "request");
        check_request(&trace->items[i]);
    }
    if (!trace)
        case_fail("expected a trace of the cache");
}

/* ---- 10: rows of packed products ---- */

static void check_rows(const qn_json *c)
{
    mlx_array x = golden_array(c, "x"), w = golden_array(c, "packed");
    mlx_array scales = golden_array(c, "scales");
    mlx_array biases = golden_array(c, "biases"), res = mlx_array_new();
    if (must(quern_quantized_matmul_rows(
                 &res, x, w, scales, biases, (int)case_int(c, "group", 0),
                 (int)case_int(c, "bits", 0), "affine", calls_stream()),
             "quern_quantized_matmul_rows"))
        golden_check(place, res, qn_json_get(c, "out"));
    mlx_array_free(x);
    mlx_array_free(w);
    mlx_array_free(scales);
    mlx_array_free(biases);
}

/* ---- kernels by name ---- */

/* Output `which` of quern's own kernel; an empty handle after case_fail. */
static mlx_array run_kernel(const char *name, const char *const *in_names,
                            const mlx_array *in, size_t nin,
                            const char *const *out_names,
                            const quern_kernel_launch *launch, size_t which)
{
    mlx_vector_string ins =
        mlx_vector_string_new_data((const char **)(uintptr_t)in_names, nin);
    mlx_vector_string outs = mlx_vector_string_new_data(
        (const char **)(uintptr_t)out_names, launch->n_outputs);
    mlx_fast_metal_kernel kernel =
        mlx_fast_metal_kernel_new(name, ins, outs, "", "", true, false);
    mlx_vector_array inputs = mlx_vector_array_new_data(in, nin);
    mlx_vector_array outputs = mlx_vector_array_new();
    mlx_array res = mlx_array_new();
    if (must(quern_kernel_apply(&outputs, kernel, inputs, launch,
                                calls_stream()),
             name))
        mlx_vector_array_get(&res, outputs, which);
    mlx_vector_array_free(inputs);
    mlx_vector_array_free(outputs);
    mlx_vector_string_free(ins);
    mlx_vector_string_free(outs);
    mlx_fast_metal_kernel_free(kernel);
    return res;
}

/* ---- 11: token bitmasks ---- */

/* The same mask through the kernel that answers to a Metal program's name. */
static mlx_array mask_by_name(mlx_array logits, const int32_t *words, size_t n)
{
    static const char *const in_names[] = {"logits", "bits"};
    static const char *const out_names[] = {"out"};
    int count = (int)n, size = (int)mlx_array_size(logits);
    mlx_array in[] = {logits, mlx_array_new_data(words, &count, 1, MLX_INT32)};
    quern_kernel_output out = {mlx_array_shape(logits), mlx_array_ndim(logits),
                               mlx_array_dtype(logits)};
    quern_kernel_template templates[] = {
        {"T", QUERN_TEMPLATE_DTYPE, (int)out.dtype},
        {"V", QUERN_TEMPLATE_INT, mlx_array_dim(logits, -1)},
        {"SIZE", QUERN_TEMPLATE_INT, size}};
    quern_kernel_launch launch = {.outputs = &out,
                                  .n_outputs = 1,
                                  .grid = {size, 1, 1},
                                  .group = {256, 1, 1},
                                  .templates = templates,
                                  .n_templates = 3};
    mlx_array res = run_kernel("mlx_bun_token_bitmask", in_names, in, 2,
                               out_names, &launch, 0);
    mlx_array_free(in[1]);
    return res;
}

static void check_bitmask(const qn_json *c)
{
    const qn_json *list = qn_json_get(c, "words"), *out = qn_json_get(c, "out");
    mlx_array logits = golden_array(c, "logits"), res = mlx_array_new();
    size_t n = list ? list->count : 0;
    int32_t *words = calloc(n + 1, sizeof *words);
    if (!words)
        abort();
    ints_of(list, words, n);
    bool made = must(quern_apply_token_bitmask(&res, logits, n ? words : NULL,
                                               n, calls_stream()),
                     "quern_apply_token_bitmask");
    mlx_array named = n ? mask_by_name(logits, words, n) : mlx_array_new();
    /* The words are of the call, not of the evaluation. */
    memset(words, 0x55, (n + 1) * sizeof *words);
    if (made)
        golden_check(place, res, out);
    if (named.ctx)
        golden_check(place, named, out);
    free(words);
    mlx_array_free(logits);
}

/* ---- 12: normalized argmax, the log-sum-exps given ---- */

static void check_argmax(const qn_json *c)
{
    static const char *const in_names[] = {"logits", "lse"};
    static const char *const pair[] = {"values", "indices"};
    static const char *const out_names[] = {"out"};
    enum { TILE = 1024 };
    mlx_array in[] = {golden_array(c, "logits"), golden_array(c, "lse")};
    mlx_array parts[2];
    if (in[0].ctx && in[1].ctx) {
        int v = mlx_array_dim(in[0], -1), p = (v + TILE - 1) / TILE;
        int rows = (int)mlx_array_size(in[1]);
        int table[] = {rows, p}, column[] = {rows};
        quern_kernel_output outs[] = {{table, 2, MLX_FLOAT32},
                                      {table, 2, MLX_UINT32}};
        quern_kernel_output out = {column, 1, MLX_UINT32};
        quern_kernel_template templates[] = {
            {"P", QUERN_TEMPLATE_INT, p},
            {"T", QUERN_TEMPLATE_DTYPE, (int)mlx_array_dtype(in[0])},
            {"V", QUERN_TEMPLATE_INT, v}};
        quern_kernel_launch launch = {.outputs = outs,
                                      .n_outputs = 2,
                                      .grid = {256, p, rows},
                                      .group = {256, 1, 1},
                                      .templates = templates,
                                      .n_templates = 3};
        for (size_t i = 0; i < 2; i++)
            parts[i] = run_kernel("normalized_argmax_partial", in_names, in, 2,
                                  pair, &launch, i);
        launch.outputs = &out;
        launch.n_outputs = 1;
        launch.n_templates = 1;
        mlx_array res = run_kernel("normalized_argmax_finish", pair, parts, 2,
                                   out_names, &launch, 0);
        if (res.ctx)
            golden_check(place, res, qn_json_get(c, "out"));
        mlx_array_free(parts[0]);
        mlx_array_free(parts[1]);
    }
    mlx_array_free(in[0]);
    mlx_array_free(in[1]);
}

/* ---- 13: launches ---- */

static void check_launch(const qn_json *row)
{
    int grid[3] = {0}, group[3] = {0}, wanted[2][3], found[2][3];
    ints_of(qn_json_at(row, 0), grid, 3);
    ints_of(qn_json_at(row, 1), group, 3);
    ints_of(qn_json_at(row, 2), wanted[0], 3);
    ints_of(qn_json_at(row, 3), wanted[1], 3);
    qn_kernel_blocks(found[0], found[1], grid, group);
    for (int i = 0; i < 6; i++)
        if (found[i / 3][i % 3] != wanted[i / 3][i % 3])
            case_fail("%s: %s, axis %d: expected %d, found %d", place,
                      i < 3 ? "blocks" : "block", i % 3, wanted[i / 3][i % 3],
                      found[i / 3][i % 3]);
}

/* ---- files ---- */

static const struct {
    const char *kind, *list;
    void (*entry)(const qn_json *c);
    void (*rest)(const qn_json *root);
} kinds[] = {
    {"slice", "cases", check_slice, NULL},
    {"scan", "cases", check_scan, NULL},
    {"arange", "cases", check_arange, check_trace},
    {"qmm-rows", "cases", check_rows, NULL},
    {"bitmask", "cases", check_bitmask, NULL},
    {"argmax", "cases", check_argmax, NULL},
    {"launch", "rows", check_launch, NULL},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

static int kind_of(const qn_json *root)
{
    qn_str kind;
    if (!qn_json_get(root, "set") ||
        !qn_json_as_str(qn_json_get(root, "kind"), &kind))
        return -1;
    for (int i = 0; i < KINDS; i++)
        if (qn_str_is(kind, kinds[i].kind))
            return i;
    return -1;
}

bool is_helpers_golden(const qn_json *root)
{
    return kind_of(root) >= 0;
}

void run_helpers_golden(const qn_json *root, const case_context *context)
{
    (void)context;
    int kind = kind_of(root);
    const qn_json *list = qn_json_get(root, kinds[kind].list);
    calls_begin();
    if (!list || !list->count)
        case_fail("expected a list '%s'", kinds[kind].list);
    for (uint32_t i = 0; list && i < list->count; i++) {
        at_entry(i, kinds[kind].kind);
        kinds[kind].entry(&list->items[i]);
    }
    if (kinds[kind].rest)
        kinds[kind].rest(root);
}
