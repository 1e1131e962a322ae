/* licence.c: what a model says of its licence: a file beside it, the front
 * matter of its README.md, or the metadata of a GGUF file. */
#include "licence.h"

#include "base/alloc.h"
#include "base/file.h"
#include "base/gguf.h"

#include <dirent.h>
#include <string.h>
#include <strings.h>

/* ---- a directory ---- */

static bool is_licence_file(const char *name)
{
    static const char *const beginnings[] = {"licen", "copying", "notice"};
    for (size_t i = 0; i < sizeof beginnings / sizeof *beginnings; i++)
        if (!strncasecmp(name, beginnings[i], strlen(beginnings[i])))
            return true;
    return false;
}

/* The first by name, so that the answer does not depend on the order in which
 * the folder lists its files. */
static void find_file(qn_buf *out, const char *folder)
{
    DIR *dir = opendir(folder);
    if (!dir)
        return;
    for (struct dirent *entry; (entry = readdir(dir));) {
        bool first = !out->size || strcmp(entry->d_name, out->data) < 0;
        if (is_licence_file(entry->d_name) && first) {
            qn_buf_clear(out);
            qn_buf_add_text(out, entry->d_name);
        }
    }
    closedir(dir);
}

/* The value of `license:` between two lines of dashes at the top. */
static void find_front_matter(qn_buf *out, const char *text)
{
    if (strncmp(text, "---", 3) != 0)
        return;
    for (const char *line = text; (line = strchr(line, '\n'));) {
        line++;
        if (!strncmp(line, "---", 3))
            return;
        if (strncmp(line, "license:", 8) != 0)
            continue;
        line += 8 + strspn(line + 8, " \t'\"");
        qn_buf_add(out, line, strcspn(line, " \t'\"\r\n"));
        return;
    }
}

static void read_readme(qn_buf *out, const char *folder)
{
    enum { LIMIT = 16 << 20 };
    char *path = qn_path_join(folder, "README.md"), *text = NULL;
    if (path && !qn_file_read(&text, NULL, path, LIMIT))
        find_front_matter(out, text);
    qn_free(text);
    qn_free(path);
}

/* ---- a GGUF file ---- */

static void read_gguf(qn_buf *out, const char *path)
{
    qn_file *file = NULL;
    qn_gguf *gguf = NULL;
    qn_str name;
    if (!qn_file_map(&file, path) &&
        !qn_gguf_parse(&gguf, qn_file_bytes(file)) &&
        !qn_gguf_get_str(gguf, "general.license", &name))
        qn_buf_add_str(out, name);
    qn_gguf_free(gguf);
    qn_file_unref(file);
}

void qn_licence_find(qn_licence *out, const char *path, bool gguf)
{
    *out = (qn_licence){QN_BUF_INIT, QN_BUF_INIT};
    if (gguf) {
        read_gguf(&out->name, path);
        return;
    }
    qn_buf folder = QN_BUF_INIT;
    const char *slash = strrchr(path, '/');
    if (qn_path_is_dir(path))
        qn_buf_add_text(&folder, path);
    else if (slash)
        qn_buf_add(&folder, path, (size_t)(slash - path));
    else
        qn_buf_add_char(&folder, '.');
    if (!qn_buf_status(&folder) && folder.size) {
        find_file(&out->file, folder.data);
        read_readme(&out->name, folder.data);
    }
    qn_buf_free(&folder);
}

void qn_licence_free(qn_licence *licence)
{
    qn_buf_free(&licence->name);
    qn_buf_free(&licence->file);
}
