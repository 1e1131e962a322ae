"""The tiny models: one row for each family and variant.

    name    the folder in tests/vectors/models
    form    "hf": a directory as transformers writes it, which is the reference;
            "mlx": a packed one as mlx-lm writes it, which is the reference;
            "gguf": a GGUF file; transformers computes what is in it
    type    model_type
    config  what differs from the defaults of the configuration class
    dtype   of the weights in the files
    rules   (part of a tensor's name, rule): other rules than recipe.py has
    quant   "mlx": mode, bits, group_size; add_config: further keys
    arch    "gguf": general.architecture; see gguf() below
    split   "gguf": gate and up, which transformers has in one, each for itself
    blocks  "hf": experts as the blocks of mxfp4 that gpt-oss has; "words": as
            mlx-lm has them
"""

SMALL = dict(vocab_size=300, hidden_size=64, intermediate_size=96,
             num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
             max_position_embeddings=256, bos_token_id=1, eos_token_id=2,
             pad_token_id=0)


def small(**changes):
    return {**SMALL, **changes}


def rope(rope_type="default", theta=10000.0, **more):
    return {"rope_type": rope_type, "rope_theta": theta, **more}


def longrope(pairs, **more):
    return rope("longrope", short_factor=[1 + i / 10 for i in range(pairs)],
                long_factor=[1.5 + i for i in range(pairs)], **more)


def hf(name, type, dtype="BF16", rules=(), **config):
    return dict(name=name, form="hf", type=type, dtype=dtype, rules=rules,
                config=small(**config))


def mlx(name, type, quant, **config):
    """Packed; head and embedding, too, where rows divide by the group."""
    config.setdefault("rope_parameters", rope())
    experts = config.get("num_experts")
    more = {"num_experts": experts} if experts else {}
    return dict(name=name, form="mlx", type=type, quant=quant,
                add_config=dict(more, rope_theta=10000.0),
                config=small(**config))


def mixed(path, module):
    """Some modules with settings of their own, some not packed."""
    if "down_proj" in path:
        return {"bits": 8, "group_size": 32}
    if "layers.1.block_sparse_moe.switch_mlp.gate_proj" in path:
        return {"bits": 5, "group_size": 32}
    return "lm_head" not in path and "o_proj" not in path


def gguf(name, arch, type, of_all="F16", types=(), paired=False, keys=(),
         more=(), patch=None, **config):
    """A GGUF file of architecture `arch`: matrices of type `of_all`, or what
    `types` has for a part of their name."""
    row = dict(name=name, form="gguf", arch=arch, type=type,
               type_of_all=of_all, types=dict(types), paired=paired,
               keys=dict(keys), more=dict(more), config=small(**config))
    return {**row, "patch": patch} if patch else row


def set_factors(config, made):
    """Phi-3's factors are tensors of its GGUF files."""
    for which in ("long", "short"):
        config["rope_parameters"][which + "_factor"] = [
            float(x) for x in made[f"rope_factors_{which}.weight"]]


# K-quants have rows of 256.
WIDE = dict(hidden_size=256, intermediate_size=256, num_attention_heads=8,
            num_key_value_heads=4)

MOE = dict(num_hidden_layers=2, moe_intermediate_size=32)

ROWS = [
    hf("llama", "llama", tie_word_embeddings=True),
    hf("llama-untied-bias", "llama", tie_word_embeddings=False,
       attention_bias=True, mlp_bias=True, num_key_value_heads=4),
    hf("llama-rope-linear", "llama", tie_word_embeddings=True,
       rope_parameters=rope("linear", factor=4.0)),
    hf("llama-rope-llama3", "llama", tie_word_embeddings=False,
       rope_parameters=rope("llama3", factor=8.0, low_freq_factor=1.0,
                            high_freq_factor=4.0,
                            original_max_position_embeddings=32)),
    hf("llama-rope-yarn", "llama", tie_word_embeddings=True,
       rope_parameters=rope("yarn", factor=4.0,
                            original_max_position_embeddings=64)),
    hf("mistral-window", "mistral", "F16", sliding_window=12, head_dim=32),
    hf("smollm3", "smollm3", num_hidden_layers=4, tie_word_embeddings=True),
    hf("smollm3-window", "smollm3", no_rope_layers=[1, 0],
       use_sliding_window=True, sliding_window=9, tie_word_embeddings=False),
    hf("mixtral", "mixtral", num_local_experts=4, num_experts_per_tok=2,
       intermediate_size=48),
    hf("qwen2", "qwen2", tie_word_embeddings=True),
    hf("qwen2-window", "qwen2", "F16", tie_word_embeddings=False,
       num_hidden_layers=3, use_sliding_window=True, sliding_window=10,
       max_window_layers=1),
    hf("qwen3", "qwen3", head_dim=32, tie_word_embeddings=True),
    hf("qwen3-untied", "qwen3", "F32", head_dim=16, attention_bias=True,
       tie_word_embeddings=False),
    hf("qwen2-moe", "qwen2_moe", num_experts=6, num_experts_per_tok=2,
       shared_expert_intermediate_size=48, **MOE),
    hf("qwen3-moe", "qwen3_moe", num_experts=8, num_experts_per_tok=3,
       norm_topk_prob=True, head_dim=16, num_hidden_layers=3,
       mlp_only_layers=[1], moe_intermediate_size=32),
    hf("qwen3-moe-plain", "qwen3_moe", num_experts=4, num_experts_per_tok=2,
       norm_topk_prob=False, decoder_sparse_step=2, head_dim=16, **MOE),
    hf("phi3", "phi3"),
    hf("phi3-partial-tied", "phi3", tie_word_embeddings=True,
       sliding_window=14, rope_parameters=rope(partial_rotary_factor=0.75),
       head_dim=32, hidden_size=64),
    hf("phi3-longrope-short", "phi3", original_max_position_embeddings=128,
       rope_parameters=longrope(8)),
    hf("phi3-longrope-long", "phi3", original_max_position_embeddings=64,
       rope_parameters=longrope(6, partial_rotary_factor=0.75)),
    hf("llama-rope-dynamic", "llama", tie_word_embeddings=True,
       max_position_embeddings=64, rope_parameters=rope("dynamic", factor=2.0)),
    hf("granite", "granite", embedding_multiplier=3.0, attention_multiplier=0.2,
       residual_multiplier=0.4, logits_scaling=2.0, tie_word_embeddings=True),
    hf("granite-bias", "granite", embedding_multiplier=2.0,
       attention_multiplier=0.25, residual_multiplier=0.5, logits_scaling=0.5,
       attention_bias=True, mlp_bias=True, tie_word_embeddings=False),
    hf("olmo2", "olmo2", tie_word_embeddings=False),
    hf("glm4", "glm4", head_dim=16, attention_bias=True),
    hf("starcoder2", "starcoder2"),
    hf("starcoder2-window", "starcoder2", "F16", sliding_window=11,
       tie_word_embeddings=False),
    dict(name="minicpm", form="mlx", type="minicpm",
         config=small(dim_model_base=16, scale_depth=1.4, scale_emb=4,
                      rms_norm_eps=1e-5, rope_theta=10000.0,
                      tie_word_embeddings=False)),
]

# The Gemma line: windows and patterns that 70 tokens reach, scores that are
# large enough to be capped.
GEMMA = dict(head_dim=32, num_hidden_layers=3,
             rules=(("norm", ["floats", -8, 0]), ("embed", ["floats", -9, 0])))
GEMMA3 = dict(GEMMA, query_pre_attn_scalar=24, sliding_window=16,
              num_hidden_layers=4, sliding_window_pattern=3)
GEMMA3_TEXT = {k: v for k, v in GEMMA3.items() if k != "rules"}
TOWER = dict(hidden_size=32, intermediate_size=32, num_hidden_layers=1,
             num_attention_heads=2, image_size=28, patch_size=14)

ROWS += [
    hf("gemma", "gemma", **GEMMA),
    hf("gemma2", "gemma2", query_pre_attn_scalar=24, sliding_window=16,
       attn_logit_softcapping=2.0, final_logit_softcapping=4.0, **GEMMA),
    hf("gemma3", "gemma3_text", **GEMMA3),
    hf("gemma3-untied-linear", "gemma3_text", tie_word_embeddings=False,
       rope_parameters={
           "full_attention": rope("linear", 1e6, factor=8.0),
           "sliding_attention": rope()}, **GEMMA3),
    dict(name="gemma3-images", form="hf", type="gemma3", dtype="BF16",
         rules=GEMMA["rules"],
         config=dict(vocab_size=300, mm_tokens_per_image=4,
                     text_config=small(**GEMMA3_TEXT), vision_config=TOWER)),
]

# Windows that 70 tokens leave behind; a ramp of YaRN that begins between two
# pairs; experts as the authors store them, and packed as mlx-lm does.
GPT_OSS = dict(head_dim=32, num_hidden_layers=3, num_local_experts=4,
               num_experts_per_tok=2, intermediate_size=32, sliding_window=16,
               rope_parameters=rope("yarn", 150000.0, factor=8.0,
                                    beta_fast=32.0, beta_slow=1.0,
                                    truncate=False,
                                    original_max_position_embeddings=32))
GPT_OSS_RULES = (("sinks", ["floats", -6, 0]),
                 ("gate_up_proj_bias", ["floats", -7, 0]))

ROWS += [
    hf("gpt-oss", "gpt_oss", rules=GPT_OSS_RULES, **GPT_OSS),
    dict(name="gpt-oss-blocks", form="hf", type="gpt_oss", dtype="BF16",
         config=small(**GPT_OSS), blocks=True, rules=GPT_OSS_RULES,
         add_config={"quantization_config": {"quant_method": "mxfp4"}}),
    dict(name="gpt-oss-packed", form="hf", type="gpt_oss", dtype="BF16",
         config=small(**GPT_OSS), blocks="words", rules=GPT_OSS_RULES,
         add_config={"quantization": {"mode": "mxfp4", "bits": 4,
                                      "group_size": 32}}),
]

# Embedders: bodies without a head.
ENCODER = dict(SMALL, num_hidden_layers=3, max_position_embeddings=96)
del ENCODER["num_key_value_heads"]


def vectors(name, type, model, dtype="F32", **config):
    import transformers
    return dict(name=name, form="hf", type=type, dtype=dtype, vectors=True,
                rules=(("LayerNorm.weight", ["floats", -8, 1]),),
                model_class=getattr(transformers, model), config=config)


ROWS += [
    vectors("bert", "bert", "BertModel", **ENCODER),
    vectors("xlm-roberta", "xlm-roberta", "XLMRobertaModel",
            **{**ENCODER, "pad_token_id": 1, "bos_token_id": 0}),
    vectors("qwen3-vectors", "qwen3", "Qwen3Model", dtype="BF16",
            **small(head_dim=32, tie_word_embeddings=True)),
]

# Keys that later layers share, layers with wider heads, inputs of layers.
GEMMA4 = dict(GEMMA3_TEXT, num_hidden_layers=6, global_head_dim=64,
              hidden_size_per_layer_input=16, vocab_size_per_layer_input=300,
              num_kv_shared_layers=0, final_logit_softcapping=6.0,
              layer_types=["sliding_attention", "full_attention"] * 3)
for key in ("query_pre_attn_scalar", "sliding_window_pattern"):
    GEMMA4.pop(key)
# Norms are those of other families again; the vectors of layers, too.
RULES4 = (("per_expert_scale", ["floats", -8, 1]),
          ("router.scale", ["floats", -8, 1]),
          ("layer_scalar", ["floats", -9, 1]),
          ("embed_tokens_per_layer", ["floats", -8, 0]),
          ("embed_tokens", ["floats", -9, 0]))

ROWS += [
    hf("gemma4", "gemma4_text", dtype="F32", rules=RULES4,
       **{**GEMMA4, "num_kv_shared_layers": 2, "use_double_wide_mlp": True}),
    hf("gemma4-experts", "gemma4_text", dtype="F32", rules=RULES4,
       **{**GEMMA4, "hidden_size_per_layer_input": 0, "attention_k_eq_v": True,
          "num_global_key_value_heads": 1, "enable_moe_block": True,
          "num_experts": 6, "top_k_experts": 2, "moe_intermediate_size": 32}),
]

# mlx-lm does not divide before tied logits; the reference does, and so does
# Granite, which is MiniCPM but for the names.
ROWS += [
    dict(hf("minicpm-tied", "granite", embedding_multiplier=4.0,
            attention_multiplier=0.25, residual_multiplier=1.4 / 2 ** 0.5,
            logits_scaling=4.0, tie_word_embeddings=True),
         drop_config=("embedding_multiplier", "attention_multiplier",
                      "residual_multiplier", "logits_scaling"),
         add_config=dict(model_type="minicpm", scale_emb=4, scale_depth=1.4,
                         dim_model_base=16)),
]



def compat(name, type, **config):
    """What mlx-lm computes otherwise; test_goldens knows them by their name."""
    rules = config.pop("rules", ())
    return dict(name=name, form="mlx", type=type, rules=rules,
                config=small(**config))


ROWS += [
    # The two gates are 4e-4 apart: here that is seen in logits.
    compat("compat-gemma", "gemma", rms_norm_eps=1e-6, rope_theta=10000.0,
           hidden_act="gelu",
           **{**GEMMA, "rules": (("up_proj", ["floats", -6, 0]),
                                 ("down_proj", ["floats", -7, 0]),
                                 ("embed", ["floats", -8, 0]),
                                 *GEMMA["rules"])}),
    dict(mlx("compat-gemma-affine4", "gemma", dict(bits=4, group_size=32),
             hidden_act="gelu", rms_norm_eps=1e-6,
             **{k: v for k, v in GEMMA.items() if k != "rules"}),
         rules=(("norm", ["floats", -5, 2]),)),
    compat("compat-gemma2", "gemma2", rms_norm_eps=1e-6, rope_theta=10000.0,
           query_pre_attn_scalar=24, sliding_window=16,
           attn_logit_softcapping=2.0, final_logit_softcapping=4.0, **GEMMA),
    dict(compat("compat-minicpm-tied", "minicpm", dim_model_base=16, scale_depth=1.4,
                scale_emb=4, rms_norm_eps=1e-5, rope_theta=10000.0,
                tie_word_embeddings=True), strict=False),
    # Its sequences are shorter than what the short factors are for.
    compat("compat-phi3-longrope", "phi3", rms_norm_eps=1e-5, rope_theta=10000.0,
           original_max_position_embeddings=128, tie_word_embeddings=False,
           rope_scaling=dict(
               type="longrope", short_factor=[1 + i / 10 for i in range(8)],
               long_factor=[1.5 + i for i in range(8)])),
]

# Packed model directories, as mlx-lm writes them.
ROWS += [
    mlx("mlx-llama-affine4", "llama", dict(bits=4, group_size=32),
        tie_word_embeddings=True),
    mlx("mlx-qwen3-affine6", "qwen3", dict(bits=6, group_size=64), head_dim=16,
        intermediate_size=128, tie_word_embeddings=False),
    mlx("mlx-llama-nvfp4", "llama", dict(mode="nvfp4", bits=4, group_size=16),
        tie_word_embeddings=False),
    mlx("mlx-qwen2-moe-affine4", "qwen2_moe", dict(bits=4, group_size=32),
        num_experts=6, num_experts_per_tok=2,
        shared_expert_intermediate_size=64, **MOE),
    mlx("mlx-qwen3-moe-affine3", "qwen3_moe", dict(bits=3, group_size=32),
        num_experts=8, num_experts_per_tok=3, norm_topk_prob=True, head_dim=16,
        **MOE),
    mlx("mlx-qwen3-moe-mxfp4", "qwen3_moe",
        dict(mode="mxfp4", bits=4, group_size=32), num_experts=4,
        num_experts_per_tok=2, norm_topk_prob=True, head_dim=16, **MOE),
    mlx("mlx-mixtral-mxfp8", "mixtral",
        dict(mode="mxfp8", bits=8, group_size=32), num_local_experts=4,
        num_experts_per_tok=2),
    mlx("mlx-mixtral-nvfp4", "mixtral",
        dict(mode="nvfp4", bits=4, group_size=16), num_local_experts=4,
        num_experts_per_tok=2),
    dict(mlx("mlx-mixtral-mixed", "mixtral", dict(bits=4, group_size=32),
             num_local_experts=4, num_experts_per_tok=2), predicate=mixed),
]

# GGUF files.
ROWS += [
    gguf("gguf-llama", "llama", "llama", paired=True, tie_word_embeddings=True),
    gguf("gguf-mixtral", "llama", "mixtral", paired=True, num_local_experts=4,
         num_experts_per_tok=2, intermediate_size=64),
    gguf("gguf-mixtral-q4_k", "llama", "mixtral", "Q4_K", {"down": "Q6_K"},
         paired=True, num_local_experts=3, num_experts_per_tok=2,
         **WIDE),
    gguf("gguf-smollm3", "smollm3", "smollm3", "Q8_0", paired=True,
         num_hidden_layers=4, tie_word_embeddings=True),
    gguf("gguf-qwen2", "qwen2", "qwen2", "Q4_0", tie_word_embeddings=True),
    gguf("gguf-qwen3", "qwen3", "qwen3", "Q8_0", head_dim=32,
         tie_word_embeddings=False),
    gguf("gguf-qwen2moe", "qwen2moe", "qwen2_moe", "Q8_0", num_experts=6,
         num_experts_per_tok=2, shared_expert_intermediate_size=64, **MOE),
    gguf("gguf-qwen3moe", "qwen3moe", "qwen3_moe", "IQ4_NL", num_experts=8,
         num_experts_per_tok=3, norm_topk_prob=True, head_dim=16, **MOE),
    gguf("gguf-qwen3moe-mxfp4", "qwen3moe", "qwen3_moe", "Q8_0",
         {"exps": "MXFP4"}, num_experts=8, num_experts_per_tok=3,
         norm_topk_prob=True, head_dim=16, **MOE),
    gguf("gguf-phi3", "phi3", "phi3", "Q8_0"),
    gguf("gguf-phi3-longrope", "phi3", "phi3",
         keys={"rope.scaling.original_context_length": ("uint32", 64),
               "rope.scaling.attn_factor": ("float32", 1.25)},
         more={f"rope_factors_{w}.weight": ((8,), ["scales", e])
               for w, e in (("long", -5), ("short", -6))},
         patch=set_factors, original_max_position_embeddings=64,
         rope_parameters=longrope(8, attention_factor=1.25)),
    gguf("gguf-granite", "granite", "granite", paired=True,
         keys={"embedding_scale": ("float32", 3.0),
               "residual_scale": ("float32", 0.5),
               "attention.scale": ("float32", 0.25),
               "logit_scale": ("float32", 2.0)},
         embedding_multiplier=3.0, attention_multiplier=0.25,
         residual_multiplier=0.5, logits_scaling=2.0,
         tie_word_embeddings=True),
    # Granite with the scale of attention that others have is MiniCPM.
    gguf("gguf-minicpm", "minicpm", "granite", paired=True,
         keys={"embedding_scale": ("float32", 4.0),
               "residual_scale": ("float32", 0.5),
               "logit_scale": ("float32", 2.0)},
         embedding_multiplier=4.0, attention_multiplier=0.25,
         residual_multiplier=0.5, logits_scaling=2.0,
         tie_word_embeddings=False),
    gguf("gguf-olmo2", "olmo2", "olmo2", tie_word_embeddings=False),
    gguf("gguf-glm4", "glm4", "glm4", head_dim=16, attention_bias=True),
    gguf("gguf-starcoder2", "starcoder2", "starcoder2", "Q4_0"),
]

# States, and attention in every fourth layer (or third), of which a quarter of
# each head turns.
HYBRID = dict(head_dim=32, num_hidden_layers=4, linear_num_key_heads=2,
              linear_num_value_heads=4, linear_key_head_dim=16,
              linear_value_head_dim=24, linear_conv_kernel_dim=4,
              tie_word_embeddings=False)
HYBRID_RULES = (("linear_attn.norm", ["floats", -7, 1]),
                ("norm", ["floats", -8, 0]), ("A_log", ["floats", -7, 0]),
                ("conv1d", ["floats", -7, 0]))

ROWS += [
    hf("qwen3-next", "qwen3_next", rules=HYBRID_RULES, num_experts=4,
       num_experts_per_tok=2, moe_intermediate_size=32,
       shared_expert_intermediate_size=48, norm_topk_prob=True,
       mlp_only_layers=[1], **HYBRID),
    hf("qwen3-5", "qwen3_5_text", rules=HYBRID_RULES, **HYBRID),
]

ROWS += [
    {**gguf("gguf-gpt-oss", "gpt-oss", "gpt_oss", "Q8_0",
            types={"exps": "MXFP4", "embd": "F16"},
            keys={"attention.sliding_window": ("uint32", 16),
                  "rope.scaling.type": ("string", "yarn"),
                  "rope.scaling.factor": ("float32", 8.0),
                  "rope.scaling.original_context_length": ("uint32", 32),
                  "expert_feed_forward_length": ("uint32", 32)},
            **GPT_OSS), "split": True, "rules": GPT_OSS_RULES},
]

GEMMA3N = {k: v for k, v in GEMMA4.items() if k != "global_head_dim"}
ROWS += [
    hf("gemma3n", "gemma3n_text", dtype="F32",
       rules=(("correct_output_scale", ["floats", -8, 1]),
              ("correction_coefs", ["floats", -9, 0]),
              ("prediction_coefs", ["floats", -10, 0]),
              ("modality_router", ["floats", -4, 0])) + RULES4,
       **{**GEMMA3N, "num_kv_shared_layers": 2, "laurel_rank": 8,
          "vocab_size_per_layer_input": 290,
          "activation_sparsity_pattern": [0.6, 0.0, 0.3, 0.0, 0.0, 0.0],
          "intermediate_size": [96, 96, 80, 96, 96, 96]}),
]

# ---- GGUF files of the other families ----

def from_gguf(name, arch, type, of_all="F16", types=(), keys=(), rules=(),
              config=(), **more):
    row = gguf(name, arch, type, of_all, types, keys=keys, **dict(config))
    return {**row, "rules": rules, **more}


def shift(row, found, config):
    import gguf_form
    return gguf_form.shifted(found, config)


# Norms of Gemma 1 to 3 are stored with the 1 that the authors add.
GEMMA_RULES = (("norm", ["floats", -8, 1]), ("embd", ["floats", -9, 0]))
GEMMA_TEXT = {k: v for k, v in GEMMA.items() if k != "rules"}
WIDE_HEADS = {"attention.key_length": ("uint32", 32),
              "attention.value_length": ("uint32", 32)}

ROWS += [
    from_gguf("gguf-gemma", "gemma", "gemma", keys=WIDE_HEADS,
              rules=GEMMA_RULES, config=GEMMA_TEXT, back=shift),
    from_gguf("gguf-gemma2", "gemma2", "gemma2", "Q8_0",
              keys={**WIDE_HEADS,
                    "attn_logit_softcapping": ("float32", 2.0),
                    "final_logit_softcapping": ("float32", 4.0),
                    "attention.sliding_window": ("uint32", 16)},
              rules=GEMMA_RULES, back=shift,
              # The file has no key for the divisor: the width of a head.
              config=dict(GEMMA_TEXT, query_pre_attn_scalar=32,
                          sliding_window=16, attn_logit_softcapping=2.0,
                          final_logit_softcapping=4.0)),
    from_gguf("gguf-gemma3", "gemma3", "gemma3_text", "Q4_0",
              {"embd": "Q8_0"},
              keys={**WIDE_HEADS, "attention.sliding_window": ("uint32", 16),
                    "rope.freq_base_swa": ("float32", 10000.0),
                    "rope.scaling.type": ("string", "linear"),
                    "rope.scaling.factor": ("float32", 8.0)},
              rules=GEMMA_RULES, back=shift,
              config=dict(GEMMA3_TEXT, query_pre_attn_scalar=32,
                          num_hidden_layers=7, sliding_window_pattern=6,
                          rope_parameters={
                              "full_attention": rope("linear", 1e6, factor=8.0),
                              "sliding_attention": rope()})),
]


def of_form(name):
    """A function of gguf_form, which needs packages that others don't."""
    def call(*arguments):
        import gguf_form
        return getattr(gguf_form, name)(*arguments)
    return call


SLIDES = ("array", [True, False] * 3)
KEYS4 = {"attention.sliding_window": ("uint32", 16),
         "attention.sliding_window_pattern": SLIDES,
         "final_logit_softcapping": ("float32", 6.0),
         "rope.freq_base_swa": ("float32", 10000.0)}
HEADS4 = {"attention.key_length": ("uint32", 64),
          "attention.value_length": ("uint32", 64),
          "attention.key_length_swa": ("uint32", 32),
          "attention.value_length_swa": ("uint32", 32),
          "rope.dimension_count": ("uint32", 64),
          "rope.dimension_count_swa": ("uint32", 32)}
# rope_freqs has factors of 1 for the pairs that turn, and of 1e30 for others.
GGUF_RULES4 = (("ffn_down_exps.scale", ["floats", -8, 1]),
               ("ffn_gate_inp.scale", ["floats", -8, 1]),
               ("layer_output_scale", ["floats", -9, 1]),
               ("per_layer_token_embd", ["floats", -8, 0]),
               ("token_embd", ["floats", -9, 0]))
NAMES4 = {"router.scale": "ffn_gate_inp.scale",
          "router.per_expert_scale": "ffn_down_exps.scale"}

ROWS += [
    from_gguf("gguf-gemma3n", "gemma3n", "gemma3n_text", "F16",
              keys={**KEYS4, **WIDE_HEADS,
                    "attention.shared_kv_layers": ("uint32", 2),
                    "embedding_length_per_layer_input": ("uint32", 16),
                    "altup.num_inputs": ("uint32", 4),
                    "altup.active_idx": ("uint32", 0),
                    "activation_sparsity_scale": ("array", [
                        0.2533471, -float("inf"), -0.5244005]
                        + [-float("inf")] * 3)},
              rules=(("altup_correct_scale", ["floats", -8, 1]),
                     ("altup_correct_coef", ["floats", -9, 0]),
                     ("altup_predict_coef", ["floats", -10, 0]),
                     ("altup_router.", ["floats", -4, 0])) + GGUF_RULES4,
              there=of_form("streams_there"), back=of_form("streams_back"),
              config={**GEMMA3N, "num_kv_shared_layers": 2, "laurel_rank": 64,
                      "vocab_size_per_layer_input": 300,
                      "activation_sparsity_pattern":
                      [0.6, 0.0, 0.3, 0.0, 0.0, 0.0],
                      "intermediate_size": [96, 96, 80, 96, 96, 96]}),
    from_gguf("gguf-gemma4", "gemma4", "gemma4_text", "Q8_0",
              {"per_layer_token": "F16", "inp_gate": "F32", "proj.": "F32"},
              keys={**KEYS4, **HEADS4,
                    "attention.shared_kv_layers": ("uint32", 2),
                    "embedding_length_per_layer_input": ("uint32", 16)},
              rules=GGUF_RULES4, more={"rope_freqs.weight": (
                  (32,), ["turned", 8])}, feed_forward=[96] * 4 + [192] * 2,
              there=of_form("scalars_there"), back=of_form("scalars_back"),
              config={**GEMMA4, "num_kv_shared_layers": 2,
                      "use_double_wide_mlp": True}),
    from_gguf("gguf-gemma4-experts", "gemma4", "gemma4_text", "Q4_0",
              keys={**KEYS4, **HEADS4, "attention.shared_kv_layers":
                    ("uint32", 0),
                    "embedding_length_per_layer_input": ("uint32", 0)},
              rules=GGUF_RULES4, names=NAMES4, kv_heads=[2, 1] * 3,
              more={"rope_freqs.weight": ((32,), ["turned", 8])},
              there=of_form("scalars_there"), back=of_form("scalars_back"),
              config={**GEMMA4, "hidden_size_per_layer_input": 0,
                      "attention_k_eq_v": True,
                      "num_global_key_value_heads": 1,
                      "enable_moe_block": True, "num_experts": 6,
                      "top_k_experts": 2, "moe_intermediate_size": 32}),
]

SSM = {"ssm.conv_kernel": ("uint32", 4), "ssm.state_size": ("uint32", 16),
       "ssm.group_count": ("uint32", 2), "ssm.time_step_rank": ("uint32", 4),
       "ssm.inner_size": ("uint32", 128),
       "full_attention_interval": ("uint32", 4),
       "rope.dimension_count": ("uint32", 8), **WIDE_HEADS}
# Logits far enough apart that few salts have close calls.
SSM_RULES = (("attn_output", ["floats", -10, 0]),
             ("output.weight", ["floats", -5, 0]),
             ("ssm_norm", ["floats", -7, 1]), ("norm", ["floats", -8, 1]),
             ("ssm_a", ["floats", -7, -1.25]), ("conv1d", ["floats", -7, 0]))
# Heads of values as wide as a block, so that any type can have them.
NET = dict(HYBRID, linear_value_head_dim=32)
NET_FORM = dict(there=of_form("hybrid_there"), back=of_form("hybrid_back"),
                rules=SSM_RULES)

ROWS += [
    from_gguf("gguf-qwen35", "qwen35", "qwen3_5_text", "Q8_0",
              {"conv1d": "F32", "output.weight": "F16"},
              keys={**SSM, "rope.dimension_sections": ("array", [2, 1, 1, 0])},
              tiled=True, config=NET, **NET_FORM),
    from_gguf("gguf-qwen3next", "qwen3next", "qwen3_next", "Q4_0",
              {"conv1d": "F32", "ssm_ba": "F16", "output.weight": "F16"},
              keys={**SSM, "expert_feed_forward_length": ("uint32", 32),
                    "expert_shared_feed_forward_length": ("uint32", 64)},
              tiled=False, config=dict(
                  NET, num_experts=4, num_experts_per_tok=2,
                  moe_intermediate_size=32, norm_topk_prob=True,
                  shared_expert_intermediate_size=64), **NET_FORM),
]

def of_transformers(name):
    import transformers
    return getattr(transformers, name)


ROWS += [
    from_gguf("gguf-bert", "bert", "bert", "Q8_0",
              {"token_embd": "F16", "position": "F32", "types": "F32"},
              keys={"attention.causal": ("bool", False),
                    "pooling_type": ("uint32", 1),
                    "tokenizer.ggml.token_type_count": ("uint32", 2)},
              rules=(("norm.weight", ["floats", -8, 1]),),
              config=ENCODER, vectors=True, drop=("pooler.",),
              model_class=of_transformers("BertModel")),
]
