/* group.h: how this process comes by its group. */
#ifndef QN_DISTRIBUTED_GROUP_H
#define QN_DISTRIBUTED_GROUP_H

#include "core/group.h"

/* The group of all processes that `name` joins: "mpi", "ring", "nccl", "jaccl",
 * or "any" for the first that works.  Only MPI is there.  Without others,
 * `strict` makes that an error that says why; otherwise the group is this
 * process alone.  Which processes there are is found out once; a later call
 * gives the same group.  Another name is QN_E_ARG. */
qn_status qn_distributed_init(qn_group **out, bool strict, const char *name);

/* Whether a library for `name` is there; says nothing of other processes. */
bool qn_distributed_available(const char *name);

/* QN_E_ARG for a process alone. */
qn_status qn_distributed_split(qn_group **out, qn_group *group, int color,
                               int key);

#endif
