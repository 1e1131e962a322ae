/* mpi.c: finds the MPI library, initialises it, and says goodbye.
 *
 * What is found and what came of initialising it is remembered for good,
 * failures too: MPI can be initialised once in a process. */
#include "mpi.h"

#include "mpi_abi.h"

#include "base/alloc.h"
#include "core/async.h"
#include "core/eval.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Values that all libraries share. */
enum { MPI_OK = 0, MPI_THREAD_SERIALIZED = 2 };
/* The largest that a library writes (MPICH; Open MPI 256). */
enum { LIBRARY_TEXT = 8192, ERROR_TEXT = 512 };

/* Functions without handles: the same in every binary interface. */
#define CALLS(X)                                                               \
    X(MPI_Get_library_version, (char *text, int *size))                        \
    X(MPI_Initialized, (int *yes))                                             \
    X(MPI_Finalized, (int *yes))                                               \
    X(MPI_Init_thread, (int *argc, char ***argv, int want, int *given))        \
    X(MPI_Query_thread, (int *given))                                          \
    X(MPI_Is_thread_main, (int *yes))                                          \
    X(MPI_Finalize, (void))                                                    \
    X(MPI_Error_string, (int code, char *text, int *size))

static struct {
/* clang-format off */
#define X(name, arguments) int (*name) arguments;
    CALLS(X)
#undef X
    /* clang-format on */
} mpi;

/* Written under the evaluation's lock. */
static struct {
    const qn_mpi_abi *abi; /* NULL: no library so far */
    qn_error error;        /* why there is no library, no group */
    bool looked, started;
    qn_group *world;
    pid_t pid;       /* that has initialised it */
    bool any_thread; /* it may be called on */
} state;

/* 1: there, -1: not; 0: nobody has looked. */
static atomic_int found;

/* ---- the library ---- */

qn_status qn_mpi_symbol(void *out, void *library, const char *name)
{
    void *symbol = dlsym(library, name);
    if (!symbol)
        return qn_fail(QN_E_UNSUPPORTED, "[mpi] The library has no %s.", name);
    /* dlsym's pointer is one to a function, whatever its C type says. */
    memcpy(out, &symbol, sizeof symbol);
    return QN_OK;
}

static qn_status use(void *library, const char *name)
{
    static char text[LIBRARY_TEXT];
    int size = 0;
    qn_status status = QN_OK;
#define X(function, arguments)                                                 \
    if (!status)                                                               \
        status = qn_mpi_symbol(&mpi.function, library, #function);
    CALLS(X)
#undef X
    if (status)
        return status;
    const qn_mpi_abi *abi = NULL;
    if (mpi.MPI_Get_library_version(text, &size) == MPI_OK) {
        if (strstr(text, "Open MPI"))
            abi = &qn_mpi_open;
        else if (strstr(text, "MPICH") || strstr(text, "MVAPICH") ||
                 strstr(text, "Intel(R) MPI"))
            abi = &qn_mpi_mpich;
    }
    if (!abi)
        return qn_fail(QN_E_UNSUPPORTED,
                       "[mpi] %s is neither Open MPI nor of the MPICH family: "
                       "%.200s",
                       name, text);
    status = abi->resolve(library);
    if (!status)
        state.abi = abi;
    return status;
}

/* Open MPI's, MPICH's and Debian's name of that. */
static const char *const open_mpi[] = {
#if defined(__APPLE__)
    "libmpi.40.dylib", "libmpi.dylib",
#else
    "libmpi.so.40", "libmpi.so",
#endif
    NULL};
static const char *const mpich[] = {
#if defined(__APPLE__)
    "libmpi.12.dylib",
#else
    "libmpi.so.12", "libmpich.so.12",
#endif
    NULL};

/* Its plugins look for its symbols among the global ones. */
static bool try_each(const char *const *names, int flags, qn_status *status)
{
    for (; *names; names++) {
        void *library = dlopen(*names, RTLD_NOW | RTLD_GLOBAL | flags);
        if (!library)
            continue;
        *status = use(library, *names);
        if (!*status)
            return true;
        dlclose(library);
    }
    return false;
}

static bool started_by_open_mpi(void)
{
    return getenv("OMPI_COMM_WORLD_SIZE") != NULL;
}

/* Processes of MPICH's mpiexec and of others that speak its PMI. */
static bool started_by_pmi(void)
{
    return getenv("PMI_SIZE") != NULL;
}

static qn_status look(void)
{
    const char *given = getenv("MLX_MPI_LIBNAME");
    qn_status status =
        qn_fail(QN_E_UNSUPPORTED,
                "[mpi] needs an MPI library, and none is installed: "
                "no %s, no %s (in Debian the package libopenmpi3)",
                open_mpi[0], mpich[0]);
    if (given && *given) {
        const char *const only[] = {given, NULL};
        status = qn_fail(QN_E_UNSUPPORTED,
                         "[mpi] MLX_MPI_LIBNAME names %s, which is not there",
                         given);
        try_each(only, 0, &status);
        return status;
    }
    bool mpich_first = started_by_pmi() && !started_by_open_mpi();
    const char *const *first = mpich_first ? mpich : open_mpi;
    const char *const *second = mpich_first ? open_mpi : mpich;
    /* One that the program has loaded is the one that it uses. */
    if (!try_each(first, RTLD_NOLOAD, &status) &&
        !try_each(second, RTLD_NOLOAD, &status) && !try_each(first, 0, &status))
        try_each(second, 0, &status);
    return status;
}

static void look_once(void)
{
    if (state.looked)
        return;
    state.looked = true;
    qn_error before;
    qn_error_save(&before);
    qn_status status = look();
    if (status)
        qn_error_save(&state.error);
    qn_error_restore(&before);
    atomic_store(&found, status ? -1 : 1);
}

bool qn_mpi_available(void)
{
    if (!atomic_load(&found)) {
        qn_eval_begin();
        look_once();
        qn_eval_end();
    }
    return atomic_load(&found) > 0;
}

/* ---- the end ---- */

/* Processes that have initialised MPI must finalise it before they end, and
 * that waits for all of them.  One that ends with a failure doesn't: the others
 * may be waiting for its messages, and the launcher, which sees the status,
 * ends them.  Not in a child of fork, not inside of an evaluation, not if the
 * program has done it. */
static void finish(int exit_status)
{
    int over = 1, right_thread = 1;
    if (exit_status || getpid() != state.pid || qn_eval_active())
        return;
    /* What was handed over is still to be sent. */
    qn_async_wait();
    qn_eval_begin();
    if (mpi.MPI_Finalized(&over) == MPI_OK && !over &&
        mpi.MPI_Is_thread_main(&right_thread) == MPI_OK && right_thread)
        mpi.MPI_Finalize();
    qn_eval_end();
}

/* Exit handlers run before the destructors of libraries, and those registered
 * last run first: the library is still whole. */
#if defined(__GLIBC__)
static void finish_with_status(int exit_status, void *unused)
{
    (void)unused;
    finish(exit_status);
}

static void finish_at_exit(void)
{
    on_exit(finish_with_status, NULL);
}
#else
static void finish_plainly(void)
{
    finish(0);
}

static void finish_at_exit(void)
{
    atexit(finish_plainly);
}
#endif

/* ---- the beginning ---- */

qn_status qn_mpi_check(int code, const char *function)
{
    if (code == MPI_OK)
        return QN_OK;
    char text[ERROR_TEXT] = "";
    int size = 0;
    mpi.MPI_Error_string(code, text, &size);
    return qn_fail(QN_E_IO, "[mpi] %s failed: %s", function, text);
}

#define TRY(name, ...) qn_mpi_check(mpi.name(__VA_ARGS__), #name)

/* How many processes the launcher says that it has started; 0: unknown. */
static long launched(void)
{
    const char *size = getenv("OMPI_COMM_WORLD_SIZE");
    if (!size)
        size = getenv("PMI_SIZE");
    return size ? strtol(size, NULL, 10) : 0;
}

static qn_status initialise(void)
{
    int already = 0, over = 0, given = 0;
    qn_status status = TRY(MPI_Initialized, &already);
    if (!status)
        status = TRY(MPI_Finalized, &over);
    if (status)
        return status;
    if (over)
        return qn_fail(QN_E_UNSUPPORTED,
                       "[mpi] MPI has been finalised in this process.");
    if (already) {
        status = TRY(MPI_Query_thread, &given);
    } else {
        status =
            TRY(MPI_Init_thread, NULL, NULL, MPI_THREAD_SERIALIZED, &given);
        state.pid = getpid();
        if (!status)
            finish_at_exit();
    }
    state.pid = getpid();
    state.any_thread = given >= MPI_THREAD_SERIALIZED;
    return status;
}

/* Fails unless there are others. */
static qn_status join(void)
{
    long others = launched();
    qn_group *group = NULL;
    qn_status status = initialise();
    if (!status)
        status = qn_mpi_enter();
    if (!status)
        status = state.abi->world(&group);
    if (status)
        return status;
    if (group->size > 1) {
        state.world = group;
        return QN_OK;
    }
    qn_free(group);
    if (others > 1)
        return qn_fail(QN_E_UNSUPPORTED,
                       "[mpi] The launcher has started %ld processes, but %s, "
                       "which was loaded, knows of one: it is not the "
                       "launcher's library.",
                       others, state.abi->family);
    return qn_fail(QN_E_UNSUPPORTED,
                   "[mpi] The world has a single process. Launch with mpirun "
                   "to initialize the mpi backend.");
}

/* The error of the first attempt, again. */
static qn_status as_before(void)
{
    long others = launched();
    if (!state.abi && others > 1)
        return qn_fail(QN_E_UNSUPPORTED,
                       "%.900s; the launcher has started %ld processes",
                       state.error.text, others);
    return qn_fail(QN_E_UNSUPPORTED, "%s", state.error.text);
}

qn_status qn_mpi_world(qn_group **out, bool must)
{
    if (!state.world) {
        bool launcher =
            started_by_open_mpi() || started_by_pmi() || getenv("PMIX_RANK");
        int initialised = 0;
        look_once();
        if (!state.abi)
            return as_before();
        mpi.MPI_Initialized(&initialised);
        /* Starting MPI in a process alone takes a while and starts others. */
        if (!must && !launcher && !initialised)
            return qn_fail(QN_E_UNSUPPORTED,
                           "[mpi] No launcher has started this process.");
        if (!state.started) {
            state.started = true;
            qn_status status = join();
            if (status)
                qn_error_save(&state.error);
        }
        if (!state.world)
            return as_before();
    }
    *out = state.world;
    return QN_OK;
}

/* ---- for the groups ---- */

qn_status qn_mpi_enter(void)
{
    int over = 0, main_thread = 1;
    if (getpid() != state.pid)
        return qn_fail(QN_E_UNSUPPORTED,
                       "[mpi] A child of the process that has joined the group "
                       "is no member of it.");
    qn_status status = TRY(MPI_Finalized, &over);
    if (!status && over)
        return qn_fail(QN_E_UNSUPPORTED, "[mpi] MPI has been finalised.");
    if (status || state.any_thread)
        return status;
    status = TRY(MPI_Is_thread_main, &main_thread);
    if (!status && !main_thread)
        return qn_fail(QN_E_UNSUPPORTED,
                       "[mpi] This MPI may only be called on the thread that "
                       "has initialised it: evaluate there, and not with "
                       "async_eval.");
    return status;
}

static atomic_size_t chunk;

void qn_test_mpi_chunk(size_t elements)
{
    atomic_store(&chunk, elements);
}

size_t qn_mpi_chunk(void)
{
    size_t elements = atomic_load(&chunk);
    return elements ? elements : (size_t)1 << 30;
}
