/* draw.c: graphs walked depth first, inputs before the operation, without
 * recursion; evaluations wait meanwhile. */
#include "draw.h"

#include "core/eval.h"
#include "mlxfn_write.h"
#include "ops/dims.h"
#include "slots.h"

#include "base/alloc.h"

/* ---- names ---- */

typedef struct name {
    qn_array *array;
    char *text;
} name;

struct qn_namer {
    /* Arrays are held, so that no other one gets their address: not during a
     * drawing, when none goes and some are ghosts (core/array.h). */
    bool holds;
    name *names;
    size_t count, capacity;
    qn_slots slots; /* arrays: their index there */
};

qn_status qn_namer_new(qn_namer **out)
{
    *out = qn_calloc(1, sizeof **out);
    if (!*out)
        return QN_E_NOMEM;
    (*out)->holds = true;
    return QN_OK;
}

void qn_namer_free(qn_namer *namer)
{
    if (!namer)
        return;
    for (size_t i = 0; i < namer->count; i++) {
        if (namer->holds)
            qn_array_unref(namer->names[i].array);
        qn_free(namer->names[i].text);
    }
    qn_free(namer->names);
    qn_slots_free(&namer->slots);
    qn_free(namer);
}

static char *copy_of(const char *text)
{
    size_t size = strlen(text) + 1;
    char *copy = qn_alloc(size);
    if (copy)
        memcpy(copy, text, size);
    return copy;
}

/* Takes the text over. */
static qn_status put(qn_namer *namer, qn_array *array, char *text)
{
    qn_status status = text ? QN_OK : QN_E_NOMEM;
    size_t index = qn_slots_find(&namer->slots, array);
    if (!status && index != QN_NO_SLOT) {
        qn_free(namer->names[index].text);
        namer->names[index].text = text;
        return QN_OK;
    }
    if (!status && namer->count == namer->capacity) {
        size_t more = namer->capacity ? 2 * namer->capacity : 16;
        void *grown = qn_reallocarray(namer->names, more, sizeof(name));
        status = grown ? QN_OK : QN_E_NOMEM;
        if (grown) {
            namer->names = grown;
            namer->capacity = more;
        }
    }
    if (!status)
        status = qn_slots_put(&namer->slots, array, namer->count);
    if (status) {
        qn_free(text);
        return status;
    }
    if (namer->holds)
        qn_array_ref(array);
    namer->names[namer->count++] = (name){array, text};
    return QN_OK;
}

qn_status qn_namer_set(qn_namer *namer, qn_array *array, const char *text)
{
    return put(namer, array, copy_of(text));
}

/* The n-th of A, B, ..., Z, AA, AB, ... */
static char *letters(size_t n)
{
    char back[16];
    size_t length = 0;
    for (; n; n = (n - 1) / 26)
        back[length++] = (char)('A' + (n - 1) % 26);
    char *text = qn_alloc(length + 1);
    for (size_t i = 0; i < length && text; i++)
        text[i] = back[length - 1 - i];
    if (text)
        text[length] = '\0';
    return text;
}

qn_status qn_namer_get(const char **out, qn_namer *namer, qn_array *array)
{
    size_t index = qn_slots_find(&namer->slots, array);
    if (index == QN_NO_SLOT) {
        index = namer->count;
        qn_status status = put(namer, array, letters(index + 1));
        if (status)
            return status;
    }
    *out = namer->names[index].text;
    return QN_OK;
}

/* ---- walking ---- */

/* Where a drawing is. */
typedef struct drawing {
    qn_buf *buf;
    qn_namer *own; /* the given names first, then those made here */
    qn_slots seen; /* arrays */
    qn_slots sinks;
    qn_status status;
    size_t nodes;
    bool first;
} drawing;

static const char *name_of(drawing *d, qn_array *array)
{
    const char *text = "";
    if (!d->status)
        d->status = qn_namer_get(&text, d->own, array);
    return text;
}

static bool pending(const qn_array *array)
{
    return !qn_array_ready(array) && array->node;
}

/* The node whose output it is; NULL for what is not computed. */
static qn_node *node_of(const qn_array *array)
{
    return pending(array) ? array->node : NULL;
}

typedef struct frame {
    qn_array *array;
    int next; /* input */
} frame;

typedef struct stack {
    frame *frames;
    size_t count, capacity;
} stack;

/* Enters an array, its siblings too, once. */
static void enter(drawing *d, stack *s, qn_array *array)
{
    if (d->status || qn_slots_find(&d->seen, array) != QN_NO_SLOT)
        return;
    const qn_node *node = node_of(array);
    d->status = qn_slots_put(&d->seen, array, 0);
    for (int i = 0; node && i < node->noutputs && !d->status; i++)
        if (node->outputs[i])
            d->status = qn_slots_put(&d->seen, node->outputs[i], 0);
    if (!d->status && s->count == s->capacity) {
        size_t more = s->capacity ? 2 * s->capacity : 64;
        void *grown = qn_reallocarray(s->frames, more, sizeof(frame));
        d->status = grown ? QN_OK : QN_E_NOMEM;
        if (grown) {
            s->frames = grown;
            s->capacity = more;
        }
    }
    if (!d->status)
        s->frames[s->count++] = (frame){array, 0};
}

/* Calls `visit` for each array after the inputs of its operation. */
static void each(drawing *d, qn_array *const *outputs, size_t count,
                 void (*visit)(drawing *d, qn_array *array))
{
    stack s = {0};
    for (size_t i = 0; i < count && !d->status; i++) {
        enter(d, &s, outputs[i]);
        while (s.count && !d->status) {
            frame *top = &s.frames[s.count - 1];
            const qn_node *node = node_of(top->array);
            if (node && top->next < node->ninputs) {
                enter(d, &s, node->inputs[top->next++]);
            } else {
                s.count--;
                visit(d, top->array);
            }
        }
    }
    qn_free(s.frames);
    qn_slots_free(&d->seen);
}

static qn_status begin(drawing *d, qn_buf *buf, const qn_namer *namer,
                       qn_array *const *outputs, size_t count)
{
    *d = (drawing){.buf = buf};
    d->status = qn_namer_new(&d->own);
    if (!d->status)
        d->own->holds = false;
    for (size_t i = 0; i < namer->count && !d->status; i++)
        d->status =
            qn_namer_set(d->own, namer->names[i].array, namer->names[i].text);
    for (size_t i = 0; i < count && !d->status; i++)
        d->status = qn_slots_put(&d->sinks, outputs[i], 0);
    return d->status;
}

/* ---- Graphviz ---- */

/* In quotes; what would end them is written with a backslash. */
static void quoted(drawing *d, qn_array *array)
{
    qn_buf_add_char(d->buf, '"');
    for (const char *p = name_of(d, array); *p; p++) {
        if (*p == '"' || *p == '\\')
            qn_buf_add_char(d->buf, '\\');
        qn_buf_add_char(d->buf, *p);
    }
    qn_buf_add_char(d->buf, '"');
}

static void dot_entry(drawing *d, qn_array *array)
{
    const qn_node *node = node_of(array);
    if (!node) {
        qn_buf_add_text(d->buf, "{ rank=source; ");
        quoted(d, array);
        qn_buf_add_text(d->buf, "; }\n");
        return;
    }
    /* Quoted names and bare numbers don't meet. */
    size_t id = ++d->nodes;
    qn_buf_printf(d->buf, "{ %zu [label =\"%s\", shape=rectangle]; }\n", id,
                  qn_mlxfn_node_name(node));
    for (int i = 0; i < node->ninputs; i++) {
        quoted(d, node->inputs[i]);
        qn_buf_printf(d->buf, " -> %zu\n", id);
    }
    for (int i = 0; i < node->noutputs; i++) {
        qn_array *y = node->outputs[i];
        if (!y)
            continue;
        bool sink = qn_slots_find(&d->sinks, y) != QN_NO_SLOT;
        qn_buf_add_text(d->buf, sink ? "{ rank=sink; " : "{ ");
        quoted(d, y);
        qn_buf_printf(d->buf, "; }\n%zu -> ", id);
        quoted(d, y);
        qn_buf_add_char(d->buf, '\n');
    }
}

/* ---- lines ---- */

static void listed(drawing *d, qn_array *array, bool first)
{
    qn_buf_printf(d->buf, "%s%s [%s, %s]", first ? "" : ", ", name_of(d, array),
                  qn_array_shape_text(array).text, qn_dtype_name(array->dtype));
}

static void source_entry(drawing *d, qn_array *array)
{
    if (pending(array))
        return;
    listed(d, array, d->first);
    d->first = false;
}

static void line_entry(drawing *d, qn_array *array)
{
    const qn_node *node = node_of(array);
    bool first = true;
    if (!node)
        return;
    qn_buf_printf(d->buf, "%s ", qn_mlxfn_node_name(node));
    for (int i = 0; i < node->ninputs; i++)
        listed(d, node->inputs[i], i == 0);
    qn_buf_add_text(d->buf, " -> ");
    for (int i = 0; i < node->noutputs; i++)
        if (node->outputs[i]) {
            listed(d, node->outputs[i], first);
            first = false;
        }
    qn_buf_add_char(d->buf, '\n');
}

static qn_status end(drawing *d)
{
    qn_namer_free(d->own);
    qn_slots_free(&d->sinks);
    return d->status ? d->status : qn_buf_status(d->buf);
}

qn_status qn_draw_dot(qn_buf *buf, const qn_namer *namer,
                      qn_array *const *outputs, size_t count)
{
    drawing d;
    qn_eval_begin();
    if (!begin(&d, buf, namer, outputs, count)) {
        qn_buf_add_text(buf, "digraph {\n");
        each(&d, outputs, count, dot_entry);
        qn_buf_add_text(buf, "}");
    }
    qn_status status = end(&d);
    qn_eval_end();
    return status;
}

qn_status qn_draw_lines(qn_buf *buf, const qn_namer *namer,
                        qn_array *const *outputs, size_t count)
{
    drawing d;
    qn_eval_begin();
    if (!begin(&d, buf, namer, outputs, count)) {
        d.first = true;
        qn_buf_add_text(buf, "Inputs: ");
        each(&d, outputs, count, source_entry);
        qn_buf_add_text(buf, "\nOutputs: ");
        for (size_t i = 0; i < count; i++)
            listed(&d, outputs[i], i == 0);
        qn_buf_add_char(buf, '\n');
        each(&d, outputs, count, line_entry);
    }
    qn_status status = end(&d);
    qn_eval_end();
    return status;
}
