/* Vectors of texts: of a tiny BERT with a tokenizer of a few words, and of the
 * tiny model of the fixtures, which is no embedder. */
#include "support/recipe.h"

#include <quern/quern.h>

static const char tokenizer[] =
    "{\"version\":\"1.0\",\"added_tokens\":["
    "{\"id\":0,\"content\":\"[PAD]\",\"special\":true},"
    "{\"id\":1,\"content\":\"[UNK]\",\"special\":true},"
    "{\"id\":2,\"content\":\"[CLS]\",\"special\":true},"
    "{\"id\":3,\"content\":\"[SEP]\",\"special\":true}],"
    "\"normalizer\":{\"type\":\"BertNormalizer\",\"clean_text\":true,"
    "\"handle_chinese_chars\":true,\"strip_accents\":null,"
    "\"lowercase\":true},"
    "\"pre_tokenizer\":{\"type\":\"BertPreTokenizer\"},"
    "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":["
    "{\"SpecialToken\":{\"id\":\"[CLS]\",\"type_id\":0}},"
    "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}},"
    "{\"SpecialToken\":{\"id\":\"[SEP]\",\"type_id\":0}}],\"pair\":[],"
    "\"special_tokens\":{\"[CLS]\":{\"id\":\"[CLS]\",\"ids\":[2],"
    "\"tokens\":[\"[CLS]\"]},\"[SEP]\":{\"id\":\"[SEP]\",\"ids\":[3],"
    "\"tokens\":[\"[SEP]\"]}}},"
    "\"decoder\":{\"type\":\"WordPiece\",\"prefix\":\"##\",\"cleanup\":true},"
    "\"model\":{\"type\":\"WordPiece\",\"unk_token\":\"[UNK]\","
    "\"continuing_subword_prefix\":\"##\",\"max_input_chars_per_word\":100,"
    "\"vocab\":{\"[PAD]\":0,\"[UNK]\":1,\"[CLS]\":2,\"[SEP]\":3,\"red\":4,"
    "\"blue\":5,\"house\":6,\"##s\":7,\"a\":8,\"b\":9}}}";

static const char mean[] =
    "{\"word_embedding_dimension\":64,\"pooling_mode_cls_token\":false,"
    "\"pooling_mode_mean_tokens\":true}";
static const char cls[] = "{\"pooling_mode_cls_token\":true,"
                          "\"pooling_mode_mean_tokens\":false}";
static const char all_modules[] =
    "[{\"idx\":0,\"path\":\"\",\"type\":"
    "\"sentence_transformers.models.Transformer\"},"
    "{\"idx\":1,\"path\":\"1_Pooling\",\"type\":"
    "\"sentence_transformers.models.Pooling\"},"
    "{\"idx\":2,\"path\":\"2_Normalize\",\"type\":"
    "\"sentence_transformers.models.Normalize\"}]";
static const char two_modules[] =
    "[{\"type\":\"sentence_transformers.models.Transformer\"},"
    "{\"type\":\"sentence_transformers.models.Pooling\"}]";

static const char *const texts[] = {
    "red house",
    "Blue houses, a red house!",
    "a",
    "",
    "b b b b b b b b b b b b b b b b b b b b b b b b b b b b b b",
};
enum { TEXTS = sizeof texts / sizeof *texts, WIDTH = 64 };

static quern_model *load(const char *path, int chunk)
{
    quern_options options;
    quern_options_init(&options);
    options.prefill_chunk = chunk;
    quern_model *m = NULL;
    quern_error error;
    if (quern_model_load(&m, path, &options, &error))
        fail_msg("%s: %s", error.where, error.message);
    return m;
}

/* A directory with the model and these files; free with qn_free. */
static char *make(const char *dir, const char *pooling, const char *modules)
{
    char *path = recipe_write("bert", dir);
    temp_write_text(dir, "tokenizer.json", tokenizer);
    if (pooling)
        temp_write_text(dir, "1_Pooling/config.json", pooling);
    if (modules)
        temp_write_text(dir, "modules.json", modules);
    return path;
}

static quern_embeddings embed(quern_model *m, const char *const *list,
                              size_t count, const quern_embed_options *o)
{
    quern_embed_input inputs[16];
    quern_embeddings made;
    quern_error error;
    for (size_t i = 0; i < count; i++)
        inputs[i] =
            (quern_embed_input){.text = list[i], .size = strlen(list[i])};
    if (quern_embed(m, inputs, count, o, &made, &error))
        fail_msg("%s: %s", error.where, error.message);
    assert_int_equal(made.count, count);
    return made;
}

static double length_of(const float *x, size_t dim)
{
    double sum = 0;
    for (size_t i = 0; i < dim; i++)
        sum += (double)x[i] * (double)x[i];
    return sqrt(sum);
}

static void test_a_vector_does_not_depend_on_other_texts(void **state)
{
    (void)state;
    char *dir = temp_dir_new(), *path = make(dir, mean, all_modules);
    quern_model *m = load(path, 0);
    quern_embeddings all = embed(m, texts, TEXTS, NULL);
    assert_int_equal(all.dim, WIDTH);
    assert_int_equal(all.tokens, 4 + 10 + 3 + 2 + 32);
    for (size_t i = 0; i < TEXTS; i++) {
        const float *x = all.data + i * WIDTH;
        quern_embeddings one = embed(m, &texts[i], 1, NULL);
        assert_memory_equal(one.data, x, WIDTH * sizeof *x);
        assert_true(fabs(length_of(x, WIDTH) - 1) < 1e-6);
        quern_embeddings_free(&one);
    }
    quern_model_free(m);
    /* Steps of a few tokens, too. */
    m = load(path, 8);
    quern_embeddings again = embed(m, texts, TEXTS, NULL);
    assert_memory_equal(again.data, all.data, TEXTS * WIDTH * sizeof *all.data);
    quern_embeddings_free(&again);
    quern_embeddings_free(&all);
    quern_model_free(m);
    qn_free(path);
    temp_dir_remove(dir);
}

static void test_files_say_how_vectors_are_made(void **state)
{
    (void)state;
    const struct {
        const char *pooling, *modules, *name;
        bool normalized;
    } rows[] = {
        {mean, all_modules, "mean", true},
        {cls, two_modules, "cls", false},
        {"{\"pooling_mode\":\"lasttoken\"}", NULL, "last", true},
        {NULL, NULL, "mean", true},
    };
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        char *dir = temp_dir_new();
        char *path = make(dir, rows[r].pooling, rows[r].modules);
        quern_model *m = load(path, 0);
        quern_info info;
        quern_model_info(m, &info);
        assert_string_equal(info.pooling, rows[r].name);
        assert_true(info.encoder);
        quern_embeddings all = embed(m, texts, 2, NULL);
        double off = fabs(length_of(all.data, WIDTH) - 1);
        assert_true(rows[r].normalized ? off < 1e-6 : off > 1e-2);
        quern_embeddings_free(&all);
        quern_model_free(m);
        qn_free(path);
        temp_dir_remove(dir);
    }
}

static void test_options_win(void **state)
{
    (void)state;
    char *dir = temp_dir_new(), *path = make(dir, mean, all_modules);
    quern_model *m = load(path, 0);
    quern_embed_options o;
    quern_embed_options_init(&o);
    o.normalize = 0;
    quern_embeddings whole = embed(m, texts, 1, &o);
    o.dim = 10;
    quern_embeddings part = embed(m, texts, 1, &o);
    assert_int_equal(part.dim, 10);
    assert_memory_equal(part.data, whole.data, 10 * sizeof *part.data);
    o.normalize = 1;
    quern_embeddings unit = embed(m, texts, 1, &o);
    assert_true(fabs(length_of(unit.data, 10) - 1) < 1e-6);
    /* Of the three ways, each has its own vector. */
    quern_embeddings ways[3];
    for (int p = 0; p < 3; p++) {
        quern_embed_options_init(&o);
        o.pooling = (quern_pooling)(QUERN_POOLING_MEAN + p);
        ways[p] = embed(m, texts, 1, &o);
        for (int q = 0; q < p; q++)
            assert_memory_not_equal(ways[p].data, ways[q].data,
                                    WIDTH * sizeof(float));
    }
    for (int p = 0; p < 3; p++)
        quern_embeddings_free(&ways[p]);
    quern_embeddings_free(&whole);
    quern_embeddings_free(&part);
    quern_embeddings_free(&unit);
    quern_model_free(m);
    qn_free(path);
    temp_dir_remove(dir);
}

static void check_refused(quern_model *m, const quern_embed_input *input,
                          const quern_embed_options *o, quern_status status,
                          const char *text)
{
    quern_embeddings made = {.count = 77};
    quern_error error;
    assert_int_equal(quern_embed(m, input, 1, o, &made, &error), status);
    if (!strstr(error.message, text))
        fail_msg("expected %s in %s", text, error.message);
    assert_int_equal(made.count, 77);
}

static bool twice(void *data)
{
    return ++*(int *)data <= 2;
}

/* Between steps the caller may stop; these texts take four. */
static void test_it_stops_when_asked(void **state)
{
    (void)state;
    char *dir = temp_dir_new(), *path = make(dir, mean, all_modules);
    quern_model *m = load(path, 8);
    quern_error error;
    quern_embeddings made = {0};
    quern_embed_options options;
    quern_embed_input inputs[TEXTS];
    int asked = 0;
    for (size_t i = 0; i < TEXTS; i++)
        inputs[i] =
            (quern_embed_input){.text = texts[i], .size = strlen(texts[i])};
    quern_embed_options_init(&options);
    options.go_on = twice;
    options.data = &asked;
    assert_int_equal(quern_embed(m, inputs, TEXTS, &options, &made, &error),
                     QUERN_E_CANCELLED);
    assert_int_equal(asked, 3);
    assert_null(made.data);
    asked = -4;
    made = embed(m, texts, TEXTS, &options);
    assert_int_equal(asked, 0);
    quern_embeddings_free(&made);
    quern_model_free(m);
    qn_free(path);
    temp_dir_remove(dir);
}

static void test_long_texts(void **state)
{
    (void)state;
    char *dir = temp_dir_new(), *path = make(dir, mean, all_modules);
    temp_write_text(dir, "sentence_bert_config.json",
                    "{\"max_seq_length\":12,\"do_lower_case\":false}");
    quern_model *m = load(path, 0);
    quern_embed_input input = {.text = texts[4], .size = strlen(texts[4])};
    quern_embed_options o;
    quern_embed_options_init(&o);
    check_refused(m, &input, &o, QUERN_E_UNSUPPORTED,
                  "32 tokens, but a text may have 12");
    /* Cut, it is the text of so many words. */
    const char *few = "b b b b b b b b b b";
    o.truncate = true;
    quern_embeddings cut = embed(m, &texts[4], 1, &o);
    quern_embeddings same = embed(m, &few, 1, NULL);
    assert_memory_equal(cut.data, same.data, WIDTH * sizeof *cut.data);
    quern_embeddings_free(&cut);
    quern_embeddings_free(&same);
    quern_model_free(m);
    qn_free(path);
    temp_dir_remove(dir);
}

static void test_ids_are_taken_as_they_are(void **state)
{
    (void)state;
    static const int32_t ids[] = {2, 4, 6, 3}, bad[] = {2, 300};
    char *dir = temp_dir_new(), *path = make(dir, mean, all_modules);
    quern_model *m = load(path, 0);
    quern_embed_input input = {.ids = ids, .id_count = 4};
    quern_embeddings made, text = embed(m, texts, 1, NULL);
    assert_int_equal(quern_embed(m, &input, 1, NULL, &made, NULL), QUERN_OK);
    assert_memory_equal(made.data, text.data, WIDTH * sizeof *made.data);
    input = (quern_embed_input){.ids = bad, .id_count = 2};
    check_refused(m, &input, NULL, QUERN_E_ARG, "expected 0..299, found 300");
    input = (quern_embed_input){.ids = bad};
    check_refused(m, &input, NULL, QUERN_E_ARG, "without tokens");
    input = (quern_embed_input){.text = "\xff", .size = 1};
    check_refused(m, &input, NULL, QUERN_E_ARG, "UTF-8");
    quern_embeddings_free(&made);
    quern_embeddings_free(&text);
    quern_model_free(m);
    qn_free(path);
    temp_dir_remove(dir);
}

static void test_what_is_not_understood_is_refused(void **state)
{
    (void)state;
    const struct {
        const char *pooling, *modules, *text;
    } rows[] = {
        {"{\"pooling_mode_max_tokens\":true}", NULL, "found another one"},
        {"{\"pooling_mode_cls_token\":true,\"pooling_mode_mean_tokens\":true}",
         NULL, "found several"},
        {"{\"pooling_mode\":\"attention\"}", NULL, "found another one"},
        {mean,
         "[{\"type\":\"sentence_transformers.models.Transformer\"},"
         "{\"type\":\"sentence_transformers.models.Dense\"}]",
         "models.Dense"},
        {mean, "[{", "modules.json"},
    };
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        char *dir = temp_dir_new();
        char *path = make(dir, rows[r].pooling, rows[r].modules);
        quern_model *m = NULL;
        quern_error error;
        assert_int_not_equal(quern_model_load(&m, path, NULL, &error),
                             QUERN_OK);
        if (!strstr(error.message, rows[r].text) &&
            !strstr(error.where, rows[r].text))
            fail_msg("row %zu: %s: %s", r, error.where, error.message);
        assert_null(m);
        qn_free(path);
        temp_dir_remove(dir);
    }
}

static void test_an_encoder_makes_no_text(void **state)
{
    (void)state;
    char *dir = temp_dir_new(), *path = make(dir, mean, all_modules);
    quern_model *m = load(path, 0);
    quern_session *session = NULL;
    quern_error error;
    assert_int_equal(quern_session_new(&session, m, &error),
                     QUERN_E_UNSUPPORTED);
    assert_non_null(strstr(error.message, "bert makes vectors of texts"));
    quern_model_free(m);
    qn_free(path);
    temp_dir_remove(dir);
}

static void test_a_model_for_text_needs_a_pooling(void **state)
{
    (void)state;
    char *path = qn_path_join(QN_TEST_VECTORS, "cases/fixtures/models/tiny");
    quern_model *m = load(path, 0);
    quern_info info;
    quern_model_info(m, &info);
    assert_null(info.pooling);
    assert_false(info.encoder);
    quern_embed_input input = {.text = "Hello", .size = 5};
    check_refused(m, &input, NULL, QUERN_E_UNSUPPORTED, "name a pooling");
    quern_embed_options o;
    quern_embed_options_init(&o);
    o.dim = info.hidden + 1;
    o.pooling = QUERN_POOLING_LAST;
    check_refused(m, &input, &o, QUERN_E_ARG, "dim: expected 1..32");
    o.dim = 0;
    quern_embeddings all = embed(m, texts, TEXTS, &o);
    for (size_t i = 0; i < TEXTS; i++) {
        quern_embeddings one = embed(m, &texts[i], 1, &o);
        assert_memory_equal(one.data, all.data + i * all.dim,
                            all.dim * sizeof *one.data);
        quern_embeddings_free(&one);
    }
    quern_embeddings_free(&all);
    quern_model_free(m);
    qn_free(path);
}

/* Qwen3-Embedding's file, and one whose prompts are no instructions. */
static const char instructed[] =
    "{\"prompts\":{\"query\":\"Instruct: a red\\nb\",\"document\":\"\"}}";
static const char fixed[] = "{\"prompts\":{\"query\":\"query: \",\"x\":1}}";

static void test_an_instruction_has_the_models_form(void **state)
{
    (void)state;
    char *dir = temp_dir_new(), *path = make(dir, mean, all_modules);
    temp_write_text(dir, "config_sentence_transformers.json", instructed);
    quern_model *m = load(path, 0);
    quern_embed_options o;
    quern_embed_options_init(&o);
    static const char *const whole[] = {"Instruct: blue\nbhouse"};
    static const char *const query[] = {"house"};
    quern_embeddings expected = embed(m, whole, 1, &o);
    o.instruction = "blue";
    quern_embeddings found = embed(m, query, 1, &o);
    assert_int_equal(found.tokens, expected.tokens);
    assert_memory_equal(found.data, expected.data, WIDTH * sizeof(float));
    quern_embeddings_free(&found);
    quern_embeddings_free(&expected);
    const int32_t ids[] = {2, 4, 3};
    const quern_embed_input of_ids = {.ids = ids, .id_count = 3};
    assert_int_equal(quern_embed(m, &of_ids, 1, &o, &found, NULL), QUERN_E_ARG);
    quern_model_free(m);
    temp_write_text(dir, "config_sentence_transformers.json", fixed);
    m = load(path, 0);
    const quern_embed_input text = {.text = "a", .size = 1};
    assert_int_equal(quern_embed(m, &text, 1, &o, &found, NULL),
                     QUERN_E_UNSUPPORTED);
    quern_model_free(m);
    qn_free(path);
    temp_dir_remove(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_instruction_has_the_models_form),
        cmocka_unit_test(test_a_vector_does_not_depend_on_other_texts),
        cmocka_unit_test(test_files_say_how_vectors_are_made),
        cmocka_unit_test(test_options_win),
        cmocka_unit_test(test_it_stops_when_asked),
        cmocka_unit_test(test_long_texts),
        cmocka_unit_test(test_ids_are_taken_as_they_are),
        cmocka_unit_test(test_what_is_not_understood_is_refused),
        cmocka_unit_test(test_an_encoder_makes_no_text),
        cmocka_unit_test(test_a_model_for_text_needs_a_pooling),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
