/* fake.h: a backend small enough to be seen through, for the tests of core.
 *
 * Its operations work on whole int64 elements.  INC overwrites its input where
 * that is allowed. */
#ifndef QN_TEST_CORE_FAKE_H
#define QN_TEST_CORE_FAKE_H

#include "support/qn_test.h"

#include "core/eval.h"

enum {
    FAKE_INC,   /* x + 1 */
    FAKE_ADD,   /* x + y */
    FAKE_SPLIT, /* two outputs: x, x + 1 */
    FAKE_FAIL,  /* an error; the output already has storage */
    FAKE_CALL,  /* calls the fake_call in its params, then as INC */
    FAKE_VIEW   /* the input's storage */
};

typedef struct fake_call {
    qn_status (*call)(void *data);
    void *data;
} fake_call;

/* What has run so far, in order. */
static struct {
    int ops[64];
    int count;
    int donated;
} fake_log;

static inline int64_t *fake_data(const qn_array *a)
{
    return qn_array_data(a);
}

static inline qn_status fake_inc(qn_array *out, qn_array *in)
{
    if (qn_array_donatable(in)) {
        qn_array_share(out, in);
        fake_log.donated++;
    } else {
        qn_status status = qn_array_alloc(out);
        if (status)
            return status;
    }
    for (size_t i = 0; i < out->size; i++)
        fake_data(out)[i] = fake_data(in)[i] + 1;
    return QN_OK;
}

static inline qn_status fake_run(qn_node *node)
{
    qn_array *out = node->outputs[0];
    qn_status status;
    if (fake_log.count < 64)
        fake_log.ops[fake_log.count++] = node->op;
    switch (node->op) {
    case FAKE_CALL: {
        const fake_call *call = node->params;
        status = call->call(call->data);
        return status ? status : fake_inc(out, node->inputs[0]);
    }
    case FAKE_INC:
        return fake_inc(out, node->inputs[0]);
    case FAKE_ADD:
        status = qn_array_alloc(out);
        for (size_t i = 0; !status && i < out->size; i++)
            fake_data(out)[i] =
                fake_data(node->inputs[0])[i] + fake_data(node->inputs[1])[i];
        return status;
    case FAKE_SPLIT:
        for (int k = 0; k < 2; k++) {
            status = qn_array_alloc(node->outputs[k]);
            if (status)
                return status;
            for (size_t i = 0; i < out->size; i++)
                fake_data(node->outputs[k])[i] =
                    fake_data(node->inputs[0])[i] + k;
        }
        return QN_OK;
    case FAKE_VIEW:
        qn_array_share(out, node->inputs[0]);
        return QN_OK;
    default:
        status = qn_array_alloc(out);
        return status ? status : qn_fail(QN_E_IO, "the fake operation failed");
    }
}

static const qn_backend fake_backend = {.name = "fake", .run = fake_run};

/* A group setup; the stream of all nodes below. */
static qn_stream *fake_stream;

static inline int fake_setup(void **state)
{
    (void)state;
    qn_backend_register(QN_DEVICE_CPU, &fake_backend);
    check_status(qn_stream_default(&fake_stream, (qn_device){QN_DEVICE_CPU, 0}),
                 QN_OK);
    return 0;
}

static const int fake_shape[1] = {4};

/* A READY array of four times `value`. */
static inline qn_array *fake_leaf(int64_t value)
{
    const int64_t data[4] = {value, value, value, value};
    qn_array *a;
    check_status(qn_array_from_data(&a, data, fake_shape, 1, QN_INT64), QN_OK);
    return a;
}

static inline qn_node_spec fake_spec(int op, qn_array *const *inputs, int count)
{
    return (qn_node_spec){
        .op = op, .stream = fake_stream, .inputs = inputs, .ninputs = count};
}

/* A pending array; the inputs stay the caller's. */
static inline qn_array *fake_op(int op, qn_array *x, qn_array *y)
{
    qn_array *inputs[2] = {x, y}, *out;
    qn_node_spec spec = fake_spec(op, inputs, y ? 2 : 1);
    check_status(qn_node_new(&out, &spec, QN_INT64, fake_shape, 1), QN_OK);
    return out;
}

/* The same, and gives `x` up: chains need no names. */
static inline qn_array *fake_then(qn_array *x, int op)
{
    qn_array *out = fake_op(op, x, NULL);
    qn_array_unref(x);
    return out;
}

static inline qn_array *fake_calling(qn_array *x, fake_call call)
{
    qn_node_spec spec = fake_spec(FAKE_CALL, &x, 1);
    qn_array *out;
    spec.params = &call;
    spec.params_size = sizeof call;
    check_status(qn_node_new(&out, &spec, QN_INT64, fake_shape, 1), QN_OK);
    return out;
}

static inline void fake_split(qn_array *out[2], qn_array *x)
{
    qn_node_spec spec = fake_spec(FAKE_SPLIT, &x, 1);
    for (int i = 0; i < 2; i++)
        check_status(qn_array_new(&out[i], QN_INT64, fake_shape, 1), QN_OK);
    check_status(qn_node_attach(&spec, out, 2), QN_OK);
}

static inline void check_value(qn_array *a, int64_t expected)
{
    check_status(qn_eval(&a, 1), QN_OK);
    for (size_t i = 0; i < a->size; i++)
        assert_int_equal(fake_data(a)[i], expected);
}

#endif
