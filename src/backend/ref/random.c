/* random.c: bits from keys by Threefry-2x32, 20 rounds.
 *
 * A key gives a stream of 32-bit words: with n words wanted, h = n / 2 and o
 * = n mod 2, the hash of the counter (i, h + o + i) gives words i and h + o +
 * i, and for odd n the hash of (h, 0) gives word h.  Narrow elements are the
 * words' little-endian bytes. */
#include "loops.h"
#include "stage.h"

#include "ops/threefry.h"

#include <string.h>

/* Word `i` of `bytes` bytes at `to`; the last one may be cut. */
static void put_word(unsigned char *to, size_t bytes, size_t i, uint32_t word)
{
    size_t first = 4 * i, n = bytes - first < 4 ? bytes - first : 4;
    for (size_t k = 0; k < n; k++)
        to[first + k] = (unsigned char)(word >> (8 * k));
}

static void fill(unsigned char *to, size_t bytes, qn_threefry_pair key)
{
    size_t n = bytes / 4 + (bytes % 4 != 0), half = n / 2, odd = n % 2;
    for (size_t i = 0; i < half; i++) {
        size_t j = half + odd + i;
        qn_threefry_pair x =
            qn_threefry(key, (qn_threefry_pair){(uint32_t)i, (uint32_t)j});
        put_word(to, bytes, i, x.a);
        put_word(to, bytes, j, x.b);
    }
    if (odd)
        put_word(to, bytes, half,
                 qn_threefry(key, (qn_threefry_pair){(uint32_t)half, 0}).a);
}

/* Elements of 2 and 4 bytes from their bytes in little-endian order; where
 * that is the machine's own, nothing changes. */
static void to_native(void *data, size_t bytes, int width)
{
    unsigned char *p = data;
    for (size_t i = 0; i + (size_t)width <= bytes; i += (size_t)width) {
        uint32_t value = 0;
        for (int k = 0; k < width; k++)
            value |= (uint32_t)p[i + (size_t)k] << (8 * k);
        uint16_t narrow = (uint16_t)value;
        if (width == 2)
            memcpy(p + i, &narrow, sizeof narrow);
        else if (width == 4)
            memcpy(p + i, &value, sizeof value);
    }
}

qn_status qn_ref_random_bits(qn_node *node)
{
    const qn_random_bits_params *p = node->params;
    const qn_array *keys = node->inputs[0];
    qn_array *out = node->outputs[0];
    qn_status status = qn_array_alloc(out);
    if (status || !out->size || !keys->size)
        return status;
    size_t each = out->size / (keys->size / 2) * qn_array_itemsize(out);
    unsigned char *to = qn_array_data(out);
    qn_lines lines;
    qn_walk walk;
    qn_lines_make(&lines, keys->shape, keys->ndim, keys->ndim - 1,
                  (const int64_t *[]){keys->strides}, 1);
    for (qn_walk_start(&walk, &lines.outer, 0, lines.outer.nruns); walk.left;
         qn_walk_next(&walk), to += each) {
        const uint32_t *key = qn_element(keys, walk.offsets[0]);
        fill(to, each, (qn_threefry_pair){key[0], key[lines.step[0]]});
        to_native(to, each, p->width);
    }
    return QN_OK;
}
