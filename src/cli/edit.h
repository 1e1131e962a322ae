/* edit.h: lines from the user: with editing and history on a terminal (libedit,
 * loaded when it is there), as they are anywhere else. */
#ifndef QN_CLI_EDIT_H
#define QN_CLI_EDIT_H

#include "base/buf.h"

typedef struct qn_edit qn_edit;

typedef enum qn_line {
    QN_LINE_TEXT,
    QN_LINE_END,         /* end of input: Ctrl-D, or of a file */
    QN_LINE_INTERRUPTED, /* Ctrl-C: what was typed is forgotten */
    QN_LINE_FAILED       /* with qn_fail's sentence */
} qn_line;

/* The caller owns *out (qn_edit_free). */
qn_status qn_edit_new(qn_edit **out);
void qn_edit_free(qn_edit *edit);
bool qn_edit_is_terminal(const qn_edit *edit);
/* Reads a line, without its end, into *out.  A pasted text is one line, its
 * line ends inside. */
qn_line qn_edit_read(qn_edit *edit, const char *prompt, qn_buf *out);
/* Lines that the arrow keys bring back, oldest first. */
void qn_edit_remember(qn_edit *edit, const char *line);

#endif
