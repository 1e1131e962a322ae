/* version.c: `quern version`. */
#include "cli.h"

#include "base/cpu.h"

#include <stdio.h>

/* The build says which commit it was made from, where it knows. */
#ifndef QUERN_COMMIT
#define QUERN_COMMIT ""
#endif

int qn_cli_version(qn_cli *cli)
{
    const char *isa = qn_isa_name(qn_cpu_isa());
    qn_buf line = QN_BUF_INIT;
    if (!cli->json) {
        qn_buf_printf(&line,
                      "quern %s%s%s\nbackends: cpu (%s)\nMLX C API: 0.32.2 "
                      "(built in)\nlicence: MIT",
                      quern_release(), *QUERN_COMMIT ? " " : "", QUERN_COMMIT,
                      isa);
        return qn_out_line(cli, &line);
    }
    qn_json_writer w;
    qn_json_write_begin(&w, &line);
    qn_json_write_object(&w);
    qn_json_write_key(&w, "schema");
    qn_json_write_text(&w, "quern.version/1");
    qn_json_write_key(&w, "version");
    qn_json_write_text(&w, quern_release());
    qn_json_write_key(&w, "commit");
    qn_json_write_text(&w, *QUERN_COMMIT ? QUERN_COMMIT : NULL);
    qn_json_write_key(&w, "backends");
    qn_json_write_array(&w);
    qn_json_write_text(&w, "cpu");
    qn_json_write_array_end(&w);
    qn_json_write_key(&w, "isa");
    qn_json_write_text(&w, isa);
    qn_json_write_key(&w, "mlx_c_api");
    qn_json_write_text(&w, "0.32.2");
    qn_json_write_key(&w, "engine");
    qn_json_write_text(&w, "(built in)");
    qn_json_write_object_end(&w);
    return qn_out_line(cli, &line);
}
