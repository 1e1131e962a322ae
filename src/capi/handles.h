/* handles.h: what a handle's ctx points at, and the steps that every entry of
 * the C API is made of.
 *
 * A handle's ctx is a box of its own, which copies of the handle share: storing
 * a result in a live handle changes what the box holds, not the box, so every
 * copy sees it.  Boxes are not locked: one thread at a time may change a box.
 *
 * An entry turns handles into objects, calls one function of a room below and
 * stores what that made:
 *
 *     int mlx_matmul(mlx_array *res, const mlx_array a, const mlx_array b,
 *                    const mlx_stream s)
 *     {
 *         QN_GET_ARRAY(x, a);
 *         QN_GET_ARRAY(y, b);
 *         QN_GET_STREAM(stream, s);
 *         qn_array *out;
 *         QN_CALL(qn_op_matmul(&out, x, y, stream));
 *         return QN_STORE_ARRAY(res, out);
 *     }
 *
 * A step that fails calls the error handler with the recorded sentence and the
 * place of the step, and returns 1 from the entry.  Nothing is stored before
 * everything that can fail has been done, so a failing call leaves its results
 * as they were; and since inputs are looked up before, a result may be one of
 * them. */
#ifndef QN_CAPI_HANDLES_H
#define QN_CAPI_HANDLES_H

#include "base/map.h"
#include "core/array.h"
#include "core/stream.h"

#include "mlx/c/mlx.h"

/* ---- errors ---- */

/* Calls the error handler with the calling thread's recorded error, followed by
 * " at FILE:LINE".  Always 1. */
int qn_capi_report(const char *file, int line);
/* The same for a handle without an object: "expected a non-empty TYPE". */
int qn_capi_report_empty(const char *type, const char *file, int line);

/* Reports the error recorded by qn_fail; 1. */
#define QN_REPORT() qn_capi_report(__FILE__, __LINE__)
/* QN_REPORT_EMPTY(mlx_array) */
#define QN_REPORT_EMPTY(type) qn_capi_report_empty(#type, __FILE__, __LINE__)

/* Returns 1 from the entry, or `failed` where entries return something else, if
 * `call` gives another status than QN_OK. */
#define QN_CALL(call) QN_CALL_OR(call, 1)
#define QN_CALL_OR(call, failed)                                               \
    do {                                                                       \
        if (call) {                                                            \
            QN_REPORT();                                                       \
            return failed;                                                     \
        }                                                                      \
    } while (0)

/* ---- inputs ---- */

typedef struct qn_array_box {
    qn_array *array;
} qn_array_box;

typedef struct qn_stream_box {
    qn_stream *stream;
} qn_stream_box;

/* What the mlx_vector types hold.  Arrays are references, texts are owned. */
typedef struct qn_list {
    union {
        qn_array **data; /* of mlx_vector_array */
        struct qn_list *lists;
        int *ints;
        char **texts;
        qn_stream **streams;
        void *items;
    };
    size_t size, capacity;
} qn_list;

/* The object of a handle, borrowed; NULL for an empty handle, so this is also
 * how an optional argument is read. */
static inline qn_array *qn_handle_array(mlx_array handle)
{
    return handle.ctx ? ((const qn_array_box *)handle.ctx)->array : NULL;
}
static inline qn_stream *qn_handle_stream(mlx_stream handle)
{
    return handle.ctx ? ((const qn_stream_box *)handle.ctx)->stream : NULL;
}
static inline qn_list *qn_handle_arrays(mlx_vector_array handle)
{
    return handle.ctx;
}
/* Keys include their zeros; values are arrays, texts. */
const qn_map *qn_handle_array_map(mlx_map_string_to_array map);
const qn_map *qn_handle_text_map(mlx_map_string_to_string map);

/* Declares `name` as the object of `handle`, or reports and returns `failed`
 * (1 in the short forms). */
#define QN_GET_OR(type, name, object, handle_type, failed)                     \
    type *name = (object);                                                     \
    if (!name) {                                                               \
        QN_REPORT_EMPTY(handle_type);                                          \
        return failed;                                                         \
    }                                                                          \
    _Static_assert(1, "")
#define QN_GET_ARRAY(name, handle)                                             \
    QN_GET_OR(qn_array, name, qn_handle_array(handle), mlx_array, 1)
#define QN_GET_STREAM(name, handle)                                            \
    QN_GET_OR(qn_stream, name, qn_handle_stream(handle), mlx_stream, 1)
#define QN_GET_ARRAYS(name, handle)                                            \
    QN_GET_OR(qn_list, name, qn_handle_arrays(handle), mlx_vector_array, 1)

/* QN_E_ARG for a number that names no dtype. */
qn_status qn_capi_dtype(qn_dtype *out, mlx_dtype dtype);
/* The count that comes with a pointer, as the rooms below take it; QN_E_ARG
 * above INT_MAX.  A pointer whose count is 0 is never read. */
qn_status qn_capi_count(int *out, size_t count);

/* Declares `name` as the qn_dtype of a mlx_dtype, as the int of a size_t. */
#define QN_GET_DTYPE(name, dtype)                                              \
    qn_dtype name;                                                             \
    QN_CALL(qn_capi_dtype(&name, dtype))
#define QN_GET_COUNT(name, count)                                              \
    int name;                                                                  \
    QN_CALL(qn_capi_count(&name, count))

/* ---- results ---- */

/* Store a result by the rule for res: a new box where ctx is NULL, else the
 * content of the box is replaced.  The caller's reference to `array` (to each
 * of `arrays`; the list of pointers itself stays the caller's) is taken over,
 * also on failure, when *res stays as it was. */
qn_status qn_handle_set_array(mlx_array *res, qn_array *array);
qn_status qn_handle_set_arrays(mlx_vector_array *res, qn_array *const *arrays,
                               size_t count);
/* Several results of one call: all are stored or none. */
qn_status qn_handle_set_each(mlx_array *const *res, qn_array *const *arrays,
                             int count);
/* A copy of a list of arrays, of a map (not an empty handle). */
qn_status qn_handle_copy_arrays(mlx_vector_array *res, const qn_list *list);
qn_status qn_handle_copy_map(mlx_map_string_to_array *res,
                             mlx_map_string_to_array map);
/* Two maps whose keys include their zeros and whose values are references and
 * texts (qn_alloc): both are taken over, also on failure; both are stored or
 * none. */
qn_status qn_handle_set_maps(mlx_map_string_to_array *res_0, qn_map *map_0,
                             mlx_map_string_to_string *res_1, qn_map *map_1);
/* The same of one map. */
qn_status qn_handle_set_map(mlx_map_string_to_array *res, qn_map *map);
/* Streams are never freed, so a box only names one. */
qn_status qn_handle_set_stream(mlx_stream *res, qn_stream *stream);
/* Copies `size` bytes of text. */
qn_status qn_handle_set_string(mlx_string *res, const char *text, size_t size);
/* Replaces the list of texts by copies. */
qn_status qn_handle_set_strings(mlx_vector_string *res,
                                const char *const *texts, size_t count);

qn_status qn_handle_set_streams(mlx_vector_stream *res,
                                qn_stream *const *streams, size_t count);

/* The same as the last step of an entry: 0, or 1 after a report. */
#define QN_STORE(call) ((call) ? QN_REPORT() : 0)
#define QN_STORE_ARRAY(res, array) QN_STORE(qn_handle_set_array(res, array))
#define QN_STORE_ARRAYS(res, arrays, count)                                    \
    QN_STORE(qn_handle_set_arrays(res, arrays, count))
#define QN_STORE_STREAM(res, stream) QN_STORE(qn_handle_set_stream(res, stream))
#define QN_STORE_STRING(res, text, size)                                       \
    QN_STORE(qn_handle_set_string(res, text, size))

#endif
