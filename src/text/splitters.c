/* splitters.c: the names of splitters in GGUF files.
 *
 * The list of names, and what files that were made for each expect beside the
 * rule, are those of llama.cpp (src/llama-vocab.cpp).  Left out are names whose
 * texts are no bytes for the model ("whitespace", "sarvam-moe", "gemma4" of
 * another kind) and those of encoders with two kinds of ends ("roberta-bpe",
 * "jina-v1-en", "jina-v2-code"). */
#include "split.h"

static const qn_splitter splitters[] = {
    {"gpt-2", "gpt-2", false, false},
    {"phi-2", "gpt-2", false, false},
    {"jina-es", "gpt-2", false, false},
    {"jina-de", "gpt-2", false, false},
    {"jina-v2-es", "gpt-2", false, false},
    {"jina-v2-de", "gpt-2", false, false},
    {"gigachat", "gpt-2", false, false},
    {"a.x-4.0", "gpt-2", false, false},
    {"mellum", "gpt-2", false, false},
    {"modern-bert", "gpt-2", false, false},
    {"mpt", "gpt-2", false, false},
    {"olmo", "gpt-2", false, false},
    {"jais", "gpt-2", false, false},
    {"trillion", "gpt-2", false, false},
    {"granite-docling", "gpt-2", false, false},
    {"exaone4", "gpt-2", false, false},
    {"smollm", "smollm", false, false},
    {"starcoder", "smollm", false, false},
    {"refact", "smollm", false, false},
    {"command-r", "smollm", false, false},
    {"codeshell", "smollm", false, false},
    {"exaone", "smollm", false, false},
    {"minerva-7b", "smollm", false, false},
    {"mellum2", "smollm", false, false},
    {"llama-bpe", "llama-bpe", true, true},
    {"llama3", "llama-bpe", true, true},
    {"llama-v3", "llama-bpe", true, true},
    {"falcon3", "llama-bpe", true, true},
    {"falcon-h1", "llama-bpe", true, true},
    {"pixtral", "llama-bpe", true, true},
    {"midm-2.0", "llama-bpe", true, true},
    {"lfm2", "llama-bpe", true, true},
    {"jina-v5-nano", "llama-bpe", true, true},
    {"dbrx", "llama-bpe", false, false},
    {"smaug-bpe", "llama-bpe", false, false},
    {"glm4", "llama-bpe", false, false},
    {"chatglm-bpe", "llama-bpe", false, false},
    {"qwen2", "qwen2", false, false},
    {"deepseek-r1-qwen", "qwen2", false, false},
    {"kormo", "qwen2", false, false},
    {"f2llmv2", "qwen2", false, false},
    {"stablelm2", "qwen2", false, false},
    {"megrez", "qwen2", false, false},
    {"hunyuan", "qwen2", false, false},
    {"solar-open", "qwen2", false, false},
    {"grok-2", "qwen2", false, false},
    {"qwen35", "qwen35", false, false},
    {"tekken", "tekken", true, true},
    {"gpt-4o", "gpt-4o", false, false},
    {"llama4", "gpt-4o", false, false},
    {"kanana2", "gpt-4o", false, false},
    {"talkie", "gpt-4o", false, false},
    {"minimax-m2", "gpt-4o", false, false},
    {"granite-embed-multi-97m", "gpt-4o", true, false},
    {"default", "default", false, false},
    {"falcon", "falcon", false, false},
    {"deepseek-llm", "deepseek-llm", false, false},
    {"deepseek-coder", "deepseek-coder", false, false},
    {"deepseek-v3", "deepseek-v3", false, false},
    {"hunyuan-dense", "deepseek-v3", false, false},
    {"joyai-llm", "deepseek-v3", false, false},
    {"hy_v4", "deepseek-v3", false, false},
    {"spark2_5", "spark2_5", false, false},
    {"youtu", "youtu", true, false},
    {"jais-2", "jais-2", false, false},
    {"bloom", "bloom", false, false},
    {"poro-chat", "bloom", false, false},
    {"gpt3-finnish", "bloom", false, false},
    {"viking", "viking", false, false},
    {"chameleon", "chameleon", false, true},
    {"tiny_aya", "tiny_aya", false, false},
    {"cohere2moe", "tiny_aya", false, false},
    {"kimi-k2", "kimi-k2", false, false},
    {"superbpe", "superbpe", false, false},
    {"bailingmoe", "bailingmoe", false, false},
    {"bailingmoe2", "bailingmoe", false, false},
    {"llada-moe", "bailingmoe", false, false},
    {"seed-coder", "seed-coder", false, false},
    {"ufakzeka", "ufakzeka", false, false},
    {"afmoe", "afmoe", false, false},
    {"laguna", "laguna", false, false},
    {"exaone-moe", "exaone-moe", false, false},
    {"minicpm5", "minicpm5", true, false},
};

enum { SPLITTERS = sizeof splitters / sizeof *splitters };

const qn_splitter *qn_splitters(size_t *count)
{
    *count = SPLITTERS;
    return splitters;
}

const qn_splitter *qn_splitter_named(qn_str name)
{
    for (size_t i = 0; i < SPLITTERS; i++)
        if (qn_str_is(name, splitters[i].name))
            return &splitters[i];
    return NULL;
}
