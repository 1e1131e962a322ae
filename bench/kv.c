/* kv.c: the packed KV cache beside the limits of this machine.
 *
 *   quern-bench-kv [TOKENS]
 *   quern-bench-kv attention | tokens
 *
 * Decoding: GB/s, bytes read and written, beside what all threads read from
 * memory in the same minute.  Encoding one token: microseconds, and the share
 * of a decode step of the demo model.  Attention: kv_attention.c; masks of
 * tokens: kv_tokens.c.  Lines take turns; the median of their rounds counts.
 * Exits with 1 where a line misses its limit. */
#include "kv_attention.h"
#include "kv_time.h"
#include "kv_tokens.h"

#include "backend/cpu/kernels/turbo/turbo.h"
#include "backend/cpu/pool.h"
#include "base/bandwidth.h"

#include <mlx/c/mlx.h>
#include <quern/ext.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 9, HEADS = 8, DIM = 128 };

/* A decode step of the demo model (SmolLM2-135M, 4 bits), on two cores of Zen 4
 * (docs/benchmarks.md: 259 tokens/s), and its shape.  On processors where a
 * step takes longer the share is smaller than what is printed. */
enum { LAYERS = 30, KV_HEADS = 3, HEAD_DIM = 64 };
static const double step_seconds = 3.9e-3;

static mlx_stream stream;

static int missed;

/* "  (limit ...)", counted where it is missed. */
static void limit_line(double found, double limit, bool at_least)
{
    bool good = at_least ? found >= limit : found <= limit;
    printf("   limit %s %.0f %%%s\n", at_least ? ">=" : "<=", limit,
           good ? "" : "   MISSED");
    missed += !good;
}

static mlx_array normal(int b, int h, int n, int d, mlx_dtype dtype)
{
    mlx_array x = mlx_array_new();
    must(mlx_random_normal(&x, (int[]){b, h, n, d}, 4, dtype, 0, 1,
                           mlx_array_empty, stream) ||
             mlx_array_eval(x),
         "random_normal");
    return x;
}

/* ---- decoding ---- */

typedef enum mode { EAGER, DEFERRED, FUSED, MODES } mode;
static const char *const mode_names[] = {"joint, eager (values float32)",
                                         "joint, deferred (values bfloat16)",
                                         "fused with the rotation"};

typedef struct decoding {
    mlx_vector_array planes;
    mlx_array centroids, signs;
    int key_bits, value_bits;
    double bytes;
} decoding;

static decoding decoding_new(int tokens, int key_bits, int value_bits)
{
    decoding w = {mlx_vector_array_new(),
                  mlx_array_new(),
                  mlx_array_new(),
                  key_bits,
                  value_bits,
                  0};
    mlx_array x = normal(1, HEADS, tokens, DIM, MLX_BFLOAT16);
    must(quern_tq_encode(&w.planes, x, x, key_bits, value_bits, true, stream) ||
             mlx_eval(w.planes),
         "tq_encode");
    must(quern_tq_centroids(&w.centroids, value_bits) ||
             quern_tq_signs(&w.signs, DIM),
         "tables");
    for (size_t i = 0; i < 5; i++) {
        mlx_array plane = mlx_array_new();
        mlx_vector_array_get(&plane, w.planes, i);
        w.bytes += (double)mlx_array_nbytes(plane);
        mlx_array_free(plane);
    }
    mlx_array_free(x);
    return w;
}

static void decoding_free(decoding *w)
{
    mlx_vector_array_free(w->planes);
    mlx_array_free(w->centroids);
    mlx_array_free(w->signs);
}

/* GB/s */
static double decode(const decoding *w, mode what)
{
    mlx_array k = mlx_array_new(), v = mlx_array_new();
    bool accepted = false;
    double start = seconds();
    if (what == FUSED)
        must(quern_tq_try_fused_eager(&accepted, &k, &v, w->planes,
                                      w->centroids, w->signs, w->key_bits,
                                      w->value_bits, DIM, stream),
             "fused");
    else
        must(quern_tq_try_joint_decode(&accepted, &k, &v, w->planes,
                                       w->centroids, w->key_bits, w->value_bits,
                                       DIM, what == DEFERRED, stream),
             "joint");
    must(!accepted || mlx_array_eval(k) || mlx_array_eval(v), "decoding");
    double spent = seconds() - start;
    double bytes =
        w->bytes + (double)mlx_array_nbytes(k) + (double)mlx_array_nbytes(v);
    mlx_array_free(k);
    mlx_array_free(v);
    return bytes / spent / 1e9;
}

static void bench_decoding(int tokens, int key_bits, int value_bits)
{
    decoding w = decoding_new(tokens, key_bits, value_bits);
    double rate[MODES][ROUNDS], limit[ROUNDS];
    for (int round = 0; round < ROUNDS; round++) {
        limit[round] = qn_memory_bandwidth(qn_pool_threads(), 0.05) / 1e9;
        for (int what = 0; what < MODES; what++) {
            decode(&w, (mode)what);
            rate[what][round] = decode(&w, (mode)what);
        }
    }
    double most = median(limit, ROUNDS);
    printf("decoding %d tokens x %d heads x %d, k%dv%d; memory %.1f GB/s\n",
           tokens, HEADS, DIM, key_bits, value_bits, most);
    for (int what = 0; what < MODES; what++) {
        double found = median(rate[what], ROUNDS);
        printf("  %-36s %6.1f GB/s  %3.0f %%", mode_names[what], found,
               100 * found / most);
        if (what == FUSED)
            printf("\n");
        else
            limit_line(100 * found / most, 60, true);
    }
    decoding_free(&w);
}

/* ---- encoding ---- */

/* One token of all layers, by the kernel alone. */
static double encode_token(int key_bits, int value_bits)
{
    enum { REPEATS = 50 };
    const qn_turbo_kernel *kernel = qn_turbo_pick();
    static float x[LAYERS * KV_HEADS][HEAD_DIM];
    float signs[HEAD_DIM];
    uint8_t codes[HEAD_DIM], packed[HEAD_DIM];
    uint16_t scale[2], zero[2];
    for (int i = 0; i < LAYERS * KV_HEADS; i++)
        for (int j = 0; j < HEAD_DIM; j++)
            x[i][j] = (float)((i * 37 + j * 11) % 201) / 100 - 1;
    qn_tq_sign_floats(signs, HEAD_DIM);
    double start = seconds();
    for (int r = 0; r < REPEATS; r++)
        for (int i = 0; i < LAYERS * KV_HEADS; i++) {
            kernel->encode_key(codes, scale, zero, x[i], HEAD_DIM, key_bits,
                               QN_TQ_GROUP, true);
            qn_tq_pack(packed, codes, HEAD_DIM, key_bits);
            kernel->encode_value(codes, scale, x[i], signs, HEAD_DIM,
                                 value_bits, QN_TQ_GROUP);
            qn_tq_pack(packed, codes, HEAD_DIM, value_bits);
        }
    return (seconds() - start) / REPEATS;
}

/* The same as nodes of a graph, one evaluation. */
static double encode_nodes(mlx_array x, int key_bits, int value_bits)
{
    mlx_vector_array all = mlx_vector_array_new(), one = mlx_vector_array_new();
    double start = seconds();
    for (int i = 0; i < LAYERS; i++) {
        must(quern_tq_encode(&one, x, x, key_bits, value_bits, true, stream),
             "tq_encode");
        for (size_t p = 0; p < 5; p++) {
            mlx_array plane = mlx_array_new();
            mlx_vector_array_get(&plane, one, p);
            mlx_vector_array_append_value(all, plane);
            mlx_array_free(plane);
        }
    }
    must(mlx_eval(all), "eval");
    double spent = seconds() - start;
    mlx_vector_array_free(all);
    mlx_vector_array_free(one);
    return spent;
}

static void bench_encoding(int key_bits, int value_bits)
{
    mlx_array x = normal(1, KV_HEADS, 1, HEAD_DIM, MLX_FLOAT32);
    mlx_array prompt = normal(1, HEADS, 1024, DIM, MLX_BFLOAT16);
    double bare[ROUNDS], nodes[ROUNDS], many[ROUNDS];
    for (int round = 0; round < ROUNDS; round++) {
        bare[round] = encode_token(key_bits, value_bits);
        nodes[round] = encode_nodes(x, key_bits, value_bits);
        mlx_vector_array planes = mlx_vector_array_new();
        double start = seconds();
        must(quern_tq_encode(&planes, prompt, prompt, key_bits, value_bits,
                             true, stream) ||
                 mlx_eval(planes),
             "tq_encode");
        many[round] = seconds() - start;
        mlx_vector_array_free(planes);
    }
    double one = median(bare, ROUNDS), graph = median(nodes, ROUNDS);
    printf("encoding one token, %d layers x %d kv heads x %d, k%dv%d\n", LAYERS,
           KV_HEADS, HEAD_DIM, key_bits, value_bits);
    printf("  %-36s %6.1f us    %4.2f %% of a step", "kernels, one thread",
           one * 1e6, 100 * one / step_seconds);
    if (value_bits == 8)
        printf("\n");
    else
        limit_line(100 * one / step_seconds, 2, false);
    printf("  %-36s %6.1f us\n", "as 60 nodes and an evaluation", graph * 1e6);
    printf("encoding 1024 tokens x %d heads x %d, k%dv%d\n  %-36s %6.1f M "
           "elements/s\n",
           HEADS, DIM, key_bits, value_bits, "all threads",
           2e-6 * 1024 * HEADS * DIM / median(many, ROUNDS));
    mlx_array_free(x);
    mlx_array_free(prompt);
}

int main(int argc, char **argv)
{
    bool attention_only = argc > 1 && !strcmp(argv[1], "attention");
    bool masks_only = argc > 1 && !strcmp(argv[1], "tokens");
    bool part = attention_only || masks_only;
    int tokens = argc > 1 && !part ? atoi(argv[1]) : 8192;
    if (tokens < 1) {
        fprintf(stderr,
                "usage: quern-bench-kv [TOKENS | attention | tokens]\n");
        return 2;
    }
    stream = mlx_default_cpu_stream_new();
    if (!masks_only)
        missed += bench_kv_attention(stream);
    if (!attention_only)
        missed += bench_kv_tokens(stream);
    if (!part) {
        bench_decoding(tokens, 8, 3);
        bench_decoding(tokens, 4, 2);
        bench_encoding(8, 3);
        bench_encoding(8, 8);
    }
    mlx_stream_free(stream);
    return missed > 0;
}
