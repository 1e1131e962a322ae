/* peak.c: the most memory that the process had resident. */
#include "cli.h"

#include <stdio.h>
#include <sys/resource.h>

void qn_peak_reset(void)
{
    FILE *file = fopen("/proc/self/clear_refs", "w");
    if (!file)
        return;
    fputs("5", file);
    fclose(file);
}

size_t qn_peak_resident(void)
{
    FILE *file = fopen("/proc/self/status", "r");
    char line[256];
    size_t kib = 0;
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "VmHWM: %zu", &kib) == 1)
            break;
    if (file)
        fclose(file);
    if (!kib) {
        struct rusage usage;
        getrusage(RUSAGE_SELF, &usage);
        kib = (size_t)usage.ru_maxrss;
    }
    return kib * 1024;
}
