/* template.h: chat templates, a Jinja engine over JSON values.
 *
 * The language is the subset of runtime specification 4.1.  Parsing refuses
 * what is not implemented with line and construct (QN_E_UNSUPPORTED); a
 * syntax error is QN_E_FORMAT; raise_exception and type errors while
 * rendering are QN_E_ARG with the template's own message, the line of the
 * template in the error's place.  Rendering is bounded: 1e7 steps, 16 MiB of
 * output, 256 MiB of memory, depth 128.  A parsed template is immutable and
 * may be rendered by several threads at once. */
#ifndef QN_TEXT_TEMPLATE_H
#define QN_TEXT_TEMPLATE_H

#include "base/json.h"

typedef struct qn_template qn_template;

/* Copies `source`.  The caller owns *out (qn_template_free). */
qn_status qn_template_parse(qn_template **out, qn_str source);
void qn_template_free(qn_template *tmpl);

/* Renders with the variables of `vars`, a JSON object (messages, tools,
 * add_generation_prompt, bos_token, ...).  Appends to `out`.
 * `taint` (may be NULL) receives a bitmap, bit i % 8 of byte i / 8 for byte i
 * of this rendering (not of what `out` had before): set where the byte came
 * from the value of a variable named in `tainted`, an array of `tainted_count`
 * variable names (usually messages, tools, documents), also through filters and
 * concatenation. */
qn_status qn_template_render(const qn_template *tmpl, qn_buf *out,
                             qn_buf *taint, const qn_json *vars,
                             const char *const *tainted, size_t tainted_count);

/* True when the template's source reads the variable anywhere. */
bool qn_template_mentions(const qn_template *tmpl, const char *variable);

#endif
