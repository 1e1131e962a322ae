/* fuzz.h: what the targets share.
 *
 * A target is one file, fuzz_<name>.c, with the function below; libFuzzer
 * calls it with made-up inputs, replay.c with the files of corpus/<name>/.
 * It may read the bytes and nothing around them, and says by FUZZ_CHECK what
 * must hold beside "no memory error". */
#ifndef QN_FUZZ_H
#define QN_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define FUZZ_CHECK(condition)                                                  \
    do {                                                                       \
        if (!(condition)) {                                                    \
            fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__,  \
                    #condition);                                               \
            abort();                                                           \
        }                                                                      \
    } while (0)

#endif
