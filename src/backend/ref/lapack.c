/* lapack.c: the one place that knows LAPACK's calling convention.
 *
 * The library is Fortran: every argument is a pointer, integers have 32 bits,
 * names end in an underscore, and each text argument has a hidden length at
 * the end of the list.  Its answer to an argument that it does not like is to
 * print and to stop the process, so nothing doubtful may reach it: sizes come
 * from shapes, leading dimensions are at least 1, and matrices with NaN or
 * infinities are kept from the routines that iterate.  Even when it is only
 * asked for the size of its scratch memory, some versions write to the first
 * element of other arguments, so these point at something then too.
 *
 * The table of functions is made once.  Threads that come at the same time
 * each make one, and all but the first give theirs up. */
#include "lapack.h"

#include "base/alloc.h"

#include <dlfcn.h>
#include <limits.h>
#include <math.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

/* name, arguments before the hidden lengths, hidden lengths. */
#define TEXT const char *
#define INT const int *
#define ROUTINES(X)                                                            \
    X(dpotrf, (TEXT, INT, double *, INT, int *, size_t))                       \
    X(dgeqrf, (INT, INT, double *, INT, double *, double *, INT, int *))       \
    X(dorgqr, (INT, INT, INT, double *, INT, double *, double *, INT, int *))  \
    X(dgetrf, (INT, INT, double *, INT, int *, int *))                         \
    X(dgetri, (INT, double *, INT, INT, double *, INT, int *))                 \
    X(dtrtri, (TEXT, TEXT, INT, double *, INT, int *, size_t, size_t))         \
    X(dgesv, (INT, INT, double *, INT, int *, double *, INT, int *))           \
    X(dtrtrs, (TEXT, TEXT, TEXT, INT, INT, const double *, INT, double *, INT, \
               int *, size_t, size_t, size_t))                                 \
    X(dgesdd, (TEXT, INT, INT, double *, INT, double *, double *, INT,         \
               double *, INT, double *, INT, int *, int *, size_t))            \
    X(zgesdd, (TEXT, INT, INT, double *, INT, double *, double *, INT,         \
               double *, INT, double *, INT, double *, int *, int *, size_t))  \
    X(dsyevd, (TEXT, TEXT, INT, double *, INT, double *, double *, INT, int *, \
               INT, int *, size_t, size_t))                                    \
    X(zheevd, (TEXT, TEXT, INT, double *, INT, double *, double *, INT,        \
               double *, INT, int *, INT, int *, size_t, size_t))              \
    X(dgeev, (TEXT, TEXT, INT, double *, INT, double *, double *, double *,    \
              INT, double *, INT, double *, INT, int *, size_t, size_t))       \
    X(zgeev, (TEXT, TEXT, INT, double *, INT, double *, double *, INT,         \
              double *, INT, double *, INT, double *, int *, size_t, size_t))

struct qn_lapack {
/* clang-format off */
#define X(name, arguments) void (*name) arguments;
    ROUTINES(X)
#undef X
    /* clang-format on */
};

/* ---- the library ---- */

#if defined(__APPLE__)
static const char *const libraries[] = {
    "/System/Library/Frameworks/Accelerate.framework/Accelerate"};
#else
static const char *const libraries[] = {"liblapack.so.3", "libopenblas.so.0"};
#endif
enum { LIBRARIES = sizeof libraries / sizeof *libraries };

/* Kept open for good: the table points into it. */
static qn_status resolve(qn_lapack *lib, void *handle, const char *library)
{
    void *symbol;
    /* dlsym's pointer is one to a function, whatever its C type says. */
#define X(name, arguments)                                                     \
    symbol = dlsym(handle, #name "_");                                         \
    if (!symbol)                                                               \
        return qn_fail(QN_E_UNSUPPORTED, "%s has no function %s", library,     \
                       #name "_");                                             \
    memcpy(&lib->name, &symbol, sizeof symbol);
    ROUTINES(X)
#undef X
    return QN_OK;
}

qn_lapack *qn_lapack_load(const char *library)
{
    qn_lapack *lib = qn_calloc(1, sizeof *lib);
    if (!lib)
        return NULL;
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    qn_status status = QN_OK;
    if (!handle)
        status = qn_fail(QN_E_UNSUPPORTED, "%s is not there", library);
    else
        status = resolve(lib, handle, library);
    if (!status)
        return lib;
    if (handle)
        dlclose(handle);
    qn_free(lib);
    return NULL;
}

qn_status qn_lapack_begin(qn_lapack_job *job, const char *op)
{
    static _Atomic(qn_lapack *) found;
    *job = (qn_lapack_job){.op = op, .lib = atomic_load(&found)};
    if (job->lib)
        return QN_OK;
    qn_lapack *made = NULL, *other = NULL;
    for (int i = 0; i < LIBRARIES && !made; i++)
        made = qn_lapack_load(libraries[i]);
    if (!made)
        return qn_fail(QN_E_UNSUPPORTED,
                       "[linalg::%s] needs LAPACK, which is not installed: no "
                       "%s (in Debian the package liblapack3)",
                       op, libraries[0]);
    job->lib = made;
    if (!atomic_compare_exchange_strong(&found, &other, made)) {
        qn_free(made);
        job->lib = other;
    }
    return QN_OK;
}

void qn_lapack_end(qn_lapack_job *job)
{
    qn_free(job->room);
    job->room = NULL;
    job->room_size = 0;
}

/* ---- arguments ---- */

static int at_least_one(int n)
{
    return n > 1 ? n : 1;
}

static int lesser(int a, int b)
{
    return a < b ? a : b;
}

/* Fortran counts elements of a matrix in int. */
static qn_status check_size(const qn_lapack_job *job, int m, int n)
{
    if ((int64_t)m * n > INT_MAX)
        return qn_fail(QN_E_UNSUPPORTED,
                       "[linalg::%s] a matrix of %d x %d is too large for "
                       "LAPACK's 32-bit integers",
                       job->op, m, n);
    return QN_OK;
}

/* Scratch memory, undefined: `doubles` and `ints`. */
typedef struct scratch {
    double *doubles;
    int *ints;
} scratch;

static qn_status take(qn_lapack_job *job, scratch *out, double doubles,
                      double ints)
{
    size_t size, more;
    if (!(doubles >= 0 && doubles <= INT_MAX && ints >= 0 && ints <= INT_MAX))
        return qn_fail(QN_E_UNSUPPORTED,
                       "[linalg::%s] the matrix needs more scratch memory than "
                       "LAPACK's 32-bit integers can name",
                       job->op);
    if (!qn_mul_size(&size, (size_t)doubles + 1, sizeof(double)) ||
        !qn_mul_size(&more, (size_t)ints + 1, sizeof(int)) ||
        !qn_add_size(&more, more, size))
        return qn_fail(QN_E_NOMEM, "[linalg::%s] scratch memory", job->op);
    if (more > job->room_size) {
        void *room = qn_alloc(more);
        if (!room)
            return QN_E_NOMEM;
        qn_free(job->room);
        job->room = room;
        job->room_size = more;
    }
    out->doubles = job->room;
    out->ints = (int *)(void *)((char *)job->room + size);
    return QN_OK;
}

static qn_status check_finite(const qn_lapack_job *job, const double *a,
                              size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!isfinite(a[i]))
            return qn_fail(QN_E_ARG,
                           "[linalg::%s] The matrix has elements that are NaN "
                           "or infinite.",
                           job->op);
    return QN_OK;
}

/* What a routine says of itself: negative for an argument that it refuses,
 * positive when there is no result. */
static qn_status outcome(const qn_lapack_job *job, int info, const char *why)
{
    if (info < 0)
        return qn_fail(QN_E_INTERNAL,
                       "[linalg::%s] LAPACK refused argument number %d",
                       job->op, -info);
    return info ? qn_fail(QN_E_ARG, "[linalg::%s] %s", job->op, why) : QN_OK;
}

static const char singular[] = "The matrix is singular.";
static const char no_end[] = "The iteration did not converge.";

/* Zeros on one side of the diagonal of a square matrix. */
static void clear_triangle(double *a, int n, bool upper)
{
    for (size_t j = 0, size = (size_t)n; j < size; j++) {
        if (upper)
            memset(a + j * size, 0, j * sizeof *a);
        else
            memset(a + j * size + j + 1, 0, (size - j - 1) * sizeof *a);
    }
}

/* ---- direct methods ---- */

qn_status qn_lapack_cholesky(qn_lapack_job *job, double *a, int n, bool upper)
{
    int lda = at_least_one(n), info = 0;
    qn_status status = check_size(job, n, n);
    if (status)
        return status;
    job->lib->dpotrf(upper ? "U" : "L", &n, a, &lda, &info, 1);
    clear_triangle(a, n, !upper);
    return outcome(job, info, "The matrix is not positive definite.");
}

qn_status qn_lapack_qr(qn_lapack_job *job, double *a, int m, int n, double *q)
{
    int k = lesser(m, n), lda = at_least_one(m), info = 0, query = -1;
    double want[2] = {0}, unused = 0;
    scratch s;
    qn_status status = check_size(job, m, n);
    if (status || !k)
        return status;
    job->lib->dgeqrf(&m, &n, a, &lda, &unused, &want[0], &query, &info);
    job->lib->dorgqr(&m, &k, &k, q, &lda, &unused, &want[1], &query, &info);
    double most = fmax(fmax(want[0], want[1]), n);
    status = take(job, &s, most + k, 0);
    if (status)
        return status;
    double *tau = s.doubles, *work = tau + k;
    int lwork = (int)most;
    job->lib->dgeqrf(&m, &n, a, &lda, tau, work, &lwork, &info);
    if (!info) {
        memcpy(q, a, (size_t)m * (size_t)k * sizeof *a);
        job->lib->dorgqr(&m, &k, &k, q, &lda, tau, work, &lwork, &info);
    }
    return outcome(job, info, no_end);
}

qn_status qn_lapack_lu(qn_lapack_job *job, double *a, int m, int n, int *pivots)
{
    int lda = at_least_one(m), info = 0;
    qn_status status = check_size(job, m, n);
    if (status)
        return status;
    job->lib->dgetrf(&m, &n, a, &lda, pivots, &info);
    for (int i = 0; i < lesser(m, n); i++)
        pivots[i]--;
    /* A positive info tells of a zero on the diagonal of U. */
    return outcome(job, info > 0 ? 0 : info, singular);
}

qn_status qn_lapack_inverse(qn_lapack_job *job, double *a, int n)
{
    int lda = at_least_one(n), info = 0, query = -1, unused = 0;
    double want = 0;
    scratch s;
    qn_status status = check_size(job, n, n);
    if (status)
        return status;
    job->lib->dgetri(&n, a, &lda, &unused, &want, &query, &info);
    status = take(job, &s, fmax(want, n), n);
    if (status)
        return status;
    int lwork = at_least_one((int)fmax(want, n));
    job->lib->dgetrf(&n, &n, a, &lda, s.ints, &info);
    if (!info)
        job->lib->dgetri(&n, a, &lda, s.ints, s.doubles, &lwork, &info);
    return outcome(job, info, singular);
}

qn_status qn_lapack_triangular_inverse(qn_lapack_job *job, double *a, int n,
                                       bool upper)
{
    int lda = at_least_one(n), info = 0;
    qn_status status = check_size(job, n, n);
    if (status)
        return status;
    clear_triangle(a, n, !upper);
    job->lib->dtrtri(upper ? "U" : "L", "N", &n, a, &lda, &info, 1, 1);
    return outcome(job, info, singular);
}

qn_status qn_lapack_solve(qn_lapack_job *job, double *a, double *b, int n,
                          int k)
{
    int lda = at_least_one(n), info = 0;
    scratch s;
    qn_status status = check_size(job, n, n);
    if (!status)
        status = check_size(job, n, k);
    if (!status)
        status = take(job, &s, 0, n);
    if (status)
        return status;
    job->lib->dgesv(&n, &k, a, &lda, s.ints, b, &lda, &info);
    return outcome(job, info, singular);
}

qn_status qn_lapack_triangular_solve(qn_lapack_job *job, const double *a,
                                     double *b, int n, int k, bool upper)
{
    int lda = at_least_one(n), info = 0;
    qn_status status = check_size(job, n, n);
    if (!status)
        status = check_size(job, n, k);
    if (status)
        return status;
    job->lib->dtrtrs(upper ? "U" : "L", "N", "N", &n, &k, a, &lda, b, &lda,
                     &info, 1, 1, 1);
    return outcome(job, info, singular);
}

/* ---- iterations ---- */

/* Doubles in a matrix. */
static size_t doubles_in(int m, int n, bool cplx)
{
    return (size_t)m * (size_t)n * (cplx ? 2 : 1);
}

static void make_identity(double *a, int n, bool cplx)
{
    size_t each = cplx ? 2 : 1, size = (size_t)n;
    memset(a, 0, doubles_in(n, n, cplx) * sizeof *a);
    for (size_t i = 0; i < size; i++)
        a[(i * size + i) * each] = 1;
}

qn_status qn_lapack_svd(qn_lapack_job *job, bool cplx, void *a, int m, int n,
                        double *s, void *u, void *vt)
{
    const qn_lapack *lib = job->lib;
    int k = lesser(m, n), info = 0, query = -1;
    int lda = at_least_one(m), ldu = u ? lda : 1,
        ldvt = u ? at_least_one(n) : 1;
    const char *what = u ? "A" : "N";
    double want[2] = {0}, unused[2] = {0}, real = 0;
    int ints[1] = {0};
    scratch room;
    qn_status status = check_size(job, m, n);
    if (!status && u)
        status = check_size(job, m, m);
    if (!status && u)
        status = check_size(job, n, n);
    if (!status)
        status = check_finite(job, a, doubles_in(m, n, cplx));
    if (status)
        return status;
    if (!k) {
        if (u) {
            make_identity(u, m, cplx);
            make_identity(vt, n, cplx);
        }
        return QN_OK;
    }
    if (cplx) {
        double lo = k, hi = m > n ? m : n;
        real = u ? fmax(5 * lo * lo + 5 * lo, 2 * hi * lo + 2 * lo * lo + lo)
                 : 7 * lo;
        lib->zgesdd(what, &m, &n, a, &lda, s, u, &ldu, vt, &ldvt, want, &query,
                    unused, ints, &info, 1);
    } else {
        lib->dgesdd(what, &m, &n, a, &lda, s, u, &ldu, vt, &ldvt, want, &query,
                    ints, &info, 1);
    }
    status = outcome(job, info, no_end);
    if (!status)
        status = take(job, &room, real + want[0] * (cplx ? 2 : 1), 8.0 * k);
    if (status)
        return status;
    int lwork = (int)want[0];
    double *work = room.doubles + (size_t)real;
    if (cplx)
        lib->zgesdd(what, &m, &n, a, &lda, s, u, &ldu, vt, &ldvt, work, &lwork,
                    room.doubles, room.ints, &info, 1);
    else
        lib->dgesdd(what, &m, &n, a, &lda, s, u, &ldu, vt, &ldvt, work, &lwork,
                    room.ints, &info, 1);
    return outcome(job, info, no_end);
}

qn_status qn_lapack_eigh(qn_lapack_job *job, bool cplx, void *a, int n,
                         bool upper, bool vectors, double *values)
{
    const qn_lapack *lib = job->lib;
    int lda = at_least_one(n), info = 0, query = -1, ints = 0;
    const char *what = vectors ? "V" : "N", *half = upper ? "U" : "L";
    double want[2] = {0}, real[2] = {0};
    scratch room;
    qn_status status = check_size(job, n, n);
    if (!status)
        status = check_finite(job, a, doubles_in(n, n, cplx));
    if (status || !n)
        return status;
    if (cplx)
        lib->zheevd(what, half, &n, a, &lda, values, want, &query, real, &query,
                    &ints, &query, &info, 1, 1);
    else
        lib->dsyevd(what, half, &n, a, &lda, values, want, &query, &ints,
                    &query, &info, 1, 1);
    status = outcome(job, info, no_end);
    if (!status)
        status = take(job, &room, real[0] + want[0] * (cplx ? 2 : 1), ints);
    if (status)
        return status;
    int lwork = (int)want[0], lreal = (int)real[0];
    double *work = room.doubles + lreal;
    if (cplx)
        lib->zheevd(what, half, &n, a, &lda, values, work, &lwork, room.doubles,
                    &lreal, room.ints, &ints, &info, 1, 1);
    else
        lib->dsyevd(what, half, &n, a, &lda, values, work, &lwork, room.ints,
                    &ints, &info, 1, 1);
    return outcome(job, info, no_end);
}

/* Eigenvectors of a real matrix: those of a conjugate pair are the sum and
 * the difference of two columns. */
static void pair_up(double *vectors, const double *columns, const double *wi,
                    int n)
{
    size_t size = (size_t)n;
    for (size_t j = 0; j < size; j++) {
        bool pair = wi[j] != 0 && j + 1 < size;
        const double *re = columns + j * size, *im = re + size;
        double *one = vectors + 2 * j * size, *two = one + 2 * size;
        for (size_t i = 0; i < size; i++) {
            one[2 * i] = re[i];
            one[2 * i + 1] = pair ? im[i] : 0;
            if (pair) {
                two[2 * i] = re[i];
                two[2 * i + 1] = -im[i];
            }
        }
        j += pair;
    }
}

static qn_status real_eig(qn_lapack_job *job, double *a, int n, double *values,
                          double *vectors)
{
    int lda = at_least_one(n), info = 0, query = -1, one = 1;
    const char *what = vectors ? "V" : "N";
    double want = 0, matrix = vectors ? (double)n * n : 0;
    scratch room;
    job->lib->dgeev("N", what, &n, a, &lda, values, values + n, NULL, &one,
                    vectors, &lda, &want, &query, &info, 1, 1);
    qn_status status = outcome(job, info, no_end);
    if (!status)
        status = take(job, &room, want + 2.0 * n + matrix, 0);
    if (status)
        return status;
    int lwork = (int)want;
    double *wr = room.doubles, *wi = wr + n, *columns = wi + n;
    double *work = columns + (size_t)matrix;
    job->lib->dgeev("N", what, &n, a, &lda, wr, wi, NULL, &one, columns, &lda,
                    work, &lwork, &info, 1, 1);
    for (int i = 0; i < n; i++) {
        values[2 * i] = wr[i];
        values[2 * i + 1] = wi[i];
    }
    if (vectors && !info)
        pair_up(vectors, columns, wi, n);
    return outcome(job, info, no_end);
}

qn_status qn_lapack_eig(qn_lapack_job *job, bool cplx, void *a, int n,
                        double *values, double *vectors)
{
    int lda = at_least_one(n), info = 0, query = -1, one = 1;
    const char *what = vectors ? "V" : "N";
    double want[2] = {0}, unused[2] = {0};
    scratch room;
    qn_status status = check_size(job, n, n);
    if (!status)
        status = check_finite(job, a, doubles_in(n, n, cplx));
    if (status || !n)
        return status;
    if (!cplx)
        return real_eig(job, a, n, values, vectors);
    job->lib->zgeev("N", what, &n, a, &lda, values, NULL, &one, vectors, &lda,
                    want, &query, unused, &info, 1, 1);
    status = outcome(job, info, no_end);
    if (!status)
        status = take(job, &room, 2 * want[0] + 2.0 * n, 0);
    if (status)
        return status;
    int lwork = (int)want[0];
    job->lib->zgeev("N", what, &n, a, &lda, values, NULL, &one, vectors, &lda,
                    room.doubles + 2 * (size_t)n, &lwork, room.doubles, &info,
                    1, 1);
    return outcome(job, info, no_end);
}
