/* unicode.h: what Python's str knows about characters. */
#ifndef QN_TEXT_JINJA_UNICODE_H
#define QN_TEXT_JINJA_UNICODE_H

#include <stdbool.h>
#include <stdint.h>

/* str.isspace, what strip() and split() take for white space. */
bool qn_junicode_space(uint32_t code);
/* Ends a line for splitlines(). */
bool qn_junicode_newline(uint32_t code);
/* May stand in an identifier; `first`: at its start. */
bool qn_junicode_name(uint32_t code, bool first);
/* str.isprintable: repr() shows it as it is. */
bool qn_junicode_printable(uint32_t code);
bool qn_junicode_upper(uint32_t code); /* isupper of one character */
bool qn_junicode_lower(uint32_t code);
bool qn_junicode_title(uint32_t code); /* a digraph like U+01C5 */
bool qn_junicode_alpha(uint32_t code);
bool qn_junicode_digit(uint32_t code);   /* isdigit */
bool qn_junicode_decimal(uint32_t code); /* isdecimal */
bool qn_junicode_numeric(uint32_t code); /* part of isalnum */
/* Has case, or is skipped when looking for a neighbour that has (the final
 * sigma rule, title()). */
bool qn_junicode_cased(uint32_t code);
bool qn_junicode_ignorable(uint32_t code);

typedef enum qn_jcasing { QN_JUPPER, QN_JLOWER, QN_JTITLE } qn_jcasing;

/* The mapping of one character: 1 to 3 code points.  The final sigma is the
 * caller's business. */
int qn_junicode_map(uint32_t out[3], qn_jcasing casing, uint32_t code);

#endif
