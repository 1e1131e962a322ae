/* http.c: cases that are requests to `quern serve`: the model is prepared
 * here, server/run.py does the rest and writes a line for each fault. */
#include "case.h"

#include "base/alloc.h"
#include "base/file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Copies, patches and scripts the model of a case into `folder`. */
static bool prepare(const qn_json *c, const case_context *context,
                    const char *folder, uint32_t which, int64_t *length)
{
    const qn_json *server = qn_json_get(c, "server");
    const qn_json *script = qn_json_get(server, "script");
    qn_buf source = QN_BUF_INIT;
    qn_str template;
    qn_buf_printf(&source, "%s/fixtures/%s", context->folder,
                  case_keep(case_text(server, "model")));
    bool good = !qn_buf_status(&source) &&
                case_copy_folder(source.data, folder) &&
                case_patch_config(folder, qn_json_get(server, "config_patch"));
    if (good && qn_json_as_str(qn_json_get(server, "template"), &template)) {
        char *text = NULL;
        size_t size = 0;
        qn_buf target = QN_BUF_INIT;
        qn_buf_clear(&source);
        qn_buf_printf(&source, "%s/fixtures/%s", context->folder,
                      case_keep(template));
        qn_buf_printf(&target, "%s/chat_template.jinja", folder);
        good = !qn_file_read(&text, &size, source.data, 1 << 20) &&
               !qn_file_write_atomic(target.data, text, size);
        qn_free(text);
        qn_buf_free(&target);
    }
    qn_buf_free(&source);
    if (!good)
        case_fail("case: the model can't be prepared");
    if (good && script)
        case_write_script(folder, script, which, length);
    return good && *length >= 0;
}

static bool write_case(const qn_json *c, const char *path)
{
    qn_buf text = QN_BUF_INIT;
    qn_json_writer w;
    qn_json_write_begin(&w, &text);
    qn_json_write_value(&w, c);
    bool good = !qn_buf_status(&text) &&
                !qn_file_write_atomic(path, text.data, text.size);
    qn_buf_free(&text);
    return good;
}

/* Each line that the program writes is a fault. */
static void take_lines(FILE *lines)
{
    char line[2048];
    while (fgets(line, sizeof line, lines)) {
        line[strcspn(line, "\n")] = '\0';
        case_fail("%s", line);
    }
}

static void run_program(const char *model, const char *path, int64_t length)
{
    char pieces[24];
    int ends[2], status = 0;
    snprintf(pieces, sizeof pieces, "%lld", (long long)length);
    if (pipe(ends)) {
        case_fail("case: no pipe: %s", strerror(errno));
        return;
    }
    pid_t pid = fork();
    if (!pid) {
        dup2(ends[1], STDOUT_FILENO);
        close(ends[0]);
        close(ends[1]);
        /* The server's own lines are of no use unless it fails. */
        execlp("python3", "python3", "-B", QN_TEST_SERVER_RUN, QN_TEST_PROGRAM,
               model, path, pieces, (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    FILE *lines = fdopen(ends[0], "r");
    if (lines)
        take_lines(lines);
    if (waitpid(pid, &status, 0) < 0 || status)
        case_fail("%s ends with %d", QN_TEST_SERVER_RUN, status);
    if (lines)
        fclose(lines);
}

static void run_once(const qn_json *c, const case_context *context,
                     uint32_t which)
{
    char name[32];
    snprintf(name, sizeof name, "served-%u", which);
    char *folder = qn_path_join(context->scratch, name);
    char *path = qn_path_join(context->scratch, "case.json");
    int64_t length = 0;
    if (!folder || !path || !write_case(c, path))
        case_fail("case: no scratch file");
    else if (prepare(c, context, folder, which, &length))
        run_program(folder, path, length);
    qn_free(folder);
    qn_free(path);
}

void run_server_case(const qn_json *c, const case_context *context)
{
    const qn_json *sizes = qn_json_get(
        qn_json_get(qn_json_get(c, "server"), "script"), "piece_size");
    bool list = sizes && sizes->type == QN_JSON_T_ARRAY;
    for (uint32_t i = 0; i < (list ? sizes->count : 1) && !case_failed(); i++)
        run_once(c, context, i);
}
