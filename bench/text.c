/* text.c: how fast a tokenizer loads and encodes, one thread.
 *
 *   quern-bench-text TOKENIZER.json TEXT    best of some runs, one line each
 *
 * bench/text.py runs it beside the Python package `tokenizers`. */
#include "base/alloc.h"
#include "base/file.h"
#include "text/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LOADS = 7, ENCODINGS = 5, WORD = 1 << 20 };

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void fail(const char *what)
{
    fprintf(stderr, "quern-bench-text: %s: %s: %s\n", what, qn_error_where(),
            qn_error_text());
    exit(1);
}

static qn_tokenizer *load(qn_bytes json)
{
    qn_tokenizer *t = NULL;
    double best = 1e9;
    for (int i = 0; i < LOADS; i++) {
        qn_tokenizer_free(t);
        t = NULL;
        double start = now();
        if (qn_tokenizer_from_json(&t, json, (qn_bytes){0}))
            fail("load");
        double took = now() - start;
        if (took < best)
            best = took;
    }
    printf("load_s %.6f\n", best);
    return t;
}

static double encode(const qn_tokenizer *t, qn_str text, int times,
                     size_t *count)
{
    double best = 1e9;
    for (int i = 0; i < times; i++) {
        qn_ids ids = {0};
        double start = now();
        if (qn_tokenizer_encode(t, &ids, text, QN_ENCODE_PARSE_SPECIAL, NULL))
            fail("encode");
        double took = now() - start;
        if (took < best)
            best = took;
        *count = ids.size;
        qn_ids_free(&ids);
    }
    return best;
}

int main(int argc, char **argv)
{
    qn_file *json = NULL;
    char *text = NULL, *word = malloc(WORD);
    size_t size = 0, count = 0;
    if (argc != 3 || !word) {
        fprintf(stderr, "usage: quern-bench-text TOKENIZER.json TEXT\n");
        return 2;
    }
    if (qn_file_map(&json, argv[1]) ||
        qn_file_read(&text, &size, argv[2], 256 << 20))
        fail("open");
    qn_tokenizer *t = load(qn_file_bytes(json));
    double took = encode(t, (qn_str){text, size}, ENCODINGS, &count);
    printf("encode_s %.6f\nids %zu\n", took, count);
    /* One word: letters without a pattern that repeats soon. */
    uint32_t seed = 1;
    for (size_t i = 0; i < WORD; i++) {
        seed = seed * 1664525 + 1013904223;
        word[i] = (char)('a' + (seed >> 24) % 26);
    }
    took = encode(t, (qn_str){word, WORD}, 1, &count);
    printf("word_s %.6f\nword_ids %zu\n", took, count);
    qn_tokenizer_free(t);
    qn_file_unref(json);
    qn_free(text);
    free(word);
    return 0;
}
