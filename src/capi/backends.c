/* backends.c: the list of backends. */
#include "backends.h"

#include "backend/cpu/cpu.h"
#include "core/eval.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static void register_all(void)
{
    const char *strict = getenv("QUERN_STRICT_DEVICES");
    qn_backend_register(QN_DEVICE_CPU, qn_backend_cpu());
    if (!strict || strcmp(strict, "1") != 0)
        qn_backend_register(QN_DEVICE_GPU, qn_backend_cpu());
    qn_cpu_register_kernels();
}

void qn_backends_need(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, register_all);
}

int qn_backends_count(qn_device_type type)
{
    return type == QN_DEVICE_CPU;
}
