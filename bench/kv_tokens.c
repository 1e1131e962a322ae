/* kv_tokens.c: masks of tokens beside a memcpy of the logits, for 32 rows of a
 * vocabulary of 128,256.
 *
 * Both read every logit once and write it once, so what bounds both is memory;
 * a word of 32 tokens is spread over lanes in between, and half types are
 * masked as the 16 bits that they are.  Masked logits are written through the
 * caches, where whoever samples finds them: memcpy, which does not read the
 * lines that it overwrites, has one thread: beside one thread it stays ahead by
 * a fifth to a third, beside two it takes 1.4 to 1.8 times as long (a quiet
 * Xeon). */
#include "kv_tokens.h"

#include "kv_time.h"

#include <quern/ext.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 15, ROWS = 32, VOCABULARY = 128256 };
enum { WORDS = (VOCABULARY + 31) / 32 };
static const double most = 1.5;

/* Logits that are there. */
static mlx_array logits_of(mlx_dtype dtype, mlx_stream s)
{
    mlx_array x = mlx_array_new();
    int shape[] = {ROWS, VOCABULARY};
    must(mlx_random_normal(&x, shape, 2, dtype, 0, 1, mlx_array_empty, s) ||
             mlx_array_eval(x),
         "logits");
    return x;
}

static double mask_seconds(mlx_array x, const int32_t *const *rows,
                           mlx_stream s)
{
    mlx_array y = mlx_array_new();
    double start = seconds();
    must(quern_apply_token_bitmask_rows(&y, x, rows, ROWS, WORDS, s) ||
             mlx_array_eval(y),
         "masking");
    double taken = seconds() - start;
    mlx_array_free(y);
    return taken;
}

static double copy_seconds(void *to, mlx_array x)
{
    const void *from = mlx_array_data_uint8(x);
    double start = seconds();
    memcpy(to, from, mlx_array_nbytes(x));
    return seconds() - start;
}

/* 1 where the limit is missed. */
static int bench(const char *name, mlx_dtype dtype, const int32_t *const *rows,
                 mlx_stream s)
{
    double masks[ROUNDS], copies[ROUNDS];
    mlx_array x = logits_of(dtype, s);
    size_t size = mlx_array_nbytes(x);
    void *to = malloc(size);
    must(!to, "memory");
    memset(to, 0, size);
    mask_seconds(x, rows, s);
    for (int i = 0; i < ROUNDS; i++) {
        copies[i] = copy_seconds(to, x);
        masks[i] = mask_seconds(x, rows, s);
    }
    double mask = median(masks, ROUNDS), copy = median(copies, ROUNDS);
    bool good = mask <= most * copy;
    printf("  %-10s masked %7.0f us, memcpy %7.0f us: %.2f times   limit <= "
           "%.1f%s\n",
           name, mask * 1e6, copy * 1e6, mask / copy, most,
           good ? "" : "   MISSED");
    free(to);
    mlx_array_free(x);
    return !good;
}

int bench_kv_tokens(mlx_stream on)
{
    int32_t *words = malloc(sizeof *words * ROWS * WORDS);
    const int32_t *rows[ROWS];
    uint32_t seed = 1;
    int missed = 0;
    must(!words, "memory");
    for (int i = 0; i < ROWS * WORDS; i++) {
        seed = seed * 1664525U + 1013904223U;
        words[i] = (int32_t)(seed ^ seed << 7);
    }
    for (int i = 0; i < ROWS; i++)
        rows[i] = words + i * WORDS;
    printf("token masks, %d rows x %d tokens, a mask for each\n", ROWS,
           VOCABULARY);
    missed += bench("float32", MLX_FLOAT32, rows, on);
    missed += bench("bfloat16", MLX_BFLOAT16, rows, on);
    missed += bench("float16", MLX_FLOAT16, rows, on);
    free(words);
    return missed;
}
