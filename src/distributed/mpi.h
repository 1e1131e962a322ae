/* mpi.h: groups joined by an installed MPI.
 *
 * MPI is no part of the build, neither library nor header: it is looked for
 * when a group is asked for.  The C interfaces of MPI libraries agree in
 * source code only, so each family has a file that knows its binary interface:
 *
 *   Open MPI 3, 4, 5   libmpi.so.40: handles are pointers (mpi_open.c)
 *   MPICH 3.1 and on   libmpi.so.12, in Debian libmpich.so.12: handles are
 *                      ints (mpi_mpich.c); Intel MPI and MVAPICH2 keep to the
 *                      same interface and are taken for MPICH
 *
 * Tests run Open MPI 4.1.4 and MPICH 4.0.2.  MLX_MPI_LIBNAME names another
 * file, as for MLX.
 *
 * Threads: MPI_THREAD_SERIALIZED is asked for.  Evaluations run one at a time
 * but on any thread.  If a library gives less, operations work on the thread
 * that has initialised it, and are an error on others. */
#ifndef QN_DISTRIBUTED_MPI_H
#define QN_DISTRIBUTED_MPI_H

#include "core/group.h"

/* Whether a library is there that can be used.  Any thread. */
bool qn_mpi_available(void);

/* The group of all processes, of which there are at least two; the same one
 * each time.  QN_E_UNSUPPORTED without a usable library or other processes.
 * Without `must`, a process that no launcher is known to have started is taken
 * to be alone and MPI is not initialised.  Under qn_eval_begin. */
qn_status qn_mpi_world(qn_group **out, bool must);

/* At most this many elements in one message from now on; 0: the usual number.
 * For tests. */
void qn_test_mpi_chunk(size_t elements);

#endif
