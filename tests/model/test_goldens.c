/* Each model of tests/vectors/models (tools/goldens) against what the authors'
 * implementation computes, and against itself: the bits of a row do not depend
 * on what is computed beside it.
 *
 *   test_goldens [NAME...]   only those that begin so
 */
#include "support/recipe.h"

#include "base/safetensors.h"
#include "kv/engine.h"
#include "kv/file.h"
#include "model/family.h"
#include "model/model.h"

#include <dirent.h>

enum { PROMPT = 70, STEPS = 30, TRIM = 33 };

/* Against the reference at float32; with products by 8-bit integers it is the
 * activations' 15 bits that count, as a part of the largest logit. */
static const double BOUND = 2e-3, BOUND_INT8 = 2e-2;

/* ---- what is known ---- */

typedef struct golden {
    char *data;
    qn_st *st;
    const int32_t *ids, *positions, *greedy; /* no greedy: an embedder's */
    const float *logits;                     /* of an embedder: vectors */
    int position_count, vocab, budget;
} golden;

static const void *part(const golden *g, const char *name, int64_t *shape)
{
    const qn_st_tensor *t = qn_st_find(g->st, qn_str_of(name));
    assert_non_null(t);
    for (int i = 0; shape && i < t->ndim; i++)
        shape[i] = t->shape[i];
    return t->data.data;
}

static golden golden_open(const char *name)
{
    golden g = {0};
    char path[256];
    size_t size;
    int64_t shape[8];
    snprintf(path, sizeof path, "models/%s/golden.safetensors", name);
    g.data = vector_read(path, &size);
    check_status(qn_st_parse(&g.st, (qn_bytes){(const uint8_t *)g.data, size}),
                 QN_OK);
    g.ids = part(&g, "ids", shape);
    assert_int_equal(shape[0], PROMPT);
    g.positions = part(&g, "positions", NULL);
    bool vectors = qn_st_find(g.st, QN_STR("hidden")) != NULL;
    if (!vectors) {
        g.greedy = part(&g, "greedy", shape);
        assert_int_equal(shape[0], STEPS);
        g.budget = *(const int32_t *)part(&g, "budget", NULL);
    }
    g.logits = part(&g, vectors ? "hidden" : "logits", shape);
    g.position_count = (int)shape[0];
    g.vocab = (int)shape[1];
    return g;
}

static void golden_close(golden *g)
{
    qn_st_free(g->st);
    qn_free(g->data);
}

/* ---- what is computed ---- */

typedef struct loaded {
    qn_model *model;
    mlx_stream stream;
    int vocab, budget;
    qn_kv_layer *layers;
} loaded;

static qn_status read_config(qn_config *out, const qn_weights *weights,
                             const char *path)
{
    if (qn_weights_gguf(weights))
        return qn_config_from_gguf(out, qn_weights_gguf(weights), path);
    char *name = qn_path_join(path, "config.json"), *text;
    size_t size;
    check_status(qn_file_read(&text, &size, name, 1 << 20), QN_OK);
    qn_status status = qn_config_from_json(out, (qn_str){text, size}, name);
    qn_free(text);
    qn_free(name);
    return status;
}

/* How a model is loaded. */
typedef struct way {
    bool int8, as_mlx_lm;
    const char *dense_as; /* of a GGUF file */
} way;

static loaded load(const char *path, const golden *g, way how)
{
    loaded m = {.vocab = g->vocab, .budget = g->budget};
    qn_weights *weights;
    qn_config config = {0};
    check_status(qn_engine_start(), QN_OK);
    check_status(qn_weights_open(&weights, path), QN_OK);
    check_status(read_config(&config, weights, path), QN_OK);
    if (how.as_mlx_lm)
        qn_model_as_mlx_lm(&config);
    config.dense_as = how.dense_as;
    if (g->greedy)
        assert_int_equal(config.vocab_size, g->vocab);
    m.stream = mlx_default_cpu_stream_new();
    qn_model_options options = {
        .dtype = MLX_FLOAT32, .int8 = how.int8, .stream = m.stream};
    check_status(qn_model_load(&m.model, weights, &config, &options), QN_OK);
    qn_weights_free(weights);
    const qn_config *c = qn_model_config(m.model);
    m.layers = qn_calloc((size_t)c->layers, sizeof *m.layers);
    assert_non_null(m.layers);
    for (int i = 0; i < c->layers; i++) {
        qn_family_cache(c, i, &m.layers[i]);
        m.layers[i].scheme.dtype = MLX_FLOAT32;
    }
    return m;
}

static void unload(loaded *m)
{
    qn_model_free(m->model);
    mlx_stream_free(m->stream);
    qn_free(m->layers);
}

static qn_kv_cache *new_cache(const loaded *m)
{
    const qn_config *c = qn_model_config(m->model);
    qn_kv_cache *cache;
    qn_kv_shape shape = {.layers = c->layers,
                         .layer = m->layers,
                         .floats = MLX_FLOAT32,
                         .step = 16,
                         .limit = 256};
    check_status(qn_kv_cache_new(&cache, &shape), QN_OK);
    qn_kv_cache_set_budget(cache, m->budget);
    return cache;
}

/* Computes rows of several sequences at once and copies their logits. */
static void compute(const loaded *m, const qn_kv_rows *rows, size_t count,
                    const int32_t *ids, float *out)
{
    mlx_array logits = {NULL};
    check_status(qn_model_forward(m->model, &logits, ids, rows, count, false),
                 QN_OK);
    check_status(qn_engine(mlx_array_eval(logits)), QN_OK);
    size_t size = mlx_array_nbytes(logits);
    assert_int_equal(size, (size_t)qn_kv_rows_total(rows, count) *
                               (size_t)m->vocab * sizeof *out);
    memcpy(out, mlx_array_data_float32(logits), size);
    mlx_array_free(logits);
}

/* The next `count` tokens of one sequence, in pieces. */
static void feed(const loaded *m, qn_kv_cache *cache, const int32_t *ids,
                 int count, int piece, float *out)
{
    for (int at = 0; at < count; at += piece) {
        int n = count - at < piece ? count - at : piece;
        compute(m, &(qn_kv_rows){.cache = cache, .count = n}, 1, ids + at,
                out + (size_t)at * (size_t)m->vocab);
    }
}

/* ---- what has to hold ---- */

static double worst_of(const golden *g, const float *found, int *where)
{
    double worst = 0;
    *where = -1;
    for (int p = 0; p < g->position_count; p++)
        for (int i = 0; i < g->vocab; i++) {
            float a = g->logits[p * g->vocab + i];
            float b =
                found[(size_t)g->positions[p] * (size_t)g->vocab + (size_t)i];
            double off = fabs((double)a - b);
            if (!(off <= worst)) {
                worst = off;
                *where = g->positions[p];
            }
        }
    return worst;
}

static void check_logits(const golden *g, const float *found, double bound)
{
    int where;
    double worst = worst_of(g, found, &where);
    if (!(worst <= bound))
        fail_msg("at position %d the logits are off by %g, allowed %g", where,
                 worst, bound);
}

static int best_of(const float *logits, int vocab)
{
    int best = 0;
    for (int i = 1; i < vocab; i++)
        best = logits[i] > logits[best] ? i : best;
    return best;
}

static void check_greedy(const loaded *m, const golden *g, qn_kv_cache *cache,
                         const float *last)
{
    float *logits = malloc((size_t)g->vocab * sizeof *logits);
    assert_non_null(logits);
    memcpy(logits, last, (size_t)g->vocab * sizeof *logits);
    for (int i = 0; i < STEPS; i++) {
        int32_t id = best_of(logits, g->vocab);
        if (id != g->greedy[i])
            fail_msg("greedy step %d: expected %d, found %d", i, g->greedy[i],
                     id);
        feed(m, cache, &id, 1, 1, logits);
    }
    free(logits);
}

/* The rows of `whole` again, each time in another way. */
static void check_pieces(const loaded *m, const golden *g, const float *whole)
{
    static const int pieces[] = {1, 7, 64};
    size_t size = PROMPT * (size_t)g->vocab;
    float *parts = malloc(size * sizeof *parts);
    assert_non_null(parts);
    for (int i = 0; i < 3; i++) {
        qn_kv_cache *cache = new_cache(m);
        feed(m, cache, g->ids, PROMPT, pieces[i], parts);
        if (memcmp(parts, whole, size * sizeof *parts) != 0)
            fail_msg("pieces of %d give other bits", pieces[i]);
        qn_kv_cache_free(cache);
    }
    free(parts);
}

static void check_trim(const loaded *m, const golden *g, const float *whole)
{
    size_t size = PROMPT * (size_t)g->vocab;
    float *parts = malloc(size * sizeof *parts);
    assert_non_null(parts);
    qn_kv_cache *cache = new_cache(m), *before = NULL;
    feed(m, cache, g->ids, TRIM, TRIM, parts);
    check_status(qn_kv_cache_clone(&before, cache), QN_OK);
    feed(m, cache, g->ids + TRIM, PROMPT - TRIM, PROMPT, parts);
    /* Where a state can't go back, a clone has to. */
    bool trimmed = qn_kv_cache_trim(cache, TRIM);
    for (int i = 0; i < qn_model_config(m->model)->layers && !trimmed; i++)
        trimmed = m->layers[i].recurrence.channels > 0;
    assert_true(trimmed);
    if (qn_kv_cache_length(cache) != TRIM) {
        qn_kv_cache_free(cache);
        cache = before;
        before = NULL;
    }
    qn_kv_cache_free(before);
    memset(parts, 0, size * sizeof *parts);
    feed(m, cache, g->ids + TRIM, PROMPT - TRIM, 20, parts);
    if (memcmp(parts, whole + (size_t)TRIM * (size_t)g->vocab,
               (size_t)(PROMPT - TRIM) * (size_t)g->vocab * sizeof *parts))
        fail_msg("after a trim the bits are others");
    qn_kv_cache_free(cache);
    free(parts);
}

/* Saved, and gone on with from the file. */
static void check_disk(const loaded *m, const golden *g, const float *whole)
{
    size_t row = (size_t)g->vocab;
    float *parts = malloc(PROMPT * row * sizeof *parts);
    assert_non_null(parts);
    char *dir = temp_dir_new(), *path = qn_path_join(dir, "kv.safetensors");
    qn_kv_cache *one = new_cache(m), *other = new_cache(m);
    int32_t *ids = NULL;
    feed(m, one, g->ids, TRIM, TRIM, parts);
    check_status(qn_kv_cache_save(one, path, g->ids, NULL, 0, m->stream),
                 QN_OK);
    check_status(qn_kv_cache_load(other, path, &ids, NULL, 0, m->stream),
                 QN_OK);
    assert_memory_equal(ids, g->ids, TRIM * sizeof *ids);
    feed(m, other, g->ids + TRIM, PROMPT - TRIM, 20, parts);
    if (memcmp(parts, whole + TRIM * row,
               (PROMPT - TRIM) * row * sizeof *parts))
        fail_msg("from disk the bits are others");
    qn_kv_cache_free(one);
    qn_kv_cache_free(other);
    qn_free(ids);
    qn_free(path);
    temp_dir_remove(dir);
    free(parts);
}

/* The sequence between two others, which are at other places of theirs. */
static void check_batch(const loaded *m, const golden *g, const float *whole)
{
    enum { FIRST = 9, LAST = 30, SPLIT = 41 };
    size_t row = (size_t)g->vocab;
    float *out = malloc((FIRST + PROMPT + LAST) * row * sizeof *out);
    assert_non_null(out);
    int32_t ids[FIRST + PROMPT + LAST];
    qn_kv_cache *a = new_cache(m), *b = new_cache(m), *c = new_cache(m);
    /* Rotary positions may depend on what a sequence is to become. */
    qn_kv_cache_set_budget(a, 90);
    qn_kv_cache_set_budget(c, 61);
    feed(m, a, g->ids + 3, 17, 17, out);
    for (int at = 0; at < PROMPT; at += SPLIT) {
        int n = at ? PROMPT - SPLIT : SPLIT;
        int32_t *to = ids;
        for (int i = 0; i < FIRST; i++)
            *to++ = g->ids[PROMPT - 1 - i - at / 2];
        memcpy(to, g->ids + at, (size_t)n * sizeof *to);
        to += n;
        for (int i = 0; i < LAST; i++)
            *to++ = g->ids[(7 * i + at) % PROMPT];
        qn_kv_rows rows[] = {{.cache = a, .count = FIRST},
                             {.cache = b, .count = n},
                             {.cache = c, .count = LAST}};
        compute(m, rows, 3, ids, out);
        if (memcmp(out + FIRST * row, whole + (size_t)at * row,
                   (size_t)n * row * sizeof *out) != 0)
            fail_msg("beside other sequences the bits are others");
    }
    qn_kv_cache_free(a);
    qn_kv_cache_free(b);
    qn_kv_cache_free(c);
    free(out);
}

static double largest(const golden *g)
{
    double most = 0;
    for (int i = 0; i < g->position_count * g->vocab; i++)
        most = fabs(g->logits[i]) > most ? fabs(g->logits[i]) : most;
    return most;
}

static void check_way(const char *path, const golden *g, way how)
{
    loaded m = load(path, g, how);
    float *whole = malloc(PROMPT * (size_t)g->vocab * sizeof *whole);
    assert_non_null(whole);
    qn_kv_cache *cache = new_cache(&m);
    feed(&m, cache, g->ids, PROMPT, PROMPT, whole);
    check_logits(g, whole, how.int8 ? BOUND_INT8 * largest(g) : BOUND);
    if (!how.int8)
        check_greedy(&m, g, cache, whole + (PROMPT - 1) * (size_t)g->vocab);
    qn_kv_cache_free(cache);
    check_pieces(&m, g, whole);
    check_trim(&m, g, whole);
    check_disk(&m, g, whole);
    check_batch(&m, g, whole);
    free(whole);
    unload(&m);
}

/* What the profile is for: without it the numbers are others. */
static void check_profile(const char *path, const golden *g)
{
    int where;
    loaded m = load(path, g, (way){.int8 = false});
    float *whole = malloc(PROMPT * (size_t)g->vocab * sizeof *whole);
    assert_non_null(whole);
    qn_kv_cache *cache = new_cache(&m);
    feed(&m, cache, g->ids, PROMPT, PROMPT, whole);
    assert_true(worst_of(g, whole, &where) > BOUND);
    qn_kv_cache_free(cache);
    free(whole);
    unload(&m);
}

/* Blocks that are loaded as floats: the same values, so what the packed ones
 * give at float32; rounded to halves it is near. */
static void check_dense(const char *path, const golden *g)
{
    check_way(path, g, (way){.dense_as = "f32"});
    static const char *const halves[] = {"f16", "bf16"};
    for (int i = 0; i < 2; i++) {
        int where;
        loaded m = load(path, g, (way){.dense_as = halves[i]});
        float *whole = malloc(PROMPT * (size_t)g->vocab * sizeof *whole);
        assert_non_null(whole);
        qn_kv_cache *cache = new_cache(&m);
        feed(&m, cache, g->ids, PROMPT, PROMPT, whole);
        assert_true(worst_of(g, whole, &where) < (i ? 0.8 : 0.1) * largest(g));
        qn_kv_cache_free(cache);
        free(whole);
        unload(&m);
    }
}

/* ---- embedders: vectors of tokens instead of logits ---- */

/* Tokens of two sequences, alone where `second` is 0, at `out`. */
static void compute_vectors(const loaded *m, const int32_t *ids, int first,
                            int second, float *out)
{
    qn_kv_rows rows[2] = {{.count = first}, {.count = second}};
    size_t count = second ? 2 : 1;
    bool caches = !qn_model_is_encoder(m->model);
    for (size_t i = 0; i < count && caches; i++)
        rows[i].cache = new_cache(m);
    mlx_array hidden = {NULL};
    check_status(qn_model_hidden(m->model, &hidden, ids, rows, count), QN_OK);
    check_status(qn_engine(mlx_array_eval(hidden)), QN_OK);
    assert_int_equal(mlx_array_dim(hidden, 1), first + second);
    memcpy(out, mlx_array_data_float32(hidden), mlx_array_nbytes(hidden));
    mlx_array_free(hidden);
    for (size_t i = 0; i < count && caches; i++)
        qn_kv_cache_free(rows[i].cache);
}

static void check_vectors_way(const char *path, const golden *g, bool int8)
{
    enum { OTHER = 23 };
    loaded m = load(path, g, (way){.int8 = int8});
    size_t width = (size_t)qn_model_config(m.model)->hidden;
    float *alone = malloc((PROMPT + OTHER) * width * sizeof *alone);
    float *both = malloc((PROMPT + OTHER) * width * sizeof *both);
    int32_t ids[OTHER + PROMPT];
    assert_non_null(alone);
    assert_non_null(both);
    memcpy(ids, g->ids + 5, OTHER * sizeof *ids);
    memcpy(ids + OTHER, g->ids, PROMPT * sizeof *ids);
    compute_vectors(&m, g->ids, PROMPT, 0, alone);
    for (int p = 0; p < g->position_count; p++)
        for (size_t i = 0; i < width; i++) {
            float found = alone[(size_t)g->positions[p] * width + i];
            float expected = g->logits[(size_t)p * width + i];
            assert_true(fabsf(found - expected) <=
                        (int8 ? BOUND_INT8 * largest(g) : BOUND));
        }
    compute_vectors(&m, ids, OTHER, PROMPT, both);
    assert_memory_equal(both + OTHER * width, alone,
                        PROMPT * width * sizeof *both);
    free(alone);
    free(both);
    unload(&m);
}

static void check_model(void **state)
{
    const char *name = *state;
    char *dir = temp_dir_new(), *path = recipe_write(name, dir);
    golden g = golden_open(name);
    bool as_mlx_lm = !strncmp(name, "compat-", 7);
    if (as_mlx_lm)
        check_profile(path, &g);
    for (int int8 = 0; int8 < 2; int8++)
        if (g.greedy)
            check_way(path, &g, (way){.int8 = int8, .as_mlx_lm = as_mlx_lm});
        else
            check_vectors_way(path, &g, int8);
    if (!strncmp(name, "gguf-", 5) && g.greedy)
        check_dense(path, &g);
    golden_close(&g);
    qn_free(path);
    temp_dir_remove(dir);
}

/* ---- the list ---- */

static bool wanted(const char *name, int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (!strncmp(name, argv[i], strlen(argv[i])))
            return true;
    return argc < 2;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct CMUnitTest *)a)->name,
                  ((const struct CMUnitTest *)b)->name);
}

int main(int argc, char **argv)
{
    enum { MOST = 256 };
    static struct CMUnitTest tests[MOST];
    size_t count = 0;
    DIR *dir = opendir(QN_TEST_VECTORS "/models");
    if (!dir)
        return 1;
    for (struct dirent *e; (e = readdir(dir)) && count < MOST;)
        if (e->d_name[0] != '.' && wanted(e->d_name, argc, argv)) {
            char *name = strdup(e->d_name);
            tests[count++] = (struct CMUnitTest){
                .name = name, .test_func = check_model, .initial_state = name};
        }
    closedir(dir);
    qsort(tests, count, sizeof *tests, by_name);
    if (!count)
        return 1;
    int failed = _cmocka_run_group_tests("goldens", tests, count, NULL, NULL);
    for (size_t i = 0; i < count; i++)
        free((char *)(uintptr_t)tests[i].name);
    return failed;
}
