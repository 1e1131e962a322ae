/* units.c: see units.h. */
#include "units.h"

#include <stdio.h>

const char *qn_size_text(char out[QN_SIZE_TEXT], uint64_t bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double value = (double)bytes;
    int unit = 0;
    for (; value >= 1023.5 && unit < 4; unit++)
        value /= 1024;
    snprintf(out, QN_SIZE_TEXT, "%.*f %s",
             unit < 2       ? 0
             : value < 99.5 ? 2
                            : 1,
             value, units[unit]);
    return out;
}
