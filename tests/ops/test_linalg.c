/* Linear algebra: factors multiplied out again in double, matrices without a
 * result, refused arguments, norms, gradients. */
#include "support/qn_grad.h"

#include "backend/ref/lapack.h"

#include <complex.h>
#include <limits.h>

typedef double _Complex cplx;

/* Element (i, j) of matrix number `which` of a batch. */
static cplx at(const qn_array *a, size_t which, size_t i, size_t j)
{
    size_t m = (size_t)a->shape[a->ndim - 2], n = (size_t)a->shape[a->ndim - 1];
    const void *place = place_of(a, (which * m + i) * n + j);
    if (a->dtype == QN_COMPLEX64)
        return (double)((const float *)place)[0] +
               (double)((const float *)place)[1] * (cplx)I;
    return element_get(place, a->dtype);
}

static double line_at(const qn_array *a, size_t which, size_t i)
{
    return item(a, which * (size_t)a->shape[a->ndim - 1] + i);
}

static size_t rows(const qn_array *a)
{
    return (size_t)a->shape[a->ndim - 2];
}

static size_t columns(const qn_array *a)
{
    return (size_t)a->shape[a->ndim - 1];
}

/* Rounding of the type, for matrices with numbers around 1. */
static double tolerance(qn_dtype dtype)
{
    return dtype == QN_FLOAT64 ? 1e-12 : 4e-6;
}

#define check_close(found, wanted, within)                                     \
    do {                                                                       \
        cplx found_ = (found), wanted_ = (wanted);                             \
        if (!(cabs(found_ - wanted_) <= (within))) {                           \
            print_error("expected %.9g%+.9gi, found %.9g%+.9gi\n",             \
                        creal(wanted_), cimag(wanted_), creal(found_),         \
                        cimag(found_));                                        \
            fail();                                                            \
        }                                                                      \
    } while (0)

/* Two matrices in a batch, and one stored column by column. */
static qn_array *matrices(qn_dtype dtype, int m, int n, uint64_t seed)
{
    return random_parts(dtype, seed, SHAPE(2, m, n));
}

/* a a^H plus the identity. */
static qn_array *positive(qn_dtype dtype, int n, uint64_t seed)
{
    qn_array *a = matrices(dtype, n, n, seed);
    BUILD(turned, qn_op_swapaxes(&turned, a, 1, 2, S));
    BUILD(other, qn_op_unary(&other, QN_OP_CONJUGATE, turned, S));
    BUILD(product, qn_op_matmul(&product, a, other, S));
    BUILD(one, qn_op_eye(&one, n, n, 0, dtype, S));
    BUILD(sum, qn_op_binary(&sum, QN_OP_ADD, product, one, S));
    check_status(qn_eval(&sum, 1), QN_OK);
    return sum;
}

static const qn_dtype reals[] = {QN_FLOAT32, QN_FLOAT64};
static const qn_dtype all[] = {QN_FLOAT32, QN_FLOAT64, QN_COMPLEX64};
static const int sizes[] = {0, 1, 2, 3, 5, 17};
enum { SIZES = 6 };

static void eval_all(qn_array *const *arrays, int count)
{
    for (int i = 0; i < count; i++)
        keep(arrays[i]);
    check_status(qn_eval(arrays, (size_t)count), QN_OK);
}

static void test_cholesky_multiplies_out(void **state)
{
    (void)state;
    for (int t = 0; t < 2; t++)
        for (int k = 0; k < SIZES; k++)
            for (int upper = 0; upper < 2; upper++) {
                qn_array *a = positive(reals[t], sizes[k], 1);
                BUILD(f, qn_op_cholesky(&f, a, upper, S));
                check_status(qn_eval(&f, 1), QN_OK);
                size_t n = (size_t)sizes[k];
                for (size_t w = 0; w < 2; w++)
                    for (size_t i = 0; i < n; i++)
                        for (size_t j = 0; j < n; j++) {
                            cplx sum = 0;
                            for (size_t l = 0; l < n; l++)
                                sum += upper ? at(f, w, l, i) * at(f, w, l, j)
                                             : at(f, w, i, l) * at(f, w, j, l);
                            check_close(at(a, w, i, j), sum,
                                        10 * tolerance(reals[t]));
                            if (upper ? i > j : i < j)
                                assert_true(at(f, w, i, j) == 0);
                        }
            }
}

static void test_qr_multiplies_out(void **state)
{
    (void)state;
    static const int shapes[][2] = {{3, 3}, {5, 2}, {2, 5}, {1, 4},
                                    {0, 3}, {3, 0}, {20, 7}};
    for (int t = 0; t < 2; t++)
        for (int k = 0; k < 7; k++) {
            int m = shapes[k][0], n = shapes[k][1], least = m < n ? m : n;
            qn_array *a = matrices(reals[t], m, n, 2), *qr[2];
            check_status(qn_op_qr(qr, a, S), QN_OK);
            check_type(qr[0], reals[t], 2, m, least);
            check_type(qr[1], reals[t], 2, least, n);
            eval_all(qr, 2);
            for (size_t w = 0; w < 2; w++)
                for (size_t i = 0; i < rows(a); i++)
                    for (size_t j = 0; j < columns(a); j++) {
                        cplx sum = 0;
                        for (size_t l = 0; l < (size_t)least; l++)
                            sum += at(qr[0], w, i, l) * at(qr[1], w, l, j);
                        check_close(at(a, w, i, j), sum, tolerance(reals[t]));
                        if (i > j && i < (size_t)least)
                            assert_true(at(qr[1], w, i, j) == 0);
                    }
            for (size_t i = 0; i < (size_t)least; i++)
                for (size_t j = 0; j < (size_t)least; j++) {
                    cplx sum = 0;
                    for (size_t l = 0; l < (size_t)m; l++)
                        sum += at(qr[0], 1, l, i) * at(qr[0], 1, l, j);
                    check_close(sum, i == j, tolerance(reals[t]));
                }
        }
}

static void test_lu_multiplies_out(void **state)
{
    (void)state;
    static const int shapes[][2] = {{3, 3}, {5, 2}, {2, 5},  {1, 1},
                                    {0, 0}, {0, 2}, {17, 17}};
    for (int t = 0; t < 2; t++)
        for (int k = 0; k < 7; k++) {
            int m = shapes[k][0], n = shapes[k][1], least = m < n ? m : n;
            qn_array *a = matrices(reals[t], m, n, 3), *lu[3], *both[2];
            check_status(qn_op_lu(lu, a, S), QN_OK);
            check_type(lu[0], QN_UINT32, 2, m);
            check_type(lu[1], reals[t], 2, m, least);
            check_type(lu[2], reals[t], 2, least, n);
            eval_all(lu, 3);
            check_status(qn_op_lu_factor(both, a, S), QN_OK);
            check_type(both[1], QN_UINT32, 2, least);
            eval_all(both, 2);
            for (size_t w = 0; w < 2; w++)
                for (size_t i = 0; i < rows(a); i++) {
                    size_t row = (size_t)line_at(lu[0], w, i);
                    for (size_t j = 0; j < columns(a); j++) {
                        cplx sum = 0;
                        for (size_t l = 0; l < (size_t)least; l++)
                            sum += at(lu[1], w, row, l) * at(lu[2], w, l, j);
                        check_close(at(a, w, i, j), sum, tolerance(reals[t]));
                        assert_true(
                            at(both[0], w, i, j) ==
                            (i > j ? at(lu[1], w, i, j) : at(lu[2], w, i, j)));
                    }
                }
        }
}

static void test_lu_of_a_singular_matrix(void **state)
{
    (void)state;
    qn_array *a = keep(array_of(QN_FLOAT32, VALUES(1, 2, 2, 4), SHAPE(2, 2))),
             *lu[3];
    check_status(qn_op_lu(lu, a, S), QN_OK);
    eval_all(lu, 3);
    check_values(lu[0], 1, 0);
    check_values(lu[1], 1, 0, 0.5, 1);
    check_values(lu[2], 2, 4, 0, 0);
}

static void test_svd_multiplies_out(void **state)
{
    (void)state;
    static const int shapes[][2] = {{3, 3}, {5, 2}, {2, 5},  {1, 1},
                                    {0, 2}, {2, 0}, {12, 30}};
    for (int t = 0; t < 3; t++)
        for (int k = 0; k < 7; k++) {
            int m = shapes[k][0], n = shapes[k][1], least = m < n ? m : n;
            qn_dtype real = all[t] == QN_COMPLEX64 ? QN_FLOAT32 : all[t];
            qn_array *a = matrices(all[t], m, n, 4), *usv[3], *values;
            check_status(qn_op_svd(usv, a, true, S), QN_OK);
            check_type(usv[0], all[t], 2, m, m);
            check_type(usv[1], real, 2, least);
            check_type(usv[2], all[t], 2, n, n);
            eval_all(usv, 3);
            check_status(qn_op_svd(&values, a, false, S), QN_OK);
            eval_all(&values, 1);
            for (size_t w = 0; w < 2; w++)
                for (size_t i = 0; i < rows(a); i++)
                    for (size_t j = 0; j < columns(a); j++) {
                        cplx sum = 0;
                        for (size_t l = 0; l < (size_t)least; l++)
                            sum += at(usv[0], w, i, l) * line_at(usv[1], w, l) *
                                   at(usv[2], w, l, j);
                        check_close(at(a, w, i, j), sum, 3 * tolerance(real));
                    }
            for (size_t i = 0; i < (size_t)n; i++)
                for (size_t j = 0; j < (size_t)n; j++) {
                    cplx sum = 0;
                    for (size_t l = 0; l < (size_t)n; l++)
                        sum += at(usv[2], 1, i, l) * conj(at(usv[2], 1, j, l));
                    check_close(sum, i == j, tolerance(real));
                }
            for (size_t l = 0; l < (size_t)least; l++) {
                check_close(line_at(values, 1, l), line_at(usv[1], 1, l),
                            tolerance(real));
                assert_true(line_at(values, 1, l) >= 0);
                if (l)
                    assert_true(line_at(values, 1, l) <=
                                line_at(values, 1, l - 1));
            }
        }
}

static void test_eigenvectors_of_symmetric_matrices(void **state)
{
    (void)state;
    for (int t = 0; t < 3; t++)
        for (int k = 0; k < SIZES; k++)
            for (int upper = 0; upper < 2; upper++) {
                qn_dtype real = all[t] == QN_COMPLEX64 ? QN_FLOAT32 : all[t];
                qn_array *a = positive(all[t], sizes[k], 5), *pair[2];
                size_t n = (size_t)sizes[k];
                /* The other triangle is not looked at. */
                for (size_t i = 0; i < n; i++)
                    for (size_t j = 0; j < i; j++)
                        element_put(place_of(a, upper ? i * n + j : j * n + i),
                                    all[t], 77);
                const char *half = upper ? "U" : "L";
                check_status(qn_op_eigh(pair, a, half, true, S), QN_OK);
                check_type(pair[0], real, 2, sizes[k]);
                check_type(pair[1], all[t], 2, sizes[k], sizes[k]);
                eval_all(pair, 2);
                for (size_t j = 0; j < n; j++)
                    for (size_t i = 0; i < n; i++) {
                        cplx sum = 0;
                        for (size_t l = 0; l < n; l++)
                            sum += (upper == (i < l) || i == l
                                        ? at(a, 0, i, l)
                                        : conj(at(a, 0, l, i))) *
                                   at(pair[1], 0, l, j);
                        check_close(
                            sum, line_at(pair[0], 0, j) * at(pair[1], 0, i, j),
                            20 * tolerance(real));
                    }
                for (size_t j = 1; j < n; j++)
                    assert_true(line_at(pair[0], 0, j) >=
                                line_at(pair[0], 0, j - 1));
                qn_array *values;
                check_status(qn_op_eigh(&values, a, half, false, S), QN_OK);
                eval_all(&values, 1);
                for (size_t j = 0; j < n; j++)
                    check_close(line_at(values, 0, j), line_at(pair[0], 0, j),
                                20 * tolerance(real));
            }
}

static void test_eigenvectors_of_any_matrix(void **state)
{
    (void)state;
    for (int t = 0; t < 3; t++)
        for (int k = 0; k < SIZES; k++) {
            qn_array *a = matrices(all[t], sizes[k], sizes[k], 6), *pair[2];
            size_t n = (size_t)sizes[k];
            check_status(qn_op_eig(pair, a, true, S), QN_OK);
            check_type(pair[0], QN_COMPLEX64, 2, sizes[k]);
            check_type(pair[1], QN_COMPLEX64, 2, sizes[k], sizes[k]);
            eval_all(pair, 2);
            for (size_t w = 0; w < 2; w++)
                for (size_t j = 0; j < n; j++) {
                    const float *value = place_of(pair[0], w * n + j);
                    cplx lambda = (double)value[0] + (double)value[1] * (cplx)I;
                    double length = 0;
                    for (size_t i = 0; i < n; i++) {
                        cplx sum = 0;
                        for (size_t l = 0; l < n; l++)
                            sum += at(a, w, i, l) * at(pair[1], w, l, j);
                        check_close(sum, lambda * at(pair[1], w, i, j), 1e-5);
                        length += pow(cabs(at(pair[1], w, i, j)), 2);
                    }
                    check_close(length, 1, 1e-5);
                }
        }
}

static void test_inverses_and_solutions(void **state)
{
    (void)state;
    for (int t = 0; t < 2; t++)
        for (int k = 0; k < SIZES; k++) {
            qn_array *a = positive(reals[t], sizes[k], 7);
            qn_array *b = matrices(reals[t], sizes[k], 3, 8);
            size_t n = (size_t)sizes[k];
            double within = 100 * tolerance(reals[t]);
            BUILD(inverse, qn_op_inv(&inverse, a, S));
            BUILD(x, qn_op_solve(&x, a, b, S));
            check_status(qn_eval(&inverse, 1), QN_OK);
            check_status(qn_eval(&x, 1), QN_OK);
            for (size_t w = 0; w < 2; w++)
                for (size_t i = 0; i < n; i++) {
                    for (size_t j = 0; j < n; j++) {
                        cplx sum = 0;
                        for (size_t l = 0; l < n; l++)
                            sum += at(a, w, i, l) * at(inverse, w, l, j);
                        check_close(sum, i == j, within);
                    }
                    for (size_t j = 0; j < 3; j++) {
                        cplx sum = 0;
                        for (size_t l = 0; l < n; l++)
                            sum += at(a, w, i, l) * at(x, w, l, j);
                        check_close(sum, at(b, w, i, j), within);
                    }
                }
            for (int upper = 0; upper < 2; upper++) {
                BUILD(part, qn_op_tri_inv(&part, a, upper, S));
                BUILD(y, qn_op_solve_triangular(&y, a, b, upper, S));
                check_status(qn_eval(&part, 1), QN_OK);
                check_status(qn_eval(&y, 1), QN_OK);
                for (size_t i = 0; i < n; i++)
                    for (size_t j = 0; j < 3; j++) {
                        cplx sum = 0, direct = 0;
                        for (size_t l = 0; l < n; l++) {
                            sum += (upper ? l >= i : l <= i)
                                       ? at(a, 1, i, l) * at(y, 1, l, j)
                                       : 0;
                            direct += at(part, 1, i, l) * at(b, 1, l, j);
                            if (upper ? l < i : l > i)
                                assert_true(at(part, 1, i, l) == 0);
                        }
                        check_close(sum, at(b, 1, i, j), within);
                        check_close(direct, at(y, 1, i, j), within);
                    }
            }
        }
}

static void test_solutions_broadcast(void **state)
{
    (void)state;
    qn_array *a = positive(QN_FLOAT32, 3, 9);
    qn_array *one = keep(random_array(QN_FLOAT64, 1, 10, SHAPE(3)));
    qn_array *some = keep(random_array(QN_FLOAT32, 1, 11, SHAPE(5, 1, 3, 4)));
    BUILD(vector, qn_op_solve(&vector, a, one, S));
    check_type(vector, QN_FLOAT64, 2, 3);
    BUILD(matrix, qn_op_solve(&matrix, a, some, S));
    check_type(matrix, QN_FLOAT32, 5, 2, 3, 4);
    check_status(qn_eval(&matrix, 1), QN_OK);
    check_status(qn_eval(&vector, 1), QN_OK);
    for (size_t w = 0; w < 10; w++)
        for (size_t i = 0; i < 3; i++) {
            cplx sum = 0;
            for (size_t l = 0; l < 3; l++)
                sum += at(a, w % 2, i, l) * at(matrix, w, l, 3);
            check_close(sum, at(some, w / 2, i, 3), 1e-4);
        }
    for (size_t i = 0; i < 3; i++) {
        cplx sum = 0;
        for (size_t l = 0; l < 3; l++)
            sum += at(a, 1, i, l) * line_at(vector, 1, l);
        check_close(sum, item(one, i), 1e-9);
    }
}

static void test_pseudo_inverse(void **state)
{
    (void)state;
    for (int t = 0; t < 2; t++) {
        qn_array *a = matrices(reals[t], 5, 3, 12);
        BUILD(x, qn_op_pinv(&x, a, S));
        check_type(x, reals[t], 2, 3, 5);
        check_status(qn_eval(&x, 1), QN_OK);
        for (size_t i = 0; i < 3; i++)
            for (size_t j = 0; j < 3; j++) {
                cplx sum = 0;
                for (size_t l = 0; l < 5; l++)
                    sum += at(x, 1, i, l) * at(a, 1, l, j);
                check_close(sum, i == j, 100 * tolerance(reals[t]));
            }
    }
    /* Of rank 1: the transpose over the squared length. */
    qn_array *a = keep(array_of(QN_FLOAT64, VALUES(1, 2, 2, 4), SHAPE(2, 2)));
    BUILD(x, qn_op_pinv(&x, a, S));
    check_near(x, 1e-12, 0.04, 0.08, 0.08, 0.16);
    BUILD(zero, qn_op_full_value(&zero, (int[]){2, 3}, 2, 0, QN_FLOAT32, S));
    BUILD(none, qn_op_pinv(&none, zero, S));
    check_values(none, 0, 0, 0, 0, 0, 0);
    BUILD(empty, qn_op_full_value(&empty, (int[]){0, 3}, 2, 0, QN_FLOAT32, S));
    BUILD(nothing, qn_op_pinv(&nothing, empty, S));
    check_type(nothing, QN_FLOAT32, 3, 0);
}

static void test_inverse_from_a_cholesky_factor(void **state)
{
    (void)state;
    for (int upper = 0; upper < 2; upper++) {
        qn_array *a = positive(QN_FLOAT64, 4, 13);
        BUILD(f, qn_op_cholesky(&f, a, upper, S));
        BUILD(x, qn_op_cholesky_inv(&x, f, upper, S));
        BUILD(y, qn_op_inv(&y, a, S));
        check_status(qn_eval(&x, 1), QN_OK);
        check_status(qn_eval(&y, 1), QN_OK);
        for (size_t i = 0; i < x->size; i++)
            assert_true(fabs(item(x, i) - item(y, i)) < 1e-10);
    }
}

/* The determinant by permutations. */
static double slow_det(const qn_array *a, size_t w, size_t n)
{
    double sum = 0;
    size_t order[5] = {0, 1, 2, 3, 4}, count = 1;
    for (size_t i = 2; i <= n; i++)
        count *= i;
    for (size_t number = 0; number < count; number++) {
        size_t rest = number, left[5], size = n;
        double product = 1;
        memcpy(left, order, sizeof left);
        for (size_t i = 0; i < n; i++) {
            size_t pick = rest % size;
            rest /= size;
            product *= creal(at(a, w, i, left[pick])) * (pick % 2 ? -1 : 1);
            memmove(left + pick, left + pick + 1,
                    (--size - pick) * sizeof *left);
        }
        sum += product;
    }
    return sum;
}

static void test_determinants(void **state)
{
    (void)state;
    for (int t = 0; t < 2; t++)
        for (int n = 0; n <= 5; n++) {
            qn_array *a = matrices(reals[t], n, n, 14), *both[2];
            BUILD(det, qn_op_det(&det, a, S));
            check_type(det, reals[t], 2);
            check_status(qn_eval(&det, 1), QN_OK);
            check_status(qn_op_slogdet(both, a, S), QN_OK);
            eval_all(both, 2);
            for (size_t w = 0; w < 2; w++) {
                double wanted = slow_det(a, w, (size_t)n);
                check_close(item(det, w), wanted, tolerance(reals[t]));
                check_close(item(both[0], w) * exp(item(both[1], w)), wanted,
                            tolerance(reals[t]));
            }
        }
    qn_array *whole = keep(array_of(QN_INT8, VALUES(1, 2, 3, 4), SHAPE(2, 2)));
    BUILD(det, qn_op_det(&det, whole, S));
    check_no_shape(det, QN_FLOAT32);
    check_near(det, 1e-6, -2);
    qn_array *half =
        keep(array_of(QN_FLOAT16, VALUES(2, 0, 0, 3), SHAPE(2, 2)));
    BUILD(small, qn_op_det(&small, half, S));
    check_no_shape(small, QN_FLOAT16);
    check_values(small, 6);
    qn_array *flat =
        keep(array_of(QN_FLOAT32, VALUES(1, 2, 2, 4), SHAPE(2, 2)));
    qn_array *both[2];
    check_status(qn_op_slogdet(both, flat, S), QN_OK);
    eval_all(both, 2);
    check_values(both[0], 0);
    check_values(both[1], -INFINITY);
}

static void test_strided_matrices(void **state)
{
    (void)state;
    qn_array *a = positive(QN_FLOAT32, 4, 15);
    qn_array *same = keep(strided(array_of(QN_FLOAT32, NULL, SHAPE(2, 4, 4))));
    for (size_t i = 0; i < a->size; i++)
        element_put(place_of(same, i), QN_FLOAT32, item(a, i));
    BUILD(x, qn_op_inv(&x, a, S));
    BUILD(y, qn_op_inv(&y, same, S));
    check_status(qn_eval(&x, 1), QN_OK);
    check_status(qn_eval(&y, 1), QN_OK);
    for (size_t i = 0; i < x->size; i++)
        assert_true(item(x, i) == item(y, i));
}

/* ---- no result ---- */

#define NO_RESULT(part, call)                                                  \
    do {                                                                       \
        qn_array *made[3] = {NULL, NULL, NULL};                                \
        check_status(call, QN_OK);                                             \
        for (int i = 0; i < 3; i++)                                            \
            if (made[i])                                                       \
                keep(made[i]);                                                 \
        check_error(qn_eval(made, 1), QN_E_ARG, part);                         \
    } while (0)

static void test_matrices_without_a_result(void **state)
{
    (void)state;
    qn_array *flat =
        keep(array_of(QN_FLOAT32, VALUES(1, 2, 2, 4), SHAPE(2, 2)));
    qn_array *edge =
        keep(array_of(QN_FLOAT32, VALUES(1, 2, 2, 0), SHAPE(2, 2)));
    qn_array *b = LINE(QN_FLOAT32, 1, 2);
    NO_RESULT("[linalg::inv] The matrix is singular", qn_op_inv(made, flat, S));
    NO_RESULT("[linalg::inv] The matrix is singular",
              qn_op_tri_inv(made, edge, true, S));
    NO_RESULT("[linalg::solve] The matrix is singular",
              qn_op_solve(made, flat, b, S));
    NO_RESULT("[linalg::solve] The matrix is singular",
              qn_op_solve_triangular(made, edge, b, false, S));
    NO_RESULT("[linalg::cholesky] The matrix is not positive definite",
              qn_op_cholesky(made, edge, false, S));
}

/* NaN stops LAPACK's iterations, and some versions of it the process. */
static void test_what_is_not_finite(void **state)
{
    (void)state;
    double bad[] = {NAN, INFINITY, -INFINITY};
    for (int t = 0; t < 3; t++)
        for (int k = 0; k < 3; k++) {
            qn_array *a =
                keep(array_of(all[t], VALUES(1, bad[k], 0, 1), SHAPE(2, 2)));
            NO_RESULT("NaN or infinite", qn_op_svd(made, a, true, S));
            NO_RESULT("NaN or infinite", qn_op_svd(made, a, false, S));
            NO_RESULT("NaN or infinite", qn_op_eig(made, a, true, S));
            NO_RESULT("NaN or infinite", qn_op_eigh(made, a, "U", true, S));
        }
    qn_array *a = keep(array_of(QN_FLOAT32, VALUES(NAN, 2, 1, 2), SHAPE(2, 2)));
    BUILD(x, qn_op_inv(&x, a, S));
    check_values(x, NAN, NAN, NAN, NAN);
}

static void test_refusals(void **state)
{
    (void)state;
    qn_array *line = LINE(QN_FLOAT32, 1, 2);
    qn_array *wide = counted(QN_FLOAT32, SHAPE(2, 3));
    qn_array *whole = counted(QN_INT32, SHAPE(2, 2));
    qn_array *complex_one = counted(QN_COMPLEX64, SHAPE(2, 2));
    qn_array *square = counted(QN_FLOAT32, SHAPE(2, 2)), *two[3];
    REFUSE("[linalg::cholesky]", qn_op_cholesky(&refused, line, false, S));
    REFUSE("[linalg::cholesky]", qn_op_cholesky(&refused, wide, false, S));
    REFUSE("[linalg::cholesky]", qn_op_cholesky(&refused, whole, false, S));
    REFUSE("complex64", qn_op_inv(&refused, complex_one, S));
    REFUSE("[linalg::tri_inv]", qn_op_tri_inv(&refused, wide, false, S));
    REFUSE("[linalg::cholesky_inv]",
           qn_op_cholesky_inv(&refused, wide, false, S));
    REFUSE("[linalg::pinv]", qn_op_pinv(&refused, whole, S));
    REFUSE("[linalg::det]", qn_op_det(&refused, wide, S));
    REFUSE("complex64", qn_op_det(&refused, complex_one, S));
    REFUSE("[linalg::eigvals]", qn_op_eig(&refused, wide, false, S));
    REFUSE("UPLO", qn_op_eigh(&refused, square, "l", false, S));
    REFUSE("UPLO", qn_op_eigh(&refused, square, "", false, S));
    REFUSE("[linalg::solve]", qn_op_solve(&refused, wide, line, S));
    REFUSE("[linalg::solve]",
           qn_op_solve(&refused, square, counted(QN_FLOAT32, SHAPE(3)), S));
    REFUSE("[linalg::solve]",
           qn_op_solve(&refused, square, scalar_array(QN_FLOAT32, 1), S));
    REFUSE("[linalg::solve]", qn_op_solve(&refused, whole, whole, S));
    check_error(qn_op_qr(two, line, S), QN_E_ARG, "[linalg::qr]");
    check_error(qn_op_svd(two, whole, true, S), QN_E_ARG, "[linalg::svd]");
    check_error(qn_op_lu(two, line, S), QN_E_ARG, "[linalg::lu]");
    check_error(qn_op_slogdet(two, wide, S), QN_E_ARG, "[linalg::slogdet]");
}

static void test_a_library_that_is_not_there(void **state)
{
    (void)state;
    assert_null(qn_lapack_load("libquern-nothing.so.99"));
    assert_non_null(strstr(qn_error_text(), "libquern-nothing.so.99"));
    /* One that is there and is another. */
    assert_null(qn_lapack_load("libc.so.6"));
    assert_non_null(strstr(qn_error_text(), "dpotrf_"));
}

/* ---- norms and products ---- */

static void test_norms_of_vectors(void **state)
{
    (void)state;
    qn_array *x =
        keep(array_of(QN_FLOAT32, VALUES(1, -2, 0, 4, 5, -7), SHAPE(2, 3)));
    const double orders[] = {0, 1, 2, 3, -1, INFINITY, -INFINITY, 0.5};
    for (int k = 0; k < 8; k++) {
        double p = orders[k], wanted[2];
        for (size_t i = 0; i < 2; i++) {
            double sum = 0, most = 0, least = INFINITY;
            for (size_t j = 0; j < 3; j++) {
                double size = fabs(item(x, i * 3 + j));
                sum += p ? pow(size, p) : size != 0;
                most = fmax(most, size);
                least = fmin(least, size);
            }
            wanted[i] = isinf(p) ? (p > 0 ? most : least)
                        : p      ? pow(sum, 1 / p)
                                 : sum;
        }
        BUILD(y, qn_op_norm(&y, x, p, (int[]){-1}, 1, false, S));
        check_type(y, QN_FLOAT32, 2);
        check_near(y, 1e-5, wanted[0], wanted[1]);
        BUILD(kept, qn_op_norm(&kept, x, p, (int[]){1}, 1, true, S));
        check_type(kept, QN_FLOAT32, 2, 1);
    }
}

static void test_norms_of_matrices(void **state)
{
    (void)state;
    double values[] = {1, -2, 0, 4, 5, -7};
    qn_array *x = keep(array_of(QN_FLOAT64, values, SHAPE(2, 3)));
    qn_array *wide = keep(array_of(QN_FLOAT64, values, SHAPE(2, 1, 3)));
    qn_array *s;
    check_status(qn_op_svd(&s, x, false, S), QN_OK);
    eval_all(&s, 1);
    const double orders[] = {1, -1, INFINITY, -INFINITY, 2, -2};
    const double wanted[] = {7, 5, 16, 3, item(s, 0), item(s, 1)};
    for (int k = 0; k < 6; k++) {
        BUILD(y, qn_op_norm(&y, x, orders[k], NULL, QN_ALL_AXES, false, S));
        check_no_shape(y, QN_FLOAT64);
        check_near(y, 1e-12, wanted[k]);
        BUILD(z, qn_op_norm(&z, wide, orders[k], (int[]){0, -1}, 2, true, S));
        check_type(z, QN_FLOAT64, 1, 1, 1);
        check_near(z, 1e-12, wanted[k]);
    }
    BUILD(nuclear,
          qn_op_norm_matrix(&nuclear, x, "nuc", NULL, QN_ALL_AXES, false, S));
    check_near(nuclear, 1e-12, item(s, 0) + item(s, 1));
    BUILD(root, qn_op_norm_matrix(&root, x, "fro", (int[]){1, 0}, 2, true, S));
    check_type(root, QN_FLOAT64, 1, 1);
    check_near(root, 1e-12, sqrt(95));
    BUILD(plain, qn_op_norm_l2(&plain, wide, NULL, QN_ALL_AXES, false, S));
    check_near(plain, 1e-12, sqrt(95));
    BUILD(sizes_only, qn_op_norm_l2(&sizes_only, LINE(QN_FLOAT32, -3, 2), NULL,
                                    0, false, S));
    check_values(sizes_only, 3, 2);
    BUILD(wholes, qn_op_norm_l2(&wholes, LINE(QN_INT8, 100, 0, -100), NULL,
                                QN_ALL_AXES, false, S));
    check_near(wholes, 1e-4, sqrt(20000));
    REFUSE("order 3", qn_op_norm(&refused, x, 3, NULL, QN_ALL_AXES, false, S));
    REFUSE("order nan",
           qn_op_norm(&refused, x, NAN, NULL, QN_ALL_AXES, false, S));
    REFUSE("found 3",
           qn_op_norm(&refused, wide, 1, NULL, QN_ALL_AXES, false, S));
    REFUSE("[linalg::norm]",
           qn_op_norm(&refused, x, 1, (int[]){2}, 1, false, S));
    REFUSE("[linalg::norm]",
           qn_op_norm(&refused, x, 1, (int[]){0, -2}, 2, false, S));
    REFUSE("\"zzz\"",
           qn_op_norm_matrix(&refused, x, "zzz", NULL, QN_ALL_AXES, false, S));
    REFUSE("over two axes",
           qn_op_norm_matrix(&refused, x, "fro", (int[]){0}, 1, false, S));
}

static void test_complex_norms(void **state)
{
    (void)state;
    qn_array *x = keep(array_of(QN_COMPLEX64, VALUES(3, 0), SHAPE(2)));
    ((float *)place_of(x, 0))[1] = 4;
    ((float *)place_of(x, 1))[1] = 1;
    BUILD(plain, qn_op_norm_l2(&plain, x, NULL, QN_ALL_AXES, false, S));
    check_no_shape(plain, QN_FLOAT32);
    check_near(plain, 1e-6, sqrt(26));
    BUILD(largest,
          qn_op_norm(&largest, x, INFINITY, NULL, QN_ALL_AXES, false, S));
    check_no_shape(largest, QN_COMPLEX64);
    check_near(largest, 1e-6, 5);
}

static void test_cross_products(void **state)
{
    (void)state;
    qn_array *a = LINE(QN_FLOAT32, 1, 2, 3), *b = LINE(QN_INT8, 4, 5, 6);
    BUILD(three, qn_op_cross(&three, a, b, -1, S));
    check_type(three, QN_FLOAT32, 3);
    check_values(three, -3, 6, -3);
    BUILD(mixed, qn_op_cross(&mixed, LINE(QN_FLOAT32, 1, 2), a, 0, S));
    check_values(mixed, 6, -3, 0);
    BUILD(flat, qn_op_cross(&flat, LINE(QN_FLOAT32, 1, 2),
                            LINE(QN_FLOAT32, 3, 4), 0, S));
    check_values(flat, 0, 0, -2);
    qn_array *some = counted(QN_FLOAT32, SHAPE(4, 3));
    BUILD(wide, qn_op_cross(&wide, some, a, -1, S));
    check_type(wide, QN_FLOAT32, 4, 3);
    BUILD(none, qn_op_cross(&none, counted(QN_FLOAT32, SHAPE(0, 3)), a, -1, S));
    check_type(none, QN_FLOAT32, 0, 3);
    REFUSE("[linalg::cross]",
           qn_op_cross(&refused, LINE(QN_FLOAT32, 1), a, -1, S));
    REFUSE("[linalg::cross]", qn_op_cross(&refused, some, a, 0, S));
    REFUSE("[linalg::cross]", qn_op_cross(&refused, a, a, 1, S));
    REFUSE("[linalg::cross]",
           qn_op_cross(&refused, scalar_array(QN_FLOAT32, 1), a, -1, S));
}

/* ---- gradients ---- */

/* What is built from a matrix: `count` outputs of one node. */
typedef int builder(qn_array **outs, qn_array *x);

static double weighted(builder *build, qn_array *x, qn_array *const *cots)
{
    qn_array *outs[3] = {NULL, NULL, NULL};
    double sum = 0;
    int count = build(outs, x);
    for (int i = 0; i < count; i++)
        if (cots[i]->dtype == outs[i]->dtype)
            sum += inner(outs[i], cots[i]);
    for (int i = 0; i < 3; i++)
        qn_array_unref(outs[i]);
    return sum;
}

/* Against differences of the outputs; `symmetric` changes both triangles. */
static void check_gradient(builder *build, qn_array *x, bool symmetric)
{
    enum { N = 4 };
    qn_array *outs[3], *cots[3], *grad[4];
    int count = build(outs, x);
    for (int i = 0; i < count; i++) {
        keep(outs[i]);
        cots[i] = random_parts(outs[i]->dtype, 20 + (uint64_t)i, outs[i]->shape,
                               outs[i]->ndim);
    }
    gradients(grad, outs, cots);
    check_status(qn_eval(grad, 1), QN_OK);
    double step = 1e-6;
    for (size_t i = 0; i < x->size; i++) {
        double values[2 * N * N], size[2], wanted;
        size_t row = i / N % N, column = i % N;
        size_t mirror = i - row * N - column + column * N + row;
        for (int side = 0; side < 2; side++) {
            for (size_t j = 0; j < x->size; j++)
                values[j] = item(x, j);
            values[i] += side ? -step : step;
            if (symmetric && mirror != i)
                values[mirror] += side ? -step : step;
            qn_array *moved = array_of(x->dtype, values, x->shape, x->ndim);
            size[side] = weighted(build, moved, cots);
            qn_array_unref(moved);
        }
        wanted = (size[0] - size[1]) / (2 * step);
        double found = item(grad[0], i);
        if (symmetric && mirror != i)
            found += item(grad[0], mirror);
        check_close(found, wanted, 1e-6 * (1 + fabs(wanted)));
    }
}

static int build_inv(qn_array **outs, qn_array *x)
{
    check_status(qn_op_inv(outs, x, S), QN_OK);
    return 1;
}
static int build_lower_inv(qn_array **outs, qn_array *x)
{
    check_status(qn_op_tri_inv(outs, x, false, S), QN_OK);
    return 1;
}
static int build_upper_inv(qn_array **outs, qn_array *x)
{
    check_status(qn_op_tri_inv(outs, x, true, S), QN_OK);
    return 1;
}
static int build_cholesky(qn_array **outs, qn_array *x)
{
    check_status(qn_op_cholesky(outs, x, false, S), QN_OK);
    return 1;
}
static int build_upper_cholesky(qn_array **outs, qn_array *x)
{
    check_status(qn_op_cholesky(outs, x, true, S), QN_OK);
    return 1;
}
static int build_lu(qn_array **outs, qn_array *x)
{
    check_status(qn_op_lu_parts(outs, x, S), QN_OK);
    return 3;
}
static int build_svd(qn_array **outs, qn_array *x)
{
    check_status(qn_op_svd(outs, x, false, S), QN_OK);
    return 1;
}
static int build_eigvalsh(qn_array **outs, qn_array *x)
{
    check_status(qn_op_eigh(outs, x, "L", false, S), QN_OK);
    return 1;
}
static int build_eigh(qn_array **outs, qn_array *x)
{
    check_status(qn_op_eigh(outs, x, "U", true, S), QN_OK);
    return 2;
}

static void test_gradients_against_differences(void **state)
{
    (void)state;
    qn_array *any = random_parts(QN_FLOAT64, 30, SHAPE(2, 4, 4));
    qn_array *good = positive(QN_FLOAT64, 4, 31);
    check_gradient(build_inv, good, false);
    check_gradient(build_lower_inv, good, false);
    check_gradient(build_upper_inv, good, false);
    check_gradient(build_svd, any, false);
    check_gradient(build_cholesky, good, true);
    check_gradient(build_upper_cholesky, good, true);
    check_gradient(build_eigvalsh, good, true);
    check_gradient(build_eigh, good, true);
}

/* The integers among the outputs take no part. */
static void test_gradient_of_lu(void **state)
{
    (void)state;
    check_gradient(build_lu, random_parts(QN_FLOAT64, 32, SHAPE(2, 4, 4)),
                   false);
}

static void test_gradient_of_solutions(void **state)
{
    (void)state;
    for (int form = 0; form < 3; form++) {
        qn_array *a = positive(QN_FLOAT64, 4, 33), *y, *grad[4];
        qn_array *b = random_parts(QN_FLOAT64, 34, SHAPE(2, 4, 2));
        qn_array *cot = random_parts(QN_FLOAT64, 35, SHAPE(2, 4, 2));
        for (int pass = 0; pass < 33; pass++) {
            /* Pass 0 finds the gradients, the others differences by a. */
            static double found[32];
            double sums[2];
            for (int side = 0; side < (pass ? 2 : 1); side++) {
                double was = pass ? item(a, (size_t)pass - 1) : 0;
                if (pass)
                    element_put(place_of(a, (size_t)pass - 1), QN_FLOAT64,
                                was + (side ? -1e-6 : 1e-6));
                check_status(
                    form ? qn_op_solve_triangular(&y, a, b, form == 1, S)
                         : qn_op_solve(&y, a, b, S),
                    QN_OK);
                keep(y);
                if (!pass) {
                    gradients(grad, &y, &cot);
                    check_status(qn_eval(grad, 2), QN_OK);
                    for (size_t i = 0; i < 32; i++)
                        found[i] = item(grad[0], i);
                    /* Linear in b. */
                    check_close(inner(grad[1], b), inner(y, cot), 1e-10);
                }
                sums[side] = inner(y, cot);
                if (pass)
                    element_put(place_of(a, (size_t)pass - 1), QN_FLOAT64, was);
            }
            if (pass)
                check_close(found[pass - 1], (sums[0] - sums[1]) / 2e-6, 1e-6);
        }
    }
}

static int build_qr(qn_array **outs, qn_array *x)
{
    check_status(qn_op_qr(outs, x, S), QN_OK);
    return 2;
}
static int build_eigvals(qn_array **outs, qn_array *x)
{
    check_status(qn_op_eig(outs, x, false, S), QN_OK);
    return 1;
}

static void test_batches_and_remakes(void **state)
{
    (void)state;
    static builder *const builders[] = {
        build_inv,      build_lower_inv,      build_upper_inv, build_lu,
        build_cholesky, build_upper_cholesky, build_svd,       build_qr,
        build_eigvalsh, build_eigh,           build_eigvals};
    qn_array *good = positive(QN_FLOAT32, 3, 50);
    for (size_t i = 0; i < sizeof builders / sizeof *builders; i++) {
        qn_array *outs[3];
        int count = builders[i](outs, good);
        for (int k = 0; k < count; k++)
            keep(outs[k]);
        check_rules(outs);
    }
    for (int form = 0; form < 3; form++) {
        qn_array *b = random_parts(QN_FLOAT32, 51, SHAPE(2, 3, 2));
        BUILD(x, form ? qn_op_solve_triangular(&x, good, b, form == 1, S)
                      : qn_op_solve(&x, good, b, S));
        check_rules(&x);
    }
}

/* ---- memory ---- */

static qn_array *spare;

static qn_status factor_everything(void)
{
    qn_array *outs[3] = {NULL, NULL, NULL}, *x = NULL;
    qn_status status = qn_op_svd(outs, spare, true, S);
    if (!status)
        status = qn_eval(outs, 3);
    if (!status)
        status = qn_op_pinv(&x, spare, S);
    if (!status)
        status = qn_eval(&x, 1);
    qn_array_unref(x);
    x = NULL;
    if (!status)
        status = qn_op_det(&x, spare, S);
    if (!status)
        status = qn_eval(&x, 1);
    qn_array_unref(x);
    for (int i = 0; i < 3; i++)
        qn_array_unref(outs[i]);
    return status;
}

static void test_each_allocation_may_fail(void **state)
{
    (void)state;
    spare = positive(QN_FLOAT32, 3, 40);
    each_alloc_may_fail(factor_everything);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BUILD_TEST(test_cholesky_multiplies_out),
        BUILD_TEST(test_qr_multiplies_out),
        BUILD_TEST(test_lu_multiplies_out),
        BUILD_TEST(test_lu_of_a_singular_matrix),
        BUILD_TEST(test_svd_multiplies_out),
        BUILD_TEST(test_eigenvectors_of_symmetric_matrices),
        BUILD_TEST(test_eigenvectors_of_any_matrix),
        BUILD_TEST(test_inverses_and_solutions),
        BUILD_TEST(test_solutions_broadcast),
        BUILD_TEST(test_pseudo_inverse),
        BUILD_TEST(test_inverse_from_a_cholesky_factor),
        BUILD_TEST(test_determinants),
        BUILD_TEST(test_strided_matrices),
        BUILD_TEST(test_matrices_without_a_result),
        BUILD_TEST(test_what_is_not_finite),
        BUILD_TEST(test_refusals),
        BUILD_TEST(test_a_library_that_is_not_there),
        BUILD_TEST(test_norms_of_vectors),
        BUILD_TEST(test_norms_of_matrices),
        BUILD_TEST(test_complex_norms),
        BUILD_TEST(test_cross_products),
        BUILD_TEST(test_gradients_against_differences),
        BUILD_TEST(test_gradient_of_lu),
        BUILD_TEST(test_gradient_of_solutions),
        BUILD_TEST(test_batches_and_remakes),
        BUILD_TEST(test_each_allocation_may_fail),
    };
    return run_build_tests(tests);
}
