/* abi_files.c: byte streams and files, whole and damaged. */
#include "abi.h"

#include <unistd.h>

/* ---- byte streams ---- */

typedef struct bytes {
    char *data;
    size_t size, at;
    bool broken, short_reads;
} bytes;

/* What has last been written, for readers to come.  Guarded by the library's
 * promise to call `free` once: programs run on one thread, but arrays that wait
 * to be read may be freed on another. */
static struct {
    char data[1 << 16];
    size_t size;
} written;
static atomic_flag written_busy = ATOMIC_FLAG_INIT;

static void lock_written(void)
{
    while (atomic_flag_test_and_set(&written_busy))
        ;
}

static bool bytes_fine(void *desc)
{
    return !((bytes *)desc)->broken;
}

static size_t bytes_tell(void *desc)
{
    return ((bytes *)desc)->at;
}

static int bytes_seek(void *desc, int64_t off, int whence)
{
    bytes *b = desc;
    int64_t at = off + (whence == 0   ? 0
                        : whence == 1 ? (int64_t)b->at
                                      : (int64_t)b->size);
    if (at < 0 || at > (int64_t)sizeof written.data)
        return -1;
    b->at = (size_t)at;
    return 0;
}

static size_t bytes_read_at(void *desc, char *data, size_t n, size_t off)
{
    bytes *b = desc;
    if (off > b->size)
        return 0;
    n = n > b->size - off ? b->size - off : n;
    n = b->short_reads ? n / 2 : n;
    memcpy(data, b->data + off, n);
    return n;
}

static size_t bytes_read(void *desc, char *data, size_t n)
{
    bytes *b = desc;
    n = bytes_read_at(desc, data, n, b->at);
    b->at += n;
    return n;
}

static size_t bytes_write(void *desc, const char *data, size_t n)
{
    bytes *b = desc;
    if (b->at > sizeof written.data || n > sizeof written.data - b->at)
        return 0;
    char *grown = realloc(b->data, b->at + n + 1);
    FUZZ_CHECK(grown);
    b->data = grown;
    if (b->at > b->size)
        memset(b->data + b->size, 0, b->at - b->size);
    memcpy(b->data + b->at, data, n);
    b->at += n;
    b->size = b->at > b->size ? b->at : b->size;
    return n;
}

static const char *bytes_label(void *desc)
{
    return ((bytes *)desc)->broken ? "%s%n" : "bytes of the program";
}

static void bytes_free(void *desc)
{
    bytes *b = desc;
    free(b->data);
    free(b);
    fz_held--;
}

static void writer_free(void *desc)
{
    bytes *b = desc;
    lock_written();
    if (b->size && b->size <= sizeof written.data) {
        memcpy(written.data, b->data, b->size);
        written.size = b->size;
    }
    atomic_flag_clear(&written_busy);
    bytes_free(desc);
}

static const mlx_io_vtable reader_calls = {
    bytes_fine,    bytes_fine,  bytes_tell,  bytes_seek, bytes_read,
    bytes_read_at, bytes_write, bytes_label, bytes_free};

static bytes *new_bytes(fz *f)
{
    bytes *b = calloc(1, sizeof *b);
    FUZZ_CHECK(b);
    b->broken = fz_one_in(f, 30);
    b->short_reads = fz_one_in(f, 30);
    fz_held++;
    return b;
}

/* Something whole to read. */
static void write_something(fz *f)
{
    bytes *b = calloc(1, sizeof *b);
    FUZZ_CHECK(b);
    fz_held++;
    mlx_io_vtable calls = reader_calls;
    calls.free = writer_free;
    mlx_io_writer writer = mlx_io_writer_new(b, calls);
    mlx_array a = fz_new_array(f, "a");
    mlx_map_string_to_array map = mlx_map_string_to_array_new();
    mlx_map_string_to_string words = mlx_map_string_to_string_new();
    (void)mlx_map_string_to_array_insert(map, "a", a);
    if (f->calling && strstr(f->calling, "safetensors"))
        (void)mlx_save_safetensors_writer(writer, map, words);
    else
        (void)mlx_save_writer(writer, a);
    mlx_io_writer_free(writer);
    mlx_map_string_to_array_free(map);
    mlx_map_string_to_string_free(words);
    mlx_array_free(a);
}

mlx_io_reader fz_new_reader(fz *f)
{
    if (!fz_one_in(f, 3))
        write_something(f);
    bytes *b = new_bytes(f);
    lock_written();
    b->size = written.size;
    b->data = malloc(b->size + 1);
    FUZZ_CHECK(b->data);
    memcpy(b->data, written.data, b->size);
    atomic_flag_clear(&written_busy);
    if (b->size && fz_one_in(f, 2)) {
        b->data[fz_u32(f) % b->size] ^= (char)(1 << fz_below(f, 8));
        if (fz_one_in(f, 3))
            b->size = fz_u32(f) % b->size;
    }
    return mlx_io_reader_new(b, reader_calls);
}

mlx_io_writer fz_new_writer(fz *f)
{
    mlx_io_vtable calls = reader_calls;
    calls.free = writer_free;
    return mlx_io_writer_new(new_bytes(f), calls);
}

/* ---- files ---- */

mlx_io_gguf fz_new_gguf(fz *f)
{
    mlx_io_gguf gguf = mlx_io_gguf_new();
    mlx_array a = fz_new_array(f, "a");
    (void)mlx_io_gguf_set_array(gguf, "a", a);
    (void)mlx_io_gguf_set_metadata_array(gguf, "b", a);
    (void)mlx_io_gguf_set_metadata_string(gguf, "a", "text");
    mlx_array_free(a);
    return gguf;
}

static char directory[64];
static char paths[FZ_FILES + 1][96];

void fz_files_make(void)
{
    static const char *const names[FZ_FILES] = {
        "0.npy", "1.safetensors", "2.gguf", "3", "4.mlxfn", "5.npy"};
    snprintf(directory, sizeof directory, "/tmp/quern-fuzz-XXXXXX");
    FUZZ_CHECK(mkdtemp(directory));
    for (int i = 0; i < FZ_FILES; i++)
        snprintf(paths[i], sizeof paths[i], "%s/%s", directory, names[i]);
    snprintf(paths[FZ_FILES], sizeof paths[0], "%s/none/none", directory);
}

void fz_remove_files(void)
{
    written.size = 0;
    char name[sizeof paths + 16];
    for (int i = 0; i < FZ_FILES; i++) {
        static const char *const ends[] = {"", ".npy", ".safetensors", ".gguf"};
        for (size_t j = 0; j < sizeof ends / sizeof *ends; j++) {
            snprintf(name, sizeof name, "%s%s", paths[i], ends[j]);
            remove(name);
        }
    }
}

void fz_files_end(void)
{
    fz_remove_files();
    rmdir(directory);
}

/* Contents of two arrays by name. */
static mlx_map_string_to_array new_map(fz *f)
{
    mlx_map_string_to_array map = mlx_map_string_to_array_new();
    static const char *const names[] = {"a", "b"};
    for (int i = 0; i < 2; i++) {
        mlx_array a = fz_new_array(f, "a");
        (void)mlx_map_string_to_array_insert(map, names[i], a);
        mlx_array_free(a);
    }
    return map;
}

/* Writes a file of the kind. */
static void write_file(fz *f, int file)
{
    if (file == 1) {
        mlx_map_string_to_array map = new_map(f);
        mlx_map_string_to_string words = mlx_map_string_to_string_new();
        (void)mlx_save_safetensors(paths[file], map, words);
        mlx_map_string_to_array_free(map);
        mlx_map_string_to_string_free(words);
    } else if (file == 2) {
        mlx_io_gguf contents = fz_new_gguf(f);
        (void)mlx_save_gguf(paths[file], contents);
        mlx_io_gguf_free(contents);
    } else {
        mlx_array a = fz_new_array(f, "a");
        (void)mlx_save(paths[file], a);
        mlx_array_free(a);
    }
    if (fz_one_in(f, 3))
        fz_damage(f);
}

const char *fz_path_for(fz *f)
{
    const char *name = f->calling ? f->calling : "";
    bool load = strstr(name, "load");
    int file = strstr(name, "safetensors")        ? 1
               : strstr(name, "gguf")             ? 2
               : load || strstr(name, "mlx_save") ? 0
                                                  : 4;
    if (fz_one_in(f, 6))
        file = (int)fz_below(f, FZ_FILES + 1);
    if (load && file <= 2 && !fz_one_in(f, 3))
        write_file(f, file);
    return paths[file];
}

void fz_damage(fz *f)
{
    FILE *file = fopen(paths[fz_below(f, FZ_FILES)], "r+b");
    if (!file)
        return;
    fseek(file, 0, SEEK_END);
    long size = ftell(file);
    if (size > 0) {
        long at = (long)(fz_u32(f) % (uint32_t)size);
        if (fz_one_in(f, 2) && at > 200)
            at %= 200; /* headers are more interesting */
        fseek(file, at, SEEK_SET);
        fputc((int)fz_below(f, 256), file);
        if (fz_one_in(f, 4) && ftruncate(fileno(file), at))
            perror("ftruncate");
    }
    fclose(file);
}

FILE *fz_file(fz *f)
{
    (void)f;
    FILE *file = fopen("/dev/null", "w");
    FUZZ_CHECK(file);
    return file;
}

void fz_file_close(FILE *file)
{
    fclose(file);
}
