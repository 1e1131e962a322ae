/* Functions through a file and back: the same bits as without, names and
 * several recordings, other shapes, faults of a file. */
#include "programs.h"

#include "core/eval.h"
#include "io/elements.h"
#include "io/file.h"
#include "io/safetensors.h"
#include "transform/grad.h"
#include "transform/import.h"
#include "transform/mlxfn.h"

static const program *running;
static char *dir, *path;

static bool same_bits(const qn_array *a, const qn_array *b, size_t k)
{
    if (!memcmp(place_of(a, k), place_of(b, k), qn_array_itemsize(a)))
        return true;
    return qn_dtype_is_float(a->dtype) && isnan(item(a, k)) &&
           isnan(item(b, k));
}

static void compare(qn_array *wanted, qn_array *found)
{
    qn_array *both[] = {wanted, found};
    check_status(qn_eval(both, 2), QN_OK);
    assert_int_equal(found->dtype, wanted->dtype);
    assert_true(qn_same_shape(wanted, found));
    for (size_t k = 0; k < wanted->size; k++)
        if (!same_bits(wanted, found, k)) {
            print_error("%s: element %zu is %g, expected %g\n", running->name,
                        k, item(found, k), item(wanted, k));
            fail();
        }
}

/* What the function's file has. */
static qn_buf export_of(const qn_function *fun, qn_array *const *in, int nin,
                        bool shapeless)
{
    qn_buf bytes = QN_BUF_INIT;
    qn_exporter *e;
    check_status(qn_exporter_new(&e, NULL, shapeless), QN_OK);
    check_status(qn_exporter_add(e, fun, in, (size_t)nin, NULL, 0), QN_OK);
    check_status(qn_exporter_bytes(&bytes, e), QN_OK);
    qn_exporter_free(e);
    return bytes;
}

/* Frees the file. */
static void call_file(qn_buf *bytes, qn_array *const *in, int nin,
                      qn_array **out)
{
    qn_imported *f;
    qn_arrays list;
    check_status(qn_imported_parse(
                     &f, (qn_bytes){(const uint8_t *)bytes->data, bytes->size}),
                 QN_OK);
    qn_buf_free(bytes);
    check_status(qn_imported_call(&list, f, in, (size_t)nin, NULL, 0), QN_OK);
    qn_imported_free(f);
    keep_list(&list, out);
}

/* ---- every program ---- */

static void round_trip(const program *p, bool shapeless)
{
    program_function f = function_of(p);
    qn_array *in[PROGRAM_INPUTS], *wanted[PROGRAM_OUTPUTS];
    qn_array *found[PROGRAM_OUTPUTS];
    qn_arrays list;
    running = p;
    program_inputs(p, in);
    check_status(f.base.call(&f.base, &list, in, (size_t)p->ninputs), QN_OK);
    keep_list(&list, wanted);
    qn_buf bytes = export_of(&f.base, in, p->ninputs, shapeless);
    call_file(&bytes, in, p->ninputs, found);
    for (int i = 0; i < p->noutputs; i++)
        compare(wanted[i], found[i]);
}

static void visit(const program *p)
{
    /* MLX's files have no such step, and the exporter says so. */
    if (p->op == QN_OP_TOKEN_BITMASK)
        return;
    round_trip(p, false);
}

static void test_programs_keep_their_bits(void **state)
{
    (void)state;
    each_program(visit);
}

/* The rows that each_program leaves out: of whole numbers and truth values. */
static void test_whole_numbers_keep_their_bits(void **state)
{
    static const qn_dtype types[] = {QN_INT32, QN_UINT8, QN_INT64, QN_BOOL,
                                     QN_FLOAT32};
    (void)state;
    for (int op = 0; op < QN_OP_COUNT; op++) {
        const qn_op_info *info = qn_op_info_of(op);
        program p = {.name = info->name, .op = op, .ninputs = 1, .noutputs = 1};
        switch (info->family) {
        case QN_FAMILY_UNARY:
            p.build = do_unary;
            break;
        case QN_FAMILY_BINARY:
            p.build = do_binary;
            p.ninputs = 2;
            break;
        case QN_FAMILY_REDUCE:
            p.build = do_reduce;
            p.noutputs = 2;
            break;
        case QN_FAMILY_SCAN:
            p.build = do_scan;
            p.noutputs = 3;
            break;
        default:
            continue;
        }
        for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
            bool floating = types[t] == QN_FLOAT32;
            if ((floating && (info->types == QN_TYPES_BITS ||
                              info->types == QN_TYPES_INT)) ||
                (types[t] == QN_BOOL &&
                 (op == QN_OP_NEGATIVE || op == QN_OP_SUBTRACT)))
                continue;
            p.in[0] = (program_input){3, {2, 5, 2}, 0, 5, types[t]};
            p.in[1] = (program_input){2, {5, 1}, 1, 4, types[t]};
            if (floating)
                p.in[0].low = -5;
            round_trip(&p, false);
            drop_all(NULL);
        }
    }
}

static void let_go(void *array)
{
    qn_array_unref(array);
}

/* ---- files that MLX wrote ---- */

typedef struct fixture {
    const char *name;
    double within; /* of what MLX computed, by the larger of 1 and the value */
    bool shapeless;
} fixture;

static const fixture fixtures[] = {
    {"unary", 2e-6, false},    {"binary", 2e-6, false},
    {"whole", 2e-6, false},    {"complex", 2e-6, false},
    {"reduce", 2e-6, false},   {"order", 0, false},
    {"shapes", 0, false},      {"slices", 0, false},
    {"indices", 0, false},     {"products", 1e-5, false},
    {"packed", 1e-5, false},   {"attention", 5e-6, false},
    {"random", 1e-6, false},   {"fft", 2e-6, false},
    {"linalg", 2e-5, false},   {"constants", 0, false},
    {"named", 0, false},       {"several", 1e-6, false},
    {"shapeless", 2e-6, true}, {"masked", 0, false},
};

static char *vector_path(const char *name, const char *what)
{
    qn_buf text = QN_BUF_INIT;
    qn_buf_printf(&text, QN_TEST_VECTORS "/export/%s.%s", name, what);
    return qn_buf_take(&text);
}

/* NULL when the file has no such tensor.  `what` may be followed by a key. */
static qn_array *tensor(const qn_map *map, int call, const char *what, int i,
                        qn_str *key)
{
    char prefix[32];
    int n = call ? snprintf(prefix, sizeof prefix, "call%d.%s%d", call, what, i)
                 : snprintf(prefix, sizeof prefix, "%s%d", what, i);
    for (size_t k = 0; k < qn_map_size(map); k++) {
        qn_str found = qn_map_key_at(map, k);
        size_t length = strlen(found.data); /* keys include their zeros */
        if (strncmp(found.data, prefix, (size_t)n) != 0 ||
            (found.data[n] && found.data[n] != ':'))
            continue;
        *key = found.data[n]
                   ? (qn_str){found.data + n + 1, length - (size_t)n - 1}
                   : (qn_str){0};
        return qn_map_value_at(map, k)->ptr;
    }
    return NULL;
}

static void check_output(const fixture *f, int call, int i, qn_array *found,
                         qn_array *wanted)
{
    qn_array *both[] = {found, wanted};
    check_status(qn_eval(both, 2), QN_OK);
    if (found->dtype != wanted->dtype || !qn_same_shape(found, wanted))
        print_error("%s: call %d, output %d\n", f->name, call, i);
    assert_int_equal(found->dtype, wanted->dtype);
    assert_true(qn_same_shape(found, wanted));
    for (size_t k = 0; k < wanted->size; k++) {
        if (same_bits(wanted, found, k))
            continue;
        double a = item(found, k), b = item(wanted, k);
        if (wanted->dtype == QN_COMPLEX64 || qn_dtype_is_float(wanted->dtype))
            if (fabs(a - b) <= f->within * fmax(1, fabs(b)))
                continue;
        print_error("%s: call %d, output %d, element %zu is %.9g, expected "
                    "%.9g\n",
                    f->name, call, i, k, a, b);
        fail();
    }
}

static void check_call(const fixture *f, const qn_imported *function,
                       const qn_map *map, int call)
{
    qn_array *in[PROGRAM_INPUTS], *wanted;
    qn_named named[PROGRAM_INPUTS];
    qn_arrays out;
    qn_str key;
    size_t n = 0, nnamed = 0, i = 0;
    qn_array *x;
    for (; (x = tensor(map, call, "in", (int)(n + nnamed), &key));) {
        if (key.data)
            named[nnamed++] = (qn_named){key, x};
        else
            in[n++] = x;
    }
    check_status(qn_imported_call(&out, function, in, n, named, nnamed), QN_OK);
    for (; (wanted = tensor(map, call, "out", (int)i, &key)); i++) {
        assert_true(i < out.count);
        check_output(f, call, (int)i, out.data[i], wanted);
    }
    assert_true(i > 0);
    assert_int_equal(i, out.count);
    qn_arrays_free(&out);
}

static void test_files_of_mlx(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof fixtures / sizeof *fixtures; k++) {
        const fixture *f = &fixtures[k];
        char *file = vector_path(f->name, "mlxfn");
        char *data = vector_path(f->name, "safetensors");
        qn_imported *function;
        qn_io *io;
        qn_map *map, *about;
        qn_str key;
        check_status(qn_imported_new(&function, file), QN_OK);
        check_status(qn_io_open(&io, "load", data), QN_OK);
        check_status(qn_safetensors_load(&map, &about, io, S), QN_OK);
        qn_io_unref(io);
        for (int call = 0; tensor(map, call, "out", 0, &key); call++)
            check_call(f, function, map, call);
        qn_map_free(map, let_go);
        qn_map_free(about, qn_free);
        qn_imported_free(function);
        qn_free(file);
        qn_free(data);
    }
}

/* ---- other shapes, through a file of our own ---- */

/* mean over an axis, a broadcast of two lines, a product with a matrix */
static void build_shapeless(qn_scope *c, const program *p, qn_array *const *in,
                            qn_array **out)
{
    static const int axis = 1;
    qn_array *made = NULL;
    (void)p;
    if (!c->status)
        qn_scope_hold(c, qn_op_mean(&made, in[0], &axis, 1, true, c->stream),
                      &made);
    out[0] = sub(c, in[0], made);
    out[1] = mul(c, expand(c, in[1], 1), in[1]);
    out[2] = matmul(c, reshape(c, in[0], &(qn_dims){3, {1, 2, 3}}), in[2]);
}

static const program shapeless_program = {"shapeless",
                                          QN_OP_SUM,
                                          build_shapeless,
                                          3,
                                          3,
                                          0,
                                          0,
                                          {{2, {2, 3}, -1, 1, QN_FLOAT64},
                                           {1, {4}, -1, 1, QN_FLOAT64},
                                           {2, {3, 2}, -1, 1, QN_FLOAT64}}};

static void test_other_shapes(void **state)
{
    (void)state;
    const program *p = &shapeless_program;
    program_function f = function_of(p);
    qn_array *in[3], *found[3], *sum;
    round_trip(p, true);
    program_inputs(p, in);
    qn_buf bytes = export_of(&f.base, in, 3, true);
    in[0] = counted(QN_FLOAT64, (const int[]){5, 2}, 2);
    in[1] = counted(QN_FLOAT64, (const int[]){3}, 1);
    in[2] = counted(QN_FLOAT64, (const int[]){2, 4}, 2);
    call_file(&bytes, in, 3, found);
    check_status(qn_eval(found, 3), QN_OK);
    assert_true(qn_same_shape(found[0], in[0]));
    assert_true(item(found[0], 0) == -0.5 && item(found[0], 1) == 0.5);
    assert_int_equal(found[1]->size, 9);
    assert_true(item(found[1], 5) == item(in[1], 1) * item(in[1], 2));
    assert_int_equal(found[2]->ndim, 3);
    assert_int_equal(found[2]->shape[1], 5);
    check_status(qn_op_matmul(&sum, in[0], in[2], S), QN_OK);
    keep(sum);
    check_status(qn_eval(&sum, 1), QN_OK);
    for (size_t k = 0; k < sum->size; k++)
        assert_true(item(sum, k) == item(found[2], k));
}

/* ---- imported functions among others ---- */

/* An input itself, and a product one factor of which no gradient passes. */
static void build_stopped(qn_scope *c, const program *p, qn_array *const *in,
                          qn_array **out)
{
    qn_array *made = NULL;
    (void)p;
    if (!c->status)
        qn_scope_hold(c, qn_op_stop_gradient(&made, in[0], c->stream), &made);
    out[0] = in[0];
    out[1] = mul(c, in[0], made);
}

static const program stopped_program = {
    "stopped", QN_OP_STOP_GRADIENT,         build_stopped, 1, 2, 0,
    0,         {{1, {3}, 1, 2, QN_FLOAT64}}};

typedef struct imported_function {
    qn_function base;
    const qn_imported *f;
} imported_function;

static qn_status call_imported(const qn_function *self, qn_arrays *out,
                               qn_array *const *in, size_t nin)
{
    return qn_imported_call(out, ((const imported_function *)self)->f, in, nin,
                            NULL, 0);
}

static void test_gradients_of_imported_functions(void **state)
{
    program_function f = function_of(&stopped_program);
    qn_array *in[1], *cot[2];
    qn_arrays outs, grads;
    qn_imported *g;
    (void)state;
    program_inputs(&stopped_program, in);
    qn_buf bytes = export_of(&f.base, in, 1, false);
    check_status(qn_imported_parse(
                     &g, (qn_bytes){(const uint8_t *)bytes.data, bytes.size}),
                 QN_OK);
    qn_buf_free(&bytes);
    imported_function h = {{call_imported}, g};
    cot[0] = counted(QN_FLOAT64, (const int[]){3}, 1);
    cot[1] = counted(QN_FLOAT64, (const int[]){3}, 1);
    check_status(qn_vjp(&outs, &grads, &h.base, in, 1, cot, 2), QN_OK);
    check_status(qn_eval(grads.data, 1), QN_OK);
    check_status(qn_eval(outs.data, 2), QN_OK);
    for (size_t k = 0; k < 3; k++) {
        double x = item(in[0], k), c = item(cot[0], k);
        assert_true(item(outs.data[0], k) == x);
        assert_true(item(outs.data[1], k) == x * x);
        /* Not 2 x: half of the square is held. */
        assert_true(item(grads.data[0], k) == c + c * x);
    }
    qn_arrays_free(&outs);
    qn_arrays_free(&grads);
    qn_imported_free(g);
}

/* ---- faults ---- */

static char *read_vector(const char *name, size_t *size)
{
    char *data, *file = vector_path(name, "mlxfn");
    check_status(qn_file_read(&data, size, file, 1 << 20), QN_OK);
    qn_free(file);
    return data;
}

/* From its own allocation, so that a step outside is seen. */
static qn_status parse(const char *data, size_t size)
{
    qn_imported *f;
    uint8_t *copy = qn_alloc(size);
    memcpy(copy, data, size);
    qn_status status = qn_imported_parse(&f, (qn_bytes){copy, size});
    qn_free(copy);
    if (!status)
        qn_imported_free(f);
    return status;
}

static void test_every_cut_is_an_error(void **state)
{
    static const char *const names[] = {"several", "attention", "named"};
    (void)state;
    for (int i = 0; i < 3; i++) {
        size_t size;
        char *data = read_vector(names[i], &size);
        check_status(parse(data, size), QN_OK);
        for (size_t n = 0; n < size; n++)
            check_error(parse(data, n), QN_E_FORMAT, "[import_function]");
        qn_free(data);
    }
}

/* Whatever becomes of a byte: an error or another function, and no step outside
 * of the file. */
static void test_every_byte_may_be_another(void **state)
{
    static const uint8_t values[] = {0, 1, 0x7f, 0x80, 0xff};
    size_t size;
    (void)state;
    char *data = read_vector("named", &size);
    for (size_t n = 0; n < size; n++) {
        char was = data[n];
        for (size_t v = 0; v < sizeof values; v++) {
            data[n] = (char)values[v];
            qn_status status = parse(data, size);
            assert_true(status == QN_OK || status == QN_E_FORMAT ||
                        status == QN_E_UNSUPPORTED || status == QN_E_ARG);
        }
        data[n] = was;
    }
    qn_free(data);
}

static void test_unknown_primitives_are_named(void **state)
{
    size_t size;
    (void)state;
    char *data = read_vector("named", &size);
    for (size_t n = 0; n + 8 <= size; n++)
        if (!memcmp(data + n, "Multiply", 8))
            memcpy(data + n, "Multiplz", 8);
    check_error(parse(data, size), QN_E_UNSUPPORTED,
                "[import_function] Unable to deserialize primitive Multiplz");
    qn_free(data);
}

static void test_a_failed_export_leaves_the_file(void **state)
{
    size_t before, after;
    char *first, *second;
    program_function f = function_of(&shapeless_program);
    qn_array *in[3];
    qn_exporter *e;
    (void)state;
    program_inputs(&shapeless_program, in);
    check_status(qn_exporter_new(&e, path, false), QN_OK);
    check_status(qn_exporter_add(e, &f.base, in, 3, NULL, 0), QN_OK);
    check_status(qn_file_read(&first, &before, path, 1 << 20), QN_OK);
    in[2] = counted(QN_FLOAT64, (const int[]){5, 4}, 2);
    check_error(qn_exporter_add(e, &f.base, in, 3, NULL, 0), QN_E_ARG,
                "[matmul]");
    qn_exporter_free(e);
    check_status(qn_file_read(&second, &after, path, 1 << 20), QN_OK);
    assert_int_equal(before, after);
    assert_memory_equal(first, second, before);
    qn_free(first);
    qn_free(second);
}

/* ---- memory ---- */

static qn_status through_a_file(bool shapeless)
{
    static const float values[] = {1, 2, 3, 4, 5, 6};
    program_function f = function_of(&shapeless_program);
    qn_array *in[3] = {NULL};
    qn_buf bytes = QN_BUF_INIT;
    qn_exporter *e = NULL;
    qn_imported *g = NULL;
    qn_arrays out;
    qn_status status =
        qn_array_from_data(&in[0], values, (const int[]){2, 3}, 2, QN_FLOAT32);
    if (!status)
        status =
            qn_array_from_data(&in[1], values, (const int[]){4}, 1, QN_FLOAT32);
    if (!status)
        status = qn_array_from_data(&in[2], values, (const int[]){3, 2}, 2,
                                    QN_FLOAT32);
    if (!status)
        status = qn_exporter_new(&e, NULL, shapeless);
    qn_named named = {QN_STR("third"), in[2]};
    if (!status)
        status = qn_exporter_add(e, &f.base, in, 2, &named, 1);
    if (!status)
        status = qn_exporter_bytes(&bytes, e);
    qn_exporter_free(e);
    if (!status)
        status = qn_imported_parse(
            &g, (qn_bytes){(const uint8_t *)bytes.data, bytes.size});
    qn_buf_free(&bytes);
    if (!status)
        status = qn_imported_call(&out, g, in, 2, &named, 1);
    if (!status) {
        status = qn_eval(out.data, out.count);
        qn_arrays_free(&out);
    }
    qn_imported_free(g);
    for (int i = 0; i < 3; i++)
        qn_array_unref(in[i]);
    return status;
}

static qn_status scenario_shaped(void)
{
    return through_a_file(false);
}

static qn_status scenario_shapeless(void)
{
    return through_a_file(true);
}

static qn_status scenario_mlx(void)
{
    qn_imported *f;
    char *file = vector_path("slices", "mlxfn");
    qn_status status = file ? qn_imported_new(&f, file) : QN_E_NOMEM;
    qn_free(file);
    if (!status)
        qn_imported_free(f);
    return status;
}

static void test_memory_may_run_out(void **state)
{
    (void)state;
    each_alloc_may_fail(scenario_shaped);
    each_alloc_may_fail(scenario_shapeless);
    each_alloc_may_fail(scenario_mlx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BUILD_TEST(test_programs_keep_their_bits),
        BUILD_TEST(test_whole_numbers_keep_their_bits),
        BUILD_TEST(test_files_of_mlx),
        BUILD_TEST(test_other_shapes),
        BUILD_TEST(test_gradients_of_imported_functions),
        BUILD_TEST(test_every_cut_is_an_error),
        BUILD_TEST(test_every_byte_may_be_another),
        BUILD_TEST(test_unknown_primitives_are_named),
        BUILD_TEST(test_a_failed_export_leaves_the_file),
        BUILD_TEST(test_memory_may_run_out),
    };
    dir = temp_dir_new();
    path = qn_path_join(dir, "f.mlxfn");
    int failed = run_build_tests(tests);
    temp_dir_remove(dir);
    qn_free(path);
    return failed;
}
