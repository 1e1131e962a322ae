/* write_programs.c DIR: for each program of programs.h a file NAME.mlxfn, its
 * inputs NAME.inK.npy and what it gives, NAME.outK.npy: for check_mlxfn.py,
 * which has MLX read them.  No test by itself. */
#include "programs.h"

#include "core/eval.h"
#include "io/file.h"
#include "io/npy.h"
#include "transform/export.h"

static const char *dir;

static char *path_of(const program *p, const char *what, int k)
{
    qn_buf name = QN_BUF_INIT;
    qn_buf_printf(&name, "%s/", dir);
    for (const char *c = p->name; *c; c++)
        qn_buf_add_char(&name, *c == ' ' || *c == ',' ? '_' : *c);
    if (k < 0)
        qn_buf_printf(&name, ".%s", what);
    else
        qn_buf_printf(&name, ".%s%d.npy", what, k);
    return qn_buf_take(&name);
}

static void save(const program *p, const char *what, int k, qn_array *x)
{
    qn_io *file;
    char *path = path_of(p, what, k);
    check_status(qn_io_create(&file, "save", path), QN_OK);
    check_status(qn_io_commit(file, qn_npy_save(file, x)), QN_OK);
    qn_free(path);
}

static void write_program(const program *p)
{
    program_function f = function_of(p);
    qn_array *in[PROGRAM_INPUTS], *out[PROGRAM_OUTPUTS];
    qn_exporter *e;
    qn_arrays list;
    program_inputs(p, in);
    check_status(f.base.call(&f.base, &list, in, (size_t)p->ninputs), QN_OK);
    keep_list(&list, out);
    char *path = path_of(p, "mlxfn", -1);
    check_status(qn_exporter_new(&e, path, false), QN_OK);
    check_status(qn_exporter_add(e, &f.base, in, (size_t)p->ninputs, NULL, 0),
                 QN_OK);
    qn_exporter_free(e);
    qn_free(path);
    for (int i = 0; i < p->ninputs; i++)
        save(p, "in", i, in[i]);
    for (int i = 0; i < p->noutputs; i++)
        save(p, "out", i, out[i]);
}

static void write_all(void **state)
{
    (void)state;
    each_program(write_program);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {BUILD_TEST(write_all)};
    if (argc != 2) {
        fprintf(stderr, "usage: %s DIR\n", argv[0]);
        return 2;
    }
    dir = argv[1];
    return run_build_tests(tests);
}
