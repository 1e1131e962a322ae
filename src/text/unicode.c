/* unicode.c: fills the class table.
 *
 * Most blocks of 256 code points are equal to another one (unassigned, all
 * letters, ...), so the blocks are stored once each and an index names them:
 * about 40 KiB that stay in the cache instead of a look-up function. */
#include "unicode.h"

#include <pthread.h>
#include <string.h>
#include <utf8proc.h>

enum { BLOCK_SIZE = 1 << QN_UC_BLOCK_BITS };

uint16_t qn_uc_index[QN_UC_TABLE_END >> QN_UC_BLOCK_BITS];
uint8_t qn_uc_blocks[QN_UC_BLOCK_MAX][BLOCK_SIZE];

static pthread_once_t table_once = PTHREAD_ONCE_INIT;

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

uint8_t qn_uc_compute(uint32_t code)
{
    unsigned bits = 0;
    switch (utf8proc_category((utf8proc_int32_t)code)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
        bits = QN_UC_LETTER | QN_UC_WORD;
        break;
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
        bits = QN_UC_MARK | QN_UC_WORD;
        break;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
        bits = QN_UC_NUMBER | QN_UC_WORD;
        break;
    case UTF8PROC_CATEGORY_NO:
        bits = QN_UC_NUMBER;
        break;
    case UTF8PROC_CATEGORY_PC:
        bits = QN_UC_PUNCT | QN_UC_WORD;
        break;
    case UTF8PROC_CATEGORY_PD:
    case UTF8PROC_CATEGORY_PS:
    case UTF8PROC_CATEGORY_PE:
    case UTF8PROC_CATEGORY_PI:
    case UTF8PROC_CATEGORY_PF:
    case UTF8PROC_CATEGORY_PO:
        bits = QN_UC_PUNCT;
        break;
    default:
        break;
    }
    if (is_white_space(code))
        bits |= QN_UC_SPACE;
    if (is_ascii_symbol(code))
        bits |= QN_UC_PUNCT;
    if (is_letter_symbol(code) || code == 0x200c || code == 0x200d)
        bits |= QN_UC_WORD;
    return (uint8_t)bits;
}

static void fill_table(void)
{
    unsigned used = 0;
    for (uint32_t n = 0; n < QN_UC_TABLE_END >> QN_UC_BLOCK_BITS; n++) {
        uint8_t block[BLOCK_SIZE];
        for (uint32_t i = 0; i < BLOCK_SIZE; i++)
            block[i] = qn_uc_compute(n << QN_UC_BLOCK_BITS | i);
        /* Equal blocks are mostly neighbours: look from the end. */
        unsigned at = used;
        while (at > 0 && memcmp(qn_uc_blocks[at - 1], block, sizeof block) != 0)
            at--;
        if (at > 0) {
            qn_uc_index[n] = (uint16_t)(at - 1);
        } else if (used < QN_UC_BLOCK_MAX) {
            memcpy(qn_uc_blocks[used], block, sizeof block);
            qn_uc_index[n] = (uint16_t)used++;
        } else {
            /* No room (a much later Unicode): qn_uc_class computes. */
            qn_uc_index[n] = QN_UC_BLOCK_MAX;
        }
    }
}

void qn_uc_init(void)
{
    pthread_once(&table_once, fill_table);
}

const char *qn_uc_version(void)
{
    return utf8proc_unicode_version();
}
