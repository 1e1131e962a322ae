/* fuzz_kvconfig.c: kv_config.json, which says how each layer's cache stores.
 *
 * The first byte gives the model its layers: heads of several widths, one with
 * a window and one without keys and values.  What is accepted makes a cache. */
#include "fuzz.h"

#include "runtime/runtime.h"

enum { LAYERS = 6 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const int dims[] = {32, 64, 96, 128, 40, 1};
    qn_kv_layer layers[LAYERS] = {0};
    if (!size)
        return 0;
    for (int i = 0; i < LAYERS - 1; i++) {
        layers[i].kv_heads = 1 + (data[0] >> 4) % 4;
        layers[i].head_dim = dims[(data[0] + i) % 6];
        layers[i].scheme.dtype = MLX_FLOAT16;
    }
    layers[1].window = 128;
    quern_model *m = calloc(1, sizeof *m);
    FUZZ_CHECK(m);
    m->kv_layers = layers;
    m->kv = (qn_kv_shape){.layers = LAYERS,
                          .layer = layers,
                          .floats = MLX_FLOAT16,
                          .step = 256,
                          .limit = 4096};
    if (!qn_cache_take_config(m, (qn_str){(const char *)data + 1, size - 1})) {
        qn_kv_cache *cache = NULL;
        FUZZ_CHECK(!qn_kv_shape_check(&m->kv));
        FUZZ_CHECK(!qn_kv_cache_new(&cache, &m->kv));
        qn_kv_cache_free(cache);
    }
    free(m);
    return 0;
}
