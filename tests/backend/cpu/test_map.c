/* Element by element: each kernel against double arithmetic within the bound
 * that functions.def states, and nodes against the reference over types and
 * layouts. */
#include "support/qn_cpu_test.h"

#include "backend/cpu/kernels/casts/casts.h"
#include "backend/cpu/kernels/loops/loops.h"
#include "backend/cpu/kernels/map/map.h"
#include "ops/promote.h"

typedef double (*exact_fn)(double x);

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}
static double negative(double x)
{
    return -x;
}
static double square(double x)
{
    return x * x;
}
static double rsqrt(double x)
{
    return 1 / sqrt(x);
}

static exact_fn exact_of(int op)
{
    switch (op) {
    case QN_OP_ABS:
        return fabs;
    case QN_OP_ARCCOS:
        return acos;
    case QN_OP_ARCCOSH:
        return acosh;
    case QN_OP_ARCSIN:
        return asin;
    case QN_OP_ARCSINH:
        return asinh;
    case QN_OP_ARCTAN:
        return atan;
    case QN_OP_ARCTANH:
        return atanh;
    case QN_OP_CEIL:
        return ceil;
    case QN_OP_COS:
        return cos;
    case QN_OP_COSH:
        return cosh;
    case QN_OP_ERF:
        return erf;
    case QN_OP_EXP:
        return exp;
    case QN_OP_EXPM1:
        return expm1;
    case QN_OP_FLOOR:
        return floor;
    case QN_OP_LOG:
        return log;
    case QN_OP_LOG10:
        return log10;
    case QN_OP_LOG1P:
        return log1p;
    case QN_OP_LOG2:
        return log2;
    case QN_OP_NEGATIVE:
        return negative;
    case QN_OP_ROUND:
        return rint;
    case QN_OP_RSQRT:
        return rsqrt;
    case QN_OP_SIGMOID:
        return sigmoid;
    case QN_OP_SIN:
        return sin;
    case QN_OP_SINH:
        return sinh;
    case QN_OP_SQRT:
        return sqrt;
    case QN_OP_SQUARE:
        return square;
    case QN_OP_TAN:
        return tan;
    case QN_OP_TANH:
        return tanh;
    case QN_OP_TRUNC:
        return trunc;
    default:
        return NULL;
    }
}

static double bound_of(int op)
{
    static const double bounds[QN_OP_COUNT] = {
#define QN_MAP_UNARY(id, ulp, work, vector) [QN_OP_##id] = ulp,
#define QN_MAP_WIDE(id, ulp, ...) [QN_OP_##id] = ulp,
#define QN_MAP_WIDE_BINARY(id, ulp, ...) [QN_OP_##id] = ulp,
#include "backend/cpu/kernels/map/functions.def"
    };
    return bounds[op];
}

/* The distance from the true value in units of the last place of float. */
static double ulps(float found, double expected)
{
    float rounded = (float)expected;
    if (isnan(expected))
        return isnan(found) ? 0 : INFINITY;
    if (isinf(rounded) || isinf(found)) {
        /* The largest float is half a unit below where infinity begins. */
        bool near =
            fabs(expected) > 0x1.ffffp127 && fabsf(found) > 0x1.ffffp127f;
        return rounded == found || near ? 0 : INFINITY;
    }
    if (expected == 0)
        return found == 0 ? 0 : INFINITY;
    int exponent;
    frexp(expected, &exponent);
    exponent = exponent - 24 < -149 ? -149 : exponent - 24;
    return fabs((double)found - expected) / ldexp(1, exponent);
}

static float float_of_bits(uint32_t bits)
{
    return qn_bits_float(bits);
}

/* Every 40,000th float or so, so every exponent and sign, NaNs included. */
static void check_unary(const qn_map_kernel *kernel, int op)
{
    enum { N = 1000 };
    static float x[N], y[N];
    exact_fn exact = exact_of(op);
    double bound = bound_of(op) > 0 ? bound_of(op) : 0.5;
    assert_non_null(exact);
    for (uint64_t bits = 0; bits < 1ull << 32;) {
        for (int i = 0; i < N; i++, bits += 40009)
            x[i] = float_of_bits((uint32_t)bits);
        kernel->unary[op](y, x, N);
        for (int i = 0; i < N; i++) {
            double error = ulps(y[i], exact((double)x[i]));
            if (error > bound) {
                print_error("%s(%a): expected %a, found %a, %g ulp\n",
                            qn_op_info_of(op)->name, (double)x[i],
                            exact((double)x[i]), (double)y[i], error);
                fail();
            }
        }
    }
}

static void each_kernel(void (*check)(const qn_map_kernel *kernel))
{
    int tested = 0;
    bool picked = false;
    for (int isa = QN_ISA_NONE; isa < QN_ISA_COUNT; isa++) {
        const qn_map_kernel *kernel = qn_map_at((qn_isa)isa);
        if (kernel)
            check(kernel);
        tested += kernel != NULL;
        picked |= kernel == qn_map_pick();
    }
    assert_true(tested >= 1);
    /* The one in use is among them. */
    assert_true(picked);
}

static void check_bounds(const qn_map_kernel *kernel)
{
    int checked = 0;
    for (int op = 0; op < QN_OP_COUNT; op++)
        if (kernel->unary[op]) {
            /* 1 / sqrt(x) has two roundings: its own bound. */
            if (op != QN_OP_RSQRT)
                check_unary(kernel, op);
            checked++;
        }
    assert_true(checked >= 29);
}

static void test_functions_keep_their_bounds(void **state)
{
    (void)state;
    each_kernel(check_bounds);
}

static double exact_of_two(int op, double a, double b)
{
    long double high = fmaxl(a, b), low = fminl(a, b);
    if (op == QN_OP_ARCTAN2)
        return atan2(a, b);
    if (op == QN_OP_POWER)
        return pow(a, b);
    return isinf(high) ? (double)high
                       : (double)(high + log1pl(expl(low - high)));
}

static void check_two(const qn_map_kernel *kernel)
{
    static const int ops[] = {QN_OP_ARCTAN2, QN_OP_LOGADDEXP, QN_OP_POWER};
    enum { N = 999 };
    float a[N], b[N], y[N];
    uint64_t seed = 4;
    for (int op = 0; op < 3; op++)
        for (int scale = -20; scale <= 20; scale++) {
            for (int i = 0; i < N; i++) {
                a[i] = (float)ldexp(test_random(&seed), scale);
                b[i] = (float)ldexp(test_random(&seed), i % 7 - 3);
                if (ops[op] == QN_OP_POWER)
                    a[i] = fabsf(a[i]);
            }
            kernel->binary[ops[op]](y, a, b, N, 1, 1);
            for (int i = 0; i < N; i++) {
                double exact =
                    exact_of_two(ops[op], (double)a[i], (double)b[i]);
                if (ulps(y[i], exact) > bound_of(ops[op])) {
                    print_error("%s(%a, %a): expected %a, found %a\n",
                                qn_op_info_of(ops[op])->name, (double)a[i],
                                (double)b[i], exact, (double)y[i]);
                    fail();
                }
            }
        }
}

static void test_functions_of_two_keep_their_bounds(void **state)
{
    (void)state;
    each_kernel(check_two);
}

/* What an element becomes does not depend on its place, nor on the length. */
static void check_places(const qn_map_kernel *kernel)
{
    enum { N = 200 }; /* more than a part of a loop in double */
    float x[N], y[N], one;
    uint64_t seed = 9;
    for (int i = 0; i < N; i++)
        x[i] = (float)(5 * test_random(&seed));
    for (int op = 0; op < QN_OP_COUNT; op++)
        for (int n = 1; kernel->unary[op] && n <= N; n += 33) {
            kernel->unary[op](y, x, (size_t)n);
            for (int i = 0; i < n; i++) {
                kernel->unary[op](&one, x + i, 1);
                assert_memory_equal(&one, y + i, sizeof one);
            }
        }
}

static void test_places_do_not_matter(void **state)
{
    (void)state;
    each_kernel(check_places);
}

/* ---- nodes ---- */

static const double specials[] = {0.0,    -0.0,     1.0,       -1.0,    0.5,
                                  -2.5,   INFINITY, -INFINITY, NAN,     1e-40,
                                  -1e-40, 65504,    3.3e38,    -3.3e38, 88.7,
                                  -103.5, 0x1p-149, 2.5,       3.5,     1e30};
enum { SPECIALS = sizeof specials / sizeof *specials };

static double value_at(size_t i, uint64_t *seed)
{
    return i < SPECIALS * SPECIALS ? specials[i % SPECIALS]
                                   : 4 * test_random(seed);
}

/* Values of which each special one meets each other one. */
static qn_array *operand(qn_dtype dtype, bool second, const int *shape,
                         int ndim)
{
    uint64_t seed = second ? 2 : 1;
    qn_array *a = array_of(dtype, NULL, shape, ndim);
    for (size_t i = 0; i < a->size; i++) {
        size_t at = second && i < SPECIALS * SPECIALS ? i / SPECIALS : i;
        double value = value_at(at, &seed);
        if (!qn_dtype_is_float(dtype))
            value = floor(test_random(&seed) * 100);
        element_put(place_of(a, i), dtype, value);
    }
    return a;
}

static bool close_to(const qn_array *a, const qn_array *b, double ulp)
{
    for (size_t i = 0; i < a->size; i++) {
        double x = item(a, i), y = item(b, i);
        /* Half types round a value that is off by a few float ulp: at most
         * to the neighbour. */
        double unit =
            a->dtype == QN_FLOAT32 ? 0x1p-23 * ulp : 2 * half_ulp(a->dtype);
        double least = a->dtype == QN_FLOAT16    ? 0x1p-24
                       : a->dtype == QN_BFLOAT16 ? 0x1p-133
                                                 : 0x1p-148;
        if (same_value(x, y))
            continue;
        if (ulp > 0 && fabs(x - y) <= fmax(unit * fabs(y), least))
            continue;
        print_error("element %zu: reference %a, found %a\n", i, y, x);
        return false;
    }
    return true;
}

static qn_array *run(int op, qn_array *a, qn_array *b, qn_dtype dtype)
{
    if (!b)
        return apply(op, NULL, 0, dtype, a->shape, a->ndim, INPUTS(a));
    return apply(op, NULL, 0, dtype, a->shape, a->ndim, INPUTS(a, b));
}

static void compare(int op, qn_array *a, qn_array *b, qn_dtype dtype,
                    double ulp)
{
    use_reference();
    qn_array *expected = run(op, a, b, dtype);
    use_fast();
    qn_array *found = run(op, a, b, dtype);
    if (!close_to(found, expected, ulp)) {
        print_error("%s of %s\n", qn_op_info_of(op)->name,
                    qn_dtype_name(a->dtype));
        fail();
    }
    qn_array_unref(found);
    qn_array_unref(expected);
}

/* Left and right: whole, one scalar, one row for all, one column for all,
 * permuted. */
static qn_array *laid_out(qn_dtype dtype, bool second, int layout)
{
    enum { ROWS = 6, COLUMNS = 301 };
    int shape[] = {ROWS, COLUMNS};
    static const int64_t steps[4][2] = {{COLUMNS, 1}, {0, 0}, {0, 1}, {1, 0}};
    qn_array *a = operand(dtype, second, shape, 2);
    if (layout == 0)
        return a;
    if (layout == 4)
        return strided(a);
    qn_array *view = view_of(a, shape, 2, steps[layout], layout == 1 ? 700 : 0);
    qn_array_unref(a);
    return view;
}

static void test_unary_nodes(void **state)
{
    (void)state;
    const qn_map_kernel *kernel = qn_map_pick();
    for (int op = 0; op < QN_OP_COUNT; op++)
        for (int t = 0; kernel->unary[op] && t < FLOAT_TYPES; t++)
            for (int layout = 0; layout < 5; layout++) {
                qn_array *a = laid_out(float_types[t], false, layout);
                /* The reference is libm, itself within 1 ulp. */
                double ulp = bound_of(op) > 0 ? bound_of(op) + 1 : 0;
                compare(op, a, NULL, a->dtype, ulp);
                qn_array_unref(a);
            }
}

static void test_binary_nodes(void **state)
{
    (void)state;
    const qn_map_kernel *kernel = qn_map_pick();
    int ops = 0;
    for (int op = 0; op < QN_OP_COUNT; op++) {
        bool compares = kernel->compare[op] != NULL;
        if (!compares && !kernel->binary[op])
            continue;
        ops++;
        /* The reference loses digits where the terms cancel: see
         * test_functions_of_two_keep_their_bounds. */
        if (op == QN_OP_LOGADDEXP)
            continue;
        for (int t = 0; t < FLOAT_TYPES; t++)
            for (int layouts = 0; layouts < 25; layouts++) {
                qn_array *a = laid_out(float_types[t], false, layouts / 5);
                qn_array *b = laid_out(float_types[t], true, layouts % 5);
                /* libm's two numbers are within 1 ulp. */
                double ulp = bound_of(op) > 0 ? bound_of(op) + 1 : 0;
                compare(op, a, b, compares ? QN_BOOL : a->dtype, ulp);
                qn_array_unref(a);
                qn_array_unref(b);
            }
    }
    assert_int_equal(ops, 15);
}

static void test_selection(void **state)
{
    (void)state;
    static const qn_dtype types[] = {QN_BOOL,    QN_INT16,   QN_FLOAT16,
                                     QN_FLOAT32, QN_FLOAT64, QN_INT64};
    for (size_t t = 0; t < sizeof types / sizeof *types; t++)
        for (int layouts = 0; layouts < 125; layouts++) {
            qn_array *c = laid_out(QN_BOOL, false, layouts / 25);
            qn_array *x = laid_out(types[t], false, layouts / 5 % 5);
            qn_array *y = laid_out(types[t], true, layouts % 5);
            qn_array *out[2];
            for (int way = 0; way < 2; way++) {
                if (way)
                    use_fast();
                else
                    use_reference();
                out[way] = apply(QN_OP_SELECT, NULL, 0, x->dtype, x->shape,
                                 x->ndim, INPUTS(c, x, y));
            }
            assert_true(same_bits(out[0], out[1]));
            qn_array_unref(out[0]);
            qn_array_unref(out[1]);
            qn_array_unref(c);
            qn_array_unref(x);
            qn_array_unref(y);
        }
}

/* Numbers of every type: extremes, small ones, any bits. */
static qn_array *anything(qn_dtype dtype, bool second, int layout)
{
    enum { ROWS = 5, COLUMNS = 211 };
    int shape[] = {ROWS, COLUMNS};
    uint64_t seed = second ? 12 : 11;
    if (dtype == QN_FLOAT16 || dtype == QN_FLOAT32 || dtype == QN_BFLOAT16)
        return laid_out(dtype, second, layout);
    qn_array *a = array_of(dtype, NULL, shape, 2);
    size_t each = qn_dtype_size(dtype);
    for (size_t i = 0; i < a->size; i++) {
        uint64_t bits = (uint64_t)(test_random(&seed) * 0x1p52) * 0x9e3779b9u;
        uint64_t edges[] = {0,         1,      UINT64_MAX, INT64_MIN,
                            INT64_MAX, 1 << 7, 1 << 15,    1u << 31,
                            0x7fff,    127,    3,          0x7fffffff};
        size_t at = second ? i / 16 % 16 : i % 16;
        char *to = place_of(a, i);
        if (dtype == QN_BOOL) {
            /* Any byte but 0 is true. */
            *(uint8_t *)to = bits >> 40 & 1 ? (uint8_t)(bits | 1) : 0;
        } else if (dtype == QN_FLOAT64 || dtype == QN_COMPLEX64) {
            double x = specials[(at + i) % SPECIALS];
            double y = i % 3 ? 40 * test_random(&seed) : x;
            element_put(to, dtype, y);
            if (dtype == QN_COMPLEX64)
                element_put(to + 4, QN_FLOAT32, test_random(&seed));
        } else {
            bits = at < 12 ? edges[at] : i % 2 ? bits >> 56 : bits;
            memcpy(to, &bits, each);
        }
    }
    return layout ? strided(a) : a;
}

/* The same bits, or NaN both. */
static bool alike(const qn_array *a, const qn_array *b)
{
    size_t each = qn_array_itemsize(a);
    qn_dtype part = a->dtype == QN_COMPLEX64 ? QN_FLOAT32 : a->dtype;
    size_t size = qn_dtype_size(part);
    if (a->size != b->size || a->dtype != b->dtype)
        return false;
    for (size_t i = 0; i < a->size; i++)
        for (size_t at = 0; at < each; at += size) {
            const char *x = (char *)place_of(a, i) + at;
            const char *y = (char *)place_of(b, i) + at;
            bool same =
                qn_dtype_is_float(part)
                    ? same_value(element_get(x, part), element_get(y, part))
                    : !memcmp(x, y, size);
            if (!same) {
                print_error("element %zu: %.17g, not %.17g\n", i,
                            element_get(x, part), element_get(y, part));
                return false;
            }
        }
    return true;
}

static void check_alike(int op, qn_array *a, qn_array *b, qn_dtype dtype)
{
    use_reference();
    qn_array *expected = run(op, a, b, dtype);
    use_fast();
    qn_array *found = run(op, a, b, dtype);
    if (!alike(found, expected)) {
        print_error("%s of %s to %s\n", qn_op_info_of(op)->name,
                    qn_dtype_name(a->dtype), qn_dtype_name(dtype));
        fail();
    }
    qn_array_unref(found);
    qn_array_unref(expected);
}

/* Every operation on every type that `map` has no loop for. */
static void test_loops_of_every_type(void **state)
{
    (void)state;
    const qn_map_kernel *kernel = qn_map_pick();
    int loops = 0;
    for (int op = 0; op < QN_OP_COUNT; op++)
        for (int t = 0; t < QN_DTYPE_COUNT; t++) {
            qn_dtype dtype = (qn_dtype)t;
            bool two = qn_loops_binary((qn_op)op, dtype) != NULL;
            if ((!two && !qn_loops_unary((qn_op)op, dtype)) ||
                (qn_map_type(dtype) >= 0 &&
                 (kernel->unary[op] || kernel->binary[op])))
                continue;
            loops++;
            for (int layout = 0; layout < 3; layout++) {
                qn_array *a = anything(dtype, false, layout & 1);
                qn_array *b = two ? anything(dtype, true, layout >> 1) : NULL;
                check_alike(op, a, b, qn_result_type(qn_op_info_of(op), dtype));
                qn_array_unref(a);
                qn_array_unref(b);
            }
        }
    assert_true(loops > 300);
}

/* Each level's loops, not only those of this processor's best. */
static void test_loops_of_every_level(void **state)
{
    (void)state;
    enum { N = 1000 };
    static uint64_t left[N], right[N], found[N], expected[N];
    const void *in[] = {left, right};
    uint64_t seed = 3;
    for (int i = 0; i < N; i++) {
        left[i] = (uint64_t)(test_random(&seed) * 0x1p52) * 0x9e3779b9u;
        right[i] = i % 2 ? left[i] >> 59 : ~left[i] * 5;
    }
    for (int isa = QN_ISA_NONE; isa < QN_ISA_COUNT; isa++) {
        const qn_loops_kernel *kernel = qn_loops_at((qn_isa)isa);
        for (int op = 0; kernel && op < QN_OP_COUNT; op++)
            for (int t = QN_UINT8; t <= QN_INT64; t++) {
                const qn_op_info *info = qn_op_info_of(op);
                qn_ref_kernel one = NULL, two = NULL;
                if (info->family == QN_FAMILY_UNARY)
                    one = kernel->unary[info->place][t];
                else if (info->family == QN_FAMILY_BINARY)
                    two = kernel->binary[info->place][t];
                if (!one && !two)
                    continue;
                memset(found, 0, sizeof found);
                memset(expected, 0, sizeof expected);
                (one ? one : two)(N, found, in);
                (one ? qn_ref_unary_kernel : qn_ref_binary_kernel)(
                    (qn_op)op, (qn_dtype)t)(N, expected, in);
                assert_memory_equal(found, expected, sizeof found);
            }
    }
}

static void test_casts_of_every_type(void **state)
{
    (void)state;
    for (int from = 0; from < QN_DTYPE_COUNT; from++)
        for (int to = 0; to < QN_DTYPE_COUNT; to++)
            for (int layout = 0; layout < 2; layout++) {
                qn_array *a = anything((qn_dtype)from, false, layout);
                check_alike(QN_OP_ASTYPE, a, NULL, (qn_dtype)to);
                qn_array_unref(a);
            }
}

/* A result that is written around the caches, from pieces that end anywhere. */
static void test_large_outputs(void **state)
{
    (void)state;
    int n = (int)(QN_CPU_STREAM / 2) + 777;
    qn_array *a = operand(QN_BFLOAT16, false, SHAPE(n));
    qn_array *row = array_of(QN_BFLOAT16, NULL, SHAPE(1));
    element_put(place_of(row, 0), QN_BFLOAT16, 3);
    qn_array *all = view_of(row, SHAPE(n), (const int64_t[]){0}, 0);
    check_alike(QN_OP_MULTIPLY, a, all, QN_BFLOAT16);
    check_alike(QN_OP_ASTYPE, a, NULL, QN_INT32);
    qn_array *odd = view_of(a, SHAPE(n - 1), (const int64_t[]){1}, 1);
    check_alike(QN_OP_NEGATIVE, odd, NULL, QN_BFLOAT16);
    qn_array_unref(odd);
    qn_array_unref(all);
    qn_array_unref(row);
    qn_array_unref(a);
}

static void test_conversions(void **state)
{
    (void)state;
    for (int from = 0; from < FLOAT_TYPES; from++)
        for (int to = 0; to < FLOAT_TYPES; to++)
            for (int layout = 0; layout < 5; layout++) {
                qn_array *a = laid_out(float_types[from], false, layout);
                compare(QN_OP_ASTYPE, a, NULL, float_types[to], 0);
                qn_array_unref(a);
            }
}

/* Every float16 and bfloat16, and what rounds to them and between. */
static void check_converters(const qn_map_kernel *kernel)
{
    static float wide[65536];
    static uint16_t all[65536], back[65536];
    for (int i = 0; i < 65536; i++)
        all[i] = (uint16_t)i;
    for (int type = QN_MAP_F16; type <= QN_MAP_BF16; type++) {
        kernel->convert[type][QN_MAP_F32](wide, all, 65536);
        for (int i = 0; i < 65536; i++) {
            float expected = type == QN_MAP_F16 ? qn_f16_to_f32(all[i])
                                                : qn_bf16_to_f32(all[i]);
            assert_true(same_value((double)wide[i], (double)expected));
        }
        for (int step = -3; step <= 3; step++) {
            for (int i = 0; i < 65536; i++)
                wide[i] = float_of_bits((uint32_t)i * 65537u +
                                        (uint32_t)step * 4096u);
            kernel->convert[QN_MAP_F32][type](back, wide, 65536);
            for (int i = 0; i < 65536; i++) {
                bool half = type == QN_MAP_F16;
                uint16_t expected =
                    half ? qn_f32_to_f16(wide[i]) : qn_f32_to_bf16(wide[i]);
                if (isnan(wide[i]) && half)
                    assert_true((back[i] & 0x7fff) > 0x7c00);
                else
                    assert_int_equal(back[i], expected);
            }
        }
    }
}

static void test_converters_round_as_the_scalar_ones(void **state)
{
    (void)state;
    each_kernel(check_converters);
}

static void test_threads_change_no_bit(void **state)
{
    (void)state;
    use_fast();
    qn_array *a = operand(QN_FLOAT32, false, SHAPE(700, 301));
    qn_array *b = operand(QN_BFLOAT16, false, SHAPE(700, 301));
    qn_array *first[3] = {NULL};
    for (int t = 0; t < THREAD_COUNTS; t++) {
        qn_pool_set_threads(thread_counts[t]);
        qn_array *out[3] = {run(QN_OP_TANH, a, NULL, QN_FLOAT32),
                            run(QN_OP_MULTIPLY, a, a, QN_FLOAT32),
                            run(QN_OP_ADD, b, b, QN_BFLOAT16)};
        for (int i = 0; i < 3; i++) {
            if (!first[i])
                first[i] = qn_array_ref(out[i]);
            assert_true(same_bits(first[i], out[i]));
            qn_array_unref(out[i]);
        }
    }
    qn_pool_set_threads(0);
    for (int i = 0; i < 3; i++)
        qn_array_unref(first[i]);
    qn_array_unref(a);
    qn_array_unref(b);
}

/* A chain whose intermediate results nobody else holds is computed in the
 * storage of the first of them. */
static void test_a_dying_input_is_overwritten(void **state)
{
    (void)state;
    use_fast();
    qn_array *a = operand(QN_FLOAT32, true, SHAPE(100, 10)), *mid, *out;
    qn_node_spec spec = {.op = QN_OP_SIGMOID,
                         .stream = test_stream(),
                         .inputs = &a,
                         .ninputs = 1};
    check_status(qn_node_new(&mid, &spec, QN_FLOAT32, a->shape, 2), QN_OK);
    spec.op = QN_OP_MULTIPLY;
    spec.inputs = (qn_array *[]){mid, a};
    spec.ninputs = 2;
    check_status(qn_node_new(&out, &spec, QN_FLOAT32, a->shape, 2), QN_OK);
    qn_array_unref(mid);
    size_t before = qn_memory_active();
    check_status(qn_eval(&out, 1), QN_OK);
    /* One buffer for both nodes. */
    assert_true(qn_memory_active() - before < 2 * qn_array_nbytes(a));
    for (size_t i = 0; i < a->size; i++) {
        float x = (float)item(a, i);
        double s = 1 / (1 + exp(-(double)x)), expected = (double)x * s;
        if (fabsf(x) < 50 && fabsf(x) > 1e-30f)
            assert_true(fabs(item(out, i) - expected) <= 1e-6 * fabs(expected));
    }
    qn_array_unref(a);
    qn_array_unref(out);
}

/* One truth value for runs that are longer than a block. */
static void test_a_condition_that_stands(void **state)
{
    (void)state;
    int n = 40000;
    qn_array *x = operand(QN_FLOAT32, true, SHAPE(n));
    qn_array *y = operand(QN_FLOAT32, true, SHAPE(n));
    for (int truth = 0; truth < 2; truth++) {
        qn_array *one = array_of(QN_BOOL, VALUES(truth), NULL, 0);
        qn_array *all = view_of(one, SHAPE(n), (const int64_t[]){0}, 0);
        use_fast();
        qn_array *out = apply(QN_OP_SELECT, NULL, 0, QN_FLOAT32, SHAPE(n),
                              INPUTS(all, x, y));
        assert_true(same_bits(out, truth ? x : y));
        qn_array_unref(out);
        qn_array_unref(all);
        qn_array_unref(one);
    }
    qn_array_unref(x);
    qn_array_unref(y);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_functions_keep_their_bounds),
        cmocka_unit_test(test_functions_of_two_keep_their_bounds),
        cmocka_unit_test(test_places_do_not_matter),
        cmocka_unit_test(test_unary_nodes),
        cmocka_unit_test(test_binary_nodes),
        cmocka_unit_test(test_selection),
        cmocka_unit_test(test_loops_of_every_type),
        cmocka_unit_test(test_loops_of_every_level),
        cmocka_unit_test(test_casts_of_every_type),
        cmocka_unit_test(test_large_outputs),
        cmocka_unit_test(test_conversions),
        cmocka_unit_test(test_converters_round_as_the_scalar_ones),
        cmocka_unit_test(test_threads_change_no_bit),
        cmocka_unit_test(test_a_dying_input_is_overwritten),
        cmocka_unit_test(test_a_condition_that_stands),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
