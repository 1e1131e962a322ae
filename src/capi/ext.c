/* ext.c: who and where the engine is. */
#include "quern/ext.h"

#include "base/cpu.h"

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
