/* compare.h: results of an earlier `quern bench --json`. */
#ifndef QN_CLI_COMPARE_H
#define QN_CLI_COMPARE_H

#include "base/json.h"

/* What names a result; two files of one name count as one model, wherever
 * they lie. */
typedef struct qn_bench_key {
    const char *model; /* path */
    const char *test;  /* "pp512" */
    int64_t depth, batch;
} qn_bench_key;

typedef struct qn_earlier qn_earlier;

/* Reads the lines of `path`.  QN_E_FORMAT, with the number of the line, when
 * one is no result.  The caller owns *out (qn_earlier_free). */
qn_status qn_earlier_read(qn_earlier **out, const char *path);
void qn_earlier_free(qn_earlier *earlier);

/* Tokens per second of the last result with the key; 0 when there is none. */
double qn_earlier_rate(const qn_earlier *earlier, const qn_bench_key *key);

#endif
