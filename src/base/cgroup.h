/* cgroup.h: what Linux control groups leave to this process.
 *
 * A container is limited here, not in the processor count or the memory size
 * that the kernel reports.  Both versions are read, at every level from the
 * process's own group up to the mounted root, and the smallest limit counts.
 * `root` stands before every path ("" for the real system), so that tests can
 * build a system of their own. */
#ifndef QN_BASE_CGROUP_H
#define QN_BASE_CGROUP_H

#include <stdint.h>

/* Processors' worth of time, rounded up, at least 1; 0 when unlimited. */
int qn_cgroup_cpus(const char *root);
/* Bytes; UINT64_MAX when unlimited. */
uint64_t qn_cgroup_memory(const char *root);

#endif
