/* show.c: `quern show`: what a model is, from its headers alone. */
#include "cli.h"
#include "licence.h"

#include <stdio.h>
#include <string.h>

typedef struct view {
    const qn_cli *cli;
    quern_model *model;
    quern_info info;
    qn_licence licence;
    /* Why the chat template can't be used; OK when it can, or is absent. */
    quern_error template_error;
} view;

static bool asked(const view *v, qn_flag flag)
{
    return v->cli->args.flag[flag].on;
}

/* ---- what the model can do ---- */

static bool is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           (c >= '0' && c <= '9') || c == '_';
}

/* Whether `name` stands in the template as a whole word. */
static bool mentions(const view *v, const char *name)
{
    const char *source = v->info.chat_template;
    size_t length = strlen(name);
    for (const char *p = source; p && (p = strstr(p, name)); p += length)
        if ((p == source || !is_word(p[-1])) && !is_word(p[length]))
            return true;
    return false;
}

static bool can_complete(const view *v)
{
    (void)v;
    return true;
}

static bool can_chat(const view *v)
{
    return v->info.has_chat_template && !v->template_error.status;
}

static bool has_tools(const view *v)
{
    return can_chat(v) && v->info.tool_format && mentions(v, "tools");
}

static bool can_think(const view *v)
{
    return can_chat(v) &&
           (mentions(v, "enable_thinking") || mentions(v, "reasoning_content"));
}

static const struct {
    const char *name;
    bool (*has)(const view *v);
} capabilities[] = {
    {"completion", can_complete},
    {"chat", can_chat},
    {"tools", has_tools},
    {"thinking", can_think},
};

enum { CAPABILITIES = sizeof capabilities / sizeof *capabilities };

/* A template that does not parse is only seen when it is used.  What it says
 * of a conversation is its own business, and no fault. */
static void try_template(view *v)
{
    char *text = NULL;
    quern_chat chat;
    quern_chat_init(&chat);
    chat.messages = "[{\"role\":\"user\",\"content\":\"\"}]";
    quern_status status =
        quern_render(v->model, &chat, &text, NULL, &v->template_error);
    if (status == QUERN_E_ARG || !v->info.chat_template)
        v->template_error.status = QUERN_OK;
    quern_free(text);
}

/* ---- text ---- */

/* The text of a token; the caller frees it with quern_free.  NULL for none. */
static char *token_text(const view *v, int32_t id)
{
    char *text = NULL;
    if (id >= 0)
        quern_detokenize(v->model, &id, 1, false, &text, NULL, NULL);
    return text;
}

static void add_special(const view *v, qn_buf *out, const char *name,
                        int32_t id)
{
    char *text = token_text(v, id);
    if (id >= 0)
        qn_buf_printf(out, "  %-13s%d  %s\n", name, id, text ? text : "");
    quern_free(text);
}

static void add_parameters(const view *v, qn_buf *out)
{
    double count = (double)v->info.parameters;
    const char *unit = count >= 1e9 ? " G" : count >= 1e6 ? " M" : " k";
    count /= count >= 1e9 ? 1e9 : count >= 1e6 ? 1e6 : 1e3;
    qn_buf_printf(out, "parameters     %.1f%s in %zu tensors, %.1f MiB\n",
                  count, unit, v->info.tensors,
                  (double)v->info.weight_bytes / (1 << 20));
}

static void add_licence(const view *v, qn_buf *out)
{
    const qn_licence *l = &v->licence;
    if (!l->name.size && !l->file.size)
        return;
    qn_buf_add_text(out, "licence        ");
    qn_buf_add_str(out, qn_buf_str(&l->name));
    if (l->file.size)
        qn_buf_printf(out, "%sfile %s", l->name.size ? ", " : "", l->file.data);
    qn_buf_add_char(out, '\n');
}

static void print_summary(const view *v, qn_buf *out)
{
    const quern_info *i = &v->info;
    qn_buf_printf(out, "%s\n", i->path);
    if (*i->name)
        qn_buf_printf(out, "name           %s\n", i->name);
    qn_buf_printf(out, "format         %s\n", i->format);
    qn_buf_printf(out, "architecture   %s\n", i->family);
    qn_buf_printf(out, "quantization   %s, %.2f bits per weight\n",
                  i->quantization, i->bits_per_weight);
    add_parameters(v, out);
    qn_buf_printf(out, "layers         %d x %d wide, feed-forward %d\n",
                  i->layers, i->hidden, i->intermediate);
    qn_buf_printf(out, "attention      %d heads of %d, %d for keys and values",
                  i->heads, i->head_dim, i->kv_heads);
    if (i->sliding_window)
        qn_buf_printf(out, ", window %d", i->sliding_window);
    qn_buf_printf(out,
                  "\ncontext        %lld tokens, %.1f KiB each in an %s "
                  "cache\n",
                  (long long)i->max_ctx, (double)i->kv_bytes_per_token / 1024,
                  i->kv);
    qn_buf_printf(out, "vocabulary     %d logits, %s embeddings\n",
                  i->vocab_size, i->tied_embeddings ? "tied" : "untied");
    qn_buf_printf(out, "chat template  %s\n",
                  !i->chat_template ? "none"
                  : can_chat(v)     ? "yes"
                                    : "not usable");
    if (v->template_error.status)
        qn_buf_printf(out, "               %s%s%s\n", v->template_error.where,
                      *v->template_error.where ? ": " : "",
                      v->template_error.message);
    qn_buf_add_text(out, "capabilities  ");
    for (int k = 0; k < CAPABILITIES; k++)
        if (capabilities[k].has(v))
            qn_buf_printf(out, " %s", capabilities[k].name);
    qn_buf_add_char(out, '\n');
    add_licence(v, out);
}

static void print_tokenizer(const view *v, qn_buf *out)
{
    const quern_info *i = &v->info;
    size_t count;
    const int32_t *ends = quern_end_ids(v->model, &count);
    qn_buf_printf(out, "tokenizer      %s, %d tokens\n", i->tokenizer,
                  i->token_count);
    add_special(v, out, "begin", i->bos_id);
    add_special(v, out, "unknown", i->unk_id);
    add_special(v, out, "padding", i->pad_id);
    for (size_t k = 0; k < count; k++)
        add_special(v, out, "end", ends[k]);
}

static void print_tensors(const view *v, qn_buf *out)
{
    for (size_t t = 0; t < v->info.tensors; t++) {
        quern_tensor tensor;
        if (!quern_model_tensor(v->model, t, &tensor))
            break;
        char shape[128];
        int n = 0;
        for (int d = 0; d < tensor.ndim; d++)
            n += snprintf(shape + n, sizeof shape - (size_t)n, "%s%lld",
                          d ? " x " : "", (long long)tensor.shape[d]);
        qn_buf_printf(out, "%-8s %-20s %12llu  %s\n", tensor.type,
                      n ? shape : "scalar", (unsigned long long)tensor.bytes,
                      tensor.name);
    }
}

/* ---- JSON ---- */

static void write_id(const view *v, qn_json_writer *w, const char *key,
                     int32_t id)
{
    qn_json_write_key(w, key);
    if (id < 0) {
        qn_json_write_null(w);
        return;
    }
    qn_json_write_object(w);
    qn_json_pair_int(w, "id", id);
    char *text = token_text(v, id);
    qn_json_pair_text(w, "text", text);
    quern_free(text);
    qn_json_write_object_end(w);
}

static void write_tokenizer(const view *v, qn_json_writer *w)
{
    const quern_info *i = &v->info;
    size_t count;
    const int32_t *ends = quern_end_ids(v->model, &count);
    qn_json_write_key(w, "tokenizer");
    qn_json_write_object(w);
    qn_json_pair_text(w, "kind", i->tokenizer);
    qn_json_pair_int(w, "tokens", i->token_count);
    write_id(v, w, "bos", i->bos_id);
    write_id(v, w, "unk", i->unk_id);
    write_id(v, w, "pad", i->pad_id);
    qn_json_write_key(w, "end_ids");
    qn_json_write_array(w);
    for (size_t k = 0; k < count; k++)
        qn_json_write_int(w, ends[k]);
    qn_json_write_array_end(w);
    qn_json_write_object_end(w);
}

static void write_tensors(const view *v, qn_json_writer *w)
{
    qn_json_write_key(w, "tensors");
    qn_json_write_array(w);
    for (size_t t = 0; t < v->info.tensors; t++) {
        quern_tensor tensor;
        if (!quern_model_tensor(v->model, t, &tensor))
            break;
        qn_json_write_object(w);
        qn_json_pair_text(w, "name", tensor.name);
        qn_json_pair_text(w, "type", tensor.type);
        qn_json_write_key(w, "shape");
        qn_json_write_array(w);
        for (int d = 0; d < tensor.ndim; d++)
            qn_json_write_int(w, tensor.shape[d]);
        qn_json_write_array_end(w);
        qn_json_write_key(w, "bytes");
        qn_json_write_uint(w, tensor.bytes);
        qn_json_write_object_end(w);
    }
    qn_json_write_array_end(w);
}

static int print_json(const view *v)
{
    const quern_info *i = &v->info;
    qn_buf line = QN_BUF_INIT;
    qn_json_writer w;
    qn_json_write_begin(&w, &line);
    qn_json_write_object(&w);
    qn_json_pair_text(&w, "schema", "quern.show/1");
    qn_json_pair_text(&w, "path", i->path);
    qn_json_pair_text(&w, "name", i->name);
    qn_json_pair_text(&w, "format", i->format);
    qn_json_pair_text(&w, "architecture", i->family);
    qn_json_pair_text(&w, "quantization", i->quantization);
    qn_json_write_key(&w, "bits_per_weight");
    qn_json_write_double(&w, i->bits_per_weight);
    qn_json_write_key(&w, "parameters");
    qn_json_write_uint(&w, i->parameters);
    qn_json_write_key(&w, "weight_bytes");
    qn_json_write_uint(&w, i->weight_bytes);
    qn_json_pair_int(&w, "tensor_count", (int64_t)i->tensors);
    qn_json_pair_int(&w, "layers", i->layers);
    qn_json_pair_int(&w, "hidden_size", i->hidden);
    qn_json_pair_int(&w, "intermediate_size", i->intermediate);
    qn_json_pair_int(&w, "heads", i->heads);
    qn_json_pair_int(&w, "kv_heads", i->kv_heads);
    qn_json_pair_int(&w, "head_dim", i->head_dim);
    qn_json_pair_int(&w, "sliding_window", i->sliding_window);
    qn_json_pair_int(&w, "context", i->max_ctx);
    qn_json_pair_int(&w, "kv_bytes_per_token", (int64_t)i->kv_bytes_per_token);
    qn_json_pair_int(&w, "vocab_size", i->vocab_size);
    qn_json_write_key(&w, "tied_embeddings");
    qn_json_write_bool(&w, i->tied_embeddings);
    qn_json_write_key(&w, "has_chat_template");
    qn_json_write_bool(&w, i->has_chat_template);
    qn_json_pair_text(&w, "chat_template_error",
                      v->template_error.status ? v->template_error.message
                                               : NULL);
    qn_json_write_key(&w, "capabilities");
    qn_json_write_array(&w);
    for (int k = 0; k < CAPABILITIES; k++)
        if (capabilities[k].has(v))
            qn_json_write_text(&w, capabilities[k].name);
    qn_json_write_array_end(&w);
    qn_json_pair_text(&w, "licence",
                      v->licence.name.size ? v->licence.name.data : NULL);
    qn_json_pair_text(&w, "licence_file",
                      v->licence.file.size ? v->licence.file.data : NULL);
    write_tokenizer(v, &w);
    if (asked(v, QN_FLAG_TEMPLATE))
        qn_json_pair_text(&w, "chat_template", i->chat_template);
    if (asked(v, QN_FLAG_TENSORS))
        write_tensors(v, &w);
    qn_json_write_object_end(&w);
    return qn_out_json(v->cli, &line);
}

/* ---- the command ---- */

static int print_parts(const view *v)
{
    qn_buf out = QN_BUF_INIT;
    bool parts = asked(v, QN_FLAG_TEMPLATE) || asked(v, QN_FLAG_TENSORS) ||
                 asked(v, QN_FLAG_TOKENIZER);
    if (!parts)
        print_summary(v, &out);
    if (!parts || asked(v, QN_FLAG_TOKENIZER))
        print_tokenizer(v, &out);
    if (asked(v, QN_FLAG_TENSORS))
        print_tensors(v, &out);
    if (asked(v, QN_FLAG_TEMPLATE) && v->info.chat_template)
        qn_buf_printf(&out, "%s\n", v->info.chat_template);
    return qn_out_buffer(v->cli, &out);
}

int qn_cli_show(qn_cli *cli)
{
    view v = {.cli = cli};
    cli->headers_only = true;
    int code = qn_cli_load(cli, cli->args.words[0], &v.model);
    if (code)
        return code;
    quern_model_info(v.model, &v.info);
    qn_licence_find(&v.licence, v.info.path, !strcmp(v.info.format, "gguf"));
    try_template(&v);
    if (asked(&v, QN_FLAG_TEMPLATE) && !v.info.chat_template)
        code = qn_cli_fail(cli, QUERN_E_UNSUPPORTED, v.info.path,
                           "the model has no chat template", NULL);
    else
        code = cli->json ? print_json(&v) : print_parts(&v);
    qn_licence_free(&v.licence);
    quern_model_free(v.model);
    return code;
}
