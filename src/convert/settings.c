/* settings.c: config.json of the result, and the files beside it. */
#include "convert.h"

#include "base/alloc.h"
#include "settings.h"

#include <dirent.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_BESIDE = 512 << 20 };

/* ---- quantization ---- */

/* How the item is packed in the result; false when it is not. */
static bool is_packed(const qn_item *item, qn_quant *out)
{
    if (item->action == QN_QUANT || item->action == QN_PACK) {
        *out = item->quant;
        return true;
    }
    *out = item->from;
    return item->form == QN_FORM_PACKED && item->action == QN_KEEP;
}

static bool same_quant(const qn_quant *a, const qn_quant *b)
{
    return a->mode == b->mode && a->bits == b->bits && a->group == b->group;
}

/* What most of the packed values have; false when there are none. */
static bool common_quant(const qn_origin *s, qn_quant *out)
{
    uint64_t best = 0;
    for (size_t i = 0; i < s->count; i++) {
        qn_quant q, other;
        uint64_t values = 0;
        if (!is_packed(&s->items[i], &q))
            continue;
        for (size_t j = 0; j < s->count; j++)
            if (is_packed(&s->items[j], &other) && same_quant(&q, &other))
                values += s->items[j].rows * s->items[j].cols;
        if (values > best) {
            best = values;
            *out = q;
        }
    }
    return best > 0;
}

static void write_quant(qn_json_writer *w, const qn_quant *q)
{
    qn_json_write_key(w, "group_size");
    qn_json_write_int(w, q->group);
    qn_json_write_key(w, "bits");
    qn_json_write_int(w, q->bits);
    qn_json_write_key(w, "mode");
    qn_json_write_text(w, qn_quant_mode_name(q->mode));
}

static void write_quantization(qn_json_writer *w, const qn_origin *s)
{
    qn_quant common, q;
    if (!common_quant(s, &common))
        return;
    static const char *const keys[] = {"quantization", "quantization_config"};
    for (size_t k = 0; k < 2; k++) {
        qn_json_write_key(w, keys[k]);
        qn_json_write_object(w);
        write_quant(w, &common);
        for (size_t i = 0; i < s->count; i++) {
            const qn_item *item = &s->items[i];
            if (!is_packed(item, &q) || same_quant(&q, &common))
                continue;
            qn_buf name = QN_BUF_INIT;
            qn_buf_add_str(&name, item->written);
            qn_json_write_key(w, qn_buf_str(&name).data);
            qn_buf_free(&name);
            qn_json_write_object(w);
            write_quant(w, &q);
            qn_json_write_object_end(w);
        }
        qn_json_write_object_end(w);
    }
}

/* ---- config.json ---- */

static bool is_dropped(qn_str key, bool cast)
{
    return qn_str_is(key, "quantization") ||
           qn_str_is(key, "quantization_config") ||
           qn_str_is(key, "auto_map") ||
           (cast && (qn_str_is(key, "dtype") || qn_str_is(key, "torch_dtype")));
}

static void copy_config(qn_json_writer *w, const qn_json *root, bool cast)
{
    for (uint32_t i = 0; i < root->count; i++) {
        if (is_dropped(root->keys[i], cast))
            continue;
        qn_buf key = QN_BUF_INIT;
        qn_buf_add_str(&key, root->keys[i]);
        qn_json_write_key(w, qn_buf_str(&key).data);
        qn_buf_free(&key);
        qn_json_write_value(w, &root->items[i]);
    }
}

qn_status qn_settings_config(qn_buf *out, const qn_origin *s, const char *dtype)
{
    qn_json_writer w;
    qn_status status = QN_OK;
    qn_json_write_begin(&w, out);
    qn_json_write_object(&w);
    if (s->config)
        copy_config(&w, qn_json_root(s->config), dtype != NULL);
    else
        status = qn_settings_from_gguf(&w, s);
    write_quantization(&w, s);
    qn_json_write_object_end(&w);
    qn_buf_add_char(out, '\n');
    return status ? status : qn_buf_status(out);
}

/* ---- files beside it ---- */

static bool ends_with(const char *text, const char *suffix)
{
    size_t size = strlen(text), tail = strlen(suffix);
    return size >= tail && !strcmp(text + size - tail, suffix);
}

/* Weights in any form, what is written anew, code, and hidden files. */
static bool is_left_out(const char *name)
{
    static const char *const suffixes[] = {
        ".safetensors", ".bin",     ".pt",
        ".pth",         ".npz",     ".gguf",
        ".h5",          ".msgpack", ".py",
        ".onnx",        ".ot",      ".safetensors.index.json",
        ".pyc",         ".mlmodel", ".bin.index.json",
    };
    if (name[0] == '.' || !strcmp(name, "config.json"))
        return true;
    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++)
        if (ends_with(name, suffixes[i]))
            return true;
    return false;
}

static qn_status copy_file(const char *from_dir, const char *to_dir,
                           const char *name)
{
    char *from = qn_path_join(from_dir, name), *to = qn_path_join(to_dir, name);
    char *text = NULL;
    size_t size = 0;
    struct stat info;
    qn_status status = from && to ? QN_OK : QN_E_NOMEM;
    if (!status && (stat(from, &info) || !S_ISREG(info.st_mode)))
        goto done; /* folders, and links that lead nowhere */
    if (!status)
        status = qn_file_read(&text, &size, from, MAX_BESIDE);
    if (!status)
        status = qn_file_write_atomic(to, text, size);
    qn_free(text);
done:
    qn_free(from);
    qn_free(to);
    return status;
}

static qn_status copy_files(const char *from, const char *to)
{
    DIR *dir = opendir(from);
    qn_status status = QN_OK;
    if (!dir)
        return QN_OK;
    for (struct dirent *e; !status && (e = readdir(dir));)
        if (!is_left_out(e->d_name))
            status = copy_file(from, to, e->d_name);
    closedir(dir);
    return status;
}

/* How an embedding model pools stands in a folder of its own. */
static qn_status copy_pooling(const char *from_dir, const char *to_dir)
{
    static const char folder[] = "1_Pooling";
    char *from = qn_path_join(from_dir, folder);
    char *to = qn_path_join(to_dir, folder);
    qn_status status = from && to ? QN_OK : QN_E_NOMEM;
    if (!status && qn_path_is_dir(from)) {
        if (mkdir(to, 0777))
            status = qn_fail(QN_E_IO, "cannot create %s", to);
        else
            status = copy_file(from, to, "config.json");
    }
    qn_free(from);
    qn_free(to);
    return status;
}

qn_status qn_settings_copy(const qn_origin *s, const char *dir)
{
    const char *from = qn_weights_dir(s->weights);
    if (!from)
        return qn_settings_tokenizer(s, dir);
    qn_status status = copy_files(from, dir);
    return status ? status : copy_pooling(from, dir);
}
