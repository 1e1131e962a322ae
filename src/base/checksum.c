/* checksum.c: see checksum.h.  Eight bytes a step, through eight tables: table
 * k has the effect of a byte that k further bytes follow. */
#include "checksum.h"

#include "bytes.h"

#include <pthread.h>

static const uint64_t polynomial = 0xc96c5795d7870f42;
static uint64_t table[8][256];

static void fill_table(void)
{
    for (unsigned i = 0; i < 256; i++) {
        uint64_t crc = i;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? polynomial : 0);
        table[0][i] = crc;
    }
    for (int k = 1; k < 8; k++)
        for (unsigned i = 0; i < 256; i++) {
            uint64_t before = table[k - 1][i];
            table[k][i] = before >> 8 ^ table[0][before & 255];
        }
}

uint64_t qn_crc64(uint64_t crc, const void *data, size_t size)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, fill_table);
    const uint8_t *p = data;
    crc = ~crc;
    for (; size >= 8; p += 8, size -= 8) {
        uint64_t word = crc ^ qn_le64(p);
        crc = 0;
        for (int k = 0; k < 8; k++)
            crc ^= table[7 - k][word >> 8 * k & 255];
    }
    for (; size; p++, size--)
        crc = crc >> 8 ^ table[0][(crc ^ *p) & 255];
    return ~crc;
}
