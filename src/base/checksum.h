/* checksum.h: CRC-64, to notice that bytes are not those that were written.
 *
 * The polynomial of ECMA-182 with reflected bits, first and last value all
 * ones ("CRC-64/XZ"): that of "123456789" is 995dc9bbdf1939fa.  It finds every
 * change within 64 neighbouring bits and misses others once in 2^64.  It is no
 * protection against somebody who means harm. */
#ifndef QN_BASE_CHECKSUM_H
#define QN_BASE_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

/* The checksum of all that was given so far; begin with 0. */
uint64_t qn_crc64(uint64_t crc, const void *data, size_t size);

#endif
