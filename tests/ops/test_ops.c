/* Every regular row of ops.def, over element types, layouts and broadcasts.
 *
 * Operations are built as a program would build them and evaluated by the
 * reference backend, then by the CPU backend; each element is compared with
 * the oracle's (oracle.h).  A new row takes part by being in the table; it
 * needs an entry in oracle.c and nothing else. */
#include "support/qn_nodes.h"

#include "oracle.h"

#include "backend/cpu/cpu.h"
#include "backend/ref/ref.h"
#include "ops/promote.h"

#include <limits.h>

/* ---- operands ---- */

static const double specials[] = {0,    -0.0,     1,         -1, 0.5,  -0.5,
                                  2.5,  -3.75,    0.25,      7,  -0.9, 100,
                                  1e-3, INFINITY, -INFINITY, NAN};
enum { SPECIALS = sizeof specials / sizeof *specials, FINITE = SPECIALS - 3 };

/* Element i of an operand that fits the type. */
static void put_element(void *at, qn_dtype dtype, size_t i, uint64_t *seed,
                        bool finite)
{
    double x = 3 * test_random(seed);
    if (dtype == QN_COMPLEX64) {
        ((float *)at)[0] = (float)x;
        ((float *)at)[1] = (float)(2 * test_random(seed));
        return;
    }
    if (qn_dtype_is_float(dtype)) {
        size_t n = finite ? FINITE : SPECIALS;
        element_put(at, dtype, i % 2 && i / 2 < n ? specials[i / 2] : x);
        return;
    }
    if (dtype == QN_BOOL) {
        element_put(at, dtype, x > 0);
        return;
    }
    /* Small numbers, and the ends of the types that a double can name. */
    bool is_signed = qn_dtype_kind(dtype) == QN_KIND_INT;
    size_t bits = 8 * qn_dtype_size(dtype);
    double whole = is_signed ? floor(3 * x) : floor(fabs(3 * x));
    if (bits < 64 && i % 7 == 3)
        whole = is_signed ? -ldexp(1, (int)bits - 1) : ldexp(1, (int)bits) - 1;
    if (bits < 64 && i % 7 == 5 && is_signed)
        whole = ldexp(1, (int)bits - 1) - 1;
    /* element_put converts to the unsigned type; negatives go by int64. */
    if (whole < 0) {
        int64_t value = (int64_t)whole;
        memcpy(at, &value, qn_dtype_size(dtype));
    } else {
        element_put(at, dtype, whole);
    }
}

typedef enum layout { PLAIN, PERMUTED, REVERSED, SPACED, LAYOUTS } layout;

static const char *const layout_names[] = {"plain", "permuted", "reversed",
                                           "spaced"};

/* An operand whose elements lie in memory as `how` says. */
static qn_array *operand(qn_dtype dtype, const int *shape, int ndim, layout how,
                         uint64_t seed, bool finite)
{
    int64_t strides[QN_MAX_NDIM];
    int wide[QN_MAX_NDIM];
    size_t first = 0;
    int64_t step = 1;
    int step_by = how == SPACED ? 2 : 1;
    for (int k = 0; k < ndim; k++) {
        int axis = how == PERMUTED ? k : ndim - 1 - k;
        strides[axis] = how == REVERSED ? -step : step * step_by;
        if (how == REVERSED && shape[axis])
            first += (size_t)(step * (shape[axis] - 1));
        step *= shape[axis] * step_by;
    }
    wide[0] = step > 0 ? (int)step : 1;
    qn_array *room = array_of(dtype, NULL, wide, 1);
    qn_array *view = view_of(room, shape, ndim, strides, first);
    for (size_t i = 0; i < view->size; i++)
        put_element(place_of(view, i), dtype, i, &seed, finite);
    qn_array_unref(room);
    return view;
}

/* ---- comparison ---- */

static real get_real(const qn_array *a, size_t i)
{
    const void *at = place_of(a, i);
    if (a->dtype == QN_INT64)
        return (real) * (const int64_t *)at;
    if (a->dtype == QN_UINT64)
        return (real) * (const uint64_t *)at;
    return element_get(at, a->dtype);
}

static cplx get_cplx(const qn_array *a, size_t i)
{
    const float *at = place_of(a, i);
    return a->dtype == QN_COMPLEX64 ? at[0] + at[1] * (cplx)I
                                    : (cplx)(double)get_real(a, i);
}

/* Distance between neighbours of x in a floating type. */
static real unit_of(real x, qn_dtype dtype)
{
    int bits = dtype == QN_FLOAT16    ? 11
               : dtype == QN_BFLOAT16 ? 8
               : dtype == QN_FLOAT64  ? 53
                                      : 24;
    int least = dtype == QN_FLOAT16 ? -24 : dtype == QN_FLOAT64 ? -1074 : -149;
    int exponent;
    frexpl(x, &exponent);
    int at = exponent - bits;
    return ldexpl(1, at < least ? least : at);
}

/* `found` stands for `wanted` in its type: whole numbers exactly, floats
 * within some units in the last place. */
static bool real_fits(real found, real wanted, qn_dtype dtype, real units)
{
    if (isnan(wanted) || isnan(found))
        return isnan(wanted) && isnan(found);
    if (found == wanted)
        return true;
    if (!qn_dtype_is_float(dtype))
        return false;
    real largest = dtype == QN_FLOAT16    ? 65504.0L
                   : dtype == QN_BFLOAT16 ? 0x1.fep127L
                   : dtype == QN_FLOAT64  ? 0x1.fffffffffffffp1023L
                                          : 0x1.fffffep127L;
    if (isinf(found))
        return fabsl(wanted) > largest * (1 - 0x1p-8L) &&
               (found > 0) == (wanted > 0);
    return fabsl(found - wanted) <= units * unit_of(wanted, dtype);
}

static bool cplx_fits(cplx found, cplx wanted)
{
    return cabs(found - wanted) <= 2e-6 * fmax(1, cabs(wanted));
}

static void complain(const char *what, qn_op op, qn_dtype dtype, layout how,
                     size_t i, cplx wanted, cplx found)
{
    fail_msg("%s: %s of %s, %s, element %zu: expected %.9g%+.9gi, found "
             "%.9g%+.9gi",
             what, qn_op_info_of(op)->name, qn_dtype_name(dtype),
             layout_names[how], i, creal(wanted), cimag(wanted), creal(found),
             cimag(found));
}

static const char *backend_name;

/* The row takes operands of this type in this very type. */
static bool takes(const qn_op_info *info, qn_dtype dtype)
{
    qn_dtype operand_type;
    return !qn_operand_type(&operand_type, info, dtype) &&
           operand_type == dtype;
}

/* ---- one and two elements ---- */

static void check_elements(qn_op op, qn_array *const *in, int n, layout how)
{
    const qn_op_info *info = qn_op_info_of(op);
    const oracle *o = &oracles[op];
    qn_dtype dtype = in[0]->dtype;
    qn_array *out = NULL, *back[2] = {NULL, NULL};
    if (!o->real)
        fail_msg("%s has no oracle", info->name);
    check_status(n == 1 ? qn_op_unary(&out, op, in[0], test_stream())
                        : qn_op_binary(&out, op, in[0], in[1], test_stream()),
                 QN_OK);
    assert_int_equal(out->dtype, qn_result_type(info, dtype));
    /* Operands as the result's elements meet them. */
    for (int k = 0; k < n; k++)
        check_status(qn_op_broadcast_to(&back[k], in[k], out->shape,
                                        (size_t)out->ndim, test_stream()),
                     QN_OK);
    check_status(qn_eval((qn_array *[]){out, back[0], back[n - 1]}, 3), QN_OK);
    for (size_t i = 0; i < out->size; i++) {
        if (dtype == QN_COMPLEX64) {
            cplx wanted =
                o->cplx(get_cplx(back[0], i), get_cplx(back[n - 1], i));
            if (!cplx_fits(get_cplx(out, i), wanted))
                complain(backend_name, op, dtype, how, i, wanted,
                         get_cplx(out, i));
            continue;
        }
        real wanted =
            o->real(get_real(back[0], i), get_real(back[n - 1], i), dtype);
        real units = dtype == QN_FLOAT16 || dtype == QN_BFLOAT16 ? 1 : 4;
        /* Where the two parts of logaddexp cancel, each has its own error. */
        real slack = op == QN_OP_LOGADDEXP
                         ? 2 * unit_of(get_real(back[0], i), out->dtype)
                         : 0;
        if (!(fabsl(get_real(out, i) - wanted) <= slack) &&
            !real_fits(get_real(out, i), wanted, out->dtype, units))
            complain(backend_name, op, dtype, how, i, (cplx)(double)wanted,
                     (cplx)(double)get_real(out, i));
    }
    qn_array_unref(back[0]);
    qn_array_unref(back[1]);
    qn_array_unref(out);
}

typedef struct shape {
    int ndim, dim[4];
} shape;

static const shape shapes[] = {{0, {0}},       {1, {37}},    {2, {3, 5}},
                               {3, {2, 0, 3}}, {2, {4, 70}}, {3, {3, 1, 8}}};

static void check_unary(qn_op op)
{
    const oracle *o = &oracles[op];
    for (int d = 0; d < QN_DTYPE_COUNT; d++) {
        qn_dtype dtype = (qn_dtype)d;
        if (!takes(qn_op_info_of(op), dtype) ||
            (op == QN_OP_NEGATIVE && dtype == QN_BOOL))
            continue;
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
            for (layout how = PLAIN; how < LAYOUTS; how++) {
                qn_array *x = operand(dtype, shapes[s].dim, shapes[s].ndim, how,
                                      (uint64_t)op * 31 + s, o->finite);
                check_elements(op, &x, 1, how);
                qn_array_unref(x);
            }
    }
}

static const shape pairs[][2] = {
    {{1, {37}}, {1, {37}}},      {{2, {3, 5}}, {2, {3, 5}}},
    {{0, {0}}, {2, {4, 9}}},     {{2, {4, 9}}, {1, {9}}},
    {{2, {4, 1}}, {2, {1, 70}}}, {{3, {2, 0, 3}}, {1, {3}}},
    {{0, {0}}, {0, {0}}},        {{3, {2, 1, 4}}, {2, {3, 1}}},
};

static void check_binary(qn_op op)
{
    const oracle *o = &oracles[op];
    for (int d = 0; d < QN_DTYPE_COUNT; d++) {
        qn_dtype dtype = (qn_dtype)d;
        if (!takes(qn_op_info_of(op), dtype))
            continue;
        for (size_t s = 0; s < sizeof pairs / sizeof *pairs; s++)
            for (layout how = PLAIN; how < LAYOUTS; how++) {
                layout other = (layout)((how + s) % LAYOUTS);
                qn_array *in[2] = {
                    operand(dtype, pairs[s][0].dim, pairs[s][0].ndim, how,
                            (uint64_t)op * 31 + s, o->finite),
                    operand(dtype, pairs[s][1].dim, pairs[s][1].ndim, other,
                            (uint64_t)op * 17 + s + 5, o->finite)};
                check_elements(op, in, 2, how);
                qn_array_unref(in[0]);
                qn_array_unref(in[1]);
            }
    }
}

/* ---- reductions ---- */

/* What has been combined so far, and how much an error may have grown. */
typedef struct total {
    cplx z;
    real x, size;
    bool none;
} total;

static total identity(qn_op op)
{
    real one = op == QN_OP_PROD || op == QN_OP_ALL || op == QN_OP_CUMPROD;
    return (total){.z = (double)one, .x = one, .none = true};
}

static void combine(total *t, qn_op op, real x, cplx z, qn_dtype result)
{
    t->size += fabsl(x);
    switch (op) {
    case QN_OP_ALL:
        t->x = t->x != 0 && x != 0;
        break;
    case QN_OP_ANY:
        t->x = t->x != 0 || x != 0;
        break;
    case QN_OP_MAX:
    case QN_OP_CUMMAX:
        t->x = t->none ? x : oracles[QN_OP_MAXIMUM].real(t->x, x, result);
        t->z = t->none || oracle_less(t->z, z) ? z : t->z;
        break;
    case QN_OP_MIN:
    case QN_OP_CUMMIN:
        t->x = t->none ? x : oracles[QN_OP_MINIMUM].real(t->x, x, result);
        t->z = t->none || oracle_less(z, t->z) ? z : t->z;
        break;
    case QN_OP_PROD:
    case QN_OP_CUMPROD:
        t->x = oracle_wrap(t->x * x, result);
        t->z *= z;
        break;
    case QN_OP_SUM:
    case QN_OP_CUMSUM:
        t->x = oracle_wrap(t->x + x, result);
        t->z += z;
        break;
    case QN_OP_LOGCUMSUMEXP:
        t->x = t->none ? x : oracles[QN_OP_LOGADDEXP].real(t->x, x, result);
        t->z = t->none ? z : oracles[QN_OP_LOGADDEXP].cplx(t->z, z);
        break;
    default:
        fail_msg("%s has no oracle", qn_op_info_of(op)->name);
    }
    t->none = false;
}

static void check_total(const qn_array *out, size_t i, const total *t, qn_op op,
                        qn_dtype dtype, layout how, size_t terms)
{
    if (out->dtype == QN_COMPLEX64) {
        if (!cplx_fits(get_cplx(out, i), t->z))
            complain(backend_name, op, dtype, how, i, t->z, get_cplx(out, i));
        return;
    }
    real found = get_real(out, i);
    bool adds = op == QN_OP_SUM || op == QN_OP_CUMSUM;
    real slack = 0;
    if (adds && qn_dtype_is_float(out->dtype))
        /* Sums err with the size of what was added up. */
        slack =
            (real)terms * t->size * (dtype == QN_FLOAT64 ? 0x1p-53L : 0x1p-24L);
    if (fabsl(found - t->x) <= slack)
        return;
    real units = 2 + (real)terms;
    if (dtype == QN_FLOAT16 || dtype == QN_BFLOAT16)
        units = 1.5L;
    if (!real_fits(found, t->x, out->dtype, units))
        complain(backend_name, op, dtype, how, i, (cplx)(double)t->x,
                 (cplx)(double)found);
}

/* Axes of a three-dimensional operand, a bit each. */
static void reduce_once(qn_op op, qn_dtype dtype, const int *dim, layout how,
                        unsigned chosen, bool keepdims)
{
    qn_array *x = operand(dtype, dim, 3, how, (uint64_t)op * 7 + chosen, true);
    int axes[3], n = 0, kept[3], nkept = 0;
    for (int i = 0; i < 3; i++)
        if (chosen & 1u << i)
            axes[n++] = i % 2 ? i : i - 3;
        else
            kept[nkept++] = i;
    qn_array *out;
    check_status(
        qn_op_reduce(&out, op, x, axes, (size_t)n, keepdims, test_stream()),
        QN_OK);
    assert_int_equal(out->ndim, keepdims ? 3 : nkept);
    check_status(qn_eval(&out, 1), QN_OK);
    for (size_t i = 0; i < out->size; i++) {
        total t = identity(op);
        size_t terms = 0;
        for (size_t j = 0; j < x->size; j++) {
            size_t index[3] = {j / (size_t)(dim[1] * dim[2]),
                               j / (size_t)dim[2] % (size_t)dim[1],
                               j % (size_t)dim[2]};
            size_t at = 0;
            for (int k = 0; k < nkept; k++)
                at = at * (size_t)dim[kept[k]] + index[kept[k]];
            if (at != i)
                continue;
            combine(&t, op, dtype == QN_COMPLEX64 ? 0 : get_real(x, j),
                    get_cplx(x, j), out->dtype);
            terms++;
        }
        if (dtype == QN_COMPLEX64 && out->dtype == QN_BOOL) {
            qn_array_unref(out);
            qn_array_unref(x);
            return;
        }
        check_total(out, i, &t, op, dtype, how, terms);
    }
    qn_array_unref(out);
    qn_array_unref(x);
}

static void check_reduce(qn_op op)
{
    static const int dims[][3] = {{3, 4, 5}, {2, 1, 40}, {1, 9, 2}, {2, 0, 3}};
    bool needs = op == QN_OP_MAX || op == QN_OP_MIN;
    for (int d = 0; d < QN_DTYPE_COUNT; d++)
        for (size_t s = 0; s < 4; s++)
            for (layout how = PLAIN; how < LAYOUTS; how++)
                for (unsigned chosen = 1; chosen < 8; chosen++)
                    if (!needs || dims[s][1] || !(chosen & 2))
                        reduce_once(op, (qn_dtype)d, dims[s], how, chosen,
                                    (chosen + s) % 2);
}

/* ---- scans ---- */

static real rounded(real x, qn_dtype dtype)
{
    uint64_t room = 0;
    element_put(&room, dtype, (double)x);
    return element_get(&room, dtype);
}

static void scan_once(qn_op op, qn_dtype dtype, const int *dim, layout how,
                      int axis, bool reverse, bool inclusive)
{
    qn_array *x = operand(dtype, dim, 3, how, (uint64_t)op * 3 + 1, true);
    qn_array *out;
    check_status(
        qn_op_scan(&out, op, x, axis, reverse, inclusive, test_stream()),
        QN_OK);
    check_status(qn_eval(&out, 1), QN_OK);
    size_t inner = 1, length = (size_t)dim[axis];
    for (int i = axis + 1; i < 3; i++)
        inner *= (size_t)dim[i];
    for (size_t line = 0; line * length < x->size; line++) {
        size_t base = line / inner * inner * length + line % inner;
        total t = identity(op);
        for (size_t k = 0; k < length; k++) {
            size_t at = base + (reverse ? length - 1 - k : k) * inner;
            /* Without itself, the first of extrema and of log-sums is a
             * limit of the type; it is not looked at here. */
            bool first = t.none && (op == QN_OP_CUMMAX || op == QN_OP_CUMMIN ||
                                    op == QN_OP_LOGCUMSUMEXP);
            if (!inclusive && !first)
                check_total(out, at, &t, op, dtype, how, k);
            combine(&t, op, dtype == QN_COMPLEX64 ? 0 : get_real(x, at),
                    get_cplx(x, at), out->dtype);
            /* A scan goes on from what it has stored. */
            if (dtype == QN_FLOAT16 || dtype == QN_BFLOAT16)
                t.x = rounded(t.x, dtype);
            if (inclusive)
                check_total(out, at, &t, op, dtype, how, k + 1);
        }
    }
    qn_array_unref(out);
    qn_array_unref(x);
}

static void check_scan(qn_op op)
{
    static const int dims[][3] = {{3, 4, 5}, {2, 1, 17}, {2, 3, 0}};
    for (int d = 0; d < QN_DTYPE_COUNT; d++) {
        if (!takes(qn_op_info_of(op), (qn_dtype)d))
            continue;
        for (size_t s = 0; s < 3; s++)
            for (layout how = PLAIN; how < LAYOUTS; how++)
                for (int axis = 0; axis < 3; axis++)
                    for (int mode = 0; mode < 4; mode++)
                        scan_once(op, (qn_dtype)d, dims[s], how, axis, mode & 1,
                                  mode & 2);
    }
}

/* ---- the table ---- */

static void every_row(qn_op_family family, void (*check)(qn_op op))
{
    static const struct {
        const char *name;
        const qn_backend *(*get)(void);
    } backends[] = {{"ref", qn_backend_ref}, {"cpu", qn_backend_cpu}};
    for (int b = 0; b < 2; b++) {
        backend_name = backends[b].name;
        qn_backend_register(QN_DEVICE_CPU, backends[b].get());
        for (int op = 0; op < QN_OP_COUNT; op++)
            if (qn_op_info_of(op)->family == family)
                check((qn_op)op);
    }
}

static void test_rows_of_one_element(void **state)
{
    (void)state;
    every_row(QN_FAMILY_UNARY, check_unary);
}

static void test_rows_of_two_elements(void **state)
{
    (void)state;
    every_row(QN_FAMILY_BINARY, check_binary);
}

static void test_reductions(void **state)
{
    (void)state;
    every_row(QN_FAMILY_REDUCE, check_reduce);
}

static void test_scans(void **state)
{
    (void)state;
    every_row(QN_FAMILY_SCAN, check_scan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_of_one_element),
        cmocka_unit_test(test_rows_of_two_elements),
        cmocka_unit_test(test_reductions),
        cmocka_unit_test(test_scans),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
