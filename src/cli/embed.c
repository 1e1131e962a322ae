/* embed.c: `quern embed`: the vector of each text. */
#include "cli.h"

#include "base/alloc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- the texts ---- */

typedef struct texts {
    qn_buf data; /* what lines point into */
    quern_embed_input *items;
    size_t count;
} texts;

static void drop_texts(texts *t)
{
    qn_buf_free(&t->data);
    qn_free(t->items);
}

static qn_status take_words(const qn_args *args, texts *t)
{
    t->count = args->word_count - 1;
    t->items = qn_calloc(t->count, sizeof *t->items);
    if (!t->items)
        return QN_E_NOMEM;
    qn_status status = QN_OK;
    for (size_t i = 0; i < t->count && !status; i++) {
        const char *word = args->words[i + 1];
        t->items[i] = (quern_embed_input){.text = word, .size = strlen(word)};
        status = qn_cli_check_text("the text", qn_str_of(word));
    }
    return status;
}

/* The line that begins at `at`, without its end; *next is behind it. */
static qn_str line_at(const qn_buf *text, size_t at, size_t *next)
{
    const char *start = text->data + at;
    const char *end = memchr(start, '\n', text->size - at);
    size_t size = end ? (size_t)(end - start) : text->size - at;
    *next = at + size + (end != NULL);
    if (size && start[size - 1] == '\r')
        size--;
    return (qn_str){start, size};
}

/* Every line is a text; what ends the last one begins no further text. */
static qn_status take_lines(texts *t, const char *where)
{
    qn_status status = qn_cli_check_text(where, qn_buf_str(&t->data));
    size_t lines = 0, next;
    for (size_t at = 0; at < t->data.size && !status; at = next, lines++)
        line_at(&t->data, at, &next);
    if (!status && !lines)
        status = qn_fail(QN_E_ARG, "%s: there is no line", where);
    if (status)
        return status;
    t->items = qn_calloc(lines, sizeof *t->items);
    if (!t->items)
        return QN_E_NOMEM;
    for (size_t at = 0; at < t->data.size; at = next) {
        qn_str line = line_at(&t->data, at, &next);
        t->items[t->count++] =
            (quern_embed_input){.text = line.data, .size = line.size};
    }
    return QN_OK;
}

static qn_status read_texts(const qn_args *args, texts *t)
{
    const qn_arg *file = &args->flag[QN_FLAG_FILE];
    bool words = args->word_count > 1;
    if (file->given && words)
        return qn_fail(QN_E_ARG,
                       "--file %s and the argument '%s' exclude each other",
                       file->text, args->words[1]);
    if (words)
        return take_words(args, t);
    bool dash = file->given && !strcmp(file->text, "-");
    if (!file->given && isatty(STDIN_FILENO))
        return qn_fail(QN_E_ARG, "no text: give it as an argument, with --file "
                                 "or on standard input");
    const char *where = file->given && !dash ? file->text : "standard input";
    qn_status status = file->given && !dash
                           ? qn_cli_read_file(file->text, &t->data)
                           : qn_cli_read_stdin(&t->data);
    return status ? status : take_lines(t, where);
}

/* ---- the vectors ---- */

/* The shortest number that is read back as the same float, or nearly so. */
static double rounded(float value)
{
    char text[32];
    snprintf(text, sizeof text, "%.9g", (double)value);
    return strtod(text, NULL);
}

static void add_vector(qn_json_writer *w, const float *x, size_t dim)
{
    qn_json_write_array(w);
    for (size_t i = 0; i < dim; i++)
        qn_json_write_double(w, rounded(x[i]));
    qn_json_write_array_end(w);
}

static int print_document(const qn_cli *cli, const quern_model *model,
                          const quern_embeddings *e)
{
    quern_info info;
    quern_model_info(model, &info);
    qn_buf out = QN_BUF_INIT;
    qn_json_writer w;
    qn_json_write_begin(&w, &out);
    qn_json_write_object(&w);
    qn_json_write_key(&w, "schema");
    qn_json_write_text(&w, "quern.embed/1");
    qn_json_write_key(&w, "model");
    qn_json_write_text(&w, info.path);
    qn_json_write_key(&w, "dim");
    qn_json_write_uint(&w, e->dim);
    qn_json_write_key(&w, "tokens");
    qn_json_write_int(&w, e->tokens);
    qn_json_write_key(&w, "embeddings");
    qn_json_write_array(&w);
    for (size_t i = 0; i < e->count; i++)
        add_vector(&w, e->data + i * e->dim, e->dim);
    qn_json_write_array_end(&w);
    qn_json_write_object_end(&w);
    return qn_out_json(cli, &out);
}

static int print_lines(const qn_cli *cli, const quern_embeddings *e)
{
    int code = QN_EXIT_OK;
    for (size_t i = 0; i < e->count && !code; i++) {
        qn_buf out = QN_BUF_INIT;
        qn_json_writer w;
        qn_json_write_begin(&w, &out);
        add_vector(&w, e->data + i * e->dim, e->dim);
        code = qn_out_json(cli, &out);
    }
    return code;
}

/* Little-endian, whatever this machine is. */
static int print_floats(const qn_cli *cli, const quern_embeddings *e)
{
    qn_buf out = QN_BUF_INIT;
    for (size_t i = 0; i < e->count * e->dim; i++) {
        uint32_t bits;
        memcpy(&bits, &e->data[i], sizeof bits);
        char bytes[] = {(char)bits, (char)(bits >> 8), (char)(bits >> 16),
                        (char)(bits >> 24)};
        qn_buf_add(&out, bytes, sizeof bytes);
    }
    return qn_out_buffer(cli, &out);
}

quern_pooling qn_cli_pooling(const qn_arg *arg)
{
    for (int p = QUERN_POOLING_MEAN; p <= QUERN_POOLING_LAST; p++)
        if (arg->given &&
            !strcmp(arg->text, quern_pooling_name((quern_pooling)p)))
            return (quern_pooling)p;
    return QUERN_POOLING_MODEL;
}

/* Adds the vectors of some texts to `all`. */
static qn_status append(quern_embeddings *all, const quern_embeddings *some)
{
    size_t had = all->count * some->dim, more = some->count * some->dim;
    float *grown = qn_reallocarray(all->data, had + more, sizeof *grown);
    if (!grown)
        return QN_E_NOMEM;
    memcpy(grown + had, some->data, more * sizeof *grown);
    all->data = grown;
    all->count += some->count;
    all->dim = some->dim;
    all->tokens += some->tokens;
    return QN_OK;
}

/* All vectors, some texts at a time: each is what it is alone, and between them
 * there is time to show how far it has come and to see a signal.  `all` is the
 * caller's to free (data) in any case. */
static int embed(qn_cli *cli, quern_model *model, const texts *t,
                 const quern_embed_options *options, quern_embeddings *all)
{
    enum { AT_A_TIME = 64 };
    qn_progress progress;
    int code = QN_EXIT_OK;
    qn_progress_begin(&progress, cli, "embed", "texts");
    qn_cli_watch_calls(true);
    for (size_t at = 0; at < t->count && !code; at += AT_A_TIME) {
        size_t left = t->count - at;
        size_t count = left < AT_A_TIME ? left : AT_A_TIME;
        quern_embeddings some = {0};
        quern_error error;
        quern_status status =
            quern_embed(model, t->items + at, count, options, &some, &error);
        qn_status added = status ? QN_OK : append(all, &some);
        quern_embeddings_free(&some);
        if (!status && !added && qn_cli_signalled())
            added = qn_fail(QN_E_CANCELLED, "cancelled");
        if (status || added)
            qn_progress_end(&progress);
        if (status)
            code = qn_cli_fail_error(cli, &error);
        else if (added)
            code = qn_cli_fail_status(cli, added, NULL);
        else
            qn_progress_set(&progress, (int64_t)(at + count),
                            (int64_t)t->count);
    }
    qn_cli_watch_calls(false);
    qn_progress_end(&progress);
    return code;
}

static int run(qn_cli *cli, quern_model *model, const texts *t)
{
    const qn_arg *flag = cli->args.flag;
    const qn_arg *format = &flag[QN_FLAG_VECTOR_FORMAT];
    quern_embed_options options;
    quern_embed_options_init(&options);
    options.pooling = qn_cli_pooling(&flag[QN_FLAG_POOLING]);
    options.dim = flag[QN_FLAG_VECTOR_DIM].given
                      ? (int)flag[QN_FLAG_VECTOR_DIM].whole
                      : 0;
    options.truncate = flag[QN_FLAG_TRUNCATE].on;
    if (flag[QN_FLAG_NORMALIZE].given)
        options.normalize = flag[QN_FLAG_NORMALIZE].on;
    quern_embeddings made = {0};
    bool floats = format->given && !strcmp(format->text, "f32");
    int code = embed(cli, model, t, &options, &made);
    if (!code)
        code = cli->json ? print_document(cli, model, &made)
               : floats  ? print_floats(cli, &made)
                         : print_lines(cli, &made);
    qn_free(made.data);
    return code;
}

int qn_cli_embed(qn_cli *cli)
{
    texts t = {.data = QN_BUF_INIT};
    quern_model *model = NULL;
    qn_status status = read_texts(&cli->args, &t);
    int code = status ? qn_cli_fail_status(cli, status, NULL)
                      : qn_cli_load(cli, cli->args.words[0], &model);
    if (!code)
        code = run(cli, model, &t);
    quern_model_free(model);
    drop_texts(&t);
    return code;
}
