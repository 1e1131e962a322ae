/* weights.c: opening files and naming what is in them.  See weights.h. */
#include "weights.h"

#include "base/alloc.h"
#include "base/json.h"
#include "base/map.h"
#include "family.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/* One file and its header. */
typedef struct part {
    qn_file *file;
    qn_gguf *gguf;
    qn_st *st;
    char *name; /* of a shard, for the index */
} part;

struct qn_weights {
    char *path, *dir;
    bool gguf;
    part *parts;
    size_t part_count;
    qn_weight *items;
    size_t count;
    size_t skipped;
    qn_map *by_name; /* name -> index in items */
};

/* ---- names ---- */

static const qn_tensor_name global_names[] = {
    {"token_embd", "model.embed_tokens"},
    {"output_norm", "model.norm"},
    {"output", "lm_head"},
    {"per_layer_token_embd", "model.embed_tokens_per_layer"},
    {"per_layer_model_proj", "model.per_layer_model_projection"},
    {"per_layer_proj_norm", "model.per_layer_projection_norm"},
    {NULL, NULL},
};

static const qn_tensor_name layer_names[] = {
    {"attn_norm", "input_layernorm"},
    {"attn_q", "self_attn.q_proj"},
    {"attn_k", "self_attn.k_proj"},
    {"attn_v", "self_attn.v_proj"},
    {"attn_qkv", "self_attn.qkv_proj"},
    {"attn_output", "self_attn.o_proj"},
    {"attn_q_norm", "self_attn.q_norm"},
    {"attn_k_norm", "self_attn.k_norm"},
    {"attn_sinks", "self_attn.sinks"},
    {"ffn_norm", "post_attention_layernorm"},
    {"ffn_gate", "mlp.gate_proj"},
    {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"},
    {"ffn_gate_inp", "mlp.gate"},
    {"ffn_gate_exps", "mlp.switch_mlp.gate_proj"},
    {"ffn_up_exps", "mlp.switch_mlp.up_proj"},
    {"ffn_down_exps", "mlp.switch_mlp.down_proj"},
    {"ffn_gate_inp_shexp", "mlp.shared_expert_gate"},
    {"ffn_gate_shexp", "mlp.shared_expert.gate_proj"},
    {"ffn_up_shexp", "mlp.shared_expert.up_proj"},
    {"ffn_down_shexp", "mlp.shared_expert.down_proj"},
    {NULL, NULL},
};

/* NULL: the list, which may be NULL, has no such name. */
static const char *renamed(const qn_tensor_name *list, qn_str from)
{
    for (; list && list->gguf; list++)
        if (qn_str_is(from, list->gguf))
            return list->module;
    return NULL;
}

/* Splits "blk.12.attn_q.weight"; false for other forms. */
static bool split_layer_name(qn_str name, long *layer, qn_str *middle)
{
    static const char prefix[] = "blk.";
    size_t at = sizeof prefix - 1, digits = 0;
    if (name.size <= at || memcmp(name.data, prefix, at) != 0)
        return false;
    *layer = 0;
    for (; at < name.size && name.data[at] >= '0' && name.data[at] <= '9'; at++)
        if (++digits > 6)
            return false;
        else
            *layer = *layer * 10 + (name.data[at] - '0');
    if (!digits || at == name.size || name.data[at] != '.')
        return false;
    *middle = (qn_str){name.data + at + 1, name.size - at - 1};
    return true;
}

/* The name as a model directory would have it; names that are not known stay
 * as they are, for the audit to report.  NULL when memory is out. */
static char *gguf_name(const qn_family *family, qn_str name)
{
    long layer = -1;
    qn_str stem = name, suffix = {"", 0};
    split_layer_name(name, &layer, &stem);
    for (size_t i = stem.size; i-- > 0;)
        if (stem.data[i] == '.') {
            suffix = (qn_str){stem.data + i, stem.size - i};
            stem.size = i;
            break;
        }
    const char *to = layer < 0 ? renamed(global_names, stem) : NULL;
    if (layer >= 0 && family)
        to = renamed(family->gguf_names, stem);
    if (layer >= 0 && !to)
        to = renamed(layer_names, stem);
    if (!to)
        return qn_strndup(name.data, name.size);
    qn_buf buf = QN_BUF_INIT;
    if (layer >= 0)
        qn_buf_printf(&buf, "model.layers.%ld.", layer);
    qn_buf_add_text(&buf, to);
    qn_buf_add_str(&buf, suffix);
    return qn_buf_take(&buf);
}

static bool has_prefix(qn_str name, const char *prefix)
{
    size_t size = strlen(prefix);
    return name.size >= size && !memcmp(name.data, prefix, size);
}

static bool ends_with(qn_str name, const char *suffix)
{
    size_t size = strlen(suffix);
    return name.size >= size &&
           !memcmp(name.data + name.size - size, suffix, size);
}

/* Towers for images and sound: the text model runs without them. */
static bool is_foreign(qn_str name)
{
    static const char *const prefixes[] = {
        "vision_tower.", "visual.",
        "audio_tower.",  "embed_vision.",
        "embed_audio.",  "multi_modal_projector.",
        "vision_model.", "vision_embed_tokens.",
    };
    if (has_prefix(name, "model.")) {
        name.data += strlen("model.");
        name.size -= strlen("model.");
    }
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
        if (has_prefix(name, prefixes[i]))
            return true;
    return false;
}

/* The text model of a model that has others, too, stands under a name of its
 * own: outside of the model's, or inside. */
static char *directory_name(qn_str name)
{
    static const char outside[] = "language_model.",
                      inside[] = "model.language_model.";
    qn_buf buf = QN_BUF_INIT;
    /* A body that was saved without the model around it. */
    if (has_prefix(name, "layers.") || has_prefix(name, "embed_tokens.") ||
        qn_str_is(name, "norm.weight"))
        qn_buf_add_text(&buf, "model.");
    size_t skip = has_prefix(name, outside)  ? sizeof outside - 1
                  : has_prefix(name, inside) ? sizeof inside - 1
                                             : 0;
    if (has_prefix(name, inside))
        qn_buf_add_text(&buf, "model.");
    qn_buf_add(&buf, name.data + skip, name.size - skip);
    /* Experts of Gemma 4 are parameters and no modules. */
    bool experts = ends_with(name, ".experts.gate_up_proj") ||
                   ends_with(name, ".experts.down_proj");
    if (experts && !ends_with(name, ".mlp.experts.gate_up_proj") &&
        !ends_with(name, ".mlp.experts.down_proj"))
        qn_buf_add_text(&buf, ".weight");
    return qn_buf_take(&buf);
}

/* ---- the list of tensors ---- */

static qn_status add_weight(qn_weights *w, qn_weight *item, qn_str original)
{
    if (!item->name)
        return QN_E_NOMEM;
    bool added;
    qn_map_value *slot = qn_map_put(w->by_name, qn_str_of(item->name), &added);
    bool stale = slot && !added && strcmp(w->items[slot->u64].name, item->name);
    if (!slot || (!added && !stale)) {
        qn_status status =
            slot ? qn_fail(QN_E_FORMAT, "tensor %s is there twice", item->name)
                 : QN_E_NOMEM;
        qn_free(item->name);
        return qn_fail_where(status, "%s", qn_file_path(item->file));
    }
    slot->u64 = w->count;
    item->used = is_foreign(original);
    w->skipped += item->used;
    w->items[w->count++] = *item;
    return QN_OK;
}

static qn_status list_gguf(qn_weights *w, const part *p)
{
    qn_str arch = {"", 0};
    /* The first part of several names it. */
    if (qn_gguf_get_str(w->parts[0].gguf, "general.architecture", &arch))
        arch = QN_STR("");
    const qn_family *family = qn_family_find(arch);
    for (size_t i = 0; i < qn_gguf_tensor_count(p->gguf); i++) {
        const qn_gguf_tensor *t = qn_gguf_tensor_at(p->gguf, i);
        qn_weight item = {.name = gguf_name(family, t->name),
                          .original = t->name,
                          .ndim = t->ndim,
                          .type = t->type,
                          .data = t->data,
                          .file = p->file};
        for (int d = 0; d < t->ndim; d++)
            item.shape[d] = (int64_t)t->dims[t->ndim - 1 - d];
        qn_status status = add_weight(w, &item, t->name);
        if (status)
            return status;
    }
    return QN_OK;
}

static qn_status list_st(qn_weights *w, const part *p)
{
    for (size_t i = 0; i < qn_st_count(p->st); i++) {
        const qn_st_tensor *t = qn_st_at(p->st, i);
        if (t->ndim > QN_WEIGHT_DIMS) {
            qn_status status =
                qn_fail(QN_E_UNSUPPORTED, "tensor %.*s has %d dimensions",
                        (int)t->name.size, t->name.data, t->ndim);
            return qn_fail_where(status, "%s", qn_file_path(p->file));
        }
        qn_weight item = {.name = directory_name(t->name),
                          .original = t->name,
                          .ndim = t->ndim,
                          .type = t->dtype,
                          .data = t->data,
                          .file = p->file};
        for (int d = 0; d < t->ndim; d++)
            item.shape[d] = t->shape[d];
        qn_status status = add_weight(w, &item, t->name);
        if (status)
            return status;
    }
    return QN_OK;
}

static qn_status list_all(qn_weights *w)
{
    size_t total = 0;
    for (size_t i = 0; i < w->part_count; i++)
        total += w->gguf ? qn_gguf_tensor_count(w->parts[i].gguf)
                         : qn_st_count(w->parts[i].st);
    w->items = qn_calloc(total, sizeof *w->items);
    w->by_name = qn_map_new(total);
    if (!w->items || !w->by_name)
        return QN_E_NOMEM;
    qn_status status = QN_OK;
    for (size_t i = 0; i < w->part_count && !status; i++)
        status =
            w->gguf ? list_gguf(w, &w->parts[i]) : list_st(w, &w->parts[i]);
    return status;
}

/* ---- files ---- */

/* Maps `path` and reads its header into the next part. */
static qn_status open_part(qn_weights *w, const char *path, const char *name)
{
    part *grown =
        qn_reallocarray(w->parts, w->part_count + 1, sizeof *w->parts);
    if (!grown)
        return QN_E_NOMEM;
    w->parts = grown;
    part *p = &w->parts[w->part_count];
    *p = (part){0};
    qn_status status = qn_file_map(&p->file, path);
    if (status)
        return qn_fail_where(status, "%s", path);
    w->part_count++;
    if (name && !(p->name = qn_strdup(name)))
        return QN_E_NOMEM;
    qn_bytes bytes = qn_file_bytes(p->file);
    status =
        w->gguf ? qn_gguf_parse(&p->gguf, bytes) : qn_st_parse(&p->st, bytes);
    return status ? qn_fail_where(status, "%s", path) : QN_OK;
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static bool has_suffix(const char *text, const char *suffix)
{
    size_t size = strlen(text), tail = strlen(suffix);
    return size >= tail && !strcmp(text + size - tail, suffix);
}

/* "NAME-00002-of-00003.gguf": the numbers; false for other names. */
static bool split_part_name(const char *path, int *number, int *count)
{
    size_t size = strlen(path), tail = strlen("-00001-of-00001.gguf");
    char end;
    return size > tail && sscanf(path + size - tail, "-%5d-of-%5d.ggu%c",
                                 number, count, &end) == 3;
}

static qn_status open_gguf_parts(qn_weights *w, const char *path)
{
    int number = 1, count = 1;
    bool split = split_part_name(path, &number, &count);
    size_t stem = strlen(path) - strlen("00001-of-00001.gguf");
    if (split && number != 1) {
        qn_status status =
            qn_fail(QN_E_ARG, "part %d of %d: open %.*s00001-of-%05d.gguf",
                    number, count, (int)stem, path, count);
        return qn_fail_where(status, "%s", path);
    }
    qn_status status = open_part(w, path, NULL);
    int64_t stated = 1;
    if (!status) {
        qn_status found =
            qn_gguf_get_int(w->parts[0].gguf, "split.count", &stated);
        if (found && found != QN_E_NOTFOUND)
            return qn_fail_where(found, "%s", path);
    }
    if (status || stated <= 1)
        return status;
    if (!split || stated != count) {
        status = qn_fail(QN_E_FORMAT,
                         "split.count is %lld, but the name says otherwise",
                         (long long)stated);
        return qn_fail_where(status, "%s", path);
    }
    for (int i = 2; i <= count && !status; i++) {
        qn_buf name = QN_BUF_INIT;
        qn_buf_add(&name, path, stem);
        qn_buf_printf(&name, "%05d-of-%05d.gguf", i, count);
        char *part_path = qn_buf_take(&name);
        status = part_path ? open_part(w, part_path, NULL) : QN_E_NOMEM;
        qn_free(part_path);
    }
    return status;
}

static qn_status open_shard(qn_weights *w, const char *name)
{
    char *path = qn_path_join(w->dir, name);
    qn_status status = path ? open_part(w, path, name) : QN_E_NOMEM;
    qn_free(path);
    return status;
}

/* ---- an index ---- */

enum { MAX_INDEX = 256 << 20 };

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

typedef struct name_list {
    char **names;
    size_t count;
} name_list;

static void free_names(name_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        qn_free(list->names[i]);
    qn_free(list->names);
}

static qn_status add_name(name_list *list, const char *name, size_t size)
{
    char **grown =
        qn_reallocarray(list->names, list->count + 1, sizeof *list->names);
    if (!grown)
        return QN_E_NOMEM;
    list->names = grown;
    if (!(list->names[list->count] = qn_strndup(name, size)))
        return QN_E_NOMEM;
    list->count++;
    return QN_OK;
}

static bool is_plain_name(qn_str name)
{
    return name.size && !memchr(name.data, '/', name.size) &&
           !memchr(name.data, '\0', name.size) && !qn_str_is(name, ".") &&
           !(name.size >= 2 && name.data[0] == '.' && name.data[1] == '.');
}

/* The shards that the index names, each once. */
static qn_status index_shards(name_list *out, const qn_json *map)
{
    qn_map *seen = qn_map_new(16);
    qn_status status = seen ? QN_OK : QN_E_NOMEM;
    for (uint32_t i = 0; i < map->count && !status; i++) {
        qn_str shard;
        bool added;
        if (!qn_json_as_str(&map->items[i], &shard) || !is_plain_name(shard))
            status = qn_fail(QN_E_FORMAT,
                             "weight_map: %.*s: expected the name of a file "
                             "in this directory",
                             (int)map->keys[i].size, map->keys[i].data);
        else if (!qn_map_put(seen, shard, &added))
            status = QN_E_NOMEM;
        else if (added)
            status = add_name(out, shard.data, shard.size);
    }
    qn_map_free(seen, NULL);
    return status;
}

/* Every tensor of the index lies in the shard that it names. */
static qn_status check_index(const qn_weights *w, const qn_json *map)
{
    for (uint32_t i = 0; i < map->count; i++) {
        qn_str shard = map->items[i].text;
        const part *p = NULL;
        for (size_t j = 0; j < w->part_count && !p; j++)
            if (qn_str_is(shard, w->parts[j].name))
                p = &w->parts[j];
        if (!p || !qn_st_find(p->st, map->keys[i]))
            return qn_fail(QN_E_MISMATCH,
                           "tensor %.*s is not in %.*s, where the index "
                           "has it",
                           (int)map->keys[i].size, map->keys[i].data,
                           (int)shard.size, shard.data);
    }
    return QN_OK;
}

static qn_status open_index(qn_weights *w, const char *path)
{
    char *text;
    size_t size;
    qn_status status = qn_file_read(&text, &size, path, MAX_INDEX);
    if (status)
        return qn_fail_where(status, "%s", path);
    qn_json_doc *doc = NULL;
    name_list shards = {0};
    status = qn_json_parse(&doc, (qn_str){text, size}, QN_JSON_ALLOW_BOM);
    qn_free(text);
    if (status)
        return qn_fail_where(status, "%s", path);
    const qn_json *map = qn_json_get(qn_json_root(doc), "weight_map");
    if (!map || map->type != QN_JSON_T_OBJECT || !map->count)
        status = qn_fail(QN_E_FORMAT, "weight_map: expected an object with "
                                      "entries");
    if (!status)
        status = index_shards(&shards, map);
    if (!status) {
        qsort(shards.names, shards.count, sizeof *shards.names, compare_names);
        for (size_t i = 0; i < shards.count && !status; i++)
            status = open_shard(w, shards.names[i]);
    }
    if (!status)
        status = check_index(w, map);
    free_names(&shards);
    qn_json_doc_free(doc);
    return status ? qn_fail_where(status, "%s", path) : QN_OK;
}

/* ---- a directory ---- */

static bool is_weight_file(const char *name)
{
    return !strncmp(name, "model", 5) && has_suffix(name, ".safetensors");
}

/* Files that hold weights in a form that would have to run code. */
static bool is_foreign_file(const char *name)
{
    return has_suffix(name, ".npz") || has_suffix(name, ".bin") ||
           has_suffix(name, ".pt") || has_suffix(name, ".pth");
}

static qn_status scan_directory(qn_weights *w)
{
    DIR *dir = opendir(w->dir);
    if (!dir) {
        qn_status status = qn_fail(errno == ENOENT ? QN_E_NOTFOUND : QN_E_IO,
                                   "%s", strerror(errno));
        return qn_fail_where(status, "%s", w->dir);
    }
    name_list found = {0};
    bool foreign = false;
    qn_status status = QN_OK;
    for (struct dirent *e; !status && (e = readdir(dir));) {
        if (is_weight_file(e->d_name))
            status = add_name(&found, e->d_name, strlen(e->d_name));
        foreign |= is_foreign_file(e->d_name);
    }
    closedir(dir);
    if (!status && !found.count) {
        status = foreign ? qn_fail(QN_E_UNSUPPORTED,
                                   "weights are in a form that is not read; "
                                   "`quern convert` makes safetensors of it")
                         : qn_fail(QN_E_NOTFOUND, "no model*.safetensors here");
        status = qn_fail_where(status, "%s", w->dir);
    }
    if (found.count)
        qsort(found.names, found.count, sizeof *found.names, compare_names);
    for (size_t i = 0; i < found.count && !status; i++)
        status = open_shard(w, found.names[i]);
    free_names(&found);
    return status;
}

static qn_status open_directory(qn_weights *w)
{
    char *index = qn_path_join(w->dir, "model.safetensors.index.json");
    if (!index)
        return QN_E_NOMEM;
    qn_status status =
        qn_path_exists(index) ? open_index(w, index) : scan_directory(w);
    qn_free(index);
    return status;
}

/* ---- the outside ---- */

static qn_status open_files(qn_weights *w)
{
    if (has_suffix(w->path, ".gguf")) {
        w->gguf = true;
        return open_gguf_parts(w, w->path);
    }
    if (has_suffix(w->path, ".safetensors") && !qn_path_is_dir(w->path)) {
        const char *name = base_name(w->path);
        w->dir = name == w->path
                     ? qn_strdup(".")
                     : qn_strndup(w->path, (size_t)(name - w->path));
        return w->dir ? open_part(w, w->path, name) : QN_E_NOMEM;
    }
    if (!qn_path_exists(w->path)) {
        qn_status status = qn_fail(QN_E_NOTFOUND, "no such file or directory");
        return qn_fail_where(status, "%s", w->path);
    }
    if (!qn_path_is_dir(w->path)) {
        qn_status status = qn_fail(
            QN_E_UNSUPPORTED,
            "expected a .gguf file, a .safetensors file or a directory");
        return qn_fail_where(status, "%s", w->path);
    }
    w->dir = qn_strdup(w->path);
    return w->dir ? open_directory(w) : QN_E_NOMEM;
}

qn_status qn_weights_open(qn_weights **out, const char *path)
{
    qn_weights *w = qn_calloc(1, sizeof *w);
    if (!w)
        return QN_E_NOMEM;
    w->path = qn_strdup(path);
    qn_status status = w->path ? open_files(w) : QN_E_NOMEM;
    if (!status)
        status = list_all(w);
    if (!status) {
        *out = w;
        return QN_OK;
    }
    qn_weights_free(w);
    return status;
}

void qn_weights_free(qn_weights *w)
{
    if (!w)
        return;
    for (size_t i = 0; i < w->count; i++) {
        qn_free(w->items[i].name);
        qn_free(w->items[i].owned);
    }
    for (size_t i = 0; i < w->part_count; i++) {
        qn_gguf_free(w->parts[i].gguf);
        qn_st_free(w->parts[i].st);
        qn_file_unref(w->parts[i].file);
        qn_free(w->parts[i].name);
    }
    qn_map_free(w->by_name, NULL);
    qn_free(w->items);
    qn_free(w->parts);
    qn_free(w->path);
    qn_free(w->dir);
    qn_free(w);
}

const qn_gguf *qn_weights_gguf(const qn_weights *w)
{
    return w->gguf ? w->parts[0].gguf : NULL;
}

const char *qn_weights_dir(const qn_weights *w)
{
    return w->dir;
}

const char *qn_weights_path(const qn_weights *w)
{
    return w->path;
}

size_t qn_weights_count(const qn_weights *w)
{
    return w->count;
}

qn_weight *qn_weights_at(const qn_weights *w, size_t i)
{
    return &w->items[i];
}

qn_weight *qn_weights_find(const qn_weights *w, const char *name)
{
    const qn_map_value *slot = qn_map_get(w->by_name, qn_str_of(name));
    return slot ? &w->items[slot->u64] : NULL;
}

qn_status qn_weights_add(qn_weights *w, const char *name,
                         const int64_t shape[2], qn_st_dtype type, void *data)
{
    qn_weight *grown =
        qn_reallocarray(w->items, w->count + 1, sizeof *w->items);
    if (!grown)
        return QN_E_NOMEM;
    w->items = grown;
    qn_weight item = {.name = qn_strdup(name),
                      .ndim = 2,
                      .shape = {shape[0], shape[1]},
                      .type = (int)type,
                      .file = w->parts[0].file};
    size_t size = (size_t)shape[0] * (size_t)shape[1] * qn_st_dtype_size(type);
    item.data = (qn_bytes){data, size};
    item.original = qn_str_of(item.name);
    qn_status status = add_weight(w, &item, item.original);
    if (!status)
        w->items[w->count - 1].owned = data;
    return status;
}

void qn_weights_forget(qn_weights *w, const char *module, const char *suffix)
{
    char name[512], hidden[520];
    snprintf(name, sizeof name, "%s.%s", module, suffix);
    qn_weight *found = qn_weights_find(w, name);
    if (!found || found->owned)
        return;
    /* A map has no removal: the entry of the old name leads to whoever takes
     * it next (add_weight). */
    snprintf(hidden, sizeof hidden, "%s:file", name);
    char *renamed_to = qn_strdup(hidden);
    if (renamed_to) {
        qn_free(found->name);
        found->name = renamed_to;
    }
}

size_t qn_weights_skipped(const qn_weights *w)
{
    return w->skipped;
}

const char *qn_weight_type_name(const qn_weights *w, const qn_weight *weight)
{
    return w->gguf ? qn_gguf_type_name(weight->type)
                   : qn_st_dtype_name((qn_st_dtype)weight->type);
}
