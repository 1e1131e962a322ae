/* load.h: how fast a server answers several clients at once. */
#ifndef QN_CLI_LOAD_H
#define QN_CLI_LOAD_H

#include "cli.h"

/* `quern bench --server URL`: returns the exit code. */
int qn_load_run(qn_cli *cli);

#endif
