/* group.h: processes that compute together.
 *
 * A group belongs to the process once made, like a stream: there is no free,
 * and operations name it.  What carries the data (MPI; others could follow)
 * stands behind a table of functions; whoever runs a node calls it with arrays
 * that have their storage.
 *
 * All calls but `split` come from a running evaluation, so one comes at a
 * time, on whatever thread evaluates.  Every process of the group has to make
 * the same calls in the same order: a graph is evaluated in an order that
 * depends on the graph alone (eval.h). */
#ifndef QN_CORE_GROUP_H
#define QN_CORE_GROUP_H

#include "array.h"
#include "stream.h"

typedef struct qn_group qn_group;

typedef enum qn_group_reduce {
    QN_GROUP_SUM,
    QN_GROUP_MAX,
    QN_GROUP_MIN
} qn_group_reduce;

/* to = to op from, n elements of `dtype`, on the host: what the elements mean
 * is said by the backend that asks. */
typedef void (*qn_group_combine)(qn_group_reduce op, qn_dtype dtype, size_t n,
                                 void *to, const void *from);

/* Arrays are row-major, without gaps, and not empty; `out` has storage. */
typedef struct qn_group_means {
    const char *name;
    /* out and in have one shape, and may share their storage. */
    qn_status (*all_reduce)(qn_group *group, qn_group_reduce op,
                            qn_group_combine combine, qn_array *out,
                            const qn_array *in, qn_stream *stream);
    /* out: the arrays `in` of all ranks, one after the other. */
    qn_status (*all_gather)(qn_group *group, qn_array *out, const qn_array *in,
                            qn_stream *stream);
    /* out: the part of the sum that is this rank's, of `size` equal ones. */
    qn_status (*sum_scatter)(qn_group *group, qn_group_combine combine,
                             qn_array *out, const qn_array *in,
                             qn_stream *stream);
    /* May return before the data is gone, and then holds the storage of `in`
     * until the evaluation ends. */
    qn_status (*send)(qn_group *group, const qn_array *in, int dst,
                      qn_stream *stream);
    qn_status (*recv)(qn_group *group, qn_array *out, int src,
                      qn_stream *stream);
    /* The processes that pass the same color, in the order of key and, where
     * that is equal, of rank.  A negative key stands for the rank.  Called
     * between evaluations by every process of the group. */
    qn_status (*split)(qn_group **out, qn_group *group, int color, int key);
} qn_group_means;

/* The beginning of what `means` makes. */
struct qn_group {
    const qn_group_means *means; /* NULL: this process alone */
    int rank, size;
};

#endif
