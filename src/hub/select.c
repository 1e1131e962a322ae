/* select.c: which files of a repository a load needs. */
#include "select.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const char *last_part(const char *name)
{
    const char *slash = strrchr(name, '/');
    return slash ? slash + 1 : name;
}

/* ---- globs ---- */

/* A set behind '[': *end is behind its ']'.  A set without an end is none. */
static bool in_set(const char *set, char c, const char **end)
{
    bool not = *set == '!' || *set == '^', found = false;
    const char *p = set + not ;
    do {
        if (!*p)
            return false;
        unsigned char low = (unsigned char)*p++, high = low;
        if (*p == '-' && p[1] && p[1] != ']') {
            high = (unsigned char)p[1];
            p += 2;
        }
        found = found || ((unsigned char)c >= low && (unsigned char)c <= high);
    } while (*p != ']');
    *end = p + 1;
    return found != not ;
}

/* On a mismatch the last star takes one character more. */
static bool match(const char *pattern, const char *name)
{
    const char *star = NULL, *from = NULL;
    while (*name) {
        const char *after = pattern + 1;
        if (*pattern == '*') {
            star = pattern++;
            from = name;
        } else if (*pattern == '?' || *pattern == *name ||
                   (*pattern == '[' && in_set(pattern + 1, *name, &after))) {
            pattern = after;
            name++;
        } else if (star) {
            pattern = star + 1;
            name = ++from;
        } else {
            return false;
        }
    }
    while (*pattern == '*')
        pattern++;
    return !*pattern;
}

bool qn_hub_glob(const char *pattern, const char *name)
{
    return match(pattern, strchr(pattern, '/') ? name : last_part(name));
}

static bool matches_any(const char *const *patterns, size_t count,
                        const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (qn_hub_glob(patterns[i], name))
            return true;
    return false;
}

/* ---- GGUF files ---- */

/* Length of the name without ".gguf" and "-00001-of-00003". */
static size_t stem(const char *name, int *part, int *parts)
{
    size_t size = strlen(name);
    *part = *parts = 1;
    if (!qn_has_suffix(name, ".gguf"))
        return size;
    size -= 5;
    const size_t tail = sizeof "-00001-of-00003" - 1;
    if (size <= tail)
        return size;
    const char *p = name + size - tail;
    if (p[0] != '-' || memcmp(p + 6, "-of-", 4) != 0)
        return size;
    for (int i = 1; i < 6; i++)
        if (!isdigit((unsigned char)p[i]) || !isdigit((unsigned char)p[9 + i]))
            return size;
    *part = atoi(p + 1);
    *parts = atoi(p + 10);
    return size - tail;
}

bool qn_gguf_part(const char *name, int *part, int *parts)
{
    if (!qn_has_suffix(name, ".gguf"))
        return false;
    stem(name, part, parts);
    return true;
}

static bool is_quant(const char *text)
{
    static const char *const floats[] = {"F16",  "F32",  "BF16",
                                         "FP16", "FP32", "MXFP4"};
    for (size_t i = 0; i < sizeof floats / sizeof *floats; i++) {
        size_t size = strlen(floats[i]);
        if (!strncmp(text, floats[i], size) &&
            (!text[size] || text[size] == '_'))
            return true;
    }
    if (*text == 'I' || *text == 'T')
        text++;
    return text[0] == 'Q' && isdigit((unsigned char)text[1]);
}

const char *qn_gguf_quant(char out[QN_QUANT_SIZE], const char *name)
{
    int part, parts;
    size_t end = stem(name, &part, &parts);
    while (end) {
        size_t begin = end;
        while (begin && !strchr("-./ ", name[begin - 1]))
            begin--;
        if (end > begin && end - begin < QN_QUANT_SIZE) {
            for (size_t i = begin; i < end; i++)
                out[i - begin] = (char)toupper((unsigned char)name[i]);
            out[end - begin] = '\0';
            if (is_quant(out))
                return out;
        }
        end = begin ? begin - 1 : 0;
    }
    *out = '\0';
    return out;
}

bool qn_gguf_is_model(const char *name)
{
    int part, parts;
    const char *last = last_part(name);
    return qn_gguf_part(name, &part, &parts) && part == 1 &&
           strncasecmp(last, "mmproj", 6) != 0 && !strcasestr(last, "imatrix");
}

bool qn_gguf_same(const qn_hub_file *file, const qn_hub_file *first)
{
    int part, parts, first_part, first_parts;
    size_t size = stem(first->name, &first_part, &first_parts);
    return qn_has_suffix(file->name, ".gguf") &&
           stem(file->name, &part, &parts) == size && parts == first_parts &&
           !memcmp(file->name, first->name, size);
}

/* How well the selector fits: 0 not at all; its name, its quantization, a part
 * of its name. */
static int fit_of(const char *name, const char *selector)
{
    char quant[QN_QUANT_SIZE];
    if (!strcasecmp(name, selector) || !strcasecmp(last_part(name), selector))
        return 3;
    if (!strcasecmp(qn_gguf_quant(quant, name), selector))
        return 2;
    return strcasestr(name, selector) ? 1 : 0;
}

/* Marks the models that fit best; their number. */
static size_t find_models(bool *marks, const qn_listing *listing,
                          const char *selector)
{
    int best = 1;
    size_t count = 0;
    for (size_t i = 0; i < listing->count; i++) {
        const char *name = listing->files[i].name;
        marks[i] = false;
        if (!qn_gguf_is_model(name))
            continue;
        int fit = selector ? fit_of(name, selector) : 1;
        if (fit < best)
            continue;
        if (fit > best) {
            memset(marks, 0, i * sizeof *marks);
            count = 0;
        }
        best = fit;
        marks[i] = true;
        count++;
    }
    return count;
}

qn_status qn_pick_gguf(const qn_hub_file **out, qn_buf *names,
                       const qn_listing *listing, const char *selector)
{
    qn_arena arena = {0};
    bool *marks = qn_arena_alloc(&arena, listing->count + 1);
    if (!marks)
        return QN_E_NOMEM;
    size_t count = find_models(marks, listing, selector);
    for (size_t i = 0; i < listing->count; i++) {
        if (!marks[i])
            continue;
        *out = &listing->files[i];
        qn_buf_printf(names, "%s%s", names->size ? ", " : "",
                      listing->files[i].name);
    }
    qn_arena_free(&arena);
    qn_status status = qn_buf_status(names);
    if (!status && count > 1)
        status = qn_fail(QN_E_ARG, "several files would do: %s", names->data);
    if (!status && !count)
        status = qn_fail(QN_E_NOTFOUND, "no GGUF file%s%s",
                         selector ? " for " : "", selector ? selector : "");
    return status;
}

/* ---- repositories ---- */

/* Formats that run code when they are read, and code; never fetched. */
static bool is_refused(const char *name)
{
    static const char *const suffixes[] = {
        ".bin",   ".pt",   ".pth",   ".ckpt", ".pkl", ".pickle", ".py",
        ".ipynb", ".sh",   ".so",    ".dll",  ".exe", ".h5",     ".npz",
        ".ot",    ".onnx", ".dylib", ".bat",  ".js",  ".jar",    ".msgpack"};
    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++)
        if (qn_has_suffix(name, suffixes[i]))
            return true;
    return false;
}

bool qn_hub_is_weights(const char *name)
{
    return qn_has_suffix(name, ".safetensors") || qn_has_suffix(name, ".gguf");
}

static bool is_licence(const char *name)
{
    return !strncasecmp(name, "licen", 5) || !strncasecmp(name, "notice", 6);
}

static bool is_config(const char *name)
{
    static const char *const names[] = {
        "config.json",
        "generation_config.json",
        "kv_config.json",
        "quantize_config.json",
        "quant_config.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "special_tokens_map.json",
        "added_tokens.json",
        "chat_template.json",
        "chat_template.jinja",
        "model.safetensors.index.json",
        "modules.json",
        "sentence_bert_config.json",
        "config_sentence_transformers.json",
        "adapter_config.json",
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(name, names[i]))
            return true;
    return false;
}

/* Older forms of a tokenizer, which say what is missing where there is no
 * tokenizer.json. */
static bool is_old_tokenizer(const char *name)
{
    static const char *const names[] = {"tokenizer.model", "spiece.model",
                                        "vocab.json", "merges.txt",
                                        "vocab.txt"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(name, names[i]))
            return true;
    return false;
}

/* "1_Pooling/config.json", "2_Dense/model.safetensors": the steps of an
 * embedder, which modules.json lists. */
static bool is_module(const char *name)
{
    const char *p = name;
    while (isdigit((unsigned char)*p))
        p++;
    if (p == name || *p != '_')
        return false;
    return qn_has_suffix(p, "/config.json") ||
           qn_has_suffix(p, "/model.safetensors");
}

static bool is_top(const char *name)
{
    return !strchr(name, '/');
}

static bool is_model_file(const char *name)
{
    return is_top(name) && !strncmp(name, "model", 5) &&
           qn_has_suffix(name, ".safetensors");
}

/* Some repositories have the weights twice, once as the authors' own tools
 * write them. */
static bool is_weights_file(const char *name)
{
    return is_top(name) && qn_has_suffix(name, ".safetensors") &&
           strncmp(name, "consolidated", 12) != 0;
}

static bool any(const qn_listing *listing, bool (*test)(const char *name))
{
    for (size_t i = 0; i < listing->count; i++)
        if (test(listing->files[i].name))
            return true;
    return false;
}

static void select_safetensors(bool *chosen, const qn_listing *listing)
{
    bool (*weights)(const char *) =
        any(listing, is_model_file) ? is_model_file : is_weights_file;
    bool modern = qn_listing_find(listing, QN_STR("tokenizer.json")) != NULL;
    bool modules = qn_listing_find(listing, QN_STR("modules.json")) != NULL;
    for (size_t i = 0; i < listing->count; i++) {
        const char *name = listing->files[i].name;
        bool template = !strncmp(name, "additional_chat_templates/", 26) &&
                        qn_has_suffix(name, ".jinja");
        chosen[i] = weights(name) || template || (modules && is_module(name)) ||
                    (is_top(name) && (is_config(name) || is_licence(name) ||
                                      (!modern && is_old_tokenizer(name))));
    }
}

static qn_status select_gguf(bool *chosen, bool *candidates,
                             const qn_listing *listing, const char *selector)
{
    const qn_hub_file *file = NULL;
    qn_buf names = QN_BUF_INIT;
    find_models(candidates, listing, selector);
    qn_status status = qn_pick_gguf(&file, &names, listing, selector);
    qn_buf_free(&names);
    if (status)
        return status;
    for (size_t i = 0; i < listing->count; i++) {
        const char *name = listing->files[i].name;
        chosen[i] = qn_gguf_same(&listing->files[i], file) ||
                    (is_top(name) && is_licence(name));
    }
    memset(candidates, 0, listing->count);
    return QN_OK;
}

static qn_status select_included(bool *chosen, const qn_listing *listing,
                                 const qn_selection *s)
{
    for (size_t k = 0; k < s->include_count; k++) {
        bool found = false;
        for (size_t i = 0; i < listing->count; i++) {
            const char *name = listing->files[i].name;
            if (is_refused(name) || !qn_hub_glob(s->include[k], name))
                continue;
            chosen[i] = found = true;
        }
        if (!found)
            return qn_fail(QN_E_NOTFOUND,
                           "no file for --include %s that quern fetches",
                           s->include[k]);
    }
    return QN_OK;
}

static qn_status no_weights(const qn_listing *listing)
{
    for (size_t i = 0; i < listing->count; i++)
        if (qn_has_suffix(listing->files[i].name, ".bin") ||
            qn_has_suffix(listing->files[i].name, ".pt") ||
            qn_has_suffix(listing->files[i].name, ".pth"))
            return qn_fail(QN_E_UNSUPPORTED,
                           "expected .safetensors or .gguf files, found only "
                           "weights that run code when they are read (%s)",
                           listing->files[i].name);
    return qn_fail(QN_E_UNSUPPORTED,
                   "expected .safetensors or .gguf files, found none among %zu",
                   listing->count);
}

qn_status qn_select(bool *chosen, bool *candidates, const qn_listing *listing,
                    const qn_selection *s)
{
    qn_status status = QN_OK;
    memset(chosen, 0, listing->count);
    memset(candidates, 0, listing->count);
    bool weights = any(listing, is_weights_file);
    bool gguf = any(listing, qn_gguf_is_model);
    if (s->include_count)
        status = select_included(chosen, listing, s);
    else if (s->selector || (gguf && !weights))
        status = select_gguf(chosen, candidates, listing, s->selector);
    else if (weights)
        select_safetensors(chosen, listing);
    else
        status = no_weights(listing);
    size_t count = 0;
    for (size_t i = 0; i < listing->count; i++) {
        if (matches_any(s->exclude, s->exclude_count, listing->files[i].name))
            chosen[i] = false;
        count += chosen[i];
    }
    if (!status && !count)
        status = qn_fail(QN_E_NOTFOUND, "--exclude leaves no file");
    return status;
}
