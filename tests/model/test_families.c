/* What families read of a configuration beyond the common keys, and what they
 * refuse. */
#include "support/qn_test.h"

#include "model/config.h"
#include "model/family.h"

/* A configuration of `type` with 4 layers and these further members. */
static qn_status parse(qn_config *out, const char *type, const char *more)
{
    qn_buf text = QN_BUF_INIT;
    qn_buf_printf(&text,
                  "{\"model_type\": \"%s\", \"hidden_size\": 64, "
                  "\"num_hidden_layers\": 4, \"intermediate_size\": 96, "
                  "\"num_attention_heads\": 4, \"head_dim\": 16, "
                  "\"vocab_size\": 100, \"rms_norm_eps\": 1e-5, "
                  "\"max_position_embeddings\": 256%s%s}",
                  type, *more ? ", " : "", more);
    qn_status status = qn_buf_status(&text);
    if (!status)
        status = qn_config_from_json(out, qn_buf_str(&text), "dir/config.json");
    qn_buf_free(&text);
    return status;
}

static void check_refused(const char *type, const char *more, qn_status status,
                          const char *part)
{
    qn_config c;
    check_error(parse(&c, type, more), status, part);
    assert_non_null(strstr(qn_error_where(), "dir/config.json"));
}

/* "x" for each layer that is so, "." for the others. */
static void check_layers(const char *type, const char *more,
                         bool (*is)(const qn_layer_config *),
                         const char *expected)
{
    qn_config c;
    check_status(parse(&c, type, more), QN_OK);
    for (int i = 0; i < c.layers; i++)
        if (is(&c.layer[i]) != (expected[i] == 'x'))
            fail_msg("%s, %s: layer %d is not as in %s", type, more, i,
                     expected);
    qn_config_clear(&c);
}

static bool slides(const qn_layer_config *l)
{
    return l->window == 8;
}

static bool turns(const qn_layer_config *l)
{
    return l->rope == QN_LAYER_ROPE;
}

static bool sparse(const qn_layer_config *l)
{
    return l->sparse;
}

static void test_windows_follow_the_rule_of_the_family(void **state)
{
    (void)state;
    const char *plain = "\"sliding_window\": 8";
    const char *used = "\"sliding_window\": 8, \"use_sliding_window\": true, "
                       "\"max_window_layers\": 2";
    const char *unused = "\"sliding_window\": 8, \"use_sliding_window\": false";
    const char *listed =
        "\"sliding_window\": 8, \"use_sliding_window\": true, "
        "\"layer_types\": [\"full_attention\", \"sliding_attention\", "
        "\"full_attention\", \"full_attention\"]";
    check_layers("llama", plain, slides, "....");
    check_layers("mistral", plain, slides, "xxxx");
    check_layers("starcoder2", plain, slides, "xxxx");
    check_layers("phi3", plain, slides, "xxxx");
    check_layers("phi3", "\"sliding_window\": 256", slides, "....");
    check_layers("qwen2", plain, slides, "....");
    check_layers("qwen2", used, slides, "..xx");
    check_layers("qwen2", unused, slides, "....");
    check_layers("qwen3", listed, slides, ".x..");
    check_layers("smollm3", used, slides, "...x");
}

static void test_layers_without_rotary_positions(void **state)
{
    (void)state;
    check_layers("smollm3", "", turns, "xxx.");
    check_layers("smollm3", "\"no_rope_layer_interval\": 2", turns, "x.x.");
    check_layers("smollm3", "\"no_rope_layers\": [0, 1, 1, 0]", turns, ".xx.");
    check_refused("smollm3", "\"no_rope_layers\": [0, 1]", QN_E_FORMAT,
                  "4 entries");
    check_refused("smollm3", "\"no_rope_layers\": [0, 1, 1, 2]", QN_E_FORMAT,
                  "found 2");
    check_refused("smollm3", "\"no_rope_layer_interval\": 0", QN_E_FORMAT,
                  "no_rope_layer_interval");
}

static void test_layers_with_experts(void **state)
{
    (void)state;
    const char *all = "\"num_experts\": 8, \"num_experts_per_tok\": 2, "
                      "\"moe_intermediate_size\": 32";
    const char *some = "\"num_experts\": 8, \"moe_intermediate_size\": 32, "
                       "\"decoder_sparse_step\": 2, \"mlp_only_layers\": [3]";
    check_layers("qwen3_moe", all, sparse, "xxxx");
    check_layers("qwen3_moe", some, sparse, ".x..");
    check_layers("mixtral", "\"num_local_experts\": 4", sparse, "xxxx");
    check_layers("llama", all, sparse, "....");
    qn_config c;
    check_status(parse(&c, "mixtral", "\"num_local_experts\": 4"), QN_OK);
    assert_int_equal(c.moe.count, 4);
    assert_int_equal(c.moe.used, 2);
    assert_int_equal(c.moe.intermediate, 96);
    assert_true(c.moe.normalize);
    qn_config_clear(&c);
    check_refused("gpt_oss",
                  "\"num_local_experts\": 4, \"num_experts_per_tok\": 2, "
                  "\"swiglu_limit\": 5.0",
                  QN_E_UNSUPPORTED, "clamped at 7, found 5");
    check_refused("mixtral", "", QN_E_FORMAT, "num_experts");
    check_refused("qwen3_moe", "\"num_experts\": 8", QN_E_FORMAT,
                  "moe_intermediate_size");
    check_refused("qwen3_moe",
                  "\"num_experts\": 4, \"moe_intermediate_size\": 32, "
                  "\"num_experts_per_tok\": 5",
                  QN_E_FORMAT, "1..4");
    check_refused("qwen2_moe",
                  "\"num_experts\": 0, \"moe_intermediate_size\": 32",
                  QN_E_FORMAT, "found 0");
    check_refused("qwen3_moe",
                  "\"num_experts\": 8, \"moe_intermediate_size\": 32, "
                  "\"mlp_only_layers\": 3",
                  QN_E_FORMAT, "list of integers");
}

static void test_scales_leave_something(void **state)
{
    (void)state;
    check_refused("granite", "\"residual_multiplier\": 0", QN_E_FORMAT,
                  "other numbers than 0");
    check_refused("granite", "\"logits_scaling\": \"1\"", QN_E_FORMAT,
                  "a number");
    check_refused("minicpm", "\"dim_model_base\": 0", QN_E_FORMAT,
                  "other numbers than 0");
}

static void test_factors_of_long_sequences(void **state)
{
    (void)state;
    qn_config c;
    const char *good =
        "\"original_max_position_embeddings\": 64, \"rope_scaling\": "
        "{\"type\": \"su\", \"long_factor\": [1,2,3,4,5,6,7,8], "
        "\"short_factor\": [1,1,1,1,1,1,1,1]}";
    check_status(parse(&c, "phi3", good), QN_OK);
    assert_int_equal(c.rope.type, QN_ROPE_LONGROPE);
    assert_float_equal(c.rope.factor, 4, 0);
    assert_float_equal(c.rope.long_factors[7], 8, 0);
    assert_int_equal(c.max_positions, 256);
    qn_config_clear(&c);
    check_refused("phi3",
                  "\"rope_scaling\": {\"type\": \"longrope\", "
                  "\"long_factor\": [1,2], \"short_factor\": [1,1]}",
                  QN_E_FORMAT, "list of 8");
    check_refused("phi3",
                  "\"rope_scaling\": {\"type\": \"longrope\", "
                  "\"short_factor\": [1,1,1,1,1,1,1,1]}",
                  QN_E_FORMAT, "long_factor");
    check_refused("phi3",
                  "\"rope_scaling\": {\"type\": \"longrope\", "
                  "\"short_factor\": [1,1,1,1,1,1,1,0], "
                  "\"long_factor\": [1,1,1,1,1,1,1,1]}",
                  QN_E_FORMAT, "positive");
}

static void test_dynamic_scaling_lengthens_the_context(void **state)
{
    (void)state;
    qn_config c;
    check_status(parse(&c, "llama",
                       "\"rope_scaling\": {\"type\": \"dynamic\", \"factor\": "
                       "2}"),
                 QN_OK);
    assert_int_equal(c.max_positions, 512);
    assert_float_equal(c.rope.original_positions, 256, 0);
    qn_config_clear(&c);
    check_refused("llama", "\"rope_scaling\": {\"type\": \"dynamic\"}",
                  QN_E_FORMAT, "factor");
}

static void test_rotary_choices_depend_on_the_length(void **state)
{
    (void)state;
    qn_rope_config rope = {.type = QN_ROPE_LONGROPE, .original_positions = 64};
    assert_int_equal(qn_rope_choice(&rope, 64), 0);
    assert_int_equal(qn_rope_choice(&rope, 65), 1);
    assert_int_equal(qn_rope_choice(&rope, 300), 1);
    rope.type = QN_ROPE_DYNAMIC;
    assert_int_equal(qn_rope_choice(&rope, 64), 0);
    assert_int_not_equal(qn_rope_choice(&rope, 65), qn_rope_choice(&rope, 66));
    rope.type = QN_ROPE_YARN;
    assert_int_equal(qn_rope_choice(&rope, 300), 0);
}

/* Pairs beyond the part that turns stand still. */
static void test_proportional_periods(void **state)
{
    (void)state;
    qn_rope_config rope = {.type = QN_ROPE_PROPORTIONAL,
                           .base = 10000,
                           .dims = 8,
                           .turned = 1,
                           .factor = 2};
    double periods[4];
    assert_true(qn_rope_periods(periods, &rope, false));
    assert_float_equal(periods[0], 2, 0);
    for (int i = 1; i < 4; i++)
        assert_true(periods[i] > 1e300);
}

static void test_gemma_4_turns_by_its_own_rule_without_parameters(void **state)
{
    (void)state;
    qn_config c;
    check_status(parse(&c, "gemma4_text", "\"rope_parameters\": null"), QN_OK);
    assert_int_equal(c.rope.type, QN_ROPE_PROPORTIONAL);
    assert_float_equal(c.rope.base, 1e6, 0);
    assert_float_equal(c.rope.factor, 1, 0);
    qn_config_clear(&c);
}

static void test_other_activations_are_refused(void **state)
{
    (void)state;
    static const char *const types[] = {"llama",   "qwen2",     "phi3",
                                        "olmo2",   "glm4",      "granite",
                                        "minicpm", "starcoder2"};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        qn_config c;
        const qn_family *family = qn_family_find(qn_str_of(types[i]));
        check_status(parse(&c, types[i], "\"hidden_act\": \"relu\""), QN_OK);
        check_error(family->check(&c), QN_E_UNSUPPORTED, "found relu");
        qn_config_clear(&c);
    }
}

static qn_status scenario(void)
{
    qn_config c;
    qn_status status = parse(&c, "phi3",
                             "\"rope_scaling\": {\"type\": \"longrope\", "
                             "\"long_factor\": [1,1,1,1,1,1,1,1], "
                             "\"short_factor\": [1,1,1,1,1,1,1,1]}");
    if (!status)
        qn_config_clear(&c);
    if (!status && !(status = parse(&c, "granite", "")))
        qn_config_clear(&c);
    return status;
}

static void test_memory_may_run_out(void **state)
{
    (void)state;
    each_alloc_may_fail(scenario);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_windows_follow_the_rule_of_the_family),
        cmocka_unit_test(test_layers_without_rotary_positions),
        cmocka_unit_test(test_layers_with_experts),
        cmocka_unit_test(test_scales_leave_something),
        cmocka_unit_test(test_factors_of_long_sequences),
        cmocka_unit_test(test_dynamic_scaling_lengthens_the_context),
        cmocka_unit_test(test_rotary_choices_depend_on_the_length),
        cmocka_unit_test(test_proportional_periods),
        cmocka_unit_test(test_gemma_4_turns_by_its_own_rule_without_parameters),
        cmocka_unit_test(test_other_activations_are_refused),
        cmocka_unit_test(test_memory_may_run_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
