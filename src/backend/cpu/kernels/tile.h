/* tile.h: the register tile of products whose right side is stored row by row
 * of the summed axis: c[i][j] = sum over p of a[i][p] * b[p][j].
 *
 * Include it after simd_<isa>.h.  Lanes are columns j; every element is one
 * chain of multiply-adds over ascending p, whatever the tile around it, so an
 * element's bits do not depend on how many rows or columns are computed. */
#ifndef QN_CPU_TILE_H
#define QN_CPU_TILE_H

#include "backend/cpu/simd_math.h"

#include <stdbool.h>

/* Accumulators fill the registers up to what a row of b and a factor need. */
enum { TILE_ROWS = 6, TILE_VECS = VF_REGISTERS >= 32 ? 4 : 2 };

/* `rows` and `vecs` are constants in every call, so that accumulators are
 * registers.  Strides count elements.  `add`: the sums are added to what c
 * holds; else they replace it. */
VF_INLINE void tile_fixed(int rows, int vecs, const float *a, size_t a_stride,
                          const void *b, size_t b_stride, qn_dtype b_type,
                          size_t depth, float *c, size_t c_stride, bool add)
{
    VF acc[TILE_ROWS][TILE_VECS];
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (int j = 0; j < vecs; j++)
            acc[i][j] = vf_zero();
    for (size_t p = 0; p < depth; p++) {
        VF row[TILE_VECS];
#pragma GCC unroll 4
        for (int j = 0; j < vecs; j++)
            row[j] =
                vf_load_any(b, p * b_stride + (size_t)j * VF_LANES, b_type);
#pragma GCC unroll 8
        for (int i = 0; i < rows; i++) {
            VF factor = vf_set1(a[(size_t)i * a_stride + p]);
#pragma GCC unroll 4
            for (int j = 0; j < vecs; j++)
                acc[i][j] = vf_fma(factor, row[j], acc[i][j]);
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (int j = 0; j < vecs; j++) {
            float *to = c + (size_t)i * c_stride + (size_t)j * VF_LANES;
            vf_store(to, add ? vf_add(vf_load(to), acc[i][j]) : acc[i][j]);
        }
}

/* Any number of rows, `vecs` vectors of columns (a constant). */
VF_INLINE void tile_rows(size_t rows, int vecs, const float *a, size_t a_stride,
                         const void *b, size_t b_stride, qn_dtype b_type,
                         size_t depth, float *c, size_t c_stride, bool add)
{
#define TILE(n)                                                                \
    tile_fixed(n, vecs, a, a_stride, b, b_stride, b_type, depth, c, c_stride,  \
               add)
    for (; rows >= TILE_ROWS; rows -= TILE_ROWS) {
        TILE(TILE_ROWS);
        a += TILE_ROWS * a_stride;
        c += TILE_ROWS * c_stride;
    }
    switch (rows) {
    case 5:
        TILE(5);
        break;
    case 4:
        TILE(4);
        break;
    case 3:
        TILE(3);
        break;
    case 2:
        TILE(2);
        break;
    case 1:
        TILE(1);
        break;
    default:
        break;
    }
#undef TILE
}

/* Any number of rows and of whole vectors of columns. */
VF_INLINE void tile_all(size_t rows, size_t vecs, const float *a,
                        size_t a_stride, const void *b, size_t b_stride,
                        qn_dtype b_type, size_t depth, float *c,
                        size_t c_stride, bool add)
{
    const char *from = b;
    size_t bytes = VF_LANES * vf_item(b_type);
    for (; vecs >= TILE_VECS; vecs -= TILE_VECS) {
        tile_rows(rows, TILE_VECS, a, a_stride, from, b_stride, b_type, depth,
                  c, c_stride, add);
        from += TILE_VECS * bytes;
        c += TILE_VECS * VF_LANES;
    }
    for (; vecs > 0; vecs--) {
        tile_rows(rows, 1, a, a_stride, from, b_stride, b_type, depth, c,
                  c_stride, add);
        from += bytes;
        c += VF_LANES;
    }
}

#endif
