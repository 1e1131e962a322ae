/* mpi_open.c: the binary interface of Open MPI.
 *
 * Handles are pointers to objects, and predefined ones are the addresses of
 * objects that the library exports (mpi.h of Open MPI 4.1: OMPI_PREDEFINED_
 * GLOBAL; MPI_IN_PLACE is 1).  Unchanged from 1.3 to 5.0. */
#define HANDLE void *
#define IN_PLACE ((const void *)1)
#define ABI qn_mpi_open
#define FAMILY "Open MPI"
#include "mpi_calls.inc"

static qn_status find_constants(void *library)
{
    static const char *const types[] = {"ompi_mpi_uint8_t", "ompi_mpi_uint16_t",
                                        "ompi_mpi_uint32_t",
                                        "ompi_mpi_uint64_t"};
    qn_status status =
        qn_mpi_symbol(&mpi.world, library, "ompi_mpi_comm_world");
    if (!status)
        status = qn_mpi_symbol(&mpi.errors_return, library,
                               "ompi_mpi_errors_return");
    for (int i = 0; i < 4 && !status; i++)
        status = qn_mpi_symbol(&mpi.types[i], library, types[i]);
    return status;
}
