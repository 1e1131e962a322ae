/* fuzz_kvfile.c: saved KV caches, which are also saved sessions, and prompt
 * caches of mlx-lm.
 *
 * A saved cache names the machine that computed it, so no file of the corpus
 * would be read on another one.  Instead, the first byte of an input picks one
 * of the caches below; its file is made here and then changed as the rest of
 * the input says, four bytes at a time (see change).  A first byte of 'r' means
 * that the rest is the file.  What is refused leaves an empty cache that still
 * works; what is accepted can be saved and comes back. */
#include "fuzz.h"

#include "kv/cache.h"
#include "kv/engine.h"
#include "kv/file.h"
#include "kv/import.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "base/file.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { KINDS = 7, IMPORT = 5, NEWER = 6, LAYERS = 2, DIM = 64, LIMIT = 200 };

static const qn_kv_fact facts[] = {{"model", "m", false},
                                   {"dtype", "auto", true}};
enum { FACTS = 2, TOKENS = 5 };

static mlx_stream stream;
static char path[512], again[512];
static qn_kv_layer layers[KINDS][LAYERS];
static qn_kv_shape shapes[KINDS];
static qn_buf files[KINDS];

static qn_kv_cache *new_cache(int kind)
{
    qn_kv_cache *cache = NULL;
    FUZZ_CHECK(!qn_kv_cache_new(&cache, &shapes[kind]));
    return cache;
}

static mlx_array numbers(const int *shape, int ndim)
{
    static float data[LIMIT * DIM];
    for (size_t i = 0; i < sizeof data / sizeof *data; i++)
        data[i] = (float)(i % 23) / 7 - 1;
    return mlx_array_new_data(data, shape, ndim, MLX_FLOAT32);
}

/* A step of `count` tokens. */
static void compute(qn_kv_cache *cache, int kind, int count)
{
    qn_attention how = {.heads = 1, .scale = 0.125f};
    qn_kv_rows rows = {.cache = cache, .count = count};
    mlx_array x = numbers((int[]){1, count, DIM}, 3);
    FUZZ_CHECK(!qn_kv_cache_settle(cache, stream));
    for (int i = 0; i < LAYERS; i++) {
        const qn_kv_layer *l = &layers[kind][i];
        if (l->kv_heads) {
            mlx_array y = {NULL};
            FUZZ_CHECK(!qn_kv_attend(&rows, 1, &y, i, x, x, x, &how, stream));
            FUZZ_CHECK(!mlx_array_eval(y));
            mlx_array_free(y);
        } else {
            mlx_array conv = numbers((int[]){2, 3}, 2);
            mlx_array state = numbers((int[]){1, 4, 5}, 3);
            FUZZ_CHECK(!qn_kv_state_set(cache, i, conv, state));
            mlx_array_free(conv);
            mlx_array_free(state);
        }
    }
    qn_kv_cache_advance(cache, count);
    mlx_array_free(x);
}

static void keep_file(int kind)
{
    char *data = NULL;
    size_t size = 0;
    FUZZ_CHECK(!qn_file_read(&data, &size, path, 1 << 20));
    qn_buf_add(&files[kind], data, size);
    FUZZ_CHECK(!files[kind].failed);
    qn_free(data);
}

static void make_saved(int kind)
{
    static const int32_t ids[TOKENS] = {1, 2, 3, 5, 8};
    qn_kv_cache *cache = new_cache(kind);
    compute(cache, kind, 3);
    compute(cache, kind, TOKENS - 3);
    FUZZ_CHECK(!qn_kv_cache_save(cache, path, ids, facts, FACTS, stream));
    qn_kv_cache_free(cache);
    keep_file(kind);
}

static void make_import(void)
{
    mlx_map_string_to_array arrays = mlx_map_string_to_array_new();
    mlx_map_string_to_string texts = mlx_map_string_to_string_new();
    for (int i = 0; i < 2 * LAYERS; i++) {
        char name[16];
        mlx_array x = numbers((int[]){1, 1, TOKENS, DIM}, 4);
        snprintf(name, sizeof name, "%d.%d", i / 2, i % 2);
        FUZZ_CHECK(!mlx_map_string_to_array_insert(arrays, name, x));
        mlx_array_free(x);
        snprintf(name, sizeof name, "2.%d", i / 2);
        FUZZ_CHECK(!mlx_map_string_to_string_insert(texts, name, "KVCache"));
    }
    FUZZ_CHECK(!mlx_save_safetensors(path, arrays, texts));
    mlx_map_string_to_array_free(arrays);
    mlx_map_string_to_string_free(texts);
    keep_file(IMPORT);
}

/* As mlx-lm has them since 0.32: one of all tokens, and a ring of 40. */
static void make_newer(void)
{
    static const int numbers_of[] = {TOKENS, 4, 40, TOKENS};
    mlx_map_string_to_array arrays = mlx_map_string_to_array_new();
    mlx_map_string_to_string texts = mlx_map_string_to_string_new();
    FUZZ_CHECK(!mlx_map_string_to_string_insert(texts, "2.0", ""));
    for (int i = 0; i < LAYERS; i++) {
        char name[16];
        for (int k = 0; k < 6; k++) {
            mlx_array x = k < 2
                              ? numbers((int[]){1, 1, TOKENS + 3 * !i, DIM}, 4)
                              : mlx_array_new_int(numbers_of[k - 2]);
            snprintf(name, sizeof name, "%d.%d", i, k);
            FUZZ_CHECK(!mlx_map_string_to_array_insert(arrays, name, x));
            mlx_array_free(x);
        }
        snprintf(name, sizeof name, "1.%d", i);
        FUZZ_CHECK(!mlx_map_string_to_string_insert(
            texts, name, i ? "RotatingKVCache" : "KVCache"));
    }
    FUZZ_CHECK(!mlx_save_safetensors(path, arrays, texts));
    mlx_map_string_to_array_free(arrays);
    mlx_map_string_to_string_free(texts);
    keep_file(NEWER);
}

static void set_shape(int kind, const char *scheme, int start)
{
    for (int i = 0; i < LAYERS; i++) {
        qn_kv_layer *l = &layers[kind][i];
        *l = (qn_kv_layer){.kv_heads = 1, .head_dim = DIM};
        FUZZ_CHECK(!qn_kv_scheme_parse(&l->scheme, scheme, MLX_FLOAT16));
        FUZZ_CHECK(!qn_kv_scheme_fit(&l->scheme, DIM));
    }
    shapes[kind] = (qn_kv_shape){.layers = LAYERS,
                                 .layer = layers[kind],
                                 .start = start,
                                 .floats = MLX_FLOAT16,
                                 .step = 128,
                                 .limit = LIMIT};
}

static void remove_files(void)
{
    unlink(path);
    unlink(again);
    for (int i = 0; i < KINDS; i++)
        qn_buf_free(&files[i]);
    mlx_stream_free(stream);
}

static void prepare(void)
{
    FUZZ_CHECK(!qn_engine_start());
    stream = mlx_default_cpu_stream_new();
    const char *dir = getenv("TMPDIR");
    dir = dir && strlen(dir) < 400 ? dir : "/tmp";
    /* The engine takes names with this ending only. */
    snprintf(path, sizeof path, "%s/quern-fuzz-%ld.safetensors", dir,
             (long)getpid());
    snprintf(again, sizeof again, "%s/quern-fuzz-%ld-again.safetensors", dir,
             (long)getpid());
    set_shape(0, "f16", 0);
    set_shape(1, "affine8", 0);
    set_shape(2, "turbo:k8v3", 0);
    set_shape(3, "f16", 0);
    layers[3][0].window = 40;
    layers[3][0].keep = 4;
    layers[3][1] = (qn_kv_layer){.recurrence = {2, 3, 1, 4, 5}};
    set_shape(4, "affine4", 50);
    set_shape(IMPORT, "f16", 0);
    set_shape(NEWER, "f16", 0);
    layers[NEWER][1].window = 36;
    layers[NEWER][1].keep = 4;
    for (int i = 0; i < IMPORT; i++)
        make_saved(i);
    make_import();
    make_newer();
    atexit(remove_files);
}

/* The file of `kind` with its changes: 16 bits of where, what, and a byte. */
static qn_str change(qn_buf *out, int kind, const uint8_t *data, size_t size)
{
    enum { SET, FLIP, INSERT, END };
    qn_buf_add(out, files[kind].data, files[kind].size);
    for (; size >= 4 && out->size; data += 4, size -= 4) {
        size_t at = (size_t)(data[0] | data[1] << 8) % out->size;
        if (data[2] % 4 == SET)
            out->data[at] = (char)data[3];
        else if (data[2] % 4 == FLIP)
            out->data[at] = (char)(out->data[at] ^ data[3]);
        else if (data[2] % 4 == END)
            qn_buf_truncate(out, at);
        else {
            qn_buf_add_char(out, 0);
            FUZZ_CHECK(!out->failed);
            memmove(out->data + at + 1, out->data + at, out->size - at - 1);
            out->data[at] = (char)data[3];
        }
    }
    FUZZ_CHECK(!out->failed);
    return qn_buf_str(out);
}

static void check_accepted(qn_kv_cache *cache, int kind, const int32_t *ids)
{
    int length = qn_kv_cache_length(cache);
    FUZZ_CHECK(length >= 1 && length <= LIMIT);
    qn_kv_cache *other = new_cache(kind);
    int32_t *found = NULL;
    FUZZ_CHECK(!qn_kv_cache_save(cache, again, ids, facts, FACTS, stream));
    FUZZ_CHECK(!qn_kv_cache_load(other, again, &found, facts, FACTS, stream));
    FUZZ_CHECK(qn_kv_cache_length(other) == length);
    FUZZ_CHECK(!memcmp(found, ids, (size_t)length * sizeof *ids));
    qn_free(found);
    qn_kv_cache_free(other);
}

/* Without waiting for the disk, as what keeps files does. */
static void write_file(qn_str file)
{
    FILE *to = fopen(path, "wb");
    FUZZ_CHECK(to);
    FUZZ_CHECK(fwrite(file.data, 1, file.size, to) == file.size);
    FUZZ_CHECK(!fclose(to));
}

static void load(int kind, qn_str file)
{
    int32_t *ids = NULL;
    qn_kv_cache *cache = new_cache(kind);
    write_file(file);
    bool foreign = false;
    qn_status status = qn_kv_import_check(&foreign, path, stream);
    if (!status && foreign)
        status = qn_kv_import(cache, path, stream);
    else if (!status)
        status = qn_kv_cache_load(cache, path, &ids, facts, FACTS, stream);
    int32_t *only = NULL;
    size_t count = 0;
    if (!qn_kv_file_tokens(path, &only, &count, stream))
        FUZZ_CHECK(only && count);
    else
        FUZZ_CHECK(!only);
    qn_free(only);
    FUZZ_CHECK(status || qn_kv_cache_length(cache));
    FUZZ_CHECK(!status || (!qn_kv_cache_length(cache) && !ids));
    if (!status && ids)
        check_accepted(cache, kind, ids);
    if (qn_kv_cache_length(cache) < LIMIT && qn_kv_cache_room(cache) > 0)
        compute(cache, kind, 1);
    qn_kv_cache_free(cache);
    qn_free(ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!files[0].size)
        prepare();
    if (!size)
        return 0;
    qn_buf file = QN_BUF_INIT;
    bool raw = data[0] == 'r';
    int kind = raw ? 0 : data[0] % KINDS;
    if (raw)
        load(kind, (qn_str){(const char *)data + 1, size - 1});
    else
        load(kind, change(&file, kind, data + 1, size - 1));
    qn_buf_free(&file);
    return 0;
}
