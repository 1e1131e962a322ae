/* report.h: what a conversion has done, as a JSON document. */
#ifndef QN_CONVERT_REPORT_H
#define QN_CONVERT_REPORT_H

#include "convert.h"

/* The caller owns *out (qn_free). */
qn_status qn_convert_report(char **out, const qn_origin *source,
                            const char *destination, uint64_t bytes, int files,
                            double seconds);

#endif
