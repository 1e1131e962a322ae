/* model.c: model directories that are patched, opened and run. */
#include "case.h"

#include "base/alloc.h"
#include "base/file.h"

#include <quern/quern.h>

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- the copy ---- */

static bool copy_file(const char *from, const char *to)
{
    char *bytes = NULL;
    size_t size;
    bool good = !qn_file_read(&bytes, &size, from, 1u << 30) &&
                !qn_file_write_atomic(to, bytes, size);
    qn_free(bytes);
    return good;
}

bool case_copy_folder(const char *from, const char *to)
{
    DIR *dir = opendir(from);
    bool good = dir && !mkdir(to, 0700);
    for (struct dirent *e; good && (e = readdir(dir));) {
        if (e->d_name[0] == '.')
            continue;
        char *source = qn_path_join(from, e->d_name);
        char *target = qn_path_join(to, e->d_name);
        good = source && target && copy_file(source, target);
        qn_free(source);
        qn_free(target);
    }
    if (dir)
        closedir(dir);
    return good;
}

/* config.json with the top-level keys of `patch` set or deleted. */
bool case_patch_config(const char *folder, const qn_json *patch)
{
    if (!patch || !patch->count)
        return true;
    char *path = qn_path_join(folder, "config.json"), *text = NULL;
    size_t size;
    qn_json_doc *doc = NULL;
    qn_buf out = QN_BUF_INIT;
    bool good = path && !qn_file_read(&text, &size, path, 16 << 20) &&
                !qn_json_parse(&doc, (qn_str){text, size}, 0);
    if (good) {
        const qn_json *root = qn_json_root(doc);
        qn_json_writer w;
        qn_json_write_begin(&w, &out);
        qn_json_write_object(&w);
        for (uint32_t i = 0; i < root->count; i++)
            if (!qn_json_get_str(patch, root->keys[i])) {
                qn_json_write_key(&w, case_keep(root->keys[i]));
                qn_json_write_value(&w, &root->items[i]);
            }
        for (uint32_t i = 0; i < patch->count; i++) {
            qn_str word;
            if (qn_json_as_str(&patch->items[i], &word) &&
                qn_str_is(word, "__delete__"))
                continue;
            qn_json_write_key(&w, case_keep(patch->keys[i]));
            qn_json_write_value(&w, &patch->items[i]);
        }
        qn_json_write_object_end(&w);
        good = !qn_buf_status(&out) &&
               !qn_file_write_atomic(path, out.data, out.size);
    }
    qn_buf_free(&out);
    qn_json_doc_free(doc);
    qn_free(text);
    qn_free(path);
    return good;
}

/* ---- file operations ---- */

static bool op_write(const char *path, qn_str text, bool in_front)
{
    qn_buf out = QN_BUF_INIT;
    char *old = NULL;
    size_t size = 0;
    qn_buf_add_str(&out, text);
    bool good = !in_front || !qn_file_read(&old, &size, path, 1u << 30);
    qn_buf_add(&out, old, size);
    good = good && !qn_buf_status(&out) &&
           !qn_file_write_atomic(path, out.data ? out.data : "", out.size);
    qn_free(old);
    qn_buf_free(&out);
    return good;
}

static bool op_truncate(const char *path, int64_t drop)
{
    struct stat st;
    return !stat(path, &st) && st.st_size >= drop &&
           !truncate(path, st.st_size - drop);
}

/* ---- shards ---- */

typedef struct tensor {
    qn_str name, dtype;
    const qn_json *shape;
    int64_t begin, end;
} tensor;

static int by_tensor_name(const void *a, const void *b)
{
    const tensor *x = a, *y = b;
    size_t n = x->name.size < y->name.size ? x->name.size : y->name.size;
    int order = memcmp(x->name.data, y->name.data, n);
    return order
               ? order
               : (x->name.size > y->name.size) - (x->name.size < y->name.size);
}

/* One safetensors file with `count` tensors out of `data`. */
static bool write_shard(const char *path, const tensor *list, size_t count,
                        const char *data)
{
    qn_buf head = QN_BUF_INIT, out = QN_BUF_INIT;
    qn_json_writer w;
    int64_t at = 0;
    qn_json_write_begin(&w, &head);
    qn_json_write_object(&w);
    for (size_t i = 0; i < count; i++) {
        qn_json_write_key(&w, case_keep(list[i].name));
        qn_json_write_object(&w);
        qn_json_write_key(&w, "dtype");
        qn_json_write_str(&w, list[i].dtype);
        qn_json_write_key(&w, "shape");
        qn_json_write_value(&w, list[i].shape);
        qn_json_write_key(&w, "data_offsets");
        qn_json_write_array(&w);
        qn_json_write_int(&w, at);
        at += list[i].end - list[i].begin;
        qn_json_write_int(&w, at);
        qn_json_write_array_end(&w);
        qn_json_write_object_end(&w);
    }
    qn_json_write_object_end(&w);
    while (head.size % 8)
        qn_buf_add_char(&head, ' ');
    uint8_t length[8];
    qn_put_le64(length, head.size);
    qn_buf_add(&out, length, 8);
    qn_buf_add(&out, head.data, head.size);
    for (size_t i = 0; i < count; i++)
        qn_buf_add(&out, data + list[i].begin,
                   (size_t)(list[i].end - list[i].begin));
    bool good = !qn_buf_status(&head) && !qn_buf_status(&out) &&
                !qn_file_write_atomic(path, out.data, out.size);
    qn_buf_free(&head);
    qn_buf_free(&out);
    return good;
}

static size_t read_tensors(const qn_json *root, tensor *list, size_t most)
{
    size_t count = 0;
    for (uint32_t i = 0; i < root->count && count < most; i++) {
        const qn_json *offsets = qn_json_get(&root->items[i], "data_offsets");
        tensor *t = &list[count];
        if (!offsets)
            continue;
        t->name = root->keys[i];
        t->dtype = case_text(&root->items[i], "dtype");
        t->shape = qn_json_get(&root->items[i], "shape");
        if (qn_json_as_int(qn_json_at(offsets, 0), &t->begin) &&
            qn_json_as_int(qn_json_at(offsets, 1), &t->end))
            count++;
    }
    qsort(list, count, sizeof *list, by_tensor_name);
    return count;
}

static bool op_shard(const char *folder, size_t parts, bool index)
{
    enum { MOST = 512 };
    static tensor list[MOST];
    char *path = qn_path_join(folder, "model.safetensors"), *bytes = NULL;
    size_t size;
    qn_json_doc *doc = NULL;
    if (!path || !parts || qn_file_read(&bytes, &size, path, 1u << 30) ||
        size < 8)
        return false;
    size_t head = (size_t)qn_le64((const uint8_t *)bytes);
    if (head > size - 8 || qn_json_parse(&doc, (qn_str){bytes + 8, head}, 0))
        return false;
    size_t count = read_tensors(qn_json_root(doc), list, MOST);
    size_t each = count / parts;
    qn_buf map = QN_BUF_INIT;
    qn_json_writer w;
    qn_json_write_begin(&w, &map);
    qn_json_write_object(&w);
    qn_json_write_key(&w, "weight_map");
    qn_json_write_object(&w);
    bool good = true;
    for (size_t p = 0; good && p < parts; p++) {
        char name[64];
        size_t first = p * each, n = p + 1 < parts ? each : count - first;
        snprintf(name, sizeof name, "model-%05zu-of-%05zu.safetensors", p + 1,
                 parts);
        char *shard = qn_path_join(folder, name);
        good = shard && write_shard(shard, list + first, n, bytes + 8 + head);
        for (size_t i = 0; i < n; i++) {
            qn_json_write_key(&w, case_keep(list[first + i].name));
            qn_json_write_text(&w, name);
        }
        qn_free(shard);
    }
    qn_json_write_object_end(&w);
    qn_json_write_object_end(&w);
    if (good && index) {
        char *to = qn_path_join(folder, "model.safetensors.index.json");
        good = to && !qn_buf_status(&map) &&
               !qn_file_write_atomic(to, map.data, map.size);
        qn_free(to);
    }
    good = good && !unlink(path);
    qn_buf_free(&map);
    qn_json_doc_free(doc);
    qn_free(bytes);
    qn_free(path);
    return good;
}

/* Every file moves to blobs/<name>-blob; the folder becomes a snapshot of
 * links.  What the blobs are called does not matter to a loader. */
static bool op_symlink(char **folder, const char *scratch)
{
    qn_buf blobs = QN_BUF_INIT, snapshot = QN_BUF_INIT;
    qn_buf_printf(&blobs, "%s/hub/blobs", scratch);
    qn_buf_printf(&snapshot, "%s/hub", scratch);
    mkdir(snapshot.data, 0700);
    mkdir(blobs.data, 0700);
    qn_buf_add_text(&snapshot, "/snapshots");
    mkdir(snapshot.data, 0700);
    qn_buf_add_text(&snapshot, "/0000000000000000000000000000000000000000");
    bool good = !mkdir(snapshot.data, 0700);
    DIR *dir = opendir(*folder);
    int number = 0;
    for (struct dirent *e; good && dir && (e = readdir(dir));) {
        if (e->d_name[0] == '.')
            continue;
        char blob[600], link[600], from[600], target[600];
        snprintf(from, sizeof from, "%s/%s", *folder, e->d_name);
        snprintf(blob, sizeof blob, "%s/%064d", blobs.data, ++number);
        snprintf(target, sizeof target, "../../blobs/%064d", number);
        snprintf(link, sizeof link, "%s/%s", snapshot.data, e->d_name);
        good = !rename(from, blob) && !symlink(target, link);
    }
    if (dir)
        closedir(dir);
    qn_free(*folder);
    *folder = qn_buf_take(&snapshot);
    qn_buf_free(&blobs);
    return good && *folder;
}

static bool op_move(char **folder, const char *scratch, qn_str to)
{
    qn_buf path = QN_BUF_INIT;
    qn_buf_printf(&path, "%s/%.*s", scratch, (int)to.size, to.data);
    if (qn_buf_status(&path))
        return false;
    for (char *p = path.data + strlen(scratch) + 1; (p = strchr(p, '/')); p++) {
        *p = '\0';
        mkdir(path.data, 0700);
        *p = '/';
    }
    bool good = !rename(*folder, path.data);
    qn_free(*folder);
    *folder = qn_buf_take(&path);
    return good;
}

static bool run_op(char **folder, const char *scratch, const qn_json *op)
{
    qn_str name = case_text(op, "op"), path_name, text = {"", 0};
    char *path = NULL;
    bool good = false;
    qn_json_as_str(qn_json_get(op, "text"), &text);
    if (qn_json_as_str(qn_json_get(op, "path"), &path_name))
        path = qn_path_join(*folder, case_keep(path_name));
    if (qn_str_is(name, "write"))
        good = op_write(path, text, false);
    else if (qn_str_is(name, "prepend"))
        good = op_write(path, text, true);
    else if (qn_str_is(name, "delete"))
        good = !unlink(path);
    else if (qn_str_is(name, "truncate"))
        good = op_truncate(path, case_int(op, "drop_bytes", 0));
    else if (qn_str_is(name, "chmod"))
        good = !chmod(
            path, (mode_t)strtol(case_keep(case_text(op, "mode")), NULL, 8));
    else if (qn_str_is(name, "shard"))
        good = op_shard(*folder, (size_t)case_int(op, "parts", 0),
                        case_bool(op, "index", false));
    else if (qn_str_is(name, "move_dir"))
        good = op_move(folder, scratch, case_text(op, "to"));
    else if (qn_str_is(name, "symlink_to_blobs"))
        good = op_symlink(folder, scratch);
    qn_free(path);
    return good;
}

/* ---- the run ---- */

static void check_logit(const char *what, int64_t id, float found,
                        const qn_json *expected, double tol)
{
    double wanted;
    if (!qn_json_as_double(expected, &wanted))
        return;
    if (!(fabs((double)found - wanted) <= tol))
        case_fail("%s: logit of id %lld: expected %g, found %g", what,
                  (long long)id, wanted, (double)found);
}

static void check_logits(const qn_json *expect, const float *logits,
                         int32_t count)
{
    const qn_json *last = qn_json_get(expect, "last_logits");
    const qn_json *first8 = qn_json_get(last, "first8");
    const qn_json *top5 = qn_json_get(last, "top5");
    const qn_json *values = qn_json_get(last, "top5_logits");
    double tol = 0;
    qn_json_as_double(qn_json_get(expect, "tol"), &tol);
    for (uint32_t i = 0; first8 && i < first8->count && (int)i < count; i++)
        check_logit("first8", i, logits[i], &first8->items[i], tol);
    double least = INFINITY;
    for (uint32_t i = 0; top5 && i < top5->count; i++) {
        int64_t id = -1;
        if (!qn_json_as_int(&top5->items[i], &id) || id < 0 || id >= count)
            continue;
        check_logit("top5", id, logits[id], qn_json_at(values, i), tol);
        least = fmin(least, (double)logits[id]);
    }
    /* Nobody else is among them (but for ties within the tolerance). */
    size_t above = 0;
    for (int32_t i = 0; i < count; i++)
        above += (double)logits[i] > least + 2 * tol;
    if (top5 && above >= top5->count)
        case_fail("top5: %zu logits are above the fifth", above);
}

static int32_t *read_ids(const qn_json *list, size_t *count)
{
    int32_t *ids = qn_calloc((size_t)list->count + 1, sizeof *ids);
    *count = ids ? list->count : 0;
    for (size_t i = 0; i < *count; i++) {
        int64_t id = 0;
        qn_json_as_int(&list->items[i], &id);
        ids[i] = (int32_t)id;
    }
    return ids;
}

static void run_model(quern_model *model, const qn_json *c)
{
    const qn_json *input = qn_json_get(c, "input");
    const qn_json *expect = qn_json_get(c, "expect");
    quern_session *session = NULL;
    quern_info info;
    quern_error error;
    quern_model_info(model, &info);
    const qn_json *messages = qn_json_get(input, "messages");
    const qn_json *text = qn_json_get(qn_json_get(expect, "render"), "text");
    if (messages && text) {
        qn_buf json = QN_BUF_INIT;
        qn_json_writer w;
        qn_json_write_begin(&w, &json);
        qn_json_write_value(&w, messages);
        quern_chat chat;
        quern_chat_init(&chat);
        chat.messages = json.data;
        char *found = NULL;
        if (quern_render(model, &chat, &found, NULL, &error))
            case_fail("render: %s", error.message);
        else if (!qn_str_is(text->text, found))
            case_fail("render: expected \"%.*s\", found \"%s\"",
                      (int)text->text.size, text->text.data, found);
        quern_free(found);
        qn_buf_free(&json);
    }
    if (!qn_json_get(expect, "last_logits"))
        return;
    size_t count;
    int32_t *ids = read_ids(qn_json_get(input, "prompt_ids"), &count);
    float *logits = qn_calloc((size_t)info.vocab_size, sizeof *logits);
    if (!ids || !logits)
        case_fail("out of memory");
    else if (quern_session_new(&session, model, &error) ||
             quern_session_feed(session, ids, count, &error) ||
             quern_session_logits(session, logits, &error))
        case_fail("%s: %s", error.where, error.message);
    else
        check_logits(expect, logits, info.vocab_size);
    quern_session_free(session);
    qn_free(ids);
    qn_free(logits);
}

/* A message is the place and the sentence. */
static void check_message(const qn_json *wanted, const quern_error *error)
{
    char text[2 * QUERN_ERROR_SIZE + 4];
    snprintf(text, sizeof text, "%s: %s", error->where, error->message);
    case_check_message(wanted, text);
}

void run_model_case(const qn_json *c, const case_context *context)
{
    const qn_json *input = qn_json_get(c, "input");
    const qn_json *expect = qn_json_get(c, "expect");
    qn_str fixture;
    if (!qn_json_as_str(qn_json_get(input, "fixture"), &fixture)) {
        case_fail("kind download is not implemented");
        return;
    }
    qn_buf source = QN_BUF_INIT;
    qn_buf_printf(&source, "%s/fixtures/%.*s", context->folder,
                  (int)fixture.size, fixture.data);
    char *folder = qn_path_join(context->scratch, "model");
    const qn_json *ops = qn_json_get(input, "file_ops");
    bool good = folder && case_copy_folder(source.data, folder) &&
                case_patch_config(folder, qn_json_get(input, "config_patch"));
    for (uint32_t i = 0; good && ops && i < ops->count; i++)
        good = run_op(&folder, context->scratch, &ops->items[i]);
    qn_buf_free(&source);
    if (!good) {
        case_fail("case: the model can't be prepared");
        return;
    }
    quern_options options;
    quern_options_init(&options);
    options.dtype = QUERN_DTYPE_F32;
    options.kv = "f32";
    quern_model *model = NULL;
    quern_error error;
    quern_status status = quern_model_load(&model, folder, &options, &error);
    if (case_bool(expect, "error", false)) {
        if (!status)
            case_fail("expected an error, found none");
        else
            check_message(qn_json_get(expect, "message_contains"), &error);
    } else if (status) {
        case_fail("%s: %s", error.where, error.message);
    } else {
        run_model(model, c);
    }
    quern_model_free(model);
    qn_free(folder);
}
