/* sample.h: a text on which quantized models are compared with their originals
 * where nobody names another. */
#ifndef QN_CLI_SAMPLE_H
#define QN_CLI_SAMPLE_H

extern const char qn_sample_text[];

#endif
