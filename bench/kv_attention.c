/* kv_attention.c: a step of decoding over caches of 16,384 tokens, and one of a
 * prompt over 1,024 that are there, of every kind.  The kinds take turns, so
 * that a change of the machine's speed meets all of them; printed are medians.
 */
#include "kv_attention.h"

#include "kv_time.h"

#include <quern/ext.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *room(size_t bytes)
{
    void *p = malloc(bytes ? bytes : 1);
    if (!p) {
        fprintf(stderr, "bench: out of memory\n");
        exit(1);
    }
    return p;
}

static mlx_stream stream;

static mlx_array normal(const int *dims, size_t ndim, mlx_dtype dtype)
{
    mlx_array x = mlx_array_new(), key = {NULL};
    must(mlx_random_normal(&x, dims, ndim, dtype, 0, 1, key, stream),
         "attention");
    must(mlx_array_eval(x), "attention");
    return x;
}

typedef struct shape {
    const char *name;
    int heads, kv_heads, d;
} shape;

static const shape shapes[] = {
    {"135M (9 / 3 of 64)", 9, 3, 64},
    {"1B (32 / 8 of 64)", 32, 8, 64},
    {"8B (32 / 8 of 128)", 32, 8, 128},
};

typedef struct kind {
    const char *name;
    int bits, key_bits, value_bits;
    double limit; /* how many times as fast as f16 decoding is to be; 0: any */
} kind;

static const kind kinds[] = {
    {"f16", 0, 0, 0, 0},  {"affine8", 8, 0, 0, 1.2}, {"affine4", 4, 0, 0, 0},
    {"k8v8", 0, 8, 8, 0}, {"k8v4", 0, 8, 4, 0},      {"k8v3", 0, 8, 3, 1.3},
    {"k4v3", 0, 4, 3, 0},
};
enum {
    KINDS = sizeof kinds / sizeof *kinds,
    TOKENS = 16384,
    /* Caches of f16 of all layers: so much that no processor's cache holds
     * them, as those of a model. */
    ALL_BYTES = 512 << 20,
    ROUNDS = 15,
    PROMPT_OFFSET = 1024,
    PROMPT = 256,
    PROMPT_LAYERS = 2
};
/* How fast prompts are to be at least, beside f16. */
static const double prompt_limit = 0.8;

static quern_kv_form form_of(const shape *s, const kind *k)
{
    return (quern_kv_form){.kv_heads = s->kv_heads,
                           .head_dim = s->d,
                           .dtype = MLX_FLOAT16,
                           .bits = k->bits,
                           .group_size = k->bits ? 64 : 0,
                           .key_bits = k->key_bits,
                           .value_bits = k->value_bits};
}

/* Planes with the codes of random keys and values. */
static mlx_vector_array planes_of(const quern_kv_form *f)
{
    int dims[4] = {1, f->kv_heads, TOKENS, f->head_dim};
    mlx_array x[2], none = {NULL};
    mlx_vector_array planes = mlx_vector_array_new();
    for (int i = 0; i < 2; i++)
        x[i] = normal(dims, 4, f->dtype);
    if (f->key_bits)
        must(quern_tq_encode(&planes, x[0], x[1], f->key_bits, f->value_bits,
                             true, stream),
             "attention");
    for (int i = 0; i < 2 && !f->key_bits; i++) {
        if (!f->bits) {
            must(mlx_vector_array_append_value(planes, x[i]), "attention");
            continue;
        }
        mlx_vector_array part = mlx_vector_array_new();
        must(mlx_quantize(&part, x[i], (mlx_optional_int){f->group_size, true},
                          (mlx_optional_int){f->bits, true}, "affine", none,
                          stream),
             "attention");
        for (size_t j = 0; j < 3; j++) {
            mlx_array y = mlx_array_new();
            must(mlx_vector_array_get(&y, part, j), "attention");
            must(mlx_vector_array_append_value(planes, y), "attention");
            must(mlx_array_free(y), "attention");
        }
        must(mlx_vector_array_free(part), "attention");
    }
    must(mlx_eval(planes), "attention");
    for (int i = 0; i < 2; i++)
        must(mlx_array_free(x[i]), "attention");
    return planes;
}

/* One kind of cache: a step of all layers. */
typedef struct model {
    quern_kv_form form;
    size_t bytes; /* of all caches */
    quern_kv_step *layers;
    double took[ROUNDS], prompt[ROUNDS];
} model;

static void open_model(model *m, const shape *s, const kind *k, int layers)
{
    m->form = form_of(s, k);
    m->layers = room((size_t)layers * sizeof *m->layers);
    m->bytes = 0;
    mlx_vector_array planes = planes_of(&m->form);
    for (int i = 0; i < layers; i++) {
        int capacity;
        mlx_vector_array cache = mlx_vector_array_new();
        must(quern_kv_write(&cache, &capacity, &m->form, planes, stream),
             "attention");
        must(mlx_eval(cache), "attention");
        for (size_t j = 0; j < mlx_vector_array_size(cache); j++) {
            mlx_array x = mlx_array_new();
            must(mlx_vector_array_get(&x, cache, j), "attention");
            m->bytes += mlx_array_nbytes(x);
            must(mlx_array_free(x), "attention");
        }
        m->layers[i] = (quern_kv_step){cache, TOKENS - 1, 1, 0};
    }
    must(mlx_vector_array_free(planes), "attention");
}

static void close_model(model *m, int layers)
{
    for (int i = 0; i < layers; i++)
        must(mlx_vector_array_free(m->layers[i].cache), "attention");
    free(m->layers);
}

/* Rows q, k, v of tokens that the caches have, once more. */
static double run_model(model *m, const shape *s, int layers,
                        const mlx_array qkv[3], int offset, int count)
{
    quern_kv_options o = {.heads = s->heads,
                          .scale = 0.125F,
                          .rope_dims = s->d,
                          .rope_base = 10000,
                          .rope_scale = 1};
    mlx_vector_array outs = mlx_vector_array_new();
    double start = seconds();
    for (int i = 0; i < layers; i++) {
        mlx_array y = mlx_array_new();
        quern_kv_step step = {m->layers[i].cache, offset, count, 0};
        must(quern_kv_attention(&y, qkv[0], qkv[1], qkv[2], &m->form, &step, 1,
                                &o, stream),
             "attention");
        must(mlx_vector_array_append_value(outs, y), "attention");
        must(mlx_array_free(y), "attention");
    }
    must(mlx_eval(outs), "attention");
    double took = seconds() - start;
    must(mlx_vector_array_free(outs), "attention");
    return took;
}

/* How many times as fast as those of f16 the steps of a kind are. */
static double speed_of(const double *f16, const double *took)
{
    double ratio[ROUNDS];
    for (int i = 0; i < ROUNDS; i++)
        ratio[i] = f16[i] / took[i];
    return median(ratio, ROUNDS);
}

static int print_speed(double speed, double limit)
{
    printf("  %5.2fx as fast", speed);
    if (limit > 0)
        printf("  (limit %.1fx%s)", limit, speed < limit ? ": missed" : "");
    printf("\n");
    return speed < limit;
}

/* Returns how many lines miss their limit. */
static int report(const model *models, const shape *s, int layers, int threads)
{
    int missed = 0;
    printf("one step of attention, %d tokens, %s, %d thread%s\n", TOKENS,
           s->name, threads, threads > 1 ? "s" : "");
    for (int k = 0; k < KINDS; k++) {
        const model *m = &models[k];
        double took = median(m->took, ROUNDS);
        printf("  %-8s %8.1f us a layer  %5.1f GB/s  %4.0f bytes a token and "
               "head (%.2fx less)",
               kinds[k].name, took / layers * 1e6,
               (double)m->bytes / took * 1e-9,
               (double)m->bytes / layers / TOKENS / s->kv_heads,
               (double)models[0].bytes / (double)m->bytes);
        missed +=
            print_speed(speed_of(models[0].took, m->took), kinds[k].limit);
    }
    printf("%d tokens of a prompt behind %d\n", PROMPT, PROMPT_OFFSET);
    for (int k = 0; k < KINDS; k++) {
        const model *m = &models[k];
        printf("  %-8s %8.1f us a layer", kinds[k].name,
               median(m->prompt, ROUNDS) / PROMPT_LAYERS * 1e6);
        missed += print_speed(speed_of(models[0].prompt, m->prompt),
                              k ? prompt_limit : 0);
    }
    fflush(stdout);
    return missed;
}

int bench_kv_attention(mlx_stream on)
{
    int missed = 0;
    stream = on;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const shape *s = &shapes[i];
        int layers = ALL_BYTES / (TOKENS * s->kv_heads * s->d * 2 * 2);
        model models[KINDS];
        mlx_array one[3], many[3];
        for (int x = 0; x < 3; x++) {
            int width = (x ? s->kv_heads : s->heads) * s->d;
            one[x] = normal((int[]){1, 1, width}, 3, MLX_FLOAT32);
            many[x] = normal((int[]){1, PROMPT, width}, 3, MLX_FLOAT32);
        }
        for (int k = 0; k < KINDS; k++)
            open_model(&models[k], s, &kinds[k], layers);
        for (int threads = 1; threads <= 2; threads++) {
            must(quern_set_threads(threads), "attention");
            for (int round = -1; round < ROUNDS; round++)
                for (int k = 0; k < KINDS; k++) {
                    double took =
                        run_model(&models[k], s, layers, one, TOKENS - 1, 1);
                    double prompt = run_model(&models[k], s, PROMPT_LAYERS,
                                              many, PROMPT_OFFSET, PROMPT);
                    if (round < 0)
                        continue;
                    models[k].took[round] = took;
                    models[k].prompt[round] = prompt;
                }
            missed += report(models, s, layers, threads);
        }
        for (int k = 0; k < KINDS; k++)
            close_model(&models[k], layers);
        for (int x = 0; x < 3; x++) {
            must(mlx_array_free(one[x]), "attention");
            must(mlx_array_free(many[x]), "attention");
        }
    }
    return missed;
}
