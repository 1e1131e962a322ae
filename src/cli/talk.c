/* talk.c: see talk.h. */
#include "talk.h"

#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"
#include "base/utf8.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILE_LIMIT = 64 << 20 };

const int qn_talk_flags[] = {QN_FLAG_TEMPERATURE,
                             QN_FLAG_TOP_P,
                             QN_FLAG_TOP_K,
                             QN_FLAG_MIN_P,
                             QN_FLAG_TYPICAL_P,
                             QN_FLAG_XTC_PROBABILITY,
                             QN_FLAG_XTC_THRESHOLD,
                             QN_FLAG_REPETITION,
                             QN_FLAG_REPETITION_SIZE,
                             QN_FLAG_PRESENCE,
                             QN_FLAG_PRESENCE_SIZE,
                             QN_FLAG_FREQUENCY,
                             QN_FLAG_FREQUENCY_SIZE,
                             QN_FLAG_SEED,
                             QN_FLAG_MAX_TOKENS,
                             QN_FLAG_MIN_TOKENS,
                             -1};

/* ---- messages ---- */

static void free_message(qn_message *m)
{
    qn_free(m->role);
    qn_free(m->content);
}

void qn_talk_cut(qn_talk *t, size_t count)
{
    while (t->count > count)
        free_message(&t->items[--t->count]);
}

void qn_talk_clear(qn_talk *t)
{
    qn_talk_cut(t, 0);
    qn_free(t->items);
    qn_free(t->system);
    for (int i = 0; i < QN_FLAG_COUNT; i++)
        qn_free(t->texts[i]);
    qn_args_free(&t->settings);
    memset(t, 0, sizeof *t);
}

qn_status qn_talk_add(qn_talk *t, const char *role, qn_str content)
{
    if (t->count == t->capacity) {
        size_t capacity = t->capacity ? 2 * t->capacity : 16;
        qn_message *grown = qn_reallocarray(t->items, capacity, sizeof *grown);
        if (!grown)
            return QN_E_NOMEM;
        t->items = grown;
        t->capacity = capacity;
    }
    qn_message m = {qn_strdup(role), qn_strndup(content.data, content.size)};
    if (!m.role || !m.content) {
        free_message(&m);
        return QN_E_NOMEM;
    }
    t->items[t->count++] = m;
    return QN_OK;
}

qn_status qn_talk_set_system(qn_talk *t, const char *text)
{
    char *copy = *text ? qn_strdup(text) : NULL;
    if (*text && !copy)
        return QN_E_NOMEM;
    qn_free(t->system);
    t->system = copy;
    return QN_OK;
}

qn_status qn_talk_set(qn_talk *t, const char *name, const char *value)
{
    for (const int *f = qn_talk_flags; *f >= 0; f++) {
        if (!qn_args_is_named(*f, name))
            continue;
        char *copy = qn_strdup(value);
        qn_args fresh = {0};
        qn_status status =
            copy ? qn_args_preset(&fresh, QN_CMD_CHAT, (qn_flag)*f, copy)
                 : QN_E_NOMEM;
        if (status) {
            qn_free(copy);
            return status;
        }
        qn_free(t->texts[*f]);
        t->texts[*f] = copy;
        t->settings.flag[*f] = fresh.flag[*f];
        return QN_OK;
    }
    return qn_fail(QN_E_ARG, "no setting is called '%s'", name);
}

/* ---- JSON ---- */

static void write_message(qn_json_writer *w, const char *role,
                          const char *content)
{
    qn_json_write_object(w);
    qn_json_write_key(w, "role");
    qn_json_write_text(w, role);
    qn_json_write_key(w, "content");
    qn_json_write_text(w, content);
    qn_json_write_object_end(w);
}

static void write_messages(qn_json_writer *w, const qn_talk *t)
{
    qn_json_write_array(w);
    if (t->system)
        write_message(w, "system", t->system);
    for (size_t i = 0; i < t->count; i++)
        write_message(w, t->items[i].role, t->items[i].content);
    qn_json_write_array_end(w);
}

qn_status qn_talk_json(const qn_talk *t, qn_buf *out)
{
    qn_json_writer w;
    qn_json_write_begin(&w, out);
    write_messages(&w, t);
    return qn_buf_status(out);
}

/* Writes a file that nobody else may read. */
static qn_status write_private(const char *path, const qn_buf *text)
{
    mode_t before = umask(077);
    qn_status status = qn_file_write_atomic(path, text->data, text->size);
    umask(before);
    /* A file that was there has passed its mode on. */
    if (!status && chmod(path, 0600))
        status =
            qn_fail_where(qn_fail(QN_E_IO, "%s", strerror(errno)), "%s", path);
    return status;
}

qn_status qn_talk_save(const qn_talk *t, const char *path)
{
    qn_buf text = QN_BUF_INIT;
    qn_json_writer w;
    qn_json_write_begin(&w, &text);
    qn_json_write_object(&w);
    qn_json_write_key(&w, "schema");
    qn_json_write_text(&w, "quern.chat/1");
    qn_json_write_key(&w, "messages");
    write_messages(&w, t);
    qn_json_write_key(&w, "settings");
    qn_json_write_object(&w);
    for (const int *f = qn_talk_flags; *f >= 0; f++)
        if (t->texts[*f]) {
            qn_json_write_key(&w, qn_args_name(*f));
            qn_json_write_text(&w, t->texts[*f]);
        }
    qn_json_write_object_end(&w);
    qn_json_write_object_end(&w);
    qn_buf_add_char(&text, '\n');
    qn_status status = qn_buf_status(&text);
    if (!status)
        status = write_private(path, &text);
    qn_buf_free(&text);
    return status;
}

static qn_status wrong(const char *what)
{
    return qn_fail(QN_E_FORMAT, "no saved conversation: %s", what);
}

static qn_status read_messages(qn_talk *t, const qn_json *list)
{
    if (!list || list->type != QN_JSON_T_ARRAY)
        return wrong("messages is no list");
    qn_status status = QN_OK;
    for (uint32_t i = 0; i < list->count && !status; i++) {
        qn_str role, content;
        if (!qn_json_as_str(qn_json_get(&list->items[i], "role"), &role) ||
            !qn_json_as_str(qn_json_get(&list->items[i], "content"), &content))
            return wrong("a message has no role or content");
        if (memchr(content.data, 0, content.size))
            return wrong("a message has a NUL byte");
        char *name = qn_strndup(role.data, role.size);
        if (!name)
            return QN_E_NOMEM;
        bool system = !i && !strcmp(name, "system");
        bool known =
            system || !strcmp(name, "user") || !strcmp(name, "assistant");
        status = known ? qn_talk_add(t, name, content)
                       : wrong("a role is neither user nor assistant");
        qn_free(name);
        if (!status && system) {
            t->system = t->items[0].content;
            t->items[0].content = NULL;
            qn_talk_cut(t, 0);
        }
    }
    return status;
}

static qn_status read_settings(qn_talk *t, const qn_json *object)
{
    qn_status status = QN_OK;
    if (!object || object->type != QN_JSON_T_OBJECT)
        return wrong("settings is no object");
    for (uint32_t i = 0; i < object->count && !status; i++) {
        qn_str value;
        if (!qn_json_as_str(&object->items[i], &value))
            return wrong("a setting is no text");
        char *name = qn_strndup(object->keys[i].data, object->keys[i].size);
        char *text = qn_strndup(value.data, value.size);
        status = name && text ? qn_talk_set(t, name, text) : QN_E_NOMEM;
        qn_free(name);
        qn_free(text);
    }
    return status;
}

qn_status qn_talk_parse(qn_talk *t, qn_str text)
{
    qn_json_doc *doc = NULL;
    qn_talk fresh = {0};
    qn_status status = qn_json_parse(&doc, text, 0);
    const qn_json *root = status ? NULL : qn_json_root(doc);
    qn_str schema;
    if (!status && (!qn_json_as_str(qn_json_get(root, "schema"), &schema) ||
                    !qn_str_is(schema, "quern.chat/1")))
        status = wrong("its schema is not quern.chat/1");
    if (!status)
        status = read_messages(&fresh, qn_json_get(root, "messages"));
    if (!status)
        status = read_settings(&fresh, qn_json_get(root, "settings"));
    qn_json_doc_free(doc);
    if (status) {
        qn_talk_clear(&fresh);
        return status;
    }
    qn_talk_clear(t);
    *t = fresh;
    return QN_OK;
}

qn_status qn_talk_load(qn_talk *t, const char *path)
{
    char *text = NULL;
    size_t size;
    qn_status status = qn_file_read(&text, &size, path, FILE_LIMIT);
    if (!status)
        status = qn_talk_parse(t, (qn_str){text, size});
    qn_free(text);
    return status ? qn_fail_where(status, "%s", path) : QN_OK;
}

/* ---- history ---- */

/* A device stays as it is: --history /dev/null may be meant. */
static bool is_device(const char *path)
{
    struct stat info;
    return !stat(path, &info) && S_ISCHR(info.st_mode);
}

static bool make_private(int fd)
{
    struct stat info;
    return !fstat(fd, &info) && (!S_ISREG(info.st_mode) || !fchmod(fd, 0600));
}

qn_status qn_history_check(const char *path)
{
    if (!*path)
        return qn_fail(QN_E_ARG, "--history: expected the name of a file");
    if (is_device(path))
        return QN_OK;
    if (!qn_path_exists(path))
        return qn_file_try(path);
    qn_status status = qn_file_check(path);
    if (!status && access(path, W_OK))
        status = qn_fail_where(
            qn_fail(QN_E_IO, "cannot write: %s", strerror(errno)), "%s", path);
    return status;
}

qn_status qn_history_add(const char *path, const qn_message *m)
{
    qn_buf line = QN_BUF_INIT;
    qn_json_writer w;
    qn_json_write_begin(&w, &line);
    write_message(&w, m->role, m->content);
    qn_buf_add_char(&line, '\n');
    qn_status status = qn_buf_status(&line);
    int fd =
        status
            ? -1
            : open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK,
                   0600);
    if (!status && (fd < 0 || !make_private(fd) ||
                    write(fd, line.data, line.size) != (ssize_t)line.size))
        status =
            qn_fail_where(qn_fail(QN_E_IO, "%s", strerror(errno)), "%s", path);
    if (fd >= 0)
        close(fd);
    qn_buf_free(&line);
    return status;
}

static qn_status
read_line(qn_str line, void (*each)(void *data, const char *text), void *data)
{
    qn_json_doc *doc = NULL;
    qn_str role, content;
    qn_status status = qn_json_parse(&doc, line, 0);
    if (!status &&
        qn_json_as_str(qn_json_get(qn_json_root(doc), "role"), &role) &&
        qn_str_is(role, "user") &&
        qn_json_as_str(qn_json_get(qn_json_root(doc), "content"), &content)) {
        char *text = qn_strndup(content.data, content.size);
        status = text ? QN_OK : QN_E_NOMEM;
        if (text)
            each(data, text);
        qn_free(text);
    }
    qn_json_doc_free(doc);
    return status;
}

qn_status qn_history_parse(qn_str text,
                           void (*each)(void *data, const char *text),
                           void *data)
{
    qn_status status = QN_OK;
    for (size_t at = 0; at < text.size && !status;) {
        const char *line = text.data + at;
        const char *end = memchr(line, '\n', text.size - at);
        size_t n = end ? (size_t)(end - line) : text.size - at;
        if (n)
            status = read_line((qn_str){line, n}, each, data);
        at += n + 1;
    }
    return status;
}

qn_status qn_history_read(const char *path,
                          void (*each)(void *data, const char *text),
                          void *data)
{
    char *text = NULL;
    size_t size = 0;
    if (!qn_path_exists(path) || is_device(path))
        return QN_OK;
    qn_status status = qn_file_read(&text, &size, path, FILE_LIMIT);
    if (!status)
        status = qn_history_parse((qn_str){text, size}, each, data);
    qn_free(text);
    return status ? qn_fail_where(status, "%s", path) : QN_OK;
}
