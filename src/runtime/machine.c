/* machine.c: the memory that this process may use, and how fast the machine
 * is.
 *
 * Speeds take half a second to measure, so they are kept in a file that names
 * the processor and the number of threads they belong to. */
#include "runtime.h"

#include "base/alloc.h"
#include "base/bandwidth.h"
#include "base/cpu.h"
#include "base/file.h"
#include "base/json.h"
#include "kv/engine.h"

#include <quern/ext.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- memory ---- */

/* Bytes that the system could hand out without swapping; 0: not known. */
static uint64_t available(void)
{
    char line[256];
    uint64_t kilobytes = 0;
    FILE *file = fopen("/proc/meminfo", "re");
    while (file && fgets(line, sizeof line, file))
        if (!strncmp(line, "MemAvailable:", 13))
            kilobytes = strtoull(line + 13, NULL, 10);
    if (file)
        fclose(file);
    return kilobytes * 1024;
}

static void set_memory(quern_machine *out)
{
    uint64_t total = qn_memory_total(), limit = qn_memory_limit();
    uint64_t there = available();
    out->memory = limit;
    out->limited = limit < total;
    if (!there || there > limit)
        there = limit;
    out->usable = there / 10 * 9;
}

/* ---- speeds ---- */

enum { ROWS = 256, WIDTH = 2048, REPEATS = 3 };

/* The product of ROWS rows with a packed square matrix, once. */
static qn_status multiply(mlx_array x, mlx_array panels,
                          const quern_panel_form *form, mlx_stream s)
{
    mlx_vector_array out = mlx_vector_array_new();
    quern_panel_steps steps = {.residual = {NULL}};
    qn_status status =
        qn_engine(quern_panel_matmul(&out, x, panels, form, &steps, s));
    if (!status)
        status = qn_engine(mlx_eval(out));
    mlx_vector_array_free(out);
    return status;
}

static qn_status make_panels(mlx_array *out, quern_panel_form *form,
                             mlx_stream s)
{
    mlx_array w = {NULL};
    mlx_vector_array parts = mlx_vector_array_new(), list[3];
    for (int i = 0; i < 3; i++)
        list[i] = mlx_vector_array_new();
    qn_status status =
        qn_engine(mlx_ones(&w, (int[]){WIDTH, WIDTH}, 2, MLX_FLOAT16, s));
    if (!status)
        status = qn_engine(mlx_quantize(&parts, w, (mlx_optional_int){64, true},
                                        (mlx_optional_int){4, true}, "affine",
                                        (mlx_array){NULL}, s));
    for (int i = 0; i < 3 && !status; i++) {
        mlx_array part = mlx_array_new();
        status = qn_engine(mlx_vector_array_get(&part, parts, (size_t)i));
        if (!status)
            status = qn_engine(mlx_vector_array_append_value(list[i], part));
        mlx_array_free(part);
    }
    *form = (quern_panel_form){
        .group_size = 64, .bits = 4, .zero = -1, .scale_dtype = MLX_FLOAT16};
    if (!status)
        status = qn_engine(
            quern_panel_pack(out, form, list[0], list[1], list[2], s));
    for (int i = 0; i < 3; i++)
        mlx_vector_array_free(list[i]);
    mlx_vector_array_free(parts);
    if (w.ctx)
        mlx_array_free(w);
    return status;
}

/* Operations a second of products with packed weights; 0: not to be had. */
static double measure_operations(void)
{
    mlx_device device = {NULL};
    mlx_array panels = {NULL}, x = {NULL};
    quern_panel_form form;
    double best = 0;
    if (qn_engine_start() || !quern_panel_available() ||
        mlx_get_default_device(&device))
        return 0;
    mlx_stream s = mlx_stream_new_thread_unsafe(device);
    mlx_device_free(device);
    qn_status status = make_panels(&panels, &form, s);
    if (!status)
        status =
            qn_engine(mlx_ones(&x, (int[]){ROWS, WIDTH}, 2, MLX_FLOAT32, s));
    for (int i = 0; i < REPEATS + 1 && !status; i++) {
        double began = qn_now();
        status = multiply(x, panels, &form, s);
        double spent = qn_now() - began;
        double rate = 2.0 * ROWS * WIDTH * WIDTH / (spent > 0 ? spent : 1);
        best = !status && i && rate > best ? rate : best;
    }
    if (panels.ctx)
        mlx_array_free(panels);
    if (x.ctx)
        mlx_array_free(x);
    mlx_stream_free(s);
    mlx_clear_cache();
    return best;
}

/* ---- what is kept ---- */

/* $XDG_CACHE_HOME/quern/machine.json; NULL: there is no home. */
static char *kept_path(bool make)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    qn_buf name = QN_BUF_INIT;
    if (cache && *cache == '/')
        qn_buf_printf(&name, "%s/quern", cache);
    else if (home && *home == '/')
        qn_buf_printf(&name, "%s/.cache/quern", home);
    else
        return NULL;
    if (make && !qn_buf_status(&name)) {
        char *last = strrchr(name.data, '/');
        *last = '\0';
        mkdir(name.data, 0777);
        *last = '/';
        mkdir(name.data, 0777);
    }
    qn_buf_add_text(&name, "/machine.json");
    return qn_buf_take(&name);
}

static bool read_kept(quern_machine *out, int threads)
{
    enum { LIMIT = 4096 };
    char *path = kept_path(false), *text = NULL;
    size_t size;
    qn_json_doc *doc = NULL;
    qn_str cpu = {"", 0};
    int64_t count = 0;
    double bandwidth = 0, operations = 0;
    bool good = path && !qn_file_read(&text, &size, path, LIMIT) &&
                !qn_json_parse(&doc, (qn_str){text, size}, 0);
    const qn_json *root = good ? qn_json_root(doc) : NULL;
    good = good && qn_json_as_str(qn_json_get(root, "cpu"), &cpu) &&
           qn_str_is(cpu, qn_cpu_name()) &&
           qn_json_as_int(qn_json_get(root, "threads"), &count) &&
           count == threads &&
           qn_json_as_double(qn_json_get(root, "bandwidth"), &bandwidth) &&
           qn_json_as_double(qn_json_get(root, "operations"), &operations) &&
           bandwidth > 0 && operations >= 0;
    if (good) {
        out->bandwidth = bandwidth;
        out->operations = operations;
    }
    qn_json_doc_free(doc);
    qn_free(text);
    qn_free(path);
    return good;
}

static void keep(const quern_machine *m, int threads)
{
    qn_buf text = QN_BUF_INIT;
    qn_json_writer w;
    qn_json_write_begin(&w, &text);
    qn_json_write_object(&w);
    qn_json_write_key(&w, "cpu");
    qn_json_write_text(&w, qn_cpu_name());
    qn_json_write_key(&w, "threads");
    qn_json_write_int(&w, threads);
    qn_json_write_key(&w, "bandwidth");
    qn_json_write_double(&w, m->bandwidth);
    qn_json_write_key(&w, "operations");
    qn_json_write_double(&w, m->operations);
    qn_json_write_object_end(&w);
    char *path = kept_path(true);
    /* Where it can't be kept it is measured again. */
    if (path && !qn_buf_status(&text))
        (void)qn_file_write_atomic(path, text.data, text.size);
    qn_free(path);
    qn_buf_free(&text);
}

void quern_machine_get(quern_machine *out, bool measure)
{
    qn_error kept;
    int threads = qn_cpu_allowed_cores();
    *out = (quern_machine){0};
    qn_error_save(&kept);
    set_memory(out);
    if (!read_kept(out, threads) && measure) {
        out->bandwidth = qn_memory_bandwidth(threads, 0.3);
        out->operations = measure_operations();
        if (out->bandwidth > 0)
            keep(out, threads);
    }
    qn_error_restore(&kept);
}
