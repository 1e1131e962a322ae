/* tools.h: the functions that a request offers, as three protocols write them,
 * and what answers have of their calls. */
#ifndef QN_SERVER_TOOLS_H
#define QN_SERVER_TOOLS_H

#include "fields.h"

/* ---- requests ---- */

/* Rows of a table, into call->tools: the base is of no interest. */
qn_field_step qn_chat_tools_shape; /* [{"type", "function": {"name", ...}}] */
qn_field_step qn_take_chat_tools;
qn_field_step qn_flat_tools_shape; /* [{"type", "name", "parameters", ...}] */
qn_field_step qn_take_flat_tools;
qn_field_step qn_anthropic_tools_shape; /* [{"name", "input_schema", ...}] */
qn_field_step qn_take_anthropic_tools;
/* "auto", "none", {"type":"function", ...}; and {"type":"auto", ...}. */
qn_field_step qn_take_tool_choice;
qn_field_step qn_take_anthropic_choice;
qn_field_step qn_take_parallel_calls;

/* What holds for tools and their choice together. */
bool qn_tools_check(qn_reading *r);

/* Writes tools of a chat's spelling as a template wants them: without null
 * members and `strict`, and each with parameters. */
void qn_chat_tools_write(qn_buf *out, const qn_json *tools);
/* Writes the first `count` functions of a request, and one more of no meaning:
 * a prompt with these begins as one with more up to the last of them. */
void qn_tools_write_first(qn_buf *out, const qn_asked_tools *asked,
                          uint32_t count);
/* Makes call->tools.json, NULL when the model is to see none; refuses them
 * where the model has no way to call them. */
bool qn_tools_prepare(qn_api_call *call, const quern_model *model,
                      qn_api_error *error);

/* ---- answers ---- */

/* The id of call `index` of answer `answer`. */
void qn_call_id(char out[QN_API_ID_SIZE], const qn_api_head *head,
                const char *prefix, size_t answer, size_t index);
/* Appends an object: the arguments of a call, or what is whole of those that
 * broke off, where a text can't stand. */
void qn_arguments_close(qn_buf *out, qn_str arguments);

#endif
