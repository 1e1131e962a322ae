/* mpi_mpich.c: the binary interface of MPICH and its relatives.
 *
 * Handles are ints, and predefined ones are numbers (mpi.h of MPICH 4.0.2;
 * MPI_IN_PLACE is -1).  Fixed since 3.1 by the MPICH ABI Compatibility
 * Initiative, which Intel MPI and MVAPICH2 share. */
#define HANDLE int
#define IN_PLACE ((const void *)-1)
#define ABI qn_mpi_mpich
#define FAMILY "MPICH"
#include "mpi_calls.inc"

static qn_status find_constants(void *library)
{
    (void)library;
    mpi.world = 0x44000000;
    mpi.errors_return = 0x54000001;
    mpi.types[0] = 0x4c00013b; /* MPI_UINT8_T */
    mpi.types[1] = 0x4c00023c; /* MPI_UINT16_T */
    mpi.types[2] = 0x4c00043d; /* MPI_UINT32_T */
    mpi.types[3] = 0x4c00083e; /* MPI_UINT64_T */
    return QN_OK;
}
