/* runs.h: a line for each measurement, kept in
 * $XDG_STATE_HOME/quern/runs.jsonl. */
#ifndef QN_CLI_RUNS_H
#define QN_CLI_RUNS_H

#include "cli.h"

/* Appends the JSON object `line` with the time, unless --no-record.  Where it
 * can't be kept there is a warning and nothing else. */
void qn_runs_add(const qn_cli *cli, qn_str line);
/* A table of what is kept. */
int qn_runs_show(const qn_cli *cli);

#endif
