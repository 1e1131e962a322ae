/* fuzz_tqcache.c: a packed KV cache as bytes.
 *
 * The checksum is made to fit, so that the checks behind it are reached.  What
 * is accepted must be whole: saving it gives the same bytes. */
#include "fuzz.h"

#include "base/bytes.h"
#include "base/checksum.h"

#include <mlx/c/mlx.h>
#include <quern/ext.h>

#include <stdlib.h>
#include <string.h>

static void hear(const char *message, void *data)
{
    (void)message;
    (void)data;
}

static void walk(const quern_tq_cache *cache, const uint8_t *file, size_t size)
{
    mlx_stream s = mlx_default_cpu_stream_new();
    mlx_array k = mlx_array_new(), v = mlx_array_new();
    void *again = NULL;
    size_t size_again = 0;
    bool rotated;
    FUZZ_CHECK(!quern_tq_cache_save(&again, &size_again, cache, s));
    FUZZ_CHECK(size_again == size);
    /* A flag is any number but 0. */
    FUZZ_CHECK(!memcmp((char *)again + 68, file + 68, size - 68));
    FUZZ_CHECK(!quern_tq_cache_fetch(&k, &v, &rotated, cache, false, s));
    FUZZ_CHECK(!mlx_array_eval(k) && !mlx_array_eval(v));
    mlx_array_free(k);
    mlx_array_free(v);
    mlx_stream_free(s);
    free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    mlx_set_error_handler(hear, NULL, NULL);
    uint8_t *file = malloc(size + 1);
    FUZZ_CHECK(file);
    if (size)
        memcpy(file, data, size);
    quern_tq_options options = {8, 3, true, false};
    if (size >= 40) {
        qn_put_le64(file + 8, qn_crc64(0, file + 16, size - 16));
        /* Whatever widths the file has, if there are such. */
        options.key_bits = (int)(qn_le32(file + 32) & 15);
        options.value_bits = (int)(qn_le32(file + 36) & 15);
    }
    quern_tq_cache *cache = NULL;
    int failed = quern_tq_cache_load(&cache, file, size, &options, 0);
    FUZZ_CHECK(!failed == (cache != NULL));
    if (cache)
        walk(cache, file, size);
    quern_tq_cache_free(cache);
    free(file);
    return 0;
}
