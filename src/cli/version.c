/* version.c: `quern version`. */
#include "cli.h"

#include "base/cpu.h"

/* The build says which commit it was made from, where it knows. */
#ifndef QUERN_COMMIT
#define QUERN_COMMIT ""
#endif
#ifdef QUERN_ENGINE_DLOPEN
#define ENGINE "libmlxc"
#define BACKEND "mlx"
#else
#define ENGINE "(built in)"
#define BACKEND "cpu"
#endif

/* What this release implements of interfaces that have versions. */
static const struct {
    const char *key, *name, *version;
} specs[] = {
    {"mlx_c_api", "MLX C API", "0.32.2"},
    {"gguf", "GGUF", "2, 3"},
    {"json", "JSON output", "1"},
};

enum { SPECS = sizeof specs / sizeof *specs };

const char *qn_cli_commit(void)
{
    return *QUERN_COMMIT ? QUERN_COMMIT : NULL;
}

static void print_text(qn_buf *out)
{
    const char *commit = qn_cli_commit();
    qn_buf_printf(out, "quern %s%s%s%s\n", quern_release(), commit ? " (" : "",
                  commit ? commit : "", commit ? ")" : "");
    qn_buf_printf(out, "%-12s %s (%s)\n", "backends", BACKEND,
                  qn_isa_name(qn_cpu_isa()));
    qn_buf_printf(out, "%-12s %s\n", "engine", ENGINE);
    for (int i = 0; i < SPECS; i++)
        qn_buf_printf(out, "%-12s %s\n", specs[i].name, specs[i].version);
    qn_buf_printf(out, "%-12s MIT\n", "licence");
}

static void print_json(qn_buf *out)
{
    qn_json_writer w;
    qn_json_write_begin(&w, out);
    qn_json_write_object(&w);
    qn_json_write_key(&w, "schema");
    qn_json_write_text(&w, "quern.version/1");
    qn_json_write_key(&w, "version");
    qn_json_write_text(&w, quern_release());
    qn_json_write_key(&w, "commit");
    qn_json_write_text(&w, qn_cli_commit());
    qn_json_write_key(&w, "backends");
    qn_json_write_array(&w);
    qn_json_write_text(&w, BACKEND);
    qn_json_write_array_end(&w);
    qn_json_write_key(&w, "isa");
    qn_json_write_text(&w, qn_isa_name(qn_cpu_isa()));
    qn_json_write_key(&w, "engine");
    qn_json_write_text(&w, ENGINE);
    for (int i = 0; i < SPECS; i++) {
        qn_json_write_key(&w, specs[i].key);
        qn_json_write_text(&w, specs[i].version);
    }
    qn_json_write_key(&w, "licence");
    qn_json_write_text(&w, "MIT");
    qn_json_write_object_end(&w);
}

int qn_cli_version(qn_cli *cli)
{
    qn_buf out = QN_BUF_INIT;
    if (!cli->json) {
        print_text(&out);
        return qn_out_buffer(cli, &out);
    }
    print_json(&out);
    return qn_out_json(cli, &out);
}
