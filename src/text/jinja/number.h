/* number.h: Python's numbers: reading, printing and arithmetic. */
#ifndef QN_TEXT_JINJA_NUMBER_H
#define QN_TEXT_JINJA_NUMBER_H

#include "ast.h"

/* int(text, base): digits with an optional sign; base 0 reads the prefixes
 * 0x, 0o, 0b.  False: not an integer, or beyond 64 bits. */
bool qn_jnumber_int(qn_str text, int base, int64_t *out);
/* float(text): also inf and nan.  False: not a number. */
bool qn_jnumber_real(qn_str text, double *out);
/* True for digits with an optional sign, however many. */
bool qn_jnumber_is_decimal(qn_str text);

enum { QN_JNUMBER_TEXT = 32 };
/* repr(value): the shortest text that reads back equal.  Returns its
 * length. */
int qn_jnumber_print(char out[QN_JNUMBER_TEXT], double value);

/* a OP b for the arithmetic operators, on numbers, strings and lists. */
qn_jval qn_jbinary(qn_jrun *run, qn_jop op, qn_jval a, qn_jval b);
qn_jval qn_jnegate(qn_jrun *run, qn_jval value, bool minus);
/* round(value, digits), halves to even. */
double qn_jnumber_round(double value, int digits);
/* int(value): towards zero; fails the run when it does not fit. */
qn_jval qn_jnumber_truncate(qn_jrun *run, double value);

#endif
