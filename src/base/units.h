/* units.h: numbers as people read them. */
#ifndef QN_BASE_UNITS_H
#define QN_BASE_UNITS_H

#include <stdint.h>

/* "512 B", "144 KiB", "2.26 GiB"; returns `out`. */
enum { QN_SIZE_TEXT = 32 };
const char *qn_size_text(char out[QN_SIZE_TEXT], uint64_t bytes);

#endif
