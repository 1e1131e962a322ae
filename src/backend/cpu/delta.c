/* delta.c: the custom kernel of gated delta nets, "quern_gated_delta".
 *
 *   x [T, C], a and b [T, H], filter [K, C], a_log and dt_bias [H], tail
 *   [K - 1, C], state [H, Dk, Dv]; KEY_HEADS
 *   -> y [T, H Dv], the tail and the state behind the rows
 *
 * All are float32.  decay is exp(-exp(a_log) softplus(a + dt_bias)), beta is
 * sigmoid(b).  A head of values is a task. */
#include "registered.h"

#include "backend/cpu/kernels/delta/delta.h"
#include "core/buffer.h"
#include "cpu.h"

#include <math.h>
#include <string.h>

enum { X, A, B, FILTER, A_LOG, DT_BIAS, TAIL, STATE, INPUTS };

typedef struct net {
    qn_delta job;
    qn_delta_fn run;
    const qn_kernel_args *args;
    float *gates; /* [heads, 2, rows] */
} net;

static const float *input(const qn_kernel_args *args, int i)
{
    return args->in[i].data;
}

/* log(1 + exp(x)), which is x where exp would be too large. */
static float softplus(float x)
{
    return x > 20 ? x : log1pf(expf(x));
}

static void run_head(void *arg, size_t head, void *scratch)
{
    const net *n = arg;
    qn_delta job = n->job;
    size_t size = job.key_dim * job.value_dim, heads = job.value_heads;
    float *gates = n->gates + head * 2 * job.rows;
    float rate = expf(input(n->args, A_LOG)[head]);
    float bias = input(n->args, DT_BIAS)[head];
    for (size_t t = 0; t < job.rows; t++) {
        float a = input(n->args, A)[t * heads + head];
        float b = input(n->args, B)[t * heads + head];
        gates[t] = expf(-rate * softplus(a + bias));
        gates[job.rows + t] = 1 / (1 + expf(-b));
    }
    job.decay = gates;
    job.beta = gates + job.rows;
    job.state += head * size;
    job.before = input(n->args, STATE) + head * size;
    n->run(&job, head, scratch);
}

/* The last rows of tail and x together. */
static void move_tail(const qn_delta *job, float *to)
{
    size_t kept = job->taps - 1;
    for (size_t i = 0; i < kept; i++) {
        size_t at = job->rows + i;
        const float *from = at < kept ? job->tail + at * job->channels
                                      : job->x + (at - kept) * job->channels;
        memcpy(to + i * job->channels, from, job->channels * sizeof *to);
    }
}

/* Floats, row-major, [first, second(, third)]; -1: any. */
static bool is_table(const qn_kernel_view *v, int ndim, int first, int second,
                     int third)
{
    const int shape[] = {first, second, third};
    int64_t stride = 1;
    if (v->dtype != QN_FLOAT32 || v->ndim != ndim)
        return false;
    for (int i = ndim - 1; i >= 0; i--) {
        if ((shape[i] >= 0 && v->shape[i] != shape[i]) || v->shape[i] < 1 ||
            (v->shape[i] > 1 && v->strides[i] != stride))
            return false;
        stride *= v->shape[i];
    }
    return true;
}

static bool fits(const qn_kernel_args *args, int key_heads)
{
    const qn_kernel_view *in = args->in, *out = args->out;
    if (!is_table(&in[STATE], 3, -1, -1, -1) ||
        !is_table(&in[X], 2, -1, -1, 0) || !is_table(&in[FILTER], 2, -1, -1, 0))
        return false;
    int heads = in[STATE].shape[0], dk = in[STATE].shape[1];
    int dv = in[STATE].shape[2], rows = in[X].shape[0];
    int taps = in[FILTER].shape[0];
    if (key_heads < 1 || heads % key_heads || taps < 2)
        return false;
    int64_t channels =
        2 * (int64_t)key_heads * dk + (int64_t)heads * (int64_t)dv;
    return channels == in[X].shape[1] && in[FILTER].shape[1] == channels &&
           is_table(&in[A], 2, rows, heads, 0) &&
           is_table(&in[B], 2, rows, heads, 0) &&
           is_table(&in[A_LOG], 1, heads, 0, 0) &&
           is_table(&in[DT_BIAS], 1, heads, 0, 0) &&
           is_table(&in[TAIL], 2, taps - 1, (int)channels, 0) &&
           is_table(&out[0], 2, rows, heads * dv, 0) &&
           is_table(&out[1], 2, taps - 1, (int)channels, 0) &&
           is_table(&out[2], 3, heads, dk, dv);
}

static int gated_delta(const qn_kernel_args *args, const void *user)
{
    (void)user;
    int key_heads = 0;
    if (!qn_template_int(args->templates, "KEY_HEADS", &key_heads) ||
        !fits(args, key_heads))
        return qn_kernel_refuse(
            args, "arrays of float32 whose shapes fit each other are expected");
    const int *state = args->in[STATE].shape;
    net n = {.run = qn_delta_pick(), .args = args};
    n.job = (qn_delta){.rows = (size_t)args->in[X].shape[0],
                       .taps = (size_t)args->in[FILTER].shape[0],
                       .key_heads = (size_t)key_heads,
                       .value_heads = (size_t)state[0],
                       .key_dim = (size_t)state[1],
                       .value_dim = (size_t)state[2],
                       .channels = (size_t)args->in[X].shape[1],
                       .x = input(args, X),
                       .tail = input(args, TAIL),
                       .filter = input(args, FILTER),
                       .state = args->out[2].data,
                       .out = args->out[0].data};
    qn_buffer *held;
    size_t gates = n.job.value_heads * 2 * n.job.rows * sizeof(float);
    if (qn_buffer_new(&held, gates))
        return qn_kernel_refuse(args, "out of memory");
    n.gates = held->data;
    move_tail(&n.job, args->out[1].data);
    args->parallel(args->ctx, n.job.value_heads, run_head, &n);
    qn_buffer_unref(held);
    return 0;
}

void qn_cpu_register_delta(void)
{
    static const char *const in[] = {
        "x", "a", "b", "filter", "a_log", "dt_bias", "tail", "state", NULL};
    static const char *const out[] = {"y", "tail_out", "state_out", NULL};
    static const char *const args[] = {"KEY_HEADS", NULL};
    static const qn_kernel_entry entry = {gated_delta, NULL, in, out, args};
    qn_kernel_register("quern_gated_delta", &entry);
}
