/* delta.c: gated delta nets, made of mlx_* calls, for another library: token by
 * token. */
#include "steps.h"

#include <quern/ext.h>

/* Rows first .. end of x [rows, n]. */
static mlx_array rows_of(steps *c, mlx_array x, int first, int end)
{
    mlx_array y;
    int stop[2] = {end, c->failed ? 0 : mlx_array_dim(x, 1)};
    STEP(c, y,
         mlx_slice(to, x, (int[]){first, 0}, 2, stop, 2, (int[]){1, 1}, 2,
                   c->stream));
    return y;
}

/* Channels first .. first + heads * d of x [rows, C] as [rows, heads, d], each
 * head `repeat` times. */
static mlx_array heads_of(steps *c, mlx_array x, int first, int heads, int d,
                          int repeat)
{
    mlx_array part, split, y;
    int rows = c->failed ? 0 : mlx_array_dim(x, 0);
    STEP(c, part,
         mlx_slice(to, x, (int[]){0, first}, 2,
                   (int[]){rows, first + heads * d}, 2, (int[]){1, 1}, 2,
                   c->stream));
    STEP(c, split,
         mlx_reshape(to, part, (int[]){rows, heads, d}, 3, c->stream));
    if (repeat == 1)
        return split;
    STEP(c, y, mlx_repeat_axis(to, split, repeat, 1, c->stream));
    return y;
}

static mlx_array multiply(steps *c, mlx_array a, mlx_array b)
{
    mlx_array y;
    STEP(c, y, mlx_multiply(to, a, b, c->stream));
    return y;
}

static mlx_array add(steps *c, mlx_array a, mlx_array b)
{
    mlx_array y;
    STEP(c, y, mlx_add(to, a, b, c->stream));
    return y;
}

static mlx_array sigmoid(steps *c, mlx_array x)
{
    mlx_array y;
    STEP(c, y, mlx_sigmoid(to, x, c->stream));
    return y;
}

static mlx_array exponential(steps *c, mlx_array x)
{
    mlx_array y;
    STEP(c, y, mlx_exp(to, x, c->stream));
    return y;
}

static mlx_array number(steps *c, float value)
{
    mlx_array *slot = fresh(c);
    *slot = mlx_array_new_float(value);
    c->failed |= !slot->ctx;
    return *slot;
}

/* silu of the convolution of the rows behind the tail. */
static mlx_array convolve(steps *c, mlx_array all, mlx_array filter, int rows)
{
    int taps = c->failed ? 0 : mlx_array_dim(filter, 0);
    mlx_array *sum = fresh(c);
    for (int t = 0; t < taps && !c->failed; t++) {
        steps tap = {.stream = c->stream};
        mlx_array one = multiply(&tap, rows_of(&tap, all, t, t + rows),
                                 rows_of(&tap, filter, t, t + 1));
        one = t ? add(&tap, *sum, one) : one;
        c->failed = tap.failed || mlx_array_set(sum, one);
        finish(&tap);
    }
    return multiply(c, *sum, sigmoid(c, *sum));
}

/* x / sqrt(sum of squares + 1e-6) along the last axis, times scale. */
static mlx_array normalize(steps *c, mlx_array x, float scale)
{
    mlx_array sum, by;
    STEP(c, sum, mlx_sum_axis(to, multiply(c, x, x), -1, true, c->stream));
    STEP(c, by, mlx_rsqrt(to, add(c, sum, number(c, 1e-6F)), c->stream));
    return multiply(c, x, multiply(c, by, number(c, scale)));
}

/* Element `t` of the first axis of x [rows, heads, n], in another shape. */
static mlx_array pick(steps *c, mlx_array x, int t, int heads, int n,
                      const int *shape)
{
    mlx_array part, y;
    STEP(c, part,
         mlx_slice(to, x, (int[]){t, 0, 0}, 3, (int[]){t + 1, heads, n}, 3,
                   (int[]){1, 1, 1}, 3, c->stream));
    STEP(c, y, mlx_reshape(to, part, shape, 3, c->stream));
    return y;
}

/* [H, Dk, 1] times [H, Dk, Dv], summed over Dk: [H, 1, Dv]. */
static mlx_array along_keys(steps *c, mlx_array k, mlx_array state)
{
    mlx_array y;
    STEP(c, y, mlx_sum_axis(to, multiply(c, k, state), 1, true, c->stream));
    return y;
}

/* What all tokens have: [rows, H, Dk or Dv or 1]. */
typedef struct net {
    mlx_array q, k, v, decay, beta;
    int heads, dk, dv;
} net;

/* Moves the state over token `t`, and appends what it gives to `outs`. */
static bool step(const net *n, int t, mlx_array *state, mlx_vector_array outs,
                 mlx_stream s)
{
    steps c = {.stream = s};
    int heads = n->heads;
    const int column[3] = {heads, n->dk, 1}, line[3] = {heads, 1, n->dv};
    const int one[3] = {heads, 1, 1};
    mlx_array delta, flat, key = pick(&c, n->k, t, heads, n->dk, column);
    mlx_array value = pick(&c, n->v, t, heads, n->dv, line);
    mlx_array now = multiply(&c, *state, pick(&c, n->decay, t, heads, 1, one));
    STEP(&c, delta, mlx_subtract(to, value, along_keys(&c, key, now), s));
    delta = multiply(&c, delta, pick(&c, n->beta, t, heads, 1, one));
    now = add(&c, now, multiply(&c, key, delta));
    mlx_array out =
        along_keys(&c, pick(&c, n->q, t, heads, n->dk, column), now);
    STEP(&c, flat, mlx_reshape(to, out, (int[]){1, heads * n->dv}, 2, s));
    if (!c.failed)
        c.failed = mlx_vector_array_append_value(outs, flat) ||
                   mlx_array_set(state, now);
    finish(&c);
    return !c.failed;
}

static bool fits(const mlx_array x, const mlx_array filter,
                 const mlx_array state, int key_heads)
{
    bool good = key_heads > 0 && mlx_array_ndim(x) == 2 &&
                mlx_array_ndim(filter) == 2 && mlx_array_ndim(state) == 3 &&
                mlx_array_dim(state, 0) % key_heads == 0;
    if (!good)
        _mlx_error(__FILE__, __LINE__,
                   "[gated_delta] Arrays whose shapes fit each other are "
                   "expected");
    return good;
}

int quern_gated_delta(mlx_array *y, mlx_array *tail_out, mlx_array *state_out,
                      const mlx_array x, const mlx_array a, const mlx_array b,
                      const mlx_array filter, const mlx_array a_log,
                      const mlx_array dt_bias, const mlx_array tail,
                      const mlx_array state, int key_heads, const mlx_stream s)
{
    if (!fits(x, filter, state, key_heads))
        return 1;
    steps c = {.stream = s};
    int rows = mlx_array_dim(x, 0), heads = mlx_array_dim(state, 0);
    int dk = mlx_array_dim(state, 1), dv = mlx_array_dim(state, 2);
    int kept = mlx_array_dim(filter, 0) - 1, repeat = heads / key_heads;
    mlx_array all, soft, rates, joined;
    const mlx_array both[2] = {tail, x};
    mlx_vector_array list = mlx_vector_array_new_data(both, 2);
    STEP(&c, all, mlx_concatenate_axis(to, list, 0, s));
    mlx_vector_array_free(list);
    mlx_array mixed = convolve(&c, all, filter, rows);
    mlx_array q = heads_of(&c, mixed, 0, key_heads, dk, repeat);
    mlx_array k = heads_of(&c, mixed, key_heads * dk, key_heads, dk, repeat);
    mlx_array v = heads_of(&c, mixed, 2 * key_heads * dk, heads, dv, 1);
    q = normalize(&c, q, 1.0F / __builtin_sqrtf((float)dk));
    k = normalize(&c, k, 1);
    STEP(&c, soft, mlx_logaddexp(to, add(&c, a, dt_bias), number(&c, 0), s));
    STEP(&c, rates,
         mlx_negative(to, multiply(&c, exponential(&c, a_log), soft), s));
    mlx_array decay = exponential(&c, rates), beta = sigmoid(&c, b);
    mlx_array *now = fresh(&c);
    net n = {.q = q, .k = k, .v = v, .heads = heads, .dk = dk, .dv = dv};
    STEP(&c, n.decay, mlx_reshape(to, decay, (int[]){rows, heads, 1}, 3, s));
    STEP(&c, n.beta, mlx_reshape(to, beta, (int[]){rows, heads, 1}, 3, s));
    c.failed = c.failed || mlx_array_set(now, state);
    mlx_vector_array outs = mlx_vector_array_new();
    for (int t = 0; t < rows && !c.failed; t++)
        c.failed = !step(&n, t, now, outs, s);
    STEP(&c, joined, mlx_concatenate_axis(to, outs, 0, s));
    mlx_vector_array_free(outs);
    mlx_array end = rows_of(&c, all, rows, rows + kept);
    if (!c.failed)
        c.failed = mlx_array_set(y, joined) || mlx_array_set(tail_out, end) ||
                   mlx_array_set(state_out, *now);
    finish(&c);
    return c.failed;
}
