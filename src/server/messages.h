/* messages.h: conversations as OpenAI's chat completions write them. */
#ifndef QN_SERVER_MESSAGES_H
#define QN_SERVER_MESSAGES_H

#include "fields.h"

/* The two steps of reading `messages`, rows of a table (fields.h). */
qn_field_step qn_messages_shape;
qn_field_step qn_messages_check;

/* Whether the last message is an assistant's text that can be continued. */
bool qn_messages_continue(const qn_json *messages);

/* Writes checked messages as a template wants them: developer is system, the
 * arguments of calls are objects, reasoning has one name, and the parts of a
 * content are one text unless the template reads `lists`. */
void qn_messages_write(qn_buf *out, const qn_json *messages, bool lists);

/* Whether a template's source goes through the parts of a content. */
bool qn_template_reads_lists(const char *source);

#endif
