/* tools.h: calls of functions in the text that a model writes (server
 * specification, section 6).
 *
 * Each family of models spells calls in a way of its own, a row of
 * tools/formats.def.  A parser takes text in pieces of any size and gives
 * pieces: text that belongs to no call, and calls, whose arguments come out as
 * JSON while they are written.  How the text was cut changes nothing in what
 * the pieces join to.
 *
 * No text is lost.  A call is only announced once its function is one of the
 * request's and its arguments have begun as its format wants them; until then
 * all of it is kept, and comes back as text when it turns out to be none.  A
 * call that goes wrong later ends there, with the arguments that it has, and
 * what follows is text. */
#ifndef QN_TEXT_TOOLS_H
#define QN_TEXT_TOOLS_H

#include "base/json.h"

/* ---- formats ---- */

typedef struct qn_tool_format qn_tool_format;

/* NULL when there is no format of this name. */
const qn_tool_format *qn_tool_format_named(const char *name);
/* The first row that a chat template's source shows; NULL: none. */
const qn_tool_format *qn_tool_format_of(qn_str source);
const char *qn_tool_format_name(const qn_tool_format *format);
/* Appends the names of all, with commas. */
void qn_tool_format_list(qn_buf *out);
/* Letters and digits that its templates want an id of a call to have; 0: any
 * text is one. */
size_t qn_tool_format_id_size(const qn_tool_format *format);
/* Whether a token that is spelled so is part of a call, which a parser has to
 * see even where special tokens are no text. */
bool qn_tool_format_has_mark(const qn_tool_format *format, qn_str token);

/* ---- functions ---- */

/* What a request allows to be called. */
typedef struct qn_tools qn_tools;

enum { QN_MOST_TOOLS = 256, QN_TOOL_NAME_SIZE = 64 };

/* Reads [{"type":"function","function":{"name", "parameters"}}, ...]; names
 * are [A-Za-z0-9_.-]{1,64}, each once.  QN_E_ARG names what is wrong.  The
 * caller owns *out (qn_tools_free); the text need not outlive it. */
qn_status qn_tools_parse(qn_tools **out, qn_str json);
void qn_tools_free(qn_tools *tools);
size_t qn_tools_count(const qn_tools *tools);
bool qn_tool_name_valid(qn_str name);

/* ---- parsing ---- */

typedef enum qn_tool_piece {
    QN_TOOL_TEXT,      /* of no call */
    QN_TOOL_CALL,      /* a call begins: the function's name */
    QN_TOOL_ARGUMENTS, /* more of its arguments, JSON */
    QN_TOOL_END,       /* the call is whole: its arguments are an object */
    QN_TOOL_BROKEN     /* it is not, and ends here */
} qn_tool_piece;

/* Takes a piece; a failure ends the parsing. */
typedef qn_status (*qn_tool_take)(void *data, qn_tool_piece piece, qn_str text);

typedef struct qn_tool_parser qn_tool_parser;

/* Borrows `tools`, which must outlive *out (qn_tool_parser_free). */
qn_status qn_tool_parser_new(qn_tool_parser **out, const qn_tool_format *format,
                             const qn_tools *tools, qn_tool_take take,
                             void *data);
void qn_tool_parser_free(qn_tool_parser *parser);
qn_status qn_tool_parser_feed(qn_tool_parser *parser, qn_str text);
/* The text ends here; more may follow, as if it were another one.  `cut`: not
 * by the model's choice, so a call that is not whole is no fault of its. */
qn_status qn_tool_parser_finish(qn_tool_parser *parser, bool cut);
/* Bytes of what was fed that the pieces so far do not come from; also inside
 * of `take`. */
size_t qn_tool_parser_pending(const qn_tool_parser *parser);
/* Calls that began and could not be read. */
size_t qn_tool_parser_failures(const qn_tool_parser *parser);

#endif
