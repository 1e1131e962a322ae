/* mpi_abi.h: what mpi.c and the files of the binary interfaces share. */
#ifndef QN_DISTRIBUTED_MPI_ABI_H
#define QN_DISTRIBUTED_MPI_ABI_H

#include "core/group.h"

typedef struct qn_mpi_abi {
    const char *family;
    /* Looks up what the interface needs; QN_E_UNSUPPORTED names what is not
     * there. */
    qn_status (*resolve)(void *library);
    /* A group with messages of its own over all processes. */
    qn_status (*world)(qn_group **out);
} qn_mpi_abi;

extern const qn_mpi_abi qn_mpi_open, qn_mpi_mpich;

/* Whether MPI may be called here and now: in the process and, if the library
 * wants that, on the thread that has initialised it. */
qn_status qn_mpi_enter(void);
/* Turns the answer of an MPI function into a status. */
qn_status qn_mpi_check(int code, const char *function);
/* Elements in one message. */
size_t qn_mpi_chunk(void);

/* dlsym into a function pointer of any type; QN_E_UNSUPPORTED. */
qn_status qn_mpi_symbol(void *out, void *library, const char *name);

#endif
