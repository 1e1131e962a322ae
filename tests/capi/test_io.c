/* Files and the caller's streams through the C API: who owns what, which code
 * says what, and programs that load and save the same file. */
#include "capi.h"

#include <dirent.h>
#include <pthread.h>

static char *dir;

static int setup(void **state)
{
    dir = temp_dir_new();
    return capi_setup(state);
}

static int teardown(void **state)
{
    (void)state;
    temp_dir_remove(dir);
    return 0;
}

/* DIR/NAME, in one of a few buffers. */
static const char *at(const char *name)
{
    static char paths[4][512];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, 512, "%s/%s", dir, name);
    return path;
}

/* ---- a stream of ours ---- */

typedef struct store {
    char bytes[4096];
    size_t size, position;
    size_t limit; /* bytes that still pass */
    bool closed, stuck;
    int reads, frees;
} store;

static bool is_open(void *desc)
{
    return !((store *)desc)->closed;
}
static bool good(void *desc)
{
    (void)desc;
    return true;
}
static size_t tell(void *desc)
{
    return ((store *)desc)->position;
}
static int seek(void *desc, int64_t off, int whence)
{
    store *s = desc;
    if (s->stuck)
        return -1;
    size_t from = whence == SEEK_SET   ? 0
                  : whence == SEEK_CUR ? s->position
                                       : s->size;
    s->position = from + (size_t)off;
    return 0;
}
static size_t pass(store *s, size_t n, size_t most)
{
    n = n < most ? n : most;
    n = n < s->limit ? n : s->limit;
    s->limit -= s->limit == SIZE_MAX ? 0 : n;
    return n;
}
static size_t read_at_offset(void *desc, char *data, size_t n, size_t off)
{
    store *s = desc;
    s->reads++;
    n = pass(s, n, off < s->size ? s->size - off : 0);
    memcpy(data, s->bytes + (n ? off : 0), n);
    return n;
}
static size_t read_on(void *desc, char *data, size_t n)
{
    store *s = desc;
    n = read_at_offset(s, data, n, s->position);
    s->position += n;
    return n;
}
static size_t write_on(void *desc, const char *data, size_t n)
{
    store *s = desc;
    n = pass(s, n, sizeof s->bytes - s->position);
    memcpy(s->bytes + s->position, data, n);
    s->position += n;
    s->size = s->position > s->size ? s->position : s->size;
    return n;
}
static const char *label(void *desc)
{
    (void)desc;
    return "the 100%s store";
}
static void store_free(void *desc)
{
    ((store *)desc)->frees++;
}

static const mlx_io_vtable vtable = {is_open,  good,    tell,
                                     seek,     read_on, read_at_offset,
                                     write_on, label,   store_free};

static store new_store(void)
{
    return (store){.limit = SIZE_MAX};
}

/* ---- npy ---- */

static void test_an_array_goes_through_a_stream(void **state)
{
    (void)state;
    store s = new_store();
    mlx_stream stream = mlx_default_cpu_stream_new();
    mlx_array a = ints(3, (int[]){4, -5, 6}), b = mlx_array_new();
    mlx_io_writer to = mlx_io_writer_new(&s, vtable);
    check_ok(mlx_save_writer(to, a));
    check_ok(mlx_io_writer_free(to));
    assert_int_equal(s.frees, 1);

    s.position = 0;
    mlx_io_reader in = mlx_io_reader_new(&s, vtable);
    check_ok(mlx_load_reader(&b, in, stream));
    check_ok(mlx_io_reader_free(in));
    /* Not read yet, so the stream is still needed. */
    assert_int_equal(s.frees, 1);
    int reads = s.reads;
    check_ints(b, 3, (int[]){4, -5, 6});
    assert_int_equal(s.reads, reads + 1);
    assert_int_equal(s.frees, 2);
    check_ints(b, 3, (int[]){4, -5, 6});
    mlx_array_free(a);
    mlx_array_free(b);
    mlx_stream_free(stream);
    assert_int_equal(s.frees, 2);
}

static void test_a_stream_outlives_the_last_array_not_at_all(void **state)
{
    (void)state;
    store s = new_store();
    mlx_stream stream = mlx_default_cpu_stream_new();
    mlx_array a = ints(2, (int[]){1, 2}), b = mlx_array_new();
    mlx_array c = mlx_array_new();
    mlx_io_writer to = mlx_io_writer_new(&s, vtable);
    check_ok(mlx_save_writer(to, a));
    s.position = 0;
    mlx_io_reader in = mlx_io_reader_new(&s, vtable);
    check_ok(mlx_load_reader(&b, in, stream));
    check_ok(mlx_add(&c, b, b, stream));
    check_ok(mlx_io_reader_free(in));
    check_ok(mlx_array_free(b));
    assert_int_equal(s.frees, 0);
    check_ok(mlx_array_free(c)); /* unread */
    assert_int_equal(s.frees, 1);
    check_ok(mlx_io_writer_free(to));
    assert_int_equal(s.frees, 2);
    mlx_array_free(a);
    mlx_stream_free(stream);
}

static void test_streams_tell_who_they_are(void **state)
{
    (void)state;
    store s = new_store();
    mlx_io_reader in = mlx_io_reader_new(&s, vtable);
    mlx_io_writer to = mlx_io_writer_new(&s, vtable);
    mlx_string text = mlx_string_new();
    void *desc = NULL;
    check_ok(mlx_io_reader_descriptor(&desc, in));
    assert_ptr_equal(desc, &s);
    check_ok(mlx_io_writer_descriptor(&desc, to));
    assert_ptr_equal(desc, &s);
    check_ok(mlx_io_reader_tostring(&text, in));
    assert_string_equal(mlx_string_data(text), "the 100%s store");
    check_ok(mlx_io_writer_tostring(&text, to));
    assert_string_equal(mlx_string_data(text), "the 100%s store");
    mlx_string_free(text);
    mlx_io_reader_free(in);
    mlx_io_writer_free(to);
}

static void test_a_failing_stream_leaves_the_result_alone(void **state)
{
    (void)state;
    store s = new_store();
    mlx_stream stream = mlx_default_cpu_stream_new();
    mlx_array a = ints(2, (int[]){1, 2}), kept = ints(1, (int[]){7});
    mlx_io_writer to = mlx_io_writer_new(&s, vtable);
    s.limit = 60;
    check_fails(mlx_save_writer(to, a),
                "[mlx_io_writer] unable to write 128 bytes (wrote 60 instead) "
                "in the 100%s store");
    s = new_store();
    check_ok(mlx_save_writer(to, a));
    mlx_io_writer_free(to);

    mlx_io_reader in = mlx_io_reader_new(&s, vtable);
    s.position = 0;
    s.limit = 3;
    check_fails(mlx_load_reader(&kept, in, stream),
                "[mlx_io_reader] unable to read 8 bytes (read 3 instead) in "
                "the 100%s store");
    s.closed = true;
    check_fails(mlx_load_reader(&kept, in, stream),
                "[load] Failed to open the 100%s store");
    check_ints(kept, 1, (int[]){7});
    /* Seeking is not needed for one array, ... */
    s.closed = false;
    s.stuck = true;
    s.limit = SIZE_MAX;
    s.position = 0;
    check_ok(mlx_load_reader(&kept, in, stream));
    s.limit = 7; /* ... and what can't be read is said by the evaluation */
    check_fails(mlx_array_eval(kept), "unable to read 8 bytes (read 7");
    s.limit = SIZE_MAX;
    check_ints(kept, 2, (int[]){1, 2});
    mlx_map_string_to_array map = mlx_map_string_to_array_new();
    mlx_map_string_to_string metadata = mlx_map_string_to_string_new();
    check_fails(mlx_load_safetensors_reader(&map, &metadata, in, stream),
                "[mlx_io_reader] unable to seek in the 100%s store");
    mlx_map_string_to_array_free(map);
    mlx_map_string_to_string_free(metadata);
    mlx_io_reader_free(in);
    mlx_array_free(a);
    mlx_array_free(kept);
    mlx_stream_free(stream);
}

static void test_empty_handles_are_named(void **state)
{
    (void)state;
    store s = new_store();
    mlx_stream stream = mlx_default_cpu_stream_new(), no_stream = {NULL};
    mlx_array a = ints(1, (int[]){1}), b = mlx_array_new();
    mlx_map_string_to_array map = {NULL};
    mlx_map_string_to_string metadata = {NULL};
    mlx_io_reader in = mlx_io_reader_new(&s, vtable), no_reader = {NULL};
    mlx_io_writer to = mlx_io_writer_new(&s, vtable), no_writer = {NULL};
    mlx_io_gguf no_gguf = {NULL};
    mlx_string text = mlx_string_new();
    void *desc;
    bool flag = true;
    check_fails(mlx_load_reader(&b, no_reader, stream),
                "expected a non-empty mlx_io_reader");
    check_fails(mlx_load_reader(&b, in, no_stream),
                "expected a non-empty mlx_stream");
    check_fails(mlx_load(&b, "x.npy", no_stream),
                "expected a non-empty mlx_stream");
    check_fails(mlx_save_writer(no_writer, a),
                "expected a non-empty mlx_io_writer");
    check_fails(mlx_save_writer(to, b), "expected a non-empty mlx_array");
    check_fails(mlx_save(at("no.npy"), b), "expected a non-empty mlx_array");
    check_fails(mlx_load_safetensors_reader(&map, &metadata, no_reader, stream),
                "expected a non-empty mlx_io_reader");
    check_fails(mlx_load_safetensors(&map, &metadata, "x", no_stream),
                "expected a non-empty mlx_stream");
    check_fails(mlx_save_safetensors(at("no"), map, metadata),
                "expected a non-empty mlx_map_string_to_array");
    check_fails(mlx_save_safetensors_writer(to, map, metadata),
                "expected a non-empty mlx_map_string_to_array");
    check_fails(mlx_save_safetensors_writer(no_writer, map, metadata),
                "expected a non-empty mlx_io_writer");
    check_fails(mlx_load_gguf(&no_gguf, "x", no_stream),
                "expected a non-empty mlx_stream");
    check_fails(mlx_save_gguf(at("no"), no_gguf),
                "expected a non-empty mlx_io_gguf");
    check_fails(mlx_io_reader_descriptor(&desc, no_reader), "mlx_io_reader");
    check_fails(mlx_io_writer_tostring(&text, no_writer), "mlx_io_writer");
    check_fails(mlx_io_gguf_get_array(&b, no_gguf, "k"), "mlx_io_gguf");
    check_fails(mlx_io_gguf_has_metadata_array(&flag, no_gguf, "k"),
                "mlx_io_gguf");
    assert_false(flag);
    check_fails(mlx_io_gguf_set_metadata_string(no_gguf, "k", "v"),
                "mlx_io_gguf");
    check_ok(mlx_io_reader_free(no_reader));
    check_ok(mlx_io_writer_free(no_writer));
    check_ok(mlx_io_gguf_free(no_gguf));
    assert_null(b.ctx);
    assert_null(text.ctx);
    mlx_io_reader_free(in);
    mlx_io_writer_free(to);
    assert_int_equal(s.frees, 2);
    mlx_array_free(a);
    mlx_stream_free(stream);
}

static void test_one_array_in_a_file(void **state)
{
    (void)state;
    mlx_stream stream = mlx_default_cpu_stream_new();
    mlx_array a = ints(3, (int[]){1, 2, 3}), b = mlx_array_new();
    check_ok(mlx_save(at("name"), a)); /* the suffix is added */
    assert_true(qn_path_exists(at("name.npy")));
    check_ok(mlx_load(&b, at("name.npy"), stream));
    /* Over the file that it is still to be read from: twice as much. */
    mlx_array c = mlx_array_new();
    check_ok(mlx_add(&c, b, b, stream));
    check_ok(mlx_save(at("name.npy"), c));
    check_ints(b, 3, (int[]){1, 2, 3});
    check_ok(mlx_load(&b, at("name.npy"), stream));
    check_ints(b, 3, (int[]){2, 4, 6});

    check_fails(mlx_load(&b, at("%s%n-100%d.npy"), stream),
                "%s%n-100%d.npy: No such file");
    check_fails(mlx_load(&b, NULL, stream), "[load] Failed to open file ");
    check_fails(mlx_save(at("no/such/place"), a),
                "[save] Failed to open file ");
    assert_int_equal(truncate(at("name.npy"), 128 + 11), 0);
    check_fails(mlx_load(&b, at("name.npy"), stream),
                "expected 12 bytes of elements, found 11");
    check_ints(b, 3, (int[]){2, 4, 6});
    mlx_array_free(a);
    mlx_array_free(b);
    mlx_array_free(c);
    mlx_stream_free(stream);
}

/* ---- safetensors ---- */

static void test_maps_go_through_files_and_streams(void **state)
{
    (void)state;
    mlx_stream stream = mlx_default_cpu_stream_new();
    mlx_map_string_to_array map = mlx_map_string_to_array_new();
    mlx_map_string_to_string metadata = mlx_map_string_to_string_new();
    mlx_array a = ints(2, (int[]){8, 9}), b = mlx_array_new();
    const char *text = NULL;
    check_ok(mlx_map_string_to_array_insert(map, "a", a));
    check_ok(mlx_map_string_to_string_insert(metadata, "format", "mlx"));
    check_ok(mlx_save_safetensors(at("w"), map, metadata));
    store s = new_store();
    mlx_io_writer to = mlx_io_writer_new(&s, vtable);
    check_ok(mlx_save_safetensors_writer(to, map, metadata));
    mlx_io_writer_free(to);
    mlx_map_string_to_array_free(map);
    mlx_map_string_to_string_free(metadata);

    /* Into empty handles, and then again into those. */
    map = (mlx_map_string_to_array){NULL};
    metadata = (mlx_map_string_to_string){NULL};
    check_ok(
        mlx_load_safetensors(&map, &metadata, at("w.safetensors"), stream));
    check_ok(mlx_map_string_to_array_get(&b, map, "a"));
    check_ok(mlx_map_string_to_string_get(&text, metadata, "format"));
    assert_string_equal(text, "mlx");
    /* Saved over the file they come from, without metadata. */
    mlx_map_string_to_string none = {NULL};
    check_ok(mlx_save_safetensors(at("w.safetensors"), map, none));
    check_ints(b, 2, (int[]){8, 9});
    void *box = map.ctx;
    check_ok(
        mlx_load_safetensors(&map, &metadata, at("w.safetensors"), stream));
    assert_ptr_equal(map.ctx, box);
    assert_int_equal(mlx_map_string_to_string_get(&text, metadata, "format"),
                     2);

    s.position = 0;
    mlx_io_reader in = mlx_io_reader_new(&s, vtable);
    check_ok(mlx_load_safetensors_reader(&map, &metadata, in, stream));
    check_ok(mlx_io_reader_free(in));
    check_ok(mlx_map_string_to_array_get(&b, map, "a"));
    check_ok(mlx_map_string_to_array_free(map));
    assert_int_equal(s.frees, 1);
    check_ints(b, 2, (int[]){8, 9});
    assert_int_equal(s.frees, 2);

    map = mlx_map_string_to_array_new();
    check_fails(mlx_load_safetensors(&map, &metadata, at("name.npy"), stream),
                "safetensors");
    mlx_array wide = mlx_array_new_float64(1);
    check_ok(mlx_map_string_to_array_insert(map, "wide", wide));
    check_fails(mlx_save_safetensors(at("w"), map, metadata),
                "[save_safetensors] received invalid dtype float64");
    mlx_array_free(wide);
    mlx_map_string_to_array_free(map);
    mlx_map_string_to_string_free(metadata);
    mlx_array_free(a);
    mlx_array_free(b);
    mlx_stream_free(stream);
}

/* ---- GGUF ---- */

static void test_gguf_contents_have_kinds(void **state)
{
    (void)state;
    mlx_io_gguf g = mlx_io_gguf_new();
    assert_non_null(g.ctx);
    mlx_array a = ints(2, (int[]){1, 2}), b = mlx_array_new();
    mlx_string text = mlx_string_new();
    mlx_vector_string list = mlx_vector_string_new();
    bool flag = true;
    char *item;
    check_ok(mlx_vector_string_append_value(list, "x"));
    check_ok(mlx_vector_string_append_value(list, "y z"));
    check_ok(mlx_io_gguf_set_array(g, "w", a));
    check_ok(mlx_io_gguf_set_metadata_array(g, "numbers", a));
    check_ok(mlx_io_gguf_set_metadata_string(g, "text", "old"));
    check_ok(mlx_io_gguf_set_metadata_string(g, "text", "new"));
    check_ok(mlx_io_gguf_set_metadata_vector_string(g, "texts", list));
    mlx_vector_string_free(list);
    list = mlx_vector_string_new();

    for (int saved = 0; saved < 2; saved++) {
        check_ok(mlx_io_gguf_get_keys(&list, g));
        assert_int_equal(mlx_vector_string_size(list), 1);
        check_ok(mlx_vector_string_get(&item, list, 0));
        assert_string_equal(item, "w");
        check_ok(mlx_io_gguf_get_array(&b, g, "w"));
        check_ints(b, 2, (int[]){1, 2});
        check_ok(mlx_io_gguf_get_metadata_array(&b, g, "numbers"));
        check_ints(b, 2, (int[]){1, 2});
        check_ok(mlx_io_gguf_get_metadata_string(&text, g, "text"));
        assert_string_equal(mlx_string_data(text), "new");
        check_ok(mlx_io_gguf_get_metadata_vector_string(&list, g, "texts"));
        assert_int_equal(mlx_vector_string_size(list), 2);
        check_ok(mlx_vector_string_get(&item, list, 1));
        assert_string_equal(item, "y z");

        heard.count = 0;
        assert_int_equal(mlx_io_gguf_get_array(&b, g, "numbers"), 2);
        assert_int_equal(mlx_io_gguf_get_metadata_array(&b, g, "w"), 2);
        assert_int_equal(mlx_io_gguf_get_metadata_string(&text, g, "?"), 2);
        assert_int_equal(mlx_io_gguf_get_metadata_array(&b, g, "text"), 3);
        assert_int_equal(mlx_io_gguf_get_metadata_string(&text, g, "texts"), 3);
        assert_int_equal(
            mlx_io_gguf_get_metadata_vector_string(&list, g, "numbers"), 3);
        assert_int_equal(mlx_io_gguf_has_metadata_array(&flag, g, "w"), 2);
        assert_false(flag);
        assert_int_equal(mlx_io_gguf_has_metadata_array(&flag, g, NULL), 2);
        assert_int_equal(heard.count, 0);
        check_ok(mlx_io_gguf_has_metadata_array(&flag, g, "numbers"));
        assert_true(flag);
        check_ok(mlx_io_gguf_has_metadata_array(&flag, g, "text"));
        assert_false(flag);
        check_ok(mlx_io_gguf_has_metadata_string(&flag, g, "text"));
        assert_true(flag);
        check_ok(mlx_io_gguf_has_metadata_vector_string(&flag, g, "texts"));
        assert_true(flag);
        check_ok(mlx_io_gguf_has_metadata_vector_string(&flag, g, "text"));
        assert_false(flag);

        if (saved)
            break;
        mlx_stream stream = mlx_default_cpu_stream_new();
        check_ok(mlx_save_gguf(at("g"), g));
        check_ok(mlx_io_gguf_free(g));
        g = (mlx_io_gguf){NULL};
        check_ok(mlx_load_gguf(&g, at("g.gguf"), stream));
        /* Over the file it was read from, and into a live handle. */
        void *box = g.ctx;
        check_ok(mlx_save_gguf(at("g.gguf"), g));
        check_ok(mlx_load_gguf(&g, at("g.gguf"), stream));
        assert_ptr_equal(g.ctx, box);
        check_fails(mlx_load_gguf(&g, at("none.gguf"), stream),
                    "[load_gguf] Failed to open");
        check_fails(mlx_load_gguf(&g, at("name.npy"), stream), "GGUF");
        mlx_stream_free(stream);
    }
    check_ok(mlx_io_gguf_free(g));
    check_ints(b, 2, (int[]){1, 2}); /* stays */
    mlx_vector_string_free(list);
    mlx_string_free(text);
    mlx_array_free(a);
    mlx_array_free(b);
}

/* ---- threads ---- */

enum { THREADS = 4, PER_THREAD = 8, COUNT = THREADS * PER_THREAD };
static mlx_array shared[COUNT];

static void *evaluate(void *first)
{
    for (int i = 0; i < PER_THREAD; i++)
        if (mlx_array_eval(*((mlx_array *)first + i)))
            return first;
    return NULL;
}

static void test_arrays_of_one_file_are_read_on_any_thread(void **state)
{
    (void)state;
    mlx_stream stream = mlx_default_cpu_stream_new();
    mlx_map_string_to_array map = mlx_map_string_to_array_new();
    mlx_map_string_to_string metadata = {NULL};
    char name[16];
    for (int i = 0; i < COUNT; i++) {
        snprintf(name, sizeof name, "%d", i);
        mlx_array a = ints(2, (int[]){i, -i});
        check_ok(mlx_map_string_to_array_insert(map, name, a));
        mlx_array_free(a);
    }
    check_ok(mlx_save_safetensors(at("t.safetensors"), map, metadata));
    check_ok(
        mlx_load_safetensors(&map, &metadata, at("t.safetensors"), stream));
    for (int i = 0; i < COUNT; i++) {
        snprintf(name, sizeof name, "%d", i);
        check_ok(mlx_map_string_to_array_get(&shared[i], map, name));
    }
    mlx_map_string_to_array_free(map);
    mlx_map_string_to_string_free(metadata);
    pthread_t threads[THREADS];
    for (int t = 0; t < THREADS; t++)
        assert_int_equal(pthread_create(&threads[t], NULL, evaluate,
                                        &shared[t * PER_THREAD]),
                         0);
    for (int t = 0; t < THREADS; t++) {
        void *failed;
        pthread_join(threads[t], &failed);
        assert_null(failed);
    }
    for (int i = 0; i < COUNT; i++) {
        check_ints(shared[i], 2, (int[]){i, -i});
        mlx_array_free(shared[i]);
    }
    mlx_stream_free(stream);
}

/* ---- memory ---- */

static qn_status use_all(void)
{
    store s = new_store();
    mlx_stream stream = mlx_default_cpu_stream_new();
    mlx_map_string_to_array map = {NULL};
    mlx_map_string_to_string metadata = {NULL};
    mlx_io_gguf g = mlx_io_gguf_new(), loaded = {NULL};
    mlx_array a = mlx_array_new_int(3), b = mlx_array_new();
    mlx_vector_string keys = {NULL};
    mlx_string text = {NULL};
    mlx_io_writer to = mlx_io_writer_new(&s, vtable);
    bool failed = !stream.ctx || !g.ctx || !a.ctx || !to.ctx;
    failed = failed || mlx_save_writer(to, a) || mlx_save(at("each"), a);
    failed = failed || mlx_load(&b, at("each.npy"), stream);
    s.position = 0;
    mlx_io_reader in = mlx_io_reader_new(&s, vtable);
    failed = failed || !in.ctx || mlx_load_reader(&b, in, stream);
    failed =
        failed || mlx_io_reader_tostring(&text, in) ||
        mlx_load_safetensors(&map, &metadata, at("each.safetensors"), stream) ||
        mlx_save_safetensors(at("each"), map, metadata) ||
        mlx_map_string_to_array_get(&b, map, "x") || mlx_array_eval(b);
    failed = failed || mlx_io_gguf_set_array(g, "x", b) ||
             mlx_io_gguf_set_metadata_string(g, "text", "t") ||
             mlx_io_gguf_set_metadata_array(g, "n", a) ||
             mlx_io_gguf_get_keys(&keys, g) ||
             mlx_io_gguf_set_metadata_vector_string(g, "keys", keys) ||
             mlx_save_gguf(at("each"), g) ||
             mlx_load_gguf(&loaded, at("each.gguf"), stream) ||
             mlx_io_gguf_get_metadata_vector_string(&keys, loaded, "keys") ||
             mlx_io_gguf_get_metadata_string(&text, loaded, "text") ||
             mlx_io_gguf_get_array(&b, loaded, "x") || mlx_array_eval(b);
    mlx_io_reader_free(in);
    mlx_io_writer_free(to);
    mlx_map_string_to_array_free(map);
    mlx_map_string_to_string_free(metadata);
    mlx_io_gguf_free(g);
    mlx_io_gguf_free(loaded);
    mlx_vector_string_free(keys);
    mlx_string_free(text);
    mlx_array_free(a);
    mlx_array_free(b);
    mlx_stream_free(stream);
    if (s.frees != 2) /* also when a stream could not be made */
        return QN_E_INTERNAL;
    return failed ? QN_E_NOMEM : QN_OK;
}

static void test_each_allocation_may_fail(void **state)
{
    (void)state;
    mlx_stream stream = mlx_default_cpu_stream_new();
    mlx_map_string_to_array map = mlx_map_string_to_array_new();
    mlx_map_string_to_string metadata = mlx_map_string_to_string_new();
    mlx_array x = ints(3, (int[]){1, 2, 3});
    check_ok(mlx_map_string_to_array_insert(map, "x", x));
    check_ok(mlx_map_string_to_string_insert(metadata, "k", "v"));
    check_ok(mlx_save_safetensors(at("each"), map, metadata));
    mlx_map_string_to_array_free(map);
    mlx_map_string_to_string_free(metadata);
    mlx_array_free(x);
    mlx_stream_free(stream);
    each_alloc_may_fail(use_all);

    DIR *files = opendir(dir);
    assert_non_null(files);
    for (struct dirent *e; (e = readdir(files));)
        assert_null(strstr(e->d_name, ".tmp"));
    closedir(files);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_array_goes_through_a_stream),
        cmocka_unit_test(test_a_stream_outlives_the_last_array_not_at_all),
        cmocka_unit_test(test_streams_tell_who_they_are),
        cmocka_unit_test(test_a_failing_stream_leaves_the_result_alone),
        cmocka_unit_test(test_empty_handles_are_named),
        cmocka_unit_test(test_one_array_in_a_file),
        cmocka_unit_test(test_maps_go_through_files_and_streams),
        cmocka_unit_test(test_gguf_contents_have_kinds),
        cmocka_unit_test(test_arrays_of_one_file_are_read_on_any_thread),
        cmocka_unit_test(test_each_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
