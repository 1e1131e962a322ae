// llama_logits.cpp: the logits of a text by llama.cpp, for accuracy.py, which
// compiles this against the sources that bench/peers.sh unpacks.
//
//   llama-logits MODEL THREADS WINDOW <ids >logits
//
// As bench/accuracy/logits.c: int32 ids in, cut into windows, each a sequence
// of its own; for every id the float32 logits after it.  The cache is float32.
#include "llama.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

static int fail(const char *what)
{
    std::fprintf(stderr, "llama-logits: %s\n", what);
    return 1;
}

static void quiet(ggml_log_level level, const char *text, void *)
{
    if (level >= GGML_LOG_LEVEL_ERROR)
        std::fputs(text, stderr);
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return fail("usage: MODEL THREADS WINDOW");
    llama_log_set(quiet, nullptr);
    int threads = std::atoi(argv[2]), window = std::atoi(argv[3]);
    llama_backend_init();
    llama_model *model =
        llama_model_load_from_file(argv[1], llama_model_default_params());
    if (!model)
        return fail("cannot load the model");
    llama_context_params params = llama_context_default_params();
    params.n_ctx = (uint32_t)window;
    params.n_threads = params.n_threads_batch = threads;
    params.type_k = params.type_v = GGML_TYPE_F32;
    llama_context *context = llama_init_from_model(model, params);
    if (!context)
        return fail("cannot make a context");
    size_t vocab = (size_t)llama_vocab_n_tokens(llama_model_get_vocab(model));
    std::vector<llama_token> ids((size_t)window);
    size_t count;
    while ((count = std::fread(ids.data(), sizeof(llama_token), ids.size(),
                               stdin))) {
        llama_memory_clear(llama_get_memory(context), true);
        for (size_t i = 0; i < count; i++) {
            if (llama_decode(context, llama_batch_get_one(&ids[i], 1)))
                return fail("decoding failed");
            const float *logits = llama_get_logits_ith(context, -1);
            if (std::fwrite(logits, sizeof(float), vocab, stdout) != vocab)
                return fail("cannot write");
        }
    }
    llama_free(context);
    llama_model_free(model);
    return 0;
}
