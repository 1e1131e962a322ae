/* hadamard.c: products with Hadamard matrices.
 *
 * A line is m rows of 2^k: first each row is transformed by sums and
 * differences of neighbours 1, 2, 4 ... apart, in this order (other orders
 * round differently), then columns by the matrix of size m.  The factor comes
 * last. */
#include "loops.h"
#include "stage.h"

#include "base/alloc.h"

/* The matrices of size 12, 20, 28 that MLX uses, from N. J. A. Sloane's table
 * (had.12, had.20.will, had.28.will2): one number per row, a bit where the
 * element is -1, the lowest for the first column. */
static const uint32_t rows_12[] = {0x002, 0xaab, 0x3c8, 0x96e, 0xf20, 0x5ba,
                                   0xc8c, 0x6e6, 0x23c, 0xb96, 0x8f0, 0xe5a};
static const uint32_t rows_20[] = {0x933de, 0x2e3bd, 0x5477b, 0xa0ef7, 0x499ef,
                                   0x637c1, 0xc6ba2, 0x8d764, 0x1aee8, 0x359f0,
                                   0x0fa53, 0x174a7, 0x26d4e, 0x45e9c, 0x83d39,
                                   0xf7a6d, 0xef4fa, 0xdedd5, 0xbdf8b, 0x7bf36};
static const uint32_t rows_28[] = {
    0xcd69e7e, 0x9ad7c7d, 0x37ab8fb, 0x6d571f7, 0xd8ae3ef, 0xb3587df,
    0x66b4f3f, 0xb467f43, 0x6acbe87, 0xd593d8e, 0xab27b9c, 0x564f7b8,
    0xac9aff0, 0x5b31fe1, 0x87fb325, 0x0ff66ca, 0x1decd95, 0x39ddb2a,
    0x71bf654, 0xe17eca9, 0xc2fd9d2, 0xfcf1299, 0xfbe2532, 0xf7c4ae4,
    0xef8d549, 0xdf1ea13, 0xbe3d4a6, 0x7e7a94c};
enum { LARGEST = 28 };

static const uint32_t *rows_of(size_t m)
{
    return m == 12 ? rows_12 : m == 20 ? rows_20 : m == 28 ? rows_28 : NULL;
}

/* m of n = m 2^k. */
static size_t odd_part(size_t n)
{
    static const size_t sizes[] = {12, 20, 28};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        size_t rest = n % sizes[i] ? 0 : n / sizes[i];
        if (rest && (rest & (rest - 1)) == 0)
            return sizes[i];
    }
    return 1;
}

static bool is_negative(const uint32_t *rows, size_t i, size_t j, bool turned)
{
    return (turned ? rows[j] >> i : rows[i] >> j) & 1;
}

#define TRANSFORM(name, T)                                                     \
    static void name(void *line, size_t n, size_t m, T scale, bool turned)     \
    {                                                                          \
        T *x = line;                                                           \
        size_t width = n / m;                                                  \
        for (size_t h = 1; h < width; h *= 2)                                  \
            for (size_t i = 0; i < n; i += 2 * h)                              \
                for (size_t j = i; j < i + h; j++) {                           \
                    T a = x[j], b = x[j + h];                                  \
                    x[j] = a + b;                                              \
                    x[j + h] = a - b;                                          \
                }                                                              \
        const uint32_t *rows = rows_of(m);                                     \
        for (size_t column = 0; rows && column < width; column++) {            \
            T had[LARGEST];                                                    \
            for (size_t i = 0; i < m; i++)                                     \
                had[i] = x[i * width + column];                                \
            for (size_t i = 0; i < m; i++) {                                   \
                T sum = 0;                                                     \
                for (size_t j = 0; j < m; j++)                                 \
                    sum += is_negative(rows, i, j, turned) ? -had[j] : had[j]; \
                x[i * width + column] = sum;                                   \
            }                                                                  \
        }                                                                      \
        for (size_t i = 0; i < n; i++)                                         \
            x[i] *= scale;                                                     \
    }
/* clang-format off */
TRANSFORM(transform_floats, float)
TRANSFORM(transform_doubles, double)
/* clang-format on */

void qn_ref_hadamard_lines(const qn_node *node, size_t first, size_t count,
                           void *line)
{
    const qn_hadamard_params *p = node->params;
    const qn_array *in = node->inputs[0], *out = node->outputs[0];
    int axis = in->ndim - 1;
    size_t n = (size_t)in->shape[axis], m = odd_part(n);
    qn_lines lines;
    qn_walk walk;
    qn_lines_make(&lines, in->shape, in->ndim, axis,
                  (const int64_t *[]){out->strides, in->strides}, 2);
    for (qn_walk_start(&walk, &lines.outer, first, count); walk.left;
         qn_walk_next(&walk)) {
        qn_values_load(line, in->dtype, qn_element(in, walk.offsets[1]),
                       lines.step[1], n);
        if (in->dtype == QN_FLOAT64)
            transform_doubles(line, n, m, (double)p->scale, p->turned);
        else
            transform_floats(line, n, m, p->scale, p->turned);
        qn_values_store(qn_element(out, walk.offsets[0]), out->dtype,
                        lines.step[0], line, n);
    }
}

qn_status qn_ref_hadamard_transform(qn_node *node)
{
    qn_array *out = node->outputs[0];
    qn_status status = qn_array_alloc(out);
    if (status || !out->size)
        return status;
    size_t n = (size_t)out->shape[out->ndim - 1];
    void *line = qn_calloc(n, sizeof(double));
    if (!line)
        return QN_E_NOMEM;
    qn_ref_hadamard_lines(node, 0, out->size / n, line);
    qn_free(line);
    return QN_OK;
}
