/* npy.h: one array in a file of numpy's format.
 *
 * Format (numpy's documentation, "numpy.lib.format"): "\x93NUMPY", a major and
 * a minor version, the length of the header (16 bits in version 1, 32 bits in 2
 * and 3), the header, the elements.  The header is a Python dictionary with
 * `descr`, a type code with its byte order, `fortran_order` and `shape`.
 * bfloat16, which numpy lacks, has the code V2. */
#ifndef QN_IO_NPY_H
#define QN_IO_NPY_H

#include "core/array.h"
#include "core/stream.h"
#include "stream.h"

/* The array whose file begins at the stream's position, which is left at the
 * elements.  They are read when the array is evaluated. */
qn_status qn_npy_load(qn_array **out, qn_io *in, qn_stream *s);

/* Evaluates the array and writes a file of version 1 at the position. */
qn_status qn_npy_save(qn_io *to, qn_array *array);

#endif
