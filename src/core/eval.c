/* eval.c: from requested arrays to a tape, and down the tape.
 *
 * A node on the tape is held by it until it has run: a callback may evaluate
 * some of the rest of the tape meanwhile, and then the tape just passes over
 * it.
 *
 * When a node has run, its outputs become READY one by one, and from then on
 * may be freed by other threads.  An output whose last holder let go before
 * that is a ghost, stays listed in the node and is freed with it. */
#include "eval.h"

#include "async.h"
#include "base/alloc.h"
#include "lock.h"

#include <assert.h>
#include <string.h>

typedef struct frame {
    qn_node *node;
    int next; /* input to look at */
} frame;

typedef struct tape {
    qn_node **nodes;
    frame *stack;
    size_t count, capacity;
    size_t depth, stack_capacity;
    uint64_t mark;
    qn_stream *stream; /* of the last node */
    /* Those with work that was launched and not waited for. */
    qn_stream *launched[8];
    int nlaunched;
} tape;

enum { KEPT_CAPACITY = 1 << 14 }; /* of the tape's storage between two uses */

static _Atomic(const qn_backend *) backends[QN_DEVICE_GPU + 1];
static _Thread_local unsigned eval_depth;
/* The storage of the outermost evaluation; under QN_LOCK_EVAL. */
static tape outer;
static uint64_t marks;              /* under QN_LOCK_EVAL */
static qn_eval_end_hook *end_hooks; /* likewise */

void qn_backend_register(qn_device_type type, const qn_backend *backend)
{
    atomic_store(&backends[type], backend);
}

const qn_backend *qn_backend_of(qn_device_type type)
{
    return atomic_load_explicit(&backends[type], memory_order_acquire);
}

/* ---- one at a time ---- */

void qn_eval_begin(void)
{
    if (eval_depth++)
        return;
    qn_defer_begin();
    qn_lock(QN_LOCK_EVAL);
}

void qn_eval_end(void)
{
    if (--eval_depth)
        return;
    qn_unlock(QN_LOCK_EVAL);
    qn_defer_end();
}

bool qn_eval_active(void)
{
    return eval_depth > 0;
}

/* ---- writing the tape ---- */

static bool grow(void **data, size_t *capacity, size_t item)
{
    size_t more = *capacity ? 2 * *capacity : 256;
    void *grown = qn_reallocarray(*data, more, item);
    if (!grown)
        return false;
    *data = grown;
    *capacity = more;
    return true;
}

static qn_status push(tape *t, const qn_array *array)
{
    qn_node *node = array->node;
    if (!node)
        return qn_fail(QN_E_ARG,
                       "[eval] evaluation during a transformation: a "
                       "placeholder has no value, it stands for an input of "
                       "the function that is being recorded");
    if (node->mark == t->mark)
        return QN_OK;
    if (node->state == QN_NODE_RUNNING)
        return qn_fail(QN_E_ARG, "[eval] a callback asked for the array that "
                                 "it is being called to compute");
    if (t->depth == t->stack_capacity &&
        !grow((void **)&t->stack, &t->stack_capacity, sizeof *t->stack))
        return QN_E_NOMEM;
    node->mark = t->mark;
    t->stack[t->depth++] = (frame){qn_node_ref(node), 0};
    return QN_OK;
}

/* Moves the node on top of the stack, whose inputs are all on the tape, there.
 * A stream with an error kept from before delivers it now. */
static qn_status append(tape *t, bool deliver)
{
    if (t->count == t->capacity &&
        !grow((void **)&t->nodes, &t->capacity, sizeof *t->nodes))
        return QN_E_NOMEM;
    qn_node *node = t->stack[--t->depth].node;
    t->nodes[t->count++] = node;
    if (node->stream == t->stream)
        return QN_OK;
    t->stream = node->stream;
    return deliver ? qn_stream_take_error(node->stream) : QN_OK;
}

static qn_status write_tape(tape *t, qn_array *const *arrays, size_t count,
                            bool deliver)
{
    qn_status status = QN_OK;
    for (size_t i = 0; i < count && !status; i++) {
        if (qn_array_ready(arrays[i]))
            continue;
        status = push(t, arrays[i]);
        while (t->depth && !status) {
            frame *top = &t->stack[t->depth - 1];
            if (top->next == top->node->ninputs) {
                status = append(t, deliver);
                continue;
            }
            const qn_array *input = top->node->inputs[top->next++];
            if (!qn_array_ready(input))
                status = push(t, input);
        }
    }
    return status;
}

/* ---- running it ---- */

static qn_status wait_launched(tape *t)
{
    qn_status status = QN_OK;
    while (t->nlaunched) {
        qn_stream *stream = t->launched[--t->nlaunched];
        const qn_backend *backend =
            qn_backend_of(qn_stream_device(stream).type);
        qn_status now = backend->synchronize(stream);
        status = status ? status : now;
    }
    return status;
}

static qn_status note_launched(tape *t, qn_stream *stream)
{
    for (int i = 0; i < t->nlaunched; i++)
        if (t->launched[i] == stream)
            return QN_OK;
    qn_status status = QN_OK;
    if (t->nlaunched == (int)(sizeof t->launched / sizeof t->launched[0]))
        status = wait_launched(t);
    t->launched[t->nlaunched++] = stream;
    return status;
}

static void discard_outputs(qn_node *node)
{
    for (int i = 0; i < node->noutputs; i++) {
        qn_buffer_unref(node->outputs[i]->buffer);
        node->outputs[i]->buffer = NULL;
    }
}

/* Hands the outputs over to those who hold them and gives up the tape's
 * reference to the node. */
static void publish(qn_node *node)
{
    unsigned published = 0;
    for (int i = 0; i < node->noutputs; i++) {
        qn_array *output = node->outputs[i];
        assert(output->buffer);
        qn_array_state state = QN_PENDING;
        /* Unlisted first: once READY it may be gone at any time. */
        node->outputs[i] = NULL;
        if (atomic_compare_exchange_strong_explicit(
                &output->state, &state, QN_READY, memory_order_acq_rel,
                memory_order_acquire))
            published++;
        else
            node->outputs[i] = output;
    }
    node->state = QN_NODE_DONE;
    qn_node_unref(node, published + 1);
}

static qn_status run_node(tape *t, qn_node *node)
{
    const qn_backend *backend =
        qn_backend_of(qn_stream_device(node->stream).type);
    node->state = QN_NODE_RUNNING;
    qn_status status = backend->run(node);
    if (!status && backend->synchronize)
        status = note_launched(t, node->stream);
    if (status) {
        node->state = QN_NODE_WAITING;
        discard_outputs(node);
        qn_node_unref(node, 1);
        return status;
    }
    publish(node);
    return QN_OK;
}

void qn_eval_at_end(qn_eval_end_hook *hook)
{
    if (hook->listed)
        return;
    hook->listed = true;
    hook->next = end_hooks;
    end_hooks = hook;
}

/* The first error counts; all of them run. */
static qn_status run_end_hooks(void)
{
    qn_status status = QN_OK;
    while (end_hooks) {
        qn_eval_end_hook *hook = end_hooks;
        end_hooks = hook->next;
        hook->listed = false;
        qn_status now = hook->run();
        status = status ? status : now;
    }
    return status;
}

/* Waits for the rest after a failure, whose sentence stays the recorded one. */
static void wait_launched_anyway(tape *t)
{
    qn_error error;
    qn_error_save(&error);
    wait_launched(t);
    qn_error_restore(&error);
}

/* The stream of the first array that has yet to be computed; NULL: none. */
static qn_stream *first_stream(qn_array *const *arrays, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!qn_array_ready(arrays[i]) && arrays[i]->node)
            return arrays[i]->node->stream;
    return NULL;
}

/* Computes the arrays, under the lock.  On failure *failed is the stream to
 * blame. */
static qn_status evaluate(qn_array *const *arrays, size_t count, bool deliver,
                          qn_stream **failed)
{
    tape inner = {0};
    tape *t = eval_depth > 1 ? &inner : &outer;
    t->count = t->depth = 0;
    t->stream = NULL;
    t->nlaunched = 0;
    t->mark = ++marks;

    qn_status status = write_tape(t, arrays, count, deliver);
    *failed = t->stream ? t->stream : first_stream(arrays, count);
    size_t next = 0;
    while (next < t->count && !status) {
        qn_node *node = t->nodes[next++];
        if (node->state == QN_NODE_DONE) {
            qn_node_unref(node, 1);
            continue;
        }
        *failed = node->stream;
        status = run_node(t, node);
    }
    /* After a failure: give back what was not reached. */
    while (next < t->count)
        qn_node_unref(t->nodes[next++], 1);
    while (t->depth)
        qn_node_unref(t->stack[--t->depth].node, 1);

    if (status)
        wait_launched_anyway(t);
    else
        status = wait_launched(t);
    if (!status && end_hooks && eval_depth == 1)
        status = run_end_hooks();
    if (t == &inner || t->capacity > KEPT_CAPACITY ||
        t->stack_capacity > KEPT_CAPACITY) {
        qn_free(t->nodes);
        qn_free(t->stack);
        *t = (tape){0};
    }
    return status;
}

static bool all_ready(qn_array *const *arrays, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!qn_array_ready(arrays[i]))
            return false;
    return true;
}

qn_status qn_eval(qn_array *const *arrays, size_t count)
{
    if (all_ready(arrays, count))
        return QN_OK;
    qn_async_wait_for(arrays, count);
    /* Taking the lock would wait for whatever the worker does next. */
    if (all_ready(arrays, count))
        return QN_OK;
    qn_stream *failed;
    qn_eval_begin();
    qn_status status = evaluate(arrays, count, true, &failed);
    qn_eval_end();
    return status;
}

qn_status qn_eval_async(qn_array *const *arrays, size_t count)
{
    return all_ready(arrays, count) ? QN_OK : qn_async_push(arrays, count);
}

void qn_eval_keep_error(qn_array *const *arrays, size_t count)
{
    qn_stream *failed;
    qn_status status = evaluate(arrays, count, false, &failed);
    if (status && failed)
        qn_stream_keep_error(failed, status);
}
