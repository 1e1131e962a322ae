/* ext_tq.c: the packed KV format by the kernels of the engine
 * (backend/cpu/turbo.c).  The rest of it is made of mlx_* calls,
 * ext/turboquant.c. */
#include "handles.h"

#include "base/turboquant.h"
#include "ops/kernel.h"

#include "quern/ext.h"

#include <limits.h>

/* ---- launches ---- */

enum { MOST_OUTPUTS = 3, MOST_TEMPLATES = 7 };

/* One launch of a registered kernel, in memory of its own. */
typedef struct launch {
    qn_launch launch;
    qn_kernel_output outputs[MOST_OUTPUTS];
    qn_template templates[MOST_TEMPLATES];
} launch;

static void launch_begin(launch *l)
{
    l->launch = (qn_launch){.outputs = l->outputs,
                            .grid = {1, 1, 1},
                            .group = {1, 1, 1},
                            .templates = {l->templates, 0}};
}

static void give(launch *l, qn_template_kind kind, const char *name, int value)
{
    /* A name is only read. */
    qn_template *t = &l->templates[l->launch.templates.size++];
    *t = (qn_template){(char *)(uintptr_t)name, kind, value};
}

/* An output of the shape of x but for its last axis. */
static void expect(launch *l, const qn_array *x, int width, qn_dtype dtype)
{
    qn_kernel_output *o = &l->outputs[l->launch.noutputs++];
    o->dtype = dtype;
    o->ndim = x->ndim;
    memcpy(o->shape, x->shape, (size_t)x->ndim * sizeof *o->shape);
    o->shape[x->ndim - 1] = width;
}

static char x_name[] = "x", codes_name[] = "codes", scale_name[] = "scale";
static char zero_name[] = "zero", keys_name[] = "outK", values_name[] = "outV";
static char *key_codes[] = {codes_name, scale_name, zero_name};
static char *pair[] = {keys_name, values_name};

static qn_status run(qn_array **out, launch *l, const char *name,
                     qn_names inputs, qn_names outputs, qn_array *const *in,
                     qn_stream *s)
{
    qn_kernel kernel = {.form = "tq",
                        .absent = "no such kernel",
                        .name = (char *)(uintptr_t)name,
                        .inputs = inputs,
                        .outputs = outputs};
    return qn_op_kernel(out, &kernel, &l->launch, in, inputs.size, s);
}

/* ---- encoding ---- */

static qn_status check_input(const char *op, const qn_array *x, int group)
{
    int d = x->ndim ? x->shape[x->ndim - 1] : 0;
    if (x->dtype != QN_FLOAT32 && x->dtype != QN_FLOAT16 &&
        x->dtype != QN_BFLOAT16)
        return qn_fail(QN_E_ARG,
                       "[%s] Expected float32, float16 or bfloat16, found %s.",
                       op, qn_dtype_name(x->dtype));
    qn_status status = qn_tq_check_group(op, d, group);
    return status ? status : qn_tq_check_dim(op, d);
}

/* What keys and values have in common: out becomes codes and scales. */
typedef struct encoding {
    const char *op, *kernel;
    int bits, group;
    bool keys, guard, packed;
} encoding;

static qn_status encode(qn_array **out, qn_array *x, const encoding *e,
                        qn_stream *s)
{
    qn_status status = e->keys ? qn_tq_check_key_bits(e->op, e->bits)
                               : qn_tq_check_value_bits(e->op, e->bits);
    if (!status)
        status = check_input(e->op, x, e->group);
    if (status)
        return status;
    launch l;
    launch_begin(&l);
    int d = x->shape[x->ndim - 1], groups = d / e->group;
    give(&l, QN_TEMPLATE_INT, "BITS", e->bits);
    give(&l, QN_TEMPLATE_INT, "GROUP", e->group);
    give(&l, QN_TEMPLATE_BOOL, "PACKED", e->packed);
    if (e->keys)
        give(&l, QN_TEMPLATE_BOOL, "GUARD", e->guard);
    expect(&l, x, e->packed ? qn_tq_packed(d, e->bits) : d,
           e->keys && e->bits == 8 ? QN_INT8 : QN_UINT8);
    for (int i = 0; i < (e->keys ? 2 : 1); i++)
        expect(&l, x, groups, QN_FLOAT16);
    char *in[] = {x_name};
    return run(out, &l, e->kernel, (qn_names){in, 1},
               (qn_names){key_codes, l.launch.noutputs}, &x, s);
}

static qn_status encode_keys(qn_array **out, const char *op, qn_array *x,
                             int bits, int group, bool guard, bool packed,
                             qn_stream *s)
{
    encoding e = {.op = op,
                  .kernel = "quern_tq_encode_keys",
                  .bits = bits,
                  .group = group,
                  .keys = true,
                  .guard = guard,
                  .packed = packed};
    return encode(out, x, &e, s);
}

static qn_status encode_values(qn_array **out, const char *op, qn_array *x,
                               int bits, int group, bool packed, qn_stream *s)
{
    encoding e = {.op = op,
                  .kernel = "quern_tq_encode_values",
                  .bits = bits,
                  .group = group,
                  .packed = packed};
    return encode(out, x, &e, s);
}

int quern_tq_encode_keys(mlx_array *codes, mlx_array *scale, mlx_array *zero,
                         const mlx_array keys, int bits, int group_size,
                         bool guard, const mlx_stream s)
{
    QN_GET_ARRAY(x, keys);
    QN_GET_STREAM(stream, s);
    qn_array *out[3];
    QN_CALL(encode_keys(out, "tq_encode_keys", x, bits, group_size, guard,
                        false, stream));
    return QN_STORE(
        qn_handle_set_each((mlx_array *[]){codes, scale, zero}, out, 3));
}

int quern_tq_encode_values(mlx_array *codes, mlx_array *scale,
                           const mlx_array values, int bits, int group_size,
                           const mlx_stream s)
{
    QN_GET_ARRAY(x, values);
    QN_GET_STREAM(stream, s);
    qn_array *out[2];
    QN_CALL(encode_values(out, "tq_encode_values", x, bits, group_size, false,
                          stream));
    return QN_STORE(qn_handle_set_each((mlx_array *[]){codes, scale}, out, 2));
}

int quern_tq_encode(mlx_vector_array *planes, const mlx_array keys,
                    const mlx_array values, int key_bits, int value_bits,
                    bool guard, const mlx_stream s)
{
    QN_GET_ARRAY(k, keys);
    QN_GET_ARRAY(v, values);
    QN_GET_STREAM(stream, s);
    qn_array *out[5];
    QN_CALL(qn_tq_check_pair("tq_encode", k->shape, (size_t)k->ndim, v->shape,
                             (size_t)v->ndim));
    QN_CALL(qn_tq_check_value_bits("tq_encode", value_bits));
    QN_CALL(encode_keys(out, "tq_encode", k, key_bits, QN_TQ_GROUP, guard, true,
                        stream));
    if (encode_values(out + 3, "tq_encode", v, value_bits, QN_TQ_GROUP, true,
                      stream)) {
        for (int i = 0; i < 3; i++)
            qn_array_unref(out[i]);
        return QN_REPORT();
    }
    return QN_STORE_ARRAYS(planes, out, 5);
}

/* ---- decoding ---- */

static bool is_meta(const qn_array *a)
{
    return a->dtype == QN_FLOAT32 || a->dtype == QN_FLOAT16 ||
           a->dtype == QN_BFLOAT16;
}

static bool is_vector(const qn_array *a, int n)
{
    return a && a->dtype == QN_FLOAT32 && a->ndim == 1 && a->shape[0] == n;
}

static bool is_group_count(int d, int n)
{
    return n > 0 && d % n == 0 && qn_tq_has_group(d / n);
}

static bool leading_agree(qn_array *const p[5])
{
    for (int i = 0; i < 5; i++) {
        if (p[i]->ndim != 4)
            return false;
        for (int axis = 0; axis < 3; axis++)
            if (p[i]->shape[axis] != p[0]->shape[axis] || !p[i]->shape[axis])
                return false;
    }
    return true;
}

/* Whether a kernel takes the planes, in the order in which a program that
 * traces or has other arrays may ask: nothing is read before it is known. */
static bool eligible(const qn_list *planes, const qn_array *centroids,
                     int key_bits, int value_bits, int d)
{
    if (quern_in_shapeless_trace() || !planes || planes->size != 5)
        return false;
    qn_array *const *p = planes->data;
    if (!qn_tq_has_dim(d) || !qn_tq_has_key_bits(key_bits) ||
        !qn_tq_has_value_bits(value_bits))
        return false;
    if (p[0]->dtype != (key_bits == 8 ? QN_INT8 : QN_UINT8) ||
        p[3]->dtype != QN_UINT8 || !is_vector(centroids, 1 << value_bits) ||
        !leading_agree(p))
        return false;
    const int *n = p[0]->shape;
    uint64_t limit = UINT64_C(1) << 32;
    uint64_t rows = (uint64_t)n[0] * (uint64_t)n[1];
    if (rows >= limit || rows * (uint64_t)n[2] >= limit / (uint64_t)d)
        return false;
    return n[3] == qn_tq_packed(d, key_bits) &&
           p[3]->shape[3] == qn_tq_packed(d, value_bits) &&
           p[1]->shape[3] == p[2]->shape[3] &&
           is_group_count(d, p[1]->shape[3]) &&
           is_group_count(d, p[4]->shape[3]) && is_meta(p[1]) &&
           is_meta(p[2]) && is_meta(p[4]);
}

/* `signs`: the rotation is undone; otherwise values are of `type`. */
static qn_status decode(qn_array **out, const qn_list *planes,
                        qn_array *centroids, qn_array *signs, int key_bits,
                        int value_bits, int d, qn_dtype type, qn_stream *s)
{
    static char names[][10] = {"kp", "ks",        "kz",   "vp",
                               "vs", "centroids", "signs"};
    qn_array *in[7];
    char *inputs[7];
    for (size_t i = 0; i < 7; i++) {
        in[i] = i < 5 ? planes->data[i] : i == 5 ? centroids : signs;
        inputs[i] = names[i];
    }
    launch l;
    launch_begin(&l);
    give(&l, QN_TEMPLATE_INT, "D", d);
    give(&l, QN_TEMPLATE_INT, "KBITS", key_bits);
    give(&l, QN_TEMPLATE_INT, "VBITS", value_bits);
    give(&l, QN_TEMPLATE_INT, "KG", d / in[1]->shape[3]);
    give(&l, QN_TEMPLATE_INT, "VG", d / in[4]->shape[3]);
    give(&l, QN_TEMPLATE_DTYPE, "OutK", QN_BFLOAT16);
    give(&l, QN_TEMPLATE_DTYPE, "OutV", (int)type);
    expect(&l, in[0], d, QN_BFLOAT16);
    expect(&l, in[0], d, type);
    return run(out, &l, signs ? "quern_tq_inverse" : "turboquant_kv_decode",
               (qn_names){inputs, signs ? 7 : 6}, (qn_names){pair, 2}, in, s);
}

int quern_tq_try_joint_decode(bool *accepted, mlx_array *keys,
                              mlx_array *values, const mlx_vector_array planes,
                              const mlx_array centroids, int key_bits,
                              int value_bits, int head_dim, bool defer,
                              const mlx_stream s)
{
    const qn_list *list = qn_handle_arrays(planes);
    qn_array *table = qn_handle_array(centroids), *out[2];
    *accepted = false;
    if (!eligible(list, table, key_bits, value_bits, head_dim))
        return 0;
    QN_GET_STREAM(stream, s);
    QN_CALL(decode(out, list, table, NULL, key_bits, value_bits, head_dim,
                   defer ? QN_BFLOAT16 : QN_FLOAT32, stream));
    QN_CALL(qn_handle_set_each((mlx_array *[]){keys, values}, out, 2));
    *accepted = true;
    return 0;
}

int quern_tq_try_fused_eager(bool *accepted, mlx_array *keys, mlx_array *values,
                             const mlx_vector_array planes,
                             const mlx_array centroids, const mlx_array signs,
                             int key_bits, int value_bits, int head_dim,
                             const mlx_stream s)
{
    const qn_list *list = qn_handle_arrays(planes);
    qn_array *table = qn_handle_array(centroids), *out[2];
    qn_array *turn = qn_handle_array(signs);
    *accepted = false;
    if (!eligible(list, table, key_bits, value_bits, head_dim) ||
        !is_vector(turn, head_dim))
        return 0;
    QN_GET_STREAM(stream, s);
    QN_CALL(decode(out, list, table, turn, key_bits, value_bits, head_dim,
                   QN_BFLOAT16, stream));
    QN_CALL(qn_handle_set_each((mlx_array *[]){keys, values}, out, 2));
    *accepted = true;
    return 0;
}
