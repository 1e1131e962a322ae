/* import.c: from a file to graphs.
 *
 * What a file says is built by the usual builders on placeholders while a
 * recording listens, as if a program had called them; what a call runs is the
 * recording.  Nothing in the file is trusted: lengths are compared with what is
 * left of it, ids are looked up, and shapes are what the builders say. */
#include "import.h"

#include "mlxfn.h"
#include "signature.h"
#include "tape.h"

#include "base/alloc.h"
#include "base/file.h"
#include "base/map.h"

typedef struct function {
    qn_signature signature;
    qn_tape tape;
} function;

struct qn_imported {
    bool shapeless;
    function *functions;
    size_t count;
};

void qn_imported_free(qn_imported *f)
{
    for (size_t i = 0; f && i < f->count; i++) {
        qn_signature_free(&f->functions[i].signature);
        qn_tape_free(&f->functions[i].tape);
    }
    if (f)
        qn_free(f->functions);
    qn_free(f);
}

/* ---- one function ---- */

/* A file on its way into a recording. */
typedef struct importer {
    qn_function base;
    qn_mlxfn_reader *r;
    qn_map *constants; /* by id: arrays, held; of all functions */
    qn_map *known;     /* by id: arrays, held; of this one */
    const uint64_t *input_ids, *output_ids;
    size_t noutputs;
} importer;

static void let_go(void *array)
{
    qn_array_unref(array);
}

/* Takes the reference over.  An id that is known keeps its array. */
static void remember(qn_mlxfn_reader *r, qn_map *map, uint64_t id,
                     qn_array *array)
{
    bool added = false;
    qn_map_value *value =
        qn_map_put(map, (qn_str){(const char *)&id, sizeof id}, &added);
    if (!value)
        r->status = r->status ? r->status : QN_E_NOMEM;
    if (value && added)
        value->ptr = array;
    else
        qn_array_unref(array);
}

static qn_array *find(const qn_map *map, uint64_t id)
{
    const qn_map_value *value =
        qn_map_get(map, (qn_str){(const char *)&id, sizeof id});
    return value ? value->ptr : NULL;
}

static qn_array *known(importer *m, uint64_t id)
{
    qn_array *array = find(m->known, id);
    if (!array)
        qn_mlxfn_refuse(m->r, "The id of an array that is known");
    return array;
}

/* A list of ids; *count of them, to be freed. */
static uint64_t *read_ids(qn_mlxfn_reader *r, size_t *count)
{
    *count = qn_mlxfn_length(r, 8);
    uint64_t *ids = qn_calloc(*count, sizeof *ids);
    if (!ids)
        r->status = r->status ? r->status : QN_E_NOMEM;
    for (size_t i = 0; i < *count && ids; i++)
        ids[i] = qn_mlxfn_u64(r);
    return ids;
}

static void read_constant(importer *m, uint64_t id)
{
    qn_mlxfn_reader *r = m->r;
    qn_array *array = find(m->constants, id);
    if (!array) {
        qn_mlxfn_type type;
        qn_mlxfn_shape(r, &type.dims);
        type.dtype = qn_mlxfn_dtype(r);
        size_t size = qn_dtype_size(type.dtype);
        bool fits = true;
        for (int i = 0; i < type.dims.ndim; i++)
            fits &= qn_mul_size(&size, size, (size_t)type.dims.dim[i]);
        if (!fits)
            qn_mlxfn_refuse(r, "An array that fits into the file");
        const uint8_t *data = qn_mlxfn_skip(r, size);
        if (!data)
            return;
        r->status = qn_array_from_data(&array, data, type.dims.dim,
                                       type.dims.ndim, type.dtype);
        if (r->status)
            return;
        remember(r, m->constants, id, array);
        array = find(m->constants, id);
    }
    if (array)
        remember(r, m->known, id, qn_array_ref(array));
}

/* What the file says of the outputs; *ids is theirs. */
static qn_mlxfn_type *read_outputs(qn_mlxfn_reader *r, uint64_t id,
                                   uint64_t **ids, size_t *count)
{
    uint64_t more = qn_mlxfn_u64(r);
    *count = 1;
    if (more)
        *ids = read_ids(r, count);
    else if ((*ids = qn_calloc(1, sizeof **ids)))
        **ids = id;
    if (more && more != *count - 1)
        qn_mlxfn_refuse(r, "An id for each output");
    qn_mlxfn_type *types = qn_calloc(*count, sizeof *types);
    if (!types || !*ids)
        r->status = r->status ? r->status : QN_E_NOMEM;
    for (int pass = 0; pass < 2 && !r->status; pass++) {
        if (more && qn_mlxfn_length(r, pass ? 5 : 8) != *count)
            qn_mlxfn_refuse(r, "A shape and a dtype for each output");
        for (size_t i = 0; i < *count && !r->status; i++)
            if (pass)
                types[i].dtype = qn_mlxfn_dtype(r);
            else
                qn_mlxfn_shape(r, &types[i].dims);
    }
    return types;
}

static void build(importer *m, qn_mlxfn_made *made, qn_stream *stream,
                  const uint64_t *ids)
{
    qn_scope c;
    qn_array **out = qn_calloc(made->nout, sizeof(qn_array *));
    made->c = &c;
    made->out = out;
    if (!out) {
        m->r->status = QN_E_NOMEM;
        return;
    }
    qn_scope_begin(&c, stream);
    qn_mlxfn_build(made);
    m->r->status = qn_scope_end_many(&c, out, out, (int)made->nout);
    for (size_t i = 0; i < made->nout && !c.status; i++)
        remember(m->r, m->known, ids[i], out[i]);
    qn_free(out);
}

static void read_computed(importer *m, uint64_t id)
{
    qn_mlxfn_reader *r = m->r;
    qn_mlxfn_field fields[QN_MLXFN_FIELDS];
    qn_mlxfn_made made = {.f = fields};
    uint64_t *in = read_ids(r, &made.nin), *ids = NULL;
    qn_stream *stream = qn_mlxfn_stream(r);
    qn_str name = qn_mlxfn_text(r);
    made.prim = qn_mlxfn_find(name);
    if (!r->status && made.prim == QN_MLXFN_COUNT)
        r->status = qn_fail(QN_E_UNSUPPORTED,
                            "[import_function] Unable to deserialize primitive "
                            "%.*s",
                            (int)(name.size < 64 ? name.size : 64), name.data);
    if (!r->status)
        qn_mlxfn_state(r, made.prim, fields);
    qn_array **arrays = qn_calloc(made.nin, sizeof *arrays);
    qn_mlxfn_type *like = NULL;
    if (!arrays)
        r->status = r->status ? r->status : QN_E_NOMEM;
    if (!r->status)
        like = read_outputs(r, id, &ids, &made.nout);
    for (size_t i = 0; i < made.nin && !r->status; i++)
        arrays[i] = known(m, in[i]);
    if (!r->status) {
        made.in = arrays;
        made.like = like;
        build(m, &made, stream, ids);
    }
    qn_free(in);
    qn_free(ids);
    qn_free(arrays);
    qn_free(like);
}

/* Called by the recording. */
static qn_status read_entries(const qn_function *self, qn_arrays *out,
                              qn_array *const *inputs, size_t ninputs)
{
    importer *m = (importer *)(uintptr_t)self;
    qn_mlxfn_reader *r = m->r;
    for (size_t i = 0; i < ninputs; i++)
        remember(r, m->known, m->input_ids[i], qn_array_ref(inputs[i]));
    /* An entry takes an id and two bools at least. */
    size_t count = qn_mlxfn_length(r, 10);
    for (size_t i = 0; i < count && !r->status; i++) {
        uint64_t id = qn_mlxfn_u64(r);
        if (qn_mlxfn_bool(r))
            read_computed(m, id);
        else if (qn_mlxfn_bool(r))
            read_constant(m, id);
        else if (!r->status)
            (void)known(m, id);
    }
    qn_arrays made = {0};
    if (!r->status)
        r->status = qn_arrays_new(&made, m->noutputs);
    for (size_t i = 0; i < m->noutputs && !r->status; i++) {
        qn_array *array = known(m, m->output_ids[i]);
        made.data[i] = array ? qn_array_ref(array) : NULL;
    }
    if (r->status)
        qn_arrays_free(&made);
    else
        *out = made;
    return r->status;
}

/* Keywords, and types and shapes of the inputs; *ids is theirs. */
static void read_signature(qn_mlxfn_reader *r, qn_signature *s, uint64_t **ids)
{
    size_t nkeys = qn_mlxfn_length(r, 8), count;
    qn_str *keys = qn_calloc(nkeys, sizeof *keys);
    if (!keys)
        r->status = r->status ? r->status : QN_E_NOMEM;
    for (size_t i = 0; i < nkeys && !r->status; i++)
        keys[i] = qn_mlxfn_text(r);
    if (!r->status)
        r->status = qn_signature_keys(s, keys, nkeys);
    qn_free(keys);
    *ids = read_ids(r, &count);
    if (!r->status && qn_mlxfn_length(r, 13) != count)
        qn_mlxfn_refuse(r, "A type for each input");
    if (!r->status && count < nkeys)
        qn_mlxfn_refuse(r, "An input for each keyword");
    if (!r->status)
        r->status = qn_arrays_new(&s->inputs, count);
    for (size_t i = 0; i < count && !r->status; i++) {
        qn_dims dims;
        qn_mlxfn_shape(r, &dims);
        qn_dtype dtype = qn_mlxfn_dtype(r);
        if (!r->status)
            r->status =
                qn_array_new(&s->inputs.data[i], dtype, dims.dim, dims.ndim);
    }
}

static void read_function(qn_imported *f, qn_mlxfn_reader *r, qn_map *constants)
{
    function made = {0};
    importer m = {.base = {read_entries},
                  .r = r,
                  .constants = constants,
                  .known = qn_map_new(0)};
    uint64_t *input_ids = NULL, *output_ids = NULL;
    if (!m.known)
        r->status = r->status ? r->status : QN_E_NOMEM;
    read_signature(r, &made.signature, &input_ids);
    output_ids = read_ids(r, &m.noutputs);
    m.input_ids = input_ids;
    m.output_ids = output_ids;
    if (!r->status)
        r->status = qn_tape_record(&made.tape, &m.base, &made.signature.inputs,
                                   f->shapeless);
    void *grown = r->status ? NULL
                            : qn_reallocarray(f->functions, f->count + 1,
                                              sizeof *f->functions);
    if (grown) {
        f->functions = grown;
        f->functions[f->count++] = made;
    } else {
        r->status = r->status ? r->status : QN_E_NOMEM;
        qn_signature_free(&made.signature);
        qn_tape_free(&made.tape);
    }
    qn_map_free(m.known, let_go);
    qn_free(input_ids);
    qn_free(output_ids);
}

/* ---- the file ---- */

qn_status qn_imported_parse(qn_imported **out, qn_bytes file)
{
    qn_mlxfn_reader r = {.bytes = file};
    qn_map *constants = qn_map_new(0);
    qn_imported *f = qn_calloc(1, sizeof *f);
    if (!f || !constants)
        r.status = QN_E_NOMEM;
    (void)qn_mlxfn_text(&r); /* version of the writer */
    int32_t count = qn_mlxfn_i32(&r);
    bool shapeless = qn_mlxfn_bool(&r);
    (void)qn_mlxfn_text(&r); /* metadata */
    if (count < 0)
        qn_mlxfn_refuse(&r, "A number of functions");
    if (f)
        f->shapeless = shapeless;
    for (int32_t i = 0; i < count && !r.status; i++)
        read_function(f, &r, constants);
    qn_map_free(constants, let_go);
    if (r.status)
        qn_imported_free(f);
    else
        *out = f;
    return r.status;
}

qn_status qn_imported_new(qn_imported **out, const char *path)
{
    qn_file *file;
    qn_status status = qn_file_map(&file, path);
    if (status) {
        qn_error cause;
        qn_error_save(&cause);
        return status == QN_E_NOMEM
                   ? status
                   : qn_fail(status, "[import_function] Failed to open %s: %s",
                             path, cause.text);
    }
    status = qn_imported_parse(out, qn_file_bytes(file));
    qn_file_unref(file);
    if (status == QN_E_FORMAT)
        qn_fail_where(status, "%s", path);
    return status;
}

/* ---- calls ---- */

static qn_status refuse_call(const qn_imported *f, qn_array *const *args,
                             size_t nargs, const qn_named *named, size_t nnamed)
{
    qn_buf text = QN_BUF_INIT;
    for (size_t i = 0; i < f->count; i++) {
        qn_buf_printf(&text, " %zu. Function with ", i + 1);
        qn_signature_describe(&text, "   ", &f->functions[i].signature);
    }
    qn_buf_add_text(&text, "\nCalled with ");
    qn_signature_text(&text, "  ", args, nargs, named, nnamed);
    qn_status status = qn_buf_status(&text);
    if (!status)
        status = qn_fail(QN_E_ARG,
                         "[import_function::call] No imported function found "
                         "which matches the given positional and keyword "
                         "arguments. Possible functions include:\n%s",
                         text.data);
    qn_buf_free(&text);
    return status;
}

qn_status qn_imported_call(qn_arrays *out, const qn_imported *f,
                           qn_array *const *args, size_t nargs,
                           const qn_named *named, size_t nnamed)
{
    const function *fits = NULL;
    for (size_t i = 0; i < f->count && !fits; i++)
        if (qn_signature_fits(&f->functions[i].signature, f->shapeless, args,
                              nargs, named, nnamed))
            fits = &f->functions[i];
    if (!fits)
        return refuse_call(f, args, nargs, named, nnamed);
    qn_array **all = qn_calloc(nargs + nnamed, sizeof(qn_array *));
    if (!all)
        return QN_E_NOMEM;
    for (size_t i = 0; i < nargs + nnamed; i++)
        all[i] = i < nargs ? args[i] : named[i - nargs].value;
    qn_status status = qn_tape_run(out, &fits->tape, all, f->shapeless);
    qn_free(all);
    return status;
}

size_t qn_imported_count(const qn_imported *f)
{
    return f->count;
}

const qn_arrays *qn_imported_inputs(const qn_imported *f, size_t i,
                                    const qn_str **keys, size_t *nkeys)
{
    const qn_signature *s = &f->functions[i].signature;
    *keys = s->keys;
    *nkeys = s->nkeys;
    return &s->inputs;
}
