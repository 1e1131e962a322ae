/* unicode.c: character classes and case, from utf8proc's categories and
 * simple mappings plus the table of the mappings that are longer. */
#include "unicode.h"

#include "base/utf8.h"

#include <utf8proc.h>

typedef struct casing_row {
    uint32_t code;
    const char *upper, *title;
} casing_row;

static const casing_row casings[] = {
#define QN_CASING(code, upper, title) {code, upper, title},
#include "casing.def"
#undef QN_CASING
};

static utf8proc_category_t category(uint32_t code)
{
    return utf8proc_category((utf8proc_int32_t)code);
}

bool qn_junicode_space(uint32_t code)
{
    if (code < 0x80)
        return code == ' ' || (code >= '\t' && code <= '\r') ||
               (code >= 0x1c && code <= 0x1f);
    return code == 0x85 || code == 0xa0 || code == 0x1680 ||
           (code >= 0x2000 && code <= 0x200a) || code == 0x2028 ||
           code == 0x2029 || code == 0x202f || code == 0x205f || code == 0x3000;
}

bool qn_junicode_newline(uint32_t code)
{
    return (code >= '\n' && code <= '\r') || (code >= 0x1c && code <= 0x1e) ||
           code == 0x85 || code == 0x2028 || code == 0x2029;
}

bool qn_junicode_name(uint32_t code, bool first)
{
    if (code < 0x80) {
        bool letter = (code | 32) >= 'a' && (code | 32) <= 'z';
        return letter || code == '_' || (!first && code >= '0' && code <= '9');
    }
    switch (category(code)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_NL:
        return true;
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_PC:
        return !first;
    default:
        return false;
    }
}

bool qn_junicode_printable(uint32_t code)
{
    if (code < 0x7f)
        return code >= ' ';
    switch (category(code)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
        return false;
    default:
        return true;
    }
}

bool qn_junicode_alpha(uint32_t code)
{
    switch (category(code)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
        return true;
    default:
        return false;
    }
}

typedef struct code_range {
    uint32_t from, to;
} code_range;

static bool in_ranges(uint32_t code, const code_range *ranges, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (code >= ranges[i].from && code <= ranges[i].to)
            return true;
    return false;
}

#define IN_RANGES(code, ranges)                                                \
    in_ranges(code, ranges, sizeof(ranges) / sizeof *(ranges))

/* Other_Uppercase and Other_Lowercase of PropList.txt: circled and Roman
 * letters, modifier letters, ordinal indicators. */
static const code_range other_upper[] = {
    {0x2160, 0x216f},   {0x24b6, 0x24cf},   {0x1f130, 0x1f149},
    {0x1f150, 0x1f169}, {0x1f170, 0x1f189},
};
static const code_range other_lower[] = {
    {0xaa, 0xaa},       {0xba, 0xba},       {0x2b0, 0x2b8},
    {0x2c0, 0x2c1},     {0x2e0, 0x2e4},     {0x345, 0x345},
    {0x37a, 0x37a},     {0x1d2c, 0x1d6a},   {0x1d78, 0x1d78},
    {0x1d9b, 0x1dbf},   {0x2071, 0x2071},   {0x207f, 0x207f},
    {0x2090, 0x209c},   {0x2170, 0x217f},   {0x24d0, 0x24e9},
    {0x2c7c, 0x2c7d},   {0xa69c, 0xa69d},   {0xa770, 0xa770},
    {0xa7f8, 0xa7f9},   {0xab5c, 0xab5f},   {0x10780, 0x10780},
    {0x10783, 0x10785}, {0x10787, 0x107b0}, {0x107b2, 0x107ba},
};

/* Numeric_Type=Digit beyond the decimals: superscripts, circled digits. */
static const code_range other_digit[] = {
    {0xb2, 0xb3},       {0xb9, 0xb9},       {0x1369, 0x1371},
    {0x19da, 0x19da},   {0x2070, 0x2070},   {0x2074, 0x2079},
    {0x2080, 0x2089},   {0x2460, 0x2468},   {0x2474, 0x247c},
    {0x2488, 0x2490},   {0x24ea, 0x24ea},   {0x24f5, 0x24fd},
    {0x24ff, 0x24ff},   {0x2776, 0x277e},   {0x2780, 0x2788},
    {0x278a, 0x2792},   {0x10a40, 0x10a43}, {0x10e60, 0x10e68},
    {0x11052, 0x1105a}, {0x1f100, 0x1f10a},
};

bool qn_junicode_upper(uint32_t code)
{
    if (code < 0x80)
        return code >= 'A' && code <= 'Z';
    return category(code) == UTF8PROC_CATEGORY_LU ||
           IN_RANGES(code, other_upper);
}

bool qn_junicode_lower(uint32_t code)
{
    if (code < 0x80)
        return code >= 'a' && code <= 'z';
    return category(code) == UTF8PROC_CATEGORY_LL ||
           IN_RANGES(code, other_lower);
}

bool qn_junicode_title(uint32_t code)
{
    return code >= 0x80 && category(code) == UTF8PROC_CATEGORY_LT;
}

bool qn_junicode_decimal(uint32_t code)
{
    return category(code) == UTF8PROC_CATEGORY_ND;
}

bool qn_junicode_digit(uint32_t code)
{
    return qn_junicode_decimal(code) || IN_RANGES(code, other_digit);
}

bool qn_junicode_numeric(uint32_t code)
{
    switch (category(code)) {
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
        return true;
    default:
        return false;
    }
}

bool qn_junicode_cased(uint32_t code)
{
    return qn_junicode_upper(code) || qn_junicode_lower(code) ||
           qn_junicode_title(code);
}

bool qn_junicode_ignorable(uint32_t code)
{
    switch (code) { /* Word_Break = MidLetter, MidNumLet, Single_Quote */
    case '\'':
    case '.':
    case ':':
    case 0xb7:
    case 0x387:
    case 0x55f:
    case 0x5f4:
    case 0x2018:
    case 0x2019:
    case 0x2024:
    case 0x2027:
    case 0xfe13:
    case 0xfe52:
    case 0xfe55:
    case 0xff07:
    case 0xff0e:
    case 0xff1a:
        return true;
    default:
        break;
    }
    switch (category(code)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
        return true;
    default:
        return false;
    }
}

/* The row of a character with a longer mapping; NULL for most. */
static const casing_row *find_casing(uint32_t code)
{
    size_t low = 0, high = sizeof casings / sizeof *casings;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (casings[middle].code < code)
            low = middle + 1;
        else
            high = middle;
    }
    if (low < sizeof casings / sizeof *casings && casings[low].code == code)
        return &casings[low];
    return NULL;
}

int qn_junicode_map(uint32_t out[3], qn_jcasing casing, uint32_t code)
{
    if (code < 0x80) {
        bool small = code >= 'a' && code <= 'z';
        bool large = code >= 'A' && code <= 'Z';
        out[0] = code;
        if (casing == QN_JLOWER ? large : small)
            out[0] ^= 32;
        return 1;
    }
    utf8proc_int32_t c = (utf8proc_int32_t)code;
    if (casing == QN_JLOWER) {
        out[0] = (uint32_t)utf8proc_tolower(c);
        if (code != 0x130)
            return 1;
        out[0] = 'i'; /* I with a dot keeps the dot */
        out[1] = 0x307;
        return 2;
    }
    const casing_row *row = find_casing(code);
    if (!row) {
        out[0] = (uint32_t)(casing == QN_JUPPER ? utf8proc_toupper(c)
                                                : utf8proc_totitle(c));
        return 1;
    }
    qn_str text = qn_str_of(casing == QN_JUPPER ? row->upper : row->title);
    int count = 0;
    for (size_t at = 0; at < text.size && count < 3;) {
        int n = qn_utf8_decode(text.data + at, text.data + text.size,
                               &out[count++]);
        at += n > 0 ? (size_t)n : 1;
    }
    return count;
}
