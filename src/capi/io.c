/* io.c: arrays in files and in the caller's streams.
 *
 * Names of files to save get the suffix of their format if they lack it, as in
 * MLX. */
#include "handles.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "io/file.h"
#include "io/gguf.h"
#include "io/npy.h"
#include "io/safetensors.h"
#include "ops_entry.h"

#define QN_GET_READER(name, handle)                                            \
    QN_GET_OR(qn_io, name, (handle).ctx, mlx_io_reader, 1)
#define QN_GET_WRITER(name, handle)                                            \
    QN_GET_OR(qn_io, name, (handle).ctx, mlx_io_writer, 1)

/* `file` with the suffix (qn_free); NULL when memory is out. */
static char *with_suffix(const char *file, const char *suffix)
{
    qn_buf path = QN_BUF_INIT;
    size_t size = strlen(file), more = strlen(suffix);
    qn_buf_add_text(&path, file);
    if (size < more || memcmp(file + size - more, suffix, more) != 0)
        qn_buf_add_text(&path, suffix);
    char *text = qn_buf_take(&path);
    qn_buf_free(&path);
    return text;
}

static qn_status open_to_save(qn_io **out, const char *operation,
                              const char *file, const char *suffix)
{
    char *path = with_suffix(qn_capi_text(file), suffix);
    qn_status status = path ? qn_io_create(out, operation, path) : QN_E_NOMEM;
    qn_free(path);
    return status;
}

/* ---- npy ---- */

int mlx_load_reader(mlx_array *res, mlx_io_reader in_stream, const mlx_stream s)
{
    QN_GET_READER(in, in_stream);
    QN_GET_STREAM(stream, s);
    QN_RETURN_OP(res, qn_npy_load(&out, in, stream));
}

int mlx_load(mlx_array *res, const char *file, const mlx_stream s)
{
    QN_GET_STREAM(stream, s);
    qn_io *in;
    qn_array *out;
    QN_CALL(qn_io_open(&in, "load", qn_capi_text(file)));
    qn_status status = qn_npy_load(&out, in, stream);
    qn_io_unref(in);
    QN_CALL(status);
    return QN_STORE_ARRAY(res, out);
}

int mlx_save_writer(mlx_io_writer out_stream, const mlx_array a)
{
    QN_GET_WRITER(to, out_stream);
    QN_GET_ARRAY(array, a);
    QN_CALL(qn_npy_save(to, array));
    return 0;
}

int mlx_save(const char *file, const mlx_array a)
{
    QN_GET_ARRAY(array, a);
    qn_io *to;
    QN_CALL(open_to_save(&to, "save", file, ".npy"));
    QN_CALL(qn_io_commit(to, qn_npy_save(to, array)));
    return 0;
}

/* ---- safetensors ---- */

static qn_status load_safetensors(mlx_map_string_to_array *res_0,
                                  mlx_map_string_to_string *res_1, qn_io *in,
                                  qn_stream *stream)
{
    qn_map *arrays, *metadata;
    qn_status status = qn_safetensors_load(&arrays, &metadata, in, stream);
    return status ? status : qn_handle_set_maps(res_0, arrays, res_1, metadata);
}

int mlx_load_safetensors_reader(mlx_map_string_to_array *res_0,
                                mlx_map_string_to_string *res_1,
                                mlx_io_reader in_stream, const mlx_stream s)
{
    QN_GET_READER(in, in_stream);
    QN_GET_STREAM(stream, s);
    QN_CALL(load_safetensors(res_0, res_1, in, stream));
    return 0;
}

int mlx_load_safetensors(mlx_map_string_to_array *res_0,
                         mlx_map_string_to_string *res_1, const char *file,
                         const mlx_stream s)
{
    QN_GET_STREAM(stream, s);
    qn_io *in;
    QN_CALL(qn_io_open(&in, "load_safetensors", qn_capi_text(file)));
    qn_status status = load_safetensors(res_0, res_1, in, stream);
    qn_io_unref(in);
    QN_CALL(status);
    return 0;
}

int mlx_save_safetensors_writer(mlx_io_writer in_stream,
                                const mlx_map_string_to_array param,
                                const mlx_map_string_to_string metadata)
{
    QN_GET_WRITER(to, in_stream);
    QN_GET_OR(const qn_map, arrays, qn_handle_array_map(param),
              mlx_map_string_to_array, 1);
    QN_CALL(qn_safetensors_save(to, arrays, qn_handle_text_map(metadata)));
    return 0;
}

int mlx_save_safetensors(const char *file, const mlx_map_string_to_array param,
                         const mlx_map_string_to_string metadata)
{
    QN_GET_OR(const qn_map, arrays, qn_handle_array_map(param),
              mlx_map_string_to_array, 1);
    qn_io *to;
    QN_CALL(open_to_save(&to, "save_safetensors", file, ".safetensors"));
    QN_CALL(qn_io_commit(
        to, qn_safetensors_save(to, arrays, qn_handle_text_map(metadata))));
    return 0;
}

/* ---- GGUF ---- */

int mlx_load_gguf(mlx_io_gguf *gguf, const char *file, const mlx_stream s)
{
    QN_GET_STREAM(stream, s);
    qn_gguf_contents made;
    QN_CALL(qn_gguf_load(&made, qn_capi_text(file), stream));
    qn_gguf_contents *box = gguf->ctx;
    if (!box) {
        box = qn_calloc(1, sizeof *box);
        if (!box) {
            qn_gguf_contents_free(&made);
            return QN_REPORT();
        }
        gguf->ctx = box;
    }
    qn_gguf_contents_free(box);
    *box = made;
    return 0;
}

int mlx_save_gguf(const char *file, mlx_io_gguf gguf)
{
    QN_GET_OR(const qn_gguf_contents, contents, gguf.ctx, mlx_io_gguf, 1);
    char *path = with_suffix(qn_capi_text(file), ".gguf");
    qn_status status = path ? qn_gguf_save(path, contents) : QN_E_NOMEM;
    qn_free(path);
    QN_CALL(status);
    return 0;
}
