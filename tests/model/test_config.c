/* config.json and GGUF metadata: what is read, and each rule that refuses. */
#include "support/tiny.h"

#include "model/config.h"

/* A good configuration; tests replace or add members. */
static const char *const good[][2] = {
    {"model_type", "\"llama\""},  {"hidden_size", "64"},
    {"num_hidden_layers", "2"},   {"intermediate_size", "96"},
    {"num_attention_heads", "4"}, {"num_key_value_heads", "2"},
    {"head_dim", "16"},           {"vocab_size", "100"},
    {"rms_norm_eps", "1e-5"},     {"max_position_embeddings", "256"},
};

enum { MEMBERS = sizeof good / sizeof *good };

/* The good one with `key` set to `value`, or without it (NULL); then `more`
 * members. */
static qn_status parse(qn_config *out, const char *key, const char *value,
                       const char *more)
{
    qn_buf text = QN_BUF_INIT;
    bool known = false;
    qn_buf_add_char(&text, '{');
    for (int i = 0; i < MEMBERS; i++) {
        bool this = key && !strcmp(key, good[i][0]);
        known |= this;
        if (this && !value)
            continue;
        qn_buf_printf(&text, "%s\"%s\": %s", text.size > 1 ? ", " : "",
                      good[i][0], this ? value : good[i][1]);
    }
    if (key && !known && value)
        qn_buf_printf(&text, ", \"%s\": %s", key, value);
    qn_buf_printf(&text, "%s%s}", *more ? ", " : "", more);
    qn_status status = qn_buf_status(&text);
    if (!status)
        status = qn_config_from_json(out, qn_buf_str(&text), "dir/config.json");
    qn_buf_free(&text);
    return status;
}

static void test_values_are_read(void **state)
{
    (void)state;
    qn_config c;
    check_status(parse(&c, NULL, NULL,
                       "\"eos_token_id\": [1, 2], \"bos_token_id\": 7, "
                       "\"attention_bias\": true, \"rope_theta\": 5e5"),
                 QN_OK);
    assert_string_equal(c.family, "llama");
    assert_int_equal(c.hidden, 64);
    assert_int_equal(c.layers, 2);
    assert_int_equal(c.heads, 4);
    assert_int_equal(c.kv_heads, 2);
    assert_int_equal(c.head_dim, 16);
    assert_int_equal(c.vocab_size, 100);
    assert_int_equal(c.layer[1].intermediate, 96);
    assert_int_equal(c.max_positions, 256);
    assert_int_equal(c.tied, -1);
    assert_int_equal(c.end_count, 2);
    assert_int_equal(c.end_ids[1], 2);
    assert_int_equal(c.bos_id, 7);
    assert_int_equal(c.pad_id, -1);
    assert_true(c.attention_bias && !c.mlp_bias);
    assert_float_equal(c.rope.base, 5e5, 0);
    assert_int_equal(c.rope.dims, 16);
    assert_string_equal(c.activation, "silu");
    qn_config_clear(&c);
}

static void test_defaults(void **state)
{
    (void)state;
    qn_config c;
    check_status(parse(&c, "head_dim", NULL, ""), QN_OK);
    assert_int_equal(c.head_dim, 16);
    assert_float_equal(c.rope.base, 10000, 0);
    qn_config_clear(&c);
    check_status(parse(&c, "num_key_value_heads", NULL, ""), QN_OK);
    assert_int_equal(c.kv_heads, 4);
    qn_config_clear(&c);
    /* null is the same as absent. */
    check_status(parse(&c, "num_key_value_heads", "null",
                       "\"rope_scaling\": null, \"eos_token_id\": null"),
                 QN_OK);
    assert_int_equal(c.kv_heads, 4);
    assert_int_equal(c.end_count, 0);
    qn_config_clear(&c);
}

static void test_text_config_wins_but_not_for_the_type(void **state)
{
    (void)state;
    qn_config c;
    check_status(parse(&c, NULL, NULL,
                       "\"text_config\": {\"hidden_size\": 128, "
                       "\"model_type\": \"other\", \"head_dim\": 32}"),
                 QN_OK);
    assert_int_equal(c.hidden, 128);
    assert_int_equal(c.head_dim, 32);
    assert_string_equal(c.family, "llama");
    qn_config_clear(&c);
}

static void test_layers_of_their_own(void **state)
{
    (void)state;
    qn_config c;
    check_status(parse(&c, "intermediate_size", "[32, 160]", ""), QN_OK);
    assert_int_equal(c.layer[0].intermediate, 32);
    assert_int_equal(c.layer[1].intermediate, 160);
    assert_int_equal(c.intermediate, 160);
    qn_config_clear(&c);
    check_status(parse(&c, NULL, NULL,
                       "\"sliding_window\": 8, \"layer_types\": "
                       "[\"full_attention\", \"sliding_attention\"]"),
                 QN_OK);
    assert_int_equal(c.layer[0].window, 0);
    assert_int_equal(c.layer[1].window, 8);
    qn_config_clear(&c);
    /* Without layer_types only mistral has a window, in every layer. */
    check_status(parse(&c, NULL, NULL, "\"sliding_window\": 8"), QN_OK);
    assert_int_equal(c.layer[1].window, 0);
    qn_config_clear(&c);
    check_status(
        parse(&c, "model_type", "\"mistral\"", "\"sliding_window\": 8"), QN_OK);
    assert_int_equal(c.layer[0].window, 8);
    qn_config_clear(&c);
}

static void test_lengths_after_scaling(void **state)
{
    (void)state;
    qn_config c;
    check_status(parse(&c, NULL, NULL,
                       "\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 4, "
                       "\"original_max_position_embeddings\": 256}"),
                 QN_OK);
    assert_int_equal(c.max_positions, 1024);
    qn_config_clear(&c);
    check_status(parse(&c, NULL, NULL,
                       "\"rope_scaling\": {\"type\": \"linear\", \"factor\": "
                       "4, \"original_max_position_embeddings\": 64}"),
                 QN_OK);
    assert_int_equal(c.max_positions, 256);
    qn_config_clear(&c);
    check_status(parse(&c, NULL, NULL,
                       "\"rope_parameters\": {\"rope_type\": \"default\", "
                       "\"rope_theta\": 1e6}"),
                 QN_OK);
    assert_float_equal(c.rope.base, 1e6, 0);
    assert_int_equal(c.rope.type, QN_ROPE_DEFAULT);
    qn_config_clear(&c);
}

static void test_missing_keys_are_named(void **state)
{
    (void)state;
    static const char *const keys[] = {
        "model_type",        "hidden_size",
        "num_hidden_layers", "intermediate_size",
        "vocab_size",        "num_attention_heads",
        "rms_norm_eps",      "max_position_embeddings",
    };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        qn_config c;
        check_error(parse(&c, keys[i], NULL, ""), QN_E_FORMAT, keys[i]);
        assert_non_null(strstr(qn_error_where(), "dir/config.json: $."));
    }
}

static void test_bad_values_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *key, *value;
        qn_status status;
        const char *part;
    } rows[] = {
        {"model_type", "3", QN_E_FORMAT, "expected a string"},
        {"hidden_size", "\"64\"", QN_E_FORMAT, "expected an integer"},
        {"hidden_size", "64.5", QN_E_FORMAT, "64.5"},
        {"hidden_size", "0", QN_E_FORMAT, "found 0"},
        {"hidden_size", "-1", QN_E_FORMAT, "found -1"},
        {"hidden_size", "16777217", QN_E_FORMAT, "16777217"},
        {"hidden_size", "99999999999999999999", QN_E_FORMAT, "integer"},
        {"num_hidden_layers", "1025", QN_E_FORMAT, "1..1024"},
        {"num_attention_heads", "5", QN_E_FORMAT, "shared"},
        {"num_key_value_heads", "3", QN_E_FORMAT, "shared by 3"},
        {"head_dim", "15", QN_E_FORMAT, "even"},
        {"head_dim", "16777216", QN_E_FORMAT, "too wide"},
        {"intermediate_size", "[96]", QN_E_FORMAT, "2 entries"},
        {"intermediate_size", "[96, 0]", QN_E_FORMAT, "found 0"},
        {"intermediate_size", "{}", QN_E_FORMAT, "object"},
        {"rms_norm_eps", "\"x\"", QN_E_FORMAT, "a number"},
        {"rms_norm_eps", "-1", QN_E_FORMAT, "-1"},
        {"rope_theta", "0", QN_E_FORMAT, "rope base"},
        {"rope_theta", "1e-308", QN_E_FORMAT, "rope base"},
        {"rope_scaling",
         "{\"type\": \"yarn\", \"factor\": 4, \"beta_fast\": 0}", QN_E_FORMAT,
         "beta_fast"},
        {"rope_scaling",
         "{\"type\": \"yarn\", \"factor\": 4, \"rope_theta\": 1, "
         "\"beta_slow\": -1}",
         QN_E_FORMAT, "beta_slow"},
        {"rope_scaling", "{\"type\": \"proportional\", \"factor\": 0.1}",
         QN_E_FORMAT, "at least 1"},
        {"rope_parameters", "{\"full_attention\": 1}", QN_E_FORMAT,
         "full_attention: expected an object"},
        {"rope_parameters", "{\"sliding_attention\": []}", QN_E_FORMAT,
         "sliding_attention"},
        {"rope_theta", "[]", QN_E_FORMAT, "rope_theta"},
        {"rope_scaling", "[]", QN_E_FORMAT, "rope_scaling"},
        {"rope_scaling", "{}", QN_E_FORMAT, "rope_type"},
        {"rope_scaling", "{\"type\": \"linear\"}", QN_E_FORMAT, "factor"},
        {"rope_scaling", "{\"type\": \"linear\", \"factor\": 0.5}", QN_E_FORMAT,
         "at least 1"},
        {"rope_scaling", "{\"type\": \"spiral\", \"factor\": 2}",
         QN_E_UNSUPPORTED, "spiral"},
        {"rope_scaling",
         "{\"rope_type\": \"llama3\", \"factor\": 8, "
         "\"low_freq_factor\": 4, \"high_freq_factor\": 4}",
         QN_E_FORMAT, "low_freq_factor"},
        {"partial_rotary_factor", "1.5", QN_E_FORMAT, "0..1"},
        {"partial_rotary_factor", "0.1", QN_E_FORMAT, "even"},
        {"sliding_window", "\"8\"", QN_E_FORMAT, "sliding_window"},
        {"layer_types", "[\"full_attention\"]", QN_E_FORMAT, "list of 2"},
        {"layer_types", "[\"full_attention\", \"sliding_attention\"]",
         QN_E_FORMAT, "sliding_window is missing"},
        {"layer_types", "[\"full_attention\", \"linear\"]", QN_E_UNSUPPORTED,
         "layer 1"},
        {"attention_bias", "1", QN_E_FORMAT, "true or false"},
        {"tie_word_embeddings", "\"no\"", QN_E_FORMAT, "true or false"},
        {"eos_token_id", "\"</s>\"", QN_E_FORMAT, "token id"},
        {"eos_token_id", "[1, -2]", QN_E_FORMAT, "token id"},
        {"quantization", "{\"bits\": 9}", QN_E_UNSUPPORTED, "9 bits"},
        {"quantization_config", "{\"quant_method\": \"hqq\"}", QN_E_UNSUPPORTED,
         "hqq"},
        {"model_file", "\"model.py\"", QN_E_UNSUPPORTED, "code"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        qn_config c;
        check_error(parse(&c, rows[i].key, rows[i].value, ""), rows[i].status,
                    rows[i].part);
        assert_non_null(strstr(qn_error_where(), "dir/config.json"));
    }
}

static void test_broken_documents_are_refused(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "",
        "[]",
        "null",
        "{\"model_type\": \"llama\"",
        "{\"a\": 1, \"a\": 2}",
        "{\"model_type\": \"ll\xff\"}",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        qn_config c;
        check_status(
            qn_config_from_json(&c, qn_str_of(texts[i]), "dir/config.json"),
            QN_E_FORMAT);
        assert_non_null(strstr(qn_error_where(), "dir/config.json"));
    }
}

/* ---- GGUF ---- */

/* A GGUF file with these encoded keys and no tensors. */
static qn_status parse_gguf(qn_config *out, const qn_buf *keys, int count)
{
    qn_buf file = QN_BUF_INIT;
    qn_buf_add_text(&file, "GGUF");
    tiny_le(&file, 3, 4);
    tiny_le(&file, 0, 8);
    tiny_le(&file, (uint64_t)count, 8);
    qn_buf_add_str(&file, qn_buf_str(keys));
    uint8_t *copy = exact_copy(file.data, file.size);
    qn_gguf *gguf = NULL;
    qn_status status = qn_gguf_parse(&gguf, (qn_bytes){copy, file.size});
    if (!status)
        status = qn_config_from_gguf(out, gguf, "m.gguf");
    qn_gguf_free(gguf);
    free(copy);
    qn_buf_free(&file);
    return status;
}

typedef struct key {
    const char *name;
    char type; /* i f s a (ints) t (strings) */
    double number;
    const char *text; /* s: the value */
} key;

static void put_key(qn_buf *out, const key *k)
{
    if (k->type == 'i') {
        tiny_gguf_u32(out, k->name, (uint32_t)k->number);
    } else if (k->type == 'f') {
        tiny_gguf_f32(out, k->name, (float)k->number);
    } else if (k->type == 's') {
        tiny_gguf_str(out, k->name, k->text);
    } else {
        bool texts = k->type == 't';
        tiny_gguf_text(out, k->name);
        tiny_le(out, QN_GGUF_ARRAY, 4);
        tiny_le(out, texts ? QN_GGUF_STRING : QN_GGUF_U32, 4);
        tiny_le(out, 2, 8);
        for (int i = 0; i < 2; i++)
            if (texts)
                tiny_gguf_text(out, i ? "b" : "a");
            else
                tiny_le(out, (uint64_t)(k->number + i * atoi(k->text)), 4);
    }
}

/* The good file with `change` instead of, or beside, its key of that name;
 * without that key when its type is 0. */
static qn_status parse_changed(qn_config *out, const key *change)
{
    static const key keys[] = {
        {"general.architecture", 's', 0, "llama"},
        {"llama.context_length", 'i', 128, NULL},
        {"llama.embedding_length", 'i', 64, NULL},
        {"llama.block_count", 'i', 2, NULL},
        {"llama.feed_forward_length", 'i', 96, NULL},
        {"llama.attention.head_count", 'i', 4, NULL},
        {"llama.attention.head_count_kv", 'i', 2, NULL},
        {"llama.attention.layer_norm_rms_epsilon", 'f', 1e-5, NULL},
        {"tokenizer.ggml.tokens", 't', 0, NULL},
    };
    qn_buf out_keys = QN_BUF_INIT;
    int count = 0;
    bool known = false;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        bool this = change && !strcmp(change->name, keys[i].name);
        known |= this;
        if (this && !change->type)
            continue;
        put_key(&out_keys, this ? change : &keys[i]);
        count++;
    }
    if (change && !known) {
        put_key(&out_keys, change);
        count++;
    }
    qn_status status = parse_gguf(out, &out_keys, count);
    qn_buf_free(&out_keys);
    return status;
}

static void test_gguf_metadata_is_read(void **state)
{
    (void)state;
    qn_config c;
    check_status(parse_changed(&c, NULL), QN_OK);
    assert_true(c.gguf);
    assert_string_equal(c.family, "llama");
    assert_int_equal(c.hidden, 64);
    assert_int_equal(c.head_dim, 16);
    assert_int_equal(c.kv_heads, 2);
    assert_int_equal(c.vocab_size, 2);
    assert_int_equal(c.max_positions, 128);
    assert_int_equal(c.tied, -1);
    assert_float_equal(c.rope.base, 10000, 0);
    qn_config_clear(&c);
    /* Arrays with an entry for each layer. */
    check_status(
        parse_changed(&c, &(key){"llama.feed_forward_length", 'a', 96, "32"}),
        QN_OK);
    assert_int_equal(c.layer[0].intermediate, 96);
    assert_int_equal(c.layer[1].intermediate, 128);
    qn_config_clear(&c);
    check_status(
        parse_changed(&c, &(key){"llama.attention.head_count_kv", 'a', 4, "0"}),
        QN_OK);
    assert_int_equal(c.kv_heads, 4);
    qn_config_clear(&c);
}

static void test_gguf_bad_metadata_is_refused(void **state)
{
    (void)state;
    static const struct {
        key change;
        qn_status status;
        const char *part;
    } rows[] = {
        {{"general.architecture", 0, 0, NULL}, QN_E_FORMAT, "missing"},
        {{"general.architecture", 'i', 1, NULL}, QN_E_FORMAT, "architecture"},
        {{"llama.context_length", 0, 0, NULL}, QN_E_FORMAT, "context_length"},
        {{"llama.embedding_length", 'i', 0, NULL}, QN_E_FORMAT, "found 0"},
        {{"llama.block_count", 'i', 5000, NULL}, QN_E_FORMAT, "1024"},
        {{"llama.block_count", 's', 0, "2"}, QN_E_FORMAT, "block_count"},
        {{"llama.attention.head_count", 'i', 3, NULL}, QN_E_FORMAT, "3 heads"},
        {{"llama.attention.head_count_kv", 'i', 3, NULL},
         QN_E_FORMAT,
         "shared by 3"},
        {{"llama.attention.head_count_kv", 'a', 1, "1"},
         QN_E_UNSUPPORTED,
         "different numbers"},
        {{"llama.attention.layer_norm_rms_epsilon", 0, 0, NULL},
         QN_E_FORMAT,
         "epsilon"},
        {{"llama.attention.value_length", 'i', 8, NULL},
         QN_E_UNSUPPORTED,
         "values of 8"},
        {{"llama.rope.dimension_count", 'i', 7, NULL}, QN_E_FORMAT, "even"},
        {{"llama.rope.scaling.type", 's', 0, "spiral"},
         QN_E_UNSUPPORTED,
         "spiral"},
        {{"llama.rope.scaling.type", 's', 0, "linear"},
         QN_E_FORMAT,
         "at least 1"},
        {{"tokenizer.ggml.tokens", 0, 0, NULL}, QN_E_FORMAT, "found nothing"},
        {{"tokenizer.ggml.tokens", 'a', 0, "1"}, QN_E_FORMAT, "strings"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        qn_config c;
        check_error(parse_changed(&c, &rows[i].change), rows[i].status,
                    rows[i].part);
        assert_non_null(strstr(qn_error_where(), "m.gguf"));
    }
}

static qn_status json_scenario(void)
{
    qn_config c;
    qn_status status =
        parse(&c, NULL, NULL,
              "\"quantization\": {\"bits\": 4, \"x\": {\"bits\": 8}}");
    if (!status)
        qn_config_clear(&c);
    return status;
}

static void test_memory_may_run_out(void **state)
{
    (void)state;
    each_alloc_may_fail(json_scenario);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values_are_read),
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_text_config_wins_but_not_for_the_type),
        cmocka_unit_test(test_layers_of_their_own),
        cmocka_unit_test(test_lengths_after_scaling),
        cmocka_unit_test(test_missing_keys_are_named),
        cmocka_unit_test(test_bad_values_are_refused),
        cmocka_unit_test(test_broken_documents_are_refused),
        cmocka_unit_test(test_gguf_metadata_is_read),
        cmocka_unit_test(test_gguf_bad_metadata_is_refused),
        cmocka_unit_test(test_memory_may_run_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
