/* ext.c: who and where the engine is. */
#include "quern/ext.h"

#include "backend/cpu/pool.h"
#include "base/cpu.h"
#include "handles.h"

const char *quern_version(void)
{
    return QUERN_VERSION;
}

const char *quern_library_path(void)
{
    return "(built in)";
}

/* Every device there is, is the CPU. */
const char *quern_device_architecture(void)
{
    return qn_cpu_machine();
}

int quern_engine_open(void)
{
    return 0;
}

int quern_set_threads(int threads)
{
    if (threads < 0 || threads > 512) {
        qn_fail(QN_E_ARG, "[set_threads] expected 0 to 512, found %d", threads);
        return QN_REPORT();
    }
    qn_pool_set_threads(threads);
    return 0;
}
