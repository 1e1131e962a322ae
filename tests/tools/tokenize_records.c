/* tokenize_records.c: a tokenizer behind a pipe, for compare_tokenizers.py.
 *
 *   tokenize_records FILE    FILE: a tokenizer.json or a .gguf
 *   tokenize_records --rules the names and expressions of all splitters,
 *                            tab-separated lines
 *   tokenize_records --rule NAME   records "s SIZE\n" and SIZE bytes -> the
 *                            sizes of the pieces
 *
 * Reads records from stdin and answers each with one line:
 *   "e FLAGS SIZE\n" and SIZE bytes   -> ids, or "! " and the error
 *   "d SKIP COUNT ID...\n"            -> the text in hexadecimal, then 1 if a
 *                                        stream gives the same, else 0 */
#include "base/alloc.h"
#include "base/file.h"
#include "text/detok.h"
#include "text/pretok.h"
#include "text/unicode.h"

#include <stdio.h>
#include <stdlib.h>

static qn_status load(qn_tokenizer **out, const char *path)
{
    qn_file *file = NULL;
    qn_gguf *gguf = NULL;
    size_t size = strlen(path);
    qn_status status = qn_file_map(&file, path);
    if (status)
        return status;
    if (size < 5 || strcmp(path + size - 5, ".gguf") != 0) {
        status =
            qn_tokenizer_from_json(out, qn_file_bytes(file), (qn_bytes){0});
    } else {
        status = qn_gguf_parse(&gguf, qn_file_bytes(file));
        if (!status)
            status = qn_tokenizer_from_gguf(out, gguf);
        qn_gguf_free(gguf);
    }
    qn_file_unref(file);
    return status;
}

static bool encode(const qn_tokenizer *t)
{
    unsigned flags;
    size_t size;
    if (scanf("%u %zu", &flags, &size) != 2 || getchar() != '\n')
        return false;
    char *text = malloc(size ? size : 1);
    if (!text || fread(text, 1, size, stdin) != size)
        return false;
    qn_ids ids = {0};
    if (qn_tokenizer_encode(t, &ids, (qn_str){text, size}, flags, NULL))
        printf("! %s", qn_error_text());
    for (size_t i = 0; i < ids.size; i++)
        printf("%s%d", i ? " " : "", (int)ids.data[i]);
    putchar('\n');
    qn_ids_free(&ids);
    free(text);
    return true;
}

static bool decode(const qn_tokenizer *t)
{
    int skip, id;
    size_t count;
    if (scanf("%d %zu", &skip, &count) != 2)
        return false;
    qn_ids ids = {0};
    for (size_t i = 0; i < count; i++) {
        if (scanf("%d", &id) != 1 || qn_ids_add(&ids, id))
            return false;
    }
    qn_buf whole = QN_BUF_INIT, joined = QN_BUF_INIT;
    qn_detok *detok = NULL;
    qn_status status = qn_tokenizer_decode(t, &whole, ids.data, count, skip);
    if (!status)
        status = qn_detok_new(&detok, t, skip);
    for (size_t i = 0; !status && i < count; i++)
        status = qn_detok_add(detok, &joined, ids.data[i]);
    if (!status)
        status = qn_detok_finish(detok, &joined);
    if (status)
        printf("! %s", qn_error_text());
    for (size_t i = 0; !status && i < whole.size; i++)
        printf("%02x", (unsigned)(uint8_t)whole.data[i]);
    printf(" %d\n", qn_str_eq(qn_buf_str(&whole), qn_buf_str(&joined)));
    qn_detok_free(detok);
    qn_buf_free(&whole);
    qn_buf_free(&joined);
    qn_ids_free(&ids);
    return true;
}

static int list_rules(void)
{
    size_t count;
    const qn_split_rule *rules = qn_split_rules(&count);
    for (size_t i = 0; i < count; i++) {
        printf("%s", rules[i].name);
        for (int n = 0; n < QN_SPLIT_PATTERNS && rules[i].patterns[n]; n++)
            printf("\t%s", rules[i].patterns[n]);
        putchar('\n');
    }
    return 0;
}

static bool split(const qn_pretok *pretok)
{
    size_t size;
    if (scanf("%zu", &size) != 1 || getchar() != '\n')
        return false;
    char *text = malloc(size ? size : 1);
    qn_words words = {0};
    if (!text || fread(text, 1, size, stdin) != size)
        return false;
    if (qn_pretok_run(pretok, &words, (qn_str){text, size}, true))
        printf("! %s", qn_error_text());
    for (size_t i = 0; i < words.list.size; i++)
        printf("%s%zu", i ? " " : "",
               words.list.data[i].end - words.list.data[i].begin);
    putchar('\n');
    qn_words_free(&words);
    free(text);
    return true;
}

static int run_rule(const char *name)
{
    qn_pretok *pretok = NULL;
    const qn_split_rule *rule = qn_split_rule_named(qn_str_of(name));
    char kind;
    qn_uc_init();
    bool ok = rule && !qn_pretok_from_rule(&pretok, rule);
    if (!ok)
        fprintf(stderr, "%s: %s\n", name, qn_error_text());
    while (ok && scanf(" %c", &kind) == 1)
        ok = kind == 's' && split(pretok);
    qn_pretok_free(pretok);
    return ok ? 0 : 1;
}

int main(int argc, char **argv)
{
    qn_tokenizer *t = NULL;
    if (argc == 2 && !strcmp(argv[1], "--rules"))
        return list_rules();
    if (argc == 3 && !strcmp(argv[1], "--rule"))
        return run_rule(argv[2]);
    if (argc != 2) {
        fprintf(stderr,
                "usage: tokenize_records FILE | --rules | --rule NAME\n");
        return 2;
    }
    if (load(&t, argv[1])) {
        fprintf(stderr, "%s: %s: %s\n", argv[1], qn_error_where(),
                qn_error_text());
        return 1;
    }
    char kind;
    bool ok = true;
    while (ok && scanf(" %c", &kind) == 1)
        ok = kind == 'e' ? encode(t) : decode(t);
    qn_tokenizer_free(t);
    if (!ok)
        fprintf(stderr, "tokenize_records: broken record\n");
    return ok ? 0 : 1;
}
