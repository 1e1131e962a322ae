/* ext_delta.c: gated delta nets by the kernel of the engine
 * (backend/cpu/delta.c). */
#include "handles.h"

#include "ops/dims.h"
#include "ops/kernel.h"

#include "quern/ext.h"

enum { INPUTS = 8, OUTPUTS = 3 };

static char *const in_names[INPUTS] = {"x",     "a",       "b",    "filter",
                                       "a_log", "dt_bias", "tail", "state"};
static char *const out_names[OUTPUTS] = {"y", "tail_out", "state_out"};

static bool is_like(const qn_array *x, int ndim, const int *shape)
{
    bool same = x->dtype == QN_FLOAT32 && x->ndim == ndim;
    for (int i = 0; same && i < ndim; i++)
        same = x->shape[i] == shape[i];
    return same;
}

/* The one that does not fit, or NULL. */
static const char *misfit(qn_array *const *in, int key_heads)
{
    const qn_array *x = in[0], *filter = in[3], *state = in[7];
    if (x->ndim != 2 || x->dtype != QN_FLOAT32 || x->shape[0] < 1)
        return in_names[0];
    if (state->ndim != 3 || state->dtype != QN_FLOAT32 || !state->size)
        return in_names[7];
    int rows = x->shape[0], heads = state->shape[0];
    int64_t channels = 2 * (int64_t)key_heads * state->shape[1] +
                       (int64_t)heads * state->shape[2];
    if (key_heads < 1 || heads % key_heads || channels != x->shape[1])
        return "the number of key heads";
    if (filter->ndim != 2 || filter->shape[0] < 2 || filter->shape[0] > 64)
        return in_names[3];
    const int taps = filter->shape[0], c = (int)channels;
    const struct {
        int ndim, shape[2];
    } expected[] = {{2, {rows, c}},    {2, {rows, heads}}, {2, {rows, heads}},
                    {2, {taps, c}},    {1, {heads, 0}},    {1, {heads, 0}},
                    {2, {taps - 1, c}}};
    for (int i = 0; i < 7; i++)
        if (!is_like(in[i], expected[i].ndim, expected[i].shape))
            return in_names[i];
    return NULL;
}

static qn_status gated_delta(qn_array **out, qn_array *const *in, int key_heads,
                             qn_stream *s)
{
    const char *wrong = misfit(in, key_heads);
    if (wrong)
        return qn_fail(QN_E_ARG,
                       "[gated_delta] Arrays of float32 whose shapes fit each "
                       "other are expected, found %s %s, state %s and %d heads "
                       "of keys: %s does not fit.",
                       in_names[0], qn_array_shape_text(in[0]).text,
                       qn_array_shape_text(in[7]).text, key_heads, wrong);
    const int *state = in[7]->shape;
    qn_kernel_output outputs[OUTPUTS] = {
        {QN_FLOAT32, 2, {in[0]->shape[0], state[0] * state[2]}},
        {QN_FLOAT32, 2, {in[6]->shape[0], in[6]->shape[1]}},
        {QN_FLOAT32, 3, {state[0], state[1], state[2]}}};
    char key[] = "KEY_HEADS", name[] = "quern_gated_delta";
    qn_template heads = {key, QN_TEMPLATE_INT, key_heads};
    /* Names are only read. */
    char **ins = (char **)(uintptr_t)in_names;
    char **outs = (char **)(uintptr_t)out_names;
    size_t whole = 15;
    qn_kernel kernel = {.form = "gated_delta",
                        .absent = "no such kernel",
                        .name = name,
                        .inputs = {ins, INPUTS},
                        .outputs = {outs, OUTPUTS},
                        .row_contiguous = true,
                        .scratch =
                            ((2 * (((size_t)state[1] + whole) & ~whole)) +
                             (((size_t)state[2] + whole) & ~whole)) *
                            sizeof(float)};
    qn_launch launch = {.outputs = outputs,
                        .noutputs = OUTPUTS,
                        .grid = {1, 1, 1},
                        .group = {1, 1, 1},
                        .templates = {&heads, 1}};
    return qn_op_kernel(out, &kernel, &launch, in, INPUTS, s);
}

int quern_gated_delta(mlx_array *y, mlx_array *tail_out, mlx_array *state_out,
                      const mlx_array x, const mlx_array a, const mlx_array b,
                      const mlx_array filter, const mlx_array a_log,
                      const mlx_array dt_bias, const mlx_array tail,
                      const mlx_array state, int key_heads, const mlx_stream s)
{
    const mlx_array given[INPUTS] = {x,     a,       b,    filter,
                                     a_log, dt_bias, tail, state};
    qn_array *in[INPUTS], *out[OUTPUTS];
    QN_GET_STREAM(stream, s);
    for (int i = 0; i < INPUTS; i++) {
        QN_GET_ARRAY(one, given[i]);
        in[i] = one;
    }
    QN_CALL(gated_delta(out, in, key_heads, stream));
    return QN_STORE(qn_handle_set_each((mlx_array *[]){y, tail_out, state_out},
                                       out, OUTPUTS));
}
