/* abi_closure.c: functions of arrays with bodies that are drawn.
 *
 * A body is a short program over the operations, the same at every call, whose
 * arrays are at first the inputs. */
#include "abi.h"

#include <string.h>

typedef struct payload {
    uint64_t seed;
    mlx_array captured; /* perhaps */
    bool scalar;        /* the first result is a sum */
    bool fails;
} payload;

void *fz_payload_new(fz *f)
{
    payload *p = calloc(1, sizeof *p);
    FUZZ_CHECK(p);
    p->seed = fz_u32(f);
    p->scalar = fz_one_in(f, 2);
    p->fails = fz_one_in(f, 20);
    if (fz_one_in(f, 4))
        p->captured = fz_new_array(f, "a");
    fz_held++;
    return p;
}

void fz_payload_free(void *data)
{
    payload *p = data;
    mlx_array_free(p->captured);
    free(p);
    fz_held--;
}

/* Bodies within bodies (a transform of a transform) stay shallow. */
static int depth;

static bool begin_body(fz *f, const payload *p)
{
    static const payload none = {.seed = 11};
    p = p ? p : &none;
    memset(f, 0, sizeof *f);
    f->state = p->seed;
    f->inner = true;
    fz_entered++;
    if (p->fails || depth > 6)
        return false;
    depth++;
    fz_start(f);
    if (p->captured.ctx)
        (void)mlx_array_set((mlx_array *)&f->pool[FZ_array][0], p->captured);
    return true;
}

static void give_inputs(fz *f, const mlx_vector_array in)
{
    size_t n = mlx_vector_array_size(in);
    for (size_t i = 0; i < n && i < 8; i++)
        (void)mlx_vector_array_get((mlx_array *)&f->pool[FZ_array][i + 1], in,
                                   i);
}

static void run_body(fz *f)
{
    uint32_t steps = 1 + fz_below(f, 5);
    for (uint32_t i = 0; i < 3 * steps; i++)
        fz_step(f);
}

static void end_body(fz *f)
{
    fz_finish(f);
    depth--;
}

/* One of the arrays that there are; never empty if there is one. */
static mlx_array some_array(fz *f)
{
    uint32_t first = fz_below(f, FZ_ARRAYS);
    for (uint32_t i = 0; i < FZ_ARRAYS; i++) {
        void *ctx = f->pool[FZ_array][(first + i) % FZ_ARRAYS];
        if (ctx)
            return (mlx_array){ctx};
    }
    f->pool[FZ_array][0] = fz_new_array(f, "a").ctx;
    return (mlx_array){f->pool[FZ_array][0]};
}

/* Fills *res with `n` arrays. */
static int give_results(fz *f, mlx_vector_array *res, size_t n, bool scalar)
{
    mlx_vector_array made = mlx_vector_array_new();
    int failed = 0;
    for (size_t i = 0; i < n; i++) {
        mlx_array a = some_array(f), total = {NULL};
        if (scalar && !i) {
            mlx_stream s = mlx_default_cpu_stream_new();
            failed |= mlx_sum(&total, a, false, s);
            mlx_stream_free(s);
            a = total;
        }
        failed |= mlx_vector_array_append_value(made, a);
        mlx_array_free(total);
    }
    failed |= mlx_vector_array_set(res, made);
    mlx_vector_array_free(made);
    return failed;
}

int fz_fun(mlx_vector_array *res, const mlx_vector_array in, void *data)
{
    const payload *p = data;
    fz f;
    if (!begin_body(&f, p))
        return 1;
    give_inputs(&f, in);
    run_body(&f);
    int failed =
        give_results(&f, res, 1 + fz_below(&f, 2), p ? p->scalar : true);
    end_body(&f);
    return failed;
}

int fz_fun_plain(mlx_vector_array *res, const mlx_vector_array in)
{
    return fz_fun(res, in, NULL);
}

int fz_fun_unary(mlx_array *res, const mlx_array in)
{
    mlx_stream s = mlx_default_cpu_stream_new();
    fz_entered++;
    int failed = mlx_exp(res, in, s) || mlx_multiply(res, *res, in, s);
    mlx_stream_free(s);
    return failed;
}

int fz_fun_kwargs(mlx_vector_array *res, const mlx_vector_array in,
                  const mlx_map_string_to_array kwargs, void *data)
{
    fz f;
    if (!begin_body(&f, data))
        return 1;
    give_inputs(&f, in);
    (void)mlx_map_string_to_array_get(
        (mlx_array *)&f.pool[FZ_array][FZ_ARRAYS - 1], kwargs, "a");
    run_body(&f);
    int failed = give_results(&f, res, 1, false);
    end_body(&f);
    return failed;
}

int fz_fun_value_and_grad(mlx_vector_array *values, mlx_vector_array *grads,
                          const mlx_vector_array in, void *data)
{
    fz f;
    if (!begin_body(&f, data))
        return 1;
    give_inputs(&f, in);
    run_body(&f);
    int failed = give_results(&f, values, 1, true) ||
                 give_results(&f, grads, fz_below(&f, 3), false);
    end_body(&f);
    return failed;
}

/* A list like `like`, mostly: gradients, tangents. */
static int give_like(fz *f, mlx_vector_array *res, mlx_vector_array like)
{
    size_t n = mlx_vector_array_size(like);
    if (fz_one_in(f, 8))
        return give_results(f, res, fz_below(f, 4), false);
    mlx_stream s = mlx_default_cpu_stream_new();
    mlx_vector_array made = mlx_vector_array_new();
    int failed = 0;
    for (size_t i = 0; i < n; i++) {
        mlx_array a = {NULL}, one = {NULL};
        failed |= mlx_vector_array_get(&a, like, i) || mlx_cos(&one, a, s) ||
                  mlx_vector_array_append_value(made, one);
        mlx_array_free(a);
        mlx_array_free(one);
    }
    failed |= mlx_vector_array_set(res, made);
    mlx_vector_array_free(made);
    mlx_stream_free(s);
    return failed;
}

int fz_fun_custom(mlx_vector_array *res, const mlx_vector_array primals,
                  const mlx_vector_array cotangents,
                  const mlx_vector_array outputs, void *data)
{
    fz f;
    (void)outputs;
    if (!begin_body(&f, data))
        return 1;
    give_inputs(&f, cotangents);
    int failed = give_like(&f, res, primals);
    end_body(&f);
    return failed;
}

int fz_fun_custom_jvp(mlx_vector_array *res, const mlx_vector_array primals,
                      const mlx_vector_array tangents, const int *argnums,
                      size_t n, void *data)
{
    fz f;
    long long sum = 0;
    if (!begin_body(&f, data))
        return 1;
    for (size_t i = 0; i < n; i++)
        sum += argnums[i];
    give_inputs(&f, primals);
    int failed = sum < -1000 || give_like(&f, res, tangents);
    end_body(&f);
    return failed;
}

int fz_fun_custom_vmap(mlx_vector_array *res, mlx_vector_int *out_axes,
                       const mlx_vector_array in, const int *axes, size_t n,
                       void *data)
{
    fz f;
    if (!begin_body(&f, data))
        return 1;
    give_inputs(&f, in);
    int failed = give_like(&f, res, in);
    mlx_vector_int list = mlx_vector_int_new();
    for (size_t i = 0; i < n; i++)
        failed |= mlx_vector_int_append_value(
            list, fz_one_in(&f, 8) ? fz_int(&f, "axis") : axes[i]);
    failed |= mlx_vector_int_set(out_axes, list);
    mlx_vector_int_free(list);
    end_body(&f);
    return failed;
}
