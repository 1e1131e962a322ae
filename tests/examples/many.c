/* many.c: MODEL DIR: 16 threads with 50 requests each, over the library alone.
 * DIR/N.out has what `quern run` prints for request N = 0..9: the same bytes
 * must come. */
#include <quern/quern.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 16, REQUESTS = 50, KINDS = 10, LONGEST = 1 << 16 };

static quern_model *model;
static char expected[KINDS][LONGEST];
static size_t sizes[KINDS];

/* As the script of the test asks for it. */
static const char *ask(quern_session *session, int kind)
{
    char prompt[64];
    quern_error error;
    quern_request request;
    quern_result result;
    snprintf(prompt, sizeof prompt, "abcabc%dabc", kind);
    quern_request_init(&request, model);
    request.prompt = prompt;
    request.max_tokens = 10 + kind;
    request.sampling.temperature = kind % 3 ? 0.8 : 0;
    request.sampling.has_seed = true;
    request.sampling.seed = (uint64_t)kind;
    const char *failed = NULL;
    if (quern_generate(session, &request, NULL, NULL, &result, &error))
        failed = "an error";
    else if (result.size != sizes[kind] ||
             memcmp(result.text, expected[kind], result.size) != 0)
        failed = "other bytes";
    quern_result_free(&result);
    return failed;
}

static void *run(void *data)
{
    int first = (int)(size_t)data;
    quern_session *session;
    quern_error error;
    if (quern_session_new(&session, model, &error))
        return "no session";
    const char *failed = NULL;
    for (int i = 0; i < REQUESTS && !failed; i++)
        failed = ask(session, (first + 7 * i) % KINDS);
    quern_session_free(session);
    return (void *)(size_t)failed;
}

int main(int argc, char **argv)
{
    pthread_t threads[THREADS];
    quern_error error;
    int code = 0;
    if (argc != 3 || quern_model_load(&model, argv[1], NULL, &error))
        return 2;
    for (int i = 0; i < KINDS; i++) {
        char path[4096];
        snprintf(path, sizeof path, "%s/%d.out", argv[2], i);
        FILE *file = fopen(path, "rb");
        if (!file)
            return 2;
        sizes[i] = fread(expected[i], 1, LONGEST, file);
        fclose(file);
    }
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, run, (void *)(size_t)i))
            return 2;
    for (int i = 0; i < THREADS; i++) {
        void *failed = NULL;
        pthread_join(threads[i], &failed);
        if (failed) {
            fprintf(stderr, "thread %d: %s\n", i, (const char *)failed);
            code = 1;
        }
    }
    quern_model_free(model);
    return code;
}
