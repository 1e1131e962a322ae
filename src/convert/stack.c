/* stack.c: experts that are tensors of their own become one, as MLX's programs
 * have them.
 *
 * PREFIX.experts.0.gate_proj.weight, .1., .2. ... are then the rows of
 * PREFIX.switch_mlp.gate_proj.weight [experts, rows, cols]; Mixtral's w1, w2
 * and w3 become gate_proj, down_proj and up_proj.  The parts stay items, from
 * which rows are read.
 *
 * Who reads Qwen3-Next's files takes stacked experts as the sign of a whole
 * conversion: the filter is then [C, K, 1], norms have the 1 that the authors'
 * files leave out, and there is nothing that guesses further tokens. */
#include "convert.h"

#include "base/alloc.h"
#include "base/map.h"

#include <stdio.h>

enum { MAX_EXPERTS = 4096, NAME = 512 };

struct qn_stack {
    char *name, *written;
    qn_weight whole[3]; /* shapes of main, scales and biases; no data */
    qn_item *parts;
    size_t count;
};

static bool ends_with(qn_str text, const char *suffix)
{
    size_t tail = strlen(suffix);
    return text.size >= tail &&
           !memcmp(text.data + text.size - tail, suffix, tail);
}

/* ---- names ---- */

/* "PREFIX.experts.0.NAME" cut into its parts; false for other names. */
static bool is_first(qn_str *prefix, qn_str *module, qn_str name)
{
    static const char middle[] = ".experts.0.";
    const char *at = memmem(name.data, name.size, middle, sizeof middle - 1);
    if (!at)
        return false;
    *prefix = (qn_str){name.data, (size_t)(at - name.data)};
    const char *rest = at + sizeof middle - 1;
    *module = (qn_str){rest, (size_t)(name.data + name.size - rest)};
    return module->size > 0;
}

/* What MLX's programs call the matrices of an expert; NULL for others. */
static const char *stacked_name(qn_str module)
{
    static const struct {
        const char *single, *stacked;
    } names[] = {
        {"gate_proj", "gate_proj"}, {"up_proj", "up_proj"},
        {"down_proj", "down_proj"}, {"w1", "gate_proj"},
        {"w3", "up_proj"},          {"w2", "down_proj"},
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (qn_str_is(module, names[i].single))
            return names[i].stacked;
    return NULL;
}

static char *join(qn_str prefix, const char *stacked, const char *suffix)
{
    qn_buf name = QN_BUF_INIT;
    qn_buf_add_str(&name, prefix);
    qn_buf_add_text(&name, ".switch_mlp.");
    qn_buf_add_text(&name, stacked);
    qn_buf_add_text(&name, suffix);
    return qn_buf_take(&name);
}

/* ---- one stack ---- */

static bool same_shape(const qn_weight *a, const qn_weight *b)
{
    if (!a || !b)
        return a == b;
    return a->type == b->type && a->ndim == b->ndim &&
           a->shape[0] == b->shape[0] && a->shape[1] == b->shape[1];
}

static bool alike(const qn_item *a, const qn_item *b)
{
    return a->form == b->form && a->cols == b->cols &&
           !memcmp(&a->from, &b->from, sizeof a->from) &&
           same_shape(a->main, b->main) && same_shape(a->scales, b->scales) &&
           same_shape(a->biases, b->biases);
}

/* The matrix of as many experts as have one; *count is how many. */
static qn_status find_parts(size_t *parts, size_t *count, const qn_origin *s,
                            const qn_map *by_module, qn_str prefix,
                            qn_str module)
{
    for (*count = 0; *count < MAX_EXPERTS; ++*count) {
        char name[NAME];
        int size = snprintf(name, sizeof name, "%.*s.experts.%zu.%.*s",
                            (int)prefix.size, prefix.data, *count,
                            (int)module.size, module.data);
        const qn_map_value *found =
            size < NAME ? qn_map_get(by_module, qn_str_of(name)) : NULL;
        if (!found)
            break;
        parts[*count] = found->u64;
        if (!alike(&s->items[parts[0]], &s->items[parts[*count]]))
            return qn_fail(QN_E_MISMATCH,
                           "%s: another form than that of the first expert",
                           name);
    }
    return QN_OK;
}

static qn_weight pile(const qn_weight *part, size_t count, char *name)
{
    qn_weight whole = {.name = name, .type = part->type, .ndim = 3};
    whole.shape[0] = (int64_t)count;
    whole.shape[1] = part->shape[0];
    whole.shape[2] = part->shape[1];
    whole.data.size = part->data.size * count;
    return whole;
}

/* Takes the items over as the parts of `out`. */
static qn_status make_stack(qn_item *out, qn_origin *s, const size_t *parts,
                            size_t count, qn_str prefix, const char *stacked)
{
    const qn_item *first = &s->items[parts[0]];
    qn_stack *stack = qn_calloc(1, sizeof *stack);
    qn_str written = {"", 0}, module;
    if (!stack)
        return QN_E_NOMEM;
    *out = (qn_item){.stack = stack,
                     .form = first->form,
                     .from = first->from,
                     .cols = first->cols,
                     .rows = first->rows * count,
                     .gguf_type = -1};
    if (!is_first(&written, &module, first->written))
        written = prefix;
    stack->name = join(prefix, stacked, ".weight");
    stack->written = join(written, stacked, "");
    out->module = join(prefix, stacked, "");
    stack->parts = qn_calloc(count, sizeof *stack->parts);
    if (!stack->name || !stack->written || !out->module || !stack->parts) {
        qn_stack_free(stack);
        qn_free(out->module);
        return QN_E_NOMEM;
    }
    out->name = stack->name;
    out->written = qn_str_of(stack->written);
    const qn_weight *of[] = {first->main, first->scales, first->biases};
    const qn_weight **to[] = {&out->main, &out->scales, &out->biases};
    for (int i = 0; i < 3; i++)
        if (of[i]) {
            stack->whole[i] = pile(of[i], count, stack->name);
            *to[i] = &stack->whole[i];
        }
    stack->count = count;
    for (size_t i = 0; i < count; i++) {
        stack->parts[i] = s->items[parts[i]];
        s->items[parts[i]] = (qn_item){.name = NULL};
    }
    return QN_OK;
}

/* ---- all of them ---- */

static qn_map *map_modules(const qn_origin *s)
{
    qn_map *map = qn_map_new(s->count);
    for (size_t i = 0; map && i < s->count; i++) {
        qn_map_value *slot =
            s->items[i].module
                ? qn_map_put(map, qn_str_of(s->items[i].module), NULL)
                : NULL;
        if (slot) {
            slot->u64 = i;
        } else if (s->items[i].module) {
            qn_map_free(map, NULL);
            return NULL;
        }
    }
    return map;
}

/* Removes items without a name. */
static void close_gaps(qn_origin *s)
{
    size_t kept = 0;
    for (size_t i = 0; i < s->count; i++)
        if (s->items[i].name)
            s->items[kept++] = s->items[i];
    s->count = kept;
}

static qn_status stack_all(qn_origin *s, const qn_map *by_module, size_t *made)
{
    size_t *parts = qn_calloc(MAX_EXPERTS, sizeof *parts), count;
    qn_status status = parts ? QN_OK : QN_E_NOMEM;
    for (size_t i = 0; i < s->count && !status; i++) {
        qn_str prefix, module;
        qn_item *item = &s->items[i], whole;
        if (!item->module || item->main->ndim != 2 ||
            !is_first(&prefix, &module, qn_str_of(item->module)))
            continue;
        const char *stacked = stacked_name(module);
        if (!stacked)
            continue;
        status = find_parts(parts, &count, s, by_module, prefix, module);
        if (!status)
            status = make_stack(&whole, s, parts, count, prefix, stacked);
        if (!status) {
            s->items[i] = whole;
            ++*made;
        }
    }
    qn_free(parts);
    return status;
}

/* ---- Qwen3-Next ---- */

static bool is_shifted_norm(const qn_item *item)
{
    static const char *const names[] = {
        "input_layernorm", "post_attention_layernorm", "model.norm",
        "self_attn.q_norm", "self_attn.k_norm"};
    for (size_t i = 0; item->module && i < sizeof names / sizeof *names; i++)
        if (ends_with(qn_str_of(item->module), names[i]))
            return item->main->ndim == 1;
    return false;
}

static void clear_item(qn_item *item)
{
    qn_free(item->module);
    *item = (qn_item){.name = NULL};
}

static void finish_next(qn_origin *s)
{
    bool authors = false;
    for (size_t i = 0; i < s->count; i++) {
        const qn_item *item = &s->items[i];
        authors |= item->module &&
                   ends_with(qn_str_of(item->module), "linear_attn.conv1d") &&
                   item->main->ndim == 3 && item->main->shape[2] != 1;
    }
    for (size_t i = 0; i < s->count && authors; i++) {
        qn_item *item = &s->items[i];
        if (!strncmp(item->name, "mtp.", 4)) {
            clear_item(item);
            s->skipped++;
        } else if (is_shifted_norm(item)) {
            item->shift = 1;
        } else if (item->module &&
                   ends_with(qn_str_of(item->module), "linear_attn.conv1d")) {
            /* One channel in the middle: the same numbers in the same order. */
            item->turned = true;
            item->rows *= item->cols;
            item->cols = 1;
        }
    }
    close_gaps(s);
}

qn_status qn_stack_experts(qn_origin *s)
{
    size_t made = 0;
    qn_map *by_module = map_modules(s);
    qn_status status = by_module ? stack_all(s, by_module, &made) : QN_E_NOMEM;
    qn_map_free(by_module, NULL);
    close_gaps(s);
    if (!status && made && !strcmp(s->arch, "qwen3_next"))
        finish_next(s);
    return status;
}

/* ---- reading ---- */

const qn_item *qn_stack_part(const qn_item *item, uint64_t row,
                             uint64_t *inside)
{
    const qn_stack *stack = item->stack;
    uint64_t each = stack->parts[0].rows;
    *inside = row % each;
    return &stack->parts[row / each];
}

size_t qn_stack_count(const qn_item *item)
{
    return item->stack ? item->stack->count : 1;
}

const qn_item *qn_stack_at(const qn_item *item, size_t i)
{
    return item->stack ? &item->stack->parts[i] : item;
}

void qn_stack_free(qn_stack *stack)
{
    if (!stack)
        return;
    for (size_t i = 0; i < stack->count; i++)
        qn_free(stack->parts[i].module);
    qn_free(stack->parts);
    qn_free(stack->name);
    qn_free(stack->written);
    qn_free(stack);
}
