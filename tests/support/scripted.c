/* scripted.c: the family that plays a script instead of computing (runtime
 * specification 5.2): for tests that need exact text, delays or faults.
 *
 * The n-th token that is sampled for a request is the n-th of the script,
 * whatever the prompt, the cache and the other rows; then comes the end token.
 * Nothing is cached: what a position gives follows from qn_kv_rows.answered. */
#include "model/family.h"

#include "base/alloc.h"
#include "base/file.h"

#include <stdio.h>
#include <time.h>

enum { NOTHING = -100 };

/* config->extra */
typedef struct script {
    int fail_at, delay_ms, prefill_us;
    bool prefer;    /* all of `ids` at every step, the first one ahead */
    char gate[512]; /* loading waits until this file is there; "": for none */
    int32_t end, vocab;
    int32_t count, ids[];
} script;

static void prepare(qn_config *c)
{
    c->hidden = 2;
    c->layers = c->heads = c->kv_heads = c->intermediate = 1;
    c->head_dim = 2;
    c->norm_eps = 1e-6;
    c->tied = 1;
}

static void configure(qn_config *c, qn_source *s)
{
    const qn_json *prefer = qn_source_json(s, "prefer_ids");
    const qn_json *list = prefer ? prefer : qn_source_json(s, "script_ids");
    if (s->status)
        return;
    uint32_t count = list ? list->count : 0;
    script *x = qn_calloc(1, sizeof *x + count * sizeof *x->ids);
    if (!x) {
        s->status = QN_E_NOMEM;
        return;
    }
    c->extra = x;
    x->prefer = prefer != NULL;
    x->vocab = c->vocab_size;
    x->end = c->end_count ? c->end_ids[0] : 0;
    x->count = (int32_t)count;
    for (uint32_t i = 0; i < count; i++) {
        int64_t id = -1;
        if (!qn_json_as_int(&list->items[i], &id) || id < 0 || id >= x->vocab)
            qn_source_wrong(s, prefer ? "prefer_ids" : "script_ids", "ids",
                            &list->items[i]);
        x->ids[i] = (int32_t)id;
    }
    qn_read_int(s, &x->fail_at, "fail_at", NULL, 0, 1 << 30);
    qn_read_int(s, &x->delay_ms, "delay_ms", NULL, 0, 60000);
    qn_read_int(s, &x->prefill_us, "prefill_us", NULL, 0, 1000000);
    qn_str gate;
    if (qn_json_as_str(qn_source_json(s, "load_gate"), &gate))
        snprintf(x->gate, sizeof x->gate, "%.*s", (int)gate.size, gate.data);
}

static void wait_us(int64_t us)
{
    struct timespec t = {us / 1000000, (long)(us % 1000000) * 1000};
    while (us > 0 && nanosleep(&t, &t))
        ;
}

static qn_status load(void **out, qn_loader *l)
{
    const script *x = l->config->extra;
    qn_loader_ignore(l, "script.weight");
    for (int i = 0; *x->gate && i < 6000 && !qn_path_exists(x->gate); i++)
        wait_us(10000);
    *out = l->config->extra;
    return QN_OK;
}

/* The configuration owns it. */
static void free_state(void *state)
{
    (void)state;
}

/* The logits of output token n. */
static void write_logits(const script *x, int64_t n, float *out)
{
    for (int32_t i = 0; i < x->vocab; i++)
        out[i] = NOTHING;
    if (!x->prefer)
        out[n >= 0 && n < x->count ? x->ids[n] : x->end] = 0;
    for (int32_t i = 0; x->prefer && i < x->count; i++)
        out[x->ids[i]] = (float)-i;
}

static int positions_of(const qn_kv_rows *rows, bool last_only)
{
    return !last_only ? rows->count : rows->wanted ? rows->wanted : 1;
}

/* What the step takes, and whether it fails. */
static void act(const script *x, nn *c, nn_rows rows)
{
    int64_t us = 0;
    bool answers = false;
    for (size_t i = 0; i < rows.count; i++) {
        const qn_kv_rows *r = &rows.rows[i];
        answers |= r->wanted > 0;
        if (!r->answered)
            us += (int64_t)r->count * x->prefill_us;
        if (x->fail_at && r->wanted && r->answered + 1 >= x->fail_at)
            c->status = qn_fail(QN_E_INTERNAL, "the script fails here");
    }
    wait_us(us + (answers ? 1000LL * x->delay_ms : 0));
}

static mlx_array forward(const void *state, nn *c, mlx_array ids, nn_rows rows,
                         bool last_only)
{
    const script *x = state;
    int total = 0, at = 0;
    (void)ids;
    act(x, c, rows);
    for (size_t i = 0; i < rows.count; i++)
        total += positions_of(&rows.rows[i], last_only);
    float *values = qn_calloc((size_t)total * (size_t)x->vocab, sizeof *values);
    if (!values && !c->status)
        c->status = QN_E_NOMEM;
    if (c->status) {
        qn_free(values);
        return (mlx_array){NULL};
    }
    for (size_t i = 0; i < rows.count; i++)
        for (int back = positions_of(&rows.rows[i], last_only); back-- > 0;)
            write_logits(x, rows.rows[i].answered - back,
                         values + (size_t)at++ * (size_t)x->vocab);
    mlx_array logits =
        mlx_array_new_data(values, (int[]){1, total, x->vocab}, 3, MLX_FLOAT32);
    qn_free(values);
    return nn_adopt(c, logits);
}

static bool tied(const void *state)
{
    (void)state;
    return true;
}

static const char *const ignored[] = {NULL};
static const char *const modules[] = {"script", NULL};

extern const qn_family qn_family_scripted;
const qn_family qn_family_scripted = {
    .prepare = prepare,
    .configure = configure,
    .load = load,
    .free = free_state,
    .forward = forward,
    .tied = tied,
    .ignored = ignored,
    .modules = modules,
};
