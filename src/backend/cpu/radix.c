/* radix.c: the sorts of each kind of item: by digits of the key from the lowest
 * to the highest (LSD radix sort). */
#include "radix.h"

#include <stdbool.h>
#include <string.h>

enum {
    SHORT = 40, /* sorted by insertion */
    FEW = 600   /* so many don't fill the buckets of long digits */
};

/* How many bits numbers below n have. */
static int bits_of(size_t n)
{
    int bits = 0;
    for (n--; n; n >>= 1)
        bits++;
    return bits;
}

#define ITEM uint32_t
#define KEY(x) (x)
#define NAME(function) function##_u32
#include "radix.inc"
#undef ITEM
#undef NAME

#define ITEM uint64_t
#define NAME(function) function##_u64
#include "radix.inc"
#undef ITEM
#undef KEY
#undef NAME

#define ITEM qn_wide_item
#define KEY(x) ((x).key)
#define NAME(function) function##_wide
#include "radix.inc"
