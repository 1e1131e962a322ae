/* unicode.c: fills the class table.
 *
 * Most blocks of 256 code points are equal to another one (unassigned, all
 * letters, ...), so the blocks are stored once each and an index names them.
 * The program holds only the runs of equal categories, 16 KiB. */
#include "unicode.h"

#include <assert.h>
#include <pthread.h>
#include <string.h>

enum { BLOCK_SIZE = 1 << QN_UC_BLOCK_BITS };

uint16_t qn_uc_index[QN_UC_CODES >> QN_UC_BLOCK_BITS];
uint16_t qn_uc_blocks[QN_UC_BLOCK_MAX][BLOCK_SIZE];

static pthread_once_t table_once = PTHREAD_ONCE_INIT;

enum {
    CASELESS = QN_UC_LETTER | QN_UC_WORD | QN_UC_TITLE | QN_UC_LOWER,
    MARK = QN_UC_MARK | QN_UC_WORD | QN_UC_TITLE | QN_UC_LOWER
};

/* The general categories and what they mean for the classes. */
#define CATEGORIES(X)                                                          \
    X(LU, QN_UC_LETTER | QN_UC_WORD | QN_UC_TITLE)                             \
    X(LT, QN_UC_LETTER | QN_UC_WORD | QN_UC_TITLE)                             \
    X(LL, QN_UC_LETTER | QN_UC_WORD | QN_UC_LOWER)                             \
    X(LM, CASELESS)                                                            \
    X(LO, CASELESS)                                                            \
    X(MN, MARK | QN_UC_NONSPACING)                                             \
    X(MC, MARK)                                                                \
    X(ME, MARK)                                                                \
    X(ND, QN_UC_NUMBER | QN_UC_WORD)                                           \
    X(NL, QN_UC_NUMBER | QN_UC_WORD)                                           \
    X(NO, QN_UC_NUMBER)                                                        \
    X(PC, QN_UC_PUNCT | QN_UC_WORD)                                            \
    X(PD, QN_UC_PUNCT)                                                         \
    X(PS, QN_UC_PUNCT)                                                         \
    X(PE, QN_UC_PUNCT)                                                         \
    X(PI, QN_UC_PUNCT)                                                         \
    X(PF, QN_UC_PUNCT)                                                         \
    X(PO, QN_UC_PUNCT)                                                         \
    X(SM, 0)                                                                   \
    X(SC, 0)                                                                   \
    X(SK, 0)                                                                   \
    X(SO, 0)                                                                   \
    X(ZS, 0)                                                                   \
    X(ZL, 0)                                                                   \
    X(ZP, 0)                                                                   \
    X(CC, QN_UC_CONTROL)                                                       \
    X(CF, QN_UC_CONTROL)                                                       \
    X(CS, QN_UC_CONTROL)                                                       \
    X(CO, QN_UC_CONTROL)                                                       \
    X(CN, 0)

typedef enum category {
#define X(name, bits) name,
    CATEGORIES(X)
#undef X
} category;

static const uint16_t category_bits[] = {
#define X(name, bits) bits,
    CATEGORIES(X)
#undef X
};

/* Category in the high byte, the code point after the run's last below. */
static const uint32_t ranges[] = {
#define QN_UNICODE_VERSION(version)
#define QN_RANGE(category, end) (uint32_t) category << 24 | end,
#include "unicode_ranges.def"
#undef QN_RANGE
#undef QN_UNICODE_VERSION
};

enum { RANGES = sizeof ranges / sizeof ranges[0] };

/* The property White_Space of PropList.txt; it has not changed since
 * Unicode 6.3. */
static bool is_white_space(uint32_t code)
{
    return (code >= 0x09 && code <= 0x0d) || code == 0x20 || code == 0x85 ||
           code == 0xa0 || code == 0x1680 ||
           (code >= 0x2000 && code <= 0x200a) || code == 0x2028 ||
           code == 0x2029 || code == 0x202f || code == 0x205f || code == 0x3000;
}

/* Alphabetic symbols that are no letters by their category: the circled and
 * squared Latin letters (part of Other_Alphabetic in PropList.txt). */
static bool is_letter_symbol(uint32_t code)
{
    return (code >= 0x24b6 && code <= 0x24e9) ||
           (code >= 0x1f130 && code <= 0x1f149) ||
           (code >= 0x1f150 && code <= 0x1f169) ||
           (code >= 0x1f170 && code <= 0x1f189);
}

static bool is_ascii_symbol(uint32_t code)
{
    return code < 0x80 && code && strchr("$+<=>^`|~", (int)code);
}

static uint16_t class_of(uint32_t code, unsigned bits)
{
    if (is_white_space(code))
        bits |= QN_UC_SPACE;
    if (is_ascii_symbol(code))
        bits |= QN_UC_PUNCT;
    if (is_letter_symbol(code) || code == 0x200c || code == 0x200d)
        bits |= QN_UC_WORD;
    return (uint16_t)bits;
}

/* The category of a run, or of what follows the last one. */
static category category_at(size_t range)
{
    return range < RANGES ? (category)(ranges[range] >> 24) : CN;
}

static uint32_t end_of(size_t range)
{
    return range < RANGES ? ranges[range] & 0xffffff : QN_UC_CODES;
}

/* Puts a block into the table and returns its number.  Equal blocks are
 * mostly neighbours: look from the end. */
static unsigned enter_block(const uint16_t block[BLOCK_SIZE], unsigned *used)
{
    unsigned at = *used;
    while (at > 0) {
        if (!memcmp(qn_uc_blocks[--at], block, sizeof qn_uc_blocks[0]))
            return at;
    }
    assert(*used < QN_UC_BLOCK_MAX);
    memcpy(qn_uc_blocks[*used], block, sizeof qn_uc_blocks[0]);
    return (*used)++;
}

static void fill_table(void)
{
    /* Most code points lie in blocks that are part of one run and have
     * nothing special: those of a category are one block.  0: not yet. */
    unsigned uniform[CN + 1] = {0}, used = 0;
    size_t range = 0;
    for (uint32_t n = 0; n < QN_UC_CODES >> QN_UC_BLOCK_BITS; n++) {
        uint32_t first = n << QN_UC_BLOCK_BITS;
        while (end_of(range) <= first)
            range++;
        bool whole = first > 0x3000 && first != 0x1f100 &&
                     end_of(range) - first >= BLOCK_SIZE;
        unsigned *same = &uniform[category_at(range)];
        if (!whole || !*same) {
            uint16_t block[BLOCK_SIZE];
            for (uint32_t i = 0; i < BLOCK_SIZE; i++) {
                while (end_of(range) <= first + i)
                    range++;
                block[i] =
                    class_of(first + i, category_bits[category_at(range)]);
            }
            unsigned at = enter_block(block, &used);
            qn_uc_index[n] = (uint16_t)at;
            if (whole)
                *same = at;
        } else {
            qn_uc_index[n] = (uint16_t)*same;
        }
    }
}

void qn_uc_init(void)
{
    pthread_once(&table_once, fill_table);
}

const char *qn_uc_version(void)
{
#define QN_RANGE(category, end)
#define QN_UNICODE_VERSION(version) return version;
#include "unicode_ranges.def"
#undef QN_UNICODE_VERSION
#undef QN_RANGE
}
