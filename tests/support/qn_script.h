/* qn_script.h: models that answer with a script (README of the shared cases),
 * for tests of what becomes of tokens. */
#ifndef QN_TEST_SCRIPT_H
#define QN_TEST_SCRIPT_H

#include "support/qn_test.h"

#include "base/file.h"

#include <quern/quern.h>

static quern_error error;

#define check_quern(call)                                                      \
    do {                                                                       \
        quern_status status_ = call;                                           \
        if (status_)                                                           \
            print_error("%s: %s\n", error.where, error.message);               \
        assert_int_equal(status_, QUERN_OK);                                   \
    } while (0)

/* The scripted model with further added tokens, from id 332 on, and a script:
 * ids as JSON, and further keys. */
static inline quern_model *load_script_with(const char *const *tokens,
                                            const char *ids, const char *more,
                                            const quern_options *options)
{
    const char *fixture = "cases/fixtures/models/scripted";
    static const char *const names[] = {"model.safetensors", "tokenizer.json",
                                        "tokenizer_config.json"};
    char *dir = temp_dir_new();
    qn_buf added = QN_BUF_INIT, config = QN_BUF_INIT;
    int count = 0;
    qn_buf_add_text(&added, "\"added_tokens\": [");
    for (; tokens && tokens[count]; count++)
        qn_buf_printf(&added,
                      "{\"id\": %d, \"content\": \"%s\", \"single_word\": "
                      "false, \"lstrip\": false, \"rstrip\": false, "
                      "\"normalized\": false, \"special\": %s},",
                      332 + count, tokens[count],
                      tokens[count][1] == '|' ? "true" : "false");
    for (size_t i = 0; i < 3; i++) {
        char *name = qn_path_join(fixture, names[i]);
        size_t size;
        char *text = vector_read(name, &size);
        char *at = i == 1 ? strstr(text, "\"added_tokens\": [") : NULL;
        qn_buf out = QN_BUF_INIT;
        assert_true(i != 1 || at);
        if (at) {
            qn_buf_add(&out, text, (size_t)(at - text));
            qn_buf_add_str(&out, qn_buf_str(&added));
            at += strlen("\"added_tokens\": [");
            qn_buf_add(&out, at, size - (size_t)(at - text));
        } else {
            qn_buf_add(&out, text, size);
        }
        temp_write(dir, names[i], out.data, out.size);
        qn_buf_free(&out);
        qn_free(text);
        qn_free(name);
    }
    qn_buf_printf(&config,
                  "{\"model_type\": \"scripted\", \"vocab_size\": %d, "
                  "\"max_position_embeddings\": 4096, \"eos_token_id\": 324, "
                  "\"script_ids\": %s%s}",
                  332 + count, ids, more);
    temp_write_text(dir, "config.json", config.data);
    quern_model *m = NULL;
    check_quern(quern_model_load(&m, dir, options, &error));
    qn_buf_free(&config);
    qn_buf_free(&added);
    temp_dir_remove(dir);
    return m;
}

static inline quern_model *load_script(const char *const *tokens,
                                       const char *ids, const char *more)
{
    return load_script_with(tokens, ids, more, NULL);
}

#endif
