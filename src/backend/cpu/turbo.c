/* turbo.c: custom kernels of the packed KV format (base/turboquant.h).
 *
 *   turboquant_kv_decode      the five planes to keys and to rotated values,
 *                             float32 (eager) or bfloat16 (deferred)
 *   turboquant_kv_inverse256  the same of heads of 256, 8-bit keys and 3-bit
 *                             values, with the rotation undone: all bfloat16
 *   quern_tq_inverse          that for every form
 *   quern_tq_encode_keys, quern_tq_encode_values
 *
 * The first two are those of programs written for Metal.  Each checks every
 * shape and dtype before it reads.  Rows, a head of a token each, are shared
 * among the threads; none depends on another. */
#include "registered.h"

#include "backend/cpu/kernels/turbo/turbo.h"
#include "cpu.h"

#include <string.h>

/* Rows of a task. */
enum { CHUNK = 64 };

static size_t chunks_of(size_t rows)
{
    return (rows + CHUNK - 1) / CHUNK;
}

/* ---- rows of a view ---- */

static int last_axis(const qn_kernel_view *v)
{
    return v->ndim - 1;
}

/* Row number `row` of a view: w elements, where they lie or gathered in
 * `room`. */
static const void *row_of(const qn_kernel_view *v, size_t row, void *room)
{
    int last = last_axis(v);
    const char *at = qn_view_place(v, qn_view_offset(v, last, row));
    int64_t step = v->strides[last];
    size_t item = qn_dtype_size(v->dtype), w = (size_t)v->shape[last];
    if (step == 1 || w == 1)
        return at;
    for (size_t i = 0; i < w; i++)
        memcpy((char *)room + i * item, at + (int64_t)i * step * (int64_t)item,
               item);
    return room;
}

static void row_floats(float *out, const qn_kernel_view *v, size_t row)
{
    float room[QN_TQ_MAX_DIM];
    size_t w = (size_t)v->shape[last_axis(v)];
    const void *from = row_of(v, row, room);
    qn_cpu_widen(out, from, w, v->dtype);
}

/* [..., w] of a type, with the other axes of `like`. */
static bool is_rows_like(const qn_kernel_view *v, const qn_kernel_view *like,
                         qn_dtype type, int w)
{
    bool same = v->dtype == type && v->ndim == like->ndim && v->ndim &&
                v->shape[v->ndim - 1] == w;
    for (int i = 0; same && i < v->ndim - 1; i++)
        same = v->shape[i] == like->shape[i];
    return same;
}

/* ---- decoding ---- */

typedef struct decoder {
    const qn_turbo_kernel *kernel;
    const qn_kernel_view *kp, *ks, *kz, *vp, *vs;
    int d, key_bits, value_bits, key_group, value_group;
    bool inverse, deferred; /* neither: floats, rotated */
    uint16_t *keys;
    char *values;
    size_t tokens, chunks; /* of a head */
    bool stream;
    float table[256], signs[QN_TQ_MAX_DIM];
} decoder;

/* Tokens first .. of one head: a chunk. */
typedef struct chunk {
    size_t head, first;
    int count;
} chunk;

/* A row of output is made here and copied past the caches, or made in place. */
typedef struct decoder_room {
    _Alignas(64) float wide[QN_TQ_MAX_DIM];
    _Alignas(64) uint16_t half[QN_TQ_MAX_DIM];
    uint8_t packed[QN_TQ_MAX_DIM];
    float scale[CHUNK * QN_TQ_MAX_GROUPS], zero[CHUNK * QN_TQ_MAX_GROUPS];
} decoder_room;

/* Scales or zero points of a chunk as floats, at once where rows touch. */
static void chunk_floats(float *out, const qn_kernel_view *v, size_t tokens,
                         const chunk *c)
{
    size_t row = c->head * tokens + c->first;
    int w = v->shape[3];
    if (v->strides[3] == 1 && v->strides[2] == w) {
        const char *at = qn_view_place(v, qn_view_offset(v, 3, row));
        qn_cpu_widen(out, at, (size_t)(c->count * w), v->dtype);
        return;
    }
    for (int i = 0; i < c->count; i++)
        row_floats(out + i * w, v, row + (size_t)i);
}

/* Packed row i of a chunk whose first is at `base`. */
static const uint8_t *packed_row(const qn_kernel_view *v, const char *base,
                                 int i, uint8_t *room)
{
    const uint8_t *at = (const uint8_t *)base + i * v->strides[2];
    int64_t step = v->strides[3];
    if (step == 1)
        return at;
    for (int j = 0; j < v->shape[3]; j++)
        room[j] = at[j * step];
    return room;
}

static void decode_keys(const decoder *j, decoder_room *r, const chunk *c)
{
    size_t row = c->head * j->tokens + c->first;
    uint16_t *out = j->keys + row * (size_t)j->d;
    const char *base = qn_view_place(j->kp, qn_view_offset(j->kp, 3, row));
    int groups = j->d / j->key_group;
    chunk_floats(r->scale, j->ks, j->tokens, c);
    chunk_floats(r->zero, j->kz, j->tokens, c);
    for (int i = 0; i < c->count; i++, out += j->d) {
        j->kernel->decode_key(j->stream ? r->half : out,
                              packed_row(j->kp, base, i, r->packed),
                              r->scale + i * groups, r->zero + i * groups, j->d,
                              j->key_bits, j->key_group);
        if (j->stream)
            j->kernel->stream(out, r->half, j->d * (int)sizeof *out);
    }
}

static void decode_values(const decoder *j, decoder_room *r, const chunk *c)
{
    size_t row = c->head * j->tokens + c->first;
    bool half = j->inverse || j->deferred;
    int bytes = j->d * (half ? 2 : 4), groups = j->d / j->value_group;
    const char *base = qn_view_place(j->vp, qn_view_offset(j->vp, 3, row));
    char *out = j->values + row * (size_t)bytes;
    chunk_floats(r->scale, j->vs, j->tokens, c);
    for (int i = 0; i < c->count; i++, out += bytes) {
        char *made = !j->stream ? out
                     : half     ? (char *)r->half
                                : (char *)r->wide;
        uint16_t *halves = (uint16_t *)(void *)made;
        j->kernel->decode_value(
            half ? r->wide : (float *)(void *)made, j->deferred ? halves : NULL,
            packed_row(j->vp, base, i, r->packed), r->scale + i * groups,
            j->table, j->d, j->value_bits, j->value_group);
        if (j->inverse)
            j->kernel->unrotate(r->wide, halves, r->wide, j->signs, j->d);
        if (j->stream)
            j->kernel->stream(out, made, bytes);
    }
}

static void decode_chunk(void *arg, size_t i, void *scratch)
{
    (void)scratch;
    const decoder *j = arg;
    decoder_room room;
    chunk c = {.head = i / j->chunks, .first = i % j->chunks * CHUNK};
    size_t left = j->tokens - c.first;
    c.count = left < CHUNK ? (int)left : CHUNK;
    decode_keys(j, &room, &c);
    decode_values(j, &room, &c);
    j->kernel->fence();
}

/* ---- what a decoder checks ---- */

/* A vector of n floats, in memory of its own. */
static bool read_vector(float *out, const qn_kernel_view *v, int n)
{
    if (v->dtype != QN_FLOAT32 || v->ndim != 1 || v->shape[0] != n)
        return false;
    for (int i = 0; i < n; i++)
        out[i] = ((const float *)v->data)[i * v->strides[0]];
    return true;
}

static bool is_meta(const qn_kernel_view *v, const qn_kernel_view *like,
                    int groups)
{
    return qn_cpu_narrow_float(v->dtype) &&
           is_rows_like(v, like, v->dtype, groups);
}

static int check_planes(const decoder *j, const qn_kernel_args *args)
{
    if (!qn_tq_has_dim(j->d) || !qn_tq_has_key_bits(j->key_bits) ||
        !qn_tq_has_value_bits(j->value_bits) ||
        !qn_tq_has_group(j->key_group) || !qn_tq_has_group(j->value_group))
        return qn_kernel_refuse(
            args,
            "D %d, KBITS %d, VBITS %d, KG %d, VG %d: expected " QN_TQ_DIMS
            "; " QN_TQ_KEY_BITS "; " QN_TQ_VALUE_BITS "; 32 or 64",
            j->d, j->key_bits, j->value_bits, j->key_group, j->value_group);
    if (j->kp->ndim != 4 ||
        !is_rows_like(j->kp, j->kp, j->key_bits == 8 ? QN_INT8 : QN_UINT8,
                      qn_tq_packed(j->d, j->key_bits)))
        return qn_kernel_refuse(
            args, "kp [B, H, N, %d] of %s is expected, found %s",
            qn_tq_packed(j->d, j->key_bits),
            j->key_bits == 8 ? "int8" : "uint8", qn_dtype_name(j->kp->dtype));
    if (!is_rows_like(j->vp, j->kp, QN_UINT8,
                      qn_tq_packed(j->d, j->value_bits)))
        return qn_kernel_refuse(
            args, "vp of uint8, as many rows as kp of %d bytes, is expected",
            qn_tq_packed(j->d, j->value_bits));
    if (!is_meta(j->ks, j->kp, j->d / j->key_group) ||
        !is_meta(j->kz, j->kp, j->d / j->key_group) ||
        !is_meta(j->vs, j->kp, j->d / j->value_group))
        return qn_kernel_refuse(
            args,
            "ks, kz and vs of floats, one for each group of %d and %d, "
            "are expected",
            j->key_group, j->value_group);
    return 0;
}

static int check_outputs(decoder *j, const qn_kernel_args *args)
{
    qn_dtype keys, values;
    if (!qn_template_dtype(args->templates, "OutK", &keys) ||
        !qn_template_dtype(args->templates, "OutV", &values) ||
        keys != QN_BFLOAT16 ||
        (values != QN_BFLOAT16 && (j->inverse || values != QN_FLOAT32)))
        return qn_kernel_refuse(args, "OutK must be bfloat16, OutV bfloat16%s",
                                j->inverse ? "" : " or float32");
    if (!is_rows_like(&args->out[0], j->kp, keys, j->d) ||
        !is_rows_like(&args->out[1], j->kp, values, j->d))
        return qn_kernel_refuse(args,
                                "outputs of OutK and OutV, [B, H, N, %d],"
                                " are expected",
                                j->d);
    j->deferred = !j->inverse && values == QN_BFLOAT16;
    j->keys = args->out[0].data;
    j->values = args->out[1].data;
    return 0;
}

static bool aligned(const void *p)
{
    return !((uintptr_t)p % 64);
}

static int run_decoder(decoder *j, const qn_kernel_args *args)
{
    const qn_kernel_view *in = args->in;
    j->kp = &in[0];
    j->ks = &in[1];
    j->kz = &in[2];
    j->vp = &in[3];
    j->vs = &in[4];
    if (check_planes(j, args) || check_outputs(j, args))
        return 1;
    if (!read_vector(j->table, &in[5], 1 << j->value_bits))
        return qn_kernel_refuse(args, "%d centroids of float32 are expected",
                                1 << j->value_bits);
    if (j->inverse && !read_vector(j->signs, &in[6], j->d))
        return qn_kernel_refuse(args, "%d signs of float32 are expected", j->d);
    j->kernel = qn_turbo_pick();
    size_t size = qn_view_size(&args->out[0]);
    if (!size)
        return 0;
    const int *shape = args->out[0].shape;
    j->tokens = (size_t)shape[2];
    j->chunks = chunks_of(j->tokens);
    j->stream =
        2 * size >= QN_CPU_STREAM && aligned(j->keys) && aligned(j->values);
    args->parallel(args->ctx, (size_t)shape[0] * (size_t)shape[1] * j->chunks,
                   decode_chunk, j);
    return 0;
}

static int read_forms(decoder *j, const qn_kernel_args *args)
{
    const struct {
        const char *name;
        int *value;
    } list[] = {{"D", &j->d},
                {"KBITS", &j->key_bits},
                {"VBITS", &j->value_bits},
                {"KG", &j->key_group},
                {"VG", &j->value_group}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        if (!qn_template_int(args->templates, list[i].name, list[i].value))
            return qn_kernel_refuse(args, "%s must be a number", list[i].name);
    return 0;
}

/* `user` is not NULL where the rotation is undone. */
static int kv_decode(const qn_kernel_args *args, const void *user)
{
    decoder j = {.inverse = user != NULL};
    return read_forms(&j, args) || run_decoder(&j, args);
}

static int kv_inverse256(const qn_kernel_args *args, const void *user)
{
    (void)user;
    decoder j = {.inverse = true,
                 .d = 256,
                 .key_bits = 8,
                 .value_bits = 3,
                 .key_group = 32,
                 .value_group = 32};
    return run_decoder(&j, args);
}

/* ---- encoding ---- */

typedef struct coder {
    const qn_turbo_kernel *kernel;
    const qn_kernel_view *x;
    int d, bits, group, width; /* bytes of a row of codes */
    bool guard;
    size_t rows;
    char *out;
    uint16_t *scale, *zero;
    float signs[QN_TQ_MAX_DIM];
} coder;

/* Of keys: three outputs, of values: two. */
static int open_encoder(coder *c, const qn_kernel_args *args, bool keys)
{
    int packed;
    c->x = &args->in[0];
    c->d = c->x->ndim ? c->x->shape[c->x->ndim - 1] : 0;
    if (!qn_cpu_narrow_float(c->x->dtype) || !qn_tq_has_dim(c->d))
        return qn_kernel_refuse(
            args, "rows of " QN_TQ_DIMS " floats are expected, found %d of %s",
            c->d, qn_dtype_name(c->x->dtype));
    if (!qn_template_int(args->templates, "BITS", &c->bits) ||
        !qn_template_int(args->templates, "GROUP", &c->group) ||
        !qn_template_int(args->templates, "PACKED", &packed) ||
        !(keys ? qn_tq_has_key_bits(c->bits) : qn_tq_has_value_bits(c->bits)) ||
        !qn_tq_has_group(c->group))
        return qn_kernel_refuse(args,
                                "BITS of %s and GROUP of 32 or 64 are expected",
                                keys ? QN_TQ_KEY_BITS : QN_TQ_VALUE_BITS);
    c->width = packed ? qn_tq_packed(c->d, c->bits) : c->d;
    qn_dtype type = keys && c->bits == 8 ? QN_INT8 : QN_UINT8;
    bool good = is_rows_like(&args->out[0], c->x, type, c->width);
    for (int i = 1; good && i < (keys ? 3 : 2); i++)
        good = is_rows_like(&args->out[i], c->x, QN_FLOAT16, c->d / c->group);
    if (!good)
        return qn_kernel_refuse(args,
                                "codes [..., %d] of %s and float16 [..., %d] "
                                "for each group are expected",
                                c->width, qn_dtype_name(type), c->d / c->group);
    c->rows = qn_view_size(c->x) / (size_t)c->d;
    c->kernel = qn_turbo_pick();
    c->out = args->out[0].data;
    c->scale = args->out[1].data;
    qn_tq_sign_floats(c->signs, c->d);
    return 0;
}

/* A row of x as floats, where it lies or in `room`. */
static const float *wide_row(const coder *c, size_t row, float *room)
{
    if (c->x->dtype == QN_FLOAT32)
        return row_of(c->x, row, room);
    row_floats(room, c->x, row);
    return room;
}

/* Codes go straight to the output or are packed there. */
static void store_codes(const coder *c, size_t row, const uint8_t *codes)
{
    uint8_t *out = (uint8_t *)c->out + row * (size_t)c->width;
    if (codes != out)
        qn_tq_pack(out, codes, c->d, c->bits);
}

static void code_chunk(const coder *c, size_t i,
                       void (*each)(const coder *c, size_t row))
{
    size_t end = (i + 1) * CHUNK < c->rows ? (i + 1) * CHUNK : c->rows;
    for (size_t row = i * CHUNK; row < end; row++)
        each(c, row);
}

static uint8_t *code_room(const coder *c, size_t row, uint8_t *room)
{
    return c->width == c->d ? (uint8_t *)c->out + row * (size_t)c->width : room;
}

static void key_row(const coder *c, size_t row)
{
    float wide[QN_TQ_MAX_DIM];
    uint8_t room[QN_TQ_MAX_DIM], *codes = code_room(c, row, room);
    size_t at = row * (size_t)(c->d / c->group);
    c->kernel->encode_key(codes, c->scale + at, c->zero + at,
                          wide_row(c, row, wide), c->d, c->bits, c->group,
                          c->guard);
    store_codes(c, row, codes);
}

static void value_row(const coder *c, size_t row)
{
    float wide[QN_TQ_MAX_DIM];
    uint8_t room[QN_TQ_MAX_DIM], *codes = code_room(c, row, room);
    c->kernel->encode_value(codes, c->scale + row * (size_t)(c->d / c->group),
                            wide_row(c, row, wide), c->signs, c->d, c->bits,
                            c->group);
    store_codes(c, row, codes);
}

static void key_chunk(void *arg, size_t i, void *scratch)
{
    (void)scratch;
    code_chunk(arg, i, key_row);
}

static void value_chunk(void *arg, size_t i, void *scratch)
{
    (void)scratch;
    code_chunk(arg, i, value_row);
}

static int encode_keys(const qn_kernel_args *args, const void *user)
{
    (void)user;
    coder c = {.guard = false};
    int guard;
    if (open_encoder(&c, args, true))
        return 1;
    if (!qn_template_int(args->templates, "GUARD", &guard))
        return qn_kernel_refuse(args, "GUARD must be true or false");
    c.guard = guard != 0;
    c.zero = args->out[2].data;
    args->parallel(args->ctx, chunks_of(c.rows), key_chunk, &c);
    return 0;
}

static int encode_values(const qn_kernel_args *args, const void *user)
{
    (void)user;
    coder c = {.guard = false};
    if (open_encoder(&c, args, false))
        return 1;
    args->parallel(args->ctx, chunks_of(c.rows), value_chunk, &c);
    return 0;
}

/* ---- the table ---- */

void qn_cpu_register_turbo(void)
{
    static const char *const planes[] = {"kp", "ks",        "kz", "vp",
                                         "vs", "centroids", NULL};
    static const char *const signed_planes[] = {
        "kp", "ks", "kz", "vp", "vs", "centroids", "signs", NULL};
    static const char *const pair[] = {"outK", "outV", NULL};
    static const char *const forms[] = {"D",  "KBITS", "VBITS", "KG",
                                        "VG", "OutK",  "OutV",  NULL};
    static const char *const types[] = {"OutK", "OutV", NULL};
    static const char *const x[] = {"x", NULL};
    static const char *const key_codes[] = {"codes", "scale", "zero", NULL};
    static const char *const value_codes[] = {"codes", "scale", NULL};
    static const char *const key_args[] = {"BITS", "GROUP", "PACKED", "GUARD",
                                           NULL};
    static const char *const value_args[] = {"BITS", "GROUP", "PACKED", NULL};
    static const char inverse[] = "inverse";
    static const struct {
        const char *name;
        qn_kernel_entry entry;
    } table[] = {
        {"turboquant_kv_decode", {kv_decode, NULL, planes, pair, forms}},
        {"turboquant_kv_inverse256",
         {kv_inverse256, NULL, signed_planes, pair, types}},
        {"quern_tq_inverse", {kv_decode, inverse, signed_planes, pair, forms}},
        {"quern_tq_encode_keys", {encode_keys, NULL, x, key_codes, key_args}},
        {"quern_tq_encode_values",
         {encode_values, NULL, x, value_codes, value_args}},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        qn_kernel_register(table[i].name, &table[i].entry);
}
