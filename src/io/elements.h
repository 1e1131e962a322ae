/* elements.h: between arrays and their elements in a stream.
 *
 * An array that is loaded reads its elements when it is evaluated
 * (ops/load.c); one that is saved is evaluated first.  Elements lie in a stream
 * as in memory: without gaps, the low byte first unless said otherwise. */
#ifndef QN_IO_ELEMENTS_H
#define QN_IO_ELEMENTS_H

#include "base/map.h"
#include "core/array.h"
#include "core/stream.h"
#include "stream.h"

/* Where the elements of an array are, and what they are. */
typedef struct qn_elements {
    size_t offset; /* in the stream */
    qn_dtype dtype;
    const int *shape;
    int ndim;
    bool col_major;
    bool swapped; /* the high byte comes first */
} qn_elements;

/* An array that holds the stream until it has been evaluated. */
qn_status qn_elements_load(qn_array **out, qn_io *io,
                           const qn_elements *elements, qn_stream *s);

/* A dimension as arrays have it; QN_E_FORMAT above INT_MAX. `what` says whose.
 */
qn_status qn_elements_dim(int *out, uint64_t dim, qn_str what);

/* An evaluated array with the elements of `array` without gaps, row-major
 * (or column-major, where that is allowed and saves a copy). */
qn_status qn_elements_settle(qn_array **out, qn_array *array, bool col_major);
/* Evaluates the array and writes its elements in row-major order. */
qn_status qn_elements_save(qn_io *io, qn_array *array);

/* ---- arrays by name ---- */

/* In maps of this room a key includes its terminating zero, so that it can be
 * lent out as a C string, and a value of a map of arrays is a reference. */
static inline qn_str qn_named_key(const char *name)
{
    return (qn_str){name, strlen(name) + 1};
}
static inline qn_str qn_named_text(qn_str key)
{
    return (qn_str){key.data, key.size - 1};
}
/* Puts `array`, whose reference is taken over also on failure, under `name` and
 * `suffix`.  QN_E_FORMAT when the name is taken. */
qn_status qn_named_add(qn_map *map, qn_str name, const char *suffix,
                       qn_array *array);
void qn_named_free(qn_map *map);
/* Evaluates all of them. */
qn_status qn_named_eval(const qn_map *map);

#endif
