/* logits.c: the logits of a text in one compute mode, for accuracy.py.
 *
 *   quern-bench-logits MODEL DTYPE KV WINDOW <ids >logits
 *   quern-bench-logits MODEL ids <text >ids
 *
 * Standard input is int32 token ids.  They are cut into windows, each a
 * sequence of its own; for every id the float32 logits after it are written.
 * Exit codes: 0; 1 with a message. */
#include <quern/quern.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int fail(const char *what, const char *why)
{
    fprintf(stderr, "quern-bench-logits: %s: %s\n", what, why);
    return 1;
}

static quern_dtype dtype_of(const char *name)
{
    static const char *const names[] = {"auto", "f32", "f16", "bf16"};
    static const quern_dtype values[] = {QUERN_DTYPE_AUTO, QUERN_DTYPE_F32,
                                         QUERN_DTYPE_F16, QUERN_DTYPE_BF16};
    for (size_t i = 0; i < 4; i++)
        if (!strcmp(name, names[i]))
            return values[i];
    fail(name, "expected auto, f32, f16 or bf16");
    exit(1);
}

static bool write_logits(void *vocab, size_t index, const float *logits)
{
    (void)index;
    return fwrite(logits, sizeof *logits, *(size_t *)vocab, stdout) ==
           *(size_t *)vocab;
}

/* One window.  Many tokens at a time: each has the logits that it has alone. */
static int run_window(quern_session *session, const int32_t *ids, size_t count,
                      size_t vocab)
{
    quern_error error;
    quern_session_reset(session);
    return quern_session_score(session, ids, count, write_logits, &vocab,
                               &error)
               ? fail("window", error.message)
               : 0;
}

/* The ids of the text at standard input. */
static int tokenize(const char *path)
{
    static char text[1 << 20];
    size_t size = fread(text, 1, sizeof text, stdin), count;
    quern_options options;
    quern_error error;
    quern_model *model;
    int32_t *ids;
    quern_options_init(&options);
    options.headers_only = true;
    if (quern_model_load(&model, path, &options, &error) ||
        quern_tokenize(model, text, size, 0, &ids, &count, &error))
        return fail(path, error.message);
    int code = fwrite(ids, sizeof *ids, count, stdout) == count
                   ? 0
                   : fail("standard output", "cannot write");
    quern_free(ids);
    quern_model_free(model);
    return code;
}

int main(int argc, char **argv)
{
    if (argc == 3 && !strcmp(argv[2], "ids"))
        return tokenize(argv[1]);
    if (argc != 5)
        return fail("usage", "MODEL DTYPE KV WINDOW, or MODEL ids");
    size_t window = strtoul(argv[4], NULL, 10);
    int32_t *ids = malloc(window * sizeof *ids);
    quern_options options;
    quern_error error;
    quern_model *model = NULL;
    quern_session *session = NULL;
    quern_info info;
    if (!window || !ids)
        return fail(argv[4], "expected the length of a window");
    quern_options_init(&options);
    options.dtype = dtype_of(argv[2]);
    options.kv = argv[3];
    if (quern_model_load(&model, argv[1], &options, &error) ||
        quern_session_new(&session, model, &error))
        return fail(argv[1], error.message);
    quern_model_info(model, &info);
    size_t vocab = (size_t)info.vocab_size, count;
    int code = 0;
    while (!code && (count = fread(ids, sizeof *ids, window, stdin)))
        code = run_window(session, ids, count, vocab);
    if (!code && fflush(stdout))
        code = fail("standard output", "cannot write");
    quern_session_free(session);
    quern_model_free(model);
    free(ids);
    return code;
}
