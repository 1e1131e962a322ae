/* Functions through a file and back: the same bits as without, names and
 * several recordings, other shapes, faults of a file. */
#include "programs.h"

#include "core/eval.h"
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

static void export_to(const char *to, const qn_function *fun,
                      qn_array *const *in, int nin, bool shapeless)
{
    qn_exporter *e;
    check_status(qn_exporter_new(&e, to, shapeless), QN_OK);
    check_status(qn_exporter_add(e, fun, in, (size_t)nin, NULL, 0), QN_OK);
    qn_exporter_free(e);
}

static void call_file(const char *from, qn_array *const *in, int nin,
                      qn_array **out)
{
    qn_imported *f;
    qn_arrays list;
    check_status(qn_imported_new(&f, from), QN_OK);
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
    export_to(path, &f.base, in, p->ninputs, shapeless);
    call_file(path, in, p->ninputs, found);
    for (int i = 0; i < p->noutputs; i++)
        compare(wanted[i], found[i]);
}

static void visit(const program *p)
{
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        BUILD_TEST(test_programs_keep_their_bits),
        BUILD_TEST(test_whole_numbers_keep_their_bits),
    };
    dir = temp_dir_new();
    path = qn_path_join(dir, "f.mlxfn");
    int failed = run_build_tests(tests);
    temp_dir_remove(dir);
    qn_free(path);
    return failed;
}
